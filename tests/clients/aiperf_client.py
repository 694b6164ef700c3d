"""aiperf, NVIDIA's load generator, against the chat endpoint, with a tokenizer from this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import check, given, run
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

URL, _ = given()
REQUESTS, TOKENS = 12, 16


def tokenizer_in(folder: Path) -> Path:
    """One that knows a few words; aiperf makes its prompts by it."""
    words = {word: number for number, word in enumerate(("[UNK]", "the", "and", "of", "to", "in", "his", "with"))}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "model_max_length": 8192}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@check
def a_streaming_run_of_chats_is_measured() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [
            str(Path(sys.executable).with_name("aiperf")), "profile", "--model=auto", f"--url={URL}", "--streaming",
            "--endpoint-type=chat", f"--tokenizer={tokenizer_in(folder / 'tokenizer')}", "--concurrency=3",
            f"--request-count={REQUESTS}", "--synthetic-input-tokens-mean=20", f"--output-tokens-mean={TOKENS}",
            "--extra-inputs=ignore_eos:true", "--use-server-token-count", "--ui-type=none",
            f"--artifact-dir={folder / 'found'}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=folder)
        assert done.returncode == 0, done.stdout[-1500:]
        found = json.loads((folder / "found" / "profile_export_aiperf.json").read_text())
    assert found["request_count"]["avg"] == REQUESTS, found["request_count"]
    assert not found.get("error_request_count") or not found["error_request_count"]["avg"]
    assert found["time_to_first_token"]["p50"] > 0 and found["output_token_throughput"]["avg"] > 0


if __name__ == "__main__":
    run()
