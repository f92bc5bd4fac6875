// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Setting out, being answered, leaving.
#include "link/tcp/connection.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "os/clock.hpp"
#include "os/link_local.hpp"
#include "os/poll_set.hpp"
#include "os/traffic_class.hpp"

namespace weft::link::tcp {
namespace {

constexpr uint64_t health_interval_ns = 1'000'000'000;
constexpr int linger_step_ms = 5;

Handshake local_handshake(HandshakeType type, std::span<const std::byte> data) noexcept {
  Handshake handshake;
  handshake.type = type;
  handshake.kind = ConnectionKind::Msg;
  handshake.set_data(data.data(), data.size());
  return handshake;
}

}  // namespace

bool Connection::belongs_here() const noexcept { return !control_set_ || os::process_id() == owner_pid_; }

// --- setting out ---

Result<void> Connection::open(std::string_view name, Events& events, proto::ConnectionObserver& observer) {
  os::SocketAddress wanted = os::SocketAddress::any(FormedAddress::family(format_));
  if (!name.empty()) {
    const auto given = FormedAddress::parse(format_, name);
    if (!given) return Error{EINVAL, "the endpoint's address is none of IP"};
    wanted = *given;
  }
  auto set = os::PollSet::create();
  if (!set) return set.error();
  if (buffer_.empty()) buffer_.resize(Channel::receive_bytes);
  control_set_ = std::move(*set);
  from_ = wanted;
  own_ = FormedAddress(format_, wanted);
  events_ = &events;
  observer_ = &observer;
  owner_pid_ = os::process_id();
  return {};
}

Result<void> Connection::start(std::string_view name, std::span<const std::byte> data) {
  auto to = FormedAddress::parse(format_, name);
  if (to) to = os::on_this_host(*to, from_);
  if (!to || to->port() == 0) return Error{EINVAL, "the address to connect to is none of IP with a port"};
  auto timer = os::Timer::create();
  if (!timer) return timer.error();
  timer_ = std::move(*timer);
  os::SocketAddress from = from_;
  if (from.is_any() && from.port() != 0) {  // a port of ours, from whichever address leads there
    const uint16_t port = from.port();
    from = os::source_toward(*to);
    from.set_port(port);
  }
  // An address of this host on another interface is not reached from a link-local one.
  const bool other_link = from.is_link_local() && to->is_link_local() && from.scope() != to->scope();
  if (from.family() != to->family() || other_link) from = {};
  Handshake handshake = local_handshake(HandshakeType::Hello, data);
  handshake.target = *to;
  other_ = FormedAddress(format_, *to);
  arrived_ = false;
  stage_ = Stage::Connecting;
  deadline_ns_ = os::monotonic_ns() + connect_timeout_ns_;
  if (!control_set_.watch(timer_.fd().get())) {
    stage_ = Stage::Idle;
    return Error{errno, "the system watches no more descriptors"};
  }
  timer_.set(connect_timeout_ns_);
  channel_ = Channel(frame_bytes_max);
  const int error = channel_.connect(*to, from, dscp_);
  switch (error) {
    case 0:
      channel_.send_hello(handshake);
      watch();
      return {};
    case ECONNREFUSED:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ETIMEDOUT:
      timer_.set(1);  // told by whoever drives us next, like every other outcome
      return {};
    default:
      timer_.close();
      channel_.drop();
      stage_ = Stage::Idle;
      return Error{error, "cannot connect to " + to->text() + ": " + std::strerror(error)};
  }
}

Result<void> Connection::accept(std::unique_ptr<Request> request, std::span<const std::byte> data) {
  channel_ = request->take();
  os::mark_traffic(channel_.fd().get(), dscp_);
  channel_.send_hello(local_handshake(HandshakeType::Welcome, data));
  if (channel_.state() == Channel::State::Failed) {
    const int error = channel_.error();
    channel_.close();
    stage_ = Stage::Over;
    return Error{error, std::string("who asked for the connection has gone: ") + std::strerror(error)};
  }
  opened({});
  return {};
}

// The peer is there: from now on there are frames.
void Connection::opened(std::span<const std::byte> data) noexcept {
  own_ = FormedAddress(format_, os::local_address(channel_.fd().get()));
  other_ = FormedAddress(format_, os::remote_address(channel_.fd().get()));
  try {
    peer_ = events_->make_peer(other_.bytes());
  } catch (const std::bad_alloc&) {
    return refuse(ENOMEM, core::ProviderError::NoChannel, {});
  }
  control_set_.remove(timer_.fd().get());
  timer_.close();
  // The data lies in the handshake, which open() drops.
  std::array<std::byte, handshake_data_max> kept;
  if (!data.empty()) std::memcpy(kept.data(), data.data(), data.size());
  channel_.open();
  stage_ = Stage::Open;
  silent_ = 0;
  watch();
  observer_->connected(std::span(kept).first(data.size()));
}

void Connection::refuse(int error, core::ProviderError why, std::span<const std::byte> data) noexcept {
  stage_ = Stage::Over;
  observer_->refused(error, why, data);  // the data lies in the channel
  leave();
}

void Connection::refused_by(const Handshake& handshake) noexcept {
  switch (handshake.reason) {
    case RefusalReason::Program:
      return refuse(ECONNREFUSED, core::ProviderError::ConnectionRejected, handshake.data_span());
    case RefusalReason::Resources:
      return refuse(ECONNREFUSED, core::ProviderError::RemoteMemory, {});
    default:
      return refuse(ECONNREFUSED, core::ProviderError::ConnectionForeign, {});
  }
}

void Connection::advance() noexcept {
  if (stage_ == Stage::Open) {
    silent_ = 0;  // perhaps the other side is leaving: poll() reads
    return;
  }
  if (stage_ == Stage::Shut) {
    if (discard()) return;
    stage_ = Stage::Over;
    leave();
    observer_->disconnected(core::ProviderError::PeerClosed);
    return;
  }
  if (stage_ != Stage::Connecting) return;
  const Channel::State before = channel_.state();
  const Channel::State state = channel_.advance();
  if (state == Channel::State::Failed) {
    const int error = channel_.error();
    if (error == EPROTO || channel_.refusal() != RefusalReason::None)  // we refused its answer
      return refuse(ECONNREFUSED, core::ProviderError::ConnectionForeign, {});
    if (error == ECONNREFUSED && before != Channel::State::Handshaking)
      return refuse(error, core::ProviderError::ConnectionRefused, {});
    if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
      return refuse(error, core::ProviderError::PeerUnreachable, {});
    if (before == Channel::State::Handshaking || error == ECONNRESET)
      return refuse(ECONNRESET, core::ProviderError::ConnectionReset, {});
    return refuse(error, core::ProviderError::PeerUnreachable, {});
  }
  if (const Handshake* answer = channel_.theirs(); answer != nullptr) {
    if (answer->type == HandshakeType::Welcome && answer->kind == ConnectionKind::Msg)
      return opened(answer->data_span());
    if (answer->type == HandshakeType::Refusal) return refused_by(*answer);
    return refuse(ECONNREFUSED, core::ProviderError::ConnectionForeign, {});
  }
  const uint64_t now = os::monotonic_ns();
  if (state == Channel::State::Handshaking && !std::exchange(arrived_, true)) {
    deadline_ns_ = now + accept_timeout_ns_;
    timer_.set(accept_timeout_ns_);
    own_ = FormedAddress(format_, os::local_address(channel_.fd().get()));
  }
  if (now >= deadline_ns_) return refuse(ETIMEDOUT, core::ProviderError::ConnectionTimedOut, {});
  watch();
}

// What the control descriptor waits for.
void Connection::watch() noexcept {
  uint32_t interest = os::watch_reading;
  if (stage_ == Stage::Open) interest = os::watch_hangup;
  else if (channel_.state() == Channel::State::Connecting) interest = os::watch_writing;
  else if (stage_ == Stage::Connecting && channel_.unflushed()) interest |= os::watch_writing;
  (void)control_set_.watch(channel_.fd().get(), interest);
  if (data_set_)
    (void)data_set_.watch(channel_.fd().get(), os::watch_reading | (interest & os::watch_writing));
}

// --- the end ---

core::ProviderError Connection::reason_of_end() const noexcept {
  switch (channel_.error()) {
    case ESHUTDOWN:
      return core::ProviderError::PeerClosed;
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return core::ProviderError::PeerUnreachable;
    case EPROTO:
    case EBADMSG:
      return core::ProviderError::PeerMisbehaved;
    default:
      return core::ProviderError::PeerDied;
  }
}

// The socket goes, and with it whatever watches it.
void Connection::leave() noexcept {
  if (!belongs_here()) {  // the poll sets are the parent's, too
    channel_.drop();
    return;
  }
  control_set_.remove(channel_.fd().get());
  data_set_.remove(channel_.fd().get());
  if (timer_.fd()) control_set_.remove(timer_.fd().get());
  timer_.close();
  channel_.close();
}

void Connection::lose(core::ProviderError why) noexcept {
  stage_ = Stage::Over;
  delivered_ = channel_.delivered();
  leave();
  if (Other* peer = std::exchange(peer_, nullptr); peer != nullptr) events_->peer_lost(*peer, why);
  observer_->disconnected(why);
}

void Connection::forget(Other&) noexcept {
  peer_ = nullptr;
  lose(core::ProviderError::PeerMisbehaved);
}

Other* Connection::connect(std::span<const std::byte>, int& error) noexcept {
  error = peer_ == nullptr ? ENOTCONN : 0;
  return peer_;
}

// Once a second: whether the other machine is still there.
void Connection::check_health() noexcept {
  silent_ = silent_polls_max;
  const uint64_t now = os::monotonic_ns();
  if (now < checked_ns_ + health_interval_ns) return;
  checked_ns_ = now;
  if (!channel_.alive()) channel_.fail(ETIMEDOUT);
}

// Throws away what comes after our good-bye. False: the other side has left, too.
bool Connection::discard() noexcept {
  for (int i = 0; i < 64; ++i) {
    const ssize_t got = ::recv(channel_.fd().get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
  }
  return true;
}

// Until the other machine has all that was sent: bytes that it has are read there whatever happens here.
void Connection::wait_until_sent(uint64_t until_ns) noexcept {
  while (true) {
    const bool flushed = !channel_.unflushed() || channel_.flush();
    int queued = 0;
    if (flushed && (::ioctl(channel_.fd().get(), SIOCOUTQ, &queued) != 0 || queued == 0)) return;
    if (!discard() || os::monotonic_ns() >= until_ns) return;
    pollfd ready{channel_.fd().get(), static_cast<short>(POLLIN | (flushed ? 0 : POLLOUT)), 0};
    (void)::poll(&ready, 1, linger_step_ms);
  }
}

void Connection::shut_down() noexcept {
  if (stage_ != Stage::Open || !belongs_here()) return;
  stage_ = Stage::Shut;
  peer_ = nullptr;
  channel_.say_bye();
  const uint64_t until = os::monotonic_ns() + linger_ns;
  while (channel_.unflushed() && !channel_.flush() && discard() && os::monotonic_ns() < until) {
    pollfd ready{channel_.fd().get(), POLLIN | POLLOUT, 0};
    (void)::poll(&ready, 1, linger_step_ms);
  }
  (void)::shutdown(channel_.fd().get(), SHUT_WR);
  watch();
}

void Connection::close() noexcept {
  if (belongs_here()) {
    shut_down();
    if (stage_ == Stage::Shut) wait_until_sent(os::monotonic_ns() + linger_ns);
  }
  leave();
  stage_ = Stage::Over;
  peer_ = nullptr;
  control_set_.reset();
  data_set_.reset();
}

// --- sleeping ---

int Connection::wait_fd() noexcept {
  if (!data_set_) {
    auto set = os::PollSet::create();
    if (!set) return -1;
    data_set_ = std::move(*set);
    if (channel_.fd()) watch();
  }
  return data_set_.get();
}

bool Connection::arm() noexcept {
  if (channel_.stalled()) return false;
  if (stage_ == Stage::Open) check_health();
  silent_ = 0;
  if (channel_.state() == Channel::State::Failed) return false;  // poll() says so
  if (stage_ == Stage::Open && data_set_) {
    const uint32_t writing = channel_.unflushed() ? os::watch_writing : os::watch_errors;
    if (!data_set_.watch(channel_.fd().get(), os::watch_reading | writing)) return false;
  }
  return true;
}

static_assert(proto::ConnectedLink<Connection> && proto::HasSleep<Connection> &&
              proto::HasSmallFrames<Connection>);

}  // namespace weft::link::tcp
