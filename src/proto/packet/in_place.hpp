// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// HasPartsThatStay: a packet link whose device may read the payload after the call. Must not know the device.
#pragma once

#include <concepts>

namespace weft::proto {

// set_parts_stay(true): what the parts of the packets that follow point to stays as it is until the receiver has it, or
// nobody minds what of it arrives: RC queue pairs keep a message until it is acknowledged, and who has it drops a packet
// that comes again. The device may then read memory that it was told of (RegistersMemory) where it lies; all other
// memory, that of middleware included, is copied in the call.
template <class P>
concept HasPartsThatStay = requires(P& link) {
  { link.set_parts_stay(bool{}) }
  noexcept;
};

// release_parts() returns when the device reads no parts of packets that were sent before, for an owner that gives them
// up though the receiver does not have them. From within poll() it does nothing.
template <class P>
concept ReleasesParts = requires(P& link) {
  { link.release_parts() }
  noexcept;
};

}  // namespace weft::proto
