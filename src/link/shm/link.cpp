// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The cold side of the shared memory link: opening, sleeping, noticing deaths, ends of peers.
#include "link/shm/link.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <new>

#include "base/assert.hpp"
#include "base/settings.hpp"
#include "link/shm/handshake.hpp"
#include "os/clock.hpp"
#include "os/poll_set.hpp"
#include "os/process.hpp"
#include "os/shortage.hpp"
#include "os/unix_socket.hpp"

namespace weft::link::shm {
namespace {

constexpr uint64_t ms_ns = 1'000'000;
constexpr uint64_t housekeeping_interval_ns = 10 * ms_ns;
constexpr uint64_t close_linger_ns =
    500 * ms_ns;  // to hand over a hello that the other socket had no room for

}  // namespace

Link::Link() = default;
Link::~Link() { close(); }

Result<void> Link::open(std::string_view name, Events& events) {
  events_ = &events;
  owner_.acquire();
  paths_.read_setting();
  active_.set_fences(os::register_for_fence());
  if (auto created = file_.create(); !created) return created;
  auto* header = file_.header();

  auto set = os::PollSet::create();
  if (!set) return set.error();
  epoll_ = std::move(*set);
  if (auto opened = handshakes_.open(name); !opened) return opened;

  probe_word_ = os::random_bits();
  header->version = layout_version;
  header->fences = active_.has_fences() ? 1 : 0;
  header->header_size = header_bytes;
  header->channel_size = channel_bytes;
  header->nonce = handshakes_.nonce();
  header->address = handshakes_.address();
  header->probe_address = reinterpret_cast<uint64_t>(&probe_word_);
  header->probe_value = probe_word_;
  header->pid_namespace = os::pid_namespace();
  header->magic = region_magic;
  doorbells_.open(*header);
  rate_.start(arch::ticks(), os::monotonic_ns());
  header_ = header;
  traffic_.open(text_of(handshakes_.address()), events.shown_as());
  traffic_.show(peers_, paths_.bytes_outside_of_ring());
  return {};
}

std::span<const std::byte> Link::address() const noexcept {
  return std::as_bytes(std::span(handshakes_.address()));
}

bool Link::belongs_here() const noexcept { return header_ == nullptr || owner_.is_here(); }

void Link::close() noexcept {
  if (header_ == nullptr) return;
  if (!belongs_here()) {
    abandon_inherited();
    return;
  }
  paths_.note_all();
  traffic_.show(peers_, paths_.bytes_outside_of_ring());
  traffic_.close();
  // A hello that found no room in the other socket still carries what was sent: hand it over now.
  const uint64_t until = os::monotonic_ns() + close_linger_ns;
  for (auto& [name, peer] : peers_) {
    while (peer->state == PeerState::New && !peer->foreign && peer->out.next() > 0 &&
           os::monotonic_ns() < until) {
      handshakes_.send_hello(*peer);
      arch::pause();
    }
  }
  // The last stores into channels of peers: one that sees `closed` gives its channel to another peer.
  for (auto& [name, peer] : peers_) {
    if (!peer->in.is_open()) continue;
    active_.remove(*peer);
    shared_.end_all(*peer);
    peer->in.return_slots();
  }
  header_->closed.store(1, std::memory_order_release);
  for (auto& [name, peer] : peers_) {
    if (!peer->out.is_open()) continue;
    peer->out.control()->closed.store(1, std::memory_order_release);
    ring_doorbell(*peer);
  }
  // Before what the program writes into its memory from now on: pairs with the fence in SharedCopies::was_source().
  std::atomic_thread_fence(std::memory_order_release);
  while (!peers_.empty()) forget(*peers_.begin()->second);
  header_ = nullptr;
  rung_.clear();
  lost_.clear();
  dying_.clear();
  in_place_.clear();
  file_.close();
  handshakes_.close();
  epoll_.reset();
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
  active_.clear();
  header_ = nullptr;
  file_.close();
  handshakes_.abandon();
  epoll_.reset();
}

// Throws std::bad_alloc here, before a peer is made, so that putting it on a list never does.
void Link::make_room() {
  const size_t peers = peers_.size() + 1;
  if (rung_.capacity() < peers + events_per_check) rung_.reserve(2 * (peers + events_per_check));
  lost_.reserve(peers + events_per_check);
  dying_.reserve(peers + events_per_check);
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
    if (!known.out.is_open() && !handshakes_.open_channel(known)) error = ENOMEM;
    if (error == 0 && !known.handshake.hello_sent) handshakes_.send_hello(known);
    return error == 0 ? &known : nullptr;
  }
  if (handshakes_.is_foreign(key)) {
    error = EACCES;
    return nullptr;
  }
  std::array<char, address_bytes> padded{};
  std::copy(key.begin(), key.end(), padded.begin());
  make_room();
  PeerTable::Reservation reservation(peers_, key);
  Peer* peer = events_->make_peer(std::as_bytes(std::span(padded)));
  peer->address = padded;
  peer->handshake.met_at_ns = os::monotonic_ns();
  if (!handshakes_.open_channel(*peer)) {
    error = ENOMEM;
    detach(*peer);
    events_->peer_lost(*peer, core::ProviderError::NoChannel);
    return nullptr;
  }
  reservation.assign(*peer);
  handshakes_.find_by_process(*peer);
  handshakes_.send_hello(*peer);
  return peer;
}

void Link::forget(Peer& peer) noexcept {
  detach(peer);
  (void)peers_.erase(text_of(peer.address));
  lost_.erase(peer);
  dying_.erase(peer);
  std::erase(rung_, &peer);
}

void Link::warn_of_malformed(const Peer& peer, const char* what) noexcept {
  if (!warnings_ || !cuts_.may_warn(os::monotonic_ns())) return;
  const std::string_view name = text_of(peer.address);
  const Line line("%.*s (process %d) is cut off: %s", static_cast<int>(name.size()), name.data(), peer.pid,
                  what);
  const uint32_t withheld = cuts_.consume_withheld();
  const Line more("%s (and %u more peers since the last such line)", line.get(), withheld);
  warnings_.say(withheld == 0 ? line.get() : more.get());
}

bool Link::is_present(std::span<const std::byte> address) noexcept {
  std::array<char, address_bytes> padded{};
  std::memcpy(padded.data(), address.data(), std::min(address.size(), padded.size() - 1));
  return os::is_bound(SocketName(text_of(padded)));
}

// A new peer under the name of one that is gone.
void Link::Host::replace(Peer& peer) noexcept {
  link_.forget(peer);
  link_.events_->peer_lost(peer, core::ProviderError::PeerReplaced);
}

Peer* Link::Host::make_peer(std::span<const std::byte> name) { return link_.events_->make_peer(name); }

// --- sending ---

bool Link::send(Peer& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
                const iovec* parts, size_t part_count) noexcept {
  if (!peer.out.is_open()) [[unlikely]] {  // it spoke first; this is our first answer
    if (peer.state == PeerState::Lost) return false;
    if (!handshakes_.open_channel(peer)) {
      if (peer.mute) lose(peer);  // what waits for our answer ends
      return false;
    }
    handshakes_.send_hello(peer);
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
  ChannelControl& channel = *peer.out.control();
  if (peer.remote == nullptr ? ring_unmapped(channel) : ring(channel, *peer.remote)) handshakes_.wake(peer);
}

// --- in place ---

ReservedBuffer* Link::reserve(Peer& peer, size_t bytes, int& error) noexcept {
  error = EAGAIN;
  if (peer.reserved != nullptr || peer.state == PeerState::Lost) return nullptr;
  if (!peer.out.is_open()) {  // it spoke first
    if (!handshakes_.open_channel(peer)) return nullptr;
    handshakes_.send_hello(peer);
  }
  if (!peer.out.has_slot() && !peer.out.more_room()) return nullptr;
  return in_place_.reserve(peer, bytes);
}

bool Link::commit(ReservedBuffer& buffer, const wire::FrameHead& head) noexcept {
  Peer* const peer = buffer.peer;
  const SendRing::Put put = in_place_.commit(buffer, head);
  if (put == SendRing::Put::Unseen) ring_doorbell(*peer);
  return put != SendRing::Put::Refused;
}

// --- receiving ---

int Link::reject(Peer& peer, const char* what) noexcept {
  if (!peer.malformed) warn_of_malformed(peer, what);
  peer.malformed = true;
  active_.remove(peer);
  peer.in.stop();
  lose(peer);
  return 0;
}

void Link::collect_rung(uint64_t words) noexcept {
  WEFT_ASSERT(rung_.empty());  // or a doorbell would count twice
  doorbells_.collect(words, rung_);
  for (Peer* const peer : rung_)
    if (!peer->activity.active && ++peer->activity.doorbells >= ActivePeers::rings_to_enter)
      active_.add(*peer, os::monotonic_ns());
}

// --- time ---

bool Link::check_is_due() noexcept {
  return checks_.is_due(os::monotonic_ns(), handshakes_.has_unsent_hellos());
}

void Link::find_lost() noexcept {
  const uint64_t now = os::monotonic_ns();
  std::array<void*, events_per_check> tags{};
  const size_t count = epoll_.ready(tags);
  bool socket_ready = false;
  for (size_t i = 0; i < count; ++i) {
    if (tags[i] == nullptr) socket_ready = true;
    else lost_.add(*static_cast<Peer*>(tags[i]));
  }
  if (socket_ready) handshakes_.read_socket();  // whom it replaces leaves lost_ again
  active_.finish_leaving(now, [&](Peer& peer) {
    if (peer.in.has_frame()) doorbells_.ring_own(peer);
  });
  if (now >= next_housekeeping_ns_) {
    next_housekeeping_ns_ = now + housekeeping_interval_ns;
    housekeeping(now);
  }
  for (size_t i = 0; i < dying_.size(); ++i) lost_.add(dying_[i]);
  dying_.clear();
}

void Link::housekeeping(uint64_t now_ns) noexcept {
  rate_.measure(arch::ticks(), now_ns);
  Handshakes::Round round = handshakes_.begin_round(now_ns);
  for (auto& [key, entry] : peers_) {
    Peer& peer = *entry;
    const Handshakes::Seen seen = handshakes_.check(peer, round);
    if (seen == Handshakes::Seen::Later) continue;
    if (seen == Handshakes::Seen::Over) lose(peer);
    else shared_.check_for_gone_sender(peer);
    if (peer.in.is_open()) peer.in.return_consumed();
    if (peer.out.is_bulk_idle(now_ns)) return_bulk(peer);
  }
  traffic_.show(peers_, paths_.bytes_outside_of_ring());
  events_->time_passes();
}

// A bulk ring that is empty and has not moved for a while returns its pages, but those of the first window that were there from the beginning.
void Link::return_bulk(Peer& peer) noexcept {
  const size_t kept = peer.channel < ready_channels ? bulk_window_bytes : 0;
  file_.discard_bulk(peer.channel, kept);
  peer.out.forget_pages(kept);
}

void Link::detach(Peer& peer) noexcept {
  WEFT_ASSERT(peer.state != PeerState::Lost);
  traffic_.add_gone(peer);
  active_.remove(peer);
  shared_.end_all(peer);
  peer.regions.close();
  // Who may still look at the channel would read what is meant for its next user.
  const bool reusable = !peer.handshake.hello_sent || os::has_exited(peer.pidfd) || peer.has_closed();
  in_place_.retain_ring(peer);
  if (peer.in.is_open()) {
    doorbells_.remove(peer);
    peer.in.leave();
  }
  if (peer.pidfd) {
    epoll_.remove(peer.pidfd.get());
    peer.pidfd.reset();
  }
  if (peer.out.is_open()) {
    peer.unread = peer.out.unread_messages();
    // The memory goes back, and the channel's next user finds zeros. Not when we close: then the peer still reads what we sent.
    if (header_->closed.load(std::memory_order_relaxed) == 0) file_.discard(peer.channel);
    if (in_place_.retain_channel(peer, reusable))
      peer.out.control()->closed.store(1, std::memory_order_release);
    else if (reusable) file_.release(peer.channel);
    else peer.out.control()->closed.store(1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_release);  // as in close()
    handshakes_.leave(peer);
    peer.out.leave();
  }
  peer.remote = nullptr;
  peer.memory.forbid();
  (void)peer.in.extract_mapping();
  (void)peer.out.extract_mapping();
  peer.remote_map = {};
  peer.state = PeerState::Lost;
  WEFT_ASSERT(!peer.activity.active && peer.lent == nullptr && peer.reserved == nullptr && !peer.pidfd);
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
  events_->peer_lost(
      peer, peer.foreign                                        ? core::ProviderError::PeerOfOtherUser
            : peer.malformed                                    ? core::ProviderError::PeerMisbehaved
            : peer.mute                                         ? core::ProviderError::NoChannel
            : peer.shortage.gave_up && peer.shortage.not_passed ? core::ProviderError::DescriptorsNotPassed
            : peer.shortage.gave_up && peer.shortage.is_of_peer ? core::ProviderError::PeerShortage
            : peer.shortage.gave_up                             ? core::ProviderError::OwnShortage
            : closed                                            ? core::ProviderError::PeerClosed
            : peer.gone                                         ? core::ProviderError::PeerDied
            : unanswered                                        ? core::ProviderError::PeerUnreachable
                                                                : core::ProviderError::PeerDied);
}

// --- sleeping ---

bool Link::arm() noexcept {
  if (handshakes_.has_unsent_hellos())
    return false;  // a hello found no room at the other socket, and only polling repeats it
  if (!dying_.empty()) return false;  // their operations end in the next look
  header_->sleeping.store(1, std::memory_order_seq_cst);
  active_.arm();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (active_.has_fences()) (void)os::fence_registered_processes();
  const bool work = header_->pending.load(std::memory_order_seq_cst) != 0 || active_.has_frames();
  if (work) disarm();
  return !work;
}

void Link::disarm() noexcept {
  header_->sleeping.store(0, std::memory_order_seq_cst);
  checks_.check_at_once();
  active_.disarm();
}

}  // namespace weft::link::shm
