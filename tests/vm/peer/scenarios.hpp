// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the pair of programs goes through. Each scenario runs in both programs at once, twice: with either as the
// requester.
#pragma once

#include <span>

#include "session.hpp"

namespace weft::vm {

// When a scenario is part of a run.
enum class Network {
  Any,    // also with loss
  Good,   // needs every packet: UC and UD do not repeat
  Lossy,  // only with loss
};

struct Scenario {
  const char* name;
  void (*run)(Session&);
  Network network = Network::Any;
};

std::span<const Scenario> message_scenarios();    // messages.cpp: RC SEND in all variants
std::span<const Scenario> one_sided_scenarios();  // one_sided.cpp: RC WRITE, READ, atomics
std::span<const Scenario> error_scenarios();      // errors.cpp: what a responder must refuse
std::span<const Scenario> window_scenarios();     // windows.cpp: memory windows and invalidation
std::span<const Scenario> shared_scenarios();     // shared.cpp: shared receive queues, events
std::span<const Scenario> datagram_scenarios();   // datagrams.cpp: UC, UD
std::span<const Scenario> traffic_scenarios();    // traffic.cpp: random operations in both directions at once

}  // namespace weft::vm
