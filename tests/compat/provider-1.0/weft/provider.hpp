// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider interface: what a type must have to become a provider of libfabric. The smallest one sends and receives packets that may be lost;
// everything else (order, reliability, messages of any size, tags, remote memory access, atomics) is put over it. docs/provider-guide.md goes
// from nothing to MPI. Needs the standard library and <sys/uio.h> only, so a provider's own header and objects know nothing else of Weft.
//
// Who calls. One object of the type is one endpoint. Weft makes it with the default constructor, calls open() once, then anything until close(), once.
// All calls to one object come from one thread at a time, with a lock around them where the program has several; they come from inside the
// program's calls of libfabric, never from a thread of ours. Different objects are used by different threads at once. Static functions may be called
// by any thread at any time. A child after fork(2) calls close() and the destructor at most, which must not disturb the parent.
//
// Nothing blocks: a call that cannot do its work at once says so. Functions that are noexcept here must not throw; others may throw
// std::bad_alloc.
//
// Units: sizes are bytes. Status: 0 or a negative errno, as each function says.
#pragma once

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The version of this interface: an object works with a core of any minor version, with an older one where it needs nothing newer.
//
//   major   changes when a type that fitted does not fit any more. It is a part of the names that the linker sees: weft_core_v1, weft::provider_v1.
//   minor   changes when something optional is added: at the end of this header, and at the end of PacketsTable (weft/plugin.hpp). Nothing that is
//           there changes its meaning or its place.
//
//   object compiled for   core           what the core does
//   1.N                   1.N            uses all of it
//   1.N                   1.N+1          takes what was added since for absent, as of a provider that does not have it
//   1.N+1                 1.N            does not see what was added; refuses, when it is loaded, a provider that says it needs that
//   another major number                 is not linked (weft_core_v1 is missing), and refused when it is loaded
//
// The core is libweft-core.a, linked into the plugin. tests/compat/ builds both sides of each line.
#define WEFT_PROVIDER_VERSION_MAJOR 1
#ifdef WEFT_PROVIDER_NEXT  // by tests/compat/ alone: the next minor version, with something that it might add
#define WEFT_PROVIDER_VERSION_MINOR 1
#else
#define WEFT_PROVIDER_VERSION_MINOR 0
#endif
#define WEFT_PROVIDER_VERSION_OF(major, minor) (uint32_t{major} << 16 | uint32_t{minor})
#define WEFT_PROVIDER_VERSION \
  WEFT_PROVIDER_VERSION_OF(WEFT_PROVIDER_VERSION_MAJOR, WEFT_PROVIDER_VERSION_MINOR)

namespace weft {
inline namespace provider_v1 {

using Bytes = std::span<const std::byte>;

// Addresses are bytes that mean something to the provider alone: at most so many, equal bytes are the same place.
inline constexpr size_t address_bytes_limit = 64;
// A packet of this size must get through, or nothing does.
inline constexpr size_t packet_bytes_least = 512;

// Takes what receive() has got. It is good during that call only, and reads `source` and `packet` only until it returns.
class PacketSink {
 public:
  using Take = void (*)(void* self, Bytes source, Bytes packet) noexcept;
  PacketSink(void* self, Take take) noexcept : self_(self), take_(take) {}
  // `source` is the sender's address in the form that send() takes. May call send() of the same object before it returns.
  void operator()(Bytes source, Bytes packet) const noexcept { take_(self_, source, packet); }

 private:
  void* self_;
  Take take_;
};

// --- required ------------------------------------------------------------------------------------------------------------------------------

// static constexpr size_t address_bytes_max
//   The longest address, 1 to 64 bytes.
template <class P>
concept HasAddressBytesMax = requires {
  { P::address_bytes_max } -> std::convertible_to<size_t>;
  requires P::address_bytes_max >= 1 && P::address_bytes_max <= address_bytes_limit;
};

// static constexpr bool alters_packets
//   Whether a packet may arrive altered without anybody below noticing. Then each gets a checksum (CRC-32C). False where the carrier has one, as
//   UDP and Ethernet have.
template <class P>
concept HasAltersPackets = requires {
  { P::alters_packets } -> std::convertible_to<bool>;
};

// int open(weft::Bytes address)
//   Begins to receive at `address`, or, when it is empty, at an address that nobody else has. 0; -EADDRINUSE when somebody has it; or another
//   negative errno, which the program gets from its call. After a refusal nothing is called but reason() and the destructor.
//   `address` is valid during the call.
template <class P>
concept HasOpen = requires(P& packets, Bytes address) {
  { packets.open(address) } -> std::same_as<int>;
};

// void close() noexcept
//   Gives everything back. What was sent is still under way; what came and was not received is gone. Called once after an open() that succeeded;
//   the object is not opened again. The destructor must not need it.
template <class P>
concept HasClose = requires(P& packets) {
  { packets.close() }
  noexcept->std::same_as<void>;
};

// weft::Bytes address() noexcept
//   The own address as a peer sends to it, from open() to close(). It does not change; the bytes belong to the object.
template <class P>
concept HasAddress = requires(P& packets) {
  { packets.address() }
  noexcept->std::same_as<Bytes>;
};

// size_t packet_bytes_max(weft::Bytes to) noexcept
//   The largest packet that may reach `to`, without what the carrier adds: at least 512; more than 65,535 is not used. May change in time. Larger
//   ones are faster where a call is what costs. Called for each train of packets, so it must be cheap.
template <class P>
concept HasPacketBytesMax = requires(P& packets, Bytes to) {
  { packets.packet_bytes_max(to) }
  noexcept->std::convertible_to<size_t>;
};

// int send(weft::Bytes to, const iovec* parts, size_t count) noexcept
//   One packet, gathered from `count` parts (at most 256); whole or nothing. The parts belong to the caller and change after the call, so they are
//   copied, or gone to the device, before it returns.
//   0: it is on its way, or lost on it. -EAGAIN: no room now; it is tried again after a later receive(). Any other negative errno: it cannot go
//   there; the packet is lost, and its bytes are sent again later. So an address where nobody is need not be found out here.
template <class P>
concept HasSend = requires(P& packets, Bytes to, const iovec* parts, size_t count) {
  { packets.send(to, parts, count) }
  noexcept->std::same_as<int>;
};

// int receive(weft::PacketSink& sink) noexcept
//   Gives `sink` what has come, packet by packet, and returns how many; 0 at once when there is nothing. Bounded: at most some hundred packets,
//   the rest at the next call. Packets may come twice, late, and in any order. It is called whenever the program waits, so 0 must be cheap.
template <class P>
concept HasReceive = requires(P& packets, PacketSink& sink) {
  { packets.receive(sink) }
  noexcept->std::same_as<int>;
};

// static std::string address_text(weft::Bytes address)
//   The address as a person reads it, one text for one address; printable, no spaces. Empty: these bytes are no address. They may be anything, for they
//   come from peers, too. Programs see "fi_NAME://TEXT" (FI_ADDR_STR), 63 characters in all.
template <class P>
concept HasAddressText = requires(Bytes address) {
  { P::address_text(address) } -> std::same_as<std::string>;
};

// static std::vector<std::byte> address_from_text(std::string_view text)
//   The address that has this text. Empty: there is none. Everything that address_text() writes must be read to the same bytes.
template <class P>
concept HasAddressFromText = requires(std::string_view text) {
  { P::address_from_text(text) } -> std::same_as<std::vector<std::byte>>;
};

template <class P>
concept Packets = std::default_initializable<P> && HasAddressBytesMax<P> && HasAltersPackets<P> &&
    HasOpen<P> && HasClose<P> && HasAddress<P> && HasPacketBytesMax<P> && HasSend<P> && HasReceive<P> &&
    HasAddressText<P> && HasAddressFromText<P>;

// For providers whose addresses are their text: derive from it to have the last two functions.
struct TextAddresses {
  static std::string address_text(Bytes address) {
    for (const std::byte byte : address)
      if (byte <= std::byte{' '} || byte >= std::byte{0x7f}) return {};
    return {reinterpret_cast<const char*>(address.data()), address.size()};
  }
  static std::vector<std::byte> address_from_text(std::string_view text) {
    const auto* first = reinterpret_cast<const std::byte*>(text.data());
    const std::vector<std::byte> address(first, first + text.size());
    return address_text(address).empty() ? std::vector<std::byte>() : address;
  }
};

// --- optional: what is lost without it stands in docs/provider-guide.md --------------------------------------------------------------------------

// static constexpr size_t train_packets_max
// int send_train(weft::Bytes to, const iovec* parts, size_t count, size_t packet_bytes) noexcept
//   Many packets for the price of one call: the parts are cut into packets of `packet_bytes`, the last may be shorter; at most train_packets_max
//   (2 to 64) packets. Status as of send(). When there is room for the first ones only: 0, and the others are lost.
template <class P>
concept HasTrains = requires(P& packets, Bytes to, const iovec* parts, size_t count, size_t packet_bytes) {
  { P::train_packets_max } -> std::convertible_to<size_t>;
  requires P::train_packets_max >= 2 && P::train_packets_max <= 64;
  { packets.send_train(to, parts, count, packet_bytes) }
  noexcept->std::same_as<int>;
};

// int wait_fd() noexcept
//   A descriptor that poll(2) shows as readable as long as there is a packet to receive; it stays the object's, and the same. Asked for by programs
//   that sleep. -1: not now.
template <class P>
concept HasWaitFd = requires(P& packets) {
  { packets.wait_fd() }
  noexcept->std::same_as<int>;
};

// size_t take_refusal(std::span<std::byte> place) noexcept
//   The oldest note, which is forgotten, that nobody receives at an address: the address is written to `place` (64 bytes), its length returned. 0: there
//   are none. Notes are hints: several of them, over 200 ms, and silence make a peer dead. At most some hundred are kept.
template <class P>
concept HasRefusals = requires(P& packets, std::span<std::byte> place) {
  { packets.take_refusal(place) }
  noexcept->std::same_as<size_t>;
};

// size_t receive_bytes_max() noexcept
//   Bytes of packets that are kept until receive(), when more than that is thrown away. Peers do not send more unasked. Not for carriers that make
//   send() say -EAGAIN instead.
template <class P>
concept HasReceiveBytesMax = requires(P& packets) {
  { packets.receive_bytes_max() }
  noexcept->std::convertible_to<size_t>;
};

// size_t receive_slot_bytes() noexcept
//   What a packet takes of these at least: the size of a slot, where each has one to itself.
template <class P>
concept HasReceiveSlotBytes = requires(P& packets) {
  { packets.receive_slot_bytes() }
  noexcept->std::convertible_to<size_t>;
};

// std::string reason()
//   Why open() was refused, for a person: a part of a sentence. Called right after it.
template <class P>
concept HasReason = requires(P& packets) {
  { packets.reason() } -> std::same_as<std::string>;
};

// static std::vector<std::byte> resolve(const char* node, const char* service, bool source)
//   The address of what a person names; one of the two may be null. `source`: it is to be an own address. Empty: there is none. "fi_NAME://TEXT" does not
//   come here.
template <class P>
concept HasResolve = requires(const char* text, bool source) {
  { P::resolve(text, text, source) } -> std::same_as<std::vector<std::byte>>;
};

// static bool is_available() noexcept
//   Whether this machine has what the provider needs. Asked once; when not, the provider is not offered.
template <class P>
concept HasIsAvailable = requires {
  { P::is_available() }
  noexcept->std::same_as<bool>;
};

// static constexpr bool leaves_machine
//   False: peers on this machine only. Programs that ask for FI_REMOTE_COMM do not get the provider then.
template <class P>
concept HasLeavesMachine = requires {
  { P::leaves_machine } -> std::convertible_to<bool>;
};

// static constexpr uint32_t version
//   Of the provider itself, FI_VERSION(major, minor): of two with one name the higher is taken. 1.0 without it.
template <class P>
concept HasVersion = requires {
  { P::version } -> std::convertible_to<uint32_t>;
};

// static constexpr uint32_t version_needed
//   The oldest version of this interface that will do, WEFT_PROVIDER_VERSION_OF(1, 2): cores that are older refuse the provider when it is loaded,
//   instead of passing over what it has since then. 1.0 without it.
template <class P>
concept HasVersionNeeded = requires {
  { P::version_needed } -> std::convertible_to<uint32_t>;
};

#ifdef WEFT_PROVIDER_NEXT
// --- since 1.1 ---

// static std::string note()
//   What a person should know of the provider; it stands in the log at level info.
template <class P>
concept HasNote = requires {
  { P::note() } -> std::same_as<std::string>;
};
#endif

// Refuses what is not Packets, function by function, in words; also an optional function that is there in another form, which would be passed over.
template <class P>
consteval bool explain_packets() {
#define WEFT_MISSING(what) "weft::Packets: missing, or of another type: " what
#define WEFT_OTHER(what) "weft::Packets: optional, but when it is there it must be: " what
  static_assert(std::default_initializable<P>, WEFT_MISSING("a default constructor"));
  static_assert(HasAddressBytesMax<P>, WEFT_MISSING("static constexpr size_t address_bytes_max (1 to 64)"));
  static_assert(HasAltersPackets<P>, WEFT_MISSING("static constexpr bool alters_packets"));
  static_assert(HasOpen<P>, WEFT_MISSING("int open(weft::Bytes address)"));
  static_assert(HasClose<P>, WEFT_MISSING("void close() noexcept"));
  static_assert(HasAddress<P>, WEFT_MISSING("weft::Bytes address() noexcept"));
  static_assert(HasPacketBytesMax<P>, WEFT_MISSING("size_t packet_bytes_max(weft::Bytes to) noexcept"));
  static_assert(HasSend<P>,
                WEFT_MISSING("int send(weft::Bytes to, const iovec* parts, size_t count) noexcept"));
  static_assert(HasReceive<P>, WEFT_MISSING("int receive(weft::PacketSink& sink) noexcept"));
  static_assert(HasAddressText<P>, WEFT_MISSING("static std::string address_text(weft::Bytes address)"));
  static_assert(HasAddressFromText<P>,
                WEFT_MISSING("static std::vector<std::byte> address_from_text(std::string_view text)"));
  static_assert(
      HasTrains<P> || !requires { &P::send_train; },
      WEFT_OTHER(
          "int send_train(weft::Bytes to, const iovec* parts, size_t count, size_t packet_bytes) noexcept, "
          "with static constexpr size_t train_packets_max (2 to 64)"));
  static_assert(
      HasWaitFd<P> || !requires { &P::wait_fd; }, WEFT_OTHER("int wait_fd() noexcept"));
  static_assert(
      HasRefusals<P> || !requires { &P::take_refusal; },
      WEFT_OTHER("size_t take_refusal(std::span<std::byte> place) noexcept"));
  static_assert(
      HasReceiveBytesMax<P> || !requires { &P::receive_bytes_max; },
      WEFT_OTHER("size_t receive_bytes_max() noexcept"));
  static_assert(
      HasReceiveSlotBytes<P> || !requires { &P::receive_slot_bytes; },
      WEFT_OTHER("size_t receive_slot_bytes() noexcept"));
  static_assert(
      HasReason<P> || !requires { &P::reason; }, WEFT_OTHER("std::string reason()"));
  static_assert(
      HasResolve<P> || !requires { &P::resolve; },
      WEFT_OTHER(
          "static std::vector<std::byte> resolve(const char* node, const char* service, bool source)"));
  static_assert(
      HasIsAvailable<P> || !requires { &P::is_available; },
      WEFT_OTHER("static bool is_available() noexcept"));
  static_assert(
      HasLeavesMachine<P> || !requires { &P::leaves_machine; },
      WEFT_OTHER("static constexpr bool leaves_machine"));
  static_assert(
      HasVersion<P> || !requires { &P::version; }, WEFT_OTHER("static constexpr uint32_t version"));
  static_assert(
      HasVersionNeeded<P> || !requires { &P::version_needed; },
      WEFT_OTHER("static constexpr uint32_t version_needed"));
#undef WEFT_MISSING
#undef WEFT_OTHER
  return Packets<P>;
}

}  // namespace provider_v1
}  // namespace weft
