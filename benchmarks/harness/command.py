"""The command line of every benchmark: options, threads, facts of the machine, errors in one line, the result file."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.options import parse
from benchmarks.harness.results import RESULTS, environment, write_result
from glassformer.errors import GlassformerError


def command(
    title: str | None,
    *positional: Any,
    out: str | Callable[[Any], Path] | None = None,
    packages: Sequence[str] = (),
    **options: Any,
) -> Callable[[Callable[[Any], Any]], Callable[..., int]]:
    """Make a function of the options the ``main`` of its module, whose docstring is the help; ``python -m`` runs it.

    The function returns what it found, which is written behind ``title``, the facts of the machine
    (``options.facts``, taken before it begins) and ``--threads``, if it has that option; or None or an exit code
    where it writes otherwise. ``options.write(found)`` keeps what it has so far. An error of the package, such as
    missing data, is one line and its exit code; Ctrl-C is 130.

    Args:
        out: default of ``--out``: the stem of a file in results/, or a function of the options; None: no option.
        packages: whose versions the result states.
        positional, options: as ``parse`` takes them.
    """
    if out is not None:
        options["out"] = (Path, "the result file; by default one in benchmarks/results")

    def decorate(measure: Callable[[Any], Any]) -> Callable[..., int]:
        @wraps(measure)
        def main(argv: Sequence[str] | None = None) -> int:
            asked = parse(sys.modules[measure.__module__].__doc__, *positional, argv=argv, **options)
            if out is not None and asked.out is None:
                asked.out = RESULTS / f"{out}.json" if isinstance(out, str) else out(asked)
            asked.facts = environment(*packages)
            head: dict[str, Any] = {"benchmark": title, **asked.facts}
            if "threads" in options:
                torch.set_num_threads(asked.threads)
                head["threads"] = asked.threads
            asked.write = lambda found: write_result(asked.out, head | found)
            try:
                found = measure(asked)
            except GlassformerError as error:
                print(error, file=sys.stderr)
                return error.exit_code
            except KeyboardInterrupt:
                return 130
            if not isinstance(found, dict):
                return found or 0
            asked.write(found)
            print(f"written to {asked.out}")
            return 0

        if measure.__module__ == "__main__":
            sys.exit(main())
        return main

    return decorate


class Budget:
    """Minutes in which pieces of work may begin; one that the last one would outlast does not. 0: no limit."""

    def __init__(self, minutes: float):
        self.end = time.monotonic() + 60 * minutes if minutes else float("inf")
        self.last = 0.0  # seconds

    def spent(self) -> bool:
        return time.monotonic() + self.last > self.end

    @contextmanager
    def piece(self) -> Iterator[None]:
        """One piece of work, timed."""
        begun = time.monotonic()
        yield
        self.last = time.monotonic() - begun
