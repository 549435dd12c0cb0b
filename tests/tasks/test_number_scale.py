"""``number_scale="log"``: logarithms are learned, answers and figures keep the numbers' unit, intervals are ratios."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, r2_score
from tests.cli.tiny import sets as settings
from tests.commands import as_json, ok, refused, values
from tests.tables import read_csv, write_csv

import glassformer as gf
from glassformer.data.numbers import from_scale, number_findings, to_scale, wide_range
from glassformer.errors import DataError
from glassformer.targets import target_from_hub
from glassformer.targets.regression import Numbers, bounds_around, coverage_metrics, half_width
from glassformer.tasks.task import TINY as SIZES

SMALL = SIZES | {"batch_size": 5, "epochs": 5, "min_count": 1, "max_length": 16, "lr": 0.02}
PRICES = {"pen": 2.0, "lamp": 40.0, "car": 9000.0}
TEXTS = [f"a {thing} for sale {i % 7}" for i, thing in enumerate([*PRICES] * 23)]
NUMBERS = [PRICES[text.split()[1]] * (1 + (i % 5) / 10) for i, text in enumerate(TEXTS)]


def regressor(**options):
    return gf.TextRegressor("encoder-mini", **{"number_scale": "log"} | SMALL | options)


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(TEXTS, NUMBERS, validation=(TEXTS[:29], NUMBERS[:29]))


def test_answers_and_figures_have_the_unit_of_the_numbers(fitted):
    found = fitted.predict(TEXTS)
    assert np.abs(np.log(found / NUMBERS)).max() < 1.0  # of numbers from 2 to 12,600
    assert fitted.score(TEXTS, NUMBERS) == pytest.approx(r2_score(NUMBERS, found))
    assert fitted.kind_.mean == pytest.approx(np.log(NUMBERS).mean())
    best = min((r for r in fitted.history_ if r["kind"] == "evaluation"), key=lambda r: r["loss"])
    held = fitted.predict(TEXTS[:29])
    assert best["mae"] == pytest.approx(mean_absolute_error(NUMBERS[:29], held), rel=1e-4)
    assert best["r2"] == pytest.approx(r2_score(NUMBERS[:29], held), abs=1e-4)


def test_intervals_are_made_of_logarithms_and_widen_with_the_number(fitted):
    errors = np.sort(np.abs(np.log(fitted.predict(TEXTS[:29]) / NUMBERS[:29])))
    np.testing.assert_allclose(fitted.errors_, errors, atol=1e-9)
    bounds, middle = fitted.predict_interval(TEXTS[:3]), fitted.predict(TEXTS[:3])
    factor = np.exp(half_width(errors, 0.9))
    np.testing.assert_allclose(bounds, np.stack([middle / factor, middle * factor], 1))
    widths = np.diff(bounds)[:, 0]
    assert widths[0] < widths[1] < widths[2]
    held = TEXTS[:11], NUMBERS[:11]
    again = regressor(epochs=1).fit(TEXTS, NUMBERS).calibrate(*held)
    errors = np.abs(np.log(again.predict(held[0]) / held[1]))
    np.testing.assert_allclose(again.errors_, np.sort(errors), atol=1e-12)


def test_folders_keep_the_scale(fitted, tmp_path):
    again = gf.load(fitted.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(TEXTS), fitted.predict(TEXTS))
    np.testing.assert_array_equal(again.predict_interval(TEXTS), fitted.predict_interval(TEXTS))
    assert json.loads((tmp_path / "model/glassformer.json").read_text())["targets"] == "log-number"
    assert "natural logarithm" in (tmp_path / "model/README.md").read_text(encoding="utf-8")
    # other programs are told of the logarithm
    of_hub = {"problem_type": "regression", "id2label": {"0": "log(number)"}}
    assert target_from_hub(of_hub, 1) == Numbers(scale="log")
    assert target_from_hub(of_hub | {"id2label": {"0": "LABEL_0"}}, 1) == Numbers()


@pytest.mark.parametrize("bad", [0.0, -3.0])
def test_a_number_without_a_logarithm_is_named(bad, fitted):
    with pytest.raises(DataError, match=r"targets\[2\]: .* not above 0 and has no logarithm"):
        regressor().fit(TEXTS, [*NUMBERS[:2], bad, *NUMBERS[3:]])
    with pytest.raises(DataError, match=r"validation targets\[1\]") as error:
        regressor().fit(TEXTS, NUMBERS, validation=(TEXTS[:2], [1.0, bad]))
    assert "number_scale=linear" in error.value.fix
    with pytest.raises(DataError, match=r"targets\[0\]"):
        fitted.calibrate(TEXTS[:2], [bad, 1.0])


def test_pictures_learn_logarithms_too(tmp_path):
    bright = np.random.default_rng(1).integers(0, 250, 41)
    pictures = [np.full((8, 8, 3), b, np.uint8) for b in bright]
    numbers = np.exp(bright / 25)
    sizes = values("image_size=8 patch_size=4 epochs=25 lr=5e-3 validation_fraction=0.3 number_scale=log")
    est = gf.ImageRegressor(**SIZES | {"batch_size": 5} | sizes).fit(pictures, numbers)
    assert r2_score(np.log(numbers), np.log(est.predict(pictures))) > 0.8
    again = gf.load(est.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(pictures), est.predict(pictures))


def test_figures_of_a_scale():
    values = np.array([0.5, 3.0, 8000.0])
    np.testing.assert_allclose(from_scale(to_scale(values, "log"), "log"), values)
    assert from_scale([1e4, -1e4], "log").tolist() == pytest.approx([1e100, 1e-100])
    target, true = Numbers(mean=1.0, unit=2.0, scale="log"), np.array([1.0, 0.0])  # of e³ and e
    found = target.score(np.array([np.e**3 * 2, np.e]), true, bootstrap=0)
    assert found["mae"] == pytest.approx(np.e**3 / 2)
    assert found["ratios"]["median_factor"] == pytest.approx(np.sqrt(2))
    np.testing.assert_allclose(bounds_around([3.0], np.log(2), "log"), [[1.5, 6.0]])
    (level,) = coverage_metrics([np.log(2)] * 9, [1.0, 1.0, 4.0], [1.9, 2.1, 3.0], (0.9,), "log")
    assert (level["covered"], level["width"]) == (pytest.approx(2 / 3), pytest.approx(1.5))
    assert level["factor"] == pytest.approx(2.0)


def test_the_doctor_proposes_logarithms_where_numbers_span_orders_of_magnitude():
    spread = np.exp(np.linspace(0, 9, 61))
    assert wide_range(spread) == pytest.approx(np.quantile(spread, (0.05, 0.95)))
    assert wide_range(np.linspace(1, 1000, 61)) is None  # squared errors see most of these
    assert wide_range(spread - 100) is None  # many have no logarithm
    codes = [f.code for f in number_findings({"train": spread.tolist()}, {})]
    assert codes == ["numbers", "orders-of-magnitude"]
    assert [f.code for f in number_findings({"train": spread.tolist()}, {}, "log")] == ["numbers"]


TINY = ["--model", "encoder-mini", *settings("target=number", "baselines=false", "number_scale=log")]
TINY += settings(*(f"{k}={v}" for k, v in SMALL.items()))


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    numbers = [number + i / 1000 for i, number in enumerate(NUMBERS * 3)]
    numbers[4], numbers[7] = 0, -2
    rows = [(f"{text} {i}", number) for i, (text, number) in enumerate(zip(TEXTS * 3, numbers))]
    return write_csv(tmp_path_factory.mktemp("prices") / "prices.csv", ("text", "price"), rows)


def test_a_run_on_a_table_keeps_to_the_scale(table, tmp_path):
    given, run, skip = ["--text", table, *TINY], tmp_path / "run", ("--on-bad-row", "skip", "--out")
    said = " ".join(refused("train", *given, "--out", run).split())
    assert "prices.csv, row 6: 0 is not above 0 and has no logarithm (1 more such row)" in said
    assert "--on-bad-row skip" in said
    done = ok("train", *given, *skip, run)
    assert "half of the predictions are within a factor of" in " ".join((done.out + done.err).split())
    assert [json.loads(line)["row"] for line in (run / "rejected.jsonl").read_text().splitlines()] == [6, 9]
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["numbers"]["scale"] == "log"
    rows, factor = read_csv(run / "predictions.csv"), metrics["intervals"][1]["factor"]
    true, found, high = (np.array([float(row[k]) for row in rows]) for k in ("label", "predicted", "high"))
    assert metrics["test"]["mae"] == pytest.approx(np.abs(true - found).mean(), rel=1e-4)
    np.testing.assert_allclose(high / found, factor, rtol=1e-5)
    inside = np.abs(np.log(true / found)) <= np.log(factor)
    assert metrics["intervals"][1]["covered"] == pytest.approx(inside.mean())
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Half of the predictions are within a factor of" in page
    assert json.loads((run / "doctor.json").read_text())["findings"]
    # on other data, and as other verbs give it
    figures = as_json("evaluate", run, "--data", table)
    assert figures["n"] == len(TEXTS) * 3 - 2
    assert figures["intervals"][1]["factor"] == factor
    (answer,) = as_json("predict", run, TEXTS[0], "--coverage", "0.8")["answers"]
    assert answer["interval"] == pytest.approx(gf.load(run).predict_interval(TEXTS[:1], 0.8)[0].tolist())
    ok("cross-validate", *given, "--set", "epochs=1", "--folds", "2", *skip, tmp_path / "folds")
    folds = json.loads((tmp_path / "folds/metrics.json").read_text())
    assert folds["test"]["n"] == len(TEXTS) * 3 - 2


def test_the_server_gives_such_intervals(fitted):
    from glassformer.serve.limits import Limits
    from glassformer.serve.models import ServedModel

    served = ServedModel("prices", fitted, Limits(), threads=1, precision="fp32")
    items = served.prepare(TEXTS[:3])
    numbers = served.response(items, served.compute(items))["numbers"]
    np.testing.assert_allclose(
        [n["interval"] for n in numbers], fitted.predict_interval(TEXTS[:3]), rtol=1e-4
    )


def test_onnx_gives_numbers_and_the_factor(fitted, tmp_path):
    pytest.importorskip("onnxruntime")
    from glassformer.export.graph import open_graph
    from glassformer.export.onnx_folder import export_onnx

    export_onnx(fitted, tmp_path / "onnx", TEXTS[:5])
    about = json.loads((tmp_path / "onnx/onnx.json").read_text())
    assert about["half_width"] is None
    assert about["factor"] == pytest.approx(np.exp(half_width(fitted.errors_)))
    rows = [fitted.tokenizer_.encode(text) for text in TEXTS[:3]]  # of one length
    batch = {
        "input_ids": np.array([row.ids for row in rows]),
        "attention_mask": np.ones((3, len(rows[0].ids)), int),
    }
    found = open_graph(tmp_path / "onnx/model.onnx")(batch)[1]
    np.testing.assert_allclose(found[:, 0], fitted.predict(TEXTS[:3]), rtol=1e-4)
