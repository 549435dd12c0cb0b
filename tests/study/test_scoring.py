"""Scoring Parquet files by shards: the answers are predict_proba's, and a stopped call is gone on with."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import glassformer as gf
from glassformer.config import to_toml
from glassformer.errors import GlassformerError, InputError
from glassformer.inputs.texts import Texts
from glassformer.scale import scoring
from glassformer.scale.scoring import Shard, find_column, make_shards, score_file, score_shard
from glassformer.tasks.catalog import load_recipe

TEXTS = [f"a {('warm', 'dull')[i % 2]} film , number {i}" for i in range(23)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"d_model": 14, "num_heads": 2, "d_ff": 11, "max_length": 13, "min_count": 1}
    clf = gf.TextClassifier("encoder-mini", epochs=1, lr=1e-2, precision="fp32", threads=1, **sizes)
    clf.fit(TEXTS, ["good", "bad"] * 11 + ["good"])
    return clf.save(tmp_path_factory.mktemp("scoring") / "model")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """23 texts in row groups of 5, with a missing and an empty one among them."""
    texts: list[str | None] = list(TEXTS)
    texts[3], texts[11] = None, "  "
    path = tmp_path / "big.parquet"
    pq.write_table(pa.table({"id": range(23), "text": texts}), path, row_group_size=5)
    return path


@pytest.mark.parametrize("columns", [{"n": [1, 2]}, {"text": [1.5, 2], "id": [1, 2]}])
def test_a_column_of_numbers_is_no_text(tmp_path: Path, columns):
    pq.write_table(pa.table(columns), tmp_path / "numbers.parquet")
    said = r"column '(n|text)' contains (int64|double) values, not texts\. .*--text-column"
    with pytest.raises(InputError, match=said):
        find_column(tmp_path / "numbers.parquet", Texts())
    with pytest.raises(InputError, match="not texts"):
        find_column(tmp_path / "numbers.parquet", Texts(), next(iter(columns)))


def test_answers_are_those_of_predict_proba(model: Path, table: Path, tmp_path: Path):
    seen = []
    out = tmp_path / "scores.parquet"
    done = score_file(model, table, out, rows=7, progress=lambda rows, total: seen.append((rows, total)))
    assert done == {"rows": 23, "failed": 2, "truncated": 0}
    assert seen == [(7, 23), (7, 23), (7, 23), (2, 23)]
    rows = pq.read_table(out).to_pylist()
    assert [row["row"] for row in rows] == list(range(1, 24))
    assert [i for i, row in enumerate(rows) if row["error"]] == [3, 11]
    assert rows[11]["error"] == "the text is empty"
    assert rows[3]["label"] is rows[3]["probability"] is rows[3]["p:bad"] is rows[3]["truncated"] is None
    clf, good = gf.load(model), [i for i in range(23) if i not in (3, 11)]
    expected = clf.predict_proba([TEXTS[i] for i in good])
    np.testing.assert_allclose([[rows[i]["p:bad"], rows[i]["p:good"]] for i in good], expected, atol=1e-6)
    assert [rows[i]["label"] for i in good] == clf.decide(expected).tolist()
    assert not (tmp_path / "scores.parquet.parts").exists()


class PanicException(BaseException):
    """As the bindings of Rust raise one."""


def test_a_text_that_the_tokenizer_fails_on_has_an_error_of_its_own(model, table, tmp_path, monkeypatch):
    from glassformer.data import text

    real, bad = text.encode_batch, TEXTS[7]

    class Fails:
        def __init__(self, tokenizer):
            self.tokenizer = tokenizer

        def encode_batch_fast(self, part, **options):
            if bad in part:
                raise PanicException("index out of bounds")
            return self.tokenizer.encode_batch_fast(part, **options)

    failing = lambda tokenizer, texts, add: real(Fails(tokenizer), texts, add)  # noqa: E731
    monkeypatch.setattr(text, "encode_batch", failing)
    done = score_file(model, table, tmp_path / "out.parquet", rows=5)
    assert done["failed"] == 3
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["row"] for row in rows if row["error"]] == [4, 8, 12]
    assert rows[7]["error"] == f"the tokenizer fails on {bad!r} (index out of bounds)"
    assert all(row["label"] in ("good", "bad") for row in rows if not row["error"])


def test_a_stopped_call_is_gone_on_with(model: Path, table: Path, tmp_path: Path, monkeypatch):
    whole = tmp_path / "whole.parquet"
    score_file(model, table, whole, rows=7)
    out, real, made = tmp_path / "out.parquet", scoring._table, []

    def stops(clf, shard, note):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(shard.first)
        return real(clf, shard, note)

    monkeypatch.setattr(scoring, "_table", stops)
    with pytest.raises(KeyboardInterrupt):
        score_file(model, table, out, rows=7)
    assert not out.exists()
    parts = sorted((tmp_path / "out.parquet.parts").iterdir())
    assert [p.name for p in parts] == ["part-000000.parquet", "part-000001.parquet"]
    parts[1].write_bytes(parts[1].read_bytes()[:-9])  # cut by something else: made anew
    made.clear()
    monkeypatch.setattr(scoring, "_table", lambda *given: made.append(given[1].first) or real(*given))
    score_file(model, table, out, rows=7)
    assert made == [7, 14, 21]
    assert pq.read_table(out).equals(pq.read_table(whole))


def test_a_shard_is_done_once_and_anew_for_other_rows(model: Path, table: Path, tmp_path: Path, monkeypatch):
    shard = make_shards(table, tmp_path, "text", 9)[1]
    assert score_shard(model, shard) == 1
    before = os.stat(shard.target).st_mtime_ns
    assert score_shard(model, shard) == 1
    assert os.stat(shard.target).st_mtime_ns == before
    assert score_shard(model, Shard(shard.source, "text", 10, 9, shard.target)) == 1
    assert pq.read_table(shard.target)["row"][0].as_py() == 11


def test_pictures(tmp_path: Path):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (12, 8, 8, 1), np.uint8)
    sizes = {"image_size": 8, "patch_size": 4, "channels": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    clf = gf.ImageClassifier("vit-tiny", num_layers=1, epochs=1, precision="fp32", threads=1, **sizes)
    clf.fit(pixels, [0, 1] * 6)
    clf.save(tmp_path / "model")
    contents = []
    for i, picture in enumerate(pixels[:5]):
        Image.fromarray(picture[:, :, 0]).save(tmp_path / f"{i}.png")
        contents.append({"bytes": (tmp_path / f"{i}.png").read_bytes(), "path": f"{i}.png"})
    contents[2]["bytes"] = contents[2]["bytes"][:40]
    contents[4] = {"bytes": None, "path": str(tmp_path / "4.png")}  # a path in the table is not followed
    pq.write_table(pa.table({"image": contents}), tmp_path / "pictures.parquet")
    out = tmp_path / "out.parquet"
    done = score_file(tmp_path / "model", tmp_path / "pictures.parquet", out)
    assert done == {"rows": 5, "failed": 2, "truncated": 0}
    rows = pq.read_table(out).to_pylist()
    expected = clf.predict_proba(pixels[[0, 1, 3]])
    np.testing.assert_allclose([[rows[i]["p:0"], rows[i]["p:1"]] for i in (0, 1, 3)], expected, atol=1e-6)
    assert rows[4]["error"] == "the image is missing"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"column": "txt"}, "no column 'txt'"),
        ({"source": "none.parquet"}, "no such file"),
        ({"out": "away/out.parquet"}, "no such folder"),
        ({"model": "."}, "manifest"),
    ],
)
def test_wrong_input_is_refused(model: Path, table: Path, tmp_path: Path, monkeypatch, change, what):
    monkeypatch.chdir(tmp_path)
    given = {"model": model, "source": table, "out": "out.parquet"} | change
    with pytest.raises(InputError, match=what):
        score_file(given["model"], given["source"], given["out"], column=given.get("column"))


def test_a_full_disk_leaves_no_half_file(model: Path, table: Path, tmp_path: Path, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GlassformerError, match="No space left"):
        score_file(model, table, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet.parts").exists()


def test_a_model_saved_anew_answers_anew(model: Path, table: Path, tmp_path: Path):
    place = tmp_path / "model"
    clf = gf.load(model)
    clf.save(place)
    score_file(place, table, tmp_path / "first.parquet")
    with torch.no_grad():
        clf.model_.head.out.bias += torch.tensor([50.0, -50.0])
    clf.save(place, overwrite=True)
    score_file(place, table, tmp_path / "second.parquet")
    said = [pq.read_table(tmp_path / f"{name}.parquet")["label"].to_pylist() for name in ("first", "second")]
    assert said[0] != said[1]
    assert {label for label in said[1] if label} == {clf.classes_[0]}


def test_the_column_of_the_training_is_taken_where_there_is_one(tmp_path: Path):
    pq.write_table(pa.table({"text": ["a"], "summary": ["b"]}), tmp_path / "two.parquet")
    assert find_column(tmp_path / "two.parquet", Texts()) == "text"
    assert find_column(tmp_path / "two.parquet", Texts(), trained="summary") == "summary"
    assert find_column(tmp_path / "two.parquet", Texts(), "text", trained="summary") == "text"
    assert find_column(tmp_path / "two.parquet", Texts(), trained="body") == "text"


def test_a_run_scores_the_column_that_it_was_trained_on(model: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(model, run / "model")
    recipe = load_recipe("europe", ["source=reviews.csv", "text_column=summary"])
    (run / "config.toml").write_text(to_toml(recipe), encoding="utf-8")
    table = pa.table({"text": ["a dull film"] * 2, "summary": [TEXTS[0], TEXTS[2]]})
    pq.write_table(table, tmp_path / "two.parquet")
    score_file(run, tmp_path / "two.parquet", tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    expected = gf.load(model).predict_proba([TEXTS[0], TEXTS[2]])
    np.testing.assert_allclose(found["p:good"].to_numpy(), expected[:, 1], atol=1e-6)


def test_texts_that_are_cut_are_marked_and_counted(model: Path, tmp_path: Path):
    texts = [TEXTS[0], "a warm film " * 11, TEXTS[1]]
    pq.write_table(pa.table({"text": texts}), tmp_path / "texts.parquet")
    done = score_file(model, tmp_path / "texts.parquet", tmp_path / "out.parquet", rows=2)
    assert done["truncated"] == 1
    assert pq.read_table(tmp_path / "out.parquet")["truncated"].to_pylist() == [False, True, False]
    clf = gf.load(model)
    assert clf.truncated(texts).tolist() == [False, True, False]
    clf.set_params(long_texts="mean")
    assert clf.truncated(texts).tolist() == [False] * 3  # read in windows


@pytest.mark.parametrize("what", ["table", "model"])
def test_what_changes_between_two_shards_ends_the_call(model: Path, table: Path, tmp_path: Path, what):
    folder, changed = Path(shutil.copytree(model, tmp_path / "model")), []

    def change(rows: int, total: int) -> None:
        changed.append(rows)
        if what == "model" and len(changed) == 1:
            other = gf.load(folder)
            other.calibrate(TEXTS[:10], ["good", "bad"] * 5)
            other.save(folder, overwrite=True)
        elif len(changed) == 1:
            pq.write_table(pa.table({"id": range(23), "text": TEXTS[::-1]}), tmp_path / "other.parquet")
            os.replace(tmp_path / "other.parquet", table)

    said = r"the (file|model) has changed (while it|during) .*[Rr]un the (same )?command again"
    with pytest.raises(InputError, match=said) as caught:
        score_file(folder, table, tmp_path / "out.parquet", rows=5, progress=change)
    assert str(tmp_path / "model" if what == "model" else table) in str(caught.value)
    assert not (tmp_path / "out.parquet").exists()
    done = score_file(folder, table, tmp_path / "out.parquet", rows=5)  # the same call again: of one state
    shutil.rmtree(tmp_path / "out.parquet.parts", ignore_errors=True)
    score_file(folder, table, tmp_path / "fresh.parquet", rows=5)
    assert done["rows"] == 23
    assert pq.read_table(tmp_path / "out.parquet") == pq.read_table(tmp_path / "fresh.parquet")
