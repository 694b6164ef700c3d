"""One of the processes of test_engine_health.py: a line of JSON in, [name of a method, arguments], a line out."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from bls.routing.decision import State
from bls.routing.engine_health import EngineHealth
from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.shared_table import SharedTable

SETTINGS = load_policy(SHIPPED).settings


class Process:
    def __init__(self, path):
        self.now = 0.0
        self.table = SharedTable(path)
        self.health = EngineHealth(self.table, lambda: self.now)
        self.attempts = {}
        self.count = 0

    def at(self, now):
        self.now = now

    def begin(self, model):
        attempt = self.health.begin(model, SETTINGS)
        if attempt is None:
            return None
        self.count += 1
        self.attempts[self.count] = attempt
        return self.count

    def end(self, number, outcome):
        attempt = self.attempts.pop(number)
        if outcome:
            getattr(attempt, outcome)()
        attempt.close()

    def try_once(self, model, outcome):
        """Whether an attempt could be made."""
        number = self.begin(model)
        if number is not None:
            self.end(number, outcome)
        return number is not None

    def state(self):
        self.table.look()
        self.health.refresh(SETTINGS)
        state: State = self.health.state(SETTINGS)
        return {model: asdict(tier) for model, tier in state.tiers.items()}

    def busy(self, rounds):
        """Begins and ends attempts as fast as it can; how many there were."""
        return sum(self.try_once(SETTINGS.models[0], "worked") for _ in range(rounds))

    def append(self, text):
        self.table.write_text(lambda before: before + text.encode())


def main(path):
    process = Process(path)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(process, name)(*arguments)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
