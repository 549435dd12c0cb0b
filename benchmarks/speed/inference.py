"""Inference speed: glassformer against the ways in which people run the same weights, on real IMDb reviews.

    make bench-inference  (or: .venv/bin/python -m benchmarks.speed.inference --rounds 5 --reviews 512 --threads 2)

From raw text to labels, reviews of mixed length cut to 256 tokens; every contender opens the same folder,
which glassformer writes after a short training of MiniLM. Contenders, in turn on the same reviews, each in
its own process:

1. HF pipeline: fp32, batches of 32 as the reviews come, padded to the longest.
2. HF at its best by hand: bf16 weights (fp32 where the processor has no bf16), sorted by length, batches of
32.
3. ONNX Runtime, fp32 and with dynamically quantised int8 weights; sorted by length, batches of 32.
4. OpenVINO with bf16 as its precision, fp32 where there is none; sorted by length, batches of 32.
5. glassformer: ``TextClassifier.predict_proba``, and in int8 where the processor gains by it and the gate is
   passed on training reviews that the model has not seen.

For embeddings, under mean pooling: sentence-transformers as it comes and with bf16 weights, against
``embed``. Tokenizing is timed, loading and compiling are ``prepare_seconds``. That all computed the same is
checked by their answers: the share of equal labels, or the lowest cosine between embeddings.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness.command import command
from benchmarks.harness.results import half, result_file
from benchmarks.harness.rounds import Contender, in_own_process, ratios, said, take_turns, use_threads
from benchmarks.speed.inference_peers import LABELS, MAKERS, MAX_LENGTH, VECTORS, Rounds, make
from glassformer.data.sources import load_text_dataset
from glassformer.nn.kernels import int8

MODEL = "all-minilm-l6-v2"
HELD = 1000  # training reviews that decide about int8


def load_rounds(folder: Path, rounds: int, reviews: int, seed: int) -> Rounds:
    """Real reviews in random order, other ones for each round."""
    from glassformer.data.text import encode
    from glassformer.data.tokenizer_file import load_tokenizer

    split = load_text_dataset("imdb", limit=(rounds + 1) * reviews, seed=seed, splits=["test"]).splits["test"]
    assert split.labels is not None
    parts = np.array_split(np.random.default_rng(seed).permutation(len(split.texts)), rounds + 1)
    texts = [[split.texts[i] for i in part] for part in parts]
    labels = [np.array([int(split.labels[i] in (1, "pos")) for i in part]) for part in parts]
    tokenizer = load_tokenizer(folder)
    tokens = [int(encode(tokenizer, part, max_length=MAX_LENGTH).lengths.sum()) for part in texts]
    return Rounds(texts, labels, tokens)


def train_models(folder: Path, reviews: int, seed: int) -> dict[str, Any] | None:
    """Two saved classifiers: ``labels`` after a short training, ``vectors`` with MiniLM's weights and mean pooling.

    Returns:
        What the gate of int8 found on reviews that ``labels`` has not seen, past which it is saved again as ``int8``;
        None where the processor has no such products.
    """
    from glassformer.tasks.text_classification.estimator import TextClassifier

    split = load_text_dataset("imdb", limit=reviews + HELD, seed=seed, splits=["train"]).splits["train"]
    assert split.labels is not None
    order = np.random.default_rng(seed).permutation(len(split.texts))
    held, split = split.select(order[:HELD].tolist()), split.select(np.sort(order[HELD:]).tolist())
    assert split.labels is not None
    common = dict(max_length=MAX_LENGTH, epochs=1, seed=seed)
    labels = TextClassifier(MODEL, **common).fit(split.texts, split.labels)
    labels.save(folder / "labels")
    few = len(split.texts) // 2 - 2, len(split.texts) // 2 + 2
    vectors = TextClassifier(MODEL, pooling="mean", lr=0.0, **common)
    vectors.fit(split.texts[slice(*few)], [0, 1, 0, 1]).save(folder / "vectors")
    if int8.why_not() is not None:
        return None
    gate = labels.check_int8(held.texts, held.labels)
    if gate["passed"]:
        labels.precision = "int8"
        labels.save(folder / "int8")
    return gate


def agreement(ours: Contender, peer: Contender) -> float:
    """The share of equal labels over all windows, or the lowest cosine between two embeddings of a text."""
    a, b = (np.concatenate([w.answers for w in c.windows]) for c in (ours, peer))  # type: ignore[attr-defined]
    if a.shape[1] == 2:
        return round(float((a.argmax(1) == b.argmax(1)).mean()), 5)
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return round(float(cosines.min()), 5)


def compare(keys: Sequence[str], rounds: int, *args: Any) -> dict[str, Any]:
    """Time these contenders in turn; as they stand in the result file. glassformer is the last of them."""
    contenders = [in_own_process(make, key, *args) for key in keys]
    take_turns(contenders, rounds)
    *peers, ours = contenders
    others = [c for c in peers if not c.name.startswith("glassformer")]
    summaries = [c.summary() for c in contenders]
    for summary in summaries:
        for window in summary["windows"]:
            del window["answers"]
    against = {"glassformer_against": {c.name: ratios(ours, c) for c in others}}
    for c in peers:
        if c not in others:
            against["int8_against"] = {peer.name: ratios(c, peer) for peer in others}
    return {"contenders": summaries, **against, "agreement": {c.name: agreement(ours, c) for c in peers}}


@command(
    "inference of a MiniLM classifier on IMDb reviews, from raw text",
    out=lambda options: result_file("inference"),
    packages=("transformers", "onnx", "onnxscript", "onnxruntime", "openvino", "sentence-transformers"),
    rounds=(5, "timed windows of each contender"),
    reviews=(512, "reviews in a window"),
    threads=torch.get_num_threads(),
    training=(4096, "reviews to train the shared classifier on"),
    seed=0,
    only=dict(choices=MAKERS, nargs="+", help="these contenders, no result file"),
)
def main(options: Any) -> dict[str, Any] | None:
    use_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gate = train_models(folder, options.training, options.seed)
        rounds = load_rounds(folder / "labels", options.rounds, options.reviews, options.seed)
        args = (options.rounds, folder, rounds, options.threads)
        if options.only:
            compare(options.only, *args)
            return None
        int8_too = gate is not None and gate["passed"]
        without = {"glassformer_int8": not int8_too, "sentence_transformers_bf16": not half()}
        made, embedding = ([key for key in all if not without.get(key)] for all in (LABELS, VECTORS))
        labels, vectors = compare(made, *args), compare(embedding, *args)
    for part in (labels, vectors):
        for name, ratio in part["glassformer_against"].items():
            print(f"glassformer: {said(ratio)} {name}, agreement {part['agreement'][name]:.4f}")
    return {
        "reviews_per_window": options.reviews,
        "training_reviews": options.training,
        "max_length": MAX_LENGTH,
        "seed": options.seed,
        "precision": "bf16" if half() else "fp32",
        "int8_gate": gate,
        "labels": labels,
        "vectors": vectors,
    }
