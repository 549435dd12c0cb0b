"""``glassformer doctor``, which checks whether this machine, or a model, is ready to use."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import typer

from glassformer import __version__
from glassformer.checkpoints.files import read_json
from glassformer.cli.data import source_locations
from glassformer.cli.options import argument, guess_data_option, option
from glassformer.cli.output import AS_JSON, print_json, print_message, show_table
from glassformer.data.folders import data_folders
from glassformer.data.tokenizer_file import load_tokenizer, tokenizer_files
from glassformer.data.vocabulary import Vocabulary, count_ids
from glassformer.errors import CheckpointError, InputError, WrongArgumentError
from glassformer.tasks.catalog import task_of_estimator_name

# --- checks of a model: its contents, and the commands that accept it --------------------------------


class CheckResult(NamedTuple):
    """The result of one check."""

    state: str  # ok | note | missing
    what: str  # name of the check
    found: str


_ok, _note, _missing = (partial(CheckResult, state) for state in ("ok", "note", "missing"))


def examine_model(name: str, revision: str | None = None) -> dict[str, list[CheckResult]]:
    """Run all checks of a model.

    Returns:
        Subject, such as "tokenizer" -> results. A result "missing" means that the model cannot be used.
    """
    from glassformer.checkpoints.hub import CATALOG, resolve_checkpoint
    from glassformer.checkpoints.settings import METADATA_FILE
    from glassformer.families.pretrained import load_pretrained, read_checkpoint

    if Path(name).is_file() and (option := guess_data_option(name)):
        fix = f"To check data: glassformer data doctor {shlex.quote(name)}"
        raise WrongArgumentError(f"looks like data for {option} and is not a model", where=name, fix=fix)
    path = Path(name).expanduser()
    if (results := _without_hub_format(path)) is not None:
        return {"checkpoint": [*_describe_run(path), *results]}
    resolved = resolve_checkpoint(name, revision)
    folder = resolved.path
    results = [_ok("folder", str(folder)), *_describe_run(path)]
    results.append(_ok("source", resolved.source))
    if name.lower() in CATALOG and resolved.from_hub:
        results.append(_note("checksum", "none; the commit is fixed, but the contents of its files are not"))
    by_subject = {"checkpoint": results}
    if (folder / METADATA_FILE).is_file():
        class_name, error = _try_load(folder)
        results.append(_saved_by_glassformer(class_name, error))
        results += [] if error else _int8_result(folder)
        if error or class_name in ("Translator", "Word2Vec"):
            return by_subject
    try:
        checkpoint = read_checkpoint(name, revision)
        results += _contents(checkpoint)
    except InputError as input_error:
        results.append(_missing("model", str(input_error)))
        return by_subject
    if getattr(checkpoint.family.model, "kind", "") == "linear":
        by_subject["n-grams"] = _collect_results("n-grams", _ngrams(folder, checkpoint))
    elif checkpoint.family.model.reads == "texts":
        by_subject["tokenizer"] = _collect_results("tokenizer", _tokenizer(checkpoint))
    else:
        by_subject["preprocessor"] = _collect_results("preprocessor", _preprocessor(folder))
    if any(result.state == "missing" for subject in by_subject.values() for result in subject):
        return by_subject
    try:
        load_pretrained(folder)  # compares names and shapes of the tensors
    except InputError as input_error:
        results.append(_missing("weights", str(input_error)))
        return by_subject
    by_subject["use"] = list(_uses(checkpoint, name))
    return by_subject


def _collect_results(what: str, results: Iterator[CheckResult]) -> list[CheckResult]:
    """The results as a list; the last one is "missing" if a check raised an error."""
    out: list[CheckResult] = []
    try:
        out.extend(results)
    except InputError as error:
        out.append(_missing(what, str(error)))
    return out


def _describe_run(folder: Path) -> list[CheckResult]:
    """A result about the run in a folder; empty if there is no run."""
    from glassformer.tasks.run import read_run_recipe

    if not (folder / "config.toml").is_file():
        return []
    try:
        recipe = read_run_recipe(folder)
    except InputError as error:
        return [_note("run", str(error))]
    return [_ok("run", f"{recipe.name}, {recipe.task}, trained on {recipe.data.source}")]


def _without_hub_format(folder: Path) -> list[CheckResult] | None:
    """Results for a saved model without a ``config.json``, such as word vectors; None for other models."""
    from glassformer.checkpoints.settings import METADATA_FILE

    inner = folder / "model" if (folder / "model" / METADATA_FILE).is_file() else folder
    if not (inner / METADATA_FILE).is_file() or (inner / "config.json").is_file():
        return None
    class_name, error = _try_load(inner)
    results = [_ok("folder", str(inner)), _saved_by_glassformer(class_name, error)]
    if not error:
        task, python = task_of_estimator_name(class_name), f"gf.load({str(folder)!r}) in Python"
        command = "" if task is None else f"glassformer {task.verb} {folder}, or "
        results.append(_ok("use", command + python))
    return results


def _saved_by_glassformer(class_name: str, error: str) -> CheckResult:
    return CheckResult("missing" if error else "ok", "saved by glassformer", error or class_name)


def _try_load(folder: Path) -> tuple[str, str]:
    """Load a model saved by glassformer; returns its class name and "", or "" and an error message."""
    from glassformer.tasks.load import load

    try:
        return type(load(folder)).__name__, ""
    except InputError as error:
        return "", str(error)


def _int8_result(folder: Path) -> list[CheckResult]:
    """The result of the model's int8 check; empty if the check was not run."""
    from glassformer.checkpoints.settings import METADATA_FILE
    from glassformer.tasks.classifier import describe_int8

    outcome = read_json(folder / METADATA_FILE).get("int8")
    if outcome is None:
        return []
    return [CheckResult("ok" if outcome["passed"] else "note", "int8", describe_int8(outcome))]


def _contents(checkpoint: Any) -> Iterator[CheckResult]:
    """Yield results about the model's family, head and sizes."""
    config, family = checkpoint.config, checkpoint.family
    class_names, architectures = "no architecture is named", checkpoint.settings.get("architectures")
    if isinstance(architectures, list):
        class_names = ", ".join(map(str, architectures))
    yield _ok("family", f"{family.model_type}, reads {family.model.reads} ({class_names})")
    yield _ok("head", _head(checkpoint))
    weights = sum(tensor.numel() for tensor in checkpoint.tensors.values())
    size = sum(file.stat().st_size for file in checkpoint.folder.glob("*.safetensors"))
    dtypes = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in checkpoint.tensors.values()})
    yield _ok("weights", f"{weights:,} in {', '.join(dtypes)}, {size / 2**20:,.1f} MiB")
    encoder, embedding = getattr(config, "encoder", None), config.embedding
    if encoder is not None:
        sizes = f"{encoder.num_layers} layers, d_model {encoder.d_model}, {encoder.num_heads} heads"
        yield _ok("encoder", f"{sizes}, d_ff {encoder.d_ff}, {encoder.norm}-norm, {encoder.activation}")
    if family.model.reads == "texts":
        longest = getattr(embedding, "longest", None) if encoder is not None else None
        yield _ok("longest text", f"{longest:,} tokens" if longest else "any length")


def _head(checkpoint: Any) -> str:
    if checkpoint.foreign_task:
        return f"for {checkpoint.foreign_task}"
    if checkpoint.head != "classification":
        heads = {"mlm": "masked words", "pretraining": "masked words and next sentence"}
        return heads.get(checkpoint.head, "none")
    id2label = checkpoint.settings.get("id2label")
    names = [str(name) for name in id2label.values()] if isinstance(id2label, dict) else []
    names_text = f": {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}" if names else ""
    return f"{checkpoint.config.num_labels} classes{names_text}"


def _tokenizer(checkpoint: Any) -> Iterator[CheckResult]:
    from glassformer.tasks.build import cover_vocabulary

    files, tokenizer = tokenizer_files(checkpoint.folder), load_tokenizer(checkpoint.folder)
    vocabulary = Vocabulary.of(tokenizer)
    yield _ok("read from", " with ".join(file.name for file in files))
    yield _ok("kind", f"{type(tokenizer.model).__name__}, {count_ids(tokenizer):,} tokens")
    yield _ok("special tokens", ", ".join(f"{kind} {token}" for kind, token in vocabulary.tokens.items()))
    num_embeddings = checkpoint.config.embedding.vocab_size
    try:
        is_extended = cover_vocabulary(checkpoint, tokenizer, str(checkpoint.folder)) is not checkpoint
    except InputError as error:
        yield _missing("embeddings", str(error))
        return
    note = "; embeddings for intermediate tokens are added" if is_extended else ""
    yield _ok("embeddings", f"{num_embeddings:,} tokens{note}")


def _ngrams(folder: Path, checkpoint: Any) -> Iterator[CheckResult]:
    from glassformer.checkpoints.ngrams import FILE, IDF, read_ngrams

    ngrams = read_ngrams(folder)
    yield _ok("read from", f"{FILE} with {IDF}.safetensors")
    yield _ok("features", f"{len(ngrams.words):,} n-grams of words, {len(ngrams.pieces):,} of characters")
    num_features = checkpoint.config.embedding.vocab_size
    if ngrams.width != num_features:
        what = f"the weights have {num_features:,} features, but there are {ngrams.width:,} n-grams"
        yield _missing("weights", what)
        return
    inputs = "pairs of texts" if ngrams.pairs else "single texts"
    yield _ok("reads", f"{inputs}, of any length, {'case ignored' if ngrams.lowercase else 'with case'}")


def _preprocessor(folder: Path) -> Iterator[CheckResult]:
    from glassformer.inputs.images import load_transform

    transform = load_transform(folder)
    width, height = transform.size[::-1]
    yield _ok("images", f"{width} x {height}, {transform.channels} channels, {transform.fit}")


def _uses(checkpoint: Any, name: str) -> Iterator[CheckResult]:
    """Yield a result for each use of the model: the command, or why it is not possible."""
    from glassformer.tasks.load import load

    texts = checkpoint.family.model.reads == "texts"
    estimator = "TextClassifier" if texts else "ImageClassifier"
    try:
        classes = getattr(load(checkpoint.folder), "classes_", None)
    except InputError as error:
        yield _note("predict, serve, export", f"{error.what}. {error.fix or ''}".strip())
    else:
        state, use = "note", "not possible: the model is not a classifier"
        if classes is not None:  # a regressor has one class
            number = f", {len(classes)} classes" if len(classes) > 1 else ""
            state, use = "ok", f"without further training{number}"
        yield CheckResult(state, "predict, serve, export", use)
    if getattr(checkpoint.family.model, "is_linear", False):
        yield _note(
            "fine-tune, embed",
            "not possible: a linear model is fitted from scratch, and has no embeddings",
        )
        return
    yield _ok("fine-tune", f"{estimator}({name!r}): {_fine_tuning(checkpoint)}")
    hub, has_mlm_head = checkpoint.family.hub, checkpoint.head in ("mlm", "pretraining")
    if has_mlm_head:
        yield _ok("fill", "without further training")
    if hub is not None and "mlm" in hub.classes:
        head = "with its head" if has_mlm_head else "with a new head"
        yield _ok("train further", f"MaskedLM({name!r}), {head}")
    if texts:
        yield _embedding_use(checkpoint)


def _fine_tuning(checkpoint: Any) -> str:
    """How the model is fine-tuned: pooling and head."""
    from glassformer.tasks.build import checkpoint_pooling
    from glassformer.tasks.image_classification.estimator import default_image_pooling

    if checkpoint.family.configure is not None:
        return "all layers, with a new head"
    texts, hub = checkpoint.family.model.reads == "texts", checkpoint.family.hub
    pooling = checkpoint_pooling(checkpoint) if texts else default_image_pooling(checkpoint)
    use = f"{pooling} pooling, new linear head"
    if hub is None or (hub.pooling, hub.head_type) == (pooling, "linear"):
        return use
    return f"{use} (transformers opens the encoder; with {hub.loadable_head()} it opens the head too)"


def _embedding_use(checkpoint: Any) -> CheckResult:
    """The result about the command ``embed``."""
    from glassformer.checkpoints.sentences import try_read_sentences
    from glassformer.tasks.build import default_pooling

    encoder = getattr(checkpoint.config, "encoder", None)
    modules = None if encoder is None else try_read_sentences(checkpoint.folder, encoder.d_model)
    if isinstance(modules, InputError):
        return _note("embed", f"not possible: {modules}")
    if encoder is None or modules is None:
        embedding = "the input of its head"
        if encoder is not None:
            embedding = f"{default_pooling(checkpoint.config)} pooling"
        return _note("embed", f"no modules.json: only after fitting a classifier ({embedding})")
    steps = ["+".join(modules.pool.modes), *(type(step).__name__ for step in modules.after)]
    prompts = f", prompts {', '.join(modules.prompts)}" if modules.prompts else ""
    limit = f", {modules.max_length} tokens at most" if modules.max_length else ""
    dimension = modules.width(encoder.d_model)
    return _ok("embed", f"modules.json: {', '.join(steps)}; dimension {dimension}{limit}{prompts}")


# --- checks of this machine -------------------------------------------------------------------------


MIN_PYTHON = (3, 11)
INSTALL_CPU_TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cpu"


def examine_machine() -> dict[str, list[CheckResult]]:
    """Run all checks of this machine.

    Returns:
        Subject, such as "packages" -> results. A result "missing" must be fixed.
    """
    packages = _packages()
    if any(result.what == "torch" and result.state == "missing" for result in packages):
        return {"packages": packages}
    data, weights = list(_data()), list(_weights())
    return {"machine": list(_machine()), "packages": packages, "data": data, "weights": weights}


def required_packages() -> dict[str, str]:
    """Required package -> minimum version."""
    requirements = metadata.requires("glassformer") or ()
    return dict(line.split(">=") for line in requirements if ";" not in line)


def _packages() -> list[CheckResult]:
    python = ".".join(map(str, sys.version_info[:3]))
    results = [CheckResult("ok" if sys.version_info >= MIN_PYTHON else "missing", "python", python)]
    for name, minimum in required_packages().items():
        install = f"pip install '{name}>={minimum}'"
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            results.append(_missing(name, f"not installed: {install}"))
            continue
        if _parse_version(installed) < _parse_version(minimum):
            results.append(_missing(name, f"{installed} is too old: {install}"))
        else:
            results.append(_ok(name, installed))
    return results


def _parse_version(version: str) -> tuple[int, ...]:
    """A version as integers: ``"2.13.0+cpu"`` becomes ``(2, 13, 0)``."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _machine() -> Iterator[CheckResult]:
    import torch

    from glassformer.nn import kernels
    from glassformer.nn.kernels import int8
    from glassformer.runtime import choose_device, choose_dtype, has_fast_bf16, machine_facts

    facts: dict[str, Any] = machine_facts()
    device, cuda = choose_device(), torch.version.cuda
    yield _ok("processor", f"{facts['cpu']}, {facts['cores']} cores, {facts['threads']} threads used")
    yield _ok("memory", f"{facts['memory_gib']} GiB")
    yield _ok("GPU", f"{facts['gpu']}, CUDA {cuda}" if facts["gpu"] else "none")
    if cuda and not facts["gpu"]:
        smaller = f"the CPU build is smaller by gigabytes: {INSTALL_CPU_TORCH}"
        yield _note("torch", f"built for CUDA {cuda}, but there is no GPU; {smaller}")
    if has_fast_bf16(device):
        yield _ok("bf16", ", ".join(facts["bf16"]) if device.type == "cpu" else "supported by the GPU")
    else:
        yield _note("bf16", "not supported by this CPU: all computations are in float32, which is slower")
    dtype = str(choose_dtype("auto", device)).removeprefix("torch.")
    yield _ok("default", f"{dtype} on {device.type}")
    reason, level = kernels.why_not(), kernels.level()
    if reason is not None or level is None:
        yield _note("kernels in C", f"not used: {reason}")
    else:
        operations = "attention, GELU, layer norm" if level.bf16 else "attention, GELU with tanh in fp32"
        operations += ", linear layers' gradients" if level.name == "amx" else ""
        yield _ok("kernels in C", f"{level.title}: {operations}, from {level.file}")
    if reason := int8.why_not():
        yield _note("int8", f"not used: {reason}")
    else:
        yield _ok("int8", "for classifiers, precision=int8 after a check on their validation labels")


def _data() -> Iterator[CheckResult]:
    variable = os.environ.get("GLASSFORMER_DATA")
    for folder in data_folders():
        is_variable = variable is not None and folder == Path(variable)
        origin = "GLASSFORMER_DATA" if is_variable else "searched folder"
        missing = "" if folder.is_dir() else " (no such folder)"
        yield (_note if is_variable and missing else _ok)(origin, f"{folder}{missing}")
    for name, location in source_locations().items():
        yield (_note if "not here" in location else _ok)(name, location)


def _weights() -> Iterator[CheckResult]:
    from glassformer.checkpoints.hub import CATALOG, resolve_checkpoint

    names: dict[Any, list[str]] = {}
    for name, entry in CATALOG.items():  # a checkpoint may have several names
        names.setdefault(entry, []).append(name)
    for entry, (name, *aliases) in names.items():
        alias_note = f"; also named {', '.join(aliases)}" if aliases else ""
        commit = f" at commit {entry.revision[:12]}" + ("" if entry.sha256 else ", no checksum")
        if entry.package and importlib.util.find_spec(entry.package):
            try:
                yield _ok(name, f"{resolve_checkpoint(name).source}{alias_note}")
            except CheckpointError as error:
                yield _note(name, str(error))
        elif _in_hub_cache(entry.repo, entry.revision):
            yield _ok(name, f"in the Hub cache: {entry.repo}{commit}{alias_note}")
        else:
            source = f"not here; downloaded from {entry.repo} on the Hub when first used{commit}{alias_note}"
            yield _note(name, source)


def _in_hub_cache(repo: str, revision: str) -> bool:
    """Whether the local Hub cache has the weights of a revision; does not use the network."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    folder = cache / f"models--{repo.replace('/', '--')}" / "snapshots" / revision
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def doctor_command(
    model: str | None = argument(
        "MODEL", "Model or run to check: a folder, a name or a Hub id. Omit it to check this machine."
    ),
    revision: str | None = option(None, "Revision of the model on the Hub.", "--revision"),
    json: bool = AS_JSON,
) -> None:
    """Check this machine (packages, dtypes, data sets, weights), or a model."""
    if model is None:
        if revision is not None:
            raise typer.BadParameter("--revision needs a MODEL")
        by_subject = examine_machine()
    else:
        by_subject = examine_model(model, revision)
    missing = [r.what for results in by_subject.values() for r in results if r.state == "missing"]
    if json:
        print_json({subject: [r._asdict() for r in results] for subject, results in by_subject.items()})
    else:
        for subject, results in by_subject.items():
            show_table(subject, ("", "what", "found"), results)
        problem = "missing" if model is None else "cannot be used"
        print_message(
            f"glassformer {__version__}: " + (f"{problem}: {', '.join(missing)}" if missing else "ready")
        )
    if missing:
        raise typer.Exit(1)
