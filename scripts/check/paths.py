#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""No path of somebody's machine in the tree: homes, work folders, named files below the temporary folder.

/proc, /sys, /dev and /usr are the same everywhere and allowed; so is the temporary folder itself ("nothing is left in /tmp").
"""
import re
import sys

import files

PATH = re.compile(r"(?<![\w.~$}])/(?:(?:home|root|work|Users|mnt|scratch)/[\w.]|(?:work|root)\b(?![\w/-])|tmp/[\w.$])")


def main() -> int:
    complaints = []
    for path in files.project_files():
        name = path.relative_to(files.ROOT).as_posix()
        if name == "scripts/check/paths.py":
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # a picture, a corpus
        for number, line in enumerate(text.splitlines(), 1):
            match = PATH.search(line)
            if match:
                complaints.append(f"{name}:{number}: {line.strip()[:140]}")
    print("\n".join(complaints) if complaints else "none")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
