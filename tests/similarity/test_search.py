"""Nearest rows of a table: those that sorting all cosines gives, in bf16 too; and an index that is kept."""

import json

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.tasks.similarity.search import BF16_COSINE_ERROR, nearest
from glassformer.train.solved_head import unit

from .tiny import PAIRS, SCORES, TEXTS, tiny

TABLE = [text for pair in PAIRS for text in pair]


@pytest.fixture(scope="module")
def embedder() -> gf.Embedder:
    return tiny().fit(PAIRS)


def test_search_finds_what_sorting_all_cosines_finds(embedder):
    rows, cosines = embedder.search(["a dog", "three"], TABLE, k=3)
    all_of_them = embedder.similarity(["a dog", "three"], TABLE)
    np.testing.assert_allclose(cosines, -np.sort(-all_of_them, 1)[:, :3], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(all_of_them, rows, 1), cosines, atol=1e-6)
    assert rows[0][0] == 0
    same, _ = embedder.search(["a dog"], embedder.encode(TABLE), k=3)
    assert same[0].tolist() == rows[0].tolist()
    assert embedder.search(["a dog"], TABLE, k=97)[0].shape == (1, len(TABLE))
    with pytest.raises(ConfigError, match="k = 0 is below 1"):
        embedder.search(["a dog"], TABLE, k=0)
    with pytest.raises(DataError, match="vectors of 3 numbers, the model's have 14"):
        embedder.search(["a dog"], np.zeros((5, 3), np.float32))
    with pytest.raises(DataError, match="the text is empty"):
        embedder.search([""], TEXTS)


def test_candidates_in_bf16_lose_no_neighbor():
    rng = np.random.default_rng(3)
    table, queries = unit(rng.normal(size=(1009, 13))), unit(rng.normal(size=(301, 13)))
    exact = nearest(queries, table, 7)
    found = nearest(queries, table, 7, torch.bfloat16)
    np.testing.assert_allclose(found[1], exact[1], atol=1e-6)
    assert (found[0] == exact[0]).mean() > 0.999
    # no rounding moves a cosine further than it is allowed for
    rng = np.random.default_rng(7)
    for width in (61, 384, 1_024):
        a, b = (torch.from_numpy(unit(rng.normal(size=(101, width)).astype(np.float32))) for _ in range(2))
        b = torch.cat([b, a, -a])
        off = ((a.bfloat16() @ b.bfloat16().T).float() - a @ b.T).abs().max()
        assert off < BF16_COSINE_ERROR


def test_an_index_is_kept_without_pickle_and_belongs_to_its_model(embedder, tmp_path):
    with pytest.raises(ConfigError, match=r"Call index\(texts\) first"):
        tiny().fit(PAIRS).similar("a dog")
    before = embedder.index(TABLE, rows=range(2, 2 + len(TABLE))).similar("a dog", 3)
    assert before[0][0] == "a dog"
    folder = embedder.save_index(tmp_path / "index")
    names = {"index.json", "texts.jsonl", "vectors.safetensors", "manifest.json"}
    assert {file.name for file in folder.iterdir()} == names
    again = gf.load(embedder.save(tmp_path / "model")).load_index(folder)
    assert again.similar("a dog", 3) == before
    assert again.index_.row(0) == 2
    with pytest.raises(CheckpointError, match="computed by another model"):
        tiny(seed=5).fit(PAIRS, SCORES).load_index(folder)
    with pytest.raises(CheckpointError, match="is not an index"):
        embedder.load_index(tmp_path / "model")
    with pytest.raises(CheckpointError):
        embedder.save_index(folder)
    about = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps(about | {"texts": 3}))
    with pytest.raises(CheckpointError):
        again.load_index(folder)


@pytest.mark.parametrize("spread", [1.0, 0.2, 0.03, 0.01])
def test_the_nearest_are_found_however_close_the_rows_lie(spread):
    """bf16 tells cosines apart to 0.004; among rows closer than that it alone would miss nearly all."""
    rng = np.random.default_rng(5)
    table = unit((rng.normal(size=61) + spread * rng.normal(size=(2_003, 61))).astype(np.float32))
    queries = table[:17] + 0
    exact = np.sort(queries @ table.T, axis=1)[:, ::-1][:, :7]
    rows, cosines = nearest(queries, table, 7, torch.bfloat16)
    assert np.abs(cosines - exact).max() < 1e-5
    assert np.abs(np.take_along_axis(queries @ table.T, rows, 1) - exact).max() < 1e-5
    assert all(len(set(row)) == 7 for row in rows.tolist())
