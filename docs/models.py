"""The page of models that open here, made from ``FAMILIES``: ``python docs/models.py`` (or ``make map``).

What is refused is tried while the page is made, and stands there in the words of its error.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer.checkpoints.catalog import CATALOG, CatalogEntry
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import GlassformerError
from glassformer.families import FAMILIES, UNSUPPORTED_FAMILIES
from glassformer.families.family import Family
from glassformer.families.pretrained import load_pretrained, save_pretrained

PAGE = Path(__file__).parent / "models.md"
ON_THE_HUB = {name: family for name, family in FAMILIES.items() if family.hub}
TRIED: dict[str, tuple[Any, ...]] = {
    "is_decoder": (True,),
    "add_cross_attention": (True,),
    "position_embedding_type": ("relative_key",),
    "hidden_act": ("mish",),
    "activation": ("mish",),
    "pooler_act": ("relu",),
    "pad_token_id": (-1,),
    "relative_attention_num_buckets": (64,),
    "attention_dropout": (0.1,),
    "relative_attention": (False,),
    "conv_kernel_size": (3,),
    "embedding_size": (128,),
    "pooler_dropout": (0.1,),
    "rope_scaling": ({"rope_type": "yarn"},),
    "rope_parameters": ({"rope_type": "dynamic", "factor": 2.0},),
    "num_experts": (8,),
    "logn_attention_scale": (True,),
}
SENTENCE_PIECES = "benchmarks/results/sentence-pieces.json"
ELSEWHERE = ("t5", "llama", "beit")
INTRO = """# Which models open here

This page lists the checkpoints that you can fine-tune, explain, serve and export here, and those that raise an error.

A checkpoint is a folder, or an id of the Hub, with `config.json` and weights in safetensors. Its `model_type` decides.
Every family has every feature: it is fine-tuned whole, in part, by LoRA or by its head; gives attention maps,
explanations and features; is evaluated, served, exported as a graph (ONNX) and in the Hub's layout, where `transformers`
opens it with the classes below. A family with `ForMaskedLM` can be trained further on raw texts (`MaskedLM`).

CLIP and SigLIP (`model_type` `clip` and `siglip`) also open with the half that reads texts, as in `CLIPModel` and `SiglipModel`,
for [zero-shot image classification](guide/own-images.md#zero-shot-image-classification); every key of both halves is read.
Other uses take the image half. They were tested with random weights only.
"""


def cell(text: str) -> str:
    return text.replace("|", "\\|")


USES = (None, "classification", "first-two", "mlm", "pretraining")  # the heads that the page names


def families() -> Iterator[str]:
    yield "| `model_type` | Reads | Classes of `transformers` | For example |"
    yield "|---|---|---|---|"
    for name, family in ON_THE_HUB.items():
        assert family.hub is not None
        known = family.hub.classes
        classes = [known[use] for use in USES if use in known]
        prefix = re.sub(r"(Vision)?Model$", "", classes[0])
        ends = ", ".join(f"`{one.removeprefix(prefix)}`" for one in classes)
        types = ", ".join(f"`{one}`" for one in (name, *family.also))
        yield f"| {types} | {family.model.reads} | `{prefix}` + {ends} | {', '.join(family.examples)} |"


def names() -> Iterator[str]:
    """Short names of checkpoints, and the commits that they mean."""
    yield "| Name | Checkpoint of the Hub | Commit |"
    yield "|---|---|---|"
    called: dict[CatalogEntry, list[str]] = {}
    for name, known in CATALOG.items():
        called.setdefault(known, []).append(f"`{name}`")
    for known, listed in called.items():
        yield f"| {', '.join(listed)} | {known.repo} | `{known.revision[:12]}` |"


NAMES = """## Checkpoints with a short name

`--model` and every estimator take these names. A name, and the Hub id that it stands for, mean the pinned commit;
`revision` names another. A folder of the same name is opened as `./name`.
"""


FIRST = "Represent this sentence for searching relevant passages: "
E5 = "`query: `, `passage: `"
BY_NAME = (  # what people type, model_type, what pools, prompts of the model's card, tested on its real weights
    ("sentence-transformers/all-MiniLM-L6-v2, L12-v2", "bert", "mean", "", "L6"),
    (
        "sentence-transformers/all-mpnet-base-v2, multi-qa-mpnet-base-dot-v1",
        "mpnet",
        "mean, [CLS]",
        "",
        "all-mpnet",
    ),
    ("sentence-transformers/paraphrase-multilingual-mpnet-base-v2", "xlm-roberta", "mean", "", ""),
    ("sentence-transformers/LaBSE", "bert", "[CLS], dense", "", ""),
    ("BAAI/bge-small-, base-, large-en-v1.5", "bert", "[CLS]", f"queries: `{FIRST}`", ""),
    ("BAAI/bge-m3 (dense vectors)", "xlm-roberta", "[CLS]", "", ""),
    ("intfloat/e5-small-, base-, large-v2", "bert", "mean", E5, ""),
    ("intfloat/multilingual-e5-base, large", "xlm-roberta", "mean", E5, ""),
    ("thenlper/gte-small, base, large", "bert", "mean", "", ""),
    (
        "mixedbread-ai/mxbai-embed-large-v1, WhereIsAI/UAE-Large-V1",
        "bert",
        "[CLS]",
        f"queries: `{FIRST}`",
        "",
    ),
    ("Snowflake/snowflake-arctic-embed-xs, s, m, l", "bert", "[CLS]", f"queries: `{FIRST}`", ""),
    ("Snowflake/snowflake-arctic-embed-l-v2.0", "xlm-roberta", "[CLS]", "queries: `query: `", ""),
    ("nomic-ai/modernbert-embed-base", "modernbert", "mean", "`search_query: `, `search_document: `", ""),
    ("Alibaba-NLP/gte-modernbert-base", "modernbert", "[CLS]", "", ""),
    ("nomic-ai/nomic-embed-text-v1, v1.5", "nomic_bert", "mean", "`search_query: `, `search_document: `", ""),
    ("Alibaba-NLP/gte-multilingual-base, gte-base-en-v1.5, gte-large-en-v1.5", "gte", "[CLS]", "", ""),
    ("Snowflake/snowflake-arctic-embed-m-v2.0", "gte", "[CLS]", "queries: `query: `", ""),
    ("distilbert/distilbert-base-uncased-finetuned-sst-2-english", "distilbert", "classifier", "", ""),
    ("cardiffnlp/twitter-roberta-base-sentiment-latest", "roberta", "classifier", "", ""),
    ("ProsusAI/finbert, nlptown/bert-base-multilingual-uncased-sentiment", "bert", "classifier", "", ""),
    ("dslim/bert-base-NER", "bert", "token classifier", "", ""),
    ("Falconsai/nsfw_image_detection, google/vit-base-patch16-224", "vit", "classifier", "", ""),
    ("facebook/dinov2-small, base, large", "dinov2", "[CLS] and mean", "", "another package's small"),
    ("albert/albert-base-v2, large-v2, xlarge-v2, xxlarge-v2", "albert", "[CLS] through its pooler", "", ""),
    ("facebook/deit-tiny-, small-, base-patch16-224", "vit", "classifier", "", ""),
    ("facebook/deit-tiny-, small-, base-distilled-patch16-224", "deit", "both classifiers", "", ""),
    (
        "google/siglip-base-patch16-224, so400m-patch14-384, siglip2-base-patch16-224",
        "siglip",
        "its head of attention (encoder), mean of the patches (classifier)",
        "",
        "",
    ),
    (
        "openai/clip-vit-base-patch32, base-patch16, large-patch14, laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
        "clip",
        "norm of [CLS], before its projection (encoder), mean of the patches (classifier)",
        "",
        "",
    ),
)
NOT_YET = "jina-embeddings, BEiT, Swin"
BY_NAME_INTRO = f"""## By the names people type

Pooling, prompts and normalization are read from the folder (`modules.json`, `1_Pooling/config.json`,
`config_sentence_transformers.json`); prompts that only the model's card names are given by hand:
`embedder.embed(texts, prompt="query: ")`. Every family is tested against `transformers` with random weights; the last
column says which real weights were tested. The others are published in these families' formats but were not at hand.
Not yet: {NOT_YET}.
"""


def by_name() -> Iterator[str]:
    yield "| Name | `model_type` | Pooling | Prompts | Real weights tested |"
    yield "|---|---|---|---|---|"
    for name, kind, pooled, prompts, tested in BY_NAME:
        assert kind in ON_THE_HUB, kind
        yield f"| {name} | `{kind}` | {pooled} | {prompts} | {tested or 'no'} |"


def refusal(attempt: Callable[[], Any], *folders: Path) -> str:
    """What an attempt is refused with, places left out; empty where it is not."""
    try:
        attempt()
    except GlassformerError as error:
        text = str(error)
        for folder in folders:
            text = re.sub(rf"{re.escape(str(folder))}[/\w.]*: ", "", text)
        return text.removeprefix("config.json: ")
    return ""


def details(name: str, family: Family) -> Iterator[str]:
    hub = family.hub
    assert hub is not None
    settings = hub.write(replace(family.tiny(), head=None))
    yield f"### {name}"
    yield ""
    yield "Left out of what a file holds, because the model does not need it:"
    yield ""
    for key, why in hub.names.ignored.items():
        yield f"- `{key}{'*' if key.endswith('.') else ''}`: {why}"
    refused = [
        f"- `{twin}` and `{key}` that differ: untied heads are not supported"
        for key, twin in hub.names.tied.items()
    ]
    for key, values in TRIED.items():
        for value in values:
            changed = settings | {key: value}
            if said := refusal(lambda changed=changed: hub.read(changed, "config.json")):
                refused.append(f"- `{key} = {json.dumps(value)}`: {said}")
    yield ""
    yield "Refused:"
    yield ""
    yield from refused


def others(folder: Path) -> Iterator[str]:
    """Kinds of model that nobody here reads, and files that are not read."""
    tiny = ON_THE_HUB["bert"]
    torch.manual_seed(0)
    save_pretrained(tiny.model(tiny.tiny()), folder)
    config = folder / "config.json"
    settings = json.loads(config.read_text())
    yield "| What | Answer |"
    yield "|---|---|"
    answers = {}
    for kind in ELSEWHERE:
        config.write_text(json.dumps(settings | {"model_type": kind}))
        answers[kind] = refusal(lambda: load_pretrained(folder), folder)
        assert answers[kind], kind
    kinds = ", ".join(f"`{kind}`" for kind in ELSEWHERE)
    yield f"| `model_type` {kinds} and all that is not listed above | {cell(answers[ELSEWHERE[0]])} |"
    for kind in UNSUPPORTED_FAMILIES:
        config.write_text(json.dumps(settings | {"model_type": kind}))
        said = refusal(lambda: load_pretrained(folder), folder).partition(". Supported: ")[0]
        yield f"| `model_type` `{kind}` | {cell(said)} |"
    config.write_text(json.dumps(settings | {"architectures": ["BertForMultipleChoice"]}))
    yield f"| `architectures` with a class that ends in `ForMultipleChoice` | {cell(refusal(lambda: load_pretrained(folder), folder))} |"
    config.write_text(json.dumps(settings))
    weights = folder / "model.safetensors"
    weights.rename(folder / "model.ckpt")
    yield f"| pickled weights alone, other than `pytorch_model.bin` as PyTorch writes it since 1.6 | {cell(refusal(lambda: load_pretrained(folder), folder))} |"
    pieces = folder / "spiece.model"
    for what, content, said in (
        (
            "`spiece.model` of a class that numbers its pieces in another way",
            b"",
            {"tokenizer_class": "T5Tokenizer"},
        ),
        ("`spiece.model` that is truncated or inconsistent, or another file", b"\n\x7fabc", {}),
        ("`spiece.model` of words or characters", b"\n\x07\n\x03unk\x18\x02\x12\x02\x18\x03", {}),
    ):
        pieces.write_bytes(content)
        (folder / "tokenizer_config.json").write_text(json.dumps(said))
        yield f"| {what} | {cell(refusal(lambda: load_tokenizer(folder), folder))} |"
    pieces.unlink()
    yield f"| no tokenizer | {cell(refusal(lambda: load_tokenizer(folder), folder))} |"


TOKENIZERS = """## Tokenizers

The first that there is in the folder:

| Files | What |
|---|---|
| `tokenizer.json` | WordPiece, BPE (of bytes too), Unigram, whole words |
| `vocab.json` and `merges.txt` | byte-level BPE, as RoBERTa's |
| `vocab.txt` and `bpe.codes` | fastBPE, as PhoBERT's: texts are segmented into words beforehand (`nhà_hàng`) |
| `vocab.txt` | WordPiece, as BERT's |
| `sentencepiece.bpe.model`, `spiece.model`, `spm.model`, `tokenizer.model`, `sentencepiece.model` | SentencePiece's Unigram or BPE, as XLM-R's, CamemBERT's, ALBERT's, DeBERTa's |

SentencePiece's file is parsed without its library: a reader of Protocol Buffers that knows eleven fields and checks
every length, type and value first. SENTENCE_PIECES

Pieces are numbered as the class in `tokenizer_config.json`, or the `model_type`, numbers them (`<s>`, `<pad>`, `</s>`,
`<unk>` first in XLM-R and CamemBERT; `[MASK]` behind the pieces in DeBERTa). `transformers` gives other ids where it
departs from the library: decomposed letters (a second accent is lost, Hangul becomes unknown) and half-width kana, all
Hangul in ALBERT, and compatibility forms (`①`, `ﬁ`) in DeBERTa. A special piece is found where it is written in a text,
as everywhere here; the library reads it as text. In BPE models a piece that users defined is
looked for before everything else, and the text behind it begins like a new one. Refused, with the reason: models of
words or characters, unused letters, blanks behind words, `split_by_punct`.

Beside a list `added_tokens_decoder` of `tokenizer_config.json` is read, or, where there is none, `added_tokens.json`:
tokens that the list lacks, with ids that go on where it ends. `<mask>` takes in the blank before it where
`tokenizer_config.json` says so (`lstrip`), as in `transformers` 5; version 4 did that for RoBERTa's lists without being told.

PhoBERT's merges pass through pieces that its table of embeddings has no rows for. Its published tokenizer calls such a
piece unknown where nothing more can be merged to it. Here the table grows by these rows, which begin as the unknown
token's: the answers are the same, and the saved model and its `tokenizer.json` go together.

DINOv2's classifier reads [CLS] joined with the mean of the patches (`pooling="first-mean"`); a new head on it does too.
MPNet's list of pieces has BERT's special tokens in it: those that the tokenizer adds as special (`<pad>`) count, the
pieces (`[PAD]`) mean nothing.

Where positions begin behind the padding token's row (`pad_token_id`, RoBERTa's layout), that token must be the
tokenizer's own: a checkpoint whose `pad_token_id` is another's id is refused where it meets its tokenizer. A padding
token that is written out in a text (`<pad>`) takes a place like any other here; in `transformers` it takes none.
"""


def sentence_pieces() -> str:
    """How many lines have other ids than with SentencePiece's library, from the benchmark's result."""
    result = json.loads((PAGE.parents[1] / SENTENCE_PIECES).read_text(encoding="utf-8"))
    models = result["models"]
    lines, encoded = sum(result["lines_by_kind"].values()), sum(m["lines"] for m in models)
    different, rounding = (sum(m[key] for m in models) for key in ("different", "rounding"))
    return f"""\
Token ids are those of `sentencepiece` {result["versions"]["sentencepiece"]} for {encoded - different:,} of {encoded:,} encoded lines:
{lines:,} lines in {len(result["corpora"])} languages under {len(models)} models, Unigram and BPE, with and without byte fallback, with
five normalizers ([result](../{SENTENCE_PIECES})). Of the other {different}, {rounding} are
rounding: the library's segmentation has no higher score than ours, but it adds in 32 bits, and sums are nearly equal (`00|000`,
`000|00`). Half of the lines have emoji, joiners, control characters, rare characters, damaged bytes, decomposed letters, runs
of spaces, or 20,000 characters.
The lines are from manual pages and LibreOffice's messages in Debian packages, and from reviews of IMDb and NTC-SCV;
`python -m benchmarks.reliability.sentence_pieces --help` has the commands. Two known exceptions: texts with noncharacters
(U+FDD0 to U+FDD2), and, where the model folds the case, a capital I with a separate dot (U+0307)."""


def opened_here() -> Iterator[str]:
    yield "| `model_type` | Reads | Random weights under the names |"
    yield "|---|---|---|"
    for name, family in FAMILIES.items():
        if family.hub is None:
            names = ", ".join(f"`{preset}`" for preset in family.presets)
            yield f"| `{name}` | {family.model.reads} | {names} |"


LINEAR = """\
## A linear model: `tfidf`

`gf.TextClassifier("tfidf")`, `gf.TextRegressor("tfidf")` and `glassformer train --text data.csv --model tfidf` fit a linear
model on TF-IDF features of words (1, 2) and of characters inside words (2 to 5), the same numbers as scikit-learn's
`TfidfVectorizer`. It is solved in seconds: a linear SVM for classes, a logistic regression for each of several labels, ridge for numbers. Cross-validation
on the training rows chooses the strength (`chosen_`) and one temperature, which is part of the weights.
It reads texts of any length, has at most 1,000,000 features and 50,000,000 weights (features times classes), is saved without pickle, and is
explained exactly by `explain`. `clean`, `lowercase`, `strip_accents`, `min_count`, `class_weight` and
`sample_weight` count, `vocab_size` too where it is not the default. What only an encoder has (attention maps, `embed`, LoRA, `train_layers`, few-shot, int8,
folders for transformers) raises an error that names another model.

## A linear model of images: `hog`

`gf.ImageClassifier("hog")`, `gf.ImageRegressor("hog")` and `glassformer train --images FOLDER --model hog` fit a logistic
regression (ridge for numbers) on histograms of oriented gradients (Dalal and Triggs, 2005) and on the mean color of each cell (`nn/hog.py`). Cross-validation
on the training images chooses its strength. Each image is scaled to 48 pixels and read in 36 cells of 8 pixels with 39 values each; `image_size` and `patch_size` (of a
cell), `channels` and how images are scaled can be set. It needs no pre-trained weights and takes seconds, is saved without pickle, served and exported to ONNX. `explain` hides
one cell after the other (`occlusion`), or gives what each cell adds to the answer, exactly (`gradient_x_input`). What only an encoder has (attention maps, LoRA, `train_layers`, `pooling`,
folders for transformers) raises an error of one line."""


def page() -> str:
    """The page as the package is now."""
    lines = [
        INTRO,
        *families(),
        "",
        NAMES,
        *names(),
        "",
        BY_NAME_INTRO,
        *by_name(),
        "",
        TOKENIZERS.replace("SENTENCE_PIECES", sentence_pieces()),
        "## What a file may hold, and what is refused",
        "",
    ]
    seen: dict[Any, str] = {}
    for name, family in ON_THE_HUB.items():
        assert family.hub is not None
        if (first := seen.setdefault(id(family.hub.names), name)) != name:
            lines += [f"### {name}", "", f"As {first}.", ""]
            continue
        lines += [*details(name, family), ""]
    with tempfile.TemporaryDirectory() as folder:
        lines += ["## What does not open", "", *others(Path(folder).resolve()), ""]
    lines += [
        "## What the Hub has no format for", "",
        "Encoders that no family of the Hub can express, LSTM, GRU and TextCNN are saved in a layout of ours, which",
        "opens here only.", "", *opened_here(), "", LINEAR,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
