"""``glassformer doctor``: check whether this machine, or a model, is ready to use."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import typer

from glassformer import __version__
from glassformer.checkpoints.files import read_json
from glassformer.cli.data import source_locations
from glassformer.cli.options import argument, data_option, option
from glassformer.cli.output import AS_JSON, say, say_json, show_table
from glassformer.data.folders import data_folders
from glassformer.data.tokenizer_file import load_tokenizer, tokenizer_files
from glassformer.data.vocabulary import Vocabulary, count_ids
from glassformer.errors import CheckpointError, InputError, WrongArgumentError
from glassformer.tasks.catalog import task_of_estimator_name

# --- a model --------------------------------------------------------------------------------------
#
# What is in a checkpoint, and which commands accept it.


class Line(NamedTuple):
    """The result of one check."""

    state: str  # ok | note | missing
    what: str
    found: str


def examine_model(name: str, revision: str | None = None) -> dict[str, list[Line]]:
    """Run every check of a model; lines by subject. If one is ``missing``, the model cannot be used."""
    from glassformer.checkpoints.hub import CATALOG, resolve_checkpoint
    from glassformer.checkpoints.settings import ABOUT
    from glassformer.families.pretrained import load_pretrained, read_checkpoint

    if Path(name).is_file() and (option := data_option(name)):
        fix = f"To look at data: glassformer data doctor {shlex.quote(name)}"
        raise WrongArgumentError(f"looks like data for {option} and is not a model", where=name, fix=fix)
    if (inner_lines := _without_hub_format(Path(name).expanduser())) is not None:
        return {"checkpoint": [*_run_of(Path(name).expanduser()), *inner_lines]}
    resolved = resolve_checkpoint(name, revision)
    folder, catalog_entry = resolved.path, CATALOG.get(name.lower())
    lines: list[Line] = [Line("ok", "folder", str(folder)), Line("ok", "comes from", resolved.source)]
    if catalog_entry is not None and resolved.from_hub:
        lines.append(Line("note", "checksum", "none: the commit is pinned, its files are not"))
    lines[1:1] = _run_of(Path(name).expanduser())
    out = {"checkpoint": lines}
    if (folder / ABOUT).is_file():
        kind, fault = _class_and_fault(folder)
        lines.append(_saved_by_us(kind, fault))
        lines += [] if fault else _int8_of(folder)
        if fault or kind in ("Translator", "Word2Vec"):
            return out
    try:
        checkpoint = read_checkpoint(name, revision)
        lines += _contents(checkpoint)
    except InputError as error:
        lines.append(Line("missing", "model", str(error)))
        return out
    linear = getattr(checkpoint.family.model, "kind", "") == "linear"
    if linear:
        out["n-grams"] = _or_missing("n-grams", _ngrams(folder, checkpoint))
    elif checkpoint.family.model.reads == "texts":
        out["tokenizer"] = _or_missing("tokenizer", _tokenizer(checkpoint))
    else:
        out["preprocessor"] = _or_missing("preprocessor", _preprocessor(folder))
    if any(state == "missing" for found in out.values() for state, *_ in found):
        return out
    try:
        load_pretrained(folder)  # the tensors: their names and shapes
    except InputError as error:
        out["checkpoint"].append(Line("missing", "weights", str(error)))
        return out
    out["use"] = list(_uses(checkpoint, name))
    return out


def _or_missing(what: str, lines: Iterator[Line]) -> list[Line]:
    """The lines of a check, which may end with an error: then the last one says what is missing."""
    out: list[Line] = []
    try:
        out.extend(lines)
    except InputError as error:
        out.append(Line("missing", what, str(error)))
    return out


def _run_of(folder: Path) -> list[Line]:
    """A line about the run in a folder; empty if the folder holds no run."""
    from glassformer.tasks.run_folder import read_run_recipe

    if not (folder / "config.toml").is_file():
        return []
    try:
        recipe = read_run_recipe(folder)
    except InputError as error:
        return [Line("note", "run", str(error))]
    return [Line("ok", "run", f"{recipe.name}, {recipe.task}, trained on {recipe.data.source}")]


def _without_hub_format(folder: Path) -> list[Line] | None:
    """Lines about a saved model without a Hub format (such as word vectors), or its run; None: not one."""
    from glassformer.checkpoints.settings import ABOUT

    inner = folder / "model" if (folder / "model" / ABOUT).is_file() else folder
    if not (inner / ABOUT).is_file() or (inner / "config.json").is_file():
        return None
    kind, fault = _class_and_fault(inner)
    lines = [Line("ok", "folder", str(inner)), _saved_by_us(kind, fault)]
    if not fault:
        task, python = task_of_estimator_name(kind), f"gf.load({str(folder)!r}) in Python"
        verb = "" if task is None else f"glassformer {task.verb} {folder}, or "
        lines.append(Line("ok", "use", verb + python))
    return lines


def _saved_by_us(kind: str, fault: str) -> Line:
    return Line("missing" if fault else "ok", "saved by glassformer", fault or kind)


def _class_and_fault(folder: Path) -> tuple[str, str]:
    """The class of a model saved by glassformer, and what is wrong with it; one of both is empty."""
    from glassformer.tasks.load import load

    try:
        return type(load(folder)).__name__, ""
    except InputError as error:
        return "", str(error)


def _int8_of(folder: Path) -> list[Line]:
    """The result of the int8 check of the model, if it was run."""
    from glassformer.checkpoints.settings import ABOUT
    from glassformer.tasks.int8 import describe_int8

    outcome = read_json(folder / ABOUT).get("int8")
    if outcome is None:
        return []
    return [Line("ok" if outcome["passed"] else "note", "int8", describe_int8(outcome))]


def _contents(checkpoint: Any) -> Iterator[Line]:
    """Lines on the model's family, head and sizes."""
    settings, config, family = checkpoint.settings, checkpoint.config, checkpoint.family
    architectures = settings.get("architectures")
    class_names = (
        ", ".join(map(str, architectures)) if isinstance(architectures, list) else "no class is named"
    )
    yield Line("ok", "family", f"{family.model_type}, reads {family.model.reads} ({class_names})")
    yield Line("ok", "head", _head(checkpoint))
    weights = sum(tensor.numel() for tensor in checkpoint.tensors.values())
    size = sum(file.stat().st_size for file in checkpoint.folder.glob("*.safetensors"))
    dtypes = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in checkpoint.tensors.values()})
    yield Line("ok", "weights", f"{weights:,} in {', '.join(dtypes)}, {size / 2**20:,.1f} MiB")
    encoder, embedding = getattr(config, "encoder", None), config.embedding
    if encoder is not None:
        shape = f"{encoder.num_layers} layers, {encoder.d_model} wide, {encoder.num_heads} heads"
        shape += f", {encoder.d_ff} inside, {encoder.norm}-norm, {encoder.activation}"
        yield Line("ok", "encoder", shape)
    if family.model.reads == "texts":
        longest = getattr(embedding, "longest", None) if encoder is not None else None
        yield Line("ok", "longest text", f"{longest:,} tokens" if longest else "any length")


def _head(checkpoint: Any) -> str:
    if checkpoint.foreign_task:
        return f"for {checkpoint.foreign_task}"
    if checkpoint.head != "classification":
        heads = {"mlm": "masked words", "pretraining": "masked words and next sentence"}
        return heads.get(checkpoint.head, "none")
    id2label = checkpoint.settings.get("id2label")
    names = [str(name) for name in id2label.values()] if isinstance(id2label, dict) else []
    listed = f": {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}" if names else ""
    return f"{checkpoint.config.num_labels} classes{listed}"


def _tokenizer(checkpoint: Any) -> Iterator[Line]:
    from glassformer.tasks.build import cover_vocabulary

    files, tokenizer = tokenizer_files(checkpoint.folder), load_tokenizer(checkpoint.folder)
    vocabulary = Vocabulary.of(tokenizer)
    yield Line("ok", "read from", " with ".join(file.name for file in files))
    yield Line("ok", "kind", f"{type(tokenizer.model).__name__}, {count_ids(tokenizer):,} tokens")
    yield Line(
        "ok", "special tokens", ", ".join(f"{kind} {token}" for kind, token in vocabulary.tokens.items())
    )
    rows = checkpoint.config.embedding.vocab_size
    try:
        extended = cover_vocabulary(checkpoint, tokenizer, str(checkpoint.folder)) is not checkpoint
    except InputError as error:
        yield Line("missing", "table", str(error))
        return
    note = "; rows for intermediate pieces are added" if extended else ""
    yield Line("ok", "table", f"{rows:,} rows{note}")


def _ngrams(folder: Path, checkpoint: Any) -> Iterator[Line]:
    from glassformer.checkpoints.ngrams import FILE, IDF, read_ngrams

    ngrams = read_ngrams(folder)
    yield Line("ok", "read from", f"{FILE} with {IDF}.safetensors")
    yield Line(
        "ok", "features", f"{len(ngrams.words):,} n-grams of words, {len(ngrams.pieces):,} of characters"
    )
    rows = checkpoint.config.embedding.vocab_size
    if ngrams.width != rows:
        yield Line(
            "missing", "weights", f"they are for {rows:,} features, and there are {ngrams.width:,} n-grams"
        )
        return
    inputs = "pairs of texts" if ngrams.pairs else "single texts"
    yield Line(
        "ok", "reads", f"{inputs}, of any length, {'case ignored' if ngrams.lowercase else 'with case'}"
    )


def _preprocessor(folder: Path) -> Iterator[Line]:
    from glassformer.inputs.images import load_transform

    transform = load_transform(folder)
    width, height = transform.size[::-1]
    yield Line("ok", "images", f"{width} x {height}, {transform.channels} channels, {transform.fit}")


def _uses(checkpoint: Any, name: str) -> Iterator[Line]:
    """A line for each use of the model: what it does, or why it is not possible."""
    from glassformer.tasks.load import load

    texts = checkpoint.family.model.reads == "texts"
    estimator = "TextClassifier" if texts else "ImageClassifier"
    try:
        classes = getattr(load(checkpoint.folder), "classes_", None)
    except InputError as error:
        yield Line("note", "predict, serve, export", f"{error.what}. {error.fix or ''}".strip())
    else:
        use = (
            "not possible: it is not a classifier" if classes is None else f"as it is, {len(classes)} classes"
        )
        yield Line("note" if classes is None else "ok", "predict, serve, export", use)
    if getattr(checkpoint.family.model, "is_linear", False):
        yield Line(
            "note",
            "fine-tune, embed",
            "not possible: a linear model is fitted from scratch, and has no embeddings",
        )
        return
    yield Line("ok", "fine-tune", f"{estimator}({name!r}): {_fine_tuning(checkpoint)}")
    hub, has_mlm_head = checkpoint.family.hub, checkpoint.head in ("mlm", "pretraining")
    if has_mlm_head:
        yield Line("ok", "fill", "as it is, with its own head")
    if hub is not None and "mlm" in hub.classes:
        head = "with its own head" if has_mlm_head else "with a new head"
        yield Line("ok", "train further", f"MaskedLM({name!r}), {head}")
    if texts:
        yield _embed(checkpoint)


def _fine_tuning(checkpoint: Any) -> str:
    from glassformer.tasks.build import checkpoint_pooling
    from glassformer.tasks.image_classification.estimator import usual_pooling

    if checkpoint.family.configure is not None:
        return "all of it under a new head"
    texts, hub = checkpoint.family.model.reads == "texts", checkpoint.family.hub
    pooling = checkpoint_pooling(checkpoint) if texts else usual_pooling(checkpoint)
    use = f"{pooling} pooling under a new linear head"
    if hub is None or (hub.pooling, hub.head_type) == (pooling, "linear"):
        return use
    return f"{use} (transformers opens the encoder; with {hub.loadable_head()} it opens the head too)"


def _embed(checkpoint: Any) -> Line:
    """The line on ``embed``."""
    from glassformer.checkpoints.sentences import sentences_of
    from glassformer.tasks.build import default_pooling

    encoder = getattr(checkpoint.config, "encoder", None)
    modules = None if encoder is None else sentences_of(checkpoint.folder, encoder.d_model)
    if isinstance(modules, InputError):
        return Line("note", "embed", f"not possible: {modules}")
    if encoder is None or modules is None:
        pooling = (
            "the input of its head" if encoder is None else f"{default_pooling(checkpoint.config)} pooling"
        )
        return Line("note", "embed", f"no modules.json: only after fitting a classifier ({pooling})")
    steps = ["+".join(modules.pool.modes), *(type(step).__name__ for step in modules.after)]
    prompts = f", prompts {', '.join(modules.prompts)}" if modules.prompts else ""
    limit = f", {modules.max_length} tokens at most" if modules.max_length else ""
    width = modules.width(encoder.d_model)
    return Line("ok", "embed", f"modules.json: {', '.join(steps)}; {width} numbers per text{limit}{prompts}")


# --- the verb -------------------------------------------------------------------------------------


# Package -> the minimum version in pyproject.toml (a test compares them)
NEEDED = {
    "torch": "2.11",
    "numpy": "2.0",
    "tokenizers": "0.22",
    "safetensors": "0.6",
    "huggingface_hub": "0.34",
    "pyarrow": "18",
    "pillow": "11",
    "kornia": "0.8",
    "scikit-learn": "1.7",
    "threadpoolctl": "3.1",
    "numba": "0.62",
    "typer": "0.15",
    "rich": "13.8",
    "matplotlib": "3.9",
    "jinja2": "3.1",
    "pyyaml": "6",
}
PYTHON = (3, 11)
CPU_BUILD = "pip install torch --index-url https://download.pytorch.org/whl/cpu"


def examine_machine() -> dict[str, list[Line]]:
    """Run every check of this machine; the lines by subject. A line that is ``missing`` must be fixed."""
    packages = _packages()
    if any(line.what == "torch" and line.state == "missing" for line in packages):
        return {"packages": packages}
    return {"machine": _machine(), "packages": packages, "data": _data(), "weights": _weights()}


def _packages() -> list[Line]:
    python = ".".join(map(str, sys.version_info[:3]))
    lines = [Line("ok" if sys.version_info >= PYTHON else "missing", "python", python)]
    for name, oldest in NEEDED.items():
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            lines.append(Line("missing", name, f"not installed: pip install '{name}>={oldest}'"))
            continue
        if _numbers(installed) < _numbers(oldest):
            lines.append(Line("missing", name, f"{installed} is too old: pip install '{name}>={oldest}'"))
        else:
            lines.append(Line("ok", name, installed))
    return lines


def _numbers(version: str) -> tuple[int, ...]:
    """``"2.13.0+cpu"`` as (2, 13, 0)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _machine() -> list[Line]:
    import torch

    from glassformer.runtime import choose_device, choose_dtype, has_fast_bf16, machine_facts

    facts: dict[str, Any] = machine_facts()
    device = choose_device()
    dtype = str(choose_dtype("auto", device)).removeprefix("torch.")
    bf16 = ", ".join(facts["bf16"]) if device.type == "cpu" else "the GPU has it"
    slow = "this CPU lacks it: everything is computed in float32, which is slower"
    return [
        Line("ok", "processor", f"{facts['cpu']}, {facts['cores']} cores, {facts['threads']} threads used"),
        Line("ok", "memory", f"{facts['memory_gib']} GiB"),
        Line("ok", "GPU", f"{facts['gpu']}, CUDA {torch.version.cuda}" if facts["gpu"] else "none"),
        *_unused_cuda(facts["gpu"], torch.version.cuda),
        Line("ok", "bf16", bf16) if has_fast_bf16(device) else Line("note", "bf16", slow),
        Line("ok", "computes", f"in {dtype} on {device.type}"),
        _kernels(),
        _int8(),
    ]


def _kernels() -> Line:
    """The level and the library of the C kernels, or why they are not used."""
    from glassformer.nn import kernels

    reason, level = kernels.why_not(), kernels.level()
    if reason is not None or level is None:
        return Line("note", "kernels in C", f"not used: {reason}")
    operations = "attention, GELU, layer norm" if level.bf16 else "attention, GELU with tanh in fp32"
    operations += ", linear layers' gradients" if level.name == "amx" else ""
    return Line("ok", "kernels in C", f"{level.title}: {operations}, from {level.file}")


def _int8() -> Line:
    """Whether prediction can multiply in int8 here."""
    from glassformer.nn.kernels import int8

    reason = int8.why_not()
    if reason is not None:
        return Line("note", "int8", f"not used: {reason}")
    return Line("ok", "int8", "for classifiers, precision=int8 after a check on their validation labels")


def _unused_cuda(gpu: str | None, cuda: str | None) -> list[Line]:
    """If torch is built for CUDA and there is no GPU: a note on the CPU build, a tenth of its size."""
    if gpu or not cuda:
        return []
    build = "the CPU build is smaller by gigabytes"
    return [Line("note", "torch", f"built for CUDA {cuda}, but there is no GPU; {build}: {CPU_BUILD}")]


def _data() -> list[Line]:
    variable = os.environ.get("GLASSFORMER_DATA")
    lines = []
    for folder in data_folders():
        is_variable = variable is not None and folder == Path(variable)
        origin = "GLASSFORMER_DATA" if is_variable else "looked for in"
        if folder.is_dir():
            lines.append(Line("ok", origin, str(folder)))
        else:
            lines.append(Line("note" if is_variable else "ok", origin, f"{folder} (no such folder)"))
    lines += [
        Line("note" if "not here" in where else "ok", name, where)
        for name, where in source_locations().items()
    ]
    return lines


def _weights() -> list[Line]:
    from glassformer.checkpoints.hub import CATALOG, resolve_checkpoint

    lines, names = [], dict[Any, list[str]]()
    for name, entry in CATALOG.items():  # a checkpoint may have several names
        names.setdefault(entry, []).append(name)
    for entry, (name, *aliases) in names.items():
        alias_note = f"; also named {', '.join(aliases)}" if aliases else ""
        pinned = f" at commit {entry.revision[:12]}" + ("" if entry.sha256 else ", no checksum")
        if entry.package and importlib.util.find_spec(entry.package):
            try:
                lines.append(Line("ok", name, f"{resolve_checkpoint(name).source}{alias_note}"))
            except CheckpointError as error:
                lines.append(Line("note", name, str(error)))
        elif _in_hub_cache(entry.repo, entry.revision):
            lines.append(Line("ok", name, f"in the Hub cache: {entry.repo}{pinned}{alias_note}"))
        else:
            source = f"not here; downloaded from {entry.repo} on the Hub when first used{pinned}{alias_note}"
            lines.append(Line("note", name, source))
    return lines


def _in_hub_cache(repo: str, revision: str) -> bool:
    """Whether the weights of a revision are in the local Hub cache; does not use the network."""
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
    """Check this machine (packages, dtypes, data sets, weights), or check a model."""
    if model is None:
        if revision is not None:
            raise typer.BadParameter("--revision belongs to a MODEL")
        found = examine_machine()
    else:
        found = examine_model(model, revision)
    missing = [line.what for lines in found.values() for line in lines if line.state == "missing"]
    if json:
        say_json({subject: [line._asdict() for line in lines] for subject, lines in found.items()})
    else:
        for subject, lines in found.items():
            show_table(subject, ("", "what", "found"), lines)
        problem = "missing" if model is None else "cannot be used"
        say(f"glassformer {__version__}: " + (f"{problem}: {', '.join(missing)}" if missing else "ready"))
    if missing:
        raise typer.Exit(1)
