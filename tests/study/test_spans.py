"""Tags of words and answers to questions in comparisons, calibration and predictions, by the commands, on tiny data."""

import json
import shutil
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

from ..cli.tiny import sets

NAMES, PLACES, VERBS = ("Ann", "Bo", "Cy", "Di"), ("Rome", "Oslo", "Bonn"), ("saw", "left", "likes")
TINY = """
    model=encoder-mini d_model=14 num_layers=1 num_heads=2 d_ff=11 epochs=3 batch_size=5 lr=0.02 min_count=1
    precision=fp32 threads=1 max_length=24 bootstrap=53 seed=2
""".split()


def call(*words: object, **options: object) -> str:
    found = CliRunner().invoke(build_app(), [str(word) for word in words], catch_exceptions=False, **options)
    assert found.exit_code == 0, found.output
    return found.stdout


def refused(*words: object) -> str:
    found = CliRunner().invoke(build_app(), [str(word) for word in words])
    assert isinstance(found.exception, InputError), found.output
    return str(found.exception)


def write_tags(path: Path, n: int, seed: int) -> None:
    rng, words, tags = np.random.default_rng(seed), [], []
    for i in range(n):
        a, b = rng.choice(NAMES), rng.choice(PLACES)
        words.append([a, rng.choice(VERBS), "New", b, str(i)] if i % 3 else ["it", "rains", str(i)])
        tags.append(["B-per", "O", "B-loc", "I-loc", "O"] if i % 3 else ["O", "O", "O"])
    path.with_suffix(".conll").write_text(format_conll(words, tags))


def write_questions(path: Path, n: int, seed: int) -> None:
    lines = []
    for i in range(n):
        city, name = ("New York", "Oslo", "Santiago de Chile")[i % 3], f"Ann {i + 50 * seed}"
        context = f"{name} lives in {city} and bakes"
        answers = {"text": [city], "answer_start": [context.index(city)]}
        if not i % 4:
            answers = {"text": [], "answer_start": []}
        asked = f"where does {name} live" if i % 4 else f"when did {name} come"
        lines.append(json.dumps({"id": f"q{i}", "question": asked, "context": context, "answers": answers}))
    path.with_suffix(".jsonl").write_text("\n".join(lines) + "\n")


def trained(folder: Path, recipe: str, write, changed: str) -> Path:
    """Runs ``a`` and ``c`` of a recipe that differ by settings, on the same data."""
    (folder / "data").mkdir()
    for seed, (split, count) in enumerate({"train": 41, "dev": 17, "test": 19}.items()):
        write(folder / "data" / split, count, seed)
    for name, more in (("a", []), ("c", changed.split())):
        call("train", recipe, "--data", folder / "data", *sets(*TINY, *more), "--out", folder / name)
    return folder


@pytest.fixture(scope="module")
def tags(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tags")
    return trained(folder, "wnut17-minilm", write_tags, "epochs=1 lr=0.001")


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("answers"), "facts-minilm", write_questions, "epochs=6")


def compared(folder: Path) -> tuple[dict, list[dict]]:
    """The results of a comparison of both runs, and what each says of itself."""
    results = json.loads(call("compare", folder / "a", folder / "c", "--json"))
    return results, [json.loads((folder / name / "metrics.json").read_text())["test"] for name in "ac"]


OF_TAGS = {"entity_f1": "entity_f1", "macro_f1": "macro_f1", "accuracy": "accuracy"}


@pytest.mark.parametrize(
    ("kind", "keys"), [("tags", OF_TAGS), ("answers", {"f1": "f1", "accuracy": "exact_match"})]
)
def test_runs_are_compared_by_their_own_measure_on_the_same_examples(request, kind, keys):
    results, scores = compared(request.getfixturevalue(kind))
    measure, *_, other = keys
    assert results["measure"] == measure
    assert any(one[keys[measure]] != one[keys[other]] for one in scores)
    for key, own in keys.items():
        means = [arm[key]["mean"] for arm in results["arms"]]
        assert means == pytest.approx([one[own] for one in scores], abs=1e-6)
    assert kind == "tags" or results["drawn"] == "texts with their questions"


# --- tags; tests/records has their folds and reviews -------------------------------------------------


def test_the_bootstrap_of_one_run_is_that_of_its_own_figures(tags):
    """Percentiles of resampled sentences: as ``tag_metrics`` draws them, up to the draws."""
    first = compared(tags)[0]["arms"][0]
    file = tags / "a" / "predictions.conll"
    truth, made = (load_tagged(file, tags_column=column).splits["train"].tags for column in "23")
    mine = tag_metrics(truth, made, "BIO", bootstrap=4000)["entity_f1_interval"]
    assert first["entity_f1"]["interval"] == pytest.approx(mine, abs=0.04)


def test_runs_on_other_sentences_or_of_another_split_are_refused(tags, tmp_path):
    said = refused("compare", tags / "a", tags / "c", "--split", "validation")
    assert "was evaluated on test, not on validation" in said
    other = shutil.copytree(tags / "c", tmp_path / "d")
    file = other / "predictions.conll"
    file.write_text(file.read_text().replace("rains", "snows", 1))
    assert "different examples" in refused("compare", tags / "a", other)


def test_temperature_is_fitted_to_words_and_saved(tags):
    before = load(tags / "a")
    held = load_tagged(tags / "data").splits["validation"]
    said = call("calibrate", tags / "a")
    after = load(tags / "a")
    found = json.loads((tags / "a" / "calibration.json").read_text())
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
    assert "expected calibration error" in (tags / "a" / "report.html").read_text()
    call("calibrate", tags / "a")
    assert load(tags / "a").temperature_ == pytest.approx(found["temperature"])
    span = next(s for own in after.spans(held.words) for s in own)
    assert span.probability != next(s for own in before.spans(held.words) for s in own).probability
    assert "has no effect on taggers" in refused("calibrate", tags / "a", "--threshold", "f1")


def test_a_folder_from_before_there_was_a_temperature_opens(tags, tmp_path):
    tagger = gf.load(tags / "c" / "model")
    assert tagger.temperature_ == 1.0
    saved = tagger.save(tmp_path / "old")
    about = json.loads((saved / "glassformer.json").read_text())
    del about["temperature"]
    restored = gf.TokenTagger.restore(saved, about)
    assert restored.temperature_ == 1.0
    with pytest.raises(CheckpointError, match="temperature"):
        gf.TokenTagger.restore(saved, about | {"temperature": -1})


# --- answers ----------------------------------------------------------------------------------------


def test_a_text_with_a_line_break_of_its_own_is_compared(answers, tmp_path):
    for name in "ac":
        shutil.copytree(answers / name, tmp_path / name)
        text = (answers / name / "predictions.jsonl").read_text().replace("lives in", "lives\u2028in")
        (tmp_path / name / "predictions.jsonl").write_text(text)
    assert "\u2028" in text
    assert "F1" in call("compare", tmp_path / "a", tmp_path / "c")


def test_questions_come_from_words_files_and_standard_input(answers):
    out = call("predict", answers / "a", "where does Bo live", "Bo lives in Rome and bakes")
    answer, share, question = out.rstrip("\n").split("\t")
    assert question == "where does Bo live"
    assert 0 <= float(share) <= 1
    assert answer == "(no answer)" or answer in "Bo lives in Rome and bakes"
    typed = "where\tBo lives in Rome\nwho\tAnn bakes\n"
    told = json.loads(call("predict", answers / "a", "-", "--json", input=typed))
    assert [(one["question"], one["row"]) for one in told] == [("where", 1), ("who", 2)]
    file = answers / "answers.csv"
    call("predict", answers / "a", answers / "data" / "test.jsonl", "--out", file)
    assert len(file.read_text().splitlines()) == 20
    nested = {"data": [{"paragraphs": [{"context": "Bo bakes", "qas": [{"question": "who", "id": "x"}]}]}]}
    (answers / "squad.json").write_text(json.dumps(nested))
    assert call("predict", answers / "a", answers / "squad.json").endswith("\twho\n")
    alone = refused("predict", answers / "a", "where does Bo live")
    assert "reads a question with a text, and the question 'where does Bo live' has no text" in alone
    assert 'Give both, "QUESTION" "TEXT"' in alone
    (answers / "bad.csv").write_text("question,context\nwho,Bo bakes\nwho,\n")
    assert "row 3" in refused("predict", answers / "a", answers / "bad.csv")
    call("predict", answers / "a", answers / "bad.csv", "--on-bad-row", "skip")


def test_the_doctor_counts_windows_of_a_model(answers):
    report = json.loads(
        call("data", "doctor", answers / "data", "--model", answers / "a" / "model", "--json")
    )
    assert report["figures"]["splits"]["train"]["windows"]["all"] >= 41
