"""Makes engines/built/<tier> of the model that engines/specs.toml names for the tier, or of another one; and
engines/built/classifier of an encoder and the prompts in engines/classifier/examples.

    python -m scripts.build_engines small
    python -m scripts.build_engines small large
    python -m scripts.build_engines large --from models/Qwen2.5-1.5B-Instruct-Q4_0.gguf
    python -m scripts.build_engines large --from hf:owner/repo/file.gguf
    python -m scripts.build_engines classifier

What is there already is left alone; --force builds it anew. A server takes a new engine when its model is reloaded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bls.manifest import TIERS
from bls.text_manifest import CLASSIFIER
from engines import build, specs
from engines.classifier.examples import BadExamples
from scripts.progress import Progress

ENGINES = (*TIERS, CLASSIFIER)
BUILT = Path(__file__).resolve().parent.parent / "engines" / "built"


def main(arguments: Sequence[str] | None = None, built: Path = BUILT) -> int:
    wishes = _parser().parse_args(arguments)
    progress = Progress()
    try:
        for tier in wishes.tiers:
            if tier == CLASSIFIER:
                _build_classifier(built, wishes, progress)
            else:
                _build_tier(built, tier, wishes, progress)
    except (specs.BadSpec, build.BadSource, BadExamples) as error:
        progress.say(f"error: {error}")
        return 1
    except OSError as error:
        progress.say(f"error: {error.filename or built}: {error.strerror}")
        return 1
    except KeyboardInterrupt:
        progress.say("stopped; what was there before is untouched")
        return 130
    return 0


def _build_tier(built: Path, tier: str, wishes: argparse.Namespace, progress: Progress) -> None:
    known = specs.load()[tier]
    spec = replace(known, source=wishes.source) if wishes.source else known
    progress.step(f"engine {tier}", spec.source)
    engine = build.build(built, tier, spec, progress.status, wishes.force)
    progress.done(f"{engine.name}, {engine.context_tokens} tokens of context")


def _build_classifier(built: Path, wishes: argparse.Namespace, progress: Progress) -> None:
    from engines.classifier import build as build_classifier  # ONNX, which no other engine needs

    source = wishes.source or specs.classifier_source()
    progress.step(f"engine {CLASSIFIER}", source)
    found = build_classifier.build(built, source, progress.status, wishes.force)
    progress.done(f"{found.accuracy:.1%} of {found.held_out} held-out prompts are told right")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.build_engines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tiers", nargs="+", choices=ENGINES, metavar="engine", help="small, large, classifier")
    parser.add_argument("--from", dest="source", metavar="SOURCE", help="see engines/specs.toml for its forms")
    parser.add_argument("--force", action="store_true", help="build it anew even if it is up to date")
    return parser


if __name__ == "__main__":
    sys.exit(main())
