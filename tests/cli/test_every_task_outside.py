"""Every task outside the command line, from runs that commands made: the server, graphs, and the Hub's folders.

The runs are those of ``test_every_verb.py``; what cannot be served or exported is refused there.
"""

import base64
import http.client
import json
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassformer as gf

from .every import KINDS, PICTURES, A, B, example, ok

ABLE = [
    kind for kind in KINDS if kind not in ("masked words", "translation", "word vectors", "masked pictures")
]


@pytest.fixture(scope="module")
def ask(made) -> Iterator[Callable[[str, dict[str, Any]], Any]]:
    """Asks one server that has them all, over a real connection."""
    pytest.importorskip("fastapi")
    uvicorn = pytest.importorskip("uvicorn")
    from glassformer.serve.app import create_app
    from glassformer.serve.limits import Limits
    from glassformer.serve.models import load_models

    limits = Limits()
    models = load_models([made.runs[kind] for kind in ABLE], limits, threads=1, precision="fp32")
    config = uvicorn.Config(create_app(models, limits), "127.0.0.1", 0, log_level=40)
    socket, server = config.bind_socket(), uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)

    def post(path: str, body: dict[str, Any]) -> Any:
        connection = http.client.HTTPConnection(*socket.getsockname(), timeout=30)
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        found = json.loads(response.read())
        connection.close()
        assert response.status == 200, found
        return found

    yield post
    server.should_exit = True
    thread.join(30)
    socket.close()


def picture(kind: str, data: Path) -> str:
    return base64.b64encode(Path(str(example(kind, data)[0])).read_bytes()).decode()


def asked(kind: str, data: Path) -> tuple[str, dict[str, Any]]:
    """Where a model of a kind is asked, and the body of a request."""
    if kind in PICTURES:
        return "/v1/predict", {"images": [picture(kind, data)]}
    if kind == "tags":
        return "/v1/tag", {"texts": [A]}
    if kind == "questions":
        return "/v1/answer", {"questions": [[A, B]]}
    if kind == "similarity":
        return "/v1/similar", {"pairs": [[A, B]], "explain": True}
    return "/v1/predict", {"pairs": [[A, B]]} if kind == "text pairs" else {"texts": [A]}


def offline(kind: str, model: Any, data: Path) -> Any:
    """The library's answer to the same."""
    if kind in PICTURES:
        return model.predict([str(example(kind, data)[0])])[0]
    if kind == "similarity":
        return model.similarity(A, B)
    return model.predict([(A, B)] if kind in ("text pairs", "questions") else [A])[0]


def told(kind: str, body: dict[str, Any]) -> Any:
    """The answer in a response."""
    if kind == "tags":
        return body["sentences"][0]["tags"]
    if kind == "questions":
        return body["answers"][0]["answer"]
    if kind == "similarity":
        return body["cosines"][0]
    if kind.startswith("numbers"):
        return body["numbers"][0]["number"]
    found = body["predictions"][0]
    return tuple(found["labels"]) if kind == "label sets" else found["label"]


@pytest.mark.parametrize("kind", ABLE)
def test_the_server_answers_and_explains_as_the_library(kind, made, ask):
    name, data = made.runs[kind].name, made.data[kind]
    path, body = asked(kind, data)
    answer = ask(path, body | {"model": name})
    model = gf.load(made.runs[kind]).set_params(precision="fp32", threads=1)
    found, wanted = told(kind, answer), offline(kind, model, data)
    if kind.startswith("numbers") or kind == "similarity":
        assert found == pytest.approx(float(wanted), abs=1e-4)
    else:
        assert found == (wanted.tolist() if isinstance(wanted, np.generic) else wanted)
    if kind == "similarity":
        explanation = answer["explanation"]
        assert np.sum(explanation["table"]) == pytest.approx(explanation["cosine"], abs=1e-4)
        return
    given: dict[str, Any] = {"text": A}
    given |= {"text_pair": B} if kind in ("text pairs", "questions") else {}
    given |= {"word": 1} if kind == "tags" else {}
    given = {"image": picture(kind, data)} if kind in PICTURES else given
    assert ask("/v1/explain", given | {"model": name, "method": "occlusion"})["label"]


def figures(kind: str, model: Any, data: Path) -> Any:
    """The numbers that an answer of the library stands on."""
    model.set_params(precision="fp32", threads=1)
    given = [str(example(kind, data)[0])] if kind in PICTURES else [A]
    if kind == "similarity":
        return model.encode([A, B])
    if kind == "questions":
        found = model.outputs([(A, B)])[0]
        return [found.spans[0][0], found.null]
    if kind.startswith("numbers"):
        return model.predict(given)
    return model.predict_proba([(A, B)] if kind == "text pairs" else given)[0]


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
    words = [str(word) for word in example(kind, data)]
    monkeypatch.setattr(sys, "argv", ["run.py", *words])
    capsys.readouterr()
    runpy.run_path(str(hub / "run.py"), run_name="__main__")
    cells = capsys.readouterr().out.splitlines()[0].split("\t")
    if kind == "label sets":
        shown = " | ".join(gf.load(run).predict([A])[0]) or "(none)"
        assert " | ".join(cells[::2]) == shown
        return
    assert float(cells[0]) == pytest.approx(float(wanted[0]), abs=1e-3)


OF_EXPORT = ("texts", "tags", "similarity", "pictures", "numbers", "questions")  # more in tests/export


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in OF_EXPORT else ()) for kind in ABLE]
)
def test_a_graph_runs_without_us(kind, made, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run, data = made.runs[kind], made.data[kind]
    ok("export", run, "--to", "onnx", "--out", tmp_path / "onnx", "--check", 5)
    words = [str(word) for word in example(kind, data)] + ([B] if kind == "similarity" else [])
    alone = subprocess.run(
        [sys.executable, "-I", str(tmp_path / "onnx" / "run.py"), *words], capture_output=True, text=True
    )
    assert alone.returncode == 0, alone.stderr
    model = gf.load(run).set_params(precision="fp32", threads=1)
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
        given = [words[0]] if kind != "text pairs" else [(A, B)]
        if kind != "questions":
            assert float(cells[1]) == pytest.approx(model.predict_proba(given).max(), abs=1e-3)
