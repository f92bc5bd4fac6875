// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RMA and atomics at the target: keys, rights and bounds, the access itself, counters and entries of it; and the regions that peers reach without the
// engine. A part of EngineCore. Must not know any Link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/memory_region.hpp"
#include "proto/engine/context.hpp"
#include "proto/engine/op.hpp"
#include "wire/frame.hpp"

namespace weft::proto {

class EngineCore;

class RmaResponder {
 public:
  explicit RmaResponder(EngineCore& engine) noexcept : engine_(engine) {}
  RmaResponder(const RmaResponder&) = delete;
  RmaResponder& operator=(const RmaResponder&) = delete;

  void set_regions(core::MemoryRegionTable* regions) noexcept { regions_ = regions; }
  // See EngineCore.
  int serve_regions(bool count_reads, bool count_writes) noexcept;
  int stop_serving(bool closing) noexcept;

  void on_write(PeerState& peer, const wire::FrameHead& head, const std::byte* payload,
                bool rendezvous) noexcept;
  void on_read(PeerState& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void on_atomic(PeerState& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  // The operation of a large write (Inbound) or of a read (Outbound) has ended.
  void finish(Op& op, int status) noexcept;
  // The operation is dropped.
  void release_regions(Op& op) noexcept {
    for (uint8_t i = 0; i < op.region_count; ++i) regions_->release(*op.regions[i]);
    op.region_count = 0;
  }

 private:
  struct Exposure;
  struct Access;  // registered memory named by a peer, pinned
  int open_access(const std::byte*& at, size_t& left, uint32_t targets, uint64_t access,
                  Access& out) noexcept;
  void close_access(Access& access) noexcept;
  bool save_access(Op& op, const Access& access) noexcept;
  static void note_remote(const Access& access, const PeerState& peer, RxContext* rx, bool write,
                          const wire::FrameHead& head, uint64_t bytes) noexcept;

  EngineCore& engine_;
  core::MemoryRegionTable* regions_ = nullptr;
  std::unique_ptr<core::RegionObserver> exposure_;  // while regions are served
};

}  // namespace weft::proto
