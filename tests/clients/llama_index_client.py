"""llama-index, as it comes."""

from __future__ import annotations

from checks import PROMPT, check, given, run
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

URL, KEY = given()
MESSAGES = [ChatMessage(role="user", content=PROMPT)]


def model(is_chat: bool) -> OpenAILike:
    fields = {"model": "auto", "max_tokens": 60, "context_window": 8192}
    return OpenAILike(api_base=f"{URL}/v1", api_key=KEY, is_chat_model=is_chat, **fields)


@check
def it_completes_by_either_endpoint() -> None:
    for is_chat in (False, True):
        assert PROMPT in model(is_chat).complete(PROMPT).text


@check
def it_streams_a_completion() -> None:
    assert PROMPT in "".join(part.delta or "" for part in model(False).stream_complete(PROMPT))


@check
def it_streams_a_chat() -> None:
    assert PROMPT in "".join(part.delta or "" for part in model(True).stream_chat(MESSAGES))


@check
async def it_chats_in_asyncio() -> None:
    assert PROMPT in str((await model(True).achat(MESSAGES)).message.content)


if __name__ == "__main__":
    run()
