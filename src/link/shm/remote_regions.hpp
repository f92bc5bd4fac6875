// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The exposed regions of one peer (exposed_regions.hpp), reached from here: the window on its table, and moves between it and our memory, one piece at
// a time. Must not know frames, completions or what is done when a move fails.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "link/shm/exposed_regions.hpp"
#include "link/shm/layout.hpp"
#include "link/shm/owner.hpp"
#include "link/shm/peer_memory.hpp"
#include "wire/frame.hpp"

namespace weft::link::shm {

class RemoteRegions {
 public:
  bool is_open() const noexcept { return static_cast<bool>(window_); }
  // Looks for the table of the endpoint with that header, now and then only. `pid_namespace`: ours, 0: not known. `ours`: a memory file of
  // this process. False: not open.
  bool open(RegionHeader& remote, uint64_t pid_namespace, uint64_t nonce, int32_t pid, const Owner& owner,
            const os::Fd& ours) noexcept;
  // Our word in the peer's header is another process's from now on.
  void close() noexcept { window_.release_slot(); }
  // While open: moves `bytes`, keys and bounds checked against the table; at most access_pieces_max entries in each list. False: it could not, though some
  // bytes may have moved. `is_forbidden` is set when the kernel refuses for good.
  bool access(const PeerMemory& memory, bool write, const iovec* local, size_t local_count,
              const wire::RmaTarget* targets, size_t target_count, size_t bytes, bool& is_forbidden) noexcept;

 private:
  bool access_piece(const PeerMemory& memory, bool write, const RegionWindow::Target& place,
                    const iovec* local, size_t local_count, size_t offset, const iovec* remote,
                    size_t remote_count, size_t bytes, bool& is_forbidden) noexcept;

  RegionWindow window_;
  uint64_t due_ns_ = 0;  // when a table is looked for again
};

}  // namespace weft::link::shm
