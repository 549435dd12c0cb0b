"""SentencePiece's files: ids as its library gives them, and files that lie are refused in one line.

``pieces/`` has two tiny models and the library's ids of ``pieces/declaration.txt`` (Articles of the Universal
Declaration of Human Rights, and lines of accents and signs), so that the core is tested without the library.
``python tests/data/test_sentence_pieces.py`` writes both anew.
"""

import io
import json
import os
import random
import shutil
import struct
import unicodedata
from pathlib import Path

import pytest

from glassformer.data import sentence_pieces
from glassformer.data.tokenizer_file import load_tokenizer, tokenizer_files
from glassformer.data.vocabulary import Vocabulary, count_ids, piece_text, word_ids
from glassformer.errors import CheckpointError, NoTokenizerError

HERE = Path(__file__).parent / "pieces"
RECORDED = json.loads((HERE / "ids.json").read_text(encoding="utf-8"))
LINES = [line.split("\t")[1] for line in (HERE / "declaration.txt").read_text(encoding="utf-8").splitlines()]
SIGNS = (
    "🙂 👩‍🚀 ❤️ 🇪🇺 👍🏽 😀😀 ™️ © ½ ① … \u200d \u200b \ufeff \xa0 \u3000 \t \n \r\n \xad X\u0302 ﬁ\u0301".split(
        " "
    )
)
RANGES = [(33, 0x2FFF), (0x4E00, 0xD7FF), (0xF900, 0xFDCF), (0xFE00, 0xFFEF), (0x1F300, 0x1FAFF)]
RANGES += [(0x10000, 0x10FFFF)]
PLAIN = {"vocab_size": 1000, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1}
BYTES_AS_LAST = {"byte_fallback": True, "character_coverage": 0.98}
IDENTITY = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
BLANKS_KEPT = BYTES_AS_LAST | IDENTITY | {"allow_whitespace_only_pieces": True}
OWN_SYMBOLS = ["自由", "."]
COMMITTED = {
    "unigram": {
        "normalization_rule_tsv": "rules.tsv",
        "vocab_size": 700,
        "user_defined_symbols": OWN_SYMBOLS,
    },
    "bpe": {"model_type": "bpe"} | BLANKS_KEPT,
}
OWN_RULES = {"ß": "ss", "①": "1", "\u3000": " ", "Ａ": "A", "™": "TM"}
RULES = ["nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"]
CASES = {
    f"{kind} {name}": {"model_type": kind} | options
    for kind in ("unigram", "bpe")
    for name, options in {
        **{
            rule: {"normalization_rule_name": rule}
            for rule in ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "identity")
        },
        "bytes": BYTES_AS_LAST,
        "blanks kept": BLANKS_KEPT | {"split_digits": True},
        "no prefix": {"add_dummy_prefix": False},
        "across words": {"split_by_whitespace": False},
        "control": {"control_symbols": ["[CLS]", "[SEP]"]},
    }.items()
} | {"unigram user": {"user_defined_symbols": ["(", ")", ".", "<sep>", "€"]}}


def trained(**options) -> bytes:
    library = pytest.importorskip("sentencepiece", reason="trains a model with the package sentencepiece")
    out = io.BytesIO()
    library.SentencePieceTrainer.train(sentence_iterator=iter(LINES * 2), model_writer=out, **PLAIN | options)
    return out.getvalue()


def line(rng: random.Random) -> str:
    """Words of one language, with emoji, signs of any script, decomposed letters, capitals, blanks."""
    words = rng.choice(LINES).split(" ")
    words = rng.sample(words, min(len(words), rng.randint(1, 9)))
    for _ in range(rng.choice((0, 0, 1, 2))):
        words.insert(rng.randint(0, len(words)), rng.choice(SIGNS))
    if rng.random() < 0.25:
        word = "".join(chr(rng.randint(*rng.choice(RANGES))) for _ in range(rng.randint(1, 5)))
        words.insert(rng.randint(0, len(words)), word)
    text = rng.choice((" ", " ", " ", "", "  ")).join(words)
    text = unicodedata.normalize("NFD", text) if rng.random() < 0.1 else text
    text = text.upper() if rng.random() < 0.1 else text
    text = rng.choice((" ", "  ", "\t")) + text + rng.choice((" ", "▁", "\n")) if rng.random() < 0.1 else text
    return text.replace(",", "<sep>") if rng.random() < 0.1 else text


def lines(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [line(rng) for _ in range(count)]


def put(folder: Path, raw: bytes, name: str = "spiece.model", **settings) -> Path:
    (folder / name).write_bytes(raw)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def ids_of(tokenizer, texts: list[str]) -> list[list[int]]:
    return [found.ids for found in tokenizer.encode_batch(texts, add_special_tokens=False)]


def ids_of_the_library(raw: bytes, texts: list[str]) -> list[list[int]]:
    library = pytest.importorskip("sentencepiece", reason="asks the package sentencepiece for its ids")
    return library.SentencePieceProcessor(model_proto=raw).encode(texts)


# --- ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMITTED)
def test_the_ids_that_the_library_gave(name):
    tokenizer, recorded = load_tokenizer(HERE / f"{name}.model"), RECORDED
    assert len(recorded["texts"]) >= 200
    assert ids_of(tokenizer, recorded["texts"]) == recorded[name]
    met = {i for ids in recorded[name] for i in ids}
    if name == "bpe":
        assert sum(str(tokenizer.id_to_token(i)).startswith("<0x") for i in met) > 30
    else:
        assert {tokenizer.token_to_id(text) for text in ("自由", ".", "<unk>")} <= met
    assert tokenizer.encode("Todo").tokens[:: len(tokenizer.encode("Todo").tokens) - 1] == ["<s>", "</s>"]


@pytest.mark.parametrize("name", COMMITTED)
def test_the_recorded_ids_are_the_librarys(name):
    assert ids_of_the_library((HERE / f"{name}.model").read_bytes(), RECORDED["texts"]) == RECORDED[name]


def compare(raw: bytes, texts: list[str], folder: Path) -> None:
    ours, theirs = ids_of(load_tokenizer(put(folder, raw)), texts), ids_of_the_library(raw, texts)
    assert [text for text, a, b in zip(texts, ours, theirs, strict=True) if a != b] == []


@pytest.mark.parametrize("case", CASES)
def test_ids_equal_those_of_sentencepiece(case, tmp_path):
    compare(trained(**CASES[case]), lines(7, 300), tmp_path)


# Marks that SentencePiece's tables compose with the letter before them, and those that they do not: after a
# composed letter, out of order, after a character that becomes several; capitals, Hangul, deleted characters.
COMPOSED = "a\u0302 u\u0308\u0301 \u03b1\u0313\u0300\u0345 \uff21\u0301 \u017f\u0301 \uff76\uff9e \u3131\u314f".split()
NOT_COMPOSED = (
    "\u00ea\u0301 a\u0302\u0323 x\u0323\u0307 x\u0355\u1dd0 e\u0344 \ufb01\u0301 \u0e48\u0e38 \u03a5\u0342 H\u0331 "
    "\uac00\u11a8 \uac00\u3133 e\x01\u0301 \u0915\u094d\u093c \u0386\u0345 \u0301\u0344 B\u200c A\uff9e A\U0001f3fb a\x01"
).split(" ")


@pytest.mark.parametrize("rule", RULES)
def test_texts_are_normalized_as_in_the_library(rule, tmp_path):
    options = {"add_dummy_prefix": False, "remove_extra_whitespaces": False, "normalization_rule_name": rule}
    raw = trained(**options, vocab_size=600)
    ours = load_tokenizer(put(tmp_path, raw)).normalizer
    theirs = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_proto=raw)
    rng = random.Random(3)
    letters = [chr(i) for i in range(0xA0, 0x3200) if unicodedata.category(chr(i)) != "Cn"]
    letters += ["".join(COMPOSED + NOT_COMPOSED), *"\n\r\u200d\uff9e", *map(chr, range(0x300, 0x346))] * 20
    mixed = ["".join(rng.choices("".join(letters), k=rng.randint(2, 6))) for _ in range(20_000)]
    # the library composes this capital before it folds the case
    mixed = [text for text in mixed if "I\u0307" not in unicodedata.normalize("NFKD", text)]
    texts = [*COMPOSED, *NOT_COMPOSED, *mixed]
    assert [t for t in texts if ours.normalize_str(t) != theirs.normalize(t)] == []


def test_unused_pieces_are_passed_over(tmp_path):
    raw = trained(vocab_size=600)
    proto = pytest.importorskip("sentencepiece.sentencepiece_model_pb2").ModelProto.FromString(raw)
    for found in proto.pieces[3::5]:
        found.type = 5 if len(found.piece) > 1 else found.type
    assert sum(found.type == 5 for found in proto.pieces) > 20
    compare(proto.SerializeToString(), lines(23, 200), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["unigram nmt_nfkc", "unigram nmt_nfkc_cf", "bpe bytes", "unigram user"])
def test_ids_of_ten_thousand_lines(case, tmp_path):
    compare(trained(**CASES[case]), lines(11, 10_000), tmp_path)


def test_a_text_cannot_name_a_special_piece_by_wide_letters(tmp_path):
    raw = trained(control_symbols=["BAN", "[SEP]"], required_chars="<>BAN")
    tokenizer = load_tokenizer(put(tmp_path, raw))
    inside = tokenizer.encode("＜unk＞ ＢＡＮ ＜s＞", add_special_tokens=False).ids
    assert not {tokenizer.token_to_id(t) for t in ("BAN", "<s>")} & set(inside)
    assert tokenizer.token_to_id("BAN") in tokenizer.encode("BAN").ids  # as it is written it is one


def test_pieces_of_a_users_in_bpe_are_looked_for_first(tmp_path):
    raw = trained(model_type="bpe", user_defined_symbols=["<sep>", "."])
    tokenizer = load_tokenizer(put(tmp_path, raw))
    texts = "libre", "libre<sep>libre."
    word, whole = (tokenizer.encode(text, add_special_tokens=False).tokens for text in texts)
    assert whole[-4:] == ["<sep>", *word, "."]


# --- families -------------------------------------------------------------------------------------

BRACKETS = {f"{name}_piece": token for name, token in (("pad", "[PAD]"), ("bos", "[CLS]"), ("eos", "[SEP]"))}
BRACKETS |= {"pad_id": 0, "bos_id": 1, "eos_id": 2}
CONTROL = ["[CLS]", "[SEP]", "[MASK]"]
FAMILIES = {  # the model type, the file, options of the training, how far pieces are moved
    "XLMRobertaTokenizer": ("xlm-roberta", "sentencepiece.bpe.model", {}, 1),
    "CamembertTokenizer": ("camembert", "sentencepiece.bpe.model", {}, 4),
    "AlbertTokenizer": (
        *("albert", "spiece.model"),
        {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": CONTROL},
        0,
    ),
    "DebertaV2Tokenizer": ("deberta-v2", "spm.model", BRACKETS | {"unk_id": 3, "unk_piece": "[UNK]"}, 0),
}


AS_TEXTS_STAND = {"do_lower_case": False, "keep_accents": True}


@pytest.mark.parametrize("name", FAMILIES)
def test_families_number_the_pieces_as_they_were_trained(name, tmp_path):
    model_type, file, options, offset = FAMILIES[name]
    raw = trained(**options)
    theirs = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_proto=raw)
    ours = load_tokenizer(put(tmp_path, raw, file, tokenizer_class=name, **AS_TEXTS_STAND))
    known = Vocabulary.of(ours)
    assert tokenizer_files(tmp_path) == [tmp_path / file]
    for text in lines(13, 200):
        inner = [known.unk if i == theirs.unk_id() else i + offset for i in theirs.encode(text)]
        assert ours.encode(text).ids == [known.cls, *inner, known.sep], text
    assert known.pad == options.get("pad_id", 1)
    own_mask = "[MASK]" in options.get("control_symbols", ())
    assert known.mask == theirs.piece_to_id("[MASK]") if own_mask else count_ids(ours) - 1
    assert count_ids(ours) == theirs.get_piece_size() + offset + (not own_mask)
    put(tmp_path, raw, file, **AS_TEXTS_STAND)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert load_tokenizer(tmp_path).to_str() == ours.to_str()


@pytest.mark.parametrize(
    ("name", "file", "options", "odd", "more"),
    [
        *(
            (name, *FAMILIES[name][1:3], "", ["a <mask> b<mask>", "<s>x</s> <pad>", ""])
            for name in [*FAMILIES][:2]
        ),
        # Python writes Σ as ς at the end of a word, and Rust as σ.
        (
            *("SiglipTokenizer", "spiece.model", {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}, "Σ"),
            ["A photo of a Cat.", "it's {[x]}  -- y_z!", "a"],
        ),
    ],
)
def test_ids_as_transformers(name, file, options, odd, more, tmp_path):
    """On lines without decomposed letters, which its conversion takes apart otherwise than the library."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("google.protobuf")
    put(tmp_path, trained(**options), file)
    theirs = getattr(transformers, name).from_pretrained(tmp_path)
    put(tmp_path, (tmp_path / file).read_bytes(), file, tokenizer_class=name)
    ours = load_tokenizer(tmp_path)

    def is_odd(text: str) -> bool:
        apart = not odd and any("\ufb1d" <= c < "\uff00" for c in text)
        return apart or bool({*text} & {*"ﾞﾟﬁ\u200d" + odd}) or not unicodedata.is_normalized("NFC", text)

    texts = [text for text in lines(17, 400) if not is_odd(text)]
    assert len(texts) > 200
    for text in [*texts, *more]:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
        if not odd:
            assert ours.encode(text, "b c").ids == theirs(text, "b c")["input_ids"], text
    assert odd or count_ids(ours) == len(theirs)


def test_albert_makes_quotes_plain_and_drops_case_and_accents(tmp_path):
    _, file, options, _ = FAMILIES["AlbertTokenizer"]
    raw = trained(**options)
    ours = load_tokenizer(put(tmp_path, raw, file, tokenizer_class="AlbertTokenizer"))
    assert ours.encode("``Égaux''  Libertà").ids == ours.encode('"egaux" liberta').ids
    ours = load_tokenizer(put(tmp_path, raw, file, tokenizer_class="AlbertTokenizer", **AS_TEXTS_STAND))
    assert ours.encode("``Égaux''  Libertà").ids == ours.encode('"Égaux" Libertà').ids
    assert ours.encode("Égaux").ids != ours.encode("egaux").ids


def test_a_comma_stays_apart_from_digits_in_albert(tmp_path):
    kinds = [3, 2, 3, 3, 1, 1, 1, 1]
    pieces = zip("<pad> <unk> [CLS] [SEP] ▁1 , ▁1, ▁".split(), kinds, strict=True)
    raw = model([piece(text, -1.0 - i, kind) for i, (text, kind) in enumerate(pieces)])
    ours = load_tokenizer(put(tmp_path, raw, tokenizer_class="AlbertTokenizer"))
    assert ours.encode("1,").tokens == ["[CLS]", "▁1", ",", "[SEP]"]
    assert load_tokenizer(put(tmp_path, raw)).encode("1,").tokens == ["[CLS]", "▁1,", "[SEP]"]


def test_words_of_pieces(tmp_path):
    tokenizer = load_tokenizer(shutil.copy(HERE / "unigram.model", tmp_path))
    encoding = tokenizer.encode("Alle Menschen, sind frei.")
    words = word_ids(encoding, range(len(encoding.ids)))
    assert [encoding.offsets[1][0], encoding.offsets[-2][1]] == [0, 25]
    assert words.max() >= 3
    assert words[0] == words[-1] == -1
    assert "".join(piece_text(tokenizer, i) for i in encoding.ids[1:-1]) == "AlleMenschen,sindfrei."
    assert tokenizer.decode(encoding.ids) == "Alle Menschen, sind frei."


def test_the_names_that_folders_give_the_file(tmp_path):
    for name in ("sentencepiece.bpe", "spiece", "sentencepiece", "spm", "tokenizer"):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(HERE / "unigram.model", folder / f"{name}.model")
        assert count_ids(load_tokenizer(folder)) == count_ids(load_tokenizer(HERE / "unigram.model"))
    (folder / "added_tokens.json").write_text(json.dumps({"[MASK]": count_ids(load_tokenizer(folder))}))
    tokenizer = load_tokenizer(folder)
    assert "[MASK]" in tokenizer.encode("Alle [MASK]frei").tokens
    load_tokenizer(HERE / "bpe.model").save(str(folder / "tokenizer.json"))
    assert tokenizer_files(folder) == [folder / "tokenizer.json"]


# --- what is refused ------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | bytes | float) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(text: str | bytes, score: float = -1.0, kind: int = 1) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode()
    return field(1, field(1, raw) + field(2, score) + field(3, kind))


GOOD = [
    piece("<unk>", 0.0, 2),
    piece("<s>", 0.0, 3),
    piece("</s>", 0.0, 3),
    *map(piece, ("▁", "a", "b", "ab")),
]
GOOD += [piece("▁a", -0.5)]


def model(pieces: list[bytes], trainer: bytes = b"", normalizer: bytes = b"") -> bytes:
    return b"".join(pieces) + field(2, trainer) + field(3, normalizer)


BYTES = [piece(f"<0x{i:02X}>", 0.0, 6) for i in range(256)]


def with_piece(*given, trainer: bytes = b"", normalizer: bytes = b"") -> bytes:
    return model([*GOOD, piece(*given)], trainer, normalizer)


FAR_TABLE = struct.pack("<I", 1024) + b"\xff" * 1024
TWICE = field(1, field(1, b"a") + field(1, b"b"))
ATTACKS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it has no pieces"),
    "a pointer of Git LFS": (b"version https://git-lfs.github.com/spec/v1\n", "it is a Git LFS pointer"),
    "a pickle": (b"\x80\x02cos\nsystem\n(S'echo'\ntR.", "field 13 has the unknown wire type 7"),
    "text": (b"<unk>\t0\n<s>\t0\n", "field 7 has the unknown wire type 4"),
    "cut in a piece": (model(GOOD)[:-5][:40], "bytes, but only"),
    "cut in a number": (model(GOOD) + b"\xa8", "the file is truncated"),
    "a piece longer than the file": (b"\x0a\x7f" + b"abc", "field 1 has 127 bytes, but only 3 are left"),
    "a length of an exabyte": (
        b"\x0a" + varint(1 << 60) + b"a",
        "has 1,152,921,504,606,846,976 bytes, but o",
    ),
    "a length below nothing": (b"\x0a" + varint((1 << 64) - 1), "bytes, but only 0 are left"),
    "a number of 77 bits": (b"\x0a" + b"\xff" * 10 + b"\x01", "a number has more than 64 bits"),
    "a number of 70 bits": (b"\x0a" + b"\xff" * 9 + b"\x7f", "a number has more than 64 bits"),
    "field 0": (b"\x02\x01a", "field 0 has the unknown wire type 2"),
    "a group": (b"\x0b\x0c", "field 1 has the unknown wire type 3"),
    "an end of a group": (b"\x0c", "field 1 has the unknown wire type 4"),
    "wire type 7": (b"\x0f", "field 1 has the unknown wire type 7"),
    "a number for a piece": (field(1, 7), "field 1 is not a message"),
    "a number for a text": (field(1, field(1, 7)), "'piece' has wire type 0, expected 2"),
    "a text for a score": (field(1, field(1, b"a") + field(2, b"1")), "'score' has wire type 2, expected 5"),
    "a text for a type": (field(1, field(1, b"a") + field(3, b"1")), "'type' has wire type 2, expected 0"),
    "a piece with two texts": (TWICE, "'piece' occurs twice in one message"),
    "a type below nothing": (with_piece("c", -1.0, (1 << 64) - 1), "unknown type 18446744073709551615"),
    "an unknown type": (with_piece("c", -1.0, 9), "piece 8 has the unknown type 9"),
    "an unused letter": (with_piece("c", -1.0, 5), "the unused piece 'c' is not supported"),
    "an unused piece in BPE": (with_piece("cd", -1.0, 5, trainer=field(3, 2)), "unused piece 'cd' is not"),
    "an empty piece": (with_piece(""), "piece 8 has 0 characters; 1 to 512 are supported"),
    "a long piece": (with_piece("a" * 513), "piece 8 has 513 characters"),
    "not UTF-8": (with_piece(b"\xff\xfe"), "piece 8 is not UTF-8"),
    "half of a pair": (with_piece(b"\xed\xa0\x80"), "piece 8 is not UTF-8"),
    "no number": (with_piece("c", float("nan")), "the score of piece 8 is nan"),
    "no end": (with_piece("c", float("inf")), "the score of piece 8 is inf"),
    "a piece twice": (with_piece("ab"), "the piece 'ab' occurs twice"),
    "nothing for the unknown": (model(GOOD[1:]), "0 unknown tokens, expected one"),
    "two for the unknown": (with_piece("<u>", 0.0, 2), "2 unknown tokens, expected one"),
    "two trainers": (model(GOOD) + field(2, b""), "field 2 occurs twice"),
    "words": (model(GOOD, field(3, 3)), "the model type is words; only Unigram and BPE are supported"),
    "characters": (model(GOOD, field(3, 4)), "the model type is characters; only Unigram"),
    "an unknown model": (model(GOOD, field(3, 77)), "the model type is 77; only Unigram and BPE"),
    "bytes without pieces": (model(GOOD, field(35, 1)), "byte_fallback is true, with 0 of 256 byte pieces"),
    "bytes that lack one": (model(GOOD + BYTES[1:], field(35, 1)), "byte_fallback is true, with 255 of 256"),
    "bytes unasked": (model(GOOD + BYTES), "byte_fallback is false, with 256 of 256"),
    "a truth of 2": (model(GOOD, field(35, 2)), "byte_fallback = 2, expected 0 or 1"),
    "blanks behind": (model(GOOD, field(24, 1)), "treat_whitespace_as_suffix = true is not supported"),
    "blanks as they are": (model(GOOD, b"", field(5, 0)), "escape_whitespaces = false is not supported"),
    "a cut table": (model(GOOD, b"", field(2, b"\x01\x02")), "its table is truncated"),
    "a table that leads out": (model(GOOD, b"", field(2, FAR_TABLE)), "its table has an offset out of range"),
    "a blank of a user's in BPE": (with_piece("a▁", 0.0, 4, trainer=field(3, 2)), "a blank, unsupported in"),
}


def test_a_made_file_opens(tmp_path):
    ours = load_tokenizer(put(tmp_path, model(GOOD) + field(4, b"\xff") + field(200, 7)))
    assert ours.encode("ab c").ids == [1, 7, 5, 3, 0, 2]
    ours = load_tokenizer(put(tmp_path, model(GOOD + BYTES, field(3, 2) + field(35, 1))))
    assert ours.encode("ab\xe9").tokens == ["<s>", "▁a", "b", "<0xC3>", "<0xA9>", "</s>"]


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_files_are_refused_in_one_line(name, tmp_path):
    raw, said = ATTACKS[name]
    put(tmp_path, raw)
    for path in (tmp_path, tmp_path / "spiece.model"):
        with pytest.raises(CheckpointError, match=said) as error:
            load_tokenizer(path)
        assert str(error.value).startswith(f"{tmp_path / 'spiece.model'}: not a ")
        assert "\n" not in str(error.value)


def test_a_file_that_ends_anywhere_is_refused_or_whole(tmp_path):
    whole, refused = model(GOOD), 0
    for end in range(len(whole)):
        (tmp_path / "spiece.model").write_bytes(whole[:end])
        try:
            assert 1 <= load_tokenizer(tmp_path).get_vocab_size() <= len(GOOD)
        except CheckpointError:
            refused += 1
    assert refused >= len(whole) - len(GOOD) - 3  # a message may end behind each field


def test_changed_bytes_open_or_are_refused(tmp_path):
    rng, raw = random.Random(5), model(GOOD + BYTES, field(3, 2) + field(35, 1))
    refused = 0
    for _ in range(300):
        changed = bytearray(raw)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        (tmp_path / "spiece.model").write_bytes(changed)
        try:
            assert load_tokenizer(tmp_path).encode("ab").ids
        except CheckpointError:
            refused += 1
    assert refused > 100


def test_more_than_is_read(tmp_path, monkeypatch):
    put(tmp_path, model(GOOD, field(3, 2)))
    monkeypatch.setattr(sentence_pieces, "MAX_LETTERS", 5)
    with pytest.raises(CheckpointError, match="its pieces have more than 5 characters"):
        load_tokenizer(tmp_path)
    monkeypatch.setattr(sentence_pieces, "MAX_PIECES", 7)
    with pytest.raises(CheckpointError, match="more than 7 pieces"):
        load_tokenizer(tmp_path)
    with (tmp_path / "spiece.model").open("wb") as file:
        file.truncate((128 << 20) + 1)
    with pytest.raises(CheckpointError, match="is larger than the 134,217,728 bytes allowed"):
        load_tokenizer(tmp_path)
    (tmp_path / "spiece.model").unlink()
    os.mkfifo(tmp_path / "spiece.model")
    with pytest.raises(CheckpointError, match="is a named pipe, not a plain file"):
        load_tokenizer(tmp_path)


DEBERTA, XLM = ({"tokenizer_class": name} for name in ("DebertaV2Tokenizer", "XLMRobertaTokenizer"))
MISFITS = [
    (
        model(GOOD),
        {"tokenizer_class": "T5Tokenizer"},
        "the tokenizer class 'T5Tokenizer' is not supp.* Convert it",
    ),
    (model(GOOD), {"tokenizer_class": 7}, "the tokenizer class '7' is not supported"),
    (model(GOOD), DEBERTA, r"the vocabulary lacks \[CLS\]"),
    (model(GOOD), DEBERTA | {"split_by_punct": True}, "split_by_punct = true is not supported"),
    (model(GOOD), XLM | {"mask_token": 7}, "mask_token is not a token"),
    (model([GOOD[0], *GOOD[3:]]), XLM, "the first 3 pieces are not the special tokens"),
    (with_piece("<pad>"), XLM, "the pieces do not match the special tokens"),
]


@pytest.mark.parametrize(("raw", "settings", "said"), MISFITS)
def test_settings_that_do_not_go_with_pieces(raw, settings, said, tmp_path):
    with pytest.raises(NoTokenizerError if "the tokenizer class" in said else CheckpointError, match=said):
        load_tokenizer(put(tmp_path, raw, **settings))


if __name__ == "__main__":
    rules = HERE / "rules.tsv"
    rules.write_text(
        "".join(
            f"{' '.join(f'{ord(c):X}' for c in old)}\t{' '.join(f'{ord(c):X}' for c in new)}\n"
            for old, new in OWN_RULES.items()
        )
    )
    texts = [*LINES, *lines(3, 250)]
    record = {"texts": texts}
    for name, options in COMMITTED.items():
        tsv = {"normalization_rule_tsv": str(rules)} if "normalization_rule_tsv" in options else {}
        (HERE / f"{name}.model").write_bytes(trained(**options | tsv))
        record[name] = ids_of_the_library((HERE / f"{name}.model").read_bytes(), texts)
    rules.unlink()
    out = json.dumps(record, ensure_ascii=True, separators=(",", ":"))
    (HERE / "ids.json").write_text(out + "\n", encoding="utf-8")
