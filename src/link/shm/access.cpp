// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One-sided access: the memory of peers by cross-memory attach, and ours for them.
#include <cerrno>

#include "link/shm/link.hpp"
#include "os/clock.hpp"
#include "os/process.hpp"
#include "proto/engine/op.hpp"

namespace weft::link::shm {

namespace {
constexpr uint64_t window_pause_ns = 1'000'000;       // until a peer that exposed nothing is asked again
constexpr uint64_t refused_pause_ns = 1'000'000'000;  // until one whose table could not be used is
}  // namespace

// --- the target ---

void Link::expose(const proto::ExposedRegion& region) noexcept {
  if (header_ == nullptr || header_->pid_namespace == 0 || !belongs_here()) return;
  if (exposed_ == nullptr) exposed_.reset(new (std::nothrow) ExposedRegions(nonce_));
  if (exposed_ == nullptr || !exposed_->expose(region)) return;
  header_->regions_file.store(exposed_->fd() + 1, std::memory_order_release);
}

int Link::conceal(uint64_t key) noexcept {
  if (exposed_ == nullptr || header_ == nullptr || !belongs_here()) return 0;
  return exposed_->conceal(key, header_->users);
}

int Link::conceal_all() noexcept {
  if (exposed_ == nullptr || header_ == nullptr || !belongs_here()) return 0;
  return exposed_->conceal_all(header_->users);
}

// --- the initiator ---

bool Link::open_window(Peer& peer) noexcept {
  const int32_t place = peer.remote->regions_file.load(std::memory_order_acquire);
  if (place <= 0 || header_->pid_namespace == 0 || peer.remote->pid_namespace != header_->pid_namespace)
    return false;
  const uint64_t now = os::monotonic_ns();
  if (now < peer.window_due_ns) return false;
  peer.window_due_ns = now + window_pause_ns;
  AccessSlot* ours = take_access_slot(peer.remote->users);
  if (ours == nullptr) {
    peer.window_due_ns = now + refused_pause_ns;
    return false;
  }
  auto table = os::map_readable_memory_of(peer.pid, place - 1, ::geteuid(), file_, region_table_bytes);
  if (!table && opened_as_ != ::geteuid())
    table = os::map_readable_memory_of(peer.pid, place - 1, opened_as_, file_, region_table_bytes);
  const bool found = static_cast<bool>(table);
  RegionWindow window(std::move(table), *ours);
  // The number of the process, or of the descriptor, may be another's by now.
  if (!found || !window.is_of(peer.nonce)) {
    window.give_back();
    peer.window_due_ns = now + refused_pause_ns;
    return false;
  }
  peer.window = std::move(window);
  return true;
}

// The process of that number is still the peer and runs the same program: its memory has the word that it showed when we met.
bool Link::is_there(const Peer& peer) const noexcept {
  uint64_t value = 0;
  return read_probe(peer, value) == sizeof(value) && value == peer.probe_value;
}

// The same of the last moments: what a piece takes to be written is longer.
bool Link::was_there_lately(Peer& peer) const noexcept {
  const uint64_t now = arch::ticks();
  if (peer.proven_at != 0 && now - peer.proven_at < stale_ticks_) return true;
  const bool there = is_there(peer);
  peer.proven_at = there ? now : 0;
  return there;
}

// Reads from the peer, and the word with it: all of one call is of one address space, so either the bytes are the peer's or this says -ESRCH.
ssize_t Link::read_proven(const Peer& peer, const iovec* local, size_t local_count, const iovec* remote,
                          size_t remote_count, size_t bytes) const noexcept {
  std::array<iovec, os::process_list_max> here;
  std::array<iovec, os::process_list_max> there;
  if (local_count >= here.size() || remote_count >= there.size()) return -EINVAL;
  uint64_t value = 0;
  here[0] = {&value, sizeof(value)};
  there[0] = {reinterpret_cast<void*>(peer.probe_address), sizeof(value)};
  std::copy_n(local, local_count, here.begin() + 1);
  std::copy_n(remote, remote_count, there.begin() + 1);
  const ssize_t moved = os::read_process(peer.pid, here.data(), local_count + 1, there.data(),
                                         remote_count + 1, sizeof(value) + bytes);
  if (moved < 0) return moved;
  return value == peer.probe_value ? static_cast<ssize_t>(bytes) : -ESRCH;
}

ssize_t Link::read_probe(const Peer& peer, uint64_t& value) const noexcept {
  const iovec local{&value, sizeof(value)};
  const iovec remote{reinterpret_cast<void*>(peer.probe_address), sizeof(value)};
  return os::read_process(peer.pid, &local, 1, &remote, 1, sizeof(value));
}

bool Link::access(Peer& peer, bool write, const iovec* local, size_t local_count,
                  const wire::RmaTarget* targets, size_t target_count, size_t bytes) noexcept {
  if (!peer.cma || peer.remote == nullptr || has_closed(peer) || !belongs_here()) return false;
  if (!peer.window && !open_window(peer)) return false;
  std::array<RegionWindow::Place, proto::access_pieces_max> places;
  if (target_count > places.size() || local_count > proto::access_pieces_max) return false;
  for (size_t i = 0; i < target_count; ++i)
    if (!peer.window.find(targets[i].key, targets[i].address, targets[i].length, write, places[i]))
      return false;
  size_t done = 0;
  size_t target = 0;
  uint64_t at = 0;  // in that target
  while (target < target_count) {
    // What one stay in a region takes: neighbours in the list that lie in the same one go by one call of the kernel.
    const RegionWindow::Place& place = places[target];
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
    if (!access_piece(peer, write, place, local, local_count, done, there.data(), used, piece)) return false;
    done += piece;
  }
  if (done == bytes) (write ? by_kernel_.bytes_sent : by_kernel_.bytes_received) += bytes;
  return done == bytes;
}

// `bytes` from `offset` of the local memory on, within one region.
bool Link::access_piece(Peer& peer, bool write, const RegionWindow::Place& place, const iovec* local,
                        size_t local_count, size_t offset, const iovec* remote, size_t remote_count,
                        size_t bytes) noexcept {
  std::array<iovec, proto::access_pieces_max> here;
  const size_t count = proto::slice(local, local_count, offset, bytes, here.data(), here.size());
  if (!peer.window.enter(place)) return false;
  ssize_t moved = -ESRCH;
  if (!write) moved = read_proven(peer, here.data(), count, remote, remote_count, bytes);
  else if (is_there(peer))
    moved = os::write_process(peer.pid, here.data(), count, remote, remote_count, bytes);
  peer.window.leave();
  if (moved == -EPERM || moved == -ENOSYS) forbid_cma(peer);  // not any more
  return moved >= 0;
}

}  // namespace weft::link::shm
