"""The records' cases: for each task what a user types, from training to a server, with the data of ``examples.py``."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import examples
from examples import PLACES

STOP = "(Ctrl-C) "  # before a command that is interrupted as soon as it shows ``stop_at``
GRAPH = "export run --to onnx"  # takes longer than all others together

FIT = "threads=1 precision=fp32 seed=3 "
SIZES = "d_model=16 num_layers=1 num_heads=2 d_ff=24 "
HELD = "validation_size=11 test_size=13 "
SHORT = "batch_size=7 lr=0.01 epochs=9 checkpoint_every=5 "
TEXT = FIT + SIZES + HELD + SHORT + "max_length=16 min_count=1 bootstrap=23 model=encoder-base "
RECURRENT = TEXT.replace(SIZES, "d_model=12 ") + "baselines=false "
IMAGE = FIT + SIZES + HELD + SHORT + "model=vit-tiny image_size=8 patch_size=4 bootstrap=23 "
PAINT = "decoder_width=8 decoder_layers=1 decoder_heads=2 channels=3 "
PLAIN = "baselines=false "

# Each line is asked of each case, whether its task has the verb or refuses it.
VERBS = """
{train} --out refused
{train} {skip} --out run
evaluate run
evaluate run --json
evaluate run {other} --json
evaluate run {other} --by {column}
predict run {one}
predict run {one} --json
predict run {many} --out predicted.csv
predict run {many} --out predicted.jsonl
predict run {many} --least-sure 1
explain run {one}
explain run {one} --method occlusion --json
explain run {one} --method attention --out explained.html
embed run {single} --out vectors.npy --json
fill run "the [MASK] is here"
translate run "the film"
vectors run film
similar "the film is here" "a story is there" --model run
search run {table} "the film" --count 3
doctor run
doctor run --json
data show {data}
data doctor {data} --json
new own.toml run/config.toml
export run --to onnx --check 7 --json
export run --to hf --out hub --check 7
(Ctrl-C) {train} {skip} {changed} --out second
train --resume --out second
compare run second --out study --json
cross-validate run/config.toml --folds 2 --out folds --set epochs=19 --json
review-labels folds --top 2
calibrate run --json
report run
predict run {one}
"""
# What a second case on texts need not show again.
SHOWN = [
    "fill",
    "translate",
    "vectors",
    "similar",
    "search",
    "data show",
    "new",
    "doctor",
    "(Ctrl-C)",
    "train --res",
]
SHOWN += ["compare", "export run --to hf", "{train} --out refused", "report", "evaluate run {other} --json"]


@dataclass(frozen=True)
class Case:
    """A task's example: its data, and the words of the commands that depend on it."""

    name: str
    make: Callable[[Path], None]
    train: str  # what ``train`` is given
    one: str  # an input as it is typed
    data: str = "train.csv"
    other: str = "other.csv"  # as data
    many: str = "new.csv"  # without answers
    table: str = "new.csv"  # of texts
    column: str = "source"  # of ``other``, for evaluate --by
    skip: str = "--on-bad-row skip"
    settings: str = TEXT
    changed: str = "--set weight_decay=0.02"
    stop_at: str = "epoch 1"
    requests: Sequence[tuple[str, Any]] = ()
    before: str = ""  # commands of this case alone
    more: str = ""
    less: Sequence[str] = ()  # beginnings of lines of VERBS that another case has shown

    def commands(self) -> Iterator[str]:
        """What is typed, in this order."""
        words = {key: value for key, value in vars(self).items() if isinstance(value, str)}
        given = " ".join(f"--set {setting}" for setting in self.settings.split())
        words |= {"train": f"train {self.train} {given}", "single": self.one.split('" "')[0].rstrip('"')}
        words["single"] += '"' * self.one.startswith('"')
        for line in f"{self.before}\n{VERBS}\n{self.more}".splitlines():
            if line and not line.startswith(tuple(self.less)):
                yield " ".join(line.format_map(words).split())


GOOD, BAD = "the film of 5 has a splendid plot", "a dreadful story"
TYPED = f'"{GOOD}"'
PICTURE = {"images": ["file:other/dark/68.png", "file:other/light/67.png"]}
WHY = ("/v1/explain", {"text": GOOD, "method": "occlusion"})
LABELS = ("/v1/predict", {"texts": [GOOD, BAD]})
TEXTS = [LABELS, WHY, ("/v1/predict", {"texts": []}), ("/v1/tag", {"texts": [BAD]})]
INDEED = [[GOOD, "it is indeed so"], [BAD, "it is never so"]]
ASKED = ["where is film 5", "film 5 is in Lima now"]

ALL = [
    Case(
        "text-classification",
        examples.texts,
        "--text train.csv",
        TYPED,
        requests=TEXTS,
        more="report study\nreport folds",
    ),
    Case(
        "several-labels",
        examples.several_labels,
        '--text train.csv --label-separator "|"',
        TYPED,
        settings=TEXT.replace("epochs=9", "epochs=17") + PLAIN,
        requests=TEXTS,
        less=SHOWN[:-7],
    ),
    Case(
        "text-pairs",
        examples.text_pairs,
        "--text train.csv",
        f'{TYPED} "it is indeed so"',
        settings=TEXT + PLAIN,
        requests=[("/v1/predict", {"pairs": INDEED}), LABELS],
        more="explain run {one} --cross --json",
        less=SHOWN,
    ),
    Case(
        "tfidf",
        examples.texts,
        "--text train.csv",
        TYPED,
        settings=HELD + "model=tfidf seed=3 threads=1 bootstrap=23",
        changed="--set min_count=2",
        stop_at="fitted",
        requests=TEXTS,
        less=[line for line in SHOWN if line not in ("compare", "(Ctrl-C)", "train --res")],
    ),
    Case(
        "textcnn", examples.texts, "--text train.csv", TYPED, settings=RECURRENT + "model=textcnn", less=SHOWN
    ),
    Case("lstm", examples.texts, "--text train.csv", TYPED, settings=RECURRENT + "model=lstm", less=SHOWN),
    Case(
        "lora",
        examples.lines_and_texts,
        "--text train.csv",
        TYPED,
        settings=FIT + HELD + SHORT + PLAIN + "model=masked/model lora_rank=3 bootstrap=23",
        before="train europe-mlm --data train.txt --out masked --set vocab_size=97 "
        + " ".join(f"--set {setting}" for setting in (FIT + SIZES + SHORT + "validation_size=11").split()),
        less=[*SHOWN[:-7], "cross-validate", "review-labels"],
    ),
    Case(
        "text-regression",
        examples.text_numbers,
        "--text train.csv",
        TYPED,
        settings=TEXT + "target=number ",
        requests=[LABELS, WHY, ("/v1/predict", {"pairs": INDEED})],
    ),
    Case(
        "image-classification",
        examples.pictures,
        "--images train",
        "other/dark/68.png",
        data="train",
        other="other",
        many="new",
        table="words.csv",
        settings=IMAGE,
        requests=[
            ("/v1/predict", PICTURE),
            ("/v1/explain", {"image": PICTURE["images"][0], "method": "occlusion"}),
            ("/v1/predict", {"images": ["AAAA"]}),
        ],
    ),
    Case(
        "hog",
        examples.pictures,
        "--images train",
        "other/dark/68.png",
        data="train",
        other="other",
        many="new",
        table="words.csv",
        settings=FIT + HELD + "model=hog image_size=8 patch_size=4 bootstrap=23",
        requests=[("/v1/predict", PICTURE), ("/v1/explain", {"image": PICTURE["images"][0]})],
        less=SHOWN,
    ),
    Case(
        "image-regression",
        examples.pictures,
        "--images train.csv",
        "other/dark/68.png",
        many="new",
        table="words.csv",
        settings=IMAGE + "target=number ",
        requests=[("/v1/predict", PICTURE)],
    ),
    Case(
        "token-tagging",
        examples.tags,
        "wnut17-minilm --data train.conll",
        '"Ann saw Rome"',
        data="train.conll",
        other="other.conll",
        settings=TEXT + PLAIN,
        requests=[
            ("/v1/tag", {"texts": ["Ann saw Rome"]}),
            ("/v1/explain", {"text": "Ann saw Rome", "word": 0, "method": "occlusion"}),
            LABELS,
        ],
        more="predict run {many} --out predicted.conll",
    ),
    Case(
        "question-answering",
        examples.questions,
        "facts-minilm --data train.csv",
        f'"{ASKED[0]}" "{ASKED[1]}"',
        settings=TEXT + PLAIN,
        requests=[
            ("/v1/answer", {"questions": [ASKED, [ASKED[0], "film 5 is lost"]], "n_best": 2}),
            ("/v1/answer", {"question": ASKED[0]}),
        ],
    ),
    Case(
        "similarity",
        examples.scored_pairs,
        "stsb-minilm --data train.csv",
        f'{TYPED} "{BAD}"',
        settings=TEXT,
        requests=[
            ("/v1/similar", {"pairs": [[GOOD, BAD]], "explain": True}),
            ("/v1/embed", {"texts": [GOOD]}),
            LABELS,
        ],
        more="similar new.csv --model run --out cosines.csv\nsimilar {one} --model run --explain --json",
        table="words.csv",
    ),
    Case(
        "translation",
        examples.translations,
        "multi30k-rnn-additive --data train.csv",
        '"a dog runs"',
        settings=FIT + HELD + "batch_size=7 epochs=23 lr=0.01 d_model=16 vocab_size=311 max_length=19 ",
        more="translate run new.csv --out translated.csv",
    ),
    Case(
        "masked-lm",
        examples.lines,
        "europe-mlm --data train.txt",
        '"Rome is in [MASK] ."',
        data="train.txt",
        settings=FIT + SIZES + SHORT + "validation_size=11 vocab_size=97 ",
        less=["{train} --out refused"],  # a line of a text cannot be wrong
        more='fill run "Rome is in [MASK] ." --top 2 --json',
    ),
    Case(
        "masked-patches",
        examples.pictures,
        "digits-patches --data train",
        "other/dark/68.png",
        data="train",
        other="other",
        many="new",
        table="words.csv",
        skip="--set broken=skip",
        settings=FIT + SIZES + PAINT + "image_size=8 patch_size=4 validation_size=11 batch_size=7 epochs=5 ",
    ),
    Case(
        "word2vec",
        examples.lines,
        "countries-word2vec --data train.txt",
        "film",
        data="train.txt",
        settings="dim=11 epochs=19 min_count=3 checkpoint_every=1 seed=3 threads=1 ",
        changed="--set epochs=17",
        stop_at="epoch 9 ",
        less=["{train} --out refused"],
        more=f"vectors run {' '.join(PLACES).lower()} --json",
    ),
]
CASES = {case.name: case for case in ALL}
