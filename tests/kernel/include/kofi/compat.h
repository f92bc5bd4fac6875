// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For the headers of kernel/ in user space: what they use of kernel/include/kofi/compat.h.
#pragma once

#include <asm/unaligned.h>
