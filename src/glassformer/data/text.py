"""From text to token ids: cleaning, tokenizers trained here or read from a checkpoint, encoding."""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from glassformer.data.compiled import failure
from glassformer.data.vocabulary import CLS, PREFIX, SEP, SPECIAL_TOKENS, UNK, Vocabulary
from glassformer.data.wordpiece import learn_pieces
from glassformer.errors import DataError

Clean = Literal["none", "html", "words", "syllables", "trim"]

# --- cleaning ---------------------------------------------------------------------------------

_TAG = re.compile(r"<(?:/?[a-zA-Z][^<>]*|!--.*?--)>", re.DOTALL)


def clean_text(text: str, mode: Clean) -> str:
    """``text`` without what the mode takes out.

    ``none``: as it is. ``html``: tags become a space, entities their character. ``words``: also
    everything but letters, digits and the marks on them becomes a space (``don't`` -> ``don t``);
    letters of every script are kept. ``syllables``: as ``html``, and the underscores by which segmented
    Vietnamese joins the syllables of a word become spaces, so that segmented and plain text are the same to
    the model. ``trim``: as ``html``, and commas, full stops, exclamation and question marks go from both ends
    of each word. All but the first collapse white space.
    """
    if mode == "none":
        return text
    if mode not in ("html", "words", "syllables", "trim"):
        fix = "Known: none, html, words, syllables, trim"
        raise DataError(f"cleaning {mode!r} is not known", where="clean", fix=fix)
    text = html.unescape(_TAG.sub(" ", text))
    if mode == "syllables":
        text = _JOINT.sub(" ", text)
    if mode == "words":
        text = unicodedata.normalize("NFC", text).translate(_WORDS_ONLY)
    if mode == "trim":
        text = " ".join(word.strip(_MARKS) for word in text.split())
    return " ".join(text.split())


_MARKS = ",.!?"
_JOINT = re.compile(r"(?<=\w)_+(?=\w)")


class _WordsOnly(dict[int, int]):
    """A table for ``str.translate`` that fills itself: what is no letter, mark or digit is a space."""

    def __missing__(self, code: int) -> int:
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else ord(" ")
        return self[code]


_WORDS_ONLY = _WordsOnly()

# --- tokenizers -------------------------------------------------------------------------------


def word_tokenizer(
    texts: Iterable[str],
    *,
    min_count: int = 2,
    vocab_size: int = 30_000,
    lowercase: bool = True,
    strip_accents: bool = False,
    add_special_tokens: bool = True,
    separator: bool = True,
) -> Tokenizer:
    """A vocabulary of whole words, the most frequent first, behind [PAD] [UNK] [CLS] [SEP] [MASK].

    A word is a run of letters, digits and underscores, with apostrophes inside (``don't``); every
    other character but white space is a token of its own.

    Args:
        texts: to count words in, cleaned as they will be at use.
        min_count: a word seen less often is [UNK].
        vocab_size: entries at most, special tokens included.
        add_special_tokens: put [CLS] and [SEP] around each text.
        separator: False: no [SEP] behind it.

    Raises:
        DataError: no word is seen ``min_count`` times.
    """
    tokenizer = Tokenizer(models.WordLevel({}, unk_token=UNK))
    _set_stages(tokenizer, lowercase, strip_accents, r"\w+(?:['’]\w+)*|[^\w\s]")
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _finished(tokenizer, add_special_tokens, separator)


def wordpiece_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int = 30_000,
    min_count: int = 2,
    lowercase: bool = True,
    strip_accents: bool = False,
    add_special_tokens: bool = True,
    separator: bool = True,
) -> Tokenizer:
    """A WordPiece vocabulary as BERT's: frequent words whole, others in pieces (``un ##glu ##ed``).

    Underscores stay inside words, unlike BERT's, which keeps segmented Vietnamese whole; every letter
    seen is a piece of its own, so that only a word with an unseen letter is [UNK].

    Args:
        texts: to learn from, cleaned as they will be at use.
        vocab_size: entries at most, special tokens included.
        min_count: a pair of pieces seen less often is not joined.

    Raises:
        DataError: the texts hold no word.
    """
    tokenizer = Tokenizer(models.WordPiece({}, unk_token=UNK))
    _set_stages(tokenizer, lowercase, strip_accents, r"\w+|[^\w\s]")
    pieces = learn_pieces(_count_words(tokenizer, texts), vocab_size - len(SPECIAL_TOKENS), min_count)
    vocab = {piece: index for index, piece in enumerate((*SPECIAL_TOKENS, *pieces))}
    tokenizer.model = models.WordPiece(vocab, unk_token=UNK)
    tokenizer.decoder = decoders.WordPiece(prefix=PREFIX)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return _finished(tokenizer, add_special_tokens, separator)


def _count_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """How often the tokenizer's first stages find each word."""
    normalize: Any = tokenizer.normalizer
    split: Any = tokenizer.pre_tokenizer
    runs: Counter[str] = Counter()  # of anything but white space: few enough to be split one by one
    for text in texts:
        runs.update(normalize.normalize_str(text).split())
    words: Counter[str] = Counter()
    for run, count in runs.items():
        for word, _ in split.pre_tokenize_str(run):
            words[word] += count
    return words


def _set_stages(tokenizer: Tokenizer, lowercase: bool, strip_accents: bool, words: str) -> None:
    # Lower case and stripping can leave letters decomposed, so NFC comes last as well as first.
    steps: list[Any] = [normalizers.NFC()]
    steps += [normalizers.Lowercase()] if lowercase else []
    steps += [normalizers.NFD(), normalizers.StripAccents()] if strip_accents else []
    steps += [normalizers.NFC()] if len(steps) > 1 else []
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(words), "removed", invert=True)


def _finished(tokenizer: Tokenizer, add_special_tokens: bool, separator: bool) -> Tokenizer:
    if tokenizer.get_vocab_size() <= len(SPECIAL_TOKENS):
        raise DataError(
            "no word is frequent enough for a vocabulary",
            where="texts",
            fix="Lower min_count, raise vocab_size or give more texts",
        )
    if add_special_tokens:
        frame_texts(tokenizer, sep=SEP if separator else None)
    return tokenizer


def frame_texts(tokenizer: Tokenizer, cls: str = CLS, sep: str | None = SEP) -> Tokenizer:
    """The same tokenizer with [CLS] ... [SEP] around each text; ``sep=None``: with [CLS] before it alone."""
    if sep is None:
        ids = [(cls, tokenizer.token_to_id(cls))]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{cls} $A", pair=f"{cls} $A $B:1", special_tokens=ids
        )
        return tokenizer
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (cls, sep)],
    )
    return tokenizer


# --- encoding ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenTable:
    """Token ids of many texts end to end, without padding."""

    ids: np.ndarray  # int32 [N]
    starts: np.ndarray  # int64 [n+1]; text i is ids[starts[i]:starts[i+1]]
    segments: np.ndarray | None  # int8 [N]; None: all 0
    truncated: np.ndarray  # bool [n]: was cut to max_length

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, int64 [n]."""
        return np.diff(self.starts)

    def __getitem__(self, index: int) -> np.ndarray:
        """Ids of text ``index``, int32; negative counts from the end."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"text {index} of {len(self)}")
        index %= len(self)
        return self.ids[self.starts[index] : self.starts[index + 1]]

    def select(self, indices: Sequence[int] | np.ndarray) -> TokenTable:
        """The texts at ``indices`` (int or bool), in that order."""
        chosen = np.asarray(indices)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        lengths = self.lengths[chosen]  # raises IndexError for what is not there
        chosen = np.where(chosen < 0, chosen + len(self), chosen)
        starts = starts_of(lengths)
        # Token j of the result lies as far behind its text's old start as behind its new one.
        where = np.arange(starts[-1]) + np.repeat(self.starts[chosen] - starts[:-1], lengths)
        segments = None if self.segments is None else self.segments[where]
        return TokenTable(self.ids[where], starts, segments, self.truncated[chosen])


def starts_of(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def encode(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    max_length: int,
    clean: Clean = "none",
    add_special_tokens: bool = True,
    unk_id: int | None = None,
    chunk: int = 2048,
) -> TokenTable:
    """Token ids of ``texts``; the tokenizer stays as it is.

    A longer text is cut to ``max_length`` tokens, its closing special tokens kept, and marked in
    ``truncated``. A text without tokens becomes one [UNK] (``unk_id``), so that no length is 0.

    Args:
        max_length: tokens at most, special ones included.
        add_special_tokens: as the tokenizer's post-processor has them ([CLS] ... [SEP]).
        chunk: texts handed over at a time, which bounds the memory.

    Raises:
        DataError: ``max_length`` leaves no room for a token, a text is no string, the tokenizer fails.
    """
    if tokenizer.padding is not None or tokenizer.truncation is not None:
        tokenizer = Tokenizer.from_str(tokenizer.to_str())
        tokenizer.no_padding()
        tokenizer.no_truncation()
    special = tokenizer.num_special_tokens_to_add(False) if add_special_tokens else 0
    if max_length <= special:
        raise DataError(
            f"{max_length} tokens leave no room beside {special} special ones",
            where="max_length",
            fix=f"Give {special + 1} or more",
        )
    tail = _closing_tokens(tokenizer) if add_special_tokens else []
    keep = max_length - len(tail)
    ids_parts: list[np.ndarray] = []
    lengths: list[int] = []
    truncated: list[bool] = []
    for start in range(0, len(texts), chunk):
        part = list(texts[start : start + chunk])
        if not all(isinstance(text, str) for text in part):  # a tuple would be taken for a pair
            raise DataError("not every text is a string", where="texts", fix="Give a list of str")
        if clean != "none":
            part = [clean_text(text, clean) for text in part]
        rows = _ids(tokenizer, part, add_special_tokens)
        for i, row in enumerate(rows):
            truncated.append(len(row) > max_length)
            if len(row) > max_length:
                rows[i] = row[:keep] + tail
            elif not row:
                rows[i] = [_fallback(tokenizer) if unk_id is None else unk_id]
        lengths += map(len, rows)
        ids_parts.append(np.fromiter(chain.from_iterable(rows), dtype=np.int32))
    ids = np.concatenate(ids_parts) if ids_parts else np.zeros(0, np.int32)
    return TokenTable(
        ids, starts_of(np.asarray(lengths, dtype=np.int64)), None, np.asarray(truncated, dtype=bool)
    )


def _ids(tokenizer: Tokenizer, texts: list[str], add_special_tokens: bool) -> list[list[int]]:
    """The ids of each text.

    Raises:
        DataError: a text on which the tokenizer fails, which begins the message.
    """

    def ids(part: list[str]) -> list[list[int]]:
        encodings = tokenizer.encode_batch_fast(part, add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in encodings]

    try:
        return ids(texts)
    except BaseException as error:  # a panic of its compiled code is no Exception
        if failure(error) is None:
            raise
    found: list[list[int]] = []
    for text in texts:  # which of them it is
        try:
            found += ids([text])
        except BaseException as error:  # as above
            if (reason := failure(error)) is None:
                raise
            shown = text if len(text) <= 40 else f"{text[:40]}..."
            what = f"the tokenizer fails on {shown!r} ({reason})"
            raise DataError(
                what, where="texts", fix="Leave this text out, or use another tokenizer"
            ) from None
    return found


def _closing_tokens(tokenizer: Tokenizer) -> list[int]:
    """The special tokens that the post-processor puts behind a text."""
    probe = tokenizer.encode("a")
    tail: list[int] = []
    for token, is_special in zip(reversed(probe.ids), reversed(probe.special_tokens_mask), strict=True):
        if not is_special:
            break
        tail.insert(0, token)
    return tail


def _fallback(tokenizer: Tokenizer) -> int:
    found = unknown_id(tokenizer)
    if found is None:
        raise DataError(
            "a text has no tokens and the tokenizer no token for the unknown",
            where="texts",
            fix="Remove texts without words, or give unk_id",
        )
    return found


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """The id of the token for what the vocabulary lacks; None where there is none."""
    return Vocabulary.of(tokenizer).unk
