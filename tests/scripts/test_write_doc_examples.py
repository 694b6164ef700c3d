from __future__ import annotations

import pytest

from bls.paths import ROOT
from scripts import write_doc_examples
from scripts.write_doc_examples import Command, examples

DOCUMENT = """# Title

```sh
install
```

```python */1/model.py
class Model: ...
```

## First

```pbtxt one/config.pbtxt
name: "one"
```

```python
print(1)
```

```text
1
```

Words.

```sh
echo 2
```

## Second

```pbtxt two/config.pbtxt
name: "two"
```
"""


def test_a_block_is_a_file_or_a_command_with_what_it_prints():
    found = examples(DOCUMENT)
    assert set(found.files) == {"*/1/model.py", "one/config.pbtxt", "two/config.pbtxt"}
    assert found.commands[""] == [Command("sh", "install\n", None)]
    assert found.commands["First"] == [Command("python", "print(1)\n", "1\n"), Command("sh", "echo 2\n", None)]


def test_a_file_of_every_folder_is_written_into_each(tmp_path):
    examples(DOCUMENT).write(tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"one/config.pbtxt", "one/1/model.py", "two/config.pbtxt", "two/1/model.py"}
    assert (tmp_path / "two" / "1" / "model.py").read_text() == "class Model: ...\n"


@pytest.mark.parametrize("between", ["", "```sh\nls\n```\n\nWords between.\n\n"])
def test_output_that_follows_no_command_is_an_error(between):
    with pytest.raises(ValueError, match="this output has no command before it: 1"):
        examples(between + "```text\n1\n```\n")


def test_the_command_writes_a_new_folder_and_touches_no_other(tmp_path, capsys):
    document, folder = str(ROOT / "docs" / "serving.md"), tmp_path / "serving"
    assert write_doc_examples.main([document, str(folder)]) == 0
    assert (folder / "waits" / "config.pbtxt").read_text().startswith('name: "waits"\n')
    assert write_doc_examples.main([document, str(folder)]) == 1
    assert capsys.readouterr().err == f"error: {folder}: File exists\n"


def test_a_wrong_call_is_answered_with_how_it_is_called(capsys):
    assert write_doc_examples.main([]) == 2
    assert capsys.readouterr().err.strip() == (write_doc_examples.__doc__ or "").strip()
