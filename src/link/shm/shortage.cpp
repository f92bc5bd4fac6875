// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A meeting that descriptors, memory or mappings are lacking for, here or at the peer, or whose descriptors do not arrive: said once, tried
// again, and given up in the end.
//
// A process that cannot take what a handshake brings answers with a Shortage note, which needs no descriptor. A handshake that arrives without
// its descriptors, though this process has room for them, and whose memory file cannot be opened through /proc, is answered with NotPassed. The other
// one repeats its hello every 0.2 s meanwhile. What waits for the meeting ends when it has been short for 10 s, unless no shortage has shown in the last 3 s.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "link/shm/handshakes.hpp"
#include "os/clock.hpp"
#include "os/shortage.hpp"
#include "os/unix_socket.hpp"

namespace weft::link::shm {
namespace {

constexpr uint64_t shortage_most_ns = 10'000'000'000;
constexpr uint64_t shortage_silence_ns = 3'000'000'000;
constexpr uint64_t silence_ns = 1'000'000'000;

}  // namespace

// Once for a time of shortage.
void Handshakes::warn_of_shortage(const std::array<char, address_bytes>& whom, int code) noexcept try {
  if (warnings_.was_said(Warnings::Descriptors)) return;
  const std::string_view name = text_of(whom);
  const std::string lack = os::with_remedy(code);
  warnings_.once(Warnings::Descriptors, Line("%.*s cannot be met: %s; tried again for 10 s",
                                             static_cast<int>(name.size()), name.data(), lack.c_str())
                                            .get());
} catch (...) {  // no memory for the line
}

void Handshakes::note_shortage(Peer& peer, bool of_peer) noexcept {
  peer.shortage.at_ns = os::monotonic_ns();
  if (peer.shortage.since_ns == 0) peer.shortage.since_ns = peer.shortage.at_ns;
  peer.shortage.is_of_peer = of_peer;
  peer.shortage.not_passed = false;
}

// A peer that waits for our answer. Needs no descriptor.
void Handshakes::send_shortage(const std::array<char, address_bytes>& whom, uint64_t nonce,
                               NoteKind kind) noexcept {
  Note note = note_to(whom, kind);
  note.nonce = nonce;
  (void)os::send_datagram(socket_, SocketName(text_of(whom)), std::as_bytes(std::span(&note, 1)), {});
}

// This process lacks what the meeting with a peer needs.
void Handshakes::lacks(Peer& peer, int code) noexcept {
  warn_of_shortage(peer.address, code);
  note_shortage(peer, false);
}

// The same when a note brought less than was sent, or nothing could be made of what it brought.
void Handshakes::lacks_for(const Note& note, int code) noexcept {
  warn_of_shortage(note.address, code);
  if (Peer* const known = peers_.find(text_of(note.address)); known != nullptr) note_shortage(*known, false);
  if (note.kind == NoteKind::Hello || note.kind == NoteKind::Reply) send_shortage(note.address, note.nonce);
}

// A handshake has arrived without its descriptors, this process lacks none, and /proc does not help: `code` is why, 0: what it shows is not the memory of
// the sender. Tried again all the same: a security module may let them pass later.
void Handshakes::misses_descriptors_of(const Note& note, int32_t pid, int code) noexcept {
  const std::string_view name = text_of(note.address);
  const char* const why = pid <= 0    ? "another pid namespace"
                          : code != 0 ? std::strerror(code)
                                      : "no such memory file";
  warnings_.once(
      Warnings::Descriptors,
      Line("%.*s cannot be met: its handshake came without descriptors: the kernel, an emulator or a "
           "security module does not pass them (SCM_RIGHTS), and they cannot be opened in "
           "/proc/%d/fd (%s); tried again for 10 s",
           static_cast<int>(name.size()), name.data(), pid, why)
          .get());
  if (Peer* const known = peers_.find(name); known != nullptr) {
    note_shortage(*known, false);
    known->shortage.not_passed = true;
  }
  send_shortage(note.address, note.nonce, NoteKind::NotPassed);
}

// From a process of our user that we have asked: it has our nonce.
void Handshakes::handle_shortage(const Note& note, int32_t pid) noexcept {
  Peer* const asked = peers_.find(text_of(note.address));
  if (asked == nullptr || note.nonce != nonce_) return;
  const std::string_view name = text_of(note.address);
  const bool not_passed = note.kind == NoteKind::NotPassed;
  warnings_.once(
      Warnings::PeerShort,
      Line("%.*s (process %d) %s; tried again for 10 s", static_cast<int>(name.size()), name.data(), pid,
           not_passed ? "got the handshake of this process without descriptors: the kernel, an emulator or a "
                        "security module does not pass them (SCM_RIGHTS), and it cannot open them in /proc"
                      : "lacks descriptors or memory to meet this process; its log says which")
          .get());
  note_shortage(*asked, true);
  asked->shortage.not_passed = not_passed;
}

// Once, at level info: it works, but what a process sent before it exited is lost if its handshake had not been read.
void Handshakes::note_not_passed() noexcept {
  if (warnings_.was_said(Warnings::NotPassed) || !note_) return;
  warnings_.mark(Warnings::NotPassed);
  note_("handshakes arrive without descriptors (SCM_RIGHTS): peers are met through /proc instead");
}

// Once. Descriptors in the socket would have kept what it sent.
void Handshakes::warn_of_exited(const Note& note, int32_t pid) noexcept {
  const std::string_view name = text_of(note.address);
  warnings_.once(
      Warnings::Exited,
      Line("%.*s (process %d) exited before its handshake was read, and the kernel, an emulator or a "
           "security module does not pass descriptors (SCM_RIGHTS): what it had sent is lost",
           static_cast<int>(name.size()), name.data(), pid)
          .get());
}

// Once for a peer whose socket has the handshake and that has not read it. Its name is one that the library chose: at level info, for it lives, and may
// compute for hours before its first call.
void Handshakes::log_silence(Peer& peer, uint64_t now_ns) noexcept {
  const bool lives = peer.chosen_by_library;
  if (peer.handshake.is_silent || !(lives ? static_cast<bool>(note_) : static_cast<bool>(warnings_)) ||
      !peer.handshake.hello_sent || peer.shortage.since_ns != 0 || !peer.out.is_open() ||
      peer.out.next() == 0 || peer.out.is_attached() || peer.handshake.asked_at_ns == 0 ||
      now_ns < peer.handshake.asked_at_ns + silence_ns || (peer.pidfd && os::has_exited(peer.pidfd)))
    return;
  peer.handshake.is_silent = true;
  if (!lives && !silences_.may_warn(now_ns)) return;
  const std::string_view name = text_of(peer.address);
  const uint32_t withheld = lives ? 0 : silences_.consume_withheld();
  const Line process(" (process %d)", peer.pid);
  const Line more(" (and %u more peers since the last such line)", withheld);
  const Line line(
      "%.*s%s has not answered for 1 s%s: its process makes no call into its fabric library (it "
      "computes, sleeps or is stopped); what is sent to it waits until it does",
      static_cast<int>(name.size()), name.data(), peer.pid > 0 ? process.get() : "",
      withheld != 0 ? more.get() : "");
  if (lives) note_(line.get());
  else warnings_.say(line.get());
}

void Handshakes::end_shortage(Peer& peer, uint64_t now_ns) noexcept {
  if (peer.shortage.since_ns == 0) return;
  const bool met = peer.remote != nullptr &&
                   (!peer.out.is_open() || peer.out.control()->doorbell.load(std::memory_order_relaxed) != 0);
  if (met || now_ns > peer.shortage.at_ns + shortage_silence_ns) {
    peer.shortage.since_ns = 0;
    peer.handshake.met_at_ns = peer.handshake.asked_at_ns = now_ns;  // it has not been waited for yet
    warnings_.again(Warnings::Descriptors);
    warnings_.again(Warnings::PeerShort);  // another shortage is said again
  } else if (now_ns > peer.shortage.since_ns + shortage_most_ns) {
    peer.shortage.gave_up = true;
  }
}

}  // namespace weft::link::shm
