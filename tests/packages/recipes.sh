#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The recipes of docs/ci.md, as they stand there, without a container engine: each gets a fresh root as debian:12 is one, its steps are taken in it one
# after the other, and the project beside this file is its project.
# usage: recipes.sh FOLDER    the packages. Root, and a mirror of Debian (WEFT_MIRROR, http://deb.debian.org/debian).
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
folder="$(cd "${1:?the folder with the packages}" && pwd)"
mirror="${WEFT_MIRROR:-http://deb.debian.org/debian}"
page="$here/../../docs/ci.md"
[[ $EUID -eq 0 ]] || { echo "recipes: skipped: a fresh root needs root"; exit 0; }
work="$(mktemp -d)"

# steps_of_dockerfile, steps_of_job: the page's recipe as lines of a shell.
steps_of_dockerfile() {
  sed -n 's/^    //p' "$page" | awk '
    /^FROM / { on = 1 }
    on && /^RUN / { sub(/^RUN /, ""); print }
    on && /^ENV / { sub(/^ENV /, ""); print "export " $0 }
    on && /^CMD / { gsub(/^CMD \[|\]$|[",]/, ""); print; exit }'
}
steps_of_job() { sed -n 's/^        - //p' "$page"; }
[[ -n "$(steps_of_dockerfile)" && -n "$(steps_of_job)" ]] || { echo "recipes: docs/ci.md has none"; exit 1; }
{ echo "set -e; cd /project"; steps_of_dockerfile; } >"$work/steps.container"
{ echo "set -e; cd /project"; steps_of_job; } >"$work/steps.job"

exec unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
  here="$1" folder="$2" mirror="$3" work="$4"
  mmdebstrap --variant=minbase --dpkgopt=force-unsafe-io bookworm "$work/debian" "$mirror" >"$work/root.log" 2>&1 ||
    { tail -n 20 "$work/root.log"; echo "recipes: no root could be made"; exit 1; }
  for recipe in container job; do
    root="$work/$recipe"
    cp -a "$work/debian" "$root"
    mkdir -p "$root/packages" "$root/project/packages"
    cp "$folder"/*.deb "$root/packages/"
    cp "$folder"/*.deb "$root/project/packages/"
    cp "$here"/project/* "$root/project/"
    cp "$work/steps.$recipe" "$root/recipe"
    cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
    for name in proc dev sys; do mount --rbind "/$name" "$root/$name"; done
    echo "recipes: $recipe"
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ DEBIAN_FRONTEND=noninteractive sh /recipe >"$work/log" 2>&1 ||
      { tail -n 30 "$work/log"; echo "recipes: FAILED: $recipe"; exit 1; }
    grep -q "^testbed: weft_.* carried a message" "$work/log" || { tail -n 30 "$work/log"; echo "recipes: FAILED: $recipe did not run over Weft"; exit 1; }
    grep "^testbed:" "$work/log"
    for name in proc dev sys; do umount -l "$root/$name"; done
    rm -rf --one-file-system "$root"
  done
  rm -rf --one-file-system "$work"
  echo "recipes: ok"
' recipes "$here" "$folder" "$mirror" "$work"
