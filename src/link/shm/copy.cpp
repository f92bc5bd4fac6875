// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Large messages: which way each is copied, and copies by cross-memory attach, by one side or by both.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "base/settings.hpp"
#include "link/shm/greeting.hpp"
#include "link/shm/link.hpp"
#include "os/clock.hpp"
#include "os/event.hpp"
#include "os/process.hpp"
#include "proto/engine/op.hpp"

namespace weft::link::shm {

namespace {

constexpr uint64_t largest_streamed =
    uint64_t{1} << 24;  // above, data comes out of memory, and two copies cost twice the traffic
constexpr uint64_t shared_copy_least =
    uint64_t{1} << 15;  // shorter messages are not worth a second side, and go in fragments
constexpr uint64_t grain_least = uint64_t{1} << 15;
constexpr uint64_t grains_usual = 1U << 12;
constexpr uint64_t crowded_grain_max = uint64_t{1} << 18;
constexpr uint64_t assist_bytes_max = uint64_t{1} << 22;  // in one call
constexpr uint64_t asked_for_max = 33'000;                // times 30 microseconds
constexpr int64_t patience_ms = 200;
constexpr size_t list_max = 16;

constexpr uint32_t bit(CopyPath path) noexcept { return uint32_t{1} << static_cast<uint32_t>(path); }

// Classes whose messages come in fragments unless they are announced.
constexpr size_t fragmented_classes = copy_class_of(Link::fragmented_eager_bytes_max) + 1;

uint32_t grain_of(uint64_t bytes) noexcept {
  const uint64_t grain = std::max(grain_least, bytes / grains_usual);
  return static_cast<uint32_t>((grain + MeetingName::grain_unit - 1) / MeetingName::grain_unit *
                               MeetingName::grain_unit);
}

// Of one of several messages: each side copies another one, and enters the kernel once for it.
uint32_t crowded_grain_of(uint64_t bytes) noexcept {
  const uint64_t whole =
      (bytes + MeetingName::grain_unit - 1) / MeetingName::grain_unit * MeetingName::grain_unit;
  return std::max(grain_of(bytes), static_cast<uint32_t>(std::min(whole, crowded_grain_max)));
}

// [offset, offset + bytes) of a list in the peer's memory. 0: it is not all there, or in too many pieces.
size_t slice_remote(const wire::SourceSegment* list, size_t count, uint64_t offset, uint64_t bytes,
                    std::array<iovec, list_max>& out) noexcept {
  size_t used = 0;
  for (size_t i = 0; i < count && bytes > 0; ++i) {
    if (offset >= list[i].length) {
      offset -= list[i].length;
      continue;
    }
    const uint64_t here = std::min(list[i].length - offset, bytes);
    if (used == out.size()) return 0;
    out[used++] = {reinterpret_cast<void*>(list[i].address + offset), static_cast<size_t>(here)};
    offset = 0;
    bytes -= here;
  }
  return bytes == 0 ? used : 0;
}

}  // namespace

// --- the choice ---

void Link::read_copy_setting() noexcept {
  const uint64_t word = settings::number("WEFT_SHM_COPY");  // auto, ring, receiver, both
  copy_pinned_ = word >= 2 && word <= 1 + proto::copy_paths;
  if (copy_pinned_) pinned_copy_ = static_cast<CopyPath>(word - 2);
}

Copies* Link::copies_of(Peer& peer) noexcept {
  if (peer.copies == nullptr) peer.copies.reset(new (std::nothrow) Copies);
  return peer.copies.get();
}

// What a size class begins with: what is known of the nearest one, for much of it lies in the distance of the cores.
CopyPath Link::presumed_path(const Copies& copies, uint64_t bytes) noexcept {
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

CopyChooser* Link::chooser_of(Peer& peer, uint64_t bytes) noexcept {
  Copies* const copies = copies_of(peer);
  const size_t c = copy_class_of(bytes);
  if (copies == nullptr || bytes <= shared_copy_least) return nullptr;
  auto& chooser = copies->choosers[c];
  if (chooser == nullptr) {
    uint32_t ways = bit(CopyPath::Ring) | bit(CopyPath::Receiver);
    if (!copies->refused) ways |= bit(CopyPath::Both);
    chooser.reset(new (std::nothrow) CopyChooser(presumed_path(*copies, bytes), ways));
  }
  return chooser.get();
}

// Tells the peer which messages it should announce.
void Link::tell_announced(Peer& peer) noexcept {
  if (!peer.in.is_open()) return;
  uint32_t classes = 0;
  for (size_t c = 1; c < fragmented_classes && peer.memory.can_read(); ++c) {
    if (copy_pinned_) classes |= pinned_copy_ != CopyPath::Ring ? uint32_t{1} << c : 0;
    else if (peer.copies != nullptr && peer.copies->choosers[c] != nullptr &&
             peer.copies->choosers[c]->path() != CopyPath::Ring)
      classes |= uint32_t{1} << c;
  }
  if (peer.in.control()->announced_classes.load(std::memory_order_relaxed) != classes)
    peer.in.control()->announced_classes.store(classes, std::memory_order_relaxed);
}

// The peer's memory cannot be reached any more.
void Link::forbid_cma(Peer& peer) noexcept {
  peer.memory.forbid();
  tell_announced(peer);
}

// What a copy failed with. Memory of the program that is not there says nothing about the next message; anything else will not get better.
void Link::note_failure(Peer& peer, ssize_t error) noexcept {
  if (error != -EFAULT && error != -EINVAL) forbid_cma(peer);
}

// The peer cannot write our memory.
void Link::forbid_shared_copies(Peer& peer) noexcept {
  Copies* const copies = copies_of(peer);
  if (copies == nullptr || std::exchange(copies->refused, true)) return;
  for (auto& chooser : copies->choosers)
    if (chooser != nullptr) chooser->exclude(CopyPath::Both);
  tell_announced(peer);
}

bool Link::announces(const Peer& peer, uint64_t bytes) const noexcept {
  if (!peer.out.is_open() || (copy_pinned_ && pinned_copy_ == CopyPath::Ring)) return false;
  const uint32_t classes = peer.out.control()->announced_classes.load(std::memory_order_relaxed);
  return classes != 0 && (classes >> copy_class_of(bytes) & 1) != 0;
}

uint64_t Link::begin_copy(const Peer& peer, uint64_t stamp) const noexcept {
  const uint64_t now = arch::ticks();
  const uint64_t start = std::max(stamp, copied_at_);
  if (!peer.memory.can_read() || copy_pinned_ || stamp == 0 || start > now || now - start > stale_ticks_)
    return 0;
  return start;
}

proto::CopyChoice Link::choose_copy(Peer& peer, uint64_t bytes, uint64_t stamp, uint64_t heard) noexcept {
  if (!peer.memory.can_read() || (copy_pinned_ && pinned_copy_ == CopyPath::Ring)) return {};
  const bool refused = peer.copies != nullptr && peer.copies->refused;
  const CopyPath direct = bytes > shared_copy_least && !refused ? CopyPath::Both : CopyPath::Receiver;
  if (copy_pinned_) return {std::min(pinned_copy_, direct), 0};
  const uint64_t now = arch::ticks();
  const bool alone = peer.copies != nullptr && peer.copies->alone;
  // Nobody may be there to send it, or to help.
  if (now - std::max(stamp, heard) > stale_ticks_ && (alone || now - copied_at_ > stale_ticks_))
    return {direct, 0};
  CopyChooser* const chooser = chooser_of(peer, bytes);
  if (chooser == nullptr) return {};  // in segments
  const CopyPath path = chooser->path();
  // It was announced already: fragments are what the next one comes in.
  if (path == CopyPath::Ring && (copy_class_of(bytes) < fragmented_classes || bytes > largest_streamed))
    return {direct, 0};
  uint32_t& asked_for = peer.copies->asked_for[copy_class_of(bytes)];
  if (now - peer.copies->asked_at > stale_ticks_ * asked_for_max) asked_for = 0;
  if (path == CopyPath::Ring) {
    ++asked_for;
    peer.copies->asked_at = now;
  }
  return {path, path == CopyPath::Ring || asked_for == 0 ? begin_copy(peer, stamp) : 0};
}

void Link::copied(Peer& peer, CopyPath path, uint64_t bytes, uint64_t start) noexcept {
  const uint64_t now = arch::ticks();
  // Several may be on their way in segments, or copied by both: the time of one begins when the one before it is done.
  if (path != CopyPath::Receiver && start != 0) start = std::max(start, copied_at_);
  copied_at_ = now;
  const size_t size_class = copy_class_of(bytes);
  copied_in_all_[size_class].count(path, bytes);
  if (Copies* const copies = copies_of(peer); copies != nullptr)
    copies->counts[size_class].count(path, bytes);
  CopyChooser* const chooser = peer.memory.can_read() && !copy_pinned_ ? chooser_of(peer, bytes) : nullptr;
  if (chooser == nullptr) return;
  uint32_t& asked_for = peer.copies->asked_for[copy_class_of(bytes)];
  if (path == CopyPath::Ring && asked_for != 0) --asked_for;
  // Both without the other one says nothing about a sender who is there.
  const bool alone = path == CopyPath::Both && peer.copies->alone;
  if (start == 0 || now <= start || alone) {
    if (chooser->pass()) tell_announced(peer);
    return;
  }
  const uint32_t changes = chooser->changes();
  if (chooser->note(path, now - start, bytes)) tell_announced(peer);
  if (chooser->changes() == changes) return;
  ++copy_changes_;
  note_choice(peer, *chooser, bytes);
}

void Link::note_choice(const Peer& peer, const CopyChooser& chooser, uint64_t bytes) const noexcept {
  if (on_note_ == nullptr) return;
  constexpr std::array<const char*, proto::copy_paths> names = {"ring", "receiver", "both"};
  const double ticks_in_us = static_cast<double>(stale_ticks_) / stale_us;
  const auto us = [&](CopyPath path) { return static_cast<double>(chooser.cost(path)) / ticks_in_us; };
  const std::string_view name = text_of(peer.address);
  const Line line(
      "%.*s: messages to %llu KiB are copied by \"%s\" now; microseconds for a MiB: ring %.1f, receiver "
      "%.1f, both %.1f",
      static_cast<int>(name.size()), name.data(),
      static_cast<unsigned long long>(copy_class_least >> 10) << copy_class_of(bytes),
      names[static_cast<size_t>(chooser.best())], us(CopyPath::Ring), us(CopyPath::Receiver),
      us(CopyPath::Both));
  on_note_(note_context_, line.get());
}

void Link::note_copies() const noexcept {
  CopyCounts all;
  for (const CopyCounts& counts : copied_in_all_) all += counts;
  if (on_note_ == nullptr || all.messages == std::array<uint64_t, proto::copy_paths>{}) return;
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  const Line line(
      "large messages received: %llu (%llu bytes) through the ring, %llu (%llu) read, %llu (%llu) "
      "copied by both sides, %llu bytes of these by the senders; the way changed %llu times",
      number(all.messages[0]), number(all.bytes[0]), number(all.messages[1]), number(all.bytes[1]),
      number(all.messages[2]), number(all.bytes[2]), number(written_by_senders_), number(copy_changes_));
  on_note_(note_context_, line.get());
}

proto::CopyReason Link::reason_of(const Peer& peer, const CopyChooser* chooser,
                                  uint64_t bytes) const noexcept {
  using enum proto::CopyReason;
  if (!peer.memory.can_read()) return Only;
  if (copy_pinned_) return Pinned;
  if (bytes <= shared_copy_least) return Short;
  return chooser != nullptr && chooser->trials() != 0 ? Measured : Presumed;
}

proto::CopyUse Link::copy_use(const Peer* peer, uint64_t bytes) const noexcept {
  const size_t size_class = copy_class_of(bytes);
  proto::CopyUse use;
  use.length_max = size_class + 1 == copy_classes ? UINT64_MAX : copy_class_least << size_class;
  const Copies* const copies = peer != nullptr ? peer->copies.get() : nullptr;
  const CopyCounts none;
  const CopyCounts& counts = peer == nullptr     ? copied_in_all_[size_class]
                             : copies == nullptr ? none
                                                 : copies->counts[size_class];
  for (size_t i = 0; i < proto::copy_paths; ++i) {
    use.ways[i].messages = counts.messages[i];
    use.ways[i].bytes = counts.bytes[i];
  }
  if (peer == nullptr) return use;
  const CopyChooser* const chooser = copies != nullptr ? copies->choosers[size_class].get() : nullptr;
  use.reason = reason_of(*peer, chooser, bytes);
  if (use.reason == proto::CopyReason::Pinned) use.path = pinned_copy_;
  if (chooser == nullptr) return use;
  if (peer->memory.can_read() && !copy_pinned_) use.path = chooser->best();
  const double ns_of_tick = 1000.0 * stale_us / static_cast<double>(stale_ticks_);
  const auto ns = [&](uint64_t ticks) {
    return static_cast<uint64_t>(static_cast<double>(ticks) * ns_of_tick);
  };
  for (size_t i = 0; i < proto::copy_paths; ++i)
    use.ways[i].ns = static_cast<uint64_t>(static_cast<double>(ns(chooser->cost(static_cast<CopyPath>(i)))) *
                                           static_cast<double>(bytes) / (1 << 20));
  use.measured = chooser->messages();
  use.trial_messages = chooser->trial_messages();
  use.trials = chooser->trials();
  use.changes = chooser->changes();
  use.measured_ns = ns(chooser->ticks());
  use.lost_ns = ns(chooser->lost_ticks());
  return use;
}

// --- copies by the receiver ---

int Link::read(Peer& peer, const iovec* local, size_t local_count, const wire::SourceSegment* remote,
               size_t remote_count, size_t bytes) noexcept {
  const int status = read_range(peer, local, local_count, remote, remote_count, {0, bytes, 0});
  if (status != 0) return status;
  return was_source(peer) ? 0 : -ESRCH;
}

// After the last byte: what was read is what the sender had announced, if it had not closed its endpoint (then the program may use the memory again).
// That it was the sender's memory is known of each read.
bool Link::was_source(Peer& peer) noexcept {
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!has_closed(peer)) return true;
  lose(peer);
  return false;
}

// The process has ended, or the program in it (execve(2)): whatever copy it was at has ended, too.
bool Link::has_gone(const Peer& peer) const noexcept {
  return os::has_exited(peer.pidfd) || peer.memory.is_replaced();
}

void Link::lose_gone(Peer& peer) noexcept {
  peer.gone = true;
  lose(peer);
}

// A sender that we wait for may have become another program, which nothing else tells.
void Link::look_for_gone_sender(Peer& peer) noexcept {
  if (peer.copies == nullptr || peer.gone) return;
  const auto& meetings = peer.copies->meetings;
  if (std::any_of(meetings.begin(), meetings.end(), [](const auto& meeting) { return meeting.waits; }) &&
      has_gone(peer))
    lose_gone(peer);
}

int Link::read_range(Peer& peer, const iovec* local, size_t local_count, const wire::SourceSegment* remote,
                     size_t remote_count, const MeetingRange& range) noexcept {
  std::array<iovec, list_max> here;
  std::array<iovec, list_max> there;
  const size_t count = proto::slice(local, local_count, range.offset, range.bytes, here.data(), here.size());
  const size_t source = slice_remote(remote, remote_count, range.offset, range.bytes, there);
  if (source == 0 || proto::total_bytes(here.data(), count) != range.bytes) return -EINVAL;
  const ssize_t moved = peer.memory.read(here.data(), count, there.data(), source, range.bytes);
  if (moved >= 0) return 0;
  note_failure(peer, moved);
  if (has_gone(peer)) lose_gone(peer);
  return static_cast<int>(moved);
}

uint64_t Link::open_meeting(Peer& peer, uint64_t bytes) noexcept {
  if (closing_) return 0;
  Copies* const copies = copies_of(peer);
  if (copies == nullptr) return 0;
  const bool crowded =
      bytes <= crowded_grain_max && std::any_of(copies->meetings.begin(), copies->meetings.end(),
                                                [](const auto& meeting) { return meeting.name != 0; });
  const MeetingCut cut{bytes, crowded ? crowded_grain_of(bytes) : grain_of(bytes)};
  if (!peer.in.is_open() || !cut.is_sound()) return 0;
  for (uint32_t place = 0; place < meeting_count; ++place) {
    Copies::Meeting& meeting = copies->meetings[place];
    if (meeting.name != 0) continue;
    if (meeting.kept && meeting.front.sender() == MeetingFront::Sender::Busy) continue;
    if (++generation_ == 0) ++generation_;
    meeting = {};
    meeting.front = MeetingFront(peer.in.control()->meetings[place], generation_, cut);
    meeting.name = MeetingName{generation_, cut.grain, place}.word();
    meeting.crowded = crowded;
    return meeting.name;
  }
  return 0;
}

Copies::Meeting* Link::find_meeting(Peer& peer, uint64_t name) noexcept {
  const uint32_t place = MeetingName::of(name).place;
  if (name == 0 || peer.copies == nullptr || place >= meeting_count) return nullptr;
  Copies::Meeting& meeting = peer.copies->meetings[place];
  return meeting.name == name ? &meeting : nullptr;
}

proto::CopyState Link::copy(Peer& peer, uint64_t name, const iovec* local, size_t local_count,
                            const wire::SourceSegment* remote, size_t remote_count, uint64_t bytes,
                            bool patient) noexcept {
  using enum proto::CopyState;
  Copies::Meeting* const meeting = find_meeting(peer, name);
  if (meeting == nullptr)
    return read(peer, local, local_count, remote, remote_count, bytes) == 0 ? Done : Failed;
  MeetingFront& front = meeting->front;
  const auto reads = [&](const MeetingRange& range) {
    return read_range(peer, local, local_count, remote, remote_count, range) == 0;
  };
  while (!meeting->failed) {
    const MeetingRange range = front.take();
    if (range.bytes == 0) break;
    if (!reads(range)) meeting->failed = true;
  }
  front.close();
  // The sender is at its last piece, as a rule.
  const uint64_t now = arch::ticks();
  if (meeting->until == 0) meeting->until = now + stale_ticks_;
  if (!patient && meeting->crowded && now < meeting->until && front.sender() == MeetingFront::Sender::Busy)
    return Later;
  while (front.sender() == MeetingFront::Sender::Busy && arch::ticks() < meeting->until) arch::pause();
  if (front.ask() == MeetingFront::Sender::Busy) {
    meeting->waits = true;
    return Busy;
  }
  if (front.refused()) forbid_shared_copies(peer);
  if (const MeetingRange rest = front.rest(); rest.bytes != 0 && !meeting->failed)
    meeting->failed = !reads(rest);
  const bool failed = meeting->failed || !was_source(peer);
  if (!meeting->crowded || front.written() != 0) peer.copies->alone = front.written() == 0;
  written_by_senders_ += uint64_t{front.written()} * MeetingName::of(name).grain;
  *meeting = {};
  return failed ? Failed : Done;
}

// Nobody writes when this returns 0. -EBUSY: the sender is in the middle of it, perhaps stopped; ask again.
int Link::end_meeting(Peer& peer, Copies::Meeting& meeting, int64_t until_ms) noexcept {
  meeting.front.close();
  while (meeting.front.sender() == MeetingFront::Sender::Busy) {
    // Who was killed in the middle has left its words; its copy ended with it.
    if (has_gone(peer)) break;
    meeting.waits = true;
    if (os::now_ms() > until_ms) return -EBUSY;
    os::yield_processor();
  }
  return 0;
}

// The place of a sender that still writes is not free: what it says at last would be taken for the next message's.
void Link::end_meeting(Peer& peer, uint64_t name) noexcept {
  Copies::Meeting* const meeting = find_meeting(peer, name);
  if (meeting == nullptr) return;
  // Who is stuck in one is not waited for again.
  const auto& all = peer.copies->meetings;
  const bool stuck = std::any_of(all.begin(), all.end(), [](const auto& other) { return other.kept; });
  if (end_meeting(peer, *meeting, os::now_ms() + (stuck ? 0 : patience_ms)) != 0) {
    meeting->name = 0;
    meeting->kept = true;
  } else {
    *meeting = {};
  }
}

// Of a peer that is given up, with its channel.
void Link::end_meetings(Peer& peer) noexcept {
  if (peer.copies == nullptr || !peer.in.is_open()) return;
  const int64_t until = os::now_ms() + patience_ms;
  for (Copies::Meeting& meeting : peer.copies->meetings) {
    if (meeting.is_open()) (void)end_meeting(peer, meeting, until);
    meeting = {};
  }
}

int Link::pause_meetings() noexcept {
  if (header_ == nullptr || !belongs_here()) return 0;
  closing_ = true;
  const int64_t until = os::now_ms() + patience_ms;
  int status = 0;
  for (auto& [name, peer] : peers_) {
    if (peer->copies == nullptr || !peer->in.is_open()) continue;
    for (Copies::Meeting& meeting : peer->copies->meetings)
      if (meeting.is_open() && end_meeting(*peer, meeting, until) != 0) status = -EBUSY;
  }
  return status;
}

// --- the sender's part ---

proto::Assistance Link::assist(Peer& peer, uint64_t name, uint64_t bytes, const wire::SourceSegment* to,
                               size_t to_count, const iovec* local, size_t local_count,
                               uint32_t& taken) noexcept {
  using enum proto::Assistance;
  const MeetingName meeting = MeetingName::of(name);
  const MeetingCut cut{bytes, meeting.grain};
  if (meeting.place >= meeting_count || !cut.is_sound() || !peer.out.is_open()) return Ended;
  if (!peer.memory.can_write() || !belongs_here()) return Ended;
  if (copy_pinned_ && pinned_copy_ != CopyPath::Both) return Ended;
  MeetingBack back(peer.out.control()->meetings[meeting.place], meeting.generation, cut, taken);
  for (uint64_t written = 0; !back.asked();) {  // who has asked takes no more, and leaves nothing
    if (written >= assist_bytes_max) {
      taken = back.taken();
      return More;
    }
    if (back.is_over() || !peer.memory.was_there(stale_ticks_)) break;
    const MeetingRange range = back.take();
    if (range.bytes == 0) break;
    std::array<iovec, list_max> here;
    std::array<iovec, list_max> there;
    const size_t count =
        proto::slice(local, local_count, range.offset, range.bytes, here.data(), here.size());
    const size_t target = slice_remote(to, to_count, range.offset, range.bytes, there);
    ssize_t moved = -EINVAL;
    if (target != 0 && proto::total_bytes(here.data(), count) == range.bytes)
      moved = peer.memory.write(here.data(), count, there.data(), target, range.bytes);
    if (moved < 0) {
      if (moved != -EFAULT && moved != -EINVAL) peer.memory.forbid_writing();
      back.fail();
      break;
    }
    back.finish(range);
    written += range.bytes;
  }
  return back.asked() ? Asked : Ended;
}

}  // namespace weft::link::shm
