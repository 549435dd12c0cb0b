"""``glassformer embed``: vectors of texts and files, by a run, a saved classifier or a checkpoint."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import glassformer as gf_package
from glassformer.data.text import word_tokenizer
from glassformer.families.pretrained import save_pretrained
from glassformer.models.text import TextEncoder, TextEncoderConfig
from glassformer.nn import EncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.tasks.build import save_tokenizer

from .tiny import sentences, write_csv


@pytest.fixture
def checkpoint(tmp_path):
    """A tiny folder of sentence-transformers, with a prompt."""
    folder, tokenizer = tmp_path / "encoder", word_tokenizer(["a splendid film query :"], min_count=1)
    words = EmbeddingConfig(
        tokenizer.get_vocab_size(), 12, max_positions=19, segments=2, norm=True, eps=1e-12
    )
    save_pretrained(TextEncoder(TextEncoderConfig(words, EncoderConfig(12, 2, 3, 17), pooling=None)), folder)
    save_tokenizer(tokenizer, folder, 19)
    steps = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in steps]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"ask": "query : "}}))
    return folder


def test_a_checkpoint(gf, refused, checkpoint, tmp_path):
    texts = ["a splendid film", "film"]
    result = gf("embed", checkpoint, *texts, "--out", "v.npy")
    assert result.out == "2 vectors of 12 numbers: v.npy\n"
    found = np.load(tmp_path / "v.npy", allow_pickle=False)
    model = gf_package.load(checkpoint)  # computes in the processor's own number format
    np.testing.assert_array_equal(found, model.encode(texts))
    np.testing.assert_allclose(found, gf_package.load_pretrained(checkpoint).embed(texts), atol=0.02)
    assert gf("embed", checkpoint, *texts, "--out", "ask.npy", "--prompt-name", "ask").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "ask.npy"), model.encode(texts, prompt="query : "))
    assert "no prompt 'aks'. Did you mean 'ask'" in refused(
        "embed", checkpoint, "film", "--out", "x.npy", "--prompt-name", "aks"
    )
    (checkpoint / "modules.json").unlink()
    assert "has no modules.json" in refused("embed", checkpoint, "film", "--out", "x.npy")
    assert "neither a known checkpoint" in refused("embed", "no-such-model", "film", "--out", "x.npy")


def test_a_run(gf, refused, run, tmp_path):
    rows = sentences(7)
    source = write_csv(tmp_path / "in.csv", rows)
    assert gf("embed", run, source, "--out", "v.npy").code == 0
    found = np.load(tmp_path / "v.npy", allow_pickle=False)
    texts = [text for text, _ in rows]
    np.testing.assert_allclose(found, gf_package.load(run).embed(texts), atol=1e-6)
    assert gf("embed", f"{run}/model", source, "--out", "w.npy").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), found)
    assert "the output file exists" in refused("embed", run, source, "--out", "v.npy")
    assert "an array of numpy" in refused("embed", run, source, "--out", "v.csv")
    assert "the text is empty" in refused("embed", run, " ", "--out", "x.npy")
    assert "prompts belong to models" in refused(
        "embed", run, "film", "--out", "x.npy", "--prompt-name", "ask"
    )


def test_models_that_embed_no_texts(gf, refused, tmp_path):
    vectors = gf_package.Word2Vec(dim=5, min_count=1, epochs=1, threads=1).fit(["a film and a plot"] * 5)
    vectors.save(tmp_path / "vectors")
    assert "Use glassformer vectors" in refused("embed", "vectors", "film", "--out", "x.npy")
    texts = ["a warm film", "a dull film"] * 5
    gf_package.TextClassifier("lstm", d_model=7, embedding_dim=5, min_count=1, epochs=1).fit(
        texts, [0, 1] * 5
    ).save(tmp_path / "lstm")
    assert gf("embed", "lstm", "film", "--out", "l.npy").code == 0  # what its head reads
    assert np.load(tmp_path / "l.npy").shape == (1, 14)
    shutil.copytree(tmp_path / "lstm", tmp_path / "bare")
    (tmp_path / "bare" / "glassformer.json").unlink()
    assert "gives no vectors of texts" in refused("embed", "bare", "film", "--out", "x.npy")


def test_pictures(gf, refused, tmp_path):
    from PIL import Image

    pictures = [np.full((8, 8, 3), 40 * i, np.uint8) for i in range(6)]
    clf = gf_package.ImageClassifier(
        "vit-tiny", image_size=8, patch_size=4, d_model=12, num_layers=1, num_heads=3, d_ff=17, epochs=1
    )
    clf.fit(pictures, [0, 1] * 3).save(tmp_path / "squares")
    Image.fromarray(pictures[5]).save(tmp_path / "five.png")
    assert gf("embed", "squares", "five.png", "--out", "v.npy").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), clf.embed(pictures[5:]), atol=1e-6)
    assert "pictures have no prompts" in refused(
        "embed", "squares", "five.png", "--out", "x.npy", "--prompt-name", "ask"
    )
