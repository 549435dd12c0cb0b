"""The same functions mapped one after the other and as Ray tasks: the same results, each exactly once."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import glassformer as gf
from glassformer.errors import ConfigError, DataError
from glassformer.study.compare import compare
from glassformer.study.engines import LOCAL, mapped, work_on
from glassformer.study.grid import load_study
from glassformer.study.scoring import score_file

with_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed ([scale])"
)
STUDY = """\
recipe = {recipe!r}
[set]
epochs = 2
[grid]
pooling = ["mean", "max"]
lr = [3e-2, 1e-2]
"""


def double(x: int) -> int:
    if x == 7:
        raise DataError("seven", where="item 7")
    return 2 * x


def test_serial_gives_each_item_with_its_result():
    assert list(mapped("serial", double, [1, 2, 3])) == [(1, 2), (2, 4), (3, 6)]
    with pytest.raises(ConfigError, match="no engine 'spark'"):
        mapped("spark", double, [])


def test_errors_come_back_as_what_they_are():
    failed, error = work_on(double, 7)
    assert failed
    assert isinstance(error, DataError)
    assert work_on(double, 4) == (False, 8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@with_ray
def test_a_study_and_a_table_are_the_same_on_ray(base: Path, tmp_path: Path):
    import ray

    (tmp_path / "mine.toml").write_text(STUDY.format(recipe=str(base)), encoding="utf-8")
    study = load_study(tmp_path / "mine.toml")
    ray.init(log_to_driver=False, **LOCAL)
    try:
        for engine in ("ray", "serial"):
            found = compare(study, tmp_path / engine, engine=engine, workers=0)
            assert not found["failed"]
            assert len(found["arms"]) == 4
        weights = {e: sorted((tmp_path / e).rglob("model.safetensors")) for e in ("ray", "serial")}
        assert len(weights["ray"]) == 4
        for ours, theirs in zip(weights["ray"], weights["serial"], strict=True):
            assert ours.relative_to(tmp_path / "ray") == theirs.relative_to(tmp_path / "serial")
            assert ours.read_bytes() == theirs.read_bytes()
            history = [(p.parents[1] / "history.jsonl").read_text().splitlines() for p in (ours, theirs)]
            a, b = ([json.loads(line) | {"seconds": 0} for line in h] for h in history)
            assert a == b
        model = weights["ray"][0].parent
        texts = [f"a warm film number {i}" for i in range(1000)]
        pq.write_table(pa.table({"text": texts}), tmp_path / "many.parquet")
        for engine in ("ray", "serial"):
            out = tmp_path / f"{engine}.parquet"
            done = score_file(model, tmp_path / "many.parquet", out, rows=90, engine=engine)
            assert done == {"rows": 1000, "failed": 0}
        ours, theirs = (pq.read_table(tmp_path / f"{engine}.parquet") for engine in ("ray", "serial"))
        assert ours.equals(theirs)
        assert ours.column("row").to_pylist() == list(range(1, 1001))
        with pytest.raises(DataError, match="seven"):
            list(mapped("ray", double, range(9)))
    finally:
        ray.shutdown()
    assert gf.load(model).predict(["a warm film"])[0] in ("good", "bad")
