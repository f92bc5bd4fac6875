// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Cases of the program in the guest: each prints one line, "ok NAME" or "FAILED NAME: why". Knows nothing of devices.
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

namespace weft::vm {

struct Failure : std::runtime_error {
  using runtime_error::runtime_error;
};

// printf(3) into a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);
// Throws Failure with that text.
[[gnu::format(printf, 2, 3)]] void require(bool holds, const char* format, ...);

// The value of a Result, or a Failure with its sentence.
template <class R>
auto taken(R result) {
  if (!result) throw Failure(result.error().why);
  if constexpr (requires { *result; }) return std::move(*result);
}

// Runs a case. What it returns stands behind its name ("1455 frames").
void check(const std::string& name, const std::function<std::string()>& run);
// Of those so far.
unsigned failures();

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Whether `done` is true within the time; asks again and again.
bool within(milliseconds time, const std::function<bool()>& done);

}  // namespace weft::vm
