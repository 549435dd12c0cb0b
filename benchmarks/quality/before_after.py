"""Where a ViT looks before and after augmentation: rollout and occlusion of two runs on the same pictures.

    .venv/bin/python -m benchmarks.quality.before_after runs/hotdog-ladder-cifar/arms/{baseline,medium}/seed-0

For every picture of the data that judged both runs: Spearman's correlation between the two runs' maps, and for each
run how evenly a map is spread (its entropy, of the largest possible) and its share in the middle quarter of the
picture; means with 95 % bootstrap intervals over pictures. Occlusion hides windows of a quarter of the side. The figure
of some pictures (``--figure``) stays out of the repository, since photographs belong to their makers.
"""

from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from scipy.stats import spearmanr

from benchmarks.harness.command import command
from benchmarks.harness.seeds import resampled as mean
from glassformer.explain.methods import explain_input
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.load import load
from glassformer.tasks.run import read_run_recipe


def maps_of(clf: Any, picture: Any) -> dict[str, np.ndarray]:
    """``[rows, columns]`` of patches for each method; occlusion explains the label that this run predicts."""
    side = max(1, min(clf.model_.config.embedding.grid) // 4)
    options = {"rollout": {}, "occlusion": {"window": side, "stride": max(1, side // 2)}}
    found = {m: explain_input(clf, picture, method=m, maps=False, **given) for m, given in options.items()}
    return {method: one.scores for method, one in found.items()}


def spread_of(scores: np.ndarray) -> float:
    """Entropy of the positive part, of the largest possible; 1 is an even map."""
    shares = np.clip(scores, 0, None).ravel()
    if not shares.any():
        return 1.0
    shares = shares[shares > 0] / shares.sum()
    return float(-(shares * np.log(shares)).sum() / np.log(scores.size))


def middle_of(scores: np.ndarray) -> float:
    """Share of the positive part in the middle quarter of the area; an even map has a quarter there."""
    shares = np.clip(scores, 0, None)
    rows, columns = (slice(n // 4, n - n // 4) for n in scores.shape)
    return float(shares[rows, columns].sum() / shares.sum()) if shares.any() else 0.25


def draw(path: Path, shown: list[tuple[Any, list[dict[str, np.ndarray]], list[str]]]) -> None:
    """A row a picture: itself, then rollout and occlusion of each run."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(shown), 5, figsize=(10, 2.1 * len(shown)), squeeze=False)
    for row, (picture, both, said) in zip(axes, shown, strict=True):
        row[0].imshow(picture)
        for i, (maps, label) in enumerate(zip(both, said, strict=True)):
            for j, (method, scores) in enumerate(maps.items()):
                ax, most = row[1 + 2 * j + i], np.abs(scores).max()
                ax.imshow(scores, cmap="RdBu", vmin=-most, vmax=most)
                ax.set_title(f"{method}, {('before', 'after')[i]}: {label}", fontsize=8)
        for ax in row:
            ax.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=120, bbox_inches="tight")


@command(
    "rollout and occlusion before and after augmentation",
    ("runs", dict(type=Path, nargs=2, metavar="RUN", help="before and after")),
    out="before-after",
    count=50,
    figure=Path,
)
def main(options: Any) -> dict[str, Any]:
    pair = [load(run / "model") for run in options.runs]
    splits = TASKS["image-classification"].load(read_run_recipe(options.runs[0]))
    pictures = splits.evaluated.images[: options.count]
    methods, looks = ("rollout", "occlusion"), {"spread": spread_of, "middle": middle_of}
    alike: dict[str, list[float]] = {method: [] for method in methods}
    found: list[dict[str, Any]] = [{m: {k: [] for k in looks} for m in methods} for _ in pair]
    shown = []
    for number, picture in enumerate(track(pictures, description="pictures")):
        both = [maps_of(clf, picture) for clf in pair]
        for method in methods:
            alike[method].append(float(spearmanr(both[0][method].ravel(), both[1][method].ravel())[0]))
            for run, maps in zip(found, both):
                for key, look in looks.items():
                    run[method][key].append(look(maps[method]))
        if number % max(1, len(pictures) // 4) == 0:
            whole = pair[0].transform_.picture(picture, "picture").transpose(1, 2, 0)
            shown.append((whole, both, [str(clf.predict([picture])[0]) for clf in pair]))
    before, after = ({m: {key: mean(v) for key, v in run[m].items()} for m in methods} for run in found)
    if options.figure:
        draw(options.figure, shown)
    return {
        "runs": [run.as_posix() for run in options.runs],
        "pictures": len(pictures),
        "correlation": {method: mean(values) for method, values in alike.items()},
        "before": before,
        "after": after,
    }
