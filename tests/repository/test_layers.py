"""The order in which packages may import one another, and that no two files import each other."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from bls.paths import ROOT

# From the top: each may import what stands below it. Files at the root of bls are the life of a request; those that the
# packages below them need are named apart.
LAYERS = (
    ("scripts", "model_repository"),
    ("engines",),
    ("bls",),
    ("bls.policy", "bls.policy_api", "bls.decision", "bls.prompt_settings"),
    ("bls.routing",),
    ("bls.safety",),
    ("bls.words", "bls.tokens"),
    ("bls.ports", "bls.manifest", "bls.template_values", "bls.tiers"),
    ("bls.arrays", "bls.contract", "bls.errors", "bls.paths"),
)
FREE = {  # Imports inside one layer that are meant, by package: none but those within the package itself.
    "bls.ports", "bls.manifest", "bls.template_values", "bls.tiers",
    "bls.arrays", "bls.contract", "bls.errors", "bls.paths",
    "bls.policy", "bls.policy_api", "bls.decision", "bls.prompt_settings",
}  # fmt: skip


def layer_of(module: str) -> tuple[int, str]:
    """The place in LAYERS of the longest name that the module is or stands below, and that name."""
    places = [(len(name), place, name) for place, names in enumerate(LAYERS) for name in names]
    _, place, name = max(each for each in places if f"{module}.".startswith(f"{each[2]}."))
    return place, name


def module_of(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def sources(root: Path) -> list[Path]:
    tops = ("bls", "engines", "scripts", "model_repository")
    return [path for top in tops for path in (root / top).rglob("*.py") if "built" not in path.parts]


def imports(root: Path) -> dict[str, set[str]]:
    """By module: which others of ours it imports, at its top or in a function."""
    files = sources(root)
    known = {module_of(path, root) for path in files}
    # A process that is started as a module imports itself by its name, so that what it sends can be unpickled.
    return {name: set(_imported(path, known)) - {name} for path in files if (name := module_of(path, root))}


def _imported(path: Path, known: set[str]):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in known or node.module in known:
                    yield name if name in known else node.module


def upward(found: dict[str, set[str]]) -> list[str]:
    wrong = []
    for module, others in sorted(found.items()):
        place, name = layer_of(module)
        for other in sorted(others):
            below, other_name = layer_of(other)
            if below < place or (below == place and other_name != name and name not in FREE):
                wrong.append(f"{module} imports {other}")
    return wrong


def test_packages_import_downwards_only():
    assert upward(imports(ROOT)) == []


def test_no_two_files_import_each_other_by_whatever_way():
    try:
        tuple(TopologicalSorter(imports(ROOT)).static_order())
    except CycleError as error:
        pytest.fail(f"a circle of files: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("bls/words/planted.py", "from bls.safety import judge"),
        ("bls/words/planted.py", "from bls.tokens import gguf"),
        ("bls/safety/planted.py", "import bls.routing.decision"),
        ("bls/routing/planted.py", "def later():\n    from bls.router import Router"),
        ("bls/errors.py", "from bls.manifest import load"),
        ("bls/planted.py", "from engines import specs"),
        ("engines/planted.py", "from scripts.host import processes"),
    ],
)
def test_a_planted_upward_import_is_found(tmp_path, file, line):
    for path in sources(ROOT):
        (tmp_path / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path.relative_to(ROOT)).touch()
    (tmp_path / file).write_text(f"{line}\n")
    assert [wrong.split(" imports")[0] for wrong in upward(imports(tmp_path))] == [module_of(Path(file), Path())]
