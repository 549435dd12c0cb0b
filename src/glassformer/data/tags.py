"""Token tags and the spans that they mark: BIO, BIOES (and BILOU), or plain tags.

    The   O                  spans_of -> [Span("location", 1, 3)]
    Hague B-location
    today O

A sequence, malformed or not, is read as in seqeval: a span begins at a B or an S, and at an I or an E that
does not continue a span of its kind; it ends where another span begins, after an E or an S, and before an
outside tag. In plain tags, equal neighbors form one span. A word with the tag -100 is ignored: spans are
those of the other words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from glassformer.config import listed, nearest
from glassformer.data.checks import is_missing, place
from glassformer.data.in_memory import read_rows
from glassformer.errors import (
    BadTagsError,
    BadValueError,
    DataError,
    MissingValueError,
    OneClassError,
    UnequalLengthsError,
)

OUTSIDE = "O"
NOT_TAGGED = "-100"  # tag of words that the loss and the metrics ignore, as in data for transformers
Scheme = Literal["BIO", "BIOES", "plain"]
ONE_KIND = "entity"  # kind of tags without a kind: a bare B or I
LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}  # BILOU uses L and U for E and S
MARKS = frozenset(",.;:!?…\"'“”„‟‚‘’«»‹›()[]{}¿¡、。，！？；：")  # punctuation that is a separate word
INITIALS = re.compile(r"(?:[^\W\d_]\.)+")  # J., U.S.
MAX_WHOLE = 1000  # maximum number of words that a tagger stores with their punctuation
_MARKED = re.compile(r"([BIESLU])-(.+)", re.DOTALL)


class Span(NamedTuple):
    """Words ``start`` to ``end`` (exclusive), with their kind."""

    kind: str
    start: int
    end: int


def scheme_of(sequences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme of these tags: plain, unless every tag is ``O``, a bare letter, or a letter with a kind.

    Raises:
        DataError: most tags mark where a span begins, and some do not; the message names the first of these.
    """
    letters = {tag: _split(tag)[0] for tag in _distinct(sequences) if tag != OUTSIDE}
    marked, others = {*letters.values()} - {""}, [tag for tag, letter in letters.items() if not letter]
    if not others:
        return "BIOES" if marked & {"E", "S"} else "BIO" if marked else "plain"
    if {"B", "I"} <= marked and len(others) <= 2:
        what = f"tag {others[0]!r} is neither {OUTSIDE} nor one with B- or I- before its kind"
        raise BadTagsError(what, where="tags", fix=f"Write {OUTSIDE}, or B-{others[0]} and I-{others[0]}")
    return "plain"


def _split(tag: str) -> tuple[str, str]:
    """The BIOES letter of a tag, empty if it has none, and its kind."""
    if match := _MARKED.fullmatch(tag):
        return LETTERS[match[1]], match[2]
    return (LETTERS[tag], ONE_KIND) if tag in LETTERS else ("", tag)


def spans_of(tags: Sequence[str], scheme: Scheme) -> list[Span]:
    """The spans marked by a sentence's tags ``[W]``, in order."""
    if NOT_TAGGED in tags:
        at = tagged_places(tags)
        inner = spans_of([tags[i] for i in at], scheme)
        return [Span(kind, at[start], at[end - 1] + 1) for kind, start, end in inner]
    spans: list[Span] = []
    kind, start, ended = "", 0, True  # kind and start of the open span; ended: no span is open
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
    """The positions of the words that are not ignored."""
    return [i for i, tag in enumerate(tags) if tag != NOT_TAGGED]


def counted(truth: Sequence[str], *others: Sequence[Any]) -> list[list[Any]]:
    """The true tags of a sentence, and other values per word, without the ignored words."""
    at = tagged_places(truth)
    return [[row[i] for i in at] for row in (truth, *others)]


def tags_of(spans: Iterable[Span], count: int, scheme: Scheme) -> list[str]:
    """The tags ``[count]`` that mark these spans."""
    tags = [OUTSIDE] * count
    for kind, start, end in spans:
        for i in range(start, end):
            letter = "B" if i == start else "I"
            if scheme == "BIOES" and i == end - 1:
                letter = "S" if i == start else "E"
            tags[i] = kind if scheme == "plain" else f"{letter}-{kind}"
    return tags


def repaired(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Well-formed tags for the same spans: an I that continues no span becomes a B, and so on."""
    if scheme == "plain":
        return list(tags)
    if NOT_TAGGED in tags:
        inner = iter(repaired(counted(tags)[0], scheme))
        return [tag if tag == NOT_TAGGED else next(inner) for tag in tags]
    return tags_of(spans_of(tags, scheme), len(tags), scheme)


def malformed(tags: Sequence[str], scheme: Scheme) -> list[int]:
    """The positions of the tags that ``repaired`` changes, except for the letters L and U."""
    if scheme == "plain":
        return []
    given = [tag if tag in (OUTSIDE, NOT_TAGGED) else "-".join(_split(tag)) for tag in tags]
    return [i for i, (a, b) in enumerate(zip(given, repaired(tags, scheme), strict=True)) if a != b]


def classes_of(sequences: Iterable[Sequence[str]], scheme: Scheme) -> list[str]:
    """The classes of a tagger: O first, then all tags of the scheme for every kind."""
    seen = {tag for tags in sequences for tag in tags} - {NOT_TAGGED}
    if scheme == "plain":
        return [*([OUTSIDE] if OUTSIDE in seen else []), *sorted(seen - {OUTSIDE})]
    kinds = sorted({_split(tag)[1] for tag in seen - {OUTSIDE}})
    return [OUTSIDE, *(f"{letter}-{kind}" for kind in kinds for letter in scheme if letter != OUTSIDE)]


def kind_of_tag(tag: str, scheme: Scheme) -> str:
    """The kind in a tag; empty if the tag is outside."""
    if tag in (OUTSIDE, NOT_TAGGED):
        return ""
    return tag if scheme == "plain" else _split(tag)[1]


# --- what users give ------------------------------------------------------------------------------


def whole_words_of(sentences: Iterable[Sequence[str]]) -> list[str] | None:
    """Training words that contain their punctuation (``Dr.``), if punctuation is otherwise a separate word;
    None: it mostly belongs to words."""
    counts = Counter(word for words in sentences for word in words)
    stems = {word: word.strip("".join(MARKS)) for word in counts}
    glued = {word: stem for word, stem in stems.items() if stem and stem != word}
    if sum(counts[word] for word in glued) > sum(counts[word] for word, stem in stems.items() if not stem):
        return None
    whole = [word for word, stem in glued.items() if counts[word] >= counts[stem]]
    return sorted(sorted(whole, key=lambda word: (-counts[word], word))[:MAX_WHOLE])


def places_of_words(text: str, whole: Collection[str] | None = None) -> list[tuple[int, int]]:
    """The positions of the words of a text, ``(start, end)`` each.

    Args:
        whole: words that contain their punctuation, like initials; for all other words each mark is a
            separate word. None: words are separated by white space only.
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
    """Whether the labels of texts are spans of characters: ``[0, 4, "PER"]``, or objects with a start, an end
    and a label. The first label decides."""
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
    """Words of a text and their BIO tags, from spans of characters (from 0, the end exclusive).

    Words are split at blanks, and punctuation at their borders is a separate word.

    Raises:
        DataError: not a text, an invalid span, a span that ends inside a word, or two that share a word.
    """
    if not isinstance(text, str) or not isinstance(spans, list):
        what = "expected a text and a list of character spans"
        raise BadTagsError(what, where=where, fix='Write "text" and "label": [[0, 4, "PER"]], or [] for none')
    places = places_of_words(text, ())
    tags = [OUTSIDE] * len(places)
    for given in spans:
        start, end, kind = _character_span(given) or (0, 0, "")
        if not (0 <= start < end <= len(text) and kind.strip()):
            fix = f"Write [start, end, kind] with 0 to {len(text)}, the text's characters"
            raise BadTagsError(f"{given!r} is not a span of the text", where=where, fix=fix)
        inside = [i for i, (a, b) in enumerate(places) if a < end and b > start]
        if not inside or places[inside[0]][0] < start or places[inside[-1]][1] > end:
            what = f"span {given!r} ({text[start:end]!r}) does not begin and end with a word"
            fix = "Give whole words; characters count from 0, the end exclusive"
            raise BadTagsError(what, where=where, fix=fix)
        if any(tags[i] != OUTSIDE for i in inside):
            what = f"span {given!r} ({text[start:end]!r}) overlaps another"
            raise BadTagsError(what, where=where, fix="Keep one of them: a word has one tag")
        for i in inside:
            tags[i] = f"{'B' if i == inside[0] else 'I'}-{kind.strip()}"
    return [text[a:b] for a, b in places], tags


def _one_word(word: str, whole: Collection[str]) -> bool:
    if word in whole or INITIALS.fullmatch(word) or all(letter in MARKS for letter in word):
        return True
    return word[0] not in MARKS and word[-1] not in MARKS


def is_sentence(row: Any) -> bool:
    """Whether a row is a sentence (or its tags) as a list, even of one word."""
    return isinstance(row, list | tuple | np.ndarray) and not hasattr(row, "_fields")


def check_words(
    X: Any,
    origin: str = "sentences",
    rows: Sequence[int] | None = None,
    whole: Collection[str] | None = None,
) -> list[list[str]]:
    """Sentences as lists of words; a sentence that is a text is split, see ``places_of_words``.

    Raises:
        DataError: no sentences, not a list of sentences, or an invalid word; the message names its position.
    """
    X = read_rows(X, origin, "sentences", whole=is_sentence)
    if not X:
        raise MissingValueError("there are no sentences", where=origin, fix="Give at least one")
    if whole is not None:
        X = [[x[a:b] for a, b in places_of_words(x, whole)] if isinstance(x, str) else x for x in X]
    return [_words(sentence, origin, i, rows) for i, sentence in enumerate(X)]


def _words(sentence: Any, origin: str, i: int, rows: Sequence[int] | None) -> list[str]:
    where = place(origin, i, rows)
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
    """One tag per word, as text.

    Raises:
        DataError: missing tags, a different number of tags and words, or an invalid tag; the message names
            its position.
    """
    if y is None or isinstance(y, str | bytes):
        raise MissingValueError(
            "the tags are missing", where=origin, fix="Give a list of tags for each sentence"
        )
    y = read_rows(y, origin, "tags", whole=is_sentence)
    if len(y) != len(words):
        what = f"{len(words)} sentences, and tags of {len(y)}"
        raise UnequalLengthsError(what, where=origin, fix="Give a list of tags for each sentence")
    return [_tags(tags, len(words[i]), place(origin, i, rows)) for i, tags in enumerate(y)]


def _tags(tags: Any, count: int, where: str) -> list[str]:
    if isinstance(tags, str):
        tags = tags.split()
    if not isinstance(tags, list | tuple | np.ndarray):
        raise MissingValueError("the tags are missing", where=where, fix="Give a tag for each word")
    if len(tags) != count:
        raise UnequalLengthsError(
            f"{count} words and {len(tags)} tags",
            where=where,
            fix="Give a tag for each word",
        )
    for j, tag in enumerate(tags):
        fits = isinstance(tag, str | int | np.integer) and not isinstance(tag, bool)
        if not fits or not str(tag).strip():
            what = f"tag {j + 1} is {'empty' if isinstance(tag, str) else repr(tag)}"
            raise BadTagsError(what, where=where, fix=f"Write {OUTSIDE} for a word of no kind")
    return [str(tag).strip() for tag in tags]


# --- schemes --------------------------------------------------------------------------------------
# Forms of tags in data, and their conversion to BIO, BIOES or plain tags.
# B-LOC I-LOC O                BIO (IOB2), read as they are
# I-LOC I-LOC B-LOC O          IOB1: B only where two spans of a kind touch; read as BIO
# B L U, B E S, B M E W        BIOES by other letters (BILOU, BMES, BMEWO, IOE)
# B_LOC  LOC-B  b-loc  0 ... 8 similar to one of these: an error, unless ``scheme`` names it
# -100                         the loss and the metrics ignore the word

Tags = Sequence[Sequence[str]]
EXACT = "exact"  # behavior of runs before this setting existed: only B-LOC is BIO, everything else is plain
KNOWN: dict[str, Scheme | None] = {
    "auto": None,
    EXACT: None,
    "plain": "plain",
    **dict.fromkeys(("BIO", "IOB2", "IOB1", "IO"), "BIO"),
    **dict.fromkeys(("BIOES", "IOBES", "BILOU", "BMES", "BMEWO", "IOE1", "IOE2"), "BIOES"),
}
# Equivalent letters: L and E end a span; U, S and W are a span of one word; M and I continue a span.
ALL_LETTERS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S"}
FAMILIES = tuple(map(set, ("BI", "BIES", "BILU", "BMES", "BMEW", "BIE", "IE")))
OUTSIDES = ("O", "o", "0")
NUMBER = re.compile(r"-?[0-9]+")
EXAMPLES = 4  # tags in a message


class TagReading(NamedTuple):
    """Tags in one of the three schemes, and a message if they were converted."""

    tags: list[list[str]]
    scheme: Scheme
    message: str = ""


class _Spelling(NamedTuple):
    """One way to write a letter and a kind: ``B-LOC``, ``LOC_B``, ``b/loc``."""

    pattern: re.Pattern[str]
    bare: str  # letters that may occur without a kind

    def read(self, tag: str) -> tuple[str, str] | None:
        """Letter and kind of a tag, ``("O", "")`` for an outside tag; None: another spelling."""
        if tag in OUTSIDES:
            return OUTSIDE, ""
        if tag and tag in self.bare:
            return tag.upper(), ONE_KIND
        match = self.pattern.fullmatch(tag)
        return (match["letter"].upper(), match["kind"]) if match else None

    def canonical(self, tag: str) -> str:
        """A tag in BIO or BIOES; O if it has another spelling."""
        letter, kind = self.read(tag) or (OUTSIDE, "")
        return OUTSIDE if letter == OUTSIDE else f"{ALL_LETTERS[letter]}-{kind}"


def _spellings() -> list[_Spelling]:
    out = []
    for mark in "-_/:.| ":
        for pattern in ("(?P<letter>[{0}]){1}(?P<kind>.+)", "(?P<kind>.+){1}(?P<letter>[{0}])"):
            for letters in ("".join(ALL_LETTERS), "".join(ALL_LETTERS).lower()):
                compiled = re.compile(pattern.format(letters, re.escape(mark)), re.DOTALL)
                out.append(_Spelling(compiled, letters if mark == "-" and pattern[-1] == ")" else ""))
    return out


SPELLINGS = _spellings()
USUAL = SPELLINGS[0]


def check_scheme(scheme: str | Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Parse the setting ``scheme``: one of ``KNOWN``, and the names of tags that are numbers."""
    if not isinstance(scheme, str):
        names = tuple(scheme)
    elif "," in scheme:
        names = tuple(name.strip() for name in scheme.split(","))
    else:
        known = {name.upper(): name for name in KNOWN}.get(scheme.upper())
        if known is None:
            fix = f"{nearest(scheme, list(KNOWN))}. Numbers are named in their order, such as O,B-PER,I-PER"
            raise BadValueError(f"{scheme!r} is not a scheme of tags", where="scheme", fix=fix)
        return known, ()
    if not names or not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
        what = f"{list(names)} does not name each number once"
        raise BadValueError(what, where="scheme", fix="Write O,B-PER,I-PER")
    return "auto", names


def read_tags(sequences: Tags, scheme: str | Sequence[str] = "auto", where: str = "tags") -> TagReading:
    """Convert the tags of sentences, ``[W]`` each, to BIO, BIOES or plain tags.

    Args:
        scheme: one of ``KNOWN``; or the names of numbers, in order from 0. auto: the tags must have the usual
            spelling of a scheme, or be unlike all schemes (plain).

    Raises:
        DataError: no word has a tag; with auto, tags are numbers or look like a scheme in another spelling; a
            tag that the scheme does not have.
        ConfigError: no such scheme.
    """
    requested, names = check_scheme(scheme)
    if names:
        sequences = _each(sequences, lambda tag: _named(tag, names, where))
    seen = _distinct(sequences)
    if not seen:
        raise OneClassError(f"every word has the tag {NOT_TAGGED}", where=where, fix="Give tags to learn")
    given = [list(tags) for tags in sequences]
    if requested == EXACT:
        return TagReading(given, scheme_of(given))
    if all(map(NUMBER.fullmatch, seen)):
        return _of_numbers(given, requested, where)
    if requested == "plain":
        return TagReading(given, "plain")
    if requested == "auto":
        return _recognized(given, seen, where)
    return _as_named(given, seen, requested, where)


def read_like(
    sequences: Tags, scheme: str | Sequence[str], known: Scheme, classes: Iterable[str], where: str = "tags"
) -> list[list[str]]:
    """Convert tags of other data to those of a model.

    Args:
        scheme: the setting of the model. known: the scheme of its tags. classes: its tags.
    """
    requested, names = check_scheme(scheme)
    given = [list(tags) for tags in sequences]
    seen = _distinct(given)
    if requested == EXACT or not seen or {*seen} <= {*classes, OUTSIDE}:
        return given
    if names or (requested != "auto" and all(map(NUMBER.fullmatch, seen))):
        return read_tags(given, scheme, where).tags
    if known != "plain":
        fix = f"Write tags as the model has them: {listed([*classes][:EXAMPLES])} ..."
        return _as_named(given, seen, "BIOES", where, fix).tags  # accepts all of the schemes
    if requested == "auto" and (found := read_tags(given, "auto", where)).scheme != "plain":
        what = f"the tags are {found.scheme} ({listed(seen[:EXAMPLES])}), and the model's are plain"
        raise BadTagsError(what, where=where, fix="Write the kinds without their letters")
    return given


def _distinct(sequences: Iterable[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(tag for tags in sequences for tag in tags if tag != NOT_TAGGED))


def read_names(names: Sequence[str]) -> TagReading:
    """The labels of an imported model, as one list, and their scheme; the user cannot state it."""
    found = {name: USUAL.read(name) for name in names}
    letters = {read[0] for read in found.values() if read} - {OUTSIDE}
    if all(found.values()) and letters <= {*"BIESLU"} and not {*OUTSIDES[1:]} & {*names}:
        return TagReading([[*names]], scheme_of([names]))
    spelling = _looks_like(names)
    if spelling is not None:
        read = list(map(spelling.canonical, names))
        scheme = _scheme_of_letters(read)
        if len({*read}) == len(names):
            old, new = next((a, b) for a, b in zip(names, read, strict=True) if a != b)
            return TagReading([read], scheme, f"labels are read as {scheme}: {old!r} as {new!r}")
    if all(re.fullmatch(r"LABEL_[0-9]+", name) for name in names):
        said = f"its labels have no names ({names[0]} ...), so each of them counts as a kind of span"
        return TagReading([[*names]], "plain", said)
    if letters & {"B", "I"}:
        odd = listed([name for name, read in found.items() if not read])
        said = f"each of {odd} counts as a kind of span"
        return TagReading([[*names]], _scheme_of_letters(letters), said)
    return TagReading([[*names]], "plain")


# --- numbers --------------------------------------------------------------------------------------


def _named(tag: str, names: Sequence[str], where: str) -> str:
    if not NUMBER.fullmatch(tag):
        return tag
    if not 0 <= int(tag) < len(names):
        fix = f"Name it: scheme has names of 0 to {len(names) - 1}"
        raise BadTagsError(f"tag {tag} has no name", where=where, fix=fix)
    return names[int(tag)]


def _of_numbers(given: list[list[str]], requested: str, where: str) -> TagReading:
    """Convert tags that are numbers without names: 0 is outside; in BIO 1 begins and 2 continues a span."""
    numbers = sorted({int(tag) for tag in _distinct(given)})
    if numbers[0] < 0:
        what, fix = f"tag {numbers[0]} is below 0", f"Write {NOT_TAGGED} for words to ignore"
        raise BadTagsError(what, where=where, fix=fix)
    if requested == "plain":
        return TagReading(_each(given, lambda tag: OUTSIDE if tag == "0" else tag), "plain")
    listing = f"{numbers[0]} to {numbers[-1]}"
    fix = (
        f"Set scheme to their {numbers[-1] + 1} names in order from 0, such as scheme=O,B-PER,I-PER; or to "
        "plain if each is a kind and 0 is O"
    )
    paired, counts = _pairs(given), Counter(tag for tags in given for tag in tags if tag != NOT_TAGGED)
    if KNOWN[requested] != "BIO":
        what = f"the tags are numbers without names ({listing})"
        if requested == "auto" and paired > 0 and counts.most_common(1)[0][0] == "0":
            what += "; they look like BIO: 0 is O, 1 and 2 begin and continue a kind, 3 and 4 the next"
            fix = f"Set scheme=BIO if so. {fix}"
        raise BadTagsError(what, where=where, fix=fix)
    if paired < 0:
        what = f"the tags are numbers ({listing}), and an even one does not follow the odd one before it"
        raise BadTagsError(what, where=where, fix=fix)
    new = {n: f"{'BI'[n % 2 == 0]}-{(n + 1) // 2}" if n else OUTSIDE for n in numbers}
    converted = _each(given, lambda tag: new[int(tag)])
    if requested != "BIO":
        converted = [repaired(tags, "BIO") for tags in converted]
    said = "tags that are numbers are read as BIO: 0 is O, 1 is B-1, 2 is I-1, 3 is B-2"
    return TagReading(converted, "BIO", said)


def _pairs(given: Tags) -> int:
    """How often an even number follows the odd one before it, as I follows B, minus how often it does not."""
    found = 0
    for tags in given:
        for before, tag in pairwise([0, *(int(tag) for tag in tags if tag != NOT_TAGGED)]):
            if tag and tag % 2 == 0 and tag != before:
                found += 1 if before == tag - 1 else -1
    return found


# --- letters and kinds ----------------------------------------------------------------------------


def _recognized(given: list[list[str]], seen: list[str], where: str) -> TagReading:
    """Tags whose scheme is clear from their spelling."""
    usual = {tag: None if tag in OUTSIDES[1:] else USUAL.read(tag) for tag in seen}
    letters = {read[0] for read in usual.values() if read} - {OUTSIDE}
    if all(usual.values()) and (letters <= {*"BIESLU"} or _is_family(letters)):
        return _by_letters(given, letters)
    if (spelling := _looks_like(seen)) is not None:
        read = {tag: spelling.canonical(tag) for tag in seen}
        scheme = _scheme_of_letters(read.values())
        odd = [tag for tag in seen if read[tag] != tag]
        what = f"the tags look like {scheme} in another spelling ({', '.join(map(repr, odd[:EXAMPLES]))})"
        fix = f"Set scheme={scheme} to read {odd[0]!r} as {read[odd[0]]!r}, or scheme=plain if each is a kind"
        raise BadTagsError(what, where=where, fix=fix)
    if letters & {"B", "I"}:
        other = next(tag for tag in seen if (read := usual[tag]) is None or read[0] in "MW")
        what = f"tag {other!r} is neither {OUTSIDE} nor one with B- or I- before its kind"
        fix = f"Write {OUTSIDE}, or B-{other} and I-{other}; or set scheme=plain if each tag is a kind"
        raise BadTagsError(what, where=where, fix=fix)
    return TagReading(given, "plain")


def _by_letters(given: list[list[str]], letters: set[str]) -> TagReading:
    """Convert tags in the usual spelling, by their letters."""
    if letters & {"M", "W"}:
        return TagReading(_each(given, USUAL.canonical), "BIOES", "tags in BMES are read as BIOES")
    scheme: Scheme = "BIOES" if letters & {*"ESLU"} else "BIO" if letters else "plain"
    name = "IOE" if letters == {"I", "E"} else ""
    if scheme == "BIO" and (letters == {"I"} or _is_iob1(given)):
        name = "IOB1" if "B" in letters else "IO"
    converted = [repaired(tags, scheme) for tags in given] if name else given
    return TagReading(converted, scheme, f"tags in {name} are read as {scheme}" if name else "")


def _is_iob1(given: Tags) -> bool:
    """Whether every span begins with an I, except for those that follow one of their kind."""
    for tags in given:
        read = [USUAL.read(tag) or (OUTSIDE, "") for tag in tags if tag != NOT_TAGGED]
        both = pairwise([(OUTSIDE, ""), *read])
        if any(letter == "B" and kind != before for (_, before), (letter, kind) in both):
            return False
    return True


def _is_family(letters: set[str]) -> bool:
    """Whether these are letters of one scheme, including one that begins or continues a span."""
    return any(letters <= family for family in FAMILIES) and bool(letters & {"B", "I"})


def _looks_like(seen: Sequence[str]) -> _Spelling | None:
    """The spelling in which all of these tags belong to one scheme; None: there is none."""
    for spelling in SPELLINGS:
        found = [spelling.read(tag) for tag in seen]
        letters = {read[0] for read in found if read} - {OUTSIDE}
        if all(found) and _is_family(letters) and (len(letters) > 1 or (OUTSIDE, "") in found):
            return spelling
    return None


def _as_named(given: list[list[str]], seen: list[str], name: str, where: str, fix: str = "") -> TagReading:
    """Convert tags by the scheme that the user names, in any spelling."""
    scheme: Scheme = KNOWN[name] or "BIO"
    allowed = {OUTSIDE, *("BI" if scheme == "BIO" else ALL_LETTERS)}

    def unlike(spelling: _Spelling) -> list[str]:
        return [tag for tag in seen if not (read := spelling.read(tag)) or read[0] not in allowed]

    spelling = min(SPELLINGS, key=lambda one: len(unlike(one)))
    if odd := unlike(spelling):
        other = next((tag for tag in odd if spelling.read(tag)), None)
        fix = fix or ("Set scheme=BIOES" if other else f"Write {OUTSIDE}, or B-{odd[0]}; or set scheme=plain")
        raise BadTagsError(f"tag {other or odd[0]!r} is not one of {name}", where=where, fix=fix)
    converted = _each(given, spelling.canonical)
    if name in ("IOB1", "IO", "IOE1", "IOE2"):
        converted = [repaired(tags, scheme) for tags in converted]
    said = f"tags in {name} are read as {scheme}" if converted != given else ""
    if changed := next((tag for tag in seen if spelling.canonical(tag) != tag), None):
        said = f"tags are read as {scheme}: {changed!r} as {spelling.canonical(changed)!r}"
    return TagReading(converted, scheme, said)


def _scheme_of_letters(tags: Iterable[str]) -> Scheme:
    """The scheme, BIO or BIOES, by the first letters of canonical tags."""
    return "BIO" if {tag[0] for tag in tags} <= {*"BIO"} else "BIOES"


def _each(given: Tags, new: Callable[[str], str]) -> list[list[str]]:
    """Convert the tags of all words that are not ignored."""
    return [[tag if tag == NOT_TAGGED else new(tag) for tag in tags] for tags in given]
