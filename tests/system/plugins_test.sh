#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Plugins of others under FI_PROVIDER_PATH: which are taken, what is said of those that are not, in which order they answer; and the example
# provider, alone and under ";ofi_rxm", in the stock library and in ours.
set -uo pipefail
build="${WEFT_BUILD:?}"
weft="$build/bin/weft"
example="$build/examples/c_plugin"
broken="$build/tests/system/plugins"
[[ -x "$weft" && -e "$build/lib/weft/compat/libfabric.so.1" && -e "$example/libexample-fi.so" ]] || { echo "not built"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/../pair.sh"
work="$(mktemp -d)"
trap 'end_pair; rm -rf "$work"' EXIT
failures=0
fail() { echo "FAILED: $*"; tail -n 30 "$work/out" "$work/err" 2>/dev/null; failures=$((failures + 1)); }
# expect STATUS COMMAND...: output goes to $work/out and $work/err.
expect() {
  local wanted="$1" got=0; shift
  timeout 60 "$@" >"$work/out" 2>"$work/err" || got=$?
  [[ $got -eq $wanted ]] || fail "status $got, not $wanted, of: $*"
}
says() { grep -qE -- "$1" "$work/out" "$work/err" || fail "nothing about '$1'"; }
says_not() { ! grep -qE -- "$1" "$work/out" "$work/err" || fail "something about '$1'"; }

# --- those that cannot be used ---
mkdir "$work/plugins"
echo "no library" >"$work/plugins/text-fi.so"
: >"$work/plugins/empty-fi.so"
for name in no_entry no_provider missing_symbol old_interface low_shm nameless layer middle_interface; do
  ln -s "$broken/$name-fi.so" "$work/plugins/"
done
ln -s "$broken/high_shm-fi.so" "$work/plugins/high_shm.so" # another suffix: not looked at
export FI_PROVIDER_PATH="$work/nowhere:$work/plugins:$example"
expect 0 "$weft" info
says 'example +1\.0'
says '^shm +207'
says "FI_PROVIDER_PATH: $work/nowhere: No such file"
says 'text-fi\.so.* (invalid ELF header|file too short)'
says 'empty-fi\.so.* file too short'
says 'no_entry-fi\.so is not used: it has no fi_prov_ini'
says 'no_provider-fi\.so is not used: fi_prov_ini\(\) gave no provider'
says 'missing_symbol-fi\.so.* undefined symbol: weft_test_exists_nowhere'
says 'old_interface-fi\.so is not used: its interface is of version 1\.2'
says 'low_shm-fi\.so is not used: there is a provider "shm" of version 207\.0, this one has 0\.1'
says 'nameless-fi\.so is not used: its provider has no name'
says 'layer-fi\.so is not used: it is a layer'
says 'cleanup of middle'
says_not 'high_shm'
[[ "$(grep -c 'text-fi.so' "$work/err")" -eq 1 ]] || fail "a plugin's failure is said more than once"
# The order: ours first, plugins later.
"$weft" info 2>/dev/null | awk '{print $1}' >"$work/out"
[[ "$(grep -n '^shm$' "$work/out" | head -1 | cut -d: -f1)" -lt "$(grep -n '^example$' "$work/out" | head -1 | cut -d: -f1)" ]] ||
  fail "plugins come before our own providers"

expect 1 "$weft" info --why -p middle
says 'middle is made for 1\.10'
says 'text-fi\.so'
expect 1 "$weft" info --why -p nosuch
says 'no provider is named "nosuch"; there are: weft, shm, .*, middle'
expect 0 env FI_PROVIDER=example,nosuch "$weft" info --why
says 'FI_PROVIDER: no provider is named "nosuch"'
says_not 'no provider is named "example"'
expect 1 "$weft" info --why -p example -e FI_EP_DGRAM
says 'the hints ask for another ep_attr->type'
expect 0 env FI_LOG_LEVEL=none "$weft" info -l
says 'middle +3\.2|example +1\.0'
expect 0 env FI_PROVIDER=example "$weft" info
says_not '^shm'
expect 0 env FI_PROVIDER=^example "$weft" info
says_not '^example'
expect 0 "$weft" run -- env ${WEFT_PRELOAD:+LD_PRELOAD="$WEFT_PRELOAD"} fi_info -e
says FI_PROVIDER_PATH

# What is passed over is said: a file at level info, a folder that has nothing else at level warn.
mkdir "$work/misnamed"
ln -s "$broken/high_shm-fi.so" "$work/misnamed/high_shm.so"
expect 0 env FI_PROVIDER_PATH="$work/misnamed" "$weft" info
says "FI_PROVIDER_PATH: $work/misnamed has no file whose name ends in \"fi.so\""
expect 0 env FI_LOG_LEVEL=info "$weft" info
says "high_shm.so is passed over: its name does not end in \"fi.so\""

# A higher version takes the place of ours, whatever stands beside it.
mkdir "$work/high"
ln -s "$broken/high_shm-fi.so" "$broken/low_shm-fi.so" "$work/high/"
expect 0 env FI_PROVIDER_PATH="$work/high" FI_LOG_LEVEL=info "$weft" info
says_not '^shm'
says 'high_shm-fi\.so replaces our provider "shm"'
says 'low_shm-fi\.so is not used: there is a provider "shm" of version 999\.0'

# "+" before a file prefers it to ours and to higher versions; "@" before the list prefers the first of a name.
mkdir "$work/low"
ln -s "$broken/low_shm-fi.so" "$work/low/"
expect 0 env FI_PROVIDER_PATH="+$broken/low_shm-fi.so:$work/high" FI_LOG_LEVEL=info "$weft" info
says 'low_shm-fi\.so replaces our provider "shm"'
says 'high_shm-fi\.so is not used: the provider "shm" comes from .*low_shm-fi\.so, which FI_PROVIDER_PATH names with "\+"'
expect 0 env FI_PROVIDER_PATH="$work/high:+$broken/low_shm-fi.so" FI_LOG_LEVEL=info "$weft" info
says 'low_shm-fi\.so replaces our provider "shm"'
says_not 'high_shm-fi\.so replaces'
expect 0 env FI_PROVIDER_PATH="@$work/low:$work/high" FI_LOG_LEVEL=info "$weft" info
says 'low_shm-fi\.so replaces our provider "shm"'
says 'high_shm-fi\.so is not used: the provider "shm" comes from .*low_shm-fi\.so, which is first in FI_PROVIDER_PATH'
expect 0 env FI_PROVIDER_PATH="@+$broken/low_shm-fi.so" FI_LOG_LEVEL=info "$weft" info
says 'low_shm-fi\.so replaces our provider "shm"'
# The same file in a directory of the list, too, before or behind the entry.
for list in "$work/low:+$work/low/low_shm-fi.so:$work/high" "$work/high:+$work/high/low_shm-fi.so"; do
  expect 0 env FI_PROVIDER_PATH="$list" FI_LOG_LEVEL=info "$weft" info
  says 'low_shm-fi\.so replaces our provider "shm"'
  says_not 'high_shm-fi\.so replaces'
done
expect 0 env FI_PROVIDER_PATH="+$work/nowhere/x-fi.so" "$weft" info
says "the plugin $work/nowhere/x-fi.so is not used: .*No such file"
for empty in "" @ :; do
  expect 0 env FI_PROVIDER_PATH="$empty" "$weft" info
  says_not "FI_PROVIDER_PATH"
done

# --- the example provider ---
export FI_PROVIDER_PATH="$example"
# pingpong NAME COMMAND... -- OPTIONS OF fi_pingpong...; $other names another provider for the server
pingpong() {
  local name="$1"; shift
  run=()
  while [[ "$1" != -- ]]; do run+=("$1"); shift; done
  shift
  server_options=(${other:+-p "$other"})
  pair 127.0.0.1 "$@" -I 50 -c || { tell_pair; fail "fi_pingpong over $name"; }
}
if command -v fi_pingpong >/dev/null && [[ -z "${WEFT_SANITIZE:-}" ]]; then
  pingpong "tcp;ofi_rxm, ours" "$weft" run -- -p "tcp;ofi_rxm" -e rdm
  pingpong "example, stock" env -- -p example -e msg
  pingpong "example;ofi_rxm, stock" env -- -p "example;ofi_rxm" -e rdm
  pingpong "example, ours" "$weft" run -- -p example -e msg
  pingpong "example;ofi_rxm, ours" "$weft" run -- -p "example;ofi_rxm" -e rdm
  # Over our own connected endpoints directly, and as a plugin through function vectors: they understand each other.
  mkdir "$work/connected"
  ln -s "$build/lib/weft/plugin/libweft-tcp-fi.so" "$work/connected/"
  FI_PROVIDER_PATH="$work/connected" other="weft_tcp;ofi_rxm" pingpong "tcp;ofi_rxm with weft_tcp;ofi_rxm" "$weft" run -- -p "tcp;ofi_rxm" -e rdm
  # Datagrams of a plugin with reliability on top, in ours.
  mkdir "$work/datagrams"
  ln -s "$build/lib/weft/plugin/libweft-udp-fi.so" "$work/datagrams/"
  export FI_PROVIDER_PATH="$work/datagrams"
  pingpong "weft_udp, ours" "$weft" run -- -p weft_udp -e dgram -S 1024
  pingpong "weft_udp;ofi_rxd, ours" "$weft" run -- -p "weft_udp;ofi_rxd" -e rdm
fi
[[ $failures -eq 0 ]] && echo "plugins are taken and refused as they should be"
exit $((failures != 0))
