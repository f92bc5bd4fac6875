// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the engine asks of a Link: reliable, ordered frames to a peer. What more a link can do is one of the concepts below, which the engine asks
// for with `if constexpr`; docs/engine.md lists them. Links take from LinkBase (link_base.hpp) what they have nothing to add to. Must not know
// any Link.
//
// Rules of the contract:
//   - One thread at a time calls into a link; the link calls back only from poll(), connect() and close().
//   - send() takes the whole frame or nothing; a refused frame is offered again by the engine after a later poll().
//   - poll() calls on_frame() in the order of sending; when that returns false the frame is shown again at a later poll().
//     The payload is valid during the call only.
//   - A peer object is made by Events::make_peer() and stays until Events::peer_lost() or forget().
#pragma once

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/result.hpp"
#include "core/progress.hpp"
#include "core/provider_error.hpp"
#include "proto/engine/link_base.hpp"
#include "proto/engine/remote_access.hpp"
#include "proto/setup.hpp"
#include "proto/sleep.hpp"
#include "wire/frame.hpp"

namespace weft::proto {

// --- what every link has ---

// What a link calls at the least: the engine has it, and more (below, "the handler").
template <class P>
struct LeastHandler {
  // One frame. False: show it again later.
  bool on_frame(P& peer, const wire::FrameHead& head, const std::byte* payload) noexcept;
};

// The link has one peer at most, the other end of a connection, so that there is no address vector: every destination means that peer, and no source
// has a number. Its open() also takes who is told about the connection; connection.hpp has the rest of such links.
template <class L>
concept SolePeer = requires {
  requires L::sole_peer;
};

// Listens at the address `name`; an empty one is chosen. Peers are made from then on.
template <class L>
concept OpensAsLink = requires(L& link, std::string_view name, typename L::Events& events) {
  { link.open(name, events) } -> std::same_as<Result<void>>;
};

template <class L>
concept Link = (SolePeer<L> ||
                OpensAsLink<L>)&&requires(L& link, const L& known, typename L::PeerBase& peer,
                                          typename L::Events& events, const wire::FrameHead& head,
                                          std::span<const std::byte> bytes, const iovec* parts, int& error,
                                          const char* text, LeastHandler<typename L::PeerBase>& handler) {
  { L::frame_bytes_max } -> std::convertible_to<size_t>;  // largest payload of a frame
  {
    L::eager_bytes_max
    } -> std::convertible_to<size_t>;  // largest message that is worth sending without asking
  {
    L::fragmented_eager_bytes_max
    } -> std::convertible_to<size_t>;  // largest message that goes unasked in several frames
  { L::fragment_bytes } -> std::convertible_to<size_t>;  // pieces of such a message
  { L::segment_bytes } -> std::convertible_to<size_t>;   // pieces of a larger one
  { L::address_length } -> std::convertible_to<size_t>;  // bytes of an address, at most 64
  // The events: LinkEvents<PeerBase>.
  { events.make_peer(bytes) } -> std::same_as<typename L::PeerBase*>;
  { events.peer_lost(peer, core::ProviderError::PeerDied) }
  noexcept;
  { link.address() } -> std::same_as<std::span<const std::byte>>;
  // The peer with that address, made when it is new. Null: `error` is a positive errno.
  { link.connect(bytes, error) } -> std::same_as<typename L::PeerBase*>;
  // The owner drops a peer that is not lost.
  { link.forget(peer) }
  noexcept;
  // Payload: `bytes`, then the parts; head.length is their sum. False: no room now.
  { link.send(peer, head, bytes, parts, size_t{}) }
  noexcept->std::same_as<bool>;
  // Shows frames, moves what waits. Returns the frames that were taken.
  { link.poll(handler) }
  noexcept->std::same_as<int>;
  { link.close() }
  noexcept;
  // LinkBase has these.
  { link.set_warning(PacketWarning{}, nullptr) }
  noexcept;
  { link.warn_of_malformed(peer, text) }
  noexcept;
  { known.belongs_here() }
  noexcept->std::same_as<bool>;
  { link.hurry() }
  noexcept;
  { link.unread(peer) }
  noexcept->std::same_as<uint8_t>;
  { link.has_left(peer) }
  noexcept->std::same_as<bool>;
  { known.names_differ() }
  noexcept->std::same_as<bool>;
  { known.is_name_of(bytes, bytes) }
  noexcept->std::same_as<bool>;
};

// The sizes above.
struct LinkLimits {
  size_t eager_bytes_max;
  size_t fragmented_eager_bytes_max;
  size_t fragment_bytes;
  size_t segment_bytes;
};
template <class L>
constexpr LinkLimits limits_of_type() noexcept {
  return {L::eager_bytes_max, L::fragmented_eager_bytes_max, L::fragment_bytes, L::segment_bytes};
}

// --- what a link may have besides: with SolePeer and HasSleep (proto/sleep.hpp) eleven concepts ---

// What became of a small frame.
enum class SmallSend : uint8_t {
  Refused,  // no room, or not without a kernel call: send() may do it
  Sent,     // and the peer sees it by itself
  Unseen,   // sent, but the peer has to be told: call wake_receiver()
};

// A frame that fits one slot goes out inlined. Two calls, so that the usual case is a leaf.
// With small_credit, send_small() refuses after a bounded number of frames until more_room() or send() has looked for new credit, and it refuses
// a PeerBase that nobody has connected; without, more_room() is false.
template <class L>
concept HasSmallFrames = requires(L& link, typename L::PeerBase& peer, const wire::FrameHead& head,
                                  const void* bytes) {
  { L::small_bytes_max } -> std::convertible_to<size_t>;
  { L::small_credit } -> std::convertible_to<bool>;
  { link.send_small(peer, head, bytes) }
  noexcept->std::same_as<SmallSend>;
  { link.wake_receiver(peer) }
  noexcept;
  { link.more_room(peer) }
  noexcept->std::same_as<bool>;  // true: send_small() will not refuse the next frame
};

// The link copies from and to the peer's memory by itself: read() from where a message lies, access() between `local` and exposed regions.
//   expose()   Peers may reach the region from now on.
//   conceal()  No peer is at it any more, nor will be: 0; -FI_EBUSY: one is, after a bounded time.
//   announces()    The peer wants messages of that length announced, though they could go in fragments.
//   choose_copy()  How an announced message that has just been matched is copied. `stamp`: when it was announced, `heard`: when the peer's last segment
//                  came, both by stamp() of the two links.
//   begin_copy()   When the copying of a fragmented message could begin, as CopyChoice::start.
//   copied()       A message is here as a whole, or what fits of it.
//   Both sides copy one message: the receiver opens a meeting, tells the sender where the bytes belong, and copies; the sender may assist.
//   open_meeting()    A name for the sender, until copy() ends it; 0: there is none, and read() is called.
//   copy()            Copies what the sender does not. Busy: the sender still writes and will say so (Met); then copy() is called again, as
//                     before. Later, not said to who is patient: it still writes, copy() is called again soon.
//   end_meeting()     Nobody writes any more, or the peer does not answer for a bounded time.
//   pause_meetings()  The sender takes no more of any message, and no meeting is opened any more. 0: nobody writes; -FI_EBUSY: somebody does, after a bounded time.
//   assist()          At the sender: writes some of the bytes to where they belong, for a bounded time. More: it is called again, with `taken` as it left it
//                     (0 at first), or not; Asked: the receiver wants to be told that it ended.
//   reaches()  access() is expected to work, so operations that are posted one after the other may be put together for it.
//   access()   Moves `bytes`, keys and bounds checked against what the peer exposes. False: it could not, though some bytes may have moved; then a frame
//              asks the peer, who decides. Only while nothing stands before the access. At most access_pieces_max entries in each list.
// LinkBase exposes nothing, reaches nothing and opens no meeting.
template <class L>
concept HasRemoteMemory = requires(L& link, typename L::PeerBase& peer, const iovec* local,
                                   const wire::SourceSegment* remote, const ExposedRegion& region,
                                   const wire::RmaTarget* targets, uint32_t& taken) {
  { link.expose(region) }
  noexcept;
  { link.conceal(uint64_t{}) }
  noexcept->std::same_as<int>;
  { link.conceal_all() }
  noexcept->std::same_as<int>;
  { link.reaches(peer) }
  noexcept->std::same_as<bool>;
  { link.access(peer, bool{}, local, size_t{}, targets, size_t{}, size_t{}) }
  noexcept->std::same_as<bool>;
  { link.announces(peer, uint64_t{}) }
  noexcept->std::same_as<bool>;
  { link.choose_copy(peer, uint64_t{}, uint64_t{}, uint64_t{}) }
  noexcept->std::same_as<CopyChoice>;
  { link.begin_copy(peer, uint64_t{}) }
  noexcept->std::same_as<uint64_t>;
  { link.copied(peer, CopyPath{}, uint64_t{}, uint64_t{}) }
  noexcept;
  { link.open_meeting(peer, uint64_t{}) }
  noexcept->std::same_as<uint64_t>;
  { link.copy(peer, uint64_t{}, local, size_t{}, remote, size_t{}, uint64_t{}, bool{}) }
  noexcept->std::same_as<CopyState>;
  { link.end_meeting(peer, uint64_t{}) }
  noexcept;
  { link.pause_meetings() }
  noexcept->std::same_as<int>;
  { link.assist(peer, uint64_t{}, uint64_t{}, remote, size_t{}, local, size_t{}, taken) }
  noexcept->std::same_as<Assistance>;
  { link.read(peer, local, size_t{}, remote, size_t{}, size_t{}) }
  noexcept->std::same_as<int>;
  { link.stamp() }
  noexcept->std::same_as<uint64_t>;
};

// What send() took may depend on this endpoint for some time: it waits for room in a socket, or for an acknowledgement. A message that wants a
// completion has it once all of it is complete. Sequences count along what was sent to one peer, in any unit, and only grow.
template <class L>
concept HasSendCompletion = requires(L& link, typename L::PeerBase& peer) {
  // Behind all that send() took.
  { link.sent_sequence(peer) }
  noexcept->std::same_as<uint64_t>;
  // Behind what does not depend on this endpoint any more.
  { link.completed_sequence(peer) }
  noexcept->std::same_as<uint64_t>;
  // Behind what has reached the peer for sure, at most completed_sequence(). Asked when the peer is lost. UINT64_MAX: the link does not tell it
  // from completed.
  { link.delivered_sequence(peer) }
  noexcept->std::same_as<uint64_t>;
  // Nothing gets through to the peer at present: perhaps nobody is there.
  { link.is_stuck(peer) }
  noexcept->std::same_as<bool>;
  // Before a send(): a completion waits for what that takes, so the peer should acknowledge it soon.
  { link.request_ack(peer) }
  noexcept;
};

// Zero-copy send: a frame leaves from where its payload lies. As send(), and the parts stay as they are until completed_sequence() has passed what
// sent_sequence() then is, or the peer is gone or forgotten. copy_out(): the program has its memory back, what waits is copied.
template <class L>
concept HasZeroCopyFrames = HasSendCompletion<L> &&
    requires(L& link, typename L::PeerBase& peer, const wire::FrameHead& head,
             std::span<const std::byte> bytes, const iovec* parts) {
  { link.send_zero_copy(peer, head, bytes, parts, size_t{}) }
  noexcept->std::same_as<bool>;
  { link.copy_out(peer) }
  noexcept;
};

// The link coalesces: some of what send() took stays until the next poll(), or until the peer gives credit. fi_cq_read therefore polls even when the
// queue holds completions; for operations without one the engine pushes. An endpoint that closes polls for a while as long as has_uncredited().
template <class L>
concept Coalesces = requires(L& link, typename L::PeerBase& peer) {
  // Something waits for the next poll().
  { link.has_deferred_sends() }
  noexcept->std::same_as<bool>;
  // May send what waits for that peer, without a poll.
  { link.push(peer) }
  noexcept;
  // Something waits for the peer.
  { link.has_uncredited() }
  noexcept->std::same_as<bool>;
  // Sends what it can, to all, when poll() may not be called.
  { link.push_all() }
  noexcept;
};

// What send() took, or what came, needs calls of poll() though the program has nothing to wait for: a socket had no room, what is not
// acknowledged is sent again, an acknowledgement is due (docs/progress.md). With repeats_packets, nothing arrives for sure without such calls:
// domains have a thread for them at every level of threading.
template <class L>
concept HasBackgroundWork = requires(L& link, core::Signal* signal) {
  { L::repeats_packets } -> std::convertible_to<bool>;
  { link.has_background_work() }
  noexcept->std::same_as<bool>;
  // Once, when has_background_work() becomes true; null: not.
  { link.notify_background_work(signal) }
  noexcept;
};

// How full the rings between us and a peer are.
struct RingUse {
  size_t out_entries, out_bytes;  // sent, and not known to be consumed
  size_t in_entries, in_bytes;    // waiting
  size_t in_taken;                // on loan
};

// What poll_for() shows frames to.
template <class P>
struct LeastTaker : LeastHandler<P> {
  bool satisfied() const noexcept;
};

// Loaned receive and reserved send: the program reads and writes frames where the link has them.
//   loan()      From within on_frame() only: the frame's bytes stay until release(). A Loan that is false: no memory.
//   poll_for()  Shows frames to `taker` until taker.satisfied(), and what cannot be lent to `rest`.
//   reserve()   A buffer for a frame of so many bytes. It lets no frame to that peer pass which needs as much, ends with commit() or abandon(), and
//               stays when the peer goes. Null: `error` is EAGAIN, or EOPNOTSUPP for a peer that is not reached so.
//   commit()    Sends the frame, head.length bytes of which lie there. False: the peer has gone.
// close() ends all.
template <class L>
concept HasLoans = requires(L& link, typename L::PeerBase& peer, const typename L::PeerBase& known,
                            const typename L::Loan& loan, typename L::ReservedBuffer& buffer,
                            const wire::FrameHead& head, int& error, LeastTaker<typename L::PeerBase>& taker,
                            LeastHandler<typename L::PeerBase>& rest) {
  { L::in_place_bytes_max } -> std::convertible_to<size_t>;  // longest that reserve() has room for
  { L::ring_entries } -> std::convertible_to<size_t>;
  { L::ring_bytes } -> std::convertible_to<size_t>;
  { link.poll_for(taker, rest) }
  noexcept;
  { link.loan(peer) }
  noexcept->std::same_as<typename L::Loan>;
  { static_cast<bool>(loan) }
  noexcept;
  { link.release(loan) }
  noexcept;
  { link.reserve(peer, size_t{}, error) }
  noexcept->std::same_as<typename L::ReservedBuffer*>;
  { L::bytes_of(buffer) }
  noexcept->std::same_as<std::byte*>;
  { link.commit(buffer, head) }
  noexcept->std::same_as<bool>;
  { link.abandon(buffer) }
  noexcept;
  { link.rings(known) }
  noexcept->std::same_as<RingUse>;
  { link.copy_use(&known, uint64_t{}) }
  noexcept->std::same_as<CopyUse>;
};

// What a fast poll found: a frame, nothing, or that poll() has to be called.
enum class FastPoll : uint8_t { Frame, Nothing, Poll };

// fast_poll() looks where the next frame is most likely to be. After Frame, take_frame(seen, pattern, take) offers it to take(peer, a, payload,
// length) when its head matches the pattern; false: nothing has happened, and poll() is called. Only direct linking uses fast_poll(); it pays off
// when inlined.
template <class L>
concept HasFastPoll = requires(L& link, typename L::Seen& seen, wire::HeadWord pattern,
                               bool (*take)(typename L::PeerBase&, uint64_t, const std::byte*, uint32_t)) {
  { link.fast_poll(seen) }
  noexcept->std::same_as<FastPoll>;
  { link.take_frame(seen, pattern, take) }
  noexcept->std::same_as<bool>;
};

// --- a link made of links ---

template <class... S>
struct SideTypes {};

// Compiled against, never called.
struct SideVisitor {
  void operator()(auto&) const noexcept {}
  void operator()(auto&, auto&) const noexcept {}
};

// The link reaches each peer through one of several links, its sides. What a peer's side can do is asked of that side: the link itself has only
// the abilities that it states. send(), as visit_to_send(), may expect an answer from that side soon; visit() and each_side() change nothing.
//   Sides           SideTypes<...>: their types
//   SmallSide       the one whose peers send_small() of the link itself serves; it refuses all others
//   visit(peer, f)  calls f(side, peer), both of the side's own types, and returns what that returns
//   each_side(f)    calls f(side) for all that are open
template <class L>
concept HasSides = requires(L& link, const L& known, typename L::PeerBase& peer,
                            const typename L::PeerBase& known_peer, SideVisitor visitor) {
  typename L::Sides;
  typename L::SmallSide;
  link.visit(peer, visitor);
  known.visit(known_peer, visitor);
  link.visit_to_send(peer, visitor);
  link.each_side(visitor);
  known.each_side(visitor);
};

template <class L>
using Bare = std::remove_cvref_t<L>;

// The same for every link: one that has no sides is its own.
template <class L, class P, class F>
[[gnu::always_inline]] constexpr decltype(auto) visit_side(L& link, P& peer, F&& f) {
  if constexpr (HasSides<Bare<L>>)
    return link.visit(
        peer, [&f](auto& side, auto& part) __attribute__((always_inline))->decltype(auto) {
          return visit_side(side, part, f);
        });
  else return f(link, peer);
}
template <class L, class P, class F>
[[gnu::always_inline]] constexpr decltype(auto) visit_side_to_send(L& link, P& peer, F&& f) {
  if constexpr (HasSides<Bare<L>>)
    return link.visit_to_send(
        peer, [&f](auto& side, auto& part) __attribute__((always_inline))->decltype(auto) {
          return visit_side_to_send(side, part, f);
        });
  else return f(link, peer);
}
template <class L, class F>
[[gnu::always_inline]] constexpr void visit_all_sides(L& link, F&& f) {
  if constexpr (HasSides<Bare<L>>) link.each_side([&f](auto& side) { visit_all_sides(side, f); });
  else f(link);
}

namespace detail {
template <class L>
struct SideQuestions {
  template <class Asks>
  static consteval bool any(Asks asks) {
    return asks(std::type_identity<L>{});
  }
  using Small = L;
};
template <HasSides L>
struct SideQuestions<L> {
  template <class Asks, class... S>
  static consteval bool any_of(Asks asks, SideTypes<S...>) {
    return (SideQuestions<S>::any(asks) || ...);
  }
  template <class Asks>
  static consteval bool any(Asks asks) {
    return any_of(asks, typename L::Sides{});
  }
  using Small = typename SideQuestions<typename L::SmallSide>::Small;
};
}  // namespace detail

// The link that a small frame goes to on the shortest way.
template <class L>
using SmallSide = typename detail::SideQuestions<L>::Small;
template <class L>
inline constexpr bool has_small_credit = [] {
  if constexpr (HasSmallFrames<L>) return bool{L::small_credit};
  else return false;
}();
// Whether some peers have it.
template <class L>
inline constexpr bool has_send_completion = detail::SideQuestions<L>::any([]<class S>(std::type_identity<S>) {
  return HasSendCompletion<S>;
});
template <class L>
inline constexpr bool may_have_background_work =
    detail::SideQuestions<L>::any([]<class S>(std::type_identity<S>) { return HasBackgroundWork<S>; });
template <class L>
inline constexpr bool repeats_packets = detail::SideQuestions<L>::any([]<class S>(std::type_identity<S>) {
  if constexpr (HasBackgroundWork<S>) return bool{S::repeats_packets};
  else return false;
});

// --- the handler: what a link may call besides on_frame(). The engine has all of it ---

// Where bytes of a frame belong that is still arriving.
struct Landing {
  static constexpr size_t pieces_max = 8;
  iovec pieces[pieces_max];
  size_t count = 0;
  size_t bytes = 0;  // in all pieces
};

enum class Land : uint8_t {
  Whole,  // the frame cannot be taken in parts: collect it
  Here,   // its first part has been taken
  Later,  // no room now: show it again
};

// A handler (the engine) that takes large frames in parts, so that a link puts the payload straight where it belongs:
//   land(peer, head, payload, arrived, out)  The frame has begun to arrive: its head and `arrived` bytes of the payload. With Here these bytes have
//                                            been used, `head` has become what is left of the frame, and `out` says where its next bytes
//                                            belong; with no pieces they belong nowhere and are only to be counted.
//   landed(peer, head, bytes)                So many bytes more are where the last answer wanted them; `head` shrinks. It is over at length 0.
//   land(peer, head, nullptr, 0, out)        Where the next ones belong (always Here). The answer holds until the link is left, not longer.
template <class H, class P>
concept TakesParts = requires(H& handler, P& peer, wire::FrameHead& head, const std::byte* payload,
                              Landing& out) {
  { handler.land(peer, head, payload, size_t{}, out) }
  noexcept->std::same_as<Land>;
  { handler.landed(peer, head, size_t{}) }
  noexcept;
};

// The handler knows whether it waits for bytes of a peer: the rest of a message, an answer.
template <class H, class P>
concept HasAwaited = requires(const H& handler, const P& peer) {
  { handler.awaits(peer) }
  noexcept->std::same_as<bool>;
};

// The handler has shorter ways for frames whose heads are one of two constants, which a link compares as words: on_short_frame() for
// short_head, which carries no b; on_short_frame_with_b() for short_head_with_b. False: nothing has happened, on_frame() does it.
template <class H, class P>
concept TakesShortFrames = requires(H& handler, P& peer, const std::byte* payload) {
  { H::short_head } -> std::convertible_to<wire::HeadWord>;
  { H::short_head_with_b } -> std::convertible_to<wire::HeadWord>;
  { handler.on_short_frame(peer, uint64_t{}, payload, uint32_t{}) }
  noexcept->std::same_as<bool>;
  { handler.on_short_frame_with_b(peer, uint64_t{}, uint64_t{}, payload, uint32_t{}) }
  noexcept->std::same_as<bool>;
};

}  // namespace weft::proto
