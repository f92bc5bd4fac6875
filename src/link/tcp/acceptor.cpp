// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/tcp/acceptor.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "link/tcp/congestion.hpp"
#include "os/traffic_class.hpp"

namespace weft::link::tcp {

Result<os::Fd> Acceptor::bind(const os::SocketAddress& wanted, uint8_t dscp) {
  const auto failed = [&](const char* what) {
    const int error = errno;
    return Error{error, std::string(what) + ' ' + wanted.text() + ": " + std::strerror(error)};
  };
  os::Fd socket(::socket(wanted.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return failed("no socket for");
  const int on = 1;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (wanted.family() == AF_INET6)
    (void)::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  os::mark_traffic(socket.get(), dscp);
  if (::bind(socket.get(), wanted.get(), wanted.size()) != 0) return failed("cannot bind to");
  prepare_congestion_control(socket.get());
  return socket;
}

void Acceptor::open(os::Fd bound, os::PollSet& set) noexcept {
  close();
  socket_ = std::move(bound);
  set_ = &set;
}

Result<void> Acceptor::listen(int backlog) {
  if (::listen(socket_.get(), backlog) != 0)
    return Error{errno,
                 "cannot listen at " + os::local_address(socket_.get()).text() + ": " + std::strerror(errno)};
  if (!std::exchange(listening_, true) && !watch()) return Error{errno, "cannot watch the listener"};
  return {};
}

bool Acceptor::watch() noexcept { return set_->add(socket_.get(), &source_); }

PendingConnection* Acceptor::accept(uint64_t now_ns) noexcept try {
  constexpr int tries_max = 16;  // connections that were given up before we came
  short_of_descriptors_ = false;
  if (deaf_until_ns_ != 0) return nullptr;
  for (int i = 0; i < tries_max; ++i) {
    const bool full = pending_.size() >= bounds_.pending_max;
    if (full && now_ns - pending_.front()->came_at_ns < bounds_.grace_ns) {
      be_deaf(now_ns);
      return nullptr;
    }
    // Room for all of them, so that dismiss() does not fail.
    if (const size_t room = gone_.size() + pending_.size() + 1; gone_.capacity() < room)
      gone_.reserve(2 * room);
    auto made = std::make_unique<PendingConnection>(bounds_.frame_bytes_max);
    os::Fd accepted(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) {
      const int error = errno;
      if (error == EINTR || error == ECONNABORTED) continue;
      short_of_descriptors_ = error == EMFILE || error == ENFILE;
      if (short_of_descriptors_ || error == ENOBUFS || error == ENOMEM) be_deaf(now_ns);
      return nullptr;
    }
    if (full) dismiss(*pending_.front());
    made->channel.adopt(std::move(accepted));
    made->came_at_ns = now_ns;
    if (!set_->add(made->channel.fd().get(), static_cast<Source*>(made.get()))) continue;
    pending_.push_back(std::move(made));
    return pending_.back().get();
  }
  return nullptr;
} catch (const std::bad_alloc&) {
  return nullptr;
}

// Whoever connects waits in the kernel, and the owner is not woken for it.
void Acceptor::be_deaf(uint64_t now_ns) noexcept {
  set_->remove(socket_.get());
  deaf_until_ns_ = now_ns + deaf_pause_ns;
}

void Acceptor::dismiss(PendingConnection& pending) noexcept {
  if (std::exchange(pending.gone, true)) return;
  if (pending.channel.fd()) set_->remove(pending.channel.fd().get());
  pending.channel.close();
  const auto found =
      std::ranges::find_if(pending_, [&](const auto& entry) { return entry.get() == &pending; });
  gone_.push_back(std::move(*found));  // reserved
  pending_.erase(found);
}

uint64_t Acceptor::run_housekeeping(uint64_t now_ns) noexcept {
  while (!pending_.empty() && pending_.front()->came_at_ns + bounds_.silence_ns <= now_ns)
    dismiss(*pending_.front());
  if (deaf_until_ns_ != 0 && deaf_until_ns_ <= now_ns) deaf_until_ns_ = watch() ? 0 : now_ns + deaf_pause_ns;
  uint64_t next = pending_.empty() ? 0 : pending_.front()->came_at_ns + bounds_.silence_ns - now_ns;
  if (deaf_until_ns_ != 0 && (next == 0 || deaf_until_ns_ - now_ns < next)) next = deaf_until_ns_ - now_ns;
  return next;
}

void Acceptor::close() noexcept {
  for (auto& pending : pending_) pending->channel.drop();
  pending_.clear();
  gone_.clear();
  socket_.reset();
  deaf_until_ns_ = 0;
  listening_ = false;
  short_of_descriptors_ = false;
}

}  // namespace weft::link::tcp
