// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The programs that run in a simulated world (sim_world.hpp): random work requests, and every completion checked
// against the model.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "proto/roce/sim_world.hpp"

namespace weft::proto::roce::sim {

class Program {
 public:
  using WindowState = End::WindowState;

  Program(Node& node, End& end) : node_(node), end_(end), random_(node.world.random) {}

  void post_receives() {
    Incoming& incoming = *end_.incoming;
    while (!incoming.free_slots.empty() && random_.chance(0.5)) {
      const uint32_t slot = incoming.free_slots.back();
      const uint64_t at = reinterpret_cast<uint64_t>(incoming.bytes.data()) + slot * slot_bytes;
      const auto first = static_cast<uint32_t>(random_.below(slot_bytes));
      const std::array<Element, 2> elements{
          Element{at, first, incoming.region->key},
          Element{at + first, static_cast<uint32_t>(slot_bytes - first), incoming.region->key}};
      const ReceiveRequest request{uint64_t{1} << 32 | slot, elements};
      const int rc = incoming.srq != nullptr
                         ? node_.adapter->post_receive(*incoming.srq, request)
                         : node_.adapter->post_receive(*end_.qp, request, node_.world.now);
      if (rc != 0) node_.world.complain("a receive is refused");
      incoming.free_slots.pop_back();
    }
  }

  void post_sends() {
    while (end_.left != 0 && end_.ops.size() < sends && random_.chance(0.8)) post();
  }

 private:
  // One that fails: a key of nobody, a message beyond every receive, memory that is not the program's.
  void post_last() {
    End::Op op;
    op.signals = random_.chance(0.5);
    Element element{reinterpret_cast<uint64_t>(node_.source.data()), 1000, node_.source_region->key};
    SendRequest& q = op.request;
    q.id = end_.first_id + end_.ops.size();
    q.flags = op.signals ? signaled : 0;
    q.opcode = random_.pick({SendOpcode::Write, SendOpcode::WriteImmediate});
    if (end_.is_xrc()) q.remote_srqn = end_.peer->incoming->srq->number;
    q.remote_address = end_.peer->target_address();
    q.remote_key = end_.peer->target_region->key ^ 1;
    if (end_.peer->window_state == WindowState::Free && random_.chance(0.5))
      q.remote_key = end_.peer->window_key;
    if (end_.last == Status::RemoteInvalidRequest) {
      q.opcode = SendOpcode::Send;
      element.length = slot_bytes + 1 + static_cast<uint32_t>(random_.below(2000));
    } else if (end_.last == Status::LocalProtection) {
      q.opcode = SendOpcode::Send;
      element.address += node_.source.size() - 999;
    }
    q.elements = {&element, 1};
    --end_.left;
    end_.ops.push_back(op);
    if (node_.adapter->post_send(*end_.qp, q, node_.world.now) != 0)
      node_.world.complain("a request is refused");
  }

  void post() {
    if (end_.left == 1 && end_.last != Status::Success) return post_last();
    if (post_window()) return;
    End::Op op;
    SendRequest& q = op.request;
    std::array<Element, 3> elements;
    q.id = end_.first_id + end_.ops.size();
    q.opcode = random_.pick({SendOpcode::Send, SendOpcode::SendImmediate, SendOpcode::Write,
                             SendOpcode::Write, SendOpcode::WriteImmediate, SendOpcode::Read,
                             SendOpcode::Read, SendOpcode::CompareSwap, SendOpcode::FetchAdd});
    // The last place of the queue is free again only when a completion says so.
    op.signals = end_.left == 1 || end_.ops.size() + 1 == sends || random_.chance(0.4);
    q.flags = static_cast<uint8_t>((op.signals ? signaled : 0) | (random_.chance(0.1) ? fence : 0) |
                                   (random_.chance(0.2) ? solicited : 0));
    q.immediate = static_cast<uint32_t>(random_.below(UINT32_MAX));
    auto length =
        random_.pick<uint32_t>({0, 1, 3, 4, 64, 255, 256, 257, 1000, 1024, 1025, 4096, 5000, 20'000});
    End& peer = *end_.peer;
    if (end_.is_xrc()) q.remote_srqn = peer.incoming->srq->number;
    const size_t words_at = target_bytes - 8;
    const size_t still_at = target_bytes / 4 * 3;  // from here on nobody writes
    q.remote_key = peer.target_region->key;
    if (peer.window_state == WindowState::Bound && is_plain_rdma(q.opcode) && random_.chance(0.5)) {
      q.remote_key = peer.window_key;
      op.by_window = true;
      ++end_.window_uses;
    }
    if (peer.window_state == WindowState::Bound && q.opcode == SendOpcode::Send && !op.by_window &&
        peer.window->type == WindowType::Two && random_.chance(0.3)) {
      // READs by the window have to be answered before it goes.
      q.opcode = SendOpcode::SendInvalidate;
      q.flags |= fence;
      q.invalidate = peer.window_key;
      peer.window_state = WindowState::Leaving;
    }
    End::Message message;
    switch (q.opcode) {
      case SendOpcode::Send:
      case SendOpcode::SendImmediate:
      case SendOpcode::SendInvalidate: {
        const std::byte* from = choose_source(op, elements, length);
        const bool invalidates = q.opcode == SendOpcode::SendInvalidate;
        message = {{from, from + length},
                   length,
                   false,
                   q.opcode == SendOpcode::SendImmediate,
                   invalidates,
                   invalidates ? q.invalidate : q.immediate};
        peer.awaited.push_back(message);
        break;
      }
      case SendOpcode::Write:
      case SendOpcode::WriteImmediate: {
        length = std::min<uint32_t>(length, 20'000);
        const std::byte* from = choose_source(op, elements, length);
        const size_t at = random_.below(still_at - length);
        q.remote_address = peer.target_address() + at;
        std::copy_n(from, length, peer.model.begin() + static_cast<std::ptrdiff_t>(guard_bytes + at));
        if (q.opcode == SendOpcode::WriteImmediate)
          peer.awaited.push_back({{}, length, true, true, false, q.immediate});
        break;
      }
      case SendOpcode::Read: {
        length = std::min<uint32_t>(length, static_cast<uint32_t>(words_at - still_at));
        const size_t at = still_at + random_.below(words_at - still_at - length + 1);
        q.remote_address = peer.target_address() + at;
        if (length == 0 && !op.by_window) {
          q.opcode = SendOpcode::Flush;
          q.compare_add = words_at - at;
          q.immediate = 1 | (q.immediate & 0x10);
          break;
        }
        op.read.assign(peer.target() + at, peer.target() + at + length);
        elements[0] = {landing(q.id), length, end_.landing_region->key};
        q.elements = {elements.data(), 1};
        break;
      }
      default: {
        q.remote_address = peer.target_address() + words_at;
        // The region is where the allocator puts it; the word has to be aligned for the processor.
        q.remote_address &= ~uint64_t{7};
        const size_t at = q.remote_address - reinterpret_cast<uint64_t>(peer.arena.data());
        uint64_t value;
        std::memcpy(&value, peer.model.data() + at, sizeof value);
        op.original = value;
        q.compare_add = q.opcode == SendOpcode::FetchAdd ? random_.below(UINT64_MAX)
                        : random_.chance(0.7)            ? value
                                                         : value + 1;
        q.swap = random_.below(UINT64_MAX);
        if (q.opcode == SendOpcode::FetchAdd && q.compare_add % 4 == 0) q.opcode = SendOpcode::AtomicWrite;
        if (q.opcode == SendOpcode::AtomicWrite) value = q.compare_add;
        else if (q.opcode == SendOpcode::FetchAdd) value += q.compare_add;
        else if (value == q.compare_add) value = q.swap;
        std::memcpy(peer.model.data() + at, &value, sizeof value);
        if (q.opcode == SendOpcode::AtomicWrite && q.compare_add % 8 == 0) {
          q.flags |= inline_data;
          break;
        }
        elements[0] = {landing(q.id), 8, end_.landing_region->key};
        q.elements = {elements.data(), 1};
        if (q.opcode == SendOpcode::AtomicWrite)
          std::memcpy(reinterpret_cast<void*>(elements[0].address), &value, sizeof value);
      }
    }
    --end_.left;
    end_.ops.push_back(op);
    const int rc = node_.adapter->post_send(*end_.qp, q, node_.world.now);
    if (rc != 0) node_.world.complain("a request is refused: " + std::to_string(rc));
  }

  static bool is_plain_rdma(SendOpcode opcode) {
    return opcode == SendOpcode::Write || opcode == SendOpcode::WriteImmediate || opcode == SendOpcode::Read;
  }

  // Perhaps binds the end's own window, or takes it away while the peer has no request by it.
  bool post_window() {
    End::Op op;
    SendRequest& q = op.request;
    q.id = end_.first_id + end_.ops.size();
    q.flags = signaled;
    op.signals = true;
    const bool is_two = end_.window != nullptr && end_.window->type == WindowType::Two;
    if (end_.window_state == WindowState::Free && random_.chance(0.3)) {
      end_.window_state = WindowState::Binding;
    } else if (end_.window_state == WindowState::Bound && end_.peer->window_uses == 0 &&
               random_.chance(0.1)) {
      end_.window_state = WindowState::Leaving;
    } else {
      return false;
    }
    const bool binds = end_.window_state == WindowState::Binding;
    q.opcode = binds || !is_two ? SendOpcode::BindWindow : SendOpcode::LocalInvalidate;
    q.invalidate = end_.window_key;
    if (q.opcode == SendOpcode::BindWindow) {
      q.bind = {end_.window_key, end_.target_region->key, end_.target_address(), binds ? target_bytes : 0,
                remote_write | remote_read};
      end_.window_key = (end_.window_key & ~0xffu) | ((end_.window_key + 1) & 0xff);
      q.remote_key = end_.window_key;
    }
    --end_.left;
    end_.ops.push_back(op);
    if (node_.adapter->post_send(*end_.qp, q, node_.world.now) != 0)
      node_.world.complain("a bind or an invalidation is refused");
    return true;
  }

  uint64_t landing(uint64_t id) {
    return reinterpret_cast<uint64_t>(end_.landing.data()) + id % sends * slot_bytes;
  }

  const std::byte* choose_source(End::Op& op, std::array<Element, 3>& elements, uint32_t length) {
    const std::byte* from = node_.source.data() + random_.below(node_.source.size() - length);
    const size_t count = 1 + random_.below(3);
    uint32_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t part =
          i + 1 == count ? length - at : static_cast<uint32_t>(random_.below(length - at + 1));
      elements[i] = {reinterpret_cast<uint64_t>(from) + at, part, node_.source_region->key};
      at += part;
    }
    op.request.elements = {elements.data(), count};
    if (length <= 256 && random_.chance(0.5)) op.request.flags |= inline_data;
    return from;
  }

  Node& node_;
  End& end_;
  Random& random_;
};

inline void Node::poll() {
  std::array<Completion, 16> found;
  for (int n; (n = cq->poll(found)) != 0;) {
    if (n < 0) {
      world.complain("the completion queue has overrun");
      return;
    }
    for (int i = 0; i < n; ++i) {
      const Completion& c = found[static_cast<size_t>(i)];
      for (const uint64_t value :
           {c.id, uint64_t{static_cast<uint8_t>(c.status)}, uint64_t{static_cast<uint8_t>(c.opcode)},
            uint64_t{c.flags}, uint64_t{c.bytes}, uint64_t{c.qpn}, uint64_t{c.source_qpn}, c.time_ns})
        world.note(value);
      End* end = nullptr;
      for (auto& one : ends)
        if (c.qpn == (c.id >> 32 == 0 ? one->qp : one->takes)->number) end = one.get();
      if (end == nullptr) {
        world.complain("a completion of nobody");
        return;
      }
      const bool had_failed = end->first_error != Status::Success;
      bool& failed = c.id >> 32 == 0 ? end->sends_failed : end->receives_failed;
      if (c.status != Status::Success) {
        if (end->first_error == Status::Success && c.id >> 32 == 0) end->first_error = c.status;
        failed = true;
        if (!end->is_xrc()) end->sends_failed = end->receives_failed = true;
      } else if (failed) {
        world.complain("a success after a failure");
      }
      if (c.id >> 32 == 1) {
        const auto slot = static_cast<uint32_t>(c.id);
        if (c.status == Status::Success) {
          if (end->awaited.empty()) {
            world.complain("a message that nobody sent");
            return;
          }
          const End::Message m = std::move(end->awaited.front());
          end->awaited.pop_front();
          const bool data = (c.flags & with_immediate) != 0;
          const bool gone = (c.flags & with_invalidate) != 0;
          if (gone) end->window_state = End::WindowState::Free;
          if (c.bytes != m.length || data != m.has_data || gone != m.invalidates ||
              ((data || gone) && c.immediate != m.data) ||
              (c.opcode == CompletionOpcode::ReceiveWriteImmediate) != m.is_write)
            world.complain("a receive completion differs from its message");
          if (!m.bytes.empty() && std::memcmp(end->incoming->bytes.data() + slot * slot_bytes, m.bytes.data(),
                                              m.bytes.size()) != 0)
            world.complain("a message has other bytes");
          std::fill_n(end->incoming->bytes.begin() + static_cast<std::ptrdiff_t>(slot * slot_bytes),
                      slot_bytes, guard);
        }
        end->incoming->free_slots.push_back(slot);
        continue;
      }
      if (c.id < end->first_id || c.id >= end->first_id + end->ops.size()) {
        world.complain("a completion of no request, or a second one");
        return;
      }
      while (end->first_id <= c.id) {
        const End::Op& op = end->ops.front();
        const bool is_this = end->first_id == c.id;
        if (!is_this && had_failed) world.complain("a request is not flushed in its turn");
        if (!is_this && (op.signals || c.status != Status::Success) && !end->failed())
          world.complain("completions are out of order");
        const std::byte* got = end->landing.data() + end->first_id % sends * slot_bytes;
        if (c.status == Status::Success) {
          if (is_this && !op.signals) world.complain("a completion that was not asked for");
          if (!op.read.empty() && std::memcmp(got, op.read.data(), op.read.size()) != 0)
            world.complain("a READ brings other bytes");
          if ((op.request.opcode == SendOpcode::CompareSwap || op.request.opcode == SendOpcode::FetchAdd) &&
              std::memcmp(got, &op.original, 8) != 0)
            world.complain("an atomic brings another value");
        }
        if (op.by_window) --end->window_uses;
        const SendOpcode opcode = op.request.opcode;
        if (c.status == Status::Success &&
            (opcode == SendOpcode::BindWindow || opcode == SendOpcode::LocalInvalidate))
          end->window_state = end->window_state == End::WindowState::Binding ? End::WindowState::Bound
                                                                             : End::WindowState::Free;
        end->ops.pop_front();
        ++end->first_id;
      }
    }
  }
}

inline void Node::drive() {
  poll();
  for (auto& end : ends) {
    if (end->peer == nullptr) continue;
    Program program(*this, *end);
    const bool fails = end->failed() || end->peer->failed();
    // In XRC the other direction goes on.
    if (!fails || (end->is_xrc() && !end->receives_failed)) program.post_receives();
    if (fails) continue;
    program.post_sends();
  }
  poll();
}

}  // namespace weft::proto::roce::sim
