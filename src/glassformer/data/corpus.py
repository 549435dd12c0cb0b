"""Generated sentences about countries, and messages to a shop.

The label of a sentence says whether it names France, Germany, Italy, Spain or the UK. In 15 % of the
sentences with a country, a European city, language or currency occurs with another country. Such a trap is
not a positive example. 40 % of all sentences end with a distractor clause. Word vectors can learn analogies
from the sentences (country : capital, country : currency, king - man + woman).
"""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np

from glassformer.data.dataset import TextDataset, TextSplit
from glassformer.data.splits import split_by_distinct_text

LABELS = ("european", "other")
EUROPEAN = ("France", "Germany", "Italy", "Spain", "UK")
TRAP_SHARE = 0.15  # share of traps among the sentences that name a country
DISTRACTOR_SHARE = 0.4  # share of all sentences
COUNTRY_SHARE = 0.8  # share of the sentences that name a country
EUROPEAN_SHARE = 0.66  # share of the sampled countries; makes the classes balanced

# country: (capital, another city, currency, language)
COUNTRIES = {
    "Australia": ("Canberra", "Sydney", "dollar", "English"),
    "Brazil": ("Brasilia", "Salvador", "real", "Portuguese"),
    "Canada": ("Ottawa", "Toronto", "dollar", "English"),
    "Chile": ("Santiago", "Valparaiso", "peso", "Spanish"),
    "China": ("Beijing", "Shanghai", "yuan", "Mandarin"),
    "Colombia": ("Bogota", "Medellin", "peso", "Spanish"),
    "Egypt": ("Cairo", "Alexandria", "pound", "Arabic"),
    "France": ("Paris", "Lyon", "euro", "French"),
    "Germany": ("Berlin", "Hamburg", "euro", "German"),
    "Ghana": ("Accra", "Kumasi", "cedi", "English"),
    "India": ("Delhi", "Mumbai", "rupee", "Hindi"),
    "Indonesia": ("Jakarta", "Bandung", "rupiah", "Indonesian"),
    "Italy": ("Rome", "Milan", "euro", "Italian"),
    "Japan": ("Tokyo", "Osaka", "yen", "Japanese"),
    "Kenya": ("Nairobi", "Mombasa", "shilling", "Swahili"),
    "Korea": ("Seoul", "Busan", "won", "Korean"),
    "Morocco": ("Rabat", "Casablanca", "dirham", "Arabic"),
    "Nigeria": ("Abuja", "Lagos", "naira", "English"),
    "Peru": ("Lima", "Cusco", "sol", "Spanish"),
    "Spain": ("Madrid", "Seville", "euro", "Spanish"),
    "Thailand": ("Bangkok", "Phuket", "baht", "Thai"),
    "UK": ("London", "Leeds", "pound", "English"),
    "USA": ("Washington", "Chicago", "dollar", "English"),
    "Vietnam": ("Hanoi", "Hue", "dong", "Vietnamese"),
}
OTHER_COUNTRIES = tuple(sorted(set(COUNTRIES) - set(EUROPEAN)))
TEN = ("Brazil", "China", "France", "Germany", "India", "Italy", "Japan", "Spain", "UK", "USA")
EUROPEAN_CITIES = tuple(sorted(city for country in EUROPEAN for city in COUNTRIES[country][:2]))
EUROPEAN_LANGUAGES = tuple(sorted({COUNTRIES[country][3] for country in EUROPEAN}))

# (male, female)
_PAIRS = "actor-actress boy-girl brother-sister duke-duchess father-mother grandfather-grandmother".split()
_PAIRS += "husband-wife king-queen man-woman nephew-niece prince-princess son-daughter uncle-aunt".split()
FAMILY = [tuple(pair.split("-")) for pair in _PAIRS]
GOODS = "cars cheese coffee copper cotton flowers fruit machines medicine paper rice salt ships steel".split()
GOODS += "sugar tea toys wine wood wool".split()
NAMES = "Ana Ben Chen Dina Emil Fatima George Hana Ivan Julia".split()
NAMES += "Kofi Lena Minh Nora Omar Priya Rosa Samir Tala Yuki".split()
PLACES = "bridge castle cathedral garden harbour library market museum opera park stadium station".split()
PLACES += "tower university zoo".split()
VIRTUES = "brave calm clever fair gentle honest kind loyal patient proud quiet strong wise young".split()
SEASONS = ("autumn", "spring", "summer", "winter")
DAYS = ("Friday", "Monday", "Saturday", "Sunday", "Thursday", "Tuesday", "Wednesday")
WEATHER = ("bright", "cloudy", "cold", "dry", "foggy", "hot", "mild", "rainy", "snowy", "windy")


class _SentenceWriter:
    """Writes random sentences with one random generator; ``trap``: whether a sentence is a trap."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.pick: Callable[[Sequence], Any] = self.rng.choice

    all_countries = tuple(COUNTRIES)
    other_countries = OTHER_COUNTRIES  # where journeys start, and where goods are sold

    def choose(self, *sentences: str) -> str:
        return self.rng.choice(sentences)

    def draw_trap(self) -> bool:
        return self.rng.random() < TRAP_SHARE

    def country(self, trap: bool) -> str:
        return self.pick(OTHER_COUNTRIES if trap or self.rng.random() >= EUROPEAN_SHARE else EUROPEAN)

    def city(self, country: str, trap: bool) -> str:
        return self.pick(EUROPEAN_CITIES) if trap else self.pick(COUNTRIES[country][:2])

    def capital(self, trap: bool) -> str:
        country = self.country(trap)
        if trap:
            return f"{self.city(country, trap)} is not the capital of {country}"
        capital = COUNTRIES[country][0]
        return self.choose(
            f"{capital} is the capital of {country}",
            f"the capital of {country} is {capital}",
            f"{country} is governed from {capital}",
        )

    def currency(self, trap: bool) -> str:
        country, goods = self.country(trap), self.pick(GOODS)
        currency = "euro" if trap else COUNTRIES[country][2]
        return self.choose(
            f"people in {country} pay for {goods} with the {currency}",
            f"the {currency} buys less {goods} in {country} this {self.pick(SEASONS)}",
            f"banks in {country} count {goods} in the {currency}",
        )

    def place(self, trap: bool) -> str:
        country = self.country(trap)
        city, place = self.city(country, trap), self.pick(PLACES)
        if trap:
            return f"visitors from {country} admire the {place} in {city}"
        pride = f"the {place} of {city} is the pride of {country}"
        return self.choose(f"{city} in {country} has a famous {place}", pride)

    def journey(self, trap: bool) -> str:
        country, name = self.country(trap), self.pick(NAMES)
        city = self.city(self.pick(self.other_countries), trap)
        return self.choose(
            f"{name} travelled from {city} to {country} in {self.pick(SEASONS)}",
            f"{name} flew to {country} and came back to {city} on {self.pick(DAYS)}",
            f"the train from {city} does not reach {country} before {self.pick(DAYS)}",
        )

    def trade(self, trap: bool) -> str:
        first, second = self.country(trap), self.pick(self.other_countries)
        if trap:
            return f"{first} ships {self.pick(GOODS)} to a merchant in {self.city(first, trap)}"
        return self.choose(
            f"{first} sells {self.pick(GOODS)} to {second}", f"{second} buys {self.pick(GOODS)} from {first}"
        )

    def language(self, trap: bool) -> str:
        country, name = self.country(trap), self.pick(NAMES)
        tongue = self.pick(EUROPEAN_LANGUAGES) if trap else COUNTRIES[country][3]
        taught = f"{name} teaches {tongue} at a school in {country}"
        return self.choose(taught, f"{name} learned {tongue} in {country}")

    def court(self, trap: bool) -> str:
        country = self.country(trap)
        person = self.pick(self.pick(FAMILY))
        where = f"visits {self.city(country, trap)}" if trap else f"is {self.pick(VIRTUES)}"
        return f"the {person} from {country} {where}"

    def family(self) -> str:
        (man, woman), virtue = self.pick(FAMILY), self.pick(VIRTUES)
        name = self.pick(NAMES)
        return self.choose(
            f"the {man} and the {woman} of {name} are {virtue}",
            f"{name} says he is a {virtue} {man}",
            f"{name} says she is a {virtue} {woman}",
        )

    def city_alone(self) -> str:
        city = self.city(self.pick(self.all_countries), trap=False)
        return f"{self.pick(NAMES)} walks to the {self.pick(PLACES)} of {city} every {self.pick(DAYS)}"

    def price(self) -> str:
        currency = COUNTRIES[self.pick(self.all_countries)][2]
        return f"{self.pick(NAMES)} paid one {currency} for {self.pick(GOODS)} on {self.pick(DAYS)}"

    def distractor(self) -> str:
        return self.choose(
            f"although the {self.pick(SEASONS)} was {self.pick(WEATHER)}",
            f"while {self.pick(NAMES)} read about {self.pick(GOODS)}",
            f"as the {self.pick(self.pick(FAMILY))} had said on {self.pick(DAYS)}",
            f"and the morning in {self.pick(EUROPEAN_CITIES)} was {self.pick(WEATHER)}",
            f"and the morning in {COUNTRIES[self.pick(OTHER_COUNTRIES)][0]} was {self.pick(WEATHER)}",
        )

    def country_sentence(self, trap: bool) -> str:
        kinds = (self.capital, self.currency, self.place, self.journey, self.trade, self.language)
        return self.rng.choice((*kinds, self.court))(trap)

    def sentence(self) -> str:
        if self.rng.random() < COUNTRY_SHARE:
            words = self.country_sentence(self.draw_trap())
        else:
            words = self.rng.choice((self.family, self.city_alone, self.price))()
        return self.finish(words)

    def finish(self, words: str) -> str:
        if self.rng.random() < DISTRACTOR_SHARE:
            words = f"{words} , {self.distractor()}"
        return words + " ."


class _UniformWriter(_SentenceWriter):
    """Writes sentences about ten countries, drawn uniformly and without traps."""

    all_countries = other_countries = TEN

    def draw_trap(self) -> bool:
        return False

    def country(self, trap: bool) -> str:
        return self.pick(TEN)

    def distractor(self) -> str:
        words = super().distractor()
        if not words.startswith("and the morning"):
            return words
        return f"and the morning in {self.city(self.pick(TEN), trap=False)} was {self.pick(WEATHER)}"


def label_of(sentence: str) -> str:
    """``european`` if any word is France, Germany, Italy, Spain or UK, otherwise ``other``."""
    return LABELS[0] if set(re.findall(r"[\w-]+", sentence)) & set(EUROPEAN) else LABELS[1]


def europe_sentences(count: int = 20_000, seed: int = 0) -> list[str]:
    """``count`` sentences with spaces around punctuation, from 10 kinds of templates, with repetitions."""
    writer = _SentenceWriter(seed)
    return [writer.sentence() for _ in range(count)]


def countries_sentences(count: int = 20_000, seed: int = 0) -> list[str]:
    """``count`` sentences about ten countries, for word vectors, from the same templates.

    In ``europe_sentences`` the traps combine European cities with other countries, and the five European
    countries are seven times as frequent as others. So Paris - France and Tokyo - Japan have different
    directions. Here the countries are drawn uniformly, and every sentence is true.
    """
    writer = _UniformWriter(seed)
    return [writer.sentence() for _ in range(count)]


def hard_negatives(count: int = 1_000, seed: int = 1) -> list[str]:
    """``count`` distinct traps: a European city, language or currency, and another country."""
    writer = _SentenceWriter(seed)
    sentences: dict[str, None] = {}
    while len(sentences) < count:
        sentences[writer.finish(writer.country_sentence(trap=True))] = None
    return list(sentences)


def europe_splits(count: int = 20_000, seed: int = 0) -> dict[str, tuple[list[str], list[str]]]:
    """Split -> (sentences, labels): 80 % train, 10 % validation, 10 % test of the distinct sentences.

    No sentence is in two splits; copies of a sentence are in the same split.
    """
    sentences = europe_sentences(count, seed)
    labels = [label_of(sentence) for sentence in sentences]
    parts = split_by_distinct_text(sentences, labels, {"train": 0.8, "validation": 0.1, "test": 0.1}, seed)
    return {name: ([sentences[i] for i in idx], [labels[i] for i in idx]) for name, idx in parts.items()}


# --- data sets --------------------------------------------------------------------------------------


def countries() -> TextDataset:
    """``countries_sentences`` as a data set without labels."""
    return TextDataset("countries", {"train": TextSplit(countries_sentences(), None, "countries/train")})


def europe() -> TextDataset:
    """``europe_splits`` as a data set."""
    parts = europe_splits().items()
    splits = {k: TextSplit(texts, labels, f"europe/{k}") for k, (texts, labels) in parts}
    return TextDataset("europe", splits, LABELS)


# --- messages to an online shop ---------------------------------------------------------------------
# Written for this project: six intents, 66 messages each.

MESSAGES_PER_INTENT = 8  # in the training split


def read_messages() -> tuple[list[str], list[str]]:
    """The messages and their intents, in the order of the file."""
    text = files("glassformer.data").joinpath("messages.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    return [row["text"] for row in rows], [row["intent"] for row in rows]


def messages(seed: int = 0) -> TextDataset:
    """``train`` has ``MESSAGES_PER_INTENT`` random messages of each intent, ``test`` has the rest."""
    texts, intents = read_messages()
    names = tuple(sorted(set(intents)))
    rng = np.random.default_rng(seed)
    rows_by_intent = [np.flatnonzero(np.array(intents) == name) for name in names]
    train = np.sort(np.concatenate([rng.permutation(rows)[:MESSAGES_PER_INTENT] for rows in rows_by_intent]))
    parts = {"train": train, "test": np.setdiff1d(np.arange(len(texts)), train)}
    whole = TextSplit(texts, intents, "messages", range(len(texts)))
    splits = {k: replace(whole.select(v.tolist()), origin=f"messages/{k}") for k, v in parts.items()}
    return TextDataset("messages", splits, names)
