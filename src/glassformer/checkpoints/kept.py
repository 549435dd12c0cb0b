"""What its owner has put into a folder of ours stays there when the folder is replaced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Container
from pathlib import Path

from glassformer.checkpoints.readme import UNSEALED, keep_own


def keep_others(old: Path, fresh: Path, ours: Container[str]) -> None:
    """Take what is not ours in a folder over to the one that is to replace it.

    A file costs no room: both folders name it until the old one goes. What ``fresh`` has under the same name
    is kept instead. Links are taken over as links.

    Args:
        ours: files that the old manifest lists, and names that are never taken over.
    """
    keep_own(old, fresh)
    for folder, folders, files in os.walk(old):
        inside = Path(folder).relative_to(old)
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in [*files, *links]:
            place = inside / name
            if place.as_posix() not in ours and place.as_posix() not in UNSEALED:
                _take_over(Path(folder) / name, fresh / place)
        if not folders and not files and not (fresh / inside).exists():
            (fresh / inside).mkdir(parents=True)


def _take_over(path: Path, target: Path) -> None:
    if os.path.lexists(target) or any(parent.is_file() for parent in target.parents):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        target.symlink_to(os.readlink(path))
        return
    try:
        os.link(path, target)
    except OSError:  # the file system has no second names
        shutil.copy2(path, target)
