"""A doctor's report, for people and for programs."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import Any

from bls.contract import LLAMA_7B_ENSEMBLE, NVIDIA_NAMES, ROUTER, contract_of
from scripts.diagnosis.finding import Finding, NotJudged
from scripts.diagnosis.rules_engines import kv_reuse
from scripts.diagnosis.rules_machine import busiest
from scripts.diagnosis.sample import Observation

WIDTH = 118
_LABEL = 9


def as_json(server: str, seen: Observation, findings: list[Finding], not_judged: list[NotJudged]) -> dict[str, Any]:
    """Everything, as one JSON object; `healthy` is true without findings."""
    part, use = busiest(seen)
    return {
        "server": server,
        "seconds": round(seen.seconds, 1),
        "looks": len(seen.samples),
        "models": len(seen.models),
        "requests": _requests(seen),
        "requests_by_model": _by_model(seen),
        "busiest": part,
        "busy": round(use, 3),
        "kv_reuse": {model: round(share, 3) for model, share in kv_reuse(seen).items()},
        "healthy": not findings,
        "findings": [{**asdict(finding), "weight": finding.weight.name.lower()} for finding in findings],
        "not_judged": [asdict(each) for each in not_judged],
    }


def for_people(server: str, seen: Observation, findings: list[Finding], not_judged: list[NotJudged]) -> str:
    part, use = busiest(seen)
    busy = f", {part} busy {use:.0%}" if part else ""
    lines = [
        f"{server}: {len(seen.models)} models, {_counted(seen)} in {round(seen.seconds, 1):g} s{busy}",
        *_reuse(seen),
        *([_count(findings), ""] if findings else ["nothing wrong was found"]),
    ]
    for finding in findings:
        lines += [*_block(finding), ""]
    if not_judged:
        lines.append("not enough was seen to judge:")
        lines += [f"  {each.name:<24} {each.why}" for each in dict.fromkeys(not_judged)]
    lines += [f"not examined: {what}" for what in _unseen(seen)]
    return "\n".join(lines).rstrip()


def _reuse(seen: Observation) -> list[str]:
    shares = [f"{share:.0%} in {model}" for model, share in kv_reuse(seen).items()]
    return [f"KV blocks of prompts that were reused: {', '.join(shares)}"] if shares else []


def _count(findings: list[Finding]) -> str:
    return (
        f"{len(findings)} finding{'s' if len(findings) > 1 else ''}, the worst first; see "
        "docs/troubleshooting.md for more"
    )


def _block(finding: Finding) -> list[str]:
    where = "" if finding.file == "-" else finding.file
    key = "" if finding.key == "-" else finding.key
    rows = {
        "seen": finding.figure,
        "means": finding.meaning,
        "edit": ": ".join(filter(None, (where, key))),
        "change": finding.change,
    }
    lines = [f"{finding.weight.name:<{_LABEL - 1}} {finding.name}  {finding.subject}"]
    for label, text in rows.items():
        if text:
            first, *rest = textwrap.wrap(text, WIDTH - _LABEL, break_long_words=False, break_on_hyphens=False)
            lines += [f"  {label:<{_LABEL - 2}}{first}", *(f"{'':<{_LABEL}}{line}" for line in rest)]
    return lines


def _unseen(seen: Observation) -> list[str]:
    missing = []
    if seen.last.machine is None:
        missing.append("processes, memory and /dev/shm, since the server runs on another machine or as another user")
    if not seen.has_log:
        missing.append("the server's log; give --log FILE")
    return missing


def _requests(seen: Observation) -> int:
    """Those that came to the router; without one, to all models together."""
    counts = _by_model(seen)
    return counts[ROUTER] if ROUTER in seen.models else sum(counts.values())


def _by_model(seen: Observation) -> dict[str, int]:
    return {model: seen.counted(model).requests for model in seen.models}


def _counted(seen: Observation) -> str:
    """The requests of clients: to the router, and to what it does not call itself, such as the ensemble."""
    if ROUTER not in seen.models:
        return f"{_requests(seen)} requests"
    asked = {model: count for model, count in _by_model(seen).items() if count and model != ROUTER}
    own = [model for model in asked if contract_of(model) is None or model in (LLAMA_7B_ENSEMBLE, *NVIDIA_NAMES)]
    beside = "".join(f" and {asked[model]} to {model}" for model in own)
    return f"{_requests(seen)} requests to {ROUTER}{beside}"
