"""What tags look like, and the same tags as BIO, BIOES or plain ones.

B-LOC I-LOC O                BIO (IOB2), read as they are
I-LOC I-LOC B-LOC O          IOB1: B only where two spans of a kind touch; read as BIO
B L U, B E S, B M E W        BIOES by other letters (BILOU, BMES, BMEWO, IOE)
B_LOC  LOC-B  b-loc  0 ... 8 they look like one of these; nothing is guessed, ``scheme`` must say so
-100                         the word counts in no loss and no metric
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from glassformer.config import listed, nearest
from glassformer.data.tags import (
    NOT_TAGGED,
    ONE_KIND,
    OUTSIDE,
    Scheme,
    repaired,
    scheme_of,
)
from glassformer.errors import ConfigError, DataError

Tags = Sequence[Sequence[str]]
EXACT = "exact"  # what runs did before there was a setting: B-LOC spelled just so, everything else is plain
KNOWN: dict[str, Scheme | None] = {
    "auto": None,
    EXACT: None,
    "plain": "plain",
    **dict.fromkeys(("BIO", "IOB2", "IOB1", "IO"), "BIO"),
    **dict.fromkeys(("BIOES", "IOBES", "BILOU", "BMES", "BMEWO", "IOE1", "IOE2"), "BIOES"),
}
# By another letter the same: L and E end a span, U, S and W are one of a single word, M and I go on.
LETTERS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S"}
FAMILIES = tuple(map(set, ("BI", "BIES", "BILU", "BMES", "BMEW", "BIE", "IE")))
OUTSIDES = ("O", "o", "0")
NUMBER = re.compile(r"-?[0-9]+")
EXAMPLES = 4  # tags in a message


class TagReading(NamedTuple):
    """Tags in one of the three schemes, and in words what was read otherwise than it is spelled."""

    tags: list[list[str]]
    scheme: Scheme
    said: str = ""


class _Spelling(NamedTuple):
    """One way to write a letter and a kind: ``B-LOC``, ``LOC_B``, ``b/loc``."""

    pattern: re.Pattern[str]
    bare: str  # letters that may stand without a kind

    def read(self, tag: str) -> tuple[str, str] | None:
        """Letter and kind of a tag, ``("O", "")`` of an outside one; None: another spelling."""
        if tag in OUTSIDES:
            return OUTSIDE, ""
        if tag and tag in self.bare:
            return tag.upper(), ONE_KIND
        match = self.pattern.fullmatch(tag)
        return (match["letter"].upper(), match["kind"]) if match else None


def _spellings() -> list[_Spelling]:
    out = []
    for mark in "-_/:.| ":
        for pattern in ("(?P<letter>[{0}]){1}(?P<kind>.+)", "(?P<kind>.+){1}(?P<letter>[{0}])"):
            for letters in ("".join(LETTERS), "".join(LETTERS).lower()):
                made = re.compile(pattern.format(letters, re.escape(mark)), re.DOTALL)
                out.append(_Spelling(made, letters if mark == "-" and pattern[-1] == ")" else ""))
    return out


SPELLINGS = _spellings()
USUAL = SPELLINGS[0]


def check_scheme(scheme: str | Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The setting ``scheme``: one of ``KNOWN``, and the names of tags that are numbers.

    Raises:
        ConfigError: neither a scheme nor a list of names.
    """
    if not isinstance(scheme, str):
        names = tuple(scheme)
    elif "," in scheme:
        names = tuple(name.strip() for name in scheme.split(","))
    else:
        known = {name.upper(): name for name in KNOWN}.get(scheme.upper())
        if known is None:
            fix = f"{nearest(scheme, list(KNOWN))}. Numbers are named in their order, such as O,B-PER,I-PER"
            raise ConfigError(f"{scheme!r} is not a scheme of tags", where="scheme", fix=fix)
        return known, ()
    if not names or not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
        raise ConfigError(
            f"{list(names)} does not name each number once", where="scheme", fix="Write O,B-PER,I-PER"
        )
    return "auto", names


def read_tags(sequences: Tags, scheme: str | Sequence[str] = "auto", where: str = "tags") -> TagReading:
    """Tags as they are given, ``[W]`` of each sentence, in BIO, BIOES or plain ones.

    Args:
        scheme: one of ``KNOWN``; or the names of numbers, in their order from 0. auto: they must be spelled
            as the scheme has them, or be unlike all schemes (plain).

    Raises:
        DataError: no word has a tag; tags that look like a scheme and are spelled otherwise, or are numbers,
            while ``scheme`` says nothing; a tag that the scheme does not have.
        ConfigError: no such scheme.
    """
    asked, names = check_scheme(scheme)
    if names:
        sequences = [[_named(tag, names, where) for tag in tags] for tags in sequences]
    seen = _distinct(sequences)
    if not seen:
        raise DataError(f"every word has the tag {NOT_TAGGED}", where=where, fix="Give tags to learn")
    given = [list(tags) for tags in sequences]
    if asked == EXACT:
        return TagReading(given, scheme_of(given))
    if all(map(NUMBER.fullmatch, seen)):
        return _of_numbers(given, asked, where)
    if asked == "plain":
        return TagReading(given, "plain")
    if asked == "auto":
        return _recognized(given, seen, where)
    return _as_named(given, seen, asked, where)


def read_like(
    sequences: Tags, scheme: str | Sequence[str], known: Scheme, classes: Iterable[str], where: str = "tags"
) -> list[list[str]]:
    """Tags of other data as a model has them.

    Args:
        scheme: the setting of the model. known: what its tags are. classes: its tags.

    Raises:
        DataError: tags that cannot be those of such a model.
    """
    asked, names = check_scheme(scheme)
    given = [list(tags) for tags in sequences]
    seen = _distinct(given)
    if asked == EXACT or not seen or {*seen} <= {*classes, OUTSIDE}:
        return given
    if names or (asked != "auto" and all(map(NUMBER.fullmatch, seen))):
        return read_tags(given, scheme, where).tags
    if known != "plain":
        fix = f"Write tags as the model has them: {listed([*classes][:EXAMPLES])} ..."
        return _as_named(given, seen, "BIOES", where, fix).tags  # whichever of the schemes they are in
    if asked == "auto" and (found := read_tags(given, "auto", where)).scheme != "plain":
        what = f"the tags are {found.scheme} ({listed(seen[:EXAMPLES])}), and the model's are plain"
        raise DataError(what, where=where, fix="Write the kinds without their letters")
    return given


def _distinct(sequences: Tags) -> list[str]:
    return list(dict.fromkeys(tag for tags in sequences for tag in tags if tag != NOT_TAGGED))


def read_names(names: Sequence[str]) -> TagReading:
    """The labels of a foreign model, as one list, and what its tags are; nothing about them can be asked."""
    found = {name: USUAL.read(name) for name in names}
    letters = {read[0] for read in found.values() if read} - {OUTSIDE}
    if all(found.values()) and letters <= {*"BIESLU"} and not {*OUTSIDES[1:]} & {*names}:
        return TagReading([[*names]], scheme_of([names]))
    spelling = _looks_like(names)
    if spelling is not None:
        read = [_canonical(spelling.read(name)) for name in names]
        scheme = _scheme_of_letters(read)
        if len({*read}) == len(names):
            changed = next(i for i, name in enumerate(names) if read[i] != name)
            return TagReading(
                [read], scheme, f"labels are read as {scheme}: {names[changed]!r} as {read[changed]!r}"
            )
    if all(re.fullmatch(r"LABEL_[0-9]+", name) for name in names):
        said = f"its labels have no names ({names[0]} ...), so each of them counts as a kind of span"
        return TagReading([[*names]], "plain", said)
    if letters & {"B", "I"}:
        odd = [name for name, read in found.items() if not read]
        scheme = _scheme_of_letters(letters)
        return TagReading([[*names]], scheme, f"each of {listed(odd)} counts as a kind of span")
    return TagReading([[*names]], "plain")


# --- numbers --------------------------------------------------------------------------------------


def _named(tag: str, names: Sequence[str], where: str) -> str:
    if tag == NOT_TAGGED or not NUMBER.fullmatch(tag):
        return tag
    if not 0 <= int(tag) < len(names):
        fix = f"Name it: scheme has names of 0 to {len(names) - 1}"
        raise DataError(f"tag {tag} has no name", where=where, fix=fix)
    return names[int(tag)]


def _of_numbers(given: list[list[str]], asked: str, where: str) -> TagReading:
    """Tags that are numbers without names: 0 is outside; in BIO 1 begins and 2 continues the first kind."""
    numbers = sorted({int(tag) for tag in _distinct(given)})
    if numbers[0] < 0:
        what, fix = f"tag {numbers[0]} is below 0", f"Write {NOT_TAGGED} for words that do not count"
        raise DataError(what, where=where, fix=fix)
    if asked == "plain":
        return TagReading([[OUTSIDE if tag == "0" else tag for tag in tags] for tags in given], "plain")
    listing = f"{numbers[0]} to {numbers[-1]}"
    fix = (
        f"Set scheme to their {numbers[-1] + 1} names in order from 0, such as scheme=O,B-PER,I-PER; or to "
        "plain if each is a kind and 0 is O"
    )
    paired, counts = _pairs(given), Counter(tag for tags in given for tag in tags if tag != NOT_TAGGED)
    if asked == "auto":
        what = f"the tags are numbers without names ({listing})"
        if paired <= 0 or counts.most_common(1)[0][0] != "0":
            raise DataError(what, where=where, fix=fix)
        look = "they look like BIO: 0 is O, 1 and 2 begin and continue a kind, 3 and 4 the next"
        raise DataError(f"{what}; {look}", where=where, fix=f"Set scheme=BIO if so. {fix}")
    if KNOWN[asked] != "BIO":
        raise DataError(f"the tags are numbers without names ({listing})", where=where, fix=fix)
    if paired < 0:
        what = f"the tags are numbers ({listing}), and an even one does not follow the odd one before it"
        raise DataError(what, where=where, fix=fix)
    made = [[tag if tag == NOT_TAGGED else _paired(int(tag)) for tag in tags] for tags in given]
    if asked != "BIO":
        made = [repaired(tags, "BIO") for tags in made]
    return TagReading(
        made, "BIO", "tags that are numbers are read as BIO: 0 is O, 1 is B-1, 2 is I-1, 3 is B-2"
    )


def _pairs(given: Tags) -> int:
    """How often an even number follows the odd one before it, as I follows B, minus how often it does not."""
    good = bad = 0
    for tags in given:
        before = 0
        for tag in map(int, (tag for tag in tags if tag != NOT_TAGGED)):
            if tag and tag % 2 == 0 and tag != before:
                good, bad = good + (before == tag - 1), bad + (before != tag - 1)
            before = tag
    return good - bad


def _paired(number: int) -> str:
    return f"{'I' if number % 2 == 0 else 'B'}-{(number + 1) // 2}" if number else OUTSIDE


# --- letters and kinds ----------------------------------------------------------------------------


def _recognized(given: list[list[str]], seen: list[str], where: str) -> TagReading:
    """Tags that speak for themselves, as they are.

    Raises:
        DataError: they look like a scheme, but not all of them, or in another spelling.
    """
    usual = {tag: None if tag in OUTSIDES[1:] else USUAL.read(tag) for tag in seen}
    letters = {read[0] for read in usual.values() if read} - {OUTSIDE}
    if all(usual.values()) and (letters <= {*"BIESLU"} or _is_family(letters)):
        return _by_letters(given, letters)
    if (spelling := _looks_like(seen)) is not None:
        read = {tag: _canonical(spelling.read(tag)) for tag in seen}
        scheme = _scheme_of_letters(read.values())
        odd = [tag for tag in seen if read[tag] != tag]
        what = f"the tags look like {scheme}, spelled otherwise ({', '.join(map(repr, odd[:EXAMPLES]))})"
        fix = f"Set scheme={scheme} to read {odd[0]!r} as {read[odd[0]]!r}, or scheme=plain if each is a kind"
        raise DataError(what, where=where, fix=fix)
    if letters & {"B", "I"}:
        other = next(tag for tag in seen if (read := usual[tag]) is None or read[0] in "MW")
        what = f"tag {other!r} is neither {OUTSIDE} nor one with B- or I- before its kind"
        fix = f"Write {OUTSIDE}, or B-{other} and I-{other}; or set scheme=plain if each tag is a kind"
        raise DataError(what, where=where, fix=fix)
    return TagReading(given, "plain")


def _by_letters(given: list[list[str]], letters: set[str]) -> TagReading:
    """Tags in the usual spelling: what their letters say."""
    if not letters:
        return TagReading(given, "plain")
    if letters & {"M", "W"}:
        return TagReading(_translated(given, USUAL), "BIOES", "tags in BMES are read as BIOES")
    if letters == {"I", "E"}:
        return TagReading(
            [repaired(tags, "BIOES") for tags in given], "BIOES", "tags in IOE are read as BIOES"
        )
    if letters & {*"ESLU"}:
        return TagReading(given, "BIOES")
    if letters == {"I"} or _is_iob1(given):
        name = "IOB1" if "B" in letters else "IO"
        return TagReading([repaired(tags, "BIO") for tags in given], "BIO", f"tags in {name} are read as BIO")
    return TagReading(given, "BIO")


def _is_iob1(given: Tags) -> bool:
    """Whether every span begins with an I, but for those that follow one of their kind."""
    for tags in given:
        before = ""  # the kind of the word before
        for tag in (tag for tag in tags if tag != NOT_TAGGED):
            letter, kind = USUAL.read(tag) or (OUTSIDE, "")
            if letter == "B" and kind != before:
                return False
            before = kind
    return True


def _is_family(letters: set[str]) -> bool:
    """Whether these are letters of one scheme, among them one that begins or continues a span."""
    return any(letters <= family for family in FAMILIES) and bool(letters & {"B", "I"})


def _looks_like(seen: Sequence[str]) -> _Spelling | None:
    """The spelling in which all of these tags are some scheme's; None: there is none."""
    for spelling in SPELLINGS:
        found = [spelling.read(tag) for tag in seen]
        letters = {read[0] for read in found if read} - {OUTSIDE}
        if all(found) and _is_family(letters) and (len(letters) > 1 or (OUTSIDE, "") in found):
            return spelling
    return None


def _as_named(given: list[list[str]], seen: list[str], asked: str, where: str, fix: str = "") -> TagReading:
    """Tags by the scheme that is named, however they are spelled.

    Raises:
        DataError: a tag that it does not have; it is named.
    """
    scheme: Scheme = KNOWN[asked] or "BIO"
    allowed = {OUTSIDE, *("BI" if scheme == "BIO" else LETTERS)}
    reads: Callable[[_Spelling], list[str]] = lambda spelling: [  # noqa: E731
        tag for tag in seen if (read := spelling.read(tag)) and read[0] in allowed
    ]
    spelling = max(SPELLINGS, key=lambda one: len(reads(one)))
    if odd := [tag for tag in seen if tag not in reads(spelling)]:
        other = next((tag for tag in odd if spelling.read(tag)), None)
        fix = fix or ("Set scheme=BIOES" if other else f"Write {OUTSIDE}, or B-{odd[0]}; or set scheme=plain")
        raise DataError(f"tag {other or odd[0]!r} is not one of {asked}", where=where, fix=fix)
    made = _translated(given, spelling)
    if asked in ("IOB1", "IO", "IOE1", "IOE2"):
        made = [repaired(tags, scheme) for tags in made]
    changed = next((tag for tag in seen if _canonical(spelling.read(tag)) != tag), None)
    if changed is None:
        return TagReading(made, scheme, f"tags in {asked} are read as {scheme}" if made != given else "")
    shown = _canonical(spelling.read(changed))
    return TagReading(made, scheme, f"tags are read as {scheme}: {changed!r} as {shown!r}")


def _scheme_of_letters(tags: Iterable[str]) -> Scheme:
    """BIO or BIOES, by the first letters of canonical tags."""
    return "BIO" if {tag[0] for tag in tags} <= {*"BIO"} else "BIOES"


def _translated(given: Tags, spelling: _Spelling) -> list[list[str]]:
    return [[tag if tag == NOT_TAGGED else _canonical(spelling.read(tag)) for tag in tags] for tags in given]


def _canonical(read: tuple[str, str] | None) -> str:
    letter, kind = read or (OUTSIDE, "")
    return OUTSIDE if letter == OUTSIDE else f"{LETTERS[letter]}-{kind}"
