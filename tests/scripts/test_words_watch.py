"""Lists that are compiled whenever they change, as kubelet changes them too."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from bls.paths import ROOT
from bls.words.stream_filter import filter_text
from bls.words.table import NewestTable
from scripts.words_watch import LOOK_S, Watch
from tests.kubelet import ConfigMapVolume
from tests.waiting import eventually

CATEGORIES = '[categories.rude]\naction = "mask"\n'


def lists(*words, categories=CATEGORIES):
    return {"deny/rude.txt": "\n".join(words) + "\n", "categories.toml": categories}


class Site:
    """A volume, what is compiled of it, and a server's view of that."""

    def __init__(self, folder):
        self.volume = ConfigMapVolume(folder / "lists", lists("zorp"))
        self.target = folder / "words" / "compiled.bin"
        self.said = []
        self.watch = Watch(self.volume.folder, self.target, self.said.append)
        self.now = 0.0
        self.newest = NewestTable(self.target, clock=lambda: self.now)

    def answer(self, text):
        """As a router process would send it, a second later."""
        self.now += LOOK_S
        return filter_text(self.newest.table(), text)[0]


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_a_swapped_config_map_is_compiled_and_a_serving_process_takes_it(site):
    site.watch.look()
    assert site.answer("zorp and blig") == "**** and blig"
    site.volume.update(lists("blig"))
    site.watch.look()
    assert site.answer("zorp and blig") == "zorp and ****"
    assert len(site.said) == 2


def test_a_list_that_goes_and_one_that_comes_are_noticed(site):
    site.watch.look()
    site.volume.update({"deny/other.txt": "blig\n"})
    site.watch.look()
    assert site.answer("zorp and blig") == "zorp and ****"


def test_what_has_not_changed_is_not_compiled_again(site):
    for _ in range(3):
        site.watch.look()
    assert len(site.said) == 1


def test_bad_lists_are_told_once_by_file_and_line_and_leave_what_was_compiled(site):
    site.watch.look()
    site.volume.update(lists("zorp", "in*side"))
    site.watch.look()
    site.watch.look()
    assert site.answer("zorp and blig") == "**** and blig"
    assert len(site.said) == 3 and "rude.txt:2:" in site.said[1] and "stays as it was" in site.said[2]
    site.volume.update(lists("blig"))
    site.watch.look()
    assert site.answer("zorp and blig") == "zorp and ****"


def test_bad_lists_at_the_start_leave_nothing_until_they_are_good(site):
    site.volume.update(lists("in*side"))
    site.watch.look()
    assert not site.target.exists()
    site.volume.update(lists("zorp"))
    site.watch.look()
    assert site.answer("zorp") == "****"


def test_a_target_that_cannot_be_written_is_told_and_tried_again(site):
    site.target.parent.write_text("in the way")
    site.watch.look()
    assert "in the way" not in site.said[0] and str(site.target.parent) in site.said[0]
    site.target.parent.unlink()
    site.watch.look()
    assert site.answer("zorp") == "****"


@pytest.mark.slow
def test_a_look_in_the_middle_of_a_swap_never_compiles_half_of_two_versions(site):
    """Each version says the same word in two files."""
    versions = [{**lists(word), "allow/same.txt": f"{word}ish\n"} for word in ("zorp", "blig")]
    site.volume.update(versions[0])
    is_over = threading.Event()

    def swap():
        for turn in range(200):
            site.volume.update(versions[turn % 2])
        is_over.set()

    writer = threading.Thread(target=swap)
    writer.start()
    while not is_over.is_set():
        site.watch.look()
        if site.target.exists():
            assert site.answer("zorp blig zorpish bligish") in (
                "**** blig zorpish bligish",
                "zorp **** zorpish bligish",
            )
    writer.join()
    site.watch.look()
    assert site.answer("zorp blig") == "zorp ****"
    assert not any("problem" in line for line in site.said)


def test_the_command_compiles_at_once_and_ends_by_sigterm(tmp_path):
    """A container's first process has no default action for signals, so it must have one of its own."""
    site = Site(tmp_path)
    command = [sys.executable, "-m", "scripts.words", "watch"]
    command += [f"--folder={site.volume.folder}", f"--output={site.target}"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert eventually(site.target.exists)
            assert site.answer("zorp") == "****"
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()
