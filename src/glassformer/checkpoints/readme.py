"""``README.md`` of a saved folder: ours to write anew, or its owner's to keep.

Ours ends with a line that holds the sum of all before it. Where somebody has changed a word, the sum is
another one: the file is theirs, stays as it is, and the new card is written as ``README.generated.md``.
No manifest lists either, so that editing them damages nothing.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

README, BESIDE = "README.md", "README.generated.md"
UNSEALED = {README, BESIDE}  # files that a manifest does not list
MOST_BYTES = 4 * 2**20
_SIGNED = re.compile(r"\n<!-- card ([0-9a-f]{64}): edit freely, an edited card is kept -->\n\Z")


def signed(text: str) -> str:
    """A card with the line by which it is known again."""
    text = text.rstrip("\n") + "\n"
    total = hashlib.sha256(text.encode()).hexdigest()
    return f"{text}\n<!-- card {total}: edit freely, an edited card is kept -->\n"


def is_ours(path: Path) -> bool:
    """Whether a file is a card that nobody has changed since it was written."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MOST_BYTES:
            return False
        text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return False
    found = _SIGNED.search(text)
    return found is not None and hashlib.sha256(text[: found.start()].encode()).hexdigest() == found[1]


def place_of(folder: Path) -> Path:
    """Where a card is written in a folder: ``README.md``, or beside one of somebody's own."""
    path = folder / README
    return path if not path.exists() or is_ours(path) else folder / BESIDE


def keep_own(old: Path, fresh: Path) -> None:
    """Take the owner's ``README.md`` of a folder over to the one that is to replace it."""
    path = old / README
    if not path.is_file() or path.is_symlink() or is_ours(path):
        return
    if (fresh / README).exists():
        (fresh / README).replace(fresh / BESIDE)
    shutil.copyfile(path, fresh / README)
