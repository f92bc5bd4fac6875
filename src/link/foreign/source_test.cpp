// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queues of other providers, whose entries may be longer than those of the headers here.
#include "link/foreign/source.hpp"

#include <gtest/gtest.h>
#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstring>

namespace weft::link::foreign {
namespace {

// A provider of API 1.20 or later: fi_cq(3), src_addr.
constexpr size_t entry_bytes = 88;

ssize_t has_error(fid_cq*, void*, size_t) { return -FI_EAVAIL; }

ssize_t long_error(fid_cq* cq, fi_cq_err_entry* entry, uint64_t) {
  std::memset(static_cast<void*>(entry), 0x5a, entry_bytes);
  entry->op_context = cq;
  entry->err = FI_ECANCELED;
  return 1;
}

// The address sanitizer tells what lies behind too short an entry.
TEST(ReadCompletions, HasRoomForErrorsOfNewerProviders) {
  fi_ops_cq ops{};
  ops.size = sizeof ops;
  ops.read = has_error;
  ops.readerr = long_error;
  fid_cq cq{};
  cq.ops = &ops;
  int errors = 0;
  read_completions(
      &cq, 1, [](const fi_cq_msg_entry&) { FAIL() << "no completion was read"; },
      [&](const fi_cq_err_entry& entry) {
        EXPECT_EQ(entry.err, FI_ECANCELED);
        ++errors;
      });
  EXPECT_EQ(errors, 1);
  static_assert(sizeof(ErrorEntry) >= entry_bytes);
}

}  // namespace
}  // namespace weft::link::foreign
