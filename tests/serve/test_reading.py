"""JSON is counted before it is parsed: what is too much is refused by its bytes, and no good text ever is."""

import json
import random
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.serve import guard
from glassformer.serve.guard import check_shape, parse, string_memory
from glassformer.serve.limits import Limits
from glassformer.serve.problems import Problem

from .conftest import Running, asked_for_health

MB = 1_000_000
SMALL = Limits(json_values=7, inputs=4, json_depth=3)  # 11 keys and values at most


def refusal(body: bytes, limits: Limits = SMALL) -> int | None:
    """The status with which its shape is refused."""
    try:
        check_shape(body, limits)
    except Problem as problem:
        return problem.status
    return None


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"texts": ["a", "b", "c", "d"], "model": "m"}', None),
        (b'{"texts": ["a,b:[{", "\\",[[[[", "\\\\", "\\\\\\",[[[["], "[[[[": "{{{{,,,,,,,,,,,,"}', None),
        (b"[1,2,3,4,5,6,7,8,9,10]", None),
        (b"[1,2,3,4,5,6,7,8,9,10,11]", 413),
        (b"[" + b'"a",' * 11 + b'"a"]', 413),
        (b'"' * 23, 413),
        (b'["\\\\",1,2,3,4,5,6,7,8,9,10,11]', 413),  # an even number of backslashes ends no string early
        (b'["\\\\\\"",1,2,3,4,5,6,7,8,"]]]]"]', None),
        (b'{"a":1,"b":2,"c":3,"d":4,"e":5}', None),
        (b'{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}', 413),
        (b"[[[]]]", None),
        (b"[[[[]]]]", 400),
        (b'{"a":{"b":{"c":{}}}}', 400),
        (b"[[],[],[]]", None),
        (b"[" * MB, 400),
        (b"[]" * MB, 413),
        (b"", None),
        (b"no JSON", None),
    ],
)
def test_shapes(body: bytes, status: int | None):
    assert refusal(body) == status


VALUES = st.recursive(
    st.none() | st.integers(-9, 10**6) | st.text('a\\",:[]{}\n\u00e9\U0001f600', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('ab"\\,[', max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


def counted(value) -> int:
    """Keys and values of a parsed document."""
    if isinstance(value, dict):
        return 1 + sum(1 + counted(inner) for inner in value.values())
    return 1 + sum(map(counted, value)) if isinstance(value, list) else 1


def depth(value) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_the_count_bounds_what_a_parser_makes(value, ascii_only, indent):
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    made, deep = counted(value), depth(value)
    empty = body.count(b"[]") + body.count(
        b"{}"
    )  # may be counted for a value that is not there; none is missed
    assert refusal(body, Limits(json_values=made + empty, inputs=1, json_depth=max(1, deep))) is None
    if made > 2:
        assert refusal(body, Limits(json_values=made - 2, inputs=1, json_depth=99)) == 413
    if deep > 1:
        assert refusal(body, Limits(json_values=99, json_depth=deep - 1)) == 400


def test_what_is_cut_or_changed_is_counted_too():
    """Bytes are put into good JSON at random: whatever the parser still makes of it, no more than was counted."""
    rng, texts = random.Random(0), ['a "b" \\ c', "[,]"]
    whole = json.dumps({"texts": texts, "more": [1, {"a": [2, 3]}]}).encode()
    made = 0
    for _ in range(3000):
        at = rng.randrange(len(whole))
        cut = rng.choice([b'"', b"\\", b",", b"[", b"]", b"{", b""])
        body = whole[:at] + cut + whole[at + rng.randrange(2) :]
        try:
            count = counted(json.loads(body))
        except ValueError:
            continue
        made += 1
        assert refusal(body, Limits(json_values=count - 2, inputs=1)) == 413
    assert made > 100


def test_encodings_keys_and_inputs():
    value = {"texts": ["a \u2222 \u0122,[ film"], "model": "m"}  # whose bytes in UTF-16 hold quotation marks
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"):
        assert parse(json.dumps(value, ensure_ascii=False).encode(encoding), SMALL) == value
    hidden = '["\u0122",' + "1," * 30 + "1]"
    for encoding in ("utf-8", "utf-16"):
        with pytest.raises(Problem, match="413"):
            parse(hidden.encode(encoding), SMALL)
    for body, where in (
        (b'{"texts": ["a"], "texts": ["b"]}', "texts"),
        (b'{"x": {"y": 1, "z": 2, "y": 3}}', "y"),
    ):
        with pytest.raises(Problem, match="422") as caught:
            parse(body, SMALL)
        assert (caught.value.what, caught.value.where) == ("this key is given twice", where)
    for name in ("texts", "images"):
        with pytest.raises(Problem) as caught:
            parse(json.dumps({name: [0] * 5}).encode(), SMALL)
        problem = caught.value
        assert (problem.status, problem.what, problem.where) == (413, "5 inputs, 4 at most", name)
    assert parse(b'{"other": [1,2,3,4,5,6]}', SMALL) == {"other": [1, 2, 3, 4, 5, 6]}


def test_weight_is_that_of_all_strings():
    wide = "\U0001f600" * 1000
    assert string_memory({"k": [wide, {"x": "y"}, 7, None]}) == sum(map(sys.getsizeof, ("k", wide, "x", "y")))
    assert string_memory(wide) > 4000


def test_many_values_are_refused_at_once(server: Running):
    keys = b"{" + b",".join(b'"k%d":1' % i for i in range(600_000)) + b"}"
    bodies = (b'{"texts":[' + b"1," * 3_900_000 + b"1]}", keys, b'{"images":[' + b'"",' * 2_000_000 + b'""]}')
    with asked_for_health(server) as seconds:
        for body in bodies:
            for path in ("/v1/predict", "/v1/explain"):
                answer = server.ask(path, body)
                assert answer.status == 413, answer
                assert answer.body["error"]["what"] == "more than 1,064 values"
    assert max(seconds) < 5  # it was 48 s
    assert server.app.state.server.budget.used < 1000


def test_large_texts_full_of_commas_and_brackets_pass(server: Running, classifiers):
    texts = ["a dull film ,:[{}]" + ',[{":' * 19_000] * 5 + ['\\"' * 1000] + ["x," + "x" * 99_000] * 57
    body = json.dumps({"texts": texts}).encode()
    assert 6 * MB < len(body) < 8 << 20
    with asked_for_health(server) as seconds:
        answer = server.ask("/v1/predict", body)
    assert answer.status == 200, answer
    assert len(answer.body["predictions"]) == len(texts)
    share = classifiers[0].predict_proba(texts[:1])[0].max()
    assert answer.body["predictions"][0]["probability"] == pytest.approx(share, abs=1e-5)
    assert max(seconds) < 5


def test_large_bodies_are_parsed_in_a_thread(server: Running, monkeypatch):
    real, names = guard.parse, []
    monkeypatch.setattr(
        guard, "parse", lambda *given: names.append(threading.current_thread().name) or real(*given)
    )
    assert server.ask("/v1/predict", {"texts": ["a film"]}).status == 200
    assert server.ask("/v1/predict", {"texts": ["a film " * 10_000]}).status == 200
    assert "parse" not in names[0]
    assert names[1].startswith("parse")


def test_strings_of_wide_letters_count_with_all_that_is_held(serve):
    server = serve(all_bytes=350_000)
    narrow = json.dumps({"texts": ["a film " * 10_000]}).encode()
    wide = json.dumps({"texts": ["\U0001f600" + "a film " * 10_000]}).encode()
    assert server.ask("/v1/predict", narrow).status == 200  # 70 kB, and 70 kB when it is parsed
    refused = server.ask("/v1/predict", wide)  # 70 kB, and 280 kB
    assert (refused.status, refused.body["error"]["what"]) == (503, "too much is being sent at once")
    assert server.ask("/v1/predict", narrow).status == 200  # given back
    assert server.app.state.server.budget.used < 1000


@pytest.mark.parametrize(
    ("body", "status", "where"),
    [
        (b'{"texts": [' + b"9" * 5000 + b"]}", 400, "body"),
        (b'{"texts": [1e' + b"9" * 5000 + b"]}", 422, "texts[0]"),
        (b'{"texts": [NaN, Infinity]}', 422, "texts[0]"),
        (b'{"model": "\\ud800", "texts": ["a"]}', 422, "model"),
        (b'{"\\ud800": 1, "texts": ["a"]}', 422, "body"),
        (b'{"\\ud800": 1, "\\ud800": 2}', 422, "?"),
        (b'{"texts": ["a"], "texts": ["b"]}', 422, "texts"),
        (b'{"texts": ' + b"[" * 17 + b"]" * 17 + b"}", 400, "body"),
        (b'{"texts": ' + b"[" * 15 + b"]" * 15 + b"}", 422, "texts[0]"),
        (b'{"' + b"k" * 100_000 + b'": 1, "texts": ["a"]}', 422, "k" * 300),
    ],
)
def test_odd_values(server: Running, body: bytes, status: int, where: str):
    answer = server.ask("/v1/predict", body)
    assert (answer.status, answer.body["error"]["where"]) == (status, where)


def test_one_error_of_a_list_is_made(server: Running):
    from pydantic import ValidationError

    from glassformer.serve.schema import PredictRequest

    with pytest.raises(ValidationError) as caught:
        PredictRequest.model_validate({"texts": [1] * 64})
    assert caught.value.error_count() == 1
    assert server.ask("/v1/predict", {"texts": [1] * 64}).body["error"]["where"] == "texts[0]"
