"""Runs of examples with a label, several labels or a number each: inputs times target.

What is particular to texts or images their ``Inputs`` know, what is particular to labels or numbers their
``Target``; here is the order: load, preview, fit, evaluate, evaluate again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import listed
from glassformer.data.columns import AUTO, NONE
from glassformer.data.copies import groups_of
from glassformer.data.findings import DoctorReport
from glassformer.data.label_kinds import other_spellings
from glassformer.data.label_sets import each
from glassformer.data.mending import mended
from glassformer.data.rejected import SKIP, or_else, summary
from glassformer.data.splits import Splits, as_they_are, split_up, stratified_subset
from glassformer.errors import (
    DataError,
    NoSuchColumnError,
    NoSuchSplitError,
    OneClassError,
    UnclearColumnError,
)
from glassformer.evaluate.predictions import SIMPLE, write_simple
from glassformer.inputs.inputs import Inputs
from glassformer.targets.multiclass import Classes, unseen, without_unseen
from glassformer.targets.multilabel import HALF, one_vs_rest, tune_thresholds
from glassformer.targets.regression import furthest
from glassformer.tasks import judging
from glassformer.tasks.decisions import abstention
from glassformer.tasks.epochs import judge_epochs
from glassformer.tasks.export import export
from glassformer.tasks.folds import LabelsOutOfFold
from glassformer.tasks.judging import measure_of, score_splits
from glassformer.tasks.same_data import own_data, training_part
from glassformer.tasks.task import TINY, DataPreview, Log, RunContext, Task, report_of
from glassformer.train.callbacks import Count, uncounted
from glassformer.train.config import ClassifierFitConfig
from glassformer.train.objectives import class_weights

FEW = 100  # validation examples: one of them is a point or more
LEARNED = 0.01  # a validation loss below which nothing is left to learn
STILL = 0.05  # by which share an epoch lowers the validation loss that is not the last one wanted
JUDGED_OF_TRAINING = 1000  # examples, to see what was learned by heart


def labelled(
    name: str,
    recipe: type,
    estimator: type[Any],
    target: Classes,
    label_of: Callable[[Any], Any],
    report: str,
    **more: Any,
) -> Task:
    """The task that learns one target from the inputs of an estimator.

    Args:
        name: as a recipe's ``task`` says it.
        label_of: the target of an example of ``INPUTS.example_fixture()``, for the contract tests.
        report: the kind of report.
        more: fields of ``Task`` that differ from the usual ones.
    """

    inputs: Inputs = estimator.INPUTS

    def made() -> tuple[Any, tuple]:
        examples = inputs.example_fixture()
        settings: dict[str, Any] = {**TINY, **inputs.fixture_settings}
        return estimator(**settings), (examples, [label_of(x) for x in examples])

    usual: dict[str, Any] = {
        "load": partial(load, inputs, target),
        "preview_data": preview_data,
        "evaluate": evaluate,
        "evaluate_saved": judge_again,
        "drop_unreadable": lambda splits, context: inputs.drop_unreadable(
            splits, context.estimator, context.recipe
        ),
        "gives": "labels" if target.labels_given else "numbers",
        "packages": inputs.packages,
        "fit": fit,
        "example_fixture": made,
        "render_report": report_of(report),
        "answer": answers,
        "folds": LabelsOutOfFold,
        "export": export,
    }
    return Task(name=name, recipe=recipe, estimator=estimator, target=target, **usual | more)


def parts_of(task: Task) -> tuple[Inputs, Classes]:
    """What a task of labels or numbers reads, and what it learns."""
    assert isinstance(task.target, Classes)
    return task.estimator.INPUTS, task.target


# --- data -----------------------------------------------------------------------------------------


def load(inputs: Inputs, target: Classes, recipe: Any, source: str | None = None, **columns: Any) -> Splits:
    """The examples of a recipe, split as it says; or those of another source, as they are.

    Args:
        columns: ``trained``: those of the training's texts, for another source.

    Raises:
        DataError: no such source, no training split, no column of labels or numbers.
    """
    d, part = recipe.data, dict(columns)
    if source is None:
        part |= {"limit": d.limit, "seed": d.split_seed}
    dataset = inputs.read(recipe, source or d.source, not target.labels_given, **part)
    merge = getattr(d, "merge_labels", "none")
    dataset, said = mended(dataset, merge, d.drop_duplicates and source is None)
    dataset = replace(dataset, **{inputs.notes: (*getattr(dataset, inputs.notes), *said)})
    dataset = target.prepared(dataset, recipe.train, inputs.skips(d))
    if source is not None:
        return as_they_are(dataset)
    splits = split_up(dataset, d, recipe.evaluate.split)
    if splits.train.labels is None:
        what = f"no {target.word} to learn from"
        raise UnclearColumnError(what, where=splits.train.origin, fix="Name label_column")
    return target.trained_on(splits, recipe)


def preview_data(context: RunContext) -> DataPreview:
    """What the training could not use is found before it, not after it.

    Raises:
        DataError: a label that training would not show, or an input that cannot be read.
    """
    (inputs, target), recipe = parts_of(context.task), context.recipe
    context.data, unknown = target.checked(context.data, inputs.skips(recipe.data))
    splits, dataset = context.data, context.data.dataset
    inputs.check(recipe, splits.parts(), context.folder)
    before, behind, below = target.lines(splits, dataset.rejected)
    lines = [*dataset.said, *before, f"{dataset.name}: {splits.sizes()}{behind}", *below]
    return DataPreview(lines, (*dataset.rejected, *unknown), partial(_examine, context), inputs.severities)


def _examine(context: RunContext) -> DoctorReport:
    """The data as they are trained on."""
    d, splits, dataset = context.recipe.data, context.data, context.data.dataset
    inputs, target = parts_of(context.task)
    there = splits.parts()
    others = {name: split for name, split in dataset.splits.items() if name not in there}
    taken = d.validation_size is not None or (d.test_size is not None and "test" not in dataset.splits)
    held_out = d.hold_out if taken and target.labels_given else None
    used = target.examined(replace(dataset, splits=there | others))
    report = inputs.examine(used, context.estimator, context.recipe, held_out)
    return replace(report, findings=[*report.findings, *target.findings(splits, context.recipe.train)])


def training_sample(splits: Splits) -> Any:
    """Training examples to be judged like the others once training is over, classes in proportion."""
    train = splits.train
    return train.select(stratified_subset(train.labels or [], JUDGED_OF_TRAINING, 0).tolist())


def with_known_labels(clf: Any, split: Any, drop_unreadable: bool) -> tuple[Any, str]:
    """The examples of a split whose labels a classifier can give, and a sentence where some are left out.

    Raises:
        DataError: a label that was not seen in training, or with ``leave_out`` none that was.
    """
    kind, classes = clf.kind_, clf.classes_.tolist()
    if not drop_unreadable or not kind.labels_given:
        try:
            clf.targets(split.labels, split.origin, split.rows)
        except DataError as error:
            if drop_unreadable or not error.where:
                raise
            fix = or_else(error.fix, f"leave such {clf.NOUN} out with {SKIP}")
            raise error.but(fix=fix) from None
        return split, ""
    found = unseen(kind.normalize(split.labels, classes), classes)
    counts = Counter(map(repr, found.values()))
    labels = listed([f"{label} ({count:,})" for label, count in counts.most_common()])
    said = f"{clf.NOUN} left out, whose labels were not seen in training: {labels}"
    return without_unseen(split, found), said if found else ""


def fit(context: RunContext, **options: Any) -> None:
    """Train on the training split; the validation split chooses."""
    held = context.data.validation if context.task.target.labels_given else None
    if held and context.estimator.learns_in_steps and (said := few_to_choose_by(held, context.recipe.train)):
        context.log(said)
    try:
        judging.fit(context, **options)
    except OneClassError as error:
        label = getattr(context.data.dataset, "columns", (None, None))[1]
        column = f", column {label!r}" if label else ""
        raise error.but(where=f"{context.data.train.origin}{column}") from None
    name_columns(context)


def name_columns(context: RunContext) -> None:
    """A data frame is then read by the names that the training's table had; folders of texts have none."""
    dataset = context.data.dataset
    text = getattr(dataset, "columns", (None, None))[0]
    context.estimator.name_columns(text, getattr(dataset, "pair_column", None))


def few_to_choose_by(held: Any, train: Any) -> str:
    """A sentence if few validation examples select the best weights; else empty."""
    if len(held) >= FEW or train.monitor == "loss" or not train.keep_best:
        return ""
    if getattr(train, "method", None) == "few-shot" and train.epochs in (None, 1):
        return ""  # one epoch: nothing is chosen
    rare, count = min(Counter(each(held.labels)).items(), key=lambda item: item[1])
    advice = "--set monitor=loss is less noisy"
    if train.monitor != ClassifierFitConfig.monitor:  # chosen by the user: it stays
        advice = f"with monitor={train.monitor} more of them are less noisy (--set validation_size=COUNT)"
    few = f"{len(held)} validation examples only, {count} of class {rare!r}"
    return f"the best epoch is selected by {few}: {advice}"


# --- judging --------------------------------------------------------------------------------------


def evaluate(context: RunContext) -> dict[str, Any]:
    """Figures of the splits beside baselines, and what else metrics.json says of inputs and target."""
    started = time.perf_counter()
    context.log("evaluating")
    out = judge_readable(context)
    est, recipe = context.estimator, context.recipe
    out |= parts_of(context.task)[0].facts(est, context.data, recipe)
    if est.tried_:
        out["tried"] = list(est.tried_)
    out["seconds"]["evaluate"] = time.perf_counter() - started
    return out


def judge_readable(context: RunContext) -> dict[str, Any]:
    """The figures of every split; an example that cannot be read any more does not take them along.

    Raises:
        DataError: what else is wrong with the examples, or none of a split is left.
    """
    try:
        return judge_splits(context)
    except DataError:
        kept, said = context.task.drop_unreadable(context.data, context)
        if not said:
            raise
    for line in said:
        context.log(line)
    context.data = kept
    return judge_splits(context) | {"left_out": said}


def judge_splits(context: RunContext) -> dict[str, Any]:
    """Figures on every split, the judged one looked at once, beside baselines; and ``predictions.csv``."""
    est, recipe, splits, judged = context.estimator, context.recipe, context.data, context.data.judged
    kind, seen = est.kind_, {}

    def scored(split: Any) -> tuple[dict[str, Any], np.ndarray]:
        scores, seen[id(split)] = figures(est, split, recipe, context.count)
        return scores, seen[id(split)]

    out = score_splits(context, scored, training_sample(splits), kind.measure or measure_of(recipe))
    out |= kind.about_run(est, splits, recipe.train, seen.get(id(splits.validation)))
    if kind.labels_given and (still := still_learning(est.history_)) is not None:
        lr = getattr(est, "lr", None) or est.chosen_.get("lr")
        out["still_learning"] = still | ({"lr": lr} if lr else {})
    if out["test"] is None:
        return out
    out |= kind.coverage(est, context.answers, judged.labels, own=splits.judged_name == "validation")
    if getattr(recipe.train, "keep_epochs", False):
        context.log("evaluating every epoch's weights")
        out["epochs"] = judge_epochs(context, lambda: scored(judged)[0], out["test"])
    if recipe.evaluate.baselines:
        context.log(f"{'baselines' if len(context.task.baselines) > 1 else 'baseline'} on the same split")
        chosen = est.chosen(context.answers)
        out["baselines"] = judge_baselines(
            context.task.baselines,
            est,
            recipe,
            splits,
            chosen,
            out["measure"],
            context.folder / SIMPLE,
            context.log,
        )
    labels, shares = est.decide(context.answers).tolist(), answers(est, context.answers)[1]
    path, classes = context.folder / "predictions.csv", est.classes_.tolist()
    kind.write(path, judged, splits.judged_name, context.answers, classes, est, labels, shares)
    return out


def figures(clf: Any, split: Any, recipe: Any, count: Count = uncounted) -> tuple[dict[str, Any], np.ndarray]:
    """The figures of a split and its probabilities ``[n, C]``."""
    with count("evaluating", len(split)) as told:
        probabilities = clf.outputs(split.examples, progress=told)
    found = measured(clf, split, probabilities, recipe, clf.chosen(probabilities))
    if probabilities.ndim == 2 and probabilities.shape[1] > 1 and not clf.kind_.binary:
        found["confidence"] = float(probabilities.max(1).mean())  # on average, of the likeliest class
    if (below := getattr(clf, "abstain_below_", None)) is not None:
        targets = clf.targets(split.labels or [], split.origin, split.rows)
        found["abstention"] = abstention(clf.kind_, probabilities, targets, clf.threshold_, below)
    return found, probabilities


def measured(
    clf: Any, split: Any, probabilities: np.ndarray, recipe: Any, predicted: np.ndarray | None = None
) -> dict[str, Any]:
    """The figures of probabilities ``[n, C]``; ``predicted``: what ``chosen`` gives, None: the likeliest."""
    meter = clf.kind_.meter(clf.classes_.tolist())
    targets = clf.targets(split.labels or [], split.origin, split.rows)
    meter.update(probabilities, targets, predicted=predicted)
    return meter.result(recipe.evaluate.bootstrap)


def baseline_weights(clf: Any, targets: np.ndarray) -> np.ndarray | None:
    """The weight ``[n]`` that the classifier's own training gave each example by its class; None: all 1."""
    return None if clf.kind_.binary else class_weights(targets, clf.classes_.tolist(), clf.class_weight)


def a_regression_a_label(
    clf: Any, splits: Splits, targets: np.ndarray, featurize: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and answers ``[m, K]`` of ``one_vs_rest`` on the judged split; thresholds are chosen as
    the classifier's were, else they are one half.

    Args:
        featurize: ``word_features`` or ``pixel_features``.
    """
    train, held, judged = splits.train, splits.validation, splits.judged
    assert judged is not None
    if held is not None and (held.labels is None or clf.threshold_ is None):
        held = None
    others = [judged] if held is None else [judged, held]
    p, *by = one_vs_rest(featurize(train.examples, *(split.examples for split in others)), targets)
    cut = HALF if held is None else tune_thresholds(by[0], clf.targets(held.labels, held.origin, held.rows))
    return p, p >= cut


def judge_baselines(
    baselines: Any,
    clf: Any,
    recipe: Any,
    splits: Splits,
    chosen: np.ndarray,
    measure: str,
    keep: Path | None = None,
    log: Log = lambda line: None,
) -> dict[str, Any]:
    """The figures of simple models, trained and judged on the same splits.

    Args:
        chosen: what the classifier itself answers on the judged split, as ``clf.chosen`` gives it.
        measure: what its ``difference`` from each baseline is of.
        keep: a file for what the simple models answer, see ``write_simple``.
        say: called with a line for each simple model, once it has answered.
    """
    judged = splits.judged
    assert judged is not None
    targets = clf.targets(splits.train.labels or [], splits.train.origin)
    truth = clf.targets(judged.labels or [], judged.origin, judged.rows)
    out: dict[str, Any] = {}
    said: dict[str, list[Any]] = {}
    for baseline in baselines:
        started = time.perf_counter()
        try:
            made = baseline(clf, recipe, splits, targets)
        except DataError as error:  # such as texts without a word: the model that was trained has its figures
            log(f"left out: {error}")
            continue
        if made is None:  # it has no form for this kind of target, or nothing to compare with
            continue
        name, probabilities, *decided = made
        found = measured(clf, judged, probabilities, recipe, *decided)
        out[name] = found | {"seconds": time.perf_counter() - started}
        log(f"baseline {name}: {out[name]['seconds']:.1f} s")
        theirs = decided[0] if decided else clf.kind_.predicted_index(probabilities)
        given = clf.kind_.labels(theirs, clf.classes_).tolist()
        said[name] = list(map(str, given)) if clf.kind_.labels_given else given
        answered, resamples = (truth, chosen, theirs, len(clf.classes_)), recipe.evaluate.bootstrap
        if resamples and (apart := clf.kind_.difference(answered, measure, resamples)) is not None:
            out[name]["difference"] = apart
        if getattr(clf, "class_weight", None) is not None:
            out[name]["class_weight"] = clf.class_weight
    if keep is not None:
        write_simple(keep, said)
    return out


def still_learning(history: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The validation losses before and after the last epoch, where that one still lowered it by a share of
    ``STILL`` or more: the training ended too soon."""
    found = [one for one in history if one.get("kind") == "evaluation" and one.get("loss") is not None]
    losses = [float(one["loss"]) for one in found]
    if len(losses) < 2 or losses[-2] < LEARNED:
        return None
    if losses[-1] > min(losses) or losses[-1] > (1 - STILL) * losses[-2]:
        return None
    return {"epochs": found[-1]["epoch"] + 1, "before": losses[-2], "after": losses[-1]}


def judge_sentences(clf: Any, sentences: list[Any]) -> list[dict[str, Any]]:
    """The label of each of a recipe's own sentences, and how sure it is."""
    labels, shares = answers(clf, clf.predict_proba(sentences))
    return [
        {"text": text, "label": "" if label is None else str(label), "probability": share}
        for text, label, share in zip(sentences, labels, shares, strict=True)
    ]


def load_other(task: Task, recipe: Any, estimator: Any, source: str) -> Any:
    """The data of another source as a run's model reads them: one text a row or pairs, in the columns of
    the training where these are there.

    Raises:
        DataError: data that cannot be read, or columns of pairs that cannot be told.
    """
    if not hasattr(recipe.data, "pair_column"):
        return task.load(recipe, source)
    if estimator.pairs_ is False and recipe.data.pair_column == AUTO:
        recipe = replace(recipe, data=replace(recipe.data, pair_column=NONE))
    return task.load(recipe, source, trained=getattr(estimator, "feature_names_in_", ()))


def _load_again(context: RunContext, source: str | None) -> Any:
    """A run's own data, or those of another source."""
    if source is None:
        return own_data(context)
    return load_other(context.task, context.recipe, context.estimator, source)


def judge_again(context: RunContext, source: str | None) -> dict[str, Any]:
    """The figures of a saved estimator on its own judged split, or on other data; these stay in ``work``.

    Raises:
        DataError: no labeled split, data that cannot be read, or own ones that have changed (``own_data``).
    """
    clf = context.estimator
    try:
        splits = _load_again(context, source)
    except NoSuchColumnError as error:  # perhaps there are no labels, and predictions were meant
        fix = f"{error.fix}. The true labels are needed; without them: "
        raise error.but(fix=f"{fix}glassformer predict {context.folder} {source or 'FILE'}") from None
    said = []
    if context.drop_unreadable:
        splits, said = context.task.drop_unreadable(replace(splits, train=None, validation=None), context)
    if source is not None:
        said += getattr(splits.dataset, "said", ())
    if (source is not None or context.drop_unreadable) and (
        rejected := getattr(splits.dataset, "rejected", ())
    ):
        said += [summary(rejected, listed=False)]
    split = splits.judged
    if split is None or split.labels is None:
        raise NoSuchSplitError(
            "nothing to evaluate: no labeled split", where=source or context.recipe.data.source
        )
    split, unknown = with_known_labels(clf, split, context.drop_unreadable)
    splits = replace(splits, judged=split)
    said += [unknown] if unknown else []
    left = [line for line in said if "left out" in line]
    for line in said:
        context.log(line)
    context.log(f"{len(split):,} {clf.NOUN} of {split.origin}")
    seen = None if source is None else seen_in_training(context, split)
    if seen:
        known = f"{seen:,} of {len(split):,} {clf.NOUN}, or copies of them, were in training"
        context.log(f"{known}: figures on other {clf.NOUN} will be lower")
    if other := other_spellings(each(split.labels), clf.classes_.tolist()):
        context.log(other)
    try:
        found, context.answers = figures(clf, split, context.recipe, context.count)
    except DataError as error:
        if context.drop_unreadable or not error.where:
            raise
        fix = or_else(error.fix, f"leave such {clf.NOUN} out with {SKIP}")
        raise error.but(fix=fix) from None
    context.data = splits
    if clf.inputs.can_be_cut and (cut := int(clf.truncated(split.examples).sum())):
        context.log(
            f"{cut:,} of {len(split):,} texts are longer than {clf.max_length} tokens and were cut there"
        )
    about = {} if source is None else {"seen_in_training": seen}
    own = source is None and splits.judged_name == "validation"
    about |= clf.kind_.coverage(clf, context.answers, split.labels, own)
    return found | about | ({"left_out": left} if left else {})


def seen_in_training(context: RunContext, split: Any) -> int | None:
    """How many examples of other data, or copies of them, were trained on; None: it is not known."""
    if (train := training_part(context)) is None:
        return None
    known = set(groups_of(train))
    return sum(key in known for key in groups_of(split))


def judge_every_epoch(context: RunContext, source: str | None) -> list[dict[str, Any]]:
    """As ``judge_again`` by the weights of each epoch; see ``judge_epochs``.

    Raises:
        ConfigError: no epochs were kept.
        DataError: no labeled split, or data that cannot be read.
    """
    splits = _load_again(context, source)
    split = splits.judged
    if split is None or split.labels is None:
        raise NoSuchSplitError(
            "nothing to evaluate: no labeled split", where=source or context.recipe.data.source
        )
    split, unknown = with_known_labels(context.estimator, split, context.drop_unreadable)
    for line in (unknown, f"{len(split):,} {context.estimator.NOUN} of {split.origin}"):
        if line:
            context.log(line)
    return judge_epochs(context, lambda: figures(context.estimator, split, context.recipe, context.count)[0])


def show_numbers(context: RunContext) -> dict[str, Any]:
    """Predicted and true numbers of the judged split, for the report, and the examples furthest off."""
    split, found = context.data.judged, context.answers
    if split is None or found is None:
        return {}
    return {"numbers.json": furthest(context.estimator, split, found[:, 0], context.recipe.evaluate.shown)}


def answers(clf: Any, probabilities: np.ndarray) -> tuple[list[Any], list[float]]:
    """The label of each row of probabilities ``[n, C]``, None where the classifier abstains, and that label's
    own probability; of several labels their set, and how sure the least sure answer of it is."""
    labels = getattr(clf, "answers", clf.decide)(probabilities).tolist()
    return labels, clf.kind_.confidence(probabilities, clf.chosen(probabilities)).tolist()
