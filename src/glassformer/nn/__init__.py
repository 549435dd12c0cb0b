"""Building blocks of the models, independent of data and tokenizers."""

from glassformer.nn.attention import MultiHeadAttention, attend
from glassformer.nn.cheaper import LinearAttention, LocalAttention, attend_linear, attend_local
from glassformer.nn.convolution import convolution_as_attention, convolve_by_attention
from glassformer.nn.cross_entropy import linear_cross_entropy
from glassformer.nn.decoder import Decoder, DecoderCache, DecoderLayer
from glassformer.nn.dropout import Dropout, dropout, stochastic_depth
from glassformer.nn.embed import EmbeddingConfig, TextEmbedding
from glassformer.nn.encoder import Encoder, EncoderConfig, EncoderLayer
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.heads import ClassificationHead, MaskedLMHead
from glassformer.nn.maps import attention_weights, causal_mask, padding_share
from glassformer.nn.patches import PatchConfig, PatchEmbedding, interpolate_positions, sinusoidal_2d
from glassformer.nn.pooling import (
    AttentionPooling,
    FirstPooling,
    MaxPooling,
    MeanPooling,
    Pooler,
    make_pooling,
)
from glassformer.nn.positions import LearnedPositions, SinusoidalPositions, sinusoidal
from glassformer.nn.recurrent import PackedRNN
from glassformer.nn.scores import AdditiveScore, DotScore, MultiplicativeScore, ScoredAttention
from glassformer.nn.trace import Trace, TraceRecord

__all__ = [
    "AdditiveScore",
    "AttentionPooling",
    "ClassificationHead",
    "Decoder",
    "DecoderCache",
    "DecoderLayer",
    "DotScore",
    "Dropout",
    "EmbeddingConfig",
    "Encoder",
    "EncoderConfig",
    "EncoderLayer",
    "FeedForward",
    "FirstPooling",
    "LearnedPositions",
    "LinearAttention",
    "LocalAttention",
    "MaskedLMHead",
    "MaxPooling",
    "MeanPooling",
    "MultiHeadAttention",
    "MultiplicativeScore",
    "PackedRNN",
    "PatchConfig",
    "PatchEmbedding",
    "Pooler",
    "ScoredAttention",
    "SinusoidalPositions",
    "TextEmbedding",
    "Trace",
    "TraceRecord",
    "attend",
    "attend_linear",
    "attend_local",
    "attention_weights",
    "causal_mask",
    "convolution_as_attention",
    "convolve_by_attention",
    "dropout",
    "interpolate_positions",
    "linear_cross_entropy",
    "make_pooling",
    "padding_share",
    "sinusoidal",
    "sinusoidal_2d",
    "stochastic_depth",
]
