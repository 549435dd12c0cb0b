"""How long it takes to begin: importing, the command line's first words, the first answer; beside the peers'.

    .venv/bin/python -m benchmarks.speed.startup [--rounds 7]

Each command is a process of its own, all in turn; seconds are by the clock, from its start to its end, with files in the
system's cache (an untimed round goes before). Memory is what the process had at most. The classifier is MiniLM, saved
by glassformer in the Hub's layout, which all open.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.command import command
from benchmarks.harness.results import result_file, spread
from benchmarks.harness.rounds import in_turn

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


@command(
    "how long it takes to begin",
    out=lambda options: result_file("startup"),
    packages=("transformers", "sentence-transformers"),
    rounds=7,
)
def main(options: Any) -> dict[str, Any]:
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        train(run)
        for name, taken in in_turn(commands(run), options.rounds, once).items():
            seconds, megabytes = (spread(column) for column in zip(*taken, strict=True))
            rows.append({"name": name, "seconds": seconds, "peak_mb": megabytes})
            print(f"{name:32} {seconds['median']:6.2f} s {megabytes['median']:6.0f} MB")
    return {"rounds": options.rounds, "rows": rows, "threads": options.facts["machine"]["threads"]}
