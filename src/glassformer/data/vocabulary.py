"""The meaning of a tokenizer's tokens: special tokens, and which pieces form a word.

All knowledge of token conventions (BERT, RoBERTa, SentencePiece, BPE) is in this module.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.errors import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Special tokens of vocabularies trained here, with the ids 0 to 4.
SPECIAL_TOKENS = PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
# Known spellings of each special token, ours first.
NAMES = {
    "unk": (UNK, "<unk>"),
    "sep": (SEP, "</s>"),
    "pad": (PAD, "<pad>"),
    "cls": (CLS, "<s>"),
    "mask": (MASK, "<mask>"),
}
PREFIX = "##"  # marks a WordPiece piece that continues a word
SPACES = ("Ġ", "▁")  # marks for a blank before a word, in byte-level BPE and in SentencePiece
WORD_END = "</w>"  # suffix of the last piece of a word, in word-based BPE
# Tokenizer class, or ``model_type`` of ``config.json`` -> the special tokens added around a text if the
# tokenizer file adds none: those of BERT ("brackets") or RoBERTa ("angles"), as in transformers 5.
FRAMES = {
    **dict.fromkeys(("BertTokenizer", "DistilBertTokenizer", "bert", "distilbert"), "brackets"),
    **dict.fromkeys(("AlbertTokenizer", "DebertaV2Tokenizer", "albert", "deberta-v2"), "brackets"),
    **dict.fromkeys(("RobertaTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer"), "angles"),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert", "MPNetTokenizer", "mpnet"), "angles"),
}
USUAL_FRAME = {"brackets": ("[CLS]", "[SEP]"), "angles": ("<s>", "</s>")}
# Usual file names of SentencePiece models in checkpoint folders.
SENTENCE_PIECES = [f"{name}.model" for name in "sentencepiece.bpe spiece sentencepiece spm tokenizer".split()]


@dataclass(frozen=True)
class PieceNumbers:
    """How a tokenizer class assigns ids to SentencePiece's pieces, for folders without ``tokenizer.json``.

    Args:
        special: special tokens with the first ids; they replace the model's first ``replaced`` pieces.
        unknown: index of the unknown token in ``special``.
        simplified: normalize texts as ALBERT does: quotes of two signs become ", and accents and case are
            dropped unless ``tokenizer_config.json`` says otherwise.
    """

    special: tuple[str, ...] = ()
    replaced: int = 0
    unknown: int = 3
    simplified: bool = False


XLM = PieceNumbers(("<s>", "<pad>", "</s>", "<unk>"), 3)
CAMEMBERT = PieceNumbers(("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1)
PIECE_NUMBERS = {
    **dict.fromkeys(("XLMRobertaTokenizer", "xlm-roberta"), XLM),
    **dict.fromkeys(("CamembertTokenizer", "camembert"), CAMEMBERT),
    **dict.fromkeys(("AlbertTokenizer", "albert"), PieceNumbers(simplified=True)),
    **dict.fromkeys(("DebertaV2Tokenizer", "deberta-v2"), PieceNumbers()),
}


def id_count(tokenizer: Tokenizer) -> int:
    """Required number of embeddings: one more than the highest id, including added tokens."""
    return 1 + max(tokenizer.get_vocab().values(), default=-1)


@dataclass(frozen=True)
class Vocabulary:
    """The ids of a tokenizer's special tokens; None for a token that it does not have."""

    pad: int | None
    unk: int | None  # for pieces that are not in the vocabulary
    cls: int | None  # before a text
    sep: int | None  # after a text
    mask: int | None
    tokens: dict[str, str]  # "cls", ... -> the token as text, for tokens that exist

    @staticmethod
    def of(tokenizer: Tokenizer) -> Vocabulary:
        tokens: dict[str, str] = {}
        added = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
        for kind, names in NAMES.items():
            stated = (getattr(tokenizer.model, "unk_token", None),) if kind == "unk" else ()
            known = [name for name in (*stated, *names) if name and tokenizer.token_to_id(name) is not None]
            if known:  # MPNet's vocabulary also has BERT's special tokens, unused
                tokens[kind] = min(known, key=lambda name: (name not in stated, name not in added))
        ids = {kind: tokenizer.token_to_id(tokens[kind]) if kind in tokens else None for kind in NAMES}
        return Vocabulary(**ids, tokens=tokens)

    @property
    def hiding(self) -> int:
        """The id that replaces a masked word: the mask token, or the unknown token if there is none."""
        index = self.unk if self.mask is None else self.mask
        if index is None:
            what = "the tokenizer has neither a mask nor an unknown token to replace words by"
            fix = "Set word_dropout = 0 and maskable = false, or take another tokenizer"
            raise ConfigError(what, where="word_dropout", fix=fix)
        return index

    def first_intermediate_id(self, tokenizer: Tokenizer) -> int | None:
        """The first id of pieces that are only intermediate merges and have no embedding; None if none are.

        Tokenizers converted from fastBPE have such pieces. Their ids follow those of all real pieces, the
        mask and the added tokens (``data/tokenizer_file.py``).
        """
        if self.mask is None or not _marks_ends(tokenizer):
            return None
        added = sorted(i for i in tokenizer.get_added_tokens_decoder() if i >= self.mask)
        first = self.mask + len(added)
        contiguous = added == list(range(self.mask, first)) and self.mask >= len(self.tokens)
        return first if contiguous and first < id_count(tokenizer) else None

    def special(self, tokenizer: Tokenizer) -> np.ndarray:
        """Which ids are not pieces of a text, bool ``[V]``."""
        out = np.zeros(id_count(tokenizer), bool)
        names = (*SPECIAL_TOKENS, *self.tokens.values())
        out[[i for i in map(tokenizer.token_to_id, names) if i is not None]] = True
        if (first := self.first_intermediate_id(tokenizer)) is not None:
            out[first:] = True
        return out

    def continues_previous(self, tokenizer: Tokenizer) -> np.ndarray:
        """Which ids continue the word before them, bool ``[V]``, judging by the piece alone."""
        out = np.zeros(id_count(tokenizer), bool)
        # A mark for a blank begins a word, unless the vocabulary marks ends of words.
        spaced = type(tokenizer.model).__name__ in ("BPE", "Unigram") and not _marks_ends(tokenizer)
        for name, index in tokenizer.get_vocab().items():
            continues = spaced and not name.startswith(SPACES) and name[:1].isalnum()
            out[index] = continues or name.startswith(PREFIX)
        return out & ~self.special(tokenizer)

    def continues_next(self, tokenizer: Tokenizer) -> np.ndarray:
        """Which ids are continued by the next piece, bool ``[V]``: pieces without the word-end suffix."""
        out = np.zeros(id_count(tokenizer), bool)
        if _marks_ends(tokenizer):
            for name, index in tokenizer.get_vocab().items():
                out[index] = not name.endswith(WORD_END)
        return out & ~self.special(tokenizer)


def spelled(tokenizer: Tokenizer, index: int) -> str:
    """A piece as it occurs in a text, without the word marks of BPE and Unigram."""
    name = str(tokenizer.id_to_token(index))
    if type(tokenizer.model).__name__ not in ("BPE", "Unigram"):
        return name
    text = tokenizer.decode([index], skip_special_tokens=False).strip().lstrip("".join(SPACES))
    return text if text and "\ufffd" not in text else name


def _marks_ends(tokenizer: Tokenizer) -> bool:
    return getattr(tokenizer.model, "end_of_word_suffix", None) == WORD_END


def word_ids(encoding: Any, positions: Sequence[int], text: str | None = None) -> np.ndarray:
    """The word number of an encoding's tokens at ``positions``, ``[T]``, from 0; -1: not part of the text.

    Words are those of the tokenizer's pre-tokenization. A blank that does not begin a word belongs to none.
    If ``text`` is given, a combining accent does not split a word, and line breaks and tabs count as blanks.
    """
    words, tokens, offsets = encoding.word_ids, encoding.tokens, encoding.offsets
    trimmed_offsets = [offsets[i] for i in positions]
    trimmed_offsets = trimmed_offsets if text is None else places_in(text, trimmed_offsets)

    def joins(i: int) -> bool:
        same = 0 < i < len(words) and words[i] is not None and words[i] == words[i - 1]
        return same and not tokens[i].startswith(SPACES)

    # From the end: a token of blanks keeps its offsets only if the next token continues it.
    places, continued_next = list(trimmed_offsets), False
    for k in reversed(range(len(positions))):
        i, (start, stop) = positions[k], trimmed_offsets[k]
        continued_next = continued_next and joins(i + 1)
        if blank := not tokens[i].strip("".join(SPACES)) or stop <= start:
            places[k] = offsets[i] if continued_next else (0, 0)
        continued_next = continued_next or not blank
    accents = [text is not None and _goes_on(text, *place) for place in places]
    return _numbered(places, [joins(i) or accent for i, accent in zip(positions, accents, strict=True)])


def _goes_on(text: str, start: int, stop: int) -> bool:
    """Whether a token begins with a combining mark, or with a letter right after one."""
    kinds = [unicodedata.category(sign)[0] for sign in text[max(start - 1, 0) : start + 1]]
    return start < stop and (kinds[-1] == "M" or (start > 0 and kinds == ["M", "L"]))


def word_numbers(names: Sequence[str], offsets: Sequence[Sequence[int]]) -> np.ndarray:
    """Like ``word_ids``, from WordPiece pieces alone: ``##`` marks a piece that continues a word."""
    return _numbered(offsets, [name.startswith(PREFIX) for name in names])


def _numbered(offsets: Sequence[Sequence[int]], joins: Sequence[bool]) -> np.ndarray:
    """Word numbers from offsets; a token continues a word that it overlaps or (with ``joins``) touches."""
    words = np.full(len(offsets), -1)
    end, word = -1, -1
    for i, ((start, stop), joined) in enumerate(zip(offsets, joins, strict=True)):
        if stop <= start:
            continue
        if not (word >= 0 and (start < end or (start == end and joined))):
            word += 1
        words[i] = word
        end = max(stop, end)
    return words


def trimmed(text: str, offsets: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Offsets without leading blanks, which byte-level pieces include; a piece of blanks becomes empty."""
    return [(stop - len(text[start:stop].lstrip()), stop) for start, stop in offsets]


def widened(text: str, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Offsets extended by the combining marks after them. Tokenizers may drop these marks (accents of
    decomposed letters), so that an answer would end inside a letter.
    """
    out = list(places)
    end = len(text)  # where the next token begins
    for i in reversed(range(len(places))):
        start, stop = places[i]
        if stop <= start:
            continue
        while stop < end and unicodedata.category(text[stop])[0] == "M":
            stop += 1
        out[i], end = (start, stop), min(start, end)
    return out


def places_in(text: str, offsets: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Offsets without leading blanks, and including the combining marks of the last letter."""
    return widened(text, trimmed(text, offsets))
