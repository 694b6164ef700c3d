"""docs/api.md has every input, output, finish reason, error and metric of the router, and no other."""

from __future__ import annotations

import re

from bls import errors, request, request_log, shadow
from bls.contract import LLAMA_7B_ENSEMBLE_CONTRACT, ROUTER_CONTRACT
from bls.paths import ROOT
from bls.routing import service
from engines.remote import names
from tests.docs.pages import PAGES

PAGE = PAGES["docs/api.md"]


def named(section):
    """The words in backticks of a section."""
    found = re.search(rf"^## {section}.*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`(\w+)`", found[0]))


def test_each_input_is_explained_or_said_to_be_refused():
    assert named("Inputs") >= ROUTER_CONTRACT.input_names
    assert named("Without routing") >= LLAMA_7B_ENSEMBLE_CONTRACT.input_names


def test_what_the_page_calls_refused_is_refused():
    refused = PAGE.partition("are refused by name:")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", refused)) == set(request._REFUSED)


def test_each_output_that_the_router_fills_is_explained():
    flagged = {name for names in request._FLAGGED_OUTPUTS.values() for name in names}
    assert named("Outputs") >= {"text_output", "finish_reason"} | flagged


def test_the_classes_of_errors_are_those_of_the_code():
    table = dict(re.findall(r"^\| `\[(\w+)\]` \| (\w+) \|", PAGE, re.MULTILINE))
    assert table == {
        prefix: kind.code.replace("INVALID_ARG", "INVALID_ARGUMENT") for prefix, kind in errors._BY_PREFIX.items()
    }


def test_the_metrics_are_those_that_the_code_has():
    own = {
        value
        for module in (request_log, shadow, service, names)
        for value in vars(module).values()
        if isinstance(value, str) and value.startswith("llm_router_")
    }
    own = {name for name in own if not name.endswith("_")}  # A prefix of files in /dev/shm is no metric.
    readiness = (ROOT / "scripts" / "server" / "readiness_server.py").read_text()
    assert set(re.findall(r"`(llm_router_\w+)`", PAGE)) == own | set(re.findall(r'"(llm_router_\w+)"', readiness))
