"""Letters of tensor axes, and literal types.

Comments such as ``# [N, H, K]`` and suffixes of names use these letters:

B  sequences in a batch        T  tokens of the longest sequence (padded layout)
N  real tokens in a batch      D  model width, d_model
H  attention heads             K  width of one head, d_model / num_heads
V  vocabulary                  C  classes
L  layers                      G  sequences of one length group (see nn/attention.py)
"""

from __future__ import annotations

from typing import Literal

Activation = Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "silu"]
NormOrder = Literal["pre", "post"]
AttentionKind = Literal["full", "local", "linear"]
FeedForwardKind = Literal["plain", "swiglu", "geglu"]
Positions = Literal["learned", "sinusoidal", "none"]
PoolingKind = Literal[
    "first",
    "mean",
    "max",
    "attention",
    "pooler",
    "tokens",
    "first-mean",
    "first-norm",
    "first-two",
    "multihead",
    "patches",
    "unit-first",
    "unit-mean",
    "unit-multihead",
]
HeadKind = Literal["classification", "mlm", "pretraining", "spans"]
