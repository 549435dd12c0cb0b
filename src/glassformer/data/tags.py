"""Tags of words and the spans that they mark: BIO, BIOES (and BILOU), or plain tags.

    The   O                  tags_to_spans -> [Span("location", 1, 2)]
    Hague B-location
    today O

Well-formed and malformed tags are read as in seqeval. A span begins at a B or an S, and at an I or an E that
does not continue a span of the same kind. A span ends where another span begins, after an E or an S, and
before an outside tag. In plain tags, adjacent equal tags form one span. Words with the tag -100 are ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from glassformer.config import join_names, suggest
from glassformer.data.checks import check_not_numbers, is_missing, location
from glassformer.data.in_memory import read_rows
from glassformer.errors import (
    BadTagsError,
    BadValueError,
    DataError,
    MissingValueError,
    OneClassError,
    UnequalLengthsError,
    counted,
)

OUTSIDE = "O"
IGNORED_TAG = "-100"  # tag of words that the loss and the metrics ignore, as in transformers
Scheme = Literal["BIO", "BIOES", "plain"]
UNNAMED_KIND = "entity"  # kind of a tag that is only a letter, such as B
# Equivalent letters: L and E end a span; U, S and W are a span of one word; M and I continue a span.
LETTERS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S"}
PUNCTUATION = frozenset(",.;:!?…\"'“”„‟‚‘’«»‹›()[]{}¿¡、。，！？；：")  # punctuation that is a separate word
INITIALS = re.compile(r"(?:[^\W\d_]\.)+")  # J., U.S.
MAX_PUNCTUATED_WORDS = 1000  # maximum number of words that a tagger stores with their punctuation
_LETTER_AND_KIND = re.compile(r"([BIESLU])(?:-(.+))?", re.DOTALL)  # "B-location"


class Span(NamedTuple):
    """Words ``start`` to ``end`` (exclusive) of a sentence, and their kind."""

    kind: str  # such as ``location``
    start: int
    end: int


def detect_scheme(sequences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme of tags: plain, unless every tag is ``O``, a letter, or a letter with a kind.

    Raises:
        DataError: the tags have B and I, but one or two tags have no letter.
    """
    tag_letters = {tag: _letter_and_kind(tag)[0] for tag in _distinct_tags(sequences) if tag != OUTSIDE}
    letters = {*tag_letters.values()} - {""}
    without_letter = [tag for tag, letter in tag_letters.items() if not letter]
    if not without_letter:
        return "BIOES" if letters & {"E", "S"} else "BIO" if letters else "plain"
    if {"B", "I"} <= letters and len(without_letter) <= 2:
        tag = without_letter[0]
        what = f"tag {tag!r} is neither {OUTSIDE} nor one with B- or I- before its kind"
        raise BadTagsError(what, where="tags", fix=f"Write {OUTSIDE}, or B-{tag} and I-{tag}")
    return "plain"


def _letter_and_kind(tag: str) -> tuple[str, str]:
    """The BIOES letter (empty if there is none) and the kind of a tag."""
    match = _LETTER_AND_KIND.fullmatch(tag)
    return (LETTERS[match[1]], match[2] or UNNAMED_KIND) if match else ("", tag)


def tags_to_spans(tags: Sequence[str], scheme: Scheme) -> list[Span]:
    """The spans that the W tags of a sentence mark, in order."""
    if IGNORED_TAG in tags:
        positions = tagged_positions(tags)
        spans = tags_to_spans([tags[i] for i in positions], scheme)
        return [Span(kind, positions[start], positions[end - 1] + 1) for kind, start, end in spans]
    spans: list[Span] = []
    open_kind, start = None, 0  # of the span that has not ended; None: there is none
    for i, tag in enumerate([*tags, OUTSIDE]):
        letter, kind = ("I", tag) if scheme == "plain" else _letter_and_kind(tag)
        if open_kind is not None and (tag == OUTSIDE or letter in ("B", "S") or kind != open_kind):
            spans.append(Span(open_kind, start, i))
            open_kind = None
        if tag == OUTSIDE:
            continue
        if open_kind is None:
            open_kind, start = kind, i
        if letter in ("E", "S"):
            spans.append(Span(kind, start, i + 1))
            open_kind = None
    return spans


def tagged_positions(tags: Sequence[str]) -> list[int]:
    """The positions of the words that are not ignored."""
    return [i for i, tag in enumerate(tags) if tag != IGNORED_TAG]


def drop_untagged(truth: Sequence[str], *others: Sequence[Any]) -> list[list[Any]]:
    """The true tags of a sentence, and other lists of values per word, without the ignored words."""
    positions = tagged_positions(truth)
    return [[row[i] for i in positions] for row in (truth, *others)]


def spans_to_tags(spans: Iterable[Span], count: int, scheme: Scheme) -> list[str]:
    """The tags of a sentence of ``count`` words with these spans."""
    tags = [OUTSIDE] * count
    for kind, start, end in spans:
        for i in range(start, end):
            letter = "B" if i == start else "I"
            if scheme == "BIOES" and i == end - 1:
                letter = "S" if i == start else "E"
            tags[i] = kind if scheme == "plain" else f"{letter}-{kind}"
    return tags


def repair_tags(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Well-formed tags for the same spans: an I that does not continue a span becomes a B, and so on."""
    if scheme == "plain":
        return list(tags)
    if IGNORED_TAG in tags:
        repaired = iter(repair_tags(drop_untagged(tags)[0], scheme))
        return [tag if tag == IGNORED_TAG else next(repaired) for tag in tags]
    return spans_to_tags(tags_to_spans(tags, scheme), len(tags), scheme)


def malformed_positions(tags: Sequence[str], scheme: Scheme) -> list[int]:
    """The positions of the tags that ``repair_tags`` changes, except for the letters L and U."""
    if scheme == "plain":
        return []
    normalized = [tag if tag in (OUTSIDE, IGNORED_TAG) else "-".join(_letter_and_kind(tag)) for tag in tags]
    return [i for i, (a, b) in enumerate(zip(normalized, repair_tags(tags, scheme), strict=True)) if a != b]


def tag_classes(sequences: Iterable[Sequence[str]], scheme: Scheme) -> list[str]:
    """The classes of a tagger: O first, then all tags of the scheme for every kind."""
    tags = _distinct_tags(sequences)
    if scheme == "plain":
        return sorted(tags, key=lambda tag: (tag != OUTSIDE, tag))
    kinds = sorted({_letter_and_kind(tag)[1] for tag in tags if tag != OUTSIDE})
    return [OUTSIDE, *(f"{letter}-{kind}" for kind in kinds for letter in scheme if letter != OUTSIDE)]


def tag_kind(tag: str, scheme: Scheme) -> str:
    """The kind in a tag; empty for an outside tag."""
    if tag in (OUTSIDE, IGNORED_TAG):
        return ""
    return tag if scheme == "plain" else _letter_and_kind(tag)[1]


# --- checking words and tags ----------------------------------------------------------------------


def words_with_punctuation(sentences: Iterable[Sequence[str]]) -> list[str] | None:
    """Training words that include punctuation (``Dr.``), if punctuation is usually a separate word.

    The result is None if most punctuation is part of a word.
    """
    counts = Counter(word for words in sentences for word in words)
    stems = {word: word.strip("".join(PUNCTUATION)) for word in counts}
    attached = {word: stem for word, stem in stems.items() if stem and stem != word}
    if sum(counts[word] for word in attached) > sum(counts[word] for word, stem in stems.items() if not stem):
        return None
    frequent = [word for word, stem in attached.items() if counts[word] >= counts[stem]]
    return sorted(sorted(frequent, key=lambda word: (-counts[word], word))[:MAX_PUNCTUATED_WORDS])


def word_positions(text: str, whole: Collection[str] | None = None) -> list[tuple[int, int]]:
    """The start and end of each word of a text.

    Args:
        whole: words that include punctuation, such as ``Dr.``; all other punctuation marks, except those of
            initials, are separate words. None: words are separated by white space only.
    """
    positions: list[tuple[int, int]] = []
    for match in re.finditer(r"\S+", text):
        (start, end), trailing = match.span(), []
        while whole is not None and not _is_one_word(text[start:end], whole):
            if text[start] in PUNCTUATION:
                positions.append((start, start + 1))
                start += 1
                continue
            stem_end = start + len(text[start:end].rstrip(text[end - 1]))  # "..." is one word
            trailing.append((stem_end, end))
            end = stem_end
        positions += [(start, end), *reversed(trailing)]
    return positions


def has_character_spans(tags: Iterable[Any]) -> bool:
    """Whether the first label is a span of characters: ``[0, 4, "PER"]``, or an object with these values."""
    first = next((spans[0] for spans in tags if isinstance(spans, list) and spans), None)
    return _parse_character_span(first) is not None


def _parse_character_span(span: Any) -> tuple[int, int, str] | None:
    if isinstance(span, dict):
        begin, end = (span.get(key, span.get(f"{key}_offset")) for key in ("start", "end"))
        span = [begin, end, span.get("label")]
    if not isinstance(span, list) or [type(part) for part in span] != [int, int, str]:
        return None
    return span[0], span[1], span[2]


def tags_from_character_spans(text: Any, spans: Any, where: str) -> tuple[list[str], list[str]]:
    """The words of a text and their BIO tags, from spans of characters (from 0, the end exclusive).

    Words are split at blanks, and punctuation before or after a word is a separate word.

    Raises:
        DataError: the text is not a string; a span is invalid or ends inside a word; or two spans overlap.
    """
    if not isinstance(text, str) or not isinstance(spans, list):
        what = "expected a text and a list of character spans"
        raise BadTagsError(what, where=where, fix='Write "text" and "label": [[0, 4, "PER"]], or [] for none')
    positions = word_positions(text, ())
    tags = [OUTSIDE] * len(positions)
    for span in spans:
        start, end, kind = _parse_character_span(span) or (0, 0, "")
        if not (0 <= start < end <= len(text) and kind.strip()):
            fix = f"Write [start, end, kind]; the text has the characters 0 to {len(text)}"
            raise BadTagsError(f"{span!r} is not a span of the text", where=where, fix=fix)
        inside = [i for i, (a, b) in enumerate(positions) if a < end and b > start]
        if not inside or positions[inside[0]][0] < start or positions[inside[-1]][1] > end:
            what = f"span {span!r} ({text[start:end]!r}) does not begin and end with a word"
            fix = "Give whole words; characters count from 0, the end exclusive"
            raise BadTagsError(what, where=where, fix=fix)
        if any(tags[i] != OUTSIDE for i in inside):
            what = f"span {span!r} ({text[start:end]!r}) overlaps another span"
            raise BadTagsError(what, where=where, fix="Keep one of them: a word has one tag")
        for i in inside:
            tags[i] = f"{'B' if i == inside[0] else 'I'}-{kind.strip()}"
    return [text[a:b] for a, b in positions], tags


def _is_one_word(word: str, whole: Collection[str]) -> bool:
    if word in whole or INITIALS.fullmatch(word) or all(letter in PUNCTUATION for letter in word):
        return True
    return word[0] not in PUNCTUATION and word[-1] not in PUNCTUATION


def is_sentence(row: Any) -> bool:
    """Whether a row is a sentence (or its tags) as a list or array, not a named tuple."""
    return isinstance(row, list | tuple | np.ndarray) and not hasattr(row, "_fields")


def check_words(
    X: Any, origin: str = "sentences", rows: Sequence[int] | None = None, whole: Collection[str] | None = None
) -> list[list[str]]:
    """Check sentences, and return them as lists of words; texts are split (see ``word_positions``).

    Raises:
        DataError: there are no sentences, or a word is invalid; the message has its position.
    """
    check_not_numbers(X, origin, "Give lists of words")
    X = read_rows(X, origin, "sentences", is_example=is_sentence)
    if not X:
        raise MissingValueError("there are no sentences", where=origin, fix="Give at least one")
    if whole is not None:
        X = [[x[a:b] for a, b in word_positions(x, whole)] if isinstance(x, str) else x for x in X]
    return [_check_sentence(sentence, origin, i, rows) for i, sentence in enumerate(X)]


def _check_sentence(sentence: Any, origin: str, i: int, rows: Sequence[int] | None) -> list[str]:
    where = location(origin, i, rows)
    if isinstance(sentence, str):
        sentence = sentence.split()
    elif not isinstance(sentence, list | tuple | np.ndarray):
        kind = "missing" if is_missing(sentence) else f"a {type(sentence).__name__}, not a list of words"
        raise DataError(f"the sentence is {kind}", where=where, fix='Write ["The", "Hague"]')
    if not len(sentence):
        raise MissingValueError("the sentence has no words", where=where, fix="Remove it")
    for j, word in enumerate(sentence):
        if not isinstance(word, str) or not word.strip():
            shown = "empty" if isinstance(word, str) else f"{word!r}, not a text"
            raise DataError(f"word {j + 1} is {shown}", where=where, fix="Write a text for each word")
        if any("\ud800" <= c <= "\udfff" for c in word):
            what = f"word {j + 1} has a lone surrogate (half a character)"
            raise DataError(what, where=where, fix="Read the file as UTF-8")
    return list(map(str, sentence))


def check_tags(
    y: Any, words: Sequence[Sequence[str]], origin: str = "tags", rows: Sequence[int] | None = None
) -> list[list[str]]:
    """Check that there is one tag per word, and return the tags as text.

    Raises:
        DataError: tags are missing, or a tag is invalid; the message has its position.
    """
    fix = "Give a list of tags for each sentence"
    if y is None or isinstance(y, str | bytes):
        raise MissingValueError("the tags are missing", where=origin, fix=fix)
    y = read_rows(y, origin, "tags", is_example=is_sentence)
    if len(y) != len(words):
        what = f"{len(words)} sentences, but tags for {len(y)}"
        raise UnequalLengthsError(what, where=origin, fix=fix)
    return [_check_sentence_tags(tags, len(words[i]), location(origin, i, rows)) for i, tags in enumerate(y)]


def _check_sentence_tags(tags: Any, count: int, where: str) -> list[str]:
    if isinstance(tags, str):
        tags = tags.split()
    fix = "Give a tag for each word"
    if not isinstance(tags, list | tuple | np.ndarray):
        raise MissingValueError("the tags are missing", where=where, fix=fix)
    if len(tags) != count:
        what = f"{counted(count, 'word')} and {counted(len(tags), 'tag')}"
        raise UnequalLengthsError(what, where=where, fix=fix)
    for j, tag in enumerate(tags):
        is_tag = isinstance(tag, str | int | np.integer) and not isinstance(tag, bool)
        if not is_tag or not str(tag).strip():
            what = f"tag {j + 1} is {'empty' if isinstance(tag, str) else repr(tag)}"
            raise BadTagsError(what, where=where, fix=f"Write {OUTSIDE} for a word outside of all spans")
    return [str(tag).strip() for tag in tags]


# --- schemes --------------------------------------------------------------------------------------
# Tags in data are converted to BIO, BIOES or plain tags:
# B-LOC I-LOC O                BIO (IOB2), not changed
# I-LOC I-LOC B-LOC O          IOB1: B only where two spans of one kind touch; converted to BIO
# B L U, B E S, B M E W        BIOES with other letters (BILOU, BMES, BMEWO, IOE)
# B_LOC  LOC-B  b-loc  0 ... 8 other spellings of a scheme: an error, unless ``scheme`` names the scheme
# -100                         the loss and the metrics ignore the word

TagLists = Sequence[Sequence[str]]
EXACT_SCHEME = "exact"  # in runs without this setting: only tags such as B-LOC are BIO, all others are plain
SCHEMES: dict[str, Scheme | None] = {
    "auto": None,
    EXACT_SCHEME: None,
    "plain": "plain",
    **dict.fromkeys(("BIO", "IOB2", "IOB1", "IO"), "BIO"),
    **dict.fromkeys(("BIOES", "IOBES", "BILOU", "BMES", "BMEWO", "IOE1", "IOE2"), "BIOES"),
}
SCHEME_LETTERS = tuple(map(set, ("BI", "BIES", "BILU", "BMES", "BMEW", "BIE", "IE")))
OUTSIDE_SPELLINGS = ("O", "o", "0")
INTEGER = re.compile(r"-?[0-9]+")
MAX_TAGS_SHOWN = 4  # maximum number of tags in a message


class TagReading(NamedTuple):
    """Tags in one of the three schemes."""

    tags: list[list[str]]
    scheme: Scheme
    message: str = ""  # tells the user how tags were converted; empty: they were not


class _Spelling(NamedTuple):
    """One way to write a letter and a kind: ``B-LOC``, ``LOC_B``, ``b/loc``."""

    pattern: re.Pattern[str]
    bare_letters: str  # letters that may occur without a kind

    def read(self, tag: str) -> tuple[str, str] | None:
        """The letter and kind of a tag, ``("O", "")`` for an outside tag; None: it has another spelling."""
        if tag in OUTSIDE_SPELLINGS:
            return OUTSIDE, ""
        if tag and tag in self.bare_letters:
            return tag.upper(), UNNAMED_KIND
        match = self.pattern.fullmatch(tag)
        return (match["letter"].upper(), match["kind"]) if match else None

    def letters(self, tags: Iterable[str]) -> set[str]:
        """The letters of the tags that have this spelling, without O."""
        return {read[0] for tag in tags if (read := self.read(tag))} - {OUTSIDE}

    def canonical(self, tag: str) -> str:
        """The tag in BIO or BIOES; O if it has another spelling."""
        letter, kind = self.read(tag) or (OUTSIDE, "")
        return OUTSIDE if letter == OUTSIDE else f"{LETTERS[letter]}-{kind}"


SPELLINGS = [
    _Spelling(re.compile(pattern.format(letters, re.escape(mark)), re.DOTALL), letters if mark == "-" else "")
    for mark in "-_/:.| "
    for pattern in ("(?P<letter>[{0}]){1}(?P<kind>.+)", "(?P<kind>.+){1}(?P<letter>[{0}])")
    for letters in ("".join(LETTERS), "".join(LETTERS).lower())
]
USUAL_SPELLING = SPELLINGS[0]  # B-LOC


def parse_scheme(scheme: str | Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Parse the setting ``scheme``: one of ``SCHEMES``, and the names of numeric tags (empty: none)."""
    if not isinstance(scheme, str):
        names = tuple(scheme)
    elif "," in scheme:
        names = tuple(name.strip() for name in scheme.split(","))
    else:
        known = {name.upper(): name for name in SCHEMES}.get(scheme.upper())
        if known is None:
            fix = f"{suggest(scheme, list(SCHEMES))}. For numeric tags list the names: O,B-PER,I-PER"
            raise BadValueError(f"{scheme!r} is not a scheme of tags", where="scheme", fix=fix)
        return known, ()
    if not names or not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
        what = f"{list(names)} does not name each number once"
        raise BadValueError(what, where="scheme", fix="Write O,B-PER,I-PER")
    return "auto", names


def read_tags(sequences: TagLists, scheme: str | Sequence[str] = "auto", where: str = "tags") -> TagReading:
    """Convert the tags of sentences to BIO, BIOES or plain tags.

    Args:
        scheme: one of ``SCHEMES``; or the names of numeric tags, in order from 0. ``auto``: the tags must
            have the usual spelling of a scheme, or be unlike all schemes (plain).

    Raises:
        DataError: no word has a tag, or the scheme does not have a tag; with ``auto`` also if tags are
            numbers or look like a scheme in another spelling.
        ConfigError: the scheme does not exist.
    """
    requested, names = parse_scheme(scheme)
    if names:
        sequences = _map_tags(sequences, lambda tag: _name_of_number(tag, names, where))
    distinct = _distinct_tags(sequences)
    if not distinct:
        raise OneClassError(f"every word has the tag {IGNORED_TAG}", where=where, fix="Give tags to learn")
    tag_lists = [list(tags) for tags in sequences]
    if requested == EXACT_SCHEME:
        return TagReading(tag_lists, detect_scheme(tag_lists))
    if all(map(INTEGER.fullmatch, distinct)):
        return _read_numbers(tag_lists, requested, where)
    if requested == "plain":
        return TagReading(tag_lists, "plain")
    if requested == "auto":
        return _read_usual_spelling(tag_lists, distinct, where)
    return _convert_to_scheme(tag_lists, distinct, requested, where)


def read_tags_like_model(
    sequences: TagLists,
    scheme: str | Sequence[str],
    model_scheme: Scheme,
    classes: Iterable[str],
    where: str = "tags",
) -> list[list[str]]:
    """Convert the tags of other data to those of a model.

    Args:
        scheme: the setting ``scheme`` of the model.
        model_scheme: the scheme of its tags.
        classes: its tags.
    """
    requested, names = parse_scheme(scheme)
    tag_lists = [list(tags) for tags in sequences]
    distinct = _distinct_tags(tag_lists)
    if requested == EXACT_SCHEME or not distinct or {*distinct} <= {*classes, OUTSIDE}:
        return tag_lists
    if names or (requested != "auto" and all(map(INTEGER.fullmatch, distinct))):
        return read_tags(tag_lists, scheme, where).tags
    if model_scheme != "plain":
        fix = f"Write tags as the model has them: {join_names([*classes][:MAX_TAGS_SHOWN])} ..."
        return _convert_to_scheme(tag_lists, distinct, "BIOES", where, fix).tags  # accepts BIO too
    if requested == "auto" and (reading := read_tags(tag_lists, "auto", where)).scheme != "plain":
        shown = join_names(distinct[:MAX_TAGS_SHOWN])
        what = f"the tags are {reading.scheme} ({shown}), but the model's tags are plain"
        raise BadTagsError(what, where=where, fix="Write the kinds without their letters")
    return tag_lists


def _distinct_tags(sequences: Iterable[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(tag for tags in sequences for tag in tags if tag != IGNORED_TAG))


def read_model_labels(names: Sequence[str]) -> TagReading:
    """The labels of an imported model, converted like tags, and their detected scheme."""
    letters, others = USUAL_SPELLING.letters(names), [name for name in names if not USUAL_SPELLING.read(name)]
    if not others and letters <= {*"BIESLU"} and not {*OUTSIDE_SPELLINGS[1:]} & {*names}:
        return TagReading([[*names]], detect_scheme([names]))
    spelling = _find_spelling(names)
    if spelling is not None:
        tags = list(map(spelling.canonical, names))
        scheme = _scheme_of_letters(tags)
        if len({*tags}) == len(names):
            old, new = next((a, b) for a, b in zip(names, tags, strict=True) if a != b)
            return TagReading([tags], scheme, f"labels are read as {scheme}: {old!r} as {new!r}")
    if all(re.fullmatch(r"LABEL_[0-9]+", name) for name in names):
        message = f"its labels have no names ({names[0]} ...), so each of them counts as a kind of span"
        return TagReading([[*names]], "plain", message)
    if letters & {"B", "I"}:
        message = f"each of {join_names(others)} counts as a kind of span"
        return TagReading([[*names]], _scheme_of_letters(letters), message)
    return TagReading([[*names]], "plain")


# --- numbers --------------------------------------------------------------------------------------


def _name_of_number(tag: str, names: Sequence[str], where: str) -> str:
    if not INTEGER.fullmatch(tag):
        return tag
    if not 0 <= int(tag) < len(names):
        fix = f"Name it in scheme, which has names for 0 to {len(names) - 1}"
        raise BadTagsError(f"tag {tag} has no name", where=where, fix=fix)
    return names[int(tag)]


def _read_numbers(tag_lists: list[list[str]], requested: str, where: str) -> TagReading:
    """Convert numeric tags without names: 0 is outside; in BIO 1 begins a span, and 2 continues it."""
    counts = Counter(int(tag) for tags in tag_lists for tag in tags if tag != IGNORED_TAG)
    numbers = sorted(counts)
    if numbers[0] < 0:
        what, fix = f"tag {numbers[0]} is below 0", f"Write {IGNORED_TAG} for words to ignore"
        raise BadTagsError(what, where=where, fix=fix)
    if requested == "plain":
        return TagReading(_map_tags(tag_lists, lambda tag: OUTSIDE if tag == "0" else tag), "plain")
    listing = f"{numbers[0]} to {numbers[-1]}"
    fix = f"Set scheme to their {numbers[-1] + 1} names in order from 0, such as scheme=O,B-PER,I-PER; "
    fix += "or set scheme=plain if each number is a kind and 0 is O"
    num_pairs = _count_bio_pairs(tag_lists)
    if SCHEMES[requested] != "BIO":
        what = f"the tags are numbers without names ({listing})"
        if requested == "auto" and num_pairs > 0 and counts.most_common(1)[0][0] == 0:
            what += "; they look like BIO: 0 is O, 1 and 2 begin and continue a kind, 3 and 4 the next"
            fix = f"Set scheme=BIO if so. {fix}"
        raise BadTagsError(what, where=where, fix=fix)
    if num_pairs < 0:
        what = f"the tags are numbers ({listing}), but they are not BIO: 2 does not follow 1, or 4 does not "
        what += "follow 3, and so on"
        raise BadTagsError(what, where=where, fix=fix)
    bio_tags = {n: f"{'BI'[n % 2 == 0]}-{(n + 1) // 2}" if n else OUTSIDE for n in numbers}
    converted = _map_tags(tag_lists, lambda tag: bio_tags[int(tag)])
    if requested != "BIO":
        converted = [repair_tags(tags, "BIO") for tags in converted]
    message = "tags that are numbers are read as BIO: 0 is O, 1 is B-1, 2 is I-1, 3 is B-2"
    return TagReading(converted, "BIO", message)


def _count_bio_pairs(tag_lists: TagLists) -> int:
    """How often an even number follows the odd one before it, as I follows B, minus how often it does not."""
    count = 0
    for tags in tag_lists:
        for before, tag in pairwise([0, *(int(tag) for tag in tags if tag != IGNORED_TAG)]):
            if tag and tag % 2 == 0 and tag != before:
                count += 1 if before == tag - 1 else -1
    return count


# --- letters and kinds ----------------------------------------------------------------------------


def _read_usual_spelling(tag_lists: list[list[str]], distinct: list[str], where: str) -> TagReading:
    """Convert tags whose scheme is clear from their spelling."""
    others = [tag for tag in distinct if tag in OUTSIDE_SPELLINGS[1:] or not USUAL_SPELLING.read(tag)]
    letters = USUAL_SPELLING.letters(distinct)
    if not others and (letters <= {*"BIESLU"} or _is_one_scheme(letters)):
        return _convert_by_letters(tag_lists, letters)
    if (spelling := _find_spelling(distinct)) is not None:
        canonical = {tag: spelling.canonical(tag) for tag in distinct}
        scheme = _scheme_of_letters(canonical.values())
        respelled = [tag for tag in distinct if canonical[tag] != tag]
        shown = ", ".join(map(repr, respelled[:MAX_TAGS_SHOWN]))
        what = f"the tags look like {scheme} in another spelling ({shown})"
        fix = f"Set scheme={scheme} to read {respelled[0]!r} as {canonical[respelled[0]]!r}"
        raise BadTagsError(what, where=where, fix=f"{fix}, or scheme=plain if each tag is a kind")
    if letters & {"B", "I"}:
        other = next(tag for tag in distinct if tag in others or tag[0] in "MW")
        what = f"tag {other!r} is neither {OUTSIDE} nor one with B- or I- before its kind"
        fix = f"Write {OUTSIDE}, or B-{other} and I-{other}; or set scheme=plain if each tag is a kind"
        raise BadTagsError(what, where=where, fix=fix)
    return TagReading(tag_lists, "plain")


def _convert_by_letters(tag_lists: list[list[str]], letters: set[str]) -> TagReading:
    """Convert tags in the usual spelling, by their letters."""
    if letters & {"M", "W"}:
        return TagReading(
            _map_tags(tag_lists, USUAL_SPELLING.canonical), "BIOES", "tags in BMES are read as BIOES"
        )
    scheme: Scheme = "BIOES" if letters & {*"ESLU"} else "BIO" if letters else "plain"
    name = "IOE" if letters == {"I", "E"} else ""
    if scheme == "BIO" and (letters == {"I"} or _is_iob1(tag_lists)):
        name = "IOB1" if "B" in letters else "IO"
    converted = [repair_tags(tags, scheme) for tags in tag_lists] if name else tag_lists
    return TagReading(converted, scheme, f"tags in {name} are read as {scheme}" if name else "")


def _is_iob1(tag_lists: TagLists) -> bool:
    """Whether B occurs only directly after a span of the same kind, as in IOB1."""
    for tags in tag_lists:
        parsed = [USUAL_SPELLING.read(tag) or (OUTSIDE, "") for tag in tags if tag != IGNORED_TAG]
        neighbors = pairwise([(OUTSIDE, ""), *parsed])
        if any(letter == "B" and kind != previous for (_, previous), (letter, kind) in neighbors):
            return False
    return True


def _is_one_scheme(letters: set[str]) -> bool:
    """Whether these are letters of one scheme, and one of them is B or I."""
    return any(letters <= scheme for scheme in SCHEME_LETTERS) and bool(letters & {"B", "I"})


def _find_spelling(distinct: Sequence[str]) -> _Spelling | None:
    """The spelling in which all of these tags belong to one scheme; None if there is none."""
    for spelling in SPELLINGS:
        parsed, letters = list(map(spelling.read, distinct)), spelling.letters(distinct)
        if all(parsed) and _is_one_scheme(letters) and (len(letters) > 1 or (OUTSIDE, "") in parsed):
            return spelling
    return None


def _convert_to_scheme(
    tag_lists: list[list[str]], distinct: list[str], name: str, where: str, fix: str = ""
) -> TagReading:
    """Convert tags by the scheme that the user names, in any spelling."""
    scheme: Scheme = SCHEMES[name] or "BIO"
    allowed = {OUTSIDE, *("BI" if scheme == "BIO" else LETTERS)}

    def find_invalid(spelling: _Spelling) -> list[str]:
        return [tag for tag in distinct if not (read := spelling.read(tag)) or read[0] not in allowed]

    spelling = min(SPELLINGS, key=lambda candidate: len(find_invalid(candidate)))
    if invalid := find_invalid(spelling):
        bioes_tag = next((tag for tag in invalid if spelling.read(tag)), None)
        plain_fix = f"Write {OUTSIDE}, or B-{invalid[0]}; or set scheme=plain"
        fix = fix or ("Set scheme=BIOES" if bioes_tag else plain_fix)
        raise BadTagsError(f"tag {bioes_tag or invalid[0]!r} is not one of {name}", where=where, fix=fix)
    converted = _map_tags(tag_lists, spelling.canonical)
    if name in ("IOB1", "IO", "IOE1", "IOE2"):
        converted = [repair_tags(tags, scheme) for tags in converted]
    message = f"tags in {name} are read as {scheme}" if converted != tag_lists else ""
    if changed := next((tag for tag in distinct if spelling.canonical(tag) != tag), None):
        message = f"tags are read as {scheme}: {changed!r} as {spelling.canonical(changed)!r}"
    return TagReading(converted, scheme, message)


def _scheme_of_letters(tags: Iterable[str]) -> Scheme:
    """The scheme, BIO or BIOES, by the first letters of canonical tags."""
    return "BIO" if {tag[0] for tag in tags} <= {*"BIO"} else "BIOES"


def _map_tags(tag_lists: TagLists, convert: Callable[[str], str]) -> list[list[str]]:
    """Convert the tags of all words that are not ignored."""
    return [[tag if tag == IGNORED_TAG else convert(tag) for tag in tags] for tags in tag_lists]
