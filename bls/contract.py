"""Each tensor of the repository, spelt once.

NVIDIA's inflight_batcher_llm (tensorrtllm_backend c2e65b8) is the source of all names, types and dims; what is ours
stands apart, below its table. Each config.pbtxt is checked against these by tests/repository/test_model_repository.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tensor:
    """`dims` are without the batch; a `scalar` has dims [1] and `reshape { shape: [] }`, so the model sees [B]."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    optional: bool = False
    scalar: bool = False
    ragged: bool = False


@dataclass(frozen=True)
class Contract:
    """What a model takes and gives."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def input_names(self) -> frozenset[str]:
        return frozenset(tensor.name for tensor in self.inputs)

    @property
    def output_names(self) -> frozenset[str]:
        return frozenset(tensor.name for tensor in self.outputs)


def _tensors(table: str) -> tuple[Tensor, ...]:
    """Reads lines of `name datatype dims [optional] [scalar] [ragged]`."""
    tensors = []
    for line in table.strip().splitlines():
        name, datatype, dims, *marks = line.split()
        shape = tuple(int(dim) for dim in dims.strip("[]").split(","))
        marked = dict.fromkeys(marks, True)
        tensors.append(Tensor(name, f"TYPE_{datatype}", shape, **marked))
    return tuple(tensors)


GREEDY_BELOW = 1e-6  # A temperature or top_p that leaves only the likeliest token, whose share is always greater.
PENALTIES = 1e-6, 1e6  # A repetition_penalty beyond these decides alone, and 32-bit arithmetic can't tell it from them.
ENGINE_PREFIX = "tensorrt_llm_"  # then the tier: see tiers.py
SMALL = ENGINE_PREFIX + "small"
LARGE = ENGINE_PREFIX + "large"
PREPROCESSING = "preprocessing"
POSTPROCESSING = "postprocessing"
ENGINE_CONTROL = "engine_control"
ROUTER = "llm_router"
# The names by which NVIDIA's clients ask: a link to the router's folder serves it under them. None is a tier.
NVIDIA_NAMES = ("ensemble", "tensorrt_llm_bls")
TEXT_TOKENIZER = "text_tokenizer"
TEXT_CLASSIFIER = "text_classifier_onnx"
TEXT_PIPELINE = "text_pipeline_ensemble"
LLAMA_7B = "llama_7b_tensorrt_llm"
LLAMA_7B_ENSEMBLE = "llama_7b_ensemble"
SENSITIVE_WORDS = "sensitive_words"
PROMPT_SAFETY = "prompt_safety"

# tensorrt_llm. The engines on the CPU and on the GPU, small and large, streaming or batched, all keep this one.
ENGINE = Contract(
    inputs=_tensors("""
        input_ids                         INT32  [-1]      optional ragged
        encoder_input_features            FP16   [-1,-1]   optional ragged
        encoder_output_lengths            INT32  [1]       optional scalar
        input_lengths                     INT32  [1]       scalar
        request_output_len                INT32  [1]       scalar
        num_return_sequences              INT32  [1]       optional scalar
        draft_input_ids                   INT32  [-1]      optional ragged
        decoder_input_ids                 INT32  [-1]      optional ragged
        decoder_input_lengths             INT32  [1]       optional scalar
        draft_logits                      FP32   [-1,-1]   optional ragged
        draft_acceptance_threshold        FP32   [1]       optional scalar
        end_id                            INT32  [1]       optional scalar
        pad_id                            INT32  [1]       optional scalar
        stop_words_list                   INT32  [2,-1]    optional ragged
        bad_words_list                    INT32  [2,-1]    optional ragged
        embedding_bias                    FP32   [-1]      optional ragged
        beam_width                        INT32  [1]       optional scalar
        temperature                       FP32   [1]       optional scalar
        runtime_top_k                     INT32  [1]       optional scalar
        runtime_top_p                     FP32   [1]       optional scalar
        runtime_top_p_min                 FP32   [1]       optional scalar
        runtime_top_p_decay               FP32   [1]       optional scalar
        runtime_top_p_reset_ids           INT32  [1]       optional scalar
        len_penalty                       FP32   [1]       optional scalar
        early_stopping                    BOOL   [1]       optional scalar
        repetition_penalty                FP32   [1]       optional scalar
        min_tokens                        INT32  [1]       optional scalar
        beam_search_diversity_rate        FP32   [1]       optional scalar
        presence_penalty                  FP32   [1]       optional scalar
        frequency_penalty                 FP32   [1]       optional scalar
        seed                              UINT64 [1]       optional scalar
        return_log_probs                  BOOL   [1]       optional scalar
        return_context_logits             BOOL   [1]       optional scalar
        return_generation_logits          BOOL   [1]       optional scalar
        return_perf_metrics               BOOL   [1]       optional scalar
        exclude_input_in_output           BOOL   [1]       optional scalar
        stop                              BOOL   [1]       optional scalar
        streaming                         BOOL   [1]       optional scalar
        prompt_embedding_table            FP16   [-1,-1]   optional ragged
        prompt_table_extra_ids            UINT64 [-1]      optional ragged
        prompt_vocab_size                 INT32  [1]       optional scalar
        cross_attention_mask              BOOL   [-1,-1]   optional ragged
        mrope_rotary_cos_sin              FP32   [-1]      optional
        mrope_position_deltas             INT64  [1]       optional
        lora_task_id                      UINT64 [1]       optional scalar
        lora_weights                      FP16   [-1,-1]   optional ragged
        lora_config                       INT32  [-1,3]    optional ragged
        context_phase_params              UINT8  [-1]      optional ragged
        skip_cross_attn_blocks            BOOL   [1]       optional ragged
        retention_token_range_starts      INT32  [-1]      optional ragged
        retention_token_range_ends        INT32  [-1]      optional ragged
        retention_token_range_priorities  INT32  [-1]      optional ragged
        retention_token_range_durations_ms INT32 [-1]      optional ragged
        retention_decode_priority         INT32  [1]       optional ragged
        retention_decode_duration_ms      INT32  [1]       optional ragged
        guided_decoding_guide_type        STRING [1]       optional ragged
        guided_decoding_guide             STRING [1]       optional ragged
        lookahead_window_size             INT32  [1]       optional ragged
        lookahead_ngram_size              INT32  [1]       optional ragged
        lookahead_verification_set_size   INT32  [1]       optional ragged
    """),
    outputs=_tensors("""
        output_ids                   INT32 [-1,-1]
        sequence_length              INT32 [-1]
        cum_log_probs                FP32  [-1]
        output_log_probs             FP32  [-1,-1]
        context_logits               FP32  [-1,-1]
        generation_logits            FP32  [-1,-1,-1]
        batch_index                  INT32 [1]
        sequence_index               INT32 [1]
        context_phase_params         UINT8 [-1]
        kv_cache_alloc_new_blocks    INT32 [1]
        kv_cache_reused_blocks       INT32 [1]
        kv_cache_alloc_total_blocks  INT32 [1]
        arrival_time_ns              INT64 [1]
        first_scheduled_time_ns      INT64 [1]
        first_token_time_ns          INT64 [1]
        last_token_time_ns           INT64 [1]
        acceptance_rate              FP32  [1]
        total_accepted_draft_tokens  INT32 [1]
        total_draft_tokens           INT32 [1]
    """),
)

# tensorrt_llm_bls. text_input is optional for the sake of `messages`; the router names what is missing, as Triton's
# core only counts inputs.
ROUTER_CONTRACT = Contract(
    inputs=_tensors("""
        text_input                  STRING [1]            optional
        decoder_text_input          STRING [1]            optional
        image_input                 FP16   [-1,3,-1,-1]   optional
        image_bytes_input           UINT8  [-1,-1,-1,-1]  optional
        image_url_input             STRING [1]            optional
        video_bytes_input           UINT8  [-1,-1,-1,-1]  optional
        max_tokens                  INT32  [1]
        bad_words                   STRING [-1]           optional
        stop_words                  STRING [-1]           optional
        exclude_input_in_output     BOOL   [1]            optional
        end_id                      INT32  [1]            optional
        pad_id                      INT32  [1]            optional
        top_k                       INT32  [1]            optional
        top_p                       FP32   [1]            optional
        temperature                 FP32   [1]            optional
        length_penalty              FP32   [1]            optional
        repetition_penalty          FP32   [1]            optional
        min_tokens                  INT32  [1]            optional
        presence_penalty            FP32   [1]            optional
        frequency_penalty           FP32   [1]            optional
        seed                        UINT64 [1]            optional
        return_log_probs            BOOL   [1]            optional scalar
        return_context_logits       BOOL   [1]            optional scalar
        return_generation_logits    BOOL   [1]            optional scalar
        num_return_sequences        INT32  [1]            optional scalar
        beam_width                  INT32  [1]            optional
        stream                      BOOL   [1]            optional
        prompt_embedding_table      FP16   [-1,-1]        optional
        prompt_vocab_size           INT32  [1]            optional
        prompt_table_extra_id       UINT64 [1]            optional
        embedding_bias_words        STRING [-1]           optional
        embedding_bias_weights      FP32   [-1]           optional
        num_draft_tokens            INT32  [1]            optional
        use_draft_logits            BOOL   [1]            optional scalar
        lora_task_id                UINT64 [1]            optional scalar
        lora_weights                FP16   [-1,-1]        optional ragged
        lora_config                 INT32  [-1,3]         optional ragged
        return_perf_metrics         BOOL   [1]            optional scalar
        guided_decoding_guide_type  STRING [1]            optional
        guided_decoding_guide       STRING [1]            optional
        return_num_input_tokens     BOOL   [1]            optional scalar
        return_num_output_tokens    BOOL   [1]            optional scalar
    """)
    # Ours: chat messages as JSON, or one user message made of text_input; what to say about the decision; old names.
    + _tensors("""
        messages                    STRING [1]            optional
        apply_chat_template         BOOL   [1]            optional scalar
        return_route_info           BOOL   [1]            optional scalar
        random_seed                 UINT64 [1]            optional
        min_length                  INT32  [1]            optional
        runtime_top_k               INT32  [1]            optional
        runtime_top_p               FP32   [1]            optional
    """),
    outputs=_tensors("""
        text_output                  STRING [-1]
        cum_log_probs                FP32   [-1]
        output_log_probs             FP32   [-1,-1]
        context_logits               FP32   [-1,-1]
        generation_logits            FP32   [-1,-1,-1]
        batch_index                  INT32  [1]
        sequence_index               INT32  [1]
        kv_cache_alloc_new_blocks    INT32  [1]
        kv_cache_reused_blocks       INT32  [1]
        kv_cache_alloc_total_blocks  INT32  [1]
        arrival_time_ns              INT64  [1]
        first_scheduled_time_ns      INT64  [1]
        first_token_time_ns          INT64  [1]
        last_token_time_ns           INT64  [1]
        acceptance_rate              FP32   [1]
        total_accepted_draft_tokens  INT32  [1]
        total_draft_tokens           INT32  [1]
        num_input_tokens             INT32  [1]
        num_output_tokens            INT32  [1]
    """)
    + _tensors("""
        finish_reason                STRING [1]
        model                        STRING [1]
        reason                       STRING [1]
        words_version                STRING [1]
        verdict                      STRING [1]
        verdict_reason               STRING [1]
        route_info                   STRING [1]
    """),
)

# Without NVIDIA's image and video tensors: Triton's core refuses those by name. REQUEST_OUTPUT_LEN is optional, for
# ensembles that have a default.
PREPROCESSING_CONTRACT = Contract(
    inputs=_tensors("""
        QUERY                   STRING [1]   optional
        DECODER_QUERY           STRING [1]   optional
        REQUEST_OUTPUT_LEN      INT32  [1]   optional
        BAD_WORDS_DICT          STRING [-1]  optional ragged
        STOP_WORDS_DICT         STRING [-1]  optional ragged
        EMBEDDING_BIAS_WORDS    STRING [-1]  optional ragged
        EMBEDDING_BIAS_WEIGHTS  FP32   [-1]  optional ragged
        END_ID                  INT32  [1]   optional
        PAD_ID                  INT32  [1]   optional
        PROMPT_TABLE_EXTRA_ID   UINT64 [1]   optional
    """)
    # Ours: MESSAGES instead of QUERY; TIER ("small", "large"; default "large") chooses the tokenizer; what the chat
    # template is told beside the messages, as a JSON object.
    + _tensors("""
        MESSAGES                STRING [1]   optional
        APPLY_CHAT_TEMPLATE     BOOL   [1]   optional
        TIER                    STRING [1]   optional
        CHAT_TEMPLATE_KWARGS    STRING [1]   optional
    """),
    outputs=_tensors("""
        INPUT_ID                    INT32  [-1]
        REQUEST_INPUT_LEN           INT32  [1]
        DECODER_INPUT_ID            INT32  [-1]
        REQUEST_DECODER_INPUT_LEN   INT32  [1]
        BAD_WORDS_IDS               INT32  [2,-1]
        STOP_WORDS_IDS              INT32  [2,-1]
        EMBEDDING_BIAS              FP32   [-1]
        REQUEST_OUTPUT_LEN          INT32  [-1]
        OUT_END_ID                  INT32  [1]
        OUT_PAD_ID                  INT32  [1]
        OUT_PROMPT_TABLE_EXTRA_IDS  UINT64 [-1]
    """),
)

POSTPROCESSING_CONTRACT = Contract(
    inputs=_tensors("""
        TOKENS_BATCH         INT32  [-1,-1]  ragged
        SEQUENCE_LENGTH      INT32  [-1]     ragged
    """)
    # Ours. The text ends before the first of STOP_WORDS_DICT, as preprocessing takes it.
    + _tensors("""
        STOP_WORDS_DICT      STRING [-1]     optional ragged
        TIER                 STRING [1]      optional
        SKIP_SPECIAL_TOKENS  BOOL   [1]      optional
    """),
    outputs=_tensors("""
        OUTPUT               STRING [-1]
    """)
    # Ours: OUTPUT as [rows, beams], which Triton lets an ensemble's next step take.
    + _tensors("""
        OUTPUT_ROWS          STRING [-1]
    """),
)

# Ours. Sends `stop` to the engine's running request; not decoupled, so that a router may call it beside its stream. And
# what the engine's model is, for routers on other machines: engines/triton/identity.py.
ENGINE_CONTROL_CONTRACT = Contract(
    inputs=_tensors("""
        engine      STRING [1]
        request_id  STRING [1]
    """),
    outputs=_tensors("""
        stopped     BOOL   [1]
        identity    STRING [1]
    """),
)

# Published in the articles: input_text -> output_text. The optional inputs are named as in NVIDIA's ensemble.
LLAMA_7B_ENSEMBLE_CONTRACT = Contract(
    inputs=_tensors("""
        input_text                  STRING [1]
    """)
    + _tensors("""
        max_tokens                  INT32  [1]   optional
        stop_words                  STRING [-1]  optional
        temperature                 FP32   [1]   optional
        top_k                       INT32  [1]   optional
        top_p                       FP32   [1]   optional
        seed                        UINT64 [1]   optional
        min_tokens                  INT32  [1]   optional
        repetition_penalty          FP32   [1]   optional
        presence_penalty            FP32   [1]   optional
        frequency_penalty           FP32   [1]   optional
        guided_decoding_guide_type  STRING [1]   optional
        guided_decoding_guide       STRING [1]   optional
        apply_chat_template         BOOL   [1]   optional
    """),
    outputs=_tensors("""
        output_text                 STRING [1]
    """),
)

# Ours. Whole texts through the sensitive-word filter.
SENSITIVE_WORDS_CONTRACT = Contract(
    inputs=_tensors("""
        text           STRING [-1]  ragged
    """),
    outputs=_tensors("""
        filtered_text  STRING [-1]
    """),
)

# Ours. Prompts through the policy's checks, for ensembles.
PROMPT_SAFETY_CONTRACT = Contract(
    inputs=_tensors("""
        text                 STRING [1]
        apply_chat_template  BOOL   [1]  optional
    """),
    outputs=_tensors("""
        allowed_text         STRING [1]
    """),
)

# The articles' text classifier: ids -> logits, embedding. Labels and scores, best first, are ours, and so is what
# text_tokenizer says of a text that the model can't read whole: `truncated`, `unknown_share`.
TEXT_TOKENIZER_CONTRACT = Contract(
    inputs=_tensors("""
        text            STRING [1]
    """),
    outputs=_tensors("""
        input_ids       INT64  [-1]
        attention_mask  INT64  [-1]
        truncated       BOOL   [1]
        unknown_share   FP32   [1]
    """),
)

# One logit, label and score for each class of engines/classifier/labels.py.
TEXT_CLASSIFIER_CONTRACT = Contract(
    inputs=_tensors("""
        input_ids       INT64  [-1]   ragged
        attention_mask  INT64  [-1]   ragged
    """),
    outputs=_tensors("""
        logits          FP32   [-1]
        embedding       FP32   [384]
    """)
    + _tensors("""
        labels          STRING [-1]
        scores          FP32   [-1]
    """),
)

TEXT_PIPELINE_CONTRACT = Contract(
    inputs=_tensors("""
        text            STRING [1]
    """),
    outputs=_tensors("""
        labels          STRING [-1]
        scores          FP32   [-1]
        embedding       FP32   [384]
        truncated       BOOL   [1]
        unknown_share   FP32   [1]
    """),
)

_CONTRACTS = {
    PREPROCESSING: PREPROCESSING_CONTRACT,
    POSTPROCESSING: POSTPROCESSING_CONTRACT,
    ENGINE_CONTROL: ENGINE_CONTROL_CONTRACT,
    **dict.fromkeys((ROUTER, *NVIDIA_NAMES), ROUTER_CONTRACT),
    TEXT_TOKENIZER: TEXT_TOKENIZER_CONTRACT,
    TEXT_CLASSIFIER: TEXT_CLASSIFIER_CONTRACT,
    TEXT_PIPELINE: TEXT_PIPELINE_CONTRACT,
    LLAMA_7B: ENGINE,
    LLAMA_7B_ENSEMBLE: LLAMA_7B_ENSEMBLE_CONTRACT,
    SENSITIVE_WORDS: SENSITIVE_WORDS_CONTRACT,
    PROMPT_SAFETY: PROMPT_SAFETY_CONTRACT,
}


def contract_of(model: str) -> Contract | None:
    """What a model of the repository takes and gives; None for any other. Every tier's engine model keeps ENGINE."""
    return _CONTRACTS.get(model) or (ENGINE if model.startswith(ENGINE_PREFIX) else None)
