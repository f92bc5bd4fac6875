// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The table of `weft top`: what processes show, as lines for a person. Must not know where the numbers come from.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <weft/statistics.hpp>

namespace weft::tool {

// 999, 12.3k, 4.56M: at most five characters below 1e15.
std::string short_number(double value);

class TopTable {
 public:
  // Lines of a heading and of one object each. Numbers of packets and bytes are rates since the call before, at
  // `time_ns` of a clock that never goes back, of the objects that were there then; in the first call, and with
  // `totals`, they are totals.
  std::vector<std::string> lines(std::span<const statistics::Process> processes, uint64_t time_ns,
                                 bool totals);

 private:
  using Key = std::tuple<int, std::string, uint32_t>;  // process, library, object
  std::map<Key, statistics::Object> before_;
  uint64_t before_ns_ = 0;
};

}  // namespace weft::tool
