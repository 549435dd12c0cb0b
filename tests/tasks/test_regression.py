"""Regressors: numbers in their own unit, intervals from held-out examples, folders, resume, and runs from a table."""

import json

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import r2_score
from tests.cli.tiny import sets as settings
from tests.commands import as_json, ok, refused
from tests.tables import read_csv, write_csv

import glassformer as gf
from glassformer.data.numbers import check_numbers, quantile_bins
from glassformer.data.sources import load_text_dataset
from glassformer.data.splits import stratified_folds, stratified_split
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.targets.regression import Numbers, half_width
from glassformer.tasks.catalog import build_recipe
from glassformer.tasks.task import TINY as SIZES

SMALL = SIZES | {"batch_size": 5, "epochs": 5, "min_count": 1, "max_length": 16, "lr": 0.02}
VALUES = {"good": 2.0, "bad": -7.0, "fine": 0.5}
TEXTS = [f"the {word} film {i % 7}" for i, word in enumerate([*VALUES] * 17)]
NUMBERS = [1990 + VALUES[text.split()[1]] for text in TEXTS]


def regressor(**options):
    return gf.TextRegressor("encoder-mini", **SMALL | options)


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(TEXTS, NUMBERS, validation=(TEXTS[:29], NUMBERS[:29]))


def test_numbers_come_back_in_their_own_unit(fitted):
    found = fitted.predict(TEXTS)
    assert found.dtype == np.float64
    assert np.abs(found - NUMBERS).max() < 2.0  # of a range of 9
    assert fitted.score(TEXTS, NUMBERS) == pytest.approx(r2_score(NUMBERS, found))
    assert fitted.kind_.mean == pytest.approx(np.mean(NUMBERS))
    assert fitted.kind_.unit == 4.0  # a power of two next to 3.9
    assert is_regressor(fitted)
    assert not is_classifier(fitted)
    assert not hasattr(fitted, "predict_proba")
    assert fitted.history_[-1].keys() >= {"loss", "r2", "mae", "pearson", "spearman"}
    # only what is learned from decides mean and unit
    far = regressor(epochs=1).fit(TEXTS, NUMBERS, validation=(TEXTS[:3], [1e6, 0.0, -3.0]))
    assert far.kind_.mean == pytest.approx(np.mean(NUMBERS))
    assert far.errors_[-1] == pytest.approx(1e6, rel=0.01)
    # packed, one by one, in bf16
    alone = np.concatenate([fitted.predict([text]) for text in TEXTS[:7]])
    np.testing.assert_allclose(fitted.predict(TEXTS[:7]), alone, atol=1e-4)
    coarse = gf.TextRegressor(**fitted.get_params() | {"precision": "bf16"}).fit(TEXTS, NUMBERS)
    assert coarse.score(TEXTS, NUMBERS) > 0.5


def test_intervals_go_by_the_errors_of_held_out_examples(fitted):
    errors = np.sort(np.abs(fitted.predict(TEXTS[:29]) - NUMBERS[:29]))
    np.testing.assert_allclose(fitted.errors_, errors, atol=1e-9)
    bounds = fitted.predict_interval(TEXTS[:5], coverage=0.9)
    middle = fitted.predict(TEXTS[:5])
    np.testing.assert_allclose(bounds, np.stack([middle - errors[26], middle + errors[26]], 1))  # 27th of 29
    with pytest.raises(ConfigError, match=r"29 held-out examples .* hold out 99 or more"):
        fitted.predict_interval(TEXTS[:5], coverage=0.99)
    with pytest.raises(ConfigError, match="validation_fraction"):
        regressor(epochs=1).fit(TEXTS, NUMBERS).predict_interval(TEXTS[:2])
    other = clone(fitted).fit(TEXTS, NUMBERS).calibrate(TEXTS[:11], NUMBERS[:11])
    assert len(other.errors_) == 11
    assert other.predict_interval(TEXTS[:1]).shape == (1, 2)


def test_errors_of_the_weights_before_an_adapter_are_forgotten(fitted, tmp_path):
    base = gf.load(fitted.save(tmp_path / "base"))
    low = {"lora_rank": 2, "epochs": 1, "precision": "fp32", "max_length": 11}
    low = gf.TextRegressor(str(tmp_path / "base"), **low).fit(TEXTS, NUMBERS)
    low.save_adapter(tmp_path / "adapter")
    with pytest.raises(ConfigError, match="the errors of this model are unknown"):
        base.load_adapter(tmp_path / "adapter").predict_interval(TEXTS[:2])
    assert len(fitted.errors_) == 29


def test_a_folder_keeps_every_bit_and_the_errors(fitted, tmp_path):
    again = gf.load(fitted.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(TEXTS), fitted.predict(TEXTS))
    np.testing.assert_array_equal(again.predict_interval(TEXTS, 0.8), fitted.predict_interval(TEXTS, 0.8))
    about = json.loads((tmp_path / "model" / "glassformer.json").read_text())
    assert (about["kind"], about["targets"]) == ("TextRegressor", "number")
    for change in ({"mean": "x"}, {"unit": 3.0}, {"unit": 0}, {"mean": float("inf")}):
        with pytest.raises(CheckpointError):
            Numbers.from_metadata(about | change, "here")


def test_pairs_weights_and_every_weight_learns():
    pairs = [(text, "a film") for text in TEXTS]
    est = regressor(epochs=2).fit(pairs, NUMBERS, sample_weight=[1.0] * 50 + [0.0])
    assert est.predict([("the bad film", "a film")]).shape == (1,)
    with pytest.raises(DataError, match="pairs"):
        est.predict(["one text"])
    before = regressor(epochs=1, lr=1e-12).fit(TEXTS, NUMBERS).model_.state_dict()
    after = regressor(epochs=1).fit(TEXTS, NUMBERS).model_.state_dict()
    still = [name for name in before if before[name].allclose(after[name], atol=1e-7)]
    assert not [name for name in still if "tokens" not in name]


BAD = [["a", "b", "c"], [1.0, None, 2.0], [1.0, float("inf"), 2.0], [3.0] * 3, [True, 2, 3], ["3,5", 1, 2]]


@pytest.mark.parametrize("y", BAD)
def test_what_is_no_number_is_named(y):
    with pytest.raises(DataError, match=r"targets"):
        regressor().fit(TEXTS[:3], y)
    assert check_numbers(["3.5", 2, np.float32(0.25), "1e3"]) == [3.5, 2.0, 0.25, 1000.0]


def test_bad_cells_do_not_hide_the_column_of_numbers(tmp_path):
    rows = [(f"film {i}", f"{i / 7:.2f}", f"{i}.5") for i in range(11)]
    file = write_csv(tmp_path / "a.csv", ("text", "mine"), [*(row[:2] for row in rows), ("film x", "1 kg")])
    options = {"text_column": None, "label_column": None, "numbers": True}
    with pytest.raises(DataError, match=r"a\.csv, row 13: '1 kg' is not a number"):
        load_text_dataset(str(file), **options)
    kept = load_text_dataset(str(file), on_bad_row="skip", **options)
    assert len(kept.splits["train"]) == 11
    two = write_csv(tmp_path / "b.csv", ("text", "mine", "yours"), rows)
    with pytest.raises(DataError, match="several columns contain numbers: mine, yours"):
        load_text_dataset(str(two), **options)


def test_random_parts_keep_the_tenths_of_all_numbers():
    numbers = [float(x) for x in np.random.default_rng(0).normal(size=101)]
    assert sorted(set(quantile_bins(numbers, 50))) == list(range(10))
    _, held = stratified_split(numbers, 30, 0)
    assert len(held) == 30
    low = np.quantile(numbers, 0.1)
    assert 2 <= sum(numbers[i] <= low for i in held) <= 4
    folds = stratified_folds(numbers, 5, 0)
    assert all(1 <= sum(numbers[i] <= low for i in np.flatnonzero(folds == k)) <= 3 for k in range(5))
    assert len(stratified_split([1.0, 2.0, 3.0], 1, 0)[1]) == 1


# --- from a table ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rows = [(text, number + i / 100) for i, (text, number) in enumerate(zip(TEXTS * 3, NUMBERS * 3))]
    return write_csv(tmp_path_factory.mktemp("table") / "films.csv", ("text", "score"), rows)


KEYS = "target=number epochs=3 lr=0.02 threads=1 copies=apart d_model=14 num_layers=1 num_heads=2"
TINY = ["--model", "encoder-mini", *settings(*KEYS.split())]


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "films"
    ok("train", "--text", table, *TINY, "--out", folder)
    return folder


def test_the_way_to_numbers_is_named(table):
    assert "--set target=number" in refused("train", "--text", table, "--model", "encoder-mini")
    assert "Use number, or leave target out" in refused("train", "--text", table, "--set", "target=word")
    # a recipe becomes one of numbers
    changed = build_recipe({"data": {"target": "number", "source": "x.csv"}}, "own.toml")
    assert changed.task == "text-regression"
    assert build_recipe({"task": "image-classification"}, "own", ["target=number"]).task == "image-regression"
    with pytest.raises(ConfigError, match=r"unknown target .price."):
        build_recipe({"data": {"target": "price"}}, "own.toml")


def test_a_run_judges_reports_and_keeps_its_intervals(run):
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test"]["r2"] > 0.3
    assert [level["asked"] for level in metrics["intervals"]] == [0.8, 0.9, 0.95]
    assert [*metrics["baselines"]][:2] == ["mean of the training numbers", "TF-IDF + ridge"]
    assert metrics["baselines"]["mean of the training numbers"]["r2"] < 0.05
    rows = read_csv(run / "predictions.csv")
    assert len(rows) == metrics["test"]["n"]
    errors = np.array([abs(float(row["label"]) - float(row["predicted"])) for row in rows])
    assert errors.mean() == pytest.approx(metrics["test"]["mae"], rel=1e-4)
    est = gf.load(run)
    half = half_width(est.errors_)
    assert float(rows[0]["high"]) - float(rows[0]["predicted"]) == pytest.approx(half, rel=1e-4)
    inside = np.mean(errors <= half)
    assert metrics["intervals"][1]["covered"] == pytest.approx(inside, abs=1e-9)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Predicted numbers against true ones" in page
    assert "Largest errors" in page
    assert "numbers from" in (run / "doctor.json").read_text()


def test_intervals_are_not_judged_by_the_errors_that_made_them(table, tmp_path):
    (tmp_path / "data").mkdir()
    for split in ("train", "validation"):
        (tmp_path / "data" / f"{split}.csv").write_bytes(table.read_bytes())
    own = tmp_path / "own"
    more = settings("split=validation", "baselines=false")
    ok("train", "--text", tmp_path / "data", *TINY, *more, "--out", own)
    assert as_json("evaluate", own)["intervals"] == []
    assert as_json("evaluate", own, table)["intervals"]
    assert "Leave --every-epoch out" in refused("evaluate", own, "--every-epoch")


def test_the_verbs_speak_of_numbers(run, table, tmp_path):
    est, page = gf.load(run), tmp_path / "why.html"
    assert as_json("evaluate", run)["r2"] == json.loads((run / "metrics.json").read_text())["test"]["r2"]
    assert as_json("evaluate", run, table)["n"] == 153
    (answer,) = as_json("predict", run, TEXTS[0], "--coverage", "0.8")["answers"]
    assert answer["number"] == pytest.approx(float(est.predict(TEXTS[:1])[0]))
    assert answer["interval"] == pytest.approx(est.predict_interval(TEXTS[:1], 0.8)[0].tolist())
    assert "hold out 999 or more" in refused("predict", run, TEXTS[0], "--coverage", "0.999")
    ok("predict", run, table, "--out", tmp_path / "out.csv")
    columns = "split row text label predicted low high score"
    assert " ".join(read_csv(tmp_path / "out.csv")[0]) == columns
    as_json("explain", run, TEXTS[0], "--method", "occlusion")
    said = ok("explain", run, TEXTS[0], "--method", "occlusion", "--out", page).out
    number = said.splitlines()[0].rpartition(": ")[2]  # no probability behind it
    assert float(number) == pytest.approx(answer["number"], abs=0.1)
    assert f">{number}</h1>" in page.read_text()
