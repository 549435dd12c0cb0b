"""Heads of several labels at once: folders of transformers are opened, and ours are opened by it, logits equal."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertTokenizerFast,
    pipeline,
)

import glassformer as gf
from glassformer.export.hf_folder import export_hf

TEXTS = ["the dog runs", "a cat", "the cat sees a dog", "rain"]
SETS = [["dog", "run"], ["cat"], ["cat", "dog"], []]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "runs", "a", "cat", "sees", "rain"]


@pytest.fixture
def theirs(tmp_path):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=22,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=31,
        max_position_embeddings=19,
        problem_type="multi_label_classification",
        initializer_range=0.5,
        id2label={0: "run", 1: "dog", 2: "cat"},
        label2id={"run": 0, "dog": 1, "cat": 2},
    )
    folder = tmp_path / "theirs"
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def test_theirs_are_answered_as_by_their_pipeline(theirs, tmp_path):
    clf = gf.load(theirs).set_params(precision="fp32")
    assert clf.classes_.tolist() == ["cat", "dog", "run"]  # sorted, and the head's rows with them
    asked = pipeline("text-classification", str(theirs), top_k=None, device="cpu")(TEXTS)
    wanted = np.array(
        [[next(a["score"] for a in one if a["label"] == c) for c in clf.classes_] for one in asked]
    )
    np.testing.assert_allclose(clf.predict_proba(TEXTS), wanted, atol=1e-5)
    assert clf.predict(TEXTS) == [tuple(clf.classes_[row >= 0.5]) for row in wanted]
    clf.save(tmp_path / "ours")
    assert gf.load(tmp_path / "ours").predict(TEXTS) == clf.predict(TEXTS)
    clf.set_params(epochs=1).fit(TEXTS * 3, SETS * 3)  # trained further
    assert clf.kind_.binary


def test_ours_open_as_theirs(theirs, tmp_path):
    clf = gf.TextClassifier(str(theirs), max_length=19, epochs=1, precision="fp32", pooling="pooler", seed=1)
    clf.fit(TEXTS * 3, SETS * 3, validation=(TEXTS, SETS))
    for folder in (tmp_path / "saved", tmp_path / "exported"):
        if folder.name == "saved":
            clf.save(folder)
        else:
            assert export_hf(clf, folder, TEXTS)["whole"]
        assert (
            json.loads((folder / "config.json").read_text())["problem_type"] == "multi_label_classification"
        )
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        assert model.config.problem_type == "multi_label_classification"
        assert list(model.config.id2label.values()) == ["cat", "dog", "run"]
        batch = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**batch).logits.numpy()
            labels = torch.tensor([[1.0, 0.0, 1.0]] * 4)
            loss = model(**batch, labels=labels).loss
        np.testing.assert_allclose(clf.logits(TEXTS), logits, atol=1e-5)
        wanted = torch.nn.functional.binary_cross_entropy_with_logits(torch.from_numpy(logits), labels)
        torch.testing.assert_close(loss, wanted)
    assert gf.load(tmp_path / "exported").set_params(precision="fp32").kind_.binary


def test_onnx_gives_the_same_labels(theirs, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    import subprocess
    import sys

    from glassformer.export.onnx_folder import export_onnx

    clf = gf.TextClassifier(str(theirs), max_length=19, epochs=1, precision="fp32", seed=1)
    clf.fit(TEXTS * 3, SETS * 3, validation=(TEXTS, SETS))
    clf.temperature_ = np.array([0.5, 1.0, 2.0])
    checked = export_onnx(clf, tmp_path / "onnx", TEXTS)
    assert checked["labels_changed"] == 0
    about = json.loads((tmp_path / "onnx" / "onnx.json").read_text())
    assert about["several"] is True
    assert about["threshold"] == clf.threshold_.tolist()
    done = subprocess.run(
        [sys.executable, tmp_path / "onnx" / "run.py", *TEXTS], capture_output=True, text=True, check=True
    )
    shares, given = clf.predict_proba(TEXTS), clf.predict(TEXTS)
    for line, row, labels in zip(done.stdout.splitlines(), shares, given, strict=True):
        cells = line.split("\t")
        assert tuple(cells[::2]) == (labels or ("(none)",))
        np.testing.assert_allclose(
            [float(x) for x in cells[1::2]], row[np.isin(clf.classes_, labels)], atol=2e-4
        )
