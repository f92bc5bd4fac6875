// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The composite link: one endpoint that reaches peers on its own host by one link (Local) and others by another (Remote), chosen for each peer.
// Must not know tags or completions, nor what shared memory or a network are.
//
// A peer uses exactly one path for what we send to it, chosen at the first contact and kept for its lifetime, so order is the path's own.
// What it sends may come by the other path: then both ends are right, each with the path that it chose (docs/decisions/0010-one-path-a-peer.md).
// Losing either path that is in use loses the peer.
//
// Hot path: a local peer's fields are a base of Peer, so that a small frame costs one predictable branch more than without Remote.
// Remote is polled rarely while only Local has something to say (PollScheduler), because polling it enters the kernel.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "arch/cpu.hpp"
#include "base/result.hpp"
#include "core/provider_error.hpp"
#include "link/composite/poll_scheduler.hpp"
#include "os/clock.hpp"
#include "os/fd.hpp"
#include "os/poll_set.hpp"
#include "os/shortage.hpp"
#include "proto/device.hpp"
#include "proto/engine/link.hpp"
#include "wire/frame.hpp"

namespace weft::link::composite {

enum class Path : uint8_t { Local, Remote };

// Local and Remote may be the same type in tests, so each is a base under a name of its own.
template <class N>
struct LocalSide : N::PeerBase {};
template <class F>
struct RemoteSide : F::PeerBase {};

// Before the rest, in the cache line that every send reads.
struct PathState {
  Path path = Path::Local;  // of what we send
  bool local_met = false;   // Local knows this peer
  bool remote_met = false;  // Remote does
};

template <class N, class F>
struct Peer : PathState, LocalSide<N>, RemoteSide<F> {
  std::array<std::byte, 64> name{};

  typename N::PeerBase& local() noexcept { return static_cast<LocalSide<N>&>(*this); }
  const typename N::PeerBase& local() const noexcept { return static_cast<const LocalSide<N>&>(*this); }
  typename F::PeerBase& remote() noexcept { return static_cast<RemoteSide<F>&>(*this); }
  const typename F::PeerBase& remote() const noexcept { return static_cast<const RemoteSide<F>&>(*this); }
  static Peer& of_local(typename N::PeerBase& base) noexcept {
    return static_cast<Peer&>(static_cast<LocalSide<N>&>(base));
  }
  static Peer& of_remote(typename F::PeerBase& base) noexcept {
    return static_cast<Peer&>(static_cast<RemoteSide<F>&>(base));
  }
  static const Peer& of_local(const typename N::PeerBase& base) noexcept {
    return static_cast<const Peer&>(static_cast<const LocalSide<N>&>(base));
  }
  static const Peer& of_remote(const typename F::PeerBase& base) noexcept {
    return static_cast<const Peer&>(static_cast<const RemoteSide<F>&>(base));
  }
};

namespace detail {
// What of Local the composite states as its own: small frames, and messages in place.
template <class N>
struct OfLocal {};
template <proto::HasSmallFrames N>
struct OfLocal<N> {
  static constexpr size_t small_bytes_max = N::small_bytes_max;
};
template <class N>
struct LoansOfLocal {};
template <proto::HasLoans N>
struct LoansOfLocal<N> {
  using Loan = typename N::Loan;
  using ReservedBuffer = typename N::ReservedBuffer;
  static constexpr size_t in_place_bytes_max = N::in_place_bytes_max;
  static constexpr size_t ring_entries = N::ring_entries;
  static constexpr size_t ring_bytes = N::ring_bytes;
};
}  // namespace detail

// A local link that tells whether somebody has an address here and now; else whoever is of this host is taken to be there.
template <class N>
concept KnowsPresence = requires(std::span<const std::byte> address) {
  { N::is_present(address) } -> std::convertible_to<bool>;
};
// burst() of a local link changes with each small frame that it sends, and when one comes in; of others only what comes in is noticed.
template <class N>
concept CountsBursts = requires(const N& local) {
  { local.burst() }
  noexcept->std::same_as<uint32_t>;
};

template <class N, class F>
concept BothHaveSleep = proto::HasSleep<N> && proto::HasSleep<F>;

// A counter with a constant rate, which is read at polls, and the clock by which that rate is measured.
struct SystemClock {
  static uint64_t ticks() noexcept { return arch::ticks(); }
  static uint64_t now_ns() noexcept { return os::monotonic_ns(); }
};

// N, F: any links; the composite can be slept on when both can. Names: how an address holds both (address.hpp).
template <class N, class F, class Names, class Clock = SystemClock>
class Link : public proto::LinkBase,
             public proto::DeviceBelow<F>,
             public detail::OfLocal<N>,
             public detail::LoansOfLocal<N> {
 public:
  using Local = N;
  using Remote = F;
  using Sides = proto::SideTypes<Local, Remote>;
  using SmallSide =
      Local;  // a small frame to a remote peer is a call, which would cost local peers their registers
  using PeerBase = Peer<Local, Remote>;
  using Events = proto::LinkEvents<PeerBase>;
  // The largest of both; a peer has those of its side. Both sides take frames of the smaller size.
  static constexpr size_t frame_bytes_max = std::min(Local::frame_bytes_max, Remote::frame_bytes_max);
  static constexpr size_t eager_bytes_max = std::max(Local::eager_bytes_max, Remote::eager_bytes_max);
  static constexpr size_t fragmented_eager_bytes_max =
      std::max(Local::fragmented_eager_bytes_max, Remote::fragmented_eager_bytes_max);
  static constexpr size_t fragment_bytes = std::max(Local::fragment_bytes, Remote::fragment_bytes);
  static constexpr size_t segment_bytes = std::max(Local::segment_bytes, Remote::segment_bytes);
  static constexpr bool small_credit = proto::has_small_credit<Local>;
  static constexpr size_t address_length = Names::address_length;
  static constexpr bool has_housekeeping = proto::HasHousekeeping<Local> && proto::HasHousekeeping<Remote>;

  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { close(); }

  // Opens the endpoint at an address ("" chooses one). Without Local where that is forbidden or impossible; never without Remote.
  Result<void> open(std::string_view name, Events& events);
  void set_warning(proto::PacketWarning on_warning, const void* who) noexcept {
    local_.set_warning(on_warning, who);
    remote_.set_warning(on_warning, who);
    LinkBase::set_warning(on_warning, who);
  }
  void set_note(proto::PacketWarning on_note, const void* who) noexcept requires proto::HasNotes<Local> {
    local_.set_note(on_note, who);
  }
  template <proto::DeviceUsedBy<F> D>
  void set_device(D& device) noexcept {
    remote_.set_device(device);
  }
  void set_traffic_class(uint8_t dscp) noexcept {
    if constexpr (proto::HasTrafficClass<Remote>) remote_.set_traffic_class(dscp);
  }
  void warn_of_malformed(PeerBase& peer, const char* what) noexcept {
    if (peer.local_met) local_.warn_of_malformed(peer.local(), what);
    else if (peer.remote_met) remote_.warn_of_malformed(peer.remote(), what);
  }
  // False in a forked child: the endpoint is its parent's.
  bool belongs_here() const noexcept { return owner_pid_ == 0 || os::process_id() == owner_pid_; }
  void close() noexcept;
  // The endpoint is about to close, and waits only for what can still be delivered.
  void hurry() noexcept {
    if (local_on_) local_.hurry();
    remote_.hurry();
  }
  std::span<const std::byte> address() const noexcept { return address_; }

  // The peer with that address, made when it is new: its path is chosen here.
  PeerBase* connect(std::span<const std::byte> address, int& error);
  // The owner drops a peer (it must not be lost already).
  void forget(PeerBase& peer) noexcept {
    drop(peer);
    erase(peer);
  }
  // Which way a peer is sent to.
  static Path path_to(const PeerBase& peer) noexcept { return peer.path; }

  // --- hot ---
  [[gnu::always_inline]] proto::SmallSend send_small(
      PeerBase& peer, const wire::FrameHead& head,
      const void* bytes) noexcept requires proto::HasSmallFrames<Local> {
    if (peer.path == Path::Remote) [[unlikely]]
      return proto::SmallSend::Refused;
    return local_.send_small(peer.local(), head, bytes);
  }
  bool more_room(PeerBase& peer) noexcept requires proto::HasSmallFrames<Local> {
    return peer.path == Path::Local && local_.more_room(peer.local());
  }
  void wake_receiver(PeerBase& peer) noexcept requires proto::HasSmallFrames<Local> {
    if (peer.path == Path::Local) local_.wake_receiver(peer.local());
  }
  bool send(PeerBase& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
            const iovec* parts, size_t part_count) noexcept {
    if (peer.path == Path::Local) [[likely]]
      return local_.send(peer.local(), head, prefix, parts, part_count);
    expect_remote();
    return remote_.send(peer.remote(), head, prefix, parts, part_count);
  }

  // --- the side that a peer is sent to by (proto::HasSides) ---
  template <class F1>
  [[gnu::always_inline]] decltype(auto) visit(PeerBase& peer, F1&& f) {
    if (peer.path == Path::Local) return f(local_, peer.local());
    return f(remote_, peer.remote());
  }
  template <class F1>
  [[gnu::always_inline]] decltype(auto) visit(const PeerBase& peer, F1&& f) const {
    if (peer.path == Path::Local) return f(local_, peer.local());
    return f(remote_, peer.remote());
  }
  template <class F1>
  [[gnu::always_inline]] decltype(auto) visit_to_send(PeerBase& peer, F1&& f) {
    if (peer.path == Path::Local) return f(local_, peer.local());
    expect_remote();
    return f(remote_, peer.remote());
  }
  template <class F1>
  void each_side(F1&& f) {
    if (local_on_) f(local_);
    f(remote_);
  }
  template <class F1>
  void each_side(F1&& f) const {
    if (local_on_) f(local_);
    f(remote_);
  }
  bool has_left(const PeerBase& peer) const noexcept {
    return visit(peer, [](const auto& side, const auto& part) { return side.has_left(part); });
  }
  uint8_t unread(const PeerBase& peer) const noexcept {
    return visit(peer, [](const auto& side, const auto& part) { return side.unread(part); });
  }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    int taken = 0;
    if (local_on_) [[likely]] {
      LocalHandler<Handler> side{handler};
      taken = local_.poll(side);
      schedule_.on_local_poll(taken);
    }
    if (schedule_.is_due()) [[unlikely]]
      taken += poll_remote(handler);
    return taken;
  }

  // --- in place: local peers only ---
  template <class Taker, class Handler>
  void poll_for(Taker& taker, Handler& handler) noexcept requires proto::HasLoans<Local> {
    if (local_on_) {
      LocalHandler<Taker> side{taker};
      LocalHandler<Handler> rest{handler};
      local_.poll_for(side, rest);
    }
    if (schedule_.is_due()) (void)poll_remote(handler);
  }
  auto loan(PeerBase& peer) noexcept requires proto::HasLoans<Local> { return local_.loan(peer.local()); }
  void release(const auto& loan) noexcept requires proto::HasLoans<Local> { local_.release(loan); }
  auto reserve(PeerBase& peer, size_t bytes, int& error) noexcept requires proto::HasLoans<Local> {
    error = EOPNOTSUPP;
    return peer.path == Path::Local ? local_.reserve(peer.local(), bytes, error) : nullptr;
  }
  static std::byte* bytes_of(const auto& buffer) noexcept requires proto::HasLoans<Local> {
    return Local::bytes_of(buffer);
  }
  bool commit(auto& buffer, const wire::FrameHead& head) noexcept requires proto::HasLoans<Local> {
    return local_.commit(buffer, head);
  }
  void abandon(auto& buffer) noexcept requires proto::HasLoans<Local> { local_.abandon(buffer); }
  proto::CopyUse copy_use(const PeerBase* peer,
                          uint64_t length) const noexcept requires proto::HasLoans<Local> {
    if (peer == nullptr)
      return local_.copy_use(static_cast<const typename Local::PeerBase*>(nullptr), length);
    return peer->local_met ? local_.copy_use(&peer->local(), length) : proto::CopyUse{};
  }
  proto::RingUse rings(const PeerBase& peer) const noexcept requires proto::HasLoans<Local> {
    return peer.local_met ? local_.rings(peer.local()) : proto::RingUse{};
  }

  // --- sleeping ---
  int wait_fd() const noexcept requires BothHaveSleep<N, F> { return both_.get(); }
  bool arm() noexcept requires BothHaveSleep<N, F>;
  void disarm() noexcept requires BothHaveSleep<N, F>;

 private:
  using Name = std::array<std::byte, address_length>;
  using Parts = typename Names::Parts;

  // While connect() asks one side; that may throw.
  struct Connecting {
    Connecting(const Name*& slot, const Name& name) noexcept : slot_(slot) { slot = &name; }
    Connecting(const Connecting&) = delete;
    Connecting& operator=(const Connecting&) = delete;
    ~Connecting() { slot_ = nullptr; }
    const Name*& slot_;
  };
  struct ShortHeads {
    wire::HeadWord without_b = 0;
    wire::HeadWord with_b = 0;
  };
  template <class Handler>
  static constexpr ShortHeads short_heads() noexcept {
    if constexpr (proto::TakesShortFrames<Handler, PeerBase>)
      return {Handler::short_head, Handler::short_head_with_b};
    else return {};
  }
  // Frames of one side as frames of the whole peer.
  template <class Handler>
  struct LocalHandler {
    Handler& handler;
    [[gnu::always_inline]] bool on_frame(typename Local::PeerBase& base, const wire::FrameHead& head,
                                         const std::byte* payload) noexcept {
      return handler.on_frame(PeerBase::of_local(base), head, payload);
    }
    bool satisfied() const noexcept { return handler.satisfied(); }
    // Large frames in parts, when the handler takes them so.
    proto::Land land(typename Local::PeerBase& base, wire::FrameHead& head, const std::byte* payload,
                     size_t arrived,
                     proto::Landing& out) noexcept requires proto::TakesParts<Handler, PeerBase> {
      return handler.land(PeerBase::of_local(base), head, payload, arrived, out);
    }
    void landed(typename Local::PeerBase& base, wire::FrameHead& head,
                size_t bytes) noexcept requires proto::TakesParts<Handler, PeerBase> {
      handler.landed(PeerBase::of_local(base), head, bytes);
    }
    bool awaits(
        const typename Local::PeerBase& base) const noexcept requires proto::HasAwaited<Handler, PeerBase> {
      return handler.awaits(PeerBase::of_local(base));
    }
    static constexpr wire::HeadWord short_head = short_heads<Handler>().without_b;
    static constexpr wire::HeadWord short_head_with_b = short_heads<Handler>().with_b;
    [[gnu::always_inline]] bool on_short_frame(
        typename Local::PeerBase& base, uint64_t a, const std::byte* payload,
        uint32_t length) noexcept requires proto::TakesShortFrames<Handler, PeerBase> {
      return handler.on_short_frame(PeerBase::of_local(base), a, payload, length);
    }
    [[gnu::always_inline]] bool on_short_frame_with_b(
        typename Local::PeerBase& base, uint64_t a, uint64_t b, const std::byte* payload,
        uint32_t length) noexcept requires proto::TakesShortFrames<Handler, PeerBase> {
      return handler.on_short_frame_with_b(PeerBase::of_local(base), a, b, payload, length);
    }
  };
  template <class Handler>
  struct RemoteHandler {
    Handler& handler;
    bool on_frame(typename Remote::PeerBase& base, const wire::FrameHead& head,
                  const std::byte* payload) noexcept {
      return handler.on_frame(PeerBase::of_remote(base), head, payload);
    }
    // Large frames in parts, when the handler takes them so.
    proto::Land land(typename Remote::PeerBase& base, wire::FrameHead& head, const std::byte* payload,
                     size_t arrived,
                     proto::Landing& out) noexcept requires proto::TakesParts<Handler, PeerBase> {
      return handler.land(PeerBase::of_remote(base), head, payload, arrived, out);
    }
    void landed(typename Remote::PeerBase& base, wire::FrameHead& head,
                size_t bytes) noexcept requires proto::TakesParts<Handler, PeerBase> {
      handler.landed(PeerBase::of_remote(base), head, bytes);
    }
    bool awaits(
        const typename Remote::PeerBase& base) const noexcept requires proto::HasAwaited<Handler, PeerBase> {
      return handler.awaits(PeerBase::of_remote(base));
    }
  };
  // What happens on one side.
  struct LocalEvents final : Local::Events {
    Link* link = nullptr;
    typename Local::PeerBase* make_peer(std::span<const std::byte> name) override {
      return link->local_appears(name);
    }
    void peer_lost(typename Local::PeerBase& base, core::ProviderError why) noexcept override {
      PeerBase& peer = PeerBase::of_local(base);
      peer.local_met = false;
      link->lose(peer, why);
    }
    void time_passes() noexcept override { link->time_passes(); }
    uint32_t shown_as() const noexcept override { return link->events_->shown_as(); }
  };
  struct RemoteEvents final : Remote::Events {
    Link* link = nullptr;
    typename Remote::PeerBase* make_peer(std::span<const std::byte> name) override {
      return link->remote_appears(name);
    }
    void peer_lost(typename Remote::PeerBase& base, core::ProviderError why) noexcept override {
      PeerBase& peer = PeerBase::of_remote(base);
      peer.remote_met = false;
      link->lose(peer, why);
    }
    void time_passes() noexcept override { link->time_passes(); }
    uint32_t shown_as() const noexcept override { return link->events_->shown_as(); }
  };

  template <class Handler>
  [[gnu::noinline]] int poll_remote(Handler& handler) noexcept {
    uint32_t burst = 0;
    if constexpr (CountsBursts<Local>) burst = local_.burst();
    if (!schedule_.check(Clock::ticks(), local_on_, burst)) return 0;
    RemoteHandler<Handler> side{handler};
    const int taken = remote_.poll(side);
    if (taken != 0) schedule_.on_remote_frames(Clock::ticks());
    schedule_.remote_polled();
    return taken;
  }

  // The remote side may buffer frames until its next poll, and an answer is likely.
  void expect_remote() noexcept {
    if (!schedule_.is_remote_next()) schedule_.expect_remote(Clock::ticks());
  }
  // Both sides run their housekeeping now and then.
  void time_passes() noexcept {
    calibrate();
    events_->time_passes();
  }
  void calibrate() noexcept;
  using Table = proto::PeersByName<PeerBase>;
  static bool canonical(std::span<const std::byte> address, Parts& parts, Name& name) noexcept {
    return Names::split(address, parts) && Names::join(parts, name);
  }
  bool watch_local() {
    if constexpr (BothHaveSleep<N, F>) return static_cast<bool>(both_.add(local_.wait_fd()));
    return true;
  }
  PeerBase* find(const Name& name, const Parts& parts, bool is_hello) const;
  Path choose(const Parts& parts) const noexcept;
  PeerBase* appears(std::span<const std::byte> name, Path path);
  PeerBase* make(const Name& name, Path path);
  typename Local::PeerBase* local_appears(std::span<const std::byte> name);
  typename Remote::PeerBase* remote_appears(std::span<const std::byte> name);
  PeerBase* connect_local(const Name& name, const Parts& parts, int& error);
  PeerBase* connect_remote(const Name& name, const Parts& parts, int& error);
  void lose(PeerBase& peer, core::ProviderError why) noexcept {
    drop(peer);
    erase(peer);
    events_->peer_lost(peer, why);
  }
  void drop(PeerBase& peer) noexcept {
    if (std::exchange(peer.local_met, false)) local_.forget(peer.local());
    if (std::exchange(peer.remote_met, false)) remote_.forget(peer.remote());
  }
  void erase(PeerBase& peer) noexcept { peers_.erase(peer); }

  Local local_;
  bool local_on_ = false;
  PollScheduler schedule_;
  Remote remote_;

  // --- cold below this line ---
  Events* events_ = nullptr;
  LocalEvents local_events_;
  RemoteEvents remote_events_;
  const Name* connecting_ = nullptr;  // whose peer is being made by connect()
  Table peers_;
  Name address_{};
  uint64_t host_ = 0;
  os::PollSet both_;
  int owner_pid_ = 0;
  // When the endpoint was opened, by both clocks, until the rate of ticks() is known; 0: it is.
  uint64_t opened_ticks_ = 0;
  uint64_t opened_ns_ = 0;
};

}  // namespace weft::link::composite

#include "link/composite/link_impl.hpp"
