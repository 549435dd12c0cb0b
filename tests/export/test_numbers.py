"""A regressor as an ONNX folder: the graph and its script give the numbers and intervals of the model."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.commands import values

import glassformer as gf
from glassformer.errors import ConfigError, GlassformerError
from glassformer.evaluate.predictions import (
    NUMBER_HEADER,
    number_cells,
    read_baselines,
    read_numbers,
    write_baselines,
    write_table,
)
from glassformer.export.hf_folder import export_hf
from glassformer.export.onnx_folder import export_onnx
from glassformer.targets.regression import Numbers

from .conftest import alone

TEXTS = [f"a {word} film {i % 5}" for i, word in enumerate(["good", "bad", "fine"] * 11)]


SETTINGS = values(
    "max_length=16 d_model=14 num_layers=1 num_heads=2 epochs=1 min_count=1 seed=1 precision=fp32 threads=1"
)


def test_onnx_gives_the_same_numbers(tmp_path, exporting):
    numbers = [2000.0 + len(text) for text in TEXTS]
    est = gf.TextRegressor("encoder-mini", **SETTINGS)
    est.fit(TEXTS, numbers, validation=(TEXTS[:11], numbers[:11]))
    checked = export_onnx(est, tmp_path / "onnx", TEXTS[:5])
    assert checked["labels_changed"] == 0
    about = json.loads((tmp_path / "onnx" / "onnx.json").read_text())
    assert about["number"] is True
    assert about["coverage"] == 0.9
    np.testing.assert_allclose(*said_and_wanted(est, tmp_path / "onnx"), rtol=1e-5)


def said_and_wanted(est, folder):
    """Numbers and intervals of the folder's script, and of the estimator."""
    said = [line.split("\t") for line in alone(folder, *TEXTS[:3]).splitlines()]
    return np.array(said, float), np.column_stack([est.predict(TEXTS[:3]), est.predict_interval(TEXTS[:3])])


@pytest.fixture(scope="module")
def regressor():
    est = gf.TextRegressor("encoder-base", pooling="pooler", **SETTINGS)
    numbers = [float(len(text)) + i % 3 for i, text in enumerate(TEXTS)]
    return est.fit(TEXTS, numbers, validation=(TEXTS[:11], numbers[:11]))


def placed(est, mean: float, unit: float):
    """The same network, as if it had learned numbers elsewhere."""
    est.errors_ = est.errors_ / est.kind_.unit * unit
    est.kind_ = replace(est.kind_, mean=mean, unit=unit)
    return est


PLACES = [(0.0, 1.0), (10_000_000.0, 1.0), (1_700_000_000.0, 2.0**-6), (0.0, 2.0**-40), (1e-3, 2.0**-40)]


@pytest.mark.parametrize(("mean", "unit"), PLACES)
def test_files_and_lines_keep_numbers_far_from_0_and_tiny_ones_apart(regressor, mean, unit, tmp_path, capsys):
    from glassformer.cli.predictions import Numbers, Prediction, Writer
    from glassformer.inputs.rows import Layout, Row

    est = placed(regressor, mean, unit)
    found = est.predict(TEXTS)
    cells = map(number_cells, est.predict_interval(TEXTS))
    write_table(tmp_path / "p.csv", NUMBER_HEADER, TEXTS, found.tolist(), cells, labels=found.tolist())
    read = list(read_numbers(tmp_path / "p.csv"))
    assert [row.predicted for row in read] == [row.label for row in read] == found.tolist()
    write_baselines(tmp_path / "b.csv", {"mean": found.tolist()})
    assert [float(cell) for cell in read_baselines(tmp_path / "b.csv")["mean"]] == found.tolist()
    out = tmp_path / "out.csv"
    kind = Numbers(est, Layout((), False, False))
    writer = Writer(kind, out)
    with writer.open():
        writer.add([Row(text) for text in TEXTS], lambda done: None)
    assert [row.predicted for row in read_numbers(out)] == found.tolist()
    Writer(kind).add([Row(text) for text in TEXTS], lambda done: None)
    shown = [float(line.split("\t")[0]) for line in capsys.readouterr().out.splitlines()]
    assert np.abs(np.array(shown) - found).max() <= 1e-4 * unit
    told = kind.predict(TEXTS, lambda done: None)
    appended_cells = [float(kind.appended_cells(Prediction(Row(""), one))[0]) for one in told]
    assert appended_cells == found.tolist()


def test_onnx_rescales_in_double_precision_and_its_check_sees_the_numbers(
    regressor, tmp_path, monkeypatch, exporting
):
    est = placed(regressor, 10_000_000.0, 1.0)
    checked = export_onnx(est, tmp_path / "onnx", TEXTS[:5])
    assert checked["largest_difference"] <= 1e-5
    np.testing.assert_allclose(*said_and_wanted(est, tmp_path / "onnx"), rtol=0, atol=1e-5)
    monkeypatch.setattr(  # as it was: rescaled in fp32
        "glassformer.targets.regression.Numbers.tensor_probabilities",
        lambda kind, x, t: x * kind.unit + kind.mean,
    )
    with pytest.raises(GlassformerError, match="does not agree"):
        export_onnx(est, tmp_path / "wrong", TEXTS[:5])


@pytest.mark.parametrize(
    ("mean", "unit", "fits"), [(0.0, 2.0**-40, True), (2000.0, 8.0, True), (1e7, 1.0, False)]
)
def test_a_hub_folder_that_cannot_hold_the_numbers_is_not_written(regressor, mean, unit, fits, tmp_path):
    est = placed(regressor, mean, unit)
    if fits:
        assert export_hf(est, tmp_path / "hf", TEXTS[:5])["largest_difference"] <= 1e-3
        return
    with pytest.raises(ConfigError, match="computes in fp32, which is too imprecise for numbers far from 0"):
        export_hf(est, tmp_path / "hf", TEXTS[:5])
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize(("number", "mean", "unit", "told"), [
    (12.3456789, 0.0, 1.0, "12.345679"), (10_000_000.123456, 1e7, 1.0, "10000000.123456"),
    (1.23456789e-9, 0.0, 1e-9, "1.234568e-09"), (0.0, 0.0, 1.0, "0"), (123456.789, 0.0, 65536.0, "123456.8"),
])  # fmt: skip
def test_a_shown_number_has_six_digits_of_the_spread(number, mean, unit, told):
    assert Numbers(mean, unit).format_number(number) == told
