"""The weights of every epoch, kept on the way to be judged when the training is over.

    checkpoints/epochs/epoch-0001/   weights.safetensors, manifest.json

Nothing is chosen by them. An epoch's weights are written before the checkpoint of its last step, so that a
training that goes on from a checkpoint has those of every epoch that it has done.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from torch import Tensor

from glassformer.checkpoints.files import disk_errors, verify_folder, write_folder
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError, ConfigError
from glassformer.train.callbacks import Callback
from glassformer.train.loop import StepInfo
from glassformer.train.state import Training

_NAME = re.compile(r"epoch-(\d{4,})")


class KeepEpochs(Callback):
    """Save the weights that would be judged after each epoch, beside the training's checkpoints.

    Raises:
        ConfigError: there are no checkpoints.
    """

    def __init__(self, checkpoints: str | Path | None):
        if checkpoints is None:
            what = "the weights of each epoch are kept beside checkpoints, and there are none"
            raise ConfigError(what, where="keep_epochs", fix="Give fit a folder: checkpoints=...")
        self.folder = Path(checkpoints) / "epochs"

    def start(self, training: Training) -> None:
        if training.ranks.leads:  # of a past that did not happen
            with disk_errors(self.folder):
                for epoch, path in kept_epochs(self.folder):
                    if epoch > training.epoch:
                        shutil.rmtree(path)

    def step(self, training: Training, info: StepInfo) -> None:
        if training.cursor:
            return
        weights = training.optimizer.weights()  # of several processes, all have a part in it
        if training.ranks.leads:
            path = self.folder / f"epoch-{training.epoch:04d}"

            def write(fresh: Path) -> None:
                write_tensors(fresh, weights, name="weights")

            with disk_errors(path):
                self.folder.mkdir(parents=True, exist_ok=True)
                write_folder(
                    path, write, extra={"epoch": training.epoch, "step": training.step}, overwrite=True
                )


def kept_epochs(folder: Path) -> list[tuple[int, Path]]:
    """Numbers, from 1 on, and folders of the epochs that were kept, in their order."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return sorted(found)


def epoch_weights(path: Path) -> tuple[int, dict[str, Tensor]]:
    """The step at the end of a kept epoch, and its weights.

    Raises:
        CheckpointError: damaged files.
    """
    step = verify_folder(path)["extra"].get("step")
    if not isinstance(step, int):
        raise CheckpointError("does not say which step it is of", where=str(path))
    return step, read_tensors(path, "weights")
