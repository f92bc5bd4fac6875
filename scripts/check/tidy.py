#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""clang-tidy on every source that is not known to be clean (memory.py). usage: tidy.py lint|analysis [--changed]

lint      the checks of .clang-tidy that look at the code as it is written. Most of their time goes to the headers of the system, so
          sources of one folder with one command are looked at as one text; where that does not compile, or has a finding, in halves
analysis  those of them that follow paths through it (clang-analyzer-*), which take three quarters of the time; sources of tests come last
--changed only the sources that differ from the last commit, their tests, and the sources of changed headers
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
import memory

BUILD = files.ROOT / "build" / "dev"
TOGETHER = files.ROOT / "build" / "checked" / "together"
BATCH = 10  # sources that lint looks at as one
ELSEWHERE = ("-std=c++20", f"-I{files.ROOT}/src", f"-I{files.ROOT}/include")  # the command of what this preset does not build
ANALYSER = "clang-analyzer-"
NOT_READ_BACK = re.compile(r"^ *- key: *\S+\.MaxSize\n *value: *'-1'\n", re.MULTILINE)  # a default that is printed and not accepted
OUR_MACRO = re.compile(r"-D((?:WEFT|GTEST)_\w+)")


class Job(typing.NamedTuple):
    source: pathlib.Path
    flags: "tuple[str, ...]"

    def name(self) -> str:
        return self.source.relative_to(files.ROOT).as_posix()

    def folders(self) -> "list[pathlib.Path]":
        after = zip(("", *self.flags), self.flags)
        return [pathlib.Path(word if before in ("-I", "-isystem", "-iquote") else word[2:]) for before, word in after
                if before in ("-I", "-isystem", "-iquote") or word.startswith("-I")]


def output(*command: object) -> str:
    return subprocess.run([str(word) for word in command], cwd=files.ROOT, capture_output=True, text=True, check=True).stdout


@functools.cache
def dumped(folder: pathlib.Path) -> "tuple[str, list[str]]":
    some = folder / "any.cpp"
    listed = output("clang-tidy", "--list-checks", some, "--").splitlines()
    settings = output("clang-tidy", "--dump-config", some, "--")
    return NOT_READ_BACK.sub("", settings), [line.strip() for line in listed[1:] if line.strip()]


def configuration(source: pathlib.Path) -> "tuple[str, list[str]]":
    """What holds for a source: the configuration as clang-tidy tells it, and the names of the checks. The nearest .clang-tidy decides."""
    return dumped(next((folder for folder in source.parents if (folder / ".clang-tidy").exists()), files.ROOT))


@functools.cache
def version() -> str:
    return output("clang-tidy", "--version")


def digest(job: Job, step: str) -> str:
    return memory.digest(job.source, job.folders(), step, version(), configuration(job.source), job.flags)


def told(*command: str) -> str:
    """What a command says when it fails; empty when it does not."""
    result = subprocess.run([*command, "-Wno-unknown-warning-option"], cwd=files.ROOT, capture_output=True, text=True, check=False)
    return result.stdout + result.stderr if result.returncode != 0 else ""


def together(batch: "list[Job]") -> pathlib.Path:
    """One file with the text of several sources. Their names and lines are kept by #line, so that findings are where they belong."""
    text = "".join(f'#line 1 "{job.name()}"\n{job.source.read_text()}\n' for job in batch)
    name = hashlib.sha256((repr(batch[0].flags) + text).encode()).hexdigest()  # the same sources with another command are another batch
    path = TOGETHER / (name + ".cpp")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def look(batch: "list[Job]", step: str, clean: memory.Memory) -> str:
    """What clang-tidy has against sources of one folder that have one command; empty when nothing."""
    first, keys = batch[0], [digest(job, step) for job in batch]
    settings, all_checks = configuration(first.source)
    checks = ",".join(check for check in all_checks if check.startswith(ANALYSER) == (step == "analysis"))
    if len(batch) == 1:
        found = told("clang-tidy", "--quiet", f"--checks=-*,{checks}", first.name(), "--", *first.flags)
        if found:
            return found
    else:
        path, flags = together(batch), (*first.flags, f"-iquote{first.source.parent}", "-Wno-shadow")  # gcc's is on in the build
        found = told("clang", "-fsyntax-only", "-w", str(path), *flags) or \
            told("clang-tidy", "--quiet", f"--config={settings}", f"--checks=-*,{checks}", str(path), "--", *flags)
        path.unlink()
        if found:  # names of two sources that clash, or a finding: nearer
            half = len(batch) // 2
            return look(batch[:half], step, clean) + look(batch[half:], step, clean)
    for job, key in zip(batch, keys):
        clean.keep(key, lambda job=job: digest(job, step))
    return ""


def without_precompiled(words: "list[str]") -> "list[str]":
    """The command without its precompiled header: that is gcc's, and a source includes what it uses."""
    pairs = list(zip(words, [*words[1:], ""], ["", *words[:-1]]))
    return [word for word, after, before in pairs if word != "-Winvalid-pch" and not (word == "-include" and after.endswith("/cmake_pch.hxx"))
            and not (before == "-include" and word.endswith("/cmake_pch.hxx"))]


def jobs() -> "list[Job]":
    """Each source of the project with each of its commands. Two that differ in macros of ours which the source does not reach are one."""
    found: "dict[pathlib.Path, list[Job]]" = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if source.suffix == ".cpp" and not source.is_relative_to(BUILD):
            words = shlex.split(entry["command"])
            start = next(i for i, word in enumerate(words) if word.startswith("-"))
            words = without_precompiled(words)
            flags = [word for word in words[start:words.index("-o")] if not word.startswith(("-flto", "-ffat-lto")) and not word.endswith("_EXPORTS")]
            found.setdefault(source, []).append(Job(source, tuple(flags)))
    for source in files.cpp_files():
        if source.suffix == ".cpp":
            found.setdefault(source, [Job(source, ELSEWHERE)])
    distinct = {}
    for source, several in sorted(found.items()):
        for job in several:
            known = b"\n".join(memory.text_of(path) for path in memory.reached(source, job.folders())) if len(several) > 1 else None
            macros = {flag: OUR_MACRO.match(flag) for flag in job.flags}
            essence = tuple(flag for flag in job.flags if known is None or not macros[flag] or macros[flag][1].encode() in known)
            distinct.setdefault((source, essence), job)
    return list(distinct.values())


def batches(todo: "list[Job]", size: int) -> "list[list[Job]]":
    """The jobs in batches of one folder and one command, in the order of the first of each."""
    alike: "dict[object, list[Job]]" = {}
    for job in todo:
        alike.setdefault((job.source.parent, job.flags), []).append(job)
    return [several[at:at + size] for several in alike.values() for at in range(0, len(several), size)]


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
    clean = memory.Memory("tidy")
    first = differing()
    chosen = [job for job in jobs() if "--changed" not in sys.argv or job.name() in first]
    todo = [job for job in chosen if clean.note(digest(job, step)) is None]
    todo.sort(key=lambda job: (job.name() not in first, "test" in job.name()))  # what is being worked on comes first
    bad = done = 0
    work = batches(todo, BATCH if step == "lint" else 1)
    with concurrent.futures.ThreadPoolExecutor(files.jobs()) as pool:
        for batch, text in zip(work, pool.map(lambda batch: look(batch, step, clean), work)):
            done += len(batch)
            more = f" and {len(batch) - 1} more" if len(batch) > 1 else ""
            print(f"  [{done}/{len(todo)}] {batch[0].name()}{more}" + (": FAILED\n" + text if text else ""), flush=True)
            bad += bool(text)
    print(f"check: {step:8} {'FAILED' if bad else 'ok'}: {len(chosen)} sources, {len(todo)} looked at" + (f", findings in {bad} of {len(work)} runs" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
