"""Data and settings with which a whole run takes a second."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

TINY = """
    model=encoder-mini d_model=16 num_layers=1 num_heads=2 d_ff=16 epochs=1 precision=fp32 max_length=16
    baselines=false bootstrap=20 maps=1 threads=1 min_count=1
""".split()
RUN_FILES = set(
    """
    config.toml history.jsonl metrics.json model checkpoints report.html predictions.csv doctor.json maps.json
""".split()
)


def sets(*pairs: str) -> list[str]:
    """``--set`` before each."""
    return [word for pair in pairs for word in ("--set", pair)]


def settings(*more: str) -> list[str]:
    """--set arguments for a run of a second."""
    return sets(*TINY, *more)


def sentences(n: int, seed: int = 0) -> list[tuple[str, str]]:
    """``n`` distinct texts, each with the label that one of its words gives away."""
    rng = random.Random(seed)
    words = ["film", "plot", "actor", "scene", "music", "camera", "story", "ending"]
    label = {"pos": "splendid", "neg": "dreadful"}
    rows = []
    for i in range(n):
        name = ("neg", "pos")[i % 2]
        rows.append((f"the {rng.choice(words)} number {i} has a {label[name]} {rng.choice(words)}", name))
    return rows


def write_csv(path: Path, rows: Sequence[Sequence[str]], header: str = "text,label") -> Path:
    """A CSV file; cells hold neither commas nor quotes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [header, *(",".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def pictures(folder: Path, counts: Mapping[str, int], size: tuple[int, int] = (8, 8), seed: int = 0) -> Path:
    """A folder of PNG files for each class, each class lighter than the one before."""
    rng = np.random.default_rng(seed)
    for k, (label, count) in enumerate(counts.items()):
        (folder / label).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 100, (*size, 3)) + 150 * k // max(1, len(counts) - 1)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / label / f"{i}.png")
    return folder


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder and its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
