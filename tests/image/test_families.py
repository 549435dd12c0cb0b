"""Every image family of the Hub at work: tuned, frozen, by LoRA, explained, exported, and by its names."""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.data.transform import IMAGENET_MEAN, IMAGENET_STD, ImageTransform
from glassformer.explain.methods import NETWORK_METHODS
from glassformer.export.hf_folder import export_hf
from glassformer.export.onnx_folder import export_onnx
from glassformer.families import FAMILIES
from glassformer.families.pretrained import save_pretrained
from glassformer.inputs.images import save_transform

from ..checkpoints.conftest import fake_hub  # noqa: F401  a fixture
from .conftest import encoded, quarters

EACH = pytest.mark.parametrize(
    "name", [n for n, f in FAMILIES.items() if f.hub and f.model.reads == "images"]
)
SMALL = {"precision": "fp32", "threads": 1, "batch_size": 16, "lr": 1e-2, "epochs": 9, "augment": "none"}
PICTURES, LABELS = quarters(48, 3)


def put(name: str, folder: Path) -> Path:
    """A folder as the Hub has it, for images of 11 pixels of which it cuts 8."""
    torch.manual_seed(13)
    config = replace(FAMILIES[name].tiny(), init_std=0.2, head=None, pooling=None)
    save_pretrained(FAMILIES[name].model(config).eval(), folder)
    save_transform(ImageTransform((8, 8), "crop", 9, "bicubic", IMAGENET_MEAN, IMAGENET_STD), folder)
    return folder


TUNED = (
    {"epochs": 29},
    {"lora_rank": 3, "epochs": 1},
    {"train_layers": 0, "epochs": 1},
    {"image_size": 12, "epochs": 1},
)


@EACH
def test_tuned_whole_by_lora_and_by_its_head(name, tmp_path):
    folder = put(name, tmp_path / "hub")
    start = gf.load_pretrained(folder).state_dict()
    for i, options in enumerate(TUNED):
        clf = gf.ImageClassifier(str(folder), **(SMALL | options)).fit(PICTURES, LABELS)
        assert i or clf.score(PICTURES, LABELS) >= 0.9
        assert clf.model_.config.pooling == FAMILIES[name].hub.pooling
        state = clf.model_.state_dict()
        kept = all(torch.equal(state[k], v) for k, v in start.items() if k.startswith("encoder."))
        assert kept == ("train_layers" in options)
        again = gf.load(clf.save(tmp_path / f"saved-{i}"))
        np.testing.assert_array_equal(again.predict_proba(PICTURES), clf.predict_proba(PICTURES))
        assert again.model_.config == clf.model_.config
    probe = gf.Probe(str(folder), pooling="patches").fit(PICTURES, LABELS)
    assert probe.predict(PICTURES[:3]).shape == (3,)
    assert probe.explain_similarity(*PICTURES[:2]).table.shape == (4, 4)  # patches alone


@EACH
def test_patches_are_explained_and_maps_shown(name, tmp_path):
    clf = gf.ImageClassifier(str(put(name, tmp_path / "hub")), **SMALL).fit(PICTURES, LABELS)
    tokens = clf.model_.config.embedding.num_tokens
    for method in NETWORK_METHODS:
        found = clf.explain(PICTURES[1], method=method, maps=True)
        assert found.scores.shape == (2, 2)
        assert np.abs(found.scores).max() > 0
        assert found.maps.shape == (2, 3, tokens, tokens)
        np.testing.assert_allclose(found.maps.sum(-1), 1.0, atol=1e-5)
    assert "</svg>" in found.save(tmp_path / "page.html").read_text()


@EACH
def test_exported_to_the_hub_s_layout(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    folder, hub = put(name, tmp_path / "hub"), FAMILIES[name].hub
    clf = gf.ImageClassifier(str(folder), **(SMALL | {"epochs": 1})).fit(PICTURES, LABELS)
    found = export_hf(clf, tmp_path / "whole", PICTURES)
    assert (found["opens_as"], found["whole"]) == (hub.classes["classification"], True)
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "whole").eval()
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "whole", backend="pil")
    with torch.inference_mode():
        logits = model(**processor(PICTURES, return_tensors="pt")).logits
    np.testing.assert_allclose(logits.softmax(1).numpy(), clf.predict_proba(PICTURES), atol=1e-5)
    again = gf.load(tmp_path / "whole").set_params(precision="fp32")
    np.testing.assert_allclose(again.predict_proba(PICTURES), clf.predict_proba(PICTURES), atol=1e-6)


@EACH
@pytest.mark.parametrize("pooling", [pytest.param("mean", marks=pytest.mark.slow), "first-mean"])
def test_a_head_of_ours_is_run_by_the_script_beside_it(name, pooling, tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")
    folder = put(name, tmp_path / "hub")
    if pooling == "first-mean" and not FAMILIES[name].tiny().embedding.class_token:
        pooling = "max"
    clf = gf.ImageClassifier(str(folder), pooling=pooling, head="mlp", **(SMALL | {"epochs": 1}))
    clf.fit(PICTURES, LABELS)
    assert not export_hf(clf, tmp_path / "beside", PICTURES)["whole"]
    files = [str(tmp_path / f"{i}.png") for i in range(3)]
    for file, picture in zip(files, PICTURES):
        Path(file).write_bytes(encoded(picture))
    monkeypatch.setattr(sys, "argv", ["run.py", *files])
    capsys.readouterr()
    runpy.run_path(str(tmp_path / "beside" / "run.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert [line.split("\t")[0] for line in said.splitlines()] == clf.predict(PICTURES[:3]).tolist()


@pytest.mark.slow
@EACH
def test_exported_as_a_graph(name, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    clf = gf.ImageClassifier(str(put(name, tmp_path / "hub")), **(SMALL | {"epochs": 1}))
    clf.fit(PICTURES, LABELS)
    assert export_onnx(clf, tmp_path / "graph", PICTURES)["largest_difference"] <= 1e-4


@EACH
def test_masked_patches_go_on_from_it(name, tmp_path):
    options = {"mask_share": 0.5, "epochs": 1, "batch_size": 16}
    mae = gf.MaskedPatches(str(put(name, tmp_path / "hub")), precision="fp32", **options).fit(PICTURES)
    assert mae.embed(PICTURES[:3]).shape == (3, 12)
    mae.save(tmp_path / "saved")
    clf = gf.ImageClassifier(str(tmp_path / "saved"), **(SMALL | {"epochs": 29})).fit(PICTURES, LABELS)
    assert clf.score(PICTURES, LABELS) > 0.5
