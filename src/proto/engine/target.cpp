// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "proto/engine/target.hpp"

#include <algorithm>
#include <array>
#include <new>

#include "base/assert.hpp"
#include "proto/engine/engine_core.hpp"

namespace weft::proto {

// --- regions that peers reach by themselves ---

struct RmaResponder::Exposure final : core::RegionObserver {
  Exposure(AnyLink& to, bool reads, bool writes) noexcept
      : link(to), count_reads(reads), count_writes(writes) {}
  void reachable(const core::MemoryRegion& region) noexcept override {
    if (region.iov_count() != 1) return;
    const auto rights = core::rights_of(region.access());
    const ExposedRegion exposed{
        region.key(),
        region.base(),
        region.length(),
        reinterpret_cast<uint64_t>(region.iov()->iov_base),
        rights.remote_read && !count_reads && region.remote_read_counter() == nullptr,
        rights.remote_write && !count_writes && region.remote_write_counter() == nullptr};
    if (!exposed.readable && !exposed.writable) return;
    link.expose(exposed);
  }
  int unreachable(const core::MemoryRegion& region) noexcept override { return link.conceal(region.key()); }
  int all_unreachable() noexcept override { return link.conceal_all(); }
  AnyLink& link;
  const bool count_reads, count_writes;
};

int RmaResponder::serve_regions(bool count_reads, bool count_writes) noexcept {
  if (regions_ == nullptr || exposure_ != nullptr) return 0;
  if (!engine_.any_link_.reaches_memory()) return 0;
  try {
    exposure_ = std::make_unique<Exposure>(engine_.any_link_, count_reads, count_writes);
    regions_->attach(*exposure_);
  } catch (const std::bad_alloc&) {
    exposure_.reset();
    return -FI_ENOMEM;
  }
  return 0;
}

int RmaResponder::stop_serving(bool closing) noexcept {
  if (const int writing = closing ? engine_.any_link_.pause_meetings() : 0; writing != 0) return writing;
  if (exposure_ == nullptr) return 0;
  if (const int status = regions_->detach(*exposure_); status != 0) return status;
  exposure_.reset();
  return 0;
}

// --- RMA and atomics ---

struct RmaResponder::Access {
  std::array<core::MemoryRegion*, rma_iov_max> regions{};
  size_t region_count = 0;
  std::array<iovec, rma_iov_max * core::MemoryRegion::iov_max> pieces{};
  size_t piece_count = 0;
  uint64_t bytes = 0;
};

// Checks and pins what the peer named. 0, or a positive FI_E* for it. -1: the frame is malformed.
int RmaResponder::open_access(const std::byte*& at, size_t& left, uint32_t targets, uint64_t access,
                              Access& out) noexcept {
  if (targets == 0 || targets > rma_iov_max) return -1;
  int status = regions_ != nullptr ? 0 : FI_EKEYREJECTED;
  for (uint32_t i = 0; i < targets; ++i) {
    wire::RmaTarget target;
    if (!wire::consume(at, left, target)) {
      close_access(out);
      return -1;
    }
    if (status != 0) continue;
    core::MemoryRegion* region = nullptr;
    status = -regions_->acquire(target.key, target.address, target.length, access, region);
    if (status != 0) continue;
    out.regions[out.region_count++] = region;
    size_t room = out.pieces.size() - out.piece_count;
    (void)region->translate(target.address, target.length, out.pieces.data() + out.piece_count, room);
    out.piece_count += room;
    WEFT_ASSERT(out.piece_count <= out.pieces.size() && out.region_count <= rma_iov_max);
    if (__builtin_add_overflow(out.bytes, target.length, &out.bytes)) status = FI_EINVAL;
  }
  if (status != 0) close_access(out);
  return status;
}

void RmaResponder::close_access(Access& access) noexcept {
  for (size_t i = 0; i < access.region_count; ++i) regions_->release(*access.regions[i]);
  access.region_count = 0;
}

// The operation has the regions until it ends. False: no memory, and nothing has happened.
bool RmaResponder::save_access(Op& op, const Access& access) noexcept try {
  WEFT_ASSERT(op.region_count == 0);
  op.pieces.assign(access.pieces.begin(),
                   access.pieces.begin() + static_cast<std::ptrdiff_t>(access.piece_count));
  op.region_count = static_cast<uint8_t>(access.region_count);
  std::copy_n(access.regions.begin(), access.region_count, op.regions.begin());
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// What the target program sees of an access: counters, and an entry when data came along (fi_rma(3), FI_REMOTE_CQ_DATA).
void RmaResponder::note_remote(const Access& access, const PeerState& peer, RxContext* rx, bool write,
                               const wire::FrameHead& head, uint64_t bytes) noexcept {
  for (size_t i = 0; i < access.region_count; ++i) {
    core::Counter* counter =
        write ? access.regions[i]->remote_write_counter() : access.regions[i]->remote_read_counter();
    if (counter != nullptr) counter->add(1);
  }
  if (rx == nullptr) return;
  const RxSink& to = rx->sink(&peer);
  if (core::Counter* counter = write ? to.remote_writes : to.remote_reads; counter != nullptr)
    counter->add(1);
  if ((head.flags & wire::has_data) != 0 && to.cq != nullptr) {
    void* where = access.piece_count > 0 ? access.pieces[0].iov_base : nullptr;
    to.cq->push(
        {nullptr, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, bytes, where, head.b, 0, FI_ADDR_NOTAVAIL});
  }
}

void RmaResponder::on_write(PeerState& peer, const wire::FrameHead& head, const std::byte* payload,
                            bool rendezvous) noexcept {
  size_t left = head.length;
  wire::RmaPrefix rma;
  Access access;
  if (!wire::consume(payload, left, rma)) return engine_.malformed(peer);
  const int status = open_access(payload, left, rma.targets, FI_REMOTE_WRITE, access);
  if (status < 0) return engine_.malformed(peer);
  if (status > 0) return engine_.acknowledge(peer, head.a, status);
  RxContext* rx = engine_.context_for(head);
  if (!rendezvous) {
    const bool sound = left == rma.total && access.bytes == rma.total;
    if (sound) {
      (void)scatter(access.pieces.data(), access.piece_count, 0, payload, left);
      note_remote(access, peer, rx, true, head, left);
    }
    close_access(access);
    if (!sound) return engine_.malformed(peer);
    return engine_.acknowledge(peer, head.a, 0);
  }
  wire::RtsPrefix rts;
  std::array<wire::SourceSegment, iov_max> segments{};
  if (!engine_.parse_rts(payload, left, rts, segments.data()) || rts.total != access.bytes ||
      rts.total != rma.total) {
    close_access(access);
    return engine_.malformed(peer);
  }
  Op* op = engine_.acquire_service(peer);
  if (op != nullptr && !save_access(*op, access)) {
    engine_.release_service(*op);
    op = nullptr;
  }
  if (op == nullptr) {
    close_access(access);
    return engine_.acknowledge(peer, head.a, FI_ENOMEM);
  }
  op->kind = OpKind::Inbound;
  op->stage = OpStage::Waiting;
  op->rx = rx;
  op->remote = head.a;
  op->total = rts.total;
  op->length = rts.total;
  op->done = 0;
  op->has_data = (head.flags & wire::has_data) != 0;
  op->data = head.b;
  op->flags = 0;
  peer.in_flight.push_back(*op);
  engine_.copy_.begin(*op, rts.stamp, segments.data(), rts.segments);
}

void RmaResponder::finish(Op& op, int status) noexcept {
  PeerState& peer = *op.peer;
  const uint64_t remote = op.remote;
  const bool inbound = op.kind == OpKind::Inbound;
  Access access;
  access.region_count = op.region_count;
  std::copy_n(op.regions.begin(), op.region_count, access.regions.begin());
  if (status == 0) {
    access.piece_count = op.pieces.empty() ? 0 : 1;
    if (!op.pieces.empty()) access.pieces[0] = op.pieces[0];
    const wire::FrameHead head{
        wire::FrameKind::WriteRts, static_cast<uint8_t>(op.has_data ? wire::has_data : 0), 0, 0, 0, op.data};
    note_remote(access, peer, op.rx, inbound, head, op.total);
  }
  close_access(access);
  op.region_count = 0;
  op.pieces.clear();
  op.bounce.reset();
  List<Op, InFlightHook>::remove(op);
  engine_.release_service(op);
  if (inbound && status == 0) engine_.acknowledge(peer, remote, 0);
}

void RmaResponder::on_read(PeerState& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
  size_t left = head.length;
  wire::RmaPrefix rma;
  Access access;
  if (!wire::consume(payload, left, rma)) return engine_.malformed(peer);
  const int status = open_access(payload, left, rma.targets, FI_REMOTE_READ, access);
  if (status < 0) return engine_.malformed(peer);
  if (status > 0) return engine_.acknowledge(peer, head.a, status);
  Op* op = access.bytes == rma.total ? engine_.acquire_service(peer) : nullptr;
  if (op != nullptr && !save_access(*op, access)) {
    engine_.release_service(*op);
    op = nullptr;
  }
  if (op == nullptr) {
    close_access(access);
    return engine_.acknowledge(peer, head.a, access.bytes == rma.total ? FI_ENOMEM : FI_EINVAL);
  }
  op->kind = OpKind::Outbound;
  op->stage = OpStage::Streaming;
  op->rx = engine_.context_for(head);
  op->remote = head.a;
  op->total = rma.total;
  op->length = rma.total;
  op->done = 0;
  op->has_data = false;
  op->flags = 0;
  peer.in_flight.push_back(*op);
  if (op->total == 0) {
    engine_.finish_inbound(*op, 0, core::ProviderError::None);
    return engine_.acknowledge(peer, head.a, 0);
  }
  if ((peer.gate & PeerState::gate_queued) == 0 && engine_.stream(*op))
    return engine_.finish_inbound(*op, 0, core::ProviderError::None);
  if (op->total <= engine_.any_link_.limits(peer).eager_bytes_max) {
    // A later write must not change what this read returns (FI_ORDER_WAR up to this size): keep the bytes of now.
    op->bounce.reset(new (std::nothrow) std::byte[op->total]);
    if (op->bounce) {
      (void)gather(op->bounce.get(), op->pieces.data(), op->pieces.size(), 0, op->total);
      op->pieces.assign(1, iovec{op->bounce.get(), op->total});
    }
  }
  engine_.streams_.push_back(*op);
  ++engine_.busy_;
}

void RmaResponder::on_atomic(PeerState& peer, const wire::FrameHead& head,
                             const std::byte* payload) noexcept {
  size_t left = head.length;
  wire::AtomicPrefix atomic;
  Access access;
  if (!wire::consume(payload, left, atomic) || atomic.kind > static_cast<uint32_t>(core::AtomicKind::Compare))
    return engine_.malformed(peer);
  const auto kind = static_cast<core::AtomicKind>(atomic.kind);
  const bool reads_only = atomic.op == FI_ATOMIC_READ;
  uint64_t rights = reads_only ? 0 : FI_REMOTE_WRITE;
  if (kind != core::AtomicKind::Write) rights |= FI_REMOTE_READ;
  const int status = open_access(payload, left, atomic.targets, rights, access);
  if (status < 0) return engine_.malformed(peer);
  if (status > 0) return engine_.acknowledge(peer, head.a, status);
  const size_t element = core::datatype_size(atomic.datatype);
  const size_t bytes = access.bytes;
  const size_t operand_bytes = reads_only ? 0 : bytes;
  const size_t compare_bytes = kind == core::AtomicKind::Compare ? bytes : 0;
  bool sound = bytes == atomic.bytes && bytes <= atomic_bytes_max && left == operand_bytes + compare_bytes &&
               element != 0;
  for (size_t i = 0; sound && i < access.piece_count; ++i) sound = access.pieces[i].iov_len % element == 0;
  if (!sound || !core::atomic_supported(atomic.datatype, atomic.op, kind)) {
    close_access(access);
    return engine_.acknowledge(peer, head.a, sound ? FI_EOPNOTSUPP : FI_EINVAL);
  }
  std::array<std::byte, atomic_bytes_max> result;
  size_t done = 0;
  for (size_t i = 0; i < access.piece_count; ++i) {
    const std::byte* operand = reads_only ? nullptr : payload + done;
    const std::byte* compare = compare_bytes != 0 ? payload + operand_bytes + done : nullptr;
    (void)core::atomic_apply(atomic.datatype, atomic.op, kind, access.pieces[i].iov_base, operand, compare,
                             result.data() + done, access.pieces[i].iov_len / element);
    done += access.pieces[i].iov_len;
    WEFT_ASSERT(done <= bytes);
  }
  note_remote(access, peer, engine_.context_for(head), !reads_only, head, bytes);
  close_access(access);
  if (kind == core::AtomicKind::Write) return engine_.acknowledge(peer, head.a, 0);
  engine_.send_control(peer, wire::FrameKind::Reply, 0, head.a, 0, std::span(result.data(), done));
}

}  // namespace weft::proto
