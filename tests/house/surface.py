"""What a user relies on, read from the code itself: names, parameters, verbs, recipe keys, HTTP, exit codes.

    PYTHONPATH=src python tests/house/surface.py OUT.json
    PYTHONPATH=src python tests/house/surface.py --verbs        an option is new: into surface.json with it

Everything is asked through doors that an earlier version has too, so that one script reads both; `lost` says what of
an old surface a new one no longer has.
"""

import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import sys
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import glassformer as gf

TASKS = ("text-classification", "image-classification", "translation", "masked-lm", "word2vec")
SAID = ("name", "summary", "expect")  # of a recipe: words that follow its results
# Keys that were accepted at these values only: a recipe that has them so is still read.
RETIRED = {
    "masked-lm": {"class_weight": "none", "label_smoothing": "0.0", "word_dropout": "0.0"},
    "translation": {"class_weight": "none", "word_dropout": "0.0"},
}
# What a command line ends with, whatever it does on the way.
COMMANDS = (
    ["--version"],
    ["--help"],
    [],
    ["nosuch"],
    ["train"],
    ["train", "--nosuch"],
    ["train", "--help-keys"],
    ["train", "nosuch"],
    ["train", "europe", "--set", "nosuch=1"],
    ["train", "europe", "--set", "epochs=-1"],
    ["train", "europe", "--data", "nowhere.csv"],
    ["evaluate", "nowhere"],
    ["predict", "nowhere", "text"],
    ["explain", "nowhere", "text"],
    ["fill", "nowhere", "text"],
    ["translate", "nowhere", "text"],
    ["calibrate", "nowhere"],
    ["report", "nowhere"],
    ["export", "nowhere", "--to", "onnx", "--out", "x"],
    ["compare", "nowhere"],
    ["cross-validate", "nowhere"],
    ["review-labels", "nowhere"],
    ["vectors", "nowhere", "a"],
    ["serve", "nowhere"],
    ["reproduce", "99"],
    ["reproduce", "--table"],
    ["data", "list"],
    ["data", "show", "nosuch"],
)


def found(name: str, *modules: str) -> Any:
    """A function that has moved, from the first module that has it."""
    for module in modules:
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), name)
    raise ImportError(f"{name} is in none of {', '.join(modules)}")


# --- names and parameters -------------------------------------------------------------------------


def written(value: Any) -> str:
    """A default as text that is the same in every process."""
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.isbuiltin(value):
        return value.__name__
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


def parameters_of(call: Callable) -> dict[str, Any]:
    """Names with defaults, and those that may be given by place, in their order."""
    by_place, known = [], {}
    for p in inspect.signature(call).parameters.values():
        if p.name in ("self", "cls"):
            continue
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            by_place.append(p.name)
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):  # hands on what another package's class takes
            by_place += ["*"] if p.kind == p.VAR_POSITIONAL else []
            known["**"] = "(none)"
            continue
        known[p.name] = "(none)" if p.default is p.empty else written(p.default)
    return {"by_place": by_place, "parameters": known}


def class_of(cls: type) -> dict[str, Any]:
    """Constructor, public methods and properties, fields; those of other packages' base classes apart."""
    members: dict[str, Any] = {}
    for name in sorted(n for n in dir(cls) if not n.startswith("_")):
        owner = next((c for c in cls.__mro__ if name in vars(c)), None)
        if owner is None or not owner.__module__.startswith("glassformer"):
            continue
        value = inspect.getattr_static(cls, name)
        value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        members[name] = parameters_of(value) if inspect.isfunction(value) else "attribute"
    fields = [f.name for f in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
    for field in fields:
        members.setdefault(field, "attribute")
    bases = [
        c.__name__ for c in cls.__mro__[1:-1] if not c.__name__.startswith("_") and c.__name__[0].isupper()
    ]
    errors = [b for b in bases if b.endswith(("Error", "Exception"))]
    return {"constructor": parameters_of(cls.__init__), "members": members, "caught_as": errors}


def about(value: Any) -> Any:
    if inspect.isclass(value):
        return class_of(value)
    return parameters_of(value) if callable(value) else type(value).__name__


def returned(value: Any, seen: dict[str, Any]) -> None:
    """Classes of ours that public functions and methods give back, and those that these give back."""
    calls = [value]
    if inspect.isclass(value):
        calls = [m for n, m in inspect.getmembers(value) if not n.startswith("_") and inspect.isfunction(m)]
        calls += [p.fget for _, p in inspect.getmembers(value, lambda m: isinstance(m, property)) if p.fget]
    for call in calls:
        try:
            hint = typing.get_type_hints(call).get("return")
        except (NameError, TypeError, AttributeError):
            continue
        for cls in ours(value if hint is typing.Self else hint):
            if cls.__name__ not in seen:
                seen[cls.__name__] = class_of(cls)
                returned(cls, seen)


def ours(hint: Any) -> Iterator[type]:
    if (
        inspect.isclass(hint)
        and hint.__module__.startswith("glassformer")
        and not hint.__name__.startswith("_")
    ):
        yield hint
    for part in typing.get_args(hint):
        yield from ours(part)


def names() -> dict[str, Any]:
    """Every public name of the package, of its blocks, its data and its errors."""
    surface: dict[str, Any] = {}
    for module in (gf, gf.nn, gf.data):
        surface[module.__name__] = {n: about(getattr(module, n)) for n in sorted(module.__all__)}
    public = {n: v for n, v in vars(gf.errors).items() if inspect.isclass(v) and not n.startswith("_")}
    surface["glassformer.errors"] = {
        n: class_of(v) | {"exit_code": v.exit_code}
        for n, v in public.items()
        if issubclass(v, gf.GlassformerError)
    }
    results: dict[str, Any] = {}
    for module in (gf, gf.nn, gf.data):
        for name in module.__all__:
            returned(getattr(module, name), results)
    surface["returned"] = dict(sorted(results.items()))
    return surface


# --- the command line -----------------------------------------------------------------------------


def verbs() -> dict[str, Any]:
    """Every verb with its arguments and options, as the parser holds them."""
    import typer.main

    from glassformer.cli.app import build_app

    def read(command: Any) -> dict[str, Any]:
        options = {}
        for p in command.params:
            default = None if callable(p.default) else p.default
            kind = getattr(getattr(p, "type_descriptor", None), "annotation", None)
            choices = [c.value for c in kind] if inspect.isclass(kind) and issubclass(kind, Enum) else []
            options["/".join([*p.opts, *p.secondary_opts])] = {
                "name": p.name,
                "default": written(default),
                "required": p.required,
                "nargs": p.nargs,
                "multiple": bool(getattr(p, "multiple", False)),
                "flag": bool(getattr(p, "is_flag", False)),
                "helped": bool(getattr(p, "help", None)),
                "shown": not getattr(p, "hidden", False),
                "choices": choices,
            }
        below = {name: read(sub) for name, sub in getattr(command, "commands", {}).items()}
        return {"options": options, "verbs": below, "helped": bool(command.help)}

    return read(typer.main.get_command(build_app()))


def exit_codes() -> dict[str, int]:
    """What a command line ends with, run where nothing is."""
    from glassformer.cli.app import main

    codes = {}
    for words in COMMANDS:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            codes[" ".join(words)] = main(list(words))
    return codes


# --- recipes --------------------------------------------------------------------------------------


def recipes() -> dict[str, Any]:
    """Each task's keys with defaults, and what every shipped recipe and study sets."""
    from glassformer.cli.options import recipe_keys
    from glassformer.config import read_toml, to_dict

    load = found("load_recipe", "glassformer.tasks.catalog", "glassformer.recipe")
    places = "glassformer.tasks.catalog", "glassformer.recipe"
    shipped, studies = found("recipe_names", *places)(), found("study_names", *places)()
    keys = {
        task: {
            f"{k.section}.{k.name}": {"default": k.default, "told": bool(k.meaning)}
            for k in recipe_keys(task)
        }
        for task in TASKS
    }
    for task, once in RETIRED.items():
        for key, default in once.items():
            load(next(name for name in shipped if load(name).task == task), [f"{key}={default}"])
            keys[task][f"train.{key}"] = {"default": default, "told": True}

    def plain(value: Any, leave: tuple[str, ...] = SAID) -> Any:
        if isinstance(value, dict):
            return {k: plain(v, leave) for k, v in value.items() if k not in leave}
        return written(value)

    def settings(name: str) -> Any:
        recipe = load(name)
        return plain(to_dict(recipe), (*SAID, *RETIRED.get(recipe.task, ())))

    return {
        "keys": keys,
        "shipped": {name: settings(name) for name in sorted(shipped)},
        "studies": {name: plain(read_toml(path)) for name, path in sorted(studies.items())},
    }


# --- the server -----------------------------------------------------------------------------------


def http() -> dict[str, Any]:
    """openapi.json without its words."""
    from glassformer.inputs.texts import ServedTexts
    from glassformer.serve.app import create_app
    from glassformer.serve.limits import Limits

    inputs = object.__new__(ServedTexts)
    stand_in: Any = SimpleNamespace(name="m", kind="text", inputs=inputs, clf=SimpleNamespace(threads=1))
    wordy = ("description", "title", "summary", "version")

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: bare(v) for k, v in value.items() if not (k in wordy and isinstance(v, str))}
        return [bare(v) for v in value] if isinstance(value, list) else value

    return bare(create_app([(stand_in, False)], Limits()).openapi())


def collect() -> dict[str, Any]:
    surface = {
        "names": names(),
        "verbs": verbs(),
        "recipes": recipes(),
        "http": http(),
        "exit_codes": exit_codes(),
    }
    return json.loads(json.dumps(surface))


# --- comparing ------------------------------------------------------------------------------------


def lost(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """What is in the old surface and not, or not the same, in the new. What is added counts as no loss.

    Lists are sets of what may be said or had (``by_place`` is an order: its beginning must stand).
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key not in new and "**" in new:
                continue
            if key not in new:
                yield f"{where}.{key}: gone".lstrip(".")
            elif key == "by_place":
                if not stands(value, new[key]):
                    yield f"{where}: by place it took {value}, now {new[key]}".lstrip(".")
            else:
                yield from lost(value, new[key], f"{where}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        yield from (f"{where}: {item!r} gone".lstrip(".") for item in old if not kept(item, new))
    elif old != new and not (
        (old in (False, "attribute") and where.endswith((".helped", ".told")))
        or (where.endswith(".required") and new is False)  # what was said goes on being understood
        or (where.endswith(".nargs") and new == -1)
    ):
        yield f"{where}: was {old!r}, is {new!r}".lstrip(".")


def kept(item: Any, among: list[Any]) -> bool:
    """Whether an item is among others, or one that takes longer texts and is otherwise the same."""
    if item in among or not isinstance(item, dict) or "maxLength" not in item:
        return item in among
    longest = item["maxLength"]
    same = [other for other in among if isinstance(other, dict) and {**other, "maxLength": longest} == item]
    return any(other.get("maxLength", 0) > longest for other in same)


def stands(old: list[str], new: list[str]) -> bool:
    """Whether a call that gives ``old`` by place means the same as before; ``*`` takes any number."""
    named = new.index("*") if "*" in new else len(new)
    return new[:named] == old[:named] if "*" in new else new[: len(old)] == old


if __name__ == "__main__" and sys.argv[1] == "--verbs":
    frozen = Path(__file__).with_name("surface.json")
    known = json.loads(frozen.read_text(encoding="utf-8")) | {"verbs": json.loads(json.dumps(verbs()))}
    frozen.write_text(json.dumps(known, sort_keys=True, separators=(",", ":")) + "\n", encoding="utf-8")
elif __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(collect(), indent=1, sort_keys=True), encoding="utf-8")
