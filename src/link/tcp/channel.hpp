// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Channel: one non-blocking TCP socket that carries frames (docs/wire/stream.md). What RDM and connected endpoints have in common; must not
// know who is meant to be reached, nor when to try again.
//
// Life: connect() or adopt(), send_hello(); advance() until theirs() is there; the side that was called answers with a Welcome or a Refusal, and both
// go on with open(). Then send(), flush() and receive(). Whatever goes wrong ends in Failed with error() and, for a refusal, refusal().
//
// Sending: the first frames since the last flush(), which the owner calls in every poll, are written at once; what follows before the next
// flush() is collected and goes in one write. Large frames whose payload may stay where it is (send_in_place()) are collected by reference, so
// that several leave in one write. Bounds: collected_bytes_max of small frames, gathered_bytes of payload that is referred to and one frame more,
// and the rest of at most one large frame that the socket took in part.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/assert.hpp"
#include "link/tcp/handshake.hpp"
#include "os/fd.hpp"
#include "os/origin.hpp"
#include "os/poll_set.hpp"
#include "os/socket_address.hpp"
#include "proto/stream/coalescer.hpp"
#include "proto/stream/outbox.hpp"
#include "proto/stream/parser.hpp"
#include "wire/frame.hpp"

namespace weft::link::tcp {

// The stream's own frame: its sender closes in good order (no payload). All other kinds are the engine's.
inline constexpr auto frame_bye = static_cast<wire::FrameKind>(0);

class Channel {
 public:
  enum class State : uint8_t { Closed, Connecting, Handshaking, Open, Failed };
  static constexpr size_t collected_bytes_max = size_t{1} << 17;  // small frames that wait
  static constexpr size_t flush_bytes = size_t{1} << 14;          // so many are worth a write
  static constexpr size_t small_frame_max = 4096;                 // larger frames are not copied
  static constexpr size_t gathered_bytes = size_t{1} << 20;       // so many of large frames are worth a write
  static constexpr size_t receive_bytes = size_t{1} << 15;        // a good size of a buffer for receive()
  static constexpr size_t parts_max = 16;                         // of a frame

  explicit Channel(size_t frame_bytes_max) noexcept
      : out_(collected_bytes_max + small_frame_max + frame_bytes_max + handshake_bytes_max),
        in_(frame_bytes_max) {}
  Channel(Channel&&) noexcept = default;
  Channel& operator=(Channel&&) noexcept = default;

  // --- connecting ---
  // Starts; `from` (no address: the kernel's choice) is what the socket is bound to, `dscp` marks its packets. 0 or a positive errno, then Failed.
  int connect(const os::SocketAddress& to, const os::SocketAddress& from, uint8_t dscp = 0) noexcept;
  void adopt(os::Fd accepted) noexcept;  // then Handshaking
  // Sends a handshake (any type). It waits until the connection is there.
  void send_hello(const Handshake& handshake) noexcept;
  // Goes on with connecting and the handshake as far as possible without waiting. Returns the state; Handshaking with theirs() not null: the handshake of
  // the other side is there. What is no handshake of this version is refused, and the channel fails (EPROTO).
  State advance() noexcept;
  const Handshake* theirs() const noexcept {
    return handshake_ != nullptr && handshake_->complete ? &handshake_->handshake : nullptr;
  }
  void open() noexcept;  // the handshake is over: frames
  // Says no, in words or with the program's data, and fails with ECONNREFUSED.
  void refuse(const Handshake& own, RefusalReason reason) noexcept;

  // --- open ---
  // Prefix and parts are the payload, head.length bytes. False: no room now, or not open; nothing was sent.
  bool send(const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
            size_t part_count) noexcept {
    if (state_ != State::Open) [[unlikely]]
      return send_early(head, prefix, parts, part_count);
    if (coalescer_.has_lone() && out_.empty()) {
      coalescer_.take_lone();
      return head.length <= small_frame_max ? write_small(head, prefix, parts, part_count)
                                            : write_large(head, prefix, parts, part_count, false);
    }
    if (head.length > small_frame_max) return write_large(head, prefix, parts, part_count, false);
    if (out_.own_size() > collected_bytes_max || !out_.put(head, prefix, parts, part_count)) return false;
    coalescer_.count();
    if (out_.own_size() >= flush_bytes && !full_) (void)write_collected();
    return true;
  }
  // The same, and the parts stay as they are until written() has passed what taken() then is, or keep(), fail() or close() was called.
  bool send_in_place(const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
                     size_t part_count) noexcept;
  // Copies what waits by reference: the program has its memory back. Fails the channel when there is none for it.
  void keep() noexcept;
  // Something waits that flush() or advance() would write.
  bool unflushed() const noexcept { return out_.size() > written_; }
  // Bytes of the program's that wait.
  size_t referred() const noexcept { return out_.referred(); }
  // Bytes that were given to the socket, and those together with what waits for it, or was lost when it broke.
  uint64_t written() const noexcept { return gone_; }
  uint64_t arrived() const noexcept { return arrived_; }  // bytes
  uint64_t frames_in() const noexcept { return in_.frames(); }
  uint64_t taken() const noexcept {
    WEFT_ASSERT(written_ <= out_.size());
    return gone_ + (out_.size() - written_) + broken_;
  }
  // A fresh channel after one that had written so much: marks on that one keep their meaning.
  void count_from(uint64_t bytes) noexcept {
    WEFT_ASSERT(gone_ == 0 && arrived_ == 0);
    gone_ = first_ = bytes;
  }
  // What the other machine has, of what written() counts; no more than was there before when it threw something away. While there is a socket.
  uint64_t delivered() const noexcept;
  // The socket took less than it was given.
  bool full() const noexcept { return full_; }
  // Writes what was collected, and lets the next frame go at once. False: something is left.
  bool flush() noexcept {
    coalescer_.next_poll();
    if (!out_.empty()) return write_collected();
    full_ = false;
    return true;
  }
  // Reads what has come, bounded in one call, and hands frames to the handler (on_frame, and land, landed if it has them). `buffer` is
  // scratch. Returns how many frames were taken.
  template <class Handler, class Peer>
  int receive(Handler& handler, Peer& peer, std::span<std::byte> buffer) noexcept;
  // Says that this side closes in good order.
  void say_bye() noexcept;

  // --- frames that go with the handshake, before the answer ---
  // For an owner that is about to leave and cannot wait: send() takes small frames early. The other side reads them when it says Welcome.
  void allow_early() noexcept { early_ = true; }
  // Frames that were sent early and are not known to be wanted, as they stand in the stream: for another connection to the same peer.
  std::span<const std::byte> early_bytes() const noexcept {
    return state_ == State::Open || out_.own_size() < handshake_bytes_
               ? std::span<const std::byte>()
               : out_.own_bytes().subspan(handshake_bytes_);
  }
  bool sent_early() const noexcept { return state_ != State::Open && written_ > handshake_bytes_; }
  bool put_early(std::span<const std::byte> bytes) noexcept {
    return out_.put_bytes(bytes.data(), bytes.size());
  }

  // --- always ---
  State state() const noexcept { return state_; }
  int error() const noexcept { return error_; }  // positive errno, once Failed
  RefusalReason refusal() const noexcept { return refusal_; }
  bool said_bye() const noexcept { return bye_; }  // the other side closed in good order
  bool stalled() const noexcept { return in_.stalled(); }
  // Handshaking, and the other side has closed the connection with no frame behind its handshake: it gave this connection up.
  bool was_given_up() const noexcept;
  // Open, and the other side has closed: reading on comes to the end.
  bool has_left() const noexcept { return state_ == State::Open && os::is_hung_up(fd_); }
  // Whether the other machine still answers. To be asked about once a second: false after about ten seconds of silence, also when packets vanish.
  bool alive() const noexcept;
  const os::Fd& fd() const noexcept { return fd_; }
  // Lets go. In good order: what the socket has is still delivered, as far as that is up to this side.
  void close() noexcept;
  void drop() noexcept;  // without a word: a forked child
  void fail(int error) noexcept;

 private:
  static constexpr uint8_t lone_frames = 4;
  static constexpr uint32_t large_frame_weight = 4;  // in a burst, as so many small ones
  static constexpr size_t waiting_parts_max = 32;    // of what goes before a large frame, in the same write
  static constexpr size_t bulk_bytes = 8192;
  static constexpr size_t bulk_tail_bytes = 4096;
  static constexpr size_t bytes_per_receive_max = size_t{1} << 20;

  struct IncomingHandshake {
    Handshake handshake;
    std::array<std::byte, handshake_bytes_max> bytes;
    size_t arrived = 0;
    bool complete = false;
  };

  // Shows the engine its frames, and keeps the stream's own.
  template <class Handler>
  struct Filter {
    Handler& handler;
    Channel& channel;
    template <class Peer>
    bool on_frame(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
      if (head.kind == frame_bye) [[unlikely]] {
        channel.bye_ = true;
        return true;
      }
      return handler.on_frame(peer, head, payload);
    }
    template <class Peer>
    proto::Land land(Peer& peer, wire::FrameHead& head, const std::byte* payload, size_t arrived,
                     proto::Landing& out) noexcept requires proto::TakesParts<Handler, Peer> {
      return handler.land(peer, head, payload, arrived, out);
    }
    template <class Peer>
    void landed(Peer& peer, wire::FrameHead& head,
                size_t bytes) noexcept requires proto::TakesParts<Handler, Peer> {
      handler.landed(peer, head, bytes);
    }
  };

  [[gnu::noinline, gnu::cold]] bool send_early(const wire::FrameHead& head, std::span<const std::byte> prefix,
                                               const iovec* parts, size_t part_count) noexcept;
  bool write_small(const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
                   size_t part_count) noexcept;
  bool write_large(const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
                   size_t part_count, bool stays) noexcept;
  bool write_collected() noexcept;
  bool lose_frame(size_t bytes) noexcept;
  ssize_t write(const iovec* parts, size_t count) noexcept;
  ssize_t read(const iovec* parts, size_t count) noexcept;
  bool finish_connect() noexcept;
  void read_handshake() noexcept;
  void set_options() noexcept;

  os::Fd fd_;
  os::Origin origin_;
  State state_ = State::Closed;
  bool bulk_ = false;  // large frames have come lately
  proto::stream::Coalescer<lone_frames> coalescer_;
  uint64_t gone_ = 0;    // bytes that the socket took
  uint64_t first_ = 0;   // what it began with
  uint64_t broken_ = 0;  // of frames that found it broken
  uint64_t arrived_ = 0;
  bool full_ = false;
  bool bye_ = false;
  bool reset_ = false;  // the other machine threw away what came, or what nobody had read
  bool early_ = false;
  size_t handshake_bytes_ = 0;  // at the front of out_, until open()
  size_t written_ = 0;  // of out_, until open(): it is kept as long as another connection might need it
  RefusalReason refusal_ = RefusalReason::None;
  int error_ = 0;
  proto::stream::Outbox out_;
  proto::stream::Parser in_;
  std::unique_ptr<IncomingHandshake> handshake_;
};

template <class Handler, class Peer>
int Channel::receive(Handler& handler, Peer& peer, std::span<std::byte> buffer) noexcept {
  if (state_ != State::Open) return 0;
  const uint64_t before = in_.frames();
  Filter<Handler> filter{handler, *this};
  bool sound = in_.retry(filter, peer);
  size_t total = 0;
  while (sound && !in_.stalled() && total < bytes_per_receive_max) {
    iovec parts[proto::Landing::pieces_max + 1];
    size_t count = 0;
    size_t asked = 0;
    size_t direct = 0;  // bytes that go where they belong
    const size_t landing = in_.landing();
    proto::Landing to;
    if (landing != 0) in_.where(filter, peer, to);
    for (; count < to.count; ++count) parts[count] = to.pieces[count];
    direct = to.bytes;
    asked = to.bytes;
    const bool nowhere = landing != 0 && to.bytes == 0;
    if (landing == to.bytes || nowhere) {
      // Where large frames come one after the other, what is read beyond one should be little: it is copied.
      const size_t room = nowhere ? std::min(landing, buffer.size())
                          : bulk_ ? std::min(bulk_tail_bytes, buffer.size())
                                  : buffer.size();
      parts[count++] = {buffer.data(), room};
      asked += room;
    }
    const ssize_t got = read(parts, count);
    if (got <= 0) break;
    const auto bytes = static_cast<size_t>(got);
    WEFT_ASSERT(bytes <= asked && direct <= asked);
    total += bytes;
    arrived_ += bytes;
    if (nowhere) {
      in_.landed(filter, peer, bytes);
    } else {
      const size_t landed = std::min(bytes, direct);
      if (landed != 0) in_.landed(filter, peer, landed);
      sound = in_.feed(filter, peer, std::span<const std::byte>(buffer.first(bytes - landed)));
      bulk_ = landed >= bulk_bytes || (bulk_ && (landed != 0 || in_.landing() != 0));
    }
    if (bytes < asked) break;  // there is no more now
  }
  if (!sound) fail(in_.error());
  return static_cast<int>(in_.frames() - before);
}

}  // namespace weft::link::tcp
