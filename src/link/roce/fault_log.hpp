// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FaultLog: lines for people about what a device refuses and what fails on it (proto/roce/fault.hpp). Must not know who
// prints them.
//
// At most lines_max lines a second of each cause: peers decide how often they send what is refused.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "link/packet/middleware.hpp"
#include "proto/roce/adapter.hpp"

namespace weft::link::roce {

// One line; `queue_pair` may be null. Texts of the network are numbers only.
std::string text_of(const proto::roce::QueuePair* queue_pair, const proto::roce::Fault& fault);

class FaultLog {
 public:
  static constexpr uint32_t lines_max = 4;
  static constexpr uint64_t period_ns = 1'000'000'000;

  // Notes are told to the audience, with the name of the device in front.
  FaultLog(std::string name, const packet::Audience& audience) noexcept
      : name_(std::move(name)), audience_(audience) {}

  void report(const proto::roce::QueuePair* queue_pair, const proto::roce::Fault& fault,
              uint64_t now) noexcept;

 private:
  struct Period {
    uint64_t until = 0;
    uint32_t lines = 0;
    uint64_t left_out = 0;
  };

  std::string name_;
  packet::Audience audience_;
  std::array<Period, 256> periods_{};  // by cause
};

}  // namespace weft::link::roce
