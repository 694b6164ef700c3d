"""engines/tensorrt_llm/machine.py: which versions of TensorRT-LLM build engines, and where an engine runs."""

import pytest

from engines.tensorrt_llm import machine
from engines.tensorrt_llm.machine import BadMachine, Machine
from engines.tensorrt_llm.spec import GpuSpec
from tests import trtllm_stand_in

SPEC = GpuSpec("m", 100)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Call it with a version: TensorRT-LLM of that version is installed, with or without trtllm-build."""

    def install(version, has_build=True):
        programs = trtllm_stand_in.install(tmp_path)
        if not has_build:
            (programs / "trtllm-build").unlink()
        (tmp_path / "tensorrt_llm-1.dist-info").mkdir()
        (tmp_path / "tensorrt_llm-1.dist-info" / "METADATA").write_text(f"Name: tensorrt_llm\nVersion: {version}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    return install


@pytest.mark.parametrize("version", ["1.1.0", "1.2.1", "1.2.0rc8"])
def test_the_versions_of_the_table_build_engines(installed, version):
    installed(version)
    machine.check(SPEC)
    assert machine.here() == Machine(version, "NVIDIA L4")


def test_a_version_that_the_table_does_not_know_is_refused(installed):
    installed("1.0.0")
    with pytest.raises(BadMachine, match=r"TensorRT-LLM is 1\.0\.0 here; engines can be built with 1\.1 and 1\.2"):
        machine.check(SPEC)


def test_a_version_without_trtllm_build_is_sent_to_the_llm_api(installed):
    installed("1.3.0", has_build=False)
    with pytest.raises(BadMachine, match=r"TensorRT-LLM 1.3.0 has no trtllm-build: .* \(--for llmapi\)"):
        machine.check(SPEC)


@pytest.mark.parametrize(
    ("here", "built_on", "suits"),
    [
        (Machine("1.1.0", "L4"), Machine("1.1.0", "L4"), True),
        (Machine("1.2.1", "L4"), Machine("1.1.0", "L4"), False),
        (Machine("1.1.0", "H100"), Machine("1.1.0", "L4"), False),
        (Machine("", ""), Machine("1.1.0", "L4"), True),
        (Machine("1.1.0", "L4"), Machine("", ""), False),
    ],
)
def test_an_engine_runs_on_the_version_and_the_gpu_that_built_it(here, built_on, suits):
    assert here.suits(built_on) is suits


def test_only_texts_that_quantize_takes_are_calibrated_by(installed, tmp_path):
    installed("1.1.0")
    for texts in ("cnn_dailymail", "abisee/cnn_dailymail", "pileval", str(tmp_path)):
        machine.check(GpuSpec("m", 100, quantisation="fp8", calib_dataset=texts))
    machine.check(GpuSpec("m", 100, calib_dataset="wikitext"))
    with pytest.raises(BadMachine, match="calib_dataset is 'wikitext'; it must be cnn_dailymail, pileval or a folder"):
        machine.check(GpuSpec("m", 100, quantisation="fp8", calib_dataset="wikitext"))
