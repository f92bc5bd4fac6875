// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Controller: how much one sender may have under way (a window), and how fast it may send (a rate). The protocols that retransmit
// (proto/reliable, proto/roce) hold one for each connection, tell it what happens, and read its answers; an algorithm is one class
// in one file (docs/congestion.md). Windows in bytes of payload, rates in packets, times in ns. Must not know packets or connections.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "base/assert.hpp"

namespace weft::proto::congestion {

inline constexpr size_t no_limit = SIZE_MAX;

// Bytes are newly known to have arrived.
struct Acknowledged {
  uint64_t now = 0;
  size_t bytes = 0;
  uint64_t rtt =
      0;  // less the time that the peer held its answer, where it says that; 0: this one measured none
  uint64_t shortest = UINT64_MAX;  // of the round trips of this path; UINT64_MAX: none yet
  uint64_t arrived = 0;            // the byte up to which all has arrived, counted from some moment on,
  uint64_t sent = 0;               // and the byte up to which all was sent
  bool limited = false;            // the window was what kept the sender
};

// What shows a loss. A peer that is quiet may also compute, so that a timeout alone need not be one.
enum class LossSign : uint8_t {
  Gap,       // the peer misses a packet, and all that follows is sent again
  GapAgain,  // the same, and nothing arrived since the last one
  Reported,  // what the peer has is known, and packets before that are missing
  Tail,      // a probe was answered: packets before it are missing
  Timeout    // no answer came
};

struct Loss {
  LossSign sign = LossSign::Reported;
  size_t bytes = 0;      // that are taken for lost, where the protocol says it (RoCE does not)
  size_t in_flight = 0;  // without these in proto/reliable, but for a timeout; with them in RoCE
  uint64_t sent = 0;     // as in Acknowledged
  uint64_t now = 0;
  unsigned timeouts = 0;  // attempts in a row that failed, with this one
};

// The network says that it is congested before it loses something (ECN, CNP).
struct Cnp {
  uint64_t now = 0;
  uint64_t sent = 0;    // packets so far
  bool may_cut = true;  // false: the CNP may be about packets from before the last cut
};

class Controller {
 public:
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // --- what may be sent ---
  size_t window() const noexcept { return window_; }  // bytes under way at most, or no_limit
  // The window is no limit and need not hear of acknowledgements: on_ack() may be left out until the next loss or notice.
  bool is_idle() const noexcept { return is_idle_; }
  // There is a rate. Not before configure().
  bool is_paced() const noexcept { return is_paced_; }
  // While is_paced(): packets that may go now, and when the next one may.
  virtual uint32_t packets() const noexcept { return UINT32_MAX; }
  virtual uint64_t next_at() const noexcept { return 0; }

  // --- what happened ---
  // Packets carry at most `packet` bytes; `bound`, two packets or more: the most that the window may ever be. Called before all others,
  // and again whenever one of the two has changed.
  virtual void configure(size_t packet, size_t bound) noexcept = 0;
  // While is_paced(): time has passed. The pace may end.
  virtual void advance(uint64_t) noexcept {}
  virtual void on_sent(uint64_t) noexcept {}  // packets, while is_paced()
  virtual void on_ack(const Acknowledged& what) noexcept = 0;
  virtual void on_loss(const Loss& loss) noexcept = 0;
  // True: it sends less from now on.
  virtual bool on_cnp(const Cnp&) noexcept { return false; }

 protected:
  Controller() = default;
  ~Controller() = default;

  size_t window_ = no_limit;
  bool is_idle_ = false;
  bool is_paced_ = false;
};

// Makes an algorithm in `storage`, of Slot::bytes.
using Make = Controller* (*)(void* storage) noexcept;

// Memory for the algorithm of a connection, whichever that is.
class Slot {
 public:
  static constexpr size_t bytes = 192;

  explicit Slot(Make make) noexcept { emplace(make); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  // The algorithm begins anew, or another one does.
  void emplace(Make make) noexcept {
    [[maybe_unused]] const Controller* const made = make(storage_.data());
    WEFT_ASSERT(static_cast<const void*>(made) == storage_.data());
  }
  Controller& operator*() noexcept { return *std::launder(reinterpret_cast<Controller*>(storage_.data())); }
  const Controller& operator*() const noexcept {
    return *std::launder(reinterpret_cast<const Controller*>(storage_.data()));
  }
  Controller* operator->() noexcept { return &**this; }
  const Controller* operator->() const noexcept { return &**this; }

 private:
  alignas(std::max_align_t) std::array<std::byte, bytes> storage_;
};

template <class Algorithm>
Controller* make(void* storage) noexcept {
  static_assert(std::is_base_of_v<Controller, Algorithm> && std::is_trivially_destructible_v<Algorithm>);
  static_assert(std::is_nothrow_default_constructible_v<Algorithm>);
  static_assert(sizeof(Algorithm) <= Slot::bytes && alignof(Algorithm) <= alignof(std::max_align_t));
  return ::new (storage) Algorithm();
}

}  // namespace weft::proto::congestion
