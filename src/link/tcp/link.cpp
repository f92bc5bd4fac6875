// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The cold side of the TCP link: listening, connecting, handshakes, losing peers, closing.
//
// Who is who: an endpoint is known by the address that it listens at, which its handshake names. No frame travels before the side that was called
// has welcomed the other, so that a connection which is given up in favour of another has carried nothing.
//
// Two that connect to each other at the same time: the connection of the one with the lower address stays. The other side finds itself connecting
// somebody who calls, and takes that call instead of its own; the lower one refuses the second connection as a duplicate.
//
// The same endpoint may be connected to by another of its addresses than the one it names itself by; such a connection is a peer of its own.
#include "link/tcp/link.hpp"

#include <rdma/fabric.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "link/message/crossing.hpp"
#include "os/clock.hpp"
#include "os/link_local.hpp"
#include "os/plain_address.hpp"
#include "os/process.hpp"

namespace weft::link::tcp {
namespace {

constexpr uint64_t ms_ns = 1'000'000;
constexpr uint64_t housekeeping_interval_ns = 5 * ms_ns;
constexpr uint64_t health_interval_ns = 1'000 * ms_ns;
constexpr uint64_t refused_for_ns = 1'000 * ms_ns;  // nobody listens: perhaps it is about to
constexpr uint64_t connect_timeout_ns =
    10'000 * ms_ns;  // no machine answers, or connections break again and again
// Connected and not welcomed: the other process is there, for its end would be told, but it does not call into its library.
constexpr uint64_t welcome_timeout_ns = 300'000 * ms_ns;
constexpr uint64_t first_pause_ns = 5 * ms_ns;
constexpr uint64_t longest_pause_ns = 500 * ms_ns;
constexpr uint64_t close_linger_ns = 500 * ms_ns;
constexpr int backlog = 4096;
constexpr int accepts_per_check = 64;

// The order that both sides of two crossing connections agree on. Scopes are known to one machine only.
bool is_lower(os::SocketAddress a, os::SocketAddress b) noexcept {
  a.set_scope(0);
  b.set_scope(0);
  return std::ranges::lexicographical_compare(a.bytes(), b.bytes());
}

bool is_same_address(os::SocketAddress a, os::SocketAddress b) noexcept {
  a.set_scope(0);
  b.set_scope(0);
  return a == b;
}

bool other_link(const os::SocketAddress& a, const os::SocketAddress& b) noexcept {
  return a.is_link_local() && b.is_link_local() && a.scope() != b.scope();
}

}  // namespace

uint64_t Link::now_ns() noexcept { return os::monotonic_ns(); }

void Link::warn(const std::string& what) noexcept { LinkBase::warn(what.c_str()); }

void Link::warn_of_unknown_peer(const std::string& what) noexcept {
  constexpr uint64_t pause_ns = 10'000'000'000;
  const uint64_t now = now_ns();
  if (unknown_logged_ns_ != 0 && now - unknown_logged_ns_ < pause_ns) {
    ++unknown_untold_;
    return;
  }
  warn(unknown_untold_ == 0
           ? what
           : what + " (and " + std::to_string(unknown_untold_) + " more since the last such line)");
  unknown_logged_ns_ = now;
  unknown_untold_ = 0;
}

void Link::warn_of_cut(const Peer& peer, const char* what) noexcept try {
  warn_of_unknown_peer(peer.address.text() + " is cut off: " + what);
} catch (...) {  // no memory for the sentence
}

bool Link::belongs_here() const noexcept { return !acceptor_.listens() || os::process_id() == owner_pid_; }

std::span<const std::byte> Link::form(const os::SocketAddress& address,
                                      std::array<std::byte, address_length>& out) const {
  out.fill(std::byte{0});
  if (format_ == FI_ADDR_STR) {
    const std::string text = address.text();
    std::memcpy(out.data(), text.data(), std::min(text.size(), out.size() - 1));
    return out;
  }
  std::memcpy(out.data(), address.get(), address.size());
  return std::span(out).first(address.size());
}

// --- opening ---

Result<void> Link::open(std::string_view name, Events& events) {
  os::raise_descriptor_limit();
  os::SocketAddress wanted = os::SocketAddress::any(format_ == FI_SOCKADDR_IN6 ? AF_INET6 : AF_INET);
  if (!name.empty()) {
    const auto given = format_ == FI_ADDR_STR ? os::SocketAddress::from_text(name)
                                              : os::SocketAddress::from(name.data(), name.size());
    if (!given) return Error{EINVAL, "the endpoint's address is none of IP"};
    wanted = *given;
  }
  auto set = os::PollSet::create();
  if (!set) return set.error();
  events_set_ = std::move(*set);
  events_ = &events;
  owner_pid_ = os::process_id();
  incarnation_ = os::random_bits();
  buffer_.resize(Channel::receive_bytes);
  if (auto ok = listen(wanted); !ok) {
    acceptor_.close();
    events_set_.reset();
    return ok;
  }
  from_ = wanted.is_any() || wanted.is_loopback() ? os::SocketAddress() : wanted;
  from_.set_port(0);
  shown_ = os::StatisticsEntry::open(os::StatisticsEntry::Kind::Path, "tcp", os::plain_text(own_),
                                     events.shown_as());
  show();
  return {};
}

Result<void> Link::listen(const os::SocketAddress& wanted) {
  auto socket = Acceptor::bind(wanted, dscp_);
  if (!socket) return socket.error();
  acceptor_.open(std::move(*socket), events_set_);
  if (auto listening = acceptor_.listen(backlog); !listening) return listening;
  const os::SocketAddress bound = os::local_address(acceptor_.fd().get());
  own_ = bound.is_any() ? os::outgoing_address(bound.family()) : bound;
  own_.set_port(bound.port());
  own_bytes_count_ = form(own_, own_bytes_).size();
  return {};
}

// --- who is there ---

Peer* Link::find(const os::SocketAddress& address) const noexcept {
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? nullptr : found->second;
}

void Link::set_alias(std::span<const std::byte> alias) noexcept {
  alias_count_ = std::min(alias.size(), alias_.size());
  std::copy_n(alias.begin(), alias_count_, alias_.begin());
}

Peer* Link::make_peer(const os::SocketAddress& address, bool keyed, std::span<const std::byte> alias) {
  std::array<std::byte, address_length> bytes;
  // Room in every list first, so that putting a peer there never fails.
  const size_t room = peers_.size() + 1;
  for (auto* list : {&peers_, &unopened_}) {
    if (list->capacity() < room) list->reserve(2 * room);
  }
  sessions_.reserve(room);
  if (keyed) by_address_.reserve(by_address_.size() + 1);
  Peer* peer = events_->make_peer(alias.empty() ? form(address, bytes) : alias);
  if (peer == nullptr) return nullptr;
  peer->address = address;
  peer->keyed = keyed;
  peer->met_at_ns = now_ns();
  peers_.push_back(peer);
  if (keyed) {
    try {
      by_address_[address] = peer;
    } catch (const std::bad_alloc&) {
      peer->keyed = false;  // it is reached, but not found: a second connection at worst
    }
  }
  return peer;
}

std::optional<os::SocketAddress> Link::parse(std::span<const std::byte> name) const noexcept {
  if (format_ != FI_ADDR_STR) return os::SocketAddress::from(name.data(), name.size());
  const std::string_view text(reinterpret_cast<const char*>(name.data()), name.size());
  return os::SocketAddress::from_text(text.substr(0, ::strnlen(text.data(), text.size())));
}

// The name of a peer has the scope of the peer's host.
std::optional<os::SocketAddress> Link::read_name(std::span<const std::byte> name) const noexcept {
  const auto place = parse(name);
  return place ? os::on_this_host(*place, from_) : place;
}

bool Link::is_name_of(std::span<const std::byte> name, std::span<const std::byte> address) const noexcept {
  const auto named = parse(name), meant = parse(address);
  return named && meant && is_same_address(*named, *meant) &&
         os::on_this_host(*named, from_) == os::on_this_host(*meant, from_);
}

Peer* Link::connect(std::span<const std::byte> address, int& error) {
  error = 0;
  const auto place = read_name(address);
  if (!place) {
    error = EINVAL;
    return nullptr;
  }
  if (Peer* known = find(*place); known != nullptr) return known;
  Peer* peer = make_peer(*place, true, {});
  if (peer == nullptr) {
    error = EINVAL;
    return nullptr;
  }
  unopened_.push_back(peer);
  if (connecting_ < connecting_max) start_connect(*peer);
  return peer;
}

void Link::forget_ready(const Source& source) noexcept {
  for (size_t i = 0; i < ready_count_; ++i)
    if (ready_[i] == &source) ready_[i] = nullptr;
}

// The connection goes; the peer stays.
void Link::hang_up(Peer& peer) noexcept {
  try {
    if (const auto early = peer.channel.early_bytes(); !early.empty())
      peer.early.assign(early.begin(), early.end());
  } catch (const std::bad_alloc&) {  // they are lost with the endpoint that closes
  }
  if (peer.stage == PeerStage::Open) peer.delivered = peer.channel.delivered();
  if (!belongs_here()) {
    peer.channel.drop();  // the poll set is the parent's, too
  } else {
    unwatch(peer);
    peer.channel.close();
  }
  reached(peer);
  // Whoever hears of the loss asks what the socket took. What went before a Welcome goes again, and counts again.
  const uint64_t gone = peer.stage == PeerStage::Open ? peer.channel.written() : 0;
  gone_.frames_received += peer.channel.frames_in();
  gone_.bytes_received += peer.channel.arrived();
  peer.channel = Channel(tcp::frame_bytes_max);
  peer.channel.count_from(gone);
  peer.stage = PeerStage::Waiting;
  peer.writing = false;
  peer.watched = false;
}

bool Link::watch(Peer& peer, bool writing) noexcept {
  peer.writing = writing;
  if (!peer.watched)
    peer.watched = events_set_.add(peer.channel.fd().get(), static_cast<Source*>(&peer),
                                   writing ? os::watch_both : os::watch_reading);
  return peer.watched;
}

void Link::unwatch(Peer& peer) noexcept {
  if (!std::exchange(peer.watched, false)) return;
  events_set_.remove(peer.channel.fd().get());
  forget_ready(peer);
}

// A socket that is read in every poll anyway: its sender's kernel need not tell the poll set of each packet.
void Link::unwatch_hot() noexcept {
  for (size_t i = 0; i < sessions_.hot_count(); ++i) unwatch(sessions_.hot(i));
}

void Link::remove(Peer& peer) noexcept {
  hang_up(peer);
  gone_.bytes_sent += peer.channel.written();
  forget_ready(peer);
  if (peer.keyed) by_address_.erase(peer.address);
  sessions_.remove(peer);
  for (auto* list : {&peers_, &unopened_}) std::erase(*list, &peer);
}

void Link::forget(Peer& peer) noexcept { remove(peer); }

void Link::lose(Peer& peer, core::ProviderError why) noexcept {
  remove(peer);
  events_->peer_lost(peer, why);
}

// --- connecting ---

Handshake Link::local_handshake(HandshakeType type, const os::SocketAddress& target) const noexcept {
  Handshake handshake;
  handshake.type = type;
  handshake.kind = ConnectionKind::Rdm;
  handshake.incarnation = incarnation_;
  handshake.address = own_;
  handshake.target = target;
  handshake.set_data(alias_.data(), alias_count_);
  return handshake;
}

void Link::start_connect(Peer& peer) noexcept {
  peer.channel = Channel(tcp::frame_bytes_max);
  peer.stage = PeerStage::Connecting;
  peer.reaching = true;
  ++connecting_;
  peer.connect_started_ns = now_ns();
  if (peer.pause_ns == 0) peer.met_at_ns = peer.connect_started_ns;  // it may have waited for its turn
  // An address of this machine is reached from any of its own. A link-local one of another interface is not reached from that of ours.
  const os::SocketAddress none;
  const bool from_here = peer.address.family() == from_.family() && !other_link(peer.address, from_);
  const int error = peer.channel.connect(peer.address, from_here ? from_ : none, dscp_);
  if (error != 0) return connect_failed(peer, error);
  peer.channel.send_hello(local_handshake(HandshakeType::Hello, peer.address));
  if (leaving_) peer.channel.allow_early();
  (void)peer.channel.put_early(peer.early);
  peer.early.clear();
  if (!watch(peer, true)) connect_failed(peer, errno);
}

void Link::connect_later(Peer& peer, uint64_t pause_ns) noexcept {
  hang_up(peer);
  peer.again_at_ns = now_ns() + pause_ns;
}

// Perhaps it is only about to listen, or many call at once: again, within a bound.
void Link::connect_failed(Peer& peer, int error) noexcept {
  const bool nobody = error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH ||
                      error == EINVAL || error == EAFNOSUPPORT || error == EACCES || error == EPERM;
  peer.pause_ns = std::clamp(2 * peer.pause_ns, first_pause_ns, longest_pause_ns);
  uint64_t until = peer.met_at_ns + (nobody ? refused_for_ns : connect_timeout_ns);
  if (peer.channel.sent_early()) until = 0;  // perhaps they were read: they must not come twice
  connect_later(peer, peer.pause_ns);
  if (peer.again_at_ns < until) return;
  warn("no connection to " + peer.address.text() + ": " + std::strerror(error));
  lose(peer, core::ProviderError::PeerUnreachable);
}

// The connect or the handshake of a peer that we connect to has come further.
void Link::go_on(Peer& peer) noexcept {
  if (peer.stage != PeerStage::Connecting) return;
  const Channel::State state = peer.channel.advance();
  if (state == Channel::State::Failed) return connect_failed(peer, peer.channel.error());
  if (state != Channel::State::Connecting) reached(peer);
  if (state == Channel::State::Handshaking && !peer.channel.unflushed()) wait_for_room(peer, false);
  const Handshake* answer = peer.channel.theirs();
  if (answer == nullptr) return;
  if (answer->type == HandshakeType::Welcome && answer->kind == ConnectionKind::Rdm)
    return opened(peer, answer->incarnation);
  if (answer->type == HandshakeType::Refusal && answer->reason == RefusalReason::Duplicate) {
    // Its own connection to us is on its way. Should that fail, we try again.
    peer.pause_ns = longest_pause_ns;
    if (now_ns() - peer.met_at_ns < connect_timeout_ns) return connect_later(peer, longest_pause_ns);
  }
  warn(peer.address.text() + " refuses the connection: " + to_text(answer->reason));
  lose(peer, core::ProviderError::PeerUnreachable);
}

void Link::opened(Peer& peer, uint64_t incarnation) noexcept {
  reached(peer);
  std::erase(unopened_, &peer);
  peer.stage = PeerStage::Open;
  peer.incarnation = incarnation;
  peer.pause_ns = 0;
  peer.channel.open();
  if (!peer.early.empty()) {
    (void)peer.channel.put_early(peer.early);
    peer.early = {};
    if (!peer.dirty) note_dirty(peer);
  }
  wait_for_room(peer, false);
  promote(peer);
}

// --- pending connections ---

void Link::accept_pending() noexcept {
  if (!events_set_.is_here()) return;  // whoever connects wants a forked child's parent
  const uint64_t now = now_ns();
  for (int i = 0; i < accepts_per_check && acceptor_.accept(now) != nullptr; ++i) {
  }
  if (acceptor_.is_short_of_descriptors() && !std::exchange(short_of_descriptors_, true))
    warn("peers that connect have to wait: there are no more descriptors (RLIMIT_NOFILE)");
}

bool Link::has_introduced_itself(PendingConnection& pending) noexcept {
  const Channel::State state = pending.channel.advance();
  if (state == Channel::State::Failed) {
    if (pending.channel.refusal() != RefusalReason::None)
      warn_of_unknown_peer("a connection from " + os::remote_address(pending.channel.fd().get()).text() +
                           " was refused: " + to_text(pending.channel.refusal()));
    acceptor_.dismiss(pending);
    return false;
  }
  const Handshake* handshake = pending.channel.theirs();
  if (handshake == nullptr) return false;
  if (handshake->type == HandshakeType::Hello && handshake->kind == ConnectionKind::Rdm &&
      handshake->address) {
    // The losing connection of two that crossed may be read late, when the peer is not known any more (fi_av_remove)
    // or is being connected to again. It must not become that peer's connection.
    if (!pending.channel.was_given_up()) return true;
    acceptor_.dismiss(pending);
    return false;
  }
  refuse(pending, handshake->type == HandshakeType::Hello && handshake->kind != ConnectionKind::Rdm
                      ? RefusalReason::Kind
                      : RefusalReason::Malformed);
  return false;
}

void Link::refuse(PendingConnection& pending, RefusalReason reason) noexcept {
  if (reason != RefusalReason::Duplicate)
    warn_of_unknown_peer("a connection from " + os::remote_address(pending.channel.fd().get()).text() +
                         " was refused: " + to_text(reason));
  pending.channel.refuse(local_handshake(HandshakeType::Refusal, {}), reason);
  acceptor_.dismiss(pending);
}

void Link::admit(PendingConnection& pending) noexcept try {
  Handshake handshake = *pending.channel.theirs();
  const os::SocketAddress caller = os::remote_address(pending.channel.fd().get());
  // Who calls from the address that it names is on the link from which it calls, whatever this host's own addresses are.
  if (handshake.address.is_link_local() && os::same_host(handshake.address, caller))
    handshake.address.set_scope(caller.scope());
  else handshake.address = os::on_this_host(handshake.address, caller);
  const bool by_name = is_same_address(handshake.target, own_);
  Peer* known = find(handshake.address);
  if (handshake.incarnation == incarnation_)
    return welcome(pending, nullptr, handshake, false);  // we have connected to ourselves
  const message::Call call =
      message::judge({.known = known != nullptr,
                      .connected = known != nullptr && known->stage == PeerStage::Open,
                      .same_incarnation = known != nullptr && known->incarnation == handshake.incarnation,
                      .being_connected = known != nullptr && known->stage == PeerStage::Connecting,
                      .is_higher = is_lower(own_, handshake.address)});
  if (call == message::Call::FromNew) return welcome(pending, nullptr, handshake, true);
  if (call == message::Call::FromRestarted) {
    // The peer restarted: so says somebody who is where it was, or at the address that he names. Anybody can name an address.
    const bool is_own = other_link(caller, handshake.address) && os::is_own_link_local(caller) &&
                        os::is_own_link_local(handshake.address);
    if (!is_own && !os::same_neighbour(caller, handshake.address) &&
        !os::same_neighbour(caller, os::remote_address(known->channel.fd().get()))) {
      warn_of_unknown_peer(caller.text() + " calls in the name of " + handshake.address.text() +
                           ", which is connected from elsewhere, and is refused");
      return refuse(pending, RefusalReason::Duplicate);
    }
    lose(*known, core::ProviderError::PeerReplaced);
    return welcome(pending, nullptr, handshake, true);
  }
  if (!by_name) return welcome(pending, nullptr, handshake, false);
  if (call == message::Call::Duplicate) return refuse(pending, RefusalReason::Duplicate);
  hang_up(*known);
  welcome(pending, known, handshake, true);
} catch (const std::bad_alloc&) {
  refuse(pending, RefusalReason::Resources);
}

void Link::welcome(PendingConnection& pending, Peer* peer, const Handshake& handshake, bool keyed) {
  if (peer == nullptr)
    peer = make_peer(handshake.address, keyed,
                     alias_count_ != 0 ? handshake.data_span() : std::span<const std::byte>());
  if (peer == nullptr) return refuse(pending, RefusalReason::Kind);
  peer->channel = std::move(pending.channel);
  events_set_.change(peer->channel.fd().get(), static_cast<Source*>(peer), os::watch_reading);
  peer->watched = true;
  acceptor_.dismiss(pending);
  peer->channel.send_hello(local_handshake(HandshakeType::Welcome, {}));
  opened(*peer, handshake.incarnation);
}

// --- peers at work ---

void Link::after_read(Peer& peer) noexcept {
  sessions_.set_stalled(peer, peer.channel.stalled());
  if (peer.channel.state() == Channel::State::Open) return;
  using enum core::ProviderError;
  const int error = peer.channel.error();
  if (error == EBADMSG) warn_of_cut(peer, "what it sent is no frame");
  if (error == EMSGSIZE) warn_of_cut(peer, "it sent a frame that is longer than any may be");
  lose(peer, error == ESHUTDOWN                      ? PeerClosed
             : error == EBADMSG || error == EMSGSIZE ? PeerMisbehaved
                                                     : PeerDied);
}

void Link::flush_dirty() noexcept {
  sessions_.flush_dirty([](Peer& peer) { return peer.channel.flush(); },
                        [this](Peer& peer) {
                          if (peer.channel.state() == Channel::State::Failed) after_read(peer);
                        });
}

void Link::promote(Peer& peer) noexcept {
  if (Peer* other = sessions_.promote(peer)) demoted(*other);
  if (peer.hot && awake_checks_ == checks_to_unwatch) awake_checks_ = 0;
}

// It is not read in every poll any more.
void Link::demoted(Peer& peer) noexcept {
  if (peer.stage == PeerStage::Open) (void)watch(peer, peer.writing);
}

// Time: attempts that are due, peers and pending connections that have taken too long, machines that answer no more.
void Link::housekeeping(uint64_t now) noexcept {
  next_housekeeping_ns_ = now + housekeeping_interval_ns;
  if (!events_set_.is_here()) return;  // a forked child neither connects nor judges
  (void)acceptor_.run_housekeeping(now);
  show();
  events_->time_passes();
  for (size_t i = unopened_.size(); i-- > 0;) {
    if (i >= unopened_.size()) continue;  // more than one was lost
    Peer& peer = *unopened_[i];
    if (peer.stage == PeerStage::Waiting) {
      if (now >= peer.again_at_ns && connecting_ < connecting_max) start_connect(peer);
    } else if (peer.channel.state() == Channel::State::Connecting) {
      if (now - peer.connect_started_ns > connect_timeout_ns) connect_failed(peer, ETIMEDOUT);
    } else if (now - peer.connect_started_ns > welcome_timeout_ns) {
      peer.met_at_ns = peer.connect_started_ns;  // that was long enough
      connect_failed(peer, ETIMEDOUT);
    }
  }
  if (now < next_health_ns_) return;
  next_health_ns_ = now + health_interval_ns;
  short_of_descriptors_ = false;
  for (size_t i = peers_.size(); i-- > 0;) {
    if (i >= peers_.size()) continue;
    if (peers_[i]->stage == PeerStage::Open && !peers_[i]->channel.alive())
      lose(*peers_[i], core::ProviderError::PeerDied);
    else if (peers_[i]->stage == PeerStage::Connecting &&
             peers_[i]->channel.state() == Channel::State::Handshaking && !peers_[i]->channel.alive())
      connect_failed(*peers_[i], ETIMEDOUT);
  }
}

void Link::Carried::add(const Peer& peer) noexcept {
  frames_received += peer.channel.frames_in();
  bytes_sent += peer.channel.written();
  bytes_received += peer.channel.arrived();
}

void Link::show() noexcept {
  if (!shown_) return;
  using Value = os::StatisticsEntry::Value;
  Carried all = gone_;
  for (const Peer* peer : peers_) all.add(*peer);
  shown_.show({{Value::PacketsReceived, all.frames_received},
               {Value::BytesSent, all.bytes_sent},
               {Value::BytesReceived, all.bytes_received},
               {Value::Peers, peers_.size()}});
}

// --- sleeping ---

void Link::wait_for_room(Peer& peer, bool writing) noexcept {
  if (std::exchange(peer.writing, writing) == writing || !peer.watched) return;
  events_set_.change(peer.channel.fd().get(), static_cast<Source*>(&peer),
                     writing ? os::watch_both : os::watch_reading);
}

bool Link::arm() noexcept {
  armed_ = true;
  flush_dirty();
  if (sessions_.has_stalled()) return false;  // only polling shows refused frames again
  awake_checks_ = 0;
  for (size_t i = 0; i < sessions_.hot_count(); ++i)
    if (!watch(sessions_.hot(i), false)) return false;
  for (Peer* peer : sessions_.dirty()) wait_for_room(*peer, true);
  return true;
}

void Link::disarm() noexcept {
  armed_ = false;
  for (Peer* peer : sessions_.dirty()) wait_for_room(*peer, false);
  sessions_.check_soon();
}

// --- closing ---

void Link::hurry() noexcept {
  leaving_ = true;
  for (Peer* peer : unopened_) peer->channel.allow_early();
}

void Link::close() noexcept {
  if (!acceptor_.listens()) return;
  const bool ours = belongs_here();
  if (ours) {
    for (Peer* peer : peers_) peer->channel.say_bye();
    const uint64_t until = now_ns() + close_linger_ns;
    const auto waits = [](Peer* peer) {
      Channel& channel = peer->channel;
      if (channel.state() == Channel::State::Open) return !channel.flush();
      const size_t early = channel.early_bytes().size();
      if (early != 0) (void)channel.advance();
      return early != 0 && channel.state() != Channel::State::Failed && channel.unflushed();
    };
    while (std::count_if(peers_.begin(), peers_.end(), waits) != 0 && now_ns() < until) {
    }
  }
  show();
  shown_.close();
  while (!peers_.empty()) remove(*peers_.back());
  acceptor_.close();
  by_address_.clear();
  events_set_.reset();
  next_housekeeping_ns_ = 0;
  leaving_ = false;
}

}  // namespace weft::link::tcp
