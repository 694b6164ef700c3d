"""Real servers for the tests of this folder, started through scripts/serve as a person would.

`server` is one for the whole session, with every model of the repository. `serve(repository)` starts another one, on
a folder of the test's own; it is stopped when the test ends. Both fail the test if the server doesn't start.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.server.serving import Server, running_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the session, with every model of model_repository."""
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """`serve(repository, *flags)` starts a server on that folder for one test."""
    with ExitStack() as stack:

        def start(repository: Path, *flags: str) -> Server:
            folder = Path(tempfile.mkdtemp(prefix="server-", dir=tmp_path))
            return stack.enter_context(running_server(folder, repository, *flags))

        yield start
