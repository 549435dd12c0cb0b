"""``MaskedLM``: pre-training by masked language modeling.

Fine-tune the result of a run with ``glassformer train imdb-minilm --model RUN/model``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.data.batching import BatchSettings, pack_texts
from glassformer.data.checks import check_texts
from glassformer.data.duplicates import comparison_key
from glassformer.data.findings import excerpt
from glassformer.data.masking import (
    NEXT_SENTENCE_SHARE,
    MaskedStream,
    MaskSettings,
    chunk_texts,
    clean_around_mask,
    mask_tokens,
    multi_sentence_share,
)
from glassformer.data.rejected import skip_message
from glassformer.data.sources import load_text_dataset
from glassformer.data.splits import random_split
from glassformer.data.text import TokenTable, clean_text, encode, word_tokenizer, wordpiece_tokenizer
from glassformer.data.tokenizer_file import count_ids, load_tokenizer
from glassformer.data.vocabulary import MASK, Vocabulary, piece_text
from glassformer.errors import BadValueError, ConfigError, DataError, counted
from glassformer.families import PRETRAINING
from glassformer.families.pretrained import Checkpoint, load_pretrained, read_checkpoint
from glassformer.finite import finite
from glassformer.inputs.texts import TINY_TEXTS, Texts
from glassformer.models.text import TextEncoder, init_local_attention
from glassformer.runtime import isolated_torch, runs_isolated
from glassformer.sklearn_base import check_is_fitted
from glassformer.tasks.build import (
    check_embedding_table,
    cover_vocabulary,
    init_token_embeddings,
    save_tokenizer,
)
from glassformer.tasks.estimator import Estimator, FitState, with_settings
from glassformer.tasks.masked_lm.recipe import (
    MaskTextConfig,
    PretrainFitConfig,
    PretrainModelConfig,
    PretrainRecipe,
)
from glassformer.tasks.task import TINY, DataPreview, RunContext, Task, named_splits, sample_items, split_rows
from glassformer.train.callbacks import Callback
from glassformer.train.distributed import require_single_process
from glassformer.train.objectives import MaskedWords, masked_token_losses


@with_settings
class MaskedLM(Estimator, MaskTextConfig, PretrainModelConfig, PretrainFitConfig):
    """Pre-training of BERT, from scratch or from a checkpoint.

    The parameters are the keys of a recipe's sections ``text``, ``model`` and ``train``;
    ``glassformer.tasks.masked_lm.recipe`` explains them. Fitted attributes: ``model_``, ``tokenizer_``,
    ``history_``, ``chunks_`` (examples per epoch), ``train_seconds_``, ``weights_source_``.
    """

    RECIPE, INPUTS = PretrainRecipe, Texts()
    TASK = PretrainRecipe.task

    # --- training --------------------------------------------------------------------------------

    def fit(
        self,
        texts: Sequence[str],
        y: None = None,
        *,
        validation: Sequence[str] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoints: str | Path | None = None,
        resume: bool = False,
    ) -> MaskedLM:
        """Train on raw texts.

        Args:
            y: ignored; present for scikit-learn's pipelines.
            validation: texts for evaluation after each epoch, always with the same masks.
            checkpoints, resume: see ``TextClassifier.fit``.

        Raises:
            DataError: a text is missing or empty, or no text has a word.
            ConfigError, CheckpointError: see ``TextClassifier.fit``.
        """
        return self._fit((texts, validation), callbacks, checkpoints, resume)

    def _examples(self, fit: FitState, *data: Any) -> tuple[list[str], list[str] | None]:
        texts, validation = data
        if self.next_sentence:
            require_single_process("next-sentence prediction needs one process", "Run it without torchrun")
        texts, validation_data = check_texts(self.training_examples(texts)), None
        if validation is not None:
            validation_data = check_texts(self.prediction_examples(validation, "validation"), "validation")
        elif fit.train.validation_fraction:
            groups = list(map(comparison_key, texts)) if fit.group_duplicates else None
            splits = random_split([texts], fit.train.validation_fraction, fit.train.seed, groups)
            (texts,), (validation_data,) = splits
        return texts, validation_data

    def _prepare(self, fit: FitState) -> tuple[TokenTable, TokenTable | None]:
        self.tokenizer_ = build_tokenizer(fit.configs["text"], fit.configs["model"], fit.examples)
        table = self._chunks(fit.examples)
        self.chunks_ = len(table)
        return table, None if fit.validation is None else self._chunks(fit.validation)

    def _build(self, fit: FitState) -> TextEncoder:
        text, model = fit.configs["text"], fit.configs["model"]
        return build_encoder(model, text, self.tokenizer_, fit.table, fit.train.seed)

    def _loop(self, fit: FitState) -> tuple[MaskedStream, MaskedWords, Callable[[], dict[str, float]] | None]:
        evaluate = None
        if fit.validation is not None:
            stream = self._stream(fit.validation_table, fit.train, fit.device)
            evaluate = masked_evaluator(fit.network, stream, self.batch_tokens or 8192)
        return self._stream(fit.table, fit.train, fit.device), MaskedWords(), evaluate

    def _arrays(self, fit: FitState) -> list[np.ndarray | None]:
        tables = [fit.table] if fit.validation is None else [fit.table, fit.validation_table]
        return [array for table in tables for array in (table.ids, table.starts)]

    def _chunks(self, texts: Sequence[str]) -> TokenTable:
        """Tokenize texts, and split them into chunks of ``max_length`` tokens with special tokens."""
        num_special = 3 if self.next_sentence else 2
        if self.max_length <= num_special:
            what = f"max_length = {self.max_length} leaves no room for {num_special} special tokens and text"
            raise ConfigError(what, where="max_length", fix="Use a larger max_length")
        return chunk_texts(self.tokenizer_, texts, self.max_length - num_special, self.clean)

    def _stream(self, table: TokenTable, train: PretrainFitConfig, device: torch.device) -> MaskedStream:
        masks = MaskSettings.of(self.tokenizer_, self.mask_share, self.whole_words)
        settings = BatchSettings(train.batch_size, train.batch_tokens, train.length_window)
        return MaskedStream.of(
            table,
            self.tokenizer_,
            masks=masks,
            max_length=self.max_length,
            settings=settings,
            accumulate=train.accumulate,
            seed=train.seed,
            device=device,
            next_sentence=self.next_sentence,
        )

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> MaskedLM:
        """The estimator for a transformers checkpoint with a masked language modeling head.

        Raises:
            CheckpointError: there is no tokenizer, or it does not match the embedding table.
        """
        folder, config = str(checkpoint.folder), checkpoint.config
        settings = {"model": folder, "tokenizer": "auto", "max_length": config.embedding.max_positions}
        tokenizer = load_tokenizer(checkpoint.folder)
        model = load_pretrained(cover_vocabulary(checkpoint, tokenizer, folder), "mlm")
        return cls.from_parts(settings, model, tokenizer=tokenizer, chunks=0)

    # --- use -------------------------------------------------------------------------------------

    def fill(self, text: str, top: int = 5) -> list[Any]:
        """The most probable words for each [MASK] in a text. The tokenizer's mask token works too.

        Returns:
            ``[(word, probability), ...]``, the best first. For several [MASK], a list of such lists.

        Raises:
            DataError: the text or the tokenizer has no [MASK], or the text is longer than ``max_length``.
        """
        predictions = self.fill_each(text, top)
        return predictions[0] if len(predictions) == 1 else predictions

    @runs_isolated
    def fill_each(self, text: str, top: int = 5) -> list[list[tuple[str, float]]]:
        """Same as ``fill``, but always a list with one entry per [MASK]."""
        check_is_fitted(self, "model_")
        text, masks = check_texts([text], "text")[0], MaskSettings.of(self.tokenizer_)
        vocabulary = Vocabulary.of(self.tokenizer_)
        text = text.replace(vocabulary.tokens["mask"], MASK)
        if MASK not in text:
            what = f"no {MASK} in the text {excerpt(text, 60)!r}"
            raise DataError(what, where="fill", fix=f"Write {MASK} for the word to guess")
        if top < 1:
            raise ConfigError(f"{top} is below 1", where="top", fix="Use 1 or more")
        # Cleaning keeps the white space around a mask, because some tokenizers turn it into a token.
        cleaned = clean_around_mask(text, vocabulary.tokens["mask"], self.clean)
        table = encode(self.tokenizer_, [cleaned], max_length=self.max_length)
        if table.truncated[0]:
            what = f"the text has more than {self.max_length} tokens"
            raise DataError(what, where="fill", fix="Shorten it")
        model = self.predictor()
        batch = pack_texts(table, np.array([0]), next(model.parameters()).device)
        positions = (batch.ids == vocabulary.mask).nonzero().squeeze(1)
        with isolated_torch():
            vectors = model.encode(batch.ids, batch.packing)[positions]  # [K, D] of K masks
            logits = finite(model.mlm_logits(vectors).float(), "logits")  # [K, V]
            # Special tokens and ids without a token are never predicted.
            is_excluded = torch.ones(logits.shape[1], dtype=torch.bool, device=logits.device)
            is_excluded[: len(masks.special)] = torch.from_numpy(masks.special).to(logits.device)
            logits[:, is_excluded] = float("-inf")
            best = logits.softmax(1).topk(min(top, int((~is_excluded).sum())), 1)
        return [
            [(piece_text(self.tokenizer_, i), p) for p, i in zip(values, words, strict=True)]
            for values, words in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]

    def score(self, texts: Sequence[str], y: None = None) -> float:
        """Accuracy on masked tokens in these texts, with the same masks in each call."""
        return self.judge(texts)["accuracy"]

    @runs_isolated
    def judge(self, texts: Sequence[str]) -> dict[str, float]:
        """Loss per masked token (nats), perplexity, accuracy and number of masked tokens.

        With ``next_sentence``, also the loss and accuracy of next-sentence prediction.
        """
        model = self.predictor()
        table = self._chunks(check_texts(self.prediction_examples(texts)))
        stream = self._stream(table, self.configs()["train"], next(model.parameters()).device)
        metrics = masked_evaluator(model, stream, self.batch_tokens or 8192)()
        finite(np.array(list(metrics.values())), "losses")
        return metrics

    # --- files -----------------------------------------------------------------------------------

    def write_parts(self, folder: Path) -> dict[str, Any]:
        """Save the tokenizer, so that ``TextClassifier(path)`` and ``transformers`` can open the folder."""
        save_tokenizer(
            self.tokenizer_, folder, self.max_length, segments=self.model_.config.embedding.segments
        )
        return {"chunks": self.chunks_}

    def read_parts(self, folder: Path, metadata: dict[str, Any]) -> None:
        self.tokenizer_ = load_tokenizer(folder)
        self.chunks_ = metadata["chunks"]

    def check_parts(self, folder: Path) -> None:
        check_embedding_table(self.tokenizer_, self.model_.config, str(folder))


def build_tokenizer(text: MaskTextConfig, model: PretrainModelConfig, texts: Sequence[str]) -> Tokenizer:
    """Load the tokenizer of the checkpoint or of a file, or train one on ``texts``.

    Raises:
        ConfigError: a checkpoint cannot have a new vocabulary, or there is no such tokenizer.
    """
    kinds = {"wordpiece": wordpiece_tokenizer, "word": word_tokenizer}
    if model.model not in PRETRAINING:
        if text.tokenizer not in ("auto", "wordpiece"):
            what = f"the weights of {model.model!r} belong to its own vocabulary"
            raise ConfigError(what, where="tokenizer", fix="Use auto")
        return load_tokenizer(resolve_checkpoint(model.model, model.revision).path)
    if text.tokenizer not in kinds and text.tokenizer != "auto":
        if not Path(text.tokenizer).exists():
            what = f"{text.tokenizer!r} is not a tokenizer"
            raise BadValueError(what, where="tokenizer", fix="Use wordpiece, word or a file")
        return load_tokenizer(text.tokenizer)
    train = kinds.get(text.tokenizer, wordpiece_tokenizer)
    return train(
        [clean_text(t, text.clean) for t in texts],
        vocab_size=text.vocab_size,
        min_count=text.min_count,
        lowercase=text.lowercase,
        strip_accents=text.strip_accents,
    )


def build_encoder(
    model: PretrainModelConfig, text: MaskTextConfig, tokenizer: Tokenizer, table: TokenTable, seed: int
) -> TextEncoder:
    """Build a new BERT or load a checkpoint's encoder, with the heads for pre-training.

    Args:
        table, seed: the training texts and the seed, for training word vectors.

    Raises:
        ConfigError: ``max_length`` is above the model's positions, or the word vectors are too wide or are
            set for a checkpoint.
        CheckpointError: the weights or vectors cannot be loaded.
    """
    if model.vectors is not None and model.model not in PRETRAINING:
        raise ConfigError("a checkpoint has its own token embeddings", where="vectors", fix="Leave it out")
    head = "pretraining" if text.next_sentence else "mlm"
    if model.model in PRETRAINING:
        config = PRETRAINING[model.model](
            count_ids(tokenizer),
            model.d_model,
            model.num_layers,
            model.num_heads,
            model.d_ff,
            model.max_positions,
            model.dropout,
            head=head,
            pooling="pooler" if text.next_sentence else None,
        )
        encoder = replace(config.encoder, attention_dropout=model.attention_dropout)
        built = TextEncoder(replace(config, encoder=encoder))
        built.weights_source = f"random ({model.model}, from scratch)"
        first_free = init_local_attention(built) if model.neighbours else 0  # column of the embeddings
        if model.vectors is not None:
            init_token_embeddings(built, model.vectors, tokenizer, table, seed, first_free)
    else:
        built = load_pretrained(
            cover_vocabulary(read_checkpoint(model.model, model.revision), tokenizer, model.model),
            head,
            dropout=model.dropout,
            attention_dropout=model.attention_dropout,
        )
    limit = built.config.embedding.max_positions
    if text.max_length > limit:
        what = f"{text.max_length} is more than the model's {limit} positions"
        raise ConfigError(what, where="max_length", fix=f"Use {limit} or less")
    return built


def masked_evaluator(network: Any, stream: MaskedStream, batch_tokens: int) -> Callable[[], dict[str, float]]:
    """Return a function that evaluates the network on all chunks of a stream, always with the same masks."""
    batches = stream.evaluation_steps(batch_tokens)

    def evaluate() -> dict[str, float]:
        loss, correct, count, pair_loss, correct_pairs, num_pairs = 0.0, 0, 0, 0.0, 0, 0
        with isolated_torch():
            for index in batches:
                batch = stream.pack(index)
                losses, predicted, pair_losses, is_pair_correct = masked_token_losses(network, batch)
                loss, correct = loss + float(losses.sum()), correct + int((predicted == batch.labels).sum())
                count += len(losses)
                if pair_losses is not None and is_pair_correct is not None:
                    pair_loss += float(pair_losses.sum())
                    correct_pairs += int(is_pair_correct.sum())
                    num_pairs += len(pair_losses)
        out = {"loss": loss / max(count, 1), "accuracy": correct / max(count, 1)}
        out |= {"perplexity": float(np.exp(min(out["loss"], 700.0))), "masked_tokens": count}
        if num_pairs:
            out["next_sentence_loss"] = pair_loss / num_pairs
            out["next_sentence_accuracy"] = correct_pairs / num_pairs
        return out

    return evaluate


MASK_SAMPLE = 2000  # number of texts for the statistics of masks in the report


@dataclass(frozen=True)
class Corpus:
    """Training and validation texts, and the numbers of texts that were left out."""

    name: str
    train: list[str]
    validation: list[str]
    counts: dict[str, int]  # split -> number of texts used
    excluded: dict[str, int] = field(default_factory=dict)  # excluded split -> number of texts in both
    repeated: int = 0  # number of duplicates that were left out
    rejected: tuple[Any, ...] = ()  # rows that cannot be used


def load_corpus(recipe: PretrainRecipe) -> Corpus:
    """Load the texts of a recipe without duplicates, and without texts of excluded splits."""
    data = recipe.data
    options = {"text_column": data.text_column, "seed": data.split_seed, "on_bad_row": data.on_bad_row}
    dataset = load_text_dataset(data.source, labels=False, **options)
    texts_by_split = {name: split.texts for name, split in named_splits(dataset, data, data.source).items()}
    exclude = [name for name in data.exclude if name in dataset.splits and name not in data.splits]
    excluded_texts = {name: set(dataset.splits[name].texts) for name in exclude}
    all_texts = [text for split in texts_by_split.values() for text in split]
    unique_texts = {*all_texts}
    num_excluded = {name: len(unique_texts & split) for name, split in excluded_texts.items()}
    left_out = set().union(*excluded_texts.values())
    texts, counts = [], {}
    for name, split in texts_by_split.items():
        new_texts = [text for text in dict.fromkeys(split) if text not in left_out]
        left_out.update(new_texts)  # other splits may repeat them
        sample = sample_items(new_texts, data)
        counts[name] = len(sample)
        texts += sample
    keys = list(map(comparison_key, texts)) if data.copies == "together" else None
    train_rows, validation_rows = split_rows(len(texts), "texts", data, keys)
    return Corpus(
        dataset.name,
        [texts[i] for i in train_rows],
        [texts[i] for i in validation_rows],
        counts,
        num_excluded,
        len(all_texts) - len(unique_texts),
        dataset.rejected,
    )


def load(recipe: PretrainRecipe) -> Corpus:
    """Check the recipe's example sentences, and load its corpus."""
    for sentence in recipe.evaluate.sentences:
        if MASK not in sentence:
            raise ConfigError(f"no {MASK} in {sentence!r}", where="evaluate.sentences")
    return load_corpus(recipe)


def preview_data(context: RunContext) -> DataPreview:
    corpus = context.data
    counts = ", ".join(f"{n:,} {split}" for split, n in corpus.counts.items())
    lines = [f"{corpus.name}: {counts} texts, {len(corpus.validation):,} of them held out"]
    for split, n in corpus.excluded.items():
        lines.append(f"texts that are also in {split}, left out: {n:,}")
    if corpus.repeated:
        lines.append(f"texts that repeat an earlier one, left out: {corpus.repeated:,}")
    uses_pairs = context.recipe.text.next_sentence
    if uses_pairs and (share := multi_sentence_share(corpus.train)) < NEXT_SENTENCE_SHARE:
        what = f"{1 - share:.0%} of the texts have one sentence, which next_sentence cuts in the middle"
        lines.append(f"{what}; --set next_sentence=false learns from whole ones")
    return DataPreview(lines, corpus.rejected)


def fit(context: RunContext, **options: Any) -> None:
    """Train on the texts that are not held out."""
    context.estimator.fit(context.data.train, validation=context.data.validation, **options)


def evaluate(context: RunContext) -> dict[str, Any]:
    """Metrics on validation texts, statistics of masks, and predictions for the recipe's sentences."""
    estimator, corpus, sentences = context.estimator, context.data, context.recipe.evaluate.sentences
    out: dict[str, Any] = {
        "masked": estimator.judge(corpus.validation),
        "masks": count_masked_tokens(estimator, corpus.train[:MASK_SAMPLE]),
        "texts": corpus.counts | {"validation": len(corpus.validation)},
        "excluded": corpus.excluded,
        "repeated": corpus.repeated,
        "chunks": estimator.chunks_,
    }
    if sentences:
        out["sentences"] = []
    for text in sentences:
        masks = estimator.fill_each(text, context.recipe.evaluate.top)
        fills = [[{"token": token, "probability": p} for token, p in words] for words in masks]
        out["sentences"].append({"text": text, "fills": fills})
    return out


def count_masked_tokens(estimator: MaskedLM, texts: Sequence[str]) -> dict[str, int]:
    """Numbers of tokens, and of those that masking chooses, masks, replaces at random or keeps."""
    masks = MaskSettings.of(estimator.tokenizer_, estimator.mask_share, estimator.whole_words)
    ids = chunk_texts(estimator.tokenizer_, texts, estimator.max_length, estimator.clean).ids.astype(np.int64)
    masked_ids, rows = mask_tokens(ids, masks, np.random.default_rng(estimator.seed))
    after, before = masked_ids[rows], ids[rows]
    return {
        "tokens": len(ids),
        "chosen": len(rows),
        "masked": int((after == masks.mask_id).sum()),
        "random": int(((after != masks.mask_id) & (after != before)).sum()),
        "kept": int((after == before).sum()),
    }


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved model on its validation texts or on other texts."""
    data = context.recipe.data
    if source is None:
        texts, origin = context.reload_data(["validation"]).validation, f"{data.source}, held out"
    else:
        options = {"text_column": data.text_column, "on_bad_row": data.on_bad_row}
        dataset = load_text_dataset(source, labels=False, **options)
        splits = dataset.splits
        if dataset.rejected:
            context.log(skip_message(dataset.rejected, is_listed=False))
        split = splits.get("test") or next(iter(splits.values()))
        texts, origin = split.texts, split.origin
    context.log(f"{counted(len(texts), 'text')} of {origin}")
    return {"masked": context.estimator.judge(texts)}


def example_fixture() -> tuple[MaskedLM, tuple]:
    sizes: dict[str, Any] = {"max_length": 16, "max_positions": 17, "min_count": 1, "vocab_size": 60}
    return MaskedLM(**TINY, **sizes, tokenizer="word"), (TINY_TEXTS,)


TASK = Task(
    estimator=MaskedLM,
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    report="masked words",
    example_fixture=example_fixture,
    checkpoint_heads=("mlm", "pretraining"),
    verb="fill",
)
