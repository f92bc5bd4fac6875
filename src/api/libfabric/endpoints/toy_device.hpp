// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A device in memory, for tests: a network card with one receive ring and one interrupt, which the endpoints of a
// domain share. Cards of a process are on one cable. The provider "toy" is the engine over reliable streams over its
// packets. Must not be used outside tests.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <weft/provider.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "link/kit/text_names.hpp"
#include "link/reliable/link.hpp"
#include "os/event.hpp"
#include "os/shared_sleep.hpp"
#include "proto/device.hpp"
#include "proto/packet/packet_link.hpp"
#include "providers/endpoint_kind.hpp"

namespace weft::fi::test {

class ToyCard;
class ToyPackets;

// What tests decide and see. Reset by each test.
struct ToyBench {
  struct Call {
    std::string name;  // "add", "enable", "remove"
    std::vector<iovec> pieces;
    core::AccessRights rights;
    uint64_t key = 0;
    void* handle = nullptr;
  };
  std::atomic<int> open_error{0};    // of ToyCard::open()
  std::atomic<int> add_error{0};     // of ToyCard::add(), negative
  std::atomic<int> remove_error{0};  // of ToyCard::remove(), negative
  std::atomic<int> opened{0};
  std::atomic<int> closed{0};
  std::atomic<bool> yields{false};  // inside a card, so that another thread comes in if it may
  std::atomic<int> intrusions{0};   // two threads in one card at once
  std::mutex mutex;                 // everything below
  std::vector<Call> calls;
  std::string domain;  // of the last open()
  std::string source;
};
inline ToyBench& bench() {
  static ToyBench the_bench;
  return the_bench;
}

struct ToyPacket {
  std::string to, from;
  std::vector<std::byte> bytes;
};

// Cards by number.
struct Cable {
  std::mutex mutex;
  std::map<int, ToyCard*> cards;
  int next = 1;
};
inline Cable& cable() {
  static Cable the_cable;
  return the_cable;
}

class ToyCard final : public core::Progressor, public core::Registrar {
 public:
  static constexpr size_t ring_packets = 512;
  static constexpr int packets_per_poll = 32;

  ToyCard() = default;
  ToyCard(const ToyCard&) = delete;
  ToyCard& operator=(const ToyCard&) = delete;
  ~ToyCard() { close(); }

  // --- proto::Device ---
  Result<void> open(const proto::DeviceRequest& request);
  void close() noexcept;
  void set_warning(proto::PacketWarning warning, const void* who) noexcept {
    warning_ = warning;
    warned_ = who;
  }
  std::vector<proto::DeviceCounter> counters() const {
    return {{"received", received_}, {"dropped", dropped_}};
  }

  // --- links ---
  bool attach(const std::string& address, ToyPackets& packets);
  void detach(const std::string& address) noexcept;
  std::string choose_address() { return std::to_string(number_) + '.' + std::to_string(next_endpoint_++); }
  bool owns(std::string_view address) const { return address.starts_with(std::to_string(number_) + '.'); }
  // False: the ring of the card that it goes to is full.
  bool transmit(const std::string& from, const std::string& to, const iovec* parts, size_t count) noexcept;
  size_t endpoints() const noexcept { return endpoints_.size(); }

  // --- tests, with the domain lock held ---
  // Something that progress() does later, as a timer's.
  void begin_work() noexcept {
    has_work_ = true;
    if (signal_ != nullptr) std::exchange(signal_, nullptr)->notify();
  }
  bool has_signal() const noexcept { return signal_ != nullptr; }

  // --- Progressor ---
  void progress() noexcept override;
  bool has_background_work() noexcept override { return has_work_; }
  void notify_background_work(core::Signal* signal) noexcept override { signal_ = signal; }
  int wait_fd() noexcept override { return interrupt_ ? interrupt_->fd() : -1; }
  bool arm() noexcept override {
    const Entered entered(*this);
    std::scoped_lock guard(ring_mutex_);
    interrupts_ = ring_.empty();
    return interrupts_;
  }
  void disarm() noexcept override {
    const Entered entered(*this);
    std::scoped_lock guard(ring_mutex_);
    interrupts_ = false;
    interrupt_->drain();
  }

  // --- Registrar ---
  int add(const core::Registration& region, core::Registered& out) noexcept override {
    const Entered entered(*this);
    out.handle = reinterpret_cast<void*>(++handles_);
    note("add", region, out.handle);
    return bench().add_error;
  }
  void enable(const core::Registration& region, void* handle) noexcept override {
    const Entered entered(*this);
    note("enable", region, handle);
  }
  int remove(const core::Registration& region, void* handle) noexcept override {
    const Entered entered(*this);
    note("remove", region, handle);
    return bench().remove_error;
  }

 private:
  // The rule that a card is entered by one thread at a time.
  class Entered {
   public:
    explicit Entered(ToyCard& card) noexcept : card_(card), before_(card.inside_.load()) {
      if (before_ != std::thread::id() && before_ != std::this_thread::get_id()) ++bench().intrusions;
      card_.inside_ = std::this_thread::get_id();
      if (bench().yields) std::this_thread::yield();
    }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    ~Entered() { card_.inside_ = before_; }

   private:
    ToyCard& card_;
    std::thread::id before_;
  };

  static void note(const char* name, const core::Registration& region, void* handle) {
    std::scoped_lock guard(bench().mutex);
    bench().calls.push_back(
        {name, {region.pieces.begin(), region.pieces.end()}, region.rights, region.key, handle});
  }

  int number_ = 0;
  int next_endpoint_ = 1;
  uintptr_t handles_ = 0;
  std::map<std::string, ToyPackets*> endpoints_;
  uint64_t received_ = 0;
  uint64_t dropped_ = 0;
  bool has_work_ = false;
  core::Signal* signal_ = nullptr;
  proto::PacketWarning warning_ = nullptr;
  const void* warned_ = nullptr;
  std::atomic<std::thread::id> inside_{};
  std::optional<os::Event> interrupt_;
  // What other cards do to this one.
  std::mutex ring_mutex_;
  std::deque<ToyPacket> ring_;
  bool interrupts_ = false;
};

// The packet link of one endpoint.
class ToyPackets {
 public:
  using Device = ToyCard;
  static constexpr size_t address_length = 16;
  static constexpr size_t inbox_packets = 512;
  static constexpr bool checks_packets = true;
  static constexpr bool shows_addresses = true;

  ToyPackets() = default;
  ToyPackets(const ToyPackets&) = delete;
  ToyPackets& operator=(const ToyPackets&) = delete;
  ~ToyPackets() { close(); }

  void set_device(ToyCard& card) noexcept { card_ = &card; }
  Result<void> open(std::span<const std::byte> address) {
    std::string wanted = text_of(address);
    if (wanted.empty()) wanted = card_->choose_address();
    if (!card_->owns(wanted)) return Error{EADDRNOTAVAIL, "the card has no address " + wanted};
    if (!card_->attach(wanted, *this)) return Error{EADDRINUSE, "the address " + wanted + " is taken"};
    address_ = std::move(wanted);
    return {};
  }
  void close() noexcept {
    if (address_.empty()) return;
    sleep_.close(*card_);
    card_->detach(address_);
    address_.clear();
    inbox_.clear();
  }
  std::span<const std::byte> address() const noexcept { return std::as_bytes(std::span(address_)); }
  size_t packet_bytes_max(std::span<const std::byte>) const noexcept { return 4096; }
  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    return card_->transmit(address_, text_of(to), parts, count);
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    card_->progress();
    int packets = 0;
    for (; !inbox_.empty(); ++packets) {
      const ToyPacket packet = std::move(inbox_.front());
      inbox_.pop_front();
      handler.on_packet(proto::ReceivedPacket{std::as_bytes(std::span(packet.from)),
                                              std::as_bytes(std::span(packet.to)), packet.bytes});
    }
    return packets;
  }

  int wait_fd() noexcept { return sleep_.fd(*card_); }
  bool arm() noexcept { return sleep_.arm(*card_, inbox_.empty()); }
  void disarm() noexcept { sleep_.disarm(*card_); }

  // --- datagram endpoints ---
  static constexpr size_t packet_bytes_limit = 4096;
  static std::vector<std::byte> source_for(bool, std::span<const std::byte>) { return {}; }
  int join(std::span<const std::byte>, bool) { return -EOPNOTSUPP; }
  void leave(std::span<const std::byte>) noexcept {}

  // --- called by the card ---
  bool put(ToyPacket packet) {
    if (inbox_.size() >= inbox_packets) return false;
    inbox_.push_back(std::move(packet));
    sleep_.ring();
    return true;
  }

 private:
  // Programs pad addresses with zeros.
  static std::string text_of(std::span<const std::byte> address) {
    const auto* first = reinterpret_cast<const char*>(address.data());
    return {first, first != nullptr ? ::strnlen(first, address.size()) : 0};
  }

  ToyCard* card_ = nullptr;
  std::string address_;
  std::deque<ToyPacket> inbox_;
  os::SharedSleep sleep_;
};

inline Result<void> ToyCard::open(const proto::DeviceRequest& request) {
  if (bench().open_error != 0) {
    if (warning_ != nullptr) warning_(warned_, "the card does not answer");
    return Error{bench().open_error, "the card is not there"};
  }
  auto interrupt = os::Event::create();
  if (!interrupt) return interrupt.error();
  interrupt_.emplace(std::move(*interrupt));
  {
    std::scoped_lock guard(cable().mutex);
    number_ = cable().next++;
    cable().cards[number_] = this;
  }
  ++bench().opened;
  std::scoped_lock guard(bench().mutex);
  bench().domain = request.domain;
  const auto* source = reinterpret_cast<const char*>(request.source.data());
  bench().source.assign(source, source != nullptr ? ::strnlen(source, request.source.size()) : 0);
  return {};
}

inline void ToyCard::close() noexcept {
  if (std::exchange(number_, 0) == 0) return;
  std::scoped_lock guard(cable().mutex);
  std::erase_if(cable().cards, [&](const auto& entry) { return entry.second == this; });
  ++bench().closed;
}

inline bool ToyCard::attach(const std::string& address, ToyPackets& packets) {
  const Entered entered(*this);
  return endpoints_.emplace(address, &packets).second;
}

inline void ToyCard::detach(const std::string& address) noexcept {
  const Entered entered(*this);
  endpoints_.erase(address);
}

inline bool ToyCard::transmit(const std::string& from, const std::string& to, const iovec* parts,
                              size_t count) noexcept {
  const Entered entered(*this);
  std::scoped_lock on_cable(cable().mutex);
  const auto found = cable().cards.find(static_cast<int>(std::strtol(to.c_str(), nullptr, 10)));
  if (found == cable().cards.end()) return true;  // lost
  ToyCard& there = *found->second;
  std::scoped_lock guard(there.ring_mutex_);
  if (there.ring_.size() >= ring_packets) return false;
  ToyPacket packet{to, from, {}};
  for (size_t i = 0; i < count; ++i) {
    const auto* bytes = static_cast<const std::byte*>(parts[i].iov_base);
    packet.bytes.insert(packet.bytes.end(), bytes, bytes + parts[i].iov_len);
  }
  there.ring_.push_back(std::move(packet));
  if (there.interrupts_) there.interrupt_->notify();
  return true;
}

inline void ToyCard::progress() noexcept {
  const Entered entered(*this);
  has_work_ = false;
  for (int i = 0; i < packets_per_poll; ++i) {
    ToyPacket packet;
    {
      std::scoped_lock guard(ring_mutex_);
      if (ring_.empty()) return;
      packet = std::move(ring_.front());
      ring_.pop_front();
    }
    const auto found = endpoints_.find(packet.to);
    const bool taken = found != endpoints_.end() && found->second->put(std::move(packet));
    ++(taken ? received_ : dropped_);
  }
}

struct ToyAddresses : TextAddresses {
  static constexpr size_t address_bytes_max = ToyPackets::address_length;
};

struct Toy {
  using Device = ToyCard;
  using Names = link::kit::TextNames<ToyAddresses, Toy>;
  using Link = link::reliable::Reliable<ToyPackets, Names>;
  static constexpr const char* name = "toy";
  static constexpr uint32_t version = FI_VERSION(1, 0);
  static constexpr std::array<uint32_t, 1> formats = {FI_ADDR_STR};
  static constexpr std::array<providers::EndpointKind, 1> kinds = {
      {{FI_EP_RDM, FI_PROTO_RXD, 1, FI_LOCAL_COMM}}};

  static constexpr size_t addrlen(uint32_t) noexcept { return Names::address_length; }
  static bool available(uint32_t) noexcept { return true; }
  static Result<std::vector<std::byte>> resolve(uint32_t, const char* node, const char*, bool) {
    if (node == nullptr) return std::vector<std::byte>{};
    std::vector<std::byte> bytes(Names::address_length);
    std::memcpy(bytes.data(), node, std::min(std::strlen(node), bytes.size() - 1));
    return bytes;
  }
  static std::vector<std::byte> unnamed(uint32_t) {
    std::vector<std::byte> bytes(Names::address_length);
    std::memcpy(bytes.data(), "fi_toy://", 9);
    return bytes;
  }
  static bool normalise(uint32_t, std::byte* bytes) {
    return Names().read({bytes, Names::address_length}).has_value();
  }
  static std::string to_string(uint32_t, const void* bytes) { return static_cast<const char*>(bytes); }
};

// Datagram endpoints over the same card. Addresses are those of the packets.
struct ToyDatagrams : Toy {
  using Packets = ToyPackets;
  static constexpr const char* name = "toy_datagrams";
  static constexpr std::array<providers::EndpointKind, 1> kinds = {
      {{FI_EP_DGRAM, FI_PROTO_UDP, 1, FI_LOCAL_COMM}}};
  static constexpr size_t addrlen(uint32_t) noexcept { return ToyPackets::address_length; }
  static size_t datagram_bytes(uint32_t) noexcept { return ToyPackets::packet_bytes_limit; }
  static std::vector<std::byte> unnamed(uint32_t) {
    return std::vector<std::byte>(ToyPackets::address_length);
  }
  static bool normalise(uint32_t, std::byte*) { return true; }
};

static_assert(proto::PacketLink<ToyPackets> && proto::HasSleep<ToyPackets> && proto::UsesDevice<ToyPackets>);
static_assert(proto::UsesDevice<proto::Observed<ToyPackets>> && proto::UsesDevice<Toy::Link>);
static_assert(proto::RegistersMemory<ToyCard> && proto::MakesProgress<ToyCard> &&
              proto::HasDeviceCounters<ToyCard>);

}  // namespace weft::fi::test
