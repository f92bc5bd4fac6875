// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// World, part: the model. What arrives and matches, what is checked at each completion and at the end. Included by sim_world.hpp.
#pragma once

#include "proto/engine/sim_world.hpp"

namespace weft::proto::sim {

// --- what the link tells ---

template <class L>
void World<L>::assign(Side& side, Posted& record, Sent& message) {
  message.receive = &record;
  message.offset = record.used;
  message.room = std::min(message.bytes.size(), record.memory.size() - record.used);
  record.parts.push_back(&message);
  if (record.multi) {
    record.used += message.room;
    if (record.memory.size() - record.used < side.context->multi_receive_min) end_posting(side, record);
  } else {
    end_posting(side, record);
  }
}

template <class L>
void World<L>::arrived(int from, int to, const Frame& frame) {
  using enum wire::FrameKind;
  switch (frame.head.kind) {
    case Tagged:
    case Msg:
    case TaggedAck:
    case MsgAck:
      return first_frame(from, to, frame, frame.head.length, true);
    case TaggedRts:
    case MsgRts:
      return first_frame(from, to, frame, 0, false);
    case TaggedFirst:
    case MsgFirst:
      return first_frame(from, to, frame, frame.head.length - sizeof(wire::FirstPrefix), true);
    case More: {
      Sent* message = fragmented_[{from, to}];
      if (!check(message != nullptr && message->fragmented_left >= frame.head.length, "bytes of no message"))
        return;
      message->fragmented_left -= frame.head.length;
      message->whole = message->fragmented_left == 0;
      return;
    }
    case Pause:
      paused_.insert({from, to});
      return;
    case Resume:
      paused_.erase({from, to});
      return;
    default:
      return;
  }
}

template <class L>
void World<L>::first_frame(int from, int to, const Frame& frame, size_t bytes, bool carries) {
  using enum wire::FrameKind;
  const wire::FrameKind kind = frame.head.kind;
  auto& order = in_order_[{from, to}];
  if (!check(!order.empty(), "a message that nobody sent")) return;
  Sent& message = *order.front();
  order.pop_front();
  const bool tagged = kind == Tagged || kind == TaggedAck || kind == TaggedRts || kind == TaggedFirst;
  check(message.tagged == tagged && (!tagged || frame.head.a == message.tag) &&
            frame.head.context == message.context,
        "messages change places");
  const bool fragmented = kind == TaggedFirst || kind == MsgFirst;
  message.arrived = true;
  message.fragmented_left = fragmented ? message.bytes.size() - bytes : 0;
  message.whole = carries && message.fragmented_left == 0;
  if (fragmented) fragmented_[{from, to}] = &message;
  if (message.fence) check_fence(message);
  Side& side = *nodes_[size_t(to)]->sides[message.context];
  const auto found = std::find_if(side.posted.begin(), side.posted.end(),
                                  [&](Posted* record) { return accepts(*record, message); });
  if (frame.on_loan) {
    check(side.taking != nullptr && accepts(*side.taking, message) && message.whole && !message.acked &&
              found == side.posted.end() && oldest_unexpected(side, *side.taking) == nullptr,
          "a frame is lent that is not the program's to take");
    side.lent = &message;
    return;
  }
  if (found == side.posted.end()) side.unexpected.push_back(&message);
  else assign(side, **found, message);
}

// FI_FENCE: what was written before it is there.
template <class L>
void World<L>::check_fence(const Sent& fence) {
  for (Sent* op : waiting_) {
    if (op->from != fence.from || op->to != fence.to || op->kind != OpKind::Write || op->refused != 0 ||
        op->cancelled)
      continue;
    if (op->serial < fence.serial)
      check(at_target(*op) == op->bytes, "a fence was passed before an earlier write was done");
  }
}

template <class L>
void World<L>::lost(int at, int peer) {
  for (auto& side : nodes_[size_t(at)]->sides)
    std::erase_if(side->unexpected, [&](Sent* message) { return message->from == peer && !message->whole; });
}

template <class L>
void World<L>::read_queues(Node& node) {
  fi_cq_tagged_entry entries[4];
  fi_addr_t sources[4];
  for (core::CompletionQueue* queue : {&node.tx_cq, &node.rx_cq}) {
    for (;;) {
      const ssize_t got = queue->read<fi_cq_tagged_entry, true>(entries, 4, sources);
      if (got == -FI_EAVAIL) {
        core::CompletionError error;
        if (!check(queue->read_error(error) == 0, "an error that cannot be read")) return;
        check(node.one_queue || is_receive(error) == (queue == &node.rx_cq), "an error in the wrong queue");
        completed(node, error);
        continue;
      }
      if (got <= 0) break;
      for (ssize_t i = 0; i < got; ++i) {
        core::CompletionError entry;
        entry.base = {entries[i].op_context, entries[i].flags, entries[i].len, entries[i].buf,
                      entries[i].data,       entries[i].tag,   sources[i]};
        check(node.one_queue || is_receive(entry) == (queue == &node.rx_cq),
              "a completion in the wrong queue");
        completed(node, entry);
      }
    }
  }
}

// --- transmit operations ---

template <class L>
void World<L>::transmitted(void* context, int error) {
  if (context == nullptr) {  // an injected message
    check(inject_errors_ && killed_ && (error == FI_EIO || error == FI_EHOSTUNREACH),
          "an injected message failed without cause");
    return;
  }
  auto* op = static_cast<Sent*>(context);
  if (!check(waiting_.erase(op) == 1, "an operation completes twice, or one that was not posted")) return;
  op->completed = true;
  op->failed_to_send = error != 0;
  Node& target = *nodes_[size_t(op->to)];
  if (op->kind == OpKind::Write || op->kind == OpKind::Read) target.busy[op->slot] = false;
  const bool data_comes =
      op->kind == OpKind::Write && (op->flags & FI_REMOTE_CQ_DATA) != 0 && op->refused == 0;
  if (op->cancelled || error == FI_ECANCELED) {
    check(op->cancelled && error == FI_ECANCELED, "cancelled, and yet not");
    if (data_comes) target.expected_data.erase(target.expected_data.find(op->data));
  } else if (error == FI_EIO || error == FI_EHOSTUNREACH) {
    check(!target.alive, "an operation failed although its peer lives");
  } else if (error != op->refused) {
    check(!target.alive, "an operation completes with another status than it should");
  } else if (error == 0) {
    check_result(*op, target);
  }
  if (op->kind != OpKind::Read) op->memory.spoil();  // the program has its buffer back
}

template <class L>
void World<L>::check_result(const Sent& op, Node& target) {
  switch (op.kind) {
    case OpKind::Write:
      if (target.alive) check(at_target(op) == op.bytes, "a write is complete and the bytes are not there");
      return;
    case OpKind::Read:
      check(op.memory.get() == op.bytes, "a read brought other bytes");
      return;
    case OpKind::Atomic:
      return check_atomic(op, target);
    default:
      break;
  }
  if (!op.acked || op.discarded || op.taken || !target.alive) return;
  if (!check(op.receive != nullptr, "delivery is complete and nobody has received")) return;
  const Bytes there = op.receive->memory.get();
  check(std::equal(op.bytes.begin(), op.bytes.begin() + long(op.room), there.begin() + long(op.offset)),
        "delivery is complete and the bytes are not there");
}

// Cells are used by one initiator each, so the order of posting tells every value.
template <class L>
void World<L>::check_atomic(const Sent& op, Node& target) {
  std::array<uint64_t, cells_per_engine> cells{};
  std::vector<uint64_t> old;
  for (const Sent* step : target.atomics[op.from]) {
    if (step->cancelled) continue;
    old.clear();
    for (size_t i = 0; i < step->operand.size(); ++i) {
      uint64_t& cell = cells[step->cell + i];
      old.push_back(cell);
      if (step->atomic_op == FI_SUM) cell += step->operand[i];
      if (step->atomic_op == FI_ATOMIC_WRITE || (step->atomic_op == FI_CSWAP && cell == step->compare[i]))
        cell = step->operand[i];
    }
    if (step == &op) break;
  }
  if (op.atomic_kind != core::AtomicKind::Write)
    check(op.result.get() == as_bytes(old), "an atomic operation fetched another value");
}

// --- receives ---

template <class L>
void World<L>::received(Node& node, const core::CompletionError& entry) {
  if (entry.base.context == nullptr) {
    check(entry.err == 0 && entry.base.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA),
          "a completion of nothing");
    node.seen_data.insert(entry.base.data);
    return;
  }
  const auto found = by_handle_.find(entry.base.context);
  if (!check(found != by_handle_.end(), "a completion with a foreign context")) return;
  Posted& record = *found->second;
  if (!check(!record.ended, "a receive completes twice")) return;
  if (record.peek) return answered(record, entry);
  Side& side = *node.sides[record.side];
  ++(entry.err == 0 ? side.good : side.bad);
  if (entry.err == FI_ECANCELED) {
    check(record.cancelled && std::all_of(record.parts.begin(), record.parts.end(),
                                          [](Sent* part) { return part->received; }),
          "a receive ends cancelled without cause");
    check_returned(record, entry);
    record.ended = true;
    return;
  }
  if (entry.err == FI_EIO && record.posted && part_of(record, entry) == nullptr) {
    // Only a dead source could have satisfied it.
    const auto from = std::find(node.addresses.begin(), node.addresses.end(), record.source);
    check(directed_ && record.source != FI_ADDR_UNSPEC && from != node.addresses.end() &&
              !nodes_[size_t(from - node.addresses.begin())]->alive,
          "a posted receive fails though its source lives");
    check_returned(record, entry);
    end_posting(side, record);
    record.ended = true;
    return;
  }
  received_part(node, record, entry);
}

// fi_msg(3): the entry that ends a multi-receive buffer says so, and no other entry does.
template <class L>
void World<L>::check_returned(const Posted& record, const core::CompletionError& entry) {
  check(((entry.base.flags & FI_MULTI_RECV) != 0) == record.multi, "FI_MULTI_RECV is missing or too much");
}

template <class L>
void World<L>::answered(Posted& record, const core::CompletionError& entry) {
  record.ended = true;
  if (record.peeked == nullptr) {
    check(entry.err == FI_ENOMSG, "a peek found what is not there");
    return;
  }
  const Sent& message = *record.peeked;
  check(entry.err == 0 && entry.base.len == message.bytes.size() && entry.base.tag == message.tag,
        "a peek tells something else");
}

template <class L>
Sent* World<L>::part_of(Posted& record, const core::CompletionError& entry) {
  const size_t offset =
      record.multi ? size_t(static_cast<std::byte*>(entry.base.buf) - record.memory.base()) : 0;
  for (Sent* part : record.parts) {
    if (part->received || part->offset != offset) continue;
    if (!record.multi || entry.err == FI_EIO ||
        (part->room == entry.base.len && part->data == entry.base.data))
      return part;
  }
  return nullptr;
}

template <class L>
void World<L>::received_part(Node& node, Posted& record, const core::CompletionError& entry) {
  Sent* found = part_of(record, entry);
  if (!check(found != nullptr, "a receive completes without a message")) return;
  Sent& part = *found;
  part.received = true;
  const bool has_data = (part.flags & FI_REMOTE_CQ_DATA) != 0;
  const bool cut = part.room < part.bytes.size();
  const bool last = (entry.base.flags & FI_MULTI_RECV) != 0;
  if (entry.err == FI_EIO) {
    check(!nodes_[size_t(part.from)]->alive, "a receive failed although the sender lives");
  } else {
    check(entry.err == (cut ? FI_ETRUNC : 0), "a receive completes with another status than it should");
    check(entry.base.len == part.room && (!cut || entry.olen == part.bytes.size() - part.room),
          "a wrong length");
    check((entry.base.flags & ~uint64_t{FI_MULTI_RECV}) ==
              (FI_RECV | (part.tagged ? FI_TAGGED : FI_MSG) | (has_data ? FI_REMOTE_CQ_DATA : 0)),
          "wrong flags");
    check(entry.base.tag == part.tag && entry.base.data == part.data, "a wrong tag or wrong data");
    const fi_addr_t source = node.addresses[size_t(part.from)];
    check(entry.base.source == source || renamed_ || (!directed_ && entry.base.source == FI_ADDR_NOTAVAIL),
          "a wrong source");
    const Bytes there = record.memory.get();
    check(std::equal(part.bytes.begin(), part.bytes.begin() + long(part.room),
                     there.begin() + long(part.offset)),
          "other bytes were received");
    if (!record.multi)
      check(std::all_of(there.begin() + long(part.room), there.end(),
                        [](std::byte byte) { return byte == untouched; }),
            "bytes beyond the message were touched");
  }
  const bool all =
      std::all_of(record.parts.begin(), record.parts.end(), [](Sent* each) { return each->received; });
  if (last) check(record.multi && !record.posted && all, "a buffer comes back while it is in use");
  record.ended = !record.multi || last;
}

// --- the end ---

// Lets everything come to an end: posts what is missing, cancels what is too much, and looks at what is left.
template <class L>
void World<L>::run_to_the_end() {
  net_.refusal = net_.delay = net_.starving = net_.unseen = net_.parting = net_.unreadable = 0;
  for (auto& node : nodes_) {
    while (!node->taken.empty()) release(*node, 0);
    while (!node->reserved.empty()) end_reserved(*node, 0, pick(2) == 0);
  }
  for (int round = 0; wrong_.empty() && !at_rest(); ++round) {
    if (round == 5000) return wrong("it never comes to rest: " + what_waits());
    for (auto& node : nodes_) {
      if (!node->alive) continue;
      node->engine->progress();
      read_queues(*node);
    }
    if (net_.quiet()) help();
  }
  for (auto& node : nodes_) {
    if (!node->alive) continue;
    for (auto& side : node->sides) {
      while (wrong_.empty() && !side->posted.empty()) {
        read_queues(*node);  // receives from a dead source end by themselves
        if (side->posted.empty()) break;
        Posted& record = *side->posted.front();
        check(side->context->cancel(&record.handle) == 0, "a posted receive cannot be cancelled");
        record.cancelled = true;
        end_posting(*side, record);
      }
    }
    read_queues(*node);
  }
  if (wrong_.empty()) check_end();
}

template <class L>
bool World<L>::at_rest() {
  if (!net_.quiet() || !waiting_.empty()) return false;
  for (auto& node : nodes_) {
    if (!node->alive) continue;
    if (node->engine->has_unsent()) return false;
    if (node->closed_context && node->engine->transmit_in_use() != 0)
      return false;  // nobody else waits for these
    for (auto& side : node->sides)
      if (!side->unexpected.empty() || !side->claimed.empty()) return false;
  }
  for (const auto& record : posted_) {
    if (!nodes_[record->node]->alive) continue;
    for (const Sent* part : record->parts)
      if (!part->received) return false;
  }
  return true;
}

template <class L>
std::string World<L>::what_waits() {
  std::string out;
  for (const Sent* op : waiting_)
    out += "operation " + std::to_string(op->serial) + " of kind " + std::to_string(int(op->kind)) +
           " from " + std::to_string(op->from) + " to " + std::to_string(op->to) + ", " +
           std::to_string(op->bytes.size()) + " bytes" + (op->acked ? ", acknowledged" : "") +
           (op->arrived ? ", arrived" : "") + (op->receive != nullptr ? ", matched; " : "; ");
  for (const auto& [ends, wire] : net_.wires)
    if (!wire.empty())
      out += std::to_string(wire.size()) + " frames from " + std::to_string(ends.first) + " to " +
             std::to_string(ends.second) + "; ";
  for (const auto& node : nodes_) {
    if (!node->alive) continue;
    if (node->engine->has_unsent()) out += "something unsent; ";
    for (const auto& side : node->sides)
      out += std::to_string(side->unexpected.size()) + " unexpected, " +
             std::to_string(side->claimed.size()) + " claimed; ";
  }
  for (const auto& record : posted_)
    for (const Sent* part : record->parts)
      if (nodes_[record->node]->alive && !part->received)
        out += "a receive of " + std::to_string(part->serial) + " waits; ";
  return out;
}

// Receives the oldest message that nobody wants.
template <class L>
void World<L>::help() {
  for (auto& node : nodes_) {
    if (!node->alive) continue;
    for (auto& side : node->sides) {
      if (!side->claimed.empty()) take_claimed(*node, *side);
      if (side->unexpected.empty()) continue;
      const Sent& message = *side->unexpected.front();
      auto record = make_record(*side);
      record->tagged = message.tagged;
      record->tag = message.tag;
      record->memory = Pieces(message.bytes.size(), 1, untouched);
      if (post(*side, std::move(record))) continue;
      read_queues(*node);
      if (side->posted.empty()) continue;
      Posted& other = *side->posted.front();  // the table is full of receives that nobody needs
      check(side->context->cancel(&other.handle) == 0, "a posted receive cannot be cancelled");
      other.cancelled = true;
      end_posting(*side, other);
    }
  }
}

template <class L>
void World<L>::check_end() {
  for (const auto& op : sent_)
    if (op->returned)
      check(op->memory.is_spoilt() && op->result.is_spoilt(),
            "a buffer was written to that is the program's again");
  for (const auto& record : posted_)
    if (nodes_[record->node]->alive) check(record->ended, "a receive never completes");
  for (auto& node : nodes_) {
    if (!node->alive) continue;
    check(node->engine->transmit_in_use() == 0, "operations are left in the transmit table");
    check(node->engine->service_in_use() == 0, "operations are left in the service table");
    check(!node->engine->has_unsent(), "the engine believes that something is unsent");
    for (auto& side : node->sides) {
      check(side->context->ops.in_use() == 0, "operations are left in a receive table");
      check(side->context->unexpected_bytes == 0, "unexpected bytes are left");
      check(side->context->tags.empty() && side->context->messages.empty(), "something is left in a matcher");
      check(side->receives.value() == side->good && side->receives.errors() == side->bad,
            "the receive counter is wrong");
    }
    if (killed_) {
      check(std::includes(node->expected_data.begin(), node->expected_data.end(), node->seen_data.begin(),
                          node->seen_data.end()),
            "data that nobody sent");
    } else {
      check(node->expected_data == node->seen_data, "data of a write is lost");
      check_counters(*node);
    }
  }
  for (const auto& [who, whom] : paused_)
    check(!nodes_[size_t(who)]->alive || !nodes_[size_t(whom)]->alive,
          "a peer stays paused although all is received");
  for (const auto& [region, owner] : regions_)
    if (nodes_[owner]->alive) check(!region->pinned(), "a region stays pinned");
}

template <class L>
void World<L>::check_counters(Node& node) {
  std::array<uint64_t, 3> good{}, bad{};
  uint64_t remote_reads = 0, remote_writes = 0;
  for (const auto& entry : sent_) {
    const Sent& op = *entry;
    if (op.abandoned) continue;
    const bool failed = op.failed_to_send || (op.returned && op.refused != 0);
    const bool atomic = op.kind == OpKind::Atomic;
    const bool reads = op.kind == OpKind::Read || (atomic && op.atomic_kind != core::AtomicKind::Write);
    const size_t which = op.kind == OpKind::Send ? 0 : reads ? 1 : 2;
    if (nodes_[size_t(op.from)].get() == &node) ++(failed ? bad : good)[which];
    if (nodes_[size_t(op.to)].get() != &node || failed || op.kind == OpKind::Send) continue;
    ++(op.kind == OpKind::Read || (atomic && op.atomic_op == FI_ATOMIC_READ) ? remote_reads : remote_writes);
  }
  const auto counts = [&](const core::Counter& counter, size_t which) {
    if (node.closed_context) return counter.value() <= good[which] && counter.errors() <= bad[which];
    return counter.value() == good[which] && counter.errors() == bad[which];
  };
  if (node.tx.sends != nullptr) check(counts(node.sends, 0), "the send counter is wrong");
  check(counts(node.reads, 1), "the read counter is wrong");
  check(counts(node.writes, 2), "the write counter is wrong");
  uint64_t seen_reads = 0, seen_writes = 0;
  for (auto& side : node.sides) {
    seen_reads += side->reads.value();
    seen_writes += side->writes.value();
  }
  check(exposing_ || (seen_reads == remote_reads && seen_writes == remote_writes),
        "a remote counter is wrong");
}

}  // namespace weft::proto::sim
