"""An asyncio client of this server: one connection, many requests at once, each of which ends exactly once.

    async with TritonAsyncClient("localhost:8001") as client:
        async for piece in client.stream(Request("Tell me a story.", max_tokens=200)):
            print(piece.text, end="", flush=True)
        answers = await client.generate_all([Request("One"), Request("Two")])  # an Answer or a RequestFailed each

    python -m scripts.client "What is the capital of France?"
    python -m scripts.client --model llama_7b_ensemble --max-tokens 20 "Three colours:" "Three animals:"

Leaving a stream, by `break`, an exception or the task's cancellation, stops its engine. Not that of an ensemble: Triton
2.51 doesn't tell a running step that its client has left, so what was begun there is computed to its end.
"""

from scripts.client.client import TritonAsyncClient
from scripts.client.failure import RequestFailed
from scripts.client.request import Answer, Piece, Request

__all__ = ["Answer", "Piece", "Request", "RequestFailed", "TritonAsyncClient"]
