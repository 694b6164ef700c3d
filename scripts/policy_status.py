"""`scripts/policy status`: which version a running server decides by, and why it is not the file's."""

from __future__ import annotations

import argparse
import json
import urllib.request
from dataclasses import asdict, dataclass

from bls.routing.check import check_apart
from bls.routing.policy_file import read_source, version_of
from bls.routing.service import POLICY_IN_FORCE, POLICY_REFUSED, version_in_force
from bls.routing.settings import BadPolicy
from scripts.diagnosis.metrics_page import Page, parse

PATIENCE_S = 5.0


@dataclass(frozen=True)
class Status:
    """`problem` is what the check says of the file, "" for nothing."""

    in_force: str
    file: str
    version: str
    refused: bool
    problem: str

    def for_people(self) -> str:
        if self.version == self.in_force:
            return f"{self.file}: in force, version {self.in_force}"
        lines = [f"in force  version {self.in_force}", f"file      {self.file}, version {self.version}"]
        if self.problem:
            return "\n".join([*lines, f"refused   {self.problem}"])
        why = "the server refused it" if self.refused else "not yet taken, or the server reads another file"
        return "\n".join([*lines, f"good      {why}"])


def status(options: argparse.Namespace) -> int:
    """Exit status 0 if the file decides, 1 if it is refused or another one decides; OSError without a server."""
    found = _status(options)
    print(json.dumps(asdict(found)) if options.json else found.for_people())
    return 0 if found.version == found.in_force else 1


def _status(options: argparse.Namespace) -> Status:
    page = _page(f"http://{options.host}:{options.metrics_port}/metrics")
    in_force = page.get(POLICY_IN_FORCE)
    if in_force is None:
        raise ValueError("the server's metrics name no policy in force: llm_router is not loaded there")
    problem, version = "", ""
    try:
        source = read_source(options.file)
        version = version_of(source)
        check_apart(options.file, source)
    except BadPolicy as bad:
        problem = str(bad)
    refused = bool(page.get(POLICY_REFUSED))
    return Status(version_in_force(in_force), str(options.file), version, refused, problem)


def _page(url: str) -> Page:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return parse(answer.read().decode(errors="replace"))
    except OSError as error:
        raise OSError(f"no server's metrics at {url} ({getattr(error, 'reason', error)}); see --metrics-port") from None
