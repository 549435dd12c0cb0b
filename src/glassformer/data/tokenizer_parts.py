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
from collections.abc import Callable, Iterator, Sequence
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
        return "its table is no text, or too long", []
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

MAX_ID = 10_000_000  # tokens of the largest table that a model may have
MAX_STAGES = 64  # steps of one kind, those within others counted
MAX_TEXT = 1_000  # characters of one string in a setting, or of an added token
MAX_ADDED = 100_000  # added tokens
MAX_SPECIAL = 64  # tokens around a text
MAX_WORD = 1_000  # characters of a word that WordPiece takes apart: its work grows with their square
MAX_PIECE = 512  # characters of a piece of Unigram, which looks for all that begin at a place

NORMALIZERS = (
    "BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace Strip StripAccents"
).split()
PRE_TOKENIZERS = (
    "BertPreTokenizer ByteLevel CharDelimiterSplit Digits FixedLength Metaspace Punctuation Split "
    "UnicodeScripts Whitespace WhitespaceSplit"
).split()
PROCESSORS = ("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing")
DECODERS = "BPEDecoder ByteFallback ByteLevel CTC Fuse Metaspace Replace Strip WordPiece".split()
MODELS = ("BPE", "Unigram", "WordLevel", "WordPiece")


class Wrong(ValueError):
    """What is wrong with a part of the file."""


def checked(definition: Any, where: str) -> dict[str, Any]:
    """The same definition without what is not read (padding, truncation, keys that nobody knows).

    Raises:
        CheckpointError: a part that is missing, of no known kind, or out of bounds; it is named.
    """
    fix = "Fetch it anew, or do not use it"
    if not isinstance(definition, dict):
        raise CheckpointError("not a tokenizer: no JSON object", where=where, fix=fix)
    try:
        return _checked(definition)
    except Wrong as error:
        raise CheckpointError(f"not a tokenizer that can be used: {error}", where=where, fix=fix) from None


def _checked(definition: dict[str, Any]) -> dict[str, Any]:
    model, highest = _model(definition.get("model"))
    added = definition.get("added_tokens") or []
    highest = max(highest, _added(added))
    normalizers = list(_stages(definition.get("normalizer"), "normalizer", "normalizers", NORMALIZERS))
    cutters = list(_stages(definition.get("pre_tokenizer"), "pre-tokenizer", "pretokenizers", PRE_TOKENIZERS))
    processors = list(_stages(definition.get("post_processor"), "post-processor", "processors", PROCESSORS))
    decoders = list(_stages(definition.get("decoder"), "decoder", "decoders", DECODERS))
    for stage in (*normalizers, *cutters, *decoders):
        if check := CHECKS.get(
            stage["type"]
        ):  # the others have truth values and choices, which the library checks
            check(stage)
    for stage in processors:
        _processor(stage, highest + len(added))
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
    kept = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    made = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "model": model}
    return made | {key: definition.get(key) for key in kept}


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


# --- the model ------------------------------------------------------------------------------------------


def _model(model: Any) -> tuple[dict[str, Any], int]:
    """The model with its kind written into it, which old files leave out, and its highest id."""
    if not isinstance(model, dict):
        raise Wrong("no model")
    kind = model.get("type")
    if kind is None:
        pieces = "max_input_chars_per_word" in model or "continuing_subword_prefix" in model
        kind = "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece" if pieces else "WordLevel"
        kind = "BPE" if "merges" in model else kind
    if kind not in MODELS:
        raise Wrong(f"a model of the kind {str(kind)[:60]!r}, known are {', '.join(MODELS)}")
    vocab, unknown = model.get("vocab"), model.get("unk_token")
    if kind == "Unigram":
        return {**model, "type": kind}, _unigram(model, vocab)
    if not isinstance(vocab, dict) or not vocab:
        raise Wrong("no vocabulary")
    highest = -1
    for token, number in vocab.items():
        highest = max(highest, _id(number, token))
    if kind != "BPE" or unknown is not None:
        if not isinstance(unknown, str):
            raise Wrong("no token for what is unknown ('unk_token')")
        if unknown not in vocab:
            raise Wrong(f"its vocabulary lacks the token for what is unknown, {unknown[:60]!r}")
    if kind == "WordPiece":
        _number(model, "max_input_chars_per_word", 1, MAX_WORD, 100)
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        _text(model, key, 64, empty=True)
    if kind == "BPE":
        _merges(model, vocab)
    return {**model, "type": kind}, highest


def _unigram(model: dict[str, Any], vocab: Any) -> int:
    if not isinstance(vocab, list) or not 0 < len(vocab) <= MAX_ID:
        raise Wrong("no vocabulary")
    for entry in vocab:
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
            raise Wrong("an entry of its vocabulary is no piece with a number")
        piece, score = entry
        if not 0 < len(piece) <= MAX_PIECE:
            raise Wrong(f"a piece of {len(piece):,} characters, 1 to {MAX_PIECE} are read")
        if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) < 1e30:
            raise Wrong(f"the score of {piece[:60]!r} is no number")
    unknown = model.get("unk_id")
    if isinstance(unknown, bool) or not isinstance(unknown, int) or not 0 <= unknown < len(vocab):
        raise Wrong("no token for what is unknown ('unk_id')")
    return len(vocab) - 1


def _merges(model: dict[str, Any], vocab: dict[str, Any]) -> None:
    dropout, merges = model.get("dropout"), model.get("merges")
    if dropout not in (None, 0):
        raise Wrong("'dropout' would make its answers random")
    if not isinstance(merges, list) or len(merges) > MAX_ID:
        raise Wrong("no list of merges")
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(p, str) for p in pair):
            raise Wrong(f"a merge is no pair: {str(merge)[:60]!r}")
        left, right = pair
        if prefix and not right.startswith(prefix):
            raise Wrong(f"the merge {str(merge)[:60]!r} lacks the prefix {prefix!r}")
        for token in (left, right, left + right[len(prefix) :]):
            if token not in vocab:
                raise Wrong(f"the merge {str(merge)[:60]!r} needs {token[:60]!r}, which its vocabulary lacks")


def _id(number: Any, token: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < MAX_ID:
        raise Wrong(f"the id of {token[:60]!r} is {str(number)[:40]}, from 0 to {MAX_ID - 1:,} are read")
    return number


def _added(tokens: Any) -> int:
    """The highest id of the added tokens; -1 without any."""
    if not isinstance(tokens, list) or len(tokens) > MAX_ADDED:
        raise Wrong(f"'added_tokens' is no list, or has more than {MAX_ADDED:,}")
    highest = -1
    for token in tokens:
        if not isinstance(token, dict):
            raise Wrong("an added token is no object")
        content = _text(token, "content", MAX_TEXT, needed=True)
        highest = max(highest, _id(token.get("id"), str(content)))
        for key in ("single_word", "lstrip", "rstrip", "normalized", "special"):
            if not isinstance(token.get(key, False), bool):
                raise Wrong(f"{key!r} of the added token {str(content)[:60]!r} is no truth value")
    return highest


# --- settings of the stages ---------------------------------------------------------------------------


def _text(stage: dict[str, Any], key: str, most: int, *, empty: bool = False, needed: bool = False) -> Any:
    value = stage.get(key)
    if value is None and not needed:
        return None
    if not isinstance(value, str) or len(value) > most or not (value or empty):
        raise Wrong(f"{key!r} is no text of {0 if empty else 1} to {most:,} characters")
    return value


def _number(stage: dict[str, Any], key: str, least: int, most: int, default: int | None = None) -> None:
    value = stage.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Wrong(f"{key} = {str(value)[:40]}, from {least} to {most:,} are read")


def _only(entry: Any) -> tuple[str, Any]:
    """The key and the value of an object that has one; else empty and None."""
    return next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else ("", None)


def _pattern(stage: dict[str, Any]) -> None:
    kind, value = _only(stage.get("pattern"))
    if kind not in ("String", "Regex") or not isinstance(value, str):
        raise Wrong(f"the pattern of a {stage['type']} is neither a String nor a Regex")
    if kind == "String" and not 0 < len(value) <= MAX_TEXT:
        raise Wrong(f"a pattern of {len(value):,} characters, from 1 to {MAX_TEXT:,} are read")
    if kind == "Regex" and (wrong := check_pattern(value)) is not None:
        raise Wrong(wrong)


def _replace(stage: dict[str, Any]) -> None:
    _pattern(stage)
    _text(stage, "content", MAX_TEXT, empty=True, needed=True)


def _strip(stage: dict[str, Any]) -> None:
    if "content" in stage:  # a decoder's
        _text(stage, "content", 1, needed=True)
        _number(stage, "start", 0, MAX_TEXT)
        _number(stage, "stop", 0, 0)  # beyond the pieces' ends it reads what is not there


CHECKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "Replace": _replace,
    "Split": _pattern,
    "Strip": _strip,
    "Prepend": lambda stage: _text(stage, "prepend", 64, empty=True, needed=True),
    "FixedLength": lambda stage: _number(stage, "length", 1, MAX_ID, 5),
    "Metaspace": lambda stage: _text(stage, "replacement", 1, needed=True),
    "CharDelimiterSplit": lambda stage: _text(stage, "delimiter", 1, needed=True),
    "WordPiece": lambda stage: _text(stage, "prefix", MAX_TEXT, empty=True),
    "BPEDecoder": lambda stage: _text(stage, "suffix", MAX_TEXT, empty=True),
}


# --- tokens around a text --------------------------------------------------------------------------------


def _processor(stage: dict[str, Any], highest: int) -> None:
    if stage["type"] in ("BertProcessing", "RobertaProcessing"):
        for key in ("sep", "cls"):
            pair = stage.get(key)
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
                raise Wrong(f"{key!r} of a {stage['type']} is no token with its id")
            _within(pair[1], pair[0], highest)
    if stage["type"] == "TemplateProcessing":
        _template(stage, highest)


def _template(stage: dict[str, Any], highest: int) -> None:
    special = stage.get("special_tokens")
    if not isinstance(special, dict):
        raise Wrong("a template without 'special_tokens'")
    for name, token in special.items():
        ids, tokens = (token.get(key) if isinstance(token, dict) else None for key in ("ids", "tokens"))
        if not isinstance(ids, list) or not isinstance(tokens, list) or len(ids) != len(tokens) or not ids:
            raise Wrong(f"the special token {name[:60]!r} of a template has no ids and tokens")
        for number in ids:
            _within(number, name, highest)
    for key, sequences in (("single", ["A"]), ("pair", ["A", "B"])):
        pieces = stage.get(key)
        if not isinstance(pieces, list) or len(pieces) > MAX_SPECIAL:
            raise Wrong(f"{key!r} of a template is no list of at most {MAX_SPECIAL} pieces")
        found = []
        for piece in pieces:
            kind, value = _only(piece)
            name = value.get("id") if isinstance(value, dict) else None
            if kind == "Sequence" and name in ("A", "B"):
                found.append(name)
            elif kind != "SpecialToken" or not isinstance(name, str) or name not in special:
                raise Wrong(
                    f"a template names the token {str(name)[:60]!r}, which is none of its special ones"
                )
        if found != sequences and (key == "single" or pieces):
            raise Wrong(f"{key!r} of a template does not hold each text once")
        around = sum(len(special[p["SpecialToken"]["id"]]["ids"]) for p in pieces if "SpecialToken" in p)
        if around > MAX_SPECIAL:
            raise Wrong(f"a template puts {around:,} tokens around a text, {MAX_SPECIAL} at most are read")


def _within(number: Any, token: str, highest: int) -> None:
    if _id(number, token) > highest:
        raise Wrong(f"the id of {token[:60]!r}, {number:,}, is none of its vocabulary")
