// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The measured loops. Make no system call while messages flow; know nothing of processes, repeats or reports.
#include "runner.hpp"

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <time.h>

#include <algorithm>
#include <cstring>

namespace weft::tool {

namespace {

constexpr uint64_t data_tag_base = 0x5745;
constexpr uint64_t notice_tag = 0x5746;        // "those before this have come"
constexpr unsigned batch = 32;                 // completions per fi_cq_read
constexpr uint64_t polls_per_check = 1 << 16;  // empty ones
constexpr int64_t peer_check_ns = 200'000'000;
constexpr int64_t stall_limit_ns = 30'000'000'000;
constexpr unsigned pingpong_slots = 4;

// One step of a multiplicative generator: every 8 bytes of every message differ.
uint64_t pattern(uint64_t sequence, size_t word) {
  return (sequence * 0x9e3779b97f4a7c15 + word) * 0xd1342543de82ef95 + 1;
}

}  // namespace

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

uint64_t whole_windows(uint64_t messages, unsigned window) {
  return (messages + window - 1) / window * window;
}

uint64_t data_tag_of(unsigned lane) { return data_tag_base | uint64_t{lane} << 16; }
unsigned lane_of(uint64_t tag) { return static_cast<unsigned>((tag & lanes_of_tag) >> 16); }

unsigned Shape::tx_slots() const {
  if (test->unit == Unit::latency) return pingpong_slots;
  return initiator ? window : 4;  // the other side sends acks only
}

unsigned Shape::notice_slots() const { return test->has_notices() ? 4 : 0; }

unsigned Shape::rx_slots() const {
  // As many as lie there at once.
  if (test->has_notices()) return test->unit == Unit::latency ? 1 : initiator ? 0 : window;
  if (test->is_one_sided()) return 4;  // "the writes are over"
  if (test->unit == Unit::latency) return pingpong_slots;
  return initiator ? 8 : 2 * window;
}

Runner::Runner(Session& session, Channel& channel, const Shape& shape)
    : session_(session),
      channel_(channel),
      shape_(shape),
      ep_(session.ep()),
      cq_(session.cq()),
      peer_(session.peer()),
      descriptor_(session.descriptor()),
      data_tag_(data_tag_of(shape.lane)),
      tx_size_(shape.test->unit == Unit::latency || shape.initiator ? shape.size : ack_size),
      rx_size_(shape.test->is_one_sided() || (shape.test->unit != Unit::latency && shape.initiator)
                   ? ack_size
                   : shape.size),
      small_(shape.size <= session.info().tx_attr->inject_size),
      verify_received_(shape.verify && !shape.test->is_one_sided() &&
                       (shape.test->unit == Unit::latency || !shape.initiator)),
      tx_(shape.tx_slots()),
      rx_(shape.rx_slots()),
      notice_slots_(shape.notice_slots()) {
  for (Slot& slot : notice_slots_) {
    slot.buffer = session.base();
    notice_free_.push_back(&slot);
  }
  for (unsigned i = shape.tx_slots(); i-- > 0;) {
    tx_[i].buffer = session.base() + session.tx_offset(i);
    tx_free_.push_back(&tx_[i]);
  }
  for (unsigned i = shape.rx_slots(); i-- > 0;) {
    rx_[i].buffer = session.base() + session.rx_offset(i);
    rx_free_.push_back(&rx_[i]);
  }
  check_ns_ = stall_begin_ns_ = now_ns();
}

void Runner::prepare() {
  if (shape_.verify && shape_.test->read && !shape_.initiator) {
    for (unsigned i = 0; i < shape_.buffers; ++i) fill(session_.base() + session_.rx_offset(i), 0);
  }
  post_notice_receives();
  if (shape_.test->receives != Receives::unexpected) post_receives();
}

std::string Runner::operation() const {
  const Test& test = *shape_.test;
  const bool latency = test.unit == Unit::latency;
  if (test.api == Api::atomic) return latency ? "fi_fetch_atomic" : "fi_atomic";
  if (test.api == Api::rma && latency && !test.read) return small_ ? "fi_inject_writedata" : "fi_writedata";
  if (test.api == Api::rma) {
    if (test.read) return "fi_read";
    return session_.delivery_complete() ? "fi_write, delivery complete" : "fi_write";
  }
  if (test.api == Api::tagged) return latency && small_ ? "fi_tinject" : "fi_tsend";
  return latency && small_ ? "fi_inject" : "fi_send";
}

double Runner::run(uint64_t warmup, uint64_t iters) {
  const Test& test = *shape_.test;
  stall_begin_ns_ = now_ns();
  times_ = {};
  if (test.is_round_trip()) return one_by_one(warmup, iters);
  if (test.is_one_sided()) {
    if (test.unit == Unit::latency) return rma_writes_in_turn(warmup, iters);
    if (warmup) rma(warmup);
    return rma(iters);
  }
  if (test.has_notices()) return with_notices(warmup, iters);
  if (test.unit == Unit::latency) return pingpong(warmup, iters);
  warmup = whole_windows(warmup, shape_.window);
  iters = whole_windows(iters, shape_.window);
  if (shape_.initiator) {
    if (warmup) stream_out(warmup);
    return stream_out(iters);
  }
  if (warmup) stream_in(warmup);
  stream_in(iters);
  return 0;
}

// Messages there and back, one at a time. The next receive is posted after the answer has left, so it does
// not lie in its way.
double Runner::pingpong(uint64_t warmup, uint64_t iters) {
  const uint64_t base = received_;
  const bool injects = small_;
  int64_t begin = now_ns();
  int64_t since = begin;
  for (uint64_t i = 0; i < warmup + iters; ++i) {
    if (i == warmup) since = begin = now_ns();
    if (!shape_.initiator) wait_pingpong(base + i + 1);
    if (injects) {
      inject();
    } else {
      send();
    }
    if (shape_.initiator) wait_pingpong(base + i + 1);
    post_receives();
    if (shape_.timed && i >= warmup) note_time(since);
  }
  while (tx_free_.size() < tx_.size()) poll();
  return static_cast<double>(now_ns() - begin) * 1e-9;
}

void Runner::wait_pingpong(uint64_t until) {
  while (received_ < until) poll();
}

// At most one window of sends is incomplete, and at most two windows have not been acknowledged: that many
// receives are posted there.
double Runner::stream_out(uint64_t messages) {
  const uint64_t acked_base = received_;
  const int64_t begin = now_ns();
  for (uint64_t i = 0; i < messages; ++i) {
    while (i >= (received_ - acked_base + 2) * shape_.window) {
      poll();
      post_receives();
    }
    send();
  }
  while (tx_free_.size() < tx_.size() || (received_ - acked_base) * shape_.window < messages) {
    poll();
    post_receives();
  }
  return static_cast<double>(now_ns() - begin) * 1e-9;
}

void Runner::stream_in(uint64_t messages) {
  const uint64_t base = streamed_in_;  // while we waited for our last completions, more may have come
  streamed_in_ += messages;
  uint64_t acked = 0;
  while (acked * shape_.window < messages) {
    poll();
    post_receives();
    while (acked < (received_ - base) / shape_.window) {
      while (!rx_free_.empty()) {  // the ack promises that they are posted
        poll();
        post_receives();
      }
      ack();
      ++acked;
    }
  }
  while (tx_free_.size() < tx_.size()) poll();
}

// Both directions of a ping-pong, or windows in one direction: the data, then a message without a byte. Messages of
// one sender match in order (FI_ORDER_SAS), so when that has come, the data has.
double Runner::with_notices(uint64_t warmup, uint64_t iters) {
  const bool back = shape_.test->unit == Unit::latency;
  const uint64_t count = back ? 1 : shape_.window;
  const uint64_t warm_turns = (warmup + count - 1) / count;
  const uint64_t turns = warm_turns + (iters + count - 1) / count;
  int64_t begin = now_ns();
  int64_t since = begin;
  for (uint64_t i = 0; i < turns; ++i) {
    if (i == warm_turns) since = begin = now_ns();
    if (!shape_.initiator) receive_with_notice(count);
    if (shape_.initiator || back) {
      send_with_notice(count);
    } else {
      send_notice();
    }
    if (shape_.initiator && back) receive_with_notice(count);
    if (shape_.initiator && !back) await_notice();
    if (shape_.timed && i >= warm_turns) note_time(since);
  }
  while (tx_free_.size() < tx_.size()) poll();
  return static_cast<double>(now_ns() - begin) * 1e-9;
}

void Runner::send_with_notice(uint64_t count) {
  const bool injects = small_ && shape_.test->unit == Unit::latency;
  for (uint64_t i = 0; i < count; ++i) {
    if (injects) {
      inject();
    } else {
      send();
    }
  }
  send_notice();
}

void Runner::receive_with_notice(uint64_t count) {
  const uint64_t until = data_taken_ += count;  // some may have come while we waited for something else
  await_notice();
  const bool posted = shape_.test->receives == Receives::posted;
  while (received_ < until) {
    if (!posted) post_receives(until);
    poll();
  }
  if (posted) post_receives();
}

void Runner::send_notice() {
  ssize_t status;
  while ((status = fi_tinject(ep_, session_.base(), 0, peer_, notice_tag)) == -FI_EAGAIN) poll();
  if (status != 0) call_error(status);
}

void Runner::await_notice() {
  ++notices_awaited_;
  while (notices_ < notices_awaited_) poll();
  post_notice_receives();
}

void Runner::post_notice_receives() {
  while (!notice_free_.empty()) {
    Slot* slot = notice_free_.back();
    const ssize_t status = fi_trecv(ep_, slot->buffer, 0, descriptor_, FI_ADDR_UNSPEC, notice_tag, 0, slot);
    if (status == -FI_EAGAIN) return;
    if (status != 0) call_error(status);
    notice_free_.pop_back();
  }
}

void Runner::await_end() {
  const uint64_t until = received_ + 1;
  while (received_ < until) poll();  // a fabric with manual progress needs us
  post_receives();
}

void Runner::note_time(int64_t& since) {
  const int64_t now = now_ns();
  times_.add(static_cast<uint64_t>(now - since) / (shape_.test->is_round_trip() ? 1 : 2));
  since = now;
}

// One operation of the slot's buffer.
ssize_t Runner::post_one_sided(Slot* slot) {
  const RemoteMemory remote = session_.peer_memory();
  const auto number = static_cast<unsigned>(slot - tx_.data());
  const uint64_t address = remote.address + session_.rx_offset(number);
  const Test& test = *shape_.test;
  if (test.api == Api::atomic && test.unit == Unit::latency) {
    // The result goes beside the operand: a buffer has a cache line at least.
    return fi_fetch_atomic(ep_, slot->buffer, 1, descriptor_, slot->buffer + atomic_bytes, descriptor_, peer_,
                           address, remote.key, FI_UINT64, FI_SUM, slot);
  }
  if (test.api == Api::atomic)
    return fi_atomic(ep_, slot->buffer, 1, descriptor_, peer_, address, remote.key, FI_UINT64, FI_SUM, slot);
  if (test.read)
    return fi_read(ep_, slot->buffer, shape_.size, descriptor_, peer_, address, remote.key, slot);
  return fi_write(ep_, slot->buffer, shape_.size, descriptor_, peer_, address, remote.key, slot);
}

// Reads and atomic operations, each when the one before has its result.
double Runner::one_by_one(uint64_t warmup, uint64_t iters) {
  if (!shape_.initiator) {
    await_end();
    return 0;
  }
  int64_t begin = now_ns();
  int64_t since = begin;
  for (uint64_t i = 0; i < warmup + iters; ++i) {
    if (i == warmup) since = begin = now_ns();
    Slot* slot = free_tx();
    ssize_t status;
    while ((status = post_one_sided(slot)) == -FI_EAGAIN) poll();
    if (status != 0) call_error(status);
    while (tx_free_.size() < tx_.size()) poll();
    if (shape_.timed && i >= warmup) note_time(since);
  }
  const int64_t end = now_ns();
  if (shape_.verify && shape_.test->read) verify(session_.base() + session_.tx_offset(0), 0);
  ack();
  while (tx_free_.size() < tx_.size()) poll();
  return static_cast<double>(end - begin) * 1e-9;
}

double Runner::rma(uint64_t operations) {
  if (!shape_.initiator) {
    await_end();
    // Without delivery complete the last writes may still be under way.
    if (shape_.verify && shape_.test->api == Api::rma && !shape_.test->read && session_.delivery_complete()) {
      verify(session_.base() + session_.rx_offset(0), 0);
    }
    return 0;
  }
  const int64_t begin = now_ns();
  for (uint64_t i = 0; i < operations; ++i) {
    Slot* slot = free_tx();
    if (shape_.verify && !shape_.test->read) fill(slot->buffer, 0);
    ssize_t status;
    while ((status = post_one_sided(slot)) == -FI_EAGAIN) poll();
    if (status != 0) call_error(status);
  }
  while (tx_free_.size() < tx_.size()) poll();
  const int64_t end = now_ns();
  if (shape_.verify && shape_.test->read) verify(session_.base() + session_.tx_offset(0), 0);
  ack();
  while (tx_free_.size() < tx_.size()) poll();
  return static_cast<double>(end - begin) * 1e-9;
}

double Runner::rma_writes_in_turn(uint64_t warmup, uint64_t iters) {
  const uint64_t base = written_here_;
  int64_t begin = now_ns();
  int64_t since = begin;
  for (uint64_t i = 0; i < warmup + iters; ++i) {
    if (i == warmup) since = begin = now_ns();
    if (!shape_.initiator) wait_written(base + i + 1);
    write_with_data();
    if (shape_.initiator) wait_written(base + i + 1);
    if (shape_.timed && i >= warmup) note_time(since);
  }
  while (tx_free_.size() < tx_.size()) poll();
  return static_cast<double>(now_ns() - begin) * 1e-9;
}

void Runner::wait_written(uint64_t until) {
  while (written_here_ < until) poll();
  if (shape_.verify) verify(session_.base() + session_.rx_offset(0), until - 1);
}

void Runner::write_with_data() {
  const RemoteMemory remote = session_.peer_memory();
  const uint64_t address = remote.address + session_.rx_offset(0);
  std::byte* buffer = session_.base() + session_.tx_offset(0);
  if (!small_) {
    // The buffer is about to be filled again.
    while (shape_.verify && tx_free_.size() < tx_.size()) poll();
  }
  if (shape_.verify) fill(buffer, sent_);
  ++sent_;
  ssize_t status;
  if (small_) {
    while ((status = fi_inject_writedata(ep_, buffer, shape_.size, shape_.lane + 1, peer_, address,
                                         remote.key)) == -FI_EAGAIN)
      poll();
  } else {
    Slot* slot = free_tx();
    while ((status = fi_writedata(ep_, buffer, shape_.size, descriptor_, shape_.lane + 1, peer_, address,
                                  remote.key, slot)) == -FI_EAGAIN) {
      poll();
    }
  }
  if (status != 0) call_error(status);
}

void Runner::inject() {
  std::byte* buffer = session_.base() + session_.tx_offset(0);
  if (shape_.verify) fill(buffer, sent_);
  ssize_t status;
  do {
    status = shape_.test->api == Api::tagged ? fi_tinject(ep_, buffer, tx_size_, peer_, data_tag_)
                                             : fi_inject(ep_, buffer, tx_size_, peer_);
    if (status == -FI_EAGAIN) poll();
  } while (status == -FI_EAGAIN);
  if (status != 0) call_error(status);
  ++sent_;
}

void Runner::send() {
  Slot* slot = free_tx();
  std::byte* buffer = slot->buffer;
  if (shape_.verify) fill(buffer, sent_);
  ssize_t status;
  do {
    status = shape_.test->api == Api::tagged
                 ? fi_tsend(ep_, buffer, tx_size_, descriptor_, peer_, data_tag_, slot)
                 : fi_send(ep_, buffer, tx_size_, descriptor_, peer_, slot);
    if (status == -FI_EAGAIN) poll();
  } while (status == -FI_EAGAIN);
  if (status != 0) call_error(status);
  ++sent_;
}

void Runner::ack() {
  Slot* slot = free_tx();
  std::byte* buffer = slot->buffer;
  ssize_t status;
  do {
    status = shape_.test->api == Api::tagged
                 ? fi_tsend(ep_, buffer, ack_size, descriptor_, peer_, data_tag_, slot)
                 : fi_send(ep_, buffer, ack_size, descriptor_, peer_, slot);
    if (status == -FI_EAGAIN) poll();
  } while (status == -FI_EAGAIN);
  if (status != 0) call_error(status);
}

Runner::Slot* Runner::free_tx() {
  while (tx_free_.empty()) poll();
  Slot* slot = tx_free_.back();
  tx_free_.pop_back();
  return slot;
}

void Runner::post_receives(uint64_t until) {
  const bool tagged = shape_.test->api == Api::tagged;
  while (!rx_free_.empty() && posted_ < until) {
    Slot* slot = rx_free_.back();
    const ssize_t status =
        tagged ? fi_trecv(ep_, slot->buffer, rx_size_, descriptor_, FI_ADDR_UNSPEC, data_tag_, 0, slot)
               : fi_recv(ep_, slot->buffer, rx_size_, descriptor_, FI_ADDR_UNSPEC, slot);
    if (status == -FI_EAGAIN) return;
    if (status != 0) call_error(status);
    rx_free_.pop_back();
    slot->sequence = posted_++;
  }
}

void Runner::poll() {
  fi_cq_tagged_entry entries[batch];
  const ssize_t n = fi_cq_read(cq_, entries, batch);
  if (n > 0) {
    for (ssize_t i = 0; i < n; ++i) take(entries[i]);
    return;
  }
  if (n != -FI_EAGAIN && n != 0) completion_error();
  if (++empty_polls_ % polls_per_check == 0) idle();
}

void Runner::take(const fi_cq_tagged_entry& entry) {
  ++moved_;
  if (entry.flags & (FI_REMOTE_WRITE | FI_REMOTE_READ)) {
    ++written_here_;
    return;
  }
  auto* slot = static_cast<Slot*>(entry.op_context);
  if (slot >= rx_.data() && slot < rx_.data() + rx_.size()) {
    if (entry.len != rx_size_) fail("a message of {} bytes came as one of {}", rx_size_, entry.len);
    if (verify_received_) verify(slot->buffer, slot->sequence);
    rx_free_.push_back(slot);
    ++received_;
  } else if (slot >= tx_.data() && slot < tx_.data() + tx_.size()) {
    tx_free_.push_back(slot);
  } else if (slot >= notice_slots_.data() && slot < notice_slots_.data() + notice_slots_.size()) {
    notice_free_.push_back(slot);
    ++notices_;
  } else {
    fail("a completion came with a context that was not ours");
  }
}

void Runner::idle() {
  const int64_t now = now_ns();
  if (moved_ != moved_at_check_) {
    moved_at_check_ = moved_;
    stall_begin_ns_ = now;
  }
  if (now - check_ns_ < peer_check_ns) return;
  check_ns_ = now;
  if (!channel_.peer_is_there()) {
    channel_.receive(std::chrono::milliseconds(100));  // throws what it had to say before it left
    fail("the other process is gone");
  }
  if (now - stall_begin_ns_ > stall_limit_ns) {
    fail("nothing has moved for {} s ({} sent, {} received)", stall_limit_ns / 1'000'000'000, sent_,
         received_);
  }
}

void Runner::completion_error() {
  fi_cq_err_entry error{};
  const ssize_t n = fi_cq_readerr(cq_, &error, 0);
  if (n != 1)
    fail("fi_cq_read failed, and fi_cq_readerr: {}", n < 0 ? fi_strerror(static_cast<int>(-n)) : "no entry");
  const char* detail = fi_cq_strerror(cq_, error.prov_errno, error.err_data, nullptr, 0);
  fail("completion with error: {}{}{}", fi_strerror(error.err), detail && *detail ? ": " : "",
       detail ? detail : "");
}

void Runner::call_error(ssize_t status) {
  fail("{} of {}: {}", shape_.test->name, size_text(shape_.size), fi_strerror(static_cast<int>(-status)));
}

void Runner::fill(std::byte* buffer, uint64_t sequence) const {
  size_t i = 0;
  for (; i + 8 <= shape_.size; i += 8) {
    const uint64_t word = pattern(sequence, i);
    std::memcpy(buffer + i, &word, 8);
  }
  const uint64_t word = pattern(sequence, i);
  std::memcpy(buffer + i, &word, shape_.size - i);
}

void Runner::verify(const std::byte* buffer, uint64_t sequence) const {
  for (size_t i = 0; i < shape_.size; i += 8) {
    const uint64_t word = pattern(sequence, i);
    const size_t n = std::min<size_t>(8, shape_.size - i);
    if (std::memcmp(buffer + i, &word, n) != 0) {
      fail("wrong data: {} of {}, message {}, at byte {}", shape_.test->name, size_text(shape_.size),
           sequence, i);
    }
  }
}

}  // namespace weft::tool
