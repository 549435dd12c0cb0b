"""Load tokenizers from files: ``tokenizer.json``, or vocabulary and merges."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from glassformer.data.sentence_pieces import (
    CONTROL,
    UNKNOWN,
    definition,
    numbered,
    pieces_to_add,
    read_sentence_pieces,
    steps_before,
)
from glassformer.data.text import failure, frame_texts
from glassformer.data.tokenizer_parts import MAX_ADDED, MAX_ID, MAX_TEXT, Wrong, checked
from glassformer.data.vocabulary import (
    FRAMES,
    NAMES,
    PIECE_NUMBERS,
    PREFIX,
    SENTENCE_PIECES,
    UNK,
    USUAL_FRAME,
    WORD_END,
    PieceNumbers,
    id_count,
)
from glassformer.errors import CheckpointError, InputError, NoTokenizerError
from glassformer.finite import json_text
from glassformer.reading import read_regular, unique_keys

# --- added tokens ---------------------------------------------------------------------------------
# Added tokens, such as special tokens, are found in a text before it is split into pieces.
# ``added_tokens.json`` has names and ids. ``added_tokens_decoder`` of ``tokenizer_config.json`` also has the
# flags of each token; if it exists, the other file is not read.

ADDED = "added_tokens.json"
SETTINGS = "tokenizer_config.json"
DECODER = "added_tokens_decoder"  # a key of the settings
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
FIX = "Download it again"
T = TypeVar("T")


def added_tokens(
    special: Mapping[str, str],
    pieces: Mapping[str, Any],
    file: Path,
    config: Mapping[str, Any],
    more: str | None,
) -> list[dict[str, Any]]:
    """All added tokens in the format of ``tokenizer.json``, sorted by id.

    Args:
        special: kind -> special token.
        pieces: piece -> id in the vocabulary ``file``.
        config: content of ``tokenizer_config.json`` in the same folder.
        more: text of ``added_tokens.json``; None: there is no such file.

    Raises:
        CheckpointError: a file has other content, or the new ids do not follow those of the vocabulary.
    """
    if DECODER in config:
        where = str(file.with_name(SETTINGS))
        added = _decoder(config[DECODER], where)
    else:
        where = str(file.with_name(ADDED))
        added = _names(more, where)
    new = _new_tokens(added, pieces, file, where)
    found = {token["content"]: token for token in _special(special, pieces, file, config)}
    for token in added:
        if token["content"] in new or DECODER in config:
            is_special = token["special"] or token["content"] in found
            found[token["content"]] = token | {"special": is_special}
    return sorted(found.values(), key=lambda token: token["id"])


def _special(
    special: Mapping[str, str], pieces: Mapping[str, Any], file: Path, config: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The special tokens of the vocabulary, with the flags of the settings; by default all flags are off."""
    found = []
    for kind, token in special.items():
        if token not in pieces or any(token == other["content"] for other in found):
            continue
        if not isinstance(pieces[token], int):
            raise CheckpointError("the id of a special token is not a number", where=str(file), fix=FIX)
        given = config.get(f"{kind}_token")
        flags = _flags(given if isinstance(given, dict) else {}, token, str(file.with_name(SETTINGS)))
        plain = {"normalized": False} if not isinstance(given, dict) else {}
        found.append({"id": pieces[token], "content": token, **flags, **plain, "special": True})
    return found


def _flags(given: Mapping[str, Any], token: str, where: str) -> dict[str, bool]:
    flags = {"normalized": not given.get("special", False)} | {k: given[k] for k in FLAGS if k in given}
    if odd := [key for key, value in flags.items() if not isinstance(value, bool)]:
        raise CheckpointError(f"{odd[0]!r} of {token[:60]!r} is not a truth value", where=where, fix=FIX)
    return dict.fromkeys(FLAGS, False) | flags


def _decoder(given: Any, where: str) -> list[dict[str, Any]]:
    """The tokens of ``added_tokens_decoder``, which maps ids to tokens with flags."""
    if not isinstance(given, dict) or len(given) > MAX_ADDED:
        what = f"{DECODER} is not an object of ids with their tokens, {MAX_ADDED:,} at most"
        raise CheckpointError(what, where=where, fix=FIX)
    found = []
    for number, token in given.items():
        content = token.get("content") if isinstance(token, dict) else None
        is_id = number.isascii() and number.isdecimal() and len(number) < 10
        if not is_id or not isinstance(content, str) or not 0 < len(content) <= MAX_TEXT:
            what = f"{DECODER}: {number[:60]!r} is not an id with its token"
            raise CheckpointError(what, where=where, fix=FIX)
        found.append({"id": int(number), "content": content, **_flags(token, content, where)})
    if len({token["content"] for token in found}) < len(found):
        raise CheckpointError(f"{DECODER} has a token twice", where=where, fix=FIX)
    return found


def _names(text: str | None, where: str) -> list[dict[str, Any]]:
    """The tokens of ``added_tokens.json``, which maps tokens to ids."""
    if text is None:
        return []
    given = _parsed(text, where)
    if not isinstance(given, dict) or len(given) > MAX_ADDED:
        what = f"not an object of tokens with their ids, {MAX_ADDED:,} at most"
        raise CheckpointError(what, where=where, fix=FIX)
    for token, number in given.items():
        if not 0 < len(token) <= MAX_TEXT or isinstance(number, bool) or not isinstance(number, int):
            raise CheckpointError(f"{token[:60]!r} is not a token with its id", where=where, fix=FIX)
    return [{"id": number, "content": token, **_flags({}, token, where)} for token, number in given.items()]


def _new_tokens(added: list[dict[str, Any]], pieces: Mapping[str, Any], file: Path, where: str) -> set[str]:
    """The added tokens that are not in the vocabulary."""
    new = [token for token in added if pieces.get(token["content"]) != token["id"]]
    taken = {number for number in pieces.values() if isinstance(number, int)}
    for place, token in enumerate(sorted(new, key=lambda token: token["id"]), len(pieces)):
        number, name = token["id"], token["content"]
        if name in pieces or number != place or number in taken:
            what = f"the id of {name[:60]!r} is {str(number)[:40]}"
            what += f", in {file.name} {str(pieces[name])[:40]}" if name in pieces else f" and not {place}"
            fix = f"Number new tokens from {len(pieces)} on, as many as {file.name} has"
            raise CheckpointError(what, where=where, fix=fix)
    return {token["content"] for token in new}


# --- vocabulary and merges in two files -----------------------------------------------------------
# They are converted to the definition of a ``tokenizer.json``.
# ``vocab.json`` with ``merges.txt`` is the byte-level BPE of RoBERTa (Radford et al., 2019). ``vocab.txt``
# with ``bpe.codes`` is the fastBPE of PhoBERT (Sennrich et al., 2016): the text is segmented into words
# beforehand; the merges mark the end of a word (``</w>``), while the vocabulary marks pieces that do not end
# one (``@@``).

BYTE_LEVEL, FAST = ("vocab.json", "merges.txt"), ("vocab.txt", "bpe.codes")
CONTINUED = "@@"  # suffix of pieces that do not end a word, in the vocabulary of fastBPE
WORDS = r"\S+\n?"  # like the original tokenizer, which leaves a line break with its word
MAX_LINES = 2_000_000


def byte_level(
    vocab: str, merges: str, file: Path, config: Mapping[str, Any], more: str | None = None
) -> dict[str, Any]:
    """The definition for ``vocab.json`` (``file``) and ``merges.txt``.

    Args:
        more: text of ``added_tokens.json``; None: there is no such file.

    Raises:
        CheckpointError: a file has another format, or the vocabulary lacks the special tokens around a text.
    """
    pieces = _parsed(vocab, str(file))
    if not isinstance(pieces, dict):
        raise CheckpointError("not an object of pieces with their ids", where=str(file), fix=FIX)
    special = {kind: _named(config, kind, NAMES[kind][1], file) for kind in NAMES}
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
    """The definition for ``vocab.txt`` (``file``) and ``bpe.codes``: one piece, or merge, with its count per
    line.

    The ids of the vocabulary are those of the original tokenizer; those of the added tokens (``more``, the
    text of ``added_tokens.json``) follow. Intermediate merges that the vocabulary lacks have ids after these;
    see ``Vocabulary.steps``.

    Raises:
        CheckpointError: a line has another format or is repeated; the message has file and line.
    """
    special = {kind: _named(config, kind, NAMES[kind][1], file) for kind in NAMES}
    pieces = {special[kind]: n for n, kind in enumerate(("cls", "pad", "sep", "unk"))}
    for n, line in _lines(vocab, file):
        word, blank, _ = line.strip().rpartition(" ")
        if not blank:
            what = f"line {n} is not a piece with its count: {line[:60]!r}"
            raise CheckpointError(what, where=str(file), fix=FIX)
        continued = word.endswith(CONTINUED) and word != CONTINUED
        name = word.removesuffix(CONTINUED) if continued else word + WORD_END
        if word in special.values() or pieces.setdefault(name, len(pieces)) != len(pieces) - 1:
            raise CheckpointError(f"line {n} repeats {word[:60]!r}", where=str(file), fix=FIX)
    pieces.setdefault(special["mask"], len(pieces))
    added = added_tokens(special, pieces, file, config, more)
    pieces |= {token["content"]: token["id"] for token in added}
    where = file.with_name(FAST[1])
    pairs = [_pair(line.split()[:-1], n, where) for n, line in _lines(codes[: codes.rfind("\n") + 1], where)]
    pairs = list(dict.fromkeys(reversed(pairs)))[::-1]  # of a repeated merge, the last counts
    for left, right in pairs:
        for step in (left, right, left + right):
            pieces.setdefault(step, len(pieces))
    split = {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Removed", "invert": True}
    return {
        "model": _bpe(pieces, pairs, special["unk"], WORD_END),
        "pre_tokenizer": split,
        "post_processor": _frame(special, pieces) | {"trim_offsets": False, "add_prefix_space": False},
        "decoder": {"type": "BPEDecoder", "suffix": WORD_END},
        "added_tokens": added,
    }


def _named(config: Mapping[str, Any], kind: str, default: str, file: Path) -> str:
    """A special token from the settings in the same folder, otherwise ``default``."""
    value = config.get(f"{kind}_token")
    token = value.get("content") if isinstance(value, dict) else value
    token = default if token is None else token
    if not isinstance(token, str) or not 0 < len(token) <= MAX_TEXT:
        raise CheckpointError(f"{kind}_token is not a token", where=str(file.with_name(SETTINGS)), fix=FIX)
    return token


def _lines(text: str, file: Path) -> list[tuple[int, str]]:
    """Lines with their numbers, without a ``#version`` in the first line."""
    if text.count("\n") > MAX_LINES:
        raise CheckpointError(f"more than {MAX_LINES:,} lines", where=str(file), fix=FIX)
    lines = enumerate(text.removesuffix("\n").split("\n") if text else (), 1)
    return [(n, line.removesuffix("\r")) for n, line in lines if not (n == 1 and line.startswith("#version"))]


def _pair(parts: list[str], number: int, file: Path) -> tuple[str, str]:
    if len(parts) != 2 or not all(parts):
        raise CheckpointError(f"line {number} is not a merge of two pieces", where=str(file), fix=FIX)
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


# --- reading and building -------------------------------------------------------------------------

MAX_TOKENIZER_BYTES = 128 << 20
MAX_VALUES = 8_000_000  # JSON values in one file, estimated before parsing: each takes about 100 bytes
MAX_HOLES = 4096  # unused ids
MAX_SPECIAL = 64  # special tokens around a text
WANTED = (
    "Expected: tokenizer.json, vocab.json with merges.txt, vocab.txt with bpe.codes, BERT's vocab.txt "
    f"(one piece per line, {UNK} among them), or SentencePiece's file"
)
CONVERT = (
    'Convert it once: python -c "from transformers import AutoTokenizer; '
    "AutoTokenizer.from_pretrained('OLD').save_pretrained('NEW')\" and take NEW's tokenizer.json"
)
TRIED = ("a", "", " ", "A b.", "0", "hello, world 123", "\n\t", "x" * 50)
TRIED += ("e\u0301\u00e9", "\u4f60\u597d", "\U0001f642\u200d", "\ufdfa\u0130", "\ufffd")
TRIED_IDS = 200
TOKENIZER = "tokenizer.json"
CUT = re.compile(r'"truncation"\s*:\s*\{[^{}]*"direction"\s*:\s*"(\w+)"')
HEAD = 4_000  # first characters of the file, which include its truncation
# Classes of transformers that do not modify the tokenizer of the file.
AS_THE_FILE = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Stage of the file, its type, and the keys of ``tokenizer_config.json`` by which other classes override it.
_CASES = {"do_lower_case": "lowercase", "tokenize_chinese_chars": "handle_chinese_chars"}
CONFIGURED: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("normalizer", "BertNormalizer", _CASES | {"strip_accents": "strip_accents"}),
    ("pre_tokenizer", "ByteLevel", {"add_prefix_space": "add_prefix_space"}),
)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a tokenizer from a file or a folder: from the first that exists of ``tokenizer.json``,
    ``vocab.json`` with ``merges.txt``, ``vocab.txt`` with ``bpe.codes``, BERT's ``vocab.txt``, and
    SentencePiece's file (``spiece.model``, ``sentencepiece.bpe.model``, ...).

    Padding and truncation are switched off: batches have no padding, and ``encode`` truncates.

    Raises:
        CheckpointError: there is no tokenizer; it is damaged; it has a stage of unknown type, or one that
            could run without end or expand a text without bounds; it has no unknown token, or ids that are
            too large.
    """
    file, *merges = files_of(path)
    if file.suffix == ".model":
        tokenizer = _from_pieces(file)
    elif merges:
        tokenizer = _from_lists(file, _read_bounded(file))
    else:
        read = _from_vocabulary if file.suffix == ".txt" else _from_json
        tokenizer = read(file, _read_bounded(file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    _try(tokenizer, str(file))
    return tokenizer


def files_of(path: str | Path) -> list[Path]:
    """The files that ``load_tokenizer`` reads: one file, or vocabulary and merges.

    Raises:
        CheckpointError: there is no supported file.
    """
    file, lists = _found(Path(path)), {names[0]: names for names in (BYTE_LEVEL, FAST)}
    merges = file.with_name(lists[file.name][1]) if file.name in lists else None
    return [file, merges] if merges is not None and merges.exists() else [file]


def model_max_length(folder: Path) -> int | None:
    """``model_max_length`` of ``tokenizer_config.json``; None if it is missing or unlimited.

    Raises:
        CheckpointError: the file is damaged, or the length is below 1.
    """
    file = folder / SETTINGS
    length = _settings(file).get("model_max_length")
    if isinstance(length, bool) or not isinstance(length, int | float) or length > MAX_ID:
        return None  # transformers writes "no limit" as a number of thirty digits
    if length < 1 or length != int(length):
        raise CheckpointError(f"model_max_length = {length} is not a number of tokens", where=str(file))
    return int(length)


def model_inputs(folder: Path) -> list[str]:
    """``model_input_names`` of ``tokenizer_config.json``, the inputs of the model; by default all three.

    Raises:
        CheckpointError: the file is damaged, or the names are not a list.
    """
    names = _settings(folder / SETTINGS).get("model_input_names")
    if names is not None and not isinstance(names, list):
        what = f"model_input_names = {str(names)[:40]!r} is not a list"
        raise CheckpointError(what, where=str(folder / SETTINGS))
    return names or ["input_ids", "token_type_ids", "attention_mask"]


def check_cut(folder: Path, fix: str) -> None:
    """Raise CheckpointError if the tokenizer truncates texts at their beginning, which is not supported."""
    config, file = folder / SETTINGS, folder / TOKENIZER
    side = _settings(file).get("truncation_side")
    where = config
    if side is None and file.exists():
        found = CUT.search(_read_bounded(file)[:HEAD])
        side, where = found[1].lower() if found else None, file
    if side not in (None, "right"):
        what = f"truncation_side = {str(side)[:40]!r} is not supported: long texts are truncated at their end"
        raise CheckpointError(what, where=str(where), fix=fix)


def _as_configured(definition: Any, config: Mapping[str, Any]) -> Any:
    """Override stages of a ``tokenizer.json`` by ``tokenizer_config.json``, as in transformers.

    There, the general class reads the file unchanged; a class of one type of tokenizer replaces stages.
    """
    kind = str(config.get("tokenizer_class", ""))
    if kind.startswith(AS_THE_FILE) or not isinstance(definition, dict):
        return definition
    out = dict(definition)
    for stage, type_, names in CONFIGURED:
        part = out.get(stage)
        if not isinstance(part, dict) or part.get("type") != type_:
            continue
        overrides = {own: config[key] for key, own in names.items() if isinstance(config.get(key), bool)}
        out[stage] = part | overrides
    return out


def _found(path: Path) -> Path:
    """The tokenizer's file, or the vocabulary if there are two files."""
    if not path.is_dir():
        if not path.exists():
            raise NoTokenizerError("no tokenizer here", where=str(path), fix=WANTED)
        return path.with_name(BYTE_LEVEL[0]) if path.name == BYTE_LEVEL[1] else path
    for names in ((TOKENIZER,), BYTE_LEVEL, FAST[:1]):
        if all((path / name).exists() for name in names):
            return path / names[0]
    if found := next((path / name for name in SENTENCE_PIECES if (path / name).exists()), None):
        return found
    raise NoTokenizerError("no tokenizer here", where=str(path), fix=WANTED)


def _from_lists(file: Path, text: str) -> Tokenizer:
    """The tokenizer of a vocabulary, ``vocab.json`` or ``vocab.txt``, and the merges in the same folder."""
    read, (_, merges) = (byte_level, BYTE_LEVEL) if file.name == BYTE_LEVEL[0] else (fast, FAST)
    _check_values(text, file)
    definition = read(text, _read_bounded(file.with_name(merges)), file, _settings(file), _more(file))
    where = f"{file} with {merges}"
    safe = json_text(checked(definition, where), ascii=True)
    return _built(lambda: Tokenizer.from_str(safe), where, FIX)


def _from_json(file: Path, text: str) -> Tokenizer:
    fix = FIX if file.suffix == ".json" else WANTED
    _check_values(text, file, fix)
    try:
        definition = json.loads(text, object_pairs_hook=unique_keys, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"not a tokenizer ({error})", where=str(file), fix=fix) from None
    config = _settings(file)
    definition = _as_configured(definition, config)
    safe = json_text(checked(definition, str(file)), ascii=True)  # without unchecked keys
    tokenizer = _built(lambda: Tokenizer.from_str(safe), str(file), fix)
    if definition.get("post_processor"):
        return tokenizer
    return _framed(tokenizer, FRAMES.get(_kind(config, file)), config, file)


def _from_pieces(file: Path) -> Tokenizer:
    """The tokenizer of a SentencePiece file, with the ids that its class in transformers assigns."""
    config = _settings(file)
    name = _kind(config, file)
    numbers, known = PIECE_NUMBERS.get(name, PieceNumbers()), name in PIECE_NUMBERS
    if not known and config.get("tokenizer_class") is not None:
        what = f"which ids {name[:60]!r} gives to SentencePiece's pieces is not known"
        raise NoTokenizerError(what, where=str(file), fix=CONVERT)
    mask = _named(config, "mask", NAMES["mask"][FRAMES.get(name) == "angles"], file)
    try:
        model = read_sentence_pieces(_read_bytes(file))
        rows = numbered(model, numbers, mask if known else None)
        stages = definition(model, rows, steps_before(numbers, config))
    except Wrong as error:
        what = f"not a SentencePiece model that can be used: {error}"
        raise CheckpointError(what, where=str(file), fix=FIX) from None
    ids = {row.text: i for i, row in enumerate(rows)}
    usual = {kind: next((n for n in names if n in ids), names[0]) for kind, names in NAMES.items()}
    usual |= dict(zip(("cls", "sep"), USUAL_FRAME[FRAMES[name]], strict=True)) if known else {}
    special = {kind: _named(config, kind, usual[kind], file) for kind in NAMES}
    special["unk"] = next(row.text for row in rows if row.kind == UNKNOWN)
    if known and (lacking := next((special[k] for k in ("cls", "sep") if special[k] not in ids), None)):
        raise CheckpointError(f"the vocabulary lacks {lacking}", where=str(file), fix=FIX)
    control = [row.text for row in rows if row.kind == CONTROL]
    plain = dict.fromkeys(FLAGS, False)
    tokens = [{"id": ids[text], "content": text, **plain, "special": True} for text in control]
    tokens += added_tokens(special, ids, file, config, _more(file))
    # Not normalized: the normalizer would insert a space before each of them.
    added = {token["content"]: token | {"normalized": False} for token in tokens}
    stages["added_tokens"] = sorted(added.values(), key=lambda token: token["id"])
    text = json_text(checked(stages, str(file)), ascii=True)
    tokenizer = _built(lambda: Tokenizer.from_str(text), str(file), FIX)
    apart = _built(lambda: pieces_to_add(model, tokenizer.normalizer), str(file), FIX)
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in apart])
    own = (frame for frame, names in USUAL_FRAME.items() if set(names) <= set(control))
    return _framed(tokenizer, FRAMES[name] if known else next(own, None), config, file)


def _kind(config: Mapping[str, Any], file: Path) -> str:
    """The tokenizer's class, or the model type in its place; "None" if neither is stated."""
    kind = config.get("tokenizer_class")
    if kind is None:
        about = _settings(file, "config.json")
        kind = None if "glassformer" in about else about.get("model_type")
    return str(kind).removesuffix("Fast")


def _framed(tokenizer: Tokenizer, frame: str | None, config: Mapping[str, Any], file: Path) -> Tokenizer:
    """Add the special tokens around texts that the tokenizer's class adds, for a file that adds none."""
    if frame is None:
        return tokenizer
    cls, sep = (_named(config, *kind, file) for kind in zip(("cls", "sep"), USUAL_FRAME[frame], strict=True))
    ids: dict[str, Any] = {token: tokenizer.token_to_id(token) for token in (cls, sep)}
    if None in ids.values():
        return tokenizer
    if frame == "brackets":
        return frame_texts(tokenizer, cls, sep)
    tokenizer.post_processor = processors.RobertaProcessing((sep, ids[sep]), (cls, ids[cls]))
    return tokenizer


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _built(build: Callable[[], T], where: str, fix: str) -> T:
    try:
        return build()
    except InputError:
        raise
    except BaseException as error:  # a panic is not an Exception
        if (reason := failure(error)) is None:
            raise
        raise CheckpointError(f"not a tokenizer ({reason})", where=where, fix=fix) from None


def _try(tokenizer: Tokenizer, where: str) -> None:
    """Test the tokenizer on some texts and ids, so that a damaged one fails now and not in use."""
    rows = id_count(tokenizer)
    if not 0 < rows <= MAX_ID or rows > 2 * tokenizer.get_vocab_size() + MAX_HOLES:
        what = (
            f"its {tokenizer.get_vocab_size():,} tokens have ids up to {rows - 1:,}"
            if rows
            else "no vocabulary"
        )
        raise CheckpointError(what, where=where, fix="Download it again, or number its tokens from 0 on")
    try:
        if max(map(tokenizer.num_special_tokens_to_add, (False, True))) > MAX_SPECIAL:
            raise ValueError(f"more than {MAX_SPECIAL} special tokens around a text")
        for text in TRIED:
            if max(tokenizer.encode(text).ids + tokenizer.encode(text, text).ids, default=0) >= rows:
                raise ValueError("an id that is not in its vocabulary")
        for number in range(0, rows, max(1, rows // TRIED_IDS)):
            tokenizer.decode([number], skip_special_tokens=False)
    except BaseException as error:  # as above
        if (reason := failure(error)) is None:
            raise
        what = f"not a usable tokenizer: it fails on a short text ({reason})"
        raise CheckpointError(what, where=where, fix="Download it again, or do not use it") from None


def _more(file: Path) -> str | None:
    """The text of ``added_tokens.json`` in the same folder; None if there is none."""
    extra = file.with_name(ADDED)
    more = _read_bounded(extra) if extra.exists() else None
    _check_values(more or "", extra)
    return more


def _check_values(text: str, file: Path, fix: str = FIX) -> None:
    """Raise CheckpointError if a JSON text has more than ``MAX_VALUES`` values, before it is parsed."""
    if sum(map(text.count, "[{,")) > MAX_VALUES:
        raise CheckpointError(f"has more than {MAX_VALUES:,} values", where=str(file), fix=fix)


def _settings(file: Path, name: str = SETTINGS) -> dict[str, Any]:
    """``tokenizer_config.json``, or another file of settings, in the same folder; empty if there is none."""
    config_file = file.with_name(name)
    if not config_file.is_file():
        return {}
    config = _parsed(_read_bounded(config_file), str(config_file), unique=False)
    if not isinstance(config, dict):
        raise CheckpointError("not a JSON object", where=str(config_file), fix=FIX)
    return config


def _parsed(text: str, where: str, unique: bool = True) -> Any:
    """Parse JSON; raise CheckpointError if the text is not JSON, or (with ``unique``) has a key twice."""
    try:
        return json.loads(text, object_pairs_hook=unique_keys if unique else None)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"not JSON ({error})", where=where, fix=FIX) from None


def _from_vocabulary(file: Path, text: str) -> Tokenizer:
    """BERT's slow format: one piece per line, with the settings in tokenizer_config.json."""
    vocab = {line.rstrip("\r"): index for index, line in enumerate(text.removesuffix("\n").split("\n"))}
    config = _settings(file)
    kinds = {kind: _named(config, kind, NAMES[kind][0], file) for kind in NAMES}
    if lacking := next((kinds[kind] for kind in ("unk", "cls", "sep") if kinds[kind] not in vocab), None):
        raise CheckpointError(f"the vocabulary lacks {lacking}", where=str(file), fix=WANTED)
    added = added_tokens(kinds, vocab, file, config, _more(file))

    def build() -> Tokenizer:
        tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=kinds["unk"]))
        tokenizer.normalizer = normalizers.BertNormalizer(
            lowercase=config.get("do_lower_case") is not False,
            strip_accents=None
            if (strip := config.get("strip_accents")) is None
            else bool(strip),  # None: as lowercase
            handle_chinese_chars=config.get("tokenize_chinese_chars") is not False,
        )
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(prefix=PREFIX)
        for token in added:
            flags = {key: token[key] for key in FLAGS}
            tokenizer.add_tokens([AddedToken(token["content"], **flags)])
        return frame_texts(tokenizer, kinds["cls"], kinds["sep"])

    return _built(build, str(file), WANTED)


def _read_bounded(file: Path) -> str:
    try:
        return _read_bytes(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"not UTF-8 ({error})", where=str(file), fix=FIX) from None


def _read_bytes(file: Path) -> bytes:
    try:
        return read_regular(file, MAX_TOKENIZER_BYTES)
    except OSError as error:
        raise CheckpointError(error.strerror or "cannot be read", where=str(file), fix=FIX) from None
