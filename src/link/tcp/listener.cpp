// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Accepting, and the handshake of pending connections.
#include "link/tcp/listener.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "os/clock.hpp"
#include "os/poll_set.hpp"

namespace weft::link::tcp {
namespace {

constexpr int accepts_per_poll = 64;

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
  auto set = os::PollSet::create();
  if (!set) return set.error();
  auto timer = os::Timer::create();
  if (!timer) return timer.error();
  auto notice = os::Event::create();
  if (!notice) return notice.error();
  auto socket = Acceptor::bind(wanted, dscp_);
  if (!socket) return socket.error();
  if (!set->add(timer->fd().get()) || !set->add(notice->fd()))
    return Error{errno, std::string("cannot watch: ") + std::strerror(errno)};
  close();
  set_ = std::move(*set);
  acceptor_.open(std::move(*socket), set_);
  timer_ = std::move(*timer);
  notice_ = std::move(*notice);
  const os::SocketAddress bound = os::local_address(acceptor_.fd().get());
  os::SocketAddress own = bound.is_any() ? os::outgoing_address(bound.family()) : bound;
  own.set_port(bound.port());
  own_ = FormedAddress(format_, own);
  return {};
}

Result<void> Listener::listen(int backlog) {
  if (auto listening = acceptor_.listen(backlog); !listening) return listening;
  backlog_ = static_cast<size_t>(std::max(backlog, 1));
  return {};
}

void Listener::close() noexcept {
  requests_.clear();  // each is refused
  acceptor_.close();
  set_.reset();
  timer_.close();
  notice_.reset();
  backlog_ = 0;
}

// A pending connection has sent something.
void Listener::hear(PendingConnection& pending) noexcept {
  if (pending.gone) return;
  const Channel::State state = pending.channel.advance();
  const Handshake* handshake = pending.channel.theirs();
  if (state != Channel::State::Failed && handshake == nullptr) return;
  set_.remove(pending.channel.fd().get());
  if (state == Channel::State::Failed || handshake == nullptr) return acceptor_.dismiss(pending);
  if (handshake->type != HandshakeType::Hello || handshake->kind != ConnectionKind::Msg) {
    pending.channel.refuse(answer(HandshakeType::Refusal), handshake->type != HandshakeType::Hello
                                                               ? RefusalReason::Malformed
                                                               : RefusalReason::Kind);
    return acceptor_.dismiss(pending);
  }
  try {
    requests_.push_back(std::make_unique<Request>(std::move(pending.channel), format_));
    notice_->notify();
  } catch (const std::bad_alloc&) {
  }
  acceptor_.dismiss(pending);
}

void Listener::poll() noexcept {
  if (!acceptor_.listens()) return;
  std::array<void*, 64> ready{};
  const size_t count = set_.ready(ready);
  bool knocking = false;
  for (size_t i = 0; i < count; ++i) {
    auto* source = static_cast<Source*>(ready[i]);
    if (source == nullptr) continue;  // the timer, the notice
    if (source->kind == SourceKind::Listener) knocking = true;
    else if (requests_.size() < backlog_) hear(static_cast<PendingConnection&>(*source));
  }
  acceptor_.reap();
  const uint64_t now = os::monotonic_ns();
  // As a rule the handshake has come before the connection is accepted: it is read at once.
  for (int i = 0; knocking && i < accepts_per_poll && requests_.size() < backlog_; ++i) {
    PendingConnection* pending = acceptor_.accept(now);
    if (pending == nullptr) break;
    hear(*pending);
  }
  timer_.set(acceptor_.run_housekeeping(now));
  acceptor_.reap();
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
