#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A walk tells what a message does: the first `file:symbol` of each of its numbered steps is a function that a real message passes, in the order of the steps.

usage: walk_test.py TRACE_PROGRAM WALK...
       walk_test.py --kernel NAMES WALK

Two walks: the way out and the way in. One: its sections "## Out" and "## In", up to the next one.
--kernel: the names of the functions that were passed stand in a file, one a line (`./dev vm kofi walk`). A section of the walk whose title begins
with "When" is about another case.
"""
import pathlib
import re
import subprocess
import sys

ANCHOR = re.compile(r"`(?:src/)?([A-Za-z0-9_./-]+\.(?:hpp|cpp|h|c)):([A-Za-z_~][A-Za-z0-9_:~]*)`")


def without_templates(name):
    depth, out = 0, []
    for letter in name:
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth -= 1
        elif depth == 0:
            out.append(letter)
    return "".join(out)


def passed(program):
    """The names that were recorded, in order, for each direction."""
    names = {}
    for line in subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout.splitlines():
        parts = line.split(" ", 2)
        if len(parts) == 3 and parts[0]:
            names.setdefault(int(parts[0], 16), without_templates(parts[2].replace("(anonymous namespace)::", "")).split("(")[0].split(" ")[-1])
    out = {"send": [], "receive": []}
    run = subprocess.run([program], capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        sys.exit(f"{program} ended with status {run.returncode}: {run.stderr.strip()}")
    for line in run.stdout.splitlines():
        direction, address = line.split()
        out[direction].append(names.get(int(address, 16), "?"))
    return out


def steps(text):
    """(number, symbol) of each numbered step that names a function."""
    for number, body in re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", text, re.DOTALL | re.MULTILINE):
        anchor = ANCHOR.search(body)
        if anchor:
            yield int(number), anchor.group(2)


def is_named(name, symbol):
    """Whether a function has that name; a class stands for its constructor."""
    return ("::" + name).endswith("::" + symbol) or ("::" + name).endswith(f"::{symbol}::{symbol.split('::')[-1]}")


def compare(trace, texts):
    complaints = []
    for (direction, names), text in zip(trace.items(), texts, strict=True):
        at, told = 0, 0
        for number, symbol in steps(text):
            told += 1
            found = next((i for i in range(at, len(names)) if is_named(names[i], symbol)), None)
            if found is None:
                before = any(is_named(name, symbol) for name in names)
                complaints.append(f"{direction}, step {number}: {symbol} is {'passed before the step above it' if before else 'not passed'}")
            else:
                at = found
        if told == 0:
            complaints.append(f"{direction}: no step names a function")
        print(f"{direction}: {told} steps, {len(names)} functions recorded")
    return complaints


def of_kernel(trace, walk):
    """The names in the file, and the text of the walk without the sections about other cases."""
    names = [line.split(".")[0] for line in pathlib.Path(trace).read_text().split()]
    sections = re.split(r"^(?=\*\*)", pathlib.Path(walk).read_text(), flags=re.MULTILINE)
    text = "".join(section for section in sections if not section.startswith("**When"))
    return names, text


def main():
    if sys.argv[1] == "--kernel":
        names, text = of_kernel(*sys.argv[2:])
        complaints = compare({"write": names}, [text])
        print("\n".join(complaints))
        return 1 if complaints else 0
    program, *walks = sys.argv[1:]
    texts = [pathlib.Path(walk).read_text() for walk in walks]
    if len(texts) == 1:
        out, inward = re.split(r"^## In$", texts[0], flags=re.MULTILINE)
        texts = [out, re.split(r"^## ", inward, flags=re.MULTILINE)[0]]
    # The domain's guard (docs/progress.md) takes a message where the program does not poll for a while, as on a busy machine.
    for _ in range(3):
        complaints = compare(passed(program), texts)
        print("\n".join(complaints))
        if not complaints:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
