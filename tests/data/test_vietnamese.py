"""Vietnamese: accents kept, one Unicode form, segmented and plain text, and the doctor's alarms."""

import unicodedata

import pytest

from glassformer.data import (
    TextDataset,
    TextSplit,
    clean_text,
    encode,
    examine,
    load_text_dataset,
    word_tokenizer,
)
from glassformer.data.text import wordpiece_tokenizer
from glassformer.errors import DataError

SEGMENTED = ["nhà_hàng này rất ngon", "phục_vụ tệ , không quay lại", "quán sạch_sẽ và nhà_hàng đẹp"] * 5
PLAIN = [text.replace("_", " ") for text in SEGMENTED]


def ids(tokenizer, text: str, clean: str = "none") -> list[int]:
    return encode(tokenizer, [text], max_length=64, clean=clean)[0].tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [word_tokenizer, wordpiece_tokenizer])
def test_accents_and_tones_make_different_words(make):
    tokenizer = make(["tệ te tế tề hàng hang"] * 4, min_count=1)
    found = [tuple(ids(tokenizer, word)) for word in ("tệ", "te", "tế", "tề", "hàng", "hang")]
    assert len(set(found)) == 6
    composed, decomposed = (unicodedata.normalize(form, "tệ hàng") for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert ids(tokenizer, composed) == ids(tokenizer, decomposed)


def test_syllables_serves_segmented_and_plain_text():
    assert clean_text("Nhà_hàng  này<br />rất_là ngon _ _", "syllables") == "Nhà hàng này rất là ngon _ _"
    assert [clean_text(t, "syllables") for t in SEGMENTED] == PLAIN
    tokenizer = word_tokenizer(PLAIN, min_count=1)
    for segmented, plain in zip(SEGMENTED, PLAIN, strict=True):
        assert ids(tokenizer, segmented, "syllables") == ids(tokenizer, plain, "syllables")
    whole = word_tokenizer(SEGMENTED, min_count=1)
    assert "nhà_hàng" in whole.get_vocab()


def dataset(train: list[str], test: list[str]) -> TextDataset:
    labels = [0, 1, 0] * 5
    return TextDataset(
        "reviews", {"train": TextSplit(train, labels, "a"), "test": TextSplit(test, labels, "b")}
    )


def finding(report, code: str):
    return next((f for f in report.findings if f.code == code), None)


def test_the_doctor_speaks_of_segmentation():
    mixed = finding(examine(dataset(SEGMENTED, PLAIN)), "segmentation")
    assert mixed.severity == "warning"
    assert "train 100%, test 0%" in mixed.message
    assert finding(examine(dataset(SEGMENTED, SEGMENTED)), "segmentation").severity == "note"
    assert finding(examine(dataset(PLAIN, PLAIN)), "segmentation") is None
    assert finding(examine(dataset(SEGMENTED, PLAIN), clean="syllables"), "segmentation") is None


def test_the_doctor_speaks_of_lost_accents_and_of_decomposed_text():
    stripped = word_tokenizer(SEGMENTED, min_count=1, strip_accents=True)
    lost = finding(examine(dataset(SEGMENTED, SEGMENTED), tokenizer=stripped), "accents")
    assert lost.severity == "warning"
    assert (
        finding(
            examine(dataset(SEGMENTED, SEGMENTED), tokenizer=word_tokenizer(SEGMENTED, min_count=1)),
            "accents",
        ).severity
        == "ok"
    )
    loose = [unicodedata.normalize("NFD", t) for t in SEGMENTED]
    assert finding(examine(dataset(loose, loose)), "unicode").count == 30


def test_the_real_reviews(data_root):
    found = load_text_dataset("ntc-scv")
    assert {name: len(split) for name, split in found.splits.items()} == {
        "train": 30_000,
        "validation": 10_000,
        "test": 10_000,
    }
    assert set(found.splits["train"].labels or ()) == {0, 1} or found.label_names
    texts = [text for split in found.splits.values() for text in split.texts]
    assert all(unicodedata.is_normalized("NFC", text) for text in texts)
    assert sum("_" in text for text in texts) > 0.9 * len(texts)


def test_where_the_reviews_are_not(monkeypatch, tmp_path):
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        DataError, match=r"'ntc-scv' is not on this machine, and cannot be downloaded\. Put its"
    ):
        load_text_dataset("ntc-scv")
