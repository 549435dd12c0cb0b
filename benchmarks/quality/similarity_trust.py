"""Does the strongest pair of tokens matter? It is taken out of both texts, and so are random pairs.

    GLASSFORMER_DATA=... .venv/bin/python -m benchmarks.quality.similarity_trust runs/stsb-minilm-seed0/model [--pairs 300]

Of the judged pairs of the STS Benchmark whose cosine is at least 0.3, each text of 5 tokens or more: the
token pair that adds most to the cosine (no special token) is removed from both texts, and the cosine is
computed anew; then ``--random`` other pairs drawn from the same table. The figure is how much further the
cosine falls without the strongest pair than without random ones, with its 95 % interval of the bootstrap over
pairs of texts. Beside it the same with tokens replaced by the mask: two masks in the same place make texts
more alike, so that it says less.
"""

from typing import Any

import numpy as np
import torch

import glassformer as gf
from benchmarks.harness.command import command
from benchmarks.harness.results import RESULTS
from benchmarks.harness.seeds import resampled
from glassformer.data.pairs import load_scored_pairs
from glassformer.data.text import TokenTable, row_starts
from glassformer.data.vocabulary import Vocabulary
from glassformer.explain.similarity import SimilarityExplanation
from glassformer.tasks.similarity.pairs import encode_table

LEAST_COSINE, LEAST_TOKENS, RESAMPLES = 0.3, 5, 10_000
SUMS = 1e-4  # how far the contributions may be from the cosine


def ordinary(embedder: gf.Embedder, found: SimilarityExplanation) -> list[np.ndarray]:
    """The places of tokens that are no special ones, on both sides."""
    special = {t.content for t in embedder.tokenizer_.get_added_tokens_decoder().values() if t.special}
    sides = (found.tokens_a, found.tokens_b)
    return [np.array([i for i, token in enumerate(side) if token not in special]) for side in sides]


def table_of(rows: list[np.ndarray]) -> TokenTable:
    """Rows of ids as a table."""
    starts = row_starts(np.array([len(row) for row in rows]))
    return TokenTable(np.concatenate(rows).astype(np.int32), starts, None, np.zeros(len(rows), bool))


def removed(ids: list[np.ndarray], places: list[tuple[int, int]], mask: int) -> TokenTable:
    """For each pair of places both texts without these tokens: first all first texts, then all second ones."""
    return table_of([np.delete(ids[side], pair[side]) for side in (0, 1) for pair in places])


def masked(ids: list[np.ndarray], places: list[tuple[int, int]], mask: int) -> TokenTable:
    """The same with the mask in their place."""
    sides = [(ids[side], pair[side]) for side in (0, 1) for pair in places]
    return table_of([np.where(np.arange(len(row)) == place, mask, row) for row, place in sides])


WAYS = {"removed": removed, "masked": masked}


def beside_random(strongest: list[float], random: list[float]) -> dict[str, Any]:
    """How far the cosine falls, and how much further than without random pairs."""
    apart = np.array(strongest) - np.array(random)
    return {
        "fall_of_cosine": {"strongest": float(np.mean(strongest)), "random": float(np.mean(random))},
        "strongest_less_random": resampled(apart, RESAMPLES),
        "share_where_strongest_falls_more": float((apart > 0).mean()),
    }


@command(
    "the strongest pair of tokens",
    ("model", dict(nargs="?", help="a saved Embedder; without it the untouched checkpoint")),
    out=lambda options: RESULTS / f"similarity-trust{'' if options.model else '-untouched'}.json",
    pairs=300,
    random=10,
    seed=0,
)
def main(args: Any) -> dict[str, Any]:
    torch.set_num_threads(1)
    embedder = gf.load(args.model) if args.model else gf.Embedder()
    embedder.set_params(threads=1, precision="fp32")
    network = embedder.predictor()
    split = load_scored_pairs("stsb").splits["test"]
    rng = np.random.default_rng(args.seed)
    mask = Vocabulary.of(embedder.tokenizer_).hiding
    falls: dict[str, tuple[list[float], list[float]]] = {way: ([], []) for way in WAYS}
    sums: list[float] = []
    for row in rng.permutation(len(split)):
        if len(sums) == args.pairs:
            break
        found = embedder.explain_similarity(split.first[row], split.second[row])
        places = ordinary(embedder, found)
        if found.score < LEAST_COSINE or min(map(len, places)) < LEAST_TOKENS:
            continue
        sums.append(abs(float(found.table.sum()) - found.score))
        inner = found.table[np.ix_(*places)]
        best = int(inner.argmax())
        drawn = rng.choice(np.delete(np.arange(inner.size), best), args.random, replace=False)
        cells = [np.unravel_index(cell, inner.shape) for cell in (best, *drawn.tolist())]
        pairs = [(int(places[0][i]), int(places[1][j])) for i, j in cells]
        table = embedder.table([split.first[row], split.second[row]])
        for way, change in WAYS.items():
            changed = change([table[0], table[1]], pairs, mask)
            first, second = np.split(encode_table(network, changed, torch.device("cpu")), 2)
            fall = found.score - (first * second).sum(1)
            falls[way][0].append(float(fall[0]))
            falls[way][1].append(float(fall[1:].mean()))
    assert max(sums) < SUMS, "the contributions do not add up to the cosine"
    found = {way: beside_random(*fall) for way, fall in falls.items()}
    print(*found.values(), sep="\n")
    told = {"model": embedder.weights_source_, "fitted": bool(args.model), "pairs": len(sums)}
    return told | {"random_pairs_each": args.random, "largest_gap_of_sums": max(sums), **found}
