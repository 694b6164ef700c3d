"""The engines' tokenizers, as the models `preprocessing` and `postprocessing` load them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bls import manifest as manifests
from bls.contract import ENGINE_PREFIX
from bls.errors import BadRequest
from bls.manifest import Manifest
from bls.tiers import tiers
from bls.tokens import tokenizer_files
from bls.tokens.tokenizer import Tokenizer

DEFAULT_TIER = "large"


@dataclass(frozen=True)
class TierTokenizer:
    """One engine, as far as ids and text go."""

    manifest: Manifest
    tokenizer: Tokenizer


def load_tiers(model_repository: Path) -> dict[str, TierTokenizer]:
    """Each tier's tokenizer, loaded once where they are the same. Raises BadManifest, BadTokenizer."""
    found = {tier: manifests.load(manifests.built_folder(model_repository, tier)) for tier in tiers(model_repository)}
    if not found:
        raise manifests.BadManifest(f"{model_repository} has no engine: their folders are named {ENGINE_PREFIX}<tier>")
    loaded: dict[str, Tokenizer] = {}
    for manifest in found.values():
        if manifest.tokenizer.sha256 not in loaded:
            loaded[manifest.tokenizer.sha256] = tokenizer_files.load(manifest)
    return {tier: TierTokenizer(manifest, loaded[manifest.tokenizer.sha256]) for tier, manifest in found.items()}


def tier_named(tiers: Mapping[str, TierTokenizer], name: str) -> TierTokenizer:
    """Raises BadRequest that names those there are."""
    if name not in tiers:
        raise BadRequest(f"TIER is {name[:40]!r}; it must be one of {', '.join(tiers)}")
    return tiers[name]
