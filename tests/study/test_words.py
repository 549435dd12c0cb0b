"""Tags of words in folds, comparisons, reviews and calibration, by the commands, on tiny data."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import log_loss
from typer.testing import CliRunner

import glassformer as gf
from glassformer.cli.app import app
from glassformer.data.tagged import conll, load_tagged
from glassformer.data.tags import spans_of
from glassformer.errors import CheckpointError, InputError
from glassformer.evaluate.calibrate import calibration_error
from glassformer.targets.token_tags import tag_figures
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
    found = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def refused(*words: object) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(found.exception, InputError), found.output
    return str(found.exception)


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """Data with two wrong tags, and runs of two seeds and of another recipe."""
    folder = tmp_path_factory.mktemp("words")
    words, tags = sentences(41, 0)
    tags[1][0], tags[2][3] = "O", "B-per"
    for split, (w, t) in {
        "train": (words, tags),
        "validation": sentences(17, 1),
        "test": sentences(19, 2),
    }.items():
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / f"{split}.conll").write_text(conll(w, t))
    settings = [x for s in [*TINY, f"source={folder / 'data'}"] for x in ("--set", s)]
    recipe = folder / "tiny.toml"
    recipe.write_text('task = "token-tagging"\nname = "tiny"\n[model]\nmodel = "encoder-mini"\n')
    for name, extra in {"a": [], "b": ["seed=1"], "c": ["epochs=1", "lr=0.001"]}.items():
        more = [x for s in extra for x in ("--set", s)]
        call("train", recipe, *settings, *more, "--out", folder / name)
    call("cross-validate", recipe, *settings, "--folds", 3, "--out", folder / "folds")
    return folder


def test_every_word_is_answered_once_by_a_model_that_has_not_seen_it(work):
    metrics = json.loads((work / "folds" / "metrics.json").read_text())
    train = load_tagged(work / "data").splits["train"]
    made = load_tagged(work / "folds" / "predictions.conll", tags_column="3").splits["train"].tags
    true = load_tagged(work / "folds" / "predictions.conll", tags_column="2").splits["train"].tags
    assert true == train.tags
    mine = tag_figures(train.tags, made, "BIO", bootstrap=53)
    assert metrics["test"] == mine
    numbers = np.array(json.loads((work / "folds" / "folds.json").read_text())["assignment"])
    spans = np.array([bool(spans_of(tags, "BIO")) for tags in train.tags])
    for k, fold in enumerate(metrics["folds"]):
        held = np.flatnonzero(numbers == k)
        own = tag_figures([train.tags[i] for i in held], [made[i] for i in held], "BIO", bootstrap=0)
        assert (fold["entity_f1"], fold["n"]) == (own["entity_f1"], len(held))
        assert abs(spans[held].sum() - spans.sum() / 3) < 1
        p = np.load(work / "folds" / f"fold-{k}" / "probabilities.npy")
        given = [metrics["label_names"].index(t) for i in held for t in train.tags[i]]
        assert fold["log_loss"] == pytest.approx(log_loss(given, p, labels=range(5)), rel=1e-4)
    found = [fold["entity_f1"] for fold in metrics["folds"]]
    assert metrics["over_folds"]["entity_f1"]["sd"] == pytest.approx(np.std(found, ddof=1))
    assert "entity F1" in (work / "folds" / "report.html").read_text().replace("Entity F1", "entity F1")


def test_finished_folds_are_kept_and_another_number_is_refused(work):
    recipe = work / "folds" / "config.toml"
    said = call("cross-validate", recipe, "--folds", 3, "--out", work / "folds")
    assert said.count("(kept)") == 3
    assert "words right" in said
    assert "holds 3 folds, not 4" in refused("cross-validate", recipe, "--folds", 4, "--out", work / "folds")


def test_wrong_tags_are_found_and_the_table_goes_back(work):
    said = call("review-labels", work / "folds", "--top", 30)
    review = json.loads((work / "folds" / "review.json").read_text())
    assert review["n"] == sum(map(len, load_tagged(work / "data").splits["train"].words))
    assert len(review["suggestions"]) == review["listed"] == 30
    shares = [s["label_probability"] for s in review["suggestions"] if not s["suspicious"]]
    assert shares == sorted(shares)
    first = review["suggestions"][0]
    table = work / "folds" / "to_correct.conll"
    assert "to_correct.conll" in said
    corrected = load_tagged(table).splits["train"]
    given = load_tagged(work / "data").splits["train"]
    assert sorted(zip(corrected.words, corrected.tags)) == sorted(zip(given.words, given.tags))
    doubted = first["text"].split("\u00ab")[1].split("\u00bb")[0]
    assert doubted in corrected.words[0]  # its sentence is the first
    text = table.read_text()
    table.write_text(text.replace("\tO\n", "\tB-per\n", 1))
    assert "has been edited" in call("review-labels", work / "folds")
    (recipe, *rest) = review["give_back"][2:]
    quick = ["--set", "epochs=1", "--set", "baselines=false", "--out", work / "again"]
    call("train", recipe, *rest, *quick)
    assert json.loads((work / "again" / "metrics.json").read_text())["train"]["of"] == 41


def test_runs_are_compared_by_their_spans_on_the_same_sentences(work):
    said = call("compare", work / "a", work / "b", work / "c", "--out", work / "beside")
    results = json.loads((work / "beside" / "results.json").read_text())
    assert results["measure"] == "entity_f1"
    assert [len(arm["seeds"]) for arm in results["arms"]] == [2, 1]
    mine = [json.loads((work / name / "metrics.json").read_text())["test"] for name in "abc"]
    values = [v for arm in results["arms"] for v in arm["entity_f1"]["values"]]
    assert values == pytest.approx([m["entity_f1"] for m in mine], abs=1e-6)
    assert [v for arm in results["arms"] for v in arm["macro_f1"]["values"]] == pytest.approx(
        [m["macro_f1"] for m in mine], abs=1e-6
    )
    assert [v for arm in results["arms"] for v in arm["accuracy"]["values"]] == pytest.approx(
        [m["accuracy"] for m in mine], abs=1e-6
    )
    other = results["arms"][1]
    assert other["test"] == "bootstrap"
    assert other["p"] == other["entity_f1"]["bootstrap_p"]
    low, high = other["entity_f1"]["difference_interval"]
    assert low <= other["entity_f1"]["difference"] <= high
    assert "entity F1" in said
    assert "Entity F1" in (work / "beside" / "report.html").read_text()
    assert "Entity F1" in (work / "beside" / "results.md").read_text()
    lone = call("compare", work / "a", work / "c", "--json")
    assert json.loads(lone[lone.index("{") :])["arms"][1]["p"] <= 1


def test_runs_of_another_split_are_refused(work):
    assert "was evaluated on test, not on validation" in refused(
        "compare", work / "a", work / "c", "--split", "validation"
    )


def test_the_bootstrap_of_one_run_is_that_of_its_own_figures(work):
    """Percentiles of resampled sentences: as ``tag_figures`` draws them, up to the draws."""
    results = call("compare", work / "a", work / "c", "--json")
    (first, _) = json.loads(results[results.index("{") :])["arms"]
    truth = load_tagged(work / "a" / "predictions.conll", tags_column="2").splits["train"].tags
    made = load_tagged(work / "a" / "predictions.conll", tags_column="3").splits["train"].tags
    mine = tag_figures(truth, made, "BIO", bootstrap=4000)["entity_f1_interval"]
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
        assert told["ece"] == pytest.approx(calibration_error(p, targets))
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
    assert "no threshold" in refused("calibrate", work / "a", "--threshold", "f1")


def test_a_folder_from_before_there_was_a_temperature_opens(work, tmp_path):
    tagger = gf.load(work / "b" / "model")
    assert tagger.temperature_ == 1.0
    saved = tagger.save(tmp_path / "old")
    about = json.loads((saved / "glassformer.json").read_text())
    del about["temperature"]
    restored = gf.TokenTagger.restore(saved, about)
    assert restored.temperature_ == 1.0
    with pytest.raises(CheckpointError, match="temperature"):
        gf.TokenTagger.restore(saved, about | {"temperature": -1})


def test_sentences_that_cannot_be_used_are_named_or_left_out(work, tmp_path):
    data = tmp_path / "bad.conll"
    data.write_text((work / "data" / "test.conll").read_text() + "\nBo\tB-per\nRome\n")
    assert "bad.conll, row" in refused("evaluate", work / "b", "--data", data)
    said = call("evaluate", work / "b", "--data", data, "--on-bad-row", "skip")
    assert "19 sentences" in said
    assert "left out" in said
    folds = ["cross-validate", work / "tiny.toml", "--set", f"source={data}"]
    assert "bad.conll, row" in refused(*folds, "--out", tmp_path / "folds")
