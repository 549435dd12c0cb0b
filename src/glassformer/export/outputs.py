"""Export of each kind of prediction.

``onnx_folder.py`` and ``hf_folder.py`` write and check folders. They use a class of this module, which the
method ``export_outputs`` of an estimator returns.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.ngrams import FILE, ngrams_metadata
from glassformer.config import to_json_types
from glassformer.data.questions import Question
from glassformer.data.spreadsheet import csv_dicts, csv_plain
from glassformer.data.tagged import load_tagged
from glassformer.data.text import clean_text
from glassformer.data.text_pairs import TextPair, clean_pair
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.data.transform import RANGE_KEY
from glassformer.data.vocabulary import PAD, Vocabulary
from glassformer.data.windows import OVERLAP_DIVISOR, encode_questions, encode_words
from glassformer.errors import ConfigError, NotForThisModelError
from glassformer.evaluate.predict import compute_logits, predict_images, predict_rows
from glassformer.evaluate.predictions import read_predictions, read_texts
from glassformer.export.graph import Run
from glassformer.export.padded import PaddedFeatures, PaddedImages, PaddedSpans, PaddedText, PaddedVectors
from glassformer.export.plain_ngrams import features, index_ngrams
from glassformer.families.pretrained import load_pretrained
from glassformer.finite import finite, json_text
from glassformer.models.sentences import EmbeddingSettings, with_lowercasing
from glassformer.nn.pairs import distinguishes_texts

BATCH = 16  # number of inputs per call of a graph
MAX_RANDOM_WORDS = 300  # maximum length of a random text, for models without a maximum length
ENCODING_ATTRIBUTES = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
Answers = Sequence[Any] | np.ndarray


@dataclass(frozen=True)
class Graph:
    """A module with padded inputs, for the export.

    Args:
        inputs: an example for each argument of the module; dynamic axes must not have size 1.
        outputs: name of each output -> names of its axes.
        axes: the dynamic axes of all inputs.
    """

    module: nn.Module
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, list[Any]]
    axes: Mapping[int, Any]

    def metadata(self) -> dict[str, Any]:
        """Inputs and outputs for ``onnx.json``, with names of dynamic axes and sizes of other axes."""
        names = {axis: dimension.__name__ for axis, dimension in self.axes.items()}
        shapes = {name: [names.get(i, n) for i, n in enumerate(x.shape)] for name, x in self.inputs.items()}
        return {"inputs": shapes, "outputs": dict(self.outputs)}


def token_graph(
    module: nn.Module, outputs: Mapping[str, list[Any]], max_length: int, segments: bool
) -> Graph:
    """The graph of a module with the inputs ids ``[B, T]``, mask and, with ``segments``, token types.

    Raises:
        ConfigError: ``max_length`` is too small for a text.
    """
    if max_length < 3:
        raise ConfigError(f"{max_length} tokens leave no room for a text", where="export")
    ids = torch.ones(2, 3, dtype=torch.long)
    mask = ids.clone()
    mask[1, 2:] = 0  # the exporter could remove a mask of ones
    example = {"input_ids": ids, "attention_mask": mask}
    if segments:
        example["token_type_ids"] = torch.tensor([[0, 1, 1], [0, 1, 0]])
    dynamic = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=max_length)}
    return Graph(module, example, outputs, dynamic)


class Outputs(ABC):
    """Base class for the export of a fitted estimator; each kind of prediction has a subclass."""

    SCRIPT: ClassVar[str]  # the file in scripts/ that becomes ``run.py`` of ONNX folders
    NOUN: ClassVar[str] = "logits"  # name of the outputs in messages
    PREDICTIONS: ClassVar[str] = "labels"  # name of the predictions in messages; empty: no predictions
    LIBRARY: ClassVar[str] = "transformers"  # library that opens a folder in the Hub's layout
    NO_INT8: ClassVar[tuple[str, str] | None] = None  # error message and fix if int8 is not supported
    are_numbers = False  # whether the outputs are standardized numbers

    def __init__(self, clf: Any):
        self.clf = clf

    def check(self, form: str) -> None:
        """Raise ConfigError if the model cannot be exported to the format ``form`` (``hf`` or ``onnx``)."""

    def samples(self, run: str | Path, count: int, seed: int = 0) -> tuple[list[Any], list[str] | None]:
        """``count`` sample inputs, and their labels if all are known.

        Samples are inputs from the predictions of a run. If there are too few, random inputs are added: texts
        from one word to more than the maximum length, or images of smooth noise.
        """
        rng = np.random.default_rng(seed)
        available = list(islice(self.run_inputs(Path(run)), 50 * count))
        selected = [available[i] for i in sorted(rng.permutation(len(available))[:count].tolist())]
        labels = [label for _, label in selected]
        generated = [self.random_input(rng) for _ in range(count - len(selected))]
        samples = [sample for sample, _ in selected] + generated
        return samples, labels if all(labels) and not generated else None

    def run_inputs(self, run: Path) -> Iterator[tuple[Any, str]]:
        """Yield the inputs of a run's predictions with their labels (empty: unknown)."""
        yield from ()

    @abstractmethod
    def random_input(self, rng: np.random.Generator) -> Any:
        """A random input."""

    @abstractmethod
    def outputs(self, samples: Sequence[Any], network: Any = None) -> np.ndarray:
        """The fp32 outputs of the model (or of ``network``), one row per prediction."""

    def predictions(self, outputs: np.ndarray, samples: Sequence[Any]) -> Answers | None:
        """The predictions for these outputs; None for models without discrete predictions."""
        return None

    def is_correct(self, outputs: np.ndarray, samples: Sequence[Any], labels: Sequence[Any]) -> np.ndarray:
        """Whether each prediction with a known label is correct."""
        return np.asarray(self.predictions(outputs, samples)) == np.array(list(map(str, labels)))

    def sizes(self, outputs: np.ndarray) -> dict[str, int]:
        """Sizes of the outputs, for the result of the comparison."""
        return {}

    # --- ONNX -------------------------------------------------------------------------------------

    @abstractmethod
    def graph(self) -> Graph:
        """The graph of the padded model; raises ConfigError if the model has none."""

    def write_files(self, folder: Path) -> None:
        """Write the files that prepare inputs for the graph: a tokenizer, n-grams."""
        self.clf.tokenizer_.save(str(folder / "tokenizer.json"))

    @abstractmethod
    def metadata(self) -> dict[str, Any]:
        """Additional entries of ``onnx.json``."""

    @abstractmethod
    def run_files(self, folder: Path, about: dict[str, Any], run: Run, samples: Sequence[Any]) -> np.ndarray:
        """The same as ``outputs``, computed only from exported files."""

    # --- transformers -----------------------------------------------------------------------------

    def network(self) -> Any:
        """The model to write in the Hub's layout."""
        return self.clf.model_

    def names(self) -> dict[str, Any]:
        """Arguments of ``save_pretrained`` about the outputs."""
        return {}

    def write_parts(self, folder: Path) -> None:
        """Write the tokenizer or transform, and other parts of the model."""
        self.clf.write_parts(folder)

    def hub_script(self) -> tuple[str, dict[str, str]] | None:
        """The file in scripts/ for ``run.py``, and replacements of text in it.

        None: transformers has the head, so no script is needed.
        """
        return None

    def decision_code(self, form: str) -> str:
        """The code in ``run.py`` that computes predictions from outputs."""
        return ""

    def read_back(self, folder: Path, samples: Sequence[Any]) -> np.ndarray:
        """The outputs of the network that is loaded from a folder."""
        return self.outputs(samples, load_pretrained(folder))

    def max_difference(self, before: np.ndarray, after: np.ndarray) -> float:
        """The largest difference between two outputs."""
        return float(np.abs(after - before).max())

    def left_out(self) -> list[str]:
        """Parts of the decision that transformers lacks, such as a threshold."""
        return []


# --- labels and numbers of texts, pairs and images ------------------------------------------------


class Labels(Outputs):
    """Classes, label sets or numbers; the graph outputs ``logits`` and ``probabilities`` ``[B, C]``."""

    @property
    def are_numbers(self) -> bool:
        return not self.clf.kind_.predicts_labels

    def outputs(self, samples: Sequence[Any], network: Any = None) -> np.ndarray:
        """The logits ``[n, C]``. Long texts are truncated, even if the model reads them in windows."""
        model, table = (network or self.clf.model_).eval(), self.clf.encode(self.clf.check(samples))
        return finite(self.rows(model, table, next(model.parameters()).device), "logits")

    @abstractmethod
    def rows(self, model: Any, table: Any, device: torch.device) -> np.ndarray:
        """The logits of encoded examples."""

    def predictions(self, outputs: np.ndarray, samples: Sequence[Any]) -> Answers | None:
        if self.are_numbers:
            return None
        labels = self.clf.decide(self.clf.to_probabilities(outputs))
        return np.array(list(map(str, labels)))

    OUTPUTS: ClassVar[dict[str, list[Any]]] = {
        "logits": ["batch", "label"],
        "probabilities": ["batch", "label"],
    }

    def metadata(self) -> dict[str, Any]:
        clf = self.clf
        labels = {"labels": list(map(str, clf.classes_.tolist())), "threshold": to_json_types(clf.threshold_)}
        return labels | clf.kind_.export_metadata(clf)

    def select_output(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """The output of a graph to compare: the logits, or the standardized numbers of a regressor.

        For regressors, equal logits are not enough, because the graph may round the numbers.
        """
        return self.clf.kind_.standardize(outputs[1]) if self.are_numbers else outputs[0]

    def network(self) -> Any:
        return self.clf.model_to_save()

    def decision_code(self, form: str) -> str:
        return self.clf.kind_.script(form)

    def names(self) -> dict[str, Any]:
        return {"label_names": self.clf.hub_label_names(), "problem_type": self.clf.kind_.problem_type}

    def max_difference(self, before: np.ndarray, after: np.ndarray) -> float:
        return self.clf.kind_.max_abs_difference(after, self.clf.kind_.export_outputs(before))

    def left_out(self) -> list[str]:
        return self.clf.kind_.not_exported(self.clf)


class TextLabels(Labels):
    """Predictions for texts or pairs by a neural network."""

    SCRIPT = "run_text"

    def rows(self, model: Any, table: Any, device: torch.device) -> np.ndarray:
        return predict_rows(model, table, compute_logits, batch_tokens=self.clf.token_budget(), device=device)

    def check(self, form: str) -> None:
        tokenizer = self.clf.tokenizer_
        if form == "hf" and getattr(self.clf.model_.config, "sides", None):
            message = "transformers has no class for pairs of texts that are encoded separately"
            fix = "Use --to onnx, or another model: model=all-minilm-l6-v2 reads both texts together"
            raise NotForThisModelError(message, where="--to hf", fix=fix)
        if form == "onnx" or self.clf.add_special_tokens:
            return
        if len(tokenizer.encode("a")) > len(tokenizer.encode("a", add_special_tokens=False)):
            message = "the tokenizer adds special tokens in transformers, but this model has none"
            fix = "Use --to onnx, or fit with add_special_tokens = true"
            raise NotForThisModelError(message, where="--to hf", fix=fix)

    def run_inputs(self, run: Path) -> Iterator[tuple[Any, str]]:
        file = run / "predictions.csv"
        if file.is_file() and self.are_numbers:
            yield from ((text, "") for text in read_texts(file))
        elif file.is_file():
            yield from ((row.text, row.label) for row in read_predictions(file))

    def random_input(self, rng: np.random.Generator) -> Any:
        first = self.random_text(rng)
        return TextPair(first, self.random_text(rng)) if self.clf.reads_pairs else first

    def random_text(self, rng: np.random.Generator) -> str:
        return random_words(self.clf.tokenizer_, self.clf.max_length, rng)

    def graph(self) -> Graph:
        clf = self.clf
        module = PaddedText(
            clf.model_.eval(), clf.max_length, clf.temperature_, clf.kind_.tensor_probabilities
        )
        segments = clf.reads_pairs and distinguishes_texts(clf.model_.config)
        return token_graph(module, self.OUTPUTS, clf.max_length, segments)

    def write_files(self, folder: Path) -> None:
        save_truncating(self.clf.tokenizer_, self.clf.max_length, folder)

    def metadata(self) -> dict[str, Any]:
        clf = self.clf
        return {
            **super().metadata(),
            **({"pairs": True} if clf.reads_pairs else {}),
            "max_length": clf.max_length,
            "clean": clf.clean,
            "long_texts": clf.long_texts,  # how ``predict`` reads longer texts; the export truncates them
            "add_special_tokens": clf.add_special_tokens,
        }

    def run_files(self, folder: Path, about: dict[str, Any], run: Run, samples: Sequence[Any]) -> np.ndarray:
        how = about["clean"]
        texts = [
            clean_pair(text, how) if isinstance(text, TextPair) else clean_text(text, how)
            for text in self.clf.check(samples)
        ]
        return run_on_texts(folder, about, run, texts, self.select_output)

    def hub_script(self) -> tuple[str, dict[str, str]] | None:
        return "run_hf_text", {"PAIRS = False": "PAIRS = True"} if self.clf.reads_pairs else {}


class NgramLabels(TextLabels):
    """Predictions for texts or pairs by a linear model of n-grams, which has no tokenizer."""

    SCRIPT = "run_ngrams"
    NO_INT8 = (
        "a linear model only looks up and adds weights, so int8 would not make it faster",
        "Leave int8 out, or use an encoder: model=all-minilm-l6-v2",
    )

    def check(self, form: str) -> None:
        if form == "hf":
            message = "transformers has no class for a linear model of n-grams (tfidf)"
            fix = "Use --to onnx, or train an encoder: model=all-minilm-l6-v2"
            raise NotForThisModelError(message, where="--to hf", fix=fix)

    def random_text(self, rng: np.random.Generator) -> str:
        ngrams = [*self.clf.tokenizer_.words, *self.clf.tokenizer_.pieces]
        indices = rng.integers(0, len(ngrams), int(np.exp(rng.uniform(0, np.log(MAX_RANDOM_WORDS)))) + 1)
        return " ".join(ngrams[i] for i in indices.tolist()).strip() or "text"

    def graph(self) -> Graph:
        module = PaddedFeatures(
            self.clf.model_, self.clf.temperature_, self.clf.kind_.tensor_probabilities
        ).eval()
        example = {"ids": torch.zeros(2, 3, dtype=torch.long), "values": torch.ones(2, 3)}
        dynamic = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
        return Graph(module, example, self.OUTPUTS, dynamic)

    def write_files(self, folder: Path) -> None:
        about = ngrams_metadata(self.clf.tokenizer_) | {"idf": self.clf.tokenizer_.idf.tolist()}
        (folder / FILE).write_text(json_text(about, indent=0) + "\n", encoding="utf-8")

    def metadata(self) -> dict[str, Any]:
        pairs = {"pairs": True} if self.clf.reads_pairs else {}
        return Labels.metadata(self) | pairs | {"clean": self.clf.clean}

    def run_files(self, folder: Path, about: dict[str, Any], run: Run, samples: Sequence[Any]) -> np.ndarray:
        ngrams = index_ngrams(read_json(folder / FILE))
        texts = [text.sides if isinstance(text, TextPair) else text for text in self.clf.check(samples)]
        parts = []
        for start in range(0, len(texts), BATCH):
            rows = [features(text, ngrams) for text in texts[start : start + BATCH]]
            ids = np.zeros((len(rows), max([1, *map(len, rows)])), np.int64)
            values = np.zeros(ids.shape, np.float32)
            for i, row in enumerate(rows):
                ids[i, : len(row)], values[i, : len(row)] = list(row), list(row.values())
            parts.append(run({"ids": ids, "values": values})[0])
        return np.concatenate(parts)


class ImageLabels(Labels):
    """Predictions for images."""

    SCRIPT = "run_pictures"

    def rows(self, model: Any, table: Any, device: torch.device) -> np.ndarray:
        return predict_images(model, table, self.clf.transform_, "logits", device=device)

    def random_input(self, rng: np.random.Generator) -> np.ndarray:
        """An image of blurred colors, ``[H, W, 3]`` uint8."""
        from PIL import Image

        height, width = rng.integers(8, 200, 2)
        coarse = rng.integers(0, 256, (int(rng.integers(2, 9)), int(rng.integers(2, 9)), 3)).astype(np.uint8)
        return np.asarray(Image.fromarray(coarse).resize((int(width), int(height)), Image.Resampling.BICUBIC))

    def graph(self) -> Graph:
        clf, t = self.clf, self.clf.transform_
        module = PaddedImages(
            clf.model_.eval(), t.mean, t.std, clf.temperature_, clf.kind_.tensor_probabilities
        )
        pixels = torch.zeros(2, t.channels, *t.size, dtype=torch.uint8)
        return Graph(module, {"pixels": pixels}, self.OUTPUTS, {0: torch.export.Dim("batch")})

    def write_files(self, folder: Path) -> None:
        pass  # onnx.json has the sizes of images

    def metadata(self) -> dict[str, Any]:
        t = self.clf.transform_
        scale = {"fit": t.fit, "shorter": t.resize_to or max(t.size), "resample": t.to_hub()["resample"]}
        return super().metadata() | {"size": list(t.size), **scale, RANGE_KEY: t.image_range}

    def run_files(self, folder: Path, about: dict[str, Any], run: Run, samples: Sequence[Any]) -> np.ndarray:
        pixels = np.stack([self.clf.pixels(x) for x in samples])
        parts = [pixels[i : i + BATCH] for i in range(0, len(pixels), BATCH)]
        return np.concatenate([self.select_output(run({"pixels": part})) for part in parts])

    def hub_script(self) -> tuple[str, dict[str, str]] | None:
        return "run_hf_pictures", {}


# --- tags of words --------------------------------------------------------------------------------


class WordTags(Outputs):
    """Tags of words, which are those of their first tokens.

    The graph has the outputs ``logits`` and ``probabilities`` ``[B, T, C]``.
    """

    SCRIPT, PREDICTIONS = "run_words", "tags"

    def run_inputs(self, run: Path) -> Iterator[tuple[Any, str]]:
        if (file := run / "predictions.conll").is_file():
            yield from ((words, "") for words in load_tagged(file, need_tags=False).splits["train"].words)

    def random_input(self, rng: np.random.Generator) -> list[str]:
        return random_tokens(self.clf.tokenizer_, 1.2 * self.clf.length_, rng).split() or ["word"]

    def outputs(self, samples: Sequence[Any], network: Any = None, tokenizer: Any = None) -> np.ndarray:
        """The logits ``[W, C]`` of all words; ``tokenizer`` replaces the tokenizer of the tagger."""
        tagger, network = self.clf, (network or self.clf.model_).eval()
        rows = encode_words(tokenizer or tagger.tokenizer_, samples, max_length=tagger.length_)
        return finite(tagger.word_logits(network, rows, next(network.parameters()).device), "logits")

    def predictions(self, outputs: np.ndarray, samples: Sequence[Any]) -> Answers | None:
        return outputs.argmax(1)

    def is_correct(self, outputs: np.ndarray, samples: Sequence[Any], labels: Sequence[Any]) -> np.ndarray:
        truth = self.clf.class_indices(self.clf.true_tags(labels, samples))
        return (outputs.argmax(1) == truth)[truth >= 0]  # -1: a tag that the model does not have

    def sizes(self, outputs: np.ndarray) -> dict[str, int]:
        return {"words": len(outputs)}

    def graph(self) -> Graph:
        tagger, model = self.clf, self.clf.model_
        if not hasattr(model, "encode") or getattr(model, "pooled_padded", None) is not None:
            what = f"{tagger.model!r} is not a Transformer, so its tags cannot be exported"
            fix = "Train an encoder, such as encoder-mini"
            raise NotForThisModelError(what, where="--to onnx", fix=fix)
        module = PaddedText(model.eval(), tagger.length_, tagger.temperature_)
        outputs = {name: ["batch", "length", "label"] for name in ("logits", "probabilities")}
        return token_graph(module, outputs, tagger.length_, segments=False)

    def metadata(self) -> dict[str, Any]:
        vocabulary = Vocabulary.of(self.clf.tokenizer_)
        return {
            "labels": self.clf.classes_.tolist(),
            "scheme": self.clf.scheme_,
            "whole_words": self.clf.whole_words_,  # include punctuation; null: split at whitespace
            "each_word": True,  # a word has the tag of its first token
            "max_length": self.clf.length_,
            "overlap": OVERLAP_DIVISOR,
            "pad": vocabulary.pad or 0,
            "unknown": vocabulary.unk,
        }

    def run_files(self, folder: Path, about: dict[str, Any], run: Run, samples: Sequence[Any]) -> np.ndarray:
        rows = encode_words(load_tokenizer(folder), samples, max_length=about["max_length"])
        return run_on_windows(run, rows.table, about["pad"], lambda outputs: outputs[0])[rows.first]

    def names(self) -> dict[str, Any]:
        return {"label_names": tuple(self.clf.classes_.tolist())}

    def read_back(self, folder: Path, samples: Sequence[Any]) -> np.ndarray:
        return self.outputs(samples, load_pretrained(folder), load_tokenizer(folder))


# --- question answering -----------------------------------------------------------------------------


class TextSpans(Outputs):
    """Answers to questions; the graph has the outputs ``start_logits`` and ``end_logits`` ``[B, T]``."""

    SCRIPT, PREDICTIONS = "run_answers", "answers"
    NO_INT8 = "question answering models have no int8 export", "Leave it out"

    def run_inputs(self, run: Path) -> Iterator[tuple[Any, str]]:
        if (file := run / "predictions.jsonl").is_file():
            with open(file, encoding="utf-8") as lines:
                yield from (
                    (Question(entry["question"], entry["context"]), "") for entry in map(json.loads, lines)
                )

    def random_input(self, rng: np.random.Generator) -> Question:
        size = self.clf.tokenizer_.get_vocab_size()
        lengths = rng.integers(1, 9), int(np.exp(rng.uniform(0, np.log(1.5 * self.clf.length_)))) + 1
        texts = [decode(self.clf.tokenizer_, rng.integers(0, size, n).tolist()) for n in lengths]
        return Question(*(text if text.strip() else "word" for text in texts))

    def outputs(self, samples: Sequence[Any], network: Any = None) -> np.ndarray:
        """The start and end logits ``[N, 2]`` of all tokens."""
        network = (network or self.clf.model_).eval()
        device = next(network.parameters()).device
        return finite(self.clf.token_logits(network, self.clf.encode(samples), device), "logits")

    def predictions(self, outputs: np.ndarray, samples: Sequence[Any]) -> Answers | None:
        """Start and end token of each answer; None for no answer."""
        spans, threshold = self.clf.span_candidates(outputs, self.clf.encode(samples)), self.clf.threshold_
        return [None if span.predicts_no_answer(threshold) else span.spans[0][1:] for span in spans]

    def graph(self) -> Graph:
        model = self.clf.model_.eval()
        outputs = {name: ["batch", "length"] for name in ("start_logits", "end_logits")}
        module, longest = PaddedSpans(model, self.clf.length_), self.clf.length_
        return token_graph(module, outputs, longest, model.config.embedding.segments > 1)

    def metadata(self) -> dict[str, Any]:
        return {
            "max_length": self.clf.length_,
            "doc_stride": self.clf.doc_stride,
            "max_question": self.clf.max_question,
            "max_answer_length": self.clf.max_answer_length,
            "threshold": self.clf.threshold_,
            "pad": Vocabulary.of(self.clf.tokenizer_).pad or 0,
        }

    def run_files(self, folder: Path, about: dict[str, Any], run: Run, samples: Sequence[Any]) -> np.ndarray:
        sizes = {"stride": about["doc_stride"], "max_question": about["max_question"]}
        tokenizer = load_tokenizer(folder)
        rows = encode_questions(tokenizer, samples, max_length=about["max_length"], **sizes)
        return run_on_windows(run, rows.table, about["pad"], lambda outputs: np.stack(outputs, -1))


# --- embeddings -------------------------------------------------------------------------------------


class TextVectors(Outputs):
    """Embeddings of texts; the graph has the output ``vectors`` ``[B, E]``."""

    SCRIPT, NOUN, PREDICTIONS, LIBRARY = "run_vectors", "vectors", "", "sentence-transformers"
    NO_INT8 = "embedders have no int8 export", "Leave it out"

    @property
    def sentences(self) -> EmbeddingSettings:
        return self.clf.model_.sentences

    def check(self, form: str) -> None:
        if self.sentences.prompt(None, None) and not self.sentences.pool.include_prompt:
            message = "its pooling excludes the prompt, which exports do not support"
            raise NotForThisModelError(message, where="export", fix="Serve it with glassformer serve")

    def run_inputs(self, run: Path) -> Iterator[tuple[Any, str]]:
        if (file := run / "pairs.csv").is_file():
            with file.open(encoding="utf-8", newline="") as lines:
                for row in csv_dicts(lines):
                    yield from ((csv_plain(row[side]), "") for side in ("first", "second"))

    def random_input(self, rng: np.random.Generator) -> str:
        return random_words(self.clf.tokenizer_, self.clf.max_tokens(), rng)

    def outputs(
        self, samples: Sequence[Any], network: Any = None, sentences: Any = None, tokenizer: Any = None
    ) -> np.ndarray:
        """The embeddings ``[n, E]``; ``sentences`` and ``tokenizer`` replace those of the embedder."""
        cleaned = [clean_text(text, self.clf.clean) for text in samples]
        network, tokenizer = (network or self.clf.model_).eval(), tokenizer or self.clf.tokenizer_
        return (sentences or self.sentences).embed(network, cleaned, tokenizer=tokenizer)

    def sizes(self, outputs: np.ndarray) -> dict[str, int]:
        return {"width": outputs.shape[1]}

    def graph(self) -> Graph:
        max_tokens, model = self.clf.max_tokens(), self.clf.model_.eval()
        outputs = {"vectors": ["batch", self.sentences.width(model.config.encoder.d_model)]}
        module = PaddedVectors(model, self.sentences, max_tokens)
        return token_graph(module, outputs, max_tokens, segments=False)

    def write_files(self, folder: Path) -> None:
        tokenizer = self.clf.tokenizer_
        tokenizer = with_lowercasing(tokenizer) if self.sentences.lowercase else tokenizer
        save_truncating(tokenizer, self.clf.max_tokens(), folder)

    def metadata(self) -> dict[str, Any]:
        prompt = self.sentences.prompt(None, None)
        return {"max_length": self.clf.max_tokens(), "clean": self.clf.clean, "prompt": prompt}

    def run_files(self, folder: Path, about: dict[str, Any], run: Run, samples: Sequence[Any]) -> np.ndarray:
        texts = [about["prompt"] + clean_text(text, about["clean"]) for text in samples]
        return run_on_texts(folder, about, run, texts, lambda outputs: outputs[0])

    def write_parts(self, folder: Path) -> None:
        self.clf.write_encoder(folder)

    def read_back(self, folder: Path, samples: Sequence[Any]) -> np.ndarray:
        reloaded = load_pretrained(folder)
        return self.outputs(samples, reloaded, reloaded.sentences, load_tokenizer(folder))


# --- running the exported files -------------------------------------------------------------------


def save_truncating(tokenizer: Tokenizer, max_length: int, folder: Path) -> None:
    """Write a tokenizer that truncates texts to ``max_length`` tokens and pads shorter texts."""
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.enable_truncation(max_length)
    pad = Vocabulary.of(tokenizer).pad or 0
    tokenizer.enable_padding(pad_id=pad, pad_token=tokenizer.id_to_token(pad) or PAD)
    tokenizer.save(str(folder / "tokenizer.json"))


def run_on_texts(
    folder: Path,
    about: dict[str, Any],
    run: Run,
    texts: Sequence[Any],
    select: Callable[[Sequence[np.ndarray]], np.ndarray],
) -> np.ndarray:
    """Run a graph on texts, encoded by the folder's tokenizer; ``select`` selects one of its outputs."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    order = sorted(range(len(texts)), key=lambda i: -len("".join(texts[i])))  # similar lengths in a batch
    special = about.get("add_special_tokens", True)
    parts = []
    for start in range(0, len(order), BATCH):
        part = [texts[i] for i in order[start : start + BATCH]]
        rows = tokenizer.encode_batch(part, add_special_tokens=special)
        batch = {
            name: np.array([getattr(row, ENCODING_ATTRIBUTES[name]) for row in rows], np.int64)
            for name in about["inputs"]
        }
        parts.append(select(run(batch)))
    return np.concatenate(parts)[np.argsort(order)].astype(np.float32)


def run_on_windows(
    run: Run, table: Any, pad: int, select: Callable[[Sequence[np.ndarray]], np.ndarray]
) -> np.ndarray:
    """Run a graph on windows of tokens; returns one row per token.

    Args:
        table: the encoded windows.
        pad: id of the padding token.
        select: selects one output ``[B, T, C]`` of the graph.
    """
    out: list[Any] = [None] * len(table.lengths)
    order = np.argsort(-table.lengths, kind="stable")
    for batch_start in range(0, len(order), BATCH):
        part = order[batch_start : batch_start + BATCH].tolist()
        shape = len(part), max(int(table.lengths[i]) for i in part)
        ids, mask, segments = (np.full(shape, value, np.int64) for value in (pad, 0, 0))
        for row, i in enumerate(part):
            window, count = slice(*table.starts[i : i + 2].tolist()), int(table.lengths[i])
            ids[row, :count], mask[row, :count] = table.ids[window], 1
            if table.segments is not None:
                segments[row, :count] = table.segments[window]
        outputs = select(run({"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}))
        for row, i in enumerate(part):
            out[i] = outputs[row, : int(table.lengths[i])]
    return np.concatenate(out)


# --- sample inputs --------------------------------------------------------------------------------


def samples_of(clf: Any, run: str | Path, count: int) -> tuple[list[Any], list[str] | None]:
    """``count`` sample inputs of an estimator, and their labels if known; see ``Outputs.samples``."""
    return clf.export_outputs().samples(run, count)


def random_words(tokenizer: Any, max_length: int, rng: np.random.Generator) -> str:
    """A text of random tokens, which may be longer than the ``max_length`` tokens of the model."""
    text = random_tokens(tokenizer, 1.2 * max_length, rng)
    return text if text.strip() else "text"


def random_tokens(tokenizer: Any, max_tokens: float, rng: np.random.Generator) -> str:
    """The text of 1 to ``max_tokens`` random tokens; it may be empty."""
    length = int(np.exp(rng.uniform(0, np.log(max_tokens)))) + 1
    return decode(tokenizer, rng.integers(0, tokenizer.get_vocab_size(), length).tolist())


def decode(tokenizer: Any, ids: list[int]) -> str:
    """The text of tokens, without the NUL character that byte-level vocabularies contain."""
    return tokenizer.decode(ids, skip_special_tokens=True).replace("\0", "")
