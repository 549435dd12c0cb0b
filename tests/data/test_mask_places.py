"""Where a mask stands in a text that is cleaned, and how long texts are cut for masking."""

from __future__ import annotations

import pytest

from glassformer.data.masking import chunk_texts, clean_around
from glassformer.data.text import clean_text, word_tokenizer


@pytest.mark.parametrize(
    ("text", "clean", "wanted"),
    [
        ("the film was [MASK].", "none", "the film was <mask>."),
        ("[MASK]and[MASK]", "none", "<mask>and<mask>"),
        ("a [MASK]<br />great film", "html", "a <mask> great film"),
        ("a <b>[MASK]</b> great", "html", "a <mask> great"),
        ("[MASK]&nbsp;great", "html", "<mask> great"),
        ("a [MASK], great film", "words", "a <mask> great film"),
        ("a [MASK], great film!", "trim", "a <mask> great film"),
        ("phim rất_[MASK]", "syllables", "phim rất <mask>"),
    ],
)
def test_a_mask_is_cleaned_around_as_a_word_is(text, clean, wanted):
    assert clean_around(text, "<mask>", clean) == wanted
    assert clean_text(text.replace("[MASK]", "fine"), clean) == wanted.replace("<mask>", "fine")


def test_text_in_the_letters_that_stand_in_is_kept():
    text = "".join(chr(0x10380 + i) for i in range(5))
    assert clean_around(f"{text} [MASK]", "<mask>", "words") == f"{text} <mask>"


@pytest.mark.parametrize(("length", "kept"), [(7, 98), (8, 96), (12, 96), (23, 100)])
def test_pieces_as_long_as_may_be_are_kept_and_short_remainders_left_out(length, kept):
    text = " ".join(f"w{i}" for i in range(100))
    table = chunk_texts(word_tokenizer([text], min_count=1), [text], length)
    assert len(table.ids) == kept
