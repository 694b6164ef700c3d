"""A figure that stands in several places has one value: that of its code, config or benchmark."""

from __future__ import annotations

import re

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from bls.paths import ROOT
from bls.routing.time_limit import DECISION_SECONDS
from scripts.host.footprint import ROUTER_PROCESS_MB, TOKENIZER_PROCESS_MB
from scripts.host.preflight import SHM_MIB_PER_INSTANCE

ROUTER_CONFIG = "model_repository/llm_router/config.pbtxt"
BARE, ROUTED, RATIO = 3, 4, 6  # columns of the router's table
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()


def router_queue():
    config = text_format.Parse((ROOT / ROUTER_CONFIG).read_text(), model_config_pb2.ModelConfig())
    return config.dynamic_batching.default_queue_policy


def router_table(figure, streams, column):
    """The first number of a cell of the router's table; a line without a figure's name goes on with the one before."""
    section = BENCHMARKS.partition("## The router")[2].partition("\n## ")[0]
    named = ""
    for cells in ([cell.strip() for cell in line.split("|")] for line in section.splitlines() if line.startswith("|")):
        named = cells[1] or named
        if named.startswith(figure) and cells[2] == streams:
            return float(re.findall(r"[\d.]+", cells[column])[0])
    raise KeyError((figure, streams))


SAID = [
    (ROUTER_PROCESS_MB, r"(\d+) MB a router process", "docs/benchmarks.md"),
    (ROUTER_PROCESS_MB, r"A router process takes (\d+) MB", "README.md"),
    (ROUTER_PROCESS_MB, r"一个路由进程占用 (\d+) MB", "README.zh-CN.md"),
    (ROUTER_PROCESS_MB, r"takes (\d+) MB of memory", ROUTER_CONFIG),
    (ROUTER_PROCESS_MB, r"(\d+) MB of memory and \d+ MB of `/dev/shm`", "docs/tuning.md"),
    (TOKENIZER_PROCESS_MB, r"each takes (\d+) MB", "model_repository/preprocessing/config.pbtxt"),
    (TOKENIZER_PROCESS_MB, r"each takes (\d+) MB", "model_repository/postprocessing/config.pbtxt"),
    (SHM_MIB_PER_INSTANCE, r"(\d+) MB of `/dev/shm`", "docs/tuning.md"),
    (SHM_MIB_PER_INSTANCE, r"(\d+) MB for each process of a Python model", "docs/docker.md"),
    (SHM_MIB_PER_INSTANCE, r"(\d+) MB for each process of a Python model", "docker-compose.yml"),
    (DECISION_SECONDS, r"took longer than ([\d.]+) s", "docs/troubleshooting.md"),
    (DECISION_SECONDS, r"took longer than ([\d.]+) s", "scripts/diagnosis/rules_router.py"),
    (router_queue().max_queue_size, r"above (\d+) of one priority", "docs/docker.md"),
    (router_queue().default_timeout_microseconds / 1e6, r"lets a request wait for (\d+) s", "docs/serving.md"),
    (router_table("tokens/s", "8", RATIO), r"get ([\d.]+) of the bare engine's", "README.md"),
    (router_table("tokens/s", "32", RATIO), r"and 32 streams ([\d.]+)\.\n", "README.md"),
]


@pytest.mark.parametrize(("value", "pattern", "page"), SAID)
def test_a_figure_is_the_same_wherever_it_stands(value, pattern, page):
    found = re.findall(pattern, (ROOT / page).read_text())
    assert found and {float(each) for each in found} == {float(value)}


def test_the_first_page_says_what_the_router_adds_to_the_first_token():
    (said,) = re.findall(r"added (\d+) ms to the first token", (ROOT / "README.md").read_text())
    bare, routed = (router_table("time to first token", "1", column) for column in (BARE, ROUTED))
    assert int(said) == routed - bare


@pytest.mark.parametrize("pattern", [r"a routing decision (\S+ us)", r"against 100,000 words (\S+ us)"])
def test_the_other_figures_of_the_first_page_are_those_of_the_benchmarks(pattern):
    (said,) = re.findall(pattern, (ROOT / "README.md").read_text())
    assert re.search(rf"(p50|mean) {re.escape(said)}", BENCHMARKS)
