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
INTRO = """# Supported models

This page lists the checkpoints that you can fine-tune, explain, serve and export, and those that raise an error.

A checkpoint is a folder, or a model id of the Hugging Face Hub, with `config.json` and weights in safetensors. Its `model_type` determines
the family. All families have the same features: fine-tuning of all weights, of some layers, with LoRA or of the head only; attention maps,
explanations and embeddings; evaluation, serving, and export to ONNX and to the Hugging Face format. `transformers`
opens the exported folder with the classes in the table. A family with `ForMaskedLM` can also be pre-trained further on raw texts (`MaskedLM`).

CLIP and SigLIP (`model_type` `clip` and `siglip`) also open with both encoders, as in `CLIPModel` and `SiglipModel`,
for [zero-shot image classification](guide/own-images.md#zero-shot-image-classification); all tensors of both encoders are used.
For all other uses the image encoder is loaded. Both families were tested with random weights only.
"""


def cell(text: str) -> str:
    return text.replace("|", "\\|")


USES = (None, "classification", "first-two", "mlm", "pretraining")  # the heads that the page names


def families() -> Iterator[str]:
    yield "| `model_type` | Input | Classes of `transformers` | Example checkpoints |"
    yield "|---|---|---|---|"
    for name, family in ON_THE_HUB.items():
        assert family.hub is not None
        known = family.hub.classes
        classes = [known[use] for use in USES if use in known]
        prefix = re.sub(r"(Vision)?Model$", "", classes[0])
        ends = ", ".join(f"`{one.removeprefix(prefix)}`" for one in classes)
        types = ", ".join(f"`{one}`" for one in (name, *family.aliases))
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

`--model` and all estimators accept these short names. The short name and its Hub id both load the commit in the table;
`revision` selects another commit. To open a folder with the same name, write `./name`.
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
BY_NAME_INTRO = f"""## Popular checkpoints

Pooling, prompts and normalization are read from the folder (`modules.json`, `1_Pooling/config.json`,
`config_sentence_transformers.json`). If a prompt is only in the model card, pass it yourself:
`embedder.embed(texts, prompt="query: ")`. Every family is compared with `transformers` with random weights. The last
column shows which published weights were tested too. The other checkpoints have the format of a supported family, but their weights were not available for a test.
Not supported yet: {NOT_YET}.
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
    yield "Tensors of the file that are ignored:"
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
    yield "Settings that raise an error, with its message:"
    yield ""
    yield from refused


def others(folder: Path) -> Iterator[str]:
    """Kinds of model that nobody here reads, and files that are not read."""
    tiny = ON_THE_HUB["bert"]
    torch.manual_seed(0)
    save_pretrained(tiny.model(tiny.tiny()), folder)
    config = folder / "config.json"
    settings = json.loads(config.read_text())
    yield "| File or setting | Error message |"
    yield "|---|---|"
    answers = {}
    for kind in ELSEWHERE:
        config.write_text(json.dumps(settings | {"model_type": kind}))
        answers[kind] = refusal(lambda: load_pretrained(folder), folder)
        assert answers[kind], kind
    kinds = ", ".join(f"`{kind}`" for kind in ELSEWHERE)
    yield f"| `model_type` {kinds} and all others that are not listed above | {cell(answers[ELSEWHERE[0]])} |"
    for kind in UNSUPPORTED_FAMILIES:
        config.write_text(json.dumps(settings | {"model_type": kind}))
        said = refusal(lambda: load_pretrained(folder), folder).partition(". Supported: ")[0]
        yield f"| `model_type` `{kind}` | {cell(said)} |"
    config.write_text(json.dumps(settings | {"architectures": ["BertForMultipleChoice"]}))
    yield f"| `architectures` with a class that ends in `ForMultipleChoice` | {cell(refusal(lambda: load_pretrained(folder), folder))} |"
    config.write_text(json.dumps(settings))
    weights = folder / "model.safetensors"
    weights.rename(folder / "model.ckpt")
    yield f"| only pickled weights, other than a `pytorch_model.bin` written by PyTorch 1.6 or newer | {cell(refusal(lambda: load_pretrained(folder), folder))} |"
    pieces = folder / "spiece.model"
    for what, content, said in (
        (
            "`spiece.model` with a tokenizer class whose ids are numbered differently",
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

The first of these files that the folder has is used:

| Files | Tokenizer |
|---|---|
| `tokenizer.json` | WordPiece, BPE (also byte-level), Unigram, whole words |
| `vocab.json` and `merges.txt` | byte-level BPE, as in RoBERTa |
| `vocab.txt` and `bpe.codes` | fastBPE, as in PhoBERT: texts must be segmented into words before (`nhà_hàng`) |
| `vocab.txt` | WordPiece, as in BERT |
| `sentencepiece.bpe.model`, `spiece.model`, `spm.model`, `tokenizer.model`, `sentencepiece.model` | SentencePiece's Unigram or BPE, as in XLM-R, CamemBERT, ALBERT and DeBERTa |

**SentencePiece.** The file is parsed without the SentencePiece library, by a parser of Protocol Buffers that reads eleven fields and checks
every length, type and value first. SENTENCE_PIECES

The ids depend on the class in `tokenizer_config.json`, or on the `model_type`: `<s>`, `<pad>`, `</s>`,
`<unk>` are first in XLM-R and CamemBERT; `[MASK]` is after the pieces in DeBERTa. For some texts `transformers` gives other ids than the SentencePiece
library and glassformer: decomposed letters (a second accent is lost, Hangul becomes unknown), half-width kana, all
Hangul in ALBERT, and compatibility forms (`①`, `ﬁ`) in DeBERTa. If a special token is written in a text, glassformer reads it as the special token;
the library reads it as text. In BPE models, pieces defined by users are
found first, and the text after such a piece is tokenized like a new text. These models raise an error: models of
words or characters, models with unused letters or blanks after words, and `split_by_punct`.

**Added tokens.** If the folder has a vocabulary file instead of `tokenizer.json`, `added_tokens_decoder` of `tokenizer_config.json` is also read, or else `added_tokens.json`.
It has tokens that are not in the vocabulary; their ids follow those of the vocabulary. `<mask>` includes the blank before it if
`tokenizer_config.json` says so (`lstrip`), as in `transformers` 5. Version 4 always did this for RoBERTa.

**PhoBERT.** Some of its merges lead to intermediate pieces that have no row in the embedding table. The published tokenizer maps such a
piece to the unknown token if no further merge applies. glassformer adds a row for each of these pieces, a copy of the unknown
token's row. The predictions are the same, and the saved model is consistent with its `tokenizer.json`.

**DINOv2.** Its classifier reads [CLS] and the mean of the patches (`pooling="first-mean"`); so does a new head.

**MPNet.** Its vocabulary also contains BERT's special tokens, such as `[PAD]`. Only those that the tokenizer defines as special (`<pad>`) are
used as special tokens.

**RoBERTa.** Its positions begin after the padding token's id (`pad_token_id`), which must be the id of the
tokenizer's padding token. If not, loading the tokenizer raises an error. A padding
token that is written in a text (`<pad>`) has a position like any other token; in `transformers` it has none.
"""


def sentence_pieces() -> str:
    """How many lines have other ids than with SentencePiece's library, from the benchmark's result."""
    result = json.loads((PAGE.parents[1] / SENTENCE_PIECES).read_text(encoding="utf-8"))
    models = result["models"]
    lines, encoded = sum(result["lines_by_kind"].values()), sum(m["lines"] for m in models)
    different, rounding = (sum(m[key] for m in models) for key in ("different", "rounding"))
    return f"""\
We compared the token ids with those of `sentencepiece` {result["versions"]["sentencepiece"]} on {lines:,} lines in {len(result["corpora"])} languages with {len(models)} models: Unigram and BPE, with and without byte fallback, with
five normalizers ([result](../{SENTENCE_PIECES})). They are equal for {encoded - different:,} of {encoded:,} encoded lines. {rounding} of the other {different} differ by
rounding only: the library adds scores in 32 bits, and two segmentations have nearly equal scores (`00|000`,
`000|00`). Half of the lines have emoji, joiners, control characters, rare characters, damaged bytes, decomposed letters, sequences
of spaces, or 20,000 characters.
The lines are from manual pages and LibreOffice's messages in Debian packages, and from reviews of IMDb and NTC-SCV;
`python -m benchmarks.reliability.sentence_pieces --help` has the commands. There are two known exceptions: texts with noncharacters
(U+FDD0 to U+FDD2), and, for models that fold the case, a capital I with a separate dot (U+0307)."""


def opened_here() -> Iterator[str]:
    yield "| `model_type` | Input | Names for random weights |"
    yield "|---|---|---|"
    for name, family in FAMILIES.items():
        if family.hub is None:
            names = ", ".join(f"`{preset}`" for preset in family.presets)
            yield f"| `{name}` | {family.model.reads} | {names} |"


LINEAR = """\
## A linear model: `tfidf`

`gf.TextClassifier("tfidf")`, `gf.TextRegressor("tfidf")` and `glassformer train --text data.csv --model tfidf` fit a linear
model on TF-IDF features of words (1, 2) and of characters inside words (2 to 5), the same numbers as scikit-learn's
`TfidfVectorizer`. Fitting takes seconds: a linear SVM for classes, a logistic regression per label for multi-label data, ridge regression for numbers. Cross-validation
on the training rows selects the regularization (`chosen_`) and a temperature, which is included in the weights.
The model reads texts of any length and has at most 1,000,000 features and 50,000,000 weights (features times classes). It is saved without pickle, and
`explain` is exact. It uses the settings `clean`, `lowercase`, `strip_accents`, `min_count`, `class_weight` and
`sample_weight`, and `vocab_size` if you set it. Features of encoders (attention maps, `embed`, LoRA, `train_layers`, few-shot, int8,
folders for transformers) raise an error that names another model.

## A linear model of images: `hog`

`gf.ImageClassifier("hog")`, `gf.ImageRegressor("hog")` and `glassformer train --images FOLDER --model hog` fit a logistic
regression (ridge for numbers) on histograms of oriented gradients (Dalal and Triggs, 2005) and on the mean color of each cell (`nn/hog.py`). Cross-validation
on the training images selects the regularization. Each image is scaled to 48 x 48 pixels and divided into 36 cells of 8 x 8 pixels with 39 features each. You can set `image_size`, `patch_size` (the size of a
cell), `channels` and how images are scaled. The model needs no pre-trained weights and takes seconds. It is saved without pickle, served and exported to ONNX. `explain` hides
one cell at a time (`occlusion`), or computes exactly how much each cell adds to the logit (`gradient_x_input`). Features of encoders (attention maps, LoRA, `train_layers`, `pooling`,
folders for transformers) raise a one-line error."""


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
        "## Ignored tensors and unsupported settings",
        "",
    ]
    seen: dict[Any, str] = {}
    for name, family in ON_THE_HUB.items():
        assert family.hub is not None
        if (first := seen.setdefault(id(family.hub.names), name)) != name:
            lines += [f"### {name}", "", f"The same as {first}.", ""]
            continue
        lines += [*details(name, family), ""]
    with tempfile.TemporaryDirectory() as folder:
        lines += ["## Unsupported models and files", "", *others(Path(folder).resolve()), ""]
    lines += [
        "## Models without a Hugging Face format", "",
        "LSTM, GRU, TextCNN, and encoders that no family of `transformers` can express, are saved in a separate format,",
        "which only glassformer opens.", "", *opened_here(), "", LINEAR,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
