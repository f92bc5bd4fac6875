#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Manual pages of the command out of its --help texts, and weft-settings(7) out of the list of settings, so that there is one source.

usage: man.py WEFT FOLDER [--check]      writes weft.1, weft-run.1, ..., weft-settings.7; --check: says which of them differ, status 1
"""
import json
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
COMMANDS = ["", "run", "info", "top", "trace", "perf", "mux", "check", "nic", "kofi"]


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
            text = escaped(line[2:]) if line.strip() else ""
            out.append("\\&" + text if text.startswith(" ") else text)  # leading blanks would break the line once more
    end_of(out, inside)
    others = ["weft" + (f"\\-{c}" if c else "") for c in COMMANDS if c != command]
    out += [".SH SEE ALSO", ", ".join(f"{n}(1)" for n in others) + ", weft\\-settings(7), weft_provider(7), weft_direct(7), fabric(7)"]
    return name + ".1", "\n".join(out) + "\n"


SETTINGS_HEAD = r""".TH WEFT\-SETTINGS 7 "" "Weft" "Weft"
.SH NAME
weft\-settings \- environment variables and configuration of the Weft fabric stack
.SH DESCRIPTION
Weft's libraries are set by variables of the environment, or by lines
.I NAME
=
.I value
of a file: /etc/weft.conf, or the one that WEFT_CONFIG names. The environment wins over the file.
Empty lines and lines that begin with # are left out.
A value that a setting does not take, and a name that is nearly that of a setting, are warned of once.
.PP
.B weft info \-\-settings
shows the settings of this installation with their values and where these come from;
.B weft info \-\-settings \-\-as\-file
writes them as a file that WEFT_CONFIG can name.
.B fi_info \-e
lists them as libfabric's variables.
"""
GROUPS = (("LIBFABRIC", "FI_"), ("LIBIBVERBS", "WEFT_VERBS_"), ("WEFT", "WEFT_"))


def settings_page(program):
    """Without an environment and a file: the defaults, which no machine changes."""
    bare = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "WEFT_CONFIG": "/dev/null"}
    shown = json.loads(subprocess.run([program, "info", "--settings", "--json"], check=True, capture_output=True, text=True, env=bare).stdout)
    left = {setting["name"]: setting for setting in shown}
    out = [SETTINGS_HEAD.rstrip()]
    for heading, prefix in GROUPS:
        out.append(f".SH {heading}")
        for name in sorted(n for n in left if n.startswith(prefix)):
            setting = left.pop(name)
            kind = {"flag": "0 or 1, on or off, yes or no", "number": "a number", "text": "text"}[setting["type"]]
            out += [".TP", f".B {escaped(name)}\\fR ({kind})", escaped(setting["help"].rstrip(".")) + "."]
    if left:
        sys.exit(f"settings of no group: {', '.join(sorted(left))}")
    out += [".SH SEE ALSO", "weft(1), weft\\-info(1), weft\\-run(1), fabric(7)"]
    return "\n".join(out) + "\n"


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    differs = []
    for name, text in [page(program, command) for command in COMMANDS] + [("weft-settings.7", settings_page(program))]:
        if "--check" in sys.argv:
            if not (folder / name).exists() or (folder / name).read_text() != text:
                differs.append(name)
        else:
            (folder / name).write_text(text)
    if differs:
        sys.exit(f"not what --help says: {', '.join(differs)}; write them with: python3 scripts/man.py WEFT docs/man")


main()
