"""A decoder's parameters and its attention, out of Hugging Face's config.json: arithmetic on layer shapes, no weights.

The shapes are those of the checkpoints themselves; tests hold the totals to published ones, to the last parameter. An
architecture that isn't in the table is refused by name: a wrong guess would only show when a GPU runs out of memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from engines.gpu_memory.config_forms import BadModel as BadModel
from engines.gpu_memory.config_forms import text_model, windows
from engines.gpu_memory.families import FAMILIES, HEAD_DIMS
from engines.tensorrt_llm.suitability import Dimensions, context_tokens

MAX_LAYERS = 1000  # the longest known model has 126


@dataclass(frozen=True)
class Layer:
    """Parameters of one decoder layer, by how the ranks of tensor parallelism share them.

    `heads`: query and output projections. `key_value`: key and value projections, which can be divided only as far as
    there are key-value heads. `feed_forward`: also all experts. `shared`: matrices that each rank keeps whole (MLA's
    down-projections). `plain`: norms, biases and routers, whole on each rank and never quantised.
    """

    heads: int
    key_value: int
    feed_forward: int
    shared: int
    plain: int

    @property
    def parameters(self) -> int:
        return self.heads + self.key_value + self.feed_forward + self.shared + self.plain


@dataclass(frozen=True)
class Shape:
    """A decoder. `latent` is the width of MLA's cached vector, None where keys and values are cached for each head.

    `attention_width`: elements of all query heads of a token. `active_width`: feed-forward columns that a token passes
    through, those of its `active_experts` in a mixture (0: there are none). `tied`: the embedding is the output matrix
    too. `context`: in tokens.
    """

    architecture: str
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    latent: int | None
    attention_width: int
    active_width: int
    active_experts: int
    tied: bool
    layers: tuple[Layer, ...]
    final_norm: int
    context: int | None
    notes: tuple[str, ...] = ()  # what the figures leave out, or take as more than it is

    @property
    def dimensions(self) -> Dimensions:
        """Of a mixture no widths: each expert has its own."""
        widths = {} if self.active_experts else {"hidden_size": self.hidden, "intermediate_size": self.active_width}
        return Dimensions(len(self.layers), self.heads, self.kv_heads, self.context, widths)

    @property
    def embedding(self) -> int:
        """Parameters of the embedding; as many as of the output matrix."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """As a checkpoint counts them: a tied embedding once."""
        ends = self.embedding if self.tied else 2 * self.embedding
        return ends + self.final_norm + sum(layer.parameters for layer in self.layers)


def read(config: dict[str, Any]) -> Shape:
    """The shape that config.json describes. Raises BadModel."""
    config, notes = text_model(config)
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise BadModel(f"architectures is {names!r}; it must be a list of one name")
    if names[0] not in FAMILIES:
        raise BadModel(f"architecture {names[0]!r} isn't known here; known: {', '.join(FAMILIES)}")
    shape = _Reader(names[0], config).shape()
    return replace(shape, notes=(*notes, *windows(config, len(shape.layers))))


class _Reader:
    def __init__(self, architecture: str, config: dict[str, Any]) -> None:
        self.architecture = architecture
        self.family = FAMILIES[architecture]
        self.is_falcon = architecture == "FalconForCausalLM"
        self._config = config
        self.hidden = self._count("hidden_size")
        self.heads = self._count("num_attention_heads")
        self.kv_heads = self._kv_heads()
        default = HEAD_DIMS.get(architecture, self.hidden // self.heads)
        self.head_dim = self._count("head_dim", default)
        if not self.head_dim:
            raise BadModel(f"hidden_size is {self.hidden}; it must be at least num_attention_heads, {self.heads}")

    def shape(self) -> Shape:
        count = self._count("num_hidden_layers")
        if count > MAX_LAYERS:
            raise BadModel(f"num_hidden_layers is {count}; at most {MAX_LAYERS}")
        layers = tuple(self._layer(index) for index in range(count))
        latent = self._count("kv_lora_rank") + self._count("qk_rope_head_dim") if self.family.latent else None
        return Shape(
            architecture=self.architecture,
            hidden=self.hidden,
            vocab=self._count("vocab_size"),
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            latent=latent,
            attention_width=self._attention_width(),
            active_width=self._active_width(),
            active_experts=self._count("num_experts_per_tok") if self.family.experts else 0,
            tied=self._flag("tie_word_embeddings", self.family.tied),
            layers=layers,
            final_norm=2 * self.hidden if self.is_falcon else self.hidden,
            context=self._context(),
        )

    def _context(self) -> int | None:
        positions = self._count("max_position_embeddings", 0)
        try:
            return context_tokens(positions, self._config.get("rope_scaling")) or None
        except ValueError as error:
            raise BadModel(str(error)) from None

    def _kv_heads(self) -> int:
        if not self.is_falcon:
            return self._count("num_key_value_heads", self.heads)
        if self._flag("new_decoder_architecture", False):
            return self._count("num_kv_heads", self.heads)
        return 1 if self._flag("multi_query", True) else self.heads

    def _layer(self, index: int) -> Layer:
        if self.is_falcon:
            return self._falcon_layer()
        heads, key_value, shared, plain = self._latent_attention() if self.family.latent else self._attention()
        feed_forward, routing = self._experts() if self._is_sparse(index) else self._dense()
        plain += self.family.norms * self.hidden + routing
        return Layer(heads, key_value, feed_forward, shared, plain)

    def _attention(self) -> tuple[int, int, int, int]:
        query, key_value = self.heads * self.head_dim, 2 * self.kv_heads * self.head_dim
        plain = 2 * self.head_dim if self.family.head_norms else 0
        if self.family.query_bias:
            plain += query + key_value
        elif self._flag("attention_bias", False):
            plain += query + key_value + self.hidden
        return 2 * self.hidden * query, self.hidden * key_value, 0, plain

    def _latent_attention(self) -> tuple[int, int, int, int]:
        nope, rope, value = (self._count(f"{key}_head_dim") for key in ("qk_nope", "qk_rope", "v"))
        rank, query_rank = self._count("kv_lora_rank"), self._count("q_lora_rank", 0)
        heads = (query_rank or self.hidden) * self.heads * (nope + rope)
        heads += rank * self.heads * (nope + value) + self.heads * value * self.hidden
        shared = self.hidden * (rank + rope) + self.hidden * query_rank
        return heads, 0, shared, rank + query_rank

    def _dense(self) -> tuple[int, int]:
        width = self._count("intermediate_size")
        biases = 2 * width + self.hidden if self._flag("mlp_bias", False) else 0
        return 3 * self.hidden * width, biases

    def _experts(self) -> tuple[int, int]:
        experts = self._count(self.family.experts)
        routing = experts * self.hidden
        if self.architecture == "DeepseekV3ForCausalLM":
            routing += experts  # each expert's correction of its score
        if self.architecture == "Qwen2MoeForCausalLM":
            routing += self.hidden  # the gate of the shared expert
        return 3 * self.hidden * (experts * self._expert_width() + self._shared_width()), routing

    def _expert_width(self) -> int:
        return self._count(self.family.expert_width)

    def _shared_width(self) -> int:
        """Of the experts that every token passes through."""
        if self.architecture == "Qwen2MoeForCausalLM":
            return self._count("shared_expert_intermediate_size")
        return self._count("n_shared_experts", 0) * self._expert_width() if self.family.latent else 0

    def _is_sparse(self, index: int) -> bool:
        if not self.family.experts:
            return False
        if self.family.latent:
            return index >= self._count("first_k_dense_replace", 0)
        dense = self._config.get("mlp_only_layers") or []
        if not isinstance(dense, list):
            raise BadModel(f"mlp_only_layers is {dense!r}; it must be a list of layer numbers")
        return index not in dense and (index + 1) % self._count("decoder_sparse_step", 1) == 0

    def _attention_width(self) -> int:
        if self.family.latent:
            return self.heads * (self._count("qk_nope_head_dim") + self._count("qk_rope_head_dim"))
        return self.heads * self.head_dim

    def _active_width(self) -> int:
        if self.is_falcon:
            return self._falcon_width()
        if not self.family.experts:
            return self._count("intermediate_size")
        sparse = self._count("num_experts_per_tok") * self._expert_width() + self._shared_width()
        return max(sparse, self._count("intermediate_size"))

    def _falcon_width(self) -> int:
        return self._count("ffn_hidden_size", 4 * self.hidden)

    def _falcon_layer(self) -> Layer:
        if self._flag("bias", False) or not self._flag("parallel_attn", True):
            raise BadModel("a Falcon with bias or without parallel_attn isn't known here")
        query, key_value = self.heads * self.head_dim, 2 * self.kv_heads * self.head_dim
        norms = 2 if self._flag("new_decoder_architecture", False) else 1
        feed_forward = 2 * self.hidden * self._falcon_width()
        return Layer(2 * self.hidden * query, self.hidden * key_value, feed_forward, 0, norms * 2 * self.hidden)

    def _count(self, key: str, default: int | None = None) -> int:
        value = self._config.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise BadModel(f"{key} is missing")
        if type(value) is not int or value < (0 if default == 0 else 1):
            raise BadModel(f"{key} is {value!r}; it must be a whole number above 0")
        return value

    def _flag(self, key: str, default: bool) -> bool:
        value = self._config.get(key, default)
        if not isinstance(value, bool):
            raise BadModel(f"{key} is {value!r}; it must be true or false")
        return value
