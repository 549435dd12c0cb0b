"""What is written for AMX, on any processor with AVX512-BF16: tiles in plain C stand in for the instructions."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from glassformer.nn import kernels
from glassformer.nn.kernels import levels

PROGRAM = """
import sys
from pathlib import Path
import torch
from glassformer.nn.kernels import levels, loading

class Emulated(levels.Level):
    file = Path(sys.argv[1])

loading.LEVELS = (Emulated(*levels.LEVELS[0]._replace(flags=levels.LEVELS[1].flags - {"avx512_vnni"})),)
from glassformer.nn import attend, attend_local, kernels
from glassformer.nn.disentangled import Disentangled, DisentangledAttention
from glassformer.nn.linear import Linear
from glassformer.packing import Packing
assert kernels.has_amx(), kernels.why_not()
torch.set_num_threads(2)

def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).bfloat16()

def error(a, b):
    return float((a.float() - b.float()).norm() / b.float().norm())

for lengths, width, causal in (((7, 33, 131), 32, False), ((65, 1), 48, True), ((97, 64), 80, False)):
    found = []
    for branch, dtype in (("kernel", torch.bfloat16), ("explicit", torch.float32)):
        qkv = draw(sum(lengths), 3, 3, width).to(dtype).requires_grad_()
        out = attend(*qkv.unbind(1), Packing(lengths), causal=causal, branch=branch)
        out.backward(draw(*out.shape).to(dtype))
        found.append((out.detach(), qkv.grad))
    print(*(error(a, b) for a, b in zip(*found)))
for lengths, width, window, causal in (((7, 333, 131), 32, 64, False), ((257, 1), 48, 13, True)):
    found = []
    for branch, dtype in (("kernel", torch.bfloat16), ("blocks", torch.float32)):
        qkv = draw(sum(lengths), 3, 3, width).to(dtype).requires_grad_()
        out = attend_local(*qkv.unbind(1), Packing(lengths), window, causal, branch=branch)
        out.backward(draw(*out.shape).to(dtype))
        found.append((out.detach(), qkv.grad))
    print(*(error(a, b) for a, b in zip(*found)))
for lengths, width, buckets in (((7, 33, 131), 32, 8), ((199, 1, 65), 48, 64)):
    torch.manual_seed(3)
    attention = DisentangledAttention(3 * width, 3, 0.0, Disentangled(buckets, 101), 0.0)
    table, found = torch.randn(2 * buckets, 3 * width), []
    for dtype in (torch.bfloat16, torch.float64):
        own = [draw(sum(lengths), 3 * width), table, attention.qkv.weight.detach(), draw(sum(lengths), 3 * width) + 1]
        x, table, weight, up = (t.bfloat16().to(dtype) for t in own)
        attention.to(dtype).qkv.weight.data.copy_(weight)
        x.requires_grad_(), table.requires_grad_()
        out = attention(x, Packing(lengths), bias=table)
        out.backward(up)
        found.append((out.detach(), x.grad, table.grad))
        table = table.detach()
    print(*(error(a, b) for a, b in zip(*found)))
for rows, out, width in ((257, 16, 16), (521, 48, 80), (300, 400, 784)):
    grad, x = draw(rows, out), draw(rows, width) + 1
    weight, bias = kernels.weight_gradient(grad, x, bias=True)
    print(error(weight, grad.float().T @ x.float()), error(bias, grad.float().sum(0)))
"""


@pytest.mark.slow  # compiles
@pytest.mark.skipif(
    not kernels.has_dtype(torch.bfloat16) or shutil.which("cc") is None, reason="no kernels or no cc"
)
def test_tiles_compute_the_products(tmp_path):
    made_of = f'-DMADE_OF="amx {levels.fingerprint()}"'
    emulated = ["-include", str(Path(__file__).with_name("amx_emulated.h")), made_of]
    sources = [str(levels.FOLDER / name) for name in levels.SOURCES]
    flags = ["-std=gnu11", "-O2", "-march=x86-64-v4", "-mavx512bf16", "-fPIC", "-shared", "-w"]
    library = str(tmp_path / "amx.so")
    subprocess.run(["cc", *flags, *emulated, *sources, "-o", library, "-lm", "-lpthread"], check=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, library], capture_output=True, text=True, check=True
    )
    errors = [float(word) for word in done.stdout.split()]
    assert len(errors) == 22
    assert max(errors) < 0.01  # bf16 rounds to 2 ** -8
