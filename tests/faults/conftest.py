"""Each test of this folder has a server of its own, started through scripts/serve: what breaks it meets no other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.server.serving import ROOT, Server, running_server


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """`serve(*flags, repository=...)` starts a server on free ports; it is stopped when the test ends."""
    with ExitStack() as stack:

        def start(*flags: str, repository: Path = ROOT / "model_repository") -> Server:
            folder = Path(tempfile.mkdtemp(prefix="server-", dir=tmp_path))
            return stack.enter_context(running_server(folder, repository, *flags))

        yield start


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    """With every model of model_repository."""
    return serve()
