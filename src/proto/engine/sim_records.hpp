// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the model of the property test remembers: operations that were sent, receives that were posted, and the program's buffers. Must not
// know how the engine works inside.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/atomic.hpp"
#include "proto/engine/op.hpp"

namespace weft::proto::sim {

using Bytes = std::vector<std::byte>;

inline constexpr std::byte spoilt{0xee};

// A buffer in several pieces, each an allocation of its own: one byte too many is seen.
class Pieces {
 public:
  Pieces() = default;
  Pieces(size_t bytes, size_t count, std::byte fill) {
    for (size_t i = 0; i < count; ++i) {
      const size_t n = i + 1 == count ? bytes : bytes / (count - i + i % 2);
      bytes -= n;
      parts_.push_back(std::make_unique<std::byte[]>(n));
      std::fill_n(parts_.back().get(), n, fill);
      iov_.push_back({parts_.back().get(), n});
    }
  }
  Pieces(const Bytes& bytes, size_t count) : Pieces(bytes.size(), count, {}) {
    (void)scatter(iov_.data(), iov_.size(), 0, bytes.data(), bytes.size());
  }
  const iovec* iov() const { return iov_.data(); }
  size_t count() const { return iov_.size(); }
  std::byte* base() const { return iov_.empty() ? nullptr : static_cast<std::byte*>(iov_[0].iov_base); }
  size_t size() const { return total_bytes(iov_.data(), iov_.size()); }
  Bytes get() const {
    Bytes out(size());
    (void)gather(out.data(), iov_.data(), iov_.size(), 0, out.size());
    return out;
  }
  void spoil() const {
    for (const iovec& part : iov_) std::fill_n(static_cast<std::byte*>(part.iov_base), part.iov_len, spoilt);
  }
  bool is_spoilt() const {
    const Bytes all = get();
    return std::all_of(all.begin(), all.end(), [](std::byte byte) { return byte == spoilt; });
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> parts_;
  std::vector<iovec> iov_;
};

struct Posted;

// An operation that an engine accepted for transmission.
struct Sent {
  OpKind kind = OpKind::Send;
  size_t serial = 0;
  int from = 0, to = 0;
  uint8_t context = 0;  // receive context at the target
  bool tagged = false, acked = false, fence = false, silent = false;
  uint64_t tag = 0, data = 0, flags = 0;
  Bytes bytes;    // of the message, or what is written
  Pieces memory;  // the program's until completion: source, or destination of a read
  bool completed = false, cancelled = false, failed_to_send = false;
  bool returned = false;  // its context was closed before it was done: nobody may touch its buffers
  // Messages.
  bool arrived = false, whole = false, discarded = false;
  size_t fragmented_left = 0;
  Posted* receive = nullptr;
  size_t offset = 0, room = 0;  // in the receive
  bool received = false;   // the receive's completion for it was read, or it was taken to be read in place
  bool taken = false;      // in place
  bool abandoned = false;  // a reserved buffer that was not sent
  // RMA and atomics.
  std::vector<fi_rma_iov> targets;
  size_t slot = 0;
  int refused = 0;  // the error that the target must answer with
  uint32_t atomic_op = 0;
  core::AtomicKind atomic_kind = core::AtomicKind::Write;
  std::vector<uint64_t> operand, compare;
  size_t cell = 0;
  Pieces result, compare_memory;
};

// A receive that a program posted, or a peek.
struct Posted {
  fi_context handle{};
  bool peek = false, tagged = false, multi = false;
  uint64_t tag = 0, ignore = 0, source = FI_ADDR_UNSPEC;
  Pieces memory;
  Sent* peeked = nullptr;
  std::vector<Sent*> parts;  // one, unless multi
  size_t used = 0;           // multi
  bool posted = false, cancelled = false, ended = false;
  size_t node = 0, side = 0;
};

// A message that the program reads in place.
struct Taken {
  uint64_t handle = 0;
  const std::byte* data = nullptr;
  const Sent* message = nullptr;

  bool is_intact() const { return std::equal(message->bytes.begin(), message->bytes.end(), data); }
};

// A reserved buffer that the program writes.
struct Reserved {
  uint64_t handle = 0;
  std::byte* at = nullptr;
  Sent* message = nullptr;
};

inline constexpr std::byte untouched{0xcc};
inline constexpr size_t slot_bytes = 8192, slot_count = 8, cells_per_engine = 4, engines_max = 3,
                        contexts_max = 2;
inline constexpr size_t memory_bytes = slot_bytes * slot_count + engines_max * cells_per_engine * 8;
inline constexpr uint64_t open_key = 5, read_only_key = 6;

}  // namespace weft::proto::sim
