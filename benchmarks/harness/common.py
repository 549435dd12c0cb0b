"""What every benchmark needs: the machine in words, windows taken in turn, and a result file.

Absolute times drift on shared machines, so contenders are timed in one run, one window each in turn, and
compared by the ratio inside each round. A figure is the median over the rounds, with the range beside it.
Each contender lives in a process of its own, which waits while another works: what one does to the memory
allocator or to torch's settings does not reach the others.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import platform
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from glassformer.nn.kernels.levels import LEVELS
from glassformer.runtime import choose_device, choose_dtype, cpu_flags, machine_facts, versions

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Window:
    """One timed stretch of work."""

    reviews: int  # or whatever else its contender counts
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
    noun: str = "reviews"  # what a window counts beside tokens

    def summary(self) -> dict[str, Any]:
        """The contender as it stands in a result file."""
        return {
            "name": self.name,
            "setting": self.setting,
            "tokens_per_second": spread([w.tokens_per_second for w in self.windows]),
            f"{self.noun}_per_second": spread([w.reviews_per_second for w in self.windows]),
            "windows": [
                {self.noun if k == "reviews" else k: v for k, v in asdict(w).items()} for w in self.windows
            ],
        }


def in_own_process(make: Callable[..., Contender], *args: Any) -> Contender:
    """The contender that ``make(*args)`` makes, in another process that ends with this one, however this one ends.

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

    name, setting, noun = ask(None)
    return Contender(name, setting, ask, noun=noun)


def _serve(pipe: Any, make: Callable[..., Contender], args: tuple) -> None:
    _end_with_parent()
    contender = make(*args)
    pipe.send((contender.name, contender.setting, contender.noun))
    while True:
        try:
            turn = pipe.recv()
        except EOFError:
            return
        pipe.send(contender.run(turn))


def _end_with_parent() -> None:
    """Let the kernel kill this process when its parent is gone, in the middle of a window too.

    Linux only: elsewhere a contender whose benchmark was killed ends with its window, at the end of the pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to hear
    if platform.system() != "Linux":
        return
    die_with_parent = 1  # PR_SET_PDEATHSIG in prctl.h
    ctypes.CDLL(None).prctl(die_with_parent, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:  # it was gone before
        os._exit(1)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range."""
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


def level() -> str:
    """The processor's own level, as the kernels' levels are named; ``none`` below all of them."""
    return next((one.name for one in LEVELS if one.flags <= cpu_flags()), "none")


def half() -> bool:
    """Whether the device computes in bf16; where it is emulated every contender's best is fp32."""
    return choose_dtype("auto", choose_device()) == torch.bfloat16


def result_file(stem: str) -> Path:
    """Where a benchmark writes: a file a level, so that a table is of one kind of processor. AMX is in plain ``stem``."""
    kind = "gpu" if choose_device().type == "cuda" else level()
    return RESULTS / (f"{stem}.json" if kind == "amx" else f"{stem}-{kind}.json")


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
                f"{window.tokens_per_second:8.0f} tokens/s {window.reviews_per_second:7.1f} {contender.noun}/s  "
                f"loss {window.loss:.3f}  ({time.perf_counter() - started:.0f} s with set-up)"
            )


def ratios(ours: Contender, peer: Contender) -> dict[str, float]:
    """How many times the peer's tokens per second, compared round by round."""
    return spread(
        [a.tokens_per_second / b.tokens_per_second for a, b in zip(ours.windows, peer.windows, strict=True)]
    )


def glassformer_epoch(
    network: Any, optimizer: Any, config: Any, stream: Any, objective: Callable
) -> tuple[float, float]:
    """Seconds and mean loss of one epoch in glassformer's own loop; weights and optimiser go on from window to window.

    Drawing the batches, forward, backward, clipping and update are timed.
    """
    from glassformer.train.loop import count_steps, run
    from glassformer.train.state import Training

    training = Training(network, optimizer, config, count_steps(stream, 1))
    started = time.perf_counter()
    losses = [info.loss for info in run(training, stream, objective)]
    return time.perf_counter() - started, statistics.fmean(losses)


def loss_differences(ours: Contender, peers: Sequence[Contender]) -> dict[str, float]:
    """How far each peer's mean loss over all windows lies from ours, relative to ours: that the work is the same."""
    mean = {c.name: statistics.fmean(w.loss for w in c.windows) for c in (ours, *peers)}
    return {peer.name: round(mean[peer.name] / mean[ours.name] - 1.0, 4) for peer in peers}


def report(ours: Contender, peers: Sequence[Contender], out: Path) -> None:
    """What a person at the terminal reads at the end."""
    apart = loss_differences(ours, peers)
    for peer in peers:
        ratio = ratios(ours, peer)
        print(
            f"glassformer: {ratio['median']:.2f}x {peer.name} ({ratio['min']:.2f} to {ratio['max']:.2f}); "
            f"the peer's loss is {apart[peer.name]:+.1%} of ours"
        )
    print(f"written to {out}")


def count(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count; give a whole number from 1 on")
    return int(text)


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
        "commit": commit(),
    }


def commit() -> str | None:
    """Of the code that was measured, with a + where files have changed since; None outside a clone."""
    asked = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(asked, cwd=RESULTS, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def write_result(path: Path, result: dict[str, Any]) -> None:
    """A result file, written whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)
