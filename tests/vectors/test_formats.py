"""word2vec's file formats both ways, with gensim as the other side."""

import os
import struct

import numpy as np
import pytest

import glassformer as gf
from glassformer.checkpoints import word2vec
from glassformer.checkpoints.word2vec import read_word2vec_format, write_word2vec_format
from glassformer.errors import CheckpointError, GlassformerError

WORDS = ("paris", "nhà_hàng", "don't", "œuvre", "北京", "1")
VECTORS = np.random.default_rng(5).normal(0, 1, (6, 7)).astype(np.float32)


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.bin"])
def test_what_is_written_is_read(name, tmp_path):
    path = write_word2vec_format(tmp_path / name, WORDS, VECTORS)
    for binary in (None, name.endswith("bin")):
        words, vectors = read_word2vec_format(path, binary)
        assert words == WORDS
        assert np.array_equal(vectors, VECTORS)
    assert gf.Word2Vec.load(path).most_similar("paris", 2)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_reads_ours_and_we_read_gensims(binary, tmp_path):
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    ours = write_word2vec_format(tmp_path / "ours", WORDS, VECTORS, binary)
    theirs = keyed.load_word2vec_format(str(ours), binary=binary)
    assert tuple(theirs.index_to_key) == WORDS
    assert np.array_equal(theirs.vectors, VECTORS)
    theirs.save_word2vec_format(str(tmp_path / "theirs"), binary=binary)
    words, vectors = read_word2vec_format(tmp_path / "theirs")
    assert words == WORDS
    assert np.array_equal(vectors, VECTORS)


TEXT = b"2 3\nking 1 2 3\nqueen 4 5 6\n"


def tenths(*words: bytes) -> bytes:
    """A binary file of two words of one number, and these rows."""
    return b"2 1\n" + b"".join(word + struct.pack("<f", 0.1) + b"\n" for word in words)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: is not in word2vec's format"),
        (b"[PAD]\n[UNK]\nking\n", "line 1: is not in word2vec's format"),
        (b"9" * 5_000 + b" 3\n", "line 1: is not in word2vec's format"),
        (b"two 3\n" + TEXT[4:], r"line 1: is .*\. Expected: a first line of two numbers"),
        (TEXT[:-12], "1 words, but the first line gives 2"),
        (TEXT + b"duke 1 2 3\n", "3 words, but the first line gives 2"),
        (TEXT + b"duke 1 2\n", "line 4: 2 numbers after 'duke', expected 3 numbers. Correct the line"),
        (
            TEXT[:-3].replace(b"2 3", b"9 3"),
            "line 3: 2 numbers after 'queen'.*truncated here: download it ag",
        ),
        (TEXT.replace(b"6", b"\xff"), "line 3: not UTF-8"),
        (TEXT.replace(b"king 1", b"king\t1"), "line 2: 2 numbers after .*one space before each number"),
        (TEXT.replace(b" 6", b" x"), "line 3: a value that is not a number after 'queen', expected 3 num"),
        (TEXT.replace(b" 6", b""), "line 3: 2 numbers after 'queen', expected 3 numbers"),
        (TEXT.replace(b" 6", b" nan"), "line 3: the vector of 'queen' contains NaN or infinity"),
        (TEXT.replace(b"queen", b""), "line 3: there is no word before the numbers"),
        (b"1 2\n" + b"w" * 43 + b" 1\n", f"1 numbers after '{'w' * 40}', expected 2"),
        (b"2 3\nking " + struct.pack("<3f", 1, 2, 3) + b"\nqueen " + b"\0" * 5, "ends in word 2 of 2"),
        (tenths(b"a ", b"b ", b"c "), "continues after the 2 words of 1 numbers"),
        (b"999999999 1000\n" + b"a " + b"\0" * 50, "is too short for 999,999,999 words"),
        (b"1 1\n\xff\xfe " + b"\0" * 9, "word 1 is not UTF-8"),
    ],
)
def test_files_of_another_format(content, message, tmp_path):
    path = tmp_path / "vectors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        gf.Word2Vec.load(path)


def test_what_is_no_file_is_neither_read_nor_replaced(tmp_path):
    with pytest.raises(CheckpointError, match="no such file"):
        gf.Word2Vec.load(tmp_path / "nothing.txt")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(CheckpointError, match="is not a file"):
        write_word2vec_format(pipe, ["a"], np.ones((1, 3)))
    assert pipe.is_fifo()


@pytest.mark.parametrize("binary", [True, False])
def test_numbers_of_any_format_are_written_as_fp32(binary, tmp_path):
    wide = VECTORS.astype(">f8") + 1e-9
    path = write_word2vec_format(tmp_path / "deep" / "er" / "v", WORDS, wide[:, ::-1], binary)
    words, vectors = read_word2vec_format(path)
    assert words == WORDS
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors, wide[:, ::-1].astype(np.float32))
    if binary:
        first = b"6 7\nparis " + np.ascontiguousarray(wide[0, ::-1], "<f4").tobytes() + b"\nnh"
        assert path.read_bytes().startswith(first)


@pytest.mark.parametrize("word", ["", "a b", "a\u00a0b", "a\n", "\ud800b"])
def test_words_that_cannot_be_written_are_refused(word, tmp_path):
    with pytest.raises(CheckpointError, match="cannot be in this format"):
        write_word2vec_format(tmp_path / "v.txt", ["a", word], VECTORS[:2])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "binary"), [("v.bin", True), ("v.txt", False), ("v", False), ("v.bin.txt", False)]
)
def test_the_name_says_which_of_both(name, binary, tmp_path):
    path = write_word2vec_format(tmp_path / name, WORDS, VECTORS)
    assert path.read_bytes() == write_word2vec_format(tmp_path / "same", WORDS, VECTORS, binary).read_bytes()


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_binary_files_with_and_without_line_ends(end, tmp_path):
    path = tmp_path / "v"
    rows = [word.encode() + b" " + row.tobytes() + end for word, row in zip(WORDS, VECTORS, strict=True)]
    path.write_bytes(b"6 7\n" + b"".join(rows))
    words, vectors = read_word2vec_format(path, binary=True)
    assert words == WORDS
    assert np.array_equal(vectors, VECTORS)
    path.write_bytes(b"6 7\n" + b"".join(rows)[:-1])
    if not end:
        with pytest.raises(CheckpointError, match=r"ends in word 6 of 6|is too short"):
            read_word2vec_format(path, binary=True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0 3", "0 words of 3 numbers"),
        ("2 0", "2 words of 0 numbers"),
        ("2 100001", "2 words of 100001 numbers"),
        ("1 100000", "numbers after 'a'"),
        *((line, "is not in word2vec's format") for line in ("1 2 3", "5")),
    ],
)
def test_first_lines_at_their_bounds(line, said, tmp_path):
    (tmp_path / "v").write_text(f"{line}\na 1\n")
    with pytest.raises(CheckpointError, match=said):
        read_word2vec_format(tmp_path / "v", binary=False)


BY_HAND = "Remove the line, and reduce the number of words in the first line by one"


@pytest.mark.parametrize(("binary", "first", "fix"), [(True, 1, "Download it again"), (False, 2, BY_HAND)])
def test_a_word_twice_is_mended_by_hand_in_text_alone(binary, first, fix, tmp_path):
    path = write_word2vec_format(tmp_path / "v", ("a", "b", "a"), VECTORS[:3], binary)
    with pytest.raises(CheckpointError, match=f"the word 'a' occurs twice, first at {first}") as caught:
        read_word2vec_format(path, binary)
    assert caught.value.fix == fix


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file, link = tmp_path / "file.txt", tmp_path / "link.txt"
    file.write_text("old", encoding="utf-8")
    link.symlink_to(file)
    assert write_word2vec_format(link, ["a"], np.ones((1, 3))) == link
    assert link.is_symlink()
    assert read_word2vec_format(file)[0] == ("a",)
    # a write that fails leaves the old file and nothing else
    path = write_word2vec_format(tmp_path / "own" / "v.txt", WORDS, VECTORS)
    whole = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(word2vec.os, "replace", fail)
    with pytest.raises(GlassformerError, match=r"v.txt: could not be written: No space left"):
        write_word2vec_format(path, WORDS[:2], VECTORS[:2])
    assert path.read_bytes() == whole
    assert [file.name for file in path.parent.iterdir()] == ["v.txt"]
