"""Windows taken in turn.

Absolute times drift on shared machines, so contenders are timed in one run, one window each in turn, and
compared by the ratio inside each round. A figure is the median over the rounds, with the range beside it.
Each contender lives in a process of its own, which waits while another works: what one does to the memory
allocator or to torch's settings does not reach the others.
"""

import ctypes
import multiprocessing
import os
import platform
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.harness.results import spread


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

    Where that fails it is a RuntimeError here; its traceback stands on stderr.
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
    """Let the kernel (Linux's) kill this process when its parent is gone, in the middle of a window too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to hear
    if platform.system() != "Linux":
        return
    die_with_parent = 1  # PR_SET_PDEATHSIG in prctl.h
    ctypes.CDLL(None).prctl(die_with_parent, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:  # it was gone before
        os._exit(1)


def take_turns(contenders: Sequence[Contender], rounds: int, say: Callable[[str], None] = print) -> None:
    """Time every contender once a round, each round in another order; round -1 warms up, untimed."""
    for turn in range(-1, rounds):
        for contender in rotated(contenders, turn):
            started = time.perf_counter()
            window = contender.run(turn)
            if turn >= 0:
                contender.windows.append(window)
            say(
                f"{f'round {turn + 1}' if turn >= 0 else 'warm-up':8} {contender.name:36} "
                f"{window.tokens_per_second:8.0f} tokens/s {window.reviews_per_second:7.1f} {contender.noun}/s  "
                f"loss {window.loss:.3f}  ({time.perf_counter() - started:.0f} s with set-up)"
            )


def milliseconds(work: Callable[[], Any]) -> float:
    """Of one call, over a fifth of a second."""
    begin, calls = time.perf_counter(), 0
    while (now := time.perf_counter()) < begin + 0.2:
        work()
        calls += 1
    return 1000 * (now - begin) / max(calls, 1)


def process_milliseconds(work: Callable[[], Any], least: float) -> float:
    """Of one call, in the process's own time (user and system), over ``least`` seconds of it."""
    begin, calls = time.process_time(), 0
    while not calls or time.process_time() < begin + least:
        work()
        calls += 1
    return 1000 * (time.process_time() - begin) / calls


def in_turn(
    works: Mapping[str, Any],
    rounds: int,
    measure: Callable[[Any], Any] = milliseconds,
    warm_up: bool = True,
    after: Callable[[dict[str, list[Any]]], None] = lambda found: None,
) -> dict[str, list[Any]]:
    """What ``measure`` says of each work in each round, each round in another order.

    Args:
        warm_up: a round before that does not count.
        after: is given all that was found so far, after each round.
    """
    found: dict[str, list[Any]] = {name: [] for name in works}
    for turn in range(-1 if warm_up else 0, rounds):
        for name in rotated(list(works), turn):
            taken = measure(works[name])
            if turn >= 0:
                found[name].append(taken)
        if turn >= 0:
            after(found)
    return found


def rotated(items: Sequence[Any], turn: int) -> list[Any]:
    """The order of a round: whoever comes first in one comes last in the next."""
    shift = turn % len(items)
    return [*items[shift:], *items[:shift]]


def times_as_long(others: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """How many times our time the others take, compared round by round."""
    return spread([a / b for a, b in zip(others, ours, strict=True)])


def ratios(ours: Contender, peer: Contender) -> dict[str, float]:
    """How many times the peer's tokens per second, compared round by round."""
    return spread([a.tokens_per_second / b.tokens_per_second for a, b in zip(ours.windows, peer.windows)])


Epoch = tuple[float, float]  # seconds and mean loss


def glassformer_epoch(network: Any, optimizer: Any, config: Any, stream: Any, objective: Callable) -> Epoch:
    """Seconds and mean loss of one epoch in glassformer's own loop; weights and optimiser go on from window to window.

    Drawing the batches, forward, backward, clipping and update are timed.
    """
    from glassformer.train.loop import count_steps, run
    from glassformer.train.state import Training

    training = Training(network, optimizer, config, count_steps(stream, 1))
    started = time.perf_counter()
    losses = [info.loss for info in run(training, stream, objective)]
    return time.perf_counter() - started, statistics.fmean(losses)


def steps_of(history: Sequence[dict[str, Any]]) -> tuple[int, float, float]:
    """Of a fit: the tokens of its steps, the seconds by their own clock, and their mean loss."""
    steps = [record for record in history if record["kind"] == "step"]
    loss = statistics.fmean(step["loss"] for step in steps)
    return sum(step["tokens"] for step in steps), steps[-1]["seconds"], loss


def compared(contenders: Sequence[Contender], rounds: int) -> dict[str, Any]:
    """Contenders timed in turn, as a result file has them.

    Where ours is the last: how it stands beside the others, and how far each peer's mean loss over all windows
    lies from ours, relative to ours, which says that the work is the same.
    """
    take_turns(contenders, rounds)
    found: dict[str, Any] = {"contenders": [contender.summary() for contender in contenders]}
    *peers, ours = contenders
    if not ours.name.startswith("glassformer"):
        return found | {"glassformer_against": {}}
    against = {peer.name: ratios(ours, peer) for peer in peers}
    loss = {c.name: statistics.fmean(w.loss for w in c.windows) for c in contenders}
    apart = {name: round(loss[name] / loss[ours.name] - 1.0, 4) for name in against}
    for name, ratio in against.items():
        print(f"glassformer: {said(ratio)} {name}; its loss is {apart[name]:+.1%} of ours")
    return found | {"glassformer_against": against, "loss_against_glassformer": apart}


def said(ratio: dict[str, float]) -> str:
    """A ratio with its range, for the terminal."""
    return f"{ratio['median']:.2f}x ({ratio['min']:.2f} to {ratio['max']:.2f})"


def use_threads(threads: int) -> None:
    """Let what is started from here, such as a contender's tokenizers and libraries, have so many threads."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"


def alone(work: Callable[..., Any], *args: Any) -> Any:
    """What ``work`` gives in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *args).result()
