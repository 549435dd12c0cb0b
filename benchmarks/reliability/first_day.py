"""A stranger's first day: made-up messy tables and folders, the commands that one would give, and what is to be said.

    python -m benchmarks.reliability.first_day                        all steps, and benchmarks/results/first-day.json
    python -m benchmarks.reliability.first_day --only pictures        one kind, nothing written

Each step is one command (or one call from Python) with the exit code that it must end with, words that must be among
what is said, words that must not be, and files that must be there afterwards. Commands run in this process.
"""

import contextlib
import io
import os
import re
import shlex
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness.options import parse
from benchmarks.harness.results import RESULTS, environment, write_result
from benchmarks.reliability.first_day_pictures import picture_steps
from benchmarks.reliability.first_day_steps import Step
from benchmarks.reliability.first_day_tables import table_steps
from benchmarks.reliability.first_day_texts import text_steps

KINDS = {"tables": table_steps, "texts": text_steps, "pictures": picture_steps}
WIDTH = "2000"  # of the terminal: no message is broken into lines


@contextlib.contextmanager
def at_home(home: Path) -> Iterator[None]:
    """In a folder, on a wide terminal."""
    before, columns = Path.cwd(), os.environ.get("COLUMNS")
    os.chdir(home)
    os.environ["COLUMNS"] = WIDTH
    try:
        yield
    finally:
        os.chdir(before)
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns


def take(step: Step) -> tuple[int, str]:
    """The exit code of a step, and all that was said on one line."""
    from glassformer.cli.app import main
    from glassformer.errors import InputError

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        if callable(step.do):
            try:
                said.write(str(step.do()))
                code = 0
            except InputError as error:
                said.write(str(error))
                code = error.exit_code
        else:
            code = main(shlex.split(step.do))
    return code, " ".join(said.getvalue().split())


def judge(step: Step, code: int, said: str) -> list[str]:
    """What of a step is not as it should be."""
    wrong = [] if code == step.code else [f"exit code {code}, not {step.code}"]
    wrong += [f"not said: {word}" for word in step.told if re.search(word, said) is None]
    wrong += [f"said: {word}" for word in step.untold if re.search(word, said) is not None]
    wrong += [f"not there: {name}" for name in step.made if not Path(name).exists()]
    if code == 2 and "Traceback" in said:
        wrong.append("a traceback")
    return wrong


def run(kinds: Sequence[str], home: Path, say=lambda line: None) -> list[dict]:
    """Take every step of some kinds, in a folder of each kind's own; a row for each."""
    rows = []
    for kind in kinds:
        place = home / kind
        place.mkdir(parents=True)
        with at_home(place):
            for step in KINDS[kind](place):
                started = time.perf_counter()
                try:
                    code, said = take(step)
                    wrong = judge(step, code, said)
                except Exception:
                    said, wrong = "", [traceback.format_exc(limit=-3)]
                seconds = time.perf_counter() - started
                rows.append({"kind": kind, "step": step.what, "seconds": round(seconds, 2), "wrong": wrong})
                if wrong:
                    say(f"{kind}: {step.what}: {'; '.join(wrong)}\n    {said[-1500:]}")
    return rows


def main() -> int:
    options = parse(__doc__, only=dict(choices=KINDS, action="append"), out=RESULTS / "first-day.json")
    started = time.perf_counter()
    with TemporaryDirectory() as home:
        rows = run(options.only or list(KINDS), Path(home), lambda line: print(line, flush=True))
    wrong = [row for row in rows if row["wrong"]]
    print(f"{len(rows) - len(wrong)} of {len(rows)} steps as told, {time.perf_counter() - started:.0f} s")
    if options.only is None:
        result = environment("scikit-learn", "pillow", "pyarrow") | {
            "benchmark": "first day",
            "steps": len(rows),
            "as_told": len(rows) - len(wrong),
            "kinds": dict(Counter(row["kind"] for row in rows)),
            "seconds": round(time.perf_counter() - started, 1),
            "taken": rows,
        }
        write_result(options.out, result)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
