"""A stand-in for the endpoint picker of the Gateway API Inference Extension: it sends each request to the pod whose
metrics say that it is least busy.

It keeps to the protocol between picker and Envoy (docs/proposals/004-endpoint-picker-protocol of
kubernetes-sigs/gateway-api-inference-extension): full duplex, the address as header and as metadata, 503 where no pod
is ready. What it reads are the specifications that llm-d's router builds in for the engine type triton-tensorrt-llm
(pkg/epp/framework/plugins/datalayer/extractor/metrics/factories.go of llm-d/llm-d-router), and it reads them likewise:
of several series that match, the first.
"""

from __future__ import annotations

import http.client
import random
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc

from tests.balancers import ext_proc
from tests.balancers.ext_proc import ProcessingResponse

SCRAPE_S = 0.05
FRESH_S = 2.0  # what is older is not gone by
QUEUED = "nv_trt_llm_request_metrics{request_type=waiting}"
RUNNING = "nv_trt_llm_request_metrics{request_type=scheduled}"
KV_USAGE = "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}"
HEADER = "x-gateway-destination-endpoint"
NAMESPACE = "envoy.lb"


@dataclass(frozen=True)
class Specs:
    """What a pod is judged by."""

    queued: str = QUEUED
    running: str = RUNNING
    kv_usage: str = KV_USAGE

    def of_tier(self, model: str) -> Specs:
        """The same of one engine's model, for pods whose page has several."""
        return Specs(*(f"{spec[:-1]},model={model}}}" for spec in (self.queued, self.running, self.kv_usage)))


def read(page: str, spec: str) -> float | None:
    """The first series of the page that matches, as the picker takes it; None without one."""
    name, _, labels = spec.removesuffix("}").partition("{")
    wanted = dict(re.findall(r'(\w+)\s*=\s*"?([^",}\s]+)"?', labels))
    for line in page.splitlines():
        found = re.fullmatch(rf"{re.escape(name)}(?:{{(.*)}})? (\S+)", line)
        if found and wanted.items() <= dict(re.findall(r'(\w+)="([^"]*)"', found[1] or "")).items():
            return float(found[2])
    return None


@dataclass
class Endpoint:
    """A pod's gateway, and what was last read there; `read_at` is by time.monotonic."""

    host: str
    port: int
    queued: float = 0.0
    running: float = 0.0
    kv_usage: float = 0.0
    is_ready: bool = False
    read_at: float = 0.0
    page: str = ""
    scrapes: int = 0

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_fit(self) -> bool:
        return self.is_ready and time.monotonic() - self.read_at < FRESH_S

    def scrape(self, connection: http.client.HTTPConnection, specs: Specs) -> None:
        """Raises OSError, HTTPException, or ValueError for a page without what is needed."""
        status, _ = _get(connection, "/ready")
        self.is_ready = status == 200
        _, self.page = _get(connection, "/metrics")
        found = [read(self.page, spec) for spec in (specs.queued, specs.running, specs.kv_usage)]
        if None in found:
            raise ValueError(f"{self.address}/metrics lacks one of {specs}")
        self.queued, self.running, self.kv_usage = (value or 0.0 for value in found)
        self.read_at = time.monotonic()
        self.scrapes += 1


def _get(connection: http.client.HTTPConnection, path: str) -> tuple[int, str]:
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read().decode()


class EndpointPicker:
    """`with EndpointPicker(endpoints) as picker:`; `picked` are the addresses in the order of the requests."""

    def __init__(self, endpoints: Sequence[Endpoint], specs: Specs = Specs()) -> None:
        self.endpoints = list(endpoints)
        self.specs = specs
        self.picked: list[str] = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(each,), daemon=True) for each in endpoints]
        self._server = grpc.server(ThreadPoolExecutor(32))
        handler = grpc.stream_stream_rpc_method_handler(
            self._process,
            request_deserializer=ext_proc.ProcessingRequest.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        service, method = ext_proc.METHOD.strip("/").split("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> EndpointPicker:
        for thread in self._threads:
            thread.start()
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self._server.stop(0).wait()

    def pick(self) -> str | None:
        """The least busy pod that is ready, by llm-d's usual scorers: short queue, free cache, few that run."""
        fit = [each for each in self.endpoints if each.is_fit]
        if not fit:
            return None
        best = min(fit, key=lambda each: (each.queued, each.kv_usage, each.running, random.random()))
        return best.address

    def _watch(self, endpoint: Endpoint) -> None:
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=1)
        with closing(connection):
            while not self._is_over.wait(SCRAPE_S):
                try:
                    endpoint.scrape(connection, self.specs)
                except (OSError, http.client.HTTPException, ValueError):
                    endpoint.is_ready = False
                    connection.close()  # the next request opens it again

    def _process(self, requests: Iterable[Any], context: Any) -> Iterator[Any]:
        """One HTTP request and its response: the pod is picked once the body is there, which a picker may look into."""
        body = b""
        for request in requests:
            if request.HasField("request_headers"):
                if request.request_headers.end_of_stream:
                    yield self._decided()
            elif request.HasField("request_body"):
                body += request.request_body.body
                if request.request_body.end_of_stream:
                    yield self._decided()
                    yield ProcessingResponse(request_body=_passed(body, True))
            elif request.HasField("response_headers"):
                yield ProcessingResponse(response_headers={})
            elif request.HasField("response_body"):
                part = request.response_body
                yield ProcessingResponse(response_body=_passed(part.body, part.end_of_stream))
            elif request.HasField("response_trailers"):
                yield ProcessingResponse(response_trailers={})

    def _decided(self) -> Any:
        address = self.pick()
        if address is None:
            return ProcessingResponse(
                immediate_response={
                    "status": {"code": 503},
                    "body": b"no pod is ready",
                    "details": "no_ready_endpoints",
                }
            )
        self.picked.append(address)
        header = {"header": {"key": HEADER, "raw_value": address.encode()}}
        found = ProcessingResponse(
            request_headers={"response": {"header_mutation": {"set_headers": [header]}, "clear_route_cache": True}}
        )
        entry = found.dynamic_metadata.fields.add(key=NAMESPACE).value.struct_value.fields.add(key=HEADER)
        entry.value.string_value = address
        return found


def _passed(body: bytes, is_last: bool) -> dict[str, Any]:
    return {"response": {"body_mutation": {"streamed_response": {"body": body, "end_of_stream": is_last}}}}
