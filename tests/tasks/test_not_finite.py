"""A model whose weights have diverged gives an error at every door, and never NaN, infinity or a label."""

import copy
import json
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.commands import call

from glassformer.errors import CheckpointError, DataError, GlassformerError, NotFiniteError
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.probe import Probe
from glassformer.train.solved_head import unit

VALUES = {"nan": np.nan, "inf": np.inf, "1e38": 1e38}  # the last multiplies every weight
PAIR = ("which animal", "the dog runs")

# Task -> what can be asked of its estimator, with the data that its fit took.
DOORS: dict[str, dict[str, Callable[[Any, tuple], Any]]] = {
    "text-classification": {
        "predict": lambda clf, data: clf.predict(data[0]),
        "predict_proba": lambda clf, data: clf.predict_proba(data[0]),
        "logits": lambda clf, data: clf.logits(data[0]),
        "score": lambda clf, data: clf.score(*data),
        "embed": lambda clf, data: clf.embed(data[0]),
        "calibrate": lambda clf, data: clf.calibrate(*data),
        "explain": lambda clf, data: clf.explain(data[0][0]),
        "explain by gradients": lambda clf, data: clf.explain(data[0][0], method="integrated_gradients"),
        "explain by occlusion": lambda clf, data: clf.explain(data[0][0], method="occlusion", trust=True),
        "probe": lambda clf, data: Probe(clf).fit(*data),
    },
    "image-classification": {
        "predict": lambda clf, data: clf.predict(data[0]),
        "predict_proba": lambda clf, data: clf.predict_proba(data[0]),
        "score": lambda clf, data: clf.score(*data),
        "embed": lambda clf, data: clf.embed(data[0]),
        "explain": lambda clf, data: clf.explain(data[0][0]),
        "probe of patches": lambda clf, data: Probe(clf, pooling="patches").embed(data[0]),
    },
    "text-regression": {
        "predict": lambda reg, data: reg.predict(data[0]),
        "score": lambda reg, data: reg.score(*data),
        "calibrate": lambda reg, data: reg.calibrate(*data),
        "predict_interval": lambda reg, data: reg.predict_interval(data[0], 0.5),
        "explain": lambda reg, data: reg.explain(data[0][0], method="occlusion"),
    },
    "image-regression": {"predict": lambda reg, data: reg.predict(data[0])},
    "similarity": {
        "encode": lambda e, data: e.encode(data[0][0]),
        "embed": lambda e, data: e.embed(data[0][0]),
        "similarity": lambda e, data: e.similarity(*data[0][0]),
        "score": lambda e, data: e.score(*data),
        "index": lambda e, data: e.index(list(data[0][0])),
        "search": lambda e, data: e.search([data[0][0][0]], list(data[0][0])),
        "doubles": lambda e, data: e.doubles(list(data[0][0])),
        "explain_similarity": lambda e, data: e.explain_similarity(*data[0][0]),
    },
    "token-tagging": {
        "predict": lambda t, data: t.predict(data[0]),
        "predict_proba": lambda t, data: t.predict_proba(data[0]),
        "spans": lambda t, data: t.spans(data[0]),
        "score": lambda t, data: t.score(*data),
        "explain": lambda t, data: t.explain(data[0][0]),
    },
    "question-answering": {
        "predict": lambda a, data: a.predict(data[0]),
        "answers": lambda a, data: a.answers(data[0]),
        "score": lambda a, data: a.score(*data),
        "explain": lambda a, data: a.explain(PAIR),
    },
    "masked-lm": {
        "fill": lambda m, data: m.fill("the [MASK] runs"),
        "judge": lambda m, data: m.judge(data[0]),
        "score": lambda m, data: m.score(data[0]),
    },
    "masked-patches": {
        "judge": lambda m, data: m.judge(data[0]),
        "score": lambda m, data: m.score(data[0]),
        "paint": lambda m, data: m.paint(data[0]),
        "embed": lambda m, data: m.embed(data[0]),
    },
    "translation": {
        "translate": lambda t, data: t.translate(list(data[0])),
        "translate greedily": lambda t, data: t.translate(list(data[0]), 1),
        "align": lambda t, data: t.align(data[0][0]),
    },
}
CELLS = [(task, door) for task, doors in DOORS.items() for door in doors]


@pytest.fixture(scope="module")
def fitted() -> Callable[[str], tuple[Any, tuple]]:
    @cache
    def of(task: str) -> tuple[Any, tuple]:
        estimator, data = TASKS[task].example_fixture()
        if task == "text-regression":
            estimator.set_params(validation_fraction=0.5)
        return estimator.fit(*data), data

    return of


def poisoned(estimator: Any, value: float) -> Any:
    other = copy.deepcopy(estimator)
    other._compute_model = None
    with torch.no_grad():
        for weights in other.model_.parameters():
            if np.isfinite(value):
                weights.mul_(value)
            elif weights.ndim > 1:
                weights.flatten()[0] = value
    return other


def test_every_task_that_computes_is_here():
    assert DOORS.keys() | {"word2vec"} == set(TASKS)  # word vectors are checked when they are read


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("task", "door"), CELLS)
def test_every_door_refuses(task, door, value, fitted):
    estimator, data = fitted(task)
    DOORS[task][door](estimator, data)  # the model itself answers
    with pytest.raises(NotFiniteError, match=r"are not finite: its weights have diverged or are damaged"):
        DOORS[task][door](poisoned(estimator, VALUES[value]), data)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_word_vectors_are_refused_when_they_are_read(value, fitted, tmp_path):
    words, _ = fitted("word2vec")
    words = copy.deepcopy(words)
    words.vectors_[3, 2] = VALUES[value]
    words.save(tmp_path / "vectors")
    with pytest.raises(CheckpointError, match=f"the vector of '{words.words_[3]}' contains NaN or infinity"):
        type(words).load(tmp_path / "vectors")


@pytest.mark.parametrize("verb", ["predict", "explain"])
@pytest.mark.parametrize("task", ["text-classification", "text-regression", "token-tagging"])
def test_the_command_says_it_in_one_line(task, verb, fitted, tmp_path):
    poisoned(fitted(task)[0], np.nan).save(tmp_path / "model")
    for options in ([], ["--json"]):
        done = call(verb, tmp_path / "model", "the dog runs", *options)
        assert done.code == 1
        assert json.loads(done.out)["error"]["code"] == "not-finite" if options else done.out == ""
        assert done.err.startswith("error: the model's")
        assert "not finite" in done.err
        assert done.err.count("\n") == 1


FORMS = [("text-classification", "onnx"), ("token-tagging", "onnx"), ("similarity", "onnx")]


@pytest.mark.parametrize(("task", "form"), [*FORMS, ("image-classification", "hf")])
def test_no_export_of_it_is_kept(task, form, fitted, tmp_path):
    if form == "onnx":
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
    estimator, data = fitted(task)
    model = poisoned(estimator, np.nan)
    samples = {"image-classification": data[0][:2], "token-tagging": [["the", "dog"]]}.get(task, ["the dog"])
    with pytest.raises(NotFiniteError):
        TASKS[task].export(model, form, tmp_path / "out", samples)
    assert not (tmp_path / "out").exists()


def test_vectors_too_long_for_their_format_have_no_cosine():
    """The square of 1e30 is no fp32 number: dividing by such a length gave 0, and so did every cosine."""
    with pytest.raises(
        DataError, match="vectors, row 2: a vector has NaN, infinity, or numbers that are too large"
    ):
        unit(np.array([[1.0, 2.0], [1e30, 1e30]], np.float32))
    assert unit(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist() == [[np.float32(0.6), np.float32(0.8)], [0, 0]]
    # the error survives a trip to another process
    error = pickle.loads(pickle.dumps(NotFiniteError("logits")))
    assert isinstance(error, GlassformerError)
    assert str(error) == str(NotFiniteError("logits"))
    assert json.loads(json.dumps(error.what)).startswith("the model's logits are not finite")
