#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The install tree works from anywhere: a copy under another name runs an unmodified program, brings no library of its own into it
# and knows no folder of the build.
set -euo pipefail
[[ -n "${WEFT_STAGE:-}" && -x "$WEFT_STAGE/bin/weft" ]] || { echo "nothing is staged; ./dev build stages"; exit 77; }
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "a sanitized library wants its runtime in the program"; exit 77; }
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
cp -a "$WEFT_STAGE" "$place/moved tree"
tree="$place/moved tree"
fail() { echo "FAILED: $*"; exit 1; }

for library in "$tree/lib/weft/compat/libfabric.so.1" "$tree/lib/weft/plugin/libweft-fi.so" "$tree/lib/weft/plugin/libweft-tcp-fi.so" \
  "$tree/lib/weft/plugin/libweft-udp-fi.so"; do
  [[ -e "$library" ]] || fail "$library is missing"
  strange="$(readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -Ev '^(libc|libm|ld-linux-x86-64)\.so\.[0-9]+$' || true)"
  [[ -z "$strange" ]] || fail "$library brings in $strange"
  readelf -dW "$library" | grep -E 'RPATH|RUNPATH' && fail "$library has a search path"
done
readelf -dW "$tree/lib/weft/compat/libfabric.so.1" | grep -q 'SONAME.*\[libfabric\.so\.1\]' || fail "the drop-in's soname"
exported="$(nm -D --defined-only "$tree/lib/weft/plugin/libweft-fi.so" | awk '{ print $3 }' | xargs)"
[[ "$exported" == fi_prov_ini ]] || fail "the plugin exports: $exported"
for program in bin/weft libexec/weft/weft_conformance; do
  readelf -dW "$tree/$program" | grep -E 'RPATH|RUNPATH' && fail "$program has a search path"
done
readelf -dW "$tree/libexec/weft/weft_conformance" | grep -E 'NEEDED.*(gtest|gmock)' && fail "the cases need GoogleTest's library"

for page in man1/weft.1 man1/weft-run.1 man1/weft-check.1 man7/weft_provider.7 man7/weft_direct.7; do
  [[ -s "$tree/share/man/$page" ]] || fail "no manual page $page"
done

for file in lib/libweft-nic.a lib/pkgconfig/weft-direct-nic.pc include/weft/direct/nic_e1000e.hpp include/weft/direct/nic_virtio_net.hpp; do
  [[ -s "$tree/$file" ]] || fail "$file is missing"
done
! nm -C "$tree/lib/libweft-nic.a" 2>/dev/null | grep -qE ' [TW] .*(nic::model|::roce)::' || fail "libweft-nic.a has models or RoCEv2 in it"

echo "-- links of the documents lead to installed files"
while IFS= read -r page; do
  while IFS= read -r link; do
    [[ -e "$(dirname "$page")/$link" ]] || fail "${page#"$tree"/} points to $link"
  done < <(grep -o '](\([^() ]*\))' "$page" | sed 's/^](//; s/)$//; s/#.*//' | grep -v '^[a-z]*:\|^$')
done < <(find "$tree/share/doc/weft" -name '*.md')
grep -qF '](../../../../include/weft/provider.hpp)' "$tree/share/doc/weft/docs/provider-guide.md" || fail "the guide does not point to the header"
while IFS= read -r page; do
  grep -q 'source archive' "$page" || fail "${page#"$tree"/} names files that are not installed, and does not say so"
done < <(grep -rlE '`(src|tests|bench|scripts)/|\./dev ' "$tree/share/doc/weft" --include='*.md')
[[ -s "$tree/share/doc/weft/examples/minimal_provider/unix_packets.cpp" ]] || fail "no example of a provider"

cd /
env -u LD_LIBRARY_PATH "$tree/bin/weft" run -- fi_info -p shm >"$place/info" || { cat "$place/info"; fail "fi_info over the moved tree"; }
grep -q '^provider: *shm' "$place/info" || { cat "$place/info"; fail "no provider shm"; }
env -u LD_LIBRARY_PATH "$tree/bin/weft" run -- sh -c 'LD_TRACE_LOADED_OBJECTS=1 exec fi_info' | grep 'libfabric\.so\.1 =>' |
  grep -qF "$tree/lib/weft/compat" || fail "the program did not get the moved library"
env -u LD_LIBRARY_PATH "$tree/bin/weft" info >"$place/weft-info" || fail "weft info from the moved tree"
env -u LD_LIBRARY_PATH "$tree/bin/weft" check --only FI_TAGGED loopback >"$place/check" || { cat "$place/check"; fail "weft check from the moved tree"; }
grep -qF "$tree/lib/weft/compat" "$place/check" || { cat "$place/check"; fail "weft check asked another library"; }
echo "the moved tree works"
