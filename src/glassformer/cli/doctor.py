"""``glassformer doctor``: is this machine ready, or a model, and what will be used on it?"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from glassformer.cli.output import AsJson, say, say_json, show_table

# Package -> the oldest version that will do, as pyproject.toml has them (a test compares).
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


class Line(NamedTuple):
    """One thing that was looked at."""

    state: str  # ok | note | missing
    what: str
    found: str


def examine_machine() -> dict[str, list[Line]]:
    """Every check, by subject. A line that is ``missing`` keeps glassformer from working."""
    packages = _packages()
    if any(line.what == "torch" and line.state == "missing" for line in packages):
        return {"packages": packages}
    return {"machine": _machine(), "packages": packages, "data": _data(), "weights": _weights()}


def _packages() -> list[Line]:
    python = ".".join(map(str, sys.version_info[:3]))
    lines = [Line("ok" if sys.version_info >= PYTHON else "missing", "python", python)]
    for name, oldest in NEEDED.items():
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            lines.append(Line("missing", name, f"not installed: pip install '{name}>={oldest}'"))
            continue
        if _numbers(found) < _numbers(oldest):
            lines.append(Line("missing", name, f"{found} is too old: pip install '{name}>={oldest}'"))
        else:
            lines.append(Line("ok", name, found))
    return lines


def _numbers(version: str) -> tuple[int, ...]:
    """(2, 13, 0) of "2.13.0+cpu"."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _machine() -> list[Line]:
    import torch

    from glassformer.runtime import choose_device, choose_dtype, has_fast_bf16, machine_facts

    facts: dict[str, Any] = machine_facts()
    device = choose_device()
    dtype = str(choose_dtype("auto", device)).removeprefix("torch.")
    bf16 = ", ".join(facts["bf16"]) if device.type == "cpu" else "the GPU has it"
    slow = "the processor lacks it: everything computes in float32, which is slower"
    return [
        Line("ok", "processor", f"{facts['cpu']}, {facts['cores']} cores, {facts['threads']} threads used"),
        Line("ok", "memory", f"{facts['memory_gib']} GiB"),
        Line("ok", "GPU", f"{facts['gpu']}, CUDA {torch.version.cuda}" if facts["gpu"] else "none"),
        *_too_large(facts["gpu"], torch.version.cuda),
        Line("ok", "bf16", bf16) if has_fast_bf16(device) else Line("note", "bf16", slow),
        Line("ok", "computes", f"in {dtype} on {device.type}"),
        _kernels(),
        _int8(),
    ]


def _kernels() -> Line:
    """The level of the kernels in C and where their library lies, or why they are not used."""
    from glassformer.nn import kernels

    reason, level = kernels.why_not(), kernels.level()
    if reason is not None or level is None:
        return Line("note", "kernels in C", f"not used: {reason}")
    what = "attention, GELU, layer norm" if level.bf16 else "attention, GELU with tanh in fp32"
    what += ", linear layers' gradients" if level.name == "amx" else ""
    return Line("ok", "kernels in C", f"{level.title}: {what}, from {level.file}")


def _int8() -> Line:
    """Whether prediction can multiply in int8 here."""
    from glassformer.nn.kernels import int8

    reason = int8.why_not()
    if reason is not None:
        return Line("note", "int8", f"not used: {reason}")
    return Line("ok", "int8", "classifiers with precision=int8, once held to their validation labels")


def _too_large(gpu: str | None, cuda: str | None) -> list[Line]:
    """Where torch was built for a GPU that is not there: the other build, which is a tenth of its size."""
    if gpu or not cuda:
        return []
    build = "the CPU build is smaller by gigabytes"
    return [Line("note", "torch", f"built for CUDA {cuda}, and there is no GPU; {build}: {CPU_BUILD}")]


def _data() -> list[Line]:
    from glassformer.cli.data import whereabouts
    from glassformer.data.sources import data_folders

    given = os.environ.get("GLASSFORMER_DATA")
    lines = []
    for folder in data_folders():
        named = given is not None and folder == Path(given)
        what = "GLASSFORMER_DATA" if named else "looked for in"
        if folder.is_dir():
            lines.append(Line("ok", what, str(folder)))
        else:
            lines.append(Line("note" if named else "ok", what, f"{folder} (no such folder)"))
    lines += [
        Line("note" if "not here" in where else "ok", name, where) for name, where in whereabouts().items()
    ]
    return lines


def _weights() -> list[Line]:
    from glassformer.checkpoints.hub import CATALOG, resolve_checkpoint
    from glassformer.errors import CheckpointError

    lines = []
    for name, known in CATALOG.items():
        pinned = f" at commit {known.revision[:12]}" + ("" if known.sha256 else ", no checksum of ours")
        if known.package and importlib.util.find_spec(known.package):
            try:
                lines.append(Line("ok", name, resolve_checkpoint(name).source))
            except CheckpointError as error:
                lines.append(Line("note", name, str(error)))
        elif _in_hub_cache(known.repo, known.revision):
            lines.append(Line("ok", name, f"in the Hub's cache: {known.repo}{pinned}"))
        else:
            lines.append(
                Line("note", name, f"not here; fetched from {known.repo} on the Hub when first used{pinned}")
            )
    return lines


def _in_hub_cache(repo: str, revision: str) -> bool:
    """Whether that revision's weights lie in the Hub client's cache folder; the network is not asked."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    folder = cache / f"models--{repo.replace('/', '--')}" / "snapshots" / revision
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def doctor_command(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="A model or run to look at instead: folder, name or Hub id."),
    ] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Of the model, on the Hub.")] = None,
    json: AsJson = False,
) -> None:
    """Look at this machine: packages, number formats, data sets, weights. Or at a model: what opens it."""
    from glassformer import __version__

    if model is None:
        if revision is not None:
            raise typer.BadParameter("--revision belongs to a MODEL")
        found = examine_machine()
    else:
        from glassformer.cli.model_check import examine_model

        found = {
            key: [Line(*line) for line in lines] for key, lines in examine_model(model, revision).items()
        }
    missing = [line.what for lines in found.values() for line in lines if line.state == "missing"]
    if json:
        say_json({subject: [line._asdict() for line in lines] for subject, lines in found.items()})
    else:
        for subject, lines in found.items():
            show_table(subject, ("", "what", "found"), lines)
        wrong = "missing" if model is None else "cannot be used"
        say(f"glassformer {__version__}: " + (f"{wrong}: {', '.join(missing)}" if missing else "ready"))
    if missing:
        raise typer.Exit(1)
