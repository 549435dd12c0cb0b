"""A kind of input that nobody knows, two images, works wherever a model is asked once its task is registered."""

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from PIL import Image
from tests.commands import as_json, ok, served

from glassformer.config import setting
from glassformer.data.dataset import Dataset
from glassformer.data.findings import DoctorReport
from glassformer.data.image import open_image
from glassformer.data.image_sources import ImageSplit, resolve_path
from glassformer.data.tables import read_table
from glassformer.data.transform import PixelTable, read_images
from glassformer.export.outputs import ImageLabels
from glassformer.inputs.images import Images, ServedImages
from glassformer.inputs.rows import InputRequest, Row, read_columns
from glassformer.targets.multiclass import Classes
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.classifier import Classifier
from glassformer.tasks.estimator import with_settings
from glassformer.tasks.image_classification.estimator import ImageModel
from glassformer.tasks.image_classification.recipe import (
    ImageConfig,
    ImageDataConfig,
    ImageEvaluateConfig,
    ImageFitConfig,
    ImageModelConfig,
)
from glassformer.tasks.sections import RecipeKeys
from glassformer.tasks.supervised import supervised_task

COLUMNS = ("first", "second")


class Two(NamedTuple):
    first: Any
    second: Any


def pasted(two: Two) -> np.ndarray:
    """Both side by side."""
    return np.concatenate([np.asarray(open_image(x).resize((8, 8))) for x in two], 1)


class ServedTwo(ServedImages):
    kind = field = "image_pair"
    element, element_description, noun, examples = list[str], "Two images in base64", "pairs of images", ()

    def open_base64(self, content: Any, where: str) -> tuple[Any, int]:
        (a, m), (b, n) = (
            super(ServedTwo, self).open_base64(x, f"{where}[{i}]") for i, x in enumerate(content)
        )
        return Two(a, b), m + n


class TwoImages(Images):
    noun, placeholder, columns, served = "image pairs", "FIRST.png SECOND.png", (), ServedTwo

    def read(self, recipe: Any, source: str, targets_are_numbers: bool, **part: Any) -> Dataset:
        table = read_table(Path(source))
        sides = ([resolve_path(x, source) for x in table.read(name)] for name in COLUMNS)
        pairs = [Two(*pair) for pair in zip(*sides, strict=True)]
        return Dataset("pairs", {"train": ImageSplit(pairs, table.read("label"), source, table.rows)})

    def check(self, recipe: Any, splits: Any, folder: Path) -> None:
        pass

    def examine(self, dataset: Any, est: Any, recipe: Any, held_out: Any) -> DoctorReport:
        return DoctorReport(dataset.name, [], {})

    def rows(self, given: InputRequest) -> list[Row]:
        if not given.arguments[0].endswith(".csv"):
            return [Row(Two(*pair)) for pair in zip(given.arguments[::2], given.arguments[1::2], strict=True)]
        table = Path(given.arguments[0])
        found = read_columns(table, lambda table: COLUMNS, given)
        for values, row in found:
            row.text = Two(*(resolve_path(x, str(table)) for x in values))
        return [row for _, row in found]

    def examples_of_arguments(self, given: InputRequest, numbers: Any) -> list[Any]:
        return [row.text for row in self.rows(given)]

    def title(self, x: Any) -> str:
        return " and ".join(x)


class TwoLabels(ImageLabels):
    def samples(self, run: Any, count: int, seed: int = 0) -> Any:
        found, _ = super().samples(run, 2 * count, seed)
        return [Two(*pair) for pair in zip(found[::2], found[1::2], strict=True)], None


@dataclass(frozen=True)
class TwoRecipe(RecipeKeys):
    task: Literal["two-images"] = setting("two-images", "which engine runs it")
    data: ImageDataConfig = field(default_factory=ImageDataConfig)
    image: ImageConfig = field(default_factory=ImageConfig)
    model: ImageModelConfig = field(default_factory=ImageModelConfig)
    train: ImageFitConfig = field(default_factory=ImageFitConfig)
    evaluate: ImageEvaluateConfig = field(default_factory=ImageEvaluateConfig)


@with_settings
class TwoClassifier(ImageModel, Classifier, ImageFitConfig):
    RECIPE, INPUTS = TwoRecipe, TwoImages()

    @staticmethod
    def is_example(row: Any) -> bool:
        return isinstance(row, Two)

    @staticmethod
    def check(X: Any, origin: str = "pairs") -> list[Any]:
        return [Two(*x) for x in X]

    @staticmethod
    def copy_keys(examples: Any) -> list[str]:
        return list(map(str, examples))

    def pixels(self, example: Two, where: str = "pair") -> np.ndarray:
        return super().pixels(pasted(example), where)

    def encode(self, examples: Any) -> PixelTable:
        return read_images(list(map(pasted, examples)), self.transform_)

    def _training_table(self, examples: Any) -> PixelTable:
        return super()._training_table(list(map(pasted, examples)))

    def export_outputs(self) -> TwoLabels:
        return TwoLabels(self)


TASK = supervised_task(TwoClassifier, Classes(), label_of=str, report="classes")
RECIPE = """
task = "two-images"
data = { source = "pairs.csv", validation_size = 0.2, test_size = 0.2 }
image = { image_size = 8 }
model = { model = "vit-tiny", patch_size = 4, d_model = 14, num_layers = 1, num_heads = 2, d_ff = 11 }
train = { epochs = 2, batch_size = 8, lr = 0.01, precision = "fp32" }
evaluate = { grid = false }
"""


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """Where a run is going to be; 24 pairs lie beside it, dark or bright each."""
    monkeypatch.setitem(TASKS, TASK.name, TASK)
    monkeypatch.chdir(tmp_path)
    lines = ["first,second,label"]
    for i in range(24):
        shades = {"a": 40 * (i % 2), "b": 40 * (i // 2 % 2)}
        for name, shade in shades.items():
            Image.fromarray(np.full((9, 9, 3), 100 + shade + i, np.uint8)).save(f"{name}{i}.png")
        lines.append(f"a{i}.png,b{i}.png,{'same' if shades['a'] == shades['b'] else 'other'}")
    Path("pairs.csv").write_text("\n".join(lines))
    Path("two.toml").write_text(RECIPE)
    return Path("run")


def test_two_images_are_trained_asked_explained_and_served(run):
    """Predictions are the same from words, tables and HTTP, and messages say what they are of."""
    assert "next: glassformer predict run FIRST.png SECOND.png" in ok("train", "two.toml", "--out", "run").out
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "test image pairs" in page
    assert "B image pairs, N patches in all" in page
    typed = as_json("predict", "run", "a0.png", "b0.png", "a1.png", "b1.png")["answers"]
    table = as_json("predict", "run", "pairs.csv")["answers"]
    for one, wanted in zip(table[:2], typed, strict=True):
        assert one["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)
    assert (table[1]["row"], len(table)) == (3, 24)
    assert "test image pairs" in ok("evaluate", "run").out
    ok("explain", "run", "a0.png", "b0.png", "--out", "page.html")
    assert "a0.png and b0.png" in Path("page.html").read_text(encoding="utf-8")
    ok("cross-validate", "two.toml", "--folds", "2", "--out", "folds")

    def sent(i: int) -> list[str]:
        return [base64.b64encode(Path(f"{name}{i}.png").read_bytes()).decode() for name in "ab"]

    with served(run) as client:
        found = client.post("/v1/predict", json={"image_pairs": [sent(0), sent(1)]}).json()["predictions"]
        for one, wanted in zip(found, typed, strict=True):
            assert [*one["probabilities"].values()] == pytest.approx(wanted["probabilities"], abs=1e-5)
        assert client.post("/v1/explain", json={"image_pair": sent(0)}).json()["label"] == typed[0]["label"]
        wrong = client.post("/v1/predict", json={"image_pair": [sent(0)[0], "x"]}).json()["error"]
        assert (wrong["what"], wrong["where"]) == ("not base64", "image_pairs[0][1]")
        assert "no model here reads texts" in client.post("/v1/predict", json={"text": "a"}).text
        schema = client.get("/openapi.json").json()["components"]["schemas"]
        assert schema["Model"]["properties"]["kind"]["enum"] == ["text", "image", "image_pair"]


def test_two_images_are_exported(run):
    """The graph's probabilities are those of the model on 8 pairs."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    ok("train", "two.toml", "--out", "run")
    assert ok("export", "run", "--to", "onnx", "--check", "8").code == 0
