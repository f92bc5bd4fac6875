#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What programs and objects of others were built against has not changed: abidiff against baselines. usage: abi.py [--renew] [BUILD]

    tests/compat/abi/NAME.cpp, NAME.c   compiled with include/ alone and debugging information: the layouts of what our headers pass
    BUILD's libraries                   their symbols and versions; without BUILD those of build/release that are newer than their baselines

and for each of them tests/compat/abi/NAME.abi, as abidw (package abigail-tools) writes it. Every difference fails. --renew writes what has only grown;
for anything else the baseline must be taken away by hand first, and the major version or the soname changed with it.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import files

BASELINES = files.ROOT / "tests/compat/abi"
LIBRARIES = {
    "libfabric.so.1": "lib/weft/compat/libfabric.so.1",
    "libweft.so.1": "lib/libweft.so.1",
    "libweft-fi.so": "lib/weft/plugin/libweft-fi.so",
}
# What abidiff says of a change that old programs do not survive. Symbols that are gone have a bit of its status besides.
BREAKS = re.compile(r"deletion|offset changed|type of '|parameter \d+ .*changed|\bremoved\b(?!, )|return type changed|enumerator '.*' from value|\[D\]",
                    re.IGNORECASE)
INCOMPATIBLE = 8  # abidiff(1), RETURN VALUES
FAULT = 3


def run(*command: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(word) for word in command], cwd=files.ROOT, capture_output=True, text=True, check=False)


def made(*command: object) -> None:
    result = run(*command)
    if result.returncode != 0:
        raise RuntimeError(result.stdout + result.stderr)


def of_types(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    library, text = folder / f"{source.stem}.so", folder / f"{source.stem}.abi"
    compiler = ["gcc", "-std=c11"] if source.suffix == ".c" else ["g++", "-std=c++20"]
    made(*compiler, "-g", "-O0", "-shared", "-fPIC", "-fvisibility=hidden", "-Iinclude", source.relative_to(files.ROOT), "-o", library)
    made("abidw", "--exported-interfaces-only", "--headers-dir", files.ROOT / "include", "--drop-private-types", "--no-corpus-path",
         "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed", "--no-write-default-sizes", "--no-parameter-names", "--type-id-style", "hash",
         "--out-file", text, library)
    return text


def of_symbols(library: pathlib.Path, name: str, folder: pathlib.Path) -> pathlib.Path:
    stripped, text = folder / name, folder / f"{name}.abi"
    made("strip", "--strip-debug", "-o", stripped, library)
    made("abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-elf-needed", "--out-file", text, stripped)
    return text


def newer(library: pathlib.Path, baseline: pathlib.Path) -> bool:
    return library.exists() and (not baseline.exists() or library.stat().st_mtime > baseline.stat().st_mtime)


def difference(baseline: pathlib.Path, now: pathlib.Path) -> "tuple[str, bool]":
    """abidiff's text, empty when nothing changed; whether old programs break."""
    others = BASELINES / "others.suppr"
    result = run("abidiff", "--no-show-locs", *(["--suppr", others] if others.exists() else []), baseline, now)
    if result.returncode & FAULT:
        raise RuntimeError(result.stdout + result.stderr)
    text = result.stdout if result.returncode else ""
    summary = ("Functions changes summary", "Variables changes summary", "Function symbols changes summary", "Variable symbols changes summary")
    changed = "\n".join(line for line in text.splitlines() if not line.startswith(summary))
    return text, bool(result.returncode & INCOMPATIBLE) or bool(BREAKS.search(changed))


def main() -> int:
    arguments = [word for word in sys.argv[1:] if word != "--renew"]
    renew = "--renew" in sys.argv[1:]
    build = pathlib.Path(arguments[0] if arguments else files.ROOT / "build/release")
    if shutil.which("abidiff") is None:
        print("abidiff is not here: ./dev setup installs it (package abigail-tools); what old programs need is not checked")
        return 1
    complaints, seen, absent = [], 0, []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        now = {source.stem: of_types(source, folder) for source in sorted(BASELINES.glob("*.c*")) if source.suffix in (".c", ".cpp")}
        for library, place in LIBRARIES.items():
            if arguments or renew or newer(build / place, BASELINES / f"{library}.abi"):
                if (build / place).exists():
                    now[library] = of_symbols(build / place, library, folder)
                    continue
            absent.append(library)
        for what, text in now.items():
            seen += 1
            baseline = BASELINES / f"{what}.abi"
            if not baseline.exists():
                if renew:
                    shutil.copy(text, baseline)
                else:
                    complaints.append(f"{what}: there is no baseline; ./dev check --abi-renew writes it")
                continue
            changes, breaks = difference(baseline, text)
            if not changes:
                continue
            if breaks:
                complaints.append(f"{what} is not compatible with what was built before:\n{changes}")
            elif renew:
                shutil.copy(text, baseline)
                print(f"{what}: renewed, with\n{changes}")
            else:
                complaints.append(f"{what} has grown; if that is meant: ./dev check --abi-renew\n{changes}")
    print("\n".join(complaints) if complaints else f"{seen} baselines" + (f", not built since: {' '.join(absent)}" if absent else ""))
    return 1 if complaints else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        print(error)
        sys.exit(1)
