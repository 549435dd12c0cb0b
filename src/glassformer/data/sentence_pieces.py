"""SentencePiece's model files (``spiece.model``, ``sentencepiece.bpe.model``, ...), read without its library.

Such a file is a message of Protocol Buffers: pieces with scores, how they were trained, and how texts are
normalized. The reader knows the fields that ids depend on, and checks every length, type and value before it
is used; nothing in a file can name code. The result is a definition as a ``tokenizer.json`` has it, with
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

from glassformer.data.tokenizer_parts import CHANGED_APART, MARKS_APART, MAX_PIECE, TRAILING, Wrong
from glassformer.data.vocabulary import SPACES, PieceNumbers

MAX_PIECES = 2_000_000
MAX_LETTERS = 8_000_000  # of all pieces of BPE: each place between two may be a merge
BLANK = SPACES[1]
# Worse than any segmentation: pieces that stand for no text have an id, and no text is cut into them.
NEVER = -1e6
# Tables of characters that compose accents, by their names. `Precompiled` looks letters up one by one or, up
# to five bytes, by their first part: it leaves decomposed Hangul as it is and drops a second accent.
COMPOSING = ("nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")
APART = "\ufdd0"  # a noncharacter: no text has it

# --- Protocol Buffers -----------------------------------------------------------------------------

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5  # wire types; 3 and 4, groups, are in no such file
Fields = Mapping[int, tuple[str, int]]  # number -> name, wire type
PIECE: Fields = {1: ("piece", BYTES), 2: ("score", FOUR), 3: ("type", VARINT)}
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
    """A number of at most 64 bits, and where the next field begins."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Wrong("it is cut")
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
        if not 0 < number < 1 << 29 or wire not in (VARINT, EIGHT, BYTES, FOUR):
            raise Wrong(f"field {number} of the wire type {wire}, which there is not")
        size = {EIGHT: 8, FOUR: 4}.get(wire, 0)
        if wire in (VARINT, BYTES):
            size, at = _varint(data, at)
        if wire == VARINT:
            yield number, wire, size
            continue
        if size > len(data) - at:
            raise Wrong(f"field {number} has {size:,} bytes, and {len(data) - at:,} are left")
        yield number, wire, data[at : at + size]
        at += size


def _message(data: bytes, known: Fields) -> dict[str, Any]:
    """The known fields of a message by their names; others are passed over."""
    found: dict[str, Any] = {}
    for number, wire, value in _fields(data):
        if number not in known:
            continue
        name, wanted = known[number]
        if wire != wanted:
            raise Wrong(f"{name!r} has the wire type {wire}, and {wanted} is its own")
        if name in found:
            raise Wrong(f"{name!r} occurs twice in one message")
        found[name] = struct.unpack("<f", value)[0] if wire == FOUR else value
    return found


def _is_set(message: dict[str, Any], name: str, default: bool) -> bool:
    value = message.get(name, int(default))
    if value not in (0, 1):
        raise Wrong(f"{name} = {value}, only 0 and 1 are read")
    return bool(value)


# --- the model ------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """One of a vocabulary: what it stands for, how good it is, and which of the six kinds it is of."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieces:
    """A SentencePiece model: its pieces by their ids, and how a text becomes pieces."""

    pieces: list[Piece]
    model: str  # Unigram or BPE
    byte_fallback: bool  # what no piece stands for becomes pieces of bytes
    charsmap: bytes
    rules: str  # the name of that table
    prefixed: bool  # a blank is put before a text
    collapsed: bool  # several blanks are one, at the ends none


def read_sentence_pieces(data: bytes) -> SentencePieces:
    """The model in a file.

    Raises:
        Wrong: it is another file, is cut or lies about a length, or has what is not supported.
    """
    if data.startswith(b"version "):
        raise Wrong("it is a Git LFS pointer, and 'git lfs pull' fetches the file")
    parts: dict[int, bytes] = {}
    pieces: list[Piece] = []
    for number, wire, value in _fields(data):
        if number > 3:
            continue
        if wire != BYTES or number in parts:
            raise Wrong(f"field {number} of the model {'occurs twice' if wire == BYTES else 'is none'}")
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
        raise Wrong(f"a model of {MODEL_TYPES.get(model, f'type {model}')}, only Unigram and BPE are read")
    for message, name, wanted in (
        (trainer, "treat_whitespace_as_suffix", False),
        (normalizer, "escape_whitespaces", True),
    ):
        if _is_set(message, name, wanted) != wanted:
            raise Wrong(f"{name} = {str(not wanted).lower()} is not supported")
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
        raise Wrong(f"piece {index} has {len(text):,} characters, 1 to {MAX_PIECE} are read")
    if not math.isfinite(score):
        raise Wrong(f"the score of piece {index} is {score}")
    if not NORMAL <= kind <= BYTE:
        raise Wrong(f"piece {index} is of type {kind}, 1 to 6 are known")
    return Piece(text, score, kind)


def _check_pieces(pieces: list[Piece], byte_fallback: bool) -> None:
    seen: set[str] = set()
    if twice := next((text for text, *_ in pieces if text in seen or seen.add(text)), None):
        raise Wrong(f"the piece {twice[:60]!r} occurs twice")
    if (count := sum(piece.kind == UNKNOWN for piece in pieces)) != 1:
        raise Wrong(f"{count} pieces for what is unknown, one is needed")
    found = {piece.text for piece in pieces if piece.kind == BYTE}
    if found != ({f"<0x{byte:02X}>" for byte in range(256)} if byte_fallback else set()):
        raise Wrong(f"{len(found)} pieces of bytes, with byte_fallback = {str(byte_fallback).lower()}")


# --- its tokenizer --------------------------------------------------------------------------------


def numbered(model: SentencePieces, numbers: PieceNumbers, mask: str | None) -> list[Piece]:
    """Pieces by their ids in the table of embeddings.

    Args:
        mask: its id follows the pieces where it is none of them; None: nothing does.
    """
    out, rows = model.pieces[: numbers.replaced], model.pieces[numbers.replaced :]
    if not {piece.kind for piece in out} <= {UNKNOWN, CONTROL}:
        raise Wrong(f"its first {numbers.replaced} pieces are not the special ones such a model begins with")
    if numbers.plain:  # a comma stays apart from the digit before it
        rows = [row._replace(score=row.score - 100) if re.search(r"\d,$", row.text) else row for row in rows]
    kinds = (UNKNOWN if i == numbers.unknown else CONTROL for i in range(len(numbers.before)))
    rows = [Piece(text, 0.0, kind) for text, kind in zip(numbers.before, kinds, strict=True)] + rows
    if mask is not None and all(row.text != mask for row in rows):
        rows.append(Piece(mask, 0.0, CONTROL))
    if len({row.text for row in rows}) < len(rows) or sum(row.kind == UNKNOWN for row in rows) != 1:
        raise Wrong("its pieces and the special tokens of such a model do not go together")
    return rows


def looked_for_first(model: SentencePieces, normalizer: Any) -> list[str]:
    """The pieces of a user's that ``definition`` cannot find among others: they are added tokens."""
    own = [piece.text for piece in model.pieces if piece.kind == USER_DEFINED]
    return [
        t for t in own if model.model == "BPE" or normalizer.normalize_str(t).strip(BLANK) != t.strip(BLANK)
    ]


def definition(model: SentencePieces, rows: list[Piece], before: list[dict[str, Any]]) -> dict[str, Any]:
    """Model and stages as a ``tokenizer.json`` has them; added tokens and the frame are left to be put in.

    Args:
        rows: of ``numbered``.
        before: steps of a normalizer that go before SentencePiece's.
    """
    usable = {row.text for row in rows if row.kind in (NORMAL, USER_DEFINED)}
    unknown = next(i for i, row in enumerate(rows) if row.kind == UNKNOWN)
    bpe = model.model == "BPE"
    if idle := next((r.text for r in rows if r.kind == UNUSED and (bpe or len(r.text) == 1)), None):
        raise Wrong(f"the unused piece {idle[:60]!r} is not supported: texts would be cut into it")
    # Where a blank only begins pieces, words can be looked at one by one, and met again.
    split = BLANK in usable and not any(BLANK in text[1:] for text in usable)
    cut = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "never", "split": True}
    plain = {"type": "Replace", "pattern": {"String": BLANK}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": int(model.prefixed), "stop": 0}
    decoders = [plain, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]
    if not bpe:
        best = max(0.0, *(row.score for row in rows if row.kind == NORMAL), 0.0)
        vocab = [[row.text, _score(row, best)] for row in rows]
        made = {"type": "Unigram", "unk_id": unknown, "vocab": vocab, "byte_fallback": model.byte_fallback}
    else:
        if spaced := next((row.text for row in rows if row.kind == USER_DEFINED and BLANK in row.text), None):
            raise Wrong(f"a piece of a user's with a blank, {spaced[:60]!r}, is not supported in BPE")
        made = {
            "type": "BPE",
            "unk_token": rows[unknown].text,
            "fuse_unk": True,
            "byte_fallback": model.byte_fallback,
            "vocab": {row.text: i for i, row in enumerate(rows)},
            "merges": _merges({row.text: row.score for row in rows if row.kind == NORMAL}),
        }
    return {
        "model": made,
        "normalizer": {"type": "Sequence", "normalizers": [*before, *_normalizers(model)]},
        "pre_tokenizer": cut if split else None,
        "decoder": {"type": "Sequence", "decoders": decoders},
    }


def _score(piece: Piece, best: float) -> float:
    """What Unigram adds for a piece; one of a user's is nearly free, as in SentencePiece."""
    if piece.kind == USER_DEFINED:
        return len(piece.text.encode()) * best - 0.1
    return piece.score if piece.kind == NORMAL else NEVER


def _merges(normal: dict[str, float]) -> list[list[str]]:
    """Every way to make a piece of two others: the best piece first, of one the longest left part."""
    if sum(map(len, normal)) > MAX_LETTERS:
        raise Wrong(f"its pieces have more than {MAX_LETTERS:,} characters")
    found = [
        (-score, -cut, text[:cut], text[cut:])
        for text, score in normal.items()
        for cut in range(1, len(text))
        if text[:cut] in normal and text[cut:] in normal
    ]
    return [[left, right] for _, _, left, right in sorted(found, key=lambda merge: merge[:2])]


def _normalizers(model: SentencePieces) -> Iterator[dict[str, Any]]:
    """SentencePiece's own steps before a text is cut."""
    if model.charsmap:
        table = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.charsmap).decode()}
        nfc = {"type": "NFC"}
        if model.rules in COMPOSING:  # marks that are held apart keep their order, and none is lost
            yield from (_replaced(MARKS_APART, APART), nfc, _replaced(CHANGED_APART, APART))
        yield table
        if model.rules in COMPOSING:
            yield from (nfc, _replaced(APART, ""))
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
    """What a class changes in a text before SentencePiece reads it, as ``tokenizer_config.json`` says."""
    if config.get("split_by_punct") is True:
        raise Wrong("split_by_punct = true is not supported")
    steps = []
    if numbers.plain:
        quotes = ("``", "''")
        steps += [{"type": "Replace", "pattern": {"String": q}, "content": '"'} for q in quotes]
        if config.get("keep_accents") is not True:
            steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    lowercase = config.get("do_lower_case")
    if numbers.plain if lowercase is None else lowercase is True:
        steps.append({"type": "Lowercase"})
    return steps
