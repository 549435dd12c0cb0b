"""Device, number format, seeds and the facts of the machine."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch

import glassformer
from glassformer import TextClassifier, load, runtime
from glassformer.errors import ConfigError, OtherDeviceWarning

CPU = torch.device("cpu")


def test_device_auto_is_the_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert runtime.choose_device() == CPU
    assert runtime.choose_device("cpu") == CPU
    with pytest.raises(ConfigError, match=r"no GPU is visible.*cpu or auto"):
        runtime.choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert runtime.choose_device().type == "cuda"
    assert runtime.choose_device("cuda:0") == torch.device("cuda:0")


def test_no_such_device():
    with pytest.raises(ConfigError, match="'gpu' is not a device"):
        runtime.choose_device("gpu")


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [({"amx_bf16"}, torch.bfloat16), ({"avx512_bf16"}, torch.bfloat16), ({"avx512f"}, torch.float32)],
)
def test_bf16_only_where_the_processor_has_it(monkeypatch, flags, wanted):
    monkeypatch.setattr(runtime, "cpu_flags", lambda: frozenset(flags))
    assert runtime.choose_dtype("auto", CPU) == wanted
    assert runtime.choose_dtype("fp32", CPU) == torch.float32
    assert runtime.choose_dtype("bf16", CPU) == torch.bfloat16


def test_no_such_precision():
    with pytest.raises(ConfigError, match=r"'fp16' is not a precision.*auto, fp32 or bf16"):
        runtime.choose_dtype("fp16", CPU)


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


def test_threads():
    before = torch.get_num_threads()
    try:
        runtime.set_threads(2)
        assert torch.get_num_threads() == 2
        runtime.set_threads(0)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_facts_of_the_machine_are_plain_values():
    facts = runtime.machine_facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cores"] >= 1
    assert facts["cpu"]
    assert facts["memory_gib"] > 0


def test_versions():
    found = runtime.versions("numpy", "no-such-package")
    assert found["torch"] == torch.__version__.partition("+")[0] or found["torch"] == torch.__version__
    assert found["numpy"] == np.__version__
    assert "no-such-package" not in found
    assert found.get("glassformer", glassformer.__version__) == glassformer.__version__


def test_peak_memory():
    before = runtime.peak_memory_mb()
    block = np.ones(30_000_000)  # 240 MB
    assert runtime.peak_memory_mb() >= before
    assert 50 < runtime.peak_memory_mb() < 1e6
    assert runtime.peak_memory_mb() >= block.nbytes / 1e6


def test_a_device_without_numbers_is_refused():
    with pytest.raises(ConfigError, match=r"'meta' is not supported.*cpu, cuda or auto"):
        runtime.choose_device("meta")


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
