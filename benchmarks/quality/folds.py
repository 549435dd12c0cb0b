"""A study by cross-validation: every arm and seed over all pictures of a source, those of its validation part too.

    .venv/bin/python -m benchmarks.quality.folds hotdog-heads-backbone [--runs runs] [--folds 5] [--set threads=1] [--minutes 28]

For data too small for a test part: each picture is judged once an arm and seed, by a model that has not seen it; the folds are the
same for all. A finished fold is kept, so the same command goes on; ``--minutes`` ends it before an arm that it would not see
through. ``benchmarks/results/folds-NAME.json`` has accuracy and macro-F1 by seed, and the difference of each arm from the
study's baseline: Student's t over the seeds with the examples' draw added, corrected by Holm.
"""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.command import Budget, command
from benchmarks.harness.options import MINUTES, SETTINGS
from benchmarks.harness.results import RESULTS
from benchmarks.harness.seeds import corrected, paired
from glassformer.config import parse_settings
from glassformer.data.image import open_image
from glassformer.data.image_sources import load_image_dataset
from glassformer.study.folds import cross_validate
from glassformer.study.grid import Arm, Study, baseline_of, expand, folder_name, load_study


def pictures_in_one(source: str, folder: Path) -> Path:
    """A folder ``LABEL/PART-NUMBER.png`` of all pictures of a source that have labels; made once."""
    done = folder / ".done"
    if not done.is_file():
        for part, split in load_image_dataset(source).splits.items():
            for i, (picture, label) in enumerate(zip(split.images, split.labels or (), strict=False)):
                path = folder / str(label) / f"{part}-{i:05d}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                open_image(picture).convert("RGB").save(path)
        done.touch()
    return folder


def hits(folder: Path) -> np.ndarray:
    """Which answers are right, ``[n]``, in the order of the pictures' names."""
    with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: (row["text"], row["label"]))
    return np.array([row["label"] == row["predicted"] for row in rows], float)


def results(study: Study, arms: list[Arm], runs: Path, seeds: list[int]) -> dict[str, Any]:
    """What the arms reached over the seeds that all of them have, and how they differ from the baseline."""
    base = baseline_of(study, arms)
    found, right = {}, {}
    for arm in arms:
        folders = [runs / folder_name(arm.name) / f"seed-{seed}" for seed in seeds]
        metrics = [json.loads((f / "metrics.json").read_text(encoding="utf-8")) for f in folders]
        tested = [m["test"] for m in metrics]
        right[arm.name] = np.stack([hits(f) for f in folders])  # [S, n]
        found[arm.name] = {
            **{key: [one[key] for one in tested] for key in ("accuracy", "macro_f1")},
            "seconds": [round(m["seconds"]["train"], 1) for m in metrics],
            "confusion": np.sum([one["confusion"] for one in tested], 0).tolist(),
            "labels": tested[0]["labels"],
        }
    differences = {name: paired(ours - right[base]) for name, ours in right.items() if name != base}
    corrected(differences)
    n = right[base].shape[1]
    return {"baseline": base, "seeds": seeds, "n": n, "arms": found, "differences": differences}


@command(
    "study by cross-validation",
    "study",
    out=lambda options: RESULTS / f"folds-{options.study}.json",
    runs=Path("runs"),
    folds=5,
    overrides=SETTINGS,
    minutes=MINUTES,
)
def main(options: Any) -> dict[str, Any]:
    study = load_study(options.study)
    runs, settings = options.runs / f"{study.name}-folds", parse_settings(options.overrides)
    source = settings.pop("source", None) or expand(study, settings)[0].recipe.data.source
    pictures = pictures_in_one(source, runs / "pictures")
    fixed = {"source": str(pictures), "baselines": False, "evaluate.split": "test"}  # which there is none of
    arms, budget = expand(study, settings | fixed), Budget(options.minutes)
    left, whole = 0, []
    for seed in study.seeds:
        finished = True
        for arm in arms:
            folder = runs / folder_name(arm.name) / f"seed-{seed}"
            if not (folder / "metrics.json").is_file():
                if budget.spent():
                    left, finished = left + 1, False
                    continue
                with budget.piece():
                    cross_validate(arm.with_seed(seed), folder, options.folds)
            metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
            print(f"{arm.name}, seed {seed}: {metrics['test']['accuracy']:.1%}", flush=True)
        whole += [seed] if finished else []
    if len(whole) < 2:
        raise SystemExit(f"{left} cross-validations are left; nothing is written before two seeds are whole")
    print(f"{left} cross-validations are left; {len(whole)} seeds")
    head = {"name": study.name, "summary": study.summary, "overrides": options.overrides}
    return head | {"folds": options.folds, **results(study, arms, runs, whole)}
