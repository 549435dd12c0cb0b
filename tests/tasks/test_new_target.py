"""A kind of target that nobody knows, ordered classes, works everywhere once it and its task are registered."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike
from tests.commands import as_json, ok, refused, served
from torch import Tensor

import glassformer as gf
from glassformer import targets
from glassformer.config import section, setting
from glassformer.errors import NotForThisModelError, UnknownLabelError
from glassformer.evaluate.intervals import share_interval
from glassformer.evaluate.metrics import Plain, Share
from glassformer.evaluate.predictions import read_predictions
from glassformer.report import classes as page
from glassformer.report.html import KINDS
from glassformer.report.metrics import Table, value_table
from glassformer.report.page import Section, table
from glassformer.report.run import LabeledRun
from glassformer.targets.multiclass import Classes
from glassformer.targets.target import read_object
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.classifier import Classifier
from glassformer.tasks.estimator import with_settings
from glassformer.tasks.sections import RecipeKeys
from glassformer.tasks.supervised import supervised_task
from glassformer.tasks.text_classification.estimator import TextModel
from glassformer.tasks.text_classification.recipe import (
    DataConfig,
    EvaluateConfig,
    ModelConfig,
    TextConfig,
)
from glassformer.train.config import ClassifierFitConfig, SearchLimit, TokenBatches

# --- the target -----------------------------------------------------------------------------------


def median(probabilities: Any) -> Any:
    """The class ``[n]`` in which the cumulative probability of rows ``[n, C]`` reaches one half."""
    return (probabilities.cumsum(1) < 0.5).sum(1)


@dataclass(frozen=True)
class CumulativeCrossEntropy:
    """Is the label above each of the C - 1 limits between two ranks? The sum of these losses."""

    smoothing: float = 0.0

    def __call__(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """``[B, C]`` logits and targets ``[B]`` -> losses ``[B]``, the number that is right."""
        log_sum = logits.logsumexp(1, keepdim=True)
        below = logits.logcumsumexp(1)[:, :-1] - log_sum  # [B, C - 1], of P(y <= k)
        above = logits.flip(1).logcumsumexp(1).flip(1)[:, 1:] - log_sum  # of P(y > k)
        wanted = (targets[:, None] > torch.arange(below.shape[1], device=logits.device)).to(logits)
        wanted = wanted * (1 - self.smoothing) + self.smoothing / 2
        losses = -(wanted * above + (1 - wanted) * below).sum(1)
        return losses, (median(logits.detach().softmax(1)) == targets).sum()


@dataclass(frozen=True)
class Ratings(Classes):
    """Ordered classes. The prediction is the median: it has the least expected error in ranks."""

    LEVELS: ClassVar[tuple[str, ...]] = ("bad", "ok", "good")
    marker_keys: ClassVar[Sequence[str]] = ("within_one",)
    metrics: ClassVar[Mapping[str, Share]] = {
        "accuracy": Share("accuracy"),
        "within_one": Share("within one rank"),
        "mae": Plain("MAE in ranks", lower=True, limits=(0.0, np.inf)),
        **{key: metric for key, metric in Classes.metrics.items() if key != "accuracy"},
    }
    main_metrics: ClassVar[Sequence[str]] = ("accuracy", "within_one")
    terminal_columns: ClassVar[Sequence[str]] = (
        "accuracy",
        "accuracy_interval",
        "within_one",
        "mae",
        "seconds",
    )
    fold_table_metrics: ClassVar[Sequence[str]] = ("accuracy", "within_one", "mae")
    metrics_per_fold: ClassVar[tuple[str, ...]] = ("accuracy", "within_one", "mae", "log_loss")
    saved_names: ClassVar[Sequence[str | None]] = ("ratings",)

    def read(self, y: Any, origin: str = "labels") -> list[Any]:
        labels = super().read(y, origin)
        if unknown := [label for label in labels if label not in self.LEVELS]:
            fix = f"Use {', '.join(self.LEVELS)}"
            raise UnknownLabelError(f"label {unknown[0]!r} has no rank", where=origin, fix=fix)
        return labels

    def classes(self, labels: Sequence[Any], origin: str = "labels") -> list[Any]:
        return sorted(super().classes(labels, origin), key=self.LEVELS.index)

    def sort_classes(self) -> bool:
        return False  # a saved folder has them in their order

    def criterion(self, targets: np.ndarray, classes: list[Any], train: Any) -> Callable:
        return CumulativeCrossEntropy(train.label_smoothing)

    def validation_metrics(self, clf: Any, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        losses, _ = CumulativeCrossEntropy()(torch.from_numpy(logits), torch.from_numpy(targets))
        return super().validation_metrics(clf, logits, targets) | {"loss": float(losses.mean())}

    def predicted_index(self, probabilities: np.ndarray, threshold: Any = None) -> np.ndarray:
        return median(probabilities)

    def fit_threshold(self, probabilities: np.ndarray, targets: np.ndarray, metric: Any) -> Any:
        what = "ordered classes are predicted by their median"
        raise NotForThisModelError(what, where="threshold", fix="Leave it out")

    def score(
        self,
        outputs: ArrayLike,
        targets: ArrayLike,
        classes: Sequence[Any],
        predicted: ArrayLike | None = None,
        *,
        bootstrap: int = 1000,
        seed: int = 0,
        curves: bool = True,
    ) -> dict[str, Any]:
        """The metrics of classes, and how many ranks predictions are off."""
        p, options = np.asarray(outputs), {"bootstrap": bootstrap, "seed": seed, "curves": curves}
        predicted = median(p) if predicted is None else predicted
        found = super().score(p, targets, classes, predicted, **options)
        counts, n = np.array(found["confusion"]).ravel(), found["n"]
        places = np.arange(len(classes))
        off = np.abs(places[:, None] - places).ravel()  # ranks between the true and the predicted class
        drawn = np.random.default_rng(seed).multinomial(n, counts / n, bootstrap)  # [bootstrap, C * C]
        for key, each in {"mae": off, "within_one": off <= 1}.items():
            ends = np.quantile(drawn @ each / n, [0.025, 0.975]).tolist() if bootstrap else None
            found |= {key: float(counts @ each / n), f"{key}_interval": ends}
        if (ends := found["within_one_interval"]) is not None:  # of 0 or 1, how far from there it may be
            found["within_one_interval"] = share_interval(found["within_one"], n, ends)
        return found

    def metadata(self) -> dict[str, Any]:
        return {"targets": "ratings"}

    def has_file(self, folder: Path) -> bool:  # a file that other classes have too
        return super().has_file(folder) and self.has_scores(
            read_object(folder / "metrics.json").get("test") or {}
        )

    def script(self, form: str) -> str:
        return SCRIPTS[form]

    def not_exported(self, clf: Any) -> list[str]:
        return ["median", *super().not_exported(clf)]


SCRIPTS = {
    "onnx": """\
def decide(shares):  # of each row the label in which the cumulative probability reaches one half
    best = (shares.cumsum(1) < 0.5).sum(1)
    return [(ABOUT["labels"][i], float(p[i])) for i, p in zip(best, shares)]


def print_prediction(answer):
    line(answer[0], f"{answer[1]:.4f}")
""",
    "hf": """\
def print_predictions(found):
    for row in found.softmax(-1):
        best = int((row.cumsum(0) < 0.5).sum())
        line(LABELS[str(best)], f"{float(row[best]):.4f}")
""",
}


# --- its task: texts ------------------------------------------------------------------------------


@section
class RatingFitConfig(SearchLimit, TokenBatches, ClassifierFitConfig):
    """One fit of texts with ratings."""

    word_dropout: float = setting(0.0, "share of tokens hidden from the model at each step")


@dataclass(frozen=True)
class RatingRecipe(RecipeKeys):
    """One experiment."""

    task: Literal["text-rating"] = setting("text-rating", "which engine runs it")
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: RatingFitConfig = field(default_factory=RatingFitConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)


@with_settings
class TextRater(TextModel, Classifier, RatingFitConfig):
    """A Transformer that predicts a rating of a text."""

    RECIPE = RatingRecipe

    @classmethod
    def infer_kind(cls, y: Any) -> Ratings:
        return Ratings()


def shares_of_training(est: Any, recipe: Any, splits: Any, targets: np.ndarray) -> tuple[str, np.ndarray]:
    """The baseline: the shares of the training labels, whose median is one label for all."""
    shares = np.bincount(targets, minlength=len(est.classes_)) / len(targets)
    return "median of the training labels", np.tile(shares, (len(splits.evaluated), 1))


def ranks(run: LabeledRun) -> Section:
    """The report's block: mean error, accuracy within one rank, and how many examples are how far off."""
    counts = np.array(run.scores["confusion"])
    rows = []
    for off in range(len(counts)):
        n = sum(np.trace(counts, k) for k in {off, -off})
        rows.append([str(off), n, Share("").value(n / counts.sum(), 1)])
    far = Table(["ranks off", run.noun, "share"], rows, highlighted=())
    body = table(value_table(run.scores, ("within_one", "mae"), 1)) + table(far)
    return Section("ranks", "Errors in ranks", "How far predictions are from the true rank.", body)


TASK = supervised_task(
    TextRater,
    Ratings(),
    label_of=lambda text: "good" if "dog" in text else "bad",
    report="ratings",
    baselines=(shares_of_training,),
)

# --- tests ----------------------------------------------------------------------------------------

RECIPE = """
task = "text-rating"
data = { source = "films.csv", validation_size = 0.2, test_size = 0.2 }
text = { tokenizer = "word", max_length = 11 }
model = { model = "encoder-base", d_model = 14, num_layers = 1, num_heads = 2, d_ff = 11 }
train = { epochs = 41, batch_size = 41, lr = 0.05, precision = "fp32", monitor = "loss", threads = 1 }
"""
ODD = "an odd film"  # as many say good as bad


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run. Half of the texts are odd: as many of them are bad as good, and few ok."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, TASK.name, TASK)
        sections = (page.cards, ranks, *page.PAGE.sections[1:])
        patch.setitem(KINDS, "ratings", replace(page.PAGE, sections=sections))
        patch.setattr(targets, "TARGETS", (Ratings(), *targets.TARGETS))
        patch.chdir(tmp_path_factory.mktemp("ratings"))
        clear = ["awful,bad", "fine,ok", "great,good"]
        films = [clear[i % 3] for i in range(20)] + ["odd,bad", "odd,good"] * 8 + ["odd,ok"] * 4
        rows = [film.replace(",", f" film {i},") for i, film in enumerate(films)]
        Path("films.csv").write_text("\n".join(["text,label", *(f"an {row}" for row in rows)]))
        Path("films.toml").write_text(RECIPE)
        ok("train", "films.toml", "--out", "run")
        yield Path("run")


def asked(*words: str) -> list[dict[str, Any]]:
    """What ``predict --json`` says of each input."""
    return as_json("predict", "run", *words)["answers"]


def test_the_loss_is_that_of_the_limits_between_ranks():
    """Two limits, so two binary cross-entropies, from probabilities 1/7, 2/7 and 4/7."""
    logits, targets = torch.tensor([[1.0, 2.0, 4.0]]).log().repeat(3, 1), torch.arange(3)
    losses, right = CumulativeCrossEntropy()(logits, targets)
    wanted = -np.log([1 / 7 * 3 / 7, 6 / 7 * 3 / 7, 6 / 7 * 4 / 7])
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert int(right) == 1  # the median is the third
    smooth = CumulativeCrossEntropy(0.2)(logits, targets)[0]
    np.testing.assert_allclose(smooth, 0.8 * wanted + 0.1 * (wanted[0] + wanted[2]), rtol=1e-5)


def test_metrics_count_ranks():
    """By the median the third is one rank off, where the most probable class is right; the last is two off."""
    p = [[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.4, 0.2, 0.4], [0.7, 0.2, 0.1]]
    score = partial(Ratings().score, p, [0, 1, 0, 2], ["bad", "ok", "good"])
    found = score(bootstrap=31)
    assert (found["accuracy"], found["within_one"], found["mae"]) == (0.5, 0.75, 0.75)
    for key in ("within_one", "mae"):
        low, high = found[f"{key}_interval"]
        assert low <= 0.75 <= high
    assert score(bootstrap=0)["mae_interval"] is None


def test_labels_have_the_order_of_their_ranks():
    assert Ratings().classes(["good", "bad", "ok", "bad"]) == ["bad", "ok", "good"]
    with pytest.raises(UnknownLabelError, match="'best' has no rank"):
        Ratings().read(["bad", "best"])


def test_ratings_are_trained_and_reported(run):
    """The run's table, files and page have the metrics of ratings, next to a baseline's."""
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["label_names"] == ["bad", "ok", "good"]
    shown = (run / "report.html").read_text(encoding="utf-8")
    assert all(words in shown for words in ("Errors in ranks", "Ranks off", "MAE in ranks"))
    assert '<th class="n">Within one rank</th>' in shown
    ours, simple = metrics["test"], metrics["baselines"]["median of the training labels"]
    assert 0 < ours["mae"] == pytest.approx(2 - ours["accuracy"] - ours["within_one"])
    assert simple["difference"]["value"] == pytest.approx(ours["accuracy"] - simple["accuracy"])
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    losses = [one["loss"] for one in history if one["kind"] == "evaluation"]
    assert min(losses) < losses[0]
    rows = [row for row in read_predictions(run / "predictions.csv") if row.split == "test"]
    places = {name: i for i, name in enumerate(metrics["label_names"])}
    off = [abs(places[row.label] - places[row.predicted]) for row in rows]
    assert np.mean(off) == pytest.approx(ours["mae"])


def test_ratings_are_predicted_by_their_median(run):
    """Words and a table get the same; of odd films another class is more probable than the median."""
    typed = asked(ODD, "a great film", "an awful film")
    assert [one["label"] for one in typed] == ["ok", "good", "bad"]
    p = typed[0]["probabilities"]
    assert np.argmax(p) != 1
    assert typed[0]["probability"] == pytest.approx(p[1])
    Path("asked.csv").write_text(f"text\n{ODD}\na great film\nan awful film\n")
    for one, wanted in zip(asked("asked.csv"), typed, strict=True):
        assert one["label"] == wanted["label"]
        assert one["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)
    ok("predict", "run", "asked.csv", "--out", "answers.csv")
    assert [row.predicted for row in read_predictions("answers.csv")] == ["ok", "good", "bad"]
    with served(run) as client:
        found = client.post("/v1/predict", json={"texts": [ODD, "a great film"]}).json()["predictions"]
    for one, wanted in zip(found, typed[:2], strict=True):
        assert one["label"] == wanted["label"]
        assert [*one["probabilities"].values()] == pytest.approx(wanted["probabilities"], abs=1e-5)


def test_ratings_are_evaluated_explained_and_cross_validated(run):
    known, found = json.loads((run / "metrics.json").read_text())["test"], as_json("evaluate", "run")
    for key in Ratings.metrics_per_fold:
        assert found[key] == pytest.approx(known[key])
    said = ok("evaluate", "run").out
    assert all(metric.name in said for metric in Ratings.metrics.values())
    assert '"ok"' in ok("explain", "run", ODD, "--json").out
    done = ok("cross-validate", "films.toml", "--folds", "2", "--out", "folds", "--set", "epochs=2")
    assert "MAE in ranks" in done.out
    folds = json.loads(Path("folds/metrics.json").read_text())
    assert {*Ratings.metrics_per_fold} == {*folds["over_folds"]}


def test_ratings_are_calibrated_and_compared(run):
    """A temperature fits them, a threshold does not; comparisons know a run of theirs by its metrics."""
    shutil.copytree(run, "copy")
    calibrate = ("calibrate", "copy", "--data", "films.csv")
    assert "within one rank" in ok(*calibrate).out
    assert "predicted by their median" in refused(*calibrate, "--threshold", "accuracy")
    own = targets.target_in(run)
    assert isinstance(own, Ratings)
    judged = own.read_run(run)
    known = json.loads((run / "metrics.json").read_text())["test"]
    assert np.mean(judged.truth == judged.predicted) == known["accuracy"]
    Path("copy/metrics.json").unlink()
    assert targets.target_in(Path("copy")) == Classes()


def test_a_saved_rater_is_the_same(run, tmp_path):
    """It keeps the order of its classes, which is not that of their names, and its target."""
    loaded = gf.load(run)
    again = gf.load(loaded.save(tmp_path / "again"))
    texts = [ODD, "a great film", "a fine film"]
    assert isinstance(again.kind_, Ratings)
    assert again.classes_.tolist() == ["bad", "ok", "good"]
    np.testing.assert_array_equal(again.predict_proba(texts), loaded.predict_proba(texts))
    assert again.predict(texts).tolist() == loaded.predict(texts).tolist()


def test_ratings_are_exported(run):
    """``run.py`` alone decides by the median; of transformers, which does not, the export says so."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    texts = [ODD, "a great film", "an awful film"]
    wanted = [one["label"] for one in asked(*texts)]
    assert wanted[0] == "ok"
    ok("export", "run", "--to", "onnx", "--out", "onnx", "--check", "8")
    alone = [sys.executable, "-I", "onnx/run.py", *texts]
    lines = subprocess.run(alone, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == wanted
    done = ok("export", "run", "--to", "hf", "--out", "hf", "--check", "8")
    assert "transformers has no median" in done.err
    assert SCRIPTS["hf"] in Path("hf/run.py").read_text(encoding="utf-8")
