// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Observed<P>: any PacketLink with a place for middleware, which is decided when the endpoint is opened: faults,
// capture, counters. Without an observer each call costs one comparison. Must not know settings, files or what the
// packets carry.
//
// Order on the way out: the owner, then faults, then counters and capture, then the link. So a capture has what the
// link took: no lost packet, a duplicated one twice, a late one when it went. Arriving packets are counted and captured
// before the owner sees them.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/packet/abilities.hpp"
#include "proto/packet/faults.hpp"

namespace weft::proto {

// Who keeps a copy of every packet.
class PacketCapture {
 public:
  virtual ~PacketCapture() = default;
  virtual void record(std::span<const std::byte> source, std::span<const std::byte> destination,
                      std::span<const std::byte> bytes) noexcept = 0;
  // A sentence for the log, at the end.
  virtual std::string summary() const = 0;
};

// The middleware of one endpoint.
class PacketObserver {
 public:
  PacketObserver() = default;
  PacketObserver(const PacketObserver&) = delete;
  PacketObserver& operator=(const PacketObserver&) = delete;
  virtual ~PacketObserver() = default;
  // False in a forked child, whose parent the link belongs to: nothing is sent or told there.
  virtual bool is_here() const noexcept { return true; }

  std::optional<Faults> faults;
  std::unique_ptr<PacketCapture> capture;
  // The link has a checksum: what is corrupted below it does not arrive.
  bool is_checked = false;
  // Who is told the summaries at close(). May be null.
  PacketWarning note = nullptr;
  const void* noted = nullptr;

  const PacketStatistics& statistics() const noexcept { return statistics_; }

  // The bytes of the parts, in memory that is good until the next call. Null: no memory.
  std::vector<std::byte>* gather(const iovec* parts, size_t count) noexcept;
  // The link took this packet, had no room for one, or received one.
  void sent(std::span<const std::byte> own, std::span<const std::byte> to,
            std::span<const std::byte> bytes) noexcept;
  void refused() noexcept { ++statistics_.refused; }
  void received(const ReceivedPacket& packet) noexcept;
  void log_summary() noexcept;

 private:
  PacketStatistics statistics_;
  std::vector<std::byte> gathered_;
};

template <PacketLink P>
class Observed : public P {
 public:
  Observed() = default;
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;
  ~Observed() { close(); }

  // After open(); null: nobody. close() lets go of it.
  void observe(std::unique_ptr<PacketObserver> observer) noexcept { observer_ = std::move(observer); }
  const PacketObserver* observer() const noexcept { return observer_.get(); }
  PacketObserver* observer() noexcept { return observer_.get(); }

  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    if (observer_ == nullptr) [[likely]]
      return P::send(to, parts, count);
    return send_observed(to, parts, count) != -EAGAIN;
  }
  int try_send(std::span<const std::byte> to, const iovec* parts,
               size_t count) noexcept requires HasSendStatus<P> {
    if (observer_ == nullptr) [[likely]]
      return P::try_send(to, parts, count);
    return send_observed(to, parts, count);
  }
  bool send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                      size_t segment_bytes) noexcept requires HasSegmentationOffload<P> {
    if (observer_ == nullptr) [[likely]]
      return P::send_segmented(to, parts, count, segment_bytes);
    return segment_observed(to, parts, count, segment_bytes);
  }
  size_t send_batch(const PacketToSend* packets, size_t count) noexcept requires HasBatches<P> {
    if (observer_ == nullptr) [[likely]]
      return P::send_batch(packets, count);
    for (size_t i = 0; i < count; ++i)
      if (!send(packets[i].to, packets[i].parts, packets[i].count)) return i;
    return count;
  }
  // The observer copies, so the buffer is not held.
  bool send_in_place(std::span<const std::byte> to, std::span<const std::byte> head, SendBuffer& buffer,
                     std::span<const std::byte> payload) noexcept requires HasZeroCopySend<P> {
    if (observer_ == nullptr) [[likely]]
      return P::send_in_place(to, head, buffer, payload);
    const iovec parts[] = {{const_cast<std::byte*>(head.data()), head.size()},
                           {const_cast<std::byte*>(payload.data()), payload.size()}};
    return send(to, parts, 2);
  }

  // Remembered: a fault that marks a packet puts it back.
  void set_ecn(Ecn ecn) noexcept requires HasCongestionMarks<P> {
    ecn_ = ecn;
    P::set_ecn(ecn);
  }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    if (observer_ == nullptr) [[likely]]
      return P::poll(handler);
    return poll_observed(handler);
  }
  // Faults send the packets of a segmented send one by one.
  bool numbers_segments() const noexcept requires HasNumberedSegments<P> {
    return (observer_ == nullptr || !observer_->faults) && P::numbers_segments();
  }
  bool has_nothing() const noexcept requires HasGlance<P> {
    return (observer_ == nullptr || !observer_->faults) && P::has_nothing();
  }
  // A packet that is held back goes at a later poll().
  bool arm() noexcept requires HasSleep<P> {
    if (observer_ != nullptr && observer_->faults && observer_->faults->holds()) return false;
    return P::arm();
  }

  void close() noexcept {
    if (observer_ != nullptr && observer_->is_here()) {
      if (observer_->faults)
        observer_->faults->release_all([this](const auto& to, const auto& bytes) { (void)put(to, bytes); });
      observer_->log_summary();
    }
    P::close();
    observer_.reset();
  }

 private:
  template <class Handler>
  struct Tap {
    PacketObserver& observer;
    Handler& handler;
    void on_packet(const ReceivedPacket& packet) noexcept {
      observer.received(packet);
      handler.on_packet(packet);
    }
  };

  // One packet to the link: 0, -EAGAIN, or why it is lost.
  int hand_over(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    if constexpr (HasSendStatus<P>) return P::try_send(to, parts, count);
    else return P::send(to, parts, count) ? 0 : -EAGAIN;
  }
  int put(std::span<const std::byte> to, std::span<const std::byte> bytes) noexcept {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    const int status = hand_over(to, &part, 1);
    if (status == 0) observer_->sent(P::address(), to, bytes);
    else if (status == -EAGAIN) observer_->refused();
    return status;
  }
  // As a router that is full sends it on.
  int put_marked(std::span<const std::byte> to, std::span<const std::byte> bytes) noexcept {
    if constexpr (HasCongestionMarks<P>) P::set_ecn(Ecn::CongestionExperienced);
    const int status = put(to, bytes);
    if constexpr (HasCongestionMarks<P>) P::set_ecn(ecn_);
    return status;
  }
  // One packet, by its faults.
  int spoil(std::span<const std::byte> to, std::span<std::byte> bytes) noexcept {
    if (!observer_->faults) return put(to, bytes);
    Faults& faults = *observer_->faults;
    FaultDecision decision = faults.next();
    int status = 0;
    if (decision.corrupt && !bytes.empty()) {
      const uint64_t bit = decision.bit % (bytes.size() * 8);
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    const bool arrives = !decision.lost && !(decision.corrupt && observer_->is_checked);
    const bool marks = arrives && decision.marked && (ecn_ == Ecn::Capable0 || ecn_ == Ecn::Capable1);
    if (arrives && (decision.after == 0 || !faults.hold(to, bytes, decision.after))) {
      status = marks ? put_marked(to, bytes) : put(to, bytes);
      if (status == -EAGAIN) return status;
    }
    if (!arrives) decision.twice = decision.reordered = false, decision.after = 0;
    decision.marked = marks;
    if (decision.twice) (void)put(to, bytes);
    faults.done(decision);
    faults.release([this](const auto& place, const auto& packet) { (void)put(place, packet); });
    return status;
  }
  [[gnu::noinline]] int send_observed(std::span<const std::byte> to, const iovec* parts,
                                      size_t count) noexcept {
    std::vector<std::byte>* const bytes = observer_->gather(parts, count);
    return bytes != nullptr ? spoil(to, *bytes) : hand_over(to, parts, count);
  }
  [[gnu::noinline]] bool segment_observed(std::span<const std::byte> to, const iovec* parts, size_t count,
                                          size_t segment_bytes) noexcept requires HasSegmentationOffload<P> {
    std::vector<std::byte>* const gathered = observer_->gather(parts, count);
    if (gathered == nullptr) return P::send_segmented(to, parts, count, segment_bytes);
    const std::span<std::byte> bytes(*gathered);
    const bool together = !observer_->faults;
    if (together && !P::send_segmented(to, parts, count, segment_bytes)) {
      observer_->refused();
      return false;
    }
    size_t end = bytes.size();
    if constexpr (HasLostSegments<P>)
      if (together) end = ((end + segment_bytes - 1) / segment_bytes - P::lost_segments()) * segment_bytes;
    for (size_t at = 0; at < bytes.size() && at < end; at += segment_bytes) {
      const auto packet = bytes.subspan(at, std::min(segment_bytes, bytes.size() - at));
      if (together) observer_->sent(P::address(), to, packet);
      else if (spoil(to, packet) == -EAGAIN) return at != 0;  // those behind are lost
    }
    return true;
  }
  template <class Handler>
  [[gnu::noinline]] int poll_observed(Handler& handler) noexcept {
    if (observer_->faults)
      observer_->faults->release([this](const auto& to, const auto& bytes) { (void)put(to, bytes); });
    Tap<Handler> tap{*observer_, handler};
    return P::poll(tap);
  }

  std::unique_ptr<PacketObserver> observer_;
  Ecn ecn_ = Ecn::NotCapable;
};

}  // namespace weft::proto
