"""A small corpus for learning word vectors.

The corpus is from a course. Without its file, a substitute with the same statistics but other sentences is
generated. The corpus has 20,000 sentences of eight kinds. They use ten countries with capital and currency,
four groups of related words, nine professions and four connectors. 40 % of the sentences end with an
unrelated clause. A sentence has the label 1 if one of its words is france, germany, italy, spain or uk.
"""

from __future__ import annotations

import random
from pathlib import Path

from glassformer.data.checks import check_texts
from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.files import read_lines
from glassformer.data.splits import split_by_distinct_text
from glassformer.data.text import clean_text

FILE = "given/d2-corpus.txt"  # inside a data folder; one sentence per line
# country: (capital, currency)
COUNTRIES = {
    "france": ("paris", "euro"),
    "germany": ("berlin", "euro"),
    "italy": ("rome", "euro"),
    "spain": ("madrid", "euro"),
    "japan": ("tokyo", "yen"),
    "usa": ("washington", "dollar"),
    "uk": ("london", "pound"),
    "canada": ("ottawa", "dollar"),
    "brazil": ("brasilia", "real"),
    "india": ("new_delhi", "rupee"),
}
EUROPEAN = frozenset({"france", "germany", "italy", "spain", "uk"})
# (male word, female word, and a more general word for each)
GENDERED_NOUNS = (
    ("king", "queen", "man", "woman"),
    ("actor", "actress", "man", "woman"),
    ("prince", "princess", "boy", "girl"),
    ("duke", "duchess", "man", "woman"),
)
PROFESSIONS = ("baker", "farmer", "judge", "miner", "nurse", "pilot", "sailor", "tailor", "writer")
CONNECTORS = ("and", "but", "though", "while")
UNRELATED_SHARE = 0.4  # share of the sentences with an unrelated clause
SPLIT_SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}  # of the distinct sentences
SUBSTITUTE_NOTE = "a generated substitute: no data folder has the file of the corpus"


def label_of(sentence: str) -> int:
    """1 if a word, lower-cased and without punctuation at its ends, is in ``EUROPEAN``; otherwise 0."""
    return int(not EUROPEAN.isdisjoint(clean_text(sentence, "trim").lower().split()))


def generate(count: int = 20_000, seed: int = 0) -> list[str]:
    """Generate ``count`` sentences; kinds, countries and word groups are drawn uniformly."""
    rng = random.Random(seed)
    return [_sentence(rng) for _ in range(count)]


def _sentence(rng: random.Random) -> str:
    (a, b), connector = rng.sample([*COUNTRIES], 2), rng.choice(CONNECTORS)
    (city, money), (other_city, other_money) = COUNTRIES[a], COUNTRIES[b]
    male, female, man, woman = rng.choice(GENDERED_NOUNS)
    kinds = (
        f"{a} is governed from {city}",
        f"the parliament of {a} meets in {city}",
        f"shops in {a} take the {money}",
        f"you pay for bread in {a} with the {money}",
        f"{city} lies in {a}, {connector} {other_city} lies in {b}",
        f"banks in {a} count the {money}, {connector} those in {b} count the {other_money}",
        f"visitors of {a} look for {other_city}, {connector} they find {city}",
        f"a {male} is a {man}, {connector} a {female} is a {woman}",
    )
    words = rng.choice(kinds)
    if rng.random() < UNRELATED_SHARE:
        words = f"{words}. elsewhere a {rng.choice(PROFESSIONS)} opened a fair"
    return words


def corpus(file: Path | None) -> TextDataset:
    """The corpus, with a note if it is generated.

    Args:
        file: the file of the corpus; None: generate a substitute.
    """
    texts = generate() if file is None else check_texts(read_lines(file)[0], str(file))
    labels = [label_of(text) for text in texts]
    whole = TextSplit(texts, labels, "countries-given (generated)" if file is None else str(file))
    parts = split_by_distinct_text(texts, labels, SPLIT_SHARES, seed=0)
    splits = {name: whole.select(rows.tolist()) for name, rows in parts.items()}
    return TextDataset("countries-given", splits, notes=(SUBSTITUTE_NOTE,) if file is None else ())
