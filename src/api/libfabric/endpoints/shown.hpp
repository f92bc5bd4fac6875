// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an endpoint shows of itself in the statistics page (docs/statistics.md). Must not know engines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "api/libfabric/discovery/provider.hpp"
#include "os/statistics.hpp"
#include "proto/engine/endpoint_engine.hpp"

namespace weft::fi {

class ShownEndpoint {
 public:
  void open(const char* provider) noexcept;
  void close() noexcept { entry_.close(); }
  // Addresses as the provider writes them; `peer` of a connected endpoint, empty: none yet.
  void describe(const Provider& provider, uint32_t format, std::span<const std::byte> own,
                std::span<const std::byte> peer) noexcept;
  bool names_peer() const noexcept { return names_peer_; }
  // True once in a few milliseconds.
  bool is_due() noexcept;
  void show(const proto::EngineCounts& counts) noexcept;
  uint32_t id() const noexcept { return entry_.id(); }
  explicit operator bool() const noexcept { return static_cast<bool>(entry_); }

 private:
  os::StatisticsEntry entry_;
  uint64_t shown_at_ = 0;  // ticks
  bool names_peer_ = false;
};

}  // namespace weft::fi
