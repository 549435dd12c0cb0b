"""Folders of the Hub that are read as transformers reads them, or named in one line."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import glassformer as gf
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import CheckpointError

transformers = pytest.importorskip("transformers")

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "good"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
KINDS = {
    "bert": "BertTokenizer",
    "distilbert": "DistilBertTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "mpnet": "MPNetTokenizer",
}


def bare_tokenizer(folder: Path, kind: str, said: str | None) -> None:
    """A tokenizer.json without a post-processor, and settings that name a class, or none."""
    folder.mkdir(exist_ok=True)
    if kind == "mpnet":
        pieces = [*ROBERTA, "[UNK]", *BERT[5:]]
        made = Tokenizer(models.WordPiece({w: i for i, w in enumerate(pieces)}, unk_token="[UNK]"))
        names = {
            "bos": "<s>",
            "pad": "<pad>",
            "sep": "</s>",
            "unk": "[UNK]",
            "mask": "<mask>",
            "cls": "<s>",
            "eos": "</s>",
        }
    elif kind in ("bert", "distilbert"):
        made = Tokenizer(models.WordPiece({w: i for i, w in enumerate(BERT)}, unk_token="[UNK]"))
        names = dict(zip(("pad", "unk", "cls", "sep", "mask"), BERT, strict=False))
    else:
        pieces = [(w, 0.0) for w in ROBERTA] + [
            (f"{a}{w}", -1.0) for w in ("the", "film", "good") for a in ("▁", "")
        ]
        made = Tokenizer(models.Unigram(pieces, 3))
        names = dict(zip(("bos", "pad", "sep", "unk", "mask"), ROBERTA, strict=True)) | {
            "cls": "<s>",
            "eos": "</s>",
        }
    piece_by_piece = isinstance(made.model, models.Unigram)
    made.pre_tokenizer = pre_tokenizers.Metaspace() if piece_by_piece else pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    settings = {f"{name}_token": token for name, token in names.items()}
    settings |= {"tokenizer_class": said} if said else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))


@pytest.mark.parametrize("said", ["own", "fast", "PreTrainedTokenizerFast", None])
@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_that_the_file_does_not_add(tmp_path, kind, said):
    named = {"own": KINDS[kind], "fast": f"{KINDS[kind]}Fast"}.get(said, said)
    bare_tokenizer(tmp_path, kind, named)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    ours = load_tokenizer(tmp_path)
    for text in (["the film"], ["the", "good film"]):
        assert ours.encode(*text).ids == theirs(*text)["input_ids"]
    framed = len(ours.encode("the film").ids) > len(ours.encode("the film", add_special_tokens=False).ids)
    assert framed == (said != "PreTrainedTokenizerFast")


@pytest.fixture
def small() -> dict:
    sizes = {"hidden_size": 14, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 13}
    return sizes | {"vocab_size": len(BERT), "max_position_embeddings": 23}


def test_a_classifier_with_such_a_tokenizer_answers_as_transformers(tmp_path, small):
    torch = pytest.importorskip("torch")
    bare_tokenizer(tmp_path, "bert", "BertTokenizer")
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**small)).eval()
    model.save_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    with torch.no_grad():
        theirs = model(**tokenizer(["the good film"], return_tensors="pt")).logits.softmax(-1)
    assert gf.load(tmp_path).predict_proba(["the good film"]) == pytest.approx(theirs.numpy(), abs=1e-5)


def test_next_sentence_prediction_is_named(tmp_path, small, capsys):
    from glassformer.cli.app import main

    folder = tmp_path / "nsp"
    bare_tokenizer(folder, "bert", None)
    transformers.BertForNextSentencePrediction(transformers.BertConfig(**small)).save_pretrained(folder)
    said = r"a next-sentence-prediction head \(.BertForNextSentencePrediction.\) is not supported\. Fine-tune its encoder"
    with pytest.raises(CheckpointError, match=said):
        gf.load(folder)
    capsys.readouterr()
    assert main(["predict", str(folder), "a text"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "next-sentence-prediction head" in err
    alone = tmp_path / "alone"  # what the message proposes
    transformers.AutoModel.from_pretrained(folder).save_pretrained(alone)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (alone / name).write_text((folder / name).read_text())
    clf = gf.TextClassifier(str(alone), epochs=1, precision="fp32", threads=1, max_length=7, seed=3)
    clf.fit(["the film", "good film", "the", "good"], ["a", "b", "a", "b"])
    assert clf.predict(["the film"]).tolist()[0] in ("a", "b")
