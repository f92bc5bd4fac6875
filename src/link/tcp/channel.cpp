// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The system calls of a channel: connecting, handshake, writing, reading, noticing that nobody is there.
#include "link/tcp/channel.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/assert.hpp"
#include "link/tcp/congestion.hpp"
#include "os/traffic_class.hpp"

namespace weft::link::tcp {
namespace {

// A silent connection is probed after 5 s, three times in 6 s.
constexpr int keepalive_idle_s = 5;
constexpr int keepalive_interval_s = 2;
constexpr int keepalive_probes = 3;
// Retransmissions in a row without an answer: 0.2 + 0.4 + ... s, about 12 s in all. After a stall of the machine they begin
// with more than 0.2 s, and the last of them comes too late.
constexpr unsigned retransmissions_max = 6;
constexpr unsigned retransmissions_enough = 3;
constexpr unsigned retransmission_ms_max = 12'000;
constexpr unsigned window_probes_max = 5;
constexpr unsigned silence_ms_max = 10'000;

void set(int fd, int level, int option, int value) noexcept {
  (void)::setsockopt(fd, level, option, &value, sizeof(value));
}

}  // namespace

void Channel::set_options() noexcept {
  set(fd_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, keepalive_idle_s);
  set(fd_.get(), IPPROTO_TCP, TCP_KEEPINTVL, keepalive_interval_s);
  set(fd_.get(), IPPROTO_TCP, TCP_KEEPCNT, keepalive_probes);
}

void Channel::fail(int error) noexcept {
  if (state_ == State::Failed) return;
  state_ = State::Failed;
  error_ = error;
}

// --- connecting ---

int Channel::connect(const os::SocketAddress& to, const os::SocketAddress& from, uint8_t dscp) noexcept {
  WEFT_ASSERT(state_ == State::Closed && !fd_);
  fd_ = os::Fd(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_) {
    fail(errno);
    return error_;
  }
  set_options();
  os::mark_traffic(fd_.get(), dscp);
  if (from && !from.is_any()) {
    // The port is chosen when the destination is known, so that ports do not run out.
    set(fd_.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    set(fd_.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (::bind(fd_.get(), from.get(), from.size()) != 0) {
      fail(errno);
      return error_;
    }
  }
  choose_congestion_control(fd_.get(), to);
  state_ = State::Connecting;
  if (::connect(fd_.get(), to.get(), to.size()) != 0 && errno != EINPROGRESS) fail(errno);
  return error_;
}

void Channel::adopt(os::Fd accepted) noexcept {
  WEFT_ASSERT(state_ == State::Closed && !fd_);
  fd_ = std::move(accepted);
  set_options();
  revise_congestion_control(fd_.get());
  state_ = State::Handshaking;
}

bool Channel::finish_connect() noexcept {
  pollfd ready{fd_.get(), POLLOUT, 0};
  if (::poll(&ready, 1, 0) <= 0) return false;
  int error = 0;
  socklen_t length = sizeof(error);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  // A socket that connects to a port of this machine that nobody has may be given just that port, and reaches itself.
  if (error == 0 && os::local_address(fd_.get()) == os::remote_address(fd_.get())) error = ECONNREFUSED;
  if (error != 0) {
    fail(error);
    return false;
  }
  state_ = State::Handshaking;
  return true;
}

void Channel::send_hello(const Handshake& handshake) noexcept {
  if (state_ != State::Connecting && state_ != State::Handshaking) return;
  std::array<std::byte, handshake_bytes_max> bytes;
  const size_t size = pack_handshake(handshake, bytes.data());
  if (!out_.put_bytes(bytes.data(), size)) return fail(ENOMEM);
  handshake_bytes_ += size;
  WEFT_ASSERT(written_ <= out_.size() && handshake_bytes_ <= out_.own_size());
  if (state_ == State::Handshaking) (void)write_collected();
}

void Channel::refuse(const Handshake& own, RefusalReason reason) noexcept {
  Handshake no = own;
  no.type = HandshakeType::Refusal;
  no.reason = reason;
  send_hello(no);
  refusal_ = reason;
  // What the other side says meanwhile must not reset the connection before it has read this.
  if (fd_ && origin_.is_here()) (void)::shutdown(fd_.get(), SHUT_WR);
  fail(ECONNREFUSED);
}

void Channel::read_handshake() noexcept {
  if (handshake_ == nullptr) handshake_.reset(new (std::nothrow) IncomingHandshake);
  if (handshake_ == nullptr) return fail(ENOMEM);
  IncomingHandshake& in = *handshake_;
  while (!in.complete && state_ == State::Handshaking) {
    const bool prefix = in.arrived < handshake_prefix_bytes;
    const size_t wanted = prefix ? handshake_prefix_bytes : handshake_size(in.bytes.data());
    WEFT_ASSERT(wanted <= in.bytes.size() && (wanted == 0 || in.arrived <= wanted));
    if (wanted == 0) {
      Handshake own;
      return refuse(own,
                    is_foreign_version(in.bytes.data()) ? RefusalReason::Version : RefusalReason::Malformed);
    }
    if (in.arrived == wanted) {
      const RefusalReason wrong = unpack_handshake(std::span(in.bytes).first(wanted), in.handshake);
      if (wrong != RefusalReason::None) {
        Handshake own;
        refuse(own, wrong);
        error_ = EPROTO;
        return;
      }
      in.complete = true;
      return;
    }
    const iovec part{in.bytes.data() + in.arrived, wanted - in.arrived};
    const ssize_t got = read(&part, 1);
    if (got <= 0) return;
    in.arrived += static_cast<size_t>(got);
  }
}

Channel::State Channel::advance() noexcept {
  if (state_ == State::Connecting && !finish_connect()) return state_;
  if (state_ == State::Handshaking && unflushed()) (void)write_collected();
  if (state_ == State::Handshaking && theirs() == nullptr) read_handshake();
  return state_;
}

bool Channel::was_given_up() const noexcept {
  if (state_ != State::Handshaking || !origin_.is_here()) return false;
  std::byte next;
  const ssize_t got = ::recv(fd_.get(), &next, 1, MSG_DONTWAIT | MSG_PEEK);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

void Channel::open() noexcept {
  if (state_ != State::Handshaking) return;
  handshake_.reset();
  state_ = State::Open;
  out_.drop(std::exchange(written_, 0));
}

// --- bytes ---

// The bytes that the socket took; 0 when it took none. Failed on an error.
ssize_t Channel::write(const iovec* parts, size_t count) noexcept {
  WEFT_ASSERT(state_ != State::Closed && state_ != State::Failed);
  if (!origin_.is_here()) [[unlikely]] {  // the stream is that of a forked child's parent
    full_ = true;
    return 0;
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  while (true) {
    const ssize_t sent = count == 1
                             ? ::send(fd_.get(), parts->iov_base, parts->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                             : ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      gone_ += static_cast<uint64_t>(sent);
      return sent;
    }
    if (errno == EINTR) continue;
    reset_ = reset_ || errno == EPIPE || errno == ECONNRESET;
    // What the other side had sent before it went is still to be read: reading will find the end.
    if (errno != EAGAIN && errno != EPIPE && errno != ECONNRESET) fail(errno);
    full_ = true;
    return 0;
  }
}

ssize_t Channel::read(const iovec* parts, size_t count) noexcept {
  if (!origin_.is_here()) [[unlikely]]
    return -1;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  while (true) {
    const ssize_t got = count == 1 ? ::recv(fd_.get(), parts->iov_base, parts->iov_len, MSG_DONTWAIT)
                                   : ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (got > 0) return got;
    if (got == 0) {
      fail(bye_ && !in_.inside() ? ESHUTDOWN : ECONNRESET);
      return 0;
    }
    if (errno == EINTR) continue;
    reset_ = reset_ || errno == ECONNRESET;
    if (errno != EAGAIN) fail(errno);
    return -1;
  }
}

// It is lost with the connection, as one that was under way; but no socket has it.
bool Channel::lose_frame(size_t bytes) noexcept {
  broken_ += bytes;
  return true;
}

// Gathers a small frame and writes it; what the socket does not take waits.
bool Channel::write_small(const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
                          size_t part_count) noexcept {
  std::array<std::byte, proto::stream::head_bytes_max + small_frame_max> bytes;
  std::byte* at = bytes.data() + proto::stream::pack_head(head, bytes.data());
  if (!prefix.empty()) std::memcpy(at, prefix.data(), prefix.size());
  at += prefix.size();
  for (size_t i = 0; i < part_count; ++i) {
    if (parts[i].iov_len != 0) std::memcpy(at, parts[i].iov_base, parts[i].iov_len);
    at += parts[i].iov_len;
  }
  const iovec all{bytes.data(), static_cast<size_t>(at - bytes.data())};
  WEFT_ASSERT(all.iov_len <= bytes.size());
  WEFT_ASSERT(head.length <= small_frame_max && all.iov_len > head.length);
  const auto sent = static_cast<size_t>(write(&all, 1));
  if (state_ != State::Open) return lose_frame(all.iov_len);
  full_ = sent < all.iov_len;
  if (!full_) return true;
  if (out_.put_bytes(bytes.data() + sent, all.iov_len - sent)) return true;
  if (sent != 0) fail(ENOMEM);
  return sent != 0;
}

// Writes what was collected, then a large frame from where it lies. What the socket leaves of the frame stays there if it may, else it is copied.
bool Channel::write_large(const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
                          size_t part_count, bool stays) noexcept {
  if (full_ || part_count > parts_max) return false;
  std::array<std::byte, proto::stream::head_bytes_max> packed;
  std::array<iovec, parts_max + 2 + waiting_parts_max> all;
  size_t before = 0;
  WEFT_ASSERT(written_ == 0);
  size_t count = out_.front(all.data(), waiting_parts_max, 0, before);
  if (before != out_.size()) {  // more pieces than that
    if (!write_collected()) return false;
    if (state_ != State::Open) return lose_frame(proto::stream::head_bytes_max + head.length);
    count = before = 0;
  }
  const size_t own = count;
  const size_t head_bytes = proto::stream::pack_head(head, packed.data());
  all[count++] = {packed.data(), head_bytes};
  if (!prefix.empty()) all[count++] = {const_cast<std::byte*>(prefix.data()), prefix.size()};
  const size_t theirs = count;
  for (size_t i = 0; i < part_count; ++i)
    if (parts[i].iov_len != 0) all[count++] = parts[i];
  size_t sent = static_cast<size_t>(write(all.data(), count));
  if (state_ != State::Open) return lose_frame(head_bytes + head.length);
  const size_t old = std::min(sent, before);
  out_.drop(old);
  sent -= old;
  full_ = sent < head_bytes + head.length;
  WEFT_ASSERT(sent <= head_bytes + head.length);
  if (!full_) return true;
  if (sent == 0) return false;
  // Room first: a frame that is cut in the middle would be the end of the stream.
  if (!out_.reserve(stays ? head_bytes + prefix.size() : head_bytes + head.length - sent)) {
    fail(ENOMEM);
    return true;
  }
  for (size_t i = own; i < count; ++i) {
    const size_t skip = std::min(sent, all[i].iov_len);
    sent -= skip;
    const auto* rest = static_cast<const std::byte*>(all[i].iov_base) + skip;
    const size_t bytes = all[i].iov_len - skip;
    if (stays && i >= theirs && out_.refer(rest, bytes)) continue;
    if (!out_.put_bytes(rest, bytes)) fail(ENOMEM);
  }
  return true;
}

bool Channel::send_in_place(const wire::FrameHead& head, std::span<const std::byte> prefix,
                            const iovec* parts, size_t part_count) noexcept {
  if (state_ != State::Open || head.length <= small_frame_max) return send(head, prefix, parts, part_count);
  if (coalescer_.has_lone() && out_.empty() && !full_) {
    coalescer_.take_lone();
    coalescer_.count(large_frame_weight);
    if (write_large(head, prefix, parts, part_count, true)) return true;
  }
  if (out_.referred() >= gathered_bytes) return false;
  if (out_.own_size() > collected_bytes_max || !out_.put_in_place(head, prefix, parts, part_count))
    return write_large(head, prefix, parts, part_count, true);
  coalescer_.count(large_frame_weight);
  if (out_.referred() >= gathered_bytes && !full_) (void)write_collected();
  return true;
}

void Channel::keep() noexcept {
  if (out_.keep()) return;
  broken_ += out_.size() - std::exchange(written_, 0);
  out_.clear();  // nobody may look there any more
  fail(ENOMEM);
}

// False: something is left.
bool Channel::write_collected() noexcept {
  if (state_ == State::Failed) return true;  // a frame may be cut in the middle
  std::array<iovec, 2 * proto::stream::Outbox::pieces_max + 1> parts;
  size_t waiting = 0;
  const size_t count = out_.front(parts.data(), parts.size(), written_, waiting);
  const auto sent = static_cast<size_t>(write(parts.data(), count));
  WEFT_ASSERT(sent <= waiting);
  if (state_ == State::Failed) return true;
  full_ = sent < waiting;
  if (state_ == State::Open) out_.drop(sent);
  else written_ += sent;
  return !full_;
}

bool Channel::send_early(const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
                         size_t part_count) noexcept {
  if (!early_ || (state_ != State::Connecting && state_ != State::Handshaking) ||
      head.length > small_frame_max || out_.size() > collected_bytes_max)
    return false;
  return out_.put(head, prefix, parts, part_count);
}

void Channel::say_bye() noexcept {
  const wire::FrameHead bye{frame_bye, 0, 0, 0, 0, 0};
  if (state_ != State::Open) return (void)send_early(bye, {}, nullptr, 0);
  (void)out_.put(bye, {}, nullptr, 0);
  (void)write_collected();
}

bool Channel::alive() const noexcept {
  if (!fd_) return false;
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return true;
  // A peer that does not read has a closed window, but its machine answers: probes in a row without an answer count, not time alone.
  return info.tcpi_retransmits < retransmissions_max &&
         !(info.tcpi_retransmits >= retransmissions_enough &&
           info.tcpi_last_ack_recv > retransmission_ms_max) &&
         !(info.tcpi_probes >= window_probes_max && info.tcpi_last_ack_recv > silence_ms_max);
}

uint64_t Channel::delivered() const noexcept {
  WEFT_ASSERT(gone_ >= first_);
  if (!fd_ || reset_) return first_;
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return first_;
  return first_ + std::min<uint64_t>(info.tcpi_bytes_acked, gone_ - first_);
}

void Channel::close() noexcept {
  if (fd_ && origin_.is_here()) {
    (void)::shutdown(fd_.get(), SHUT_WR);
    // Unread bytes would turn the close into a reset, which overtakes what was sent.
    std::array<std::byte, 4096> unread;
    for (int i = 0; i < 256 && ::recv(fd_.get(), unread.data(), unread.size(), MSG_DONTWAIT) > 0; ++i) {
    }
  }
  drop();
}

void Channel::drop() noexcept {
  fd_.reset();
  out_.clear();
  handshake_.reset();
  state_ = State::Closed;
}

}  // namespace weft::link::tcp
