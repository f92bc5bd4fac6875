// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The state of a queue pair. Adapter, Requester, Responder and Scheduler change it, each its own part; what is public is for
// them, for the front end that queries, and for tests. Must not know packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/assert.hpp"
#include "base/list.hpp"
#include "proto/congestion/dcqcn.hpp"
#include "proto/loss/shortest_rtt.hpp"
#include "proto/roce/attributes.hpp"
#include "proto/roce/psn.hpp"
#include "proto/roce/queues.hpp"
#include "proto/roce/round_trip.hpp"
#include "proto/roce/selective.hpp"
#include "proto/roce/tag.hpp"
#include "proto/roce/work.hpp"

namespace weft::proto::roce {

// Negative acknowledgements by what they say, sent and received.
struct NakCounters {
  uint64_t rnr = 0;
  uint64_t sequence = 0;
  uint64_t request = 0;
  uint64_t access = 0;
  uint64_t operation = 0;
};

struct Capacities {
  uint32_t send_requests = 1;
  uint32_t receive_requests = 1;
  uint32_t send_elements = 1;
  uint32_t receive_elements = 1;
  uint32_t inline_bytes = 0;
};

struct QueuePairRequest {
  QpType type = QpType::Rc;
  uint32_t pd = 0;
  uint32_t xrcd = 0;  // of XrcReceive
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* receive_cq = nullptr;
  SharedReceiveQueue* srq = nullptr;
  Capacities capacities;
  bool signal_all = false;
  uint32_t number = 0;  // that peers know without being told; 0: an unpredictable one
  void* context = nullptr;
};

// One READ or atomic that the peer has asked for: IBTA 9.7.4, "responder resources".
struct Resource {
  bool used = false;
  bool is_atomic = false;
  // AtomicWrite or Flush: it is answered like a READ of no bytes.
  wire::roce::Operation bare = wire::roce::Operation::ReadRequest;
  bool pending = false;                   // there are responses to send
  bool answered = false;                  // all of them have gone once
  Duplicate duplicate = Duplicate::None;  // a duplicate asks for them
  uint32_t first_psn = 0;
  uint32_t packets = 0;
  uint32_t begin = 0;  // of the request that is being answered, in packets: the first, or a duplicate
  uint32_t next = 0;
  uint32_t end = 0;
  uint64_t address = 0;
  uint32_t key = 0;
  uint32_t pd = 0;
  uint32_t length = 0;
  uint32_t msn = 0;
  uint64_t original = 0;  // of an atomic
};

inline constexpr uint32_t window_least = 16;     // of UC, in packets; also until the first update
inline constexpr uint32_t unasked_packets = 16;  // requests without AckReq, where nothing slows them down

// The requester's part of a queue pair. Requester changes it, and adopt_window() what the algorithm allows. Times are those of the adapter's clock in ns; UINT64_MAX is no time.
// PSNs have 24 bits.
// 32 members: a plain record without a class of its own for tail loss, because each packet that is sent or acknowledged writes both
// halves.
struct RequesterState {
  // Which packet is next. Requests are counted as in SendQueue, whose [head, tail) are posted.
  uint32_t cursor = 0;  // the request that is sent next; tail: all are sent
  uint32_t packet = 0;  // its next packet, from 0 on
  uint32_t oldest = 0;  // the first PSN that is not acknowledged, if it comes before `next`
  uint32_t next = 0;    // the first PSN that was never sent
  // What bounds the packets under way.
  uint32_t unasked = 0;                    // packets since the last one that asked for an acknowledgement
  uint32_t unasked_max = unasked_packets;  // with so many one asks
  uint32_t open_reads = 0;                 // READs and atomics from the head to the cursor
  uint32_t responses = 0;                  // packets of responses that those READs still await
  // PSNs between oldest and next that do not fill the window: responses, and what the peer keeps behind a gap.
  uint32_t apart = 0;
  // Packets under way at most, as the window of QueuePair::congestion has it. UINT32_MAX: that is idle, and does not hear of
  // acknowledgements.
  uint32_t allowed = UINT32_MAX;
  // UC to a peer that sends window updates.
  uint32_t window = 0;    // packets under way at most; 0: no limit
  uint32_t reported = 0;  // the first PSN that no update has covered
  // Retries: of retry_cnt and rnr_retry, how many are left. Both start anew with each acknowledgement.
  uint8_t retries = 0;
  uint8_t rnr_retries = 0;
  bool has_recovered = false;        // an implied NAK was heeded, and nothing was acknowledged since
  bool has_gone_back = false;        // the same for a NAK of a gap
  uint64_t wait_until = UINT64_MAX;  // after an RNR NAK nothing is sent before
  uint64_t deadline = UINT64_MAX;    // the timeout of an answer; UC: of a window update
  uint64_t tag_key = 0;              // of the requests that are sent; 0: the peer is not of Weft (tag.hpp)
  // Tail loss (tail.cpp).
  uint64_t probe_at = UINT64_MAX;  // a packet is sent again if nothing is acknowledged until then
  uint64_t sent_at = 0;            // when the last packet left that was no probe
  uint64_t timed_at = 0;           // when the packet `timed` left, whose round trip is measured; 0: none is
  uint32_t timed = 0;              // PSN
  uint8_t probes = 0;              // sent since the last acknowledgement
  bool was_put_off = false;        // the first of them was, once
  bool has_probed = false;         // and no answer said yet what the responder has before `probed`
  uint32_t probed = 0;             // the first PSN that had not been sent at the last probe
  uint64_t probed_at = 0;          // when the last probe left, or what a timeout sent again
  uint64_t silent_from = 0;        // the last acknowledgement or packet before the probes
  bool marks_duplicates = false;   // the peer marks answers to duplicates: one was marked
  Duplicate duplicate = Duplicate::None;  // the mark of the answer that is being taken
  RoundTrip round_trip;

  void await_nothing() noexcept { deadline = probe_at = UINT64_MAX; }
  // A packet that was never sent before, and asks for an acknowledgement or a response, has left.
  void time(uint32_t psn, uint64_t now) noexcept {
    if (timed_at != 0) return;
    timed = psn;
    timed_at = now;
  }
  // Packets are sent again that were not probed: no answer is measured, nor taken for one to a probe.
  void forget_timed() noexcept {
    timed_at = 0;
    round_trip.forget_probe();
  }
  // All before `oldest` is acknowledged.
  void heard(uint64_t now) noexcept {
    if (timed_at != 0 && psn_diff(oldest, timed) > 0) {
      round_trip.sample(now - timed_at);
      timed_at = 0;
    }
    if (probes != 0) [[unlikely]]
      end_probes(now);
  }
  // A probe has left, or a timeout sent again.
  void put_off_probe(uint64_t now) noexcept {
    probed_at = now;
    probe_at = now + round_trip.wait_after(probes);
  }
  void end_probes(uint64_t now) noexcept;
};

// The responder's part of a queue pair. Responder changes it; Adapter notes here what it learns of the peer.
struct ResponderState {
  enum class Message : uint8_t { None, Send, Write };
  uint32_t expected = 0;      // PSN of the next request
  uint32_t msn = 0;           // messages that were executed, modulo 2^24 (IBTA 9.7.7)
  uint32_t newest_plain = 0;  // PSN of the newest SEND or WRITE packet: what a plain ACK names
  bool is_silent = false;     // a NAK for the expected PSN has gone: no other goes, but SACK bitmaps do
  bool has_heard = false;     // the event of the first packet in RTR has gone
  bool knows_tags = false;    // a request with the expected PSN had the right tag: the peer sends tags
  // The message that has begun and not ended.
  Message message = Message::None;
  uint32_t received = 0;  // bytes of it so far
  // The posted receive that it uses, or that the next one will.
  bool has_receive = false;
  Receive receive;
  std::vector<Element> elements;  // of that receive
  SharedReceiveQueue* srq =
      nullptr;  // where that receive was taken from; null: the queue pair's own, or one that is destroyed
  // Of a WRITE: what its RETH said.
  uint64_t address = 0;
  uint32_t key = 0;
  uint32_t length = 0;
  // The acknowledgement or NAK that is owed.
  bool ack_due = false;
  Duplicate duplicate = Duplicate::None;  // the mark that it gets: a duplicate is among what it covers
  bool is_final = false;  // it is sent in ERR: the NAK that led there, or what had been executed before
  uint8_t syndrome = 0;
  uint32_t ack_psn = 0;      // UC: the PSN that a window update names
  uint32_t acked_plain = 0;  // PSN of the newest plain ACK that was sent
  // READs and atomics of the peer, as many as max_dest_rd_atomic: a ring, of which the newest is at newest_resource.
  std::vector<Resource> resources;
  uint32_t newest_resource = 0;
  uint32_t pending = 0;             // of them: with responses to send
  uint32_t answering = UINT32_MAX;  // the place of the first pending one; UINT32_MAX: has to be searched
  uint64_t tag_key = 0;             // of the requests that come; 0: the peer is not of Weft (tag.hpp)
};

// What the next turn of a queue pair has to look at first.
enum Attention : uint8_t {
  attention_overrun = 1,  // a completion found no room
  attention_cnp = 2,      // the peer is owed a CNP
  attention_pace = 4,     // the algorithm has a rate
  attention_repeat = 8,   // the peer tells of gaps
  attention_window = 16,  // UC: the peer is owed a window update
};

struct ReadyName;

// 45 members: what ibv_create_qp(3) and ibv_modify_qp(3) set, the parts of requester, responder and scheduler, and 15
// counters.
struct QueuePair : NamedHook<ReadyName> {
  uint32_t number = 0;
  QpType type = QpType::Rc;
  QpState state = QpState::Reset;
  uint32_t pd = 0;
  uint32_t xrcd = 0;
  bool signal_all = false;
  bool drain_pending = false;      // SQD: the event is owed
  bool last_wqe_reported = false;  // IBV_EVENT_QP_LAST_WQE_REACHED was delivered
  bool has_window = false;         // UC with a peer of Weft: window updates bound what is under way
  uint8_t cause = 0;               // why it fails, or has failed: enum weft_verbs_fault
  uint8_t attention = 0;           // Attention; 0 on the fast path
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* receive_cq = nullptr;
  SharedReceiveQueue* srq = nullptr;
  Attributes attributes;
  SendQueue sends;
  ReceiveQueue receives;
  RequesterState requester;
  ResponderState responder;
  // Congestion. The timers have the four deadlines of a queue pair as one.
  uint64_t pace_until = UINT64_MAX;  // the rate permits no packet before; ns
  uint64_t cnp_after = 0;            // no CNP is sent before; ns
  uint32_t cut_psn = 0;              // the first PSN that was sent after the last cut of the rate
  // Cold below.
  uint64_t due = UINT64_MAX;      // the scheduler's: the earliest of its timers, ns
  size_t timer_index = SIZE_MAX;  // and the place in the heap of them; SIZE_MAX: in none
  void* context = nullptr;        // the front end's
  // As in AdapterCounters, of this queue pair.
  uint64_t sent = 0;        // packets
  uint64_t sent_bytes = 0;  // of payload
  uint64_t sent_again = 0;
  uint64_t received = 0;
  uint64_t received_bytes = 0;
  uint64_t duplicates = 0;
  uint64_t gaps = 0;
  uint64_t naks_sent = 0;
  uint64_t naks_received = 0;
  NakCounters naks;  // both of these
  uint64_t timeouts = 0;
  uint64_t ghosts = 0;    // acknowledgements of nothing that is open
  uint64_t repeated = 0;  // of sent_again: by selective repeat
  uint64_t buffered = 0;
  congestion::Slot congestion{congestion::make<congestion::Dcqcn>};
  loss::ShortestRtt shortest_rtt;  // while the algorithm is not idle,
  uint64_t arrived = 0;            // and packets that were acknowledged meanwhile
  uint64_t too_long = 0;           // messages of UD and UC that are longer than the posted receive
  // Selective repeat; null: not with this peer.
  std::unique_ptr<ReorderBuffer> reorder;
  std::unique_ptr<Repeater> repeater;

  bool is_reliable() const noexcept { return type != QpType::Uc && type != QpType::Ud; }
  bool is_xrc() const noexcept { return type == QpType::XrcSend || type == QpType::XrcReceive; }

  // What holds between two calls of the adapter.
  void assert_invariants() const noexcept {
    [[maybe_unused]] const uint32_t posted = sends.tail - sends.head;
    [[maybe_unused]] const uint32_t passed = requester.cursor - sends.head;
    WEFT_ASSERT(posted <= sends.capacity());
    WEFT_ASSERT(passed <= posted);
    WEFT_ASSERT(requester.packet == 0 || passed < posted);
    WEFT_ASSERT(psn_diff(requester.next, requester.oldest) >= 0);
    WEFT_ASSERT(requester.open_reads <= passed);
    WEFT_ASSERT(requester.responses == 0 || requester.open_reads != 0);
    WEFT_ASSERT(requester.allowed != 0);
    WEFT_ASSERT(is_reliable() || (requester.open_reads == 0 && requester.apart == 0));
    WEFT_ASSERT(is_reliable() || requester.wait_until == UINT64_MAX);
    WEFT_ASSERT(!is_reliable() || requester.oldest != requester.next || requester.deadline == UINT64_MAX);
    WEFT_ASSERT(requester.wait_until == UINT64_MAX || requester.deadline == UINT64_MAX);
    WEFT_ASSERT(requester.deadline != UINT64_MAX || requester.probe_at == UINT64_MAX);
    WEFT_ASSERT(is_reliable() || requester.probe_at == UINT64_MAX);
    WEFT_ASSERT(state != QpState::Reset || posted == 0);
    WEFT_ASSERT((state != QpState::Error && state != QpState::SendError) || posted == 0);
    WEFT_ASSERT(state != QpState::SendError || !is_reliable());
    WEFT_ASSERT((due == UINT64_MAX) == (timer_index == SIZE_MAX));
    WEFT_ASSERT(state != QpState::Error || due == UINT64_MAX);
    // The responder.
    WEFT_ASSERT(responder.pending <= responder.resources.size());
    WEFT_ASSERT(is_reliable() || (responder.pending == 0 && !responder.ack_due));
    WEFT_ASSERT(!responder.is_final || state == QpState::Error);
    WEFT_ASSERT(responder.message != ResponderState::Message::Send || responder.has_receive);
    WEFT_ASSERT(responder.message != ResponderState::Message::Send ||
                responder.received <= responder.receive.room);
    WEFT_ASSERT(responder.message != ResponderState::Message::Write || responder.received < responder.length);
    WEFT_ASSERT(state != QpState::Error ||
                (!responder.has_receive && responder.message == ResponderState::Message::None));
    WEFT_ASSERT(responder.tag_key != 0 || !responder.knows_tags);
    // Selective repeat and congestion.
    WEFT_ASSERT(reorder == nullptr || !reorder->is_open || responder.is_silent);
    WEFT_ASSERT(reorder == nullptr || !reorder->is_open ||
                psn_diff(reorder->newest, responder.expected) >= 0);
    WEFT_ASSERT(reorder == nullptr || !reorder->is_open ||
                psn_diff(reorder->newest, responder.expected) < static_cast<int32_t>(reorder_span));
    WEFT_ASSERT(((attention & attention_repeat) != 0) == (repeater != nullptr && repeater->is_open));
    WEFT_ASSERT(repeater == nullptr || repeater->counted <= requester.apart);
    WEFT_ASSERT(repeater == nullptr || repeater->is_open ||
                (repeater->counted == 0 && repeater->probe_at == UINT64_MAX));
    WEFT_ASSERT(!congestion->is_paced() || (attention & attention_pace) != 0);
    WEFT_ASSERT((attention & attention_window) == 0 || has_window);
    WEFT_ASSERT((attention & attention_cnp) == 0 || type != QpType::Ud);
  }
};

}  // namespace weft::proto::roce
