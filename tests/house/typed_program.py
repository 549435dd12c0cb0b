"""A program as users write them: ``test_typed.py`` has pyright read it and runs it.

    python tests/house/typed_program.py FOLDER

``reveal_type`` would say what pyright takes an answer for; ``assert_type`` holds it to that.
"""

import sys
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import torch
from torch import Tensor

import glassformer as gf
from glassformer.data import DoctorReport, TextDataset, TextSplit, TokenTable
from glassformer.errors import CheckpointError, ConfigError, DataError, ShapeError

TEXTS = [f"a {'warm' if i % 2 else 'dull'} film , number {i}" for i in range(24)]
LABELS = ["pos" if i % 2 else "neg" for i in range(24)]


def texts(folder: Path) -> None:
    classifier = gf.TextClassifier(
        "encoder-mini",
        d_model=16,
        num_layers=1,
        num_heads=2,
        d_ff=16,
        epochs=1,
        min_count=1,
        threads=1,
        max_length=12,
        validation_fraction=0.0,
        precision="fp32",
    )
    classifier = classifier.fit(TEXTS, LABELS)
    assert_type(classifier, gf.TextClassifier)
    probabilities = classifier.predict_proba(TEXTS[:3])
    label: str = str(classifier.predict(TEXTS[:1])[0])
    assert probabilities.shape == (3, 2)
    assert label in classifier.classes_.tolist()
    why = classifier.explain(TEXTS[0], method="gradient_x_input")
    assert len(why.tokens) == len(why.scores)
    several = classifier.explain_many(TEXTS[:2], method="occlusion")
    assert [one.target for one in several] == [str(label) for label in classifier.predict(TEXTS[:2])]
    rows: np.ndarray = classifier.embed(TEXTS[:2])
    assert rows.shape == (2, 16)
    saved = classifier.save(folder / "texts")
    assert_type(saved, Path)
    again = gf.load(saved)
    assert np.array_equal(again.predict_proba(TEXTS[:3]), probabilities)


def others(folder: Path) -> None:
    pictures = [np.full((12, 12, 3), 7 * i % 256, np.uint8) for i in range(12)]
    seen = gf.ImageClassifier(
        "vit-one",
        image_size=12,
        patch_size=4,
        d_model=16,
        num_layers=1,
        num_heads=2,
        d_ff=16,
        epochs=1,
        threads=1,
        validation_fraction=0.0,
        precision="fp32",
    ).fit(pictures, [i % 2 for i in range(12)])
    assert seen.predict(pictures[:2]).shape == (2,)
    words = gf.Word2Vec(dim=5, epochs=1, min_count=1, threads=1).fit([text.split() for text in TEXTS])
    near: list[tuple[str, float]] = words.most_similar("film", 2)
    assert len(near) == 2
    translator = gf.Translator(
        "rnn", d_model=8, num_layers=1, vocab_size=270, epochs=1, threads=1, precision="fp32", max_length=64
    ).fit(TEXTS, [text.upper() for text in TEXTS])
    translated: list[str] = translator.translate(TEXTS[:1], beam=1)
    assert len(translated) == 1
    learner = gf.MaskedLM(
        d_model=16,
        num_layers=1,
        num_heads=2,
        d_ff=16,
        vocab_size=60,
        epochs=1,
        max_length=16,
        threads=1,
        precision="fp32",
    ).fit(TEXTS)
    for word, probability in learner.fill("a [MASK] film", top=2):
        assert word
        assert 0.0 <= probability <= 1.0
    assert isinstance(learner.save(folder / "masked"), Path)


def blocks() -> None:
    packing = gf.Packing((3, 5))
    rows = torch.randn(packing.total, 16)
    out = gf.nn.attend(rows, rows, q_packing=packing)
    assert_type(out, Tensor)
    out, weights = gf.nn.attend(rows, rows, q_packing=packing, return_weights=True)
    assert [w.shape[-1] for w in weights] == [3, 5]
    trace = gf.Trace(attentions=True)
    encoder = gf.nn.Encoder(gf.nn.EncoderConfig(16, 2, 2, 23))
    states: Tensor = encoder(rows, packing)
    assert states.shape == rows.shape
    assert trace.attentions is True
    assert_type(gf.nn.sinusoidal(7, 4), Tensor)
    assert_type(gf.nn.padding_share(packing), float)


def data() -> None:
    split = TextSplit(TEXTS, LABELS, "films.csv")
    report = gf.data.examine(TextDataset("films", {"train": split}))
    assert_type(report, DoctorReport)
    assert all(finding.code for finding in report.findings)
    tokenizer = gf.data.word_tokenizer(TEXTS, vocab_size=60)
    table = gf.data.encode(tokenizer, TEXTS[:2], max_length=7)
    assert_type(table, TokenTable)
    ids: np.ndarray = table[0]
    assert len(ids) <= 7


def errors(folder: Path) -> None:
    refused: list[gf.InputError] = []
    try:
        gf.load(folder / "nowhere")
    except CheckpointError as error:
        refused.append(error)
    try:
        gf.TextClassifier(epochs=-1).fit(TEXTS, LABELS)
    except ConfigError as error:
        refused.append(error)
    try:
        gf.data.check_texts([""])
    except DataError as error:
        refused.append(error)
    try:
        gf.nn.attend(torch.zeros(3, 4), torch.zeros(3, 5), q_packing=gf.Packing((3,)))
    except ShapeError as error:
        refused.append(error)
    said: list[tuple[str, str | None, str | None]] = [
        (error.what, error.where, error.fix) for error in refused
    ]
    assert len(said) == 4
    code: int = gf.GlassformerError.exit_code
    assert code == 1


def main(folder: Path) -> None:
    texts(folder)
    others(folder)
    blocks()
    data()
    errors(folder)
    settings: dict[str, Any] = gf.TextClassifier.defaults()
    assert "epochs" in settings


if __name__ == "__main__":
    main(Path(sys.argv[1]))
