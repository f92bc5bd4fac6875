#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Every header compiles alone, and twice in one file; what did is remembered (memory.py). usage: headers.py COMPILER..."""
import concurrent.futures
import functools
import subprocess
import sys

import files
import memory

FOLDERS = [files.ROOT / "src", files.ROOT / "include"]


@functools.cache
def version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


def compile_alone(compiler: str, header: str, good: memory.Memory) -> str:
    """What the compiler has against the header; empty when nothing."""
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Isrc", "-Iinclude", "-x", "c++", "-"]
    text = f'#include "{header}"\n#include "{header}"\n'

    def key() -> str:
        return memory.digest(next(folder / header for folder in FOLDERS if (folder / header).exists()), FOLDERS, version(compiler), command, text)

    before = key()
    if good.note(before) is not None:
        return ""
    result = subprocess.run(command, cwd=files.ROOT, input=text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return f"{header} ({compiler}):\n{result.stderr}"
    good.keep(before, key)
    return ""


def main() -> int:
    headers = []
    for path in files.cpp_files():
        name = path.relative_to(files.ROOT).as_posix()
        if path.suffix in (".hpp", ".h") and name.startswith(("src/", "include/")):
            headers.append(name.split("/", 1)[1])
    good = memory.Memory("headers")
    pairs = [(compiler, header) for compiler in sys.argv[1:] or ["g++"] for header in headers]
    with concurrent.futures.ThreadPoolExecutor(files.jobs()) as pool:
        complaints = [text for text in pool.map(lambda pair: compile_alone(*pair, good), pairs) if text]
    print("\n".join(complaints) if complaints else f"{len(headers)} headers")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
