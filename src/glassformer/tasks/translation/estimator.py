"""``Translator``: a sequence-to-sequence estimator.

In addition to the files of every run, its runs write ``translations.csv`` and ``alignments.json``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from glassformer.checkpoints.seq2seq import load_seq2seq, save_seq2seq
from glassformer.data.batching import (
    BatchSettings,
    PairStream,
    beam_token_budget,
    evaluation_batches,
    pack_pairs,
    pack_texts,
)
from glassformer.data.checks import check_texts, check_validation, location
from glassformer.data.duplicates import comparison_key
from glassformer.data.pairs import PairSplit, check_translations, columns_of_other_data, load_pairs
from glassformer.data.splits import Splits, evaluation_splits, make_splits, random_split
from glassformer.data.spreadsheet import csv_safe
from glassformer.data.text import (
    TokenTable,
    bpe_tokenizer,
    detokenize,
    encode,
    ignore_special_tokens,
    word_tokenizer,
    wordpiece_tokenizer,
)
from glassformer.data.tokenizer_file import count_ids, load_tokenizer
from glassformer.data.vocabulary import CLS, SEP, SPECIAL_TOKENS
from glassformer.errors import CheckpointError, DataError, NotForThisModelError
from glassformer.evaluate.predictions import table_file
from glassformer.explain.alignment import Alignment
from glassformer.inputs.texts import TINY_TEXTS, Texts
from glassformer.models.decode import Hypothesis, Limits, beam_search, check_max_tokens
from glassformer.models.seq2seq import TransformerSeq2Seq, transformer
from glassformer.models.seq2seq_rnn import RecurrentConfig, RecurrentSeq2Seq
from glassformer.nn.trace import Trace
from glassformer.packing import Packing
from glassformer.runtime import isolated_torch, runs_isolated
from glassformer.sklearn_base import check_is_fitted
from glassformer.targets.target_text import TargetText, translation_scores
from glassformer.tasks.estimator import Estimator, FitState, with_settings
from glassformer.tasks.task import TINY, DataPreview, Log, RunContext, Task, read_source
from glassformer.tasks.translation.recipe import (
    PairTextConfig,
    Seq2SeqModelConfig,
    TranslationFitConfig,
    TranslationRecipe,
)
from glassformer.train.callbacks import Callback
from glassformer.train.objectives import Translation

MAX_TARGET_TOKENS = (2.0, 10)  # a translation has at most 2 * source tokens + 10 tokens


@with_settings
class Translator(Estimator, PairTextConfig, Seq2SeqModelConfig, TranslationFitConfig):
    """A sequence-to-sequence model trained on pairs of texts.

    The parameters are the keys of a recipe's sections ``text``, ``model`` and ``train``;
    ``glassformer.tasks.translation.recipe`` explains them. Fitted attributes: ``model_``,
    ``source_tokenizer_``, ``target_tokenizer_``, ``history_``, ``truncated_`` (number of truncated training
    texts), ``train_seconds_``.
    """

    RECIPE, INPUTS = TranslationRecipe, Texts()
    TASK = TranslationRecipe.task

    # --- training --------------------------------------------------------------------------------

    def fit(
        self,
        source: Sequence[str],
        target: Sequence[str],
        *,
        validation: tuple[Sequence[str], Sequence[str]] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoints: str | Path | None = None,
        resume: bool = False,
    ) -> Translator:
        """Train on texts and their translations.

        Args:
            validation: (source, target). The token accuracy under teacher forcing after each epoch selects
                the best weights.
            checkpoints, resume: see ``TextClassifier.fit``.

        Raises:
            DataError: a text is missing or empty, or the numbers of sources and targets differ.
            ConfigError: an invalid setting.
            CheckpointError: the checkpoint is of another run.
        """
        return self._fit((source, target, validation), callbacks, checkpoints, resume)

    def _examples(self, fit: FitState, *data: Any) -> tuple[Any, Any]:
        source, target, validation = data
        pairs, val_data = check_translations(self.training_examples(source), target), None
        if validation is not None:
            source, target = check_validation(validation, "source texts, target texts")
            val_data = check_translations(self.prediction_examples(source), target, where="validation")
        if val_data is None and fit.train.validation_fraction:
            groups = list(map(comparison_key, pairs[0])) if fit.group_duplicates else None
            pairs, val_data = random_split(pairs, fit.train.validation_fraction, fit.train.seed, groups)
        return pairs, val_data

    def _prepare(self, fit: FitState) -> tuple[Any, Any]:
        self.source_tokenizer_, self.target_tokenizer_ = build_tokenizers(fit.configs["text"], *fit.examples)
        sources, targets = self._encode_both(fit.examples)
        self.truncated_ = int((sources.truncated | targets.truncated).sum())
        return (sources, targets), None if fit.validation is None else self._encode_both(fit.validation)

    def _encode_both(self, pairs: Sequence[Sequence[str]]) -> tuple[TokenTable, TokenTable]:
        return self.encode(pairs[0]), self.encode(pairs[1], source=False)

    def _build(self, fit: FitState) -> TransformerSeq2Seq | RecurrentSeq2Seq:
        sizes = self.source_tokenizer_.get_vocab_size(), self.target_tokenizer_.get_vocab_size()
        return build_seq2seq(fit.configs["model"], *sizes, fit.configs["text"].shared_vocabulary)

    def _loop(self, fit: FitState) -> tuple[PairStream, Translation, Callable[[], dict[str, float]] | None]:
        train: TranslationFitConfig = fit.train
        settings = BatchSettings(train.batch_size, train.batch_tokens, train.length_window)
        sources, targets = fit.table
        stream = PairStream(sources, targets, settings, train.accumulate, train.seed, fit.device)
        evaluate = None
        if fit.validation is not None:
            sources, targets = fit.validation_table
            budget = self.batch_tokens or 8192
            evaluate = teacher_forced_evaluator(fit.network, sources, targets, budget, fit.device)
        return stream, Translation(train.label_smoothing), evaluate

    def _arrays(self, fit: FitState) -> list[np.ndarray | None]:
        return [array for t in (*fit.table, *(fit.validation_table or ())) for array in (t.ids, t.starts)]

    # --- translation -----------------------------------------------------------------------------

    def encode(self, texts: Sequence[str], source: bool = True) -> TokenTable:
        """Tokenize source or target texts, truncated to ``max_length``."""
        tokenizer = self.source_tokenizer_ if source else self.target_tokenizer_
        return encode(tokenizer, texts, max_length=self.max_length)

    def _sources(self, texts: Sequence[str], rows: Sequence[int] | None, origin: str) -> TokenTable:
        table = self.encode(check_texts(self.prediction_examples(texts, origin), origin, rows))
        if table.truncated.any():
            first = int(np.flatnonzero(table.truncated)[0])
            what = f"the text has more than {self.max_length} tokens"
            fix = "Cut it into sentences, or train with a larger max_length"
            raise DataError(what, where=location(origin, first, rows), fix=fix)
        return table

    def translate(
        self,
        texts: Sequence[str],
        beam: int = 5,
        *,
        length_penalty: float = 1.0,
        max_tokens: int | None = None,
        progress: Callable[[int], None] | None = None,
        rows: Sequence[int] | None = None,
        origin: str = "texts",
    ) -> list[str]:
        """The best translation of each text.

        Args:
            beam: beam width; 1 is greedy search.
            length_penalty: the score is log-probability / length ** length_penalty; 0 favors short texts.
            max_tokens: maximum number of tokens of a translation; None: twice those of the source, plus ten.
            progress: called with the number of finished texts after each batch.
            rows, origin: row numbers and name of the source, for messages.

        Raises:
            DataError: a text is empty, or longer than ``max_length`` tokens.
            ConfigError: the beam is below 1.
        """
        check_is_fitted(self, "model_")
        table = self._sources(texts, rows, origin)
        hypotheses = self.search(table, beam, length_penalty, max_tokens, progress)
        return [detokenize(self.target_tokenizer_, best[0].tokens) for best in hypotheses]

    @runs_isolated
    def search(
        self,
        table: TokenTable,
        beam: int,
        length_penalty: float,
        max_tokens: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses for each text, best first; texts of similar length are decoded together."""
        limit = None if max_tokens is None else check_max_tokens(max_tokens)
        model, limits = self.predictor(), self._limits()
        device = next(model.parameters()).device
        out: list[list[Hypothesis]] = [[] for _ in range(len(table))]
        for index in evaluation_batches(table.lengths, beam_token_budget(beam, device)):
            batch = pack_texts(table, index, device)
            max_lengths = (MAX_TARGET_TOKENS[0] * batch.packing.length_tensor + MAX_TARGET_TOKENS[1]).long()
            if limit is not None:
                max_lengths = torch.full_like(max_lengths, limit)
            batch_limits = Limits(limits.begin, limits.end, max_lengths, limits.banned)
            with isolated_torch():
                memory = model.encode(batch.ids, batch.packing)
                best = beam_search(model, memory, batch_limits, beam, length_penalty)
            for i, hypotheses in zip(index.tolist(), best, strict=True):
                out[i] = hypotheses
            if progress is not None:
                progress(len(index))
        return out

    def _limits(self) -> Limits:
        ids = {token: int(self.target_tokenizer_.token_to_id(token) or 0) for token in SPECIAL_TOKENS}
        banned = tuple(ids[token] for token in SPECIAL_TOKENS if token != SEP)
        return Limits(ids[CLS], ids[SEP], banned=banned)

    @runs_isolated
    def align(self, text: str, beam: int = 5, length_penalty: float = 1.0) -> Alignment:
        """Translate one text and show the attention of each target token to the source.

        Raises:
            ConfigError: the model has no attention.
            DataError: see ``translate``.
        """
        if isinstance(self.predictor(), RecurrentSeq2Seq) and self.model_.attention is None:
            what = "a decoder without attention has no alignment"
            raise NotForThisModelError(what, where="align", fix="Train with attention")
        table = self._sources([text], None, "text")
        best = self.search(table, beam, length_penalty)[0][0]
        limits, ids = self._limits(), torch.from_numpy(table.ids.astype(np.int64))
        decoder_ids = torch.tensor([limits.begin, *best.tokens])
        model = self.predictor()
        device = next(model.parameters()).device
        with isolated_torch():
            out = model(
                ids.to(device),
                decoder_ids.to(device),
                source_packing=Packing((len(ids),), device),
                target_packing=Packing((len(decoder_ids),), device),
                trace=Trace(attentions=[-1]),
            )
        weights = out.cross_trace.attentions[-1][0].float().mean(0).cpu().numpy()  # [T, S]
        predicted = [*best.tokens, limits.end][: len(best.tokens) + best.ended]  # without end if truncated
        return Alignment(
            token_texts(self.source_tokenizer_, ids.tolist()),
            token_texts(self.target_tokenizer_, predicted),
            weights[: len(predicted)],
            detokenize(self.target_tokenizer_, best.tokens),
            text,
        )

    def score(self, source: Sequence[str], target: Sequence[str], beam: int = 5) -> float:
        """Detokenized BLEU of the translations, 0 to 100."""
        sources, references = check_translations(self.prediction_examples(source), target, "score")
        return translation_scores(self.translate(sources, beam), references)["bleu"]

    # --- files -----------------------------------------------------------------------------------

    def _write_model(self, folder: Path) -> None:
        save_seq2seq(self.model_, folder)

    def _read_model(self, folder: Path, in_bf16: bool = False) -> None:
        self.model_ = load_seq2seq(folder)

    def write_parts(self, folder: Path) -> dict[str, Any]:
        """Save both tokenizers."""
        self.source_tokenizer_.save(str(folder / "source_tokenizer.json"))
        self.target_tokenizer_.save(str(folder / "target_tokenizer.json"))
        return {"truncated": self.truncated_}

    def read_parts(self, folder: Path, metadata: dict[str, Any]) -> None:
        self.source_tokenizer_ = ignore_special_tokens(load_tokenizer(folder / "source_tokenizer.json"))
        self.target_tokenizer_ = ignore_special_tokens(load_tokenizer(folder / "target_tokenizer.json"))
        self.truncated_ = metadata["truncated"]

    def check_parts(self, folder: Path) -> None:
        config = self.model_.config
        for side in ("source", "target"):
            rows = getattr(config, f"{side}_vocab", 0) or getattr(config, side).vocab_size
            if (count := count_ids(getattr(self, f"{side}_tokenizer_"))) > rows:
                what = f"the {side} tokenizer knows {count:,} tokens, the model {rows:,}"
                raise CheckpointError(what, where=str(folder))


def build_tokenizers(
    text: PairTextConfig, source: Sequence[str], target: Sequence[str]
) -> tuple[Tokenizer, Tokenizer]:
    """Train one tokenizer per language, or one for both."""
    kinds = {"bpe": bpe_tokenizer, "wordpiece": wordpiece_tokenizer, "word": word_tokenizer}
    options = {"vocab_size": text.vocab_size, "min_count": text.min_count, "lowercase": text.lowercase}
    if text.shared_vocabulary:
        shared = ignore_special_tokens(kinds[text.tokenizer]([*source, *target], **options))
        return shared, shared
    first, second = (kinds[text.tokenizer](texts, **options) for texts in (source, target))
    return ignore_special_tokens(first), ignore_special_tokens(second)


def build_seq2seq(
    model: Seq2SeqModelConfig, source_vocab: int, target_vocab: int, shared: bool
) -> TransformerSeq2Seq | RecurrentSeq2Seq:
    """Build the network with random weights; ``shared``: whether both languages share their embeddings."""
    if model.model == "rnn":
        config = RecurrentConfig(
            source_vocab,
            target_vocab,
            model.d_model,
            model.num_layers,
            model.cell,
            model.attention,
            model.dropout,
            shared,
            model.tied,
        )
        built: TransformerSeq2Seq | RecurrentSeq2Seq = RecurrentSeq2Seq(config)
        built.weights_source = f"random ({model.cell}, attention: {model.attention}, from scratch)"
        return built
    sizes = model.d_model, model.num_layers, model.num_heads, model.d_ff, model.dropout
    options = model.norm, model.activation, shared, model.tied, model.embedding_dropout, model.norm_eps
    built = TransformerSeq2Seq(transformer(source_vocab, target_vocab, *sizes, *options))
    built.weights_source = "random (transformer, from scratch)"
    return built


def teacher_forced_evaluator(
    network: Any, source: TokenTable, target: TokenTable, batch_tokens: int, device: torch.device
) -> Callable[[], dict[str, float]]:
    """Return a function that computes loss per token (nats) and token accuracy under teacher forcing."""
    objective = Translation()
    batches = evaluation_batches(source.lengths + target.lengths, batch_tokens, device)

    def evaluate() -> dict[str, float]:
        loss, correct, count = 0.0, 0, 0
        with isolated_torch():
            for index in batches:
                out = objective(network, pack_pairs(source, target, index, device))
                loss, correct, count = loss + float(out.loss), correct + int(out.correct), count + out.count
        return {"loss": loss / count, "accuracy": correct / count}

    return evaluate


def token_texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token. Incomplete UTF-8 bytes and white space are spelled as in the tokenizer."""
    out = []
    for i in ids:
        text = tokenizer.decode([i], skip_special_tokens=False)
        out.append(text.strip() if text.strip() and "\ufffd" not in text else str(tokenizer.id_to_token(i)))
    return out


SEARCHES = (("greedy", 1), ("beam", 0))  # name and beam width; 0: the beam width of the recipe


def load(recipe: TranslationRecipe) -> Splits:
    """Load and split the pairs of a recipe, after a check of what the evaluation needs."""
    translation_scores(["a"], ["a"])  # raises an error before training if sacrebleu is not installed
    if recipe.evaluate.sentences:
        check_texts(recipe.evaluate.sentences, "evaluate.sentences")
    dataset = read_source(load_pairs, recipe, None, "source_column", "target_column")
    return make_splits(dataset, recipe.data, recipe.evaluate.split)


def preview_data(context: RunContext) -> DataPreview:
    pairs = context.data
    lines = [f"{pairs.dataset.name}: {pairs.sizes()} pairs, {' to '.join(pairs.dataset.columns)}"]
    lines += context.held_out_warning("pairs", "translations")
    return DataPreview(lines, pairs.dataset.rejected)


def fit(context: RunContext, **options: Any) -> None:
    """Train on the training pairs and select the best epoch on the validation pairs."""
    train, val = context.data.train, context.data.validation
    validation = (val.source, val.target) if val else None
    context.estimator.fit(train.source, train.target, validation=validation, **options)


def evaluate(context: RunContext) -> dict[str, Any]:
    """Metrics of greedy and beam search on the splits; also write ``translations.csv``."""
    context.log("translating")
    translator, recipe, pairs = context.estimator, context.recipe, context.data
    scores, truncated = {}, {"train": [translator.truncated_, len(pairs.train)]}
    out: dict[str, Any] = {
        "judged": pairs.evaluated_split,
        "columns": list(pairs.dataset.columns),
        "scores": scores,
        "truncated": truncated,
        "seconds": {},
    }
    for name, split in {"validation": pairs.validation, pairs.evaluated_split: pairs.evaluated}.items():
        if split is not None:
            scores[name], translations = search(translator, recipe, split, out["seconds"])
            if name == pairs.evaluated_split:
                write_translations(context.folder / "translations.csv", split, translations)
            truncated[name] = [count_truncated(translator, split), len(split)]
    if recipe.evaluate.sentences:
        sentences = list(recipe.evaluate.sentences)
        outputs = translate_truncated(
            translator, sentences, recipe.evaluate.beam, recipe.evaluate.length_penalty
        )
        out["sentences"] = [{"text": t, "translation": s} for t, s in zip(sentences, outputs, strict=True)]
    for name, (count, total) in truncated.items():
        log_truncated(translator, name, count, total, context.log)
    return out


def search(
    translator: Translator,
    recipe: TranslationRecipe,
    split: PairSplit,
    seconds: dict[str, float] | None = None,
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Metrics and translations of greedy and beam search."""
    length_penalty = recipe.evaluate.length_penalty
    scores, translations = {}, {}
    for name, width in SEARCHES:
        started, beam = time.perf_counter(), width or recipe.evaluate.beam
        translations[name] = translate_truncated(translator, split.source, beam, length_penalty)
        spent = time.perf_counter() - started
        scores[name] = translation_scores(translations[name], split.target) | {
            "width": beam,
            "length_penalty": length_penalty,
            "seconds": spent,
            "sentences_per_second": len(split) / max(spent, 1e-9),
        }
        if seconds is not None:
            seconds["translate"] = seconds.get("translate", 0.0) + spent
    return scores, translations


def translate_truncated(
    translator: Translator, texts: Sequence[str], beam: int, length_penalty: float
) -> list[str]:
    """Translate like ``Translator.translate``, but truncate long texts instead of raising an error."""
    hypotheses = translator.search(translator.encode(texts, True), beam, length_penalty)
    return [detokenize(translator.target_tokenizer_, best[0].tokens) for best in hypotheses]


def count_truncated(translator: Translator, split: PairSplit) -> int:
    """The number of truncated source texts of a split."""
    return int(translator.encode(split.source, True).truncated.sum())


def log_truncated(translator: Translator, name: str, count: int, total: int, log: Log) -> None:
    """Log the number of truncated texts of a split, if there are any."""
    if count:
        what = f"{count:,} of {total:,} {name} texts are longer than {translator.max_length} tokens"
        log(f"{what} and were cut there")


def write_translations(path: Path, split: PairSplit, translations: dict[str, list[str]]) -> None:
    """Write one row per pair; cells are safe to open in a spreadsheet."""
    with table_file(path) as writer:
        writer.writerow(["source", "reference", *map(csv_safe, translations)])
        for row in zip(split.source, split.target, *translations.values(), strict=True):
            writer.writerow([csv_safe(cell) for cell in row])


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """The contents of ``alignments.json``: cross-attention of evaluated sentences of readable length."""
    translator, recipe = context.estimator, context.recipe
    if recipe.model.model == "rnn" and recipe.model.attention == "none":
        return {"alignments.json": {"examples": []}}
    split = context.data.evaluated or context.data.train
    table = translator.encode(split.source[:2000], True)
    order = np.argsort(np.abs(table.lengths - 14), kind="stable")
    indices = order[~table.truncated[order]][: recipe.evaluate.maps].tolist()
    examples = []
    for i in indices:
        alignment = translator.align(split.source[i], recipe.evaluate.beam, recipe.evaluate.length_penalty)
        examples.append(
            {
                "text": split.source[i],
                "reference": split.target[i],
                "translation": alignment.translation,
                "source": alignment.source,
                "target": alignment.target,
                "weights": np.round(alignment.weights, 4).tolist(),
            }
        )
    return {"alignments.json": {"examples": examples}}


def _load_other(recipe: TranslationRecipe, source: str) -> Splits:
    source_column, target_column = columns_of_other_data(
        source, (recipe.data.source_column, recipe.data.target_column)
    )
    options = {
        "source_column": source_column,
        "target_column": target_column,
        "on_bad_row": recipe.data.on_bad_row,
    }
    return evaluation_splits(load_pairs(source, **options))


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved translator for both searches, on its own test split or on other pairs."""
    translator, recipe = context.estimator, context.recipe
    split = context.split_to_evaluate(
        source, _load_other, "pairs", note=lambda d: f", {' to '.join(d.columns)}"
    )
    log_truncated(translator, "source", count_truncated(translator, split), len(split), context.log)
    return search(translator, recipe, split)[0]


def example_fixture() -> tuple[Translator, tuple]:
    translator = Translator(**TINY, max_length=16, min_count=1, vocab_size=300)
    return translator, (TINY_TEXTS, TINY_TEXTS[::-1])


TASK = Task(
    estimator=Translator,
    target=TargetText(),
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    report="translation",
    example_fixture=example_fixture,
    collect_artifacts=collect_artifacts,
    verb="translate",
    packages=("tokenizers", "safetensors", "sacrebleu"),
)
