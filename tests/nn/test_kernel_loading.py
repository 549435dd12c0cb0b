"""Which compiled library is computed with, and that one that does not fit is left alone, with the reason."""

import ast
import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from glassformer.cli.doctor import examine_machine
from glassformer.errors import ConfigError
from glassformer.nn import kernels
from glassformer.nn.kernels import levels, loading

here = pytest.mark.skipif(kernels.why_not() is not None, reason=f"no kernel: {kernels.why_not()}")
linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernels are for Linux")
AMX, BF16, VNNI, V4, AVX_VNNI, AVX2 = levels.LEVELS

ALL = frozenset().union(*(level.flags for level in levels.LEVELS))


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A processor with everything and a folder of empty libraries, opened by ``opens``."""
    answers = {}

    def opens(level):
        return answers.get(level.name, ctypes.CDLL(None))

    monkeypatch.delenv(loading.SWITCH, raising=False)
    monkeypatch.setattr(loading.sys, "platform", "linux")
    monkeypatch.setattr(loading.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(loading, "cpu_flags", lambda: ALL | {"other"})
    monkeypatch.setattr(loading, "_open", opens)
    return answers


def chosen():
    found = loading.choose()
    return found if isinstance(found, str) else found.level.name


@pytest.mark.parametrize(
    ("switch", "level"),
    [
        ("", "amx"),
        ("1", "amx"),
        ("amx", "amx"),
        (" AVX512 ", "avx512"),
        ("avx512vnni", "avx512vnni"),
        ("avx512f", "avx512f"),
        ("avxvnni", "avxvnni"),
        ("avx2", "avx2"),
        ("0", "switched off by GLASSFORMER_KERNELS=0"),
    ],
)
def test_the_switch_limits_the_level(machine, monkeypatch, switch, level):
    monkeypatch.setenv(loading.SWITCH, switch)
    assert chosen() == level


def test_a_switch_that_is_no_level_is_refused(machine, monkeypatch):
    monkeypatch.setenv(loading.SWITCH, "avx521")
    with pytest.raises(
        ConfigError, match=r"GLASSFORMER_KERNELS=avx521 is not a level. Did you mean 'avx512'\?"
    ):
        chosen()


def test_the_processor_decides(machine, monkeypatch):
    def lacks(*missing):
        monkeypatch.setattr(loading, "cpu_flags", lambda: ALL - set(missing))
        return chosen()

    for missing in AMX.flags - BF16.flags:
        assert lacks(missing) == "avx512"
    for missing in BF16.flags - VNNI.flags:
        assert lacks(missing, "amx_tile") == "avx512vnni"
    assert lacks("avx512_vnni", "amx_tile") == "avx512f"
    for missing in V4.flags - AVX2.flags:
        assert lacks(missing) == "avxvnni"
        assert lacks(missing, "avx_vnni") == "avx2"
    for missing in AVX2.flags:
        assert lacks(missing) == "the processor has no AVX2"


def test_a_level_that_cannot_be_had_leaves_the_next(machine):
    machine["amx"] = "the operating system does not allow AMX in this process"
    assert chosen() == "avx512"
    machine["avx512"] = machine["avx512vnni"] = machine["avx512f"] = machine["avxvnni"] = "damaged"
    assert chosen() == "avx2"
    machine["avx2"] = "damaged too"
    assert chosen() == "damaged too"


def test_other_systems_are_named(machine, monkeypatch):
    monkeypatch.setattr(loading.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(loading.platform, "system", lambda: "Linux")
    assert chosen() == "the kernels are for Linux on x86-64, not for Linux on aarch64"


@linux
def test_a_library_that_is_not_there_or_is_none_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(levels, "LIBRARIES", tmp_path)
    assert BF16.file == tmp_path / "avx512.so"
    assert str(loading._open(BF16)).startswith(
        f"this installation was built without kernels: {BF16.file} is missing. Install"
    )
    BF16.file.write_bytes(b"damaged")
    assert str(loading._open(BF16)).startswith(f"{BF16.file} cannot be loaded: ")
    whole = (Path(torch.__file__).parent / "lib" / "libc10.so").read_bytes()
    for size in (5000, len(whole) - 1):  # opened, it would end the process
        BF16.file.write_bytes(whole[:size])
        assert f"cannot be loaded: it is truncated to {size:,} bytes. Install" in str(loading._open(BF16))
    BF16.file.unlink()
    BF16.file.symlink_to(Path(torch.__file__).parent / "lib" / "libc10.so")
    assert "undefined symbol: made_of" in str(loading._open(BF16))


@here
def test_a_library_of_another_level_is_not_called(monkeypatch, tmp_path):
    right = kernels.level()
    assert right is not None
    monkeypatch.setattr(levels, "LIBRARIES", tmp_path)
    other = AVX2 if right != AVX2 else AMX
    other.file.write_bytes(Path(loading.library()._name).read_bytes())
    said = f"{other.file} was built for '{right.name}', not for '{other.name}'. Install"
    assert str(loading._open(other)).startswith(said)


@here
def test_structures_and_sources_are_compared_before_the_first_call(monkeypatch):
    level = kernels.level()
    assert level is not None
    monkeypatch.setattr(loading, "fingerprint", lambda: "0" * 16)
    assert "built from older or changed C sources" in str(loading._open(level))
    monkeypatch.setattr(loading, "JOBS", (*loading.JOBS[:4], loading.JOBS[0]))
    assert "built for another version of glassformer" in str(loading._open(level))
    monkeypatch.undo()
    monkeypatch.setattr(loading, "ABI", loading.ABI + 1)
    assert "built for another version of glassformer" in str(loading._open(level))


@here
def test_instructions_that_the_system_keeps_are_not_used(monkeypatch):
    calls = kernels.library()
    names = ["structure_size", "abi", "attention_fp32", "gelu_tanh_fp32", "skip_gram"]
    kept = SimpleNamespace(**{name: getattr(calls, name) for name in names}, prepare=lambda: 1)
    kept.linear_int8 = SimpleNamespace()  # the library of this processor may have none
    monkeypatch.setattr(loading.ctypes, "CDLL", lambda path: kept)
    monkeypatch.setattr(loading, "level_and_fingerprint", lambda calls: f"avx2 {levels.fingerprint()}")
    level = AVX2._replace(title="XY")
    assert loading._open(level) == "the operating system does not allow XY in this process"


def test_the_doctor_names_the_level_and_its_library(monkeypatch):
    def line():
        return next(line for line in examine_machine()["machine"] if line.what == "kernels in C")

    monkeypatch.setattr(kernels, "why_not", lambda: None)
    monkeypatch.setattr(kernels, "level", lambda: AMX)
    assert line().found == f"AMX: attention, GELU, layer norm, linear layers' gradients, from {AMX.file}"
    monkeypatch.setattr(kernels, "level", lambda: BF16)
    assert line().found == f"AVX512-BF16: attention, GELU, layer norm, from {BF16.file}"
    monkeypatch.setattr(kernels, "level", lambda: AVX2)
    assert line().found == f"AVX2: attention, GELU with tanh in fp32, from {AVX2.file}"
    monkeypatch.setattr(kernels, "why_not", lambda: "the processor has no AVX2")
    assert (line().state, line().found) == ("note", "not used: the processor has no AVX2")


def test_nothing_is_compiled_at_run_time():
    """Not even the modules for it are imported."""
    for file in levels.FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {"subprocess", "tempfile", "shutil"} & set(names), file


def library_at(address: int) -> str:
    """The file whose code lies at an address of this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= address < last:
            return line.split()[-1]
    return ""


@linux
def test_threads_are_those_of_torchs_own_library():
    import sklearn.ensemble  # noqa: F401  it brings an OpenMP library too

    address = kernels.torch_threads.__wrapped__()
    own = list((Path(torch.__file__).parent / "lib").glob("libgomp*"))
    if not own:
        pytest.skip("this torch has no OpenMP library beside it")
    assert address is not None
    assert Path(library_at(address)) in own


@linux
def test_an_openmp_library_that_is_not_loaded_stays_so(monkeypatch, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libgomp.so.1").write_bytes(b"")
    monkeypatch.setattr(loading.torch, "__file__", str(tmp_path / "__init__.py"))
    assert loading.torch_threads.__wrapped__() is None


WITHOUT_OPENMP = """
import torch
from glassformer.nn import attend, kernels
from glassformer.packing import Packing
q = torch.randn(103, 5, 16, generator=torch.Generator().manual_seed(1))
one = attend(q, q, q, Packing((31, 72)), branch="kernel")
kernels.torch_threads = lambda: None
torch.set_num_threads(3)
print(torch.equal(one, attend(q, q, q, Packing((31, 72)), branch="kernel")))
"""


@here
def test_threads_of_our_own_give_the_same_bits():
    command = [sys.executable, "-c", WITHOUT_OPENMP]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
