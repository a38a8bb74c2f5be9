"""Folders: records in them, temporary ones, and their content as bytes, for pickling."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
import zlib
from contextlib import contextmanager
from functools import reduce
from operator import truediv
from pathlib import Path
from typing import Any, Iterator

from ._errors import CheckpointError, IoError


class Unchanging:
    """An object that nothing changes, so that it is its own copy."""

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class TemporaryFolder(type(Path())):  # type: ignore[misc]
    """A temporary folder, which is removed when the last object is gone that refers to it or to a path in it."""

    _owner: Any = None

    @classmethod
    def make(cls) -> TemporaryFolder:
        folder = cls(tempfile.mkdtemp(prefix="tgnn-"))
        folder._owner = _Owner()
        weakref.finalize(folder._owner, _remove, str(folder), os.getpid())
        return folder

    def __truediv__(self, name: Any) -> TemporaryFolder:
        inside: TemporaryFolder = super().__truediv__(name)
        inside._owner = self._owner
        return inside

    def joinpath(self, *names: Any) -> TemporaryFolder:
        return reduce(truediv, names, self)

    def __reduce__(self) -> Any:
        return Path, (str(self),)


class _Owner:
    """What a folder lives as long as."""


def _remove(folder: str, process: int) -> None:
    # A forked process has a copy of the object, but not the folder.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def packed(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    try:
        return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    except OSError as e:
        raise CheckpointError(f"{folder}: cannot be read ({e})") from None


def write(files: dict[str, bytes], folder: Path) -> None:
    """Writes files to a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@contextmanager
def unpacked(files: dict[str, bytes]) -> Iterator[Path]:
    """A temporary folder with files."""
    with tempfile.TemporaryDirectory(prefix="tgnn-") as folder:
        write(files, Path(folder))
        yield Path(folder)


def record(file: Path) -> dict[str, Any]:
    """The record in a file of JSON."""
    return _parsed(_text(file), str(file))


def records(file: Path) -> list[dict[str, Any]]:
    """The records in a file with one in each line."""
    return [_parsed(_checked(line, f"{file}:{number}"), f"{file}:{number}") for number, line in enumerate(_text(file).splitlines(), 1)]


def _checked(line: str, where: str) -> str:
    """A record without its checksum, which it has unless an earlier version wrote it."""
    record, found, sum = line.rpartition(',"checksum":')
    if not found:
        return line
    if sum != f"{zlib.crc32((record + '}').encode())}}}":
        raise CheckpointError(f"{where} is damaged: it does not have its own checksum; take another copy of the run")
    return record + "}"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CheckpointError(f"{file} is damaged: it is not text; take another copy of the run") from None
    except OSError as e:
        raise IoError(f"{file}: cannot read ({e.strerror})") from None


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as e:
        raise CheckpointError(f"{where} is damaged: {e}; take another copy of the run") from None
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{where} is damaged: it is not a record; take another copy of the run")
    return parsed
