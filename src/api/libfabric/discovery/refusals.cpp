// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Warnings that wait for the end of the process.
#include "api/libfabric/discovery/refusals.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "api/libfabric/text/log.hpp"
#include "base/lasting.hpp"

namespace weft::fi {
namespace {

constexpr size_t kept_max = 4;

struct Kept {
  std::string provider;
  std::string why;
};

struct State {
  std::mutex lock;
  std::array<Kept, kept_max> kept;
  size_t count = 0;
  bool found = false;
  pid_t process = 0;  // a child after fork(2) does not repeat what its parent will say
};

State& state() {
  static auto& there = make_lasting<State>();  // it is used at the end
  return there;
}

struct AtEnd {
  ~AtEnd() { report_nothing_found(); }
};

}  // namespace

void note_nothing_found(const std::string& provider, const std::string& why, bool named) noexcept try {
  static const AtEnd at_end;
  State& now = state();
  std::lock_guard guard(now.lock);
  if (now.process != getpid()) now.count = 0;
  now.process = getpid();
  if (now.found && !named) return;
  const auto end = now.kept.begin() + now.count;
  if (now.count == kept_max ||
      std::any_of(now.kept.begin(), end, [&](const Kept& one) { return one.why == why; }))
    return;
  *end = {provider, why};
  ++now.count;
} catch (...) {
  return;  // no memory: level info has told it
}

void note_found() noexcept try {
  State& now = state();
  std::lock_guard guard(now.lock);
  now.found = true;
  now.count = 0;
} catch (...) {
  return;
}

void report_nothing_found() noexcept try {
  std::array<Kept, kept_max> kept;
  size_t count = 0;
  {
    State& now = state();
    std::lock_guard guard(now.lock);
    if (now.process == getpid()) count = now.count;
    std::swap(kept, now.kept);
    now.count = 0;
  }
  for (size_t i = 0; i < count; ++i)
    log_warn(kept[i].provider.c_str(), FI_LOG_CORE, "fi_getinfo found nothing: %s", kept[i].why.c_str());
} catch (...) {
  return;
}

}  // namespace weft::fi
