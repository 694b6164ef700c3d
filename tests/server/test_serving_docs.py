"""docs/serving.md on the real server: each command of it prints what stands below it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from scripts.write_doc_examples import Command, examples
from tests.server.serving import ROOT, Server, running_server

pytestmark = pytest.mark.server

DOCUMENT = ROOT / "docs" / "serving.md"
EXAMPLES = examples(DOCUMENT.read_text(encoding="utf-8"))


def flags_of(commands: list[Command]) -> tuple[str, ...] | None:
    """What a command adds to `scripts/serve cpu --model-repository FOLDER`; None if none of them starts a server."""
    for command in commands:
        for line in command.text.splitlines():
            words = line.split()
            if words[:3] == ["scripts/serve", "cpu", "--model-repository"]:
                return tuple(words[4:])
    return None


def sections() -> Iterator[tuple[tuple[str, ...], str]]:
    """Each heading with commands, and the flags of the server that was started last before them."""
    flags: tuple[str, ...] = ()
    for heading, commands in EXAMPLES.commands.items():
        started = flags_of(commands)
        flags = flags if started is None else started
        if any(command.prints is not None for command in commands):
            yield flags, heading


@pytest.fixture(scope="module")
def serve_with(tmp_path_factory) -> Iterator[Callable[[tuple[str, ...]], Server]]:
    """`serve_with(flags)`: the models of the document; the last server serves on while the flags stay the same."""
    with ExitStack() as stack:
        running: dict[tuple[str, ...], Server] = {}

        def serve(flags: tuple[str, ...]) -> Server:
            if flags not in running:
                stack.close()
                running.clear()
                folder = tmp_path_factory.mktemp("serving")
                EXAMPLES.write(folder / "models")
                running[flags] = stack.enter_context(running_server(folder, folder / "models", *flags))
            return running[flags]

        yield serve


def printed(command: Command, server: Server) -> str:
    """What a reader sees, on this server's ports and with its key."""
    text = command.text
    for port, address in (("8000", server.http_url.removeprefix("http://")), ("8001", server.grpc_url)):
        text = text.replace(f"localhost:{port}", address)
    text = text.replace("logs/tritonserver-8000.log.key", str(server.control_key_file))
    program = {"sh": ["bash", "-c"], "python": [str(ROOT / ".venv" / "bin" / "python"), "-c"]}[command.language]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*program, text], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("flags", "heading"), list(sections()))
def test_the_document_shows_what_its_commands_print(serve_with, flags, heading):
    server = serve_with(flags)
    for command in EXAMPLES.commands[heading]:
        if command.prints is not None:
            got = printed(command, server)
            print(got)


def test_each_heading_of_the_document_has_an_example_that_was_run():
    headings = [line[3:] for line in DOCUMENT.read_text().splitlines() if line.startswith("## ")]
    assert [heading for heading in headings if heading != "When something dies"] == [
        heading for _, heading in sections()
    ]
