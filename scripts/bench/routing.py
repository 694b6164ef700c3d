"""What routing is worth: one trace of mixed prompts, routed by the policy, then all large, then all small.

    python -m scripts.bench routing [--requests 120] [--rate 4] [--small 8,32] [--large 40,8]

The engines sleep instead of computing, `ms per token, requests at a time` each, so that they differ as real ones do and
nothing else of the machine counts. Prompts, their weights and lengths: scripts/stress/mix.jsonl. Costs are by the
prices of TIERS in the policy. Answers say nothing here: whether the small model's are good enough is for your own
prompts to say. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bls.contract import ENGINE_CONTROL, LARGE, POSTPROCESSING, PREPROCESSING, ROUTER, SMALL
from bls.paths import ROOT
from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.settings import Settings
from scripts.bench.local_server import Server, running_server
from scripts.bench.rounds import percentile
from scripts.client import Piece, Request, RequestFailed, TritonAsyncClient
from scripts.stress.plan import Planned, load_mix, plan

MIX = ROOT / "scripts" / "stress" / "mix.jsonl"
SETTLE_S = 3.0  # until every router process has looked for an edited policy
# Behind the shipped policy: without the classifier, which is not served here, and with room for all.
COMMON = "\nSAFETY = Safety(())\nMAX_WAIT_SECONDS = 600.0\nMAX_IN_FLIGHT = {SMALL: 1000, LARGE: 1000}\n"
ALL = """
def choose(prompt: Prompt, state: State = ALL_WELL) -> Decision:
    return Decision({name}, "all") if prompt.fits({name}) else Decision({other}, "over_context")


EXAMPLES = (example(Decision({name}, "all")),)
"""
POLICIES = {
    "routed": "",
    "all large": ALL.format(name="LARGE", other="SMALL"),
    "all small": ALL.format(name="SMALL", other="LARGE"),
}


@dataclass(frozen=True)
class Sample:
    """One answer. Seconds from when it was due."""

    first_s: float
    whole_s: float
    last: Piece
    output_tokens: int


def repository(folder: Path, pace: dict[str, tuple[str, str]]) -> Path:
    """The router with its tokenizers, and two engines of the given paces; beside it policy.py, which decides."""
    models = folder / "model_repository"
    for model in (ENGINE_CONTROL, POSTPROCESSING, PREPROCESSING, ROUTER):
        shutil.copytree(ROOT / "model_repository" / model, models / model)
    for model, (ms_per_token, streams) in pace.items():
        (models / model / "1").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "bench" / "paced_engine.py", models / model / "1" / "model.py")
        config = (ROOT / "model_repository" / model / "configs" / "cpu.pbtxt").read_text(encoding="utf-8")
        values = f'parameters {{ key: "ms_per_token" value {{ string_value: "{ms_per_token}" }} }}\n'
        values += f'parameters {{ key: "streams" value {{ string_value: "{streams}" }} }}\n'
        kept = re.sub(r"^parameters .*$", "", config, flags=re.MULTILINE)
        (models / model / "config.pbtxt").write_text(kept + values, encoding="utf-8")
    router = models / ROUTER / "config.pbtxt"
    named = re.compile(r'(key: "policy_file".*\n\s*value: { string_value: ")[^"]*')
    router.write_text(named.sub(r"\g<1>policy.py", router.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copytree(ROOT / "engines" / "built", folder / "engines" / "built", copy_function=os.link)
    shutil.copytree(ROOT / "words", folder / "words")
    write_policy(folder, "routed")
    return models


def write_policy(folder: Path, name: str) -> Settings:
    source = SHIPPED.read_text(encoding="utf-8") + COMMON + POLICIES[name]
    draft = folder / "policy.new"
    draft.write_text(source, encoding="utf-8")
    draft.replace(folder / "policy.py")
    return load_policy(folder / "policy.py").settings


async def replay(url: str, planned: Sequence[Planned]) -> list[Sample | RequestFailed]:
    """Each request when it is due, whatever became of the others."""
    async with TritonAsyncClient(url, max_in_flight=1000, retries=0) as client:
        begin = time.perf_counter()

        async def one(each: Planned) -> Sample | RequestFailed:
            await asyncio.sleep(max(0.0, begin + each.due_s - time.perf_counter()))
            first, tokens, last = 0.0, 0, None
            inputs = {"apply_chat_template": True}
            try:
                async for piece in client.stream(Request(each.prompt.text, each.prompt.max_tokens, inputs=inputs)):
                    first = first or time.perf_counter() - begin - each.due_s
                    tokens, last = tokens + (piece.tokens or 0), piece
            except RequestFailed as failure:
                return failure
            assert last is not None
            return Sample(first, time.perf_counter() - begin - each.due_s, last, tokens)

        return list(await asyncio.gather(*map(one, planned)))


def summary(settings: Settings, found: Sequence[Sample | RequestFailed]) -> dict[str, Any]:
    """Tokens, cost and latency of a trace, and its cost by rule."""
    samples = [each for each in found if isinstance(each, Sample)]
    requests, tokens, rules = Counter[str](), Counter[str](), Counter[str]()
    costs: dict[str, float] = defaultdict(float)
    for sample in samples:
        tier = settings.tier(sample.last.model)
        assert tier is not None
        requests[tier.name] += 1
        tokens[tier.name] += sample.output_tokens
        rules[sample.last.reason] += 1
        costs[sample.last.reason] += tier.cost(sample.last.input_tokens or 0, sample.output_tokens)
    firsts, wholes = [each.first_s for each in samples], [each.whole_s for each in samples]
    return {
        "requests": dict(requests),
        "failed": len(found) - len(samples),
        "output_tokens": dict(tokens),
        "cost": round(sum(costs.values()), 4),
        "first_token_s": [round(percentile(firsts, share), 3) for share in (50, 99)],
        "whole_s": [round(percentile(wholes, share), 2) for share in (50, 99)],
        "by_rule": {rule: {"requests": rules[rule], "cost": round(costs[rule], 4)} for rule in sorted(rules)},
    }


def measured(server: Server, folder: Path, planned: Sequence[Planned]) -> dict[str, dict[str, Any]]:
    found = {}
    for name in POLICIES:
        settings = write_policy(folder, name)
        time.sleep(SETTLE_S)
        found[name] = summary(settings, asyncio.run(replay(server.grpc_url, planned)))
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench routing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second, at random times (default: 4)")
    parser.add_argument("--small", default="8,32", metavar="MS,N", help="ms a token, requests at a time (8,32)")
    parser.add_argument("--large", default="40,8", metavar="MS,N", help="the same of the large engine (40,8)")
    parser.add_argument("--mix", type=Path, default=MIX, metavar="FILE", help="prompts, as scripts.stress takes them")
    options = parser.parse_args(arguments)
    pace = {}
    for model, text in ((SMALL, options.small), (LARGE, options.large)):
        ms_per_token, _, streams = text.partition(",")
        pace[model] = (ms_per_token, streams)
    planned = plan(load_mix(options.mix), options.requests, options.rate, seed=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_server(folder, repository(folder, pace)) as server:
            found = measured(server, folder, planned)
    for policy, row in found.items():
        first, whole = row["first_token_s"], row["whole_s"]
        print(
            f"{policy:<10} {row['requests']}, failed {row['failed']}; cost {row['cost']}; "
            f"first token p50 {first[0]} s, p99 {first[1]} s; whole answer p50 {whole[0]} s, p99 {whole[1]} s"
        )
    for rule, row in found["routed"]["by_rule"].items():
        print(f"  {rule:<16} {row['requests']:>5} requests, cost {row['cost']}")
    print(json.dumps({"routing": found}))
    return 0
