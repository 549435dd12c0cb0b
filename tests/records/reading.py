"""Files, printed lines and JSON as nested dicts in which nothing stands that two equal runs would not share."""

import hashlib
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

VARIES = "(varies)"
# Keys whose values are times, places, machines or the bytes of a model.
VARYING = re.compile(
    r"(^|_)(seconds|per_second|sha256|date|machine|versions|memory|bytes|mib|check|fingerprint|computed|took"
    r"|size_on_disk|gib|ms|us|when|host|created|time|rss|cpu)(_|$)|_s$|^latency"
)
KEPT_KEYS = {
    "time_limit",
    "no_time",
    "checked",
    "memory_format",
}  # settings, though they sound like the above
LINES = [  # of what is printed or stands in a report
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+\d\d:\d\d| UTC|Z)?)?"), "DATE"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "HASH"),
    (
        re.compile(r"[\d,.]+( ?)(tokens|words|texts|sentences|pictures|images|questions|pairs|examples)/s"),
        r"RATE\1\2/s",
    ),
    (
        re.compile(
            r"(?<![\w.])(\d[\d,.]*|under a|less than a) ?(ms|s|seconds?|min|minutes?|h|hours?)\b(?! ?=)"
        ),
        "TIME",
    ),
    (re.compile(r"(?<![\w.])\d[\d,.]* ?(bytes|KB|MB|GB|KiB|MiB|GiB|kB|B)\b"), "SIZE"),
    (
        re.compile(
            r"\b(torch|python|glassformer|tokenizers|safetensors|scikit-learn|numpy|sacrebleu|onnx\w*) v?\d+\.\d[\w.+]*"
        ),
        r"\1 VERSION",
    ),
    (
        re.compile(r"[\d,.]+ (tokens|words|texts|sentences|pictures|images|questions|pairs) (a|per) second"),
        r"RATE \1 \2 second",
    ),
    (re.compile(r"TIME( TIME)+"), "TIME"),  # 1 min 3 s
    (re.compile(r"version:[\d.]+"), "version:VERSION"),
    (re.compile(r"(\(?Intel|AMD|ARM|Apple)\b.*?(Processor|CPU|Xeon|EPYC)[^,;│]*"), "CPU"),
]
# Lines of progress that come with time: a slower machine prints more of them. The first epoch's is always there.
PROGRESS = re.compile(r"step \d+/\d+ |best: epoch |epoch (?!1 )\d+ +train loss |(?!fold ).* left\)$")
RATES = re.compile(r"/s( │|$)|s/epoch|memory")  # heads of columns
MANY_NUMBERS, MANY_LINES = 40, 40
ONLY_KEYS = ("state.json", "manifest.json", "tokenizer.json")
FLOAT = re.compile(r"[-+−]?\d+\.\d+(?:e[-+]?\d+)?|[-+−]?\d+e[-+]?\d+|\bnan\b|\binf\b")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def numbers_in(value: Any) -> list[float] | None:
    """The numbers of a nested list of nothing else; None for anything else."""
    if isinstance(value, list):
        parts = [numbers_in(item) for item in value]
        return None if None in parts else [number for part in parts for number in part or []]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else None


def shape_of(value: Any) -> str:
    """``5x7`` of a list of five lists of seven each; ``5x?`` where these differ."""
    if not isinstance(value, list):
        return ""
    inner = {shape_of(item) for item in value}
    rest = inner.pop() if len(inner) == 1 else "?"
    return f"{len(value)}x{rest}".rstrip("x")


def without_rates(lines: list[str], mark: str) -> list[str]:
    """Lines with tables, in which the columns of speed and memory hold nothing."""
    found, varying = [], set()
    for n, line in enumerate(lines):
        cells = line.split(f" {mark} ")
        if n == 0 or not lines[n - 1].startswith(mark):
            varying = {i for i, cell in enumerate(cells) if RATES.search(cell)}
        elif line.startswith(f"{mark} ") and len(cells) > max(varying, default=0):
            cells = [VARIES if i in varying else cell for i, cell in enumerate(cells)]
        found.append(f" {mark} ".join(cells) if line.startswith(mark) else line)
    return found


class Reader:
    """What a case left behind, without what varies; ``exact`` keeps all digits and adds checksums."""

    def __init__(self, home: Path, exact: bool = False):
        self.home, self.exact = str(home), exact

    def line(self, text: str) -> str:
        text = text.replace(self.home + "/", "").replace(self.home, "HOME")
        for pattern, instead in LINES:
            text = pattern.sub(instead, text)
        return re.sub(r"[ \t]{2,}|[━─]{2,}", " ", text).rstrip()

    def lines(self, text: str) -> list[str]:
        """Lines of a screen: boxes without their frames, nothing twice that was drawn over itself."""
        found = [self.line(re.sub(r"[┃│┏┓┡┩┳╇┴└┘┬┼╭╮╰╯]", "│", line)) for line in text.splitlines()]
        found = [line for line in found if line.strip(" │") and not PROGRESS.match(line)]
        return without_rates(found, "│")

    def value(self, value: Any, key: str = "") -> Any:
        """JSON without what varies."""
        if VARYING.search(key) and key not in KEPT_KEYS and value is not None and not isinstance(value, bool):
            return VARIES
        if isinstance(value, dict):
            return {self.line(str(k)): self.value(v, str(k)) for k, v in value.items()}
        if isinstance(value, list):
            numbers = numbers_in(value)
            if numbers is not None and len(numbers) > MANY_NUMBERS:
                about = {"shape": shape_of(value), "mean": self.value(sum(numbers) / len(numbers))}
                return about | ({"sha256": digest(json.dumps(value).encode())} if self.exact else {})
            return [self.value(item, key) for item in value]
        if isinstance(value, float):
            return value if self.exact or not math.isfinite(value) or not value else float(f"{value:.4g}")
        return self.line(value) if isinstance(value, str) else value

    def printed(self, text: str) -> Any:
        """What a command printed: JSON as JSON, else lines."""
        if text.lstrip().startswith(("{", "[")):
            try:
                return self.value(json.loads(text))
            except json.JSONDecodeError:
                pass
        return self.lines(text)

    def file(self, path: Path) -> Any:
        """What is in a file that a command wrote."""
        content = path.read_bytes()
        read = getattr(self, path.suffix[1:], None) if path.suffix[1:] in READ else None
        found = read(path, content) if read else f"{path.suffix or 'a file'}"
        if self.exact and path.suffix[1:] in HASHED and VARIES not in str(found):
            return {"is": found, "sha256": digest(content)}
        return found

    # --- one method a suffix: see READ ------------------------------------------------------------

    def json(self, path: Path, content: bytes) -> Any:
        value = json.loads(content)
        if path.name in ONLY_KEYS and isinstance(value, dict):
            return " ".join(sorted(value))
        return self.value(value)

    def text(self, path: Path, content: bytes) -> list[str]:
        lines = [self.line(line) for line in content.decode("utf-8", "replace").splitlines()]
        if (
            path.name == "to_correct.csv" and not self.exact
        ):  # the order of labels that nobody doubts is chance
            return [*lines[:3], f"... {len(lines) - 3} more"]
        if len(lines) > MANY_LINES and path.name != "config.toml":
            return [*lines[:7], f"... {len(lines) - 10} more", *lines[-3:]]
        return lines

    txt = conll = toml = py = text

    def md(self, path: Path, content: bytes) -> list[str]:
        return without_rates(self.text(path, content), "|")

    def csv(self, path: Path, content: bytes) -> list[str]:
        rows = [line.split(",") for line in self.text(path, content)]
        varying = [i for i, name in enumerate(rows[0]) if VARYING.search(name)] if rows else []
        for row in rows[1:]:
            for i in varying:
                row[i : i + 1] = [VARIES]
        return [",".join(row) for row in rows]

    def jsonl(self, path: Path, content: bytes) -> list[str]:
        rows = [self.value(json.loads(line)) for line in content.decode("utf-8").splitlines()]
        if path.name == "history.jsonl" and not self.exact:
            kinds = {" ".join(sorted(row)): row for row in reversed(rows)}
            return [f"{len(rows)} records", *(json.dumps(row, sort_keys=True) for row in kinds.values())]
        return [json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows]

    def html(self, path: Path, content: bytes) -> list[str]:
        """The text of a page up to what it says of the machine, without the numbers on axes."""
        page = _Visible()
        page.feed(content.decode("utf-8"))
        lines = [line for part in page.parts if (line := self.line(" ".join(part.split())))]
        return [*lines[: lines.index("Machine")], "Machine", VARIES] if "Machine" in lines else lines

    def safetensors(self, path: Path, content: bytes) -> dict[str, str]:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        header.pop("__metadata__", None)
        about = {}
        for name, tensor in header.items():
            start, end = tensor["data_offsets"]
            about[name] = f"{tensor['dtype']} {tensor['shape']}"
            if self.exact and not VARYING.search(name.rpartition("/")[2]):
                about[name] += f" {digest(content[8 + size + start : 8 + size + end])}"
        return about

    def npy(self, path: Path, content: bytes) -> Any:
        import numpy as np

        array = np.load(path)
        return {
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "first": self.value(array.ravel()[:5].tolist()),
        }

    def png(self, path: Path, content: bytes) -> str:
        from PIL import Image

        with Image.open(path) as image:
            return f"{image.size[0]}x{image.size[1]} {image.mode}"


HASHED = {"csv", "jsonl", "conll", "npy", "txt", "bin"}  # of exact records, where no times stand in them
READ = {"json", "jsonl", "csv", "txt", "conll", "md", "toml", "py", "html", "safetensors", "npy", "png"}


class _Visible(HTMLParser):
    """The text of a page, each element's apart."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.inside = {"script": 0, "style": 0, "svg": 0}

        self.column, self.rates = 0, set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in self.inside:
            self.inside[tag] += 1
        self.column = 0 if tag == "tr" else self.column + (tag in ("th", "td"))
        if tag == "table":
            self.rates = set()

    def handle_endtag(self, tag: str) -> None:
        if tag in self.inside:
            self.inside[tag] -= 1

    def handle_data(self, data: str) -> None:
        hidden = self.inside["script"] or self.inside["style"]
        on_axis = self.inside["svg"] and re.fullmatch(r"[-−+\d.,e]+( ?%)?", data.strip())
        if not hidden and not on_axis and data.strip():
            if data.strip().endswith("/s"):
                self.rates.add(self.column)
            varies = self.column in self.rates and re.fullmatch(r"[\d.,]+", data.strip())
            self.parts.append(VARIES if varies else data)
