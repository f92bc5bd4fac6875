#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The files of the project, for the other checks. usage: files.py cpp|all

With git: what is tracked or new and not ignored. Without: everything outside build/ and hidden folders.
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CPP = {".cpp", ".hpp", ".h", ".c"}


def git(*arguments: str) -> "list[str] | None":
    """The lines that a git command prints, or None when there is no repository (or no such commit)."""
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.splitlines() if result.returncode == 0 else None


def project_files() -> "list[pathlib.Path]":
    names = git("ls-files", "--cached", "--others", "--exclude-standard")
    if names is None:
        names = []
        for folder, folders, files in os.walk(ROOT):
            folders[:] = [f for f in folders if f != "build" and (not f.startswith(".") or f == ".ci")]
            names += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files]
    return sorted(ROOT / name for name in names if (ROOT / name).is_file())


def cpp_files() -> "list[pathlib.Path]":
    """Without modules of the kernel, which are in its style and checked when they are built (tests/vm/kofi/build.sh)."""
    modules = {ROOT / "kernel", ROOT / "examples" / "kofi_hello"}
    return [path for path in project_files() if path.suffix in CPP and modules.isdisjoint(path.parents)]


def refuse(pattern, why, is_meant=lambda name: True) -> "tuple[list[str], int]":
    """A complaint for each match of a regular expression below src/, and how many files were looked at. `why` may be a function of the match."""
    complaints = []
    seen = 0
    for path in cpp_files():
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("src/") or not is_meant(name):
            continue
        seen += 1
        text = path.read_text()
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            complaints.append(f"{name}:{line}: {why(match) if callable(why) else why}")
    return complaints, seen


def jobs() -> int:
    return int(os.environ.get("WEFT_JOBS", os.cpu_count() or 1))


if __name__ == "__main__":
    wanted = cpp_files() if sys.argv[1:] == ["cpp"] else project_files()
    for path in wanted:
        print(path.relative_to(ROOT))
