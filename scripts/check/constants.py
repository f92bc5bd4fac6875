#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Constants that documents quote are those of the code. constants.txt has a line for each:

    DOCUMENT | TEXT with {NUMBER} in braces | FILE: EXPRESSION

TEXT stands in the document, without the braces; line breaks count as blanks, and \\| is the | of a table. NUMBER may have a unit
(KiB, MiB, us, ms, s), thousands with commas, or be a power (2^16). EXPRESSION is Python over constants of FILE, which is relative to
src/, and of the headers that FILE includes; a constant is a variable, a member or an enumerator with its value. Times are compared
in the unit that a name of EXPRESSION ends with (_ns, _us, _ms, _s).
"""
import re
import sys

import files

TABLE = "scripts/check/constants.txt"
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
NUMBER = re.compile(r"(2\^\d+|\d[\d,]*(?:\.\d+)?)(?: (KiB|MiB|us|microseconds|ms|s))?")
BYTES = {"KiB": 1 << 10, "MiB": 1 << 20}
NANOSECONDS = {"ns": 1, "us": 10**3, "microseconds": 10**3, "ms": 10**6, "s": 10**9}


class Wrong(Exception):
    pass


class Constants:
    """The values of constants, by the text of the sources."""

    def __init__(self):
        self.texts = {}

    def text(self, name: str) -> str:
        if name not in self.texts:
            path = next((p for p in (files.ROOT / "src" / name, files.ROOT / name) if p.is_file()), None)
            if path is None:
                raise Wrong(f"no file {name}")
            self.texts[name] = COMMENT.sub("", path.read_text())
        return self.texts[name]

    def value(self, file: str, name: str, seen=()):
        if name in seen:
            raise Wrong(f"{name} is defined by itself")
        last = name.split("::")[-1]
        # A variable with its type, an assignment to a member, or an enumerator.
        pattern = rf"(?:[\w>]\s+|\.){last}(?:\s*=\s*([^;=][^;]*);|\{{([^;{{}}]+)\}};)|^\s*{last}\s*=\s*([^,;=]+),"
        found = {"".join(groups).strip() for groups in re.findall(pattern, self.text(file), re.MULTILINE)}
        if not found:
            # A constant that the file takes from a header which it includes.
            for header in re.findall(r'#include "([^"]+)"', self.text(file)):
                if (files.ROOT / "src" / header).is_file() and re.search(pattern, self.text(header), re.MULTILINE):
                    return self.value(header, last, seen)
            raise Wrong(f"no constant {name} in {file}")
        if len(found) > 1:
            raise Wrong(f"several values of {name} in {file}: {', '.join(sorted(found))}")
        return self.calculate(file, found.pop(), (*seen, name))

    def calculate(self, file: str, expression: str, seen=()):
        text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", expression)  # 1'000
        text = re.sub(r"\b(?:std::)?(?:u?int\d*_t|size_t|unsigned|int)\{([^{}]*)\}", r"(\1)", text)  # size_t{1}
        text = re.sub(r"\b(0x[0-9a-fA-F]+|\d+(?:\.\d+)?)[uUlL]+\b", r"\1", text)
        names = {}

        def name_of(match):
            key = f"_{len(names)}"
            names[key] = self.value(file, match.group(0), seen)
            return key

        text = re.sub(r"(?<![\w.])[A-Za-z_][\w:]*", name_of, text).replace("/", "//").replace("////", "//")
        if re.search(r"[^\w\s+\-*/<>().]", text):
            raise Wrong(f"cannot calculate {expression!r} in {file}")
        try:
            return eval(" ".join(text.split()), {"__builtins__": {}}, names)  # digits, operators and the names above
        except (SyntaxError, TypeError, NameError, ZeroDivisionError) as error:
            raise Wrong(f"cannot calculate {expression!r} in {file}: {error}") from error


def quoted(number: str, expression: str):
    """The number of a document, in the unit of the constant."""
    match = NUMBER.fullmatch(number)
    if not match:
        raise Wrong(f"{{{number}}} is not a number with a unit")
    digits, unit = match.group(1).replace(",", ""), match.group(2)
    value = 1 << int(digits[2:]) if digits.startswith("2^") else float(digits) if "." in digits else int(digits)
    if unit in BYTES:
        return value * BYTES[unit]
    if unit is None:
        return value
    suffix = re.search(r"_(ns|us|ms|s)(?:_|\b)", expression)
    if suffix is None:
        raise Wrong(f"{expression} does not say its unit of time by its name")
    return value * NANOSECONDS[unit] / NANOSECONDS[suffix.group(1)]


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def check(line: str, constants: Constants, documents: dict) -> None:
    fields = [field.strip().replace("\\|", "|") for field in line.split(" | ")]
    if len(fields) != 3 or ": " not in fields[2]:
        raise Wrong("not DOCUMENT | TEXT | FILE: EXPRESSION")
    document, text, where = fields
    file, expression = where.split(": ", 1)
    numbers = re.findall(r"\{([^{}]*)\}", text)
    if len(numbers) != 1:
        raise Wrong("not one {NUMBER} in the text")
    if document not in documents:
        path = files.ROOT / document
        if not path.is_file():
            raise Wrong(f"no document {document}")
        documents[document] = plain(path.read_text())
    if plain(text.replace("{", "").replace("}", "")) not in documents[document]:
        raise Wrong(f"{document} does not say: {text}")
    value = constants.calculate(file, expression)
    said = quoted(numbers[0], expression)
    if said != value:
        raise Wrong(f"{document} says {numbers[0]} ({said:g}), but {expression} of {file} is {value}")


def main() -> int:
    table = files.ROOT / TABLE
    if not table.is_file():
        print(f"no {TABLE}")
        return 1
    constants, documents, complaints, count = Constants(), {}, [], 0
    for number, line in enumerate(table.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        count += 1
        try:
            check(line, constants, documents)
        except Wrong as wrong:
            complaints.append(f"{TABLE}:{number}: {wrong}")
    print("\n".join(complaints) if complaints else f"{count} numbers")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
