#!/usr/bin/env bash
# Debian's fi_pingpong over datagram endpoints, up to the largest size of it that fits.
provider=udp type=dgram largest=1k net=77
# shellcheck disable=SC2034
source "$(dirname "${BASH_SOURCE[0]}")/pingpong.sh"
