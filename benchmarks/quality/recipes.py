"""What the recipes reach: each recipe over several seeds, test figures with their spread.

    .venv/bin/python -m benchmarks.quality.recipes imdb-minilm --seeds 0 1 2 [--runs runs] [--set threads=1]

Every run is a run folder of its own (``runs/NAME-seed0``) and goes on where it was stopped. The figures of all
seeds go to ``benchmarks/results/recipe-NAME.json``; seeds that stand there already, measured with the same
settings, stay; where they had others, nothing is trained unless ``--replace`` gives them up. A result file names the
commit that its runs were trained at; of a run that was finished before, say it with ``--commit``.
"""

import json
import statistics
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.harness.command import command
from benchmarks.harness.options import SETTINGS
from benchmarks.harness.results import RESULTS, commit, write_result
from glassformer.data.corpus import hard_negatives
from glassformer.errors import ConfigError
from glassformer.report.published import IRRELEVANT, headline
from glassformer.tasks import supervised
from glassformer.tasks.catalog import TASKS, build_recipe, load_recipe
from glassformer.tasks.load import load
from glassformer.tasks.run import read_run_recipe, run_task
from glassformer.tasks.task import main_metric, write_json

# Metrics that an interval may stand beside, and what else stays of a split.
MEASURED = ("accuracy", "macro_f1", "micro_f1", "entity_f1", "exact_match", "f1")
BOTH = tuple(key for name in MEASURED for key in (name, f"{name}_interval"))
KEPT = {
    *BOTH, "n", "roc_auc", "average_precision", "log_loss", "words", "entities", "precision", "recall", "contexts",
    "answerable", "unanswerable", "by_kind", "errors", "errors_by_kind",
}  # fmt: skip
MOST = 100  # evaluations of a run that are kept


def figures(folder: Path) -> dict[str, Any]:
    """What is kept of a run."""
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    keys = (
        "seed", "best_step", "weights_source", "parameters", "tokens_per_second", "padding", "truncated", "seconds",
        "peak_memory_mb", "sentences", "machine", "versions", "date", "tests", "norms", "analogies", "masked", "masks",
        "excluded", "judged", "scores", "similarity", "others", "epochs", "threshold", "questions",
    )  # fmt: skip
    lines = (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
    records, known = [json.loads(line) for line in lines], metrics.get("baselines", {})
    keys_of_baselines = (*BOTH, "seconds")
    return {
        **{key: metrics[key] for key in keys if key in metrics},
        **{split: kept(metrics[split]) for split in ("test", "validation") if metrics.get(split)},
        **misleading(folder),
        "baselines": {
            name: {key: b[key] for key in keys_of_baselines if key in b} for name, b in known.items()
        },
        "evaluations": thinned([r for r in records if r["kind"] == "evaluation"]),
    }


def thinned(records: list[dict[str, Any]], most: int = MOST) -> list[dict[str, Any]]:
    """At most so many of them, evenly, the first and the last among them: a curve needs no more."""
    if len(records) <= most:
        return records
    return [records[round(i * (len(records) - 1) / (most - 1))] for i in range(most)]


def kept(scores: dict[str, Any]) -> dict[str, Any]:
    """The figures of a split that stay."""
    return {key: value for key, value in scores.items() if key in KEPT}


def misleading(folder: Path) -> dict[str, Any]:
    """Of a classifier of the generated sentences: the share right of those whose cities and languages mislead."""
    recipe = read_run_recipe(folder)
    if recipe.task != "text-classification" or recipe.data.source != "europe":
        return {}
    texts = hard_negatives()
    right = sum(answer == "other" for answer in load(folder / "model").predict(texts))
    return {"misleading": {"n": len(texts), "accuracy": right / len(texts)}}


def settings_digest(recipe: Any) -> str:
    """What tells two settings of a recipe apart, whatever the seed.

    Only what differs from the defaults counts: a key that a later version adds leaves the digest as it is.
    """
    settings = beyond(asdict(recipe), asdict(build_recipe({"task": recipe.task}, recipe.name)))
    for table in (settings, settings.get("train", settings), settings.get("evaluate", settings)):
        for key in ("name", "summary", "expect", *IRRELEVANT):
            table.pop(key, None)
    settings = {key: value for key, value in settings.items() if value != {}}
    return sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:16]


def beyond(settings: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The settings that are not the defaults, table by table; an empty table is left out."""
    out = {}
    for key, value in settings.items():
        if isinstance(value, dict) and isinstance(defaults.get(key), dict):
            if inner := beyond(value, defaults[key]):
                out[key] = inner
        elif key not in defaults or value != defaults[key]:
            out[key] = value
    return out


def known_runs(path: Path, digest: str, seeds: list[int], replace: bool = False) -> list[dict[str, Any]]:
    """The runs of other seeds with the same settings that the results file has already.

    Runs with other or unknown settings are a ConfigError, unless ``replace`` gives them up.
    """
    if not path.is_file():
        return []
    old = json.loads(path.read_text(encoding="utf-8"))
    others = [run for run in old["runs"] if run["seed"] not in seeds]
    if old.get("settings") == digest:
        return others
    if others and not replace:
        named = ", ".join(str(run["seed"]) for run in others)
        what = f"holds runs with other settings (seeds {named})"
        raise ConfigError(what, where=str(path), fix="Measure those seeds too, or give --replace")
    return []


def check_finished(folders: list[Path], digest: str) -> None:
    """Raises ConfigError where one of these runs has ended with other settings."""
    for folder in folders:
        if (folder / "metrics.json").is_file() and settings_digest(read_run_recipe(folder)) != digest:
            raise ConfigError("was trained with other settings", where=str(folder), fix="Name another --runs")


def in_order(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By their seeds, the first with the baselines: they are the same for every seed, and pages read them there."""
    runs = sorted(runs, key=lambda run: run["seed"])
    found = next((run["baselines"] for run in runs if run.get("baselines")), None)
    if found and not runs[0].get("baselines"):
        runs[0] = {**runs[0], "baselines": found}
    return runs


def evaluate_baselines(folder: Path) -> None:
    """The baselines of a finished run anew, on the same split, into its metrics.json."""
    recipe = read_run_recipe(folder)
    task, metrics = TASKS[recipe.task], json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    clf, splits = load(folder / "model"), task.load(recipe)
    chosen = clf.predicted_index(clf.outputs(splits.evaluated.examples))
    found = (clf, recipe, splits, chosen, main_metric(recipe))
    metrics["baselines"] = supervised.evaluate_baselines(task.baselines, *found)
    write_json(folder / "metrics.json", metrics)


@command(
    None,
    "recipe",
    seeds=[0, 1, 2],
    runs=Path("runs"),
    overrides=SETTINGS,
    baselines=(False, "of a finished first run, judge these again"),
    commit=(str, "that runs which are finished already were trained at"),
    beside=(int, "other trainings that shared the GPU: such times say little"),
    replace=(False, "give up runs that have other settings"),
)
def main(args: Any) -> None:
    console = Console(stderr=True)
    if args.baselines:
        evaluate_baselines(args.runs / f"{args.recipe}-seed{args.seeds[0]}")
    path = RESULTS / f"recipe-{args.recipe}.json"
    # before anything is trained
    digest = settings_digest(load_recipe(args.recipe, args.overrides))
    results = known_runs(path, digest, args.seeds, args.replace)
    check_finished([args.runs / f"{args.recipe}-seed{seed}" for seed in args.seeds], digest)
    for seed in args.seeds:
        # The baselines of one split are the same for every seed; the first run has them.
        begun = load_recipe(args.recipe)
        judged = hasattr(getattr(begun, "evaluate", None), "baselines")
        once = ["baselines=false"] if judged and seed != args.seeds[0] else []
        loud = ["verbose=1"] if judged else []
        recipe = load_recipe(args.recipe, [*args.overrides, *once, f"seed={seed}", *loud])
        folder = args.runs / f"{args.recipe}-seed{seed}"
        console.print(f"== {folder}")
        at = commit()
        if (folder / "metrics.json").is_file():
            at = args.commit
        else:
            run_task(recipe, folder, resume=folder.exists(), log=console.print)
        shared = {"beside": args.beside} if args.beside else {}
        results.append({**figures(folder), **shared, "commit": at})
    results = in_order(results)
    tested = [r["test"] for r in results if "test" in r]
    # Several labels an example, and entities, are not told by the share of right answers.
    led = {"entity_f1": "entity_f1", "exact_match": "f1", "micro_f1": "macro_f1"}
    name = next((led[key] for key in led if tested and key in tested[0]), "accuracy")
    scores = [figures[name] for figures in tested]
    if not scores:  # a task that is judged by something else
        name, scores = "score", [found[0] for r in results if (found := headline(r))]
    summary: dict[str, Any] = {
        "mean": round(statistics.mean(scores), 5),
        "min": min(scores),
        "max": max(scores),
    }
    summary["stdev"] = round(statistics.stdev(scores), 5) if len(scores) > 1 else None
    about = {"recipe": args.recipe, "overrides": args.overrides, "settings": digest}
    seeds = [run["seed"] for run in results]
    write_result(path, about | {"seeds": seeds, name: summary, "runs": results})
    console.print(json.dumps(summary))
