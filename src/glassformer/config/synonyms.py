"""Hints for unknown names: a similar known name, or the key for a setting of another library."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

MAX_LISTED = 100  # maximum number of names that a message lists

# Key -> its names in transformers, sentence-transformers, Keras, PEFT, scikit-learn and gensim. If a name
# means several keys, the first of them that the recipe has is suggested.
KEYS = {
    "weight_decay": ("wd", "l2", "alpha", "adam_weight_decay"),  # before lr, which gensim calls alpha
    "lr": ("learning_rate", "eta", "eta0", "step_size", "learning_rate_init", "base_lr", "alpha"),
    "epochs": ("num_train_epochs", "num_epochs", "n_epochs", "max_epochs", "nb_epoch", "max_iter", "iter"),
    "batch_size": (
        "per_device_train_batch_size",
        "per_gpu_train_batch_size",
        "train_batch_size",
        "bs",
        "batch",
        "per_device_eval_batch_size",
        "mini_batch_size",
    ),
    "accumulate": ("gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum"),
    "warmup": ("warmup_ratio", "warmup_steps", "num_warmup_steps", "warmup_proportion"),
    "schedule": ("lr_scheduler_type", "lr_scheduler", "scheduler"),
    "clip": ("max_grad_norm", "gradient_clip_val", "clipnorm", "grad_clip"),
    "optimizer": ("optim", "solver"),
    "label_smoothing": ("label_smoothing_factor", "smoothing"),
    "class_weight": ("weights", "balanced"),
    "monitor": ("metric_for_best_model", "metric", "best_metric", "scoring"),
    "keep_best": ("load_best_model_at_end", "save_best_only", "restore_best_weights"),
    "early_stopping": ("early_stopping_patience", "patience", "n_iter_no_change"),
    "validation_fraction": ("validation_split",),
    "validation_size": ("val_size", "eval_size", "dev_size", "valid_size"),
    "test_size": ("test_split", "test_fraction"),
    "evaluate_every": ("eval_steps", "evaluation_strategy", "eval_strategy", "val_check_interval"),
    "checkpoint_every": ("save_steps", "save_strategy", "save_every"),
    "seed": ("random_state", "random_seed", "data_seed", "manual_seed"),
    "threads": ("n_jobs", "num_workers", "num_threads", "dataloader_num_workers", "workers"),
    "precision": ("fp16", "bf16", "amp", "mixed_precision", "torch_dtype", "dtype"),
    "device": ("use_cpu", "no_cuda", "cuda", "gpu", "gpus", "accelerator"),
    "model": (
        "model_name_or_path",
        "model_name",
        "pretrained_model_name_or_path",
        "checkpoint",
        "architecture",
        "arch",
        "backbone",
    ),
    "max_length": (
        "max_seq_length",
        "max_seq_len",
        "maxlen",
        "max_len",
        "model_max_length",
        "sequence_length",
        "max_tokens",
    ),
    "min_count": ("min_df", "min_frequency", "min_freq"),
    "dim": ("vector_size", "vector_length", "size", "emb_dim"),
    "window": ("window_size", "context_size"),
    "negative": ("negatives", "num_negatives", "num_neg", "ns"),
    "subsample": ("sample", "subsampling"),
    "exponent": ("ns_exponent",),
    "max_words": ("max_final_vocab", "max_vocab_size", "max_features"),
    "d_model": ("hidden_size", "hidden_dim", "embed_dim", "n_embd", "width"),
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "depth", "layers"),
    "num_heads": ("num_attention_heads", "n_head", "n_heads", "heads"),
    "d_ff": ("intermediate_size", "ffn_dim", "dim_feedforward", "mlp_dim"),
    "dropout": ("hidden_dropout_prob", "resid_pdrop", "drop_rate", "dropout_rate"),
    "attention_dropout": ("attention_probs_dropout_prob", "attn_dropout", "attn_pdrop"),
    "lora_rank": ("lora_r", "r", "rank"),
    "lora_targets": ("target_modules",),
    "train_layers": ("freeze", "freeze_layers", "frozen_layers"),
    "average": ("ema", "ema_decay"),
    "image_size": ("img_size", "input_size", "resolution", "crop_size"),
    "augment": ("augmentation", "data_augmentation", "aug"),
    "text_column": ("text_column_name", "text_field", "text_col", "sentence1_key", "text_key"),
    "pair_column": ("text_pair_column", "sentence2_key", "text_pair_key", "second_column"),
    "label_column": ("label_column_name", "label_field", "label_col", "target_column", "label_key", "y_col"),
    "source": ("train_file", "dataset_name", "data_dir", "dataset", "data_path"),
}
OPTIONS = {  # name in other libraries -> option of the command
    "output_dir": "--out",
    "out_dir": "--out",
    "save_dir": "--out",
    "logging_dir": "--out",
    "resume_from_checkpoint": "--resume",
    "overwrite_output_dir": "--out",
}
# Options of other programs whose value is a table
TABLE_OPTIONS = ("csv", "tsv", "file", "input_file", "train_file", "input", "table", "dataset", "data")
KEYS_BY_NAME: dict[str, list[str]] = {}
for _key, _names in KEYS.items():
    for _name in _names:
        KEYS_BY_NAME.setdefault(_name, []).append(_key)
# Parameter of gensim's Word2Vec that glassformer does not have -> hint
WORD2VEC_HINTS = {
    "sentences": "Pass the sentences to fit",
    "corpus_file": "Pass the path to fit",
    "sg": "Only skip-gram with negative sampling is supported",
    "hs": "Only skip-gram with negative sampling is supported",
    "cbow_mean": "Only skip-gram with negative sampling is supported",
    "min_alpha": "The learning rate falls to 0.0001",
    "compute_loss": "history_ has the loss",
    "callbacks": "Pass a function to fit as tell, or with optimizer = adam as callbacks",
    "trim_rule": "min_count and max_words determine which words are kept",
    "shrink_windows": "Windows shrink at random",
    "batch_words": "There is no such setting",
    "null_word": "There is no such setting",
    "sorted_vocab": "Words are sorted by frequency",
    "comment": "There is no such setting",
}
# Name in another library -> how to write the value in glassformer, if it has another meaning
NOTES = {
    "warmup_steps": "a share of all steps, such as 0.06",
    "num_warmup_steps": "a share of all steps, such as 0.06",
    "fp16": "precision=bf16 or fp32",
    "bf16": "precision=bf16 or fp32",
    "no_cuda": "device=cpu",
    "use_cpu": "device=cpu",
    "freeze": "train_layers=0 trains only the head",
    "balanced": "class_weight=balanced",
}


def as_key(name: str) -> str:
    """Convert a name to the form of keys: ``--Learning-Rate`` becomes ``learning_rate``."""
    return name.strip().lstrip("-").replace("-", "_").lower()


def matching_key(name: str, keys: Collection[str]) -> str | None:
    """The key among ``keys`` that corresponds to a setting of another library; None if there is none.

    A section before the name, as in ``train.learning_rate``, is ignored.
    """
    return next((key for key in KEYS_BY_NAME.get(as_key(name.rpartition(".")[2]), ()) if key in keys), None)


def foreign_name_hint(name: str, keys: Collection[str]) -> str | None:
    """A hint for a name of another library; None for an unknown name."""
    short_name = as_key(name.rpartition(".")[2])
    key = matching_key(name, keys)
    if key is not None:
        return f"Here it is called {key!r}" + (f": {NOTES[short_name]}" if short_name in NOTES else "")
    if "subsample" in keys and short_name in WORD2VEC_HINTS:
        return WORD2VEC_HINTS[short_name]
    return f"Here it is the option {OPTIONS[short_name]}" if short_name in OPTIONS else None


MIN_PART = 4  # minimum length of a part of a name that identifies it, as "minilm" does "all-minilm-l6-v2"


def suggest(name: str, names: Sequence[str]) -> str:
    """A hint such as ``Did you mean 'epochs'?``; if no name is similar, the list of known names."""
    candidates = list(names)[:1_000]  # a table may have very many columns
    longer = [other for other in candidates if len(name) >= MIN_PART and name.casefold() in other.casefold()]
    longer_first = [other for other in longer if other.casefold().startswith(name.casefold())]
    similar = longer_first if len(longer_first) == 1 else []
    for names_to_compare in (longer_first, candidates):
        similar = similar or difflib.get_close_matches(name[:200], names_to_compare, n=1, cutoff=0.55)
    similar = similar or (longer if len(longer) == 1 else [])
    return f"Did you mean {similar[0]!r}?" if similar else f"Known: {join_names(sorted(names))}"


def join_names(names: Sequence[str]) -> str:
    """Names joined by commas, for a message; of more than ``MAX_LISTED``, the first half of this number."""
    if len(names) <= MAX_LISTED:
        return ", ".join(names)
    return f"{', '.join(names[: MAX_LISTED // 2])} and {len(names) - MAX_LISTED // 2:,} more"
