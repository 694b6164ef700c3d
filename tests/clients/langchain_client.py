"""langchain-openai, as it comes."""

from __future__ import annotations

from checks import PROMPT, check, given, run
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

URL, KEY = given()
model = ChatOpenAI(base_url=f"{URL}/v1", api_key=KEY, model="auto", max_tokens=60)


@check
def it_invokes() -> None:
    found = model.invoke(PROMPT)
    assert PROMPT in found.content and found.usage_metadata["output_tokens"] > 2, found


@check
def it_streams_with_usage() -> None:
    chunks = list(ChatOpenAI(base_url=f"{URL}/v1", api_key=KEY, model="auto", stream_usage=True).stream(PROMPT))
    assert PROMPT in "".join(chunk.content for chunk in chunks)
    assert any(chunk.usage_metadata for chunk in chunks)


@check
async def it_streams_in_asyncio() -> None:
    assert PROMPT in "".join([chunk.content async for chunk in model.astream(PROMPT)])


@check
def it_embeds() -> None:
    found = OpenAIEmbeddings(
        base_url=f"{URL}/v1", api_key=KEY, model="text-classifier-embedding", check_embedding_ctx_length=False
    ).embed_documents(["one", "two words"])
    assert [len(each) for each in found] == [384, 384]


if __name__ == "__main__":
    run()
