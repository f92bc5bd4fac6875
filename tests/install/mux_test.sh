#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The multiplexer as an installed library: it exports every call of the standard headers and nothing else, its headers stand alone in C and
# in C++, the same source built against it and against the system's libfabric prints the same, and a file chooses the provider.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
. "$source/tests/install/headers_of.sh"

echo "-- installed, and the tree moved to another folder"
cmake --install "$build" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log"; fail "install"; }
mv "$work/first" "$work/prefix"
prefix="$work/prefix"
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
read -r -a mux_flags <<<"$(pkg-config --cflags --libs weft-mux) -Wl,-rpath,$prefix/lib"
library="$prefix/lib/libweft.so.1"

echo "-- exports"
awk '/^WEFT_/ { node = $1 } /^ *fi_[a-z0-9_]*;/ { sub(/;.*/, "", $1); print $1 "@" node }' "$source/src/api/mux/libweft.map" | LC_ALL=C sort >"$work/map"
nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { sub(/@@/, "@", $3); print $3 }' | LC_ALL=C sort >"$work/found"
diff "$work/map" "$work/found" || fail "exports (< map, > found)"
# What the headers of this machine offer: inline calls, and functions that libfabric.so.1 exports.
for header in fabric fi_domain fi_eq fi_cm fi_endpoint fi_tagged fi_rma fi_atomic fi_collective fi_trigger fi_ext; do
  echo "#include <rdma/$header.h>"
done >"$work/all.c"
gcc -E -P "$work/all.c" | sed 's/__attribute__ *((.*))//' | tr '\n' ' ' | grep -oE 'static inline [^;{(]*\bfi_[a-z0-9_]+ *\(' | grep -oE 'fi_[a-z0-9_]+ *\($' |
  tr -d ' (' | grep -v '^fi_param_get_' | LC_ALL=C sort -u >"$work/inline"  # those are for providers
# Headers before 1.20 lack what is defined by hand; two functions and a third of later headers only compute.
sed -n 's/^\(fi_.*\|fabric\)\.h \([a-z0-9_]*\).*/\2/p' "$source/src/api/mux/calls.txt" | LC_ALL=C sort -u >"$work/listed"
sed -n 's/^fi_.*\.h \([a-z0-9_]*\) = .*/\1/p' "$source/src/api/mux/calls.txt" | LC_ALL=C sort -u >"$work/by_hand"
LC_ALL=C sort -u "$work/inline" "$work/by_hand" | grep -vxE 'fi_hmem_ze_device|fi_group_addr|fi_tag_mpi' >"$work/wanted"
diff "$work/listed" "$work/wanted" || fail "inline calls (< calls.txt, > headers)"

echo "-- each header alone"
for header in "$prefix"/include/weft/mux/rdma/*.h; do
  name="rdma/$(basename "$header")"
  printf '#include <%s>\nint main(void) { return 0; }\n' "$name" >"$work/one.c"
  gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror "$work/one.c" -o "$work/one" "${mux_flags[@]}" || fail "$name in C"
  g++ -std=c++17 -Wall -Wextra -Werror -x c++ "$work/one.c" -x none -o "$work/one" "${mux_flags[@]}" || fail "$name in C++"
done

echo "-- the same source"
made() {  # made <folder> <flags...>
  mkdir -p "$work/$1"
  gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror "$source/examples/same_source/pingpong.c" -o "$work/$1/pingpong" "${@:2}"
  g++ -std=c++17 -O2 -Wall -Wextra -Werror "$source/examples/same_source/board.cpp" -o "$work/$1/board" "${@:2}"
  gcc -std=c99 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror "$source/examples/in_place/in_place.c" -o "$work/$1/in_place" -I"$prefix/include" "${@:2}"
}
made mux "${mux_flags[@]}"
made stock -lfabric
ran() { LD_PRELOAD="${WEFT_PRELOAD:-}" timeout 120 "$@"; }
for program in pingpong board; do
  ran "$work/mux/$program" >"$work/mux.out" || fail "$program over the multiplexer"
  ran env LD_LIBRARY_PATH="$prefix/lib/weft/compat" "$work/stock/$program" >"$work/dropin.out" || fail "$program over the drop-in"
  diff "$work/mux.out" "$work/dropin.out" || fail "$program prints something else over the drop-in"
  cat "$work/mux.out"
  for provider in tcp "udp;ofi_rxd" weft; do ran "$work/mux/$program" "$provider" >/dev/null || fail "$program over $provider"; done
done
# Not the board: shm of the system's library loses an atomic operation now and then when several processes count.
timeout 120 "$work/stock/pingpong" >"$work/stock.out" || fail "pingpong over the system's library"
diff "$work/stock.out" <(ran "$work/mux/pingpong") || fail "pingpong prints something else over the system's library"
undefined="$(nm -D --undefined-only "$work/mux/pingpong" | grep -c '@WEFT_1\.[0-9]$')" || true
[[ "$undefined" -ge 15 ]] || fail "the program calls $undefined functions of the library"

# Extensions are there over ours and nowhere else, and the program is the same.
records="2000 records over shm, sum 998500500000"
[[ "$(ran "$work/mux/in_place")" == "$records, in place" ]] || fail "in_place over the multiplexer"
[[ "$(ran "$work/mux/in_place" tcp)" == "2000 records over tcp, sum 998500500000, copied" ]] || fail "in_place over tcp"
[[ "$(ran env LD_LIBRARY_PATH="$prefix/lib/weft/compat" "$work/stock/in_place")" == "$records, in place" ]] || fail "in_place over the drop-in"
[[ "$(timeout 120 "$work/stock/in_place")" == "$records, copied" ]] || fail "in_place over the system's library"

echo "-- programs of each generation"
"$build/tests/system/generations_test" "$library" >"$work/generations" 2>&1 || { cat "$work/generations"; fail "generations_test"; }
[[ "$(grep -c '^WEFT_1.*an error entry$' "$work/generations")" -eq 6 ]] || { cat "$work/generations"; fail "not all generations ran"; }
while read -r major minor node tail; do
  headers_of "$work/headers" "$major" "$minor" "$tail"
  for compiler in "gcc -std=c99" "gcc -std=c99 -flto" "g++ -std=c++17 -x c++"; do
    read -r -a compile <<<"$compiler"
    "${compile[@]}" -Wall -Wextra -Werror "$source/tests/install/generation.c" -x none -o "$work/generation" "${mux_flags[@]}" -I"$work/headers/include" || fail "$major.$minor: $compiler"
    nm -D --undefined-only "$work/generation" >"$work/bound"
    [[ "$(grep -cE " fi_(get|dup|free)info@WEFT_$node\$" "$work/bound")" -eq 3 ]] || { cat "$work/bound"; fail "$major.$minor: $compiler: not all bound to WEFT_$node"; }
    ran "$work/generation" || fail "$major.$minor: $compiler"
  done
done <"$source/tests/install/generations.txt"

echo "-- a file chooses the provider"
printf '# which\nFI_PROVIDER = tcp\n' >"$work/weft.conf"
[[ "$(WEFT_CONFIG="$work/weft.conf" ran "$work/mux/pingpong" any)" == *"over tcp,"* ]] || fail "WEFT_CONFIG"
[[ "$(FI_PROVIDER=shm WEFT_CONFIG="$work/weft.conf" ran "$work/mux/pingpong" any)" == *"over shm,"* ]] || fail "the environment wins"
printf 'tcp please\n' >"$work/weft.conf"
WEFT_CONFIG="$work/weft.conf" ran "$work/mux/pingpong" >/dev/null 2>"$work/log" || fail "a bad line stops the program"
grep -q "weft.conf: line 1 is not NAME = value" "$work/log" || fail "a bad line is not named"
echo "mux_test: ok"
