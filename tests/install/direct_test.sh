#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Providers linked directly, from an installed tree that was moved: the same source in C, C++17 and C++20 prints what it prints over the drop-in,
# and in C++20 the data path has no indirect call. ctest runs the parts beside each other, after "tree" (cmake/tests.cmake).
#
#   direct_test.sh tree|shm|weft|net|headers|generations|calls
#
# A link without -fno-lto compiles the archive's bytecode, also where the program itself is not compiled with -flto: most of the time of a C program.
# Where the program is to run from the archive's machine code, or only has to link, -fno-lto saves it.
set -euo pipefail
build="${WEFT_BUILD:?}" source="${WEFT_SOURCE:?}" part="${1:?usage: direct_test.sh PART}"
[[ -z "${WEFT_SANITIZE:-}" ]] || { echo "a sanitized archive needs a sanitized program: not tested here"; exit 77; }
work="$(mktemp -d)" tree="$build/tests/direct"
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
. "$source/tests/install/headers_of.sh"
strict=(-Wall -Wextra -Werror)
# flags_of PACKAGE: into `flags`.
flags_of() { read -r -a flags <<<"$(pkg-config --cflags --libs "$1")"; }

# The same sources in each language, directly and over the drop-in.
programs_over() {
  local provider="$1" pingpong="$source/examples/same_source/pingpong.c" board="$source/examples/same_source/board.cpp"
  local in_place="$source/examples/in_place/in_place.c" program made
  gcc -std=c11 -D_GNU_SOURCE -O2 "$pingpong" -o "$work/pingpong.stock" -lfabric
  g++ -std=c++17 -O2 "$board" -o "$work/board.stock" -lfabric
  flags_of "weft-direct-$provider"
  g++ -std=c++20 -O2 "${strict[@]}" "$board" -o "$work/board.cc20" "${flags[@]}" || fail "C++20"
  gcc -std=c11 -D_GNU_SOURCE -O2 -fno-lto "${strict[@]}" "$pingpong" -o "$work/pingpong.c11" "${flags[@]}" || fail "C"
  gcc -std=c11 -D_GNU_SOURCE -O2 -flto "${strict[@]}" "$pingpong" -o "$work/pingpong.lto" "${flags[@]}" || fail "C, LTO"
  g++ -std=c++17 -O2 "${strict[@]}" "$board" -o "$work/board.cc17" "${flags[@]}" || fail "C++17"
  gcc -std=c99 -D_GNU_SOURCE -O2 -fno-lto "${strict[@]}" "$in_place" -o "$work/in_place.c99" "${flags[@]}" || fail "in_place.c"
  gcc -std=c99 -D_GNU_SOURCE -O2 -flto "${strict[@]}" "$in_place" -o "$work/in_place.lto" "${flags[@]}" || fail "in_place.c, LTO"
  gcc -std=c11 -D_GNU_SOURCE -O2 "$source/tests/system/sources.c" -o "$work/sources.stock" -lfabric
  g++ -x c++ -std=c++20 -O2 "${strict[@]}" "$source/tests/system/sources.c" -x none -o "$work/sources.cc20" "${flags[@]}" || fail "sources.c in C++20"
  for program in pingpong board sources; do
    LD_LIBRARY_PATH="$tree/prefix/lib/weft/compat" timeout 60 "$work/$program.stock" "$provider" >"$work/$program.expected"
  done
  for made in pingpong.c11 pingpong.lto board.cc17 board.cc20 sources.cc20; do
    timeout 60 "$work/$made" "$provider" >"$work/out" || fail "$made"
    diff "$work/${made%.*}.expected" "$work/out" || fail "$made prints something else"
    ! ldd "$work/$made" | grep -qE 'libfabric|libweft' || fail "$made needs a fabric library at run time"
  done
  for made in in_place.c99 in_place.lto; do
    [[ "$(timeout 60 "$work/$made" "$provider")" == *", sum 998500500000, in place" ]] || fail "$made over $provider"
  done
  ! timeout 60 "$work/pingpong.c11" tcp >/dev/null 2>"$work/log" || fail "a provider that is not linked was found"
  grep -q "No data available" "$work/log" || fail "no reason for a provider that is not linked"
}

over_networks() {
  for row in "tcp tcp -O2" "tcp-rxm tcp;ofi_rxm -O0" "udp-rxd udp;ofi_rxd -O2"; do
    read -r name provider level <<<"$row"
    echo "-- $name"
    flags_of "weft-direct-$name"
    g++ -std=c++20 "$level" -fno-lto "${strict[@]}" "$source/examples/same_source/board.cpp" -o "$work/board.cc20" "${flags[@]}" || fail "C++20"
    gcc -std=c11 -D_GNU_SOURCE -O2 -flto "${strict[@]}" "$source/examples/same_source/pingpong.c" -o "$work/pingpong.lto" "${flags[@]}" || fail "C, LTO"
    [[ "$(timeout 60 "$work/pingpong.lto" "$provider")" == "1000 rounds over $provider, sum 50301000" ]] || fail "pingpong over $provider"
    [[ "$(timeout 60 "$work/board.cc20" "$provider")" == "3 writers over $provider: 200 200 200, counted 600" ]] || fail "board over $provider"
  done
  echo "-- udp"
  flags_of weft-direct-udp
  cat >"$work/udp.cpp" <<'END'
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <weft/direct/udp.hpp>
#include <cstdio>
int main() {
  fi_info* hints = fi_allocinfo();
  hints->ep_attr->type = FI_EP_DGRAM;
  fi_info* found = nullptr;
  if (fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &found) != 0) return 1;
  fid_fabric* fabric = nullptr;
  if (fi_fabric(found->fabric_attr, &fabric, nullptr) != 0) return 1;
  std::puts(weft::direct::udp::Provider::name);
  fi_close(&fabric->fid);
  fi_freeinfo(found);
  fi_freeinfo(hints);
}
END
  g++ -std=c++20 "${strict[@]}" "$work/udp.cpp" -o "$work/udp" "${flags[@]}" || fail "udp"
  [[ "$("$work/udp")" == udp ]] || fail "udp"

  echo "-- a program that drives a network card"
  flags_of weft-direct-nic
  for driver in e1000e virtio_net; do
    printf '#include <weft/direct/nic_%s.hpp>\nint main() { return weft::direct::nic_%s::Driver::drives(0, 0) ? 1 : 0; }\n' "$driver" "$driver" >"$work/$driver.cpp"
    g++ -std=c++20 "${strict[@]}" "$work/$driver.cpp" -o "$work/$driver" "${flags[@]}" || fail "weft/direct/nic_$driver.hpp"
    "$work/$driver" || fail "weft/direct/nic_$driver.hpp"
    ! g++ -std=c++17 -fsyntax-only "$work/$driver.cpp" "${flags[@]}" 2>"$work/log" || fail "C++17 was accepted"
    grep -q "nic_$driver.hpp needs C++20" "$work/log" || { cat "$work/log"; fail "C++17 is not explained"; }
  done
  g++ -std=c++20 -O2 "${strict[@]}" "$source/examples/nic/look_at_card.cpp" -o "$work/look_at_card" "${flags[@]}" || fail "look_at_card.cpp"
  ! "$work/look_at_card" 0000:ff:1f.7 2>"$work/log" || fail "a card that is not there was opened"
  grep -q '0000:ff:1f.7' "$work/log" || { cat "$work/log"; fail "look_at_card does not say why"; }
  ! ldd "$work/look_at_card" | grep -qE 'libfabric|libweft' || fail "look_at_card needs a library of ours at run time"
}

headers() {
  echo "-- C++ headers in any order"
  flags_of weft-direct-shm
  for order in "fi_tagged fi_endpoint fabric" "fi_eq" "fi_atomic fi_rma" "fi_domain fi_cm fi_collective" "fi_trigger fabric" "fi_ext" "providers/fi_log fi_tagged"; do
    for header in $order; do echo "#include <rdma/$header.h>"; done >"$work/order.cpp"
    echo "int main() { return 0; }" >>"$work/order.cpp"
    for std in c++17 c++20; do
      g++ -std=$std -fsyntax-only "${strict[@]}" "$work/order.cpp" "${flags[@]}" || fail "$order ($std)"
    done
  done

  printf '#include <weft/direct/shm.hpp>\nint main() { return sizeof(weft::direct::shm::Link) == 0; }\n' >"$work/order.cpp"
  g++ -std=c++20 -fno-lto "${strict[@]}" "$work/order.cpp" -o "$work/order" "${flags[@]}" || fail "weft/direct/shm.hpp alone"
  cat >"$work/order.cpp" <<'END'
#include <weft/direct/shm.hpp>
int main() {
  weft_shm_limits limits{};
  limits.size = sizeof limits;
  return weft::direct::shm::InPlace::limits(nullptr, &limits) == -FI_EINVAL ? 0 : 1;
}
END
  g++ -std=c++20 -fno-lto "${strict[@]}" "$work/order.cpp" -o "$work/order" "${flags[@]}" || fail "weft::direct::shm::InPlace"
  "$work/order" || fail "weft::direct::shm::InPlace::limits"
  printf 'extern "C" {\n#include <rdma/fi_tagged.h>\n}\nint main() { return 0; }\n' >"$work/order.cpp"
  g++ -std=c++20 -fno-lto "${strict[@]}" "$work/order.cpp" -o "$work/order" "${flags[@]}" || fail "headers inside extern C"
  echo "-- what does not go together"
  refused() {
    local words="$1"; shift
    if g++ -fsyntax-only "$@" 2>"$work/log"; then fail "compiles: $*"; fi
    grep -qF -- "$words" "$work/log" || { cat "$work/log"; fail "$*: does not say \"$words\""; }
  }
  printf '#include <rdma/fabric.h>\n' >"$work/two.cpp"
  for two in "weft-direct-shm weft-direct-tcp" "weft-direct-udp weft-direct-shm"; do
    read -r -a both <<<"$(pkg-config --cflags $two)"
    refused "direct linking takes one provider" "$work/two.cpp" "${both[@]}"
  done
  for two in "weft-direct-shm weft-mux" "weft-mux weft-direct-shm"; do
    read -r -a both <<<"$(pkg-config --cflags $two)"
    refused "linked to the multiplexer or directly" "$work/two.cpp" "${both[@]}"
  done
  printf '#include <weft/direct/shm.hpp>\n' >"$work/two.cpp"
  refused "weft/direct/shm.hpp needs C++20" -std=c++17 "$work/two.cpp" "${flags[@]}"
  read -r -a plain <<<"$(pkg-config --cflags weft-provider)"
  refused "weft/direct/shm.hpp needs the flags of direct linking" -std=c++20 "$work/two.cpp" "${plain[@]}"
  printf '#include <weft/provider.hpp>\n' >"$work/two.cpp"
  refused "weft/provider.hpp needs C++20" -std=c++17 "$work/two.cpp" "${plain[@]}"
  echo "-- a standard library with other types; nothing is taken away from libraries of the program"
  g++ -std=c++20 -O2 -fno-lto -D_GLIBCXX_DEBUG "$source/examples/same_source/board.cpp" -o "$work/board.debug" "${flags[@]}" || fail "_GLIBCXX_DEBUG"
  [[ "$(timeout 60 "$work/board.debug")" == "3 writers over shm: 200 200 200, counted 600" ]] || fail "_GLIBCXX_DEBUG"
  printf '#include <rdma/fabric.h>\nextern "C" int other() { return fi_getinfo(0, 0, 0, 0, 0, 0); }\n' >"$work/other.cpp"
  g++ -shared -fPIC "$work/other.cpp" -o "$work/libother.so" -lfabric
  g++ -std=c++20 -O0 -fno-lto "$source/examples/same_source/board.cpp" -o "$work/board.both" -Wl,--no-as-needed "$work/libother.so" -Wl,--as-needed "${flags[@]}"
  [[ -z "$(nm -D --defined-only "$work/board.both" | grep ' fi_' || true)" ]] || fail "the program exports calls of libfabric"
}

# Programs with other headers than the archive was compiled with: their structures have their own sizes, and nothing of the archive's objects is inlined.
generations() {
  flags_of weft-direct-shm
  while read -r major minor _ tail; do
    echo "-- headers of $major.$minor"
    headers_of "$work/headers" "$major" "$minor" "$tail"
    for compiler in "gcc -std=c99" "g++ -std=c++20 -x c++"; do
      read -r -a compile <<<"$compiler"
      "${compile[@]}" -fno-lto "${strict[@]}" "$source/tests/install/generation.c" -x none -o "$work/generation" "${flags[@]}" -I"$work/headers/include" || fail "$major.$minor: $compiler"
      timeout 60 "$work/generation" || fail "$major.$minor: $compiler"
    done
  done <"$source/tests/install/generations.txt"
  g++ -std=c++20 -O2 -fno-lto "${strict[@]}" "$source/examples/same_source/board.cpp" -o "$work/board" "${flags[@]}" -I"$work/headers/include" || fail "board.cpp"
  [[ "$(timeout 60 "$work/board")" == "3 writers over shm: 200 200 200, counted 600" ]] || fail "board.cpp with newer headers than the archive's"
  echo '#include <weft/direct/shm.hpp>' >"$work/types.cpp"
  ! g++ -std=c++20 -fsyntax-only "$work/types.cpp" "${flags[@]}" -I"$work/headers/include" 2>"$work/log" || fail "the archive's types with other headers"
  grep -q 'libweft-shm.a was compiled with libfabric-dev .*, whose structures have other sizes' "$work/log" || { cat "$work/log"; fail "the archive's types with other headers"; }
}

calls() {
  echo "-- no indirect call on the data path"
  if command -v valgrind >/dev/null; then
    flags_of weft-direct-shm
    g++ -std=c++20 -O2 -DNDEBUG -no-pie "$source/bench/callgrind_ops.cpp" -o "$work/ops" "${flags[@]}"
    for call in tinject empty one; do
      python3 "$source/tests/install/indirect_calls.py" "$work/ops" shm "$call" 200 || fail "indirect calls in $call"
    done
  else
    echo "valgrind is not installed: skipped"
  fi
}

if [[ $part == tree ]]; then
  echo "-- installed, and the tree moved to another folder"
  rm -rf "$tree"
  mkdir -p "$tree"
  cmake --install "$build" --prefix "$tree/first" >"$work/install.log" || { cat "$work/install.log"; fail "install"; }
  mv "$tree/first" "$tree/prefix"
  echo "direct_test: installed"
  exit 0
fi
[[ -d "$tree/prefix" ]] || fail "no installed tree: run direct_test.sh tree"
export PKG_CONFIG_PATH="$tree/prefix/lib/pkgconfig"
case "$part" in
  shm | weft) programs_over "$part" ;;
  net) over_networks ;;
  headers) headers ;;
  generations) generations ;;
  calls) calls ;;
  *) fail "no part named $part" ;;
esac
echo "direct_test $part: ok"
