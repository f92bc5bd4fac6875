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
#include <unordered_map>
#include <utility>

#include "arch/cpu.hpp"
#include "base/result.hpp"
#include "core/provider_error.hpp"
#include "os/fd.hpp"
#include "os/poll_set.hpp"
#include "proto/device.hpp"
#include "proto/engine/link.hpp"
#include "proto/engine/remote_access.hpp"
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
  static Peer& of_near(typename N::PeerBase& base) noexcept {
    return static_cast<Peer&>(static_cast<NearSide<N>&>(base));
  }
  static Peer& of_far(typename F::PeerBase& base) noexcept {
    return static_cast<Peer&>(static_cast<FarSide<F>&>(base));
  }
};

namespace detail {
template <class N>
struct InPlaceTypes {
  struct Held {};
  struct Room {};
  static constexpr size_t bytes_max = 0;
  static constexpr size_t ring_entries = 0;
  static constexpr size_t ring_bytes = 0;
};
template <class N>
requires proto::InPlace<N>
struct InPlaceTypes<N> {
  using Held = typename N::Held;
  using Room = typename N::Room;
  static constexpr size_t bytes_max = N::in_place_bytes_max;
  static constexpr size_t ring_entries = N::ring_entries;
  static constexpr size_t ring_bytes = N::ring_bytes;
};
}  // namespace detail

template <class P>
struct Events {
  virtual P* make_peer(std::span<const std::byte> address) = 0;
  virtual void peer_lost(P& peer, core::ProviderError why) noexcept = 0;

 protected:
  ~Events() = default;
};

// N: a link with small frames, remote read and sleep. F: a link with sleep. Names: how an address holds both (address.hpp).
template <class N, class F, class Names>
class Link : public proto::DeviceBelow<F> {
 public:
  using Near = N;
  using Far = F;
  using PeerBase = Peer<Near, Far>;
  using Events = composite::Events<PeerBase>;
  // The largest of both; limits() has those of a peer. Both sides take frames of the smaller size.
  static constexpr size_t frame_bytes_max = std::min(Near::frame_bytes_max, Far::frame_bytes_max);
  static constexpr size_t eager_bytes_max = std::max(Near::eager_bytes_max, Far::eager_bytes_max);
  static constexpr size_t fragmented_eager_bytes_max =
      std::max(Near::fragmented_eager_bytes_max, Far::fragmented_eager_bytes_max);
  static constexpr size_t fragment_bytes = std::max(Near::fragment_bytes, Far::fragment_bytes);
  static constexpr size_t segment_bytes = std::max(Near::segment_bytes, Far::segment_bytes);
  static constexpr size_t small_bytes_max = Near::small_bytes_max;
  static constexpr bool small_credit = proto::HasSmallCredit<Near>;
  static constexpr size_t slow_small_bytes_max = [] {
    if constexpr (proto::HasSmallFrames<Far>) return Far::small_bytes_max;
    else return size_t{0};
  }();
  static constexpr size_t address_length = Names::address_length;

  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { close(); }

  // Opens the endpoint at an address ("" chooses one). Without Near where that is forbidden or impossible; never without Far.
  Result<void> open(std::string_view name, Events& events);
  void set_warning(void (*on_warning)(const void* who, const char* what), const void* who) noexcept {
    if constexpr (proto::HasWarnings<Near>) near_.set_warning(on_warning, who);
    if constexpr (proto::HasWarnings<Far>) far_.set_warning(on_warning, who);
    on_warning_ = on_warning;
    warning_context_ = who;
  }
  template <class D>
  void set_device(D& device) noexcept requires proto::UsesDevice<F> && std::same_as<D, typename F::Device> {
    far_.set_device(device);
  }
  void set_traffic_class(uint8_t dscp) noexcept {
    if constexpr (proto::HasTrafficClass<Far>) far_.set_traffic_class(dscp);
  }
  void warn_of_malformed(PeerBase& peer, const char* what) noexcept {
    if constexpr (proto::WarnsOfMalformed<Near>)
      if (peer.near_met) return near_.warn_of_malformed(peer.near(), what);
    if constexpr (proto::WarnsOfMalformed<Far>)
      if (peer.far_met) far_.warn_of_malformed(peer.far(), what);
  }
  // False in a forked child: the endpoint is its parent's.
  bool belongs_here() const noexcept { return owner_pid_ == 0 || os::process_id() == owner_pid_; }
  void close() noexcept;
  // The endpoint is about to close, and waits only for what can still be delivered.
  void hurry() noexcept {
    if constexpr (proto::Hurries<Far>) far_.hurry();
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
  [[gnu::always_inline]] proto::SmallSend send_small(PeerBase& peer, const wire::FrameHead& head,
                                                     const void* bytes) noexcept {
    if (peer.path == Path::Far) [[unlikely]]
      return proto::SmallSend::
          Refused;  // send_small_slow() does it; a call from here would cost near peers their registers
    return near_.send_small(peer.near(), head, bytes);
  }
  proto::SmallSend send_small_slow(PeerBase& peer, const wire::FrameHead& head, const void* bytes) noexcept {
    if constexpr (proto::HasSmallFrames<Far>) {
      if (peer.path == Path::Near) return proto::SmallSend::Refused;
      expect_far();
      return far_.send_small(peer.far(), head, bytes);
    } else {
      return proto::SmallSend::Refused;
    }
  }
  bool more_room(PeerBase& peer) noexcept requires proto::HasSmallCredit<Near> {
    return peer.path == Path::Near && near_.more_room(peer.near());
  }
  void tell(PeerBase& peer) noexcept {
    if (peer.path == Path::Near) return near_.tell(peer.near());
    if constexpr (proto::HasSmallFrames<Far>) far_.tell(peer.far());
  }
  bool send(PeerBase& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
            const iovec* parts, size_t part_count) noexcept {
    if (peer.path == Path::Near) [[likely]]
      return near_.send(peer.near(), head, prefix, parts, part_count);
    expect_far();
    return far_.send(peer.far(), head, prefix, parts, part_count);
  }
  bool send_in_place(PeerBase& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
                     const iovec* parts, size_t part_count) noexcept requires proto::SendsInPlace<Far> {
    if (peer.path == Path::Near) return near_.send(peer.near(), head, prefix, parts, part_count);
    expect_far();
    return far_.send_in_place(peer.far(), head, prefix, parts, part_count);
  }
  void keep(PeerBase& peer) noexcept requires proto::SendsInPlace<Far> {
    if (peer.path == Path::Far) far_.keep(peer.far());
  }

  // What Far has not got rid of. Near settles at once.
  uint64_t taken(PeerBase& peer) noexcept requires proto::SettlesLater<Far> {
    return peer.path == Path::Near ? 0 : far_.taken(peer.far());
  }
  uint64_t settled(PeerBase& peer) noexcept requires proto::SettlesLater<Far> {
    return peer.path == Path::Near ? 0 : far_.settled(peer.far());
  }
  bool is_stuck(PeerBase& peer) noexcept requires proto::GetsStuck<Far> {
    return peer.path == Path::Far && far_.is_stuck(peer.far());
  }
  uint64_t proven(PeerBase& peer) noexcept requires proto::Proves<Far> {
    return peer.path == Path::Near ? 0 : far_.proven(peer.far());
  }
  uint64_t unread(PeerBase& peer) noexcept requires proto::CountsUnread<Near> {
    return peer.path == Path::Near ? near_.unread(peer.near()) : 0;
  }
  void expect(PeerBase& peer) noexcept requires proto::SettlesLater<Far> {
    if (peer.path == Path::Far) far_.expect(peer.far());
  }

  // What Far keeps until the next poll.
  bool keeps_back() noexcept requires proto::KeepsBack<Far> { return far_.keeps_back(); }
  void push_kept(PeerBase& peer) noexcept requires proto::KeepsBack<Far> {
    if (peer.path == Path::Far) far_.push_kept(peer.far());
  }

  bool has_background_work() noexcept requires proto::HasBackgroundWork<Far> {
    return far_.has_background_work();
  }
  void notify_background_work(core::Signal* signal) noexcept requires proto::HasBackgroundWork<Far> {
    far_.notify_background_work(signal);
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
  using Held = typename detail::InPlaceTypes<Near>::Held;
  using Room = typename detail::InPlaceTypes<Near>::Room;
  static constexpr size_t in_place_bytes_max = detail::InPlaceTypes<Near>::bytes_max;
  static constexpr size_t ring_entries = detail::InPlaceTypes<Near>::ring_entries;
  static constexpr size_t ring_bytes = detail::InPlaceTypes<Near>::ring_bytes;
  static bool writes_in_place(const PeerBase& peer) noexcept { return peer.path == Path::Near; }
  template <class Taker, class Handler>
  void poll_for(Taker& taker, Handler& handler) noexcept requires proto::InPlace<Near> {
    if (near_on_) {
      NearHandler<Taker> side{taker};
      NearHandler<Handler> rest{handler};
      near_.poll_for(side, rest);
    }
    if (--far_countdown_ == 0) (void)look_far(handler);
  }
  Held hold(PeerBase& peer) noexcept requires proto::InPlace<Near> { return near_.hold(peer.near()); }
  void release(const Held& held) noexcept requires proto::InPlace<Near> { near_.release(held); }
  Room* reserve(PeerBase& peer, size_t bytes) noexcept requires proto::InPlace<Near> {
    return near_.reserve(peer.near(), bytes);
  }
  static std::byte* bytes_of(const Room& room) noexcept requires proto::InPlace<Near> {
    return Near::bytes_of(room);
  }
  bool commit(Room& room, const wire::FrameHead& head) noexcept requires proto::InPlace<Near> {
    return near_.commit(room, head);
  }
  void abandon(Room& room) noexcept requires proto::InPlace<Near> { near_.abandon(room); }
  proto::RingUse rings(const PeerBase& peer) const noexcept requires proto::InPlace<Near> {
    return peer.near_met ? near_.rings(peer.near()) : proto::RingUse{};
  }

  // --- what depends on the peer ---
  proto::LinkLimits limits(const PeerBase& peer) const noexcept {
    return peer.path == Path::Near ? proto::limits_of_type<Near>() : proto::limits_of_type<Far>();
  }

  // --- one-sided access: near peers only ---
  void expose(const proto::ExposedRegion& region) noexcept requires proto::HasRemoteAccess<Near> {
    near_.expose(region);
  }
  int conceal(uint64_t key) noexcept requires proto::HasRemoteAccess<Near> { return near_.conceal(key); }
  bool access(PeerBase& peer, bool write, const iovec* local, size_t local_count,
              const wire::RmaTarget* targets, size_t target_count, size_t bytes,
              uint64_t heard) noexcept requires proto::HasRemoteAccess<Near> {
    if (peer.path != Path::Near || !peer.near_met) return false;
    return near_.access(peer.near(), write, local, local_count, targets, target_count, bytes, heard);
  }

  // --- reading the peer's memory: near peers only ---
  bool may_be_read(const PeerBase& peer) const noexcept { return peer.path == Path::Near; }
  bool can_read(const PeerBase& peer) const noexcept { return peer.near_met && near_.can_read(peer.near()); }
  int read(PeerBase& peer, const iovec* local, size_t local_count, const wire::SourceSegment* remote,
           size_t remote_count, size_t bytes) noexcept {
    return near_.read(peer.near(), local, local_count, remote, remote_count, bytes);
  }
  uint64_t stamp() const noexcept { return near_.stamp(); }
  bool prefer_read(const PeerBase& peer, uint64_t total, uint64_t stamp) const noexcept {
    return near_.prefer_read(peer.near(), total, stamp);
  }

  // --- sleeping ---
  int wait_fd() const noexcept { return both_.get(); }
  bool arm() noexcept;
  void disarm() noexcept;

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
  // Frames of one side as frames of the whole peer.
  template <class Handler>
  struct NearHandler {
    Handler& handler;
    [[gnu::always_inline]] bool on_frame(typename Near::PeerBase& base, const wire::FrameHead& head,
                                         const std::byte* payload) noexcept {
      return handler.on_frame(PeerBase::of_near(base), head, payload);
    }
    bool satisfied() const noexcept { return handler.satisfied(); }
    [[gnu::always_inline]] bool on_plain_tagged(
        typename Near::PeerBase& base, uint64_t tag, const std::byte* payload,
        uint32_t length) noexcept requires proto::TakesPlainTagged<Handler, PeerBase> {
      return handler.on_plain_tagged(PeerBase::of_near(base), tag, payload, length);
    }
    [[gnu::always_inline]] bool on_plain_tagged_data(
        typename Near::PeerBase& base, uint64_t tag, uint64_t data, const std::byte* payload,
        uint32_t length) noexcept requires proto::TakesPlainTagged<Handler, PeerBase> {
      return handler.on_plain_tagged_data(PeerBase::of_near(base), tag, data, payload, length);
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
    const bool near_spoke = near_frames_ != 0 || near_.burst() != near_burst_;
    near_frames_ = 0;
    near_burst_ = near_.burst();
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
  static std::string key_of(const Name& name) {
    return {reinterpret_cast<const char*>(name.data()), name.size()};
  }
  static bool canonical(std::span<const std::byte> address, Parts& parts, Name& name) noexcept {
    return Names::split(address, parts) && Names::join(parts, name);
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
  void erase(PeerBase& peer) noexcept {
    std::erase_if(peers_, [&](const auto& entry) { return entry.second == &peer; });
  }

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
  std::unordered_map<std::string, PeerBase*> peers_;
  Name address_{};
  uint64_t host_ = 0;
  os::PollSet both_;
  int owner_pid_ = 0;
  void (*on_warning_)(const void* who, const char* what) = nullptr;
  const void* warning_context_ = nullptr;
};

}  // namespace weft::link::composite

#include "link/composite/link_impl.hpp"
