"""ONNX Runtime writes nothing below the user's home and looks up no host: watched at the level of system calls."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from glassformer.errors import GlassformerError
from glassformer.export.graph import open_graph
from glassformer.export.onnx_folder import script_text
from glassformer.targets.multiclass import Classes

# What the libraries take as a wish or as a machine of tests, where they keep quiet by themselves.
QUIET = re.compile(r"ORT_|MLFLOW_|CI$|GITHUB_|TF_BUILD|DO_NOT_TRACK|PYTEST_|XDG_|RAY_|HF_")
OUTSIDE = re.compile(r"(connect|sendto|sendmsg|sendmmsg)\(.*AF_INET6?|\"/etc/(resolv\.conf|hosts)\"")
WRITES = re.compile(r"O_CREAT|mkdir|rename")


def calls_of(command: Sequence[object], home: Path) -> list[str]:
    """The system calls of a program, and of those that it starts, that reach out or write below its home."""
    trace = home.parent / "calls.txt"
    names = "network,openat,mkdir,mkdirat,rename,renameat,renameat2"
    strace = ["strace", "-f", "-y", "--seccomp-bpf", "-s", "300", "-e", f"trace={names}", "-o", trace]
    environment = {k: v for k, v in os.environ.items() if not QUIET.match(k)} | {"HOME": str(home)}
    done = subprocess.run(
        [*map(str, strace), *map(str, command)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = []
    for line in trace.read_text(encoding="utf-8", errors="replace").splitlines():
        if (str(home) in line and WRITES.search(line)) or OUTSIDE.search(line):
            found.append(line)
    return found


@pytest.fixture
def watched(tmp_path: Path) -> Callable[..., list[str]]:
    """Skips where strace is missing or may not watch; else the function that runs a program under it."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: what ONNX Runtime does outside of Python was not watched")
    try:
        calls_of(["true"], tmp_path)
    except AssertionError as error:
        pytest.skip(f"strace may not watch programs here: {error}")
    home = tmp_path / "home"
    home.mkdir()
    return lambda *command: calls_of(command, home)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, exporting) -> Path:
    """An exported folder whose graph sums the token ids, made by hand: nothing is fitted or drawn for it."""
    onnx = pytest.importorskip("onnx")
    folder, make = tmp_path_factory.mktemp("onnx"), onnx.helper
    ids = make.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["batch", "length"])
    names = ["logits", "probabilities"]
    outputs = [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 2]) for name in names]
    weight = onnx.numpy_helper.from_array(np.array([[1.0, -1.0]], np.float32), "weight")
    axis = onnx.numpy_helper.from_array(np.array([1]), "axis")
    nodes = [
        make.make_node("Cast", ["input_ids"], ["real"], to=onnx.TensorProto.FLOAT),
        make.make_node("ReduceSum", ["real", "axis"], ["sum"], keepdims=1),
        make.make_node("MatMul", ["sum", "weight"], ["logits"]),
        make.make_node("Softmax", ["logits"], ["probabilities"]),
    ]
    graph = make.make_graph(nodes, "sums", [ids], outputs, [weight, axis])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(folder / "model.onnx"))
    Tokenizer(WordLevel({"[UNK]": 0, "warm": 1}, "[UNK]")).save(str(folder / "tokenizer.json"))
    about = {"clean": "none", "add_special_tokens": False, "labels": ["yes", "no"], "threshold": None}
    (folder / "onnx.json").write_text(json.dumps(about), encoding="utf-8")
    (folder / "run.py").write_text(script_text("run_text", Classes().script("onnx")), encoding="utf-8")
    return folder


def test_the_watch_sees_what_onnx_runtime_does_by_itself(watched, folder: Path):
    import onnxruntime

    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 29):
        pytest.skip("before 1.29 ONNX Runtime sent nothing on Linux")
    assert any("onnxruntime" in call for call in watched(sys.executable, "-c", "import onnxruntime"))


def test_the_written_script_is_silent(watched, folder: Path, tmp_path: Path):
    assert watched(sys.executable, folder / "run.py", "warm") == []
    # it prints no control characters
    shutil.copytree(folder, tmp_path / "copy")
    about = json.loads((folder / "onnx.json").read_text(encoding="utf-8"))
    (tmp_path / "copy" / "onnx.json").write_text(json.dumps(about | {"labels": ["\x9b31m a\tb", "no"]}))
    command = [sys.executable, str(tmp_path / "copy" / "run.py"), "warm"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "\N{REPLACEMENT CHARACTER}31m a b\t0.8808\n"


def test_the_process_that_checks_a_graph_is_silent_and_the_caller_stays_as_it_is(watched, folder: Path):
    program = f"""
import os, sys
import numpy as np
from glassformer.export.graph import quantize, open_graph
before = dict(os.environ)
for file in ({str(folder / "model.onnx")!r}, quantize({str(folder / "model.onnx")!r}, {str(folder.parent / "int8.onnx")!r})):
    ids = np.ones((2, 3), np.int64)
    logits, shares = open_graph(file, 1)(dict(input_ids=ids, attention_mask=ids))
    assert abs(logits - [[3, -3]] * 2).max() < 0.1 and shares.dtype == np.float32
assert "onnxruntime" not in sys.modules and dict(os.environ) == before
"""
    assert watched(sys.executable, "-c", program) == []


def test_a_graph_that_cannot_run_is_a_plain_error(folder: Path, tmp_path: Path):
    (tmp_path / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(GlassformerError, match=r"ONNX Runtime failed: .*model\.onnx"):
        open_graph(tmp_path / "model.onnx", 1)
    run = open_graph(folder / "model.onnx", 1)
    with pytest.raises(GlassformerError, match=r"ONNX Runtime failed: .*input_ids"):
        run({"input_ids": np.ones((2, 3, 5), np.int64)})
    with pytest.raises(GlassformerError, match="ended with exit code 0"):  # after an error it is gone
        run({"input_ids": np.ones((2, 3), np.int64)})


@pytest.mark.slow
def test_export_is_silent_from_start_to_end(watched, text_model, tmp_path: Path, exporting):
    text_model.save(tmp_path / "model")
    command = ["export", tmp_path / "model", "--to", "onnx", "--int8", "--check", "3"]
    assert watched(sys.executable, "-m", "glassformer", *command) == []
    assert (tmp_path / "model" / "onnx" / "model-int8.onnx").is_file()
