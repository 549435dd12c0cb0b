"""Judging word vectors, against answers known on paper and against gensim."""

import numpy as np
import pytest

from glassformer.errors import DataError
from glassformer.evaluate.vectors import (
    Pair,
    country_questions,
    evaluate_analogies,
    evaluate_pairs,
    evaluate_vectors,
    nearest_rows,
    normalize_rows,
    read_pairs,
    read_questions,
)

WORDS = {"man": 0, "woman": 1, "king": 2, "queen": 3, "duke": 4, "duchess": 5}
VECTORS = np.array([[1, 0, 0], [1, 1, 0], [3, 0, 1], [3, 1, 1], [0, 0, 2], [0, 1, 2]], np.float32)


def test_analogies_by_hand():
    units = normalize_rows(VECTORS)
    sections = {
        "royal": [("man", "king", "woman", "queen"), ("man", "king", "woman", "emperor")],
        "odd": [("man", "woman", "king", "duke")],
    }
    result = evaluate_analogies(WORDS, units, sections)
    assert (result["questions"], result["known"], result["correct"]) == (3, 2, 1)
    assert result["sections"]["royal"] == {"questions": 2, "known": 1, "correct": 1}
    assert evaluate_analogies(WORDS, units, sections, most_frequent=3)["accuracy"] is None


def test_nearest_rows_by_hand():
    units = normalize_rows(VECTORS)
    assert nearest_rows(units, VECTORS[2], 1)[0] == (2, pytest.approx(1.0))
    assert [i for i, _ in nearest_rows(units, VECTORS[2], 9, [2, 3])] == sorted(
        (0, 1, 4, 5), key=lambda i: -units[i] @ units[2]
    )
    assert nearest_rows(units, np.zeros(3, np.float32), 2)


def test_spearman_by_hand():
    units = normalize_rows(VECTORS)
    pairs = [
        Pair("man", "king", 9.0),
        Pair("man", "woman", 5.0),
        Pair("man", "duke", 1.0),
        Pair("man", "ox", 3.0),
    ]
    result = evaluate_pairs(WORDS, units, pairs)
    assert result == {"pairs": 4, "known": 3, "spearman": pytest.approx(1.0)}
    assert evaluate_pairs(WORDS, units, pairs[:2])["spearman"] is None


def test_country_questions():
    questions = country_questions()
    assert {k: len(v) for k, v in questions.items()} == {
        "country : capital": 90,
        "country : currency": 78,
        "king - man + woman": 1,
        "family": 156,
    }
    assert ("france", "paris", "japan", "tokyo") in questions["country : capital"]
    assert ("France", "euro", "Japan", "yen") in country_questions(lowercase=False)["country : currency"]
    assert not any(b == d for q in questions.values() for _, b, _, d in q)


def test_the_named_tests(data_root):
    folder = data_root / "word-vectors"
    pairs, simlex = read_pairs(folder / "wordsim353.tab"), read_pairs(folder / "SimLex-999.txt")
    questions = read_questions(folder / "questions-words.txt")
    assert (len(pairs), len(simlex), sum(map(len, questions.values())), len(questions)) == (
        353,
        999,
        19544,
        14,
    )
    assert pairs[0] == Pair("love", "sex", 6.77)
    assert simlex[0] == Pair("old", "new", 1.58)


def test_equal_to_gensim(data_root):
    keyed_vectors = pytest.importorskip("gensim.models").KeyedVectors
    folder = data_root / "word-vectors"
    rng = np.random.default_rng(0)
    words = sorted({w for p in read_pairs(folder / "wordsim353.tab") for w in (p.first, p.second)})
    some = read_questions(folder / "questions-words.txt")["capital-common-countries"]
    words += sorted({w for q in some for w in q} - set(words))
    vectors = rng.normal(0, 1, (len(words), 11)).astype(np.float32)
    for a, b, c, d in some[:40]:  # let some of them come true
        number = {w: i for i, w in enumerate(words)}
        vectors[number[d]] = vectors[number[b]] - vectors[number[a]] + vectors[number[c]]
    theirs = keyed_vectors(11)
    theirs.add_vectors(words, vectors)
    ours = evaluate_vectors(words, vectors, ["wordsim353", "google"], folder)
    wanted = theirs.evaluate_word_pairs(str(folder / "wordsim353.tab"), case_insensitive=True)
    assert ours["wordsim353"]["spearman"] == pytest.approx(wanted[1].statistic, abs=0.01)
    _, sections = theirs.evaluate_word_analogies(str(folder / "questions-words.txt"), case_insensitive=True)
    theirs_correct = sum(len(s["correct"]) for s in sections[:-1])
    assert theirs_correct > 20
    assert ours["google"]["correct"] == pytest.approx(theirs_correct, abs=2)


@pytest.mark.parametrize(
    ("content", "read", "message"),
    [
        ("a\tb\n", read_pairs, "no pairs"),
        ("one\ttwo\tscore\nking\tqueen\n", read_pairs, "line 2: not two words and a score"),
        (": x\nking queen man\n", read_questions, "line 2: 3 words instead of 4"),
        ("", read_questions, "the file is empty"),
    ],
)
def test_tests_that_cannot_be_read(content, read, message, tmp_path):
    path = tmp_path / "test.txt"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read(path)
    with pytest.raises(DataError, match="no such test"):
        read(tmp_path / "none.txt")


def test_a_named_test_without_its_file_is_not_measured():
    assert evaluate_vectors(list(WORDS), VECTORS, ["wordsim353"], None) == {"wordsim353": None}
