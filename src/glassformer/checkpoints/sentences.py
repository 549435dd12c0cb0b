"""Read and write folders of sentence-transformers.

modules.json                         the steps: Transformer, Pooling, then any number of Dense and Normalize
1_Pooling/config.json                pooling modes, and whether the prompt is included
2_Dense/config.json, model.safetensors
sentence_bert_config.json            max_seq_length, do_lower_case
config_sentence_transformers.json    prompts, truncate_dim, similarity_fn_name

An unknown setting in these files raises an error, because it could change the embeddings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.names import list_names
from glassformer.checkpoints.settings import get_section, get_size, get_text, shorten
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.tokenizer_file import check_truncation_side, model_max_length
from glassformer.errors import CheckpointError, UnsupportedModelError
from glassformer.finite import json_text
from glassformer.models.sentences import (
    ACTIVATIONS,
    COSINE,
    POOLS,
    SIMILARITIES,
    Dense,
    EmbeddingSettings,
    Normalize,
    Pool,
    token_limit,
)
from glassformer.reading import read_regular, unique_keys

MODULES, SETTINGS, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
INPUT_OUTPUT_KEYS = ("module_input_name", "module_output_name")
PACKAGE = "sentence_transformers."  # other packages are refused, because their code would run
KINDS = ("Transformer", "Pooling", "Dense", "Normalize")  # supported steps
MAX_BYTES = 1 << 20  # maximum size of each JSON file
MAX_STEPS = 16
MAX_WIDTH = 65_536  # maximum number of features of an embedding
MAX_PROMPTS = 256
MAX_PROMPT_LENGTH = 10_000  # characters
# Old folders have a boolean per pooling mode, new folders have a list of modes
OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_USE_ENCODER = "Its encoder can still be fine-tuned: TextClassifier(folder)"
# File or step -> settings that are not used and do not change embeddings
HARMLESS: dict[str, tuple[str, ...]] = {
    MODULES: ("idx", "name", "path", "type", "kwargs"),
    SETTINGS: ("unpad_inputs",),  # whether batches have padding
    PROMPTS: ("__version__", "requirements", "created_with"),
    "Pooling": ("pooling_output_dimension",),
    "Dense": (),
    "Normalize": (),
}
# Options for loading that do not change embeddings of the fp32 model
LOADING_OPTIONS = {
    "add_pooling_layer",
    "attn_implementation",
    "dtype",
    "low_cpu_mem_usage",
    "torch_dtype",
    "trust_remote_code",
    "use_safetensors",
}
# Required values of settings of the step Transformer: it must return the hidden states of all tokens
REQUIRED = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
LOADING_KEYS = ("model_args", "model_kwargs")


def try_read_sentences(folder: Path, d_model: int) -> EmbeddingSettings | CheckpointError | None:
    """The result of ``read_sentences``, or its error; None if there is no ``modules.json``."""
    if not (folder / MODULES).exists():
        return None
    try:
        return read_sentences(folder, d_model)
    except CheckpointError as error:
        return error


def read_sentences(folder: Path, d_model: int) -> EmbeddingSettings:
    """Read the steps, lengths and prompts with which a folder embeds sentences.

    Args:
        d_model: number of features of the encoder.

    Raises:
        CheckpointError: a file is damaged or too large, a step is unknown, or settings and weights differ.
    """
    where = str(folder / MODULES)
    steps = _read_steps(folder / MODULES)
    kinds = [kind for kind, _ in steps]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) & {"Transformer", "Pooling"} or steps[0][1]:
        names = ", ".join(kinds) or "none"
        what = f"the steps are {names}; expected: Transformer (in this folder), Pooling, and then others"
        raise UnsupportedModelError(what, where=where, fix=_USE_ENCODER)
    pool = _read_pooling(folder / steps[1][1], d_model)
    layers: list[Dense | Normalize] = []
    width = d_model * len(pool.modes)
    for kind, path in steps[2:]:
        if kind == "Dense":
            step = _read_dense(folder / path, width)
            width = len(step.weight)
            layers.append(step)
        else:
            layers.append(_read_normalize(folder / path) if path else Normalize())
    check_truncation_side(folder, _USE_ENCODER)
    length, lowercase = _read_lengths(folder)
    prompts, default, truncate, similarity = _read_prompts(folder / PROMPTS)
    return EmbeddingSettings(
        pool, tuple(layers), length, lowercase, prompts, default, folder, truncate, similarity
    )


def _check_known(settings: Mapping[str, Any], used_keys: Sequence[str], kind: str, where: str) -> None:
    """Raise CheckpointError for a setting that is neither used nor harmless."""
    for key, value in settings.items():
        if key not in used_keys and key not in HARMLESS[kind] and value not in (None, False, "", [], {}):
            fix = f"Known: {', '.join(used_keys)}. {_USE_ENCODER}"
            raise UnsupportedModelError(
                f"the setting {key} = {shorten(value)} is not supported", where=where, fix=fix
            )


def _read_steps(file: Path) -> list[tuple[str, str]]:
    """The kind and sub-folder of each step."""
    try:
        steps = json.loads(read_regular(file, MAX_BYTES).decode("utf-8"), object_pairs_hook=unique_keys)
    except OSError as error:
        raise CheckpointError(error.strerror or "cannot be read", where=str(file)) from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"is not valid JSON: {error}", where=str(file)) from None
    if not isinstance(steps, list) or len(steps) > MAX_STEPS or not all(isinstance(s, dict) for s in steps):
        raise CheckpointError(f"is not a list of at most {MAX_STEPS} steps", where=str(file))
    result = []
    for step in steps:
        _check_known(step, (), MODULES, str(file))
        kind, path = get_text(step, "type", str(file), ""), get_text(step, "path", str(file), "")
        name = kind.rpartition(".")[2]
        if not kind.startswith(PACKAGE) or name not in KINDS:
            fix = f"Known: {', '.join(KINDS)}. {_USE_ENCODER}"
            raise UnsupportedModelError(
                f"a step of the kind {shorten(kind)} is not supported", where=str(file), fix=fix
            )
        if set(path) & set("/\\:\0") or path in (".", ".."):
            raise CheckpointError(
                f"{shorten(path)} is not a folder of a step", where=str(file), fix="Do not use it"
            )
        if name in ("Pooling", "Dense") and not path:
            raise CheckpointError(f"the step {name} has no folder", where=str(file))
        result.append((name, path))
    return result


def _flag(settings: Mapping[str, Any], key: str, where: str, default: bool) -> bool:
    value = settings.get(key, default)
    if not isinstance(value, bool):
        raise CheckpointError(f"{key} = {shorten(value)} is neither true nor false", where=where)
    return value


def _read_pooling(folder: Path, d_model: int) -> Pool:
    where = str(folder / "config.json")
    settings = read_json(where, MAX_BYTES)
    widths = ("embedding_dimension", "word_embedding_dimension")
    _check_known(settings, (*widths, "pooling_mode", *OLD_MODES, "include_prompt"), "Pooling", where)
    for key in widths:
        if key in settings and get_size(settings, key, where) != d_model:
            what = f"{key} = {settings[key]}, but the encoder has {d_model} features"
            raise CheckpointError(what, where=where)
    modes = settings.get("pooling_mode")
    if modes is None:
        modes = [mode for key, mode in OLD_MODES.items() if _flag(settings, key, where, False)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    if (
        not isinstance(modes, list)
        or not modes
        or len(modes) > len(POOLS)
        or not all(isinstance(mode, str) and mode in POOLS for mode in modes)
    ):
        raise CheckpointError(
            f"pooling_mode = {shorten(modes)}", where=where, fix=f"Known: {', '.join(POOLS)}"
        )
    return Pool(tuple(modes), _flag(settings, "include_prompt", where, True))


def _check_input_output(settings: Mapping[str, Any], where: str) -> None:
    """Raise CheckpointError if a step reads or writes anything but the sentence embedding."""
    for key in INPUT_OUTPUT_KEYS:
        if settings.get(key) not in (None, "sentence_embedding"):
            raise UnsupportedModelError(f"{key} = {shorten(settings[key])} is not supported", where=where)


def _read_normalize(folder: Path) -> Normalize:
    where = str(folder / "config.json")
    if (folder / "config.json").exists():
        settings = read_json(where, MAX_BYTES)
        _check_input_output(settings, where)
        _check_known(settings, INPUT_OUTPUT_KEYS, "Normalize", where)
    return Normalize()


def _read_dense(folder: Path, width: int) -> Dense:
    where = str(folder / "config.json")
    settings = read_json(where, MAX_BYTES)
    _check_input_output(settings, where)
    sizes = ("in_features", "out_features")
    used_keys = (*sizes, "activation_function", "bias", "use_residual", *INPUT_OUTPUT_KEYS)
    _check_known(settings, used_keys, "Dense", where)
    num_in, num_out = (get_size(settings, key, where) for key in sizes)
    if num_in != width or num_out > MAX_WIDTH:
        what = (
            f"a dense layer from {num_in:,} to {num_out:,} features, after {width:,} ({MAX_WIDTH:,} at most)"
        )
        raise CheckpointError(what, where=where)
    activation = get_text(settings, "activation_function", where, "torch.nn.modules.activation.Tanh")
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.nn.") or name not in ACTIVATIONS:
        fix = f"Known: {', '.join(ACTIVATIONS)}"
        raise CheckpointError(f"activation_function = {shorten(activation)}", where=where, fix=fix)
    bias, residual = _flag(settings, "bias", where, True), _flag(settings, "use_residual", where, False)
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (num_out, num_in)}
    if bias:
        shapes["linear.bias"] = (num_out,)
    if residual and num_in != num_out:
        shapes["residual.weight"] = (num_out, num_in)
    tensors = read_tensors(folder)
    if different := sorted(shapes.keys() ^ tensors.keys()):
        raise CheckpointError(list_names("missing or unexpected tensors", different), where=str(folder))
    for key, tensor in tensors.items():
        if tuple(tensor.shape) != shapes[key] or not tensor.is_floating_point():
            what = f"{key} is {tuple(tensor.shape)} of {tensor.dtype}, but config.json requires {shapes[key]}"
            raise CheckpointError(what, where=str(folder))
    fp32: dict[str, Tensor] = {key: tensor.float() for key, tensor in tensors.items()}
    return Dense(fp32["linear.weight"], fp32.get("linear.bias"), name, residual, fp32.get("residual.weight"))


def _read_lengths(folder: Path) -> tuple[int | None, bool]:
    """The settings ``max_seq_length`` (None: not set) and ``do_lower_case``."""
    files = [folder / SETTINGS, *sorted(folder.glob("sentence_*_config.json"))]
    file = next((file for file in files if file.exists()), None)
    settings = {} if file is None else read_json(file, MAX_BYTES)
    where = str(file)
    used_keys = {"max_seq_length": None, "do_lower_case": None} | REQUIRED
    _check_known(settings, (*used_keys, *LOADING_KEYS), SETTINGS, where)
    for key, expected in REQUIRED.items():
        if settings.get(key) not in (None, expected):
            raise UnsupportedModelError(f"{key} = {shorten(settings[key])} is not supported", where=where)
    for key in LOADING_KEYS:
        options = get_section({key: settings.get(key) or {}}, key, where)
        if unknown := sorted(options.keys() - LOADING_OPTIONS):
            what = f"{key} has {unknown[0]} = {shorten(options[unknown[0]])}, which is not supported"
            raise UnsupportedModelError(what, where=where, fix=_USE_ENCODER)
    lowercase = _flag(settings, "do_lower_case", where, False)
    if settings.get("max_seq_length") is None:
        return model_max_length(folder), lowercase
    return get_size(settings, "max_seq_length", where), lowercase


def _read_prompts(file: Path) -> tuple[dict[str, str], str | None, int | None, str]:
    """The prompts, the name of the default one, ``truncate_dim`` and ``similarity_fn_name``."""
    settings = read_json(file, MAX_BYTES) if file.exists() else {}
    used_keys = ("prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name", "model_type")
    _check_known(settings, used_keys, PROMPTS, str(file))
    if settings.get("model_type") not in (None, "SentenceTransformer"):
        what = f"model_type = {shorten(settings['model_type'])}: it does not return one vector per text"
        raise UnsupportedModelError(what, where=str(file), fix=_USE_ENCODER)
    similarity = settings.get("similarity_fn_name") or COSINE
    if similarity not in SIMILARITIES:
        what = f"similarity_fn_name = {shorten(similarity)} is not known"
        raise UnsupportedModelError(what, where=str(file), fix=f"Known: {', '.join(SIMILARITIES)}")
    truncate = settings.get("truncate_dim")
    if truncate is not None:
        truncate = get_size(settings, "truncate_dim", str(file))
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or len(prompts) > MAX_PROMPTS:
        what = f"'prompts' is not an object of at most {MAX_PROMPTS} prompts"
        raise CheckpointError(what, where=str(file))
    texts = {name: "" if prompt is None else prompt for name, prompt in prompts.items()}
    for name, prompt in texts.items():
        if not isinstance(prompt, str) or len(prompt) > MAX_PROMPT_LENGTH:
            what = f"the prompt {shorten(name)} is not a text of at most {MAX_PROMPT_LENGTH:,} characters"
            raise CheckpointError(what, where=str(file))
    default = settings.get("default_prompt_name")
    if default is not None and (not isinstance(default, str) or default not in {"query", "document", *texts}):
        raise CheckpointError(f"default_prompt_name = {shorten(default)} is not a prompt", where=str(file))
    return texts, default, truncate, similarity


def write_sentences(sentences: EmbeddingSettings, folder: Path, config: Any) -> None:
    """Write the files of sentence-transformers to a folder that already has the encoder and the tokenizer.

    Args:
        config: config of the encoder.
    """

    def save(name: str, value: Any) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json_text(value, indent=2, ascii=True) + "\n", encoding="utf-8")

    kinds = ["Transformer", "Pooling", *(type(step).__name__ for step in sentences.after)]
    paths = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds) if i)]
    save(
        MODULES,
        [
            {"idx": i, "name": str(i), "path": path, "type": f"{PACKAGE}models.{kind}"}
            for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
        ],
    )
    pool = sentences.pool
    modes = {key: mode in pool.modes for key, mode in OLD_MODES.items()}
    if tuple(mode for mode in POOLS if mode in pool.modes) != pool.modes:
        modes = {"pooling_mode": list(pool.modes)}  # booleans cannot represent another order
    save(
        f"{paths[1]}/config.json",
        {"word_embedding_dimension": config.encoder.d_model, **modes, "include_prompt": pool.include_prompt},
    )
    for path, step in zip(paths[2:], sentences.after, strict=True):
        if isinstance(step, Dense):
            _write_dense(step, folder / path)
    length = token_limit(config.embedding, sentences.max_length)
    save(SETTINGS, {"max_seq_length": length, "do_lower_case": sentences.lowercase})
    prompts = {"prompts": dict(sentences.prompts), "default_prompt_name": sentences.default_prompt}
    other_settings = {"truncate_dim": sentences.truncate_dim, "similarity_fn_name": sentences.similarity}
    defaults = {"truncate_dim": None, "similarity_fn_name": COSINE}
    save(PROMPTS, prompts | {key: value for key, value in other_settings.items() if value != defaults[key]})


def _write_dense(step: Dense, folder: Path) -> None:
    num_out, num_in = step.weight.shape
    kind = "linear" if step.activation == "Identity" else "activation"
    settings: dict[str, Any] = {
        "in_features": num_in,
        "out_features": num_out,
        "bias": step.bias is not None,
        "activation_function": f"torch.nn.modules.{kind}.{step.activation}",
    }
    if step.residual:
        settings["use_residual"] = True
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json_text(settings, indent=2, ascii=True) + "\n", encoding="utf-8")
    tensors = {
        "linear.weight": step.weight,
        "linear.bias": step.bias,
        "residual.weight": step.residual_weight,
    }
    write_tensors(folder, {key: tensor for key, tensor in tensors.items() if tensor is not None})
