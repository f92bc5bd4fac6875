// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The meeting of two endpoints: notes out, notes in, whose they are, what comes with them.
//
// A makes a channel to B in its own file and sends B a datagram with the file and what tells of its death. The datagram waits in B's socket
// even if A exits, so what A had sent before is not lost. A may write to the channel at once. If A can open B's file through /proc (same pid
// namespace, same user) it sets a bit of B's pending bitmap, so that B looks at its socket in the next poll; otherwise B looks within a millisecond of
// idle polling and answers with its own file.
//
// Where the kernel does not pass descriptors, each side opens the other's memory file through /proc.
//
// Who may send to our socket may be another user. Nothing of his is received, opened or closed here (docs/decisions/0015).
#include "link/shm/greeting.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "base/siphash.hpp"
#include "link/shm/link.hpp"
#include "os/clock.hpp"
#include "os/poll_set.hpp"
#include "os/process.hpp"
#include "os/shortage.hpp"
#include "os/unix_socket.hpp"

namespace weft::link::shm {
namespace {

constexpr uint64_t look_most_ns = 2'000'000;        // for one look at the socket
constexpr uint64_t slow_disposal_ns = 200'000'000;  // what a loaded machine may take to run a thread
constexpr int disposal_spins = 4000;     // about as long as a thread needs that has nothing to sleep on
constexpr uint32_t was_busy = 1U << 31;  // in Link::warned_: so it was at the last look
constexpr uint64_t refused_ns = 10'000'000'000;  // so long an address that was refused is not tried again

// Hashes of an address, each of its own.
enum class Use : uint64_t { Name = 0x656d616e2d6d6873, Token = 0x6e656b6f742d6d68 };
uint64_t hash_of(std::string_view address, Use use) noexcept {
  ChosenAddress chosen;
  (void)parse_chosen(address, chosen);
  return siphash({chosen.nonce, static_cast<uint64_t>(use)}, std::as_bytes(std::span(address)));
}

bool is_sound(const Note& note, size_t bytes, uint64_t token) noexcept {
  return bytes == sizeof(note) && note.token == token && note.magic == region_magic &&
         note.version == layout_version && note.address.back() == 0 && note.address.front() != 0 &&
         note.alias_length <= alias_bytes;
}

bool brings_descriptors(const Note& note) noexcept {
  return note.kind == NoteKind::Hello || note.kind == NoteKind::Reply;
}

}  // namespace

bool parse_chosen(std::string_view address, ChosenAddress& out) noexcept {
  constexpr std::string_view scheme = "fi_shm://";
  if (!address.starts_with(scheme)) return false;
  const char* at = address.data() + scheme.size();
  const char* end = address.data() + address.size();
  const auto number = [&](auto& value, int base, char stop) {
    const auto parsed = std::from_chars(at, end, value, base);
    const bool sound = parsed.ec == std::errc() &&
                       (stop == 0 ? parsed.ptr == end : parsed.ptr != end && *parsed.ptr == stop);
    at = sound ? parsed.ptr + 1 : end;
    return sound;
  };
  return number(out.pid, 10, ':') && number(out.fd, 10, ':') && number(out.nonce, 16, 0) && out.pid > 0 &&
         out.fd >= 0;
}

SocketName::SocketName(std::string_view address) noexcept {
  std::array<char, 26> text{};
  std::snprintf(text.data(), text.size(), "weft-shm/%016llx",
                static_cast<unsigned long long>(hash_of(address, Use::Name)));
  std::copy_n(text.begin(), text_.size(), text_.begin());
}

uint64_t token_of(std::string_view address) noexcept {
  return std::max<uint64_t>(hash_of(address, Use::Token), 1);
}

Line::Line(const char* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(text_.data(), text_.size(), format, arguments);
  va_end(arguments);
}

bool Link::is_present(std::span<const std::byte> address) noexcept {
  std::array<char, address_bytes> padded{};
  std::memcpy(padded.data(), address.data(), std::min(address.size(), padded.size() - 1));
  return os::is_bound(SocketName(text_of(padded)));
}

// --- out ---

// Is the peer's file at hand? Then its doorbells are, too. Without something that tells of its death the note that it sends has to bring both.
void Link::find_by_process(Peer& peer) noexcept {
  ChosenAddress chosen;
  if (!parse_chosen(text_of(peer.address), chosen)) return;
  peer.chosen_by_library = true;
  os::Fd liveness = os::open_process(chosen.pid);
  if (!liveness) return;
  const os::Fd file = owner_.open_memory_of(chosen.pid, chosen.fd, file_.fd());
  if (!file || os::has_exited(liveness) || !attach_header(peer, file, chosen.nonce)) return;
  peer.pid = chosen.pid;
  peer.pidfd = std::move(liveness);
  watch(peer);
  probe_cma(peer);
}

Note Link::note_to(const std::array<char, address_bytes>& whom, NoteKind kind) const noexcept {
  Note note{};
  note.magic = region_magic;
  note.token = token_of(text_of(whom));
  note.version = layout_version;
  note.kind = kind;
  note.nonce = nonce_;
  note.address = address_;
  note.alias_length = alias_length_;
  note.alias = alias_;
  note.file = file_.fd().get();
  return note;
}

void Link::send_note(Peer& peer, NoteKind kind, bool with_files) noexcept {
  const SocketName name(text_of(peer.address));
  if (peer.foreign) return;
  if (kind == NoteKind::Hello) peer.hello_at_ns = os::monotonic_ns();
  Note note = note_to(peer.address, kind);
  note.channel_offset = kind == NoteKind::Hello ? MemoryFile::offset_of(peer.channel) : 0;
  note.wants_reply = peer.remote == nullptr ? 1 : 0;
  const auto bytes = std::as_bytes(std::span(&note, 1));
  int sent;
  if (with_files) {
    // Whoever has the name gets our memory. The connection keeps the socket that is asked about: nobody else gets what is sent over it.
    int error = 0;
    const os::Fd there = os::connect_datagram(name, error);
    // Whose it is cannot be asked without a descriptor: then it is not sent yet.
    if (there && !is_of_our_user(peer, name, error) && !os::is_shortage(error)) return refuse(peer);
    const std::array<int, 2> fds{file_.fd().get(), liveness_.shown.get()};
    sent = error == 0 ? os::send_datagram(there, {}, bytes, fds) : -error;
    if (os::may_refuse_descriptors(-sent)) sent = os::send_datagram(there, {}, bytes, {});
  } else {
    sent = os::send_datagram(socket_, name, bytes, {});
  }
  if (kind == NoteKind::Wake) return;
  if (sent == 0) {
    if (kind == NoteKind::Hello) {
      if (!std::exchange(peer.hello_sent, true)) count_ungreeted(-1);
      if (peer.asked_at_ns == 0) peer.asked_at_ns = peer.hello_at_ns;
    }
    if (kind == NoteKind::Hello && peer.state == PeerState::New) peer.state = PeerState::Greeted;
    // The note wakes a sleeper. Its flag stays: it may have read the note already and sleep again, and then the next frame has to wake it.
    if (peer.remote != nullptr) peer.remote->pending.fetch_or(pending_socket, std::memory_order_seq_cst);
  } else if (sent == -ECONNREFUSED &&
             (peer.state == PeerState::Known || peer.remote != nullptr || peer.chosen_by_library)) {
    lose(peer);  // its socket is gone, so it is; only a name that a program chose may yet appear
  } else if (sent == -ECONNREFUSED) {
    peer.asked_at_ns = 0;  // who has read nothing is gone; the next one has its own time
    peer.is_silent = false;
  } else if (os::is_shortage(-sent)) {
    lacks(peer, -sent);
    if (kind == NoteKind::Reply) tell_shortage(peer.address, peer.nonce);
  }
}

void Link::greet(Peer& peer) noexcept { send_note(peer, NoteKind::Hello, true); }

// Whether the name is bound by the peer that we know, or by another process of our user. An endpoint that is gone has said so in its header, or its
// process has ended.
bool Link::is_of_our_user(const Peer& peer, std::string_view name, int& error) const noexcept {
  if (peer.remote != nullptr && peer.pidfd && !peer.has_closed() && !os::has_exited(peer.pidfd)) return true;
  return owner_.has_bound(name, error);
}

// The peer is another user's: what is pending with it ends, and for a while it is not tried again.
void Link::refuse(Peer& peer) noexcept {
  peer.foreign = true;
  remember_refused(text_of(peer.address));
  lose(peer);
}

void Link::remember_refused(std::string_view address) noexcept {
  refused_[next_refused_++ % refused_.size()] = {token_of(address), os::monotonic_ns() + refused_ns};
}

// Before a first contact. An address that the library chose is found out later: nobody else can have bound its name before it was known.
bool Link::is_foreign(std::string_view address) noexcept {
  if (was_refused(address)) return true;
  ChosenAddress chosen;
  const SocketName name(address);
  if (parse_chosen(address, chosen) || !os::is_bound(name) || !owner_.belongs_to_other(name)) return false;
  remember_refused(address);
  return true;
}

bool Link::was_refused(std::string_view address) const noexcept {
  const uint64_t now = os::monotonic_ns();
  const uint64_t token = token_of(address);
  return std::any_of(refused_.begin(), refused_.end(),
                     [&](const Refused& entry) { return entry.token == token && now < entry.until_ns; });
}

// --- what is said in the log ---

// Once for each kind of trouble.
void Link::warn_once(uint32_t kind, const char* what) noexcept {
  if ((warned_ & kind) != 0 || !has_warning()) return;
  warned_ |= kind;
  warn(what);
}

void Link::warn_of_malformed(const Peer& peer, const char* what) noexcept {
  if (!has_warning() || !cuts_.may_warn(os::monotonic_ns())) return;
  const std::string_view name = text_of(peer.address);
  const Line line("%.*s (process %d) is cut off: %s", static_cast<int>(name.size()), name.data(), peer.pid,
                  what);
  const uint32_t withheld = cuts_.take_withheld();
  const Line more("%s (and %u more peers since the last such line)", line.get(), withheld);
  warn(withheld == 0 ? line.get() : more.get());
}

// --- in ---

void Link::read_socket() noexcept {
  take_notes();
  if (active_.is_armed()) stay_armed();
}

// While one thread sleeps another polls, and has just read what may have been meant to wake the first.
void Link::stay_armed() noexcept {
  header_->sleeping.store(1, std::memory_order_seq_cst);
  if (header_->pending.load(std::memory_order_seq_cst) == 0 || header_->sleeping.exchange(0) == 0) return;
  const Note note = note_to(address_, NoteKind::Wake);
  (void)os::send_datagram(socket_, SocketName(text_of(address_)), std::as_bytes(std::span(&note, 1)), {});
}

void Link::take_notes() noexcept {
  const uint64_t until = os::monotonic_ns() + look_most_ns;
  for (int i = 0; i < 256 && os::monotonic_ns() < until; ++i)
    if (!take_datagram(true)) return;
  header_->pending.fetch_or(pending_socket);  // more may wait
}

// False: there is none, or what the last one brought is not let go of yet; then the next look goes on.
bool Link::take_datagram(bool listening) noexcept {
  const int spins = (warned_ & was_busy) != 0 ? 0 : disposal_spins;
  for (int i = 0; i < spins && disposal_.busy(); ++i) arch::pause();
  if (disposal_.busy()) {
    warned_ |= was_busy;
    if (disposal_.age_ns() > slow_disposal_ns)
      warn_once(warned_disposal,
                "a descriptor that came with a greeting cannot be closed; greetings wait meanwhile");
    return false;
  }
  warned_ &= ~was_busy;
  Note note{};
  os::Sender sender;
  if (os::peek_datagram(socket_, std::as_writable_bytes(std::span(&note, 1)), sender) <= 0) return false;
  const bool sound = is_sound(note, sender.bytes, token_of(text_of(address_)));
  if (sender.uid != ::geteuid()) {
    if (sender.passes_fds) disposal_.drop_datagram(socket_);
    else os::skip_datagram(socket_);
    if (sound && listening) turn_away(note, sender.uid);
    return true;
  }
  os::Datagram datagram;
  if (!sender.passes_fds) os::skip_datagram(socket_);
  else if (os::receive_datagram(socket_, std::as_writable_bytes(std::span(&note, 1)), datagram, disposal_) <=
           0)
    return true;
  auto& [file, liveness] = datagram.fds;
  const bool missing = datagram.cut || (!file && !liveness);
  // What else there is, a file system or a socket behind it may keep the closing of.
  if (file && !os::is_memory(file)) disposal_.close(os::Fd(file.release()));
  if (liveness && !os::tells_of_death(liveness)) disposal_.close(os::Fd(liveness.release()));
  if (!sound || !listening) return true;
  if (note.kind == NoteKind::Wake) take_wake(note);
  if (note.kind == NoteKind::Shortage || note.kind == NoteKind::NotPassed) take_shortage(note, sender.pid);
  if (!brings_descriptors(note)) return true;
  if (file && liveness) take_greeting(note, file, liveness, sender.pid);
  else if (datagram.lack != 0) lacks_for(note, datagram.lack);  // the peer repeats it
  else if (missing) take_without_descriptors(note, sender.pid);
  return true;
}

void Link::take_greeting(const Note& note, os::Fd& file, os::Fd& liveness, int32_t pid) noexcept {
  try {
    take_note(note, file, liveness, pid);
  } catch (...) {  // out of memory: as if the datagram had been lost; the peer repeats it
  }
}

// The descriptors of a greeting of our user did not arrive: both are opened by the number of the process, which the kernel vouches for. The pidfd comes
// first and its process has not exited afterwards, so the file was of that process; the nonce shows that the file is of the endpoint that greets.
void Link::take_without_descriptors(const Note& note, int32_t pid) noexcept {
  errno = 0;
  os::Fd liveness = pid > 0 ? os::open_process(pid) : os::Fd{};
  os::Fd file = liveness ? owner_.open_memory_of(pid, note.file, file_.fd()) : os::Fd{};
  const int code = errno;
  if (liveness ? os::has_exited(liveness) : code == ESRCH) {
    warn_of_exited(note, pid);
  } else if (file && is_memory_of(file, note.address, note.nonce)) {
    note_not_passed();
    take_greeting(note, file, liveness, pid);
  } else if (!file && os::is_shortage(code)) {
    lacks_for(note, code);
  } else {
    misses_descriptors_of(note, pid, file ? 0 : code);
  }
}

// What another user sent, bytes only. Whoever greets learns that it is no use. A refusal counts only from whom we greet: it has our nonce.
void Link::turn_away(const Note& note, uid_t uid) noexcept {
  if (note.kind == NoteKind::Refusal) {
    Peer* const greeted = peers_.find(text_of(note.address));
    if (greeted == nullptr || greeted->remote != nullptr || note.nonce != nonce_) return;
    refuse(*greeted);
    return;
  }
  if (note.kind != NoteKind::Hello && note.kind != NoteKind::Reply) return;
  const std::string_view name = text_of(note.address);
  warn_once(warned_user,
            Line("a greeting of %.*s, a process of user %u, was refused: shared memory joins processes of "
                 "one user, and this one is of user %u",
                 static_cast<int>(name.size()), name.data(), uid, ::geteuid())
                .get());
  Note refusal = note_to(note.address, NoteKind::Refusal);
  refusal.nonce = note.nonce;
  (void)os::send_datagram(socket_, SocketName(name), std::as_bytes(std::span(&refusal, 1)), {});
}

// It cannot ring: look at its ring in its stead.
void Link::take_wake(const Note& note) noexcept {
  Peer* const sender = peers_.find(text_of(note.address));
  if (sender != nullptr && sender->in.is_open()) doorbells_.ring_own(*sender);
}

void Link::take_note(const Note& note, os::Fd& file, os::Fd& liveness, int32_t pid) {
  const std::string key(text_of(note.address));
  Peer* known = peers_.find(key);
  if (known != nullptr && known->nonce != 0 && known->nonce != note.nonce) {
    Peer& old = *known;  // somebody new under an old name
    forget(old);         // out of every list: a new peer may get the same memory
    events_->peer_lost(old, core::ProviderError::PeerReplaced);
    known = nullptr;
  }
  if (known == nullptr) {
    if (note.kind != NoteKind::Hello) return;
    make_room();
    std::span<const std::byte> known_as = std::as_bytes(std::span(note.address));
    if (note.alias_length != 0) known_as = std::span(note.alias).first(note.alias_length);
    PeerTable::Place place(peers_, key);
    known = events_->make_peer(known_as);
    if (known == nullptr) return;  // the owner makes nothing of that name
    known->address = note.address;
    known->met_at_ns = os::monotonic_ns();
    place.take(*known);
  }
  Peer& peer = *known;
  const uint64_t short_before_ns = peer.short_at_ns;
  if (peer.remote == nullptr && !attach_header(peer, file, note.nonce)) {
    if (peer.short_at_ns != short_before_ns) tell_shortage(note.address, note.nonce);
    return;
  }
  if (!peer.pidfd) {
    peer.pid = pid;
    peer.pidfd = std::move(liveness);
    watch(peer);
    probe_cma(peer);
  }
  if (note.kind == NoteKind::Hello && note.channel_offset != 0 && !peer.in.is_open() &&
      attach_channel(peer, file, note.channel_offset)) {
    peer.state = PeerState::Known;
    active_.add(peer, os::monotonic_ns());
    paths_.tell_announced(peer);
    doorbells_.ring_own(peer);  // what it wrote before we looked
  } else if (peer.short_at_ns != short_before_ns) {
    tell_shortage(note.address, note.nonce);
  }
  if (note.wants_reply != 0) send_note(peer, NoteKind::Reply, true);
}

bool Link::is_memory_of(const os::Fd& file, const std::array<char, address_bytes>& address,
                        uint64_t nonce) const noexcept {
  if (!owner_.memory_is_sound(file) || os::memory_size(file) < header_bytes) return false;
  HeaderStart start;  // a load from a mapping could find no memory for a page that nobody has written
  return os::read_memory(file, 0, &start, sizeof(start)) && start.magic == region_magic &&
         start.version == layout_version && start.nonce == nonce && start.header_size == header_bytes &&
         start.channel_size == channel_bytes && start.address == address;
}

bool Link::attach_header(Peer& peer, const os::Fd& file, uint64_t nonce) noexcept {
  if (!is_memory_of(file, peer.address, nonce)) return false;
  auto map = os::map_memory(file, 0, header_bytes);
  if (!map || !os::have_pages(*map, sizeof(RegionHeader))) {
    lacks(peer, map ? ENOMEM : map.error().code);
    return false;
  }
  peer.remote_map = std::move(*map);
  peer.remote = peer.remote_map.as<RegionHeader>();
  peer.nonce = nonce;
  if (peer.state != PeerState::Known && peer.hello_sent) peer.state = PeerState::Known;
  return true;
}

bool Link::attach_channel(Peer& peer, const os::Fd& file, uint64_t offset) noexcept {
  WEFT_ASSERT(!peer.in.takes_frames() && !peer.active);
  const size_t size = os::memory_size(file);
  if (!owner_.memory_is_sound(file) || offset < header_bytes ||
      (offset - header_bytes) % channel_bytes != 0 || offset > size || size - offset < channel_bytes)
    return false;
  auto map = os::map_memory(file, offset, channel_bytes);
  if (!map || !os::have_pages(*map, page_bytes)) {
    lacks(peer, map ? ENOMEM : map.error().code);
    return false;
  }
  peer.in.open(std::move(*map));
  peer.in.warm();
  doorbells_.add(peer);
  peer.in.control()->doorbell.store(peer.doorbell + 1, std::memory_order_seq_cst);
  return true;
}

// Before the socket is closed: what unknown peers have put into its queue would be dropped by our close(2).
void Link::close_socket() noexcept {
  os::stop_datagrams(socket_);
  const uint64_t until = os::monotonic_ns() + 500'000'000;
  while (os::monotonic_ns() < until && (take_datagram(false) || disposal_.busy())) {
  }
  Note note{};
  os::Sender sender;
  // A machine that is short of processors may not have run the thread yet. What is left in the queue goes with the socket, on another thread.
  os::Disposal rest;
  if (os::peek_datagram(socket_, std::as_writable_bytes(std::span(&note, 1)), sender) > 0)
    rest.close(std::move(socket_));
  disposal_.finish();
  rest.finish();
  socket_.reset();
}

}  // namespace weft::link::shm
