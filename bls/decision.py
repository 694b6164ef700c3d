"""The old place of what bls/policy_api.py holds, for policy files of the last release. It goes with the next one."""

from bls.routing.decision import ALL_WELL as ALL_WELL
from bls.routing.decision import Decision as Decision
from bls.routing.decision import Prompt as Prompt
from bls.routing.decision import State as State
from bls.routing.decision import Tier as Tier
from bls.routing.decision import TierState as TierState
from bls.routing.decision import example as example
