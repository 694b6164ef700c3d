"""What a config.json is of: a decoder, one within a larger model, or none; and which layers see a window only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engines.gpu_memory.families import FAMILIES


class BadModel(ValueError):
    """config.json has an unknown architecture, or a missing or wrong value; the message is one line that names it."""


# The decoder of a larger model, by the model_type of its text_config, or by the architecture around it.
_BY_TYPE = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "ministral": "MistralForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_vl_text": "Qwen2ForCausalLM",
    "qwen2_5_vl_text": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_vl_text": "Qwen3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
_FLAT = {
    "Qwen2VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
}
_ENCODER_DECODERS = (
    "T5", "MT5", "UMT5", "LongT5", "Bart", "MBart", "Pegasus", "Marian", "Blenderbot", "LED", "M2M100", "Whisper",
    "ProphetNet", "SwitchTransformers", "FSMT", "EncoderDecoder", "SpeechT5", "NllbMoe", "Florence2", "Moonshine",
)  # fmt: skip


def text_model(config: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config of the decoder, and what of the model it leaves out. Raises BadModel for an encoder-decoder."""
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    if config.get("is_encoder_decoder") is True or name.startswith(_ENCODER_DECODERS):
        raise BadModel(f"{name or 'the model'} is an encoder-decoder; only decoders are planned here")
    if name in _FLAT:
        return config | {"architectures": [_FLAT[name]]}, (f"the vision part of {name} is not counted",)
    text = config.get("text_config")
    if text is None or name in FAMILIES:
        return config, ()
    if not isinstance(text, dict):
        raise BadModel(f"text_config is {text!r}; it must be an object")
    kind = str(text.get("model_type"))
    own = text.get("architectures") or ([_BY_TYPE[kind]] if kind in _BY_TYPE else None)
    if own is None:
        known = ", ".join(_BY_TYPE)
        raise BadModel(f"text_config has the model_type {kind!r}, which isn't known here; known: {known}")
    left_out = [part.removesuffix("_config") for part in config if part.endswith("_config") and part != "text_config"]
    parts = [part for part in left_out if isinstance(config[f"{part}_config"], dict) and part != "quantization"]
    notes = (f"of {name or 'the model'} only the text model is counted, not: {', '.join(parts)}",) if parts else ()
    kept = {key: config[key] for key in ("tie_word_embeddings", "quantization_config") if key in config}
    return kept | text | {"architectures": own}, notes


def windows(config: dict[str, Any], layers: int) -> Iterator[str]:
    """What to say of layers that see only a window: here all of them count in full, as the cache is bought for that."""
    window = config.get("sliding_window")
    if not isinstance(window, int) or isinstance(window, bool) or config.get("use_sliding_window") is False:
        return
    some = _windowed(config, layers)
    longest = config.get("max_position_embeddings")
    if some and not (isinstance(longest, int) and longest <= window):
        yield (
            f"{some} of {layers} layers see a window of {window} tokens only; here all {layers} count in full, so the "
            "KV cache holds more tokens where max_attention_window_size is set"
        )


def _windowed(config: dict[str, Any], layers: int) -> int:
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return sum(kind == "sliding_attention" for kind in kinds)
    pattern = config.get("sliding_window_pattern")
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 1:  # each so-manieth sees everything
        return layers - layers // pattern
    architecture = (config.get("architectures") or [""])[0]
    if architecture == "Gemma2ForCausalLM":
        return layers - layers // 2
    if architecture == "Gemma3ForCausalLM":
        return layers - layers // 6
    return layers
