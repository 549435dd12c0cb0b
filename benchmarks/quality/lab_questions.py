"""The labs' questions with power: small models, five seeds, paired differences with intervals, corrected by Holm.

    GLASSFORMER_DATA=... .venv/bin/python -m benchmarks.quality.lab_questions [QUESTION ...] [--seeds 0 1 2 3 4] [--minutes 28]
    .venv/bin/python -m benchmarks.quality.lab_questions --words          the result file's words anew, from its own figures

A question compares arms that differ in one setting, and its note names what else differs. Each arm is trained
once a seed on the same drawn examples: 2,000 of CIFAR-10's training pictures, 10,000 others judge; 4,000 of
IMDb's training reviews, 5,000 others judge (``hunger``: other numbers, too). No test part is opened.
``few-labels`` needs a run of ``imdb-mlm-given``, or its model, as RUNS/pretrained (a link).

The interval of a difference is Student's t over the seeds, with the variance of the judged examples' draw
added; p-values are corrected for the number of differences of the same question. A training leaves its right
and wrong answers in ``--runs``; the same command goes on. The result file has every question whose arms have
two seeds or more, each with its machine and date; what it has of other questions, or of this one with more
seeds, stays.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.command import Budget, command
from benchmarks.harness.options import MINUTES
from benchmarks.harness.results import kept, write_result
from benchmarks.harness.seeds import corrected, paired
from benchmarks.quality.lab_fits import (
    FITS,
    JUDGED_PICTURES,
    JUDGED_REVIEWS,
    LEARNED_PICTURES,
    LEARNED_REVIEWS,
    PASSES,
    Arm,
)

ROOM = 3.0  # points: what an interval may exclude


@dataclass(frozen=True)
class Question:
    """Differences between arms; each is named and adds up arms with signs."""

    asked: str
    lab: str  # of labs/questions.py
    differences: dict[str, tuple[tuple[int, str], ...]]
    note: str = ""  # what a reader must know to read the differences rightly


def less(first: str, second: str) -> tuple[tuple[int, str], ...]:
    return (1, first), (-1, second)


def learned(name: str, count: int, usual: int, what: str, plain: str = "") -> str:
    """The arm of so many examples; the usual number is that of the plain arm."""
    return (plain or name) if count == usual else f"{name}, {count:,} {what}"


RUNGS = ("light", "medium", "strong", "mixup", "cutmix")
RATES = ("3e-4", "3e-3")
SPREADS = (0.005, 0.02, 0.3)  # of first weights; the ViT has 0.08, the encoder of reviews 0.05
PICTURES = {500: 24, 2_000: 12, 8_000: 6}  # epochs by pictures to learn from
REVIEWS = {500: 12, 4_000: 3, 16_000: 2}
ARMS = {
    "ViT": Arm("vit"),
    "ViT, pooler": Arm("vit", {"pooling": "pooler"}),
    "ViT, mean": Arm("vit", {"pooling": "mean"}),
    **{f"ViT, {r}": Arm("vit", {"augment": r} if r in RUNGS[:3] else {"mix": r}) for r in RUNGS},
    "ViT, stem": Arm("vit", {"stem": 48}),
    "ViT, no positions": Arm("vit", {"positions": "none"}),
    "ViT, sinusoidal": Arm("vit", {"positions": "sinusoidal"}),
    "ViT, half the patches": Arm("vit", {"patch_dropout": 0.5}),
    "CNN": Arm("cnn"),
    **{f"CNN, {r}": Arm("cnn", {"treatment": r}) for r in RUNGS},
    **{
        f"{name}, dropout {p}": Arm("head", changes | {"head_dropout": p})
        for name, changes in {"frozen": {}, "last block learns": {"train_layers": 1, "lr": 1e-3}}.items()
        for p in (0.0, 0.2, 0.5)
    },
    "encoder, mean": Arm("text"),
    **{f"encoder, {p}": Arm("text", {"pooling": p}) for p in ("first", "max", "attention")},
    "word pieces, 8,000": Arm("text", {"tokenizer": "wordpiece", "vocab_size": 8_000}),
    "batch 8": Arm("text", {"batch_size": 8}),
    "4 times 8": Arm("text", {"batch_size": 8, "accumulate": 4}),
    "batch 8, half the rate": Arm("text", {"batch_size": 8, "lr": 5e-4}),
    **{f"rate {r}": Arm("text", {"lr": float(r)}) for r in RATES},
    "no positions": Arm("text", {"positions": "none"}),
    "learned positions": Arm("text", {"positions": "learned"}),
    "64 tokens": Arm("text", {"max_length": 64}),
    "ViT, not divided": Arm("vit", {"attends": "undivided"}),
    "encoder, not divided": Arm("text", {"attends": "undivided"}),
    "encoder, one head": Arm("text", {"num_heads": 1}),
    "encoder, one head, not divided": Arm("text", {"num_heads": 1, "attends": "undivided"}),
    "ViT, K is V": Arm("vit", {"attends": "keys as values"}),
    "encoder, K is V": Arm("text", {"attends": "keys as values"}),
    **{f"ViT, spread {s}": Arm("vit", {"init_std": s}) for s in SPREADS},
    **{f"encoder, spread {s}": Arm("text", {"init_std": s}) for s in SPREADS},
    "ViT, branches from 0": Arm("vit", {"zero_init": True}),
    "encoder, local": Arm("text", {"attention": "local", "attention_window": 16}),
    "encoder, linear": Arm("text", {"attention": "linear"}),
    "ViT, mean, local": Arm("vit", {"pooling": "mean", "attention": "local", "attention_window": 8}),
    "ViT, mean, linear": Arm("vit", {"pooling": "mean", "attention": "linear"}),
    **{f"ViT, {n:,} pictures": Arm("vit", {"count": n, "epochs": e}) for n, e in PICTURES.items() if n != 2_000},
    **{f"CNN, {n:,} pictures": Arm("cnn", {"count": n, "epochs": e}) for n, e in PICTURES.items() if n != 2_000},
    **{f"encoder, {n:,} reviews": Arm("text", {"labels": n, "epochs": e}) for n, e in REVIEWS.items() if n != 4_000},
    **{f"TF-IDF, {n:,} reviews": Arm("tfidf", {"labels": n}) for n in REVIEWS},
    **{f"{n:,} labels, TF-IDF": Arm("tfidf", {"labels": n}) for n in PASSES},
    **{
        f"{n:,} labels, {name}": Arm("labels", {"labels": n, "pretrained": p})
        for n in PASSES
        for name, p in (("pre-trained", True), ("from nothing", False))
    },
}  # fmt: skip
QUESTIONS = {
    "pooler": Question("Pooler output or raw [CLS]?", "pooler", {
        "[CLS] less pooler": less("ViT", "ViT, pooler"), "[CLS] less the mean": less("ViT", "ViT, mean"),
    }),
    "ladder": Question("What does each rung of augmentation do for a ViT?", "ladder", {
        f"{r} less none": less(f"ViT, {r}", "ViT") for r in RUNGS
    }),
    "bias": Question("Does a ViT gain more from augmentation than a CNN?", "bias", {
        "CNN less ViT, no augmentation": less("CNN", "ViT"),
        **{f"{r}: the ViT's change less the CNN's":
           (*less(f"ViT, {r}", "ViT"), (-1, f"CNN, {r}"), (1, "CNN")) for r in RUNGS},
    }, "A change is what a rung adds to no augmentation, and may be a loss: above 0, the CNN loses more or gains less than the ViT."),
    "stem": Question("What does a convolution stem alone give?", "bias", {"stem less none": less("ViT, stem", "ViT")}),
    "head-dropout": Question("Dropout in the head, frozen or last block learning?", "head-dropout", {
        f"{name}, dropout {p} less none": less(f"{name}, dropout {p}", f"{name}, dropout 0.0")
        for name in ("frozen", "last block learns") for p in (0.2, 0.5)
    } | {"last block less frozen": less("last block learns, dropout 0.0", "frozen, dropout 0.0")},
        "A head on frozen weights learns at a rate of 3e-3, one whose last block learns too at 1e-3."),
    "positions": Question("Which positions?", "positions", {
        "reviews, sinusoidal less none": less("encoder, mean", "no positions"),
        "reviews, sinusoidal less learned": less("encoder, mean", "learned positions"),
        "pictures, learned less none": less("ViT", "ViT, no positions"),
        "pictures, learned less sinusoidal": less("ViT", "ViT, sinusoidal"),
    }),
    "pooling": Question("Which pooling?", "pooling", {
        f"mean less {p}": less("encoder, mean", f"encoder, {p}") for p in ("first", "max", "attention")
    }),
    "tokens": Question("Words or sub-words?", "tokens", {
        "word pieces less words": less("word pieces, 8,000", "encoder, mean"),
    }),
    "batch": Question("Which batch and rate?", "accumulation", {
        "32 less 8": less("encoder, mean", "batch 8"),
        "32 less 4 times 8": less("encoder, mean", "4 times 8"),
        "8 at half the rate less 8": less("batch 8, half the rate", "batch 8"),
        **{f"rate {r} less 1e-3": less(f"rate {r}", "encoder, mean") for r in RATES},
    }),
    "cheaper": Question("What does reading less cost?", "cheaper", {
        "half the patches less all": less("ViT, half the patches", "ViT"),
        "64 tokens less 128": less("64 tokens", "encoder, mean"),
    }, "Half of the patches are left out in training; in judging all are read."),
    "scale": Question("What does a training without the root of d_k lose?", "scale", {
        "reviews, 4 heads of 32: not divided less divided": less("encoder, not divided", "encoder, mean"),
        "reviews, a head of 128: not divided less divided": less("encoder, one head, not divided", "encoder, one head"),
        "pictures, 4 heads of 24: not divided less divided": less("ViT, not divided", "ViT"),
    }),
    "shared": Question("What does a training lose whose keys are its values?", "shared", {
        "reviews, K = V less values of their own": less("encoder, K is V", "encoder, mean"),
        "pictures, K = V less values of their own": less("ViT, K is V", "ViT"),
    }),
    "initial": Question("How much hangs on the spread of the first weights?", "initial", {
        **{f"pictures, {s} less 0.08": less(f"ViT, spread {s}", "ViT") for s in SPREADS},
        "pictures, branches from 0 less 0.08": less("ViT, branches from 0", "ViT"),
        **{f"reviews, {s} less 0.05": less(f"encoder, spread {s}", "encoder, mean") for s in SPREADS},
    }),
    "kinds": Question("What do local and linear attention cost in accuracy?", "cheaper", {
        "reviews, local (16) less full": less("encoder, local", "encoder, mean"),
        "reviews, linear less full": less("encoder, linear", "encoder, mean"),
        "pictures, local (8) less full": less("ViT, mean, local", "ViT, mean"),
        "pictures, linear less full": less("ViT, mean, linear", "ViT, mean"),
    }),
    "hunger": Question("Who needs more examples?", "hunger", {
        **{f"{n:,} pictures, CNN less ViT": less(*(learned(name, n, 2_000, "pictures") for name in ("CNN", "ViT")))
           for n in PICTURES},
        **{f"{n:,} reviews, TF-IDF less encoder":
           less(f"TF-IDF, {n:,} reviews", learned("encoder", n, 4_000, "reviews", "encoder, mean")) for n in REVIEWS},
    }, "Models that learn from 500, 2,000 and 8,000 pictures see them 24, 12 and 6 times, encoders that learn from 500, 4,000 and 16,000 "
       "reviews 12, 3 and 2 times. An encoder sees 128 tokens of a review, TF-IDF all of it."),
    "few-labels": Question("Does pre-training help?", "transfer", {
        f"{n:,} labels, pre-trained less {other}": less(f"{n:,} labels, pre-trained", f"{n:,} labels, {other}")
        for other in ("from nothing", "TF-IDF") for n in PASSES
    }, "Both encoders read the same labels equally often (15, 5 and 1 times), at rates of their own: 3e-4, less in lower layers, and 1e-3; they see "
       "128 tokens of a review, TF-IDF all of it. One pre-training stands behind all seeds. From nothing, other settings go further than either arm (`imdb-encoder-small-best`, "
       "`imdb-encoder-base-best`), so this does not tell what pre-training is worth beside them."),
}  # fmt: skip


def arms_of(question: Question) -> list[str]:
    return list(dict.fromkeys(name for terms in question.differences.values() for _, name in terms))


# --- runs ------------------------------------------------------------------------------------------


def file_of(runs: Path, arm: str, seed: int) -> Path:
    return runs / f"{''.join(c if c.isalnum() or c in '.-' else '-' for c in arm)}-seed{seed}.npz"


def train(runs: Path, arm: str, seed: int) -> float:
    """One training, kept as right and wrong answers; the seconds of processor time that it took."""
    started, chosen = time.process_time(), ARMS[arm]
    right = FITS[chosen.kind](seed, runs, **chosen.changes)
    seconds = time.process_time() - started
    path = file_of(runs, arm, seed)
    with path.with_suffix(".part").open("wb") as out:
        np.savez(out, right=np.packbits(right), n=len(right), seconds=seconds)
    path.with_suffix(".part").replace(path)
    return seconds


def hits(runs: Path, arm: str, seed: int) -> tuple[np.ndarray, float]:
    """The answers of a training ``[n]`` as 0 and 1, and its seconds."""
    with np.load(file_of(runs, arm, seed)) as found:
        return np.unpackbits(found["right"], count=int(found["n"])), float(found["seconds"])


# --- what is said of them --------------------------------------------------------------------------


def difference(runs: Path, terms: Sequence[tuple[int, str]], seeds: Sequence[int]) -> dict[str, Any]:
    """The mean over seeds in points, its interval and p before correction."""
    signed = [[sign * hits(runs, arm, seed)[0].astype(float) for sign, arm in terms] for seed in seeds]
    return paired(np.array([sum(parts) for parts in signed]))


def said_of(found: dict[str, Any]) -> str:
    """What a difference shows, in a few words."""
    low, high = found["interval"]
    if found["p_holm"] < 0.05:
        return "shown"
    return f"less than {ROOM:.0f} points" if low > -ROOM and high < ROOM else "open"


def cell(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['points']:+.1f} ({low:+.1f} to {high:+.1f})"


def judged(runs: Path, key: str, wanted: Sequence[int]) -> dict[str, Any] | None:
    """A question over the seeds that all of its arms have; None: fewer than two."""
    question = QUESTIONS[key]
    arms = arms_of(question)
    seeds = [s for s in wanted if all(file_of(runs, arm, s).is_file() for arm in arms)]
    if len(seeds) < 2:
        return None
    found = {name: difference(runs, terms, seeds) for name, terms in question.differences.items()}
    corrected(found)
    reached = {}
    for arm in arms:
        answers = [hits(runs, arm, seed) for seed in seeds]
        reached[arm] = {
            "accuracy": [float(right.mean()) for right, _ in answers],
            "cpu_seconds": [round(seconds, 1) for _, seconds in answers],
        }
    return worded(key, {"seeds": seeds, "differences": found, "arms": reached})


def worded(key: str, found: dict[str, Any]) -> dict[str, Any]:
    """A question's figures with their words: what was asked, what each difference shows, and the answer."""
    question = QUESTIONS[key]
    if found["differences"].keys() != question.differences.keys():
        raise SystemExit(f"{key}: the kept differences are not those that are asked now; judge them again")
    differences = {}
    for name in question.differences:
        differences[name] = found["differences"][name] | {"says": said_of(found["differences"][name])}
    told = "; ".join(f"{name} {cell(one)}, {one['says']}" for name, one in differences.items())
    judges = " or ".join(f"{n:,}" for n in sorted({one["n"] for one in differences.values()}))
    answer = (
        f"In points, {len(found['seeds'])} seeds, {judges} judged examples, 95 % intervals (shown: p < 0.05 after Holm's correction; "
        f"less than {ROOM:.0f} points: the interval lies within them; open: neither): {told}. {question.note}"
    )
    said = {"asked": question.asked, "lab": question.lab, "note": question.note, "answer": answer.strip()}
    return found | said | {"differences": differences}


def merged(path: Path, found: dict[str, Any], head: dict[str, Any]) -> dict[str, Any]:
    """The questions of a result file with those found now, each with what it was measured on, in the order of QUESTIONS."""
    now = {key: head[key] for key in ("date", "machine", "versions", "commit")}
    old = kept(path) or {"questions": {}}
    of_old = {key: old[key] for key in now if key in old}
    known = {key: {"measured": of_old, **one} for key, one in old["questions"].items()}
    for key, one in found.items():
        if key not in known or len(one["seeds"]) >= len(known[key]["seeds"]):
            known[key] = one | {"measured": now}
    return {key: known[key] for key in QUESTIONS if key in known}


@command(
    "lab questions",
    ("questions", dict(nargs="*", choices=[[], *QUESTIONS], help="all unless named")),
    out="lab-questions",
    seeds=list(range(5)),
    minutes=MINUTES,
    runs=Path("runs/lab-questions"),
    words=(False, "train nothing; write the words of all questions of the file anew"),
)
def main(options: Any) -> None:
    if options.words:
        if not (old := kept(options.out)):
            options.error(f"{options.out} is not there: without --words it is made")
        questions = {key: worded(key, one) for key, one in old["questions"].items()}
        write_result(options.out, old | {"questions": questions})
        return
    budget = Budget(options.minutes)
    options.runs.mkdir(parents=True, exist_ok=True)
    wanted = dict.fromkeys(arm for key in options.questions or QUESTIONS for arm in arms_of(QUESTIONS[key]))
    left = [(a, s) for s in options.seeds for a in wanted if not file_of(options.runs, a, s).is_file()]
    while left and not budget.spent():
        arm, seed = left.pop(0)
        with budget.piece():
            seconds = train(options.runs, arm, seed)
        right = hits(options.runs, arm, seed)[0].mean()
        print(f"{arm}, seed {seed}: {right:.2%}, {seconds:.0f} s", flush=True)
    found = {key: one for key in QUESTIONS if (one := judged(options.runs, key, options.seeds)) is not None}
    if found:
        options.write({
            "title": "The labs' questions",
            "learned": {"pictures": LEARNED_PICTURES, "reviews": LEARNED_REVIEWS},
            "judged": {"pictures": JUDGED_PICTURES, "reviews": JUDGED_REVIEWS},
            "questions": merged(options.out, found, options.facts),
        })  # fmt: skip
    for one in found.values():
        print(f"{one['asked']} {one['answer']}")
    print(f"{len(left)} trainings are left; {len(found)} of {len(QUESTIONS)} questions in {options.out}")
