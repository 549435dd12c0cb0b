"""Run the blocks of a page and write what each prints below it.

    python docs/blocks.py PAGE ... [--check]

A fence of ``text`` right below a block of Python or commands is that block's output. Blocks share one process and one folder.
``--check`` writes nothing and says where a page differs from what its blocks print now.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d*)?(?:e-?\d+)?")
TIME = re.compile(r"(?:\d+ min )?\d+(?:\.\d+)? ?(?:s|ms|min)\b")
FIRST, LAST = 4, 12  # lines that are kept of a long output
WIDEST = 300  # characters of a line
PORT = "8765"  # of the server in a guide; a free one takes its place
START = """
import atexit, os, subprocess, sys

os.environ["COLUMNS"] = "80"  # of tables

def output_of(block):
    "From here on, what is printed goes to a file of its own."
    sys.stdout.flush()
    os.makedirs(".printed", exist_ok=True)
    os.dup2(os.open(f".printed/{block}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 1)
"""


def program(page: Path) -> str:
    """All blocks of a page as one program: Python as it is, commands through the command line. Empty without blocks.

    A command with ``&`` runs beside the rest and is told to end when the program ends.
    """
    parts = []
    for number, (kind, text, _) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
        parts.append(f"output_of({number})")
        if kind == "python":
            parts.append(text)
            continue
        for line in text.strip().splitlines():
            first, *words = shlex.split(line, comments=True)
            if words[-1] == "&":
                parts += [
                    f"beside = subprocess.Popen([sys.executable, '-m', 'glassformer', *{words[:-1]!r}])",
                    "atexit.register(beside.wait, 60)",
                    "atexit.register(beside.terminate)",
                ]
            elif first == "glassformer":
                parts += ["from glassformer.cli.app import main", f"assert main({words!r}) == 0, {line!r}"]
            else:
                start = {"torchrun": "sys.executable, '-m', 'torch.distributed.run'", "curl": "'curl'"}[first]
                parts += ["sys.stdout.flush()", f"subprocess.run([{start}, *{words!r}], check=True)"]
    return "\n".join([START, *parts]) if parts else ""


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def printed(folder: Path) -> list[str]:
    """What each block of a program printed that ran in this folder."""
    files = sorted((folder / ".printed").iterdir(), key=lambda file: int(file.name))
    return [shortened(file.read_text(encoding="utf-8")) for file in files]


def shortened(text: str) -> str:
    """The first and last lines of a long output; speeds are left out, and the port is that of the page."""
    text = re.sub(r"(127\.0\.0\.1|localhost):\d+", rf"\1:{PORT}", text)
    lines = [line.rstrip() for line in text.strip("\n").splitlines() if not line.startswith("step ")]
    lines = [line if len(line) <= WIDEST else f"{line[:WIDEST]} ..." for line in lines]
    if len(lines) > FIRST + LAST:
        lines = [*lines[:FIRST], "...", *lines[-LAST:]]
    return "\n".join(lines)


def alike(told: str, found: str) -> bool:
    """Whether two outputs have the same words, and numbers within a tenth (0.1 for small ones); times may differ."""
    one, other = (re.sub(r"[\s━─┏┓┗┛┳┻╇┡┩└┘┴]+", " ", TIME.sub("TIME", text)) for text in (told, found))
    if NUMBER.split(one) != NUMBER.split(other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    numbers = ((float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs)
    return all(abs(a - b) <= max(0.1, 0.1 * abs(a)) for a, b in numbers)


def differences(page: Path, outputs: list[str]) -> list[str]:
    """Blocks of a page under which no output stands that is like theirs."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [
        f"{page.name}, block {number}: the page has\n{told}\nnow it prints\n{found}"
        for number, ((_, _, told), found) in enumerate(zip(blocks, outputs, strict=True))
        if not alike(told.rstrip("\n"), found)
    ]


def with_outputs(text: str, outputs: list[str]) -> str:
    """A page with each output below its block; an output that is alike stays."""
    rest = iter(outputs)

    def block(match: re.Match[str]) -> str:
        output, told = next(rest), (match[3] or "").rstrip("\n")
        code = f"```{match[1]}\n{match[2]}```\n"
        output = told if alike(told, output) else output
        return code + (f"\n```text\n{output}\n```\n" if output else "")

    return BLOCK.sub(block, text)


def main() -> int:
    check, pages = "--check" in sys.argv, [Path(word) for word in sys.argv[1:] if word != "--check"]
    wrong = 0
    for page in pages:
        with tempfile.TemporaryDirectory() as name:
            code = program(page).replace(PORT, free_port())
            done = subprocess.run([sys.executable, "-c", code], cwd=name, env=os.environ, check=False)
            if done.returncode:
                print(f"{page}: failed", file=sys.stderr)
                wrong += 1
                continue
            outputs = printed(Path(name))
        if check:
            found = differences(page, outputs)
            print("\n".join(found))
            wrong += len(found)
        else:
            page.write_text(with_outputs(page.read_text(encoding="utf-8"), outputs), encoding="utf-8")
            print(f"{page}: {sum(map(bool, outputs))} outputs")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
