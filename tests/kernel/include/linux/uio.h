// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For the headers of kernel/ in user space.
#pragma once

#include <stddef.h>

struct kvec {
  void* iov_base;
  size_t iov_len;
};
