// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Files, and what is left at exit.
#include "link/packet/capture.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "base/lasting.hpp"
#include "os/clock.hpp"
#include "os/new_file.hpp"
#include "os/poll_set.hpp"
#include "os/socket_address.hpp"
#include "proto/packet/pcap.hpp"

namespace weft::link::packet {
namespace {

namespace pcap = proto::pcap;

// Captures that are open, for the end of the process: a program may leave its endpoints open. A pointer, since
// endpoints may be closed by static destructors that run after those of this file. A forked child leaves its parent's
// list alone.
struct Open {
  os::Origin origin;
  std::mutex lock;  // of an inherited list it may be held by a thread that the child does not have
  std::vector<CaptureFile*> captures;
};
std::atomic<Open*> open_captures{nullptr};

// The list of this process; null: there is none.
Open* own_list() noexcept {
  Open* there = open_captures.load(std::memory_order_acquire);
  return there != nullptr && there->origin.is_here() ? there : nullptr;
}

struct AtExit {
  ~AtExit() {
    Open* const own = own_list();
    if (own == nullptr) return;
    const std::lock_guard guard(own->lock);
    for (CaptureFile* capture : own->captures) capture->flush();
  }
} at_exit;

void add(CaptureFile* capture) {
  Open* own = own_list();
  while (own == nullptr) {
    Open* other = open_captures.load(std::memory_order_acquire);
    if (other != nullptr && other->origin.is_here()) own = other;
    else if (Open* made = &make_lasting<Open>(); open_captures.compare_exchange_strong(other, made))
      own = made;
  }
  const std::lock_guard guard(own->lock);
  own->captures.push_back(capture);
}
void remove(CaptureFile* capture) noexcept {
  Open* const own = own_list();
  if (own == nullptr) return;
  const std::lock_guard guard(own->lock);
  std::erase(own->captures, capture);
}

// The next number of a file of this process.
std::atomic<unsigned> last_number{0};

constexpr std::array<std::byte, 12> mapped_prefix = {
    std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0},    std::byte{0},
    std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0xff}, std::byte{0xff}};
bool is_mapped(const pcap::Endpoint& end) noexcept {
  return end.is_ip6 && std::equal(mapped_prefix.begin(), mapped_prefix.end(), end.host.begin());
}

pcap::Endpoint endpoint_of(std::span<const std::byte> address, bool ip_addresses) noexcept {
  const auto ip = ip_addresses ? os::SocketAddress::from(address.data(), address.size())
                               : std::optional<os::SocketAddress>();
  if (!ip) return pcap::endpoint_of_opaque(address);
  pcap::Endpoint end;
  end.port = ip->port();
  if (ip->family() == AF_INET6) {
    sockaddr_in6 raw;
    std::memcpy(&raw, ip->get(), sizeof raw);
    end.is_ip6 = true;
    std::memcpy(end.host.data(), &raw.sin6_addr, 16);
  } else {
    sockaddr_in raw;
    std::memcpy(&raw, ip->get(), sizeof raw);
    std::memcpy(end.host.data(), &raw.sin_addr, 4);
  }
  return end;
}

// IPv4 as an IPv6 socket shows it, and back.
void map(pcap::Endpoint& end) noexcept {
  if (end.is_ip6) return;
  std::array<std::byte, 16> host{};
  std::ranges::copy(mapped_prefix, host.begin());
  std::copy_n(end.host.begin(), 4, host.begin() + 12);
  end.host = host;
  end.is_ip6 = true;
}
void unmap(pcap::Endpoint& end) noexcept {
  if (!end.is_ip6) return;
  std::array<std::byte, 16> host{};
  std::copy_n(end.host.begin() + 12, 4, host.begin());
  end.host = host;
  end.is_ip6 = false;
}
void bring_to_one_family(pcap::Endpoint& a, pcap::Endpoint& b) noexcept {
  const bool is_ip4 = (!a.is_ip6 || is_mapped(a)) && (!b.is_ip6 || is_mapped(b));
  for (pcap::Endpoint* end : {&a, &b}) is_ip4 ? unmap(*end) : map(*end);
}

}  // namespace

CaptureFile::CaptureFile(std::string path, bool ip_addresses, proto::PacketWarning warning,
                         const void* warned)
    : path_(std::move(path)), ip_addresses_(ip_addresses), warning_(warning), warned_(warned) {
  add(this);
}

CaptureFile::~CaptureFile() {
  if (!origin_.is_here()) return;
  remove(this);
  flush();
}

void CaptureFile::give_up(std::string why) noexcept {
  done_ = true;
  file_.reset();
  records_.clear();
  untold_ = std::move(why);
}

// Without the lock: who is warned may end the process, which flushes.
void CaptureFile::warn() noexcept try {
  std::string why;
  {
    const std::lock_guard guard(lock_);
    why = std::exchange(untold_, {});
  }
  if (!why.empty() && warning_ != nullptr)
    warning_(warned_, ("WEFT_PCAP: packets are not captured: " + why).c_str());
} catch (const std::bad_alloc&) {  // then nobody is told
}

bool CaptureFile::create() {
  constexpr unsigned tries_max = 1000;
  auto made = os::create_file(path_);
  if (!made && made.error().code == EEXIST && !os::is_regular_file(path_)) {
    give_up(path_ + ": something that is no regular file has this name");
    return false;
  }
  for (unsigned i = 0; i < tries_max && !made && made.error().code == EEXIST; ++i) {
    std::string other = os::numbered_name(path_, os::process_id(), ++last_number);
    made = os::create_file(other);
    if (made) path_ = std::move(other);
  }
  if (!made) {
    give_up(made.error().why);
    return false;
  }
  pcap::append_file_head(records_);
  file_ = std::move(*made);
  return true;
}

void CaptureFile::record(std::span<const std::byte> source, std::span<const std::byte> destination,
                         std::span<const std::byte> bytes) noexcept try {
  if (!origin_.is_here()) return;  // a forked child shares the parent's file
  if (!append(source, destination, bytes)) warn();
} catch (const std::bad_alloc&) {  // this packet is missing
}

// False: the capture has just ended, and somebody is to be told.
bool CaptureFile::append(std::span<const std::byte> source, std::span<const std::byte> destination,
                         std::span<const std::byte> bytes) {
  const std::lock_guard guard(lock_);
  if (done_) return true;
  if (!file_ && !create()) return false;
  const uint64_t now = os::realtime_ns();
  pcap::Endpoint from = endpoint_of(source, ip_addresses_);
  pcap::Endpoint to = endpoint_of(destination, ip_addresses_);
  bring_to_one_family(from, to);
  pcap::append_packet(records_, now, from, to, bytes);
  ++packets_;
  if (records_.size() >= flush_bytes || now - written_at_ >= flush_ns) write_out();
  return !done_;
}

void CaptureFile::write_out() noexcept {
  if (!file_ || records_.empty()) return;
  const int error = os::append_to_file(file_, written_, records_);
  if (error != 0) os::shorten_file(file_, written_);  // no half of a record stays
  written_ += records_.size();
  written_at_ = os::realtime_ns();
  records_.clear();
  if (error == 0) return;
  try {
    give_up(path_ + ": " + std::strerror(error));
  } catch (const std::bad_alloc&) {
    done_ = true;
  }
}

void CaptureFile::flush() noexcept {
  if (!origin_.is_here()) return;
  {
    const std::lock_guard guard(lock_);
    write_out();
  }
  warn();
}

std::string CaptureFile::summary() const {
  const std::lock_guard guard(lock_);
  return packets_ == 0 ? std::string() : "capture: " + std::to_string(packets_) + " packets in " + path_;
}

}  // namespace weft::link::packet
