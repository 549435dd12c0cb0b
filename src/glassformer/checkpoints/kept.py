"""What its owner has put into a folder of ours stays there when the folder is replaced."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from glassformer.checkpoints.readme import UNSEALED, keep_own
from glassformer.errors import NotKeptWarning


def keep_others(old: Path, fresh: Path, ours: Callable[[str], bool]) -> None:
    """Take what is not ours in a folder over to the one that is to replace it.

    A file costs no room: both folders name it until the old one goes. What ``fresh`` has under the same name
    is kept instead. Links are taken over as links. What the system refuses stops no save: it is told
    (``NotKeptWarning``).

    Args:
        ours: whether a name inside is a file that the old manifest lists, or is never taken over.
    """
    with suppress(OSError):
        keep_own(old, fresh)
    for place in _others(old, ours):
        try:
            _take_over(old / place, fresh / place)
        except OSError as error:
            what = f"{old / place} could not be kept when {old} was saved anew: {error.strerror}"
            warnings.warn(what, NotKeptWarning, stacklevel=5)


def _others(old: Path, ours: Callable[[str], bool]) -> Iterator[Path]:
    """Files, links, empty folders and those that cannot be looked into, which are not ours."""
    for folder, folders, files in os.walk(old):
        inside = Path(folder).relative_to(old)
        whole = [name for name in folders if _is_entry(Path(folder) / name)]
        folders[:] = [name for name in folders if name not in whole]
        for name in [*files, *whole]:
            place = inside / name
            if not ours(place.as_posix()) and place.as_posix() not in UNSEALED:
                yield place
        if not folders and not files and not whole and folder != str(old):
            yield inside


def _is_entry(folder: Path) -> bool:
    return folder.is_symlink() or not os.access(folder, os.R_OK | os.X_OK)


def _take_over(path: Path, target: Path) -> None:
    if os.path.lexists(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        target.symlink_to(os.readlink(path))
    elif path.is_dir() and os.access(path, os.R_OK | os.X_OK):
        target.mkdir()
    else:
        for way in (os.link, shutil.copy2):  # some file systems have no second names
            with suppress(OSError):
                way(path, target)
                return
        os.rename(path, target)  # one that may not be read, as somebody else's
