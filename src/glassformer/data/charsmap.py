"""SentencePiece's table of characters (``Precompiled``), walked through before compiled code trusts it.

The bytes are a count, a trie as a double array of 32-bit units, and the strings that it points into. Who
looks a character up follows offsets that the file gives; here every one that can be reached is followed once.
"""

from __future__ import annotations

import base64
import binascii
import struct
import unicodedata

import numpy as np
from tokenizers import normalizers

MAX_BYTES = 8 << 20  # the largest in use has 300 kB
MAX_DEPTH = 64  # bytes of the longest sequence of characters with an entry
EVERY_LETTER = 0x3400  # up to there stand the letters of which Unicode's own compositions are made
LONGEST = 64  # characters that one character becomes; 18 in Unicode's own tables


def check_charsmap(encoded: object) -> tuple[str | None, float]:
    """Why a base64 table cannot be used (None: it can), and how much longer than Unicode it makes a text."""
    wrong, strings = _checked(encoded)
    if wrong is not None:
        return wrong, 1.0
    table = normalizers.Precompiled(base64.b64decode(str(encoded)))
    letters = set(map(chr, range(0x20, EVERY_LETTER))).union(*strings)
    return None, max(len(table.normalize_str(c)) / len(unicodedata.normalize("NFKD", c)) for c in letters)


def _checked(encoded: object) -> tuple[str | None, list[str]]:
    """Why a table in base64 cannot be used (None where it can), and the strings that it puts in."""
    if not isinstance(encoded, str) or len(encoded) > 4 * MAX_BYTES // 3 + 4:
        return "its table is no text, or too long", []
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
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
        if len(found[-1]) > LONGEST:
            return (
                f"it puts {len(found[-1]):,} characters in the place of one, {LONGEST} at most are read",
                [],
            )
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
