"""What the tokens of a tokenizer mean: which are special, which pieces make a word. No other module knows."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.errors import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Of vocabularies trained here, which begin with them.
SPECIAL_TOKENS = PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
# What each is called, ours first.
NAMES = {
    "unk": (UNK, "<unk>"),
    "sep": (SEP, "</s>"),
    "pad": (PAD, "<pad>"),
    "cls": (CLS, "<s>"),
    "mask": (MASK, "<mask>"),
}
PREFIX = "##"  # of a piece of WordPiece that goes on with a word
SPACES = ("Ġ", "▁")  # a blank before the word, in byte-level BPE and in SentencePiece
WORD_END = "</w>"  # behind the last piece of a word, in BPE of words
# Classes that frame texts where the file does not, as BERT or RoBERTa do; where no class is named, the
# ``model_type`` of ``config.json`` stands for one. As transformers 5 has them.
FRAMES = {
    **dict.fromkeys(("BertTokenizer", "DistilBertTokenizer", "bert", "distilbert"), "brackets"),
    **dict.fromkeys(("AlbertTokenizer", "DebertaV2Tokenizer", "albert", "deberta-v2"), "brackets"),
    **dict.fromkeys(("RobertaTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer"), "angles"),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert", "MPNetTokenizer", "mpnet"), "angles"),
}
USUAL_FRAME = {"brackets": ("[CLS]", "[SEP]"), "angles": ("<s>", "</s>")}
# SentencePiece's files, by the names that folders give them.
SENTENCE_PIECES = [f"{name}.model" for name in "sentencepiece.bpe spiece sentencepiece spm tokenizer".split()]


@dataclass(frozen=True)
class PieceNumbers:
    """How a class numbers SentencePiece's pieces, where a folder has only those.

    Args:
        before: tokens that it puts in the place of the first ``replaced`` pieces.
        unknown: which of these stands for what no piece does.
        plain: quotes are made plain, and case and accents are dropped unless its settings say otherwise.
    """

    before: tuple[str, ...] = ()
    replaced: int = 0
    unknown: int = 3
    plain: bool = False


XLM = PieceNumbers(("<s>", "<pad>", "</s>", "<unk>"), 3)
CAMEMBERT = PieceNumbers(("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1)
PIECE_NUMBERS = {
    **dict.fromkeys(("XLMRobertaTokenizer", "xlm-roberta"), XLM),
    **dict.fromkeys(("CamembertTokenizer", "camembert"), CAMEMBERT),
    **dict.fromkeys(("AlbertTokenizer", "albert"), PieceNumbers(plain=True)),
    **dict.fromkeys(("DebertaV2Tokenizer", "deberta-v2"), PieceNumbers()),
}


def id_count(tokenizer: Tokenizer) -> int:
    """Rows that a table of embeddings must have: one more than the highest id, added tokens included."""
    return 1 + max(tokenizer.get_vocab().values(), default=-1)


@dataclass(frozen=True)
class Vocabulary:
    """The special tokens of a tokenizer by what they mean: their ids, None where it has no such token."""

    pad: int | None
    unk: int | None  # for what the vocabulary lacks
    cls: int | None  # before a text
    sep: int | None  # behind a text
    mask: int | None
    tokens: dict[str, str]  # kind -> the token as it is written, of those that there are

    @staticmethod
    def of(tokenizer: Tokenizer) -> Vocabulary:
        found: dict[str, str] = {}
        added = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
        for kind, names in NAMES.items():
            own = (getattr(tokenizer.model, "unk_token", None),) if kind == "unk" else ()
            known = [name for name in (*own, *names) if name and tokenizer.token_to_id(name) is not None]
            if known:  # MPNet's list has BERT's special tokens too, as pieces that mean nothing
                found[kind] = min(known, key=lambda name: (name not in own, name not in added))
        ids = {kind: tokenizer.token_to_id(found[kind]) if kind in found else None for kind in NAMES}
        return Vocabulary(**ids, tokens=found)

    @property
    def hiding(self) -> int:
        """What stands for a word that is hidden: the mask, or else the unknown token.

        Raises:
            ConfigError: there is neither.
        """
        found = self.unk if self.mask is None else self.mask
        if found is None:
            what = "the tokenizer has neither a mask nor an unknown token to hide words behind"
            fix = "Set word_dropout = 0 and maskable = false, or take another tokenizer"
            raise ConfigError(what, where="word_dropout", fix=fix)
        return found

    def steps(self, tokenizer: Tokenizer) -> int | None:
        """The first id of pieces that only lead to others and have no rows in a table; None: none.

        Lists of merges in fastBPE's form have such, behind the mask, which stands behind all other pieces
        there, and the tokens that were added to it (``data/tokenizer_file.py``).
        """
        if self.mask is None or not _marks_ends(tokenizer):
            return None
        added = sorted(i for i in tokenizer.get_added_tokens_decoder() if i >= self.mask)
        first = self.mask + len(added)
        ends = added == list(range(self.mask, first)) and self.mask >= len(self.tokens)
        return first if ends and first < id_count(tokenizer) else None

    def special(self, tokenizer: Tokenizer) -> np.ndarray:
        """Which ids mean no piece of a text, bool ``[V]``."""
        out = np.zeros(id_count(tokenizer), bool)
        names = (*SPECIAL_TOKENS, *self.tokens.values())
        out[[i for i in map(tokenizer.token_to_id, names) if i is not None]] = True
        if (first := self.steps(tokenizer)) is not None:
            out[first:] = True
        return out

    def continues(self, tokenizer: Tokenizer) -> np.ndarray:
        """Which ids go on with the word before them, bool ``[V]``, as far as a piece alone tells."""
        out = np.zeros(id_count(tokenizer), bool)
        # A blank's mark begins a word, unless it is the word's end that is marked.
        spaced = type(tokenizer.model).__name__ in ("BPE", "Unigram") and not _marks_ends(tokenizer)
        for name, index in tokenizer.get_vocab().items():
            inside = spaced and not name.startswith(SPACES) and name[:1].isalnum()
            out[index] = inside or name.startswith(PREFIX)
        return out & ~self.special(tokenizer)

    def continued(self, tokenizer: Tokenizer) -> np.ndarray:
        """Which ids the next piece goes on with, bool ``[V]``: those that lack the mark of a word's end."""
        out = np.zeros(id_count(tokenizer), bool)
        if _marks_ends(tokenizer):
            for name, index in tokenizer.get_vocab().items():
                out[index] = not name.endswith(WORD_END)
        return out & ~self.special(tokenizer)


def spelled(tokenizer: Tokenizer, index: int) -> str:
    """A piece as it stands in a text, without the marks of words that BPE and Unigram put at it."""
    name = str(tokenizer.id_to_token(index))
    if type(tokenizer.model).__name__ not in ("BPE", "Unigram"):
        return name
    text = tokenizer.decode([index], skip_special_tokens=False).strip().lstrip("".join(SPACES))
    return text if text and "\ufffd" not in text else name


def _marks_ends(tokenizer: Tokenizer) -> bool:
    return getattr(tokenizer.model, "end_of_word_suffix", None) == WORD_END


def word_ids(encoding: Any, rows: Sequence[int], text: str | None = None) -> np.ndarray:
    """The word of each of these tokens of an encoding ``[T]``, counted from 0; -1: nowhere in the text.

    Pieces of one word are those that the tokenizer cut from it after it had split the text into words. Blanks
    that begin no word are of none. With the ``text``, an accent that stands there as a sign of its own, as in
    decomposed letters, parts no word, and line breaks and tabs are blanks too.
    """
    words, tokens, offsets = encoding.word_ids, encoding.tokens, encoding.offsets
    seen = [offsets[i] for i in rows] if text is None else places_in(text, (offsets[i] for i in rows))

    def joins(i: int) -> bool:
        same = 0 < i < len(words) and words[i] is not None and words[i] == words[i - 1]
        return same and not tokens[i].startswith(SPACES)

    places, goes_on = list(seen), False
    for k in reversed(range(len(rows))):
        i, (start, stop) = rows[k], seen[k]
        goes_on = goes_on and joins(i + 1)  # a blank of a piece of its own, where letters follow
        if blank := not tokens[i].strip("".join(SPACES)) or stop <= start:
            places[k] = offsets[i] if goes_on else (0, 0)
        goes_on = goes_on or not blank
    accents = [text is not None and _goes_on(text, *place) for place in places]
    return _numbered(places, [joins(i) or accent for i, accent in zip(rows, accents, strict=True)])


def _goes_on(text: str, start: int, stop: int) -> bool:
    """Whether a token at a place begins with the mark of a letter before it, or goes on behind one."""
    kinds = [unicodedata.category(sign)[0] for sign in text[max(start - 1, 0) : start + 1]]
    return start < stop and (kinds[-1] == "M" or (start > 0 and kinds == ["M", "L"]))


def word_numbers(names: Sequence[str], offsets: Sequence[Sequence[int]]) -> np.ndarray:
    """As ``word_ids`` where only the pieces are known: WordPiece's mark says which go on with a word."""
    return _numbered(offsets, [name.startswith(PREFIX) for name in names])


def _numbered(offsets: Sequence[Sequence[int]], joins: Sequence[bool]) -> np.ndarray:
    """Words from places: a token that overlaps the one before, or touches and joins it, is of its word."""
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
    """Places without leading blanks, which a byte-level piece takes in: nothing is left of one of blanks."""
    return [(stop - len(text[start:stop].lstrip()), stop) for start, stop in offsets]


def widened(text: str, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Places that take in the marks behind their last letter, as accents of decomposed letters are, for which
    no token stands: tokenizers drop them, and an answer would end inside a letter.
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
    """Places of tokens as people see them: no blanks before a word, and its last letter with its marks."""
    return widened(text, trimmed(text, offsets))
