"""The simulation against a batch that does one step after the other, and what its comparison with servers reckons."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.bench import simulation
from scripts.bench.simulation import BEGINNING, ENGINE, distance, figures, whole
from scripts.bench.step_batch import StepBatch
from scripts.simulate.arrivals import Arrival, Load, generate
from scripts.simulate.run import Simulation, Site


def stepped(arrivals, engine):
    """Until the first token and until the last of each, one step after the other."""
    batch, now, come, firsts, ends = StepBatch(engine), 0.0, 0, {}, {}
    while come < len(arrivals) or batch.outstanding:
        if not batch.outstanding:
            now = max(now, arrivals[come].at_s)
        while come < len(arrivals) and arrivals[come].at_s <= now:
            each = arrivals[come]
            batch.add(str(come), str(each.prefix).encode(), int(each.prompt_tokens), int(each.tokens))
            come += 1
        now += batch.begin()
        for key, made in batch.end().items():
            asked = arrivals[int(key)]
            if made:
                firsts.setdefault(int(key), now - asked.at_s)
            if made == asked.tokens:
                ends[int(key)] = now - asked.at_s
    return [firsts[number] for number in range(len(arrivals))], [ends[number] for number in range(len(arrivals))]


def simulated(arrivals, engine):
    found = Simulation(Site(engine=engine), arrivals, 1).run().requests
    return (
        [each.first_s - each.arrival.at_s for each in found],
        [each.ended_s - each.arrival.at_s for each in found],
    )


@pytest.mark.parametrize(("kind", "rate"), [("poisson", 3), ("poisson", 8), ("bursty", 4)])
def test_a_simulated_pod_is_a_batch_that_does_one_step_after_the_other(kind, rate):
    arrivals = whole(generate(Load(kind, rate, seconds=400, tokens=40), 1))
    for some, others in zip(stepped(arrivals, ENGINE), simulated(arrivals, ENGINE), strict=True):
        assert distance(some, others) < 0.05
        assert np.mean(some) == pytest.approx(np.mean(others), rel=0.03)


@given(st.integers(0, 400), st.integers(1, 300), st.sampled_from([0.0, 0.02, 0.3]))
def test_a_request_that_is_alone_takes_the_same_steps_in_both(prompt_tokens, tokens, prompt_cost):
    engine = replace(ENGINE, prompt_cost=prompt_cost)
    alone = [Arrival(1.5, prompt_tokens, tokens, 0)]
    for some, others in zip(stepped(alone, engine), simulated(alone, engine), strict=True):
        assert some == pytest.approx(others)


def test_a_beginning_that_is_known_costs_less_until_it_is_forgotten_and_who_is_dropped_is_gone():
    batch = StepBatch(replace(ENGINE, places=1, cache=2))
    for number, beginning in enumerate((b"a", b"a", b"b", b"c", b"a")):
        batch.add(str(number), beginning, 100, 1)
    batch.add("unwanted", b"a", 100, 1)
    batch.drop("unwanted")
    ended = []
    while batch.outstanding:
        batch.begin()
        ended += [key for key, made in batch.end().items() if made]
    assert (ended, batch.hits) == (["0", "1", "2", "3", "4"], 1)


def test_all_places_are_taken_before_anybody_waits():
    batch = StepBatch(replace(ENGINE, places=3))
    for number in range(5):
        batch.add(str(number), b"", 0, 2)
    assert batch.begin() == ENGINE.step_s(3) and len(batch.waiting) == 2
    assert batch.end() == {"0": 1, "1": 1, "2": 1}
    batch.begin()
    assert batch.end() == {"0": 2, "1": 2, "2": 2} and batch.begin() == ENGINE.step_s(2)


@given(st.lists(st.floats(0, 10), min_size=1), st.lists(st.floats(0, 10), min_size=1))
def test_the_distance_of_two_samples_is_the_largest_difference_of_their_shares(some, others):
    shares = [
        abs(np.mean([each <= at for each in some]) - np.mean([each <= at for each in others]))
        for at in (*some, *others)
    ]
    assert distance(some, others) == pytest.approx(max(shares)) == distance(others, some)


def test_what_is_sent_has_whole_tokens_and_a_beginning():
    found = whole([Arrival(0.5, 12.3, 0.4, 1), Arrival(1.0, 99.6, 7.5, 2)])
    assert found == [Arrival(0.5, BEGINNING, 1, 1), Arrival(1.0, 100, 8, 2)]


def test_figures_are_percentiles_and_shares():
    found = figures([1.0, 2.0, 3.0], [4.0, 4.0, 4.0], hits=1.5, tokens=[30, 10])
    assert (found["first_p50_s"], found["first_mean_s"], found["answer_p99_s"]) == (2.0, 2.0, 4.0)
    assert (found["hit_share"], found["imbalance"]) == (0.5, 1.5)


def test_its_worlds_differ_in_who_owns_a_beginning_and_in_nothing_else():
    arrivals = whole(generate(Load(rate=12, seconds=60, tokens=40), 1))
    one, same, other = (simulation.simulated(arrivals, 2, world, 200) for world in (0, 0, 1))
    assert one == same != other
    alone = [simulation.simulated(arrivals[:200], 1, world, 200) for world in (0, 1)]
    assert alone[0] == alone[1]


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_servers_answer_all_that_the_simulation_does(capsys):
    assert simulation.main(["--pods=2", "--arrivals=poisson", "--seconds=10", "--rate=6"]) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert row["pods"] == 2 and row["requests"] > 60
    found = row["figures"]
    assert found["first_p50_s"]["measured"] > ENGINE.step_s(1)
    assert found["hit_share"]["measured"] > 0.3 and found["imbalance"]["measured"] < 1.5
