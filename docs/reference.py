"""Pages made from the code when the documentation is built: every recipe key, every command, every public
name.

They go to docs/reference/ and are not kept: what is made from the code cannot fall behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from glassformer.cli.app import build_app
from glassformer.cli.options import recipe_keys
from glassformer.tasks.catalog import recipe_classes

HERE = Path(__file__).parent
TASKS = {
    "text-classification": "Text classification",
    "image-classification": "Image classification",
    "translation": "Translation",
    "masked-lm": "Masked language modeling",
    "masked-patches": "Masked image modeling",
    "word2vec": "Word vectors",
    "similarity": "Semantic similarity",
    "token-tagging": "Token classification",
    "text-regression": "Text regression",
    "image-regression": "Image regression",
    "question-answering": "Question answering",
}
# page: (title, modules), in the order of reading
# A module may have the recipes of two tasks.
RECIPES = list(
    dict.fromkeys(cls.__module__.removeprefix("glassformer.") for cls in recipe_classes().values())
)
MODULES = {
    "estimators": (
        "Estimators",
        [
            "tasks.estimator",
            "tasks.classifier",
            "tasks.text_classification.estimator",
            "tasks.zero_shot",
            "tasks.image_classification.estimator",
            "tasks.translation.estimator",
            "tasks.masked_lm.estimator",
            "tasks.masked_patches.estimator",
            "tasks.similarity.estimator",
            "tasks.probe",
            "tasks.token_tagging.estimator",
            "tasks.question_answering.estimator",
            "tasks.word2vec.estimator",
        ],
    ),
    "blocks": (
        "Blocks",
        [
            "process",
            "packing",
            "nn.attention",
            "nn.maps",
            "nn.scores",
            "nn.cheaper",
            "nn.convolution",
            "nn.positions",
            "nn.embed",
            "nn.patches",
            "nn.feedforward",
            "nn.encoder",
            "nn.decoder",
            "nn.recurrent",
            "nn.pooling",
            "nn.pairs",
            "nn.heads",
            "nn.lora",
            "nn.dropout",
            "nn.cross_entropy",
            "nn.trace",
        ],
    ),
    "models": (
        "Models and checkpoints",
        [
            "models.text",
            "models.image",
            "models.image_text",
            "models.seq2seq",
            "models.seq2seq_rnn",
            "models.rnn",
            "models.textcnn",
            "models.skipgram",
            "models.sentences",
            "models.backbone",
            "models.decode",
            "tasks.load",
            "families.pretrained",
            "checkpoints.hub",
            "checkpoints.files",
            "checkpoints.native",
            "checkpoints.word2vec",
        ],
    ),
    "data": (
        "Data",
        [
            "data.dataset",
            "data.sources",
            "data.image_sources",
            "data.pairs",
            "data.sentences",
            "data.text",
            "data.tokenizer_file",
            "data.transform",
            "data.augment",
            "data.masking",
            "data.splits",
            "data.batching",
            "data.checks",
            "data.doctor",
            "data.findings",
            "data.corpus",
        ],
    ),
    "training": (
        "Training and judging",
        [
            "train.loop",
            "train.callbacks",
            "train.optim",
            "train.objectives",
            "train.freezing",
            "targets.multiclass",
            "evaluate.metrics",
            "evaluate.compare",
            "evaluate.calibrate",
            "evaluate.label_noise",
            "evaluate.baselines",
            "targets.target_text",
            "evaluate.vectors",
        ],
    ),
    "explaining": (
        "Explanations",
        [
            "explain.render",
            "explain.result",
            "explain.methods",
            "explain.subject",
            "explain.attention",
            "explain.gradients",
            "explain.occlusion",
            "explain.faithfulness",
            "explain.sanity",
            "explain.heads",
            "explain.alignment",
            "explain.architecture",
        ],
    ),
    "experiments": (
        "Recipes, runs and studies",
        [
            *RECIPES,
            "train.config",
            "config",
            "inputs.inputs",
            "inputs.texts",
            "inputs.images",
            "targets.target",
            "targets.regression",
            "tasks.task",
            "tasks.supervised",
            "tasks.run",
            "study.grid",
            "study.compare",
            "study.results",
            "study.folds",
            "study.review",
            "study.calibration",
            "scale.scoring",
        ],
    ),
    "reports": (
        "Reports and exports",
        [
            "report.html",
            "report.run",
            "report.study",
            "report.published",
            "report.sequences",
            "report.vectors",
            "export.hf_folder",
            "export.onnx_folder",
            "export.padded",
            "export.outputs",
        ],
    ),
    "serving": (
        "Serving",
        ["serve.limits", "serve.kinds", "serve.models", "serve.app", "serve.run", "serve.schema"],
    ),
    "errors": ("Errors, runtime, types", ["errors", "runtime", "types"]),
}


ABOUT = {  # what a page is for, in a sentence
    "estimators": "Estimators for raw texts, images and labels: fit, predict, explain, save.",
    "blocks": "Layers over packed rows without padding.",
    "models": "Networks of these layers; loading and saving weights.",
    "data": "Reading, checking, splitting, tokenizing and batching of texts and images.",
    "training": "The training loop, its objectives and optimizer, and evaluation.",
    "explaining": "Explanation methods and faithfulness tests.",
    "experiments": "Recipes and their settings, runs, and studies that compare them.",
    "reports": "Reports of runs and studies, and exports for other programs.",
    "serving": "The HTTP server: its limits, models and responses.",
    "errors": "Errors, threads and devices, and the types in signatures.",
}


def cell(text: str) -> str:
    """Text that a cell of a Markdown table can hold; options keep their two dashes."""
    text = re.sub(r"([|<>*_\[\]])", r"\\\1", " ".join(text.split()))
    return re.sub(r"(?<![\w`-])(--[a-z][a-z-]*)(?!`)", r"`\1`", text)


def keys() -> str:
    """Every key of every task, with default and meaning."""
    lines = [
        "# Recipe keys",
        "",
        "The settings of a recipe per task, with defaults and meanings.",
        "",
        "`--set key=value` overrides a recipe; in a file each key is under its section.",
        "A value is written as in TOML: `lr=1e-4`, `keep_best=false`, `betas=[0.9, 0.98]`; text needs no "
        "quotes.",
        "",
        "Default `none`: the key is empty, and its meaning says what that does (a shape: as the preset "
        "or the",
        "checkpoint has it). `--set key=none` empties such a key again, for example `--set "
        "validation_size=none`.",
        "In a recipe file an empty key is left out.",
    ]
    for task in recipe_classes():
        lines += ["", f'## {TASKS.get(task, task)} (`task = "{task}"`)']
        section = None
        for key in recipe_keys(task):
            if key.section != section:
                section = key.section
                lines += [
                    "",
                    f"### `[{section}]`" if section else "### At the top",
                    "",
                    "| Key | Default | Meaning |",
                    "|---|---|---|",
                ]
            default = f"`{key.default}`" if key.default else ""
            lines.append(f"| `{key.name}` | {default} | {cell(key.meaning)} |")
    return "\n".join(lines) + "\n"


def verbs() -> Iterator[tuple[str, Any]]:
    """Full name and command of every verb."""
    root: Any = typer.main.get_command(build_app())
    for name, command in sorted(root.commands.items()):
        if hasattr(command, "commands"):
            for sub, inner in sorted(command.commands.items()):
                yield f"{name} {sub}", inner
        else:
            yield name, command


def commands() -> str:
    """Every verb with its arguments and options."""
    lines = [
        "# Commands",
        "",
        "All commands of `glassformer` with arguments, options and exit codes.",
        "",
        "| Exit code | Meaning |",
        "|---|---|",
        "| 0 | done |",
        "| 1 | the run failed |",
        "| 2 | invalid input: one line says what, where and the fix |",
        "| 130 | interrupted by Ctrl-C, SIGTERM or SIGHUP, at whatever stage: one line says how to continue |",
        "",
        "Training ends its step and saves first; a command that had begun nothing leaves nothing. A second "
        "signal,",
        "half a second or more after the first, ends the command at once. What is ignored when the command "
        "begins",
        "(`nohup`) stays ignored. `serve` answers what is in and ends by the signal itself.",
        "",
        "`--debug` shows the traceback of an error.",
    ]
    for name, command in verbs():
        about = " ".join((command.help or "").split())
        lines += [
            "",
            f"## `glassformer {name}`",
            "",
            about,
            "",
            "| Argument or option | Meaning |",
            "|---|---|",
        ]
        for parameter in command.params:
            if parameter.name == "help" or getattr(parameter, "hidden", False):
                continue
            option = parameter.param_type_name == "option"
            shown = ", ".join(parameter.opts) if option else parameter.metavar or parameter.name.upper()
            shown += "..." if parameter.nargs < 0 and not option else ""
            lines.append(f"| `{shown}` | {cell(getattr(parameter, 'help', '') or '')} |")
    return "\n".join(lines) + "\n"


def api(title: str, modules: list[str], about: str) -> str:
    """A page of docstrings."""
    lines = [f"# {title}", "", about, "", "```{eval-rst}"]
    for module in modules:
        name = f"glassformer.{module}"
        lines += [
            "",
            f"``{name}``",
            "~" * (len(name) + 4),
            "",
            f".. automodule:: {name}",
            "   :members:",
            "   :show-inheritance:",
        ]
    return "\n".join([*lines, "```", ""])


def write(folder: Path = HERE / "reference") -> None:
    """Write all pages; files that would not change stay as they are."""
    pages = {"keys": keys(), "commands": commands()} | {
        name: api(*page, ABOUT[name]) for name, page in MODULES.items()
    }
    pages["index"] = (
        "# Reference\n\nAll recipe keys, commands, errors and public names. The pages are generated from the "
        "code, so they fit your version.\n\n```{toctree}\n:maxdepth: 2\n\nkeys\ncommands\nmessages\n"
        + "\n".join(MODULES)
        + "\n```\n"
    )
    folder.mkdir(exist_ok=True)
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
