"""``Embedder``: every form of training learns, resumes to the same bits, and answers as before from its folder."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

import glassformer as gf
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.targets.similarity import (
    correlations,
    pearson,
    ranks_of_partners,
    retrieval_metrics,
    spearman,
)
from glassformer.tasks.similarity.pairs import LabelStream, PairLoss, all_pairs

from .tiny import LABELS, PAIRS, POSITIONS, SCORES, TEXTS, WIDTH, checkpoint, plain, tiny

FORMS = {"scores": (PAIRS, SCORES), "positives": (PAIRS,), "labels": (TEXTS, LABELS)}


@pytest.mark.parametrize("loss", ["cosine", "cosent"])
def test_scores_are_learned_and_the_folder_answers_the_same(loss, tmp_path):
    embedder = tiny(loss=loss, epochs=40, lr=3e-3).fit(PAIRS, SCORES)
    assert embedder.score(PAIRS, SCORES) > 0.85
    again = gf.load(embedder.save(tmp_path / "model"))
    assert type(again) is gf.Embedder
    np.testing.assert_array_equal(again.encode(["a dog"]), embedder.encode(["a dog"]))
    assert clone(embedder).get_params() == embedder.get_params()


def test_partners_are_found_among_the_others_of_a_batch():
    embedder = tiny(epochs=60, lr=1e-2, batch_size=5).fit(PAIRS)
    cosines = embedder.similarity([a for a, _ in PAIRS], [b for _, b in PAIRS])
    assert (cosines.argmax(1) == np.arange(len(PAIRS))).all()
    assert embedder.loss_ == "negatives"
    # bf16 gives nearly the same vectors
    embedder = tiny().fit(PAIRS, SCORES)
    full = embedder.encode(TEXTS)
    half = embedder.set_params(precision="bf16").encode(TEXTS)
    assert half.dtype == np.float32
    assert not np.array_equal(full, half)
    assert (full * half).sum(1).min() > 0.99
    trained = tiny(precision="bf16").fit(PAIRS, SCORES)
    assert np.isfinite(trained.encode(TEXTS)).all()


@pytest.mark.parametrize("head", ["linear", "knn"])
def test_labels_move_texts_of_a_class_together_and_give_classes(head, tmp_path):
    embedder = tiny(lr=3e-3, head=head, neighbors=2).fit(TEXTS, LABELS)
    assert embedder.predict(["a cat and a dog", "three"]).tolist() == ["animal", "number"]
    shares = embedder.predict_proba(TEXTS)
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-6)
    assert embedder.score(TEXTS, LABELS) == 1
    cosines, same = embedder.similarity(TEXTS, TEXTS), np.equal.outer(np.array(LABELS), np.array(LABELS))
    assert cosines[same].mean() > cosines[~same].mean() + 0.3
    for wrong, what in (
        ([1] * 7, "has another type than the known label"),
        (LABELS[1:], "7 texts, 6 labels"),
    ):
        with pytest.raises(DataError, match=what):
            embedder.score(TEXTS, wrong)
    again = gf.load(embedder.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(TEXTS), shares)
    (tmp_path / "model" / "classes.safetensors").unlink()
    with pytest.raises(CheckpointError):
        gf.load(tmp_path / "model")


@pytest.mark.parametrize("form", FORMS)
def test_what_is_held_out_is_judged_after_each_epoch(form):
    data = FORMS[form]
    held = data if len(data) > 1 else (*data, None)
    embedder = tiny(pairs_per_text=2).fit(*data, validation=held)
    judged = [r for r in embedder.history_ if r["kind"] == "evaluation"]
    assert len(judged) == 2
    assert all({"loss", "score"} <= r.keys() for r in judged)
    by_score = max(judged, key=lambda r: (r["score"], -r["loss"]))
    assert embedder.best_step_ == by_score["step"]
    by_loss = tiny(pairs_per_text=2, monitor="loss").fit(*data, validation=held)
    lowest = min((r for r in by_loss.history_ if r["kind"] == "evaluation"), key=lambda r: r["loss"])
    assert by_loss.best_step_ == lowest["step"]


def test_a_checkpoint_answers_without_a_fit_and_its_head_alone_can_be_trained(tmp_path):
    folder = str(checkpoint(tmp_path / "checkpoint"))
    raw = gf.Embedder(folder, threads=1)
    before = raw.encode(TEXTS)
    assert raw.similarity("a dog", "a dog") == pytest.approx(1, abs=1e-6)
    probe = gf.Embedder(folder, threads=1, train_layers=0).fit(TEXTS[:6], LABELS[:6])
    np.testing.assert_array_equal(probe.encode(TEXTS), before)
    assert set(probe.predict(TEXTS)) <= {"animal", "number"}
    again = gf.load(probe.save(tmp_path / "probe"))
    np.testing.assert_array_equal(again.predict_proba(TEXTS), probe.predict_proba(TEXTS))
    with pytest.raises(ConfigError, match="no weight would be trained on pairs"):
        gf.Embedder(folder, train_layers=0).fit(PAIRS, SCORES)
    with pytest.raises(ConfigError, match="random weights"):
        tiny(train_layers=0).fit(TEXTS, LABELS)


@pytest.mark.parametrize("settings", [{"train_layers": 1}, {"lora_rank": 2}], ids=str)
def test_a_part_of_the_weights_can_learn_alone(settings, tmp_path):
    folder = str(checkpoint(tmp_path / "checkpoint"))
    before = gf.Embedder(folder, threads=1)
    before.encode(["a dog"])
    after = gf.Embedder(folder, threads=1, batch_size=3, lr=1e-2, **settings).fit(PAIRS, SCORES)
    old, new = before.model_.state_dict(), after.model_.state_dict()
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    prefix = "encoder.layers.1" if "train_layers" in settings else "encoder."
    assert changed
    assert all(name.startswith(prefix) for name in changed)


def test_sentence_transformers_opens_what_is_saved_with_equal_vectors_and_the_other_way_round(tmp_path):
    package = pytest.importorskip("sentence_transformers")
    folder = checkpoint(tmp_path / "checkpoint")
    embedder = gf.Embedder(str(folder), threads=1, precision="fp32", batch_size=3, lr=1e-2).fit(PAIRS, SCORES)
    texts = [*TEXTS, "it rained and " * 9]
    ours = embedder.encode(texts)
    theirs = package.SentenceTransformer(str(embedder.save(tmp_path / "ours")), device="cpu")
    np.testing.assert_allclose(theirs.encode(texts, show_progress_bar=False), ours, atol=1e-5)
    assert theirs.max_seq_length == 13
    theirs.save(str(tmp_path / "theirs"), create_model_card=False)
    again = gf.Embedder(str(tmp_path / "theirs"), threads=1, precision="fp32")
    np.testing.assert_allclose(again.encode(texts), ours, atol=1e-5)
    assert again.similarity("a dog", "the dog") == pytest.approx(
        float(ours[0] @ again.encode(["the dog"])[0]), abs=1e-5
    )


# --- losses against their definitions ---------------------------------------------------------------


def test_the_losses_are_those_of_their_definitions():
    torch.manual_seed(5)
    cosines, wanted = torch.rand(7) * 2 - 1, torch.tensor([0.0, 1, 0.25, 0.75, 0.5, 1, 0])
    weights = torch.full((7,), 1 / 7)
    squared, ranked = (
        PairLoss(k, 20.0).loss_of_cosines(cosines, wanted, weights) for k in ("cosine", "cosent")
    )
    assert squared == pytest.approx(float(((cosines - wanted) ** 2).mean()))
    rises = (20 * (cosines[None] - cosines[:, None])).exp()[wanted[:, None] > wanted[None]]
    assert ranked == pytest.approx(np.log1p(float(rises.sum())), rel=1e-5)
    # pairs of one class weigh as much as pairs of two
    targets = torch.tensor([0, 0, 0, 1, 2])
    vectors = torch.nn.functional.normalize(
        torch.randn(5, 3, generator=torch.Generator().manual_seed(2)), dim=1
    )
    cosines, same, weights = all_pairs(vectors, targets)
    assert len(cosines) == 10
    assert same.sum() == 3
    assert weights[same == 1].sum() == pytest.approx(0.5)
    assert weights.sum() == pytest.approx(1)
    _, _, alone = all_pairs(vectors[:2], targets[:2])
    assert alone.tolist() == [1.0]


def test_a_batch_holds_several_texts_of_a_class_and_a_pass_each_text_once():
    targets = np.repeat(np.arange(3), (11, 7, 5))
    stream = LabelStream(None, targets, 8, 2, 1, 3, torch.device("cpu"))  # type: ignore[arg-type]  # no texts
    halves = np.array_split(
        np.concatenate([b for step in [stream._pass(0, 0), stream._pass(0, 1)] for b in step]), 2
    )
    for half in halves:
        assert sorted(half.tolist()) == list(range(23))
    for batch in stream._pass(0, 0)[:-1]:
        counts = np.bincount(targets[batch], minlength=3)
        assert (counts > 0).sum() >= 2
        assert counts.max() >= 2


def test_figures_are_those_of_scipy_and_ties_are_for_nobody():
    from scipy.stats import pearsonr, spearmanr

    rng = np.random.default_rng(3)
    a, b = rng.normal(size=31), rng.integers(0, 5, 31).astype(float)
    assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert pearson(a, b) == pytest.approx(pearsonr(a, b).statistic)
    assert spearman(a, np.ones(31)) == 0
    found = correlations(a, b, resamples=50)
    assert found["spearman_interval"][0] < found["spearman"] < found["spearman_interval"][1]
    first = np.eye(3, dtype=np.float32)
    second = np.array([[0.6, 0.8, 0], [0, 1, 0], [0, 0, 1]], np.float32)  # the first is nearer to another
    found = retrieval_metrics(first @ second.T, "abc")
    assert found == {"pairs": 3, "found": 1.0, "reciprocal_rank": 1.0}
    found = retrieval_metrics(first[[1, 0, 2]] @ second.T, "abc")
    assert found["found"] == pytest.approx(1 / 3)
    assert found["reciprocal_rank"] == pytest.approx((1 / 2 + 1 / 2.5 + 1) / 3)  # one shares places 2 and 3
    # of equal cosines nobody is first; copies of the partner are the partner
    same = np.ones((3, 3), np.float32)
    assert ranks_of_partners(same, "abc").tolist() == [2.0, 2.0, 2.0]
    assert ranks_of_partners(same, "aab").tolist() == [1.5, 1.5, 2.0]
    assert retrieval_metrics(same, "abc") == {"pairs": 3, "found": 0.0, "reciprocal_rank": 0.5}
    assert retrieval_metrics(same, "aaa") == {"pairs": 3, "found": 1.0, "reciprocal_rank": 1.0}


def test_texts_that_are_held_out_leave_every_class_some(tmp_path):
    texts = [f"{word} {other}" for word in ("dog", "car", "two") for other in "uvwxyz"][:-4]
    labels = [{"dog": "animal", "car": "thing", "two": "zahl"}[text.split()[0]] for text in texts]
    for seed in range(3):
        embedder = tiny(epochs=1, seed=seed, validation_fraction=0.25).fit(texts, labels)
        assert embedder.predict_proba(texts).shape == (len(texts), 3)
        gf.load(embedder.save(tmp_path / str(seed)))
    alone = tiny(epochs=1, validation_fraction=0.25).fit([*texts, "rain"], [*labels, "weather"])
    assert alone.predict_proba(texts).shape == (len(texts), 4)
    many = [f"{word} {i}" for i in range(23) for word in ("dog", "cat", "car")]
    held = tiny(epochs=1, validation_fraction=0.1).fit(many, [text.split()[1] for text in many])
    assert held.predict_proba(many).shape == (69, 23)  # more classes than are held out
    for seed in range(2):
        two = tiny(epochs=1, seed=seed, validation_fraction=0.15).fit(many[:12], ["x", "y"] * 6)
        assert [r["kind"] for r in two.history_].count("evaluation") == 1
    with pytest.raises(DataError, match="too few texts: validation needs two classes"):
        tiny(validation_fraction=0.5).fit(["a", "b", "c", "c"], ["x", "y", "z", "z"])


@pytest.mark.parametrize("length", [None, 11])
def test_a_short_checkpoint_is_cut_alike_everywhere(length, tmp_path):
    embedder = gf.Embedder(str(plain(tmp_path / "c")), max_length=length, epochs=1, batch_size=3, threads=1)
    long = "a dog and the cat " * 9
    assert embedder.max_tokens() == (length or POSITIONS)
    assert embedder.truncated([long, "a dog"]).tolist() == [True, False]
    assert embedder.explain_similarity(long, "a dog").score == pytest.approx(
        embedder.similarity(long, "a dog")
    )
    embedder.fit([(long, "a dog"), *PAIRS])
    assert embedder.encode([long]).shape == (1, WIDTH)


# --- what cannot be ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "data", "error", "said"),
    [
        ({}, ([("a", "b", "c")],), DataError, "pairs, row 1: is not a pair of texts"),
        ({}, ([("a",)],), DataError, "texts without labels"),  # one column
        ({}, ([("a", "b"), ("a", "")],), DataError, "the text is empty"),
        ({}, ([("a", "b"), ("c", None)],), DataError, "the text is missing"),
        ({}, ([],), DataError, "no pairs"),
        ({}, ("ab",), DataError, "one string where a list of pairs or texts is expected"),
        ({}, ([("a", "b")],), DataError, "a single pair has no negatives"),
        ({}, (PAIRS, [1, 2]), DataError, "5 pairs, but scores of shape"),
        ({}, (PAIRS, [1, 2, 3, 4, "much"]), DataError, "a score is not a number"),
        ({}, (PAIRS, [1, 2, 3, 4, float("nan")]), DataError, "row 5: the score is missing or infinite"),
        ({}, (PAIRS, [2] * 5), DataError, "all scores are equal"),
        ({}, (TEXTS,), DataError, "texts without labels"),
        ({}, (TEXTS, LABELS[:3]), DataError, "7 texts, 3 labels"),
        ({}, (TEXTS, ["one"] * 7), DataError, "all texts have one label"),
        ({}, (TEXTS, list(range(7))), DataError, "each text has a label of its own"),
        ({"loss": "cosine"}, (PAIRS,), ConfigError, "cosine needs scores"),
        ({"loss": "negatives"}, (PAIRS, SCORES), ConfigError, "negatives does not use scores"),
        ({"loss": "negatives"}, (TEXTS, LABELS), ConfigError, "needs pairs, not texts with labels"),
        ({"pairs_per_text": 0}, (TEXTS, LABELS), ConfigError, "pairs_per_text"),
        ({"scale": 0.0}, (PAIRS,), ConfigError, "scale"),
        ({"head": "forest"}, (TEXTS, LABELS), ConfigError, "head"),
        ({"neighbors": 0}, (TEXTS, LABELS), ConfigError, "neighbors"),
        ({"d_model": 13}, (PAIRS,), ConfigError, "13"),
    ],
)
def test_what_cannot_be_is_one_line_that_names_the_place(settings, data, error, said):
    with pytest.raises(error, match=said) as caught:
        tiny(**settings).fit(*data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "held", "said"),
    [
        ((TEXTS, LABELS), (["a tree"], ["plant"]), r"validation: label 'plant' .*Known: animal, number"),
        ((PAIRS, SCORES), (PAIRS, None), "only one of training and validation has scores"),
        ((PAIRS, SCORES), PAIRS, "validation"),
    ],
)
def test_validation_that_does_not_fit_is_refused(data, held, said):
    with pytest.raises(DataError, match=said):
        tiny().fit(*data, validation=held)


def test_what_there_is_not():
    with pytest.raises(gf.errors.InputError, match="no-such-model"):
        gf.Embedder("no-such-model").fit(PAIRS, SCORES)
    with pytest.raises(ConfigError, match="was not fitted with labels"):
        tiny().fit(PAIRS).predict(["a dog"])
