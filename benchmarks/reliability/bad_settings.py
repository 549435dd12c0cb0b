"""Settings as nobody wants them: keys dropped, values of another type, numbers that are huge, negative or none.

Of every JSON file that says how saved weights are to be used. Manifests are written anew, so that no checksum refuses a
change. Either the folder is refused by an InputError, or what it holds answers, or refuses to by an InputError.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import glassformer as gf
from benchmarks.reliability.kill_tests import scratch
from glassformer.checkpoints.files import write_folder
from glassformer.errors import InputError

MOST_SECONDS = 2.0
TEXTS = ["a fine film", "a bad film", "bad , not fine", "a fine one"]
SMALL = {"d_model": 6, "num_layers": 1, "num_heads": 1, "d_ff": 5, "epochs": 1, "threads": 1}
VALUES: tuple[Any, ...] = (
    None, True, "", "9", "a", [], [1], {}, {"a": 1}, 0, -1, 1.5, -1e-3, 7, 10**5, 10**7, 10**10, 2**63, 10**40, 1e308,
    float("nan"), float("inf"),
)  # fmt: skip


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The path to every value of an object, inner ones too; of a list the first is enough."""
    items = (
        value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    )
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(settings: dict[str, Any], seed: int) -> tuple[dict[str, Any], str]:
    """The same with one key dropped or one value replaced, and what was done."""
    rng, out = random.Random(seed), copy.deepcopy(settings)
    *outer, last = rng.choice(list(places(settings)))
    inside = out
    for key in outer:
        inside = inside[key]
    name = ".".join(map(str, (*outer, last)))
    if rng.random() < 0.25:
        del inside[last]
        return out, f"{name} dropped"
    inside[last] = rng.choice(VALUES)
    return out, f"{name} = {str(inside[last])[:20]}"


def folders(home: Path) -> dict[str, tuple[Path, tuple[str, ...], Callable[[Path], Any]]]:
    """A saved folder of each kind, its files of settings, and how it is used."""
    texts = gf.TextClassifier("encoder-mini", min_count=1, max_length=9, **SMALL).fit(TEXTS, [0, 1, 1, 0])
    rnn = gf.TextClassifier("lstm", min_count=1, max_length=9, epochs=1, threads=1, d_model=6)
    pixels = np.random.default_rng(3).integers(0, 256, (4, 8, 8, 3), np.uint8)
    pictures = gf.ImageClassifier("vit-tiny", image_size=8, patch_size=4, **SMALL).fit(pixels, [0, 1, 1, 0])
    vectors = gf.Word2Vec(dim=5, min_count=1, epochs=1, threads=1).fit([text.split() for text in TEXTS * 9])
    translator = gf.Translator(min_count=1, max_length=9, **SMALL).fit(TEXTS, TEXTS)
    both = ("config.json", "glassformer.json")
    return {
        "texts": (texts.save(home / "texts"), both, lambda p: gf.load(p).predict(TEXTS)),
        "rnn": (rnn.fit(TEXTS, [0, 1, 1, 0]).save(home / "rnn"), both, lambda p: gf.load(p).predict(TEXTS)),
        "pictures": (
            pictures.save(home / "pictures"), (*both, "preprocessor_config.json"),
            lambda p: gf.load(p).predict(pixels),
        ),
        "vectors": (
            vectors.save(home / "vectors"), ("glassformer.json", "words.json"),
            lambda p: gf.load(p).most_similar("a"),
        ),
        "translator": (translator.save(home / "translator"), both, lambda p: gf.load(p).translate(TEXTS[:1])),
    }  # fmt: skip


def settings(count: int) -> list[dict]:
    """``count`` changed folders."""
    out = []
    with scratch() as home:
        kinds = folders(home)
        work = [(kind, name) for kind, (_, names, _) in kinds.items() for name in names]
        for seed in range(count):
            kind, name = work[seed % len(work)]
            whole, _, use = kinds[kind]
            content, what = changed(json.loads((whole / name).read_text(encoding="utf-8")), seed)

            def write(folder: Path, whole: Path = whole, name: str = name, content: Any = content) -> None:
                shutil.copytree(whole, folder, dirs_exist_ok=True, ignore=lambda *_: ["manifest.json"])
                (folder / name).write_text(json.dumps(content), encoding="utf-8")

            folder = write_folder(home / "changed", write, overwrite=True)
            started, said, passed = time.perf_counter(), "read", True
            try:
                use(folder)
            except InputError:
                said = "refused"
            except Exception as error:
                said, passed = f"{type(error).__name__}: {error}"[:200], False
            passed = passed and time.perf_counter() - started < MOST_SECONDS
            out.append(
                {"file": f"{kind}/{name}", "changed": what, "seed": seed, "answer": said, "passed": passed}
            )
    return out
