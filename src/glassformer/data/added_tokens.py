"""Tokens that are looked for before a text is split: special ones, and those beside a list of pieces.

``added_tokens.json`` has names and ids. ``added_tokens_decoder`` of ``tokenizer_config.json`` says of each
token what it takes in and whether it is special, too; where it stands, the other file is not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassformer.data.tokenizer_parts import MAX_ADDED, MAX_TEXT
from glassformer.errors import CheckpointError
from glassformer.reading import unique_keys

ADDED = "added_tokens.json"
SETTINGS = "tokenizer_config.json"
DECODER = "added_tokens_decoder"  # of the settings
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
FIX = "Fetch it anew"


def added_tokens(
    special: Mapping[str, str],
    pieces: Mapping[str, Any],
    file: Path,
    config: Mapping[str, Any],
    more: str | None,
) -> list[dict[str, Any]]:
    """All of them as ``tokenizer.json`` has them, by their ids.

    Args:
        special: kind -> token.
        pieces: the list's, with their ids, in ``file``.
        config: what ``tokenizer_config.json`` beside it says.
        more: ``added_tokens.json``'s text; None where there is none.

    Raises:
        CheckpointError: a file that holds something else, or ids that do not go on where the list ends.
    """
    if DECODER in config:
        where = str(file.with_name(SETTINGS))
        beside = _decoder(config[DECODER], where)
    else:
        where = str(file.with_name(ADDED))
        beside = _names(more, where)
    new = _behind(beside, pieces, file, where)
    found = {token["content"]: token for token in _special(special, pieces, file, config)}
    for token in beside:
        if token["content"] in new or DECODER in config:
            is_special = token["special"] or token["content"] in found
            found[token["content"]] = token | {"special": is_special}
    return sorted(found.values(), key=lambda token: token["id"])


def _special(
    special: Mapping[str, str], pieces: Mapping[str, Any], file: Path, config: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The special tokens that there are, which take in what the settings say, and nothing of themselves."""
    found = []
    for kind, token in special.items():
        if token not in pieces or any(token == other["content"] for other in found):
            continue
        if not isinstance(pieces[token], int):
            raise CheckpointError("the id of a special token is no number", where=str(file), fix=FIX)
        said = config.get(f"{kind}_token")
        flags = _flags(said if isinstance(said, dict) else {}, token, str(file.with_name(SETTINGS)))
        plain = {"normalized": False} if not isinstance(said, dict) else {}
        found.append({"id": pieces[token], "content": token, **flags, **plain, "special": True})
    return found


def _flags(said: Mapping[str, Any], token: str, where: str) -> dict[str, bool]:
    flags = {"normalized": not said.get("special", False)} | {k: said[k] for k in FLAGS if k in said}
    if odd := [key for key, value in flags.items() if not isinstance(value, bool)]:
        raise CheckpointError(f"{odd[0]!r} of {token[:60]!r} is no truth value", where=where, fix=FIX)
    return dict.fromkeys(FLAGS, False) | flags


def _decoder(said: Any, where: str) -> list[dict[str, Any]]:
    """The tokens of ``added_tokens_decoder``: id -> what it is."""
    if not isinstance(said, dict) or len(said) > MAX_ADDED:
        what = f"{DECODER} is no object of ids with their tokens, {MAX_ADDED:,} at most"
        raise CheckpointError(what, where=where, fix=FIX)
    found = []
    for number, token in said.items():
        content = token.get("content") if isinstance(token, dict) else None
        is_id = number.isascii() and number.isdecimal() and len(number) < 10
        if not is_id or not isinstance(content, str) or not 0 < len(content) <= MAX_TEXT:
            what = f"{DECODER}: {number[:60]!r} is no id with its token"
            raise CheckpointError(what, where=where, fix=FIX)
        found.append({"id": int(number), "content": content, **_flags(token, content, where)})
    if len({token["content"] for token in found}) < len(found):
        raise CheckpointError(f"{DECODER} has a token twice", where=where, fix=FIX)
    return found


def _names(text: str | None, where: str) -> list[dict[str, Any]]:
    """The tokens of ``added_tokens.json``: token -> id."""
    if text is None:
        return []
    try:
        said = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"not JSON ({error})", where=where, fix=FIX) from None
    if not isinstance(said, dict) or len(said) > MAX_ADDED:
        what = f"no object of tokens with their ids, {MAX_ADDED:,} at most"
        raise CheckpointError(what, where=where, fix=FIX)
    for token, number in said.items():
        if not 0 < len(token) <= MAX_TEXT or isinstance(number, bool) or not isinstance(number, int):
            raise CheckpointError(f"{token[:60]!r} is no token with its id", where=where, fix=FIX)
    return [{"id": number, "content": token, **_flags({}, token, where)} for token, number in said.items()]


def _behind(beside: list[dict[str, Any]], pieces: Mapping[str, Any], file: Path, where: str) -> set[str]:
    """Those that the list of pieces lacks.

    Raises:
        CheckpointError: a token of the list with another id, or new ones that do not go on where it ends.
    """
    new = [token for token in beside if pieces.get(token["content"]) != token["id"]]
    taken = {number for number in pieces.values() if isinstance(number, int)}
    for place, token in enumerate(sorted(new, key=lambda token: token["id"]), len(pieces)):
        number, name = token["id"], token["content"]
        if name in pieces or number != place or number in taken:
            what = f"the id of {name[:60]!r} is {str(number)[:40]}"
            what += f", {file.name} says {str(pieces[name])[:40]}" if name in pieces else f" and not {place}"
            fix = f"Number new tokens from {len(pieces)} on, as many as {file.name} has"
            raise CheckpointError(what, where=where, fix=fix)
    return {token["content"] for token in new}
