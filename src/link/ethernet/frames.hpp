// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Frames: something that sends and receives raw Ethernet frames: a packet socket, a network card driven from user
// space, a hub in memory. EthernetPackets (packets.hpp) makes a packet link of it. Must not know what the frames carry.
//
// Contract:
//   - One thread at a time. open() is called once, before everything but setters of the type's own; close() ends it and
//     may be called again. After a refused open() only close() is called.
//   - A frame goes from the destination's MAC to the end of the payload, without preamble and FCS (IEEE 802.3 clause 3).
//     What is shorter than 60 bytes the device pads.
#pragma once

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "base/result.hpp"
#include "wire/neighbor.hpp"

namespace weft::link::ethernet {

// One frame that arrived; `bytes` is valid during the handler's call. The bytes come from the network and are not
// validated.
struct ReceivedFrame {
  wire::Bytes bytes;
  // The tag (IEEE 802.1Q TCI) that the device took out of the frame; 0: none.
  uint16_t vlan = 0;
  // The UDP checksum need not be looked at: the device verified it, or the sender is this machine, whose kernel leaves it
  // to the card.
  bool is_checksum_good = false;
};

struct FrameHandlerArchetype {
  void on_frame(const ReceivedFrame& frame) noexcept;
};

template <class F>
concept Frames = std::default_initializable<F> &&
    requires(F& frames, const iovec* parts, size_t count, FrameHandlerArchetype& handler) {
  { frames.open() } -> std::same_as<Result<void>>;
  { frames.close() }
  noexcept;
  // From open() to close(): the own MAC, and the largest payload of a frame, from the IP header on.
  { frames.mac() }
  noexcept->std::convertible_to<wire::Mac>;
  { frames.mtu_bytes() }
  noexcept->std::convertible_to<size_t>;
  // A whole frame, gathered from `count` parts, which belong to the caller and change after the call. False: there is no
  // room now; the frame was not taken.
  { frames.send(parts, count) }
  noexcept->std::same_as<bool>;
  // Hands what has arrived to handler.on_frame(), a bounded number of frames a call; returns how many. The handler may
  // call send().
  { frames.poll(handler) }
  noexcept->std::same_as<int>;
};

// What Frames may have besides: proto::HasSleep, proto::HasReceiveBuffer, proto::HasReceiveSlots, proto::HasGlance, and

// Several frames in one call, or one ring of the bell: what send() took may wait until flush(). EthernetPackets calls it
// at the end of each of its own calls.
template <class F>
concept HasFlush = requires(F& frames) {
  { frames.flush() }
  noexcept;
};

// Trains: several frames in one call of the device. add() is send() but for the memory of all parts behind the first one,
// which stays as it is until send_added(). What finds no room is forgotten, with all that was added behind it; send_added()
// returns how many have left since it was called last.
template <class F>
concept HasTrains = requires(F& frames, const iovec* parts, size_t count) {
  { frames.add(parts, count) }
  noexcept->std::same_as<bool>;
  { frames.send_added() }
  noexcept->std::same_as<size_t>;
};

// A filter of group addresses: frames to a multicast MAC arrive between join and leave only. Without it all arrive, or
// all that somebody else asked for. 0 or a negative errno.
template <class F>
concept HasMacFilter = requires(F& frames, const wire::Mac& group) {
  { frames.join_mac(group) }
  noexcept->std::same_as<int>;
  { frames.leave_mac(group) }
  noexcept;
};

// Room for so many frames now, of whatever length. EthernetPackets asks before it begins a segmented send, of which it
// could not take back what was sent.
template <class F>
concept HasRoom = requires(F& frames, size_t count) {
  { frames.has_room(count) }
  noexcept->std::same_as<bool>;
};

// The device may be gone for good: a negative errno, which is then the answer to every send; 0 while it is there.
template <class F>
concept HasFailure = requires(const F& frames) {
  { frames.failure() }
  noexcept->std::same_as<int>;
};

}  // namespace weft::link::ethernet
