"""What a client is told whose prompt is refused; a policy may say it otherwise."""

from __future__ import annotations

from collections.abc import Mapping

_INSTRUCTIONS = {
    "en": "I can't change or reveal the instructions I work by. Is there something else that I can help with?",
    "zh": "我无法更改或透露我所遵循的指令。还有其他可以帮您的吗？",
}

_FAMILIES = ("encoded", "injection", "jailbreak", "leak", "template")  # of words/patterns

# By reason or, for all of a check's reasons, by its name. {found} and {limit} are the numbers of `too_long` and
# `too_many_messages`. A word list with a `text` that ends answers says that instead of "words". A family of patterns of
# your own says "default" until the policy has a text for it: Safety(..., replies={"prompt_<family>": {"en": "..."}}).
REPLIES: Mapping[str, Mapping[str, str]] = {
    "default": {"en": "I'm sorry, but I can't help with that.", "zh": "抱歉，我无法协助处理这个请求。"},
    "too_long": {
        "en": "Your message is too long: it has {found} but the limit is {limit}.",
        "zh": "您的消息过长：共有 {found}，最多允许 {limit}。",
    },
    "too_many_messages": {
        "en": "This conversation is too long: it has {found} messages but the limit is {limit}.",
        "zh": "对话过长：共有 {found} 条消息，最多允许 {limit} 条。",
    },
    "repetition": {
        "en": "Your message repeats itself too often. Please shorten it.",
        "zh": "您的消息重复内容过多，请精简后重试。",
    },
    **{f"prompt_{family}": _INSTRUCTIONS for family in _FAMILIES},
    "hidden": {
        "en": "I can't follow instructions that are hidden in a message. Please write them in plain text.",
        "zh": "我无法执行隐藏在消息中的指令，请使用明文。",
    },
    "classifier_self_harm": {
        "en": "I'm really sorry that you're going through this. I can't help with that, but you don't have to be alone "
        "with it: please talk to someone you trust, or to an emergency or crisis line where you live.",
        "zh": "我很难过听到这些。这件事我无法协助，但您不必独自面对：请联系您信任的人，或拨打当地的心理援助热线。",
    },
    "personal_data": {
        "en": "Your message contains personal data. Please remove it and try again.",
        "zh": "您的消息包含个人信息，请删除后重试。",
    },
    "unavailable": {
        "en": "I can't check your message at the moment. Please try again a little later.",
        "zh": "暂时无法检查您的消息，请稍后重试。",
    },
}
