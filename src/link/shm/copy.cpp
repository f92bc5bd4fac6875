// Large messages: which way each is copied, and copies by cross-memory attach, by one side or by both.
#include <cerrno>

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
constexpr uint64_t asked_for_max = 33'000;  // times 30 microseconds
constexpr uint64_t checked_bytes = uint64_t{1}
                                   << 20;  // that a sender writes before it looks again who is there
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

CopyChooser* Link::chooser_of(Peer& peer, uint64_t bytes) noexcept {
  Copies* const copies = copies_of(peer);
  const size_t c = copy_class_of(bytes);
  if (copies == nullptr || bytes <= shared_copy_least) return nullptr;
  auto& chooser = copies->choosers[c];
  if (chooser == nullptr) {
    constexpr uint32_t ways = bit(CopyPath::Ring) | bit(CopyPath::Receiver) | bit(CopyPath::Both);
    chooser.reset(new (std::nothrow)
                      CopyChooser(c < fragmented_classes ? CopyPath::Ring : CopyPath::Both, ways));
  }
  return chooser.get();
}

// Tells the peer which messages it should announce.
void Link::tell_announced(Peer& peer) noexcept {
  if (peer.rx_control == nullptr) return;
  uint32_t classes = 0;
  for (size_t c = 1; c < fragmented_classes && peer.cma; ++c) {
    if (copy_pinned_) classes |= pinned_copy_ != CopyPath::Ring ? uint32_t{1} << c : 0;
    else if (peer.copies != nullptr && peer.copies->choosers[c] != nullptr &&
             peer.copies->choosers[c]->path() != CopyPath::Ring)
      classes |= uint32_t{1} << c;
  }
  if (peer.rx_control->announced_classes.load(std::memory_order_relaxed) != classes)
    peer.rx_control->announced_classes.store(classes, std::memory_order_relaxed);
}

// The peer's memory cannot be reached any more.
void Link::forbid_cma(Peer& peer) noexcept {
  peer.cma = false;
  tell_announced(peer);
}

bool Link::announces(const Peer& peer, uint64_t bytes) const noexcept {
  if (peer.tx_control == nullptr || (copy_pinned_ && pinned_copy_ == CopyPath::Ring)) return false;
  const uint32_t classes = peer.tx_control->announced_classes.load(std::memory_order_relaxed);
  return classes != 0 && (classes >> copy_class_of(bytes) & 1) != 0;
}

uint64_t Link::begin_copy(const Peer& peer, uint64_t stamp) const noexcept {
  const uint64_t now = arch::ticks();
  const uint64_t start = std::max(stamp, copied_at_);
  if (!peer.cma || copy_pinned_ || stamp == 0 || start > now || now - start > stale_ticks_) return 0;
  return start;
}

proto::CopyChoice Link::choose_copy(Peer& peer, uint64_t bytes, uint64_t stamp, uint64_t heard) noexcept {
  if (!peer.cma || (copy_pinned_ && pinned_copy_ == CopyPath::Ring)) return {};
  const CopyPath direct = bytes > shared_copy_least ? CopyPath::Both : CopyPath::Receiver;
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
  copied_at_ = now;
  ++copied_in_all_.messages[static_cast<size_t>(path)];
  copied_in_all_.bytes[static_cast<size_t>(path)] += bytes;
  CopyChooser* const chooser = peer.cma && !copy_pinned_ ? chooser_of(peer, bytes) : nullptr;
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
  ++copied_in_all_.changes;
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
  const CopyCounts& all = copied_in_all_;
  if (on_note_ == nullptr || all.messages == std::array<uint64_t, proto::copy_paths>{}) return;
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  const Line line(
      "large messages received: %llu (%llu bytes) through the ring, %llu (%llu) read, %llu (%llu) "
      "copied by both sides, %llu bytes of these by the senders; the way changed %llu times",
      number(all.messages[0]), number(all.bytes[0]), number(all.messages[1]), number(all.bytes[1]),
      number(all.messages[2]), number(all.bytes[2]), number(all.written_by_senders), number(all.changes));
  on_note_(note_context_, line.get());
}

// --- copies by the receiver ---

int Link::read(Peer& peer, const iovec* local, size_t local_count, const wire::SourceSegment* remote,
               size_t remote_count, size_t bytes) noexcept {
  const int status = read_range(peer, local, local_count, remote, remote_count, {0, bytes, 0});
  if (status != 0) return status;
  return os::has_exited(peer.pidfd) ? -ESRCH : 0;  // its number may have been somebody else's already
}

int Link::read_range(Peer& peer, const iovec* local, size_t local_count, const wire::SourceSegment* remote,
                     size_t remote_count, const MeetingRange& range) noexcept {
  std::array<iovec, list_max> here;
  std::array<iovec, list_max> there;
  const size_t count = proto::slice(local, local_count, range.offset, range.bytes, here.data(), here.size());
  const size_t source = slice_remote(remote, remote_count, range.offset, range.bytes, there);
  if (source == 0 || proto::total_bytes(here.data(), count) != range.bytes) return -EINVAL;
  const ssize_t moved = os::read_process(peer.pid, here.data(), count, there.data(), source, range.bytes);
  if (moved == -EPERM) forbid_cma(peer);  // not any more
  return moved < 0 ? static_cast<int>(moved) : 0;
}

uint64_t Link::open_meeting(Peer& peer, uint64_t bytes) noexcept {
  Copies* const copies = copies_of(peer);
  const MeetingCut cut{bytes, grain_of(bytes)};
  if (copies == nullptr || peer.rx_control == nullptr || !cut.is_sound()) return 0;
  for (uint32_t place = 0; place < meeting_count; ++place) {
    Copies::Meeting& meeting = copies->meetings[place];
    if (meeting.name != 0) continue;
    if (++generation_ == 0) ++generation_;
    meeting.front = MeetingFront(peer.rx_control->meetings[place], generation_, cut);
    meeting.failed = false;
    meeting.name = MeetingName{generation_, cut.grain, place}.word();
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
                            const wire::SourceSegment* remote, size_t remote_count, uint64_t bytes) noexcept {
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
  const uint64_t until = arch::ticks() + stale_ticks_;
  while (front.sender() == MeetingFront::Sender::Busy && arch::ticks() < until) arch::pause();
  if (front.ask() == MeetingFront::Sender::Busy) return Busy;
  if (const MeetingRange rest = front.rest(); rest.bytes != 0 && !meeting->failed)
    meeting->failed = !reads(rest);
  const bool failed = meeting->failed || os::has_exited(peer.pidfd);
  peer.copies->alone = front.written() == 0;
  copied_in_all_.written_by_senders += uint64_t{front.written()} * MeetingName::of(name).grain;
  *meeting = {};
  return failed ? Failed : Done;
}

// Nobody writes when this returns 0. -EBUSY: the sender is in the middle of it, perhaps stopped; ask again.
int Link::end_meeting(Peer& peer, Copies::Meeting& meeting, int64_t until_ms) noexcept {
  meeting.front.close();
  while (meeting.front.sender() == MeetingFront::Sender::Busy) {
    // Who was killed in the middle has left its words; its copy ended with it.
    if (os::has_exited(peer.pidfd)) break;
    if (os::now_ms() > until_ms) return -EBUSY;
    os::yield_processor();
  }
  return 0;
}

void Link::end_meeting(Peer& peer, uint64_t name) noexcept {
  Copies::Meeting* const meeting = find_meeting(peer, name);
  if (meeting == nullptr) return;
  (void)end_meeting(peer, *meeting, os::now_ms() + patience_ms);
  *meeting = {};
}

void Link::end_meetings(Peer& peer) noexcept {
  if (peer.copies == nullptr || peer.rx_control == nullptr) return;
  for (Copies::Meeting& meeting : peer.copies->meetings) end_meeting(peer, meeting.name);
}

int Link::pause_meetings() noexcept {
  if (header_ == nullptr || !belongs_here()) return 0;
  const int64_t until = os::now_ms() + patience_ms;
  int status = 0;
  for (auto& [name, peer] : peers_) {
    if (peer->copies == nullptr || peer->rx_control == nullptr) continue;
    for (Copies::Meeting& meeting : peer->copies->meetings)
      if (meeting.name != 0 && end_meeting(*peer, meeting, until) != 0) status = -EBUSY;
  }
  return status;
}

// --- the sender's part ---

bool Link::assist(Peer& peer, uint64_t name, uint64_t bytes, const wire::SourceSegment* to, size_t to_count,
                  const iovec* local, size_t local_count) noexcept {
  const MeetingName meeting = MeetingName::of(name);
  const MeetingCut cut{bytes, meeting.grain};
  if (meeting.place >= meeting_count || !cut.is_sound() || peer.tx_control == nullptr) return false;
  if (!peer.cma || peer.may_not_write || !belongs_here()) return false;
  if (copy_pinned_ && pinned_copy_ != CopyPath::Both) return false;
  MeetingBack back(peer.tx_control->meetings[meeting.place], meeting.generation, cut);
  uint64_t unchecked = checked_bytes;
  for (;;) {
    if (unchecked >= checked_bytes) {
      if (!is_there(peer)) break;
      unchecked = 0;
    }
    const MeetingRange range = back.take();
    if (range.bytes == 0) break;
    std::array<iovec, list_max> here;
    std::array<iovec, list_max> there;
    const size_t count =
        proto::slice(local, local_count, range.offset, range.bytes, here.data(), here.size());
    const size_t target = slice_remote(to, to_count, range.offset, range.bytes, there);
    ssize_t moved = -EINVAL;
    if (target != 0 && proto::total_bytes(here.data(), count) == range.bytes)
      moved = os::write_process(peer.pid, here.data(), count, there.data(), target, range.bytes);
    if (moved < 0) {
      if (moved == -EPERM) peer.may_not_write = true;
      back.fail();
      break;
    }
    back.finish(range);
    unchecked += range.bytes;
  }
  return back.asked();
}

}  // namespace weft::link::shm
