"""Training objectives: losses of a batch as sums over examples.

The training loop divides the sums. Objectives do not synchronize with a GPU: counts are tensors, which the
loop reads once per step. For CUDA graphs (``train/graphs.py``), classification objectives have two parts: the
tensors of a batch (``inputs``) and the computation (``compute``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import label_text, suggest
from glassformer.data.augment import MixedPairs, one_hot
from glassformer.data.batching import PairBatch, TextBatch
from glassformer.data.image_batching import ImageBatch, MaskedImageBatch
from glassformer.data.masking import MaskedBatch
from glassformer.data.vocabulary import Vocabulary
from glassformer.errors import BadValueError, ConfigError
from glassformer.nn.cross_entropy import linear_cross_entropy
from glassformer.packing import Packing
from glassformer.runtime import copy_to_device, generator_on
from glassformer.train.config import class_weight_error

# --- losses for regression and multi-label classification -----------------------------------------


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Multi-label loss: the mean binary cross-entropy over the labels.

    Args:
        pos_weight: ``[K]`` weight of positive targets of each label; None: 1.
        smoothing: label smoothing.
    """

    pos_weight: tuple[float, ...] | None = None
    smoothing: float = 0.0

    def __call__(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Losses ``[B]`` and the number of examples with correct label sets; logits, targets ``[B, K]``."""
        targets = targets.float()
        weight = None if self.pos_weight is None else logits.new_tensor(self.pos_weight)
        soft = targets * (1 - self.smoothing) + self.smoothing / 2 if self.smoothing else targets
        losses = F.binary_cross_entropy_with_logits(logits, soft, pos_weight=weight, reduction="none").mean(1)
        return losses, ((logits.detach() > 0) == (targets > 0.5)).all(1).sum()


@dataclass(frozen=True)
class SquaredError:
    """Regression loss on standardized numbers; a prediction with an error below 0.5 counts as correct."""

    def __call__(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Losses ``[B]`` and the number of correct predictions, for logits ``[B, 1]`` and targets ``[B]``."""
        errors = logits[:, 0] - targets.float()
        return errors.square(), (errors.detach().abs() < 0.5).sum()


def mixed_targets(targets: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """The targets of mixed images: the weighted mean with the partner's targets."""
    targets = targets.float()
    share = share.to(targets.device).view(-1, *[1] * (targets.dim() - 1))
    return torch.lerp(targets[partner.to(targets.device)], targets, share)


# --- masked inputs --------------------------------------------------------------------------------


@dataclass(frozen=True)
class InputMasking:
    """Random masking of the input in training.

    Args:
        share: share of all tokens to mask (word dropout).
        maskable: whether to also mask tokens or patches in a random half of the examples. The masked share is
            drawn from 0 to 1 (faithfulness-measurable models; Madsen et al., 2024).
        mask_id: id of the replacement token.
        special_ids: ids that ``maskable`` never masks: special tokens.
        mask_first: whether ``share`` may mask the first token of a text.
    """

    share: float = 0.0
    maskable: bool = False
    mask_id: int = 0
    special_ids: tuple[int, ...] = ()
    mask_first: bool = True

    def tokens(self, ids: Tensor, packing: Packing) -> Tensor:
        """Ids ``[N]`` with masked tokens replaced."""
        draws = torch.rand(ids.shape, device=ids.device, generator=generator_on(ids.device))
        is_masked = draws < self.share
        if not self.mask_first:
            is_masked &= packing.positions > 0
        if self.maskable:
            is_maskable = draws < self._rates(packing.count, ids.device)[packing.sequence_ids]
            for special in self.special_ids:
                is_maskable &= ids != special
            is_masked |= is_maskable
        return ids.masked_fill(is_masked, self.mask_id)

    def patches(self, pixels: Tensor, size: tuple[int, int]) -> Tensor:
        """Normalized pixels ``[B, C, H, W]`` with masked patches of ``size`` set to 0, the mean color."""
        grid = [len(pixels), 1, *(-(-side // n) for side, n in zip(pixels.shape[2:], size, strict=True))]
        draws = torch.rand(grid, device=pixels.device, generator=generator_on(pixels.device))
        is_masked = draws < self._rates(len(pixels), pixels.device).view(-1, 1, 1, 1)
        for dim, n in zip((2, 3), size, strict=True):
            is_masked = is_masked.repeat_interleave(n, dim).narrow(dim, 0, pixels.shape[dim])
        return pixels.masked_fill(is_masked, 0.0)

    def _rates(self, count: int, device: torch.device) -> Tensor:
        """The masked share of each example ``[count]``, which is 0 in a random half."""
        coins, rates = torch.rand((2, count), device=device, generator=generator_on(device))
        return torch.where(coins < 0.5, rates, 0.0)


def input_masking(train: Any, tokenizer: Any, *, mask_first: bool) -> InputMasking | None:
    """The ``InputMasking`` for the settings of a fit on texts; None if nothing is masked."""
    if not (train.word_dropout or train.maskable):
        return None
    vocab = Vocabulary.of(tokenizer)
    special_ids = tuple(token for token in (vocab.pad, vocab.cls, vocab.sep) if token is not None)
    return InputMasking(train.word_dropout, train.maskable, vocab.masking_id, special_ids, mask_first)


# --- objectives -----------------------------------------------------------------------------------


Criterion = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # logits, targets -> losses [B], num_correct
IGNORED = -100  # a target that is ignored: ``ignore_index`` of torch's cross-entropy


@dataclass
class StepLoss:
    """Sums over a batch: the weighted loss (differentiable), and counts for the history."""

    loss: Tensor
    correct: Tensor  # number of correct predictions; with soft labels, the sum of the predicted labels
    count: int


def with_gradients(objective: Callable, model: nn.Module, batch: Any, per_step: float) -> StepLoss:
    """Compute the loss of a batch, divided by ``per_step``, and accumulate the gradients of the weights."""
    out = objective(model, batch)
    (out.loss / per_step).backward()
    return out


@dataclass
class Classification:
    """Cross-entropy with optional weights per example and label smoothing (Szegedy et al., 2016).

    Args:
        targets: ``[n]`` class indices of the whole training set, or the targets of ``criterion``.
        weights: ``[n]`` with mean 1 (class weights times sample weights), or None.
        masking: masking of the input; None: no masking.
        criterion: another loss than cross-entropy.
    """

    targets: np.ndarray
    weights: np.ndarray | None = None
    label_smoothing: float = 0.0
    masking: InputMasking | None = None
    criterion: Criterion | None = None

    def __call__(self, model: nn.Module, batch: TextBatch) -> StepLoss:
        return self.compute(model, self.inputs(batch), batch.packing)

    def inputs(self, batch: TextBatch) -> dict[str, Tensor]:
        """The tensors of a batch by name: ids and segments ``[N]``, targets and weights ``[B]``."""
        tensors = {"ids": batch.ids} | ({} if batch.segments is None else {"segments": batch.segments})
        return tensors | targets_and_weights(self, batch.index, batch.ids.device)

    def compute(self, model: nn.Module, tensors: Mapping[str, Tensor], packing: Packing) -> StepLoss:
        """The loss of a batch from its ``inputs``."""
        logits, targets = self.logits(model, tensors, packing).float(), tensors["targets"]  # [B, C], [B]
        if self.criterion is not None:
            losses, num_correct = self.criterion(logits, targets)
        else:
            losses = F.cross_entropy(logits, targets, reduction="none", label_smoothing=self.label_smoothing)
            num_correct = (logits.detach().argmax(1) == targets).sum()
        if "weights" in tensors:
            losses = losses * tensors["weights"].to(losses)
        return StepLoss(losses.sum(), num_correct, len(targets))

    def logits(self, model: nn.Module, tensors: Mapping[str, Tensor], packing: Packing) -> Tensor:
        """Logits ``[B, C]``, with masking if configured."""
        ids = tensors["ids"]
        if self.masking is not None:
            ids = self.masking.tokens(ids, packing)
        return model(ids, token_type_ids=tensors.get("segments"), packing=packing).logits


@dataclass
class ImageClassification(Classification):
    """``Classification`` of images, with soft labels for mixed images (mixup, cutmix).

    A mixed image has the weighted mean of the weights of both images.
    """

    def inputs(self, batch: ImageBatch) -> dict[str, Tensor]:
        """The tensors of a batch by name: pixels ``[B, C, H, W]``; all other tensors are ``[B]``."""
        device = batch.pixels.device
        out = {"pixels": batch.pixels} | targets_and_weights(self, batch.index, device)
        if batch.mixed is not None:
            out |= {
                "partner": copy_to_device(batch.mixed.partner, device),
                "share": copy_to_device(batch.mixed.share, device),
            }
        return out

    def compute(self, model: nn.Module, tensors: Mapping[str, Tensor], packing: Packing) -> StepLoss:
        """The loss of a batch from its ``inputs``."""
        pixels = tensors["pixels"]
        if self.masking is not None:
            pixels = self.masking.patches(pixels, model.config.embedding.patch_size)  # type: ignore[union-attr]  # of an image encoder
        logits = model(pixels, packed=True).logits.float()  # [B, C]
        targets, weights = tensors["targets"], tensors.get("weights")
        weights = None if weights is None else weights.to(logits)
        mixed = MixedPairs(tensors["partner"], tensors["share"]) if "partner" in tensors else None
        if mixed is not None and weights is not None:
            share = mixed.share.to(weights)
            weights = share * weights + (1 - share) * weights[mixed.partner]
        if self.criterion is not None:
            soft = targets if mixed is None else mixed_targets(targets, mixed.partner, mixed.share)
            losses, num_correct = self.criterion(logits, soft)
        else:
            classes = logits.shape[1]
            soft = one_hot(targets, classes) if mixed is None else mixed.soften(targets, classes)
            losses = F.cross_entropy(logits, soft, reduction="none", label_smoothing=self.label_smoothing)
            num_correct = soft.gather(1, logits.detach().argmax(1, keepdim=True)).sum()
        if weights is not None:
            losses = losses * weights
        return StepLoss(losses.sum(), num_correct, len(targets))


def targets_and_weights(
    objective: Classification, index: np.ndarray, device: torch.device
) -> dict[str, Tensor]:
    """The targets and, if available, the weights of the examples ``index``."""
    arrays = {"targets": objective.targets, "weights": objective.weights}
    return {
        name: copy_to_device(torch.from_numpy(a[index]), device)
        for name, a in arrays.items()
        if a is not None
    }


@dataclass
class TaggedWords:
    """Token classification: cross-entropy of the first token of each word, summed over words.

    Args:
        targets: ``[N]`` class index of each first token of a word in the training table, ``IGNORED`` for all
            other tokens.
        starts: ``[n + 1]``; the targets of example i are ``targets[starts[i]:starts[i + 1]]``.
        masking: masking of the input; None: no masking.
    """

    targets: np.ndarray
    starts: np.ndarray
    label_smoothing: float = 0.0
    masking: InputMasking | None = None

    def __call__(self, model: nn.Module, batch: TextBatch) -> StepLoss:
        all_targets = np.concatenate([self.targets[self.starts[i] : self.starts[i + 1]] for i in batch.index])
        targets = torch.from_numpy(all_targets)  # [N]
        words = (targets != IGNORED).nonzero().squeeze(1)  # [W] indices of the first tokens of words
        targets, words = (
            copy_to_device(targets[words], batch.ids.device),
            copy_to_device(words, batch.ids.device),
        )
        ids = batch.ids if self.masking is None else self.masking.tokens(batch.ids, batch.packing)
        out = model(ids, token_type_ids=batch.segments, packing=batch.packing)
        logits = out.logits[words].float()  # [W, C]
        losses = F.cross_entropy(logits, targets, reduction="none", label_smoothing=self.label_smoothing)
        return StepLoss(losses.sum(), (logits.detach().argmax(1) == targets).sum(), len(targets))


MIN_CLASS_WEIGHT, MAX_CLASS_WEIGHT = 1e-9, 1e9  # range of class weights other than 0; fp32 can represent them


def class_weights(targets: np.ndarray, classes: list, class_weight: str | dict | None) -> np.ndarray | None:
    """One weight per example with mean 1, from ``"balanced"`` or ``{label: weight}``; None: no weights."""
    if class_weight is None:
        return None
    from sklearn.utils.class_weight import compute_class_weight

    present_classes = np.unique(targets)
    if class_weight == "balanced":
        per_class = compute_class_weight("balanced", classes=present_classes, y=targets)
        table = dict(zip(present_classes.tolist(), per_class.tolist(), strict=True))
    elif not isinstance(class_weight, Mapping):
        raise class_weight_error(class_weight)
    else:
        by_text = {label_text(label): weight for label, weight in class_weight.items()}
        for label, weight in by_text.items():
            if label not in map(str, classes):
                raise BadValueError(
                    f"unknown label {label!r}",
                    where="class_weight",
                    fix=suggest(label, [*map(str, classes)]),
                )
            try:
                number = float(weight) if isinstance(weight, Real) else math.nan
            except OverflowError:  # a huge whole number
                number = math.inf
            if number != 0 and not MIN_CLASS_WEIGHT <= number <= MAX_CLASS_WEIGHT:
                raise BadValueError(
                    f"{weight!r} is not a weight",
                    where="class_weight",
                    fix=f"Use 0, or numbers from {MIN_CLASS_WEIGHT:g} to {MAX_CLASS_WEIGHT:g}",
                )
        if not any(float(by_text.get(str(label), 1.0)) for label in classes):
            raise ConfigError("all class weights are 0", where="class_weight")
        table = {i: float(by_text.get(str(classes[i]), 1.0)) for i in range(len(classes))}
    weights = np.array([table[t] for t in targets.tolist()], dtype=np.float32)
    if not weights.any():
        raise ConfigError("every example has the weight 0", where="class_weight")
    return weights / weights.mean()


@dataclass
class Translation:
    """Cross-entropy of every target token under teacher forcing, with label smoothing; a sum over tokens."""

    label_smoothing: float = 0.0

    def __call__(self, model: nn.Module, batch: PairBatch) -> StepLoss:
        memory = model.encode(batch.source, batch.source_packing)  # type: ignore[operator]  # a Seq2Seq
        states = model.decode(batch.target, batch.packing, memory)  # type: ignore[operator]  # a Seq2Seq
        weight, bias = model.output_layer()  # type: ignore[operator]  # a Seq2Seq
        losses, predicted = linear_cross_entropy(states, weight, bias, batch.labels, self.label_smoothing)
        return StepLoss(losses.sum(), (predicted == batch.labels).sum(), len(losses))


@dataclass
class MaskedWords:
    """Masked language modeling: cross-entropy of masked tokens, plus next-sentence prediction if enabled.

    The loss of a batch is ``K * (mean over its K masked tokens + mean over its sequences)``. After the
    division in the loop, it is the sum of both means (Devlin et al., 2019).
    """

    def __call__(self, model: nn.Module, batch: MaskedBatch) -> StepLoss:
        losses, predicted, next_sentence, _ = masked_token_losses(model, batch)
        total = losses.sum()
        if next_sentence is not None:
            total = total + next_sentence.mean() * len(losses)
        return StepLoss(total, (predicted == batch.labels).sum(), len(losses))


def masked_token_losses(
    model: Any, batch: MaskedBatch
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Losses and predictions of the masked tokens, ``[K]`` each.

    For next-sentence prediction, also the losses and whether predictions are correct, ``[B]`` each; else
    None.
    """
    x = model.encode(batch.ids, batch.packing, segments=batch.segments)  # [N, D]
    hidden = model.mlm.transform(x[batch.rows]).to(x.dtype)  # [K, D]
    table = model.embeddings.tokens.weight
    losses, predicted = linear_cross_entropy(hidden, table, model.mlm.bias, batch.labels)
    if batch.is_random_next is None or model.nsp is None:
        return losses, predicted, None, None
    logits = model.nsp(model.pooling(x, batch.packing)).float()  # [B, 2]
    is_correct = logits.argmax(1) == batch.is_random_next
    return losses, predicted, F.cross_entropy(logits, batch.is_random_next, reduction="none"), is_correct


@dataclass
class MaskedPatchLoss:
    """Mean squared error over the masked patches of each image, summed over images (He et al., 2022).

    ``correct`` is the explained share of their variance, summed over images.
    """

    def __call__(self, model: nn.Module, batch: MaskedImageBatch) -> StepLoss:
        losses = model.losses(batch.pixels, batch.visible)  # type: ignore[operator]  # a MaskedAutoencoder
        return StepLoss(losses.sum(), (1.0 - losses.detach()).sum(), len(losses))


# --- question answering ---------------------------------------------------------------------------


def sequence_max(logits: Tensor, packing: Packing) -> Tensor:
    """The maximum over the tokens of each sequence ``[B, 2]``, for logits ``[N, 2]``; without a gradient."""
    index = packing.sequence_ids[:, None].expand_as(logits)
    highest = logits.detach().new_full((packing.count, logits.shape[1]), -torch.inf)
    return highest.scatter_reduce(0, index, logits.detach(), "amax")


def sequence_log_softmax(logits: Tensor, packing: Packing) -> Tensor:
    """Log-softmax over the tokens of each sequence, for each column of the logits ``[N, 2]``: ``[N, 2]``."""
    sequence, highest = packing.sequence_ids, sequence_max(logits, packing)
    shifted = logits - highest[sequence]
    sums = logits.new_zeros(highest.shape).index_add(0, sequence, shifted.exp())
    return shifted - sums.log()[sequence]


@dataclass
class AnswerSpans:
    """Extractive question answering: mean cross-entropy of start and end token (Devlin et al., 2019).

    The loss is a sum over windows.

    Args:
        targets: ``[W, 2]`` first and last token of the answer in each window of the training table. Both are
            0 ([CLS]) if the window contains no answer.
    """

    targets: np.ndarray

    def __call__(self, model: nn.Module, batch: TextBatch) -> StepLoss:
        targets = copy_to_device(torch.from_numpy(self.targets[batch.index]), batch.ids.device)  # [B, 2]
        logits = model(batch.ids, token_type_ids=batch.segments, packing=batch.packing).logits.float()
        log_probs = sequence_log_softmax(logits, batch.packing)  # [N, 2]
        rows = batch.packing.first_rows[:, None] + targets
        answer = log_probs.gather(0, rows)  # [B, 2]
        best = sequence_max(log_probs, batch.packing)
        num_correct = (answer.detach() >= best).all(1).sum()
        return StepLoss(-answer.mean(1).sum(), num_correct, len(targets))
