"""Commands that cannot be done: exit code 2, one line with its code and a fix, and every file as it was."""

import json
import os
import re
import shlex
import shutil
from itertools import product
from pathlib import Path
from stat import S_ISDIR

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from glassformer.data.text import word_tokenizer
from glassformer.families.bert import bert
from glassformer.families.pretrained import save_pretrained
from glassformer.models.text import TextEncoder
from glassformer.tasks.build import save_tokenizer

from .every import ok
from .tiny import TINY, sentences, sets, settings, write_csv

GOOD = sentences(20)
TEXTS = [text for text, _ in GOOD]
HATS = [(i, ("blue", "red")[i % 2]) for i in range(20)]


def with_line(number: int, line: bytes) -> bytes:
    """A good table with one line, counted from 1, replaced."""
    lines = [b"text,label", *(",".join(row).encode() for row in GOOD)]
    lines[number - 1] = line
    return b"\n".join(lines) + b"\n"


def table(header: str, rows) -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def recipe(old: str, new: str) -> str:
    """A good recipe with something replaced."""
    text = 'name = "x"\n[data]\nsource = "reviews.csv"\n[model]\nmodel = "tfidf"\n'
    return text.replace(old, new)


FILES: dict[str, str | bytes] = {
    "reviews.csv": table("text,label", sentences(60)),
    "no-text.csv": with_line(7, b",pos"),
    "nan.csv": with_line(9, b"a film,NaN"),
    "no-label.csv": with_line(9, b"a film,"),
    "ragged.csv": with_line(5, b"one, two, three,pos"),
    "latin.csv": with_line(4, b"caf\xe9,pos"),
    "utf16.csv": table("text,label", GOOD).encode("utf-16"),
    "nul.csv": with_line(3, b"a\x00b,pos"),
    "quote.csv": with_line(3, b'"a film,pos'),
    "rows.csv": "text,label\n",
    "nothing.csv": b"",
    "lone.csv": table("text,label", [*((f"film {i}", "neg") for i in range(9)), ("a film", "pos")]),
    "decimal.csv": table("text,label", [(f"film {i}", f"0.{i}") for i in range(10, 40)]),
    "one-class.csv": table("text,label", [("a film", "pos"), ("another film", "pos")] * 9),
    "distinct.csv": table("text,labl", [(f"film {i}", f"mood {i}") for i in range(18)]),
    "short.csv": table("text,label", [("", "x")]),
    "two-lone.csv": table("text,label", ["ax", "by"]),
    "gaps.csv": table("text,label", [*GOOD, ("", "pos"), *sentences(3), ("", "neg")]),
    "no-texts.csv": table("text,label,note", [("", "ab"[i % 2], text) for i, text in enumerate(TEXTS)]),
    "no-labels.csv": table("text,label", [(text, "") for text in TEXTS]),
    "no-scores.csv": table("text,score", [(text, "") for text in TEXTS]),
    "shops.csv": table("text,shop", [(text, f"shop {i}") for i, text in enumerate(TEXTS)]),
    "texts.csv": table("text", [(text,) for text in TEXTS]),
    "texts.txt": "\n".join(TEXTS),
    "two.csv": table("mine,yours", [(f"this number {i} of many", f"that number {i}") for i in range(30)]),
    "numbered.csv": table("text,label,number", [(*row, i) for i, row in enumerate(sentences(80))]),
    "wider.csv": table("comment,stars,emotion,mood", [(t, 7, label, label) for t, label in GOOD]),
    "ids.csv": "id,comment\n1,a splendid film\n2,\n3,so,what\n4,a dreadful one\n",
    "first.csv": table("text,label", [("", "x"), ("a film", "y")]),
    "slips.csv": "comment,about\nno,such,table\n",
    "slips-16.csv": "comment,about\na,b\n".encode("utf-16"),
    "image.csv": "image,label\nno,such,table\n",
    "prices.csv": table("advert,price", [(f"a lamp in town {i}", f"{40 + i}.5") for i in range(30)]),
    "wide.csv": table(",".join(f"c{i}" for i in range(201)), ["x" * 201]),
    "bad\x1b[31m.csv": "text,label\na,b\n,b\n",
    "binary.csv": bytes(range(1, 256)) * 8,
    "binary-0.csv": bytes(range(256)) * 8,
    "text.parquet": "text,label\na,b\n",
    "broken.jsonl": '{"text": "a", "label": 1}\n{"text": "b" "label": 2}\n',
    "cut.jsonl": '{"text": "a", "label": 1}\n{"text": "b",\n',
    "copies.conll": "Ada B-PER\nis O\n\n" * 12,
    "labeled.csv": table("premise,hypothesis,label", [(f"hat {i} is red", f"a {c} hat", c) for i, c in HATS]),
    "told.csv": table("premise,hypothesis,label", [(f"hat {i} is red", c, c) for i, c in HATS]),
    "a.xlsx": b"PK",
    "pic.png": b"\x89PNG",
    "c.pdf": "x",
    "blank.txt": "\n \n",
    "great": "x",
    "so so": "x",
    "done.csv": "text,label,predicted\n",
    "mine.toml": '[data]\nsource = "europe"\n[train]\nepoch = 1\n',
    "broken.toml": "[train]\nepochs = = 1\n",
    "theirs.toml": '[data]\nsource = "europe"\n[train]\nlearning_rate = 1e-3\n',
    "grid.toml": 'recipe = "europe"\n[grid]\nepoch = [1, 2]\n',
    "unquoted.toml": recipe('"reviews.csv"', "reviews.csv"),
    "missing.toml": recipe("reviews.csv", "review.csv"),
    "share.toml": recipe("[model]", 'validation_size = "a"\n[model]'),
    "section.toml": recipe("[model]", '[train]\nhead = "mlp"\n[model]'),
    "task.toml": recipe("[data]", 'task = "sorting"\n[data]'),
    "own/thesis.txt": "dear",
    "exported/onnx.json": "{}",
    "exported/run.py": "",
    "exported/model.onnx": "",
    "mine/feedback.csv": table("text,label", GOOD),
    "mine/new.csv": table("text,label", GOOD),
    "mine/runs/feedback/model/about": "",
    "classes/runs/about": "",
    "tables/a.csv": "text\na b\n",
}


def make_weights(folder: Path) -> Path:
    """A tiny BERT in the Hub's layout, with its tokenizer."""
    tokenizer = word_tokenizer(TEXTS, min_count=1, vocab_size=100)
    folder.mkdir()
    save_pretrained(TextEncoder(bert(tokenizer.get_vocab_size(), 16, 1, 2, 32)), folder)
    save_tokenizer(tokenizer, folder, 32)
    return folder


@pytest.fixture(scope="session")
def world(trained, tmp_path_factory) -> Path:
    """A folder with tables, recipes, runs and checkpoints of every bad kind."""
    home = tmp_path_factory.mktemp("world")
    for name, content in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content.encode() if isinstance(content, str) else content)
    for folder in ("pics", "colors/red", "colors/blue", "empty"):
        (home / folder).mkdir(parents=True)
        for i in range(0 if folder == "empty" else 3):
            Image.fromarray(np.full((8, 8, 3), 40 * i, np.uint8)).save(home / folder / f"{i}.png")
    os.mkfifo(home / "pipe")
    pq.write_table(pa.table({"text": ["good film", "bad film"]}), home / "a.parquet")
    for name in ("run", "runs/slips", "damaged", "no-model", "skipped", "orphan", "above/mine", "unfinished"):
        shutil.copytree(trained, home / name)
    weights = home / "damaged" / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    shutil.rmtree(home / "no-model" / "model")
    for name, old, new in (
        ("skipped", 'on_bad_row = "refuse"', 'on_bad_row = "skip"'),
        ("orphan", r'source = ".*"', 'source = "gone.csv"'),
    ):
        config = home / name / "config.toml"
        config.write_text(re.sub(old, new, config.read_text()))
    (home / "orphan" / "metrics.json").unlink()
    for path in (home / "unfinished").iterdir():  # as a stop leaves it
        if path.name not in ("config.toml", "checkpoints", "history.jsonl"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    quick = ["--model", "tfidf", *sets("baselines=false", "bootstrap=7")]
    numbers = write_csv(
        home / "scores.csv", [(t, str(i / 7)) for i, (t, _) in enumerate(sentences(60))], "text,score"
    )
    pairs = [(text, f"it is so {i % 7}", label) for i, (text, label) in enumerate(sentences(60))]
    ok("train", "--text", home / "reviews.csv", *quick, "--out", home / "linear")
    ok("train", "--text", numbers, "--set", "target=number", *quick, "--out", home / "numbers")
    both = write_csv(home / "pairs.csv", pairs, "premise,hypothesis,label")
    ok("train", "--text", both, "--set", "pair_column=hypothesis", *quick, "--out", home / "pairs")
    odd = make_weights(home / "odd-weights") / "model.safetensors"
    save_file(load_file(odd) | {"surprise.weight": torch.zeros(3)}, odd)
    (make_weights(home / "pickled") / "model.safetensors").rename(home / "pickled" / "pytorch_model.bin")
    return home


# A command | the code of its error | what its line says, or with NOT what it does not say ...
TABLES = """
train --text no-text.csv | missing-value | no-text.csv, row 7: the text is empty | Fill it in
train --text nan.csv | missing-value | nan.csv, row 9 | label is missing
train --text no-label.csv | missing-value | row 9 | label is missing
train --text ragged.csv | malformed-file | row 5 | 4 fields where the header has 2 | quotes
train --text latin.csv | not-utf8 | line 4 | not UTF-8 | 0xe9 | --encoding cp1252
train --text utf16.csv | not-utf8 | UTF-16 | --encoding utf-16
train --text nul.csv | malformed-file | line 3 | NUL
train --text quote.csv | malformed-file | never closed
train --text rows.csv | missing-value | no rows
train --text nothing.csv | missing-value | nothing.csv: the file has no rows
train --text lone.csv | too-few-examples | column 'label': class 'pos' has only one | test each need one
train --text two-lone.csv | too-few-examples | 2 of 2 classes have only one example | Add examples (3 in all)
train --text decimal.csv | unclear-column | decimal.csv, column 'label': the labels look like numbers
train --text one-class.csv | one-class | one-class.csv, column 'label': one class only ('pos')
train --text distinct.csv | unclear-column | no column 'label' | 'labl' has 18 different | --label-column
train --text short.csv | missing-value | short.csv, row 2: the text is empty
train --text "bad\x1b[31m.csv" | missing-value | row 3
train --text binary.csv | not-utf8 | binary.csv: not a text file (not UTF-8: byte 0x
train --text binary-0.csv | malformed-file | or a damaged one. If it is a file of another program
train --text text.parquet | malformed-file | it looks like text. If it is CSV, rename it to .csv
train --text broken.jsonl | malformed-file | row 2: not JSON (expecting ',' del
train --text cut.jsonl | malformed-file | row 2: not JSON (it ends too early,
train --text two.csv | setting | train multi30k-transformer --data two.csv | train stsb-minilm --data two.csv
train --text texts.txt | unclear-column | the file has texts without labels | a tab and its label
train --text labeled.csv --model tfidf | unclear-column | has one value for each label | --text-column premise
cross-validate --text labeled.csv --model tfidf | unclear-column | column 'hypothesis', read as the second
train --text told.csv --model tfidf | unclear-column | contains the labels | Read only 'premise': --text-column
cross-validate --text told.csv --model tfidf | unclear-column | contains the labels | Read only 'premise'
train --text reviews.csv --text-column text --label-column text | unclear-column | another column with
train --text no-texts.csv | missing-value | column 'text': empty in all 20 rows | with --text-column: note
data doctor no-texts.csv | missing-value | no-texts.csv, column 'text': empty in all 20 rows. Fill it in, or
review-labels --text no-texts.csv | missing-value | column 'text': empty in all 20 rows
predict linear no-texts.csv | missing-value | column 'text': empty in all 20 rows
explain linear no-texts.csv | missing-value | column 'text': empty in all 20 rows
train --text no-labels.csv | missing-value | column 'label': empty in all 20 rows. Fill it in, or give another
data doctor no-labels.csv | missing-value | column 'label': empty in all 20 rows
review-labels --text no-labels.csv | missing-value | column 'label': empty in all 20 rows
evaluate numbers no-scores.csv | missing-value | column 'score': empty in all 20 rows
evaluate linear --data shops.csv | unclear-column | no other column has classes: | predict linear shops.csv
audit linear --data shops.csv | unclear-column | no other column has classes: | predict linear shops.csv
calibrate linear --data shops.csv | unclear-column | no other column has classes: | predict linear shops.csv
evaluate linear --data texts.csv | no-such-column | no column 'label' (columns: text). Add a column with the
evaluate numbers --data texts.csv | unclear-column | no column contains numbers (columns: | NOT target=number
evaluate run --data wider.csv | unclear-column | column | -column | NOT label_column
evaluate run numbered.csv --by numbers | setting | Did you mean 'number'
evaluate run numbered.csv --by number | setting | 80 values in 80 rows
similar texts.csv | unclear-column | only 'text' has texts. Add a column | in one column: --doubles
similar texts.csv --first text --second text | unclear-column | column 'text' is used both as the first
train wnut17-minilm --data copies.conll --set test_size=0.1 | too-few-examples | test_size: all 12 examples
train --images reviews.csv | no-such-column | no column of images (columns: text, label). For texts use a text
train --images colors/red | wrong-input | 3 images, but no folders of classes. Move them into
evaluate linear --data colors | wrong-input | colors: contains images, not texts
cross-validate --text reviews.csv --images colors | conflict | both --text and --images are given
train --text a.xlsx | file-type | Save the sheet as CSV
data doctor a.xlsx | file-type | Save the sheet as CSV
data show a.xlsx | file-type | Save the sheet as CSV
"""
# ... of names and options that are typed wrongly, or belong to another tool ...
TYPED = """
nope | usage | nope
train | nothing-given | europe
evaluate | usage | RUN
evaluate run --jason | usage | --jason
train eurpe | no-such-recipe | Did you mean 'europe'?
train europe --set epochs | setting | no '='
train europe --set lrr=1 | unknown-key | Did you mean 'lr'?
train europe --set lr=fast | bad-value | [train] lr | a number
train europe --text reviews.csv | conflict | both
train --text reviews.csv --data imdb | conflict | both
train --text reviews.csv on_bad_row=skip | conflict | both a recipe (on_bad_row=skip) | --set on_bad_row=skip
train --text revews.csv TINY | no-such-file | no such file | Did you mean 'reviews.csv'?
train --text reviews.tsv | no-such-file | Did you mean 'reviews.csv'?
train --text zzzzzz.csv | no-such-file | Check the path: 'zzzzzz.csv' is relative to HERE
train --text reviews.csv --set text_column=txt | no-such-column | no column 'txt' | Did you mean 'text'?
train --text reviews.csv --set epoch=3 | unknown-key | Did you mean 'epochs'?
train --text reviews.csv --model all-minilm | no-such-model | 'all-minilm' | all-minilm-l6-v2
train --text reviews.csv --model tfid | no-such-model | Did you mean 'tfidf'?
train --text reviews.csv --model all-minilm-l6-v2 --set d_model=8 | not-for-this-model | Leave d_model out
train --text a.csv --epochs x | usage | error: --epochs takes a whole number, got 'x'. See 'glassformer train --help'
train --text a.csv --lr x | usage | error: --lr takes a number, got 'x'. See 'glassformer train --help'
train --text nowhere.csv --set d_model=64 --set num_heads=3 | setting | not a multiple of num_heads 3. Use 1,
train --csv a.csv | usage | No such option: --csv. For a table of texts write --text a.csv
train --img a | usage | (Possible options: --image
train --images image.csv --label-column lable | no-such-column | no column 'lable'
train --images image.csv --model vit-bse | no-such-model | no model 'vit-bse'. Did you mean
train --text slips-16.csv --label-column about | not-utf8 | --encoding utf-16
train --text slips.csv --label-column abuot | no-such-column | no column 'abuot'. Did you mean 'about'?
train --text slips.csv --text-column coment | no-such-column | no column 'coment'. Did you mean 'comment'?
train --text slips.csv --set class_wieght=balanced | unknown-key | unknown key 'class_wieght'
train --text slips.csv --set class_weight=balancd | bad-value | 'balancd' is not valid. Did you mean
train --text slips.csv --set merge_labels=speling | bad-value | 'speling' is not a way to merge labels
train --text slips.csv --set epochs=many | bad-value | got 'many'
train --text slips.csv --model minlm | no-such-model | no model 'minlm'. Did you mean 'minilm'?
train --text slips.csv --model bert-base | no-such-model | no model 'bert-base'. Did you mean
train --text slips.csv --model all-minilm-l6 --out new | no-such-model | Did you mean 'all-minilm-l6-v2'?
train imdb-textcnn --out new --set class_weight=balancd | bad-value | Did you mean 'balanced'?
train imdb-textcnn --out new --model minlm | no-such-model | no model 'minlm'. Did you mean 'minilm'?
review-labels --text slips.csv --label-column abuot | no-such-column | no column 'abuot'. Did you mean
review-labels --text slips.csv --set merge_labels=speling | bad-value | 'speling' is not a way to merge labels
train europe --learning-rate 1e-3 | usage | No such option: --learning-rate. Write --lr 1e-3
train europe --num_train_epochs=2 | usage | No such option: --num_train_epochs. Write --epochs 2
train europe --per-device-train-batch-size 8 | usage | Write --batch-size 8
train europe --weight-decay 0.1 | usage | Write --set weight_decay=0.1
train europe --hidden_size --lr | usage | Write --set d_model=VALUE
cross-validate europe --lr 1e-3 | usage | No such option: --lr. Write --set lr=1e-3
compare europe-pooling --epochs 2 | usage | Write --set epochs=2
evaluate run --text_field a | usage | Write --text-column a
train europe --frobnicate | usage | See 'glassformer train --help'
predict run --lr 1 | usage | NOT Write
train europe --set learning_rate=1e-3 | unknown-key | --set: unknown key 'learning_rate'. Here it is called
train europe --set train.num_train_epochs=3 | unknown-key | called 'epochs'
train europe --set output_dir=here | unknown-key | the option --out
train europe --set xyzzy=1 | unknown-key | See all keys: 'glassformer train --help-keys'
train theirs.toml | unknown-key | unknown key 'learning_rate'. Here it is called 'lr'
train mine.toml | unknown-key | mine.toml | 'epoch' | Did you mean 'epochs'?
train broken.toml | setting | line 2
train unquoted.toml | setting | Put text into quotes
train missing.toml | no-such-file | missing.toml, [data] source: 'review.csv' | Did you mean 'reviews.csv'?
train share.toml | bad-value | share.toml, [data] validation_size: expected a number
train section.toml | unknown-key | section.toml, [train]: unknown key 'head'. It belongs under [model]
train task.toml | bad-value | task.toml, task: no task 'sorting'
train nothing.toml | no-such-recipe | 'glassformer new' writes a recipe
recipes xyzzy | no-such-recipe | no recipe has 'xyzzy'
new a.toml --task x | bad-value | no task 'x'
new a.toml europe --task word2vec | conflict | --task and RECIPE
new a.txt | bad-value | is written as a .toml file
new mine.toml | exists | mine.toml
data doctor europe --max-length x | usage | --max-length
data doctor reviews.csv --header maybe | bad-value | --header: 'maybe' is not a choice
data doctor reviews.csv --quoting some | bad-value | --quoting: 'some' is not a choice
train --text latin.csv --set encoding=cp1253x | bad-value | no encoding 'cp1253x'
data doctor prices.csv --set target=number --set max_lenght=5 | unknown-key | max_length
data doctor facts --set limit=3 | not-for-this-model | --set: is for texts, images and tagged words, but these
compare nothing | no-such-recipe | no study 'nothing'
compare grid.toml | unknown-key | Did you mean 'epochs'
compare europe-pooling --set epochs | setting | has no '='
compare europe-pooling --workers -1 | bad-value | -1 processes
compare | nothing-given | nothing to compare
compare reviews.csv | wrong-argument | --text reviews.csv --model NAME NAME
compare --text reviews.csv --model lstm | nothing-given | only one model is named
compare --text reviews.csv --model lstm lstm | nothing-given | 'lstm' is named twice
compare --text reviews.csv --model lstm textcnn --seeds 0 | bad-value | 0 seeds
cross-validate --text reviews.csv --folds 1 TINY | bad-value | 1 folds
reproduce 99 | no-such-recipe | no system '99'. Give a number from 1 to
reproduce 12 --table | conflict | runs nothing
reproduce --table --check | conflict | --table runs nothing
reproduce --table --out nowhere/results.md | bad-value | written as Markdown
doctor nothing-here | no-such-model | neither a known checkpoint
doctor --revision main | usage | --revision needs a MODEL
doctor reviews.csv | wrong-argument | looks like data for --text and is not a model. To check data:
export x --to foo | usage | '--to': 'foo' is not one of
train --text reviews.csv TINY --set split=tset | bad-value | no split 'tset'. Did you mean 'test'?
train --text reviews.csv TINY --set bootstrap=-1 | bad-value | bootstrap: -1 is out of range
train --text reviews.csv TINY --set maps=-1 | bad-value | maps: -1 is out of range
train --text reviews.csv TINY --set seed=4294967296 | bad-value | Use a value from 0 to 4294967295
train --text reviews.csv TINY --set split_seed=-1 | bad-value | split_seed: -1 is out of range
train --text reviews.csv TINY --set validation_size=nan | bad-value | nan is out of range. Use a value of at
train --text reviews.csv TINY --set lr=inf | bad-value | lr: inf is out of range
train --text reviews.csv TINY --set 'sentences=["a", ""]' | missing-value | evaluate.sentences[1]: the text is
train --text reviews.csv TINY --set d_model=15 | setting | 15
train --text reviews.csv TINY --set name=../elsewhere | setting | cannot be a folder's name. Use letters, or
"""
# ... of models, and of what they read ...
MODELS = """
evaluate nowhere | not-a-run | no such run folder
predict nowhere "a film" | not-a-run | no such run folder
calibrate nowhere | not-a-run | no such run folder
serve nowhere | not-a-run | no such run folder
export nowhere --to hf | not-a-run | no such run folder
explain nowhere "a film" | not-a-run | no such run folder
train --resume --out nowhere | not-a-run | no such run folder
report nowhere | not-a-run | no such folder
report empty | not-a-run | nothing to report
embed nowhere "a film" --out x.npy | no-such-model | neither a known checkpoint
predict rnu "a film" | not-a-run | rnu: no such run folder. Did you mean 'run'?
train --resume --out rnu | not-a-run | rnu: no such run folder. Did you mean 'run'?
predict pics "a film" | no-such-model | not a saved model or run
predict all-minilm-l6-v2 a | not-a-run | glassformer train --text FILE --model all-minilm-l6-v2
evaluate damaged | incomplete | model.safetensors | damaged
predict damaged "a film" | incomplete | model.safetensors | damaged
predict no-model "a film" | incomplete | the run is finished, but its folder model/ is missing. Copy it back,
predict exported "a film" | not-a-run | is an ONNX export | python exported/run.py
evaluate exported | not-a-run | is an ONNX export | python exported/run.py
explain exported "a film" | not-a-run | is an ONNX export | python exported/run.py
train --text reviews.csv --model odd-weights BERT | checkpoint | odd-weights | surprise
train --text reviews.csv --model pickled BERT | pickle | pytorch_model.bin | save_pretrained
train --text reviews.csv --model linear/model | not-for-this-model | model=tfidf
train --text reviews.csv --model tfidf --set lora_rank=4 | not-for-this-model | Leave it out
train --text reviews.csv --model tfidf --set pooling=mean | not-for-this-model | Leave it out
train --text reviews.csv --model tfidf --set precision=int8 | not-for-this-model | Leave it out
train --text reviews.csv --model tfidf --set long_texts=mean | not-for-this-model | Leave it out
train --resume | nothing-given | no run is named
train unfinished --resume --out other | conflict | two different runs are named
train run | wrong-argument | is a run folder, not a recipe | glassformer train --resume --out run
train --text reviews.csv --out run TINY | exists | run | exists | --resume
train --text slips.csv | exists | runs/slips: the output folder contains a finished run. Choose another: --out
train --text reviews.csv --out own TINY | exists | own: the output folder exists and is not a run folder: it
train --text reviews.csv --out own TINY --resume | not-a-run | own
train --text reviews.csv --out reviews.csv TINY | output-path | is a file
train --text reviews.csv --out reviews.csv TINY --resume | output-path | is a file
train --text reviews.csv --out reviews.csv/it TINY | output-path | reviews.csv/it: the folder cannot | --out
train --resume --out run --set epochs=7 | other-run | contains a run of another recipe (train.epochs is 1 there
train --resume --out orphan | no-such-file | orphan/config.toml, [data] source: 'gone.csv' does not exist. Put
data doctor run | wrong-input | is the folder of a run, not of data. To inspect the model: glassformer doctor
data show run | wrong-input | for its training data: glassformer data doctor
train --text run | wrong-input | is the folder of a run, not of data
train --images run | wrong-input | is the folder of a run, not of data
data doctor run/model | wrong-input | is a saved model, not data. To inspect the model: glassformer doctor
train --images run/model | wrong-input | is a saved model, not data
train --text mine | wrong-input | a folder of tables | mine/feedback.csv | mine/new.csv | NOT emove
data doctor mine | wrong-input | a folder of tables | mine/feedback.csv | mine/new.csv | NOT emove
data show mine | wrong-input | a folder of tables | mine/feedback.csv | mine/new.csv | NOT emove
train --images mine | wrong-input | feedback.csv | NOT emove
train stsb-minilm --data mine | wrong-input | feedback.csv | NOT emove
train wnut17-minilm --data mine | wrong-input | feedback.csv | NOT emove
train facts-minilm --data mine | wrong-input | feedback.csv | NOT emove
train multi30k-rnn --data mine | wrong-input | feedback.csv | NOT emove
train imdb-textcnn --data mine | wrong-input | feedback.csv | NOT emove
train --text classes | missing-value | class 'runs' has no .txt files | NOT emove
search x empty a | setting | empty: is a folder without an index or a table
search x tables a | setting | tables: is a folder, but not an index. Name tables/a.csv
search x emtpy a | setting | Did you mean 'empty'?
calibrate run --threshold macrof1 | bad-value | Did you mean 'macro_f1'
calibrate run --label-column emotion | conflict | has an effect only with --data
calibrate linear --abstain-below 90 | bad-value | error: --abstain-below: 90.0 is not a probability
calibrate numbers | not-for-this-model | numbers: a regressor has no | predict numbers FILE --coverage 0.9
diff linear numbers --data reviews.csv | wrong-input | linear predicts one label per example and numbers
compare run | nothing-given | only one run is named
evaluate run --text-column a | conflict | has an effect only with --data
evaluate run --data reviews.csv --source-column a | unknown-key | has no --source-column
evaluate run reviews.csv --data reviews.csv | conflict | at once
evaluate run --by x --every-epoch | not-for-this-model | Leave --by or --every-epoch out
export run --to hf --check 3 | not-for-this-model | Use --to onnx
export linear --to hf | not-for-this-model | transformers has no class for a linear model of n-grams
export run --to hf --int8 | not-for-this-model | int8 weights are for ONNX
export run --to onnx --int8-tolerance -1 | bad-value | --int8-tolerance: -1 points
export run --to onnx --check 0 | bad-value | check nothing
serve linear linear | setting | the model is named twice. Name it once
serve run --inputs 0 | bad-value | --inputs: 0 is not above 0
serve run --precision fp64 | bad-value | precision: 'fp64' is not a precision
serve run --seconds nan | bad-value | --seconds: nan is not a finite number
vectors linear king | checkpoint | Name a run or saved model of Word2Vec
embed linear "a film" --out e.npy | not-for-this-model | such as all-minilm-l6-v2
embed run " " --out x.npy | missing-value | the text is empty
embed run reviews.csv --out v.csv | bad-value | written as a NumPy array
embed run reviews.csv --out done.csv | exists | done.csv
embed run film --out x.npy --prompt-name ask | setting | prompts belong to models
"""
# ... and of inputs of predict and explain, which are looked at before the model is.
INPUTS = """
predict damaged nwe.csv | no-such-file | no such file
predict damaged pic.png | wrong-input | an image, and this model reads texts
predict damaged a.xlsx | file-type | Save the sheet as CSV
predict damaged gaps.csv | missing-value | row 22: the text is empty | (1 more row cannot be used)
predict damaged "" | missing-value | the text is empty
explain damaged nwe.csv | no-such-file | no such file
explain damaged pic.png | wrong-input | an image, and this model reads texts
explain damaged "" | missing-value | the text is empty
predict no-model latin.csv | not-utf8 | --encoding cp1252
predict run answers.xlsx | file-type | error: answers.xlsx:
predict run base.csv.gz | file-type | error: base.csv.gz:
predict run new.jsonlines | file-type | error: new.jsonlines:
predict run nofolder/ | no-such-file | error: nofolder/:
predict run empty/none | no-such-file | error: empty/none:
explain run new.feather | no-such-file | error: new.feather:
explain run cat.webp | wrong-input | error: cat.webp:
predict run c.pdf | file-type | .pdf
predict run pipe | cannot-read | a pipe or a device, which is not supported
predict run blank.txt | missing-value | no texts
predict run great | file-type | so its type is unknown. Rename it; if it is a text, use standard input: echo
predict run "so so" | file-type | a file without an extension, such as .txt | echo 'so so'
predict run mine | wrong-input | mine: a folder, where a text or a file is | mine/feedback.csv, mine/new.csv
explain run mine | wrong-input | Name one of the files there: mine/feedback.csv, mine/new.csv
embed run mine --out v.npy | wrong-input | Name one of the files there: mine/feedback.csv, mine/new.csv
predict run "a text" empty | wrong-input | Name a file
predict run "a film" "a plot" " " | missing-value | error: TEXT 3: the text is empty. Give another text, or
explain run "a film" "a plot" " " | missing-value | error: TEXT 3: the text is empty. Give | NOT on-bad-row
embed run "a film" "a plot" " " --out v.npy | missing-value | error: TEXT 3: the text is empty. Give another
predict run "" --on-bad-row skip | missing-value | no row can be used; the text is empty
predict run first.csv | missing-value | row 2: the text is empty | --on-bad-row skip
predict run short.csv --on-bad-row skip | missing-value | no row can be used
predict run ids.csv | malformed-file | row 4 | --on-bad-row skip
predict run ids.csv --on-bad-row skp | bad-value | 'skp' is not a choice
predict run gaps.csv | missing-value | NOT this run was trained
predict skipped gaps.csv | missing-value | --on-bad-row skip (this run was trained with it)
train --text gaps.csv | missing-value | or leave such rows out with --on-bad-row skip | NOT on_bad_row
evaluate run --data gaps.csv | missing-value | or leave such rows out with --on-bad-row skip | NOT on_bad_row
explain run gaps.csv | missing-value | row 22: the text is empty | NOT on-bad-row
explain linear reviews.csv | setting | reviews.csv: 60 inputs are too many
explain run gaps.csv --row 22 | data | row 22: the text is empty
explain run shops.csv --row 99 | data | no row 99. Rows 2 to 21 have texts
explain run "a film" --row 2 | data | Name a file
predict run reviews.csv --data reviews.csv | conflict | at once
explain run reviews.csv --data reviews.csv | conflict | at once
embed run reviews.csv --data reviews.csv --out x.npy | conflict | at once
predict run | nothing-given | nothing to read
predict run "a film" --data a.parquet | conflict | at once
predict run reviews.csv --out done.csv | exists | exists
predict run reviews.csv --out nowhere/p.csv | output-path | no such folder
predict run reviews.csv --out p.xlsx | bad-value | CSV
predict run reviews.csv --least-sure 0 | setting | 0 rows
predict run reviews.csv --keep-table | bad-value | --keep-table: needs an output file
predict run reviews.csv reviews.csv --out o.csv --keep-table | bad-value | --keep-table: needs
predict run "a film" --out o.csv --keep-table | bad-value | --keep-table: needs
predict run wide.csv --out o.csv --keep-table | setting | 201 columns, at most 200 are kept
predict run a.parquet --out b.parquet --coverage 0.5 | not-for-this-model | --coverage: intervals from Parquet
predict run a.parquet --out b.parquet --on-bad-row refuse | not-for-this-model | --on-bad-row: from Parquet to
predict run a.parquet a.parquet --out b.parquet --engine ray | not-for-this-model | --engine: 2 files. Give
predict run --data a.parquet --out b.csv --engine ray | bad-value | Parquet
predict linear "a film" --labels a,b | not-for-this-model | --labels: labels to choose from are only for
predict numbers texts.csv --coverage 0.9 --out p.csv | setting | Use 0.83 or less, or hold out 9 or more in
predict pairs "one text" | wrong-input | this model reads pairs, and 'one text' has no second text
predict pairs a b c | wrong-input | 'c' has no second text
predict pairs a " " | data | TEXT 1 and 2: the second text is empty
predict pairs a b "" c | data | TEXT 3 and 4: the first text is empty. Give another text, or mark such rows
explain run TEXT --method rolout | bad-value | Did you mean 'rollout'? For this model: decomposition,
explain run TEXT --method shap | bad-value | Did you mean 'shapley'?
explain run TEXT --method lime | bad-value | unknown method 'lime'. For this model: decomposition, attention,
explain run TEXT --method weights | not-for-this-model | weights: is only for linear models of texts (tfidf), and
explain run TEXT --method rollout --target pos | not-for-this-model | rollout has no target
explain run TEXT --method occlusion --target meh | unknown-label | no label 'meh'
explain run TEXT --method rollout --set fusing=max | unknown-key | Did you mean 'fusion'?
explain run TEXT --set fusion | setting | not KEY=VALUE
explain run TEXT --set residual=2 | bad-value | residual 2 is not in [0, 1]
explain run TEXT --set residual=half | bad-value | residual must be a number, got 'half'
explain run TEXT --method attention --set layer=9 | input | no layer 9: the model has
explain run TEXT --method occlusion --set window=wide | bad-value | window must be a whole number, got 'wide'
explain run TEXT --method occlusion --set window=0 | input | a window of 0
explain run TEXT --method occlusion --set by=7 | bad-value | by must be text, got 7
explain run TEXT --method integrated_gradients --set tolerance=-1 | input | tolerance -1 is negative. Give 0
explain run TEXT --method integrated_gradients --set steps=2000 | input | Give fewer, or raise max_steps
explain run TEXT --set maps=1 | setting | 'maps' is only an option in Python
explain run TEXT --out map.pdf | bad-value | the output is written as HTML or JSON
explain run TEXT --out nowhere/map.html | output-path | no such folder
explain run MANY | setting | 21 inputs
explain linear TEXT --method shap | bad-value | unknown method 'shap'. For this model: weights, occlusion
explain linear TEXT --method lime | bad-value | unknown method 'lime'. For this model: weights, occlusion
"""
# What every verb says of a run that is not finished, and of the folder above a run.
VERBS = """predict {} "a text"|explain {} "a text"|serve {}|export {} --to onnx|evaluate {}|calibrate {}
embed {} "a text" --out out.npy|report {}|compare {} {}|similar one two --model {}|fill {} "a [MASK]"
translate {} "a text"|vectors {} word|doctor {}""".replace("\n", "|").split("|")
STATES = {"unfinished | run-in-use": VERBS, "above | checkpoint": VERBS[:4], "above | not-a-run": VERBS[4:6]}
STATES |= {"above | incomplete": VERBS[6:7]}
LINES = [line for block in (TABLES, TYPED, MODELS, INPUTS) for line in block.strip("\n").split("\n")]
for state, verbs in STATES.items():
    folder, code = state.split(" | ")
    LINES += [f"{verb.replace('{}', folder)} | {code} | {folder.upper()}" for verb in verbs]
BERT = [s for s in TINY if not s.startswith(("model=", "d_model=", "num_layers=", "num_heads=", "d_ff="))]
WORDS = {"TINY": settings(), "BERT": sets(*BERT), "TEXT": ["a splendid film"], "MANY": TEXTS + TEXTS[:1]}


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, its size and when it was written; of folders only that they are there."""
    stats = {str(path): path.stat() for path in folder.rglob("*")}
    return {n: (0, 0) if S_ISDIR(s.st_mode) else (s.st_size, s.st_mtime_ns) for n, s in stats.items()}


@pytest.fixture(scope="session")
def names(world) -> dict[str, str]:
    """What stands for a name in what a line says."""
    state = max((world / "unfinished" / "checkpoints").glob("step-*")) / "state.json"
    state = json.loads(state.read_text())
    unfinished = f"training is not finished (step {state['step']} of {state['total_steps']})"
    fix = "Continue with: glassformer train --resume --out unfinished"
    unfinished = f"{unfinished}, so there is no model yet. {fix}"
    return {"HERE": str(world), "ABOVE": "Give one of its sub-folders: above/mine", "UNFINISHED": unfinished}


def refusal(gf, world: Path, words) -> str:
    """What is said by a command that must end with an error and leave everything as it was."""
    before = listing(world)
    result = gf(*words)
    assert result.code == 2, result
    assert re.fullmatch(r"error: .* \[[a-z0-9-]+\]\n", result.err), result
    assert result.err[:-1].isprintable()
    assert "Traceback" not in result.out
    assert listing(world) == before
    return result.err.strip()


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split(" | ")[0])
def test_a_command_that_cannot_be_done(gf, world, names, monkeypatch, line):
    monkeypatch.chdir(world)
    command, code, *parts = line.split(" | ")
    said = refusal(gf, world, [w for word in shlex.split(command) for w in WORDS.get(word, [word])])
    said = said.replace(f"{world}/", "")
    assert said.endswith(f" [{code}]")
    for part in parts:
        for name, meaning in names.items():
            part = part.replace(name, meaning)
        assert (part.removeprefix("NOT ") in said) is not part.startswith("NOT "), said


# --- objects and lists in the place of texts --------------------------------------------------------

FILE_VERBS = """
train --text FILE
evaluate run FILE
calibrate run --data FILE
predict run FILE
predict run FILE --out new.csv
embed run FILE --out new.npy
data doctor FILE
data show FILE
cross-validate --text FILE
review-labels --text FILE
train europe-mlm --data FILE
""".strip().split("\n")
ODD = {"an object ('en', 'de')": {"en": "a", "de": "b"}, "an object ('en')": {"en": "a"}, "a list": ["a"]}


@pytest.fixture(scope="session")
def odd(world) -> dict[str, tuple[str, int]]:
    """Files in which every text, or that of row 5 alone, is odd -> what it is, and the first such row."""
    files = {}
    for (said, value), first in product(ODD.items(), (1, 5)):
        rows = [{"text": value if first in (1, i) else t, "label": y} for i, (t, y) in enumerate(GOOD, 1)]
        for ending in ("jsonl", "json", "parquet")[
            : 3 if first == 1 else 2
        ]:  # a column of Parquet has one kind
            files[name := f"odd-{first}-{len(said)}.{ending}"] = said, first
            if ending == "parquet":
                pq.write_table(pa.Table.from_pylist(rows), world / name)
                continue
            (world / name).write_text(
                json.dumps(rows) if ending == "json" else "\n".join(map(json.dumps, rows))
            )
    return files


@pytest.mark.parametrize("verb", FILE_VERBS)
def test_every_verb_names_file_and_row_of_what_is_no_text(gf, world, odd, monkeypatch, verb):
    monkeypatch.chdir(world)
    for name, (what, first) in odd.items():
        if verb.startswith("data") and first == 5:
            continue  # these count such rows and show the others
        said = refusal(gf, world, verb.replace("FILE", name).split())
        where = f"{name}, row {first}" if "no row" not in said else "no row can be used; the first"
        assert f"{where}: the text is not a string but {what}" in said
        assert name in said
        assert "Write the text instead" in said


def test_such_rows_are_left_out_where_asked(as_json, gf, world, odd, monkeypatch):
    monkeypatch.chdir(world)
    name = next(name for name, (said, first) in odd.items() if first == 5 and "'en')" in said)
    assert json.loads(gf("evaluate", "run", name, "--on-bad-row", "skip", "--json").out)["n"] == 19
    answers = as_json("predict", "run", name, "--on-bad-row", "skip")["answers"]
    assert [bool(answer.get("error")) for answer in answers].count(True) == 1
    assert "not a string but an object" in answers[4]["error"]
