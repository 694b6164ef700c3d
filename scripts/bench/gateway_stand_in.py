"""A gRPC server that answers as llm_router does, at once: what a gateway in front of it costs is then all that is seen.

python -m scripts.bench.gateway_stand_in      prints its port, and serves until it is stopped
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from bls import kserve

WORD = " word"


def piece(finish: str, place: int) -> bytes:
    """A response with one word, serialised."""
    response = kserve.ModelInferResponse(model_name="llm_router")
    words = {"text_output": WORD, "finish_reason": finish}
    if finish or place == 0:
        words |= {"model": "tensorrt_llm_small", "reason": "default"}
    for name, text in words.items():
        if text:
            response.outputs.add(name=name, datatype="BYTES", shape=[1])
            response.raw_output_contents.append(len(text).to_bytes(4, "little") + text.encode())
    for name in ("num_input_tokens", "num_output_tokens"):
        response.outputs.add(name=name, datatype="INT32", shape=[1, 1])
        response.raw_output_contents.append((1).to_bytes(4, "little"))
    response.parameters["triton_final_response"].bool_param = bool(finish)
    return bytes(kserve.ModelStreamInferResponse(infer_response=response).SerializeToString())


FIRST, MIDDLE, LAST, WHOLE = piece("", 0), piece("", 1), piece("length", 1), piece("stop", 0)


async def stream(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[bytes]:
    """As many words as max_tokens says; one response where no stream is wanted."""
    async for request in requests:
        values = {
            tensor.name: content for tensor, content in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        if values["stream"] == b"\0":
            yield WHOLE
            continue
        count = int.from_bytes(values["max_tokens"], "little")
        yield FIRST
        for _ in range(count - 2):
            yield MIDDLE
        yield LAST


async def ready(request: Any, context: Any) -> Any:
    return kserve.ModelReadyResponse(ready=True).SerializeToString()


async def serve() -> None:
    server = grpc.aio.server()
    handlers = {
        "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(
            stream, request_deserializer=kserve.ModelInferRequest.FromString
        ),
        "ModelReady": grpc.unary_unary_rpc_method_handler(ready),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(kserve.SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve())
