"""Files as nobody wants them: damaged and malicious checkpoints, malformed tables and pictures.

Whatever the file, there are two good answers: it is read, or it is refused by a DataError or CheckpointError that names
it. Every other exception, code that runs, or an answer that differs from what was saved is a failure.
"""

import copy
import io
import json
import pickle
import random
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

import glassformer as gf
from benchmarks.harness.processes import scratch
from benchmarks.reliability.hostile_pictures import encoded, png
from glassformer.checkpoints.files import write_folder
from glassformer.checkpoints.native import load_state, save_state
from glassformer.checkpoints.tensors import read_tensors
from glassformer.checkpoints.word2vec import read_word2vec_format, write_word2vec_format
from glassformer.data.tables import read_table
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.data.transform import ImageTransform
from glassformer.errors import InputError
from glassformer.families.bert import bert
from glassformer.families.pretrained import load_pretrained, save_pretrained
from glassformer.models.text import TextEncoder as Bert
from glassformer.runtime import peak_memory_mb
from glassformer.tasks.catalog import load_recipe, recipe_names

DAMAGES = ("removed", "cut", "flipped", "swapped", "grown", "emptied")
MOST_MB, MOST_SECONDS = 500, 2.0


def damaged_checkpoints(count: int) -> list[dict]:
    """One file of the newest checkpoint damaged: the older one is used, and the damaged file is named."""
    out = []
    old, new = ({"w": torch.full((40,), float(v)), "n": torch.arange(v * 30)} for v in (1, 2))
    with scratch() as home:
        save_state(home / "whole", 1, old, {"step": 1})
        path = save_state(home / "whole", 2, new, {"step": 2})
        files = sorted(p.name for p in path.iterdir())
        for i in range(count):
            rng, name, kind = random.Random(i), files[i % len(files)], DAMAGES[i // len(files) % len(DAMAGES)]
            copy = home / "copy"
            shutil.copytree(home / "whole", copy)
            file = copy / path.name / name
            damage(file, kind, rng, copy / path.name / files[(i + 1) % len(files)])
            try:
                found = load_state(copy)
                right = found.step == 1 and all(torch.equal(t, found.tensors[n]) for n, t in old.items())
                named = len(found.skipped) == 1 and path.name in found.skipped[0][1]
                out.append({"file": name, "damage": kind, "passed": right and named})
            except Exception as error:
                out.append({"file": name, "damage": kind, "passed": False, "said": repr(error)[:200]})
            shutil.rmtree(copy)
    return out


def damage(file: Path, kind: str, rng: random.Random, other: Path) -> None:
    """Do that to a file; ``other``: with which it is swapped."""
    content = bytearray(file.read_bytes())
    if kind == "removed":
        file.unlink()
    elif kind == "cut":
        file.write_bytes(content[: rng.randrange(len(content))])
    elif kind == "flipped":
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)
    elif kind == "swapped":
        file.write_bytes(other.read_bytes())
        other.write_bytes(content)
    elif kind == "grown":
        file.write_bytes(content + bytes(rng.randrange(1, 50)))
    else:
        file.write_bytes(b"")


class _Bomb:
    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.marker,))


def malicious_checkpoints() -> list[dict]:
    """Pickles of every protocol in every slot, giant headers, impossible shapes, names that lead out of the folder; and
    a model of few bytes whose config asks for more memory than there is, or for endless layers."""
    out: list[dict] = []
    with scratch() as home:
        marker = home / "executed"

        def new(name: str) -> Path:
            (home / name).mkdir()
            return home / name

        pickles = [pickle.dumps(_Bomb(marker), p) for p in range(pickle.HIGHEST_PROTOCOL + 1)]
        header = struct.pack("<Q", 200 * 2**20) + b"{" + b" " * 5000
        shape = json.dumps({"w": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}).encode()
        backwards = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}).encode()
        raw = [*pickles, header] + [struct.pack("<Q", len(h)) + h + bytes(8) for h in (shape, backwards)]
        slots = ("model.safetensors", "model-00001-of-00001.safetensors", "config.json", "state.safetensors")
        for i, payload in enumerate(raw):
            for slot in slots:
                folder = new(f"{i}-{slot}")
                (folder / "config.json").write_text('{"model_type": "bert"}')
                index = {"weight_map": {"w": slots[1]}}
                (folder / "model.safetensors.index.json").write_text(json.dumps(index))
                (folder / slot).write_bytes(payload)
                read = partial(read_tensors, name="state") if slot == slots[-1] else load_pretrained
                out.append(refused(partial(read, folder), f"payload {i} as {slot}", marker))
        for name in (
            "../escaped",
            "/tmp/escaped",
            "a/../../escaped",
            "..\\escaped",
            "C:\\escaped",
            "a\0b",
            "",
        ):
            folder = new(f"index-{len(out)}")
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
            out.append(refused(partial(read_tensors, folder), f"index names {name!r}", marker))
            place = home / f"manifest-{len(out)}" / "step-00000001"
            folder = write_folder(place, lambda p: (p / "x").touch())
            body = {"format": 1, "files": {name: {"size": 0, "sha256": "0" * 64}}, "extra": {"step": 1}}
            (folder / "manifest.json").write_text(json.dumps(body))
            out.append(refused(partial(load_state, folder.parent), f"manifest lists {name!r}", marker))
        out = out[:50]
        whole = new("whole")
        save_pretrained(Bert(bert(7, 6, 1, 1, 5, 11, head="classification", num_labels=2)), whole)
        config = json.loads((whole / "config.json").read_text())
        for i, wrong in enumerate(GREEDY):
            folder = shutil.copytree(whole, home / f"greedy-{i}")
            (folder / "config.json").write_text(json.dumps(config | wrong))
            out.append(refused(partial(load_pretrained, folder), f"config.json says {wrong}", marker))
    return out


GREEDY: tuple[dict[str, Any], ...] = (
    {"vocab_size": 10**7, "hidden_size": 4096, "num_attention_heads": 1}, {"num_hidden_layers": 10**6},
    {"max_position_embeddings": 10**9}, {"type_vocab_size": 10**9}, {"intermediate_size": 10**7},
    {"max_position_embeddings": "9"}, {"initializer_range": -1}, {"layer_norm_eps": "1"}, {"hidden_act": ["gelu"]},
    {"model_type": ["bert"]}, {"vocab_size": 10**60}, {"hidden_dropout_prob": 1},
)  # fmt: skip


def refused(read: Callable[[], Any], what: str, marker: Path) -> dict:
    """Whether ``read`` ends in an InputError, soon, and nothing was executed."""
    answer, said, seconds = outcome(read)
    passed = answer == "refused" and not marker.exists() and seconds < MOST_SECONDS
    return {"what": what, "passed": passed, "said": said[:200]}


def held(about: dict[str, Any], read: Callable[[], Any], name: str = "") -> dict[str, Any]:
    """``about`` with what reading comes to, and whether it is one of the two good answers, soon."""
    answer, said, seconds = outcome(read, name)
    fine = answer != "failed" and seconds < MOST_SECONDS
    told = said[:200] if answer == "failed" else answer
    return about | {"passed": fine, "answer": told, "seconds": round(seconds, 3)}


def outcome(read: Callable[[], Any], name: str = "") -> tuple[str, str, float]:
    """What reading comes to (``read``, ``refused`` by an InputError with that name, ``failed``), what was said, seconds."""
    started, answer, said = time.perf_counter(), "read", ""
    try:
        read()
    except InputError as error:
        answer, said = "refused" if name in str(error) else "failed", str(error)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of compiled code is no Exception
        answer, said = "failed", f"{type(error).__name__}: {error}"
    return answer, said, time.perf_counter() - started


# --- tables -------------------------------------------------------------------------------------------

GOOD_CSV = b'text,label\r\n"a fine, long film",1\r\nbad,0\r\n"he said ""no""",1\r\n'
GOOD_JSONL = b'{"text": "a fine film", "label": 1}\n{"text": "b\\u00e9d", "label": 0}\n'


def _parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": ["a fine film", "bad"] * 20, "label": [1, 0] * 20}), file)
    return file.getvalue()


def hand_made_tables() -> list[tuple[str, bytes]]:
    """Sixty tables with one fault each, or none that a reader may stumble on."""
    csv, lines, utf16 = GOOD_CSV, GOOD_JSONL, "text,label\nfilm,1\n".encode("utf-16")
    bodies = [
        b"", b"\n", b"\r\n\r\n", b"text", b"text\n", b"text,label", b"text,label\n", b"text,text\na,b\n", b",\n,\n",
        b"\xef\xbb\xbf" + csv, b"\xef\xbb\xbf", utf16, utf16[2:], csv.replace(b"bad", b"b\0d"), csv + b"\xff\xfe\n",
        csv.replace(b"bad,0", b"bad"), csv.replace(b"bad,0", b"bad,0,0"), csv[:-3],
        csv.replace(b'"a fine', b'"a" fine'),
        b'text,label\n"never closed,0\n', b"text,label\n" + b"a," * 5000, b"text,label\n,1\n", b"text,label\na,\n",
        b"text,label\n   ,1\n", b"a;b\nc;d\n", b"a\tb\nc\td\n", b"text,label\r" * 3, b"x" * 100_000, b'"' * 999,
        b"text,label\n" + "é".encode("latin-1") + b",1\n",
    ]  # fmt: skip
    rows = [
        b"", b"\n", b"{}", b"[]", b"null", b"3", b'"x"', b"{", b'{"text": }', b"[" * 100_000, b"{" * 50_000,
        b'{"text": 1e999}', b'{"n": ' + b"9" * 6000 + b"}", lines.replace(b"}", b""), lines + b"[1]\n", lines + b"\0",
        lines.replace(b'"text"', b'"tex"', 1), b"\xef\xbb\xbf" + lines, lines.decode().encode("utf-16"),
        lines + b"\xff\n",
    ]  # fmt: skip
    whole = _parquet()
    parquet = [
        b"", b"PAR1", b"PAR1PAR1", whole[:-1], whole[:-8], whole[4:], whole[: len(whole) // 2], whole + b"x",
        whole.replace(b"PAR1", b"PAR2"), whole[:-8] + struct.pack("<I", 2**31 - 1) + b"PAR1",
    ]  # fmt: skip
    kinds = ((".csv", bodies), (".jsonl", rows), (".parquet", parquet))
    return [(suffix, body) for suffix, all_of in kinds for body in all_of]


def tables(count: int) -> list[dict]:
    """The hand-made ones, then ``count`` good ones with random bytes changed, cut, doubled or put in."""
    good = list(zip((".csv", ".jsonl", ".parquet", ".tsv", ".json"), (GOOD_CSV, GOOD_JSONL, _parquet()) * 2))
    work = hand_made_tables() + [(s, mutated(b, i)) for i in range(count) for s, b in [good[i % len(good)]]]
    with scratch() as home:
        return [_read(home / f"{i}{suffix}", body, _table) for i, (suffix, body) in enumerate(work)]


def _table(path: Path) -> None:
    table = read_table(path)
    for name in table.names:
        table.read(name)


def mutated(content: bytes, seed: int) -> bytes:
    """The same with one to three small accidents."""
    rng, out = random.Random(seed), bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at, kind = rng.randrange(len(out) + 1), rng.randrange(5)
        if kind == 0 and at < len(out):
            out[at] = rng.randrange(256)
        elif kind == 1:
            del out[at : at + rng.randint(1, 20)]
        elif kind == 2:
            odd = (0, 10, 34, 44, 255)
            out[at:at] = bytes(rng.choice((*odd, rng.randrange(256))) for _ in range(rng.randint(1, 4)))
        elif kind == 3:
            out[at:at] = out[at : at + rng.randint(1, 40)]
        else:
            out = out[: max(1, at)]
    return bytes(out)


def _read(path: Path, body: bytes, read: Callable[[Path], Any]) -> dict:
    path.write_bytes(body)
    found = held({"file": path.name}, lambda: read(path), path.name)
    path.unlink()
    return found


def readers(count: int) -> list[dict]:
    """Every other file that is read from outside: weights, settings, tokenizers, word vectors, recipes; mutated."""
    with scratch() as home:
        texts = [" ".join(GOOD_JSONL.decode().split()), "a bad film"]
        clf = gf.TextClassifier("encoder-mini", min_count=1, max_length=9, **SMALL).fit(texts * 4, [0, 1] * 4)
        hub = clf.save(home / "hub")
        (hub / "manifest.json").unlink()  # whose sums would refuse all of these at once
        words = [f"w{i}" for i in range(9)]
        for name, binary in (("v.txt", False), ("v.bin", True)):
            write_word2vec_format(home / name, words, np.ones((9, 4), np.float32), binary=binary)
        shutil.copy(next(iter(recipe_names().values())), home / "r.toml")
        vectors, recipe = [home / name for name in ("v.txt", "v.bin")], home / "r.toml"
        work: list[tuple[Path, Callable[[], Any]]] = [
            (hub / "model.safetensors", partial(load_pretrained, hub)),
            (hub / "config.json", partial(load_pretrained, hub)),
            (hub / "tokenizer.json", partial(load_tokenizer, hub)),
            *((path, partial(read_word2vec_format, path)) for path in vectors),
            (recipe, partial(load_recipe, recipe)),
        ]
        whole = {path: path.read_bytes() for path, _ in work}
        out = []
        for i in range(count):
            path, read = work[i % len(work)]
            path.write_bytes(mutated(whole[path], i))
            out.append(held({"file": path.name, "seed": i}, read))
            path.write_bytes(whole[path])
    return out


# --- pictures -----------------------------------------------------------------------------------------


def hand_made_pictures() -> list[bytes]:
    """Forty: cut, of odd modes, turned, animated, far too large, or no images at all."""
    rgb = Image.fromarray(np.random.default_rng(3).integers(0, 256, (13, 17, 3), np.uint8))
    grey = rgb.convert("L")
    exif = Image.Exif()
    exif[0x0112] = 6
    wide = Image.fromarray(np.zeros((5, 7), np.uint16) + 60_000)
    jpeg, whole = encoded(rgb, "JPEG"), encoded(rgb, "PNG")
    gif = encoded(rgb.convert("P"), "GIF", save_all=True, append_images=[rgb.rotate(90).convert("P")] * 3)
    odd = [
        encoded(rgb.convert("CMYK"), "JPEG"), encoded(wide, "PNG"), encoded(rgb.convert("RGBA"), "PNG"),
        encoded(rgb.quantize(8), "PNG", transparency=0), encoded(rgb.convert("LA"), "PNG"), encoded(grey, "PNG"),
        encoded(rgb.convert("1"), "PNG"), encoded(rgb, "PNG", exif=exif), gif, encoded(rgb, "BMP"),
        encoded(rgb, "WEBP"),
        encoded(rgb, "TIFF"), encoded(grey.convert("F"), "TIFF"), encoded(grey.convert("I"), "TIFF"),
        encoded(rgb.convert("YCbCr"), "JPEG"), encoded(rgb.convert("LAB"), "TIFF"),
    ]  # fmt: skip
    webp = encoded(rgb, "WEBP")
    cut = [jpeg[:-60], jpeg[:15], jpeg[:2], whole[:-40], whole[:20], whole[:8], gif[:30], webp[:40]]
    sizes = ((50_000, 50_000), (2**31 - 1, 1), (1, 2**31 - 1), (0, 5), (60_000, 2))
    bombs = [*(png(*size, 8, 2, bytes(5000)) for size in sizes), png(40_000, 40_000, 16, 6, bytes(5000))]
    none = [b"", b"\0", b"text", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"<svg xmlns='x'/>",
            b"%PDF-1.4\n",
            b"GIF89a", b"\xff\xd8\xff", bytes(5000), b"RIFF\xff\xff\xff\xffWEBPVP8 "]  # fmt: skip
    return odd + cut + bombs + none


def pictures(count: int) -> list[dict]:
    """The hand-made ones, then ``count`` good ones with accidents."""
    rgb = Image.fromarray(np.random.default_rng(3).integers(0, 256, (13, 17, 3), np.uint8))
    good = [encoded(rgb, kind) for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")]
    work = hand_made_pictures() + [mutated(good[i % len(good)], i) for i in range(count)]
    before, door = peak_memory_mb(), ImageTransform((8, 8))
    with scratch() as home:
        read = lambda p: door.read(str(p), str(p))  # noqa: E731
        out = [_read(home / f"{i}.jpg", body, read) for i, body in enumerate(work)]
    more = peak_memory_mb() - before
    return [one | {"passed": one["passed"] and more < MOST_MB} for one in out]


TEXTS = ["a fine film", "a bad film", "bad , not fine", "a fine one"]
SMALL = {"d_model": 6, "num_layers": 1, "num_heads": 1, "d_ff": 5, "epochs": 1, "threads": 1}
VALUES: tuple[Any, ...] = (
    None, True, "", "9", "a", [], [1], {}, {"a": 1}, 0, -1, 1.5, -1e-3, 7, 10**5, 10**7, 10**10, 2**63, 10**40, 1e308,
    float("nan"), float("inf"),
)  # fmt: skip


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The path to every value of an object, inner ones too; of a list the first is enough."""
    items: Any = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value[:1]) if isinstance(value, list) else items:
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
            about = {"file": f"{kind}/{name}", "changed": what, "seed": seed}
            out.append(held(about, partial(use, folder)))
    return out
