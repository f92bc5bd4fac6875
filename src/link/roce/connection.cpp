// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Setting out, being answered, leaving.
#include "link/roce/connection.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "link/tcp/formed_address.hpp"
#include "os/clock.hpp"
#include "os/socket_address.hpp"

namespace weft::link::roce {
namespace {

constexpr int linger_step_ms = 1;

// The name of a queue pair, then the program's data.
struct Introduction {
  std::array<std::byte, tcp::handshake_data_max> bytes;
  size_t count;

  Introduction(const MessageChannel::Name& name, std::span<const std::byte> data) noexcept
      : count(name.size() + std::min(data.size(), Connection::connection_data_bytes_max)) {
    std::ranges::copy(name, bytes.begin());
    std::copy_n(data.begin(), count - name.size(), bytes.begin() + name.size());
  }
  std::span<const std::byte> span() const noexcept { return std::span(bytes).first(count); }
};

std::string_view text_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::unique_ptr<Request> Listener::next() {
  while (auto request = listener_.next()) {
    if (MessageChannel::is_name(request->data())) return std::make_unique<Request>(std::move(request));
    request->reject({});
  }
  return nullptr;
}

// --- setting out ---

Result<void> Connection::open(std::string_view name, Events& events, proto::ConnectionObserver& observer) {
  events_ = &events;
  observer_ = &observer;
  return control_.open(name, *this, *this);
}

Result<void> Connection::start(std::string_view name, std::span<const std::byte> data) {
  const auto to = tcp::FormedAddress::parse(format_, name);
  if (!to || to->port() == 0 || to->family() != AF_INET)
    return Error{EINVAL, "the address to connect to is none of IPv4 with a port"};
  const auto own = tcp::FormedAddress::parse(format_, text_of(control_.address()));
  os::SocketAddress from = own && !own->is_any() ? *own : os::source_toward(*to);
  from.set_port(0);
  if (auto opened = channel_.open(from, *to); !opened) return opened;
  stage_ = Stage::Connecting;
  auto started = control_.start(name, Introduction(channel_.name(), data).span());
  if (started) return started;
  stage_ = Stage::Idle;
  channel_.close();
  return started;
}

Result<void> Connection::accept(std::unique_ptr<Request> request, std::span<const std::byte> data) {
  auto local = tcp::FormedAddress::parse(format_, text_of(request->local_address()));
  if (!local) return Error{EINVAL, "the request came in at no IP address"};
  local->set_port(0);
  if (auto opened = channel_.open(*local, {}); !opened) return opened;
  const auto theirs = request->request_->data();
  auto ready = channel_.connect(theirs, MessageChannel::Role::Passive);
  if (ready) {
    accepts_ = true;
    ready = control_.accept(std::move(request->request_), Introduction(channel_.name(), data).span());
  }
  if (ready) return ready;
  stage_ = Stage::Over;
  channel_.close();
  return ready;
}

void Connection::connected(std::span<const std::byte> data) noexcept {
  if (!accepts_) {
    Result<void> ready{};
    try {
      ready = channel_.connect(data, MessageChannel::Role::Active);
    } catch (const std::bad_alloc&) {
      ready = Error{ENOMEM, {}};
    }
    if (!ready) {
      control_.shut_down();
      return refused(ECONNREFUSED, core::ProviderError::ConnectionForeign, {});
    }
    data = data.subspan(MessageChannel::name_bytes);
  }
  try {
    peer_ = events_->make_peer(control_.peer_address());
  } catch (const std::bad_alloc&) {
    control_.shut_down();
    return refused(ENOMEM, core::ProviderError::NoChannel, {});
  }
  stage_ = Stage::Open;
  checks_ = true;
  observer_->connected(data);
}

void Connection::refused(int error, core::ProviderError why, std::span<const std::byte> data) noexcept {
  stage_ = Stage::Over;
  channel_.close();
  observer_->refused(error, why, data);
}

// --- the end ---

void Connection::disconnected(core::ProviderError why) noexcept {
  if (stage_ == Stage::Open) {
    is_ending_ = true;
    why_ = why;
  } else if (stage_ == Stage::Shut) {
    stage_ = Stage::Over;
    if (observer_ != nullptr) observer_->disconnected(why);
  }
}

void Connection::check() noexcept {
  checks_ = false;
  LastWord last_word{this};
  (void)control_.poll(last_word);
}

// What had come before the peer left is shown first.
void Connection::end() noexcept {
  if (stage_ != Stage::Open) return;
  if (misbehaved_) return lose(core::ProviderError::PeerMisbehaved);
  if (channel_.has_pending()) return;
  if (is_ending_) return lose(why_);
  // The TCP connection may know better why nothing gets through.
  check();
  if (!is_ending_)
    lose(channel_.is_silent_failure() ? core::ProviderError::PeerUnreachable : core::ProviderError::PeerDied);
}

void Connection::lose(core::ProviderError why) noexcept {
  stage_ = Stage::Over;
  control_.shut_down();
  PeerBase* const peer = std::exchange(peer_, nullptr);
  if (peer != nullptr) events_->peer_lost(*peer, why);
  channel_.close();
  observer_->disconnected(why);
}

void Connection::shut_down() noexcept {
  if (stage_ != Stage::Open || !belongs_here()) return;
  stage_ = Stage::Shut;
  peer_ = nullptr;
  if (is_ending_) return disconnected(why_);
  // Until the other side's adapter has all that was sent: then it is read there whatever happens here.
  for (const uint64_t until = std::min(os::monotonic_ns() + linger_ns, linger_until_);
       os::monotonic_ns() < until;) {
    channel_.drive();
    if (channel_.acknowledged() == channel_.sent() || channel_.has_failed()) break;
    // Who has left acknowledges nothing any more.
    control_.advance();
    check();
    if (stage_ != Stage::Shut) return;
    pollfd nothing{};
    (void)::poll(&nothing, 0, linger_step_ms);
  }
  // The acknowledgement of what came last may be lost, and there will be nobody to repeat it.
  (void)control_.send(control_peer_, {wire::FrameKind::Done, 0, 0, 0, channel_.consumed(), 0}, {}, nullptr,
                      0);
  control_.shut_down();
}

void Connection::close() noexcept {
  observer_ = nullptr;  // hears no more
  shut_down();
  stage_ = Stage::Over;
  control_.close();
  channel_.close();
  wait_.reset();
  peer_ = nullptr;
}

// --- sleeping ---

int Connection::wait_fd() noexcept {
  if (!wait_) {
    auto set = os::PollSet::create();
    if (!set) return -1;
    wait_ = std::move(*set);
  }
  if (channel_.wait_fd() >= 0) (void)wait_.watch(channel_.wait_fd());
  if (const int fd = control_.wait_fd(); fd >= 0) (void)wait_.watch(fd);
  return wait_.get();
}

bool Connection::arm() noexcept {
  if (stage_ == Stage::Open && (is_ending_ || misbehaved_)) return false;
  if (wait_) (void)wait_fd();  // the channel may be new
  const bool control = control_.arm();
  return channel_.arm() && control;
}

void Connection::disarm() noexcept {
  checks_ = true;
  channel_.disarm();
  control_.disarm();
}

static_assert(proto::ConnectedLink<Connection> && proto::HasSleep<Connection> &&
              proto::HasSendCompletion<Connection>);

}  // namespace weft::link::roce
