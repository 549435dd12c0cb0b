"""A tiny data set and a base recipe with which an arm takes a second."""

import csv
from pathlib import Path

import pytest

BASE = """\
summary = "tiny"
[data]
source = {source!r}
[text]
max_length = 31
tokenizer = "word"
min_count = 1
[model]
model = "encoder-mini"
d_model = 14
num_heads = 2
d_ff = 11
num_layers = 1
dropout = 0.0
pooling = "mean"
[train]
epochs = 5
lr = 3e-2
batch_size = 8
precision = "fp32"
threads = 1
[evaluate]
bootstrap = 20
maps = 1
"""


def write_split(path: Path, count: int, start: int = 0) -> None:
    words = {"good": ["warm", "wise", "funny"], "bad": ["dull", "endless", "flat"]}
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for i in range(start, start + count):
            label = ("good", "bad")[i % 2]
            writer.writerow([f"a {words[label][i % 3]} film , number {i}", label])


@pytest.fixture(scope="package")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe file on three splits of made-up reviews."""
    folder = tmp_path_factory.mktemp("base")
    for split, count, start in (("train", 61, 0), ("validation", 29, 200), ("test", 31, 400)):
        write_split(folder / f"{split}.csv", count, start)
    path = folder / "tiny.toml"
    path.write_text(BASE.format(source=str(folder)), encoding="utf-8")
    return path
