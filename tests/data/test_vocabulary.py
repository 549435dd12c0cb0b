"""What tokens mean: special ones by their many names, and the words that pieces make."""

import unicodedata

import numpy as np
import pytest
from tests.byte_pieces import byte_level
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from glassformer.data.text import bpe_tokenizer, word_tokenizer, wordpiece_tokenizer
from glassformer.data.vocabulary import (
    SPECIAL_TOKENS,
    Vocabulary,
    clean_offsets,
    trim_offsets,
    word_ids,
    wordpiece_word_ids,
)
from glassformer.errors import ConfigError
from glassformer.explain.result import word_spans

TEXTS = ["a wonderful film", "an unwonderful, dull film.", "it wasn't dull!"] * 3


def wordpiece(**options):
    return wordpiece_tokenizer(TEXTS, vocab_size=45, min_count=1, **options)


def roberta_like(*special):
    """A byte-level BPE with special tokens written as RoBERTa's are."""
    return byte_level(TEXTS, special)


def words_of(tokenizer, text):
    encoding = tokenizer.encode(text, add_special_tokens=False)
    offsets = trim_offsets(text, encoding.offsets)
    numbers = word_ids(encoding, range(len(encoding.ids)))
    spans = [[o for o, n in zip(offsets, numbers, strict=True) if n == k] for k in range(max(numbers) + 1)]
    return [text[min(a for a, _ in s) : max(b for _, b in s)] for s in spans]


def test_special_tokens_of_a_vocabulary_trained_here():
    for tokenizer in (word_tokenizer(TEXTS, min_count=1), wordpiece(), bpe_tokenizer(TEXTS, vocab_size=280)):
        known = Vocabulary.of(tokenizer)
        assert (known.pad, known.unk, known.cls, known.sep, known.mask) == (0, 1, 2, 3, 4)
        assert set(known.tokens.values()) == set(SPECIAL_TOKENS)
        assert np.flatnonzero(known.special(tokenizer)).tolist() == [0, 1, 2, 3, 4]


def test_special_tokens_by_other_names():
    tokenizer = roberta_like("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    known = Vocabulary.of(tokenizer)
    assert (known.cls, known.pad, known.sep, known.unk, known.mask) == (0, 1, 2, 3, 4)
    assert known.masking_id == 4
    assert np.flatnonzero(known.special(tokenizer)).tolist() == [0, 1, 2, 3, 4]


def test_a_piece_with_the_name_of_a_special_token_is_none():
    """MPNet's list holds BERT's special tokens as pieces, beside its own that the tokenizer adds as such."""
    names = ["<s>", "<pad>", "</s>", "<unk>", "[PAD]", "a", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<mask>"]
    tokenizer = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    plain = Vocabulary.of(tokenizer)
    assert (plain.pad, plain.cls, plain.sep, plain.mask, plain.unk) == (4, 7, 8, 9, 6)
    tokenizer.add_special_tokens([*names[:4], "[UNK]", "<mask>"])
    known = Vocabulary.of(tokenizer)
    assert (known.pad, known.cls, known.sep, known.mask, known.unk) == (1, 0, 2, 10, 6)
    assert known.tokens["mask"] == "<mask>"


def test_words_are_hidden_behind_the_unknown_token_or_nothing():
    assert Vocabulary.of(roberta_like("<unk>")).masking_id == 0
    bare = Vocabulary.of(roberta_like())
    assert (bare.mask, bare.unk, bare.pad) == (None, None, None)
    with pytest.raises(ConfigError, match="neither a mask nor an unknown token"):
        _ = bare.masking_id


@pytest.mark.parametrize("text", ["an unwonderful, dull film.", "it wasn't dull!", "wonderful zzz film"])
def test_pieces_of_a_word(text):
    """WordPiece marks the pieces that go on; byte-level BPE marks blanks; both give the words of the text."""
    plain = wordpiece(add_special_tokens=False)
    encoding = plain.encode(text)
    by_names = wordpiece_word_ids(encoding.tokens, encoding.offsets)
    assert word_ids(encoding, range(len(encoding.ids))).tolist() == by_names.tolist()
    tokenizer = bpe_tokenizer(TEXTS, vocab_size=270)
    assert len(tokenizer.encode(text).tokens) > len(words_of(tokenizer, text))
    got = words_of(tokenizer, text)
    assert "".join(got) == text.replace(" ", "")
    assert {word for word in text.split() if word.isalpha()} <= set(got)


def test_letters_of_several_bytes_are_one_word():
    tokenizer = bpe_tokenizer(TEXTS, vocab_size=270)
    assert words_of(tokenizer, "a żółw, naïve") == ["a", "żółw", ",", "naïve"]
    assert words_of(tokenizer, "a  film ") == ["a", "film"]  # blanks beside words are of none


def test_what_goes_on_with_a_word():
    tokenizer = wordpiece()
    goes_on = Vocabulary.of(tokenizer).continues_previous(tokenizer)
    names = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    assert {n for n, c in zip(names, goes_on, strict=True) if c} == {n for n in names if n.startswith("##")}
    tokenizer = bpe_tokenizer(TEXTS, vocab_size=280)
    goes_on = Vocabulary.of(tokenizer).continues_previous(tokenizer)
    known = tokenizer.get_vocab()
    assert goes_on[known["u"]]
    assert not goes_on[known["Ġ"]]
    assert not goes_on[known["."]]
    assert not goes_on[:5].any()


def test_blanks_before_a_piece_are_no_part_of_its_word():
    assert trim_offsets("a  film ", [(0, 1), (1, 7), (7, 8), (0, 0)]) == [(0, 1), (3, 7), (8, 8), (0, 0)]


def test_an_accent_of_its_own_parts_no_word():
    text = unicodedata.normalize("NFD", "tiếng Việt đẹp, été")
    tokenizer = word_tokenizer([unicodedata.normalize("NFC", text)], min_count=1)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    numbers = word_ids(encoding, range(len(encoding.ids)), text)
    spans = word_spans(numbers, clean_offsets(text, encoding.offsets))
    wanted = [unicodedata.normalize("NFD", word) for word in ("tiếng", "Việt", "đẹp", ",", "été")]
    assert [text[a:b] for a, b in spans] == wanted
    vocab = {"[UNK]": 0, "tie": 1, "##ng": 2, "hay": 3}
    plain = Tokenizer(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    plain.normalizer, plain.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words = unicodedata.normalize("NFD", "tiếng hay")
    encoding = plain.encode(words)
    assert encoding.tokens == ["tie", "##ng", "hay"]
    assert word_ids(encoding, range(3), words).tolist() == [0, 0, 1]


@pytest.mark.parametrize("text", ["été a", "tiếng Việt", "नमस्ते दुनिया"])
def test_bytes_of_an_accent_of_its_own_part_no_word(text):
    decomposed = unicodedata.normalize("NFD", text)
    encoding = roberta_like("<unk>").encode(decomposed)
    numbers = word_ids(encoding, range(len(encoding.ids)), decomposed)
    spans = word_spans(numbers, clean_offsets(decomposed, encoding.offsets))
    assert [unicodedata.normalize("NFC", decomposed[a:b]) for a, b in spans] == text.split()


def test_line_breaks_and_tabs_are_no_words():
    tokenizer = roberta_like("<unk>")
    text = "a film\n\nwas\tdull\u00a0!"
    encoding = tokenizer.encode(text)
    numbers = word_ids(encoding, range(len(encoding.ids)), text)
    spans = word_spans(numbers, clean_offsets(text, encoding.offsets))
    assert [text[a:b] for a, b in spans] == ["a", "film", "was", "dull", "!"]
    assert set(numbers.tolist()) == {-1, 0, 1, 2, 3, 4}
