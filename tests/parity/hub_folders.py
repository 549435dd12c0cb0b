"""A tiny folder of every kind that the Hub has of our families, written by ``transformers`` itself."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from tests.shaken import shaken
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BertTokenizer, PreTrainedTokenizerFast, ViTImageProcessor

from glassformer.families import FAMILIES

LONGEST = 19  # tokens
PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] a warm and funny film dull ##ish . where is oslo in the ? , bad plot".split()
CLASSES = ("good", "bad", "so-so")
TAGS = ("O", "B-per", "I-per", "B-loc", "I-loc")
HEADS = {
    "None": "encoder",
    "classification": "classes",
    "first-two": "classes",
    "tokens": "tags",
    "mlm": "masked words",
    "pretraining": "masked words",
    "spans": "answers",
}
KINDS = [(name, str(head)) for name, family in FAMILIES.items() if family.hub for head in family.hub.classes]
SENTENCES = ("bert", "sentences")


def made_as(family: str, head: str) -> str:
    """The class of ``transformers``."""
    classes = FAMILIES[family].hub.classes  # type: ignore[union-attr]  # it is one of the Hub's
    return classes[None if head in ("None", "sentences") else head]


def wordpiece(folder: Path) -> int:
    """BERT's tokenizer; its size."""
    vocabulary = folder.parent / "vocab.txt"
    vocabulary.write_text("\n".join(PIECES))
    BertTokenizer(str(vocabulary), model_max_length=LONGEST).save_pretrained(folder)
    return len(PIECES)


def byte_level(folder: Path) -> int:
    """RoBERTa's, learned from a few words; its size."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["a warm and funny film. where is oslo in the dull bad plot?"] * 3, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = {"bos": 0, "cls": 0, "pad": 1, "eos": 2, "sep": 2, "unk": 3, "mask": 4}
    tokens = {f"{name}_token": special[number] for name, number in names.items()}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=LONGEST, **tokens).save_pretrained(
        folder
    )
    return tokenizer.get_vocab_size()


def make(home: Path, family: str, head: str, **extra: Any) -> Path:
    """The folder of a kind, with random weights. ``extra``: more of ``config.json``."""
    folder = home / f"{family}-{head}"
    folder.mkdir(parents=True)
    record = FAMILIES[family]
    tiny = replace(record.tiny(), head=None) if head == "None" else record.tiny()
    settings = record.hub.write(tiny) | {"initializer_range": 0.5}  # type: ignore[union-attr]
    if record.model.reads == "texts":
        bytes_ = settings.get("pad_token_id") == 1
        settings |= {"vocab_size": (byte_level if bytes_ else wordpiece)(folder)}
        settings |= {"max_position_embeddings": LONGEST + 2 * bytes_}
    if head in ("classification", "first-two", "tokens"):
        settings["id2label"] = dict(enumerate(TAGS if head == "tokens" else CLASSES))
    torch.manual_seed(7)
    config = transformers.CONFIG_MAPPING[settings["model_type"]](**settings | extra)
    model = shaken(getattr(transformers, made_as(family, head))(config), 0.1)
    model.save_pretrained(folder)
    if record.model.reads == "images":
        side = tiny.embedding.image_size[0]
        ViTImageProcessor(size={"height": side, "width": side}).save_pretrained(folder)
    if head == "sentences":
        put_sentences(folder, config.hidden_size)
    return folder


def put_sentences(folder: Path, width: int) -> None:
    """The files of sentence-transformers: mean over tokens, length 1."""
    package = "sentence_transformers.models."
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    listed = [{"idx": i, "name": str(i), "path": p, "type": package + t} for i, (p, t) in enumerate(steps)]
    (folder / "modules.json").write_text(json.dumps(listed))
    for path, _ in steps[1:]:
        (folder / path).mkdir()
    settings = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
