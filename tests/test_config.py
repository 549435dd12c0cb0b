"""config: dataclass to TOML and back, overrides, and the messages for what is wrong."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import (
    allows_none,
    apply_overrides,
    build,
    key_paths,
    parse_settings,
    read_toml,
    settings_of,
    suggest,
    to_dict,
    to_toml,
)
from glassformer.errors import ConfigError, InputError
from glassformer.tasks.catalog import recipe_classes


@dataclass(frozen=True)
class Engine:
    kind: Literal["steam", "diesel"] = "steam"
    power: float = 1.0
    gears: tuple[int, ...] = (1, 2)
    turbo: bool = False


@dataclass(frozen=True)
class Train:
    name: str = ""
    cars: int = 3
    operator: str | None = None
    load: str | dict[str, Any] | None = None
    engine: Engine = field(default_factory=Engine)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
number = st.floats(allow_nan=False)
engines = st.builds(
    Engine,
    kind=st.sampled_from(["steam", "diesel"]),
    power=number,
    gears=st.lists(st.integers(-5, 5)).map(tuple),
    turbo=st.booleans(),
)
trains = st.builds(
    Train,
    name=text,
    cars=st.integers(-(2**63), 2**63 - 1),
    operator=st.none() | text,
    load=st.none() | text | st.dictionaries(text, number, max_size=3),
    engine=engines,
)


@given(trains)
@settings(max_examples=200, deadline=None)
def test_toml_round_trip(train: Train):
    assert build(Train, tomllib.loads(to_toml(train))) == train


@given(trains)
@settings(max_examples=50, deadline=None)
def test_dict_round_trip(train: Train):
    assert build(Train, to_dict(train)) == train


@given(text)
@settings(max_examples=50, deadline=None)
def test_header_is_a_comment_whatever_it_says(header: str):
    try:
        read = tomllib.loads(to_toml(Train(cars=7), header))
    except tomllib.TOMLDecodeError:
        # TOML forbids control characters in comments; anything else must be read over.
        assert any(ord(c) < 32 or ord(c) == 127 for c in header)
    else:
        assert read["cars"] == 7


def test_to_toml_reads_well():
    assert to_toml(Train("Orient", engine=Engine(power=2)), "A train\n\nfrom Paris") == (
        "# A train\n#\n# from Paris\n"
        'name = "Orient"\ncars = 3\n\n'
        '[engine]\nkind = "steam"\npower = 2\ngears = [1, 2]\nturbo = false\n'
    )


def test_none_is_left_out():
    assert to_dict(Train()).keys() == {"name", "cars", "engine"}


def test_value_without_toml_form():
    with pytest.raises(ConfigError, match="object has no TOML form"):
        to_toml(Engine(power=object()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"carz": 3}, "config: unknown key 'carz'. Did you mean 'cars'?"),
        ({"zzzzzz": 3}, "config: unknown key 'zzzzzz'. Known: cars, engine, load, name, operator"),
        ({"engine": {"pover": 3}}, "config.engine: unknown key 'pover'. Did you mean 'power'?"),
        ({"cars": "three"}, "config.cars: expected a whole number, got 'three'"),
        ({"cars": 3.0}, "config.cars: expected a whole number, got 3.0"),
        ({"cars": True}, "config.cars: expected a whole number, got True"),
        ({"engine": {"power": True}}, "config.engine.power: expected a number, got True"),
        ({"engine": {"turbo": 1}}, "config.engine.turbo: expected true or false, got 1"),
        ({"engine": {"gears": 3}}, "config.engine.gears: expected a list such as [1, 2], got 3"),
        ({"engine": {"kind": "stem"}}, "config.engine.kind: 'stem' is not a choice. Did you mean 'steam'?"),
        ({"engine": {"kind": 1}}, "config.engine.kind: expected steam or diesel, got 1"),
        ({"engine": 5}, "config.engine: expected a section, got 5"),
        ({"operator": 5}, "config.operator: expected text or none, got 5"),
    ],
)
def test_wrong_values_are_named(values: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as caught:
        build(Train, values)
    assert str(caught.value) == message
    assert isinstance(caught.value, InputError)
    assert caught.value.exit_code == 2


def test_tuple_elements_are_checked():
    with pytest.raises(ConfigError, match=r"config\.engine\.gears"):
        build(Train, {"engine": {"gears": [1, "two"]}})


def test_int_is_taken_for_a_float():
    power = build(Engine, {"power": 2}).power
    assert isinstance(power, float)
    assert power == 2.0


def test_missing_required_value():
    @dataclass(frozen=True)
    class Needs:
        what: int

    with pytest.raises(ConfigError, match="what"):
        build(Needs, {})


def test_nearest():
    assert suggest("epoch", ["epochs", "lr"]) == "Did you mean 'epochs'?"
    assert suggest("Nope", ["european", "other"]) == "Known: european, other"
    assert suggest("xyz", ["b", "a"]) == "Known: a, b"


# --- overrides ------------------------------------------------------------------------------------


def override(*texts: str, base: dict[str, Any] | None = None) -> Train:
    return build(Train, apply_overrides(base or {}, texts, Train))


def test_overrides_by_bare_and_by_dotted_key():
    train = override("power=2.5", "engine.turbo = true", "name=Orient Express", 'operator="SNCF"')
    assert train == Train("Orient Express", operator="SNCF", engine=Engine(power=2.5, turbo=True))


@pytest.mark.parametrize("value", ["0", "2026", "1e3", "1_000", "-0.50"])
def test_a_number_for_a_key_of_text_is_text(value: str):
    assert override(f"operator={value}").operator == value, "a column that is called 0"
    assert override("name=1", f"name={value}").name == value, "the later one"
    assert override("load={a=1}").load == {"a": 1}


def test_later_override_wins_and_the_rest_stays():
    base = {"cars": 9, "engine": {"power": 1.5, "gears": [3]}}
    train = override("power=2", "power=4", base=base)
    assert train == Train(cars=9, engine=Engine(power=4.0, gears=(3,)))
    assert base == {"cars": 9, "engine": {"power": 1.5, "gears": [3]}}, "the caller's table was changed"


def test_two_tables_for_one_key_become_one():
    assert parse_settings(["a={x = 1, y = 2}", 'a={y = 3, "n/a" = ""}', "b=1", "b=2"]) == {
        "a": {"x": 1, "y": 3, "n/a": ""},
        "b": 2,
    }
    for twice in (["m=spelling", "m={x = 1}"], ["m={x = 1}", "m=spelling"]):
        with pytest.raises(ConfigError, match="m is set twice, and only one of the values is a table"):
            parse_settings(twice)


def test_override_values_are_toml():
    train = override("gears=[1, 2, 3]", "load={ coal = 0.5 }", "cars=1_000")
    assert train == Train(cars=1000, load={"coal": 0.5}, engine=Engine(gears=(1, 2, 3)))


def test_override_of_text_may_hold_an_equals_sign():
    assert override("name=a=b").name == "a=b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("power", "--set: 'power' has no '='. Write --set key=value"),
        ("powr=3", "--set: unknown key 'powr'. Did you mean 'power'?"),
        ("engine.powr=3", "--set: unknown key 'engine.powr'. Did you mean 'engine.power'?"),
        ("=3", "--set: unknown key ''"),
    ],
)
def test_wrong_overrides_are_named(text: str, message: str):
    with pytest.raises(ConfigError) as caught:
        override(text)
    assert str(caught.value).startswith(message)


def test_override_of_the_wrong_type_is_named():
    with pytest.raises(ConfigError, match=r"engine\.power: expected a number, got 'fast'"):
        override("power=fast")


@dataclass(frozen=True)
class Timetable:
    delay: float | None = None
    line: str | None = None
    signals: Literal["lamps", "none"] | None = None
    stops: int = 3
    train: Train = field(default_factory=Train)


def test_none_empties_a_key_that_may_be_empty():
    base = {"delay": 0.5, "line": "north", "train": {"operator": "SNCF"}}
    texts = ["delay=none", "line=None", "train.operator=none", "signals=none"]
    found = build(Timetable, apply_overrides(base, texts, Timetable))
    assert (found.delay, found.line, found.train.operator) == (None, None, None)
    assert found.signals == "none", "a choice of that name stays a choice"
    with pytest.raises(ConfigError, match=r"stops: expected a whole number, got 'none'$"):
        build(Timetable, apply_overrides({}, ["stops=none"], Timetable), "Timetable")
    with pytest.raises(ConfigError, match=r"expected a number or none, got 'nine'$"):
        build(Timetable, apply_overrides({}, ["delay=nine"], Timetable))


def test_keys_of_recipes_that_may_be_empty_are_empty_by_default():
    """A resolved recipe leaves such keys out, and must mean the same when it is read again."""
    for cls in recipe_classes().values():
        for path in set(key_paths(cls).values()):
            if allows_none(cls, ".".join(path)):
                owner = cls() if len(path) == 1 else getattr(cls(), path[0])
                assert settings_of(type(owner))[path[-1]] is None, path


def test_override_inside_what_is_no_section():
    with pytest.raises(ConfigError, match="engine"):
        override("power=3", base={"engine": 5})


def test_key_places():
    places = key_paths(Train)
    assert places["power"] == places["engine.power"] == ("engine", "power")
    assert places["cars"] == ("cars",)


# --- files ----------------------------------------------------------------------------------------


def test_read_toml(tmp_path: Path):
    file = tmp_path / "a.toml"
    file.write_text('name = "Ộ"\n[engine]\npower = 3\n', encoding="utf-8")
    assert read_toml(file) == {"name": "Ộ", "engine": {"power": 3}}


def test_unreadable_files_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"none\.toml: no such recipe file"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="no such recipe file"):
        read_toml(tmp_path)
    file = tmp_path / "a.toml"
    file.write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match=r"a\.toml: not UTF-8"):
        read_toml(file)
    file.write_text("cars = 3\nname = Orient\n")
    with pytest.raises(ConfigError, match=r"a\.toml: not valid TOML: .*line 2"):
        read_toml(file)


def test_a_text_without_its_closing_quote_is_shown(tmp_path: Path):
    (tmp_path / "a.toml").write_text('[data]\nsource = "reviews.csv\n')
    fix = 'without its closing quote .at line 2.*Correct this line: source = "reviews.csv$'
    with pytest.raises(ConfigError, match=fix):
        read_toml(tmp_path / "a.toml")
