"""Parts of a network by themselves: torch's ways beside ours, in turn, forward and backward.

    .venv/bin/python -m benchmarks.speed.parts attention|dropout|linear|recurrent|rows [--rounds 7] [--threads 2]

attention   each branch of ``attend`` at several lengths; ``choose_branch`` in nn/attention.py follows them.
            *Padded* is the peer: torch's own fused attention on a padded batch with a mask.
dropout     by the bits of the numbers, by booleans as factors, and torch's own, random numbers included. The
            first two drop the same elements, and the kept ones are equal to the bit.
linear      the gradient of a layer's weight and bias in bf16; beside it the layer's other two products, which
            have the same operations.
recurrent   one bidirectional layer in fp32 over texts of unequal length: an LSTM on reviews, a GRU on sentences.
            *Padded* is torch's layer on rows filled up to the longest, without a mask: it computes something else.
rows        GELU, and the layer norm of a sum, in bf16. The error is the largest of the gradient of the norm's
            weight, beside the largest number of it in fp64.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from benchmarks.harness.command import command
from benchmarks.harness.results import RESULTS, spread
from benchmarks.harness.rounds import in_turn, times_as_long
from glassformer.errors import InputError
from glassformer.nn import PackedRNN, dropout, kernels
from glassformer.nn.attention import attend
from glassformer.nn.dropout import keep_mask
from glassformer.nn.kernels import gelu_norm
from glassformer.nn.maps import length_groups, padding_share
from glassformer.nn.recurrent import time_major
from glassformer.packing import Packing
from glassformer.process import keep_freed_memory

ROWS = 6784  # of 32 IMDb reviews
FORMATS = {"bf16": torch.bfloat16, "fp32": torch.float32}
Work = Callable[..., Any]


def beside(works: dict[str, Callable[[], Any]], ours: str, rounds: int) -> dict[str, Any]:
    """Milliseconds of each work, and how many times as long as ours the others take."""
    times = in_turn(works, rounds)
    against = {name: times_as_long(spent, times[ours]) for name, spent in times.items() if name != ours}
    return {"milliseconds": {name: spread(spent) for name, spent in times.items()}, "against": against}


# --- attention ------------------------------------------------------------------------------------


def lengths() -> dict[str, tuple[Sequence[int], int, int]]:
    """Name -> lengths of the sequences, heads, width of a head."""
    rng = random.Random(0)
    return {
        "64 pictures of 64 patches": ([64] * 64, 12, 64),
        "32 short reviews, length-sorted": ([rng.randint(100, 110) for _ in range(32)], 12, 32),
        "32 reviews of 208, length-sorted": ([rng.randint(203, 208) for _ in range(32)], 12, 32),
        "32 reviews, lengths at random": ([rng.randint(40, 256) for _ in range(32)], 12, 32),
        "8 reviews of 512": ([512] * 8, 12, 64),
        "2 documents of 1,024": ([1024] * 2, 12, 64),
    }


def padded(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
    """Packed rows through torch's attention on a padded batch; the padding itself is timed too."""
    heads = [packing.pad(x).transpose(1, 2) for x in (q, k, v)]  # [B, H, T, K]
    mask = None if packing.is_uniform else packing.mask()[:, None, None]
    out = F.scaled_dot_product_attention(*heads, attn_mask=mask)
    return out.transpose(1, 2).flatten(0, 1)[packing.padded_rows]


def attention_case(packing: Packing, heads: int, width: int, dtype: torch.dtype, rounds: int) -> dict:
    draws = torch.randn(4, packing.total, heads, width, generator=torch.Generator().manual_seed(0)).to(dtype)
    inputs, gradient = [draws[i].clone().requires_grad_() for i in range(3)], draws[3]
    branches = ("explicit", "grouped", "fused", *(["kernel"] if kernels.supports(*inputs) else []))
    ways: dict[str, Work] = {b: partial(attend, q_packing=packing, branch=b) for b in branches}

    def once(way: Work) -> float:
        started = time.perf_counter()
        torch.autograd.grad(way(*inputs), inputs, gradient)
        return round(1e3 * (time.perf_counter() - started), 2)

    times = in_turn(ways | {"padded": partial(padded, packing=packing)}, rounds, once)
    medians = {name: round(statistics.median(spent), 2) for name, spent in times.items()}
    about = {"heads": heads, "head_width": width, "tokens": packing.total}
    groups = len(length_groups(packing, packing))
    about |= {"groups": groups, "padding_in_groups": round(padding_share(packing), 4)}
    return about | {"all_ms": times, "median_ms": medians}


def attention(rounds: int, dtype: str) -> dict[str, Any]:
    cases = {}
    for name, (sequences, heads, width) in lengths().items():
        cases[name] = attention_case(Packing(tuple(sequences)), heads, width, FORMATS[dtype], rounds)
        print(f"{name:34} {cases[name]['median_ms']}", flush=True)
    return {"dtype": dtype, "cases": cases}


# --- dropout --------------------------------------------------------------------------------------

RATE = 0.1
PLACES = {"a layer's rows": (ROWS, 384), "attention weights of 237 tokens": (12, 237, 237)}


class Factors(torch.autograd.Function):
    """``x * keep * scale``, where torch makes numbers of the booleans."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        keep = keep_mask(x.shape, RATE, x.device)
        ctx.save_for_backward(keep)
        return (x * keep).mul_(1.0 / (1.0 - RATE))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return (grad * ctx.saved_tensors[0]).mul_(1.0 / (1.0 - RATE))


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "bits": lambda x: dropout(x, RATE, True),
    "factors": Factors.apply,
    "torch": lambda x: F.dropout(x, RATE, True),
}


def equal_to_the_bit(shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether bits and factors make the same numbers, where zeros of both signs are the same."""
    x, state = torch.randn(shape).to(dtype), torch.get_rng_state()
    bits = WAYS["bits"](x)
    torch.set_rng_state(state)
    return torch.equal(bits, WAYS["factors"](x))


def dropouts(rounds: int, dtype: str) -> dict[str, Any]:
    found = {}
    for place, shape in PLACES.items():
        for name, kind in FORMATS.items():
            x, upstream = torch.randn(shape).to(kind).requires_grad_(), torch.randn(shape).to(kind)

            def both(way: Work, x: Tensor = x, upstream: Tensor = upstream) -> Tensor:
                return torch.autograd.grad(way(x), x, upstream)[0]

            works = {name: partial(both, way) for name, way in WAYS.items()}
            about = {"shape": shape, "equal": equal_to_the_bit(shape, kind)}
            found[f"{place}, {name}"] = about | told(f"{place}, {name}", beside(works, "bits", rounds))
    return {"rate": RATE, "places": found}


# --- linear layers --------------------------------------------------------------------------------

LAYERS = {  # in, out
    "MiniLM, queries, keys and values": (384, 1152),
    "MiniLM, after attention": (384, 384),
    "MiniLM, feed-forward up": (384, 1536),
    "MiniLM, feed-forward down": (1536, 384),
    "BERT-base, queries, keys and values": (768, 2304),
    "BERT-base, feed-forward up": (768, 3072),
    "BERT-base, feed-forward down": (3072, 768),
}


def linear(rounds: int, dtype: str) -> dict[str, Any]:
    if not kernels.has_amx():
        raise InputError("there is no kernel here: it wants a processor with AMX")
    layers = {}
    for name, (inside, outside) in LAYERS.items():
        x, weight = torch.randn(ROWS, inside).bfloat16(), torch.randn(outside, inside).bfloat16()
        grad = torch.randn(ROWS, outside).bfloat16()
        works = {
            "forward": partial(F.linear, x, weight),
            "gradient of the input": partial(torch.matmul, grad, weight),
            "torch": lambda x=x, grad=grad: (grad.T @ x, grad.sum(0)),
            "glassformer": partial(kernels.weight_gradient, grad, x, bias=True),
        }
        layers[name] = {"in": inside, "out": outside} | told(name, beside(works, "glassformer", rounds))
    ratios = [layer["against"]["torch"]["median"] for layer in layers.values()]
    return {"rows": ROWS, "layers": layers, "median_ratio": round(statistics.median(ratios), 3)}


# --- recurrent layers -----------------------------------------------------------------------------

# name: cell, width of the input, of the state, number of texts, shortest and longest
RECURRENT = {
    "LSTM, reviews": ("lstm", 128, 128, 64, 20, 250),
    "GRU, sentences": ("gru", 256, 128, 130, 9, 22),
}


def recurrent(rounds: int, dtype: str) -> dict[str, Any]:
    layers = {}
    for name, (cell, width, hidden, number, low, high) in RECURRENT.items():
        sizes = torch.randint(low, high + 1, (number,)).tolist()
        packing, rnn = Packing(tuple(sizes)), PackedRNN(cell, width, hidden, bidirectional=True)  # type: ignore[arg-type]
        x = torch.randn(packing.total, width, requires_grad=True)
        order, steps, longest_first, rank = time_major(packing)
        rectangle = packing.pad(x.detach()).requires_grad_().transpose(0, 1)

        def packed(rnn=rnn, x=x, order=order, rest=(steps, longest_first, rank)) -> Tensor:
            return rnn.rnn(PackedSequence(x[order], *rest))[0].data

        ways = {
            "torch, packed": packed,
            "torch, padded": lambda rnn=rnn, x=rectangle: rnn.rnn(x)[0],
            "glassformer": lambda rnn=rnn, x=x, packing=packing: rnn(x, packing)[0],
        }
        works = {way: lambda run=run: run().sum().backward() for way, run in ways.items()}
        about = {"texts": number, "tokens": packing.total, "places_when_padded": number * max(sizes)}
        layers[name] = about | told(name, beside(works, "glassformer", rounds))
    return {"layers": layers}


# --- rows: GELU and layer norm --------------------------------------------------------------------

EPS = 1e-12


def summed_norm(x: Tensor, plus: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x + plus, (x.shape[1],), weight, bias, EPS)


def row_works() -> dict[str, tuple[dict[str, Work], list[Tensor]]]:
    """For each name torch's way and ours, and on what."""
    found: dict[str, tuple[dict[str, Work], list[Tensor]]] = {}
    for model, width in (("MiniLM", 384), ("BERT-base", 768)):
        drawn = [torch.randn(ROWS, 4 * width), torch.randn(ROWS, width), torch.randn(ROWS, width)]
        drawn += [torch.randn(width), torch.randn(width)]
        wide, *norm = (x.bfloat16().requires_grad_() for x in drawn)
        found[f"{model}, GELU"] = {"torch": F.gelu, "glassformer": gelu_norm.gelu}, [wide]
        ways = {"torch": summed_norm, "glassformer": partial(gelu_norm.layer_norm, eps=EPS)}
        found[f"{model}, sum and layer norm"] = ways, norm
    return found


def over_rows(rounds: int, dtype: str) -> dict[str, Any]:
    layers = {}
    for name, (ways, given) in row_works().items():
        upstream = torch.randn(given[0].shape).bfloat16()
        outs = {way: run(*given) for way, run in ways.items()}

        def backward(way: str, outs: Any = outs, given: Any = given, upstream: Tensor = upstream) -> Any:
            return torch.autograd.grad(outs[way], given, upstream, retain_graph=True)

        def forward(way: str, ways: Any = ways, given: Any = given) -> Any:
            with torch.no_grad():
                return ways[way](*given)

        parts = {"forward": forward, "backward": backward}
        works = {f"{part}, {way}": partial(run, way) for way in ways for part, run in parts.items()}
        times, whole = in_turn(works, rounds), {}
        for way in ways:
            whole[way] = [sum(both) for both in zip(*(times[f"{part}, {way}"] for part in parts))]
        found: dict[str, Any] = {"milliseconds": {key: spread(values) for key, values in times.items()}}
        layers[name] = told(name, found | {"against": {"torch": times_as_long(*whole.values())}})
        if len(given) > 1:
            exact = [x.detach().double().requires_grad_() for x in given]
            wanted = torch.autograd.grad(summed_norm(*exact), exact[2], upstream.double())[0]
            apart = {way: (backward(way)[2].double() - wanted).abs() / wanted.abs().max() for way in ways}
            layers[name]["error"] = {way: float(gap.max()) for way, gap in apart.items()}
    return {"rows": ROWS, "layers": layers}


PARTS = {"attention": attention, "dropout": dropouts, "linear": linear}
PARTS |= {"recurrent": recurrent, "rows": over_rows}


def told(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """The same, said."""
    print(f"{name:35} {found['against']}", flush=True)
    return found


@command(
    "parts of a network",
    ("part", dict(choices=PARTS)),
    out=lambda options: RESULTS / f"{options.part}.json",
    rounds=7,
    threads=torch.get_num_threads(),
    dtype=dict(choices=FORMATS, default="bf16", help="of attention"),
)
def main(options: Any) -> dict[str, Any]:
    if options.part in ("linear", "rows") and (reason := kernels.why_not()):
        raise InputError(f"there is no kernel here: {reason}")
    keep_freed_memory()  # for all ways alike, as in training
    torch.manual_seed(0)
    return {"benchmark": options.part, **PARTS[options.part](options.rounds, options.dtype)}
