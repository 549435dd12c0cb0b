"""Base class of text and image encoders.

The forward pass has three steps:

    ids or pixels --embed--> x [N, D] --encode_rows--> hidden states [N, D] --apply_heads--> logits [B, C]

``encode`` does the first two steps, ``run_rows`` the last two. A batch is *packed*: the tokens of all its
sequences follow each other without padding, and a ``Packing`` has their lengths. A *row* is the vector of one
token (a word piece or an image patch). Shapes: B sequences of at most T tokens, N tokens in all, D features,
C classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError, NotForThisModelError, ShapeError
from glassformer.nn.pairs import PairPooling
from glassformer.nn.pooling import AttentionPooling, MultiHeadPooling, TokenPooling
from glassformer.nn.trace import Trace, TraceRecord
from glassformer.packing import Packing

# --- outputs --------------------------------------------------------------------------------------


@dataclass
class ModelOutput:
    """The result of a forward pass."""

    packing: Packing
    states: Tensor | None = None  # last hidden states, [B, T, D] for padded and [N, D] for packed input
    pooler_output: Tensor | None = None  # [B, D]
    logits: Tensor | None = None  # [B, C]; of each token (tags, masked words, spans): [B, T, C] or [N, C]
    seq_relationship_logits: Tensor | None = None  # [B, 2], of next-sentence prediction
    trace: TraceRecord | None = None

    @property
    def last_hidden_state(self) -> Tensor:
        """The hidden states of the last layer.

        Raises:
            ConfigError: the input is packed, so only the tokens that the head reads were computed.
        """
        if self.states is None:
            raise ConfigError(
                "only the tokens that the head reads were computed",
                where="last_hidden_state",
                fix="Record all tokens with trace=Trace(hidden_states=[-1])",
            )
        return self.states

    def to_padded(
        self, shape: Sequence[int], flat: Tensor | None = None, token_logits: bool = False
    ) -> ModelOutput:
        """Convert token-wise results, in place, to the padded layout ``shape`` = ``(B, T)``; returns self.

        Args:
            flat: ``[N]`` the flat index of each token in the padded layout; None: there is no padding.
            token_logits: whether ``logits`` has one row per token.
        """

        def pad(rows: Tensor) -> Tensor:
            if flat is not None:
                rows = rows.new_zeros(math.prod(shape), *rows.shape[1:]).index_copy(0, flat, rows)
            return rows.view(*shape, *rows.shape[1:])

        first_only = self.trace is not None and self.trace.request.rows == "first"

        def pad_maps(maps: tuple[Tensor, ...]) -> Tensor:  # tuple of [H, T_i, T_i] -> [B, H, T, T]
            if flat is None:
                return torch.stack(maps)
            padded = maps[0].new_zeros(shape[0], maps[0].shape[0], 1 if first_only else shape[1], shape[1])
            for index, map_i in zip(self.packing.split(flat), maps, strict=True):  # bi-encoder: two per pair
                positions = index % shape[1]
                queries = positions[:1] * 0 if first_only else positions
                padded[index[0] // shape[1], :, queries[:, None], positions] = map_i
            return padded

        if self.states is not None:
            self.states = pad(self.states)
        if self.logits is not None and token_logits:
            self.logits = pad(self.logits)
        if self.trace is not None:
            self.trace = self.trace.mapped(pad_maps, pad)
        return self


@dataclass
class Memory:
    """Encoder output for a decoder."""

    rows: Tensor  # hidden states of the source, [M, D]
    packing: Packing
    final_state: tuple[Tensor, ...] = ()  # RNNs: initial state of the decoder, [layers, B, D] each


@dataclass
class Seq2SeqOutput:
    """Result of teacher forcing: hidden states and next-token logits at every target position."""

    packing: Packing  # of the target
    memory: Memory
    states: Tensor  # [N, D] packed, [B, T, D] padded
    logits: Tensor  # [N, V] or [B, T, V]
    encoder_trace: TraceRecord | None = None
    decoder_trace: TraceRecord | None = None
    cross_trace: TraceRecord | None = None  # cross_trace.attentions[layer][i] is [H, T_i, S_i]


def check_no_attentions(trace: Trace | None, fix: str) -> None:
    """Raise NotForThisModelError if ``trace`` requests attention weights, which the model does not have."""
    if trace is not None and trace.attentions:
        raise NotForThisModelError("this model has no attention weights", where="trace", fix=fix)


# --- the forward pass -----------------------------------------------------------------------------


BACKBONE_PREFIXES = ("embeddings.", "encoder.")  # prefixes of tensor names, without pooling and heads


class Backbone(nn.Module):
    """Base class of models with ``embeddings``, ``encoder``, pooling and heads, which a subclass builds."""

    has_attention = True
    is_linear = False  # whether only the head has weights
    kind = "encoder"  # selects default training settings (train/config.py)
    reads: ClassVar[str]  # "texts" or "images"
    config: Any
    embeddings: Any
    encoder: Any
    pooling: Any  # None: no pooled vector
    head: Any  # classification
    mlm: Any  # masked language modeling
    nsp: Any  # next-sentence prediction
    spans: Any  # start and end of an answer

    def __init__(self) -> None:
        super().__init__()
        self.pooling = self.head = self.mlm = self.nsp = self.spans = None
        self.weights_source = "random"

    @property
    def width(self) -> int:
        """D, the number of features of a hidden state."""
        return self.config.encoder.d_model

    # --- the forward pass ------------------------------------------------------------------------

    def embed(
        self, inputs: Any, packing: Packing | None = None, segments: Tensor | None = None
    ) -> tuple[Tensor, Packing]:
        """Embeddings ``[N, D]`` and their packing, from packed ids ``[N]`` or pixel values.

        ``segments`` ``[N]`` are the token types; None: all 0.
        """
        if packing is None:  # images: the embedding determines the number of tokens
            return self.embeddings(inputs)
        return self.embeddings(inputs, packing, segments), packing

    def encode_rows(
        self, x: Tensor, packing: Packing, *, rows: Tensor | None = None, trace: TraceRecord | None = None
    ) -> Tensor:
        """Hidden states ``[N, D]`` of embeddings ``x`` ``[N, D]``.

        ``rows`` ``[B]`` are token indices: only the hidden states ``[B, D]`` of these are returned.
        """
        return self.encoder(x, packing, rows=rows, trace=trace)

    def encode(
        self,
        inputs: Any,
        packing: Packing | None = None,
        *,
        segments: Tensor | None = None,
        rows: Tensor | None = None,
        trace: TraceRecord | None = None,
    ) -> Tensor:
        """Hidden states ``[N, D]`` of packed ids ``[N]`` or pixel values.

        Args:
            rows: ``[B]`` one token index per sequence (``head_rows``). The last layer computes only these
                tokens, and the result is ``[B, D]``.
            trace: the record that collects hidden states and attention weights.
        """
        x, packing = self.embed(inputs, packing, segments)
        return self.encode_rows(x, packing, rows=rows, trace=trace)

    def head_rows(self, packing: Packing) -> Tensor | None:
        """Indices ``[B]`` of the tokens whose hidden states the head reads; None: all tokens."""
        return packing.first_rows if self.reads_first_rows_only else None

    @property
    def reads_first_rows_only(self) -> bool:
        return self.head is not None and bool(getattr(self.pooling, "reads_first_row_only", False))

    def apply_heads(self, states: Tensor, packing: Packing) -> ModelOutput:
        """Apply pooling and heads to hidden states ``[N, D]``, or to those of ``head_rows`` ``[B, D]``."""
        out = ModelOutput(packing)
        if self.pooling is not None:
            out.pooler_output = self.pooling(states, packing)  # [B, D]
        if self.head is not None:
            out.logits = self.head(out.pooler_output)  # [B, C]
        if self.mlm is not None:
            out.logits = self.mlm_logits(states)  # [N, V]
        if self.spans is not None:
            out.logits = self.spans(states)  # [N, 2]
        if self.nsp is not None:
            out.seq_relationship_logits = self.nsp(out.pooler_output)  # [B, 2]
        return out

    def run_rows(
        self, x: Tensor, packing: Packing, trace: Trace | None = None, *, every_row: bool = False
    ) -> ModelOutput:
        """Encode embeddings ``x`` ``[N, D]`` and apply the heads.

        Args:
            every_row: compute all hidden states in the last layer, not only those that the head reads.
        """
        record = TraceRecord(trace, self.encoder.config.num_layers) if trace is not None else None
        all_rows = every_row or (record is not None and record.needs_all_rows)
        rows = None if all_rows else self.head_rows(packing)
        states = self.encode_rows(x, packing, rows=rows, trace=record)
        out = self.apply_heads(states, packing)
        out.states, out.trace = (states if rows is None else None), record
        return out

    def padded_logits(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Logits ``[B, C]`` of padded embeddings ``[B, T, D]``, for exported graphs.

        ``mask`` ``[B, T]`` is True at real tokens; None: everywhere.
        """
        return self.head(self.pooling.padded(self.encoder.padded(x, mask), mask))

    def mlm_logits(self, states: Tensor) -> Tensor:
        """Masked-language-modeling logits ``[M, V]`` of hidden states ``[M, D]``."""
        return self.mlm(states, self.embeddings.tokens.weight)

    # --- features of a frozen encoder --------------------------------------------------------------

    @property
    def has_features(self) -> bool:
        """Whether a frozen encoder can compute the head's input once: one vector per sequence.

        False for attention poolings, which have weights to train, and for token classification.
        """
        excluded = AttentionPooling | MultiHeadPooling | TokenPooling
        return self.pooling is not None and not isinstance(self.pooling, excluded)

    def features(self, inputs: Any, packing: Packing | None = None, segments: Tensor | None = None) -> Tensor:
        """The pooled vector of each sequence, ``[B, D]``, the input of ``classify``.

        Raises:
            ConfigError: ``has_features`` is False.
        """
        if not self.has_features:
            what = "this pooling reads the hidden states of all tokens"
            raise ConfigError(what, where="pooling", fix="Use another pooling")
        x, packing = self.embed(inputs, packing, segments)
        rows = self.head_rows(packing)
        states = self.encode_rows(x, packing, rows=rows)
        needs_pooling = rows is None or isinstance(self.pooling, PairPooling)
        return self.pooling(states, packing) if needs_pooling else states

    def classify(self, features: Tensor) -> Tensor:
        """Logits ``[B, C]`` of ``features`` ``[B, D]``."""
        if self.pooling is None or self.head is None:
            raise ConfigError("the model has no classification head", where="classify")
        return self.apply_heads(features, Packing.uniform(len(features), 1, features.device)).logits  # type: ignore[return-value]  # there is a head

    def lower_rows(
        self, inputs: Any, layers: int, packing: Packing | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """The output ``[N, D]`` of the lowest ``layers`` layers, the input of ``apply_above``."""
        x, packing = self.embed(inputs, packing, segments)
        return self.encoder(x, packing, end=layers)

    def apply_above(self, x: Tensor, packing: Packing, layers: int) -> ModelOutput:
        """Run the remaining layers and the heads on ``lower_rows`` ``[N, D]``."""
        return self.apply_heads(self.encoder(x, packing, rows=self.head_rows(packing), begin=layers), packing)

    # --- weights ---------------------------------------------------------------------------------

    def init_weights(self) -> None:
        """Initialize weights as Devlin et al. (2019), and convolutions as He et al. (2015); biases are 0.

        With ``zero_init``, the output layers of all residual branches are 0.
        """
        self.init_module(self)
        self.embeddings.init_weights()
        if self.config.encoder.zero_init:
            for layer in self.encoder.layers:
                nn.init.zeros_(layer.attention.out.weight)
                nn.init.zeros_(layer.feed_forward.down.weight)

    def init_module(self, part: nn.Module) -> None:
        """Initialize the embeddings, linear layers and convolutions of a part of the model."""
        c = self.config
        for module in part.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=c.init_std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=c.embedding_std or c.init_std)
            elif isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def set_compute_dtype(self, dtype: torch.dtype) -> Self:
        """Compute the encoder in ``dtype``; embeddings, pooling and head stay in fp32."""
        self.encoder.to(dtype)
        self.embeddings.set_compute_dtype(dtype)
        return self

    def with_head(self, **changes: Any) -> Self:
        """A copy with another pooling or head (fields of the config); new parts are initialized."""
        other = type(self)(replace(self.config, **changes))  # type: ignore[call-arg]  # a subclass takes its config
        state = self.state_dict()
        names = other.transferable_names(self.config.pooling, state)
        other.load_state_dict({key: state[key] for key in names}, strict=False)
        other.weights_source = self.weights_source
        if hasattr(self, "sentences"):
            other.sentences = self.sentences
        return other

    def convert_state(self, config: Any, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Convert the tensors ``state`` of a model with ``config`` to the shapes of this model."""
        return dict(state)

    def transferable_names(self, pooling: str | None, names: Iterable[str]) -> list[str]:
        """Select the tensor ``names`` of a model with ``pooling`` that this model can load, without heads."""
        parts = (*BACKBONE_PREFIXES, "mlm.", "spans.")
        if pooling == self.config.pooling:
            parts = (*parts, "pooling.")
        own_names = self.state_dict().keys()
        return [name for name in names if name in own_names and name.startswith(parts)]


class TextForward(nn.Module):
    """``forward`` of text models for padded and packed input; a subclass implements ``read``."""

    is_linear = False
    mlm: Any  # masked-language-modeling head, or None

    def read(
        self,
        ids: Tensor,
        packing: Packing,
        segments: Tensor | None,
        trace: Trace | None,
        every_row: bool = False,
    ) -> ModelOutput:
        """The forward pass for packed ids ``[N]``."""
        raise NotImplementedError

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        packing: Packing | None = None,
        trace: Trace | None = None,
    ) -> ModelOutput:
        """The forward pass for padded ``[B, T]`` ids with a mask, or packed ``[N]`` ids with a packing.

        Positions count real tokens only: left and right padding give the same result.

        Args:
            attention_mask: ``[B, T]``, non-zero at real tokens; None: everywhere.
            token_type_ids: segments in the layout of ``input_ids``; None: all 0.
            trace: attention weights and hidden states to record.

        Raises:
            ShapeError: the shapes of ids, mask, segments and packing are incompatible.
        """
        if packing is not None:
            return self.read(input_ids, packing, token_type_ids, trace)
        if input_ids.ndim != 2:
            raise ShapeError(
                f"padded input_ids must be [B, T], got {tuple(input_ids.shape)}", where="input_ids"
            )
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        for name, x in (("attention_mask", attention_mask), ("token_type_ids", token_type_ids)):
            if x is not None and x.shape != input_ids.shape:
                what = f"its shape {tuple(x.shape)} differs from that of input_ids, {tuple(input_ids.shape)}"
                raise ShapeError(what, where=name)
        packing, flat = Packing.from_mask(attention_mask)
        segments = None if token_type_ids is None else token_type_ids.flatten()[flat]
        out = self.read(input_ids.flatten()[flat], packing, segments, trace, every_row=True)
        token_logits = getattr(self.config, "pooling", None) == "tokens"
        token_logits |= self.mlm is not None or getattr(self, "spans", None) is not None
        return out.to_padded(input_ids.shape, flat, token_logits=token_logits)
