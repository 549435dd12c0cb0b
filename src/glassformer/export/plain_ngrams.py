"""Features of linear models in plain Python.

The code below is copied into ``run.py`` of ONNX folders, so it only imports the standard library. A test
compares it with ``data/ngrams.py``.
"""

import html
import math
import re
import unicodedata
from collections import Counter


def clean(text, how):  # text cleaning as in training
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


def normalize(text, about):
    text = clean(text, about["clean"])
    text = text.lower() if about["lowercase"] else text
    if about["strip_accents"] and not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return text


def word_ngrams(text):  # words and pairs of consecutive words
    words = re.findall(r"\w+", text)
    return words + [f"{words[i]} {words[i + 1]}" for i in range(len(words) - 1)]


def character_ngrams(text):  # n-grams of 2 to 5 characters within words, with a space on both sides
    for word in text.split():
        word = f" {word} "
        for n in range(2, 6):
            for i in range(max(1, len(word) - n + 1)):
                yield word[i : i + n]
            if n >= len(word):  # a short word counts once
                break


def tfidf(ngrams, indices, idf):  # n-grams of a text -> {index: TF-IDF weight}, normalized
    counts = Counter(indices[ngram] for ngram in ngrams if ngram in indices)
    weights = {i: (1 + math.log(count)) * idf[i] for i, count in counts.items()}
    length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
    return {i: weight / length for i, weight in weights.items()}


def index_ngrams(about):  # ngrams.json, with {n-gram: index} in place of lists
    words = {ngram: i for i, ngram in enumerate(about["words"])}
    characters = {ngram: len(words) + i for i, ngram in enumerate(about["characters"])}
    return {**about, "words": words, "characters": characters}


def text_features(text, about):  # {feature: value}
    text, idf = normalize(text, about), about["idf"]
    characters = tfidf(character_ngrams(text), about["characters"], idf)
    return tfidf(word_ngrams(text), about["words"], idf) | characters


def features(text, about):  # for a pair: first text, second text, their product, their absolute difference
    if not about["pairs"]:
        return text_features(text, about)
    a, b, size = *(text_features(side, about) for side in text), len(about["idf"])
    out = a | {size + i: value for i, value in b.items()}
    out |= {2 * size + i: a[i] * b[i] for i in a.keys() & b.keys()}
    return out | {3 * size + i: abs(a.get(i, 0.0) - b.get(i, 0.0)) for i in a.keys() | b.keys()}
