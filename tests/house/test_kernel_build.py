"""What ``hatch_build.py`` does when the package is built: one library a level, or a pure package that says why."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from glassformer.nn import kernels
from glassformer.nn.kernels import levels
from glassformer.runtime import cpu_flags

ROOT = Path(__file__).parents[2]
COMPILER = """#!/bin/sh
# writes its arguments where the library should be; knows no AMX where the file beside it says so
out=; previous=
for word; do [ "$previous" = -o ] && out=$word; previous=$word; done
case "$*" in *amx*) if [ -e "$0.old" ]; then echo "cc: unrecognized option -mamx-tile" >&2; exit 1; fi;; esac
printf '%s ' "$@" > "$out"
"""


@pytest.fixture
def hook(monkeypatch):
    path = ROOT / "hatch_build.py"
    if not path.is_file():
        pytest.skip("these tests lie beside no sources")
    spec = importlib.util.spec_from_file_location("hatch_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delenv("GLASSFORMER_BUILD", raising=False)
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
    return module


@pytest.fixture
def compiler(hook, monkeypatch, tmp_path):
    file = tmp_path / "compiler"
    file.write_text(COMPILER)
    file.chmod(0o755)
    monkeypatch.setattr(hook, "find_compiler", lambda: (str(file), "-fast"))
    return file


def test_each_level_is_compiled_for_its_instructions_alone(hook, compiler, tmp_path):
    made, said = hook.build(tmp_path / "lib")
    assert [file.name for file in made] == [f"{level.name}.so" for level in levels.LEVELS]
    assert said == f"kernels in C: amx, avx512, avx512vnni, avx512f, avxvnni, avx2, by {compiler} -fast"
    assert {file.name for file in (tmp_path / "lib").iterdir()} == {file.name for file in made}
    words = {file.stem: file.read_text().split() for file in made}
    assert ["-mamx-bf16" in found for found in words.values()] == [True] + [False] * 5
    assert ["-mavx512bf16" in found for found in words.values()] == [True] * 2 + [False] * 4
    assert ["-mavx512vnni" in found for found in words.values()] == [False, True, True] + [False] * 3
    assert ["-mavxvnni" in found for found in words.values()] == [False] * 4 + [True, False]
    bases = [next(word for word in found if word.startswith("-march")) for found in words.values()]
    assert bases == ["-march=x86-64-v4"] * 4 + ["-march=x86-64-v3"] * 2
    for level, found in zip(levels.LEVELS, words.values(), strict=True):
        assert found[0] == "-fast"
        assert "-ffp-contract=off" in found
        assert "-march=native" not in found
        assert f'-DMADE_OF="{level.name} {levels.fingerprint()}"' in " ".join(found)
        assert [Path(w).name for w in found if w.endswith(".c")] == list(levels.SOURCES)


def test_zig_is_told_the_oldest_glibc(hook):
    zig = (sys.executable, "-m", "ziglang", "cc")
    assert hook.target(zig, ("x86_64_v4", "amx_tile")) == [
        "-target",
        "x86_64-linux-gnu.2.28",
        "-mcpu=x86_64_v4+amx_tile",
    ]


def test_a_wheel_is_named_by_what_it_asks_for(hook, monkeypatch):
    for compiler, tag in (
        ((sys.executable, "-m", "ziglang", "cc"), "py3-none-manylinux_2_28_x86_64"),
        (("cc",), "py3-none-linux_x86_64"),
    ):
        monkeypatch.setattr(hook, "find_compiler", lambda compiler=compiler: compiler)
        assert hook.tag() == tag


def test_a_compiler_that_does_not_know_a_level_makes_the_others(hook, compiler, tmp_path, monkeypatch):
    compiler.with_name("compiler.old").touch()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "amx.so").write_text("of an earlier build")
    made, said = hook.build(tmp_path / "lib")
    assert [file.stem for file in made] == ["avx512", "avx512vnni", "avx512f", "avxvnni", "avx2"]
    assert said.endswith("(amx: cc: unrecognized option -mamx-tile)")
    assert not (tmp_path / "lib" / "amx.so").exists()
    monkeypatch.setenv("GLASSFORMER_BUILD", "kernels")
    with pytest.raises(RuntimeError, match="the kernels could not be built: amx: cc: unrecognized"):
        hook.build(tmp_path / "lib")


def test_without_a_compiler_or_where_it_is_asked_for_the_package_is_pure(hook, monkeypatch, tmp_path):
    monkeypatch.setattr(hook, "find_compiler", lambda: None)
    assert (
        hook.build(tmp_path)[1] == "kernels in C: none (no C compiler (ziglang, cc, gcc or clang) was found)"
    )
    monkeypatch.setattr(hook, "find_compiler", lambda: ("no-such-compiler",))
    assert "No such file or directory: 'no-such-compiler'" in hook.build(tmp_path)[1]
    monkeypatch.setenv("GLASSFORMER_BUILD", "pure")
    assert hook.build(tmp_path) == ([], "kernels in C: none (GLASSFORMER_BUILD=pure)")
    monkeypatch.setenv("GLASSFORMER_BUILD", "yes")
    with pytest.raises(RuntimeError, match="use pure, kernels or keep"):
        hook.build(tmp_path)
    monkeypatch.delenv("GLASSFORMER_BUILD")
    monkeypatch.setattr(hook.platform, "machine", lambda: "aarch64")
    assert "they are for Linux on x86-64, not for" in hook.build(tmp_path)[1]


@pytest.mark.parametrize("version", ["standard", "editable"])
def test_a_wheel_holds_the_libraries_and_an_editable_install_finds_them_in_the_sources(
    hook, compiler, monkeypatch, tmp_path, version
):
    said = []
    monkeypatch.setattr(hook, "KERNELS", tmp_path / "kernels")
    shutil.copytree(levels.FOLDER, tmp_path / "kernels", ignore=shutil.ignore_patterns("lib", "__pycache__"))
    one = hook.KernelHook.__new__(hook.KernelHook)
    app = type("App", (), {"display_info": lambda self, line: said.append(line)})()
    monkeypatch.setattr(hook.KernelHook, "app", app, raising=False)
    data = {"force_include": {}, "pure_python": True}
    one.initialize(version, data)
    inside, files = sorted(data["force_include"].values()), sorted(level.file.name for level in levels.LEVELS)
    if version == "standard":
        assert inside == [f"glassformer/nn/kernels/lib/{name}" for name in files]
        assert all(Path(file).is_file() for file in data["force_include"])
        assert data["tag"] == "py3-none-linux_x86_64"
        assert not data["pure_python"]
        assert not (tmp_path / "kernels" / "lib").exists()
    else:
        assert data == {"force_include": {}, "pure_python": True}
        assert sorted(file.name for file in (tmp_path / "kernels" / "lib").iterdir()) == files
    one.finalize(version, data, "")
    assert not any(Path(file).exists() for file in data["force_include"])
    assert said[0].startswith("kernels in C: amx, avx512, avx512vnni, avx512f, avxvnni, avx2, by ")


def test_the_compiler_is_fetched_where_one_is_needed(hook, monkeypatch):
    one = hook.KernelHook.__new__(hook.KernelHook)
    for wanted, fetched in (("", [hook.COMPILER]), ("kernels", [hook.COMPILER]), ("pure", []), ("keep", [])):
        monkeypatch.setenv("GLASSFORMER_BUILD", wanted)
        assert one.dependencies() == fetched


def test_libraries_are_kept_where_that_is_asked_for(hook, compiler, monkeypatch, tmp_path):
    monkeypatch.setenv("GLASSFORMER_BUILD", "keep")
    monkeypatch.setattr(hook, "KERNELS", tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "amx.so").write_text("as it was")
    one = hook.KernelHook.__new__(hook.KernelHook)
    app = type("App", (), {"display_info": lambda self, line: None})()
    monkeypatch.setattr(hook.KernelHook, "app", app, raising=False)
    one.initialize("editable", {})
    assert (tmp_path / "lib" / "amx.so").read_text() == "as it was"
    assert sorted(file.name for file in (tmp_path / "lib").iterdir()) == ["amx.so"]


def test_the_package_names_its_hook_and_leaves_other_libraries_out():
    file = ROOT / "pyproject.toml"
    build = tomllib.loads(file.read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["hooks"]["custom"]["path"] == "hatch_build.py"
    assert build["wheel"]["exclude"] == build["sdist"]["exclude"] == ["*.so"]
    assert "hatch_build.py" in build["sdist"]["include"]


BITS = """
import hashlib, sys
from pathlib import Path
import torch
from glassformer.nn.kernels import levels
if sys.argv[1]:
    levels.LIBRARIES = Path(sys.argv[1])
from glassformer.nn import attend, kernels
from glassformer.nn.kernels import gelu_norm, int8
from glassformer.packing import Packing
assert kernels.library()._name.startswith(str(levels.LIBRARIES)), kernels.why_not()
whole = []
for dtype in filter(kernels.has_dtype, (torch.bfloat16, torch.float32)):
    draw = lambda *shape: torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    qkv = draw(171, 3, 2, 48).requires_grad_()
    out = attend(*qkv.unbind(1), Packing((33, 131, 7)), branch="kernel")
    x, weight = draw(389, 64).requires_grad_(), draw(64).requires_grad_()
    bent = gelu_norm.gelu(x, tanh=dtype == torch.float32)
    normed = gelu_norm.layer_norm(x, x, weight, weight, 1e-5) if dtype == torch.bfloat16 else x * weight
    (out.square().sum() + normed.square().sum() + bent.square().sum()).backward()
    whole += [out, qkv.grad, normed, bent, x.grad, weight.grad]
if int8.why_not() is None:
    with torch.no_grad():
        packed = int8.pack(torch.randn(37, 64, generator=torch.Generator().manual_seed(5)), None)
        whole += [int8.linear(x.detach(), packed, name) for name in int8.ACTIVATIONS]
print(hashlib.sha256(b"".join(t.detach().view(torch.uint8).numpy().tobytes() for t in whole)).hexdigest())
"""


@pytest.mark.slow  # compiles
@pytest.mark.skipif(kernels.why_not() is not None or shutil.which("cc") is None, reason="no kernels or no cc")
def test_the_bits_do_not_depend_on_the_compiler(hook, monkeypatch, tmp_path):
    monkeypatch.setattr(hook, "find_compiler", lambda: ("cc",))
    made, _ = hook.build(tmp_path / "lib")
    assert made
    for level in filter(lambda level: cpu_flags() >= level.flags, levels.LEVELS):
        env, said = os.environ | {"GLASSFORMER_KERNELS": level.name}, []
        for folder in ("", str(tmp_path / "lib")):
            command = [sys.executable, "-c", BITS, folder]
            said.append(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
        assert said[0] == said[1], level.name
