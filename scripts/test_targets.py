#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The tests that a regular expression selects, and what has to be built for them: read from the sources, so that nothing has to be built to ask.

usage: test_targets.py --list [PATTERN]     names of tests, as ctest has them
       test_targets.py --targets PATTERN    targets of the build; "all" where the sources do not say which
Status 1: no test has such a name. Cases of a family (TEST_P, TYPED_TEST) are listed once.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASE = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.M)
CMAKE = (ROOT / "CMakeLists.txt").read_text()


def modules() -> "list[str]":
    lines = (ROOT / "scripts/check/modules.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def providers() -> "list[str]":
    """Those that the conformance program is run over: cmake/tests.cmake adds some to the lists of CMakeLists.txt."""
    lists = dict(re.findall(r'set\((WEFT_TEST_\w*PROVIDERS) "([^"]*)"', CMAKE))
    names = lists["WEFT_TEST_PROVIDERS"].split(";") + [name + "-msg" for name in lists["WEFT_TEST_MSG_PROVIDERS"].split(";")]
    return names + re.findall(r"weft_gtest\(weft_conformance ([\w+]+) ", (ROOT / "cmake/tests.cmake").read_text())


def cases(folder: pathlib.Path, pattern: str) -> "list[str]":
    return [f"{suite}.{case}" for path in sorted(folder.rglob(pattern)) for suite, case in CASE.findall(path.read_text())]


def tests() -> "list[tuple[str, list[str]]]":
    """(name, targets) of each test."""
    found: "list[tuple[str, list[str]]]" = []
    for module in modules():
        name = module.replace("/", "_")
        found += [(f"{name}: {case}", [f"weft_{name}_test"]) for case in cases(ROOT / "src" / module, "*_test.cpp")]
    found += [(f"tool: {case}", ["weft_tool_test"]) for case in cases(ROOT / "tools/weft", "*_test.cpp")]
    found += [(f"kernel: {case}", ["weft_kernel_wire_test"]) for case in cases(ROOT / "tests/kernel", "*_test.cpp")]
    conformance = cases(ROOT / "tests/conformance", "*.cpp")
    found += [(f"{provider}: {case}", ["weft_conformance"]) for provider in providers() for case in conformance]
    programs = {path.stem for path in (ROOT / "tests/system").glob("*.cpp")}
    for program in sorted(programs):
        if program.endswith("_test"):
            found.append((f"system: {program}", [f"weft_system_{program}", "weft_compat"]))
    for script in sorted((ROOT / "tests").glob("*/*_test.sh")):
        kind = script.parent.name
        label = "verbs" if kind == "verbs" else "system"
        if kind == "mpi" or script.stem == "direct_test":
            continue
        targets = ["all"]
        if kind == "system":
            text = script.read_text()
            words = set(re.findall(r"\w+", text)) - (set() if "system/echo" in text else {"echo"})  # a command of the shell, too
            targets = ["weft_installed"] + [f"weft_system_{program}" for program in sorted(programs & words)]
            if "plugins" in words or "c_plugin" in words or "minimal_provider" in words or "toy" in words:
                targets = ["all"]
        elif kind == "check":
            targets = []
        found.append((f"{label}: {script.stem}", targets))
    parts = re.search(r"foreach\(part IN ITEMS ([\w ]+)\)  # of direct_test", (ROOT / "cmake/tests.cmake").read_text())
    found += [(f"system: direct_test {part}", ["weft_installed"]) for part in (parts[1].split() if parts else [])]
    mpi = re.search(r"foreach\(provider IN ITEMS ([\w ]+)\)  # a semicolon", (ROOT / "cmake/tests.cmake").read_text())
    found += [(f"system: mpi over {provider}", ["weft_installed", "weft_mpi_walk"]) for provider in (mpi[1].split() if mpi else [])]
    found.append(("system: mpi between hosts", ["weft_installed", "weft_mpi_walk"]))
    for rule in ("layers", "walks", "paths", "licences", "constants", "requires", "streams", "kernel_versions"):
        found.append((f"check: {rule}", []))
    found += [("check: abi", ["weft_installed"]), ("check: instructions", ["weft_installed"]), ("check: kernel style", [])]
    found += [(f"check: walk of {name}", [f"weft_walk_{name}"]) for name in ("shm", "tcp", "rxd", "rxm", "verbs")]
    return found


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in ("--list", "--targets"):
        sys.exit(__doc__)
    try:
        pattern = re.compile(sys.argv[2] if len(sys.argv) > 2 else "")
    except re.error as error:
        sys.exit(f"test: '{sys.argv[2]}' is no regular expression: {error}")
    selected = [(name, targets) for name, targets in tests() if pattern.search(name)]
    if not selected:
        sys.exit(f"test: no test has a name like '{pattern.pattern}' (./dev test --list; cases that macros make: by their suite)")
    if sys.argv[1] == "--list":
        print("\n".join(sorted({name for name, _ in selected})))
    else:
        targets = sorted({target for _, some in selected for target in some})
        print("all" if "all" in targets else "\n".join(targets))
    return 0


if __name__ == "__main__":
    sys.exit(main())
