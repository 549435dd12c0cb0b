"""Generated biographies with questions and answers: a small data set for trials that needs no download.

    Ada Novak was born in Hanoi in 1923. She became a baker and lived in Turin. ...
    Where was Ada Novak born?  Hanoi        When did she move to Turin? (not said: no answer)

The persons are invented. A model trained on them knows these sentence patterns, not English.
"""

from __future__ import annotations

import random

from glassformer.data.questions import Answers, Question

SIZES = {"train": 400, "validation": 80, "test": 100}  # texts; about four questions on each


FIRST = "Ada Ben Carla Dmitri Elif Farid Greta Hugo Ines Jonas Kavya Leo Mira Nils Olga Pavel".split()
LAST = "Novak Ivers Lindt Moreau Okafor Petrov Quist Rossi Silva Tanaka Uddin Vogel Weiss Yilmaz".split()
CITIES = (
    "Hanoi Turin Lagos Quito Oslo Perth Kyoto Cairo Lima Tunis Ghent Porto Riga Accra Dakar Split".split()
)
CITIES += ["New York", "Buenos Aires", "Cape Town", "The Hague", "Sao Paulo", "San Juan"]
JOBS = "baker surgeon pilot lawyer painter farmer dentist violinist carpenter chemist".split()
JOBS += ["school teacher", "bridge engineer", "ship captain"]
PETS = "cat dog parrot horse tortoise goat".split()
NAMES = "Luna Momo Pepper Rex Ziggy Biscuit Coco Tofu".split()
SCHOOLS = ["the University of {}", "{} College", "the {} Institute"]
# (sentence, question, key of the answer)
FACTS = (
    ("{p} was born in {city} in {year}.", "Where was {p} born?", "city"),
    ("{p} was born in {city} in {year}.", "When was {p} born?", "year"),
    ("Later {p} moved to {home} and worked there as a {job}.", "Where did {p} move?", "home"),
    ("Later {p} moved to {home} and worked there as a {job}.", "What did {p} work as?", "job"),
    ("{p} studied at {school} for {count} years.", "Where did {p} study?", "school"),
    ("{p} studied at {school} for {count} years.", "How many years did {p} study?", "count"),
    ("In {wed} {p} married {spouse}.", "Whom did {p} marry?", "spouse"),
    ("In {wed} {p} married {spouse}.", "When did {p} marry?", "wed"),
    ("At home {p} had a {pet} called {name}.", "What was the {pet} of {p} called?", "name"),
    ("{p} won a prize of {prize} dollars for {work}.", "What did {p} win a prize for?", "work"),
    ("{p} won a prize of {prize} dollars for {work}.", "How many dollars did {p} win?", "prize"),
)
WORKS = ["a small bridge", "a novel on salt", "the study of tides", "a cheap lamp", "a map of the moon"]


def facts(split: str) -> tuple[list[Question], list[Answers]]:
    """The questions of a split and their answers, always the same; one question in six has no answer."""
    rng = random.Random(f"facts {split}")
    people = [f"{a} {b}" for a in FIRST for b in LAST]
    random.Random(0).shuffle(people)  # no person is in two splits
    begin = {"train": 0, "validation": 150, "test": 180}[split]
    end = {"train": 150, "validation": 180, "test": len(people)}[split]
    questions, answers = [], []
    for _ in range(SIZES[split]):
        for question, answer in _text(rng, people[begin:end]):
            questions.append(question)
            answers.append(answer)
    return questions, answers


def _text(rng: random.Random, people: list[str]) -> list[tuple[Question, Answers]]:
    two = rng.sample(people, 2)  # the persons of one text
    stated: list[str] = []
    known: list[tuple[str, str, str]] = []  # sentence, question, answer
    unanswerable: list[str] = []
    for person in two:
        words = _words(rng, person)
        sentences = sorted({form for form, _, _ in FACTS})
        kept = set(rng.sample(sentences, 3))
        for form, question_form, key in FACTS:
            sentence, question = form.format(**words), question_form.format(**words)
            if form in kept:
                known.append((sentence, question, words[key]))
            elif "{pet}" not in question_form:
                unanswerable.append(question)
        stated += [form.format(**words) for form in sentences if form in kept]
    rng.shuffle(stated)
    context = " ".join(stated)
    examples = []
    for sentence, question, answer in rng.sample(known, 4):
        inside = sentence.index(f" {answer}") + 1
        start = context.index(sentence) + inside
        examples.append((Question(question, context), Answers((answer,), (start,))))
    if rng.random() < 0.8:
        examples.append((Question(rng.choice(unanswerable), context), Answers()))
    return examples


def _words(rng: random.Random, person: str) -> dict[str, str]:
    city, home, school = rng.sample(CITIES, 3)
    return {
        "p": person,
        "city": city,
        "home": home,
        "year": str(rng.randint(1890, 1949)),
        "wed": str(rng.randint(1950, 1999)),
        "job": rng.choice(JOBS),
        "school": rng.choice(SCHOOLS).format(school),
        "count": str(rng.randint(2, 9)),
        "spouse": f"{rng.choice(FIRST)} {rng.choice(LAST)}",
        "pet": rng.choice(PETS),
        "name": rng.choice(NAMES),
        "prize": f"{rng.randint(2, 90)},000",
        "work": rng.choice(WORKS),
    }
