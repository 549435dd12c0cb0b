"""SentencePiece's model files (``spiece.model``, ``sentencepiece.bpe.model``, ...), read without its library.

Such a file is a message of Protocol Buffers: pieces with scores, how they were trained, and how texts are
normalized. Only fields that affect ids are parsed. Every length, type and value is checked before it is used;
a file cannot make code run (unlike pickle). The result is a definition as a ``tokenizer.json`` has it, with
SentencePiece's ids (Kudo and Richardson, 2018).
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from glassformer.data.tokenizer_parts import BEFORE_MARK, BETWEEN_MARKS, MAX_PIECE, TRAILING, Wrong
from glassformer.data.vocabulary import SPACES, PieceNumbers

MAX_PIECES = 2_000_000
MAX_LETTERS = 8_000_000  # in all pieces of BPE: each position in a piece is tried as a merge
BLANK = SPACES[1]
# Score of pieces that must not occur in a text (control, unused): lower than that of any segmentation.
NEVER = -1e6
# Names of the tables that compose accents. The `Precompiled` step of tokenizers leaves decomposed Hangul
# unchanged and drops a second accent, so `_normalizers` composes letters before that step.
COMPOSING = ("nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")
SEPARATOR = "\ufdd0"  # a noncharacter, which no text contains

# --- Protocol Buffers -----------------------------------------------------------------------------

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types, without groups (3, 4)
Fields = Mapping[int, tuple[str, int]]  # number -> name, wire type
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


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of at most 64 bits, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Wrong("the file is truncated")
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >= 1 << 64:
                break
            return value, at
    raise Wrong("a number has more than 64 bits")


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of every field of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if not 0 < number < 1 << 29 or wire not in (VARINT, FIXED64, BYTES, FIXED32):
            raise Wrong(f"field {number} has the unknown wire type {wire}")
        if wire in (VARINT, BYTES):
            value, at = _varint(data, at)
        if wire == VARINT:
            yield number, wire, value
            continue
        size = value if wire == BYTES else {FIXED64: 8, FIXED32: 4}[wire]
        if size > len(data) - at:
            raise Wrong(f"field {number} has {size:,} bytes, but only {len(data) - at:,} are left")
        yield number, wire, data[at : at + size]
        at += size


def _message(data: bytes, known: Fields) -> dict[str, Any]:
    """The known fields of a message by their names; other fields are ignored."""
    message: dict[str, Any] = {}
    for number, wire, value in _fields(data):
        if number not in known:
            continue
        name, expected = known[number]
        if wire != expected:
            raise Wrong(f"{name!r} has wire type {wire}, expected {expected}")
        if name in message:
            raise Wrong(f"{name!r} occurs twice in one message")
        message[name] = struct.unpack("<f", value)[0] if wire == FIXED32 else value
    return message


def _is_set(message: dict[str, Any], name: str, default: bool) -> bool:
    value = message.get(name, int(default))
    if value not in (0, 1):
        raise Wrong(f"{name} = {value}, expected 0 or 1")
    return bool(value)


# --- the model ------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A piece of the vocabulary: its text, its score (log probability or rank) and its type, 1 to 6."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieces:
    """A SentencePiece model: pieces by their ids, and how a text is split into pieces."""

    pieces: list[Piece]
    model: str  # Unigram or BPE
    byte_fallback: bool  # characters without a piece are split into byte pieces
    charsmap: bytes  # the table of normalization rules
    rules: str  # name of the rules in ``charsmap``, such as nmt_nfkc
    prefixed: bool  # a blank is put before a text
    collapsed: bool  # runs of blanks become one; blanks at both ends are removed


def read_sentence_pieces(data: bytes) -> SentencePieces:
    """The model in a file.

    Raises:
        Wrong: it is not a SentencePiece model, is truncated or inconsistent, or needs an unsupported feature.
    """
    if data.startswith(b"version "):
        raise Wrong("it is a Git LFS pointer, and 'git lfs pull' fetches the file")
    parts: dict[int, bytes] = {}
    pieces: list[Piece] = []
    for number, wire, value in _fields(data):
        if number > 3:
            continue
        if wire != BYTES or number in parts:
            raise Wrong(f"field {number} {'occurs twice' if wire == BYTES else 'is not a message'}")
        if number > 1:
            parts[number] = value
            continue
        if len(pieces) == MAX_PIECES:
            raise Wrong(f"more than {MAX_PIECES:,} pieces")
        pieces.append(_piece(value, len(pieces)))
    if not pieces:
        raise Wrong("it has no pieces")
    trainer, normalizer = _message(parts.get(2, b""), TRAINER), _message(parts.get(3, b""), NORMALIZER)
    byte_fallback = _is_set(trainer, "byte_fallback", False)
    _check_pieces(pieces, byte_fallback)
    model = trainer.get("model_type", 1)
    if model not in (1, 2):
        raise Wrong(f"the model type is {MODEL_TYPES.get(model, model)}; only Unigram and BPE are supported")
    for message, name, supported in (
        (trainer, "treat_whitespace_as_suffix", False),
        (normalizer, "escape_whitespaces", True),
    ):
        if _is_set(message, name, supported) != supported:
            raise Wrong(f"{name} = {str(not supported).lower()} is not supported")
    return SentencePieces(
        pieces,
        MODEL_TYPES[model],
        byte_fallback,
        normalizer.get("precompiled_charsmap", b""),
        normalizer.get("name", b"")[:64].decode("utf-8", "replace"),
        _is_set(normalizer, "add_dummy_prefix", True),
        _is_set(normalizer, "remove_extra_whitespaces", True),
    )


def _piece(data: bytes, index: int) -> Piece:
    message = _message(data, PIECE)
    score, kind = message.get("score", 0.0), message.get("type", NORMAL)
    try:
        text = message.get("piece", b"").decode("utf-8")
    except UnicodeDecodeError:
        raise Wrong(f"piece {index} is not UTF-8") from None
    if not 0 < len(text) <= MAX_PIECE:
        raise Wrong(f"piece {index} has {len(text):,} characters; 1 to {MAX_PIECE} are supported")
    if not math.isfinite(score):
        raise Wrong(f"the score of piece {index} is {score}")
    if not NORMAL <= kind <= BYTE:
        raise Wrong(f"piece {index} has the unknown type {kind}")
    return Piece(text, score, kind)


def _check_pieces(pieces: list[Piece], byte_fallback: bool) -> None:
    seen: set[str] = set()
    if twice := next((text for text, *_ in pieces if text in seen or seen.add(text)), None):
        raise Wrong(f"the piece {twice[:60]!r} occurs twice")
    if (count := sum(piece.kind == UNKNOWN for piece in pieces)) != 1:
        raise Wrong(f"{count} unknown tokens, expected one")
    byte_pieces = {piece.text for piece in pieces if piece.kind == BYTE}
    if byte_pieces != ({f"<0x{byte:02X}>" for byte in range(256)} if byte_fallback else set()):
        raise Wrong(
            f"byte_fallback is {str(byte_fallback).lower()}, with {len(byte_pieces)} of 256 byte pieces"
        )


# --- its tokenizer --------------------------------------------------------------------------------


def numbered(model: SentencePieces, numbers: PieceNumbers, mask: str | None) -> list[Piece]:
    """Pieces by their ids in the table of embeddings.

    Args:
        mask: mask token; appended if it is not one of the pieces. None: no token is appended.
    """
    replaced, kept = model.pieces[: numbers.replaced], model.pieces[numbers.replaced :]
    if not {piece.kind for piece in replaced} <= {UNKNOWN, CONTROL}:
        raise Wrong(f"the first {numbers.replaced} pieces are not the special tokens of such a model")
    if numbers.simplified:  # a comma stays apart from the digit before it
        kept = [p._replace(score=p.score - 100) if re.search(r"\d,$", p.text) else p for p in kept]
    kinds = (UNKNOWN if i == numbers.unknown else CONTROL for i in range(len(numbers.special)))
    pieces = [Piece(text, 0.0, kind) for text, kind in zip(numbers.special, kinds, strict=True)] + kept
    if mask is not None and all(piece.text != mask for piece in pieces):
        pieces.append(Piece(mask, 0.0, CONTROL))
    if len({piece.text for piece in pieces}) < len(pieces) or sum(p.kind == UNKNOWN for p in pieces) != 1:
        raise Wrong("the pieces do not fit the special tokens of such a model")
    return pieces


def pieces_to_add(model: SentencePieces, normalizer: Any) -> list[str]:
    """User-defined pieces that must become added tokens, as BPE or the normalizer would split them."""
    texts = [piece.text for piece in model.pieces if piece.kind == USER_DEFINED]
    return [
        t for t in texts if model.model == "BPE" or normalizer.normalize_str(t).strip(BLANK) != t.strip(BLANK)
    ]


def definition(model: SentencePieces, pieces: list[Piece], before: list[dict[str, Any]]) -> dict[str, Any]:
    """Model and stages as in ``tokenizer.json``; the caller adds the added tokens and the post-processor.

    Args:
        pieces: the result of ``numbered``.
        before: normalizer steps that precede those of SentencePiece.
    """
    usable = {piece.text for piece in pieces if piece.kind in (NORMAL, USER_DEFINED)}
    unknown = next(i for i, piece in enumerate(pieces) if piece.kind == UNKNOWN)
    bpe = model.model == "BPE"
    if unused := next((p.text for p in pieces if p.kind == UNUSED and (bpe or len(p.text) == 1)), None):
        raise Wrong(f"the unused piece {unused[:60]!r} is not supported: texts would be tokenized with it")
    # If blanks only begin pieces, words can be tokenized separately, which lets the tokenizer cache them.
    split = BLANK in usable and not any(BLANK in text[1:] for text in usable)
    metaspace = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "never", "split": True}
    to_space = {"type": "Replace", "pattern": {"String": BLANK}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": int(model.prefixed), "stop": 0}
    decoders = [to_space, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]
    if not bpe:
        best = max(0.0, *(piece.score for piece in pieces if piece.kind == NORMAL), 0.0)
        vocab = [[piece.text, _score(piece, best)] for piece in pieces]
        stage = {"type": "Unigram", "unk_id": unknown, "vocab": vocab, "byte_fallback": model.byte_fallback}
    else:
        if spaced := next((p.text for p in pieces if p.kind == USER_DEFINED and BLANK in p.text), None):
            raise Wrong(f"the user-defined piece {spaced[:60]!r} contains a blank, unsupported in BPE")
        stage = {
            "type": "BPE",
            "unk_token": pieces[unknown].text,
            "fuse_unk": True,
            "byte_fallback": model.byte_fallback,
            "vocab": {piece.text: i for i, piece in enumerate(pieces)},
            "merges": _merges({piece.text: piece.score for piece in pieces if piece.kind == NORMAL}),
        }
    return {
        "model": stage,
        "normalizer": {"type": "Sequence", "normalizers": [*before, *_normalizers(model)]},
        "pre_tokenizer": metaspace if split else None,
        "decoder": {"type": "Sequence", "decoders": decoders},
    }


def _score(piece: Piece, best: float) -> float:
    """The score of a piece in Unigram; a user-defined piece costs almost nothing, as in SentencePiece."""
    if piece.kind == USER_DEFINED:
        return len(piece.text.encode()) * best - 0.1
    return piece.score if piece.kind == NORMAL else NEVER


def _merges(normal: dict[str, float]) -> list[list[str]]:
    """All pairs of pieces that form a piece, by its score; for the same piece the longest left part first."""
    if sum(map(len, normal)) > MAX_LETTERS:
        raise Wrong(f"its pieces have more than {MAX_LETTERS:,} characters")
    merges = [
        (-score, -cut, text[:cut], text[cut:])
        for text, score in normal.items()
        for cut in range(1, len(text))
        if text[:cut] in normal and text[cut:] in normal
    ]
    return [[left, right] for _, _, left, right in sorted(merges, key=lambda merge: merge[:2])]


def _normalizers(model: SentencePieces) -> Iterator[dict[str, Any]]:
    """SentencePiece's normalization steps, before a text is tokenized."""
    if model.charsmap:
        table = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.charsmap).decode()}
        nfc = {"type": "NFC"}
        if model.rules in COMPOSING:  # a separator keeps `Precompiled` from reordering or dropping marks
            yield from (_replaced(BETWEEN_MARKS, SEPARATOR), nfc, _replaced(BEFORE_MARK, SEPARATOR))
        yield table
        if model.rules in COMPOSING:
            yield from (nfc, _replaced(SEPARATOR, ""))
    if model.collapsed:
        yield from (_replaced(" {2,}", " "), _replaced(r"\A ", ""))
    if model.prefixed:
        yield {"type": "Prepend", "prepend": BLANK}
    yield {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}
    if model.collapsed:
        yield _replaced(TRAILING, "")


def _replaced(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def steps_before(numbers: PieceNumbers, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Normalizer steps of a tokenizer class before those of SentencePiece; see ``tokenizer_config.json``."""
    if config.get("split_by_punct") is True:
        raise Wrong("split_by_punct = true is not supported")
    steps = []
    if numbers.simplified:
        quotes = ("``", "''")
        steps += [{"type": "Replace", "pattern": {"String": q}, "content": '"'} for q in quotes]
        if config.get("keep_accents") is not True:
            steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    lowercase = config.get("do_lower_case")
    if numbers.simplified if lowercase is None else lowercase is True:
        steps.append({"type": "Lowercase"})
    return steps
