"""ONNX folders: they agree with the model, run without us, and are refused where they do not agree."""

import html
import json
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image

import glassformer as gf
from glassformer.data.text import Clean, clean_text
from glassformer.errors import ConfigError, GlassformerError
from glassformer.export import graph, onnx_folder
from glassformer.export.outputs import samples_of
from glassformer.export.padded import PaddedImages, PaddedText

from .conftest import (
    BUILDS,
    LABELS,
    PICTURE_BUILDS,
    PICTURES,
    PLAIN_BUILDS,
    TEXTS,
    TINY,
    alone,
    build,
    odd_pictures,
)


@pytest.fixture(scope="module")
def folder(text_model, tmp_path_factory, exporting) -> Path:
    text_model.temperature_, text_model.threshold_ = 1.7, 0.4
    path = tmp_path_factory.mktemp("onnx") / "folder"
    samples, _ = samples_of(text_model, "nowhere", 30)
    checked = onnx_folder.export_onnx(text_model, path, samples + TEXTS, labels=None, int8=True)
    assert checked["inputs"] == 70
    assert checked["largest_difference"] <= 1e-4
    assert checked["int8"]["largest_difference"] > checked["largest_difference"]
    return path


@pytest.mark.parametrize("name", [*BUILDS, *PLAIN_BUILDS, *PICTURE_BUILDS])
def test_padded_is_packed(name: str, tmp_path: Path):
    clf = build(name)
    clf.temperature_ = 0.6
    if clf.NOUN == "images":
        padded = PaddedImages(clf.model_, clf.transform_.mean, clf.transform_.std, 0.6)
        given = [torch.from_numpy(np.stack([clf.transform_.read(x) for x in PICTURES]))]
        expected = clf.export_outputs().outputs(PICTURES)
    else:
        texts = [" ".join(TEXTS[: 1 + i % 4])[: 7 + 11 * i] for i in range(20)]
        table = clf.encode(texts)
        ids = torch.zeros(20, 25, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i in range(20):
            at = slice(25 - len(table[i]), 25) if i % 2 else slice(0, len(table[i]))  # padding on either side
            ids[i, at], mask[i, at] = torch.from_numpy(table[i].astype(np.int64)), 1
        padded, given = PaddedText(clf.model_, 19, 0.6), [ids, mask]
        expected = clf.export_outputs().outputs(texts)
    with torch.inference_mode():
        logits, shares = padded(*given)
    torch.testing.assert_close(logits, torch.from_numpy(expected), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(shares, (torch.from_numpy(expected) / 0.6).softmax(1), atol=1e-5, rtol=1e-5)


def test_the_folder_runs_without_us(folder: Path, text_model):
    texts = ["a warm film", "dull dull dull", "a film of many numbers and words that it has never seen " * 4]
    code = (
        "import sys, runpy; sys.modules['glassformer'] = sys.modules['torch'] = None; "
        f"sys.argv = ['run.py', *{texts!r}]; runpy.run_path({str(folder / 'run.py')!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown = [line.split("\t") for line in done.stdout.splitlines()]
    shares = text_model.predict_proba(texts)
    assert [label for label, _ in shown] == text_model.decide(shares).tolist()
    places = [text_model.classes_.tolist().index(label) for label, _ in shown]
    assert [float(p) for _, p in shown] == pytest.approx(shares[range(3), places], abs=2e-4)
    assert (
        len((folder / "run.py").read_text(encoding="utf-8").splitlines()) <= 90
    )  # of one class by thresholds or none, several labels, pairs, numbers and their logarithms
    command = [sys.executable, str(folder / "run.py"), "a warm film", str(folder / "onnx.json")]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "onnx.json is a file or a folder, but this script takes texts" in refused.stderr
    about = json.loads((folder / "onnx.json").read_text(encoding="utf-8"))
    assert about["opset"] == 18
    assert about["threshold"] == 0.4


@pytest.mark.parametrize("mode", get_args(Clean))
def test_the_script_cleans_texts_as_the_model_does(mode: str, folder: Path, tmp_path: Path):
    script = (folder / "run.py").read_text(encoding="utf-8")
    cleaning = script[script.index("def clean(") : script.index("ATTRIBUTES = ")]
    names: dict = {"ABOUT": {"clean": mode}, "html": html, "re": re, "unicodedata": unicodedata}
    exec(cleaning, names)
    texts = "good... <b>film</b>, dull!|don't&amp;stop|phim_hay  lắm|ca\u0300 phe\u0302 ?|...|"
    for text in texts.split("|"):
        assert names["clean"](text) == clean_text(text, mode)


def test_pairs_whose_sides_are_read_apart(tmp_path: Path, exporting):
    pairs = [*zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True)]
    clf = gf.TextClassifier("encoder-mini", pairs="apart", **TINY).fit(pairs, LABELS)
    with pytest.raises(ConfigError, match="no class for pairs of texts that are encoded separately"):
        clf.export_outputs().check("hf")
    samples, _ = samples_of(clf, "nowhere", 11)
    checked = onnx_folder.export_onnx(clf, tmp_path / "folder", samples + pairs)
    assert checked["largest_difference"] <= 1e-4
    said = alone(tmp_path / "folder", *pairs[3])
    assert float(said.split("\t")[1]) == pytest.approx(clf.predict_proba(pairs[3:4]).max(), abs=2e-4)


def test_thresholds_of_three_classes_go_along(tmp_path: Path, exporting):
    clf = build(next(iter(BUILDS)))
    clf.classes_, clf.threshold_, clf.abstain_below_ = np.array(["a", "b", "c"]), None, None
    with torch.no_grad():
        old = clf.model_.head.out
        clf.model_.head.out = torch.nn.Linear(old.in_features, 3)
        clf.model_.head.out.weight.mul_(5)
    p = clf.predict_proba(TEXTS)
    clf.threshold_, clf.abstain_below_ = np.array([0.5, 0.2, 0.3]), float(np.median(p.max(1)))
    onnx_folder.export_onnx(clf, tmp_path / "folder", TEXTS, labels=None)
    about = json.loads((tmp_path / "folder" / "onnx.json").read_text(encoding="utf-8"))
    assert (about["threshold"], about["abstain_below"]) == ([0.5, 0.2, 0.3], clf.abstain_below_)
    said = [line.split("\t")[0] for line in alone(tmp_path / "folder", *TEXTS).splitlines()]
    assert said == [label or "(none)" for label in clf.predict(TEXTS)]
    assert len(set(said)) > 1


NEIGHBORS = tuple("json html re unicodedata pathlib numpy onnxruntime tokenizers PIL torch".split())


def test_what_lies_beside_the_script_is_not_imported(folder: Path, text_model, tmp_path: Path):
    place = tmp_path / "folder"
    shutil.copytree(folder, place)
    for name in NEIGHBORS:
        code = f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
        (place / f"{name}.py").write_text(code)
        (place / name).mkdir()
        (place / name / "__init__.py").write_text(code)
    for argv, cwd in (([str(place / "run.py")], tmp_path), (["run.py"], place), (["-m", "run"], place)):
        done = subprocess.run(
            [sys.executable, *argv, "a warm film"], capture_output=True, text=True, check=False, cwd=cwd
        )
        assert done.stdout.split("\t")[0] in text_model.classes_.tolist(), done.stderr
        assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", sorted(path.name for path in onnx_folder.SCRIPTS.glob("*.txt")))
def test_every_script_leaves_its_folder_out_before_it_imports(tmp_path: Path, name):
    script = (onnx_folder.SCRIPTS / name).read_text(encoding="utf-8")
    head, _, _ = script.partition("import numpy" if "import numpy" in script else "import torch")
    assert "import json" in head or "json" in head
    (tmp_path / "run.py").write_text(head + "print(json.__file__)\n")
    for module in ("json", "html", "pathlib", "re", "unicodedata"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('imported')")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "run.py"), "a", "b"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) not in done.stdout


def test_pictures_run_without_us(picture_model, tmp_path: Path, exporting):
    samples, _ = samples_of(picture_model, tmp_path, 12)
    checked = onnx_folder.export_onnx(picture_model, tmp_path / "onnx", samples)
    assert checked["largest_difference"] <= 1e-4
    files = []
    for i, picture in enumerate(samples[:3]):
        files.append(str(tmp_path / f"{i}.png"))
        Image.fromarray(picture).save(files[-1])
    files += odd_pictures(tmp_path)
    shown = [line.split("\t") for line in alone(tmp_path / "onnx", *files).splitlines()]
    assert [label for label, _ in shown] == picture_model.predict(files).tolist()
    shares = picture_model.predict_proba(files).max(1)
    assert [float(p) for _, p in shown] == pytest.approx(shares.tolist(), abs=2e-4)


def test_a_graph_that_differs_is_refused(text_model, tmp_path: Path, monkeypatch, exporting):
    real = onnx_folder.export_graph

    def wrong(module, *args):
        with torch.no_grad():
            module.model.head.out.bias += 3e-4
            real(module, *args)
            module.model.head.out.bias -= 3e-4

    monkeypatch.setattr(onnx_folder, "export_graph", wrong)
    with pytest.raises(GlassformerError, match="does not agree"):
        onnx_folder.export_onnx(text_model, tmp_path / "onnx", TEXTS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", PLAIN_BUILDS)
def test_models_without_attention_are_exported(name: str, tmp_path: Path, exporting):
    clf = build(name)
    samples, _ = samples_of(clf, "nowhere", 30)
    checked = onnx_folder.export_onnx(clf, tmp_path / "onnx", samples + TEXTS)
    assert checked["inputs"] == 70
    assert checked["largest_difference"] <= 1e-5
    # Padding on the left, as some tokenizers have it
    run = graph.open_graph(tmp_path / "onnx" / "model.onnx", 1)
    table = clf.encode(TEXTS[:7])
    ids = np.zeros((7, 19), np.int64)
    mask = np.zeros_like(ids)
    for i in range(7):
        ids[i, 19 - len(table[i]) :], mask[i, 19 - len(table[i]) :] = table[i], 1
    logits, _ = run({"input_ids": ids, "attention_mask": mask})
    np.testing.assert_allclose(logits, clf.export_outputs().outputs(TEXTS[:7]), atol=1e-5)


def test_samples_are_the_runs_own(text_model, tmp_path: Path):
    from tests.tables import write_predictions

    write_predictions(
        tmp_path / "predictions.csv", TEXTS, np.full((40, 2), 0.5), ["bad", "good"], labels=LABELS
    )
    texts, labels = samples_of(text_model, tmp_path, 10)
    assert [LABELS[TEXTS.index(text)] for text in texts] == labels
    more, none = samples_of(text_model, tmp_path, 50)
    assert none is None
    assert len(more) == 50
    assert TINY["max_length"] < max(len(text_model.encode([t])[0]) for t in texts) or len(set(more)) > 40
    model = SimpleNamespace(head=None)
    with pytest.raises(ConfigError, match="without a head for classes"):
        PaddedText(model, 19)


def test_int8_that_costs_too_much_is_not_kept(text_model, tmp_path: Path, monkeypatch, exporting):
    monkeypatch.setattr(text_model, "threshold_", None)  # whatever the tests before it left
    real, said = onnx_folder.open_graph, text_model.predict(TEXTS).tolist()

    def contrary(path, threads):
        """What int8 says is the opposite."""
        run = real(path, threads)
        return (lambda feeds: [-x for x in run(feeds)]) if path.name == "model-int8.onnx" else run

    monkeypatch.setattr(onnx_folder, "open_graph", contrary)
    given = {"int8": True, "validation": (TEXTS, said)}
    with pytest.raises(GlassformerError, match=r"100\.00 points of accuracy on 40 labeled texts") as caught:
        onnx_folder.export_onnx(text_model, tmp_path / "onnx", TEXTS[:3], **given)
    assert caught.value.exit_code == 1
    names = {p.name for p in (tmp_path / "onnx").iterdir()}
    assert "model.onnx" in names
    assert "model-int8.onnx" not in names
    found = json.loads((tmp_path / "onnx" / "onnx.json").read_text(encoding="utf-8"))["checked"]["int8"]
    assert found["removed"] is True
    assert (found["accuracy_fp32"], found["accuracy_int8"], found["judged"]) == (1.0, 0.0, 40)
    kept = onnx_folder.export_onnx(text_model, tmp_path / "kept", TEXTS[:3], **given, int8_tolerance=100)
    assert "removed" not in kept["int8"]
    assert (tmp_path / "kept" / "model-int8.onnx").is_file()
