// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lines for the log about trouble, each kind once, until it is over. Must not know what they say.
#pragma once

#include <cstdint>

#include "proto/setup.hpp"

namespace weft::link::shm {

class Warnings {
 public:
  enum Kind : uint32_t {
    User = 1,
    Descriptors = 2,
    Memory = 4,
    Disposal = 8,
    PeerShort = 16,
    Deaths = 32,
    NotPassed = 64,
    Exited = 128,
  };

  void set(proto::PacketWarning on_line, const void* context) noexcept {
    on_line_ = on_line;
    context_ = context;
  }
  // False: nobody reads them, and they need not be made.
  explicit operator bool() const noexcept { return on_line_ != nullptr; }
  void say(const char* line) const noexcept {
    if (on_line_ != nullptr) on_line_(context_, line);
  }
  // Unless that kind was said.
  void once(Kind kind, const char* line) noexcept {
    if (was_said(kind) || on_line_ == nullptr) return;
    mark(kind);
    say(line);
  }
  bool was_said(Kind kind) const noexcept { return (said_ & kind) != 0; }
  void mark(Kind kind) noexcept { said_ |= kind; }
  // It is over: said again when it comes again.
  void again(Kind kind) noexcept { said_ &= ~uint32_t{kind}; }

 private:
  proto::PacketWarning on_line_ = nullptr;
  const void* context_ = nullptr;
  uint32_t said_ = 0;  // kinds
};

}  // namespace weft::link::shm
