from __future__ import annotations

from pathlib import Path

import pytest

from bls.paths import MODEL_REPOSITORY
from scripts.host.preflight import Refused
from scripts.server import served_engines
from scripts.server.served_engines import Engine
from tests import gpu_machine
from tests.gpu_machine import GpuMachine


@pytest.fixture
def machine(tmp_path: Path) -> GpuMachine:
    return gpu_machine.make(tmp_path)


def found(machine: GpuMachine) -> list[Engine]:
    models = sorted(path.name for path in machine.repository.iterdir())
    return served_engines.find(machine.repository, models)


def test_engines_are_the_models_of_the_tensorrt_llm_backend(machine):
    machine.add_engine("large", ranks=4, count=2, participant_ids="1,2,3,4;5,6,7,8")
    machine.add_engine("small")
    large, small = found(machine)
    assert (large.model, large.ranks(), large.instances) == ("large", 4, 2)
    assert large.participants == ((1, 2, 3, 4), (5, 6, 7, 8))
    assert (small.model, small.ranks(), small.participants) == ("small", 1, ())


def test_the_engines_of_this_repository_are_found():
    repository = MODEL_REPOSITORY
    models = [path.parent.name for path in repository.glob("*/config.pbtxt")]
    names = {engine.model for engine in served_engines.find(repository, models)}
    assert names >= {"llama_7b_tensorrt_llm", "tensorrt_llm_large", "tensorrt_llm_small"}


def test_the_llm_apis_models_say_themselves_how_many_gpus_they_take(machine):
    machine.add_engine("large", ranks=8)
    with pytest.raises(Refused, match=r"large has no configs/llmapi\.pbtxt: leave it out with --skip-model=large"):
        served_engines.find_llmapi(machine.repository, ["large"], "llmapi")
    variant = gpu_machine.CONFIG.format(name="large", backend="python", count=1)
    variant += gpu_machine.PARAMETER.format("tensor_parallel_size", 2)
    variant += gpu_machine.PARAMETER.format("pipeline_parallel_size", 3)
    (machine.repository / "large" / "configs").mkdir()
    (machine.repository / "large" / "configs" / "llmapi.pbtxt").write_text(variant)
    (large,) = served_engines.find_llmapi(machine.repository, ["large", "text"], "llmapi")
    assert large.ranks() == 6


def test_ranks_are_counted_where_config_json_has_no_world_size(machine):
    engine = machine.add_engine("large", ranks=4)
    (engine / "config.json").write_text('{"pretrained_config": {"mapping": {"tp_size": 2, "pp_size": 2}}}')
    assert found(machine)[0].ranks() == 4


@pytest.mark.parametrize("text", ["{", "{}", '{"pretrained_config": {"mapping": []}}'])
def test_a_config_json_that_does_not_tell_the_ranks_is_refused_by_name(machine, text):
    (machine.add_engine("large") / "config.json").write_text(text)
    with pytest.raises(Refused, match=r"large/tensorrt_llm/config.json does not say how many GPUs"):
        found(machine)[0].ranks()


def test_participant_ids_that_are_no_numbers_are_refused(machine):
    machine.add_engine("large", participant_ids="1,b")
    with pytest.raises(Refused, match="large: participant_ids is '1,b'"):
        found(machine)


def test_leader_mode_serves_one_engine_over_all_its_ranks(machine):
    machine.add_engine("large", ranks=2)
    served_engines.check_leader(found(machine), 2)
    with pytest.raises(Refused, match="is for 2 GPUs, --world-size is 4"):
        served_engines.check_leader(found(machine), 4)
    machine.add_engine("small", ranks=2)
    with pytest.raises(Refused, match=r"there are 2 \(large, small\): use --multi-model, or .* --skip-model=small"):
        served_engines.check_leader(found(machine), 2)


def test_leader_mode_has_one_instance(machine):
    machine.add_engine("large", ranks=2, count=2)
    with pytest.raises(Refused, match="large has 2 instances"):
        served_engines.check_leader(found(machine), 2)


def test_an_engine_for_several_gpus_beside_others_is_sent_to_multi_model(machine):
    machine.add_engine("large", ranks=2)
    machine.add_engine("small")
    with pytest.raises(Refused, match="large is for 2 GPUs: --multi-model"):
        served_engines.check_alone(found(machine))
    served_engines.check_spawning(found(machine))


def test_workers_that_are_spawned_have_no_participant_ids(machine):
    machine.add_engine("large", ranks=2, participant_ids="1,2")
    with pytest.raises(Refused, match="large has participant_ids"):
        served_engines.check_spawning(found(machine))


@pytest.mark.parametrize(
    ("large", "small", "world_size", "said"),
    [
        ("1,2", "3", 4, ""),
        ("2,3", "1", 4, ""),
        ("1,2", "3", 5, "--world-size is 5; .* need 4 processes"),
        ("1,2,3", "3", 4, 'large has participant_ids "1,2,3" .* such as "1,2"'),
        ("1,2", "", 4, 'small has participant_ids "" .* such as "3"'),
        ("1,2", "2", 4, "name the ranks 1, 2, 2; each of 1 to 3 must appear exactly once"),
        ("0,1", "2", 4, "name the ranks 0, 1, 2"),
    ],
)
def test_the_ranks_of_workers_started_beforehand_are_shared_out_once(machine, large, small, world_size, said):
    machine.add_engine("large", ranks=2, participant_ids=large)
    machine.add_engine("small", participant_ids=small)
    if not said:
        served_engines.check_participants(found(machine), world_size)
        return
    with pytest.raises(Refused, match=said):
        served_engines.check_participants(found(machine), world_size)
