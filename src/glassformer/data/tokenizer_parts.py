"""What a ``tokenizer.json`` may hold: every stage of a known kind, every number and pattern within bounds.

Checked before the library that runs tokenizers sees the file: where it trusts a number it stops with a panic,
which is no exception, or goes on without end.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np
from tokenizers import normalizers

from glassformer.errors import CheckpointError

# --- SentencePiece's table of characters ----------------------------------------------------------
# (``Precompiled``), walked through before compiled code trusts it.
# The bytes are a count, a trie as a double array of 32-bit units, and the strings that it points into. Who
# looks a character up follows offsets that the file gives; here every one that can be reached is followed
# once.

MAX_BYTES = 8 << 20  # the largest in use has 300 kB
MAX_DEPTH = 64  # bytes of the longest sequence of characters with an entry
EVERY_LETTER = 0x3400  # up to there stand the letters of which Unicode's own compositions are made
LONGEST = 64  # characters that one character becomes; 18 in Unicode's own tables


def check_charsmap(encoded: object) -> tuple[str | None, float]:
    """Why a base64 table cannot be used (None: it can), and how much longer than Unicode it makes a text."""
    wrong, strings = _checked_charsmap(encoded)
    if wrong is not None:
        return wrong, 1.0
    table = normalizers.Precompiled(base64.b64decode(str(encoded)))
    letters = set(map(chr, range(0x20, EVERY_LETTER))).union(*strings)
    return None, max(len(table.normalize_str(c)) / len(unicodedata.normalize("NFKD", c)) for c in letters)


def _checked_charsmap(encoded: object) -> tuple[str | None, list[str]]:
    """Why a table in base64 cannot be used (None where it can), and the strings that it puts in."""
    if not isinstance(encoded, str) or len(encoded) > 4 * MAX_BYTES // 3 + 4:
        return "its table is not a text, or too long", []
    try:
        raw = base64.b64decode(encoded, validate=True)
    except ValueError:
        return "its table is not base64", []
    size = struct.unpack("<I", raw[:4])[0] if len(raw) >= 4 else 0
    if not 1024 <= size <= len(raw) - 4 or size % 4:
        return "its table is cut", []
    units = np.frombuffer(raw, "<u4", size // 4, 4)
    strings = raw[4 + size :]
    try:
        strings.decode("utf-8")
    except UnicodeDecodeError:
        return "its strings are not UTF-8", []
    values = _values(units)
    if values is None:
        return "its table leads out of itself", []
    found = []
    for value in values.tolist():
        if value >= len(strings) or strings[value] & 0xC0 == 0x80:
            return "its table leads out of its strings", []
        end = strings.find(b"\0", value)
        found.append(strings[value : end if end >= 0 else len(strings)].decode("utf-8"))
        if (size := len(found[-1])) > LONGEST:
            return f"it puts {size:,} characters in the place of one, {LONGEST} at most are read", []
    return None, found


def _values(units: np.ndarray) -> np.ndarray | None:
    """Where the trie's leaves point, or None where a step leads out of the array or the trie has no end."""
    letters = np.arange(1, 256, dtype=np.int64)
    place = np.zeros(1, np.int64) ^ _offset(units[:1])
    seen = np.zeros(len(units), bool)
    leaves: list[np.ndarray] = []
    for _ in range(MAX_DEPTH):
        if not len(place):
            return np.unique(np.concatenate(leaves)) if leaves else np.zeros(0, np.int64)
        if (place | 255).max() >= len(units):
            return None
        place = np.unique(place)
        place = place[~seen[place]]  # branches may share what follows
        seen[place] = True
        into: list[np.ndarray] = []
        for part in np.array_split(place, len(place) // 4096 + 1) if len(place) else ():
            targets = (part[:, None] ^ letters).ravel()
            found = units[targets]
            match = (found & np.uint32(0x800000FF)).astype(np.int64) == np.tile(letters, len(part))
            targets, found = targets[match], found[match].astype(np.int64)
            behind = targets ^ _offset(found)
            leaf = (found >> 8) & 1 == 1
            if len(behind) and behind.max() >= len(units):
                return None
            leaves.append((units[behind[leaf]] & np.uint32(0x7FFFFFFF)).astype(np.int64))
            into.append(behind)
        place = np.concatenate(into) if into else place
    return None


def _offset(units: np.ndarray) -> np.ndarray:
    units = units.astype(np.int64)
    return (units >> 10) << ((units & (1 << 9)) >> 6)


# --- regular expressions of tokenizer files -------------------------------------------------------
# Which of them can be trusted to end.
# A pattern of a stranger can take longer than the world is old on twenty letters, and a thread that is in
# it cannot be stopped. So a pattern is taken as it is if it is one that published tokenizers carry, or of a
# form that cannot go back over what it has read. Any other is first tried in its own process, under a time
# limit.

MAX_PATTERN = 2000  # characters
MAX_REPEATS = 10_000  # of all {m,n} multiplied: what compiling a pattern costs
MAX_COUNT = 100  # of one {m,n} in a pattern that is not tried
MAX_OPTIONAL = 3  # parts that may be there or not, in one alternative of such a pattern
LONG, SHORT, MOST_PAIRS = 20_000, 1_000, 80  # characters of the texts that a pattern is tried on
CPU_SECONDS, WALL_SECONDS = 4, 30

# Steps of SentencePiece's files: between two marks of Arabic or Hebrew; before a mark, or what joins, behind
# what a table of characters may change; blanks at the end.
_MARK = "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u0655\u0670]"
MARKS_APART = f"(?<={_MARK})(?={_MARK})"
CHANGED_APART = r"(?<=[\p{Lu}\p{Lt}\p{N}\p{S}\p{Z}\p{P}\u3131-\u3247\uf900-\uffef])(?=[\p{M}\u200d])"
TRAILING = "(?<!\u2581)\u2581+\\z"
_WORDS = "'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"\s+(?!\S)|\s+"
# Each goes over a text once.
KNOWN = frozenset(
    {
        rf"{_WORDS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}",  # GPT-2, RoBERTa, ModernBERT
        rf"{_ANY_CASE}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{_SPACES}",  # Llama 3
        rf"{_ANY_CASE}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{_SPACES}",  # Qwen 2
        rf"{_WORDS}|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+",  # CLIP
        r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
        " ?[^(\\s|[.,!?…。，、।۔،])]+",  # BLOOM
        r"\w+(?:['’]\w+)*|[^\w\s]",  # whole words and pieces of words, as trained here
        r"\w+|[^\w\s]",
        r"\S+\n?",  # PhoBERT
        MARKS_APART,
        CHANGED_APART,
        r"\A ",
        TRAILING,
    }
)


def check_pattern(pattern: str) -> str | None:
    """Why a regular expression is not taken; None where it is.

    What is neither known nor simple is tried in another process, which takes a second.
    """
    if not 0 < len(pattern) <= MAX_PATTERN:
        return f"a pattern of {len(pattern):,} characters, from 1 to {MAX_PATTERN:,} are read"
    if pattern in KNOWN or simple_minimum(pattern) is not None:
        return None
    if re.search(r"\\[1-9]|\\[kg]|\(\?[{&PR0-9~@]|\(\*", pattern):
        return "a pattern that calls or repeats a part of itself"
    repeats = 1
    for low, high in re.findall(r"\{(\d*),?(\d*)\}", pattern):
        repeats *= max(int(low or 1), int(high or 1), 1)
        if repeats > MAX_REPEATS:
            return f"a pattern that repeats its parts more than {MAX_REPEATS:,} times"
    return _tried(pattern)


# --- patterns that need no trial --------------------------------------------------------------------

_CLASS = r"\[\^?(?:\\.|[^\]\[\\&])+\]"
_PART = re.compile(
    rf"(?P<part>{_CLASS}|\\[pP]\{{\^?\w+\}}|\\[sSdDwWhHnrtfv]|\\[^\w\s]|[^\\()\[\]{{}}*+?|^$])"
    r"(?P<often>\{(?P<low>\d{1,4})(?P<comma>,(?P<high>\d{0,4}))?\}|[+*?])?(?![+*?])"
)


@lru_cache(maxsize=256)
def simple_minimum(pattern: str) -> int | None:
    """The fewest characters that a pattern matches, if it cannot be slow: alternatives of characters, classes
    and few optional ones, of which only the last may stand any number of times. None for others.
    """
    minima, place, least, optional, endless = [], 0, 0, 0, False
    while place < len(pattern):
        if pattern[place] == "|":
            minima.append(least)
            place, least, optional, endless = place + 1, 0, 0, False
            continue
        match = _PART.match(pattern, place)
        if match is None or endless or match["part"] == ".":
            return None
        often = match["often"]
        low, high = 1, 1
        if often in ("+", "*"):
            low, endless = int(often == "+"), True
        elif often == "?":
            low = 0
        elif often:
            low = int(match["low"])
            high = low if match["comma"] is None else int(match["high"] or -1)
            endless = high < 0
            if max(low, high) > MAX_COUNT or 0 <= high < low:
                return None
        optional += low != high and not endless
        if optional > MAX_OPTIONAL:
            return None
        least, place = least + low, match.end()
    return min([*minima, least])


# --- a trial ----------------------------------------------------------------------------------------

# It limits itself first. A text four times as long may take five times as long, not sixteen times.
_TRIAL = f"""
import json, sys, time
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS + 1}))
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError, OSError):
    pass
given = json.load(sys.stdin)
sys.path[:] = given["path"]
from tokenizers import Regex, pre_tokenizers
split = pre_tokenizers.Split(Regex(given["pattern"]), "isolated")
def seconds(text):
    started = time.process_time()
    split.pre_tokenize_str(text)
    return time.process_time() - started
for text in given["short"]:
    if seconds(text) > 1:
        sys.exit(3)
for text in given["long"]:
    quarter = seconds(text[3 * len(text) // 4:])
    whole = seconds(text)
    if whole > 0.1 and whole > 9 * quarter:
        sys.exit(3)
"""


@lru_cache(maxsize=64)
def _tried(pattern: str) -> str | None:
    short, long = _texts(pattern)
    given = {"path": sys.path, "pattern": pattern, "short": short, "long": long}
    command = [sys.executable, "-I", "-c", _TRIAL]
    try:
        done = subprocess.run(
            command, input=json.dumps(given).encode(), capture_output=True, timeout=WALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "a pattern that does not come to an end"
    except OSError as error:
        return f"a pattern that could not be tried ({error.strerror})"
    if done.returncode == 0:
        return None
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [""])[-1][:200]
    if done.returncode != 1 or "limit" in last:
        return "a pattern that takes too long"
    return f"a pattern that is wrong ({last.rpartition('Exception: ')[2]})"


def _texts(pattern: str) -> tuple[list[str], list[str]]:
    """Texts of the pattern's own characters, again and again, with an end that does not belong to them."""
    own = [c for c in dict.fromkeys(re.sub(r"\\[pPuxsSdDwWbB]", "", pattern)) if c not in "\\()[]{}*+?|^$"]
    letters = list(dict.fromkeys([*own[:20], "a", "A", "1", " ", "\n", "-", "é", "中"]))
    words = re.findall(r"\w{2,20}", pattern)[:20]
    # What has to come later stands behind: an engine that misses it would not begin.
    ends = ("\u2603" + "".join([*letters, *words]), "!", "")
    long = [c * LONG + end for c in letters for end in ends[:2]]
    long += [(w * LONG)[:LONG] + ends[0] for w in words]
    pairs = ["".join(pair) for pair in permutations(letters[:12], 2)][:MOST_PAIRS]
    short = [(p * SHORT)[:SHORT] + end for p in [*letters, *words, *pairs] for end in ends]
    return short, long


# --- how much longer a tokenizer's steps can make a text ------------------------------------------
# Counted from its file before any text is read.
# A character has a weight: how many characters stand in its place at the end. The last step's weights are
# all 1, and from there the steps are gone through backwards. What Unicode itself lengthens once (18
# characters for one, at most) is left out; where a file puts such characters in, they count.

MOST = 64  # characters for one
MOST_CUT = 32  # the same for what cuts a text into words
UNICODE = ("NFC", "NFD", "NFKC", "NFKD")
FACTORS = {"ByteLevel": 5, "Metaspace": 2, "BertNormalizer": 3}  # bytes and a blank; a mark; blanks around


def growth(steps: Sequence[dict[str, Any]], stretch: float = 1.0) -> float:
    """The largest weight that a character can have before these steps, all of them of known kinds.

    Args:
        stretch: how much longer than Unicode's own tables ``Precompiled`` makes a text.
    """
    factors = FACTORS | {"Precompiled": max(stretch, 1.0)}
    other, weights = 1.0, dict[str, float]()  # of every other character, and of those that a pattern names
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        kind = step["type"]
        if kind == "Replace":
            content = _longest(step["content"], steps[number + 1 :])
            put_in = sum(weights.get(c, other) for c in content)
            other, weights = _replaced(step["pattern"], put_in, other, weights)
        elif kind not in ("Prepend", "Strip", "StripAccents", "Fuse"):  # any character of any other
            other, weights = max([other, *weights.values()]) * factors.get(kind, 1), {}
    return max([other, *weights.values()])


def _replaced(
    pattern: dict[str, str], put_in: float, other: float, weights: dict[str, float]
) -> tuple[float, dict[str, float]]:
    if (word := pattern.get("String")) is not None:
        alone = len(word) == 1
        share = {c: put_in if alone else max(weights.get(c, other), put_in / len(word)) for c in word}
        return other, weights | share
    least = simple_minimum(pattern["Regex"]) or 0
    if least == 0:  # it may match the nothing before each character
        return other + put_in, {c: weight + put_in for c, weight in weights.items()}
    return max(other, put_in / least), {c: max(weight, put_in) for c, weight in weights.items()}


def _longest(content: str, later: Sequence[dict[str, Any]]) -> str:
    """A text that is put in, as long as the later steps of Unicode can make it."""
    for step in later:
        if step["type"] in UNICODE:
            content = unicodedata.normalize(step["type"], content)
        elif step["type"] in ("Precompiled", "BertNormalizer"):
            content = max(content, unicodedata.normalize("NFKD", content), key=len)
        elif step["type"] == "Lowercase":
            content = content.lower()
    return content


# --- the stages -----------------------------------------------------------------------------------
# The library refuses values of other types and tokens that are not there. What it trusts is bounded here.

MAX_ID = 10_000_000  # tokens of the largest table that a model may have
MAX_STAGES = 64  # steps of one kind, those within others counted
MAX_TEXT = 1_000  # characters of one string in a setting, or of an added token
MAX_ADDED = 100_000  # added tokens
MAX_WORD = 1_000  # characters of a word that WordPiece takes apart: its work grows with their square
MAX_PIECE = 512  # characters of a piece of Unigram, which looks for all that begin at a place
MAX_MARK = 64  # characters that are put before a text, or at the pieces of a word

NORMALIZERS = (
    "BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace Strip StripAccents"
).split()
PRE_TOKENIZERS = (
    "BertPreTokenizer ByteLevel CharDelimiterSplit Digits FixedLength Metaspace Punctuation Split "
    "UnicodeScripts Whitespace WhitespaceSplit"
).split()
PROCESSORS = ("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing")
DECODERS = "BPEDecoder ByteFallback ByteLevel CTC Fuse Metaspace Replace Strip WordPiece".split()
SLOTS = ("model", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder")


class Wrong(ValueError):
    """What is wrong with a part of the file."""


def checked(definition: Any, where: str) -> dict[str, Any]:
    """The same definition without what is not read (padding, truncation, keys that nobody knows).

    Raises:
        CheckpointError: a part of no known kind, or one that the library would stop at or not come back from.
    """
    fix = "Download it again, or do not use it"
    if not isinstance(definition, dict):
        raise CheckpointError("not a tokenizer: no JSON object", where=where, fix=fix)
    try:
        _check_model(definition.get("model"))
        _check_added(definition.get("added_tokens"))
        _check_stages(definition)
    except Wrong as error:
        raise CheckpointError(f"not a tokenizer that can be used: {error}", where=where, fix=fix) from None
    kept = {key: definition[key] for key in SLOTS if definition.get(key) is not None}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": []} | kept


def _check_model(model: Any) -> None:
    if not isinstance(model, dict):
        raise Wrong("no model")
    if model.get("dropout"):
        raise Wrong("'dropout' would make its answers random")
    longest = model.get("max_input_chars_per_word")
    if isinstance(longest, int) and longest > MAX_WORD:
        raise Wrong(f"max_input_chars_per_word = {str(longest)[:40]}, {MAX_WORD:,} at most are read")
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if len(str(model.get(key) or "")) > MAX_MARK:
            raise Wrong(f"{key!r} has more than {MAX_MARK} characters")
    vocab = model.get("vocab")
    for entry in vocab if isinstance(vocab, list) else ():
        piece = entry[0] if isinstance(entry, list) and entry else None
        if isinstance(piece, str) and not 0 < len(piece) <= MAX_PIECE:
            raise Wrong(f"a piece of {len(piece):,} characters, 1 to {MAX_PIECE} are read")
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if not prefix or not isinstance(prefix, str) or not isinstance(merges, list):
        return
    for merge in merges:  # the library cuts the prefix off unseen
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or not str(*pair[-1:]).startswith(prefix):
            raise Wrong(f"the merge {str(merge)[:60]!r} lacks the prefix {prefix!r}")


def _check_added(tokens: Any) -> None:
    tokens = tokens if isinstance(tokens, list) else []
    if len(tokens) > MAX_ADDED:
        raise Wrong(f"'added_tokens' has {len(tokens):,} entries, {MAX_ADDED:,} at most are read")
    for token in tokens:
        if not isinstance(token, dict) or not 0 < len(str(token.get("content"))) <= MAX_TEXT:
            raise Wrong(f"'content' of an added token is not a text of 1 to {MAX_TEXT:,} characters")


def _check_stages(definition: dict[str, Any]) -> None:
    normalizers = list(_stages(definition.get("normalizer"), "normalizer", "normalizers", NORMALIZERS))
    cutters = list(_stages(definition.get("pre_tokenizer"), "pre-tokenizer", "pretokenizers", PRE_TOKENIZERS))
    decoders = list(_stages(definition.get("decoder"), "decoder", "decoders", DECODERS))
    for stage in _stages(definition.get("post_processor"), "post-processor", "processors", PROCESSORS):
        _check_template(stage)
    for stage in (*normalizers, *cutters, *decoders):
        _check_stage(stage)
    tables = [stage for stage in normalizers if stage["type"] == "Precompiled"]
    if len(tables) > 1:
        raise Wrong("more than one table of characters")
    stretch = 1.0
    for table in tables:
        wrong, stretch = check_charsmap(table.get("precompiled_charsmap"))
        if wrong is not None:
            raise Wrong(f"the normalizer Precompiled is damaged: {wrong}")
    for what, steps, most in (
        ("normalizer", normalizers, MOST),
        ("pre-tokenizer", cutters, MOST_CUT),
        ("decoder", [stage for stage in decoders if stage["type"] == "Replace"], MOST),
    ):
        if (times := growth(steps, stretch)) > most:
            shown = f"10^{math.log10(times):.0f}" if times < 1e300 else "endless"
            shown = f"{times:,.0f}" if times < 1e15 else shown
            raise Wrong(f"the {what} makes a text up to {shown} times as long, {most} times at most are read")


def _stages(value: Any, what: str, inner: str, kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Every step of a stage, those of sequences within sequences one after the other."""
    waiting, count = [value] if value is not None else [], 0
    while waiting:
        stage, count = waiting.pop(0), count + 1
        kind = stage.get("type") if isinstance(stage, dict) else None
        if count > MAX_STAGES:
            raise Wrong(f"more than {MAX_STAGES} steps of a {what}")
        if kind == "Sequence":
            if not isinstance(stage.get(inner), list):
                raise Wrong(f"the sequence of a {what} has no {inner!r}")
            waiting[:0] = stage[inner]
        elif isinstance(kind, str) and kind in kinds:
            yield stage
        else:
            raise Wrong(f"a {what} of the kind {str(kind)[:60]!r}, known are {', '.join(kinds)}")


def _check_stage(stage: dict[str, Any]) -> None:
    kind = stage["type"]
    if kind in ("Replace", "Split"):
        _check_pattern_of(stage)
    content = stage.get("content")
    if kind == "Replace" and (not isinstance(content, str) or len(content) > MAX_TEXT):
        raise Wrong(f"'content' of a Replace is not a text of at most {MAX_TEXT:,} characters")
    if kind == "Prepend" and len(str(stage.get("prepend"))) > MAX_MARK:
        raise Wrong(f"'prepend' has more than {MAX_MARK} characters")
    if kind == "FixedLength" and stage.get("length") == 0:
        raise Wrong("length = 0, from 1 on are read")
    if kind == "Strip" and stage.get("stop"):  # beyond the pieces' ends it reads what is not there
        raise Wrong(f"stop = {str(stage['stop'])[:40]}, only 0 is read")


def _check_pattern_of(stage: dict[str, Any]) -> None:
    pattern = stage.get("pattern")
    pairs = [*pattern.items()] if isinstance(pattern, dict) else []
    kind, value = pairs[0] if len(pairs) == 1 else ("", None)
    if kind not in ("String", "Regex") or not isinstance(value, str):
        raise Wrong(f"the pattern of a {stage['type']} is neither a String nor a Regex")
    if kind == "String" and not 0 < len(value) <= MAX_TEXT:
        raise Wrong(f"a pattern of {len(value):,} characters, from 1 to {MAX_TEXT:,} are read")
    if kind == "Regex" and (wrong := check_pattern(value)) is not None:
        raise Wrong(wrong)


def _check_template(stage: dict[str, Any]) -> None:
    """That each text stands in a template once, and no token that it does not define."""
    known = stage.get("special_tokens")
    for key, texts in (
        (("single", ["A"]), ("pair", ["A", "B"])) if stage["type"] == "TemplateProcessing" else ()
    ):
        pieces = stage.get(key)
        parts = [part for piece in pieces or () if isinstance(piece, dict) for part in piece.items()]
        named = [(kind, value.get("id")) for kind, value in parts if isinstance(value, dict)]
        strange = [name for kind, name in named if kind == "SpecialToken" and name not in [*(known or ())]]
        if strange:
            what = f"a template names the token {str(strange[0])[:60]!r}, which is none of its special ones"
            raise Wrong(what)
        if [name for kind, name in named if kind == "Sequence"] != texts and (key == "single" or pieces):
            raise Wrong(f"{key!r} of a template does not hold each text once")
