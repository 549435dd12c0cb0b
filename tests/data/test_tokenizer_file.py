"""A stranger's tokenizer: every kind in use is read as its own library reads it; what hangs or panics is refused."""

import base64
import json
import struct
import time
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from glassformer.data import text as texts
from glassformer.data.text import encode, tokenizer_failure
from glassformer.data.tokenizer_checks import (
    DECODERS,
    KNOWN_PATTERNS,
    NORMALIZERS,
    PRE_TOKENIZERS,
    PROCESSORS,
    Invalid,
    check_charsmap,
    check_pattern,
    max_expansion,
    simple_min_length,
)
from glassformer.data.tokenizer_file import count_ids, load_tokenizer
from glassformer.errors import CheckpointError, DataError

VOCAB = {word: number for number, word in enumerate(["[UNK]", "a", "b", "film", "[CLS]", "[SEP]", "##s"])}
TEXTS = ["a film", "A  Film, b!", "\u00e9\u4f60\ufdfa a_b 12", "films\n" * 3, ""]


def made(**parts: Any) -> dict[str, Any]:
    """A plain tokenizer with some of its parts replaced."""
    model = {"type": "WordLevel", "vocab": VOCAB, "unk_token": "[UNK]"}
    empty = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {"version": "1.0", "added_tokens": [], **dict.fromkeys(empty), "model": model} | parts


def put(folder: Any, content: Any) -> Any:
    (folder / "tokenizer.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


# --- kinds that are read --------------------------------------------------------------------------

N, P, D, R = normalizers, pre_tokenizers, decoders, processors
GOOD: dict[str, list[Any]] = {
    "normalizer": [
        N.BertNormalizer(), N.ByteLevel(), N.Lowercase(), N.NFC(), N.NFD(), N.NFKC(), N.NFKD(), N.Nmt(), N.Prepend("_"),
        N.Replace("``", '"'), N.Replace(Regex(" {2,}"), " "), N.Strip(), N.StripAccents(),
        N.Sequence([N.Replace("''", '"'), N.NFKD(), N.StripAccents(), N.Lowercase(), N.Replace(Regex(" {2,}"), " ")]),
        N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")]),
    ],
    "pre_tokenizer": [
        P.BertPreTokenizer(), P.ByteLevel(), P.CharDelimiterSplit(" "), P.Digits(True), P.FixedLength(3), P.Metaspace(),
        P.Punctuation(), P.UnicodeScripts(), P.Whitespace(), P.WhitespaceSplit(), P.Split(" ", "merged_with_previous"),
        *(P.Split(Regex(known), "isolated") for known in sorted(KNOWN_PATTERNS)),
        P.Sequence([P.WhitespaceSplit(), P.Metaspace(), P.Digits(False)]),
        P.Sequence([P.Split(Regex(r"\d{1,3}"), "isolated"), P.ByteLevel(use_regex=False)]),
    ],
    "post_processor": [
        R.BertProcessing(("[SEP]", 5), ("[CLS]", 4)), R.RobertaProcessing(("[SEP]", 5), ("[CLS]", 4)), R.ByteLevel(),
        R.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 4), ("[SEP]", 5)]),
        R.Sequence([R.ByteLevel(), R.TemplateProcessing("$A [SEP]", None, [("[SEP]", 5)])]),
    ],
    "decoder": [
        D.BPEDecoder(), D.ByteFallback(), D.ByteLevel(), D.CTC(), D.Fuse(), D.Metaspace(), D.WordPiece(),
        D.Replace("\u2581", " "), D.Strip(" ", 1, 0),
        D.Sequence([D.Replace("\u2581", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]),
    ],
}  # fmt: skip
MODELS = [
    models.WordLevel(VOCAB, unk_token="[UNK]"),
    models.WordPiece(VOCAB, unk_token="[UNK]"),
    models.BPE({**VOCAB, "ab": 7}, [("a", "b")], unk_token="[UNK]"),
    models.Unigram([(word, -float(i)) for word, i in VOCAB.items()], 0, False),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("slot", GOOD)
def test_every_kind_is_read_as_its_library_reads_it(tmp_path, slot, model):
    for stage in GOOD[slot]:
        whole = Tokenizer(model)
        setattr(whole, slot, stage)
        whole.add_special_tokens(["[CLS]", "[SEP]"])
        ours = load_tokenizer(put(tmp_path, whole.to_str()))
        for text in TEXTS:
            assert ours.encode(text).ids == whole.encode(text).ids, stage
        assert ours.decode([1, 3, 6], False) == whole.decode([1, 3, 6], False)
    assert count_ids(ours) == whole.get_vocab_size()


def test_every_kind_that_is_known_was_tried():
    tried = {
        slot: {json.loads(stage.__getstate__())["type"] for stage in stages} for slot, stages in GOOD.items()
    }
    assert tried["normalizer"] >= {*NORMALIZERS} - {"Precompiled"}
    assert tried["pre_tokenizer"] >= {*PRE_TOKENIZERS}
    assert tried["post_processor"] >= {*PROCESSORS}
    assert tried["decoder"] >= {*DECODERS}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_model_may_leave_its_kind_out_as_old_files_do(tmp_path, model):
    whole = Tokenizer(model)
    definition = json.loads(whole.to_str())
    kind = definition["model"].pop("type")
    ours = load_tokenizer(put(tmp_path, definition))
    assert type(ours.model).__name__ == kind
    assert [ours.encode(t).ids for t in TEXTS] == [whole.encode(t).ids for t in TEXTS]


# --- what is refused ------------------------------------------------------------------------------


def replaced(*pairs: tuple[str, str], kind: str = "String") -> dict[str, Any]:
    steps = [
        {"type": "Replace", "pattern": {kind: pattern}, "content": content} for pattern, content in pairs
    ]
    return {"type": "Sequence", "normalizers": steps}


def template(*pieces: str, ids: int = 4) -> dict[str, Any]:
    single = [{"Sequence" if p in "AB" else "SpecialToken": {"id": p, "type_id": 0}} for p in pieces]
    special = {"[CLS]": {"id": "[CLS]", "ids": [ids], "tokens": ["[CLS]"]}}
    return {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": special}


def level(**changes: Any) -> dict[str, Any]:
    return {"type": "WordLevel", "vocab": VOCAB, "unk_token": "[UNK]"} | changes


def piece(**changes: Any) -> dict[str, Any]:
    return level(type="WordPiece", continuing_subword_prefix="##", max_input_chars_per_word=100) | changes


def token(**changes: Any) -> list[dict[str, Any]]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return [{"id": 7, "content": "<x>", **flags} | changes]


BAD = [
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "is damaged: its table is truncated"),
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": None}}, "its table is not a string"),
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "!"}}, "its table is not base64"),
    ({"normalizer": replaced(*[("a", "a" * 10)] * 9)}, "up to 1,000,000,000 times as long; the maximum is 64"),
    ({"normalizer": replaced(*[(chr(97 + i), 10 * chr(98 + i)) for i in range(9)])}, "up to 1,000,000,000 times"),
    ({"normalizer": replaced(*[("x*", "y" * 9)] * 9, kind="Regex")}, "the normalizer makes a text up to"),
    ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 9}}, "makes a text up to"),
    ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 99}}, "more than 64 steps"),
    ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Run"}]}}, "a normalizer has the unknown type 'Run'"),
    ({"normalizer": replaced(("", "x"))}, "a pattern has 0 characters"),
    ({"normalizer": replaced(("(a+)+$", "x"), kind="Regex")}, "a pattern takes too long"),
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|a)*b"}, "behavior": "Isolated", "invert": False}},
     "a pattern takes too long"),
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}},
     "a pattern is invalid .*parenthesis"),
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"(a)\1"}, "behavior": "Isolated", "invert": False}},
     "refers to a part of itself"),
    ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "length = 0; the minimum is 1"),
    ({"pre_tokenizer": {"type": "Nope"}}, "a pre-tokenizer has the unknown type 'Nope'"),
    ({"post_processor": template("[X]", "A")}, r"a template uses the token '\[X\]'"),
    ({"post_processor": template("A", "A")}, "does not have each text once"),
    ({"post_processor": template("[CLS]")}, "does not have each text once"),
    ({"post_processor": template("[CLS]", "A", ids=2**31)}, "an id that is not in its vocabulary"),
    ({"post_processor": template("[CLS]", "A", ids=99)}, "an id that is not in its vocabulary"),
    ({"post_processor": template(*["[CLS]"] * 65, "A")}, "more than 64 special tokens around a text"),
    ({"decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 9}}, "stop = 9; only 0 is supported"),
    ({"model": level(vocab={"a": 0})}, r"Missing \[UNK\] token from the vocabulary"),
    ({"model": level(unk_token=None)}, "invalid type: null, expected a string"),
    ({"model": level(vocab=VOCAB | {"a": 2**31})}, "its 7 tokens have ids up to 2,147,483,648"),
    ({"model": level(vocab=VOCAB | {"a": -1})}, "integer `-1`, expected u32"),
    ({"model": level(vocab=VOCAB | {"a": 9_999_999})}, "its 7 tokens have ids up to 9,999,999"),
    ({"model": level(vocab={})}, "no vocabulary"),
    ({"model": piece(continuing_subword_prefix="#" * 65)}, "'continuing_subword_prefix' has more than 64"),
    ({"model": piece(max_input_chars_per_word=10**9)}, "max_input_chars_per_word = 1000000000; the maximum is 1,000"),
    ({"model": level(type="BPE", merges=["a b"])}, "Token `ab` out of vocabulary"),
    ({"model": level(type="BPE", merges=["a \u00e9"], continuing_subword_prefix="##")}, "lacks the prefix '##'"),
    ({"model": level(type="BPE", merges=[7], continuing_subword_prefix="##")}, "the merge '7' lacks the prefix"),
    ({"model": level(type="BPE", merges=[], dropout=0.5)}, "'dropout' would make its output random"),
    ({"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": None}}, "`unk_id` is missing"),
    ({"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 7}}, "UnkIdNotInVocabulary"),
    ({"model": {"type": "Unigram", "vocab": [["", 0.0]], "unk_id": 0}}, "a piece has 0 characters"),
    ({"added_tokens": token(content="")}, "'content' of an added token is not a text of 1 to 1,000"),
    ({"added_tokens": token(special=7)}, "integer `7`, expected a boolean"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "said"), BAD, ids=[said[:40] for _, said in BAD])
def test_what_would_hang_panic_or_grow_is_refused_in_a_line(tmp_path, capfd, parts, said):
    started = time.monotonic()
    with pytest.raises(CheckpointError, match=said) as caught:
        load_tokenizer(put(tmp_path, made(**parts)))
    assert str(tmp_path / "tokenizer.json") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""  # no panic has said a word
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"model": 1, "model": 2}', "the key 'model' occurs twice"),
        ('{"model": NaN}', "NaN is not a number"),
        ("[" * 100_000, "not a tokenizer"),
        ("[]", "not a JSON object"),
        ("[" + "0," * 8_000_001, "has more than 8,000,000 values"),
        (json.dumps(made()).replace('"film"', '"\\ud800"'), "not a tokenizer"),
    ],
)
def test_files_that_are_no_tokenizer(tmp_path, content, said):
    with pytest.raises(CheckpointError, match=said):
        load_tokenizer(put(tmp_path, content))


# --- tables of characters -------------------------------------------------------------------------


def charsmap(entries: dict[str, str], size: int = 2048) -> bytes:
    """SentencePiece's format for single bytes: a root, a unit for each, and a leaf behind it."""
    units, strings = [0] * size, b"\0"
    units[0] = 256 << 10  # the root's children begin at 256
    for i, (letter, becomes) in enumerate(entries.items()):
        at, behind = 256 ^ ord(letter), 512 + 256 * i
        units[at] = ((at ^ behind) << 10) | 1 << 8 | ord(letter)
        units[behind] = 1 << 31 | len(strings)
        strings += becomes.encode() + b"\0"
    return struct.pack("<I", 4 * size) + struct.pack(f"<{size}I", *units) + strings


def test_a_table_of_characters_is_walked_before_it_is_used(tmp_path):
    good = charsmap({"A": "a", "B": "bb"})
    assert normalizers.Precompiled(good).normalize_str("xAB") == "xabb"
    assert check_charsmap(base64.b64encode(good).decode()) == 2.0
    stage = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(good).decode()}
    ours = load_tokenizer(put(tmp_path, made(normalizer=stage)))
    assert ours.encode("A").ids == [VOCAB["a"]]

    def said(raw: bytes) -> str:
        with pytest.raises(Invalid) as error:
            check_charsmap(base64.b64encode(raw).decode())
        return str(error.value)

    out = bytearray(good)
    struct.pack_into("<I", out, 4 + 4 * (256 ^ ord("A")), (2**21 - 1) << 10 | 1 << 8 | ord("A"))
    assert said(bytes(out)) == "its table has an offset out of range"
    out = bytearray(good)
    struct.pack_into("<I", out, 4 + 4 * 512, 1 << 31 | 5000)
    assert said(bytes(out)) == "its table points outside its strings"
    half_a_block = charsmap({"A": "a", "B": "b"}, size=1024 - 7)  # at its end
    assert said(half_a_block) == "its table has an offset out of range"
    assert "not UTF-8" in said(good + b"\xff")
    assert "replaces one character by 65" in said(charsmap({"A": "a" * 65}))
    table = base64.b64encode(charsmap({"a": "a" * 40})).decode()
    many = {"type": "Precompiled", "precompiled_charsmap": table}
    with pytest.raises(CheckpointError, match="more than one Precompiled"):
        load_tokenizer(put(tmp_path, made(normalizer={"type": "Sequence", "normalizers": [many, many]})))
    steps = [*replaced(("b", "aa"))["normalizers"], many]
    with pytest.raises(CheckpointError, match="up to 80 times as long"):
        load_tokenizer(put(tmp_path, made(normalizer={"type": "Sequence", "normalizers": steps})))


# --- patterns and growth --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "least"),
    [
        (" {2,}", 2), (r"\s+", 1), (r"\d{1,3}", 1), (r"[\r\n]", 1), ("``", 2), (r"a|bc|[x-z]{3}", 1), (r" ?\p{L}+", 1),
        (r"\p{N}{3}", 3), ("a*", 0), ("a?", 0), ("<0x[0-9A-F]{2}>", 6),
        ("a+b", None), (r"\s+$", None), ("(a)", None), ("a+?", None), (".+", None), ("a{1,101}", None),
        ("a?b?c?d?e", None), ("[a[b]]", None), (r"\bx", None), ("", 0), ("a{3,2}", None),
    ],
)  # fmt: skip
def test_simple_patterns_and_the_fewest_characters_that_they_match(pattern, least):
    assert simple_min_length(pattern) == least


def test_other_patterns_are_tried():
    check_pattern(r"(?i:it's)|\p{L}+(?!\d)|\S")
    slow = "a pattern takes too long"
    for pattern, problem in (
        (r"(\w+\s?)+!", slow),
        (r"\s+$", slow),
        (r"((a{1,1000}){1,1000})b", "repeats its parts more than"),
        ("a" * 2001, "a pattern has 2,001 characters"),
    ):
        with pytest.raises(Invalid, match=problem):
            check_pattern(pattern)


@pytest.mark.parametrize(
    ("steps", "times"),
    [
        ([], 1), ([("a", "bb")], 2), ([("a", "bb"), ("b", "ccc")], 6), ([("a", "bb"), ("c", "ddd")], 3),
        ([("ab", "c")], 1), ([("ab", "cccc")], 2), ([("a", "")], 1), ([("a", "aaa")] * 3, 27),
    ],
)  # fmt: skip
def test_growth_is_counted_step_by_step(steps, times):
    given = [{"type": "Replace", "pattern": {"String": p}, "content": c} for p, c in steps]
    assert max_expansion(given) == times
    library = normalizers.Sequence([normalizers.Replace(p, c) for p, c in steps])
    texts = "a" * 60, "b" * 60, "ab" * 30, "c" * 60
    longest = max(len(library.normalize_str(text)) / len(text) for text in texts)
    assert longest <= times


# --- what fails on one text only ------------------------------------------------------------------


class PanicException(BaseException):
    """As the bindings of Rust raise one."""


def test_a_panic_on_one_text_names_that_text(monkeypatch):
    tokenizer = Tokenizer(models.WordLevel(VOCAB, unk_token="[UNK]"))

    class Fails:
        def __getattr__(self, name: str) -> Any:
            return getattr(tokenizer, name)

        def encode_batch_fast(self, part: list[str], **options: Any) -> Any:
            if "b" in part:
                raise PanicException("index out of bounds\nstack")
            return tokenizer.encode_batch_fast(part, **options)

    monkeypatch.setattr(texts, "unknown_id", lambda tokenizer: 0)
    with pytest.raises(DataError, match=r"texts: the tokenizer fails on 'b' \(index out of bounds\)"):
        encode(Fails(), ["a", "b", "film"], max_length=9)  # type: ignore[arg-type]
    assert len(encode(Fails(), ["a", "film"], max_length=9)) == 2  # type: ignore[arg-type]
    for error in (KeyboardInterrupt(), SystemExit(), MemoryError()):
        assert tokenizer_failure(error) is None
    assert tokenizer_failure(ValueError("a\nb")) == "a"


def test_a_tokenizer_with_ids_beyond_the_model_is_refused(tmp_path):
    import glassformer as gf

    sizes = {"d_model": 6, "num_layers": 1, "num_heads": 1, "d_ff": 5}
    clf = gf.TextClassifier("encoder-mini", **sizes, epochs=1, min_count=1)
    clf.fit(["a film", "b film"] * 2, [0, 1] * 2)
    clf.tokenizer_.add_tokens(["more"])
    with pytest.raises(CheckpointError, match="the tokenizer knows 9 tokens, the model 8"):
        gf.load(clf.save(tmp_path / "m"))
