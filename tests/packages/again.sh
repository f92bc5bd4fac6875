#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Whether the packages are reproducible: builds the same source archive once more, in a folder of another name and length, without a compiler cache,
# and compares byte by byte. What differs is named, down to the files in the packages.
# usage: again.sh ARCHIVE FOLDER    the source archive, and the folder with the packages that were built from it
set -euo pipefail
archive="$(realpath "${1:?the source archive}")"
folder="$(cd "${2:?the folder with the packages}" && pwd)"
name="$(basename "$archive" .tar.xz)"
work="$(mktemp -d -t weft-packages-built-again-XXXXXX)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/elsewhere"
tar -xf "$archive" -C "$work/elsewhere"
# Other jobs, another umask and another time zone than the first time, as far as these are ours to choose.
(cd "$work/elsewhere/$name" && umask 027 && env -u CMAKE_C_COMPILER_LAUNCHER -u CMAKE_CXX_COMPILER_LAUNCHER CCACHE_DISABLE=1 TZ=Asia/Tokyo \
  DEB_BUILD_OPTIONS="parallel=${WEFT_JOBS:-$(nproc)} nocheck" dpkg-buildpackage -us -uc -b) >"$work/build.log" 2>&1 ||
  { tail -n 40 "$work/build.log"; echo "packages: the second build failed"; exit 1; }
status=0 count=0
for package in "$folder"/*.deb; do
  count=$((count + 1))
  other="$work/elsewhere/$(basename "$package")"
  cmp -s "$package" "$other" && continue
  status=1
  echo "packages: $(basename "$package") differs:"
  rm -rf "$work/a" "$work/b"
  dpkg-deb -R "$package" "$work/a"
  dpkg-deb -R "$other" "$work/b"
  diff -rq "$work/a" "$work/b" || true
  diff <(dpkg-deb -c "$package") <(dpkg-deb -c "$other") | head -n 20 || true
done
[[ $status -eq 0 ]] || { [[ -z "${WEFT_KEEP:-}" ]] || { cp -r "$work/elsewhere" "$WEFT_KEEP"; echo "packages: kept in $WEFT_KEEP"; }; exit 1; }
echo "packages: $count packages, the same bytes twice"
