"""What the runs of all classifiers share: the fit, their splits' figures, and what else is asked of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from glassformer.config import listed
from glassformer.data.checks import place
from glassformer.data.columns import AUTO, NONE
from glassformer.data.copies import groups_of
from glassformer.data.label_kinds import other_spellings, what_labels_are
from glassformer.data.label_sets import each
from glassformer.data.rejected import SKIP, RejectedRow, summary
from glassformer.data.splits import Splits, stratified_subset
from glassformer.errors import DataError
from glassformer.evaluate.compare import paired_difference
from glassformer.evaluate.predictions import SIMPLE, write_predictions, write_simple
from glassformer.targets.multiclass import Classes
from glassformer.targets.multilabel import HALF, one_vs_rest, tune_thresholds
from glassformer.tasks import judging
from glassformer.tasks.decisions import abstention
from glassformer.tasks.epochs import judge_epochs
from glassformer.tasks.judging import score_splits
from glassformer.tasks.same_data import own_data, training_part
from glassformer.tasks.task import Say, Task, Work
from glassformer.train.callbacks import Count, uncounted
from glassformer.train.config import ClassifierFitConfig
from glassformer.train.objectives import class_weights

FEW = 100  # validation examples: one of them is a point or more
STILL = 0.05  # by which share an epoch lowers the validation loss that is not the last one wanted
JUDGED_OF_TRAINING = 1000  # examples, to see what was learned by heart


def training_sample(splits: Splits) -> Any:
    """Training examples to be judged like the others once training is over, classes in proportion."""
    train = splits.train
    return train.select(stratified_subset(train.labels or [], JUDGED_OF_TRAINING, 0).tolist())


def check_unseen(splits: Splits, leave_out: bool = False) -> tuple[Splits, list[RejectedRow]]:
    """Labels that training never shows are found before training, not after it.

    Args:
        leave_out: examples that have one are left out.

    Returns:
        The splits that can be evaluated, and what was left out of them.

    Raises:
        DataError: such a label, or a split of which nothing is left.
    """
    known = sorted(set(each(splits.train.labels)), key=str)
    parts: dict[str, Any] = {}
    rejected: list[RejectedRow] = []
    for field in ("validation", "judged"):
        split = getattr(splits, field)
        if split is None or split.labels is None:
            continue
        if field == "judged" and split is splits.validation:
            parts[field] = parts["validation"]
            continue
        found = unseen(split.labels, known)
        if found and not leave_out:
            i, label = next(iter(found.items()))
            odd, fix = what_labels_are([*(splits.train.labels or []), *split.labels]) or ("", "")
            raise DataError(
                f"label {label!r} was not seen in training" + (f"; {odd}" if odd else ""),
                where=place(split.origin, i, split.rows),
                fix=(fix or f"Correct it (known: {listed(list(map(str, known)))})")
                + f", or leave such rows out with {SKIP}",
            )
        parts[field] = _without(split, found)
        rejected += _rejected(split, found)
    return replace(splits, **parts), rejected


def unseen(labels: Sequence[Any], classes: Sequence[Any]) -> dict[int, Any]:
    """The examples with a label, or one of several, that is none of ``classes``: place -> that label."""
    known = set(classes)
    found = ((i, next((x for x in each([given]) if x not in known), None)) for i, given in enumerate(labels))
    return {i: label for i, label in found if label is not None}


def with_known_labels(clf: Any, split: Any, leave_out: bool) -> tuple[Any, str]:
    """The examples of a split whose labels a classifier can give, and a sentence where some are left out.

    Raises:
        DataError: a label that was not seen in training, or with ``leave_out`` none that was.
    """
    kind, classes = clf.kind_, clf.classes_.tolist()
    if not leave_out or not kind.labels_given:
        try:
            clf.targets(split.labels, split.origin, split.rows)
        except DataError as error:
            if leave_out or not error.where:
                raise
            fix = f"{error.fix or 'Correct it'}, or leave such {clf.NOUN} out with {SKIP}"
            raise DataError(error.what, where=error.where, fix=fix) from None
        return split, ""
    found = unseen(kind.spelled(split.labels, classes), classes)
    counts = Counter(map(repr, found.values()))
    labels = listed([f"{label} ({count:,})" for label, count in counts.most_common()])
    said = f"{len(found):,} {clf.NOUN} left out, whose labels were not seen in training: {labels}"
    return _without(split, found), said if found else ""


def _without(split: Any, found: Mapping[int, Any]) -> Any:
    """Raises DataError where nothing is left."""
    if not found:
        return split
    if len(found) == len(split):
        what = f"no label was seen in training, such as {next(iter(found.values()))!r}"
        raise DataError(what, where=split.origin, fix="Name the column of labels with label_column")
    return split.select([i for i in range(len(split)) if i not in found])


def _rejected(split: Any, found: Mapping[int, Any]) -> list[RejectedRow]:
    return [
        RejectedRow(
            str(split.origin),
            i + 1 if split.rows is None else split.rows[i],
            f"label {label!r} was not seen in training",
        )
        for i, label in found.items()
    ]


def fit(work: Work, **options: Any) -> None:
    """Train on the training split; the validation split chooses."""
    held = work.data.validation
    if held and work.estimator.learns_in_steps and (said := few_to_choose_by(held, work.recipe.train)):
        work.say(said)
    judging.fit(work, **options)
    name_columns(work)


def name_columns(work: Work) -> None:
    """A data frame is then read by the names that the training's table had; folders of texts have none."""
    dataset = work.data.dataset
    text = getattr(dataset, "columns", (None, None))[0]
    work.estimator.name_columns(text, getattr(dataset, "pair_column", None))


def few_to_choose_by(held: Any, train: Any) -> str:
    """A sentence where one answer more or less of the validation split may choose the weights; else empty."""
    if len(held) >= FEW or train.monitor == "loss" or not train.keep_best:
        return ""
    if getattr(train, "method", None) == "few-shot" and train.epochs in (None, 1):
        return ""  # one epoch: nothing is chosen
    rare, count = min(Counter(each(held.labels)).items(), key=lambda item: item[1])
    advice = "--set monitor=loss chooses more steadily"
    if train.monitor != ClassifierFitConfig.monitor:  # chosen by the user: it stays
        advice = (
            f"with monitor={train.monitor} more of them choose more steadily (--set validation_size=COUNT)"
        )
    few = f"{len(held)} validation examples only, {count} of class {rare!r}"
    return f"the best epoch is chosen by {few}: {advice}"


def judge_splits(work: Work) -> dict[str, Any]:
    """Figures on every split, the judged one looked at once, beside baselines; and ``predictions.csv``."""
    clf, recipe, splits, judged = work.estimator, work.recipe, work.data, work.data.judged
    measure = clf.kind_.measure or measure_of(recipe)

    def scored(split: Any) -> tuple[dict[str, Any], np.ndarray]:
        return figures(clf, split, recipe, work.count)

    out = score_splits(work, scored, training_sample(splits), measure)
    out["label_names"] = [str(c) for c in clf.classes_.tolist()]
    if (still := still_learning(clf.history_)) is not None:
        lr = getattr(clf, "lr", None) or clf.chosen_.get("lr")
        out["still_learning"] = still | ({"lr": lr} if lr else {})
    if clf.kind_.binary and clf.threshold_ is not None:
        out["thresholds"] = dict(zip(out["label_names"], clf.threshold_.tolist(), strict=True))
    if out["test"] is not None:
        probabilities = work.answers
        if getattr(recipe.train, "keep_epochs", False):
            work.say("judging every epoch's weights")
            out["epochs"] = judge_epochs(work, lambda: scored(judged)[0], out["test"])
        if recipe.evaluate.baselines:
            work.say(f"{'baselines' if len(work.task.baselines) > 1 else 'baseline'} on the same split")
            chosen = clf.chosen(probabilities)
            out["baselines"] = judge_baselines(
                work.task.baselines,
                clf,
                recipe,
                splits,
                chosen,
                out["measure"],
                work.folder / SIMPLE,
                work.say,
            )
        write_predictions(
            work.folder / "predictions.csv",
            judged.names(),
            probabilities,
            clf.classes_.tolist(),
            labels=judged.labels,
            predicted=clf.decide(probabilities).tolist(),
            shares=answers(clf, probabilities)[1],
            rows=judged.rows,
            split=splits.judged_name,
        )
    return out


def figures(clf: Any, split: Any, recipe: Any, count: Count = uncounted) -> tuple[dict[str, Any], np.ndarray]:
    """The figures of a split and its probabilities ``[n, C]``."""
    with count("judging", len(split)) as told:
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


def measure_of(recipe: Any) -> Literal["accuracy", "macro_f1"]:
    """What a run's lines, tables and verdict begin with: what its best weights are chosen by, if a share."""
    monitor = getattr(getattr(recipe, "train", None), "monitor", None)
    return "macro_f1" if monitor == "macro_f1" else "accuracy"


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
    say: Say = lambda line: None,
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
    said: dict[str, list[str]] = {}
    for baseline in baselines:
        started = time.perf_counter()
        try:
            made = baseline(clf, recipe, splits, targets)
        except DataError as error:  # such as texts without a word: the model that was trained has its figures
            say(f"left out: {error}")
            continue
        if made is None:  # it has no form for this kind of target
            continue
        name, probabilities, *decided = made
        found = measured(clf, judged, probabilities, recipe, *decided)
        out[name] = found | {"seconds": time.perf_counter() - started}
        say(f"baseline {name}: {out[name]['seconds']:.1f} s")
        theirs = decided[0] if decided else probabilities.argmax(1)
        said[name] = list(map(str, clf.kind_.labels(theirs, clf.classes_).tolist()))
        if recipe.evaluate.bootstrap and measure in Classes.leads:
            out[name]["difference"] = paired_difference(
                truth,
                chosen,
                theirs,
                len(clf.classes_),
                measure=cast(Any, measure),
                resamples=recipe.evaluate.bootstrap,
            )
        if clf.class_weight is not None:
            out[name]["class_weight"] = clf.class_weight
    if keep is not None:
        write_simple(keep, said)
    return out


def still_learning(history: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The validation losses before and after the last epoch, where that one still lowered it by a share of
    ``STILL`` or more: the training ended too soon."""
    found = [one for one in history if one.get("kind") == "evaluation" and one.get("loss") is not None]
    losses = [float(one["loss"]) for one in found]
    if len(losses) < 2 or losses[-1] > min(losses) or losses[-1] > (1 - STILL) * losses[-2]:
        return None
    return {"epochs": found[-1]["epoch"] + 1, "before": losses[-2], "after": losses[-1]}


def cut_texts(est: Any, splits: Splits) -> dict[str, list[int]]:
    """Split -> how many of its texts were cut, and how many it has."""
    others = {"validation": splits.validation, splits.judged_name: splits.judged}
    return {"train": [est.truncated_, len(splits.train)]} | {
        name: [int(est.truncated(split.texts).sum()), len(split)]
        for name, split in others.items()
        if split is not None
    }


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


def _load_again(work: Work, source: str | None) -> Any:
    """A run's own data, or those of another source."""
    if source is None:
        return own_data(work)
    return load_other(work.task, work.recipe, work.estimator, source)


def judge_again(work: Work, source: str | None) -> dict[str, Any]:
    """The figures of a saved estimator on its own judged split, or on other data; these stay in ``work``.

    Raises:
        DataError: no labelled split, data that cannot be read, or own ones that have changed (``own_data``).
    """
    clf, splits = work.estimator, _load_again(work, source)
    said = []
    if work.leave_out:
        splits, said = work.task.leave_out(replace(splits, train=None, validation=None), work)
    if source is not None:
        said += getattr(splits.dataset, "said", ())
    if (source is not None or work.leave_out) and (rejected := getattr(splits.dataset, "rejected", ())):
        said += [summary(rejected, listed=False)]
    split = splits.judged
    if split is None or split.labels is None:
        raise DataError("nothing to judge: no labelled split", where=source or work.recipe.data.source)
    split, unknown = with_known_labels(clf, split, work.leave_out)
    splits = replace(splits, judged=split)
    said += [unknown] if unknown else []
    left = [line for line in said if "left out" in line]
    for line in said:
        work.say(line)
    work.say(f"{len(split):,} {clf.NOUN} of {split.origin}")
    seen = None if source is None else seen_in_training(work, split)
    if seen:
        known = f"{seen:,} of {len(split):,} {clf.NOUN}, or copies of them, were in training"
        work.say(f"{known}: figures on other {clf.NOUN} will be lower")
    if other := other_spellings(each(split.labels), clf.classes_.tolist()):
        work.say(other)
    try:
        found, work.answers = figures(clf, split, work.recipe, work.count)
    except DataError as error:
        if work.leave_out or not error.where:
            raise
        fix = f"{error.fix or 'Correct it'}, or leave such {clf.NOUN} out with {SKIP}"
        raise DataError(error.what, where=error.where, fix=fix) from None
    work.data = splits
    if clf.NOUN == "texts" and (cut := int(clf.truncated(split.examples).sum())):
        work.say(
            f"{cut:,} of {len(split):,} texts are longer than {clf.max_length} tokens and were cut there"
        )
    about = {} if source is None else {"seen_in_training": seen}
    return found | about | ({"left_out": left} if left else {})


def seen_in_training(work: Work, split: Any) -> int | None:
    """How many examples of other data, or copies of them, were trained on; None: it is not known."""
    if (train := training_part(work)) is None:
        return None
    known = set(groups_of(train))
    return sum(key in known for key in groups_of(split))


def judge_every_epoch(work: Work, source: str | None) -> list[dict[str, Any]]:
    """As ``judge_again`` by the weights of each epoch; see ``judge_epochs``.

    Raises:
        ConfigError: no epochs were kept.
        DataError: no labelled split, or data that cannot be read.
    """
    splits = _load_again(work, source)
    split = splits.judged
    if split is None or split.labels is None:
        raise DataError("nothing to judge: no labelled split", where=source or work.recipe.data.source)
    split, unknown = with_known_labels(work.estimator, split, work.leave_out)
    for line in (unknown, f"{len(split):,} {work.estimator.NOUN} of {split.origin}"):
        if line:
            work.say(line)
    return judge_epochs(work, lambda: figures(work.estimator, split, work.recipe, work.count)[0])


def answers(clf: Any, probabilities: np.ndarray) -> tuple[list[Any], list[float]]:
    """The label of each row of probabilities ``[n, C]``, None where the classifier abstains, and that label's
    own probability; of several labels their set, and how sure the least sure answer of it is."""
    labels = getattr(clf, "answers", clf.decide)(probabilities).tolist()
    return labels, clf.kind_.sureness(probabilities, clf.chosen(probabilities)).tolist()
