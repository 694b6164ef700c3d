"""What a model repository holds, as far as starting a server needs it: names and python instances."""

from __future__ import annotations

import re
from pathlib import Path

_COMMENT_OR_STRING = re.compile(r'#[^\n]*|"(?:\\.|[^"\\\n])*"')
_BACKEND = re.compile(r'\bbackend\s*:\s*"([^"]*)"')
_PLATFORM = re.compile(r'\bplatform\s*:\s*"([^"]*)"')
_STEP = re.compile(r'\bmodel_name\s*:\s*"([^"]*)"')
_PLATFORM_BACKENDS = {"onnxruntime_onnx": "onnxruntime", "tensorrt_plan": "tensorrt", "pytorch_libtorch": "pytorch"}


def names(repository: Path) -> list[str]:
    """The models of `repository`: each folder that isn't hidden or Python's cache."""
    folders = (path for path in repository.iterdir() if path.is_dir())
    return sorted(path.name for path in folders if not path.name.startswith((".", "__")))


def config_file(model: Path, config_name: str | None) -> Path:
    """The config that Triton takes for `model` under --model-config-name; it need not exist."""
    chosen = model / "configs" / f"{config_name}.pbtxt"
    return chosen if config_name and chosen.is_file() else model / "config.pbtxt"


def python_instances(repository: Path, models: list[str], config_name: str | None) -> int:
    """How many processes of the python backend these models start, all together."""
    configs = (config(repository / model, config_name) for model in models)
    return sum(instances(text) for text in configs if backend(text) == "python")


def config(model: Path, config_name: str | None) -> str:
    """The text of the model's config without its comments; "" where it has none."""
    path = config_file(model, config_name)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return _COMMENT_OR_STRING.sub(lambda found: "" if found[0][0] == "#" else found[0], text)


def backend(config: str) -> str:
    """The backend of a config's text, "ensemble" for an ensemble; "" where it says none."""
    if named := _BACKEND.search(config):
        return named[1]
    platform = _PLATFORM.search(config)
    return _PLATFORM_BACKENDS.get(platform[1], platform[1]) if platform else ""


def parameter(config: str, key: str) -> str | None:
    """The value of an entry of `parameters`; None without it."""
    entry = rf'\bkey\s*:\s*"{key}"\s*value\s*:?\s*\{{\s*string_value\s*:\s*"([^"]*)"'
    found = re.search(entry, config)
    return found[1] if found else None


def without(repository: Path, models: list[str], skipped: set[str], config_name: str | None) -> list[str]:
    """`models` but for those of `skipped`, and but for the ensembles that would load one of them all the same."""
    steps = {model: set(_STEP.findall(config(repository / model, config_name))) for model in models}
    out: set[str] = set()
    found = set(skipped)
    while found - out:
        out |= found
        found = {model for model, needed in steps.items() if needed & out}
    return [model for model in models if model not in out]


def instances(config: str) -> int:
    """The sum of `count` over the instance groups of a config.pbtxt's text; 1 where it has none, like Triton."""
    bare = _COMMENT_OR_STRING.sub("", config)
    groups = [group for start in re.finditer(r"\binstance_group\b", bare) for group in _groups(bare, start.end())]
    counts = [re.search(r"\bcount\s*:\s*(\d+)", group) for group in groups]
    return sum(int(count[1]) if count else 1 for count in counts) or 1


def _groups(text: str, start: int) -> list[str]:
    """The outermost {...} blocks of the field value that begins at `start`: `[ {..}, {..} ]` or `{..}`."""
    depth, opened, blocks = 0, 0, []
    listed = text[start:].lstrip(": \n\t").startswith("[")
    for place in range(start, len(text)):
        if text[place] == "{":
            depth += 1
            opened = place if depth == 1 else opened
        elif text[place] == "}":
            depth -= 1
            if depth == 0:
                blocks.append(text[opened : place + 1])
                if not listed:
                    break
        elif text[place] == "]" and depth == 0:
            break
    return blocks
