"""A recipe in fp32 beside its run in bf16: the same seed, order and dropout, judged on the same examples.

    .venv/bin/python -m benchmarks.quality.precision imdb-own-bert-given [--seed 0] [--runs runs] [--commit HASH]

The run in bf16 is that of ``benchmarks/quality/recipes.py`` (``runs/NAME-seed0``), finished before; the one in fp32 is
``runs/NAME-fp32-seed0``, which is trained here and goes on where it was stopped. ``benchmarks/results/precision-NAME.json``
has both figures with their intervals, the paired difference, and how many answers are equal.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.command import command
from benchmarks.harness.results import RESULTS, commit, write_result
from glassformer.report.published import duration
from glassformer.study.compare import compare_runs
from glassformer.study.results import read_run_predictions
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run import run_task


def agreement(a: Path, b: Path) -> float:
    """The share of the judged examples to which two runs give the same answer."""
    return float((read_run_predictions(a).predicted == read_run_predictions(b).predicted).mean())


def finding(recipe: str, half: Path, full: Path, others: Sequence[Path] = ()) -> dict[str, Any]:
    """What the two runs say about each other, as a finding of a row's page.

    ``others``, runs in bf16 with other seeds, say how far two trainings differ anyway.
    """
    compared = compare_runs([half, full])
    arms = dict(zip(("bf16", "fp32"), compared["arms"], strict=True))
    told = [json.loads((folder / "metrics.json").read_text(encoding="utf-8")) for folder in (half, full)]
    equal, of_seeds = agreement(half, full), [agreement(half, other) for other in others]
    apart = arms["fp32"]["accuracy"]
    low, high = apart["difference_interval"]
    rows = []
    for (name, arm), metrics in zip(arms.items(), told, strict=True):
        reached = f"{arm['accuracy']['mean']:.2%}", "{:.2%} to {:.2%}".format(*arm["accuracy"]["interval"])
        rows.append([name, *reached, f"{arm['log_loss']['mean']:.4f}", duration(metrics["seconds"]["train"])])
    verdict = (
        f"`{recipe}` with `precision=fp32` reaches {arms['fp32']['accuracy']['mean']:.2%} of {compared['n']:,} {compared['judged']} "
        f"examples, in bf16 with the same seed {arms['bf16']['accuracy']['mean']:.2%}: {100 * apart['difference']:+.2f} points "
        f"(95 % interval {100 * low:+.2f} to {100 * high:+.2f}, from resampling the test examples). The two models give the same answer to {equal:.1%} of them. "
        "One training each."
    )
    if of_seeds:
        seeds = f"bf16 with another seed gives the same answer to {statistics.mean(of_seeds):.1%}"
        less = equal > max(of_seeds)
        verdict += f" {seeds}: the number format changes {'less' if less else 'no less'} than the seed does."
    columns = ["Computed in", "Accuracy", "95 % interval", "Log loss", "Training"]
    return {
        "verdict": verdict,
        "tables": [{"title": "One seed, one thread", "columns": columns, "rows": rows}],
        "n": compared["n"],
        "accuracy": {name: arm["accuracy"]["mean"] for name, arm in arms.items()},
        "difference": apart["difference"],
        "difference_interval": [low, high],
        "mcnemar": arms["fp32"]["mcnemar"],
        "equal_answers": equal,
        "equal_answers_of_seeds": of_seeds,
    }


@command(
    None,
    "recipe",
    seed=0,
    runs=Path("runs"),
    commit=(str, "that runs which are finished already were trained at"),
)
def main(args: Any) -> None:
    half = args.runs / f"{args.recipe}-seed{args.seed}"
    full = args.runs / f"{args.recipe}-fp32-seed{args.seed}"
    if not (half / "metrics.json").is_file():
        first = f"first benchmarks/quality/recipes.py {args.recipe} --seeds {args.seed}"
        args.exit(2, f"error: no finished run in {half}: {first}\n")
    at = args.commit
    if not (full / "metrics.json").is_file():
        settings = [f"seed={args.seed}", "threads=1", "baselines=false", "precision=fp32"]
        run_task(load_recipe(args.recipe, settings), full, resume=full.exists(), log=print)
        at = commit()
    ran = json.loads((full / "metrics.json").read_text(encoding="utf-8"))
    head = {"benchmark": "precision", "title": f"In fp32: `{args.recipe}`", "recipe": args.recipe}
    head |= {key: ran[key] for key in ("machine", "versions", "date")}
    head |= {"commit": at, "seeds": [args.seed]}
    others = sorted(f.parent for f in args.runs.glob(f"{args.recipe}-seed*/metrics.json") if f.parent != half)
    result = {**head, **finding(args.recipe, half, full, others)}
    write_result(RESULTS / f"precision-{args.recipe}.json", result)
    print(result["verdict"])
