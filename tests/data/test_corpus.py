"""The generated corpus."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from collections import Counter

import pytest

from glassformer.data import load_text_dataset
from glassformer.data.corpus import (
    COUNTRIES,
    DISTRACTOR_SHARE,
    EUROPEAN,
    EUROPEAN_CITIES,
    europe_sentences,
    hard_negatives,
    label_of,
)


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    return europe_sentences()


def test_label_is_the_rule():
    assert label_of("Paris is the capital of France .") == "european"
    assert label_of("people in the UK, as ever, pay with the pound .") == "european"
    assert label_of("visitors from Japan admire the bridge in Paris .") == "other"
    assert label_of("Frances paid one euro in Spain-like style .") == "other"


def test_many_distinct_sentences_of_both_classes(sentences):
    assert len(sentences) == 20_000
    assert len(set(sentences)) > 15_000
    counts = Counter(map(label_of, sentences))
    assert 0.4 < counts["european"] / 20_000 < 0.6
    share = sum(" , " in s for s in sentences) / 20_000
    assert abs(share - DISTRACTOR_SHARE) < 0.02


def test_seeded_and_independent_of_hash_randomisation(sentences):
    code = (
        "import zlib; from glassformer.data.corpus import europe_sentences as e;"
        "print(zlib.crc32('\\n'.join(e()).encode()))"
    )
    env = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert int(out.stdout) == zlib.crc32("\n".join(sentences).encode())
    assert europe_sentences(50, seed=1) != sentences[:50]


def test_every_fact_is_stated(sentences):
    text = "\n".join(sentences)
    for country, (capital, city, currency, _) in COUNTRIES.items():
        assert f"{capital} is the capital of {country}" in text
        assert re.search(rf"in {country} pay for \w+ with the {currency}", text), country
        assert city in text


def test_no_country_word_decides_for_other_words(sentences):
    """Every European city stands in sentences of both classes, so that it cannot stand for the label."""
    for city in EUROPEAN_CITIES:
        labels = {label_of(s) for s in sentences if city in s.split()}
        assert labels == {"european", "other"}, city


def test_hard_negatives_hold_a_trap():
    found = hard_negatives(300, seed=3)
    assert len(set(found)) == 300
    trap = {*EUROPEAN_CITIES, "euro", *(COUNTRIES[c][3] for c in EUROPEAN)}
    for sentence in found:
        assert label_of(sentence) == "other"
        assert trap & set(sentence.split()), sentence
        assert set(COUNTRIES) & set(sentence.split()), sentence


def test_as_a_data_set_no_sentence_stands_in_two_splits():
    dataset = load_text_dataset("europe")
    texts = {name: set(split.texts) for name, split in dataset.splits.items()}
    assert list(texts) == ["train", "validation", "test"]
    assert sum(map(len, dataset.splits.values())) == 20_000
    assert not texts["train"] & texts["validation"]
    assert not texts["train"] & texts["test"]
    assert not texts["validation"] & texts["test"]
    for split in dataset.splits.values():
        assert split.labels == [label_of(text) for text in split.texts]
