"""From a folder of pictures to a run folder, and what the verbs make of it."""

import copy
import json
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.names_lora import load_adapter
from glassformer.cli.app import main
from glassformer.data.image_sources import ImageSplit
from glassformer.data.sources import LabelReader
from glassformer.data.tables import Table
from glassformer.errors import DataError
from glassformer.families.vit import VIT
from glassformer.report.images import attention_views, data_uri, draw_grid
from glassformer.tasks.image_classification.estimator import sample_split
from glassformer.tasks.supervised import evaluate_split

from .conftest import SETTINGS, fill, quarters, sets

NASTY = "<script>alert(1)"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run, beside that of its pictures."""
    folder = tmp_path_factory.mktemp("run")
    images = fill(folder / "corners", 80, 3, NASTY + "{}.png")
    arguments = sets(**SETTINGS, robustness="true", bootstrap=50)
    assert main(["train", "--images", str(images), "--out", str(folder / "run"), *arguments]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def page(run):
    return (run / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def maps(run):
    return read_json(run / "maps.json")["examples"]


def test_report_shows_pictures_and_no_markup_from_names(page):
    shown = {"data:image/png;base64,": True, "test images": True, NASTY: False, ">texts<": False}
    assert {part: part in page for part in shown} == shown


def test_report_shows_where_the_model_looks_and_what_it_is(run, page, maps):
    assert len(maps) == 4
    for one in maps:
        assert one["grid"] == [2, 2]
        assert np.array(one["cls_rows"]).shape == (2, 2, 5)  # layers, heads, [CLS] and the patches
        assert np.array(one["rollout"]).sum() == pytest.approx(1, abs=1e-3)
    metrics = read_json(run / "metrics.json")
    assert sum(block["parameters"] for block in metrics["architecture"]) == metrics["parameters"]
    assert page.count('<svg class="picture"') == 4
    assert page.count('<rect class="w ') == 4 * 4
    for part in ("pays to each patch", "B images, N patches in all", "pixels [B, channels, height, width]"):
        assert part in page
    assert "tokens [N]" not in page
    assert len(page) < 3_000_000


def test_a_foreign_picture_under_a_map_is_refused(maps):
    assert attention_views(maps)[0][0].picture.startswith("data:image/png;base64,")
    with pytest.raises(DataError, match=r"maps\.json: an image is not a small PNG"):
        attention_views([maps[0] | {"png": "PHN2Zz4="}])
    with pytest.raises(DataError, match="example 2 cannot be drawn"):
        attention_views([maps[0], maps[1] | {"grid": [3, 3]}])
    for foreign in ("PHN2Zz4=", "javascript:alert(1)", None, "A" * 70_000):
        with pytest.raises(DataError, match="not a small PNG"):
            data_uri(foreign)


def test_other_pictures_may_calibrate(run, tmp_path, capsys):
    folder, other = Path(shutil.copytree(run, tmp_path / "run")), fill(tmp_path / "other", 23, 5)
    assert main(["calibrate", str(folder), "--data", str(other), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"][str(other)]["before"]["n"] == 23


def test_bad_rows_of_pictures_are_broken_ones(run, capsys, monkeypatch):
    """One option for texts and pictures, whatever the key is called."""
    seen, images = [], str(run.parent / "corners")
    monkeypatch.setattr("glassformer.cli.train.train", lambda recipe, *rest, **options: seen.append(recipe))
    for said in ("show_run", "next_step"):
        monkeypatch.setattr(f"glassformer.cli.output.{said}", lambda *shown: "")
    for way in (["--images", images], [images]):
        assert main(["train", *way, "--on-bad-row", "skip"]) == 0
    assert [recipe.data.broken for recipe in seen] == ["skip", "skip"]
    assert main(["train", "--images", images, "--on-bad-row", "some"]) == 2
    assert "'some' is not a choice" in capsys.readouterr().err


def test_a_label_of_any_script_is_drawn_without_a_warning(tmp_path):
    example = {"label": "\u732b", "predicted": "ch\u00f3"}  # cat in Chinese, dog in Vietnamese
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_grid(tmp_path / "grid.png", quarters(1, 3)[0], [example])
    assert (tmp_path / "grid.png").stat().st_size > 0


def test_a_split_whose_labels_are_all_missing_has_none(tmp_path):
    names = {"label": ("cat", "dog")}
    table = Table("here", ("label",), [2, 3], lambda name: [-1, -1], class_names=names)
    assert LabelReader().read(table, "label") == []
    table = Table("here", ("label",), [2, 3], lambda name: [-1, 1], class_names=names)
    with pytest.raises(DataError, match="label -1 has no name"):
        LabelReader().read(table, "label")


def test_figures_are_those_of_the_labels_that_are_given(fitted):
    pictures, labels = quarters(24, 5)
    halves = ImageSplit(pictures, ["left" if label == "left" else "other" for label in labels], "here")
    clf = copy.deepcopy(fitted)
    clf.classes_ = np.array(["left", "other"])
    clf.outputs = lambda given, progress: np.tile([0.4, 0.6], (len(given), 1))
    recipe = SimpleNamespace(evaluate=SimpleNamespace(bootstrap=0))
    share = float(np.mean([label == "other" for label in halves.labels]))
    assert evaluate_split(clf, halves, recipe)[0]["accuracy"] == pytest.approx(share)
    clf.threshold_ = 0.7
    assert evaluate_split(clf, halves, recipe)[0]["accuracy"] == pytest.approx(1 - share)


def test_a_run_keeps_its_low_rank_updates_and_changes_as_many_pictures_as_asked(run, tmp_path):
    options = {"epochs": 2, "lora_rank": 2, "robustness": "true", "robustness_limit": 7, "bootstrap": 0}
    arguments = sets(**SETTINGS | options, baselines="false")
    images = str(run.parent / "corners")
    assert main(["train", "--images", images, "--out", str(tmp_path / "low"), *arguments]) == 0
    assert read_json(tmp_path / "low" / "adapter" / "adapter_config.json")["r"] == 2
    low = load_adapter(tmp_path / "low" / "adapter", VIT.hub.names)
    assert low.rank == 2
    assert any(float(tensor.abs().max()) > 0 for tensor in low.updates.values())
    assert not (run / "adapter").exists()
    suites = read_json(tmp_path / "low" / "metrics.json")["robustness"]
    counts = [row["accuracy"] * 7 for rows in suites.values() for row in rows]
    assert counts == pytest.approx([round(c) for c in counts], abs=1e-6)
    page = (tmp_path / "low" / "report.html").read_text(encoding="utf-8")
    assert "Accuracy on 7 of the evaluated images" in page


def test_some_of_a_split_are_the_same_for_everybody():
    split = ImageSplit(list(range(41)), [i % 3 for i in range(41)], "here")
    assert sample_split(split, 0) is split
    assert sample_split(split, 41) is split
    few = sample_split(split, 11)
    assert len(set(few.images)) == 11
    assert few.images == sorted(few.images) == sample_split(split, 11).images != list(range(11))
    assert few.labels == [i % 3 for i in few.images]
