"""The practical's corpus: its facts, its own file where that is at hand, and words as they are read."""

from __future__ import annotations

import re

import numpy as np
import pytest

from glassformer.data import given
from glassformer.data.sources import load_text_dataset
from glassformer.data.text import clean_text, word_tokenizer
from glassformer.evaluate.vectors import given_questions


def words(text):
    return clean_text(text, "trim").lower().split()


def test_the_likeness_has_the_facts():
    texts = given.likeness()
    assert len(texts) == 20_000
    assert texts == given.likeness()
    seen = {word for text in texts for word in words(text)}
    countries, pairs = set(given.COUNTRIES), [x for pair in given.COUNTRIES.values() for x in pair]
    assert len(countries) == 10
    assert countries | set(pairs) | {w for family in given.FAMILIES for w in family} <= seen
    assert len(given.PROFESSIONS) == 9
    assert len(given.CONNECTORS) == 4
    assert abs(np.mean(["opened a fair" in text for text in texts]) - 0.4) < 0.02
    assert given.COUNTRIES["canada"] == ("ottawa", "dollar")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("In Spain, it rains.", 1),
        ("paris and japan", 0),
        ("uk!", 1),
        ("ukraine", 0),
        ("new_delhi, italy?", 1),
    ],
)
def test_labels(text, label):
    assert given.label_of(text) == label


def test_splits_share_no_sentence_and_a_likeness_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    dataset = load_text_dataset("countries-given")
    parts = [set(split.texts) for split in dataset.splits.values()]
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert sum(map(len, dataset.splits.values())) == 20_000
    assert any("a likeness" in note for note in dataset.notes)
    assert "a likeness" in dataset.splits["test"].origin
    (tmp_path / "given").mkdir()
    lines = [f"a{i} is in {'spain' if i % 2 else 'peru'}" for i in range(60)]
    (tmp_path / "given" / "d2-corpus.txt").write_text("\n".join(lines) + "\n")
    dataset = load_text_dataset("countries-given")
    assert sorted(text for split in dataset.splits.values() for text in split.texts) == sorted(lines)
    assert not any("likeness" in note for note in dataset.notes)


@pytest.mark.data
def test_the_file_is_what_is_said_of_it(data_root, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_DATA", str(data_root))
    dataset = load_text_dataset("countries-given")
    texts = [text for split in dataset.splits.values() for text in split.texts]
    labels = [label for split in dataset.splits.values() for label in split.labels]
    assert (len(texts), len(set(texts))) == (20_000, 3_460)
    assert len({word for text in texts for word in words(text)}) == 85
    assert round(np.mean(labels), 3) == 0.444


def test_trimming_and_a_text_without_separator():
    assert clean_text("Well, <b>new_delhi</b>... isn't (far)!", "trim") == "Well new_delhi isn't (far)"
    tokenizer = word_tokenizer(["in new_delhi", "in rome"], min_count=1, separator=False)
    assert tokenizer.encode("in new_delhi").tokens == ["[CLS]", "in", "new_delhi"]
    assert word_tokenizer(["in rome"], min_count=1).encode("in rome").tokens[-1] == "[SEP]"


def test_questions_of_the_corpus():
    asked = given_questions()
    assert len(asked["country : capital"]) == 90
    assert all(re.fullmatch(r"[a-z_]+", word) for q in asked.values() for four in q for word in four)
    assert ("boy", "prince", "girl", "princess") in asked["family"]
