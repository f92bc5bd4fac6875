#!/usr/bin/env python3
"""What a link, an engine or a provider may have besides its contract has a name: a concept. Unnamed ones (`if constexpr (requires {...})`,
`requires requires`) are refused in src/."""
import re
import sys

import files

UNNAMED = re.compile(r"if constexpr \([^;{]*\brequires\b|\brequires\s+requires\b")


def main() -> int:
    complaints = []
    seen = 0
    for path in files.cpp_files():
        name = path.relative_to(files.ROOT).as_posix()
        if not name.startswith("src/"):
            continue
        seen += 1
        text = path.read_text()
        for match in UNNAMED.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            complaints.append(f"{name}:{line}: an ability without a name; make it a concept (docs/engine.md, docs/packets.md, src/proto/setup.hpp)")
    print("\n".join(complaints) if complaints else f"{seen} files")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
