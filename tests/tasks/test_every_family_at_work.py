"""Every text family of the Hub at work, with a tokenizer of each kind: tuned, explained, filled, exported, served."""

import json
import runpy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.byte_pieces import byte_level
from tests.commands import served, values
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

import glassformer as gf
from glassformer.data.checks import check_texts
from glassformer.data.text import wordpiece_tokenizer
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.data.vocabulary import MASK, Vocabulary
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.explain.methods import NETWORK_METHODS, methods_for
from glassformer.export.hf_folder import export_hf
from glassformer.export.onnx_folder import export_onnx
from glassformer.export.outputs import random_words
from glassformer.families import FAMILIES
from glassformer.families.pretrained import save_pretrained
from glassformer.families.roberta import roberta
from glassformer.nn.positions import Learned
from glassformer.tasks import build
from glassformer.tasks.text_classification.recipe import ModelConfig

TEXTS = [
    f"a {('warm and wise', 'dullish')[i % 2]} film {'that seemed long' if i % 3 else ''}" for i in range(40)
]
LABELS = [("good", "bad")[i % 2] for i in range(40)]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
PIECES = Path(__file__).parents[1] / "data" / "pieces" / "unigram.model"
SMALL = {"max_length": 29, "precision": "fp32", "threads": 1, "batch_size": 8, "lr": 1e-2, "epochs": 4}


def put_wordpiece(folder: Path) -> None:
    wordpiece_tokenizer(TEXTS, vocab_size=61, min_count=1).save(str(folder / "tokenizer.json"))


def put_bytes(folder: Path) -> None:
    byte_level(TEXTS, SPECIAL, 293).model.save(str(folder))


def put_unigram(folder: Path) -> None:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=47, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.save(str(folder / "tokenizer.json"))


def put_fast(folder: Path) -> None:
    """Of "dullish" only the halves are known, so that it is met as a step; of all letters but one."""
    words = sorted({word for text in TEXTS for word in text.split()} - {"dullish"})
    merges, pieces = {}, dict.fromkeys([*words, "dull@@", "ish"])
    for word in [*words, "dullish"]:
        left = word[0]
        for i, letter in enumerate(word[1:], 2):
            right = letter + ("</w>" if i == len(word) else "")
            merges[(left, right)] = None
            left += right
    pieces |= dict.fromkeys(letter + mark for letter in "abdefghilmnoprstuw" for mark in ("@@", ""))
    (folder / "vocab.txt").write_text("".join(f"{piece} 7\n" for piece in pieces))
    (folder / "bpe.codes").write_text("".join(f"{a} {b} 7\n" for a, b in merges))


def put_pieces(folder: Path) -> None:
    """MPNet's: BERT's pieces between RoBERTa's special tokens, and BERT's own special tokens as plain pieces."""
    tokenizer = wordpiece_tokenizer(TEXTS, vocab_size=61, min_count=1)
    pieces = [piece for piece in tokenizer.get_vocab() if not piece.startswith("[")]
    names = [*SPECIAL[:3], "[PAD]", *sorted(pieces), "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<mask>"]
    own = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    own.normalizer, own.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    own.add_special_tokens([*SPECIAL[:3], "[UNK]", "<mask>"])
    own.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    own.save(str(folder / "tokenizer.json"))


def put_sentence_pieces(folder: Path) -> None:
    """SentencePiece's file alone, of a model that was trained on other texts."""
    shutil.copy(PIECES, folder / "sentencepiece.bpe.model")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')


CASES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "roberta": ("roberta", put_bytes),
    "xlm-roberta": ("xlm-roberta", put_unigram),
    "camembert": ("camembert", put_unigram),
    "mpnet": ("mpnet", put_pieces),
    "phobert": ("roberta", put_fast),
    "pieces": ("xlm-roberta", put_sentence_pieces),
}


def put(name: str, folder: Path, head: str | None = "mlm", **changes) -> Path:
    """A folder as the Hub has it: random weights of a tiny model and its tokenizer's files."""
    kind, put_tokenizer = CASES.get(name, (name, put_wordpiece))
    folder.mkdir()
    put_tokenizer(folder)
    tokenizer, family = load_tokenizer(folder), FAMILIES[kind]
    rows = Vocabulary.of(tokenizer).first_intermediate_id(tokenizer) or len(tokenizer.get_vocab())
    config = replace(
        family.tiny(), init_std=0.2, head=head, **({"pooling": None} if head == "mlm" else {}) | changes
    )
    torch.manual_seed(13)
    places = {"max_positions": 29}
    if isinstance(config.embedding.positions, Learned):
        places = {"positions": replace(config.embedding.position_config, length=29)}
    embedding = replace(config.embedding, vocab_size=rows, **places)
    save_pretrained(family.model(replace(config, embedding=embedding)).eval(), folder)
    return folder


NAMES = list(
    dict.fromkeys([n for n, f in FAMILIES.items() if f.hub and f.model.reads == "texts"] + list(CASES))
)
EACH = pytest.mark.parametrize("name", NAMES)
# What asks the tokenizer alone, not the family: one family with each kind of it.
EACH_TOKENIZER = pytest.mark.parametrize(
    "name", [n if n in ("bert", *CASES) else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)


@EACH
def test_tuned_whole_in_part_and_by_its_head(name, tmp_path):
    folder = put(name, tmp_path / "hub")
    start = gf.load_pretrained(folder).state_dict()
    for options in ({}, {"train_layers": 1, "epochs": 1}, {"train_layers": 0, "epochs": 1}):
        clf = gf.TextClassifier(str(folder), **(SMALL | options)).fit(TEXTS, LABELS)
        assert options or clf.score(TEXTS, LABELS) >= 0.9
        state = clf.model_.state_dict()
        same = {
            part: all(torch.equal(state[k], v) for k, v in start.items() if k.startswith(part))
            for part in (f"encoder.layers.{i}." for i in range(len(clf.model_.encoder.layers)))
        }
        wanted = {"whole": (False, False), "part": (True, False), "head": (True, True)}
        kind = "whole" if not options else "part" if options["train_layers"] else "head"
        assert tuple(same.values()) == wanted[kind][-len(same) :]  # ALBERT has one layer
        clf.save(tmp_path / kind)
        again = gf.load(tmp_path / kind)
        np.testing.assert_array_equal(again.predict_proba(TEXTS), clf.predict_proba(TEXTS))
        assert again.embed(TEXTS[:3]).shape == (3, 12)
        assert again.model_.config == clf.model_.config


@EACH
def test_words_are_explained_whole(name, tmp_path):
    clf = gf.TextClassifier(str(put(name, tmp_path / "hub")), **SMALL).fit(TEXTS, LABELS)
    # No gradient reaches the maps of layers with a window.
    local = clf.model_.config.encoder.attention == "local"
    assert {*NETWORK_METHODS} - {*methods_for(clf.model_)} == ({"attention_gradient"} if local else set())
    for method in methods_for(clf.model_):
        found = clf.explain("a warm dullish film", method=method, maps=True)
        words = dict(found.words())
        assert list(words) == ["a", "warm", "dullish", "film"]
        assert np.abs(list(words.values())).max() > 0
        assert found.maps.shape == (2, 3, len(found.tokens), len(found.tokens))
        np.testing.assert_allclose(found.maps.sum(-1), 1.0, atol=1e-5)


@EACH
def test_masked_words(name, tmp_path):
    folder = put(name, tmp_path / "hub")
    options = values("max_length=29 epochs=2 lr=1e-2 precision=fp32 threads=1 batch_tokens=97")
    lm = gf.MaskedLM(str(folder), tokenizer="auto", whole_words=True, **options).fit(TEXTS)
    own = Vocabulary.of(lm.tokenizer_).tokens["mask"]
    found = lm.fill(f"a {MASK} film", top=7)
    assert found == lm.fill(f"a {own} film", top=7)
    assert len(found) == 7
    assert not [word for word, _ in found if word in SPECIAL or "Ġ" in word or "</w>" in word]
    assert not [word for word, _ in found if word.startswith("▁") and len(word) > 1]
    lm.save(tmp_path / "lm")
    assert gf.load(tmp_path / "lm").fill(f"a {own} film", top=7) == found
    tuned = gf.TextClassifier(str(tmp_path / "lm"), **(SMALL | {"epochs": 6})).fit(TEXTS, LABELS)
    assert tuned.score(TEXTS, LABELS) >= 0.9


@EACH_TOKENIZER
def test_a_tokenizer_without_a_mask_cannot_fill(name, tmp_path):
    lm = gf.MaskedLM(str(put(name, tmp_path / "hub")), tokenizer="auto", max_length=23, epochs=1).fit(TEXTS)
    lm.tokenizer_ = Tokenizer(models.WordLevel({"[UNK]": 0, "film": 1}, unk_token="[UNK]"))
    with pytest.raises(DataError, match="the vocabulary lacks"):
        lm.fill(f"a {MASK} film")


@EACH
def test_exported_to_the_hub_s_layout(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    kind = CASES.get(name, (name,))[0]
    if kind not in transformers.CONFIG_MAPPING:
        pytest.skip("a kind that transformers does not know")
    hub = FAMILIES[kind].hub
    folder = put(name, tmp_path / "hub", "classification")
    like = {"pooling": hub.pooling, "head": hub.head_type, "head_activation": hub.head_activation}
    clf = gf.TextClassifier(str(folder), **(SMALL | {"epochs": 1} | like)).fit(TEXTS, LABELS)
    found = export_hf(clf, tmp_path / "whole", TEXTS)
    assert (found["opens_as"], found["whole"]) == (hub.classes["classification"], True)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole").eval()
    assert type(model).__name__ == hub.classes["classification"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "whole")
    batch = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        logits = model(**batch).logits.numpy()
    np.testing.assert_allclose(logits, clf.export_outputs().outputs(TEXTS), atol=1e-5)
    again = gf.load(tmp_path / "whole").set_params(precision="fp32")  # as anybody's folder
    np.testing.assert_allclose(again.predict_proba(TEXTS), clf.predict_proba(TEXTS), atol=1e-6)

    other = gf.TextClassifier(str(folder), pooling="mean", **(SMALL | {"epochs": 1})).fit(TEXTS, LABELS)
    assert not export_hf(other, tmp_path / "beside", TEXTS)["whole"]
    script = runpy.run_path(str(tmp_path / "beside" / "run.py"))
    np.testing.assert_allclose(
        script["logits"](TEXTS).numpy(), other.export_outputs().outputs(TEXTS), atol=1e-5
    )


@pytest.mark.slow
@EACH
def test_exported_as_a_graph(name, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    clf = gf.TextClassifier(str(put(name, tmp_path / "hub")), **(SMALL | {"epochs": 1})).fit(TEXTS, LABELS)
    checked = export_onnx(clf, tmp_path / "graph", TEXTS)
    assert checked["largest_difference"] <= 1e-4


@EACH_TOKENIZER
def test_served(name, tmp_path):
    clf = gf.TextClassifier(str(put(name, tmp_path / "hub")), **(SMALL | {"epochs": 1})).fit(TEXTS, LABELS)
    with served(clf.save(tmp_path / "saved")) as client:
        answer = client.post("/v1/predict", json={"texts": TEXTS[:3]}).json()
    assert [one["label"] for one in answer["predictions"]] == clf.predict(TEXTS[:3]).tolist()


@pytest.mark.parametrize("name", ["roberta", "distilbert"])
def test_longer_texts_than_there_are_positions(name, tmp_path):
    folder = put(name, tmp_path / "hub")
    with pytest.raises(ConfigError, match="max_length: 30 is more than the model's 29 positions"):
        gf.TextClassifier(str(folder), max_length=30).fit(TEXTS, LABELS)
    clf = gf.TextClassifier(str(folder), **(SMALL | {"epochs": 1})).fit(TEXTS, LABELS)
    clf.set_params(max_length=31).save(tmp_path / "saved")
    with pytest.raises(CheckpointError, match="max_length = 31 is more than the model's 29 positions"):
        gf.load(tmp_path / "saved")


@pytest.mark.parametrize("name", ["roberta", "distilbert"])
def test_a_head_that_the_hub_has_no_class_for_is_kept_in_our_layout(name, tmp_path):
    model = gf.load_pretrained(put(name, tmp_path / "hub"), "pretraining")
    assert "next-sentence head" in model.weights_source
    save_pretrained(model, tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == "glassformer-text"
    again = gf.load_pretrained(tmp_path / "ours")
    ids = torch.tensor([[5, 7, 11]])
    with torch.no_grad():
        assert torch.equal(again(ids).seq_relationship_logits, model(ids).seq_relationship_logits)


def test_ids_beyond_the_table_that_are_no_steps_are_refused(tmp_path):
    folder = put("phobert", tmp_path / "hub")
    with (folder / "vocab.txt").open("a") as file:
        file.write("strange 7\n")
    with pytest.raises(CheckpointError, match="the tokenizer knows"):
        gf.TextClassifier(str(folder), **SMALL).fit(TEXTS, LABELS)


def test_what_the_table_lacks_is_unknown_to_it(tmp_path):
    """A piece that only stands on the way to others is read as the unknown token, as the published tokenizer has it."""
    folder = put("phobert", tmp_path / "hub", "classification")
    settings = json.loads((folder / "config.json").read_text())
    clf = gf.load(folder).set_params(precision="fp32")
    assert clf.model_.config.embedding.vocab_size > settings["vocab_size"]
    ids = clf.encode(["a dulli film"])[0]
    beyond = ids >= settings["vocab_size"]
    assert beyond.sum() == 0  # its end marks it as a word of its own: "dull", "i"
    ids = clf.encode(["a dullis film"])[0]
    table = gf.load_pretrained(folder)
    known = torch.from_numpy(np.where(ids < settings["vocab_size"], ids, 3).astype(np.int64))
    with torch.no_grad():
        wanted = table(known[None]).logits.softmax(1).numpy()
    np.testing.assert_allclose(clf.predict_proba(["a dullis film"]), wanted, atol=1e-6)


@pytest.mark.parametrize("length", [11, 601])
def test_a_preset_whose_positions_begin_further_down_takes_the_length_that_is_asked_for(length):
    """And one without a pooling gets one under a new head."""
    preset = roberta(31, 14, 1, 2, 11, pooling=None)
    config = build._scratch_config(preset, ModelConfig(model="mine"), 3, length)
    assert (config.embedding.longest, config.embedding.positions.offset) == (length, 2)
    assert config.pooling == "mean"


def test_samples_of_an_export_are_texts_that_are_taken(tmp_path):
    """A byte-level vocabulary has a token for the byte 0."""

    class Tokens:
        def get_vocab_size(self) -> int:
            return 7

        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            return "".join("\0a\0 \0\0b"[i] for i in ids)

    texts = [random_words(Tokens(), 31, np.random.default_rng(seed)) for seed in range(37)]
    assert check_texts(texts, "texts") == texts


@pytest.mark.parametrize("name", [name for name in CASES if name != "mpnet"])  # which refuses any other
@pytest.mark.parametrize("pad", [0, 3, 7])
def test_positions_that_begin_behind_another_token_s_row_are_refused(name, pad, tmp_path):
    folder = put(name, tmp_path / "theirs", "classification")
    assert gf.load(folder).predict(TEXTS[:1]).shape == (1,)
    config = json.loads((folder / "config.json").read_text())
    assert config["pad_token_id"] == 1
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": pad}))
    said = rf"config\.json: pad_token_id = {pad}, but the id of the tokenizer's padding token is 1\. Use"
    with pytest.raises(CheckpointError, match=said):
        gf.load(folder)
    with pytest.raises(CheckpointError, match=said):
        gf.TextClassifier(str(folder), max_length=7).fit(TEXTS[:2], ["no", "yes"])
    with pytest.raises(CheckpointError, match=said):
        gf.MaskedLM(str(folder), max_length=7).fit(TEXTS)
