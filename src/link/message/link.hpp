// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Frames over connected endpoints: an RDM endpoint out of FI_EP_MSG ("...;ofi_rxm"). Must not know tags or completions, nor whose endpoints
// they are (endpoints.hpp).
//
// A peer is connected when something is first sent to it. The side that connected says Hello, with the address that it listens on; the
// answer Welcome lets frames flow both ways. When both connect at the same time, the connection of the side with the smaller address stays:
// the other one is answered with Defer and kept, unused, until the first one works (docs/wire/message.md).
//
// Credits: a message with frames needs a receive buffer of the other side, and both sides count. Bounds for each peer: what the endpoints have
// for receive_count messages each way, and one message of frames that wait for a credit.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/assert.hpp"
#include "base/result.hpp"
#include "core/provider_error.hpp"
#include "link/message/crossing.hpp"
#include "link/message/endpoints.hpp"
#include "link/message/wire.hpp"
#include "os/poll_set.hpp"
#include "proto/engine/link.hpp"
#include "proto/stream/coalescer.hpp"
#include "proto/stream/head.hpp"
#include "proto/stream/packer.hpp"
#include "wire/frame.hpp"

namespace weft::link::message {

template <Endpoints E>
class MessageLink : public proto::LinkBase {
  struct Channel;
  using Connection = typename E::Connection;

 public:
  struct Peer {
    std::string address;
    Channel* channel = nullptr;    // what is sent goes here
    Channel* other_end = nullptr;  // of a connection to ourselves
    // Frames: accepted, committed to the endpoints, and those that need us no more.
    uint64_t taken = 0;
    uint64_t committed = 0;
    uint64_t completed = 0;
    // So many frames need us no more when the endpoints are past their mark; oldest first.
    struct Mark {
      uint64_t frames;
      uint64_t of_endpoints;
    };
    static constexpr size_t marks_max = 8;
    std::array<Mark, marks_max> marks{};
    size_t mark_count = 0;
    uint64_t proven = 0;       // frames that are known to be there; known once the connection has ended
    bool takes_large = false;  // frames of large_frame_bytes, each in a message of its own
  };
  using Events = proto::LinkEvents<Peer>;
  using PeerBase = Peer;

  // Messages that are no frames are few, and have buffers of their own: a handshake, a goodbye, and at most two that return credits, since each
  // returns half of them.
  static constexpr size_t buffers_reserved = 4;
  static constexpr size_t local_credits = E::receive_count - buffers_reserved;
  static constexpr size_t heads_bytes_max = head_bytes + proto::stream::head_bytes_max;
  static constexpr bool sends_large = HasLargeMessages<E>;
  static constexpr size_t usual_frame_bytes_max = E::message_bytes_max - heads_bytes_max;
  static constexpr size_t large_frame_bytes = size_t{1} << 18;
  static constexpr size_t frame_bytes_max = sends_large ? large_frame_bytes : usual_frame_bytes_max;
  static constexpr size_t eager_bytes_max = size_t{1} << 13;
  static constexpr bool limits_by_peer = sends_large;
  // To a peer that takes no large frames; limits() has the others.
  static constexpr proto::LinkLimits usual_limits{eager_bytes_max, size_t{1} << 16, size_t{1} << 14,
                                                  size_t{1} << 14};
  static constexpr size_t fragmented_eager_bytes_max =
      sends_large ? large_frame_bytes : usual_limits.fragmented_eager_bytes_max;
  static constexpr size_t fragment_bytes = sends_large ? large_frame_bytes : usual_limits.fragment_bytes;
  static constexpr size_t segment_bytes = sends_large ? large_frame_bytes : usual_limits.segment_bytes;
  static constexpr size_t address_length = E::address_length;
  static constexpr size_t collected_frame_bytes_max = 2048;  // larger ones go alone, or wait with the engine
  static constexpr size_t collected_bytes_sent = 8192;       // so many are worth a message
  static constexpr size_t silent_max = 1024;                 // connections that have not said who they are
  static_assert(E::receive_count >= 2 * buffers_reserved && E::receive_count <= UINT16_MAX);
  static_assert(usual_frame_bytes_max >= usual_limits.segment_bytes);
  static_assert(usual_frame_bytes_max >= eager_bytes_max + 512);
  static_assert(address_length <= address_bytes_max);

  MessageLink() = default;
  MessageLink(const MessageLink&) = delete;
  MessageLink& operator=(const MessageLink&) = delete;
  ~MessageLink() { close(); }

  E& endpoints() noexcept { return endpoints_; }
  // What the provider was made with; see Provider::context.
  void set_context(const void* context) noexcept {
    if constexpr (proto::HasContext<E>) endpoints_.set_context(context);
  }
  void set_address_format(uint32_t format) noexcept {
    if constexpr (proto::HasAddressFormats<E>) endpoints_.set_address_format(format);
  }
  void set_traffic_class(uint8_t dscp) noexcept {
    if constexpr (proto::HasTrafficClass<E>) endpoints_.set_traffic_class(dscp);
  }
  using Warning = void (*)(const void* who, const char* what);
  void set_warning(Warning warning, const void* who) noexcept {
    LinkBase::set_warning(warning, who);
    if constexpr (proto::HasWarnings<E>) endpoints_.set_warning(warning, who);
  }

  Result<void> open(std::string_view source, Events& events) {
    events_ = &events;
    if (auto opened = endpoints_.open(source); !opened) return opened;
    incarnation_ = os::random_bits();
    const auto own = endpoints_.address();
    own_.assign(reinterpret_cast<const char*>(own.data()), own.size());
    return {};
  }

  // False in a forked child: the connections are its parent's.
  bool belongs_here() const noexcept {
    if constexpr (proto::KnowsItsProcess<E>) return endpoints_.belongs_here();
    return true;
  }

  void close() noexcept {
    if (belongs_here())
      for (auto& [key, peer] : peers_) say_bye(*peer);
    endpoints_.close();
    channels_.clear();
    deferred_free_.clear();
    peers_.clear();
    owing_.clear();
    collecting_.clear();
    silent_ = 0;
  }

  std::span<const std::byte> address() const noexcept { return std::as_bytes(std::span(own_)); }

  Peer* connect(std::span<const std::byte> address, int& error) {
    error = 0;
    std::string key(reinterpret_cast<const char*>(address.data()), address.size());
    if (const auto found = peers_.find(key); found != peers_.end()) return found->second;
    Connection* connection = endpoints_.connect(address, error);
    if (connection == nullptr) {
      if (error != ENOMEM && error != EAGAIN) error = EHOSTUNREACH;
      return nullptr;
    }
    Channel& channel = make_channel(*connection, State::Connecting);
    make_peer(key, channel);
    return channel.peer;
  }

  void forget(Peer& peer) noexcept {
    prove(peer);  // before the goodbye, which has not arrived yet
    say_bye(peer);
    part(peer);
  }

  bool send(Peer& peer, const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
            size_t part_count) noexcept {
    Channel* channel = peer.channel;
    if (channel == nullptr || channel->state != State::Ready) return false;
    const bool alone = head.length > collected_frame_bytes_max || goes_alone(*channel);
    if ((!alone || (!channel->collected.empty() && head.length <= collected_frame_bytes_max)) &&
        collect(*channel, head, prefix, parts, part_count)) {
      ++peer.taken;
      if (channel->collected.size() >= collected_bytes_sent) (void)send_collected(*channel);
      return true;
    }
    if (!send_collected(*channel)) return false;
    if (!send_message(*channel, head, prefix, parts, part_count)) {
      if (!collect(*channel, head, prefix, parts, part_count)) return false;
      ++peer.taken;
    }
    return true;
  }
  proto::LinkLimits limits(const Peer& peer) const noexcept requires HasLargeMessages<E> {
    return peer.takes_large ? proto::limits_of_type<MessageLink>() : usual_limits;
  }

  // Large frames whose payload may stay: a message each, whose head alone is copied.
  bool send_zero_copy(Peer& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
                      const iovec* parts, size_t part_count) noexcept requires SendsParts<E> {
    Channel* channel = peer.channel;
    if (head.length <= in_place_bytes_min || prefix.size() > front_prefix_max || channel == nullptr ||
        channel->state != State::Ready)
      return send(peer, head, prefix, parts, part_count);
    if (!send_collected(*channel) || !may_send_frames(*channel)) return false;
    (void)goes_alone(*channel);  // it counts
    std::array<std::byte, front_bytes_max> front;
    const size_t bytes = put_front(*channel, head, prefix, front.data());
    if (!endpoints_.commit_in_place(*channel->connection, std::span(front).first(bytes), parts, part_count))
      return false;
    sent_frames(*channel, 1);
    await(peer, endpoints_.taken(*channel->connection));
    return true;
  }
  void copy_out(Peer& peer) noexcept requires SendsParts<E> {
    if (peer.channel != nullptr) endpoints_.retain_parts(*peer.channel->connection);
  }

  // Frames that wait for a credit are with us, and so is what the endpoints have not got rid of (proto::HasSendCompletion).
  uint64_t sent_sequence(const Peer& peer) const noexcept { return peer.taken; }
  uint64_t completed_sequence(Peer& peer) noexcept {
    if (peer.completed != peer.committed) update_completed(peer);
    return peer.completed;
  }
  uint64_t delivered_sequence(Peer& peer) noexcept { return peer.proven; }

  // It said so, or its connection shows it.
  bool has_left(const Peer& peer) const noexcept {
    const Channel* channel = peer.channel;
    if (channel == nullptr || channel->state != State::Ready) return false;
    if (channel->said_bye) return true;
    if constexpr (KnowsLeaving<const E>) return endpoints_.has_left(*channel->connection);
    return false;
  }

  // An endpoint that closes polls on for a while as long as frames wait here.
  bool has_uncredited() const noexcept { return !collecting_.empty(); }
  void push_all() noexcept { send_all_collected(); }

  // Some frames wait for the next poll: those that came so close together that they share a message, or that have no credit.
  bool has_deferred_sends() const noexcept {
    if constexpr (CoalescesMessages<E>)
      if (endpoints_.has_deferred_sends()) return true;
    return !collecting_.empty();
  }
  // Nobody may come to poll soon: they go now, a few times between two polls.
  void push(Peer& peer) noexcept {
    Channel* channel = peer.channel;
    if (channel == nullptr || channel->turn != turn_ || ++channel->pushed > pushes_max) return;
    (void)send_collected(*channel);
    if constexpr (CoalescesMessages<E>) endpoints_.push(*channel->connection);
  }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    deferred_free_.clear();
    ++turn_;
    if (!collecting_.empty()) send_all_collected();
    Turn<Handler> turn{*this, handler};
    const int taken = endpoints_.poll(turn);
    if (!owing_.empty()) return_credits();
    if (!collecting_.empty()) send_all_collected();
    return taken;
  }

  int wait_fd() const noexcept { return const_cast<E&>(endpoints_).wait_fd(); }
  bool arm() noexcept {
    if (!collecting_.empty()) send_all_collected();  // what is left wakes us when it has credit or room
    return endpoints_.arm();
  }
  void disarm() noexcept { endpoints_.disarm(); }

 private:
  // Small frames that go alone between two polls, when the time before had few.
  static constexpr uint8_t lone_frames = 3;
  static constexpr uint8_t pushes_max = 4;
  static constexpr size_t in_place_bytes_min = 4096;  // of frames worth it
  static constexpr size_t front_prefix_max = front_bytes_max - heads_bytes_max;
  static constexpr size_t parts_max = 16;  // of a frame

  enum class State : uint8_t {
    Connecting,  // ours; not there yet
    HelloSent,   // ours
    Deferred,    // ours; the peer's own connection goes first
    Silent,      // the peer's; awaits its Hello
    Waiting,     // the peer's; said Hello, but ours goes first
    Ready,
  };
  struct Channel {
    Connection* connection = nullptr;
    Peer* peer = nullptr;
    State state = State::Silent;
    uint64_t number = 0;  // in the order in which they were made
    bool said_bye = false;
    uint16_t credits = 0;      // messages that we may send
    uint16_t credits_max = 0;  // as many as the peer has buffers
    uint16_t owed = 0;         // messages that we have taken and not told
    Handshake handshake;       // what the peer said
    size_t shown = 0;          // bytes of the message at hand that are dealt with
    wire::FrameHead rest{};    // what is still to come of a frame that is shown in parts
    uint16_t returned = 0;     // the credits that its message returns
    proto::stream::Packer collected{E::message_bytes_max - head_bytes};  // frames of the next message
    proto::stream::Coalescer<lone_frames> coalescer;
    uint64_t turn = 0;   // of the last frame
    uint8_t pushed = 0;  // in that turn
  };
  enum class Taken : uint8_t { Yes, Gone, Later };

  // Callbacks of one poll. A message that is still arriving may be shown in parts (endpoints.hpp).
  template <class Handler>
  struct Turn {
    MessageLink& link;
    Handler& handler;
    void on_incoming(Connection& connection) noexcept { link.incoming(connection); }
    void on_connected(Connection& connection) noexcept { link.connected(connection); }
    void on_lost(Connection& connection) noexcept { link.lost(connection); }
    bool on_message(Connection& connection, std::span<const std::byte> message) noexcept {
      auto* channel = static_cast<Channel*>(connection.owner);
      if (channel == nullptr) return true;  // no memory when it came
      return link.message(*channel, message, handler) != Taken::Later;
    }
    proto::Land on_part(Connection& connection, std::span<const std::byte> arrived,
                        size_t length) noexcept requires proto::TakesParts<Handler, Peer> {
      auto* channel = static_cast<Channel*>(connection.owner);
      return channel == nullptr ? proto::Land::Whole : link.begin_part(*channel, arrived, length, handler);
    }
    void where(Connection& connection,
               proto::Landing& out) noexcept requires proto::TakesParts<Handler, Peer> {
      Channel& channel = *static_cast<Channel*>(connection.owner);
      if (channel.peer != nullptr) (void)handler.land(*channel.peer, channel.rest, nullptr, 0, out);
    }
    void landed(Connection& connection, size_t bytes) noexcept requires proto::TakesParts<Handler, Peer> {
      Channel& channel = *static_cast<Channel*>(connection.owner);
      if (channel.peer == nullptr) return;
      handler.landed(*channel.peer, channel.rest, bytes);
      if (channel.rest.length == 0) (void)link.end_frames(channel, channel.returned);
    }
  };

  static std::span<const std::byte> bytes_of(const std::string& text) noexcept {
    return std::as_bytes(std::span(text));
  }
  void warn(const std::string& text) noexcept { LinkBase::warn(text.c_str()); }

  // --- channels and peers ---
  Channel& make_channel(Connection& connection, State state) {
    auto made = std::make_unique<Channel>();
    made->connection = &connection;
    made->state = state;
    made->number = ++made_;
    Channel& channel = *made;
    channels_.emplace(&channel, std::move(made));
    connection.owner = &channel;
    if (state == State::Silent) ++silent_;
    return channel;
  }
  void make_peer(const std::string& key, Channel& channel) {
    Peer* peer = events_->make_peer(bytes_of(key));
    peer->address = key;
    peer->channel = &channel;
    channel.peer = peer;
    peers_[key] = peer;
  }
  // Takes a channel out of everything; its memory stays until the next poll. The connection may be gone already.
  void retire(Channel& channel) noexcept {
    WEFT_ASSERT(channel.state != State::Silent || silent_ != 0);
    if (channel.state == State::Silent) --silent_;
    std::erase(owing_, &channel);
    std::erase(collecting_, &channel);
    if (channel.peer != nullptr && channel.peer->channel == &channel) channel.peer->channel = nullptr;
    if (channel.peer != nullptr && channel.peer->other_end == &channel) channel.peer->other_end = nullptr;
    channel.peer = nullptr;
    const auto found = channels_.find(&channel);
    WEFT_ASSERT(found != channels_.end());
    try {
      deferred_free_.push_back(std::move(found->second));
    } catch (const std::bad_alloc&) {
      (void)found->second.release();  // a leak, which is better than memory that somebody still looks at
    }
    channels_.erase(found);
  }
  void drop(Channel& channel) noexcept {
    endpoints_.close(*channel.connection);
    retire(channel);
  }
  // The peer goes, with its connections.
  void part(Peer& peer) noexcept {
    if (peer.channel != nullptr) drop(*peer.channel);
    if (peer.other_end != nullptr) drop(*peer.other_end);
    peers_.erase(peer.address);
  }
  void lose(Peer& peer, core::ProviderError why) noexcept {
    prove(peer);
    part(peer);
    events_->peer_lost(peer, why);
  }
  // A connection of this peer that stands back behind another one.
  Channel* waiting_from(const std::string& address) noexcept {
    for (auto& [key, channel] : channels_)
      if (channel->state == State::Waiting && channel->handshake.address == address) return channel.get();
    return nullptr;
  }

  // Of those that have not said who they are, the one goes that has had the most time for it.
  void drop_oldest_silent() noexcept {
    Channel* oldest = nullptr;
    for (auto& [key, channel] : channels_)
      if (channel->state == State::Silent && (oldest == nullptr || channel->number < oldest->number))
        oldest = channel.get();
    if (oldest != nullptr) drop(*oldest);
  }

  // --- what happens to connections ---
  void incoming(Connection& connection) noexcept try {
    if (silent_ >= silent_max) drop_oldest_silent();
    WEFT_ASSERT(silent_ < silent_max);
    make_channel(connection, State::Silent);
  } catch (const std::bad_alloc&) {
    connection.owner = nullptr;
    endpoints_.close(connection);
  }

  void connected(Connection& connection) noexcept {
    auto* channel = static_cast<Channel*>(connection.owner);
    if (channel == nullptr || channel->state != State::Connecting) return;
    channel->state = State::HelloSent;
    if (!send_hello(*channel, Kind::Hello) && channel->peer != nullptr)
      lose(*channel->peer, core::ProviderError::NoChannel);
  }

  void lost(Connection& connection) noexcept {
    auto* channel = static_cast<Channel*>(connection.owner);
    if (channel == nullptr) return;
    Peer* peer = channel->peer;
    const bool was_ready = channel->state == State::Ready;
    const bool said_bye = channel->said_bye;
    const bool carried = peer != nullptr && (peer->channel == channel || peer->other_end == channel);
    if (carried) prove(*peer);
    retire(*channel);
    if (!carried) return;
    const std::string address = peer->address;
    Channel* next = waiting_from(address);
    if (!was_ready && next != nullptr) {
      adopt(*next, *peer);
      return;
    }
    lose(*peer, !was_ready ? core::ProviderError::PeerUnreachable
                : said_bye ? core::ProviderError::PeerClosed
                           : core::ProviderError::PeerDied);
    if (next != nullptr) adopt_new(*next);
  }

  Taken misbehaved(Channel& channel, const char* what) noexcept {
    try {
      warn(std::string("a connection is cut off: ") + what);
    } catch (const std::bad_alloc&) {
    }
    Peer* peer = channel.peer;
    if (peer != nullptr) lose(*peer, core::ProviderError::PeerMisbehaved);
    else drop(channel);
    return Taken::Gone;
  }

  // --- handshakes ---
  bool send_hello(Channel& channel, Kind kind) noexcept {
    std::byte* out = endpoints_.reserve(*channel.connection);
    if (out == nullptr) return false;
    const Handshake handshake{handshake_version, static_cast<uint16_t>(E::receive_count), incarnation_, own_,
                              sends_large ? large_frame_bytes / 1024 : 0};
    endpoints_.commit(*channel.connection, write_handshake(kind, handshake, out));
    return true;
  }
  bool say(Channel& channel, Kind kind, uint16_t credits = 0) noexcept {
    std::byte* out = endpoints_.reserve(*channel.connection);
    if (out == nullptr) return false;
    put_head({kind, credits}, out);
    endpoints_.commit(*channel.connection, head_bytes);
    return true;
  }
  void say_bye(Peer& peer) noexcept {
    if (peer.channel == nullptr || peer.channel->state != State::Ready) return;
    (void)send_collected(*peer.channel);
    (void)say(*peer.channel, Kind::Bye);
  }

  void make_ready(Channel& channel) noexcept {
    WEFT_ASSERT(channel.state != State::Ready && channel.state != State::Connecting);
    WEFT_ASSERT(channel.handshake.receive_count >= 2 * buffers_reserved);
    if (channel.state == State::Silent) --silent_;
    channel.state = State::Ready;
    channel.credits_max = static_cast<uint16_t>(channel.handshake.receive_count - buffers_reserved);
    channel.credits = channel.credits_max;
    if (channel.peer != nullptr)
      channel.peer->takes_large =
          sends_large && channel.handshake.large_frame_kib >= large_frame_bytes / 1024;
  }
  void adopt(Channel& channel, Peer& peer) noexcept {
    WEFT_ASSERT(channel.peer == nullptr || channel.peer == &peer);
    channel.peer = &peer;
    peer.channel = &channel;
    make_ready(channel);
    (void)send_hello(channel, Kind::Welcome);
  }
  void adopt_new(Channel& channel) noexcept try {
    make_peer(channel.handshake.address, channel);
    adopt(channel, *channel.peer);
  } catch (const std::bad_alloc&) {
    drop(channel);
  }
  Taken defer(Channel& channel) noexcept {
    if (Channel* older = waiting_from(channel.handshake.address)) drop(*older);
    WEFT_ASSERT(channel.state == State::Silent && silent_ != 0 && channel.peer == nullptr);
    --silent_;
    channel.state = State::Waiting;
    (void)say(channel, Kind::Defer);
    return Taken::Yes;
  }

  const char* fault_of(const Handshake& handshake) const noexcept {
    if (handshake.receive_count < 2 * buffers_reserved) return "it has too few receive buffers";
    if (handshake.address.size() != own_.size()) return "its address has another format";
    return nullptr;
  }

  // The peer's Hello: who is it, and do we want this connection?
  Taken hello(Channel& channel, std::span<const std::byte> bytes) noexcept try {
    if (channel.state != State::Silent) return misbehaved(channel, "a handshake out of turn");
    const char* fault = read_handshake(bytes, channel.handshake);
    if (fault == nullptr) fault = fault_of(channel.handshake);
    if (fault != nullptr)
      return misbehaved(channel, (std::string("a handshake is refused: ") + fault).c_str());
    const std::string& address = channel.handshake.address;
    const auto found = peers_.find(address);
    const bool known = found != peers_.end();
    const Channel* working =
        known && found->second->channel != nullptr && found->second->channel->state == State::Ready
            ? found->second->channel
            : nullptr;
    const Call call = judge({.known = known,
                             .connected = working != nullptr,
                             .same_incarnation = working != nullptr && working->handshake.incarnation ==
                                                                           channel.handshake.incarnation,
                             .being_connected = known,
                             .is_higher = own_ < address});
    if (call == Call::FromNew) {
      adopt_new(channel);
      return Taken::Yes;
    }
    Peer& peer = *found->second;
    if (address == own_ && channel.handshake.incarnation == incarnation_) {  // we have connected to ourselves
      channel.peer = &peer;
      peer.other_end = &channel;
      make_ready(channel);
      (void)send_hello(channel, Kind::Welcome);
      return Taken::Yes;
    }
    if (call == Call::Duplicate) return defer(channel);
    Channel* there = peer.channel;
    if (call == Call::FromRestarted) {
      if constexpr (KnowsCallers<E>)
        if (!endpoints_.speaks_for(*channel.connection, bytes_of(address), *there->connection))
          return misbehaved(channel, "it calls in the name of a peer that is connected from elsewhere");
      lose(peer, core::ProviderError::PeerReplaced);
      adopt_new(channel);
      return Taken::Yes;
    }
    adopt(channel, peer);
    if (there != nullptr) {
      there->peer = nullptr;
      drop(*there);
    }
    return Taken::Yes;
  } catch (const std::bad_alloc&) {
    drop(channel);
    return Taken::Gone;
  }

  // The answer to our Hello.
  Taken welcome(Channel& channel, std::span<const std::byte> bytes) noexcept try {
    if (channel.state != State::HelloSent && channel.state != State::Deferred)
      return misbehaved(channel, "an answer out of turn");
    const char* fault = read_handshake(bytes, channel.handshake);
    if (fault == nullptr) fault = fault_of(channel.handshake);
    if (fault != nullptr) return misbehaved(channel, (std::string("an answer is refused: ") + fault).c_str());
    make_ready(channel);
    // A connection that stood back for this one has done its duty.
    if (channel.peer != nullptr)
      if (Channel* other = waiting_from(channel.peer->address)) drop(*other);
    return Taken::Yes;
  } catch (const std::bad_alloc&) {
    return Taken::Later;
  }

  // --- messages ---
  template <class Handler>
  Taken message(Channel& channel, std::span<const std::byte> bytes, Handler& handler) noexcept {
    Head head{};
    if (!parse_head(bytes, head)) return misbehaved(channel, "a message that is none of ours");
    Taken taken = Taken::Yes;
    switch (head.kind) {
      case Kind::Frames:
        taken = frames(channel, bytes, handler);
        break;
      case Kind::Hello:
        return hello(channel, bytes);
      case Kind::Welcome:
        return welcome(channel, bytes);
      case Kind::Defer:
        if (channel.state != State::HelloSent) return misbehaved(channel, "an answer out of turn");
        channel.state = State::Deferred;
        break;
      case Kind::Credits:
        break;
      case Kind::Bye:
        channel.said_bye = true;
        break;
    }
    if (taken != Taken::Yes) return taken;
    channel.shown = 0;
    return head.kind == Kind::Frames ? end_frames(channel, head.credits) : credit(channel, head.credits);
  }
  Taken credit(Channel& channel, uint16_t credits) noexcept {
    WEFT_ASSERT(channel.credits <= channel.credits_max);
    if (credits > channel.credits_max - channel.credits)
      return misbehaved(channel, "more credits than there can be");
    channel.credits = static_cast<uint16_t>(channel.credits + credits);
    return Taken::Yes;
  }
  // A message with frames is dealt with.
  Taken end_frames(Channel& channel, uint16_t credits) noexcept {
    WEFT_ASSERT(channel.state == State::Ready);
    const Taken taken = credit(channel, credits);
    if (taken == Taken::Yes) owe(channel);
    return taken;
  }

  // A message of `length` bytes is arriving, and so much of it is here. Frames that are whole are shown; the last may go on in parts.
  template <class Handler>
  proto::Land begin_part(Channel& channel, std::span<const std::byte> arrived, size_t length,
                         Handler& handler) noexcept {
    Head returned{};
    if (!parse_head(arrived, returned) || returned.kind != Kind::Frames || channel.state != State::Ready ||
        channel.owed >= local_credits)
      return proto::Land::Whole;  // it is looked at when all of it is there
    if (channel.shown == 0) channel.shown = head_bytes;
    while (channel.shown < arrived.size()) {
      const std::byte* at = arrived.data() + channel.shown;
      const size_t left = arrived.size() - channel.shown;
      wire::FrameHead head{};
      size_t head_size = 0;
      if (proto::stream::unpack_head(at, left, head, head_size) != proto::stream::Unpacked::Head) break;
      if (head.length <= left - head_size) {
        if (!handler.on_frame(*channel.peer, head, at + head_size)) return proto::Land::Later;
        channel.shown += head_size + head.length;
        continue;
      }
      if (channel.shown + head_size + head.length != length) break;
      proto::Landing unused;
      const proto::Land answer = handler.land(*channel.peer, head, at + head_size, left - head_size, unused);
      if (answer != proto::Land::Here) return answer;
      WEFT_ASSERT(head.length != 0);
      channel.rest = head;
      channel.returned = returned.credits;
      channel.shown = 0;
      return answer;
    }
    return proto::Land::Whole;
  }

  template <class Handler>
  Taken frames(Channel& channel, std::span<const std::byte> bytes, Handler& handler) noexcept {
    if (channel.state != State::Ready || channel.owed >= local_credits)
      return misbehaved(channel, "frames out of turn");
    if (channel.shown == 0) channel.shown = head_bytes;
    while (channel.shown < bytes.size()) {
      const std::byte* at = bytes.data() + channel.shown;
      const size_t left = bytes.size() - channel.shown;
      wire::FrameHead head{};
      size_t head_size = 0;
      if (proto::stream::unpack_head(at, left, head, head_size) != proto::stream::Unpacked::Head ||
          head.length > left - head_size)
        return misbehaved(channel, "a frame that is none");
      if (!handler.on_frame(*channel.peer, head, at + head_size)) return Taken::Later;
      channel.shown += head_size + head.length;
    }
    return Taken::Yes;
  }

  void owe(Channel& channel) noexcept {
    ++channel.owed;
    WEFT_ASSERT(channel.owed <= local_credits);
    if (channel.owed != local_credits / 2) return;
    try {
      owing_.push_back(&channel);
    } catch (const std::bad_alloc&) {  // the next frames that we send say it
    }
  }
  void return_credits() noexcept {
    std::erase_if(owing_, [this](Channel* channel) {
      if (channel->owed < local_credits / 2) return true;  // frames have taken it along
      if (!say(*channel, Kind::Credits, channel->owed)) return false;
      channel->owed = 0;
      return true;
    });
  }

  // --- sending ---
  // Where a message with frames is made; null: it has to wait.
  std::byte* room_for_frames(Channel& channel) noexcept {
    return may_send_frames(channel) ? endpoints_.reserve(*channel.connection) : nullptr;
  }
  bool may_send_frames(Channel& channel) noexcept {
    if (channel.credits == 0) return false;
    if constexpr (HasNoBufferCount<E>) return !endpoints_.busy(*channel.connection);
    return true;
  }
  // A message of one frame. False: it has to wait.
  bool send_message(Channel& channel, const wire::FrameHead& head, std::span<const std::byte> prefix,
                    const iovec* parts, size_t part_count) noexcept {
    if constexpr (SendsParts<E>) {
      if (!may_send_frames(channel)) return false;
      std::array<std::byte, front_bytes_max> front;
      std::array<iovec, parts_max + 1> all;
      const bool long_prefix = prefix.size() > front_prefix_max;
      if (long_prefix) {
        if (part_count > parts_max) return false;
        all[0] = {const_cast<std::byte*>(prefix.data()), prefix.size()};
        std::copy_n(parts, part_count, all.data() + 1);
        parts = all.data();
        ++part_count;
      }
      const size_t bytes =
          put_front(channel, head, long_prefix ? std::span<const std::byte>() : prefix, front.data());
      if (!endpoints_.commit_parts(*channel.connection, std::span(front).first(bytes), parts, part_count))
        return false;
      sent_frames(channel, 1);
    } else {
      std::byte* out = room_for_frames(channel);
      if (out == nullptr) return false;
      const size_t bytes = put_frame(out + head_bytes, head, prefix, parts, part_count);
      commit_frames(channel, out, head_bytes + bytes, 1);
    }
    return true;
  }
  // The heads of a message with one frame, and what the frame begins with.
  static size_t put_front(const Channel& channel, const wire::FrameHead& head,
                          std::span<const std::byte> prefix, std::byte* out) noexcept {
    put_head({Kind::Frames, channel.owed}, out);
    return head_bytes + put_frame(out + head_bytes, head, prefix, nullptr, 0);
  }
  static size_t put_frame(std::byte* out, const wire::FrameHead& head, std::span<const std::byte> prefix,
                          const iovec* parts, size_t part_count) noexcept {
    std::byte* at = out + proto::stream::pack_head(head, out);
    if (!prefix.empty()) std::memcpy(at, prefix.data(), prefix.size());
    at += prefix.size();
    for (size_t i = 0; i < part_count; ++i) {
      if (parts[i].iov_len != 0) std::memcpy(at, parts[i].iov_base, parts[i].iov_len);
      at += parts[i].iov_len;
    }
    return static_cast<size_t>(at - out);
  }
  // A frame that finds nothing before it since the last poll does not wait; after a burst another one is expected, and only its first frame
  // goes alone.
  bool goes_alone(Channel& channel) noexcept {
    if (channel.turn != turn_) {
      channel.coalescer.next_poll();
      channel.turn = turn_;
      channel.pushed = 0;
    }
    channel.coalescer.count();
    if (!channel.coalescer.has_lone()) return false;
    channel.coalescer.take_lone();
    return true;
  }
  void commit_frames(Channel& channel, std::byte* message, size_t bytes, size_t fresh) noexcept {
    put_head({Kind::Frames, channel.owed}, message);
    endpoints_.commit(*channel.connection, bytes);
    sent_frames(channel, fresh);
  }
  // A message has gone; `fresh` frames of it were not counted as taken.
  void sent_frames(Channel& channel, size_t fresh) noexcept {
    WEFT_ASSERT(channel.credits != 0 && channel.state == State::Ready);
    WEFT_ASSERT(channel.peer != nullptr && channel.peer->channel == &channel);
    channel.owed = 0;
    --channel.credits;
    channel.peer->taken += fresh;
    channel.peer->committed = channel.peer->taken;  // frames go through the peer's own channel, in order
    WEFT_ASSERT(channel.collected.empty() || fresh == 0);
  }
  // What is committed now is complete when the endpoints are past this mark of theirs. The newest one stands for what
  // finds no room.
  void await(Peer& peer, uint64_t mark) noexcept {
    WEFT_ASSERT(peer.mark_count <= Peer::marks_max && peer.completed <= peer.committed);
    WEFT_ASSERT(peer.mark_count == 0 || peer.marks[peer.mark_count - 1].frames <= peer.committed);
    if (peer.mark_count == Peer::marks_max) --peer.mark_count;
    peer.marks[peer.mark_count++] = {peer.committed, mark};
  }
  // Looks how far the endpoints are. They may never be done with everything while more follows.
  void update_completed(Peer& peer) noexcept {
    WEFT_ASSERT(peer.completed <= peer.committed && peer.committed <= peer.taken);
    if constexpr (CompletesMessagesLater<E>) {
      if (peer.channel == nullptr) return;  // what is left has failed
      const Connection& connection = *peer.channel->connection;
      const uint64_t there = endpoints_.completed(connection);
      const uint64_t all = endpoints_.taken(connection);
      if (there >= all) {
        peer.completed = peer.committed;
        peer.mark_count = 0;
        return;
      }
      size_t passed = 0;
      while (passed < peer.mark_count && peer.marks[passed].of_endpoints <= there) ++passed;
      if (passed != 0) {
        peer.completed = peer.marks[passed - 1].frames;
        std::copy(peer.marks.begin() + passed, peer.marks.begin() + peer.mark_count, peer.marks.begin());
        peer.mark_count -= passed;
      }
      if (peer.mark_count == 0 ||
          (peer.marks[peer.mark_count - 1].frames != peer.committed && peer.mark_count < Peer::marks_max))
        await(peer, all);
    } else {
      peer.completed = peer.committed;
    }
  }
  // How far the other side is, as far as the endpoints can tell; the last time that the connection can be asked. What the other side has needs us
  // no more, though a connection that has ended completes nothing, and nobody asks after messages without a completion while it lives.
  void prove(Peer& peer) noexcept {
    if (peer.channel == nullptr) return;
    update_completed(peer);
    if constexpr (KnowsDelivery<E>) {
      const bool delivered = endpoints_.delivered(*peer.channel->connection);
      if (delivered) peer.completed = peer.committed;
      peer.proven = delivered ? peer.committed : 0;
      WEFT_ASSERT(peer.proven <= peer.committed);
    } else {
      peer.proven = peer.completed;
    }
  }
  // Many small frames share a message: what follows others before the next poll, and what waits for a credit.
  bool collect(Channel& channel, const wire::FrameHead& head, std::span<const std::byte> prefix,
               const iovec* parts, size_t part_count) noexcept try {
    if (head.length > collected_frame_bytes_max) return false;
    const bool first = channel.collected.empty();
    if (first) collecting_.reserve(collecting_.size() + 1);
    if (!channel.collected.put(head, prefix, parts, part_count)) return false;
    if (first) collecting_.push_back(&channel);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
  bool send_collected(Channel& channel) noexcept {
    if (channel.collected.empty()) return true;
    const auto bytes = channel.collected.bytes();
    WEFT_ASSERT(channel.peer != nullptr && bytes.size() <= E::message_bytes_max - head_bytes);
    if constexpr (SendsParts<E>) {
      if (!may_send_frames(channel)) return false;
      std::array<std::byte, head_bytes> front;
      put_head({Kind::Frames, channel.owed}, front.data());
      const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
      if (!endpoints_.commit_parts(*channel.connection, front, &part, 1)) return false;
      sent_frames(channel, 0);
    } else {
      std::byte* out = room_for_frames(channel);
      if (out == nullptr) return false;
      std::memcpy(out + head_bytes, bytes.data(), bytes.size());
      commit_frames(channel, out, head_bytes + bytes.size(), 0);
    }
    channel.collected.clear();  // most peers need it rarely
    std::erase(collecting_, &channel);
    return true;
  }
  void send_all_collected() noexcept {
    for (size_t i = 0; i < collecting_.size();)
      if (!send_collected(*collecting_[i])) ++i;
  }

  E endpoints_;
  std::vector<Channel*> owing_;       // have half of their credits to give back
  std::vector<Channel*> collecting_;  // have frames that wait for a credit
  Events* events_ = nullptr;
  std::unordered_map<std::string, Peer*> peers_;
  std::unordered_map<Channel*, std::unique_ptr<Channel>> channels_;
  std::vector<std::unique_ptr<Channel>> deferred_free_;
  std::string own_;
  uint64_t incarnation_ = 0;
  uint64_t turn_ = 1;  // polls
  size_t silent_ = 0;
  uint64_t made_ = 0;
};

}  // namespace weft::link::message
