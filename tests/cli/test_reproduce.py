"""``reproduce ROW``: as given, with ``--check`` on weights from a Hub on this machine, and in form on random ones."""

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

from glassformer import ImageClassifier, TextClassifier, save_pretrained
from glassformer.checkpoints.hub import CATALOG
from glassformer.data.transform import ImageTransform
from glassformer.families.bert import bert
from glassformer.families.vit import vit
from glassformer.inputs.images import save_transform
from glassformer.models.image import ImageEncoder
from glassformer.models.text import TextEncoder as Bert
from glassformer.report.published import find_row
from glassformer.tasks.run import Run

from .tiny import sentences, sets, write_csv

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
    """Twenty images of ten classes to learn, ten to judge, where the real ones would be."""
    folder = tmp_path / "data" / "cifar10"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for split, count in (("train", 20), ("test", 10)):
        pictures = []
        for i in range(count):
            file = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(file, "PNG")
            pictures.append({"bytes": file.getvalue(), "path": f"{split}{i}.png"})
        table = pa.table({"img": pictures, "label": [i % 10 for i in range(count)]})
        pq.write_table(table, folder / f"{split}.parquet")
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path / "data"))


def test_the_row_runs_as_given_and_has_a_verdict_an_epoch(ok, tmp_path, vit_1000, cifar10):
    result = ok("reproduce", "2", "--check", "--out", tmp_path / "r")
    lines = [line for line in result.out.splitlines() if line.startswith("cifar10-vit-base-given: epoch")]
    published = [line.split(" here, ")[1].split(" published")[0] for line in lines]
    assert published == ["97.40%", "97.80%", "97.96%"]
    assert all(line.endswith("not reached") for line in lines)
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text(encoding="utf-8"))
    assert [e["epoch"] for e in metrics["epochs"]] == [1, 2, 3]
    assert "Hugging Face Hub google/vit-base-patch16-224" in metrics["weights_source"]
    assert "new (random): classification head" in metrics["weights_source"]
    assert len(metrics["label_names"]) == 10


def test_other_settings_have_no_verdict(ok, tmp_path, vit_1000, cifar10):
    words = sets("epochs=1", "baselines=false")
    result = ok("reproduce", "2", "--check", "--out", tmp_path / "r", *words)
    assert "no verdict: the row was run with your own settings" in result.out
    assert "not reached" not in result.out


@pytest.mark.parametrize("row", ["1", "2", "9", "10", "13"])
def test_without_the_hub_it_is_one_line_before_anything_runs(refused, tmp_path, monkeypatch, row):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    line = refused("reproduce", row, "--check")
    assert "is not in the local cache, and offline mode is on" in line
    assert not (tmp_path / "runs").exists()


# --- in form ----------------------------------------------------------------------------------------


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of 24 images of two colours, of several sizes."""
    rng = np.random.default_rng(0)
    for i in range(24):
        label, level = (("hot", 200), ("cold", 60))[i % 2]
        file = tmp_path / "pictures" / label / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.normal(level, 20, (40 + i, 56, 3)).clip(0, 255).astype("uint8")
        Image.fromarray(pixels).save(file)
    return tmp_path / "pictures"


SIZES = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 16, "epochs": 1, "threads": 1}


@pytest.fixture
def tiny_bert(tmp_path: Path) -> Path:
    """A BERT folder with a vocabulary and random weights."""
    texts, labels = zip(*sentences(20), strict=True)
    of_texts = SIZES | {"tokenizer": "wordpiece", "max_length": 16, "min_count": 1}
    clf = TextClassifier("encoder-mini", **of_texts).fit(texts, labels)
    size = clf.tokenizer_.get_vocab_size()
    folder = tmp_path / "tiny-bert"
    folder.mkdir()
    save_pretrained(Bert(bert(size, 32, 1, 2, 64)), folder)
    clf.tokenizer_.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def tiny_vit(tmp_path: Path) -> Path:
    """A ViT folder for 224 px with random weights."""
    folder = tmp_path / "tiny-vit"
    images = np.random.default_rng(0).integers(0, 255, (4, 32, 32, 3), dtype=np.uint8)
    clf = ImageClassifier("vit-tiny", image_size=224, patch_size=56, **SIZES)
    return clf.fit(list(images), ["a", "b", "a", "b"]).save(folder)


def run(call, row: str, folder: Path, *changes: str) -> list[dict]:
    """The metrics of each recipe that a row gives."""
    words = ("epochs=1", "threads=1", "precision=fp32", "bootstrap=20", "baselines=false", *changes)
    result = call("reproduce", row, "--out", folder, *sets(*words))
    assert result.code == 0, result.err
    assert "with your own settings" in result.out
    given = find_row(row).original_recipes
    assert f"row {row}, " in result.out.splitlines()[0]
    assert all(name in result.out.splitlines()[0] for name in given)
    folders = [folder / name for name in given] if len(given) > 1 else [folder]
    assert all((each / "report.html").is_file() for each in folders)
    return [json.loads((each / "metrics.json").read_text(encoding="utf-8")) for each in folders]


def test_fine_tuning_bert(gf, tmp_path, tiny_bert):
    data = write_csv(tmp_path / "reviews.csv", sentences(40))
    (metrics,) = run(gf, "1", tmp_path / "r", f"model={tiny_bert}", f"source={data}", "test_size=8", "maps=1")
    assert str(tiny_bert) in metrics["weights_source"]


@pytest.mark.parametrize("row", ["2", "9", "10"])
def test_fine_tuning_vit(gf, tmp_path, pictures, tiny_vit, row):
    changes = f"model={tiny_vit}", f"source={pictures}", "validation_size=6", "test_size=6"
    runs = run(gf, row, tmp_path / "r", *changes, "robustness=false")
    assert len(runs) == (5 if row == "10" else 1)  # every rung of the ladder
    assert all(str(tiny_vit) in metrics["weights_source"] for metrics in runs)


@pytest.mark.parametrize(
    ("row", "done", "instead"),
    [
        ("1", (), "train imdb-minilm-best imdb-minilm-given imdb-own-bert-given imdb-minilm imdb-textcnn"),
        (
            "10",
            (),
            "compare hotdog-ladder-cifar hotdog-ladder-backbone flowers-ladder-cifar flowers-ladder-backbone",
        ),
        ("5", ("flowers-vit-given",), "train flowers-best"),
    ],
)
def test_weights_that_cannot_be_had_name_what_stands_for_them(
    refused, tmp_path, monkeypatch, row, done, instead
):
    def run_task(recipe, folder, **options):
        Path(folder).mkdir(parents=True)
        return Run(folder, {"test": {"accuracy": 0.5}}, Path("report.html"))

    monkeypatch.setattr("glassformer.tasks.run.run_task", run_task)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    line = refused("reproduce", row)
    verb, *names = instead.split()
    assert line.endswith(
        f"; or run a similar model: {' or '.join(f'glassformer {verb} {name}' for name in names)}"
    )
    assert {p.name for p in (tmp_path / "runs").glob("*")} == {*done}
