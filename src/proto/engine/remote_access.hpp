// A region in one piece, as peers of a link may reach it without the engine. Must not know any Link.
#pragma once

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

}  // namespace weft::proto
