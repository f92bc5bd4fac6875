#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Only kernel/include/kofi/compat.h asks for the kernel's version: no other file of kernel/ and of the client in examples/ does."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPAT = ROOT / "kernel/include/kofi/compat.h"
VERSION = re.compile(r"\bLINUX_VERSION_\w+|\bKERNEL_VERSION\b|\bUTS_RELEASE\b|linux/version\.h|generated/utsrelease\.h|\$\((?:VERSION|PATCHLEVEL)\)")
files = [file for folder in ("kernel", "examples/kofi_hello") for file in sorted((ROOT / folder).rglob("*"))
         if file.suffix in (".c", ".h") or file.name in ("Kbuild", "Makefile")]
bad = [f"{file.relative_to(ROOT)}:{number}: a condition on the kernel's version belongs into {COMPAT.relative_to(ROOT)}: {line.strip()}"
       for file in files if file != COMPAT
       for number, line in enumerate(file.read_text().splitlines(), 1) if VERSION.search(line)]
print("\n".join(bad) or f"{len(files)} files")
sys.exit(1 if bad else 0)
