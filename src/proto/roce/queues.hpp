// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bounded rings of an adapter: completion queues, receive queues (of a QP, or shared), send queues. All memory
// is there when they are made. Must not know packets.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "proto/roce/work.hpp"

namespace weft::proto::roce {

class CompletionQueue;
struct QueuePair;
struct SharedReceiveQueue;

enum class AsyncKind : uint8_t {  // values of enum ibv_event_type
  CompletionQueueError = 0,
  QpFatal = 1,
  QpRequestError = 2,
  QpAccessError = 3,
  CommunicationEstablished = 4,
  SendQueueDrained = 5,
  SharedLimitReached = 15,
  LastRequestReached = 16,
};
struct AsyncEvent {
  AsyncKind kind;
  QueuePair* qp = nullptr;
  CompletionQueue* cq = nullptr;
  SharedReceiveQueue* srq = nullptr;
};

// Who is told, from inside calls of the adapter. Must not call it.
struct Events {
  virtual void on_completion(CompletionQueue&) noexcept = 0;  // it was armed
  virtual void on_async(const AsyncEvent&) noexcept = 0;

 protected:
  ~Events() = default;
};

class CompletionQueue {
 public:
  CompletionQueue(Events& events, uint32_t capacity) : events_(events), ring_(capacity) {}
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // How many were taken out; -EIO: it has overrun, and nothing is behind what could be held.
  int poll(std::span<Completion> out) noexcept {
    Completion* to = out.data();
    return poll(out.size(), [&](const Completion& one) { *to++ = one; });
  }
  // Each of at most `most` is given to `fn`.
  template <class Fn>
  int poll(size_t most, Fn&& fn) noexcept {
    size_t n = 0;
    WEFT_ASSERT(count_ <= ring_.size() && unannounced_ <= count_);
    for (; n < most && count_ > 0; ++n, --count_) {
      fn(std::as_const(ring_[head_]));
      if (++head_ == ring_.size()) head_ = 0;
    }
    unannounced_ = std::min(unannounced_, count_);
    return n == 0 && overrun_ ? -EIO : static_cast<int>(n);
  }
  // One event for the next completion, or the next solicited one (ibv_req_notify_cq(3)). One that is in the queue since the
  // last event, and had none, has it now: programs that take one completion for each event would sleep for ever (perftest
  // -e does, with one channel for both of its queues). Who arms and then polls until it is empty gets an event too many
  // now and then, as from network cards, which compare their producer index with the program's consumer index.
  // `by`: whatever the caller finds in armed_by() while the queue is armed.
  void arm(bool solicited_only, const void* by = nullptr) noexcept {
    if (!solicited_only && unannounced_ != 0) {
      WEFT_ASSERT(unannounced_ <= count_);
      --unannounced_;
      armed_ = Armed::No;
      events_.on_completion(*this);
      return;
    }
    if (armed_ != Armed::Any) armed_ = solicited_only ? Armed::Solicited : Armed::Any;
    armed_by_ = by;
  }
  const void* armed_by() const noexcept { return armed_ == Armed::No ? nullptr : armed_by_; }
  size_t size() const noexcept { return count_; }
  size_t capacity() const noexcept { return ring_.size(); }
  bool overrun() const noexcept { return overrun_; }
  // False: more are in it than that. May throw std::bad_alloc, and then nothing has changed.
  bool resize(uint32_t capacity) {
    if (capacity < count_) return false;
    std::vector<Completion> ring(capacity);
    const size_t count = count_;
    const size_t unannounced = unannounced_;
    (void)poll(ring);
    ring_.swap(ring);
    head_ = 0;
    count_ = count;
    unannounced_ = unannounced;
    WEFT_ASSERT(count_ <= ring_.size() && unannounced_ <= count_);
    return true;
  }
  void* context = nullptr;  // the front end's

  // --- called by the adapter ---
  // Takes out the completions of a queue pair that is reset or destroyed: its requests are no longer known (IBTA 10.3.1).
  void remove(uint32_t qpn) noexcept {
    size_t to = head_;
    const size_t count = count_;
    WEFT_ASSERT(head_ < ring_.size());
    for (size_t i = 0, from = head_; i < count; ++i, from = from + 1 == ring_.size() ? 0 : from + 1) {
      if (ring_[from].qpn == qpn) {
        --count_;
        continue;
      }
      if (from != to) ring_[to] = ring_[from];
      to = to + 1 == ring_.size() ? 0 : to + 1;
    }
    unannounced_ = std::min(unannounced_, count_);
    WEFT_ASSERT(count_ <= count && unannounced_ <= count_);
  }
  // Errors count as solicited. False: no room; the queue has failed.
  bool push(const Completion& completion, bool is_solicited) noexcept {
    if (count_ == ring_.size() || overrun_) {
      if (!overrun_) {
        overrun_ = true;
        events_.on_async({AsyncKind::CompletionQueueError, nullptr, this, nullptr});
      }
      return false;
    }
    size_t at = head_ + count_++;
    WEFT_ASSERT(count_ <= ring_.size());
    if (at >= ring_.size()) at -= ring_.size();
    ring_[at] = completion;
    if (armed_ == Armed::Any ||
        (armed_ == Armed::Solicited && (is_solicited || completion.status != Status::Success))) {
      armed_ = Armed::No;
      events_.on_completion(*this);
    } else {
      ++unannounced_;
    }
    return true;
  }
  uint32_t users = 0;  // QPs and SRQs

 private:
  enum class Armed : uint8_t { No, Solicited, Any };
  Events& events_;
  std::vector<Completion> ring_;
  size_t head_ = 0;
  size_t count_ = 0;
  size_t unannounced_ = 0;  // that came while it was not armed, at most count_
  const void* armed_by_ = nullptr;
  Armed armed_ = Armed::No;
  bool overrun_ = false;
};

// A receive request that was taken out, or is in the ring.
struct Receive {
  uint64_t id = 0;
  uint32_t count = 0;  // of elements
  uint32_t pd = 0;     // of the queue
  uint64_t room = 0;   // bytes of all elements
  std::span<const Element> elements;
};

class ReceiveQueue {
 public:
  void make(uint32_t requests, uint32_t elements, uint32_t pd) {
    entries_.resize(requests);
    elements_.resize(size_t{requests} * elements);
    elements_each_ = elements;
    pd_ = pd;
  }
  // 0, -EINVAL: too many elements, -ENOMEM: it is full.
  int post(const ReceiveRequest& request) noexcept {
    if (request.elements.size() > elements_each_) return -EINVAL;
    if (count_ == entries_.size()) return -ENOMEM;
    size_t at = head_ + count_++;
    WEFT_ASSERT(count_ <= entries_.size());
    if (at >= entries_.size()) at -= entries_.size();
    Element* to = elements_.data() + at * elements_each_;  // none where a request has no elements
    Receive& entry = entries_[at];
    entry = {request.id, static_cast<uint32_t>(request.elements.size()), pd_, 0, {}};
    for (uint32_t i = 0; i < entry.count; ++i) {
      to[i] = request.elements[i];
      entry.room += to[i].length;
    }
    return 0;
  }
  // The oldest one, into `out` with its elements in `storage`, which has room for elements_each(). False: there is
  // none.
  bool take(Receive& out, std::vector<Element>& storage) noexcept {
    if (count_ == 0) return false;
    WEFT_ASSERT(storage.size() >= entries_[head_].count);
    out = entries_[head_];
    const Element* from = elements_.data() + head_ * elements_each_;
    for (uint32_t i = 0; i < out.count; ++i) storage[i] = from[i];
    out.elements = {storage.data(), out.count};
    if (++head_ == entries_.size()) head_ = 0;
    --count_;
    return true;
  }
  // The oldest one in its place; null: there is none. Its elements, of which there may be none; pop() takes it out.
  const Receive* front() const noexcept { return count_ == 0 ? nullptr : &entries_[head_]; }
  const Element* front_elements() const noexcept { return elements_.data() + head_ * elements_each_; }
  void pop() noexcept {
    WEFT_ASSERT(count_ != 0);
    if (++head_ == entries_.size()) head_ = 0;
    --count_;
  }
  void clear() noexcept { head_ = count_ = 0; }
  size_t size() const noexcept { return count_; }
  size_t capacity() const noexcept { return entries_.size(); }
  uint32_t elements_each() const noexcept { return elements_each_; }
  uint32_t pd() const noexcept { return pd_; }

 private:
  std::vector<Receive> entries_;
  std::vector<Element> elements_;
  uint32_t elements_each_ = 0;
  uint32_t pd_ = 0;
  size_t head_ = 0;
  size_t count_ = 0;
};

// ibv_create_srq(3), and of an XRC domain where `xrcd` is not 0.
struct SharedReceiveQueue {
  uint32_t number = 0;
  uint32_t pd = 0;
  uint32_t xrcd = 0;
  CompletionQueue* cq = nullptr;  // XRC
  uint32_t limit = 0;             // an event when fewer are there, once; 0: none
  uint32_t users = 0;
  void* context = nullptr;  // the front end's
  ReceiveQueue queue;
};

// A request in the send ring.
struct SendEntry {
  uint64_t id = 0;
  SendOpcode opcode = SendOpcode::Send;
  uint8_t flags = 0;
  bool started = false;  // it has its PSNs
  uint32_t count = 0;    // of elements
  uint32_t length = 0;
  uint32_t first_psn = 0;
  uint32_t packets = 0;  // PSNs; 0: nothing goes to the peer
  uint32_t immediate = 0;
  uint32_t invalidate = 0;
  uint64_t remote_address = 0;
  uint32_t remote_key = 0;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  AddressVector to;
  uint32_t remote_qpn = 0;
  uint32_t remote_qkey = 0;
  uint32_t remote_srqn = 0;
  SendRequest::Bind bind;

  bool is_atomic() const noexcept {
    return opcode == SendOpcode::CompareSwap || opcode == SendOpcode::FetchAdd;
  }
  // The peer answers with more than an acknowledgement.
  bool is_answered() const noexcept {
    constexpr uint32_t answered =
        1U << static_cast<unsigned>(SendOpcode::Read) | 1U << static_cast<unsigned>(SendOpcode::CompareSwap) |
        1U << static_cast<unsigned>(SendOpcode::FetchAdd) | 1U << static_cast<unsigned>(SendOpcode::Flush) |
        1U << static_cast<unsigned>(SendOpcode::AtomicWrite);
    return (answered >> static_cast<unsigned>(opcode) & 1) != 0;
  }
  bool awaits_read_response() const noexcept { return is_answered() && !is_atomic(); }
  bool is_local() const noexcept {
    return opcode == SendOpcode::LocalInvalidate || opcode == SendOpcode::BindWindow;
  }
};

// Counters of requests, which wrap at 2^32: posted ones are [head, tail).
class SendQueue {
 public:
  void make(uint32_t requests, uint32_t elements, uint32_t inline_bytes) {
    WEFT_ASSERT(tail == head);
    uint32_t places = 1;
    while (places < requests) places *= 2;
    requests_ = requests;
    mask_ = places - 1;
    entries_.resize(places);
    elements_each_ = elements;
    inline_each_ = inline_bytes;
    elements_.resize(size_t{places} * (elements == 0 ? 1 : elements));
    inline_.resize(size_t{places} * inline_bytes);
    WEFT_ASSERT((places & (places - 1)) == 0 && places >= requests_);
  }
  bool full() const noexcept { return tail - head == requests_; }
  bool empty() const noexcept { return tail == head; }
  uint32_t room() const noexcept { return requests_ - (tail - head); }
  SendEntry& at(uint32_t index) noexcept { return entries_[index & mask_]; }
  const SendEntry& at(uint32_t index) const noexcept { return entries_[index & mask_]; }
  Element* elements(uint32_t index) noexcept {
    return &elements_[size_t{index & mask_} * (elements_each_ == 0 ? 1 : elements_each_)];
  }
  std::byte* inline_bytes(uint32_t index) noexcept {
    return inline_.data() + size_t{index & mask_} * inline_each_;
  }
  bool is_ring_start(uint32_t index) const noexcept { return (index & mask_) == 0; }
  uint32_t elements_each() const noexcept { return elements_each_; }
  uint32_t inline_each() const noexcept { return inline_each_; }
  uint32_t capacity() const noexcept { return requests_; }

  uint32_t head = 0;
  uint32_t tail = 0;

 private:
  uint32_t requests_ = 0;
  uint32_t mask_ = 0;
  uint32_t elements_each_ = 0;
  uint32_t inline_each_ = 0;
  std::vector<SendEntry> entries_;
  std::vector<Element> elements_;
  std::vector<std::byte> inline_;
};

}  // namespace weft::proto::roce
