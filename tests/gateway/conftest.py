from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.fake_router import FakeRouter
from tests.gateway.gateway_process import Gateway, running


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeRouter]:
    with FakeRouter() as router:
        yield router


@pytest.fixture(scope="module")
def gateway(fake: FakeRouter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """In front of the stand-in, as it starts without options."""
    with running(tmp_path_factory.mktemp("gateway"), fake.target) as process:
        yield process
