"""The errors that glassformer raises on purpose.

Each one carries what is wrong, where, and the way out, so that the command line can print a
single line and a library user can catch a type.
"""

from __future__ import annotations


class GlassformerError(Exception):
    """Something failed that is not the caller's input. The command line exits with 1."""

    exit_code = 1


class NotFiniteError(GlassformerError):
    """A model's output is NaN or infinite: its weights are damaged, or its training diverged.

    Args:
        what: which outputs, such as ``"logits"``.
    """

    def __init__(self, what: str = "outputs"):
        self.what = what
        super().__init__(
            f"the model's {what} are not finite: its weights have diverged or are damaged. "
            "Train it again with a lower lr, or restore its weights"
        )

    def __reduce__(self):
        return type(self), (self.what,)


class InputError(GlassformerError, ValueError):
    """The caller's input is wrong. The command line prints one line and exits with 2.

    Args:
        what: what is wrong, without a full stop.
        where: the file, row, key or argument it was found in.
        fix: the way out.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None):
        self.what, self.where, self.fix = what, where, fix
        line = f"{where}: {what}" if where else what
        super().__init__(f"{line}. {fix}" if fix else line)

    def __reduce__(self):  # keyword-only arguments survive a trip through another process
        return (_rebuild, (type(self), self.what, self.where, self.fix))


def _rebuild(kind: type[InputError], what: str, where: str | None, fix: str | None) -> InputError:
    return kind(what, where=where, fix=fix)


class DataError(InputError):
    """A file, table, row, text or label that cannot be used."""


class ConfigError(InputError):
    """A recipe, key or value that cannot be used."""


class CheckpointError(InputError):
    """A checkpoint folder that is incomplete, damaged, of another shape or not supported."""


class NewerFormatError(CheckpointError):
    """A whole folder that a later version of glassformer has written: it must not pass for a damaged one."""


class ShapeError(InputError):
    """Tensors or sizes that do not fit together; the message names both sizes."""


class ShortModelWarning(UserWarning):
    """The model has positions for fewer tokens than texts were going to have; they are cut to these."""


class NotKeptWarning(UserWarning):
    """A file that its owner has put into a saved folder and that could not be kept when it was saved anew."""


class UnnamedColumnsWarning(UserWarning):
    """A model that was fitted without the names of columns takes those of a table by their places."""


class OtherOrderWarning(UserWarning):
    """Inputs and targets whose index has the same rows in another order: they are taken by their places."""


class OtherSpellingWarning(UserWarning):
    """Labels in another spelling than the model's: they count as the labels that they mean."""


class OtherLanguageWarning(UserWarning):
    """Texts in another language than the encoder was trained on."""


class FromScratchWarning(UserWarning):
    """No pre-trained weights are at hand: a model begins with random ones, and needs more examples."""


class MalformedTagsWarning(UserWarning):
    """Tags of words that break the rules of their scheme; they are read as the spans that they mean."""


class FewStepsWarning(UserWarning):
    """The settings that were given leave a fit too few optimizer steps to learn from."""


class HighRateWarning(UserWarning):
    """The learning rate that was given is far above what such a model is trained with; it may diverge."""


class OtherBitsWarning(UserWarning):
    """A resumed training goes on by other arithmetic than it began with, so with other bits than one run."""


class SeveralProcessesWarning(UserWarning):
    """WORLD_SIZE is above 1 and ``torchrun`` has not started this process: it waits for others."""


class OtherDeviceWarning(UserWarning):
    """A saved model names a GPU and none is visible: it computes on what is there."""


class DimImagesWarning(UserWarning):
    """The brightest pixel of all training images is far below white."""


class IdleSettingWarning(UserWarning):
    """A setting that was given does nothing as the others stand."""


def with_article(name: str) -> str:
    """A name in a message, behind "a" or "an"."""
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"
