"""Every task outside the command line, from runs that commands made: the server, graphs, and the Hub's folders.

The runs are those of ``test_every_verb.py``; what cannot be served or exported is refused there.
"""

import base64
import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassformer as gf

from .every import KINDS, PICTURES, A, B, example, ok

ABLE = [k for k in KINDS if k not in ("masked words", "translation", "word vectors", "masked pictures")]
OF_TWO = ("text pairs", "questions")
# Where a model of a kind is asked, the body of a request, and where its answer is in the response.
ROUTES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "tags": ("/v1/tag", {"texts": [A]}, "sentences", "tags"),
    "questions": ("/v1/answer", {"questions": [[A, B]]}, "answers", "answer"),
    "similarity": ("/v1/similar", {"pairs": [[A, B]], "explain": True}, "cosines", ""),
    "text pairs": ("/v1/predict", {"pairs": [[A, B]]}, "predictions", "label"),
    "label sets": ("/v1/predict", {"texts": [A]}, "predictions", "labels"),
    "numbers": ("/v1/predict", {"texts": [A]}, "numbers", "number"),
    "numbers of pictures": ("/v1/predict", {"images": []}, "numbers", "number"),
    "pictures": ("/v1/predict", {"images": []}, "predictions", "label"),
    "texts": ("/v1/predict", {"texts": [A]}, "predictions", "label"),
}


@pytest.fixture(scope="module")
def server(made) -> Iterator[Any]:
    """One server that has them all."""
    from tests.serve.conftest import Running

    from glassformer.serve.limits import Limits
    from glassformer.serve.models import load_models

    models = load_models([made.runs[kind] for kind in ABLE], Limits(), threads=1, precision="fp32")
    with Running(models, Limits()) as running:
        yield running


def given(kind: str, data: Path) -> list[Any]:
    """The same input, as the library takes it."""
    return [str(example(kind, data)[0])] if kind in PICTURES else [(A, B)] if kind in OF_TWO else [A]


def loaded(run: Path) -> Any:
    return gf.load(run).set_params(precision="fp32", threads=1)


def offline(kind: str, model: Any, data: Path) -> Any:
    """The library's answer."""
    return model.similarity(A, B) if kind == "similarity" else model.predict(given(kind, data))[0]


@pytest.mark.parametrize("kind", ABLE)
def test_the_server_answers_and_explains_as_the_library(kind, made, server):
    data, (path, body, key, part) = made.data[kind], ROUTES[kind]
    about = {"model": made.runs[kind].name}
    picture = ""
    if kind in PICTURES:
        picture = base64.b64encode(Path(*given(kind, data)).read_bytes()).decode()
        body = {"images": [picture]}
    answer = server.ask(path, body | about).body
    found, wanted = answer[key][0], offline(kind, loaded(made.runs[kind]), data)
    if key in ("numbers", "cosines"):
        assert (found[part] if part else found) == pytest.approx(float(wanted), abs=1e-4)
    elif part == "labels":
        assert tuple(found[part]) == wanted
    else:
        assert found[part] == (wanted.tolist() if isinstance(wanted, np.generic) else wanted)
    if kind == "similarity":
        explanation = answer["explanation"]
        assert np.sum(explanation["table"]) == pytest.approx(explanation["cosine"], abs=1e-4)
        return
    asked: dict[str, Any] = {"image": picture} if picture else {"text": A}
    asked |= {"text_pair": B} if kind in OF_TWO else {"word": 1} if kind == "tags" else {}
    assert server.ask("/v1/explain", asked | about | {"method": "occlusion"}).body["label"]


def figures(kind: str, model: Any, data: Path) -> Any:
    """The numbers that an answer of the library stands on."""
    model.set_params(precision="fp32", threads=1)
    if kind == "similarity":
        return model.encode([A, B])
    if kind == "questions":
        found = model.outputs([(A, B)])[0]
        return [found.spans[0][0], found.null]
    if kind.startswith("numbers"):
        return model.predict(given(kind, data))
    return model.predict_proba(given(kind, data))[0]


@pytest.mark.parametrize("kind", ABLE)
def test_a_folder_for_the_hub_comes_back_with_the_same_answer(kind, made, tmp_path, monkeypatch, capsys):
    run, data, hub = made.runs[kind], made.data[kind], tmp_path / "hub"
    done = ok("export", run, "--to", "hf", "--out", hub, "--check", 5, "--json")
    assert not (hub / "glassformer.json").exists()
    wanted = figures(kind, gf.load(run), data)
    if json.loads(done.out)["whole"]:
        again = gf.Embedder(str(hub)) if kind == "similarity" else gf.load(hub)
        np.testing.assert_allclose(figures(kind, again, data), wanted, atol=1e-5)
        return
    assert (hub / "run.py").is_file()  # transformers' class holds the encoder, this adds pooling and head
    if kind not in ("label sets", "numbers"):  # the others: tests/export/test_hf.py
        return
    pytest.importorskip("transformers")
    monkeypatch.setattr(sys, "argv", ["run.py", A])
    capsys.readouterr()
    runpy.run_path(str(hub / "run.py"), run_name="__main__")
    cells = capsys.readouterr().out.splitlines()[0].split("\t")
    if kind == "numbers":
        assert float(cells[0]) == pytest.approx(float(wanted[0]), abs=1e-3)
    else:
        assert cells[::2] == list(gf.load(run).predict([A])[0] or ["(none)"])


OF_EXPORT = ("texts", "tags", "similarity", "pictures", "numbers", "questions")  # more in tests/export


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow if k in OF_EXPORT else ()) for k in ABLE]
)
def test_a_graph_runs_without_us(kind, made, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run, data = made.runs[kind], made.data[kind]
    ok("export", run, "--to", "onnx", "--out", tmp_path / "onnx", "--check", 5)
    words = [str(word) for word in example(kind, data)] + ([B] if kind == "similarity" else [])
    command = [sys.executable, "-I", str(tmp_path / "onnx" / "run.py"), *words]
    alone = subprocess.run(command, capture_output=True, text=True)
    assert alone.returncode == 0, alone.stderr
    model = loaded(run)
    wanted, lines = offline(kind, model, data), alone.stdout.splitlines()
    cells = lines[-1 if kind == "similarity" else 0].split("\t")
    if kind == "tags":
        assert [line.split("\t")[1] for line in lines if line] == wanted
    elif kind.startswith("numbers") or kind == "similarity":
        assert float(cells[0]) == pytest.approx(float(wanted), abs=1e-3)
    elif kind == "label sets":
        assert tuple(cells[::2]) == (tuple(wanted) or ("(none)",))
    else:
        assert cells[0] == str(wanted)
        if kind != "questions":
            p = model.predict_proba(given(kind, data))
            assert float(cells[1]) == pytest.approx(p.max(), abs=1e-3)
