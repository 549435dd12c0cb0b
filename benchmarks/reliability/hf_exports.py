"""Exports in the Hub's layout, opened by transformers alone: the same labels, and how far the logits lie apart.

    .venv/bin/python -m benchmarks.reliability.hf_exports [--other-python PATH] [--model RUN] [--inputs 500]

Classifiers that the Hub has a whole class for (``AutoModelFor...``), and some that need the ``run.py`` of their
export. Each is exported and opened by another process that does not import glassformer, with this interpreter's
transformers and with that of ``--other-python``, such as one with 4.57. Pictures are handed over decoded, without
transparency or orientation.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import glassformer as gf
from benchmarks.harness.command import command
from benchmarks.reliability.export import build
from glassformer.data.sources import load_text_dataset
from glassformer.data.text import clean_text
from glassformer.export.hf_folder import export_hf
from glassformer.export.outputs import samples_of

BUILDS = ("MiniLM, pooler", "MiniLM, mean, MLP head", "ViT, [CLS]")
OPEN = """
import importlib.util, json, sys
from pathlib import Path
import torch, transformers
folder, asked = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
rows = []
if (folder / "run.py").exists():
    spec = importlib.util.spec_from_file_location("run", folder / "run.py")
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    one, opened = run.logits, "run.py"
else:
    from PIL import Image
    seen = asked["noun"] == "images"
    kind = transformers.AutoModelForImageClassification if seen else transformers.AutoModelForSequenceClassification
    model = kind.from_pretrained(folder).eval()
    opened = type(model).__name__
    if seen:
        # the one that needs no torchvision: 5.x names it anew
        processors = [getattr(transformers, n, None) for n in ("ViTImageProcessorPil", "ViTImageProcessor")]
        reader = next(p for p in processors if p).from_pretrained(folder)
    else:
        reader = transformers.AutoTokenizer.from_pretrained(folder)
    def one(inputs):
        if seen:
            batch = reader([Image.open(i).convert("RGB") for i in inputs], return_tensors="pt")
        else:
            batch = reader(inputs, padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            return model(**batch).logits
for i in range(0, len(asked["inputs"]), 32):
    rows += one(asked["inputs"][i : i + 32]).tolist()
assert "glassformer" not in sys.modules
print(json.dumps({"transformers": transformers.__version__, "opened": opened, "logits": rows}))
"""


def opened_by(python: str, folder: Path, asked: Path) -> dict[str, Any]:
    """What transformers says there: its version, the class that it opened, ``logits`` ``[N, C]``."""
    words, pipe = [python, "-c", OPEN, folder, asked], subprocess.PIPE
    done = subprocess.run(words, check=True, stdout=pipe, text=True, cwd=folder)
    return json.loads(done.stdout.splitlines()[-1])


def asked_of(noun: str, samples: Sequence[Any], folder: Path) -> Path:
    """A file with texts, or with the names of pictures written beside it."""
    inputs = list(samples)
    if noun == "images":
        inputs = [str(folder / f"{i}.png") for i in range(len(samples))]
        for name, pixels in zip(inputs, samples, strict=True):
            Image.fromarray(pixels).save(name)
    file = folder / "inputs.json"
    file.write_text(json.dumps({"noun": noun, "inputs": inputs}), encoding="utf-8")
    return file


@command(
    "exports opened by transformers alone",
    out="hf-export",
    packages=("transformers",),
    other_python=dict(action="append", default=[], metavar="PATH"),
    model=(Path, "also this run"),
    inputs=500,
    threads=torch.get_num_threads(),
)
def main(options: Any) -> dict[str, Any]:
    split = load_text_dataset("imdb", limit=256, seed=0, splits=["train"]).splits["train"]
    found = []
    for name in [*BUILDS, *([options.model.name] if options.model else [])]:
        own = name not in BUILDS
        clf = gf.load(options.model) if own else build(name, options.threads, split.texts, split.labels or [])
        samples, _ = samples_of(clf, options.model if own else "nowhere", options.inputs)
        if clf.NOUN == "texts":  # cleaning is the caller's in transformers
            samples = [clean_text(text, clf.clean) for text in samples]
        ours = clf.export_outputs().outputs(samples)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "hf"
            export_hf(clf, folder, samples[:16])
            asked = asked_of(clf.NOUN, samples, Path(scratch))
            for python in [sys.executable, *options.other_python]:
                answer = opened_by(python, folder, asked)
                theirs = np.array(answer.pop("logits"))
                apart = {"largest_difference": float(np.abs(ours - theirs).max())}
                apart["labels_changed"] = int((ours.argmax(1) != theirs.argmax(1)).sum())
                found.append({"build": name, **answer, "inputs": len(samples), **apart})
                print(json.dumps(found[-1]), flush=True)
    return {"exports": found}
