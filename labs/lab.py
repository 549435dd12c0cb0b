"""What every lab uses: its budget, its answers, its figures, and the result files of long trainings.

GLASSFORMER_LAB_BUDGET=small shrinks every training to seconds: everything runs, the figures mean little.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from questions import QUESTIONS
from scipy.stats import binomtest, t

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SMALL = os.environ.get("GLASSFORMER_LAB_BUDGET", "full") == "small"
INK, BLUE, RED, GREEN, GREY = "#23303d", "#2f6db5", "#c8553d", "#4f8a5b", "#9aa5b1"
ANSWERS: dict[str, str] = {}  # question -> the answer, of the lab that runs
T = TypeVar("T")

mpl.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "glassformer", "font.size": 10, "axes.edgecolor": GREY,
    "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK, "axes.titlesize": 10.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "figure.facecolor": "white",
    "axes.prop_cycle": mpl.cycler(color=[BLUE, RED, GREEN, INK, GREY]),
    "image.cmap": "Blues", "figure.constrained_layout.use": True, "savefig.facecolor": "white",
})  # fmt: skip


def budget(small: T, full: T) -> T:
    """The first on the small budget, the second otherwise."""
    return small if SMALL else full


def answer(question: str, text: str) -> None:
    """Print the answer to a question of ``questions.py``; the text holds figures that the cell computed.

    Raises:
        ValueError: no figure in it, or no such question.
    """
    if question not in QUESTIONS:
        raise ValueError(f"no question {question!r}")
    if not any(c.isdigit() for c in text):
        raise ValueError(f"the answer to {question!r} has no figure: {text}")
    ANSWERS[question] = text
    print(f"Q  {QUESTIONS[question]}\nA  {text}")


def span(values: Any, form: str = "{:.1%}") -> str:
    """The mean over trainings, and the lowest and the highest of them: ``71.6% (70.2% to 73.0%)``."""
    low, high = form.format(min(values)), form.format(max(values))
    mean = form.format(sum(values) / len(values))
    return mean if low == high else f"{mean} ({low} to {high})"


def chance(share: float, n: int, form: str = "{:.1%}") -> str:
    """Between which shares the true one lies when ``n`` examples were judged (Wilson's interval, 95 %): ``98.9% to 100.0%``."""
    found = binomtest(round(share * n), n).proportion_ci(0.95, "wilson")
    return f"{form.format(found.low)} to {form.format(found.high)}"


def apart(differences: Any) -> tuple[float, float, float]:
    """The mean of differences ``[seeds, n]`` on the same n examples, and the ends of its 95 % interval.

    Student's t over the seeds, with the variance of the examples' draw added; of one seed the draw alone.
    """
    each = np.asarray(differences, float)
    seeds, n = each.shape
    mean, drawn = float(each.mean()), float(each.mean(0).var() / n)
    if seeds == 1:
        return mean, mean - 1.96 * drawn**0.5, mean + 1.96 * drawn**0.5
    half = float(t.ppf(0.975, seeds - 1)) * (float(each.mean(1).var(ddof=1)) / seeds + drawn) ** 0.5
    return mean, mean - half, mean + half


def points(differences: Any) -> str:
    """``apart`` in words: ``+0.3 points (-1.2 to +1.8)``."""
    mean, low, high = (100 * v for v in apart(differences))
    return f"{mean:+.1f} points ({low:+.1f} to {high:+.1f})"


def recorded(name: str) -> dict[str, Any] | None:
    """A result file of a long training, which is read here and not repeated; None where it has not been made."""
    print(source_of(name))
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def source_of(name: str) -> str:
    """Which result file a lab reads, in words; another content gives other words, so a page shows when it is stale."""
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        return f"{name}: not measured yet; its file would be benchmarks/results/{name}.json"
    content = path.read_bytes()
    found = json.loads(content)
    run = (found.get("runs") or [found])[0]
    machine = run.get("machine", {})
    told = [machine.get("gpu") or machine.get("cpu", ""), str(run.get("date", ""))[:10]]
    told.append(f"sha256 {hashlib.sha256(content).hexdigest()[:8]}")
    return f"{name}: read from benchmarks/results/{name}.json ({', '.join(filter(None, told))})"


def measured(*recipes: str) -> dict[str, float]:
    """The mean score over the seeds of each recipe that has a result file: accuracy, or what else judges it."""
    found = {name: recorded(f"recipe-{name}") for name in recipes}
    return {name: (file.get("accuracy") or file["score"])["mean"] for name, file in found.items() if file}


def studied(name: str) -> dict[str, dict[str, Any]]:
    """The arms of a measured study by name, which is read here and not repeated; none where it has not been made."""
    found = recorded(f"study-{name}")
    return {arm["name"]: arm for arm in found["arms"]} if found else {}


def real_data(name: str) -> bool:
    """Whether this data set lies under GLASSFORMER_DATA and the budget is the full one; says what is used."""
    root = os.environ.get("GLASSFORMER_DATA")
    found = not SMALL and root is not None and (Path(root) / name).is_dir()
    print(f"{name}: {'the real data' if found else 'not used; the embedded data takes its place'}")
    return found


def maps(
    weights: Any, names: list[str] | None = None, titles: list[str] | None = None, *, across: Any = None
):
    """A row of attention maps ``[T, S]``, dark where much is read; ``names`` on the sides."""
    figure, axes = plt.subplots(1, len(weights), figsize=(2.6 * len(weights) + 0.5, 2.9), squeeze=False)
    for i, (ax, w) in enumerate(zip(axes[0], weights, strict=True)):
        ax.imshow(w, vmin=0, vmax=max(float(w.max()), 1e-9))
        ax.set(title=titles[i] if titles else "", xticks=[], yticks=[])
        if names and len(names) <= 16:
            above = across or names
            ax.set_xticks(range(len(above)), above, rotation=60, ha="right", fontsize=8)
            ax.set_yticks(range(len(names)), names if i == 0 else [""] * len(names), fontsize=8)
    return figure


def bars(
    ax: Any, found: dict[str, float], *, form: str = "{:.2f}", colour: str = BLUE, title: str = ""
) -> None:
    """Named values as lying bars, the first on top, each with its figure."""
    names = list(found)[::-1]
    ax.barh(names, [found[n] for n in names], color=colour, height=0.6)
    for i, name in enumerate(names):
        ax.text(found[name], i, " " + form.format(found[name]), va="center", fontsize=9)
    ax.set(title=title)
    ax.margins(x=0.18)


def accuracy_curve(clf: Any) -> tuple[list[float], list[float]]:
    """(training, validation) accuracy after each epoch of a fitted classifier."""
    found = [r for r in clf.history_ if r["kind"] == "evaluation"]
    return [r["train_accuracy"] for r in found], [r["accuracy"] for r in found]


def loss_curve(clf: Any) -> tuple[list[float], list[float]]:
    """(training, validation) loss after each epoch of a fitted classifier."""
    found = [r for r in clf.history_ if r["kind"] == "evaluation"]
    return [r["train_loss"] for r in found], [r["loss"] for r in found]
