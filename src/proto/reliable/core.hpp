// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reliable ordered streams over packets that may be lost, doubled, reordered, delayed and altered: all connections of one endpoint. A state machine:
// packets, commands and the time go in; packets, bytes in order and the time of the next timer come out. Must not know sockets, clocks or frames.
//
// Calls, all with `now` in ns of a clock that never goes back:
//   input     on_packet(), on_refused(); then end_poll(), which sends what became due
//   commands  add(), remove(), append() and push(), begin_close()
//   output    through PacketOutput (packets) and Upper (bytes, new and lost connections), from inside these calls only
// Upper may call append() and push() from on_bytes(), and nothing else of the core.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/assert.hpp"
#include "base/list.hpp"
#include "base/siphash.hpp"
#include "core/provider_error.hpp"
#include "proto/reliable/completion_policy.hpp"
#include "proto/reliable/connection.hpp"
#include "proto/reliable/packet.hpp"
#include "proto/reliable/statistics.hpp"

namespace weft::proto::reliable {

// Where packets go (PacketLink, as seen from here).
struct PacketOutput {
  virtual size_t packet_bytes_max(std::span<const std::byte> to) noexcept = 0;
  virtual bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept = 0;
  // `parts` are packets of packet_bytes, the last may be shorter.
  virtual bool send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                              size_t packet_bytes) noexcept = 0;
  // Returns when no device reads parts of packets that were sent.
  virtual void release_parts() noexcept {}

 protected:
  ~PacketOutput() = default;
};

// Who gets the bytes.
struct Upper {
  // Somebody that was never added: a connection to keep, or null to refuse.
  virtual Connection* accept(std::span<const std::byte> address) noexcept = 0;
  // The address that a handshake names, as it is known here: part of it may mean something to its own machine only.
  virtual PacketAddress known_as(std::span<const std::byte> address, const PacketAddress&) const noexcept {
    return PacketAddress(address);
  }
  // The next bytes; returns how many were taken. Fewer than given: the rest is offered at a later end_poll().
  virtual size_t on_bytes(Connection& connection, std::span<const std::byte> bytes) noexcept = 0;
  // Bytes that were taken wait to be passed on; passed_on() says that they were.
  virtual bool holds(const Connection&) const noexcept { return false; }
  // The core has forgotten it; nothing more happens to it.
  virtual void lost(Connection& connection, core::ProviderError why) noexcept = 0;

 protected:
  ~Upper() = default;
};

struct Config {
  uint64_t incarnation = 1;            // larger than that of earlier endpoints at this address
  uint64_t seed = 1;                   // unpredictable
  bool check = true;                   // packets carry a checksum of ours, and those without are refused
  bool length = false;                 // else: they carry their length
  size_t segments_max = 1;             // in one send_segmented()
  size_t segmented_bytes_max = 65000;  // likewise
  size_t packet_bytes_max = 65535;
  size_t receive_bytes = SIZE_MAX;  // what the packet link keeps between two polls,
  size_t receive_cost = 0;          // of which a packet takes so many at least, at a peer's as here
  uint64_t dead_after = 60 * second;
  CompletionPolicy completion = CompletionPolicy::assumed_after(assume_after_default);
  congestion::Make algorithm = nullptr;  // another algorithm than DelayWindow
};

struct Counters {
  uint64_t malformed = 0;   // no packet of ours, or altered
  uint64_t stale = 0;       // of a connection that is over, or not for this one
  uint64_t duplicates = 0;  // nothing new in it
  uint64_t out_of_order = 0;
  uint64_t outside = 0;      // beyond the window, or no memory for it
  uint64_t turned_away = 0;  // new peers beyond the bound
  uint64_t sent = 0;         // packets, all of them
  uint64_t sent_again = 0;   // packets
  uint64_t copies = 0;       // of the same packet, on purpose
  uint64_t acks_sent = 0;    // packets with nothing else
  uint64_t received = 0;     // packets of ours
  uint64_t acks_received = 0;
  uint64_t lost = 0;  // packets of connections that are over; the others count their own
  uint64_t timeouts = 0;
  uint64_t assumed = 0;    // bytes that count as delivered though the peer has not acknowledged them (yet)
  uint64_t namesakes = 0;  // handshakes of somebody else that name our own address
  uint64_t displaced = 0;  // from another place than the address of their sender
  uint64_t wrong_lengths = 0;  // longer or shorter than they were sent, of those that say so
};

// The newest of what is counted there, for a person.
struct Oddities {
  PacketAddress source;   // of a displaced packet,
  PacketAddress address;  // and where its sender says that it is
  size_t sent_bytes = 0;  // of a packet with a wrong length
  size_t came_bytes = 0;
};

class Core {
 public:
  static constexpr size_t connections_max = 65535;
  static constexpr size_t unvalidated_max = 1024;  // that came by themselves and have not answered yet
  static constexpr uint64_t challenge_hold =
      60 * second;                            // so long after there were as many, packets may be late
  static constexpr size_t credit_factor = 3;  // bytes to one of these for each byte that came from there
  static constexpr size_t time_wait_max =
      4096;  // ended connections (TIME_WAIT) that are remembered, so that their packets are known as old
  static constexpr unsigned hurries_max = 4;  // as Connection::hurries begins
  static constexpr uint64_t ask_delay_min = 60 * us;
  static constexpr uint64_t ask_delay_patient = 20 * us;
  static constexpr uint64_t silence_hurried = 10 * ms;  // at most, of a peer that a hurried close waits for
  static constexpr size_t repeat_bytes_max = size_t{192} << 10;
  static constexpr size_t repeat_packets_max = 2048;
  static constexpr uint64_t refusal_pause = 250 * ms;  // then we ask whether it is true
  static constexpr uint64_t unmet_refusal_timeout =
      2 * second;  // with refusals of a peer that was never heard
  static constexpr size_t copied_bytes_max = 4608;
  static constexpr size_t frames_held_max = 64;  // collected without a poll
  static constexpr size_t burst_min = 16;        // frames that go together: more are expected
  static constexpr size_t bytes_held_max = size_t{16} << 10;

  Core(PacketOutput& output, Upper& upper) noexcept : output_(output), upper_(upper) {}
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core();

  bool open(std::span<const std::byte> address, const Config& config);  // false: no memory

  // --- commands ---
  Connection* find(std::span<const std::byte> address) noexcept;
  // False: no room for one more. Nothing is sent yet.
  bool add(Connection& connection, std::span<const std::byte> address) noexcept;
  // We are done with it; the other side is told.
  void remove(Connection& connection, uint64_t now) noexcept;
  // Room for that many bytes, so that append() of them does not fail.
  bool reserve(Connection& connection, size_t bytes) noexcept {
    return connection.out.room() >= bytes && connection.out.reserve(pool_, bytes);
  }
  void append(Connection& connection, const void* bytes, size_t count) noexcept {
    (void)connection.out.append(pool_, static_cast<const std::byte*>(bytes), count);
  }
  // As reserve() and append(), of a frame of `head` bytes and these parts: those that are long enough stay where they
  // are until completed() has passed them, copy_out(), or the end of the connection.
  static constexpr size_t in_place_bytes_min = 2048;
  bool reserve_in_place(Connection& connection, size_t head, const iovec* parts, size_t count) noexcept;
  void append_in_place(Connection& connection, const iovec& part) noexcept {
    if (part.iov_len < in_place_bytes_min) append(connection, part.iov_base, part.iov_len);
    else connection.out.borrow(static_cast<const std::byte*>(part.iov_base), part.iov_len);
  }
  // Nothing of the connection is in the owner's memory afterwards. False: there was no memory to copy it to; the
  // connection sends nothing any more.
  bool copy_out(Connection& connection) noexcept;
  // Before push(): a completion waits for this frame, so the peer is asked for an answer.
  static void expect(Connection& connection) noexcept { connection.expects = true; }
  // Bytes of the stream before it need us no more.
  static uint64_t completed(const Connection& connection) noexcept {
    return std::max(connection.out.acked(), connection.assumed_delivered);
  }
  // A frame was appended: it goes at once when nothing went since the last poll, or when enough is there.
  template <class Now>
  void push(Connection& connection, Now&& now) noexcept {
    ++connection.unsent_frames;
    WEFT_ASSERT(by_id(connection.who.id) == &connection);
    const bool awaited = connection.expects;
    if (awaited) connection.awaited = connection.out.end();
    connection.expects = false;
    if (connection.epoch != epoch_) {
      const uint64_t time = now();
      connection.lone = awaited && connection.out.unsent() <= copied_bytes_max && connection.rtt.measured();
      flush(connection, time, true);
      connection.lone = false;
      if (!awaited) copy_last(connection, time);
    } else if (connection.out.unsent() >= bytes_held_max || connection.unsent_frames >= frames_held_max) {
      flush(connection, now(), connection.out.unsent() < bytes_held_max);
    } else {
      make_ready(connection);
    }
  }
  // Nobody may come to poll soon: what was kept back goes now, a few times between two polls, but not when the last poll came to many frames.
  template <class Now>
  void hurry(Connection& connection, Now&& now) noexcept {
    if (connection.epoch != epoch_ || connection.out.unsent() == 0 ||
        ++connection.hurried > connection.hurries)
      return;
    const uint64_t time = now();
    flush(connection, time, true);
    copy_last(connection, time);
  }
  // See Upper::holds(). The connection may be lost by this: its end was waiting.
  void passed_on(Connection& connection) noexcept {
    WEFT_ASSERT(by_id(connection.who.id) == &connection);
    if (connection.in.blocked()) make_ready(connection);
    else if (connection.ending.finishing && finished(connection))
      lose(connection, core::ProviderError::PeerClosed);
  }
  template <class Fn>
  void for_each(Fn&& fn) {
    for (size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i] != nullptr) fn(*slots_[i]);
  }
  size_t size() const noexcept { return by_address_.size(); }
  // Asks the peer for a sign of life, when there was none for a while.
  void probe_if_silent(Connection& connection, uint64_t quiet, uint64_t now) noexcept;

  // --- input ---
  void on_packet(std::span<const std::byte> source, std::span<const std::byte> bytes, uint64_t now) noexcept;
  // The packet link heard that nobody receives there. A hint: believed when it is repeated and nothing contradicts.
  void on_refused(std::span<const std::byte> destination, uint64_t now) noexcept;
  // The packet link could not send a packet there (errno). Believed like a refusal of a peer that was never met; of others it is only noted, since the
  // route may come back.
  void on_send_error(std::span<const std::byte> destination, int error, uint64_t now) noexcept;
  void end_poll(uint64_t now) noexcept {
    ++epoch_;
    if (!ready_.empty()) serve_ready(now);
    if (now >= next_due_) [[unlikely]]
      run_timers(now);
  }

  // --- output ---
  // UINT64_MAX: nothing is waited for.
  uint64_t next_due() const noexcept { return next_due_; }
  bool has_ready() const noexcept { return !ready_.empty(); }
  // When a packet with bytes came last, from anybody, also one that was here already. For answer_guard after it somebody may send it again, because our
  // answer was lost, and waits for another one: that is more than the longest pause between two attempts.
  uint64_t data_at() const noexcept { return data_at_; }
  static constexpr uint64_t answer_guard = 20 * second;
  // Sends the acknowledgements that wait for company: before a sleep.
  void send_owed_acks(uint64_t now) noexcept;
  const Counters& counters() const noexcept { return counters_; }
  Statistics statistics() const noexcept;
  const Oddities& oddities() const noexcept { return oddities_; }
  bool checks() const noexcept { return config_.check; }
  std::span<const std::byte> address() const noexcept { return address_.span(); }

  // --- the end ---
  // From here on incoming bytes are dropped; what was appended is still delivered, and the peers are told. Poll until closed().
  void begin_close(uint64_t now) noexcept;
  // With `hurried` only peers that answer are waited for: to others what is not acknowledged goes twice more, and the good-bye behind it.
  bool closed(uint64_t now, bool hurried = false) noexcept;

 private:
  struct PacketAddressHash {
    size_t operator()(const PacketAddress& place) const noexcept;
  };

  // core.cpp
  Connection* by_id(uint32_t id) const noexcept {
    const size_t slot = id & 0xffff;
    Connection* c = slot < slots_.size() ? slots_[slot] : nullptr;
    return c != nullptr && c->who.id == id ? c : nullptr;
  }
  Connection* identify(const Packet& packet, const PacketAddress& source, uint64_t now) noexcept;
  Connection* identify_handshake(const Packet& packet, const PacketAddress& source, uint64_t now) noexcept;
  bool learn(Connection& c, const Packet& packet) noexcept;
  bool is_old(const PacketAddress& address, uint64_t incarnation) const noexcept;
  void answer(PacketType type, const Packet& to, const PacketAddress& place, uint64_t word) noexcept;
  enum class Proof : uint8_t { Fresh, Replaces };
  uint32_t proof(Proof kind, const Packet& packet, const PacketAddress& source) const noexcept;
  bool is_proof(Proof kind, const Packet& packet, const PacketAddress& source) const noexcept;
  void demand(Proof kind, const Packet& packet, const PacketAddress& source, const PacketAddress& to,
              uint64_t above) noexcept;
  void on_reset(const Packet& packet, const PacketAddress& source, uint64_t now) noexcept;
  // It came by itself, and for all we know it does not exist.
  static bool unvalidated(const Connection& c) noexcept {
    return List<Connection, UnvalidatedHook>::linked(c);
  }
  size_t unvalidated_head() const noexcept {
    return head_bytes(has_check | has_ack | has_handshake, 0, address_.length);
  }
  bool starved(const Connection& c) const noexcept {
    return unvalidated(c) && c.who.credit <= unvalidated_head();
  }
  void on_close(Connection& c, const Packet& packet, uint64_t now) noexcept;
  void on_ack(Connection& c, const Packet& packet, uint64_t now) noexcept;
  void on_payload(Connection& c, const Packet& packet, uint64_t now) noexcept;
  bool finished(Connection& c) noexcept;
  void lose(Connection& c, core::ProviderError why) noexcept;
  void fail(Connection& c, core::ProviderError why, Death death, uint64_t after) noexcept {
    c.ending.death = death;
    c.ending.dead_ns = after;
    lose(c, why);
  }
  void displaced(const PacketAddress& source, const PacketAddress& address) noexcept {
    ++counters_.displaced;
    oddities_.source = source;
    oddities_.address = address;
  }
  void detach(Connection& c) noexcept;
  size_t offer(Connection& c, std::span<const std::byte> bytes) noexcept {
    return closing_ ? bytes.size() : upper_.on_bytes(c, bytes);
  }

  // transmit.cpp
  void make_ready(Connection& c) noexcept {
    if (!List<Connection, ReadyHook>::linked(c)) ready_.push_back(c);
  }
  void serve_ready(uint64_t now) noexcept;
  void flush(Connection& c, uint64_t now, bool tail) noexcept;
  bool has_rate(Connection& c, uint64_t now) noexcept;
  bool flush_lost(Connection& c, uint64_t now) noexcept;
  bool flush_new(Connection& c, uint64_t now, bool tail) noexcept;
  // What nobody waits for may be the last that we are called for in a long while: where packets get lost it goes more than once.
  void copy_last(Connection& c, uint64_t now) noexcept {
    if (!c.history.is_good()) [[unlikely]]
      send_copies(c, now);
  }
  [[gnu::noinline]] void send_copies(Connection& c, uint64_t now) noexcept;
  bool send_alone(Connection& c, PacketType type, uint8_t flags, uint64_t offset, uint64_t now) noexcept;
  size_t write_head(Connection& c, Packet& packet, std::byte* out) noexcept;
  void describe(Connection& c, Packet& packet, uint64_t now) noexcept;
  // A packet goes to a peer that may not be looking. True: its packet link has room for it and all that went since we heard from it.
  bool add_in_flight(Connection& c, size_t bytes) noexcept;
  void acknowledged(Connection& c, uint64_t now) noexcept;
  // Before bytes go to one peer the others hear what came from them: what a message brings about shall not be seen before it is acknowledged.
  void acknowledge_others(Connection& c, uint64_t now) noexcept {
    if (!owed_.empty()) pay_others(c, now);
  }
  void pay_others(Connection& c, uint64_t now) noexcept;
  void size_packets(Connection& c, uint64_t now) noexcept;
  void sent(Connection& c, uint64_t now) noexcept;
  [[gnu::noinline]] void refused(Connection& c, uint64_t now) noexcept;
  Connection* find_busy(std::span<const std::byte> destination) noexcept;
  void suspect(Connection& c, uint64_t now) noexcept;

  // timers.cpp
  // Nothing has been lost on the way to it, which is short: a good-bye that is said several times arrives without being waited for.
  static bool is_sound(const Connection& c) noexcept {
    return c.rtt.measured() && c.rtt.smoothed() < ms && !c.history.is_lossy();
  }
  void say_close(Connection& c, uint64_t now, unsigned times) noexcept;
  bool is_silent(const Connection& c, uint64_t now) const noexcept;
  uint64_t due(const Connection& c, Timer timer) const noexcept;
  uint64_t due(const Connection& c) const noexcept;
  void touch(Connection& c) noexcept;
  void run_timers(uint64_t now) noexcept;
  bool on_timer(Connection& c, Timer timer, uint64_t now) noexcept;
  bool run_timers(Connection& c, uint64_t now) noexcept;
  bool on_timeout(Connection& c, uint64_t now) noexcept;
  void assume_delivered(Connection& c) noexcept;

  PacketOutput& output_;
  Upper& upper_;
  ChunkPool pool_;
  uint64_t epoch_ = 1;
  uint64_t data_at_ = 0;
  uint64_t next_due_ = UINT64_MAX;
  List<Connection, ReadyHook> ready_;  // something to send or to hand up at the next end_poll()
  List<Connection, OwedHook> owed_;    // with an acknowledgement that waits for company
  std::vector<Connection*> slots_;
  bool closing_ = false;
  bool repeats_on_purpose_ = false;
  Config config_;
  uint8_t guard_ = has_check;  // what every packet carries
  PacketAddress address_;
  Counters counters_;

  // --- cold below this line ---
  Oddities oddities_;
  List<Connection, TimedHook> timed_;  // those that wait for anything
  List<Connection, UnvalidatedHook> unvalidated_;
  size_t unvalidated_count_ = 0;
  std::unordered_map<PacketAddress, Connection*, PacketAddressHash> by_address_;
  std::unordered_map<PacketAddress, uint64_t, PacketAddressHash> time_wait_;
  std::deque<PacketAddress> time_wait_order_;
  std::vector<uint16_t> free_slots_;
  uint64_t next_incarnation_ = 1;
  SipKey secret_;
  uint64_t drawn_ = 0;
  uint64_t challenge_until_ = 0;  // too many who may not exist have come
  uint64_t close_began_ = 0;

  static constexpr size_t packet_parts_max = 1 + SendStream::pieces_max;
  struct Scratch {
    static constexpr size_t packets_max = 64;
    std::array<std::array<std::byte, head_bytes_max>, packets_max> heads;
    std::array<iovec, packet_parts_max * packets_max> parts;
    std::array<uint32_t, packets_max> payloads;
  } scratch_;
};

}  // namespace weft::proto::reliable
