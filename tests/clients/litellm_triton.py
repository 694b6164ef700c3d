"""litellm by its triton/ prefix: it speaks /generate to Triton itself, so its address is Triton's and no gateway's."""

from __future__ import annotations

from typing import Any

import litellm
from checks import PROMPT, check, given, run

URL, _ = given()
MESSAGES: Any = [{"role": "user", "content": PROMPT}]
ROUTER = f"{URL}/v2/models/llm_router/generate"


def chat(**fields: Any) -> Any:
    return litellm.completion(model="triton/llm_router", messages=MESSAGES, api_base=ROUTER, **fields)


@check
def it_completes() -> None:
    assert PROMPT in chat(max_tokens=60).choices[0].message.content


@check
def it_streams() -> None:
    assert PROMPT in "".join(chunk.choices[0].delta.content or "" for chunk in chat(max_tokens=60, stream=True))


if __name__ == "__main__":
    run()
