#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The layer rule: a module includes from itself and from the modules above it in modules.txt, by paths relative to src/.

tools/, examples/ and tests/conformance/ stand on the public interface and include nothing from src/.
Modules that folders.txt names have an order of folders, too, for everything but *_test.cpp.

The files of a kernel module whose Kbuild says "# In order" name what those before them in the module's list define, and nothing of those behind.
"""
import re
import sys

import files

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
# Modules that no other includes from: what is in them is for one library.
ALONE = ("api/verbs",)
OUTSIDE = ("tools/", "examples/", "tests/conformance/", "tests/system/")


def modules() -> "list[str]":
    text = (files.ROOT / "scripts/check/modules.txt").read_text()
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def module_of(path: str, order: "list[str]") -> "str | None":
    """The module that a path relative to src/ lies in."""
    fitting = [module for module in order if path.startswith(module + "/")]
    return max(fitting, key=len) if fitting else None


def folders() -> "dict[str, list[str]]":
    """The order of the folders of a module."""
    lines = (files.ROOT / "scripts/check/folders.txt").read_text().splitlines()
    named = [line.partition(":") for line in lines if line.strip() and not line.startswith("#")]
    return {module.strip(): order.split() for module, _, order in named}


def folder_complaint(name: str, included: str, module: str, order: "list[str]") -> "str | None":
    """Of an include within a module whose folders have an order; both paths relative to src/."""
    here, there = (path[len(module) + 1 :].split("/")[0] for path in (name, included))
    unknown = [folder for folder in (here, there) if folder not in order]
    if unknown:
        return f"{unknown[0]} is no folder of {module} in scripts/check/folders.txt"
    if order.index(there) > order.index(here):
        return f"the folder {here} must not include {there} ({included})"
    return None


COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
# A function or a variable of the kernel's style that other files can name: it begins its line.
DEFINED = re.compile(r"^(?!static|extern|typedef|EXPORT_|MODULE_|DEFINE_|KOFI_|module_)(?:[a-z]\w*[ *]+)+(\w+)"
                     r"(?:\((?:[^;{}]*)\)\n\{|(?:\[[^]]*\])?(?: = [^;]*)?;)", re.MULTILINE)


def modules_in_order() -> "tuple[list[str], int]":
    complaints, seen = [], 0
    for kbuild in sorted((files.ROOT / "kernel").glob("*/Kbuild")):
        text = kbuild.read_text()
        lists = re.findall(r"^# In order\b.*\n\w+-y := ((?:\w+\.o ?)+)$", text, re.MULTILINE)
        if len(lists) != text.count("# In order"):
            complaints.append(f"{kbuild.relative_to(files.ROOT)}: behind '# In order' stands no list of objects in one line")
        for name in lists:
            parts = [kbuild.parent / part.replace(".o", ".c") for part in name.split()]
            texts = [COMMENT.sub("", part.read_text()) for part in parts]
            names = [set(DEFINED.findall(text)) for text in texts]
            for at, (part, text) in enumerate(zip(parts, texts)):
                seen += 1
                words = set(re.findall(r"\w+", text))
                for behind in range(at + 1, len(parts)):
                    complaints += [f"{part.relative_to(files.ROOT)}: names {word} of {parts[behind].name}, which is behind it in {kbuild.parent.name}/Kbuild"
                                   for word in sorted(words & names[behind])]
    return complaints, seen


def main() -> int:
    order = modules()
    inner = folders()
    complaints, seen = modules_in_order()
    for path in files.cpp_files():
        name = path.relative_to(files.ROOT).as_posix()
        inside = name.startswith("src/")
        if not inside and not name.startswith(OUTSIDE):
            continue
        seen += 1
        here = module_of(name[4:], order) if inside else None
        if inside and here is None:
            complaints.append(f"{name}: lies in no module of scripts/check/modules.txt")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            there = module_of(match.group(1), order)
            if inside and there is None:
                complaints.append(f'{name}:{number}: "{match.group(1)}" is not a path relative to src/')
            elif inside and (order.index(there) > order.index(here) or (there in ALONE and there != here)):
                complaints.append(f"{name}:{number}: {here} must not include {there} ({match.group(1)})")
            elif inside and here == there and here in inner and not name.endswith("_test.cpp"):
                complaint = folder_complaint(name[4:], match.group(1), here, inner[here])
                if complaint:
                    complaints.append(f"{name}:{number}: {complaint}")
            elif not inside and there is not None:
                complaints.append(f"{name}:{number}: stands on the public interface, must not include {match.group(1)}")
    print("\n".join(complaints) if complaints else f"{seen} files")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
