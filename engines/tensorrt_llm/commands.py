"""The commands that make a tier's engine: its checkpoint of a Hugging Face model, then the engine of the checkpoint."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engines.tensorrt_llm import flags
from engines.tensorrt_llm.spec import AWQ, TOKENS_PER_BLOCK, GpuSpec
from engines.tensorrt_llm.suitability import AWQ_BLOCK_SIZE

EXAMPLES = Path("/app/examples")  # in NVIDIA's images
_WEIGHT_ONLY = {"int8_weight_only": "int8", "int4_weight_only": "int4"}


@dataclass(frozen=True)
class Command:
    """`program` is a key of flags.programs(); `start` is how it is called, `arguments` what follows."""

    program: str
    start: tuple[str, ...]
    arguments: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.start, *self.arguments)

    @property
    def name(self) -> str:
        return self.program.rpartition("/")[2]

    def check(self) -> None:
        """Raises BadCommand if the program takes no such flags or values."""
        flags.programs()[self.program].check(self.arguments)

    def text(self) -> str:
        """For a shell: one flag a line, to be copied as it is."""
        lines = [shlex.join(self.start)]
        for word in self.arguments:
            if word.startswith("--"):
                lines.append(word)
            else:
                lines[-1] += f" {shlex.quote(word)}"
        return " \\\n  ".join(lines)


Run = Callable[[Command], None]


def of_checkpoint(spec: GpuSpec, family: str, model: Path, checkpoint: Path, examples: Path) -> Command:
    """Makes `checkpoint` of the folder `model`: by quantize.py what needs calibration, else by convert_checkpoint.py.

    The weights are cut for `tp_size` and `pp_size` here; trtllm-build has had no say in it since 0.12.
    """
    program = flags.QUANTIZE if spec.is_calibrated else flags.CONVERT[family]
    arguments = ["--model_dir", str(model), "--output_dir", str(checkpoint), "--dtype", spec.precision]
    arguments += ["--tp_size", str(spec.tp_size), "--pp_size", str(spec.pp_size)]
    if spec.is_calibrated:
        folder = Path(spec.calib_dataset)
        texts = str(folder.absolute()) if folder.is_dir() else spec.calib_dataset
        arguments += ["--qformat", spec.quantisation, "--calib_dataset", texts, "--calib_size", str(spec.calib_size)]
    if spec.quantise_lm_head:
        arguments += ["--quantize_lm_head"]
    if spec.quantisation in AWQ:
        arguments += ["--awq_block_size", str(AWQ_BLOCK_SIZE)]
    if spec.kv_cache_dtype == "fp8":
        arguments += ["--kv_cache_dtype", "fp8"]
    if spec.quantisation in _WEIGHT_ONLY:
        arguments += ["--use_weight_only", "--weight_only_precision", _WEIGHT_ONLY[spec.quantisation]]
    return Command(program, ("python3", str(examples / program)), tuple(arguments))


def of_engine(spec: GpuSpec, checkpoint: Path, engine: Path, timing_cache: Path) -> Command:
    """Makes `engine` of `checkpoint`: paged KV cache, packed input and context FMHA are what in-flight batching needs;
    KV reuse and chunked prompts, which the tiers' config.pbtxt ask for, need paged context FMHA."""
    values = {
        "checkpoint_dir": checkpoint,
        "output_dir": engine,
        "max_batch_size": spec.max_batch_size,
        "max_input_len": spec.longest_input,
        "max_seq_len": spec.max_seq_len,
        "max_num_tokens": spec.max_num_tokens,
        "max_beam_width": 1,
        "kv_cache_type": "paged",
        "tokens_per_block": TOKENS_PER_BLOCK,
        "remove_input_padding": "enable",
        "context_fmha": "enable",
        "use_paged_context_fmha": "enable",
        "use_fp8_context_fmha": "enable" if spec.kv_cache_dtype == "fp8" else "disable",
        "gpt_attention_plugin": "auto",
        "gemm_plugin": "auto",
        "workers": spec.workers or spec.world_size,
        "output_timing_cache": timing_cache,
    }
    arguments = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    return Command(flags.BUILD, (flags.BUILD,), tuple(arguments))
