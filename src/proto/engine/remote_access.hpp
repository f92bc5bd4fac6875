// What the engine and a link that reaches the peer's memory say to each other: regions that peers may reach without the engine, and ways to copy a
// large message. Must not know any Link.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::proto {

struct ExposedRegion {
  uint64_t key = 0;
  uint64_t base = 0;     // the remote address of the first byte
  uint64_t length = 0;   // bytes
  uint64_t address = 0;  // in our memory
  bool readable = false;
  bool writable = false;
};

// How the bytes of a large message get to the receiver.
enum class CopyPath : uint8_t {
  Ring,      // the sender sends them, in fragments or segments
  Receiver,  // the receiver reads the sender's memory
  Both,      // and the sender writes the receiver's memory meanwhile
};
inline constexpr size_t copy_paths = 3;

// What the receiver decides about one message. `start` is when its copying could begin, in the link's time; 0: it is not measured.
struct CopyChoice {
  CopyPath path = CopyPath::Ring;
  uint64_t start = 0;
};

// What has become of a copy.
enum class CopyState : uint8_t {
  Done,
  Busy,    // the sender is still writing, and will tell
  Failed,  // by that way it cannot be done; nobody writes any more
};

// What has become of a sender's help with a copy.
enum class Assistance : uint8_t {
  Ended,
  Asked,  // ended, and the receiver wants to be told
  More,   // it took long enough for one call
};

}  // namespace weft::proto
