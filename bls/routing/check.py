"""Tries a policy before it goes live, in a process of its own: an endless loop can only be ended from outside.

    python -m bls.routing.check bls/policy.py model_repository < bls/policy.py

compiles what comes in, checks its shape, runs its EXAMPLES and TRIALS made-up prompts, and prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from bls.paths import MODEL_REPOSITORY, ROOT
from bls.routing import clock
from bls.routing.decision import Decision, Example, Prompt, State
from bls.routing.decision_json import prompt_to_json, state_to_json
from bls.routing.example_edit import edit
from bls.routing.policy_file import Policy, line_in, load_policy
from bls.routing.settings import BadExample, BadPolicy
from bls.routing.trials import trials
from bls.tiers import engine_models

TRIALS = 400
CPU_SECONDS = 2  # It takes a tenth of a second; what takes so much longer is a loop.
WALL_SECONDS = 10  # For one that sleeps or waits. A busy machine may need long for little.
START_SECONDS = 60  # Until it measures its own time: 40 processes that start together on two cores took a Python 15.
MEMORY_BYTES = 1 << 30
MAX_REASONS = 50  # Each is a series of the metrics.

_REASON = re.compile(r"[a-z][a-z0-9_]{0,39}")


class _TooLong(BaseException):
    """Not an Exception, so that a policy's own `except Exception` doesn't hold it up."""


def check_apart(path: Path, source: bytes, repository: Path = MODEL_REPOSITORY) -> None:
    """Checks `source` as the content of the file at `path`, in a child process. Raises BadPolicy.

    Its tiers must be engine models of `repository`.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "bls.routing.check", str(path), str(repository)],
            input=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=ROOT,
            timeout=WALL_SECONDS + START_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BadPolicy(path, 0, f"it is not checked after {WALL_SECONDS + START_SECONDS} seconds") from None
    try:
        verdict = json.loads(ran.stdout)
    except ValueError:
        how = f"signal {-ran.returncode}" if ran.returncode < 0 else f"status {ran.returncode}"
        raise BadPolicy(path, 0, f"the process that checked it ended with {how}; it may loop or call exit") from None
    if verdict["problem"]:
        raise (BadExample if verdict["is_example"] else BadPolicy)(path, verdict["line"], verdict["problem"])


def check(path: Path, source: bytes | None = None, repository: Path = MODEL_REPOSITORY) -> Policy:
    """The same in this process, without a limit. Raises BadPolicy."""
    policy, known = load_policy(path, source), engine_models(repository)
    strange = [model for model in policy.settings.models if model not in known]
    if strange:
        raise BadPolicy(path, 0, f"TIERS: {strange[0]!r} is no engine of this server: {', '.join(known)}")
    reasons = set()
    for prompt, state in trials(policy.settings.models, TRIALS):
        decision = _answer(policy, prompt, state)
        reasons.add(decision.reason)
        if len(reasons) > MAX_REASONS:
            raise BadPolicy(path, decision.line, f"choose has more than {MAX_REASONS} different reasons")
    for example in policy.settings.examples:
        _check_example(policy, example)
    return policy


def _check_example(policy: Policy, example: Example) -> None:
    decision = _answer(policy, example.prompt, example.state)
    if decision == example.expected:
        return
    wanted, got = (f"{each.model}, {each.reason}" for each in (example.expected, decision))
    line = example.expected.line
    problem = f"EXAMPLES: expected {wanted}; choose says {got} (line {decision.line}){_clock_hint(policy)}"
    raise BadExample(policy.path, line, f"{problem}; if you mean that, line {line}: {edit(policy, example, decision)}")


def _answer(policy: Policy, prompt: Prompt, state: State) -> Decision:
    """What `choose` says, checked as no request would be."""
    state = policy.seen(state)
    try:
        decision = policy.choose(prompt, state)
        again = policy.choose(prompt, state)
    except (Exception, SystemExit) as error:
        problem = f"choose raises {type(error).__name__}: {error}; {_told(prompt, state)}"
        raise BadPolicy(policy.path, line_in(policy.path, error), problem) from None
    problem = _problem(policy, prompt, decision, again)
    if problem:
        line = getattr(decision, "line", 0) or getattr(getattr(policy.choose, "__code__", None), "co_firstlineno", 0)
        raise BadPolicy(policy.path, line, f"{problem}; {_told(prompt, state)}")
    return decision


def _problem(policy: Policy, prompt: Prompt, decision: Any, again: Any) -> str:
    if not isinstance(decision, Decision):
        return f"choose gives {decision!r}; it must give a Decision"
    models = policy.settings.models
    if not decision.is_refusal and decision.model not in models:
        return f"choose gives the model {decision.model!r}; TIERS has {', '.join(models)}"
    if not isinstance(decision.reason, str) or not _REASON.fullmatch(decision.reason):
        return f"the reason {decision.reason!r} must be one word of at most 40 letters a-z, digits and _"
    if decision != again:
        return f"choose gives another answer when it is asked again{_clock_hint(policy)}"
    if not decision.is_refusal and not prompt.fits(decision.model):
        return f"choose gives {decision.model}, whose context the prompt and its answer don't fit"
    return ""


def _clock_hint(policy: Policy) -> str:
    """What to say of an answer that may depend on when it is asked."""
    return "".join(f"; line {line}: {text}" for line, text in clock.machine_clocks(policy.source)[:1])


def _told(prompt: Prompt, state: State) -> str:
    about = f"prompt {json.dumps(prompt_to_json(prompt), ensure_ascii=True, default=str)}"
    told = about + (f", state {json.dumps(state_to_json(state))}" if state.tiers else "")
    return f"{told}, now {state.now:%Y-%m-%d %H:%M}"


def _limit() -> None:
    """Raises _TooLong where the policy is when time is over; kills if that doesn't end it."""

    def over(number: int, frame: object) -> None:
        raise _TooLong

    signal.signal(signal.SIGXCPU, over)
    signal.signal(signal.SIGALRM, over)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)


def main(path: Path, repository: Path) -> None:
    source = sys.stdin.buffer.read()
    verdict_file = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = sys.stderr  # What a policy prints must not be taken for the verdict.
    line, problem, is_example = 0, "", False
    _limit()
    try:
        check(path, source, repository)
    except BadPolicy as bad:
        line, problem, is_example = bad.line, bad.problem, isinstance(bad, BadExample)
    except _TooLong as error:
        line, problem = line_in(path, error), "it takes too long: is this a loop that never ends?"
    verdict_file.write(json.dumps({"line": line, "problem": problem, "is_example": is_example}))
    verdict_file.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
