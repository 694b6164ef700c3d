"""The names of TensorRT-LLM's LLM API: what our code uses, what the stand-in has, and, where it is, the real one."""

import importlib.machinery
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tensorrt_llm import llmapi

from bls.paths import ROOT
from engines.llmapi import library
from engines.llmapi.sampling import sampling_params
from engines.llmapi.settings import LlmApiParameters
from engines.worker.generation import Generation, Guide, Sampling
from tests.llmapi_models import STAND_IN, built_model
from tests.llmapi_names import TABLE, differences

WITHOUT_STAND_IN = [path for path in sys.path if path != str(STAND_IN)]


def arguments_of(name):
    return set(TABLE["arguments"][name])


def test_the_stand_in_has_the_names_and_defaults_of_the_table():
    assert list(differences(llmapi)) == []


def test_a_name_that_is_gone_or_has_another_default_is_found():
    gone = SimpleNamespace(**{name: value for name, value in vars(llmapi).items() if name != "KvCacheConfig"})
    gone.CudaGraphConfig = lambda max_batch_size=128: None
    assert list(differences(gone)) == [
        "KvCacheConfig is missing",
        "CudaGraphConfig: max_batch_size is 128 by default, not 0",
        "CudaGraphConfig has no argument enable_padding",
    ]


@pytest.mark.skipif(
    importlib.machinery.PathFinder.find_spec("tensorrt_llm", WITHOUT_STAND_IN) is None,
    reason="TensorRT-LLM is not installed: run this in the container",
)
def test_the_real_library_has_the_names_and_defaults_of_the_table():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-m", "tests.llmapi_names"], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


class Spy:
    """tensorrt_llm.llmapi whose classes remember the arguments that they are made of."""

    def __init__(self):
        self.used = {}

    def __getattr__(self, name):
        def make(*positional, **arguments):
            self.used.setdefault(name, set()).update(arguments)
            return getattr(llmapi, name)(*positional, **arguments)

        return make


def test_our_code_uses_no_name_that_is_not_in_the_table(tmp_path):
    spy = Spy()
    settings = LlmApiParameters(in_flight=True, guided_decoding="xgrammar")
    given = library.arguments(spy, built_model(tmp_path), settings)
    assert set(given) <= arguments_of("LLM") | arguments_of("TorchLlmArgs")
    sampling = Sampling(0.5, 3, 0.9, repetition_penalty=2, presence_penalty=1, frequency_penalty=1)
    for kind in ("json", "json_schema", "regex", "ebnf_grammar"):
        asked = Generation((1,), 8, frozenset({2}), sampling, ((5,), (6, 7)), 3, Guide(kind, "x"), log_probs=True)
        sampling_params(spy, asked, settings)
    assert set(spy.used) == {
        "KvCacheConfig",
        "CapacitySchedulerPolicy",
        "SchedulerConfig",
        "CudaGraphConfig",
        "GuidedDecodingParams",
        "SamplingParams",
    }
    for name in set(spy.used) - {"CapacitySchedulerPolicy"}:
        assert spy.used[name] == arguments_of(name), name
