"""Masks: 15 % of the tokens, 80/10/10 within sampling error, whole words, pairs of segments, batches, places."""

import math

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models

from glassformer.data.batching import BatchSettings
from glassformer.data.masking import MaskedStream, MaskSettings, chunk_texts, clean_around_mask, mask_tokens
from glassformer.data.text import clean_text, word_tokenizer, wordpiece_tokenizer
from glassformer.errors import DataError

TEXTS = [
    f"The {a} {b} was {c}. It ran {d} times over the unbelievable hill! Then it slept for {d} hours."
    for a in ("small", "large", "unhappy")
    for b in ("dog", "wolf", "elephant")
    for c in ("red", "greenish")
    for d in ("two", "seventeen", "thirty")
]


def make_stream(table, tokenizer, max_length, settings, seed=0, next_sentence=True) -> MaskedStream:
    known = {"accumulate": 1, "seed": seed, "device": torch.device("cpu"), "next_sentence": next_sentence}
    masks = MaskSettings.of(tokenizer)
    return MaskedStream.of(table, tokenizer, masks=masks, max_length=max_length, settings=settings, **known)


@pytest.fixture(scope="module")
def tokenizer():
    return wordpiece_tokenizer(TEXTS, vocab_size=101, min_count=2)


def within(count: int, n: int, p: float) -> bool:
    """Less than four standard deviations from what is expected."""
    return abs(count - n * p) < 4 * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_counts_are_15_percent_and_80_10_10_within_sampling_error(seed):
    size, n = 1009, 200_003
    special = np.zeros(size, bool)
    special[:5] = True
    masks = MaskSettings(4, special, np.zeros(size, bool))
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, size, n)
    ids[::7] = rng.integers(0, 5, len(ids[::7]))
    eligible = int((ids >= 5).sum())
    read, rows = mask_tokens(ids, masks, rng)
    assert within(len(rows), eligible, 0.15)
    assert not special[ids[rows]].any()
    assert (np.delete(read, rows) == np.delete(ids, rows)).all()
    became, stood = read[rows], ids[rows]
    assert within(int((became == 4).sum()), len(rows), 0.8)
    drawn = 0.1 * (1 - 1 / (size - 5))  # a random token is now and then the one that stood there
    assert within(int(((became != 4) & (became != stood)).sum()), len(rows), drawn)
    assert within(int((became == stood).sum()), len(rows), 0.1 + 0.1 / (size - 5))
    assert not special[became[became != 4]].any()


def test_whole_words_are_masked_together(tokenizer):
    masks = MaskSettings.of(tokenizer, 0.15, whole_words=True)
    table = chunk_texts(tokenizer, TEXTS * 40, 61)
    ids = table.ids.astype(np.int64)
    _, rows = mask_tokens(ids, masks, np.random.default_rng(5))
    chosen = np.zeros(len(ids), bool)
    chosen[rows] = True
    pieces = masks.continues_previous[ids]
    assert pieces.sum() > 1000
    starts = np.repeat(False, len(ids))
    starts[table.starts[:-1]] = True  # a chunk may begin inside a word
    inside = pieces & ~starts
    assert (chosen[inside] == chosen[np.flatnonzero(inside) - 1]).all()
    words = int((~inside).sum())
    assert abs(int(chosen[~inside].sum()) - 0.15 * words) < 4 * math.sqrt(0.15 * 0.85 * words)


def test_something_is_always_asked_for_and_never_a_special_token(tokenizer):
    masks = MaskSettings.of(tokenizer)
    for seed in range(50):
        _, rows = mask_tokens(np.array([2, 17, 3]), masks, np.random.default_rng(seed))
        assert rows.tolist() == [1]
    assert not len(mask_tokens(np.array([2, 3]), masks, np.random.default_rng(0))[1])


def test_long_texts_become_several_chunks_and_lose_little(tokenizer):
    whole = chunk_texts(tokenizer, TEXTS, 1000)
    cut = chunk_texts(tokenizer, TEXTS, 11)
    assert len(whole) == len(TEXTS)
    assert cut.lengths.max() == 11
    assert (cut.lengths[cut.lengths < 8] >= 1).all()
    assert len(cut.ids) > 0.75 * len(whole.ids)
    assert cut[0].tolist() == whole[0][:11].tolist()
    with pytest.raises(DataError, match="no text has a token"):
        chunk_texts(tokenizer, [" "], 11)


def stream_of(tokenizer, next_sentence=False, seed=3, tokens=301):
    table = chunk_texts(tokenizer, TEXTS, 29)
    return make_stream(table, tokenizer, 32, BatchSettings(0, tokens), seed, next_sentence)


def batches(stream, epochs: int):
    """What the stream packs, with what it packs it of."""
    for epoch in range(epochs):
        for step in stream.steps(epoch):
            yield from ((micro, stream.pack(micro)) for micro in step)


def unmasked(batch) -> torch.Tensor:
    wanted = batch.ids.clone()
    wanted[batch.rows] = batch.labels
    return wanted


@pytest.mark.parametrize("pairs", [False, True])
def test_batches_are_framed_and_repeat_for_the_same_epoch_only(tokenizer, pairs):
    stream = stream_of(tokenizer, pairs)
    steps = stream.steps(0)
    seen = np.sort(np.concatenate([index for step in steps for _, index in step]))
    assert seen.tolist() == list(range(len(stream.table)))
    one, again = stream.pack(steps[0][0]), stream.pack(steps[0][0])
    assert torch.equal(one.ids, again.ids)
    assert torch.equal(one.rows, again.rows)
    other = stream.pack((1, steps[0][0][1]))
    assert not torch.equal(one.rows, other.rows)
    cls, sep = stream.frame
    for ids in one.packing.split(one.ids):
        assert ids[0] == cls
        assert ids[-1] == sep
        assert (ids == sep).sum() == (2 if pairs else 1)
    assert (one.segments is not None) == pairs
    masked = sum(len(batch.rows) for _, batch in batches(stream, 1))
    assert abs(masked - stream.examples) < 5 * math.sqrt(stream.examples)
    if not pairs:
        for i, text in zip(one.index, one.packing.split(unmasked(one)), strict=True):
            assert text[1:-1].tolist() == stream.table[int(i)].tolist()


def test_half_of_the_second_segments_follow_the_first(tokenizer):
    stream = stream_of(tokenizer, True)
    strangers, follows = [], 0
    for micro, batch in batches(stream, 20):
        strangers += batch.is_random_next.tolist()
        split = batch.packing.split(unmasked(batch)), batch.packing.split(batch.segments)
        for i, ids, segments, strange in zip(micro[1], *split, batch.is_random_next, strict=True):
            assert len(ids) <= 32
            first, second = ids[segments == 0][1:-1], ids[segments == 1][:-1]
            assert len(first)
            assert len(second)
            if not strange:
                follows += 1
                assert [*first.tolist(), *second.tolist()] == stream.table[int(i)].tolist()
    assert within(sum(strangers), len(strangers), 0.5)
    assert follows > 100


def test_lengths_do_not_tell_strangers_from_what_follows():
    """Reviews of many lengths, chunks of at most 40: a pair's length is that of a chunk either way."""
    rng = np.random.default_rng(7)
    words = ["the", "dog", "ran", "over", "hill", "red"]

    def sentence() -> str:
        return " ".join(rng.choice(words, int(rng.integers(3, 9)))) + " ."

    texts = [" ".join(sentence() for _ in range(rng.integers(1, 23))) for _ in range(300)]
    own = wordpiece_tokenizer(texts, vocab_size=101, min_count=1)
    table = chunk_texts(own, texts, 37)
    stream = make_stream(table, own, 40, BatchSettings(0, 400))
    lengths: dict[int, list[int]] = {0: [], 1: []}
    for _, batch in batches(stream, 3):
        for length, strange in zip(batch.packing.lengths, batch.is_random_next.tolist(), strict=True):
            lengths[strange].append(length)
    whole = {kind: np.mean(np.array(found) == 40) for kind, found in lengths.items()}
    assert min(map(len, lengths.values())) > 300
    assert whole[0] > 0.4
    assert abs(whole[0] - whole[1]) < 0.2  # where the other chunk is too short the pair is shorter


def test_a_vocabulary_without_mask_is_refused(tokenizer):
    with pytest.raises(DataError, match=r"lacks \[MASK\]"):
        MaskSettings.of(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))


# --- where a mask stands in a text that is cleaned --------------------------------------------------


@pytest.mark.parametrize(
    ("text", "clean", "wanted"),
    [
        ("the film was [MASK].", "none", "the film was <mask>."),
        ("[MASK]and[MASK]", "none", "<mask>and<mask>"),
        ("a [MASK]<br />great film", "html", "a <mask> great film"),
        ("a <b>[MASK]</b> great", "html", "a <mask> great"),
        ("[MASK]&nbsp;great", "html", "<mask> great"),
        ("a [MASK], great film", "words", "a <mask> great film"),
        ("a [MASK], great film!", "trim", "a <mask> great film"),
        ("phim rất_[MASK]", "syllables", "phim rất <mask>"),
    ],
)
def test_a_mask_is_cleaned_around_as_a_word_is(text, clean, wanted):
    assert clean_around_mask(text, "<mask>", clean) == wanted
    assert clean_text(text.replace("[MASK]", "fine"), clean) == wanted.replace("<mask>", "fine")


def test_text_in_the_letters_that_stand_in_is_kept():
    text = "".join(chr(0x10380 + i) for i in range(5))
    assert clean_around_mask(f"{text} [MASK]", "<mask>", "words") == f"{text} <mask>"


@pytest.mark.parametrize(("length", "kept"), [(7, 98), (8, 96), (12, 96), (23, 100)])
def test_pieces_as_long_as_may_be_are_kept_and_short_remainders_left_out(length, kept):
    text = " ".join(f"w{i}" for i in range(100))
    table = chunk_texts(word_tokenizer([text], min_count=1), [text], length)
    assert len(table.ids) == kept
