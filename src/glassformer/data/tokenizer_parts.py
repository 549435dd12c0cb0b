"""Check a ``tokenizer.json``: every stage has a known type, every number and pattern is within bounds.

The check comes before the ``tokenizers`` library reads the file, since invalid values can make it panic or
run without end.
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

# --- SentencePiece's normalization table (``Precompiled``) ----------------------------------------
# The bytes are a size, a trie as a double array of 32-bit units, and the strings that its leaves point to. A
# lookup follows offsets of the file unchecked, so here every reachable offset is followed once.

MAX_BYTES = 8 << 20  # real tables have up to 300 kB
MAX_DEPTH = 64  # bytes of the longest key
EVERY_LETTER = 0x3400  # code points below it include all letters of Unicode's compositions
LONGEST = 64  # characters that may replace one character; 18 in Unicode's own tables


def check_charsmap(encoded: object) -> tuple[str | None, float]:
    """Why a base64 table is unusable (None: it is usable), and its factor of expansion beyond NFKD."""
    wrong, strings = _checked_charsmap(encoded)
    if wrong is not None:
        return wrong, 1.0
    table = normalizers.Precompiled(base64.b64decode(str(encoded)))
    letters = set(map(chr, range(0x20, EVERY_LETTER))).union(*strings)
    return None, max(len(table.normalize_str(c)) / len(unicodedata.normalize("NFKD", c)) for c in letters)


def _checked_charsmap(encoded: object) -> tuple[str | None, list[str]]:
    """Why a base64 table is unusable (None: it is usable), and its replacement strings."""
    if not isinstance(encoded, str) or len(encoded) > 4 * MAX_BYTES // 3 + 4:
        return "its table is not a text, or too long", []
    try:
        raw = base64.b64decode(encoded, validate=True)
    except ValueError:
        return "its table is not base64", []
    size = struct.unpack("<I", raw[:4])[0] if len(raw) >= 4 else 0
    if not 1024 <= size <= len(raw) - 4 or size % 4:
        return "its table is truncated", []
    units = np.frombuffer(raw, "<u4", size // 4, 4)
    strings = raw[4 + size :]
    try:
        strings.decode("utf-8")
    except UnicodeDecodeError:
        return "its strings are not UTF-8", []
    values = _values(units)
    if values is None:
        return "its table has an offset out of range", []
    found = []
    for value in values.tolist():
        if value >= len(strings) or strings[value] & 0xC0 == 0x80:
            return "its table points outside its strings", []
        end = strings.find(b"\0", value)
        found.append(strings[value : end if end >= 0 else len(strings)].decode("utf-8"))
        if (size := len(found[-1])) > LONGEST:
            return f"it replaces one character by {size:,}, at most {LONGEST} are supported", []
    return None, found


def _values(units: np.ndarray) -> np.ndarray | None:
    """The targets of the trie's leaves; None if an offset is out of range or the trie has a cycle."""
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
        place = place[~seen[place]]  # branches may share nodes
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
# A malicious pattern can take exponential time on twenty letters, and its thread cannot be stopped. So a
# pattern is accepted if published tokenizers use it, or if its form excludes backtracking. Any other pattern
# is first tried in a separate process with a time limit.

MAX_PATTERN = 2000  # characters
MAX_REPEATS = 10_000  # product of all {m,n}, which bounds the size of the compiled pattern
MAX_COUNT = 100  # largest {m,n} in a pattern that is accepted without a trial
MAX_OPTIONAL = 3  # optional parts in one alternative of such a pattern
LONG, SHORT, MOST_PAIRS = 20_000, 1_000, 80  # lengths of the trial texts, and number of letter pairs in them
CPU_SECONDS, WALL_SECONDS = 4, 30

# Steps of SentencePiece's files: between two marks of Arabic or Hebrew; before a mark, or what joins, behind
# what a table of characters may change; blanks at the end.
_MARK = "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u0655\u0670]"
BETWEEN_MARKS = f"(?<={_MARK})(?={_MARK})"
BEFORE_MARK = r"(?<=[\p{Lu}\p{Lt}\p{N}\p{S}\p{Z}\p{P}\u3131-\u3247\uf900-\uffef])(?=[\p{M}\u200d])"
TRAILING = "(?<!\u2581)\u2581+\\z"
_WORDS = "'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"\s+(?!\S)|\s+"
# Patterns of published tokenizers; all take linear time.
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
        BETWEEN_MARKS,
        BEFORE_MARK,
        r"\A ",
        TRAILING,
    }
)


def check_pattern(pattern: str) -> str | None:
    """Why a regular expression is rejected; None if it is accepted.

    A pattern that is neither known nor simple is tried in another process, which takes a second.
    """
    if not 0 < len(pattern) <= MAX_PATTERN:
        return f"a pattern of {len(pattern):,} characters, 1 to {MAX_PATTERN:,} are supported"
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
    """The minimum length of a match if the pattern cannot be slow, otherwise None. A simple pattern consists
    of alternatives of characters and classes, few of them optional, and only the last repeated without limit.
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

# The process first limits itself. Quadratic patterns are rejected: a text four times as long would take
# sixteen times as long.
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
    """Short and long trial texts: repeated characters of the pattern, and an end that does not match."""
    own = [c for c in dict.fromkeys(re.sub(r"\\[pPuxsSdDwWbB]", "", pattern)) if c not in "\\()[]{}*+?|^$"]
    letters = list(dict.fromkeys([*own[:20], "a", "A", "1", " ", "\n", "-", "é", "中"]))
    words = re.findall(r"\w{2,20}", pattern)[:20]
    # The end includes all characters of the pattern, since engines skip texts without a required character.
    ends = ("\u2603" + "".join([*letters, *words]), "!", "")
    long = [c * LONG + end for c in letters for end in ends[:2]]
    long += [(w * LONG)[:LONG] + ends[0] for w in words]
    pairs = ["".join(pair) for pair in permutations(letters[:12], 2)][:MOST_PAIRS]
    short = [(p * SHORT)[:SHORT] + end for p in [*letters, *words, *pairs] for end in ends]
    return short, long


# --- how much a tokenizer's steps can expand a text -----------------------------------------------
# Computed from the file, without reading a text.
# The weight of a character is the number of characters that replace it at the end. After the last step all
# weights are 1; from there the steps are traversed backwards. The expansion by Unicode normalization of the
# input (at most 18 characters for one) is ignored, but not that of characters that a step inserts.

MOST = 64  # maximum weight of a character
MOST_CUT = 32  # the same for pre-tokenizers
UNICODE = ("NFC", "NFD", "NFKC", "NFKD")
FACTORS = {"ByteLevel": 5, "Metaspace": 2, "BertNormalizer": 3}  # bytes and a blank; a mark; blanks around


def growth(steps: Sequence[dict[str, Any]], stretch: float = 1.0) -> float:
    """The largest weight of a character before these steps, which must have known types.

    Args:
        stretch: factor by which ``Precompiled`` expands a text beyond NFKD.
    """
    factors = FACTORS | {"Precompiled": max(stretch, 1.0)}
    other, weights = 1.0, dict[str, float]()  # weights of the characters of patterns, and of all others
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        kind = step["type"]
        if kind == "Replace":
            content = _longest(step["content"], steps[number + 1 :])
            inserted = sum(weights.get(c, other) for c in content)
            other, weights = _replaced(step["pattern"], inserted, other, weights)
        elif kind not in ("Prepend", "Strip", "StripAccents", "Fuse"):
            # such a step may turn any character into any other
            other, weights = max([other, *weights.values()]) * factors.get(kind, 1), {}
    return max([other, *weights.values()])


def _replaced(
    pattern: dict[str, str], inserted: float, other: float, weights: dict[str, float]
) -> tuple[float, dict[str, float]]:
    if (word := pattern.get("String")) is not None:
        alone = len(word) == 1
        share = {c: inserted if alone else max(weights.get(c, other), inserted / len(word)) for c in word}
        return other, weights | share
    least = simple_minimum(pattern["Regex"]) or 0
    if least == 0:  # it may match the empty string before each character
        return other + inserted, {c: weight + inserted for c, weight in weights.items()}
    return max(other, inserted / least), {c: max(weight, inserted) for c, weight in weights.items()}


def _longest(content: str, later: Sequence[dict[str, Any]]) -> str:
    """An inserted text, expanded by the Unicode normalization of the later steps."""
    for step in later:
        if step["type"] in UNICODE:
            content = unicodedata.normalize(step["type"], content)
        elif step["type"] in ("Precompiled", "BertNormalizer"):
            content = max(content, unicodedata.normalize("NFKD", content), key=len)
        elif step["type"] == "Lowercase":
            content = content.lower()
    return content


# --- the stages -----------------------------------------------------------------------------------
# The library itself rejects values of wrong types and missing tokens. Values that it does not check are
# checked here.

MAX_ID = 10_000_000  # maximum size of an embedding table
MAX_STAGES = 64  # steps of one stage, including nested ones
MAX_TEXT = 1_000  # characters of one string in a setting, or of an added token
MAX_ADDED = 100_000  # added tokens
MAX_WORD = 1_000  # maximum length of words that WordPiece splits, since the time grows quadratically
MAX_PIECE = 512  # maximum length of Unigram pieces, since all pieces at a position are tried
MAX_MARK = 64  # characters of a prefix or suffix

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
    """A part of the file is invalid; the message says how."""


def checked(definition: Any, where: str) -> dict[str, Any]:
    """Check a definition, and return it without unused parts (padding, truncation, unknown keys).

    Raises:
        CheckpointError: a part has an unknown type, or would make the library panic or run without end.
    """
    fix = "Download it again, or do not use it"
    if not isinstance(definition, dict):
        raise CheckpointError("not a tokenizer: not a JSON object", where=where, fix=fix)
    try:
        _check_model(definition.get("model"))
        _check_added(definition.get("added_tokens"))
        _check_stages(definition)
    except Wrong as error:
        raise CheckpointError(f"not a usable tokenizer: {error}", where=where, fix=fix) from None
    kept = {key: definition[key] for key in SLOTS if definition.get(key) is not None}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": []} | kept


def _check_model(model: Any) -> None:
    if not isinstance(model, dict):
        raise Wrong("no model")
    if model.get("dropout"):
        raise Wrong("'dropout' would make its output random")
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
    for merge in merges:  # the library removes the prefix without a check
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
            raise Wrong(f"the {what} makes a text up to {shown} times as long, at most {most} are supported")


def _stages(value: Any, what: str, inner: str, kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """All steps of a stage in order, with nested sequences flattened."""
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
            raise Wrong(f"a {what} of unknown type {str(kind)[:60]!r}, known are {', '.join(kinds)}")


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
    if kind == "Strip" and stage.get("stop"):  # the library would read beyond the ends of pieces
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
    """Check that a template has each text once, and only special tokens that it defines."""
    known = stage.get("special_tokens")
    for key, texts in (
        (("single", ["A"]), ("pair", ["A", "B"])) if stage["type"] == "TemplateProcessing" else ()
    ):
        pieces = stage.get(key)
        parts = [part for piece in pieces or () if isinstance(piece, dict) for part in piece.items()]
        named = [(kind, value.get("id")) for kind, value in parts if isinstance(value, dict)]
        strange = [name for kind, name in named if kind == "SpecialToken" and name not in [*(known or ())]]
        if strange:
            raise Wrong(f"a template uses the token {str(strange[0])[:60]!r}, not one of its special tokens")
        if [name for kind, name in named if kind == "Sequence"] != texts and (key == "single" or pieces):
            raise Wrong(f"{key!r} of a template does not have each text once")
