"""The task word2vec: a recipe becomes a run folder, and the verbs that read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.cli.evaluate import evaluate
from glassformer.cli.train import choose_recipe
from glassformer.cli.vectors import convert, look_up
from glassformer.data.corpus import countries_sentences
from glassformer.errors import ConfigError, DataError, InputError
from glassformer.recipe import load_recipe
from glassformer.recipe_vectors import CorpusConfig
from glassformer.study.tasks import run_task
from glassformer.study.vectors import load_sentences

SETTINGS = ["dim=13", "epochs=2", "limit=800", 'tests=["countries", "wordsim353"]']


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GLASSFORMER_DATA", raising=False)
        folder = tmp_path_factory.mktemp("vectors") / "run"
        run_task(load_recipe("countries-word2vec", SETTINGS), folder)
    return folder


def test_the_run_folder(run):
    names = {
        "checkpoints",
        "config.toml",
        "history.jsonl",
        "metrics.json",
        "model",
        "report.html",
        "vectors.txt",
    }
    assert {path.name for path in run.iterdir()} == names
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["tests"]["countries"]["questions"] == 325
    assert metrics["tests"]["wordsim353"] is None
    assert metrics["norms"]["after"]["mean"] > metrics["norms"]["before"]["mean"]
    assert set(metrics["neighbours"]) == {"france", "paris", "euro", "king"}
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert [r["step"] for r in history] == [1, 2]
    page = (run / "report.html").read_text()
    assert "king man woman" in page
    assert "not measured" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_resume_and_refusals(run, tmp_path):
    recipe = load_recipe("countries-word2vec", SETTINGS)
    with pytest.raises(ConfigError, match="the output folder exists"):
        run_task(recipe, run)
    with pytest.raises(ConfigError, match="holds a run of another recipe"):
        run_task(load_recipe("countries-word2vec", [*SETTINGS, "dim=11"]), run, resume=True)
    before = gf.Word2Vec.load(run).vectors_
    run_task(recipe, run, resume=True)
    assert (gf.Word2Vec.load(run).vectors_ == before).all()
    with pytest.raises(ConfigError, match="a recipe of word2vec has no model"):
        choose_recipe("countries-word2vec", model="lstm")


def test_the_readable_engine_makes_a_run_too(tmp_path):
    settings = [*SETTINGS, "epochs=1", 'tests=["countries"]']
    done = run_task(load_recipe("countries-word2vec-adam", settings), tmp_path / "run")
    assert done.metrics["loss"]
    assert (done.folder / "report.html").is_file()


def test_verbs(run, tmp_path):
    assert len(look_up(run, ["paris"], 3)) == 3
    assert len(look_up(run / "vectors.txt", ["king", "man", "woman"], 2)) == 2
    with pytest.raises(InputError, match="Did you mean 'paris'"):
        look_up(run, ["pariss"])
    with pytest.raises(ConfigError, match="2 words"):
        look_up(run, ["king", "man"])
    convert(run, tmp_path / "v.bin")
    assert (gf.Word2Vec.load(tmp_path / "v.bin").vectors_ == gf.Word2Vec.load(run).vectors_).all()
    with pytest.raises(ConfigError, match="exists"):
        convert(run, tmp_path / "v.bin")
    assert evaluate(run, tell=lambda line: None)["countries"]["questions"] == 325
    folder = tmp_path / "clf"
    gf.TextClassifier("textcnn", epochs=1, min_count=1).fit(["a b c", "d e f"], [0, 1]).save(folder)
    with pytest.raises(InputError, match="not word vectors"):
        gf.Word2Vec.load(folder)


def test_sentences_from_a_file(tmp_path):
    file = tmp_path / "corpus.txt"
    file.write_text("The King, and<br />the Queen!\n\nDon't go.\n", encoding="utf-8")
    found = load_sentences(CorpusConfig(str(file)))
    assert found == [["the", "king", "and", "the", "queen"], ["don't", "go"]]
    found = load_sentences(CorpusConfig(str(file), lowercase=False, punctuation=True, limit=1))
    assert found == [["The", "King", ",", "and", "the", "Queen", "!"]]
    assert len(load_sentences(CorpusConfig("countries"))) == len(countries_sentences())
    file.write_text("...\n")
    with pytest.raises(DataError, match="no text holds a word"):
        load_sentences(CorpusConfig(str(file)))
