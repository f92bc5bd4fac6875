// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What engines that hand every message over at once, and hold nothing back, have in common: a beginning for small ones (EndpointEngine). Must not
// know links.
#pragma once

#include <algorithm>
#include <vector>

#include "proto/engine/endpoint_engine.hpp"

namespace weft::proto {

template <ReceiveContext R>
class PlainEngine : public core::Progressor {
 public:
  using Receive = R;
  explicit PlainEngine(const EngineLimits& limits) : limits_(limits) {}

  const EngineLimits& limits() const noexcept { return limits_; }
  void set_address_vector(core::AddressVector* av) noexcept { av_ = av; }
  void set_receive_context(size_t, R* receive) noexcept { receive_ = receive; }
  void add_queue(core::CompletionQueue* queue) {
    if (std::find(queues_.begin(), queues_.end(), queue) == queues_.end()) queues_.push_back(queue);
  }
  void remove_queue(core::CompletionQueue* queue) noexcept { std::erase(queues_, queue); }
  void count_sends() noexcept {}
  ssize_t cancel(const void*) noexcept { return -FI_ENOENT; }  // what was sent has left
  size_t transmit_in_use() const noexcept { return 0; }
  bool has_unsent() const noexcept { return false; }
  void push_unsent() noexcept {}
  void abandon() noexcept {
    if (receive_ != nullptr) receive_->abandon();
  }

 protected:
  ~PlainEngine() = default;

  // While a queue is full nothing may be taken that needs an entry.
  bool has_full_queue() const noexcept {
    return std::any_of(queues_.begin(), queues_.end(),
                       [](const core::CompletionQueue* queue) { return queue->full(); });
  }
  // A message has left.
  static void complete_send(TxContext& tx, const Request& request, size_t length) noexcept {
    if (!request.silent && tx.completes(request.flags))
      tx.cq->push({request.context, FI_SEND | FI_MSG, length, nullptr, 0, 0, FI_ADDR_NOTAVAIL});
    if (tx.sends != nullptr) tx.sends->add(1);
    if (request.extra_counter != nullptr) request.extra_counter->add(1);
  }

  EngineLimits limits_;
  core::AddressVector* av_ = nullptr;
  R* receive_ = nullptr;

 private:
  std::vector<core::CompletionQueue*> queues_;
};

}  // namespace weft::proto
