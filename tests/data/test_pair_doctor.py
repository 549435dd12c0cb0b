"""What a data set holds, by its content; the doctor of pairs: each fault planted is found."""

import pytest
from PIL import Image
from tests.tables import write_csv

from glassformer.data.dataset import Dataset
from glassformer.data.kinds import detect_kind
from glassformer.data.pair_doctor import examine_pairs
from glassformer.data.pairs import PairSplit, load_pairs
from glassformer.errors import DataError


def good(n, of="dog"):
    left = [f"the {of} number {i} sleeps in the old house" for i in range(n)]
    right = [f"der {of} Nummer {i} schläft im alten Haus" for i in range(n)]
    return left, right


def report(**splits):
    parts = {name: PairSplit(*sides, name) for name, sides in splits.items()}
    return examine_pairs(Dataset("made up", parts))


def found(report):
    return {f.code: (f.severity, f.count) for f in report.findings if f.severity != "ok"}


def test_healthy_pairs_have_no_warning():
    out = report(train=good(53), test=good(11, "cat"))
    assert found(out) == {}
    assert {f.code for f in out.findings} == {"empty", "duplicates", "length-ratio", "leaks"}
    assert out.figures["splits"]["train"]["pairs"] == out.figures["splits"]["train"]["distinct"] == 53


def test_every_fault_of_pairs_is_found():
    left, right = good(53)
    right[7] = ""  # an empty side
    left[11], right[11] = left[10], right[10]  # a repeat
    right[13] = left[13].upper()  # not translated
    right[17] = "ja"  # far too short
    made = report(train=(left, right), test=([left[3], "the cat"], ["nein", "die Katze"]))
    assert [f.code for f in made.findings if f.severity == "warning" and not f.fix] == []
    out = found(made)
    assert out["empty"] == ("warning", 1)
    assert out["duplicates"] == ("warning", 1)
    assert out["untranslated"] == ("warning", 1)
    assert out["leaks"] == ("warning", 1)
    assert ("length-ratio", ("warning", 1)) in out.items()


def test_empty_sides_are_kept_to_be_looked_at_only_where_asked(tmp_path):
    path = write_csv(
        tmp_path / "p.csv", ("en", "de"), [("a dog", "ein Hund"), ("a cat", " "), ("a cow", "eine Kuh")]
    )
    with pytest.raises(DataError, match="row 3: column 'de': the text is empty"):
        load_pairs(path)
    kept = load_pairs(path, keep_empty=True)
    assert kept.splits["train"].target == ["ein Hund", "", "eine Kuh"]
    empty = next(f for f in examine_pairs(kept).findings if f.code == "empty")
    assert empty.examples == (f"{path}, row 3",)
    (tmp_path / "c.en").write_text("one\n\n")
    (tmp_path / "c.de").write_text("eins\nzwei\n")
    assert load_pairs(tmp_path / "c", keep_empty=True).splits["train"].source == ["one", ""]


def test_what_a_data_set_holds_is_seen_in_it(tmp_path):
    assert [detect_kind(name) for name in ("europe", "digits", "multi30k")] == ["texts", "images", "pairs"]
    for header, kind in {
        ("text", "label"): "texts",
        ("source", "target"): "pairs",
        ("image", "label"): "images",
        ("body", "target"): "texts",
        ("a", "b"): "pairs",
    }.items():
        rows = [("a dog sleeps", "ein Hund"), ("a cat sleeps", "eine Katze")]
        assert detect_kind(write_csv(tmp_path / "x.csv", header, rows)) == kind
    assert detect_kind(write_csv(tmp_path / "x.csv", ("body", "mood"), [("a fine film", "pos")])) == "texts"
    for label in ("cat", "dog"):
        (tmp_path / "pictures" / label).mkdir(parents=True)
        Image.new("RGB", (7, 5)).save(tmp_path / "pictures" / label / "x.png")
        (tmp_path / "texts" / label).mkdir(parents=True)
        (tmp_path / "texts" / label / "x.txt").write_text("a text")
    assert (detect_kind(tmp_path / "pictures"), detect_kind(tmp_path / "texts")) == ("images", "texts")
    (tmp_path / "c.en").write_text("one\n")
    (tmp_path / "c.de").write_text("eins\n")
    assert detect_kind(tmp_path / "c") == "pairs"
    assert detect_kind(tmp_path / "nowhere") == "texts"
