import json
import subprocess
import sys

import pytest

from bls.contract import LARGE, SMALL
from bls.paths import ROOT
from bls.routing.decision import ALL_WELL
from bls.routing.decision_log import Recorded, append, read
from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.trials import trials

POLICY = load_policy(SHIPPED)


def recorded(seed=0, count=1):
    return [
        Recorded(prompt, state, POLICY.decide(prompt, state), {"finish": "stop", "output_tokens": 7})
        for prompt, state in trials((SMALL, LARGE), count, seed)
    ]


def test_what_is_recorded_reads_back_as_it_was(tmp_path):
    written = recorded(count=50)
    for each in written:
        append(tmp_path / "log", each, 1 << 30)
    found = list(read(tmp_path / "log"))
    assert [number for number, _ in found] == list(range(1, 51))
    for (_, back), each in zip(found, written, strict=True):
        assert (back.prompt, back.state, back.decision, back.outcome) == (
            each.prompt,
            each.state,
            each.decision,
            each.outcome,
        )
        assert (back.decision.line, back.decision.policy) == (each.decision.line, each.decision.policy)


def test_the_file_and_the_one_before_stay_within_the_bound(tmp_path):
    (each,) = recorded()
    path, bound = tmp_path / "log", 20_000
    for _ in range(500):
        append(path, each, bound)
        files = list(tmp_path.iterdir())
        assert sum(file.stat().st_size for file in files) <= bound + 2 * len(each.line())
    assert sorted(file.name for file in files) == ["log", "log.1"]


def test_lines_of_several_processes_neither_mix_nor_get_lost(tmp_path):
    script = (
        "import sys; from pathlib import Path; from tests.bls.routing.test_decision_log import append, recorded\n"
        "for each in recorded(count=100): append(Path(sys.argv[1]), each, 1 << 30)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "log")]
    processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert sum(1 for _ in read(tmp_path / "log")) == 300


@pytest.mark.parametrize("line", ["nonsense", "{}", "[]", '{"prompt": {"tokens": 1}}', '{"prompt": {}, "state": {}}'])
def test_a_line_that_is_no_decision_is_named(tmp_path, line):
    (each,) = recorded()
    (tmp_path / "log").write_bytes(each.line() + line.encode() + b"\n")
    with pytest.raises(ValueError, match="log:2: not a recorded decision"):
        list(read(tmp_path / "log"))


def test_a_line_holds_features_and_no_more():
    prompt, _ = next(trials((SMALL, LARGE), 1))
    line = json.loads(Recorded(prompt, ALL_WELL, POLICY.decide(prompt, ALL_WELL), {"finish": "stop"}).line())
    assert line.keys() == {"time", "now", "prompt", "state", "decision", "outcome"}
    assert line["decision"].keys() == {"model", "reason", "line", "policy", "rejected"}
