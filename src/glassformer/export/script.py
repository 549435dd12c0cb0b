"""The scripts of exported folders that read images: they hold the package's own reading of pixels."""

from __future__ import annotations

from pathlib import Path

from glassformer.data import image_range

SCRIPTS = Path(__file__).parent / "scripts"
COPIED = "# --- copied into exported scripts ---\n"  # in image_range.py: what follows is copied
HERE = "# --- image_range.py ---\n"  # in a script: here it stands


def picture_script(name: str) -> str:
    """The text of a script in ``scripts/``."""
    copied = Path(image_range.__file__).read_text(encoding="utf-8").partition(COPIED)[2]
    return (SCRIPTS / f"{name}.txt").read_text(encoding="utf-8").replace(HERE, copied)
