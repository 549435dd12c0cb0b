"""Tokens beside BERT's list of pieces: names with ids, and what the settings say of each."""

import json
from pathlib import Path

import pytest

from glassformer.data.tokenizer_file import count_ids, load_tokenizer
from glassformer.errors import CheckpointError


def token(content: str, **flags: object) -> dict:
    return dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False) | {
        "content": content,
        **flags,
    }


def put_words(folder: Path, more: dict | None = None, **settings) -> int:
    """A lone vocab.txt, as BERT's; the number of its pieces."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dull", "film", "##s", "zug"]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if more is not None:
        (folder / "added_tokens.json").write_text(json.dumps(more))
    return len(pieces)


STRIPS = token("<r>", rstrip=True, lstrip=True, special=True)
TRIED = (
    "a <New> film",
    "dull<New><r> films",
    "a <r> film <Two>",
    "a <R> [mask] <new>",
    "<new>s",
    "a [MASK] ",
)


@pytest.mark.parametrize(
    "settings",
    [
        {"more": {"<new>": 10, "<two>": 11}},
        {
            "added_tokens_decoder": {
                "10": token("<New>", special=True),
                "11": STRIPS,
                "4": token("[MASK]", special=True),
            }
        },
        {
            "added_tokens_decoder": {
                "11": STRIPS,
                "10": token("<new>", normalized=True),
                "0": token("[PAD]", special=True),
            }
        },
        {"added_tokens_decoder": {"10": token("<new>", single_word=True)}, "more": {"<gone>": 10}},
        {"do_lower_case": False, "more": {"<New>": 10}},
    ],
)
def test_added_tokens_beside_a_lone_list_of_words_as_transformers(settings, tmp_path):
    rows = put_words(tmp_path, **settings)
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
        ({"x": token("<new>")}, "added_tokens_decoder: 'x' is not an id with its token"),
        ({"-1": token("<new>")}, "added_tokens_decoder: '-1' is not an id with its token"),
        ({"9" * 40: token("<new>")}, "added_tokens_decoder: '9+' is not an id"),
        ({"10": "<new>"}, "added_tokens_decoder: '10' is not an id with its token"),
        ({"10": token("")}, "added_tokens_decoder: '10' is not an id with its token"),
        ({"10": token("<new>", lstrip=1)}, "'lstrip' of '<new>' is not a truth value"),
        ({"10": token("<new>"), "11": token("<new>")}, "added_tokens_decoder has a token twice"),
        ({"12": token("<new>")}, "the id of '<new>' is 12 and not 10. Number new tokens from 10 on"),
        ({"3": token("[MASK]")}, r"the id of '\[MASK\]' is 3, in vocab.txt 4"),
    ],
)
def test_wrong_tokens_in_the_settings(said, error, tmp_path):
    put_words(tmp_path, added_tokens_decoder=said)
    with pytest.raises(CheckpointError, match=f"tokenizer_config.json: {error}"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "not an object of tokens with their ids"),
        ('{"<new>": true}', "'<new>' is not a token with its id"),
        ('{"<new>": 7}', "the id of '<new>' is 7 and not 10. Number new tokens from 10 on"),
        ('{"a": 3}', "the id of 'a' is 3, in vocab.txt 5"),
    ],
)
def test_wrong_added_tokens(content, said, tmp_path):
    put_words(tmp_path)
    (tmp_path / "added_tokens.json").write_text(content)
    with pytest.raises(CheckpointError, match=f"added_tokens.json: {said}"):
        load_tokenizer(tmp_path)
