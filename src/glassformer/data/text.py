"""From text to token ids: cleaning, tokenizers trained here or read from a checkpoint, encoding."""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from glassformer.data.vocabulary import CLS, PREFIX, SEP, SPECIAL_TOKENS, UNK, Vocabulary
from glassformer.errors import ConfigError, DataError, TooFewExamplesError

# --- what compiled code says when it fails --------------------------------------------------------
# By an exception of vague type, or a panic, which is none.


def failure(error: BaseException) -> str | None:
    """The first line of what it says; None for no failure of its own: an interrupt, an exit, no memory.

    A panic of Rust arrives as ``pyo3_runtime.PanicException``, which ``except Exception`` does not catch.
    """
    if isinstance(error, MemoryError):
        return None
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        return None
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


# --- learning a WordPiece vocabulary --------------------------------------------------------------
# One that is the same on every run. ``tokenizers.trainers.WordPieceTrainer`` numbers the pieces that
# continue a word (``##a``) in the order of a hash map and breaks ties by these numbers, so two runs over
# one corpus give two vocabularies. Here each continuing letter is written as a private character of its
# own, which turns the task into plain byte-pair encoding: its alphabet is sorted, and its ties are broken
# in a fixed way.

MAX_ALPHABET = 1_000  # letters; a word with a rarer one is left out and becomes [UNK]
FIRST_PRIVATE = 0xF0000  # Unicode's plane for private use
FEED = 10_000  # copies of a word handed over at a time


def learn_pieces(words: Counter[str], size: int, min_count: int) -> list[str]:
    """At most ``size`` pieces: every letter, alone and continuing, then joined pairs by falling frequency.

    Args:
        words: how often each word occurs.
        min_count: a pair seen less often is not joined.
    """
    letters: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            letters[letter] += count
    ranked = sorted(letters, key=lambda letter: (-letters[letter], letter))
    alphabet = sorted(ranked[: min(MAX_ALPHABET, size // 2)])
    continuing = {letter: chr(FIRST_PRIVATE + i) for i, letter in enumerate(alphabet)}

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_count,
        initial_alphabet=[*alphabet, *continuing.values()],
        show_progress=False,
    )
    bpe.train_from_iterator(_feed(words, continuing), trainer)
    back = {ord(private): letter for letter, private in continuing.items()}
    pieces = sorted(bpe.get_vocab().items(), key=lambda item: item[1])
    return [(PREFIX if ord(piece[0]) in back else "") + piece.translate(back) for piece, _ in pieces]


def _feed(words: Counter[str], continuing: dict[str, str]) -> Iterator[str]:
    for word, count in words.items():
        if all(letter in continuing for letter in word):
            marked = word[0] + "".join(continuing[letter] for letter in word[1:]) + " "
            for done in range(0, count, FEED):
                yield marked * min(FEED, count - done)


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
        fix = "Lower min_count, raise vocab_size or give more texts"
        raise TooFewExamplesError("no word is frequent enough for a vocabulary", where="texts", fix=fix)
    if add_special_tokens:
        frame_texts(tokenizer, sep=SEP if separator else None)
    return tokenizer


def frame_texts(tokenizer: Tokenizer, cls: str = CLS, sep: str | None = SEP) -> Tokenizer:
    """The same tokenizer with [CLS] ... [SEP] around each text; ``sep=None``: with [CLS] before it alone."""
    single, pair = f"{cls} $A {sep}", f"{cls} $A {sep} $B:1 {sep}:1"
    if sep is None:
        single, pair = f"{cls} $A", f"{cls} $A $B:1"
    ids = [(token, tokenizer.token_to_id(token)) for token in (cls, sep) if token is not None]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    return tokenizer


# --- encoding ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenTable:
    """Token ids of many texts end to end, without padding."""

    ids: np.ndarray  # int32 [N]
    starts: np.ndarray  # int64 [n+1]; text i is ids[starts[i]:starts[i+1]]
    segments: np.ndarray | None  # int8 [N]; None: all 0
    truncated: np.ndarray  # bool [n]: was cut to max_length

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[int]],
        truncated: Sequence[bool] | None = None,
        segments: Iterable[Sequence[int]] | None = None,
    ) -> TokenTable:
        """The table of these rows of ids; without ``truncated`` none of them was cut."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
        kinds = None if segments is None else np.fromiter(chain.from_iterable(segments), np.int8, len(ids))
        cut = np.zeros(len(rows), bool) if truncated is None else np.array(truncated, bool)
        return cls(ids, starts_of(lengths), kinds, cut)

    @classmethod
    def joined(cls, tables: Sequence[TokenTable]) -> TokenTable:
        """Several tables, at least one, end to end."""
        segments = [table.segments for table in tables if table.segments is not None]
        return cls(
            np.concatenate([table.ids for table in tables]),
            starts_of(np.concatenate([table.lengths for table in tables])),
            np.concatenate(segments) if segments else None,
            np.concatenate([table.truncated for table in tables]),
        )

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
    tokenizer = uncut(tokenizer)
    check_room(max_length, tokenizer.num_special_tokens_to_add(False) if add_special_tokens else 0)
    _, tail = frame_of(tokenizer) if add_special_tokens else ([], [])
    keep = max_length - len(tail)
    tables: list[TokenTable] = []
    for start in range(0, len(texts), chunk):
        part = list(texts[start : start + chunk])
        if not all(isinstance(text, str) for text in part):  # a tuple would be taken for a pair
            raise DataError("not every text is a string", where="texts", fix="Give a list of str")
        if clean != "none":
            part = [clean_text(text, clean) for text in part]
        rows = [encoding.ids for encoding in encodings(tokenizer, part, add_special_tokens)]
        truncated = [len(row) > max_length for row in rows]
        for i, row in enumerate(rows):
            if truncated[i]:
                rows[i] = row[:keep] + tail
            elif not row:
                rows[i] = [unknown_for(tokenizer, "text") if unk_id is None else unk_id]
        tables.append(TokenTable.of(rows, truncated))
    return TokenTable.joined(tables or [TokenTable.of([])])


def check_room(max_length: int, special: int, texts: int = 1) -> None:
    """Raises DataError where a sequence has no room for a token of each text beside the special ones."""
    if max_length < special + texts:
        what = f"{max_length} tokens leave no room{' for two texts' * (texts > 1)} beside "
        what += f"{special} special ones"
        raise DataError(what, where="max_length", fix=f"Give {special + texts} or more")


def uncut(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer that neither pads nor cuts: itself where it does neither, else a copy."""
    if tokenizer.padding is not None or tokenizer.truncation is not None:
        tokenizer = Tokenizer.from_str(tokenizer.to_str())
        tokenizer.no_padding()
        tokenizer.no_truncation()
    return tokenizer


def encodings(tokenizer: Tokenizer, inputs: Sequence[Any], add_special_tokens: bool) -> list[Any]:
    """The ``Encoding`` of each text, or of each pair of them.

    Raises:
        DataError: an input on which the tokenizer fails; the message has its beginning.
    """
    options = {"add_special_tokens": add_special_tokens}
    try:
        return tokenizer.encode_batch_fast(inputs, **options)
    except BaseException as error:  # a panic of its compiled code is no Exception
        if failure(error) is None:
            raise
    found: list[Any] = []
    for one in inputs:  # which of them it is
        try:
            found += tokenizer.encode_batch_fast([one], **options)
        except BaseException as error:  # as above
            if (reason := failure(error)) is None:
                raise
            text, kind, begin = (
                (one, "text", "") if isinstance(one, str) else (one[0], "pair", "the pair that begins with ")
            )
            shown = repr(text if len(text) <= 40 else f"{text[:40]}...")
            what = f"the tokenizer fails on {begin}{shown} ({reason})"
            raise DataError(
                what, where="texts", fix=f"Leave this {kind} out, or use another tokenizer"
            ) from None
    return found


def frame_of(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The special tokens that the post-processor puts before a text and behind it."""
    probe = tokenizer.encode("a")
    inner = [i for i, special in enumerate(probe.special_tokens_mask) if not special]
    start, stop = (inner[0], inner[-1] + 1) if inner else (len(probe.ids), len(probe.ids))
    return probe.ids[:start], probe.ids[stop:]


def unknown_for(tokenizer: Tokenizer, noun: str) -> int:
    """The id for a text (``noun``) that has no tokens; DataError where the tokenizer has none."""
    if (found := unknown_id(tokenizer)) is None:
        what = f"a {noun} has no tokens and the tokenizer no token for the unknown"
        raise DataError(what, where="texts", fix=f"Remove {noun}s without words, or give unk_id")
    return found


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """The id of the token for what the vocabulary lacks; None where there is none."""
    return Vocabulary.of(tokenizer).unk


# --- byte-level BPE -------------------------------------------------------------------------------
# (Sennrich et al., 2016; Radford et al., 2019): any text in, the same text out.
# Words are cut from the text with the blank before them, letters become bytes, and frequent pairs are
# joined. Nothing is unknown, and decoding gives back every character, which detokenised BLEU needs.

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
        what = f"{vocab_size} entries have no room for {least} special tokens and bytes"
        raise DataError(what, where="vocab_size", fix=f"Use {least} or more")
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


# --- texts longer than the model reads ------------------------------------------------------------
# As overlapping windows of its full length.
# tokens of a text     [CLS] a b c d e f g [SEP]        max_length 6, stride 2
# windows              [CLS] a b c d [SEP]
#                          [CLS] c d e f [SEP]
#                            [CLS] d e f g [SEP]         the last one ends with the text

ENDLESS = 2**40  # tokens: nothing is cut


@dataclass(frozen=True)
class Windows:
    """Token ids of w windows of n texts; without ``owners``, each text is its own and only window."""

    table: TokenTable
    texts: int
    owners: np.ndarray | None = None  # int64 [w], ascending: the text of each window

    @property
    def truncated(self) -> np.ndarray:
        """Which texts are cut, ``[n]`` bool; none where they have windows."""
        return self.table.truncated if self.owners is None else np.zeros(self.texts, bool)


def window_starts(length: int, size: int, stride: int) -> list[int]:
    """Where windows of ``size`` begin in ``length`` > ``size`` tokens; the last ends where the text does."""
    return [*range(0, length - size, stride), length - size]


def encode_windows(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    max_length: int,
    stride: int | None = None,
    clean: Clean = "none",
    add_special_tokens: bool = True,
) -> Windows:
    """Token ids of every window; a text that fits has one, the same as ``encode`` gives.

    Args:
        max_length: tokens of a window, special ones included.
        stride: tokens from one window's begin to the next one's; None: half of what a window holds.

    Raises:
        ConfigError: the stride would leave tokens out.
        DataError: as in ``encode``.
    """
    special = tokenizer.num_special_tokens_to_add(False) if add_special_tokens else 0
    size = max_length - special
    step = max(size // 2, 1) if stride is None else stride
    if size > 0 and not 1 <= step <= size:
        what = f"a stride of {step} leaves out tokens between windows of {size}"
        raise ConfigError(what, where="window_stride", fix=f"Use 1 to {size}")
    check_room(max_length, special)
    whole = encode(tokenizer, texts, max_length=ENDLESS, clean=clean, add_special_tokens=add_special_tokens)
    if (whole.lengths <= max_length).all():
        return Windows(whole, len(texts))
    head, tail = frame_of(tokenizer) if add_special_tokens else ([], [])
    rows: list[list[int]] = []
    owners: list[int] = []
    for i in range(len(texts)):
        row = whole[i].tolist()
        made = [row]
        if len(row) > max_length:
            inner = row[len(head) : len(row) - len(tail)]
            made = [[*head, *inner[at : at + size], *tail] for at in window_starts(len(inner), size, step)]
        rows += made
        owners += [i] * len(made)
    return Windows(TokenTable.of(rows), len(texts), np.asarray(owners, np.int64))
