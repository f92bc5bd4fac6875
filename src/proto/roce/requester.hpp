// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Requester: the sending side of the queue pairs of an adapter (IBTA 9.7.3, 9.7.6, 10.8). It puts send requests into packets,
// takes acknowledgements and responses, sends again what was lost, and completes requests in order. Of a queue pair it changes
// `sends`, `requester`, `repeater`, the algorithm's state, its pace and the counters, and the state to SQE.
//
// Must not know: how a packet finds its queue pair, other queue pairs, when it is whose turn (Scheduler), what the same queue
// pair owes its peer (Responder). What it shares with the responder is Services; a queue pair fails through
// Services::to_error(), which calls flush_sends().
//
// Its functions are in requester.cpp (packets of requests), acknowledge.cpp (answers), selective.cpp, tail.cpp, congestion.cpp,
// unreliable.cpp, datagram.cpp and common_case.cpp.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/roce/congestion.hpp"
#include "proto/roce/psn.hpp"
#include "proto/roce/queue_pair.hpp"
#include "proto/roce/services.hpp"
#include "proto/roce/work.hpp"
#include "wire/roce/packet.hpp"

namespace weft::proto::roce {

class Requester {
 public:
  using Packet = wire::roce::Packet;
  static constexpr uint64_t window_timeout_ns =
      100'000'000;  // UC without a window update; then there is no limit
  // Packets; then an update tells of too old ones to begin a window.
  static constexpr int32_t window_behind_max = 4096;

  explicit Requester(Services& services) : services_(services) {}
  Requester(const Requester&) = delete;
  Requester& operator=(const Requester&) = delete;

  // --- commands ---
  // Into the send queue, which has room; what is wrong with the request was looked for before.
  void post(QueuePair& qp, const SendRequest& request) noexcept;
  // post() and transmit() of the common case: one packet, nothing before it. Other: it is none, and nothing has changed.
  enum class Common : uint8_t { Other, Posted, BeforeAcknowledgement };
  Common post_common(QueuePair& qp, const SendRequest& request, uint64_t now) noexcept;

  // --- what the scheduler names --- at most `budget` packets
  Sent transmit(QueuePair& qp, uint64_t now, int budget) noexcept;            // RC, XRC, UC
  Sent transmit_datagrams(QueuePair& qp, uint64_t now, int budget) noexcept;  // UD
  Sent repeat(QueuePair& qp, uint64_t now, int& budget) noexcept;             // what the peer misses

  // --- input --- of the queue pair's peer, and of a connected one that sends, unless said otherwise
  void on_answer(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  // The acknowledgement of the oldest request, which is one packet. False: it is another case, and nothing has changed.
  bool on_common_ack(QueuePair& qp, uint32_t psn, uint8_t syndrome, uint64_t now) noexcept;
  // Of any source and state.
  void on_sack(QueuePair& qp, bool is_peer, const Packet& packet, uint64_t now) noexcept;
  void on_cnp(QueuePair& qp, bool is_peer, const Packet& packet, uint64_t now) noexcept;
  void on_window_update(QueuePair& qp, bool is_peer, const Packet& packet) noexcept;

  // --- time ---
  // The timer of the queue pair is due: RNR, pace, an answer, a probe.
  void on_timer(QueuePair& qp, uint64_t now) noexcept;

  // --- states ---
  static void begin(QueuePair& qp) noexcept;  // RTR to RTS
  static void reset(QueuePair& qp) noexcept;  // what is posted is forgotten
  static void set_selective(QueuePair& qp, bool is_wanted) noexcept;
  void flush_sends(QueuePair& qp, uint64_t now) noexcept;  // ERR, SQE
  void report_drained(QueuePair& qp) noexcept;             // SQD: the event, if it is owed and time

  // Adapter::end_of_sent(), Adapter::awaits_before().
  static uint32_t end_of_sent(const QueuePair& qp) noexcept;
  static bool awaits_before(const QueuePair& qp, uint32_t psn) noexcept;

 private:
  // requester.cpp
  enum class Begin : uint8_t { Go, Blocked, Done, Failed };
  Begin begin_request(QueuePair& qp, SendEntry& entry, uint64_t now) noexcept;
  Sent transmit_answered(QueuePair& qp, SendEntry& entry, uint64_t now) noexcept;
  Sent transmit_packet(QueuePair& qp, SendEntry& entry, uint64_t now) noexcept;
  Sent repeat_packet(QueuePair& qp, uint32_t index, uint32_t number, uint64_t now) noexcept;
  bool gather_answered(QueuePair& qp, uint32_t index, iovec* parts, size_t& count, size_t& length) noexcept;
  bool gather(QueuePair& qp, uint32_t index, uint64_t offset, size_t length, iovec* parts,
              size_t& count) noexcept;
  bool scatter(QueuePair& qp, uint32_t index, uint64_t offset, std::span<const std::byte> from) noexcept;
  static bool asks(const QueuePair& qp, const SendEntry& entry, bool is_last, uint32_t psn,
                   uint32_t psns) noexcept;
  bool asks_again(QueuePair& qp) noexcept;
  void complete_sends(QueuePair& qp, uint64_t now) noexcept;
  void complete_send(QueuePair& qp, Status status, uint64_t now) noexcept;
  void fail_send(QueuePair& qp, Status status, uint64_t now) noexcept;

  // acknowledge.cpp
  void on_answer_to_duplicate(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void handle_answer(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_ack(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_read_response(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  void on_atomic_ack(QueuePair& qp, const Packet& packet, uint64_t now) noexcept;
  bool reach(QueuePair& qp, uint32_t index, uint32_t psn, uint64_t now) noexcept;
  static bool find_open(QueuePair& qp, uint32_t psn, uint32_t& index) noexcept;
  bool acknowledge_all(QueuePair& qp, uint32_t psn, uint64_t now) noexcept;
  void advance(QueuePair& qp, uint32_t oldest, uint64_t now) noexcept;
  static bool is_back(const QueuePair& qp) noexcept;
  void go_back(QueuePair& qp) noexcept;
  void retry(QueuePair& qp, uint64_t now, bool counts = true) noexcept;
  void on_implied_nak(QueuePair& qp, uint64_t now) noexcept;

  // selective.cpp
  static bool has_sack_reported(const QueuePair& qp) noexcept;
  static bool is_going_back(const QueuePair& qp) noexcept;
  template <class IsLost>
  static void find_lost(QueuePair& qp, uint32_t limit, IsLost&& is_lost) noexcept;
  void probe(QueuePair& qp, uint64_t now) noexcept;
  static void end_repeats(QueuePair& qp) noexcept;

  // tail.cpp
  void probe_tail(QueuePair& qp, uint64_t now) noexcept;
  static void find_tail_loss(QueuePair& qp, uint64_t now) noexcept;
  // The peer says that packets are missing.
  static void heard_of_loss(QueuePair& qp, uint64_t now) noexcept {
    if (qp.requester.has_probed) [[unlikely]]
      find_tail_loss(qp, now);
  }
  // An answer is awaited from now on.
  static void await_answer(QueuePair& qp, uint64_t now) noexcept {
    RequesterState& r = qp.requester;
    const uint64_t timeout = ack_timeout_ns(qp.attributes.timeout);
    if (timeout == UINT64_MAX) return;
    r.deadline = now + timeout;
    r.probe_at = now + r.round_trip.wait();
    r.was_put_off = false;
  }

  // unreliable.cpp
  static bool awaits_window(QueuePair& qp, uint32_t psn, uint64_t now) noexcept;
  static bool asks_window(const QueuePair& qp, uint32_t psn) noexcept;
  void end_window(QueuePair& qp) noexcept;

  Services& services_;
};

}  // namespace weft::proto::roce
