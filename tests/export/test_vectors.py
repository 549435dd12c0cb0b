"""Embedders for other programs: sentence-transformers' folders, and ONNX folders that run without us."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.cli.app import main
from glassformer.cli.export import export
from glassformer.errors import ConfigError, GlassformerError
from glassformer.export import hf_folder
from glassformer.export.padded import PADDED
from glassformer.models.sentences import POOLS

from .conftest import alone

PAIRS = [("a dog runs", "the dog"), ("a cat", "the car here"), ("two", "three"), ("rain and sun", "sun")]
LONG = "a dog runs and the cat runs " * 5
SMALL = {"d_model": 14, "num_heads": 2, "d_ff": 11, "num_layers": 1, "min_count": 1, "epochs": 1}


@pytest.fixture(scope="module")
def model() -> gf.Embedder:
    known = {**SMALL, "batch_size": 3, "max_length": 13, "precision": "fp32", "threads": 1}
    return gf.Embedder("encoder-base", **known).fit(PAIRS, [5, 1, 0, 4])


def test_sentence_transformers_and_transformers_open_the_folder(model, tmp_path):
    transformers = pytest.importorskip("transformers")
    folder, found = export(model.save(tmp_path / "near"), "hf", check=11)
    assert (found["opens_as"], found["width"]) == ("BertModel", 14)
    assert found["largest_difference"] <= 1e-5
    assert not (folder / "glassformer.json").exists()
    texts, ours = [a for a, _ in PAIRS] + [LONG], model.encode([a for a, _ in PAIRS] + [LONG])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    peer = transformers.AutoModel.from_pretrained(folder).eval()
    read = tokenizer(texts, padding=True, truncation=True, max_length=13, return_tensors="pt")
    with torch.no_grad():
        states, mask = peer(**read).last_hidden_state, read["attention_mask"][..., None]
    mean = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
    assert np.abs(mean.numpy() - ours).max() <= 1e-5
    again = gf.Embedder(str(folder), precision="fp32")
    assert np.abs(again.encode(texts) - ours).max() <= 1e-5
    assert "SentenceTransformer" in (folder / "README.md").read_text()
    if find_spec("sentence_transformers"):  # of the extra for benchmarks
        from sentence_transformers import SentenceTransformer

        assert np.abs(SentenceTransformer(str(folder), device="cpu").encode(texts) - ours).max() <= 1e-5


def test_every_pooling_of_padded_texts_is_that_of_packed_ones():
    lengths, rng = (5, 1, 3), torch.Generator().manual_seed(3)
    packed = torch.randn(9, 7, generator=rng)
    padded, mask = torch.full((3, 5, 7), 9.0), torch.zeros(3, 5)
    for row, part in enumerate(packed.split(lengths)):
        padded[row, : len(part)], mask[row, : len(part)] = part, 1
    assert PADDED.keys() == POOLS.keys()
    for mode, pool in PADDED.items():
        ours = POOLS[mode](packed, gf.Packing(lengths), 0)
        torch.testing.assert_close(pool(padded, mask), ours, rtol=1e-5, atol=1e-5)


def test_onnx_runs_without_us(model, tmp_path, exporting):
    folder, found = export(model.save(tmp_path / "near"), "onnx", check=11)
    assert found["largest_difference"] <= 1e-4
    texts = ["a dog runs", "the dog", LONG]
    told = [line.split("\t") for line in alone(folder, *texts).splitlines()]
    assert [text for _, text in told] == [text.strip() for text in texts]
    assert np.allclose([float(x) for x, _ in told], model.similarity(["a dog runs"], texts)[0], atol=1e-4)
    numbers = np.array([json.loads(line) for line in alone(folder, "--vectors", *texts).splitlines()])
    assert np.abs(numbers - model.encode(texts)).max() <= 1e-4


def test_what_is_not_exported_is_said_and_what_differs_is_not_kept(model, tmp_path, monkeypatch, capsys):
    run = model.save(tmp_path / "near")
    with pytest.raises(ConfigError, match="no int8 export"):
        export(run, "onnx", int8=True, check=3)
    assert main(["export", str(run), "--to", "hf", "--check", "5"]) == 0
    assert "vectors differ by at most" in capsys.readouterr().out
    monkeypatch.setattr(hf_folder, "TOLERANCE", -1.0)
    with pytest.raises(GlassformerError, match="Nothing was written"):
        export(run, "hf", tmp_path / "other", check=3)
    assert not (tmp_path / "other").exists()
