"""Attention heads: statistics, ablation, and misleading attention maps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glassformer.errors import ConfigError, InputError, UnknownLabelError
from glassformer.explain.faithfulness import interval
from glassformer.explain.result import sum_by_word, word_spans
from glassformer.explain.subject import Subject, attention_maps, text_subject
from glassformer.nn.int8 import precision_of

SHARES = ("cls", "sep", "diagonal", "previous", "next", "same_word")


def map_statistics(maps: np.ndarray, words: np.ndarray) -> dict[str, np.ndarray]:
    """Attention statistics of each head for one input, ``[L, H]`` each.

    Each statistic is the mean over all queries, except special tokens:

    - ``entropy``: entropy of the attention weights, divided by the entropy of uniform weights.
    - ``distance``: mean distance in tokens, weighted by attention.
    - ``cls``, ``sep``: attention to the first and to the last token, if these are special tokens.
    - ``diagonal``: attention to the token itself.
    - ``previous``, ``next``: attention to the adjacent words; for images, to patches in reading order.
    - ``same_word``: attention to other tokens of the same word.

    Args:
        maps: ``[L, H, T, T]``.
        words: ``[T]``, the word of each token; -1 for special tokens.
    """
    t = maps.shape[-1]
    if (words < 0).all():
        words = np.arange(t)
    rows = np.flatnonzero(words >= 0)
    word_rows = maps[:, :, rows].astype(np.float64)  # [L, H, R, T]
    entropy = -(word_rows * np.log(np.maximum(word_rows, 1e-12))).sum(-1) / max(np.log(t), 1e-12)
    distances = np.abs(rows[:, None] - np.arange(t))

    def share(mask: np.ndarray) -> np.ndarray:  # [R, T] or [1, T] boolean -> [L, H]
        return (word_rows * mask).sum(-1).mean(-1)

    columns = np.arange(t)[None]
    same_word = (words[rows][:, None] == words[None]) & (columns != rows[:, None])
    return {
        "entropy": entropy.mean(-1),
        "distance": (word_rows * distances).sum(-1).mean(-1),
        "cls": share(columns == 0) if words[0] < 0 else np.zeros(maps.shape[:2]),
        "sep": share(columns == t - 1) if words[-1] < 0 else np.zeros(maps.shape[:2]),
        "diagonal": share(distances == 0),
        "previous": share((words >= 0) & (words == words[rows, None] - 1)),
        "next": share(words == words[rows, None] + 1),
        "same_word": share(same_word),
    }


def head_statistics(subjects: Sequence[Subject]) -> dict[str, np.ndarray]:
    """Means of ``map_statistics`` over inputs, ``[L, H]`` each."""
    statistics = [map_statistics(attention_maps(s)[0], s.words) for s in subjects]
    return {name: np.mean([s[name] for s in statistics], 0) for name in statistics[0]}


def attention_statistics(subjects: Sequence[Subject]) -> dict[str, float]:
    """Attention statistics of a model for inputs of one length, as means over layers, heads and queries.

    ``entropy`` and ``distance`` are relative to uniform attention. ``movement`` is the mean total variation
    distance of the weights of a query from their mean over all inputs; 0: attention depends on positions
    only.
    """
    lengths = {len(subject) for subject in subjects}
    if len(lengths) != 1:
        what = f"inputs of {len(lengths)} lengths" if lengths else "there are no inputs"
        raise InputError(what, where="attention_statistics", fix="Give inputs of one length")
    t = lengths.pop()
    maps = np.stack([attention_maps(s)[0].astype(np.float64) for s in subjects])  # [n, L, H, T, T]
    distances = np.abs(np.arange(t)[:, None] - np.arange(t))
    entropy = -(maps * np.log(np.maximum(maps, 1e-12))).sum(-1).mean() / max(np.log(t), 1e-12)
    return {
        "entropy": float(entropy),
        "distance": float((maps * distances).sum(-1).mean() / max(distances.mean(), 1e-12)),
        "movement": float(np.abs(maps - maps.mean(0)).sum(-1).mean() / 2),
    }


def describe(statistics: dict[str, np.ndarray], min_share: float = 0.4) -> list[list[str]]:
    """A description of each head ``[L][H]``.

    The description is the key of ``SHARES`` with the largest share if this share is at least ``min_share``.
    Otherwise it is ``broad`` (nearly uniform) or ``mixed``.
    """
    layers, heads = statistics["entropy"].shape
    out = []
    for layer in range(layers):
        names = []
        for head in range(heads):
            shares = {name: float(statistics[name][layer, head]) for name in SHARES}
            largest = max(shares, key=shares.__getitem__)
            is_broad = statistics["entropy"][layer, head] > 0.9
            names.append(largest if shares[largest] >= min_share else "broad" if is_broad else "mixed")
        out.append(names)
    return out


# --- head ablation --------------------------------------------------------------------------------


@contextmanager
def ablated_head(model: Any, layer: int, head: int) -> Iterator[None]:
    """Context in which the output of one head is 0, because its columns of the output projection are."""
    layers = model.encoder.steps
    heads = model.encoder.config.num_heads
    if not (0 <= layer < len(layers) and 0 <= head < heads):
        raise InputError(
            f"there is no head {head} in layer {layer}, only {len(layers)} x {heads}", where="ablated_head"
        )
    weight = layers[layer].attention.out.weight
    width = weight.shape[1] // heads
    columns = slice(head * width, (head + 1) * width)
    saved = weight.data[:, columns].clone()
    try:
        with torch.no_grad():
            weight.data[:, columns] = 0
        yield
    finally:
        weight.data[:, columns] = saved


def ablation(
    clf: Any, texts: Sequence[str], labels: Sequence[Any], *, progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Ablate each head and measure the loss of accuracy and of the mean probability of the true label.

    Returns:
        ``accuracy``; ``accuracy_lost`` and ``probability_lost`` ``[L, H]``; ``interval`` ``[L, H, 2]``, the
        95 % interval of ``probability_lost`` over the texts; ``n``, the number of texts.
    """
    indices = {label: i for i, label in enumerate(clf.classes_.tolist())}
    if unknown := [label for label in labels if label not in indices]:
        raise UnknownLabelError(f"label {unknown[0]!r} was not seen in training", where="ablation")
    targets = np.array([indices[label] for label in labels])
    clf = copy.copy(clf)  # other threads may use the estimator
    clf.model_, clf._compute_model = copy.deepcopy(clf.model_), None
    model = clf.predictor()
    if precision_of(model) == "int8":
        what = "heads cannot be ablated in int8 weights"
        raise ConfigError(what, where="precision", fix="Set precision to auto, fp32 or bf16 first")
    config = model.encoder.config

    def evaluate() -> tuple[np.ndarray, np.ndarray]:
        """Whether each text is classified correctly, and the probability of its true label."""
        probabilities = clf.predict_proba(list(texts))
        is_correct = clf.decide(probabilities) == clf.classes_[targets]
        return is_correct, probabilities[np.arange(len(targets)), targets]

    is_correct, probability = evaluate()
    shape = (config.num_layers, config.num_heads)
    accuracy_lost, probability_lost, bounds = np.zeros(shape), np.zeros(shape), np.zeros((*shape, 2))
    for layer, head in np.ndindex(*shape):
        with ablated_head(model, layer, head):
            is_correct_ablated, ablated_probability = evaluate()
        accuracy_lost[layer, head] = is_correct.mean() - is_correct_ablated.mean()
        probability_lost[layer, head] = (probability - ablated_probability).mean()
        bounds[layer, head] = interval(probability - ablated_probability)
        if progress is not None:
            progress(1)
    return {
        "accuracy": float(is_correct.mean()),
        "accuracy_lost": accuracy_lost,
        "probability_lost": probability_lost,
        "interval": bounds,
        "n": len(targets),
    }


# --- counterexamples to attention as explanation --------------------------------------------------


@dataclass(frozen=True)
class CounterExample:
    """A text whose prediction depends on a word with little attention, not on the most attended word."""

    text: str
    label: Any
    probability: float
    attended: str  # the most attended word
    attended_share: float  # share of the attention on words
    without_attended: float  # probability of the label when that word is masked
    decisive: str  # a word that changes the prediction when it is masked
    decisive_share: float
    decisive_rank: int  # 1 is the most attended word
    without_decisive: float  # probability of the label when the decisive word is masked
    flips_to: Any  # the predicted label when the decisive word is masked

    def in_words(self) -> str:
        """A description of the counterexample in two sentences."""
        return (
            f"“{self.attended}” gets {self.attended_share:.0%} of the attention on words; without it the "
            f"prediction stays {self.label} (probability {self.probability:.2f} before, "
            f"{self.without_attended:.2f} after). “{self.decisive}” has rank {self.decisive_rank} "
            f"by attention ({self.decisive_share:.1%}); without it the prediction becomes {self.flips_to} "
            f"(probability of {self.label} {self.without_decisive:.2f})."
        )


def counter_examples(
    clf: Any,
    texts: Sequence[str],
    *,
    scores: Callable[[Subject], np.ndarray] | None = None,
    replacement: str = "mask",
    progress: Callable[[int], None] | None = None,
) -> list[CounterExample]:
    """Find texts whose attention map misleads, the clearest first.

    Masking the most attended word does not change the prediction, while masking a word outside the most
    attended third does.

    Args:
        scores: function that returns the scores of the tokens ``[T]``; None: attention of the last layer,
            mean over heads.
        replacement: replacement of masked words, like ``by`` of ``Subject.logits``.
    """
    examples: list[CounterExample] = []
    for text in texts:
        example = _counter_example(text_subject(clf, text), clf, scores or _last_layer_attention, replacement)
        if example is not None:
            examples.append(example)
        if progress is not None:
            progress(1)
    return sorted(examples, key=lambda e: -min(e.without_attended, 1 - e.without_decisive))


def _last_layer_attention(subject: Subject) -> np.ndarray:
    maps, pooling_weights = attention_maps(subject)
    return pooling_weights @ maps[-1].mean(0)


def _counter_example(
    subject: Subject, clf: Any, scores: Callable[[Subject], np.ndarray], replacement: str
) -> CounterExample | None:
    count = int(subject.words.max(initial=-1)) + 1
    if count < 3:
        return None
    shares = sum_by_word(scores(subject), subject.words)
    shares = shares / max(shares.sum(), 1e-12)
    keep = np.arange(count)[:, None] != subject.words[None]  # [W, T], each variant without one word
    probabilities = subject.logits_to_probabilities(subject.logits(keep, replacement))  # [W, C]
    labels = clf.decide(probabilities)
    order = np.argsort(-shares, kind="stable")
    rank = np.empty(count, int)
    rank[order] = np.arange(count)
    label = subject.classes[subject.target]
    if labels[order[0]] != label:
        return None
    flips = [w for w in range(count) if labels[w] != label and rank[w] >= count / 3]
    if not flips:
        return None
    flip = min(flips, key=lambda w: probabilities[w, subject.target])
    spans = word_spans(subject.words, subject.input_fields["offsets"])
    text = subject.input_fields["text"]
    top = int(order[0])
    return CounterExample(
        text,
        label,
        float(subject.probabilities[subject.target]),
        text[slice(*spans[top])],
        float(shares[top]),
        float(probabilities[top, subject.target]),
        text[slice(*spans[flip])],
        float(shares[flip]),
        int(rank[flip]) + 1,
        float(probabilities[flip, subject.target]),
        labels[flip].item() if hasattr(labels[flip], "item") else labels[flip],
    )
