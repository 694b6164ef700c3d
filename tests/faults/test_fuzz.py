"""Requests that make no sense, by every door: each gets an answer, none hears of our insides, nobody else suffers.

LLM_ROUTER_FUZZ_REQUESTS makes it shorter or longer.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from bls.contract import contract_of
from bls.paths import MODEL_REPOSITORY, ROOT
from scripts.host.processes import is_alive
from tests.faults import victims
from tests.faults.load import Load

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1200)]

REQUESTS = int(os.environ.get("LLM_ROUTER_FUZZ_REQUESTS", 8000))
CLIENTS, PATIENCE_S = 8, 60
MODELS = sorted(folder.name for folder in MODEL_REPOSITORY.iterdir() if contract_of(folder.name))
DATATYPES = {"BYTES": "bytes", "INT32": "int", "INT64": "int64", "UINT64": "uint64", "FP32": "fp32", "BOOL": "bool"}
TEXTS = ("", "Hi", "a" * 5000, "\x00", "é" * 100, "<|im_end|>", '{"a":1}', "[" * 2000, "{{7*7}}", "../../etc/passwd")
NUMBERS = (-1, 0, 1, 3, 2**31 - 1, -(2**31))
INSIDES = re.compile(rf"Traceback|\[INTERNAL\]|File \"|{re.escape(str(ROOT))}|/root/|/tmp/|\.py\b|object at 0x")


def names(chance: random.Random, model: str) -> list[str]:
    known = [tensor.name for tensor in contract_of(model).inputs]
    chosen = chance.sample(known, chance.randint(0, min(5, len(known))))
    return chosen + (["no_such_input"] if chance.random() < 0.1 else [])


def grpc_request(chance: random.Random, model: str):
    request = service_pb2.ModelInferRequest(model_name=model, id=chance.choice(TEXTS)[:64].replace("\x00", ""))
    for name in names(chance, model):
        datatype = chance.choice(list(DATATYPES))
        count = chance.choice((0, 1, 1, 1, 2))
        tensor = request.inputs.add(
            name=name, datatype=datatype, shape=chance.choice(([1, count], [count], [1, 1, count]))
        )
        values = getattr(tensor.contents, f"{DATATYPES[datatype]}_contents")
        for _ in range(count):
            values.append(value(chance, datatype))
    return request


def value(chance: random.Random, datatype: str):
    if datatype == "BYTES":
        return chance.choice(TEXTS).encode()
    if datatype == "BOOL":
        return chance.random() < 0.5
    if datatype == "FP32":
        return chance.choice((0.0, 1.0, -1.0, float("nan"), float("inf")))
    number = chance.choice(NUMBERS)
    return abs(number) if datatype == "UINT64" else number


def http_body(chance: random.Random, model: str) -> bytes:
    if chance.random() < 0.1:
        return chance.choice((b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"text_input":' + b"[" * 1000))
    body = {name: chance.choice((*TEXTS, *NUMBERS, None, True, [], {}, 1.5)) for name in names(chance, model)}
    if chance.random() < 0.5:
        body |= {"text_input": chance.choice(TEXTS), "max_tokens": chance.choice((1, 4, 8))}
    return json.dumps(body).encode()


class Fuzz:
    """What each request was told; `hung` had no end in time."""

    def __init__(self, server):
        self.told: Counter[str] = Counter()
        self.hung = 0
        self._host = server.http_url.removeprefix("http://")
        self._channel = grpc.insecure_channel(server.grpc_url)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def send(self, number: int) -> None:
        chance = random.Random(number)
        model = chance.choice(MODELS)
        self.by_grpc(chance, model) if number % 2 else self.by_http(chance, model)

    def by_grpc(self, chance: random.Random, model: str) -> None:
        try:
            for response in self._stub.ModelStreamInfer(iter([grpc_request(chance, model)]), timeout=PATIENCE_S):
                self.told[response.error_message] += 1
        except grpc.RpcError as error:
            self.hung += error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            self.told[error.details() or ""] += 1

    def by_http(self, chance: random.Random, model: str) -> None:
        connection = http.client.HTTPConnection(self._host, timeout=PATIENCE_S)
        verb = chance.choice(("generate", "generate_stream", "infer"))
        try:
            connection.request("POST", f"/v2/models/{model}/{verb}", http_body(chance, model))
            self.told[connection.getresponse().read().decode(errors="replace")] += 1
        except TimeoutError:
            self.hung += 1
        finally:
            connection.close()


def test_senseless_requests_are_answered_and_harm_nobody_else(server):
    processes = {pid for model in MODELS for pid in victims.stubs(server, model)} | {victims.tritonserver(server)}
    with Load(server, streams=2, rate=2) as load:
        load.fault("no fuzz")
        calm = load.watch(10)
    fuzz = Fuzz(server)
    with Load(server, streams=2, rate=2) as load:
        load.fault(f"{REQUESTS} requests without sense")
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(fuzz.send, range(REQUESTS)))
        report = load.watch(2)
    print(f"p99 of others {calm.latency_s(99):.2f} s before, {report.latency_s(99):.2f} s during it")
    print(f"{len(fuzz.told)} different answers")
    assert fuzz.hung == 0 and report.lost == 0
    assert [text for text in fuzz.told if INSIDES.search(text)] == []
    assert all(is_alive(pid) for pid in processes)
