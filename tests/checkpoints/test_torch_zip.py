"""PyTorch's zip files: the tensors come out as ``torch.load`` gives them, and whatever else is asked for is refused."""

import io
import json
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from glassformer.checkpoints.tensors import read_tensors
from glassformer.checkpoints.torch_zip import DTYPES, read_zip
from glassformer.errors import CheckpointError, PickleError

MODULE = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.LayerNorm(5))


def equal(found, wanted) -> None:
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found[name], tensor.detach())


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_kind_of_number(dtype, tmp_path):
    numbers = torch.arange(-7, 8).to(dtype)
    whole = numbers.view(3, 5)
    tensors = {"a": whole, "turned": whole.T, "part": numbers[4:9], "none": numbers[:0]}
    torch.save(tensors | {"one": numbers[3]}, tmp_path / "x.bin")
    equal(read_zip(tmp_path / "x.bin"), tensors | {"one": numbers[3]})


LAYOUTS: dict[str, Callable[[dict], object]] = {
    "a state dict with its versions": lambda state: state,
    "a plain dictionary": dict,
    "parameters": lambda state: {name: torch.nn.Parameter(t) for name, t in state.items()},
    "below state_dict": lambda state: {"epoch": 3, "state_dict": state, "lr": 0.1, "tags": ["a", None, True]},
    "below model": lambda state: {"model": dict(state), "args": {"seed": 7}},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("protocol", [2, 4])
def test_layouts_of_state_dicts(layout, protocol, tmp_path):
    torch.save(LAYOUTS[layout](MODULE.state_dict()), tmp_path / "pytorch_model.bin", pickle_protocol=protocol)
    equal(read_tensors(tmp_path), MODULE.state_dict())


def test_shards_and_shared_numbers(tmp_path):
    table = torch.rand(7, 3)
    torch.save({"a": table, "tied": table}, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": table[1:]}, tmp_path / "pytorch_model-00002-of-00002.bin")
    places = {"a": 1, "tied": 1, "b": 2}
    index = {"weight_map": {name: f"pytorch_model-0000{n}-of-00002.bin" for name, n in places.items()}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    found = read_tensors(tmp_path)
    equal(found, {"a": table, "tied": table, "b": table[1:]})
    assert found["a"].data_ptr() == found["tied"].data_ptr()
    index["weight_map"]["b"] = "../pytorch_model.bin"
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="not a bin file of this folder"):
        read_tensors(tmp_path)


# --- attacks ----------------------------------------------------------------------------------------


class Asks:
    """A pickle that calls something when it is read as pickles are."""

    def __init__(self, call: Callable, *arguments: object):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def zipped(folder: Path, code: bytes, **entries: bytes) -> Path:
    """A file whose description of tensors is ``code``."""
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", code)
        for name, content in {"data/0": b"\0" * 60, "version": b"3\n", **entries}.items():
            archive.writestr(f"archive/{name}", content)
    return path


def of_names(module: str, name: str, arguments: bytes = b"(t") -> bytes:
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + arguments + b"R."


FOREIGN = """
    os.system posix.system nt.system builtins.eval builtins.exec builtins.getattr builtins.__import__ builtins.open
    builtins.compile subprocess.Popen subprocess.check_output runpy.run_path importlib.import_module pickle.loads
    torch.load torch.hub.load torch._utils._rebuild_sparse_tensor torch._utils._rebuild_tensor
    torch.storage._load_from_bytes torch.jit.load numpy.load numpy.core.multiarray._reconstruct _codecs.encode
    codecs.decode socket.socket shutil.rmtree webbrowser.open ctypes.CDLL operator.attrgetter torch.UntypedStorage
    torch.FloatTensor collections.OrderedDict.fromkeys
""".split()


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_name_is_refused_before_it_is_looked_up(name, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.import_module", lambda *names: pytest.fail("imported"))
    parts = name.rsplit(".", 2 if "OrderedDict" in name else 1)
    with pytest.raises(PickleError, match="which weights do not need; no code was run"):
        read_zip(zipped(tmp_path, of_names(parts[0], ".".join(parts[1:]))))


OPCODES = {
    "INST": b"\x80\x02(ios\nsystem\n.",
    "OBJ": b"\x80\x02(ccollections\nOrderedDict\no.",
    "NEWOBJ": b"\x80\x02ccollections\nOrderedDict\n)\x81.",
    "NEWOBJ_EX": b"\x80\x04ccollections\nOrderedDict\n)}\x92.",
    **{"EXT1": b"\x80\x02\x82\x01.", "EXT2": b"\x80\x02\x83\x01\x00.", "PERSID": b"\x80\x02Pstorage\n."},
    **{
        "STRING": b"\x80\x02S'a'\n.",
        "UNICODE": b"\x80\x02Va\n.",
        "FLOAT": b"\x80\x02F1\n.",
        "INT": b"\x80\x02I1\n.",
    },
    **{"LONG": b"\x80\x02L1L\n.", "LONG4": b"\x80\x02\x8b\x01\x00\x00\x00\x01."},
    "BINBYTES": b"\x80\x03B\x01\x00\x00\x00a.",
    "BYTEARRAY8": b"\x80\x05\x96\x01\x00\x00\x00\x00\x00\x00\x00a.",
    **{"NEXT_BUFFER": b"\x80\x05\x97.", "FROZENSET": b"\x80\x04(\x91.", "EMPTY_SET": b"\x80\x04\x8f."},
    **{"DUP": b"\x80\x02N2.", "POP": b"\x80\x02N0."},
}


@pytest.mark.parametrize("opcode", OPCODES)
def test_an_opcode_that_no_tensors_need_is_refused(opcode, tmp_path):
    with pytest.raises(PickleError, match=f"the opcode {opcode}"):
        read_zip(zipped(tmp_path, OPCODES[opcode]))


def test_what_runs_elsewhere_does_not_run_here(tmp_path):
    """The same bytes, read as pickles are, write a file."""
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w').close()"
    hidden = {"a": torch.zeros(2), "b": Asks(open, str(mark), "w")}
    for attack in (Asks(exec, code), hidden, OrderedDict(a=[Asks(eval, code)])):
        torch.save(attack, tmp_path / "x.bin")
        with pytest.raises(PickleError, match="no code was run"):
            read_zip(tmp_path / "x.bin")
        assert not mark.exists()
    torch.load(tmp_path / "x.bin", weights_only=False)
    assert mark.exists()


TENSOR = b"\x80\x02}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
TENSOR += b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK%ctQK%c%c%c\x89)tRs."


def tensor(
    count: int = 15, offset: int = 0, size: bytes = b"K\x03K\x05\x86", stride: bytes = b"K\x05K\x01\x86"
) -> bytes:
    """A dictionary of one tensor, as ``torch.save`` describes it."""
    head, _, _, _, tail = TENSOR.split(b"%c")
    return head + bytes([count]) + b"tQK" + bytes([offset]) + size + stride + tail


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (tensor(offset=1), "exceeds its storage"),
        (tensor(size=b"K\x03K\x06\x86"), "exceeds its storage"),
        (tensor(stride=b"K\x06K\x01\x86"), "exceeds its storage"),
        (tensor(stride=b"J\xff\xff\xff\xffK\x01\x86"), "impossible sizes"),
        (tensor(size=b"K\x03J\xff\xff\xff\xff\x86"), "impossible sizes"),
        (tensor(size=b"K\x03\x85"), "do not match"),
        (tensor(size=b"\x8a\x07\xff\xff\xff\xff\xff\xff\x7fK\x05\x86"), "impossible sizes"),
        (tensor(size=b"K\xffK\xff\x86", stride=b"K\x00K\x00\x86"), "exceeds its storage"),
        (tensor(count=16), "have 60 bytes, not 64"),
        (tensor().replace(b"X\x01\x00\x00\x000X", b"X\x01\x00\x00\x001X"), "are missing"),
        (tensor().replace(b"storage", b"objects"), "data that are not numbers"),
        (tensor()[:-1], "has no end|is invalid"),
        (tensor()[:-9], "has no end|is invalid"),
        (b"\x80\x02.", "is invalid"),
        (b"\x80\x02}}.", "is invalid"),
        (b"\x80\x02h\x07.", "is invalid"),
        (b"\x80\x02K\x01K\x02s.", "is invalid"),
        (b"\x80\x02]K\x01a.", "has no dictionary"),
        (b"\x80\x02}.", "has no dictionary"),
        (b"\x80\x02}X\x01\x00\x00\x00aK\x01s.", "'a' is not a tensor"),
        (b"\x80\x02K\x01K\x01R.", "a call of a value"),
        (b"\x80\x02ctorch\nFloatStorage\n(K\x01tR.", "a call of FloatStorage"),
        (b"\x80\x02ccollections\nOrderedDict\n(K\x01tR.", "a call of OrderedDict"),
        (b"\x80\x02]}b.", "the state of an object"),
        (b"\x80\x02" + b"(" * 100_000 + b".", "is invalid"),
    ],
)
def test_descriptions_that_make_no_sense(code, said, tmp_path):
    assert read_zip(zipped(tmp_path, tensor()))["a"].shape == (3, 5)
    with pytest.raises(CheckpointError, match=said):
        read_zip(zipped(tmp_path, code))


def _twice(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("archive/data/0", b"\1" * 60)


def _squeezed(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", tensor())
        archive.writestr("archive/data/0", b"\0" * 10_000_000)


def _overlapping(path: Path) -> None:
    """Two names for the same bytes, as bombs have thousands of."""
    content = bytearray(path.read_bytes())
    end = content.rfind(b"PK\x05\x06")
    begin = int.from_bytes(content[end + 16 : end + 20], "little")
    at = content.index(b"PK\x01\x02", begin)
    content[at + 20 : at + 28] = (2**31).to_bytes(4, "little") * 2
    path.write_bytes(content)


def _changed(path: Path) -> None:
    content = path.read_bytes()
    at = content.index(b"\0" * 60)
    path.write_bytes(content[:at] + b"\1" + content[at + 1 :])


def _two_roots(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/data.pkl", tensor())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_twice, "two entries with the same name"),
        (_squeezed, "compressed or encrypted"),
        (_overlapping, "overlap|larger than the file"),
        (_changed, "Bad CRC"),
        (lambda path: zipped(path.parent, tensor(), byteorder=b"big"), "another byte order"),
        (_two_roots, "has no data.pkl"),
        (lambda path: path.write_bytes(path.read_bytes()[:-30]), "not readable as a zip"),
        (lambda path: path.write_bytes(b""), "not readable as a zip"),
        (lambda path: path.write_bytes(b"PK\x03\x04" + b"\0" * 50), "not readable as a zip"),
        (lambda path: path.write_bytes(pickle.dumps({"a": 1})), "is a pickle, which is not read"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_damaged_and_hostile_archives(spoil, said, tmp_path):
    path = zipped(tmp_path, tensor())
    spoil(path)
    with pytest.raises(CheckpointError, match=said):
        read_zip(path)


def test_a_long_description_is_not_read(tmp_path):
    buffer = io.BytesIO()
    pickle.dump("a" * (17 << 20), buffer, 2)
    with pytest.raises(CheckpointError, match="describes its tensors in"):
        read_zip(zipped(tmp_path, buffer.getvalue()))
