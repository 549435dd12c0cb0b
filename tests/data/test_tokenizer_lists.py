"""Vocabularies in two files, read as transformers reads them; what is no such list is refused by its file's name."""

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.byte_pieces import byte_level
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from glassformer.data.masking import MaskSettings, mask_tokens
from glassformer.data.tokenizer_file import count_ids, load_tokenizer
from glassformer.data.vocabulary import Vocabulary, piece_text, word_ids
from glassformer.errors import CheckpointError

LETTERS = "aăâbcđeêghiknoôơuưvxy_ạảắ."
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SEEDS = pytest.mark.parametrize("seed", [1, 2, 3, 5, 7])


def words_of(rng: random.Random, count: int) -> list[str]:
    found = ["".join(rng.choices(LETTERS, k=rng.choice((1, 2, 3, 4, 5, 7)))) for _ in range(count)]
    return [word for word in found for _ in range(rng.choice((1, 1, 2, 5)))]


def learnt(words: list[str], merges: int) -> tuple[list[tuple[tuple[str, str], int]], Counter[str]]:
    """Merges and pieces with their counts, as fastBPE learns and applies them."""
    counts, pieces = Counter(words), Counter[str]()
    cut = {word: (*word[:-1], word[-1] + "</w>") for word in counts}
    found = []
    for _ in range(merges):
        pairs = Counter[tuple[str, str]]()
        for word, count in counts.items():
            for pair in zip(cut[word], cut[word][1:], strict=False):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        found.append((best, pairs[best]))
        for word, parts in cut.items():
            out, i = [], 0
            while i < len(parts):
                joined = parts[i : i + 2] == best
                out.append("".join(parts[i : i + 1 + joined]))
                i += 1 + joined
            cut[word] = tuple(out)
    for word, count in counts.items():
        for part in cut[word]:
            pieces[part.removesuffix("</w>") if part.endswith("</w>") else part + "@@"] += count
    return found, pieces


def put_fast(folder: Path, seed: int) -> list[str]:
    """A vocabulary that lacks rare pieces, as published ones do; the words that it was learnt on."""
    words = words_of(random.Random(seed), 300)
    merges, pieces = learnt(words, 90)
    kept = [(piece, count) for piece, count in pieces.most_common() if count > 2]
    (folder / "vocab.txt").write_text("".join(f"{p} {c}\n" for p, c in kept), encoding="utf-8")
    (folder / "bpe.codes").write_text("".join(f"{a} {b} {c}\n" for (a, b), c in merges), encoding="utf-8")
    return words


def put_bytes(folder: Path, **settings) -> None:
    tokenizer = byte_level(["a wonderful film", "an unwonderful, dull film"] * 3, SPECIAL, 311)
    tokenizer.model.save(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@SEEDS
def test_fast_bpe_as_the_published_tokenizer(seed, tmp_path):
    phobert = pytest.importorskip("transformers").PhobertTokenizer
    words, rng = put_fast(tmp_path, seed), random.Random(seed)
    theirs = phobert(str(tmp_path / "vocab.txt"), str(tmp_path / "bpe.codes"))
    ours = load_tokenizer(tmp_path)
    known = Vocabulary.of(ours)
    assert (known.cls, known.pad, known.sep, known.unk, known.mask) == (0, 1, 2, 3, len(theirs) - 1)
    first = known.first_intermediate_id(ours)
    assert first == len(theirs) < count_ids(ours)
    met = 0
    for _ in range(300):
        strange = ["".join(rng.choices(LETTERS + "zQ7中", k=rng.randint(1, 8))) for _ in range(3)]
        text = rng.choice((" ", " ", "  ", "\n", " \n", "\t")).join(rng.sample(words + strange * 30, 5))
        text += rng.choice(("", " <mask> ", "<mask>"))
        ids = ours.encode(text).ids
        met += sum(i >= first for i in ids)
        assert [i if i < first else known.unk for i in ids] == theirs(text)["input_ids"], text
    assert (
        met > 0
    )  # what only stands on the way to other pieces is unknown there, and has a row of its own here
    assert known.special(ours)[first:].all()


def test_marked_ends_behind_a_mask_that_comes_first_are_no_steps():
    pieces = {token: i for i, token in enumerate([*SPECIAL, "a", "b</w>", "ab</w>"])}
    tokenizer = Tokenizer(models.BPE(pieces, [("a", "b</w>")], unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.add_special_tokens(SPECIAL)
    known = Vocabulary.of(tokenizer)
    assert known.first_intermediate_id(tokenizer) is None
    assert np.flatnonzero(known.special(tokenizer)).tolist() == [0, 1, 2, 3, 4]
    assert np.flatnonzero(known.continues_next(tokenizer)).tolist() == [5]


def test_words_of_fast_bpe_stay_together(tmp_path):
    words = put_fast(tmp_path, 11)
    tokenizer = load_tokenizer(tmp_path)
    text = " ".join(words[:7])
    encoding = tokenizer.encode(text)
    numbers = word_ids(encoding, range(len(encoding.ids)))
    assert numbers.max() == 6
    assert numbers[0] == numbers[-1] == -1
    spans = [[o for o, n in zip(encoding.offsets, numbers, strict=True) if n == k] for k in range(7)]
    assert [text[min(s)[0] : max(s)[1]] for s in spans] == words[:7]
    whole = tokenizer.token_to_id("a</w>")
    assert piece_text(tokenizer, whole) == "a"


def test_whole_words_of_fast_bpe_are_hidden_whole(tmp_path):
    words = put_fast(tmp_path, 13)
    tokenizer = load_tokenizer(tmp_path)
    first = Vocabulary.of(tokenizer).first_intermediate_id(tokenizer)
    encoding = tokenizer.encode(" ".join(words[:200]))
    ids = np.array(encoding.ids)
    settings = MaskSettings.of(tokenizer, 0.3, whole_words=True)
    _, rows = mask_tokens(ids, settings, np.random.default_rng(17))
    hidden = np.zeros(len(ids), bool)
    hidden[rows] = True
    numbers = word_ids(encoding, range(len(ids)))
    kinds = set()
    for word in range(numbers.max() + 1):
        its = numbers == word
        if (ids[its] < first).all() and not (ids[its] == 3).any():
            assert hidden[its].all() or not hidden[its].any()
            kinds.add((int(its.sum()) > 1, bool(hidden[its].any())))
    assert len(kinds) == 4  # of one piece and of several, hidden and not


@pytest.mark.parametrize("spaced", [False, True])
def test_byte_level_bpe_as_transformers(spaced, tmp_path):
    transformers = pytest.importorskip("transformers")
    put_bytes(tmp_path, add_prefix_space=spaced)
    ours = load_tokenizer(tmp_path)
    theirs = transformers.RobertaTokenizer.from_pretrained(tmp_path, add_prefix_space=spaced)
    known = Vocabulary.of(ours)
    assert (known.cls, known.pad, known.sep, known.unk, known.mask) == (0, 1, 2, 3, 4)
    for text in (
        "a wonderful film",
        " dull!",
        "Đây là phim\n\n hay",
        "",
        "unwonderful  film's 中",
        "a  \t b",
        "a <mask> film<mask>",
    ):
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
        assert ours.encode(text, "a film").ids == theirs(text, "a film")["input_ids"]
    assert load_tokenizer(tmp_path / "merges.txt").to_str() == ours.to_str()
    assert load_tokenizer(tmp_path / "vocab.json").to_str() == ours.to_str()
    if spaced:  # a blank stands before every part, then
        return
    film = ours.encode(" film", add_special_tokens=False).ids
    assert ours.encode("a <mask> film").ids[-2 - len(film) :] == [4, *film, 2]
    assert "".join(piece_text(ours, i) for i in film) == "film"


def test_added_tokens_beside_lists_of_bytes_as_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    put_bytes(tmp_path)
    rows = count_ids(load_tokenizer(tmp_path))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"Zug": rows + 1, "<new>": rows, "<mask>": 4}))
    ours, theirs = load_tokenizer(tmp_path), transformers.RobertaTokenizer.from_pretrained(tmp_path)
    assert count_ids(ours) == len(theirs) == rows + 2
    met = set()
    for text in (
        "a <new> film",
        "<new><new>dull",
        "Zugs  Zug <NEW>",
        " <new>",
        "<s><new>\n x",
        "a wonderful film",
    ):
        ids = ours.encode(text).ids
        assert ids == theirs(text)["input_ids"], text
        met.update(ids)
    assert {rows, rows + 1} <= met
    for name in ("vocab.json", "merges.txt"):
        assert load_tokenizer(tmp_path / name).to_str() == ours.to_str()


MASK = {"content": "<mask>", "lstrip": True, "rstrip": False, "single_word": False, "normalized": False}
SAID = pytest.mark.parametrize(
    ("settings", "takes"),
    [
        ({}, False),
        ({"mask_token": "<mask>"}, False),
        ({"mask_token": MASK | {"__type": "AddedToken"}}, True),
        ({"added_tokens_decoder": {"4": MASK | {"special": True}}}, True),
        ({"added_tokens_decoder": {"4": MASK | {"lstrip": False, "rstrip": True, "special": True}}}, False),
    ],
)


@SAID
def test_a_mask_takes_the_blank_before_it_in_where_the_settings_say_so(settings, takes, tmp_path):
    put_bytes(tmp_path, **settings)
    ours = load_tokenizer(tmp_path)
    blank = ours.encode(" ", add_special_tokens=False).ids[0]
    assert (blank not in ours.encode("a <mask> film").ids) == takes
    theirs = pytest.importorskip("transformers").RobertaTokenizer.from_pretrained(tmp_path)
    for text in ("a <mask> film", "a<mask>film", "  <mask>  <mask>\n dull"):
        assert ours.encode(text).ids == theirs(text)["input_ids"], text


def test_added_tokens_beside_fast_bpe_as_the_published_tokenizer(tmp_path):
    phobert = pytest.importorskip("transformers").PhobertTokenizer
    words, rng = put_fast(tmp_path, 17), random.Random(17)
    plain = load_tokenizer(tmp_path)
    first = Vocabulary.of(plain).first_intermediate_id(plain)
    added = {"<mask>": first - 1, "<new>": first, "[ten]": first + 1}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    ours = load_tokenizer(tmp_path)
    theirs = phobert.from_pretrained(tmp_path)
    known = Vocabulary.of(ours)
    assert known.first_intermediate_id(ours) == first + 2 == len(theirs)
    assert count_ids(ours) == count_ids(plain) + 2
    assert not known.special(ours)[first : first + 2].any()
    for _ in range(100):
        text = " ".join(
            [*rng.sample(words, 3), rng.choice(("<new>", "[ten]", "<mask>")), *rng.sample(words, 2)]
        )
        ids = [i if i < first + 2 else known.unk for i in ours.encode(text).ids]
        assert ids == theirs(text)["input_ids"], text


@pytest.mark.parametrize("put", [put_bytes, lambda folder: put_fast(folder, 3)])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "not an object of tokens with their ids"),
        ("{", "not JSON"),
        ('{"<new>": 1, "<new>": 2}', "not JSON"),
        ("{" * 100_000, "not JSON"),
        ('{"<new>": "7"}', "'<new>' is not a token with its id"),
        ('{"<new>": true}', "'<new>' is not a token with its id"),
        ('{"": 7}', "'' is not a token with its id"),
        ('{"<new>": 7}', r"the id of '<new>' is 7 and not \d+. Number new tokens from \d+ on"),
        ('{"<new>": 100003}', r"the id of '<new>' is 100003 and not \d+"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_wrong_added_tokens(put, content, said, tmp_path):
    put(tmp_path)
    raw = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "added_tokens.json").write_bytes(raw)
    with pytest.raises(CheckpointError, match=f"added_tokens.json: {said}"):
        load_tokenizer(tmp_path)


def test_tokenizer_json_comes_first_and_lists_before_sentence_pieces(tmp_path):
    put_bytes(tmp_path)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"\x0a\x0e")
    assert count_ids(load_tokenizer(tmp_path)) > 256
    whole = Tokenizer(models.WordLevel({"<unk>": 0, "film": 1}, unk_token="<unk>"))
    whole.save(str(tmp_path / "tokenizer.json"))
    assert count_ids(load_tokenizer(tmp_path)) == 2


def test_unigram_words_stay_together():
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0), ("▁film", -1.0), ("s", -2.0),
              ("▁dull", -2.0), ("ish", -2.5), ("<mask>", 0.0)]  # fmt: skip
    tokenizer = Tokenizer(models.Unigram(pieces, 3, False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.add_special_tokens(SPECIAL)
    encoding = tokenizer.encode("films dullish film")
    assert word_ids(encoding, range(len(encoding.ids))).tolist() == [-1, 0, 0, 1, 1, 2, -1]
    assert Vocabulary.of(tokenizer).continues_previous(tokenizer)[[5, 6, 8]].tolist() == [False, True, True]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("vocab.txt", "a", "vocab.txt: line 1 is not a piece with its count: 'a'"),
        ("vocab.txt", "a 3\n\nb 4\n", "vocab.txt: line 2 is not a piece with its count"),
        ("vocab.txt", "a 3\nb 4\na 5\n", "vocab.txt: line 3 repeats 'a'"),
        ("vocab.txt", "a 3\n<s> 5\n", "vocab.txt: line 2 repeats '<s>'"),
        ("vocab.txt", b"\xff\xfe 3\n", "vocab.txt: not UTF-8"),
        ("bpe.codes", "a b c d\n", "bpe.codes: line 1 is not a merge of two pieces"),
        ("bpe.codes", "a b 3\nab\n", "bpe.codes: line 2 is not a merge of two pieces"),
        ("bpe.codes", b"\xff\xfe 3\n", "bpe.codes: not UTF-8"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json: not a JSON object"),
        ("tokenizer_config.json", '{"mask_token": 7}', "tokenizer_config.json: mask_token is not a token"),
    ],
)
def test_wrong_lists_of_fast_bpe(file, content, said, tmp_path):
    put_fast(tmp_path, 3)
    raw = content if isinstance(content, bytes) else content.encode()
    (tmp_path / file).write_bytes(raw)
    with pytest.raises(CheckpointError, match=said):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("vocab.json", "[]", "vocab.json: not an object of pieces"),
        ("vocab.json", "{", "vocab.json: not JSON"),
        ("vocab.json", '{"a": 1, "a": 2}', "vocab.json: not JSON"),
        ("vocab.json", "{" * 100_000, "vocab.json: not JSON"),
        ("vocab.json", '{"a": 1}', "vocab.json: the vocabulary lacks <s>"),
        (
            "vocab.json",
            '{"<s>": "one", "</s>": 2}',
            "id of a special token is not a number|the id of '<s>' is one",
        ),
        ("vocab.json", '{"<s>": [], "</s>": 2}', "id of a special token is not a number"),
        ("vocab.json", '{"<s>": 0, "</s>": 99999999999}', "integer `99999999999`, expected u32"),
        ("merges.txt", "#version: 0.2\na b c\n", "merges.txt: line 2 is not a merge of two pieces"),
        (
            "merges.txt",
            "\u2603 \u2603\n",
            "vocab.json with merges.txt: .*Token `\u2603` out of vocabulary",
        ),
    ],
)
def test_wrong_lists_of_bytes(file, content, said, tmp_path):
    put_bytes(tmp_path)
    (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=said):
        load_tokenizer(tmp_path)
