#!/usr/bin/env python3
"""clang-tidy on the sources that changed since the last commit (all of them when nothing changed). usage: tidy.py [--all]

A source that passed is not looked at again until it, a header of the project that it includes, its command or the configuration changes.
"""
import concurrent.futures
import hashlib
import json
import shlex
import subprocess
import sys

import files

BUILD = files.ROOT / "build" / "dev"
PASSED = BUILD / "tidy"  # an empty file for each state of a source that passed


VERSION = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=False).stdout


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


def state(name: str, command: str) -> "str | None":
    """A digest of all that decides about the source's findings. None: it cannot be told."""
    words = shlex.split(command)
    words = words[: words.index("-o")] + ["-MM", "-MT", "x", str(files.ROOT / name)]
    made = subprocess.run(words, cwd=BUILD, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return None
    root = str(files.ROOT)
    digest = hashlib.sha256(VERSION + (files.ROOT / ".clang-tidy").read_bytes() + command.replace(root, "").encode())
    for path in sorted(shlex.split(made.stdout.replace("\\\n", " "))[1:]):
        if path.startswith(root):
            digest.update(path.removeprefix(root).encode() + (files.ROOT / path).read_bytes())
    return digest.hexdigest()


def tidy(name: str, compile_command: str) -> "tuple[str, str]":
    key = state(name, compile_command)
    if key is not None and (PASSED / key).exists():
        return name, ""
    command = ["clang-tidy", "-p", str(BUILD), "--quiet", "--extra-arg=-Wno-unknown-warning-option", name]
    result = subprocess.run(command, cwd=files.ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return name, result.stdout + result.stderr
    if key is not None:
        (PASSED / key).touch()
    return name, ""


def main() -> int:
    configured = subprocess.run(["cmake", "--preset", "dev"], cwd=files.ROOT, capture_output=True, text=True, check=False)
    if configured.returncode != 0:
        print(configured.stderr)
        return 1
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    root = str(files.ROOT) + "/"
    by_name = {entry["file"].removeprefix(root): entry["command"] for entry in commands if entry["file"].endswith(".cpp")}
    known = sorted(by_name)
    names = wanted(known)
    PASSED.mkdir(exist_ok=True)
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(files.jobs()) as pool:
        for done, (name, text) in enumerate(pool.map(tidy, names, map(by_name.get, names)), 1):
            print(f"  [{done}/{len(names)}] {name}" + (": FAILED" if text else ""), flush=True)
            if text:
                bad += 1
                print(text, flush=True)
    print(f"check: tidy     {'FAILED' if bad else 'ok'}: {len(names)} of {len(known)} sources")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
