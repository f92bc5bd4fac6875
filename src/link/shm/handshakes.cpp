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
#include "link/shm/handshakes.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "base/assert.hpp"
#include "base/settings.hpp"
#include "os/clock.hpp"
#include "os/shortage.hpp"
#include "os/unix_socket.hpp"

namespace weft::link::shm {
namespace {

constexpr uint64_t ms_ns = 1'000'000;
// A peer that does not answer for so long is unreachable: while its name is not bound; while it is, and no pidfd tells of its death (as long as tcp waits
// for a welcome).
constexpr uint64_t meet_timeout_ns = 5'000 * ms_ns;
constexpr uint64_t answer_timeout_ns = 300'000 * ms_ns;
constexpr uint64_t check_gap_ns_max =
    500 * ms_ns;  // of the time between two looks, at most, as time in which an answer was waited for
constexpr uint64_t first_hello_pause_ns = 200 * ms_ns;
constexpr uint64_t longest_hello_pause_ns = 10'000 * ms_ns;
constexpr uint64_t check_ns_limit = 2'000'000;      // for one look at the socket
constexpr uint64_t slow_disposal_ns = 200'000'000;  // what a loaded machine may take to run a thread
constexpr int disposal_spins = 4000;  // about as long as a thread needs that has nothing to sleep on

bool is_sound(const Note& note, size_t bytes, uint64_t token) noexcept {
  return bytes == sizeof(note) && note.token == token && note.magic == region_magic &&
         note.version == layout_version && note.address.back() == 0 && note.address.front() != 0 &&
         note.alias_length <= alias_bytes;
}

bool brings_descriptors(const Note& note) noexcept {
  return note.kind == NoteKind::Hello || note.kind == NoteKind::Reply;
}

// The n-th other name for who finds a service's name taken. False: only names of services have one, and it must fit.
constexpr int second_names_max = 1000;
bool second_name(std::string_view name, int pid, int n, std::array<char, address_bytes>& out) noexcept {
  if (!name.starts_with("fi_ns://")) return false;
  out = {};
  const int length =
      std::snprintf(out.data(), out.size(), "%.*s:%d:%d", static_cast<int>(name.size()), name.data(), pid, n);
  return length > 0 && static_cast<size_t>(length) < out.size();
}

}  // namespace

// --- opening ---

Result<void> Handshakes::open(std::string_view name) {
  nonce_ = os::random_bits();
  std::array<char, address_bytes> address{};
  if (name.empty()) {
    std::snprintf(address.data(), address.size(), "fi_shm://%d:%d:%016llx", owner_.pid(), file_.fd().get(),
                  static_cast<unsigned long long>(nonce_));
  } else {
    if (name.size() >= address_bytes)
      return Error{ENAMETOOLONG, "a shared memory address has at most 47 characters"};
    std::copy(name.begin(), name.end(), address.begin());
  }
  const auto bind = [&] {
    const std::string_view text = text_of(address);
    return os::bind_datagram(SocketName(text), offsetof(Note, token), token_of(text));
  };
  auto socket = bind();
  for (int n = 0; !socket && socket.error().code == EADDRINUSE && n < second_names_max; ++n) {
    if (!second_name(name, owner_.pid(), n, address)) break;
    socket = bind();
  }
  if (!socket) return Error{socket.error().code, std::string(text_of(address)) + ": " + socket.error().why};
  socket_ = std::move(*socket);
  if (!epoll_.add(socket_.get())) return Error{errno, "cannot watch the endpoint's socket"};
  auto liveness = os::open_liveness();
  if (!liveness) return liveness.error();
  liveness_ = std::move(*liveness);
  address_ = address;
  return {};
}

void Handshakes::set_alias(std::span<const std::byte> alias) noexcept {
  alias_length_ = static_cast<uint32_t>(std::min(alias.size(), alias_.size()));
  std::copy_n(alias.begin(), alias_length_, alias_.begin());
}

void Handshakes::abandon() noexcept {
  disposal_.forget();
  socket_.reset();
  liveness_ = {};
}

// --- time ---

Handshakes::Round Handshakes::begin_round(uint64_t now_ns) noexcept {
  const uint64_t checked = std::exchange(checked_at_ns_, now_ns);
  return {now_ns,
          checked == 0 || now_ns - checked <= check_gap_ns_max ? 0 : now_ns - checked - check_gap_ns_max,
          false};
}

Handshakes::Seen Handshakes::check(Peer& peer, Round& round) noexcept {
  const uint64_t now_ns = round.now_ns;
  // While this process did not look, an answer could not be seen.
  if (round.away_ns != 0 && peer.handshake.asked_at_ns != 0)
    peer.handshake.asked_at_ns = std::min(now_ns, peer.handshake.asked_at_ns + round.away_ns);
  if (peer.out.is_open() && hello_is_due(peer, now_ns)) send_hello(peer);
  bool unanswered = peer.remote == nullptr && peer.shortage.since_ns == 0 &&
                    now_ns - peer.handshake.met_at_ns > meet_timeout_ns;
  if (const SocketName name(text_of(peer.address));
      unanswered && peer.handshake.hello_sent && os::is_bound(name)) {
    // A name that the library chose goes with its endpoint.
    unanswered = !peer.chosen_by_library && peer.handshake.asked_at_ns != 0 && !peer.out.is_attached() &&
                 now_ns > peer.handshake.asked_at_ns + answer_timeout_ns;
    if (round.has_asked && !unanswered) return Seen::Later;  // it is a look at every socket of the machine
    round.has_asked = true;
    if (owner_.belongs_to_other(name)) refuse(peer);
    peer.handshake.met_at_ns = now_ns;  // it is there and busy with something else
  }
  end_shortage(peer, now_ns);
  const bool left = peer.has_closed();
  if (!left && !unanswered) log_silence(peer, now_ns);
  return unanswered || left || peer.shortage.gave_up ? Seen::Over : Seen::Well;
}

// --- channels ---

bool Handshakes::open_channel(Peer& peer) noexcept try {
  WEFT_ASSERT(!peer.out.is_open() && peer.reserved == nullptr);
  if (auto grown = file_.grow(); !grown) {
    peer.mute = true;
    warnings_.once(Warnings::Memory, grown.error().why.c_str());
    return false;
  }
  auto map = file_.acquire(peer.channel);
  if (!map) {
    peer.mute = true;
    warn_of_shortage(peer.address, map.error().code);
    return false;
  }
  peer.mute = false;
  peer.out.open(std::move(*map));
  if (peer.channel < warm_channels) peer.out.warm();
  count_unsent_hellos(1);
  return true;
} catch (...) {
  return false;
}

void Handshakes::count_unsent_hellos(ptrdiff_t change) noexcept {
  WEFT_ASSERT(change > 0 || unsent_hellos_ != 0);
  unsent_hellos_ += static_cast<size_t>(change);
  if (unsent_hellos_ != 0) checks_.hurry();
}

void Handshakes::probe_cma(Peer& peer) noexcept {
  if (peer.pid <= 0 || peer.remote == nullptr || !settings::flag("WEFT_CMA")) return;
  peer.memory.probe(peer.pid, peer.remote->probe_address, peer.remote->probe_value);
}

void Handshakes::watch(Peer& peer) noexcept {
  if (peer.pidfd && !epoll_.add(peer.pidfd.get(), &peer))
    warnings_.once(
        Warnings::Deaths,
        "the death of peers may go unnoticed: the kernel watches no more descriptors for this user "
        "(raise fs.epoll.max_user_watches)");
}

// A hello may find no room, or be lost at a receiver that is short of descriptors or memory, and so may the answer: it is repeated, more and
// more rarely, until the peer has attached and we know it.
bool Handshakes::hello_is_due(Peer& peer, uint64_t now_ns) noexcept {
  if (!peer.handshake.hello_sent) return true;
  // Attached, the peer has answered, and a lost answer is asked for again. Before that only what is in the ring is worth it.
  const bool attached = peer.out.control()->doorbell.load(std::memory_order_relaxed) != 0;
  if (attached ? peer.remote != nullptr : peer.out.next() == 0) return false;
  if (peer.handshake.hello_pause_ns == 0 || peer.shortage.since_ns != 0)
    peer.handshake.hello_pause_ns = first_hello_pause_ns;
  if (now_ns - peer.handshake.hello_at_ns < peer.handshake.hello_pause_ns) return false;
  peer.handshake.hello_pause_ns = std::min(2 * peer.handshake.hello_pause_ns, longest_hello_pause_ns);
  return true;
}

// --- out ---

// Is the peer's file at hand? Then its doorbells are, too. Without something that tells of its death the note that it sends has to bring both.
void Handshakes::find_by_process(Peer& peer) noexcept {
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

Note Handshakes::note_to(const std::array<char, address_bytes>& whom, NoteKind kind) const noexcept {
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

void Handshakes::send_note(Peer& peer, NoteKind kind, bool with_files) noexcept {
  const SocketName name(text_of(peer.address));
  if (peer.foreign) return;
  if (kind == NoteKind::Hello) peer.handshake.hello_at_ns = os::monotonic_ns();
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
    if (there && !belongs_to_user(peer, name, error) && !os::is_shortage(error)) return refuse(peer);
    const std::array<int, 2> fds{file_.fd().get(), liveness_.shown.get()};
    sent = error == 0 ? os::send_datagram(there, {}, bytes, fds) : -error;
    if (os::may_refuse_descriptors(-sent)) sent = os::send_datagram(there, {}, bytes, {});
  } else {
    sent = os::send_datagram(socket_, name, bytes, {});
  }
  if (kind == NoteKind::Wake) return;
  if (sent == 0) {
    if (kind == NoteKind::Hello) {
      if (!std::exchange(peer.handshake.hello_sent, true)) count_unsent_hellos(-1);
      if (peer.handshake.asked_at_ns == 0) peer.handshake.asked_at_ns = peer.handshake.hello_at_ns;
    }
    if (kind == NoteKind::Hello && peer.state == PeerState::New) peer.state = PeerState::HelloSent;
    // The note wakes a sleeper. Its flag stays: it may have read the note already and sleep again, and then the next frame has to wake it.
    if (peer.remote != nullptr) peer.remote->pending.fetch_or(pending_socket, std::memory_order_seq_cst);
  } else if (sent == -ECONNREFUSED &&
             (peer.state == PeerState::Known || peer.remote != nullptr || peer.chosen_by_library)) {
    dying_.add(peer);  // its socket is gone, so it is; only a name that a program chose may yet appear
  } else if (sent == -ECONNREFUSED) {
    peer.handshake.asked_at_ns = 0;  // who has read nothing is gone; the next one has its own time
    peer.handshake.is_silent = false;
  } else if (os::is_shortage(-sent)) {
    lacks(peer, -sent);
    if (kind == NoteKind::Reply) send_shortage(peer.address, peer.nonce);
  }
}

void Handshakes::send_hello(Peer& peer) noexcept { send_note(peer, NoteKind::Hello, true); }

// Whether the name is bound by the peer that we know, or by another process of our user. An endpoint that is gone has said so in its header, or its
// process has ended.
bool Handshakes::belongs_to_user(const Peer& peer, std::string_view name, int& error) const noexcept {
  if (peer.remote != nullptr && peer.pidfd && !peer.has_closed() && !os::has_exited(peer.pidfd)) return true;
  return owner_.has_bound(name, error);
}

// The peer is another user's: what is pending with it ends, and for a while it is not tried again.
void Handshakes::refuse(Peer& peer) noexcept {
  peer.foreign = true;
  refused_.add(token_of(text_of(peer.address)), os::monotonic_ns());
  dying_.add(peer);
}

// Before a first contact. An address that the library chose is found out later: nobody else can have bound its name before it was known.
bool Handshakes::is_foreign(std::string_view address) noexcept {
  if (refused_.has(token_of(address), os::monotonic_ns())) return true;
  ChosenAddress chosen;
  const SocketName name(address);
  if (parse_chosen(address, chosen) || !os::is_bound(name) || !owner_.belongs_to_other(name)) return false;
  refused_.add(token_of(address), os::monotonic_ns());
  return true;
}

// --- in ---

void Handshakes::read_socket() noexcept {
  receive_notes();
  if (active_.is_armed()) stay_armed();
}

// While one thread sleeps another polls, and has just read what may have been meant to wake the first.
void Handshakes::stay_armed() noexcept {
  file_.header()->sleeping.store(1, std::memory_order_seq_cst);
  if (file_.header()->pending.load(std::memory_order_seq_cst) == 0 ||
      file_.header()->sleeping.exchange(0) == 0)
    return;
  const Note note = note_to(address_, NoteKind::Wake);
  (void)os::send_datagram(socket_, SocketName(text_of(address_)), std::as_bytes(std::span(&note, 1)), {});
}

void Handshakes::receive_notes() noexcept {
  const uint64_t until = os::monotonic_ns() + check_ns_limit;
  for (int i = 0; i < 256 && os::monotonic_ns() < until; ++i)
    if (!receive_note(true)) return;
  file_.header()->pending.fetch_or(pending_socket);  // more may wait
}

// False: there is none, or what the last one brought is not let go of yet; then the next look goes on.
bool Handshakes::receive_note(bool listening) noexcept {
  const int spins = was_busy_ ? 0 : disposal_spins;
  for (int i = 0; i < spins && disposal_.busy(); ++i) arch::pause();
  if (disposal_.busy()) {
    was_busy_ = true;
    if (disposal_.age_ns() > slow_disposal_ns)
      warnings_.once(Warnings::Disposal,
                     "a descriptor that came with a handshake cannot be closed; handshakes wait meanwhile");
    return false;
  }
  was_busy_ = false;
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
  if (liveness && !os::can_report_exit(liveness)) disposal_.close(os::Fd(liveness.release()));
  if (!sound || !listening) return true;
  if (note.kind == NoteKind::Wake) handle_wake(note);
  if (note.kind == NoteKind::Shortage || note.kind == NoteKind::NotPassed) handle_shortage(note, sender.pid);
  if (!brings_descriptors(note)) return true;
  if (file && liveness) read_handshake(note, file, liveness, sender.pid);
  else if (datagram.lack != 0) lacks_for(note, datagram.lack);  // the peer repeats it
  else if (missing) handle_without_descriptors(note, sender.pid);
  return true;
}

void Handshakes::read_handshake(const Note& note, os::Fd& file, os::Fd& liveness, int32_t pid) noexcept {
  try {
    handle_note(note, file, liveness, pid);
  } catch (...) {  // out of memory: as if the datagram had been lost; the peer repeats it
  }
}

// The descriptors of a handshake of our user did not arrive: both are opened by the number of the process, which the kernel vouches for. The pidfd comes
// first and its process has not exited afterwards, so the file was of that process; the nonce shows that the file is of the endpoint that sent the Hello.
void Handshakes::handle_without_descriptors(const Note& note, int32_t pid) noexcept {
  errno = 0;
  os::Fd liveness = pid > 0 ? os::open_process(pid) : os::Fd{};
  os::Fd file = liveness ? owner_.open_memory_of(pid, note.file, file_.fd()) : os::Fd{};
  const int code = errno;
  if (liveness ? os::has_exited(liveness) : code == ESRCH) {
    warn_of_exited(note, pid);
  } else if (file && is_memory_of(file, note.address, note.nonce)) {
    note_not_passed();
    read_handshake(note, file, liveness, pid);
  } else if (!file && os::is_shortage(code)) {
    lacks_for(note, code);
  } else {
    misses_descriptors_of(note, pid, file ? 0 : code);
  }
}

// What another user sent, bytes only. Who sent a Hello learns that it is no use. A refusal counts only from a peer that has ours, and with it our nonce.
void Handshakes::turn_away(const Note& note, uid_t uid) noexcept {
  if (note.kind == NoteKind::Refusal) {
    Peer* const asked = peers_.find(text_of(note.address));
    if (asked == nullptr || asked->remote != nullptr || note.nonce != nonce_) return;
    refuse(*asked);
    return;
  }
  if (note.kind != NoteKind::Hello && note.kind != NoteKind::Reply) return;
  const std::string_view name = text_of(note.address);
  warnings_.once(
      Warnings::User,
      Line("a handshake of %.*s, a process of user %u, was refused: shared memory joins processes of "
           "one user, and this one is of user %u",
           static_cast<int>(name.size()), name.data(), uid, ::geteuid())
          .get());
  Note refusal = note_to(note.address, NoteKind::Refusal);
  refusal.nonce = note.nonce;
  (void)os::send_datagram(socket_, SocketName(name), std::as_bytes(std::span(&refusal, 1)), {});
}

// It cannot ring: look at its ring in its stead.
void Handshakes::handle_wake(const Note& note) noexcept {
  Peer* const sender = peers_.find(text_of(note.address));
  if (sender != nullptr && sender->in.is_open()) doorbells_.ring_own(*sender);
}

void Handshakes::handle_note(const Note& note, os::Fd& file, os::Fd& liveness, int32_t pid) {
  const std::string key(text_of(note.address));
  Peer* known = peers_.find(key);
  if (known != nullptr && known->nonce != 0 && known->nonce != note.nonce) {
    Peer& old = *known;  // somebody new under an old name
    host_.replace(old);  // out of every list: a new peer may get the same memory
    known = nullptr;
  }
  if (known == nullptr) {
    if (note.kind != NoteKind::Hello) return;
    host_.make_room();
    std::span<const std::byte> known_as = std::as_bytes(std::span(note.address));
    if (note.alias_length != 0) known_as = std::span(note.alias).first(note.alias_length);
    PeerTable::Reservation reservation(peers_, key);
    known = host_.make_peer(known_as);
    if (known == nullptr) return;  // the owner makes nothing of that name
    known->address = note.address;
    known->handshake.met_at_ns = os::monotonic_ns();
    reservation.assign(*known);
  }
  Peer& peer = *known;
  const uint64_t short_before_ns = peer.shortage.at_ns;
  if (peer.remote == nullptr && !attach_header(peer, file, note.nonce)) {
    if (peer.shortage.at_ns != short_before_ns) send_shortage(note.address, note.nonce);
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
    paths_.expect_announced(peer);
    doorbells_.ring_own(peer);  // what it wrote before we looked
  } else if (peer.shortage.at_ns != short_before_ns) {
    send_shortage(note.address, note.nonce);
  }
  if (note.wants_reply != 0) send_note(peer, NoteKind::Reply, true);
}

bool Handshakes::is_memory_of(const os::Fd& file, const std::array<char, address_bytes>& address,
                              uint64_t nonce) const noexcept {
  if (!owner_.memory_is_sound(file) || os::memory_size(file) < header_bytes) return false;
  HeaderStart start;  // a load from a mapping could find no memory for a page that nobody has written
  return os::read_memory(file, 0, &start, sizeof(start)) && start.magic == region_magic &&
         start.version == layout_version && start.nonce == nonce && start.header_size == header_bytes &&
         start.channel_size == channel_bytes && start.address == address;
}

bool Handshakes::attach_header(Peer& peer, const os::Fd& file, uint64_t nonce) noexcept {
  if (!is_memory_of(file, peer.address, nonce)) return false;
  auto map = os::map_memory(file, 0, header_bytes);
  if (!map || !os::have_pages(*map, sizeof(RegionHeader))) {
    lacks(peer, map ? ENOMEM : map.error().code);
    return false;
  }
  peer.remote_map = std::move(*map);
  peer.remote = peer.remote_map.as<RegionHeader>();
  peer.nonce = nonce;
  if (peer.state != PeerState::Known && peer.handshake.hello_sent) peer.state = PeerState::Known;
  return true;
}

bool Handshakes::attach_channel(Peer& peer, const os::Fd& file, uint64_t offset) noexcept {
  WEFT_ASSERT(!peer.in.takes_frames() && !peer.activity.active);
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
  // An exchange: what was sent before a fetch_or() of ring_unmapped() that this replaces is visible to the first look.
  (void)peer.in.control()->doorbell.exchange(peer.doorbell + 1, std::memory_order_seq_cst);
  return true;
}

// Before the socket is closed: what unknown peers have put into its queue would be dropped by our close(2).
void Handshakes::close() noexcept {
  os::stop_datagrams(socket_);
  const uint64_t until = os::monotonic_ns() + 500'000'000;
  while (os::monotonic_ns() < until && (receive_note(false) || disposal_.busy())) {
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
  liveness_ = {};
}

}  // namespace weft::link::shm
