// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The measured loops: both roles of every test over one Session. Makes no system call while messages flow.
// Knows nothing of processes, repeats or reports.
#pragma once

#include <rdma/fi_eq.h>

#include <cstdint>
#include <string>
#include <vector>

#include "channel.hpp"
#include "perf_plan.hpp"
#include "session.hpp"

namespace weft::tool {

// Pairs or clients at once.
constexpr unsigned lanes_most = 1024;

struct Shape {
  const Test* test = nullptr;
  size_t size = 8;
  unsigned window = 64;
  unsigned buffers = 1;
  bool verify = false;
  unsigned lane = 0;  // which of several clients of one server this is; the server tells them apart by it
  bool initiator = false;
  bool timed = false;  // each operation of a latency test, on the initiator

  // Sends outstanding and receives posted that this side of this test needs.
  unsigned tx_slots() const;
  unsigned rx_slots() const;
  unsigned notice_slots() const;  // receives of short messages beside them
};

class Runner {
 public:
  Runner(Session& session, Channel& channel, const Shape& shape);

  // Posts the receives; before the other side may start.
  void prepare();
  // Does `warmup` and then `iters` messages and returns the seconds that the latter took (of use on the
  // initiator only). Streams round
  // both up to whole windows. Throws Failure when nothing moves for half a minute or the peer is gone.
  double run(uint64_t warmup, uint64_t iters);
  // Progress without waiting, for the time between runs.
  void poll();
  // The call that carries the data, for the report.
  std::string operation() const;
  // Of the last run() of a test that is timed: half of the time of each round trip, or all of it (Test::is_round_trip()).
  const Histogram& times() const { return times_; }

 private:
  struct Slot {
    fi_context2 context;  // first: the completion brings back its address
    std::byte* buffer;
    uint64_t sequence;  // of the message that a receive will match
  };

  void wait_pingpong(uint64_t until);
  double pingpong(uint64_t warmup, uint64_t iters);
  double stream_out(uint64_t messages);
  void stream_in(uint64_t messages);
  double rma(uint64_t operations);
  double rma_writes_in_turn(uint64_t warmup, uint64_t iters);
  double one_by_one(uint64_t warmup, uint64_t iters);
  ssize_t post_one_sided(Slot* slot);
  double with_notices(uint64_t warmup, uint64_t iters);
  void send_with_notice(uint64_t count);
  void receive_with_notice(uint64_t count);
  void send_notice();
  void await_notice();
  void post_notice_receives();
  void await_end();
  void note_time(int64_t& since);

  void inject();
  void send();
  void write_with_data();
  void wait_written(uint64_t until);
  void ack();
  Slot* free_tx();
  void post_receives(
      uint64_t until = UINT64_MAX);  // as many as there are slots, at most until so many in all
  void take(const fi_cq_tagged_entry& entry);
  [[gnu::cold]] void idle();
  [[gnu::cold]] void completion_error();
  [[gnu::cold]] void call_error(ssize_t status);
  void fill(std::byte* buffer, uint64_t sequence) const;
  void verify(const std::byte* buffer, uint64_t sequence) const;

  Session& session_;
  Channel& channel_;
  const Shape shape_;
  // Copies of what the loops need, so that they lie together.
  fid_ep* const ep_;
  fid_cq* const cq_;
  const fi_addr_t peer_;
  void* const descriptor_;
  const uint64_t data_tag_;
  const size_t tx_size_, rx_size_;  // an ack is shorter than the data it answers
  const bool small_;                // can be injected
  const bool verify_received_;      // acks have no pattern
  std::vector<Slot> tx_, rx_;
  std::vector<Slot*> tx_free_, rx_free_;
  std::vector<Slot> notice_slots_;  // receives of short messages that tell of others
  std::vector<Slot*> notice_free_;
  uint64_t notices_ = 0, notices_awaited_ = 0, data_taken_ = 0;
  uint64_t sent_ = 0, posted_ = 0, received_ = 0, written_here_ = 0;
  uint64_t streamed_in_ = 0;  // of received_, what earlier calls of stream_in() were to take
  uint64_t empty_polls_ = 0;
  uint64_t moved_ = 0;  // completions so far, to see a stall
  uint64_t moved_at_check_ = 0;
  int64_t check_ns_ = 0, stall_begin_ns_ = 0;
  Histogram times_;
};

// What a server of several clients has to know of their messages.
uint64_t data_tag_of(unsigned lane);
unsigned lane_of(uint64_t tag);
constexpr uint64_t lanes_of_tag = uint64_t{0xffff} << 16;  // bits that a receive from any client ignores
constexpr size_t ack_size = 8;                             // of "a window has come" and "the writes are over"
uint64_t whole_windows(uint64_t messages, unsigned window);
int64_t now_ns();  // CLOCK_MONOTONIC, in the vdso: no system call

}  // namespace weft::tool
