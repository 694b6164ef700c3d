"""Writes tests/data/chat_goldens.json: what Hugging Face's apply_chat_template makes of templates and messages.

The tests compare ours with it, and don't need transformers themselves:
    pip install transformers==5.24.0 && python -m tests.make_chat_goldens
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from bls.tokens import gguf, tokenizer_files

GOLDENS = Path(__file__).parent / "data" / "chat_goldens.json"
TALK = [
    {"role": "system", "content": "You are terse.\n"},
    {"role": "user", "content": "  1 < 2 & 'quotes' \"too\" <b>你好</b> 🙂 "},
    {"role": "assistant", "content": "Yes.\n\n"},
    {"role": "user", "content": "Why?"},
]
MESSAGES = {
    "one": [{"role": "user", "content": "hi"}],
    "talk": TALK,
    "empty_content": [{"role": "user", "content": ""}],
    "unknown_role": [{"role": "tool", "content": "42"}],
}
# A call of a tool, as Hugging Face takes it: its arguments are an object. It is given to the templates that know calls.
TOOLS = [
    {"role": "user", "content": "Rain in 北京?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"type": "function", "function": {"name": "rain", "arguments": {"city": "北京", "days": [1, 2]}}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "rain", "content": "<none>"},
    {"role": "user", "content": "Sure?"},
]
KNOW_CALLS = ("calls_tools",)
# Further variables, and the templates that know them.
VALUES = {"thinks": ({}, {"enable_thinking": False}, {"enable_thinking": True, "level": "low"})}
# One template a trait that models' templates have.
TEMPLATES = {
    "bos_and_loop": "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m.content | trim }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
    "blocks_are_trimmed": "{%- for m in messages %}\n    {%- if m.role == 'user' %}\nU: {{ m.content }}\n"
    "    {% else %}\nO: {{ m.content }}\n    {% endif %}\n{% endfor %}\n  {# a comment #}\nA:",
    "raises": "{% for m in messages %}{% if m.role not in ['user', 'assistant', 'system'] %}"
    "{{ raise_exception('Unknown role: ' + m.role) }}{% endif %}{{ m.content }}{% endfor %}",
    "to_json": "{{ messages | tojson }}|{{ messages[0] | tojson(indent=2) }}|"
    "{{ messages[0] | tojson(sort_keys=true) }}",
    "namespace_and_loop_controls": "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% continue %}{% endif %}{% set ns.n = ns.n + 1 %}{{ ns.n }}:{{ m.content }};"
    "{% if ns.n == 2 %}{% break %}{% endif %}{% endfor %}",
    "generation_marks": "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "system_apart": "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
    "{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
    "{{ bos_token }}{% for m in rest %}[INST] {% if loop.first and system %}<<{{ system }}>> {% endif %}"
    "{{ m.content.strip() }} [/INST]{% endfor %}{{ undefined_name }}{{ tools is none }}{{ documents is none }}",
    "calls_tools": "{% for m in messages %}<{{ m.role }}>{% if m.content %}{{ m.content }}{% endif %}{% for c in "
    "m.tool_calls or [] %}[{{ c.function.name }}({{ c.function.arguments | tojson }})]{% endfor %}"
    "{% if m.tool_call_id %}#{{ m.tool_call_id }}{% endif %}"
    "{% if m.name is defined %}@{{ m.name }}{% endif %}\n{% endfor %}",
    "thinks": "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}assistant:"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>{% endif %}"
    "{% if level is defined %}({{ level }}){% endif %}{% endif %}",
    "calls_python": "{{ messages[-1].content.split(' ')[0].upper() }}{{ messages | length }}{{ range(3) | list }}",
    "leaves_the_sandbox": "{{ ''.__class__.__mro__ }}{{ messages.append(1) }}",
    "divides_by_nothing": "{{ 1 / (messages | length - messages | length) }}",
}


def main() -> None:
    from transformers import PreTrainedTokenizerFast

    goldens = []
    file = Path("engines/built/small/SmolLM2-135M-Instruct.Q4_1.gguf")
    ours = tokenizer_files.load_file("gguf", file)
    named = {"bos_token": ours.settings.bos_token, "eos_token": ours.settings.eos_token}
    theirs = PreTrainedTokenizerFast(tokenizer_object=ours.core, **named)
    for name, template in {**TEMPLATES, "SmolLM2": gguf.read_metadata(file)["tokenizer.chat_template"]}.items():
        given = {**MESSAGES, **({"tools": TOOLS} if name in KNOW_CALLS else {})}
        for (title, messages), values in itertools.product(given.items(), VALUES.get(name, ({},))):
            golden = {"template": name, "source": template, "messages": messages, "title": title, "values": values}
            theirs.chat_template = template
            try:
                golden["text"] = theirs.apply_chat_template(
                    messages, add_generation_prompt=True, tokenize=False, **values
                )
                ids = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False, **values)
                golden["ids"] = ids if name in ("SmolLM2", "thinks") else None
            except Exception as error:
                golden["error"] = type(error).__name__
            goldens.append(golden)
    GOLDENS.write_text(json.dumps(goldens, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
