"""Convert SentencePiece model files to the format of ``tokenizer.json``, without the sentencepiece library.

A model file (``spiece.model``, ``sentencepiece.bpe.model``; Kudo and Richardson, 2018) is a Protocol Buffers
message with pieces and scores, the settings of training, and the rules by which texts are normalized. Only
fields that affect token ids are parsed. Every length, type and value is checked before it is used.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from glassformer.data.tokenizer_checks import (
    COMPOSED,
    GUARD_CHAR,
    GUARD_POSITIONS,
    JOINT_CHAR,
    JOINT_POSITIONS,
    MAX_PIECE,
    SEPARATED,
    TRAILING_BLANKS,
    Invalid,
)
from glassformer.data.vocabulary import BLANK_MARKS, PieceIds

MAX_PIECES = 2_000_000
MAX_LETTERS = 8_000_000  # total characters of BPE pieces; each position in a piece is tried as a merge
BLANK = BLANK_MARKS[1]  # SentencePiece's mark for a space
# Score of pieces that must not occur in a text (control, unused): lower than the score of any segmentation.
FORBIDDEN_SCORE = -1e6
# Names of normalization rules that compose letters and marks.
COMPOSING_RULES = ("nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")
MAX_MARKS = 3  # maximum number of marks of one composed letter
# Case folding turns this combining mark (iota) into a letter. A placeholder replaces the mark during folding,
# so that it can still be composed with the letter before it.
IOTA, IOTA_PLACEHOLDER = "\u0345", "\ufdd2"

ASCII_PUNCTUATION = r"[!-/:-@\[-`{-~]"  # regular expression
# --- Protocol Buffers -----------------------------------------------------------------------------

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types; groups (3 and 4) are not supported
Fields = Mapping[int, tuple[str, int]]  # number of a field -> its name and wire type
PIECE: Fields = {1: ("piece", BYTES), 2: ("score", FIXED32), 3: ("type", VARINT)}
TRAINER: Fields = {
    3: ("model_type", VARINT),
    24: ("treat_whitespace_as_suffix", VARINT),
    35: ("byte_fallback", VARINT),
}
NORMALIZER: Fields = {
    1: ("name", BYTES),
    2: ("precompiled_charsmap", BYTES),
    3: ("add_dummy_prefix", VARINT),
    4: ("remove_extra_whitespaces", VARINT),
    5: ("escape_whitespaces", VARINT),
}
MODEL_TYPES = {1: "Unigram", 2: "BPE", 3: "words", 4: "characters"}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number of at most 64 bits at ``position``, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise Invalid("the file is truncated")
        byte, position = data[position], position + 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >= 1 << 64:
                break
            return value, position
    raise Invalid("a number has more than 64 bits")


def _read_fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield the number, wire type and value of every field of a message."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        number, wire = key >> 3, key & 7
        if not 0 < number < 1 << 29 or wire not in (VARINT, FIXED64, BYTES, FIXED32):
            raise Invalid(f"field {number} has the unknown wire type {wire}")
        if wire in (VARINT, BYTES):
            value, position = _read_varint(data, position)
        if wire == VARINT:
            yield number, wire, value
            continue
        size = value if wire == BYTES else {FIXED64: 8, FIXED32: 4}[wire]
        if size > len(data) - position:
            raise Invalid(f"field {number} has {size:,} bytes, but only {len(data) - position:,} are left")
        yield number, wire, data[position : position + size]
        position += size


def _parse_message(data: bytes, fields: Fields) -> dict[str, Any]:
    """The known fields of a message by their names; other fields are ignored."""
    message: dict[str, Any] = {}
    for number, wire, value in _read_fields(data):
        if number not in fields:
            continue
        name, expected = fields[number]
        if wire != expected:
            raise Invalid(f"{name!r} has wire type {wire}, expected {expected}")
        if name in message:
            raise Invalid(f"{name!r} occurs twice in one message")
        message[name] = struct.unpack("<f", value)[0] if wire == FIXED32 else value
    return message


def _read_flag(message: dict[str, Any], name: str, default: bool) -> bool:
    value = message.get(name, int(default))
    if value not in (0, 1):
        raise Invalid(f"{name} = {value}, expected 0 or 1")
    return bool(value)


# --- the model ------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A piece of the vocabulary."""

    text: str
    score: float  # Unigram: log probability; BPE: minus the rank
    kind: int  # NORMAL to BYTE


@dataclass(frozen=True)
class SentencePieces:
    """The content of a SentencePiece model file."""

    pieces: list[Piece]  # by id
    model: str  # Unigram or BPE
    byte_fallback: bool  # whether characters without a piece are split into byte pieces
    charsmap: bytes  # the table of normalization rules
    rules_name: str  # name of the rules in ``charsmap``, such as nmt_nfkc
    adds_blank: bool  # whether a blank is put before a text
    collapses_blanks: bool  # whether runs of blanks become one, and blanks at both ends are removed


def read_sentence_pieces(data: bytes) -> SentencePieces:
    """Parse the content of a model file.

    Raises:
        Invalid: not a SentencePiece model, truncated or inconsistent, or with an unsupported feature.
    """
    if data.startswith(b"version "):
        raise Invalid("it is a Git LFS pointer; 'git lfs pull' downloads the file")
    submessages: dict[int, bytes] = {}
    pieces: list[Piece] = []
    for number, wire, value in _read_fields(data):
        if number > 3:  # 1: a piece, 2: settings of training, 3: of normalization
            continue
        if wire != BYTES or number in submessages:
            raise Invalid(f"field {number} {'occurs twice' if wire == BYTES else 'is not a message'}")
        if number > 1:
            submessages[number] = value
            continue
        if len(pieces) == MAX_PIECES:
            raise Invalid(f"more than {MAX_PIECES:,} pieces")
        pieces.append(_parse_piece(value, len(pieces)))
    if not pieces:
        raise Invalid("it has no pieces")
    trainer = _parse_message(submessages.get(2, b""), TRAINER)
    normalizer = _parse_message(submessages.get(3, b""), NORMALIZER)
    byte_fallback = _read_flag(trainer, "byte_fallback", False)
    _check_pieces(pieces, byte_fallback)
    model = trainer.get("model_type", 1)
    model = MODEL_TYPES.get(model, model)
    if model not in ("Unigram", "BPE"):
        raise Invalid(f"the model type is {model}; only Unigram and BPE are supported")
    if _read_flag(trainer, "treat_whitespace_as_suffix", False):
        raise Invalid("treat_whitespace_as_suffix = true is not supported")
    if not _read_flag(normalizer, "escape_whitespaces", True):
        raise Invalid("escape_whitespaces = false is not supported")
    return SentencePieces(
        pieces,
        model,
        byte_fallback,
        normalizer.get("precompiled_charsmap", b""),
        normalizer.get("name", b"")[:64].decode("utf-8", "replace"),
        _read_flag(normalizer, "add_dummy_prefix", True),
        _read_flag(normalizer, "remove_extra_whitespaces", True),
    )


def _parse_piece(data: bytes, index: int) -> Piece:
    message = _parse_message(data, PIECE)
    score, kind = message.get("score", 0.0), message.get("type", NORMAL)
    try:
        text = message.get("piece", b"").decode("utf-8")
    except UnicodeDecodeError:
        raise Invalid(f"piece {index} is not UTF-8") from None
    if not 0 < len(text) <= MAX_PIECE:
        raise Invalid(f"piece {index} has {len(text):,} characters; 1 to {MAX_PIECE} are supported")
    if not math.isfinite(score):
        raise Invalid(f"the score of piece {index} is {score}")
    if not NORMAL <= kind <= BYTE:
        raise Invalid(f"piece {index} has the unknown type {kind}")
    return Piece(text, score, kind)


def _check_pieces(pieces: list[Piece], byte_fallback: bool) -> None:
    seen: set[str] = set()
    if duplicate := next((text for text, *_ in pieces if text in seen or seen.add(text)), None):
        raise Invalid(f"the piece {duplicate[:60]!r} occurs twice")
    if (count := sum(piece.kind == UNKNOWN for piece in pieces)) != 1:
        raise Invalid(f"{count} unknown tokens, expected one")
    byte_pieces = {piece.text for piece in pieces if piece.kind == BYTE}
    if byte_pieces != ({f"<0x{byte:02X}>" for byte in range(256)} if byte_fallback else set()):
        value = str(byte_fallback).lower()
        raise Invalid(f"byte_fallback is {value}, with {len(byte_pieces)} of 256 byte pieces")


# --- the tokenizer of a model ---------------------------------------------------------------------


def assign_ids(model: SentencePieces, ids: PieceIds, mask: str | None) -> list[Piece]:
    """The pieces in the order of their ids in the embedding matrix; the special tokens come first.

    Args:
        mask: mask token, which is appended if it is not one of the pieces; None: append no token.
    """
    special = [Piece(t, 0.0, UNKNOWN if i == ids.unknown else CONTROL) for i, t in enumerate(ids.special)]
    replaced_pieces, others = model.pieces[: ids.num_replaced], model.pieces[ids.num_replaced :]
    if not {piece.kind for piece in replaced_pieces} <= {UNKNOWN, CONTROL}:
        what = "pieces are not the special tokens of this tokenizer class"
        raise Invalid(f"the first {ids.num_replaced} {what}")
    if ids.simplifies_text:  # ALBERT separates a comma from the digit before it
        others = [p._replace(score=p.score - 100) if re.search(r"\d,$", p.text) else p for p in others]
    pieces = special + others
    if mask is not None and all(piece.text != mask for piece in pieces):
        pieces.append(Piece(mask, 0.0, CONTROL))
    if len({piece.text for piece in pieces}) < len(pieces) or sum(p.kind == UNKNOWN for p in pieces) != 1:
        raise Invalid("the pieces do not match the special tokens of this tokenizer class")
    return pieces


def pieces_to_add(model: SentencePieces, normalizer: Any) -> list[str]:
    """User-defined pieces that must become added tokens, because BPE or the normalizer would split them."""
    texts = [piece.text for piece in model.pieces if piece.kind == USER_DEFINED]
    if model.model == "BPE":
        return texts
    return [text for text in texts if normalizer.normalize_str(text).strip(BLANK) != text.strip(BLANK)]


def build_definition(
    model: SentencePieces, pieces: list[Piece], first_normalizers: list[dict[str, Any]]
) -> dict[str, Any]:
    """The model, normalizer, pre-tokenizer and decoder in the format of ``tokenizer.json``.

    Args:
        pieces: the result of ``assign_ids``.
        first_normalizers: normalizer steps before the steps of SentencePiece.
    """
    usable = {piece.text for piece in pieces if piece.kind in (NORMAL, USER_DEFINED)}
    unknown = next(i for i, piece in enumerate(pieces) if piece.kind == UNKNOWN)
    is_bpe = model.model == "BPE"
    if unused := next((p.text for p in pieces if p.kind == UNUSED and (is_bpe or len(p.text) == 1)), None):
        raise Invalid(f"the unused piece {unused[:60]!r} is not supported: texts would be tokenized with it")
    # If blanks occur only at the start of pieces, words can be tokenized separately, and the tokenizer can
    # cache them.
    splits_at_blanks = BLANK in usable and not any(BLANK in text[1:] for text in usable)
    metaspace = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "never", "split": True}
    strip = {"type": "Strip", "content": " ", "start": int(model.adds_blank), "stop": 0}
    decoders = [_replace(" ", String=BLANK), {"type": "ByteFallback"}, {"type": "Fuse"}, strip]
    if not is_bpe:
        best = max([0.0, *(piece.score for piece in pieces if piece.kind == NORMAL)])
        vocab = [[piece.text, _unigram_score(piece, best)] for piece in pieces]
        stage = {"type": "Unigram", "unk_id": unknown, "vocab": vocab, "byte_fallback": model.byte_fallback}
    else:
        if with_blank := next((p.text for p in pieces if p.kind == USER_DEFINED and BLANK in p.text), None):
            raise Invalid(f"the user-defined piece {with_blank[:60]!r} contains a blank, unsupported in BPE")
        stage = {
            "type": "BPE",
            "unk_token": pieces[unknown].text,
            "fuse_unk": True,
            "byte_fallback": model.byte_fallback,
            "vocab": {piece.text: i for i, piece in enumerate(pieces)},
            "merges": _list_merges({piece.text: piece.score for piece in pieces if piece.kind == NORMAL}),
        }
    return {
        "model": stage,
        "normalizer": {"type": "Sequence", "normalizers": [*first_normalizers, *_normalization_steps(model)]},
        "pre_tokenizer": metaspace if splits_at_blanks else None,
        "decoder": {"type": "Sequence", "decoders": decoders},
    }


def _unigram_score(piece: Piece, best: float) -> float:
    """The score of a piece in Unigram; user-defined pieces are almost always used, as in SentencePiece."""
    if piece.kind == USER_DEFINED:
        return len(piece.text.encode()) * best - 0.1
    return piece.score if piece.kind == NORMAL else FORBIDDEN_SCORE


def _list_merges(scores: dict[str, float]) -> list[list[str]]:
    """All pairs of pieces that form a piece, sorted by its score, then by the length of the left piece."""
    if sum(map(len, scores)) > MAX_LETTERS:
        raise Invalid(f"its pieces have more than {MAX_LETTERS:,} characters")
    merges = [
        (-score, -cut, text[:cut], text[cut:])
        for text, score in scores.items()
        for cut in range(1, len(text))
        if text[:cut] in scores and text[cut:] in scores
    ]
    return [[left, right] for _, _, left, right in sorted(merges, key=lambda merge: merge[:2])]


def _normalization_steps(model: SentencePieces) -> Iterator[dict[str, Any]]:
    if model.charsmap:
        table = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.charsmap).decode()}
        folds = model.rules_name.endswith("_cf")
        yield from (_replace(GUARD_CHAR, Regex=GUARD_POSITIONS), _replace(JOINT_CHAR, Regex=JOINT_POSITIONS))
        if folds:
            yield _replace(IOTA_PLACEHOLDER, String=IOTA)
        yield table
        if folds:
            yield _replace(IOTA, String=IOTA_PLACEHOLDER)
        for _ in range(MAX_MARKS if model.rules_name in COMPOSING_RULES else 0):
            yield from (_replace("", Regex=COMPOSED), {"type": "NFC"})
        if folds:
            yield _replace("ι", String=IOTA)
        yield _replace("", Regex=SEPARATED)
    if model.collapses_blanks:
        yield from (_replace(" ", Regex=" {2,}"), _replace("", Regex=r"\A "))
    if model.adds_blank:
        yield {"type": "Prepend", "prepend": BLANK}
    yield _replace(BLANK, String=" ")
    if model.collapses_blanks:
        yield _replace("", Regex=TRAILING_BLANKS)


def _replace(content: str, **pattern: str) -> dict[str, Any]:
    """A step that replaces a pattern, ``String=...`` or ``Regex=...``, by ``content``."""
    return {"type": "Replace", "pattern": pattern, "content": content}


def class_normalizers(piece_ids: PieceIds, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The normalizer steps that a tokenizer class applies before SentencePiece's.

    ``config`` is the content of ``tokenizer_config.json``.
    """
    if config.get("split_by_punct") is True:
        raise Invalid("split_by_punct = true is not supported")
    steps = []
    if piece_ids.simplifies_text:
        steps += [_replace('"', String="``"), _replace('"', String="''")]
        if config.get("keep_accents") is not True:
            steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    lowercase = config.get("do_lower_case")
    folds_case = piece_ids.simplifies_text or piece_ids.drops_punctuation
    if folds_case if lowercase is None else lowercase is True:
        steps.append({"type": "Lowercase"})
    if piece_ids.drops_punctuation:
        steps += [_replace("", Regex=ASCII_PUNCTUATION), _replace(" ", Regex=r"\s+")]
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
    return steps
