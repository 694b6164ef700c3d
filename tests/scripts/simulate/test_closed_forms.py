"""The simulation of one and of many pods against what queueing theory says, with fixed seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scripts.simulate.arrivals import Arrival
from scripts.simulate.pod import Engine
from scripts.simulate.run import Simulation, Site

TOKENS = 1000.0  # of a mean answer: so many that the least, one, is no matter
COUNT = 60_000


def poisson(rate, sizes, seed=7):
    """Arrivals at random times with no prompt to speak of; `sizes` are answers by the mean one."""
    times = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, len(sizes)))
    return [Arrival(float(at), 0.0, TOKENS * float(size), 0) for at, size in zip(times, sizes, strict=True)]


def exponential(seed=11):
    return np.random.default_rng(seed).exponential(1.0, COUNT)


def waits(site, arrivals, seed=3):
    """Of each request: until it starts, and until it has ended."""
    found = Simulation(site, arrivals, seed).run().requests
    kept = found[len(found) // 10 :]
    return (
        np.mean([each.started_s - each.arrival.at_s for each in kept]),
        np.mean([each.ended_s - each.arrival.at_s for each in kept]),
    )


def engine(places, shared=False):
    """A place computes a mean answer in a second; `shared`: all of them together do."""
    step_s = 1 / TOKENS
    return Engine(places, 0.0 if shared else step_s, step_s if shared else 0.0, most_waiting=math.inf)


def erlang_c(servers, offered):
    """The share of requests that wait in M/M/c."""
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - offered / servers)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(("places", "offered"), [(1, 0.7), (4, 3.2), (32, 28.0)])
def test_a_pod_whose_streams_do_not_slow_one_another_is_m_m_c(places, offered):
    waited, _ = waits(Site(engine=engine(places)), poisson(offered, exponential()))
    assert waited == pytest.approx(erlang_c(places, offered) / (places - offered), rel=0.1)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_a_pod_of_one_place_with_equal_answers_is_m_d_1(load):
    waited, _ = waits(Site(engine=engine(1)), poisson(load, np.ones(COUNT)))
    assert waited == pytest.approx(load / (2 * (1 - load)), rel=0.08)


@pytest.mark.parametrize("sizes", ["exponential", "equal"])
def test_a_pod_whose_streams_share_its_cores_is_m_g_1_with_processor_sharing(sizes):
    """Whose mean does not depend on how sizes are spread."""
    load, answers = 0.7, exponential() if sizes == "exponential" else np.ones(COUNT)
    _, took = waits(Site(engine=engine(1_000_000, shared=True)), poisson(load, answers))
    assert took == pytest.approx(1 / (1 - load), rel=0.08)


def test_pods_that_are_chosen_at_random_are_as_many_m_m_1():
    load, pods = 0.7, 8
    _, took = waits(Site(pods, choice="random", engine=engine(1)), poisson(load * pods, exponential()))
    assert took == pytest.approx(1 / (1 - load), rel=0.08)


def test_the_less_busy_of_two_is_the_supermarket_model():
    """Mitzenmacher's limit for many pods: the mean time is the sum of load ** (2 ** i - 2)."""
    load, pods = 0.9, 500
    _, took = waits(Site(pods, choice="power_of_two", engine=engine(1)), poisson(load * pods, exponential()))
    assert took == pytest.approx(sum(load ** (2**i - 2) for i in range(1, 20)), rel=0.05)


def test_one_queue_for_all_pods_bounds_the_fewest_outstanding_from_below():
    load, pods = 0.8, 8
    site = Site(pods, choice="least_outstanding", engine=engine(1))
    _, took = waits(site, poisson(load * pods, exponential()))
    together = 1 + erlang_c(pods, load * pods) / (pods - load * pods)
    assert together < took < 1 / (1 - load)
