"""The parts of a request add up to all of it."""

from __future__ import annotations

import json
import re

import pytest

from scripts.bench import request


def test_each_part_is_timed_as_often_as_it_happens():
    us = request.measured(requests=4, responses=5, tokens=2, is_cold=False)
    assert {part: len(times) for part, times in us.items()} == {
        request.READ: 4,
        request.CHECKED: 4,
        request.DISPATCHED: 4,
        request.FIRST: 4,
        request.PIECE: 4 * 3,
        request.LAST: 4,
        request.ENDED: 4,
    }
    assert all(time > 0 for times in us.values() for time in times)


def test_it_ends_with_json_and_takes_no_request_too_short_for_its_parts(capsys):
    assert request.main(["--requests=1", "--responses=3"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert all(set(medians) == {"warm", "cold"} for medians in json.loads(last).values())
    with pytest.raises(SystemExit):
        request.main(["--responses=2"])
    assert re.search("--responses is 2; it must be at least 3", capsys.readouterr().err)
