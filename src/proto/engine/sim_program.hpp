// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// World, part: the random program. Included by sim_world.hpp.
#pragma once

#include "proto/engine/sim_world.hpp"

namespace weft::proto::sim {

template <class L>
void World<L>::send(size_t who) {
  Node& node = *nodes_[who];
  auto op = std::make_unique<Sent>();
  op->from = static_cast<int>(who);
  op->to = static_cast<int>(pick(nodes_.size()));
  op->context = static_cast<uint8_t>(pick(node.sides.size()));
  op->tagged = pick(2) == 0;
  op->tag = op->tagged ? pick(4) : 0;
  op->bytes = some_bytes(some_length());
  const fi_addr_t dest = destination(node, static_cast<size_t>(op->to), op->context);
  ssize_t status;
  const uint64_t call = pick(4);
  if (call == 0 && op->bytes.size() <= node.engine->limits().inject_bytes) {
    op->memory = Pieces(op->bytes, 1);
    op->silent = true;
    Engine<L>& engine = *node.engine;
    const void* const bytes = op->memory.base();
    const size_t length = op->bytes.size();
    if (pick(2) == 0)
      status = op->tagged ? engine.template inject_cached<true>(node.tx, bytes, length, dest, op->tag)
                          : engine.template inject_cached<false>(node.tx, bytes, length, dest, 0);
    else
      status = op->tagged ? engine.template inject<true>(node.tx, bytes, length, dest, op->tag)
                          : engine.template inject<false>(node.tx, bytes, length, dest, 0);
    op->memory.spoil();
  } else if (call == 1) {
    op->memory = Pieces(op->bytes, 1);
    status = op->tagged ? node.engine->template send<true>(node.tx, op->memory.base(), op->bytes.size(), dest,
                                                           op->tag, op.get())
                        : node.engine->template send<false>(node.tx, op->memory.base(), op->bytes.size(),
                                                            dest, 0, op.get());
  } else {
    op->memory = Pieces(op->bytes, 1 + pick(iov_max));
    op->flags = some_flags(node, op->bytes.size());
    if (pick(4) == 0) op->flags |= FI_REMOTE_CQ_DATA;
    op->data = (op->flags & FI_REMOTE_CQ_DATA) != 0 ? net_.random() : 0;
    op->acked = (op->flags & FI_DELIVERY_COMPLETE) != 0;
    op->fence = (op->flags & FI_FENCE) != 0;
    Request request = request_of(*op, dest);
    status = node.engine->post(node.tx, request);
    if ((op->flags & FI_INJECT) != 0) op->memory.spoil();
  }
  if (!accepted(status, *op)) return;
  in_order_[{op->from, op->to}].push_back(op.get());
  keep(std::move(op));
}

template <class L>
void World<L>::rma(size_t who) {
  Node& node = *nodes_[who];
  const size_t to = pick(nodes_.size());
  Node& target = *nodes_[to];
  const size_t slot = pick(slot_count);
  if (target.busy[slot]) return;
  auto op = std::make_unique<Sent>();
  op->kind = pick(2) == 0 ? OpKind::Write : OpKind::Read;
  op->from = static_cast<int>(who);
  op->to = static_cast<int>(to);
  op->context = static_cast<uint8_t>(pick(node.sides.size()));
  op->acked = true;
  op->slot = slot;
  op->flags = some_flags(node, 0) & ~FI_INJECT;
  if (pick(2) == 0) op->flags |= FI_MORE;
  const bool write = op->kind == OpKind::Write;
  size_t left = some_length();
  uint64_t at = slot * slot_bytes + pick(40);
  for (size_t n = 1 + pick(3); n > 0; --n) {
    const size_t length = n == 1 ? left : left / 2;
    op->targets.push_back({at, length, open_key});
    at += length + pick(30);
    left -= length;
  }
  Bytes bytes = some_bytes(total(op->targets));
  if (write) {
    op->bytes = bytes;
    if (bytes.size() <= node.engine->limits().inject_bytes && pick(3) == 0) op->flags |= FI_INJECT;
    if (pick(3) == 0) op->flags |= FI_REMOTE_CQ_DATA;
    op->data = (op->flags & FI_REMOTE_CQ_DATA) != 0 ? net_.random() : 0;
  } else if (target.alive) {
    for (const fi_rma_iov& piece : op->targets)
      for (size_t i = 0; i < piece.len; ++i)
        target.memory[piece.addr + i] = static_cast<std::byte>(net_.random());
    op->bytes = at_target(*op);
  }
  spoil_target(*op);
  op->memory = write ? Pieces(bytes, 1 + pick(iov_max)) : Pieces(bytes.size(), 1 + pick(iov_max), untouched);
  Request request = request_of(*op, destination(node, to, op->context));
  request.targets = op->targets.data();
  request.target_count = op->targets.size();
  const ssize_t status = node.engine->post(node.tx, request);
  if ((op->flags & FI_INJECT) != 0) op->memory.spoil();
  if (!accepted(status, *op)) return;
  target.busy[slot] = true;
  if ((op->flags & FI_REMOTE_CQ_DATA) != 0 && op->refused == 0) target.expected_data.insert(op->data);
  keep(std::move(op));
}

template <class L>
void World<L>::atomic(size_t who) {
  Node& node = *nodes_[who];
  auto op = std::make_unique<Sent>();
  op->kind = OpKind::Atomic;
  op->from = static_cast<int>(who);
  op->to = static_cast<int>(pick(nodes_.size()));
  op->context = static_cast<uint8_t>(pick(node.sides.size()));
  op->acked = true;
  op->cell = pick(cells_per_engine);
  op->atomic_kind = one_of({core::AtomicKind::Write, core::AtomicKind::Fetch, core::AtomicKind::Compare});
  op->atomic_op = op->atomic_kind == core::AtomicKind::Write   ? one_of<uint32_t>({FI_SUM, FI_ATOMIC_WRITE})
                  : op->atomic_kind == core::AtomicKind::Fetch ? one_of<uint32_t>({FI_SUM, FI_ATOMIC_READ})
                                                               : uint32_t{FI_CSWAP};
  const size_t count = 1 + pick(cells_per_engine - op->cell);
  for (size_t i = 0; i < count; ++i) {
    op->operand.push_back(pick(5));
    op->compare.push_back(pick(5));
  }
  op->flags = some_flags(node, 8 * count);
  const bool operand = op->atomic_op != FI_ATOMIC_READ;
  if (operand) op->memory = Pieces(as_bytes(op->operand), 1);
  op->compare_memory = Pieces(as_bytes(op->compare), 1);
  op->result = Pieces(8 * count, 1, untouched);
  op->targets.push_back(
      {slot_bytes * slot_count + 8 * (cells_per_engine * who + op->cell), 8 * count, open_key});
  spoil_target(*op);
  if (op->refused == FI_EACCES && op->targets[0].key == read_only_key && !operand) op->refused = 0;
  Request request = request_of(*op, destination(node, static_cast<size_t>(op->to), op->context));
  request.targets = op->targets.data();
  request.target_count = 1;
  request.datatype = FI_UINT64;
  request.atomic_op = op->atomic_op;
  request.atomic_kind = op->atomic_kind;
  request.compare = op->compare_memory.iov();
  request.compare_count = op->atomic_kind == core::AtomicKind::Compare ? 1 : 0;
  request.result = op->result.iov();
  request.result_count = op->atomic_kind == core::AtomicKind::Write ? 0 : 1;
  const ssize_t status = node.engine->post(node.tx, request);
  if (status == 0 && (op->flags & FI_INJECT) != 0) op->memory.spoil();
  if (!accepted(status, *op)) return;
  if (op->refused == 0) nodes_[static_cast<size_t>(op->to)]->atomics[op->from].push_back(op.get());
  keep(std::move(op));
}

template <class L>
void World<L>::receive(Node& node) {
  Side& side = *node.sides[pick(node.sides.size())];
  if (!side.claimed.empty() && pick(2) == 0) return take_claimed(node, side);
  auto record = make_record(side);
  record->tagged = pick(2) == 0;
  record->tag = record->tagged ? pick(4) : 0;
  record->ignore = record->tagged ? one_of<uint64_t>({0, 0, 1, 3}) : 0;
  if (directed_ && pick(2) == 0) record->source = node.addresses[pick(nodes_.size())];
  record->multi = !record->tagged && pick(3) == 0;
  record->memory = Pieces(record->multi ? 500 + pick(12'000) : some_length(),
                          record->multi ? 1 : 1 + pick(iov_max), untouched);
  (void)post(side, std::move(record));
}

template <class L>
bool World<L>::post(Side& side, std::unique_ptr<Posted> record) {
  ssize_t status;
  if (record->tagged && record->memory.count() == 1 && pick(2) == 0) {
    status = side.context->receive_tagged(record->memory.base(), record->memory.size(), record->source,
                                          record->tag, record->ignore, &record->handle);
  } else {
    status = side.context->receive(request_of(*record, record->multi ? FI_MULTI_RECV : 0));
  }
  if (status == -FI_EAGAIN) return false;
  check(status == 0, "a receive was refused");
  Posted& posted = *record;
  posted_.push_back(std::move(record));
  by_handle_[&posted.handle] = &posted;
  posted.posted = true;
  side.posted.push_back(&posted);
  for (size_t i = 0; i < side.unexpected.size() && posted.posted;) {
    Sent& message = *side.unexpected[i];
    if (!accepts(posted, message)) {
      ++i;
      continue;
    }
    side.unexpected.erase(side.unexpected.begin() + long(i));
    assign(side, posted, message);
  }
  return true;
}

template <class L>
void World<L>::peek(Node& node) {
  Side& side = *node.sides[pick(node.sides.size())];
  auto record = make_record(side);
  record->peek = true;
  record->tagged = pick(2) == 0;
  record->tag = pick(4);
  record->ignore = one_of<uint64_t>({0, 3});
  const uint64_t also = one_of<uint64_t>({0, FI_CLAIM, FI_DISCARD});
  auto found = std::find_if(side.unexpected.begin(), side.unexpected.end(),
                            [&](Sent* message) { return accepts(*record, *message); });
  if (found != side.unexpected.end()) record->peeked = *found;
  const bool room = side.context->cq == nullptr || !side.context->cq->full();
  const ssize_t status = side.context->peek(request_of(*record, FI_PEEK | also));
  if (!check(status == (room ? 0 : -FI_EAGAIN), "a peek failed") || !room) return;
  by_handle_[&record->handle] = record.get();
  if (record->peeked != nullptr && also != 0) side.unexpected.erase(found);
  if (record->peeked != nullptr && also == FI_DISCARD) record->peeked->discarded = true;
  if (record->peeked != nullptr && also == FI_CLAIM) side.claimed.push_back(record.get());
  posted_.push_back(std::move(record));
}

template <class L>
void World<L>::take_claimed(Node& node, Side& side) {
  read_queues(node);  // the answer to the peek has the same context
  Posted& record = *side.claimed.back();
  if (!check(record.ended, "a peek was not answered")) return;
  if (pick(4) == 0) {
    if (!check(side.context->receive(request_of(record, FI_CLAIM | FI_DISCARD)) == 0, "a discard failed"))
      return;
    record.peeked->discarded = true;
  } else {
    record.memory = Pieces(some_length(), 1 + pick(iov_max), untouched);
    if (side.context->receive(request_of(record, FI_CLAIM)) == -FI_EAGAIN) return;
    record.peek = false;
    assign(side, record, *record.peeked);
  }
  record.ended = false;
  std::erase(side.claimed, &record);
}

// --- what only some links have: the fast poll of direct linking, messages in place ---

template <class L>
void World<L>::shortcut(size_t who) {
  Node& node = *nodes_[who];
  switch (pick(5)) {
    case 0:
      return take(node);
    case 1:
      return node.taken.empty() ? take(node) : release(node, pick(node.taken.size()));
    case 2:
      return node.reserved.empty() ? reserve(who)
                                   : end_reserved(node, pick(node.reserved.size()), pick(3) != 0);
    default:
      return read_fast(node);
  }
}

// As fi_cq_read() does that is inlined: a message goes past the queue, which is empty.
template <class L>
void World<L>::read_fast(Node& node) {
  if constexpr (HasFastPoll<L>) {
    core::CompletionQueue& queue = node.receive_queue();
    if (!queue.is_plainly_empty()) return read_queues(node);
    typename L::Seen seen;
    core::CompletionError entry;
    const auto give = [&](void* context, size_t length, void* to, uint64_t tag, fi_addr_t source) {
      entry.base = {context, FI_RECV | FI_TAGGED, length, to, 0, tag, source};
    };
    const FastPoll found = node.engine->fast_poll(queue, seen);
    if (found == FastPoll::Frame && node.engine->take_short(queue, seen, give)) return received(node, entry);
    if (found != FastPoll::Nothing) node.engine->progress();
  }
  read_queues(node);
}

template <class L>
void World<L>::take([[maybe_unused]] Node& node) {
  if constexpr (HasLoans<L>) {
    if (node.taken.size() >= 4) return;
    Side& side = *node.sides[pick(node.sides.size())];
    const auto record = make_record(side);
    record->tagged = pick(2) == 0;
    record->tag = record->tagged ? pick(4) : 0;
    record->ignore = record->tagged ? one_of<uint64_t>({0, 1, 3}) : 0;
    if (directed_ && pick(2) == 0) record->source = node.addresses[pick(nodes_.size())];
    side.taking = record.get();
    side.lent = nullptr;
    LoanedMessage out;
    const int status = node.engine->take(*side.context, request_of(*record, 0), out);
    side.taking = nullptr;
    if (status != 0) {
      check(status == -FI_EAGAIN || status == -FI_EMSGSIZE, "a message cannot be taken");
      check(side.lent == nullptr, "a frame is lent to nobody");
      return;
    }
    check(out.in_link == (side.lent != nullptr), "a message is said to be where it is not");
    Sent* message = side.lent != nullptr ? side.lent : oldest_unexpected(side, *record);
    if (!check(message != nullptr && message->whole, "a message is taken that nobody sent")) return;
    std::erase(side.unexpected, message);
    message->received = message->taken = true;
    check(out.length == message->bytes.size() && out.tag == message->tag && out.cq_data == message->data,
          "another message was taken than the oldest");
    node.taken.push_back({out.handle, out.data, message});
    check(node.taken.back().is_intact(), "other bytes were taken");
  }
}

template <class L>
void World<L>::release([[maybe_unused]] Node& node, [[maybe_unused]] size_t index) {
  if constexpr (HasLoans<L>) {
    const Taken taken = node.taken[index];
    node.taken.erase(node.taken.begin() + long(index));
    check(taken.is_intact(), "a message changes while it is read in place");
    check(node.engine->release(taken.handle) == 0, "a message that was taken cannot be released");
    check(node.engine->release(taken.handle) == -FI_EINVAL, "a message is released twice");
  }
}

// The message has its place among those to its peer from here on.
template <class L>
void World<L>::reserve([[maybe_unused]] size_t who) {
  if constexpr (HasLoans<L>) {
    Node& node = *nodes_[who];
    auto op = std::make_unique<Sent>();
    op->from = static_cast<int>(who);
    op->to = static_cast<int>(pick(nodes_.size()));
    op->context = static_cast<uint8_t>(pick(node.sides.size()));
    op->tagged = pick(2) == 0;
    op->tag = op->tagged ? pick(4) : 0;
    op->bytes = some_bytes(pick(L::in_place_bytes_max + 1));
    op->silent = true;
    Reserved buffer;
    const fi_addr_t dest = destination(node, static_cast<size_t>(op->to), op->context);
    const int status = node.engine->reserve(dest, op->bytes.size() + pick(20), buffer.handle, buffer.at);
    if (status != 0) {
      check(status == -FI_EAGAIN || status == -FI_EBUSY || status == -FI_EMSGSIZE || killed_,
            "a buffer cannot be reserved");
      return;
    }
    in_order_[{op->from, op->to}].push_back(op.get());
    buffer.message = keep(std::move(op));
    node.reserved.push_back(buffer);
  }
}

template <class L>
void World<L>::end_reserved([[maybe_unused]] Node& node, [[maybe_unused]] size_t index,
                            [[maybe_unused]] bool send) {
  if constexpr (HasLoans<L>) {
    const Reserved buffer = node.reserved[index];
    node.reserved.erase(node.reserved.begin() + long(index));
    Sent& op = *buffer.message;
    WrittenMessage message;
    message.tagged = op.tagged;
    message.tag = op.tag;
    message.length = op.bytes.size();
    message.has_data = pick(4) == 0;
    op.data = message.cq_data = message.has_data ? net_.random() : 0;
    if (message.has_data) op.flags |= FI_REMOTE_CQ_DATA;
    std::copy(op.bytes.begin(), op.bytes.end(), buffer.at);
    if (!send) check(node.engine->abandon_room(buffer.handle) == 0, "a buffer cannot be abandoned");
    else send = node.engine->commit(node.tx, buffer.handle, message) == 0;
    if (send) return;
    op.abandoned = true;
    std::erase(in_order_[{op.from, op.to}], &op);
  }
}

template <class L>
void World<L>::cancel(size_t who) {
  Node& node = *nodes_[who];
  if (pick(2) == 0 && !waiting_.empty()) {
    Sent& op = **std::next(waiting_.begin(), long(pick(waiting_.size())));
    if (op.from != int(who) || node.engine->cancel(&op) != 0) return;
    check(!op.arrived, "a message was cancelled that had been sent");
    op.cancelled = true;
    std::erase(in_order_[{op.from, op.to}], &op);
    return;
  }
  Side& side = *node.sides[pick(node.sides.size())];
  if (posted_.empty()) return;
  Posted& record = *posted_[pick(posted_.size())];
  const bool here = std::find(side.posted.begin(), side.posted.end(), &record) != side.posted.end();
  const ssize_t status = side.context->cancel(&record.handle);
  if (here && status == -FI_ENOENT && killed_ && directed_ && record.source != FI_ADDR_UNSPEC)
    return;  // its source has died: the error waits in the queue
  if (!check(status == (here ? 0 : -FI_ENOENT), "cancel of a receive: neither cancelled nor completed") ||
      !here)
    return;
  record.cancelled = true;
  end_posting(side, record);
}

// The transmit context goes, and another takes its place. What was accepted goes on without the program's buffers. Where peers read what was
// announced to them that cannot be.
template <class L>
void World<L>::close_context(size_t who) {
  if constexpr (HasRemoteMemory<L>) return;
  Node& node = *nodes_[who];
  read_queues(node);
  node.engine->release_transmit_context(node.tx);
  node.closed_context = true;
  std::erase_if(waiting_, [&](Sent* op) {
    if (op->from != int(who)) return false;
    op->completed = op->returned = true;
    for (const Pieces* buffer : {&op->memory, &op->result, &op->compare_memory}) buffer->spoil();
    return true;
  });
}

template <class L>
void World<L>::kill(size_t who) {
  Node& node = *nodes_[who];
  killed_ = true;
  node.alive = false;
  node.taken.clear();
  for (const Reserved& one : node.reserved) one.message->abandoned = true;
  node.reserved.clear();
  net_.kill(int(who));
  node.engine.reset();
  std::erase_if(waiting_, [&](Sent* op) { return op->from == int(who); });
  for (const auto& op : sent_)
    if (op->from == int(who)) op->completed = true;
}

// Sometimes the peer's memory is not what the program believes.
template <class L>
void World<L>::spoil_target(Sent& op) {
  fi_rma_iov& piece = op.targets[pick(op.targets.size())];
  switch (pick(12)) {
    case 0:
      piece.key = 99;
      op.refused = FI_EKEYREJECTED;
      break;
    case 1:
      piece.addr = memory_bytes - piece.len + 1 + pick(100);
      op.refused = FI_EACCES;
      break;
    case 2:
      piece.key = read_only_key;
      op.refused = op.kind == OpKind::Read ? 0 : FI_EACCES;
      break;
    default:
      break;
  }
}

template <class L>
void World<L>::step() {
  const size_t who = pick(nodes_.size());
  Node& node = *nodes_[who];
  if (!node.alive) return;
  const uint64_t what = pick(100);
  if (what < 25) {
    send(who);
  } else if (what < 45) {
    receive(node);
  } else if (what < 52) {
    rma(who);
  } else if (what < 57) {
    atomic(who);
  } else if (what < 61) {
    peek(node);
  } else if (what < 64) {
    cancel(who);
  } else if (what < 68) {
    shortcut(who);
  } else if (what < 80) {
    read_queues(node);
  } else if (what < 81) {
    pick(2) == 0 ? unknow(node) : close_context(who);
  } else if (what < 99 || killed_ || pick(6) != 0) {
    node.engine->progress();
  } else {
    kill(who);
  }
}

// The program takes an address out of its vector; operations under way go on.
template <class L>
void World<L>::unknow(Node& node) {
  fi_addr_t& address = node.addresses[pick(nodes_.size())];
  if (directed_ || address == FI_ADDR_NOTAVAIL) return;
  check(node.av.remove(address) == 0, "an address cannot be removed");
  address = FI_ADDR_NOTAVAIL;
  renamed_ = true;
}

}  // namespace weft::proto::sim
