"""The levels of processors that there are kernels for. Nothing here is imported but Python's own library:
the package's build reads this file too.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
LIBRARIES = FOLDER / "lib"  # one a level, put there when the package is built
# What a level has no instructions for is empty there.
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
ABI = 5  # ABI of jobs.h: goes up with every change of a structure or a call

# What x86-64-v3 and v4 ask of a processor beyond what all have, as Linux names it.
V3 = frozenset({"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})
V4 = V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}


class Level(NamedTuple):
    """Instructions that a library is compiled for."""

    name: str  # of its library, and of the switch
    title: str  # as it is shown
    target: tuple[str, ...]  # a base and features, as zig names them
    flags: frozenset[str]  # what the processor must have: /proc/cpuinfo

    @property
    def bf16(self) -> bool:
        """Whether it computes in bf16; in fp32 each level has attention and GELU with a tanh."""
        return "avx512_bf16" in self.flags

    @property
    def int8(self) -> bool:
        """Whether it has products in int8. With AMX those in bf16 are faster than VNNI's in int8; AVX512
        without VNNI multiplies 16-bit numbers no faster than it does fp32."""
        return bool({"avx512_vnni", "avx_vnni"} & self.flags) or self.name == "avx2"

    @property
    def file(self) -> Path:
        return LIBRARIES / f"{self.name}.so"


# From the highest to the lowest. A processor takes the first that it has all flags of.
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
    """16 hex digits of the C sources: a library tells which ones it was made of."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.[ch]")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
