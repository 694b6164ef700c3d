"""Choices of a pod, autoscaling, arrivals and the command of scripts/simulate."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timezone
from itertools import pairwise

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bls.contract import LARGE, SMALL
from bls.routing.decision import Decision, State, example
from bls.routing.decision_log import Recorded
from engines.remote import picker
from scripts.simulate import __main__ as command
from scripts.simulate import report, scaling
from scripts.simulate.arrivals import KINDS, Arrival, BadArrivals, Load, generate, recorded
from scripts.simulate.choices import CHOICES, prefix_affinity
from scripts.simulate.pod import Engine, Pod, Request
from scripts.simulate.run import Simulation, Site
from scripts.simulate.scaling import SIGNALS, Autoscaler, Limits, Sample
from tests.deployment.chart import CHART

CHANCE = np.random.default_rng(1)


def run(site, load, seed=1):
    return Simulation(site, generate(load, seed), seed).run()


def row(signal, load, pods, **limits):
    return report.row(signal, run(Site(pods, signal=signal, limits=Limits(**limits)), load))


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("arrivals", KINDS)
def test_every_request_ends_once_and_its_times_are_in_order(choice, arrivals):
    found = run(Site(5, routers=2, choice=choice), Load(arrivals, rate=40, seconds=60))
    answered = [each for each in found.requests if each.pod >= 0]
    assert sum(pod.served for pod in found.pods) == len(answered) > 0
    for each in answered:
        assert each.arrival.at_s <= each.started_s < each.first_s <= each.ended_s
    assert all(each.started_s is None and each.ended_s is None for each in found.requests if each.pod < 0)


@pytest.mark.parametrize("signal", ["", "both"])
def test_the_same_seed_gives_the_same(signal):
    site, load = Site(3, 2, "power_of_two", signal), Load("bursty", rate=30, seconds=120)
    assert report.row("", run(site, load)) == report.row("", run(site, load))
    assert report.row("", run(site, load)) != report.row("", run(site, load, seed=2))


def test_a_full_queue_turns_requests_away():
    engine = Engine(places=2, most_waiting=3)
    pod = Pod(0, engine)
    taken = [pod.take(Request(Arrival(0.0, 1, 100, 0)), 0.0) for _ in range(8)]
    assert taken == [True] * 5 + [False] * 3
    assert (pod.running, pod.outstanding) == (2, 5)


def test_what_a_prompt_begins_with_costs_less_the_second_time_until_it_is_forgotten():
    pod = Pod(0, Engine(places=1, cache=2))
    for prefix in (1, 1, 2, 3, 1):
        pod.take(Request(Arrival(0.0, 100, 1, prefix)), 0.0)
        while (at := pod.next_s) < float("inf"):
            pod.work(at)
    assert (pod.served, pod.hits) == (5, 1)


@given(
    outstanding=st.lists(st.integers(0, 40), min_size=1, max_size=40).map(np.array),
    prefix=st.integers(0, 2**31),
)
def test_a_prefix_has_its_own_pod_unless_the_routers_bound_is_passed_and_then_one_with_the_fewest(outstanding, prefix):
    pods = np.arange(len(outstanding))
    own = prefix_affinity(np.zeros_like(outstanding), pods, prefix, CHANCE)
    candidates = [picker.Candidate(str(pod), float(load)) for pod, load in zip(pods, outstanding, strict=True)]
    is_free = candidates[own].load + 1 <= picker.most(candidates[own], candidates)
    chosen = prefix_affinity(outstanding, pods, prefix, CHANCE)
    assert chosen == own if is_free else outstanding[chosen] == outstanding.min()


def test_a_pod_that_goes_takes_only_its_own_prefixes_along():
    pods, idle = np.arange(10), np.zeros(10, np.int64)
    before = [pods[prefix_affinity(idle, pods, prefix, CHANCE)] for prefix in range(2000)]
    fewer = np.delete(pods, 4)
    after = [fewer[prefix_affinity(idle[:9], fewer, prefix, CHANCE)] for prefix in range(2000)]
    assert all(old == new for old, new in zip(before, after, strict=True) if old != 4)
    share = Counter(before)
    assert all(120 < share[pod] < 280 for pod in range(10))


def test_routers_that_do_not_know_of_one_another_choose_worse():
    arrivals = Load(rate=140, seconds=120)
    alone, many = (report.row("", run(Site(16, routers), arrivals)) for routers in (1, 16))
    assert alone["answer_p99_s"] < many["answer_p99_s"]


def test_affinity_finds_more_of_what_prompts_begin_with():
    arrivals = Load(rate=60, seconds=120)
    hits = {name: report.row("", run(Site(8, choice=name), arrivals))["hit_share"] for name in CHOICES}
    assert hits["prefix_affinity"] > 0.8 > hits["least_outstanding"]


def test_targets_are_those_of_the_chart():
    chart = yaml.safe_load((CHART / "values.yaml").read_text())["autoscaling"]
    assert (chart["large"]["waiting"], chart["large"]["load"]) == (scaling.WAITING, scaling.LOAD)
    assert chart["scaleDownSeconds"] == Limits().stable_s


def asked(signal, pods, sample):
    """After one look at pods of which `sample` is the sum."""
    scaler = Autoscaler(lambda samples: SIGNALS[signal]([sample]), Limits(), pods)
    return scaler.look(15.0, [Pod(number, Engine()) for number in range(pods)], Sample(0))


@pytest.mark.parametrize(
    ("signal", "pods", "sample", "wanted"),
    [
        ("waiting", 2, Sample(2, waiting=64), 4),
        ("load", 2, Sample(2, load=2.0), 3),
        ("load", 4, Sample(4, load=2.8), 4),  # 0.7 each
        ("load", 4, Sample(4, load=3.0), 4),  # within the tolerance
        ("load", 10, Sample(10, load=100.0), 20),  # twofold at most
        ("load", 1, Sample(1, load=100.0), 3),  # or by two
        ("queue_ratio", 1, Sample(1, queue_s=0.1, compute_s=100.0), 1),
    ],
)
def test_how_many_pods_are_asked_for(signal, pods, sample, wanted):
    assert asked(signal, pods, sample) == wanted


def test_a_tier_shrinks_by_a_pod_at_a_time_after_it_has_been_too_large_for_long():
    limits = Limits(stable_s=60, down_s=30)
    by_time = iter([2.0] + [0.1] * 40)
    scaler = Autoscaler(lambda samples: next(by_time), limits, 4)
    pods = [Pod(number, Engine()) for number in range(4)]
    wanted = [scaler.look(15.0 * turn, pods[: scaler.wanted], Sample(0)) for turn in range(1, 16)]
    assert wanted[0] == 8 and wanted[:5] == [8] * 5
    steps = [before - after for before, after in pairwise(wanted)]
    assert set(steps) <= {0, 1} and wanted[-1] < 8


@pytest.mark.slow
def test_load_follows_the_day_and_nvidias_ratio_does_not():
    day = Load("daily", rate=40, seconds=1800)
    ours, theirs, cores = (row(signal, day, 1) for signal in ("both", "queue_ratio", "cpu"))
    assert theirs["pods_most"] == 1 and theirs["turned_away_share"] > 0.5
    assert ours["turned_away_share"] < 0.02 and ours["late_share"] < 0.02
    assert cores["pods_mean"] > 3 * ours["pods_mean"]  # a pod with one stream is as busy as a full one


def test_what_waits_alone_takes_pods_from_a_tier_that_is_full():
    steady = Load(rate=60, seconds=1200)  # which six pods can just answer
    alone, both = (row(signal, steady, 6, start_s=180.0) for signal in ("waiting", "both"))
    assert alone["turned_away_share"] > both["turned_away_share"] == 0.0
    assert alone["first_p99_s"] > 2 * both["first_p99_s"]


def test_a_pod_that_is_taken_away_answers_what_it_has():
    load = Load("daily", rate=40, seconds=1800)
    found = run(Site(12, signal="both", limits=Limits(stable_s=60, down_s=15)), load)
    assert len({number for _, number in found.counts}) > 3
    assert all(each.ended_s for each in found.requests if each.pod >= 0)


@pytest.mark.parametrize("kind", KINDS)
def test_generated_arrivals_have_the_mean_rate_and_sizes_with_heavy_tails(kind):
    found = generate(Load(kind, rate=50, seconds=2000), 5)
    assert len(found) == pytest.approx(100_000, rel=0.1)
    sizes = np.array([each.tokens for each in found])
    assert sizes.mean() == pytest.approx(120, rel=0.1)
    assert np.sort(sizes)[-len(sizes) // 100 :].sum() > 0.08 * sizes.sum()  # the longest 1 in 100
    assert all(one.at_s <= other.at_s for one, other in pairwise(found))


def test_bursts_are_where_most_arrives_in_little_time():
    by_second = Counter(int(each.at_s) for each in generate(Load("bursty", rate=50, seconds=2000), 5))
    calm = Counter(int(each.at_s) for each in generate(Load("poisson", rate=50, seconds=2000), 5))
    assert max(by_second.values()) > 2.5 * max(calm.values())


def decided(model, second, tokens):
    """A line of the decision log."""
    prompt = example(Decision(SMALL, "default"), tokens=12).prompt
    state = State({}, datetime(2026, 12, 1, 10, 0, second, tzinfo=timezone.utc))
    return Recorded(prompt, state, Decision(SMALL, "default", 1), {"model": model, "output_tokens": tokens}).line()


def test_a_decision_log_is_replayed_as_it_was_recorded(tmp_path):
    log = tmp_path / "decisions.jsonl"
    made = [(SMALL, 1, 5), (SMALL, 0, 7), (LARGE, 1, 50), (SMALL, 9, 9)]
    log.write_bytes(b"".join(decided(*each) for each in made))
    found = recorded(log, SMALL, 1)
    assert [each.tokens for each in found] == [7, 5, 9] and {each.prompt_tokens for each in found} == {12}
    assert [int(each.at_s) for each in found] == [0, 1, 9]
    with pytest.raises(BadArrivals, match="no answer of other"):
        recorded(log, "other", 1)
    log.write_text("nonsense\n")
    with pytest.raises(BadArrivals, match=r"decisions\.jsonl:1"):
        recorded(log, SMALL, 1)


def test_the_command_prints_a_line_for_each_choice_and_ends_with_json(capsys):
    assert command.main(["routing", "--seconds=20", "--rate=20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:6]] == list(CHOICES)
    assert [each["name"] for each in json.loads(lines[-1])["rows"]] == list(CHOICES)
    assert command.main(["scaling", "--seconds=60", "--only=load", "--only=cpu"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]] == ["load", "cpu"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--pods=1001"], "--pods is 1001; it must be 1 to 1000"),
        (["--rate=0"], "--rate must be more than 0"),
        (["--arrivals=nowhere"], "--arrivals is 'nowhere'"),
        (["--only=best"], "--only is 'best'"),
        (["--step-ms=-1"], "--step-ms must be 0 or more"),
        (["--rate=0.001", "--seconds=1"], "makes no request"),
    ],
)
def test_a_bad_option_is_refused_by_name(flags, words, capsys):
    assert command.main(["routing", *flags]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_a_thousand_pods_are_simulated():
    found = report.row("", run(Site(1000, 20, "power_of_two"), Load(rate=5000, seconds=20)))
    assert found["pods_most"] == 1000 and found["turned_away_share"] == 0
