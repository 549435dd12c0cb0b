"""Tags in other spellings, numbers and -100 at every door: fit, train, evaluate, folds, doctor, report, export."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests.tables import read_csv

import glassformer as gf
from glassformer.data.tagged import format_conll
from glassformer.errors import DataError, MalformedTagsWarning
from glassformer.targets.token_tags import tag_metrics
from glassformer.tasks.task import TINY

from .every import TEXT, call, ok
from .tiny import sets

NAMES = ("O", "B-loc", "I-loc", "B-per", "I-per")
WORDS = [["Ann", "left", "New", "York"], ["New", "York", "Bo"], ["it", "rains"], ["Bo", "left", "Rome"]] * 5
TAGS = [["B-per", "O", "B-loc", "I-loc"], ["B-loc", "I-loc", "B-per"], ["O", "O"], ["B-per", "O", "B-loc"]]
TAGS *= 5
ENTITIES = 30
SPELLINGS = {
    "B_loc": lambda tag: tag.replace("-", "_"),
    "loc-B": lambda tag: tag if tag == "O" else f"{tag[2:]}-{tag[0]}",
    "B/loc": lambda tag: tag.replace("-", "/"),
    "b-loc": lambda tag: tag[0].lower() + tag[1:],
    "numbers": lambda tag: str(NAMES.index(tag)),
}
SET = dict.fromkeys(SPELLINGS, "scheme=BIO") | {"numbers": f"scheme={','.join(NAMES)}"}
RUN = [s for s in TEXT if s != "maps=0"]


def spelled(name: str) -> list[list[str]]:
    return [[SPELLINGS[name](tag) for tag in own] for own in TAGS]


def write(path: Path, tags: list[list[str]]) -> Path:
    path.write_text(format_conll(WORDS, tags))
    return path


def folder(home: Path, tags: list[list[str]]) -> Path:
    """The same sentences for training, validation and test."""
    home.mkdir()
    for split in ("train", "validation", "test"):
        write(home / f"{split}.conll", tags)
    return home


def tagger(**more) -> gf.TokenTagger:
    return gf.TokenTagger("encoder-mini", **{**TINY, "max_length": 16, "min_count": 1, **more})


@pytest.mark.parametrize("name", SPELLINGS)
def test_an_estimator_asks_and_then_learns_the_same(name):
    tags = spelled(name)
    if name == "numbers":
        tags = [[int(tag) for tag in own] for own in tags]
    with pytest.raises(DataError, match="look like BIO") as caught:
        tagger().fit(WORDS, tags)
    assert "scheme=BIO" in str(caught.value)
    scheme = NAMES if name == "numbers" else "BIO"
    ours, usual = tagger(scheme=scheme).fit(WORDS, tags), tagger().fit(WORDS, TAGS)
    assert ours.classes_.tolist() == usual.classes_.tolist() == list(NAMES)
    for a, b in zip(ours.predict_proba(WORDS), usual.predict_proba(WORDS), strict=True):
        np.testing.assert_array_equal(a, b)
    assert ours.judge(WORDS, tags, bootstrap=0) == usual.judge(WORDS, TAGS, bootstrap=0)
    if name != "numbers":  # a model knows its scheme, so other data need no setting
        assert usual.judge(WORDS, tags, bootstrap=0) == usual.judge(WORDS, TAGS, bootstrap=0)


def test_iob1_is_no_mistake(recwarn):
    tags = [[tag.replace("B-", "I-") for tag in own] for own in TAGS]
    made = tagger().fit(WORDS, tags)
    assert (made.scheme_, made.repaired_, made.classes_.tolist()) == ("BIO", 0, list(NAMES))
    assert not [w for w in recwarn if issubclass(w.category, MalformedTagsWarning)]


def test_words_with_minus_100_are_neither_learned_nor_judged(tmp_path):
    hidden = [["-100" if word == "York" else tag for word, tag in zip(*pair)] for pair in zip(WORDS, TAGS)]
    made = tagger(epochs=3).fit(WORDS, [[t if t != "-100" else -100 for t in own] for own in hidden])
    assert "-100" not in made.classes_.tolist()
    figures = made.judge(WORDS, hidden, bootstrap=0)
    assert figures["words"] == sum(word != "York" for own in WORDS for word in own)
    assert sorted(figures["by_kind"]) == ["loc", "per"]
    kept = [[i for i, tag in enumerate(own) if tag != "-100"] for own in hidden]
    pick = lambda rows: [[own[i] for i in at] for own, at in zip(rows, kept, strict=True)]  # noqa: E731
    assert figures == tag_metrics(pick(hidden), pick(made.predict(WORDS)), "BIO", bootstrap=0)
    made.save(tmp_path / "model")
    assert gf.load(tmp_path / "model").judge(WORDS, hidden, bootstrap=0) == figures


@pytest.mark.parametrize("name", ["B_loc", "numbers"])
def test_every_verb_asks_or_reads_the_same(name, tmp_path):
    data, run = folder(tmp_path / "data", spelled(name)), tmp_path / "run"
    words = ["train", "wnut17-minilm", "--data", data, "--out", run, *sets(*RUN)]
    asked = call(*words)
    assert asked.code == 2
    assert "scheme=BIO" in asked.err
    assert not run.exists()
    ok(*words, "--set", SET[name])
    metrics = json.loads((run / "metrics.json").read_text())
    assert (metrics["scheme"], metrics["label_names"]) == ("BIO", list(NAMES))
    assert metrics["test"]["entities"] == ENTITIES
    page = (run / "report.html").read_text(encoding="utf-8")
    assert ">loc</span>" in page
    # other data in the usual spelling, and the run's own again
    usual = write(tmp_path / "usual.conll", TAGS)
    for more in ([], ["--data", usual]):
        found = json.loads(call("evaluate", run, *more, "--json").out)
        found = found.get("test", found)
        assert found["entity_f1"] == metrics["test"]["entity_f1"]
        assert found["entities"] == ENTITIES
    # the doctor warns, or with the setting reads them
    said = call("data", "doctor", data).out
    assert "scheme=BIO" in re.sub(r"\s+", " ", said).replace(" ", "")
    report = json.loads(call("data", "doctor", data, "--set", SET[name], "--json").out)
    assert report["figures"]["splits"]["train"]["spans"] == {"loc": 15, "per": 15}
    if all(map(find_spec, ("onnxscript", "onnxruntime"))):
        ok("export", run, "--to", "onnx", "--out", tmp_path / "onnx", "--check", 5)
        about = json.loads((tmp_path / "onnx" / "onnx.json").read_text())
        assert (about["scheme"], about["labels"]) == ("BIO", list(NAMES))
    answer = json.loads(call("predict", run, "Ann left New York", "--json").out)
    assert {tag for tag in json.dumps(answer).split('"') if tag in NAMES} <= set(NAMES)


def test_the_other_columns_of_a_table_stand_beside_spans(tmp_path):
    model, table = tagger(epochs=1), tmp_path / "t.csv"
    model.fit(WORDS, TAGS).save(tmp_path / "model")
    table.write_text("id,text,kind\n7,Ann left New York,a\n8,it rains,b\n")
    for name in ("out.csv", "out.jsonl"):
        ok("predict", tmp_path / "model", table, "--out", tmp_path / name)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(line["id"], line["given:kind"]) for line in lines] == [("7", "a"), ("8", "b")]
    spans = read_csv(tmp_path / "out.csv")
    assert len(spans) == sum(len(line["spans"]) for line in lines)
    assert {(span["id"], span["given:kind"]) for span in spans} <= {("7", "a"), ("8", "b")}


def test_a_run_from_before_there_was_a_scheme_goes_on(tmp_path):
    """Numbers were taken for kinds; such a run is judged as it was."""
    data, run = folder(tmp_path / "data", spelled("numbers")), tmp_path / "run"
    words = ["train", "wnut17-minilm", "--data", data, "--out", run, *sets(*RUN)]
    assert call(*words, "--set", "scheme=exact").code == 0
    config = run / "config.toml"
    config.write_text(re.sub(r"^scheme = .*\n", "", config.read_text(), flags=re.MULTILINE))
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["label_names"] == ["0", "1", "2", "3"]
    done = ok("evaluate", run, "--json")
    assert json.loads(done.out).get("test", json.loads(done.out))["entity_f1"] == metrics["test"]["entity_f1"]
    assert call("calibrate", run).code == 0
    assert call("train", "--resume", "--out", run).code == 0


def test_folds_and_reviews_leave_words_with_minus_100_out(tmp_path):
    hidden = [["-100" if word == "York" else tag for word, tag in zip(*pair)] for pair in zip(WORDS, TAGS)]
    words = [[w if w != "rains" else f"rains{i}" for w in own] for i, own in enumerate(WORDS)]
    data, run, folds = tmp_path / "data.conll", tmp_path / "run0", tmp_path / "folds"
    data.write_text(format_conll([[f"{w}{i}" for w in own] for i, own in enumerate(words)], hidden))
    held = sets(*RUN, "validation_size=5", "test_size=5")
    for seed in (0, 1):
        out = tmp_path / f"run{seed}"
        ok("train", "wnut17-minilm", "--data", data, "--out", out, *held, "--set", f"epochs={seed + 1}")
    assert call("calibrate", run).code == 0
    ok("compare", run, tmp_path / "run1", "--out", tmp_path / "study")
    ok("cross-validate", run / "config.toml", "--folds", 2, "--out", folds)
    known = json.loads((folds / "metrics.json").read_text())["test"]["words"]
    ok("review-labels", folds)
    review = json.loads((folds / "review.json").read_text())
    assert review["n"] == known
    assert not [s for s in review["suggestions"] if "«York" in s["text"]]
    rows = [row for row in (folds / "to_correct.conll").read_text().split("\n") if row]
    assert sum(row.endswith("\t-100") for row in rows) > 0
    assert sum(not row.endswith("\t-100") for row in rows) == known
