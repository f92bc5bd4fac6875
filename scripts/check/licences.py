#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Every source names its licence: the SPDX line is its first comment line, after what must stand first ("#!", "#compdef").

Sources are what has a suffix or a name of the lists below, and whatever begins with "#!". kernel/ has the expression in the kernel's words.
"""
import sys

import files

EXPRESSION = "BSD-2-Clause OR GPL-2.0-only"
KERNEL_EXPRESSION = "GPL-2.0 OR BSD-2-Clause"
SLASHES = {".cpp", ".hpp", ".c", ".h", ".inc", ".S"}
BLOCK = {".map"}
HASHES = {".py", ".sh", ".bash", ".cmake", ".in", ".supp"}
HASH_NAMES = {"CMakeLists.txt", "Makefile", "Kbuild", "Kconfig", "dkms.conf", "_weft"}


def wanted(path, first: str) -> "list[str] | None":
    """The lines that may say it, or None when the file is no source."""
    name = path.relative_to(files.ROOT).as_posix()
    # The kernel's style: /* */ in headers, // in sources.
    expression = KERNEL_EXPRESSION if name.startswith("kernel/") else EXPRESSION
    tag = f"SPDX-License-Identifier: {expression}"
    if path.suffix in SLASHES and name.startswith("kernel/"):
        return [f"// {tag}", f"/* {tag} */"]
    if path.suffix in SLASHES:
        return [f"// {tag}"]
    if path.suffix in BLOCK:
        return [f"/* {tag} */"]
    if path.suffix in HASHES or path.name in HASH_NAMES or first.startswith(("#!", "#compdef")):
        return [f"# {tag}"]
    return None


def main() -> int:
    complaints = []
    seen = 0
    for path in files.project_files():
        if path.is_symlink():
            continue
        try:
            lines = path.read_text().split("\n", 2)
        except UnicodeDecodeError:
            continue  # a picture, a corpus
        allowed = wanted(path, lines[0])
        if allowed is None:
            continue
        seen += 1
        at = 1 if lines[0].startswith(("#!", "#compdef")) else 0
        if len(lines) <= at or lines[at] not in allowed:
            complaints.append(f"{path.relative_to(files.ROOT).as_posix()}:{at + 1}: this line has to be: {allowed[0]}")
    print("\n".join(complaints) if complaints else f"{seen} files")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
