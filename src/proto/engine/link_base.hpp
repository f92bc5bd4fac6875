// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What links repeat: their events, their warnings, a table of peers by name, and the answers of a link that has nothing to say (LinkBase). Must not
// know any Link, nor the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include <sys/uio.h>

#include "core/provider_error.hpp"
#include "proto/engine/remote_access.hpp"
#include "proto/setup.hpp"
#include "wire/frame.hpp"

namespace weft::proto {

// What a link tells its owner, the engine.
template <class P>
struct LinkEvents {
  // A new peer object for an address, or for the alias of who makes contact (TakesAlias). Null, for an alias only: nobody is let in. May throw
  // std::bad_alloc.
  virtual P* make_peer(std::span<const std::byte> address) = 0;
  // The peer is gone; every frame that had come from it has been shown. The link forgets it; the owner frees it.
  virtual void peer_lost(P& peer, core::ProviderError why) noexcept = 0;
  // From housekeeping, every few milliseconds of being polled, by a link that has such (HasHousekeeping).
  virtual void time_passes() noexcept {}
  // The statistics entry of the endpoint, of which the link is a path; 0: none.
  virtual uint32_t shown_as() const noexcept { return 0; }

 protected:
  ~LinkEvents() = default;
};

// At most one warning in a while, for what a peer can cause as often as it likes. `now_ns` is any monotonic time.
class WarningRate {
 public:
  explicit constexpr WarningRate(uint64_t pause_ns) noexcept : pause_ns_(pause_ns) {}
  // True: say it now, and that there were withheld() others. False: it counts as withheld.
  bool may_warn(uint64_t now_ns) noexcept {
    if (warned_at_ns_ != 0 && now_ns - warned_at_ns_ < pause_ns_) {
      ++withheld_;
      return false;
    }
    warned_at_ns_ = now_ns;
    return true;
  }
  // Since the last warning; starts anew.
  uint32_t consume_withheld() noexcept {
    const uint32_t count = withheld_;
    withheld_ = 0;
    return count;
  }

 private:
  uint64_t pause_ns_;
  uint64_t warned_at_ns_ = 0;
  uint32_t withheld_ = 0;
};

// What a lost peer may not have read; bits.
enum Unread : uint8_t {
  unread_some = 1,  // set with any other, and alone for parts of a message whose beginning was read
  unread_tagged = 2,
  unread_untagged = 4,
};

// Base of a link. A link hides what it does itself by a member of the same name; nothing is virtual.
class LinkBase {
 public:
  // --- constants of optional concepts ---
  static constexpr bool small_credit = false;  // HasSmallFrames
  static constexpr bool limits_by_peer =
      false;  // limits(peer) says what a peer takes; the constants are the largest
  static constexpr bool repeats_packets = false;  // HasBackgroundWork

  // Who gets sentences for the log about trouble that no call reports. Before open().
  void set_warning(PacketWarning on_warning, const void* who) noexcept {
    on_warning_ = on_warning;
    warning_context_ = who;
  }
  // The engine drops the peer because of what it sent: a line in the log, at a bounded rate.
  void warn_of_malformed(const auto&, const char* what) noexcept { warn_of_cut(what); }
  // False in a forked child: the endpoint is its parent's, and nothing may be sent.
  bool belongs_here() const noexcept { return true; }
  // The owner is about to close: what waits for company, or for a convenient moment, goes now.
  void hurry() noexcept {}
  // The peer has left, and a poll will say so when what had come from it is read.
  bool has_left(const auto&) const noexcept { return false; }
  // Whether a program's name of a peer may differ from the address that make_peer() gets: in a link-local address, the number of the interface is
  // its machine's own (RFC 4007, 6). If so, is_name_of() tells whether connect(name) would return the peer with that address.
  bool names_differ() const noexcept { return false; }
  bool is_name_of(std::span<const std::byte>, std::span<const std::byte>) const noexcept { return false; }
  // Messages that the peer may not have read, where they lie in memory that it reads: their kinds (Unread). Asked when the peer is lost.
  uint8_t unread(const auto&) const noexcept { return 0; }

  // --- HasSmallFrames ---
  void wake_receiver(auto&) noexcept {}
  bool more_room(auto&) noexcept { return false; }
  // --- HasRemoteMemory ---
  bool announces(const auto&, uint64_t) const noexcept { return false; }
  uint64_t begin_copy(const auto&, uint64_t) const noexcept { return 0; }
  void copied(auto&, CopyPath, uint64_t, uint64_t) noexcept {}
  // So many bytes of a message that was announced did not go in frames: the two have copied them.
  void fetched_by(auto&, uint64_t) noexcept {}
  CopyUse copy_use(const auto*, uint64_t) const noexcept { return {}; }
  uint64_t open_meeting(auto&, uint64_t) noexcept { return 0; }
  CopyState copy(auto&, uint64_t, const iovec*, size_t, const wire::SourceSegment*, size_t, uint64_t,
                 bool) noexcept {
    return CopyState::Failed;
  }
  void end_meeting(auto&, uint64_t) noexcept {}
  int pause_meetings() noexcept { return 0; }
  Assistance assist(auto&, uint64_t, uint64_t, const wire::SourceSegment*, size_t, const iovec*, size_t,
                    uint32_t&) noexcept {
    return Assistance::Ended;
  }
  void expose(const ExposedRegion&) noexcept {}
  int conceal(uint64_t) noexcept { return 0; }
  int conceal_all() noexcept { return 0; }
  bool reaches(const auto&) const noexcept { return false; }
  bool access(auto&, bool, const iovec*, size_t, const wire::RmaTarget*, size_t, size_t) noexcept {
    return false;
  }
  // --- HasSendCompletion ---
  uint64_t delivered_sequence(const auto&) const noexcept { return UINT64_MAX; }
  bool is_stuck(const auto&) const noexcept { return false; }
  void request_ack(auto&) noexcept {}
  // --- Coalesces ---
  bool has_uncredited() const noexcept { return false; }
  void push_all() noexcept {}

 protected:
  bool has_warning() const noexcept { return on_warning_ != nullptr; }
  PacketWarning warning_function() const noexcept { return on_warning_; }
  const void* warning_context() const noexcept { return warning_context_; }
  void warn(const char* what) noexcept {
    if (on_warning_ != nullptr) on_warning_(warning_context_, what);
  }

 private:
  static constexpr uint8_t cut_warnings_max = 16;  // of an endpoint, by a link that does not name its peers
  void warn_of_cut(const char* what) noexcept {
    if (cut_warnings_ == cut_warnings_max) return;
    ++cut_warnings_;
    warn(what);
  }

  PacketWarning on_warning_ = nullptr;
  const void* warning_context_ = nullptr;
  uint8_t cut_warnings_ = 0;
};

// Peers by name. Looking never allocates.
template <class P>
class PeersByName {
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const noexcept { return std::hash<std::string_view>{}(name); }
  };
  using Table = std::unordered_map<std::string, P*, NameHash, std::equal_to<>>;

 public:
  // A name's place in the table, taken before there is a peer, so that std::bad_alloc leaves no peer behind that has no name.
  class Reservation {
   public:
    Reservation(PeersByName& peers, std::string_view name)  // throws std::bad_alloc
        : table_(peers.table_), entry_(table_.emplace(std::string(name), nullptr).first) {}
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;
    ~Reservation() {
      if (entry_->second == nullptr) table_.erase(entry_);
    }
    void assign(P& peer) noexcept { entry_->second = &peer; }

   private:
    Table& table_;
    typename Table::iterator entry_;
  };

  static std::string_view name_of(std::span<const std::byte> bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // Null: nobody.
  P* find(std::string_view name) const noexcept {
    const auto found = table_.find(name);
    return found != table_.end() ? found->second : nullptr;
  }
  bool erase(std::string_view name) noexcept {
    const auto found = table_.find(name);
    if (found == table_.end()) return false;
    table_.erase(found);
    return true;
  }
  void erase(const P& peer) noexcept {
    std::erase_if(table_, [&](const auto& entry) { return entry.second == &peer; });
  }
  void clear() noexcept { table_.clear(); }
  size_t size() const noexcept { return table_.size(); }
  bool empty() const noexcept { return table_.empty(); }
  auto begin() const noexcept { return table_.begin(); }
  auto end() const noexcept { return table_.end(); }

 private:
  friend class Reservation;
  Table table_;
};

}  // namespace weft::proto
