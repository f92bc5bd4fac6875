// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Scheduler: which queue pair sends next, when a queue pair has to be looked at again, and which kind of packet a queue pair
// sends next in its turn. It reads what requester and responder owe, and changes of a queue pair only the hook of the ready
// list, the place in the heap of timers, the pace, and what it has named in `attention`. Must not know packets, memory or the output: the adapter sends what is
// named here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/assert.hpp"
#include "base/list.hpp"
#include "proto/roce/queue_pair.hpp"
#include "proto/roce/timers.hpp"
#include "wire/roce/headers.hpp"

namespace weft::proto::roce {

// What became of a part of a turn.
enum class Sent : uint8_t {
  Idle,   // nothing is left to send, or it waits for something
  More,   // the budget is used up
  NoRoom  // the output took no more
};

enum class PacketKind : uint8_t {
  None,            // the turn is over
  Cnp,             // CNP
  WindowUpdate,    // UC
  Repetition,      // of packets that the peer misses
  Response,        // to READs and atomics, then the acknowledgement or NAK
  Request,         // packets of send requests
  Acknowledgement  // it follows requests, so that both leave in one system call
};

// One turn of a queue pair. Scheduler::next() writes it; the adapter takes from `allowance` and `budget` what it sent, and adds
// what came of it.
struct Turn {
  enum class Stage : uint8_t { Begin, Attended, Packets, Requests, Acknowledgement, Over };
  Stage stage = Stage::Begin;  // which kinds were named already
  bool is_paced = false;       // the algorithm has a rate
  bool has_all = false;        // responses have the whole budget: requests did not use their half
  Sent result = Sent::Idle;    // of the parts so far: NoRoom ends the turn, More stays
  int budget = 0;              // packets of the turn, after repetitions
  int allowance = 0;           // packets of the kind that was named
  int spare = 0;               // packets of the budget that are not for responses
  uint64_t before = 0;         // QueuePair::sent before the first packet of requests or responses

  // What came of the kind that was named. False: the turn is over.
  bool goes_on(Sent sent) noexcept {
    if (sent != Sent::Idle) result = sent;
    return sent != Sent::NoRoom && (stage != Stage::Over || is_paced);
  }
};

class Scheduler {
 public:
  static constexpr int burst = 16;  // packets of a queue pair in one turn

  // --- which queue pair is next ---
  bool has_ready() const noexcept { return !ready_.empty(); }
  QueuePair* first() const noexcept { return ready_.front(); }
  static bool is_ready(const QueuePair& qp) noexcept {
    return List<QueuePair, NamedHook<ReadyName>>::linked(qp);
  }
  // Behind those that are ready.
  void make_ready(QueuePair& qp) noexcept {
    if (!is_ready(qp)) ready_.push_back(qp);
  }
  // Takes the next one out. There is one.
  QueuePair& pop() noexcept { return *ready_.pop_front(); }
  // It goes first again: the output had no room.
  void put_back(QueuePair& qp) noexcept {
    if (!is_ready(qp)) ready_.push_front(qp);
  }
  void remove(QueuePair& qp) noexcept {
    if (is_ready(qp)) ready_.remove(qp);
  }

  // --- when one has to be looked at again ---
  void reserve(size_t queue_pairs) { timers_.reserve(queue_pairs); }
  uint64_t next_due() const noexcept { return timers_.next_due(); }  // UINT64_MAX: no timer
  QueuePair& first_due() const noexcept { return *timers_.front(); }
  // As the deadlines of the queue pair are now: of an answer, of an RNR NAK, of a probe; of the pace and of repetitions.
  void set_timer(QueuePair& qp) noexcept {
    const RequesterState& r = qp.requester;
    uint64_t due = r.deadline < r.wait_until ? r.deadline : r.wait_until;
    due = due < r.probe_at ? due : r.probe_at;
    if (qp.attention != 0) [[unlikely]]
      due = due < attended_due(qp) ? due : attended_due(qp);
    timers_.set(qp, due);
  }
  void clear_timer(QueuePair& qp) noexcept { timers_.set(qp, UINT64_MAX); }
  // The next timer is that of a probe, which may be late. Otherwise the queue pair would be due at `otherwise`.
  bool is_probe_next(uint64_t& otherwise) const noexcept;

  // --- which kind of packet ---
  // What the queue pair sends next.
  PacketKind next(QueuePair& qp, Turn& turn, uint64_t now) noexcept {
    switch (turn.stage) {
      case Turn::Stage::Begin:
        if (qp.attention != 0) [[unlikely]] {
          turn.stage = Turn::Stage::Attended;
          return next_attended(qp, turn, now);
        }
        turn.budget = burst;
        return next_packets(qp, turn, burst / 2);
      case Turn::Stage::Attended:
        return next_attended(qp, turn, now);
      case Turn::Stage::Packets:
        return next_packets(qp, turn, half_of(turn));
      case Turn::Stage::Requests:
        turn.stage = Turn::Stage::Over;
        if (!sends(qp)) break;
        turn.allowance += turn.spare;
        return PacketKind::Request;
      case Turn::Stage::Acknowledgement:
        turn.stage = Turn::Stage::Over;
        return PacketKind::Acknowledgement;
      case Turn::Stage::Over:
        break;
    }
    return turn.is_paced ? next_of_responses(qp, turn) : PacketKind::None;
  }
  // The whole turn is one acknowledgement.
  static bool is_acknowledgement_alone(const QueuePair& qp) noexcept {
    return qp.attention == 0 && owes_acknowledgement(qp);
  }
  // After the last packet of a paced turn: a queue pair that has more waits for its pace.
  Sent end_paced(QueuePair& qp, const Turn& turn, uint64_t now) noexcept;

  // --- what a queue pair owes ---
  // Nothing but an acknowledgement, and it has nothing to send.
  static bool owes_acknowledgement(const QueuePair& qp) noexcept {
    const ResponderState& r = qp.responder;
    return r.ack_due && r.pending == 0 && r.syndrome == wire::roce::syndrome_ack && qp.type == QpType::Rc &&
           qp.state == QpState::ReadyToSend && qp.requester.cursor == qp.sends.tail;
  }
  // All that is ready is one acknowledgement.
  bool owes_acknowledgement_alone() const noexcept {
    const QueuePair* const qp = first();
    return qp != nullptr && qp == ready_.back() && is_acknowledgement_alone(*qp);
  }

 private:
  static bool sends(const QueuePair& qp) noexcept {
    return qp.state == QpState::ReadyToSend || qp.state == QpState::SendDrained;
  }
  // Of the timers that a queue pair has only while something is the matter.
  static uint64_t attended_due(const QueuePair& qp) noexcept {
    return qp.repeater == nullptr ? qp.pace_until : std::min(qp.pace_until, qp.repeater->probe_at);
  }
  // Of a budget of one, responses and requests have every second.
  static int half_of(const Turn& turn) noexcept {
    return turn.is_paced ? (turn.budget + static_cast<int>(turn.before & 1)) / 2 : turn.budget / 2;
  }
  PacketKind next_attended(QueuePair& qp, Turn& turn, uint64_t now) noexcept;
  static PacketKind next_of_responses(const QueuePair& qp, Turn& turn) noexcept;
  // A peer that READs all the time does not keep the queue pair from sending: with requests to send, responses have `half`
  // of its turn.
  static PacketKind next_packets(const QueuePair& qp, Turn& turn, int half) noexcept {
    WEFT_ASSERT(half <= turn.budget && half >= 0);
    const bool has_requests = qp.requester.cursor != qp.sends.tail;
    const ResponderState& r = qp.responder;
    turn.allowance = turn.budget;
    if (has_requests && qp.type != QpType::Ud && r.ack_due && r.pending == 0 &&
        r.syndrome == wire::roce::syndrome_ack && sends(qp)) {
      turn.stage = Turn::Stage::Acknowledgement;
      return PacketKind::Request;
    }
    // Nothing is owed: requests have all.
    if (has_requests && !r.ack_due && r.pending == 0 && sends(qp)) {
      turn.stage = Turn::Stage::Over;
      return PacketKind::Request;
    }
    turn.stage = Turn::Stage::Requests;
    if (has_requests) turn.allowance = half;
    turn.spare = turn.budget - turn.allowance;
    return PacketKind::Response;
  }

  List<QueuePair, NamedHook<ReadyName>> ready_;  // those with something to send, in the order of their turns
  Timers timers_;                                // those that wait for a time
};

}  // namespace weft::proto::roce
