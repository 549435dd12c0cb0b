"""Tags of words and the spans that they mark: BIO, BIOES (and BILOU), or plain tags.

    The   O                  spans_of -> [Span("location", 1, 3)]
    Hague B-location
    today O

A sequence is read as seqeval reads it, malformed or not: a span begins at a B or an S, and at an I or an E
that goes on with nothing of its kind; it ends where another begins, behind an E or an S, and before what is
outside. In plain tags equal neighbors are one span. A word with the tag -100 counts for nothing: spans are
those of the other words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from glassformer.data.checks import is_missing, place
from glassformer.data.in_memory import read_rows
from glassformer.errors import DataError

OUTSIDE = "O"
NOT_TAGGED = "-100"  # of words that count in no loss and no metric, as in data made for transformers
Scheme = Literal["BIO", "BIOES", "plain"]
ONE_KIND = "entity"  # of tags that name none: a bare B, I
LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}  # BILOU says L and U for E and S
MARKS = frozenset(",.;:!?…\"'“”„‟‚‘’«»‹›()[]{}¿¡、。，！？；：")  # punctuation that stands by itself
INITIALS = re.compile(r"(?:[^\W\d_]\.)+")  # J., U.S.
MOST_WHOLE = 1000  # words that a tagger keeps with their punctuation
_MARKED = re.compile(r"([BIESLU])-(.+)", re.DOTALL)


class Span(NamedTuple):
    """Words ``start`` to ``end`` (exclusive) of a kind."""

    kind: str
    start: int
    end: int


def scheme_of(sequences: Iterable[Sequence[str]]) -> Scheme:
    """How these tags mark spans: plain, unless every tag is ``O``, a bare letter, or a letter with a kind.

    Raises:
        DataError: most tags say where a span begins, and some do not; the first of these is named.
    """
    marked: set[str] = set()
    others: list[str] = []
    for tag in dict.fromkeys(tag for tags in sequences for tag in tags if tag != NOT_TAGGED):
        letter = _split(tag)[0]
        if letter:
            marked.add(letter)
        elif tag != OUTSIDE:
            others.append(tag)
    if not others:
        bare_only = not marked
        return "plain" if bare_only else "BIOES" if marked & {"E", "S"} else "BIO"
    if {"B", "I"} <= marked and len(others) <= 2:
        what = f"tag {others[0]!r} is neither {OUTSIDE} nor one with B- or I- before its kind"
        raise DataError(what, where="tags", fix=f"Write {OUTSIDE}, or B-{others[0]} and I-{others[0]}")
    return "plain"


def _split(tag: str) -> tuple[str, str]:
    """The letter of a tag, in BIOES, and its kind; an empty letter where it has none."""
    if match := _MARKED.fullmatch(tag):
        return LETTERS[match[1]], match[2]
    return (LETTERS[tag], ONE_KIND) if tag in LETTERS else ("", tag)


def spans_of(tags: Sequence[str], scheme: Scheme) -> list[Span]:
    """The spans of a sentence's tags ``[W]``, in order."""
    if NOT_TAGGED in tags:
        at = tagged_places(tags)
        inner = spans_of([tags[i] for i in at], scheme)
        return [Span(kind, at[start], at[end - 1] + 1) for kind, start, end in inner]
    spans: list[Span] = []
    kind, start, ended = "", 0, True  # of the span that is open; ended: none is
    for i, tag in enumerate([*tags, OUTSIDE]):
        letter, own = ("I", tag) if scheme == "plain" else _split(tag)
        outside = tag == OUTSIDE
        if not ended and (outside or letter in ("B", "S") or own != kind):
            spans.append(Span(kind, start, i))
            ended = True
        if outside:
            continue
        if ended:
            kind, start, ended = own, i, False
        if letter in ("E", "S"):
            spans.append(Span(kind, start, i + 1))
            ended = True
    return spans


def tagged_places(tags: Sequence[str]) -> list[int]:
    """The places of the words that count."""
    return [i for i, tag in enumerate(tags) if tag != NOT_TAGGED]


def counted(truth: Sequence[str], *others: Sequence[Any]) -> list[list[Any]]:
    """The true tags of a sentence, and others for its words, without the words that do not count."""
    at = tagged_places(truth)
    return [[row[i] for i in at] for row in (truth, *others)]


def tags_of(spans: Iterable[Span], count: int, scheme: Scheme) -> list[str]:
    """The tags ``[count]`` that mark these spans."""
    tags = [OUTSIDE] * count
    for kind, start, end in spans:
        for i in range(start, end):
            tags[i] = kind if scheme == "plain" else f"{_letter(i, start, end, scheme)}-{kind}"
    return tags


def _letter(i: int, start: int, end: int, scheme: Scheme) -> str:
    if scheme == "BIOES" and i == end - 1:
        return "S" if i == start else "E"
    return "B" if i == start else "I"


def repaired(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The same spans, well-formed: an I that goes on with nothing becomes a B, and so on."""
    if scheme == "plain":
        return list(tags)
    if NOT_TAGGED in tags:
        inner = iter(repaired(counted(tags)[0], scheme))
        return [tag if tag == NOT_TAGGED else next(inner) for tag in tags]
    return tags_of(spans_of(tags, scheme), len(tags), scheme)


def malformed(tags: Sequence[str], scheme: Scheme) -> list[int]:
    """The places of the tags that ``repaired`` changes in more than the letters L and U."""
    if scheme == "plain":
        return []
    given = [tag if tag in (OUTSIDE, NOT_TAGGED) else "-".join(_split(tag)) for tag in tags]
    return [i for i, (a, b) in enumerate(zip(given, repaired(tags, scheme), strict=True)) if a != b]


def classes_of(sequences: Iterable[Sequence[str]], scheme: Scheme) -> list[str]:
    """The tags that a model tells apart: O first, then of every kind all that the scheme has."""
    seen = {tag for tags in sequences for tag in tags} - {NOT_TAGGED}
    if scheme == "plain":
        return [*([OUTSIDE] if OUTSIDE in seen else []), *sorted(seen - {OUTSIDE})]
    kinds = sorted({_split(tag)[1] for tag in seen - {OUTSIDE}})
    return [OUTSIDE, *(f"{letter}-{kind}" for kind in kinds for letter in scheme if letter != OUTSIDE)]


def kind_of_tag(tag: str, scheme: Scheme) -> str:
    """The kind that a tag says; empty outside."""
    if tag in (OUTSIDE, NOT_TAGGED):
        return ""
    return tag if scheme == "plain" else _split(tag)[1]


# --- what users give ------------------------------------------------------------------------------


def whole_words_of(sentences: Iterable[Sequence[str]]) -> list[str] | None:
    """What training words say of punctuation: those that keep it (``Dr.``), where it is a word of its own
    otherwise; None: it mostly sticks to words."""
    counts = Counter(word for words in sentences for word in words)
    stems = {word: word.strip("".join(MARKS)) for word in counts}
    glued = {word: stem for word, stem in stems.items() if stem and stem != word}
    if sum(counts[word] for word in glued) > sum(counts[word] for word, stem in stems.items() if not stem):
        return None
    whole = [word for word, stem in glued.items() if counts[word] >= counts[stem]]
    return sorted(sorted(whole, key=lambda word: (-counts[word], word))[:MOST_WHOLE])


def places_of_words(text: str, whole: Collection[str] | None = None) -> list[tuple[int, int]]:
    """Where the words of a text stand, ``(start, end)`` each.

    Args:
        whole: words that keep their punctuation, as initials do; each mark beside all others is a word. None:
            words go from one white space to the next.
    """
    places: list[tuple[int, int]] = []
    for match in re.finditer(r"\S+", text):
        (start, end), behind = match.span(), []
        while whole is not None and not _one_word(text[start:end], whole):
            if text[start] in MARKS:
                places.append((start, start + 1))
                start += 1
                continue
            last = end
            end -= len(text[start:end]) - len(text[start:end].rstrip(text[end - 1]))  # "..." is one word
            behind.append((end, last))
        places += [(start, end), *reversed(behind)]
    return places


def marks_characters(tags: Iterable[Any]) -> bool:
    """Whether the labels of texts are spans by character: ``[0, 4, "PER"]``, or objects with a start, an end
    and a label; the first that there is says so."""
    first = next((own[0] for own in tags if isinstance(own, list) and own), None)
    return _character_span(first) is not None


def _character_span(span: Any) -> tuple[int, int, str] | None:
    if isinstance(span, dict):
        begin, end = (span.get(key, span.get(f"{key}_offset")) for key in ("start", "end"))
        span = [begin, end, span.get("label")]
    if not isinstance(span, list) or [type(part) for part in span] != [int, int, str]:
        return None
    return span[0], span[1], span[2]


def tags_of_characters(text: Any, spans: Any, where: str) -> tuple[list[str], list[str]]:
    """Words of a text and their BIO tags, from spans by character (from 0, the end exclusive).

    Words are split at blanks, and punctuation at their borders is a word.

    Raises:
        DataError: no text, no such span, one that ends inside a word, or two that share a word.
    """
    if not isinstance(text, str) or not isinstance(spans, list):
        what = "a text and a list of spans by character belong here"
        raise DataError(what, where=where, fix='Write "text" and "label": [[0, 4, "PER"]], or [] for none')
    places = places_of_words(text, ())
    tags = [OUTSIDE] * len(places)
    for given in spans:
        start, end, kind = _character_span(given) or (0, 0, "")
        if not (0 <= start < end <= len(text) and kind.strip()):
            fix = f"Write [start, end, kind] with 0 to {len(text)}, the text's characters"
            raise DataError(f"{given!r} is not a span of the text", where=where, fix=fix)
        inside = [i for i, (a, b) in enumerate(places) if a < end and b > start]
        if not inside or places[inside[0]][0] < start or places[inside[-1]][1] > end:
            what = f"span {given!r} ({text[start:end]!r}) does not begin and end with a word"
            raise DataError(
                what, where=where, fix="Give whole words; characters count from 0, the end exclusive"
            )
        if any(tags[i] != OUTSIDE for i in inside):
            what = f"span {given!r} ({text[start:end]!r}) overlaps another"
            raise DataError(what, where=where, fix="Keep one of them: a word has one tag")
        for i in inside:
            tags[i] = f"{'B' if i == inside[0] else 'I'}-{kind.strip()}"
    return [text[a:b] for a, b in places], tags


def _one_word(word: str, whole: Collection[str]) -> bool:
    if word in whole or INITIALS.fullmatch(word) or all(letter in MARKS for letter in word):
        return True
    return word[0] not in MARKS and word[-1] not in MARKS


def is_sentence(row: Any) -> bool:
    """Whether a row is a sentence (or its tags) as a list, be it of one word."""
    return isinstance(row, list | tuple | np.ndarray) and not hasattr(row, "_fields")


def check_words(
    X: Any,
    origin: str = "sentences",
    rows: Sequence[int] | None = None,
    whole: Collection[str] | None = None,
) -> list[list[str]]:
    """Sentences as lists of words; one that is a text is split, see ``places_of_words``.

    Raises:
        DataError: nothing, no list of sentences, or a word that is none; sentence and word are named.
    """
    X = read_rows(X, origin, "sentences", whole=is_sentence)
    if not X:
        raise DataError("there are no sentences", where=origin, fix="Give at least one")
    if whole is not None:
        X = [[x[a:b] for a, b in places_of_words(x, whole)] if isinstance(x, str) else x for x in X]
    return [_words(sentence, origin, i, rows) for i, sentence in enumerate(X)]


def _words(sentence: Any, origin: str, i: int, rows: Sequence[int] | None) -> list[str]:
    where = place(origin, i, rows)
    if isinstance(sentence, str):
        sentence = sentence.split()
    elif not isinstance(sentence, list | tuple | np.ndarray):
        what = "is missing" if is_missing(sentence) else f"is a {type(sentence).__name__}, no list of words"
        raise DataError(f"the sentence {what}", where=where, fix='Write ["The", "Hague"]')
    if not len(sentence):
        raise DataError("the sentence has no words", where=where, fix="Remove it")
    for j, word in enumerate(sentence):
        if not isinstance(word, str) or not word.strip():
            shown = "empty" if isinstance(word, str) else f"{word!r}, no text"
            raise DataError(f"word {j + 1} is {shown}", where=where, fix="Write a text for each word")
        if any("\ud800" <= c <= "\udfff" for c in word):
            what = f"word {j + 1} holds half a character (a lone surrogate)"
            raise DataError(what, where=where, fix="Read the file as UTF-8")
    return list(map(str, sentence))


def check_tags(
    y: Any, words: Sequence[Sequence[str]], origin: str = "tags", rows: Sequence[int] | None = None
) -> list[list[str]]:
    """A tag for each word, as text.

    Raises:
        DataError: missing, another number than there are words, or something that is no tag; its place is
            named.
    """
    if y is None or isinstance(y, str | bytes):
        raise DataError("the tags are missing", where=origin, fix="Give a list of tags for each sentence")
    y = read_rows(y, origin, "tags", whole=is_sentence)
    if len(y) != len(words):
        what = f"{len(words)} sentences, and tags of {len(y)}"
        raise DataError(what, where=origin, fix="Give a list of tags for each sentence")
    return [_tags(tags, len(words[i]), place(origin, i, rows)) for i, tags in enumerate(y)]


def _tags(tags: Any, count: int, where: str) -> list[str]:
    if isinstance(tags, str):
        tags = tags.split()
    if not isinstance(tags, list | tuple | np.ndarray):
        raise DataError("the tags are missing", where=where, fix="Give a tag for each word")
    if len(tags) != count:
        raise DataError(f"{count} words and {len(tags)} tags", where=where, fix="Give a tag for each word")
    for j, tag in enumerate(tags):
        fits = isinstance(tag, str | int | np.integer) and not isinstance(tag, bool)
        if not fits or not str(tag).strip():
            shown = "empty" if isinstance(tag, str) else repr(tag)
            raise DataError(
                f"tag {j + 1} is {shown}", where=where, fix=f"Write {OUTSIDE} for a word of no kind"
            )
    return [str(tag).strip() for tag in tags]
