"""Regular expressions of tokenizer files: which of them can be trusted to end.

A pattern of a stranger can take longer than the world is old on twenty letters, and a thread that is in it
cannot be stopped. So a pattern is taken as it is if it is one that published tokenizers carry, or of a form
that cannot go back over what it has read. Any other is first tried in its own process, under a time limit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import lru_cache
from itertools import permutations

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
