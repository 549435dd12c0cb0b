"""Files for others: ``export``, ``embed``, and what a full disk leaves."""

import json
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import glassformer as gf_package
from glassformer.cli.export import sample_validation
from glassformer.data.text import word_tokenizer
from glassformer.families.bert import bert
from glassformer.families.pretrained import save_pretrained
from glassformer.models.text import TextEncoder
from glassformer.tasks.build import save_tokenizer

from .tiny import sentences, settings, snapshot, write_csv


def test_onnx(ok, refused, run: Path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    result = ok("export", run, "--to", "onnx", "--int8", "--int8-tolerance", 50, "--check", 4)
    assert f"{run / 'onnx'}: 4 inputs, same labels" in result.out
    validation = sample_validation(run)
    assert validation is not None
    assert f" on {len(validation[0])}" in result.err.splitlines()[-1]
    about = json.loads((run / "onnx" / "onnx.json").read_text(encoding="utf-8"))
    assert about["checked"]["inputs"] == 4
    assert "exists" in refused("export", run, "--to", "onnx")


# --- vectors ----------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path):
    """A tiny folder of sentence-transformers, with a prompt."""
    folder, tokenizer = tmp_path / "encoder", word_tokenizer(["a splendid film query :"], min_count=1)
    save_pretrained(TextEncoder(bert(tokenizer.get_vocab_size(), 12, 2, 3, 17)), folder)
    save_tokenizer(tokenizer, folder, 19)
    steps = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in steps]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"ask": "query : "}}))
    return folder


def test_a_checkpoint(gf, ok, refused, checkpoint, tmp_path):
    texts = ["a splendid film", "film"]
    result = gf("embed", checkpoint, *texts, "--out", "v.npy")
    assert result.out == "2 embeddings of dimension 12: v.npy\n"
    found = np.load(tmp_path / "v.npy", allow_pickle=False)
    model = gf_package.load(checkpoint)  # computes in the processor's own number format
    np.testing.assert_array_equal(found, model.encode(texts))
    np.testing.assert_allclose(found, gf_package.load_pretrained(checkpoint).embed(texts), atol=0.02)
    ok("embed", checkpoint, *texts, "--out", "ask.npy", "--prompt-name", "ask")
    np.testing.assert_array_equal(np.load(tmp_path / "ask.npy"), model.encode(texts, prompt="query : "))
    said = refused("embed", checkpoint, "film", "--out", "x.npy", "--prompt-name", "aks")
    assert "unknown prompt 'aks'. Did you mean 'ask'" in said
    (checkpoint / "modules.json").unlink()
    assert "has no modules.json" in refused("embed", checkpoint, "film", "--out", "x.npy")


def test_a_run(ok, refused, run, tmp_path):
    rows = sentences(7)
    source = write_csv(tmp_path / "in.csv", rows)
    ok("embed", run, source, "--out", "v.npy")
    found = np.load(tmp_path / "v.npy", allow_pickle=False)
    texts = [text for text, _ in rows]
    np.testing.assert_allclose(found, gf_package.load(run).embed(texts), atol=1e-6)
    ok("embed", f"{run}/model", source, "--out", "w.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), found)
    assert "the output file exists" in refused("embed", run, source, "--out", "v.npy")


def test_models_that_embed_no_texts(ok, refused, tmp_path):
    vectors = gf_package.Word2Vec(dim=5, min_count=1, epochs=1, threads=1).fit(["a film and a plot"] * 5)
    vectors.save(tmp_path / "vectors")
    assert "Use glassformer vectors" in refused("embed", "vectors", "film", "--out", "x.npy")
    clf = gf_package.TextClassifier("lstm", d_model=7, embedding_dim=5, min_count=1, epochs=1)
    clf.fit(["a warm film", "a dull film"] * 5, [0, 1] * 5).save(tmp_path / "lstm")
    ok("embed", "lstm", "film", "--out", "l.npy")  # what its head reads
    assert np.load(tmp_path / "l.npy").shape == (1, 14)
    shutil.copytree(tmp_path / "lstm", tmp_path / "bare")
    (tmp_path / "bare" / "glassformer.json").unlink()
    assert "cannot embed texts" in refused("embed", "bare", "film", "--out", "x.npy")


def test_pictures(ok, refused, tmp_path):
    from PIL import Image

    pictures = [np.full((8, 8, 3), 40 * i, np.uint8) for i in range(6)]
    sizes = {"image_size": 8, "patch_size": 4, "d_model": 12, "num_layers": 1, "num_heads": 3, "d_ff": 17}
    clf = gf_package.ImageClassifier("vit-tiny", epochs=1, **sizes)
    clf.fit(pictures, [0, 1] * 3).save(tmp_path / "squares")
    Image.fromarray(pictures[5]).save(tmp_path / "five.png")
    ok("embed", "squares", "five.png", "--out", "v.npy")
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), clf.embed(pictures[5:]), atol=1e-6)
    said = refused("embed", "squares", "five.png", "--out", "x.npy", "--prompt-name", "ask")
    assert "images have no prompts" in said


# --- a full disk ------------------------------------------------------------------------------------


@contextmanager
def no_file_longer_than(limit: int) -> Iterator[None]:
    """The system refuses the bytes behind it, to Python as to compiled code."""
    before, heard = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heard)


VERBS = {
    "predict": (["predict", "run", "reviews.csv", "--out", "new.csv"], "new.csv"),
    "predict --data": (["predict", "run", "--data", "table.parquet", "--out", "new.parquet"], "new.parquet"),
    "explain, a page": (["explain", "run", "a splendid film", "--out", "new.html"], "new.html"),
    "explain, figures": (["explain", "run", "a splendid film", "--out", "new.json"], "new.json"),
    "embed": (["embed", "run", "reviews.csv", "--out", "new.npy"], "new.npy"),
    "export": (["export", "run", "--to", "onnx", "--out", "new", "--check", "3"], "new"),
    "report": (["report", "run"], "report.html"),
    "vectors": (["vectors", "vectors.txt", "--out", "new.bin"], "new.bin"),
    "reproduce --table": (["reproduce", "--table", "--out", "new.md"], "new.md"),
}


@pytest.mark.parametrize("limit", [0, 131])
@pytest.mark.parametrize(
    "verb", [pytest.param(v, marks=pytest.mark.slow) if v == "export" else v for v in VERBS]
)
def test_nothing_is_left_half_written(gf, ok, run, reviews, tmp_path, verb, limit):
    argv, named = VERBS[verb]
    texts = pa.table({"text": ["a splendid film", "a dreadful plot"] * 11})
    pq.write_table(texts, tmp_path / "table.parquet")
    vectors = "".join(f"word{i} {' '.join([str(i)] * 11)}\n" for i in range(7))
    (tmp_path / "vectors.txt").write_text(f"7 11\n{vectors}")
    before = snapshot(tmp_path)
    with no_file_longer_than(limit):
        result = gf(*argv)
    assert result.code == 1, result
    assert result.err.count("\n") == 1, result.err
    assert "could not be written: " in result.err
    assert named in result.err
    assert snapshot(tmp_path) == before
    ok(*argv)  # and what is left does not stand in the way of the next call
    assert not [name for name in snapshot(tmp_path) if ".tmp" in name]


def test_a_training_says_it_and_goes_on_later(gf, ok, reviews, tmp_path):
    argv = ["train", "--text", reviews, "--out", "new", *settings()]
    with no_file_longer_than(4_099):
        result = gf(*argv)
    assert result.code == 1, result
    assert "could not be written: " in result.err.splitlines()[-1]
    left = snapshot(tmp_path / "new")
    assert all(len(content) != 4_099 for content in left.values()), "a file ends where the disk did"
    assert not [name for name in left if ".tmp" in name]
    ok(*argv, "--resume")
