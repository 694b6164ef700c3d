"""Which engine answers a prompt, and why. This is the file to edit.

Read `choose` from the top: the first line that holds decides, and its reason goes into the response, the log and the
metrics. Numbers stand here with their unit; what Triton needs (instances, queue) stands in llm_router/config.pbtxt.

Save it while the server runs: every router process takes it within two seconds, if `scripts/policy check` finds nothing
wrong. Else the log says file and line, and the last good version serves on. See docs/policy.md.
"""

from __future__ import annotations

from bls.policy_api import (
    ALL_WELL,
    LARGE,
    SMALL,
    Classifier,
    Decision,
    Hidden,
    Limits,
    Patterns,
    PersonalData,
    Prompt,
    Repetition,
    Safety,
    Script,
    State,
    Tier,
    TierState,
    Words,
    example,
)

# The engines. Costs are for 1,000 tokens, in any one unit; they are only ever compared and summed.
TIERS = (
    Tier("small", model=SMALL, cost_in=0.05, cost_out=0.20),
    Tier("large", model=LARGE, cost_in=0.50, cost_out=2.00),
)

# The numbers of the rules.
SMALL_MAX_PROMPT_TOKENS = 512  # Beyond it a small model loses the thread.
SMALL_MAX_NEW_TOKENS = 256  # A long answer asks for a plan, which is what the large model is for.
HARD_CLASSES = ("code", "maths", "reasoning")  # Of engines/classifier/labels.py.
HARD_SIGNALS = ("hard", *HARD_CLASSES)  # What the prompt's checks may say that a small model is bad at,
HARD_SCORE = 0.5  # and from which score on (0 to 1) they are believed.
CLIENTS_MAY_CHOOSE = False  # Whether the parameter `tier` of a request ("small", "large") decides.
TENANT_TIERS: dict[str, str] = {}  # {"acme": LARGE}: all requests of a tenant go to one model.
CANARY_SHARE = 0.0  # 0.05: of the requests that no earlier rule took, 5 % go to CANARY.
CANARY = LARGE
LARGE_MAX_IN_FLIGHT = 24  # Requests at the large model, over all router processes, from which on it is saturated:
SHED_MAX_PROMPT_TOKENS = 2048  # then prompts up to this length go to the small one, whatever they ask for.
PARAMETERS: tuple[str, ...] = ()  # ("x-plan",): further parameters and forwarded headers, for prompt.parameters.
TIME_ZONE = "UTC"  # "Europe/Zurich": the zone of state.now, for rules by the clock.
THINKING = "show"  # "cut": what a model writes between <think> and </think> doesn't reach the reader.
TEMPLATE_VALUES = ("enable_thinking",)  # Of chat_template_kwargs, what requests may tell a model's chat template.
REFUSAL = "I can't help with that."  # What a client reads where `choose` refuses.


def choose(prompt: Prompt, state: State = ALL_WELL) -> Decision:
    """The engine for a prompt that at least one engine's context holds."""
    if prompt.verdict == "refuse":
        return Decision.refuse(prompt.verdict_reason or "unsafe_prompt")
    if not prompt.fits(SMALL):
        return Decision(LARGE, "over_small_context")
    if not prompt.fits(LARGE):
        return Decision(SMALL, "over_large_context")
    if CLIENTS_MAY_CHOOSE and prompt.wanted:
        return Decision(prompt.wanted, "client_choice")
    if prompt.tenant in TENANT_TIERS:
        return Decision(TENANT_TIERS[prompt.tenant], "tenant")
    if prompt.is_among("canary", CANARY_SHARE):
        return Decision(CANARY, "canary")
    if state[LARGE].in_flight >= LARGE_MAX_IN_FLIGHT and prompt.tokens[SMALL] <= SHED_MAX_PROMPT_TOKENS:
        return Decision(SMALL, "large_saturated")
    if any(prompt.signal(name) >= HARD_SCORE for name in HARD_SIGNALS):
        return Decision(LARGE, "hard")
    if prompt.tokens[SMALL] > SMALL_MAX_PROMPT_TOKENS:
        return Decision(LARGE, "long_prompt")
    if prompt.max_tokens > SMALL_MAX_NEW_TOKENS:
        return Decision(LARGE, "long_answer")
    return Decision(SMALL, "default")


# When an engine doesn't answer.
FALLBACK = {SMALL: (LARGE,), LARGE: (SMALL,)}  # Tried in order: not loaded, full, failed or too late for a first token.
FIRST_TOKEN_SECONDS = {SMALL: 30.0, LARGE: 60.0}  # After which a stream's fallback is tried; nothing was sent by then.
MAX_WAIT_SECONDS = 1.0  # Expected for a first token, from which on an engine is full: rather [BUSY] at once than late.
MAX_IN_FLIGHT: dict[str, int] = {}  # {LARGE: 8}: as many at a time at an engine; else 70 % of the router processes.
EARLY_START = True  # A stream's engine begins before the classifier has answered, if no other request waits for it.
TIMEOUT_SECONDS = 300.0  # For a request that brings no `timeout`: over all attempts, no answer may run for ever.
RETRIES = 1  # Further rounds over all engines where a queue was full,
RETRY_SECONDS = 0.2  # after a pause of half to one and a half times this, so that not all come back at once.
BREAKER_FAILURES = 5  # So many failures of an engine, if they are
BREAKER_ERROR_RATE = 0.5  # so large a share of the attempts in
BREAKER_WINDOW_SECONDS = 30.0  # so long a time, over all router processes, and it is left alone for
COOL_DOWN_SECONDS = 10.0  # so long; then one request tries it. Who has no other engine left is not turned away.
DEFAULT = SMALL  # Answers, as `policy_error`, when `choose` raises or takes longer than a quarter of a second.

# What a prompt goes through before `choose` sees it, in this order; the first check that refuses ends it. A check that
# can't decide counts as a refusal (on_failure="closed", the default), or as if it had found nothing (the classifier and
# the script). All options: bls/safety/settings.py.
TRUSTED_TENANTS: tuple[str, ...] = ()  # ("acme",): whose system messages are your own application's, so not looked at.
# Anybody may say that they are a tenant, so name one only where a proxy of yours sets that; ("*",) trusts everybody.
SAID_BY_MODEL = ("assistant",)  # What the model said may quote an attack that it declined.
RISKS = ("prompt_injection", "violence", "self_harm", "sexual", "hate", "illegal_goods", "malware", "fraud")
SAFETY = Safety(
    (
        Limits(max_characters=100_000, max_messages=256),
        Repetition(min_characters=20_000),  # Far beyond what a person repeats to try a server out.
        Words(),  # Each list's action is its `prompt` in words/categories.toml.
        Patterns(skip_roles=SAID_BY_MODEL),
        Hidden(skip_roles=SAID_BY_MODEL),
        PersonalData(),  # Masked.
        Script(),
        Classifier(
            skip_roles=SAID_BY_MODEL,
            refuse_from=dict.fromkeys(RISKS, 0.9),
            route_from=dict.fromkeys(HARD_CLASSES, HARD_SCORE),
            budget_ms=150.0,
        ),
    ),
    trusted_tenants=TRUSTED_TENANTS,
)

# What is counted beside the answers.
SHADOW_SHARE = 0.0  # 0.01: 1 % of the requests also run, after their answer has ended, on SHADOW; no client sees it.
SHADOW = LARGE
SHADOW_SECONDS = 30.0  # The longest that one may run; a router process takes no request meanwhile.
SHADOW_POLICY = ""  # "policy_next.py": a file beside this one that also decides each request; only counted.
BASELINE = LARGE  # Savings are counted against this model answering everything.
RECORD_MEGABYTES = 0  # 64: the features of each decision, never a text, go to logs/decisions.jsonl, the newest 64 MB.


# Checked before this file is taken. These follow the numbers above, whatever those are; what you add holds as written.
# `tokens` and `max_tokens` are 10 and 16 where they aren't given; contexts hold both, but for those that are named.
_BUSY = {LARGE: TierState(in_flight=LARGE_MAX_IN_FLIGHT)}
EXAMPLES = (
    example(Decision(SMALL, "default"), tokens=SMALL_MAX_PROMPT_TOKENS, max_tokens=SMALL_MAX_NEW_TOKENS),
    example(Decision(LARGE, "long_prompt"), tokens=SMALL_MAX_PROMPT_TOKENS + 1),
    example(Decision(LARGE, "long_answer"), tokens=SMALL_MAX_PROMPT_TOKENS, max_tokens=SMALL_MAX_NEW_TOKENS + 1),
    example(
        Decision(SMALL, "default"),
        tokens=SMALL_MAX_PROMPT_TOKENS,
        max_tokens=SMALL_MAX_NEW_TOKENS,
        contexts={SMALL: SMALL_MAX_PROMPT_TOKENS + SMALL_MAX_NEW_TOKENS},
    ),
    example(
        Decision(LARGE, "over_small_context"),
        tokens=SMALL_MAX_PROMPT_TOKENS,
        max_tokens=SMALL_MAX_NEW_TOKENS,
        contexts={SMALL: SMALL_MAX_PROMPT_TOKENS + SMALL_MAX_NEW_TOKENS - 1},
    ),
    example(Decision(SMALL, "over_large_context"), tokens=600, max_tokens=300, contexts={LARGE: 512}),
    *(example(Decision(LARGE, "hard"), signals={name: HARD_SCORE}) for name in HARD_SIGNALS),
    example(
        Decision(SMALL, "default"),
        tokens=SMALL_MAX_PROMPT_TOKENS,
        max_tokens=SMALL_MAX_NEW_TOKENS,
        signals=dict.fromkeys(HARD_SIGNALS, HARD_SCORE / 2),
    ),
    example(Decision(SMALL, "large_saturated"), tokens=SHED_MAX_PROMPT_TOKENS, signals={"hard": 1.0}, state=_BUSY),
    example(
        Decision(LARGE, "long_prompt"), tokens=max(SHED_MAX_PROMPT_TOKENS, SMALL_MAX_PROMPT_TOKENS) + 1, state=_BUSY
    ),
    example(Decision.refuse("jailbreak"), verdict="refuse", verdict_reason="jailbreak"),
)
