"""What a stranger's model folder decides: hostile tokenizers and labels end in one typed error, or in right answers.

Tokenizers are read by another process, which can be stopped when it does not come back; what it writes to its error
output is looked through for panics.
"""

import base64
import json
import multiprocessing
import os
import random
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import glassformer as gf
from benchmarks.harness.processes import peak_mb, scratch
from glassformer.checkpoints.files import write_folder
from glassformer.data.sources import load_text_dataset
from glassformer.errors import InputError

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b film fine bad ##s not , an".split()
VOCAB = {word: number for number, word in enumerate(WORDS)}
ODD: tuple[Any, ...] = (None, True, 7, -1, 1.5, "", "x", [], [1], {}, {"a": 1}, 10**30)
EXPLODING = (
    r"(a+)+$", r"(a|a)*b", r"(?:a|b|ab)+c", r"(x+x+)+y", r"\s+$", r"a*a*a*b", r"(.*a){12}", r"(\w+\s?)+!",
    r"(a(b?))+\2$", r"((a{1,1000}){1,1000}){1,1000}", r"(?<x>a\g<x>?b)", "(" * 500 + "a" + ")" * 500, "a" * 5000,
    "(", "[z-a]", r"\p{Nope}", "a**", "",
)  # fmt: skip


def plain() -> dict[str, Any]:
    """A whole tokenizer in which nothing is wrong."""
    around = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
              {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]  # fmt: skip
    special = {t: {"id": t, "ids": [VOCAB[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": 1, "content": "[UNK]", "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": around, "pair": [], "special_tokens": special},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": VOCAB},
    }  # fmt: skip


def _with(**parts: Any) -> str:
    return json.dumps(plain() | parts)


def _sequence(key: str, steps: list[Any]) -> dict[str, Any]:
    return {"type": "Sequence", key: steps}


def _replace(pattern: str, content: Any, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def _charsmap(units: list[int], strings: bytes) -> str:
    return _base64(struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + strings)


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _normalizers(rng: random.Random) -> Iterator[tuple[str, Any]]:
    rubbish: list[Any] = [None, 7, [], "", "AAAA", "not base64!", "\ud800", "A" * 10_000]
    rubbish += [_base64(rng.randbytes(rng.choice((3, 40, 4000)))) for _ in range(12)]
    rubbish += [_charsmap([rng.getrandbits(32) for _ in range(512)], rng.randbytes(60)) for _ in range(12)]
    rubbish += [_charsmap([rng.getrandbits(32) for _ in range(512)], b"fine\0strings\0") for _ in range(12)]
    rubbish += [_charsmap([(i << 10) | 0x141 for i in range(512)], b"a" * 500 + b"\0")]
    rubbish += [_base64(struct.pack("<I", 2**31) + bytes(2000))]
    for i, table in enumerate(rubbish):
        yield f"Precompiled {i}", {"type": "Precompiled", "precompiled_charsmap": table}
    for times, length in [(9, 10), (2, 60), (1, 500), (30, 2), (60, 3), (12, 1000), (64, 900)]:
        yield f"{times} times a by {length}", _sequence("normalizers", [_replace("a", "a" * length)] * times)
    chain = [_replace(chr(97 + i), 10 * chr(98 + i)) for i in range(20)]
    yield "each letter by ten of the next", _sequence("normalizers", chain)
    wide = [_replace("a", "\ufdfa"), {"type": "NFKD"}, _replace("\u0635", "\ufdfa"), {"type": "NFKC"}]
    yield "by what Unicode makes long", _sequence("normalizers", wide * 6)
    yield "the nothing between letters", _sequence("normalizers", [_replace("x*", "y" * 50, "Regex")] * 5)
    yield "no pattern", _replace("", "aaa")
    yield "bytes of bytes", _sequence("normalizers", [{"type": "ByteLevel"}] * 20)
    yield "many steps", _sequence("normalizers", [{"type": "NFC"}] * 5000)
    yield "a long beginning", {"type": "Prepend", "prepend": "a" * 10**6}
    for pattern in EXPLODING:
        yield f"Replace {pattern[:30]}", _replace(pattern, "", "Regex")
    deep: Any = {"type": "NFC"}
    for _ in range(200):
        deep = _sequence("normalizers", [deep])
    yield "deep", deep


def _stages(rng: random.Random) -> Iterator[tuple[str, str]]:
    for name, stage in _normalizers(rng):
        yield f"normalizer: {name}", _with(normalizer=stage)
    for kind in ("Nope", "Regex", "python", "../NFC", "nfc", 7, None, ["NFC"], "Precompiled\0", "Sequence"):
        for slot in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model"):
            yield f"{slot}: kind {kind!r}", _with(**{slot: {"type": kind}})
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    for pattern in EXPLODING:
        yield f"Split {pattern[:30]}", _with(pre_tokenizer=split | {"pattern": {"Regex": pattern}})
    patterns = ({}, {"String": ""}, {"Regex": 7}, {"Glob": "*"}, "a", None, [])
    cutters = [split | {"pattern": pattern} for pattern in patterns]
    cutters += [{"type": "FixedLength", "length": n} for n in (0, -1, 2**64, 1.5, "5")]
    spaces = {"type": "Metaspace", "prepend_scheme": "always"}
    cutters += [spaces | {"replacement": r, "split": True} for r in ("", "ab", 7, "\ud800")]
    cutters += [{"type": "CharDelimiterSplit", "delimiter": d} for d in ("", "ab", None)]
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
    cutters += [_sequence("pretokenizers", [level] * n) for n in (8, 60)]
    many = [spaces | {"replacement": chr(0x2500 + i), "split": False} for i in range(30)]
    cutters += [_sequence("pretokenizers", many)]
    for i, cutter in enumerate(cutters):
        yield f"pre-tokenizer {i}", _with(pre_tokenizer=cutter)
    ends, strip = ((5, 5), (0, 9), (2**40, 0), (-1, 0)), {"type": "Strip", "content": "a"}
    decoders: list[Any] = [strip | {"start": start, "stop": stop} for start, stop in ends]
    decoders += [_sequence("decoders", [_replace("a", "a" * 10)] * 9), _replace("(a+)+$", "", "Regex")]
    decoders += [{"type": "BPEDecoder", "suffix": "x" * 10**6}, {"type": "CTC"}, {"type": "Fuse", "x": 1}]
    for i, decoder in enumerate(decoders):
        yield f"decoder {i}", _with(decoder=decoder)


def _models() -> Iterator[tuple[str, str]]:
    numbers = (-1, 2**31, 2**32 - 1, 2**32, 2**63, 10**30, 1.5, "1", True, None, [], 9_999_999)
    for kind in ("WordPiece", "WordLevel", "BPE"):
        base = plain()["model"] | {"type": kind, "merges": []}
        for number in numbers:
            yield f"{kind}: id {number!r}", _with(model=base | {"vocab": VOCAB | {"film": number}})
        lacking = {word: number for word, number in VOCAB.items() if word != "[UNK]"}
        yield f"{kind}: no unknown", _with(model=base | {"vocab": lacking}, added_tokens=[])
        for key in ("vocab", "unk_token", "merges", "continuing_subword_prefix", "max_input_chars_per_word"):
            for odd in ODD:
                yield f"{kind}: {key} = {odd!r}", _with(model=base | {key: odd})
        yield f"{kind}: no vocabulary", _with(model=base | {"vocab": {}})
    yield "words without end", _with(model=plain()["model"] | {"max_input_chars_per_word": 10**9})
    vocab: Any = {"a": 0, "é": 1, "aé": 2, "[UNK]": 3, "[CLS]": 4, "[SEP]": 5}
    bpe = plain()["model"] | {"type": "BPE", "vocab": vocab}
    merges: Any = (["a é"], ["a b"], ["a"], ["a é é"], [7], [["a"]], [["a", "é", "a"]], ["a é"] * 1000)
    for merge in merges:
        yield f"BPE: merges {str(merge)[:30]}", _with(model=bpe | {"merges": merge})
    for rate in (-1, 2, 0.5, "0", float("nan")):
        yield f"BPE: dropout {rate}", _with(model=bpe | {"merges": [], "dropout": rate})
    pieces = [[word, -float(number)] for word, number in VOCAB.items()]
    vocabularies: tuple[Any, ...] = (
        [], [["", 0.0]], [["a"]], [["a", "b"]], [["a", float("nan")]], [["a", 1e308]], [[7, 0.0]], [["a" * 9999, 0.0]],
        {"a": 0}, None, pieces,
    )  # fmt: skip
    for vocab in vocabularies:
        for unknown in (None, 0, -1, 99, 2**40, True, "0"):
            model = {"type": "Unigram", "vocab": vocab, "unk_id": unknown}
            yield f"Unigram {str(vocab)[:20]}, unk_id {unknown}", _with(model=model)


def _around() -> Iterator[tuple[str, str]]:
    good = plain()["post_processor"]
    a, cls = good["single"][1], good["single"][0]
    singles: tuple[Any, ...] = (
        [], [cls], [a, a], [a] * 1000, [cls] * 1000 + [a], [{"SpecialToken": {"id": "[X]", "type_id": 0}}, a],
        [{"Sequence": {"id": "B", "type_id": 0}}], [{"Sequence": {"id": "C", "type_id": 0}}], [7], None, "A", [{}],
    )  # fmt: skip
    for i, single in enumerate(singles):
        yield f"template {i}", _with(post_processor=good | {"single": single})
        yield f"template of pairs {i}", _with(post_processor=good | {"pair": single})
    tokens: tuple[Any, ...] = (
        {}, None, [], {"[CLS]": {}}, {"[CLS]": None},
        *({"[CLS]": {"id": "[CLS]", "ids": ids, "tokens": names}, "[SEP]": good["special_tokens"]["[SEP]"]}
          for ids, names in (([99], ["x"]), ([2**31], ["x"]), ([-1], ["x"]), ([], []), ([2], []), ("2", "x"),
                             ([2] * 999, ["x"] * 999), ([2.5], ["x"]))),
    )  # fmt: skip
    for i, special in enumerate(tokens):
        yield f"special tokens {i}", _with(post_processor=good | {"special_tokens": special})
    for kind in ("BertProcessing", "RobertaProcessing"):
        for pair in (["[SEP]", 2**31], ["[SEP]", 99], ["[SEP]"], None, ["[SEP]", -1], [7, 3], ["[SEP]", "3"]):
            stage = {"type": kind, "sep": pair, "cls": ["[CLS]", 2], "trim_offsets": True}
            yield f"{kind} {pair}", _with(post_processor=stage | {"add_prefix_space": True})
    token = plain()["added_tokens"][0]
    for key in token:
        for odd in ODD:
            yield f"added token: {key} = {odd!r}", _with(added_tokens=[token | {key: odd}])
    lists: tuple[Any, ...] = (
        [token] * 50, [token | {"content": "a" * 10**6}], {}, "x", 7, [7], [token | {"id": 2**31}],
        [token | {"id": i, "content": f"t{i}"} for i in range(150_000)], [token | {"content": "\0", "id": 14}],
        [token | {"content": " ", "id": 14, "lstrip": True, "rstrip": True, "normalized": True}],
    )  # fmt: skip
    for i, added in enumerate(lists):
        yield f"added tokens {i}", _with(added_tokens=added)


def _files() -> Iterator[tuple[str, str]]:
    whole = json.dumps(plain())
    yield "nothing wrong", whole
    yield "a key twice", whole.replace('"version"', '"model": {"type": "BPE"}, "version"', 1)
    yield "a token twice", whole.replace('"film"', '"film": 3, "film"', 1)
    yield "NaN", whole.replace('"[PAD]": 0', '"[PAD]": NaN')
    yield "a long number", whole.replace('"[PAD]": 0', '"[PAD]": ' + "9" * 6000)
    yield "half a pair", whole.replace('"film"', '"\\ud800"')
    yield "cut", whole[: len(whole) // 2]
    yield "deep", '{"model": ' + "[" * 200_000
    yield "an array", "[]"
    yield "nothing", ""
    yield "commas", "[" + "0," * 9_000_000 + "0]"
    for key in plain():
        for odd in ODD:
            yield f"{key} = {odd!r}", _with(**{key: odd})


def hostile(count: int) -> list[tuple[str, str]]:
    """``count`` of them (0: all), the same ones each time, drawn so that every group is among them."""
    rng = random.Random(13)
    groups = [list(_stages(rng)), list(_models()), list(_around()), list(_files())]
    if not count:
        return [case for group in groups for case in group]
    out = []
    for group in groups:
        share = max(1, round(count * len(group) / sum(map(len, groups))) + 1)
        out += rng.sample(group, min(share, len(group)))
    return out


MOST_SECONDS = 60.0  # of one case: a pattern is tried for at most half of it
MOST_MB = 300  # more than before
TEXTS = ["a fine film", "a bad film", "bad, not fine", "a" * 3000, "a film " * 400]
TEXTS += ["\ufdfa \u00e9\u0301 \U0001f642", "x"]
LABELS = ["pos", "neg"] * 4
SIZES: dict[str, Any] = {"d_model": 6, "num_layers": 1, "num_heads": 1, "d_ff": 5}
SMALL = SIZES | {"epochs": 1, "threads": 1, "precision": "fp32"}


# --- tokenizers -----------------------------------------------------------------------------------------


def tokenizers(count: int) -> list[dict]:
    """Each in the folder of a saved classifier, which is loaded and asked."""
    out = []
    with scratch() as home:
        clf = gf.TextClassifier("encoder-mini", min_count=1, max_length=40, **SMALL)
        # more rows than tokens
        many = [" ".join(f"w{8 * i + j}" for j in range(8)) for i in range(len(LABELS))]
        saved = clf.fit(many, LABELS).save(home / "saved")
        reader = Reader(home / "said.txt", answer_of, str(saved))
        try:
            for i, (name, content) in enumerate(hostile(count)):
                folder = home / f"case-{i}"
                put_in(saved, folder, "tokenizer.json", content)
                out.append(reader.ask(str(folder)) | {"what": name})
                shutil.rmtree(folder)
        finally:
            reader.stop()
    return out


def put_in(saved: Path, folder: Path, name: str, content: str) -> None:
    """A copy of a saved folder with one file replaced, under a manifest that fits."""

    def write(fresh: Path) -> None:
        for file in saved.iterdir():
            if file.name not in ("manifest.json", name):
                shutil.copy(file, fresh)
        (fresh / name).write_text(content, encoding="utf-8", errors="surrogatepass")

    write_folder(folder, write)


def answer_of(folder: str) -> str:
    """Read and asked: ``read`` where every answer is right, ``refused`` by a line that names the folder."""
    try:
        clf = gf.load(folder)
    except InputError as error:
        one_line = "\n" not in str(error) and len(str(error)) < 2000
        return "refused" if folder in str(error) and one_line else f"an unclear error: {str(error)[:200]}"
    try:
        together = clf.predict_proba(TEXTS)
    except InputError:
        return "refused a text"
    alone = np.concatenate([clf.predict_proba([text]) for text in TEXTS])
    shares = np.isfinite(together).all() and np.allclose(together.sum(1), 1)
    return "read" if shares and np.allclose(together, alone, atol=1e-5) else "wrong answers"


class Reader:
    """A process that does one thing after the other, and is replaced when it does not come back."""

    def __init__(self, errors: Path, work: Callable[[str], str], known: str):
        """``known`` is worked on before memory is measured, so that imports do not count."""
        self.errors, self.work, self.known = errors, work, known
        self.context = multiprocessing.get_context("spawn")
        self.process: Any = None
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = self.context.Pipe()
        given = (theirs, str(self.errors), self.work, self.known)
        self.process = self.context.Process(target=_serve, args=given, daemon=True)
        self.process.start()
        theirs.close()
        self.before = self.pipe.recv()[1] if self.pipe.poll(120) else 0.0

    def ask(self, argument: str) -> dict[str, Any]:
        """``passed`` with the answer, the seconds and the memory that it took."""
        started, said_before = time.perf_counter(), self.errors.stat().st_size
        self.pipe.send(argument)
        try:
            answer, peak = self.pipe.recv() if self.pipe.poll(MOST_SECONDS) else ("no end", self.before)
        except EOFError:
            answer, peak = f"the process ended ({self.process.exitcode})", self.before
        if answer == "no end" or not self.process.is_alive():
            self.stop()
            self._start()
        seconds, more = time.perf_counter() - started, peak - self.before
        with self.errors.open("rb") as file:
            file.seek(said_before)
            noise = file.read(10_000).decode("utf-8", "replace")
        quiet = "panicked" not in noise and "Traceback" not in noise
        fine = answer in ("read", "refused", "refused a text")
        return {
            "answer": answer, "seconds": round(seconds, 2), "MB more": round(more), "quiet": quiet,
            "passed": bool(fine and quiet and more < MOST_MB and seconds < MOST_SECONDS),
        }  # fmt: skip

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, errors: str, work: Callable[[str], str], known: str) -> None:
    handle = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 2)
    work(known)
    pipe.send(("ready", peak_mb()))
    while True:
        argument = pipe.recv()
        try:
            answer = work(argument)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic is no Exception
            answer = f"{type(error).__name__}: {str(error)[:200]}"
        pipe.send((answer, peak_mb()))


# --- labels -----------------------------------------------------------------------------------------------

# Two labels each; every door must keep them apart as they are, or refuse.
PAIRS: tuple[tuple[Any, Any], ...] = (
    ("a", "b"), ("a", "a\0"), ("a\0", "a\0\0"), ("\0", "a"), ("\ud800", "a"), ("a\udfff", "a"), ("a", " a"),
    ("a", "a "), ("a", "A"), ("\u00e9", "e\u0301"), ("", "a"), (" ", "a"), ("\t", "a"), ("\n", "a"),
    ("a\nb", "a"), ("a\tb", "a"), ("a\x1b[2J", "a"), ("\x07", "a"), ("a\x7f", "a"), ("a\x85", "a"),
    ("\u202ea", "a"), ("\u2066a", "a"), ("a\u200b", "a"), ("\ufeffa", "a"), ("a" * 1000, "a"),
    ("a" * 1001, "a"), ("a" * 100_000, "a"), ("nan", "a"), ("NaN", "a"), ("None", "a"), ("null", "a"),
    ("true", "false"), ("0", "1"), ("00", "0"), ("-0", "0"), ("+1", "1"), ("1", "1.0"), ("1e0", "1"),
    ("\u0661", "1"), ("1_0", "10"), ("1" * 19, "2"), ("9" * 40, "9" * 41), ("=1+1", "@a"), ("a,b", "a"),
    ('a"b', "a"), ("<b>", "a"), ("__proto__", "a"), ("\U0001f642", "a"), ("..", "a"), ("a/b", "a"), (0, 1),
    (1, 2), (-1, 1), (0, 0.0), (True, False), (True, 1), (False, 0), (True, 0), (1, "1"), (1, "a"), (1.0, 2.0),
    (1.0, 1), (1.5, 2), (0.1, 0.2), (2**63, -1), (2**63 - 1, -(2**63)), (2**64, 1), (10**40, 1),
    (2**53, 2**53 + 1), (float(2**53), 2.0**53 + 2), (1e300, 1), (float("nan"), 1), (float("inf"), 1),
    (-0.0, 0.0), (None, "a"), (None, 1), ([], "a"), ({}, "a"), (["a"], "a"), (b"a", "a"), ({"a": 1}, 1),
)  # fmt: skip


def labels(count: int) -> list[dict]:
    """Each pair through every door: tables, ``fit``, and the two kinds of model folders."""
    out = []
    with scratch() as home:
        doors = _doors(home)
        work = [(door, i, pair) for i, pair in enumerate(PAIRS) for door in doors]
        for door, i, pair in work[: count or len(work)]:
            started = time.perf_counter()
            try:
                found = doors[door](home / f"{door}-{i}", pair)
                kept = found is None or _same(found, pair, door in ("csv", "tsv"))
                answer = "kept" if kept else f"became {found!r}"
            except InputError as error:
                answer = "refused" if "\n" not in str(error).rstrip() else "a line of several"
            except Exception as error:
                answer = f"{type(error).__name__}: {str(error)[:150]}"
            passed = answer in ("kept", "refused") and time.perf_counter() - started < MOST_SECONDS
            out.append({"door": door, "labels": str(pair)[:60], "answer": answer, "passed": passed})
    return out


def _same(found: list[Any], pair: tuple[Any, Any], as_text: bool) -> bool:
    """Whether both labels are there as given, and of one kind.

    CSV knows text only: blanks around a label are none of it, and whole numbers are read as numbers. Numbers that are
    equal are one label.
    """
    if len(found) != 2 or type(found[0]) is not type(found[1]):
        return False
    if as_text:
        return [str(label) for label in found] == [str(given).strip() for given in pair]
    return all(a == b and isinstance(a, str) == isinstance(b, str) for a, b in zip(found, pair))


def _doors(home: Path) -> dict[str, Callable[[Path, tuple[Any, Any]], list[Any] | None]]:
    clf = gf.TextClassifier("encoder-mini", min_count=1, max_length=9, **SMALL)
    saved = clf.fit([*TEXTS[:3], "x"], ["a", "b", "a", "b"]).save(home / "saved")
    about = json.loads((saved / "glassformer.json").read_text())

    def fit(place: Path, pair: tuple[Any, Any]) -> list[Any]:
        made = gf.TextClassifier("encoder-mini", min_count=1, max_length=9, **SMALL)
        made.fit([*TEXTS[:3], "x"], [*pair, *pair])
        answers = made.predict(TEXTS[:3]).tolist()
        assert set(answers) <= set(made.classes_.tolist())
        return _ordered(gf.load(made.save(place)).classes_.tolist(), pair)

    def folder(place: Path, pair: tuple[Any, Any]) -> list[Any]:
        put_in(saved, place, "glassformer.json", json.dumps(_bare(about | {"classes": list(pair)})))
        loaded = gf.load(place)
        assert set(loaded.predict(TEXTS[:3]).tolist()) <= set(loaded.classes_.tolist())
        return _ordered(loaded.classes_.tolist(), pair)

    def delimited(separator: str) -> Callable[[Path, tuple[Any, Any]], list[Any]]:
        def read(place: Path, pair: tuple[Any, Any]) -> list[Any]:
            cells = ['"' + ("" if x is None else str(x)).replace('"', '""') + '"' for x in pair * 2]
            lines = [f"text{separator}label", *(f"t{i}{separator}{cell}" for i, cell in enumerate(cells))]
            return _table(place.with_suffix(".csv" if separator == "," else ".tsv"), "\n".join(lines) + "\n")

        return read

    def rows_of(pair: tuple[Any, Any]) -> list[Any]:
        return [_bare({"text": f"t{i}", "label": label}) for i, label in enumerate(pair * 2)]

    def lines(place: Path, pair: tuple[Any, Any]) -> list[Any]:
        rows = [json.dumps(row) for row in rows_of(pair)]
        return _table(place.with_suffix(".jsonl"), "\n".join(rows) + "\n")

    def array(place: Path, pair: tuple[Any, Any]) -> list[Any]:
        return _table(place.with_suffix(".json"), json.dumps(rows_of(pair)))

    def parquet(place: Path, pair: tuple[Any, Any]) -> list[Any] | None:
        file = place.with_suffix(".parquet")
        try:
            pq.write_table(pa.table({"text": [f"t{i}" for i in range(4)], "label": [*pair, *pair]}), file)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return None  # the format itself cannot hold them
        held = pq.read_table(file).column("label").to_pylist()
        if held[:2] != list(pair) or [type(x) for x in held[:2]] != [type(x) for x in pair]:
            return None  # it has made other values of them before we see any
        return _ordered(list(load_text_dataset(file).splits["train"].labels or [])[:2], pair)

    return {
        "fit": fit, "folder": folder, "csv": delimited(","), "tsv": delimited("\t"), "jsonl": lines, "json": array,
        "parquet": parquet,
    }  # fmt: skip


def _bare(value: Any) -> Any:
    """With bytes as JSON can have them."""
    if isinstance(value, dict):
        return {key: _bare(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_bare(inner) for inner in value]
    return list(value) if isinstance(value, bytes) else value


def _ordered(found: list[Any], pair: tuple[Any, Any]) -> list[Any]:
    """Classes, which are sorted, in the order of the pair."""
    return found if not found or found[0] == pair[0] else found[::-1]


def _table(path: Path, content: str) -> list[Any]:
    path.write_text(content, encoding="utf-8", errors="surrogatepass", newline="")
    return list(load_text_dataset(path).splits["train"].labels or [])[:2]
