"""Pairs of texts against transformers: the same ids and segments, the same logits of its sequence classifiers."""

import itertools

import numpy as np
import pytest
import torch
from tests.byte_pieces import byte_level
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import glassformer as gf
from glassformer.data.text_pairs import check_inputs, encode_pairs, truncated_lengths
from glassformer.errors import DataError

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

SIDES = [
    "A man is playing a guitar.",
    "Nobody plays",
    "a dog runs through the high grass and a child is watching it from a wooden fence",
    "grass",
    "Two dogs are fighting, and two children in wet coats look on. Nobody is playing.",
]
PAIRS = [*itertools.product(SIDES, SIDES)]
WORDS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    trainer = trainers.WordPieceTrainer(vocab_size=83, special_tokens=WORDS[1], show_progress=False)
    tokenizer.train_from_iterator(SIDES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def bytes_of_roberta() -> Tokenizer:
    tokenizer = byte_level(SIDES, WORDS[0], 293)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer


SHAPE = {"hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 31}
NAMES = ("entailment", "neutral", "contradiction")
LABELS = {
    "id2label": dict(enumerate(NAMES)),
    "label2id": {name: i for i, name in enumerate(NAMES)},
    "initializer_range": 0.2,
}
KINDS = {
    "bert": (wordpiece, "Bert", {**SHAPE, "max_position_embeddings": 97}),
    "roberta": (bytes_of_roberta, "Roberta", {**SHAPE, "max_position_embeddings": 99, "type_vocab_size": 1}),
    "distilbert": (
        wordpiece,
        "DistilBert",
        {"dim": 22, "n_layers": 2, "n_heads": 2, "hidden_dim": 31, "max_position_embeddings": 97},
    ),
}


def put(kind: str, folder) -> tuple:
    """A classifier of three classes and its tokenizer as transformers writes them; both."""
    make, name, sizes = KINDS[kind]
    tokenizer, special = make(), WORDS[0] if kind == "roberta" else WORDS[1]
    named = dict(zip(("pad", "unk", "cls", "sep", "mask"), special, strict=True))
    if kind == "roberta":
        named = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=97,
        model_input_names=["input_ids", "attention_mask", *(["token_type_ids"] if kind == "bert" else [])],
        **{f"{k}_token": token for k, token in named.items()},
    )
    torch.manual_seed(7)
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(tokenizer.get_vocab()),
        **{"pad_token_id": 1} if kind == "roberta" else {},
        **sizes,
        **LABELS,
    )
    model = getattr(transformers, f"{name}ForSequenceClassification")(config).eval()
    model.save_pretrained(folder)
    theirs.save_pretrained(folder)
    return theirs, model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [6, 7, 11, 17, 23, 97])
def test_ids_and_segments_are_those_of_transformers(kind, length, tmp_path):
    theirs, _ = put(kind, tmp_path)
    ours = encode_pairs(
        gf.load(tmp_path).tokenizer_, check_inputs(PAIRS), max_length=length, add_special_tokens=True
    )
    whole = theirs(*zip(*PAIRS, strict=True))["input_ids"]
    wanted = theirs(*zip(*PAIRS, strict=True), truncation=True, max_length=length, return_token_type_ids=True)
    for i, (ids, kinds) in enumerate(zip(wanted["input_ids"], wanted["token_type_ids"], strict=True)):
        assert ours[i].tolist() == ids
        assert ours.segments[ours.starts[i] : ours.starts[i + 1]].tolist() == kinds
        assert ours.truncated[i] == (len(whole[i]) > length)
    assert ours.truncated.any() or length == 97


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers_classes(kind, tmp_path):
    tokenizer, model = put(kind, tmp_path)
    clf = gf.load(tmp_path).set_params(precision="fp32", max_length=29)
    batch = tokenizer(
        *zip(*PAIRS, strict=True), truncation=True, max_length=29, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        theirs = model(**batch).logits.numpy()
    columns = [["entailment", "neutral", "contradiction"].index(label) for label in clf.classes_.tolist()]
    np.testing.assert_allclose(clf.logits(PAIRS), theirs[:, columns], atol=1e-5, rtol=0)
    alone = np.concatenate([clf.logits([pair]) for pair in PAIRS])
    np.testing.assert_allclose(alone, theirs[:, columns], atol=1e-5, rtol=0)
    single = clf.logits([a for a, _ in PAIRS[:3]])  # what others trained reads one text, too
    assert np.isfinite(single).all()
    clf.save(tmp_path / "ours")
    np.testing.assert_array_equal(gf.load(tmp_path / "ours").logits(PAIRS), clf.logits(PAIRS))


def test_segments_that_the_tokenizer_does_not_name_are_not_given(tmp_path):
    tokenizer, model = put("bert", tmp_path / "theirs")
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(tmp_path / "theirs")
    batch = tokenizer(*zip(*PAIRS, strict=True), padding=True, return_tensors="pt")
    assert "token_type_ids" not in batch
    with torch.no_grad():
        theirs = model(**batch).logits.numpy()
    clf = gf.load(tmp_path / "theirs").set_params(precision="fp32")
    columns = [NAMES.index(label) for label in clf.classes_.tolist()]
    np.testing.assert_allclose(clf.logits(PAIRS), theirs[:, columns], atol=1e-5, rtol=0)
    again = gf.load(clf.save(tmp_path / "ours"))
    np.testing.assert_array_equal(again.logits(PAIRS), clf.logits(PAIRS))


def test_a_fitted_model_opens_in_transformers_with_the_same_logits(tmp_path):
    put("bert", tmp_path / "theirs")
    labels = [("entailment", "neutral")[i % 2] for i in range(len(PAIRS))]
    clf = gf.TextClassifier(
        str(tmp_path / "theirs"),
        max_length=29,
        epochs=1,
        precision="fp32",
        threads=1,
        seed=0,
        pooling="pooler",
    ).fit(PAIRS, labels)
    assert clf.pairs_ is True
    clf.save(tmp_path / "ours")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    batch = tokenizer(
        *zip(*PAIRS, strict=True), truncation=True, max_length=29, padding=True, return_tensors="pt"
    )
    assert batch["token_type_ids"].any()
    with torch.no_grad():
        theirs = model(**batch).logits.numpy()
    np.testing.assert_allclose(clf.logits(PAIRS), theirs, atol=1e-5, rtol=0)
    again = gf.load(tmp_path / "ours")
    assert again.pairs_ is True
    np.testing.assert_array_equal(again.logits(PAIRS), clf.logits(PAIRS))
    with pytest.raises(DataError, match="this model reads pairs of texts"):
        again.predict(["one text"])


@pytest.mark.parametrize(
    ("first", "second", "room"), [(3, 11, 7), (11, 3, 7), (8, 5, 7), (5, 8, 7), (2, 2, 7), (9, 9, 2)]
)
def test_the_longer_side_is_cut_first(first, second, room):
    a, b = truncated_lengths(first, second, room)
    plain = [first, second]
    while sum(plain) > room:  # token by token; of equals the second keeps one more
        plain[0 if plain[0] >= plain[1] else 1] -= 1
    assert sorted((a, b)) == sorted(plain)
    assert a <= first
    assert b <= second
