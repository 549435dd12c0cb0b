"""The same functions mapped one after the other and as Ray tasks: the same results, each exactly once."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glassformer.errors import ConfigError, DataError
from glassformer.scale.engines import call_safely, map_items, required_resources
from glassformer.scale.scoring import score_file
from glassformer.study.arms import Job, _resources
from glassformer.study.compare import compare
from glassformer.study.grid import load_study

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
ON_RAY = """\
import ray
from pathlib import Path
from glassformer.errors import DataError
from glassformer.study.compare import compare
from glassformer.scale.engines import LOCAL, map_items
from glassformer.study.grid import load_study
from glassformer.scale.scoring import score_file

ray.init(log_to_driver=False, **LOCAL)
folder = Path({folder!r})
found = compare(load_study(folder / "mine.toml"), folder / "ray", engine="ray")
assert not found["failed"], found["failed"]
done = score_file({model!r}, folder / "many.parquet", folder / "ray.parquet", rows=90, engine="ray")
assert done == {{"rows": 1000, "failed": 0, "truncated": 0}}, done
assert list(map_items("ray", abs, [-5], cpus=10**6, gpus=7)) == [(-5, 5)]  # no machine has so many: it gets what there is

def refuse(x):
    if x == 7:
        raise DataError("seven", where="item 7")
    return x

try:
    print(list(map_items("ray", refuse, range(9))))
except DataError as error:
    print("refused:", error)
"""


def double(x: int) -> int:
    if x == 7:
        raise DataError("seven", where="item 7")
    return 2 * x


def test_serial_gives_each_item_with_its_result():
    assert list(map_items("serial", double, [1, 2, 3])) == [(1, 2), (2, 4), (3, 6)]
    with pytest.raises(ConfigError, match="no engine 'spark'"):
        map_items("spark", double, [])

    failed, error = call_safely(double, 7)  # errors come back as what they are
    assert failed
    assert isinstance(error, DataError)
    assert call_safely(double, 4) == (False, 8)


def test_the_most_demanding_arm_decides_what_a_task_declares(tmp_path: Path):
    assert required_resources(3, "cpu") == {"cpus": 3, "gpus": 0}
    assert required_resources(0, "cuda:0") == {"cpus": 1, "gpus": 1}
    trains = [{"train": SimpleNamespace(threads=n, device=name)} for n, name in ((3, "cpu"), (2, "cuda"))]
    jobs = [Job("a", 0, SimpleNamespace(**train), tmp_path) for train in (*trains, {})]
    assert _resources(jobs) == {"cpus": 3, "gpus": 1}
    assert _resources([]) == {}


def without_guard() -> dict[str, str]:
    """The environment without the network guard: Ray's processes meet at this machine's outer address, which the guard
    takes for another machine.
    """
    path = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if not p.endswith("_offline")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


@pytest.mark.slow
@with_ray
def test_a_study_and_a_table_are_the_same_on_ray(base: Path, tmp_path: Path):
    (tmp_path / "mine.toml").write_text(STUDY.format(recipe=str(base)), encoding="utf-8")
    texts = [f"a warm film number {i}" for i in range(1000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "many.parquet")
    found = compare(load_study(tmp_path / "mine.toml"), tmp_path / "serial", workers=0)
    assert not found["failed"]
    serial = sorted((tmp_path / "serial").rglob("model.safetensors"))
    assert len(serial) == 4
    score_file(serial[0].parent, tmp_path / "many.parquet", tmp_path / "serial.parquet", rows=90)
    program = ON_RAY.format(folder=str(tmp_path), model=str(serial[0].parent))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=without_guard(), check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "refused: item 7: seven"
    for theirs in serial:
        ours = tmp_path / "ray" / theirs.relative_to(tmp_path / "serial")
        assert ours.read_bytes() == theirs.read_bytes()
        history = [(p.parents[1] / "history.jsonl").read_text().splitlines() for p in (ours, theirs)]
        a, b = ([json.loads(line) | {"seconds": 0} for line in h] for h in history)
        assert a == b
    ours, theirs = (pq.read_table(tmp_path / f"{engine}.parquet") for engine in ("ray", "serial"))
    assert ours.equals(theirs)
    assert ours.column("row").to_pylist() == list(range(1, 1001))
