"""What a process of a model costs: the doctor's advice, pages and configs say these figures, and tests hold them to it.

Measured as PSS (`/proc/PID/smaps_rollup`, MB of 10^6 bytes) on `scripts/serve cpu` after 256 requests; `bench router`
prints it too. Tokenizers with a larger vocabulary than SmolLM2's 49,152 tokens take more.
"""

from __future__ import annotations

ROUTER_PROCESS_MB = 28  # 24 before its first request
TOKENIZER_PROCESS_MB = 43  # preprocessing; postprocessing takes 39
