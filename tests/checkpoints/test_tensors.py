"""safetensors files: what goes in comes out, and nothing else is ever run or believed."""

import json
import os
import random
import struct
import tracemalloc
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file

from glassformer.checkpoints import tensors as module
from glassformer.checkpoints.tensors import (
    MAX_HEADER_BYTES,
    check_unchanged,
    copy_and_release,
    read_tensors,
    write_tensors,
)
from glassformer.errors import CheckpointError, GlassformerError

INDEX = "model.safetensors.index.json"


def example() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(7, 5, generator=generator)
    return {
        "weight": weight,
        "tied": weight,
        "transposed": weight.t(),
        "row": weight[2],
        "next row": weight[3],
        "half": weight.to(torch.bfloat16),
        "fp16": weight.half(),
        "double": weight.double(),
        "mask": weight > 0,
        "bytes": torch.arange(11, dtype=torch.uint8),
        "step": torch.tensor(3),
        "empty": torch.zeros(0, 4),
        "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
        "parameter": torch.nn.Parameter(weight * 2),
        "expanded": torch.ones(1).expand(3),
    }


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        assert found[key].dtype == tensor.dtype
        assert found[key].shape == tensor.shape
        bits = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (found[key], tensor)]
        assert torch.equal(*bits), key


def test_every_kind_of_tensor_comes_back_bit_for_bit(tmp_path):
    files = write_tensors(tmp_path, example())
    assert files == [tmp_path / "model.safetensors"]
    assert_equal(read_tensors(tmp_path), example())
    assert_equal(load_file(files[0]), example())
    with safe_open(files[0], framework="pt") as opened:
        assert opened.metadata() == {"format": "pt"}
    write_tensors(tmp_path, {})
    assert read_tensors(tmp_path) == {}


@pytest.fixture
def small(tmp_path) -> Path:
    """A file of two tensors of 14 bytes."""
    (file,) = write_tensors(tmp_path, {"a": torch.ones(3), "b": torch.zeros(2, dtype=torch.int8)})
    return file


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8), limit=st.integers(1, 200))
def test_shards_hold_the_same_tensors_within_the_limit(tmp_path_factory, sizes, limit):
    folder = tmp_path_factory.mktemp("shards")
    tensors = {f"layer.{i}": torch.full((n,), float(i)) for i, n in enumerate(sizes)}
    files = write_tensors(folder, tensors, max_shard_bytes=limit)
    assert_equal(read_tensors(folder), tensors)
    for file in files:
        part = load_file(file)
        large = [t for t in part.values() if t.nbytes]
        assert sum(t.nbytes for t in large) <= limit or len(large) == 1
    assert (folder / INDEX).exists() == (len(files) > 1)
    if len(files) > 1:
        index = json.loads((folder / INDEX).read_text())
        assert index["metadata"]["total_size"] == sum(t.nbytes for t in tensors.values())
        assert index["weight_map"].keys() == tensors.keys()


def sharded(folder: Path) -> dict[str, str]:
    """Writes two shards and returns the index's weight map."""
    write_tensors(folder, {"a": torch.ones(4), "b": torch.zeros(4)}, max_shard_bytes=16)
    return json.loads((folder / INDEX).read_text())["weight_map"]


OUTSIDE = [f"{place}x.safetensors" for place in ("../", "/tmp/", "a/../", "..\\", "C:")]


@pytest.mark.parametrize("target", ["", 7, None, ["a.safetensors"], "model.bin", *OUTSIDE])
def test_an_index_may_only_name_safetensors_files_beside_it(tmp_path, target):
    weight_map = sharded(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map | {"b": target}}))
    with pytest.raises(CheckpointError, match="not a safetensors file of this folder"):
        read_tensors(tmp_path)


def test_an_index_that_disagrees_with_its_shards_is_refused(tmp_path):
    weight_map = sharded(tmp_path)
    first, second = weight_map["a"], weight_map["b"]
    for changed, message in [
        ({"a": first, "b": second, "c": second}, "lists 'c'"),
        ({"a": first, "b": first}, "lists 'b'"),
        ({"a": first}, None),
        ({"b": first, "a": second}, "'a'"),
        ({"a": first, "b": "model-00003-of-00003.safetensors"}, "is missing"),
        ({}, "has no 'weight_map'"),
        ([first], "has no 'weight_map'"),
    ]:
        (tmp_path / INDEX).write_text(json.dumps({"weight_map": changed}))
        if message is None:  # a shard that nothing points to is not read
            assert read_tensors(tmp_path).keys() == {"a"}
            continue
        with pytest.raises(CheckpointError, match=message):
            read_tensors(tmp_path)


def test_a_single_file_wins_over_a_planted_index_and_a_pickle(tmp_path):
    write_tensors(tmp_path, {"a": torch.ones(2)})
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": "evil.safetensors"}}))
    torch.save({"a": torch.zeros(2)}, tmp_path / "pytorch_model.bin")
    assert read_tensors(tmp_path)["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "m.pt", "m.ckpt", "m.pth"]
)
def test_pickled_weights_are_refused_with_the_way_to_convert_them(tmp_path, bombs, name):
    for bomb in bombs:
        (tmp_path / name).write_bytes(bomb)
        with pytest.raises(
            CheckpointError, match="pickle, which is not read, because it could run any code"
        ) as caught:
            read_tensors(tmp_path)
        assert name in str(caught.value)
        assert "save_pretrained" in str(caught.value)


def test_a_pickle_in_any_slot_is_never_executed(tmp_path, bombs):
    zipped = tmp_path / "zipped"
    torch.save({"weight": torch.ones(3)}, zipped)
    payloads = [*bombs, *(bomb + bytes(100_000) for bomb in bombs), zipped.read_bytes()]
    shard = "model-00001-of-00001.safetensors"
    for i, payload in enumerate(payloads):
        for slot in ("model.safetensors", shard, INDEX):
            folder = tmp_path / f"{i}-{slot}"
            folder.mkdir()
            (folder / INDEX).write_text(json.dumps({"weight_map": {"weight": shard}}))
            (folder / slot).write_bytes(payload)
            if slot == INDEX:
                (folder / shard).write_bytes(payload)
            with pytest.raises(CheckpointError):
                read_tensors(folder)


@pytest.mark.parametrize("length", [MAX_HEADER_BYTES + 1, 200 * 2**20, 2**63, 2**64 - 1])
def test_a_giant_header_is_refused_unread(tmp_path, length):
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", length) + b"{")
    os.truncate(file, 300 * 2**20)  # sparse, so that the claim may even be true
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=r"model\.safetensors: has a header of"):
        read_tensors(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_what_is_not_the_file_itself_is_explained(tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n")
    with pytest.raises(CheckpointError, match="Git LFS pointer"):
        read_tensors(tmp_path)
    file.unlink()
    with pytest.raises(CheckpointError, match=r"has neither model\.safetensors nor an index"):
        read_tensors(tmp_path)
    with pytest.raises(CheckpointError, match="no such folder"):
        read_tensors(tmp_path / "nowhere")


def test_every_cut_is_refused(small):
    raw = small.read_bytes()
    for length in range(len(raw)):
        small.write_bytes(raw[:length])
        with pytest.raises(CheckpointError, match=r"model\.safetensors"):
            read_tensors(small.parent)


def test_a_changed_header_is_refused_or_still_reads_as_tensors(small):
    raw = small.read_bytes()
    header = 8 + struct.unpack("<Q", raw[:8])[0]
    rng, refused = random.Random(2), 0
    for _ in range(500):
        at = rng.randrange(header)
        small.write_bytes(raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :])
        try:
            assert sum(t.nbytes for t in read_tensors(small.parent).values()) == 14
        except CheckpointError:
            refused += 1
    assert refused > 200


def test_a_tensor_of_impossible_shape_is_refused(tmp_path):
    file = tmp_path / "model.safetensors"
    for shape in ([2**40, 2**40], [-1], [2**62], ["a"], [[1]]):
        entry = {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}
        header = json.dumps(entry).encode()
        file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
        with pytest.raises(CheckpointError, match="not readable as safetensors"):
            read_tensors(tmp_path)


def test_a_disk_that_refuses_is_not_the_callers_fault(tmp_path):
    with pytest.raises(GlassformerError, match="could not be written") as caught:
        write_tensors(tmp_path / "nowhere", {"a": torch.ones(1)})
    assert not isinstance(caught.value, CheckpointError)


@pytest.mark.parametrize("length", [640, 896, 1152, 1408])
def test_a_header_as_long_as_a_pickles_first_bytes(length, tmp_path):
    """0x0280 ... 0x0580, little-endian, are the first bytes of pickles of protocol 2 to 5."""
    for padding in range(length):
        write_tensors(tmp_path, {"x" * (1 + padding): torch.ones(3)})
        if int.from_bytes((tmp_path / "model.safetensors").read_bytes()[:8], "little") == length:
            break
    else:
        pytest.fail("no name gives that length")
    assert torch.equal(next(iter(read_tensors(tmp_path).values())), torch.ones(3))


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_files_have_the_rights_of_any_new_file(tmp_path, mask):
    """Asked of the file system: the process's mask is never set, since other threads make files meanwhile."""
    before = os.umask(mask)
    try:
        write_tensors(tmp_path, {"a": torch.ones(2)})
    finally:
        os.umask(before)
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("part_bytes", [8, 5_000, 2**24])
def test_a_copy_in_parts_is_exact_and_can_be_repeated(tmp_path, monkeypatch, part_bytes):
    monkeypatch.setattr(module, "CHUNK_BYTES", part_bytes)
    given = example() | {"large": torch.randn(301, 50)}
    write_tensors(tmp_path, given)
    found = read_tensors(tmp_path)
    for _ in range(2):  # the second time, released pages are read again
        for name, tensor in given.items():
            target = torch.empty_like(tensor, requires_grad=False)
            copy_and_release(target, found[name])
            assert torch.equal(target.nan_to_num(7), tensor.detach().nan_to_num(7))
    check_unchanged(found.values())


def test_a_file_that_is_replaced_stays_readable_and_one_that_is_written_to_is_noticed(tmp_path):
    given = {"weight": torch.randn(300, 50)}
    (file,) = write_tensors(tmp_path, given)
    found = read_tensors(tmp_path)
    (tmp_path / "other").mkdir()
    write_tensors(tmp_path / "other", {"weight": torch.zeros(300, 50)})
    (tmp_path / "other" / file.name).replace(file)
    check_unchanged(found.values())
    assert torch.equal(found["weight"], given["weight"])
    found = read_tensors(tmp_path)
    with open(file, "ab") as opened:
        opened.write(b"more")
    with pytest.raises(CheckpointError, match="was changed after it was opened"):
        check_unchanged(found.values())
