// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Receive contexts off the fast path: requests with flags, unexpected messages and their bound, multi-receive buffers, errors.
#include "proto/engine/context.hpp"

#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/assert.hpp"

namespace weft::proto {
namespace {

constexpr size_t unexpected_overhead = sizeof(Unexpected) + 64;  // what one message costs besides its payload

// Deferred work reports to its own counter only, unless it asks for more (fi_trigger(3), deferred work queues). Failures are always told.
bool is_quiet(const core::Counter* extra_counter, uint64_t flags) noexcept {
  return extra_counter != nullptr && (flags & FI_COMPLETION) == 0;
}

uint64_t receive_flags(bool tagged, bool has_data) noexcept {
  return FI_RECV | (tagged ? FI_TAGGED : FI_MSG) | (has_data ? FI_REMOTE_CQ_DATA : 0);
}

}  // namespace

RxContext::~RxContext() = default;

// --- the program's side ---

ssize_t RxContext::receive(const ReceiveRequest& request) noexcept {
  if (request.iov_count > iov_max) return -FI_EINVAL;
  if ((request.flags & FI_CLAIM) != 0 && (request.flags & FI_PEEK) == 0) {
    auto* context = static_cast<fi_context*>(request.context);
    if (context == nullptr) return -FI_EINVAL;
    auto* message = static_cast<Unexpected*>(context->internal[0]);
    const auto found = std::find(claimed_.begin(), claimed_.end(), message);
    if (found == claimed_.end() || !message->claimed) return -FI_EINVAL;
    if ((request.flags & FI_DISCARD) != 0) {
      claimed_.erase(found);
      const size_t length = message->length;
      const bool tagged = message->tagged;
      const uint64_t tag = message->tag;
      discard(*message);
      core::CompletionQueue* const answers = cq != nullptr ? cq : reports;
      if (answers != nullptr && (!selective || (request.flags & FI_COMPLETION) != 0))
        answers->push(
            {request.context, receive_flags(tagged, false), length, nullptr, 0, tag, FI_ADDR_NOTAVAIL});
      return 0;
    }
    Op* op = ops.acquire();
    if (op == nullptr) return -FI_EAGAIN;
    claimed_.erase(found);
    void* first = request.iov_count > 0 ? request.iov[0].iov_base : nullptr;
    fill(*op, first, total_bytes(request.iov, request.iov_count), request.context, completes(request.flags));
    std::copy_n(request.iov, request.iov_count, op->iov.begin());
    op->iov_count = static_cast<uint8_t>(request.iov_count);
    op->tagged = message->tagged;
    op->flags = request.flags;
    op->tag = message->tag;
    claim(*op, *message);
    return 0;
  }
  const bool multi = !request.tagged && (request.flags & FI_MULTI_RECV) != 0;
  if (multi && request.iov_count != 1) return -FI_EINVAL;  // parts are cut off one stretch of memory
  Op* op = ops.acquire();
  if (op == nullptr) return -FI_EAGAIN;
  void* first = request.iov_count > 0 ? request.iov[0].iov_base : nullptr;
  fill(*op, first, total_bytes(request.iov, request.iov_count), request.context, completes(request.flags));
  std::copy_n(request.iov, request.iov_count, op->iov.begin());
  op->iov_count = static_cast<uint8_t>(request.iov_count);
  op->tagged = request.tagged;
  op->flags = request.flags;
  op->tag = request.tag;
  op->ignore = request.tagged ? request.ignore : 0;
  op->source = directed ? request.source : FI_ADDR_UNSPEC;
  op->extra_counter = request.extra_counter;
  if (is_quiet(request.extra_counter, request.flags)) op->completes = false;
  op->multi = multi;
  op->done = 0;
  op->stage = OpStage::Posted;
  if (op->multi) {
    // Posted first: each message that waits takes its part, until the buffer is used up.
    messages.post(*op);
    const uint32_t generation = op->generation;
    while (op->generation == generation && op->posted()) {
      core::UnexpectedBase* found = messages.match_posted(op->source);
      if (found == nullptr) break;
      claim(*op, static_cast<Unexpected&>(*found));
    }
    return 0;
  }
  core::UnexpectedBase* found =
      request.tagged ? tags.match_posted(op->tag, op->ignore, op->source) : messages.match_posted(op->source);
  if (found != nullptr) {
    claim(*op, static_cast<Unexpected&>(*found));
  } else if (request.tagged) {
    tags.post(*op);
  } else {
    messages.post(*op);
  }
  return 0;
}

Unexpected* RxContext::find_unexpected(const ReceiveRequest& request, bool take) noexcept {
  const fi_addr_t source = directed ? request.source : FI_ADDR_UNSPEC;
  core::UnexpectedBase* found =
      request.tagged ? tags.peek(request.tag, request.ignore, source) : messages.peek(source);
  if (found == nullptr) return nullptr;
  if (take && request.tagged) tags.remove(*found);
  if (take && !request.tagged) messages.remove(*found);
  return static_cast<Unexpected*>(found);
}

Unexpected* RxContext::take_whole(const ReceiveRequest& request, const Unexpected*& found) noexcept try {
  claimed_.reserve(claimed_.size() + 1);
  Unexpected* message = find_unexpected(request, false);
  found = message;
  if (message == nullptr || message->rendezvous || message->arrived < message->length) return nullptr;
  if (request.tagged) tags.remove(*message);
  else messages.remove(*message);
  claimed_.push_back(message);
  return message;
} catch (const std::bad_alloc&) {
  found = nullptr;
  return nullptr;
}

void RxContext::return_unexpected(Unexpected& message) noexcept {
  std::erase(claimed_, &message);
  WEFT_ASSERT(!message.unexpected() && !message.rendezvous);
  discard(message);
}

ssize_t RxContext::peek(const ReceiveRequest& request) noexcept try {
  const bool claims = (request.flags & FI_CLAIM) != 0;
  const bool discards = (request.flags & FI_DISCARD) != 0;
  if (claims && request.context == nullptr) return -FI_EINVAL;
  core::CompletionQueue* const answers = cq != nullptr ? cq : reports;
  if (answers != nullptr && answers->full())
    return -FI_EAGAIN;  // each look is answered there, and none is posted before
  if (claims) claimed_.reserve(claimed_.size() + 1);
  Unexpected* message = find_unexpected(request, claims || discards);
  if (message == nullptr) {
    if (answers != nullptr) {
      core::CompletionError error;
      error.base = {request.context, receive_flags(request.tagged, false), 0, nullptr, 0, request.tag,
                    FI_ADDR_NOTAVAIL};
      error.err = FI_ENOMSG;
      answers->push_error(error);
    }
    return 0;
  }
  // As sink() has it, also of a sender that has gone.
  const bool has_sink = shared && message->sink != nullptr && message->sink->bound();
  const core::Completion found{request.context,
                               receive_flags(request.tagged, message->has_data),
                               message->length,
                               nullptr,
                               message->data,
                               request.tagged ? message->tag : 0,
                               message->source | (has_sink ? message->sink : this)->hidden_source};
  if (claims) {
    message->claimed = true;
    static_cast<fi_context*>(request.context)->internal[0] = message;
    claimed_.push_back(message);
  } else if (discards) {
    discard(*message);
  }
  if (answers != nullptr) answers->push(found);
  return 0;
} catch (const std::bad_alloc&) {
  return -FI_ENOMEM;
}

ssize_t RxContext::cancel(const void* context) noexcept {
  const auto is_it = [context](const core::PostedBase& base) {
    return static_cast<const Op&>(base).context == context;
  };
  core::PostedBase* found = tags.find_posted(is_it);
  if (found != nullptr) {
    tags.remove(*found);
  } else {
    found = messages.find_posted(is_it);
    if (found == nullptr) return -FI_ENOENT;
    messages.remove(*found);
  }
  Op& op = static_cast<Op&>(*found);
  if (op.multi && op.children > 0) {
    op.exhausted = true;  // reported with its last part
    return 0;
  }
  const bool multi = op.multi;
  if (multi) op.exhausted = true;  // complete() gives the buffer back to the program
  complete(op, FI_ADDR_NOTAVAIL, nullptr, 0, 0, op.buffer(), false, 0, op.tag, FI_ECANCELED);
  if (!multi) ops.release(op);
  return 0;
}

// --- matched messages ---

core::PostedBase* RxContext::match_message(fi_addr_t source) noexcept {
  core::PostedBase* found = messages.peek_arrival(source);
  if (found != nullptr && !static_cast<Op&>(*found).multi) messages.remove(*found);
  return found;
}

void RxContext::deliver_slow(Op& op, PeerState& peer, const wire::FrameHead& head,
                             const std::byte* payload) noexcept {
  place(op, peer, payload, head.length, (head.flags & wire::has_data) != 0, head.b, op.tagged ? head.a : 0);
}

// Cuts `length` bytes (or what is left) off a multi-receive buffer. When too little remains the buffer leaves its queue.
bool RxContext::take_part(Op& parent, size_t length, std::byte*& at, size_t& room) noexcept {
  WEFT_ASSERT(parent.multi && parent.posted() && !parent.exhausted && parent.done <= parent.length);
  at = parent.buffer() + parent.done;
  room = std::min<size_t>(length, parent.length - parent.done);
  parent.done += room;
  const bool spent = parent.length - parent.done < std::max<size_t>(multi_receive_min, 1);
  if (spent) {
    messages.remove(parent);
    parent.exhausted = true;
  }
  return spent;
}

// A part has been filled: the last one of a spent buffer says so (FI_MULTI_RECV) and ends the operation.
void RxContext::multi_part_done(Op& parent, uint64_t& flags) noexcept {
  WEFT_ASSERT(parent.multi && parent.posted() != parent.exhausted);
  if (!parent.exhausted || parent.children > 0) {
    ++parts_;
    return;
  }
  flags |= FI_MULTI_RECV;
  ops.release(parent);
}

// A whole payload that is at hand goes into a receive.
void RxContext::place(Op& op, PeerState& peer, const std::byte* payload, size_t length, bool has_data,
                      uint64_t data, uint64_t tag) noexcept {
  if (op.multi) {
    std::byte* at = nullptr;
    size_t room = 0;
    take_part(op, length, at, room);
    if (room > 0) std::memcpy(at, payload, room);
    complete(op, peer.fi_addr, &peer, room, length, at, has_data, data, tag, room < length ? FI_ETRUNC : 0);
    return;
  }
  const size_t moved = scatter(op.iov.data(), op.iov_count, 0, payload, std::min(length, op.length));
  complete(op, peer.fi_addr, &peer, moved, length, op.buffer(), has_data, data, tag,
           moved < length ? FI_ETRUNC : 0);
  ops.release(op);
}

void RxContext::complete(Op& op, fi_addr_t source, PeerState* peer, size_t length, size_t full_length,
                         void* buffer, bool has_data, uint64_t data, uint64_t tag, int error,
                         core::ProviderError why) noexcept {
  bytes_ += length;
  const RxSink& to = sink(peer);
  core::CompletionQueue* const queue = to.cq == nullptr && &to == this ? reports : to.cq;
  const bool asked = !to.selective || (op.flags & FI_COMPLETION) != 0;
  const bool wants = shared ? queue != nullptr && asked : op.completes;
  core::Counter* extra = op.extra_counter;
  const bool quiet = is_quiet(extra, op.flags);
  core::Counter* own = quiet ? nullptr : receives;
  core::Counter* of_endpoint = quiet || &to == this ? nullptr : to.receives;
  void* context = op.context;
  uint64_t flags = receive_flags(op.tagged, has_data);
  WEFT_ASSERT(!wants || queue != nullptr);
  WEFT_ASSERT(length <= full_length || error != 0);
  if (op.multi) multi_part_done(op, flags);
  else if (op.exhausted) flags |= FI_MULTI_RECV;
  if (error == 0 && wants && source == FI_ADDR_NOTAVAIL && source_errors && peer != nullptr) {
    error = FI_EADDRNOTAVAIL;
    full_length = length;
  } else {
    peer = nullptr;
  }
  if (error != 0) {
    if (queue != nullptr) {
      core::CompletionError entry;
      entry.base = {context, flags, length, buffer, data, tag, source};
      entry.olen = full_length > length ? full_length - length : 0;
      entry.err = error;
      entry.prov_errno = static_cast<int>(why);
      if (peer != nullptr) {
        entry.err_data_size = peer->av_address.len;
        std::memcpy(entry.err_data.data(), peer->av_address.bytes.data(), peer->av_address.len);
      }
      queue->push_error(entry);
    }
    if (own != nullptr) own->add_error(1);
    if (of_endpoint != nullptr) of_endpoint->add_error(1);
    if (extra != nullptr) extra->add_error(1);
    return;
  }
  // The program is told that it has a multi-receive buffer back, even when it wants no completions (fi_msg(3)).
  if (wants || (queue != nullptr && (flags & FI_MULTI_RECV) != 0))
    queue->push({context, flags, length, buffer, data, tag, source | to.hidden_source});
  if (own != nullptr) own->add(1);
  if (of_endpoint != nullptr) of_endpoint->add(1);
  if (extra != nullptr) extra->add(1);
}

void RxContext::complete_unknown_source(Op& op, PeerState& peer, size_t length, bool has_data, uint64_t data,
                                        uint64_t tag) noexcept {
  core::CompletionError entry;
  entry.base = {op.context,
                receive_flags(op.tagged, has_data),
                length,
                op.buffer(),
                has_data ? data : 0,
                op.tagged ? tag : 0,
                FI_ADDR_NOTAVAIL};
  entry.err = FI_EADDRNOTAVAIL;
  entry.err_data_size = peer.av_address.len;
  std::memcpy(entry.err_data.data(), peer.av_address.bytes.data(), peer.av_address.len);
  cq->push_error(entry);
}

// --- messages whose bytes come later ---

Op* RxContext::begin(Op& op, const Unexpected& message) noexcept {
  Op* receive = &op;
  WEFT_ASSERT(message.peer != nullptr && op.kind == OpKind::Receive && op.posted() == op.multi);
  if (op.multi) {
    std::byte* at = nullptr;
    size_t room = 0;
    Op* part = ops.acquire_beyond();  // bounded by what peers may have under way
    if (part != nullptr) {
      const bool wants = op.completes;
      take_part(op, message.length, at, room);
      fill(*part, at, room, op.context, wants);
      part->parent = &op;
      ++op.children;
    } else if (op.children == 0) {
      // Out of memory: the message takes the rest of the buffer, and its operation.
      messages.remove(op);
      part = &op;
      at = op.buffer() + op.done;
      room = std::min<size_t>(message.length, op.length - op.done);
      fill(op, at, room, op.context, op.completes);
      op.exhausted = true;
    } else {
      // Other parts need the operation of the buffer.
      PeerState& peer = *message.peer;
      complete(op, peer.fi_addr, &peer, 0, message.length, op.buffer() + op.done, message.has_data,
               message.data, 0, FI_ENOMEM);
      return nullptr;
    }
    part->tagged = false;
    receive = part;
  }
  receive->stage = OpStage::Waiting;
  receive->peer = message.peer;
  receive->rx = this;
  receive->remote = message.operation;
  receive->done = 0;
  receive->full_length = message.length;
  receive->total = std::min<uint64_t>(message.length, receive->length);
  receive->tag = message.tag;
  receive->data = message.data;
  receive->has_data = message.has_data;
  WEFT_ASSERT(receive->total <= receive->full_length && receive->total <= receive->length);
  message.peer->in_flight.push_back(*receive);
  return receive;
}

void RxContext::start(Op& op, const Unexpected& message) noexcept {
  PeerState& peer = *message.peer;
  if (Op* receive = begin(op, message); receive != nullptr) peer.owner->start_rendezvous(*receive, message);
  else peer.owner->acknowledge(peer, message.operation, FI_ENOMEM);
}

void RxContext::finish(Op& op, int status, core::ProviderError why) noexcept {
  WEFT_ASSERT(op.rx == this && op.kind == OpKind::Receive && op.stage == OpStage::Waiting);
  WEFT_ASSERT(op.done <= op.total && op.total <= op.full_length);
  WEFT_ASSERT(status != 0 || op.done == op.total);
  PeerState& peer = *op.peer;
  List<Op, InFlightHook>::remove(op);
  int error = status;
  if (error == 0 && op.total < op.full_length) error = FI_ETRUNC;
  Op* parent = op.parent;
  if (parent == nullptr) {
    complete(op, peer.fi_addr, &peer, op.done, op.full_length, op.buffer(), op.has_data, op.data,
             op.tagged ? op.tag : 0, error, why);
    ops.release(op);
    return;
  }
  WEFT_ASSERT(parent->children != 0 && parent->multi);
  --parent->children;
  complete(*parent, peer.fi_addr, &peer, op.done, op.full_length, op.buffer(), op.has_data, op.data, 0, error,
           why);
  ops.release(op);
}

// --- unexpected messages ---

Unexpected* RxContext::make_unexpected(PeerState& peer, const wire::FrameHead& head, bool tagged,
                                       uint64_t length) noexcept {
  Unexpected* message = unexpected_pool.acquire();
  if (message == nullptr) return nullptr;
  message->peer = &peer;
  message->sink = peer.sink;
  message->source = peer.fi_addr;
  message->tag = tagged ? head.a : 0;
  message->has_data = (head.flags & wire::has_data) != 0;
  message->data = message->has_data ? head.b : 0;
  message->length = length;
  message->tagged = tagged;
  message->claimed = false;
  message->operation = 0;
  message->arrived = 0;
  message->wants_ack = false;
  message->rendezvous = false;
  message->payload = nullptr;
  return message;
}

void RxContext::insert(Unexpected& message) noexcept {
  if (message.tagged) tags.add_unexpected(message);
  else messages.add_unexpected(message);
}

bool RxContext::keep(PeerState& peer, const wire::FrameHead& head, bool tagged, const std::byte* payload,
                     size_t length, uint64_t ack_operation) noexcept {
  if (peer.unheeded > unheeded_bytes_max) return false;
  Unexpected* message = make_unexpected(peer, head, tagged, length);
  if (message == nullptr) return false;
  message->payload = message->small.data();
  if (length > message->small.size()) {
    message->heap.reset(new (std::nothrow) std::byte[length]);
    if (!message->heap) {
      unexpected_pool.release(message);
      return false;
    }
    message->payload = message->heap.get();
  }
  if (length > 0) std::memcpy(message->payload, payload, length);
  message->arrived = length;
  message->operation = ack_operation;
  message->wants_ack = ack_operation != 0;
  account(peer, length + unexpected_overhead);
  insert(*message);
  return true;
}

Unexpected* RxContext::add_unexpected_fragmented(PeerState& peer, const wire::FrameHead& head, bool tagged,
                                                 uint64_t total) noexcept {
  if (peer.unheeded > unheeded_bytes_max) return nullptr;
  Unexpected* message = make_unexpected(peer, head, tagged, total);
  if (message == nullptr) return nullptr;
  message->heap.reset(new (std::nothrow) std::byte[total]);
  if (!message->heap) {
    unexpected_pool.release(message);
    return nullptr;
  }
  message->payload = message->heap.get();
  account(peer, total + unexpected_overhead);
  insert(*message);
  return message;
}

bool RxContext::add_unexpected_rendezvous(PeerState& peer, const wire::FrameHead& head, bool tagged,
                                          const wire::RtsPrefix& rts,
                                          const wire::SourceSegment* segments) noexcept {
  if (peer.announced >= announced_max) return false;
  Unexpected* message = make_unexpected(peer, head, tagged, rts.total);
  if (message == nullptr) return false;
  ++peer.announced;
  WEFT_ASSERT(rts.segments <= iov_max);
  message->rendezvous = true;
  message->operation = rts.operation;
  message->stamp = rts.stamp;
  message->segments = rts.segments;
  std::copy_n(segments, rts.segments, message->source_segments.begin());
  insert(*message);
  return true;
}

// Beyond the bound the sender keeps its payloads.
void RxContext::account(PeerState& peer, size_t bytes) noexcept {
  unexpected_bytes += bytes;
  if (peer.pausing) peer.unheeded += bytes;
  if (unexpected_bytes <= unexpected_bytes_max || peer.pausing) return;
  WEFT_ASSERT(std::find(paused_.begin(), paused_.end(), &peer) == paused_.end());
  try {
    paused_.push_back(&peer);
  } catch (const std::bad_alloc&) {
    return;
  }
  peer.pausing = true;
  peer.owner->set_pause(peer, true);
}

void RxContext::release(Unexpected& message) noexcept {
  WEFT_ASSERT(!message.unexpected());
  if (!message.rendezvous) {
    WEFT_ASSERT(unexpected_bytes >= message.length + unexpected_overhead);
    unexpected_bytes -= message.length + unexpected_overhead;
    message.heap.reset();
    if (!paused_.empty() && unexpected_bytes <= unexpected_bytes_max / 2) {
      for (PeerState* peer : paused_) {
        peer->pausing = false;
        peer->unheeded = 0;
        peer->owner->set_pause(*peer, false);
      }
      paused_.clear();
    }
  } else if (message.peer != nullptr) {
    WEFT_ASSERT(message.peer->announced != 0);
    --message.peer->announced;
  }
  unexpected_pool.release(&message);
}

// A message that waited meets its receive. It is out of the matcher already.
void RxContext::claim(Op& op, Unexpected& message) noexcept {
  WEFT_ASSERT(!message.unexpected() && message.arrived <= message.length);
  const bool incomplete = !message.rendezvous && message.arrived < message.length;
  PeerState gone;
  gone.fi_addr = message.source;
  gone.sink = message.sink;
  if (message.peer == nullptr &&
      (message.rendezvous || incomplete)) {  // claimed by FI_CLAIM, then its sender died
    complete(op, message.source, &gone, 0, 0, op.buffer(), false, 0, message.tag, FI_EIO,
             core::ProviderError::PeerDied);
    ops.release(op);
    release(message);
    return;
  }
  if (message.rendezvous) {
    start(op, message);
    release(message);
    return;
  }
  if (incomplete) {  // the rest goes straight into the receive
    PeerState& peer = *message.peer;
    WEFT_ASSERT(peer.fragmented_message == &message && peer.fragmented_receive == nullptr);
    WEFT_ASSERT(peer.fragmented_left == message.length - message.arrived);
    Op* receive = begin(op, message);
    if (receive != nullptr)
      receive->done = scatter(receive->iov.data(), receive->iov_count, 0, message.payload,
                              std::min(message.arrived, receive->total));
    peer.fragmented_receive = receive;
    peer.fragmented_message = nullptr;
    release(message);
    return;
  }
  PeerState& peer = message.peer != nullptr ? *message.peer : gone;
  const bool acks = message.wants_ack && message.peer != nullptr;
  const uint64_t operation = message.operation;
  place(op, peer, message.payload, message.length, message.has_data, message.data, message.tag);
  release(message);
  if (acks) peer.owner->acknowledge(peer, operation, 0);
}

void RxContext::discard(Unexpected& message) noexcept {
  PeerState* peer = message.peer;
  if (peer != nullptr && peer->fragmented_message == &message)
    peer->fragmented_message = nullptr;  // the rest goes nowhere
  const bool answers = peer != nullptr && (message.rendezvous || message.wants_ack);
  const uint64_t operation = message.operation;
  release(message);
  if (answers) peer->owner->acknowledge(*peer, operation, 0);
}

bool RxContext::forget_peer(PeerState& peer) noexcept {
  const bool paused = std::erase(paused_, &peer) != 0;
  // Its fragments may be on their way into another context of the endpoint.
  const auto detach = [&](Unexpected& message) {
    WEFT_ASSERT(!message.rendezvous || peer.announced != 0);
    message.peer = nullptr;
    if (message.rendezvous) --peer.announced;
    if (peer.fragmented_message == &message) peer.fragmented_message = nullptr;
  };
  const auto visit = [&](core::UnexpectedBase& base, auto& matcher) {
    auto& message = static_cast<Unexpected&>(base);
    if (message.peer != &peer) return;
    detach(message);
    message.wants_ack = false;
    if (!message.rendezvous && message.arrived == message.length) return;
    matcher.remove(base);
    release(message);
  };
  tags.for_each_unexpected([&](core::UnexpectedBase& base) { visit(base, tags); });
  messages.for_each_unexpected([&](core::UnexpectedBase& base) { visit(base, messages); });
  for (Unexpected* message : claimed_)
    if (message->peer == &peer) detach(*message);
  return paused;
}

void RxContext::forget_sink(const RxSink* sink) noexcept {
  if (sink == nullptr) return;
  const auto visit = [&](core::UnexpectedBase& base, auto& matcher) {
    auto& message = static_cast<Unexpected&>(base);
    if (message.sink != sink) return;
    matcher.remove(base);
    release(message);
  };
  tags.for_each_unexpected([&](core::UnexpectedBase& base) { visit(base, tags); });
  messages.for_each_unexpected([&](core::UnexpectedBase& base) { visit(base, messages); });
  for (Unexpected* message : claimed_)
    if (message->sink == sink) message->sink = nullptr;
}

void RxContext::refuse_unexpected(PeerState& peer) noexcept {
  const auto refuse = [&](const Unexpected& message) {
    if (message.peer == &peer && (message.rendezvous || message.wants_ack))
      peer.owner->acknowledge(peer, message.operation, FI_EINVAL);
  };
  tags.for_each_unexpected([&](core::UnexpectedBase& base) { refuse(static_cast<Unexpected&>(base)); });
  messages.for_each_unexpected([&](core::UnexpectedBase& base) { refuse(static_cast<Unexpected&>(base)); });
  for (const Unexpected* message : claimed_) refuse(*message);
}

void RxContext::fail_directed(fi_addr_t source, core::ProviderError why) noexcept {
  if (!directed || source == FI_ADDR_NOTAVAIL) return;
  const auto fail = [&](core::PostedBase& base, auto& matcher) {
    Op& op = static_cast<Op&>(base);
    if (op.source != source) return;
    if (op.multi && op.children > 0) return;  // ends with its last part
    matcher.remove(base);
    const bool multi = op.multi;
    if (multi) op.exhausted = true;  // complete() gives the buffer back to the program
    complete(op, source, nullptr, 0, 0, op.buffer(), false, 0, op.tag, FI_EIO, why);
    if (!multi) ops.release(op);
  };
  tags.for_each_posted([&](core::PostedBase& base) { fail(base, tags); });
  messages.for_each_posted([&](core::PostedBase& base) { fail(base, messages); });
}

void RxContext::end_posted(int error, core::ProviderError why) noexcept {
  const auto end = [&](core::PostedBase& base, auto& matcher) {
    Op& op = static_cast<Op&>(base);
    if (op.multi && op.children > 0) return;  // ends with its last part
    matcher.remove(base);
    const bool multi = op.multi;
    if (multi) op.exhausted = true;  // complete() gives the buffer back to the program
    complete(op, FI_ADDR_NOTAVAIL, nullptr, 0, 0, op.buffer(), false, 0, op.tag, error, why);
    if (!multi) ops.release(op);
  };
  tags.for_each_posted([&](core::PostedBase& base) { end(base, tags); });
  messages.for_each_posted([&](core::PostedBase& base) { end(base, messages); });
}

void RxContext::rename_peer(PeerState& peer) noexcept {
  const auto rename = [&](core::UnexpectedBase& base, auto& matcher, bool tagged) {
    auto& message = static_cast<Unexpected&>(base);
    if (message.peer != &peer) return;
    matcher.set_source(base, peer.fi_addr);
    if (!directed || peer.fi_addr == FI_ADDR_NOTAVAIL) return;
    // The program may have posted a receive that names the new index before it was noticed here.
    Op* op = match(tagged, base.tag, peer.fi_addr);
    if (op == nullptr) return;
    matcher.remove(base);
    claim(*op, message);
  };
  tags.for_each_unexpected([&](core::UnexpectedBase& base) { rename(base, tags, true); });
  messages.for_each_unexpected([&](core::UnexpectedBase& base) { rename(base, messages, false); });
}

}  // namespace weft::proto
