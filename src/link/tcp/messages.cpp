// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The cold side of messages over TCP: connecting, being connected to, losing, closing.
#include "link/tcp/messages.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "link/message/endpoints.hpp"
#include "os/clock.hpp"
#include "os/link_local.hpp"
#include "os/process.hpp"

namespace weft::link::tcp {
namespace {

constexpr uint64_t ms_ns = 1'000'000;
constexpr uint64_t housekeeping_interval_ns = 5 * ms_ns;
constexpr uint64_t health_interval_ns = 1'000 * ms_ns;
constexpr uint64_t host_timeout_ns = 10'000 * ms_ns;      // until the host has answered
constexpr uint64_t welcome_timeout_ns = 300'000 * ms_ns;  // until the process there has, which may compute
constexpr uint64_t close_linger_ns = 500 * ms_ns;
constexpr int backlog = 4096;

Handshake local_handshake(HandshakeType type) noexcept {
  Handshake handshake;
  handshake.type = type;
  handshake.kind = ConnectionKind::Msg;
  return handshake;
}

}  // namespace

static_assert(message::Endpoints<Messages>);

uint64_t Messages::now_ns() noexcept { return os::monotonic_ns(); }

// --- opening ---

Result<void> Messages::open(std::string_view source) {
  auto set = os::PollSet::create();
  if (!set) return set.error();
  auto timer = os::Timer::create();
  if (!timer) return timer.error();
  os::raise_descriptor_limit();
  listener_.set_address_format(format_);
  if (auto opened = listener_.open(source); !opened) return opened;
  from_ = os::SocketAddress::from(source.data(), source.size()).value_or(os::SocketAddress());
  if (auto listening = listener_.listen(backlog); !listening) return listening;
  if (!set->add(listener_.control_fd(), this) || !set->add(timer->fd().get()))
    return Error{errno, "the system watches no more descriptors"};
  out_ = std::make_unique_for_overwrite<std::byte[]>(message_bytes_max);
  buffer_.resize(Channel::receive_bytes);
  set_ = std::move(*set);
  timer_ = std::move(*timer);
  owner_pid_ = os::process_id();
  return {};
}

// Room in the lists is made with the connection, so that nothing fails later.
Messages::Connection& Messages::add() {
  const size_t count = all_.size() + 1;
  sessions_.reserve(count);
  for (auto* list : {&failed_, &connecting_})
    if (list->capacity() < count) list->reserve(2 * count);
  if (deferred_free_.capacity() < deferred_free_.size() + count)
    deferred_free_.reserve(2 * (deferred_free_.size() + count));
  auto made = std::make_unique<Connection>();
  Connection& connection = *made;
  all_.emplace(&connection, std::move(made));
  return connection;
}

Messages::Connection* Messages::connect(std::span<const std::byte> address, int& error) {
  auto to = os::SocketAddress::from(address.data(), address.size());
  if (to) to = os::on_this_host(*to, from_);
  if (!to || to->port() == 0) {
    error = EINVAL;
    return nullptr;
  }
  Connection& connection = add();
  Handshake handshake = local_handshake(HandshakeType::Hello);
  handshake.target = *to;
  const int failed = connection.channel.connect(*to, {}, dscp_);
  const bool local = failed != 0 && failed != ECONNREFUSED && failed != ENETUNREACH &&
                     failed != EHOSTUNREACH && failed != ETIMEDOUT;
  if (local || (failed == 0 && !set_.add(connection.channel.fd().get(), &connection, os::watch_both))) {
    error = local ? failed : ENOMEM;
    close(connection);
    return nullptr;
  }
  connection.deadline_ns = now_ns() + host_timeout_ns;
  if (failed != 0) {
    fail(connection);
  } else {
    connecting_.push_back(&connection);
    connection.channel.send_hello(handshake);
  }
  return &connection;
}

// Null: whoever asked is refused, or has gone.
Messages::Connection* Messages::admit(std::unique_ptr<Request> request) noexcept try {
  Connection& connection = add();
  connection.channel = request->take();
  connection.channel.send_hello(local_handshake(HandshakeType::Welcome));
  if (connection.channel.state() == Channel::State::Failed ||
      !set_.add(connection.channel.fd().get(), &connection)) {
    close(connection);
    return nullptr;
  }
  connection.channel.open();
  connection.stage = Connection::Stage::Open;
  connection.incoming = true;
  return &connection;
} catch (const std::bad_alloc&) {
  return nullptr;
}

// True: it is there.
bool Messages::advance(Connection& connection) noexcept {
  Channel& channel = connection.channel;
  const Channel::State before = channel.state();
  const Channel::State state = channel.advance();
  if (state == Channel::State::Failed) {
    fail(connection);
    return false;
  }
  if (const Handshake* answer = channel.theirs(); answer != nullptr) {
    const bool welcome = answer->type == HandshakeType::Welcome && answer->kind == ConnectionKind::Msg;
    if (!welcome) {
      fail(connection);
      return false;
    }
    std::erase(connecting_, &connection);
    channel.open();
    connection.stage = Connection::Stage::Open;
    set_.change(channel.fd().get(), &connection, os::watch_reading);
    (void)sessions_.promote(connection);
    return true;
  }
  if (before != state) connection.deadline_ns = now_ns() + welcome_timeout_ns;
  const bool writing = state == Channel::State::Connecting || channel.unflushed();
  set_.change(channel.fd().get(), &connection, writing ? os::watch_both : os::watch_reading);
  return false;
}

bool Messages::speaks_for(const Connection& connection, std::span<const std::byte> address,
                          const Connection& before) noexcept {
  const os::SocketAddress caller = os::remote_address(connection.channel.fd().get());
  const os::SocketAddress earlier = os::remote_address(before.channel.fd().get());
  const auto named = os::SocketAddress::from(address.data(), address.size());
  // The scope of the name is its own host's; the earlier caller's is ours.
  if (os::same_host(caller, earlier)) return os::same_neighbour(caller, earlier);
  return named && os::same_host(caller, *named);
}

// --- moving ---

// A message of our own FI_EP_MSG endpoints that is longer than what they send in one go: a fragmented one, whose first fragment has all of it.
bool Messages::unwrap_fragmented(const wire::FrameHead& head, std::span<const std::byte>& message) noexcept {
  const std::byte* at = message.data();
  size_t left = message.size();
  wire::FirstPrefix prefix{};
  if (head.kind != wire::FrameKind::MsgFirst || !wire::consume(at, left, prefix) || prefix.total != left)
    return false;
  message = {at, left};
  return true;
}

void Messages::keep(Connection& connection, size_t bytes) noexcept try {
  connection.waiting.emplace_back(out_.get(), out_.get() + bytes);
} catch (const std::bad_alloc&) {
  connection.channel.fail(ENOMEM);
}

// False: something is left.
bool Messages::flush(Connection& connection) noexcept {
  Channel& channel = connection.channel;
  if (!channel.flush()) return false;
  size_t sent = 0;
  for (auto& message : connection.waiting) {
    const wire::FrameHead head = head_of(message.size());
    const iovec part{message.data(), message.size()};
    if (!channel.send(head, {}, &part, 1)) break;
    ++sent;
  }
  connection.waiting.erase(connection.waiting.begin(),
                           connection.waiting.begin() + static_cast<std::ptrdiff_t>(sent));
  if (connection.waiting.empty() && sent != 0) connection.waiting.shrink_to_fit();
  return connection.waiting.empty() && !channel.unflushed();
}

void Messages::flush_dirty() noexcept {
  sessions_.flush_dirty(
      [](Connection& connection) {
        return flush(connection) || connection.channel.state() != Channel::State::Open;
      },
      [this](Connection& connection) {
        if (connection.channel.state() != Channel::State::Open) fail(connection);
      });
}

// The connection was closed by whoever got its messages, has ended, or holds a message that was refused.
void Messages::after_read(Connection& connection) noexcept {
  if (connection.stage == Connection::Stage::Over) return hang_up(connection);
  sessions_.set_stalled(connection, connection.channel.stalled());
  if (connection.channel.state() != Channel::State::Open) fail(connection);
}

// To be told of by poll().
void Messages::fail(Connection& connection) noexcept {
  if (connection.stage == Connection::Stage::Over || connection.stage == Connection::Stage::Failing) return;
  connection.stage = Connection::Stage::Failing;
  sessions_.remove(connection);
  std::erase(connecting_, &connection);
  if (connection.channel.fd()) set_.remove(connection.channel.fd().get());
  failed_.push_back(&connection);  // reserved
}

// Time: who has not answered, and machines that answer no more.
void Messages::housekeeping(uint64_t now) noexcept {
  next_housekeeping_ns_ = now + housekeeping_interval_ns;
  for (size_t i = connecting_.size(); i-- > 0;)
    if (now >= connecting_[i]->deadline_ns) fail(*connecting_[i]);
  if (now < next_health_ns_) return;
  next_health_ns_ = now + health_interval_ns;
  for (auto& [connection, owned] : all_)
    if (connection->stage == Connection::Stage::Open && !connection->channel.alive()) {
      connection->channel.fail(ETIMEDOUT);
      fail(*connection);
    }
}

// --- closing ---

void Messages::hang_up(Connection& connection) noexcept {
  if (!belongs_here()) return connection.channel.drop();  // the poll set is the parent's, too
  if (connection.channel.fd()) set_.remove(connection.channel.fd().get());
  if (connection.channel.state() == Channel::State::Open) connection.channel.say_bye();
  connection.channel.close();
}

// The object stays until the poll is over: callers up the stack may be looking at it.
void Messages::close(Connection& connection) noexcept {
  if (connection.stage == Connection::Stage::Over) return;
  sessions_.remove(connection);
  for (auto* list : {&connecting_, &failed_}) std::erase(*list, &connection);
  if (connection.stage == Connection::Stage::Open && connection.channel.state() == Channel::State::Open &&
      belongs_here())
    (void)flush(connection);
  connection.stage = Connection::Stage::Over;
  if (&connection != reading_) hang_up(connection);
  const auto found = all_.find(&connection);
  deferred_free_.push_back(std::move(found->second));  // reserved
  all_.erase(found);
}

void Messages::close() noexcept {
  if (!set_) return;
  if (belongs_here()) {
    const uint64_t until = now_ns() + close_linger_ns;
    const auto waits = [](const auto& entry) {
      Connection& c = *entry.second;
      return c.stage == Connection::Stage::Open && c.channel.state() == Channel::State::Open && !flush(c);
    };
    while (std::count_if(all_.begin(), all_.end(), waits) != 0 && now_ns() < until) {
    }
  }
  while (!all_.empty()) close(*all_.begin()->second);
  deferred_free_.clear();
  listener_.close();
  set_.reset();
  timer_.close();
  next_housekeeping_ns_ = next_health_ns_ = 0;
}

// --- sleeping ---

bool Messages::arm() noexcept {
  flush_dirty();
  if (sessions_.has_stalled() || !failed_.empty()) return false;  // only polling shows them
  for (Connection* connection : sessions_.dirty())
    set_.change(connection->channel.fd().get(), connection, os::watch_both);
  uint64_t due = UINT64_MAX;
  for (const Connection* connection : connecting_) due = std::min(due, connection->deadline_ns);
  const uint64_t now = now_ns();
  timer_.set(due == UINT64_MAX ? 0 : due > now ? due - now : 1);
  return true;
}

void Messages::disarm() noexcept {
  for (Connection* connection : sessions_.dirty())
    set_.change(connection->channel.fd().get(), connection, os::watch_reading);
  timer_.set(0);
  sessions_.check_soon();
}

}  // namespace weft::link::tcp
