"""From a folder of pictures to a run folder, and what the verbs make of it."""

import copy
import json
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from glassformer.checkpoints.names_lora import load_adapter
from glassformer.cli.app import main
from glassformer.data.dataset import Dataset
from glassformer.data.image_doctor import examine_images
from glassformer.data.image_sources import ImageSplit
from glassformer.data.sources import LabelReader
from glassformer.data.tables import Table
from glassformer.errors import DataError
from glassformer.families.vit import VIT
from glassformer.report.images import attention_views, data_uri, draw_grid
from glassformer.tasks.image_classification.estimator import sample_split
from glassformer.tasks.supervised import evaluate_split

from .conftest import SETTINGS, quarters

NASTY = "<script>alert(1)"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    for i, (picture, label) in enumerate(zip(*quarters(80, 3), strict=True)):
        place = folder / "corners" / label
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(place / f"{NASTY}{i}.png")
    sets = {**SETTINGS, "robustness": "true", "bootstrap": 50}
    arguments = [x for key, value in sets.items() for x in ("--set", f"{key}={value}")]
    code = main(["train", "--images", str(folder / "corners"), "--out", str(folder / "run"), *arguments])
    return folder, code


def test_report_shows_pictures_and_no_markup_from_names(run):
    page = (run[0] / "run" / "report.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
    assert "test images" in page
    assert NASTY not in page
    assert ">texts<" not in page


def test_report_shows_where_the_model_looks_and_what_it_is(run):
    found = json.loads((run[0] / "run" / "maps.json").read_text())["examples"]
    assert len(found) == 4
    for one in found:
        assert one["grid"] == [2, 2]
        assert np.array(one["cls_rows"]).shape == (2, 2, 5)  # layers, heads, [CLS] and the patches
        assert np.array(one["rollout"]).sum() == pytest.approx(1, abs=1e-3)
    page = (run[0] / "run" / "report.html").read_text(encoding="utf-8")
    metrics = json.loads((run[0] / "run" / "metrics.json").read_text())
    assert sum(block["parameters"] for block in metrics["architecture"]) == metrics["parameters"]
    assert page.count('<svg class="picture"') == 4
    assert page.count('<rect class="w ') == 4 * 4
    assert "pays to each patch" in page
    assert "B images, N patches in all" in page
    assert "pixels [B, channels, height, width]" in page
    assert "tokens [N]" not in page
    assert len(page) < 3_000_000


def test_a_foreign_picture_under_a_map_is_refused(run, tmp_path):
    maps = json.loads((run[0] / "run" / "maps.json").read_text())["examples"]
    assert attention_views(maps)[0][0].picture.startswith("data:image/png;base64,")
    with pytest.raises(DataError, match=r"maps\.json: an image is not a small PNG"):
        attention_views([maps[0] | {"png": "PHN2Zz4="}])
    with pytest.raises(DataError, match="example 2 cannot be drawn"):
        attention_views([maps[0], maps[1] | {"grid": [3, 3]}])


def test_other_pictures_may_calibrate(run, tmp_path, capsys):
    folder = Path(shutil.copytree(run[0] / "run", tmp_path / "run"))
    for i, (picture, label) in enumerate(zip(*quarters(23, 5), strict=True)):
        (tmp_path / "other" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(tmp_path / "other" / label / f"{i}.png")
    assert main(["calibrate", str(folder), "--data", str(tmp_path / "other"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["splits"][str(tmp_path / "other")]["before"]["n"] == 23


def test_bad_rows_of_pictures_are_broken_ones(run, capsys, monkeypatch):
    """One option for texts and pictures, whatever the key is called."""
    folder, _ = run
    seen = []
    monkeypatch.setattr("glassformer.cli.train.train", lambda recipe, *rest, **options: seen.append(recipe))
    for said in ("show_run", "next_step"):
        monkeypatch.setattr(f"glassformer.cli.output.{said}", lambda *shown: "")
    for way in (["--images", str(folder / "corners")], [str(folder / "corners")]):
        assert main(["train", *way, "--on-bad-row", "skip"]) == 0
    assert [recipe.data.broken for recipe in seen] == ["skip", "skip"]
    assert main(["train", "--images", str(folder / "corners"), "--on-bad-row", "some"]) == 2
    assert "'some' is not a choice" in capsys.readouterr().err


def test_the_doctor_finds_leaks_and_contradictions():
    pictures, _ = quarters(6, 3)
    train = ImageSplit([*pictures[:4], pictures[0]], ["a", "b", "a", "b", "b"], "here")
    test = ImageSplit([pictures[1], pictures[5]], ["b", "a"], "there")
    report = examine_images(Dataset("set", {"train": train, "test": test}))
    codes = {f.code: f.count for f in report.findings if f.severity == "warning"}
    assert codes == {"contradictions": 1, "leak": 1}


def test_a_page_takes_no_foreign_picture():
    for foreign in ("PHN2Zz4=", "javascript:alert(1)", None, "A" * 70_000):
        with pytest.raises(DataError, match="not a small PNG"):
            data_uri(foreign)


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


def test_a_run_keeps_its_low_rank_updates_and_changes_as_many_pictures_as_asked(run):
    folder = run[0]
    sets = {
        **SETTINGS, "epochs": 2, "lora_rank": 2, "robustness": "true", "robustness_limit": 7, "bootstrap": 0,
        "baselines": "false",
    }  # fmt: skip
    arguments = [x for key, value in sets.items() for x in ("--set", f"{key}={value}")]
    assert main(["train", "--images", str(folder / "corners"), "--out", str(folder / "low"), *arguments]) == 0
    assert json.loads((folder / "low" / "adapter" / "adapter_config.json").read_text())["r"] == 2
    low = load_adapter(folder / "low" / "adapter", VIT.hub.names)
    updates, rank = low.updates, low.rank
    assert rank == 2
    assert any(float(tensor.abs().max()) > 0 for tensor in updates.values())
    assert not (folder / "run" / "adapter").exists()
    suites = json.loads((folder / "low" / "metrics.json").read_text())["robustness"]
    counts = [row["accuracy"] * 7 for rows in suites.values() for row in rows]
    assert counts == pytest.approx([round(c) for c in counts], abs=1e-6)
    assert "Accuracy on 7 of the evaluated images" in (folder / "low" / "report.html").read_text(
        encoding="utf-8"
    )


def test_some_of_a_split_are_the_same_for_everybody():
    split = ImageSplit(list(range(41)), [i % 3 for i in range(41)], "here")
    assert sample_split(split, 0) is split
    assert sample_split(split, 41) is split
    few = sample_split(split, 11)
    assert len(set(few.images)) == 11
    assert few.images == sorted(few.images) == sample_split(split, 11).images != list(range(11))
    assert few.labels == [i % 3 for i in few.images]
