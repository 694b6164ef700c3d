"""The bench that serves a user's copy of NVIDIA's BLS, held to a stand-in of it."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from bls.paths import ROOT
from scripts.bench import peer
from scripts.bench.rounds import Round
from scripts.bench.stream_load import Stream

STAND_IN = ROOT / "tests" / "stand_ins" / "tensorrt_llm_bls"


def test_the_peer_gets_its_name_and_our_engine_whatever_its_folder_is_called(tmp_path):
    theirs = tmp_path / "copy_of_2025"
    shutil.copytree(STAND_IN, theirs)
    text = (peer.repository(tmp_path / "served", theirs) / peer.PEER / "config.pbtxt").read_text()
    assert re.findall(r"^name: (.*)$", text, re.MULTILINE) == ['"tensorrt_llm_bls"']
    assert re.findall(r'string_value: "(.*)"', text) == ["tensorrt_llm_small"]


@pytest.mark.parametrize("missing", ["config.pbtxt", "1/model.py"])
def test_a_folder_that_is_no_model_is_refused_in_one_line(tmp_path, capsys, missing):
    shutil.copytree(STAND_IN, tmp_path / "theirs")
    (tmp_path / "theirs" / missing).unlink()
    assert peer.main([f"--bls={tmp_path / 'theirs'}"]) == 2
    assert re.fullmatch(r"error: .*theirs holds no config.pbtxt with a 1/model.py beside it\n", capsys.readouterr().err)


def test_a_config_that_is_not_filled_in_is_refused_with_what_is_left(tmp_path, capsys):
    shutil.copytree(STAND_IN, tmp_path / "theirs")
    config = tmp_path / "theirs" / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 1", "count: ${bls_instance_count}"))
    assert peer.main([f"--bls={tmp_path / 'theirs'}"]) == 2
    assert "config.pbtxt still has ${bls_instance_count}: fill it in first" in capsys.readouterr().err


def test_the_last_response_brings_the_tokens_that_the_others_have_not():
    whole = Round([Stream(0.0, [1.0, 2.0, 3.0], [1, 1, 1]), Stream(0.0, [1.0], [1])])
    assert [stream.tokens for stream in peer.counted(whole, 8).streams] == [[1, 1, 6], [8]]


@pytest.mark.server
@pytest.mark.slow
def test_the_stand_in_is_compared_with_the_router_on_a_real_server(capsys):
    flags = ["--instances=2,4", "--streams=4", "--rounds=1", "--tokens=16"]
    assert peer.main([f"--bls={STAND_IN}", *flags]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [found[f"instances_{count}"]["pss_mb"][peer.PEER]["processes"] for count in (2, 4)] == [2, 4]
    for each in found.values():
        assert each["peer"]["tokens_per_second"] > 0 and each["router"]["tokens_per_second"] > 0
        assert each["peer_over_engine"]["median"] > 0
