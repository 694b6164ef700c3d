"""Prints what a script has found to standard output."""

from __future__ import annotations

import os
import sys


def print_all(text: str) -> None:
    """A reader that has seen enough and left, such as head, is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # What is left would be written when Python ends, which complains then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
