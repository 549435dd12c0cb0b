"""The table of facts: what the documents state of each row, where it is looked at, and a change that breaks it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glassformer.checkpoints.hub import CATALOG
from glassformer.data.masking import mask_tokens
from glassformer.families.bert import bert
from glassformer.families.vit import vit_base
from glassformer.models.image import ImageEncoder
from glassformer.models.skipgram import noise_distribution
from glassformer.models.text import TextEncoder
from glassformer.nn.positions import LearnedPositions, SinusoidalPositions
from glassformer.tasks.catalog import load_recipe

from .built import Built, DataPreview, splits


@dataclass(frozen=True)
class Fact:
    """``look`` at what was built gives ``wanted``, and with ``change`` to the recipe it does not."""

    row: int
    recipe: str
    what: str
    look: DataPreview
    wanted: Any
    change: str

    def __str__(self) -> str:
        return f"{self.row}-{self.what}".replace(" ", "-")


def name_of(part: Any) -> str:
    return type(part).__name__


def sizes(b: Built) -> tuple[int, ...]:
    c = b.model.config.encoder
    return c.d_model, c.num_layers, c.num_heads, c.d_ff


def head(b: Built) -> list[Any]:
    """The head's layers in the order in which a row passes them."""
    h = b.model.head
    last = [("dropout", h.dropout.p)] if h.dropout.p else []
    last.append(("linear", h.out.in_features, h.out.out_features))
    if h.hidden is None:
        return last
    first = [("dropout", h.input_dropout.p)] if h.input_dropout.p else []
    return [
        *first,
        ("linear", h.hidden.in_features, h.hidden.out_features),
        *([h.activation] * (h.activation != "none")),
        *last,
    ]


def norms(b: Built) -> set[float]:
    return {m.eps for m in b.model.modules() if isinstance(m, torch.nn.LayerNorm)}


def parameters(b: Built) -> int:
    """Of the real checkpoint, without memory for them; 0 for another than the one stated."""
    repo = CATALOG[b.recipe.model.model].repo
    with torch.device("meta"):
        if repo == "google-bert/bert-base-uncased":
            return sum(p.numel() for p in TextEncoder(bert()).parameters())
        if repo == "google/vit-base-patch16-224":
            return sum(p.numel() for p in ImageEncoder(vit_base()).parameters())
    return 0


def in_order(b: Built) -> bool:
    """Whether the order is a draw that knows no lengths."""
    order = np.concatenate([index for step in b.stream.steps(0) for index in step])
    return bool((order == np.random.default_rng([b.config.seed, 0]).permutation(len(order))).all())


def masks(b: Built) -> tuple[float, ...]:
    """Share of the tokens chosen; of these masked, drawn at random and kept, to one digit."""
    s = b.stream.masks
    plain = np.flatnonzero(~s.special)
    ids = np.random.default_rng(0).choice(plain, 200_000)
    read, rows = mask_tokens(ids, s, np.random.default_rng(1))
    masked, kept = (read[rows] == s.mask_id).mean(), (read[rows] == ids[rows]).mean()
    return tuple(round(float(x), 2) for x in (len(rows) / len(ids), masked, 1 - masked - kept))


def learns(b: Built, epoch: int) -> set[str]:
    """What learns in an epoch: parts of the model, layers by number."""
    calls = [c for c in b.calls if name_of(c) == "Unfreeze"]
    b.training.epoch = epoch
    for call in calls:
        call.start(b.training)
    b.training.epoch = 0
    names = [n for n, p in b.model.named_parameters() if p.requires_grad]
    return {n.split(".")[2] if n.startswith("encoder.layers") else n.split(".")[0] for n in names}


def positives(b: Built) -> tuple[bool, int, int]:
    """Whether a centre may draw one context twice, how many centres a step has, of how many words."""
    rows = [
        row for step in b.stream.steps(0) for index in step for row in b.stream.pack(index).positives.tolist()
    ]
    again = any(len(set(row)) < len(row) for row in rows if -1 not in row)
    size = b.model.centres.num_embeddings
    return again, len(rows) == size and len(b.stream.steps(0)) == 1, len(rows[0])


def first_norm_after(b: Built) -> str:
    return "post" if not b.layer.pre_norm else "pre"


def places(b: Built) -> tuple[str, bool, float]:
    """Kind of positions, whether a norm follows, dropout behind them."""
    e = b.model.embeddings
    kinds = {SinusoidalPositions: "sinusoidal", LearnedPositions: "learned"}
    return kinds[type(e.positions)], e.norm is not None, e.dropout.p


TUNED = "imdb-bert-given"
VIT = "cifar10-vit-base-given"
NTC = "ntc-encoder-given"
ONE = "flowers-vit-given"
PAIRS = "multi30k-transformer-given"
RNN = "multi30k-rnn"
W2V = "countries-word2vec-given"
MINI = "europe-given"
HEADS = "hotdog-head-given"
SMALL = "imdb-encoder-small-given"
WIDE = "imdb-encoder-base-given"


def training(row: int, recipe: str, **stated: Any) -> list[Fact]:
    """Facts of the optimizer and the batches."""
    looks: dict[str, tuple[DataPreview, str]] = {
        "optimizer": (
            lambda b: name_of(b.adam),
            "optimizer=adamw" if stated.get("optimizer") != "AdamW" else "optimizer=adam",
        ),
        "lr": (lambda b: b.group("lr"), "lr=3e-4"),
        "adam eps": (lambda b: b.group("eps"), "adam_eps=1e-4"),
        "decay": (lambda b: b.group("weight_decay"), "weight_decay=0.1"),
        "betas": (lambda b: b.group("betas"), "betas=[0.8, 0.99]"),
        "rates": (lambda b: b.rates, "schedule=linear"),
        "no warm-up": (lambda b: b.rates, "warmup=0.1"),
        "clip": (lambda b: b.config.clip, "clip=1.0"),
        "epochs": (lambda b: b.config.epochs, "epochs=7"),
        "batch": (lambda b: len(getattr(b.batch(), "index", b.batch())), "batch_size=5"),
        "order": (in_order, "length_window=50"),
    }
    return [
        Fact(
            row,
            recipe,
            key.replace("_", " "),
            looks[key.replace("_", " ")][0],
            value,
            looks[key.replace("_", " ")][1],
        )
        for key, value in stated.items()
    ]


def source(row: int, recipe: str, name: str) -> Fact:
    return Fact(
        row,
        recipe,
        f"data {recipe}",
        lambda b: b.recipe.data.source,
        name,
        "source=europe" if name != "europe" else "source=imdb",
    )


def changed(b: Built, name: str) -> tuple[str, ...]:
    """The changes that this was built with, for what is not part of the build: how examples are split."""
    plain = load_recipe(name).data.validation_size
    now = b.recipe.data.validation_size
    return () if now == plain else (f"validation_size={now}",)


FACTS: list[Fact] = [
    # --- 1: BERT on IMDb
    source(1, TUNED, "imdb"),
    Fact(1, TUNED, "25,000 to learn, none to choose by, 25,000 to judge", lambda b: splits(TUNED, *changed(b, TUNED)), (25_000, None, 25_000), "validation_size=0.1"),
    Fact(1, TUNED, "bert-base-uncased", parameters, 109_482_240, "model=bert-large-uncased"),
    Fact(1, TUNED, "cut to 256", lambda b: int(b.stream.table.lengths.max()), 256, "max_length=128"),
    Fact(1, TUNED, "embedding dropout", lambda b: b.model.embeddings.dropout.p, 0.1, "embedding_dropout=0.0"),
    Fact(1, TUNED, "branch dropout", lambda b: b.layer.dropout.p, 0.1, "dropout=0.3"),
    Fact(1, TUNED, "attention dropout", lambda b: b.layer.attention.dropout, 0.1, "attention_dropout=0.0"),
    Fact(1, TUNED, "head", lambda b: head(b), [("dropout", 0.1), ("linear", 12, 2)], "head_dropout=0.0"),
    Fact(1, TUNED, "pooler", lambda b: name_of(b.model.pooling), "Pooler", "pooling=first"),
    Fact(1, TUNED, "fp32", lambda b: b.layer.attention.qkv.weight.dtype, torch.float32, "precision=bf16"),
    # --- 2: ViT on CIFAR-10
    source(2, VIT, "cifar10"),
    Fact(2, VIT, "vit-base-patch16-224", parameters, 85_798_656, "model=vit-base-patch16-224-in21k"),
    Fact(2, VIT, "1,000 classes dropped and 10 made", head, [("linear", 12, 10)], "head=mlp"),
    Fact(2, VIT, "no dropout", lambda b: (b.model.embeddings.dropout.p, b.layer.dropout.p, b.layer.attention.dropout), (0.0, 0.0, 0.0), "dropout=0.1"),
    Fact(2, VIT, "[CLS] after the final norm", lambda b: (name_of(b.model.pooling), name_of(b.model.encoder.final_norm)), ("FirstPooling", "LayerNorm"), "pooling=mean"),
    Fact(2, VIT, "224 px", lambda b: b.fitted["transform_"].size, (224, 224), "image_size=112"),
    Fact(2, VIT, "the checkpoint's mean", lambda b: b.fitted["transform_"].mean, (0.5, 0.5, 0.5), "mean=[0.485, 0.456, 0.406]"),
    Fact(2, VIT, "no augmentation", lambda b: b.stream.augmentation.augment, "none", "augment=light"),
    Fact(2, VIT, "judged after each epoch", lambda b: "KeepEpochs" in map(name_of, b.calls), True, "keep_epochs=false"),
    Fact(2, VIT, "no validation", lambda b: splits(VIT, *changed(b, VIT))[:2], (25_000, None), "validation_size=0.1"),
    # --- 3: NTC-SCV
    source(3, NTC, "ntc-scv"),
    Fact(3, NTC, "sizes of the demonstration", lambda b: (sizes(b)[0], *sizes(b)[2:]), (200, 5, 1024), "d_ff=512"),
    Fact(3, NTC, "post-norm", first_norm_after, "post", "norm=pre"),
    Fact(3, NTC, "ReLU", lambda b: b.layer.feed_forward.activation, "relu", "activation=gelu"),
    Fact(3, NTC, "norm eps", norms, {1e-6}, "norm_eps=1e-5"),
    Fact(3, NTC, "position embeddings", lambda b: places(b), ("learned", False, 0.0), "positions=sinusoidal"),
    Fact(3, NTC, "branch dropout", lambda b: b.layer.dropout.p, 0.1, "dropout=0.2"),
    Fact(3, NTC, "none inside the feed-forward", lambda b: b.layer.feed_forward.dropout.p, 0.0, "feed_forward_dropout=0.1"),
    Fact(3, NTC, "none on attention weights", lambda b: b.layer.attention.dropout, 0.0, "attention_dropout=0.1"),
    Fact(3, NTC, "average over all places", lambda b: name_of(b.model.pooling), "MeanPooling", "pooling=first"),
    Fact(3, NTC, "head", head, [("dropout", 0.1), ("linear", 200, 20), ("dropout", 0.1), ("linear", 20, 2)], "head_input_dropout=0.0"),
    Fact(3, NTC, "no activation in the head", head, [("dropout", 0.1), ("linear", 200, 20), ("dropout", 0.1), ("linear", 20, 2)], "head_activation=relu"),
    Fact(3, NTC, "no averaging", lambda b: b.training.optimizer.average, None, "average=0.9"),
    Fact(3, NTC, "no word dropout", lambda b: b.objective.masking, None, "word_dropout=0.1"),
    # --- 4: masked words and next sentence
    Fact(4, "imdb-mlm-given", "real text", lambda b: b.recipe.data.source, "imdb", "source=europe"),
    Fact(4, "imdb-mlm-given", "15 %, of these 80, 10 and 10", masks, (0.15, 0.8, 0.1), "mask_share=0.3"),
    Fact(4, "imdb-mlm-given", "next sentence of two labels", lambda b: getattr(b.model.nsp, "out_features", None), 2, "next_sentence=false"),
    # --- 5: Flowers
    source(5, ONE, "flowers"),
    Fact(5, ONE, "patches without bias", lambda b: b.model.embeddings.projection.bias, None, "model=vit-small"),
    Fact(5, ONE, "patch 16 at 224", lambda b: b.model.config.embedding.grid, (14, 14), "patch_size=32"),
    Fact(5, ONE, "196 positions, no [CLS]", lambda b: tuple(b.model.embeddings.positions.shape), (196, 512), "class_token=true"),
    Fact(5, ONE, "positions from 512^-0.5 N(0, 1)", lambda b: round(float(b.model.embeddings.positions.detach().std()) * 512**0.5, 1), 1.0, "model=vit-small"),
    Fact(5, ONE, "one layer", lambda b: len(b.model.encoder.layers), 1, "num_layers=2"),
    Fact(5, ONE, "post-norm", first_norm_after, "post", "norm=pre"),
    Fact(5, ONE, "ReLU", lambda b: b.layer.feed_forward.activation, "relu", "activation=gelu"),
    Fact(5, ONE, "norm eps", norms, {1e-6}, "norm_eps=1e-5"),
    Fact(5, ONE, "branch dropout", lambda b: b.layer.dropout.p, 0.1, "dropout=0.0"),
    Fact(5, ONE, "none on attention weights", lambda b: b.layer.attention.dropout, 0.0, "attention_dropout=0.1"),
    Fact(5, ONE, "patch 0", lambda b: name_of(b.model.pooling), "FirstPooling", "pooling=mean"),
    Fact(5, ONE, "head", head, [("dropout", 0.1), ("linear", 512, 20), ("dropout", 0.1), ("linear", 20, 10)], "head_activation=relu"),
    Fact(5, "flowers-pretrained", "in21k", lambda b: CATALOG[b.recipe.model.model].repo, "google/vit-base-patch16-224-in21k", "model=vit-base-patch16-224"),
    Fact(5, "flowers-pretrained", "mean and std 0.5", lambda b: (b.fitted["transform_"].mean, b.fitted["transform_"].std), ((0.5,) * 3,) * 2, "std=[0.2, 0.2, 0.2]"),
    # --- 6: sequence to sequence
    Fact(6, PAIRS, "post-norm", lambda b: b.model.decoder.layers[0].pre_norm, False, "norm=pre"),
    Fact(6, PAIRS, "dropout 0.1 behind each of three", lambda b: b.model.decoder.layers[0].dropout.p, 0.1, "dropout=0.3"),
    Fact(6, PAIRS, "norm eps", norms, {1e-6}, "norm_eps=1e-5"),
    Fact(6, PAIRS, "ReLU", lambda b: b.model.decoder.layers[0].feed_forward.activation, "relu", "activation=gelu"),
    Fact(6, PAIRS, "projection to the target vocabulary", lambda b: name_of(b.model.output), "Linear", "tied=true"),
    Fact(6, PAIRS, "plain mean over target tokens", lambda b: b.objective.label_smoothing, 0.0, "label_smoothing=0.1"),
    Fact(6, f"{RNN}-given", "thought vector", lambda b: b.model.attention, None, "attention=dot"),
    Fact(6, f"{RNN}-given", "plain mean over target tokens (rnn)", lambda b: b.objective.label_smoothing, 0.0, "label_smoothing=0.1"),
    *[Fact(6, f"{RNN}-{kind}-given", f"{kind} form", lambda b: name_of(b.model.attention.score), cls, "attention=additive" if kind == "dot" else "attention=dot")
      for kind, cls in (("dot", "DotScore"), ("multiplicative", "MultiplicativeScore"), ("additive", "AdditiveScore"))],
    # --- 7: word vectors
    source(7, W2V, "countries-given"),
    Fact(7, W2V, "dim 50", lambda b: b.model.centres.embedding_dim, 50, "dim=40"),
    Fact(7, W2V, "centers from U(0.5 / 50)", lambda b: round(float(b.model.centres.weight.detach().abs().max()), 3), 0.01, "dim=25"),
    Fact(7, W2V, "a step meets each word once, 2 positives with replacement", positives, (True, True, 2), "centers=places"),
    Fact(7, W2V, "2 positives", positives, (True, True, 2), "positives=3"),
    Fact(7, W2V, "5 negatives", lambda b: b.stream.pack(b.batch()).negatives.shape[1], 5, "negative=3"),
    Fact(7, W2V, "unigram^0.75", lambda b: bool(np.allclose(b.stream.cumulative, np.cumsum(noise_distribution(b.stream.corpus.counts, 0.75)))), True, "exponent=1.0"),
    Fact(7, W2V, "batches of 256", lambda b: b.config.batch_size, 256, "batch_size=64"),
    *training(7, W2V, lr=1e-3),
    Fact(7, W2V, "Adam without decay", lambda b: (name_of(b.adam), b.group("weight_decay"), b.group("lr")), ("Adam", 0.0, 1e-3), "lr=0.01"),

    # --- 8: mini-Transformer
    source(8, MINI, "countries-given"),
    Fact(8, MINI, "frozen vectors of 50", lambda b: (b.model.embeddings.tokens.embedding_dim, b.model.embeddings.tokens.weight.requires_grad), (50, False), "freeze_vectors=false"),
    Fact(8, MINI, "Linear 50 to 64", lambda b: (b.model.embeddings.project.in_features, b.model.embeddings.project.out_features), (50, 64), "d_model=32"),
    Fact(8, MINI, "sinusoids, no norm, no dropout behind them", places, ("sinusoidal", False, 0.0), "embedding_dropout=0.1"),
    Fact(8, MINI, "[CLS], no [SEP], marks trimmed", lambda b: b.tokens("Film, good."), ["[CLS]", "film", "good"], "separator=true"),
    Fact(8, MINI, "marks trimmed", lambda b: b.tokens("Film, good."), ["[CLS]", "film", "good"], "clean=none"),
    Fact(8, MINI, "length 128", lambda b: int(b.stream.table.lengths.max()), 128, "max_length=64"),
    Fact(8, MINI, "1 layer, 2 heads, ratio 2", sizes, (64, 1, 2, 128), "num_heads=4"),
    Fact(8, MINI, "pre-norm", first_norm_after, "pre", "norm=post"),
    Fact(8, MINI, "dropout on attention weights", lambda b: b.layer.attention.dropout, 0.1, "attention_dropout=0.0"),
    Fact(8, MINI, "dropout behind attention and MLP", lambda b: b.layer.dropout.p, 0.1, "dropout=0.0"),
    Fact(8, MINI, "dropout after GELU", lambda b: (b.layer.feed_forward.activation, b.layer.feed_forward.dropout.p), ("gelu", 0.1), "feed_forward_dropout=0.0"),
    Fact(8, MINI, "norm eps", norms, {1e-5}, "norm_eps=1e-6"),
    Fact(8, MINI, "final norm", lambda b: name_of(b.model.encoder.final_norm), "LayerNorm", "final_norm=false"),
    Fact(8, MINI, "Linear 64 to 2 on [CLS]", lambda b: (name_of(b.model.pooling), head(b)), ("FirstPooling", [("linear", 64, 2)]), "pooling=mean"),
    *training(8, MINI, optimizer="AdamW"),
    # --- 9 and 10: Hotdog
    source(9, HEADS, "hotdog"),
    Fact(9, HEADS, "D read from the config", head, [("linear", 12, 10)], "head=mlp"),
    Fact(9, HEADS, "[CLS]", lambda b: name_of(b.model.pooling), "FirstPooling", "pooling=mean"),
    Fact(9, HEADS, "backbone frozen first", lambda b: learns(b, 0), {"head"}, "train_layers=1"),
    Fact(9, HEADS, "then the last block", lambda b: learns(b, 5) - {"encoder"}, {"head", "1"}, "unfreeze_every=0"),
    Fact(9, HEADS, "5 to 10 epochs", lambda b: 5 <= b.config.epochs <= 10, True, "epochs=20"),
    *training(9, HEADS, optimizer="AdamW", batch=32),
    Fact(10, "hotdog-baseline", "resize 256, cut 224", lambda b: (b.fitted["transform_"].fit, b.fitted["transform_"].resize_to, b.fitted["transform_"].size), ("crop", 256, (224, 224)), "framing=squash"),
    Fact(10, "hotdog-baseline", "ImageNet statistics", lambda b: b.fitted["transform_"].mean, (0.485, 0.456, 0.406), "mean=[0.5, 0.5, 0.5]"),
    Fact(10, "hotdog-light", "random part and flip", lambda b: (b.stream.augmentation.augment, b.stream.augmentation.flip), ("light", True), "flip=false"),
    Fact(10, "hotdog-medium", "colors and erasing", lambda b: b.stream.augmentation.augment, "medium", "augment=light"),
    Fact(10, "hotdog-strong-given", "RandAugment on top of medium", lambda b: b.stream.augmentation.augment, "stacked", "augment=strong"),
    Fact(10, "hotdog-mix-given", "Mixup or CutMix on the strong rung", lambda b: (b.stream.augmentation.augment, b.stream.augmentation.mix), ("stacked", "both"), "mix=none"),
    # --- 12: small encoder
    source(12, SMALL, "imdb"),
    Fact(12, SMALL, "tags and marks out, split at white space", lambda b: b.tokens("film<br />bad, it's!"), ["film", "bad", "it", "s"], "clean=none"),
    Fact(12, SMALL, "words seen 5 times", lambda b: b.fitted["tokenizer_"].token_to_id("own3"), None, "min_count=1"),
    Fact(12, SMALL, "no words left out by number", lambda b: b.fitted["tokenizer_"].get_vocab_size(), 19, "vocab_size=12"),
    Fact(12, SMALL, "sizes", sizes, (128, 2, 4, 256), "num_layers=3"),
    Fact(12, SMALL, "dropout inside attention", lambda b: b.layer.attention.dropout, 0.1, "attention_dropout=0.0"),
    Fact(12, SMALL, "branch dropout", lambda b: b.layer.dropout.p, 0.1, "dropout=0.0"),
    Fact(12, SMALL, "sinusoids, no dropout behind them", places, ("sinusoidal", False, 0.0), "embedding_dropout=0.1"),
    Fact(12, SMALL, "post-norm and ReLU", lambda b: (first_norm_after(b), b.layer.feed_forward.activation), ("post", "relu"), "norm=pre"),
    Fact(12, SMALL, "first word", lambda b: (name_of(b.model.pooling), b.tokens("film bad")[0]), ("FirstPooling", "film"), "add_special_tokens=true"),
    Fact(12, SMALL, "Linear 128 to 2", head, [("linear", 128, 2)], "head=mlp"),
    Fact(12, SMALL, "judged after each epoch", lambda b: "KeepEpochs" in map(name_of, b.calls), True, "keep_epochs=false"),
    # --- 13: wide encoder
    source(13, WIDE, "imdb"),
    Fact(13, WIDE, "15,000, 10,000 and 25,000", lambda b: splits(WIDE, *changed(b, WIDE)), (15_000, 10_000, 25_000), "validation_size=5000"),
    Fact(13, WIDE, "sinusoids, dropout behind them, no norm", places, ("sinusoidal", False, 0.1), "embedding_norm=true"),
    Fact(13, WIDE, "4 layers, 12 heads, 768", lambda b: sizes(b)[:3], (768, 4, 12), "num_heads=8"),
    Fact(13, WIDE, "post-norm", first_norm_after, "post", "norm=pre"),
    Fact(13, WIDE, "branch dropout", lambda b: b.layer.dropout.p, 0.1, "dropout=0.0"),
    *training(13, "imdb-bert-15k", optimizer="Adam", lr=5e-5, epochs=1),
]  # fmt: skip


FACTS += training(
    1, TUNED, optimizer="AdamWHat", lr=5e-5, adam_eps=1e-6, decay=0.0, betas=(0.9, 0.999), rates={5e-5}, clip=0.0,
    epochs=3, batch=8, order=True,
)  # fmt: skip
FACTS += training(2, VIT, optimizer="Adam", lr=5e-5, decay=0.0, rates={5e-5}, clip=0.0, epochs=3, batch=32)
FACTS += training(12, SMALL, optimizer="Adam", lr=1e-3, epochs=5, batch=8, order=True)
FACTS += training(13, WIDE, optimizer="Adam", lr=5e-5, epochs=1)
