#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""clang compiles the sources that reach every template, and the fuzzers, which no other build has; what did is remembered (memory.py)."""
import concurrent.futures
import functools
import subprocess
import sys

import files
import memory

FOLDERS = [files.ROOT / "src", files.ROOT / "include"]
COMMAND = ["clang++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Isrc", "-Iinclude"]
SOURCES = ("src/api/libfabric/entry/registry.cpp", "src/api/libfabric/providers/*.cpp", "src/api/libfabric/foreign/foreign_layer.cpp", "tests/fuzz/*.cpp")


@functools.cache
def version() -> str:
    return subprocess.run(["clang++", "--version"], capture_output=True, text=True, check=True).stdout


def complaint(path, good: memory.Memory) -> str:
    """What clang has against the source; empty when nothing."""
    def key() -> str:
        return memory.digest(path, FOLDERS, version(), COMMAND)

    before = key()
    if good.note(before) is not None:
        return ""
    result = subprocess.run([*COMMAND, str(path.relative_to(files.ROOT))], cwd=files.ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return f"{path.relative_to(files.ROOT)} (status {result.returncode}):\n{result.stderr}"
    good.keep(before, key)
    return ""


def main() -> int:
    sources = [path for pattern in SOURCES for path in sorted(files.ROOT.glob(pattern))]
    good = memory.Memory("clang")
    with concurrent.futures.ThreadPoolExecutor(files.jobs()) as pool:
        complaints = [text for text in pool.map(lambda path: complaint(path, good), sources) if text]
    print("\n".join(complaints) if complaints else f"{len(sources)} sources")
    return 1 if complaints or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
