#!/usr/bin/env python3
"""clang-tidy on every source that is not known to be clean. usage: tidy.py lint|analysis [--changed]

lint      the checks of .clang-tidy that look at the code as it is written
analysis  those of them that follow paths through it (clang-analyzer-*), which take three quarters of the time
--changed only the sources that differ from the last commit, their tests, and the sources of changed headers

A source that was found clean is remembered in build/dev/tidy/ under a digest of all that decides about its findings: its text and that of every
file of the project that it may include, its command, the configuration that holds for its folder and the version of clang-tidy. Findings are not
remembered. Headers of the system are not part of the digest: after an upgrade of a library, remove the folder.
"""
import concurrent.futures
import functools
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import typing

import files

BUILD = files.ROOT / "build" / "dev"
CLEAN = BUILD / "tidy"  # an empty file for each digest that was found clean
ELSEWHERE = ["-std=c++20", f"-I{files.ROOT}/src", f"-I{files.ROOT}/include"]  # the command of what this preset does not build
INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include(?:_next)?[ \t]*(?:[<\"]([^>\"]+)[>\"])?", re.MULTILINE)
ANALYSER = "clang-analyzer-"
OUR_MACRO = re.compile(r"-D((?:WEFT|GTEST)_\w+)")


class Job(typing.NamedTuple):
    source: pathlib.Path
    flags: "tuple[str, ...]"

    def name(self) -> str:
        return self.source.relative_to(files.ROOT).as_posix()


def output(*command: object) -> str:
    return subprocess.run([str(word) for word in command], cwd=files.ROOT, capture_output=True, text=True, check=True).stdout


@functools.cache
def text_of(path: pathlib.Path) -> "bytes | None":
    return path.read_bytes() if path.is_file() else None


@functools.cache
def resolved(path: pathlib.Path) -> pathlib.Path:
    return path.resolve()


@functools.cache
def includes_of(path: pathlib.Path) -> "set[bytes]":
    return set(INCLUDE.findall(text_of(path) or b""))


@functools.cache
def headers() -> "tuple[pathlib.Path, ...]":
    return tuple(path for path in files.project_files() if path.suffix in (".hpp", ".h", ".inc"))


def reached(job: Job) -> "set[pathlib.Path]":
    """The source and every file of the project that it may include: conditions are not looked at, and a name is taken from every folder that
    has it, so this is never less than what the compiler reads. After an include whose name is a macro's, it is every header."""
    words = iter(job.flags)
    folders = [pathlib.Path(next(words) if word in ("-isystem", "-I", "-iquote") else word[2:]) for word in words
               if word.startswith("-I") or word in ("-isystem", "-iquote")]
    folders = [folder for folder in folders if folder.is_relative_to(files.ROOT)]
    found, waiting = {job.source}, [job.source]
    while waiting:
        path = waiting.pop()
        for name in includes_of(path):
            named = [folder / name.decode() for folder in (path.parent, *folders)] if name else headers()
            new = {resolved(file) for file in named if text_of(file) is not None} - found
            found |= new
            waiting += new
    return found


@functools.cache
def dumped(folder: pathlib.Path) -> "tuple[str, list[str]]":
    some = folder / "any.cpp"
    listed = output("clang-tidy", "--list-checks", some, "--").splitlines()
    return output("clang-tidy", "--dump-config", some, "--"), [line.strip() for line in listed[1:] if line.strip()]


def configuration(source: pathlib.Path) -> "tuple[str, list[str]]":
    """What holds for a source: the configuration as clang-tidy tells it, and the names of the checks. The nearest .clang-tidy decides."""
    return dumped(next((folder for folder in source.parents if (folder / ".clang-tidy").exists()), files.ROOT))


@functools.cache
def version() -> str:
    return output("clang-tidy", "--version")


def digest(job: Job, step: str) -> str:
    root = str(files.ROOT)
    config, checks = configuration(job.source)
    sha = hashlib.sha256(repr((version(), config, checks, step, [flag.replace(root, "") for flag in job.flags])).replace(root, "").encode())
    for path in sorted(reached(job)):
        sha.update(f"\0{path.relative_to(files.ROOT)}\0{len(text_of(path))}\0".encode() + text_of(path))
    return sha.hexdigest()


def look(job: Job, step: str) -> str:
    """What clang-tidy has against a source; empty when nothing, which is then remembered."""
    before = digest(job, step)
    checks = [check for check in configuration(job.source)[1] if check.startswith(ANALYSER) == (step == "analysis")]
    result = subprocess.run(["clang-tidy", "--quiet", f"--checks=-*,{','.join(checks)}", job.name(), "--", *job.flags,
                             "-Wno-unknown-warning-option"], cwd=files.ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return result.stdout + result.stderr
    text_of.cache_clear()  # they may have been edited meanwhile
    includes_of.cache_clear()
    if digest(job, step) == before:
        (CLEAN / before).touch()
    return ""


def jobs() -> "list[Job]":
    """Each source of the project with each of its commands. Two that differ in macros of ours which the source does not reach are one."""
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if source.suffix == ".cpp" and not source.is_relative_to(BUILD):
            words = shlex.split(entry["command"])
            start = next(i for i, word in enumerate(words) if word.startswith("-"))
            flags = [word for word in words[start:words.index("-o")] if not word.startswith(("-flto", "-ffat-lto")) and not word.endswith("_EXPORTS")]
            found.setdefault(source, []).append(tuple(flags))
    for source in files.cpp_files():
        if source.suffix == ".cpp":
            found.setdefault(source, [tuple(ELSEWHERE)])
    distinct = {}
    for source, commands in sorted(found.items()):
        for flags in commands:
            job = Job(source, flags)
            known = b"\n".join(text_of(path) for path in reached(job)) if len(commands) > 1 else None
            macros = {flag: OUR_MACRO.match(flag) for flag in flags}
            essence = tuple(flag for flag in flags if known is None or not macros[flag] or macros[flag][1].encode() in known)
            distinct.setdefault((source, essence), job)
    return list(distinct.values())


def differing() -> "set[str]":
    """The names of changed files, and of the sources and tests that belong to changed ones."""
    names = set(files.git("diff", "--name-only", "HEAD") or []) | set(files.git("ls-files", "--others", "--exclude-standard") or [])
    stems = {name.rsplit(".", 1)[0] for name in names}
    return names | {stem + end for stem in stems for end in (".cpp", "_test.cpp")}


def main() -> int:
    step = sys.argv[1]
    for command in (["cmake", "--preset", "dev"], ["cmake", "--build", BUILD, "--target", "weft_public_headers"]):  # generated ones are included, too
        made = subprocess.run(command, cwd=files.ROOT, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            print(made.stdout + made.stderr)
            return 1
    CLEAN.mkdir(exist_ok=True)
    first = differing()
    chosen = [job for job in jobs() if "--changed" not in sys.argv or job.name() in first]
    todo = [job for job in chosen if not (CLEAN / digest(job, step)).exists()]
    todo.sort(key=lambda job: job.name() not in first)  # what is being worked on comes first
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(files.jobs()) as pool:
        for done, (job, text) in enumerate(zip(todo, pool.map(lambda job: look(job, step), todo)), 1):
            print(f"  [{done}/{len(todo)}] {job.name()}" + (": FAILED\n" + text if text else ""), flush=True)
            bad += bool(text)
    print(f"check: {step:8} {'FAILED' if bad else 'ok'}: {len(chosen)} sources, {len(todo)} looked at" + (f", findings in {bad}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
