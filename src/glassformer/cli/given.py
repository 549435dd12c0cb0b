"""What stands where a recipe or a text is wanted: a path to data, or standard input."""

from __future__ import annotations

from pathlib import Path


def data_option(given: str) -> str | None:
    """``--text`` or ``--images`` where a word is the path of labelled data rather than a name or a TOML file.

    A folder is one of pictures where a picture is among the first files below it, and no run folder.
    """
    from glassformer.data.image import SUFFIXES
    from glassformer.data.tables import READERS

    path = Path(given).expanduser()
    if given.lower().endswith(tuple(READERS)):
        return "--text"
    try:
        if not path.is_dir() or (path / "config.toml").is_file():
            return None
        files = (file for file in path.rglob("*") if file.is_file())
        first = [file.suffix.lower() for file, _ in zip(files, range(100), strict=False)]
    except OSError:
        return None
    if not first:
        return None
    pictures = sum(suffix in SUFFIXES for suffix in first)
    return "--images" if 2 * pictures > len(first) else "--text"
