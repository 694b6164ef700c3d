"""A policy file as the router uses it: executed in a namespace of its own, and each decision made whole."""

from __future__ import annotations

import ast
import hashlib
import logging
import os
import traceback
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from pathlib import Path

from bls.paths import ROOT, home
from bls.routing import clock
from bls.routing.decision import NO_MODEL, Decision, Prompt, State
from bls.routing.settings import BadPolicy, Settings, read_settings

VARIABLE = "LLM_ROUTER_POLICY"  # names another file, for whoever keeps it outside of what is served
SHIPPED = Path(os.environ.get(VARIABLE) or ROOT / "bls" / "policy.py")
MAX_BYTES = 64 * 1024
POLICY_ERROR = "policy_error"

Choose = Callable[[Prompt, State], Decision]
Guard = Callable[[Choose, Prompt, State], Decision]  # Calls the first with the others, and ends it if it stalls.


def path_of(repository: Path, named: str, variable: str) -> Path:
    """The policy file of a server: what llm_router's parameter `policy_file` names, or VARIABLE, or the code's own."""
    files = home(repository)
    if named:
        return files / named
    own = files / "bls" / "policy.py"
    return Path(variable) if variable else own if own.parent.is_dir() else SHIPPED


def version_of(source: bytes) -> str:
    """The same for the same content, wherever it lies."""
    return hashlib.sha256(source).hexdigest()[:12]


def read_source(path: Path) -> bytes:
    """Raises BadPolicy."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise BadPolicy(path, 0, error.strerror or "it can't be read") from None
    if len(source) > MAX_BYTES:
        raise BadPolicy(path, 0, f"it has {len(source)} bytes; at most {MAX_BYTES} are taken")
    return source


def load_policy(path: Path, source: bytes | None = None) -> Policy:
    """Compiles, executes and checks the shape of a policy; `source` stands in for the file's content.

    It runs the file's code, so a file that nobody has checked is loaded in a process of its own (bls/routing/check.py).
    Raises BadPolicy.
    """
    source = read_source(path) if source is None else source
    try:
        tree = ast.parse(source, str(path))
        code = compile(tree, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise BadPolicy(path, error.lineno or 0, f"SyntaxError: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadPolicy(path, 0, f"{type(error).__name__}: {error}") from None
    namespace = {"__name__": "policy", "__file__": str(path)}
    try:
        exec(code, namespace)
    except (Exception, SystemExit) as error:
        raise BadPolicy(path, line_in(path, error), f"{type(error).__name__}: {error}") from None
    return Policy(path, version_of(source), source, read_settings(namespace, path, tree), namespace["choose"])  # type: ignore[arg-type]


def line_in(path: Path, error: BaseException) -> int:
    """The line of the policy file at which an error passed last; 0 if it never did."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return (lines[-1] or 0) if lines else 0


def unguarded(choose: Choose, prompt: Prompt, state: State) -> Decision:
    """No time limit."""
    return choose(prompt, state)


@dataclass(frozen=True, eq=False)
class Policy:
    """A loaded policy. Requests in flight keep theirs when a newer one is taken."""

    path: Path
    version: str
    source: bytes
    settings: Settings
    choose: Choose
    refused_edit: str = ""  # why the file, which was edited since, does not decide

    def decide(self, prompt: Prompt, state: State, guard: Guard = unguarded) -> Decision:
        """What the policy says, completed; a policy that raises, stalls or names no model is a `policy_error`."""
        state = self.seen(state)
        try:
            decision = guard(self.choose, prompt, state)
            self._check(decision)
        except (Exception, SystemExit) as error:
            line = line_in(self.path, error)
            logging.error(f"{self.path}:{line}: {POLICY_ERROR}: {type(error).__name__}: {error}")
            decision = Decision(self._default(prompt), POLICY_ERROR, line or 1)
        return self._completed(decision, prompt, state)

    def seen(self, state: State) -> State:
        """The state with the time in the policy's own zone."""
        return State(state.tiers, clock.at(state.now, self.settings.zone))

    def fall_back(self, failed: Decision, why: str, tried: Set[str], prompt: Prompt, state: State) -> Decision | None:
        """The next engine of the failed one's chain that holds the prompt and was not tried, or None.

        `why` is a word; with the tier's name before it, it is the reason. Engines that are known to be down come last.
        """
        chain = self.others(failed, tried, prompt)
        chain.sort(key=lambda model: not state[model].usable)
        if not chain:
            return None
        reason = f"{self.tier_name(failed.model)}_{why}"
        return replace(failed, model=chain[0], reason=reason, rejected={**failed.rejected, failed.model: why})

    def others(self, failed: Decision, tried: Set[str], prompt: Prompt) -> list[str]:
        """The engines that `fall_back` chooses among."""
        chain = self.settings.fallback.get(failed.model, ())
        return [model for model in chain if model not in tried and prompt.fits(model)]

    def tier_name(self, model: str) -> str:
        tier = self.settings.tier(model)
        return tier.name if tier else model

    def model_named(self, name: str) -> str | None:
        """The model of a tier that a client named by either name."""
        return next((tier.model for tier in self.settings.tiers if name in (tier.name, tier.model)), None)

    def _check(self, decision: Decision) -> None:
        if not isinstance(decision, Decision):
            raise TypeError(f"choose gave {decision!r}; it must give a Decision")
        if decision.model != NO_MODEL and decision.model not in self.settings.models:
            raise ValueError(f"choose gave {decision.model!r}, which is no model of TIERS")

    def _default(self, prompt: Prompt) -> str:
        default = self.settings.default
        return next((model for model in (default, *self.settings.models) if prompt.fits(model)), default)

    def _completed(self, decision: Decision, prompt: Prompt, state: State) -> Decision:
        models = self.settings.models
        return Decision(
            decision.model,
            decision.reason,
            decision.line,
            self.version,
            {model: _why_not(model, decision, prompt, state) for model in models if model != decision.model},
            {model: prompt.tokens[model] for model in models},
            prompt.counted,
            self.refused_edit,
        )


def _why_not(model: str, decision: Decision, prompt: Prompt, state: State) -> str:
    if not prompt.fits(model):
        return "over_context"
    if not state[model].ready:
        return "not_loaded"
    if state[model].cooling_down:
        return "cooling_down"
    return f"{decision.reason}, line {decision.line}"
