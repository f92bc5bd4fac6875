// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What this process shows of its endpoints, devices and queue pairs while it runs: entries of its statistics page
// (weft/statistics.hpp, docs/statistics.md). Must not know what the numbers mean.
//
// The page is made with the first entry and goes with the last one, or at the end of the process however that comes.
// Where it cannot be made (no descriptor, no memory) entries are empty and show nothing. With WEFT_STATS what was shown
// is written to a file at exit.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include <weft/statistics.hpp>

#include "os/origin.hpp"

namespace weft::os {

// One object's place in the page. open() and close() take a lock and may call the kernel, show() is stores alone. One
// thread at a time for an entry, any thread for different ones. In a forked child an inherited entry does nothing.
class StatisticsEntry {
 public:
  using Kind = statistics::Kind;
  using Value = statistics::Value;
  struct Shown {
    Value value;
    uint64_t number;
  };

  StatisticsEntry() noexcept = default;
  StatisticsEntry(StatisticsEntry&& other) noexcept;
  StatisticsEntry& operator=(StatisticsEntry&& other) noexcept;
  StatisticsEntry(const StatisticsEntry&) = delete;
  StatisticsEntry& operator=(const StatisticsEntry&) = delete;
  ~StatisticsEntry() { close(); }

  // What is too long for its place is cut. `parent` is the id() of the device that a queue pair is of, or of the endpoint that a path is of.
  static StatisticsEntry open(Kind kind, std::string_view name, std::string_view detail,
                              uint32_t parent = 0) noexcept;
  void describe(std::string_view detail) noexcept;  // instead of what open() was given
  void show(std::initializer_list<Shown> values) noexcept;
  void close() noexcept;
  uint32_t id() const noexcept { return id_; }  // 0: empty
  explicit operator bool() const noexcept { return entry_ != nullptr; }

 private:
  statistics::Entry* entry_ = nullptr;
  uint32_t id_ = 0;
  Origin origin_;
};

}  // namespace weft::os
