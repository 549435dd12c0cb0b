"""A model that cannot be loaded is listed as broken; the others are served."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.checkpoints.files import write_folder
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError, ConfigError, InputError

from .conftest import TEXTS, Running


def damaged(folder: Path, target: Path, kind: str) -> Path:
    """A copy of a saved classifier with one fault, under a manifest that fits."""

    def write(fresh: Path) -> None:
        shutil.copytree(folder, fresh, dirs_exist_ok=True, ignore=lambda *_: ["manifest.json"])
        about = json.loads((fresh / "glassformer.json").read_text())
        tensors = {name: tensor.clone() for name, tensor in read_tensors(fresh).items()}
        if kind == "surrogate":
            about["classes"][1] = "\ud800"
        elif kind == "cold":
            about["temperature"] = 1e-320
        elif kind == "windows":
            about["parameters"] |= {"long_texts": "mean", "window_stride": 1, "max_length": 99}
        elif kind == "weights":
            tensors["head.out.bias"] += torch.nan
            write_tensors(fresh, tensors)
        elif kind == "tokenizer":
            (fresh / "tokenizer.json").write_text("{}")
        (fresh / "glassformer.json").write_text(json.dumps(about))

    return write_folder(target, write)


FAULTS = {
    "surrogate": "the label contains a lone surrogate",
    "cold": "is not between 0.001 and 1000",
    "windows": "read more than 32 times",
    "weights": "does not answer: the model's outputs are not finite",
    "tokenizer": "not a usable tokenizer",
}


@pytest.fixture(scope="module")
def folders(classifiers, tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("models")
    saved = classifiers[0].save(home / "good")
    for kind in FAULTS:
        damaged(saved, home / kind, kind)
    return home


def load(folders: Path, names: Any, broken: dict[str, str] | None) -> list:
    from glassformer.serve.limits import Limits
    from glassformer.serve.models import load_models

    return load_models(
        [folders / name for name in names], Limits(), threads=1, precision="fp32", broken=broken
    )


def test_the_others_are_served_and_the_broken_ones_listed(folders):
    from glassformer.serve.limits import Limits

    broken: dict[str, str] = {}
    models = load(folders, [*FAULTS, "good"], broken)
    with Running(models, Limits(), broken=broken) as server:
        about = server.ask("/v1/models")
        assert about.status == 200
        assert [model["name"] for model in about.body["models"]] == ["good"]
        listed = {model["name"]: model["error"] for model in about.body["broken"]}
        assert listed.keys() == FAULTS.keys()
        for kind, said in FAULTS.items():
            assert said in listed[kind]
            answer = server.ask("/v1/predict", {"texts": TEXTS[:2], "model": kind})
            assert answer.status == 422
            assert "this model could not be loaded" in answer.body["error"]["what"]
            answer = server.ask("/v1/explain", {"text": TEXTS[0], "model": kind})
            assert answer.status == 422
        assert server.ask("/v1/predict", {"texts": TEXTS[:2]}).body["model"] == "good"
        assert server.ask("/v1/predict", {"texts": TEXTS[:2], "model": "none"}).status == 404


@pytest.mark.parametrize("kind", FAULTS)
def test_where_none_is_left_it_does_not_start(folders, kind):
    with pytest.raises(InputError, match=FAULTS[kind]):
        load(folders, [kind], {})
    with pytest.raises(InputError, match=FAULTS[kind]):  # and without a list of broken ones the first ends it
        load(folders, ["good", kind], None)


def test_a_wrong_name_is_a_mistake_and_no_broken_model(folders):
    with pytest.raises(ConfigError, match="no such run folder"):
        load(folders, ["good", "nowhere"], {})
    with pytest.raises(ConfigError, match="the model is named twice"):
        load(folders, ["cold", "good", "cold"], {})


def test_an_error_that_nobody_thought_of_breaks_one_model_only(folders, monkeypatch):
    import glassformer.tasks.load as saving

    real = saving.load

    def fails(path: Any) -> Any:
        if Path(path).name == "cold":
            raise ZeroDivisionError
        return real(path)

    monkeypatch.setattr(saving, "load", fails)
    broken: dict[str, str] = {}
    assert len(load(folders, ["cold", "good"], broken)) == 1
    assert "could not be loaded (ZeroDivisionError)" in broken["cold"]
    with pytest.raises(CheckpointError, match="ZeroDivisionError"):
        load(folders, ["cold"], {})
