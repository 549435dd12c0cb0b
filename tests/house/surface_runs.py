"""What runs leave behind, read from small ones: the files of each folder, the keys of their JSON, columns of tables.

    PYTHONPATH=src python tests/house/surface_runs.py OUT.json FOLDER [KIND ...]        makes the runs in FOLDER

See `surface.py`: the same script asks an earlier version and this one.
"""

import contextlib
import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from make import KINDS, write_pairs

SHORT = {"vectors": ["epochs=3"]}  # the others: two passes
STUDY = """summary = "two arms"
expect = "nothing"
recipe = "europe"
seeds = [0, 1]
split = "validation"

[arms.baseline]

[arms.slow]
lr = 1e-4
"""
TEXTS = ["Paris is the capital of France .", "They speak Greek there ."]
DATA_KEYED = ("classes", "confusion", "nearest")  # below these the keys are the data's


def ask(*words: str) -> str:
    """What a verb prints, run in this process.

    Raises:
        RuntimeError: it ended with anything but 0.
    """
    from glassformer.cli.app import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(words))
    if code:
        raise RuntimeError(f"glassformer {' '.join(words)}: exit code {code}: {err.getvalue()}")
    return out.getvalue()


def settings_of(kind: str) -> list[str]:
    """What ``--set`` gives a run of this kind."""
    common = [] if kind == "vectors" else ["threads=1", "precision=fp32", "seed=3"]
    return [*common, *KINDS[kind][1], *SHORT.get(kind, ["epochs=2"])]


def train(kind: str, *more: str) -> Path:
    recipe, folder = KINDS[kind][0], Path("runs") / kind
    words = ["train", recipe, "--out", str(folder), *more]
    if recipe.startswith("multi30k"):
        words += ["--data", "pairs.csv", "--set", "validation_size=23", "--set", "test_size=29"]
    for setting in settings_of(kind):
        words += ["--set", setting]
    ask(*words)
    return folder


# --- reading --------------------------------------------------------------------------------------


def paths(value: Any, where: str = "") -> Iterator[str]:
    """``a.b[].c`` for every key below a JSON value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{where}.{key}".lstrip(".")
            if key not in DATA_KEYED:
                yield from paths(item, f"{where}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from paths(item, f"{where}[]")


def keys_of(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".csv":
        return list(next(csv.reader(io.StringIO(text))))
    values = (
        [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else [json.loads(text)]
    )
    return sorted({path for value in values for path in paths(value)})


def left_in(folder: Path) -> dict[str, Any]:
    """Its files (of the checkpoints, which come and go, only that there are some), and the keys of what has keys."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and "checkpoints" not in p.parts[:-1]]
    files = [p for p in files if p.name not in ("tokenizer.json", "vocab.json")]
    known = {p.relative_to(folder).as_posix(): [] for p in files}
    for path in files:
        if path.suffix in (".json", ".jsonl", ".csv"):
            known[path.relative_to(folder).as_posix()] = keys_of(path)
    return known


# --- the runs -------------------------------------------------------------------------------------


def texts() -> dict[str, Any]:
    """A classifier of texts, and every verb that asks one."""
    run = str(train("text"))
    surface: dict[str, Any] = {"run": left_in(Path(run))}
    Path("some.csv").write_text(
        "text,label\n" + "\n".join(f'"{t}",France' for t in TEXTS) + "\n", encoding="utf-8"
    )
    ask("predict", run, "some.csv", "--out", "predicted.csv")
    ask("explain", run, TEXTS[0], "--method", "rollout", "--out", "explained.json")
    surface["predict"], surface["explain"] = keys_of(Path("predicted.csv")), keys_of(Path("explained.json"))
    surface["evaluate"] = sorted(paths(json.loads(ask("evaluate", run, "--json"))))
    surface["calibrate"] = sorted(paths(json.loads(ask("calibrate", run, "--json"))))
    surface["calibrated"] = left_in(Path(run))
    return surface


def folds() -> dict[str, Any]:
    words = [word for setting in settings_of("text") for word in ("--set", setting)]
    ask("cross-validate", "europe", "--folds", "2", "--out", "folds", *words)
    ask("review-labels", "folds", "--top", "5")
    return left_in(Path("folds"))


def arms() -> dict[str, Any]:
    settings = [s for s in settings_of("text") if not s.startswith(("bootstrap", "seed"))]
    words = [word for setting in [*settings, "bootstrap=100"] for word in ("--set", setting)]
    Path("two-arms.toml").write_text(STUDY, encoding="utf-8")
    ask("compare", "two-arms.toml", "--out", "study", *words)
    return left_in(Path("study"))


def other(kind: str) -> Callable[[], dict[str, Any]]:
    def made() -> dict[str, Any]:
        if kind == "lora" and not Path("runs/masked").exists():
            train("masked")
        surface: dict[str, Any] = {"run": left_in(train(kind))}
        if kind == "vectors":
            surface["vectors"] = sorted(paths(json.loads(ask("vectors", "runs/vectors", "france", "--json"))))
        if kind == "pictures":
            surface["evaluate"] = sorted(paths(json.loads(ask("evaluate", "runs/pictures", "--json"))))
        if kind in ("lora", "pictures"):
            ask("export", f"runs/{kind}", "--to", "hf", "--out", f"{kind}-hf")
            surface["hf"] = left_in(Path(f"{kind}-hf"))
        return surface

    return made


RUNS: dict[str, Callable[[], dict[str, Any]]] = {
    "text": texts,
    "folds": folds,
    "study": arms,
    **{k: other(k) for k in KINDS if k != "text"},
}


def collect(folder: Path, kinds: list[str]) -> dict[str, Any]:
    """The surface of these kinds of runs, made in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_pairs(folder / "pairs.csv")
    with contextlib.chdir(folder):
        # Low-rank updates begin from the masked-word model, which they train where nobody has.
        return {kind: RUNS[kind]() for kind in sorted(kinds or RUNS, key=lambda kind: kind == "lora")}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    surface = collect(Path(sys.argv[2]).resolve(), sys.argv[3:])
    Path(sys.argv[1]).write_text(json.dumps(surface, indent=1, sort_keys=True), encoding="utf-8")
