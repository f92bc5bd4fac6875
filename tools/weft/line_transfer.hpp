// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How near two processors are at this moment: the time that a cache line takes from one to the other. The host of a virtual machine moves its processors about, so a
// figure means something beside another only when both were near, or both far. Knows no fabric.
#pragma once

#include <string_view>

namespace weft::tool {

// A page that two processes share: made before the fork.
class LineTransfer {
 public:
  LineTransfer();  // throws Failure
  LineTransfer(const LineTransfer&) = delete;
  LineTransfer& operator=(const LineTransfer&) = delete;
  ~LineTransfer();

  // Both processes call it, one of them leads. Nanoseconds one way; 0 when the other side did not come within a second. Takes about 2 ms.
  double time(bool leads) noexcept;

 private:
  struct Page;
  Page* page_ = nullptr;
};

// In nanoseconds one way.
constexpr double near_ns_max = 130;
constexpr double far_ns_min = 200;
constexpr double busy_ns_min = 2000;  // no distance: other programs had a CPU meanwhile

// Of a run with a transfer before it and one after it: "near", "far", "between" the two, "busy" when other programs had a CPU, "moved" when they differ, "unknown" without a figure.
std::string_view placement_of(double before_ns, double after_ns) noexcept;

}  // namespace weft::tool
