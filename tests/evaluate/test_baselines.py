"""The simple models beside ours learn what can be learnt, and say what they cannot use."""

import inspect

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit

from glassformer.data.text import TokenTable
from glassformer.errors import DataError, ShapeError
from glassformer.evaluate.baselines import bag_of_embeddings, pixel_logistic, tfidf_logistic


def reviews(n: int, seed: int) -> tuple[list[str], np.ndarray]:
    """ "not good" against "good": word pairs decide, single words alone do not."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    filler = ["the film", "a story", "this cast", "its end"]
    texts = []
    for label in y:
        word, other = ("good", "bad") if rng.random() < 0.5 else ("bad", "good")
        negated = (word == "good") != bool(label)
        says = f"not {word} but {other} is plain" if negated else f"{word} but not {other} is plain"
        texts.append(f"{filler[rng.integers(4)]} {says}")
    return texts, y


def bags(n: int, seed: int) -> tuple[TokenTable, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    texts = [np.append(rng.integers(3, 50, rng.integers(1, 9)), [label] * 2) for label in y]
    return TokenTable.of(texts), y


def test_tfidf_reads_word_pairs():
    (train, y), (test, z) = reviews(400, 0), reviews(101, 1)
    p = tfidf_logistic(train, y, test)
    assert p.shape == (101, 2)
    assert p.sum(1) == pytest.approx(np.ones(101))
    assert (p.argmax(1) == z).mean() > 0.95
    # it keeps the columns of classes that it never saw
    p = tfidf_logistic(["a b", "c d", "a b", "c d"], [0, 2, 0, 2], ["a b", "c d"], num_classes=4)
    assert p.shape == (2, 4)
    assert p.argmax(1).tolist() == [0, 2]
    assert not p[:, [1, 3]].any()
    assert tfidf_logistic(["a", "b"], [0, 1], []).shape == (0, 2)
    # words of one text alone are left out where there are a thousand
    texts = ["good film", "bad film"] * 500
    texts[0] = "good hapax"
    p = tfidf_logistic(texts, [0, 1] * 500, ["hapax", "film", "nothing"])
    assert p[0] == pytest.approx(p[2])
    once = tfidf_logistic(texts[:998], [0, 1] * 499, ["hapax", "nothing"])
    assert once[0, 0] > once[1, 0] + 1e-3


def lopsided(n: int, seed: int) -> tuple[list[str], np.ndarray]:
    """One in eight is of class 1; its word stands in half of the others too."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 8 == 0).astype(int)
    return [f"w{rng.integers(7)} " + ("rare" if t or rng.random() < 0.3 else "plain") for t in y], y


def test_baselines_take_the_weights_of_the_model_beside_them():
    (train, y), (test, z) = lopsided(211, 0), lopsided(101, 1)
    weights = np.where(y, 8 / 2, 8 / 14)
    plain = tfidf_logistic(train, y, test)
    weighted = tfidf_logistic(train, y, test, sample_weight=weights, measure="macro_f1")
    assert (plain.argmax(1)[z == 1] == 1).mean() < (weighted.argmax(1)[z == 1] == 1).mean() == 1
    words = {w: i for i, w in enumerate(sorted({w for t in train for w in t.split()}))}
    ids = TokenTable.of([[words[w] for w in t.split()] for t in train])
    plain, weighted = (
        bag_of_embeddings(ids, y, ids, vocab_size=len(words), epochs=8, sample_weight=w).argmax(1).sum()
        for w in (None, weights)
    )
    assert plain < weighted
    rng, options = np.random.default_rng(5), {"num_classes": 2, "max_images": 199}
    pictures = [rng.integers(0, 90 + 30 * t, (5, 5, 3), np.uint8) for t in y]
    plain, weighted = (
        pixel_logistic(pictures, y, pictures, sample_weight=w, **options)[0][:, 1].mean()
        for w in (None, weights)
    )
    assert plain < weighted


def test_the_strength_is_chosen_by_the_measure(monkeypatch):
    (train, y), asked = lopsided(211, 0), []
    monkeypatch.setattr(
        "sklearn.metrics.f1_score", lambda *a, **options: asked.append(options["average"]) or 0.0
    )
    tfidf_logistic(train, y, train[:3])
    assert asked == []
    tfidf_logistic(train, y, train[:3], measure="macro_f1")
    assert asked == ["macro"] * 4


def test_threads_are_capped_while_simple_models_are_fitted(monkeypatch):
    import threadpoolctl

    seen = []
    fit = LogisticRegression.fit

    def watched(self, *args, **kwargs):
        seen.append({pool["num_threads"] for pool in threadpoolctl.threadpool_info()})
        return fit(self, *args, **kwargs)

    monkeypatch.setattr(LogisticRegression, "fit", watched)
    before = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
    with threadpoolctl.threadpool_limits(2):
        tfidf_logistic(["a b", "c d"] * 7, [0, 1] * 7, ["a b"])
    assert seen
    assert all(threads == {1} for threads in seen)
    assert [pool["num_threads"] for pool in threadpoolctl.threadpool_info()] == before


def test_bag_of_embeddings_learns_and_repeats_itself():
    (train, y), (test, z) = bags(600, 0), bags(101, 1)
    state = torch.get_rng_state()
    p = bag_of_embeddings(train, y, test, vocab_size=50, epochs=8, dim=11, seed=3)
    assert torch.equal(state, torch.get_rng_state())
    assert p.shape == (101, 3)
    assert p.sum(1) == pytest.approx(np.ones(101))
    assert (p.argmax(1) == z).mean() > 0.9
    again = bag_of_embeddings(train, y, test, vocab_size=50, epochs=8, dim=11, seed=3)
    assert np.array_equal(p, again)
    # by default it is 64 wide and is trained for 100 steps
    (train, y), (test, _) = bags(131, 5), bags(7, 6)
    usual = bag_of_embeddings(train, y, test, vocab_size=50)
    options = {"epochs": 34, "dim": 64, "lr": 1e-2, "batch_size": 64, "seed": 0, "num_classes": 3}
    assert np.array_equal(usual, bag_of_embeddings(train, y, test, vocab_size=50, **options))
    large, z = bags(6_401, 5)
    once = bag_of_embeddings(large, z, test, vocab_size=50, epochs=1)
    assert np.array_equal(bag_of_embeddings(large, z, test, vocab_size=50), once)
    wider = bag_of_embeddings(train, y, test, vocab_size=50, num_classes=5)
    assert wider.shape == (7, 5)
    assert bag_of_embeddings(train, y, test.select([0]), vocab_size=50, num_classes=2).shape == (1, 3)


def test_bad_input_is_named():
    with pytest.raises(ShapeError, match="2 texts"):
        tfidf_logistic(["a", "b"], [0], ["a"])
    with pytest.raises(DataError, match="two classes"):
        tfidf_logistic(["a", "b"], [1, 1], ["a"])
    with pytest.raises(DataError, match="no words"):
        tfidf_logistic(["!!", "??"], [0, 1], ["a"])
    with pytest.raises(DataError, match="two classes"):
        bag_of_embeddings(TokenTable.of([[1], [2]]), [1, 1], TokenTable.of([[1]]), vocab_size=3)


def test_tfidf_is_scikit_learns_with_the_best_strength():
    (train, y), (test, _) = reviews(53, 2), reviews(11, 3)
    words = TfidfVectorizer(
        token_pattern=r"(?u)\b\w+\b", ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32
    )
    rows, judged = words.fit_transform(train), words.transform(test)

    def fitted(strength, index):
        return LogisticRegression(C=strength, max_iter=2000, tol=1e-5).fit(rows[index], y[index])

    held = StratifiedShuffleSplit(1, test_size=0.2, random_state=5)
    rest, others = next(held.split(np.zeros(53), y))
    strengths = (0.5, 1e-3, 7.0)
    best = max(strengths, key=lambda c: fitted(c, rest).score(rows[others], y[others]))
    assert best != strengths[1]
    ours = tfidf_logistic(train, y, test, Cs=strengths, seed=5)
    assert ours == pytest.approx(fitted(best, slice(None)).predict_proba(judged), abs=1e-9)
    few = tfidf_logistic(train[:19], y[:19], test, Cs=strengths)  # too few to hold some out
    rows, judged = words.fit_transform(train[:19]), words.transform(test)
    middle = LogisticRegression(C=1e-3, max_iter=2000, tol=1e-5).fit(rows, y[:19])
    assert few == pytest.approx(middle.predict_proba(judged), abs=1e-9)


def test_bag_of_embeddings_equals_a_plain_loop_and_leaves_the_threads():
    (train, y), (test, _) = bags(23, 5), bags(7, 6)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    ours = bag_of_embeddings(train, y, test, vocab_size=50, epochs=3, dim=11, lr=0.02, batch_size=5, seed=7)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    rng = torch.Generator().manual_seed(7)
    table = (0.1 * torch.randn(50, 11, generator=rng)).requires_grad_()
    weight = (torch.randn(3, 11, generator=rng) / 11**0.5).requires_grad_()
    bias = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.Adam([table, weight, bias], lr=0.02)

    def logits(texts):
        return torch.stack([table[torch.as_tensor(t)].mean(0) for t in texts]) @ weight.T + bias

    step, steps = 0, 3 * 5
    for _ in range(3):
        for batch in torch.randperm(23, generator=rng).split(5):
            optimizer.param_groups[0]["lr"] = 0.02 * (1 - step / steps * (1 - 1e-3))
            loss = torch.nn.functional.cross_entropy(
                logits([train[i] for i in batch.tolist()]), torch.as_tensor(y)[batch]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    assert ours == pytest.approx(logits(test).softmax(1).detach().numpy(), abs=1e-4)


def test_pixels_are_scikit_learns_on_small_pictures():
    rng = np.random.default_rng(0)
    y = np.array([0, 2, 2, 0, 2, 0, 0])
    pictures = [rng.integers(0, 100 + 50 * c, (6, 6, 3), np.uint8) for c in y]
    p, name = pixel_logistic(pictures, y, pictures[:3], num_classes=4, side=6)
    assert name == "logistic regression on 6 x 6 pixels"
    rows = np.stack(pictures).reshape(7, -1).astype(np.float32) / 255
    scaled = (rows - rows.mean(0)) / rows.std(0)
    wanted = LogisticRegression(C=0.01, max_iter=100).fit(scaled, y).predict_proba(scaled[:3])
    assert p[:, [0, 2]] == pytest.approx(wanted, abs=1e-4)
    assert not p[:, [1, 3]].any()
    assert pixel_logistic(pictures, y, pictures[:1], num_classes=3, max_images=7)[1].endswith(
        "16 x 16 pixels"
    )
    assert inspect.signature(pixel_logistic).parameters["max_images"].default == 10_000
    # where there are many they are drawn from every class
    dark, light = np.zeros((4, 4, 3), np.uint8), np.full((4, 4, 3), 255, np.uint8)
    pictures = [dark] * 30 + [light] * 10  # as a folder gives them: class by class
    targets = np.array([0] * 30 + [1] * 10)
    p, name = pixel_logistic(pictures, targets, [dark, light], num_classes=2, max_images=20)
    assert name.endswith("(20 images)")
    assert p.argmax(1).tolist() == [0, 1]
