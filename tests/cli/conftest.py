"""The real command in this process, tiny data and tiny models, so that a whole run takes a second."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from glassformer.cli.app import main

TINY = [
    "model=encoder-mini", "d_model=16", "num_layers=1", "num_heads=2", "d_ff=16", "epochs=1", "precision=fp32",
    "max_length=16", "baselines=false", "bootstrap=20", "maps=1", "threads=1", "min_count=1",
]  # fmt: skip


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture
def gf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``gf("train", "europe")`` is ``glassformer train europe``, called in the test's own folder."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: object) -> Result:
        capsys.readouterr()
        code = main([str(a) for a in argv])
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def refused(gf: Command) -> Callable[..., str]:
    """Calls a command that must end with exit code 2 and one line on stderr, which is returned."""

    def call(*argv: object) -> str:
        result = gf(*argv)
        assert result.code == 2, result
        assert result.err.startswith("error: ")
        assert result.err.endswith("\n")
        assert result.err.count("\n") == 1
        assert "Traceback" not in result.err + result.out
        return result.err.strip()

    return call


def settings(*more: str) -> list[str]:
    """--set arguments for a run of a second."""
    return [word for pair in (*TINY, *more) for word in ("--set", pair)]


def sentences(n: int, seed: int = 0) -> list[tuple[str, str]]:
    """``n`` distinct texts, each with the label that one of its words gives away."""
    rng = random.Random(seed)
    words = "film plot actor scene music camera story ending".split()
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


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """A good table of 60 reviews."""
    return write_csv(tmp_path / "reviews.csv", sentences(60))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run, made by the command; copy it before changing it."""
    folder = tmp_path_factory.mktemp("trained")
    data = write_csv(folder / "data" / "reviews.csv", sentences(60))
    run = folder / "run"
    assert main(["train", "--text", str(data), "--out", str(run), *settings()]) == 0
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A finished run of the test's own."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder and its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
