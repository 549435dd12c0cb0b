"""Read PyTorch's zip files without unpickling.

``pytorch_model.bin`` is a zip archive with the bytes of the tensors, and a pickle that describes them.
Unpickling could run code, so a small interpreter reads the pickle. It knows only some opcodes and the names
in ``GLOBALS``, and creates only dictionaries, tuples, numbers and descriptions of tensors. Any other opcode
or name raises an error. Sizes are checked before bytes are read.
"""

from __future__ import annotations

import math
import os
import pickletools
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import CheckpointError, IncompleteError, PickleError
from glassformer.reading import open_regular

CONVERT = (
    "If you trust it, convert it once: python -c "
    "\"from transformers import AutoModel; AutoModel.from_pretrained('OLD').save_pretrained('NEW')\""
)
MAX_PICKLE_BYTES = 16 * 2**20
MAX_ENTRIES = 100_000  # entries of the archive
MAX_OPCODES = 2_000_000
MAX_AXES = 16  # dimensions of a tensor

DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}


@dataclass(frozen=True)
class Name:
    """A name in ``GLOBALS``; it is never imported."""

    module: str
    name: str


@dataclass(frozen=True)
class Storage:
    """The description of one entry of the archive."""

    dtype: torch.dtype
    key: str  # name of the entry
    count: int  # number of elements


@dataclass(frozen=True)
class TensorSpec:
    """The description of a tensor: its storage and its layout in elements."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


GLOBALS = {
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
    *(("torch", name) for name in DTYPES),
}
MARK = object()
CONSTANTS = {"MARK": MARK, "NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}  # opcode -> type of an empty value


def read_zip(file: Path) -> dict[str, Tensor]:
    """The tensors of a state dict written by ``torch.save``, on the CPU.

    The state dict may also be in another dictionary, under ``state_dict`` or ``model``.

    Raises:
        CheckpointError: the file is damaged, is another kind of pickle, or has unsupported content.
    """
    try:
        with open_regular(file) as opened, zipfile.ZipFile(opened) as archive:
            entries = _check_entries(archive, file)
            root = next(name for name in entries if name.endswith("/data.pkl")).removesuffix("data.pkl")
            value = _interpret(archive.read(entries[f"{root}data.pkl"]), file)
            if root + "byteorder" in entries and archive.read(entries[root + "byteorder"]) != b"little":
                raise CheckpointError("has numbers in another byte order", where=str(file))
            return _tensors(_state_dict(value, file), archive, entries, root, file)
    except zipfile.BadZipFile as error:
        with open_regular(file) as opened:
            start = opened.read(8)
        if start == b"version ":
            what, fix = "is a Git LFS pointer, not the weights", "Run 'git lfs pull' in the repository"
            raise IncompleteError(what, where=str(file), fix=fix) from None
        if start and start[:2] != b"PK":
            what = "is a pickle, which is not read, because it could run any code"
            raise PickleError(what, where=str(file), fix=CONVERT) from None
        raise CheckpointError(f"is not readable as a zip file: {error}", where=str(file)) from None
    except (OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise CheckpointError(f"is not readable: {error}", where=str(file)) from None


def _check_entries(archive: zipfile.ZipFile, file: Path) -> dict[str, zipfile.ZipInfo]:
    """Name -> entry; raise CheckpointError for compressed, duplicate, overlapping or too large entries."""
    infos, size = archive.infolist(), os.path.getsize(file)
    entries = {info.filename: info for info in infos}
    pickles = [name for name in entries if name.endswith("/data.pkl") and name.count("/") == 1]
    what = ""
    if len(infos) > MAX_ENTRIES:
        what = f"has {len(infos):,} entries"
    elif len(entries) < len(infos):
        what = "has two entries with the same name"
    elif len(pickles) != 1:
        what = "is not a file of torch.save: it has no data.pkl"
    elif any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in infos):
        what = "has compressed or encrypted entries, which torch.save does not write"
    elif any(info.file_size != info.compress_size for info in infos):
        what = "has entries whose two sizes differ"
    elif sum(info.file_size for info in infos) > size:
        what = "has entries that overlap, or that are larger than the file"
    elif entries[pickles[0]].file_size > MAX_PICKLE_BYTES:
        what = f"describes its tensors in {entries[pickles[0]].file_size:,} bytes, too many to read"
    if what:
        raise CheckpointError(what, where=str(file), fix="Do not use this checkpoint")
    return entries


# --- the interpreter ----------------------------------------------------------------------------------


def _interpret(code: bytes, file: Path) -> Any:
    """The object that a pickle of tensors describes; no function is called."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for step, (opcode, argument, _) in enumerate(pickletools.genops(code)):
            if opcode.name == "STOP":
                (value,) = stack
                return value
            if step > MAX_OPCODES:
                raise _Unsupported(f"{step:,} opcodes")
            _execute(opcode.name, argument, stack, memo)
    except _Unsupported as error:
        what = f"uses {str(error)[:80]}, which weights do not need; no code was run"
        raise PickleError(what, where=str(file), fix="Do not use this checkpoint") from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        what = f"the description of its tensors is invalid: {error}"
        raise CheckpointError(what, where=str(file), fix="Download it again") from None
    raise CheckpointError("the description of its tensors has no end", where=str(file))


class _Unsupported(Exception):
    """The pickle uses something that tensors do not need."""


def _execute(opcode: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    """Execute one opcode; raise ``_Unsupported`` for an unknown opcode."""
    match opcode:
        case "PROTO" | "FRAME":
            pass
        case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT":
            stack.append(argument)
        case "BINUNICODE" | "SHORT_BINUNICODE" | "BINUNICODE8":
            stack.append(argument)
        case "MARK" | "NONE" | "NEWTRUE" | "NEWFALSE":
            stack.append(CONSTANTS[opcode])
        case "EMPTY_DICT" | "EMPTY_LIST" | "EMPTY_TUPLE":
            stack.append(EMPTY[opcode]())
        case "TUPLE":
            stack.append(tuple(_above_mark(stack)))
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            count = int(opcode[-1])
            if len(stack) < count:
                raise ValueError("the stack is empty")
            stack[-count:] = [tuple(stack[-count:])]
        case "GLOBAL":
            stack.append(_global(*argument.split(" ", 1)))
        case "STACK_GLOBAL":
            name, module = stack.pop(), stack.pop()
            stack.append(_global(str(module), str(name)))
        case "BINPERSID":
            stack.append(_storage(*stack.pop()))
        case "REDUCE":
            arguments, name = stack.pop(), stack.pop()
            stack.append(_result(name, arguments))
        case "BUILD":  # sets attributes; those of a dictionary (versions of modules) are not needed
            stack.pop()
            if not isinstance(stack[-1], dict):
                raise _Unsupported("the state of an object")
        case "SETITEM" | "SETITEMS":
            pairs = _above_mark(stack) if opcode == "SETITEMS" else [stack.pop(), stack.pop()][::-1]
            if not isinstance(stack[-1], dict):
                raise TypeError("items are added to a value that is not a dictionary")
            for key, value in zip(pairs[::2], pairs[1::2], strict=True):
                stack[-1][key if isinstance(key, str | int) else str(key)] = value
        case "APPEND" | "APPENDS":
            values = _above_mark(stack) if opcode == "APPENDS" else [stack.pop()]
            if not isinstance(stack[-1], list):
                raise TypeError("elements are added to a value that is not a list")
            stack[-1].extend(values)
        case "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
            memo[len(memo) if argument is None else argument] = stack[-1]
        case "BINGET" | "LONG_BINGET":
            stack.append(memo[argument])
        case _:
            raise _Unsupported(f"the opcode {opcode}")


def _above_mark(stack: list[Any]) -> list[Any]:
    """Pop the values above the last mark, and the mark."""
    mark = len(stack) - 1 - stack[::-1].index(MARK)
    values = stack[mark + 1 :]
    del stack[mark:]
    return values


def _global(module: str, name: str) -> Name:
    if (module, name) not in GLOBALS:
        raise _Unsupported(f"{module}.{name}")
    return Name(module, name)


def _storage(kind: Any, storage: Any, key: Any, _: Any, count: Any) -> Storage:
    """The storage that a persistent id describes."""
    if kind != "storage" or not isinstance(storage, Name) or storage.name not in DTYPES:
        raise _Unsupported("data that are not numbers")
    if not isinstance(key, str) or not isinstance(count, int) or count < 0:
        raise ValueError("a storage without a key or a size")
    return Storage(DTYPES[storage.name], key, count)


def _result(name: Any, arguments: Any) -> Any:
    """The result of a call, for three known functions; no function is executed."""
    if not isinstance(name, Name):
        raise _Unsupported("a call of a value")
    if name.name == "OrderedDict" and arguments in ((), ([],)):
        return {}
    if name.name == "_rebuild_parameter":
        if not isinstance(arguments[0], TensorSpec):
            raise ValueError("a parameter is not a tensor")
        return arguments[0]
    if name.name == "_rebuild_tensor_v2":
        storage, offset, size, stride = arguments[:4]
        return _describe(storage, offset, size, stride)
    raise _Unsupported(f"a call of {name.name}")


def _describe(storage: Any, offset: Any, size: Any, stride: Any) -> TensorSpec:
    numbers = [offset, *size, *stride]
    if not isinstance(storage, Storage) or not all(type(n) is int and 0 <= n < 2**48 for n in numbers):
        raise ValueError("a tensor has impossible sizes")
    if len(size) != len(stride) or len(size) > MAX_AXES:
        raise ValueError("the sizes and strides of a tensor do not match")
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if math.prod(size) else -1
    if last >= storage.count or math.prod(size) > storage.count:
        raise ValueError("a tensor exceeds its storage")
    return TensorSpec(storage, offset, tuple(size), tuple(stride))


# --- tensors --------------------------------------------------------------------------------------------


def _state_dict(value: Any, file: Path) -> dict[str, TensorSpec]:
    """The state dict, which may be in another dictionary; raise CheckpointError if there is none."""
    for key in ("state_dict", "model"):
        if isinstance(value, dict) and isinstance(value.get(key), dict):
            value = value[key]
    if not isinstance(value, dict) or not value:
        raise CheckpointError("has no dictionary of tensors", where=str(file))
    for key, spec in value.items():
        if not isinstance(key, str) or not isinstance(spec, TensorSpec):
            raise CheckpointError(f"{str(key)[:80]!r} is not a tensor", where=str(file))
    return value


def _tensors(
    state: dict[str, TensorSpec],
    archive: zipfile.ZipFile,
    entries: dict[str, zipfile.ZipInfo],
    root: str,
    file: Path,
) -> dict[str, Tensor]:
    """Create the tensors; tensors with the same storage share memory."""
    storages: dict[Storage, Tensor] = {}
    out = {}
    for name, spec in state.items():
        storage = spec.storage
        if storage not in storages:
            info, needed = entries.get(f"{root}data/{storage.key}"), storage.count * storage.dtype.itemsize
            if info is None or info.file_size != needed:
                problem = "are missing" if info is None else f"have {info.file_size:,} bytes, not {needed:,}"
                what = f"the numbers of {name[:80]!r} {problem}"
                raise CheckpointError(what, where=str(file), fix="Download it again")
            content = bytearray(archive.read(info))  # ``read`` compares the checksum
            empty = torch.empty(0, dtype=storage.dtype)  # frombuffer does not accept an empty buffer
            storages[storage] = torch.frombuffer(content, dtype=storage.dtype) if content else empty
        out[name] = storages[storage].as_strided(spec.size, spec.stride, spec.offset)
    return out
