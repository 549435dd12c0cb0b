"""House words and patterns in pages, labs and messages: their counts may only fall.

After rewording, lower the ceilings: python tests/test_words.py
"""

import ast
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CEILINGS = Path(__file__).with_name(
    "words.json"
)  # part -> word -> how often it may occur; lower it, never raise it

# What to write instead stands behind each.
WORDS = {
    "picture": r"\bpictures?\b",  # image; plot, diagram
    "figures": r"\bfigures?\b",  # metric, number, score; plot
    "judge": r"\bjudg(?:e|es|ed|ing)\b",  # evaluate
    "beside": r"\bbeside\b",  # compared with, next to
    "less": r"\bless (?:the|that|those|its|ours|SetFit|TF-IDF|none|pooler)\b",  # minus
    "way out": r"\bthe way out\b|\bremed(?:y|ies)\b|\bmend(?:s|ed|ing)?\b",  # fix
    "from nothing": r"\bfrom nothing\b",  # from scratch
    "refused": r"\b(?:is|are|was|were|be) (?:refused|told|asked about|looked at|held to)\b",  # raises an error; who does it?
    "answers": r"\b(?:the model|classifier|it|models) answers?\b|\banswers of (?:the|a) model\b",  # predicts
    "chances": r"\bchances\b",  # probabilities
    "likeness": r"\blikeness(?:es)?\b",  # similarity
    "several labels": r"\bseveral labels\b",  # multi-label
    "surer": r"\bsure(?:r|st)\b|\bsureness\b",  # more confident, confidence
    "as given": r"\bas given\b|\bin form\b|\bdry run\b",  # explain once, or name it
    "rung": r"\brungs?\b|\barms?\b",  # step, variant
    "is no": r"(?<!\bthere )\b(?:is|are|was|were) (?!(?-i:None)\b)(?:no|none)\b(?! (?:longer|more|faster|slower|better|worse)\b)",  # is not a; Python's None may be written
    "distributive a": r"\b(?:picture|row|file|line|number|threshold|class|label|text|token|second|step|record) a "
    r"(?:picture|row|file|line|class|label|text|token|second|step|split|seed|task|level|sequence|word|patch)\b",  # per
    "stands": r"\bstands? (?:beside|behind|there|in|on|under|between|for itself)\b|\bwhat stands\b",  # is
    "goes on": r"\b(?:goes|go|going) on\b",  # continues, resumes
    "says so": r"\bsa(?:ys?|id) so\b",  # reports it, warns; name what
    "as ever": r"\bas (?:ever|it comes|they come)\b",  # unchanged, by default
    "wanted": r"\bwanted\b|\bwants\b",  # expected, needs
    "at hand": r"\bat hand\b",  # available
    "of its own": r"\bof (?:its|their|your|our|one's) own\b",  # separate, own
    "made up": r"\bmade[- ]up\b",  # generated
    "dearer": r"\bdear(?:er|est)?\b",  # more expensive
    "Of a": r"^(?-i:Of) (?:an?|the|tags?|texts?|images?|pairs)\b",  # for: "For regressors: ..."
    "what it": r"\bwhat (?:came out|comes out|becomes|grows|holds)\b",  # name the thing
    "opener": r"^You (?:get|see|learn|give|hand|train|turn)\b",  # begin with the topic
    "British": r"\b(?:colour\w*|grey\w*|centre\w*|neighbour\w*|(?:un)?labelled|licence"
    r"|(?:optim|normal|initial|token|regular|special)is(?:e|ed|es|er|ers|ing|ation))\b",
}
PATTERNS = {name: re.compile(text, re.IGNORECASE | re.MULTILINE) for name, text in WORDS.items()}

GENERATED = re.compile(
    r"<!-- (?:table|picture|answers)\b.*?<!-- end(?: of answers)? -->|^```.*?^```|<!--.*?-->|`[^`\n]*`|\]\([^)]*\)",
    re.DOTALL | re.MULTILINE,
)
WRITTEN_BY_COMMANDS = {"changes.md", "reliability.md", "results.md", "models.md"}


def prose(text: str) -> str:
    """A page without generated parts, code, links' targets."""
    return GENERATED.sub(" ", text)


def strings(path: Path) -> str:
    """Texts of a module that users can read: every string but f-string formats, names, docstrings included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip()
    ]
    return re.sub(r"`[^`\n]*`", " ", "\n".join(found))


def lab_text(path: Path) -> str:
    return "\n".join(re.findall(r"^# (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE))


def pages() -> list[Path]:
    """Hand-written pages, decisions aside."""
    docs = ROOT / "docs"
    found = [
        *docs.glob("*.md"),
        *docs.glob("guide/*.md"),
        *docs.glob("design/*.md"),
        *docs.glob("tutorial/*.md"),
    ]
    found += [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "benchmarks" / "README.md",
        ROOT / "labs" / "README.md",
    ]
    return sorted(path for path in found if path.name not in WRITTEN_BY_COMMANDS)


# The parts of the project that are counted.
PARTS: dict[str, Callable[[], Iterable[str]]] = {
    "pages": lambda: (prose(path.read_text(encoding="utf-8")) for path in pages()),
    "labs": lambda: map(lab_text, sorted((ROOT / "labs").glob("*.py"))),
    "src": lambda: map(strings, sorted((ROOT / "src").rglob("*.py"))),
}


def counts(part: str) -> dict[str, int]:
    text = "\n".join(PARTS[part]())
    return {name: len(pattern.findall(text)) for name, pattern in PATTERNS.items()}


def ceilings() -> dict[str, dict[str, int]]:
    return json.loads(CEILINGS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("part", PARTS)
def test_house_words_do_not_come_back(part: str):
    now, most = counts(part), ceilings()[part]
    assert now.keys() == most.keys()
    more = {name: f"{count} of at most {most[name]}" for name, count in now.items() if count > most[name]}
    assert not more, f"write the field's words instead; the comments in {Path(__file__).name} have them"


def test_what_is_counted():
    page = "The picture.\n<!-- table: a -->\npicture\n<!-- end -->\n`picture`\n```\npicture\n```\n[x](picture.md) a picture is no image"
    text = prose(page)
    assert len(PATTERNS["picture"].findall(text)) == 2
    assert len(PATTERNS["is no"].findall(text)) == 1


if __name__ == "__main__":
    found, old = {part: counts(part) for part in PARTS}, ceilings() if CEILINGS.is_file() else {}
    lowered = {
        part: {name: min(count, old.get(part, {}).get(name, count)) for name, count in words.items()}
        for part, words in found.items()
    }
    CEILINGS.write_text(json.dumps(lowered, indent=1) + "\n", encoding="utf-8")
