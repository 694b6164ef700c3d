"""All that a policy file may import: `from bls.policy_api import ...`. What isn't here is internal and may move.

Decision, Tier, Prompt, State, TierState, ALL_WELL, example    what `choose` gets and gives, and how EXAMPLES say it
SMALL, LARGE                                                   the shipped engine models; a further one is a string
Safety and its checks; ALLOW, MASK, ROUTE, REFUSE; OPEN, CLOSED    what a prompt goes through before `choose`
"""

from __future__ import annotations

from bls.contract import LARGE, SMALL
from bls.routing.decision import ALL_WELL, Decision, Prompt, State, Tier, TierState, example
from bls.safety.settings import (
    ALLOW,
    CLOSED,
    MASK,
    OPEN,
    REFUSE,
    ROUTE,
    Classifier,
    Hidden,
    Limits,
    Patterns,
    PersonalData,
    Repetition,
    Safety,
    Script,
    Words,
)

__all__ = [
    "ALLOW",
    "ALL_WELL",
    "CLOSED",
    "LARGE",
    "MASK",
    "OPEN",
    "REFUSE",
    "ROUTE",
    "SMALL",
    "Classifier",
    "Decision",
    "Hidden",
    "Limits",
    "Patterns",
    "PersonalData",
    "Prompt",
    "Repetition",
    "Safety",
    "Script",
    "State",
    "Tier",
    "TierState",
    "Words",
    "example",
]
