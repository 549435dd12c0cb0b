"""Tables, arrays and other forms that scikit-learn's users give to estimators: at every door, before and after a save."""

import json
import random
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from tests.stopping import without_clock

import glassformer as gf
from glassformer.errors import CheckpointError, DataError, UnnamedColumnsWarning
from glassformer.targets import target_from_metadata
from glassformer.tasks.catalog import TASKS, load_recipe
from glassformer.tasks.run import run_task
from glassformer.tasks.task import TINY

SETTINGS = TINY | {"batch_size": 8, "epochs": 3, "lr": 3e-2, "max_length": 16, "min_count": 1}
N = 37
rng = random.Random(5)
WORDS = ["film", "story", "cast", "plot", "was", "the", "and", "a", "rather"]
TEXTS = [" ".join(rng.choices(WORDS, k=rng.randint(3, 8))) + f" {i}" for i in range(N)]
SIDES = [" ".join(rng.choices(WORDS, k=5)) + f" {i % 5}" for i in range(N)]
LABELS = [rng.choice(["pos", "neg"]) for _ in range(N)]
NUMBERS = [len(text) / 7 for text in TEXTS]
FRAME = pd.DataFrame({"text": TEXTS, "label": LABELS})
PAIRS = pd.DataFrame({"premise": TEXTS, "hypothesis": SIDES})
SWAPPED = PAIRS[["hypothesis", "premise"]].assign(id=range(N))


def classifier(**changes):
    return gf.TextClassifier("encoder-mini", **SETTINGS | changes)


def regressor(**changes):
    return gf.TextRegressor("encoder-mini", **SETTINGS | changes)


def embedder(**changes):
    return gf.Embedder("encoder-mini", **SETTINGS | {"epochs": 1} | changes)


def tiny(kind):
    task = next(task for task in TASKS.values() if task.estimator is kind)
    return task.example_fixture()


def records(frame):
    return frame.to_dict("records")


# More forms are in tests/data/test_in_memory.py, which has the reader that all estimators call.
FORMS = {
    "pandas": lambda frame: frame,
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "dicts": records,
}


@pytest.fixture(scope="module")
def fitted_pairs():
    return classifier().fit(PAIRS, LABELS)


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(FRAME[["text"]], LABELS)


# --- columns by name --------------------------------------------------------------------------------


def test_what_is_kept_of_the_columns(fitted, fitted_pairs):
    assert fitted_pairs.feature_names_in_.tolist() == ["premise", "hypothesis"]
    assert fitted_pairs.feature_names_in_.dtype == object
    assert (fitted.n_features_in_, fitted_pairs.n_features_in_) == (1, 2)
    assert not hasattr(clone(fitted_pairs), "feature_names_in_")
    assert not hasattr(classifier(), "n_features_in_")
    plain = classifier(epochs=1).fit(PAIRS, LABELS).fit(TEXTS, LABELS)
    assert (plain.n_features_in_, hasattr(plain, "feature_names_in_")) == (1, False)
    assert Pipeline([("clf", fitted_pairs)]).feature_names_in_.tolist() == ["premise", "hypothesis"]
    for columns in ("premise", [1, 2], ["a", "a"], ["a", "b", "c"], []):
        with pytest.raises(CheckpointError, match=r"columns = .* is not a list of up to 2 names"):
            classifier().read_columns({"columns": columns}, "here")


@pytest.mark.parametrize("form", FORMS)
def test_columns_in_another_order_give_the_same_answers(fitted_pairs, form, tmp_path):
    """Every form is fitted to the same bits."""
    X, made = FORMS[form](SWAPPED), classifier().fit(FORMS[form](PAIRS), LABELS)
    again = gf.load(fitted_pairs.save(tmp_path / "model"))
    wanted = fitted_pairs.predict_proba(list(zip(TEXTS, SIDES, strict=True)))
    for one in (fitted_pairs, made, again):
        assert (one.feature_names_in_.tolist(), one.n_features_in_) == (["premise", "hypothesis"], 2)
        np.testing.assert_array_equal(one.predict_proba(X), wanted)
    assert fitted_pairs.score(X, LABELS) == fitted_pairs.score(PAIRS, LABELS)
    for door in ("logits", "embed", "truncated"):
        np.testing.assert_array_equal(getattr(fitted_pairs, door)(X), getattr(fitted_pairs, door)(PAIRS))


def test_explanations_take_columns_by_name(fitted_pairs):
    one = fitted_pairs.explain((TEXTS[0], SIDES[0]))
    for x in (dict(hypothesis=SIDES[0], premise=TEXTS[0]), SWAPPED.iloc[0]):
        assert fitted_pairs.explain(x).scores.tolist() == one.scores.tolist()
    (many,) = fitted_pairs.explain_many(SWAPPED[:1])
    assert many.scores.tolist() == one.scores.tolist()


def test_what_is_missing_is_named_and_what_is_more_is_left_aside(fitted, fitted_pairs):
    of_list = classifier(epochs=1).fit(TEXTS, LABELS)
    assert of_list.predict(FRAME[["text"]]).tolist() == of_list.predict(TEXTS).tolist()
    misspelled = PAIRS.rename(columns={"premise": "premises"})
    for model, X, said in (
        (
            fitted_pairs,
            misspelled,
            r"no column 'premise'; expected: 'premise' and 'hypothesis'. Did you mean",
        ),
        (
            fitted,
            pd.DataFrame({"review": TEXTS}),
            r"no column 'text'; expected: 'text'. The columns are: review",
        ),
        (fitted_pairs, TEXTS, "reads pairs of texts"),
        (of_list, FRAME, r"2 columns \(text, label\).*Give the column of texts: X\['text'\]"),
    ):
        with pytest.raises(DataError, match=said):
            model.predict(X)
    assert fitted.predict(FRAME.assign(more=1)).tolist() == fitted.predict(TEXTS).tolist()
    assert fitted.score(FRAME, FRAME["label"]) == fitted.score(TEXTS, LABELS)
    for model, row in ((fitted, FRAME.iloc[0]), (fitted, records(FRAME)[0]), (fitted_pairs, PAIRS.iloc[0])):
        with pytest.raises(DataError, match=r"one row where a list of texts is expected. Put it into a list"):
            model.predict(row)
        assert len(model.predict([row])) == 1


def test_validation_calibration_and_int8_read_columns_by_name(fitted_pairs):
    made = (classifier(epochs=2).fit(PAIRS, LABELS, validation=(held, LABELS)) for held in (SWAPPED, PAIRS))
    histories = [without_clock(one.history_) for one in made]
    assert histories[0] == histories[1]
    first, second = (classifier(epochs=1).fit(PAIRS, LABELS) for _ in range(2))
    assert first.calibrate(SWAPPED, LABELS).temperature_ == second.calibrate(PAIRS, LABELS).temperature_


def test_regressors_read_columns_by_name(tmp_path):
    reg = regressor().fit(PAIRS, NUMBERS)
    wanted = reg.predict(PAIRS)
    np.testing.assert_array_equal(reg.predict(SWAPPED), wanted)
    assert reg.score(SWAPPED, NUMBERS) == reg.score(PAIRS, NUMBERS)
    assert reg.calibrate(SWAPPED, NUMBERS).errors_.tolist() == reg.calibrate(PAIRS, NUMBERS).errors_.tolist()
    np.testing.assert_array_equal(reg.predict_interval(SWAPPED), reg.predict_interval(PAIRS))
    np.testing.assert_array_equal(gf.load(reg.save(tmp_path / "m")).predict(SWAPPED), wanted)


def test_a_folder_without_names_goes_on_by_position_with_one_note(fitted_pairs, tmp_path):
    folder = fitted_pairs.save(tmp_path / "model")
    about = json.loads((folder / "glassformer.json").read_text())
    assert about["columns"] == ["premise", "hypothesis"]
    plain = classifier().fit(list(zip(TEXTS, SIDES, strict=True)), LABELS)
    old = gf.load(plain.save(tmp_path / "old"))
    assert "columns" not in json.loads((tmp_path / "old" / "glassformer.json").read_text())
    assert (old.n_features_in_, hasattr(old, "feature_names_in_")) == (2, False)
    with pytest.warns(UnnamedColumnsWarning, match=r"'premise' and 'hypothesis' are taken in this order"):
        found = old.predict_proba(PAIRS)
    np.testing.assert_array_equal(found, fitted_pairs.predict_proba(PAIRS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        old.predict(PAIRS)  # once
        old.predict(PAIRS.to_numpy())


def test_a_run_keeps_the_names_of_its_columns(tmp_path):
    PAIRS.assign(label=LABELS).to_csv(tmp_path / "pairs.csv", index=False)
    FRAME.rename(columns={"text": "review"}).to_csv(tmp_path / "texts.csv", index=False)
    PAIRS.assign(score=NUMBERS).to_csv(tmp_path / "scored.csv", index=False)
    tasks = {"pairs": "text-classification", "texts": "text-classification", "scored": "similarity"}
    found, file = {}, tmp_path / "recipe.toml"
    for name, task in tasks.items():
        file.write_text(
            f"""task = "{task}"
data = {{ source = "{tmp_path / name}.csv", test_size = 7 }}
text = {{ min_count = 1 }}
model = {{ model = "encoder-mini", d_model = 14, num_layers = 1, num_heads = 2, d_ff = 11 }}
train = {{ epochs = 1, batch_size = 8, lr = 0.01, threads = 1 }}
"""
        )
        run_task(load_recipe(file), tmp_path / name)
        found[name] = gf.load(tmp_path / name)
    names = {"pairs": ["premise", "hypothesis"], "texts": ["review"], "scored": ["premise", "hypothesis"]}
    assert {name: model.feature_names_in_.tolist() for name, model in found.items()} == names
    wanted = found["pairs"].predict_proba(list(zip(TEXTS, SIDES, strict=True)))
    np.testing.assert_array_equal(found["pairs"].predict_proba(SWAPPED), wanted)


def test_labels_among_the_inputs_raise():
    """What counts as one is in tests/data/test_in_memory.py."""
    said = r"column 'label' of X contains the labels. Give the column of texts without the labels: fit\("
    codes = [int(label == "pos") for label in LABELS]
    for model, y in (
        (classifier(), [LABELS]),
        (classifier(), [codes]),
        (embedder(), [LABELS]),
        (embedder(), []),
    ):
        with pytest.raises(DataError, match=said):
            model.fit(FRAME, *y)
        assert not hasattr(model, "feature_names_in_")
    with pytest.raises(DataError, match=r"column 'label' of X contains the targets"):
        regressor().fit(FRAME.assign(label=list(map(str, NUMBERS))), NUMBERS)


def test_labels_among_the_inputs_of_other_forms(fitted):
    for X in (FRAME.to_numpy(), list(zip(TEXTS, LABELS, strict=True)), FRAME.to_numpy().tolist()):
        with pytest.raises(DataError, match=r"contains the labels|the second text of each pair is its label"):
            classifier().fit(X, LABELS)
    with pytest.raises(ValueError, match=r"All the 2 fits failed(.|\n)*contains the labels"):
        cross_val_score(classifier(epochs=1), FRAME, FRAME["label"], cv=2)
    with pytest.raises(DataError, match=r"column 'label' of X contains the labels"):
        gf.Probe(fitted).fit(FRAME, LABELS)
    pictures = list(np.random.default_rng(1).integers(0, 256, (6, 8, 8, 3)).astype(np.uint8))
    table = pd.DataFrame({"image": pictures, "label": [0, 1] * 3})
    with pytest.raises(DataError, match=r"fit\(X\['image'\], X\['label'\]\)"):
        tiny(gf.ImageClassifier)[0].fit(table, table["label"])
    tagger, (words, tags) = tiny(gf.TokenTagger)
    said = r"contains the tags. Give the column of sentences without the tags: fit\(X\['tokens'\]"
    with pytest.raises(DataError, match=said):
        tagger.fit(pd.DataFrame({"tokens": words, "tags": tags}), tags)
    # one string is not a list of labels
    said = r"labels: one string, '{0}', where a list of labels is expected. .*X\['{0}'\]"
    for clf, y in ((classifier(), "abab"), (classifier(), "label"), (embedder(), "label")):
        with pytest.raises(DataError, match=said.format(y)):
            clf.fit(FRAME, y)


# --- every estimator ----------------------------------------------------------------------------------

DOORS = {  # what answers a question about a column of inputs
    gf.TextClassifier: "predict predict_proba",
    gf.ImageClassifier: "predict predict_proba embed",
    gf.TextRegressor: "predict",
    gf.ImageRegressor: "predict",
    gf.TokenTagger: "predict predict_proba spans",
    gf.Translator: "translate",
    gf.MaskedLM: "score judge",
    gf.MaskedPatches: "score embed",
}


def same(a, b):
    if isinstance(a, list) and not isinstance(a[0] if a else "", str):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(np.all(np.asarray(a) == np.asarray(b))) if isinstance(a, np.ndarray) else a == b


@pytest.mark.parametrize("kind", DOORS, ids=lambda kind: kind.__name__)
def test_one_column_of_inputs(kind, tmp_path):
    estimator, (X, *y) = tiny(kind)
    column = pd.Series(list(X))
    frame, target = pd.DataFrame({"x": column}), [pd.DataFrame({"y": pd.Series(list(own))}) for own in y]
    by_list = clone(estimator).fit(X, *y)
    by_name = clone(estimator).fit(frame, *target)
    assert by_name.feature_names_in_.tolist() == ["x"]
    assert (by_list.n_features_in_, by_name.n_features_in_) == (1, 1)
    again = gf.load(by_name.save(tmp_path / "model"))
    more = frame.assign(before=1)[["before", "x"]]
    for door in DOORS[kind].split():
        wanted = getattr(by_list, door)(list(X))
        for given in (frame, more, [{"x": x} for x in X], column):
            assert same(getattr(by_name, door)(given), wanted)
            assert same(getattr(again, door)(given), wanted)
        with pytest.raises(DataError, match=r"no column 'x'"):
            getattr(by_name, door)(pd.DataFrame({"z": column}))
        for wrong in ({str(i): x for i, x in enumerate(X)}, dict(enumerate(map(str, X))).items()):
            with pytest.raises(DataError, match=r"where a list of"):
                getattr(by_name, door)(wrong)
        if isinstance(X[0], str):
            with pytest.raises(DataError, match=r"a set, which has no order"):
                getattr(by_name, door)({*X})


@pytest.mark.parametrize(
    "kind", [*DOORS, gf.QuestionAnswerer, gf.Embedder, gf.Word2Vec], ids=lambda kind: kind.__name__
)
def test_what_has_no_order_is_not_fitted(kind):
    estimator, (X, *y) = tiny(kind)
    keys = {f"id {i}": x for i, x in enumerate(map(str, X))}
    for wrong in ({*map(str, X)}, frozenset(map(str, X)), keys, keys.items()):
        with pytest.raises(DataError, match=r"which has no order|where a list of|not a list of questions"):
            clone(estimator).fit(wrong, *y)
    for wrong in ({"a", "b"}, {"a": 1}) if y else ():
        with pytest.raises(DataError, match=r"which has no order|where a list of|answers"):
            clone(estimator).fit(X, wrong)


def test_sets_at_other_doors(fitted):
    model = embedder().fit(list(zip(TEXTS, SIDES, strict=True)))
    asked = [model.doubles, model.index, model.encode, model.truncated, fitted.predict, fitted.explain_many]
    asked += [lambda X: model.search(["a film"], X, 2), lambda X: model.similarity(X, TEXTS)]
    asked += [lambda X: gf.Probe(fitted).fit(TEXTS, LABELS).neighbors(TEXTS[:2], X)]
    asked += [lambda X: classifier(epochs=1).fit(TEXTS, LABELS, validation=(X, LABELS))]
    asked += [lambda X: classifier(epochs=1).fit(TEXTS, LABELS, sample_weight=X)]
    for ask in asked:
        for X in ({*TEXTS}, dict(enumerate(TEXTS))):
            with pytest.raises(DataError, match=r"which has no order|where a list of"):
                ask(X)
    named = ["entailment" if label == "pos" else "neutral" for label in LABELS]
    rules = classifier(epochs=1).fit(PAIRS, named)
    with pytest.raises(DataError, match=r"labels: a set, which has no order"):
        gf.ZeroShotClassifier(rules, {"sports", "politics"})
    vectors, (sentences,) = tiny(gf.Word2Vec)
    vectors.fit(sentences)
    with pytest.raises(DataError, match=r"which has no order"):
        vectors[{"dog", "cat"}]
    np.testing.assert_array_equal(vectors[pd.Series(["dog", "cat"])], vectors[["dog", "cat"]])


def test_questions_in_a_table_of_any_order(tmp_path):
    model, (questions, answers) = tiny(gf.QuestionAnswerer)
    frame = pd.DataFrame(questions, columns=["question", "context"])[["context", "question"]].assign(id=1)
    wanted = clone(model).fit(questions, answers).predict(questions)
    for form in FORMS:
        made = clone(model).fit(FORMS[form](frame), pd.DataFrame({"answers": answers}))
        assert made.predict(FORMS[form](frame)) == wanted
        assert form == "dicts" or made.feature_names_in_.tolist() == ["question", "context"]
        assert made.n_features_in_ == gf.load(made.save(tmp_path / form)).n_features_in_ == 2


def test_word_vectors_of_a_column():
    model, (sentences,) = tiny(gf.Word2Vec)
    by_list = clone(model).fit(sentences)
    frame = pd.DataFrame({"text": sentences})
    for X in (np.array(sentences)[:, None], pa.table({"text": list(sentences)}), frame):
        made = clone(model).fit(X)
        np.testing.assert_array_equal(made.vectors_, by_list.vectors_)
    assert made.feature_names_in_.tolist() == ["text"]
    with pytest.raises(DataError, match=r"a table with 2 columns"):
        clone(model).fit(frame.assign(id=1))


# --- embedders ------------------------------------------------------------------------------------------


def test_embedders_learn_from_rows_with_names(tmp_path):
    by_tuple = embedder().fit(list(zip(TEXTS, SIDES, strict=True)))
    pairs = pd.DataFrame({"anchor": TEXTS, "positive": SIDES})
    for form in FORMS:
        made = embedder().fit(FORMS[form](pairs))
        np.testing.assert_array_equal(made.encode(TEXTS), by_tuple.encode(TEXTS))
        assert made.feature_names_in_.tolist() == ["anchor", "positive"]
        np.testing.assert_array_equal(made.encode(FORMS[form](FRAME[["text"]])), by_tuple.encode(TEXTS))
    scores = np.array(NUMBERS)
    swapped = pairs[["positive", "anchor"]].assign(score=scores)
    again = gf.load(made.save(tmp_path / "model"))
    assert again.score(swapped, scores) == by_tuple.score(list(zip(TEXTS, SIDES, strict=True)), scores)
    call = r"fit\(\[\(row\['anchor'\], row\['positive'\]\) for row in X\], \[row\['score'\] for row in X\]\)"
    triplets = pairs.assign(negative=SIDES[::-1])
    for X, said in (
        ([{"anchor": "a", "positive": "b"}, {"anchor": "c"}], r"\[1\]: no 'positive'"),
        (triplets, r"Give the columns of texts: X\[\['anchor', 'positive'\]\]"),
        (records(pairs.assign(score=scores)), call),
    ):
        with pytest.raises(DataError, match=said):
            embedder().fit(X)
    # columns of labels and of scores
    by_list = embedder().fit(TEXTS, LABELS)
    made = embedder().fit(FRAME[["text"]], FRAME[["label"]])
    assert made.predict(FRAME).tolist() == by_list.predict(TEXTS).tolist()
    assert made.score(FRAME, FRAME[["label"]]) == by_list.score(TEXTS, LABELS)
    scores = np.array(NUMBERS)
    by_scores = embedder().fit(PAIRS, scores[:, None])
    np.testing.assert_array_equal(by_scores.encode(TEXTS), embedder().fit(PAIRS, scores).encode(TEXTS))


# --- shapes of scikit-learn -------------------------------------------------------------------------------


def test_texts_and_labels_in_a_column(fitted):
    texts, y = np.array(TEXTS)[:, None], FRAME[["label"]]
    made = classifier().fit(texts, y, validation=(texts, y), sample_weight=np.ones((N, 1)))
    assert made.classes_.tolist() == ["neg", "pos"]
    assert made.score(texts, y) == made.score(TEXTS, LABELS)
    assert made.calibrate(texts, y).temperature_ == made.calibrate(TEXTS, LABELS).temperature_
    made = classifier().fit(texts, pa.array(LABELS))
    np.testing.assert_array_equal(made.predict_proba(texts), fitted.predict_proba(TEXTS))


def test_several_labels_in_columns():
    matrix = pd.DataFrame({"joy": [i % 2 for i in range(N)], "fear": [int(i % 3 == 0) for i in range(N)]})
    wanted = classifier().fit(TEXTS, matrix)
    made = classifier().fit(TEXTS, FORMS["arrow"](matrix))
    assert made.classes_.tolist() == ["joy", "fear"]
    np.testing.assert_array_equal(made.predict(TEXTS), wanted.predict(TEXTS))
    assert made.score(TEXTS, FORMS["arrow"](matrix[["fear", "joy"]])) == wanted.score(TEXTS, matrix)


# --- truth values ------------------------------------------------------------------------------------------

TRUTHS = [label == "pos" for label in LABELS]


TRUTH_FORMS = {
    "list": list,
    "objects": lambda y: np.array(y, object),
    "nullable series": lambda y: pd.Series(y, dtype="boolean"),
    "arrow": pa.array,
}


@pytest.fixture(scope="module")
def of_numbers():
    return classifier().fit(TEXTS, [int(truth) for truth in TRUTHS])


@pytest.mark.parametrize("form", TRUTH_FORMS)
def test_truth_values_come_back(form, of_numbers, tmp_path):
    y = TRUTH_FORMS[form](TRUTHS)
    clf = classifier().fit(TEXTS, y)
    assert clf.predict(TEXTS).tolist() == of_numbers.predict(TEXTS).astype(bool).tolist()
    assert clf.predict(TEXTS).dtype == gf.load(clf.save(tmp_path / "model")).predict(TEXTS).dtype == bool
    assert clf.classes_.tolist() == [0, 1]
    assert clf.score(TEXTS, y) == of_numbers.score(TEXTS, np.array(TRUTHS))
    assert clf.decide(clf.predict_proba(TEXTS)).dtype == np.int64  # what files and JSON print stays 0 and 1
    one, other = (clf.explain(TEXTS[0], method="occlusion", target=target) for target in (True, 1))
    assert one.scores.tolist() == other.scores.tolist()


def test_truth_values_of_other_estimators(fitted, tmp_path):
    matrix = np.array([[i % 2 == 0, i % 3 == 0, i > 7] for i in range(N)])
    several = classifier().fit(TEXTS, matrix)
    for one in (several, gf.load(several.save(tmp_path / "several"))):
        assert one.predict(TEXTS).dtype == bool
    assert classifier(epochs=1).fit(TEXTS, matrix.astype(int)).predict(TEXTS).dtype == np.int64
    for kind, made in (("probe", gf.Probe(fitted)), ("embedder", embedder())):
        made.fit(TEXTS, TRUTHS)
        assert made.predict(TEXTS).dtype == gf.load(made.save(tmp_path / kind)).predict(TEXTS).dtype == bool
        assert made.fit(TEXTS, LABELS).predict(TEXTS).dtype.kind == "U"
    images, (pictures, labels) = tiny(gf.ImageClassifier)
    assert images.fit(pictures, np.array(labels, bool)).predict(pictures).dtype == bool
    # where a classifier abstains
    clf = classifier().fit(TEXTS, TRUTHS).calibrate(TEXTS, TRUTHS)
    below = float(np.median(clf.predict_proba(TEXTS).max(1)))
    clf.calibrate(TEXTS, TRUTHS, abstain_below=below)
    for one in (clf, gf.load(clf.save(tmp_path / "model"))):
        assert {type(label) for label in one.predict(TEXTS).tolist()} == {bool, type(None)}


@pytest.mark.parametrize("targets", [None, "label-matrix"])
def test_a_folder_of_before_answers_numbers(targets):
    about = {"targets": targets, "temperature": 1.0, "threshold": None}
    for more, wanted in (({}, False), ({"truth_values": True}, True)):
        assert target_from_metadata(about | more, "here").booleans is wanted


# --- scikit-learn's tools ------------------------------------------------------------------------------------


def test_cross_validation_of_tables():
    wanted = cross_val_predict(classifier(), TEXTS, LABELS, cv=2)
    for X in (FRAME[["text"]], np.array(TEXTS)[:, None], pa.table({"text": TEXTS}), records(FRAME[["text"]])):
        assert cross_val_predict(classifier(), X, FRAME["label"], cv=2).tolist() == wanted.tolist()
    found = cross_val_predict(classifier(), TEXTS, np.array(TRUTHS), cv=2)
    assert found.dtype == bool
    assert found.tolist() == [label == "pos" for label in wanted]
    for scoring in ("accuracy", "f1", "roc_auc"):
        scores = cross_val_score(classifier(), FRAME[["text"]], np.array(TRUTHS), cv=2, scoring=scoring)
        assert ((scores >= 0) & (scores <= 1)).all()


def test_grid_search_and_pipelines_of_tables(fitted):
    search = GridSearchCV(classifier(), {"lr": [1e-9, 3e-2]}, cv=2, error_score="raise")
    search.fit(FRAME[["text"]], FRAME[["label"]])
    assert search.feature_names_in_.tolist() == ["text"]
    assert search.predict(FRAME).shape == (N,)
    columns = ColumnTransformer([("texts", "passthrough", ["text"])])
    pipe = make_pipeline(columns, classifier()).fit(FRAME, FRAME["label"])
    assert pipe.predict(FRAME[["label", "text"]]).tolist() == fitted.predict(TEXTS).tolist()
    pairs = ColumnTransformer([("both", "passthrough", ["premise", "hypothesis"])])
    made = make_pipeline(pairs, classifier()).fit(SWAPPED, LABELS)
    wanted = classifier().fit(PAIRS, LABELS)
    np.testing.assert_array_equal(made.predict_proba(SWAPPED), wanted.predict_proba(PAIRS))


@pytest.mark.parametrize("kind", [gf.MaskedLM, gf.MaskedPatches, gf.Word2Vec], ids=lambda kind: kind.__name__)
def test_a_pipeline_of_what_learns_without_labels(kind):
    estimator, (X,) = tiny(kind)
    pipe = Pipeline([("last", clone(estimator))]).fit(list(X))
    assert pipe[-1].train_seconds_ >= 0
    if hasattr(estimator, "score"):
        assert pipe.score(list(X)) == clone(estimator).fit(list(X)).score(list(X))
        assert len(cross_val_score(clone(estimator), list(X), cv=2)) == 2
