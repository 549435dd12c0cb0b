"""Clients of three kinds against one server of a text and a picture model: is every answer ``predict_proba``'s?

    .venv/bin/python -m benchmarks.reliability.clients runs/imdb-minilm runs/cifar10-vit --python OTHER/bin/python

curl, requests, and a client that openapi-python-client makes from the server's own description send the same test
reviews and test pictures (as PNG files), some in each request; labels must be equal and probabilities within
``--tolerance`` of those that the model gives in this process. ``--python`` is one that has requests and
openapi-python-client: an environment of its own keeps their needs apart.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.harness.command import command
from benchmarks.harness.servers import running, serving
from glassformer.data.image import open_image
from glassformer.data.image_sources import load_image_dataset
from glassformer.data.sources import load_text_dataset
from glassformer.tasks.load import load
from glassformer.tasks.run import read_run_recipe

# Each reads the bodies of its requests from stdin, a JSON list, and writes the answers to stdout.
REQUESTS = """
import json, sys, requests
session = requests.Session()
answers = [session.post(sys.argv[1] + "/v1/predict", json=body, timeout=60) for body in json.load(sys.stdin)]
print(json.dumps([answer.json() for answer in answers]))
"""
GENERATED = """
import json, sys
sys.path.insert(0, sys.argv[2])
from glassformer_client import Client
from glassformer_client.api.default import predict
from glassformer_client.models import PredictRequest
with Client(base_url=sys.argv[1], timeout=60) as client:
    bodies = [PredictRequest.from_dict(body) for body in json.load(sys.stdin)]
    print(json.dumps([predict.sync(client=client, body=body).to_dict() for body in bodies]))
"""


Send = Callable[[str, list[dict[str, Any]]], list[dict[str, Any]]]


def curl(url: str, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kind = ["-H", "content-type: application/json"]
    words = ["curl", "--silent", "--fail", f"{url}/v1/predict", *kind, "-d", "@-"]
    sent = [json.dumps(body).encode() for body in bodies]
    return [json.loads(subprocess.run(words, input=b, capture_output=True, check=True).stdout) for b in sent]


def by_script(python: str, script: str, *arguments: str) -> Send:
    def send(url: str, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        words = [python, "-c", script, url, *arguments]
        done = subprocess.run(words, input=json.dumps(bodies).encode(), stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    return send


def generate(python: str, url: str, folder: Path) -> None:
    """The client's package, made from what the server says of itself."""
    tool, into = Path(python).with_name("openapi-python-client"), folder / "glassformer_client"
    what = ["--url", f"{url}/openapi.json", "--meta", "none", "--output-path", into]
    environ = os.environ | {"PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}"}  # it calls ruff
    subprocess.run([tool, "generate", *what], check=True, env=environ)


def as_png(picture: Image.Image) -> str:
    file = BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def inputs_of(run: Path, count: int, seed: int) -> tuple[str, list[Any], list[Any]]:
    """The key of a request, inputs as ``predict_proba`` takes them, and as a request carries them."""
    recipe = read_run_recipe(run)
    if recipe.task == "text-classification":
        read = load_text_dataset(recipe.data.source, limit=count, seed=seed, splits=["test"])
        texts = read.splits["test"].texts
        return "texts", texts, texts
    seen = load_image_dataset(recipe.data.source, limit=count, seed=seed, splits=["test"])
    pictures = [open_image(image) for image in seen.splits["test"].images]
    return "images", pictures, [as_png(picture) for picture in pictures]


def compared(answers: list[Any], shares: np.ndarray, classes: list[str], tolerance: float) -> dict[str, Any]:
    """How many answers there were, how many had another label, and the largest difference of a probability."""
    found = [p for answer in answers for p in answer["predictions"]]
    assert len(found) == len(shares)
    rows = np.array([[p["probabilities"][name] for name in classes] for p in found])
    differences, labels = np.abs(rows - shares), [classes[i] for i in shares.argmax(1)]
    return {
        "requests": len(answers),
        "inputs": len(found),
        "other_labels": sum(p["label"] != label for p, label in zip(found, labels, strict=True)),
        "largest_difference": float(differences.max()),
        "beyond_tolerance": int((differences.max(1) > tolerance).sum()),
    }


@command(
    "clients of a served model",
    ("runs", dict(type=Path, nargs="+", help="run folders of classifiers")),
    out="clients",
    packages=("fastapi", "uvicorn"),
    python=(sys.executable, "with requests and openapi-python-client"),
    inputs=(200, "of each model"),
    batch=(8, "inputs in a request"),
    tolerance=1e-05,
    threads=torch.get_num_threads(),
    seed=0,
)
def main(options: Any) -> int:
    serve = serving(options.runs, "--precision", "fp32", "--threads", str(options.threads))
    models: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch, running(*serve, threads=options.threads) as server:
        generate(options.python, server.url, Path(scratch))
        clients = {
            "curl": curl,
            "requests": by_script(options.python, REQUESTS),
            "openapi-python-client": by_script(options.python, GENERATED, scratch),
        }
        for run in options.runs:
            key, inputs, carried = inputs_of(run, options.inputs, options.seed)
            clf = load(run)
            clf.precision = "fp32"
            shares, classes = clf.predict_proba(inputs), [str(c) for c in clf.classes_]
            parts = [carried[i : i + options.batch] for i in range(0, len(inputs), options.batch)]
            bodies = [{"model": run.name, key: part} for part in parts]
            models[run.name] = {
                name: compared(send(server.url, bodies), shares, classes, options.tolerance)
                for name, send in clients.items()
            }
            print(run.name, json.dumps(models[run.name], indent=1))
    about = {"precision": "fp32", "tolerance": options.tolerance, "seed": options.seed}
    options.write(about | {"models": models})
    return int(any(c["other_labels"] or c["beyond_tolerance"] for m in models.values() for c in m.values()))
