"""Taggers for other programs: transformers' token classes and pipeline, ONNX folders that run without us."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.cli.export import export
from glassformer.errors import ConfigError, GlassformerError
from glassformer.export.onnx_folder import export_onnx
from glassformer.export.outputs import WordTags, samples_of
from glassformer.export.padded import PaddedText

from .conftest import alone

WORDS = [["Ann", "lives", "in", "New", "York"], ["In", "Rome", "we", "met", "Bo"], ["nobody", "came"]] * 3
TAGS = [["B-person", "O", "O", "B-place", "I-place"], ["O", "B-place", "O", "O", "B-person"], ["O", "O"]] * 3
SMALL: dict[str, Any] = {"d_model": 14, "num_heads": 2, "d_ff": 11, "num_layers": 1, "vocab_size": 97}
LONG = ["Ann met Bo in New York and Rome " * 5, "in Rome"]


@pytest.fixture(scope="module")
def tagger() -> gf.TokenTagger:
    settings = {**SMALL, "tokenizer": "wordpiece", "epochs": 2, "lr": 0.02, "batch_size": 3, "max_length": 17}
    made = gf.TokenTagger("encoder-base", precision="fp32", threads=1, **settings).fit(WORDS, TAGS)
    made.temperature_ = 1.3
    return made


@pytest.fixture(scope="module")
def hub(tagger, tmp_path_factory) -> Path:
    run = tagger.save(tmp_path_factory.mktemp("run") / "names")
    folder, found = export(run, "hf", check=23)
    assert (found["whole"], found["opens_as"]) == (True, "BertForTokenClassification")
    assert found["inputs"] == 23
    assert found["largest_difference"] <= 1e-5
    return folder


def test_the_pipeline_finds_the_same_tags_and_ours_opens_what_theirs_saves(tagger, hub, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = json.loads((hub / "config.json").read_text())
    assert list(config["id2label"].values()) == tagger.classes_.tolist()
    assert config["label2id"] == {name: i for i, name in enumerate(tagger.classes_.tolist())}
    pipe = transformers.pipeline("token-classification", model=str(hub), device="cpu")
    text = " ".join(WORDS[0])
    found = {(part["start"], part["entity"]) for part in pipe(text)}
    (tags,) = tagger.predict([text])
    starts = np.cumsum([0, *(len(word) + 1 for word in WORDS[0][:-1])])
    wanted = {(int(s), tag) for s, tag in zip(starts, tags, strict=True) if tag != "O"}
    assert wanted  # or nothing would be compared
    assert wanted <= found  # a word's first piece; pipelines answer every piece
    pipe.save_pretrained(tmp_path / "theirs")
    back = gf.load(tmp_path / "theirs")
    assert isinstance(back, gf.TokenTagger)
    back.precision = "fp32"
    for a, b in zip(back.logits(WORDS[:3]), tagger.logits(WORDS[:3]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_padded_is_packed(tagger):
    rows = tagger.encode([text.split() for text in LONG])
    table, longest = rows.table, int(rows.table.lengths.max())
    ids = torch.zeros(len(table), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i in range(len(table)):
        ids[i, : len(table[i])], mask[i, : len(table[i])] = torch.from_numpy(table[i].astype(np.int64)), 1
    with torch.inference_mode():
        logits, shares = PaddedText(tagger.model_.eval(), 17, tagger.temperature_)(ids, mask)
    flat = logits[mask.bool()].numpy()[rows.first]
    np.testing.assert_allclose(flat, np.concatenate(tagger.logits(LONG)), atol=1e-5)
    np.testing.assert_allclose(
        shares[mask.bool()].numpy()[rows.first], np.concatenate(tagger.predict_proba(LONG)), atol=1e-5
    )


def test_sentences_to_check_on_are_those_of_the_run_first(tagger, tmp_path):
    (tmp_path / "predictions.conll").write_text("Ann\tO\tO\nleft\tO\tO\n\nBo\tO\tO\n")
    found, _ = samples_of(tagger, tmp_path, 11)
    assert found[:2] == [["Ann", "left"], ["Bo"]]
    assert len(found) == 11
    assert max(map(len, samples_of(tagger, "nowhere", 60)[0])) > 12  # in several windows


def test_what_cannot_be_expressed_is_one_line(tagger, tmp_path):
    other = gf.TokenTagger("encoder-mini", min_count=1, epochs=1, precision="fp32", threads=1, **SMALL)
    run = other.fit(WORDS, TAGS).save(tmp_path / "mini")
    with pytest.raises(ConfigError, match="transformers has no class"):
        export(run, "hf")
    assert not (run / "hf").exists()
    tagger.save(tmp_path / "names")
    (tmp_path / "there").mkdir()
    with pytest.raises(ConfigError, match="folder exists"):
        export(tmp_path / "names", "hf", tmp_path / "there")


def test_the_graph_agrees_and_runs_alone(tagger, tmp_path, exporting):
    folder = tmp_path / "onnx"
    samples = [*samples_of(tagger, "nowhere", 13)[0], *WORDS[:3]]
    found = export_onnx(tagger, folder, samples, int8=True, int8_tolerance=100, validation=(WORDS, TAGS))
    assert found["inputs"] == 16
    assert found["largest_difference"] <= 1e-4
    assert found["int8"]["judged"] == sum(map(len, WORDS))
    assert found["int8"]["largest_difference"] > found["largest_difference"]
    lines = [line.split("\t") for line in alone(folder, *LONG).splitlines() if line]
    shares = np.concatenate(tagger.predict_proba(LONG))
    assert [line[0] for line in lines] == [word for text in LONG for word in text.split()]
    assert [line[1] for line in lines] == [tag for tags in tagger.predict(LONG) for tag in tags]
    np.testing.assert_allclose([float(line[2]) for line in lines], shares.max(1), atol=2e-4)


def test_a_graph_that_answers_otherwise_is_not_kept(tagger, tmp_path, monkeypatch, exporting):
    real = WordTags.run_files
    monkeypatch.setattr(WordTags, "run_files", lambda *given: real(*given) + 1e-3)
    with pytest.raises(GlassformerError, match="does not agree"):
        export_onnx(tagger, tmp_path / "onnx", WORDS[:2])
    assert not (tmp_path / "onnx").exists()
