"""Learning a WordPiece vocabulary that is the same on every run.

``tokenizers.trainers.WordPieceTrainer`` numbers the pieces that continue a word (``##a``) in the order
of a hash map and breaks ties by these numbers, so two runs over one corpus give two vocabularies.
Here each continuing letter is written as a private character of its own, which turns the task into
plain byte-pair encoding: its alphabet is sorted, and its ties are broken in a fixed way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from glassformer.data.vocabulary import PREFIX

MAX_ALPHABET = 1_000  # letters; a word with a rarer one is left out and becomes [UNK]
FIRST_PRIVATE = 0xF0000  # Unicode's plane for private use
FEED = 10_000  # copies of a word handed over at a time


def learn_pieces(words: Counter[str], size: int, min_count: int) -> list[str]:
    """At most ``size`` pieces: every letter, alone and continuing, then joined pairs by falling frequency.

    Args:
        words: how often each word occurs.
        min_count: a pair seen less often is not joined.
    """
    letters: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            letters[letter] += count
    ranked = sorted(letters, key=lambda letter: (-letters[letter], letter))
    alphabet = sorted(ranked[: min(MAX_ALPHABET, size // 2)])
    continuing = {letter: chr(FIRST_PRIVATE + i) for i, letter in enumerate(alphabet)}

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_count,
        initial_alphabet=[*alphabet, *continuing.values()],
        show_progress=False,
    )
    bpe.train_from_iterator(_feed(words, continuing), trainer)
    back = {ord(private): letter for letter, private in continuing.items()}
    pieces = sorted(bpe.get_vocab().items(), key=lambda item: item[1])
    return [(PREFIX if ord(piece[0]) in back else "") + piece.translate(back) for piece, _ in pieces]


def _feed(words: Counter[str], continuing: dict[str, str]) -> Iterator[str]:
    for word, count in words.items():
        if all(letter in continuing for letter in word):
            marked = word[0] + "".join(continuing[letter] for letter in word[1:]) + " "
            for done in range(0, count, FEED):
                yield marked * min(FEED, count - done)
