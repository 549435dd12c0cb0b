"""Fine-tuning speed: glassformer against Hugging Face's Trainer, MiniLM weights, real IMDb reviews.

    make bench      (or: .venv/bin/python -m benchmarks.speed.train_imdb --rounds 5 --reviews 256)

Contenders, timed in turn on the same reviews, cut to 256 tokens. A window has whole batches of similar
length, as an epoch over many reviews has them, so that who pads does it no more than there:

1. HF Trainer as commonly run: fp32, every review padded to 256 tokens, batches of 8, the checkpoint's dropout
of 0.1.
2. HF Trainer at its best on this work: bf16 autocast (fp32 where the processor has no bf16), batches of 32,
   padded to the longest of the batch, dropout 0, the faster of transformers' attentions (tried on the
   warm-up's reviews). This one and those that follow tell the memory allocator to keep freed blocks.
3. A plain PyTorch loop over Hugging Face's model, with the settings of 2 (``hf_trainer.PlainLoop``).
4. glassformer: bf16 where the machine has it, no padding, batches of 32, dropout 0.

``--model bert-base`` takes BERT-base's size with random weights: a step costs the same whatever the weights
are. All use AdamW at 5e-5 and clip the gradient's norm at 1. Loading, tokenizing and making the optimiser are
not timed; drawing batches, forward, backward and update are. Tokens are real ones, [CLS] and [SEP] included.
"""

import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness.command import command
from benchmarks.harness.results import half, result_file
from benchmarks.harness.rounds import Contender, Window, compared, in_own_process, steps_of
from benchmarks.speed.hf_trainer import (
    POOL,
    Loop,
    PlainLoop,
    Rows,
    TrainerLoop,
    batches_alike,
    be_quiet,
    precision_of,
)
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.data.sources import load_text_dataset
from glassformer.data.text import encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.process import keep_freed_memory
from glassformer.runtime import choose_device, choose_dtype

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

MODEL = "all-minilm-l6-v2"
MAX_LENGTH = 256
LR = 5e-5
BATCH = 32  # of all but the common setting

Rounds = list[tuple[list[str], list[int]]]  # the reviews of each round; the last entry is the warm-up's


def load_rounds(rounds: int, reviews: int, seed: int) -> Rounds:
    """Real reviews, other ones for each round, in random order; labels 0 and 1."""
    limit = (rounds + 1) * reviews
    split = load_text_dataset("imdb", limit=limit, seed=seed, splits=["train"]).splits["train"]
    order = np.random.default_rng(seed).permutation(len(split.texts))
    targets = [int(label in (1, "pos")) for label in split.labels or ()]
    parts = np.array_split(order, rounds + 1)
    return [([split.texts[i] for i in part], [targets[i] for i in part]) for part in parts]


def epoch_rounds(rounds: int, reviews: int, batch: int, seed: int) -> Rounds:
    """As ``load_rounds``, but the reviews of a window are whole batches of similar length, as an epoch over many reviews
    has them: 50 batches of 32 or more are sorted together. Whoever pads does so no more than in such an epoch.
    """
    texts, targets = load_rounds(0, max((rounds + 1) * reviews, POOL * BATCH), seed)[0]
    lengths = encode(load_tokenizer(resolve_checkpoint(MODEL).path), texts, max_length=MAX_LENGTH).lengths
    batches, each = batches_alike(lengths, batch, seed), reviews // batch
    windows = [np.concatenate(batches[i * each : (i + 1) * each]) for i in range(rounds + 1)]
    return [([texts[i] for i in window], [targets[i] for i in window]) for window in windows]


def trainer_contender(
    name: str, path: Path, rounds: Rounds, *, batch: int, bf16: bool, grouped: bool, dropout: float | None
) -> Contender:
    """HF Trainer with one model and one optimiser, kept from window to window."""
    sampling, width = ("sequential", None) if grouped else ("random", MAX_LENGTH)
    loop = TrainerLoop(hf_model(path, dropout), lr=LR, batch=batch, bf16=bf16, sampling=sampling, width=width)
    return looped(name, loop, path, rounds, choose=grouped)


def hf_model(path: Path, dropout: float | None) -> torch.nn.Module:
    """The classifier as transformers makes it; None keeps the checkpoint's own dropout."""
    from transformers import AutoModelForSequenceClassification

    be_quiet()
    names = () if dropout is None else ("hidden_dropout_prob", "attention_probs_dropout_prob")
    options = {"num_labels": 2, **dict.fromkeys(names, dropout)}
    return AutoModelForSequenceClassification.from_pretrained(path, **options).to(choose_device())


def looped(name: str, loop: Loop, path: Path, rounds: Rounds, *, choose: bool) -> Contender:
    """A loop over the rounds; with ``choose`` it may take either of transformers' attentions."""
    tokenizer = load_tokenizer(path)
    tables = [encode(tokenizer, texts, max_length=MAX_LENGTH) for texts, _ in rounds]

    def rows(turn: int) -> Rows:
        labelled = zip(tables[turn], rounds[turn][1], strict=True)
        return Rows([{"input_ids": ids, "labels": label} for ids, label in labelled])

    def run(turn: int) -> Window:
        seconds, loss = loop.epoch(rows(turn), seed=max(turn, 0))
        return Window(len(tables[turn]), int(tables[turn].lengths.sum()), seconds, loss)

    if choose:
        loop.choose_attention(rows(-1))

    return Contender(name, loop.setting(), run)


def classifier(path: Path, seed: int, lr: float = LR, **options: Any) -> Any:
    """``TextClassifier`` with the settings of the loops above: one epoch at a constant rate, no dropout."""
    from glassformer.tasks.text_classification.estimator import TextClassifier

    same: dict[str, Any] = {"schedule": "constant", "warmup": 0.0, "weight_decay": 0.0, "batch_size": BATCH}
    same |= {"dropout": 0.0, "attention_dropout": 0.0, "max_length": MAX_LENGTH, "epochs": 1}
    return TextClassifier(str(path), lr=lr, seed=seed, **same, **options)


def glassformer(path: Path, rounds: Rounds, **options: str) -> Contender:
    """``TextClassifier.fit``; ``options``: further parameters, such as the head's."""
    setting = {"precision": precision_of(choose_dtype("auto", choose_device())), "batch_size": 32}
    setting |= {"padding": "none", "dropout": 0.0}

    def run(turn: int) -> Window:
        texts, labels = rounds[turn]
        fitted = classifier(path, max(turn, 0), **options).fit(texts, labels)
        return Window(len(texts), *steps_of(fitted.history_))

    return Contender("glassformer", setting | options, run)


def common(path: Path, rounds: Rounds) -> Contender:
    name = "HF Trainer, as commonly run"
    return trainer_contender(name, path, rounds, batch=8, bf16=False, grouped=False, dropout=None)


def best(path: Path, rounds: Rounds) -> Contender:
    name = "HF Trainer, at its best"
    return trainer_contender(name, path, rounds, batch=BATCH, bf16=half(), grouped=True, dropout=0.0)


def plain(path: Path, rounds: Rounds) -> Contender:
    loop = PlainLoop(hf_model(path, dropout=0.0), lr=LR, batch=BATCH)
    return looped("PyTorch loop over the HF model", loop, path, rounds, choose=True)


MAKERS = {"common": common, "best": best, "plain": plain, "glassformer": glassformer}


def make(key: str, path: Path, rounds: Rounds) -> Contender:
    """The contender of that key, made in its own process."""
    logging.disable(logging.WARNING)
    if key != "common":
        keep_freed_memory()
    return MAKERS[key](path, rounds)


def random_bert_base(folder: Path, vocabulary: Path) -> Path:
    """A folder as the Hub has bert-base-uncased, with random weights and the vocabulary of another folder."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    BertModel(BertConfig()).save_pretrained(folder)
    for file in [*vocabulary.glob("tokenizer*"), *vocabulary.glob("vocab*")]:
        shutil.copy(file, folder)
    return folder


@command(
    "one epoch of fine-tuning on IMDb reviews",
    out=lambda options: result_file(f"train_imdb{'' if options.model == MODEL else '-' + options.model}"),
    packages=("transformers", "accelerate"),
    rounds=(5, "timed windows of each contender"),
    reviews=(256, "reviews in a window"),
    seed=0,
    model=dict(choices=(MODEL, "bert-base"), default=MODEL),
    contenders=dict(choices=MAKERS, nargs="+", default=list(MAKERS)),
)
def main(options: Any) -> dict[str, Any]:
    if options.reviews < BATCH or options.reviews % BATCH:
        options.error(f"--reviews {options.reviews}: give a multiple of {BATCH}, the reviews of a batch")
    with tempfile.TemporaryDirectory() as folder:
        rounds = epoch_rounds(options.rounds, options.reviews, BATCH, options.seed)
        path = resolve_checkpoint(MODEL).path
        if options.model != MODEL:
            path = random_bert_base(Path(folder), path)
        keys = sorted(options.contenders, key="glassformer".__eq__)  # ours is the last
        found = compared([in_own_process(make, key, path, rounds) for key in keys], options.rounds)
    return {
        "model": options.model,
        "weights": "random" if options.model != MODEL else "all-MiniLM-L6-v2",
        "reviews_per_window": options.reviews,
        "max_length": MAX_LENGTH,
        "seed": options.seed,
        **found,
    }
