"""A masked language model of one's own: lines of one sentence, and a classifier that begins from its run."""

from __future__ import annotations

from pathlib import Path

import pytest

import glassformer as gf
from glassformer.config import read_toml
from glassformer.data.masking import share_of_several
from glassformer.errors import ConfigError, ShortModelWarning

from .tiny import sentences, write_csv

MLM = [
    word
    for pair in (
        "d_model=8",
        "num_layers=1",
        "num_heads=2",
        "d_ff=13",
        "epochs=1",
        "precision=fp32",
        "vocab_size=90",
    )
    for word in ("--set", pair)
]


def test_pairs_are_made_only_of_texts_with_several_sentences(gf, tmp_path: Path):
    one = tmp_path / "one.txt"
    one.write_text("\n".join(text for text, _ in sentences(60)), encoding="utf-8")
    result = gf("train", "europe-mlm", "--data", one, "--out", "one", *MLM)
    assert result.code == 0, result
    assert "most texts have one sentence: next_sentence=false" in result.err
    assert read_toml("one/config.toml")["text"]["next_sentence"] is False
    assert gf("train", "europe-mlm", "--data", one, "--out", "one", "--resume", *MLM).code == 0
    two = tmp_path / "two.txt"
    two.write_text("\n".join(f"{text}. And {text}!" for text, _ in sentences(60)), encoding="utf-8")
    assert gf("train", "europe-mlm", "--data", two, "--out", "two", *MLM).code == 0
    assert read_toml("two/config.toml")["text"]["next_sentence"] is True
    asked = gf("train", "europe-mlm", "--data", one, "--out", "asked", *MLM, "--set", "next_sentence=true")
    assert asked.code == 0, asked
    assert "100% of the texts have one sentence" in asked.out
    assert read_toml("asked/config.toml")["text"]["next_sentence"] is True


def test_a_run_stopped_with_pairs_goes_on_with_them(gf, tmp_path: Path):
    one = tmp_path / "one.txt"
    one.write_text("\n".join(text for text, _ in sentences(60)), encoding="utf-8")
    command = ("train", "europe-mlm", "--data", one, "--out", "run", *MLM)
    assert gf(*command, "--set", "next_sentence=true").code == 0
    assert gf(*command, "--resume").code == 0  # as such a run was begun before lines were looked at


@pytest.mark.filterwarnings("always::glassformer.errors.ShortModelWarning")
def test_a_classifier_begins_from_the_run_and_reads_what_it_has_positions_for(gf, tmp_path: Path):
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(text for text, _ in sentences(60)), encoding="utf-8")
    assert gf("train", "europe-mlm", "--data", lines, "--out", "runs/mlm", *MLM).code == 0
    data = write_csv(
        tmp_path / "reviews.csv", [*sentences(60), ("long " * 90, "pos"), ("long and dull " * 90, "neg")]
    )
    sets = [
        w
        for pair in ("epochs=1", "precision=fp32", "bootstrap=20", "baselines=false")
        for w in ("--set", pair)
    ]
    result = gf("train", "--text", data, "--model", "runs/mlm", "--out", "run", *sets)
    assert result.code == 0, result
    assert "note: runs/mlm has positions for 64 tokens: max_length = 64" in result.err
    assert "longer than 64 tokens" in result.out
    assert gf("predict", "run", "a splendid film " * 99).code == 0
    assert gf("train", "--text", data, "--model", "runs/mlm", "--out", "run", "--resume", *sets).code == 0
    assert (
        "max_length 65 is more than the model's 64 positions"
        in gf(
            "train", "--text", data, "--model", "runs/mlm", "--out", "b", "--set", "max_length=65", *sets
        ).err
    )


def test_in_python_the_length_follows_too(tmp_path: Path):
    texts, labels = zip(*sentences(12), strict=True)
    sizes = {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 13, "epochs": 1, "precision": "fp32"}
    gf.MaskedLM(max_positions=17, max_length=17, min_count=1, vocab_size=90, **sizes).fit(texts).save(
        tmp_path / "mlm"
    )
    clf = gf.TextClassifier(str(tmp_path / "mlm"), epochs=1, precision="fp32")
    with pytest.warns(ShortModelWarning, match="positions for 17 tokens"):
        clf.fit(texts, labels)
    assert clf.max_length == 17
    assert clf.truncated(["word " * 40, "short"]).tolist() == [True, False]
    clf.save(tmp_path / "clf")
    assert gf.load(tmp_path / "clf").max_length == 17
    with pytest.raises(ConfigError, match="more than the model's 17 positions"):
        gf.TextClassifier(str(tmp_path / "mlm"), max_length=31).fit(texts, labels)


def test_how_many_texts_have_several_sentences():
    assert (
        share_of_several(["One. Two.", "One", 'He said "no." She left.', "3.5 stars", "What?! Yes."]) == 0.6
    )
    assert share_of_several([]) == 0
