"""What every benchmark needs: the machine in words, windows taken in turn, and a result file.

Absolute times drift on shared machines, so contenders are timed in one run, one window each in turn, and
compared by the ratio inside each round. A figure is the median over the rounds, with the range beside it.
Each contender lives in a process of its own, which waits while another works: what one does to the memory
allocator or to torch's settings does not reach the others.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from glassformer.runtime import cpu_flags, machine_facts, versions

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Window:
    """One timed stretch of work."""

    reviews: int
    tokens: int  # real ones: padding is not counted
    seconds: float
    loss: float  # mean over the stretch: that the work was really done

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def reviews_per_second(self) -> float:
        return self.reviews / self.seconds


@dataclass
class Contender:
    """A way to do the work: ``run(round)`` does one window of it and times itself, set-up left out."""

    name: str
    setting: dict[str, Any]
    run: Callable[[int], Window]
    windows: list[Window] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """The contender as it stands in a result file."""
        return {
            "name": self.name,
            "setting": self.setting,
            "tokens_per_second": spread([w.tokens_per_second for w in self.windows]),
            "reviews_per_second": spread([w.reviews_per_second for w in self.windows]),
            "windows": [asdict(w) for w in self.windows],
        }


def in_own_process(make: Callable[..., Contender], *args: Any) -> Contender:
    """The contender that ``make(*args)`` makes, in another process that ends with this one.

    Raises:
        RuntimeError: making or running it failed there; its traceback stands on stderr.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=_serve, args=(theirs, make, args), daemon=True).start()
    theirs.close()  # then the end of the process ends the pipe

    def ask(turn: int | None) -> Any:
        try:
            if turn is not None:
                ours.send(turn)
            return ours.recv()
        except (EOFError, ConnectionError):
            raise RuntimeError("a contender's process has ended") from None

    return Contender(*ask(None), run=ask)


def _serve(pipe: Any, make: Callable[..., Contender], args: tuple) -> None:
    contender = make(*args)
    pipe.send((contender.name, contender.setting))
    while True:
        try:
            turn = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        pipe.send(contender.run(turn))


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range."""
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


def take_turns(contenders: Sequence[Contender], rounds: int, say: Callable[[str], None] = print) -> None:
    """Time every contender once a round, each round in another order; round -1 warms up, untimed."""
    for turn in range(-1, rounds):
        shift = turn % len(contenders)
        for contender in [*contenders[shift:], *contenders[:shift]]:
            started = time.perf_counter()
            window = contender.run(turn)
            if turn >= 0:
                contender.windows.append(window)
            say(
                f"{f'round {turn + 1}' if turn >= 0 else 'warm-up':8} {contender.name:36} "
                f"{window.tokens_per_second:8.0f} tokens/s {window.reviews_per_second:7.1f} reviews/s  "
                f"loss {window.loss:.3f}  ({time.perf_counter() - started:.0f} s with set-up)"
            )


def ratios(ours: Contender, peer: Contender) -> dict[str, float]:
    """How many times the peer's tokens per second, compared round by round."""
    return spread(
        [a.tokens_per_second / b.tokens_per_second for a, b in zip(ours.windows, peer.windows, strict=True)]
    )


def environment(*packages: str) -> dict[str, Any]:
    """Date, machine and versions, as every result file states them."""
    flags = ("amx_tile", "amx_bf16", "amx_int8", "avx512_bf16", "avx512f", "avx512_vnni", "avx2")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            **machine_facts(),
            "flags": [flag for flag in flags if flag in cpu_flags()],
            "load_before": [round(load, 2) for load in os.getloadavg()],
        },
        "versions": versions("numpy", "tokenizers", *packages),
        "torch_build": torch.__version__,
    }


def write_result(path: Path, result: dict[str, Any]) -> None:
    """A result file, written whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)
