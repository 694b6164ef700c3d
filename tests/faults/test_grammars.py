"""Every grammar that is small to read and endless or heavy to compile, asked for by clients of a server that has others
to answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from bls.contract import SMALL
from tests.engines.openvino.grammars import ENDLESS, HEAVY
from tests.faults import victims
from tests.faults.load import SHORT, Load
from tests.server.clients import generate

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

CLIENTS, PATIENCE_S = 4, 600
BOMBS = ENDLESS | HEAVY
NO_TIME = ("[BUSY] ", "timeout")  # where the machine gives the trial none


def test_grammars_that_are_endless_or_heavy_to_compile_harm_nobody_else(server):
    def told(name: str) -> str:
        kind, text = BOMBS[name]
        guide = {"guided_decoding_guide_type": kind, "guided_decoding_guide": text}
        reply = generate(server, text_input="Say hi", patience_s=PATIENCE_S, **SHORT, **guide)[1]
        return str(reply.get("error") or reply["finish_reason"])

    workers = victims.engine_workers(server, SMALL)
    with Load(server, streams=2, rate=2) as load:
        load.fault("no such grammar")
        calm = load.watch(10)
    with Load(server, streams=2, rate=2) as load:
        load.fault(f"{len(BOMBS)} grammars by {CLIENTS} clients")
        with ThreadPoolExecutor(CLIENTS) as clients:
            verdicts = dict(zip(BOMBS, clients.map(told, BOMBS), strict=True))
        report = load.watch(2)
    for mark in (50, 99):
        print(f"p{mark} of others {calm.latency_s(mark):.2f} s before, {report.latency_s(mark):.2f} s during it")
    refused = ("[BAD_REQUEST] guided_decoding_guide ", *NO_TIME)
    for name, verdict in verdicts.items():
        assert verdict.startswith(refused if name in ENDLESS else (*refused, "length", "stop")), (name, verdict)
    assert report.lost == 0
    assert victims.engine_workers(server, SMALL) == workers
