"""Byte-level BPE (Sennrich et al., 2016; Radford et al., 2019): any text in, the same text out.

Words are cut from the text with the blank before them, letters become bytes, and frequent pairs are joined.
Nothing is unknown, and decoding gives back every character, which detokenised BLEU needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from glassformer.data.text import frame_texts
from glassformer.data.vocabulary import SPECIAL_TOKENS
from glassformer.errors import DataError

BYTES = 256


def bpe_tokenizer(
    texts: Iterable[str], *, vocab_size: int = 8_000, min_count: int = 2, lowercase: bool = False
) -> Tokenizer:
    """A vocabulary of joined bytes behind [PAD] [UNK] [CLS] [SEP] [MASK]; a text is [CLS] ... [SEP].

    Args:
        texts: to learn from; of two languages, where they share the vocabulary.
        vocab_size: entries at most: 5 special tokens, 256 bytes, and joined pairs.
        min_count: a pair seen less often is not joined.

    Raises:
        DataError: ``vocab_size`` has no room for the bytes.
    """
    least = len(SPECIAL_TOKENS) + BYTES
    if vocab_size < least:
        raise DataError(
            f"{vocab_size} entries have no room for {least} special tokens and bytes",
            where="vocab_size",
            fix=f"Use {least} or more",
        )
    tokenizer = Tokenizer(models.BPE())
    steps: list[Any] = [normalizers.NFC()] + ([normalizers.Lowercase()] if lowercase else [])
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return frame_texts(tokenizer)


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer, to which a "[MASK]" written in a text is six letters and no special token.

    A file does not keep this setting, so it is set again after loading.
    """
    tokenizer.encode_special_tokens = True
    return tokenizer


def detokenize(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """The text that the tokens spell, without special tokens and without blanks at its ends."""
    return tokenizer.decode(list(ids), skip_special_tokens=True).strip()
