"""Read and write tensors in safetensors files.

    model.safetensors                                     one file, or
    model-00001-of-00002.safetensors ...                  shards and
    model.safetensors.index.json                          {"weight_map": {tensor: shard}, ...}

If a folder has no safetensors but PyTorch's zip files (``pytorch_model.bin``), ``torch_zip.py`` reads them
without unpickling. Other pickle files raise an error, because reading them can run code.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
import struct
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.torch_zip import CONVERT, read_zip
from glassformer.errors import (
    CannotWriteError,
    CheckpointError,
    IncompleteError,
    NoSuchModelError,
    PickleError,
)
from glassformer.finite import json_text
from glassformer.reading import open_regular

MAX_HEADER_BYTES = 16 * 2**20
MAPPED: Any = WeakTensorKeyDictionary()  # memory-mapped tensor -> its file, first byte and last byte + 1
CHUNK_BYTES = 16 * 2**20  # number of bytes of a tensor that are copied at a time
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
_DOWNLOAD_AGAIN = "Download the complete folder again"
_READ_ERRORS = (SafetensorError, OSError, ValueError, KeyError, RuntimeError, OverflowError, TypeError)


def read_tensors(folder: str | Path, name: str = "model") -> dict[str, Tensor]:
    """The tensors of ``{name}.safetensors`` or its shards, otherwise of ``pytorch_{name}.bin``, on the CPU.

    Files are memory-mapped: bytes are read when a tensor is first used, and ``copy_and_release`` frees them.
    This function does not compare checksums; :func:`glassformer.checkpoints.files.verify_folder` does.

    Raises:
        CheckpointError: there are no weights, or only pickled weights; a header is damaged or too large; or
            an index does not match its shards.
    """
    tensors: dict[str, Tensor] = {}
    for file, expected in _weight_files(Path(folder), name):
        try:
            if file.suffix == ".bin":
                shard = read_zip(file)
            else:
                _check_header(file)
                shard = _map_file(file)
        except _READ_ERRORS as error:
            raise _damaged_error(file, error) from None
        if expected is not None and shard.keys() != expected:
            tensor = sorted(shard.keys() ^ expected)[0]
            what = f"the index lists {tensor!r} in this shard, but the shard does not have it"
            if tensor in shard:
                what = f"the shard has {tensor!r}, but the index does not list it"
            raise CheckpointError(what, where=str(file), fix=_DOWNLOAD_AGAIN)
        tensors.update(shard)
    return tensors


class _MappedFile:
    """A memory-mapped weights file: pages are read when they are used, and ``drop`` frees their memory."""

    def __init__(self, file: Path):
        self.file, self.descriptor = file, os.open(file, os.O_RDONLY)
        weakref.finalize(self, os.close, self.descriptor)
        self.pages = mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_COPY)
        self.state = self._state()

    def _state(self) -> tuple[int, int]:
        info = os.fstat(self.descriptor)
        return info.st_size, info.st_mtime_ns

    def check(self) -> None:
        """Raise CheckpointError if another program has written to the file."""
        if self._state() != self.state:
            what = "was changed after it was opened"
            raise CheckpointError(what, where=str(self.file), fix="Load the model again")

    def drop(self, begin: int, end: int) -> None:
        """Free the memory of the complete pages between two bytes; using them reads them again."""
        page = mmap.PAGESIZE
        begin, end = -(-begin // page) * page, end // page * page
        if hasattr(mmap, "MADV_DONTNEED") and begin < end:
            self.pages.madvise(mmap.MADV_DONTNEED, begin, end - begin)


def _map_file(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, memory-mapped if possible, and recorded in ``MAPPED``."""
    tensors = load_file(file)  # compares the header with the file
    mapped = _MappedFile(file)
    (length,) = struct.unpack("<Q", mapped.pages[:8])
    header = json.loads(mapped.pages[8 : 8 + length])
    for name, tensor in tensors.items():
        begin, end = (8 + length + offset for offset in header[name]["data_offsets"])
        if tensor.numel() and begin % tensor.itemsize == 0:
            flat = torch.frombuffer(mapped.pages, dtype=tensor.dtype, count=tensor.numel(), offset=begin)
            tensors[name] = flat.view(tensor.shape)
            MAPPED[tensors[name]] = (mapped, begin, end)
    return tensors


def copy_and_release(target: Tensor, tensor: Tensor) -> None:
    """Copy a tensor of ``read_tensors`` in chunks, and free the memory of each; using it reads it again."""
    file, begin, end = MAPPED.get(tensor, (None, 0, 0))
    if file is None or tensor.nbytes <= CHUNK_BYTES:
        target.copy_(tensor)
    else:
        rows = max(1, CHUNK_BYTES * len(tensor) // tensor.nbytes)
        for first in range(0, len(tensor), rows):
            target[first : first + rows].copy_(tensor[first : first + rows])
            file.drop(begin, begin + tensor[:first].nbytes)
    if file is not None:
        file.drop(begin, end)


def check_unchanged(tensors: Iterable[Tensor]) -> None:
    """Raise CheckpointError if another program has written to a file of ``read_tensors``."""
    for file in {mapped[0] for tensor in tensors if (mapped := MAPPED.get(tensor))}:
        file.check()


def write_tensors(
    folder: str | Path,
    tensors: Mapping[str, Tensor],
    max_shard_bytes: int | None = None,
    name: str = "model",
) -> list[Path]:
    """Write ``tensors`` to an existing folder, in one file or in shards with an index.

    Tensors may be on any device, be views, or share memory; shared memory is written twice.

    Args:
        max_shard_bytes: maximum size of a file; None: one file.

    Returns:
        The safetensors files that were written.

    Raises:
        GlassformerError: the disk is full or read-only.
    """
    folder = Path(folder)
    shards: list[dict[str, Tensor]] = [{}]
    shard_bytes = 0
    for key, tensor in tensors.items():
        if shards[-1] and max_shard_bytes is not None and shard_bytes + tensor.nbytes > max_shard_bytes:
            shards.append({})
            shard_bytes = 0
        shards[-1][key] = tensor
        shard_bytes += tensor.nbytes
    if len(shards) == 1:
        names = [f"{name}.safetensors"]
    else:
        names = [f"{name}-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    for file_name, shard in zip(names, shards, strict=True):
        try:
            (folder / file_name).touch()
            mode = (folder / file_name).stat().st_mode  # the default mode of new files
            save_file(_separate(shard), folder / file_name, {"format": "pt"})
            os.chmod(folder / file_name, stat.S_IMODE(mode))  # safetensors creates files for the owner only
        except (SafetensorError, OSError) as error:
            raise CannotWriteError.of(folder / file_name, error) from error
    if len(shards) > 1:
        index = {
            "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
            "weight_map": {key: n for n, shard in zip(names, shards, strict=True) for key in shard},
        }
        text = json_text(index, indent=2, sort_keys=True, ascii=True) + "\n"
        (folder / f"{name}.safetensors.index.json").write_text(text, encoding="utf-8")
    return [folder / file_name for file_name in names]


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous CPU tensors that do not share memory, as safetensors requires."""
    seen: set[int] = set()
    separate = {}
    for key, tensor in tensors.items():
        tensor = tensor.detach().to("cpu").contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes:
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        elif tensor.nbytes:
            seen.add(storage.data_ptr())
        separate[key] = tensor
    return separate


def _weight_files(folder: Path, name: str) -> list[tuple[Path, set[str] | None]]:
    """The files to read, and the tensors that the index lists for each of them (None: there is no index)."""
    single, index = folder / f"{name}.safetensors", folder / f"{name}.safetensors.index.json"
    if os.path.lexists(single):  # opening it raises an error if it is a pipe or a folder
        return [(single, None)]
    ending = ".safetensors"
    if not index.is_file():
        pytorch_file = folder / f"pytorch_{name}.bin"
        index, ending = folder / f"pytorch_{name}.bin.index.json", ".bin"
        if pytorch_file.is_file():
            return [(pytorch_file, None)]
        if not index.is_file():
            raise _no_weights_error(folder, single)
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError("has no 'weight_map'", where=str(index), fix=_DOWNLOAD_AGAIN)
    shards: dict[str, set[str]] = {}
    for tensor, file_name in weight_map.items():
        is_plain = isinstance(file_name, str) and not set(file_name) & set("/\\:\0")
        if not is_plain or not file_name.endswith(ending):
            what = f"lists {tensor!r} in {file_name!r}, which is not a {ending[1:]} file of this folder"
            raise CheckpointError(what, where=str(index), fix="Do not use this checkpoint")
        shards.setdefault(file_name, set()).add(tensor)
    for file_name in sorted(shards):
        if not (folder / file_name).is_file():
            raise IncompleteError("is missing", where=str(folder / file_name), fix=_DOWNLOAD_AGAIN)
    return [(folder / file_name, shards[file_name]) for file_name in sorted(shards)]


def _no_weights_error(folder: Path, expected: Path) -> CheckpointError:
    if not folder.is_dir():
        return NoSuchModelError("no such folder", where=str(folder))
    pickled = sorted(file.name for pattern in PICKLED for file in folder.glob(pattern))
    if pickled:
        what = f"{pickled[0]} is a pickle, which is not read, because it could run any code"
        return PickleError(what, where=str(folder), fix=CONVERT)
    return IncompleteError(f"has neither {expected.name} nor an index of shards", where=str(folder))


def _check_header(file: Path) -> None:
    """Raise CheckpointError if the first bytes of a file are not those of safetensors."""
    with open_regular(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        start, brace = opened.read(8), opened.read(1)
    # A header of 640 bytes begins like a pickle (protocol 2), but has "{" after the length.
    is_header = len(start) == 8 and brace == b"{" and struct.unpack("<Q", start)[0] <= size - 8
    pickled = start[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05") and not is_header
    if pickled or start[:4] == b"PK\x03\x04":
        raise PickleError("is a pickle, despite its name", where=str(file), fix=CONVERT)
    if start == b"version ":
        what = "is a Git LFS pointer, not the weights"
        raise IncompleteError(what, where=str(file), fix="Run 'git lfs pull' in the repository")
    if len(start) < 8:
        raise IncompleteError(f"is truncated: {size} bytes", where=str(file), fix=_DOWNLOAD_AGAIN)
    (length,) = struct.unpack("<Q", start)
    if length > min(MAX_HEADER_BYTES, size - 8):
        what = f"has a header of {length:,} bytes in a file of {size:,}; the maximum is {MAX_HEADER_BYTES:,}"
        raise CheckpointError(what, where=str(file), fix=_DOWNLOAD_AGAIN)


def _damaged_error(file: Path, error: BaseException) -> CheckpointError:
    if isinstance(error, CheckpointError):
        return error
    if isinstance(error, OSError) and error.strerror and error.strerror.startswith("is "):
        return CheckpointError(error.strerror, where=str(file), fix=_DOWNLOAD_AGAIN)
    return CheckpointError(f"is not readable as safetensors: {error}", where=str(file), fix=_DOWNLOAD_AGAIN)
