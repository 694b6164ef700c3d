"""Everything of a router process that the policy needs: the shared table, the file's newest version, the thread."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from bls.paths import home
from bls.ports import Metrics
from bls.routing import server_files
from bls.routing.admission import Admission
from bls.routing.check import check_apart
from bls.routing.engine_health import EngineHealth
from bls.routing.policy_file import VARIABLE, Policy, path_of
from bls.routing.policy_thread import PolicyThread
from bls.routing.reload import Policies
from bls.routing.route import Routing
from bls.routing.shadow_policy import ShadowPolicy
from bls.routing.shared_table import SharedTable
from bls.routing.time_limit import TimeLimit
from bls.routing.verdicts import Verdicts

POLICY_RELOADS = "llm_router_policy_reloads_total"
POLICY_IN_FORCE = "llm_router_policy_in_force"
POLICY_REFUSED = "llm_router_policy_refused"
BREAKERS_OPENED = "llm_router_breakers_opened_total"


def table_path() -> Path:
    """The file that the router processes of one server share."""
    return server_files.path("table")


class PolicyService:
    """`routing` is for the Router, one process of `instances`; 0 doesn't limit what they answer at a time.

    Raises RuntimeError where there is no good policy. Made in the main thread.
    """

    def __init__(self, repository: Path, policy_file: str, metrics: Metrics, instances: int = 0) -> None:
        metrics.declare(POLICY_RELOADS, "COUNTER", "Policy files that were taken or refused, by outcome")
        metrics.declare(
            POLICY_IN_FORCE, "GAUGE", "The version of the policy that decides, its hexadecimal digits as a number"
        )
        metrics.declare(
            POLICY_REFUSED, "GAUGE", "1 while the policy file, as it stands, is refused and an earlier version decides"
        )
        metrics.declare(BREAKERS_OPENED, "COUNTER", "Times that an engine was left alone since it failed too often")
        for outcome in ("taken", "refused"):  # Shown as 0 before the first one: else no alert could see the first.
            metrics.add(POLICY_RELOADS, 0, outcome=outcome)
        files = home(repository)
        path = path_of(repository, policy_file, os.environ.get(VARIABLE, ""))
        table = SharedTable(table_path())
        verdicts = Verdicts(table, partial(check_apart, repository=repository))
        policies = Policies(
            path, verdicts, files / "logs", lambda outcome: metrics.add(POLICY_RELOADS, outcome=outcome)
        )
        for model in policies.current.settings.models:
            metrics.add(BREAKERS_OPENED, 0, model=model)
        health = EngineHealth(table, opened=lambda model: metrics.add(BREAKERS_OPENED, model=model))
        shadow = ShadowPolicy(path.parent, verdicts)
        log = files / "logs" / "decisions.jsonl"
        self.routing = Routing(policies, health, TimeLimit(), log, shadow, Admission(table, instances))
        self._thread = PolicyThread(policies, shadow, _InForce(metrics).show)

    def close(self) -> None:
        self._thread.close()


class _InForce:
    """Shows which version decides. Each router process does, when it comes to it, so the last one has it right.

    As a value and not as a label: a series for each version would stay for ever, since Triton 2.51 can't take one away
    from several processes (bls/triton_io.py).
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._shown = ("", False)

    def show(self, policy: Policy) -> None:
        shown = (policy.version, bool(policy.refused_edit))
        if shown != self._shown:
            self._metrics.set(POLICY_IN_FORCE, in_force_value(shown[0]))
            self._metrics.set(POLICY_REFUSED, float(shown[1]))
            self._shown = shown


def version_in_force(value: float) -> str:
    """The version that the metric's value stands for."""
    return f"{int(value):012x}"


def in_force_value(version: str) -> int:
    """A version as its metric has it: 48 bits, which a float64 holds without loss."""
    return int(version, 16)
