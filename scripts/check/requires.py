#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What a link, an engine or a provider may have besides its contract has a name: a concept. Unnamed ones (`if constexpr (requires {...})`,
`requires requires`) are refused in src/. Those of a link are at most eleven, and each has a row in docs/engine.md."""
import re
import sys

import files

UNNAMED = re.compile(r"if constexpr \([^;{]*\brequires\b|\brequires\s+requires\b")
LINK = files.ROOT / "src/proto/engine/link.hpp"
TABLE = files.ROOT / "docs/engine.md"
CONCEPTS_MAX = 11
# Of the contract itself, and of who calls and is called.
NOT_OPTIONAL = {"Link", "OpensAsLink", "TakesParts", "HasAwaited", "TakesShortFrames"}


def link_concepts():
    if not LINK.exists():
        return []
    names = set(re.findall(r"^concept (\w+) =", LINK.read_text(), re.M)) - NOT_OPTIONAL | {"HasSleep"}
    complaints = [f"{LINK.relative_to(files.ROOT)}: {len(names)} optional concepts, more than {CONCEPTS_MAX}"] if len(names) > CONCEPTS_MAX else []
    table = TABLE.read_text()
    return complaints + [f"docs/engine.md: no row for the concept {name}" for name in sorted(names) if f"| `{name}` |" not in table]


def main() -> int:
    unnamed, seen = files.refuse(
        UNNAMED, "an ability without a name; make it a concept (docs/engine.md, docs/packets.md, src/proto/setup.hpp)")
    complaints = link_concepts() + unnamed
    print("\n".join(complaints) if complaints else f"{seen} files")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
