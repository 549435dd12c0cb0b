"""Token ids of SentencePiece models, compared with those of the ``sentencepiece`` package.

    apt-get download manpages-{de,fr,ja,ru,zh} libreoffice-l10n-{ar,he,hi,ko,th}  # in an empty folder
    .venv/bin/python -m benchmarks.reliability.sentence_pieces --packages FOLDER [--lines 10000] [--seed 0]

Texts in 12 languages: manual pages and LibreOffice's message catalogs from Debian packages, and reviews of IMDb and
NTC-SCV. The models are trained here, on lines that are not compared. Half of the compared lines are unchanged, the
others have one of ``CHANGES``. Lines that contain the text of a special piece (``<s>``) are left out: here such a text
is the special token, in the library it is not. Different ids of a Unigram model are ``rounding`` if the library's pieces
have no higher sum of scores than ours: it adds in 32 bits, so that among sums that are nearly equal another one wins.
"""

import gzip
import hashlib
import io
import math
import random
import re
import struct
import subprocess
import tarfile
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.command import command
from benchmarks.harness.options import count
from glassformer.data.sources import load_text_dataset
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import DataError

LANGUAGES = {  # the name of a data set, or the beginning of a package's file name
    "en": "imdb",
    "vi": "ntc-scv",
    **{language: f"manpages-{language}_" for language in ("de", "fr", "ja", "ru", "zh")},
    **{language: f"libreoffice-l10n-{language}_" for language in ("ar", "he", "hi", "ko", "th")},
}
MODELS: list[dict[str, Any]] = [
    {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
    {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc", "byte_fallback": True},
    {"model_type": "unigram", "normalization_rule_name": "nfkc"},
    {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc_cf"},
    {"model_type": "unigram", "normalization_rule_name": "identity", "byte_fallback": True},
    {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc"},
    {"model_type": "bpe", "normalization_rule_name": "nfkc_cf", "byte_fallback": True},
    {  # as in Llama 2
        "model_type": "bpe",
        "normalization_rule_name": "identity",
        "byte_fallback": True,
        "split_digits": True,
        "allow_whitespace_only_pieces": True,
        "remove_extra_whitespaces": False,
    },
]
TRAINED, VOCABULARY = 1500, 8000  # lines of each language, and pieces of each model
LONG = 20_000  # characters of a long line
SPECIAL = ("<unk>", "<s>", "</s>")
EMOJI = "🙂 😀😀 👍🏽 ❤️ 🇪🇺 👩‍🚀 👨‍👩‍👧‍👦 🏴‍☠️ 1️⃣ ™️ © 🫠 𝒜 🀄".split()
FORMATS = "\u00ad \u200b \u200c \u200d \u200e \u200f \u202e \u2060 \ufe0e \ufe0f \ufeff".split(" ")
CONTROLS = [chr(i) for i in (*range(32), *range(127, 160))]
COMPATIBLE = "ﬁ ① ½ … ㌔ ｶﾞ ﷺ Å ｱ ² Ⅳ 각 \u0344".split()
SPACES = [*" \t\u00a0\u1680\u2003\u2028\u3000\u2581", "  ", "     "]
# Rare letters, private use, unassigned, noncharacters.
RARE = [(0x250, 0x1FFF), (0x2C00, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x10FFFF)]


def _inserting(*marks: str) -> Callable[[str, random.Random], str]:
    def change(text: str, rng: random.Random) -> str:
        for _ in range(rng.randint(1, 4)):
            at = rng.randint(0, len(text))
            text = text[:at] + rng.choice(marks) + text[at:]
        return text

    return change


def _rare(text: str, rng: random.Random) -> str:
    return _inserting(*(chr(rng.randint(*rng.choice(RARE))) for _ in range(8)))(text, rng)


def _damaged(text: str, rng: random.Random) -> str:
    """Some bytes replaced; bytes that are not UTF-8 become U+FFFD, as both sides take a ``str``."""
    raw = bytearray(text.encode())
    for _ in range(rng.randint(1, 4)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return raw.decode("utf-8", "replace")


def _spaced(text: str, rng: random.Random) -> str:
    words = ["", *text.split(" "), ""]
    return "".join(word + rng.choice(SPACES) * rng.randint(0, 3) for word in words)


def _long(text: str, rng: random.Random) -> str:
    return rng.choice(["", " "]).join([text] * (LONG // len(text) + 1))


CHANGES: dict[str, Callable[[str, random.Random], str]] = {
    "emoji": _inserting(*EMOJI),
    "joiners and other format characters": _inserting(*FORMATS),
    "control characters": _inserting(*CONTROLS),
    "compatibility forms": _inserting(*COMPATIBLE),
    "rare and unassigned characters": _rare,
    "damaged bytes": _damaged,
    "runs of spaces": _spaced,
    "decomposed (NFD)": lambda text, rng: unicodedata.normalize("NFD", text),
    "upper case": lambda text, rng: text.upper(),
    f"{LONG:,} characters": _long,
}


def package_lines(package: Path) -> Iterator[str]:
    """The lines of the manual pages and message catalogs in a Debian package."""
    unpacked = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=io.BytesIO(unpacked.stdout)) as files:
        for member in sorted((m for m in files if m.isfile()), key=lambda m: m.name):
            kind = Path(member.name).suffix
            if kind not in (".gz", ".mo") or (kind == ".gz" and "/man/" not in member.name):
                continue
            raw = files.extractfile(member).read()  # type: ignore[union-attr]  # it is a file
            yield from catalog_lines(raw) if kind == ".mo" else manual_lines(gzip.decompress(raw))


def catalog_lines(raw: bytes) -> Iterator[str]:
    """The translations in a message catalog of gettext (.mo), without its header."""
    order = "<" if raw[:4] == b"\xde\x12\x04\x95" else ">"
    number, _, table = struct.unpack_from(f"{order}3I", raw, 8)
    for size, at in list(struct.iter_unpack(f"{order}2I", raw[table : table + 8 * number]))[1:]:
        yield from re.split("[\0\n]", raw[at : at + size].decode())


def manual_lines(raw: bytes) -> Iterator[str]:
    """The lines of text in a manual page, without roff's requests and escapes."""
    for line in raw.decode("utf-8", "replace").splitlines():
        if not line.startswith((".", "'")):
            yield re.sub(r"\\(f\(..|f\[[^]]*\]|f.|\*?\(..|[&|^/,:%])", "", line).replace(r"\-", "-")


def corpus(language: str, packages: Path) -> tuple[dict[str, str], list[str]]:
    """Where the texts of a language come from, and its lines."""
    source = LANGUAGES[language]
    if not source.endswith("_"):
        texts = load_text_dataset(source, splits=["test"]).splits["test"].texts
        return {"source": source}, [line for text in texts for line in text.split("<br />")]
    found = sorted(packages.glob(f"{source}*.deb"))
    if len(found) != 1:
        what = f"{len(found)} packages {source}*.deb, expected one"
        raise DataError(what, where=str(packages), fix=f"apt-get download {source[:-1]}")
    asked = ["dpkg-deb", "--showformat=${Package} ${Version}", "--show", found[0]]
    name = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    return {"source": name, "sha256": sha256(found[0].read_bytes())}, list(package_lines(found[0]))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def draw(lines: Sequence[str], size: int, rng: random.Random) -> list[str]:
    """Different lines with at least three letters and no special piece, in random order."""
    usable = dict.fromkeys(line.strip() for line in lines)
    kept = [t for t in usable if sum(map(str.isalpha, t)) > 2 and not any(s in t for s in SPECIAL)]
    return rng.sample(kept, size)


def train(lines: Sequence[str], options: dict[str, Any], pieces: int = VOCABULARY) -> bytes:
    """A SentencePiece model, trained by its own library in one thread."""
    import sentencepiece

    out = io.BytesIO()
    about = {"minloglevel": 2, "num_threads": 1, "hard_vocab_limit": False, "vocab_size": pieces, **options}
    train = sentencepiece.SentencePieceTrainer.train
    train(sentence_iterator=iter(lines), model_writer=out, **about)
    return out.getvalue()


def compare(model: bytes, texts: Sequence[tuple[str, str]], unigram: bool) -> dict[str, Any]:
    """Texts (kind and text) whose ids differ from the library's: how many of each kind, and examples."""
    import sentencepiece

    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.model"
        file.write_bytes(model)
        ours = load_tokenizer(file)
    tokens, rounding, different, examples = 0, 0, Counter[str](), []
    for kind, text in texts:
        found, wanted = ours.encode(text, add_special_tokens=False).ids, theirs.encode(text)
        tokens += len(wanted)
        if found == wanted:
            continue
        different[kind] += 1
        own, best = (math.fsum(map(theirs.get_score, ids)) for ids in (found, wanted))
        rounded = unigram and own >= best - 1e-9 * abs(best)
        rounding += rounded
        at = next(i for i, pair in enumerate(zip([*found, None], [*wanted, None])) if pair[0] != pair[1])
        pieces = {"ours": found[at:][:5], "theirs": wanted[at:][:5]}
        named = {side: [theirs.id_to_piece(i) for i in ids] for side, ids in pieces.items()}
        about = {"kind": kind, "text": text[:200], "first_different_token": at, "rounding": rounded}
        examples.append(about | named)
    total = {"lines": len(texts), "tokens": tokens, "different": different.total(), "rounding": rounding}
    return {**total, "different_by_kind": dict(different), "examples": examples[:10]}


@command(
    "token ids of SentencePiece models compared with the library's",
    out="sentence-pieces",
    packages=("sentencepiece",),
    packages_folder=dict(flag="--packages", type=Path, required=True, help="folder of the .deb files"),
    lines=dict(type=count, default=10_000, help="lines compared for each model"),
    seed=0,
)
def main(options: Any) -> dict[str, Any]:
    rng = random.Random(options.seed)
    each = -(-options.lines // len(LANGUAGES))
    sources: dict[str, dict[str, Any]] = {}
    trained: list[str] = []
    texts: list[tuple[str, str]] = []
    kinds = list(CHANGES)
    for language in LANGUAGES:
        facts, lines = corpus(language, options.packages_folder)
        drawn = draw(lines, TRAINED + each, rng)
        facts["sha256_of_lines"] = sha256("\n".join(drawn).encode())
        sources[language] = facts
        trained += drawn[:TRAINED]
        for i, text in enumerate(drawn[TRAINED:]):
            kind = kinds[i // 2 % len(kinds)] if i % 2 else "unchanged"
            texts.append((kind, CHANGES[kind](text, rng) if i % 2 else text))
    result: dict[str, Any] = {"seed": options.seed, "trained_lines": len(trained), "corpora": sources}
    result |= {"lines_by_kind": dict(Counter(kind for kind, _ in texts)), "models": []}
    for settings in MODELS:
        model = train(trained, settings)
        compared = compare(model, texts, settings["model_type"] == "unigram")
        result["models"].append({"options": settings, "model_sha256": sha256(model), **compared})
        counts = f"{compared['different']} of {len(texts):,} lines differ, {compared['rounding']} by rounding"
        print(settings, counts, flush=True)
        options.write(result)
    return result
