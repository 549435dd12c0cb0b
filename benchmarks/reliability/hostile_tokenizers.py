"""Tokenizer files by construction: every stage with what must not be in it, as text of a ``tokenizer.json``."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Iterator
from typing import Any

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "b",
    "film",
    "fine",
    "bad",
    "##s",
    "not",
    ",",
    "an",
]
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
    raw = struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + strings
    return base64.b64encode(raw).decode()


def _normalizers(rng: random.Random) -> Iterator[tuple[str, Any]]:
    rubbish: list[Any] = [None, 7, [], "", "AAAA", "not base64!", "\ud800", "A" * 10_000]
    rubbish += [base64.b64encode(rng.randbytes(rng.choice((3, 40, 4000)))).decode() for _ in range(12)]
    rubbish += [_charsmap([rng.getrandbits(32) for _ in range(512)], rng.randbytes(60)) for _ in range(12)]
    rubbish += [_charsmap([rng.getrandbits(32) for _ in range(512)], b"fine\0strings\0") for _ in range(12)]
    rubbish += [_charsmap([(i << 10) | 0x141 for i in range(512)], b"a" * 500 + b"\0"),
                base64.b64encode(struct.pack("<I", 2**31) + bytes(2000)).decode()]  # fmt: skip
    for i, table in enumerate(rubbish):
        yield f"Precompiled {i}", {"type": "Precompiled", "precompiled_charsmap": table}
    for times, length in [(9, 10), (2, 60), (1, 500), (30, 2), (60, 3), (12, 1000), (64, 900)]:
        yield f"{times} times a by {length}", _sequence("normalizers", [_replace("a", "a" * length)] * times)
    chain = [_replace(chr(97 + i), 10 * chr(98 + i)) for i in range(20)]
    yield "each letter by ten of the next", _sequence("normalizers", chain)
    yield (
        "by what Unicode makes long",
        _sequence(
            "normalizers",
            [_replace("a", "\ufdfa"), {"type": "NFKD"}, _replace("\u0635", "\ufdfa"), {"type": "NFKC"}] * 6,
        ),
    )
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
    cutters = [
        split | {"pattern": p} for p in ({}, {"String": ""}, {"Regex": 7}, {"Glob": "*"}, "a", None, [])
    ]
    cutters += [{"type": "FixedLength", "length": n} for n in (0, -1, 2**64, 1.5, "5")]
    cutters += [{"type": "Metaspace", "replacement": r, "prepend_scheme": "always", "split": True}
                for r in ("", "ab", 7, "\ud800")]  # fmt: skip
    cutters += [{"type": "CharDelimiterSplit", "delimiter": d} for d in ("", "ab", None)]
    cutters += [_sequence("pretokenizers", [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                                             "use_regex": False}] * n) for n in (8, 60)]  # fmt: skip
    cutters += [_sequence("pretokenizers", [
        {"type": "Metaspace", "replacement": chr(0x2500 + i), "prepend_scheme": "always", "split": False}
        for i in range(30)
    ])]  # fmt: skip
    for i, cutter in enumerate(cutters):
        yield f"pre-tokenizer {i}", _with(pre_tokenizer=cutter)
    decoders: list[Any] = [{"type": "Strip", "content": "a", "start": s, "stop": t}
                           for s, t in ((5, 5), (0, 9), (2**40, 0), (-1, 0))]  # fmt: skip
    decoders += [_sequence("decoders", [_replace("a", "a" * 10)] * 9), _replace("(a+)+$", "", "Regex"),
                 {"type": "BPEDecoder", "suffix": "x" * 10**6}, {"type": "CTC"}, {"type": "Fuse", "x": 1}]  # fmt: skip
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
    bpe = plain()["model"] | {
        "type": "BPE",
        "vocab": {"a": 0, "é": 1, "aé": 2, "[UNK]": 3, "[CLS]": 4, "[SEP]": 5},
    }
    merges: tuple[Any, ...] = (
        ["a é"],
        ["a b"],
        ["a"],
        ["a é é"],
        [7],
        [["a"]],
        [["a", "é", "a"]],
        ["a é"] * 1000,
    )
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
            stage = {
                "type": kind,
                "sep": pair,
                "cls": ["[CLS]", 2],
                "trim_offsets": True,
                "add_prefix_space": True,
            }
            yield f"{kind} {pair}", _with(post_processor=stage)
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
