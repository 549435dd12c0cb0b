"""The data doctor: each fault planted is found, a healthy data set gets no warning."""

import json
import re
import time
import unicodedata

import numpy as np
import pytest

from glassformer.data import DoctorReport, TextDataset, TextSplit, examine, load_text_dataset, word_tokenizer
from glassformer.data.doctor import neighbor_similarity
from glassformer.data.findings import Finding, num_warnings, summary_lines


def dataset(**splits) -> TextDataset:
    return TextDataset("made up", {k: TextSplit(texts, labels, k) for k, (texts, labels) in splits.items()})


def healthy(n: int = 60) -> dict:
    train = [f"film number {i} was fine" for i in range(n)]
    test = [f"film number {i} was not" for i in range(n)]
    return {"train": (train, ["a", "b"] * (n // 2)), "test": (test, ["a", "b"] * (n // 2))}


def findings(report: DoctorReport, code: str) -> dict[str, tuple[str, int]]:
    """Message -> (severity, count) of one check."""
    return {f.message: (f.severity, f.count) for f in report.findings if f.code == code}


def test_healthy_data_has_no_warning():
    splits = healthy()
    tokenizer = word_tokenizer([*splits["train"][0], *splits["test"][0]], min_count=1)
    report = examine(dataset(**splits), tokenizer=tokenizer, max_length=16)
    assert {f.severity for f in report.findings} == {"ok"}
    codes = {f.code for f in report.findings}
    assert codes >= {"duplicates", "leaks", "contradictions", "truncation", "unknown", "accents", "balance"}


def test_repeats_and_leaks():
    splits = healthy()
    train, test = splits["train"][0], splits["test"][0]
    test[0] = test[1] = train[0]
    train[2] = train[4]
    test[5] = "<b>Film NUMBER 7</b>, was: fine!"
    report = examine(dataset(**splits))
    assert report.figures["splits"]["train"] | {"words": None} == {
        "rows": 60,
        "distinct": 59,
        "classes": {"a": 30, "b": 30},
        "words": None,
    }
    ((message, outcome),) = findings(report, "leaks").items()
    assert outcome == ("warning", 1)
    assert "distinct texts in both train and test: 1 (2 rows of test)" in message
    assert "; 2 when case, punctuation and markup do not count" in message
    assert report.figures["leaks"] == {"train/test": {"distinct": 1, "alike": 2}}
    repeats = findings(report, "duplicates")
    assert repeats["train: 1 of 60 texts (1.7%) repeat an earlier one"] == ("warning", 1)


def test_leaks_of_texts_without_a_word_are_counted_beside_those_that_differ_in_case():
    train = ([":)", "!!!", "Good film.", "Bad film."], ["a", "b"] * 2)
    test = ([":)", "!!!", "good film", "BAD FILM"], ["a", "b"] * 2)
    report = examine(dataset(train=train, test=test))
    (message,) = findings(report, "leaks")
    assert "distinct texts in both train and test: 2 (2 rows of test)" in message
    assert "; 4 when case, punctuation and markup do not count" in message
    assert report.figures["leaks"] == {"train/test": {"distinct": 2, "alike": 4}}


def test_leaks_into_unlabelled_texts_are_a_note():
    splits = healthy()
    report = examine(dataset(**splits, unsupervised=(splits["test"][0][:3], None)))
    message, outcome = list(findings(report, "leaks").items())[-1]
    assert outcome == ("note", 3)
    assert "leave them out when pre-training" in message


def test_contradictions():
    splits = healthy()
    splits["test"][0][0] = splits["train"][0][1]  # "a" there, "b" here
    report = examine(dataset(**splits))
    assert findings(report, "contradictions") == {"texts that occur with different labels: 1": ("warning", 1)}
    (example,) = next(f.examples for f in report.findings if f.code == "contradictions")
    assert example == "a and b (train, place 1; test, place 0): film number 1 was fine"


@pytest.mark.parametrize(
    ("labels", "severity"),
    [
        (["a"] * 10 + ["b"] * 10, "ok"),
        (["a"] * 14 + ["b"] * 6, "note"),
        (["a"] * 19 + ["b"], "warning"),
        ([1] * 20, "warning"),
    ],
)
def test_balance(labels, severity):
    report = examine(dataset(train=([f"this is text {i}" for i in range(20)], labels)))
    ((_, outcome),) = findings(report, "balance").items()
    assert outcome[0] == severity


def test_classes_missing_in_a_split():
    splits = healthy()
    splits["test"] = (splits["test"][0], ["a", "c"] * 30)
    report = examine(dataset(**splits))
    assert findings(report, "missing-classes") == {
        "train lacks 1 of 3 classes": ("warning", 1),
        "test lacks 1 of 3 classes": ("note", 1),
    }


def test_one_class_written_in_two_ways():
    texts = [f"film number {i}" for i in range(6)]
    found = findings(
        examine(dataset(train=(texts, ["good", "Good", "bad", "caf\u00e9", "cafe\u0301", "bad"]))),
        "twin-classes",
    )
    ((message, outcome),) = found.items()
    assert outcome == ("warning", 2)
    assert message.startswith(
        "classes whose names differ only in case, white space, invisible characters, the encoding of accents or the way a number is written: 2 ('Good' and 'good'"
    )
    report = examine(dataset(train=(texts, ["C", "C++", "D", "C", "C++", "D"])))
    assert findings(report, "twin-classes") == {"near-duplicate class names: none": ("ok", 0)}
    assert not findings(examine(dataset(train=(texts, [0, 1] * 3))), "twin-classes")


def test_short_and_wordless_texts():
    report = examine(dataset(train=(["good", "... !", "a b", "one two three"], [0, 1, 0, 1])))
    assert findings(report, "short-texts") == {"train: texts of fewer than 3 words: 2": ("note", 2)}
    assert findings(report, "blank-texts") == {
        "train: texts without a letter or digit: 1 (place 1)": ("warning", 1)
    }


def test_markup_and_composition():
    texts = ["fine<br /><br />film here", "3 < 4 and 5 > 4", unicodedata.normalize("NFD", "món này tệ")]
    data = dataset(train=(texts, [0, 1, 0]))
    ((message, outcome),) = findings(examine(data), "markup").items()
    assert outcome == ("note", 1)
    assert message.startswith("33.3%")
    assert not findings(examine(data, clean="html"), "markup")
    assert [c for _, c in findings(examine(data), "unicode").values()] == [1]


def test_truncation_and_unknown_words():
    tokenizer = word_tokenizer(["one two three four five"] * 2)
    texts = ["one two", "one two three four", "one zzz yyy five one two"]
    report = examine(dataset(train=(texts, [0, 1, 0])), tokenizer=tokenizer, max_length=5)
    figure = report.figures["tokens"]["train"]  # lengths with [CLS] and [SEP]: 4, 6, 8
    assert figure["truncated_share"] == pytest.approx(2 / 3)
    assert figure["lost_share"] == pytest.approx(4 / 18)
    assert figure["unknown_share"] == pytest.approx(2 / 12)
    assert figure["lengths"]["max"] == 8
    ((message, outcome),) = findings(report, "truncation").items()
    assert outcome == ("warning", 2)
    assert "66.7% of 3 texts exceed 5 tokens" in message
    assert next(iter(findings(report, "unknown").values())) == ("warning", 2)


def test_accents_lost():
    data = dataset(train=(["món này tệ quá", "món ngon lắm"], [0, 1]))
    lossy = word_tokenizer(data.splits["train"].texts, min_count=1, strip_accents=True)
    report = examine(data, tokenizer=lossy)
    finding = next(f for f in report.findings if f.code == "accents")
    assert finding.severity == "warning"
    assert {"tệ -> te", "món -> mon"} <= set(finding.examples)
    assert report.figures["accents"]["lost_share"] == pytest.approx(6 / 7)
    kept = examine(data, tokenizer=word_tokenizer(data.splits["train"].texts, min_count=1))
    assert next(f for f in kept.findings if f.code == "accents").severity == "ok"
    assert kept.figures["accents"] == {"accented_share": pytest.approx(6 / 7), "lost_share": 0}


def test_large_splits_are_sampled_and_that_is_said():
    texts = [f"text of number {i}" for i in range(6000)]
    report = examine(
        dataset(train=(texts, [0, 1] * 3000)), tokenizer=word_tokenizer(texts, min_count=1), max_length=9
    )
    assert report.figures["tokens"]["train"]["sampled"] == 5000
    assert "5,000 sampled texts" in next(iter(findings(report, "truncation")))


def test_report_is_json():
    report = examine(load_text_dataset("europe", limit=200))
    again = json.loads(json.dumps(report.to_dict()))
    assert again["name"] == "europe"
    assert again["figures"] == report.figures
    assert {"severity", "code", "message", "count", "examples", "fix"} == set(again["findings"][0])


@pytest.mark.slow
def test_the_real_imdb_has_123_leaks(data_root):
    data = load_text_dataset("imdb")
    start = time.process_time()
    report = examine(data)
    assert time.process_time() - start < 60
    assert {k: v["distinct"] for k, v in report.figures["leaks"].items()} == {
        "train/test": 123,
        "train/unsupervised": 354,
        "test/unsupervised": 266,
    }
    repeats = [f for f in report.findings if f.code == "duplicates"]
    assert [f.count for f in repeats] == [96, 199, 493]
    for found, alike in zip(repeats, (98, 200, 494), strict=True):
        assert re.search(
            rf" {found.count} of .* {alike} \(.* when case and spaces do not count", found.message
        )
    assert any("123" in f.message and f.severity == "warning" for f in report.findings if f.code == "leaks")


def test_copies_in_two_spellings_are_shown_with_the_way_out():
    splits = healthy()
    splits["test"][0][3] = "FILM number 9, was fine!"
    (leak,) = (f for f in examine(dataset(**splits)).findings if f.code == "leaks")
    assert (leak.severity, leak.count) == ("warning", 1)
    assert leak.message == "texts in both train and test when case, punctuation and markup do not count: 1"
    assert leak.examples == ("film number 9 was fine ~ FILM number 9, was fine!",)
    assert "drop_duplicates=true" in leak.sentence


def test_only_texts_that_repeat_are_listed_as_repeats():
    texts = ["one two three", "four five six", "seven eight nine", "one two three"]
    (found,) = (f for f in examine(dataset(train=(texts, [0, 1, 0, 0]))).findings if f.code == "duplicates")
    assert found.examples == ("2 times (places 0, 3): one two three",)


def test_the_way_out_stands_in_every_warning():
    texts = ["món này tệ quá", "món này tệ quá", "món ngon lắm", "x"] * 3
    data = dataset(train=(texts, ["Bad", "bad", "good", "a|b"] * 3))
    lossy = word_tokenizer(texts, min_count=1, strip_accents=True)
    found = {f.code: f for f in examine(data, tokenizer=lossy).findings if f.severity == "warning"}
    ways = {
        "duplicates": "drop_duplicates=true",
        "contradictions": "review-labels",
        "accents": "where strip_accents=true is set, leave it out",
        "twin-classes": "merge_labels=spelling",
    }
    assert {code: way for code, way in ways.items() if way in found[code].fix} == ways
    assert "'Bad' and 'bad'" in found["twin-classes"].message


def test_rows_that_cannot_be_used_are_counted_by_kind(tmp_path):
    rows = [
        "text,label",
        "a fine film,pos",
        ",pos",
        "a dull film,",
        "so,what,neg",
        "  ,neg",
        "a film,nan",
        "good,pos",
    ]
    path = tmp_path / "a.csv"
    path.write_text("\n".join([*rows, "a dull story,neg"]) + "\n")
    report = examine(load_text_dataset(path, on_bad_row="skip"))
    (found,) = (f for f in report.findings if f.code == "bad-rows")
    assert (found.severity, found.count) == ("warning", 5)
    assert "the text is empty (2: rows 3, 6)" in found.message
    assert "the label is missing (2: rows 4, 7)" in found.message
    assert "3 fields where the header has 2 (row 5)" in found.message
    assert f"{path}, row 5: 3 fields where the header has 2" in found.examples
    assert "--on-bad-row skip" in found.fix


def test_labels_that_are_no_classes_are_said():
    texts = [f"this is text {i}" for i in range(20)]
    found = {f.code: f for f in examine(dataset(train=(texts, [f"{i / 7:.2f}" for i in range(20)]))).findings}
    assert found["label-kind"].severity == "warning"
    assert "the labels look like numbers" in found["label-kind"].message
    assert "bin them into a few classes" in found["label-kind"].fix
    assert "label-kind" not in {f.code for f in examine(dataset(train=(texts, ["a", "b"] * 10))).findings}


def test_what_several_splits_have_is_one_line():
    found = [
        Finding("warning", "repeats", "train: 3 texts repeat", fix="drop them"),
        Finding("warning", "repeats", "test: 1 text repeats", fix="drop them"),
        Finding("warning", "leaks", "texts in both: 2"),
        Finding("warning", "balance", "test: 3 classes"),
        Finding("warning", "leaks", "texts in both: 5"),
    ]
    assert summary_lines(found) == [
        "train: 3 texts repeat: drop them (also in test)",
        "texts in both: 2",
        "test: 3 classes",
        "texts in both: 5",
    ]
    assert num_warnings(DoctorReport("d", found, {}).to_dict()["findings"]) == 4
    notes = [Finding("note", "repeats", "train: 3 texts repeat"), Finding("ok", "leaks", "none")]
    assert num_warnings(DoctorReport("d", notes, {}).to_dict()["findings"]) == 0


# --- neighbors --------------------------------------------------------------------------------------


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
    found = neighbor_similarity(texts)
    assert found is not None
    assert found.ratio > 10
    mixed = neighbor_similarity([texts[i] for i in RNG.permutation(len(texts))])
    assert mixed is not None
    assert mixed.ratio < 2


def test_neither_classes_nor_repeats_pass_for_kin():
    bad = [f"dull{i % 40} slow{i % 37} bad film {i}" for i in RNG.permutation(600).tolist()]
    good = [f"fine{i % 40} warm{i % 37} good film {i}" for i in RNG.permutation(600).tolist()]
    by_class = neighbor_similarity([*bad, *good], ["bad"] * 600 + ["good"] * 600)
    assert by_class is not None
    assert by_class.ratio < 2
    repeated = [text for i in RNG.permutation(400).tolist() for text in [f"rare{i} same{i % 20}"] * 5]
    found = neighbor_similarity(repeated)
    assert found is not None
    assert found.ratio < 2


def test_classes_that_take_turns_keep_their_order():
    pairs = zip(reviews(60, 9), reviews(60, 9))
    texts = [text for pair in pairs for text in pair]
    found = neighbor_similarity(texts, ["a", "b"] * (len(texts) // 2))
    assert found is not None
    assert found.ratio > 10


def test_too_few_rows_say_nothing():
    assert neighbor_similarity(["one film", "two films"] * 20) is None
    assert neighbor_similarity([f"{chr(97 + i % 26)}{i}" for i in range(500)]) is None  # no word twice


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
