"""reproduce ROW --check: the row as given, its weights from a Hub on this machine, its figure beside the published one."""

from __future__ import annotations

import io
import json
import runpy
from dataclasses import replace
from functools import partial
from pathlib import Path

import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from glassformer import save_pretrained
from glassformer.checkpoints.hub import CATALOG
from glassformer.data.transform import ImageTransform
from glassformer.families.vit import vit
from glassformer.inputs.images import save_transform
from glassformer.models.image import ImageEncoder

HUB = runpy.run_path(str(Path(__file__).parents[1] / "checkpoints" / "fake_hub.py"))


@pytest.fixture
def fake_hub(tmp_path, monkeypatch):
    fake = HUB["FakeHub"]()
    real = huggingface_hub.snapshot_download
    redirected = partial(real, endpoint=fake.url, cache_dir=tmp_path / "cache", max_workers=2)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", redirected)
    monkeypatch.setattr(huggingface_hub, "HfApi", partial(huggingface_hub.HfApi, endpoint=fake.url))
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


@pytest.fixture
def vit_1000(tmp_path, fake_hub):
    """A tiny ViT in the layout of vit-base-patch16-224: a head of 1,000 classes, no pooler, its own scaling."""
    folder = tmp_path / "vit"
    config = vit((224, 224), (16, 16), 12, 1, 3, 17, pooling="first", head="classification")
    save_pretrained(ImageEncoder(replace(config, num_labels=1_000)), folder)
    save_transform(ImageTransform((224, 224)), folder)
    known = CATALOG["vit-base-patch16-224"]
    fake_hub.repos[known.repo] = {known.revision: {p.name: p.read_bytes() for p in folder.iterdir()}}
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["ViTForImageClassification"]


@pytest.fixture
def cifar10(tmp_path, monkeypatch):
    """Twenty pictures of ten classes to learn, ten to judge, where the real ones would be."""
    folder = tmp_path / "data" / "cifar10"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for split, count in (("train", 20), ("test", 10)):
        pictures = []
        for i in range(count):
            file = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(file, "PNG")
            pictures.append({"bytes": file.getvalue(), "path": f"{split}{i}.png"})
        pq.write_table(
            pa.table({"img": pictures, "label": [i % 10 for i in range(count)]}), folder / f"{split}.parquet"
        )
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path / "data"))


def test_the_row_runs_as_given_and_has_a_verdict_an_epoch(gf, tmp_path, vit_1000, cifar10):
    result = gf("reproduce", "2", "--check", "--out", tmp_path / "r")
    assert result.code == 0, result.err
    lines = [line for line in result.out.splitlines() if line.startswith("cifar10-vit-base-given: epoch")]
    assert [line.split(" here, ")[1].split(" there")[0] for line in lines] == ["97.40%", "97.80%", "97.96%"]
    assert all(line.endswith("not reached") for line in lines)
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text(encoding="utf-8"))
    assert [e["epoch"] for e in metrics["epochs"]] == [1, 2, 3]
    assert "Hugging Face Hub google/vit-base-patch16-224" in metrics["weights_source"]
    assert "new (random): classification head" in metrics["weights_source"]
    assert len(metrics["label_names"]) == 10


def test_other_settings_have_no_verdict(gf, tmp_path, vit_1000, cifar10):
    result = gf(
        "reproduce", "2", "--check", "--out", tmp_path / "r", "--set", "epochs=1", "--set", "baselines=false"
    )
    assert result.code == 0, result.err
    assert "no verdict: the row was run with settings of your own" in result.out
    assert "not reached" not in result.out


@pytest.mark.parametrize("row", ["1", "2", "9", "10", "13"])
def test_without_the_hub_it_is_one_line_before_anything_runs(refused, tmp_path, monkeypatch, row):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    line = refused("reproduce", row, "--check")
    assert "is not in the local cache, and offline mode is on" in line
    assert not (tmp_path / "runs").exists()
    assert "--table runs nothing" in refused("reproduce", "--table", "--check")
