#!/usr/bin/env python3
"""Nothing in the libraries uses iostreams, locales or std::filesystem: the drop-in brings its own C++ runtime, and one such use brings 0.9 MB of it."""
import re
import sys

import files

HEADERS = re.compile(r"^#include <(iostream|fstream|sstream|iomanip|istream|ostream|locale|regex|filesystem|format)>", re.MULTILINE)


def main() -> int:
    complaints = []
    seen = 0
    for path in files.cpp_files():
        name = path.relative_to(files.ROOT).as_posix()
        if not name.startswith("src/") or name.endswith("_test.cpp"):
            continue
        seen += 1
        text = path.read_text()
        for match in HEADERS.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            complaints.append(f"{name}:{line}: <{match.group(1)}> is too large for the libraries")
    print("\n".join(complaints) if complaints else f"{seen} files")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
