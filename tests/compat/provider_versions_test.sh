#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The promise of weft/provider.hpp, both sides built: objects of a provider made with the frozen header of version 1.0 and with that of the next minor
# version (WEFT_PROVIDER_NEXT), each linked with a core of this version and of the next, and loaded. Objects are made once and linked as they are.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}"
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "a sanitized archive needs a sanitized program: not tested here"; exit 77; }
here="$source/tests/compat"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

cat >"$work/plugin.cpp" <<'END'
#include <weft/plugin.hpp>

#include "unix_packets.hpp"

struct Noted : UnixPackets {
  static std::string note() { return "made of sockets"; }
#ifdef NEEDS
  static constexpr uint32_t version_needed = WEFT_PROVIDER_VERSION_OF(1, 1);
#endif
};
WEFT_PROVIDER_OVER_PACKETS(Noted, "versions");
END
objects() {  # objects NAME FLAGS...: what an author compiles
  mkdir "$work/$1"
  local file
  for file in "$source/examples/minimal_provider/unix_packets.cpp" "$work/plugin.cpp"; do
    g++ -std=c++20 -O0 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -I"$source/examples/minimal_provider" "${@:2}" -c "$file" \
      -o "$work/$1/$(basename "$file" .cpp).o" || return 1
  done
}
mkdir -p "$work/major/weft" "$work/names/weft"
sed 's/\(WEFT_PROVIDER_VERSION_MAJOR\) 1$/\1 2/' "$here/provider-1.0/weft/provider.hpp" >"$work/major/weft/provider.hpp"
cp "$here/provider-1.0/weft/plugin.hpp" "$work/major/weft"
for header in provider plugin; do sed 's/weft_core_v1/weft_core_v2/; s/provider_v1/provider_v2/' "$work/major/weft/$header.hpp" >"$work/names/weft/$header.hpp"; done
made=()
objects old -I"$here/provider-1.0" & made+=($!)
objects new -I"$source/include" -DWEFT_PROVIDER_NEXT & made+=($!)
objects needy -I"$source/include" -DWEFT_PROVIDER_NEXT -DNEEDS & made+=($!)
objects claims -I"$work/major" & made+=($!)
objects later -I"$work/names" & made+=($!)
for one in "${made[@]}"; do wait "$one" || fail "objects do not compile"; done

linked() {  # linked OBJECTS CORE: $work/OBJECTS.CORE/libversions-fi.so
  local next=()
  [[ $2 != next ]] || next=(-lweft-core-next)
  mkdir "$work/$1.$2"
  g++ -shared "$work/$1"/*.o -o "$work/$1.$2/libversions-fi.so" -L"$build/tests/compat" -L"$build/lib" "${next[@]}" -lweft-core -lweft-common -ldl -pthread \
    "-Wl,--version-script=$build/lib/weft/plugin.map" -Wl,-z,defs -Wl,-Bsymbolic -Wl,--gc-sections -static-libstdc++ -static-libgcc 2>"$work/log"
}
loaded() {  # loaded FOLDER: the log is in $work/log
  FI_PROVIDER_PATH="$work/$1" FI_LOG_LEVEL=info "$build/bin/weft" run -- fi_info -p versions >"$work/out" 2>"$work/log"
}
# row OBJECTS CORE OUTCOME: prints one line of the table.
row() {
  local outcome=works noted=
  linked "$1" "$2" || { cat "$work/log"; fail "$1 objects do not link with the $2 core"; }
  if loaded "$1.$2"; then
    FI_PROVIDER_PATH="$work/$1.$2" LD_LIBRARY_PATH="$build/lib/weft/compat" WEFT_TEST_PROVIDER=versions timeout 60 \
      "$build/libexec/weft/weft_conformance" --gtest_brief=1 --gtest_filter='Tagged.*:Rma.*' >"$work/out" 2>&1 || { tail -20 "$work/out"; fail "$1 objects over the $2 core"; }
    ! grep -q 'provider "versions": made of sockets' "$work/log" || noted=", with what is new"
    outcome="works$noted"
  else
    outcome="$(sed -n 's/.*core:<warn> \(the provider "versions" .*\|a provider was .*\)/refused: \1/p' "$work/log" | head -n 1)"
  fi
  printf '%-32s %-10s %s\n' "$(label "$1")" "core ${2/this/1.0}" "$outcome" | sed 's/core next/core 1.1 /'
  [[ "$outcome" == "$3" ]] || { cat "$work/log"; fail "expected: $3"; }
}
label() {
  case "$1" in
    old) echo "objects 1.0" ;;
    new) echo "objects 1.1, need nothing new" ;;
    needy) echo "objects 1.1, need 1.1" ;;
    claims) echo "objects 2.0" ;;
  esac
}
row old this works
row old next works
row new this works
row new next "works, with what is new"
row needy this 'refused: the provider "versions" needs version 1.1 of weft/provider.hpp, and the core in this plugin has 1.0: link it with the libweft-core.a of a newer Weft'
row needy next "works, with what is new"
row claims this 'refused: a provider was compiled for version 2.0 of weft/provider.hpp, and the core in this plugin has 1.0: compile its sources again, with the headers of this core'
linked later this && fail "objects of another major version are linked"
grep -q 'undefined reference to `weft_core_v2' "$work/log" || { cat "$work/log"; fail "what is missing is not named"; }
echo "objects 2.0, with its names      core 1.0   not linked: weft_core_v2 is missing"
echo "provider_versions_test: ok"
