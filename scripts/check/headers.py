#!/usr/bin/env python3
"""Every header compiles alone, and twice in one file. usage: headers.py COMPILER..."""
import concurrent.futures
import subprocess
import sys

import files


def compile_alone(compiler: str, header: str) -> str:
    """What the compiler has against the header; empty when nothing."""
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Isrc", "-Iinclude", "-x", "c++", "-"]
    text = f'#include "{header}"\n#include "{header}"\n'
    result = subprocess.run(command, cwd=files.ROOT, input=text, capture_output=True, text=True, check=False)
    return "" if result.returncode == 0 else f"{header} ({compiler}):\n{result.stderr}"


def main() -> int:
    headers = []
    for path in files.cpp_files():
        name = path.relative_to(files.ROOT).as_posix()
        if path.suffix in (".hpp", ".h") and name.startswith(("src/", "include/")):
            headers.append(name.split("/", 1)[1])
    pairs = [(compiler, header) for compiler in sys.argv[1:] or ["g++"] for header in headers]
    with concurrent.futures.ThreadPoolExecutor(files.jobs()) as pool:
        complaints = [text for text in pool.map(lambda pair: compile_alone(*pair), pairs) if text]
    print("\n".join(complaints) if complaints else f"{len(headers)} headers")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
