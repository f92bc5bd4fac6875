// Accepting, and the handshake of pending connections.
#include "link/tcp/listener.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "link/tcp/congestion.hpp"
#include "os/clock.hpp"
#include "os/poll_set.hpp"
#include "os/traffic_class.hpp"

namespace weft::link::tcp {
namespace {

constexpr int accepts_per_poll = 64;
constexpr uint64_t no_descriptor_pause_ns = 100'000'000;

Handshake answer(HandshakeType type) noexcept {
  Handshake handshake;
  handshake.type = type;
  handshake.kind = ConnectionKind::Msg;
  return handshake;
}

}  // namespace

// --- requests ---

Request::Request(Channel&& channel, uint32_t format)
    : channel_(std::move(channel)),
      handshake_(*channel_.theirs()),
      peer_(format, os::remote_address(channel_.fd().get())),
      local_(format, os::local_address(channel_.fd().get())),
      owner_pid_(os::process_id()) {}

Request::~Request() {
  if (os::process_id() == owner_pid_) reject({});  // a forked child's copy says nothing
}

void Request::reject(std::span<const std::byte> data) noexcept {
  if (!channel_.fd()) return;
  Handshake no = answer(HandshakeType::Refusal);
  no.set_data(data.data(), data.size());
  channel_.refuse(no, RefusalReason::Program);
  channel_.close();
}

Channel Request::take() noexcept { return std::exchange(channel_, Channel(connection_frame_bytes_max)); }

// --- listeners ---

Result<void> Listener::open(std::string_view name) {
  os::SocketAddress wanted = os::SocketAddress::any(FormedAddress::family(format_));
  if (!name.empty()) {
    const auto given = FormedAddress::parse(format_, name);
    if (!given) return Error{EINVAL, "the passive endpoint's address is none of IP"};
    wanted = *given;
  }
  const auto failed = [&](const char* what) {
    const int error = errno;
    return Error{error, std::string(what) + ' ' + wanted.text() + ": " + std::strerror(error)};
  };
  auto set = os::PollSet::create();
  if (!set) return set.error();
  auto timer = os::Timer::create();
  if (!timer) return timer.error();
  auto notice = os::Event::create();
  if (!notice) return notice.error();
  os::Fd socket(::socket(wanted.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return failed("no socket for");
  const int on = 1;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (wanted.family() == AF_INET6)
    (void)::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  os::mark_traffic(socket.get(), dscp_);
  if (::bind(socket.get(), wanted.get(), wanted.size()) != 0) return failed("cannot bind to");
  prepare_congestion_control(socket.get());
  if (!set->add(timer->fd().get()) || !set->add(notice->fd())) return failed("cannot watch");
  close();
  socket_ = std::move(socket);
  set_ = std::move(*set);
  timer_ = std::move(*timer);
  notice_ = std::move(*notice);
  const os::SocketAddress bound = os::local_address(socket_.get());
  os::SocketAddress own = bound.is_any() ? os::outgoing_address(bound.family()) : bound;
  own.set_port(bound.port());
  own_ = FormedAddress(format_, own);
  return {};
}

Result<void> Listener::listen(int backlog) {
  const bool first = backlog_ == 0;
  if (::listen(socket_.get(), backlog) != 0)
    return Error{errno, std::string("cannot listen: ") + std::strerror(errno)};
  backlog_ = static_cast<size_t>(std::max(backlog, 1));
  if (first && !set_.add(socket_.get(), this)) return Error{errno, "cannot watch the listener"};
  return {};
}

void Listener::close() noexcept {
  requests_.clear();  // each is refused
  pending_.clear();
  socket_.reset();
  set_.reset();
  timer_.close();
  notice_.reset();
  backlog_ = 0;
}

void Listener::welcome(os::Fd accepted) noexcept {
  if (pending_.size() >= pending_max) pending_.pop_front();
  try {
    auto pending = std::make_unique<PendingConnection>();
    pending->channel.adopt(std::move(accepted));
    pending->came_at_ns = os::monotonic_ns();
    if (!set_.add(pending->channel.fd().get(), pending.get())) return;
    pending_.push_back(std::move(pending));
  } catch (const std::bad_alloc&) {  // the pending connection is closed
  }
}

// A pending connection has sent something.
void Listener::hear(PendingConnection& pending) noexcept {
  if (pending.gone) return;
  const Channel::State state = pending.channel.advance();
  const Handshake* handshake = pending.channel.theirs();
  if (state != Channel::State::Failed && handshake == nullptr) return;
  pending.gone = true;
  set_.remove(pending.channel.fd().get());
  if (state == Channel::State::Failed || handshake == nullptr) return;
  if (handshake->type != HandshakeType::Hello || handshake->kind != ConnectionKind::Msg) {
    pending.channel.refuse(answer(HandshakeType::Refusal), handshake->type != HandshakeType::Hello
                                                               ? RefusalReason::Malformed
                                                               : RefusalReason::Kind);
    pending.channel.close();
    return;
  }
  try {
    requests_.push_back(std::make_unique<Request>(std::move(pending.channel), format_));
    notice_->notify();
  } catch (const std::bad_alloc&) {
    pending.channel.close();
  }
}

void Listener::dismiss_old(uint64_t now) noexcept {
  while (!pending_.empty() &&
         (pending_.front()->gone || pending_.front()->came_at_ns + pending_timeout_ns_ <= now))
    pending_.pop_front();
  uint64_t next = pending_.empty() ? 0 : pending_.front()->came_at_ns + pending_timeout_ns_ - now;
  if (deaf_until_ns_ != 0 && deaf_until_ns_ <= now) {
    deaf_until_ns_ = 0;
    (void)set_.add(socket_.get(), this);
  } else if (deaf_until_ns_ != 0 && (next == 0 || deaf_until_ns_ - now < next)) {
    next = deaf_until_ns_ - now;
  }
  timer_.set(next);
}

void Listener::poll() noexcept {
  if (!socket_) return;
  std::array<void*, 64> ready{};
  const size_t count = set_.ready(ready);
  bool knocking = false;
  for (size_t i = 0; i < count; ++i) {
    if (ready[i] == this) knocking = true;
    else if (ready[i] != nullptr && requests_.size() < backlog_)
      hear(*static_cast<PendingConnection*>(ready[i]));
  }
  std::erase_if(pending_, [](const std::unique_ptr<PendingConnection>& pending) { return pending->gone; });
  // As a rule the handshake has come before the connection is accepted: it is read at once.
  for (int i = 0; knocking && i < accepts_per_poll && requests_.size() < backlog_; ++i) {
    os::Fd accepted(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) {
      // No descriptor is left: who knocks waits, and whoever sleeps on us must not be woken for it all the time.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        set_.remove(socket_.get());
        deaf_until_ns_ = os::monotonic_ns() + no_descriptor_pause_ns;
      }
      break;
    }
    welcome(std::move(accepted));
    if (!pending_.empty()) hear(*pending_.back());
  }
  dismiss_old(os::monotonic_ns());
}

std::unique_ptr<Request> Listener::next() noexcept {
  if (requests_.empty()) {
    if (notice_) notice_->drain();
    return nullptr;
  }
  auto request = std::move(requests_.front());
  requests_.pop_front();
  return request;
}

}  // namespace weft::link::tcp
