"""Tags in every spelling: read as what they are where that is sure, asked about where it is not."""

import numpy as np
import pytest

from glassformer.data.tag_doctor import examine_tagged
from glassformer.data.tagged import TaggedDataset, TaggedSplit
from glassformer.data.tags import (
    Span,
    malformed_positions,
    read_model_labels,
    read_tags,
    read_tags_like_model,
    repair_tags,
    tags_to_spans,
)
from glassformer.errors import ConfigError, DataError
from glassformer.targets.token_tags import tag_metrics, word_log_loss

from .conftest import by_code

# "Ann left New York" twice, then two places side by side; the spans are the same in every spelling.
SPANS = [[("PER", 0, 1), ("LOC", 2, 4)], [("LOC", 0, 2), ("LOC", 2, 3)], []]
BIO = [["B-PER", "O", "B-LOC", "I-LOC"], ["B-LOC", "I-LOC", "B-LOC"], ["O", "O"]]
IOB1 = [["I-PER", "O", "I-LOC", "I-LOC"], ["I-LOC", "I-LOC", "B-LOC"], ["O", "O"]]
BIOES = [["S-PER", "O", "B-LOC", "E-LOC"], ["B-LOC", "E-LOC", "S-LOC"], ["O", "O"]]
NUMBERS = {"O": 0, "B-PER": 1, "I-PER": 2, "B-LOC": 3, "I-LOC": 4}
NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def spelled(tags, change, outside="O"):
    return [[outside if tag == "O" else change(*tag.split("-")) for tag in own] for own in tags]


def lettered(tags, letters: dict[str, str]):
    return spelled(tags, lambda letter, kind: f"{letters.get(letter, letter)}-{kind}")


def numbered(tags, numbers=NUMBERS):
    return [[str(numbers[tag]) for tag in own] for own in tags]


SURE = {  # read without a question
    "BIO": (BIO, "BIO"),
    "IOB1": (IOB1, "BIO"),
    "BIOES": (BIOES, "BIOES"),
    "BILOU": (lettered(BIOES, {"E": "L", "S": "U"}), "BIOES"),
    "BMES": (lettered(BIOES, {}), "BIOES"),
    "BMEWO": (lettered(BIOES, {"S": "W"}), "BIOES"),
    "IOE": ([["E-PER", "O", "I-LOC", "E-LOC"], ["I-LOC", "E-LOC", "E-LOC"], ["O", "O"]], "BIOES"),
}


def written(form: str, tags=BIO, lower: bool = False, outside: str = "O"):
    return spelled(tags, lambda letter, kind: form.format(letter.lower() if lower else letter, kind), outside)


ASKED = {  # spelling -> tags and the scheme that they look like
    **{
        form.format("B", "LOC"): (written(form), "BIO")
        for form in ("{}_{}", "{}/{}", "{}:{}", "{} {}", "{1}-{0}", "{1}_{0}")
    },
    "b-LOC": (written("{}-{}", lower=True, outside="o"), "BIO"),
    "b_LOC": (written("{}_{}", lower=True), "BIO"),
    "LOC-b": (written("{1}-{0}", lower=True), "BIO"),
    "zero for O": (written("{}-{}", outside="0"), "BIO"),
    "small o": (written("{}-{}", outside="o"), "BIO"),
    "S_LOC": (written("{}_{}", BIOES), "BIOES"),
    "LOC-S": (written("{1}-{0}", BIOES), "BIOES"),
    "U/LOC": (written("{}/{}", lettered(BIOES, {"E": "L", "S": "U"})), "BIOES"),
    "W_LOC": (written("{}_{}", lettered(BIOES, {"S": "W"})), "BIOES"),
    "I_LOC of IOB1": (written("{}_{}", IOB1), "BIO"),
}


def found(reading) -> list[list[tuple]]:
    return [[tuple(span) for span in tags_to_spans(own, reading.scheme)] for own in reading.tags]


@pytest.mark.parametrize("name", SURE)
def test_what_is_sure_is_read_without_a_question(name):
    tags, scheme = SURE[name]
    reading = read_tags(tags)
    assert (reading.scheme, found(reading)) == (scheme, SPANS)
    if name in ("BIO", "BIOES", "BILOU"):  # as they are, to the letter
        assert (reading.tags, reading.message) == (tags, "")
    elif name != "BMES":
        assert reading.message.endswith(f"are read as {scheme}")
        # IOB1 breaks no rule of its own.
        assert not any(malformed_positions(own, scheme) for own in reading.tags)


def test_chinese_words_are_marked_by_letters_alone():
    reading = read_tags([["B", "M", "M", "E", "S"], ["S", "B", "E"]])
    assert reading.scheme == "BIOES"
    assert found(reading) == [[("entity", 0, 4), ("entity", 4, 5)], [("entity", 0, 1), ("entity", 1, 3)]]


@pytest.mark.parametrize("name", ASKED)
def test_another_spelling_is_asked_about_and_a_setting_answers(name):
    tags, scheme = ASKED[name]
    with pytest.raises(DataError, match=f"look like {scheme} in another spelling") as caught:
        read_tags(tags)
    assert f"scheme={scheme}" in str(caught.value)
    assert "scheme=plain" in str(caught.value)
    reading = read_tags(tags, scheme)
    assert (reading.scheme, found(reading)) == (scheme, SPANS)
    assert f"read as {scheme}" in reading.message
    plain = read_tags(tags, "plain")
    assert (plain.tags, plain.scheme) == (tags, "plain")


@pytest.mark.parametrize("setting", [NAMES, tuple(NAMES), "O,B-PER,I-PER,B-LOC,I-LOC", "BIO", "bio", "IOB2"])
def test_numbers_are_asked_about_and_named(setting):
    tags = numbered(BIO)
    with pytest.raises(DataError, match=r"numbers without names \(0 to 4\).*they look like BIO") as caught:
        read_tags(tags)
    assert "scheme=BIO" in str(caught.value)
    reading = read_tags(tags, setting)
    kinds = {"1": "PER", "2": "LOC"}  # where only the scheme is named, kinds are numbers
    spans = [[(kinds.get(kind, kind), a, b) for kind, a, b in own] for own in found(reading)]
    assert (reading.scheme, spans) == ("BIO", SPANS)


def test_numbers_in_another_order_are_not_taken_for_pairs():
    order = {tag: i for i, tag in enumerate(sorted(NUMBERS))}  # B-LOC 0, B-PER 1, I-LOC 2, I-PER 3, O 4
    tags = numbered(BIO, order)
    with pytest.raises(DataError, match="numbers without names") as caught:
        read_tags(tags)
    assert "look like" not in str(caught.value)
    with pytest.raises(DataError, match="they are not BIO: 2 does not follow 1"):
        read_tags(tags, "BIO")
    assert found(read_tags(tags, sorted(NUMBERS))) == SPANS
    with pytest.raises(DataError, match="tag 4 has no name"):
        read_tags(tags, sorted(NUMBERS)[:4])
    with pytest.raises(DataError, match="below 0"):
        read_tags([["0", "-1"]], "plain")


def test_zero_is_never_a_kind():
    reading = read_tags(numbered(BIO), "plain")
    kinds = {kind for own in found(reading) for kind, _, _ in own}
    assert kinds == {"1", "3", "4"}
    figures = tag_metrics(reading.tags, reading.tags, "plain", bootstrap=0)
    assert sorted(figures["by_kind"]) == ["1", "3", "4"]


@pytest.mark.parametrize(
    ("tags", "scheme", "said"),
    [
        ([["B-PER", "I-PER", "PER"]], "auto", "tag 'PER' is neither O nor one with B-"),
        ([["B-PER", "I-PER", "X", "PAD", "CLS"]], "auto", "tag 'X' is neither O nor one with B-"),
        ([["B-PER", "O", "LOC"]], "auto", "tag 'LOC' is neither O nor one with B-"),
        ([["B-PER", "O", "S-LOC"]], "BIO", r"tag 'S-LOC' is not one of BIO.*scheme=BIOES"),
        ([["B_PER", "O", "LOC"]], "BIO", "tag 'LOC' is not one of BIO"),
        ([["-100", "-100"]], "auto", "every word has the tag -100"),
        ([["0", "1"]], "BILOU", "numbers without names"),
    ],
)
def test_what_no_scheme_has_is_named(tags, scheme, said):
    with pytest.raises(DataError, match=said):
        read_tags(tags, scheme)


@pytest.mark.parametrize("tags", [["NOUN", "VERB"], ["O", "O"], ["O", "E-mail", "U-boat"], ["O", "M-theory"]])
def test_plain_tags_are_left_alone(tags):
    reading = read_tags([tags])
    assert (reading.tags, reading.message) == ([tags], "")


@pytest.mark.parametrize("scheme", ["BOI", "", [], ["O", "O"], ["O", 3], "O,,B-x"])
def test_a_wrong_setting_is_named(scheme):
    with pytest.raises(ConfigError, match="scheme"):
        read_tags(BIO, scheme)


# --- other data for a model -----------------------------------------------------------------------

CLASSES = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


@pytest.mark.parametrize("name", [*SURE, *ASKED])
def test_a_model_reads_other_data_in_any_spelling(name):
    tags = (SURE | ASKED)[name][0]
    made = [repair_tags(own, "BIO") for own in read_tags_like_model(tags, "auto", "BIO", CLASSES)]
    assert made == BIO


def test_other_data_that_a_model_cannot_have_are_named():
    with pytest.raises(DataError, match=r"tag 'LOC' is not one of BIOES.*Write tags as the model has them"):
        read_tags_like_model([["LOC", "O"]], "auto", "BIO", CLASSES)
    with pytest.raises(DataError, match="tag '3' is not one"):
        read_tags_like_model([["3", "0"]], "auto", "BIO", CLASSES)
    with pytest.raises(DataError, match=r"the tags are BIO .*the model's tags are plain"):
        read_tags_like_model([["B-LOC", "O"]], "auto", "plain", ["O", "LOC"])
    assert read_tags_like_model(numbered(BIO), NAMES, "BIO", CLASSES) == BIO
    assert read_tags_like_model([["O", "-100"]], "auto", "BIO", CLASSES) == [["O", "-100"]]
    from_before = read_tags_like_model([["0", "3"]], "auto", "plain", ["0", "3"])
    assert from_before == [["0", "3"]]


@pytest.mark.parametrize(
    ("names", "scheme", "out", "said"),
    [
        (["O", "B-LOC", "I-LOC"], "BIO", None, ""),
        (["O", "I-LOC", "I-PER"], "BIO", None, ""),
        (["O", "B_LOC", "I_LOC"], "BIO", ["O", "B-LOC", "I-LOC"], "'B_LOC' as 'B-LOC'"),
        ([f"LOC-{x}" for x in "BIES"], "BIOES", [f"{x}-LOC" for x in "BIES"], "LOC-B"),
        (["LABEL_0", "LABEL_1"], "plain", None, "no names"),
        (["O", "B-LOC", "I-LOC", "X", "[CLS]", "[SEP]"], "BIO", None, "X, [CLS]"),
        (["NOUN", "VERB"], "plain", None, ""),
    ],
)
def test_labels_of_a_foreign_model(names, scheme, out, said):
    reading = read_model_labels(names)
    assert (reading.tags, reading.scheme) == ([out or names], scheme)
    assert said in reading.message


# --- words that do not count ----------------------------------------------------------------------


def test_words_without_a_tag_count_in_no_metric():
    seqeval = pytest.importorskip("seqeval.metrics")
    truth = [["B-LOC", "-100", "I-LOC", "O", "-100"], ["-100", "B-PER", "-100", "B-LOC"]]
    guess = [["B-LOC", "O", "I-LOC", "O", "B-PER"], ["B-LOC", "B-PER", "I-PER", "O"]]
    kept = [[i for i, tag in enumerate(own) if tag != "-100"] for own in truth]
    plain = [[[own[i] for i in at] for own, at in zip(tags, kept, strict=True)] for tags in (truth, guess)]
    figures = tag_metrics(truth, guess, "BIO", bootstrap=7)
    assert figures["entity_f1"] == pytest.approx(seqeval.f1_score(*plain))
    assert figures["accuracy"] == seqeval.accuracy_score(*plain) == 4 / 5
    assert (figures["words"], figures["entities"]) == (5, 3)
    assert sorted(figures["by_kind"]) == ["LOC", "PER"]
    p = np.array([[0.5, 0.5], [0.1, 0.9], [0.25, 0.75]])
    loss = word_log_loss(p, ["O", "-100", "B-x"], ["O", "B-x"])
    assert loss == pytest.approx(-(np.log(0.5) + np.log(0.75)) / 2)


def test_spans_go_over_words_without_a_tag():
    tags = ["B-LOC", "-100", "I-LOC", "-100", "-100", "I-PER", "O"]
    assert tags_to_spans(tags, "BIO") == [Span("LOC", 0, 3), Span("PER", 5, 6)]
    assert repair_tags(tags, "BIO") == ["B-LOC", "-100", "I-LOC", "-100", "-100", "B-PER", "O"]
    assert repair_tags(tags, "BIOES") == ["B-LOC", "-100", "E-LOC", "-100", "-100", "S-PER", "O"]
    assert malformed_positions(tags, "BIO") == [5]
    assert tags_to_spans(["x", "-100", "x"], "plain") == [Span("x", 0, 3)]


# --- the doctor -----------------------------------------------------------------------------------


def examined(tags, scheme="auto"):
    words = [[f"w{i}{j}" for j, _ in enumerate(own)] for i, own in enumerate(tags)]
    return examine_tagged(TaggedDataset("mine", {"train": TaggedSplit(words, tags, "mine")}), scheme)


def test_the_doctor_asks_and_goes_on():
    tags = ASKED["B_LOC"][0]
    asked = by_code(examined(tags))["tag-scheme"]
    assert asked.severity == "warning"
    assert "scheme=BIO" in asked.fix
    report = examined(tags, "BIO")
    assert report.figures["scheme"] == "BIO"
    assert report.figures["splits"]["train"]["spans"] == {"LOC": 3, "PER": 1}
    assert by_code(report)["tag-scheme"].severity == "note"
    report = examined(numbered(BIO))
    assert "numbers without names" in by_code(report)["tag-scheme"].message
    assert "0" not in report.figures["splits"]["train"]["spans"]


def test_the_doctor_counts_words_without_a_tag():
    report = examined([["B-LOC", "-100", "I-LOC"], ["-100", "O"], ["-100", "O"]])
    assert "3 words have the tag -100" in by_code(report)["not-tagged"].message
    assert report.figures["splits"]["train"]["spans"] == {"LOC": 1}
    assert "of 4 words are in a span; 2 sentences have none" in by_code(report)["tag-balance"].message
