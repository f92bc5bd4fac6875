#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The protocol modules, and single files of other modules, do no I/O. What they are and what is forbidden stands in sans_io.txt. Three looks:

1. their files include no header of the system;
2. `nm -u` on their objects finds no socket, clock, file, thread or sleep;
3. templates leave nothing in an object of their own module, so the sources that instantiate them (their tests, the providers) are compiled
   with one section a function, and the functions of the modules' namespaces may not refer to a forbidden symbol either.

Sources that keep 2 and 3 are remembered (memory.py).
"""
import concurrent.futures
import functools
import pathlib
import re
import subprocess
import sys
import tempfile

import files
import memory

INCLUDE = re.compile(r"^\s*#\s*include\s*[<\"]([^>\"]+)[>\"]")
NAMESPACE = re.compile(r"^namespace weft::(\w+)", re.MULTILINE)
FOLDERS = [files.ROOT / "src", files.ROOT / "include"]
SECTION = re.compile(r"^Relocation section '\.rela\.text\.(\S+)'")


def rules() -> "dict[str, list[str]]":
    sections, current = {}, None
    for line in (files.ROOT / "scripts/check/sans_io.txt").read_text().splitlines():
        if line.startswith("[") and line.endswith("]"):
            current = sections.setdefault(line[1:-1], [])
        elif current is not None and line.strip() and not line.startswith("#"):
            current.append(line.strip())
    return sections


def run(*command: str) -> str:
    return subprocess.run(command, cwd=files.ROOT, capture_output=True, text=True, check=True).stdout


@functools.cache
def version() -> str:
    return run("g++", "--version")


def compiled(source, target: str, *options: str) -> None:
    run("g++", "-std=c++20", "-Isrc", "-Iinclude", "-w", *options, "-c", str(source), "-o", target)


def undefined_symbols(source, target: str) -> "set[str]":
    compiled(source, target, "-O1", "-DNDEBUG")
    return {line.split()[-1].split("@")[0] for line in run("nm", "-u", target).splitlines() if line.strip()}


def referred_symbols(source, target: str, ours: "re.Pattern") -> "tuple[int, set[tuple[str, str]]]":
    """How many functions of the modules the object holds, and pairs of such a function and a symbol that it refers to."""
    compiled(source, target, "-O0", "-ffunction-sections")
    pairs, seen, function = set(), 0, None
    for line in run("readelf", "-rW", target).splitlines():
        section = SECTION.match(line)
        if section:
            function = section.group(1) if ours.match(section.group(1)) and "3sim" not in section.group(1) else None
            seen += function is not None
        elif line.startswith("Relocation section"):
            function = None
        elif function and len(line.split()) >= 5:
            pairs.add((function, line.split()[4].split("@")[0]))
    return seen, pairs


def look(source, target: str, ours: "re.Pattern | None", forbidden: "re.Pattern", good: memory.Memory) -> "tuple[int, list[str]]":
    """How many functions of the modules a source that instantiates them has, and what is wrong. `ours` is None for a source of the modules."""
    def key() -> str:
        return memory.digest(source, FOLDERS, version(), memory.text_of(pathlib.Path(__file__)), forbidden.pattern, ours and ours.pattern)

    before = key()
    known = good.note(before)
    if known is not None:
        return int(known), []
    name = source.relative_to(files.ROOT)
    functions = 0
    try:
        if ours is None:
            complaints = [f"{name}: uses {symbol}" for symbol in sorted(undefined_symbols(source, target)) if forbidden.fullmatch(symbol)]
        else:
            functions, pairs = referred_symbols(source, target, ours)
            complaints = [f"{name}: {function} uses {symbol}" for function, symbol in sorted(pairs) if forbidden.fullmatch(symbol)]
    except subprocess.CalledProcessError as error:
        return 0, [f"{name}: does not compile:\n{error.stderr}"]
    if not complaints:
        good.keep(before, key, str(functions))
    return functions, complaints


def main() -> int:
    sections = rules()
    headers = set(" ".join(sections["headers"]).split())
    forbidden = re.compile("|".join(f"(?:{line})" for line in sections["symbols"]))
    starts = tuple(f"src/{module}/" for module in sections["modules"])
    single = {f"src/{name}" for name in sections["files"]}
    missing = [f"sans_io.txt: no file {name}" for name in sorted(single) if not (files.ROOT / name).is_file()]
    complaints, sources, users, namespaces = missing, [], [], set()
    for path in files.cpp_files():
        name = path.relative_to(files.ROOT).as_posix()
        test = name.endswith(("_test.cpp", "_suite.hpp")) or path.name.startswith("sim_")  # simulators and suites serve tests only
        in_room = name.startswith(starts)
        inside = in_room or name in single
        if path.suffix == ".cpp" and (in_room and name.endswith("_test.cpp") or name.startswith("src/providers/")
                                        or name.startswith("src/api/libfabric/providers/")):
            users.append(path)
        if not inside or test:
            continue
        text = path.read_text()
        if in_room:
            namespaces.update(NAMESPACE.findall(text))
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            if match and match.group(1) in headers:
                complaints.append(f"{name}:{number}: must not include <{match.group(1)}>")
        if path.suffix == ".cpp":
            sources.append(path)
    ours = re.compile("_ZNK?4weft(?:" + "|".join(f"{len(n)}{n}" for n in sorted(namespaces)) + ")")

    good = memory.Memory("sans_io")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(files.jobs()) as pool:
        looks = [pool.submit(look, source, f"{folder}/{i}.o", ours if i >= len(sources) else None, forbidden, good)
                 for i, source in enumerate(sources + users)]
    functions = sum(result.result()[0] for result in looks)
    complaints += [text for result in looks for text in result.result()[1]]
    print("\n".join(complaints) if complaints else
          f"{len(sources)} objects, {functions} functions in {len(users)} sources that instantiate")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
