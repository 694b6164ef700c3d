from __future__ import annotations

import io

from scripts.host.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_only_news_is_printed():
    stream = io.StringIO()
    progress = Progress(stream)
    progress.step("packages", "150 MB")
    for text in ("numpy", "numpy", None, "openvino"):
        progress.status(text)
    progress.done()
    assert stream.getvalue().splitlines() == [
        "packages: 150 MB (0 s)",
        "packages: numpy (0 s)",
        "packages: openvino (0 s)",
        "packages: done (0 s)",
    ]


def test_on_a_terminal_a_step_is_one_line_and_messages_stand_above_it():
    stream = Terminal()
    progress = Progress(stream)
    progress.step("loading", "0 of 2")
    progress.say("a message")
    progress.status("1 of 2")
    progress.done("2 ready")
    shown = stream.getvalue()
    assert [part.rsplit("\x1b[K", 1)[-1] for part in shown.split("\n")] == ["a message", "loading: 2 ready (0 s)", ""]
