"""Tests of word vectors from files: pairs, questions, the named ones and one's own; frequent words; edges."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer.errors import DataError
from glassformer.evaluate import vectors
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
PAIRS = "Word\tother\tscore\nMan\tking\t9.0\n\nman\twoman\t5\nman\tduke\t1\n"
SIMLEX = (
    "word1\tword2\tPOS\tSimLex999\tmore\nman\tking\tN\t1.5\t9\nMan \twoman\tN\t5\t8\nman\tduke\tN\t9\t7\n"
)
QUESTIONS = ": royal\nMan king woman queen\nman king woman emperor\n\n: odd\nman woman king duke\n"


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "word-vectors"
    place.mkdir()
    (place / "wordsim353.tab").write_text(PAIRS, encoding="utf-8-sig")
    (place / "SimLex-999.txt").write_text(SIMLEX, encoding="utf-8")
    (place / "questions-words.txt").write_text(QUESTIONS, encoding="utf-8")
    return place


def test_files_of_pairs_and_of_questions_are_read(folder):
    pairs = [Pair("man", "king", 9.0), Pair("man", "woman", 5.0), Pair("man", "duke", 1.0)]
    assert read_pairs(folder / "wordsim353.tab") == pairs
    wanted = [replace(pair, score=score) for pair, score in zip(pairs, (1.5, 5, 9), strict=True)]
    assert read_pairs(folder / "SimLex-999.txt") == wanted
    royal = [("man", "king", "woman", "queen"), ("man", "king", "woman", "emperor")]
    questions = folder / "questions-words.txt"
    assert read_questions(questions) == {"royal": royal, "odd": [("man", "woman", "king", "duke")]}
    assert read_questions(questions, lowercase=False)["royal"][0] == ("Man", "king", "woman", "queen")
    plain = folder / "plain.txt"
    plain.write_text("man king woman queen\n", encoding="utf-8")
    assert read_questions(plain) == {"all": [("man", "king", "woman", "queen")]}


@pytest.mark.parametrize(
    ("content", "read", "message"),
    [
        ("a\tb\n", read_pairs, "no pairs"),
        ("one\ttwo\tscore\nking\tqueen\n", read_pairs, "line 2: not two words and a score"),
        (": x\nking queen man\n", read_questions, "line 2: 3 words instead of 4"),
        ("", read_questions, "the file is empty"),
        (": nothing\n", read_questions, "no questions"),
        ("\xff", read_questions, "not UTF-8"),
    ],
)
def test_tests_that_cannot_be_read(content, read, message, tmp_path):
    path = tmp_path / "test.txt"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(DataError, match=message):
        read(path)
    with pytest.raises(DataError, match="no such test"):
        read(tmp_path / "none.txt")


def test_every_test_is_judged_by_its_name_or_its_file(folder, tmp_path):
    own, pairs = tmp_path / "own.txt", tmp_path / "pairs.txt"
    own.write_text(QUESTIONS, encoding="utf-8")
    pairs.write_text(PAIRS, encoding="utf-8")
    tests = ["wordsim353", "simlex999", "google", str(own), str(pairs), "countries", "europe"]
    found = evaluate_vectors(list(WORDS), VECTORS, tests, folder)
    assert list(found) == tests
    assert found["wordsim353"] == found[str(pairs)]
    assert found[str(pairs)] == {"pairs": 3, "known": 3, "spearman": pytest.approx(1.0)}
    assert found["simlex999"]["spearman"] == pytest.approx(-1.0)
    assert found["google"] == found[str(own)]
    assert [found["google"][key] for key in ("questions", "known", "correct", "accuracy")] == [3, 2, 1, 0.5]
    royal = found["countries"]["sections"]["king - man + woman"]
    assert royal == {"questions": 1, "known": 1, "correct": 1}
    assert found["countries"]["questions"] < found["europe"]["questions"]
    left_out = evaluate_vectors(list(WORDS), VECTORS, ["google", "countries", "simlex999"], None)
    assert list(left_out) == ["google", "countries", "simlex999"]
    assert left_out["google"] is left_out["simlex999"] is None
    assert left_out["countries"]["questions"] > 100
    capital = evaluate_vectors([w.title() for w in WORDS], VECTORS, [str(own)], folder)[str(own)]
    assert capital["known"] == 0  # a vocabulary with capitals is asked as the file is written


def test_where_the_named_tests_lie(folder, tmp_path):
    assert vectors.tests_folder([tmp_path / "none", tmp_path]) == folder
    assert vectors.tests_folder([tmp_path / "none"]) is None
    assert vectors.tests_folder([]) is None


def test_only_frequent_words_answer_and_many_questions_are_judged_in_parts(monkeypatch):
    units, question = normalize_rows(VECTORS), ("man", "king", "woman", "queen")
    assert evaluate_analogies(WORDS, units, {"a": [question]}, most_frequent=4)["correct"] == 1
    assert evaluate_analogies(WORDS, units, {"a": [question]}, most_frequent=3)["known"] == 0
    sections = {"a": [question] * 5, "b": [("king", "man", "queen", "woman")] * 2, "c": []}
    whole = evaluate_analogies(WORDS, units, sections)
    monkeypatch.setattr(vectors, "BATCH_SIZE", 2)
    parts = evaluate_analogies(WORDS, units, sections)
    assert whole == parts
    assert parts["questions"] == 7
    assert (parts["sections"]["a"]["correct"], parts["sections"]["c"]["known"]) == (5, 0)
    assert vectors.MOST_FREQUENT == 30_000


@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_rows_of_zeros_and_none_at_all():
    rows = normalize_rows(np.array([[0.0, 0.0], [3.0, 4.0]]))
    assert (rows.dtype, rows.tolist()) == (np.float32, [[0, 0], [np.float32(0.6), np.float32(0.8)]])
    units = normalize_rows(VECTORS)
    assert nearest_rows(units, VECTORS[0], 3, [0, 1, 2, 3, 4, 5]) == []
    assert nearest_rows(units, VECTORS[0], 0) == []
    wanted = np.argsort(-(units @ units[0]), kind="stable").tolist()
    assert [i for i, _ in nearest_rows(units, VECTORS[0], 6)] == wanted
    assert len(nearest_rows(units, VECTORS[0], 5, [1, 1])) == 5
    constant = [Pair("man", w, 3.0) for w in ("king", "woman", "duke")]
    assert evaluate_pairs(WORDS, units, constant)["spearman"] is None
    known = [Pair("man", "king", 9.0), Pair("man", "woman", 5.0), Pair("man", "duke", 1.0)]
    found = evaluate_pairs(WORDS, units, [*known, Pair("man", "ox", 3.0)])
    assert found == {"pairs": 4, "known": 3, "spearman": pytest.approx(1.0)}
    assert evaluate_pairs(WORDS, units, known[:2])["spearman"] is None
    assert evaluate_analogies(WORDS, units, {"a": [("man",) * 4]}, most_frequent=0)["accuracy"] is None


def test_analogies_are_those_of_a_plain_search():
    rng = np.random.default_rng(3)
    units = normalize_rows(rng.normal(0, 1, (13, 3)))
    words = {f"w{i}": i for i in range(13)}
    questions = [tuple(f"w{i}" for i in rng.choice(13, 4, replace=False)) for _ in range(211)]
    right = 0
    for a, b, c, d in ([words[w] for w in question] for question in questions):
        target = units[b] - units[a] + units[c]
        best = max((i for i in range(13) if i not in (a, b, c)), key=lambda i: float(units[i] @ target))
        right += best == d
    found = evaluate_analogies(words, units, {"all": questions})
    assert 0 < right < 211
    assert (found["correct"], found["known"], found["accuracy"]) == (right, 211, right / 211)


# --- on paper, and compared with gensim -----------------------------------------------------------


def test_nearest_rows_by_hand():
    units = normalize_rows(VECTORS)
    assert nearest_rows(units, VECTORS[2], 1)[0] == (2, pytest.approx(1.0))
    assert [i for i, _ in nearest_rows(units, VECTORS[2], 9, [2, 3])] == sorted(
        (0, 1, 4, 5), key=lambda i: -units[i] @ units[2]
    )
    assert nearest_rows(units, np.zeros(3, np.float32), 2)


def test_country_questions():
    questions = country_questions()
    wanted = {"country : capital": 90, "country : currency": 78, "king - man + woman": 1, "family": 156}
    assert {k: len(v) for k, v in questions.items()} == wanted
    assert ("france", "paris", "japan", "tokyo") in questions["country : capital"]
    assert ("France", "euro", "Japan", "yen") in country_questions(lowercase=False)["country : currency"]
    assert not any(b == d for q in questions.values() for _, b, _, d in q)


def test_the_named_tests(data_root):
    folder = data_root / "word-vectors"
    pairs, simlex = read_pairs(folder / "wordsim353.tab"), read_pairs(folder / "SimLex-999.txt")
    questions = read_questions(folder / "questions-words.txt")
    assert [len(pairs), len(simlex), sum(map(len, questions.values())), len(questions)] == [
        353,
        999,
        19544,
        14,
    ]
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
