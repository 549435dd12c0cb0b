"""What differs from task to task: who runs a recipe and judges its run, its examples, and the estimator it means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from glassformer.config import nearest
from glassformer.data.dataset import TextSplit
from glassformer.data.image_sources import ImageSplit
from glassformer.errors import ConfigError
from glassformer.tasks.image_classification.estimator import ImageClassifier
from glassformer.tasks.image_classification.run import evaluate_image_run, load_image_splits, run_image_recipe
from glassformer.tasks.masked_lm.run import evaluate_pretraining, run_pretraining
from glassformer.tasks.run_folder import Run, read_run_recipe
from glassformer.tasks.text_classification.estimator import TextClassifier
from glassformer.tasks.text_classification.run import evaluate_run, load_splits, run_recipe
from glassformer.tasks.translation.run import evaluate_translation, run_translation
from glassformer.tasks.word2vec.run import evaluate_vectors, run_vectors
from glassformer.train.callbacks import Count, uncounted
from glassformer.train.distributed import refuse_several, world

RUNNERS: dict[str, Callable[..., Run]] = {
    "text-classification": run_recipe,
    "image-classification": run_image_recipe,
    "word2vec": run_vectors,
    "translation": run_translation,
    "masked-lm": run_pretraining,
}
EVALUATORS: dict[str, Callable[..., dict[str, Any]]] = {
    "text-classification": evaluate_run,
    "image-classification": evaluate_image_run,
    "word2vec": evaluate_vectors,
    "translation": evaluate_translation,
    "masked-lm": evaluate_pretraining,
}


def run_task(recipe: Any, folder: str | Path, **options: Any) -> Run:
    """Run a recipe of any task in ``folder``; options and errors as in ``experiment.run_recipe``.

    Raises:
        Helped: under ``torchrun``, in every process but the first, which alone writes the run.
    """
    if recipe.task == "word2vec":
        refuse_several("word vectors are trained by threads of one process", "Run it without torchrun")
    if world()[0] == 0:
        return RUNNERS[recipe.task](recipe, folder, **options)
    with TemporaryDirectory() as scratch:
        return RUNNERS[recipe.task](recipe, Path(scratch) / "run", resume=options.get("resume", False))


def evaluate_task(folder: str | Path, *arguments: Any, count: Count = uncounted) -> dict[str, Any]:
    """Judge a run of any task again; arguments as in ``experiment.evaluate_run``. Classifiers alone are counted."""
    task = read_run_recipe(Path(folder)).task
    return EVALUATORS[task](folder, *arguments, **({"count": count} if task in PARTS else {}))


@dataclass(frozen=True)
class Part:
    """The labelled examples of one split."""

    examples: Sequence[Any]  # what the estimator takes: texts, or pictures
    labels: Sequence[Any]
    names: Sequence[str]  # what stands for each example in a table: the text itself, or the picture's file
    origin: str  # file or folder, for messages
    rows: Sequence[int] | None = None  # row of each example in the file

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Parts:
    """The data of a recipe. ``judged`` is the split that the final figures come from."""

    train: Part
    validation: Part | None
    judged: Part | None
    judged_name: str


def text_part(split: TextSplit | None) -> Part | None:
    """A split's examples; None where it has no labels."""
    if split is None or split.labels is None:
        return None
    return Part(split.texts, split.labels, split.texts, split.origin, split.rows)


def text_parts(recipe: Any) -> Parts:
    """The texts of a recipe."""
    splits = load_splits(recipe)
    train = text_part(splits.train)
    assert train is not None, "load_splits asks for labels"
    return Parts(train, text_part(splits.validation), text_part(splits.judged), splits.judged_name)


def image_part(split: ImageSplit | None) -> Part | None:
    """A split's examples; None where it has no labels."""
    if split is None or split.labels is None:
        return None
    return Part(split.images, split.labels, split.names(), split.origin, split.rows)


def image_parts(recipe: Any) -> Parts:
    """The pictures of a recipe."""
    splits = load_image_splits(recipe)
    train = image_part(splits.train)
    assert train is not None, "load_image_splits asks for labels"
    return Parts(train, image_part(splits.validation), image_part(splits.judged), splits.judged_name)


# Task -> the examples of its recipes, and the estimator that they describe.
PARTS: dict[str, Callable[[Any], Parts]] = {
    "text-classification": text_parts,
    "image-classification": image_parts,
}
ESTIMATORS: dict[str, Callable[[Any], Any]] = {
    "text-classification": TextClassifier.from_recipe,
    "image-classification": ImageClassifier.from_recipe,
}


def check_classifies(recipe: Any) -> None:
    """Raises ConfigError where the recipe's task does not predict labels."""
    if recipe.task not in PARTS:
        raise ConfigError(
            f"{recipe.task} does not predict labels", where="task", fix=nearest(recipe.task, list(PARTS))
        )
