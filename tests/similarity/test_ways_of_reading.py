"""Prompts, dense layers and rounding: one text has one vector, whichever way it is asked for."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.tiny import sets
from tests.commands import ok

import glassformer as gf
from glassformer.checkpoints.sentences import write_sentences
from glassformer.errors import CheckpointError
from glassformer.models.sentences import Dense, EmbeddingSettings, Normalize, Pool
from glassformer.serve.limits import Limits
from glassformer.serve.models import ServedModel
from glassformer.targets.similarity import spearman
from glassformer.tasks.similarity.pairs import encode_table
from glassformer.tasks.similarity.search import at_least, nearest

from .tiny import PAIRS, SCORES, TEXTS, WIDTH, checkpoint, plain_model

PLAIN = EmbeddingSettings(Pool(("mean",)), (Normalize(),), 13)


def folder(path: Path, how: EmbeddingSettings) -> Path:
    write_sentences(how, path, plain_model(path).config)
    return path


def prompted(path: Path) -> gf.Embedder:
    pool = Pool(("mean",), include_prompt=False)
    how = replace(PLAIN, pool=pool, prompts={"q": "the dog and "}, default_prompt="q")
    return gf.Embedder(str(folder(path, how)), precision="fp32", threads=1)


def test_a_prompt_that_does_not_count_counts_nowhere(tmp_path):
    embedder = prompted(tmp_path / "p")
    wanted = embedder.encode(TEXTS)
    assert embedder.num_prompt_tokens() == 4  # [CLS] and three words
    served = ServedModel("p", embedder, Limits(), threads=1, precision="fp32")
    np.testing.assert_allclose(served.compute(served.prepare(TEXTS)), wanted, atol=1e-6)
    device = torch.device("cpu")
    found = encode_table(embedder.predictor(), embedder.table(TEXTS), device, embedder.num_prompt_tokens())
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert np.abs(encode_table(embedder.predictor(), embedder.table(TEXTS), device) - wanted).max() > 0.01
    # training evaluates the vectors that it gives
    embedder = prompted(tmp_path / "q").set_params(epochs=1, lr=1e-9, batch_size=3)
    embedder.fit(PAIRS, SCORES, validation=(PAIRS, SCORES))
    told = [r for r in embedder.history_ if r["kind"] == "evaluation"][-1]
    first, second = (embedder.encode([pair[side] for pair in PAIRS]) for side in (0, 1))
    assert told["score"] == pytest.approx(spearman((first * second).sum(1), np.array(SCORES)), abs=1e-6)


def test_an_index_is_of_one_way_to_a_vector(tmp_path):
    def dense(seed: int) -> EmbeddingSettings:
        weight = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(seed))
        return replace(PLAIN, after=(Dense(weight, None, "Identity"), Normalize()))

    ways = {
        "plain": PLAIN,
        "prompt": replace(PLAIN, prompts={"q": "the "}, default_prompt="q"),
        "small": replace(PLAIN, lowercase=True),
        "dense": dense(1),
        "other": dense(2),
    }
    made = {name: gf.Embedder(str(folder(tmp_path / name, how))) for name, how in ways.items()}
    made["clean"] = gf.Embedder(str(tmp_path / "plain"), clean="words")
    assert len({embedder.weights_digest() for embedder in made.values()}) == len(made)
    assert made["plain"].weights_digest() == gf.Embedder(str(tmp_path / "plain")).weights_digest()
    made["plain"].index(TEXTS)
    made["plain"].save_index(tmp_path / "index")
    with pytest.raises(CheckpointError, match="computed by another model"):
        made["prompt"].load_index(tmp_path / "index")


def test_a_text_is_as_near_to_its_copy_as_can_be(tmp_path):
    embedder = gf.Embedder(str(checkpoint(tmp_path / "m")), precision="fp32", threads=1)
    texts = [text for text in TEXTS for _ in range(2)]
    found = embedder.doubles(texts, least=1.0)
    assert {(i, j) for i, j, _ in found} >= {(2 * i, 2 * i + 1) for i in range(len(TEXTS))}
    embedder.index(TEXTS)
    assert all(text in dict(embedder.similar(text, least=1.0)) for text in TEXTS)
    table = np.random.default_rng(0).normal(size=(67, 5)).astype(np.float32)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    assert nearest(table, table, 1)[1].max() <= 1
    assert at_least(-1.0, -1.0)
    assert not at_least(0.5, 0.501)


def test_a_training_on_a_layer_that_is_no_sum_ends_with_its_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weight = torch.eye(WIDTH)
    folder(tmp_path / "tanh", replace(PLAIN, after=(Dense(weight, None, "Tanh"), Normalize())))
    lines = [f"{a} {i},{b} {i},{s}" for i in range(9) for (a, b), s in zip(PAIRS, SCORES, strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["first,second,score", *lines, ""]))
    words = ["train", "stsb-minilm", "--data", "pairs.csv", "--model", "./tanh", "--out", "run"]
    more = sets("epochs=1", "batch_size=8", "threads=1", "bootstrap=20", "baselines=false", "test_size=0.3")
    assert "no pairs are explained: a dense layer with Tanh" in ok(*words, *more).out
    assert (tmp_path / "run" / "report.html").is_file()


def test_what_json_has_no_word_for_is_null(tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "m")
    pq.write_table(pa.table({"text": ["a dog", "the cat"], "price": [float("nan"), 2.5]}), "t.parquet")
    out = ok("search", "m", "t.parquet", "a dog", "--json").out

    def no_word(name: str) -> None:
        raise ValueError(name)

    (answer,) = json.loads(out, parse_constant=no_word)
    assert None in [one["columns"]["price"] for one in answer["found"]]
