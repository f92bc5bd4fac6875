// Accepting, and hearing guests out.
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

Hello answer(HelloType type) noexcept {
  Hello hello;
  hello.type = type;
  hello.kind = ConnectionKind::Msg;
  return hello;
}

}  // namespace

// --- requests ---

Request::Request(Channel&& channel, uint32_t format)
    : channel_(std::move(channel)),
      hello_(*channel_.theirs()),
      peer_(format, os::remote_address(channel_.fd().get())),
      local_(format, os::local_address(channel_.fd().get())),
      owner_pid_(os::process_id()) {}

Request::~Request() {
  if (os::process_id() == owner_pid_) reject({});  // a forked child's copy says nothing
}

void Request::reject(std::span<const std::byte> data) noexcept {
  if (!channel_.fd()) return;
  Hello no = answer(HelloType::Refusal);
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
  guests_.clear();
  socket_.reset();
  set_.reset();
  timer_.close();
  notice_.reset();
  backlog_ = 0;
}

void Listener::welcome(os::Fd accepted) noexcept {
  if (guests_.size() >= guests_max) guests_.pop_front();
  try {
    auto guest = std::make_unique<Guest>();
    guest->channel.adopt(std::move(accepted));
    guest->came_at_ns = os::monotonic_ns();
    if (!set_.add(guest->channel.fd().get(), guest.get())) return;
    guests_.push_back(std::move(guest));
  } catch (const std::bad_alloc&) {  // the guest goes
  }
}

// A guest has said something.
void Listener::hear(Guest& guest) noexcept {
  if (guest.gone) return;
  const Channel::State state = guest.channel.advance();
  const Hello* hello = guest.channel.theirs();
  if (state != Channel::State::Failed && hello == nullptr) return;
  guest.gone = true;
  set_.remove(guest.channel.fd().get());
  if (state == Channel::State::Failed || hello == nullptr) return;
  if (hello->type != HelloType::Hello || hello->kind != ConnectionKind::Msg) {
    guest.channel.refuse(answer(HelloType::Refusal),
                         hello->type != HelloType::Hello ? RefusalReason::Malformed : RefusalReason::Kind);
    guest.channel.close();
    return;
  }
  try {
    requests_.push_back(std::make_unique<Request>(std::move(guest.channel), format_));
    notice_->notify();
  } catch (const std::bad_alloc&) {
    guest.channel.close();
  }
}

void Listener::dismiss_old(uint64_t now) noexcept {
  while (!guests_.empty() &&
         (guests_.front()->gone || guests_.front()->came_at_ns + guest_timeout_ns_ <= now))
    guests_.pop_front();
  uint64_t next = guests_.empty() ? 0 : guests_.front()->came_at_ns + guest_timeout_ns_ - now;
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
    else if (ready[i] != nullptr && requests_.size() < backlog_) hear(*static_cast<Guest*>(ready[i]));
  }
  std::erase_if(guests_, [](const std::unique_ptr<Guest>& guest) { return guest->gone; });
  // The usual guest has said its hello before it is accepted: it is heard at once.
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
    if (!guests_.empty()) hear(*guests_.back());
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
