"""The old place of what bls/policy_api.py holds, for policy files of the last release. It goes with the next one."""

from bls.safety.settings import ALLOW as ALLOW
from bls.safety.settings import CLOSED as CLOSED
from bls.safety.settings import MASK as MASK
from bls.safety.settings import OPEN as OPEN
from bls.safety.settings import REFUSE as REFUSE
from bls.safety.settings import ROUTE as ROUTE
from bls.safety.settings import Classifier as Classifier
from bls.safety.settings import Hidden as Hidden
from bls.safety.settings import Limits as Limits
from bls.safety.settings import Patterns as Patterns
from bls.safety.settings import PersonalData as PersonalData
from bls.safety.settings import Repetition as Repetition
from bls.safety.settings import Safety as Safety
from bls.safety.settings import Script as Language
from bls.safety.settings import Words as Words

__all__ = ["Language"]
