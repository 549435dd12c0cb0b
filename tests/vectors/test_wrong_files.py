"""Files that are nearly word vectors: one wrong line, no first line, packed, gensim's own. Each says what to do."""

import gzip
import re
import shlex
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from tests.commands import refused

import glassformer as gf
from glassformer.checkpoints.word2vec import read_word2vec_format, write_word2vec_format
from glassformer.errors import CheckpointError

WORDS = tuple(f"w{i}" for i in range(13))
VECTORS = np.random.default_rng(3).normal(0, 1, (13, 5)).astype(np.float32)


@pytest.fixture
def whole(tmp_path):
    """A text file that is as it should be."""
    return write_word2vec_format(tmp_path / "v.txt", WORDS, VECTORS)


def advice(path) -> str:
    """What is to be done, by the error that reading raises."""
    with pytest.raises(CheckpointError) as caught:
        gf.Word2Vec.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value.fix or ""


WRONG = [
    "w 1 2 3 4",
    "w 1 2 3 4 5 6",
    "w 1 2 x 4 5",
    "w",
    "",
    "w 1 2 \0 4 5",
    "w 1 2 3_0 4 5",
    "w 1 2 3 4 nan",
]


@pytest.mark.parametrize("row", [0, 6, 12])
@pytest.mark.parametrize("wrong", WRONG)
def test_one_wrong_line_is_named_wherever_it_stands(row, wrong, whole):
    lines = whole.read_text().splitlines()
    lines[1 + row] = wrong
    whole.write_text("\n".join(lines) + "\n")
    # an empty last line is not a word
    said = (
        "12 words, but the first line gives 13" if row == 12 and not wrong else rf"v\.txt, line {row + 2}: "
    )
    with pytest.raises(CheckpointError, match=said):
        read_word2vec_format(whole)


def test_text_and_binary_are_not_taken_for_each_other(whole):
    with pytest.raises(CheckpointError, match="continues after the 13 words of 5 numbers"):
        read_word2vec_format(whole, binary=True)
    whole.write_text(whole.read_text().replace("13 5", "13 4"))
    with pytest.raises(CheckpointError, match="line 2: 5 numbers after 'w0', expected 4 numbers"):
        read_word2vec_format(whole)
    # a byte order mark is passed over
    whole.write_bytes(b"\xef\xbb\xbf" + whole.read_bytes().replace(b"13 4", b"13 5"))
    assert read_word2vec_format(whole)[0] == WORDS


@pytest.mark.parametrize("fill", [0.0, 1.0, -2.5])
def test_binary_files_of_plain_numbers_are_known(fill, tmp_path):
    vectors = np.full((2, 3), fill, np.float32)
    path = write_word2vec_format(tmp_path / "v.bin", ["a", "ü"], vectors)
    words, found = read_word2vec_format(path)
    assert words == ("a", "ü")
    assert np.array_equal(found, vectors)


@pytest.mark.parametrize("end", ["\n", "", "\n\n"])
def test_the_advice_for_a_file_of_gloves_is_right(end, whole, tmp_path):
    glove = tmp_path / "glove's 5d.txt"
    glove.write_text(whole.read_text().split("\n", 1)[1].rstrip() + end)
    found = advice(glove)
    assert found.startswith("GloVe files lack the first line; add '13 5': ")
    if shell := shutil.which("sh"):
        subprocess.run([shell, "-c", found.split("'13 5': ")[1]], check=True)
        words, vectors = read_word2vec_format(tmp_path / "glove's 5d.word2vec.txt")
        assert words == WORDS
        assert np.array_equal(vectors, VECTORS)


def test_prose_is_not_taken_for_gloves_and_an_archive_is_named_as_one(whole, tmp_path):
    (tmp_path / "prose.txt").write_text("the king of the hill\nand the queen\n")
    assert "GloVe" not in advice(tmp_path / "prose.txt")
    with zipfile.ZipFile(tmp_path / "v.zip", "w") as archive:
        archive.write(whole, "v.txt")
    assert advice(tmp_path / "v.zip").startswith("Unpack it: unzip ")


@pytest.mark.parametrize("name", ["v.txt.gz", "packed"])
def test_the_advice_for_a_packed_file_is_right(name, whole, tmp_path):
    packed = tmp_path / name
    packed.write_bytes(gzip.compress(whole.read_bytes()))
    whole.unlink()
    found = advice(packed)
    assert found.startswith("Unpack it: gunzip -c ")
    if (shell := shutil.which("sh")) and shutil.which("gunzip"):
        subprocess.run([shell, "-c", found.split(": ", 1)[1]], check=True)
        out = tmp_path / ("v.txt" if name == "v.txt.gz" else "packed.unpacked")
        assert read_word2vec_format(out)[0] == WORDS


@pytest.mark.parametrize("kind", ["vectors", "model"])
def test_the_advice_for_gensims_own_file_is_right(kind, tmp_path):
    models = pytest.importorskip("gensim.models")
    sentences = [list(WORDS), list(WORDS[::-1])]
    model = models.Word2Vec(sentences, vector_size=5, min_count=1, epochs=1, workers=1)
    path = tmp_path / "gensim's.kv"
    (model if kind == "model" else model.wv).save(str(path))
    found = advice(path)
    command = shlex.split(found.split("with gensim: ")[1])
    assert command[:2] == ["python", "-c"]
    subprocess.run([sys.executable, *command[1:]], check=True, capture_output=True)
    words, vectors = read_word2vec_format(tmp_path / "gensim's.word2vec.txt")
    assert set(words) == set(WORDS)
    assert np.array_equal(vectors, np.stack([model.wv[word] for word in words]))


def test_the_command_says_it_in_one_line(whole, tmp_path):
    packed = tmp_path / "v.gz"
    packed.write_bytes(gzip.compress(whole.read_bytes()))
    said = r"error: .*v\.gz: is compressed with gzip\. Unpack it: gunzip -c .* \[checkpoint\]\n"
    assert re.fullmatch(said, refused("vectors", packed, "w1"))
