"""Instruction-set levels of the kernels.

The package build also imports this file, so it imports only the standard library.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
LIBRARIES = FOLDER / "lib"  # one library per level, written when the package is built
# Each file is compiled for every level; #ifdef skips code for instructions that a level lacks.
SOURCES = (
    "attention.c",
    "attention_fp32.c",
    "gelu_fp32.c",
    "library.c",
    "linear.c",
    "linear_int8.c",
    "rows.c",
    "skip_gram.c",
)
ABI = 7  # as in jobs.h; increases with every change of a structure or a function signature

# CPU flags that x86-64-v3 and v4 require, as named by Linux.
V3 = frozenset({"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})
V4 = V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}


class Level(NamedTuple):
    """An instruction set that a library is compiled for."""

    name: str  # name of the library, and value of GLASSFORMER_KERNELS
    title: str  # name shown to users
    target: tuple[str, ...]  # base CPU and features, as named by zig
    flags: frozenset[str]  # required CPU flags (/proc/cpuinfo)

    @property
    def bf16(self) -> bool:
        """Whether the level has bf16 kernels. All levels have attention and tanh GELU in fp32."""
        return "avx512_bf16" in self.flags

    @property
    def int8(self) -> bool:
        """Whether the level has int8 products.

        With AMX, bf16 is faster than int8. AVX512 without VNNI is not faster in int8 than in fp32.
        """
        return bool({"avx512_vnni", "avx_vnni"} & self.flags) or self.name == "avx2"

    @property
    def file(self) -> Path:
        return LIBRARIES / f"{self.name}.so"


# From highest to lowest. The first level with flags that the CPU supports is used.
LEVELS = (
    Level(
        "amx",
        "AMX",
        ("x86_64_v4", "avx512bf16", "amx_tile", "amx_bf16"),
        V4 | {"avx512_bf16", "amx_tile", "amx_bf16"},
    ),
    Level(
        "avx512",
        "AVX512-BF16",
        ("x86_64_v4", "avx512bf16", "avx512vnni"),
        V4 | {"avx512_bf16", "avx512_vnni"},
    ),
    Level("avx512vnni", "AVX512-VNNI", ("x86_64_v4", "avx512vnni"), V4 | {"avx512_vnni"}),
    Level("avx512f", "AVX512", ("x86_64_v4",), V4),
    Level("avxvnni", "AVX-VNNI", ("x86_64_v3", "avxvnni"), V3 | {"avx_vnni"}),
    Level("avx2", "AVX2", ("x86_64_v3",), V3),
)


def fingerprint(folder: Path = FOLDER) -> str:
    """A hash of the C sources (16 hex digits), which a library contains as well."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.[ch]")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
