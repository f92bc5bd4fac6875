#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Objects that were compiled for one way of linking and are linked in another: the linker refuses them, and the symbol that it names says why
# (docs/linking.md).
set -euo pipefail
build="${WEFT_BUILD:?}"
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "a sanitized archive needs a sanitized program: not tested here"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; fail "install"; }
export PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig"
cat >"$work/main.c" <<'END'
#include <rdma/fabric.h>
int main(void) {
  struct fi_info* info = 0;
  return fi_getinfo(FI_VERSION(1, 17), 0, 0, 0, 0, &info) == 0 ? (fi_freeinfo(info), 0) : 1;
}
END
cp "$work/main.c" "$work/main.cpp"
# The headers alone tie an object to its archive, also where it calls nothing.
printf '#include <rdma/fi_tagged.h>\nint part(void) { return 0; }\n' >"$work/part.c"
printf '#include <weft/direct/shm.hpp>\nint main() { fi_freeinfo(nullptr); return sizeof(weft::direct::shm::Provider) == 0; }\n' >"$work/types.cpp"
cflags() { pkg-config --cflags "$1"; }
libs() { pkg-config --libs "$1"; }

# linked COMMAND...
linked() { "$@" -o "$work/program" 2>"$work/log" || { cat "$work/log"; fail "does not link: $*"; }; }
# refused WORDS COMMAND...
refused() {
  local words="$1"; shift
  if "$@" -o "$work/program" 2>"$work/log"; then fail "links: $*"; fi
  grep -q -- "$words" "$work/log" || { cat "$work/log"; fail "does not say \"$words\": $*"; }
}
for_shm="undefined reference to .weft_direct_program_was_compiled_for_shm'"
for_tcp="undefined reference to .weft_direct_program_was_compiled_for_tcp'"

# shellcheck disable=SC2046  # lists of words on purpose
{
echo "-- each language; what was compiled for shm, linked to shm and to everything else"
for compiler in "gcc -O2 $work/main.c" "g++ -std=c++17 -O2 $work/main.cpp" "g++ -std=c++20 -O0 $work/main.cpp" "g++ -std=c++20 -O2 $work/types.cpp" \
    "gcc -O2 -flto -ffunction-sections -fdata-sections -Wl,--gc-sections $work/main.c" \
    "clang -O2 -ffunction-sections -fdata-sections -Wl,--gc-sections $work/main.c"; do
  command -v "${compiler%% *}" >/dev/null || continue
  linked $compiler $(cflags weft-direct-shm) $(libs weft-direct-shm)
  "$work/program" || fail "$compiler: the program"
  refused "$for_shm" $compiler $(cflags weft-direct-shm) $(libs weft-direct-tcp)
done
echo "-- a provider whose name has two parts; the multiplexer, a stock library"
refused "weft_direct_program_was_compiled_for_tcp_rxm" gcc "$work/main.c" $(cflags weft-direct-tcp-rxm) $(libs weft-direct-tcp)
refused "$for_shm" gcc "$work/main.c" $(cflags weft-direct-shm) $(libs weft-mux)
refused "$for_shm" gcc "$work/main.c" $(cflags weft-direct-shm) -lfabric
echo "-- nothing in the object but the headers; other linkers; a shared object"
gcc -O2 -c $(cflags weft-direct-shm) "$work/part.c" -o "$work/part.o"
linked gcc "$work/main.c" "$work/part.o" $(cflags weft-direct-shm) $(libs weft-direct-shm)
refused "$for_shm" gcc "$work/main.c" "$work/part.o" -lfabric
refused "$for_shm" gcc -Wl,--gc-sections "$work/main.c" "$work/part.o" $(libs weft-direct-tcp)
if command -v ld.lld >/dev/null; then
  refused "undefined symbol: weft_direct_program_was_compiled_for_shm" gcc -fuse-ld=lld -Wl,--gc-sections "$work/main.c" "$work/part.o" -lfabric
fi
gcc -O2 -fPIC -c $(cflags weft-direct-shm) "$work/part.c" -o "$work/part_pic.o"
refused "weft_direct_program_was_compiled_for_shm" gcc -shared "$work/part_pic.o" -lfabric
linked gcc -shared "$work/part_pic.o" $(libs weft-direct-shm)
echo "-- two sources of one program for two providers: with one archive, and with both"
gcc -O2 -c $(cflags weft-direct-tcp) "$work/main.c" -o "$work/main.o"
refused "$for_tcp" gcc "$work/main.o" "$work/part.o" $(libs weft-direct-shm)
refused "$for_shm" gcc "$work/main.o" "$work/part.o" $(libs weft-direct-tcp)
refused "multiple definition of .weft_direct_a_program_is_linked_to_one_provider'" \
  gcc "$work/main.o" "$work/part.o" $(libs weft-direct-shm) $(libs weft-direct-tcp)
echo "-- the flags of one provider with the types of another"
refused "the flags are those of another way of linking" g++ -std=c++20 "$work/types.cpp" $(cflags weft-direct-tcp) $(libs weft-direct-tcp)
echo "-- standard headers, which are tied to nothing"
linked gcc "$work/main.c" $(libs weft-direct-shm)
}
echo "wrong_archive_test: ok"
