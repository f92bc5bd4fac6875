# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What a check found good, so that it need not look again until something that decides about it has changed.

A good result is kept in build/checked/CHECK/ under a digest of the source, every file of the project that it may include, and what else the check
names: its command, the version of its tool, its rules. Complaints are never kept. Headers of the system are not part of the digest: after an
upgrade of a library, remove the folder.
"""
import functools
import hashlib
import pathlib
import re
import typing

import files

INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include(?:_next)?[ \t]*(?:[<\"]([^>\"]+)[>\"])?", re.MULTILINE)
HEADERS = (".hpp", ".h", ".inc")


@functools.cache
def text_of(path: pathlib.Path) -> "bytes | None":
    return path.read_bytes() if path.is_file() else None


@functools.cache
def resolved(path: pathlib.Path) -> pathlib.Path:
    return path.resolve()


@functools.cache
def includes_of(path: pathlib.Path) -> "set[bytes]":
    return set(INCLUDE.findall(text_of(path) or b""))


@functools.cache
def headers() -> "tuple[pathlib.Path, ...]":
    return tuple(path for path in files.project_files() if path.suffix in HEADERS)


def reached(source: pathlib.Path, folders: "typing.Iterable[pathlib.Path]") -> "set[pathlib.Path]":
    """The source and every file of the project that it may include, from its own folder or one of these. Conditions are not looked at, and a name
    is taken from every folder that has it, so this is never less than what the compiler reads. After an include by a macro it is every header."""
    ours = [folder for folder in folders if folder.is_relative_to(files.ROOT)]
    found, waiting = {source}, [source]
    while waiting:
        path = waiting.pop()
        for name in includes_of(path):
            named = [folder / name.decode() for folder in (path.parent, *ours)] if name else headers()
            new = {resolved(file) for file in named if text_of(file) is not None} - found
            found |= new
            waiting += new
    return found


def digest(source: pathlib.Path, folders: "typing.Iterable[pathlib.Path]", *others: object) -> str:
    sha = hashlib.sha256(repr(others).replace(str(files.ROOT), "").encode())
    for path in sorted(reached(source, folders)):
        text = text_of(path)
        sha.update(f"\0{path.relative_to(files.ROOT)}\0{len(text)}\0".encode() + text)
    return sha.hexdigest()


class Memory:
    def __init__(self, check: str) -> None:
        self.folder = files.ROOT / "build" / "checked" / check
        self.folder.mkdir(parents=True, exist_ok=True)

    def note(self, key: str) -> "str | None":
        """What was kept with a good result; None when there is none."""
        path = self.folder / key
        return path.read_text() if path.exists() else None

    def keep(self, key: str, again: "typing.Callable[[], str]", note: str = "") -> None:
        """Keeps a good result, unless the files were edited while the check looked: `again` makes the key anew."""
        text_of.cache_clear()
        includes_of.cache_clear()
        if again() == key:
            (self.folder / key).write_text(note)
