"""The chain of our own backbone and the studies on it, end to end on a tiny untrained one with every arm."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glassformer import ImageClassifier
from glassformer.config import parse_settings
from glassformer.study.compare import compare
from glassformer.study.grid import expand, load_study
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run import run_task

from ..benchmark_tools import benchmark

ROOT = Path(__file__).parents[2]
SIDE = 12
READINGS = ("[CLS]", "pooler", "mean")
HEADS = {"linear": None, "MLP D/4": 64, "MLP D/2": 128, "MLP D": 256}


def write_pictures(folder: Path, count: int, parts: tuple[str, ...]) -> Path:
    """``PART/CLASS/*.png`` of two classes that brightness tells apart."""
    rng = np.random.default_rng(0)
    for part in parts:
        for i in range(count):
            label = ("hotdog", "not_hotdog")[i % 2]
            picture = rng.integers(0, 100, (SIDE, SIDE, 3), np.uint8) + 120 * (i % 2)
            path = folder / part / label / f"{i:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture.astype(np.uint8)).save(path)
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("pictures"), 12, ("train", "test"))


@pytest.fixture(scope="module")
def backbone(tmp_path_factory, pictures) -> Path:
    """Untrained but for one step, of the kind that ``cifar10-backbone`` leaves: [CLS], pooler, 8 pixels."""
    sizes = {"image_size": 8, "patch_size": 4, "d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 2}
    how = {"epochs": 1, "batch_size": 8, "precision": "fp32", "threads": 1}
    clf = ImageClassifier("vit-tiny", pooling="pooler", **sizes, **how)
    files = sorted((pictures / "train").glob("*/*.png"))
    clf.fit(files, [path.parent.name for path in files])
    return clf.save(tmp_path_factory.mktemp("backbone") / "model")


def tiny(backbone: Path, pictures: Path, **changes) -> dict:
    settings = ["epochs=1", "image_size=8", "batch_size=8", "precision=fp32", "threads=1", "bootstrap=20"]
    return parse_settings(settings) | {"model": str(backbone), "source": str(pictures)} | changes


def test_the_heads_are_those_of_the_practical():
    for name in ("flowers-heads-backbone", "hotdog-heads-backbone"):
        arms = {arm.name: arm.recipe for arm in expand(load_study(name))}
        for reading, pooling in zip(READINGS, ("first", "pooler", "mean"), strict=True):
            for head, hidden in HEADS.items():
                model, train = arms[f"{reading}, {head}"].model, arms[f"{reading}, {head}"].train
                assert (model.pooling, model.head_hidden) == (pooling, hidden)
                assert model.head == ("mlp" if hidden else "linear")
                assert (train.train_layers, train.unfreeze_every) == (0, 0)
                assert (train.epochs, train.batch_size) == (10, 32)
        last = {name: recipe for name, recipe in arms.items() if name.endswith("then the last block")}
        assert len(last) == 6
        assert {recipe.train.unfreeze_every for recipe in last.values()} == {5}
        assert {recipe.model.model for recipe in arms.values()} == {"runs/cifar10-backbone/model"}


def test_each_rung_stands_on_the_one_before():
    rungs = {"baseline": "none", "light": "light", "medium": "medium", "strong": "stacked"}
    for name in ("flowers-ladder-backbone", "hotdog-ladder-backbone"):
        arms = {arm.name: arm.recipe for arm in expand(load_study(name))}
        for arm, level in rungs.items():
            assert (arms[arm].image.augment, arms[arm].image.mix) == (level, "none")
        for mix in ("mixup", "cutmix"):
            image = arms[f"strong, {mix}"].image
            assert (image.augment, image.mix) == ("stacked", mix)
        for recipe in arms.values():  # all else is equal
            assert recipe.train == arms["baseline"].train
            same = replace(recipe.image, augment="none", mix="none")
            assert same == arms["baseline"].image
            assert (same.image_size, same.resize, same.mean[0]) == (64, 73, 0.485)


def test_heads_and_rungs_on_dinov2():
    arms = {arm.name: arm.recipe for arm in expand(load_study("hotdog-heads-dinov2"))}
    for reading, pooling in (("[CLS]", "first"), ("mean", "mean"), ("both", "first-mean")):
        for head, hidden in {"linear": None, "MLP D/4": 96, "MLP D/2": 192, "MLP D": 384}.items():
            model, train = arms[f"{reading}, {head}"].model, arms[f"{reading}, {head}"].train
            assert (model.pooling, model.head_hidden) == (pooling, hidden)
            assert (train.train_layers, train.unfreeze_every, train.head_start) == (0, 0, "random")
    assert {(r.train.epochs, r.train.batch_size, r.train.lr) for r in arms.values()} == {(10, 32, 3e-3)}
    last = {name for name, recipe in arms.items() if recipe.train.unfreeze_every == 5}
    assert last == {name for name in arms if name.endswith("then the last block")}
    assert len(last) == 2
    ladder = {arm.name: arm.recipe for arm in expand(load_study("hotdog-ladder-dinov2"))}
    rungs = [(recipe.image.augment, recipe.image.mix) for recipe in ladder.values()]
    assert rungs[:4] == [("none", "none"), ("light", "none"), ("medium", "none"), ("stacked", "none")]
    assert rungs[4:] == [("stacked", "both")]
    for recipe in ladder.values():
        assert recipe.train == ladder["baseline"].train
        assert replace(recipe.image, augment="none", mix="none") == ladder["baseline"].image


def test_the_chain_leaves_a_backbone_with_a_pooler(tmp_path, pictures):
    sizes = ["image_size=8", "epochs=1", "batch_size=8", "precision=fp32", "threads=1"]
    shape = ["resize=8", "patch_size=4", "d_model=16", "num_layers=1", "num_heads=2", "d_ff=16"]
    decoder = ["decoder_width=16", "decoder_layers=1", "decoder_heads=2"]
    sizes += [f"source={pictures}", "validation_size=4"]
    run_task(load_recipe("photos-patches", [*sizes, *shape, *decoder, "also=[]"]), tmp_path / "patches")
    second = [*sizes, "baselines=false", f"model={tmp_path / 'patches' / 'model'}"]
    run_task(load_recipe("cifar10-backbone", second), tmp_path / "backbone")
    config = json.loads((tmp_path / "backbone" / "model" / "config.json").read_text(encoding="utf-8"))
    assert (config["hidden_size"], config["image_size"]) == (16, 8)


@pytest.mark.parametrize(
    "name", [pytest.param("flowers-heads-backbone", marks=pytest.mark.slow), "flowers-ladder-backbone"]
)
def test_every_arm_on_flowers_runs(name, backbone, pictures, tmp_path):
    study = replace(load_study(name), seeds=(0,), bootstrap=20)
    changes = {"validation_size": 4, "baselines": False, "grid": False}
    if "ladder" in name:
        changes |= {"resize": 9, "robustness_limit": 3}
    found = compare(study, tmp_path / "study", settings=tiny(backbone, pictures, **changes), workers=0)
    assert not found["unfinished"]
    assert [arm["name"] for arm in found["arms"]] == [arm.name for arm in expand(study)]
    assert found["judged"] == "test"


@pytest.mark.parametrize(
    "name", [pytest.param("hotdog-heads-backbone", marks=pytest.mark.slow), "hotdog-ladder-backbone"]
)
def test_every_arm_on_hotdog_runs_in_folds(name, backbone, pictures, tmp_path, monkeypatch, capsys):
    folds = benchmark("folds")
    tables_questions = benchmark("tables_quality")

    study = replace(load_study(name), seeds=(0, 1))
    monkeypatch.setattr(folds, "load_study", lambda asked: study)
    settings = tiny(backbone, pictures)
    settings |= {"resize": 9} if "ladder" in name else {}
    out = tmp_path / f"folds-{name}.json"
    argv = ["folds.py", name, "--folds", "2", "--runs", str(tmp_path), "--out", str(out), "--set"]
    monkeypatch.setattr(sys, "argv", argv + [f"{key}={value}" for key, value in settings.items()])
    folds.main()
    found = json.loads(out.read_text(encoding="utf-8"))
    arms = [arm.name for arm in expand(study)]
    assert list(found["arms"]) == arms
    assert list(found["differences"]) == [arm for arm in arms if arm != found["baseline"]]
    assert found["n"] == 24  # those of every part
    for arm in found["arms"].values():
        assert [sum(map(sum, arm["confusion"]))] == [2 * 24]
        assert len(arm["accuracy"]) == 2
    monkeypatch.setattr(folds, "cross_validate", None)  # what is finished is not run again
    folds.main()
    monkeypatch.setattr(benchmark("markdown"), "RESULTS", tmp_path)
    made = tables_questions.folds()
    assert f"## {name}" in made
    assert "24 images, each evaluated once per seed by 2-fold cross-validation; seeds 0, 1." in made


def test_folds_are_right_answers_in_one_order(tmp_path, monkeypatch):
    folds = benchmark("folds")

    lines = ["split,row,text,label,predicted,probability", "o,2,b.png,x,y,0.6", "o,1,a.png,x,x,0.9"]
    (tmp_path / "predictions.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert folds.hits(tmp_path).tolist() == [1.0, 0.0]
