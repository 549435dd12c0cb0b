"""Tags of words in comparisons and calibration, by the commands, on tiny data; tests/records has folds and reviews."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import log_loss
from typer.testing import CliRunner

import glassformer as gf
from glassformer.cli.app import build_app
from glassformer.data.tagged import format_conll, load_tagged
from glassformer.errors import CheckpointError, InputError
from glassformer.evaluate.calibrate import calibration_error, confidences
from glassformer.targets.token_tags import tag_metrics
from glassformer.tasks.load import load

NAMES, PLACES, VERBS = ("Ann", "Bo", "Cy", "Di"), ("Rome", "Oslo", "Bonn"), ("saw", "left", "likes")
TINY = ["d_model=14", "num_layers=1", "num_heads=2", "d_ff=11", "epochs=3", "batch_size=5", "lr=0.02"]
TINY += ["min_count=1", "precision=fp32", "threads=1", "max_length=16", "bootstrap=53", "monitor=loss"]


def sentences(n: int, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    rng, words, tags = np.random.default_rng(seed), [], []
    for i in range(n):
        a, b = rng.choice(NAMES), rng.choice(PLACES)
        words.append([a, rng.choice(VERBS), "New", b, str(i)] if i % 3 else ["it", "rains", str(i)])
        tags.append(["B-per", "O", "B-loc", "I-loc", "O"] if i % 3 else ["O", "O", "O"])
    return words, tags


def call(*words: object) -> str:
    found = CliRunner().invoke(build_app(), [str(word) for word in words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def refused(*words: object) -> str:
    found = CliRunner().invoke(build_app(), [str(word) for word in words])
    assert isinstance(found.exception, InputError), found.output
    return str(found.exception)


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """Runs of two recipes on the same data."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "data").mkdir()
    for seed, (split, count) in enumerate({"train": 41, "validation": 17, "test": 19}.items()):
        (folder / "data" / f"{split}.conll").write_text(format_conll(*sentences(count, seed)))
    settings = [x for s in [*TINY, f"source={folder / 'data'}"] for x in ("--set", s)]
    recipe = folder / "tiny.toml"
    recipe.write_text('task = "token-tagging"\nname = "tiny"\n[model]\nmodel = "encoder-mini"\n')
    for name, extra in {"a": [], "c": ["epochs=1", "lr=0.001"]}.items():
        more = [x for s in extra for x in ("--set", s)]
        call("train", recipe, *settings, *more, "--out", folder / name)
    return folder


def test_runs_are_compared_by_their_spans_on_the_same_sentences(work):
    said = call("compare", work / "a", work / "c", "--json")
    results = json.loads(said[said.index("{") :])
    assert results["measure"] == "entity_f1"
    scores = [json.loads((work / name / "metrics.json").read_text())["test"] for name in "ac"]
    assert any(one["accuracy"] != one["entity_f1"] for one in scores)
    for measure in ("entity_f1", "macro_f1", "accuracy"):
        means = [arm[measure]["mean"] for arm in results["arms"]]
        assert means == pytest.approx([one[measure] for one in scores], abs=1e-6)


def test_runs_of_another_split_are_refused(work):
    assert "was evaluated on test, not on validation" in refused(
        "compare", work / "a", work / "c", "--split", "validation"
    )


def test_the_bootstrap_of_one_run_is_that_of_its_own_figures(work):
    """Percentiles of resampled sentences: as ``tag_metrics`` draws them, up to the draws."""
    results = call("compare", work / "a", work / "c", "--json")
    (first, _) = json.loads(results[results.index("{") :])["arms"]
    truth = load_tagged(work / "a" / "predictions.conll", tags_column="2").splits["train"].tags
    made = load_tagged(work / "a" / "predictions.conll", tags_column="3").splits["train"].tags
    mine = tag_metrics(truth, made, "BIO", bootstrap=4000)["entity_f1_interval"]
    assert first["entity_f1"]["interval"] == pytest.approx(mine, abs=0.04)


def test_runs_on_other_sentences_or_of_another_kind_are_refused(work, tmp_path):
    from shutil import copytree

    other = copytree(work / "c", tmp_path / "d")
    file = other / "predictions.conll"
    file.write_text(file.read_text().replace("rains", "snows", 1))
    assert "different examples" in refused("compare", work / "a", other)


def test_temperature_is_fitted_to_words_and_saved(work):
    before = load(work / "a")
    held = load_tagged(work / "data").splits["validation"]
    said = call("calibrate", work / "a")
    after = load(work / "a")
    found = json.loads((work / "a" / "calibration.json").read_text())
    assert after.temperature_ == found["temperature"] != 1.0
    assert after.predict(held.words) == before.predict(held.words)
    targets = [after.classes_.tolist().index(t) for tags in held.tags for t in tags]
    for side, tagger in (("before", before), ("after", after)):
        p = np.concatenate(tagger.predict_proba(held.words))
        told = found["splits"]["validation"][side]
        assert told["ece"] == pytest.approx(calibration_error(*confidences(p, targets)))
        assert told["log_loss"] == pytest.approx(log_loss(targets, p, labels=range(5)))
        assert told["ece_interval"][0] <= told["ece_interval"][1]
    figures = found["splits"]
    assert figures["validation"]["after"]["log_loss"] < figures["validation"]["before"]["log_loss"]
    assert {"validation", "test"} == figures.keys()
    assert "words right" in said
    assert "expected calibration error" in (work / "a" / "report.html").read_text()
    call("calibrate", work / "a")
    assert load(work / "a").temperature_ == pytest.approx(found["temperature"])
    span = next(s for own in after.spans(held.words) for s in own)
    assert span.probability != next(s for own in before.spans(held.words) for s in own).probability
    assert "has no effect on taggers" in refused("calibrate", work / "a", "--threshold", "f1")


def test_a_folder_from_before_there_was_a_temperature_opens(work, tmp_path):
    tagger = gf.load(work / "c" / "model")
    assert tagger.temperature_ == 1.0
    saved = tagger.save(tmp_path / "old")
    about = json.loads((saved / "glassformer.json").read_text())
    del about["temperature"]
    restored = gf.TokenTagger.restore(saved, about)
    assert restored.temperature_ == 1.0
    with pytest.raises(CheckpointError, match="temperature"):
        gf.TokenTagger.restore(saved, about | {"temperature": -1})
