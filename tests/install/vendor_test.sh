#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A provider that comes as a header and an object, made elsewhere, its source not at hand: `weft mux` makes a plugin of it, which runs in the system's
# libfabric, in ours, and under a program that is linked with the multiplexer. And what the command says of one that lacks something.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "a sanitized archive needs a sanitized program: not tested here"; exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
cmake --install "$build" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log"; fail "install"; }
mv "$work/first" "$work/moved"
weft="$work/moved/bin/weft"
export PKG_CONFIG_PATH="$work/moved/lib/pkgconfig" TMPDIR="$work/tmp"
mkdir "$work/tmp"

echo "-- a header and an object, made elsewhere"
mkdir "$work/vendor" "$work/sdk"
cp "$source"/examples/minimal_provider/unix_packets.* "$work/vendor"
read -r -a cflags <<<"$(pkg-config --cflags weft-provider)"
(cd "$work/vendor" && g++ -O2 -std=c++20 -fPIC -fvisibility=hidden "${cflags[@]}" -c unix_packets.cpp)
cp "$work/vendor/unix_packets.hpp" "$work/vendor/unix_packets.o" "$work/sdk"
rm -r "$work/vendor"
cd "$work/sdk"

# refused STATUS WORDS... -- ARGUMENTS: the command ends with that status and says these words.
refused() {
  local wanted="$1" words=() status=0; shift
  while [[ $1 != -- ]]; do words+=("$1"); shift; done
  "$weft" mux "${@:2}" >"$work/out" 2>"$work/log" || status=$?
  [[ $status -eq $wanted ]] || { cat "$work/log"; fail "mux ${*:2}: status $status"; }
  for word in "${words[@]}"; do grep -qF -- "$word" "$work/log" || { cat "$work/log"; fail "mux ${*:2}: does not say \"$word\""; }; done
}
echo "-- with one function removed, or of another type"
functions=("int open(weft::Bytes address)" "void close() noexcept" "weft::Bytes address() noexcept" "size_t packet_bytes_max(weft::Bytes to) noexcept"
  "int send(weft::Bytes to, const iovec* parts, size_t count) noexcept" "int receive(weft::PacketSink& sink) noexcept"
  "static constexpr size_t address_bytes_max" "static constexpr bool alters_packets")
for function in "${functions[@]}"; do
  name="${function%%(*}"; name="${name##* }"
  # Without its line; what else says a constant's name says its value.
  awk -v name="$name" '!gone && $0 ~ ("^  [a-z].* " name "([(]| =)") { gone = 1; next } { print }' unix_packets.hpp >lacking.hpp
  [[ "$name" != address_bytes_max ]] || sed -i 's/address_bytes_max/40/' lacking.hpp
  refused 1 "UnixPackets in lacking.hpp is no provider:" "missing, or of another type: $function" "    there is none" -- --type UnixPackets lacking.hpp unix_packets.o
  [[ "$(grep -c 'another type:' "$work/log")" == 1 ]] || { cat "$work/log"; fail "more is said to be missing than $name"; }
done
sed 's/int wait_fd() noexcept/long wait_fd() noexcept/' unix_packets.hpp >lacking.hpp
refused 1 "optional, but when it is there it must be: int wait_fd() noexcept" "    it has the type: long int () noexcept" -- --type UnixPackets lacking.hpp unix_packets.o
sed 's/int receive(weft::PacketSink& sink) noexcept/int receive(weft::PacketSink\& sink)/' unix_packets.hpp >lacking.hpp
refused 1 "another type: int receive(weft::PacketSink& sink) noexcept" "    it has the type: int (weft::PacketSink&)" -- --type UnixPackets lacking.hpp unix_packets.o
sed 's/ public:/ private:/' unix_packets.hpp >lacking.hpp
refused 1 "    it is not public" -- --type UnixPackets lacking.hpp unix_packets.o
echo "-- other mistakes"
refused 1 "lacking.hpp has no type Lacking (--type names another)" -- lacking.hpp unix_packets.o
refused 2 "nothing.o: there is no such file" -- unix_packets.hpp nothing.o
refused 2 'names end in "fi.so"' -- unix_packets.hpp unix_packets.o -o libminimal.so
refused 2 'is no name for a provider' -- unix_packets.hpp unix_packets.o --name 'a;b'
sed 's/address_bytes_max = [0-9]*/address_bytes_max = 80/' unix_packets.hpp >lacking.hpp
refused 1 "must be a constant from 1 to 64: static constexpr size_t address_bytes_max" -- --type UnixPackets lacking.hpp unix_packets.o
sed 's/^class UnixPackets/namespace vendor {\n&/; $a}' unix_packets.hpp >spaced.hpp
refused 1 "spaced.hpp has no type UnixPackets, but vendor::UnixPackets: --type vendor::UnixPackets" -- --type UnixPackets spaced.hpp unix_packets.o
refused 1 "there/libminimal-fi.so cannot be written: " "/there: No such file or directory" -- unix_packets.hpp unix_packets.o -o there/libminimal-fi.so
printf '#error "not today"\n' >broken.hpp
refused 1 "broken.hpp does not compile:" "not today" -- broken.hpp unix_packets.o
printf 'int nothing;\n' >nothing.cpp
refused 1 "unix_packets.hpp declares, or uses, what none of the files has:" "UnixPackets::open(weft::Bytes)" "UnixPackets::receive(weft::PacketSink&)" -- unix_packets.hpp nothing.cpp
[[ -z "$(ls -A "$work/tmp")" && ! -e libunix_packets-fi.so && ! -e libunix_packets-fi.so.new ]] || fail "something is left behind"

echo "-- the plugin"
"$weft" mux unix_packets.hpp unix_packets.o -o libminimal-fi.so || fail "mux"
[[ "$(nm -D --defined-only libminimal-fi.so | awk '{ print $3 }' | xargs)" == fi_prov_ini ]] || fail "exports"
"$weft" mux unix_packets.hpp unix_packets.o -o "$work/tmp/libshm-fi.so" 2>"$work/log" || fail "mux under a name that is taken"
grep -q 'warning: Weft has a provider "shm" of its own' "$work/log" || { cat "$work/log"; fail "a name that is taken is not said"; }
rm "$work/tmp/libshm-fi.so"
echo "-- objects alone, one of them with the macro"
printf '#include <weft/plugin.hpp>\n#include "unix_packets.hpp"\nWEFT_PROVIDER_OVER_PACKETS(UnixPackets, "alone");\n' >alone.cpp
g++ -O1 -std=c++20 -fPIC "${cflags[@]}" -c alone.cpp
refused 1 "leave out the header, as in weft mux -o libboth-fi.so unix_packets.o alone.o" -- unix_packets.hpp unix_packets.o alone.o -o libboth-fi.so
refused 2 "needs a name (-o)" -- alone.o unix_packets.o
refused 1 "none of the files has WEFT_PROVIDER_OVER_PACKETS" -- unix_packets.o -o "$work/tmp/libalone-fi.so"
mkdir alone
"$weft" mux alone.o unix_packets.o -o alone/libalone-fi.so || fail "mux of objects"
FI_PROVIDER_PATH="$work/sdk/alone" "$weft" info -l | grep -q '^alone ' || fail "objects alone"

export FI_PROVIDER_PATH="$work/sdk"
if command -v fi_info >/dev/null; then
  fi_info -p minimal | grep -q '^provider: minimal$' || fail "the system's libfabric"
  "$weft" run -- fi_info -p minimal | grep -q '^provider: minimal$' || fail "ours"
fi
gcc -std=c11 -D_GNU_SOURCE -O1 "$source/examples/same_source/pingpong.c" -o pingpong.mux $(pkg-config --cflags --libs weft-mux) -Wl,-rpath,"$work/moved/lib"
timeout 60 ./pingpong.mux minimal | tee "$work/out"
grep -q 'over minimal' "$work/out" || fail "the multiplexer"
echo "vendor_test: ok"
