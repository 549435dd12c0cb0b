"""RoBERTa, DistilBERT, ModernBERT, DeBERTa-v3 (base, random weights) and all-mpnet-base-v2 beside their peers.

    nice .venv/bin/python -m benchmarks.speed.families --rounds 3 --reviews 16 --threads 2

Real IMDb reviews, cut to 256 of MiniLM's word pieces. Contenders in turn on the same reviews, each in its own
process:

- training: a plain PyTorch loop over transformers' model (``hf_trainer.PlainLoop``: batches of 32 of similar
  length, the faster of its attentions), and ``TextClassifier.fit``: the same head, packed; dropout 0 in both.
  The loop goes on from window to window and ``fit`` begins anew in each, so that their losses part;
- prediction, from raw text: transformers' model in bf16, batches of 32 sorted by length, the faster of its
  attentions, and ``predict_proba`` of the same folder;
- embedding (MPNet): sentence-transformers in fp32 and with bf16 weights, and ``embed``; mean pooling in all.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

import glassformer as gf
from benchmarks.harness.command import command
from benchmarks.harness.options import count
from benchmarks.harness.results import half, kept
from benchmarks.harness.rounds import Contender, compared, in_own_process, said, use_threads
from benchmarks.speed import inference, train_imdb
from benchmarks.speed.hf_trainer import PlainLoop
from benchmarks.speed.inference_peers import MAX_LENGTH, VECTORS
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.errors import InputError
from glassformer.families import FAMILIES
from glassformer.process import keep_freed_memory

KINDS = ("roberta", "distilbert", "mpnet", "modernbert", "deberta-v2")
EMBEDS = ("mpnet",)
RUNTIMES = ("modernbert", "deberta-v2")  # compared with ONNX Runtime and OpenVINO too
# MPNet's position numbers need its own padding token, 1, so that MiniLM's vocabulary does not fit it.
OWN_WEIGHTS = {"mpnet": "all-mpnet-base-v2"}
# MiniLM's padding token is 0. Without dropout, as fine-tuning here has it.
PLAIN: dict[str, dict[str, Any]] = {
    "roberta": {
        "max_position_embeddings": 513, "type_vocab_size": 1, "pad_token_id": 0, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "vocab_size": 50_265,
    },
    "mpnet": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "modernbert": dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0),
    "deberta-v2": {
        "relative_attention": True, "position_buckets": 256, "max_relative_positions": -1, "pos_att_type": ["p2c", "c2p"],
        "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0,
        "layer_norm_eps": 1e-7, "pad_token_id": 0, "vocab_size": 30_522, "hidden_size": 768, "intermediate_size": 3072,
        "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        "pooler_dropout": 0.0,
    },
    "distilbert": {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0},
}  # fmt: skip


def put(kind: str, folder: Path, **options: Any) -> Path:
    """A classifier of transformers with random weights, and MiniLM's vocabulary or the checkpoint's own; ``options``: of its
    config."""
    import transformers

    torch.manual_seed(0)
    plain = {"id2label": {0: "neg", 1: "pos"}, **PLAIN[kind], **options}
    classifiers = transformers.AutoModelForSequenceClassification
    if kind in OWN_WEIGHTS:
        vocabulary = Path(os.environ.get("GLASSFORMER_WEIGHTS", ".")) / OWN_WEIGHTS[kind]
        if not vocabulary.is_dir():
            raise InputError(f"{vocabulary}: not there. Set GLASSFORMER_WEIGHTS to the folder that has it")
        classifiers.from_pretrained(vocabulary, **plain).save_pretrained(folder / "hub")
    else:
        classifiers.from_config(transformers.CONFIG_MAPPING[kind](**plain)).save_pretrained(folder / "hub")
        vocabulary = resolve_checkpoint(train_imdb.MODEL).path
    for file in [*vocabulary.glob("tokenizer*"), *vocabulary.glob("vocab*")]:
        shutil.copy(file, folder / "hub")
    gf.load(folder / "hub").set_params(max_length=MAX_LENGTH).save(folder / "labels")  # for inference.py
    if kind in EMBEDS:
        vectors = gf.TextClassifier(folder / "hub", pooling="mean", lr=0.0, epochs=1, max_length=MAX_LENGTH)
        vectors.fit(["a good film", "a bad film", "good", "bad"], [1, 0, 1, 0]).save(folder / "vectors")
    return folder


def theirs(path: Path, rounds: train_imdb.Rounds) -> Contender:
    keep_freed_memory()
    loop = PlainLoop(train_imdb.hf_model(path, dropout=None), lr=train_imdb.LR, batch=train_imdb.BATCH)
    return train_imdb.looped("PyTorch loop over the HF model", loop, path, rounds, choose=True)


def make_head(kind: str) -> dict[str, str]:
    """Options of ``TextClassifier`` for the head that transformers has."""
    hub = FAMILIES[kind].hub
    assert hub is not None
    gelu = {"head_activation": "gelu"} if hub.head_activation == "gelu" else {}
    return {"pooling": hub.pooling, "head": hub.head_type, **gelu}


def ours(path: Path, rounds: train_imdb.Rounds, kind: str) -> Contender:
    keep_freed_memory()
    return train_imdb.glassformer(path, rounds, **make_head(kind))


@command(
    "families of base size, random weights, IMDb's lengths: training steps and prediction",
    out="families",
    packages=("transformers", "sentence-transformers"),
    rounds=dict(type=count, default=3, help="timed windows of each contender"),
    reviews=dict(type=count, default=16, help="reviews in a window"),
    threads=dict(type=count, default=torch.get_num_threads()),
    kinds=dict(choices=KINDS, nargs="+", default=list(KINDS), help="measured; the file keeps the others"),
    seed=0,
)
def main(options: Any) -> dict[str, Any]:
    use_threads(options.threads)
    families: dict[str, Any] = kept(options.out).get("families", {})
    batch = min(options.reviews, train_imdb.BATCH)
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as name:
            folder = put(kind, Path(name))
            texts = train_imdb.epoch_rounds(options.rounds, options.reviews, batch, options.seed)
            peer = in_own_process(theirs, folder / "hub", texts)
            contenders = [peer, in_own_process(ours, folder / "hub", texts, kind)]
            works = {"training": compared(contenders, options.rounds)}
            rounds = inference.load_rounds(folder / "labels", options.rounds, options.reviews, options.seed)
            runtimes = ["onnx_fp32", "openvino"] if kind in RUNTIMES else []
            keys = {"prediction": ["hf_sorted", *runtimes, "glassformer"]}
            if kind in EMBEDS:
                keys["embedding"] = [key for key in VECTORS if half() or key != "sentence_transformers_bf16"]
            for what, chosen in keys.items():
                works[what] = inference.compare(chosen, options.rounds, folder, rounds, options.threads)
        families[kind] = {what: found | {"date": options.facts["date"]} for what, found in works.items()}
        for what, found in works.items():
            for peer, ratio in found["glassformer_against"].items():
                print(f"{kind}, {what}: {said(ratio)} {peer}")
    about = {"reviews_per_window": options.reviews, "max_length": MAX_LENGTH, "seed": options.seed}
    return about | {"families": families}
