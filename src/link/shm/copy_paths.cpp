// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/shm/copy_paths.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "arch/cpu.hpp"
#include "base/settings.hpp"
#include "link/shm/handshake.hpp"

namespace weft::link::shm {
namespace {

constexpr uint64_t largest_streamed =
    uint64_t{1} << 24;  // above, data comes out of memory, and two copies cost twice the traffic
constexpr uint64_t shared_copy_least =
    uint64_t{1} << 15;  // shorter messages are not worth a second side, and go in fragments
constexpr uint64_t asked_for_max = 33'000;  // times 30 microseconds

// Classes whose messages come in fragments unless they are announced.
constexpr size_t fragmented_classes = copy_class_of(fragmented_bytes_max) + 1;

constexpr uint32_t bit(CopyPath path) noexcept { return uint32_t{1} << static_cast<uint32_t>(path); }

}  // namespace

void CopyPaths::read_setting() noexcept {
  const uint64_t word = settings::number("WEFT_SHM_COPY");  // auto, ring, receiver, both
  is_pinned_ = word >= 2 && word <= 1 + proto::copy_paths;
  if (is_pinned_) pinned_ = static_cast<CopyPath>(word - 2);
}

Copies* CopyPaths::copies_of(Peer& peer) noexcept {
  if (peer.copies == nullptr) peer.copies.reset(new (std::nothrow) Copies);
  return peer.copies.get();
}

// What a size class begins with: what is known of the nearest one, for much of it lies in the distance of the cores.
CopyPath CopyPaths::presumed_path(const Copies& copies, uint64_t bytes) noexcept {
  const size_t size_class = copy_class_of(bytes);
  if (size_class < fragmented_classes) return CopyPath::Ring;
  const auto is_of_use = [&](size_t c) {
    if (c >= copy_classes || copies.choosers[c] == nullptr || !copies.choosers[c]->is_informed())
      return false;
    const CopyPath best = copies.choosers[c]->best();
    return !(best == CopyPath::Both && copies.refused) &&
           !(best == CopyPath::Ring && bytes > largest_streamed);  // nothing would ever be measured
  };
  for (size_t distance = 1; distance < copy_classes; ++distance)
    for (const size_t c : {size_class - distance, size_class + distance})
      if (is_of_use(c)) return copies.choosers[c]->best();
  return copies.refused ? CopyPath::Receiver : CopyPath::Both;
}

CopyChooser* CopyPaths::chooser_of(Peer& peer, uint64_t bytes) noexcept {
  Copies* const copies = copies_of(peer);
  const size_t c = copy_class_of(bytes);
  if (copies == nullptr || bytes <= shared_copy_least) return nullptr;
  auto& chooser = copies->choosers[c];
  if (chooser == nullptr) {
    uint32_t paths = bit(CopyPath::Ring) | bit(CopyPath::Receiver);
    if (!copies->refused) paths |= bit(CopyPath::Both);
    chooser.reset(new (std::nothrow) CopyChooser(presumed_path(*copies, bytes), paths));
  }
  return chooser.get();
}

void CopyPaths::expect_announced(Peer& peer) noexcept {
  if (!peer.in.is_open()) return;
  uint32_t classes = 0;
  for (size_t c = 1; c < fragmented_classes && peer.memory.can_read(); ++c) {
    if (is_pinned_) classes |= pinned_ != CopyPath::Ring ? uint32_t{1} << c : 0;
    else if (peer.copies != nullptr && peer.copies->choosers[c] != nullptr &&
             peer.copies->choosers[c]->path() != CopyPath::Ring)
      classes |= uint32_t{1} << c;
  }
  if (peer.in.control()->announced_classes.load(std::memory_order_relaxed) != classes)
    peer.in.control()->announced_classes.store(classes, std::memory_order_relaxed);
}

void CopyPaths::forbid(Peer& peer) noexcept {
  peer.memory.forbid();
  expect_announced(peer);
}

void CopyPaths::forbid_shared(Peer& peer) noexcept {
  Copies* const copies = copies_of(peer);
  if (copies == nullptr || std::exchange(copies->refused, true)) return;
  for (auto& chooser : copies->choosers)
    if (chooser != nullptr) chooser->exclude(CopyPath::Both);
  expect_announced(peer);
}

bool CopyPaths::announces(const Peer& peer, uint64_t bytes) const noexcept {
  if (!peer.out.is_open() || (is_pinned_ && pinned_ == CopyPath::Ring)) return false;
  const uint32_t classes = peer.out.control()->announced_classes.load(std::memory_order_relaxed);
  return classes != 0 && (classes >> copy_class_of(bytes) & 1) != 0;
}

uint64_t CopyPaths::begin(const Peer& peer, uint64_t stamp) const noexcept {
  const uint64_t now = arch::ticks();
  const uint64_t start = std::max(stamp, copied_at_);
  if (!peer.memory.can_read() || is_pinned_ || stamp == 0 || start > now || now - start > rate_.stale_ticks())
    return 0;
  return start;
}

proto::CopyChoice CopyPaths::choose(Peer& peer, uint64_t bytes, uint64_t stamp, uint64_t heard) noexcept {
  if (!peer.memory.can_read() || (is_pinned_ && pinned_ == CopyPath::Ring)) return {};
  const bool refused = peer.copies != nullptr && peer.copies->refused;
  const CopyPath direct = bytes > shared_copy_least && !refused ? CopyPath::Both : CopyPath::Receiver;
  if (is_pinned_) return {std::min(pinned_, direct), 0};
  const uint64_t now = arch::ticks();
  const bool alone = peer.copies != nullptr && peer.copies->alone;
  // Nobody may be there to send it, or to help.
  if (now - std::max(stamp, heard) > rate_.stale_ticks() && (alone || now - copied_at_ > rate_.stale_ticks()))
    return {direct, 0};
  CopyChooser* const chooser = chooser_of(peer, bytes);
  if (chooser == nullptr) return {};  // in segments
  const CopyPath path = chooser->path();
  // It was announced already: fragments are what the next one comes in.
  if (path == CopyPath::Ring && (copy_class_of(bytes) < fragmented_classes || bytes > largest_streamed))
    return {direct, 0};
  uint32_t& asked_for = peer.copies->asked_for[copy_class_of(bytes)];
  if (now - peer.copies->asked_at > rate_.stale_ticks() * asked_for_max) asked_for = 0;
  if (path == CopyPath::Ring) {
    ++asked_for;
    peer.copies->asked_at = now;
  }
  return {path, path == CopyPath::Ring || asked_for == 0 ? begin(peer, stamp) : 0};
}

void CopyPaths::copied(Peer& peer, CopyPath path, uint64_t bytes, uint64_t start) noexcept {
  const uint64_t now = arch::ticks();
  // Several may be on their way in segments, or copied by both: the time of one begins when the one before it is done.
  if (path != CopyPath::Receiver && start != 0) start = std::max(start, copied_at_);
  copied_at_ = now;
  const size_t size_class = copy_class_of(bytes);
  in_all_[size_class].count(path, bytes);
  if (Copies* const copies = copies_of(peer); copies != nullptr)
    copies->counts[size_class].count(path, bytes);
  CopyChooser* const chooser = peer.memory.can_read() && !is_pinned_ ? chooser_of(peer, bytes) : nullptr;
  if (chooser == nullptr) return;
  uint32_t& asked_for = peer.copies->asked_for[copy_class_of(bytes)];
  if (path == CopyPath::Ring && asked_for != 0) --asked_for;
  // Both without the other one says nothing about a sender who is there.
  const bool alone = path == CopyPath::Both && peer.copies->alone;
  if (start == 0 || now <= start || alone) {
    if (chooser->pass()) expect_announced(peer);
    return;
  }
  const uint32_t changes = chooser->changes();
  if (chooser->note(path, now - start, bytes)) expect_announced(peer);
  if (chooser->changes() == changes) return;
  ++changes_;
  note_choice(peer, *chooser, bytes);
}

void CopyPaths::note_choice(const Peer& peer, const CopyChooser& chooser, uint64_t bytes) const noexcept {
  if (!note_) return;
  constexpr std::array<const char*, proto::copy_paths> names = {"ring", "receiver", "both"};
  const double ticks_in_us = rate_.ticks_in_us();
  const auto us = [&](CopyPath path) { return static_cast<double>(chooser.cost(path)) / ticks_in_us; };
  const std::string_view name = text_of(peer.address);
  const Line line(
      "%.*s: messages to %llu KiB are copied by \"%s\" now; microseconds for a MiB: ring %.1f, receiver "
      "%.1f, both %.1f",
      static_cast<int>(name.size()), name.data(),
      static_cast<unsigned long long>(copy_class_least >> 10) << copy_class_of(bytes),
      names[static_cast<size_t>(chooser.best())], us(CopyPath::Ring), us(CopyPath::Receiver),
      us(CopyPath::Both));
  note_(line.get());
}

void CopyPaths::note_all() const noexcept {
  CopyCounts all;
  for (const CopyCounts& counts : in_all_) all += counts;
  if (!note_ || all.messages == std::array<uint64_t, proto::copy_paths>{}) return;
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  const Line line(
      "large messages received: %llu (%llu bytes) through the ring, %llu (%llu) read, %llu (%llu) "
      "copied by both sides, %llu bytes of these by the senders; the way changed %llu times",
      number(all.messages[0]), number(all.bytes[0]), number(all.messages[1]), number(all.bytes[1]),
      number(all.messages[2]), number(all.bytes[2]), number(written_by_senders_), number(changes_));
  note_(line.get());
}

uint64_t CopyPaths::bytes_outside_of_ring() const noexcept {
  uint64_t bytes = 0;
  for (const CopyCounts& counts : in_all_)
    bytes += counts.bytes[static_cast<size_t>(CopyPath::Receiver)] +
             counts.bytes[static_cast<size_t>(CopyPath::Both)];
  return bytes;
}

proto::CopyReason CopyPaths::reason_of(const Peer& peer, const CopyChooser* chooser,
                                       uint64_t bytes) const noexcept {
  using enum proto::CopyReason;
  if (!peer.memory.can_read()) return Only;
  if (is_pinned_) return Pinned;
  if (bytes <= shared_copy_least) return Short;
  return chooser != nullptr && chooser->trials() != 0 ? Measured : Presumed;
}

proto::CopyUse CopyPaths::use(const Peer* peer, uint64_t bytes) const noexcept {
  const size_t size_class = copy_class_of(bytes);
  proto::CopyUse use;
  use.length_max = size_class + 1 == copy_classes ? UINT64_MAX : copy_class_least << size_class;
  const Copies* const copies = peer != nullptr ? peer->copies.get() : nullptr;
  const CopyCounts none;
  const CopyCounts& counts = peer == nullptr     ? in_all_[size_class]
                             : copies == nullptr ? none
                                                 : copies->counts[size_class];
  for (size_t i = 0; i < proto::copy_paths; ++i) {
    use.paths[i].messages = counts.messages[i];
    use.paths[i].bytes = counts.bytes[i];
  }
  if (peer == nullptr) return use;
  const CopyChooser* const chooser = copies != nullptr ? copies->choosers[size_class].get() : nullptr;
  use.reason = reason_of(*peer, chooser, bytes);
  if (use.reason == proto::CopyReason::Pinned) use.path = pinned_;
  if (chooser == nullptr) return use;
  if (peer->memory.can_read() && !is_pinned_) use.path = chooser->best();
  const auto ns = [&](uint64_t ticks) { return rate_.ns(ticks); };
  for (size_t i = 0; i < proto::copy_paths; ++i)
    use.paths[i].ns = static_cast<uint64_t>(static_cast<double>(ns(chooser->cost(static_cast<CopyPath>(i)))) *
                                            static_cast<double>(bytes) / (1 << 20));
  use.measured = chooser->messages();
  use.trial_messages = chooser->trial_messages();
  use.trials = chooser->trials();
  use.changes = chooser->changes();
  use.measured_ns = ns(chooser->ticks());
  use.lost_ns = ns(chooser->lost_ticks());
  return use;
}

}  // namespace weft::link::shm
