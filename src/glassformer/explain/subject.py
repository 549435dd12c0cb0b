"""``Subject``: one input for all attribution methods, with its model, embeddings and baselines.

Texts and images differ only in how a ``Subject`` is created: from tokens with offsets, or from patches on a
grid.
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

from glassformer.config import nearest
from glassformer.data.text_pairs import TextPair
from glassformer.data.vocabulary import Vocabulary
from glassformer.errors import InputError
from glassformer.explain.result import tokens_of
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
from glassformer.runtime import computes_gradients

BATCH_TOKENS = 8192  # rows per forward pass over variants of an input


@dataclass(frozen=True)
class Subject:
    """An input of T tokens or patches with its prediction.

    Args:
        model: in eval mode, with ``encoder`` and ``run_rows``; used for gradients and attention maps.
        rows: ``[T, D]``, the input of the encoder.
        baselines: name -> function that returns replacement rows ``[T, D]`` for masked tokens; special tokens
            are kept.
        words: ``[T]`` the word of each token, or the number of each patch; -1: never masked ([CLS], [SEP]).
        classes, target: the labels, and the number of the predicted one.
        probabilities: ``[C]``.
        shown: fields of ``Explanation`` about the input (text, tokens, offsets, or image).
        grid: rows and columns of patches; None for text.
        lengths: lengths of the texts that a bi-encoder encodes separately; (): a single text.
        judge: model that predicts masked variants; None: ``model``. A bf16 copy is faster on some machines.
    """

    model: nn.Module
    rows: Tensor
    baselines: Mapping[str, Callable[[], Tensor]]
    words: np.ndarray
    classes: list[Any]
    target: int
    probabilities: np.ndarray
    shown: dict[str, Any] = field(default_factory=dict)
    grid: tuple[int, int] | None = None
    temperature: Any = 1.0
    judge: nn.Module | None = None
    to_probabilities: Callable[[np.ndarray], np.ndarray] | None = None  # None: a softmax
    lengths: tuple[int, ...] = ()
    spread: float | None = None  # regression: about the standard deviation of the target; None: labels
    operators: tuple[str, ...] = ("mask",)  # ways of masking for tests of faithfulness

    def __len__(self) -> int:
        return len(self.words)

    @property
    def parts(self) -> tuple[int, ...]:
        """The lengths of the texts that are encoded separately."""
        return self.lengths or (len(self),)

    def packing(self, count: int = 1) -> Packing:
        """The packing of ``count`` complete variants of the input."""
        return Packing(self.parts * count, self.rows.device)

    @property
    def hideable(self) -> np.ndarray:
        """Indices of the tokens that may be masked, in order."""
        return np.flatnonzero(self.words >= 0)

    def baseline(self, name: str) -> Tensor:
        """The replacement rows ``[T, D]`` of a baseline.

        Raises:
            InputError: the model does not have this baseline.
        """
        if name not in self.baselines:
            fix = nearest(name, list(self.baselines))
            raise InputError(f"no baseline {name!r} here", where="explain", fix=fix)
        return self.baselines[name]()

    def logits(self, keep: np.ndarray, by: str = "mask") -> np.ndarray:
        """Logits ``[M, C]`` in fp64 of M variants of the input with masked tokens.

        Args:
            keep: ``[M, T]`` boolean, False at masked tokens; special tokens are always kept.
            by: ``"delete"`` removes the rows (the others keep their positions); the name of a baseline
                replaces them.
        """
        keep = np.asarray(keep, bool) | (self.words < 0)
        model = self.judge or self.model
        instead = None if by == "delete" else self.baseline(by)
        out = []
        per_batch = max(1, BATCH_TOKENS // len(self))
        with torch.inference_mode():
            for start in range(0, len(keep), per_batch):
                part = torch.from_numpy(keep[start : start + per_batch]).to(self.rows.device)  # [m, T]
                if instead is None:
                    part[:, 0] |= ~part.any(1)  # a sequence has at least one row
                    rows = self.rows.expand(len(part), -1, -1)[part]  # [N, D]
                    kept = torch.stack([own.sum(1) for own in part.split(self.parts, 1)], 1)
                    packing = Packing(tuple(kept.flatten().tolist()), rows.device)
                else:
                    rows = torch.where(part[:, :, None], self.rows, instead).flatten(0, 1)  # [m*T, D]
                    packing = self.packing(len(part))
                out.append(run_rows(model, rows, packing).logits)
        return torch.cat(out).double().cpu().numpy()

    def chance(self, logits: np.ndarray) -> np.ndarray:
        """Logits ``[M, C]`` as probabilities, calibrated like those of the classifier."""
        if self.to_probabilities is not None:
            return self.to_probabilities(logits)
        scaled = logits / self.temperature
        exp = np.exp(scaled - scaled.max(1, keepdims=True))
        return exp / exp.sum(1, keepdims=True)

    def under(self, model: nn.Module) -> Subject:
        """A copy with another model of the same shape, for the same label."""
        return replace(self, model=model, judge=None)


def model_of(clf: Any) -> Any:
    """The fitted model; a copy if its weights were created in ``torch.inference_mode`` and so have no
    gradients."""
    model = clf.model_.eval()
    return copy.deepcopy(model) if any(w.is_inference() for w in model.parameters()) else model


class ReadRows(nn.Module):
    """A stand-in for a pooling that reads some rows of each sequence."""

    def __init__(self, rows: Sequence[int]):
        super().__init__()
        self.rows = list(rows)


class OutputsAt(nn.Module):
    """Wraps a token-level model as one with a single output per sequence.

    Args:
        positions: the tokens in each sequence whose outputs are read.
        length: length of every sequence.
        chosen: outputs ``[N, C]`` and indices of the sequences' first tokens ``[B]`` -> logits ``[B, C]``.
    """

    def __init__(
        self, model: Any, positions: Sequence[int], length: int, chosen: Callable[[Tensor, Tensor], Tensor]
    ):
        super().__init__()
        self.model, self.pooling, self.length, self.chosen = model, ReadRows(positions), length, chosen
        self.encoder, self.config = model.encoder, model.config
        self.has_attention = getattr(model, "has_attention", True)

    def run_rows(self, x: Tensor, packing: Packing, trace: Trace | None = None) -> ModelOutput:
        """Logits ``[B, C]`` of embedded rows ``[N, D]``.

        Raises:
            InputError: tokens were deleted, so that row indices are not valid.
        """
        if set(packing.lengths) != {self.length}:
            what = "a word, or an answer, whose text lacks tokens has no place in it"
            raise InputError(what, where="explain", fix="Hide tokens with by=mask, not by=delete")
        return self._chosen(self.model.run_rows(x, packing, trace), packing)

    def answer(self, states: Tensor, packing: Packing) -> ModelOutput:
        """Logits ``[B, C]`` of states ``[N, D]``."""
        return self._chosen(self.model.apply_heads(states, packing), packing)

    def _chosen(self, out: ModelOutput, packing: Packing) -> ModelOutput:
        out.logits = self.chosen(out.logits, packing.first_rows)  # type: ignore[arg-type]  # there is a head
        return out


def run_rows(model: Any, rows: Tensor, packing: Packing, trace: Trace | None = None) -> ModelOutput:
    """Run a model from packed embeddings ``[N, D]``, converted to the dtype of the encoder."""
    dtype = next(model.encoder.parameters(), rows).dtype  # an encoder may have no weights
    return model.run_rows(rows.to(dtype), packing, trace)


def attention_maps(subject: Subject) -> tuple[np.ndarray, np.ndarray]:
    """Attention weights of all layers ``[L, H, T, T]``, and the share of each output row in the
    pooled vector.
    """
    with torch.inference_mode():
        out = run_rows(subject.model, subject.rows, subject.packing(), Trace(attentions=True))
        reads = rows_read(subject.model.pooling, out, len(subject))
    assert out.trace is not None
    return np.stack([whole_map(layer).float().cpu().numpy() for layer in out.trace.attentions]), reads


def whole_map(maps: Sequence[Tensor]) -> Tensor:
    """Attention maps ``[H, T_i, T_i]`` of separately encoded texts as one block-diagonal map ``[H,
    T, T]``.
    """
    if len(maps) == 1:
        return maps[0]
    return torch.stack([torch.block_diag(*heads) for heads in zip(*maps, strict=True)])


def rows_read(pooling: Any, out: ModelOutput, length: int) -> np.ndarray:
    """The share of each row in the pooled vector, ``[T]``."""
    if isinstance(pooling, PairPooling):  # both texts have the same share
        return np.concatenate([rows_read(pooling.text_pooling, out, n) for n in out.packing.lengths]) / 2
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
    elif isinstance(pooling, ReadRows):  # one word of a sentence, or two ends of a span
        read = np.unique(pooling.rows)
        weights[:] = 0.0
        weights[read] = 1.0 / len(read)
    elif isinstance(pooling, AttentionPooling) and out.states is not None:
        weights = torch.softmax(pooling.score(out.states.float()).squeeze(1), 0).cpu().numpy()
    elif isinstance(pooling, MultiHeadPooling) and out.states is not None:
        pooling(out.states, out.packing, record := LayerRecord())
        weights = record.weights[0].mean(0)[0].cpu().numpy()  # [H, 1, T] -> [T]
    return weights


def _answered(clf: Any, logits: Tensor) -> tuple[np.ndarray, int, Any]:
    """Probabilities ``[C]`` of one input, the number of the label to explain, and the label itself."""
    finite(logits, "logits")
    if not clf.kind_.single_label:
        probabilities = clf.chances(logits[None].double().cpu().numpy())[0]
    else:
        probabilities = torch.softmax(logits.double() / clf.temperature_, 0).cpu().numpy()
    target = clf.kind_.explain_target(probabilities, clf.threshold_)
    return probabilities, target, clf.kind_.target_name(target, probabilities, clf.classes_)


# --- text -----------------------------------------------------------------------------------------


Baselines = dict[str, Callable[[], Tensor]]


def token_rows(
    clf: Any, model: Any, ids: np.ndarray, words: np.ndarray, segments: np.ndarray | None
) -> tuple[Tensor, Baselines]:
    """Embeddings ``[T, D]`` of the tokens of one sequence, and its baselines.

    The baselines replace every token except special ones, with its position embedding kept: ``mask`` by the
    mask token (or the unknown token if there is none), ``unknown`` by the unknown token, ``pad`` by padding,
    ``random`` by random tokens. ``zero`` replaces embeddings by zeros.
    """
    device = next(model.parameters()).device
    packing = Packing.uniform(1, len(ids), device)
    own = torch.from_numpy(np.asarray(ids, np.int64)).to(device)
    kinds = None if segments is None else torch.from_numpy(np.asarray(segments, np.int64)).to(device)
    special = torch.from_numpy(words < 0).to(device)

    def embed(ids: Tensor) -> Tensor:
        with torch.no_grad():
            return model.embed(ids, packing, kinds)[0].float()  # [T, D]

    rows, known = embed(own), Vocabulary.of(clf.tokenizer_)
    hiding = {"mask": known.unk if known.mask is None else known.mask, "unknown": known.unk, "pad": known.pad}
    baselines: Baselines = {
        name: lambda token=token: embed(torch.where(special, own, token))
        for name, token in hiding.items()
        if token is not None
    }
    baselines["random"] = lambda: embed(torch.where(special, own, _random_pieces(clf, len(ids)).to(device)))
    return rows, baselines | {"zero": lambda: torch.where(special[:, None], rows, 0.0)}


def _random_pieces(clf: Any, count: int) -> Tensor:
    """``count`` random token ids without special tokens, the same in each call."""
    usual = np.flatnonzero(~Vocabulary.of(clf.tokenizer_).special(clf.tokenizer_))
    return torch.from_numpy(
        np.random.default_rng(0).choice(usual, count) if len(usual) else np.zeros(count, int)
    )


def text_operators(clf: Any, *, delete: bool = True) -> tuple[str, ...]:
    """The ways of masking that differ for a tokenizer; ``delete``: whether tokens may be deleted."""
    known = Vocabulary.of(clf.tokenizer_)
    unknown = known.mask is not None and known.unk is not None  # else it is the mask
    hides = known.mask is not None or known.unk is not None
    return (*(["mask"] * hides), *(["delete"] * delete), *(["unknown"] * unknown), "random")


def logits_of(model: Any, rows: Tensor, lengths: tuple[int, ...] = ()) -> Tensor:
    """Logits ``[C]`` of one input from its embeddings ``[T, D]``; ``lengths``: see ``Subject``."""
    with torch.inference_mode():
        logits = run_rows(model, rows, Packing(lengths or (len(rows),), rows.device)).logits
    assert logits is not None
    return logits[0]


@computes_gradients
def text_subject(clf: Any, text: str, judge: nn.Module | None = None) -> Subject:
    """The ``Subject`` of a text for a fitted classifier or regressor."""
    tokens = tokens_of(clf, text)
    model = model_of(clf)
    rows, baselines = token_rows(clf, model, np.array(tokens.ids), tokens.words, tokens.segments)
    lengths = ()
    if getattr(model.config, "sides", None) and tokens.segments is not None:
        second = int(tokens.segments.sum())
        lengths = len(tokens) - second, second
    probabilities, target, label = _answered(clf, logits_of(model, rows, lengths))
    classes = clf.classes_.tolist()
    return Subject(
        model,
        rows,
        baselines,
        tokens.words,
        classes,
        target,
        probabilities,
        temperature=clf.temperature_,
        judge=judge,
        to_probabilities=None if clf.kind_.single_label else clf.chances,
        lengths=lengths,
        spread=spread_of(clf, label),
        operators=text_operators(clf),
        shown={
            "text": tokens.text,
            "tokens": tokens.names,
            "offsets": tokens.offsets,
            "word_ids": tokens.words,
            "label": label,
            "number": not clf.kind_.labels_given,
            "notes": [*several_said(clf, probabilities), *_unread(clf, text)],
            **({} if tokens.sides is None else {"sides": tokens.sides}),
        },
    )


def several_said(clf: Any, probabilities: np.ndarray) -> list[str]:
    """A note on all predicted labels (multi-label), or on abstention."""
    if hasattr(clf, "abstains") and clf.abstains(probabilities[None])[0]:
        return [f"no label is given: its probability is below {clf.abstain_below_:g}"]
    return [f"labels given: {clf.decide(probabilities[None])[0]}"] if clf.kind_.is_multilabel else []


def _unread(clf: Any, text: str) -> list[str]:
    """A note if only a part of a text is explained."""
    if not clf.encode([text]).truncated[0]:
        return []
    if clf.long_texts == "cut" or isinstance(text, TextPair):
        return [f"only the first {clf.max_length} tokens were read and explained; the rest was cut"]
    return [
        f"only the first {clf.max_length} tokens are explained; the classifier reads the whole text in "
        "windows"
    ]


# --- images -------------------------------------------------------------------------------------


def spread_of(clf: Any, label: Any) -> float | None:
    """For regressors, the scale of differences between numbers near ``label``; None for classifiers."""
    kind = clf.kind_
    if kind.labels_given:
        return None
    return float(kind.unit if kind.scale == "linear" else kind.unit * abs(float(label)))


@computes_gradients
def picture_subject(clf: Any, picture: Any, judge: nn.Module | None = None) -> Subject:
    """The ``Subject`` of an image for a fitted image classifier.

    Baselines, with position embeddings kept: ``mask`` is the mean color of the transform, ``mean`` the mean
    color of the image, ``blur`` the image reduced to a 4 x 4 grid, ``shuffle`` the patches in random order.
    ``zero`` replaces embeddings by zeros.
    """
    model = model_of(clf)
    device = next(model.parameters()).device
    pixels = np.array(clf.pixels(picture))  # [C, height, width] uint8, of its own
    values = clf.transform_.normalize(torch.from_numpy(pixels)[None].to(device))
    height, width = (int(size) for size in model.config.embedding.patch_size)
    grid = (pixels.shape[1] // height, pixels.shape[2] // width)

    def embed(values: Tensor) -> Tensor:
        with torch.no_grad():
            return model.embed(values)[0].float()  # [T, D]

    rows = embed(values)
    fixed = len(rows) - grid[0] * grid[1]  # [CLS] and the like come first
    words = np.concatenate([np.full(fixed, -1), np.arange(grid[0] * grid[1])])
    special = torch.from_numpy(words < 0).to(device)
    probabilities, target, label = _answered(clf, logits_of(model, rows))
    classes = clf.classes_.tolist()
    seen = np.moveaxis(pixels[:, : grid[0] * height, : grid[1] * width], 0, -1)  # what lies in patches
    image = np.ascontiguousarray(np.repeat(seen, 3, 2) if seen.shape[2] == 1 else seen[:, :, :3])
    return Subject(
        model,
        rows,
        {
            "mask": lambda: embed(torch.zeros_like(values)),
            "mean": lambda: embed(values.mean((2, 3), keepdim=True).expand_as(values)),
            "blur": lambda: embed(_blurred(values)),
            "shuffle": lambda: embed(_shuffled(values, height, width)),
            "zero": lambda: torch.where(special[:, None], rows, 0.0),
        },
        words,
        classes,
        target,
        probabilities,
        grid=grid,
        temperature=clf.temperature_,
        judge=judge,
        to_probabilities=None if clf.kind_.single_label else clf.chances,
        spread=spread_of(clf, label),
        operators=("mask", "mean", "blur", "shuffle"),
        shown={
            "text": "",
            "tokens": [],
            "offsets": [],
            "image": image,
            "label": label,
            "number": not clf.kind_.labels_given,
            "notes": several_said(clf, probabilities),
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
