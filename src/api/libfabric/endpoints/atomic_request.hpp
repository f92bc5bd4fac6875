// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The arguments of the fi_atomic(3) calls as a request of the engine. Must not know which engines exist.
#pragma once

#include <rdma/fi_atomic.h>

#include <array>

#include "core/atomic.hpp"
#include "proto/engine/endpoint_engine.hpp"

namespace weft::fi {

// The program's lists; addresses with counts of elements. Those that the kind of call does not have are empty.
struct AtomicCall {
  core::AtomicKind kind;
  const fi_ioc* operand;
  size_t operand_count;
  const fi_ioc* compare = nullptr;
  size_t compare_count = 0;
  const fi_ioc* result = nullptr;
  size_t result_count = 0;
};

// The same in bytes; `request` points into it.
class AtomicRequest {
 public:
  AtomicRequest() = default;
  AtomicRequest(const AtomicRequest&) = delete;
  AtomicRequest& operator=(const AtomicRequest&) = delete;

  // All of `request` but the destination, context, flags and what the endpoint adds. 0; -FI_EOPNOTSUPP: no such data type; -FI_EINVAL: a list is
  // too long.
  int build(const AtomicCall& call, const fi_rma_ioc* targets, size_t target_count, fi_datatype datatype,
            fi_op op, uint64_t data, bool silent) noexcept;

  proto::Request request;

 private:
  using Pieces = std::array<iovec, proto::iov_max>;
  Pieces operand_;
  Pieces compare_;
  Pieces result_;
  std::array<fi_rma_iov, proto::rma_iov_max> remote_;
};

}  // namespace weft::fi
