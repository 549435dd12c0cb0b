"""What a ``tokenizer.json`` may hold: every stage of a known kind, every number and pattern within bounds.

Checked before the library that runs tokenizers sees the file: where it trusts a number it stops with a panic,
which is no exception, or goes on without end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from glassformer.data.charsmap import check_charsmap
from glassformer.data.growth import MOST, MOST_CUT, growth
from glassformer.data.patterns import check_pattern
from glassformer.errors import CheckpointError

MAX_ID = 10_000_000  # tokens of the largest table that a model may have
MAX_STAGES = 64  # steps of one kind, those within others counted
MAX_TEXT = 1_000  # characters of one string in a setting, or of an added token
MAX_ADDED = 100_000  # added tokens
MAX_SPECIAL = 64  # tokens around a text
MAX_WORD = 1_000  # characters of a word that WordPiece takes apart: its work grows with their square
MAX_PIECE = 512  # characters of a piece of Unigram, which looks for all that begin at a place

NORMALIZERS = (
    "BertNormalizer",
    "ByteLevel",
    "Lowercase",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Nmt",
    "Precompiled",
    "Prepend",
    "Replace",
    "Strip",
    "StripAccents",
)
PRE_TOKENIZERS = (
    "BertPreTokenizer",
    "ByteLevel",
    "CharDelimiterSplit",
    "Digits",
    "FixedLength",
    "Metaspace",
    "Punctuation",
    "Split",
    "UnicodeScripts",
    "Whitespace",
    "WhitespaceSplit",
)
PROCESSORS = ("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing")
DECODERS = (
    "BPEDecoder",
    "ByteFallback",
    "ByteLevel",
    "CTC",
    "Fuse",
    "Metaspace",
    "Replace",
    "Strip",
    "WordPiece",
)
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
        CHECKS.get(stage["type"], _nothing)(stage)
    for stage in processors:
        _processor(stage, highest + len(added))
    tables = [stage for stage in normalizers if stage["type"] == "Precompiled"]
    if len(tables) > 1:
        raise Wrong("more than one table of characters")
    stretch = _precompiled(tables[0]) if tables else 1.0
    for what, steps, most in (
        ("normalizer", normalizers, MOST),
        ("pre-tokenizer", cutters, MOST_CUT),
        ("decoder", [stage for stage in decoders if stage["type"] == "Replace"], MOST),
    ):
        if (times := growth(steps, stretch)) > most:
            shown = (
                f"{times:,.0f}"
                if times < 1e15
                else f"10^{math.log10(times):.0f}"
                if times < 1e300
                else "endless"
            )
            raise Wrong(f"the {what} makes a text up to {shown} times as long, {most} times at most are read")
    kept = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "model": model,
        **{key: definition.get(key) for key in kept},
    }


def _stages(value: Any, what: str, inner: str, kinds: tuple[str, ...]) -> Iterator[dict[str, Any]]:
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
        kind = (
            "BPE"
            if "merges" in model
            else "Unigram"
            if isinstance(model.get("vocab"), list)
            else "WordPiece"
            if "max_input_chars_per_word" in model or "continuing_subword_prefix" in model
            else "WordLevel"
        )
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


def _pattern(stage: dict[str, Any]) -> None:
    pattern = stage.get("pattern")
    kind, value = (
        next(iter(pattern.items())) if isinstance(pattern, dict) and len(pattern) == 1 else ("", None)
    )
    if kind not in ("String", "Regex") or not isinstance(value, str):
        raise Wrong(f"the pattern of a {stage['type']} is neither a String nor a Regex")
    if kind == "String" and not 0 < len(value) <= MAX_TEXT:
        raise Wrong(f"a pattern of {len(value):,} characters, from 1 to {MAX_TEXT:,} are read")
    if kind == "Regex" and (wrong := check_pattern(value)) is not None:
        raise Wrong(wrong)


def _replace(stage: dict[str, Any]) -> None:
    _pattern(stage)
    _text(stage, "content", MAX_TEXT, empty=True, needed=True)


def _precompiled(stage: dict[str, Any]) -> float:
    wrong, stretch = check_charsmap(stage.get("precompiled_charsmap"))
    if wrong is not None:
        raise Wrong(f"the normalizer Precompiled is damaged: {wrong}")
    return stretch


def _strip(stage: dict[str, Any]) -> None:
    if "content" in stage:  # a decoder's
        _text(stage, "content", 1, needed=True)
        _number(stage, "start", 0, MAX_TEXT)
        _number(stage, "stop", 0, 0)  # beyond the pieces' ends it reads what is not there


def _nothing(stage: dict[str, Any]) -> None:
    """Its settings are truth values and choices, which the library looks at."""


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
        ids = token.get("ids") if isinstance(token, dict) else None
        tokens = token.get("tokens") if isinstance(token, dict) else None
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
            kind, value = (
                next(iter(piece.items())) if isinstance(piece, dict) and len(piece) == 1 else ("", None)
            )
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
