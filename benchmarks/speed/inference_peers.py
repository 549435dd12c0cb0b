"""The contenders of inference.py: the ways to run the same saved classifier, each made in a process of its own."""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness.results import half
from benchmarks.harness.rounds import Contender, Window
from benchmarks.speed.hf_trainer import choose_attention
from glassformer.process import disable_telemetry, keep_freed_memory

MAX_LENGTH = 256
BATCH = 32

Texts = list[str]


@dataclass(frozen=True)
class Rounds:
    """The reviews of each round, the last entry the warm-up's, with labels 0 and 1 and their real tokens."""

    texts: list[Texts]
    labels: list[np.ndarray]
    tokens: list[int]


@dataclass(frozen=True)
class Answered(Window):
    """A window with what came out of it: ``[n, C]`` probabilities, or ``[n, D]`` embeddings."""

    answers: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)


def contender(
    name: str, setting: dict[str, Any], started: float, rounds: Rounds, answer: Callable[[Texts], np.ndarray]
) -> Contender:
    """``answer`` as a contender, compiled and warmed up; ``started``: when its preparation began."""
    answer(rounds.texts[-1][: 2 * BATCH])
    setting = {**setting, "prepare_seconds": round(time.perf_counter() - started, 1)}

    def run(turn: int) -> Answered:
        texts, labels = rounds.texts[turn], rounds.labels[turn]
        begin = time.perf_counter()
        answers = np.asarray(answer(texts))
        seconds = time.perf_counter() - begin
        right = answers[np.arange(len(labels)), labels] if answers.shape[1] == 2 else np.ones(1)
        loss = float(-np.log(np.maximum(right, 1e-12)).mean())
        return Answered(len(texts), rounds.tokens[turn], seconds, loss, answers)

    return Contender(name, setting, run)


def softmax(logits: np.ndarray) -> np.ndarray:
    exp = np.exp(logits - logits.max(1, keepdims=True))
    return exp / exp.sum(1, keepdims=True)


def hf_pipeline(folder: Path, rounds: Rounds, threads: int) -> Contender:
    from transformers import pipeline

    started = time.perf_counter()
    pipe = pipeline("text-classification", str(folder / "labels"), device="cpu")

    def answer(texts: Texts) -> np.ndarray:
        found = pipe(texts, batch_size=BATCH, truncation=True, max_length=MAX_LENGTH, top_k=None)
        return np.array([[row["score"] for row in sorted(rows, key=lambda r: r["label"])] for rows in found])

    setting = {"precision": "fp32", "batch_size": BATCH, "padding": "to the longest of a batch, as they come"}
    return contender("HF pipeline, fp32", setting, started, rounds, answer)


Forward = Callable[[dict[str, np.ndarray]], np.ndarray]


def sorted_batches(folder: Path, forward: Forward) -> Callable[[Texts], np.ndarray]:
    """Raw texts to probabilities through ``forward``, in batches of similar length."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "labels")

    def answer(texts: Texts) -> np.ndarray:
        rows = tokenizer(texts, truncation=True, max_length=MAX_LENGTH, return_token_type_ids=False).input_ids
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        logits = np.empty((len(rows), 2), np.float32)
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            ids = np.zeros((len(part), len(rows[part[0]])), np.int64)
            for place, i in enumerate(part):
                ids[place, : len(rows[i])] = rows[i]
            mask = (ids != 0).astype(np.int64)  # [PAD] is 0
            inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            logits[part] = forward(inputs)
        return softmax(logits)

    return answer


SORTED = {"batch_size": BATCH, "padding": "to the longest of a length-sorted batch"}


def hf_sorted(folder: Path, rounds: Rounds, threads: int) -> Contender:
    from transformers import AutoModelForSequenceClassification

    keep_freed_memory()
    started = time.perf_counter()
    dtype, precision = (torch.bfloat16, "bf16") if half() else (torch.float32, "fp32")
    model = AutoModelForSequenceClassification.from_pretrained(folder / "labels", dtype=dtype).eval()

    def forward(batch: dict[str, np.ndarray]) -> np.ndarray:
        keys = ("input_ids", "attention_mask")  # segments are 0 in any case
        read = {key: torch.from_numpy(batch[key]) for key in keys}
        with torch.inference_mode():
            return model(**read).logits.float().numpy()

    answer = sorted_batches(folder, forward)
    attention = choose_attention(model, lambda: answer(rounds.texts[-1][: 4 * BATCH]))
    setting = {"precision": f"{precision} weights", "attention": attention, **SORTED}
    return contender(f"HF, sorted, {precision}", setting, started, rounds, answer)


def export_onnx(folder: Path) -> Path:
    """The Hub's model as an ONNX graph of any batch and length, made once."""
    file = folder / "model.onnx"
    if file.exists():
        return file
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder / "labels").eval()
    model.config.return_dict = False
    known = signature(model.forward).parameters
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in known]
    # A tensor of its own for each input: of one tensor given twice the exporter makes one input. And with a mask of
    # ones it may leave the mask out.
    example = {name: torch.ones(2, 7, dtype=torch.long) for name in names}
    example["attention_mask"][1, 5:] = 0
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=MAX_LENGTH)
    shapes = {key: {0: batch, 1: length} for key in names}
    about = {"input_names": names, "output_names": ["logits"], "dynamic_shapes": shapes}
    torch.onnx.export(model, kwargs=example, f=str(file), dynamo=True, verbose=False, **about)
    return file


def onnx_session(file: Path, threads: int) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    disable_telemetry(os.environ)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    return lambda batch: session.run(["logits"], {k: v for k, v in batch.items() if k in wanted})[0]


def onnx_fp32(folder: Path, rounds: Rounds, threads: int) -> Contender:
    started = time.perf_counter()
    answer = sorted_batches(folder, onnx_session(export_onnx(folder), threads))
    return contender("ONNX Runtime, fp32", {"precision": "fp32", **SORTED}, started, rounds, answer)


def onnx_int8(folder: Path, rounds: Rounds, threads: int) -> Contender:
    disable_telemetry(os.environ)
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    started = time.perf_counter()
    graph = onnx.load(str(export_onnx(folder)))
    del graph.graph.value_info[:]  # the exporter's shapes of inner tensors, which the quantiser disputes
    file = folder / "int8.onnx"
    quantize_dynamic(graph, str(file), weight_type=QuantType.QInt8)
    answer = sorted_batches(folder, onnx_session(file, threads))
    setting = {"precision": "int8 weights, dynamic activations", **SORTED}
    return contender("ONNX Runtime, int8", setting, started, rounds, answer)


def openvino(folder: Path, rounds: Rounds, threads: int) -> Contender:
    import openvino as ov

    started = time.perf_counter()
    core, precision = ov.Core(), "bf16" if half() else "fp32"
    hints = {"INFERENCE_PRECISION_HINT": "bf16" if half() else "f32", "PERFORMANCE_HINT": "LATENCY"}
    hints |= {"INFERENCE_NUM_THREADS": threads}
    model = core.compile_model(core.read_model(str(export_onnx(folder))), "CPU", hints)
    wanted = {i.get_any_name() for i in model.inputs}

    def forward(batch: dict[str, np.ndarray]) -> np.ndarray:
        return model({k: v for k, v in batch.items() if k in wanted})[0]

    setting = {"precision": str(model.get_property("INFERENCE_PRECISION_HINT")), **SORTED}
    return contender(f"OpenVINO, {precision}", setting, started, rounds, sorted_batches(folder, forward))


def sentence_transformers(folder: Path, rounds: Rounds, threads: int, halved: bool = False) -> Contender:
    from sentence_transformers import SentenceTransformer, models

    started = time.perf_counter()
    options = {"dtype": torch.bfloat16} if halved else {}
    transformer = models.Transformer(str(folder / "vectors"), max_seq_length=MAX_LENGTH, model_kwargs=options)
    pooling = models.Pooling(transformer.get_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    at_its_best = halved or not half()
    if at_its_best:
        keep_freed_memory()

    def answer(texts: Texts) -> np.ndarray:
        found = model.encode(texts, batch_size=BATCH, convert_to_numpy=False, show_progress_bar=False)
        return torch.stack(list(found)).float().numpy()

    setting = {"precision": "fp32", **SORTED}
    if at_its_best:
        attention = choose_attention(transformer.auto_model, lambda: answer(rounds.texts[-1][: 4 * BATCH]))
        setting |= {"precision": "bf16 weights" if halved else "fp32", "attention": attention}
    name = f"sentence-transformers, {setting['precision'][:4]}"
    return contender(name, setting, started, rounds, answer)


def glassformer(folder: Path, rounds: Rounds, threads: int, kind: str = "labels") -> Contender:
    """``int8`` are the same weights past the gate: inference.py held them to labels that they had not seen."""
    import glassformer as gf

    started, precision = time.perf_counter(), "bf16 weights" if half() else "fp32"
    clf = gf.load(folder / kind)
    name = {"labels": "glassformer", "vectors": "glassformer, embed", "int8": "glassformer, int8"}[kind]
    setting = {"precision": "int8" if kind == "int8" else precision, "padding": "none"}
    return contender(name, setting, started, rounds, clf.embed if kind == "vectors" else clf.predict_proba)


MAKERS: dict[str, Callable[..., Contender]] = {
    "hf_pipeline": hf_pipeline,
    "hf_sorted": hf_sorted,
    "onnx_fp32": onnx_fp32,
    "onnx_int8": onnx_int8,
    "openvino": openvino,
    "glassformer_int8": partial(glassformer, kind="int8"),
    "glassformer": glassformer,
    "sentence_transformers": sentence_transformers,
    "sentence_transformers_bf16": partial(sentence_transformers, halved=True),
    "glassformer_embed": partial(glassformer, kind="vectors"),
}
VECTORS = tuple(MAKERS)[-3:]
LABELS = tuple(MAKERS)[:-3]


def make(key: str, folder: Path, rounds: Rounds, threads: int) -> Contender:
    """The contender of that key, made in its own process."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(threads)
    with contextlib.redirect_stdout(sys.stderr):  # converters talk
        return MAKERS[key](folder, rounds, threads)
