// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The engines over links in memory that several tests use. sim_engines_test.cpp compiles each of them once.
#pragma once

#include "proto/engine/engine.hpp"
#include "proto/engine/sim_link.hpp"

// clang 14 instantiates members whose constraints do not hold: there, each test compiles its own.
#if !defined(__clang__)
namespace weft::proto {

extern template class Engine<sim::PlainLink>;
extern template class Engine<sim::RichLink>;
extern template class Engine<sim::CreditLink>;
extern template class Engine<sim::FastLink>;
extern template class Engine<sim::LateLink>;
extern template class Engine<sim::ReferringLink>;

}  // namespace weft::proto
#endif
