from __future__ import annotations

from scripts.server.restart_pace import LONGEST_S, SERVED_WELL_S, RestartPace


def test_the_first_start_is_at_once_and_each_later_one_later():
    pace = RestartPace()
    pauses = [pace.pause_s(0.0) for _ in range(10)]
    assert pauses[:4] == [0.0, 1.0, 2.0, 4.0]
    assert pauses == sorted(pauses) and pauses[-1] == LONGEST_S


def test_a_server_that_has_served_for_a_while_is_started_again_at_once():
    pace = RestartPace()
    for _ in range(5):
        pace.pause_s(1.0)
    assert pace.pause_s(SERVED_WELL_S) == 0.0
