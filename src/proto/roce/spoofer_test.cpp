// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Forged packets of every type at every distance from the right PSN, against queue pairs in use (sim_spoofer.hpp).
// WEFT_SIM_TABLE=1 prints the table of docs/roce.md.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "proto/roce/sim_spoofer.hpp"

namespace weft::proto::roce::sim {
namespace {

constexpr uint64_t ms = 1'000'000;

enum class When : uint8_t { Fresh, Idle, InAMessage, Answered };

// Empty: queue pairs and data have survived.
std::string survives(QpType type, bool is_weft_peer, When when, const Forgery& what, int32_t distance) {
  Scene s(type, is_weft_peer);
  if (when != When::Fresh) {
    s.post(0);
    s.pass(1 * ms);
    if (const std::string before = s.judge(); !before.empty()) return "at first: " + before;
  }
  if (when == When::InAMessage || when == When::Answered) {
    s.post(1);
    // Two packets of the first message have arrived, or all of the round, and no answer has come back.
    size_t left = when == When::InAMessage ? 2 : SIZE_MAX;
    for (; left > 0 && !s.a.out.empty(); --left) {
      s.give(s.b, s.a.out.front());
      s.a.out.pop_front();
    }
    if (when == When::Answered) s.b.adapter.flush(s.now);
  }
  s.forge(what, distance);
  s.pass(1 * ms);
  for (uint32_t round = s.rounds; round < 4; ++round) {
    s.post(round);
    s.pass(1 * ms);
  }
  // Less than an RNR delay of the longest kind, and more than the timeout.
  s.pass(20 * ms);
  return s.judge();
}

struct Column {
  const char* name;
  QpType type;
  bool is_weft_peer;
};
constexpr std::array<Column, 6> columns = {{{"RC, others", QpType::Rc, false},
                                            {"RC, Weft", QpType::Rc, true},
                                            {"XRC, others", QpType::XrcSend, false},
                                            {"XRC, Weft", QpType::XrcSend, true},
                                            {"UC, others", QpType::Uc, false},
                                            {"UC, Weft", QpType::Uc, true}}};

// IBTA has UC take any PSN as the start of what follows (9.8.2): nothing tells a forged request of a third-party peer.
bool is_open_to_forgeries(const Column& column, const Forgery& what) {
  return column.type == QpType::Uc && !column.is_weft_peer && what.to == Forgery::To::Responder;
}

TEST(RoceSpoofer, QueuePairsAndDataSurviveEveryPacketWithoutTheRightPsn) {
  const bool prints = std::getenv("WEFT_SIM_TABLE") != nullptr;
  auto distances = spoofed_distances();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::erase_if(distances, [](int32_t one) { return one % 3 == 0 || one > 1000; });
#endif
  for (const Column& column : columns) {
    for (const Forgery& what : forgeries(column.type)) {
      size_t tried = 0;
      size_t harmed = 0;
      std::string harm;
      for (const int32_t distance : distances) {
        for (const When when : {When::Fresh, When::Idle, When::InAMessage, When::Answered}) {
          // Before its first packet a peer of UC is not known to send tags.
          if (when == When::Fresh && column.type == QpType::Uc) continue;
          const std::string wrong = survives(column.type, column.is_weft_peer, when, what, distance);
          ++tried;
          if (wrong.empty()) continue;
          ++harmed;
          harm = wrong;
          if (is_open_to_forgeries(column, what)) {
            EXPECT_EQ(wrong.find("has failed"), std::string::npos) << what.name << ": " << wrong;
            continue;
          }
          ADD_FAILURE() << column.name << ", " << what.name << " at distance " << distance << ", "
                        << static_cast<int>(when) << ": " << wrong;
        }
        if (!what.has_psn) break;
      }
      if (prints)
        std::printf("| %s | %s | %zu of %zu%s%s |\n", column.name, what.name, tried - harmed, tried,
                    harm.empty() ? "" : ": ", harm.c_str());
    }
  }
}

}  // namespace
}  // namespace weft::proto::roce::sim
