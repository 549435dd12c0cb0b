"""What a step of the first day is, and the small words and settings that its data are made of."""

import csv
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SMALL = (
    "model=encoder-mini", "d_model=16", "num_layers=1", "num_heads=2", "d_ff=16", "epochs=1", "precision=fp32",
    "max_length=24", "baselines=false", "bootstrap=20", "maps=0", "threads=1", "min_count=1",
)  # fmt: skip
NOUNS = ("film", "plot", "actor", "scene", "music", "camera", "story")
FEELINGS = {"good": "splendid", "bad": "dreadful"}


@dataclass(frozen=True)
class Step:
    """One thing that a stranger does, and what has to come of it."""

    what: str
    do: str | Callable[[], Any]  # a command as in a shell, without the program's name, or a call
    told: Sequence[str] = ()  # patterns, each among what is said
    code: int = 0
    untold: Sequence[str] = ()
    made: Sequence[str] = ()


def settings(*pairs: str) -> str:
    """Settings as words of a command."""
    return shlex.join(word for pair in pairs for word in ("--set", pair))


def small(*more: str) -> str:
    """The settings of a training of a second."""
    return settings(*SMALL, *more)


def train(
    kind: str,
    what: str,
    data: str,
    keys: str,
    *told: str,
    code: int = 0,
    untold: Sequence[str] = (),
    out: str = "",
) -> Step:
    """A training on ``data``, such as ``--text good.csv``, that leaves a report unless it is refused."""
    out = out or "runs/" + what.replace(" ", "-").replace("/", "-")
    made = () if code else (f"{out}/report.html",)
    return Step(f"{kind}: {what}", f"train {data} --out {out} {keys}", told, code, untold, made)


def doctor(kind: str, what: str, path: str, *told: str, code: int = 0, untold: Sequence[str] = ()) -> Step:
    return Step(f"{kind}: {what}", f"data doctor {path}", told, code, untold)


def texts(n: int, start: int = 0) -> list[tuple[str, str]]:
    """``n`` different texts with their labels, good and bad in turn."""
    out = []
    for i in range(start, start + n):
        label = ("good", "bad")[i % 2]
        noun, other = NOUNS[i % 7], NOUNS[i // 7 % 7]
        out.append((f"the {noun} number {i} has a {FEELINGS[label]} {other}", label))
    return out


def table(name: str, header: Sequence[str], rows: Sequence[Sequence[Any]], **options: Any) -> str:
    """A CSV file with quotes where they are needed; its name."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding=options.pop("encoding", "utf-8"), newline="") as file:
        csv.writer(file, **options).writerows([header, *rows])
    return name


def raw(name: str, content: str | bytes) -> str:
    """A file of these bytes; its name."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return name


def lines_of_json(name: str, rows: Sequence[Any]) -> str:
    """A file with one JSON value a line; its name."""
    return raw(name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
