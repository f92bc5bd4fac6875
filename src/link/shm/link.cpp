// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The cold side of the shared memory link: opening, peers and their channels, sleeping, noticing deaths, giving memory back. The meeting is
// in greeting.cpp.
#include "link/shm/link.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <new>

#include "base/assert.hpp"
#include "base/settings.hpp"
#include "link/shm/greeting.hpp"
#include "link/shm/in_place.hpp"
#include "os/clock.hpp"
#include "os/poll_set.hpp"
#include "os/process.hpp"
#include "os/shortage.hpp"
#include "os/unix_socket.hpp"

namespace weft::link::shm {
namespace {

constexpr uint64_t ms_ns = 1'000'000;
constexpr uint64_t look_interval_ns = 1 * ms_ns;
constexpr uint64_t housekeeping_interval_ns = 10 * ms_ns;
// A peer that does not answer for so long is unreachable: while its name is not bound; while it is, and no pidfd tells of its death (as long as tcp waits
// for a welcome).
constexpr uint64_t meet_timeout_ns = 5'000 * ms_ns;
constexpr uint64_t answer_timeout_ns = 300'000 * ms_ns;
constexpr uint64_t look_counts_ns =
    500 * ms_ns;  // of the time between two looks, at most, as time in which an answer was waited for
constexpr uint64_t demotion_ns = 2 * ms_ns;  // far longer than a store takes to be seen
constexpr uint64_t close_linger_ns =
    500 * ms_ns;  // to hand over a hello that the other socket had no room for
constexpr uint64_t first_hello_pause_ns = 200 * ms_ns;
constexpr uint64_t longest_hello_pause_ns = 10'000 * ms_ns;
constexpr uint32_t doorbells_to_promote = 4;

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

Link::Link() = default;
Link::~Link() { close(); }

Result<void> Link::open(std::string_view name, Events& events) {
  events_ = &events;
  owner_.take();
  paths_.read_setting();
  fences_ = os::register_for_fence();
  if (auto allowed = os::check_file_limit(header_bytes + channel_bytes); !allowed) return allowed;
  auto file = os::create_memory("weft-shm", header_bytes);
  if (!file) return file.error();
  file_ = std::move(*file);
  file_bytes_ = header_bytes;
  auto map = os::map_memory(file_, 0, header_bytes);
  if (!map) return map.error();
  header_map_ = std::move(*map);
  auto* header = header_map_.as<RegionHeader>();

  nonce_ = os::random_bits();
  header->nonce = nonce_;
  std::array<char, address_bytes> address{};
  if (name.empty()) {
    std::snprintf(address.data(), address.size(), "fi_shm://%d:%d:%016llx", owner_.pid(), file_.get(),
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
  auto set = os::PollSet::create();
  if (!set) return set.error();
  epoll_ = std::move(*set);
  if (!epoll_.add(socket_.get())) return Error{errno, "cannot watch the endpoint's socket"};
  auto liveness = os::open_liveness();
  if (!liveness) return liveness.error();
  liveness_ = std::move(*liveness);

  probe_word_ = os::random_bits();
  header->version = layout_version;
  header->fences = fences_ ? 1 : 0;
  header->header_size = header_bytes;
  header->channel_size = channel_bytes;
  address_ = address;
  header->address = address;
  header->probe_address = reinterpret_cast<uint64_t>(&probe_word_);
  header->probe_value = probe_word_;
  header->pid_namespace = os::pid_namespace();
  header->magic = region_magic;
  by_doorbell_ = std::make_unique<std::array<Peer*, doorbell_count>>();
  by_doorbell_->fill(nullptr);
  rate_.start(arch::ticks(), os::monotonic_ns());
  header_ = header;
  shown_ =
      os::StatisticsEntry::open(os::StatisticsEntry::Kind::Path, "shm", text_of(address_), events.shown_as());
  show();
  return {};
}

std::span<const std::byte> Link::address() const noexcept { return std::as_bytes(std::span(address_)); }

void Link::set_alias(std::span<const std::byte> alias) noexcept {
  alias_length_ = static_cast<uint32_t>(std::min(alias.size(), alias_.size()));
  std::copy_n(alias.begin(), alias_length_, alias_.begin());
}

bool Link::belongs_here() const noexcept { return header_ == nullptr || owner_.is_here(); }

void Link::close() noexcept {
  if (header_ == nullptr) return;
  if (!belongs_here()) {
    abandon_inherited();
    return;
  }
  paths_.note_all();
  show();
  shown_.close();
  // A hello that found no room in the other socket still carries what was sent: hand it over now.
  const uint64_t until = os::monotonic_ns() + close_linger_ns;
  for (auto& [name, peer] : peers_) {
    while (peer->state == PeerState::New && !peer->foreign && peer->out.next() > 0 &&
           os::monotonic_ns() < until) {
      greet(*peer);
      arch::pause();
    }
  }
  for (auto& [name, peer] : peers_)
    if (peer->in.is_open()) peer->in.give_slots_back();
  header_->closed.store(1, std::memory_order_release);
  for (auto& [name, peer] : peers_) {
    if (!peer->out.is_open()) continue;
    peer->out.control()->closed.store(1, std::memory_order_release);
    ring_doorbell(*peer);
  }
  while (!peers_.empty()) forget(*peers_.begin()->second);
  header_ = nullptr;
  header_map_ = {};
  free_channels_.clear();
  channels_ = 0;
  rung_.clear();
  lost_.clear();
  dying_.clear();
  lent_.clear();
  reserved_.clear();
  file_.reset();
  close_socket();
  epoll_.reset();
  liveness_ = {};
}

// A forked child lets go of its copies and touches nothing that it shares with its parent: channels, the epoll set, the socket's name.
void Link::abandon_inherited() noexcept {
  for (auto& [name, peer] : peers_) {
    peer->in.leave();
    peer->out.leave();
    peer->remote = nullptr;
    peer->state = PeerState::Lost;
  }
  peers_.clear();
  active_count_ = 0;
  header_ = nullptr;
  header_map_ = {};
  file_.reset();
  disposal_.forget();
  socket_.reset();
  epoll_.reset();
  liveness_ = {};
}

// Throws std::bad_alloc here, before a peer is made, so that putting it on a list never does.
void Link::make_room() {
  const size_t peers = peers_.size() + 1;
  if (rung_.capacity() < peers + events_per_look) rung_.reserve(2 * (peers + events_per_look));
  lost_.reserve(peers + events_per_look);
  dying_.reserve(peers + events_per_look);
}

Peer* Link::connect(std::span<const std::byte> address, int& error) {
  error = 0;
  std::string key(reinterpret_cast<const char*>(address.data()), std::min(address.size(), address_bytes));
  key.resize(::strnlen(key.data(), key.size()));
  if (key.empty() || key.size() >= address_bytes) {
    error = EINVAL;
    return nullptr;
  }
  if (Peer* found = peers_.find(key); found != nullptr && found->state != PeerState::Lost) {
    Peer& known = *found;
    if (!known.out.is_open() && !open_channel(known)) error = ENOMEM;
    if (error == 0 && !known.hello_sent) greet(known);
    return error == 0 ? &known : nullptr;
  }
  if (is_foreign(key)) {
    error = EACCES;
    return nullptr;
  }
  std::array<char, address_bytes> padded{};
  std::copy(key.begin(), key.end(), padded.begin());
  make_room();
  PeerTable::Place place(peers_, key);
  Peer* peer = events_->make_peer(std::as_bytes(std::span(padded)));
  peer->address = padded;
  peer->met_at_ns = os::monotonic_ns();
  if (!open_channel(*peer)) {
    error = ENOMEM;
    detach(*peer);
    events_->peer_lost(*peer, core::ProviderError::NoChannel);
    return nullptr;
  }
  place.take(*peer);
  find_by_process(*peer);
  greet(*peer);
  return peer;
}

void Link::forget(Peer& peer) noexcept {
  detach(peer);
  (void)peers_.erase(text_of(peer.address));
  lost_.erase(peer);
  dying_.erase(peer);
  std::erase(rung_, &peer);
}

// --- sending ---

bool Link::send(Peer& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
                const iovec* parts, size_t part_count) noexcept {
  if (!peer.out.is_open()) [[unlikely]] {  // it spoke first; this is our first answer
    if (peer.state == PeerState::Lost) return false;
    if (!open_channel(peer)) {
      if (peer.mute) lose(peer);  // what waits for our answer ends
      return false;
    }
    greet(peer);
  }
  switch (peer.out.put(head, prefix, parts, part_count, peer.in)) {
    case SendRing::Put::Refused:
      return false;
    case SendRing::Put::Unseen:
      ring_doorbell(peer);
      break;
    case SendRing::Put::Seen:
      break;
  }
  return true;
}

void Link::ring_doorbell(Peer& peer) noexcept {
  if (peer.remote == nullptr) {
    // The hello on its way is the doorbell. Once it has been read and the answer waits with us, only a datagram reaches the peer. An atomic
    // read-modify-write: the slot before it is visible first (pairs with attach_channel()).
    if (peer.out.control()->doorbell.fetch_or(0, std::memory_order_seq_cst) != 0)
      send_note(peer, NoteKind::Wake, false);
    return;
  }
  uint32_t doorbell = peer.out.control()->doorbell.load(std::memory_order_relaxed);
  if (doorbell == 0) {
    peer.remote->pending.fetch_or(pending_socket, std::memory_order_seq_cst);
    // It may have attached, and looked at the ring, before our slot was visible; now it is (pairs with attach_channel()).
    doorbell = peer.out.control()->doorbell.load(std::memory_order_seq_cst);
  }
  if (doorbell != 0 && doorbell <= doorbell_count) {
    const uint32_t index = doorbell - 1;
    // Sequentially consistent: the slot before it is visible, and the look at `sleeping` comes after it (pairs with arm()).
    peer.remote->doorbells[index / 64].fetch_or(uint64_t{1} << (index % 64), std::memory_order_seq_cst);
    peer.remote->pending.fetch_or(uint64_t{1} << (index / 64), std::memory_order_seq_cst);
  }
  if (peer.remote->sleeping.load(std::memory_order_seq_cst) != 0 && peer.remote->sleeping.exchange(0) != 0)
    send_note(peer, NoteKind::Wake, false);
}

// --- receiving ---

int Link::reject(Peer& peer, const char* what) noexcept {
  if (!peer.malformed) warn_of_malformed(peer, what);
  peer.malformed = true;
  deactivate(peer);
  peer.in.stop();
  lose(peer);
  return 0;
}

void Link::ring_own_doorbell(Peer& peer) noexcept {
  header_->doorbells[peer.doorbell / 64].fetch_or(uint64_t{1} << (peer.doorbell % 64));
  header_->pending.fetch_or(uint64_t{1} << (peer.doorbell / 64));
}

void Link::collect_rung(uint64_t words) noexcept {
  while (words != 0) {
    const auto word = static_cast<size_t>(__builtin_ctzll(words));
    words &= words - 1;
    if (word >= doorbell_words) continue;
    uint64_t bits = header_->doorbells[word].exchange(0, std::memory_order_acq_rel);
    while (bits != 0) {
      const size_t index = word * 64 + static_cast<size_t>(__builtin_ctzll(bits));
      WEFT_ASSERT(index < doorbell_count);
      bits &= bits - 1;
      for (Peer* peer = (*by_doorbell_)[index]; peer != nullptr; peer = peer->next_same_doorbell) {
        rung_.push_back(peer);
        if (!peer->active && ++peer->doorbells >= doorbells_to_promote) activate(*peer);
      }
    }
  }
}

// Takes the peer into the list that every poll looks at. When the list is full somebody quiet has to leave, slowly: it is still looked at
// until no doorbell can have been missed (finish_demotions()).
void Link::activate(Peer& peer) noexcept {
  if (peer.active || !peer.in.takes_frames()) return;  // not met yet, or rejected
  if (active_count_ == active_max) {
    const uint64_t now = os::monotonic_ns();
    Peer* quiet = nullptr;
    for (size_t i = 0; i < active_count_; ++i)
      if (!active_[i]->demoting && (quiet == nullptr || active_[i]->rang_at_ns < quiet->rang_at_ns))
        quiet = active_[i];
    if (quiet != nullptr && now - quiet->rang_at_ns > 10 * demotion_ns) {
      quiet->demoting = true;
      quiet->demoted_at_ns = now;
      quiet->in.control()->polled.store(0, std::memory_order_seq_cst);
    }
    peer.doorbells = 0;
    return;
  }
  WEFT_ASSERT(active_count_ < active_max);
  active_[active_count_++] = &peer;
  peer.active = true;
  peer.demoting = false;
  peer.rang_at_ns = os::monotonic_ns();
  // Without the asymmetric fence on both sides a sender must ring (a locked instruction) every time.
  const bool silent = fences_ && peer.remote != nullptr && peer.remote->fences != 0 && !armed_;
  peer.in.control()->polled.store(silent ? 1 : 0, std::memory_order_seq_cst);
}

void Link::deactivate(Peer& peer) noexcept {
  if (!peer.active) return;
  for (size_t i = 0; i < active_count_; ++i) {
    if (active_[i] != &peer) continue;
    WEFT_ASSERT(active_count_ != 0);
    active_[i] = active_[--active_count_];
    break;
  }
  WEFT_ASSERT(std::find(active_.begin(), active_.begin() + static_cast<std::ptrdiff_t>(active_count_),
                        &peer) == active_.begin() + static_cast<std::ptrdiff_t>(active_count_));
  peer.active = false;
  peer.demoting = false;
  peer.doorbells = 0;
  if (peer.in.is_open()) peer.in.control()->polled.store(0, std::memory_order_seq_cst);
}

void Link::finish_demotions(uint64_t now_ns) noexcept {
  for (size_t i = active_count_; i-- > 0;) {
    Peer& peer = *active_[i];
    if (!peer.demoting || now_ns - peer.demoted_at_ns < demotion_ns) continue;
    deactivate(peer);
    if (peer.in.has_frame()) ring_own_doorbell(peer);
  }
}

// --- meeting ---

bool Link::open_channel(Peer& peer) noexcept try {
  WEFT_ASSERT(!peer.out.is_open() && peer.reserved == nullptr);
  if (free_channels_.empty()) {
    const size_t need = header_bytes + (channels_ + 1) * channel_bytes;
    if (auto grown = os::grow_memory(file_, need); !grown) {
      peer.mute = true;
      warn_once(warned_memory, grown.error().why.c_str());
      return false;
    }
    file_bytes_ = need;
    free_channels_.push_back(channels_++);
  }
  const size_t index = free_channels_.back();
  WEFT_ASSERT(index < channels_);
  auto map = os::map_memory(file_, header_bytes + index * channel_bytes, channel_bytes);
  if (!map) {
    peer.mute = true;
    warn_of_shortage(peer.address, map.error().code);
    return false;
  }
  peer.mute = false;
  free_channels_.pop_back();
  peer.channel = index;
  peer.out.open(std::move(*map));
  if (index < ready_channels) peer.out.warm();
  count_ungreeted(1);
  return true;
} catch (...) {
  return false;
}

void Link::count_ungreeted(ptrdiff_t change) noexcept {
  WEFT_ASSERT(change > 0 || ungreeted_ != 0);
  ungreeted_ += static_cast<size_t>(change);
  if (ungreeted_ != 0) idle_polls_per_look_ = 1;
}

void Link::probe_cma(Peer& peer) noexcept {
  if (peer.pid <= 0 || peer.remote == nullptr || !settings::flag("WEFT_CMA")) return;
  peer.memory.probe(peer.pid, peer.remote->probe_address, peer.remote->probe_value);
}

void Link::watch(Peer& peer) noexcept {
  if (peer.pidfd && !epoll_.add(peer.pidfd.get(), &peer))
    warn_once(warned_deaths,
              "the death of peers may go unnoticed: the kernel watches no more descriptors for this user "
              "(raise fs.epoll.max_user_watches)");
}

// --- time ---

bool Link::look_is_due() noexcept {
  const uint64_t now = os::monotonic_ns();
  if (now < next_look_ns_) {
    if (ungreeted_ == 0) idle_polls_per_look_ = std::min(2 * idle_polls_per_look_, idle_polls_per_look_max);
    return false;
  }
  if (now - next_look_ns_ > look_interval_ns) idle_polls_per_look_ = std::max(idle_polls_per_look_ / 8, 1U);
  next_look_ns_ = now + look_interval_ns;
  return true;
}

void Link::find_lost() noexcept {
  const uint64_t now = os::monotonic_ns();
  std::array<void*, events_per_look> tags{};
  const size_t count = epoll_.ready(tags);
  bool socket_ready = false;
  for (size_t i = 0; i < count; ++i) {
    if (tags[i] == nullptr) socket_ready = true;
    else lost_.add(*static_cast<Peer*>(tags[i]));
  }
  if (socket_ready) read_socket();  // whom it replaces leaves lost_ again
  finish_demotions(now);
  if (now >= next_housekeeping_ns_) {
    next_housekeeping_ns_ = now + housekeeping_interval_ns;
    housekeeping(now);
  }
  for (size_t i = 0; i < dying_.size(); ++i) lost_.add(dying_[i]);
  dying_.clear();
}

void Link::housekeeping(uint64_t now_ns) noexcept {
  rate_.measure(arch::ticks(), now_ns);
  bool asked = false;
  const uint64_t looked = std::exchange(looked_at_ns_, now_ns);
  const uint64_t away =
      looked == 0 || now_ns - looked <= look_counts_ns ? 0 : now_ns - looked - look_counts_ns;
  for (auto& [key, entry] : peers_) {
    Peer& peer = *entry;
    // While this process did not look, an answer could not be seen.
    if (away != 0 && peer.asked_at_ns != 0) peer.asked_at_ns = std::min(now_ns, peer.asked_at_ns + away);
    if (peer.out.is_open() && greeting_is_due(peer, now_ns)) greet(peer);
    bool unanswered =
        peer.remote == nullptr && peer.short_since_ns == 0 && now_ns - peer.met_at_ns > meet_timeout_ns;
    if (const SocketName name(text_of(peer.address)); unanswered && peer.hello_sent && os::is_bound(name)) {
      // A name that the library chose goes with its endpoint.
      unanswered = !peer.chosen_by_library && peer.asked_at_ns != 0 && !peer.out.is_attached() &&
                   now_ns > peer.asked_at_ns + answer_timeout_ns;
      if (asked && !unanswered) continue;  // the next time: it is a look at every socket of the machine
      asked = true;
      if (owner_.belongs_to_other(name)) refuse(peer);
      peer.met_at_ns = now_ns;  // it is there and busy with something else
    }
    end_shortage(peer, now_ns);
    const bool left = peer.has_closed();
    if (!left && !unanswered) log_silence(peer, now_ns);
    if (unanswered || left || peer.gave_up) lose(peer);
    else shared_.look_for_gone_sender(peer);
    if (peer.in.is_open()) peer.in.give_back();
    if (peer.out.is_bulk_idle(now_ns)) give_back_bulk(peer);
  }
  show();
  events_->time_passes();
}

void Link::Carried::add(const Peer& peer) noexcept {
  if (peer.out.is_open()) {
    frames_sent += peer.out.next();
    bytes_sent += peer.out.bulk_sent();
  }
  if (peer.in.is_open()) {
    frames_received += peer.in.next();
    bytes_received += peer.in.bulk_taken();
  }
}

// The positions of the rings are counters; nothing is counted for it.
void Link::show() noexcept {
  if (!shown_) return;
  using Value = os::StatisticsEntry::Value;
  Carried all = gone_;
  all.bytes_sent += by_kernel_.bytes_sent;
  all.bytes_received += by_kernel_.bytes_received;
  uint64_t unread = 0;
  for (const auto& [key, entry] : peers_) {
    const Peer& peer = *entry;
    all.add(peer);
    if (!peer.out.is_open()) continue;
    const uint64_t waiting = peer.out.unread_slots(std::memory_order_relaxed);
    if (waiting <= slot_count) unread += waiting;  // the peer may have written nonsense
  }
  all.bytes_received += paths_.bytes_outside_of_ring();
  shown_.show({{Value::PacketsSent, all.frames_sent},
               {Value::PacketsReceived, all.frames_received},
               {Value::BytesSent, all.bytes_sent},
               {Value::BytesReceived, all.bytes_received},
               {Value::Peers, peers_.size()},
               {Value::SendQueue, unread}});
}

// A hello may find no room, or be lost at a receiver that is short of descriptors or memory, and so may the answer: it is repeated, more and
// more rarely, until the peer has attached and we know it.
bool Link::greeting_is_due(Peer& peer, uint64_t now_ns) noexcept {
  if (!peer.hello_sent) return true;
  // Attached, the peer has answered, and a lost answer is asked for again. Before that only what is in the ring is worth it.
  const bool attached = peer.out.control()->doorbell.load(std::memory_order_relaxed) != 0;
  if (attached ? peer.remote != nullptr : peer.out.next() == 0) return false;
  if (peer.hello_pause_ns == 0 || peer.short_since_ns != 0) peer.hello_pause_ns = first_hello_pause_ns;
  if (now_ns - peer.hello_at_ns < peer.hello_pause_ns) return false;
  peer.hello_pause_ns = std::min(2 * peer.hello_pause_ns, longest_hello_pause_ns);
  return true;
}

// A bulk ring that is empty and has not moved for a while returns its pages, but those of the first window that were there from the beginning.
void Link::give_back_bulk(Peer& peer) noexcept {
  const size_t kept = peer.channel < ready_channels ? bulk_window_bytes : 0;
  os::discard_memory(file_, header_bytes + peer.channel * channel_bytes + channel_bulk_offset + kept,
                     bulk_bytes - kept);
  peer.out.forget_pages(kept);
}

void Link::detach(Peer& peer) noexcept {
  WEFT_ASSERT(peer.state != PeerState::Lost);
  gone_.add(peer);
  deactivate(peer);
  shared_.end_all(peer);
  peer.regions.close();
  // Who may still look at the channel would read what is meant for its next user.
  const bool reusable = !peer.hello_sent || os::has_exited(peer.pidfd) || peer.has_closed();
  keep_ring(peer);
  if (peer.in.is_open()) {
    for (Peer** at = &(*by_doorbell_)[peer.doorbell]; *at != nullptr; at = &(*at)->next_same_doorbell) {
      if (*at != &peer) continue;
      *at = peer.next_same_doorbell;
      break;
    }
    peer.in.leave();
  }
  if (peer.pidfd) {
    epoll_.remove(peer.pidfd.get());
    peer.pidfd.reset();
  }
  if (peer.out.is_open()) {
    peer.unread = peer.out.unread_messages();
    // The memory goes back, and the channel's next user finds zeros. Not when we close: then the peer still reads what we sent.
    if (header_->closed.load(std::memory_order_relaxed) == 0)
      os::discard_memory(file_, header_bytes + peer.channel * channel_bytes, channel_bytes);
    if (keep_channel(peer, reusable)) peer.out.control()->closed.store(1, std::memory_order_release);
    else if (reusable) free_channels_.push_back(peer.channel);
    else peer.out.control()->closed.store(1, std::memory_order_release);
    if (!peer.hello_sent) count_ungreeted(-1);
    peer.out.leave();
  }
  peer.remote = nullptr;
  peer.memory.forbid();
  (void)peer.in.take_mapping();
  (void)peer.out.take_mapping();
  peer.remote_map = {};
  peer.state = PeerState::Lost;
  WEFT_ASSERT(!peer.active && peer.lent == nullptr && peer.reserved == nullptr && !peer.pidfd);
  WEFT_ASSERT(!peer.out.is_open() && !peer.in.takes_frames());
}

void Link::retire(Peer& peer) noexcept {
  // detach() forgets the mapping that this is read from.
  const bool closed = peer.has_closed();
  // A living process whose socket is not to be found: another network namespace, or it closed the endpoint.
  const bool unanswered = !peer.pidfd ? peer.remote == nullptr : !os::has_exited(peer.pidfd);
  (void)peers_.erase(text_of(peer.address));
  detach(peer);
  dying_.erase(peer);  // a new peer may get the same memory
  events_->peer_lost(peer, peer.foreign                       ? core::ProviderError::PeerOfOtherUser
                           : peer.malformed                   ? core::ProviderError::PeerMisbehaved
                           : peer.mute                        ? core::ProviderError::NoChannel
                           : peer.gave_up && peer.not_passed  ? core::ProviderError::DescriptorsNotPassed
                           : peer.gave_up && peer.it_is_short ? core::ProviderError::PeerShortage
                           : peer.gave_up                     ? core::ProviderError::OwnShortage
                           : closed                           ? core::ProviderError::PeerClosed
                           : peer.gone                        ? core::ProviderError::PeerDied
                           : unanswered                       ? core::ProviderError::PeerUnreachable
                                                              : core::ProviderError::PeerDied);
}

// --- sleeping ---

bool Link::arm() noexcept {
  if (ungreeted_ != 0)
    return false;  // a hello found no room at the other socket, and only polling repeats it
  if (!dying_.empty()) return false;  // their operations end in the next look
  armed_ = true;
  header_->sleeping.store(1, std::memory_order_seq_cst);
  for (size_t i = 0; i < active_count_; ++i)
    active_[i]->in.control()->polled.store(0, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (fences_) (void)os::fence_registered_processes();
  bool work = header_->pending.load(std::memory_order_seq_cst) != 0;
  for (size_t i = 0; i < active_count_ && !work; ++i) work = active_[i]->in.has_frame();
  if (work) disarm();
  return !work;
}

void Link::disarm() noexcept {
  armed_ = false;
  header_->sleeping.store(0, std::memory_order_seq_cst);
  next_look_ns_ = 0;
  idle_polls_ = idle_polls_per_look_;  // the next poll looks at the socket
  for (size_t i = 0; i < active_count_; ++i) {
    Peer& peer = *active_[i];
    if (!peer.demoting && fences_ && peer.remote != nullptr && peer.remote->fences != 0)
      peer.in.control()->polled.store(1, std::memory_order_seq_cst);
  }
}

}  // namespace weft::link::shm
