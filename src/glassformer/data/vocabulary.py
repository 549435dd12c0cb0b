"""Special tokens, and the words to which tokens belong.

This module has all conventions of token names (BERT, RoBERTa, SentencePiece, BPE).
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
# Known spellings of each special token; the first is used in vocabularies trained here.
TOKEN_SPELLINGS = {
    "unk": (UNK, "<unk>"),
    "sep": (SEP, "</s>"),
    "pad": (PAD, "<pad>"),
    "cls": (CLS, "<s>"),
    "mask": (MASK, "<mask>"),
}
CONTINUATION_PREFIX = "##"  # before a WordPiece piece that continues a word
BLANK_MARKS = ("Ġ", "▁")  # represent a blank before a word, in byte-level BPE and in SentencePiece
WORD_END = "</w>"  # suffix of the last piece of a word, in word-based BPE
# Tokenizer class, or ``model_type`` of ``config.json`` -> the special tokens that transformers 5 adds around
# a text (see ``FRAME_TOKENS``). They are added if the tokenizer file itself adds no special tokens.
FRAME_BY_CLASS = {
    **dict.fromkeys(("BertTokenizer", "DistilBertTokenizer", "bert", "distilbert"), "brackets"),
    **dict.fromkeys(("AlbertTokenizer", "DebertaV2Tokenizer", "albert", "deberta-v2"), "brackets"),
    **dict.fromkeys(("RobertaTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer"), "angles"),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert", "MPNetTokenizer", "mpnet"), "angles"),
    **dict.fromkeys(("SiglipTokenizer", "siglip"), "end"),
}
# Tokens before and after a text, as in BERT ("brackets") and RoBERTa ("angles"); "end" (SigLIP): only after
# it.
FRAME_TOKENS = {"brackets": ("[CLS]", "[SEP]"), "angles": ("<s>", "</s>"), "end": ("</s>", "</s>")}
# Usual file names of SentencePiece models in checkpoint folders.
_PIECE_FILES = "sentencepiece.bpe spiece sentencepiece spm tokenizer".split()
SENTENCE_PIECE_FILES = [f"{name}.model" for name in _PIECE_FILES]


@dataclass(frozen=True)
class PieceIds:
    """How a tokenizer class assigns ids to SentencePiece's pieces, for folders without ``tokenizer.json``.

    Args:
        special: special tokens with the first ids; they replace the model's first ``num_replaced`` pieces.
        unknown: index of the unknown token in ``special``.
        simplifies_text: whether to normalize texts as ALBERT does: `` and '' become ", and accents and case
            are dropped unless ``tokenizer_config.json`` keeps them.
        drops_punctuation: whether to normalize texts as SigLIP does: ASCII punctuation and case are dropped.
            Such a tokenizer has no mask token.
    """

    special: tuple[str, ...] = ()
    num_replaced: int = 0
    unknown: int = 3
    simplifies_text: bool = False
    drops_punctuation: bool = False


XLM_IDS = PieceIds(("<s>", "<pad>", "</s>", "<unk>"), 3)
CAMEMBERT_IDS = PieceIds(("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1)
PIECE_IDS = {
    **dict.fromkeys(("XLMRobertaTokenizer", "xlm-roberta"), XLM_IDS),
    **dict.fromkeys(("CamembertTokenizer", "camembert"), CAMEMBERT_IDS),
    **dict.fromkeys(("AlbertTokenizer", "albert"), PieceIds(simplifies_text=True)),
    **dict.fromkeys(("DebertaV2Tokenizer", "deberta-v2"), PieceIds()),
    **dict.fromkeys(("SiglipTokenizer", "siglip"), PieceIds(drops_punctuation=True)),
}


def count_ids(tokenizer: Tokenizer) -> int:
    """The required number of embeddings: one more than the highest id, including added tokens."""
    return 1 + max(tokenizer.get_vocab().values(), default=-1)


@dataclass(frozen=True)
class Vocabulary:
    """The ids of a tokenizer's special tokens; None for a token that it does not have."""

    pad: int | None
    unk: int | None  # replaces pieces that are not in the vocabulary
    cls: int | None  # before a text
    sep: int | None  # after a text
    mask: int | None
    tokens: dict[str, str]  # kind ("cls" ...) -> the token as text, for tokens that exist

    @staticmethod
    def of(tokenizer: Tokenizer) -> Vocabulary:
        tokens: dict[str, str] = {}
        added = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
        for kind, spellings in TOKEN_SPELLINGS.items():
            model_unk = (getattr(tokenizer.model, "unk_token", None),) if kind == "unk" else ()
            names = filter(None, (*model_unk, *spellings))
            candidates = [name for name in names if tokenizer.token_to_id(name) is not None]
            if candidates:  # several: MPNet's vocabulary also has BERT's special tokens, which are not used
                tokens[kind] = min(candidates, key=lambda name: (name not in model_unk, name not in added))
        ids = dict.fromkeys(TOKEN_SPELLINGS) | {k: tokenizer.token_to_id(v) for k, v in tokens.items()}
        return Vocabulary(**ids, tokens=tokens)

    @property
    def masking_id(self) -> int:
        """The id that replaces a masked word: the mask token, or the unknown token if there is none."""
        token_id = self.unk if self.mask is None else self.mask
        if token_id is None:
            what = "the tokenizer has neither a mask nor an unknown token to replace words by"
            fix = "Set word_dropout = 0 and maskable = false, or use another tokenizer"
            raise ConfigError(what, where="word_dropout", fix=fix)
        return token_id

    def first_intermediate_id(self, tokenizer: Tokenizer) -> int | None:
        """The first id of intermediate merges, which have no embedding; None if there are none.

        Tokenizers converted from fastBPE have intermediate merges. Their ids follow the ids of all other
        pieces, of the mask and of the added tokens (``data/tokenizer_file.py``).
        """
        if self.mask is None or not _has_word_ends(tokenizer):
            return None
        added = sorted(i for i in tokenizer.get_added_tokens_decoder() if i >= self.mask)
        first = self.mask + len(added)
        contiguous = added == list(range(self.mask, first)) and self.mask >= len(self.tokens)
        return first if contiguous and first < count_ids(tokenizer) else None

    def special(self, tokenizer: Tokenizer) -> np.ndarray:
        """Whether each id is a special token or an intermediate merge, bool ``[V]``."""
        out = np.zeros(count_ids(tokenizer), bool)
        names = (*SPECIAL_TOKENS, *self.tokens.values())
        out[[i for i in map(tokenizer.token_to_id, names) if i is not None]] = True
        if (first := self.first_intermediate_id(tokenizer)) is not None:
            out[first:] = True
        return out

    def continues_previous(self, tokenizer: Tokenizer) -> np.ndarray:
        """Whether each id continues the word before it, judged by the piece alone, bool ``[V]``."""
        out = np.zeros(count_ids(tokenizer), bool)
        # A piece with the mark for a blank begins a word, unless the vocabulary marks the ends of words.
        has_blank_marks = _has_word_marks(tokenizer) and not _has_word_ends(tokenizer)
        for name, token_id in tokenizer.get_vocab().items():
            continues = has_blank_marks and not name.startswith(BLANK_MARKS) and name[:1].isalnum()
            out[token_id] = continues or name.startswith(CONTINUATION_PREFIX)
        return out & ~self.special(tokenizer)

    def continues_next(self, tokenizer: Tokenizer) -> np.ndarray:
        """Whether each id does not end a word, bool ``[V]``; all False without suffixes for word ends."""
        out = np.zeros(count_ids(tokenizer), bool)
        if _has_word_ends(tokenizer):
            for name, token_id in tokenizer.get_vocab().items():
                out[token_id] = not name.endswith(WORD_END)
        return out & ~self.special(tokenizer)


def piece_text(tokenizer: Tokenizer, token_id: int) -> str:
    """A piece as it occurs in a text, without the marks of BPE and Unigram for blanks and word ends."""
    piece = str(tokenizer.id_to_token(token_id))
    if not _has_word_marks(tokenizer):
        return piece
    text = tokenizer.decode([token_id], skip_special_tokens=False).strip().lstrip("".join(BLANK_MARKS))
    return text if text and "\ufffd" not in text else piece


def _has_word_marks(tokenizer: Tokenizer) -> bool:
    return type(tokenizer.model).__name__ in ("BPE", "Unigram")


def _has_word_ends(tokenizer: Tokenizer) -> bool:
    return getattr(tokenizer.model, "end_of_word_suffix", None) == WORD_END


def word_ids(encoding: Any, positions: Sequence[int], text: str | None = None) -> np.ndarray:
    """The word number of an encoding's tokens at ``positions``, ``[T]``, from 0; -1: not part of the text.

    The tokenizer's pre-tokenization defines the words. A token that is only a blank belongs to a word only if
    it begins the word. If ``text`` is given, a combining accent does not split a word, and line breaks and
    tabs count as blanks.
    """
    words, tokens, offsets = encoding.word_ids, encoding.tokens, encoding.offsets
    cleaned = [offsets[i] for i in positions]
    cleaned = cleaned if text is None else clean_offsets(text, cleaned)

    def continues_word(i: int) -> bool:
        is_same_word = 0 < i < len(words) and words[i] is not None and words[i] == words[i - 1]
        return is_same_word and not tokens[i].startswith(BLANK_MARKS)

    # From the end: a token that is only a blank keeps its offsets if the next token continues it.
    word_offsets, is_continued = list(cleaned), False
    for k in reversed(range(len(positions))):
        i, (start, stop) = positions[k], cleaned[k]
        is_continued = is_continued and continues_word(i + 1)
        if is_blank := not tokens[i].strip("".join(BLANK_MARKS)) or stop <= start:
            word_offsets[k] = offsets[i] if is_continued else (0, 0)
        is_continued = is_continued or not is_blank
    accents = [text is not None and _continues_letter(text, *offset) for offset in word_offsets]
    joins = [continues_word(i) or accent for i, accent in zip(positions, accents, strict=True)]
    return _number_words(word_offsets, joins)


def _continues_letter(text: str, start: int, stop: int) -> bool:
    """Whether a token begins with a combining mark, or with a letter right after one."""
    categories = [unicodedata.category(character)[0] for character in text[max(start - 1, 0) : start + 1]]
    return start < stop and (categories[-1] == "M" or (start > 0 and categories == ["M", "L"]))


def wordpiece_word_ids(names: Sequence[str], offsets: Sequence[Sequence[int]]) -> np.ndarray:
    """The word number of each token, as in ``word_ids``, from the names of WordPiece pieces (``##`` ...)."""
    return _number_words(offsets, [name.startswith(CONTINUATION_PREFIX) for name in names])


def _number_words(offsets: Sequence[Sequence[int]], joins: Sequence[bool]) -> np.ndarray:
    """Word numbers from offsets: a token continues a word if it overlaps it, or touches it and ``joins``."""
    words = np.full(len(offsets), -1)
    end, word = -1, -1
    for i, ((start, stop), joins_word) in enumerate(zip(offsets, joins, strict=True)):
        if stop <= start:
            continue
        if not (word >= 0 and (start < end or (start == end and joins_word))):
            word += 1
        words[i] = word
        end = max(stop, end)
    return words


def trim_offsets(text: str, offsets: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Offsets without the leading blanks of byte-level pieces; the offsets of a blank become empty."""
    return [(stop - len(text[start:stop].lstrip()), stop) for start, stop in offsets]


def extend_over_accents(text: str, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Extend offsets over the combining marks after them, such as accents of decomposed letters.

    Tokenizers may drop these marks. Without them, an answer could end inside a letter.
    """
    extended = list(offsets)
    next_start = len(text)
    for i in reversed(range(len(offsets))):
        start, stop = offsets[i]
        if stop <= start:
            continue
        while stop < next_start and unicodedata.category(text[stop])[0] == "M":
            stop += 1
        extended[i], next_start = (start, stop), min(start, next_start)
    return extended


def clean_offsets(text: str, offsets: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Offsets without leading blanks, and with all combining marks of the last letter."""
    return extend_over_accents(text, trim_offsets(text, offsets))
