"""The page "Errors and warnings": an entry per code, from the docstrings of the classes and the messages in the source."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from glassformer import errors
from glassformer.inputs.inputs import RequestTooLargeError
from glassformer.tasks.word2vec.estimator import UnknownWord
from glassformer.train.callbacks import Interrupted

HERE = Path(__file__).parent
SOURCE = Path(errors.__file__).parent
MOST = 6  # messages shown of a code
ELSEWHERE = (UnknownWord, Interrupted, RequestTooLargeError)  # classes outside glassformer.errors
SECTIONS = (
    ("Data", errors.DataError),
    ("Settings, options and runs", errors.ConfigError),
    ("Checkpoints", errors.CheckpointError),
    ("Other errors", errors.GlassformerError),
    ("Warnings", errors.GlassformerWarning),
)
# Codes without a class: of the command line, and of requests to the server. Code -> meaning, cause, fix.
WITHOUT_CLASS = {
    "usage": (
        "The command line cannot be parsed.",
        "an option or argument is missing, unknown or of another type.",
        "see `glassformer VERB --help`.",
    ),
    "unexpected": (
        "An error that glassformer did not foresee.",
        "a bug, an operating system error, or too little memory.",
        "run the command again with `--debug` and report the traceback; if memory ran out, lower `--batch-size`.",
    ),
    "bad-request": (
        "The server cannot use the request (status 400 or 422).",
        "a field is missing, unknown or of another type.",
        "send what the message asks for; `GET /openapi.json` has the fields.",
    ),
    "no-such-path": (
        "The server has no such path (404).",
        "a typing error in the URL.",
        "take the path that the message suggests; `GET /openapi.json` lists all.",
    ),
    "wrong-key": (
        "The key is missing or wrong (401).",
        "the server was started with GLASSFORMER_API_KEY.",
        "send `Authorization: Bearer KEY`.",
    ),
    "request-too-slow": (
        "The body did not arrive in time (408).",
        "a slow connection, or a client that stopped sending.",
        "send it again; `--body-seconds` allows more.",
    ),
    "server-busy": (
        "The server cannot take the request now (429, 503).",
        "its queue is full, or the model took too long.",
        "try again after the seconds in `Retry-After`.",
    ),
    "server-failed": (
        "The server met an unexpected error (500).",
        "a bug.",
        "look at the server's log and report it.",
    ),
}


def classes() -> list[type]:
    """All errors and warnings that have a code."""
    own = [
        c
        for name, c in vars(errors).items()
        if isinstance(c, type) and c.__module__ == errors.__name__ and name[0] != "_"
    ]
    return [*own, *ELSEWHERE]


def codes() -> dict[str, list[type]]:
    """Code -> classes that have it, in the order of the source."""
    found = defaultdict(list)
    for cls in classes():
        if cls is not errors.GlassformerWarning:
            found[cls.code].append(cls)
    return dict(found)


def explanation(cls: type) -> tuple[str, str, str]:
    """Meaning, likely cause and fix, from the docstring."""
    text = re.sub(r"``", "`", inspect.getdoc(cls) or "")
    meaning = " ".join(text.split("\n\n")[0].split())
    parts = {
        key: re.search(rf"^{key}: (.*?)(?=^\w+:|^$|\Z)", text, re.MULTILINE | re.DOTALL)
        for key in ("Cause", "Fix")
    }
    cause, fix = (" ".join(found[1].split()) if found else "" for found in parts.values())
    return meaning, cause, fix


def shown(node: ast.expr | None, before: dict[str, ast.expr]) -> str | None:
    """A message as its source has it, values as <name>; None if it is not written out at this place."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else name_of(v.value) for v in node.values)
    if isinstance(node, ast.Name) and node.id in before:
        text = shown(before[node.id], {})
        return text if text and text[-1].isalnum() else None  # a beginning that is continued later
    return None


def name_of(node: ast.expr) -> str:
    """What stands for a value in an example."""
    if isinstance(node, ast.Call) and node.args:
        return name_of(node.args[0])
    names = [
        n.id if isinstance(n, ast.Name) else n.attr
        for n in ast.walk(node)
        if isinstance(n, ast.Name | ast.Attribute)
    ]
    return f"<{names[0].strip('_')}>" if names else "<...>"


def raised(tree: ast.AST) -> Iterator[tuple[str, ast.Call, dict[str, ast.expr]]]:
    """Name of the class, call, and the strings assigned before it in its function."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            before: dict[str, ast.expr] = {}
            for node in sorted(
                (n for n in ast.walk(function) if isinstance(n, ast.Assign | ast.Call)),
                key=lambda n: (n.lineno, n.col_offset),
            ):
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        if isinstance(target, ast.Name):
                            before[target.id] = node.value
                elif isinstance(node.func, ast.Name):
                    yield node.func.id, node, dict(before)
                elif isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "errors":
                    yield node.func.attr, node, dict(before)
                elif isinstance(node.func, ast.Attribute) and node.func.attr == "warn":
                    kind = next(
                        (a.id for a in node.args if isinstance(a, ast.Name) and a.id.endswith("Warning")), ""
                    )
                    yield kind, node, dict(before)


@cache
def messages() -> dict[str, list[str]]:
    """Name of a class -> the messages that the source raises it with, each once."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for path in sorted(SOURCE.rglob("*.py")):
        for name, call, before in raised(ast.parse(path.read_text(encoding="utf-8"))):
            what = shown(call.args[0] if call.args else None, before)
            fix = shown(next((k.value for k in call.keywords if k.arg == "fix"), None), before)
            if what:
                found[name][f"{what}. {fix}" if fix else what] = None
    return {name: sorted(texts, key=lambda text: (len(text), text)) for name, texts in found.items()}


def examples(found: list[type]) -> list[str]:
    """A few messages of a code: from the shortest to the longest of those that fit a line."""
    texts = [text for cls in found for text in messages().get(cls.__name__, ()) if 20 < len(text) <= 160]
    step = max(1, len(texts) // MOST)
    return texts[::step][:MOST]


def entry(
    code: str, about: tuple[str, str, str], names: str = "", texts: list[str] | None = None
) -> Iterator[str]:
    meaning, cause, fix = about
    yield from (f"### {code}", "", meaning + (f" {names}" if names else ""), "")
    yield from (f"- Likely cause: {cause}", f"- Fix: {fix}")
    if texts:
        yield from ("", "```", *texts, "```")
    yield ""


def page() -> str:
    """The page in Markdown."""
    lines = [
        "# Errors and warnings",
        "",
        "Every error and warning has a code. The command line prints it in brackets after the line, JSON output and the",
        "server have it as `error.code`, and in Python it is `error.code`. Search this page for the code.",
        "",
        "```",
        "error: reviews.csv: no column 'txt'. Did you mean 'text'? [no-such-column]",
        "```",
        "",
        "An error says where it is, what is wrong, and how to fix it. The command line exits with 2 if the input is wrong and",
        "with 1 if the work failed. In Python, catch a class of `glassformer.errors`; each is named after its cause. The",
        "examples are taken from the source; `<name>` stands for a value.",
        "",
    ]
    left = codes()
    for title, base in SECTIONS:
        chosen = {code: found for code, found in left.items() if issubclass(found[0], base)}
        lines += [f"## {title}", ""]
        for code, found in chosen.items():
            names = ", ".join(f"`{cls.__name__}`" for cls in found)
            lines += entry(code, explanation(found[0]), f"({names})", examples(found))
        left = {code: found for code, found in left.items() if code not in chosen}
    lines += ["## Command line and server", ""]
    for code, about in WITHOUT_CLASS.items():
        lines += entry(code, about)
    return "\n".join(lines).rstrip() + "\n"


def write(folder: Path = HERE / "reference") -> None:
    """Write the page beside the other generated ones."""
    (folder / "messages.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write()
