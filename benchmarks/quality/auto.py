"""How good is what one gets without a setting? Accuracy on test splits beside the simple ways.

    GLASSFORMER_DATA=... .venv/bin/python -m benchmarks.quality.auto [--data banking77 sick] [--rows 100 1000 10-each all]
        [--methods ours tfidf svc embeddings] [--draws 3] [--threads 1]

    ours         gf.TextClassifier().fit(texts, labels), no setting at all (scores: gf.TextRegressor();
                 images: gf.ImageClassifier(), without DINOv2's weights, where the Hub is away)
    named, hog   the same with "all-minilm-l6-v2" and "hog"
    tfidf        word TF-IDF (1, 2), logistic regression
    svc          word (1, 2) and character (2 to 5) TF-IDF, LinearSVC
    embeddings   vectors of the untouched encoder, logistic regression
    setfit       SetFit's procedure (see ``few_shot.py``), up to 1,000 rows
    trainer      Hugging Face's Trainer with its own defaults: 3 epochs at 5e-5, batches of 8
    pixels       16 x 16 pixels, logistic regression

Scores have ridge regression in place of the logistic one; simple ways read both texts of a pair as one. Each
cell (data, rows, method) is a file under ``results/quality``, written after each draw; the same command goes
on. It holds which test answers are right, so that ways are compared in pairs, and for the simple ways their
score by 3-fold cross-validation, which chooses among them. One thread each unless ``--threads`` says more for
ours; seconds are of the fit alone; at most 5,000 test examples are judged. ``benchmarks.pages.tables`` writes
the tables of ``docs/defaults.md``.
"""

import itertools
import json
import os
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.options import parse
from benchmarks.harness.results import RESULTS, environment, kept, write_result
from benchmarks.harness.seeds import resampled
from glassformer.evaluate.compare import holm

FOLDER = RESULTS / "quality"
ENCODER = "all-minilm-l6-v2"
CHOSE = (
    "banking77",
    "tweet-irony",
    "imdb",
    "sick",
    "cifar10",
)  # rules may be chosen on these; all others report
WHOLE = ("banking77", "clinc150", "tweet-emotion", "ag-news-7600", "ntc-scv")  # with all rows, too
DATA = (*WHOLE, "tweet-irony", "tweet-offensive", "imdb", "goemotions", "sick", "stsb")
IMAGES = ("digits", "cifar10", "flowers")
ROWS = ("100", "1000", "10-each", "all")
EACH = ("banking77",)  # with ten of each class, too
PAIRED = {"sick": ("premise", "hypothesis"), "stsb": ("sentence1", "sentence2")}
SIMPLE = ("tfidf", "svc", "embeddings", "pixels")
FOLDS, RESAMPLES = 3, 1_000
THREADS = 1  # of ours; ``--threads`` sets it
JUDGED = 5_000  # test examples at most, drawn once
Predict = Callable[[list[Any]], Any]


def split_of(name: str, split: str) -> tuple[list[Any], list[Any]]:
    """Texts, pairs of texts or images, and their labels or scores; of GoEmotions comments with one label."""
    if name in IMAGES:
        from glassformer.data.image_sources import load_image_dataset

        found = load_image_dataset(name).splits[split]
        return list(found.images), list(found.labels)
    import pyarrow.parquet as pq

    table = pq.read_table(Path(os.environ["GLASSFORMER_DATA"]) / name / f"{split}.parquet").to_pydict()
    if name in PAIRED:
        first, second = PAIRED[name]
        X: list[Any] = [*zip(table[first], table[second], strict=True)]
        return X, table["score" if name == "stsb" else "label"]
    if name == "goemotions":
        keep = [i for i, labels in enumerate(table["labels"]) if len(labels) == 1]
        return [table["text"][i] for i in keep], [table["labels"][i][0] for i in keep]
    return table["text"], table["label"]


def at_most(n: int, X: list[Any], y: list[Any]) -> tuple[list[Any], list[Any]]:
    """``n`` examples drawn by a fixed seed, in their order; all where there are no more."""
    kept = np.sort(np.random.default_rng(0).permutation(len(y))[:n])
    return [X[i] for i in kept], [y[i] for i in kept]


def drawn(y: list[Any], rows: str, draw: int) -> np.ndarray:
    """Rows of a draw; every class has one at least, and with ``k-each`` k."""
    rng = np.random.default_rng(draw)
    order = rng.permutation(len(y))
    number, each, _ = rows.partition("-each")
    if each:
        classes = np.asarray(y)[order]
        return np.concatenate([order[classes == k][: int(number)] for k in np.unique(classes)])
    return _with_every_class(y, int(rows), order)


def _with_every_class(y: list[Any], rows: int, order: np.ndarray) -> np.ndarray:
    if isinstance(y[0], float):
        return order[:rows]
    first = {y[i]: i for i in order[::-1]}
    rest = [i for i in order if i not in {*first.values()}]
    return np.array([*first.values(), *rest][: max(rows, len(first))])


# --- the ways ---------------------------------------------------------------------------------------------------------


def ours(X: list[Any], y: list[Any], draw: int, name: str | None = None) -> tuple[Predict, dict[str, Any]]:
    import glassformer as gf

    numbers = isinstance(y[0], float)
    texts = isinstance(X[0], str | tuple)
    kind: Any = gf.TextRegressor if numbers else gf.TextClassifier if texts else gf.ImageClassifier
    model = kind(*[name] if name else [], seed=draw, threads=THREADS)
    # Many classes in few rows would be taken for numbers where they are integers.
    model.fit(X, y if numbers else [f"label {k}" for k in y])
    more: dict[str, Any] = {"tried": [*model.tried_]} if model.tried_ else {}
    if numbers:
        return model.predict, more
    labels = {f"label {k}": k for k in y}
    more["probabilities"] = model, labels
    return lambda others: [labels[name] for name in model.predict(others)], more


def named(X: list[Any], y: list[Any], draw: int) -> tuple[Predict, dict[str, Any]]:
    return ours(X, y, draw, ENCODER)


def hog(X: list[Any], y: list[Any], draw: int) -> tuple[Predict, dict[str, Any]]:
    return ours(X, y, draw, "hog")


def pixels(X: list[Any], y: list[Any], draw: int) -> tuple[Predict, dict[str, Any]]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from glassformer.evaluate.baselines import pixels as small

    # As the table of every run has it (``evaluate/baselines.py``).
    return _simple(make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=100)), small, X, y)


def _joined(X: list[Any]) -> list[str]:
    return [" ".join(x) if isinstance(x, tuple) else x for x in X]


def _linear(y: list[Any], classes: Any) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge() if isinstance(y[0], float) else classes


def tfidf(X: list[Any], y: list[Any], draw: int) -> tuple[Predict, dict[str, Any]]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    model = make_pipeline(words, _linear(y, LogisticRegression(C=10, max_iter=1000)))
    return _simple(model, _joined, X, y)


def svc(X: list[Any], y: list[Any], draw: int) -> tuple[Predict, dict[str, Any]]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.svm import LinearSVC

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
    return _simple(make_pipeline(make_union(words, letters), _linear(y, LinearSVC())), _joined, X, y)


def embeddings(X: list[Any], y: list[Any], draw: int) -> tuple[Predict, dict[str, Any]]:
    from sklearn.linear_model import LogisticRegression

    import glassformer as gf

    encoder = gf.Embedder(ENCODER, threads=1)

    def vectors(X: list[Any]) -> np.ndarray:
        if not isinstance(X[0], tuple):
            return encoder.encode(X)
        a, b = (encoder.encode(list(side)) for side in zip(*X, strict=True))
        return np.concatenate([a, b, np.abs(a - b), a * b], 1)

    # Vectors of length 1 want a weak regularization: with C = 1 accuracy is two points lower on banking77.
    return _simple(_linear(y, LogisticRegression(C=16, max_iter=1000)), vectors, X, y)


def _simple(model: Any, read: Callable, X: list[Any], y: list[Any]) -> tuple[Predict, dict[str, Any]]:
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score

    features = read(X)
    rare = isinstance(y[0], float) or min(Counter(y).values()) < FOLDS
    kind = KFold if rare else StratifiedKFold
    folds = kind(FOLDS, shuffle=True, random_state=0)
    score = float(np.mean(cross_val_score(model, features, y, cv=folds)))
    model.fit(features, y)
    return lambda others: model.predict(read(others)), {"cross_validation": round(score, 5)}


def setfit(X: list[Any], y: list[Any], draw: int) -> tuple[Predict, dict[str, Any]]:
    from benchmarks.quality import few_shot

    return few_shot.setfit(X, y, draw, "fp32")[0], {}


def trainer(X: list[Any], y: list[Any], draw: int) -> tuple[Predict, dict[str, Any]]:
    import torch
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

    from glassformer.checkpoints.hub import resolve_checkpoint

    disable_progress_bars()
    folder = str(resolve_checkpoint(ENCODER).path)
    classes = [0.0] if isinstance(y[0], float) else sorted(set(y))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(draw)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(classes))

    def rows(X: list[Any], y: list[Any] | None = None) -> Dataset:
        sides = [*zip(*X, strict=True)] if isinstance(X[0], tuple) else [X]
        table = dict(tokenizer(*map(list, sides), truncation=True, max_length=256))
        if y is not None:
            table["labels"] = y if len(classes) == 1 else [classes.index(label) for label in y]
        return Dataset.from_dict(table)

    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(
            output_dir=out, seed=draw, use_cpu=True, save_strategy="no", logging_strategy="no",
            report_to="none", disable_tqdm=True,
        )  # fmt: skip
        learner = Trainer(model, arguments, train_dataset=rows(X, y), processing_class=tokenizer)
        learner.train()

    def predict(others: list[Any]) -> list[Any]:
        found = learner.predict(rows(others)).predictions
        return found[:, 0].tolist() if len(classes) == 1 else [classes[i] for i in found.argmax(1)]

    return predict, {}


METHODS: dict[str, Callable] = {
    "ours": ours, "named": named, "tfidf": tfidf, "svc": svc, "embeddings": embeddings, "setfit": setfit, "trainer": trainer,
}  # fmt: skip
OF_IMAGES: dict[str, Callable] = {"ours": ours, "hog": hog, "pixels": pixels}


def methods_of(data: str) -> dict[str, Callable]:
    return OF_IMAGES if data in IMAGES else METHODS


# --- cells ------------------------------------------------------------------------------------------------------------


def measure(data: str, rows: str, method: str, draws: int) -> None:
    """Fill one cell, from where its file stops."""
    file = FOLDER / f"{data}-{rows}-{method}.json"
    cell = kept(file) or {"data": data, "rows": rows, "method": method, "draws": []}
    X, y = split_of(data, "train")
    judged, truth = at_most(JUDGED, *split_of(data, "test"))
    for draw in range(len(cell["draws"]), 1 if rows == "all" else draws):
        chosen = range(len(y)) if rows == "all" else drawn(y, rows, draw).tolist()
        began = time.perf_counter()
        predict, more = methods_of(data)[method]([X[i] for i in chosen], [y[i] for i in chosen], draw)
        seconds = time.perf_counter() - began
        answers, probabilities = np.asarray(predict(judged)), more.pop("probabilities", None)
        record: dict[str, Any] = {"draw": draw, "rows": len(chosen), "seconds": round(seconds, 1), **more}
        if THREADS > 1 and method in ("ours", "named"):
            record["threads"] = THREADS
        if isinstance(truth[0], float):
            from scipy.stats import spearmanr

            record["spearman"] = round(float(spearmanr(answers, truth)[0]), 5)
        else:
            right = answers == np.asarray(truth)
            record |= {"accuracy": round(float(right.mean()), 5), "n": len(right)}
            record["right"] = np.packbits(right).tobytes().hex()
        if probabilities is not None:
            record["calibration_error"] = round(_calibration_error(probabilities, judged, truth), 4)
        cell["draws"].append(record)
        write_result(file, cell | {"environment": environment("scikit-learn")})
        said = record.get("accuracy", record.get("spearman"))
        print(f"{data}, {rows} rows, {method}, draw {draw}: {said:.4f}, {seconds:.0f} s", flush=True)


def _calibration_error(fitted: tuple[Any, dict[str, Any]], X: list[Any], truth: list[Any]) -> float:
    """Of the examples whose class the training rows have."""
    from glassformer.evaluate.calibrate import calibration_error, confidences

    model, labels = fitted
    number = {labels[name]: k for k, name in enumerate(model.classes_.tolist())}
    known = [i for i, label in enumerate(truth) if label in number]
    found = model.predict_proba([X[i] for i in known])
    return calibration_error(*confidences(found, [number[truth[i]] for i in known]))


def cells() -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """(data, rows, method) -> its draws, of every cell that was measured."""
    found = [json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))]
    return {(one["data"], one["rows"], one["method"]): one["draws"] for one in found}


def gaps(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> np.ndarray:
    """How much oftener ``a`` is right than ``b`` on each test example, ``[n]`` from -1 to 1: a mean over the draws."""

    def bits(record: dict[str, Any]) -> np.ndarray:
        return np.unpackbits(np.frombuffer(bytes.fromhex(record["right"]), np.uint8), count=record["n"])

    first, second = (np.mean([bits(r) for r in of[: min(len(a), len(b))]], 0) for of in (a, b))
    return first - second


def difference(gap: np.ndarray) -> tuple[float, float, float]:
    """The mean of ``gaps`` and its 95 % interval by the bootstrap over test examples."""
    found = resampled(gap, RESAMPLES)
    return found["mean"], found["interval"][0], found["interval"][1]


def overall(found: dict[tuple[str, str], np.ndarray]) -> str:
    """What the cells (data, rows) that report say together, in one sentence.

    A cell is significantly behind where its paired difference is below 0 (a z-test over test examples, corrected by
    Holm over the cells). The mean over the cells has Student's interval, each cell counting once.
    """
    from scipy import stats

    reporting = {cell: gap for cell, gap in found.items() if cell[0] not in CHOSE}
    if len(reporting) < 2:
        return ""
    tested = [g.mean() / (g.std(ddof=1) / len(g) ** 0.5) if g.any() else 0.0 for g in reporting.values()]
    corrected = holm([float(2 * stats.norm.sf(abs(z))) for z in tested])
    lost = [cell for cell, p, z in zip(reporting, corrected, tested) if p < 0.05 and z < 0]
    behind = [f"{data} ({rows})" for data, rows in lost]
    means = np.array([100 * gap.mean() for gap in reporting.values()])
    half = stats.t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / len(means) ** 0.5
    return (
        f"On the data sets that were not used to design `auto` ({len(means)} entries), `auto` minus that simple model is {means.mean():+.1f} points on"
        f" average ({means.mean() - half:+.1f} to {means.mean() + half:+.1f}). Entries with `auto` significantly worse after Holm's correction: "
        f"{', '.join(behind) or 'none'}."
    )


def table(of: tuple[str, ...] = DATA) -> str:
    """Markdown: a line for each data set and number of rows; what was not measured is a dash."""
    known, methods = {cell: draws for cell, draws in cells().items() if cell[0] in of}, methods_of(of[0])
    names = [name for name in methods if any(method == name for _, _, method in known)]
    best = "`auto` minus the best simple model (chosen by cross-validation)"
    lines = [f"| Data | Rows | {' | '.join(names)} | {best} |", "|" + "---|" * (len(names) + 3)]
    compared: dict[tuple[str, str], np.ndarray] = {}
    for data in of:
        for rows in ROWS:
            there = {name: known[data, rows, name] for name in names if (data, rows, name) in known}
            if not there:
                continue
            key = "spearman" if data == "stsb" else "accuracy"
            shown = []
            for name in names:
                draws = there.get(name)
                if not draws:
                    shown.append("–")
                    continue
                mean = np.mean([r[key] for r in draws])
                shown.append(f"{100 * mean:.1f} ({np.mean([r['seconds'] for r in draws]):.0f} s)")
            simple = {n: np.mean([r["cross_validation"] for r in there[n]]) for n in SIMPLE if n in there}
            beside = "–"
            if simple and "ours" in there and key == "accuracy":
                best = max(simple, key=lambda n: simple[n])
                compared[data, rows] = gaps(there["ours"], there[best])
                gap, low, high = (100 * v for v in difference(compared[data, rows]))
                beside = f"{gap:+.1f} ({low:+.1f} to {high:+.1f}), {best}"
            named = "10 per class" if rows == "10-each" else rows
            lines.append(f"| {data} | {named} | {' | '.join(shown)} | {beside} |")

    counts = sorted({len(draws) for draws in known.values()})
    draws = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else counts[0]
    scores = " (stsb: Spearman)" if "stsb" in of else ""
    lines += [
        "",
        f"Test accuracy in %{scores}, with the time of the fit in seconds on one thread (all rows: two threads). "
        f"Random draws of the training examples per entry: {draws}.",
        overall(compared),
    ]
    return "\n".join(lines)


def main() -> None:
    args = parse(
        __doc__,
        data=dict(nargs="+", default=DATA, choices=[*DATA, *IMAGES]),
        rows=dict(nargs="+", default=ROWS, choices=ROWS),
        methods=dict(nargs="+", default=[*METHODS | OF_IMAGES], choices=[*METHODS | OF_IMAGES]),
        draws=3,
        threads=1,
    )
    global THREADS
    THREADS = args.threads
    warnings.simplefilter("ignore")
    for data, rows, method in itertools.product(args.data, args.rows, args.methods):
        left_out = (
            method not in methods_of(data)
            or (rows == "all" and data not in WHOLE)
            or (rows == "10-each" and data not in EACH)
            or (method == "setfit" and (rows == "all" or data in PAIRED))
        )
        if not left_out:
            measure(data, rows, method, args.draws)


if __name__ == "__main__":
    main()
