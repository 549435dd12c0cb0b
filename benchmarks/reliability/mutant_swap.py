"""A mutant put into functions that are loaded already: no import, no collection of tests, a tenth of the time."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator

from benchmarks.reliability.mutation import Mutant

UNFIT = 71  # exit code: this one needs its module imported anew


def fits(one: Mutant, source: str) -> bool:
    """Whether a mutant lies in a function's body and nowhere else: defaults and classes are made by an import."""
    if not one.scope[0]:
        return False
    try:
        before, after = _functions(source, one.file), _functions(one.source, one.file)
    except SyntaxError:
        return False
    if len(before) != len(after) or _module_level(source, one.file) != _module_level(one.source, one.file):
        return False
    return "njit" not in source and any(a != b for (_, a), (_, b) in zip(before, after))


def loaded() -> dict[str, list[types.FunctionType]]:
    """Every function of this process by its file."""
    found: dict[str, list[types.FunctionType]] = {}
    for function in gc.get_objects():
        if type(function) is types.FunctionType:
            found.setdefault(function.__code__.co_filename, []).append(function)
    return found


def swap(one: Mutant, source: str, path: str, functions: list[types.FunctionType]) -> bool:
    """Give the loaded functions of a file the mutant's code; False where that cannot be done.

    A file that has not been imported yet needs nothing: its import will read the mutant.
    """
    wanted: dict[tuple[str, int], types.CodeType] = {}
    for (name, before), (_, after) in zip(_functions(source, path), _functions(one.source, path)):
        if before != after:
            wanted[name, before.co_firstlineno] = after
    for function in functions:
        code = wanted.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
        if code is None:
            continue
        if code.co_freevars != function.__code__.co_freevars:
            return False
        function.__code__ = code
    return True


def _functions(source: str, path: str) -> list[tuple[str, types.CodeType]]:
    """The functions of a module and of its classes, those inside functions left out, in their order."""

    def within(code: types.CodeType) -> Iterator[tuple[str, types.CodeType]]:
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                if inner.co_flags & 0x2:  # CO_NEWLOCALS: a function, not a class body
                    yield inner.co_qualname, inner
                else:
                    yield from within(inner)

    return list(within(compile(source, path, "exec", dont_inherit=True)))


def _module_level(source: str, path: str) -> list[object]:
    """What an import of the module runs itself, in a form that compares equal where it does the same."""

    def within(code: types.CodeType) -> Iterator[object]:
        yield code.co_code
        yield [c for c in code.co_consts if not isinstance(c, types.CodeType)]
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType) and not inner.co_flags & 0x2:
                yield from within(inner)

    return list(within(compile(source, path, "exec", dont_inherit=True)))
