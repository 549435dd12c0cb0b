"""A folder above a model, or above several: the models below it are named."""

from __future__ import annotations

import shutil

import pytest

import glassformer as gf
from glassformer.errors import CheckpointError


def test_python_names_the_models_below(run, tmp_path):
    above = tmp_path / "above"
    shutil.copytree(run, above / "mine")
    with pytest.raises(CheckpointError) as caught:
        gf.load(above)
    assert str(caught.value) == f"{above}: holds no model itself. Give one below it: {above / 'mine'}"
    for name in ("b", "c", "d"):
        shutil.copytree(run / "model", above / name)
    with pytest.raises(CheckpointError) as caught:
        gf.load(above)
    assert str(caught.value).endswith(f"Give one below it: {above / 'b'}, {above / 'c'}, {above / 'd'}, ...")
    assert gf.load(above / "mine").predict(["a film"]).shape == (1,)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(CheckpointError, match=r"manifest\.json: is missing"):
        gf.load(tmp_path / "nothing")


@pytest.mark.parametrize("verb", ["predict", "evaluate", "calibrate", "explain", "embed", "export", "serve"])
def test_every_verb_names_them(refused, run, tmp_path, verb):
    above = tmp_path / "above"
    shutil.copytree(run, above / "mine")
    more = {
        "export": ["--to", "onnx"],
        "embed": ["a film", "--out", "v.npy"],
        "predict": ["a film"],
        "explain": ["a film"],
    }
    said = refused(verb, above, *more.get(verb, []))
    assert f"Give one below it: {above / 'mine'}" in said


def test_the_folder_of_others_below_is_named_too(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(CheckpointError) as caught:
        gf.load(tmp_path)
    assert str(caught.value).endswith(f"Give one below it: {tmp_path / 'model'}")
