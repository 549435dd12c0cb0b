"""The errors and warnings of glassformer.

Each one says what is wrong, where, and how to fix it. Its ``code`` is stable and names the cause: the command
line prints it after the message, and JSON output has it as the field ``code``. The documentation's page
"Errors and warnings" is generated from the docstrings here: meaning, likely cause, fix.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self


class _Coded:
    """``class Name(Base, code="what-is-wrong")`` sets the code of an error or a warning."""

    code: str

    def __init_subclass__(cls, code: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if code is not None:
            cls.code = code


class GlassformerError(_Coded, Exception, code="failed"):
    """The work failed although the input was valid. The command line exits with 1.

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
    def of(cls, path: Path | str, error: OSError) -> Self:
        """The error for an ``OSError`` that was raised while ``path`` was written."""
        return cls(f"{path}: could not be written: {error.strerror or error}")


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
    """The caller's input is wrong. The command line prints one line and exits with 2.

    Cause: an argument that the call does not accept; the message names it and its value.
    Fix: the message ends with it.

    Args:
        what: what is wrong, without a full stop.
        where: the file, row, key or argument it was found in.
        fix: what to do about it.
    """

    exit_code = 2
    what: str = ""  # type: ignore[assignment]  # an attribute here

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None):
        self.what, self.where, self.fix = what, where, fix
        line = f"{where}: {what}" if where else what
        super().__init__(f"{line}. {fix}" if fix else line)

    def but(self, **changes: str | None) -> Self:
        """A copy of the error with another ``what``, ``where`` or ``fix``."""
        changed = _rebuild(type(self), **{"what": self.what, "where": self.where, "fix": self.fix, **changes})
        changed.code = self.code
        return changed

    def __reduce__(self):  # pickle would drop the keyword-only arguments
        return _rebuild, (type(self), self.what, self.where, self.fix)


def _rebuild(kind: type[Any], what: str | None, where: str | None, fix: str | None) -> Any:
    return kind(what, where=where, fix=fix)


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
    """The file exists and cannot be read.

    Cause: you have no right to read it, it is a folder or a pipe, or it changed while it was read.
    Fix: check it with ``ls -l``, and give the command again when nothing writes to the file.
    """


class FileTypeError(DataError, code="file-type"):
    """Files of this type are not read here.

    Cause: the name's ending (.docx, .pdf) is not one of a table, or the content is of another type than the
    name says.
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
    Fix: correct the row that is named; if quotes are plain characters, add ``--quoting none``; ``--header
    no`` if the first row is data.
    """


class TooLargeError(DataError, code="too-large"):
    """A file, image or table is larger than what is read into memory.

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
    """Which column has the texts, images or labels is not clear.

    Cause: several columns could be it, none looks like it, or the one found holds something else.
    Fix: name it: ``--text-column NAME --label-column NAME`` (images: ``--image-column``).
    """


class MissingValueError(DataError, code="missing-value"):
    """A text, image or label is missing or empty.

    Cause: an empty cell, an empty file, or an empty folder.
    Fix: fill it in or remove the row; ``--on-bad-row skip`` leaves such rows out and reports them.
    """


class UnknownLabelError(DataError, code="unknown-label"):
    """A label is not one of those that the model learned.

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
    """There are too few examples for what was asked.

    Cause: a class with one example cannot be both learned and validated, and each fold needs some of every
    class.
    Fix: add examples, choose another ``--set validation_size=0.2`` or fewer folds, or merge rare classes with
    ``--set merge_labels=...``.
    """


class NotANumberError(DataError, code="not-a-number"):
    """A target or score is not a number that can be learned.

    Cause: a unit, a currency or a decimal comma in the cell, or the column has classes.
    Fix: write it as 3.5, or say how numbers are written: ``--set number_format=comma``.
    """


class UnequalLengthsError(DataError, code="unequal-lengths"):
    """Two lists that belong together have different lengths.

    Cause: rows were removed from one of them only.
    Fix: give one label, number or second text for each example.
    """


class BadImageError(DataError, code="bad-image"):
    """An image cannot be decoded or has an unsupported shape.

    Cause: a damaged or empty file, an array in another layout, or pixels whose range is not known.
    Fix: fetch or save it again, set ``image_range`` for other pixel values, or leave it out with
    ``--on-bad-row skip``.
    """


class BadTagsError(DataError, code="bad-tags"):
    """The tags of a sentence do not fit their scheme or their words.

    Cause: tags without B- and I-, numbers without names, or spans that do not begin and end with a word.
    Fix: correct them, or name the scheme: ``--set scheme=BIO`` (``plain`` for tags without B- and I-).
    """


class BadAnswerError(DataError, code="bad-answer"):
    """An answer cannot be found in its context, or is found several times.

    Cause: the context was edited after the answer was marked, or ``answer_start`` is off.
    Fix: give the answer as it is written in the context, and its character offset as ``answer_start``.
    """


class WrongInputError(DataError, code="wrong-input"):
    """The input is of another kind than the model or the argument expects.

    Cause: pairs for a model of single texts, an image for a text model, a string where a list belongs, a run
    in the place of data.
    Fix: give what the message asks for, or name another model; ``glassformer doctor RUN`` says what a model
    reads.
    """


class NoSuchSplitError(DataError, code="no-such-split"):
    """The data have no such split, or none that can be evaluated.

    Cause: a recipe or ``--split`` names validation or test, and the data have no such part.
    Fix: name a split that exists, or hold one out: ``--set validation_size=0.1``.
    """


class DataChangedError(DataError, code="data-changed"):
    """The data are not those of the training.

    Cause: the file was edited after the training, so its split may hold rows that the model has seen.
    Fix: restore the file, train into another folder with ``--out``, or evaluate on new rows: ``glassformer
    evaluate RUN --data FILE``.
    """


# --- settings, options and runs --------------------------------------------------------------------


class ConfigError(InputError, code="setting"):
    """A recipe, setting, option or environment variable cannot be used.

    Cause: the message names it and its value.
    Fix: the message ends with it; ``glassformer VERB --help`` lists options, ``glassformer train
    --help-keys`` settings.
    """


class UnknownKeyError(ConfigError, code="unknown-key"):
    """There is no setting of that name.

    Cause: a typing error, or a setting of another task or model.
    Fix: take the suggestion of the message; ``glassformer train --help-keys`` lists all settings.
    """


class BadValueError(ConfigError, code="bad-value"):
    """A setting or option has a value that is out of range or not a choice.

    Cause: a typing error, another type (text for a number), or a bound that the value exceeds.
    Fix: use one of the values that the message names.
    """


class ConflictError(ConfigError, code="conflict"):
    """Two arguments or options exclude each other.

    Cause: both say the same thing in two ways, or one belongs to what the other rules out.
    Fix: give one of them.
    """


class NothingGivenError(ConfigError, code="nothing-given"):
    """The command has nothing to work on.

    Cause: an argument is missing.
    Fix: add it as the message shows; ``glassformer VERB --help`` has examples.
    """


class WrongArgumentError(ConfigError, code="wrong-argument"):
    """An argument is in the place of another one.

    Cause: data where a recipe belongs, a recipe or run where data belong, a model where a text belongs.
    Fix: give the command that the message names.
    """


class NoSuchRecipeError(ConfigError, code="no-such-recipe"):
    """There is no recipe, study or published result of that name.

    Cause: a typing error, or a .toml file that is not there.
    Fix: ``glassformer recipes`` lists the recipes; a file is named with its path and .toml.
    """


class UnknownModelError(ConfigError, code="no-such-model"):
    """There is no model of that name.

    Cause: a typing error in ``--model``, or a name of the other input (text, image).
    Fix: take the suggestion of the message; ``glassformer doctor`` lists models and their weights.
    """


class NotForThisModelError(ConfigError, code="not-for-this-model"):
    """A setting, option or command is not for this model or task.

    Cause: for example attention maps of a linear model, labels of a regressor, a threshold of tags.
    Fix: leave the option out, or use the model or command that the message names.
    """


class NotInstalledError(ConfigError, code="not-installed"):
    """An optional package is not installed.

    Cause: serving, ONNX export, Ray and loggers need packages of their own.
    Fix: install the extra that the message names, for example ``pip install 'glassformer[serve]'``.
    """


class NoGpuError(ConfigError, code="no-gpu"):
    """The device that was asked for is not there.

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

    Cause: a typing error, the folder around the runs, or the model folder inside one.
    Fix: name the folder that ``glassformer train`` printed (its ``--out``); it has config.toml and model.
    """


class RunInUseError(ConfigError, code="run-in-use"):
    """The run's training is not finished, or another process writes to the folder.

    Cause: a training is still running there, or it was stopped before its end.
    Fix: wait, or continue a stopped training: ``glassformer train --resume --out RUN``.
    """


class OtherRunError(ConfigError, code="other-run"):
    """The folder holds a run of another recipe or other settings.

    Cause: ``--resume`` or ``--out`` names a folder that was begun with other settings.
    Fix: resume with the settings of the first command, or choose another ``--out``.
    """


class ExistsError(ConfigError, code="exists"):
    """The output file or folder exists and is not replaced.

    Cause: an earlier command wrote it.
    Fix: choose another ``--out``, remove it, or continue a stopped run with ``--resume``.
    """


class OutputPathError(ConfigError, code="output-path"):
    """Nothing can be written at the path that was given.

    Cause: its folder does not exist or may not be written to, it is a broken link, or a folder where a file
    belongs.
    Fix: make the folder first (``mkdir -p``), or choose another path.
    """


# --- checkpoints ----------------------------------------------------------------------------------


class CheckpointError(InputError, code="checkpoint"):
    """A checkpoint folder is incomplete, damaged, of another shape or not supported.

    Cause: a file was changed, cut or mixed with another model's.
    Fix: save or fetch it again; the message names the file and the key.
    """


class NewerFormatError(CheckpointError, code="newer-version"):
    """A later version of glassformer wrote the folder; it is not damaged.

    Cause: it was saved on another machine or before a downgrade.
    Fix: update glassformer: ``pip install --upgrade glassformer``.
    """


class NoSuchModelError(CheckpointError, code="no-such-model"):
    """There is no model folder or checkpoint of that name.

    Cause: a typing error in a path or Hub id.
    Fix: check the path, or take a name from ``glassformer doctor``.
    """


class NotDownloadedError(CheckpointError, code="not-downloaded"):
    """A checkpoint is not on this machine and could not be fetched.

    Cause: there is no connection, offline mode is on, or the Hub asks for a login.
    Fix: fetch it once with a connection (``hf download ORG/NAME``), or name a local folder.
    """


class PickleError(CheckpointError, code="pickle"):
    """The weights are pickled, and reading a pickle can run any code.

    Cause: an older checkpoint, or a file that asks for more than tensors. ``pytorch_model.bin`` of PyTorch
    1.6 or later is read without unpickling.
    Fix: convert it to safetensors where you trust it, or take a revision that has model.safetensors.
    """


class NoTokenizerError(CheckpointError, code="no-tokenizer"):
    """The folder has no tokenizer that can be read.

    Cause: no known file of a tokenizer, or SentencePiece's file of a class whose ids are not known.
    Fix: save it with ``tokenizer.save_pretrained(FOLDER)`` of a fast tokenizer.
    """


class IncompleteError(CheckpointError, code="incomplete"):
    """A file of the folder is missing, cut or changed.

    Cause: a copy or download that was interrupted, Git LFS without its files, or a file edited by hand.
    Fix: copy, fetch or save it again; for Git LFS run ``git lfs pull``.
    """


class FolderExistsError(CheckpointError, code="exists"):
    """The folder to save to exists and is not replaced.

    Cause: it was saved before, or it holds something else.
    Fix: name another folder, or pass ``overwrite=True`` for one that glassformer wrote.
    """


class UnsupportedModelError(CheckpointError, code="unsupported-model"):
    """The checkpoint's architecture or a setting of it is not supported.

    Cause: another ``model_type``, quantized weights, or an option that changes the computation.
    Fix: take a supported checkpoint: the page "Which models open here" lists them.
    """


class ShapeError(InputError, code="shape"):
    """Tensors or sizes do not fit together; the message names both sizes.

    Cause: inputs of another model, or padded tensors where packed ones belong.
    Fix: use the tokenizer and transform of the model; shapes are in the docstrings.
    """


# --- warnings -------------------------------------------------------------------------------------


class GlassformerWarning(_Coded, UserWarning):
    """Base class of the warnings; the work continues. The command line prints them after ``note:``."""


class ShortModelWarning(GlassformerWarning, code="short-model"):
    """The model has positions for fewer tokens than ``max_length`` asks for; longer texts are cut.

    Cause: a checkpoint for short texts.
    Fix: set ``max_length`` to its limit, read long texts in windows (``long_texts``), or take another model.
    """


class NotKeptWarning(GlassformerWarning, code="file-not-kept"):
    """A file that you put into a saved folder could not be kept when the folder was saved again.

    Cause: the file cannot be read or copied.
    Fix: copy it there again.
    """


class UnnamedColumnsWarning(GlassformerWarning, code="unnamed-columns"):
    """A model that was fitted without column names takes the columns of a table in their order.

    Cause: it was fitted on lists or arrays.
    Fix: fit it on a table, or give a list of tuples.
    """


class OtherOrderWarning(GlassformerWarning, code="index-order"):
    """X and y have the same index in another order; rows are matched by position.

    Cause: one of them was sorted or shuffled.
    Fix: pass ``y.loc[X.index]`` to match rows by index.
    """


class OtherSpellingWarning(GlassformerWarning, code="label-spelling"):
    """Labels are spelled differently from the model's; they count as the labels that they mean.

    Cause: numbers as text, or another case.
    Fix: write them as the model does: scikit-learn's metrics compare exactly.
    """


class OtherLanguageWarning(GlassformerWarning, code="text-language"):
    """The texts are in another language than the encoder was trained on.

    Cause: the default encoders read English.
    Fix: use a multilingual encoder: ``--model xlm-roberta-base``.
    """


class FromScratchWarning(GlassformerWarning, code="from-scratch"):
    """No pre-trained weights were found: the model starts from random weights and needs more examples.

    Cause: neither a package nor a download folder has weights.
    Fix: install or download weights; ``glassformer doctor`` says where they are looked for.
    """


class MalformedTagsWarning(GlassformerWarning, code="malformed-tags"):
    """Tags break the rules of their scheme; they are read as the spans that they mean.

    Cause: I- without B-, for example.
    Fix: correct the tags if their boundaries matter.
    """


class FewStepsWarning(GlassformerWarning, code="few-steps"):
    """The settings leave too few optimizer steps to learn from.

    Cause: few examples with a large batch, or few epochs.
    Fix: use a smaller ``batch_size`` or more ``epochs``, or leave them unset.
    """


class HighRateWarning(GlassformerWarning, code="high-lr"):
    """The learning rate is far above the usual one for such a model; training may diverge.

    Cause: the rate of a model from scratch was set for a pre-trained one.
    Fix: use the rate that the message names, or leave ``lr`` unset.
    """


class OtherBitsWarning(GlassformerWarning, code="resume-differs"):
    """The resumed run uses another device or precision; its result is not bit-identical to an uninterrupted
    run's.

    Cause: the run continues on another machine or with other threads.
    Fix: none is needed; to repeat bits, resume where it began.
    """


class SeveralProcessesWarning(GlassformerWarning, code="waiting-for-processes"):
    """WORLD_SIZE is above 1 and ``torchrun`` did not start this process; it waits for the others.

    Cause: a variable left over from another job.
    Fix: unset WORLD_SIZE, or start with ``torchrun``.
    """


class OtherDeviceWarning(GlassformerWarning, code="other-device"):
    """A saved model names a GPU and none is visible; it runs on what is there.

    Cause: it was saved on a machine with a GPU.
    Fix: save it with ``device="auto"``.
    """


class DimImagesWarning(GlassformerWarning, code="dim-images"):
    """The brightest pixel of all training images is far below white.

    Cause: images with 10 or 12 bits stored in 16, or dark scans.
    Fix: set ``image_range`` to the value of white.
    """


class IdleSettingWarning(GlassformerWarning, code="idle-setting"):
    """A setting has no effect in combination with the others.

    Cause: it belongs to another model, or needs validation data.
    Fix: leave it out, or set what the message names.
    """


def counted(n: int, noun: str) -> str:
    """Format a count with its noun: "1 image", "1,234 images"."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def with_article(name: str) -> str:
    """The name with "a" or "an" before it."""
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"
