#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Debian's fi_pingpong over datagram endpoints, up to the largest size of it that fits.
provider=udp type=dgram largest=1k net=77
# shellcheck disable=SC2034
source "$(dirname "${BASH_SOURCE[0]}")/pingpong.sh"
