"""Pairs of texts from tables, plain files and by name; their doctor; byte-level BPE; batches for teacher forcing."""

import unicodedata

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from glassformer.data.batching import BatchSettings, PairStream, pack_pairs
from glassformer.data.dataset import Dataset
from glassformer.data.kinds import detect_kind
from glassformer.data.pair_doctor import examine_pairs
from glassformer.data.pairs import PairSplit, check_translations, columns_of_other_data, load_pairs
from glassformer.data.text import bpe_tokenizer, detokenize, encode, ignore_special_tokens
from glassformer.errors import DataError

from .conftest import by_code

PAIRS = [
    ("A man walks.", "Ein Mann geht."),
    ("Two dogs, one cat!", "Zwei Hunde, eine Katze!"),
    ("Hi", "Hallo"),
]


@pytest.fixture
def table(put):
    """``table("x.csv", rows, header)``: the path of a table of pairs."""

    def write(name, rows=PAIRS, header="source,target"):
        return put(name, [header, *(",".join(f'"{cell}"' for cell in row) for row in rows)])

    return write


@pytest.fixture
def plain(put, tmp_path):
    """``plain("c", en="one\\n", de="eins\\n")``: what the names of plain files share."""

    def write(stem, **sides):
        for end, content in sides.items():
            put(f"{stem}.{end}", content)
        return tmp_path / stem

    return write


def test_a_table_of_two_columns_under_any_names(table):
    for header in ("source,target", "en,de", "a,b"):
        data = load_pairs(table("x.csv", header=header))
        assert data.columns == tuple(header.split(","))
        assert list(zip(data.splits["train"].source, data.splits["train"].target, strict=True)) == PAIRS
    swapped = load_pairs(table("x.csv", header="a,b"), source_column="b", target_column="a")
    assert swapped.splits["train"].source[0] == "Ein Mann geht."
    assert load_pairs(table("x.csv", header="a,b"), source_column="b").columns == ("b", "a")


def test_the_only_two_columns_that_hold_texts(table):
    rows = [("1", "A man walks.", "Ein Mann geht.", ""), ("2.5", "Hi", "Hallo", "")]
    path = table("x.csv", rows, "id,a,b,note")
    assert load_pairs(path).columns == ("a", "b")
    assert load_pairs(path, target_column="a").columns == ("b", "a")
    assert load_pairs(table("y.csv", PAIRS, "target,a")).columns == ("a", "target")


def test_names_that_other_data_lack_give_way(table, plain, tmp_path):
    path = table("x.csv", header="a,b")
    assert columns_of_other_data(path, ("en", "de")) == ("a", "b")
    assert columns_of_other_data(path, ("b", "de")) == ("b", "a")
    with pytest.raises(DataError, match="no column 'de'"):
        columns_of_other_data(path, ("en", "de"), ["de"])
    for split in ("train", "test"):
        table(f"{split}.csv", header="source,target")
    assert columns_of_other_data(tmp_path, ("en", "de")) == ("source", "target")
    assert columns_of_other_data(plain("c", en="one\n"), ("en", "de")) == ("en", "de")  # endings, not columns
    with pytest.raises(DataError, match="two columns are expected"):
        columns_of_other_data(table("z.csv", [("a", "b", "c")], "x,y,z"), ("en", "de"))


def test_a_folder_with_a_table_a_split_and_plain_files(table, plain, tmp_path):
    for split in ("train", "val", "test"):
        table(f"{split}.csv")
    assert list(load_pairs(tmp_path).splits) == ["train", "validation", "test"]
    found = plain("plain/train", en="one\ntwo\n", de="eins\nzwei\n")
    assert load_pairs(found.parent).splits["train"].target == ["eins", "zwei"]
    assert load_pairs(found).columns == ("en", "de")
    for stem in ("train", "val", "dev"):
        plain(f"twice/{stem}", en=f"{stem} en\n" * 3, de=f"{stem} de\n" * 3)
    with pytest.raises(DataError, match="two files for validation: dev and val"):
        load_pairs(tmp_path / "twice")


def test_limit_draws_pairs_that_belong_together(table):
    split = load_pairs(table("x.csv"), limit=2).splits["train"]
    assert len(split) == 2
    assert set(zip(split.source, split.target, strict=True)) <= set(PAIRS)


@pytest.mark.parametrize(
    ("rows", "header", "options", "said"),
    [
        ([("a", "b"), ("c", "")], "source,target", {}, r"row 3: column 'target': the text is empty"),
        ([("a", "b", "c")], "x,y,z", {}, "two columns are expected.*source_column"),
        (
            [("a",)],
            "source",
            {},
            "the second text is missing: 'source' is the only column. Put text and translation",
        ),
        ([("a", "b")], "source,target", {"target_column": "targt"}, "'targt'. Did you mean 'target'"),
    ],
)
def test_bad_tables_are_refused_with_their_place(table, rows, header, options, said):
    with pytest.raises(DataError, match=said):
        load_pairs(table("x.csv", rows, header), **options)


@pytest.mark.parametrize(
    "header", ["fr,en", "german,french", "de,en", "a,b", "target,source", "Translation,text"]
)
def test_the_first_of_two_columns_is_translated_unless_their_names_say_otherwise(table, header):
    columns = tuple(header.split(","))
    swapped = columns[0].lower() in ("target", "translation")
    found = load_pairs(table("x.csv", [("one", "two")], header)).columns
    assert found == (columns[::-1] if swapped else columns)


def test_plain_files_that_do_not_match_are_refused(plain):
    for sides, said in (
        ({}, r"the second file of the pair, x\.de, is missing"),
        ({"de": "eins\n"}, r"2 lines, but x\.de has 1"),
        ({"de": "eins\n\n"}, "row 2: the text is empty"),
    ):
        with pytest.raises(DataError, match=said):
            load_pairs(plain("x", en="one\ntwo\n", **sides))
    with pytest.raises(DataError, match="Did you mean 'multi30k'"):
        load_pairs("multi30")


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("en", r"corpus.en and corpus.de, give the common stem \S*corpus;"),
        ("de", r"corpus.en and corpus.de, give the common stem \S*corpus;"),
        ("fr", r"corpus.fr and corpus.de, .* stem \S*corpus with source_column=fr and target_column=de;"),
    ],
)
def test_one_side_of_a_pair_of_files_says_how_both_are_named(plain, end, said):
    corpus = plain("corpus", en="one\n", de="one\n", fr="one\n")
    with pytest.raises(DataError, match=rf"corpus.{end}: is not a table of pairs. .*{said}"):
        load_pairs(corpus.with_suffix(f".{end}"))


def test_lists_are_checked_on_both_sides():
    assert check_translations(["a"], ["b"]) == (["a"], ["b"])
    with pytest.raises(DataError, match=r"target\[1\]: the text is missing"):
        check_translations(["a", "b"], ["c", None])
    with pytest.raises(DataError, match="2 source texts but 1 target texts"):
        check_translations(["a", "b"], ["c"])
    with pytest.raises(DataError, match="the target is missing"):
        check_translations(["a"], None)


def test_multi30k_is_there(data_root):
    data = load_pairs("multi30k", source_column="en", target_column="fr", limit=7)
    assert [len(data.splits[s]) for s in ("train", "validation", "test")] == [7, 7, 7]
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
    both = batch.packing.split(batch.target), batch.packing.split(batch.labels)
    for i, heard, said in zip([2, 0], *both, strict=True):
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


# --- the doctor of pairs ------------------------------------------------------------------------------


def good(n, of="dog"):
    left = [f"the {of} number {i} sleeps in the old house" for i in range(n)]
    right = [f"der {of} Nummer {i} schläft im alten Haus" for i in range(n)]
    return left, right


def report(**splits):
    parts = {name: PairSplit(*sides, name) for name, sides in splits.items()}
    return examine_pairs(Dataset("made up", parts))


def test_healthy_pairs_have_no_warning():
    out = report(train=good(53), test=good(11, "cat"))
    assert by_code(out, "warning", "note") == {}
    assert by_code(out).keys() == {"empty", "duplicates", "length-ratio", "leaks"}
    assert out.figures["splits"]["train"]["pairs"] == out.figures["splits"]["train"]["distinct"] == 53


def test_every_fault_of_pairs_is_found():
    left, right = good(53)
    right[7] = ""  # an empty side
    left[11], right[11] = left[10], right[10]  # a repeat
    right[13] = left[13].upper()  # not translated
    right[17] = "ja"  # far too short
    test = [left[3], "the cat"], ["nein", "die Katze"]
    found = by_code(report(train=(left, right), test=test), "warning")
    assert [code for code, f in found.items() if not f.fix] == []
    wanted = dict.fromkeys(("empty", "duplicates", "untranslated", "leaks", "length-ratio"), 1)
    assert wanted.items() <= {code: f.count for code, f in found.items()}.items()


def test_empty_sides_are_kept_to_be_looked_at_only_where_asked(table, plain):
    path = table("p.csv", [("a dog", "ein Hund"), ("a cat", " "), ("a cow", "eine Kuh")], "en,de")
    with pytest.raises(DataError, match="row 3: column 'de': the text is empty"):
        load_pairs(path)
    kept = load_pairs(path, keep_empty=True)
    assert kept.splits["train"].target == ["ein Hund", "", "eine Kuh"]
    assert by_code(examine_pairs(kept))["empty"].examples == (f"{path}, row 3",)
    found = load_pairs(plain("c", en="one\n\n", de="eins\nzwei\n"), keep_empty=True)
    assert found.splits["train"].source == ["one", ""]


def test_what_a_data_set_holds_is_seen_in_it(put, table, plain, tmp_path):
    assert [detect_kind(name) for name in ("europe", "digits", "multi30k")] == ["texts", "images", "pairs"]
    rows = [("a dog sleeps", "ein Hund"), ("a cat sleeps", "eine Katze")]
    kinds = {"text,label": "texts", "source,target": "pairs", "image,label": "images", "body,target": "texts"}
    kinds["a,b"] = "pairs"
    assert {header: detect_kind(table("x.csv", rows, header)) for header in kinds} == kinds
    assert detect_kind(table("x.csv", [("a fine film", "pos")], "body,mood")) == "texts"
    for label in ("cat", "dog"):
        Image.new("RGB", (7, 5)).save(put(f"pictures/{label}/x.png", ""))
        put(f"texts/{label}/x.txt", "a text")
    assert (detect_kind(tmp_path / "pictures"), detect_kind(tmp_path / "texts")) == ("images", "texts")
    assert detect_kind(plain("c", en="one\n", de="eins\n")) == "pairs"
    assert detect_kind(tmp_path / "nowhere") == "texts"
