#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Debian's fi_pingpong over RDM endpoints of tcp, up to the largest size of it that fits.
provider=tcp type=rdm largest=6m net=78
# shellcheck disable=SC2034
source "$(dirname "${BASH_SOURCE[0]}")/pingpong.sh"
