// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reliable<P, Names>: a Link over a packet link. The core (proto/reliable/) keeps streams whole and in order, the codec (proto/stream/) lays
// frames into them; here are the clock, the packet link and sleep. Must not know tags, completions, or what P is.
//
// Bounds of a peer: 4 MiB kept for sending and 4 MiB received out of order, in chunks that exist while there are bytes; a parser with one
// frame. An idle peer has neither chunks nor a timer.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/progress.hpp"
#include "core/provider_error.hpp"
#include "link/reliable/linger.hpp"
#include "link/reliable/names.hpp"
#include "os/clock.hpp"
#include "os/event.hpp"
#include "os/poll_set.hpp"
#include "os/statistics.hpp"
#include "os/timer.hpp"
#include "proto/device.hpp"
#include "proto/engine/link.hpp"
#include "proto/packet/abilities.hpp"
#include "proto/packet/in_place.hpp"
#include "proto/packet/observed.hpp"
#include "proto/reliable/core.hpp"
#include "proto/stream/head.hpp"
#include "proto/stream/parser.hpp"

namespace weft::link::reliable {

inline constexpr size_t frame_bytes = size_t{1} << 16;

struct Peer : proto::reliable::Connection {
  proto::stream::Parser parser{frame_bytes};
  bool broken = false;  // it sends what is no frame
};

using Events = proto::LinkEvents<Peer>;

template <proto::PacketLink P, PacketNames Names>
class Reliable final : public proto::LinkBase,
                       public proto::DeviceBelow<P>,
                       proto::reliable::PacketOutput,
                       proto::reliable::Upper {
 public:
  using PeerBase = Peer;
  using Events = reliable::Events;
  static constexpr size_t frame_bytes_max = frame_bytes;
  static constexpr size_t eager_bytes_max = size_t{1} << 13;
  static constexpr size_t fragmented_eager_bytes_max = size_t{1} << 18;
  static constexpr size_t fragment_bytes = size_t{1} << 15;
  static constexpr size_t segment_bytes = size_t{63} << 10;  // with its heads it fits the largest datagram
  static constexpr size_t small_bytes_max = 256;
  static constexpr size_t address_length = Names::address_length;

  Reliable() = default;
  Reliable(const Reliable&) = delete;
  Reliable& operator=(const Reliable&) = delete;
  ~Reliable() { close(); }

  void set_address_format(uint32_t format) noexcept { names_.set_format(format); }
  void set_context(const void* context) noexcept {
    if constexpr (proto::HasContext<P>) packets_.set_context(context);
  }
  template <proto::DeviceUsedBy<P> D>
  void set_device(D& device) noexcept {
    packets_.set_device(device);
  }
  void set_warning(void (*warning)(const void* who, const char* what), const void* who) noexcept {
    if constexpr (proto::HasWarnings<P>) packets_.set_warning(warning, who);
    LinkBase::set_warning(warning, who);
  }
  void set_traffic_class(uint8_t dscp) noexcept {
    if constexpr (proto::HasTrafficClass<P>) packets_.set_traffic_class(dscp);
  }
  // Who is told what is no fault: what became of the packets, at close().
  void set_note(void (*note)(const void* who, const char* what), const void* who) noexcept {
    note_ = note;
    noted_ = who;
  }
  // `name` is an address in the format, or empty: the system chooses.
  Result<void> open(std::string_view name, Events& events);
  // Delivers what was sent, within a bound (Core::closed), and says good-bye.
  void close() noexcept;
  bool belongs_here() const noexcept { return core_ == nullptr || os::process_id() == owner_pid_; }
  std::span<const std::byte> address() const noexcept { return name_.span(); }
  P& packets() noexcept { return packets_; }
  const proto::PacketObserver* observer() const noexcept { return packets_.observer(); }
  const proto::reliable::Core& core() const noexcept { return *core_; }
  proto::reliable::Statistics statistics() const noexcept {
    return core_ != nullptr ? core_->statistics() : proto::reliable::Statistics();
  }

  Peer* connect(std::span<const std::byte> address, int& error);
  // An endpoint at a link-local address takes every name to be of its own interface.
  bool names_differ() const noexcept {
    if constexpr (HasScopedAddresses<Names>)
      return Names::on_link_of(packets_.address(), packets_.address()).has_value();
    return false;
  }
  bool is_name_of(std::span<const std::byte> name, std::span<const std::byte> address) const noexcept {
    const auto named = read_name(name), meant = read_name(address);
    return named && meant && std::ranges::equal(named->bytes(), meant->bytes());
  }
  void forget(Peer& peer) noexcept { core_->remove(peer, os::monotonic_ns()); }

  // --- hot ---
  proto::SmallSend send_small(Peer& peer, const wire::FrameHead& head, const void* bytes) noexcept {
    std::array<std::byte, proto::stream::head_bytes_max + small_bytes_max> frame;
    const size_t at = proto::stream::pack_head(head, frame.data());
    if (head.length != 0) std::memcpy(frame.data() + at, bytes, head.length);
    if (!core_->reserve(peer, at + head.length)) return proto::SmallSend::Refused;
    core_->append(peer, frame.data(), at + head.length);
    core_->push(peer, os::monotonic_ns);
    report_background_work();
    return core_->has_ready() ? proto::SmallSend::Unseen : proto::SmallSend::Sent;
  }
  void wake_receiver(Peer&) noexcept {}
  // Complete is what the peer has acknowledged.
  uint64_t sent_sequence(const Peer& peer) const noexcept { return peer.out.end(); }
  uint64_t completed_sequence(const Peer& peer) const noexcept {
    return proto::reliable::Core::completed(peer);
  }
  bool is_stuck(const Peer& peer) const noexcept { return peer.backoff != 0; }
  // Without what is only taken for arrived.
  uint64_t delivered_sequence(const Peer& peer) const noexcept { return peer.out.acked(); }
  void request_ack(Peer& peer) noexcept { proto::reliable::Core::expect(peer); }
  bool has_deferred_sends() const noexcept { return core_->has_ready(); }
  void push(Peer& peer) noexcept { core_->hurry(peer, os::monotonic_ns); }
  // It has said so, and what came before is not taken yet.
  static bool has_left(const Peer& peer) noexcept { return peer.ending.finishing; }
  bool send(Peer& peer, const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
            size_t part_count) noexcept {
    std::array<std::byte, proto::stream::head_bytes_max> bytes;
    const size_t head_bytes = proto::stream::pack_head(head, bytes.data());
    if (!core_->reserve(peer, head_bytes + head.length)) return false;
    core_->append(peer, bytes.data(), head_bytes);
    core_->append(peer, prefix.data(), prefix.size());
    for (size_t i = 0; i < part_count; ++i) core_->append(peer, parts[i].iov_base, parts[i].iov_len);
    core_->push(peer, os::monotonic_ns);
    report_background_work();
    return true;
  }
  // HasZeroCopyFrames, where the packet link's device can read the program's memory: the payload leaves, and leaves
  // again, from where the program has it.
  bool send_zero_copy(Peer& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
                      const iovec* parts, size_t part_count) noexcept requires proto::HasPartsThatStay<P> {
    std::array<std::byte, proto::stream::head_bytes_max> bytes;
    const size_t head_bytes = proto::stream::pack_head(head, bytes.data());
    if (!core_->reserve_in_place(peer, head_bytes + prefix.size(), parts, part_count)) return false;
    core_->append(peer, bytes.data(), head_bytes);
    core_->append(peer, prefix.data(), prefix.size());
    for (size_t i = 0; i < part_count; ++i) core_->append_in_place(peer, parts[i]);
    core_->push(peer, os::monotonic_ns);
    report_background_work();
    return true;
  }
  void copy_out(Peer& peer) noexcept requires proto::HasPartsThatStay<P> {
    if (!core_->copy_out(peer) && !peer.broken) break_off(peer);
  }
  template <class Handler>
  int poll(Handler& handler) noexcept;

  static constexpr bool repeats_packets = true;
  // Timers run, or something waits for the next poll.
  // Or our last answers may be lost, and nobody else would repeat them.
  bool has_background_work() const noexcept {
    return core_->next_due() != UINT64_MAX || core_->has_ready() || guards_answers();
  }
  void notify_background_work(core::Signal* signal) noexcept { background_ = signal; }

  // --- sleeping ---
  int wait_fd() noexcept;
  bool arm() noexcept;
  void disarm() noexcept {
    if (timer_.fd()) timer_.set(0);
    if constexpr (proto::HasSleep<P>) packets_.disarm();
  }

 private:
  static constexpr uint64_t check_ns = proto::reliable::second;
  static constexpr uint64_t quiet_ns = 2 * proto::reliable::second;  // a peer that owes us something is asked

  // Whom the bytes of this poll go to.
  struct Feeder {
    virtual void feed(Peer& peer, std::span<const std::byte> bytes) noexcept = 0;
    virtual void retry(Peer& peer) noexcept = 0;

   protected:
    ~Feeder() = default;
  };
  template <class Handler>
  struct FeederOf final : Feeder {
    Handler& handler;
    int frames = 0;
    explicit FeederOf(Handler& to) noexcept : handler(to) {}
    void feed(Peer& peer, std::span<const std::byte> bytes) noexcept override {
      const uint64_t before = peer.parser.frames();
      (void)peer.parser.feed(handler, peer, bytes);
      frames += static_cast<int>(peer.parser.frames() - before);
    }
    void retry(Peer& peer) noexcept override {
      const uint64_t before = peer.parser.frames();
      (void)peer.parser.retry(handler, peer);
      frames += static_cast<int>(peer.parser.frames() - before);
    }
  };
  struct PacketHandler {
    proto::reliable::Core& core;
    void on_packet(const proto::ReceivedPacket& packet) noexcept {
      core.on_packet(packet.source, packet.bytes, os::monotonic_ns());
    }
  };

  // --- PacketOutput ---
  size_t packet_bytes_max(std::span<const std::byte> to) noexcept override {
    return packets_.packet_bytes_max(to);
  }
  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept override {
    return packets_.send(to, parts, count);
  }
  bool send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                      size_t packet_bytes) noexcept override {
    if constexpr (proto::HasSegmentationOffload<P>)
      return packets_.send_segmented(to, parts, count, packet_bytes);
    return false;  // never called: Config::segments_max is 1
  }
  void release_parts() noexcept override {
    if constexpr (proto::ReleasesParts<P>) packets_.release_parts();
  }
  // --- Upper ---
  proto::reliable::Connection* accept(std::span<const std::byte> address) noexcept override;
  proto::reliable::PacketAddress known_as(
      std::span<const std::byte> address,
      const proto::reliable::PacketAddress& source) const noexcept override {
    if constexpr (HasScopedAddresses<Names>) {
      if (const auto here = Names::in_scope_of(address, source.span()))
        return proto::reliable::PacketAddress(here->bytes());
    }
    return proto::reliable::PacketAddress(address);
  }
  size_t on_bytes(proto::reliable::Connection& connection,
                  std::span<const std::byte> bytes) noexcept override {
    Peer& peer = static_cast<Peer&>(connection);
    if (peer.broken) return bytes.size();
    if (peer.parser.stalled()) return 0;  // poll() asks again
    feeder_->feed(peer, bytes);
    if (peer.parser.error() != 0) [[unlikely]]
      break_off(peer);
    else if (peer.parser.stalled()) [[unlikely]] stalled_.push_back(&peer);  // reserved
    return bytes.size();
  }
  bool holds(const proto::reliable::Connection& connection) const noexcept override {
    return static_cast<const Peer&>(connection).parser.stalled();
  }
  void lost(proto::reliable::Connection& connection, core::ProviderError why) noexcept override {
    Peer& peer = static_cast<Peer&>(connection);
    if (peer.broken) std::erase(broken_, &peer);
    std::erase(stalled_, &peer);
    if (peer.ending.death != proto::reliable::Death::None) warn_of_death(peer);
    events_->peer_lost(peer, why);
  }

  // The name of a peer has the number that its machine gives to the interface (RFC 4007, 6): it is meant on ours.
  auto read_name(std::span<const std::byte> name) const noexcept {
    auto to = names_.read(name);
    if constexpr (HasScopedAddresses<Names>) {
      if (const auto here = to ? Names::on_link_of(to->bytes(), packets_.address()) : to; here) to = here;
    }
    return to;
  }

  static constexpr unsigned warnings_max = 16;  // warnings of an endpoint
  static std::string text_of(const proto::reliable::PacketAddress& place);
  [[gnu::noinline]] void warn_limited(std::string what) noexcept;
  [[gnu::noinline]] void warn_of_cut_off(const Peer& peer) noexcept;
  [[gnu::noinline]] void warn_of_death(const Peer& peer) noexcept;
  [[gnu::noinline]] void warn_of_anomalies() noexcept;
  void log_statistics() noexcept;
  void show() noexcept;

  void break_off(Peer& peer) noexcept;
  template <class Handler>
  void check_all(Handler& handler, uint64_t now) noexcept;

  bool guards_answers() const noexcept {
    return core_->data_at() != 0 &&
           os::monotonic_ns() - core_->data_at() < proto::reliable::Core::answer_guard;
  }
  void report_background_work() noexcept {
    if (background_ != nullptr && has_background_work()) [[unlikely]]
      std::exchange(background_, nullptr)->notify();
  }

  Feeder* feeder_ = nullptr;
  core::Signal* background_ = nullptr;  // notified once when has_background_work() becomes true
  std::unique_ptr<proto::reliable::Core> core_;
  proto::Observed<P> packets_;

  // --- cold below this line ---
  Events* events_ = nullptr;
  Names names_;
  typename Names::Name name_;
  std::vector<Peer*> broken_;
  std::vector<Peer*> stalled_;
  uint64_t next_check_ = 0;
  uint64_t timeouts_seen_ = 0;
  os::StatisticsEntry shown_;
  uint64_t lost_before_ = 0;  // packets, at the last look
  uint64_t lost_shown_ = 0;
  os::PollSet both_;
  os::Timer timer_;
  int owner_pid_ = 0;
  void (*note_)(const void* who, const char* what) = nullptr;
  const void* noted_ = nullptr;
  unsigned warnings_ = 0;
  bool warned_displaced_ = false;
  bool warned_namesake_ = false;
  bool warned_length_ = false;
  bool warned_malformed_ = false;
};

}  // namespace weft::link::reliable

#include "link/reliable/link_impl.hpp"
