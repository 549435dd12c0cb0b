"""Labels that mean a class of the model and are written otherwise: they count as it, and a warning says so."""

import json
import warnings

import numpy as np
import pytest
from sklearn.metrics import accuracy_score
from tests.cli.tiny import sets
from tests.commands import ok

import glassformer as gf
from glassformer.data.label_kinds import match_known_labels
from glassformer.errors import OtherSpellingWarning
from glassformer.tasks.task import TINY

TEXTS = [f"{word} film number {i}" for i in range(14) for word in ("splendid", "dreadful")]
NAMES = ["pos", "neg"] * 14
SETTINGS = {**TINY, "min_count": 1, "model": "encoder-mini", "max_length": 16, "epochs": 3}


@pytest.fixture(scope="module")
def named() -> gf.TextClassifier:
    return gf.TextClassifier(**SETTINGS).fit(TEXTS, NAMES)


@pytest.fixture(scope="module")
def counted() -> gf.TextClassifier:
    return gf.TextClassifier(**SETTINGS).fit(TEXTS, [int(name == "pos") for name in NAMES])


def test_score_warns_and_names_the_spelling(named):
    right = accuracy_score(NAMES, named.predict(TEXTS))
    other = ["Pos" if name == "pos" else "neg " for name in NAMES]
    said = r"labels in another spelling than the model's: 'Pos' as 'pos' \(14\), 'neg ' as 'neg' \(14\); they count"
    with pytest.warns(OtherSpellingWarning, match=said):
        assert named.score(TEXTS, other) == right
    assert accuracy_score(other, named.predict(TEXTS)) == 0  # which the warning tells
    # every method that reads labels does
    other = [name.upper() for name in NAMES]
    with pytest.warns(OtherSpellingWarning, match="'NEG' as 'neg'"):
        gf.TextClassifier(**SETTINGS).fit(TEXTS, NAMES, validation=(TEXTS, other))
    with pytest.warns(OtherSpellingWarning, match="'NEG' as 'neg'"):
        named.calibrate(TEXTS, other)
    probe = gf.Probe(named).fit(TEXTS, NAMES)
    with pytest.warns(OtherSpellingWarning, match="'NEG' as 'neg'"):
        assert probe.score(TEXTS, other) == accuracy_score(NAMES, probe.predict(TEXTS))


@pytest.mark.parametrize("other", [str, lambda i: f"{i}.0", lambda i: ("FALSE", "TRUE")[i]])
def test_numbers_that_are_texts(counted, other):
    numbers = [int(name == "pos") for name in NAMES]
    right = accuracy_score(numbers, counted.predict(TEXTS))
    with pytest.warns(OtherSpellingWarning, match=f"'{other(1)}' as 1"):
        assert counted.score(TEXTS, [other(i) for i in numbers]) == right


@pytest.mark.parametrize("same", [int, float, bool, np.int64])
def test_equal_values_are_no_other_spelling(counted, named, same):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert 0 <= counted.score(TEXTS, [same(name == "pos") for name in NAMES]) <= 1
        assert 0 <= named.score(TEXTS, NAMES) <= 1
        assert named.score(TEXTS, ["other"] * len(TEXTS)) == 0  # wrong, and no spelling of a class


def test_several_labels():
    sets = [("a", "b") if name == "pos" else ("b",) for name in NAMES]
    clf = gf.TextClassifier(**SETTINGS).fit(TEXTS, sets)
    right = clf.score(TEXTS, sets)
    with pytest.warns(OtherSpellingWarning, match=r"'A' as 'a' \(14\)"):
        assert clf.score(TEXTS, [[label.upper() for label in own] for own in sets]) == right


@pytest.mark.parametrize(
    "known", [["FALSE", "TRUE"], ["False", "True"], ["false", "true"], ["0", "1"], [0, 1]]
)
@pytest.mark.parametrize("given", [[0, 1], ["FALSE", "TRUE"], ["false", "true"], ["0.0", "1"]])
def test_truth_values_meet(known, given):
    assert match_known_labels(given, known) == known
    assert match_known_labels(given[::-1], known) == known[::-1]


def test_tags_of_words():
    words = [["Ann", "saw", "Rome"], ["Rome", "sleeps"]] * 4
    tags = [["B-PER", "O", "B-LOC"], ["B-LOC", "O"]] * 4
    tagger = gf.TokenTagger(**SETTINGS).fit(words, tags)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = tagger.score(words, tags)
    other = [[tag.replace("-", "_") for tag in own] for own in tags]
    with pytest.warns(OtherSpellingWarning, match=r"'B_LOC' as 'B-LOC' \(8\), 'B_PER' as 'B-PER' \(4\)"):
        assert tagger.score(words, other) == right


def test_what_is_no_truth_value():
    assert match_known_labels([0, 1, "none"], ["TRUE", "FALSE"]) == ["FALSE", "TRUE", "none"]
    assert match_known_labels([2, "yes"], ["TRUE", "FALSE"]) == [2, "yes"]
    assert match_known_labels([1, 0], ["TRUE", "FALSE", "unsure"]) == [1, 0]  # three classes
    assert match_known_labels(["TRUE"], [0, 1, 2]) == ["TRUE"]
    assert match_known_labels([1], ["TRUE", "true"]) == [1]


@pytest.mark.parametrize("turned", [False, True])
def test_booleans_of_json_and_of_csv(tmp_path, monkeypatch, turned):
    """A model of either, judged on the other: as on its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(
        "text,label\n"
        + "".join(f"{t},{str(n == 'pos').upper()}\n" for t, n in zip(TEXTS, NAMES, strict=True))
    )
    rows = [{"text": t, "label": n == "pos"} for t, n in zip(TEXTS, NAMES, strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    own, other = ("a.jsonl", "a.csv") if turned else ("a.csv", "a.jsonl")
    given = sets(*(f"{key}={value}" for key, value in SETTINGS.items()), "baselines=false", "maps=0")
    ok("train", "--text", own, "--out", "run", *given)

    def judged(file: str) -> tuple[dict, str]:
        done = ok("evaluate", "run", "--data", file, "--json")
        return json.loads(done.out), done.err

    ours, theirs = judged(own), judged(other)
    assert theirs[0]["accuracy"] == ours[0]["accuracy"]
    assert theirs[0]["n"] == len(TEXTS)
    assert "another spelling" not in ours[1]
    assert ("'TRUE' as 1 (14)" if turned else "1 as 'TRUE' (14)") in theirs[1]
    ok("calibrate", "run", "--data", other)
