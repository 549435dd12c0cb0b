"""Classifiers that transformers trained and saved: opened with their own head, they answer as its pipelines do."""

import json
import shutil

import numpy as np
import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertTokenizer,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    pipeline,
)

import glassformer as gf
from glassformer.checkpoints.files import write_folder
from glassformer.cli.app import main
from glassformer.errors import CheckpointError
from glassformer.study.scoring import _state

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "warm",
    "and",
    "funny",
    "film",
    "dull",
    "##ish",
    ".",
]
TEXTS = ["A warm and funny film.", "dull", "a dullish, endless film", "warm " * 40]


@pytest.fixture
def texts(tmp_path):
    """A folder with a fine-tuned BERT of three classes, as transformers writes it."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=13, hidden_size=22, num_hidden_layers=2, num_attention_heads=2, intermediate_size=31,
        max_position_embeddings=19, initializer_range=0.5, id2label={0: "good", 1: "bad", 2: "so-so"},
    )  # fmt: skip
    BertForSequenceClassification(config).eval().save_pretrained(tmp_path / "theirs")
    BertTokenizer(str(tmp_path / "vocab.txt"), model_max_length=19).save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


@pytest.fixture
def pictures(tmp_path):
    torch.manual_seed(1)
    config = ViTConfig(
        hidden_size=22, num_hidden_layers=2, num_attention_heads=2, intermediate_size=31, image_size=15, patch_size=5,
        initializer_range=0.5, id2label={0: "cat", 1: "dog", 2: "bird"},
    )  # fmt: skip
    ViTForImageClassification(config).eval().save_pretrained(tmp_path / "theirs")
    ViTImageProcessor(size={"height": 15, "width": 15}).save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


def by_name(answers: list[list[dict]], classes: np.ndarray) -> np.ndarray:
    return np.array([[{a["label"]: a["score"] for a in one}[c] for c in classes] for one in answers])


def test_texts_are_answered_as_by_their_pipeline(texts):
    clf = gf.load(texts)
    assert clf.classes_.tolist() == ["bad", "good", "so-so"]  # sorted, and the head's rows with them
    theirs = pipeline("text-classification", str(texts), top_k=None, device="cpu")
    wanted = by_name(theirs(TEXTS, truncation=True, max_length=19), clf.classes_)
    clf.set_params(precision="fp32")
    np.testing.assert_allclose(clf.predict_proba(TEXTS), wanted, atol=1e-5)
    assert clf.predict(TEXTS).tolist() == clf.classes_[wanted.argmax(1)].tolist()
    assert "classification head" in clf.weights_source_


def test_pictures_are_answered_as_by_their_pipeline(pictures):
    clf = gf.load(pictures)
    rng = np.random.default_rng(0)
    shown = [Image.fromarray(rng.integers(0, 255, (17, 23, 3), dtype=np.uint8)) for _ in range(5)]
    theirs = pipeline("image-classification", str(pictures), top_k=3, device="cpu")
    clf.set_params(precision="fp32")
    np.testing.assert_allclose(clf.predict_proba(shown), by_name(theirs(shown), clf.classes_), atol=1e-5)


def test_it_can_be_explained_saved_and_used_from_the_command_line(texts, tmp_path, capsys):
    clf = gf.load(texts)
    assert clf.explain(TEXTS[0], method="occlusion").words()
    clf.save(tmp_path / "ours")
    again = gf.load(tmp_path / "ours")
    np.testing.assert_array_equal(again.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    assert main(["predict", str(texts), TEXTS[0]]) == 0
    assert str(clf.predict(TEXTS[:1])[0]) in capsys.readouterr().out


def test_fitting_it_begins_a_new_head(texts):
    clf = gf.load(texts).set_params(epochs=1, precision="fp32", seed=0)
    clf.fit(["a warm film", "dull film"] * 4, ["yes", "no"] * 4)
    assert clf.classes_.tolist() == ["no", "yes"]
    assert "new (random): classification head" in clf.weights_source_


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"problem_type": "multi_label_classification"}, "several labels at once"),
        ({"problem_type": "regression"}, "regression"),
        ({"id2label": {"0": "good", "1": "good", "2": "bad"}}, "does not name each of the 3 outputs once"),
        ({"id2label": {"1": "good", "2": "fair", "3": "bad"}}, "does not name each of the 3 outputs once"),
        ({"id2label": {"0": "good", "1": None, "2": "bad"}}, "does not name each of the 3 outputs once"),
        ({"architectures": ["BertForTokenClassification"]}, "without a head for classes"),
    ],
)
def test_what_is_no_classifier_is_refused(texts, changes, said):
    settings = json.loads((texts / "config.json").read_text())
    (texts / "config.json").write_text(json.dumps(settings | changes))
    with pytest.raises(CheckpointError, match=said):
        gf.load(texts)


def test_another_head_and_a_missing_tokenizer_are_refused(texts, tmp_path):
    config = BertConfig(
        vocab_size=13, hidden_size=22, num_hidden_layers=1, num_attention_heads=2, intermediate_size=31
    )
    BertForMaskedLM(config).save_pretrained(tmp_path / "mlm")
    with pytest.raises(CheckpointError, match=r"without a head for classes.*load_pretrained"):
        gf.load(tmp_path / "mlm")
    grown = json.loads((texts / "tokenizer.json").read_text())
    grown["added_tokens"].append(grown["added_tokens"][0] | {"id": 13, "content": "zorro"})
    (texts / "tokenizer.json").write_text(json.dumps(grown))
    with pytest.raises(CheckpointError, match="more tokens than the model"):
        gf.load(texts)
    for name in ("tokenizer.json", "vocab.txt"):
        (texts / name).unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match="no tokenizer"):
        gf.load(texts)


def test_a_table_is_scored_and_another_model_is_noticed(texts, tmp_path):
    rows, table, scores = ["warm film", "dull"] * 5, tmp_path / "rows.parquet", tmp_path / "scores.parquet"
    parquet.write_table(pyarrow.table({"text": rows}), table)
    assert main(["predict", str(texts), "--data", str(table), "--out", str(scores)]) == 0
    said = parquet.read_table(scores).to_pydict()
    assert said["label"] == gf.load(texts).predict(rows).tolist()
    before = _state(texts)
    (texts / "config.json").write_text((texts / "config.json").read_text() + "\n")
    assert _state(texts) != before


def test_an_export_of_ours_and_a_name_of_the_hubs_are_folders_like_others(texts, tmp_path, monkeypatch):
    clf = gf.load(texts)
    write_folder(tmp_path / "exported", lambda folder: _copy(texts, folder))
    np.testing.assert_array_equal(
        gf.load(tmp_path / "exported").predict_proba(TEXTS), clf.predict_proba(TEXTS)
    )
    shutil.copytree(texts, tmp_path / "here" / "all-minilm-l6-v2")
    monkeypatch.chdir(tmp_path / "here")
    assert gf.load("all-minilm-l6-v2").classes_.tolist() == clf.classes_.tolist()


def _copy(source, folder):
    shutil.copytree(source, folder, dirs_exist_ok=True)


def test_an_estimator_that_lost_its_file_is_not_taken_for_theirs(texts, tmp_path):
    gf.load(texts).save(tmp_path / "ours")
    (tmp_path / "ours" / "glassformer.json").unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        gf.load(tmp_path / "ours")
