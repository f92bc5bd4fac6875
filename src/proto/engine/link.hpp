// What the engine asks of a Link: reliable, ordered frames to a peer. A Link states in its type what more it can do.
// Must not know any Link.
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

#include "base/result.hpp"
#include "core/progress.hpp"
#include "proto/setup.hpp"
#include "proto/sleep.hpp"
#include "wire/frame.hpp"

namespace weft::proto {

template <class L>
concept Link = requires(L& link, typename L::PeerBase& peer, const wire::FrameHead& head,
                        std::span<const std::byte> bytes, const iovec* parts, int& error,
                        std::string_view name) {
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
  { link.address() } -> std::same_as<std::span<const std::byte>>;
  { link.connect(bytes, error) } -> std::same_as<typename L::PeerBase*>;
  { link.forget(peer) }
  noexcept;
  { link.send(peer, head, bytes, parts, size_t{}) }
  noexcept->std::same_as<bool>;
  { link.close() }
  noexcept;
};

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

// The sizes above, where they depend on the peer: a link that reaches its peers in more than one way. Its constants are then the largest.
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
template <class L>
concept HasPeerLimits = requires(const L& link, const typename L::PeerBase& peer) {
  { link.limits(peer) }
  noexcept->std::same_as<LinkLimits>;
};
template <class L>
[[gnu::always_inline]] constexpr LinkLimits limits_of(const L& link,
                                                      const typename L::PeerBase& peer) noexcept {
  if constexpr (HasPeerLimits<L>) return link.limits(peer);
  else return limits_of_type<L>();
}

// What became of a small frame.
enum class SmallSend : uint8_t {
  Refused,  // no room, or not without a kernel call: send() may do it
  Sent,     // and the peer sees it by itself
  Unseen,   // sent, but the peer has to be told: call tell()
};

// A frame that fits one slot goes out inlined. Two calls, so that the usual case is a leaf.
template <class L>
concept HasSmallFrames = requires(L& link, typename L::PeerBase& peer, const wire::FrameHead& head,
                                  const void* bytes) {
  { L::small_bytes_max } -> std::convertible_to<size_t>;
  { link.send_small(peer, head, bytes) }
  noexcept->std::same_as<SmallSend>;
  { link.tell(peer) }
  noexcept;
};

// send_small() refuses after a bounded number of frames, until more_room() or send() has looked for new credit; it refuses a PeerBase that nobody
// has connected.
template <class L>
concept HasSmallCredit = HasSmallFrames<L> && requires(L& link, typename L::PeerBase& peer) {
  requires L::small_credit;
  { link.more_room(peer) }
  noexcept->std::same_as<bool>;  // true: send_small() will not refuse the next frame
};

// Peers whose small frames send_small() refuses, because they take more than a leaf function: the engine asks once more on its slow way.
template <class L>
concept HasSlowSmallFrames = HasSmallFrames<L> &&
    requires(L& link, typename L::PeerBase& peer, const wire::FrameHead& head, const void* bytes) {
  { L::slow_small_bytes_max } -> std::convertible_to<size_t>;
  { link.send_small_slow(peer, head, bytes) }
  noexcept->std::same_as<SmallSend>;
};

// The link copies from the peer's memory by itself.
template <class L>
concept HasRemoteRead = requires(L& link, typename L::PeerBase& peer, const iovec* local,
                                 const wire::SourceSegment* remote) {
  { link.can_read(peer) }
  noexcept->std::same_as<bool>;
  { link.read(peer, local, size_t{}, remote, size_t{}, size_t{}) }
  noexcept->std::same_as<int>;
  { link.stamp() }
  noexcept->std::same_as<uint64_t>;
  { link.prefer_read(peer, uint64_t{}, uint64_t{}) }
  noexcept->std::same_as<bool>;
};

// Some peers cannot read our memory, whatever they would like: where a source lies is not for them.
template <class L>
concept HasUnreadablePeers = requires(const L& link, const typename L::PeerBase& peer) {
  { link.may_be_read(peer) }
  noexcept->std::same_as<bool>;
};

// The link has exactly one peer at most, so that there is no address vector: every destination means that peer, and no source has a number.
// connection.hpp has the rest of what such a link is.
template <class L>
concept SolePeer = requires {
  requires L::sole_peer;
};

// Some of what send() took may lie here until the next poll(). The engine sees to it that a program which reads completions comes to a poll, though
// completions are there; for operations without one it asks the link to push, which may send at once.
template <class L>
concept KeepsBack = requires(L& link, typename L::PeerBase& peer) {
  { link.keeps_back() }
  noexcept->std::same_as<bool>;
  { link.push_kept(peer) }
  noexcept;
};

// What send() took may be in our hands still: it waits for room, or for the peer to say that it came. A message that wants a completion has it
// when nothing of it needs us any more: the program may then turn to something else and not call us for long.
// Marks count along what was sent to a peer: taken() is behind all of it, settled() behind what needs nothing of us any more; both only grow.
// expect() before a send(): a completion waits for what that takes, so the peer should be asked to answer soon.
template <class L>
concept SettlesLater = requires(L& link, typename L::PeerBase& peer) {
  { link.taken(peer) }
  noexcept->std::same_as<uint64_t>;
  { link.settled(peer) }
  noexcept->std::same_as<uint64_t>;
  { link.expect(peer) }
  noexcept;
};

// Not everything that is settled has reached the peer: a socket may have it, or it is taken for arrived. proven() is a mark before which all has, at
// most settled(); asked when the peer is lost, and when a message completes.
template <class L>
concept Proves = SettlesLater<L> && requires(L& link, typename L::PeerBase& peer) {
  { link.proven(peer) }
  noexcept->std::same_as<uint64_t>;
};

// Nothing gets through to the peer at present: perhaps nobody is there.
template <class L>
concept GetsStuck = requires(L& link, typename L::PeerBase& peer) {
  { link.is_stuck(peer) }
  noexcept->std::same_as<bool>;
};

// The log has a line, at a bounded rate, about a peer that is cut off for what it sent.
template <class L>
concept WarnsOfMalformed = requires(L& link, typename L::PeerBase& peer, const char* what) {
  { link.warn_of_malformed(peer, what) }
  noexcept;
};

// A handler with shorter ways for small tagged messages: on_plain_tagged(), with data on_plain_tagged_data(). False: nothing has happened,
// on_frame() does it.
template <class H, class P>
concept TakesPlainTagged = requires(H& handler, P& peer, const std::byte* payload) {
  { handler.on_plain_tagged(peer, uint64_t{}, payload, uint32_t{}) }
  noexcept->std::same_as<bool>;
  { handler.on_plain_tagged_data(peer, uint64_t{}, uint64_t{}, payload, uint32_t{}) }
  noexcept->std::same_as<bool>;
};

// Frames lie where the peer reads them. unread(): how many of these it may not have read; asked when the peer is lost.
template <class L>
concept CountsUnread = requires(L& link, typename L::PeerBase& peer) {
  { link.unread(peer) }
  noexcept->std::same_as<uint64_t>;
};

// A frame may leave later from where its payload lies, without a copy.
//   send_in_place()  as send(), and the parts stay as they are until settled() has passed what taken() then is, or the peer is gone or forgotten.
//   keep()           the program has its memory back: what waits is copied.
template <class L>
concept SendsInPlace = SettlesLater<L> &&
    requires(L& link, typename L::PeerBase& peer, const wire::FrameHead& head,
             std::span<const std::byte> bytes, const iovec* parts) {
  { link.send_in_place(peer, head, bytes, parts, size_t{}) }
  noexcept->std::same_as<bool>;
  { link.keep(peer) }
  noexcept;
};

// What send() took may stay in the link until the peer lets it go on. An endpoint that closes polls for a while as long as there is some, and
// has the link send what it can when it may not poll.
template <class L>
concept Collects = requires(L& link) {
  { link.has_collected() }
  noexcept->std::same_as<bool>;
  { link.push_collected() }
  noexcept;
};

// What send() took, or what came, needs calls of poll() though the program has nothing to wait for: a socket had no room, what is not
// acknowledged is sent again, an acknowledgement is due (docs/progress.md).
template <class L>
concept HasBackgroundWork = requires(L& link, core::Signal* signal) {
  { link.has_background_work() }
  noexcept->std::same_as<bool>;
  // Once, when has_background_work() becomes true; null: not.
  { link.notify_background_work(signal) }
  noexcept;
};

// Packets get lost below, so that nothing arrives for sure without such calls: domains have a thread for them at every level of threading.
template <class L>
concept RepeatsPackets = HasBackgroundWork<L> && requires {
  requires L::repeats_packets;
};

// How full the rings between us and a peer are.
struct RingUse {
  size_t out_entries, out_bytes;  // sent, and not known to be consumed
  size_t in_entries, in_bytes;    // waiting
  size_t in_taken;                // held
};

// The program reads and writes frames where the link has them. hold() is called from within on_frame() only: then the frame's bytes stay until
// release(). poll_for() shows frames to `taker` until taker.satisfied(), and what cannot be held to the usual handler. A room that is reserved
// lets no frame to that peer pass which needs as much; it ends with commit() or abandon(), and stays when the peer goes. close() ends all.
template <class L>
concept InPlace = requires(L& link, typename L::PeerBase& peer, const typename L::PeerBase& known,
                           typename L::Held held, typename L::Room& room, const wire::FrameHead& head) {
  { L::in_place_bytes_max } -> std::convertible_to<size_t>;  // longest that reserve() has room for
  { L::ring_entries } -> std::convertible_to<size_t>;
  { L::ring_bytes } -> std::convertible_to<size_t>;
  { link.hold(peer) }
  noexcept->std::same_as<typename L::Held>;
  { link.release(held) }
  noexcept;
  { link.reserve(peer, size_t{}) }
  noexcept->std::same_as<typename L::Room*>;
  { L::bytes_of(room) }
  noexcept->std::same_as<std::byte*>;
  { link.commit(room, head) }
  noexcept->std::same_as<bool>;
  { link.abandon(room) }
  noexcept;
  { link.rings(known) }
  noexcept->std::same_as<RingUse>;
};

// Only some peers are reached so.
template <class L>
concept HasPeersElsewhere = requires(const L& link, const typename L::PeerBase& peer) {
  { link.writes_in_place(peer) }
  noexcept->std::same_as<bool>;
};

// What a fast poll found: a frame, nothing, or that poll() has to be called.
enum class FastPoll : uint8_t { Frame, Nothing, Poll };

// fast_poll() looks where the next frame is most likely to be. After Frame, take_plain(seen, take) offers it to take(peer, tag, payload, length) when
// it is a plain tagged message; false: nothing has happened, and poll() is called. Only direct linking uses fast_poll(); it pays off when inlined.
template <class L>
concept HasFastPoll = requires(L& link, typename L::Seen& seen,
                               bool (*take)(typename L::PeerBase&, uint64_t, const std::byte*, uint32_t)) {
  { link.fast_poll(seen) }
  noexcept->std::same_as<FastPoll>;
  { link.take_plain(seen, take) }
  noexcept->std::same_as<bool>;
};

}  // namespace weft::proto
