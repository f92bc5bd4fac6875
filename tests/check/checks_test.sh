#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The checks of the source can fail: each is run on a small tree that breaks its rule, and on one that keeps it.
set -euo pipefail
source_dir="${WEFT_SOURCE:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}"
tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/scripts" "$tree/docs/walk" "$tree"/src/{base,wire,core,proto/engine,os} "$tree/tools/weft"
cp -r "$source_dir/scripts/check" "$tree/scripts/check"
sed -i '/^\[files\]$/,/^$/{/^[a-z]*\//d}' "$tree/scripts/check/sans_io.txt"   # no single file of the tree
failures=0

expect() {  # expect good|bad NAME SCRIPT ARGUMENT...
  local wanted="$1" name="$2" outcome=good; shift 2
  python3 "$tree/scripts/check/$1" "${@:2}" >"$tree/output" 2>&1 || outcome=bad
  if [[ $outcome == "$wanted" ]]; then echo "ok: $name"; else
    echo "FAILED: $name (wanted $wanted)"; cat "$tree/output"; failures=$((failures + 1)); fi
}
put() { printf '%b' "$2" >"$tree/$1"; }

put src/base/a.hpp '#pragma once\n#include <string>\nnamespace weft { std::string a(); }\n'
put src/proto/b.hpp '#pragma once\n#include "base/a.hpp"\nnamespace weft::proto {\ninline int b(int x) { return x; }\n}\n'
put src/proto/b.cpp '#include "proto/b.hpp"\nnamespace weft::proto { int c() { return b(1); } }\n'
put docs/walk/one.md 'first `proto/b.hpp:b`, then `src/base/a.hpp:weft::a()`\n'
for again in "" " again"; do
  for script in layers.py sans_io.py walks.py paths.py; do expect good "$script on a good tree$again" "$script"; done
  expect good "headers.py on a good tree$again" headers.py g++
done

put src/base/up.hpp '#pragma once\n#include "core/none.hpp"\n'
expect bad "a module includes a later one" layers.py
put src/base/up.hpp '#pragma once\n#include "a.hpp"\n'
expect bad "an include that is not relative to src" layers.py
rm "$tree/src/base/up.hpp"
put tools/weft/t.cpp '#include "base/a.hpp"\n'
expect bad "the command includes a module" layers.py
rm "$tree/tools/weft/t.cpp"
mkdir -p "$tree"/src/api/libfabric/{text,objects,more}
put src/api/libfabric/objects/o.hpp '#pragma once\n'
put src/api/libfabric/text/t.hpp '#pragma once\n#include "api/libfabric/objects/o.hpp"\n'
expect bad "a folder includes a later one" layers.py
mv "$tree/src/api/libfabric/text/t.hpp" "$tree/src/api/libfabric/text/t_test.cpp"
expect good "a test of the folder does" layers.py
put src/api/libfabric/more/m.hpp '#pragma once\n#include "api/libfabric/objects/o.hpp"\n'
expect bad "a folder without a place in the order" layers.py
rm -r "$tree/src/api"
put src/elsewhere.cpp 'int x;\n'
expect bad "a file in no module" layers.py
rm "$tree/src/elsewhere.cpp"

sed -i 's/^\[files\]$/&\nos\/alone.cpp/' "$tree/scripts/check/sans_io.txt"
expect bad "a single file that is to do no I/O is not there" sans_io.py
put src/os/alone.cpp 'namespace weft::os { int alone() { return 1; } }\n'
expect good "a single file that does none" sans_io.py
put src/os/alone.cpp '#include <ctime>\nnamespace weft::os { long alone() { return time(nullptr); } }\n'
expect bad "a single file that asks for the time" sans_io.py
rm "$tree/src/os/alone.cpp"

mkdir -p "$tree/kernel/m"
put kernel/m/Kbuild '# In order: each file uses those before it only.\nm-y := a.o b.o\n'
put kernel/m/a.c 'int a(void)\n{\n\treturn 1;	/* not b() */\n}\n'
put kernel/m/b.c 'int b(void)\n{\n\treturn a();\n}\n'
expect good "a module in order" layers.py
put kernel/m/a.c 'int a(void)\n{\n\treturn b();\n}\n'
expect bad "a file of a module calls one behind it" layers.py
put kernel/m/a.c 'int a(void)\n{\n\treturn word;\n}\n'
put kernel/m/b.c 'const struct x *word = 0;\n'
expect bad "a file of a module uses a variable of one behind it" layers.py
mkdir -p "$tree/kernel/include/kofi"
put kernel/include/kofi/compat.h '#include <linux/version.h>\n#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)\n#endif\n'
expect good "a version of the kernel in compat.h" kernel_versions.py
put kernel/m/b.c '#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)\n#endif\n'
expect bad "a version of the kernel elsewhere" kernel_versions.py
rm -r "$tree/kernel"

put src/core/h.hpp '#pragma once\ninline std::string h() { return {}; }\n'
expect bad "a header that needs another before it" headers.py g++
put src/core/h.hpp 'struct H {};\n'
expect bad "a header that cannot be included twice" headers.py g++
rm "$tree/src/core/h.hpp"

mkdir -p "$tree/tests/fuzz"
put tests/fuzz/f.cpp '#include "base/a.hpp"\nint f() { return static_cast<int>(weft::a().size()); }\n'
expect good "a fuzzer that clang compiles" clang.py
expect good "a fuzzer that clang compiles again" clang.py
put src/base/a.hpp '#pragma once\n#include <string>\nnamespace weft { std::string b(); }\n'
expect bad "a fuzzer that calls what has another name now" clang.py
put src/base/a.hpp '#pragma once\n#include <string>\nnamespace weft { std::string a(); }\n'
rm -r "$tree/tests"

put src/wire/w.hpp '#pragma once\n#include <chrono>\n'
expect bad "a clock's header in wire" sans_io.py
rm "$tree/src/wire/w.hpp"
put src/proto/io.cpp 'extern "C" long write(int, const void*, unsigned long);\nlong io() { return write(1, "", 0); }\n'
expect bad "a system call in proto" sans_io.py
rm "$tree/src/proto/io.cpp"
put src/proto/t.hpp '#pragma once\nextern "C" int usleep(unsigned);\nnamespace weft::proto {\ntemplate <class T> int t(T x) { return usleep(x); }\n}\n'
put src/proto/t_test.cpp '#include "proto/t.hpp"\nint use() { return weft::proto::t(1u); }\n'
expect bad "a sleep in a template of proto" sans_io.py
rm "$tree"/src/proto/t*

put src/os/s.cpp '#include <fstream>\n'
expect bad "a stream in a library" streams.py
put src/os/s.cpp '#include <cstdio>\n'
expect good "no stream in a library" streams.py
put src/os/l.hpp '#pragma once\ntemplate <class L> void f(L& l) {\n  if constexpr (requires { l.wait(); }) l.wait();\n}\n'
expect bad "an ability without a name" requires.py
put src/os/l.hpp '#pragma once\ntemplate <class L> concept Waits = requires(L& l) { l.wait(); };\ntemplate <class L> void f(L& l) {\n  if constexpr (Waits<L>) l.wait();\n}\n'
expect good "an ability with a name" requires.py
rm "$tree/src/os/l.hpp"
put src/proto/engine/link.hpp '#pragma once\ntemplate <class L>\nconcept HasSails = requires(L& l) { l.sails(); };\n'
put docs/engine.md '| `HasSleep` | sleeps |\n'
expect bad "an ability of a link that no table has" requires.py
put docs/engine.md '| `HasSleep` | sleeps |\n| `HasSails` | sails |\n'
expect good "an ability of a link with its row" requires.py
rm "$tree/src/proto/engine/link.hpp" "$tree/docs/engine.md"

put docs/walk/two.md 'gone: `proto/b.hpp:gone`\n'
expect bad "an anchor without its symbol" walks.py
put docs/walk/two.md 'gone: `proto/gone.hpp:b`\n'
expect bad "an anchor without its file" walks.py
put docs/walk/two.md '# Two files\n\n1. see `proto/b.hpp:b`\n'
expect bad "a walk that counts its files wrong" walks.py
put docs/walk/two.md 'no anchor\n'
expect bad "a walk without anchors" walks.py
put docs/walk/two.md 'see `proto/b.hpp:b` in /ho''me/someone\n'
expect bad "a path of one machine" paths.py

spdx='SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only'
find "$tree" -name '*.[ch]pp' -exec sed -i "1i // $spdx" {} +
expect good "every source has its licence" licences.py
put src/os/s.cpp '#include <cstdio>\n'
expect bad "a source without its licence" licences.py
put src/os/s.cpp "// SPDX-License-Identifier: MIT\n#include <cstdio>\n"
expect bad "a source with another licence" licences.py
put src/os/s.cpp "#include <cstdio>\n// $spdx\n"
expect bad "a licence that is not on the first line" licences.py
rm "$tree/src/os/s.cpp"
put scripts/tool '#!/bin/sh\ntrue\n'
expect bad "a script without a suffix and without its licence" licences.py
put scripts/tool "#!/bin/sh\n# $spdx\ntrue\n"
expect good "a script with its licence after #!" licences.py
rm "$tree/scripts/tool"
mkdir -p "$tree/kernel"
put kernel/k.c "// $spdx\nint k;\n"
expect bad "a source of the kernel with the expression of the rest" licences.py
put kernel/k.c '// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause\nint k;\n'
expect good "a source of the kernel with the kernel's expression" licences.py
rm -r "$tree/kernel"

put docs/one.md 'rings of 64\nslots, 8 KiB of head, and 2 ms\n'
put src/os/sizes.hpp '#pragma once\nconstexpr unsigned slots = 1U << 6;  // slots = 7;\nconstexpr unsigned head = 2 * page;\n'
put src/os/more.hpp '#pragma once\n#include "os/sizes.hpp"\nconstexpr unsigned page{4096};\nstatic constexpr long pause_ns = 2\x27000\x27000;\n'
put scripts/check/constants.txt 'docs/one.md | rings of {64} slots | os/more.hpp: slots\n\n# times\ndocs/one.md | and {2 ms} | os/more.hpp: pause_ns\ndocs/one.md | {8 KiB} of head | os/more.hpp: page * 2\n'
expect good "constants that are right" constants.py
while read -r name line; do
  put scripts/check/constants.txt "$line\n"
  expect bad "a constant: ${name//-/ }" constants.py
done <<'LINES'
another-value docs/one.md | {64} slots | os/more.hpp: slots + 1
another-unit docs/one.md | and {2 ms} | os/more.hpp: pause_ns * 1000
a-text-that-is-not-there docs/one.md | {64} rings | os/more.hpp: slots
no-such-constant docs/one.md | {64} slots | os/more.hpp: rings
no-such-file docs/one.md | {64} slots | os/none.hpp: slots
no-such-document docs/none.md | {64} slots | os/more.hpp: slots
no-number docs/one.md | 64 slots | os/more.hpp: slots
what-it-cannot-find docs/one.md | {8 KiB} of head | os/sizes.hpp: head
LINES

if [[ "$(uname -m)" == x86_64 ]] && command -v objdump >/dev/null; then
  put src/crc.cpp '#define CRC __attribute__((target("sse4.2"), noinline)) unsigned long\nextern "C" CRC NAME(unsigned long a) { return __builtin_ia32_crc32di(a, a); }\n'
  for name in crc32c_words other; do g++ -shared -fPIC -O1 "-DNAME=$name" "$tree/src/crc.cpp" -o "$tree/$name.so"; done
  expect good "a later instruction where the processor is asked" instructions.py "$tree/crc32c_words.so"
  expect bad "a later instruction elsewhere" instructions.py "$tree/crc32c_words.so" "$tree/other.so"
  printf 'long f(long a) { return a + 1; }\n' | g++ -shared -fPIC -x c++ - -o "$tree/plain.so"
  expect good "none" instructions.py "$tree/plain.so"
  printf 'struct S { long a[4]; };\nvoid f(S* to, const S* from) { *to = *from; }\n' | g++ -shared -fPIC -O2 -mavx -x c++ - -o "$tree/avx.so"
  expect bad "a library of AVX" instructions.py "$tree/avx.so"
  rm "$tree/src/crc.cpp"
fi

if command -v abidiff >/dev/null; then
  mkdir -p "$tree/include/weft" "$tree/tests/compat/abi" "$tree/build/lib"
  put tests/compat/abi/x.c '#include <weft/x.h>\n__attribute__((visibility("default"))) int f(struct x* x) { return x->a; }\n'
  symbols() { printf 'void %s(void) {}\n' "$@" | gcc -shared -fPIC -x c - -o "$tree/build/lib/libweft.so.1"; }
  put include/weft/x.h 'struct x { int a; int b; };\n'
  symbols one two
  expect bad "no baseline" abi.py "$tree/build"
  expect good "baselines are written" abi.py --renew "$tree/build"
  expect good "nothing changed" abi.py "$tree/build"
  put include/weft/x.h 'struct x { int a; int b; int c; };\n'
  expect bad "a structure has grown" abi.py "$tree/build"
  grep -q "data member insertion" "$tree/output" || { echo "FAILED: abidiff's words are not shown"; failures=$((failures + 1)); }
  expect good "which is renewed" abi.py --renew "$tree/build"
  expect good "and then known" abi.py "$tree/build"
  put include/weft/x.h 'struct x { long a; int b; int c; };\n'
  expect bad "a member has another type" abi.py "$tree/build"
  expect bad "which is not renewed" abi.py --renew "$tree/build"
  put include/weft/x.h 'struct x { int b; int a; int c; };\n'
  expect bad "members change places" abi.py --renew "$tree/build"
  put include/weft/x.h 'struct x { int a; int b; int c; };\n'
  symbols one two three
  expect bad "a symbol more" abi.py "$tree/build"
  expect good "which is renewed" abi.py --renew "$tree/build"
  symbols one three
  expect bad "a symbol less" abi.py "$tree/build"
  expect bad "which is not renewed" abi.py --renew "$tree/build"
fi

if command -v clang-tidy >/dev/null && command -v cmake >/dev/null; then
  looked() {  # looked NUMBER NAME: so many sources were looked at, the others were known to be clean
    grep -q " $1 looked at" "$tree/output" && return
    echo "FAILED: $2"; cat "$tree/output"; failures=$((failures + 1))
  }
  rm -rf "$tree/src" "$tree/include" "$tree/tests" "$tree/examples" "$tree/build"
  mkdir -p "$tree/src/base"
  put CMakePresets.json '{"version": 4, "configurePresets": [{"name": "dev", "generator": "Ninja", "binaryDir": "${sourceDir}/build/dev",
    "cacheVariables": {"CMAKE_EXPORT_COMPILE_COMMANDS": "ON"}}]}'
  put CMakeLists.txt 'cmake_minimum_required(VERSION 3.23)\nproject(small CXX)\nadd_custom_target(weft_public_headers)
    add_library(small src/base/one.cpp src/base/two.cpp)\ntarget_include_directories(small PRIVATE src)
    add_library(again src/base/one.cpp)\ntarget_include_directories(again PRIVATE src)
    target_compile_definitions(again PRIVATE WEFT_HEADER="base/c.hpp" WEFT_NOT_NAMED)\n'
  put .clang-tidy 'Checks: "-*,clang-analyzer-core.DivideZero,modernize-use-nullptr,readability-delete-null-pointer"
WarningsAsErrors: "*"\nHeaderFilterRegex: "/src/"\n'
  put src/base/a.hpp '#pragma once\n#include "base/b.hpp"\n'
  put src/base/b.hpp '#pragma once\ninline int b(int x) { return x; }\n'
  put src/base/c.hpp '#pragma once\n'
  put src/base/one.cpp '#include "base/a.hpp"\nint one() { return b(1); }\n'
  put src/base/two.cpp 'int two() { return 2; }\n'
  put src/base/unbuilt.cpp 'int three() { return 3; }\n'
  expect good "clang-tidy on a good tree" tidy.py lint
  looked 3 "every source is looked at, once when its commands differ in a macro that it does not name"
  expect good "clang-tidy on what is known to be clean" tidy.py lint
  looked 0 "what is clean is remembered"
  put src/base/b.hpp '#pragma once\ninline int b(int x) { return x; }\ninline int* none() { return 0; }\n'
  expect bad "a finding in a header that a header includes" tidy.py lint
  looked 1 "what includes the header is looked at"
  expect bad "a finding is not remembered" tidy.py lint
  put src/base/b.hpp '#pragma once\ninline int b(int x) { return x; }\n'
  expect good "what was clean and is so again" tidy.py lint
  looked 0 "what was clean and is so again is remembered"
  expect good "the analysis is another step" tidy.py analysis
  looked 3 "the analysis does not take the lint's word"
  put src/base/two.cpp 'int two() { int none = 0; return 2 / none; }\n'
  expect good "a division by zero is none of the lint's findings" tidy.py lint
  expect bad "a division by zero" tidy.py analysis
  put src/base/two.cpp 'int two() { return 2; }\n'
  put src/base/.clang-tidy 'InheritParentConfig: true\nChecks: "-readability-delete-null-pointer"\n'
  expect good "the configuration of a folder" tidy.py lint
  looked 3 "another configuration is another look"
  put src/base/one.cpp '#include WEFT_HEADER\nint one() { return 1; }\n'
  put CMakeLists.txt 'cmake_minimum_required(VERSION 3.23)\nproject(small CXX)\nadd_custom_target(weft_public_headers)
    add_library(small src/base/one.cpp src/base/two.cpp)\ntarget_include_directories(small PRIVATE src)
    target_compile_definitions(small PRIVATE WEFT_HEADER="base/c.hpp")\n'
  expect good "an include by a macro" tidy.py lint
  put src/base/c.hpp '#pragma once\ninline int* none() { return 0; }\n'
  expect bad "a finding in a header that is included by a macro" tidy.py lint
fi

[[ $failures -eq 0 ]]
