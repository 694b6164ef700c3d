"""What llm_router's config may say: read in a process of its own, where Triton's module is an empty stand-in."""

import json
import re
import subprocess
import sys

import pytest

from bls.paths import MODEL_REPOSITORY, ROOT

READ = """
import json, sys, types
sys.modules["triton_python_backend_utils"] = types.ModuleType("stand_in")
from bls import serving
for parameters in json.loads(sys.argv[1]):
    config = {"parameters": {key: {"string_value": value} for key, value in parameters.items()}}
    try:
        print(serving.Door.of({"model_config": json.dumps(config)}).defaults.max_tokens)
    except ValueError as error:
        print(error)
"""
KNOWN = "accumulate_tokens, apply_chat_template, hide_cut_words, max_tokens, policy_file, sensitive_words"


@pytest.fixture(scope="module")
def said():
    given = [{"max_tokens": "16", "EXECUTION_ENV_PATH": "x"}, {"hide_cut_word": "true"}, {"max_tokens": "0"}]
    words = [sys.executable, "-c", READ, json.dumps(given)]
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def test_a_misspelt_parameter_is_refused_by_name_and_tritons_own_are_not(said):
    assert said == [
        "16",
        f"parameter hide_cut_word is unknown; known: {KNOWN}",
        "parameter max_tokens is '0'; it must be a whole number above 0, or -1, or empty",
    ]


def test_the_shipped_config_has_each_of_them():
    text = (MODEL_REPOSITORY / "llm_router" / "config.pbtxt").read_text()
    assert set(re.findall(r'key: "(\w+)"', text)) == set(KNOWN.split(", "))
