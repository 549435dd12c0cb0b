"""Vocabularies as lists and the tokens beside them, as transformers reads them; what tokens mean, and words of pieces."""

import json
import random
import unicodedata
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.byte_pieces import byte_level
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from glassformer.data.masking import MaskSettings, mask_tokens
from glassformer.data.text import bpe_tokenizer, word_tokenizer, wordpiece_tokenizer
from glassformer.data.tokenizer_file import count_ids, load_tokenizer
from glassformer.data.vocabulary import (
    SPECIAL_TOKENS,
    Vocabulary,
    clean_offsets,
    piece_text,
    trim_offsets,
    word_ids,
    wordpiece_word_ids,
)
from glassformer.errors import CheckpointError, ConfigError
from glassformer.explain.result import word_spans

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


def put_bert(folder: Path, more: dict | None = None, **settings) -> int:
    """A lone vocab.txt, as BERT's; the number of its pieces."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dull", "film", "##s", "zug"]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if more is not None:
        (folder / "added_tokens.json").write_text(json.dumps(more))
    return len(pieces)


def token(content: str, **flags: object) -> dict:
    plain = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
    return plain | {"content": content, **flags}


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
    # What only stands on the way to other pieces is unknown there, and has a row of its own here.
    assert met > 0
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
    others = "Đây là phim\n\n hay", "", "unwonderful  film's 中", "a  \t b", "a <mask> film<mask>"
    for text in ("a wonderful film", " dull!", *others):
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
    texts = "a <new> film", "<new><new>dull", "Zugs  Zug <NEW>", " <new>", "<s><new>\n x", "a wonderful film"
    for text in texts:
        ids = ours.encode(text).ids
        assert ids == theirs(text)["input_ids"], text
        met.update(ids)
    assert {rows, rows + 1} <= met
    for name in ("vocab.json", "merges.txt"):
        assert load_tokenizer(tmp_path / name).to_str() == ours.to_str()


MASK = token("<mask>", lstrip=True)


@pytest.mark.parametrize(
    ("settings", "takes"),
    [
        ({}, False),
        ({"mask_token": "<mask>"}, False),
        ({"mask_token": MASK | {"__type": "AddedToken"}}, True),
        ({"added_tokens_decoder": {"4": MASK | {"special": True}}}, True),
        ({"added_tokens_decoder": {"4": MASK | {"lstrip": False, "rstrip": True, "special": True}}}, False),
    ],
)
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
        new = rng.choice(("<new>", "[ten]", "<mask>"))
        text = " ".join([*rng.sample(words, 3), new, *rng.sample(words, 2)])
        ids = [i if i < first + 2 else known.unk for i in ours.encode(text).ids]
        assert ids == theirs(text)["input_ids"], text


STRIPS = token("<r>", rstrip=True, lstrip=True, special=True)
TRIED = "a <New> film|dull<New><r> films|a <r> film <Two>|a <R> [mask] <new>|<new>s|a [MASK] ".split("|")
SPECIAL_NEW = {"10": token("<New>", special=True), "11": STRIPS, "4": token("[MASK]", special=True)}
NORMALIZED = {"11": STRIPS, "10": token("<new>", normalized=True), "0": token("[PAD]", special=True)}


@pytest.mark.parametrize(
    "settings",
    [
        {"more": {"<new>": 10, "<two>": 11}},
        {"added_tokens_decoder": SPECIAL_NEW},
        {"added_tokens_decoder": NORMALIZED},
        {"added_tokens_decoder": {"10": token("<new>", single_word=True)}, "more": {"<gone>": 10}},
        {"do_lower_case": False, "more": {"<New>": 10}},
    ],
)
def test_added_tokens_beside_a_lone_list_of_words_as_transformers(settings, tmp_path):
    rows = put_bert(tmp_path, **settings)
    ours = load_tokenizer(tmp_path)
    theirs = pytest.importorskip("transformers").BertTokenizer.from_pretrained(tmp_path)
    assert count_ids(ours) == len(theirs) > rows
    found = [ours.encode(text).ids for text in TRIED]
    assert found == [theirs(text)["input_ids"] for text in TRIED]
    assert max(map(max, found)) >= rows


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ([], "added_tokens_decoder is not an object of ids with their tokens"),
        *(
            ({i: token("<new>")}, f"added_tokens_decoder: '{i[:9]}+' is not an id")
            for i in ("x", "-1", "9" * 40)
        ),
        *(
            ({"10": wrong}, "added_tokens_decoder: '10' is not an id with its token")
            for wrong in ("<new>", token(""))
        ),
        ({"10": token("<new>", lstrip=1)}, "'lstrip' of '<new>' is not a truth value"),
        ({"10": token("<new>"), "11": token("<new>")}, "added_tokens_decoder has a token twice"),
        ({"12": token("<new>")}, "the id of '<new>' is 12 and not 10. Number new tokens from 10, "),
        ({"3": token("[MASK]")}, r"the id of '\[MASK\]' is 3, in vocab.txt 4"),
    ],
)
def test_wrong_tokens_in_the_settings(said, error, tmp_path):
    put_bert(tmp_path, added_tokens_decoder=said)
    with pytest.raises(CheckpointError, match=f"tokenizer_config.json: {error}"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("put", [put_bert, put_bytes, lambda folder: put_fast(folder, 3)])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "not an object of tokens with their ids"),
        *((text, "not JSON") for text in ("{", '{"<new>": 1, "<new>": 2}', "{" * 100_000)),
        ('{"<new>": "7"}', "'<new>' is not a token with its id"),
        ('{"<new>": true}', "'<new>' is not a token with its id"),
        ('{"": 7}', "'' is not a token with its id"),
        ('{"<new>": 7}', r"the id of '<new>' is 7 and not \d+. Number new tokens from \d+, "),
        ('{"<new>": 100003}', r"the id of '<new>' is 100003 and not \d+"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_wrong_added_tokens(put, content, said, tmp_path):
    put(tmp_path)
    (tmp_path / "added_tokens.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckpointError, match=f"added_tokens.json: {said}"):
        load_tokenizer(tmp_path)


def test_a_piece_with_another_id(tmp_path):
    put_bert(tmp_path, {"a": 3})
    with pytest.raises(CheckpointError, match=r"added_tokens.json: the id of 'a' is 3, in vocab.txt 5"):
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


FAST = [
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
]
BYTES = [
    ("vocab.json", "[]", "vocab.json: not an object of pieces"),
    *(
        ("vocab.json", content, "vocab.json: not JSON")
        for content in ("{", '{"a": 1, "a": 2}', "{" * 100_000)
    ),
    ("vocab.json", '{"a": 1}', "vocab.json: the vocabulary lacks <s>"),
    (
        "vocab.json",
        '{"<s>": "one", "</s>": 2}',
        "id of a special token is not a number|the id of '<s>' is one",
    ),
    ("vocab.json", '{"<s>": [], "</s>": 2}', "id of a special token is not a number"),
    ("vocab.json", '{"<s>": 0, "</s>": 99999999999}', "integer `99999999999`, expected u32"),
    ("merges.txt", "#version: 0.2\na b c\n", "merges.txt: line 2 is not a merge of two pieces"),
    ("merges.txt", "\u2603 \u2603\n", "vocab.json with merges.txt: .*Token `\u2603` out of vocabulary"),
]


@pytest.mark.parametrize(
    ("put", "row"), [*((partial(put_fast, seed=3), r) for r in FAST), *((put_bytes, r) for r in BYTES)]
)
def test_wrong_lists(put, row, tmp_path):
    file, content, said = row
    put(tmp_path)
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckpointError, match=said):
        load_tokenizer(tmp_path)


# --- what tokens mean: special ones by their many names, and the words that pieces make ---------------


TEXTS = ["a wonderful film", "an unwonderful, dull film.", "it wasn't dull!"] * 3


def wordpiece(**options):
    return wordpiece_tokenizer(TEXTS, vocab_size=45, min_count=1, **options)


def roberta_like(*special):
    """A byte-level BPE with special tokens written as RoBERTa's are."""
    return byte_level(TEXTS, special)


def pieces_of(tokenizer, text):
    encoding = tokenizer.encode(text, add_special_tokens=False)
    offsets = trim_offsets(text, encoding.offsets)
    numbers = word_ids(encoding, range(len(encoding.ids)))
    spans = [[o for o, n in zip(offsets, numbers, strict=True) if n == k] for k in range(max(numbers) + 1)]
    return [text[min(a for a, _ in s) : max(b for _, b in s)] for s in spans]


def words_in(tokenizer, text, **options):
    """The words that an explanation shows."""
    encoding = tokenizer.encode(text, **options)
    numbers = word_ids(encoding, range(len(encoding.ids)), text)
    return [text[a:b] for a, b in word_spans(numbers, clean_offsets(text, encoding.offsets))], numbers


def test_special_tokens_of_a_vocabulary_trained_here():
    for tokenizer in (word_tokenizer(TEXTS, min_count=1), wordpiece(), bpe_tokenizer(TEXTS, vocab_size=280)):
        known = Vocabulary.of(tokenizer)
        assert (known.pad, known.unk, known.cls, known.sep, known.mask) == (0, 1, 2, 3, 4)
        assert set(known.tokens.values()) == set(SPECIAL_TOKENS)
        assert np.flatnonzero(known.special(tokenizer)).tolist() == [0, 1, 2, 3, 4]


def test_special_tokens_by_other_names():
    tokenizer = roberta_like("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    known = Vocabulary.of(tokenizer)
    assert (known.cls, known.pad, known.sep, known.unk, known.mask) == (0, 1, 2, 3, 4)
    assert known.masking_id == 4
    assert np.flatnonzero(known.special(tokenizer)).tolist() == [0, 1, 2, 3, 4]


def test_a_piece_with_the_name_of_a_special_token_is_none():
    """MPNet's list holds BERT's special tokens as pieces, beside its own that the tokenizer adds as such."""
    names = ["<s>", "<pad>", "</s>", "<unk>", "[PAD]", "a", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<mask>"]
    tokenizer = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    plain = Vocabulary.of(tokenizer)
    assert (plain.pad, plain.cls, plain.sep, plain.mask, plain.unk) == (4, 7, 8, 9, 6)
    tokenizer.add_special_tokens([*names[:4], "[UNK]", "<mask>"])
    known = Vocabulary.of(tokenizer)
    assert (known.pad, known.cls, known.sep, known.mask, known.unk) == (1, 0, 2, 10, 6)
    assert known.tokens["mask"] == "<mask>"


def test_words_are_hidden_behind_the_unknown_token_or_nothing():
    assert Vocabulary.of(roberta_like("<unk>")).masking_id == 0
    bare = Vocabulary.of(roberta_like())
    assert (bare.mask, bare.unk, bare.pad) == (None, None, None)
    with pytest.raises(ConfigError, match="neither a mask nor an unknown token"):
        _ = bare.masking_id


@pytest.mark.parametrize("text", ["an unwonderful, dull film.", "it wasn't dull!", "wonderful zzz film"])
def test_pieces_of_a_word(text):
    """WordPiece marks the pieces that go on; byte-level BPE marks blanks; both give the words of the text."""
    plain = wordpiece(add_special_tokens=False)
    encoding = plain.encode(text)
    by_names = wordpiece_word_ids(encoding.tokens, encoding.offsets)
    assert word_ids(encoding, range(len(encoding.ids))).tolist() == by_names.tolist()
    tokenizer = bpe_tokenizer(TEXTS, vocab_size=270)
    assert len(tokenizer.encode(text).tokens) > len(pieces_of(tokenizer, text))
    got = pieces_of(tokenizer, text)
    assert "".join(got) == text.replace(" ", "")
    assert {word for word in text.split() if word.isalpha()} <= set(got)


def test_letters_of_several_bytes_are_one_word():
    tokenizer = bpe_tokenizer(TEXTS, vocab_size=270)
    assert pieces_of(tokenizer, "a żółw, naïve") == ["a", "żółw", ",", "naïve"]
    assert pieces_of(tokenizer, "a  film ") == ["a", "film"]  # blanks beside words are of none


def test_what_goes_on_with_a_word():
    tokenizer = wordpiece()
    goes_on = Vocabulary.of(tokenizer).continues_previous(tokenizer)
    names = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    assert {n for n, c in zip(names, goes_on, strict=True) if c} == {n for n in names if n.startswith("##")}
    tokenizer = bpe_tokenizer(TEXTS, vocab_size=280)
    goes_on = Vocabulary.of(tokenizer).continues_previous(tokenizer)
    known = tokenizer.get_vocab()
    assert goes_on[known["u"]]
    assert not goes_on[known["Ġ"]]
    assert not goes_on[known["."]]
    assert not goes_on[:5].any()


def test_blanks_before_a_piece_are_no_part_of_its_word():
    assert trim_offsets("a  film ", [(0, 1), (1, 7), (7, 8), (0, 0)]) == [(0, 1), (3, 7), (8, 8), (0, 0)]


def test_an_accent_of_its_own_parts_no_word():
    text = unicodedata.normalize("NFD", "tiếng Việt đẹp, été")
    tokenizer = word_tokenizer([unicodedata.normalize("NFC", text)], min_count=1)
    wanted = [unicodedata.normalize("NFD", word) for word in ("tiếng", "Việt", "đẹp", ",", "été")]
    assert words_in(tokenizer, text, add_special_tokens=False)[0] == wanted
    vocab = {"[UNK]": 0, "tie": 1, "##ng": 2, "hay": 3}
    plain = Tokenizer(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    plain.normalizer, plain.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words = unicodedata.normalize("NFD", "tiếng hay")
    encoding = plain.encode(words)
    assert encoding.tokens == ["tie", "##ng", "hay"]
    assert word_ids(encoding, range(3), words).tolist() == [0, 0, 1]


@pytest.mark.parametrize("text", ["été a", "tiếng Việt", "नमस्ते दुनिया"])
def test_bytes_of_an_accent_of_its_own_part_no_word(text):
    found, _ = words_in(roberta_like("<unk>"), unicodedata.normalize("NFD", text))
    assert [unicodedata.normalize("NFC", word) for word in found] == text.split()


def test_line_breaks_and_tabs_are_no_words():
    found, numbers = words_in(roberta_like("<unk>"), "a film\n\nwas\tdull\u00a0!")
    assert found == ["a", "film", "was", "dull", "!"]
    assert set(numbers.tolist()) == {-1, 0, 1, 2, 3, 4}
