// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Operations: what the engine remembers between a call and its completion, and the bounded tables they live in.
// Must not know links.
#pragma once

#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/assert.hpp"
#include "base/list.hpp"
#include "core/counter.hpp"
#include "core/matching.hpp"
#include "core/memory_region.hpp"
#include "proto/engine/remote_access.hpp"
#include "wire/frame.hpp"

namespace weft::proto {

inline constexpr size_t iov_max = 4;      // per operation, local
inline constexpr size_t rma_iov_max = 4;  // per operation, remote

enum class OpKind : uint8_t {
  Idle,
  Receive,  // posted receive, or a rendezvous into one
  Send,     // message
  Write,    // RMA write
  Read,     // RMA read
  Atomic,
  Inbound,   // target of a large RMA write
  Outbound,  // target of an RMA read: streams to the initiator
  Control,   // a frame of ours that found no room
};

enum class OpStage : uint8_t {
  Idle,
  Posted,     // receive waits for a message
  Queued,     // waits for room, or for the operations before it
  Waiting,    // the other side acts next
  Streaming,  // we send segments
};

using QueueHook = NamedHook<struct QueueName>;
using InFlightHook = NamedHook<struct InFlightName>;

struct Op;
struct PeerState;
struct TxContext;
struct RxContext;

// What a receive of one buffer touches between its posting and its completion: two cache lines, so that a window of some hundred posted
// receives stays in the first-level cache.
struct HotOp : core::PostedBase {
  void* context = nullptr;
  size_t length = 0;  // bytes in all pieces
  OpKind kind = OpKind::Idle;
  OpStage stage = OpStage::Idle;
  uint8_t iov_count = 0;
  bool completes = false;  // wants an entry in the completion queue
  bool tagged = false;
  bool multi = false;      // multi-receive buffer
  bool exhausted = false;  // multi: out of its queue, children still run
  bool plain = false;  // tagged, one buffer, completes, of a context of one endpoint: nothing else to look at
  uint64_t flags = 0;  // FI_* of the call
  uint32_t index = 0;  // in its table
  uint32_t generation = 0;  // tells it from earlier users of the slot
  Op* parent = nullptr;     // multi-receive buffer it fills a part of; in the table: the next free one
  core::Counter* extra_counter = nullptr;  // deferred work: bumped on completion
  uint32_t children = 0;                   // parts of this multi-receive buffer that are being filled
  uint8_t frame_kind = 0;                  // Control
  uint8_t frame_flags = 0;
  uint8_t target_count = 0;
  uint8_t region_count = 0;
  std::array<iovec, iov_max> iov{};

  std::byte* buffer() const noexcept { return static_cast<std::byte*>(iov[0].iov_base); }  // the first piece
};

struct alignas(64) Op : HotOp, QueueHook, InFlightHook {
  // --- warm: rendezvous, RMA ---
  PeerState* peer = nullptr;
  TxContext* tx = nullptr;
  RxContext* rx = nullptr;
  uint64_t done = 0;                // bytes moved
  uint64_t total = 0;               // bytes to move
  uint64_t full_length = 0;         // of the message, when more than fits
  uint64_t data = 0;                // cq data
  uint64_t remote = 0;              // operation id of the other side
  uint64_t zero_copy_sequence = 0;  // of the link, behind the last segment that was sent by reference
  uint64_t copy_start = 0;          // link time; 0: how long it takes is not measured
  uint64_t meeting = 0;             // of the link, while both sides copy; 0: they do not
  CopyPath copy_path = CopyPath::Ring;
  bool acked = false;      // counted in PeerState::unacknowledged
  bool announced = false;  // by a ready-to-send frame: the peer may ask for segments, once
  bool windowed = false;   // and has said where the bytes belong, once
  bool has_data = false;
  bool unwatched = false;  // waits, and no completion of it brings the program back
  bool silent =
      false;           // fi_inject...: no completion, nor an error entry but with EngineLimits::inject_errors
  bool early = false;  // completes when the link has it (FI_INJECT_COMPLETE, fi_inject)
  uint8_t target_context = 0;  // receive context at the peer
  uint32_t datatype = 0;
  uint32_t atomic_op = 0;
  uint32_t atomic_kind = 0;
  uint8_t compare_count = 0;
  uint8_t result_count = 0;
  std::array<wire::RmaTarget, rma_iov_max> targets{};  // of a receive that both sides copy: the source
  std::array<iovec, iov_max> compare{};
  std::array<iovec, iov_max> result{};
  std::array<core::MemoryRegion*, rma_iov_max> regions{};
  std::vector<iovec> pieces;            // Inbound, Outbound: the registered memory
  std::unique_ptr<std::byte[]> bounce;  // a copy that we own (inject)

  // The local memory of the operation.
  const iovec* memory() const noexcept { return pieces.empty() ? iov.data() : pieces.data(); }
  size_t memory_count() const noexcept { return pieces.empty() ? iov_count : pieces.size(); }
};
static_assert(sizeof(core::PostedBase) + 2 * sizeof(void*) == 64);

// Which table an id on the wire belongs to.
enum class OpTableKind : uint8_t { Transmit = 1, Receive = 2, Service = 3 };

// A bounded table of operations, grown in chunks, never moved. Ids are unguessable enough to catch a peer's mistakes: index,
// generation and owner are all checked.
class OpTable {
 public:
  OpTable(OpTableKind kind, uint8_t context, size_t bound) noexcept
      : kind_(kind), context_(context), bound_(bound) {}

  // Null at the bound or out of memory.
  Op* acquire() noexcept {
    if (free_ == nullptr && !grow()) [[unlikely]]
      return nullptr;
    WEFT_ASSERT(free_ != nullptr && free_->kind == OpKind::Idle);
    Op* op = free_;
    free_ = op->parent;
    ++acquired_;
    return op;
  }
  // acquire() in two steps. Null: acquire() might still find one.
  Op* peek() const noexcept { return free_; }
  void take_peeked(Op& op) noexcept {
    WEFT_ASSERT(&op == free_ && op.kind == OpKind::Idle);
    free_ = op.parent;
    ++acquired_;
  }
  // acquire() beyond the bound, for what cannot be refused. Null: out of memory.
  Op* acquire_beyond() noexcept {
    if (free_ == nullptr && chunks_.size() * chunk_ops >= bound_) bound_ += chunk_ops;
    return acquire();
  }
  void release(Op& op) noexcept {
    WEFT_ASSERT(in_use() != 0 && op.children == 0);
    WEFT_ASSERT(!op.posted() && !List<Op, QueueHook>::linked(op) && !List<Op, InFlightHook>::linked(op));
    WEFT_ASSERT(&op != free_);
    op.kind = OpKind::Idle;
    op.stage = OpStage::Idle;
    ++op.generation;
    op.parent = free_;
    free_ = &op;
    ++released_;
  }
  size_t in_use() const noexcept { return acquired_ - released_; }
  uint64_t given() const noexcept { return released_; }  // so often, ever
  size_t bound() const noexcept { return bound_; }
  bool exhausted() const noexcept { return in_use() >= bound_; }

  uint64_t id(const Op& op) const noexcept {
    return uint64_t{static_cast<uint8_t>(kind_)} << 62 | uint64_t{context_} << 54 | uint64_t{op.index} << 32 |
           op.generation;
  }
  Op* find(uint64_t id) const noexcept {
    const size_t index = (id >> 32) & index_mask;
    if (index >= chunks_.size() * chunk_ops) return nullptr;
    Op& op = chunks_[index / chunk_ops][index % chunk_ops];
    WEFT_ASSERT(op.index == index || op.kind == OpKind::Idle);
    return op.kind != OpKind::Idle && op.generation == static_cast<uint32_t>(id) ? &op : nullptr;
  }
  static OpTableKind kind_of(uint64_t id) noexcept { return static_cast<OpTableKind>(id >> 62); }
  static size_t context_of(uint64_t id) noexcept { return (id >> 54) & 0xff; }

  template <class Fn>
  void for_each_busy(Fn&& fn) {
    for (auto& chunk : chunks_)
      for (size_t i = 0; i < chunk_ops; ++i)
        if (chunk[i].kind != OpKind::Idle) fn(chunk[i]);
  }

 private:
  static constexpr size_t chunk_ops = 64;
  static constexpr uint64_t index_mask = (uint64_t{1} << 22) - 1;

  bool grow() noexcept;

  Op* free_ = nullptr;
  uint64_t acquired_ = 0;
  uint64_t released_ = 0;
  OpTableKind kind_;
  uint8_t context_;
  size_t bound_;
  std::vector<std::unique_ptr<Op[]>> chunks_;
};

// A message that the link has, and whose completion waits until all of it is complete there (HasSendCompletion). One cache line.
struct PendingSend : FifoHook {
  uint64_t sequence = 0;  // the link's, behind it
  void* context = nullptr;
  uint64_t tag = 0;
  uint64_t length = 0;
  TxContext* tx = nullptr;
  core::Counter* extra_counter = nullptr;
  bool completes = false;
  bool tagged = false;
  bool rendezvous = false;  // the operation goes on until Done: `tag` is its number, the rest is with it
  bool silent = false;      // as in Op
};
static_assert(sizeof(PendingSend) == 64);

// A bounded pool of them.
class PendingSendPool {
 public:
  explicit PendingSendPool(size_t bound) noexcept : bound_(bound) {}
  bool exhausted() const noexcept { return in_use_ >= bound_; }
  // Null at the bound or out of memory.
  PendingSend* acquire() noexcept { return exhausted() ? nullptr : acquire_beyond(); }
  // For what has been accepted already: at most as many as there are operations. Null: out of memory.
  PendingSend* acquire_beyond() noexcept {
    if (free_.empty() && !grow()) [[unlikely]]
      return nullptr;
    ++in_use_;
    return free_.pop_front();
  }
  void release(PendingSend& record) noexcept {
    WEFT_ASSERT(in_use_ != 0);
    free_.push_front(record);
    --in_use_;
  }
  size_t in_use() const noexcept { return in_use_; }

 private:
  static constexpr size_t chunk_records = 64;
  bool grow() noexcept;

  Fifo<PendingSend> free_;
  size_t in_use_ = 0;
  size_t bound_;
  std::vector<std::unique_ptr<PendingSend[]>> chunks_;
};

// Copies between a contiguous buffer and a list of pieces, starting at byte `offset` of the list; stops at the list's end.
// Returns the bytes copied.
size_t scatter(const iovec* to, size_t count, size_t offset, const std::byte* from, size_t bytes) noexcept;
size_t gather(std::byte* to, const iovec* from, size_t count, size_t offset, size_t bytes) noexcept;
// The pieces of [offset, offset + bytes) of a list; returns how many were written (at most `room`).
size_t slice(const iovec* list, size_t count, size_t offset, size_t bytes, iovec* out, size_t room) noexcept;
size_t total_bytes(const iovec* list, size_t count) noexcept;

}  // namespace weft::proto
