"""A disk that fails at a chosen call, and files that run code when somebody unpickles them."""

from __future__ import annotations

import builtins
import errno
import io
import os
import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from glassformer.checkpoints import tensors as tensors_module
from glassformer.errors import GlassformerError

from .fake_hub import fake_hub

__all__ = ["fake_hub"]  # a fixture


class Died(BaseException):
    """Stands for a kill: nothing catches it, and the process does nothing more to the disk."""


class Disk:
    """Counts the calls that change the disk and fails the ``k``-th.

    "kill": from then on every call raises Died, as a dead process makes none. "full": from then on
    nothing can be created or synced, while removing still works, as on a full disk.
    """

    def __init__(self, k: int, mode: str):
        self.k, self.mode, self.calls = k, mode, 0
        self.events: list[tuple[str, Any]] = []  # (call, inode synced or path made)

    @property
    def struck(self) -> bool:
        return self.calls >= self.k

    def strike(self, name: str, creates: bool) -> None:
        self.calls += 1
        if self.struck and self.mode == "kill":
            raise Died(name)
        if self.struck and self.mode == "full" and (creates or (name == "rename" and self.calls == self.k)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextmanager
    def mounted(self) -> Iterator[Disk]:
        opened, synced, saved = builtins.open, os.fsync, tensors_module.save_file
        with pytest.MonkeyPatch.context() as patch:
            for name in ("mkdir", "rename", "unlink", "rmdir"):
                patch.setattr(os, name, self._wrap(name, getattr(os, name), creates=name == "mkdir"))

            def fsync(handle: int) -> None:
                self.strike("fsync", creates=True)
                self.events.append(("fsync", os.fstat(handle).st_ino))
                synced(handle)

            def open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
                if set(mode) & set("wxa"):
                    self.strike("open", creates=True)
                return opened(file, mode, *args, **kwargs)

            def save_file(values: Any, file: Path, metadata: Any) -> None:
                self.strike("save", creates=True)
                saved(values, file, metadata)
                try:
                    self.strike("save", creates=True)
                except BaseException:
                    os.truncate(file, file.stat().st_size // 2)  # the write broke off half-way
                    raise

            patch.setattr(os, "fsync", fsync)
            patch.setattr(builtins, "open", open_file)
            patch.setattr(io, "open", open_file)
            patch.setattr(tensors_module, "save_file", save_file)
            yield self

    def _wrap(self, name: str, real: Callable[..., Any], creates: bool) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.strike(name, creates)
            self.events.append((name, os.fspath(args[0])))
            return real(*args, **kwargs)

        return call


def _fail_everywhere(
    mode: str, prepare: Callable[[int], Path], act: Callable[[Path], Any], check: Callable[[Path], None]
) -> int:
    """Run ``act`` once for each disk call it makes, failing there; returns the number of points."""
    for k in count(1):
        folder = prepare(k)
        with Disk(k, mode).mounted() as disk:
            try:
                act(folder)
            except (Died, GlassformerError):
                assert disk.struck
        check(folder)
        if not disk.struck:
            return k - 1
    raise AssertionError("unreachable")


@pytest.fixture
def fail_everywhere() -> Callable[..., int]:
    return _fail_everywhere


@pytest.fixture
def recording_disk() -> Iterator[Disk]:
    """A disk that never fails but notes what was done to it."""
    with Disk(10**9, "kill").mounted() as disk:
        yield disk


class _Bomb:
    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.marker,))


@pytest.fixture
def bombs(tmp_path: Path) -> Iterator[list[bytes]]:
    """Pickles of every protocol that leave a file behind when they are read; none may appear."""
    marker = tmp_path / "executed"
    yield [pickle.dumps(_Bomb(marker), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    assert not marker.exists(), "a pickle was executed"


def damages(data: bytes, rng: random.Random, flips: int | None = None) -> dict[str, bytes | None]:
    """What may become of a file: None: it is gone; ``flips``: how many bits are flipped, None: one of every byte."""
    cases: dict[str, bytes | None] = {"removed": None, "emptied": b"", "grown": data + b"\0"}
    cases |= {f"cut {i}": data[: rng.randrange(len(data))] for i in range(4)}
    for at in range(len(data)) if flips is None else rng.choices(range(len(data)), k=flips):
        cases[f"flipped at {at}"] = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    return cases


def damage(file: Path, data: bytes | None) -> None:
    if data is None:
        file.unlink()
    else:
        file.write_bytes(data)
