// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For the headers of kernel/ in user space: the kernel's names of integers.
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16, __le16;
typedef uint32_t u32, __le32;
typedef uint64_t u64, __le64;
