// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counts of elements become bytes.
#include "api/libfabric/endpoints/atomic_request.hpp"

#include <rdma/fi_errno.h>

namespace weft::fi {
namespace {

bool to_bytes(const fi_ioc* list, size_t count, size_t element,
              std::array<iovec, proto::iov_max>& out) noexcept {
  if (count > out.size()) return false;
  for (size_t i = 0; i < count; ++i) {
    if (list[i].count > SIZE_MAX / element) return false;
    out[i] = {list[i].addr, list[i].count * element};
  }
  return true;
}

}  // namespace

int AtomicRequest::build(const AtomicCall& call, const fi_rma_ioc* targets, size_t target_count,
                         fi_datatype datatype, fi_op op, uint64_t data, bool silent) noexcept {
  const size_t element = core::datatype_size(static_cast<uint32_t>(datatype));
  if (element == 0) return -FI_EOPNOTSUPP;
  if (target_count > proto::rma_iov_max) return -FI_EINVAL;
  if (!to_bytes(call.operand, call.operand_count, element, operand_) ||
      !to_bytes(call.compare, call.compare_count, element, compare_) ||
      !to_bytes(call.result, call.result_count, element, result_))
    return -FI_EINVAL;
  for (size_t i = 0; i < target_count; ++i) {
    if (targets[i].count > SIZE_MAX / element) return -FI_EINVAL;
    remote_[i] = {targets[i].addr, targets[i].count * element, targets[i].key};
  }
  request.kind = proto::OpKind::Atomic;
  request.iov = operand_.data();
  request.iov_count = op != FI_ATOMIC_READ ? call.operand_count : 0;
  request.targets = remote_.data();
  request.target_count = target_count;
  request.datatype = static_cast<uint32_t>(datatype);
  request.atomic_op = static_cast<uint32_t>(op);
  request.atomic_kind = call.kind;
  request.compare = compare_.data();
  request.compare_count = call.compare_count;
  request.result = result_.data();
  request.result_count = call.result_count;
  request.data = data;
  request.silent = silent;
  return 0;
}

}  // namespace weft::fi
