"""``glassformer data``, ``doctor`` and ``demo``."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from glassformer.checkpoints.hub import CATALOG
from glassformer.cli import demo as demos
from glassformer.cli import doctor as doctor_module
from glassformer.cli.data import describe
from glassformer.cli.demo import OURS, demo
from glassformer.data.image_sources import NAMED_IMAGES
from glassformer.data.sources import load_text_dataset
from glassformer.errors import ConfigError
from glassformer.tasks.catalog import load_recipe

from .tiny import RUN_FILES, sentences, settings, write_csv

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [name for name, known in NAMED_IMAGES.items() if known.folder])
def test_pictures_that_are_not_here_say_where_to_get_them(gf, refused, monkeypatch, tmp_path, name):
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path / "nothing"))
    origin = NAMED_IMAGES[name].origin
    assert origin
    assert f"{name!r} is not on this machine. Get it from {origin}, put its Parquet" in refused(
        "data", "show", name
    )
    monkeypatch.setenv("COLUMNS", "400")
    assert f"not here; to be had from {origin}" in gf("data", "list").out


def test_data_show(gf, reviews: Path):
    about = json.loads(gf("data", "show", reviews, "--json").out)
    assert about == describe(load_text_dataset(reviews))
    assert about["splits"]["train"]["texts"] == 60
    assert about["splits"]["train"]["classes"] == {"neg": 30, "pos": 30}
    shown = gf("data", "show", reviews)
    assert shown.code == 0
    assert "splendid" in shown.out


def test_data_doctor_finds_a_leak(gf, tmp_path: Path):
    write_csv(tmp_path / "data" / "train.csv", sentences(20))
    write_csv(tmp_path / "data" / "test.csv", [*sentences(6, seed=5), sentences(20)[3]])
    report = json.loads(gf("data", "doctor", tmp_path / "data", "--json").out)
    leak = next(f for f in report["findings"] if f["code"] == "leaks")
    assert (leak["severity"], leak["count"]) == ("warning", 1)
    shown = gf("data", "doctor", tmp_path / "data")
    assert shown.code == 0
    assert shown.out.index("warning") < shown.out.index("ok")


def test_data_doctor_looks_at_tokens_of_a_saved_model(gf, run: Path, reviews: Path):
    report = json.loads(
        gf("data", "doctor", reviews, "--model", run / "model", "--max-length", 5, "--json").out
    )
    cut = next(f for f in report["findings"] if f["code"] == "truncation")
    assert cut["count"] == 60


def test_pairs_are_shown_and_examined(gf, tmp_path: Path):
    rows = [(f"a dog number {i} sleeps there", f"ein Hund Nummer {i} schläft dort") for i in range(13)]
    data = write_csv(tmp_path / "pairs.csv", [*rows, rows[5], ("a cat sleeps", "")], "source,target")
    shown = gf("data", "show", data)
    assert shown.code == 0
    assert "ein Hund Nummer 0" in shown.out
    assert json.loads(gf("data", "show", data, "--json").out)["splits"]["train"]["pairs"] == 15
    report = json.loads(gf("data", "doctor", data, "--json").out)
    codes = {f["code"]: f["count"] for f in report["findings"] if f["severity"] == "warning"}
    assert codes == {"empty": 1, "duplicates": 1}
    assert "--model" not in gf("data", "doctor", data).out  # a tokenizer has nothing to add


def test_a_folder_of_pictures_is_shown_and_examined(gf, tmp_path: Path):
    for label, shade in (("cat", 3), ("dog", 7)):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for i in range(5):
            Image.new("RGB", (7, 5), (shade, i % 3, 0)).save(tmp_path / "pets" / label / f"{i}.png")
    shown = gf("data", "show", tmp_path / "pets")
    assert shown.code == 0
    assert "cat: 5, dog: 5" in shown.out
    report = json.loads(gf("data", "doctor", tmp_path / "pets", "--json").out)
    assert report["name"] == "pets"
    assert next(f["count"] for f in report["findings"] if f["code"] == "repeats") == 4


def test_doctor_on_this_machine(gf):
    result = gf("doctor", "--json")
    assert result.code == 0, result.out
    report = json.loads(result.out)
    assert set(report) == {"machine", "packages", "data", "weights"}
    found = {line["what"]: line["found"] for lines in report.values() for line in lines}
    assert found["torch"].startswith("2.")
    assert {"bf16", "looked for in", "imdb", "all-minilm-l6-v2"} <= found.keys()
    assert "ready" in gf("doctor").out


def test_doctor_misses_what_is_needed(gf, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(doctor_module.NEEDED, "no-such-package", "1.0")
    monkeypatch.setitem(doctor_module.NEEDED, "numpy", "99.0")
    result = gf("doctor")
    assert result.code == 1
    assert result.err == ""
    assert "missing: numpy, no-such-package" in result.out


def test_doctor_knows_the_requirements_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = dict(line.split(">=") for line in project["dependencies"])
    assert wanted == doctor_module.NEEDED


def demo_settings() -> list[str]:
    return [pair for pair in settings("limit=300", "epochs=2") if pair != "--set"]


def test_demo_replaces_an_earlier_demo_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "demo-run"
    first, recipe = demo(folder, demo_settings(), "europe")
    assert (
        {p.name for p in folder.iterdir()}
        == RUN_FILES
        == OURS - {"baselines.csv", "grid.png", "pictures.json", ".lock"}
    )
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
    assert {p.name for p in run.folder.iterdir()} - OURS == set()
    demo(tmp_path / "demo-digits", quick, name="digits")
    (run.folder / "config.toml").write_text('name = "mine"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="not an earlier demo"):
        demo(tmp_path / "demo-digits", quick, name="digits")


def test_a_quick_demo_asks_for_less_of_the_same(gf, monkeypatch: pytest.MonkeyPatch):
    asked = {}
    monkeypatch.setattr(
        demos, "demo", lambda folder, settings, name: asked.update({name: settings}) or ("run", "recipe")
    )
    monkeypatch.setattr(demos, "show_run", lambda run, recipe: None)
    monkeypatch.setattr(demos, "explain", lambda run, texts: None)
    assert gf("demo").code == 0
    assert asked == {"messages": (), "digits": ()}
    monkeypatch.setattr("glassformer.checkpoints.hub.is_at_hand", lambda name: False)
    assert gf("demo", "--quick").code == 0
    assert asked.keys() == {"messages", "europe", "digits"}
    for name in ("europe", "digits"):
        whole, less = load_recipe(name), load_recipe(name, asked[name])
        assert less.train.epochs < whole.train.epochs
        assert less.evaluate.bootstrap < whole.evaluate.bootstrap


def test_the_demo_explains_predictions(run: Path, capsys: pytest.CaptureFixture[str]):
    demos.explain(SimpleNamespace(folder=run), ["The capital of France is Paris ."])
    assert "France" in capsys.readouterr().out


@pytest.mark.slow
def test_a_quick_demo_runs_and_learns(gf):
    assert gf("demo", "--quick").code == 0
    for folder, least in (("demo-run", 0.6), ("demo-digits", 0.6)):
        metrics = json.loads(Path(folder, "metrics.json").read_text(encoding="utf-8"))
        assert metrics["test"]["accuracy"] > least


def test_demo_finds_what_is_in_its_way_first(refused, run: Path, tmp_path: Path):
    run.rename(tmp_path / "demo-digits")
    assert "not an earlier demo" in refused("demo")
    assert not (tmp_path / "demo-run").exists()


def test_demo_leaves_other_runs_and_links_alone(gf, refused, run: Path, tmp_path: Path):
    run.rename(tmp_path / "demo-run")
    assert "not an earlier demo" in refused("demo")
    (tmp_path / "demo-run").rename(tmp_path / "kept")
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
