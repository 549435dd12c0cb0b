"""Device, number format, seeds and the facts of the machine."""

import json
import platform
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch

import glassformer
from glassformer import TextClassifier, load, runtime
from glassformer.errors import ConfigError, OtherDeviceWarning
from glassformer.runtime import choose_device, has_fast_bf16

CPU = torch.device("cpu")


def test_device_auto_is_the_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert runtime.choose_device() == runtime.choose_device("cpu") == CPU
    with pytest.raises(ConfigError, match=r"no GPU is visible.*cpu or auto"):
        runtime.choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert runtime.choose_device().type == "cuda"
    assert runtime.choose_device("cuda:0") == torch.device("cuda:0")


def test_what_there_is_not():
    for ask, said in (
        (lambda: runtime.choose_device("gpu"), "'gpu' is not a device"),
        (lambda: runtime.choose_device("meta"), r"'meta' is not supported.*cpu, cuda or auto"),
        (lambda: runtime.choose_dtype("fp16", CPU), r"'fp16' is not a precision.*auto, fp32 or bf16"),
    ):
        with pytest.raises(ConfigError, match=said):
            ask()
    before = torch.get_num_threads()
    try:
        runtime.set_threads(2)
        assert torch.get_num_threads() == 2
        runtime.set_threads(0)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [({"amx_bf16"}, torch.bfloat16), ({"avx512_bf16"}, torch.bfloat16), ({"avx512f"}, torch.float32)],
)
def test_bf16_only_where_the_processor_has_it(monkeypatch, flags, wanted):
    monkeypatch.setattr(runtime, "cpu_flags", lambda: frozenset(flags))
    assert runtime.choose_dtype("auto", CPU) == wanted
    assert runtime.choose_dtype("fp32", CPU) == torch.float32
    assert runtime.choose_dtype("bf16", CPU) == torch.bfloat16


@pytest.mark.parametrize("own", [False, True])
def test_seed_reaches_the_generator_that_is_drawn_from(own):
    draws, before = [], torch.get_rng_state()
    with runtime.own_generator() if own else nullcontext():
        for seed in (3, 3, 4):
            runtime.set_seed(seed)
            draws.append(torch.rand(1, generator=runtime.generator_on(CPU)).item())
    assert draws[0] == draws[1] != draws[2]
    assert draws[0] == torch.rand(1, generator=torch.Generator().manual_seed(3)).item()
    assert torch.equal(torch.get_rng_state(), before) == own
    torch.set_rng_state(before)


def test_facts_of_the_machine_are_plain_values():
    facts = runtime.machine_facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cores"] >= 1
    assert facts["cpu"]
    assert facts["memory_gib"] > 0
    found = runtime.versions("numpy", "no-such-package")
    assert found["torch"] == torch.__version__.partition("+")[0] or found["torch"] == torch.__version__
    assert found["numpy"] == np.__version__
    assert "no-such-package" not in found
    assert found.get("glassformer", glassformer.__version__) == glassformer.__version__
    before = runtime.peak_memory_mb()
    block = np.ones(30_000_000)  # 240 MB
    assert runtime.peak_memory_mb() >= before
    assert 50 < runtime.peak_memory_mb() < 1e6
    assert runtime.peak_memory_mb() >= block.nbytes / 1e6


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_a_model_saved_for_a_gpu_answers_without_one(monkeypatch, tmp_path, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    texts, labels = ["a good film", "a bad film"] * 8, ["pos", "neg"] * 8
    settings = {"d_model": 14, "num_heads": 2, "num_layers": 1, "max_length": 8, "min_count": 1}
    clf = TextClassifier("encoder-mini", epochs=1, **settings).fit(texts, labels)
    wanted = clf.predict_proba(texts)
    clf.set_params(device=name).save(tmp_path / "model")
    with pytest.warns(OtherDeviceWarning, match=f"model was saved with device = '{name}', but no GPU"):
        again = load(tmp_path / "model")
    assert again.device == "auto"
    np.testing.assert_array_equal(again.predict_proba(texts), wanted)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert load(tmp_path / "model").device == name
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    if name == "cuda:1":
        with pytest.warns(OtherDeviceWarning, match="only 1 GPU is visible: it runs on cuda:0"):
            assert load(tmp_path / "model").device == "auto"


# --- batches of ever other sizes leave nothing behind ---------------------------------------------


NEW_SHAPES = """
import ctypes, os
import glassformer
glassformer.tune_process()
import torch

class Info(ctypes.Structure):  # mallinfo2(3)
    _fields_ = [(f"f{i}", ctypes.c_size_t) for i in range(10)]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.mallopt(-3, 2**30)  # nothing mapped on its own, so that f7, what is in use, is all of it
torch.set_num_threads(1)
weight = torch.ones(64, 97, dtype=torch.bfloat16)

def grown(rows):
    before = libc.mallinfo2().f7
    for count in rows:
        torch.ones(count, 64, dtype=torch.bfloat16) @ weight
    return libc.mallinfo2().f7 - before

grown(range(1, 200))  # the lists fill
print(grown(range(1001, 1401)) / 2**20)
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not has_fast_bf16(choose_device("cpu")),
    reason="it is oneDNN's bf16 products that are kept, and glibc that tells",
)
def test_products_of_new_shapes_are_not_kept():
    """In a tuned process. Without the setting that torch reads, 400 of them hold 100 MB."""
    done = subprocess.run([sys.executable, "-c", NEW_SHAPES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 10
