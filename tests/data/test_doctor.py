"""The data doctor: each fault planted is found, a healthy data set gets no warning, one command answers what is found."""

import json
import re
import shlex
import time
import tomllib
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from glassformer.cli.app import main
from glassformer.data import DoctorReport, TextDataset, TextSplit, examine, load_text_dataset, word_tokenizer
from glassformer.data.dataset import Dataset
from glassformer.data.doctor import neighbor_similarity
from glassformer.data.doctor_checks import doubled_quotes
from glassformer.data.findings import Finding, num_warnings, summary_lines
from glassformer.data.label_kinds import find_missing_labels
from glassformer.data.numbers import number_findings
from glassformer.data.pair_doctor import examine_pairs
from glassformer.data.pairs import PairSplit
from glassformer.data.repairs import apply_repairs, fixing_options, needed_corrections
from glassformer.study.review import training_command
from glassformer.targets.multiclass import Classes, no_better_than_majority
from glassformer.tasks.supervised import small_validation

from .conftest import by_code, dataset


def healthy(n: int = 60) -> dict:
    train = [f"film number {i} was fine" for i in range(n)]
    test = [f"film number {i} was not" for i in range(n)]
    return {"train": (train, ["a", "b"] * (n // 2)), "test": (test, ["a", "b"] * (n // 2))}


def findings(report: DoctorReport, code: str) -> dict[str, tuple[str, int]]:
    """Message -> (severity, count) of one check."""
    return {f.message: (f.severity, f.count) for f in report.findings if f.code == code}


def of_train(texts, labels=None, **options) -> DoctorReport:
    return examine(dataset(train=(texts, labels or [0, 1, 0, 1][: len(texts)])), **options)


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
    rows = {"rows": 60, "distinct": 59, "classes": {"a": 30, "b": 30}}
    assert rows.items() <= report.figures["splits"]["train"].items()
    ((message, outcome),) = findings(report, "leaks").items()
    assert outcome == ("warning", 1)
    assert "distinct texts in both train and test: 1 (2 rows of test)" in message
    assert "; 2 when case, punctuation and markup do not count" in message
    assert report.figures["leaks"] == {"train/test": {"distinct": 1, "alike": 2}}
    repeats = findings(report, "duplicates")
    assert repeats["train: 1 of 60 texts (1.7%) repeat an earlier one"] == ("warning", 1)


def test_copies_that_differ_in_case_are_counted():
    texts = ["one two three", "ONE two  three", "four five six", "four five six"]
    found = by_code(of_train(texts))["duplicates"]
    assert found.severity == "warning"
    assert found.message == (
        "train: 1 of 4 texts (25.0%) repeat an earlier one, 2 (50.0%) when case and spaces do not count"
    )
    assert found.examples == ("2 times (places 2, 3): four five six", "one two three ~ ONE two three")


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
    assert by_code(of_train([f"this is text {i}" for i in range(20)], labels))["balance"].severity == severity


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
    names = ["good", "Good", "bad", "caf\u00e9", "cafe\u0301", "bad"]
    found = by_code(of_train(texts, names))["twin-classes"]
    assert (found.severity, found.count) == ("warning", 2)
    kinds = "case, white space, invisible characters, the encoding of accents or the way a number is written"
    assert found.message.startswith(f"classes whose names differ only in {kinds}: 2 ('Good' and 'good'")
    report = of_train(texts, ["C", "C++", "D", "C", "C++", "D"])
    assert findings(report, "twin-classes") == {"near-duplicate class names: none": ("ok", 0)}
    assert not findings(of_train(texts, [0, 1] * 3), "twin-classes")


def test_short_and_wordless_texts():
    report = of_train(["good", "... !", "a b", "one two three"])
    assert findings(report, "short-texts") == {"train: texts of fewer than 3 words: 2": ("note", 2)}
    said = "train: texts without a letter or digit: 1 (place 1)"
    assert findings(report, "blank-texts") == {said: ("warning", 1)}


def test_markup_and_composition():
    texts = ["fine<br /><br />film here", "3 < 4 and 5 > 4", unicodedata.normalize("NFD", "món này tệ")]
    found = by_code(of_train(texts))
    assert (found["markup"].severity, found["markup"].count) == ("note", 1)
    assert found["markup"].message.startswith("33.3%")
    assert "markup" not in by_code(of_train(texts, clean="html"))
    assert found["unicode"].count == 1


def test_truncation_and_unknown_words():
    texts = ["one two", "one two three four", "one zzz yyy five one two"]
    report = of_train(texts, tokenizer=word_tokenizer(["one two three four five"] * 2), max_length=5)
    figure = report.figures["tokens"]["train"]  # lengths with [CLS] and [SEP]: 4, 6, 8
    assert figure["truncated_share"] == pytest.approx(2 / 3)
    assert figure["lost_share"] == pytest.approx(4 / 18)
    assert figure["unknown_share"] == pytest.approx(2 / 12)
    assert figure["lengths"]["max"] == 8
    found = by_code(report)
    assert (found["truncation"].severity, found["truncation"].count) == ("warning", 2)
    assert "66.7% of 3 texts exceed 5 tokens" in found["truncation"].message
    assert (found["unknown"].severity, found["unknown"].count) == ("warning", 2)


def test_rows_that_make_most_of_what_is_cut_are_named():
    texts = [f"w{i} is short" for i in range(17)]
    texts[5] = "w1 " * 97
    options = {"tokenizer": word_tokenizer(texts, min_count=1), "max_length": 13}

    def cut(texts):
        split = TextSplit(texts, ["a"] * 17, "x.csv", list(range(2, 19)))
        return by_code(examine(TextDataset("x", {"train": split}), **options))["truncation"]

    assert cut(texts).message.endswith("100% of them in row 7")
    assert cut(texts).examples[0].startswith("x.csv, row 7: ")
    many = cut(["w1 " * 29] * 17)
    assert many.message.endswith("tokens are cut")
    assert many.examples == ()


def test_accents_lost():
    texts = ["món này tệ quá", "món ngon lắm"]
    report = of_train(texts, tokenizer=word_tokenizer(texts, min_count=1, strip_accents=True))
    finding = by_code(report)["accents"]
    assert finding.severity == "warning"
    assert {"tệ -> te", "món -> mon"} <= set(finding.examples)
    assert report.figures["accents"]["lost_share"] == pytest.approx(6 / 7)
    kept = of_train(texts, tokenizer=word_tokenizer(texts, min_count=1))
    assert by_code(kept)["accents"].severity == "ok"
    assert kept.figures["accents"] == {"accented_share": pytest.approx(6 / 7), "lost_share": 0}


def test_texts_of_segmented_words():
    words = (["nhà_hàng này rất ngon", "quán sạch_sẽ và nhà_hàng đẹp"] * 5, [0, 1] * 5)
    plain = ([text.replace("_", " ") for text in words[0]], words[1])
    mixed = by_code(examine(dataset(train=words, test=plain)))["segmentation"]
    assert mixed.severity == "warning"
    assert "train 100%, test 0%" in mixed.message
    assert by_code(examine(dataset(train=words, test=words)))["segmentation"].severity == "note"
    assert "segmentation" not in by_code(examine(dataset(train=plain, test=plain)))
    assert "segmentation" not in by_code(examine(dataset(train=words, test=plain), clean="syllables"))


def test_large_splits_are_sampled_and_that_is_said():
    texts = [f"text of number {i}" for i in range(6000)]
    report = of_train(texts, [0, 1] * 3000, tokenizer=word_tokenizer(texts, min_count=1), max_length=9)
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
    leaks = {"train/test": 123, "train/unsupervised": 354, "test/unsupervised": 266}
    assert {k: v["distinct"] for k, v in report.figures["leaks"].items()} == leaks
    repeats = [f for f in report.findings if f.code == "duplicates"]
    assert [f.count for f in repeats] == [96, 199, 493]
    for found, alike in zip(repeats, (98, 200, 494), strict=True):
        said = rf" {found.count} of .* {alike} \(.* when case and spaces do not count"
        assert re.search(said, found.message)
    assert any("123" in f.message and f.severity == "warning" for f in report.findings if f.code == "leaks")


def test_copies_in_two_spellings_are_shown_with_the_way_out():
    splits = healthy()
    splits["test"][0][3] = "FILM number 9, was fine!"
    leak = by_code(examine(dataset(**splits)))["leaks"]
    assert (leak.severity, leak.count) == ("warning", 1)
    assert leak.message == "texts in both train and test when case, punctuation and markup do not count: 1"
    assert leak.examples == ("film number 9 was fine ~ FILM number 9, was fine!",)
    assert "drop_duplicates=true" in leak.sentence


def test_the_way_out_stands_in_every_warning():
    texts = ["món này tệ quá", "món này tệ quá", "món ngon lắm", "x"] * 3
    lossy = word_tokenizer(texts, min_count=1, strip_accents=True)
    found = by_code(of_train(texts, ["Bad", "bad", "good", "a|b"] * 3, tokenizer=lossy), "warning")
    ways = {
        "duplicates": "drop_duplicates=true",
        "contradictions": "review-labels",
        "accents": "where strip_accents=true is set, leave it out",
        "twin-classes": "merge_labels=spelling",
    }
    assert {code: way for code, way in ways.items() if way in found[code].fix} == ways


def test_labels_that_are_no_classes_are_said():
    texts = [f"this is text {i}" for i in range(20)]
    found = by_code(of_train(texts, [f"{i / 7:.2f}" for i in range(20)]))["label-kind"]
    assert found.severity == "warning"
    assert "the labels look like numbers" in found.message
    assert "bin them into a few classes" in found.fix
    assert "label-kind" not in by_code(of_train(texts, ["a", "b"] * 10))


def test_what_several_splits_have_is_one_line():
    found = [
        Finding("warning", "repeats", "train: 3 texts repeat", fix="drop them"),
        Finding("warning", "repeats", "test: 1 text repeats", fix="drop them"),
        Finding("warning", "leaks", "texts in both: 2"),
        Finding("warning", "balance", "test: 3 classes"),
        Finding("warning", "leaks", "texts in both: 5"),
    ]
    first = "train: 3 texts repeat: drop them (also in test)"
    assert summary_lines(found) == [first, "texts in both: 2", "test: 3 classes", "texts in both: 5"]
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


def ratio(*given) -> float:
    found = neighbor_similarity(*given)
    assert found is not None
    return found.ratio


def test_reviews_of_one_film_next_to_each_other_are_found():
    texts = reviews(60, 9)
    assert ratio(texts) > 10
    assert ratio([texts[i] for i in RNG.permutation(len(texts))]) < 2
    turns = [text for pair in zip(reviews(60, 9), reviews(60, 9)) for text in pair]
    assert ratio(turns, ["a", "b"] * (len(turns) // 2)) > 10  # classes that take turns keep their order


def test_neither_classes_nor_repeats_pass_for_kin():
    bad = [f"dull{i % 40} slow{i % 37} bad film {i}" for i in RNG.permutation(600).tolist()]
    good = [f"fine{i % 40} warm{i % 37} good film {i}" for i in RNG.permutation(600).tolist()]
    assert ratio([*bad, *good], ["bad"] * 600 + ["good"] * 600) < 2
    assert ratio([text for i in RNG.permutation(400).tolist() for text in [f"rare{i} same{i % 20}"] * 5]) < 2


def test_too_few_rows_say_nothing():
    assert neighbor_similarity(["one film", "two films"] * 20) is None
    assert neighbor_similarity([f"{chr(97 + i % 26)}{i}" for i in range(500)]) is None  # no word twice


def test_the_doctor_tells_it_and_the_way_out():
    texts = reviews(60, 9)
    labels = ["a", "b", "b"] * (len(texts) // 3)
    for options, severity, said in (
        ({}, "note", 'hold_out = "blocks"'),
        ({"held_out": "rows"}, "warning", ""),
        ({"held_out": "blocks"}, "ok", "were held out in blocks"),
    ):
        finding = by_code(of_train(texts, labels, **options))["neighbours"]
        assert finding.severity == severity
        assert said in finding.message
    order = RNG.permutation(len(texts)).tolist()
    mixed = of_train([texts[i] for i in order], [labels[i] for i in order])
    assert by_code(mixed)["neighbours"].severity == "ok"


# --- what the doctor found, answered by one command ---------------------------------------------------


def doctored(labels: list[str], texts: list[str] | None = None):
    """The doctor's findings, and the options that answer them."""
    texts = texts or [f"a text of number {i}" for i in range(len(labels))]
    splits = {"train": TextSplit(texts, labels, "x")}
    report = examine(TextDataset("x", splits))
    return report.findings, fixing_options(report.findings, splits), splits


BALANCE = ["--set", "class_weight=balanced", "--set", "monitor=macro_f1"]
MERGE, DROP = ["--set", "merge_labels=spelling"], ["--set", "drop_duplicates=true"]
FILMS = ["a fine film", "a dull film", "A FINE film", "c d e", "f g h", "i j k"]


UNEQUAL = ["good"] * 20 + ["Good", "bad", "bad", "N/A"]


@pytest.mark.parametrize(
    ("labels", "texts", "options"),
    [
        (UNEQUAL, None, BALANCE + MERGE),  # never what leaves a class out
        (["good"] * 9 + ["Good", "bad", "bad"], None, MERGE),
        (["good", "bad"] * 3, FILMS, DROP),
        (["good", "bad"] * 3, None, []),
        ([f"{i % 23 / 7:.2f}" for i in range(47)], None, ["--set", "target=number"]),  # never merged
    ],
)
def test_every_warning_that_an_option_answers(labels, texts, options):
    assert doctored(labels, texts)[1] == options


def doctor(capsys, *arguments: str) -> tuple[str, list[str]]:
    """What the doctor's verb prints: the table on one line, and all lines."""
    assert main(["data", "doctor", *arguments]) == 0
    out = capsys.readouterr().out
    return " ".join(out.replace("│", " ").split()), out.strip().splitlines()


def test_several_columns_of_labels_are_a_warning(put, capsys):
    rows = [f"film number {i},{'pos' if i % 2 else 'neg'},{'x' if i % 3 else 'y'}" for i in range(20)]
    said, _ = doctor(capsys, str(put("a.csv", ["what,said,more", *rows])))
    assert "warning columns no labels were checked: several columns could be the label (said, more)" in said


@pytest.mark.parametrize(
    ("right", "sentence"),
    [
        ([7, 0], "no better than always predicting 'a', the label of 70.0%"),
        ([7, 2], ""),
        ([5, 3], ""),  # right less often than 'a' alone, and with the better macro-F1
    ],
)
def test_a_model_that_always_answers_one_label_is_called_so(right, sentence):
    targets = np.array([0] * 7 + [1] * 3)
    predicted = np.array([0] * right[0] + [1] * (7 - right[0]) + [1] * right[1] + [0] * (3 - right[1]))
    scores = Classes().score(np.eye(2)[predicted], targets, ["a", "b"], bootstrap=0)
    assert no_better_than_majority(scores) == sentence


def test_few_validation_examples_are_said():
    held = TextSplit(["x"] * 35, ["a"] * 33 + ["b"] * 2, "x")

    def said(monitor: str, held=held) -> str:
        return small_validation(held, SimpleNamespace(monitor=monitor, keep_best=True))

    assert "only 35 validation examples (2 of class 'b')" in said("macro_f1")
    assert said("loss") == said("macro_f1", TextSplit(["x"] * 101, ["a", "b"] * 50 + ["a"], "x")) == ""
    assert "monitor=loss" not in said("macro_f1")  # a monitor that was chosen is respected
    assert "monitor=macro_f1 is less noisy with more" in said("macro_f1")
    assert "--set monitor=loss" in said("accuracy")


def test_a_corrected_table_is_given_back_with_its_settings(put):
    data = {"source": str(put("a.csv", "what,said\nx,y\n")), "label_column": "said", "on_bad_row": "skip"}
    data |= {"drop_duplicates": True, "merge_labels": {"Y": "y"}}
    assert shlex.join(training_command(data, Path("c.csv"))) == (
        "glassformer train --text c.csv --label-column said --on-bad-row skip --set drop_duplicates=true "
        """--set 'merge_labels={"Y" = "y"}'"""
    )
    command = training_command({"source": "imdb", "label_column": "said"}, Path("c.csv"))
    assert command[2:] == ["--text", "c.csv"]


def test_where_the_label_is_not_known_the_last_line_is_a_command_that_works(put, capsys):
    rows = [f"film number {i // 2},{('Ana', 'Bo', 'Cy')[i % 3]},{'abcd'[i % 4]}" for i in range(23)]
    file = put("a.csv", ["what,Handled by,Kind of film", *rows])
    said, lines = doctor(capsys, str(file))
    assert "name it with --label-column" in said
    assert "label_column" not in said
    guess, command = lines[-1].split(": glassformer data doctor ")
    assert guess == "no labels were checked; 'Kind of film' is a guess (or: 'Handled by')"
    arguments = shlex.split(command)
    assert arguments == [str(file), "--label-column", "Kind of film"]
    said, lines = doctor(capsys, *arguments)
    assert "labels were checked" not in said
    assert f"train --text {file} --label-column 'Kind of film'" in lines[-1]


def test_a_table_of_numbers_is_sent_to_the_task_of_numbers(put, capsys):
    file = put("rated.csv", ["id,what,rated", *(f"{i},film number {i},{i / 7:.3f}" for i in range(41))])
    known, command = doctor(capsys, str(file))[1][-1].split(": glassformer train ")
    looks = "(to check them, add --set target=number)"
    assert known == f"no column looks like labels; 'rated' has numbers {looks}"
    assert command == shlex.join(["--text", str(file), "--set", "target=number", "--label-column", "rated"])


def test_a_file_without_labels_is_not_to_be_trained_on(put, capsys):
    file = put("new.csv", ["number,what", *(f"{100 + i},film number {i // 2}" for i in range(23))])
    _, lines = doctor(capsys, str(file))
    assert lines[-1] == f"no column looks like labels: to label these texts, glassformer predict RUN {file}"
    assert not any("glassformer train" in line for line in lines)


def test_the_texts_named_as_labels_are_called_so(put, capsys):
    path = put("a.csv", ["number,what,kind", *(f"{i},film number {i},{'ab'[i % 2]}" for i in range(23))])
    assert main(["data", "doctor", str(path), "--label-column", "what"]) == 2
    error = capsys.readouterr().err
    assert "'what' is named as the column of labels but contains the texts: 23 different texts" in error
    assert "Name the column of classes with --label-column, such as 'kind'" in error


@pytest.mark.parametrize(
    ("classes", "found"),
    [
        (["a", "b", "N/A", "?"], ["?", "N/A"]),
        (["a", "b", " Unknown "], [" Unknown "]),
        (["none", "insult"], []),  # one class beside it: it is the other
        (["+", "-", "so so"], []),
        (["a", "b", "nab"], []),
        ([0, 1, 2], []),
    ],
)
def test_classes_that_mean_no_label(classes, found):
    assert find_missing_labels(classes) == found


def test_a_missing_label_as_a_class_is_left_out_by_a_person():
    findings, options, splits = doctored(["good"] * 7 + ["Good"] * 3 + ["bad"] * 5 + ["n/a"] * 2)
    found = {f.code: f for f in findings}
    assert (found["no-label"].severity, found["no-label"].count) == ("warning", 2)
    table = """merge_labels={"*" = "spelling", "n/a" = ""}"""  # what is merged and what is left out
    assert found["twin-classes"].fix == found["no-label"].fix == f"merge and leave out with --set '{table}'"
    assert options[-1] == "merge_labels=spelling"
    kept, _ = apply_repairs(TextDataset("x", splits), tomllib.loads(table)["merge_labels"], False)
    assert set(kept.splits["train"].labels) == {"good", "bad"}


def test_copies_with_another_label_are_said_when_they_are_left_out():
    texts = ["one two", "three four", "ONE two", "one two", "five six", "three four"]
    split = TextSplit(texts, ["a", "b", "b", "a", "b", "a"], "x.csv", [2, 3, 4, 5, 6, 7])
    kept, (said,) = apply_repairs(TextDataset("x", {"train": split}), "none", True)
    assert kept.splits["train"].labels == ["a", "b", "b"]
    assert said == (
        "drop_duplicates: 3 of 6 of train left out; 2 of them had another label: the first was kept "
        "(row 4 'b', kept: row 2 'a'; row 7 'a', kept: row 3 'b')"
    )
    test = TextSplit(["three four"], ["a"], "y.csv", [2])
    _, said = apply_repairs(TextDataset("x", {"train": split, "test": test}), "none", True)
    assert "row 3 'b', kept: row 2 of test 'a'" in said[-1]


def test_contradictions_are_to_be_corrected_first():
    texts = ["one two three", "one two three", "d e f", "g h i"]
    findings, options, splits = doctored(["a", "b", "a", "b"], texts)
    assert "correct them first" in needed_corrections(findings, options, splits)
    assert needed_corrections(findings, [], splits) == ""
    findings, options, splits = doctored(["a", "a", "a", "b"], texts)
    assert "correct them" not in needed_corrections(findings, options, splits)


def test_doubled_quotes_are_shown():
    texts = ["plain", '"It is ""so"" and so"', 'he said "no" twice', 'a ""b"" c', '""', "5'11\""]
    split = SimpleNamespace(texts=texts, origin="x.csv", rows=[2, 3, 4, 5, 6, 7])
    (found,) = doubled_quotes({"train": split}, {})
    assert found.count == 3
    assert [example.split(":")[0] for example in found.examples] == [f"x.csv, row {i}" for i in (3, 5, 6)]
    pairs = Dataset("x", {"train": PairSplit(["a", '"b ""c"""'], ["d", "e"], "x", None)})
    assert [f.count for f in examine_pairs(pairs).findings if f.code == "quotes"] == [1]


@pytest.mark.parametrize(
    ("lowest", "scale", "logarithms"), [(40, "linear", 1), (-1, "linear", 0), (40, "log", 0)]
)
def test_numbers_far_from_all_others_are_warned_of(lowest, scale, logarithms):
    numbers = {"train": [lowest, *range(41, 100), 5000]}
    found = by_code(DoctorReport("x", [*number_findings(numbers, {}, scale)], {}))["far-numbers"]
    assert (found.severity, found.count) == ("warning", 1)
    assert found.message.endswith("(5000)")
    assert "--set far_numbers=skip" in found.fix
    assert ("number_scale=log" in found.fix) == logarithms


@pytest.mark.parametrize("more", ["", ",pos\n"])
def test_a_table_in_another_encoding_is_read_so_and_no_row_is_lost(put, more):
    rows = [f"a film number {i} is {('good', 'poor')[i % 2]},{('pos', 'neg')[i % 2]}" for i in range(20)]
    path = put("latin.csv", "\n".join(["text,label", *rows, "the café – naïve,pos", more]).encode("cp1252"))
    dataset = load_text_dataset(path, on_bad_row="skip", need_labels=True)
    (found,) = (f for f in examine(dataset).findings if f.code == "bad-rows")
    assert found.fix.startswith("read it with --encoding cp1252, or save it as UTF-8; correct them")
    skip = ["--on-bad-row", "skip"] if more else []
    assert fixing_options([found], dataset.splits) == ["--encoding", "cp1252", *skip]
