// OverPackets<P>: a type of a provider's author (weft/provider.hpp) as a PacketLink, so that link::reliable::Reliable goes over it. Must not know what is
// in the packets.
#pragma once

#include <sys/uio.h>
#include <weft/provider.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/result.hpp"
#include "proto/reliable/packet_link.hpp"

namespace weft {

template <Packets P>
class OverPackets {
 public:
  static constexpr size_t address_length = P::address_bytes_max;
  static constexpr bool checks_packets = !P::alters_packets;
  static constexpr size_t train_packets_max = [] {
    if constexpr (HasTrains<P>) return size_t{P::train_packets_max};
    else return size_t{1};
  }();

  Result<void> open(std::span<const std::byte> address) {
    const int status = packets_.open(address);
    if (status != 0) return refusal(status);
    open_ = true;
    const size_t own = packets_.address().size();
    if (own == 0 || own > address_length)
      return Error{EINVAL, "the provider has an own address of " + std::to_string(own) + " bytes"};
    if (packets_.packet_bytes_max(packets_.address()) < packet_bytes_least)
      return Error{EMSGSIZE, "the provider's packets are smaller than " + std::to_string(packet_bytes_least) +
                                 " bytes"};
    return {};
  }
  void close() noexcept {
    if (open_) packets_.close();
    open_ = false;
  }
  std::span<const std::byte> address() noexcept { return packets_.address(); }
  size_t packet_bytes_max(std::span<const std::byte> to) noexcept {
    return std::max<size_t>(packets_.packet_bytes_max(to), packet_bytes_least);
  }
  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    return packets_.send(to, parts, count) != -EAGAIN;
  }
  bool send_train(std::span<const std::byte> to, const iovec* parts, size_t count,
                  size_t packet_bytes) noexcept requires HasTrains<P> {
    return packets_.send_train(to, parts, count, packet_bytes) != -EAGAIN;
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    PacketSink sink(&handler, [](void* self, Bytes source, Bytes packet) noexcept {
      // Nothing above has room for a longer one.
      if (source.size() <= address_length) static_cast<Handler*>(self)->on_packet(source, packet);
    });
    return packets_.receive(sink);
  }

  size_t receive_buffer_bytes() noexcept requires HasReceiveBytesMax<P> {
    return 2 * size_t{packets_.receive_bytes_max()};  // half of a buffer counts as bookkeeping
  }
  size_t receive_packet_bytes() noexcept requires HasReceiveSlotBytes<P> {
    return packets_.receive_slot_bytes();
  }
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
  P& carrier() noexcept { return packets_; }

 private:
  Error refusal(int status) {
    const int code = status < 0 ? -status : EINVAL;
    if constexpr (HasReason<P>) {
      if (std::string why = packets_.reason(); !why.empty()) return {code, std::move(why)};
    }
    return {code, std::string("the provider could not be opened: ") + std::strerror(code)};
  }

  P packets_;
  bool open_ = false;
};

}  // namespace weft
