"""Architectures of decoders that can be counted, and how each differs from Llama."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """How an architecture differs from Llama's; the names of keys are config.json's."""

    query_bias: bool = False  # biases of q, k and v without a key that says so
    head_norms: bool = False  # a norm of each query and of each key
    norms: int = 2  # of a layer, each as wide as the model
    tied: bool = False  # transformers' default of tie_word_embeddings
    experts: str = ""  # the key that counts the experts; "" for a dense model
    expert_width: str = "moe_intermediate_size"
    latent: bool = False  # multi-head latent attention


FAMILIES = {
    "LlamaForCausalLM": Family(),
    "MistralForCausalLM": Family(),
    "Phi3ForCausalLM": Family(),
    "Qwen2ForCausalLM": Family(query_bias=True),
    "Qwen3ForCausalLM": Family(head_norms=True),
    "GemmaForCausalLM": Family(tied=True),
    "Gemma2ForCausalLM": Family(tied=True, norms=4),
    "Gemma3ForCausalLM": Family(tied=True, norms=4, head_norms=True),
    "MixtralForCausalLM": Family(experts="num_local_experts", expert_width="intermediate_size"),
    "Qwen2MoeForCausalLM": Family(query_bias=True, experts="num_experts"),
    "Qwen3MoeForCausalLM": Family(head_norms=True, experts="num_experts"),
    "DeepseekV2ForCausalLM": Family(experts="n_routed_experts", latent=True),
    "DeepseekV3ForCausalLM": Family(experts="n_routed_experts", latent=True),
    "FalconForCausalLM": Family(tied=True),
}

# Of transformers, where config.json has no head_dim and it isn't hidden_size / num_attention_heads.
HEAD_DIMS = {"Qwen3ForCausalLM": 128, "Qwen3MoeForCausalLM": 128}
HEAD_DIMS |= dict.fromkeys(("GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"), 256)
