#!/usr/bin/env python3
"""clang-tidy on the sources that changed since the last commit (all of them when nothing changed). usage: tidy.py [--all]"""
import concurrent.futures
import json
import subprocess
import sys

import files

BUILD = files.ROOT / "build" / "dev"


def changed() -> "set[str] | None":
    since = files.git("diff", "--name-only", "HEAD")
    new = files.git("ls-files", "--others", "--exclude-standard")
    return None if since is None or new is None else set(since) | set(new)


def wanted(known: "list[str]") -> "list[str]":
    """The sources to look at: changed ones, and for a changed header its own source and its test."""
    names = None if "--all" in sys.argv else changed()
    names = {name for name in names or () if name.endswith((".cpp", ".hpp"))}
    if not names:
        return known
    stems = {name.rsplit(".", 1)[0] for name in names}
    return [name for name in known if name[: -len(".cpp")].removesuffix("_test") in stems or name in names]


def tidy(name: str) -> "tuple[str, str]":
    command = ["clang-tidy", "-p", str(BUILD), "--quiet", "--extra-arg=-Wno-unknown-warning-option", name]
    result = subprocess.run(command, cwd=files.ROOT, capture_output=True, text=True, check=False)
    return name, "" if result.returncode == 0 else result.stdout + result.stderr


def main() -> int:
    configured = subprocess.run(["cmake", "--preset", "dev"], cwd=files.ROOT, capture_output=True, text=True, check=False)
    if configured.returncode != 0:
        print(configured.stderr)
        return 1
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    root = str(files.ROOT) + "/"
    known = sorted({entry["file"].removeprefix(root) for entry in commands if entry["file"].endswith(".cpp")})
    names = wanted(known)
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(files.jobs()) as pool:
        for done, (name, text) in enumerate(pool.map(tidy, names), 1):
            print(f"  [{done}/{len(names)}] {name}" + (": FAILED" if text else ""), flush=True)
            if text:
                bad += 1
                print(text, flush=True)
    print(f"check: tidy     {'FAILED' if bad else 'ok'}: {len(names)} of {len(known)} sources")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
