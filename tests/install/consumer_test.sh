#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A project with CMake (tests/install/consumer/), in C and in C++, that finds Weft in an installed tree that was moved, and one that adds Weft's source
# tree: the same targets, programs with the same output, and nothing of the project's own is changed.
#
# The libraries of the added tree are not compiled again, for that takes minutes: those of WEFT_BUILD are put where they would come to be, and `make
# TARGET/fast` takes them. WEFT_TEST_WHOLE=1 compiles them.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "a sanitized archive needs a sanitized program: not tested here"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
quietly() { "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; fail "$*"; }; }
configured() {  # configured NAME OPTION...
  quietly env -u CMAKE_C_COMPILER_LAUNCHER -u CMAKE_CXX_COMPILER_LAUNCHER cmake -G "Unix Makefiles" -S "$source/tests/install/consumer" -B "$work/$1" \
    -DPROGRAMS="$source/examples/same_source" -DPROVIDER="$source/examples/minimal_provider" \
    -DNIC="$source/examples/nic" "${@:2}"
}
# Each language and each library in each way; the linker takes a while over a provider's archive, so that is linked once in each.
found=(c_mux cpp_mux cpp_direct_shm)
added=(c_mux cpp_mux c_direct_shm provider)
ran() {  # ran NAME PROGRAM...: every program of a language prints the same
  local program
  for program in "${@:2}"; do
    timeout 60 "$work/$1/$program" >"$work/out" || fail "$1: $program"
    [[ -e "$work/${program%%_*}.expected" ]] || cp "$work/out" "$work/${program%%_*}.expected"
    diff "$work/${program%%_*}.expected" "$work/out" || fail "$1: $program prints something else"
    [[ $program == *mux ]] || ! ldd "$work/$1/$program" | grep -qE 'libfabric|libweft' || fail "$1: $program needs a fabric library"
  done
}

echo "-- find_package, from an installed tree that was moved"
quietly cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/prefix"
configured found -DCMAKE_PREFIX_PATH="$work/prefix"
quietly make -C "$work/found" "${found[@]}"
ran found "${found[@]}"
quietly make -C "$work/found" cpp_direct_nic
! "$work/found/cpp_direct_nic" 0000:ff:1f.7 2>"$work/out" || fail "a card that is not there was opened"
grep -q '0000:ff:1f.7' "$work/out" || { cat "$work/out"; fail "cpp_direct_nic does not say why"; }

echo "-- add_subdirectory"
configured added -DWEFT_TREE="$source"
if [[ -n "${WEFT_TEST_WHOLE:-}" ]]; then
  quietly make -j2 -C "$work/added" "${added[@]}"
else
  quietly make -C "$work/added" weft_public_headers
  mkdir -p "$work/added/weft/lib"
  cp -d "$build"/lib/libweft.so* "$build/lib/libweft-shm.a" "$build/lib/libweft-core.a" "$build/lib/libweft-common.a" "$work/added/weft/lib"
  for target in "${added[@]}"; do quietly make -C "$work/added" "$target/fast"; done
fi
ran added c_mux cpp_mux c_direct_shm
[[ "$(nm -D --defined-only "$work/added/libminimal-fi.so" | awk '{ print $3 }' | xargs)" == fi_prov_ini ]] || fail "the plugin's exports"
FI_PROVIDER_PATH="$work/added" timeout 60 "$work/added/c_mux" minimal | grep -q 'over minimal' || fail "the plugin"
[[ ! -d "$work/added/weft/tests" && ! -e "$work/added/compile_commands.json" ]] || fail "tests came with it"
! cmake --install "$work/added" --prefix "$work/nothing" 2>/dev/null | grep -q Installing || fail "the project installs Weft"
echo "consumer_test: ok"
