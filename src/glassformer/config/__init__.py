"""Read and write config dataclasses in TOML files, override their values, and check types and ranges."""

from __future__ import annotations

import dataclasses
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from glassformer.config.synonyms import foreign_name_hint, suggest
from glassformer.config.synonyms import join_names as join_names
from glassformer.errors import BadValueError, ConfigError, ConflictError, NoSuchRecipeError, UnknownKeyError
from glassformer.outputs import escape_surrogates
from glassformer.reading import NotRegularError, read_regular

T = TypeVar("T")
MAX_TOML_BYTES = 4 << 20
LISTS = {int: "[1, 2]", float: "[0.5, 0.5]", str: '["one", "two"]'}  # element type -> example of a list

# Models that use only some of the keys; trained encoders use all keys.
SEARCH = frozenset({"search"})  # the model search of model = "auto"
LINEAR = frozenset({"linear"})  # a linear model of n-grams
EVERY_MODEL = SEARCH | LINEAR | {"frozen"}  # "frozen": the frozen encoder of few-shot classification


def setting(default: Any, meaning: str, **options: Any) -> Any:
    """A field of a config class, which is a key of recipes.

    Keys that no longer exist may be in ``RETIRED`` of the class: ``{key: (neutral value, error message)}``.
    The neutral value is still accepted; other values raise an error with the message.

    Args:
        meaning: description for help and documentation.
        before: the value in fits of versions without the key, if it is not the default.
        in_file: the value in recipe files and saved models without the key, if it is not the default.
        used_by: models that use the key, in addition to trained encoders: ``SEARCH``, ``LINEAR`` or
            ``EVERY_MODEL``.
    """
    return dataclasses.field(default=default, metadata={"meaning": meaning, **options})


def positional(*, default: Any, meaning: str, kw_only: typing.Literal[False] = False, **options: Any) -> Any:
    """A ``setting`` that is also a positional argument; type checkers need these parameter names."""
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"meaning": meaning, **options})


@typing.dataclass_transform(kw_only_default=True, field_specifiers=(positional,))
def section(cls: type[T]) -> type[T]:
    """Decorate the class of a section of recipes, whose fields estimators inherit as parameters."""
    decorated: Any = dataclasses.dataclass(kw_only=True)(cls)
    fields = decorated.__dataclass_fields__  # positional fields (the model) come first in files and help
    decorated.__dataclass_fields__ = dict(sorted(fields.items(), key=lambda item: bool(item[1].kw_only)))
    return decorated


def meaning_of(field: dataclasses.Field) -> str:
    """The description of a ``setting`` field; empty for other fields."""
    return field.metadata.get("meaning", "")


def keys_used_by(model: str, sections: Iterable[type]) -> set[str]:
    """The keys of ``sections`` that a model uses, in ``used_by`` of ``setting``: search, linear or frozen."""
    fields = (field for cls in sections for field in dataclasses.fields(cls))
    return {field.name for field in fields if model in field.metadata.get("used_by", ())}


def settings_of(cls: type) -> dict[str, Any]:
    """Key -> default of a config class, including retired keys."""
    retired = {key: neutral for key, (neutral, _) in getattr(cls, "RETIRED", {}).items()}
    return {f.name: f.default for f in dataclasses.fields(cls)} | retired


@cache
def _hints(cls: type) -> dict[str, Any]:
    """Name -> type of the fields of a class; cached, because Python evaluates the types from strings."""
    return typing.get_type_hints(cls)


def legacy_values(cls: type) -> dict[str, Any]:
    """Key -> its value in fits of versions without the key."""
    legacy = {f.name: f.metadata["before"] for f in dataclasses.fields(cls) if "before" in f.metadata}
    return settings_of(cls) | values_in_files(cls) | legacy


def values_in_files(cls: type) -> dict[str, Any]:
    """Key -> its value in files without the key, for values that are not the default."""
    return {f.name: f.metadata["in_file"] for f in dataclasses.fields(cls) if "in_file" in f.metadata}


def with_values_in_files(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a recipe file, completed by ``values_in_files`` for missing keys."""
    completed, hints = dict(values), _hints(cls)
    for name, hint in hints.items():
        missing = values_in_files(hint) if isinstance(hint, type) and dataclasses.is_dataclass(hint) else {}
        if missing and isinstance(completed.get(name, {}), Mapping):
            completed[name] = missing | dict(completed.get(name, {}))
    return completed


def read_toml(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        ConfigError: the file is missing, too large, not a plain file, not UTF-8 or not TOML.
    """
    path = Path(path)
    try:
        text = read_regular(path, MAX_TOML_BYTES).decode("utf-8")
        return tomllib.loads(text.replace("\r\n", "\n").replace("\r", "\n"))
    except (FileNotFoundError, NotADirectoryError):
        fix = "'glassformer new' writes a recipe, 'glassformer recipes' lists the recipes of the package"
        raise NoSuchRecipeError("no such recipe file", where=str(path), fix=fix) from None
    except NotRegularError as error:
        raise NoSuchRecipeError(f"no such recipe file: {error.strerror}", where=str(path)) from None
    except OSError as error:
        raise NoSuchRecipeError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except RecursionError:
        raise ConfigError("nested too deeply", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 ({error})", where=str(path), fix="Save it as UTF-8") from None
    except ValueError as error:  # raised by tomllib, or by Python for numbers with thousands of digits
        what = str(error).replace(r"Illegal character '\n'", "a text without its closing quote")
        line = re.search(r"at line (\d+)", what)
        fix = f"Correct this line: {text.splitlines()[int(line[1]) - 1].strip()}" if line else "Correct it"
        if "Invalid value" in what:
            fix = 'Put text into quotes, as in source = "reviews.csv"; write true and false in lower case'
        raise ConfigError(f"not valid TOML: {what}", where=str(path), fix=fix) from None


def key_location(where: str, section: bool = False) -> str:
    """The location of a key in a TOML file for messages, such as ``run.toml, [data] source``.

    Args:
        where: the file and the path of the key, such as ``run.toml.data.source``. A text without a TOML file
            is returned unchanged.
        section: whether ``where`` ends with a section instead of a key.
    """
    file, dot, inside = where.rpartition(".toml.")
    if not dot:
        return where
    *sections, key = inside.split(".")
    sections, key = ([*sections, key], "") if section else (sections, key)
    heading = f"[{'.'.join(sections)}] " if sections else ""
    return f"{file}.toml, {heading}{key}".rstrip()


def build(
    cls: type[T], values: Mapping[str, Any], where: str = "config", sections: Mapping[str, str] | None = None
) -> T:
    """Create a config object from a (nested) mapping, after checking the types of the values.

    Args:
        sections: key -> its section, for all keys of the recipe; only if ``cls`` is a section.

    Raises:
        ConfigError: a key is unknown, or a value has the wrong type.
    """
    hints = _hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]  # a dataclass
    retired = getattr(cls, "RETIRED", {})
    kwargs: dict[str, Any] = {}
    for key, value in values.items():
        if key in retired:
            neutral, message = retired[key]
            if _to_python(value) != neutral:
                raise UnknownKeyError(message, where=key, fix="Leave it out")
            continue
        if key not in fields:
            fix = foreign_name_hint(key, fields) or suggest(key, list(fields))
            sections_by_key = _sections_by_key(hints) if sections is None else sections
            if (section := sections_by_key.get(key)) is not None:
                fix = f"It belongs under [{section}]"
            what = f"unknown key {key!r}"
            raise UnknownKeyError(what, where=key_location(where, sections is not None), fix=fix)
        hint = hints[key]
        if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
            kwargs[key] = build(typing.cast(type, hint), value, f"{where}.{key}", _sections_by_key(hints))
        else:
            kwargs[key] = _coerce(value, hint, f"{where}.{key}")
    try:
        return cls(**kwargs)
    except TypeError as error:
        raise ConfigError(str(error), where=where) from None


def _sections_by_key(hints: Mapping[str, Any]) -> dict[str, str]:
    """Key -> the first section that has the key."""
    sections: dict[str, str] = {}
    for section, hint in hints.items():
        if dataclasses.is_dataclass(hint):
            sections = {f.name: section for f in dataclasses.fields(hint)} | sections
    return sections


def _to_python(value: Any) -> Any:
    """Convert numpy numbers and arrays to Python objects."""
    return value.tolist() if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value


def _coerce(value: Any, hint: Any, where: str) -> Any:
    """Convert a value to the type of a field; raise ConfigError if it has another type."""
    value = _to_python(value)
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    for option in options:
        origin = typing.get_origin(option) or option
        if origin is typing.Any:
            return value
        if origin is typing.Literal:
            if value in typing.get_args(option):
                return value
        elif option is type(None):
            if value is None:
                return None
        elif origin is float:
            if isinstance(value, int | float) and not isinstance(value, bool):
                try:
                    return float(value)
                except OverflowError:
                    what = f"the number has {len(str(value))} digits, too many for a float"
                    raise ConfigError(what, where=where, fix="Use a smaller number") from None
        elif origin is int:
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        elif dataclasses.is_dataclass(origin) and isinstance(value, Mapping):
            return build(typing.cast(type, origin), value, where)
        elif origin is tuple:
            if isinstance(value, list | tuple):
                (element, *_) = typing.get_args(option) or (typing.Any,)
                return tuple(_coerce(item, element, f"{where}[{i}]") for i, item in enumerate(value))
        elif isinstance(value, typing.cast(type, origin)):
            return value
        elif origin is str and isinstance(value, Path):
            return str(value)
    where = key_location(re.sub(r"^--set\.(\w+\.)*", "--set ", where))  # "--set lr" for "--set.train.lr"
    choices = choices_in(options)
    if choices and isinstance(value, str):
        raise BadValueError(f"{value!r} is not a choice", where=where, fix=suggest(value, choices))
    types_ = [_type_name(option) for option in options if typing.get_origin(option) is not typing.Literal]
    expected = " or ".join([*map(str, choices), *types_])
    raise BadValueError(f"expected {expected}, got {value!r}", where=where)


TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    dict: "a table",
    type(None): "none",
}


def _type_name(hint: Any) -> str:
    kind = typing.get_origin(hint) or hint
    if kind is tuple:
        element = (typing.get_args(hint) or (str,))[0]
        return f"a list such as {LISTS.get(element, LISTS[str])}"
    return TYPE_NAMES.get(kind) or ("a section" if dataclasses.is_dataclass(kind) else str(kind))


def to_dict(config: Any) -> dict[str, Any]:
    """Convert a dataclass to nested dicts and lists; keys with the value None are omitted."""
    out: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            out[field.name] = to_dict(value)
        elif isinstance(value, tuple):
            out[field.name] = list(value)
        elif value is not None:
            out[field.name] = value
    return out


def to_json_types(value: Any) -> Any:
    """Convert a value to JSON types: numpy numbers to Python numbers, and unknown types to text."""
    value = _to_python(value)
    if isinstance(value, Mapping):
        return {label_text(key): to_json_types(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_types(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else escape_surrogates(str(value))


def label_text(label: Any) -> str:
    """Convert a label to text; True and 1.0 become "1"."""
    is_float = hasattr(label, "__float__") and not isinstance(label, str | int)
    return str(int(label) if isinstance(label, int) or (is_float and float(label).is_integer()) else label)


def to_toml(config: Any, header: str = "") -> str:
    """Convert a dataclass to TOML text, with one table per nested dataclass."""
    lines = [f"# {line}".rstrip() for line in header.splitlines()]
    _write_table(to_dict(config), "", lines)
    return "\n".join(lines) + "\n"


def _write_table(values: Mapping[str, Any], prefix: str, lines: list[str]) -> None:
    for key, value in values.items():
        if not isinstance(value, Mapping):
            lines.append(f"{_toml_key(str(key))} = {toml_literal(value)}")
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines.extend(["", f"[{prefix}{_toml_key(key)}]"])
            _write_table(value, f"{prefix}{_toml_key(key)}.", lines)


def _toml_key(key: str) -> str:
    is_bare = key and all(c.isascii() and (c.isalnum() or c in "_-") for c in key)
    return key if is_bare else toml_literal(key)


def toml_literal(value: Any) -> str:
    """A value in TOML syntax."""
    if isinstance(value, bool | int | float):
        return repr(value).lower()
    if isinstance(value, str | Path):
        text = escape_surrogates(str(value)).replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text) + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_literal(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_key(str(key))} = {toml_literal(v)}" for key, v in value.items()) + "}"
    raise ConfigError(f"{type(value).__name__} has no TOML form", where="config")


def apply_overrides(values: dict[str, Any], overrides: Sequence[str], cls: type) -> dict[str, Any]:
    """Override ``values`` by ``KEY=VALUE`` strings.

    ``KEY`` is ``section.key``, or only the key. ``VALUE`` is parsed as TOML; if that fails, or if the value
    of the key must be a text, it is used as text. ``none`` sets a key to None if the key may be None.

    Raises:
        ConfigError: a string has no ``=``, or a key is unknown.
    """
    changes = parse_settings(overrides)
    for setting in reversed(overrides):  # the last value of a key is used
        key, _, text = setting.partition("=")
        key = key.strip()
        allowed = {*_allowed_types(cls, key)}
        if str in allowed and not {int, float, bool} & allowed and isinstance(changes[key], int | float):
            changes[key] = text.strip()  # for example a column named 0, or a run named 2026
    return override(values, changes, cls, "--set")


def _allowed_types(cls: type, key: str) -> tuple[Any, ...]:
    """The types that the value of a key may have; empty for an unknown key."""
    hint: Any = cls
    for name in key_paths(cls).get(key, ()):
        default = settings_of(hint).get(name)
        hint = _hints(hint).get(name, type(default))  # a retired key has no type hint
    return typing.get_args(hint) or (hint,)


def allows_none(cls: type, key: str) -> bool:
    """Whether ``--set KEY=none`` sets the key to None."""
    options = _allowed_types(cls, key)
    return type(None) in options and "none" not in choices_in(options)


def choices_in(hints: Iterable[Any]) -> list[Any]:
    """The values of the ``Literal`` types among ``hints``."""
    return [c for hint in hints if typing.get_origin(hint) is typing.Literal for c in typing.get_args(hint)]


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Parse ``KEY=VALUE`` strings; a value is parsed as TOML or, if that fails, used as text.

    If a key occurs several times, the last value is used, but tables are merged.

    Raises:
        ConfigError: a string has no ``=``, or a key has both a table and another value.
    """
    changes: dict[str, Any] = {}
    for setting in settings:
        key, sign, text = setting.partition("=")
        if not sign:
            raise ConfigError(f"{setting!r} has no '='", where="--set", fix="Write --set key=value")
        key = key.strip()
        try:
            value = tomllib.loads(f"value = {text.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        earlier = changes.get(key, value)
        if isinstance(earlier, dict) != isinstance(value, dict):
            what = f"{key} is set twice, and only one of the values is a table"
            example = ', such as {"*" = "spelling", "n/a" = ""}' if key.endswith("merge_labels") else ""
            raise ConflictError(what, where="--set", fix=f"Set it once{example}")
        changes[key] = earlier | value if isinstance(value, dict) else value
    return changes


def override(values: Mapping[str, Any], changes: Mapping[str, Any], cls: type, where: str) -> dict[str, Any]:
    """Replace values by ``changes``, in all sections; raise ConfigError for an unknown key.

    The text ``none`` means None for keys that may be None, unless "none" is one of their choices.
    """
    values = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
    places = key_paths(cls)
    for key, value in changes.items():
        if key not in places:
            raise UnknownKeyError(f"unknown key {key!r}", where=where, fix=_nearest_key(key, places))
        target = values
        *sections, last = places[key]
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise ConfigError(f"{section} is not a section but {target!r}", where=f"{where} {key}")
        is_none = isinstance(value, str) and value in ("none", "None") and allows_none(cls, key)
        target[last] = None if is_none else value
    return values


def _nearest_key(key: str, places: Mapping[str, Any]) -> str:
    hint = suggest(key, list(places))
    hint = hint if hint.startswith("Did") else "See all keys: 'glassformer train --help-keys'"
    return foreign_name_hint(key, places) or hint


def key_paths(cls: type) -> dict[str, tuple[str, ...]]:
    """Name -> path of each key: ``{"lr": ("train", "lr"), "train.lr": ("train", "lr"), ...}``."""
    paths: dict[str, tuple[str, ...]] = {}
    hints = _hints(cls)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            for inner in settings_of(typing.cast(type, hint)):
                path = (field.name, inner)
                paths[".".join(path)] = path
                paths.setdefault(inner, path)
        else:
            paths[field.name] = (field.name,)
    return paths


INF = float("inf")
BELOW_1 = 1.0 - 1e-9
MAX_INTEGER = 2**53  # maximum of integers without a maximum in RANGES
MAX_SEED = 2**32 - 1  # maximum seed in numpy and scikit-learn


# Key -> minimum and maximum
RANGES: dict[str, tuple[float, float]] = {
    "window_stride": (1, INF), "doc_stride": (0, INF), "max_question": (1, INF), "attention_window": (1, INF),
    "max_length": (3, INF), "max_positions": (1, INF), "vocab_size": (6, INF), "min_count": (0, INF),
    "head_hidden": (1, INF), "adam_eps": (1e-30, 1), "norm_eps": (1e-30, 1), "stochastic_depth": (0, BELOW_1),
    "dropout": (0, BELOW_1), "attention_dropout": (0, BELOW_1), "embedding_dropout": (0, BELOW_1),
    "feed_forward_dropout": (0, BELOW_1), "head_dropout": (0, BELOW_1), "head_input_dropout": (0, BELOW_1),
    "d_model": (1, INF), "num_layers": (1, INF), "num_heads": (1, INF), "d_ff": (1, INF),
    "embedding_std": (0, 1e3), "init_std": (0, 1e3), "damp_repeats": (0, 1), "embedding_dim": (1, INF),
    "epochs": (1, INF), "lr": (0, 1e3), "weight_decay": (0, 1e3), "warmup": (0, 1), "layer_decay": (0, 1),
    "embedding_lr": (0, 1e6), "batch_size": (0, INF), "batch_tokens": (0, INF), "length_window": (0, INF),
    "accumulate": (1, INF), "clip": (0, 1e9), "label_smoothing": (0, BELOW_1), "pos_weight": (1e-6, 1e6),
    "word_dropout": (0, BELOW_1), "time_limit": (0, INF), "max_answer_length": (1, INF),
    "train_layers": (0, INF), "unfreeze_every": (0, INF), "lora_rank": (0, INF), "lora_alpha": (0, 1e6),
    "average": (0, BELOW_1), "start_share": (0, BELOW_1),
    "validation_fraction": (0, BELOW_1), "early_stopping": (0, INF),
    "evaluate_every": (0, INF), "checkpoint_every": (0, INF), "seed": (0, MAX_SEED), "threads": (0, 1_024),
    "verbose": (0, INF), "split_seed": (0, MAX_SEED), "bootstrap": (0, INF), "maps": (0, INF),
    "validation_size": (0, INF), "test_size": (0, INF), "train_size": (1, INF), "limit": (1, INF),
    "scale": (1e-3, 1e4), "pairs_per_text": (1, INF), "neighbors": (1, INF),
    "robustness_limit": (0, INF), "betas": (0, BELOW_1), "image_size": (1, 4096), "resize": (1, 8192),
    "image_range": (1e-30, 1e30), "mix_share": (0, 1), "mix_alpha": (0.01, 100),
    "patch_dropout": (0, BELOW_1), "patch_size": (1, INF), "stem": (0, INF), "beam": (1, 256),
    "length_penalty": (-10, 10), "top": (1, INF),
    "decoder_width": (1, INF), "decoder_layers": (1, INF), "decoder_heads": (1, INF), "shown": (0, INF),
}  # fmt: skip


def check_ranges(config: Any, ranges: Mapping[str, tuple[float, float]] = RANGES) -> None:
    """Raise ConfigError for a number that is out of range; each element of a list is checked."""
    numbers: list[tuple[str, Any]] = []
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        numbers += [(f.name, v) for v in (value if isinstance(value, tuple) else (value,))]
    for name, value in numbers:
        low, high = ranges.get(name, (-INF, INF))
        if isinstance(value, int) and high == INF and value > MAX_INTEGER:
            high = MAX_INTEGER
        if isinstance(value, int | float) and not (low <= value <= high and abs(value) < INF):
            bound = f"of at least {low:g}" if high == INF else f"from {low:g} to {high:.10g}"
            bound = f"from {low:g} to less than 1" if high == BELOW_1 else bound
            raise BadValueError(f"{value} is out of range", where=name, fix=f"Use a value {bound}")


def check_heads(d_model: int, num_heads: int) -> None:
    """Raise ConfigError if ``num_heads`` does not divide ``d_model``."""
    if num_heads < 1 or d_model % num_heads:
        divisors = [str(n) for n in range(1, 65) if d_model % n == 0]
        fix = "Use another d_model"
        if len(divisors) > 1:
            fix = f"Use {', '.join(divisors[:-1])} or {divisors[-1]}"
        what = f"d_model {d_model} is not a multiple of num_heads {num_heads}"
        raise ConfigError(what, where="num_heads", fix=fix)


@section
class Section:
    """Base class of sections, which checks the ranges of numbers."""

    def __post_init__(self) -> None:
        check_ranges(self)


@section
class TableKeys(Section):
    """The source of the data, and settings for reading its tables."""

    source: str = setting("", "a path to a file or folder")
    encoding: str | None = setting(
        None, "encoding of tables that are not UTF-8, such as cp1252; None: the value of --encoding"
    )
    quoting: typing.Literal["csv", "none"] | None = setting(
        None,
        "quoting of CSV and TSV files. csv: a quoted cell may contain line breaks; none: quotes are "
        "plain characters and each line is a row; None: like csv, but a cell that looks like several "
        "rows is an error",
    )
    header: typing.Literal["yes", "no"] | None = setting(
        None,
        "whether the first row of a CSV or TSV file has the column names; no: the columns are "
        "called column1, column2 ...; None: like yes, but a first row that looks like data is an "
        "error",
    )


@dataclasses.dataclass(frozen=True)
class KnownRecipe:
    """Facts about a recipe, for reports.

    Attributes:
        defaults: section -> key -> default value.
        shipped: the values of the package's recipe with the same name; None if the package has none.
        noun: name of the examples.
        shape: shape of the model's input.
        has_images: whether the examples are images.
    """

    defaults: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    shipped: dict[str, Any] | None = None
    noun: str = "texts"
    shape: str = "tokens [N]"
    has_images: bool = False


UNKNOWN_RECIPE = KnownRecipe()
