#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Nothing in the libraries uses iostreams, locales or std::filesystem: the drop-in brings its own C++ runtime, and one such use brings 0.9 MB of it."""
import re
import sys

import files

HEADERS = re.compile(r"^#include <(iostream|fstream|sstream|iomanip|istream|ostream|locale|regex|filesystem|format)>", re.MULTILINE)


def main() -> int:
    complaints, seen = files.refuse(HEADERS, lambda match: f"<{match.group(1)}> is too large for the libraries",
                                    lambda name: not name.endswith("_test.cpp"))
    print("\n".join(complaints) if complaints else f"{seen} files")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
