"""Writes a model repository that a plain tritonserver loads, with this project's code, engines and lists in it.

    scripts/pack DIR                      for this machine's CPU, with the engines of engines/built
    scripts/pack DIR --for tensorrt_llm   for TensorRT-LLM's backend; engines are read from /engines, or --engines-at
    scripts/pack DIR --without-engines    to mount or copy engines/built to DIR/llm_router/files/engines/built

What each model needs beside its folder goes to DIR/llm_router/files, which has the layout of this checkout.
Exit status: 2 refused, nothing was written; 5 the set-up failed.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from py_compile import PycInvalidationMode

from bls.paths import MODEL_REPOSITORY, PACKED, ROOT
from scripts.environment import Environment, SetupFailed, explain
from scripts.host import preflight
from scripts.host.interruption import Interrupted, interruptible
from scripts.host.preflight import Refused
from scripts.host.progress import Progress
from scripts.server import model_folders

CONFIG_NAMES = {"cpu": "cpu", "tensorrt_llm": None, "llmapi": "llmapi"}
BUILT = Path("engines", "built")
ENGINES = "/engines"  # where the configs for TensorRT-LLM's backend look for them
COMMANDS = ("policy", "safety", "words")  # of scripts/; they need no server
PRELUDE = """
import sys as _sys
from pathlib import Path as _Path

_sys.path.insert(0, str(_Path(__file__).absolute().parents[2] / "{files}"))
"""


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/pack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the new model repository")
    parser.add_argument("--for", dest="target", choices=CONFIG_NAMES, default="cpu", help="what computes the engines")
    parser.add_argument("--without-engines", action="store_true", help="leave engines/built out")
    parser.add_argument(
        "--engines-at", default=ENGINES, metavar="PATH", help="where TensorRT-LLM's engines will lie (/engines)"
    )
    parser.add_argument(
        "--skip-model", action="append", default=[], metavar="NAME", help="leave this model out; repeatable"
    )
    return parser.parse_args(arguments)


def pack(options: argparse.Namespace, root: Path = ROOT, repository: Path = MODEL_REPOSITORY) -> list[str]:
    """Writes the repository beside its name, then gives it the name. The models in it. Raises Refused."""
    target: Path = options.folder.absolute()
    if os.path.lexists(target):
        raise Refused(f"{target} exists, with what you may have edited in it: name another folder, or remove it")
    preflight.check_path("DIR", target)
    models = _models(repository, options)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        for model in models:
            _copy_model(repository / model, draft / model, options)
        _copy_files(root, draft / PACKED, options)
        compileall.compile_dir(draft, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        _let_all_read(draft)
        draft.rename(target)
    except OSError as error:  # copytree's holds one for each file, and no reason of its own
        raise Refused(f"{target} cannot be written: {error.strerror or error.args[0][0][-1]}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return models


def _models(repository: Path, options: argparse.Namespace) -> list[str]:
    names, skipped = model_folders.names(repository), set(options.skip_model)
    if unknown := sorted(skipped - set(names)):
        raise Refused(f"--skip-model {unknown[0]}: there is no such model; there are {', '.join(names)}")
    left = model_folders.without(repository, names, skipped, CONFIG_NAMES[options.target])
    if PACKED.parts[0] not in left:
        raise Refused(f"{PACKED.parts[0]} cannot be left out: what the others need lies in its folder")
    return left


def _copy_model(model: Path, target: Path, options: argparse.Namespace) -> None:
    """With the config of the chosen variant as its only one, so that no flag has to choose it."""
    shutil.copytree(model, target, ignore=shutil.ignore_patterns("__pycache__", "configs", "config.pbtxt"))
    config = model_folders.config_file(model, CONFIG_NAMES[options.target]).read_text(encoding="utf-8")
    place = options.engines_at.rstrip("/")
    (target / "config.pbtxt").write_text(config.replace(f'"{ENGINES}/', f'"{place}/'), encoding="utf-8")
    for entry in target.glob("*/model.py"):
        entry.write_text(with_prelude(entry.read_text(encoding="utf-8")), encoding="utf-8")


def with_prelude(source: str) -> str:
    """The text of a model.py that finds the packed code by itself: Triton knows of no PYTHONPATH of ours."""
    body = ast.parse(source).body
    first = next(node for node in body if not _stays_first(node))
    lines = source.splitlines(keepends=True)
    before = first.lineno - 1
    return "".join([*lines[:before], PRELUDE.format(files=PACKED.as_posix()).lstrip("\n"), "\n", *lines[before:]])


def _stays_first(node: ast.stmt) -> bool:
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _copy_files(root: Path, target: Path, options: argparse.Namespace) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "built", ".*")
    for folder in ("bls", "engines", "words"):
        shutil.copytree(root / folder, target / folder, ignore=ignored)
    for name in COMMANDS:
        for path in (root / "scripts").glob(f"{name}*"):
            _copy_file(path, target / path.relative_to(root))
    shutil.copytree(root / "scripts" / "host", target / "scripts" / "host", ignore=ignored)
    for part in ("__init__.py", "diagnosis/__init__.py", "diagnosis/metrics_page.py"):
        _copy_file(root / "scripts" / part, target / "scripts" / part)
    (target / BUILT).mkdir()
    if not options.without_engines:
        hidden = shutil.ignore_patterns(".*")
        shutil.copytree(root / BUILT, target / BUILT, ignore=hidden, copy_function=_Copying(), dirs_exist_ok=True)


class _Copying:
    """Tiers with the same model share its files (hard links); so do their copies."""

    def __init__(self) -> None:
        self._copies: dict[int, str] = {}

    def __call__(self, source: str, target: str) -> str:
        number = os.stat(source).st_ino
        if number in self._copies:
            os.link(self._copies[number], target)
        else:
            self._copies[number] = str(shutil.copy2(source, target))
        return target


def _copy_file(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def _let_all_read(folder: Path) -> None:
    """The server may run as another user than who packs."""
    for path in (folder, *folder.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))


def summary(options: argparse.Namespace, models: Sequence[str]) -> str:
    target = options.folder.absolute()
    flags = f"--model-repository={target} --exit-timeout-secs=60"
    lines = [f"{target}: {len(models)} models", f"  policy  {target / PACKED / 'bls' / 'policy.py'}"]
    lines.append(f"  words   {target / PACKED / 'words'}, then {target / PACKED / 'scripts' / 'words'} compile")
    if options.target == "cpu":
        found = Environment()
        libraries = os.pathsep.join(map(str, found.libraries))
        lines.append(f"serve it with the server that is installed here, or see {ROOT / 'docs' / 'your-own-triton.md'}")
        lines.append(f'  env PATH="{found.python.parent}:$PATH" LD_LIBRARY_PATH={libraries} \\')
        return "\n".join([*lines, f"    {found.tritonserver} --backend-directory={found.backends} {flags}"])
    return "\n".join([*lines, "serve it in NVIDIA's image", f"  tritonserver {flags}"])


def main(arguments: Sequence[str]) -> int:
    options = parsed(arguments)
    interruptible()
    progress = Progress()
    try:
        if options.target == "cpu":
            with Environment().ensured(progress):
                models = pack(options)
        else:
            models = pack(options)
    except (Refused, SetupFailed, Interrupted) as reason:
        return explain(reason, progress)
    print(summary(options, models))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
