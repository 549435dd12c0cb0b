"""Answerers for other programs: transformers' class, and ONNX folders that run without us."""

import json
from typing import Any

import pytest

import glassformer as gf
from glassformer.cli.export import export
from glassformer.errors import ConfigError, GlassformerError
from glassformer.export import hf_folder

from .conftest import alone

X = [("where is Ann ?", "Ann is in Rome now"), ("where is Bo ?", "Bo is in New York now")] * 4
X += [("where is Cy ?", "Cy has a dog")] * 4
Y = ["Rome", "New York"] * 4 + [None] * 4
LONG = "a dog has a dog " * 9 + "Bo is in New York now"
SMALL: dict[str, Any] = {"d_model": 14, "num_heads": 2, "d_ff": 11, "num_layers": 1, "min_count": 1}


@pytest.fixture(scope="module")
def model() -> gf.QuestionAnswerer:
    settings = {**SMALL, "epochs": 20, "lr": 0.02, "batch_size": 3, "max_length": 17, "threads": 1}
    return gf.QuestionAnswerer("encoder-base", precision="fp32", **settings).fit(X, Y)


def test_onnx_runs_without_us_and_reads_long_texts(model, tmp_path, exporting):
    run = model.save(tmp_path / "facts")
    folder, found = export(run, "onnx", check=11)
    assert found["largest_difference"] <= 1e-4
    decomposed = "Ann is in Rome\u0301 now"  # an accent of its own, which the tokenizer drops
    asked = [X[0], X[1], X[-1], ("where is Bo ?", LONG), ("where is Ann ?", decomposed)]
    words = [word for pair in asked for word in pair]
    told = [line.split("\t") for line in alone(folder, *words).splitlines()]
    wanted = [own[0] for own in model.answers(asked)]
    assert wanted[-1].text == "Rome\u0301"
    assert [(text, int(start)) for text, start, _ in told] == [(own.text, own.start) for own in wanted]
    assert json.loads((folder / "onnx.json").read_text())["threshold"] == model.threshold_


def test_a_folder_that_answers_otherwise_is_not_kept(model, tmp_path, monkeypatch):
    run = model.save(tmp_path / "facts")
    monkeypatch.setattr(hf_folder, "TOLERANCE", -1.0)
    with pytest.raises(GlassformerError, match="Nothing was written"):
        export(run, "hf", check=3)
    assert not (run / "hf").exists()
    with pytest.raises(ConfigError, match="no int8 export"):
        export(run, "onnx", int8=True, check=3)
