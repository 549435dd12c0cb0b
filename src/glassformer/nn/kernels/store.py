"""Where compiled kernels are kept, and whether they may be loaded: loading a library runs what is in it.

Only the user (and the administrator) may be able to write to the file, its folder and the folders above.
Where that is not so, the kernels are built for one process, in a new folder that no other can write to.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from glassformer.runtime import cache_folder

OTHERS = stat.S_IWGRP | stat.S_IWOTH


def why_unsafe(folder: Path) -> str | None:
    """Why a library in this folder (made where it is missing) is not to be trusted; None where it is."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not hasattr(os, "geteuid"):  # Windows keeps others out of a user's folders by other means
        return None
    real = folder.resolve()  # links may stand on the way there, if those who could change them may be trusted
    for path in dict.fromkeys((real, *real.parents, *_parents(folder))):
        info = os.stat(path)
        if info.st_uid not in (os.geteuid(), *(() if path == real else (0,))):
            return f"{path} belongs to another user"
        # In a folder such as /tmp others may add names, but none may change those of the user.
        if info.st_mode & OTHERS and (path == real or not info.st_mode & stat.S_ISVTX):
            return f"{path} can be written by others (chmod go-w would end that)"
    return None


def _parents(folder: Path) -> list[Path]:
    """The folders whose entries are followed on the way, links included."""
    return list(folder.absolute().parents)


def is_ours(file: Path) -> bool:
    """Whether a file is plain, and written by this user alone."""
    info = os.lstat(file)
    if not stat.S_ISREG(info.st_mode) or not hasattr(os, "geteuid"):
        return stat.S_ISREG(info.st_mode)
    return info.st_uid == os.geteuid() and not info.st_mode & OTHERS


def prepared() -> tuple[Path, str | None]:
    """The folder to build in and load from, and why it is not the user's cache, None where it is.

    The other one is new, and is to be given to ``discard`` once what is in it was loaded.
    """
    reason = why_unsafe(cache_folder())
    if reason is None:
        return cache_folder(), None
    return Path(tempfile.mkdtemp(prefix="glassformer-kernels-")), reason  # mode 0700


def discard(folder: Path) -> None:
    """Remove a folder that was made for one process."""
    shutil.rmtree(folder, ignore_errors=True)
