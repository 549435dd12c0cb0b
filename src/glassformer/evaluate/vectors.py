"""Evaluation of word vectors on analogies and similarities (Mikolov et al., 2013)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data import country_corpus
from glassformer.data.corpus import COUNTRIES, FAMILY, TEN
from glassformer.data.files import split_lines
from glassformer.data.label_kinds import is_number
from glassformer.errors import CannotReadError, DataError, NoSuchFileError, NotUtf8Error, TooLargeError
from glassformer.finite import with_undefined
from glassformer.reading import NotRegularError, open_regular

MOST_FREQUENT = 30_000  # number of words that analogies may use; a common choice
BATCH_SIZE = 1_024  # analogies per batch
MAX_TEST = 64 << 20  # maximum size of a test file in bytes; the largest known test has 1 MB

Question = tuple[str, str, str, str]  # an analogy, such as man king woman queen


@dataclass(frozen=True)
class Pair:
    """Two words and their similarity as rated by people."""

    first: str
    second: str
    score: float


def normalize_rows(vectors: np.ndarray) -> np.ndarray:
    """Vectors ``[V, D]`` normalized to length 1, fp32; zero vectors stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norms == 0.0, 1.0, norms)).astype(np.float32)


def nearest_rows(
    units: np.ndarray, query: np.ndarray, count: int, exclude: Sequence[int] = ()
) -> list[tuple[int, float]]:
    """The rows with the largest cosine to ``query`` ``[D]``, best first, as (row, cosine)."""
    norm = float(np.linalg.norm(query))
    cosines = units @ (query / norm if norm else query).astype(np.float32)  # [V]
    cosines[list(exclude)] = -np.inf
    count = min(count, len(units) - len(set(exclude)))
    best = np.argpartition(-cosines, count - 1)[:count] if 0 < count < len(units) else np.arange(len(units))
    best = best[np.argsort(-cosines[best], kind="stable")][: max(count, 0)]
    return [(int(i), float(cosines[i])) for i in best]


def evaluate_pairs(word_rows: Mapping[str, int], units: np.ndarray, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Spearman's correlation of cosines with ratings, over the pairs whose words are both in the vocabulary.

    Args:
        word_rows: word -> its row in ``units`` ``[V, D]``, whose rows have length 1.
    """
    from scipy.stats import spearmanr

    known = [p for p in pairs if p.first in word_rows and p.second in word_rows]
    out: dict[str, Any] = {"pairs": len(pairs), "known": len(known), "spearman": None}
    reason = f"{len(known)} pairs with two known words, but 3 are needed"
    if len(known) >= 3:
        cosines = [float(units[word_rows[p.first]] @ units[word_rows[p.second]]) for p in known]
        result: Any = spearmanr(cosines, [p.score for p in known])
        value, reason = float(result.statistic), "all cosines or all scores are the same"
        out["spearman"] = value if np.isfinite(value) else None
    return with_undefined(out, {"spearman": reason})


def evaluate_analogies(
    word_rows: Mapping[str, int],
    units: np.ndarray,
    sections: Mapping[str, Sequence[Question]],
    most_frequent: int = MOST_FREQUENT,
) -> dict[str, Any]:
    """Accuracy of analogies a : b = c : d, in total and by section.

    An analogy is right if d is the nearest word to b - a + c, except a, b and c (3CosAdd). Questions with a
    word that is not among the ``most_frequent`` are skipped.
    """
    table = units[:most_frequent]
    out: dict[str, Any] = {"sections": {}, "questions": 0, "known": 0, "correct": 0}
    for name, questions in sections.items():
        rows = [[word_rows.get(word, len(table)) for word in question] for question in questions]
        known_rows = np.array([row for row in rows if max(row) < len(table)], np.int64).reshape(-1, 4)
        correct = 0
        for start in range(0, len(known_rows), BATCH_SIZE):
            a, b, c, d = known_rows[start : start + BATCH_SIZE].T
            cosines = (table[b] - table[a] + table[c]) @ table.T  # [Q, V], up to a factor per row
            index = np.arange(len(a))
            for word in (a, b, c):
                cosines[index, word] = -np.inf
            correct += int((cosines.argmax(1) == d).sum())
        out["sections"][name] = {"questions": len(questions), "known": len(known_rows), "correct": correct}
        for key, value in out["sections"][name].items():
            out[key] += value
    out["accuracy"] = out["correct"] / out["known"] if out["known"] else None
    return with_undefined(out, {"accuracy": "no question has four known words"})


# --- tests ------------------------------------------------------------------------------------


def country_questions(countries: Sequence[str] = TEN, lowercase: bool = True) -> dict[str, list[Question]]:
    """Analogies for the corpora in ``data/corpus.py``."""
    spell = str.lower if lowercase else str
    named = {name: (COUNTRIES[name][0], COUNTRIES[name][2]) for name in countries}
    facts = {spell(name): (spell(capital), spell(currency)) for name, (capital, currency) in named.items()}
    return _questions(facts, [(m, w, other, pair) for m, w in FAMILY for other, pair in FAMILY if m != other])


def country_corpus_questions() -> dict[str, list[Question]]:
    """Analogies for the corpus in ``data/country_corpus.py``."""
    facts = {name: (fact[0], fact[1]) for name, fact in country_corpus.COUNTRIES.items()}
    nouns = country_corpus.GENDERED_NOUNS
    return _questions(facts, [(man, male, woman, female) for male, female, man, woman in nouns])


def _questions(facts: Mapping[str, tuple[str, str]], family: list[Question]) -> dict[str, list[Question]]:
    """Sections of analogies from the capital and the currency of each country.

    There is one analogy for each ordered pair of countries, except pairs with the same currency.
    """
    pairs = [(a, c) for a in facts for c in facts if a != c]
    return {
        "country : capital": [(a, facts[a][0], c, facts[c][0]) for a, c in pairs],
        "country : currency": [
            (a, facts[a][1], c, facts[c][1]) for a, c in pairs if facts[a][1] != facts[c][1]
        ],
        "king - man + woman": [("man", "king", "woman", "queen")],
        "family": family,
    }


def read_pairs(path: str | Path, lowercase: bool = True) -> list[Pair]:
    """Read tab-separated word pairs in the format of WordSim-353 (``word word score``) or SimLex-999.

    Lines with ``#`` at the beginning, and a header, are skipped.

    Raises:
        DataError: the file does not exist, or a line does not have two words and a score.
    """
    path = Path(path)
    lines = list(dropwhile(lambda line: line[1].startswith("#"), _lines(path)))
    header = lines[0][1].lower().split("\t") if lines else []
    column = header.index("simlex999") if "simlex999" in header else 2
    pairs = []
    for row, line in lines[0 if len(header) > column and is_number(header[column]) else 1 :]:
        cells = (line.lower() if lowercase else line).split("\t")
        try:
            pairs.append(Pair(cells[0].strip(), cells[1].strip(), float(cells[column])))
        except (IndexError, ValueError):
            raise DataError("not two words and a score", where=f"{path}, line {row}") from None
    if not pairs:
        raise DataError("there are no pairs", where=str(path))
    return pairs


def read_questions(path: str | Path, lowercase: bool = True) -> dict[str, list[Question]]:
    """Read analogies in Google's format: ``: section`` lines, then four words per line.

    Raises:
        DataError: the file does not exist, or a line does not have four words.
    """
    sections: dict[str, list[Question]] = {}
    current = "all"
    for row, line in _lines(Path(path)):
        if line.startswith(":"):
            current = line[1:].strip()
            continue
        words = (line.lower() if lowercase else line).split()
        if len(words) != 4:
            raise DataError(f"{len(words)} words instead of 4", where=f"{path}, line {row}")
        sections.setdefault(current, []).append(tuple(words))  # type: ignore[arg-type]  # four, see above
    if not sections:
        raise DataError("there are no questions", where=str(path))
    return sections


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        with open_regular(path) as file:
            text = file.read(MAX_TEST + 1).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        raise NoSuchFileError("no such test of word vectors", where=str(path), fix="Check the path") from None
    except OSError as error:
        raise CannotReadError(f"cannot be read ({error.strerror})", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise NotUtf8Error(f"not UTF-8 ({error})", where=str(path)) from None
    if len(text) > MAX_TEST:
        raise TooLargeError(
            f"larger than {MAX_TEST >> 20} MB, so not a test of word vectors", where=str(path)
        )
    lines = [(i, line) for i, line in enumerate(split_lines(text), 1) if line.strip()]
    if not lines:
        raise DataError("the file is empty", where=str(path))
    return lines


TESTS = {"wordsim353": "wordsim353.tab", "simlex999": "SimLex-999.txt", "google": "questions-words.txt"}

# Analogies for the generated corpora; the argument is whether words are lowercase.
CORPORA: dict[str, Callable[[bool], Mapping[str, Sequence[Question]]]] = {
    "countries": lambda lowercase: country_questions(TEN, lowercase),
    "countries-given": lambda lowercase: country_corpus_questions(),
    "europe": lambda lowercase: country_questions(tuple(COUNTRIES), lowercase),
}
KNOWN_TESTS = (*CORPORA, *TESTS)


def evaluate_vectors(
    words: Sequence[str], vectors: np.ndarray, tests: Sequence[str], folder: Path | None
) -> dict[str, Any]:
    """Name of each test -> its result.

    The words of the tests are lower-cased if the whole vocabulary is in lower case.

    Args:
        tests: keys of ``CORPORA`` (analogies for these corpora), keys of ``TESTS``, or files with pairs or
            analogies.
        folder: folder of the files in ``TESTS``; None: the result of these tests is None.

    Raises:
        DataError: a test file does not exist.
    """
    word_rows, units = {w: i for i, w in enumerate(words)}, normalize_rows(vectors)
    lowercase = all(w == w.lower() for w in words)

    def evaluate(test: str) -> dict[str, Any] | None:
        if test in CORPORA:
            return evaluate_analogies(word_rows, units, CORPORA[test](lowercase))
        if test in TESTS and folder is None:
            return None
        file = folder / TESTS[test] if test in TESTS and folder is not None else Path(test)
        if test == "google" or file.name == TESTS["google"] or _lines(file)[0][1].startswith(":"):
            return evaluate_analogies(word_rows, units, read_questions(file, lowercase))
        return evaluate_pairs(word_rows, units, read_pairs(file, lowercase))

    return {test: evaluate(test) for test in tests}


def tests_folder(folders: Sequence[Path]) -> Path | None:
    """The folder of the files in ``TESTS``: the first ``word-vectors`` in a data folder, or None."""
    return next((f / "word-vectors" for f in folders if os.path.isdir(f / "word-vectors")), None)
