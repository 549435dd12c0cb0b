"""A slip of the keyboard is told first: before the folder that is taken, before the data are read."""

from __future__ import annotations

import json
import shutil

import pytest

from .tiny import sentences, write_csv

SLIPS = [
    (("--label-column", "abuot"), "no column 'abuot'. Did you mean 'about'?"),
    (("--text-column", "coment"), "no column 'coment'. Did you mean 'comment'?"),
    (("--set", "class_wieght=balanced"), "unknown key 'class_wieght'"),
    (("--set", "class_weight=balancd"), "'balancd' is no weighting"),
    (("--set", "merge_labels=speling"), "'speling' does not say what to merge"),
    (("--set", "epochs=many"), "'many' does not fit"),
    (("--model", "minlm"), "no model 'minlm'. Did you mean 'minilm'?"),
    (("--model", "all-minilm-l6"), "no model 'all-minilm-l6'. Did you mean 'all-minilm-l6-v2'?"),
]


@pytest.mark.parametrize(("slip", "said"), SLIPS)
def test_a_slip_goes_before_the_folder_and_the_data(refused, run, tmp_path, slip, said):
    table = tmp_path / "reviews.csv"
    table.write_text("comment,about\nno,such,table\n")
    shutil.copytree(run, tmp_path / "runs" / "reviews")
    assert said in refused("train", "--text", "reviews.csv", *slip)
    assert said in refused("train", "--text", "reviews.csv", "--out", "elsewhere", *slip)
    assert "the output folder exists" in refused("train", "--text", "reviews.csv")
    if not slip[0].endswith("column"):
        assert said in refused("train", "imdb-textcnn", "--out", "elsewhere", *slip)
    if "--model" not in slip:
        assert said in refused("review-labels", "--text", "reviews.csv", *slip)


def test_pictures_too(refused, tmp_path):
    (tmp_path / "a.csv").write_text("image,label\nno,such,table\n")
    assert "no column 'lable'" in refused("train", "--images", "a.csv", "--label-column", "lable")
    assert "no model 'vit-bse'. Did you mean" in refused("train", "--images", "a.csv", "--model", "vit-bse")


def test_a_header_in_another_encoding_is_not_taken_for_a_slip(refused, tmp_path):
    (tmp_path / "a.csv").write_text("comment,about\na,b\n", encoding="utf-16")
    assert "--encoding utf-16" in refused("train", "--text", "a.csv", "--label-column", "about")


UNREADABLE = [
    ("nwe.csv", "no such file"),
    ("pic.png", "a picture, and this model reads texts"),
    ("a.xlsx", "Save the sheet as CSV"),
    ("gaps.csv", "row 22: the text is empty"),
    ("", "the text is empty"),
]


@pytest.mark.parametrize(("given", "said"), UNREADABLE)
def test_predict_looks_at_its_input_before_the_model(refused, run, tmp_path, given, said):
    (tmp_path / "pic.png").write_bytes(b"\x89PNG")
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    write_csv(tmp_path / "gaps.csv", [*sentences(20), ("", "pos"), *sentences(3), ("", "neg")])
    (run / "model" / "model.safetensors").write_bytes(b"damaged")
    found = refused("predict", run, given)
    assert said in found
    if given == "gaps.csv":
        assert "(1 more row cannot be used)" in found
    elif given != "a.xlsx":
        assert said in refused("explain", run, given)
    assert "damaged" in refused("predict", run, "a text") or "model" in refused("predict", run, "a text")


def test_predict_says_that_the_run_was_trained_without_such_rows(gf, refused, run, tmp_path):
    write_csv(tmp_path / "gaps.csv", [*sentences(5), ("", "pos")])
    assert "so this run was trained" not in refused("predict", run, "gaps.csv")
    config = run / "config.toml"
    text = config.read_text()
    assert 'on_bad_row = "refuse"' in text
    config.write_text(text.replace('on_bad_row = "refuse"', 'on_bad_row = "skip"'))
    assert "--on-bad-row skip (so this run was trained)" in refused("predict", run, "gaps.csv")
    assert gf("predict", run, "gaps.csv", "--on-bad-row", "skip").code == 0


def test_rows_in_another_encoding_are_not_lost_without_a_word(gf, run, tmp_path):
    rows = ["text", *(text for text, _ in sentences(7)), "un café", "", "une idée"]
    (tmp_path / "new.csv").write_bytes(("\n".join(rows) + "\n").encode("cp1252"))
    result = gf("predict", run, "new.csv", "--on-bad-row", "skip")
    assert result.code == 0
    assert "2 of them are not UTF-8: read it with --encoding cp1252, or save it as UTF-8" in result.err


def test_an_onnx_export_is_no_run(refused, tmp_path):
    folder = tmp_path / "exported"
    folder.mkdir()
    for name in ("onnx.json", "run.py", "model.onnx"):
        (folder / name).write_text("{}")
    for verb in (
        ("predict", "exported", "a text"),
        ("evaluate", "exported"),
        ("explain", "exported", "a text"),
    ):
        said = refused(*verb)
        assert "is an ONNX export" in said
        assert "python exported/run.py" in said


def test_show_passes_over_rows_that_cannot_be_used(gf, tmp_path):
    table = write_csv(tmp_path / "gaps.csv", [*sentences(20), ("", "pos"), ("a text", "")])
    result = gf("data", "show", table)
    assert result.code == 0
    assert "2 rows left out; the first:" in result.out
    assert "row 22: the text is empty" in result.out
    notes = json.loads(gf("data", "show", table, "--json").out)["notes"]
    assert any("2 rows left out" in note for note in notes)
    tags = tmp_path / "tags.conll"
    tags.write_text("Ann B-PER\ncame O\n\nonly\n\nBob B-PER\nleft O\n")
    result = gf("data", "show", tags)
    assert result.code == 0, result.err
    assert "1 row left out" in result.out


def test_a_verb_without_the_option_does_not_offer_it(gf, tmp_path):
    table = write_csv(tmp_path / "pairs.csv", [("a text", "b text"), ("", "c text")], header="first,second")
    result = gf("similar", table)  # a note on the columns stands before the error
    said = result.err
    assert result.code == 2
    assert "row 3" in said
    assert "on_bad_row" not in said
    assert "on-bad-row" not in said
