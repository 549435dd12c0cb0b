"""A linear model of made-up messages, and labeled examples that a defect is planted in."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.audit.predictions import predict

WORDS = {
    "refund": "money back charged twice invoice refund payment card".split(),
    "delivery": "parcel late courier arrived door delivery tracking box".split(),
    "account": "login password email account locked reset profile name".split(),
}
COMMON = "please the my was when can you again today still yesterday order help thanks one".split()
ACCENTED = "déjà café élan naïve".split()


def messages(n: int, seed: int, most: int = 19) -> list[tuple[str, str]]:
    """``n`` texts with a label each; every third word tells it."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        label = list(WORDS)[i % len(WORDS)]
        size = int(rng.integers(5, most))
        own = rng.choice(WORDS[label], max(size // 3, 2)).tolist()
        text = rng.permutation([*own, *rng.choice(COMMON, size).tolist(), str(rng.choice(ACCENTED))])
        rows.append((" ".join(text.tolist()), label))
    return rows


def write(path: Path, rows: Sequence[Sequence[str]], *more: str) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["text", "label", *more])
        out.writerows(rows)
    return str(path)


def fitted(rows: Sequence[tuple[str, str]], folder: Path) -> Path:
    """A saved linear model of these texts."""
    gf.TextClassifier("tfidf", threads=1).fit(*zip(*rows, strict=True)).save(folder)
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return fitted(messages(331, 0), tmp_path_factory.mktemp("models") / "clean")


@pytest.fixture
def judged(model, tmp_path):
    """What the model predicts for rows of a table."""

    def judge(rows, *more: str, of: Path | None = None, **options):
        return predict(of or model, write(tmp_path / "new.csv", rows, *more), **options)

    return judge
