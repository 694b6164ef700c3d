"""openai-agents, as it comes, by /v1/responses, which is its default, and by /v1/chat/completions."""

from __future__ import annotations

from agents import Agent, Runner, set_default_openai_api, set_default_openai_client
from checks import PROMPT, check, given, run
from openai import AsyncOpenAI

URL, KEY = given()


def agent(api: str) -> Agent:
    set_default_openai_client(AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY), use_for_tracing=False)
    set_default_openai_api(api)
    return Agent(name="an agent", instructions="Be brief.", model="auto")


async def answered(api: str) -> None:
    found = await Runner.run(agent(api), PROMPT)
    assert PROMPT in found.final_output and found.context_wrapper.usage.output_tokens > 2, found


async def streamed(api: str) -> None:
    run = Runner.run_streamed(agent(api), PROMPT)
    text = ""
    async for event in run.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    assert PROMPT in text and run.final_output == text, (text, run.final_output)


@check
async def an_agent_is_answered_by_responses() -> None:
    await answered("responses")


@check
async def an_agent_is_answered_by_chat_completions() -> None:
    await answered("chat_completions")


@check
async def an_agent_streams_by_responses() -> None:
    await streamed("responses")


@check
async def an_agent_streams_by_chat_completions() -> None:
    await streamed("chat_completions")


if __name__ == "__main__":
    run()
