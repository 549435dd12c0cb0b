"""Threads of one process: fits, predictions, saves and explanations at once, each as if it were alone."""

import copy
import hashlib
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.export.hf_folder import export_hf
from glassformer.tasks.catalog import TASKS
from glassformer.train.callbacks import Callback

METHODS = ("attention", "gradient_x_input", "attention_gradient", "occlusion")
TEXT = "text-classification"
GRU = {"model": "gru", "num_heads": None, "d_ff": None, "num_layers": 2, "dropout": 0.3}
CHANGES = [
    *((name, {}) for name in TASKS),
    ("word2vec", {"optimizer": "adam", "subsample": 0}),
    (TEXT, {"dropout": 0.3, "attention_dropout": 0.2}),
    *((TEXT, changes) for changes in ({"word_dropout": 0.2}, {"stochastic_depth": 0.3}, GRU)),
    ("image-classification", {"patch_dropout": 0.4, "augment": "strong"}),
]


def fitted(name: str, **changes: Any) -> tuple[Any, tuple]:
    estimator, data = TASKS[name].example_fixture()
    return estimator.set_params(**changes).fit(*data), data


@cache
def quiet(name: str) -> tuple[Any, tuple]:
    """One that was fitted before, for what leaves it as it is."""
    return fitted(name)


def bits(estimator: Any) -> str:
    model = getattr(estimator, "model_", None)
    arrays = [estimator.vectors_] if model is None else [w.numpy() for w in model.state_dict().values()]
    return hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in arrays)).hexdigest()


def asked(estimator: Any, X: Any) -> list[np.ndarray]:
    """Numbers that a prediction gives, whatever the task."""
    if hasattr(estimator, "fill_each"):
        return [np.array([p for word in estimator.fill_each("the [MASK] runs") for _, p in word])]
    if hasattr(estimator, "translate"):
        return [np.array(estimator.translate(X))]
    if hasattr(estimator, "vectors_"):
        return [estimator.vectors_]
    if hasattr(estimator, "encode") and isinstance(estimator, gf.Embedder):
        return [estimator.encode([text for pair in X for text in pair])]
    if isinstance(estimator, gf.QuestionAnswerer):
        return [np.array([own.null, *(s for s, _, _ in own.spans)]) for own in estimator.outputs(X)]
    if isinstance(estimator, gf.MaskedPatches):
        return [estimator.embed(X)]
    return list(estimator.logits(X))


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def global_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


@pytest.mark.parametrize("count", [3, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "changes"), CHANGES, ids=lambda x: x if isinstance(x, str) else "-".join(x))
def test_fits_at_once_have_the_bits_of_one_alone_and_leave_the_callers_numbers(name, changes, count):
    wanted, before = bits(fitted(name, **changes)[0]), global_states()
    with ThreadPoolExecutor(min(count, 5)) as pool:
        found = list(pool.map(lambda _: bits(fitted(name, **changes)[0]), range(count)))
    assert found == [wanted] * count
    assert global_states() == before


def test_who_draws_in_the_middle_of_a_fit_draws_from_the_callers_generators():
    class Draws(Callback):
        def step(self, training, info):
            drawn.append(torch.rand(()).item())

    wanted, drawn = bits(fitted("text-classification", dropout=0.3)[0]), []
    estimator, data = TASKS["text-classification"].example_fixture()
    torch.manual_seed(5)
    estimator.set_params(dropout=0.3).fit(*data, callbacks=[Draws()])
    assert bits(estimator) == wanted
    torch.manual_seed(5)
    assert drawn == [torch.rand(()).item() for _ in drawn]


def test_a_fit_inside_of_a_fit():
    class Fits(Callback):
        def end(self, training):
            inner.append(bits(fitted("text-regression")[0]))

    wanted, inner = bits(fitted("text-classification")[0]), []
    estimator, data = TASKS["text-classification"].example_fixture()
    assert bits(estimator.fit(*data, callbacks=[Fits()])) == wanted
    assert inner == [bits(fitted("text-regression")[0])]


def test_threads_are_those_of_the_estimator_and_the_callers_afterwards():
    seen: list[int] = []

    class Looks(Callback):
        def step(self, training, info):
            seen.append(torch.get_num_threads())

    before = torch.get_num_threads()
    estimator, data = TASKS["text-classification"].example_fixture()
    estimator.set_params(threads=before + 1).fit(*data, callbacks=[Looks()])
    assert set(seen) == {before + 1}
    estimator.predict(data[0])
    fresh: list[int] = []
    thread = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    thread.start(), thread.join()
    assert [torch.get_num_threads(), *fresh] == [before, before]


# --- predictions beside other work ------------------------------------------------------------------


def beside(estimator: Any, X: Any, act: Callable[[int], Any], times: int = 3) -> list[Any]:
    """What two threads that predict find wrong while ``act`` is called."""
    wanted, wrong, done = asked(estimator, X), [], threading.Event()

    def predict() -> None:
        while not done.is_set():
            try:
                if not same(asked(estimator, X), wanted):
                    wrong.append("other numbers")
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=predict) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(times):
            act(turn)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    return wrong


@pytest.mark.parametrize("name", TASKS)
def test_predictions_beside_a_save_are_those_of_a_quiet_run(name, tmp_path):
    estimator, data = quiet(name)
    assert beside(estimator, data[0], lambda turn: estimator.save(tmp_path / "m", overwrite=True)) == []


@pytest.mark.parametrize("name", [name for name in TASKS if hasattr(TASKS[name].estimator, "explain")])
def test_predictions_beside_an_explanation_are_those_of_a_quiet_run(name):
    estimator, data = quiet(name)
    work = lambda turn: estimator.explain(data[0][0], method=METHODS[turn])  # noqa: E731
    assert beside(estimator, data[0], work, len(METHODS)) == []


@pytest.mark.parametrize("name", [name for name in TASKS if hasattr(TASKS[name].estimator, "calibrate")])
def test_logits_beside_a_calibration_are_those_of_a_quiet_run(name):
    estimator, data = fitted(name)
    assert beside(estimator, data[0], lambda turn: estimator.calibrate(data[0], data[1])) == []


@pytest.mark.parametrize("name", ["text-classification", "text-regression"])
def test_predictions_beside_an_export_to_the_hub_are_those_of_a_quiet_run(name, tmp_path):
    estimator, data = fitted(name, model="encoder-base", pooling="first")  # a layout that the Hub has
    out = lambda turn: export_hf(estimator, tmp_path / str(turn), list(data[0]))  # noqa: E731
    assert beside(estimator, data[0], out, 2) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["text-classification", "text-regression", "image-classification"])
def test_predictions_beside_a_graph_are_those_of_a_quiet_run(name, tmp_path):
    pytest.importorskip("onnxscript")
    from glassformer.export.onnx_folder import export_onnx

    estimator, data = fitted(name)
    assert (
        beside(estimator, data[0], lambda turn: export_onnx(estimator, tmp_path / "o", list(data[0])), 1)
        == []
    )


# --- what the caller has set --------------------------------------------------------------------------


@contextmanager
def default(kind: str, value: Any):
    setter = getattr(torch, f"set_default_{kind}")
    setter(value)
    try:
        yield
    finally:
        setter({"dtype": torch.float32, "device": None}[kind])


STATES = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "float64": lambda: default("dtype", torch.float64),
    "meta": lambda: default("device", "meta"),
    "with meta": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


TWINS = ("inference_mode", "with meta")  # of no_grad and of meta: with one task
EACH_STATE = [(name, state) for name in TASKS for state in STATES if name == TEXT or state not in TWINS]
EACH_STATE += [
    pytest.param(name, state, marks=pytest.mark.slow) for name in TASKS for state in TWINS if name != TEXT
]


@pytest.mark.parametrize(("name", "state"), EACH_STATE)
def test_whatever_the_caller_has_set_the_numbers_are_the_same(name, state, tmp_path):
    estimator, data = quiet(name)
    wanted, folder = asked(estimator, data[0]), estimator.save(tmp_path / "quiet")
    with STATES[state]():
        assert bits(fitted(name)[0]) == bits(estimator)
        assert same(asked(estimator, data[0]), wanted)
        loaded, copied = gf.load(folder), copy.deepcopy(estimator)
        assert same(asked(loaded, data[0]), wanted)
        again = estimator.save(tmp_path / "again")
    for file in ("model.safetensors", "config.json"):
        if (folder / file).exists():
            assert (again / file).read_bytes() == (folder / file).read_bytes()
    if hasattr(estimator, "explain"):
        scores = estimator.explain(data[0][0], method="gradient_x_input").scores
        for one in (estimator, loaded) if "meta" in state else (estimator, loaded, copied):
            for context in (STATES[state], nullcontext):
                with context():
                    again = one.explain(data[0][0], method="gradient_x_input").scores
                    np.testing.assert_array_equal(again, scores)
