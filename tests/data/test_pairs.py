"""Pairs of texts from tables, plain files and by name; byte-level BPE; packed batches for teacher forcing."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glassformer.data.batching import BatchSettings, PairStream, pack_pairs
from glassformer.data.pairs import check_translations, columns_of_other_data, load_pairs
from glassformer.data.text import bpe_tokenizer, detokenize, encode, ignore_special_tokens
from glassformer.errors import DataError

PAIRS = [
    ("A man walks.", "Ein Mann geht."),
    ("Two dogs, one cat!", "Zwei Hunde, eine Katze!"),
    ("Hi", "Hallo"),
]


def table(path, rows=PAIRS, header="source,target"):
    quoted = [",".join(f'"{cell}"' for cell in row) for row in rows]
    path.write_text("\n".join([header, *quoted]) + "\n", encoding="utf-8")
    return path


def test_a_table_of_two_columns_under_any_names(tmp_path):
    for header in ("source,target", "en,de", "a,b"):
        data = load_pairs(table(tmp_path / "x.csv", header=header))
        assert data.columns == tuple(header.split(","))
        assert list(zip(data.splits["train"].source, data.splits["train"].target, strict=True)) == PAIRS
    swapped = load_pairs(tmp_path / "x.csv", source_column="b", target_column="a")
    assert swapped.splits["train"].source[0] == "Ein Mann geht."
    half = load_pairs(tmp_path / "x.csv", source_column="b")
    assert half.columns == ("b", "a")


def test_the_only_two_columns_that_hold_texts(tmp_path):
    rows = [("1", "A man walks.", "Ein Mann geht.", ""), ("2.5", "Hi", "Hallo", "")]
    path = table(tmp_path / "x.csv", rows, "id,a,b,note")
    assert load_pairs(path).columns == ("a", "b")
    assert load_pairs(path, target_column="a").columns == ("b", "a")
    assert load_pairs(table(tmp_path / "y.csv", PAIRS, "target,a")).columns == ("a", "target")


def test_names_that_other_data_lack_give_way(tmp_path):
    path = table(tmp_path / "x.csv", header="a,b")
    assert columns_of_other_data(path, ("en", "de")) == ("a", "b")
    assert columns_of_other_data(path, ("b", "de")) == ("b", "a")
    with pytest.raises(DataError, match="no column 'de'"):
        columns_of_other_data(path, ("en", "de"), ["de"])
    for split in ("train", "test"):
        table(tmp_path / f"{split}.csv", header="source,target")
    assert columns_of_other_data(tmp_path, ("en", "de")) == ("source", "target")
    (tmp_path / "c.en").write_text("one\n")
    assert columns_of_other_data(tmp_path / "c", ("en", "de")) == ("en", "de")  # endings, not columns
    with pytest.raises(DataError, match="two columns are expected"):
        columns_of_other_data(table(tmp_path / "z.csv", [("a", "b", "c")], "x,y,z"), ("en", "de"))


def test_a_folder_with_a_table_a_split_and_plain_files(tmp_path):
    for split in ("train", "val", "test"):
        table(tmp_path / f"{split}.csv")
    assert list(load_pairs(tmp_path).splits) == ["train", "validation", "test"]
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "train.en").write_text("one\ntwo\n")
    (plain / "train.de").write_text("eins\nzwei\n")
    assert load_pairs(plain).splits["train"].target == ["eins", "zwei"]
    assert load_pairs(plain / "train").columns == ("en", "de")


def test_limit_draws_pairs_that_belong_together(tmp_path):
    split = load_pairs(table(tmp_path / "x.csv"), limit=2).splits["train"]
    assert len(split) == 2
    assert set(zip(split.source, split.target, strict=True)) <= set(PAIRS)


@pytest.mark.parametrize(
    ("rows", "header", "said"),
    [
        ([("a", "b"), ("c", "")], "source,target", r"row 3: column 'target': the text is empty"),
        ([("a", "b", "c")], "x,y,z", "two columns are expected.*source_column"),
        (
            [("a",)],
            "source",
            "a side is missing: 'source' is the only column. Put text and translation into two",
        ),
        ([("a", "b")], "source,target", "no column 'targt'. Did you mean 'target'"),
    ],
)
def test_bad_tables_are_refused_with_their_place(tmp_path, rows, header, said):
    path = table(tmp_path / "x.csv", rows, header)
    options = {"target_column": "targt"} if "targt" in said else {}
    with pytest.raises(DataError, match=said):
        load_pairs(path, **options)


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("fr,en", ("fr", "en")),
        ("german,french", ("german", "french")),
        ("de,en", ("de", "en")),
        ("a,b", ("a", "b")),
        ("target,source", ("source", "target")),
        ("Translation,text", ("text", "Translation")),
    ],
)
def test_the_first_of_two_columns_is_translated_unless_their_names_say_otherwise(tmp_path, header, columns):
    split = load_pairs(table(tmp_path / "x.csv", [("one", "two")], header))
    assert split.columns == columns


def test_plain_files_that_do_not_match_are_refused(tmp_path):
    (tmp_path / "x.en").write_text("one\ntwo\n")
    with pytest.raises(DataError, match=r"the second file of the pair, x\.de, is missing"):
        load_pairs(tmp_path / "x")
    (tmp_path / "x.de").write_text("eins\n")
    with pytest.raises(DataError, match=r"2 lines, but x\.de has 1"):
        load_pairs(tmp_path / "x")
    (tmp_path / "x.de").write_text("eins\n\n")
    with pytest.raises(DataError, match="row 2: the text is empty"):
        load_pairs(tmp_path / "x")
    with pytest.raises(DataError, match="Did you mean 'multi30k'"):
        load_pairs("multi30")


def test_one_side_of_a_pair_of_files_says_how_both_are_named(tmp_path):
    for end in ("en", "de", "fr"):
        (tmp_path / f"corpus.{end}").write_text("one\n")
    for end, said in (
        ("en", r"corpus.en and corpus.de, give the common stem \S*corpus;"),
        ("de", r"corpus.en and corpus.de, give the common stem \S*corpus;"),
        ("fr", r"corpus.fr and corpus.de, .* stem \S*corpus with source_column=fr and target_column=de;"),
    ):
        with pytest.raises(DataError, match=rf"corpus.{end}: is not a table of pairs. .*{said}"):
            load_pairs(tmp_path / f"corpus.{end}")


def test_lists_are_checked_on_both_sides():
    assert check_translations(["a"], ["b"]) == (["a"], ["b"])
    with pytest.raises(DataError, match=r"target\[1\]: the text is missing"):
        check_translations(["a", "b"], ["c", None])
    with pytest.raises(DataError, match="2 source texts but 1 target texts"):
        check_translations(["a", "b"], ["c"])
    with pytest.raises(DataError, match="the target side is missing"):
        check_translations(["a"], None)


def test_multi30k_is_there(data_root):
    data = load_pairs("multi30k", source_column="en", target_column="fr", limit=7)
    assert {name: len(split) for name, split in data.splits.items()} == {
        "train": 7,
        "validation": 7,
        "test": 7,
    }
    whole = load_pairs("multi30k")
    assert whole.columns == ("en", "de")
    assert [len(whole.splits[s]) for s in ("train", "validation", "test")] == [29_000, 1_014, 1_000]
    assert whole.splits["train"].source[0] == "Two young, White males are outside near many bushes."


# --- byte-level BPE -------------------------------------------------------------------------------

BPE = ignore_special_tokens(bpe_tokenizer([text for pair in PAIRS for text in pair] * 3, vocab_size=307))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
@example("[MASK]")
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back(text):
    import unicodedata

    ids = encode(BPE, [text], max_length=1000)[0]
    assert detokenize(BPE, ids) == unicodedata.normalize("NFC", text).strip()


def test_the_vocabulary_is_the_same_every_time_and_has_room_for_bytes():
    texts = [text for pair in PAIRS for text in pair] * 3
    assert bpe_tokenizer(texts, vocab_size=307).to_str() == BPE.to_str()
    assert BPE.get_vocab_size() <= 307
    with pytest.raises(DataError, match="no room for 261"):
        bpe_tokenizer(texts, vocab_size=260)


# --- batches --------------------------------------------------------------------------------------


def tables():
    return (encode(BPE, [pair[i] for pair in PAIRS], max_length=50) for i in (0, 1))


def test_what_is_heard_and_what_is_said_are_one_token_apart():
    source, target = tables()
    batch = pack_pairs(source, target, np.array([2, 0]))
    for i, heard, said in zip(
        [2, 0], batch.packing.split(batch.target), batch.packing.split(batch.labels), strict=True
    ):
        assert heard.tolist() == target[i][:-1].tolist()
        assert said.tolist() == target[i][1:].tolist()
    assert batch.source_packing.lengths == tuple(source.lengths[[2, 0]].tolist())


def test_a_stream_counts_the_tokens_to_say_and_repeats_an_epoch():
    source, target = tables()
    stream = PairStream(source, target, BatchSettings(2, 0, 0), 1, 5, torch.device("cpu"))
    batches = [stream.pack(index) for step in stream.steps(0) for index in step]
    assert sum(len(b.labels) for b in batches) == stream.examples
    assert sorted(i for b in batches for i in b.index.tolist()) == [0, 1, 2]
    again = [stream.pack(index) for step in stream.steps(0) for index in step]
    assert all(torch.equal(a.target, b.target) for a, b in zip(batches, again, strict=True))


def test_two_files_for_one_split_of_plain_texts_are_refused(tmp_path):
    for stem in ("train", "val", "dev"):
        for side in ("en", "de"):
            (tmp_path / f"{stem}.{side}").write_text(f"{stem} {side}\n" * 3)
    with pytest.raises(DataError, match="two files for validation: dev and val"):
        load_pairs(tmp_path)
