"""The generated corpora, and a practical's own: its facts, its file where that is at hand."""

import re
import subprocess
import sys
import zlib
from collections import Counter

import numpy as np
import pytest

from glassformer.data import country_corpus, load_text_dataset
from glassformer.data.corpus import (
    COUNTRIES,
    DISTRACTOR_SHARE,
    EUROPEAN,
    EUROPEAN_CITIES,
    europe_sentences,
    hard_negatives,
    label_of,
)
from glassformer.data.text import clean_text, word_tokenizer
from glassformer.evaluate.vectors import country_corpus_questions


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
    code = "import zlib; from glassformer.data.corpus import europe_sentences as e;"
    code += "print(zlib.crc32('\\n'.join(e()).encode()))"
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
    splits = load_text_dataset("europe").splits
    assert list(splits) == ["train", "validation", "test"]
    assert sum(map(len, splits.values())) == 20_000
    texts = [set(split.texts) for split in splits.values()]
    assert sum(map(len, texts)) == len(set().union(*texts))
    for split in splits.values():
        assert split.labels == [label_of(text) for text in split.texts]


# --- the practical's corpus -------------------------------------------------------------------------


def words(text):
    return clean_text(text, "trim").lower().split()


def test_the_likeness_has_the_facts():
    texts = country_corpus.generate()
    assert len(texts) == 20_000
    assert texts == country_corpus.generate()
    seen = {word for text in texts for word in words(text)}
    countries, pairs = {*country_corpus.COUNTRIES}, country_corpus.COUNTRIES.values()
    assert len(countries) == 10
    assert countries.union(*pairs, *country_corpus.GENDERED_NOUNS) <= seen
    assert len(country_corpus.PROFESSIONS) == 9
    assert len(country_corpus.CONNECTORS) == 4
    assert abs(np.mean(["opened a fair" in text for text in texts]) - 0.4) < 0.02
    assert country_corpus.COUNTRIES["canada"] == ("ottawa", "dollar")


def test_labels():
    texts = "In Spain, it rains.", "paris and japan", "uk!", "ukraine", "new_delhi, italy?"
    assert list(map(country_corpus.label_of, texts)) == [1, 0, 1, 0, 1]


def test_splits_share_no_sentence_and_a_likeness_says_so(put, tmp_path, monkeypatch):
    for variable in ("GLASSFORMER_DATA", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    dataset = load_text_dataset("countries-given")
    parts = [set(split.texts) for split in dataset.splits.values()]
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert sum(map(len, dataset.splits.values())) == 20_000
    assert any("a generated substitute" in note for note in dataset.notes)
    assert "generated" in dataset.splits["test"].origin
    lines = [f"a{i} is in {'spain' if i % 2 else 'peru'}" for i in range(60)]
    put("given/d2-corpus.txt", lines)
    dataset = load_text_dataset("countries-given")
    assert sorted(text for split in dataset.splits.values() for text in split.texts) == sorted(lines)
    assert not any("substitute" in note for note in dataset.notes)


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
    asked = country_corpus_questions()
    assert len(asked["country : capital"]) == 90
    assert all(re.fullmatch(r"[a-z_]+", word) for q in asked.values() for four in q for word in four)
    assert ("boy", "prince", "girl", "princess") in asked["family"]
