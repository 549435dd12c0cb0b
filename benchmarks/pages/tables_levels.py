"""Speed by kind of processor: the files that ``common.result_file`` names, one a level."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.pages import tables_language as language
from benchmarks.pages import tables_memory
from benchmarks.pages import tables_speed as speed

# The end of a file's name, and how the level is called; what every table is without an ending comes from AMX.
LEVELS = {"": "AMX", "-avx512": "AVX512-BF16", "-avx2": "AVX2"}
TRAINED = (("train_imdb", "Fine-tuning MiniLM"), ("train_imdb-bert-base", "Fine-tuning, BERT-base's size"))
ANSWERED = ("HF pipeline", "HF, sorted", "ONNX Runtime, fp32", "ONNX Runtime, int8", "OpenVINO")


def levels() -> str:
    """How many times the peers' speed, a column a level; and the share of the rate of bare products."""
    columns = [found(ending) for ending in LEVELS]
    rows = dict.fromkeys(name for column in columns for name in column)
    lines = ["| Work and peer | " + " | ".join(LEVELS.values()) + " |", "|---|" + "---|" * len(LEVELS)]
    lines += [
        f"| {name} | " + " | ".join(c.get(name, "not measured") for c in columns) + " |" for name in rows
    ]
    return "\n".join(lines)


def found(ending: str) -> dict[str, str]:
    """The cells of one level, by row."""
    cells: dict[str, str] = {}
    for stem, said in TRAINED:
        if result := speed.read(stem + ending):
            for peer, ratio in result["glassformer_against"].items():
                cells[f"{said}: {peer}"] = speed.times(ratio)
    if result := speed.read("train_pictures-small" + ending):
        cells["Training a small ViT: transformers at its best"] = nearest(result)
    if result := speed.read("inference" + ending):
        part, off = result["labels"], not (result.get("int8_gate") or {"passed": True})["passed"]
        names = {
            peer: next((known for known in ANSWERED if peer.startswith(known)), peer)
            for peer in part["glassformer_against"]
        }
        for peer, ratio in part["glassformer_against"].items():
            cells[f"Prediction: {names[peer]}"] = speed.times(ratio)
        for peer, ratio in part.get("int8_against", dict.fromkeys(names) if off else {}).items():
            cells[f"Prediction, ours in int8: {names[peer]}"] = (
                "gate not passed" if off else speed.times(ratio)
            )
    if "vectors" in (result := speed.read("inference" + ending) or {}):
        cells["Embeddings: sentence-transformers"] = nearest(result["vectors"])
    if result := speed.read("pretrain" + ending):
        cells["Pre-training: HF Trainer, at its best"] = nearest(result)
    if result := speed.read("word2vec-speed" + ending):
        cells["Word vectors, words a second: gensim"] = speed.times(result["ratio"])
    if result := speed.read("word2vec-fit" + ending):
        for n, part in result["epochs"].items():
            epochs = "1 epoch" if n == "1" else f"{n} epochs"
            cells[f"Sentences to word vectors, {epochs}: gensim"] = speed.times(part["ratio"])
    for stem, model in (("rate", "MiniLM"), ("rate-bert-base", "BERT-base's size")):
        if result := speed.read(stem + ending):
            for work in result["works"]:
                share = work["share_of_rate"]
                kind = work["work"].split(",")[0]
                said = f"Share of the rate of torch's bare products, {model}: {kind}"
                cells[said] = f"{share['median']:.0%} ({share['min']:.0%} to {share['max']:.0%})"
    return cells


def nearest(result: dict[str, Any]) -> str:
    """The ratio to the peer that comes nearest."""
    return speed.times(min(result["glassformer_against"].values(), key=lambda ratio: ratio["median"]))


def where(ending: str) -> str:
    """On which machine a level's files were measured."""
    results: list[dict[str, Any] | None] = [speed.read(stem + ending) for stem, _ in TRAINED]
    return next((speed.measured({"threads": 2} | result) for result in results if result), "")


def training(ending: str) -> str:
    """Fine-tuning MiniLM at that level, peer by peer."""
    return speed.training("train_imdb" + ending) + "\n" + where(ending)


# Tables of a level's files: the name and the level's ending, as in `training-avx2`.
OF_LEVEL: dict[str, Callable[[str], str]] = {
    "training": training,
    "training-bert-base": speed.training_base,
    "inference": speed.inference,
    "embedding": speed.embedding,
    "pictures-small": lambda ending: speed.pictures("small", ending),
    "pretraining": speed.pretraining,
    "end-to-end": speed.end_to_end,
    "maps": speed.maps,
    "rate": speed.rate,
    "memory-training": lambda ending: tables_memory.memory("training", "tokens", ending),
    "memory-prediction": lambda ending: tables_memory.memory("prediction", "documents", ending),
    "startup": tables_memory.startup,
    "word-vectors": speed.word_vectors,
    "word-vectors-fit": language.word_vectors_fit,
}
TABLES: dict[str, Callable[[], str]] = {
    name + ending: partial(make, ending) for name, make in OF_LEVEL.items() for ending in LEVELS if ending
}
