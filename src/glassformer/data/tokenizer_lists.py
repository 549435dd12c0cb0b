"""Vocabularies in two files, a list of pieces and one of merges, as the definition of a ``tokenizer.json``.

``vocab.json`` with ``merges.txt`` is byte-level BPE (Radford et al., 2019), RoBERTa's. ``vocab.txt`` with
``bpe.codes`` is fastBPE's form (Sennrich et al., 2016), PhoBERT's: blanks part words, which are segmented
beforehand; the list of merges marks the end of a word (``</w>``), the list of pieces what goes on (``@@``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassformer.data.added_tokens import added_tokens
from glassformer.data.vocabulary import NAMES, WORD_END
from glassformer.errors import CheckpointError
from glassformer.reading import unique_keys

BYTE_LEVEL, FAST = ("vocab.json", "merges.txt"), ("vocab.txt", "bpe.codes")
GOES_ON = "@@"  # behind a piece that a list of fastBPE's has inside words
WORDS = r"\S+\n?"  # the published tokenizer leaves a line's end with its word
MAX_LINES = 2_000_000
FIX = "Fetch it anew"


def byte_level(
    vocab: str, merges: str, file: Path, config: Mapping[str, Any], more: str | None = None
) -> dict[str, Any]:
    """Of ``vocab.json`` (``file``) and ``merges.txt``; ``more`` is ``added_tokens.json``'s text.

    Raises:
        CheckpointError: a list that is none, or one without the tokens around a text; its file is named.
    """
    try:
        pieces = json.loads(vocab, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"not JSON ({error})", where=str(file), fix=FIX) from None
    if not isinstance(pieces, dict):
        raise CheckpointError("no object of pieces with their ids", where=str(file), fix=FIX)
    special = {kind: _named(config, kind, str(file)) for kind in NAMES}
    for kind in ("cls", "sep"):
        if special[kind] not in pieces:
            raise CheckpointError(f"the vocabulary lacks {special[kind]}", where=str(file), fix=FIX)
    lines = _lines(merges, file.with_name(BYTE_LEVEL[1]))
    pairs = [_pair(line.split(" "), n, file.with_name(BYTE_LEVEL[1])) for n, line in lines if line]
    spaced = config.get("add_prefix_space") is True
    step = {"type": "ByteLevel", "add_prefix_space": spaced, "trim_offsets": True, "use_regex": True}
    return {
        "model": _bpe(pieces, pairs, special["unk"] if special["unk"] in pieces else None, ""),
        "pre_tokenizer": step,
        "post_processor": _frame(special, pieces) | {"trim_offsets": True, "add_prefix_space": spaced},
        "decoder": step,
        "added_tokens": added_tokens(special, pieces, file, config, more),
    }


def fast(
    vocab: str, codes: str, file: Path, config: Mapping[str, Any], more: str | None = None
) -> dict[str, Any]:
    """Of ``vocab.txt`` (``file``) and ``bpe.codes``: a piece, and a merge, with its count a line.

    The vocabulary's ids are those of the published tokenizer, those of ``more`` (``added_tokens.json``'s
    text) follow. Pieces of which others are merged, but which it lacks, have ids behind them:
    ``Vocabulary.steps`` begins there.

    Raises:
        CheckpointError: a line that is none of such a list, or stands there twice; file and line are named.
    """
    special = {kind: _named(config, kind, str(file)) for kind in NAMES}
    pieces = {special[kind]: n for n, kind in enumerate(("cls", "pad", "sep", "unk"))}
    for n, line in _lines(vocab, file):
        word, blank, _ = line.strip().rpartition(" ")
        if not blank:
            what = f"line {n} is no piece with its count: {line[:60]!r}"
            raise CheckpointError(what, where=str(file), fix=FIX)
        name = word.removesuffix(GOES_ON) if word.endswith(GOES_ON) and word != GOES_ON else word + WORD_END
        if word in special.values() or pieces.setdefault(name, len(pieces)) != len(pieces) - 1:
            raise CheckpointError(f"line {n} repeats {word[:60]!r}", where=str(file), fix=FIX)
    pieces.setdefault(special["mask"], len(pieces))
    added = added_tokens(special, pieces, file, config, more)
    pieces |= {token["content"]: token["id"] for token in added}
    where = file.with_name(FAST[1])
    pairs = [_pair(line.split()[:-1], n, where) for n, line in _lines(codes[: codes.rfind("\n") + 1], where)]
    pairs = list(dict.fromkeys(reversed(pairs)))[::-1]  # of one that stands there twice the later counts
    for left, right in pairs:
        for step in (left, right, left + right):
            pieces.setdefault(step, len(pieces))
    return {
        "model": _bpe(pieces, pairs, special["unk"], WORD_END),
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": WORDS},
            "behavior": "Removed",
            "invert": True,
        },
        "post_processor": _frame(special, pieces) | {"trim_offsets": False, "add_prefix_space": False},
        "decoder": {"type": "BPEDecoder", "suffix": WORD_END},
        "added_tokens": added,
    }


def _named(config: Mapping[str, Any], kind: str, where: str) -> str:
    """A special token as the settings name it, else as RoBERTa's vocabularies do."""
    value = config.get(f"{kind}_token")
    token = value.get("content") if isinstance(value, dict) else value
    if token is None:
        return NAMES[kind][1]
    if not isinstance(token, str) or not 0 < len(token) <= 1_000:
        raise CheckpointError(f"{kind}_token beside it is no token", where=where, fix=FIX)
    return token


def _lines(text: str, file: Path) -> list[tuple[int, str]]:
    """Lines with their numbers; what says the version of the list's format is none of them."""
    if text.count("\n") > MAX_LINES:
        raise CheckpointError(f"more than {MAX_LINES:,} lines", where=str(file), fix=FIX)
    lines = enumerate(text.removesuffix("\n").split("\n") if text else (), 1)
    return [(n, line.removesuffix("\r")) for n, line in lines if not (n == 1 and line.startswith("#version"))]


def _pair(parts: list[str], number: int, file: Path) -> tuple[str, str]:
    if len(parts) != 2 or not all(parts):
        raise CheckpointError(f"line {number} is no merge of two pieces", where=str(file), fix=FIX)
    return parts[0], parts[1]


def _bpe(
    pieces: Mapping[str, Any], merges: list[tuple[str, str]], unknown: str | None, suffix: str
) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": suffix,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": dict(pieces),
        "merges": [list(pair) for pair in merges],
    }


def _frame(special: Mapping[str, str], pieces: Mapping[str, Any]) -> dict[str, Any]:
    around = {kind: [special[kind], pieces[special[kind]]] for kind in ("sep", "cls")}
    return {"type": "RobertaProcessing", **around}
