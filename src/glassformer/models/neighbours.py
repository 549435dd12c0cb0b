"""Heads that begin by looking at the tokens beside them: a start for BERT's masked-word task.

A masked word can be guessed from its neighbors alone, and nothing but positions says where these stand. With
random weights every head looks everywhere alike, so for millions of tokens a model learns no more than how
frequent each word is. Trockman and Kolter (2023) begin a ViT's heads with maps that trained ones have; these
are such maps for text.
"""

from __future__ import annotations

import math
from itertools import chain, repeat

import torch
from torch import nn

from glassformer.models.text import TextEncoder
from glassformer.nn.positions import LearnedPositions, shift_matrix, sinusoidal

# How many tokens from its own a head looks at first, head by head, layer by layer; later heads are random.
OFFSETS = (-1, 1, -2, 2, -3, 3)
SHARPNESS = 3.0  # by how much the score of the place beside the wanted one is lower
LOUDNESS = 2.0  # the waves' amplitude over the tokens' standard deviation


@torch.no_grad()
def look_beside(model: TextEncoder) -> int:
    """Begin a new BERT so that its first heads look at the token before, the one after, and so on.

    The first P numbers of a row (P even, at most a quarter of them and no more than a head has) hold waves
    that say where a token stands. A head's keys read them as they are; its queries read them moved on by k
    places, which is a linear map (``shift_matrix``), so that a score is highest k places on:

        q_t . k_s  ~  sum_i cos(w_i (t + k - s))

    Heads of the second layer read rows that the first has mixed, and so begin where they should only about.

    The wavelengths run from 2 pi to 2 pi times the number of positions. Everything learns on as ever, and
    what is saved is a BERT like any other. A model too narrow for one wave stays as it is, and so does one
    without learned positions or without the norm after the embeddings.

    Returns:
        P, how many of the tokens' first numbers are 0 now, where the waves are; 0: the model is unchanged.
    """
    c, e = model.config, model.embeddings
    d, heads = c.encoder.d_model, c.encoder.num_heads
    width, positions = d // heads, e.positions
    waves = min(d // 4, width) // 2
    if not waves or not isinstance(positions, LearnedPositions) or e.norm is None or e.project is not None:
        return 0
    part, base = 2 * waves, float(positions.num_embeddings)
    for table in (e.tokens, e.segments):
        if table is not None:
            table.weight[:, :part] = 0
    positions.weight.zero_()
    positions.weight[:, :part] = LOUDNESS * c.init_std * sinusoidal(positions.num_embeddings, part, base)
    # The norm brings a row to variance 1: the tokens' (and the segments') and half of the amplitude squared.
    tokens = (1 + (e.segments is not None)) * (d - part) / d
    amplitude = LOUDNESS / math.sqrt(tokens + LOUDNESS**2 / 2 * part / d)
    rates = base ** (-torch.arange(waves, dtype=torch.float32) / waves)
    drop = amplitude**2 * float((1 - torch.cos(rates)).sum()) / math.sqrt(width)
    gain = math.sqrt(SHARPNESS / drop)
    offsets = chain(OFFSETS, repeat(None))
    for layer in model.encoder.layers:
        weight = layer.attention.qkv.weight
        for head in range(heads):
            offset = next(offsets)
            if offset is None:
                return part
            for first, seen in ((0, shift_matrix(offset, part, base)), (d, torch.eye(part))):
                rows = weight[first + head * width : first + (head + 1) * width]
                nn.init.normal_(rows, std=c.init_std)
                rows[:part, :part] += gain * seen
    return part
