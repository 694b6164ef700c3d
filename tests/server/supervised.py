"""What the tests of scripts/serve share: folders of models, and what a server has left or lost."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.host import processes, shared_memory
from tests.server import sleeper
from tests.server.serving import Server
from tests.waiting import eventually

LOADS_FOR_A_MINUTE = """
from pathlib import Path

Path(__file__).with_name("loading").touch()
time.sleep(60)
"""
LACKS_A_MODULE = "import a_module_that_is_missing\n"


def add_model(repository: Path, name: str, code: str = sleeper.CODE) -> Path:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(sleeper.config(name, instances=2))
    (repository / name / "1" / "model.py").write_text(code)
    return repository


def living(group: int) -> list[str]:
    """The processes of a group that still run; the dead that nobody has waited for don't count."""
    found = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = (line.split(None, 2) for line in found.splitlines())
    return [args for pgid, state, args in rows if int(pgid) == group and state[0] != "Z"]


def shared_memory_of(supervisor_pid: int) -> list[str]:
    return [path.name for path in shared_memory.FOLDER.glob(f"{shared_memory.PREFIX}{supervisor_pid}_*")]


def leaves_nothing(server: Server) -> bool:
    return eventually(lambda: not living(server.server_pid)) and shared_memory_of(server.supervisor_pid) == []


def stubs(server: Server, model: str = "sleeper") -> list[int]:
    return [pid for pid in processes.tree(server.server_pid) if processes.stub_model(pid) == model]


def says(server: Server, text: str, timeout_s: float = 60.0) -> bool:
    """Whether scripts/serve comes to print it."""
    return eventually(lambda: text in server.console.read_text(), timeout_s)
