from __future__ import annotations

from scripts.server.stub_census import StubCensus


def stubs(model: str, *pids: int) -> dict[int, str]:
    return dict.fromkeys(pids, model)


def test_a_process_that_is_gone_is_told_once_and_stays_dead():
    census = StubCensus()
    assert census.look(stubs("m", 1, 2)) == set()
    assert census.look(stubs("m", 2)) == {"m"}
    assert census.look(stubs("m", 2)) == set()
    assert census.dead("m", expected=2) == [1]


def test_the_processes_that_began_last_are_the_ones_that_count():
    census = StubCensus()
    census.look(stubs("m", 1, 2))
    census.look(stubs("m", 1, 2, 3, 4))
    census.look(stubs("m", 3, 4))  # Triton has ended the old ones
    assert (census.dead("m", expected=2), census.old("m", expected=2)) == ([], 0)


def test_old_processes_that_live_on_are_counted_and_hide_no_dead_one():
    census = StubCensus()
    census.look(stubs("m", 1, 2, 3, 4))
    assert census.old("m", expected=2) == 2
    census.look(stubs("m", 1, 2, 3))
    assert (census.dead("m", expected=2), census.old("m", expected=2)) == ([4], 2)


def test_a_model_that_was_loaded_with_fewer_processes_lacks_none():
    census = StubCensus()
    census.look(stubs("m", 1, 2, 3))
    census.look(stubs("m", 3))
    assert census.dead("m", expected=1) == []


def test_what_died_of_a_model_that_is_unloaded_is_forgotten():
    census = StubCensus()
    census.look(stubs("m", 1, 2))
    census.look({})
    census.forget("m")
    census.look(stubs("m", 3, 4))
    assert census.dead("m", expected=2) == []


def test_a_number_that_another_models_process_got_is_a_new_process():
    census = StubCensus()
    census.look({1: "m", 2: "n"})
    assert census.look({1: "n", 2: "n"}) == {"m"}
    assert census.dead("m", expected=1) == [1]


def test_a_model_without_processes_lacks_none():
    assert StubCensus().dead("m", expected=0) == []


def test_another_takes_the_place_of_a_dead_one_and_of_no_living_one():
    census = StubCensus()
    census.look(stubs("m", 1, 2, 3))
    census.look(stubs("m", 1, 3, 4))
    census.bury("m", census.dead("m", expected=3))
    assert (census.dead("m", expected=3), census.old("m", expected=3)) == ([], 0)
    census.look(stubs("m", 3, 4))
    assert census.dead("m", expected=3) == [1]
