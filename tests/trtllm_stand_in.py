"""Stands in for TensorRT-LLM where there is none: takes the flags that the table of flags allows, and writes the files
that the real programs write, a few bytes each. `install` puts the programs into a folder; they all run this file.

STAND_IN, a JSON object in the environment, makes them fail: {"fails": "trtllm-build", "status": 3, "says": "...",
"without": "rank1.engine"}; or one sends its parent a ctrl-C and sleeps: {"interrupts": ..., "pid_file": ...}.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # run as a file, so nothing can be imported yet

GPU = "NVIDIA L4, 8.9"
VERSION = "1.1.0"


def install(folder: Path, gpus: str = GPU) -> Path:
    """trtllm-build, python3 and nvidia-smi in `folder`/bin, the scripts in `folder`/examples; returns bin."""
    sys.path.insert(0, str(ROOT))
    from engines.tensorrt_llm import flags

    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in flags.programs():
        script = programs / name if name == flags.BUILD else folder / "examples" / name
        script.parent.mkdir(parents=True, exist_ok=True)
        _write(script, f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n')
    # The scripts are called as `python3 script.py`; these are no Python.
    _write(programs / "python3", '#!/bin/sh\nexec sh "$@"\n')
    _write(programs / "nvidia-smi", f"#!/bin/sh\nprintf '%s' '{gpus}'\n")
    return programs


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def main(name: str, arguments: list[str]) -> int:
    sys.path.insert(0, str(ROOT))
    from engines.tensorrt_llm import flags

    told = json.loads(os.environ.get("STAND_IN", "{}"))
    wishes = vars(flags.programs()[name].parser().parse_args(arguments))
    print(f"[11/30/2026-03:40:00] [TRT-LLM] [I] {name} reads")
    if told.get("interrupts") == name:
        Path(told["pid_file"]).write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(600)
    if told.get("fails") == name:
        print(told.get("says", ""))
        if told.get("status", 1) < 0:
            os.kill(os.getpid(), -told["status"])
        return told.get("status", 1)
    folder = Path(wishes["output_dir"])
    folder.mkdir(parents=True, exist_ok=True)
    files = _engine(wishes) if name == flags.BUILD else _checkpoint(wishes)
    for file, content in files.items():
        if file != told.get("without"):
            (folder / file).write_text(json.dumps(content))
    print(f"[11/30/2026-03:40:01] [TRT-LLM] [I] {name} has written {len(files)} files")
    return 0


def _checkpoint(wishes: dict) -> dict:
    """As convert_checkpoint.py and quantize.py leave it."""
    model = json.loads((Path(wishes["model_dir"]) / "config.json").read_text())
    tp_size, pp_size = wishes["tp_size"] or 1, wishes["pp_size"] or 1
    mapping = {"world_size": tp_size * pp_size, "tp_size": tp_size, "pp_size": pp_size}
    quantised = {"quant_algo": wishes.get("qformat") or wishes.get("weight_only_precision")}
    config = {
        "architecture": "QWenForCausalLM",
        "dtype": wishes["dtype"],
        "mapping": mapping,
        "quantization": quantised,
        "num_hidden_layers": model["num_hidden_layers"],
        "hidden_size": model["hidden_size"],
    }
    return {"config.json": config} | {f"rank{rank}.safetensors": rank for rank in range(tp_size * pp_size)}


def _engine(wishes: dict) -> dict:
    """As trtllm-build leaves it: EngineConfig.to_dict of tensorrt_llm/builder.py, as far as it is read here."""
    checkpoint = Path(wishes["checkpoint_dir"])
    config = json.loads((checkpoint / "config.json").read_text())
    ranks = range(config["mapping"]["world_size"])
    assert all((checkpoint / f"rank{rank}.safetensors").is_file() for rank in ranks)
    Path(wishes["output_timing_cache"]).write_bytes(b"")
    sizes = {name: wishes[name] for name in ("max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens")}
    engine = {"version": VERSION, "pretrained_config": config, "build_config": sizes}
    return {"config.json": engine} | {f"rank{rank}.engine": rank for rank in ranks}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
