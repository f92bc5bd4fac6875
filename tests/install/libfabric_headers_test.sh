#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Headers of another libfabric than the one that Weft is tested with: building Weft, projects that find it, and programs are told so in one sentence
# that names package and version. Older headers and structures of another size than the version has are refused; newer ones are accepted.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "a sanitized archive needs a sanitized program: not tested here"; exit 77; }
headers="$(pkg-config --variable=includedir libfabric)"
[[ "$(pkg-config --modversion libfabric)" == 1.17.* ]] || { echo "the headers here are not those of 1.17: not tested"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; fail "install"; }
config="$work/prefix/lib/pkgconfig"
. "$source/tests/install/headers_of.sh"
# tree NAME MAJOR MINOR [LINE of fi_domain_attr]: a copy of the headers that says it is another version.
tree() {
  headers_of "$work/$1" "${@:2}"
  mkdir -p "$work/$1/pkgconfig"
  printf 'includedir=%s\nlibdir=/none\nName: libfabric\nDescription: none\nVersion: %s\nCflags: -I${includedir}\nLibs: -lfabric\n' \
    "$work/$1/include" "$2.$3.0" >"$work/$1/pkgconfig/libfabric.pc"
}
tree same 1 17
tree older 1 9
tree middle 1 19
tree grown 1 22 'size_t max_ep_auth_key;'
tree second 2 1 'size_t max_ep_auth_key; uint32_t max_group_id;'
tree newer 2 7 'size_t max_ep_auth_key; uint32_t max_group_id; uint64_t max_cntr_value, max_err_cntr_value;'
tree shrunk 1 20
tree next 2 8 'size_t max_ep_auth_key; uint32_t max_group_id; uint64_t max_cntr_value, max_err_cntr_value; size_t more;'
older="libfabric-dev 1.17 to 2.6 are what Weft is .*tested with; found 1.9.* whose binary interface is another: install libfabric-dev 1.17 or newer"
newer="libfabric-dev 1.17 to 2.6 are what Weft is tested with; found 2.7"
shrunk="libfabric-dev 1.17 to 2.6 are what Weft is .*tested with; found 1.20.* whose structures have another size: install libfabric-dev 1.17 to 2.6"
next="libfabric-dev 1.17 to 2.6 are what Weft is .*tested with; found 2.8.* whose structures have another size: install libfabric-dev 1.17 to 2.6"
none="libfabric's headers .*are not there: install libfabric-dev"

# said WORDS yes|no COMMAND...: the command succeeds or not, and says that; without words, nothing about libfabric. Lines are joined, for cmake breaks them.
said() {
  local words="$1" status="$2" got=yes; shift 2
  "$@" >"$work/log" 2>&1 || got=no
  tr -s ' \n' '  ' <"$work/log" >"$work/joined"
  [[ $got == "$status" ]] || { cat "$work/log"; fail "succeeds: $got, wanted $status: $*"; }
  if [[ -n $words ]]; then grep -q -- "$words" "$work/joined" || { cat "$work/log"; fail "does not say \"$words\": $*"; }
  else ! grep -q 'libfabric-dev' "$work/joined" || { cat "$work/log"; fail "says something of libfabric-dev: $*"; }; fi
}

echo "-- programs"
printf '#include <rdma/fi_tagged.h>\nint main(void) { return 0; }\n' >"$work/main.c"
cp "$work/main.c" "$work/main.cpp"
for way in weft-direct-shm weft-direct-udp weft-mux; do
  read -r -a flags <<<"$(PKG_CONFIG_PATH="$config" pkg-config --cflags "$way")"
  for compiler in "gcc -std=c99 -fsyntax-only -Wall -Werror $work/main.c" "g++ -std=c++17 -fsyntax-only -Wall -Werror $work/main.cpp"; do
    read -r -a compile <<<"$compiler"
    said "" yes "${compile[@]}" "${flags[@]}"
    said "" yes "${compile[@]}" "${flags[@]}" -I"$work/same/include"
    said "$older" no "${compile[@]}" "${flags[@]}" -I"$work/older/include"
    said "$newer" yes "${compile[@]}" "${flags[@]}" -I"$work/newer/include"
    said "" yes "${compile[@]}" -DWEFT_ACCEPT_LIBFABRIC_HEADERS "${flags[@]}" -I"$work/newer/include"
    for tested in middle grown second; do said "" yes "${compile[@]}" "${flags[@]}" -I"$work/$tested/include"; done
    said "$shrunk" no "${compile[@]}" "${flags[@]}" -I"$work/shrunk/include"
    said "$next" no "${compile[@]}" "${flags[@]}" -I"$work/next/include"
  done
done
# The system's headers without rdma/.
mkdir "$work/without"
for entry in "$headers"/*; do [[ $entry == */rdma ]] || ln -s "$entry" "$work/without"; done
bare=(gcc -fsyntax-only -nostdinc -isystem "$(gcc -print-file-name=include)" -isystem "$work/without" -isystem "$work/without/$(gcc -print-multiarch)")
for way in weft-direct-shm weft-mux; do
  read -r -a flags <<<"$(PKG_CONFIG_PATH="$config" pkg-config --cflags "$way")"
  said "$none" no "${bare[@]}" "$work/main.c" "${flags[@]}"
done
printf '#include <weft/extensions.h>\n' >"$work/extensions.c"
said "$none" no "${bare[@]}" "$work/extensions.c" -I"$work/prefix/include"

echo "-- projects that find Weft"
mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES ${LANGUAGE})
find_package(weft 0.1 REQUIRED)
add_library(part OBJECT ${SOURCE})
target_link_libraries(part PRIVATE weft::mux)
END
project() {  # project TREE OPTION...
  rm -rf "$work/configured"
  cmake -G "Unix Makefiles" -S "$work/project" -B "$work/configured" -DLANGUAGE=C -DSOURCE="$work/main.c" -DCMAKE_PREFIX_PATH="$work/prefix" "${@:2}" \
    -DCMAKE_INCLUDE_PATH="$work/$1/include" && make -C "$work/configured"
}
said "" yes project absent
said "" yes project same
said "$older" no project older
said "$newer" yes project newer
said "$newer" yes project newer -DLANGUAGE=CXX -DSOURCE="$work/main.cpp"
said "" yes project grown
said "" yes project second
said "$shrunk" no project shrunk
said "$next" no project next
mkdir "$work/empty"
said "$none" yes project absent -DCMAKE_FIND_ROOT_PATH="$work/empty" -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY

echo "-- building Weft"
whole() {  # whole PKG_CONFIG_LIBDIR: as a part of a project, so without tests and tools
  rm -rf "$work/configured"
  PKG_CONFIG_LIBDIR="$1" cmake -G "Unix Makefiles" -S "$source" -B "$work/configured" -DWEFT_TESTS=OFF -DWEFT_TOOLS=OFF -DWEFT_BENCH=OFF -DWEFT_INSTALL=OFF
}
said "$older" no whole "$work/older/pkgconfig"
said "$newer" yes whole "$work/newer/pkgconfig"
said "" yes whole "$work/second/pkgconfig"
said "$shrunk" no whole "$work/shrunk/pkgconfig"
said "$next" no whole "$work/next/pkgconfig"
said "pkg-config finds no libfabric: install libfabric-dev" no whole "$work/empty"
echo "libfabric_headers_test: ok"
