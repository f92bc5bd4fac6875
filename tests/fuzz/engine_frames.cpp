// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A hostile peer talks to an engine: the input is a sequence of its frames, mixed with honest local operations. The engine must neither
// touch memory that is not its own (program buffers are freed as soon as the program has them back) nor come to a stop.
//
// Frames may carry operation ids that the engine has really sent, so that replies get past the first check.
#include <fuzzer/FuzzedDataProvider.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_tagged.h>

#include <map>
#include <memory>
#include <vector>

#include "core/memory_region.hpp"
#include "proto/engine/engine.hpp"
#include "proto/engine/sim_link.hpp"

namespace {

using namespace weft;
using namespace weft::proto;

// Reading the peer's memory: in this process the peer's addresses mean nothing.
class HostileLink : public sim::RichLink {
 public:
  static bool reads;
  int read(sim::PeerBase&, const iovec* local, size_t count, const wire::SourceSegment*, size_t,
           size_t bytes) noexcept {
    if (!reads) return -EFAULT;
    for (size_t i = 0; i < count && bytes > 0; ++i) {
      const size_t n = std::min(local[i].iov_len, bytes);
      std::memset(local[i].iov_base, 'r', n);
      bytes -= n;
    }
    return 0;
  }
  CopyState copy(sim::PeerBase& peer, uint64_t name, const iovec* local, size_t count,
                 const wire::SourceSegment* remote, size_t remote_count, uint64_t bytes, bool) noexcept {
    end_meeting(peer, name);
    return read(peer, local, count, remote, remote_count, bytes) == 0 ? CopyState::Done : CopyState::Failed;
  }
  // Copies nothing: the receiver does it alone.
  Assistance assist(sim::PeerBase& peer, uint64_t name, uint64_t, const wire::SourceSegment*, size_t,
                    const iovec*, size_t, uint32_t&) noexcept {
    end_meeting(peer, name);
    return Assistance::Ended;
  }
};
bool HostileLink::reads = true;
static_assert(Link<HostileLink> && HasRemoteMemory<HostileLink>);

constexpr int us = 0;
constexpr int them = 1;
constexpr size_t region_bytes = 5000;

class Session {
 public:
  Session(const uint8_t* data, size_t size)
      : in_(data, size), net_(1), tx_cq_(64), rx_cq_(64), regions_({false, false, false}, nullptr) {
    EngineLimits limits;
    limits.transmit_size = 16;
    limits.receive_size = 16;
    limits.unexpected_bytes = 4096;
    engine_ = std::make_unique<Engine<HostileLink>>(limits);
    rx_ = std::make_unique<RxContext>(uint8_t{0}, limits.receive_size, 1);
    other_rx_ = std::make_unique<RxContext>(uint8_t{1}, limits.receive_size, 2);
    net_.dead.resize(2, false);
    net_.frames_max = 4;
    engine_->link().join(net_, us);
    (void)engine_->open("");
    engine_->set_address_vector(&av_);
    engine_->set_regions(&regions_);
    engine_->add_queue(&tx_cq_);
    engine_->add_queue(&rx_cq_);
    tx_.cq = &tx_cq_;
    tx_.apply_bindings();
    for (RxContext* context : {rx_.get(), other_rx_.get()}) {
      context->cq = &rx_cq_;
      context->unexpected_bytes_max = limits.unexpected_bytes;
      context->apply_bindings();
    }
    engine_->set_receive_context(0, rx_.get());
    engine_->set_receive_context(2, other_rx_.get());
    const auto address = sim::address_of(them);
    av_.insert(core::Address(address.data(), address.size()));
    core::RegionRequest request;
    const iovec parts[] = {{memory_.get(), region_bytes / 2},
                           {memory_.get() + region_bytes / 2, region_bytes - region_bytes / 2}};
    request.iov = parts;
    request.iov_count = 2;
    request.access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    request.requested_key = 5;
    (void)regions_.add(request);
  }
  ~Session() { engine_.reset(); }

  void run() {
    while (in_.remaining_bytes() > 0) {
      switch (in_.ConsumeIntegralInRange<int>(0, 15)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
        case 5:
          frame();
          break;
        case 6:
        case 7:
          send();
          break;
        case 8:
        case 9:
          receive();
          break;
        case 10:
          remote();
          break;
        case 11:
          net_.wires[{us, them}].clear();
          break;
        case 12:
          HostileLink::reads = in_.ConsumeBool();
          net_.parting = in_.ConsumeBool() ? 60 : 0;
          break;
        case 13:
          read_queues();
          break;
        case 14:
          cancel_or_peek();
          break;
        default:
          engine_->progress();
      }
      learn();
    }
    engine_->progress();
    read_queues();
  }

 private:
  uint64_t id() {
    if (ids_.empty() || in_.ConsumeIntegralInRange<int>(0, 7) == 0) return in_.ConsumeIntegral<uint64_t>();
    return ids_[in_.ConsumeIntegralInRange<size_t>(0, ids_.size() - 1)];
  }
  uint64_t amount() {
    switch (in_.ConsumeIntegralInRange<int>(0, 3)) {
      case 0:
        return in_.ConsumeIntegralInRange<uint64_t>(0, 64);
      case 1:
        return in_.ConsumeIntegralInRange<uint64_t>(0, 2000);
      case 2:
        return in_.ConsumeIntegralInRange<uint64_t>(0, 2 * region_bytes);
      default:
        return in_.ConsumeIntegral<uint64_t>();
    }
  }
  template <class T>
  static void append(std::vector<std::byte>& to, const T& what) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&what);
    to.insert(to.end(), bytes, bytes + sizeof(what));
  }
  void append_rts(std::vector<std::byte>& to) {
    const wire::RtsPrefix rts{id(), amount(), in_.ConsumeIntegral<uint8_t>(),
                              in_.ConsumeIntegralInRange<uint32_t>(0, 6), 0};
    append(to, rts);
    for (uint32_t i = 0; i < rts.segments; ++i) append(to, wire::SourceSegment{amount(), amount()});
  }
  void append_targets(std::vector<std::byte>& to, uint32_t count) {
    for (uint32_t i = 0; i < count && i < 8; ++i)
      append(to, wire::RmaTarget{amount(), amount(), in_.ConsumeBool() ? 5 : amount()});
  }

  // One frame of the peer, mostly of the right shape for its kind.
  void frame() {
    using enum wire::FrameKind;
    sim::Frame out;
    out.head.kind = static_cast<wire::FrameKind>(in_.ConsumeIntegralInRange<uint8_t>(0, 22));
    out.head.flags = in_.ConsumeIntegral<uint8_t>();
    out.head.context = in_.ConsumeIntegralInRange<uint8_t>(0, 3);
    out.head.a = in_.ConsumeBool() ? id() : in_.ConsumeIntegralInRange<uint64_t>(0, 3);
    out.head.b = in_.ConsumeBool() ? amount() : in_.ConsumeIntegralInRange<uint64_t>(0, 3);
    switch (out.head.kind) {
      case TaggedAck:
      case MsgAck:
        append(out.payload, wire::AckPrefix{id()});
        break;
      case TaggedRts:
      case MsgRts:
        append_rts(out.payload);
        break;
      case Cts:
        append(out.payload, wire::CtsPrefix{id(), amount()});
        break;
      case TaggedFirst:
      case MsgFirst:
        append(out.payload, wire::FirstPrefix{amount()});
        break;
      case Write:
      case WriteRts:
      case Read: {
        const wire::RmaPrefix rma{amount(), in_.ConsumeIntegralInRange<uint32_t>(0, 6), 0};
        append(out.payload, rma);
        append_targets(out.payload, rma.targets);
        if (out.head.kind == WriteRts) append_rts(out.payload);
        break;
      }
      case Atomic: {
        const wire::AtomicPrefix atomic{
            in_.ConsumeIntegralInRange<uint32_t>(0, 24), in_.ConsumeIntegralInRange<uint32_t>(0, 24),
            in_.ConsumeIntegralInRange<uint32_t>(0, 4), in_.ConsumeIntegralInRange<uint32_t>(0, 6), amount()};
        append(out.payload, atomic);
        append_targets(out.payload, atomic.targets);
        break;
      }
      default:
        break;
    }
    const size_t rest = static_cast<size_t>(amount() % (HostileLink::frame_bytes_max - 512));
    out.payload.resize(out.payload.size() + rest, std::byte{'h'});
    if (in_.ConsumeIntegralInRange<int>(0, 15) == 0 && !out.payload.empty())
      out.payload.resize(in_.ConsumeIntegralInRange<size_t>(0, out.payload.size()));
    out.payload.shrink_to_fit();
    out.head.length = static_cast<uint32_t>(out.payload.size());
    net_.wires[{them, us}].push_back(std::move(out));
    engine_->progress();
  }

  // --- the honest program ---
  std::byte* buffer(fi_context* context, size_t bytes) {
    auto& place = buffers_[context];
    place.push_back(std::make_unique<std::byte[]>(bytes));
    std::memset(place.back().get(), 'p', bytes);
    return place.back().get();
  }
  fi_context* handle() {
    handles_.push_back(std::make_unique<fi_context>());
    return handles_.back().get();
  }
  void send() {
    fi_context* context = handle();
    const size_t bytes = in_.ConsumeIntegralInRange<size_t>(0, 4000);
    const iovec part{buffer(context, bytes), bytes};
    Request request;
    request.tagged = in_.ConsumeBool();
    request.iov = &part;
    request.iov_count = 1;
    request.dest = 0;
    request.tag = in_.ConsumeIntegralInRange<uint64_t>(0, 3);
    request.context = context;
    request.flags = in_.ConsumeBool() ? FI_DELIVERY_COMPLETE : 0;
    if (in_.ConsumeIntegralInRange<int>(0, 3) == 0 && bytes <= 4096) request.flags |= FI_INJECT;
    const ssize_t status = engine_->post(tx_, request);
    if (status != 0 || (request.flags & FI_INJECT) != 0) buffers_.erase(context);  // ours again
  }
  void receive() {
    fi_context* context = handle();
    const size_t bytes = in_.ConsumeIntegralInRange<size_t>(0, 4000);
    const iovec part{buffer(context, bytes), bytes};
    ReceiveRequest request;
    request.iov = &part;
    request.iov_count = 1;
    request.tagged = in_.ConsumeBool();
    request.tag = in_.ConsumeIntegralInRange<uint64_t>(0, 3);
    request.ignore = in_.ConsumeBool() ? ~uint64_t{0} : 0;
    request.context = context;
    request.flags = !request.tagged && in_.ConsumeBool() ? FI_MULTI_RECV : 0;
    if ((request.flags & FI_MULTI_RECV) != 0) multi_.push_back(context);
    if (some_rx().receive(request) != 0) buffers_.erase(context);
  }
  RxContext& some_rx() { return in_.ConsumeIntegralInRange<int>(0, 3) == 0 ? *other_rx_ : *rx_; }
  void remote() {
    fi_context* context = handle();
    const size_t bytes = in_.ConsumeIntegralInRange<size_t>(0, 3000) & ~size_t{7};
    const iovec part{buffer(context, bytes), bytes};
    const iovec result{buffer(context, bytes), bytes};
    const fi_rma_iov target{0, bytes, 9};
    Request request;
    request.kind = static_cast<OpKind>(
        in_.ConsumeIntegralInRange<int>(static_cast<int>(OpKind::Write), static_cast<int>(OpKind::Atomic)));
    request.iov = &part;
    request.iov_count = 1;
    request.dest = 0;
    request.context = context;
    request.targets = &target;
    request.target_count = 1;
    request.datatype = FI_UINT64;
    request.atomic_op = FI_SUM;
    request.atomic_kind = in_.ConsumeBool() ? core::AtomicKind::Fetch : core::AtomicKind::Write;
    request.result = &result;
    request.result_count = request.atomic_kind == core::AtomicKind::Fetch ? 1 : 0;
    request.flags = in_.ConsumeIntegralInRange<int>(0, 7) == 0 ? FI_FENCE : 0;
    if (engine_->post(tx_, request) != 0) buffers_.erase(context);
  }
  void cancel_or_peek() {
    if (handles_.empty()) return;
    fi_context* context = handles_[in_.ConsumeIntegralInRange<size_t>(0, handles_.size() - 1)].get();
    switch (in_.ConsumeIntegralInRange<int>(0, 3)) {
      case 0:
        (void)engine_->cancel(context);
        return;
      case 1:
        (void)rx_->cancel(context);
        return;
      default:
        break;
    }
    ReceiveRequest request;
    fi_context* found = handle();
    request.tagged = in_.ConsumeBool();
    request.ignore = ~uint64_t{0};
    request.context = found;
    request.flags = FI_PEEK | (in_.ConsumeBool() ? FI_CLAIM : FI_DISCARD);
    (void)rx_->peek(request);
    if (in_.ConsumeBool()) engine_->progress();
    if ((request.flags & FI_CLAIM) == 0 || found->internal[0] == nullptr) return;
    const size_t bytes = in_.ConsumeIntegralInRange<size_t>(0, 3000);
    const iovec part{buffer(found, bytes), bytes};
    request.iov = &part;
    request.iov_count = 1;
    request.flags = FI_CLAIM | (in_.ConsumeBool() ? FI_DISCARD : 0);
    if (rx_->receive(request) != 0 || (request.flags & FI_DISCARD) != 0) buffers_.erase(found);
  }
  void ended(void* context, uint64_t flags, int error = 0) {
    auto* handle = static_cast<fi_context*>(context);
    const bool multi = std::find(multi_.begin(), multi_.end(), handle) != multi_.end();
    const bool gives_back = (flags & FI_MULTI_RECV) != 0;
    if (gives_back != multi && (gives_back || error == FI_ECANCELED)) std::abort();
    if (!multi || gives_back) buffers_.erase(handle);
  }
  void read_queues() {
    for (core::CompletionQueue* queue : {&tx_cq_, &rx_cq_}) {
      for (;;) {
        fi_cq_tagged_entry entry;
        const ssize_t got = queue->read<fi_cq_tagged_entry, false>(&entry, 1, nullptr);
        if (got == -FI_EAVAIL) {
          core::CompletionError error;
          (void)queue->read_error(error);
          if (error.err != FI_ENOMSG) ended(error.base.context, error.base.flags, error.err);
          continue;
        }
        if (got <= 0) break;
        ended(entry.op_context, entry.flags);
      }
    }
  }
  // What the engine has said: its operation ids are the peer's to use.
  void learn() {
    for (const sim::Frame& frame : net_.wires[{us, them}]) {
      note(frame.head.a);
      if (frame.payload.size() >= sizeof(uint64_t)) {
        uint64_t first;
        std::memcpy(&first, frame.payload.data(), sizeof(first));
        note(first);
      }
      // Behind RmaPrefix and one target stands the announcement of a large write.
      const size_t rts = sizeof(wire::RmaPrefix) + sizeof(wire::RmaTarget);
      if (frame.head.kind == wire::FrameKind::WriteRts && frame.payload.size() >= rts + sizeof(uint64_t)) {
        uint64_t operation;
        std::memcpy(&operation, frame.payload.data() + rts, sizeof(operation));
        note(operation);
      }
    }
  }
  void note(uint64_t value) {
    if (value >> 62 == 0 || std::find(ids_.begin(), ids_.end(), value) != ids_.end()) return;
    ids_.push_back(value);
    if (ids_.size() > 24) ids_.erase(ids_.begin());
  }

  FuzzedDataProvider in_;
  sim::Net net_;
  core::CompletionQueue tx_cq_, rx_cq_;
  core::AddressVector av_;
  std::unique_ptr<std::byte[]> memory_ = std::make_unique<std::byte[]>(region_bytes);
  core::MemoryRegionTable regions_;
  TxContext tx_;
  std::unique_ptr<RxContext> rx_, other_rx_;
  std::map<fi_context*, std::vector<std::unique_ptr<std::byte[]>>> buffers_;
  std::vector<std::unique_ptr<fi_context>> handles_;
  std::vector<fi_context*> multi_;
  std::vector<uint64_t> ids_;
  std::unique_ptr<Engine<HostileLink>> engine_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size <= 4096) Session(data, size).run();
  return 0;
}
