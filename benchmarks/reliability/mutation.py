"""Small faults put into a source on purpose, one at a time: what `mutants.py` asks the tests to notice.

A mutant changes one expression or statement. Left out are texts and messages, docstrings, annotations, decorators,
`__all__`, what only a type checker reads, on which device a tensor lies, and the few calls with which a fault could
reach beyond a test's own folder.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


def _instead(said: str) -> dict[Any, list[Any]]:
    """Kinds of nodes, each with those that may stand in its place."""
    lines = (line.split() for line in said.split(","))
    return {getattr(ast, kind): [getattr(ast, other) for other in others] for kind, *others in lines}


COMPARISONS = _instead(
    "Lt LtE GtE, LtE Lt Gt, Gt GtE LtE, GtE Gt Lt, Eq NotEq, NotEq Eq, Is IsNot, IsNot Is, In NotIn, NotIn In"
)
ARITHMETIC = _instead(
    "Add Sub, Sub Add, Mult Div, Div Mult, FloorDiv Mult, Mod FloorDiv, Pow Mult, BitAnd BitOr, "
    "BitOr BitAnd, LShift RShift, RShift LShift"
)
DANGEROUS = {"kill", "killpg", "rmtree"}  # a signal or a folder that is not the test's
# An error's words, a guard, a GPU's needs.
UNSEEN = {"where", "fix", "encoding", "strict", "device", "non_blocking"}
IN_ANY_ORDER = {"max", "min", "gcd", "add", "transpose", "mul", "isinstance", "getattr", "hasattr", "cast"}
MESSAGES = {"warn", "warning", "info", "debug", "exception"}  # calls that only say something
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mutant:
    """One fault: the source with it, and where and what it is."""

    file: str
    line: int
    end: int  # last line of what is changed
    statement: tuple[int, int]  # first and last line of the statement around it, its body left out
    scope: tuple[int, int]  # first and last line of the function around it; (0, 0) outside of any
    text: str  # the line as it stands
    mutation: str  # `before → after`
    original: bytes = field(repr=False, compare=False)
    place: tuple[int, int] = field(repr=False, compare=False)  # bytes
    instead: str = field(repr=False, compare=False)

    @property
    def source(self) -> str:
        """The whole file with the fault."""
        begin, stop = self.place
        return (self.original[:begin] + self.instead.encode() + self.original[stop:]).decode()

    @property
    def key(self) -> tuple[str, str, str]:
        """What names it when lines have moved."""
        return self.file, self.text, self.mutation


def mutants(file: str, source: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    raw, lines, found = source.encode(), source.splitlines(), {}

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column

    for node, changed, statement, scope in _walk(tree):
        begin, stop = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
        before = " ".join(raw[begin:stop].decode().split())
        after = ast.unparse(changed)
        bare = isinstance(changed, (ast.stmt, ast.Slice))
        mutation = f"{before} → {after}"
        found[node.lineno, mutation] = Mutant(
            file, node.lineno, node.end_lineno, statement, scope, lines[node.lineno - 1].strip(), mutation,
            raw, (begin, stop), after if bare else f"({after})",
        )  # fmt: skip
    return sorted(found.values(), key=lambda m: m.line)


def sample(found: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """``count`` of a file's mutants: lines drawn at random, one of each line's, and again while there are lines."""
    chance = random.Random(f"{seed} {found[0].file if found else ''}")
    lines: dict[int, list[Mutant]] = {}
    for one in found:
        lines.setdefault(one.line, []).append(one)
    for of_line in lines.values():
        chance.shuffle(of_line)
    chosen: list[Mutant] = []
    while lines and len(chosen) < count:
        order = sorted(lines)
        chance.shuffle(order)
        for line in order[: count - len(chosen)]:
            one = lines[line].pop()
            if _parses(one.source):
                chosen.append(one)
            if not lines[line]:
                del lines[line]
    return sorted(chosen, key=lambda m: (m.line, m.mutation))


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _walk(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST, tuple[int, int], tuple[int, int]]]:
    """Nodes of the tree with what may stand in their place and the lines of the statement and function around."""
    nowhere = (0, 0)
    waiting: list[tuple[ast.AST, tuple[int, int], tuple[int, int]]] = [(tree, nowhere, nowhere)]
    while waiting:
        node, statement, scope = waiting.pop()
        if _left_out(node):
            continue
        if isinstance(node, (ast.stmt, ast.ExceptHandler)):
            body = getattr(node, "body", None)
            last = max(body[0].lineno - 1, node.lineno) if body else node.end_lineno or node.lineno
            statement = (node.lineno, last)
        for changed in _changes(node):
            yield node, changed, statement, scope
        for test in _conditions(node):
            yield test, ast.UnaryOp(ast.Not(), test), statement, scope
        inside = (node.lineno, node.end_lineno or node.lineno) if isinstance(node, FUNCTIONS) else scope
        for name, child in _children(node):
            of_body = name == "body" or not isinstance(node, FUNCTIONS)
            waiting.append((child, statement, inside if of_body else scope))


def _left_out(node: ast.AST) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr)):
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
        return True
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        return name in DANGEROUS or name in MESSAGES or name == "TypeVar"
    return False


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment", "ctx", "op", "ops"):
            continue
        if isinstance(node, ast.keyword) and node.arg in UNSEEN:
            continue
        if isinstance(node, ast.Raise) or (name == "msg" and isinstance(node, ast.Assert)):
            continue  # what an error says
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield name, child


def _with(node: ast.AST, **changes: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return ast.fix_missing_locations(changed)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of one node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for op in COMPARISONS[type(node.ops[0])]:
            yield _with(node, ops=[op()])
    elif isinstance(node, (ast.BinOp, ast.AugAssign)):
        for op in ARITHMETIC.get(type(node.op), ()):
            if not any(_is_text(getattr(node, side, None)) for side in ("left", "right", "value")):
                yield _with(node, op=op())
        if isinstance(node, ast.AugAssign):
            yield ast.Pass()
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from _constants(node.value)
    elif isinstance(node, ast.IfExp):
        yield _with(node, body=node.orelse, orelse=node.body)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Slice):
        yield from _slices(node)
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Continue):
        yield ast.Break()
        yield ast.Pass()
    elif _stands_alone(node):
        yield ast.Pass()
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield ast.Return(ast.Constant(None))


def _stands_alone(node: ast.AST) -> bool:
    """Whether a statement can be left out: it raises, deletes, calls, yields, or sets a part of something."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, (ast.Call, ast.Yield, ast.YieldFrom, ast.Await))
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], (ast.Attribute, ast.Subscript))
    return isinstance(node, (ast.Raise, ast.Delete))


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    """What a node decides by, where no other mutant turns it round."""
    tests = [node.test] if isinstance(node, (ast.If, ast.While)) else getattr(node, "ifs", [])
    for test in tests:
        if not isinstance(test, (ast.Compare, ast.UnaryOp)):
            yield test


def _constants(value: object) -> Iterator[ast.AST]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
        if value == 1:
            yield ast.Constant(0)
    elif isinstance(value, float):
        yield ast.Constant(value + 1)


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    for i, (left, right) in enumerate(zip(node.args, node.args[1:])):
        plain = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Call)
        both = (left, right)
        alike = all(isinstance(one, plain) for one in both) and not any(map(_is_text, both))
        ordered = ast.unparse(node.func).rpartition(".")[2] not in IN_ANY_ORDER
        if alike and ordered and ast.dump(left) != ast.dump(right):
            yield _with(node, args=[*node.args[:i], right, left, *node.args[i + 2 :]])
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None and keyword.arg not in UNSEEN:
            yield _with(node, keywords=[*node.keywords[:i], *node.keywords[i + 1 :]])


def _slices(node: ast.Slice) -> Iterator[ast.AST]:
    for side in ("lower", "upper"):
        bound = getattr(node, side)
        if bound is not None and not isinstance(bound, (ast.Constant, ast.UnaryOp)):
            yield _with(node, **{side: ast.BinOp(bound, ast.Add(), ast.Constant(1))})


def _is_text(node: ast.AST | None) -> bool:
    texts = isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    return texts or isinstance(node, ast.JoinedStr)
