// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The operations of fi_atomic(3) on local memory: every datatype and operation, base, fetch and compare.
// Must not know regions, frames or peers: whoever calls has checked that the target memory may be touched.
//
// Datatypes and operations are taken as plain integers, because they come from peers and from programs
// unchecked; fi_datatype and fi_op convert by themselves.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <cstddef>
#include <cstdint>

namespace weft::core {

// The three families of fi_atomic(3): fi_atomic, fi_fetch_atomic, fi_compare_atomic.
enum class AtomicKind : uint8_t { Write, Fetch, Compare };

// Size of one element in bytes, FI_INT128 and FI_UINT128 included. 0 when unknown, and for FI_VOID.
size_t datatype_size(uint32_t datatype) noexcept;

// Whether atomic_apply() does it. What fi_atomic(3) leaves open is decided as C would: complex numbers have
// no order (no FI_MIN, FI_MAX, FI_CSWAP_LE ...) but a truth value (FI_LOR, FI_LAND, FI_LXOR); bits exist only
// in integers (FI_BOR ... FI_MSWAP).
bool atomic_supported(uint32_t datatype, uint32_t op, AtomicKind kind) noexcept;

// Applies `op` to `count` elements at `target`, one after the other.
//   operand  `count` elements; may be null for FI_ATOMIC_READ
//   compare  `count` elements for AtomicKind::Compare, else ignored
//   result   room for `count` old values for Fetch and Compare, null when not wanted; ignored for Write
// No buffer needs alignment. Operand, compare and result do not overlap the target. The caller has checked
// that `count` elements lie within each of them.
//
// Atomicity, per element: a target whose address is a multiple of its size, of 1, 2, 4 or 8 bytes, is updated
// by real atomic instructions, acquire and release, so threads and processes that map the same memory may do
// the same at once. Other targets (16 and 32 bytes, or not aligned) are updated plainly: all their updates
// must come from one thread at a time.
//
// Integers wrap. Floating-point comparisons are by value, as in the pseudo-code of fi_atomic(3): a NaN is
// never stored by FI_MIN or FI_MAX and equals nothing in FI_CSWAP.
//
// Returns 0; -FI_EOPNOTSUPP when !atomic_supported(); -FI_EINVAL when a needed buffer is null. Touches
// nothing then.
int atomic_apply(uint32_t datatype, uint32_t op, AtomicKind kind, void* target, const void* operand,
                 const void* compare, void* result, size_t count) noexcept;

}  // namespace weft::core
