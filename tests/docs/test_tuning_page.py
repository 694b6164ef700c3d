"""docs/tuning.md and docs/troubleshooting.md show configs that Triton reads, and findings and parameters that exist."""

from __future__ import annotations

import re

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from bls.paths import ROOT
from scripts.diagnosis.rules import RULES

DOCS = ROOT / "docs"
PAGES = {name: (DOCS / f"{name}.md").read_text() for name in ("tuning", "troubleshooting")}
CONFIGS = re.findall(r"```pbtxt\n(.*?)```", PAGES["tuning"], re.DOTALL)
SOURCES = "\n".join(path.read_text() for path in (ROOT / "scripts" / "diagnosis").glob("*.py"))
FINDINGS = set(re.findall(r'"(\w+_\w+)"', SOURCES)) | {rule.__name__ for rule in RULES}


@pytest.mark.parametrize("config", CONFIGS)
def test_each_config_is_one_that_triton_reads(config):
    text_format.Parse(config, model_config_pb2.ModelConfig())


def test_each_finding_that_a_page_names_is_one_of_the_doctor():
    told = set(re.findall(r"^\|[^|]+\| `(\w+)` \|", PAGES["troubleshooting"], re.MULTILINE))
    told |= {
        name
        for words in re.findall(r"doctor ((?:`\w+`(?:, )?)+)", PAGES["tuning"], re.I)
        for name in re.findall(r"\w+", words)
    }
    assert len(told) > 30
    assert told - FINDINGS == set()


def test_each_parameter_that_tuning_sets_for_a_shipped_engine_is_in_its_config():
    files = [*ROOT.glob("model_repository/*/config.pbtxt"), *ROOT.glob("model_repository/*/configs/*.pbtxt")]
    shipped = {key for path in files for key in re.findall(r'key: "(\w+)"', path.read_text())}
    keys = {key for config in CONFIGS for key in re.findall(r'parameters \{ key: "(\w+)"', config)}
    assert keys and keys <= shipped
