"""Options of a command line, declared in a line."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Options that several benchmarks have.
SETTINGS: dict[str, Any] = {"flag": "--set", "nargs": "*", "default": [], "metavar": "KEY=VALUE"}
MINUTES = (0.0, "begin nothing after so many; 0: no limit")


def count(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count; give a whole number from 1 on")
    return int(text)


def parse(doc: str | None, *positional: Any, argv: Sequence[str] | None = None, **options: Any) -> Any:
    """The command line's values, with ``error``, ``exit`` and ``prog`` of its parser.

    Args:
        positional: names, or pairs of a name and its help or argparse's own settings of it.
        options: name=default, or (default, help). ``False`` is a switch, a list takes several values, a type has no
            default; a dictionary holds argparse's own settings, and ``flag`` where that is not the name.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for one in positional:
        name, more = (one, {}) if isinstance(one, str) else one
        parser.add_argument(name, **(more if isinstance(more, dict) else {"help": more}))
    for name, given in options.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(given, dict):
            rest = {key: value for key, value in given.items() if key != "flag"}
            parser.add_argument(given.get("flag", flag), dest=name, **rest)
            continue
        value, told = given if isinstance(given, tuple) else (given, None)
        settings: dict[str, Any] = {"type": type(value), "default": value}
        if value is False:
            settings = {"action": "store_true"}
        elif isinstance(value, type):
            settings = {"type": value}
        elif isinstance(value, list):
            settings |= {"type": type(value[0]) if value else str, "nargs": "+"}
        elif isinstance(value, Path):
            settings["type"] = Path
        parser.add_argument(flag, help=told, **settings)
    found = parser.parse_args(argv)
    found.error, found.exit, found.prog = parser.error, parser.exit, parser.prog
    return found
