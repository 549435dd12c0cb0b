"""Texts in folders: what other programs leave beside the classes is no class."""

import pytest

from glassformer.data.kinds import detect_kind
from glassformer.data.sources import load_text_dataset


def write(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(f"a text called {folder.name} {name}")


@pytest.mark.parametrize("other", ["__MACOSX", "@eaDir", "__pycache__", ".ipynb_checkpoints", "$RECYCLE.BIN"])
@pytest.mark.parametrize("parts", [(".",), ("train", "test")])
def test_clutter_is_not_a_class(tmp_path, other, parts):
    for part in parts:
        write(tmp_path / "d" / part / "good", "a.txt", "b.txt", "._a.txt")
        write(tmp_path / "d" / part / "bad", "a.txt")
    write(tmp_path / "d" / other / "good", "._a.txt", "._b.txt", "c.txt")
    write(tmp_path / "d" / other, "note.txt")
    found = load_text_dataset(tmp_path / "d").splits
    assert list(found) == (["train"] if parts == (".",) else ["train", "test"])
    assert [split.labels for split in found.values()] == [["bad", "good", "good"]] * len(parts)
    assert detect_kind(tmp_path / "d") == "texts"
