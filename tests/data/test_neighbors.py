"""Whether neighbouring rows belong together."""

from __future__ import annotations

import numpy as np

from glassformer.data import TextDataset, TextSplit, examine
from glassformer.data.doctor import kinship

RNG = np.random.default_rng(0)


def reviews(films: int, each: int) -> list[str]:
    """Reviews of common words and two of the film's own, film after film."""
    common = [f"word{i}" for i in range(200)]
    return [
        " ".join([*RNG.choice(common, 12), f"hero{film}", f"town{film}"])
        for film in range(films)
        for _ in range(each)
    ]


def test_reviews_of_one_film_next_to_each_other_are_found():
    texts = reviews(60, 9)
    found = kinship(texts)
    assert found is not None
    assert found.ratio > 10
    mixed = kinship([texts[i] for i in RNG.permutation(len(texts))])
    assert mixed is not None
    assert mixed.ratio < 2


def test_neither_classes_nor_repeats_pass_for_kin():
    bad = [f"dull{i % 40} slow{i % 37} bad film {i}" for i in RNG.permutation(600).tolist()]
    good = [f"fine{i % 40} warm{i % 37} good film {i}" for i in RNG.permutation(600).tolist()]
    by_class = kinship([*bad, *good], ["bad"] * 600 + ["good"] * 600)
    assert by_class is not None
    assert by_class.ratio < 2
    repeated = [text for i in RNG.permutation(400).tolist() for text in [f"rare{i} same{i % 20}"] * 5]
    found = kinship(repeated)
    assert found is not None
    assert found.ratio < 2


def test_classes_that_take_turns_keep_their_order():
    pairs = zip(reviews(60, 9), reviews(60, 9))
    texts = [text for pair in pairs for text in pair]
    found = kinship(texts, ["a", "b"] * (len(texts) // 2))
    assert found is not None
    assert found.ratio > 10


def test_too_few_rows_say_nothing():
    assert kinship(["one film", "two films"] * 20) is None
    assert kinship([f"{chr(97 + i % 26)}{i}" for i in range(500)]) is None  # no word twice


def test_the_doctor_tells_it_and_the_way_out():
    texts = reviews(60, 9)
    labels = ["a", "b", "b"] * (len(texts) // 3)
    report = examine(TextDataset("films", {"train": TextSplit(texts, labels, "films")}))
    (finding,) = [f for f in report.findings if f.code == "neighbours"]
    assert finding.severity == "note"
    assert 'hold_out = "blocks"' in finding.message
    for how, severity in (("rows", "warning"), ("blocks", "ok")):
        report = examine(TextDataset("films", {"train": TextSplit(texts, labels, "films")}), held_out=how)
        (finding,) = [f for f in report.findings if f.code == "neighbours"]
        assert finding.severity == severity
    assert "were held out in blocks" in finding.message
    order = RNG.permutation(len(texts)).tolist()
    mixed = TextSplit([texts[i] for i in order], [labels[i] for i in order], "films")
    (finding,) = [
        f for f in examine(TextDataset("films", {"train": mixed})).findings if f.code == "neighbours"
    ]
    assert finding.severity == "ok"
