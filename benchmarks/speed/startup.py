"""How long it takes to begin: importing, the command line's first words, the first answer; beside the peers'.

    .venv/bin/python -m benchmarks.speed.startup [--rounds 7]

Each command is a process of its own, all in turn; seconds are by the clock, from its start to its end, with files in the
system's cache (an untimed round goes before). Memory is what the process had at most. The classifier is MiniLM, saved
by glassformer in the Hub's layout, which all open.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.results import environment, parse, result_file, spread, written

TEXT = "a warm film with a story to remember"


def commands(run: Path) -> dict[str, list[str]]:
    """What is started, by its name."""
    python, ours = sys.executable, str(Path(sys.executable).with_name("glassformer"))
    answer = f"import glassformer as gf; gf.load({str(run)!r}).predict([{TEXT!r}])"
    pipeline = f"from transformers import pipeline; pipeline('text-classification', {str(run)!r})({TEXT!r})"
    return {
        "Python alone": [python, "-c", "pass"],
        "import torch": [python, "-c", "import torch"],
        "import glassformer": [python, "-c", "import glassformer"],
        "import transformers": [python, "-c", "import transformers"],
        "import sentence_transformers": [python, "-c", "import sentence_transformers"],
        "glassformer --help": [ours, "--help"],
        "glassformer doctor": [ours, "doctor"],
        "glassformer predict RUN TEXT": [ours, "predict", str(run), TEXT],
        "gf.load(RUN).predict": [python, "-c", answer],
        "transformers.pipeline(RUN)": [python, "-c", pipeline],
    }


# A process counts what it was before it became the command, so a small one starts it, and takes the time.
STARTER = """
import resource, subprocess, sys, time
started = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
seconds = time.perf_counter() - started
print(seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6)
sys.exit(done.returncode)
"""


def once(command: list[str]) -> tuple[float, float]:
    """Seconds and MB of a process; RuntimeError where it fails."""
    starter = [sys.executable, "-S", "-E", "-c", STARTER, *command]
    done = subprocess.run(starter, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
    seconds, megabytes = map(float, done.stdout.split())
    return seconds, megabytes


def train(folder: Path) -> None:
    """A saved classifier: how well it answers does not matter here."""
    from glassformer.tasks.text_classification.estimator import TextClassifier

    texts = [f"a {word} film" for word in ("good", "bad", "warm", "dull")] * 4
    clf = TextClassifier("all-minilm-l6-v2", epochs=1, max_length=16, verbose=0)
    clf.fit(texts, [i % 2 for i in range(len(texts))]).save(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(__doc__, argv=arguments, rounds=7, out=result_file("startup"))
    facts = environment("transformers", "sentence-transformers")
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        train(run)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands(run)}
        for turn in range(-1, options.rounds):
            for name, command in commands(run).items():
                taken = once(command)
                if turn >= 0:
                    found[name].append(taken)
    rows: list[dict[str, Any]] = [
        {"name": name, "seconds": spread([s for s, _ in taken]), "peak_mb": spread([m for _, m in taken])}
        for name, taken in found.items()
    ]
    for row in rows:
        print(f"{row['name']:32} {row['seconds']['median']:6.2f} s {row['peak_mb']['median']:6.0f} MB")
    result = {"benchmark": "how long it takes to begin", **facts, "rounds": options.rounds, "rows": rows}
    return written(options.out, result | {"threads": facts["machine"]["threads"]})


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
