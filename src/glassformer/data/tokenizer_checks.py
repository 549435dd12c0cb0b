"""Check a ``tokenizer.json`` before the ``tokenizers`` library reads it.

Invalid values can make the library panic or run without end. So every stage must have a known type, and every
number and regular expression must be within limits.
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


class Invalid(ValueError):
    """A part of the file is invalid; the message states the problem."""


# --- SentencePiece's normalization table (``Precompiled``) ----------------------------------------
# The bytes are a size, a trie as a double array of 32-bit units, and the strings to which its leaves point.
# The library follows the offsets of the file without checking them. So every reachable offset is checked
# here.

MAX_CHARSMAP_BYTES = 8 << 20  # real tables have up to 300 kB
MAX_DEPTH = 64  # maximum number of bytes of a key of the trie
COMPOSED_LETTERS_END = 0x3400  # all letters that NFC composes are below this code point
BAD_OFFSET = "its table has an offset out of range"
MAX_REPLACEMENT = 64  # maximum number of characters that replace one character; Unicode's tables need 18


def check_charsmap(encoded: object) -> float:
    """Check a base64 table, and return how many times as long as by NFKD it can make a character.

    Raises:
        Invalid: the table is damaged.
    """
    replacements = _read_charsmap(encoded)
    table = normalizers.Precompiled(base64.b64decode(str(encoded)))
    characters = set(map(chr, range(0x20, COMPOSED_LETTERS_END))).union(*replacements)
    return max(len(table.normalize_str(c)) / len(unicodedata.normalize("NFKD", c)) for c in characters)


def _read_charsmap(encoded: object) -> list[str]:
    """The replacement strings of a base64 table."""
    if not isinstance(encoded, str) or len(encoded) > 4 * MAX_CHARSMAP_BYTES // 3 + 4:
        raise Invalid("its table is not a string, or is too long")
    try:
        raw = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise Invalid("its table is not base64") from None
    size = struct.unpack("<I", raw[:4])[0] if len(raw) >= 4 else 0
    if not 1024 <= size <= len(raw) - 4 or size % 4:
        raise Invalid("its table is truncated")
    units = np.frombuffer(raw, "<u4", size // 4, 4)
    strings = raw[4 + size :]
    try:
        strings.decode("utf-8")
    except UnicodeDecodeError:
        raise Invalid("its strings are not UTF-8") from None
    replacements = []
    for value in _read_leaf_values(units).tolist():
        if value >= len(strings) or strings[value] & 0xC0 == 0x80:
            raise Invalid("its table points outside its strings")
        end = strings.find(b"\0", value)
        replacements.append(strings[value : end if end >= 0 else len(strings)].decode("utf-8"))
        if (size := len(replacements[-1])) > MAX_REPLACEMENT:
            raise Invalid(f"it replaces one character by {size:,}; the maximum is {MAX_REPLACEMENT}")
    return replacements


def _read_leaf_values(units: np.ndarray) -> np.ndarray:
    """The values of the trie's leaves; raise Invalid if an offset is out of range or there is a cycle."""
    byte_values = np.arange(1, 256, dtype=np.int64)
    nodes = np.zeros(1, np.int64) ^ _child_offset(units[:1])
    visited = np.zeros(len(units), bool)
    leaves: list[np.ndarray] = []
    for _ in range(MAX_DEPTH):
        if not len(nodes):
            return np.unique(np.concatenate(leaves))
        if (nodes | 255).max() >= len(units):
            break
        nodes = np.unique(nodes)
        nodes = nodes[~visited[nodes]]  # branches may share nodes
        visited[nodes] = True
        children: list[np.ndarray] = []
        for chunk in np.array_split(nodes, len(nodes) // 4096 + 1):
            targets = (chunk[:, None] ^ byte_values).ravel()
            target_units = units[targets]
            labels = (target_units & np.uint32(0x800000FF)).astype(np.int64)  # the byte of a unit
            is_child = labels == np.tile(byte_values, len(chunk))
            targets, target_units = targets[is_child], target_units[is_child].astype(np.int64)
            child_nodes = targets ^ _child_offset(target_units)
            is_leaf = (target_units >> 8) & 1 == 1
            if len(child_nodes) and child_nodes.max() >= len(units):
                raise Invalid(BAD_OFFSET)
            leaves.append((units[child_nodes[is_leaf]] & np.uint32(0x7FFFFFFF)).astype(np.int64))
            children.append(child_nodes)
        nodes = np.concatenate(children)
    raise Invalid(BAD_OFFSET)


def _child_offset(units: np.ndarray) -> np.ndarray:
    """The offsets in the bits 10 to 31 of units, multiplied by 256 if bit 9 is set."""
    units = units.astype(np.int64)
    return (units >> 10) << ((units & (1 << 9)) >> 6)


# --- regular expressions of tokenizer files -------------------------------------------------------
# A malicious pattern can take exponential time on twenty letters, and its thread cannot be stopped. A pattern
# is accepted if published tokenizers use it, or if its form excludes backtracking. Any other pattern is first
# tried in a separate process with a time limit.

MAX_PATTERN = 2000  # maximum number of characters of a pattern
MAX_REPEATS = 10_000  # maximum product of all {m,n}; it limits the size of the compiled pattern
MAX_SIMPLE_REPEAT = 100  # maximum {m,n} in a pattern that is accepted without a trial
MAX_OPTIONAL = 3  # maximum number of optional parts in one alternative of such a pattern
LONG_TEXT, SHORT_TEXT = 20_000, 1_000  # lengths of the trial texts in characters
MAX_PAIRS = 80  # maximum number of letter pairs in the short trial texts
CPU_SECONDS, WALL_SECONDS = 4, 30  # time limits of the trial

# Patterns of steps in converted SentencePiece files; see `sentence_pieces._normalization_steps`. Some steps
# insert these two characters inside graphemes. Then the library replaces characters one by one, and NFC does
# not compose or reorder letters and marks that SentencePiece does not change. The last step removes them.
GUARD_CHAR, JOINT_CHAR = "\ufdd0", "\ufdd1"  # Unicode noncharacters, which texts do not contain
# Characters that extend the grapheme before them, and final consonants of Hangul.
_EXTENDERS = "\n\\p{M}\u200c\u200d\u0e33\u0eb3\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"
_FINALS = "\u11a8-\u11c2\u3133\u3135\u3136\u313a-\u313f\uffa3\uffa5\uffa6\uffaa-\uffaf"
# Characters that NFKD decomposes or case folding turns into letters, if NFC would change them before a mark.
# The ranges also include characters without this property.
_DECOMPOSABLE = (
    "\u00a8\u00af-\u00b8\u00c0-\u00c5\u00c7-\u00d6\u00d9-\u00e5\u00e7-\u00f6\u00f9-\u017e\u01a0-\u01b0\u01c4-"
    "\u0233\u02d8-\u02dd\u0344-\u0386\u0389\u038f\u03aa-\u03ae\u03ca-\u03ce\u03d4\u0622\u0623\u0958-\u095f"
    "\u09dc-\u0a5e\u0b5c\u0b5d\u0cca\u0ddc-\u0f81\u1e00-\u1fbd\u1fbf-\u203e\u20a8-\u2101\u2103-\u2109\u2116\u2120-\u2122\u212b"
    "\u213b\u2161-\u2163\u2165-\u2168\u216a\u216b\u2171-\u2173\u2175-\u2178\u217a\u217b\u2a74-\u2a76\u309b"
    "\u309c\u30ff-\u32cf\u3300-\u33ff\uac00-\ufb4e\ufbea-\ufdcf\ufdf0-\ufe4c\ufe70-\ufe84\ufef5-\ufefc\uffe3"
    "\U0001d15e-\U0001d1c0\U0001f12d\U0001f12e\U0001f14a-\U0001f201"
)
_DELETED = "\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f"  # control characters that the table deletes
# Pairs of marks that NFC would reorder.
_MISORDERED = "(?<=[\u0300-\u031a\u031c-\u0345])(?=[\u031b\u0323-\u0338])|(?<=\u031b)(?=[\u0327\u0328\u0338])"
# Capitals that have no composition with a mark, although their small letters have one.
_CAPITALS = (
    "(?<=[\u0391\u0397\u0399\u03a5\u03a9\u03d2])(?=\u0342)|(?<=[\u03a1\u03a5\u03d2])(?=[\u0313\u0343])|(?<=H)(?=\u0331)|"
    "(?<=J)(?=\u030c)|(?<=T)(?=\u0308)|(?<=[WY])(?=\u030a)"
)
# Both patterns need a character on both sides: the library panics after insertions at the ends of a text.
GUARD_POSITIONS = (
    f"(?=[{_EXTENDERS}{_FINALS}])(?:(?<=[{_DECOMPOSABLE}])|{_MISORDERED}|{_CAPITALS}|(?<=[\\s\\S])(?=\u0344))|"
    f"(?<=[{_DELETED}])(?=[\\s\\S])"
)
JOINT_POSITIONS = f"(?=[{_EXTENDERS}])(?<=[\\s\\S])"
# A joint after a character that NFC may compose with the next mark; such a character may be a mark itself.
_COMPOSABLE_MARKS = (
    "\u09c7\u0b47\u0bc6\u0bc7\u0c46\u0cbf\u0cc6\u0cca\u0d46\u0d47\u0dd9\u0ddc\u1b3a\u1b3c\u1b3e\u1b3f\u1b42"
    "\U00011131\U00011132\U00011347\U000114b9\U000115b8\U000115b9\U00011935"
)
COMPOSED = f"(?<![\\p{{M}}&&[^{_COMPOSABLE_MARKS}]]){JOINT_CHAR}"
SEPARATED = f"[{GUARD_CHAR}{JOINT_CHAR}]"
TRAILING_BLANKS = "(?<!\u2581)\u2581+\\z"
_WORDS = "'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"\s+(?!\S)|\s+"
# Patterns of published tokenizers; all take linear time.
KNOWN_PATTERNS = frozenset(
    {
        rf"{_WORDS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}",  # GPT-2, RoBERTa, ModernBERT
        rf"{_ANY_CASE}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{_SPACES}",  # Llama 3
        rf"{_ANY_CASE}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{_SPACES}",  # Qwen 2
        rf"{_WORDS}|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+",  # CLIP
        " ?[^(\\s|[.,!?…。，、।۔،])]+",  # BLOOM
        r"\w+(?:['’]\w+)*|[^\w\s]",  # vocabularies that this project trains
        r"\w+|[^\w\s]",
        r"\S+\n?",  # PhoBERT
        GUARD_POSITIONS,
        JOINT_POSITIONS,
        COMPOSED,
        SEPARATED,
        r"\A ",
        TRAILING_BLANKS,
    }
)


def check_pattern(pattern: str) -> None:
    """Raise Invalid unless a regular expression is accepted.

    A pattern that is neither known nor simple is tried in another process, which takes a second.
    """
    if not 0 < len(pattern) <= MAX_PATTERN:
        raise Invalid(f"a pattern has {len(pattern):,} characters; 1 to {MAX_PATTERN:,} are supported")
    if pattern in KNOWN_PATTERNS or simple_min_length(pattern) is not None:
        return
    if re.search(r"\\[1-9]|\\[kg]|\(\?[{&PR0-9~@]|\(\*", pattern):
        raise Invalid("a pattern refers to a part of itself")
    repeats = 1
    for low, high in re.findall(r"\{(\d*),?(\d*)\}", pattern):
        repeats *= max(int(low or 1), int(high or 1), 1)
        if repeats > MAX_REPEATS:
            raise Invalid(f"a pattern repeats its parts more than {MAX_REPEATS:,} times")
    if (problem := _run_trial(pattern)) is not None:
        raise Invalid(problem)


# --- patterns that need no trial --------------------------------------------------------------------

_CLASS = r"\[\^?(?:\\.|[^\]\[\\&])+\]"
_SIMPLE_PART = re.compile(
    rf"(?P<part>{_CLASS}|\\[pP]\{{\^?\w+\}}|\\[sSdDwWhHnrtfv]|\\[^\w\s]|[^\\()\[\]{{}}*+?|^$])"
    r"(?P<quantifier>\{(?P<low>\d{1,4})(?P<comma>,(?P<high>\d{0,4}))?\}|[+*?])?(?![+*?])"
)


@lru_cache(maxsize=256)
def simple_min_length(pattern: str) -> int | None:
    """The minimum length of a match if the pattern is so simple that it cannot be slow, otherwise None.

    A simple pattern consists of alternatives. An alternative is a sequence of characters and classes, of
    which few are optional, and only the last is repeated without limit.
    """
    min_lengths, position, min_length, num_optional, is_unbounded = [], 0, 0, 0, False
    while position < len(pattern):
        if pattern[position] == "|":
            min_lengths.append(min_length)
            position, min_length, num_optional, is_unbounded = position + 1, 0, 0, False
            continue
        match = _SIMPLE_PART.match(pattern, position)
        if match is None or is_unbounded or match["part"] == ".":
            return None
        quantifier = match["quantifier"]
        low, high = 1, 1
        if quantifier in ("+", "*"):
            low, is_unbounded = int(quantifier == "+"), True
        elif quantifier == "?":
            low = 0
        elif quantifier:
            low = int(match["low"])
            high = low if match["comma"] is None else int(match["high"] or -1)
            is_unbounded = high < 0
            if max(low, high) > MAX_SIMPLE_REPEAT or 0 <= high < low:
                return None
        num_optional += low != high and not is_unbounded
        if num_optional > MAX_OPTIONAL:
            return None
        min_length, position = min_length + low, match.end()
    return min([*min_lengths, min_length])


# --- trial of a pattern in a separate process -------------------------------------------------------

# The process first limits its own time and memory. Then it rejects quadratic patterns: for a text that is
# four times as long, they take sixteen times as long.
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
def _run_trial(pattern: str) -> str | None:
    """The reason why a pattern is rejected; None if it passes the trial."""
    short, long = _trial_texts(pattern)
    inputs = {"path": sys.path, "pattern": pattern, "short": short, "long": long}
    command = [sys.executable, "-I", "-c", _TRIAL]
    try:
        result = subprocess.run(
            command, input=json.dumps(inputs).encode(), capture_output=True, timeout=WALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "a pattern does not come to an end"
    except OSError as error:
        return f"a pattern could not be tried ({error.strerror})"
    if result.returncode == 0:
        return None
    error = (result.stderr.decode("utf-8", "replace").strip().splitlines() or [""])[-1][:200]
    if result.returncode != 1 or "limit" in error:
        return "a pattern takes too long"
    return f"a pattern is invalid ({error.rpartition('Exception: ')[2]})"


def _trial_texts(pattern: str) -> tuple[list[str], list[str]]:
    """Short and long trial texts: repeated characters of the pattern, and an ending that does not match."""
    literals = dict.fromkeys(re.sub(r"\\[pPuxsSdDwWbB]|[\\()\[\]{}*+?|^$]", "", pattern))
    letters = list(dict.fromkeys([*[*literals][:20], "a", "A", "1", " ", "\n", "-", "é", "中"]))
    words = re.findall(r"\w{2,20}", pattern)[:20]
    # The end includes all characters of the pattern, since engines skip texts without a required character.
    ends = ("\u2603" + "".join([*letters, *words]), "!", "")
    long = [c * LONG_TEXT + end for c in letters for end in ends[:2]]
    long += [(w * LONG_TEXT)[:LONG_TEXT] + ends[0] for w in words]
    pairs = ["".join(pair) for pair in permutations(letters[:12], 2)][:MAX_PAIRS]
    short = [(p * SHORT_TEXT)[:SHORT_TEXT] + end for p in [*letters, *words, *pairs] for end in ends]
    return short, long


# --- limit of the expansion of a text -------------------------------------------------------------
# The weight of a character is the number of characters that replace it after all steps. After the last step
# all weights are 1; from there the steps are traversed backwards. Unicode normalization expands one character
# to at most 18. This expansion is ignored for the characters of the input, but not for those that a step
# inserts.

MAX_EXPANSION = 64  # maximum weight of a character in normalizers and decoders
MAX_PRE_TOKENIZER_EXPANSION = 32  # in pre-tokenizers
UNICODE_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
# ByteLevel: up to four bytes and a blank. Metaspace: a blank. BertNormalizer: a blank on both sides.
EXPANSION_FACTORS = {"ByteLevel": 5, "Metaspace": 2, "BertNormalizer": 3}


def max_expansion(steps: Sequence[dict[str, Any]], charsmap_factor: float = 1.0) -> float:
    """The largest weight of a character before ``steps``, which must have known types.

    Args:
        charsmap_factor: factor by which ``Precompiled`` expands a text beyond NFKD.
    """
    factors = EXPANSION_FACTORS | {"Precompiled": max(charsmap_factor, 1.0)}
    weights: dict[str, float] = {}  # of characters that occur in patterns
    other = 1.0  # weight of all other characters
    for i, step in reversed([*enumerate(steps)]):
        type_ = step["type"]
        if type_ == "Replace":
            inserted = _expand_insertion(step["content"], steps[i + 1 :])
            inserted_weight = sum(weights.get(c, other) for c in inserted)
            other, weights = _weights_before_replace(step["pattern"], inserted_weight, other, weights)
        elif type_ not in ("Prepend", "Strip", "StripAccents", "Fuse"):
            # This step may turn any character into any other character.
            other, weights = max([other, *weights.values()]) * factors.get(type_, 1), {}
    return max([other, *weights.values()])


def _weights_before_replace(
    pattern: dict[str, str], inserted: float, other: float, weights: dict[str, float]
) -> tuple[float, dict[str, float]]:
    """The weights before a step that replaces ``pattern`` by a text of the weight ``inserted``."""
    if (word := pattern.get("String")) is not None:
        if len(word) == 1:
            return other, weights | {word: inserted}
        return other, weights | {c: max(weights.get(c, other), inserted / len(word)) for c in word}
    min_length = simple_min_length(pattern["Regex"]) or 0
    if min_length == 0:  # the pattern may match the empty string before each character
        return other + inserted, {c: weight + inserted for c, weight in weights.items()}
    return max(other, inserted / min_length), {c: max(weight, inserted) for c, weight in weights.items()}


def _expand_insertion(content: str, later: Sequence[dict[str, Any]]) -> str:
    """An inserted text, expanded by the Unicode normalization of the later steps."""
    for step in later:
        if step["type"] in UNICODE_FORMS:
            content = unicodedata.normalize(step["type"], content)
        elif step["type"] in ("Precompiled", "BertNormalizer"):
            content = max(content, unicodedata.normalize("NFKD", content), key=len)
        elif step["type"] == "Lowercase":
            content = content.lower()
    return content


# --- the parts of tokenizer.json ------------------------------------------------------------------
# The library rejects values of wrong types and missing tokens. This module checks all other values.

MAX_ID = 10_000_000  # maximum token id
MAX_STAGES = 64  # maximum number of steps of one stage, including nested steps
MAX_TOKEN = 1_000  # maximum number of characters of one string in a setting, or of an added token
MAX_ADDED = 100_000  # maximum number of added tokens
MAX_WORD = 1_000  # maximum length of words that WordPiece splits, since the time grows quadratically
MAX_PIECE = 512  # maximum length of Unigram pieces, since the library tries all pieces at a position
MAX_AFFIX = 64  # maximum number of characters of a prefix or suffix

NORMALIZERS = (
    "BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace Strip StripAccents"
).split()
PRE_TOKENIZERS = (
    "BertPreTokenizer ByteLevel CharDelimiterSplit Digits FixedLength Metaspace Punctuation Split "
    "UnicodeScripts Whitespace WhitespaceSplit"
).split()
PROCESSORS = ("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing")
DECODERS = "BPEDecoder ByteFallback ByteLevel CTC Fuse Metaspace Replace Strip WordPiece".split()
STAGES = (  # name, key with the steps of a sequence, known types
    ("normalizer", "normalizers", NORMALIZERS),
    ("pre-tokenizer", "pretokenizers", PRE_TOKENIZERS),
    ("decoder", "decoders", DECODERS),
    ("post-processor", "processors", PROCESSORS),
)
PARTS = ("model", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder")


def check_definition(definition: Any, where: str) -> dict[str, Any]:
    """Check the content of a ``tokenizer.json``, and return it without padding, truncation and unknown keys.

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
    except Invalid as error:
        raise CheckpointError(f"not a usable tokenizer: {error}", where=where, fix=fix) from None
    parts = {key: definition[key] for key in PARTS if definition.get(key) is not None}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": []} | parts


def _check_model(model: Any) -> None:
    if not isinstance(model, dict):
        raise Invalid("there is no model")
    if model.get("dropout"):
        raise Invalid("'dropout' would make its output random")
    max_word = model.get("max_input_chars_per_word")
    if isinstance(max_word, int) and max_word > MAX_WORD:
        raise Invalid(f"max_input_chars_per_word = {str(max_word)[:40]}; the maximum is {MAX_WORD:,}")
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if len(str(model.get(key) or "")) > MAX_AFFIX:
            raise Invalid(f"{key!r} has more than {MAX_AFFIX} characters")
    vocab = model.get("vocab")
    for entry in vocab if isinstance(vocab, list) else ():
        piece = entry[0] if isinstance(entry, list) and entry else None
        if isinstance(piece, str) and not 0 < len(piece) <= MAX_PIECE:
            raise Invalid(f"a piece has {len(piece):,} characters; 1 to {MAX_PIECE} are supported")
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if not prefix or not isinstance(prefix, str) or not isinstance(merges, list):
        return
    for merge in merges:  # the library removes the prefix without checking that it is there
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or not str(*pair[-1:]).startswith(prefix):
            raise Invalid(f"the merge {str(merge)[:60]!r} lacks the prefix {prefix!r}")


def _check_added(tokens: Any) -> None:
    tokens = tokens if isinstance(tokens, list) else []
    if len(tokens) > MAX_ADDED:
        raise Invalid(f"'added_tokens' has {len(tokens):,} entries; the maximum is {MAX_ADDED:,}")
    for token in tokens:
        if not isinstance(token, dict) or not 0 < len(str(token.get("content"))) <= MAX_TOKEN:
            raise Invalid(f"'content' of an added token is not a text of 1 to {MAX_TOKEN:,} characters")


def _check_stages(definition: dict[str, Any]) -> None:
    normalizers, pre_tokenizers, decoders, processors = (
        list(_steps(definition.get(noun.replace("-", "_")), noun, list_key, types))
        for noun, list_key, types in STAGES
    )
    for stage in processors:
        _check_template(stage)
    for stage in (*normalizers, *pre_tokenizers, *decoders):
        _check_stage(stage)
    tables = [stage for stage in normalizers if stage["type"] == "Precompiled"]
    if len(tables) > 1:
        raise Invalid("there is more than one Precompiled normalizer")
    try:
        factor = check_charsmap(tables[0].get("precompiled_charsmap")) if tables else 1.0
    except Invalid as error:
        raise Invalid(f"the normalizer Precompiled is damaged: {error}") from None
    for noun, steps, limit in (
        ("normalizer", normalizers, MAX_EXPANSION),
        ("pre-tokenizer", pre_tokenizers, MAX_PRE_TOKENIZER_EXPANSION),
        ("decoder", [stage for stage in decoders if stage["type"] == "Replace"], MAX_EXPANSION),
    ):
        if (expansion := max_expansion(steps, factor)) > limit:
            shown = f"10^{math.log10(expansion):.0f}" if expansion < 1e300 else "endless"
            shown = f"{expansion:,.0f}" if expansion < 1e15 else shown
            what = f"the {noun} makes a text up to {shown} times as long"
            raise Invalid(f"{what}; the maximum is {limit}")


def _steps(value: Any, noun: str, list_key: str, known_types: Sequence[str]) -> Iterator[dict[str, Any]]:
    """All steps of a stage in order, with nested sequences flattened."""
    remaining, count = [value] if value is not None else [], 0
    while remaining:
        stage, count = remaining.pop(0), count + 1
        type_ = stage.get("type") if isinstance(stage, dict) else None
        if count > MAX_STAGES:
            raise Invalid(f"a {noun} has more than {MAX_STAGES} steps")
        if type_ == "Sequence":
            if not isinstance(stage.get(list_key), list):
                raise Invalid(f"the sequence of a {noun} has no {list_key!r}")
            remaining[:0] = stage[list_key]
        elif isinstance(type_, str) and type_ in known_types:
            yield stage
        else:
            known = ", ".join(known_types)
            raise Invalid(f"a {noun} has the unknown type {str(type_)[:60]!r}; known types are {known}")


def _check_stage(stage: dict[str, Any]) -> None:
    type_ = stage["type"]
    if type_ in ("Replace", "Split"):
        _check_pattern_stage(stage)
    content = stage.get("content")
    if type_ == "Replace" and (not isinstance(content, str) or len(content) > MAX_TOKEN):
        raise Invalid(f"'content' of a Replace is not a text of at most {MAX_TOKEN:,} characters")
    if type_ == "Prepend" and len(str(stage.get("prepend"))) > MAX_AFFIX:
        raise Invalid(f"'prepend' has more than {MAX_AFFIX} characters")
    if type_ == "FixedLength" and stage.get("length") == 0:
        raise Invalid("length = 0; the minimum is 1")
    if type_ == "Strip" and stage.get("stop"):  # the library would read beyond the ends of pieces
        raise Invalid(f"stop = {str(stage['stop'])[:40]}; only 0 is supported")


def _check_pattern_stage(stage: dict[str, Any]) -> None:
    pattern = stage.get("pattern")
    pairs = [*pattern.items()] if isinstance(pattern, dict) else []
    kind, value = pairs[0] if len(pairs) == 1 else ("", None)
    if kind not in ("String", "Regex") or not isinstance(value, str):
        raise Invalid(f"the pattern of a {stage['type']} is neither a String nor a Regex")
    if kind == "String" and not 0 < len(value) <= MAX_TOKEN:
        raise Invalid(f"a pattern has {len(value):,} characters; 1 to {MAX_TOKEN:,} are supported")
    if kind == "Regex":
        check_pattern(value)


def _check_template(stage: dict[str, Any]) -> None:
    """Raise Invalid unless a template has each text once, and only special tokens that it defines."""
    if stage["type"] != "TemplateProcessing":
        return
    defined = [*(stage.get("special_tokens") or ())]
    for key, texts in (("single", ["A"]), ("pair", ["A", "B"])):
        pieces = stage.get(key)
        parts = [part for piece in pieces or () if isinstance(piece, dict) for part in piece.items()]
        named = [(kind, value.get("id")) for kind, value in parts if isinstance(value, dict)]
        undefined = [name for kind, name in named if kind == "SpecialToken" and name not in defined]
        if undefined:
            token = str(undefined[0])[:60]
            raise Invalid(f"a template uses the token {token!r}, which is not one of its special tokens")
        if [name for kind, name in named if kind == "Sequence"] != texts and (key == "single" or pieces):
            raise Invalid(f"{key!r} of a template does not have each text once")
