"""scripts/bench/batching.py and batching_rounds.py: the work that is measured, and what is made of the measurements."""

from collections import Counter

import pytest

from scripts.bench.batching import LENGTHS, config_of, lengths_of, options_of, requests_of, work_of
from scripts.bench.batching_rounds import Answered, Kept, Round, goals_of, summary, table

SERVED = {
    "dynamic_batching": {"preferred_batch_size": [4, 8, 16]},
    "parameters": {
        "gpt_model_type": {"string_value": "inflight_fused_batching"},
        "max_batch_size": {"string_value": "32"},
    },
}


@pytest.mark.parametrize(("mode", "is_batched_by_triton", "kind", "most"), [
    ("none", False, "V1", "1"),
    ("static", False, "V1", "32"),
    ("dynamic", True, "V1", "32"),
    ("bucketed", True, "V1", "32"),
    ("in_flight", True, "inflight_fused_batching", "32"),
])  # fmt: skip
def test_each_mode_is_the_served_configuration_with_its_own_batching(mode, is_batched_by_triton, kind, most):
    config = config_of(mode, SERVED)
    assert ("dynamic_batching" in config) == is_batched_by_triton
    assert config["parameters"]["gpt_model_type"]["string_value"] == kind
    assert config["parameters"]["max_batch_size"]["string_value"] == most
    assert SERVED["parameters"]["max_batch_size"]["string_value"] == "32"


def test_lengths_are_those_of_the_mix_in_an_order_that_is_the_same_each_time():
    lengths = lengths_of(3 * len(LENGTHS), LENGTHS)
    assert Counter(lengths) == {length: 3 * count for length, count in Counter(LENGTHS).items()}
    assert lengths == lengths_of(3 * len(LENGTHS), LENGTHS)
    assert lengths != sorted(lengths)


def test_only_static_clients_send_several_prompts_at_once():
    lengths = lengths_of(32, LENGTHS)
    assert [len(rows) for rows in work_of("static", lengths)] == [16, 16]
    for mode in ("none", "dynamic", "in_flight", "burst", "bucketed"):
        work = work_of(mode, lengths)
        assert [length for ((_, length),) in work] == lengths
        assert len({text for ((text, _),) in work}) == 32


def test_without_batching_each_client_sends_one_request():
    assert requests_of("none", 16, 3) == 16
    assert requests_of("dynamic", 16, 3) == 48


def test_rates_are_medians_over_rounds_and_times_are_over_all_requests():
    rounds = [
        Round([Answered(10, 1.0), Answered(30, 3.0)], 4.0, 0.5),
        Round([Answered(10, 2.0), Answered(30, 4.0)], 8.0, 1.5),
        Round([Answered(10, 3.0), Answered(30, 5.0)], 5.0, 1.0),
    ]
    found = summary(rounds)
    assert found["tokens_per_second"] == 8.0
    assert found["requests_per_second"] == 0.4
    assert (found["mean_s"], found["short_mean_s"]) == (3.0, 2.0)
    assert found["short_p99_s"] == pytest.approx(2.98)
    assert (found["requests"], found["load_before"]) == (6, 1.5)


def rates(tokens_per_second, short_mean_s):
    return summary([Round([Answered(10, short_mean_s)], 10 / tokens_per_second, 0.0)])


def test_goals_are_ratios_of_what_was_measured():
    found = {"none_32": rates(10, 9), "dynamic_32": rates(25, 6), "in_flight_32": rates(70, 1)}
    assert goals_of(found, 32) == {
        "in flight / none, tokens/s": pytest.approx(7.0),
        "in flight / dynamic, tokens/s": pytest.approx(2.8),
        "dynamic / in flight, short mean": pytest.approx(6.0),
    }
    assert goals_of(found, 16) == {}
    assert goals_of({"burst_32": rates(10, 9), "bucketed_32": rates(30, 9)}, 32) == {
        "bucketed / burst, tokens/s": pytest.approx(3.0)
    }
    assert "in flight / none, tokens/s: 7.00 (goal at 32 clients: 6)" in table(found, [16, 32])


def test_measurements_are_kept_and_taken_over_for_the_same_settings_alone(tmp_path):
    path, settings = tmp_path / "measured.json", {"requests": 3}
    kept = Kept(path, settings)
    kept.add("none_16", Round([Answered(10, 1.5)], 2.0, 0.25))
    assert Kept(path, settings).rounds == kept.rounds
    assert Kept(path, {"requests": 4}).rounds == {}


@pytest.mark.parametrize("arguments", [["--clients", "24"], ["--clients", "0"], ["--modes", "fast"]])
def test_what_can_not_be_measured_is_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        options_of(arguments)
    assert arguments[0] in capsys.readouterr().err
