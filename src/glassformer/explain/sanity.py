"""Sanity checks of attribution methods.

``randomization`` shuffles the weights of a model; ``stability`` makes small changes to its inputs.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.explain.faithfulness import spearman, summary
from glassformer.explain.methods import explain, explain_input
from glassformer.explain.subject import Subject

LIMIT = 0.5  # mean rank correlation from which scores count as unchanged


# --- weight randomization -------------------------------------------------------------------------


def _stages(model: Any) -> list[tuple[str, list[nn.Module]]]:
    """The parts of a model from output to input: head and pooling, then the layers in reverse order."""
    top = [m for m in (model.head, model.pooling, model.encoder.final_norm) if isinstance(m, nn.Module)]
    layers = list(model.encoder.layers)
    return [("head", top), *((f"layer {i + 1}", [layers[i]]) for i in reversed(range(len(layers))))]


def shuffled(model: Any, seed: int = 0) -> Iterator[tuple[str, Any]]:
    """Shuffle the parts of a copy of the model one by one, from the output (Adebayo et al., 2018: cascading).

    Yields the name of the part and the copy, after each part. The values of every tensor are permuted, which
    keeps their distribution. Embeddings are not shuffled.
    """
    model = copy.deepcopy(model).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, modules in _stages(model):
        with torch.no_grad():
            for module in modules:
                for p in module.parameters():
                    order = torch.randperm(p.numel(), generator=generator).to(p.device)
                    p.copy_(p.flatten()[order].view_as(p))
        yield name, model


def randomization(
    subjects: Sequence[Subject], method: str, *, seed: int = 0, **options: Any
) -> list[dict[str, Any]]:
    """Rank correlation of the scores of the trained model with the scores under shuffled weights.

    The subjects share one model. Weights are shuffled cumulatively (``shuffled``). Each record has the last
    shuffled part and the mean rank correlation over the tokens that may be masked, with its interval.
    """

    def flat_scores(subject: Subject) -> np.ndarray:
        scores = explain(subject, method=method, maps=False, **options).scores
        return scores.ravel() if subject.grid is not None else scores[subject.maskable_indices]

    trained = [flat_scores(s) for s in subjects]
    records = []
    for name, model in shuffled(subjects[0].model, seed):
        randomized = [flat_scores(s.with_model(model)) for s in subjects]
        correlations = np.array([spearman(a, b) for a, b in zip(trained, randomized, strict=True)])
        records.append({"down to": name, **summary(correlations)})
    return records


def passes(records: Sequence[dict[str, Any]]) -> bool:
    """Whether the scores change when all weights are shuffled; ``records`` are from ``randomization``."""
    return abs(records[-1]["mean"]) < LIMIT


# --- stability -------------------------------------------------------------------------------------

# Pairs of synonyms, for movie reviews and plain English.
SYNONYMS = """
good fine|great terrific|excellent superb|wonderful marvelous|amazing astonishing|bad poor|terrible awful
horrible dreadful|boring dull|funny amusing|hilarious uproarious|sad unhappy|happy glad|beautiful lovely
ugly hideous
smart clever|stupid foolish|silly daft|strange odd|weird bizarre|scary frightening|big large|small little
huge enormous
old aged|new recent|fast quick|slow sluggish|hard difficult|easy simple|important significant
interesting intriguing
film movie|story tale|plot storyline|actor performer|actors performers|ending finale|beginning start
scene sequence
scenes sequences|picture image|director filmmaker|character figure|characters figures|dialogue conversation
kid child|kids children|man guy|woman lady|house home|job work|money cash|fault flaw|mistake error
begin start|begins starts|end finish|ends finishes|like enjoy|liked enjoyed|love adore|loved adored
hate detest
hated detested|watch view|watched viewed|think believe|thought believed|say state|seem appear|seems appears
try attempt
tried attempted|help assist|show display|shows displays|buy purchase|bought purchased|make create|made created
really truly|very extremely|quite rather|totally completely|probably likely|often frequently|maybe perhaps
also too|almost nearly|quickly rapidly|just only|finally eventually|entire whole|complete utter
perfect flawless
pathetic pitiful|brilliant dazzling|memorable unforgettable|predictable foreseeable|convincing believable
"""


def synonyms() -> dict[str, str]:
    """Word -> synonym, in both directions."""
    pairs = [(a, b) for a, b in (line.split() for line in re.split(r"[|\n]", SYNONYMS) if line.strip())]
    return dict(pairs) | {b: a for a, b in reversed(pairs)}


def with_synonym(text: str, rng: np.random.Generator) -> tuple[str, str, str] | None:
    """The text with one word replaced by a synonym, the word and the synonym; None without known words."""
    synonym_of = synonyms()
    matches = [m for m in re.finditer(r"[A-Za-z]+", text) if m[0].lower() in synonym_of]
    if not matches:
        return None
    match = matches[int(rng.integers(len(matches)))]
    synonym = synonym_of[match[0].lower()]
    synonym = synonym.capitalize() if match[0][0].isupper() else synonym
    return text[: match.start()] + synonym + text[match.end() :], match[0], synonym


def with_typo(text: str, rng: np.random.Generator) -> tuple[str, str, str] | None:
    """The text with two adjacent letters of a word swapped, the word and the typo; None for short words."""
    matches = [m for m in re.finditer(r"[A-Za-z]{4,}", text) if len(set(m[0][1:-1])) > 1]
    if not matches:
        return None
    match = matches[int(rng.integers(len(matches)))]
    word = match[0]
    positions = [i for i in range(1, len(word) - 2) if word[i] != word[i + 1]]
    i = positions[int(rng.integers(len(positions)))]
    typo = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    return text[: match.start()] + typo + text[match.end() :], word, typo


def with_brightness(image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, str, str]:
    """An image ``[height, width, channels]`` uint8, 20 % darker or brighter, with a description."""
    factor = float(rng.choice((0.8, 1.2)))
    return np.clip(np.rint(image * factor), 0, 255).astype(np.uint8), "brightness", f"{factor:g}"


def with_crop(image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, str, str]:
    """An image cropped at random to 15/16 of its sides and resized to the full size, with a description."""
    from PIL import Image

    height, width, channels = image.shape
    rows, columns = (max(1, min(side - 1, side * 15 // 16)) for side in (height, width))
    top, left = int(rng.integers(height - rows + 1)), int(rng.integers(width - columns + 1))
    crop = image[top : top + rows, left : left + columns]
    crop = crop[:, :, 0] if channels == 1 else crop
    resized = np.asarray(Image.fromarray(crop).resize((width, height), Image.Resampling.BILINEAR))
    return resized.reshape(image.shape), "crop", f"{rows} x {columns} at {top}, {left}"


def stability(
    clf: Any,
    inputs: Sequence[Any],
    method: str,
    *,
    change: Callable[[Any, np.random.Generator], tuple[Any, str, str] | None] | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Rank correlation of the scores before and after a small change of the input that keeps its meaning.

    For texts one word is changed, and the scores of the unchanged words are compared. Texts without a known
    word, with fewer than three unchanged words, or with a changed number of words are skipped. For images the
    scores of patches are compared by position, after the model's resizing.

    Args:
        change: the change; None: ``with_synonym`` for texts, ``with_crop`` for images. ``with_typo`` and
            ``with_brightness`` are alternatives.

    Returns:
        ``correlation`` (mean, 95 % interval, n), ``label_kept`` (share of inputs with the same prediction),
        and ``correlation_label_kept``, the correlation over inputs with the same prediction.
    """
    rng = np.random.default_rng(seed)
    change = change or (with_crop if clf.inputs.has_images else with_synonym)
    results: list[tuple[float, bool]] = []
    for original in inputs:
        if clf.inputs.has_images:
            original = np.moveaxis(clf.pixels(original), 0, -1)  # uint8 at the model's size
        changed = change(original, rng)
        if changed is not None:
            result = _compare_scores(clf, original, changed[0], method, options)
            if result is not None:
                results.append(result)
        if progress is not None:
            progress(1)
    if not results:
        return {"correlation": None, "label_kept": None, "correlation_label_kept": None}
    correlations, has_same_label = (np.array(values) for values in zip(*results, strict=True))
    return {
        "correlation": summary(correlations),
        "label_kept": summary(has_same_label.astype(float)),
        "correlation_label_kept": summary(correlations[has_same_label]) if has_same_label.any() else None,
    }


def _compare_scores(
    clf: Any, original: Any, changed: Any, method: str, options: dict[str, Any]
) -> tuple[float, bool] | None:
    """Rank correlation over the common words or patches, and whether the label is the same; None: skipped."""
    first = explain_input(clf, original, method=method, maps=False, **options)
    target = {} if first.target is None else {"target": first.target}
    second = explain_input(clf, changed, method=method, maps=False, **target, **options)
    has_same_label = bool(first.label == second.label)
    if first.image is not None:
        return spearman(first.scores.ravel(), second.scores.ravel()), has_same_label
    a, b = first.words(), second.words()
    if len(a) != len(b):
        return None
    common = [(x, y) for (word, x), (other, y) in zip(a, b, strict=True) if word == other]
    if len(common) < 3:
        return None
    return spearman(*np.array(common).T), has_same_label
