// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tail loss: whichever packet of a request is lost, a probe finds it within a few round trips; peers that pause are not
// taken for losses; the timeout alone counts retries.
#include <algorithm>
#include <deque>
#include <functional>
#include <string>

#include "proto/roce/round_trip.hpp"
#include "proto/roce/sim_pair.hpp"

namespace weft::proto::roce::sim {
namespace {

constexpr uint64_t us = 1000;
constexpr uint64_t ms = 1000 * us;

// Two ports with a delay between them. A port that is away takes nothing and runs no timers until then.
struct Line : Pair {
  explicit Line(bool is_weft_peer, uint8_t timeout = 14, uint8_t reads = 2, QpType type = QpType::Rc) {
    if (is_weft_peer)
      for (Port* port : {&a, &b}) port->adapter.is_weft_peer = [](const Gid&) noexcept { return true; };
    common.timeout = timeout;
    common.max_reads = common.max_dest_reads = reads;
    common.retry_count = 3;
    if (type == QpType::XrcSend) make_xrc();
    connect();
    fill(from, 3);
    fill(to, 4);
  }
  Line(bool is_weft_peer, QpType type) : Line(is_weft_peer, 14, 2, type) {}
  struct Flight {
    uint64_t at;
    Port* to;
    PacketBytes bytes;
  };
  uint64_t& away_of(const Port& port) { return &port == &a ? a_away : b_away; }

  void step() {
    for (Port* port : {&a, &b}) {
      if (away_of(*port) > now) continue;
      port->adapter.flush(now);
      for (PacketBytes& one : port->out) {
        uint64_t& count = port == &a ? a_sent : b_sent;
        if (port == &a) last = one;
        if (!loses || !loses(port == &a, count)) flights.push_back({now + delay, port == &a ? &b : &a, one});
        ++count;
      }
      port->out.clear();
    }
    uint64_t next = UINT64_MAX;
    for (Port* port : {&a, &b})
      next = std::min(next,
                      std::max(port->adapter.has_ready() ? now : port->adapter.next_due(), away_of(*port)));
    for (const Flight& one : flights) next = std::min(next, std::max(one.at, away_of(*one.to)));
    if (next == UINT64_MAX) next = now + us;
    now = std::max(now, next);
    for (size_t i = 0; i < flights.size();) {
      if (std::max(flights[i].at, away_of(*flights[i].to)) > now) {
        ++i;
        continue;
      }
      const Flight one = flights[i];
      flights.erase(flights.begin() + static_cast<std::ptrdiff_t>(i));
      give(*one.to, one.bytes);
    }
  }
  // Runs one request; returns how long it took.
  uint64_t run(SendOpcode opcode, uint32_t bytes, Status status = Status::Success) {
    const uint64_t begin = now;
    SendRequest q = request(opcode, from.element(0, bytes), ++id);
    q.remote_address = to.address();
    q.remote_key = to.region->key;
    q.compare_add = 1;
    if (opcode == SendOpcode::Send) {
      EXPECT_EQ(receive(b, id, {to.element(0, 4096)}), 0);
    }
    EXPECT_EQ(send(a, q), 0);
    for (int steps = 0; steps < 100'000; ++steps) {
      step();
      const auto got = completions(a);
      if (got.empty()) continue;
      EXPECT_EQ(got[0].id, id);
      EXPECT_EQ(got[0].status, status);
      (void)completions(b);
      return now - begin;
    }
    ADD_FAILURE() << "no completion";
    return now - begin;
  }
  void warm_up(SendOpcode opcode = SendOpcode::Write) {
    for (int i = 0; i < 64; ++i) (void)run(opcode, 8);
    // Acknowledgements of the other side as well: it has no requests, and so nothing to measure.
    a_sent = b_sent = 0;
  }

  Block from{a, 8192};
  Block to{b, 8192};
  uint64_t delay = 10 * us;
  uint64_t a_away = 0, b_away = 0;
  uint64_t a_sent = 0, b_sent = 0;
  uint64_t id = 0;
  PacketBytes last;  // that a has sent
  std::deque<Flight> flights;
  std::function<bool(bool is_of_a, uint64_t number)> loses;
};

struct Kind {
  const char* name;
  SendOpcode opcode;
  uint32_t bytes;
  uint64_t packets;    // of the requester
  uint64_t responses;  // at most
  QpType type = QpType::Rc;
};

constexpr QpType xrc = QpType::XrcSend;
constexpr Kind kinds[] = {
    {"SEND", SendOpcode::Send, 8, 1, 1},
    {"SEND of three packets", SendOpcode::Send, 700, 3, 1},
    {"WRITE", SendOpcode::Write, 8, 1, 1},
    {"WRITE of three packets", SendOpcode::Write, 700, 3, 1},
    {"READ", SendOpcode::Read, 8, 1, 1},
    {"READ of four packets", SendOpcode::Read, 1000, 1, 4},
    {"FetchAdd", SendOpcode::FetchAdd, 8, 1, 1},
    {"XRC SEND", SendOpcode::Send, 8, 1, 1, xrc},
    {"XRC SEND of three packets", SendOpcode::Send, 700, 3, 1, xrc},
    {"XRC WRITE", SendOpcode::Write, 8, 1, 1, xrc},
    {"XRC WRITE of three packets", SendOpcode::Write, 700, 3, 1, xrc},
    {"XRC READ", SendOpcode::Read, 8, 1, 1, xrc},
    {"XRC READ of four packets", SendOpcode::Read, 1000, 1, 4, xrc},
    {"XRC FetchAdd", SendOpcode::FetchAdd, 8, 1, 1, xrc},
};

TEST(RoceTail, EachPacketOfEachRequestIsFoundMissing) {
  for (const bool is_weft_peer : {false, true}) {
    for (const Kind& kind : kinds) {
      for (const bool of_a : {true, false}) {
        for (uint64_t which = 0; which < (of_a ? kind.packets : kind.responses); ++which) {
          const std::string what = std::string(kind.name) + (is_weft_peer ? ", Weft, " : ", third party, ") +
                                   (of_a ? "request " : "answer ") + std::to_string(which);
          Line p(is_weft_peer, kind.type);
          p.warm_up();
          bool has_lost = false;
          p.loses = [&](bool is_of_a, uint64_t number) {
            if (has_lost || is_of_a != of_a || number != which) return false;
            return has_lost = true;
          };
          uint64_t word = 0;
          std::memcpy(&word, p.to.at, 8);
          const uint64_t took = p.run(kind.opcode, kind.bytes);
          EXPECT_TRUE(has_lost) << what;
          EXPECT_LT(took, 400 * us) << what;
          EXPECT_EQ(p.a.adapter.counters().timeouts, 0u) << what;
          if (kind.opcode == SendOpcode::FetchAdd) {
            uint64_t after = 0;
            std::memcpy(&after, p.to.at, 8);
            EXPECT_EQ(after, word + 1) << what;
            std::memcpy(&after, p.from.at, 8);
            EXPECT_EQ(after, word) << what;
          } else {
            EXPECT_EQ(std::memcmp(p.from.at, p.to.at, kind.bytes), 0) << what;
          }
          // And so again: a probe that found a loss does not make the next one later.
          has_lost = false;
          p.a_sent = p.b_sent = 0;
          EXPECT_LT(p.run(kind.opcode, kind.bytes), 400 * us) << what;
        }
      }
    }
  }
}

// Both the packets and the first probes for them.
TEST(RoceTail, ProbesAreLostToo) {
  for (const bool is_weft_peer : {false, true}) {
    for (const Kind& kind : kinds) {
      Line p(is_weft_peer, kind.type);
      p.warm_up();
      p.loses = [&](bool is_of_a, uint64_t number) { return is_of_a && number < kind.packets + 2; };
      EXPECT_LT(p.run(kind.opcode, kind.bytes), 10 * ms) << kind.name;
      EXPECT_EQ(p.a.adapter.counters().timeouts, 0u) << kind.name;
    }
  }
}

// The NAK of a gap is lost, and a responder says it once: the oldest packet goes, too.
TEST(RoceTail, TheNakOfAGapIsLost) {
  for (const QpType type : {QpType::Rc, xrc}) {
    for (const bool is_weft_peer : {false, true}) {
      Line p(is_weft_peer, type);
      p.warm_up();
      p.loses = [&](bool is_of_a, uint64_t number) { return is_of_a ? number == 0 : number < 2; };
      EXPECT_LT(p.run(SendOpcode::Send, 700), 10 * ms);
      EXPECT_EQ(p.a.adapter.counters().timeouts, 0u);
      EXPECT_EQ(std::memcmp(p.from.at, p.to.at, 700), 0);
    }
  }
}

TEST(RoceTail, AProbeIsAPlainDuplicate) {
  for (const Kind& kind : kinds) {
    Line p(false, kind.type);
    p.warm_up();
    PacketBytes sent;
    p.loses = [&](bool is_of_a, uint64_t number) {
      if (is_of_a && number + 1 == kind.packets) sent = p.last;
      if (is_of_a && number == kind.packets) {
        EXPECT_EQ(sent, p.last) << kind.name;
      }
      return is_of_a && number + 1 == kind.packets;
    };
    (void)p.run(kind.opcode, kind.bytes);
    EXPECT_EQ(p.a.adapter.counters().probes, 1u) << kind.name;
    EXPECT_FALSE(sent.empty());
  }
}

TEST(RoceTail, TheTimeoutAloneCountsRetries) {
  for (const QpType type : {QpType::Rc, xrc}) {
    Line p(false, type);
    p.warm_up();
    p.loses = [](bool, uint64_t) { return true; };
    const uint64_t took = p.run(SendOpcode::Send, 8, Status::RetryExceeded);
    EXPECT_EQ(p.a.adapter.counters().timeouts, 4u);  // retry_count of 3
    EXPECT_GE(took, 4 * ack_timeout_ns(14));
    EXPECT_LE(took, 4 * ack_timeout_ns(14) + ms);
    EXPECT_LE(p.a.adapter.counters().probes, 4u * 8);
  }
}

// A timeout of the program that is shorter than the first probe is what it was.
TEST(RoceTail, AShortTimeoutComesFirst) {
  Line p(false, 4);  // 66 us
  p.warm_up();
  p.loses = [](bool is_of_a, uint64_t number) { return is_of_a && number == 0; };
  EXPECT_LT(p.run(SendOpcode::Send, 8), ms);
  EXPECT_EQ(p.a.adapter.counters().timeouts, 1u);
  EXPECT_EQ(p.a.adapter.counters().probes, 0u);
}

// Without a timeout (0) a program waits for ever, as it asked for.
TEST(RoceTail, NoTimeoutIsNoProbe) {
  Line p(false, 0);
  p.warm_up();
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, p.from.element(0, 8))), 0);
  EXPECT_EQ(p.a.adapter.next_due(), UINT64_MAX);
}

// --- peers that pause ---

struct Pauses {
  const char* name;
  uint32_t each;  // requests, on average
  uint64_t ns;    // at most
  uint64_t jitter_ns;
};

// Nothing is lost: of a thousand packets less than one is repeated.
TEST(RoceTail, PausesAreNoLosses) {
  constexpr Pauses all[] = {{"jitter", 1'000'000'000, 0, 60 * us}, {"a busy core", 300, 8 * ms, 20 * us},
                            {"rarely", 3000, 12 * ms, 0},          {"acknowledgements held back", 50, ms, 0},
                            {"short pauses", 20, 3 * ms, 0},       {"every time", 1, 4 * ms, 0},
                            {"moments", 20, 400 * us, 0},          {"some moments", 200, 400 * us, 0},
                            {"few moments", 1000, 800 * us, 0},    {"short moments", 300, 200 * us, 0}};
  for (const bool is_weft_peer : {false, true}) {
    for (const Pauses& one : all) {
      for (const SendOpcode opcode : {SendOpcode::Send, SendOpcode::Read}) {
        Line p(is_weft_peer);
        std::mt19937_64 random(7);
        const uint64_t requests = 20'000;
        for (uint64_t i = 0; i < requests; ++i) {
          p.delay = 10 * us + (one.jitter_ns == 0 ? 0 : random() % one.jitter_ns);
          if (random() % one.each == 0) p.b_away = p.now + 5 * us + random() % one.ns;
          (void)p.run(opcode, 8);
        }
        const AdapterCounters& c = p.a.adapter.counters();
        EXPECT_LT(c.sent_again * 1000, requests) << one.name << (is_weft_peer ? ", Weft" : "");
        EXPECT_EQ(c.timeouts, 0u) << one.name;
      }
    }
  }
}

// The peer or the way to it becomes slower than the wait, for good.
TEST(RoceTail, ALongerRoundTripIsNoLoss) {
  for (const uint64_t trip : {200 * us, 300 * us, 330 * us, 400 * us, 1'250 * us, 4'500 * us, 9 * ms}) {
    for (const bool pauses : {false, true}) {
      Line p(true);
      p.warm_up();
      if (!pauses) p.delay = trip / 2;
      const uint64_t requests = 5000;
      for (uint64_t i = 0; i < requests; ++i) {
        if (pauses) p.b_away = p.now + trip - 10 * us;
        (void)p.run(SendOpcode::Send, 8);
      }
      const AdapterCounters& c = p.a.adapter.counters();
      EXPECT_LE(c.sent_again, 12u) << trip << (pauses ? ", the peer pauses" : "");
      EXPECT_EQ(c.timeouts, 0u);
    }
  }
}

// Pauses that are equally long each time, and longer paths. Only answers that say whether the request had come tell them from losses: a
// a third-party peer's do not.
TEST(RoceTail, PausesOfOneLengthAreNoLosses) {
  struct One {
    uint64_t trip;
    uint32_t each;  // requests
    uint64_t pause;
  };
  constexpr One all[] = {
      {20 * us, 10, 270 * us},    {20 * us, 40, 350 * us},    {100 * us, 20, 330 * us},
      {100 * us, 100, 450 * us},  {20 * us, 100, 4'300 * us}, {20 * us, 100, 5 * ms},
      {20 * us, 300, 1'250 * us}, {20 * us, 30, 8 * ms},
  };
  for (const One& one : all) {
    for (const Kind& kind : kinds) {
      if (kind.type == xrc && kind.bytes != 8) continue;
      Line p(true, kind.type);
      p.delay = one.trip / 2;
      const uint64_t requests = 20'000;
      for (uint64_t i = 0; i < requests; ++i) {
        if (i % one.each == one.each - 1) p.b_away = p.now + one.pause;
        (void)p.run(kind.opcode, kind.bytes);
      }
      EXPECT_LT(p.a.adapter.counters().sent_again * 1000, requests)
          << kind.name << " " << one.trip << " " << one.each << " " << one.pause;
      EXPECT_EQ(p.a.adapter.counters().timeouts, 0u);
    }
  }
}

// What says that a probe was needless acknowledges the next request, too.
TEST(RoceTail, AnAnswerToADuplicateMayAcknowledgeMore) {
  for (const uint8_t reads : {uint8_t{1}, uint8_t{2}}) {
    for (const SendOpcode opcode : {SendOpcode::Write, SendOpcode::Read, SendOpcode::FetchAdd}) {
      Line p(true, 14, reads);
      for (int i = 0; i < 13'000; ++i) (void)p.run(opcode, 8);
      const uint64_t before = p.a.adapter.counters().sent_again;
      p.delay = 150 * us;
      for (int i = 0; i < 5000; ++i) {
        (void)p.run(opcode, 8);
        p.b_away = p.now + p.delay + 20 * us;
      }
      EXPECT_GT(p.a.adapter.counters().sent_again, before);
      EXPECT_LE(p.a.adapter.counters().sent_again - before, 20u) << int{reads};
    }
  }
}

// What was answered half of all PSNs ago seems to be behind a packet of today.
TEST(RoceTail, AnOldAnswerDoesNotHideAPause) {
  Line p(true);
  (void)p.run(SendOpcode::Read, 8);
  ResponderState& r = p.b.qp->responder;
  r.resources[r.newest_resource].first_psn = psn_add(r.expected, psn_mask / 4);
  const uint64_t requests = 20'000;
  for (uint64_t i = 0; i < requests; ++i) {
    if (i % 10 == 9) p.b_away = p.now + 270 * us;
    (void)p.run(SendOpcode::Write, 8);
  }
  EXPECT_LT(p.a.adapter.counters().sent_again * 1000, requests);
}

// After many round trips, so that there is credit.
TEST(RoceTail, ALongerPathIsNoLoss) {
  struct One {
    uint64_t before, after;
  };
  for (const One& one :
       {One{20 * us, 1'300 * us}, One{500 * us, 2 * ms}, One{20 * us, 3'650 * us}, One{10 * ms, 30 * ms}}) {
    for (const SendOpcode opcode : {SendOpcode::Send, SendOpcode::Read}) {
      Line p(true);
      p.delay = one.before / 2;
      for (int i = 0; i < 13'000; ++i) (void)p.run(opcode, 8);
      const uint64_t before = p.a.adapter.counters().sent_again;
      p.delay = one.after / 2;
      for (int i = 0; i < 5000; ++i) (void)p.run(opcode, 8);
      EXPECT_LE(p.a.adapter.counters().sent_again - before, 20u) << one.before << " to " << one.after;
    }
  }
}

// Losses and pauses: the timeout is never needed.
TEST(RoceTail, LossesAmongPauses) {
  Line p(true);
  std::mt19937_64 random(9);
  p.loses = [&](bool, uint64_t) { return random() % 100 == 0; };
  uint64_t sum = 0;
  const uint64_t requests = 5000;
  for (uint64_t i = 0; i < requests; ++i) {
    if (random() % 500 == 0) p.b_away = p.now + random() % (4 * ms);
    sum += p.run(SendOpcode::Send, 8);
  }
  EXPECT_EQ(p.a.adapter.counters().timeouts, 0u);
  EXPECT_LT(sum / requests, 150 * us);  // 20 us without losses
}

// --- the estimate ---

TEST(RoceRoundTrip, TheWaitIsTwoRoundTripsOnALongPath) {
  RoundTrip r;
  EXPECT_EQ(r.wait(), RoundTrip::first_ns);
  for (int i = 0; i < 100; ++i) r.sample(5 * ms);
  EXPECT_GE(r.wait(), 2 * 5 * ms - 100);
  EXPECT_LE(r.wait(), 2 * 5 * ms + ms);
  for (int i = 0; i < 200; ++i) r.sample(20 * us);
  EXPECT_EQ(r.wait(), RoundTrip::held_ns);
}

TEST(RoceRoundTrip, APeerThatAlwaysAnswersSoonIsProbedSoon) {
  RoundTrip r;
  for (int i = 0; i < 20; ++i) r.sample(20 * us);
  EXPECT_EQ(r.wait(), RoundTrip::least_ns);
  EXPECT_GE(r.wait_after(1), RoundTrip::held_ns);
  r.sample(200 * us);  // twice the longest, while that is not long ago
  EXPECT_EQ(r.wait(), 400 * us);
  for (int i = 0; i < 200; ++i) r.sample(20 * us);
  EXPECT_GT(r.wait(), 300 * us);
  for (int i = 0; i < 2000; ++i) r.sample(20 * us);
  EXPECT_EQ(r.wait(), RoundTrip::least_ns);
  r.sample(30 * ms);
  for (int i = 0; i < 200; ++i) r.sample(20 * us);
  EXPECT_GT(r.wait(), RoundTrip::held_ns / 2);
}

// The peer is starting.
TEST(RoceRoundTrip, LongFirstRoundTripsAreNotRemembered) {
  RoundTrip r;
  for (int i = 0; i < 3; ++i) r.sample(5 * ms);
  for (int i = 0; i < 40; ++i) r.sample(20 * us);
  EXPECT_LT(r.wait(), 400 * us);
}

// The peer sleeps between two messages, so that it answers what comes late more slowly than what comes soon.
TEST(RoceRoundTrip, ProbesOfAPeerThatSleepsComeLaterButCome) {
  RoundTrip r;
  for (int i = 0; i < 100; ++i) {
    for (int k = 0; k < 100; ++k) r.sample(20 * us);
    r.on_answer(150 * us, r.wait() + 150 * us, 1);
    EXPECT_LE(r.wait(), RoundTrip::held_ns);
  }
  EXPECT_TRUE(r.has_credit());
}

// A peer whose answers to probes are slow, but no pauses: each of them after a wait for a packet that was lost.
TEST(RoceRoundTrip, LateAnswersAfterLongWaitsDoNotMakeThemLonger) {
  RoundTrip r;
  for (int i = 0; i < 50; ++i) {
    for (int k = 0; k < 100; ++k) r.sample(20 * us);
    r.on_answer(ms, r.wait() + ms, 1);
    EXPECT_LE(r.wait(), RoundTrip::first_ns);
  }
}

TEST(RoceRoundTrip, NeedlessProbesHaveToBeEarned) {
  RoundTrip r;
  for (int i = 0; i < 20; ++i) r.sample(20 * us);
  EXPECT_TRUE(r.has_credit());
  r.on_answer(3 * ms, 4 * ms, 1);
  EXPECT_FALSE(r.has_credit());
  EXPECT_GE(r.wait(), 6 * ms);
  for (int i = 0; i < RoundTrip::needless_cost; ++i) r.sample(20 * us);
  EXPECT_TRUE(r.has_credit());
  EXPECT_EQ(r.wait(), RoundTrip::least_ns);
  for (int i = 0; i < 100; ++i)
    r.on_answer(5 * us, 600 * us, 1);  // before it can have been the probe's answer
  EXPECT_FALSE(r.has_credit());
  r.on_answer(25 * us, 600 * us, 1);  // a loss
  EXPECT_TRUE(r.has_credit());
}

TEST(RoceRoundTrip, ALostAnswerEndsADebt) {
  RoundTrip r;
  for (int i = 0; i < 20; ++i) r.sample(20 * us);
  r.on_answer(15 * us, 5 * ms, 3, RoundTrip::ProbeAnswer::Paused);
  r.on_answer(25 * us, 8 * ms, 1, RoundTrip::ProbeAnswer::First);
  EXPECT_FALSE(r.has_credit());
  r.on_answer(25 * us, 8 * ms, 1, RoundTrip::ProbeAnswer::Lost);
  EXPECT_TRUE(r.has_credit());
}

TEST(RoceRoundTrip, AnyOrderKeepsItsBounds) {
  std::mt19937_64 random(3);
  RoundTrip r;
  for (int i = 0; i < 100'000; ++i) {
    switch (random() % 5) {
      case 0: {
        const uint64_t since = random() % (100 * ms);
        r.on_answer(since, since + random() % (100 * ms), 1 + static_cast<uint32_t>(random() % 300),
                    static_cast<RoundTrip::ProbeAnswer>(random() % 4));
        break;
      }
      case 1:
        if (random() % 50 == 0) r.on_loss();
        break;
      case 2:
        r.on_needless();
        break;
      default:
        r.sample(random() % (random() % 20 == 0 ? UINT64_MAX : ms));
    }
    ASSERT_GE(r.wait(), RoundTrip::least_ns);
    ASSERT_LE(r.wait(), 6 * RoundTrip::longest_ns);
  }
}

}  // namespace
}  // namespace weft::proto::roce::sim
