// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Datagram<PacketLink>: messages of one packet each, unreliable (FI_EP_DGRAM, fi_endpoint(3)). Calls and packets in, packets and completions
// out. Must not know system calls, clocks or threads; the owner serialises every call (domain lock or program).
//
// The first datagram since the last progress() goes out at once. What follows before the next one joins a GSO batch while it has the same
// destination and length, and leaves with it: when the batch is full, when another datagram does not fit in, and at progress(). A completion is
// there when the datagram has left; its buffer may be used again as soon as the call returns.
#pragma once

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "base/hash.hpp"
#include "core/address_vector.hpp"
#include "core/completion_queue.hpp"
#include "core/progress.hpp"
#include "proto/datagram/receiver.hpp"
#include "proto/engine/context.hpp"
#include "proto/engine/endpoint_engine.hpp"
#include "proto/packet/abilities.hpp"
#include "proto/packet/observed.hpp"

namespace weft::proto {

// Messages of one packet each, and nothing that an unreliable packet cannot carry.
template <class P>
constexpr EngineAbilities datagram_abilities() noexcept {
  EngineAbilities some;
  some.type = FI_EP_DGRAM;
  constexpr uint64_t both = FI_MSG | (HasMulticast<P> ? FI_MULTICAST : 0);
  some.transmit_caps = both | FI_SEND;
  some.receive_caps = both | FI_RECV | FI_MULTI_RECV | FI_SOURCE;
  some.transmit_flags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE;
  some.receive_flags = FI_COMPLETION | FI_MULTI_RECV;
  some.inject_bytes = P::packet_bytes_limit;  // a datagram is copied in the call
  some.message_bytes_max = P::packet_bytes_limit;
  some.buffered_bytes = DatagramReceiver::buffer_bytes_max;
  return some;
}

template <PacketLink P>
class Datagram final : public core::Progressor {
 public:
  using Link = Observed<P>;
  using Receive = DatagramReceiver;
  static constexpr EngineAbilities abilities = datagram_abilities<P>();

  explicit Datagram(const EngineLimits& limits) : limits_(limits) {
    limits_.message_bytes = std::min<size_t>(limits_.message_bytes, P::packet_bytes_limit);
  }

  // --- set-up, before the first operation ---
  Observed<P>& link() noexcept { return link_; }
  const Observed<P>& link() const noexcept { return link_; }
  void set_receive_context(size_t, DatagramReceiver* receiver) noexcept {
    receiver_ = receiver;
    receiver->multi_receive_min = limits_.message_bytes;  // so that no datagram is cut at a buffer's end
  }
  void close() noexcept { link_.close(); }
  std::span<const std::byte> address() noexcept { return link_.address(); }
  void set_address_vector(core::AddressVector* av) noexcept { av_ = av; }
  core::AddressVector* address_vector() const noexcept { return av_; }
  // A queue that must not overflow: while it is full no packets are taken.
  void add_queue(core::CompletionQueue* queue) {
    if (std::find(queues_.begin(), queues_.end(), queue) == queues_.end()) queues_.push_back(queue);
  }
  void remove_queue(core::CompletionQueue* queue) noexcept { std::erase(queues_, queue); }
  void count_sends() noexcept {}
  const EngineLimits& limits() const noexcept { return limits_; }
  // Until close(); null: nobody.
  void set_watcher(core::Watcher* watcher, uint32_t) noexcept { watcher_ = watcher; }
  EngineCounts counts() const noexcept {
    EngineCounts now;
    now.sent = sent_;
    now.send_queue = batch_.count;
    now.bytes_sent = bytes_sent_;
    now.unreported = unreported_;
    for (const core::CompletionQueue* queue : queues_) now.completions += queue->pending();
    if (receiver_ == nullptr) return now;
    now.received = receiver_->received();
    now.bytes_received = receiver_->bytes_received();
    now.receive_queue = receiver_->posted();
    now.unexpected = receiver_->buffered();
    now.lost = receiver_->dropped();
    return now;
  }

  // --- the program's calls: 0 or a negative errno; -FI_EAGAIN means nothing happened ---
  ssize_t post(TxContext& tx, const Request& request) noexcept {
    if (request.kind != OpKind::Send || request.tagged) return -FI_EOPNOTSUPP;
    return send_parts(tx, request.iov, request.iov_count, request.dest, request.flags, request.context,
                      request.silent);
  }
  template <bool tagged>
  ssize_t send(TxContext& tx, const void* buffer, size_t length, fi_addr_t dest, uint64_t,
               void* context) noexcept {
    static_assert(!tagged);
    const iovec part{const_cast<void*>(buffer), length};
    return send_parts(tx, &part, 1, dest, tx.op_flags, context, false);
  }
  template <bool tagged>
  ssize_t inject(TxContext& tx, const void* buffer, size_t length, fi_addr_t dest, uint64_t) noexcept {
    static_assert(!tagged);
    const iovec part{const_cast<void*>(buffer), length};
    return send_parts(tx, &part, 1, dest, FI_INJECT, nullptr, true);
  }
  ssize_t cancel(const void*) noexcept { return -FI_ENOENT; }  // what was sent has left
  int join(std::span<const std::byte> group, bool receives) requires HasMulticast<P> {
    return link_.join(group, receives);
  }
  void leave(std::span<const std::byte> group) noexcept requires HasMulticast<P> {
    (void)push_unsent();
    link_.leave(group);
  }
  // `silent`: never a completion (fi_inject).
  ssize_t send_parts(TxContext& tx, const iovec* iov, size_t count, fi_addr_t dest, uint64_t flags,
                     void* context, bool silent = false) noexcept {
    if (count > iov_max) [[unlikely]]
      return -FI_EINVAL;
    if ((flags & refused_flags) != 0) [[unlikely]]
      return -FI_EOPNOTSUPP;
    const size_t length = total_bytes(iov, count);
    if (length > limits_.message_bytes) [[unlikely]]
      return -FI_EMSGSIZE;
    if (tx.cq != nullptr && tx.cq->full()) [[unlikely]] {
      progress();
      return -FI_EAGAIN;
    }
    const core::Address* to = av_->lookup(av_->peer_index(dest));
    if (to == nullptr) [[unlikely]]
      return -FI_EINVAL;
    Sent record{tx.cq, tx.sends, context, length, !silent && tx.completes(flags), silent};
    if (joins_batch(*to, length)) return join(iov, count, length, record);
    if (batch_.count != 0 && !depart()) return -FI_EAGAIN;
    const bool wait = sends_since_poll_++ != 0 || (flags & FI_MORE) != 0;
    if (wait && length <= batch_packet_max && length != 0 && start_batch(*to, length))
      return join(iov, count, length, record);
    return send_now(*to, iov, count, record);
  }

  // --- Progressor ---
  void progress() noexcept override {
    sends_since_poll_ = 0;
    if (batch_.count != 0) (void)depart();
    for (core::CompletionQueue* queue : queues_)
      if (queue->full()) [[unlikely]]
        return;
    if (receiver_ == nullptr) [[unlikely]]
      return;
    if (receiver_->names_sources && av_ != nullptr &&
        av_->changes().version.load(std::memory_order_acquire) != av_seen_) [[unlikely]]
      forget_sources();
    (void)link_.poll(*this);
    if (watcher_ != nullptr && ++polls_since_check_ % polls_per_check == 0) watcher_->check();
  }
  int wait_fd() noexcept override {
    if constexpr (HasSleep<P>) return link_.wait_fd();
    return -1;
  }
  bool arm() noexcept override {
    // The link first, whatever comes of it: others may sleep on it already.
    bool armed = false;
    if constexpr (HasSleep<P>) armed = link_.arm();
    if (batch_.count != 0 && !depart()) return false;
    for (core::CompletionQueue* queue : queues_)
      if (queue->full()) return false;
    return armed;
  }
  void disarm() noexcept override {
    if constexpr (HasSleep<P>) link_.disarm();
  }

  // --- called by the link ---
  void on_packet(const ReceivedPacket& packet) noexcept {
    receiver_->arrived(packet.bytes,
                       receiver_->names_sources ? find_source(packet.source) : FI_ADDR_NOTAVAIL);
  }

  // Datagrams that wait for others, or for room. fi_close gives them a chance.
  size_t transmit_in_use() const noexcept { return batch_.count; }
  bool has_unsent() const noexcept { return batch_.count != 0; }
  bool push_unsent() noexcept { return batch_.count == 0 || depart(); }
  // Drops everything without a completion, before the queues go away.
  void abandon() noexcept {
    batch_.count = 0;
    if (receiver_ != nullptr) receiver_->abandon();
  }

 private:
  static constexpr uint64_t refused_flags =
      FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE | FI_TRIGGER;
  // Larger datagrams cost more to copy than a system call does.
  static constexpr size_t batch_packet_max = 8192;
  static constexpr size_t batch_bytes = size_t{1} << 15;

  struct Sent {
    core::CompletionQueue* cq;
    core::Counter* counter;
    void* context;
    size_t length;
    bool completes;
    bool silent;
  };
  static constexpr size_t batch_count_max() noexcept {
    if constexpr (HasSegmentationOffload<P>) return P::segments_max;
    return 1;
  }
  struct Batch {
    size_t count = 0;
    size_t packet_bytes = 0;
    size_t bytes = 0;
    bool closed = false;  // its last packet is shorter
    core::Address to;
    std::unique_ptr<std::byte[]> memory;
    std::array<Sent, batch_count_max()> sent;
  };
  // Who sends, by address: each has one place, so unknown peers cannot make it grow.
  struct Source {
    core::Address address;
    fi_addr_t fi_addr = FI_ADDR_NOTAVAIL;
  };
  static constexpr size_t sources_max = 256;

  static std::span<const std::byte> span_of(const core::Address& address) noexcept {
    return {address.bytes.data(), address.len};
  }

  // --- sending ---
  bool joins_batch(const core::Address& to, size_t length) const noexcept {
    return batch_.count != 0 && !batch_.closed && length != 0 && length <= batch_.packet_bytes &&
           batch_.count < batch_.sent.size() && batch_.bytes + length <= batch_bytes && to == batch_.to;
  }
  bool start_batch(const core::Address& to, size_t length) noexcept {
    if constexpr (batch_count_max() < 2) return false;
    if (batch_.memory == nullptr) batch_.memory.reset(new (std::nothrow) std::byte[batch_bytes]);
    if (batch_.memory == nullptr) return false;
    batch_.packet_bytes = length;
    batch_.bytes = 0;
    batch_.closed = false;
    batch_.to = to;
    return true;
  }
  ssize_t join(const iovec* iov, size_t count, size_t length, const Sent& record) noexcept {
    gather(batch_.memory.get() + batch_.bytes, iov, count, 0, length);
    batch_.bytes += length;
    batch_.closed = length < batch_.packet_bytes;
    batch_.sent[batch_.count++] = record;
    if (batch_.closed || batch_.count == batch_.sent.size() ||
        batch_.bytes + batch_.packet_bytes > batch_bytes)
      (void)depart();
    return 0;
  }
  // False: no room now, it waits.
  [[gnu::noinline]] bool depart() noexcept {
    const iovec part{batch_.memory.get(), batch_.bytes};
    if constexpr (HasSegmentationOffload<P>) {
      if (batch_.count > 1) {
        if (!link_.send_segmented(span_of(batch_.to), &part, 1, batch_.packet_bytes)) return false;
        const size_t count = std::exchange(batch_.count, 0);
        for (size_t i = 0; i < count; ++i) complete(batch_.sent[i], batch_.to, 0);
        return true;
      }
    }
    const int status = hand_over(span_of(batch_.to), &part, 1);
    if (status == -FI_EAGAIN) return false;
    batch_.count = 0;
    complete(batch_.sent[0], batch_.to, -status);
    return true;
  }
  ssize_t send_now(const core::Address& to, const iovec* iov, size_t count, const Sent& record) noexcept {
    const int status = hand_over(span_of(to), iov, count);
    if (status == -FI_EAGAIN) return -FI_EAGAIN;
    complete(record, to, -status);
    return 0;
  }
  // 0 or a negative errno, where the link knows one.
  int hand_over(std::span<const std::byte> to, const iovec* iov, size_t count) noexcept {
    if constexpr (HasSendStatus<P>) return link_.try_send(to, iov, count);
    else return link_.send(to, iov, count) ? 0 : -FI_EAGAIN;
  }
  void complete(const Sent& sent, const core::Address& to, int error) noexcept {
    if (error != 0) [[unlikely]] {
      if (sent.cq != nullptr && (!sent.silent || limits_.inject_errors)) {
        core::CompletionError entry;
        entry.base = {sent.context, FI_SEND | FI_MSG, 0, nullptr, 0, 0, FI_ADDR_NOTAVAIL};
        entry.err = error;
        if (sent.silent) {  // without a context it says at least which peer it is about
          entry.err_data_size = to.len;
          entry.err_data = to.bytes;
        }
        sent.cq->push_error(entry);
      } else if (sent.silent) {
        ++unreported_;
        if (watcher_ != nullptr)
          watcher_->unreported({.peer = span_of(to), .err = error, .prov_errno = 0, .peer_lost = false});
      }
      if (sent.counter != nullptr) sent.counter->add_error(1);
      return;
    }
    ++sent_;
    bytes_sent_ += sent.length;
    if (sent.completes)
      sent.cq->push({sent.context, FI_SEND | FI_MSG, sent.length, nullptr, 0, 0, FI_ADDR_NOTAVAIL});
    if (sent.counter != nullptr) sent.counter->add(1);
  }

  // --- who sent it ---
  fi_addr_t find_source(std::span<const std::byte> bytes) noexcept {
    Source& last = *last_source_;
    if (bytes.size() == last.address.len &&
        std::memcmp(bytes.data(), last.address.bytes.data(), bytes.size()) == 0)
      return last.fi_addr;
    return look_up_source(bytes);
  }
  [[gnu::noinline]] fi_addr_t look_up_source(std::span<const std::byte> bytes) noexcept {
    if (av_ == nullptr) return FI_ADDR_NOTAVAIL;
    const core::Address address(bytes.data(), bytes.size());
    if (sources_.empty()) {
      try {
        sources_.resize(sources_max);
      } catch (const std::bad_alloc&) {
        return av_->find(address);
      }
    }
    Source& place = sources_[core::AddressHash()(address) % sources_max];
    if (!(place.address == address) || place.address.len == 0) {
      place.fi_addr = av_->find(address);
      place.address = address;
    }
    last_source_ = &place;
    return place.fi_addr;
  }
  [[gnu::noinline, gnu::cold]] void forget_sources() noexcept {
    av_seen_ = av_->changes().version.load(std::memory_order_acquire);
    for (Source& source : sources_) source = {};
    last_source_ = &nobody_;
  }

  Observed<P> link_;
  core::AddressVector* av_ = nullptr;
  DatagramReceiver* receiver_ = nullptr;
  size_t sends_since_poll_ = 0;
  uint64_t sent_ = 0;
  uint64_t bytes_sent_ = 0;
  uint32_t polls_since_check_ = 0;
  uint64_t unreported_ = 0;  // see EngineCounts
  core::Watcher* watcher_ = nullptr;
  uint32_t av_seen_ = 0;
  Source nobody_;  // matches no sender: it has no address
  Source* last_source_ = &nobody_;
  std::vector<Source> sources_;
  std::vector<core::CompletionQueue*> queues_;
  EngineLimits limits_;
  Batch batch_;
};

}  // namespace weft::proto
