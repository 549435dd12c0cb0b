"""Inputs of attribution methods.

A ``Subject`` is one text or image with its model, embeddings and baselines.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import suggest
from glassformer.data.text_pairs import TextPair
from glassformer.data.vocabulary import Vocabulary
from glassformer.errors import InputError
from glassformer.explain.result import tokenize
from glassformer.finite import finite
from glassformer.models.backbone import ModelOutput
from glassformer.nn.pairs import PairPooling
from glassformer.nn.pooling import (
    AttentionPooling,
    FirstMeanPooling,
    FirstPooling,
    FirstTwoPooling,
    MultiHeadPooling,
    PatchMeanPooling,
    Pooler,
)
from glassformer.nn.trace import LayerRecord, Trace
from glassformer.packing import Packing
from glassformer.runtime import runs_isolated_with_gradients

BATCH_TOKENS = 8192  # maximum number of tokens per forward pass over variants of an input


@dataclass(frozen=True)
class Subject:
    """An input of T tokens or patches with its prediction.

    Args:
        model: in eval mode, with ``encoder`` and ``run_rows``; used for gradients and attention maps.
        embeddings: ``[T, D]``, the input of the encoder.
        baselines: name -> function that returns replacements ``[T, D]`` for masked tokens. The embeddings of
            special tokens are unchanged.
        words: ``[T]`` the word of each token, or the index of each patch; -1: never masked ([CLS], [SEP]).
        classes, target: the labels, and the index of the predicted label.
        probabilities: ``[C]``.
        input_fields: fields of ``Explanation`` about the input (text, tokens, offsets, or image).
        grid: rows and columns of patches; None for text.
        temperature: the classifier's calibration temperature.
        predictor: model that predicts masked variants, such as a faster bf16 copy; None: ``model``.
        to_probabilities: function that converts logits to probabilities; None: a softmax.
        lengths: lengths of the texts that a bi-encoder encodes separately; (): a single text.
        scale: for regression, about the standard deviation of the target; None for labels.
        operators: ways of masking for tests of faithfulness.
    """

    model: nn.Module
    embeddings: Tensor
    baselines: Mapping[str, Callable[[], Tensor]]
    words: np.ndarray
    classes: list[Any]
    target: int
    probabilities: np.ndarray
    input_fields: dict[str, Any] = field(default_factory=dict)
    grid: tuple[int, int] | None = None
    temperature: Any = 1.0
    predictor: nn.Module | None = None
    to_probabilities: Callable[[np.ndarray], np.ndarray] | None = None
    lengths: tuple[int, ...] = ()
    scale: float | None = None
    operators: tuple[str, ...] = ("mask",)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def text_lengths(self) -> tuple[int, ...]:
        """The lengths of the texts that are encoded separately."""
        return self.lengths or (len(self),)

    def packing(self, count: int = 1) -> Packing:
        """The packing of ``count`` complete variants of the input."""
        return Packing(self.text_lengths * count, self.embeddings.device)

    @property
    def maskable_indices(self) -> np.ndarray:
        """Indices of the tokens that may be masked, in order."""
        return np.flatnonzero(self.words >= 0)

    def baseline(self, name: str) -> Tensor:
        """The replacement embeddings ``[T, D]`` of a baseline."""
        if name not in self.baselines:
            fix = suggest(name, list(self.baselines))
            raise InputError(f"unknown baseline {name!r}", where="explain", fix=fix)
        return self.baselines[name]()

    def logits(self, keep: np.ndarray, by: str = "mask") -> np.ndarray:
        """Logits ``[M, C]`` in fp64 of M variants of the input with masked tokens.

        Args:
            keep: ``[M, T]`` boolean, False at masked tokens; special tokens are always kept.
            by: ``"delete"`` removes masked tokens; the remaining tokens keep their position embeddings. The
                name of a baseline replaces their embeddings.
        """
        keep = np.asarray(keep, bool) | (self.words < 0)
        model = self.predictor or self.model
        replacement = None if by == "delete" else self.baseline(by)
        out = []
        per_batch = max(1, BATCH_TOKENS // len(self))
        with torch.inference_mode():
            for start in range(0, len(keep), per_batch):
                part = torch.from_numpy(keep[start : start + per_batch]).to(self.embeddings.device)  # [m, T]
                if replacement is None:
                    part[:, 0] |= ~part.any(1)  # a sequence has at least one token
                    x = self.embeddings.expand(len(part), -1, -1)[part]  # [N, D]
                    lengths = torch.stack([text.sum(1) for text in part.split(self.text_lengths, 1)], 1)
                    packing = Packing(tuple(lengths.flatten().tolist()), x.device)
                else:
                    x = torch.where(part[:, :, None], self.embeddings, replacement).flatten(0, 1)  # [m*T, D]
                    packing = self.packing(len(part))
                out.append(run_rows(model, x, packing).logits)
        return torch.cat(out).double().cpu().numpy()

    def logits_to_probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Logits ``[M, C]`` as probabilities, with the classifier's calibration."""
        if self.to_probabilities is not None:
            return self.to_probabilities(logits)
        scaled = logits / self.temperature
        exp = np.exp(scaled - scaled.max(1, keepdims=True))
        return exp / exp.sum(1, keepdims=True)

    def with_model(self, model: nn.Module) -> Subject:
        """A copy with another model of the same architecture, for the same label."""
        return replace(self, model=model, predictor=None)


def differentiable_model(clf: Any) -> Any:
    """The fitted model; a copy if its weights were created in ``torch.inference_mode``.

    Such weights cannot have gradients.
    """
    model = clf.model_.eval()
    return copy.deepcopy(model) if any(w.is_inference() for w in model.parameters()) else model


class SelectedTokens(nn.Module):
    """The pooling of a ``SingleOutputModel``, which reads the tokens at some positions of each sequence."""

    def __init__(self, positions: Sequence[int]):
        super().__init__()
        self.positions = list(positions)


class SingleOutputModel(nn.Module):
    """Wraps a token-level model as a model with a single output per sequence.

    Args:
        positions: the tokens in each sequence whose outputs are read.
        length: length of every sequence.
        select: outputs ``[N, C]`` and indices of the sequences' first tokens ``[B]`` -> logits ``[B, C]``.
    """

    def __init__(
        self, model: Any, positions: Sequence[int], length: int, select: Callable[[Tensor, Tensor], Tensor]
    ):
        super().__init__()
        self.model, self.pooling, self.length, self.select = model, SelectedTokens(positions), length, select
        self.encoder, self.config = model.encoder, model.config
        self.has_attention = getattr(model, "has_attention", True)

    def run_rows(self, x: Tensor, packing: Packing, trace: Trace | None = None) -> ModelOutput:
        """Logits ``[B, C]`` of embeddings ``[N, D]``."""
        if set(packing.lengths) != {self.length}:
            what = "words and answers cannot be explained by deleting tokens, which would move them"
            raise InputError(what, where="explain", fix="Hide tokens with by=mask, not by=delete")
        return self._select(self.model.run_rows(x, packing, trace), packing)

    def apply_heads(self, states: Tensor, packing: Packing) -> ModelOutput:
        """Logits ``[B, C]`` of hidden states ``[N, D]``."""
        return self._select(self.model.apply_heads(states, packing), packing)

    def _select(self, out: ModelOutput, packing: Packing) -> ModelOutput:
        out.logits = self.select(out.logits, packing.first_rows)  # type: ignore[arg-type]  # there is a head
        return out


def run_rows(model: Any, x: Tensor, packing: Packing, trace: Trace | None = None) -> ModelOutput:
    """Run a model from packed embeddings ``x`` ``[N, D]``, converted to the dtype of the encoder."""
    dtype = next(model.encoder.parameters(), x).dtype  # an encoder may have no weights
    return model.run_rows(x.to(dtype), packing, trace)


def attention_maps(subject: Subject) -> tuple[np.ndarray, np.ndarray]:
    """Attention weights of all layers ``[L, H, T, T]``, and the ``pooling_weights`` ``[T]``."""
    with torch.inference_mode():
        out = run_rows(subject.model, subject.embeddings, subject.packing(), Trace(attentions=True))
        reads = pooling_weights(subject.model.pooling, out, len(subject))
    assert out.trace is not None
    return np.stack([join_maps(layer).float().cpu().numpy() for layer in out.trace.attentions]), reads


def join_maps(maps: Sequence[Tensor]) -> Tensor:
    """Join attention maps ``[H, T_i, T_i]`` of separately encoded texts to one block-diagonal map."""
    if len(maps) == 1:
        return maps[0]
    return torch.stack([torch.block_diag(*heads) for heads in zip(*maps, strict=True)])


def pooling_weights(pooling: Any, out: ModelOutput, length: int) -> np.ndarray:
    """The share of each output token of the encoder in the pooled vector, ``[T]``."""
    if isinstance(pooling, PairPooling):  # both texts have the same share
        return (
            np.concatenate([pooling_weights(pooling.text_pooling, out, n) for n in out.packing.lengths]) / 2
        )
    weights = np.full(length, 1.0 / length)
    if isinstance(pooling, Pooler | FirstPooling) or getattr(pooling, "reads_first_row_only", False):
        weights[:] = 0.0
        weights[0] = 1.0
    elif isinstance(pooling, PatchMeanPooling):  # with FirstMeanPooling, [CLS] has the share of the mean
        first = 0.5 if isinstance(pooling, FirstMeanPooling) else 0.0
        weights[: pooling.skip], weights[pooling.skip :] = 0.0, (1 - first) / (length - pooling.skip)
        weights[0] += first
    elif isinstance(pooling, FirstTwoPooling):
        weights[:2], weights[2:] = 0.5, 0.0
    elif isinstance(pooling, SelectedTokens):  # one word of a sentence, or both ends of a span
        positions = np.unique(pooling.positions)
        weights[:] = 0.0
        weights[positions] = 1.0 / len(positions)
    elif isinstance(pooling, AttentionPooling) and out.states is not None:
        weights = torch.softmax(pooling.score(out.states.float()).squeeze(1), 0).cpu().numpy()
    elif isinstance(pooling, MultiHeadPooling) and out.states is not None:
        pooling(out.states, out.packing, record := LayerRecord())
        weights = record.weights[0].mean(0)[0].cpu().numpy()  # [H, 1, T] -> [T]
    return weights


def _predict_target(clf: Any, logits: Tensor) -> tuple[np.ndarray, int, Any]:
    """Probabilities ``[C]`` of one input, the index of the label to explain, and the label itself."""
    finite(logits, "logits")
    if not clf.kind_.is_single_label:
        probabilities = clf.to_probabilities(logits[None].double().cpu().numpy())[0]
    else:
        probabilities = torch.softmax(logits.double() / clf.temperature_, 0).cpu().numpy()
    target = clf.kind_.explain_target(probabilities, clf.threshold_)
    return probabilities, target, clf.kind_.target_name(target, probabilities, clf.classes_)


# --- text -----------------------------------------------------------------------------------------


Baselines = dict[str, Callable[[], Tensor]]


def embed_tokens(
    clf: Any, model: Any, ids: np.ndarray, words: np.ndarray, segments: np.ndarray | None
) -> tuple[Tensor, Baselines]:
    """Embeddings ``[T, D]`` of the tokens of one sequence, and its baselines.

    Baselines replace every token except special tokens, and keep the position embeddings. ``mask`` uses the
    mask token, or the unknown token if the tokenizer has no mask token. ``unknown`` uses the unknown token,
    ``pad`` the padding token, and ``random`` random tokens. ``zero`` replaces embeddings by zeros.
    """
    device = next(model.parameters()).device
    packing = Packing.uniform(1, len(ids), device)
    original = torch.from_numpy(np.asarray(ids, np.int64)).to(device)
    types = None if segments is None else torch.from_numpy(np.asarray(segments, np.int64)).to(device)
    special = torch.from_numpy(words < 0).to(device)

    def embed(ids: Tensor) -> Tensor:
        with torch.no_grad():
            return model.embed(ids, packing, types)[0].float()  # [T, D]

    embeddings, vocab = embed(original), Vocabulary.of(clf.tokenizer_)
    substitutes = {
        "mask": vocab.unk if vocab.mask is None else vocab.mask,
        "unknown": vocab.unk,
        "pad": vocab.pad,
    }
    baselines: Baselines = {
        name: lambda token=token: embed(torch.where(special, original, token))
        for name, token in substitutes.items()
        if token is not None
    }
    baselines["random"] = lambda: embed(
        torch.where(special, original, _random_tokens(clf, len(ids)).to(device))
    )
    baselines["zero"] = lambda: torch.where(special[:, None], embeddings, 0.0)
    return embeddings, baselines


def _random_tokens(clf: Any, count: int) -> Tensor:
    """``count`` random token ids without special tokens, the same in each call."""
    regular = np.flatnonzero(~Vocabulary.of(clf.tokenizer_).special(clf.tokenizer_))
    return torch.from_numpy(
        np.random.default_rng(0).choice(regular, count) if len(regular) else np.zeros(count, int)
    )


def masking_operators(clf: Any, *, delete: bool = True) -> tuple[str, ...]:
    """The distinct ways of masking with a tokenizer; ``delete``: whether tokens may be deleted."""
    vocab = Vocabulary.of(clf.tokenizer_)
    has_mask, has_unknown = vocab.mask is not None, vocab.unk is not None
    available = {
        "mask": has_mask or has_unknown,
        "delete": delete,
        "unknown": has_mask and has_unknown,  # without a mask token, "mask" uses the unknown token
        "random": True,
    }
    return tuple(name for name, is_available in available.items() if is_available)


def compute_logits(model: Any, embeddings: Tensor, lengths: tuple[int, ...] = ()) -> Tensor:
    """Logits ``[C]`` of one input from its ``embeddings`` ``[T, D]``; see ``Subject`` for ``lengths``."""
    with torch.inference_mode():
        logits = run_rows(model, embeddings, Packing(lengths or (len(embeddings),), embeddings.device)).logits
    assert logits is not None
    return logits[0]


@runs_isolated_with_gradients
def text_subject(clf: Any, text: str) -> Subject:
    """The ``Subject`` of a text for a fitted classifier or regressor."""
    tokens = tokenize(clf, text)
    model = differentiable_model(clf)
    embeddings, baselines = embed_tokens(clf, model, np.array(tokens.ids), tokens.words, tokens.segments)
    lengths = ()
    if getattr(model.config, "sides", None) and tokens.segments is not None:
        second = int(tokens.segments.sum())
        lengths = len(tokens) - second, second
    probabilities, target, label = _predict_target(clf, compute_logits(model, embeddings, lengths))
    classes = clf.classes_.tolist()
    return Subject(
        model,
        embeddings,
        baselines,
        tokens.words,
        classes,
        target,
        probabilities,
        temperature=clf.temperature_,
        to_probabilities=None if clf.kind_.is_single_label else clf.to_probabilities,
        lengths=lengths,
        scale=target_scale(clf, label),
        operators=masking_operators(clf),
        input_fields={
            "text": tokens.text,
            "tokens": tokens.names,
            "offsets": tokens.offsets,
            "word_ids": tokens.words,
            "label": label,
            "number": not clf.kind_.predicts_labels,
            "notes": [*prediction_notes(clf, probabilities), *_truncation_notes(clf, text)],
            **({} if tokens.sides is None else {"sides": tokens.sides}),
        },
    )


def prediction_notes(clf: Any, probabilities: np.ndarray) -> list[str]:
    """A note with all predicted labels for multi-label classifiers, or a note that the model abstains."""
    if hasattr(clf, "abstains") and clf.abstains(probabilities[None])[0]:
        return [f"no label is given: its probability is below {clf.abstain_below_:g}"]
    return [f"labels given: {clf.decide(probabilities[None])[0]}"] if clf.kind_.is_multilabel else []


def _truncation_notes(clf: Any, text: str) -> list[str]:
    """A note if only the beginning of a text is explained."""
    if not clf.encode([text]).truncated[0]:
        return []
    if clf.long_texts == "cut" or isinstance(text, TextPair):
        return [f"only the first {clf.max_length} tokens were read and explained; the rest was cut"]
    return [
        f"only the first {clf.max_length} tokens are explained; the classifier reads the whole text in "
        "windows"
    ]


# --- images -------------------------------------------------------------------------------------


def target_scale(clf: Any, label: Any) -> float | None:
    """For regressors, the scale of differences between numbers near ``label``; None for classifiers."""
    kind = clf.kind_
    if kind.predicts_labels:
        return None
    return float(kind.unit if kind.scale == "linear" else kind.unit * abs(float(label)))


@runs_isolated_with_gradients
def image_subject(clf: Any, image: Any) -> Subject:
    """The ``Subject`` of an image for a fitted image classifier.

    Baselines keep the position embeddings. ``mask`` is the mean color of the transform, ``mean`` the mean
    color of the image, ``blur`` the image reduced to a 4 x 4 grid, ``shuffle`` the patches in random order.
    ``zero`` replaces embeddings by zeros.
    """
    model = differentiable_model(clf)
    device = next(model.parameters()).device
    pixels = np.array(clf.pixels(image))  # [C, height, width] uint8, a copy
    values = clf.transform_.normalize(torch.from_numpy(pixels)[None].to(device))
    height, width = (int(size) for size in model.config.embedding.patch_size)
    grid = (pixels.shape[1] // height, pixels.shape[2] // width)

    def embed(values: Tensor) -> Tensor:
        with torch.no_grad():
            return model.embed(values)[0].float()  # [T, D]

    embeddings = embed(values)
    num_special = len(embeddings) - grid[0] * grid[1]  # [CLS] and register tokens precede the patches
    words = np.concatenate([np.full(num_special, -1), np.arange(grid[0] * grid[1])])
    special = torch.from_numpy(words < 0).to(device)
    probabilities, target, label = _predict_target(clf, compute_logits(model, embeddings))
    classes = clf.classes_.tolist()
    patched = np.moveaxis(pixels[:, : grid[0] * height, : grid[1] * width], 0, -1)  # without partial patches
    image = np.ascontiguousarray(np.repeat(patched, 3, 2) if patched.shape[2] == 1 else patched[:, :, :3])
    return Subject(
        model,
        embeddings,
        {
            "mask": lambda: embed(torch.zeros_like(values)),
            "mean": lambda: embed(values.mean((2, 3), keepdim=True).expand_as(values)),
            "blur": lambda: embed(_blurred(values)),
            "shuffle": lambda: embed(_shuffled(values, height, width)),
            "zero": lambda: torch.where(special[:, None], embeddings, 0.0),
        },
        words,
        classes,
        target,
        probabilities,
        grid=grid,
        temperature=clf.temperature_,
        to_probabilities=None if clf.kind_.is_single_label else clf.to_probabilities,
        scale=target_scale(clf, label),
        operators=("mask", "mean", "blur", "shuffle"),
        input_fields={
            "text": "",
            "tokens": [],
            "offsets": [],
            "image": image,
            "label": label,
            "number": not clf.kind_.predicts_labels,
            "notes": prediction_notes(clf, probabilities),
        },
    )


def _blurred(values: Tensor) -> Tensor:
    """Images ``[1, C, height, width]`` reduced to a 4 x 4 grid and interpolated."""
    size = values.shape[2:]
    return F.interpolate(F.adaptive_avg_pool2d(values, 4), size=size, mode="bilinear", align_corners=False)


def _shuffled(values: Tensor, height: int, width: int) -> Tensor:
    """Images ``[1, C, rows * height, columns * width]`` with their patches in a fixed random order."""
    _, channels, *sides = values.shape
    rows, columns = sides[0] // height, sides[1] // width
    out, inside = values.clone(), values[:, :, : rows * height, : columns * width]
    patches = inside.reshape(channels, rows, height, columns, width).permute(1, 3, 0, 2, 4).flatten(0, 1)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(patches))).to(values.device)
    mixed = patches[order].view(rows, columns, channels, height, width).permute(2, 0, 3, 1, 4)
    out[0, :, : rows * height, : columns * width] = mixed.reshape(channels, rows * height, columns * width)
    return out
