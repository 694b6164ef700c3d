"""A load over gRPC, against an endpoint that only remembers: what it is sent, and what becomes of its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from scripts.server import grpc_load
from scripts.server.grpc_load import NotAsked, Refused
from tests.server.serving import free_ports

CONFIG = json.dumps({"name": "m", "note": "a" * 5000})


class Endpoint(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self) -> None:
        self.loaded: list[tuple[str, str, str]] = []
        self.refusal: tuple[grpc.StatusCode, str] | None = None

    def RepositoryModelLoad(self, request, context):  # noqa: N802
        key = dict(context.invocation_metadata()).get("triton-grpc-protocol-key", "")
        self.loaded.append((request.model_name, request.parameters["config"].string_param, key))
        if self.refusal:
            context.abort(*self.refusal)
        return service_pb2.RepositoryModelLoadResponse()


@pytest.fixture
def endpoint() -> Iterator[tuple[Endpoint, str]]:
    with ThreadPoolExecutor(2) as pool:
        server, remembers = grpc.server(pool), Endpoint()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(remembers, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield remembers, f"127.0.0.1:{port}"
        server.stop(None).wait()


def load(target: str) -> None:
    grpc_load.load(target, "m", CONFIG, {"triton-grpc-protocol-key": "secret"}, 60.0)


def test_model_config_and_key_arrive(endpoint):
    remembers, target = endpoint
    load(target)
    assert remembers.loaded == [("m", CONFIG, "secret")]


def test_what_the_server_refuses_is_told_in_one_line(endpoint):
    remembers, target = endpoint
    remembers.refusal = (grpc.StatusCode.INTERNAL, "failed to load 'm'\nand more")
    with pytest.raises(Refused, match=r"^failed to load 'm'$"):
        load(target)


def test_where_it_asks_for_another_key_or_nobody_listens_another_way_may_do(endpoint):
    remembers, target = endpoint
    remembers.refusal = (grpc.StatusCode.UNAVAILABLE, "This protocol is restricted")
    with pytest.raises(NotAsked):
        load(target)
    with pytest.raises(NotAsked):
        load(f"127.0.0.1:{free_ports(1)[0]}")
