#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The way of docs/provider-guide.md, from an installed tree that was moved: examples/minimal_provider is built by make and by CMake, gives nothing but
# fi_prov_ini to others, runs in the system's libfabric and in ours, and carries MPI.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "a sanitized archive needs a sanitized program: not tested here"; exit 77; }
command -v fi_pingpong >/dev/null || { echo "fi_pingpong is not here (package libfabric-bin)"; exit 77; }
source "$source/tests/pair.sh"
work="$(mktemp -d)"
trap 'end_pair; rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

echo "-- installed, and the tree moved to another folder"
cmake --install "$build" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log"; fail "install"; }
mv "$work/first" "$work/prefix"
export PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig"
weft="$work/prefix/bin/weft"

echo "-- the minimal provider, by make and by CMake"
[[ "$(cat "$source"/examples/minimal_provider/*.[ch]pp | wc -l)" -le 150 ]] || fail "it has become longer than 150 lines"
cp -r "$source/examples/minimal_provider" "$work/example"
CXXFLAGS="-O2 -Werror" make -C "$work/example" >"$work/make.log" 2>&1 &
making=$!
{ cmake -S "$source/examples/minimal_provider" -B "$work/example/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" &&
  cmake --build "$work/example/build"; } >"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; fail "CMake"; }
wait "$making" || { cat "$work/make.log"; fail "make"; }
for plugin in "$work/example/libminimal-fi.so" "$work/example/build/libminimal-fi.so"; do
  exported="$(nm -D --defined-only "$plugin" | awk '{ print $3 }' | xargs)"
  [[ "$exported" == fi_prov_ini ]] || fail "$plugin exports: $exported"
  strange="$(readelf -dW "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -Ev '^(libc|libm|ld-linux-x86-64)\.so\.[0-9]+$' || true)"
  [[ -z "$strange" ]] || fail "$plugin brings in $strange"
done

# over FOLDER COMMAND...: with the plugin of that folder.
over() { FI_PROVIDER_PATH="$1" timeout -k 2 60 "${@:2}"; }
pingpong() {  # pingpong FOLDER [COMMAND...]: bytes checked, all sizes
  run=("${@:2}")
  FI_PROVIDER_PATH="$1" pair_reaches 6m 127.0.0.1 -p minimal -e rdm -c -S all || fail "fi_pingpong"
}
echo "-- in the system's libfabric (made by make), and in ours (made by CMake)"
over "$work/example" fi_info -p minimal | tee "$work/info"
grep -q '^provider: minimal$' "$work/info" || fail "no provider minimal in the system's libfabric"
over "$work/example/build" "$weft" run -- fi_info -p minimal -c 'FI_TAGGED|FI_RMA|FI_ATOMIC' >/dev/null || fail "no provider minimal in ours"
pingpong "$work/example"
pingpong "$work/example/build" "$weft" run --

echo "-- it shows what it claims"
timeout -k 2 120 "$weft" check "$work/example/libminimal-fi.so" >"$work/check" || { cat "$work/check"; fail "weft check"; }
grep -q '^all that is claimed was shown' "$work/check" || { cat "$work/check"; fail "weft check"; }
grep -A1 '^runs Open MPI btl ' "$work/check" | grep -q yes || { cat "$work/check"; fail "weft check: not good enough for btl ofi"; }

echo "-- what it lacks is said"
remote="$(over "$work/example" fi_info -p minimal -c FI_REMOTE_COMM 2>&1)" && fail "it does not leave the machine"
grep -q 'minimal:core:<warn> fi_getinfo found nothing: caps' <<<"$remote" || { echo "$remote"; fail "no reason under its own name"; }
sed 's/int receive(.*/int receive() noexcept;/' "$work/example/unix_packets.hpp" >"$work/lacking.hpp"
printf '#include "lacking.hpp"\nstatic_assert(weft::explain_packets<UnixPackets>());\n' >"$work/lacking.cpp"
read -r -a cflags <<<"$(pkg-config --cflags weft-provider)"
g++ -std=c++20 -fsyntax-only "${cflags[@]}" "$work/lacking.cpp" 2>"$work/log" && fail "a provider that cannot receive"
grep -q 'weft::Packets: missing, or of another type: int receive(weft::PacketSink& sink) noexcept' "$work/log" || { cat "$work/log"; fail "it is not said what is missing"; }
[[ "$(grep -c 'error: .*weft::Packets:' "$work/log")" == 1 ]] || { cat "$work/log"; fail "more is said to be missing"; }

if command -v mpirun >/dev/null && command -v NPopenmpi >/dev/null; then
  echo "-- Open MPI"
  cd "$work"
  for library in "" --stock; do
    FI_PROVIDER_PATH="$work/example" timeout -k 5 60 bash "$source/tests/mpi/run.sh" --way btl --rma pt2pt ${library:+"$library"} minimal 2 \
      NPopenmpi -i -n 5 -u 65536 -o /dev/null >"$work/out" 2>&1 || { tail "$work/out"; fail "NPopenmpi ${library:-over Weft}"; }
    [[ "$(grep -c 'Integrity check passed' "$work/out")" -ge 20 ]] || { tail "$work/out"; fail "NPopenmpi did not check"; }
  done
else
  echo "mpirun or NPopenmpi is not here: skipped"
fi
echo "provider_test: ok"
