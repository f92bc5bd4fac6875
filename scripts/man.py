#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Manual pages of the command out of its --help texts, so that there is one source.

usage: man.py WEFT FOLDER [--check]      writes weft.1, weft-run.1, ... ; --check: says which of them differ, status 1
"""
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
COMMANDS = ["", "run", "info", "top", "trace", "perf", "mux", "check", "nic"]


def escaped(line):
    line = line.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + line if line[:1] in (".", "'") else line


def end_of(out, inside):
    while out[-1] == "":
        out.pop()
    if inside:
        out.append(".fi")


def page(program, command):
    words = [program] + ([command] if command else []) + ["--help"]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    name = "weft-" + command if command else "weft"
    out = [f'.TH {name.upper()} 1 "" "Weft" "Weft"']
    inside = False
    for line in text.rstrip().splitlines():
        if line and not line[0].isspace():
            end_of(out, inside)
            out.append(f".SH {line}")
            inside = False
        elif out[-1].startswith(".SH NAME"):
            # What apropos(1) reads: one line, with the name as a manual page has it.
            left, right = line.strip().split(" - ", 1)
            out.append(f"{left.replace(' ', chr(92) + '-')} \\- {escaped(right)}")
        elif line or inside:
            if not inside:
                out.append(".nf")
                inside = True
            out.append(escaped(line[2:]) if line.strip() else "")
    end_of(out, inside)
    others = ["weft" + (f"\\-{c}" if c else "") for c in COMMANDS if c != command]
    out += [".SH SEE ALSO", ", ".join(f"{n}(1)" for n in others) + ", weft_provider(7), weft_direct(7), fabric(7)"]
    return name + ".1", "\n".join(out) + "\n"


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    differs = []
    for command in COMMANDS:
        name, text = page(program, command)
        if "--check" in sys.argv:
            if not (folder / name).exists() or (folder / name).read_text() != text:
                differs.append(name)
        else:
            (folder / name).write_text(text)
    if differs:
        sys.exit(f"not what --help says: {', '.join(differs)}; write them with: python3 scripts/man.py WEFT docs/man")


main()
