// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Handshake, attaching and ending (run_housekeeping()); packets in and out.
#include "link/roce/shm_port.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "link/roce/headers.hpp"
#include "os/clock.hpp"
#include "os/process.hpp"
#include "os/shortage.hpp"
#include "os/unix_connection.hpp"
#include "os/unix_socket.hpp"
#include "wire/bytes.hpp"
#include "wire/roce/icrc.hpp"

namespace weft::link::roce {
namespace {

constexpr size_t known_max = 4096;  // GIDs, also of peers that are not there
constexpr uint64_t ask_again_ns = 1'000'000'000;
constexpr uint64_t disposal_ns = 1'000'000;

bool is_datagram(std::span<const std::byte> headers) noexcept {
  return wire::roce::transport_of(std::to_integer<uint8_t>(headers[0])) == wire::roce::Transport::Datagram;
}

}  // namespace

size_t ShmPort::GidHash::operator()(const Gid& gid) const noexcept {
  std::array<uint64_t, 2> halves;  // port and host are in either
  std::memcpy(halves.data(), gid.data(), sizeof halves);
  const uint64_t place = (halves[1] * 0x9e3779b97f4a7c15 ^ halves[0]) * 0x9e3779b97f4a7c15;
  return static_cast<size_t>(place ^ place >> 32);
}

std::string ShmPort::name_of(const Gid& gid, uint32_t scope) {
  std::string name = "weft-roce/";
  for (const std::byte byte : gid) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", std::to_integer<unsigned>(byte));
    name += digits.data();
  }
  if (scope != 0) name.append("%").append(std::to_string(scope));
  return name;
}

Result<void> ShmPort::open(const os::SocketAddress& own, proto::PacketCapture* capture,
                           const packet::Audience& audience) {
  audience_ = audience;
  const auto gid = gid_with_port(own);
  if (!gid) return Error{EAFNOSUPPORT, "shared memory needs a GID with a port"};
  auto set = os::PollSet::create();
  if (!set) return set.error();
  auto listener = os::listen_at(name_of(*gid, own.scope()));
  if (!listener) return listener.error();
  if (!set->add(listener->get(), &listener_tag_))
    return Error{errno, std::string("cannot watch a Unix socket: ") + std::strerror(errno)};
  fences_ = is_relaxed_ = os::register_for_fence() && os::fence_registered_processes();
  own_ = own;
  local_gid_ = *gid;
  capture_ = capture;
  set_ = std::move(*set);
  listener_ = std::move(*listener);
  return {};
}

// What waits in the queues of connections that nobody accepted goes with the listener, so that goes to the disposal,
// too.
void ShmPort::close() noexcept {
  if (!listener_) return;
  const bool is_here = origin_.is_here();
  if (!is_here) disposal_.forget();
  for (auto& in : inbound_) {
    if (is_here) os::end_connection(in->connection);
    close_later(std::move(in->connection));
  }
  for (auto& [gid, out] : outbound_) {
    if (is_here && out->connection) os::end_connection(out->connection);
    close_later(std::move(out->connection));
  }
  close_later(std::move(listener_));
  inbound_.clear();
  outbound_.clear();
  last_ = nullptr;
  for (; !gone_.empty(); gone_.pop_back()) {
    disposal_.close(std::move(gone_.back()));
    if (gone_.size() % (os::Disposal::fds_max / 2) == 0) disposal_.finish();
  }
  disposal_.finish();
}

// --- packets ---

void ShmPort::expect(const Gid& to, uint64_t now) noexcept {
  if (!listener_ || !origin_.is_here()) return;
  if (const auto found = outbound_.find(to); found != outbound_.end()) {
    // Somebody may have the name by now, also after who had it.
    Outbound& out = *found->second;
    if (out.ring && os::is_hung_up(out.connection)) end(out, now);
    if (out.state != State::Absent) return;
    out.state = State::Wanted;
    out.again_at = 0;
  } else if (want(to) == nullptr) {
    return;
  }
  try {
    send_hello_wanted(now);
  } catch (...) {  // out of memory: UDP it is
  }
}

ShmPort::Outbound* ShmPort::find_other(const Gid& to) noexcept {
  const auto found = outbound_.find(to);
  if (found == outbound_.end()) return nullptr;
  last_ = found->second.get();
  return last_;
}

ShmPort::Outbound* ShmPort::want(const Gid& to) noexcept {
  if (outbound_.size() >= known_max || is_group(to) || !gid_with_port(address_of(to)) ||
      *gid_with_port(address_of(to)) != to || !listener_)
    return nullptr;
  try {
    auto made = std::make_unique<Outbound>();
    made->to = to;
    Outbound* const out = made.get();
    outbound_.emplace(to, std::move(made));
    has_wanted_ = true;
    housekeeping_at_ = due_at_ = 0;
    return out;
  } catch (...) {  // no memory: UDP it is
    return nullptr;
  }
}

ShmPort::Sent ShmPort::send(const Gid& to, const iovec* parts, size_t count, bool waits_for_udp,
                            uint32_t psns) noexcept {
  if (!origin_.is_here()) [[unlikely]]
    return Sent::NoPath;  // the rings are the parent's
  Outbound* out = find(to);
  if (out == nullptr) [[unlikely]] {
    out = want(to);
    if (out == nullptr) return Sent::NoPath;
    last_ = out;
  }
  switch (out->state) {
    case State::Standing:
      return put(*out, parts, count, psns);
    case State::HelloSent:
      if (!out->ring->is_attached()) return Sent::NoPath;
      if (waits_for_udp) return Sent::AfterUdp;
      out->state = State::Standing;
      return put(*out, parts, count, psns);
    case State::Absent:
      out->is_asked_for = true;
      break;
    case State::Wanted:
      break;
  }
  return Sent::NoPath;
}

ShmPort::Sent ShmPort::put(Outbound& out, const iovec* parts, size_t count, uint32_t psns) noexcept {
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += parts[i].iov_len;
  if (bytes > shm_packet_bytes_max) return Sent::NoPath;
  os::IpMarks marks;
  const bool is_marked = vector_ != nullptr && transport_of(parts[0]) == wire::roce::Transport::Datagram &&
                         (marks = marks_of(*vector_)) != os::IpMarks();
  switch (out.ring->put(parts, count, bytes, is_marked ? &marks : nullptr, psns)) {
    case ShmSender::Put::Done:
      break;
    case ShmSender::Put::Full: {
      // Others wait meanwhile: for a receiver that takes nothing, not for long. Then it loses packets, as a full
      // socket does.
      const uint64_t now = os::monotonic_ns();
      if (out.full_since == 0) out.full_since = now;
      if (now - out.full_since < (is_of_unreliable(parts[0]) ? full_ns_max : reliable_full_ns_max))
        return Sent::NoRoom;
      ++counters_.lost;
      return Sent::Taken;
    }
    case ShmSender::Put::Broken:
      ++counters_.malformed;
      end(out, os::monotonic_ns());
      return Sent::Taken;
  }
  out.full_since = 0;
  ++counters_.sent;
  if (capture_ != nullptr) [[unlikely]]
    capture_sent(out.to, parts, count);
  // A full queue of wake-ups is one that wakes.
  if (out.ring->must_wake()) os::send_byte(out.connection);
  return Sent::Taken;
}

// As the port would have sent it.
void ShmPort::capture_sent(const Gid& to, const iovec* parts, size_t count) noexcept {
  std::array<std::byte, shm_packet_bytes_max + wire::roce::icrc_bytes> all;
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    if (parts[i].iov_len != 0) std::memcpy(all.data() + bytes, parts[i].iov_base, parts[i].iov_len);
    bytes += parts[i].iov_len;
  }
  const os::SocketAddress there = address_of(to);
  const Headers headers = headers_between(own_, there, bytes + wire::roce::icrc_bytes);
  const uint32_t icrc = wire::roce::icrc(headers.span(), parts, count);
  wire::store_big(all.data() + bytes, wire::swap_bytes(icrc));
  capture_->record(own_.bytes(), there.bytes(), {all.data(), bytes + wire::roce::icrc_bytes});
}

bool ShmPort::reaches(const Gid& to) const noexcept {
  const auto found = outbound_.find(to);
  return found != outbound_.end() && found->second->ring.has_value();
}

bool ShmPort::has_lost(const Gid& to) const noexcept {
  const auto found = outbound_.find(to);
  return found != outbound_.end() && found->second->has_ended;
}

int ShmPort::drain(Inbound& in, uint64_t now) noexcept {
  const int packets =
      in.ring->drain(burst, [&](std::span<const std::byte> bytes, std::span<const std::byte> headers) {
        on_packet(in, bytes, headers, now);
      });
  if (packets >= 0) return packets;
  in.ring.reset();
  in.is_malformed = true;
  ++counters_.malformed;
  housekeeping_at_ = due_at_ = 0;
  return 0;
}

void ShmPort::on_packet(const Inbound& in, std::span<const std::byte> bytes,
                        std::span<const std::byte> headers, uint64_t now) noexcept {
  ++counters_.received;
  proto::roce::Arrival arrival;
  arrival.source = in.source;
  arrival.alias = in.alias;
  arrival.bytes = bytes;
  arrival.headers = headers;
  arrival.psns = in.ring->psns();
  std::array<std::byte, proto::roce::grh_bytes> grh;
  if (is_datagram(headers)) {
    grh = grh_between(in.source, local_gid_, bytes.size() + wire::roce::icrc_bytes, in.ring->marks());
    arrival.grh = grh;
  }
  if (capture_ != nullptr) [[unlikely]] {
    std::array<std::byte, shm_packet_bytes_max + wire::roce::icrc_bytes> all;
    std::memcpy(all.data(), bytes.data(), bytes.size());
    const Headers made = headers_between(in.address, own_, bytes.size() + wire::roce::icrc_bytes);
    const iovec part{all.data(), bytes.size()};
    wire::store_big(all.data() + bytes.size(), wire::swap_bytes(wire::roce::icrc(made.span(), &part, 1)));
    capture_->record(in.address.bytes(), own_.bytes(), {all.data(), bytes.size() + wire::roce::icrc_bytes});
  }
  adapter_.on_packet(arrival, now);
}

// --- sleeping ---

// While the program polls, nobody sleeps: senders need not fence, and the first sleep after that fences for both sides. From then
// on they do, so that a thread that sleeps and wakes all the time pays nothing for them.
void ShmPort::relax() noexcept {
  if (!fences_ || is_relaxed_) return;
  is_relaxed_ = true;
  for (const auto& in : inbound_)
    if (in->ring) in->ring->set_fences_for_both(in->is_registered);
}

// Between setting `asleep` and the last look, see ShmSender::must_wake(). False: what senders did may not be seen yet.
bool ShmPort::fence_all() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!is_relaxed_) return true;
  is_relaxed_ = false;
  for (const auto& in : inbound_)
    if (in->ring) in->ring->set_fences_for_both(false);
  if (inbound_.empty() || os::fence_registered_processes()) return true;
  fences_ = false;
  return false;
}

bool ShmPort::arm() noexcept {
  is_armed_ = true;
  for (const auto& in : inbound_)
    if (in->ring) in->ring->set_asleep(true);
  return fence_all() &&
         std::ranges::all_of(inbound_, [](const auto& in) { return !in->ring || in->ring->is_empty(); });
}

void ShmPort::disarm() noexcept {
  is_armed_ = false;
  for (const auto& in : inbound_)
    if (in->ring) in->ring->set_asleep(false);
}

// --- handshakes and ends ---

void ShmPort::run_housekeeping(uint64_t now) noexcept {
  if (!listener_ || !origin_.is_here()) return;
  housekeeping_at_ = now + housekeeping_ns;
  due_at_ = UINT64_MAX;
  try {
    if (held_until_ != 0 && now >= held_until_ &&
        set_.change(listener_.get(), &listener_tag_, os::watch_reading))
      held_until_ = 0;
    for (size_t i = inbound_.size(); i-- > 0;)
      if (inbound_[i]->is_malformed) end(*inbound_[i], now);
    std::array<void*, 64> tags;
    for (int round = 0; round < 4; ++round) {
      const size_t count = set_.ready(tags);
      bool is_over = count < tags.size();  // wake-ups alone: what comes behind them shows at the next look
      for (size_t i = 0; i < count; ++i) {
        Watched& watched = *static_cast<Watched*>(tags[i]);
        is_over = is_over && watched.kind == Watched::Kind::In && static_cast<Inbound&>(watched).ring;
        on_ready(watched, now);
      }
      if (is_over) break;
    }
    if (has_wanted_) send_hello_wanted(now);
    if (now >= ask_again_at_) ask_again(now);
  } catch (...) {  // out of memory: as if there were no ring; what is left of it ends with the next look
  }
  if (!gone_.empty() && may_receive())
    for (size_t i = 0; i < os::Disposal::fds_max / 2 && !gone_.empty(); ++i, gone_.pop_back())
      disposal_.close(std::move(gone_.back()));
  if (!may_receive()) due_at_ = std::min(due_at_, now + disposal_ns);
  if (held_until_ != 0) due_at_ = std::min(due_at_, held_until_);
}

bool ShmPort::may_receive() noexcept { return !disposal_.busy(); }

void ShmPort::hold(uint64_t until) noexcept {
  if (set_.change(listener_.get(), &listener_tag_, os::watch_errors)) held_until_ = until;
}

void ShmPort::close_later(os::Fd connection) noexcept {
  if (!connection) return;
  set_.remove(connection.get());
  try {
    gone_.push_back(std::move(connection));
  } catch (...) {  // then it closes here
  }
}

void ShmPort::on_ready(Watched& watched, uint64_t now) {
  switch (watched.kind) {
    case Watched::Kind::Listener:
      return accept(now);
    case Watched::Kind::In:
      return read(static_cast<Inbound&>(watched), now);
    case Watched::Kind::Out:  // nothing is watched for but its end
      return end(static_cast<Outbound&>(watched), now);
  }
}

void ShmPort::send_hello_wanted(uint64_t now) {
  has_wanted_ = false;
  const auto standing =
      std::ranges::count_if(outbound_, [](const auto& pair) { return bool(pair.second->ring); });
  size_t rings = static_cast<size_t>(standing);
  for (auto& [gid, out] : outbound_) {
    if (out->state != State::Wanted) continue;
    if (out->again_at > now) {
      has_wanted_ = true;
      due_at_ = std::min(due_at_, out->again_at);
    } else if (rings >= peers_max) {
      out->state = State::Absent;
      out->again_at = now + again_ns;
    } else {
      send_hello(*out, now);
      if (out->ring) ++rings;
    }
  }
}

// Peers that were not there: who is still sent to is tried again, the others are forgotten.
void ShmPort::ask_again(uint64_t now) noexcept {
  ask_again_at_ = now + ask_again_ns;
  std::erase_if(outbound_, [&](const auto& pair) {
    Outbound& out = *pair.second;
    if (out.state != State::Absent || out.again_at > now) return false;
    if (std::exchange(out.is_asked_for, false)) {
      out.state = State::Wanted;
      out.again_at = 0;
      has_wanted_ = true;
      return false;
    }
    if (last_ == &out) last_ = nullptr;
    return true;
  });
}

void ShmPort::send_hello(Outbound& out, uint64_t now) {
  out.state = State::Absent;
  out.is_asked_for = false;
  out.again_at = now + again_ns;
  int error = 0;
  os::Fd connection = os::connect_to(name_of(out.to, own_.scope()), error);
  if (!connection) {
    if (error != EAGAIN) return;
    out.state = State::Wanted;
    out.again_at = now + busy_ns;
    has_wanted_ = true;
    due_at_ = std::min(due_at_, out.again_at);
    return;
  }
  // Whoever has the name gets our memory.
  if (os::peer_user(connection) != ::geteuid()) {
    ++counters_.refused;
    return close_later(std::move(connection));
  }
  auto file = os::create_memory("weft-roce", sizeof(ShmMemory));
  if (!file) return close_later(std::move(connection));
  auto memory = os::map_memory(*file, 0, sizeof(ShmMemory));
  if (!memory || !os::have_pages(*memory, sizeof(ShmMemory))) return close_later(std::move(connection));
  ShmHello hello;
  hello.source = local_gid_;
  hello.to = out.to;
  hello.is_registered = fences_ ? 1 : 0;
  const std::array<int, 1> fds{file->get()};
  const int sent = os::send_datagram(connection, {}, std::as_bytes(std::span(&hello, 1)), fds);
  if (os::may_refuse_descriptors(-sent)) note_not_passed(-sent);
  if (sent != 0 || !set_.add(connection.get(), static_cast<Watched*>(&out), os::watch_errors))
    return close_later(std::move(connection));
  out.connection = std::move(connection);
  out.memory = std::move(*memory);
  out.ring.emplace(*out.memory.as<ShmMemory>(), fences_);
  out.has_ended = false;
  out.full_since = 0;
  out.state = State::HelloSent;
}

void ShmPort::end(Outbound& out, uint64_t now) noexcept {
  out.has_ended = true;
  out.ring.reset();
  out.memory = os::Mapping();
  out.state = State::Absent;
  out.is_asked_for = false;
  out.again_at = now + again_ns;
  close_later(std::move(out.connection));
}

void ShmPort::accept(uint64_t now) {
  for (int i = 0; i < 16; ++i) {
    if (!may_receive()) return hold(now + disposal_ns);
    os::Fd connection = os::accept_connection(listener_);
    if (!connection) {
      if (errno != EAGAIN) hold(now + busy_ns);  // no descriptors: who waits would wake us again and again
      return;
    }
    if (os::peer_user(connection) != ::geteuid()) {
      ++counters_.refused;
      close_later(std::move(connection));
      return hold(now + foreign_ns);
    }
    auto in = std::make_unique<Inbound>();
    if (inbound_.size() >= peers_max ||
        !set_.add(connection.get(), static_cast<Watched*>(in.get()), os::watch_reading)) {
      close_later(std::move(connection));
      continue;
    }
    in->connection = std::move(connection);
    inbound_.push_back(std::move(in));
  }
}

// The handshake, or bytes that woke us. Nothing is received that may bring descriptors but the handshake.
void ShmPort::read(Inbound& in, uint64_t now) {
  for (int i = 0; i < 64; ++i) {
    ShmHello hello;
    os::Sender sender;
    const int got = os::peek_datagram(in.connection, std::as_writable_bytes(std::span(&hello, 1)), sender);
    if (got == 0) break;
    if (got < 0 || sender.bytes == 0) return end(in, now);
    if (in.ring && !sender.passes_fds) {
      os::skip_datagram(in.connection);
      break;  // a sender wakes once for each sleep
    }
    if (!in.ring && !may_receive()) return;  // later
    if (!in.ring && !sender.passes_fds && sender.bytes == sizeof hello) note_not_passed(0);
    if (in.ring || !sender.passes_fds || sender.bytes != sizeof hello || !attach(in, now)) {
      ++counters_.refused;
      return end(in, now);
    }
  }
  // The thread that was to be woken sleeps on.
  if (!is_armed_ || !in.ring) return;
  in.ring->set_asleep(true);
  (void)fence_all();  // before the caller's look into the ring: as in arm()
}

// Once: such a peer has UDP, which is slower, and nothing else shows why. `code` is an errno; 0: the file did not arrive.
void ShmPort::note_not_passed(int code) noexcept try {
  if (audience_.note == nullptr || std::exchange(has_noted_, true)) return;
  const std::string why =
      code != 0 ? os::with_remedy(code)
                : "the kernel, an emulator or a security module does not pass descriptors (SCM_RIGHTS)";
  const std::string line =
      std::string("no shared memory to a device of this host, UDP serves instead: ").append(why);
  audience_.note(audience_.noted, line.c_str());
} catch (...) {  // no memory for the line
}

bool ShmPort::attach(Inbound& in, uint64_t) {
  ShmHello hello;
  os::Datagram datagram;
  if (os::receive_datagram(in.connection, std::as_writable_bytes(std::span(&hello, 1)), datagram,
                           disposal_) <= 0)
    return false;
  os::Fd& file = datagram.fds[0];
  if (!file && datagram.cut) note_not_passed(datagram.lack);
  for (os::Fd& fd : datagram.fds)
    if (fd && (&fd != &file || !os::is_memory(fd))) disposal_.close(os::Fd(fd.release()));
  if (!file || datagram.bytes != sizeof hello || hello.magic != ShmHello{}.magic ||
      hello.version != ShmHello{}.version || hello.bytes != sizeof(ShmMemory) || hello.to != local_gid_)
    return false;
  const os::SocketAddress address = address_of(hello.source);
  if (const auto gid = gid_with_port(address); !gid || *gid != hello.source) return false;
  if (!os::memory_is_sound(file, ::geteuid()) || os::memory_size(file) < sizeof(ShmMemory)) return false;
  auto memory = os::map_memory(file, 0, sizeof(ShmMemory));
  if (!memory || !os::have_pages(*memory, sizeof(ShmMemory))) return false;
  in.address = address;
  in.source = hello.source;
  in.alias = standard_gid(address);
  in.memory = std::move(*memory);
  in.ring.emplace(*in.memory.as<ShmMemory>());
  in.ring->set_asleep(is_armed_);
  in.is_registered = hello.is_registered == 1;
  in.ring->attach(is_relaxed_ && in.is_registered, capture_ == nullptr);
  return true;
}

// What the peer had put in before its end has been sent.
void ShmPort::end(Inbound& in, uint64_t now) noexcept {
  for (size_t i = 0; i < shm_slots && in.ring && !in.ring->is_empty(); i += burst) (void)drain(in, now);
  close_later(std::move(in.connection));
  std::erase_if(inbound_, [&](const auto& one) { return one.get() == &in; });
}

}  // namespace weft::link::roce
