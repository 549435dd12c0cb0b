"""Pre-training speed: BERT's two tasks at MiniLM's size, glassformer against Hugging Face's Trainer, real IMDb text.

    make bench-pretrain      (or: .venv/bin/python -m benchmarks.speed.pretrain --rounds 5 --reviews 64)

Contenders, timed in turn on the same pairs of segments (at most 128 tokens, as BERT's first phase has them),
masked beforehand, once for all, from the same random weights (MiniLM-L6's sizes and vocabulary, both heads):

1. HF Trainer as it comes, over transformers' BertForPreTraining: bf16 autocast, pairs in random order, padded
   to the longest of the batch, dropout 0.1.
2. HF Trainer at its best on this work: the same with batches of similar length, dropout 0, and the faster of
   transformers' attentions (tried on the warm-up's pairs).
3. glassformer, with the loop, the objective and the optimiser of ``MaskedLM``: bf16 where the machine has it,
   packed, dropout 0. The masked-word head is computed at the masked tokens only.

All use batches of 32 pairs and fused AdamW at 5e-4, clip the gradient's norm at 1, keep one model over all
windows, and keep freed memory: BertForPreTraining scores the whole vocabulary at every token, and a machine
that is slow to hand out so much fresh memory in every step would be all that is measured. Tokenizing, pairing
and masking are not timed; drawing batches, forward, backward and update are. Tokens are real ones, special
ones included.
"""

import logging
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from benchmarks.harness.command import command
from benchmarks.harness.options import count
from benchmarks.harness.results import half, result_file
from benchmarks.harness.rounds import Contender, Window, compared, glassformer_epoch, in_own_process
from benchmarks.speed.hf_trainer import Rows, TrainerLoop, batches_alike, be_quiet, precision_of
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.data.batching import BatchSettings, training_batches
from glassformer.data.masking import MaskedBatch, MaskedStream, MaskSettings, chunk_texts
from glassformer.data.sources import load_text_dataset
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import InputError
from glassformer.families.pretrained import load_pretrained
from glassformer.packing import Packing
from glassformer.process import keep_freed_memory
from glassformer.runtime import choose_device, choose_dtype
from glassformer.tasks.masked_lm.recipe import PretrainFitConfig
from glassformer.train.objectives import MaskedWords
from glassformer.train.optim import MixedPrecisionOptimizer

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

VOCABULARY = "all-minilm-l6-v2"
SIZES = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
BATCH = 32
LR = 5e-4


@dataclass(frozen=True)
class Pair:
    """Two segments as the model reads them, and what it is asked."""

    ids: np.ndarray  # [T]
    segments: np.ndarray  # [T] 0 and 1
    rows: np.ndarray  # [K] which tokens are asked for
    labels: np.ndarray  # [K] what stood there
    stranger: int  # 1 where the second segment does not follow the first


def make_pairs(tokenizer: Tokenizer, texts: Sequence[str], max_length: int, seed: int) -> list[Pair]:
    """Pairs from texts, paired and masked as ``MaskedLM`` does it in its first epoch."""
    table = chunk_texts(tokenizer, texts, max_length - 3)
    masks, settings = MaskSettings.of(tokenizer), BatchSettings()
    known = {"accumulate": 1, "seed": seed, "device": torch.device("cpu"), "next_sentence": True}
    stream = MaskedStream.of(table, tokenizer, masks=masks, max_length=max_length, settings=settings, **known)
    pairs = []
    for i in range(len(table)):
        one = stream.pack((0, np.array([i])))
        assert one.segments is not None
        assert one.is_random_next is not None
        parts = (one.ids, one.segments, one.rows, one.labels)
        pairs.append(Pair(*(part.numpy() for part in parts), stranger=int(one.is_random_next)))
    return pairs


def load_rounds(tokenizer: Tokenizer, rounds: int, reviews: int, max_length: int, seed: int) -> list:
    """The pairs of each round, other ones each; the last entry is the warm-up's.

    A window has whole batches of similar length, as an epoch over many pairs has them: all pairs are sorted together.
    """
    dataset = load_text_dataset("imdb", limit=(rounds + 1) * reviews, seed=seed, splits=["train"])
    texts = dataset.splits["train"].texts
    order = np.random.default_rng(seed).permutation(len(texts))
    pairs = make_pairs(tokenizer, [texts[i] for i in order], max_length, seed)
    if len(pairs) <= rounds:
        what = f"{len(texts)} reviews give {len(pairs)} pairs of segments for {rounds + 1} windows"
        raise InputError(what, where="--reviews", fix="Give more reviews, or fewer --rounds")
    lengths = [len(pair.ids) for pair in pairs]
    batches = batches_alike(lengths, min(BATCH, len(pairs) // (rounds + 1)), seed)
    each = len(batches) // (rounds + 1)
    windows = [np.concatenate(batches[i * each : (i + 1) * each]) for i in range(rounds + 1)]
    return [[pairs[i] for i in window] for window in windows]


def random_weights(folder: Path, vocab_size: int, seed: int, **sizes: Any) -> Path:
    """A folder as the Hub has it, of a BERT with both heads that nothing has been taught."""
    from transformers import BertConfig, BertForPreTraining

    be_quiet()
    torch.manual_seed(seed)
    BertForPreTraining(BertConfig(vocab_size=vocab_size, **sizes)).save_pretrained(folder)
    return folder


def tokens_of(pairs: Sequence[Pair]) -> int:
    return sum(len(pair.ids) for pair in pairs)


def as_row(pair: Pair) -> dict[str, Any]:
    """A pair under transformers' names; -100 where no token is asked for."""
    labels = np.full(len(pair.ids), -100, np.int64)
    labels[pair.rows] = pair.labels
    about = {"labels": labels, "next_sentence_label": pair.stranger}
    return {"input_ids": pair.ids, "token_type_ids": pair.segments, **about}


def trainer_contender(
    name: str, folder: Path, rounds: list[list[Pair]], *, grouped: bool, dropout: float
) -> Contender:
    from transformers import BertForPreTraining

    be_quiet()
    dropouts: dict[str, Any] = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = BertForPreTraining.from_pretrained(folder, **dropouts)
    sampling = "sequential" if grouped else "random"
    loop = TrainerLoop(model, lr=LR, batch=BATCH, bf16=half(), sampling=sampling)
    if grouped:
        loop.choose_attention(Rows([as_row(pair) for pair in rounds[-1]]))

    def run(turn: int) -> Window:
        pairs = rounds[turn]
        seconds, loss = loop.epoch(Rows([as_row(pair) for pair in pairs]), seed=max(turn, 0))
        return Window(len(pairs), tokens_of(pairs), seconds, loss)

    return Contender(name, loop.setting(), run, noun="pairs")


@dataclass(frozen=True)
class PairStream:
    """Masked pairs in packed batches, as the training loop asks for them; an example is one token to guess."""

    pairs: list[Pair]
    settings: BatchSettings
    seed: int
    device: torch.device

    @property
    def examples(self) -> int:
        return sum(len(pair.rows) for pair in self.pairs)

    def steps(self, epoch: int) -> list[list[np.ndarray]]:
        lengths = np.array([len(pair.ids) for pair in self.pairs])
        return [[index] for index in training_batches(lengths, self.settings, self.seed, epoch)]

    def pack(self, index: np.ndarray) -> MaskedBatch:
        chosen = [self.pairs[i] for i in index.tolist()]
        lengths = tuple(len(pair.ids) for pair in chosen)
        starts = np.cumsum([0, *lengths[:-1]])
        rows = [pair.rows + start for pair, start in zip(chosen, starts, strict=True)]

        def joined(parts: Iterable[np.ndarray]) -> torch.Tensor:
            return torch.from_numpy(np.concatenate([*parts])).to(self.device)

        columns = ("ids", "segments", "labels")
        ids, segments, labels = (joined(getattr(pair, key) for pair in chosen) for key in columns)
        stranger = torch.tensor([pair.stranger for pair in chosen], device=self.device)
        packing = Packing(lengths, self.device)
        return MaskedBatch(ids, segments, packing, joined(rows), labels, stranger, index)

    def cut(self, index: np.ndarray, rank: int, size: int) -> np.ndarray:
        return index  # one process


def glassformer_contender(folder: Path, rounds: list[list[Pair]]) -> Contender:
    config = PretrainFitConfig(
        epochs=1, lr=LR, betas=(0.9, 0.999), schedule="constant", warmup=0.0, weight_decay=0.0, batch_size=BATCH,
        batch_tokens=0,
    )  # fmt: skip
    device = choose_device()
    dtype = choose_dtype("auto", device)
    network = load_pretrained(folder, "pretraining", dropout=0.0, attention_dropout=0.0).to(device)
    optimizer = MixedPrecisionOptimizer(network, config, dtype)
    settings = BatchSettings(config.batch_size, config.batch_tokens, config.length_window)

    def run(turn: int) -> Window:
        stream = PairStream(rounds[turn], settings, max(turn, 0), device)
        seconds, loss = glassformer_epoch(network, optimizer, config, stream, MaskedWords())
        return Window(len(rounds[turn]), tokens_of(rounds[turn]), seconds, loss)

    setting = {"precision": precision_of(dtype), "batch_size": BATCH, "padding": "none", "dropout": 0.0}
    return Contender("glassformer", setting | {"optimiser": "AdamW, fused"}, run, noun="pairs")


def make(key: str, folder: Path, rounds: list[list[Pair]]) -> Contender:
    """The contender of that key, made in its own process."""
    logging.disable(logging.WARNING)
    keep_freed_memory()
    if key == "default":
        return trainer_contender("HF Trainer, as it comes", folder, rounds, grouped=False, dropout=0.1)
    if key == "best":
        return trainer_contender("HF Trainer, at its best", folder, rounds, grouped=True, dropout=0.0)
    return glassformer_contender(folder, rounds)


@command(
    "pre-training a BERT of MiniLM's size on masked words and next sentences of IMDb reviews",
    out=lambda options: result_file("pretrain"),
    packages=("transformers", "accelerate"),
    rounds=dict(type=count, default=5, help="timed windows of each contender"),
    reviews=dict(type=count, default=64, help="reviews in a window"),
    max_length=dict(type=count, default=128, help="tokens of a pair at most"),
    seed=0,
)
def main(options: Any) -> dict[str, Any]:
    if not 16 <= options.max_length <= 512:
        options.error(f"--max-length {options.max_length}: give 16 to 512, the positions that the model has")
    with tempfile.TemporaryDirectory() as temporary:
        tokenizer = load_tokenizer(resolve_checkpoint(VOCABULARY).path)
        rounds = load_rounds(tokenizer, options.rounds, options.reviews, options.max_length, options.seed)
        folder = random_weights(Path(temporary), tokenizer.get_vocab_size(), options.seed, **SIZES)
        contenders = [in_own_process(make, key, folder, rounds) for key in ("default", "best", "glassformer")]
        found = compared(contenders, options.rounds)
    return {
        "threads": options.facts["machine"]["threads"],
        "weights": "random, the same for all",
        "sizes": SIZES | {"vocab_size": tokenizer.get_vocab_size()},
        "reviews_per_window": options.reviews,
        "max_length": options.max_length,
        "seed": options.seed,
        **found,
    }
