// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// AnyLink: what EngineCore asks of the link, as virtual calls, so that it is compiled once. AnyLinkOf<L> implements it for each link by the concepts
// of link.hpp; an ability that the side of a peer lacks has the answer of LinkBase. Small frames and polling are not here: Engine<L> calls the
// link for them directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/engine/context.hpp"
#include "proto/engine/link.hpp"
#include "proto/engine/op.hpp"

namespace weft::proto {

// A peer: the part of the link, and the engine's.
template <Link L>
struct PeerOf : L::PeerBase, PeerState {};

class AnyLink {
 public:
  // --- frames; false: no room now ---
  virtual bool send(PeerState& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
                    const iovec* parts, size_t part_count) noexcept = 0;
  // A frame of a message. Of one that is complete when the link is done with it (`waits`), the payload may stay where it is until then.
  virtual bool send_payload(PeerState& peer, bool waits, bool last, uint64_t flags,
                            const wire::FrameHead& head, std::span<const std::byte> prefix,
                            const iovec* parts, size_t part_count) noexcept = 0;
  // A segment of a rendezvous, or of what a peer reads.
  virtual bool send_segment(PeerState& peer, Op& op, const wire::FrameHead& head, const iovec* parts,
                            size_t part_count) noexcept = 0;
  virtual LinkLimits limits(const PeerState& peer) const noexcept = 0;

  // --- peers ---
  virtual PeerState* connect(std::span<const std::byte> address, int& error) = 0;
  virtual void forget(PeerState& peer) noexcept = 0;
  virtual bool has_left(const PeerState& peer) const noexcept = 0;
  virtual void warn_of_malformed(PeerState& peer, const char* what) noexcept = 0;
  virtual bool names_differ() const noexcept = 0;
  virtual bool is_name_of(std::span<const std::byte> name,
                          std::span<const std::byte> address) const noexcept = 0;
  virtual bool belongs_here() const noexcept = 0;
  // The kinds of messages that were injected, or had completed, and may not have reached the peer (Unread).
  virtual uint8_t unread(PeerState& peer) const noexcept = 0;

  // --- HasSendCompletion, HasZeroCopyFrames ---
  virtual uint64_t sent_sequence(PeerState& peer) const noexcept = 0;
  virtual uint64_t completed_sequence(PeerState& peer) const noexcept = 0;
  virtual void request_ack(PeerState& peer) noexcept = 0;
  virtual void copy_out(PeerState& peer) noexcept = 0;

  // --- HasRemoteMemory: regions ---
  virtual bool reaches_memory() const noexcept = 0;  // of some peers
  virtual void expose(const ExposedRegion& region) noexcept = 0;
  virtual int conceal(uint64_t key) noexcept = 0;
  virtual int conceal_all() noexcept = 0;
  virtual bool reaches(const PeerState& peer) const noexcept = 0;
  virtual bool access(PeerState& peer, bool write, const iovec* local, size_t local_count,
                      const wire::RmaTarget* targets, size_t target_count, size_t bytes) noexcept = 0;

  // --- HasRemoteMemory: messages ---
  virtual bool reads_memory(const PeerState& peer) const noexcept = 0;  // that peer's
  virtual bool announces(const PeerState& peer, uint64_t length) const noexcept = 0;
  virtual uint64_t stamp(const PeerState& peer) const noexcept = 0;  // 0: it is not measured
  virtual CopyChoice choose_copy(PeerState& peer, uint64_t length, uint64_t stamp) noexcept = 0;
  virtual uint64_t begin_copy(PeerState& peer, uint64_t stamp) noexcept = 0;
  virtual void copied(PeerState& peer, CopyPath path, uint64_t bytes, uint64_t start) noexcept = 0;
  virtual void fetched_by(PeerState& peer, uint64_t bytes) noexcept = 0;
  virtual uint64_t open_meeting(PeerState& peer, uint64_t length) noexcept = 0;
  virtual CopyState copy(PeerState& peer, uint64_t meeting, const iovec* local, size_t local_count,
                         const wire::SourceSegment* source, size_t source_count, uint64_t length,
                         bool patient) noexcept = 0;
  virtual bool read(PeerState& peer, const iovec* local, size_t local_count,
                    const wire::SourceSegment* source, size_t source_count, size_t bytes) noexcept = 0;
  virtual void end_meeting(PeerState& peer, uint64_t meeting) noexcept = 0;
  virtual int pause_meetings() noexcept = 0;
  virtual Assistance assist(PeerState& peer, uint64_t meeting, uint64_t length, const wire::SourceSegment* to,
                            size_t to_count, const iovec* from, size_t from_count,
                            uint32_t& taken) noexcept = 0;

 protected:
  ~AnyLink() = default;
};

template <Link L>
class AnyLinkOf final : public AnyLink {
 public:
  explicit AnyLinkOf(L& link) noexcept : link_(link) {}

  bool send(PeerState& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
            const iovec* parts, size_t part_count) noexcept override {
    return link_.send(full(peer), head, prefix, parts, part_count);
  }
  bool send_payload(PeerState& peer, [[maybe_unused]] bool waits, [[maybe_unused]] bool last,
                    [[maybe_unused]] uint64_t flags, const wire::FrameHead& head,
                    std::span<const std::byte> prefix, const iovec* parts,
                    size_t part_count) noexcept override {
    if constexpr (has_send_completion<L>) {
      if (waits && last) request_ack(peer);
      if (waits && (flags & FI_INJECT) == 0)
        return visit_side_to_send(link_, full(peer), [&]<class S>(S& side, auto& part) {
          if constexpr (HasZeroCopyFrames<S>)
            return side.send_zero_copy(part, head, prefix, parts, part_count);
          else return side.send(part, head, prefix, parts, part_count);
        });
    }
    return link_.send(full(peer), head, prefix, parts, part_count);
  }
  // The source of a message or a write stays until Done, so its segments may leave from there. What a peer reads is released before that.
  bool send_segment(PeerState& peer, Op& op, const wire::FrameHead& head, const iovec* parts,
                    size_t part_count) noexcept override {
    return visit_side_to_send(link_, full(peer), [&]<class S>(S& side, auto& part) {
      if constexpr (HasZeroCopyFrames<S>) {
        if (op.kind != OpKind::Outbound) {
          if (!side.send_zero_copy(part, head, {}, parts, part_count)) return false;
          op.zero_copy_sequence = side.sent_sequence(part);
          return true;
        }
      }
      return side.send(part, head, {}, parts, part_count);
    });
  }
  [[gnu::always_inline]] LinkLimits limits(const PeerState& peer) const noexcept override {
    return visit_side(link_, full(peer), []<class S>(S& side, auto& part) {
      if constexpr (Bare<S>::limits_by_peer) return side.limits(part);
      else return limits_of_type<Bare<S>>();
    });
  }

  PeerState* connect(std::span<const std::byte> address, int& error) override {
    return static_cast<PeerOf<L>*>(link_.connect(address, error));
  }
  void forget(PeerState& peer) noexcept override { link_.forget(full(peer)); }
  bool has_left(const PeerState& peer) const noexcept override {
    return visit_side(link_, full(peer), [](auto& side, auto& part) { return side.has_left(part); });
  }
  void warn_of_malformed(PeerState& peer, const char* what) noexcept override {
    link_.warn_of_malformed(full(peer), what);
  }
  bool names_differ() const noexcept override { return known().names_differ(); }
  bool is_name_of(std::span<const std::byte> name,
                  std::span<const std::byte> address) const noexcept override {
    return known().is_name_of(name, address);
  }
  bool belongs_here() const noexcept override { return known().belongs_here(); }
  uint8_t unread(PeerState& peer) const noexcept override {
    uint8_t kinds = 0;
    visit_side(link_, full(peer), [&]<class S>(S& side, auto& part) {
      if constexpr (HasSendCompletion<S>)
        if (peer.quiet > side.delivered_sequence(part)) kinds = unread_some | peer.quiet_kinds;
      kinds |= side.unread(part);
    });
    return kinds;
  }

  uint64_t sent_sequence(PeerState& peer) const noexcept override {
    return visit_side(link_, full(peer), []<class S>(S& side, auto& part) -> uint64_t {
      if constexpr (HasSendCompletion<S>) return side.sent_sequence(part);
      else return 0;
    });
  }
  uint64_t completed_sequence(PeerState& peer) const noexcept override {
    return visit_side(link_, full(peer), []<class S>(S& side, auto& part) -> uint64_t {
      if constexpr (HasSendCompletion<S>) return side.completed_sequence(part);
      else return 0;
    });
  }
  void request_ack(PeerState& peer) noexcept override {
    visit_side(link_, full(peer), []<class S>(S& side, auto& part) {
      if constexpr (HasSendCompletion<S>) side.request_ack(part);
    });
  }
  void copy_out(PeerState& peer) noexcept override {
    visit_side(link_, full(peer), []<class S>(S& side, auto& part) {
      if constexpr (HasZeroCopyFrames<S>) side.copy_out(part);
    });
  }

  bool reaches_memory() const noexcept override {
    bool any = false;
    visit_all_sides(link_, [&]<class S>(S&) { any = any || HasRemoteMemory<S>; });
    return any;
  }
  void expose(const ExposedRegion& region) noexcept override {
    visit_all_sides(link_, [&]<class S>(S& side) {
      if constexpr (HasRemoteMemory<S>) side.expose(region);
    });
  }
  int conceal(uint64_t key) noexcept override {
    return of_all([key](auto& side) { return side.conceal(key); });
  }
  int conceal_all() noexcept override {
    return of_all([](auto& side) { return side.conceal_all(); });
  }
  int pause_meetings() noexcept override {
    return of_all([](auto& side) { return side.pause_meetings(); });
  }
  bool reaches(const PeerState& peer) const noexcept override {
    return ask(peer, false, [](auto& side, auto& part) { return side.reaches(part); });
  }
  bool access(PeerState& peer, bool write, const iovec* local, size_t local_count,
              const wire::RmaTarget* targets, size_t target_count, size_t bytes) noexcept override {
    return ask(peer, false, [&](auto& side, auto& part) {
      return side.access(part, write, local, local_count, targets, target_count, bytes);
    });
  }
  bool reads_memory(const PeerState& peer) const noexcept override {
    return ask(peer, false, [](auto&, auto&) { return true; });
  }
  bool announces(const PeerState& peer, uint64_t length) const noexcept override {
    return ask(peer, false, [length](auto& side, auto& part) { return side.announces(part, length); });
  }
  uint64_t stamp(const PeerState& peer) const noexcept override {
    return ask(peer, uint64_t{0}, [](auto& side, auto&) { return side.stamp(); });
  }
  CopyChoice choose_copy(PeerState& peer, uint64_t length, uint64_t stamp) noexcept override {
    return ask(peer, CopyChoice{},
               [&](auto& side, auto& part) { return side.choose_copy(part, length, stamp, peer.heard); });
  }
  uint64_t begin_copy(PeerState& peer, uint64_t stamp) noexcept override {
    return ask(peer, uint64_t{0}, [stamp](auto& side, auto& part) { return side.begin_copy(part, stamp); });
  }
  void copied(PeerState& peer, CopyPath path, uint64_t bytes, uint64_t start) noexcept override {
    visit_side(link_, full(peer), [&]<class S>(S& side, auto& part) {
      if constexpr (HasRemoteMemory<S>) side.copied(part, path, bytes, start);
    });
  }
  void fetched_by(PeerState& peer, uint64_t bytes) noexcept override {
    visit_side(link_, full(peer), [bytes](auto& side, auto& part) { side.fetched_by(part, bytes); });
  }
  uint64_t open_meeting(PeerState& peer, uint64_t length) noexcept override {
    return ask(peer, uint64_t{0},
               [length](auto& side, auto& part) { return side.open_meeting(part, length); });
  }
  CopyState copy(PeerState& peer, uint64_t meeting, const iovec* local, size_t local_count,
                 const wire::SourceSegment* source, size_t source_count, uint64_t length,
                 bool patient) noexcept override {
    return ask(peer, CopyState::Failed, [&](auto& side, auto& part) {
      return side.copy(part, meeting, local, local_count, source, source_count, length, patient);
    });
  }
  bool read(PeerState& peer, const iovec* local, size_t local_count, const wire::SourceSegment* source,
            size_t source_count, size_t bytes) noexcept override {
    return ask(peer, false, [&](auto& side, auto& part) {
      return side.read(part, local, local_count, source, source_count, bytes) == 0;
    });
  }
  void end_meeting(PeerState& peer, uint64_t meeting) noexcept override {
    visit_side(link_, full(peer), [meeting]<class S>(S& side, auto& part) {
      if constexpr (HasRemoteMemory<S>) side.end_meeting(part, meeting);
    });
  }
  Assistance assist(PeerState& peer, uint64_t meeting, uint64_t length, const wire::SourceSegment* to,
                    size_t to_count, const iovec* from, size_t from_count,
                    uint32_t& taken) noexcept override {
    return ask(peer, Assistance::Ended, [&](auto& side, auto& part) {
      return side.assist(part, meeting, length, to, to_count, from, from_count, taken);
    });
  }

 private:
  static PeerOf<L>& full(PeerState& peer) noexcept { return static_cast<PeerOf<L>&>(peer); }
  static const PeerOf<L>& full(const PeerState& peer) noexcept { return static_cast<const PeerOf<L>&>(peer); }
  const L& known() const noexcept { return link_; }
  // Of the peer's side, which has HasRemoteMemory; else `otherwise`.
  template <class T, class P, class Question>
  T ask(P& peer, T otherwise, Question&& question) const noexcept {
    return visit_side(link_, full(peer), [&]<class S>(S& side, auto& part) -> T {
      if constexpr (HasRemoteMemory<Bare<S>>) return question(side, part);
      else return otherwise;
    });
  }
  // The last error of a side that has HasRemoteMemory, or 0.
  template <class Question>
  int of_all(Question&& question) const noexcept {
    int status = 0;
    visit_all_sides(link_, [&]<class S>(S& side) {
      if constexpr (HasRemoteMemory<S>)
        if (const int busy = question(side); busy != 0) status = busy;
    });
    return status;
  }

  L& link_;
};

}  // namespace weft::proto
