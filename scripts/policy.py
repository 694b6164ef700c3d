"""Checks, explains, compares and replays routing policies; only `status` needs a server.

scripts/policy check [file]                       what saving the file while the server runs would say
scripts/policy explain "prompt" [options]         the decision for a prompt, its tokens counted; no engine runs
scripts/policy status                             which version a running server decides by, and why not the file's
scripts/policy diff old.py new.py                 numbers that differ, and who of many made-up prompts moves
scripts/policy replay decisions.jsonl             recorded decisions made again: all are the same, or it says which
scripts/policy replay decisions.jsonl --policy new.py     who would move, be refused, and what it would cost

Exit status: 0 good, or nothing moves; 1 the policy is refused, or something moves; 2 it could not be tried.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bls.paths import MODEL_REPOSITORY
from bls.routing import clock
from bls.routing.check import check, check_apart
from bls.routing.decision import Decision, Prompt, State, TierState
from bls.routing.old_names import old_names
from bls.routing.policy_file import SHIPPED, Policy, load_policy, read_source
from bls.routing.settings import BadExample, BadPolicy
from bls.routing.trials import trials
from bls.tiers import is_engine, tier_of
from scripts.policy_changes import Changes, replayed
from scripts.policy_status import status

TRIALS = 5000


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    verbs = {"check": check_file, "explain": explain, "diff": diff, "replay": replay, "status": status}
    try:
        return verbs[options.verb](options)
    except BadPolicy as bad:
        print(bad, file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/policy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("check", help="show what would happen if the file were saved")
    one.add_argument("file", type=Path, nargs="?", default=SHIPPED)
    one = verbs.add_parser("explain", help="show the decision for a prompt")
    one.add_argument("prompt", nargs="?", help="the prompt (default: standard input)")
    one.add_argument("--policy", type=Path, default=SHIPPED, metavar="FILE")
    one.add_argument("--max-tokens", type=int, default=64, metavar="N")
    one.add_argument("--raw", action="store_true", help="don't put the prompt into the chat template")
    one.add_argument("--messages", action="store_true", help="the prompt is a JSON list of chat messages")
    one.add_argument(
        "--set", nargs="+", default=[], metavar="FIELD=VALUE", help="such as tenant=acme priority=1 wanted=large"
    )
    one.add_argument("--signal", nargs="+", default=[], metavar="NAME=SCORE", help="such as hard=0.9 code=1")
    one.add_argument("--state", nargs="+", default=[], metavar="TIER.FIELD=VALUE", help="such as large.in_flight=40")
    one.add_argument(
        "--now", metavar="TIME", help='in the policy\'s TIME_ZONE, such as "2026-01-05 22:30" (default: now)'
    )
    one.add_argument("--json", action="store_true", help="print one line of JSON")
    one = verbs.add_parser("diff", help="show what two policies decide differently")
    one.add_argument("old", type=Path)
    one.add_argument("new", type=Path)
    one.add_argument("--json", action="store_true")
    one = verbs.add_parser("replay", help="repeat recorded decisions with this or another policy")
    one.add_argument("decisions", type=Path)
    one.add_argument("--policy", type=Path, default=SHIPPED, metavar="FILE")
    one.add_argument("--json", action="store_true")
    one = verbs.add_parser("status", help="show which version a running server decides by")
    one.add_argument("file", type=Path, nargs="?", default=SHIPPED)
    one.add_argument("--host", default="127.0.0.1")
    one.add_argument("--metrics-port", type=int, default=8002, metavar="N")
    one.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def checked(path: Path) -> Policy:
    """As a router process takes it: checked apart first, since it may never come back."""
    source = read_source(path)
    check_apart(path, source)
    return check(path, source)


def compared(path: Path) -> Policy:
    """The same, but for examples that do not hold: whoever compares has just changed what they say."""
    try:
        return checked(path)
    except BadExample as bad:
        print(f"warning: the server would refuse it: {bad}", file=sys.stderr)
        return load_policy(path)


def check_file(options: argparse.Namespace) -> int:
    policy = checked(options.file)
    tiers = ", ".join(f"{tier.name} ({tier.model})" for tier in policy.settings.tiers)
    print(f"{options.file}: good, version {policy.version}; {tiers}; {len(policy.settings.examples)} examples hold")
    for line, text in sorted([*old_names(policy.source), *clock.machine_clocks(policy.source)]):
        print(f"{options.file}:{line}: {text}")
    return 0


def explain(options: argparse.Namespace) -> int:
    policy = checked(options.policy)
    text = sys.stdin.read() if options.prompt is None else options.prompt
    given = [_pair(each) for each in options.set]
    signals = {name: float(value) for name, value in map(_pair, options.signal)}
    prompt = replace(counted(policy, text, options), **_prompt_fields(policy, given), signals=signals)
    now = clock.read(options.now) if options.now else datetime.now(timezone.utc)
    state = policy.seen(State(_tiers(policy, [_pair(each) for each in options.state]), now))
    if not any(prompt.fits(model) for model in policy.settings.models):
        raise ValueError(f"the prompt and its answer fit no context: {_counts(prompt, policy)}")
    decision = policy.decide(prompt, state)
    if options.json:
        print(json.dumps(decision.as_json()))
        return 0
    rule = policy.source.decode().split("\n")[decision.line - 1].strip()
    print(f"{decision.model}  {decision.reason}")
    print(f"  rule      {options.policy}:{decision.line}: {rule}")
    print(f"  tokens    {_counts(prompt, policy)}")
    for model, why in decision.rejected.items():
        print(f"  not       {model}: {why}")
    print(f"  version   {decision.policy}")
    return 0


def _counts(prompt: Prompt, policy: Policy) -> str:
    counts = [f"{prompt.tokens[m]} of {prompt.contexts[m]} for {m}" for m in policy.settings.models]
    return f"{', '.join(counts)}; with max_tokens {prompt.max_tokens}; counted as {prompt.counted}"


def counted(policy: Policy, text: str, options: argparse.Namespace) -> Prompt:
    """The prompt as `preprocessing` counts it, by the engines' own tokenizers."""
    try:  # Only this needs the packages of .venv.
        from bls.arrays import boolean, int32, strings
        from bls.tokens.preprocessing import Preprocessor
        from bls.tokens.tier_tokenizers import load_tiers
    except ImportError as error:
        raise ValueError(f"{error}: run scripts/install first") from None

    tiers = load_tiers(MODEL_REPOSITORY)
    preprocessor = Preprocessor(tiers)
    inputs = {"REQUEST_OUTPUT_LEN": int32(options.max_tokens)}
    inputs |= {"MESSAGES": strings(text)} if options.messages else {"QUERY": strings(text)}
    if not options.messages:
        inputs["APPLY_CHAT_TEMPLATE"] = boolean(not options.raw)
    tokens, contexts = {}, {}
    for tier in policy.settings.tiers:
        if not is_engine(tier.model):
            raise ValueError(f"{tier.model} has no engine here whose tokenizer could count tokens")
        name = tier_of(tier.model)
        ids = preprocessor.answer({**inputs, "TIER": strings(name)}, frozenset({"INPUT_ID"}))["INPUT_ID"]
        tokens[tier.model] = ids.shape[1]
        contexts[tier.model] = tier.context_tokens or tiers[name].manifest.context_tokens
    how = "messages" if options.messages else "text" if options.raw else "chat"
    messages = len(json.loads(text)) if options.messages else 0
    return Prompt(tokens, contexts, options.max_tokens, how, messages)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} has no =: write NAME=VALUE")
    return name, value


def _prompt_fields(policy: Policy, given: list[tuple[str, str]]) -> dict[str, Any]:
    kinds = {"script": str, "verdict": str, "verdict_reason": str, "tenant": str, "user": str, "key": str}
    known: dict[str, Any] = {**kinds, "priority": int, "wanted": lambda name: policy.model_named(name) or name}
    for name, _ in given:
        if name not in known:
            raise ValueError(f"--set {name}: known fields: {', '.join(known)}")
    return {name: known[name](value) for name, value in given}


def _tiers(policy: Policy, given: list[tuple[str, str]]) -> dict[str, TierState]:
    kinds: dict[str, Callable[[str], Any]] = {
        "ready": _flag,
        "cooling_down": _flag,
        "in_flight": int,
        "first_token_seconds": float,
        "error_rate": float,
    }
    assert kinds.keys() == {field.name for field in fields(TierState)}
    found: dict[str, dict[str, Any]] = {}
    for name, value in given:
        tier, _, field = name.partition(".")
        model = policy.model_named(tier)
        if model is None or field not in kinds:
            raise ValueError(f"--state {name}: give TIER.FIELD, such as large.in_flight; fields: {', '.join(kinds)}")
        found.setdefault(model, {})[field] = kinds[field](value)
    return {model: TierState(**values) for model, values in found.items()}


def _flag(value: str) -> bool:
    return value.lower() in ("1", "true", "yes")


def diff(options: argparse.Namespace) -> int:
    old, new = compared(options.old), compared(options.new)
    numbers = {
        field.name.upper(): (getattr(old.settings, field.name), getattr(new.settings, field.name))
        for field in fields(old.settings)
        if field.name != "examples" and getattr(old.settings, field.name) != getattr(new.settings, field.name)
    }
    models = tuple(dict.fromkeys((*old.settings.models, *new.settings.models)))
    changes = Changes(old, new)
    for prompt, state in trials(models, TRIALS):
        before, after = (_decided(policy, prompt, state) for policy in (old, new))
        changes.add(prompt, before, after, min(prompt.max_tokens, 256))
    if options.json:
        print(
            json.dumps({"settings": {name: [str(a), str(b)] for name, (a, b) in numbers.items()}, **changes.as_json()})
        )
    else:
        for name, (before, after) in numbers.items():
            print(f"{name}: {before!r} -> {after!r}")
        print(changes.for_people("made-up prompts"))
    return 1 if numbers or changes.moved else 0


def _decided(policy: Policy, prompt: Prompt, state: State) -> Decision:
    if not any(prompt.fits(model) for model in policy.settings.models):
        return Decision.refuse("over_every_context")
    return policy.decide(prompt, state)


def replay(options: argparse.Namespace) -> int:
    changes = replayed(options.decisions, compared(options.policy))
    print(json.dumps(changes.as_json()) if options.json else changes.for_people("recorded decisions"))
    return 1 if changes.moved else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
