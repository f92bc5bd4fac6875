// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How the bytes of a rendezvous come to the receiver: read from the peer's memory, by the receiver alone or by both sides (a meeting), or asked for in
// segments. A part of EngineCore. Must not know any Link.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/engine/op.hpp"
#include "proto/engine/remote_access.hpp"
#include "wire/frame.hpp"

namespace weft::proto {

class EngineCore;

class RendezvousCopy {
 public:
  explicit RendezvousCopy(EngineCore& engine) noexcept : engine_(engine) {}
  RendezvousCopy(const RendezvousCopy&) = delete;
  RendezvousCopy& operator=(const RendezvousCopy&) = delete;

  // Fetches the bytes of a rendezvous, whose source lies in `segments` of the peer's memory. EngineCore::finish_inbound() ends the operation.
  void begin(Op& op, uint64_t stamp, const wire::SourceSegment* segments, uint32_t segment_count) noexcept;
  // From a poll: goes on with what was too long for one call, at either side.
  void go_on() noexcept {
    if (copy_count_ != 0) (void)copy_on();
    if (assist_count_ != 0) assist_on();
  }
  // The program has the buffer back before all of it is there.
  void end_meeting(Op& op) noexcept;
  void on_window(PeerState& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
  void on_met(PeerState& peer, const wire::FrameHead& head) noexcept;
  void clear() noexcept { assist_count_ = copy_count_ = 0; }

 private:
  struct Assist {  // help with a copy that goes on in the next call
    uint64_t op = 0;
    wire::WindowPrefix window{};
    std::array<wire::SourceSegment, iov_max> to{};
    uint32_t taken = 0;  // of the link
  };
  struct CopyInProgress {  // of a receive that both sides copy
    uint64_t op = 0;
    bool begun = false;  // by us
  };

  uint64_t id_of(const Op& op) const noexcept;
  CopyState copy_remote(Op& op, uint64_t stamp, const wire::SourceSegment* segments,
                        uint32_t segment_count) noexcept;
  CopyState begin_together(PeerState& peer, Op& op) noexcept;
  CopyState copy_together(PeerState& peer, Op& op, bool patient) noexcept;
  bool copy_on() noexcept;
  void open_window(PeerState& peer, Op& op) noexcept;
  void copy_ended(Op& op, CopyState state) noexcept;
  void ask_for_segments(Op& op) noexcept;
  bool assist(Op& op, Assist& help) noexcept;
  void assist_on() noexcept;

  EngineCore& engine_;
  std::array<Assist, 8> assists_;
  size_t assist_count_ = 0;                  // each counts in EngineCore::busy_
  std::array<CopyInProgress, 16> copies_{};  // in order of their announcements
  size_t copy_count_ = 0;                    // each counts in EngineCore::busy_
};

}  // namespace weft::proto
