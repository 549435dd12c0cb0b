"""Write folders atomically, and check them by a manifest.

A folder is written under a hidden name next to its target. Every file is synced to the disk. A manifest with
sizes and SHA-256 sums is written last. Then one rename makes the folder visible:

    .model.4711-9f3a.tmp/   ->  files  ->  manifest.json  ->  fsync  ->  rename  ->  model/

If the process is killed at any time, the old folder can still be read. If the system can exchange two names
(Linux, local disks), the folder is never missing. Several processes may save to the same path: each process
writes its own folder, and the last rename wins.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from glassformer.checkpoints.catalog import is_catalog_name
from glassformer.checkpoints.locks import folder_lock, is_in_use, marked_in_use
from glassformer.errors import (
    CannotWriteError,
    CheckpointError,
    FolderExistsError,
    IncompleteError,
    NewerFormatError,
    NoSuchModelError,
    UserFileLostWarning,
)
from glassformer.finite import json_text
from glassformer.outputs import escape_surrogates
from glassformer.reading import open_regular, read_regular, unique_keys

# --- the model card, ``README.md`` -----------------------------------------------------------------
#
# A generated card ends with a checksum of the text before it. If the checksum differs, the user has edited
# the card. Then the file stays, and the new card is written as ``README.generated.md``. Manifests list
# neither file, so that an edit does not count as damage.

README, GENERATED_README = "README.md", "README.generated.md"
UNLISTED = {README, GENERATED_README}  # files that a manifest does not list
MAX_CARD_BYTES = 4 * 2**20
_CHECKSUM_LINE = re.compile(r"\n<!-- card ([0-9a-f]{64}): edit freely, an edited card is kept -->\n\Z")


def add_card_checksum(text: str) -> str:
    """The text of a card, followed by the line with its checksum."""
    text = text.rstrip("\n") + "\n"
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return f"{text}\n<!-- card {checksum}: edit freely, an edited card is kept -->\n"


def is_unedited_card(path: Path) -> bool:
    """Whether a file is a generated card that nobody has edited."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_CARD_BYTES:
            return False
        text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return False
    match = _CHECKSUM_LINE.search(text)
    return match is not None and hashlib.sha256(text[: match.start()].encode()).hexdigest() == match[1]


def card_path(folder: Path) -> Path:
    """The path for a new card: ``README.md``, or ``README.generated.md`` if the user has edited the card."""
    path = folder / README
    return path if not path.exists() or is_unedited_card(path) else folder / GENERATED_README


def keep_edited_card(old: Path, new: Path) -> None:
    """Copy the user's ``README.md`` of a folder to the folder that will replace it."""
    path = old / README
    if not path.is_file() or path.is_symlink() or is_unedited_card(path):
        return
    if (new / README).exists():
        (new / README).replace(new / GENERATED_README)
    shutil.copyfile(path, new / README)


# --- the user's files -----------------------------------------------------------------------------


def keep_user_files(old: Path, new: Path, is_listed: Callable[[str], bool]) -> None:
    """Link or copy the user's files of a folder into the folder that will replace it.

    Files are hard-linked, so that they need no extra space. If ``new`` has a file of the same name, that file
    stays. Symbolic links are copied as links. If a file cannot be linked or copied, ``UserFileLostWarning``
    is issued and the save continues.

    Args:
        is_listed: returns True for the name of a file that glassformer wrote, which is not kept.
    """
    with suppress(OSError):
        keep_edited_card(old, new)
    for name in _user_files(old, is_listed):
        try:
            _link_or_copy(old / name, new / name)
        except OSError as error:
            what = f"{old / name} was lost when {old} was saved again: {error.strerror}"
            warnings.warn(what, UserFileLostWarning, stacklevel=5)


def _user_files(old: Path, is_listed: Callable[[str], bool]) -> Iterator[Path]:
    """Relative paths of the user's files, links, empty folders and unreadable folders."""
    for folder, folders, files in os.walk(old):
        parent = Path(folder).relative_to(old)
        # A link to a folder, or an unreadable folder, is kept as a whole.
        paths = {name: Path(folder) / name for name in folders}
        opaque = [n for n, p in paths.items() if p.is_symlink() or not os.access(p, os.R_OK | os.X_OK)]
        folders[:] = [name for name in folders if name not in opaque]
        for name in [*files, *opaque]:
            relative = parent / name
            if not is_listed(relative.as_posix()) and relative.as_posix() not in UNLISTED:
                yield relative
        if not folders and not files and not opaque and folder != str(old):
            yield parent


def _link_or_copy(path: Path, target: Path) -> None:
    if os.path.lexists(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        target.symlink_to(os.readlink(path))
    elif path.is_dir() and os.access(path, os.R_OK | os.X_OK):
        target.mkdir()
    else:
        for method in (os.link, shutil.copy2):  # some file systems have no hard links
            with suppress(OSError):
                method(path, target)
                return
        os.rename(path, target)  # an unreadable folder, for example of another user


# --- reading a folder while another process replaces it ---------------------------------------------


Result = TypeVar("Result")

MANIFEST = "manifest.json"
MAX_ATTEMPTS = 20  # maximum number of reads in total, while another process saves the folder
# After this many attempts an error is raised even if the folder has just changed or is missing.
MAX_ATTEMPTS_AFTER_ERROR = 4
STABLE_SECONDS = 2.0  # a folder younger than this counts as just changed
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # from fcntl.h and linux/fs.h


def swap_names(first: Path, second: Path) -> bool:
    """Exchange the names of two folders atomically; return False if the system or the disk cannot do it."""
    call = _renameat2()
    return (
        call is not None
        and call(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE) == 0
    )


@cache
def _renameat2() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # an older or different C library
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return call


def read_consistently(path: Path, read: Callable[[], Result]) -> Result:
    """The result of ``read``, repeated until ``path`` does not change meanwhile: all data are from one save.

    Raises:
        CheckpointError: the folder changes faster than it can be read; or any error of ``read``.
    """
    for attempt in range(MAX_ATTEMPTS):
        stamp = _stamp(path)
        try:
            result = read()
        except Exception:
            if _stamp(path) == stamp and (attempt >= MAX_ATTEMPTS_AFTER_ERROR or _is_stable(path)):
                raise
        else:
            if _stamp(path) == stamp:
                return result
        time.sleep(0.002 * attempt)
    raise CheckpointError("keeps changing while it is being read", where=str(path), fix="Try again")


def _stamp(path: Path) -> tuple[Any, ...] | None:
    """A value that changes with each save; None if there is no folder with a manifest."""
    try:
        info = os.stat(path)
        with open(path / MANIFEST, "rb", opener=_without_waiting) as file:
            return info.st_dev, info.st_ino, info.st_mtime_ns, hash(file.read(2**20))
    except OSError:
        return None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe with this name must not block


def _is_stable(path: Path) -> bool:
    """Whether the folder was not created or renamed within the last ``STABLE_SECONDS``.

    On systems that cannot exchange names, a folder is briefly missing during a save. A reader that sees this
    restores the old folder, so an error just after such a change is not final.
    """
    try:
        return not 0 <= time.time() - os.stat(path).st_ctime < STABLE_SECONDS
    except OSError:
        return False


# --- folders --------------------------------------------------------------------------------------


MAX_NAMED = 3  # maximum number of sub-folders in a message
MAX_SEARCHED = 1_000  # maximum number of sub-folders that are searched for models
MANIFEST_FORMAT = 1
MAX_JSON_BYTES = 64 * 2**20
MAX_FOLDER_BYTES = 2**40  # maximum total size of the files in a manifest; checking more would take hours
# Name of a folder that is being written (``.NAME.PID-RANDOM.tmp``) or replaced (``.NAME.PID-RANDOM.old``)
_LEFTOVER = re.compile(r"\.(.+)\.(\d+)-[0-9a-f]{8}\.(tmp|old)")
UPDATE = "Read it with the version that wrote it, or update glassformer"
_SAVE_AGAIN = "Save it again or take another copy"
LFS_POINTER = b"version https://git-lfs"


def write_folder(
    path: str | Path,
    writer: Callable[[Path], None],
    extra: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Create a folder with the files of ``writer``; it appears at ``path`` in one step.

    Args:
        path: the folder to create, with missing parents.
        writer: called with an empty temporary folder next to ``path``; may create sub-folders.
        extra: JSON values that are stored in the manifest under ``"extra"``.
        overwrite: whether to replace a folder of an earlier call once the new folder is complete. The user's
            files are kept: files that the manifest does not list, and an edited ``README.md``.

    Returns:
        ``path`` as a :class:`Path`.

    Raises:
        CheckpointError: ``path`` exists, and ``overwrite`` is False or glassformer did not write it; or
            ``writer`` created a link or another file that is not plain.
        GlassformerError: the disk is full or read-only; an older folder stays untouched.
    """
    path = Path(path)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = temporary_name(path)
        with ExitStack() as locks:
            with folder_lock(path.parent):
                _remove_leftovers(path.parent, path.name)
                if os.path.lexists(path):
                    _check_replaceable(path, overwrite)
                draft.mkdir()
                locks.enter_context(marked_in_use(draft))
            try:
                writer(draft)
                _write_manifest(draft, dict(extra or {}))
                with folder_lock(path.parent):
                    if os.path.lexists(path):  # another process may have created it meanwhile
                        listed = {MANIFEST, *_check_replaceable(path, overwrite)}
                        keep_user_files(
                            path, draft, lambda name: name in listed or is_temporary(Path(name).name)
                        )
                    _publish(draft, path)
            finally:  # after an error this is the draft; after an exchange of names it is the old folder
                shutil.rmtree(draft, ignore_errors=True)
    return path


def verify_folder(path: str | Path, *, contents: bool = True) -> dict[str, Any]:
    """Check a folder against its manifest; files that the manifest does not list are ignored.

    Args:
        path: a folder written by :func:`write_folder`.
        contents: whether to compare SHA-256 sums, which reads every byte, in addition to names and sizes.

    Returns:
        The manifest: ``{"format", "files": {name: {"size", "sha256"}}, "extra"}``.

    Raises:
        CheckpointError: a file is missing, has changed, is a link or is outside of the folder; or the
            manifest is invalid.
    """
    path = Path(path)
    restore_folder(path)
    manifest = _read_manifest(path)
    for name, expected in sorted(manifest["files"].items()):
        file = _listed_path(path, name)
        try:
            info = os.stat(file)
        except OSError:
            raise IncompleteError("is missing", where=str(file), fix=_SAVE_AGAIN) from None
        if not stat.S_ISREG(info.st_mode):
            raise CheckpointError("is not a plain file", where=str(file), fix=_SAVE_AGAIN)
        if info.st_size != expected["size"]:
            what = f"was changed: {info.st_size:,} bytes instead of {expected['size']:,}"
            fix = _SAVE_AGAIN
            with file.open("rb") as opened:
                if opened.read(len(LFS_POINTER)) == LFS_POINTER:
                    what, fix = "is a Git LFS pointer, not the file", "Run 'git lfs pull' in the repository"
            raise IncompleteError(what, where=str(file), fix=fix)
        if contents and _checksum(file) != expected["sha256"]:
            what = "is damaged: its SHA-256 is not the one in the manifest"
            raise IncompleteError(what, where=str(file), fix=_SAVE_AGAIN)
    return manifest


def _checksum(file: Path) -> str:
    try:
        return file_sha256(file)
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}", where=str(file)) from None


def restore_folder(path: str | Path) -> None:
    """Restore the old folder if :func:`write_folder` was killed between its two renames.

    Earlier versions called the backup ``.NAME.old``. A user's folder may also have that name, so it is
    restored only if it has a manifest.
    """
    path = Path(path)
    if os.path.lexists(path):
        return
    with suppress(OSError):  # another process was faster, or no permission; the caller reports the error
        matches = filter(None, map(_LEFTOVER.fullmatch, os.listdir(path.parent)))
        backups = [path.parent / match[0] for match in matches if (match[1], match[3]) == (path.name, "old")]
        backups.sort(key=lambda backup: backup.lstat().st_mtime_ns)
        old_name = path.parent / f".{path.name}.old"
        if backups or _has_manifest(old_name):
            os.rename(backups[-1] if backups else old_name, path)


def _has_manifest(folder: Path) -> bool:
    """Whether this is a folder (not a link) with a manifest of ``write_folder``."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    try:
        _read_manifest(folder)
    except NewerFormatError:
        return True
    except CheckpointError:
        return False
    return True


def missing_run_hint(path: Path) -> str:
    """The fix for a missing path; ``runs/NAME`` is the default folder of the run of the recipe NAME."""
    if len(path.parts) < 2 or path.parts[0] != "runs":
        return "Check the path"
    name = path.parts[1]
    return f"Check the path; if {name} is a recipe, run 'glassformer train {name}' first, in this folder"


def list_models_below(folder: Path, *file_names: str) -> str:
    """The first sub-folders, at most two levels deep, that contain a file named in ``file_names``.

    They are joined by commas. For a run, its own folder is listed, not its ``model`` folder.
    """

    def run_or_model_folder(file: Path) -> Path:
        parent = file.parent
        return parent.parent if parent.name == "model" and parent.parent != folder else parent

    folders: dict[Path, None] = {}  # a set that keeps its order
    for depth in ("*", "*/*"):
        if len(folders) > MAX_NAMED:
            break
        for name in file_names:
            files = sorted(islice(folder.glob(f"{depth}/{name}"), MAX_SEARCHED))
            folders |= dict.fromkeys(map(run_or_model_folder, files[: MAX_NAMED + 1]))
    folders.pop(folder, None)
    text = ", ".join(map(str, list(folders)[:MAX_NAMED]))
    return text + (", ..." if len(folders) > MAX_NAMED else "")


def temporary_name(path: Path) -> Path:
    """A hidden name next to ``path``, which :func:`remove_leftovers` recognizes."""
    return path.parent / f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a file or folder with this name is being written, or was left by a killed process."""
    return _LEFTOVER.fullmatch(name) is not None


def remove_leftovers(parent: Path) -> None:
    """Remove temporary folders of killed processes, and restore old folders that were not replaced."""
    with folder_lock(parent):
        _remove_leftovers(parent)


def _remove_leftovers(parent: Path, name: str | None = None) -> None:
    """``remove_leftovers`` without the lock, for all folders or only for those that replace ``name``."""
    for entry in os.listdir(parent):
        match, path = _LEFTOVER.fullmatch(entry), parent / entry
        if match is None or name not in (None, match[1]):
            continue
        if match[3] == "old":
            if not os.path.lexists(parent / match[1]):
                restore_folder(parent / match[1])
            else:  # the save was completed
                shutil.rmtree(path, ignore_errors=True)
        elif not is_in_use(path, int(match[2])):
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert errors of the operating system while ``path`` is written to a GlassformerError."""
    try:
        yield
    except OSError as error:
        raise CannotWriteError.of(path, error) from error


@contextmanager
def atomic_replace(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; the file then replaces ``path`` in one step.

    Raises:
        GlassformerError: the disk is full or read-only; the old file stays untouched.
    """
    draft = temporary_name(path)
    with disk_errors(path):
        try:
            yield draft
            with open(draft, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(draft, path)
            _sync_folder(path.parent)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_replace(path) as draft:
        draft.write_text(escape_surrogates(text), encoding="utf-8")


def break_hard_links(path: Path) -> None:
    """Replace a file that has several hard links by a copy, so that writing does not change the others."""
    if path.stat().st_nlink > 1:
        with atomic_replace(path) as draft:
            shutil.copy2(path, draft)


def file_sha256(path: str | Path) -> str:
    """The SHA-256 sum of a plain file in hexadecimal digits; raise OSError for any other kind of file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: str | Path, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """A JSON object from a file of at most ``max_bytes``.

    Raises:
        CheckpointError: the file is missing, too large, not UTF-8 or not a JSON object.
    """
    return _parse_json(_read_bounded(Path(path), max_bytes), Path(path))


def _read_bounded(path: Path, max_bytes: int) -> bytes:
    try:
        return read_regular(path, max_bytes)
    except FileNotFoundError:
        raise IncompleteError("is missing", where=str(path)) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        what = reason if reason.startswith("is ") else f"cannot be read: {reason}"
        raise CheckpointError(what, where=str(path)) from None


def _parse_json(raw: bytes, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested too deeply
        raise CheckpointError(f"is not valid JSON: {error}", where=str(path), fix=_SAVE_AGAIN) from None
    if not isinstance(value, dict):
        raise CheckpointError("is not a JSON object", where=str(path), fix=_SAVE_AGAIN)
    return value


def _check_replaceable(path: Path, overwrite: bool) -> list[str]:
    """Check that glassformer wrote a folder and may replace it, and return the files in its manifest."""
    if not overwrite:
        raise FolderExistsError(
            "exists already", where=str(path), fix="Name another folder, remove it, or pass overwrite=True"
        )
    if path.is_symlink() or not path.is_dir():
        raise FolderExistsError("is not a folder", where=str(path), fix="Name another folder")
    if not (path / MANIFEST).is_file() and any(path.iterdir()):
        what = f"has no {MANIFEST}: glassformer did not write this folder and does not replace it"
        raise FolderExistsError(what, where=str(path), fix="Name another folder or remove it")
    try:
        manifest = read_json(path / MANIFEST)
    except CheckpointError:  # empty or damaged: it is unknown which files are the user's, so all are kept
        return []
    files = manifest.get("files")
    if not isinstance(files, dict) or not {"format", "extra"} <= manifest.keys():
        what = f"has a {MANIFEST} that glassformer did not write, so it is not replaced"
        raise FolderExistsError(what, where=str(path), fix="Name another folder or remove it")
    return list(files)


def _write_manifest(folder: Path, extra: dict[str, Any]) -> None:
    """Sync every file and folder, then write the manifest that lists the files."""
    files: dict[str, dict[str, Any]] = {}
    folders = [folder]
    for item in sorted(folder.rglob("*")):
        mode = item.lstat().st_mode
        if stat.S_ISDIR(mode):
            folders.append(item)
        elif stat.S_ISREG(mode):
            with open(item, "rb+") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size = os.fstat(file.fileno()).st_size
                os.fsync(file.fileno())
            if (name := item.relative_to(folder).as_posix()) not in UNLISTED:
                files[name] = {"size": size, "sha256": digest}
        else:
            raise CheckpointError("only plain files can be saved", where=str(item))
    manifest = {"format": MANIFEST_FORMAT, "files": files, "extra": extra}
    with open(folder / MANIFEST, "xb") as file:
        file.write(_render(manifest))
        file.flush()
        os.fsync(file.fileno())
    for item in reversed(folders):
        _sync_folder(item)


def _publish(draft: Path, target: Path) -> None:
    """Rename ``draft`` to ``target``; if ``target`` exists and names cannot be exchanged, in two steps."""
    backup = draft.with_suffix(".old")
    while True:
        if target.exists() and swap_names(draft, target):
            break  # one step: the names are exchanged
        if target.exists():
            os.rename(target, backup)  # the system cannot exchange names: the first of two steps
        try:
            os.rename(draft, target)
            break
        except OSError as error:
            # Between the two steps a reader saw no folder, and may have restored the old one: try again.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                restore_folder(target)
                raise
    _sync_folder(target.parent)
    shutil.rmtree(backup, ignore_errors=True)


def _sync_folder(path: Path) -> None:
    if os.name == "nt":  # Windows cannot sync folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _render(manifest: Mapping[str, Any]) -> bytes:
    """The manifest as sorted JSON, with a checksum of itself."""
    body = json_text(manifest, indent=1, sort_keys=True, ascii=True)
    checked = {**manifest, "check": hashlib.sha256(body.encode()).hexdigest()}
    return (json_text(checked, indent=1, sort_keys=True, ascii=True) + "\n").encode()


GIVE_A_MODEL = "Give a folder that save() or 'glassformer train' wrote"
MODEL_FILES = (
    MANIFEST,
    "config.toml",
    "model",
    "glassformer.json",
    "config.json",
    "model.safetensors",
    "state.json",
)


def missing_folder_error(path: str | Path) -> NoSuchModelError:
    """The error for a missing model folder."""
    fix = GIVE_A_MODEL
    if is_catalog_name(path):
        fix = f"{path} is a checkpoint: open it with load_pretrained, or train a classifier from it"
    return NoSuchModelError("no such folder", where=str(path), fix=fix)


def check_is_model(folder: Path) -> None:
    """Raise CheckpointError if a folder is neither a saved model nor a run."""
    if folder.is_dir() and not any((folder / name).exists() for name in MODEL_FILES):
        what = f"not a saved model or run: it has neither {MANIFEST} nor config.toml"
        raise NoSuchModelError(what, where=str(folder), fix=GIVE_A_MODEL)


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST
    if not folder.is_dir():
        raise missing_folder_error(folder)
    if not os.path.lexists(file):
        raise IncompleteError("is missing: the folder is incomplete", where=str(file), fix=_SAVE_AGAIN)
    raw = _read_bounded(file, MAX_JSON_BYTES)
    manifest = _parse_json(raw, file)
    manifest.pop("check", None)
    if raw != _render(manifest):
        what = "was changed or damaged: its checksum differs"
        raise CheckpointError(what, where=str(file), fix=_SAVE_AGAIN)
    version = manifest.get("format")
    if type(version) is not int or version < 1:
        raise CheckpointError(f"has format {version!r}", where=str(file), fix=_SAVE_AGAIN)
    if version > MANIFEST_FORMAT:
        what = f"has format {version}; this version reads up to {MANIFEST_FORMAT}"
        raise NewerFormatError(what, where=str(file), fix=UPDATE)
    files = manifest.get("files")
    if not isinstance(files, dict) or not isinstance(manifest.get("extra"), dict):
        raise CheckpointError("lacks 'files' or 'extra'", where=str(file), fix=_SAVE_AGAIN)
    for name, entry in files.items():
        if not (isinstance(entry, dict) and type(entry.get("size")) is int and "sha256" in entry):
            raise CheckpointError(f"lacks size and checksum of {name!r}", where=str(file), fix=_SAVE_AGAIN)
    if sum(entry["size"] for entry in files.values()) > MAX_FOLDER_BYTES:
        what = f"lists more than {MAX_FOLDER_BYTES >> 30:,} GiB"
        raise CheckpointError(what, where=str(file), fix="Do not use this checkpoint")
    return manifest


def _listed_path(folder: Path, name: str) -> Path:
    """The path of a file in a manifest; raise CheckpointError for links and for paths outside the folder."""
    parts = PurePosixPath(name).parts
    is_plain = bool(parts) and PurePosixPath(name).as_posix() == name and not name.startswith("/")
    if not is_plain or ".." in parts or any(c in name for c in "\\:\0"):
        what = f"lists {name!r}, which is not a plain name inside the folder"
        raise CheckpointError(what, where=str(folder / MANIFEST), fix="Do not use this checkpoint")
    file = folder
    for part in parts:
        file = file / part
        if file.is_symlink():
            raise CheckpointError("is a symbolic link", where=str(file), fix="Copy the file itself here")
    return file
