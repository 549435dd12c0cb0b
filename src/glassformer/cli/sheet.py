"""``glassformer data show NAME --augment LEVEL --out FILE.png``: a contact sheet of augmentations."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from glassformer.cli.output import say
from glassformer.errors import ConfigError
from glassformer.outputs import check_new_file, written_whole

SHOWN = 8  # pictures, a row each


def write_sheet(source: str, level: str | None, out: Path | None) -> None:
    """Write the sheet of some pictures of a data set.

    Args:
        source: a named set of pictures, a folder or a table.
        level: the strongest augmentation that is shown.

    Raises:
        ConfigError: only one of ``level`` and ``out``, an unknown level, or a file that cannot be written.
        DataError: no pictures there, or one that cannot be read.
    """
    from glassformer.data.augment import contact_sheet, sheet_columns
    from glassformer.data.image_sources import load_image_dataset

    if level is None or out is None:
        given, lacking = ("--out", "--augment LEVEL") if level is None else ("--augment", "--out FILE.png")
        raise ConfigError("a contact sheet needs both --augment and --out", where=given, fix=f"Add {lacking}")
    columns = sheet_columns(level)
    check_new_file(out)
    if out.suffix.lower() != ".png":
        raise ConfigError(
            "the sheet is a PNG file", where=str(out), fix="Give --out a name that ends in .png"
        )
    split = next(iter(load_image_dataset(source).splits.values()))
    chosen = np.unique(np.linspace(0, len(split) - 1, SHOWN).astype(int)).tolist()
    sheet = contact_sheet([split.images[i] for i in chosen], level, split.origin)
    with written_whole(out) as draft:
        sheet.save(draft, "PNG")
    say(f"{len(chosen)} pictures, {', '.join(columns)}: {out}")
