// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// OverPackets<P>: a type of a provider's author (weft/provider.hpp) as a PacketLink, so that link::reliable::Reliable goes over it. What it gets wrong is
// found here, as far as it can be seen without looking into packets, done without, and said once for each kind. Must not know what is in the packets.
#pragma once

#include <sys/uio.h>
#include <weft/provider.hpp>

#include <algorithm>
#include <array>
#include <bitset>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <string>

#include "base/result.hpp"
#include "proto/packet/abilities.hpp"

namespace weft {

// The longest address is known at run time only, and no longer than address_bytes_max.
template <class P>
concept LearnsAddressLength = requires {
  { P::longest_address() }
  noexcept->std::same_as<size_t>;
};

template <Packets P>
class OverPackets {
 public:
  static constexpr size_t address_length = P::address_bytes_max;
  static constexpr bool checks_packets = !P::alters_packets;
  static constexpr bool shows_addresses = true;  // a source is the sender's address(), byte by byte
  static constexpr size_t segments_max = [] {
    if constexpr (HasTrains<P>) return size_t{P::train_packets_max};
    else return size_t{1};
  }();

  void set_warning(proto::PacketWarning warning, const void* who) noexcept {
    warning_ = warning;
    who_ = who;
  }

  Result<void> open(std::span<const std::byte> address) {
    const int status = packets_.open(address);
    if (status != 0) return refusal(status);
    open_ = true;
    if constexpr (LearnsAddressLength<P>) longest_ = P::longest_address();
    const Bytes own = packets_.address();
    if (own.empty() || own.size() > longest_)
      return Error{EINVAL, "address() has " + std::to_string(own.size()) +
                               " bytes; by address_bytes_max it may have 1 to " + std::to_string(longest_)};
    std::ranges::copy(own, own_.begin());
    own_bytes_ = own.size();
    if (!std::ranges::equal(packets_.address(), this->address()))
      return Error{EINVAL,
                   "address() says something else at each call; it may not change from open() to close()"};
    if (packets_.packet_bytes_max(packets_.address()) < packet_bytes_least)
      return Error{EMSGSIZE, "the provider's packets are smaller than " + std::to_string(packet_bytes_least) +
                                 " bytes"};
    return {};
  }
  void close() noexcept {
    if (open_) packets_.close();
    open_ = false;
  }
  // As it was at open().
  std::span<const std::byte> address() const noexcept { return {own_.data(), own_bytes_}; }
  size_t packet_bytes_max(std::span<const std::byte> to) noexcept {
    return std::max<size_t>(packets_.packet_bytes_max(to), packet_bytes_least);
  }
  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    const int status = packets_.send(to, parts, count);
    if (status != 0 && status != -EAGAIN) [[unlikely]]
      not_sent(to, status, parts, count, SIZE_MAX);
    return status != -EAGAIN;
  }
  bool send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                      size_t packet_bytes) noexcept requires HasTrains<P> {
    const int status = packets_.send_train(to, parts, count, packet_bytes);
    if (status != 0 && status != -EAGAIN) [[unlikely]]
      not_sent(to, status, parts, count, packet_bytes);
    return status != -EAGAIN;
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    struct Showing {
      OverPackets& link;
      Handler& handler;
      int shown = 0;
    } showing{*this, handler};
    PacketSink sink(&showing, [](void* self, Bytes source, Bytes packet) noexcept {
      auto& to = *static_cast<Showing*>(self);
      ++to.shown;
      // Nothing above has room for a longer one.
      if (!source.empty() && source.size() <= to.link.longest_) [[likely]]
        to.handler.on_packet({source, to.link.address(), packet});
      else to.link.no_source(source.size());
    });
    const int said = packets_.receive(sink);
    if (said != showing.shown) [[unlikely]]
      miscounted(said, showing.shown);
    any_shown_ = any_shown_ || showing.shown != 0;
    return showing.shown;
  }
  // What may explain that nobody answers: parts of a sentence, each after "; ".
  std::string hints() const {
    std::string all;
    if (failures_ != 0)
      all = "; send() failed " + std::to_string(failures_) + " times, at last with \"" +
            words(last_failure_) + '"';
    if (!any_shown_) all += "; receive() has shown no packet at all";
    return all;
  }

  size_t receive_buffer_bytes() noexcept requires HasReceiveBytesMax<P> {
    return 2 * size_t{packets_.receive_bytes_max()};  // half of a buffer counts as bookkeeping
  }
  size_t receive_packet_bytes() noexcept requires HasReceiveSlotBytes<P> {
    return packets_.receive_slot_bytes();
  }
  static void watch_refusals() noexcept requires HasRefusals<P> {}
  template <class Fn>
  void take_refusals(Fn&& on_refused) noexcept requires HasRefusals<P> {
    std::array<std::byte, address_bytes_limit> place;
    for (int i = 0; i < 64; ++i) {
      const size_t length = packets_.take_refusal(place);
      if (length == 0 || length > place.size()) return;
      on_refused(std::span<const std::byte>(place.data(), length));
    }
  }

  // Sleeping: without a descriptor whoever waits polls.
  int wait_fd() noexcept {
    if constexpr (HasWaitFd<P>) return packets_.wait_fd();
    else return -1;
  }
  bool arm() const noexcept { return HasWaitFd<P>; }
  void disarm() const noexcept {}

 protected:
  P& packets() noexcept { return packets_; }

 private:
  static std::string words(int status) { return std::strerror(status == INT_MIN ? EINVAL : -status); }
  // As it is when a peer has gone, or is not there yet: nothing to tell until it is dead.
  static bool says_nobody(int status) noexcept {
    for (const int code : {ECONNREFUSED, ECONNRESET, ENOENT, ENOTCONN, EPIPE, EHOSTUNREACH, EHOSTDOWN, ENXIO})
      if (status == -code) return true;
    return false;
  }
  void warn(const std::string& what) const noexcept {
    if (warning_ != nullptr) warning_(who_, what.c_str());
  }
  // Lost, whatever it was. Each errno is told once.
  [[gnu::noinline]] void not_sent(Bytes to, int status, const iovec* parts, size_t count,
                                  size_t packet_bytes) noexcept try {
    if (status > 0) {
      if (!said_positive_)
        warn("send() returned " + std::to_string(status) +
             ": 0 says that the packet is on its way, a negative errno that it is not; it is taken for lost");
      said_positive_ = true;
      return;
    }
    ++failures_;
    last_failure_ = status;
    const size_t kind = std::min<size_t>(static_cast<size_t>(-(status + 1)), said_.size() - 1);
    if (said_[kind] || says_nobody(status)) return;
    said_[kind] = true;
    if (status == -EMSGSIZE) {
      size_t bytes = 0;
      for (size_t i = 0; i < count; ++i) bytes += parts[i].iov_len;
      warn("send() refused a packet of " + std::to_string(std::min(bytes, packet_bytes)) +
           " bytes as too long, and packet_bytes_max() says " +
           std::to_string(packets_.packet_bytes_max(to)) + ": packets of that size never arrive");
    } else {
      warn("send() failed: " + words(status) + " (" + std::to_string(status) +
           "); such packets are lost and sent again later, and a peer that none reaches is dead in the end");
    }
  } catch (const std::bad_alloc&) {  // then nobody is told
  }
  [[gnu::noinline]] void no_source(size_t bytes) noexcept try {
    if (!said_source_)
      warn("receive() shows a packet with a source of " + std::to_string(bytes) +
           " bytes; addresses have 1 to " + std::to_string(longest_) + ". Such packets are lost");
    said_source_ = true;
  } catch (const std::bad_alloc&) {
  }
  [[gnu::noinline]] void miscounted(int said, int shown) noexcept try {
    if (!said_count_)
      warn("receive() returned " + std::to_string(said) + " and had shown " + std::to_string(shown) +
           " packets: it returns how many, and 0 when there is nothing. What it shows counts");
    said_count_ = true;
  } catch (const std::bad_alloc&) {
  }

  Error refusal(int status) {
    const int code = status < 0 ? -status : EINVAL;
    if constexpr (HasReason<P>) {
      if (std::string why = packets_.reason(); !why.empty()) return {code, std::move(why)};
    }
    return {code, std::string("the provider could not be opened: ") + std::strerror(code)};
  }

  P packets_;
  size_t longest_ = address_length;  // of addresses
  bool open_ = false;
  bool any_shown_ = false;

  // --- cold below this line ---
  bool said_positive_ = false;
  bool said_source_ = false;
  bool said_count_ = false;
  std::bitset<256> said_;  // errnos of send()
  uint64_t failures_ = 0;
  int last_failure_ = 0;
  std::array<std::byte, address_bytes_limit> own_{};
  size_t own_bytes_ = 0;
  proto::PacketWarning warning_ = nullptr;
  const void* who_ = nullptr;
};

}  // namespace weft
