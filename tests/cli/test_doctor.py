"""``doctor``, ``doctor MODEL``, ``data doctor``, ``data show`` and ``demo``."""

import json
import shutil
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from glassformer.checkpoints.hub import CATALOG
from glassformer.cli import demo as demos
from glassformer.cli import doctor as doctor_module
from glassformer.cli.demo import REPLACEABLE, demo
from glassformer.data.image_sources import NAMED_IMAGES
from glassformer.data.text import wordpiece_tokenizer
from glassformer.data.transform import ImageTransform
from glassformer.errors import ConfigError
from glassformer.families import FAMILIES
from glassformer.families.pretrained import save_pretrained
from glassformer.inputs.images import save_transform
from glassformer.tasks.catalog import load_recipe

from .tiny import RUN_FILES, sets, settings, write_csv

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [name for name, known in NAMED_IMAGES.items() if known.folder])
def test_pictures_that_are_not_here_say_where_to_get_them(gf, refused, monkeypatch, tmp_path, name):
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path / "nothing"))
    origin = NAMED_IMAGES[name].origin
    assert origin
    said = refused("data", "show", name)
    assert f"{name!r} is not on this machine. Get it from {origin}, put its Parquet" in said
    monkeypatch.setenv("COLUMNS", "400")
    assert f"not here; available from {origin}" in gf("data", "list").out


def test_doctor_on_this_machine(gf, ok):
    result = ok("doctor", "--json")
    report = json.loads(result.out)
    assert set(report) == {"machine", "packages", "data", "weights"}
    found = {line["what"]: line["found"] for lines in report.values() for line in lines}
    assert found["torch"].startswith("2.")
    assert {"bf16", "searched folder", "imdb", "all-minilm-l6-v2"} <= found.keys()
    assert "ready" in gf("doctor").out


def test_doctor_misses_what_is_needed(gf, monkeypatch: pytest.MonkeyPatch):
    packages = doctor_module.required_packages() | {"no-such-package": "1.0", "numpy": "99.0"}
    monkeypatch.setattr(doctor_module, "required_packages", lambda: packages)
    result = gf("doctor")
    assert result.code == 1
    assert result.err == ""
    assert "missing: numpy, no-such-package" in result.out


def test_doctor_knows_the_requirements_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = dict(line.split(">=") for line in project["dependencies"])
    named = {name.replace("_", "-"): least for name, least in wanted.items()}
    assert named == doctor_module.required_packages()


def demo_settings() -> list[str]:
    return [pair for pair in settings("limit=300", "epochs=2") if pair != "--set"]


def test_demo_replaces_an_earlier_demo_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "demo-run"
    first, recipe = demo(folder, demo_settings(), "europe")
    left = REPLACEABLE - {"baselines.csv", "grid.png", "pictures.json", ".lock"}
    assert {p.name for p in folder.iterdir()} == RUN_FILES == left
    assert recipe.name == "europe"
    (folder / "report.html").write_text("old", encoding="utf-8")
    (folder / ".model.4711-0123abcd.tmp").mkdir()  # as a kill leaves behind
    assert demo(folder, demo_settings(), "europe")[0].report.read_text(encoding="utf-8") != "old"
    (folder / "thesis.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(ConfigError, match="not an earlier demo"):
        demo(folder, demo_settings(), "europe")
    assert (folder / "thesis.txt").read_text(encoding="utf-8") == "dear"
    assert first.report.is_file()


def test_demo_looks_at_pictures_too(tmp_path: Path):
    quick = ["epochs=1", "limit=151", "bootstrap=20", "baselines=false"]
    run, recipe = demo(tmp_path / "demo-digits", quick, name="digits")
    assert recipe.task == "image-classification"
    assert {p.name for p in run.folder.iterdir()} - REPLACEABLE == set()
    demo(tmp_path / "demo-digits", quick, name="digits")
    (run.folder / "config.toml").write_text('name = "mine"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="not an earlier demo"):
        demo(tmp_path / "demo-digits", quick, name="digits")


def test_a_quick_demo_asks_for_less_of_the_same(ok, monkeypatch: pytest.MonkeyPatch):
    asked = {}
    monkeypatch.setattr(
        demos, "demo", lambda folder, settings, name: asked.update({name: settings}) or ("run", "recipe")
    )
    monkeypatch.setattr(demos, "show_run", lambda run, recipe: None)
    monkeypatch.setattr(demos, "explain", lambda run, texts: None)
    ok("demo")
    assert asked == {"messages": (), "digits": ()}
    monkeypatch.setattr("glassformer.checkpoints.hub.is_available", lambda name: False)
    ok("demo", "--quick")
    assert asked.keys() == {"messages", "europe", "digits"}
    for name in ("europe", "digits"):
        whole, less = load_recipe(name), load_recipe(name, asked[name])
        assert less.train.epochs < whole.train.epochs
        assert less.evaluate.bootstrap < whole.evaluate.bootstrap


def test_the_demo_explains_predictions(run: Path, capsys: pytest.CaptureFixture[str]):
    demos.explain(SimpleNamespace(folder=run), ["The capital of France is Paris ."])
    assert "France" in capsys.readouterr().out


@pytest.mark.slow
def test_a_quick_demo_runs_and_learns(ok):
    ok("demo", "--quick")
    for folder, least in (("demo-run", 0.4), ("demo-digits", 0.6)):
        metrics = json.loads(Path(folder, "metrics.json").read_text(encoding="utf-8"))
        assert metrics["test"]["accuracy"] > least


def test_demo_leaves_other_runs_and_links_alone(refused, run: Path, tmp_path: Path):
    run.rename(tmp_path / "demo-digits")
    assert "not an earlier demo" in refused("demo")
    assert not (tmp_path / "demo-run").exists()  # what is in its way is found first
    (tmp_path / "demo-digits").rename(tmp_path / "kept")
    (tmp_path / "demo-run").symlink_to(tmp_path / "kept")
    assert "not an earlier demo" in refused("demo")
    assert {p.name for p in (tmp_path / "kept").iterdir()} == RUN_FILES


def test_doctor_finds_weights_in_the_hub_cache_without_asking_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    known = CATALOG["bert-base-uncased"]
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    before = {line.what: line for line in doctor_module.examine_machine()["weights"]}
    assert before["bert-base-uncased"].state == "note"
    folder = tmp_path / "models--google-bert--bert-base-uncased" / "snapshots" / known.revision
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (folder / name).touch()
    after = {line.what: line for line in doctor_module.examine_machine()["weights"]}
    assert after["bert-base-uncased"].state == "ok"


# --- a model ----------------------------------------------------------------------------------------


def put(folder: Path, kind: str, tokenizer: bool = True) -> Path:
    """A tiny checkpoint as the Hub has it."""
    torch.manual_seed(0)
    family = FAMILIES[kind]
    save_pretrained(family.model(family.tiny()), folder, label_names=("a", "b", "c"))
    if tokenizer:
        found = wordpiece_tokenizer(["abc abd abe", "a b c d e"] * 3, vocab_size=31, min_count=1)
        found.save(str(folder / "tokenizer.json"))
    return folder


def lines(result) -> dict[str, dict]:
    return {line["what"]: line for part in json.loads(result.out).values() for line in part}


@pytest.mark.parametrize("kind", ["bert", "distilbert", "glassformer-textcnn"])
def test_a_model_that_opens(gf, ok, kind, tmp_path):
    found = ok("doctor", put(tmp_path / "m", kind), "--json")
    said = lines(found)
    assert not [line for line in said.values() if line["state"] == "missing"]
    assert said["family"]["found"].startswith(f"{kind}, reads texts")
    assert said["head"]["found"].startswith("3 classes")
    assert said["read from"]["found"] == "tokenizer.json"
    assert "no modules.json" in said["embed"]["found"]
    assert ("train further" in said) == (kind != "glassformer-textcnn")
    opens = "pooling='first', head='mlp' it opens the head too" in said["fine-tune"]["found"]
    assert opens == (kind == "distilbert")
    assert "ready" in gf("doctor", tmp_path / "m").out


def test_pieces_of_sentence_piece_are_named_with_what_is_wrong(gf, tmp_path):
    folder, pieces = put(tmp_path / "m", "xlm-roberta", tokenizer=False), tmp_path / "m" / "spiece.model"
    shutil.copy(Path(__file__).parents[1] / "data" / "pieces" / "unigram.model", pieces)
    said = lines(gf("doctor", folder, "--json"))
    assert said["read from"]["found"] == "spiece.model"
    assert said["kind"]["found"] == "Unigram, 702 tokens"
    pieces.write_bytes(pieces.read_bytes()[:5000])
    said = lines(gf("doctor", folder, "--json"))["tokenizer"]["found"]
    assert "not a SentencePiece model that can be used: field 1 has" in said


@pytest.mark.parametrize("kind", [n for n, f in FAMILIES.items() if f.hub and f.model.reads == "images"])
def test_what_a_head_on_an_image_encoder_reads(gf, kind, tmp_path):
    folder = put(tmp_path / "m", kind, tokenizer=False)
    save_transform(ImageTransform((8, 8)), folder)
    said = lines(gf("doctor", folder, "--json"))["fine-tune"]["found"]
    assert f": {FAMILIES[kind].hub.pooling} pooling, new linear head" in said
    assert "opens the head" not in said


def test_what_embed_will_do(gf, tmp_path):
    folder = put(tmp_path / "m", "bert")
    (folder / "1_Pooling").mkdir()
    kinds = [("", "models.Transformer"), ("1_Pooling", "models.Pooling"), ("", "models.Normalize")]
    steps = [{"path": path, "type": f"sentence_transformers.{kind}"} for path, kind in kinds]
    (folder / "modules.json").write_text(json.dumps(steps))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    said = lines(gf("doctor", folder, "--json"))
    assert "modules.json: cls, Normalize; dimension 12" in said["embed"]["found"]
    assert ": unit-first pooling, new linear head" in said["fine-tune"]["found"]
    steps[2]["type"] = "sentence_transformers.models.Strange"
    (folder / "modules.json").write_text(json.dumps(steps))
    assert lines(gf("doctor", folder, "--json"))["embed"]["found"].startswith("not possible: ")


@pytest.mark.parametrize(
    ("harm", "what", "said"),
    [
        ({"model_type": "bart"}, "model", "model_type 'bart' is not supported"),
        ({"hidden_act": "mish"}, "model", "hidden_act = 'mish' is not supported"),
        ({}, "tokenizer", "no tokenizer here"),
    ],
)
def test_what_is_refused_and_why(gf, harm, what, said, tmp_path):
    folder = put(tmp_path / "m", "bert", tokenizer=False)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | harm))
    found = gf("doctor", folder, "--json")
    assert found.code == 1
    assert lines(found)[what]["state"] == "missing"
    assert said in lines(found)[what]["found"]
    assert f"cannot be used: {what}" in gf("doctor", folder).out


def test_a_run_and_a_model_of_word_vectors_are_named(gf, ok, tmp_path):
    small = ["--set", "limit=200", "--set", "epochs=1"]
    ok("train", "countries-word2vec", "--out", "vectors", *small)
    said = lines(gf("doctor", "vectors", "--json"))
    assert said["run"]["found"] == "countries-word2vec, word2vec, trained on countries"
    assert said["saved by glassformer"]["found"] == "Word2Vec"
    assert said["use"]["found"].startswith("glassformer vectors vectors, or gf.load('vectors')")
    assert "run" not in lines(gf("doctor", "vectors/model", "--json"))
    (tmp_path / "vectors" / "model" / "model.safetensors").write_bytes(b"cut")
    found = gf("doctor", "vectors", "--json")
    assert found.code == 1
    assert lines(found)["saved by glassformer"]["state"] == "missing"


# --- settings of a recipe ---------------------------------------------------------------------------


@pytest.fixture
def prices(tmp_path):
    things = [("pen", 2.0), ("lamp", 40.0), ("car", 9000.0)] * 13
    rows = [(f"a {thing} for sale in town {i}", f"€{value + i}") for i, (thing, value) in enumerate(things)]
    write_csv(tmp_path / "prices.csv", [*rows, ("a mug", "0"), ("a cup", "-3")], "advert,price")
    return "prices.csv"


def codes(report: dict, *severities: str) -> set[str]:
    return {f["code"] for f in report["findings"] if not severities or f["severity"] in severities}


def test_numbers_are_looked_at_as_they_will_be_learned(as_json, ok, prices):
    amounts = ["data", "doctor", prices, *sets("target=number", "number_format=amount")]
    report = as_json(*amounts)
    assert {"numbers", "bad-rows", "balance"} & codes(report) == {"numbers"}  # no classes
    assert sum(split["rows"] for split in report["figures"]["splits"].values()) == 41
    logs = [*amounts, "--set", "number_scale=log"]
    (bad,) = [finding for finding in as_json(*logs)["findings"] if finding["code"] == "bad-rows"]
    assert bad["count"] == 2
    assert "not above 0" in bad["message"]
    command = ok(*logs).out.splitlines()[-1]
    assert f"{' '.join(logs[3:])} --on-bad-row skip" in command
    Path("plain.csv").write_text(Path(prices).read_text().replace("€", "") + "a jar,0.5\n")
    assert "(to check them, add --set target=number)" in ok("data", "doctor", "plain.csv").out


def test_settings_of_classes_change_what_is_found(as_json, tmp_path):
    kinds = [("fine", "good"), ("dull", "bad")]
    rows = [(f"a {kinds[i % 2][0]} film {i} to see", kinds[i % 2][1]) for i in range(18)]
    write_csv(tmp_path / "films.csv", [*rows, ("a fine film of old", "Good"), rows[0]])
    found = {"twin-classes", "duplicates"}
    assert found <= codes(as_json("data", "doctor", "films.csv"), "warning")
    mended = ["data", "doctor", "films.csv", *sets("merge_labels=spelling", "drop_duplicates=true")]
    assert not found & codes(as_json(*mended), "warning")
    assert {*as_json(*mended, "--set", "test_size=0.3")["figures"]["splits"]} == {"train", "test"}


def test_pairs_and_pictures_with_numbers(as_json, tmp_path):
    rows = [(f"a dog runs {i}", f"an animal moves {i}", f"{i % 5}.5") for i in range(29)]
    write_csv(tmp_path / "pairs.csv", rows, "sentence1,sentence2,score")
    for i in range(23):
        Image.fromarray(np.full((8, 8, 3), 10 * i, np.uint8)).save(tmp_path / f"{i}.png")
    bright = [(f"{i}.png", f"{i / 2}") for i in range(23)]
    write_csv(tmp_path / "bright.csv", bright, "image,brightness")
    report = as_json("data", "doctor", "pairs.csv", "--set", "target=number")
    assert "numbers" in codes(report)
    assert report["figures"]["splits"]["train"]["rows"] == 29
    assert "numbers" in codes(as_json("data", "doctor", "bright.csv", "--set", "target=number"))
