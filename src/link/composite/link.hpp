// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The composite link: one endpoint that reaches peers on its own host by one link (Near) and others by another (Far), chosen for each peer.
// Must not know tags or completions, nor what shared memory or a network are.
//
// A peer uses exactly one path for what we send to it, chosen at the first contact and kept for its lifetime, so order is the path's own.
// What it sends may come by the other path: then both ends are right, each with the path that it chose (docs/decisions/0010-one-path-a-peer.md).
// Losing either path that is in use loses the peer.
//
// Hot path: a near peer's fields are a base of Peer, so that a small frame costs one predictable branch more than without Far.
// Far is polled rarely while only Near has something to say (look_far()), because looking at it enters the kernel.
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
#include "os/fd.hpp"
#include "os/poll_set.hpp"
#include "os/shortage.hpp"
#include "proto/device.hpp"
#include "proto/engine/link.hpp"
#include "wire/frame.hpp"

namespace weft::link::composite {

enum class Path : uint8_t { Near, Far };

// Near and Far may be the same type in tests, so each is a base under a name of its own.
template <class N>
struct NearSide : N::PeerBase {};
template <class F>
struct FarSide : F::PeerBase {};

// Before the rest, in the cache line that every send reads.
struct Ways {
  Path path = Path::Near;  // of what we send
  bool near_met = false;   // Near knows this peer
  bool far_met = false;    // Far does
};

template <class N, class F>
struct Peer : Ways, NearSide<N>, FarSide<F> {
  std::array<std::byte, 64> name{};

  typename N::PeerBase& near() noexcept { return static_cast<NearSide<N>&>(*this); }
  const typename N::PeerBase& near() const noexcept { return static_cast<const NearSide<N>&>(*this); }
  typename F::PeerBase& far() noexcept { return static_cast<FarSide<F>&>(*this); }
  const typename F::PeerBase& far() const noexcept { return static_cast<const FarSide<F>&>(*this); }
  static Peer& of_near(typename N::PeerBase& base) noexcept {
    return static_cast<Peer&>(static_cast<NearSide<N>&>(base));
  }
  static Peer& of_far(typename F::PeerBase& base) noexcept {
    return static_cast<Peer&>(static_cast<FarSide<F>&>(base));
  }
  static const Peer& of_near(const typename N::PeerBase& base) noexcept {
    return static_cast<const Peer&>(static_cast<const NearSide<N>&>(base));
  }
  static const Peer& of_far(const typename F::PeerBase& base) noexcept {
    return static_cast<const Peer&>(static_cast<const FarSide<F>&>(base));
  }
};

namespace detail {
// What of Near the composite states as its own: small frames, and messages in place.
template <class N>
struct OfNear {};
template <proto::HasSmallFrames N>
struct OfNear<N> {
  static constexpr size_t small_bytes_max = N::small_bytes_max;
};
template <class N>
struct LoansOfNear {};
template <proto::HasLoans N>
struct LoansOfNear<N> {
  using Loan = typename N::Loan;
  using ReservedBuffer = typename N::ReservedBuffer;
  static constexpr size_t in_place_bytes_max = N::in_place_bytes_max;
  static constexpr size_t ring_entries = N::ring_entries;
  static constexpr size_t ring_bytes = N::ring_bytes;
};
}  // namespace detail

// A near link that tells whether somebody has an address here and now; else whoever is of this host is taken to be there.
template <class N>
concept KnowsPresence = requires(std::span<const std::byte> address) {
  { N::is_present(address) } -> std::convertible_to<bool>;
};
// burst() of a near link changes with each small frame that it sends, and when one comes in; of others only what comes in is noticed.
template <class N>
concept CountsBursts = requires(const N& near) {
  { near.burst() }
  noexcept->std::same_as<uint32_t>;
};

template <class N, class F>
concept BothHaveSleep = proto::HasSleep<N> && proto::HasSleep<F>;

// N, F: any links; the composite can be slept on when both can. Names: how an address holds both (address.hpp).
template <class N, class F, class Names>
class Link : public proto::LinkBase,
             public proto::DeviceBelow<F>,
             public detail::OfNear<N>,
             public detail::LoansOfNear<N> {
 public:
  using Near = N;
  using Far = F;
  using Sides = proto::SideTypes<Near, Far>;
  using SmallSide =
      Near;  // a small frame to a far peer is a call, which would cost near peers their registers
  using PeerBase = Peer<Near, Far>;
  using Events = proto::LinkEvents<PeerBase>;
  // The largest of both; a peer has those of its side. Both sides take frames of the smaller size.
  static constexpr size_t frame_bytes_max = std::min(Near::frame_bytes_max, Far::frame_bytes_max);
  static constexpr size_t eager_bytes_max = std::max(Near::eager_bytes_max, Far::eager_bytes_max);
  static constexpr size_t fragmented_eager_bytes_max =
      std::max(Near::fragmented_eager_bytes_max, Far::fragmented_eager_bytes_max);
  static constexpr size_t fragment_bytes = std::max(Near::fragment_bytes, Far::fragment_bytes);
  static constexpr size_t segment_bytes = std::max(Near::segment_bytes, Far::segment_bytes);
  static constexpr bool small_credit = proto::has_small_credit<Near>;
  static constexpr size_t address_length = Names::address_length;
  static constexpr bool keeps_house = proto::KeepsHouse<Near> && proto::KeepsHouse<Far>;

  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { close(); }

  // Opens the endpoint at an address ("" chooses one). Without Near where that is forbidden or impossible; never without Far.
  Result<void> open(std::string_view name, Events& events);
  void set_warning(proto::PacketWarning on_warning, const void* who) noexcept {
    near_.set_warning(on_warning, who);
    far_.set_warning(on_warning, who);
    LinkBase::set_warning(on_warning, who);
  }
  void set_note(proto::PacketWarning on_note, const void* who) noexcept requires proto::HasNotes<Near> {
    near_.set_note(on_note, who);
  }
  template <proto::DeviceUsedBy<F> D>
  void set_device(D& device) noexcept {
    far_.set_device(device);
  }
  void set_traffic_class(uint8_t dscp) noexcept {
    if constexpr (proto::HasTrafficClass<Far>) far_.set_traffic_class(dscp);
  }
  void warn_of_malformed(PeerBase& peer, const char* what) noexcept {
    if (peer.near_met) near_.warn_of_malformed(peer.near(), what);
    else if (peer.far_met) far_.warn_of_malformed(peer.far(), what);
  }
  // False in a forked child: the endpoint is its parent's.
  bool belongs_here() const noexcept { return owner_pid_ == 0 || os::process_id() == owner_pid_; }
  void close() noexcept;
  // The endpoint is about to close, and waits only for what can still be delivered.
  void hurry() noexcept {
    if (near_on_) near_.hurry();
    far_.hurry();
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
      const void* bytes) noexcept requires proto::HasSmallFrames<Near> {
    if (peer.path == Path::Far) [[unlikely]]
      return proto::SmallSend::Refused;
    return near_.send_small(peer.near(), head, bytes);
  }
  bool more_room(PeerBase& peer) noexcept requires proto::HasSmallFrames<Near> {
    return peer.path == Path::Near && near_.more_room(peer.near());
  }
  void tell(PeerBase& peer) noexcept requires proto::HasSmallFrames<Near> {
    if (peer.path == Path::Near) near_.tell(peer.near());
  }
  bool send(PeerBase& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
            const iovec* parts, size_t part_count) noexcept {
    if (peer.path == Path::Near) [[likely]]
      return near_.send(peer.near(), head, prefix, parts, part_count);
    expect_far();
    return far_.send(peer.far(), head, prefix, parts, part_count);
  }

  // --- the side that a peer is sent to by (proto::HasSides) ---
  template <class F1>
  [[gnu::always_inline]] decltype(auto) visit(PeerBase& peer, F1&& f) {
    if (peer.path == Path::Near) return f(near_, peer.near());
    return f(far_, peer.far());
  }
  template <class F1>
  [[gnu::always_inline]] decltype(auto) visit(const PeerBase& peer, F1&& f) const {
    if (peer.path == Path::Near) return f(near_, peer.near());
    return f(far_, peer.far());
  }
  template <class F1>
  [[gnu::always_inline]] decltype(auto) visit_to_send(PeerBase& peer, F1&& f) {
    if (peer.path == Path::Near) return f(near_, peer.near());
    expect_far();
    return f(far_, peer.far());
  }
  template <class F1>
  void each_side(F1&& f) {
    if (near_on_) f(near_);
    f(far_);
  }
  template <class F1>
  void each_side(F1&& f) const {
    if (near_on_) f(near_);
    f(far_);
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
    if (near_on_) [[likely]] {
      NearHandler<Handler> side{handler};
      taken = near_.poll(side);
      near_frames_ |= static_cast<uint32_t>(taken);
    }
    if (--far_countdown_ == 0) [[unlikely]]
      taken += look_far(handler);
    return taken;
  }

  // --- in place: near peers only ---
  template <class Taker, class Handler>
  void poll_for(Taker& taker, Handler& handler) noexcept requires proto::HasLoans<Near> {
    if (near_on_) {
      NearHandler<Taker> side{taker};
      NearHandler<Handler> rest{handler};
      near_.poll_for(side, rest);
    }
    if (--far_countdown_ == 0) (void)look_far(handler);
  }
  auto loan(PeerBase& peer) noexcept requires proto::HasLoans<Near> { return near_.loan(peer.near()); }
  void release(const auto& loan) noexcept requires proto::HasLoans<Near> { near_.release(loan); }
  auto reserve(PeerBase& peer, size_t bytes, int& error) noexcept requires proto::HasLoans<Near> {
    error = EOPNOTSUPP;
    return peer.path == Path::Near ? near_.reserve(peer.near(), bytes, error) : nullptr;
  }
  static std::byte* bytes_of(const auto& buffer) noexcept requires proto::HasLoans<Near> {
    return Near::bytes_of(buffer);
  }
  bool commit(auto& buffer, const wire::FrameHead& head) noexcept requires proto::HasLoans<Near> {
    return near_.commit(buffer, head);
  }
  void abandon(auto& buffer) noexcept requires proto::HasLoans<Near> { near_.abandon(buffer); }
  proto::CopyUse copy_use(const PeerBase* peer,
                          uint64_t length) const noexcept requires proto::HasLoans<Near> {
    if (peer == nullptr) return near_.copy_use(static_cast<const typename Near::PeerBase*>(nullptr), length);
    return peer->near_met ? near_.copy_use(&peer->near(), length) : proto::CopyUse{};
  }
  proto::RingUse rings(const PeerBase& peer) const noexcept requires proto::HasLoans<Near> {
    return peer.near_met ? near_.rings(peer.near()) : proto::RingUse{};
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
    Connecting(const Name*& place, const Name& name) noexcept : place_(place) { place = &name; }
    Connecting(const Connecting&) = delete;
    Connecting& operator=(const Connecting&) = delete;
    ~Connecting() { place_ = nullptr; }
    const Name*& place_;
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
  struct NearHandler {
    Handler& handler;
    [[gnu::always_inline]] bool on_frame(typename Near::PeerBase& base, const wire::FrameHead& head,
                                         const std::byte* payload) noexcept {
      return handler.on_frame(PeerBase::of_near(base), head, payload);
    }
    bool satisfied() const noexcept { return handler.satisfied(); }
    // Large frames in parts, when the handler takes them so.
    proto::Land land(typename Near::PeerBase& base, wire::FrameHead& head, const std::byte* payload,
                     size_t arrived,
                     proto::Landing& out) noexcept requires proto::TakesParts<Handler, PeerBase> {
      return handler.land(PeerBase::of_near(base), head, payload, arrived, out);
    }
    void landed(typename Near::PeerBase& base, wire::FrameHead& head,
                size_t bytes) noexcept requires proto::TakesParts<Handler, PeerBase> {
      handler.landed(PeerBase::of_near(base), head, bytes);
    }
    bool awaits(
        const typename Near::PeerBase& base) const noexcept requires proto::HasAwaited<Handler, PeerBase> {
      return handler.awaits(PeerBase::of_near(base));
    }
    static constexpr wire::HeadWord short_head = short_heads<Handler>().without_b;
    static constexpr wire::HeadWord short_head_with_b = short_heads<Handler>().with_b;
    [[gnu::always_inline]] bool on_short_frame(
        typename Near::PeerBase& base, uint64_t a, const std::byte* payload,
        uint32_t length) noexcept requires proto::TakesShortFrames<Handler, PeerBase> {
      return handler.on_short_frame(PeerBase::of_near(base), a, payload, length);
    }
    [[gnu::always_inline]] bool on_short_frame_with_b(
        typename Near::PeerBase& base, uint64_t a, uint64_t b, const std::byte* payload,
        uint32_t length) noexcept requires proto::TakesShortFrames<Handler, PeerBase> {
      return handler.on_short_frame_with_b(PeerBase::of_near(base), a, b, payload, length);
    }
  };
  template <class Handler>
  struct FarHandler {
    Handler& handler;
    bool on_frame(typename Far::PeerBase& base, const wire::FrameHead& head,
                  const std::byte* payload) noexcept {
      return handler.on_frame(PeerBase::of_far(base), head, payload);
    }
    // Large frames in parts, when the handler takes them so.
    proto::Land land(typename Far::PeerBase& base, wire::FrameHead& head, const std::byte* payload,
                     size_t arrived,
                     proto::Landing& out) noexcept requires proto::TakesParts<Handler, PeerBase> {
      return handler.land(PeerBase::of_far(base), head, payload, arrived, out);
    }
    void landed(typename Far::PeerBase& base, wire::FrameHead& head,
                size_t bytes) noexcept requires proto::TakesParts<Handler, PeerBase> {
      handler.landed(PeerBase::of_far(base), head, bytes);
    }
    bool awaits(
        const typename Far::PeerBase& base) const noexcept requires proto::HasAwaited<Handler, PeerBase> {
      return handler.awaits(PeerBase::of_far(base));
    }
  };
  // What happens on one side.
  struct NearEvents final : Near::Events {
    Link* link = nullptr;
    typename Near::PeerBase* make_peer(std::span<const std::byte> name) override {
      return link->near_appears(name);
    }
    void peer_lost(typename Near::PeerBase& base, core::ProviderError why) noexcept override {
      PeerBase& peer = PeerBase::of_near(base);
      peer.near_met = false;
      link->lose(peer, why);
    }
    void time_passes() noexcept override { link->events_->time_passes(); }
    uint32_t shown_as() const noexcept override { return link->events_->shown_as(); }
  };
  struct FarEvents final : Far::Events {
    Link* link = nullptr;
    typename Far::PeerBase* make_peer(std::span<const std::byte> name) override {
      return link->far_appears(name);
    }
    void peer_lost(typename Far::PeerBase& base, core::ProviderError why) noexcept override {
      PeerBase& peer = PeerBase::of_far(base);
      peer.far_met = false;
      link->lose(peer, why);
    }
    void time_passes() noexcept override { link->events_->time_passes(); }
    uint32_t shown_as() const noexcept override { return link->events_->shown_as(); }
  };

  // In ticks() of a machine of 3 GHz; others are near enough. The longer Far has been silent, the more rarely it is polled.
  static constexpr uint64_t far_hot_ticks =
      150'000;  // 50 us: so long after Far had something it is polled every time
  static constexpr uint64_t near_busy_ticks = 300'000;  // 100 us: so long Near is busy after it had something
  static constexpr uint64_t busy_pause_least = 30'000;  // 10 us
  static constexpr uint64_t busy_pause_most = 300'000;  // 100 us
  static constexpr uint64_t idle_pause_least = 3'000;   // 1 us
  static constexpr uint64_t idle_pause_most = 9'000;    // 3 us
  static constexpr uint64_t look_ticks = 1'500;         // between two looks at the clock, about,
  static constexpr uint32_t polls_per_look_max = 16;    // but never more polls than this

  template <class Handler>
  [[gnu::noinline]] int look_far(Handler& handler) noexcept {
    const uint64_t now = arch::ticks();
    bool near_spoke = near_frames_ != 0;
    near_frames_ = 0;
    if constexpr (CountsBursts<Near>) {
      const uint32_t burst = near_.burst();
      near_spoke = near_spoke || burst != near_burst_;
      near_burst_ = burst;
    }
    if (near_spoke) near_heard_ = now;
    // A program that polls rarely gets to Far as often as one that polls in a loop.
    polls_per_look_ = now - looked_ < look_ticks ? std::min(2 * polls_per_look_, polls_per_look_max)
                                                 : std::max(polls_per_look_ / 2, 1U);
    looked_ = now;
    far_countdown_ = polls_per_look_;
    bool hot = now - far_heard_ < far_hot_ticks;
    if (near_on_ && !hot) {
      const uint64_t silence = (now - far_heard_) / 16;
      const uint64_t pause = now - near_heard_ < near_busy_ticks
                                 ? std::clamp(silence, busy_pause_least, busy_pause_most)
                                 : std::clamp(silence, idle_pause_least, idle_pause_most);
      if (now - far_polled_ < pause) return 0;
    }
    far_polled_ = now;
    FarHandler<Handler> side{handler};
    const int taken = far_.poll(side);
    if (taken != 0) {
      far_heard_ = arch::ticks();
      hot = true;
    }
    if (!near_on_) far_countdown_ = 1;
    else if (hot) far_countdown_ = near_spoke ? 4 : 1;
    return taken;
  }

  // Far may keep something for its next poll, and an answer is likely.
  void expect_far() noexcept {
    if (far_countdown_ == 1) return;
    far_countdown_ = 1;
    far_heard_ = arch::ticks();
  }
  using Table = proto::PeersByName<PeerBase>;
  static bool canonical(std::span<const std::byte> address, Parts& parts, Name& name) noexcept {
    return Names::split(address, parts) && Names::join(parts, name);
  }
  bool watch_near() {
    if constexpr (BothHaveSleep<N, F>) return static_cast<bool>(both_.add(near_.wait_fd()));
    return true;
  }
  PeerBase* find(const Name& name, const Parts& parts, bool greets) const;
  Path choose(const Parts& parts) const noexcept;
  PeerBase* appears(std::span<const std::byte> name, Path path);
  PeerBase* make(const Name& name, Path path);
  typename Near::PeerBase* near_appears(std::span<const std::byte> name);
  typename Far::PeerBase* far_appears(std::span<const std::byte> name);
  PeerBase* connect_near(const Name& name, const Parts& parts, int& error);
  PeerBase* connect_far(const Name& name, const Parts& parts, int& error);
  void lose(PeerBase& peer, core::ProviderError why) noexcept {
    drop(peer);
    erase(peer);
    events_->peer_lost(peer, why);
  }
  void drop(PeerBase& peer) noexcept {
    if (std::exchange(peer.near_met, false)) near_.forget(peer.near());
    if (std::exchange(peer.far_met, false)) far_.forget(peer.far());
  }
  void erase(PeerBase& peer) noexcept { peers_.erase(peer); }

  Near near_;
  bool near_on_ = false;
  uint32_t near_frames_ = 0;    // since the last look
  uint32_t far_countdown_ = 1;  // polls until the next look
  Far far_;

  // --- cold below this line ---
  uint32_t polls_per_look_ = 1;
  uint64_t looked_ = 0;
  uint32_t near_burst_ = 0;
  uint64_t near_heard_ = 0;
  uint64_t far_heard_ = 0;
  uint64_t far_polled_ = 0;
  Events* events_ = nullptr;
  NearEvents near_events_;
  FarEvents far_events_;
  const Name* connecting_ = nullptr;  // whose peer is being made by connect()
  Table peers_;
  Name address_{};
  uint64_t host_ = 0;
  os::PollSet both_;
  int owner_pid_ = 0;
};

}  // namespace weft::link::composite

#include "link/composite/link_impl.hpp"
