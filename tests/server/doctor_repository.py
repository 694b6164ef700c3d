"""The models that the tests of scripts/doctor watch: small ones, each with a fault of its own, around a router."""

from __future__ import annotations

import re
import shutil

from bls.contract import LARGE, ROUTER
from bls.routing.policy_file import SHIPPED
from scripts.write_doc_examples import examples
from tests.server import echo_repository

ROOT = echo_repository.ROOT
# Without the classifier, which this server doesn't have; clients choose the engine.
POLICY = re.sub(r" *Classifier\(\n.*?\n        \),\n", "", SHIPPED.read_text(), flags=re.DOTALL)
POLICY = POLICY.replace("CLIENTS_MAY_CHOOSE = False", "CLIENTS_MAY_CHOOSE = True")
POLICY = POLICY.replace("COOL_DOWN_SECONDS = 10.0", "COOL_DOWN_SECONDS = 0.5")
POLICY = POLICY.replace("BREAKER_ERROR_RATE = 0.5", "BREAKER_ERROR_RATE = 0.0")
SLEEPER = examples((ROOT / "docs" / "serving.md").read_text()).files["*/1/model.py"]
TENSORS = """input [ { name: "work_ms" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "told" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
CONFIGS = {
    "text_tokenizer": 'backend: "python"\ninstance_group [ { kind: KIND_CPU count: 1 } ]\n',
    "held_back": 'backend: "python"\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n'
    "instance_group [ { kind: KIND_CPU count: 2 } ]\n",
    "chain": """platform: "ensemble"
ensemble_scheduling { step [ {
  model_name: "held_back" model_version: -1
  input_map { key: "work_ms" value: "work_ms" }
  output_map { key: "told" value: "told" }
} ] }
""",
}
TOO_LARGE = "class TritonPythonModel:\n    def initialize(self, args):\n        raise MemoryError('no 8 GiB left')\n"


def make(folder, routers):
    """The router with a short queue over an echo engine, and the models below. Returns folder/model_repository."""
    (folder / "policy.py").write_text(POLICY)
    limits = {"max_queue_size": "12", "default_timeout_microseconds": "1000000"}
    repository = echo_repository.make(folder, routers=routers, **limits)
    echo_repository.set_parameter(repository, ROUTER, "policy_file", "policy.py")
    add_models(repository)
    return repository


def add_models(repository):
    """A slow tokenizer without batching, a model with a delay, an ensemble of it, the real large engine, but small."""
    for name, config in CONFIGS.items():
        write(repository / name, f'name: "{name}"\nmax_batch_size: 8\n{config}{TENSORS}', SLEEPER)
    shutil.rmtree(repository / LARGE)
    shutil.copytree(echo_repository.SOURCE / LARGE, repository / LARGE)
    config = repository / LARGE / "configs" / "cpu.pbtxt"
    text, changed = re.subn(r'(max_tokens_in_paged_kv_cache".*?string_value: ")\d+', r"\g<1>256", config.read_text())
    assert changed
    config.write_text(text)


def write(folder, config, model):
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config)
    (folder / "1" / "model.py").write_text(model)
