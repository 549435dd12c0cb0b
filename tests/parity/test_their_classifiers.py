"""Classifiers that transformers trained and saved: opened with their own head, they answer as its pipelines do."""

import json
import shutil

import numpy as np
import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet
from tests.parity.hub_folders import PIECES, make
from transformers import BertForMaskedLM, BertForSequenceClassification, BertTokenizer, pipeline

import glassformer as gf
from glassformer.checkpoints.files import write_folder
from glassformer.cli.app import main
from glassformer.errors import CheckpointError
from glassformer.export import onnx_folder
from glassformer.scale.scoring import _model_key

TEXTS = ["A warm and funny film.", "dull", "a dullish, bad film", "warm " * 40]


@pytest.fixture
def texts(tmp_path):
    """A folder with a fine-tuned BERT of three classes, as transformers writes it."""
    return make(tmp_path, "bert", "classification")


@pytest.fixture
def pictures(tmp_path):
    return make(tmp_path, "vit", "classification")


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
    assert clf.class_order_ == [1, 0, 2]
    clf.fit(["a warm film", "dull film"] * 4, ["yes", "no"] * 4)
    assert clf.classes_.tolist() == ["no", "yes"]
    assert clf.class_order_ is None
    assert "new (solved): classification head" in clf.weights_source_


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"problem_type": "regression"}, "regression"),
        ({"problem_type": "none"}, r"/config\.json: problem_type = 'none' is not known. Known: single"),
        ({"id2label": {"0": "good", "1": "good", "2": "bad"}}, "does not name each of the 3 outputs once"),
        ({"id2label": {"1": "good", "2": "fair", "3": "bad"}}, "does not name each of the 3 outputs once"),
        ({"id2label": {"0": "good", "1": None, "2": "bad"}}, "does not name each of the 3 outputs once"),
        ({"architectures": ["BertForQuestionAnswering"]}, "has no head for classes"),
    ],
)
def test_what_is_no_classifier_is_refused(texts, changes, said):
    settings = json.loads((texts / "config.json").read_text())
    (texts / "config.json").write_text(json.dumps(settings | changes))
    with pytest.raises(CheckpointError, match=said):
        gf.load(texts)


def test_one_class_alone_is_refused(tmp_path):
    folder = make(tmp_path, "bert", "classification", id2label={0: "one"})
    said = {"problem_type": "single_label_classification"}
    settings = json.loads((folder / "config.json").read_text()) | said
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=f"num_labels = 1 with problem_type = '{said['problem_type']}'"):
        gf.load(folder)


@pytest.mark.parametrize("head", ["mlm", "pretraining"])
def test_a_published_model_of_masked_words_fills(tmp_path, capsys, head):
    """Words and probabilities as by transformers' pipeline; saved, it is one of ours."""
    folder = make(tmp_path, "bert", head)
    learner = gf.load(folder)
    assert isinstance(learner, gf.MaskedLM)
    learner.precision = "fp32"
    text = "a warm [MASK] and a dull film ."
    found = dict(learner.fill(text, top=3))
    theirs = pipeline(
        "fill-mask",
        model=BertForMaskedLM.from_pretrained(folder).eval(),
        tokenizer=BertTokenizer.from_pretrained(folder),
    )
    wanted = {r["token_str"]: r["score"] for r in theirs(text, top_k=len(PIECES))}
    plain = {word: share for word, share in wanted.items() if word not in PIECES[:5]}
    total = sum(plain.values())  # special tokens are no words
    for word, share in found.items():
        assert share == pytest.approx(plain.get(word, plain.get(f"##{word}")) / total, abs=1e-5)
    again = gf.load(learner.save(tmp_path / "saved"))
    again.precision = "fp32"
    assert again.fill(text, top=3) == learner.fill(text, top=3)
    assert main(["fill", str(folder), text, "--top", "1"]) in (0, None)
    assert capsys.readouterr().out.split()[-2] in found
    assert main(["fill", str(folder), "[MASK]and[MASK]", "--top", "1"]) in (0, None)
    assert len(capsys.readouterr().out.splitlines()) == 3
    for verb in (["predict", str(folder), "a film"], ["explain", str(folder), "a film"]):
        assert main(verb) == 2
        assert "glassformer fill" in capsys.readouterr().err


def test_another_head_and_a_missing_tokenizer_are_refused(texts, tmp_path):
    bare = make(tmp_path, "bert", "mlm")
    for file in bare.glob("*tok*"):
        file.unlink()
    with pytest.raises(CheckpointError, match="tokenizer"):
        gf.load(bare)
    grown = json.loads((texts / "tokenizer.json").read_text())
    grown["added_tokens"].append(grown["added_tokens"][0] | {"id": len(PIECES), "content": "zorro"})
    (texts / "tokenizer.json").write_text(json.dumps(grown))
    with pytest.raises(CheckpointError, match="knows 23 tokens, the model 22"):
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
    before = _model_key(texts)
    (texts / "config.json").write_text((texts / "config.json").read_text() + "\n")
    assert _model_key(texts) != before


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


@pytest.mark.parametrize("kind", ["texts", "pictures"])
def test_their_folder_becomes_onnx(kind, request, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    clf = gf.load(request.getfixturevalue(kind))
    rng = np.random.default_rng(2)
    shown = [Image.fromarray(rng.integers(0, 255, (17, 23, 3), dtype=np.uint8)) for _ in range(7)]
    checked = onnx_folder.export_onnx(clf, tmp_path / "onnx", TEXTS if kind == "texts" else shown)
    assert checked["largest_difference"] <= 1e-4
    about = json.loads((tmp_path / "onnx" / "onnx.json").read_text(encoding="utf-8"))
    assert about["labels"] == clf.classes_.tolist()


def test_a_preprocessor_of_other_channels_is_refused(pictures):
    settings = json.loads((pictures / "preprocessor_config.json").read_text())
    settings |= {"image_mean": [0.5], "image_std": [0.5]}
    (pictures / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match="channels"):
        gf.load(pictures)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft calls it
def test_low_rank_updates_of_a_text_model_are_what_peft_opens(texts, tmp_path):
    peft = pytest.importorskip("peft")
    rows, labels = ["a warm film", "dull film", "funny and warm", "dullish"] * 4, ["yes", "no"] * 8
    settings = {"lora_rank": 3, "lora_alpha": 5.0, "lr": 0.02, "epochs": 3, "precision": "fp32"}
    clf = gf.TextClassifier(str(texts), max_length=19, **settings)
    clf.fit(rows, labels).save_adapter(tmp_path / "adapter")
    base = BertForSequenceClassification.from_pretrained(texts).bert
    tuned = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    ids = torch.tensor([[2, 5, 6, 9, 3]])
    with torch.no_grad():
        started = BertForSequenceClassification.from_pretrained(texts).bert.eval()(ids).last_hidden_state
        wanted = tuned(input_ids=ids).last_hidden_state
        found = clf.model_.eval()(ids).last_hidden_state
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert (wanted - started).abs().max() > 0.01  # it has learned something


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft on transformers
def test_an_adapter_s_head_finds_its_classes(texts, tmp_path):
    """The classes are sorted here; the rows of a head that peft saved are in the base's order."""
    peft = pytest.importorskip("peft")
    base = BertForSequenceClassification.from_pretrained(texts)
    config = peft.LoraConfig(r=3, target_modules=["query"], task_type="SEQ_CLS", init_lora_weights=False)
    torch.manual_seed(5)
    tuned = peft.get_peft_model(base, config).eval()
    tuned.save_pretrained(tmp_path / "adapter")
    clf = gf.load(texts).set_params(precision="fp32").load_adapter(tmp_path / "adapter")
    tokens = BertTokenizer.from_pretrained(texts)
    with torch.no_grad():
        rows = [tokens(text, truncation=True, max_length=19, return_tensors="pt") for text in TEXTS]
        logits = torch.cat([tuned(**row).logits for row in rows])
    columns = [["good", "bad", "so-so"].index(label) for label in clf.classes_]
    wanted = logits.softmax(-1).numpy()[:, columns]
    np.testing.assert_allclose(clf.predict_proba(TEXTS), wanted, atol=1e-5)
    assert np.ptp(wanted, axis=1).min() > 0.01
    copy = gf.load(texts).save(tmp_path / "copy")
    again = gf.load(copy).set_params(precision="fp32")
    assert again.classes_.tolist() == clf.classes_.tolist()
    np.testing.assert_array_equal(
        again.load_adapter(tmp_path / "adapter").predict_proba(TEXTS), clf.predict_proba(TEXTS)
    )


def test_a_saved_copy_has_the_rows_of_the_head_where_the_original_has_them(texts, tmp_path):
    clf = gf.load(texts).set_params(precision="fp32")
    copy = clf.save(tmp_path / "copy")
    theirs = [BertForSequenceClassification.from_pretrained(folder).eval() for folder in (texts, copy)]
    assert theirs[0].config.id2label == theirs[1].config.id2label == {0: "good", 1: "bad", 2: "so-so"}
    torch.testing.assert_close(theirs[0].classifier.weight, theirs[1].classifier.weight)
    again = gf.load(copy)
    assert again.class_order_ == [1, 0, 2]
    np.testing.assert_array_equal(again.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    clf.threshold_ = 0.5  # goes with the order of its classes
    assert gf.load(clf.save(tmp_path / "cut")).classes_.tolist() == clf.classes_.tolist()
