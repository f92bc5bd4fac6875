#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The walks are true: each `file:symbol` in docs/walk/*.md names a file that exists and a symbol that stands in it.

`file` is relative to the root or to src/; `symbol` may be qualified (Engine::send): each of its parts must stand in the file as a word,
outside of comments. Where a walk says how many files it passes ("Six files"), its numbered steps name so many.
"""
import re
import sys

import files

ANCHOR = re.compile(r"`([A-Za-z0-9_./-]+\.(?:hpp|cpp|h|c|py|sh|map)):([A-Za-z_~][A-Za-z0-9_:~]*)(?:\(\))?`")

COUNTED = re.compile(r"\b(One|Two|Three|Four|Five|Six|Seven|Eight|Nine|Ten|Eleven|Twelve) files\b")
NUMBERS = ["", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"]

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def complaint_about(file: str, symbol: str) -> str:
    path = next((p for p in (files.ROOT / file, files.ROOT / "src" / file) if p.is_file()), None)
    if path is None:
        return f"no file {file}"
    text = COMMENT.sub("", path.read_text()) if path.suffix in (".hpp", ".cpp", ".h", ".c") else path.read_text()
    for part in symbol.split("::"):
        if part and not re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text):
            return f"no {part} in {file}"
    return ""


def main() -> int:
    complaints, count = [], 0
    for walk in sorted((files.ROOT / "docs/walk").glob("*.md")):
        anchors = 0
        for number, line in enumerate(walk.read_text().splitlines(), 1):
            for file, symbol in ANCHOR.findall(line):
                anchors += 1
                what = complaint_about(file, symbol)
                if what:
                    complaints.append(f"{walk.relative_to(files.ROOT)}:{number}: {what}")
        claimed = COUNTED.search(walk.read_text())
        named = {file for file, _ in ANCHOR.findall("\n".join(re.findall(r"^\d+\. .*?(?=^\d+\. |\n\n[^ ]|\Z)", walk.read_text(), re.DOTALL | re.MULTILINE)))}
        if claimed and NUMBERS.index(claimed.group(1)) != len(named):
            complaints.append(f"{walk.relative_to(files.ROOT)}: says {claimed.group(0)}, its steps name {len(named)}: {', '.join(sorted(named))}")
        if anchors == 0:
            complaints.append(f"{walk.relative_to(files.ROOT)}: a walk without one `file:symbol`")
        count += anchors
    print("\n".join(complaints) if complaints else f"{count} anchors")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
