"""Whether a change of the code's form left its figures alone: this code and a commit's, on one machine in one go.

    python -m benchmarks.reliability.same_numbers COMMIT                all that is compared below
    python -m benchmarks.reliability.same_numbers COMMIT --only lstm

From-scratch recipes of eight kinds at ``limit=2000``: at least 60 losses and every score, bit for bit. Fine-tuning:
both go on from one checkpoint, the commit's of step 1, to step 60. A model that the commit saved: its probabilities,
six explanations, and the ONNX graph (types, names, attributes and weights). Each side runs in processes of its own,
through the command line or ``import glassformer``; bits are compared on the processor at hand, which the file names.
Needs the real data under GLASSFORMER_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.harness.common import RESULTS, environment, write_result

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("same_numbers_run.py")
LEAST = 60  # losses of a recipe
CLOCK = (
    "seconds",
    "chosen",  # what unset settings became: none in the version before
    "memory",
    "date",
    "per_second",
    "machine",
    "versions",
    "speed",
)  # figures that may differ
QUICK = ["limit=2000", "threads=1", "precision=fp32", "bootstrap=50", "baselines=false", "maps=1"]
SMALL = ["d_model=48", "num_layers=2", "num_heads=3", "d_ff=96"]
# kind -> (recipe, settings): sixty steps in a few seconds
RECIPES: dict[str, tuple[str, list[str]]] = {
    "text": ("imdb-encoder-small", [*QUICK, *SMALL, "epochs=1", "batch_size=32", "max_length=96", "sentences=[]"]),
    "picture": ("cifar10-vit", [*QUICK[:5], "validation_size=100", *SMALL, "epochs=1", "batch_size=31", "average=0.9"]),
    "lstm": ("ntc-lstm", [*QUICK, "d_model=32", "epochs=1", "batch_size=32", "batch_tokens=0"]),
    "textcnn": ("ntc-textcnn", [*QUICK, "d_model=32", "epochs=1", "batch_size=32", "batch_tokens=0"]),
    "translation": ("multi30k-transformer", [*QUICK[:3], *SMALL, "epochs=2", "batch_tokens=700", "beam=2"]),
    "masked words": ("ntc-mlm", [*QUICK[:3], *SMALL, "vectors=none", "epochs=2", "batch_tokens=1024"]),
    "vectors": ("countries-word2vec", ["epochs=61", "dim=17"]),
    "pre-norm with LoRA": ("imdb-encoder-small", [*QUICK, *SMALL, "norm=pre", "final_norm=true", "lora_rank=3",
                                                 "epochs=1", "batch_size=32", "max_length=64", "sentences=[]"]),
}  # fmt: skip
MODEL = "text"  # the recipe whose saved model is asked


def side(root: Path, *arguments: str, cwd: Path) -> None:
    """Run the driver on the code below ``root``."""
    env = os.environ | {
        "PYTHONPATH": str(root / "src"),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    subprocess.run([sys.executable, str(DRIVER), *arguments], check=True, cwd=cwd, env=env)


def scores(value: Any) -> Any:
    """Figures of a run without what the clock or the machine says."""
    if isinstance(value, dict):
        return {k: scores(v) for k, v in value.items() if not any(word in k for word in CLOCK)}
    return [scores(item) for item in value] if isinstance(value, list) else value


def losses(run: Path) -> list[float]:
    lines = (run / "history.jsonl").read_text(encoding="utf-8").splitlines()
    return [r["loss"] for r in map(json.loads, lines) if r.get("kind", "step") == "step" and "loss" in r]


def compare_recipe(kind: str, old: Path, new: Path, work: Path) -> dict[str, Any]:
    recipe, settings = RECIPES[kind]
    runs = []
    for name, root in (("old", old), ("new", new)):
        run = work / name / kind.replace(" ", "-")
        side(root, "train", recipe, str(run), *settings, cwd=work)
        runs.append(run)
    first, second = (losses(run) for run in runs)
    figures = [scores(json.loads((run / "metrics.json").read_text(encoding="utf-8"))) for run in runs]
    equal = sum(a == b for a, b in zip(first, second, strict=False))
    differs = differing(*figures)
    return {
        "what": f"{kind}: {recipe}",
        "losses": len(first),
        "equal_losses": equal if len(first) == len(second) else 0,
        "scores_equal": not differs,
        "differs": differs,
        "passed": len(first) == len(second) == equal >= LEAST and not differs,
    }


def differing(a: Any, b: Any, place: str = "") -> list[str]:
    """Where two nested values differ, at most ten places; what the first one did not have is no difference."""
    if a is None:
        return []
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [*a, *(k for k in b if k not in a)]
        found = [d for k in keys for d in differing(a.get(k), b.get(k), f"{place}.{k}".lstrip("."))]
        return found[:10]
    return [] if a == b else [f"{place}: {str(a)[:60]} -> {str(b)[:60]}"]


def compare_fine_tuning(old: Path, new: Path, work: Path) -> dict[str, Any]:
    side(old, "begin", str(work / "begun"), cwd=work)
    told = []
    for name, root in (("old", old), ("new", new)):
        folder = work / f"tuned-{name}"
        shutil.copytree(work / "begun", folder)
        side(root, "go-on", str(folder), str(work / f"tuned-{name}.json"), cwd=work)
        told.append(json.loads((work / f"tuned-{name}.json").read_text(encoding="utf-8")))
    equal = sum(a == b for a, b in zip(told[0]["losses"], told[1]["losses"], strict=False))
    return {
        "what": "fine-tuning: MiniLM, steps 2 to 60 from the commit's checkpoint of step 1",
        "losses": len(told[0]["losses"]),
        "equal_losses": equal,
        "scores_equal": told[0]["probabilities"] == told[1]["probabilities"],
        "passed": told[0] == told[1] and len(told[0]["losses"]) >= LEAST,
    }


def compare_model(old: Path, new: Path, work: Path) -> list[dict[str, Any]]:
    model = work / "old" / MODEL
    if not model.exists():
        recipe, settings = RECIPES[MODEL]
        side(old, "train", recipe, str(model), *settings, cwd=work)
    told = []
    for name, root in (("old", old), ("new", new)):
        side(root, "ask", str(model), str(work / f"asked-{name}.json"), str(work / f"onnx-{name}"), cwd=work)
        told.append(json.loads((work / f"asked-{name}.json").read_text(encoding="utf-8")))
    return [
        {"what": f"a saved model: {key}", "passed": told[0][key] == told[1][key],
         "differs": differing(told[0][key], told[1][key])}
        for key in told[0]
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", help="what this code is held against")
    parser.add_argument("--only", nargs="*", help="kinds of recipe, fine-tuning, model")
    parser.add_argument("--out", type=Path, default=RESULTS / "same-numbers.json")
    args = parser.parse_args()
    console, rows = Console(), []
    with tempfile.TemporaryDirectory() as scratch:
        work, old = Path(scratch) / "work", Path(scratch) / "commit"
        work.mkdir()
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", str(old), args.commit], check=True, cwd=ROOT
        )
        try:
            wanted = [k for k in (*RECIPES, "fine-tuning", "model") if not args.only or k in args.only]
            for kind in wanted:
                if kind == "model":
                    found = compare_model(old, ROOT, work)
                elif kind == "fine-tuning":
                    found = [compare_fine_tuning(old, ROOT, work)]
                else:
                    found = [compare_recipe(kind, old, ROOT, work)]
                for row in found:
                    console.print(
                        "equal " if row["passed"] else "DIFFER", row["what"], row.get("differs") or ""
                    )
                rows += found
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(old)], check=True, cwd=ROOT)
        commits = {
            name: subprocess.run(["git", "rev-parse", "--short", what], capture_output=True, text=True, cwd=ROOT,
                                 check=True).stdout.strip()
            for name, what in (("before", args.commit), ("after", "HEAD"))
        }  # fmt: skip
    if not args.only:
        write_result(args.out, {"benchmark": "the same numbers before and after", **environment(), **commits,
                                "rows": rows})  # fmt: skip
    return int(not all(row["passed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
