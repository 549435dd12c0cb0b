"""Load tokenizers from files: ``tokenizer.json``, SentencePiece models, or vocabulary and merges."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from glassformer.data.sentence_pieces import (
    CONTROL,
    UNKNOWN,
    assign_ids,
    build_definition,
    class_normalizers,
    pieces_to_add,
    read_sentence_pieces,
)
from glassformer.data.text import frame_texts, tokenizer_failure
from glassformer.data.tokenizer_checks import MAX_ADDED, MAX_ID, MAX_TOKEN, Invalid, check_definition
from glassformer.data.vocabulary import (
    CONTINUATION_PREFIX,
    FRAME_BY_CLASS,
    FRAME_TOKENS,
    PIECE_IDS,
    SENTENCE_PIECE_FILES,
    TOKEN_SPELLINGS,
    UNK,
    WORD_END,
    PieceIds,
    count_ids,
)
from glassformer.errors import CheckpointError, InputError, NoTokenizerError
from glassformer.finite import json_text
from glassformer.reading import read_regular, unique_keys

FIX = "Download it again"  # for most errors of this module
T = TypeVar("T")


def _damaged_error(what: str, where: object) -> CheckpointError:
    return CheckpointError(what, where=str(where), fix=FIX)


# --- added tokens ---------------------------------------------------------------------------------
# Added tokens, such as special tokens, are separated from a text before it is split into pieces.
# ``added_tokens.json`` has tokens and ids. ``added_tokens_decoder`` of ``tokenizer_config.json`` also has the
# flags of each token; if it exists, the other file is not read.

ADDED_FILE = "added_tokens.json"
CONFIG_FILE = "tokenizer_config.json"
DECODER_KEY = "added_tokens_decoder"  # a key of the configuration
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def _added_tokens(
    special: Mapping[str, str], pieces: Mapping[str, Any], file: Path, config: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """All added tokens in the format of ``tokenizer.json``, sorted by id.

    Args:
        special: kind -> special token.
        pieces: piece -> id in the vocabulary ``file``.
        config: content of ``tokenizer_config.json`` in the same folder.

    Raises:
        CheckpointError: a file has invalid content, or the new ids do not follow those of the vocabulary.
    """
    has_flags = DECODER_KEY in config
    source = file.with_name(CONFIG_FILE if has_flags else ADDED_FILE)
    added = _read_decoder_tokens(config[DECODER_KEY], source) if has_flags else _read_added_tokens(source)
    new = _find_new_tokens(added, pieces, file, str(source))
    tokens = {token["content"]: token for token in _special_tokens(special, pieces, file, config)}
    for token in added:
        if token["content"] in new or has_flags:
            is_special = token["special"] or token["content"] in tokens
            tokens[token["content"]] = token | {"special": is_special}
    return sorted(tokens.values(), key=lambda token: token["id"])


def _special_tokens(
    special: Mapping[str, str], pieces: Mapping[str, Any], file: Path, config: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The special tokens of the vocabulary, with the flags of the configuration (by default all False)."""
    tokens: dict[str, dict[str, Any]] = {}
    for kind, token in special.items():
        if token not in pieces or token in tokens:
            continue
        if not isinstance(pieces[token], int):
            raise _damaged_error("the id of a special token is not a number", file)
        entry = config.get(f"{kind}_token")
        entry = entry if isinstance(entry, dict) else {"normalized": False}
        flags = _token_flags(entry, token, file.with_name(CONFIG_FILE))
        tokens[token] = {"id": pieces[token], "content": token, **flags, "special": True}
    return [*tokens.values()]


def _token_flags(entry: Mapping[str, Any], token: str, file: Path) -> dict[str, bool]:
    flags = {"normalized": not entry.get("special", False)} | {k: entry[k] for k in FLAGS if k in entry}
    if invalid := [key for key, value in flags.items() if not isinstance(value, bool)]:
        raise _damaged_error(f"{invalid[0]!r} of {token[:60]!r} is not a truth value", file)
    return dict.fromkeys(FLAGS, False) | flags


def _read_decoder_tokens(decoder: Any, file: Path) -> list[dict[str, Any]]:
    """The tokens of ``added_tokens_decoder``, which maps ids to tokens with flags."""
    if not isinstance(decoder, dict) or len(decoder) > MAX_ADDED:
        what = f"{DECODER_KEY} is not an object of ids with their tokens"
        raise _damaged_error(f"{what}, {MAX_ADDED:,} at most", file)
    tokens = []
    for number, token in decoder.items():
        content = token.get("content") if isinstance(token, dict) else None
        is_id = number.isascii() and number.isdecimal() and len(number) < 10
        if not is_id or not isinstance(content, str) or not 0 < len(content) <= MAX_TOKEN:
            raise _damaged_error(f"{DECODER_KEY}: {number[:60]!r} is not an id with its token", file)
        tokens.append({"id": int(number), "content": content, **_token_flags(token, content, file)})
    if len({token["content"] for token in tokens}) < len(tokens):
        raise _damaged_error(f"{DECODER_KEY} has a token twice", file)
    return tokens


def _read_added_tokens(file: Path) -> list[dict[str, Any]]:
    """The tokens of ``added_tokens.json``, which maps tokens to ids; empty if the file does not exist."""
    if not file.exists():
        return []
    ids = _read_json(file)
    if not isinstance(ids, dict) or len(ids) > MAX_ADDED:
        raise _damaged_error(f"not an object of tokens with their ids, {MAX_ADDED:,} at most", file)
    for token, index in ids.items():
        if not 0 < len(token) <= MAX_TOKEN or isinstance(index, bool) or not isinstance(index, int):
            raise _damaged_error(f"{token[:60]!r} is not a token with its id", file)
    return [{"id": index, "content": token, **_token_flags({}, token, file)} for token, index in ids.items()]


def _find_new_tokens(
    added: list[dict[str, Any]], pieces: Mapping[str, Any], file: Path, where: str
) -> set[str]:
    """The added tokens that are not in the vocabulary ``file``."""
    new = [token for token in added if pieces.get(token["content"]) != token["id"]]
    used_ids = {index for index in pieces.values() if isinstance(index, int)}
    for expected, token in enumerate(sorted(new, key=lambda token: token["id"]), len(pieces)):
        index, name = token["id"], token["content"]
        if name in pieces or index != expected or index in used_ids:
            what = f"the id of {name[:60]!r} is {str(index)[:40]}"
            what += f", in {file.name} {str(pieces[name])[:40]}" if name in pieces else f" and not {expected}"
            fix = f"Number new tokens from {len(pieces)}, the number of pieces in {file.name}"
            raise CheckpointError(what, where=where, fix=fix)
    return {token["content"] for token in new}


# --- vocabulary and merges in two files -----------------------------------------------------------
# The files are converted to the format of a ``tokenizer.json``. ``vocab.json`` with ``merges.txt`` is the
# byte-level BPE of RoBERTa (Radford et al., 2019). ``vocab.txt`` with ``bpe.codes`` is the fastBPE of PhoBERT
# (Sennrich et al., 2016). Its merges mark the end of a word (``</w>``), but its vocabulary marks pieces that
# do not end a word (``@@``).

BYTE_LEVEL_FILES, FASTBPE_FILES = ("vocab.json", "merges.txt"), ("vocab.txt", "bpe.codes")
CONTINUED_SUFFIX = "@@"  # suffix of pieces that do not end a word, in the vocabulary of fastBPE
WORD_PATTERN = r"\S+\n?"  # as in the original tokenizer, a word includes the line break after it
MAX_LINES = 2_000_000  # maximum number of lines of a vocabulary or of merges


def _byte_level_definition(file: Path, merges_file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """``vocab.json`` (``file``) and ``merges.txt`` in the format of ``tokenizer.json``.

    Raises:
        CheckpointError: a file has another format, or the vocabulary lacks the special tokens around a text.
    """
    pieces = _read_json(file)
    if not isinstance(pieces, dict):
        raise _damaged_error("not an object of pieces with their ids", file)
    special = {kind: _special_token(config, kind, names[1], file) for kind, names in TOKEN_SPELLINGS.items()}
    _check_contains(pieces, [special["cls"], special["sep"]], file, FIX)
    lines = _numbered_lines(_read_text(merges_file), merges_file)
    pairs = [_parse_merge(line.split(" "), n, merges_file) for n, line in lines if line]
    adds_blank = config.get("add_prefix_space") is True
    step = {"type": "ByteLevel", "add_prefix_space": adds_blank, "trim_offsets": True, "use_regex": True}
    return {
        "model": _bpe_model(pieces, pairs, special["unk"] if special["unk"] in pieces else None, ""),
        "pre_tokenizer": step,
        "post_processor": _post_processor(special, pieces, trim_offsets=True, add_prefix_space=adds_blank),
        "decoder": step,
        "added_tokens": _added_tokens(special, pieces, file, config),
    }


def _fastbpe_definition(file: Path, codes_file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """``vocab.txt`` (``file``) and ``bpe.codes`` in the format of ``tokenizer.json``.

    Each line has one piece, or one merge, with its count. The ids are: the special tokens, the pieces,
    [MASK], the added tokens, and last the intermediate merges that are not in the vocabulary (see
    ``Vocabulary.first_intermediate_id``).

    Raises:
        CheckpointError: a line has another format or is repeated.
    """
    special = {kind: _special_token(config, kind, names[1], file) for kind, names in TOKEN_SPELLINGS.items()}
    pieces = {special[kind]: n for n, kind in enumerate(("cls", "pad", "sep", "unk"))}
    for n, line in _numbered_lines(_read_text(file), file):
        word, blank, _ = line.strip().rpartition(" ")
        if not blank:
            raise _damaged_error(f"line {n} is not a piece with its count: {line[:60]!r}", file)
        is_continued = word.endswith(CONTINUED_SUFFIX) and word != CONTINUED_SUFFIX
        name = word.removesuffix(CONTINUED_SUFFIX) if is_continued else word + WORD_END
        if word in special.values() or pieces.setdefault(name, len(pieces)) != len(pieces) - 1:
            raise _damaged_error(f"line {n} repeats {word[:60]!r}", file)
    pieces.setdefault(special["mask"], len(pieces))
    added = _added_tokens(special, pieces, file, config)
    pieces |= {token["content"]: token["id"] for token in added}
    codes = _read_text(codes_file)
    lines = _numbered_lines(codes[: codes.rfind("\n") + 1], codes_file)
    pairs = [_parse_merge(line.split()[:-1], n, codes_file) for n, line in lines]
    pairs = list(dict.fromkeys(reversed(pairs)))[::-1]  # the last occurrence of a repeated merge counts
    for left, right in pairs:
        for piece in (left, right, left + right):
            pieces.setdefault(piece, len(pieces))
    split = {"type": "Split", "pattern": {"Regex": WORD_PATTERN}, "behavior": "Removed", "invert": True}
    return {
        "model": _bpe_model(pieces, pairs, special["unk"], WORD_END),
        "pre_tokenizer": split,
        "post_processor": _post_processor(special, pieces, trim_offsets=False, add_prefix_space=False),
        "decoder": {"type": "BPEDecoder", "suffix": WORD_END},
        "added_tokens": added,
    }


def _special_token(config: Mapping[str, Any], kind: str, default: str, file: Path) -> str:
    """The special token of a kind in ``config``, the configuration of ``file``; otherwise ``default``."""
    value = config.get(f"{kind}_token")
    token = value.get("content") if isinstance(value, dict) else value
    token = default if token is None else token
    if not isinstance(token, str) or not 0 < len(token) <= MAX_TOKEN:
        raise _damaged_error(f"{kind}_token is not a token", file.with_name(CONFIG_FILE))
    return token


def _check_contains(pieces: Container[str], tokens: Sequence[str], file: Path, fix: str) -> None:
    if missing := next((token for token in tokens if token not in pieces), None):
        raise CheckpointError(f"the vocabulary lacks {missing}", where=str(file), fix=fix)


def _numbered_lines(text: str, file: Path) -> list[tuple[int, str]]:
    """The lines of a file with their numbers, without a first line that begins with ``#version``."""
    if text.count("\n") > MAX_LINES:
        raise _damaged_error(f"more than {MAX_LINES:,} lines", file)
    lines = enumerate(text.removesuffix("\n").split("\n") if text else (), 1)
    return [(n, line.removesuffix("\r")) for n, line in lines if n > 1 or not line.startswith("#version")]


def _parse_merge(parts: list[str], n: int, file: Path) -> tuple[str, str]:
    if len(parts) != 2 or not all(parts):
        raise _damaged_error(f"line {n} is not a merge of two pieces", file)
    return parts[0], parts[1]


def _bpe_model(
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


def _post_processor(special: Mapping[str, str], pieces: Mapping[str, Any], **flags: bool) -> dict[str, Any]:
    frame = {kind: [special[kind], pieces[special[kind]]] for kind in ("sep", "cls")}
    return {"type": "RobertaProcessing", **frame, **flags}


# --- reading and building -------------------------------------------------------------------------

MAX_TOKENIZER_BYTES = 128 << 20
MAX_VALUES = 8_000_000  # JSON values in one file, estimated before parsing; each takes about 100 bytes
MAX_UNUSED_IDS = 4096  # maximum number of ids without a token in a small vocabulary
MAX_SPECIAL = 64  # maximum number of special tokens around a text
EXPECTED_FILES = (
    "Expected: tokenizer.json, vocab.json with merges.txt, vocab.txt with bpe.codes, BERT's vocab.txt "
    f"(one piece per line, {UNK} among them), or SentencePiece's file"
)
FIX_CONVERT = (
    'Convert it once: python -c "from transformers import AutoTokenizer; '
    "AutoTokenizer.from_pretrained('OLD').save_pretrained('NEW')\" and take NEW's tokenizer.json"
)
# Texts and number of ids with which a loaded tokenizer is tested.
TEST_TEXTS = ("a", "", " ", "A b.", "0", "hello, world 123", "\n\t", "x" * 50)
TEST_TEXTS += ("e\u0301\u00e9", "\u4f60\u597d", "\U0001f642\u200d", "\ufdfa\u0130", "\ufffd")
MAX_TEST_IDS = 200
TOKENIZER_FILE = "tokenizer.json"
TRUNCATION_SIDE = re.compile(r'"truncation"\s*:\s*\{[^{}]*"direction"\s*:\s*"(\w+)"')
LENGTH_SEARCHED = 4_000  # the truncation setting is in the first characters of the file
# Tokenizer classes of transformers that read ``tokenizer.json`` unchanged.
UNCHANGED_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Other classes override settings: stage, its type, key of ``tokenizer_config.json`` -> setting of the stage.
_CASES = {"do_lower_case": "lowercase", "tokenize_chinese_chars": "handle_chinese_chars"}
OVERRIDES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("normalizer", "BertNormalizer", _CASES | {"strip_accents": "strip_accents"}),
    ("pre_tokenizer", "ByteLevel", {"add_prefix_space": "add_prefix_space"}),
)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a tokenizer from a file or a folder.

    In a folder, the first of these is read: ``tokenizer.json``, ``vocab.json`` with ``merges.txt``,
    ``vocab.txt`` with ``bpe.codes``, BERT's ``vocab.txt``, a SentencePiece file (such as ``spiece.model``).
    Padding and truncation are switched off: batches have no padding, and ``encode`` truncates.

    Raises:
        CheckpointError: there is no tokenizer; it is damaged or fails on a test text; or a stage has an
            unknown type, could run without end, or could expand a text without limit.
    """
    file, *merges = tokenizer_files(path)
    if file.suffix == ".model":
        tokenizer = _load_sentence_pieces(file)
    elif merges:
        convert = _byte_level_definition if file.name == BYTE_LEVEL_FILES[0] else _fastbpe_definition
        definition = convert(file, merges[0], _read_config(file))
        tokenizer = _from_definition(definition, f"{file} with {merges[0].name}")
    elif file.suffix == ".txt":
        tokenizer = _load_wordpiece_vocabulary(file)
    else:
        tokenizer = _load_json(file)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    _test_tokenizer(tokenizer, str(file))
    return tokenizer


def tokenizer_files(path: str | Path) -> list[Path]:
    """The files that ``load_tokenizer`` reads: one file, or vocabulary and merges.

    Raises:
        CheckpointError: there is no supported file.
    """
    file = _find_file(Path(path))
    merges_name = dict([BYTE_LEVEL_FILES, FASTBPE_FILES]).get(file.name)
    files = [file] if merges_name is None else [file, file.with_name(merges_name)]
    return files if files[-1].exists() else [file]


def model_max_length(folder: Path) -> int | None:
    """``model_max_length`` of ``tokenizer_config.json``; None if it is missing or unlimited.

    Raises:
        CheckpointError: the file is damaged, or the length is below 1.
    """
    file = folder / CONFIG_FILE
    length = _read_config(file).get("model_max_length")
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
    names = _read_config(folder / CONFIG_FILE).get("model_input_names")
    if names is not None and not isinstance(names, list):
        what = f"model_input_names = {str(names)[:40]!r} is not a list"
        raise CheckpointError(what, where=str(folder / CONFIG_FILE))
    return names or ["input_ids", "token_type_ids", "attention_mask"]


def padding_id(tokenizer: Tokenizer, folder: Path) -> int:
    """The id of the padding token in ``tokenizer_config.json``; by default of a token with a usual name.

    Raises:
        CheckpointError: the tokenizer has no such token.
    """
    token = _read_config(folder / TOKENIZER_FILE).get("pad_token")
    token = token.get("content") if isinstance(token, dict) else token
    usual = *TOKEN_SPELLINGS["pad"], *TOKEN_SPELLINGS["sep"]
    names = usual if token is None else (str(token),)
    token_id = next((i for name in names if (i := tokenizer.token_to_id(name)) is not None), None)
    if token_id is None:
        what = f"the tokenizer has no padding token {names[0][:60]!r}"
        raise CheckpointError(what, where=str(folder / CONFIG_FILE), fix=FIX)
    return token_id


def check_truncation_side(folder: Path, fix: str) -> None:
    """Raise CheckpointError if the tokenizer truncates texts at their beginning, which is not supported."""
    config, file = folder / CONFIG_FILE, folder / TOKENIZER_FILE
    side = _read_config(file).get("truncation_side")
    where = config
    if side is None and file.exists():
        match = TRUNCATION_SIDE.search(_read_text(file)[:LENGTH_SEARCHED])
        side, where = match[1].lower() if match else None, file
    if side not in (None, "right"):
        what = f"truncation_side = {str(side)[:40]!r} is not supported: long texts are truncated at their end"
        raise CheckpointError(what, where=str(where), fix=fix)


def _override_stages(definition: Any, config: Mapping[str, Any]) -> Any:
    """Override settings of a ``tokenizer.json`` by ``tokenizer_config.json``, as in transformers.

    In transformers, general classes read the file unchanged, and classes of one tokenizer override settings.
    """
    class_name = str(config.get("tokenizer_class", ""))
    if class_name.startswith(UNCHANGED_CLASSES) or not isinstance(definition, dict):
        return definition
    result = dict(definition)
    for name, type_, keys in OVERRIDES:
        stage = result.get(name)
        if isinstance(stage, dict) and stage.get("type") == type_:
            overrides = {key: config[k] for k, key in keys.items() if isinstance(config.get(k), bool)}
            result[name] = stage | overrides
    return result


def _find_file(path: Path) -> Path:
    """The file of the tokenizer; if there are two, the vocabulary."""
    if not path.is_dir():
        if not path.exists():
            raise NoTokenizerError("no tokenizer here", where=str(path), fix=EXPECTED_FILES)
        return path.with_name(BYTE_LEVEL_FILES[0]) if path.name == BYTE_LEVEL_FILES[1] else path
    # ``transformers`` reads SigLIP's pieces even if there is a ``tokenizer.json``, which keeps punctuation.
    class_name = str(_read_config(path / TOKENIZER_FILE).get("tokenizer_class"))
    pieces_first = PIECE_IDS.get(class_name, PieceIds()).drops_punctuation
    for names in (
        *([n] for n in SENTENCE_PIECE_FILES if pieces_first),
        [TOKENIZER_FILE],
        BYTE_LEVEL_FILES,
        FASTBPE_FILES[:1],
        *([n] for n in SENTENCE_PIECE_FILES),
    ):
        if all((path / name).exists() for name in names):
            return path / names[0]
    raise NoTokenizerError("no tokenizer here", where=str(path), fix=EXPECTED_FILES)


def _load_json(file: Path) -> Tokenizer:
    text = _read_text(file)
    fix = FIX if file.suffix == ".json" else EXPECTED_FILES
    _check_num_values(text, file, fix)
    try:
        definition = json.loads(text, object_pairs_hook=unique_keys, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"not a tokenizer ({error})", where=str(file), fix=fix) from None
    config = _read_config(file)
    definition = _override_stages(definition, config)
    tokenizer = _from_definition(definition, str(file), fix)
    if definition.get("post_processor"):
        return tokenizer
    return _add_frame(tokenizer, FRAME_BY_CLASS.get(_class_name(config, file)), config, file)


def _from_definition(definition: Any, where: str, fix: str = FIX) -> Tokenizer:
    """Check a definition in the format of ``tokenizer.json``, and build its tokenizer."""
    checked = json_text(check_definition(definition, where), ascii=True)
    return _build(lambda: Tokenizer.from_str(checked), where, fix)


def _load_sentence_pieces(file: Path) -> Tokenizer:
    """The tokenizer of a SentencePiece file, with the ids that its class in transformers assigns."""
    config = _read_config(file)
    name = _class_name(config, file)
    piece_ids, is_known = PIECE_IDS.get(name, PieceIds()), name in PIECE_IDS
    if not is_known and config.get("tokenizer_class") is not None:
        what = f"the tokenizer class {name[:60]!r} is not supported, so the ids of the pieces are unknown"
        raise NoTokenizerError(what, where=str(file), fix=FIX_CONVERT)
    mask = _special_token(config, "mask", TOKEN_SPELLINGS["mask"][FRAME_BY_CLASS.get(name) == "angles"], file)
    try:
        model = read_sentence_pieces(_read_bytes(file))
        pieces = assign_ids(model, piece_ids, mask if is_known and not piece_ids.drops_punctuation else None)
        definition = build_definition(model, pieces, class_normalizers(piece_ids, config))
    except Invalid as error:
        raise _damaged_error(f"not a SentencePiece model that can be used: {error}", file) from None
    ids = {piece.text: i for i, piece in enumerate(pieces)}
    usual = {kind: next((n for n in names if n in ids), names[0]) for kind, names in TOKEN_SPELLINGS.items()}
    if is_known:
        usual["cls"], usual["sep"] = FRAME_TOKENS[FRAME_BY_CLASS[name]]
    special = {kind: _special_token(config, kind, usual[kind], file) for kind in TOKEN_SPELLINGS}
    special["unk"] = next(piece.text for piece in pieces if piece.kind == UNKNOWN)
    if is_known:
        _check_contains(ids, [special["cls"], special["sep"]], file, FIX)
    control = [piece.text for piece in pieces if piece.kind == CONTROL]
    flags = dict.fromkeys(FLAGS, False) | {"special": True}
    tokens = [{"id": ids[text], "content": text, **flags} for text in control]
    tokens += _added_tokens(special, ids, file, config)
    # Not normalized: the normalizer would insert a space before each of these tokens.
    added = {token["content"]: token | {"normalized": False} for token in tokens}
    definition["added_tokens"] = sorted(added.values(), key=lambda token: token["id"])
    tokenizer = _from_definition(definition, str(file))
    user_defined = _build(lambda: pieces_to_add(model, tokenizer.normalizer), str(file), FIX)
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in user_defined])
    frames = (frame for frame, names in FRAME_TOKENS.items() if set(names) <= set(control))
    return _add_frame(tokenizer, FRAME_BY_CLASS[name] if is_known else next(frames, None), config, file)


def _class_name(config: Mapping[str, Any], file: Path) -> str:
    """The name of the tokenizer's class, otherwise the model type, otherwise "None"."""
    name = config.get("tokenizer_class")
    if name is None:
        model_config = _read_config(file, "config.json")
        name = None if "glassformer" in model_config else model_config.get("model_type")
    return str(name).removesuffix("Fast")


def _add_frame(tokenizer: Tokenizer, frame: str | None, config: Mapping[str, Any], file: Path) -> Tokenizer:
    """Make a tokenizer add the special tokens of ``frame`` around texts, if it has these tokens."""
    if frame is None:
        return tokenizer
    cls, sep = (_special_token(config, k, t, file) for k, t in zip(("cls", "sep"), FRAME_TOKENS[frame]))
    cls_id, sep_id = tokenizer.token_to_id(cls), tokenizer.token_to_id(sep)
    if cls_id is None or sep_id is None:
        return tokenizer
    if frame == "brackets":
        return frame_texts(tokenizer, cls, sep)
    if frame == "end":
        tokenizer.post_processor = processors.TemplateProcessing(
            f"$A {sep}", f"$A {sep} $B {sep}", [(sep, sep_id)]
        )
        return tokenizer
    tokenizer.post_processor = processors.RobertaProcessing((sep, sep_id), (cls, cls_id))
    return tokenizer


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _build(build: Callable[[], T], where: str, fix: str) -> T:
    try:
        return build()
    except InputError:
        raise
    except BaseException as error:  # a panic is not an Exception
        if (reason := tokenizer_failure(error)) is None:
            raise
        raise CheckpointError(f"not a tokenizer ({reason})", where=where, fix=fix) from None


def _test_tokenizer(tokenizer: Tokenizer, where: str) -> None:
    """Test the tokenizer on some texts and ids, so that a damaged tokenizer fails when it is loaded."""
    num_ids, num_tokens = count_ids(tokenizer), tokenizer.get_vocab_size()
    if not 0 < num_ids <= MAX_ID or num_ids > 2 * num_tokens + MAX_UNUSED_IDS:
        what = f"its {num_tokens:,} tokens have ids up to {num_ids - 1:,}" if num_ids else "no vocabulary"
        raise CheckpointError(what, where=where, fix="Download it again, or number its tokens from 0")
    try:
        if max(map(tokenizer.num_special_tokens_to_add, (False, True))) > MAX_SPECIAL:
            raise ValueError(f"more than {MAX_SPECIAL} special tokens around a text")
        for text in TEST_TEXTS:
            if max(tokenizer.encode(text).ids + tokenizer.encode(text, text).ids, default=0) >= num_ids:
                raise ValueError("an id that is not in its vocabulary")
        for index in range(0, num_ids, max(1, num_ids // MAX_TEST_IDS)):
            tokenizer.decode([index], skip_special_tokens=False)
    except BaseException as error:  # a panic is not an Exception
        if (reason := tokenizer_failure(error)) is None:
            raise
        what = f"not a usable tokenizer: it fails on a short text ({reason})"
        raise CheckpointError(what, where=where, fix="Download it again, or do not use it") from None


def _check_num_values(text: str, file: Path, fix: str = FIX) -> None:
    """Raise CheckpointError if a JSON text has more than ``MAX_VALUES`` values, before it is parsed."""
    if sum(map(text.count, "[{,")) > MAX_VALUES:
        raise CheckpointError(f"has more than {MAX_VALUES:,} values", where=str(file), fix=fix)


def _read_config(file: Path, name: str = CONFIG_FILE) -> dict[str, Any]:
    """``tokenizer_config.json``, or another file, in the same folder; empty if it does not exist."""
    config_file = file.with_name(name)
    config = _read_json(config_file, unique=False) if config_file.is_file() else {}
    if not isinstance(config, dict):
        raise _damaged_error("not a JSON object", config_file)
    return config


def _read_json(file: Path, unique: bool = True) -> Any:
    """The content of a JSON file; raise CheckpointError if it is too large or damaged.

    Args:
        unique: whether an object with a repeated key raises an error.
    """
    text = _read_text(file)
    _check_num_values(text, file)
    try:
        return json.loads(text, object_pairs_hook=unique_keys if unique else None)
    except (ValueError, RecursionError) as error:
        raise _damaged_error(f"not JSON ({error})", file) from None


def _load_wordpiece_vocabulary(file: Path) -> Tokenizer:
    """The tokenizer of BERT's ``vocab.txt``, which has one piece per line."""
    lines = _read_text(file).removesuffix("\n").split("\n")
    vocab = {line.rstrip("\r"): index for index, line in enumerate(lines)}
    config = _read_config(file)
    special = {kind: _special_token(config, kind, names[0], file) for kind, names in TOKEN_SPELLINGS.items()}
    _check_contains(vocab, [special[kind] for kind in ("unk", "cls", "sep")], file, EXPECTED_FILES)
    added = _added_tokens(special, vocab, file, config)
    strip_accents = config.get("strip_accents")

    def build() -> Tokenizer:
        tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=special["unk"]))
        tokenizer.normalizer = normalizers.BertNormalizer(
            lowercase=config.get("do_lower_case") is not False,
            strip_accents=None if strip_accents is None else bool(strip_accents),  # None: as lowercase
            handle_chinese_chars=config.get("tokenize_chinese_chars") is not False,
        )
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION_PREFIX)
        for token in added:
            flags = {key: token[key] for key in FLAGS}
            tokenizer.add_tokens([AddedToken(token["content"], **flags)])
        return frame_texts(tokenizer, special["cls"], special["sep"])

    return _build(build, str(file), EXPECTED_FILES)


def _read_text(file: Path) -> str:
    try:
        return _read_bytes(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged_error(f"not UTF-8 ({error})", file) from None


def _read_bytes(file: Path) -> bytes:
    try:
        return read_regular(file, MAX_TOKENIZER_BYTES)
    except OSError as error:
        raise _damaged_error(error.strerror or "cannot be read", file) from None
