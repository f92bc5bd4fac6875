// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A Link for tests of the engine: frames travel over queues in memory, when and as the test likes. Must not know tags or completions.
//
// Whatever the contract of link.hpp allows may happen: send() refuses, frames wait, poll() takes from the sources in any order, small frames
// have to be told, memory runs out while a frame is shown, reading a peer's memory is refused, peers are lost after what they had sent.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "core/provider_error.hpp"
#include "proto/engine/link.hpp"
#include "proto/engine/op.hpp"
#include "wire/frame.hpp"

namespace weft::proto::sim {

inline constexpr size_t address_bytes = 16;

// While true, every allocation that throws does; every one that returns null (sim_engines_test.cpp, where the operators are).
extern bool out_of_memory;
extern bool starving;

struct Frame {
  wire::FrameHead head{};
  std::vector<std::byte> payload;
  bool notified = true;    // false: sent Unseen, and the engine has not called wake_receiver() yet
  bool in_parts = false;   // the handler has its first part
  wire::FrameHead rest{};  // then: what is left of it
  // Payload that is still where the program has it, behind `payload`; the frame is not told of until that is complete.
  std::vector<iovec> parts{};
  uint64_t sequence = 0;
  bool on_loan = false;  // the handler reads it where it is
};

// Who is told of what happens in a Net. `from` and `to` are numbers of links.
struct Watcher {
  virtual void arrived(int from, int to, const Frame& frame) = 0;  // on_frame() has taken it
  virtual void lost(int at, int peer) = 0;                         // peer_lost() is about to be called
  // While true, allocations that may fail do.
  virtual void starve(bool on) = 0;

 protected:
  ~Watcher() = default;
};

// How often the links of a test went a way that is faster than the usual one.
struct Shortcuts {
  uint64_t small_frames = 0;  // send_small()
  uint64_t short_frames = 0;  // on_short_frame(), on_short_frame_with_b()
  uint64_t fast_frames = 0;   // take_frame()
  uint64_t fast_nothing = 0;  // fast_poll() saw that there is nothing
  uint64_t loans = 0;
  uint64_t reserved = 0;       // buffers that were committed
  uint64_t accesses = 0;       // access()
  uint64_t collected = 0;      // of these: of more pieces than one operation of the programs has
  uint64_t shared_copies = 0;  // messages of which the sender wrote a part

  Shortcuts& operator+=(const Shortcuts& more) {
    small_frames += more.small_frames;
    accesses += more.accesses;
    collected += more.collected;
    shared_copies += more.shared_copies;
    short_frames += more.short_frames;
    fast_frames += more.fast_frames;
    fast_nothing += more.fast_nothing;
    loans += more.loans;
    reserved += more.reserved;
    return *this;
  }
};

// The wires between the links of one test, and the chances of what goes wrong on them, in percent.
struct Net {
  explicit Net(uint64_t seed) : random(seed) {}
  bool chance(unsigned percent) { return percent != 0 && random() % 100 < percent; }

  std::mt19937_64 random;
  Watcher* watcher = nullptr;
  unsigned refusal = 0;                                       // send() says no
  unsigned delay = 0;                                         // poll() leaves the rest of a wire for later
  unsigned starving = 0;                                      // no memory while a frame is shown
  unsigned unseen = 0;                                        // a small frame has to be told
  unsigned parting = 0;                                       // a frame is shown in parts
  unsigned unreadable = 0;                                    // remote read fails
  unsigned fast_paths = 0;                                    // a short frame is shown as such
  size_t frames_max = 64;                                     // on one wire
  std::map<std::pair<int, int>, std::deque<Frame>> wires;     // (from, to)
  std::map<std::pair<int, uint64_t>, ExposedRegion> exposed;  // (owner, key)
  // Messages that both sides copy: what the sender has taken and written, from the end.
  struct Meeting {
    uint64_t taken = 0, written = 0;
    bool begun = false, seen = false, failed = false;
  };
  std::map<uint64_t, Meeting> meetings;
  uint64_t last_meeting = 0;
  std::vector<bool> dead;
  Shortcuts shortcuts;

  bool quiet() const {
    return std::all_of(wires.begin(), wires.end(), [this](const auto& wire) {
      return wire.second.empty() || dead[static_cast<size_t>(wire.first.second)];
    });
  }
  // The owner of the link has gone. What it had sent stays on the wires.
  void kill(int id) { dead[static_cast<size_t>(id)] = true; }
};

inline std::array<std::byte, address_bytes> address_of(int id) {
  std::array<std::byte, address_bytes> out{};
  std::memcpy(out.data(), "sim", 3);
  std::memcpy(out.data() + 4, &id, sizeof(id));
  return out;
}

struct PeerBase {
  int id = -1;
  uint64_t sent = 0;       // frames sent to it
  uint64_t completed = 0;  // of which the link says that they need nothing more
};

using SimEvents = LinkEvents<PeerBase>;

// The least that a Link can be.
class PlainLink : public LinkBase {
 public:
  using PeerBase = sim::PeerBase;
  using Events = SimEvents;
  static constexpr size_t frame_bytes_max = 12'000;  // an atomic operation fits
  static constexpr size_t eager_bytes_max = 200;
  static constexpr size_t fragmented_eager_bytes_max = 1500;
  static constexpr size_t fragment_bytes = 300;
  static constexpr size_t segment_bytes = 700;
  static constexpr size_t address_length = address_bytes;
  static constexpr size_t short_bytes_max = 48;

  // Before open().
  void join(Net& net, int id) {
    net_ = &net;
    id_ = id;
    address_ = address_of(id);
    if (net.dead.size() <= static_cast<size_t>(id)) net.dead.resize(static_cast<size_t>(id) + 1, false);
  }
  Result<void> open(std::string_view, Events& events) {
    events_ = &events;
    return {};
  }
  std::span<const std::byte> address() const noexcept { return address_; }

  PeerBase* connect(std::span<const std::byte> address, int& error) {
    int id = -1;
    if (address.size() == address_bytes) std::memcpy(&id, address.data() + 4, sizeof(id));
    if (id < 0 || static_cast<size_t>(id) >= net_->dead.size()) {
      error = EINVAL;
      return nullptr;
    }
    PeerBase*& peer = peers_[id];
    if (peer == nullptr) {
      peer = events_->make_peer(address);
      peer->id = id;
    }
    return peer;
  }
  void forget(PeerBase& peer) noexcept {
    net_->wires[{peer.id, id_}].clear();
    peers_.erase(peer.id);
  }
  bool send(PeerBase& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
            const iovec* parts, size_t part_count) noexcept {
    return !net_->chance(net_->refusal) && put(peer, head, prefix, parts, part_count, true);
  }
  void close() noexcept { peers_.clear(); }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    int taken = 0;
    std::vector<int> sources;
    for (size_t id = 0; id < net_->dead.size(); ++id) sources.push_back(static_cast<int>(id));
    std::shuffle(sources.begin(), sources.end(), net_->random);
    for (const int from : sources) {
      taken += drain(from, handler);
      lose(from);
    }
    return taken;
  }

 protected:
  bool put(PeerBase& peer, const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
           size_t part_count, bool notified) {
    auto& wire = net_->wires[{id_, peer.id}];
    if (wire.size() >= net_->frames_max) return false;
    Frame frame{head, {prefix.begin(), prefix.end()}, notified};
    for (size_t i = 0; i < part_count; ++i) {
      const auto* bytes = static_cast<const std::byte*>(parts[i].iov_base);
      frame.payload.insert(frame.payload.end(), bytes, bytes + parts[i].iov_len);
    }
    if (frame.payload.size() < head.length || head.length > frame_bytes_max)
      std::abort();  // the engine broke the contract
    frame.payload.resize(head.length);
    wire.push_back(std::move(frame));
    ++peer.sent;
    return true;
  }

  template <class Handler>
  int drain(int from, Handler& handler) noexcept {
    int taken = 0;
    auto& wire = net_->wires[{from, id_}];
    while (!wire.empty() && wire.front().notified && !net_->chance(net_->delay)) {
      if (wire.front().in_parts) {
        if (!go_on(from, wire.front(), handler)) break;
        wire.pop_front();
        ++taken;
        continue;
      }
      Frame frame = wire.front();  // a copy of its own size: a read beyond it is seen
      int error = 0;
      const auto address = address_of(from);
      PeerBase* peer = connect(address, error);
      const bool starves =
          net_->watcher != nullptr && net_->chance(net_->starving) && may_wait(frame.head.kind);
      if (starves) net_->watcher->starve(true);
      Land in_parts = Land::Whole;
      if (frame.head.length > 1 && net_->chance(net_->parting))
        in_parts = begin_parts(from, *peer, wire.front(), handler);
      shown_ = &frame;
      const bool took =
          in_parts == Land::Whole &&
          (show_short(*peer, frame, handler) || handler.on_frame(*peer, frame.head, frame.payload.data()));
      shown_ = nullptr;
      if (starves) net_->watcher->starve(false);
      if (in_parts == Land::Here) continue;
      if (!took) break;
      wire.pop_front();
      ++taken;
      if (net_->watcher != nullptr) net_->watcher->arrived(from, id_, frame);
    }
    return taken;
  }
  // A frame whose head the handler has published. False: nothing has happened.
  template <class Handler>
  bool show_short(PeerBase& peer, const Frame& frame, Handler& handler) noexcept {
    if constexpr (TakesShortFrames<Handler, PeerBase>) {
      const wire::FrameHead& head = frame.head;
      const wire::HeadWord word = wire::head_word(head.kind, head.flags, head.context);
      const std::byte* bytes = frame.payload.data();
      if (head.length > short_bytes_max || !net_->chance(net_->fast_paths)) return false;
      const bool took =
          (word == Handler::short_head && handler.on_short_frame(peer, head.a, bytes, head.length)) ||
          (word == Handler::short_head_with_b &&
           handler.on_short_frame_with_b(peer, head.a, head.b, bytes, head.length));
      net_->shortcuts.short_frames += took ? 1 : 0;
      return took;
    }
    return false;
  }
  // Shows a frame while it is still arriving: some bytes now, the rest piece by piece, and perhaps not all of it in this poll.
  template <class Handler>
  Land begin_parts(int from, PeerBase& peer, Frame& frame, Handler& handler) noexcept {
    if constexpr (TakesParts<Handler, PeerBase>) {
      const size_t arrived = net_->random() % frame.head.length;
      const std::vector<std::byte> part(frame.payload.begin(),
                                        frame.payload.begin() + static_cast<std::ptrdiff_t>(arrived));
      frame.rest = frame.head;
      Landing unused;
      const Land answer = handler.land(peer, frame.rest, part.data(), arrived, unused);
      frame.in_parts = answer == Land::Here;
      if (frame.in_parts) report_part(from, frame.head, arrived);
      return answer;
    }
    return Land::Whole;
  }
  // The watcher hears of a part as the shorter frame that it is as good as.
  void report_part(int from, wire::FrameHead head, size_t bytes) {
    using enum wire::FrameKind;
    const bool eager = head.kind == Tagged || head.kind == Msg;
    if (eager) head.kind = head.kind == Tagged ? TaggedFirst : MsgFirst;
    head.length = static_cast<uint32_t>(bytes + (eager ? sizeof(wire::FirstPrefix) : 0));
    if (net_->watcher != nullptr && head.length != 0) net_->watcher->arrived(from, id_, {head, {}});
  }
  // True: all of it has arrived.
  template <class Handler>
  bool go_on(int from, Frame& frame, Handler& handler) noexcept {
    if constexpr (TakesParts<Handler, PeerBase>) {
      PeerBase* peer = peers_.at(from);
      while (frame.rest.length > 0 && !net_->chance(net_->delay)) {
        Landing to;
        if (handler.land(*peer, frame.rest, nullptr, 0, to) != Land::Here) std::abort();
        size_t count = 1 + net_->random() % frame.rest.length;
        if (to.bytes != 0) count = std::min(count, to.bytes);
        const std::byte* at = frame.payload.data() + frame.payload.size() - frame.rest.length;
        size_t left = count;
        for (size_t i = 0; i < to.count && left > 0; ++i) {
          const size_t n = std::min(to.pieces[i].iov_len, left);
          std::memcpy(to.pieces[i].iov_base, at, n);
          at += n;
          left -= n;
        }
        const wire::FrameHead part = frame.rest;
        handler.landed(*peer, frame.rest, count);
        report_part(from, part, count);
      }
    }
    return frame.rest.length == 0;
  }
  static bool may_wait(wire::FrameKind kind) noexcept {
    using enum wire::FrameKind;
    return kind == Tagged || kind == Msg || kind == TaggedFirst || kind == MsgFirst;
  }
  void lose(int id) noexcept {
    const auto found = peers_.find(id);
    if (found == peers_.end() || !net_->dead[static_cast<size_t>(id)] || !net_->wires[{id, id_}].empty() ||
        net_->chance(net_->delay))
      return;
    PeerBase& peer = *found->second;
    peers_.erase(found);
    net_->wires[{id_, id}].clear();  // nobody reads it, and what it refers to goes
    if (net_->watcher != nullptr) net_->watcher->lost(id_, id);
    events_->peer_lost(peer, core::ProviderError::PeerDied);
  }

  Net* net_ = nullptr;
  Frame* shown_ = nullptr;  // during on_frame()
  int id_ = -1;
  Events* events_ = nullptr;
  std::array<std::byte, address_bytes> address_{};
  std::map<int, PeerBase*> peers_;
};
static_assert(Link<PlainLink> && !HasSmallFrames<PlainLink> && !HasRemoteMemory<PlainLink> &&
              !HasSleep<PlainLink>);

// With small frames and remote read.
class RichLink : public PlainLink {
 public:
  static constexpr size_t small_bytes_max = 48;

  SmallSend send_small(PeerBase& peer, const wire::FrameHead& head, const void* bytes) noexcept {
    const iovec part{const_cast<void*>(bytes), head.length};
    const bool unseen = net_->chance(net_->unseen);
    if (net_->chance(net_->refusal) || !put(peer, head, {}, &part, 1, !unseen)) return SmallSend::Refused;
    ++net_->shortcuts.small_frames;
    return unseen ? SmallSend::Unseen : SmallSend::Sent;
  }
  void wake_receiver(PeerBase& peer) noexcept {
    for (Frame& frame : net_->wires[{id_, peer.id}]) frame.notified = true;
  }

  uint64_t stamp() const noexcept { return ++stamps_; }
  bool announces(const PeerBase&, uint64_t) const noexcept { return net_->chance(20); }
  CopyChoice choose_copy(PeerBase& peer, uint64_t, uint64_t, uint64_t) noexcept {
    if ((peer.id % 2 != id_ % 2 && net_->chance(20)) || net_->chance(50)) return {};
    return {net_->chance(50) ? CopyPath::Both : CopyPath::Receiver, 0};
  }
  int read(PeerBase& peer, const iovec* local, size_t local_count, const wire::SourceSegment* remote,
           size_t remote_count, size_t bytes) noexcept {
    return read_front(peer, local, local_count, remote, remote_count, bytes);
  }
  int read_front(PeerBase& peer, const iovec* local, size_t local_count, const wire::SourceSegment* remote,
                 size_t remote_count, size_t bytes) noexcept {
    if (net_->dead[static_cast<size_t>(peer.id)]) return -ESRCH;
    if (net_->chance(net_->unreadable)) return -EPERM;
    std::vector<std::byte> all;
    for (size_t i = 0; i < remote_count; ++i) {
      const auto* from = reinterpret_cast<const std::byte*>(remote[i].address);
      all.insert(all.end(), from, from + remote[i].length);
    }
    if (all.size() < bytes) return -EFAULT;
    size_t done = 0;
    for (size_t i = 0; i < local_count && done < bytes; ++i) {
      const size_t n = std::min(local[i].iov_len, bytes - done);
      std::copy_n(all.data() + done, n, static_cast<std::byte*>(local[i].iov_base));
      done += n;
    }
    return done == bytes ? 0 : -EFAULT;
  }

  // The sender comes late to a meeting, or is met in the middle: it has taken the end and writes it when the Window gets there. Then the receiver is told.
  uint64_t open_meeting(PeerBase&, uint64_t) noexcept {
    if (net_->chance(10)) return 0;
    const uint64_t name = ++net_->last_meeting;
    net_->meetings[name] = {};
    return name;
  }
  CopyState copy(PeerBase& peer, uint64_t name, const iovec* local, size_t local_count,
                 const wire::SourceSegment* remote, size_t remote_count, uint64_t bytes,
                 bool patient) noexcept {
    const auto found = net_->meetings.find(name);
    const bool first = found != net_->meetings.end() && !found->second.begun;
    if (first) {
      found->second.begun = true;
      if (!found->second.seen && net_->chance(50)) found->second.taken = 1 + net_->random() % bytes;
    }
    if (found != net_->meetings.end() && found->second.taken > found->second.written && !found->second.failed)
      return !patient && net_->chance(50) ? CopyState::Later : CopyState::Busy;
    const uint64_t written = found != net_->meetings.end() ? found->second.written : 0;
    net_->meetings.erase(name);
    if (written > 0) ++net_->shortcuts.shared_copies;
    if (written == bytes) return CopyState::Done;
    std::array<iovec, 16> here;
    const size_t count = slice(local, local_count, 0, bytes - written, here.data(), here.size());
    return read_front(peer, here.data(), count, remote, remote_count, bytes - written) == 0
               ? CopyState::Done
               : CopyState::Failed;
  }
  void end_meeting(PeerBase&, uint64_t name) noexcept { net_->meetings.erase(name); }
  int pause_meetings() noexcept { return 0; }
  Assistance assist(PeerBase& peer, uint64_t name, uint64_t bytes, const wire::SourceSegment* to,
                    size_t to_count, const iovec* local, size_t local_count, uint32_t&) noexcept {
    const auto found = net_->meetings.find(name);
    if (found == net_->meetings.end()) return Assistance::Ended;
    const bool early = !found->second.begun;  // before the receiver
    found->second.seen = true;
    if (early && net_->chance(50)) found->second.taken = 1 + net_->random() % bytes;
    if (found->second.taken == 0) return Assistance::Ended;
    if (net_->dead[static_cast<size_t>(peer.id)] || net_->chance(net_->unreadable)) {
      found->second.failed = true;
      return early ? Assistance::Ended : Assistance::Asked;
    }
    std::vector<std::byte> all(bytes);
    if (gather(all.data(), local, local_count, 0, bytes) != bytes) std::abort();
    std::vector<iovec> there;
    for (size_t i = 0; i < to_count; ++i)
      there.push_back({reinterpret_cast<void*>(to[i].address), static_cast<size_t>(to[i].length)});
    const uint64_t begin = bytes - found->second.taken;
    (void)scatter(there.data(), there.size(), begin, all.data() + begin, found->second.taken);
    found->second.written = found->second.taken;
    return early ? Assistance::Ended : Assistance::Asked;
  }

  void expose(const ExposedRegion& region) noexcept { net_->exposed[{id_, region.key}] = region; }
  int conceal(uint64_t key) noexcept {
    net_->exposed.erase({id_, key});
    return 0;
  }
  int conceal_all() noexcept {
    std::erase_if(net_->exposed, [this](const auto& entry) { return entry.first.first == id_; });
    return 0;
  }
  bool reaches(const PeerBase&) const noexcept { return true; }
  // Some are refused in the middle.
  bool access(PeerBase& peer, bool write, const iovec* local, size_t local_count,
              const wire::RmaTarget* targets, size_t target_count, size_t bytes) noexcept {
    size_t done = 0;
    for (size_t i = 0; i < target_count; ++i) {
      const auto found = net_->exposed.find({peer.id, targets[i].key});
      if (found == net_->exposed.end() || net_->dead[static_cast<size_t>(peer.id)] ||
          net_->chance(net_->unreadable))
        return false;
      const ExposedRegion& region = found->second;
      const uint64_t offset = targets[i].address - region.base;
      if (!(write ? region.writable : region.readable) || offset > region.length ||
          targets[i].length > region.length - offset)
        return false;
      auto* at = reinterpret_cast<std::byte*>(region.address + offset);
      if (write) (void)gather(at, local, local_count, done, targets[i].length);
      else (void)scatter(local, local_count, done, at, targets[i].length);
      done += targets[i].length;
    }
    if (done != bytes) std::abort();
    ++net_->shortcuts.accesses;
    if (target_count > 3) ++net_->shortcuts.collected;
    return true;
  }

 private:
  mutable uint64_t stamps_ = 0;
};
static_assert(Link<RichLink> && HasSmallFrames<RichLink> && HasRemoteMemory<RichLink>);

// A rich link that refuses small frames after some of them, as every frame to nobody.
class CreditLink : public RichLink {
 public:
  static constexpr bool small_credit = true;
  static constexpr int credit = 24;

  bool more_room(PeerBase& peer) noexcept {
    if (peer.id < 0 || net_->wires[{id_, peer.id}].size() >= net_->frames_max) return false;
    used_[peer.id] = 0;
    return true;
  }
  SmallSend send_small(PeerBase& peer, const wire::FrameHead& head, const void* bytes) noexcept {
    if (peer.id < 0 || used_[peer.id] == credit) return SmallSend::Refused;
    const SmallSend sent = RichLink::send_small(peer, head, bytes);
    if (sent != SmallSend::Refused) ++used_[peer.id];
    return sent;
  }

 private:
  std::map<int, int> used_;
};
static_assert(has_small_credit<CreditLink> && !has_small_credit<RichLink>);

// A link that knows only later that frames have left its hands: at some polls, and of some of them.
class LateLink : public PlainLink {
 public:
  static constexpr size_t small_bytes_max = 48;

  SmallSend send_small(PeerBase& peer, const wire::FrameHead& head, const void* bytes) noexcept {
    const iovec part{const_cast<void*>(bytes), head.length};
    if (!send(peer, head, {}, &part, 1)) return SmallSend::Refused;
    ++net_->shortcuts.small_frames;
    return SmallSend::Sent;
  }
  uint64_t sent_sequence(const PeerBase& peer) const noexcept { return peer.sent; }
  uint64_t completed_sequence(const PeerBase& peer) const noexcept { return peer.completed; }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    complete_some();
    return PlainLink::poll(handler);
  }

 protected:
  void complete_some() noexcept {
    for (const auto& [id, peer] : peers_)
      if (!net_->chance(net_->delay)) peer->completed += net_->random() % (peer->sent - peer->completed + 1);
  }
};
static_assert(Link<LateLink> && HasSmallFrames<LateLink> && HasSendCompletion<LateLink>);

// A late link whose frames may leave from where their payload lies: they are copied when they complete, and not before.
class ReferringLink : public LateLink {
 public:
  bool send_zero_copy(PeerBase& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
                      const iovec* parts, size_t part_count) noexcept {
    if (net_->chance(30)) return send(peer, head, prefix, parts, part_count);
    auto& wire = net_->wires[{id_, peer.id}];
    if (net_->chance(net_->refusal) || wire.size() >= net_->frames_max) return false;
    if (prefix.size() + total_bytes(parts, part_count) < head.length) std::abort();
    wire.push_back(
        {head, {prefix.begin(), prefix.end()}, false, false, {}, {parts, parts + part_count}, ++peer.sent});
    return true;
  }
  void copy_out(PeerBase& peer) noexcept {
    for (Frame& frame : net_->wires[{id_, peer.id}]) copy(frame);
  }
  void forget(PeerBase& peer) noexcept {
    net_->wires[{id_, peer.id}].clear();
    LateLink::forget(peer);
  }
  // What the engine has not had copied would be lost: it breaks the contract.
  void close() noexcept {
    for (const auto& [id, peer] : peers_)
      for (Frame& frame : net_->wires[{id_, id}]) {
        if (!frame.parts.empty()) std::abort();
        frame.notified = true;
      }
    LateLink::close();
  }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    complete_some();
    for (const auto& [id, peer] : peers_)
      for (Frame& frame : net_->wires[{id_, id}])
        if (!frame.notified && frame.sequence <= peer->completed) {
          copy(frame);
          frame.notified = true;
        }
    return PlainLink::poll(handler);
  }

 private:
  static void copy(Frame& frame) {
    for (const iovec& part : frame.parts) {
      const auto* bytes = static_cast<const std::byte*>(part.iov_base);
      frame.payload.insert(frame.payload.end(), bytes, bytes + part.iov_len);
    }
    frame.parts.clear();
    frame.payload.resize(frame.head.length);
  }
};
static_assert(HasZeroCopyFrames<ReferringLink> && !HasZeroCopyFrames<LateLink>);

// A link whose frames the program reads and writes where they are.
template <class Base>
class WithLoans : public Base {
 public:
  using PeerBase = sim::PeerBase;
  static constexpr size_t in_place_bytes_max = 4000;
  static constexpr size_t ring_entries = 64;
  static constexpr size_t ring_bytes = 1 << 16;
  struct Loan {
    uint64_t number = 0;
    explicit operator bool() const noexcept { return number != 0; }
  };
  struct ReservedBuffer {
    int id = -1;
    const PeerBase* peer = nullptr;
    std::vector<std::byte> bytes;
  };

  template <class Taker, class Handler>
  void poll_for(Taker& taker, Handler& rest) noexcept {
    for (size_t id = 0; id < this->net_->dead.size() && !taker.satisfied(); ++id) {
      const int from = static_cast<int>(id);
      auto& wire = this->net_->wires[{from, this->id_}];
      if (!wire.empty() && wire.front().in_parts) this->drain(from, rest);
      else this->drain(from, taker);
    }
  }
  Loan loan(PeerBase&) noexcept {
    if (this->net_->chance(this->net_->refusal)) return {};
    this->shown_->on_loan = true;
    lent_[++loans_] = std::move(this->shown_->payload);  // where it is
    ++this->net_->shortcuts.loans;
    return {loans_};
  }
  void release(const Loan& loan) noexcept {
    if (lent_.erase(loan.number) != 1) std::abort();  // the engine broke the contract
  }
  ReservedBuffer* reserve(PeerBase& peer, size_t bytes, int& error) noexcept {
    error = EAGAIN;
    if (this->net_->chance(this->net_->refusal)) return nullptr;
    for (const auto& one : reserved_)
      if (one->peer == &peer) std::abort();
    reserved_.push_back(std::make_unique<ReservedBuffer>(ReservedBuffer{peer.id, &peer, {}}));
    reserved_.back()->bytes.resize(bytes + 1);  // so that there is an address
    return reserved_.back().get();
  }
  static std::byte* bytes_of(ReservedBuffer& buffer) noexcept { return buffer.bytes.data(); }
  bool commit(ReservedBuffer& buffer, const wire::FrameHead& head) noexcept {
    const auto found = this->peers_.find(buffer.id);
    const bool there = found != this->peers_.end() && found->second == buffer.peer;
    if (there) {
      buffer.bytes.resize(head.length);
      this->net_->wires[{this->id_, buffer.id}].push_back({head, std::move(buffer.bytes)});
      ++found->second->sent;
      ++this->net_->shortcuts.reserved;
    }
    abandon(buffer);
    return there;
  }
  void abandon(ReservedBuffer& buffer) noexcept {
    std::erase_if(reserved_, [&](const auto& one) { return one.get() == &buffer; });
  }
  RingUse rings(const PeerBase&) const noexcept { return {0, 0, 0, 0, lent_.size()}; }
  void close() noexcept {
    lent_.clear();
    reserved_.clear();
    Base::close();
  }

 private:
  uint64_t loans_ = 0;
  std::map<uint64_t, std::vector<std::byte>> lent_;
  std::vector<std::unique_ptr<ReservedBuffer>> reserved_;
};

// A link that direct linking can look into.
template <class Base>
class WithFastPoll : public Base {
 public:
  using PeerBase = sim::PeerBase;
  struct Seen {
    int from;
  };
  FastPoll fast_poll(Seen& seen) noexcept {
    if (this->net_->chance(this->net_->delay)) return FastPoll::Poll;
    for (size_t id = 0; id < this->net_->dead.size(); ++id) {
      const int from = static_cast<int>(id);
      const auto& wire = this->net_->wires[{from, this->id_}];
      if (wire.empty() && !this->net_->dead[id]) continue;
      if (wire.empty() || !wire.front().notified || wire.front().in_parts) return FastPoll::Poll;
      seen = {from};
      return FastPoll::Frame;
    }
    ++this->net_->shortcuts.fast_nothing;
    return FastPoll::Nothing;
  }
  template <class Take>
  bool take_frame(const Seen& seen, wire::HeadWord pattern, Take&& take) noexcept {
    auto& wire = this->net_->wires[{seen.from, this->id_}];
    const Frame frame = wire.front();  // a copy of its own size: a read beyond it is seen
    const wire::FrameHead& head = frame.head;
    if (wire::head_word(head.kind, head.flags, head.context) != pattern ||
        head.length > this->short_bytes_max)
      return false;
    int error = 0;
    PeerBase* peer = this->connect(address_of(seen.from), error);
    if (!take(*peer, head.a, frame.payload.data(), head.length)) return false;
    wire.pop_front();
    ++this->net_->shortcuts.fast_frames;
    if (this->net_->watcher != nullptr) this->net_->watcher->arrived(seen.from, this->id_, frame);
    return true;
  }
};

// What programs use over shared memory: small frames with credit, short frames, the fast poll, messages in place.
class FastLink : public WithFastPoll<WithLoans<CreditLink>> {};
static_assert(HasFastPoll<FastLink> && HasLoans<FastLink> && HasSmallFrames<FastLink>);
static_assert(!HasFastPoll<CreditLink> && !HasLoans<CreditLink>);

}  // namespace weft::proto::sim
