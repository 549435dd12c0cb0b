"""Encoder-decoder Transformer for translation (Vaswani et al., 2017).

    memory = model.encode(source_ids, source_packing)          encode the source
    states = model.decode(target_ids, target_packing, memory)  teacher forcing: all target positions at once
    logits = model.step(tokens, model.start(memory))           generation, one position at a time (decode.py)

``models/seq2seq_rnn.py`` has the same interface with recurrent layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError, ShapeError
from glassformer.models.backbone import Memory, Seq2SeqOutput
from glassformer.nn.decoder import Decoder, DecoderCache
from glassformer.nn.embed import EmbeddingConfig, TextEmbedding
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.positions import SinusoidalPositions
from glassformer.nn.trace import Trace, TraceRecord
from glassformer.packing import Packing


@dataclass(frozen=True)
class TransformerConfig:
    """Config of embeddings, encoder, decoder and output layer."""

    source: EmbeddingConfig
    target: EmbeddingConfig
    encoder: EncoderConfig
    decoder: EncoderConfig
    shared_vocabulary: bool = False  # source and target share their token embeddings
    tied: bool = True  # the output layer shares the weights of the target's token embeddings

    def __post_init__(self) -> None:
        if len({self.source.d_model, self.target.d_model, self.encoder.d_model, self.decoder.d_model}) > 1:
            raise ConfigError("embeddings, encoder and decoder differ in width", where="d_model")
        if self.shared_vocabulary and self.source.vocab_size != self.target.vocab_size:
            raise ConfigError("source and target differ in vocab_size", where="shared_vocabulary")


class Seq2Seq(nn.Module):
    """Base class of encoder-decoder models.

    A subclass implements ``encode``, ``decode``, ``output_layer`` and ``depths``, and for generation
    ``start`` and ``step``.
    """

    encode: Callable[..., Memory]
    decode: Callable[..., Tensor]
    output_layer: Callable[[], tuple[Tensor, Tensor]]  # weight [V, D] and bias [V]
    depths: tuple[int, int]  # number of layers of encoder and decoder, for traces

    def logits(self, states: Tensor) -> Tensor:
        """Next-token logits ``[N, V]`` of hidden states ``[N, D]``."""
        weight, bias = self.output_layer()
        return nn.functional.linear(states, weight.to(states.dtype), bias.to(states.dtype))

    def forward(
        self,
        source_ids: Tensor,
        target_ids: Tensor,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        *,
        source_packing: Packing | None = None,
        target_packing: Packing | None = None,
        trace: Trace | None = None,
    ) -> Seq2SeqOutput:
        """The forward pass with teacher forcing.

        Takes packed ids with both packings, or padded ``[B, S]`` and ``[B, T]`` ids with masks (non-zero at
        real tokens).

        Args:
            trace: the hidden states and attention weights to record, always packed. The cross-attention of a
                recurrent model is layer 0 with one head.

        Returns:
            Hidden states and logits, packed ``[N, ...]`` or padded ``[B, T, ...]`` like the input.
        """
        shape, flat = target_ids.shape, None
        if source_packing is None or target_packing is None:
            if source_ids.ndim != 2 or target_ids.ndim != 2:
                raise ShapeError(
                    f"padded ids must be [B, S] and [B, T], got {tuple(source_ids.shape)} and {tuple(shape)}",
                    where="source_ids",
                    fix="Packed ids need source_packing and target_packing",
                )
            source_mask = torch.ones_like(source_ids) if source_mask is None else source_mask
            target_mask = torch.ones_like(target_ids) if target_mask is None else target_mask
            if source_mask.shape != source_ids.shape or target_mask.shape != target_ids.shape:
                raise ShapeError("masks must have the shape of their ids", where="source_mask, target_mask")
            source_packing, source_flat = Packing.from_mask(source_mask)
            target_packing, flat = Packing.from_mask(target_mask)
            source_ids, target_ids = source_ids.flatten()[source_flat], target_ids.flatten()[flat]
        encoder = decoder = cross = None
        if trace is not None:
            encoder_depth, decoder_depth = self.depths
            encoder = TraceRecord(trace, encoder_depth)
            decoder, cross = TraceRecord(trace, decoder_depth), TraceRecord(trace, decoder_depth)
        memory = self.encode(source_ids, source_packing, encoder)
        states = self.decode(target_ids, target_packing, memory, decoder, cross)
        logits = self.logits(states)
        if flat is not None:
            states, logits = (
                rows.new_zeros(shape.numel(), rows.shape[1]).index_copy(0, flat, rows).view(*shape, -1)
                for rows in (states, logits)
            )
        return Seq2SeqOutput(target_packing, memory, states, logits, encoder, decoder, cross)


class TransformerSeq2Seq(Seq2Seq):
    """The Transformer of Vaswani et al. (2017)."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        c = self.config = config
        self.embeddings = TextEmbedding(c.source)
        self.target_embeddings = TextEmbedding(c.target)
        if c.shared_vocabulary:
            self.target_embeddings.tokens = self.embeddings.tokens
        self.encoder = Encoder(c.encoder)
        self.decoder = Decoder(c.decoder)
        self.output = None if c.tied else nn.Linear(c.decoder.d_model, c.target.vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(c.target.vocab_size))
        self.weights_source = "random"
        self.init_weights()

    def encode(self, ids: Tensor, packing: Packing, trace: TraceRecord | None = None) -> Memory:
        """Hidden states ``[M, D]`` of source ids ``[M]``."""
        return Memory(self.encoder(self.embeddings(ids, packing), packing, trace=trace), packing)

    def decode(
        self,
        ids: Tensor,
        packing: Packing,
        memory: Memory,
        trace: TraceRecord | None = None,
        cross_trace: TraceRecord | None = None,
    ) -> Tensor:
        """Hidden states ``[N, D]`` of target ids ``[N]``; each text starts with [CLS]."""
        if packing.count != memory.packing.count:
            raise ShapeError(
                f"there are {packing.count} targets, but {memory.packing.count} sources",
                where="target_packing",
            )
        x = self.target_embeddings(ids, packing)
        return self.decoder(x, packing, memory.rows, memory.packing, trace=trace, cross_trace=cross_trace)

    def output_layer(self) -> tuple[Tensor, Tensor]:
        """Weight ``[V, D]`` and bias ``[V]`` of the output layer."""
        layer = self.target_embeddings.tokens if self.output is None else self.output
        return layer.weight, self.output_bias

    @property
    def depths(self) -> tuple[int, int]:
        """Number of layers of encoder and decoder, for traces."""
        return self.config.encoder.num_layers, self.config.decoder.num_layers

    # --- generation ----------------------------------------------------------------------------

    def start(self, memory: Memory) -> DecoderCache:
        """The initial state of a generation."""
        return self.decoder.start(memory.rows, memory.packing)

    def step(self, tokens: Tensor, state: DecoderCache) -> Tensor:
        """Next-token logits ``[R, V]`` in fp32 for the last tokens of R hypotheses; updates ``state``."""
        embedding = self.target_embeddings
        x = embedding.tokens(tokens) * embedding.config.scale  # [R, D]
        x = x + _position(embedding, state.position)
        if embedding.norm is not None:
            x = embedding.norm(x)
        x = x if embedding.compute_dtype is None else x.to(embedding.compute_dtype)
        return self.logits(self.decoder.step(embedding.dropout(x), state)).float()

    # --- weights -------------------------------------------------------------------------------

    def set_compute_dtype(self, dtype: torch.dtype) -> TransformerSeq2Seq:
        """Compute encoder and decoder in ``dtype``; the embeddings stay in fp32."""
        self.encoder.to(dtype)
        self.decoder.to(dtype)
        self.embeddings.compute_dtype = self.target_embeddings.compute_dtype = dtype
        return self

    def init_weights(self) -> None:
        """Initialize linear layers Xavier-uniform, embeddings N(0, 1/D), biases 0."""
        d = self.config.encoder.d_model
        for name, p in self.named_parameters():
            if p.ndim < 2:
                continue
            if "tokens" in name or "positions" in name:
                nn.init.normal_(p, std=d**-0.5)
            elif name.endswith("qkv.weight"):
                for projection in p.data.chunk(3):  # queries, keys, values
                    nn.init.xavier_uniform_(projection)
            else:
                nn.init.xavier_uniform_(p)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)


def _position(embedding: TextEmbedding, position: int) -> Tensor:
    """The vector of one position, ``[1, D]``."""
    positions = embedding.positions
    if isinstance(positions, SinusoidalPositions):
        return positions(Packing((position + 1,), embedding.tokens.weight.device))[position:]
    if positions is None:
        return embedding.tokens.weight.new_zeros(1, embedding.config.d_model)
    if position >= positions.num_embeddings:
        raise ShapeError(
            f"the target is at position {position}, but the model has {positions.num_embeddings} positions",
            where="positions",
            fix=f"Generate at most {positions.num_embeddings} tokens",
        )
    return positions.weight[position : position + 1]


def transformer(
    source_vocab: int,
    target_vocab: int,
    d_model: int = 256,
    num_layers: int = 3,
    num_heads: int = 4,
    d_ff: int = 1024,
    dropout: float = 0.3,
    norm: str = "pre",
    activation: str = "relu",
    shared_vocabulary: bool = False,
    tied: bool = True,
    embedding_dropout: float | None = None,
    norm_eps: float = 1e-5,
) -> TransformerConfig:
    """A config whose default sizes suit tens of thousands of sentence pairs."""

    def embedding(vocab_size: int) -> EmbeddingConfig:
        return EmbeddingConfig(
            vocab_size,
            d_model,
            "sinusoidal",
            segments=0,
            norm=False,
            scale=d_model**0.5,
            dropout=dropout if embedding_dropout is None else embedding_dropout,
        )

    layers = EncoderConfig(
        d_model,
        num_layers,
        num_heads,
        d_ff,
        norm,  # type: ignore[arg-type]  # checked by EncoderConfig
        activation,  # type: ignore[arg-type]  # checked by EncoderConfig
        norm_eps,
        dropout,
        final_norm=norm == "pre",
    )
    return TransformerConfig(
        embedding(source_vocab), embedding(target_vocab), layers, layers, shared_vocabulary, tied
    )
