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
