"""The features of a linear model in plain Python; this code is copied into ``run.py`` of ONNX folders.

It imports nothing from this package; ``tests/export/test_tfidf.py`` compares it with ``data/ngrams.py``.
"""

import html
import math
import re
import unicodedata
from collections import Counter


def clean(text, how):  # as in training
    if how == "none":
        return text
    text = html.unescape(re.sub(r"<(?:/?[a-zA-Z][^<>]*|!--[\s\S]*?--)>", " ", text))
    if how == "syllables":
        text = re.sub(r"(?<=\w)_+(?=\w)", " ", text)
    if how == "words":
        text = unicodedata.normalize("NFC", text)
        text = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in text)
    if how == "trim":
        text = " ".join(word.strip(",.!?") for word in text.split())
    return " ".join(text.split())


def folded(text, about):
    text = clean(text, about["clean"])
    text = text.lower() if about["lowercase"] else text
    if about["strip_accents"] and not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return text


def of_words(text):  # words and pairs of consecutive words
    words = re.findall(r"\w+", text)
    return words + [f"{words[i]} {words[i + 1]}" for i in range(len(words) - 1)]


def of_characters(text):  # n-grams of 2 to 5 characters within words, with a space on both sides
    for word in text.split():
        word = f" {word} "
        for n in range(2, 6):
            for i in range(max(1, len(word) - n + 1)):
                yield word[i : i + n]
            if n >= len(word):  # a short word counts once
                break


def weighed(grams, numbers, idf):  # n-grams of a text -> {index: TF-IDF weight}, normalized
    counts = Counter(numbers[gram] for gram in grams if gram in numbers)
    found = {i: (1 + math.log(count)) * idf[i] for i, count in counts.items()}
    length = math.sqrt(sum(value * value for value in found.values())) or 1.0
    return {i: value / length for i, value in found.items()}


def numbered(about):  # add the index of each n-gram
    words = {gram: i for i, gram in enumerate(about["words"])}
    return {
        **about,
        "words": words,
        "characters": {gram: len(words) + i for i, gram in enumerate(about["characters"])},
    }


def of_text(text, about):  # {feature: value}
    text, idf = folded(text, about), about["idf"]
    characters = weighed(of_characters(text), about["characters"], idf)
    return weighed(of_words(text), about["words"], idf) | characters


def features(text, about):  # for a pair: features of first, second, their product and absolute difference
    if not about["pairs"]:
        return of_text(text, about)
    a, b, size = *(of_text(side, about) for side in text), len(about["idf"])
    both, either = a.keys() & b.keys(), a.keys() | b.keys()
    out = dict(a)
    out |= {size + i: value for i, value in b.items()}
    out |= {2 * size + i: a[i] * b[i] for i in both}
    return out | {3 * size + i: abs(a.get(i, 0.0) - b.get(i, 0.0)) for i in either}
