// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/shm/remote_regions.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "os/clock.hpp"
#include "proto/engine/op.hpp"

namespace weft::link::shm {
namespace {

constexpr uint64_t window_pause_ns = 1'000'000;       // until a peer that exposed nothing is asked again
constexpr uint64_t refused_pause_ns = 1'000'000'000;  // until one whose table could not be used is

}  // namespace

bool RemoteRegions::open(RegionHeader& remote, uint64_t pid_namespace, uint64_t nonce, int32_t pid,
                         const Owner& owner, const os::Fd& ours) noexcept {
  const int32_t place = remote.regions_file.load(std::memory_order_acquire);
  if (place <= 0) return false;
  if (pid_namespace == 0 || remote.pid_namespace != pid_namespace) return false;
  const uint64_t now = os::monotonic_ns();
  if (now < due_ns_) return false;
  due_ns_ = now + window_pause_ns;
  AccessSlot* word = acquire_access_slot(remote.users);
  if (word == nullptr) {
    due_ns_ = now + refused_pause_ns;
    return false;
  }
  os::Mapping table = owner.map_readable_memory_of(pid, place - 1, ours, region_table_bytes);
  const bool found = static_cast<bool>(table);
  RegionWindow window(std::move(table), *word);
  // The number of the process, or of the descriptor, may be another's by now.
  if (!found || !window.is_of(nonce)) {
    window.release_slot();
    due_ns_ = now + refused_pause_ns;
    return false;
  }
  window_ = std::move(window);
  return true;
}

bool RemoteRegions::access(const PeerMemory& memory, bool write, const iovec* local, size_t local_count,
                           const wire::RmaTarget* targets, size_t target_count, size_t bytes,
                           bool& is_forbidden) noexcept {
  std::array<RegionWindow::Target, proto::access_pieces_max> places;
  if (target_count > places.size() || local_count > proto::access_pieces_max) return false;
  for (size_t i = 0; i < target_count; ++i)
    if (!window_.find(targets[i].key, targets[i].address, targets[i].length, write, places[i])) return false;
  size_t done = 0;
  size_t target = 0;
  uint64_t at = 0;  // in that target
  while (target < target_count) {
    // What one stay in a region takes: neighbours in the list that lie in the same one go by one call of the kernel.
    const RegionWindow::Target& place = places[target];
    std::array<iovec, proto::access_pieces_max> there;
    size_t used = 0;
    size_t piece = 0;
    while (target < target_count && piece < access_bytes && places[target].entry == place.entry &&
           places[target].state == place.state) {
      const size_t part = std::min<uint64_t>(access_bytes - piece, targets[target].length - at);
      if (part != 0) there[used++] = {reinterpret_cast<void*>(places[target].address + at), part};
      piece += part;
      at += part;
      if (at < targets[target].length) break;
      ++target;
      at = 0;
    }
    if (piece == 0) continue;
    if (!access_piece(memory, write, place, local, local_count, done, there.data(), used, piece,
                      is_forbidden))
      return false;
    done += piece;
  }
  return done == bytes;
}

// `bytes` from `offset` of the local memory on, within one region.
bool RemoteRegions::access_piece(const PeerMemory& memory, bool write, const RegionWindow::Target& place,
                                 const iovec* local, size_t local_count, size_t offset, const iovec* remote,
                                 size_t remote_count, size_t bytes, bool& is_forbidden) noexcept {
  std::array<iovec, proto::access_pieces_max> here;
  const size_t count = proto::slice(local, local_count, offset, bytes, here.data(), here.size());
  if (!window_.enter(place)) return false;
  ssize_t moved = -ESRCH;
  if (!write) moved = memory.read(here.data(), count, remote, remote_count, bytes);
  else if (memory.is_there()) moved = memory.write(here.data(), count, remote, remote_count, bytes);
  window_.leave();
  if (moved == -EPERM || moved == -ENOSYS) is_forbidden = true;  // not any more
  return moved >= 0;
}

}  // namespace weft::link::shm
