// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For the headers of kernel/ in user space.
#pragma once

#define BIT(n) (1UL << (n))
#define BIT_ULL(n) (1ULL << (n))
