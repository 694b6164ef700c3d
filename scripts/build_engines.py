"""Makes engines/built/<tier> of the model that engines/specs.toml names for the tier, or of another one; and
engines/built/classifier of an encoder and the prompts in engines/classifier/examples.

    python -m scripts.build_engines small
    python -m scripts.build_engines small large
    python -m scripts.build_engines large --from models/Qwen2.5-1.5B-Instruct-Q4_0.gguf
    python -m scripts.build_engines large --from hf:owner/repo/file.gguf
    python -m scripts.build_engines classifier

For GPUs, of the model in the tier's sub-table tensorrt_llm:

    python -m scripts.build_engines small large --for tensorrt_llm      an engine each: needs TensorRT-LLM and the GPU
    python -m scripts.build_engines large --for tensorrt_llm --dry-run  the commands of it, which need neither
    python -m scripts.build_engines large --for llmapi                  no engine: the model as it is, for the LLM API
    python -m scripts.build_engines --explain 'trtllm-build --max_output_len 512'   an older article's command today

What is there already is left alone; --force builds it anew. A server takes a new engine when its model is reloaded.
Exit status: 0 done, 1 not (the last line says why), 2 wrong arguments, 130 stopped.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bls.contract import TEXT_CLASSIFIER
from bls.paths import MODEL_REPOSITORY, ROOT
from bls.tiers import tiers
from engines import specs
from engines.builders import build
from engines.classifier.examples import BadExamples
from engines.classifier.labels import LABELS
from engines.classifier.manifest import CLASSIFIER
from engines.tensorrt_llm.build import ENGINE, Plan
from engines.tensorrt_llm.commands import EXAMPLES
from engines.tensorrt_llm.flags import BadCommand
from engines.tensorrt_llm.machine import BadMachine
from scripts import gpu_engines
from scripts.host.printing import print_all
from scripts.host.progress import Progress

BUILT = ROOT / "engines" / "built"
OPENVINO = "openvino"
CLASSIFIER_CONFIG = MODEL_REPOSITORY / TEXT_CLASSIFIER / "config.pbtxt"
_REFUSED = (specs.BadSpec, build.BadSource, BadExamples, BadCommand, BadMachine, gpu_engines.CommandFailed)


def main(arguments: Sequence[str] | None = None, built: Path = BUILT) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    _check(parser, options)
    progress = Progress()
    try:
        if options.explain is not None:
            return _explain(options.explain)
        for tier in options.tiers:
            if tier == CLASSIFIER:
                _build_classifier(built, options, progress)
            elif options.builder in gpu_engines.BUILDERS:
                _build_for_gpus(built, tier, options, progress)
            else:
                _build_tier(built, tier, options, progress)
    except _REFUSED as error:
        progress.say(f"error: {error}")
        return 1
    except OSError as error:
        progress.say(f"error: {error.filename or built}: {error.strerror}")
        return 1
    except KeyboardInterrupt:
        progress.say("stopped; what existed before is untouched")
        return 130
    return 0


def _build_tier(built: Path, tier: str, options: argparse.Namespace, progress: Progress) -> None:
    known = specs.load()[tier]
    spec = replace(known, source=options.source) if options.source else known
    progress.step(f"engine {tier}", spec.source)
    engine = build.build(built, tier, spec, progress.status, options.force).telling(spec.chat_template_kwargs)
    progress.done(f"{engine.name}, {engine.context_tokens} tokens of context")


def _build_for_gpus(built: Path, tier: str, options: argparse.Namespace, progress: Progress) -> None:
    known = specs.load()[tier]
    spec = gpu_engines.spec_of(tier, known, options.source)
    plan = Plan(built, tier, spec, options.builder, options.examples.absolute(), options.engine)
    if options.dry_run:
        print_all(gpu_engines.dry_run(plan, progress, options.source))
        return
    progress.step(f"engine {tier}", spec.model)
    engine = gpu_engines.build_tier(plan, progress, options.force).telling(known.chat_template_kwargs)
    progress.done(f"{engine.name}, {engine.context_tokens} tokens of context, for {engine.builder}")


def _build_classifier(built: Path, options: argparse.Namespace, progress: Progress) -> None:
    from engines.classifier import build as build_classifier  # ONNX, which no other engine needs

    source = options.source or specs.classifier_source()
    progress.step(f"engine {CLASSIFIER}", source)
    found = build_classifier.build(built, source, progress.status, options.force)
    progress.done(f"{found.accuracy:.1%} of {found.held_out} held-out prompts are classified correctly")
    for complaint in wrong_class_counts(CLASSIFIER_CONFIG):
        progress.say(complaint)


def wrong_class_counts(config: Path) -> Iterator[str]:
    """Says which lines of the classifier's config for ONNX Runtime's backend count other classes than there are.

    The backend refuses a model that has another number than its config; all else takes any number.
    """
    for number, line in enumerate(config.read_text().splitlines(), 1):
        found = re.search(r'name: "(?:logits|labels|scores)".* dims: \[ (\d+) \]', line)
        if found and int(found[1]) != len(LABELS):
            change = f"dims: [ {len(LABELS)} ] instead of [ {found[1]} ]"
            yield f"for ONNX Runtime's backend, edit {config}:{number}: {change}"


def _explain(words: Sequence[str]) -> int:
    text = words[0] if len(words) == 1 else shlex.join(words)
    explanation, all_known = gpu_engines.explain(sys.stdin.read() if text == "-" else text)
    print_all(explanation)
    return 0 if all_known else 1


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if (options.explain is None) != bool(options.tiers) or options.explain == []:
        parser.error(f"name an engine ({', '.join((*tiers(), CLASSIFIER))}), or give a command to --explain")
    if options.builder != OPENVINO and CLASSIFIER in options.tiers:
        parser.error(f"{CLASSIFIER} is the same on CPUs and GPUs: leave out --for {options.builder}")
    if options.builder == OPENVINO and options.dry_run:
        parser.error(f"--dry-run needs --for {' or '.join(gpu_engines.BUILDERS)}")
    if options.builder != ENGINE and options.engine:
        parser.error(f"--engine needs --for {ENGINE}")
    if options.engine and len(options.tiers) > 1:
        parser.error("--engine needs exactly one tier")


def _engine(name: str) -> str:
    engines = (*tiers(), CLASSIFIER)
    if name not in engines:
        raise argparse.ArgumentTypeError(f"invalid choice: {name!r} (choose from {', '.join(engines)})")
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.build_engines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tiers", nargs="*", type=_engine, metavar="engine", help="small, large or classifier")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="SOURCE",
        help="where the model comes from; engines/specs.toml explains the forms",
    )
    parser.add_argument("--force", action="store_true", help="rebuild even if the engine is up to date")
    builders = (OPENVINO, *gpu_engines.BUILDERS)
    parser.add_argument(
        "--for", dest="builder", choices=builders, default=OPENVINO, help="the backend that will serve it"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands of the build without running them")
    parser.add_argument("--engine", type=Path, metavar="FOLDER", help="use this engine instead of building one")
    parser.add_argument(
        "--examples", type=Path, default=EXAMPLES, metavar="FOLDER", help=f"the examples (default: {EXAMPLES})"
    )
    older = "everything that follows is an older command, in quotes or not; - reads it from standard input"
    parser.add_argument("--explain", nargs=argparse.REMAINDER, metavar="COMMAND", help=older)
    return parser


if __name__ == "__main__":
    sys.exit(main())
