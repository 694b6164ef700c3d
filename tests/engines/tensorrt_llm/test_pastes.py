"""Commands as people paste them for --explain: whatever stands around them, they are read, and nothing is dropped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.tensorrt_llm.old_commands import explain, read
from scripts import build_engines

PLAIN = {"checkpoint_dir": ("ckpt",), "max_batch_size": ("8",)}
PASTES = {
    "a notebook's line": "!trtllm-build --checkpoint_dir ckpt --max_batch_size 8",
    "a notebook's cell": "%%bash\ntrtllm-build --checkpoint_dir ckpt --max_batch_size 8",
    "a page's block": "```bash\n$ trtllm-build --checkpoint_dir ckpt --max_batch_size 8\n```",
    "a Dockerfile": "FROM x\nENV CKPT=ckpt\nRUN trtllm-build --checkpoint_dir $CKPT \\\n    --max_batch_size 8",
    "a Dockerfile's list": 'RUN ["trtllm-build", "--checkpoint_dir", "ckpt", "--max_batch_size", "8"]',
    "a shell in a shell": 'docker run x bash -lc "cd a && trtllm-build --checkpoint_dir ckpt --max_batch_size 8"',
    "Python's list": 'ckpt = "ckpt"\nsubprocess.run([\n    "trtllm-build",\n    "--checkpoint_dir", ckpt,\n'
    '    "--max_batch_size", str(8),\n], check=True)',
    "Python's text": 'os.system("trtllm-build --checkpoint_dir ckpt --max_batch_size 8")',
    "Python's text with arguments": 'run("trtllm-build --checkpoint_dir ckpt --max_batch_size 8", shell=True)',
    "Python's text with variables": 'd = "ckpt"\nsubprocess.check_call(f"trtllm-build --checkpoint_dir {d} '
    '--max_batch_size 8", shell=True)',
    "Python's long text": 'os.system("""\ntrtllm-build --checkpoint_dir ckpt \\\n  --max_batch_size 8\n""")',
    "YAML's list": "command:\n  - trtllm-build\n  - --checkpoint_dir\n  - ckpt\nargs:\n  - --max_batch_size=8",
    "YAML's arguments": 'command: ["trtllm-build"]\nargs: ["--checkpoint_dir", "ckpt", "--max_batch_size", "8"]',
    "a variable that grows": 'A="--checkpoint_dir ckpt"\nA="$A --max_batch_size"\nA+=" 8"\ntrtllm-build $A',
    "an array": "ARGS=(\n  --checkpoint_dir ckpt # where it lies\n)\nARGS+=(--max_batch_size 8)\n"
    'trtllm-build "${ARGS[@]}"',
    "its output in a variable": "LOG=$(trtllm-build --checkpoint_dir ckpt --max_batch_size 8)",
    "a root's prompt": "root@4f3c:/app# trtllm-build --checkpoint_dir ckpt --max_batch_size 8",
    "a prompt in an environment": "(venv) me@host:~/x$ trtllm-build --checkpoint_dir ckpt --max_batch_size 8",
    "a batch file": "trtllm-build --checkpoint_dir ckpt ^\n  --max_batch_size 8",
    "PowerShell": "trtllm-build --checkpoint_dir ckpt `\n  --max_batch_size 8",
    "remarks between": "trtllm-build --checkpoint_dir ckpt \\\n  # as many as fit\n\n  --max_batch_size 8 # for now",
    "remarks behind": "trtllm-build --checkpoint_dir ckpt \\  # where it lies\n  --max_batch_size 8",
    "a lost backslash": "trtllm-build --checkpoint_dir ckpt\n    --max_batch_size 8",
    "variables": 'export DIR=ck SIZE="8"\ntrtllm-build --checkpoint_dir ${DIR}pt --max_batch_size "$SIZE"',
    "a variable's default": "trtllm-build --checkpoint_dir ${CKPT:-ckpt} --max_batch_size ${SIZE-8}",
    "a line's end in Python": 'os.system("trtllm-build --max_batch_size 8 --checkpoint_dir ckpt\\n")',
    "a batch file's variable": "set CKPT=ckpt\ntrtllm-build --checkpoint_dir %CKPT% --max_batch_size 8",
    "hyphens": "trtllm-build --checkpoint-dir ckpt --max-batch-size=8",
    "prose with apostrophes": "Don't forget:\ntrtllm-build --checkpoint_dir ckpt --max_batch_size 8\nThat's all.",
}


@pytest.mark.parametrize("text", PASTES.values(), ids=PASTES)
def test_the_command_is_found_and_read(text):
    (explanation,) = explain(text)
    assert not explanation.has_wrong
    (command,) = explanation.commands
    words = list(command.arguments)
    assert words == ["--checkpoint_dir", "ckpt", "--max_batch_size", "8"]


def test_a_windows_path_is_one():
    (explanation,) = explain(
        r"python.exe .\examples\llama\convert_checkpoint.py --model_dir C:\models\llama --dtype float16"
    )
    assert (explanation.before, explanation.family_is_guess) == ("", False)
    assert explanation.commands[0].arguments[:2] == ("--model_dir", "C:/models/llama")


def test_one_command_that_cannot_be_read_leaves_the_others_explained():
    found = read("I ran trtllm-build with an old checkpoint\ntrtllm-build --checkpoint_dir ckpt")
    assert len(found.explanations) == 1
    assert [(other.text, other.is_wrong) for other in found.others] == [
        ("I ran trtllm-build with an old checkpoint", True)
    ]


def test_what_is_not_explained_is_named():
    found = read(
        "cd TensorRT-LLM && pip install -r x.txt\n"
        "CUDA_VISIBLE_DEVICES=0 mpirun -n 1 trtllm-build --checkpoint_dir c 2>&1 | tee build.log\n"
        "python3 -m tensorrt_llm.models.baichuan.convert --model_dir m\n"
        "trtllm-serve engine --port 8000\n"
    )
    assert [(other.text, other.is_wrong) for other in found.others] == [
        ("cd TensorRT-LLM", False),
        ("pip install -r x.txt", False),
        ("tee build.log", False),
        ("python3 -m tensorrt_llm.models.baichuan.convert --model_dir m", True),
        ("trtllm-serve engine --port 8000", False),
    ]
    assert found.explanations[0].before == "CUDA_VISIBLE_DEVICES=0 mpirun -n 1"


def test_an_unknown_conversion_fails_the_command_and_is_printed(capsys):
    assert build_engines.main(["--explain", "python hf_convert.py --in x\ntrtllm-build --checkpoint_dir c"]) == 1
    printed = capsys.readouterr().out
    assert "Not explained:\n  python hf_convert.py --in x\n      hf_convert.py is not known here" in printed


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("python examples/baichuan/build.py --model_dir m --output_dir o --max_batch_size 4", "baichuan"),
        ("python examples/models/contrib/falcon/convert_checkpoint.py --model_dir m", "falcon"),
        ("python convert_checkpoint.py --model_dir Baichuan2-13B-Chat", "baichuan"),
        ("python convert_checkpoint.py --model_dir ./bloom-560m", "bloom"),
    ],
)
def test_a_family_without_a_conversion_here_is_said_and_no_other_is_guessed(text, family, capsys):
    (explanation,) = explain(text)
    assert (explanation.strange, explanation.family_is_guess) == (family, False)
    assert all(command.program == "trtllm-build" for command in explanation.commands)
    assert build_engines.main(["--explain", text]) == 1
    assert f"This is a model of the family {family}: only llama's and qwen's" in capsys.readouterr().out


def test_hyphens_are_said():
    (explanation,) = explain("trtllm-build --max-batch-size 8")
    (fate,) = explanation.fates
    assert (fate.flag, fate.gone) == ("--max-batch-size 8", "changed")
    assert "now --max_batch_size" in fate.text


WORDS = st.lists(st.from_regex(r"[a-z][a-z0-9_.]{0,8}", fullmatch=True), min_size=1, max_size=4).map(" ".join)


@given(st.lists(WORDS, min_size=1, max_size=6), st.sampled_from(["\n", " && ", "; ", " | "]))
def test_every_word_of_a_paste_is_somewhere(lines, between):
    found = read(between.join(lines))
    assert [other.text for other in found.others] == lines
