"""Writes tests/data/chat_goldens.json: what Hugging Face's apply_chat_template makes of templates and messages.

The tests compare ours with it, and don't need transformers themselves:
    pip install transformers==5.24.0 && python -m tests.make_chat_goldens
"""

from __future__ import annotations

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
        for title, messages in MESSAGES.items():
            golden = {"template": name, "source": template, "messages": messages, "title": title}
            theirs.chat_template = template
            try:
                golden["text"] = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
                ids = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
                golden["ids"] = ids if name == "SmolLM2" else None
            except Exception as error:
                golden["error"] = type(error).__name__
            goldens.append(golden)
    GOLDENS.write_text(json.dumps(goldens, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
