"""Products in int8: alone beside torch's own, and prediction of IMDb's test reviews beside bf16 and fp32.

    taskset -c 1 .venv/bin/python -m benchmarks.speed.int8 [--levels avx512 avx2] [--reviews 2000] [--rounds 5] [--model RUN]

Levels, turns and times as in ``kernels_fp32.py``. Products: a layer of MiniLM from rows to rows. torch's ways
to int8 are ``torch._int_mm`` and ``onednn.qlinear_pointwise``, which get the same scales as ours by torch's
operators around them (``alone``: without). ``exact`` says whether their sums are the right whole numbers, for
numbers from -127 to 127.

Prediction: from texts to probabilities, tokenizing included. The model is a run's (``--model``), or MiniLM
fine-tuned by the defaults on 1,000 reviews; others (``--held``) are the validation examples of the gate. A
level that was measured stays in the file when another is added, with its own machine, date and commit.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.harness.command import command
from benchmarks.harness.limited import LIMITS, about, at_levels, begin_here
from benchmarks.harness.results import environment, kept, spread
from benchmarks.harness.rounds import in_turn, process_milliseconds
from glassformer.data.sources import load_text_dataset
from glassformer.nn import kernels
from glassformer.nn.kernels import int8
from glassformer.tasks.load import load
from glassformer.tasks.text_classification.estimator import TextClassifier

# What keeps torch to the instructions around each level's products.
SWITCHES = {
    "avx512": {},
    "avx512vnni": LIMITS["avx512f"] | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
    "avxvnni": LIMITS["avx2"] | {"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"},
    "avx2": LIMITS["avx2"],
}
SHAPES = ((384, 384), (384, 1536), (1536, 384))  # inputs, columns
ROWS = (64, 256, 1024, 2048)
TRAINED, HELD = 1000, 1000  # reviews of the training split; of the second some decide the gate
Work = Callable[[], Any]


def rows_in_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as whole numbers with a scale each, by torch's operators."""
    scale = x.abs().amax(1, keepdim=True).float().clamp_min(1e-35) / 127
    return (x / scale).round().to(torch.int8), scale


def ways(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[dict[str, Work], dict[str, bool]]:
    """Each way to ``x W^T + b``, and whether the whole numbers of torch's are the right ones."""
    packed = int8.pack(weight, bias)
    half = x.bfloat16(), weight.bfloat16(), bias.bfloat16()
    own = int8.compute_dtype()
    given = x.to(own)
    whole, scale = int8.quantize(weight)
    rows, _ = rows_in_int8(x)
    turned, shifted = whole.T.contiguous(), (rows.to(torch.int16) + 128).to(torch.uint8)
    ones, zeros = torch.ones(len(weight)), torch.zeros(len(weight), dtype=torch.int32)
    prepacked = torch.ops.onednn.qlinear_prepack(whole, list(x.shape))

    def one_dnn(numbers: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
        settings = (zeros, None, 1.0, 0, dtype, "none", [], "")
        return torch.ops.onednn.qlinear_pointwise(numbers, 1.0, 128, prepacked, scales, *settings)

    def by_int_mm() -> Tensor:
        numbers, own_scale = rows_in_int8(given)
        return torch.addcmul(bias, torch._int_mm(numbers, turned).float(), own_scale * scale).to(own)

    def by_one_dnn() -> Tensor:
        numbers, own_scale = rows_in_int8(given)
        sums = one_dnn((numbers.to(torch.int16) + 128).to(torch.uint8), scale, torch.float32)
        return torch.addcmul(bias, sums, own_scale).to(own)

    right = rows.double() @ whole.double().T
    exact = {
        "torch._int_mm": torch.equal(torch._int_mm(rows, turned).double(), right),
        "onednn.qlinear_pointwise": torch.equal(one_dnn(shifted, ones, torch.float32).double(), right),
    }
    found: dict[str, Work] = {"torch, fp32": lambda: F.linear(x, weight, bias)}
    if own == torch.bfloat16:
        found["torch, bf16"] = lambda: F.linear(*half)
    found |= {
        "torch._int_mm, alone": lambda: torch._int_mm(rows, turned),
        "onednn.qlinear_pointwise, alone": lambda: one_dnn(shifted, scale, torch.float32),
        "torch._int_mm": by_int_mm,
        "onednn.qlinear_pointwise": by_one_dnn,
        "glassformer": lambda: int8.linear(given, packed),
    }
    return found, exact


def products(rounds: int, least: float, seed: int) -> list[dict[str, Any]]:
    """Every shape: microseconds of each way, taken in turn."""
    generator, out = torch.Generator().manual_seed(seed), []
    for inputs, columns in SHAPES:
        for count in ROWS:
            x = torch.randn(count, inputs, generator=generator)
            weight = torch.randn(columns, inputs, generator=generator) * inputs**-0.5
            works, exact = ways(x, weight, torch.randn(columns, generator=generator))
            times = in_turn(works, rounds, lambda work: 1000 * process_milliseconds(work, least))
            shape = {"rows": count, "inputs": inputs, "columns": columns, "exact": exact}
            out.append(shape | {"microseconds": {name: spread(spent) for name, spent in times.items()}})
            ours = out[-1]["microseconds"]["glassformer"]["median"]
            print(f"{count} x {inputs} x {columns}: {ours:.0f} us", file=sys.stderr, flush=True)
    return out


def prediction(model: Path, reviews: int, held: int, rounds: int, seed: int) -> dict[str, Any]:
    """Seconds of the process for the same reviews in each format, in turn; labels, accuracy, and the gate."""
    clf = load(model)
    clf.threads = 1
    names = ["fp32", *(["bf16"] if kernels.has_dtype(torch.bfloat16) else []), "int8"]
    test = some_reviews("test", reviews, seed)
    others = (part[TRAINED : TRAINED + held] for part in some_reviews("train", TRAINED + HELD, seed))
    gate = clf.check_int8(*others)
    print(f"gate: {gate}", file=sys.stderr, flush=True)
    answers: dict[str, np.ndarray] = {}

    def once(name: str, texts: list[str] = test[0]) -> float:
        predictor = clf.predictor(name)  # made before the clock starts
        begin = time.process_time()
        rows = clf.evaluation_table(clf.check(texts))
        logits = clf.table_outputs(predictor, rows, "logits", torch.device("cpu"))
        spent = time.process_time() - begin
        answers[name] = clf.predicted_index(clf.to_probabilities(logits))
        print(f"{name}: {spent:.1f} s", file=sys.stderr, flush=True)
        return spent

    for name in names:  # warms up
        once(name, test[0][:64])
    seconds = in_turn(dict(zip(names, names, strict=True)), rounds, once, warm_up=False)
    begin = time.process_time()
    table = clf.evaluation_table(clf.check(test[0]))
    targets = clf.encode_targets(test[1], "test")
    pairs = {name: list(zip(seconds[name], seconds["int8"], strict=True)) for name in names[:-1]}
    return {
        "reviews": reviews,
        "tokens": int(table.table.lengths.sum()),
        "seconds_of_tokenizing": round(time.process_time() - begin, 3),
        "seconds": {name: spread(spent) for name, spent in seconds.items()},
        "int8_against": {name: spread([a / b for a, b in pair]) for name, pair in pairs.items()},
        "labels_as_in_fp32": {name: float((answers[name] == answers["fp32"]).mean()) for name in names},
        "accuracy": {name: float((answers[name] == targets).mean()) for name in names},
        "gate": gate,
    }


def some_reviews(split: str, count: int, seed: int) -> tuple[list[str], list[Any]]:
    """So many reviews of one split and their labels, in random order."""
    found = load_text_dataset("imdb", limit=count, seed=seed, splits=[split]).splits[split]
    order = np.random.default_rng(seed).permutation(len(found.texts))
    assert found.labels is not None
    return [found.texts[i] for i in order], [found.labels[i] for i in order]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """At the level that this process is kept to."""
    result = begin_here()
    result["products"] = products(options.rounds, options.least, options.seed)
    if options.reviews:
        counts = options.reviews, options.held, options.rounds
        result["prediction"] = prediction(options.model, *counts, options.seed)
    return result


@command(
    "products in int8",
    out="int8",
    levels=dict(nargs="+", choices=SWITCHES, default=["avx512", "avx2"]),
    model=(Path, "a saved classifier of IMDb; default: one is trained"),
    reviews=(2000, "0: products alone"),
    held=(1000, "reviews that the gate is measured on, at most 1,000"),
    epochs=(int, "of the training; default: the classifier's own"),
    rounds=5,
    seed=0,
    least=(0.02, "seconds that a product is repeated for"),
    here=(False, "at the level that the environment says, to stdout"),
)
def main(options: Any) -> dict[str, Any] | None:
    if options.here:
        print(json.dumps(measure(options)))
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        if options.model is None:
            options.model = Path(scratch) / "model"
            if options.reviews:
                texts, labels = some_reviews("train", TRAINED + HELD, options.seed)
                clf = TextClassifier(seed=options.seed, epochs=options.epochs)
                clf.fit(texts[:TRAINED], labels[:TRAINED]).save(options.model)
        settings = {k: getattr(options, k) for k in ("rounds", "seed", "least", "reviews", "held", "model")}
        for name, found in at_levels("benchmarks.speed.int8", options.levels, SWITCHES, settings):
            here = environment()
            levels = kept(options.out).get("levels", {}) | {name: found | here}
            result = here | about(options.rounds, options.seed) | {"trained_on": TRAINED, "levels": levels}
            options.write(result)
