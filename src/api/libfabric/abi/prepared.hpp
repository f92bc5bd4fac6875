// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tables of calls for programs of later generations. The standard inline calls of libfabric 2.7 read entries behind some tables of 2.6 without
// looking at `size`: there is something to read, and it refuses.
#pragma once

#include <rdma/fi_errno.h>

#include <cstddef>

namespace weft::fi::layout {

template <class Ops, size_t entries>
struct Prepared : Ops {
  using Entry = int (*)();
  static int not_there() noexcept { return -FI_ENOSYS; }
  struct Later {
    Entry entry = not_there;
  };
  Later later[entries] = {};
};

}  // namespace weft::fi::layout
