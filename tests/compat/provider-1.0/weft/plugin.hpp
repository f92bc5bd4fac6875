// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// WEFT_PROVIDER_OVER_PACKETS: makes a plugin of libfabric out of a type that has weft::Packets (weft/provider.hpp). Included by one source of the
// provider, which is linked with libweft-core.a: docs/provider-guide.md. Needs what weft/provider.hpp needs.
//
// Between the two lies PacketsTable, the one thing that an author's objects and a core of another version both know. So everything that an author
// compiles may be kept as it is when Weft changes, within a major version of the interface.
#pragma once

#include <version>
#if __cplusplus < 202002L
#error "weft/plugin.hpp needs C++20 (-std=c++20)"
#elif defined(_GLIBCXX_DEBUG) || defined(_LIBCPP_VERSION)
#error \
    "weft/plugin.hpp: libweft-core.a holds types of libstdc++ without _GLIBCXX_DEBUG; compile this one source like that"
#endif

#include <weft/provider.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

struct fi_provider;  // fi_provider(3)

namespace weft {
inline namespace provider_v1 {

// A provider as the core sees it. `self` is what make() gave. Functions that an author may leave out are null. Those that give bytes or a text write
// at most `room` of it and return the whole length. The rules of the functions are those of weft/provider.hpp; none of these throws.
//
// Grows at the end only. `bytes` is the size where the object was compiled: a core takes what lies behind it for zero, and does not look at what lies
// behind the end that it knows.
struct PacketsTable {
  uint32_t bytes;
  uint32_t version;         // WEFT_PROVIDER_VERSION where it was compiled
  uint32_t version_needed;  // of the interface; an older core refuses
  uint32_t provider_version;
  const char* name;
  uint32_t flags;
  uint32_t address_bytes_max;
  uint32_t train_packets_max;  // 1: no send_train
  uint32_t reserved;           // 0

  void* (*make)() noexcept;  // null: no memory
  void (*destroy)(void* self) noexcept;
  int (*open)(void* self, const std::byte* address, size_t address_bytes) noexcept;
  void (*close)(void* self) noexcept;
  const std::byte* (*address)(void* self, size_t* address_bytes) noexcept;
  size_t (*packet_bytes_max)(void* self, const std::byte* to, size_t to_bytes) noexcept;
  int (*send)(void* self, const std::byte* to, size_t to_bytes, const iovec* parts, size_t count) noexcept;
  int (*receive)(void* self, PacketSink* sink) noexcept;
  size_t (*address_text)(const std::byte* address, size_t address_bytes, char* place, size_t room) noexcept;
  size_t (*address_from_text)(const char* text, size_t length, std::byte* place, size_t room) noexcept;

  // --- optional ---
  int (*send_train)(void* self, const std::byte* to, size_t to_bytes, const iovec* parts, size_t count,
                    size_t packet_bytes) noexcept;
  int (*wait_fd)(void* self) noexcept;
  size_t (*take_refusal)(void* self, std::byte* place, size_t room) noexcept;
  size_t (*receive_bytes_max)(void* self) noexcept;
  size_t (*receive_slot_bytes)(void* self) noexcept;
  size_t (*reason)(void* self, char* place, size_t room) noexcept;
  size_t (*resolve)(const char* node, const char* service, bool source, std::byte* place,
                    size_t room) noexcept;
  bool (*is_available)() noexcept;
#ifdef WEFT_PROVIDER_NEXT
  // --- since 1.1 ---
  size_t (*note)(char* place, size_t room) noexcept;
#endif
};
static_assert(std::is_trivially_copyable_v<PacketsTable> && std::is_standard_layout_v<PacketsTable>);

// Of `flags`. Others are 0.
inline constexpr uint32_t table_alters_packets = 1;
inline constexpr uint32_t table_leaves_machine = 2;

// Names that libfabric gives a meaning to are none of a provider; addresses "fi_NAME://..." need room for more than it.
consteval bool is_provider_name(std::string_view name) {
  return !name.empty() && name.size() <= 24 && name.find_first_of(";:,^/ ") == std::string_view::npos &&
         !name.starts_with("ofi_");
}

// The functions of a type as those of a table.
template <Packets P>
struct TableFunctions {
  static P& of(void* self) noexcept { return *static_cast<P*>(self); }
  template <class Range, class To>
  static size_t copy(const Range& from, To* place, size_t room) noexcept {
    std::copy_n(from.begin(), std::min<size_t>(from.size(), room), place);
    return from.size();
  }
  // Of what may throw std::bad_alloc: then there is nothing.
  template <class Fn, class To>
  static size_t made(Fn&& make, To* place, size_t room) noexcept try {
    return copy(make(), place, room);
  } catch (const std::bad_alloc&) {
    return 0;
  }

  static void* make() noexcept try { return new P(); } catch (const std::bad_alloc&) {
    return nullptr;
  }
  static void destroy(void* self) noexcept { delete static_cast<P*>(self); }
  static int open(void* self, const std::byte* address, size_t address_bytes) noexcept try {
    return of(self).open(Bytes(address, address_bytes));
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  }
  static void close(void* self) noexcept { of(self).close(); }
  static const std::byte* address(void* self, size_t* address_bytes) noexcept {
    const Bytes own = of(self).address();
    *address_bytes = own.size();
    return own.data();
  }
  static size_t packet_bytes_max(void* self, const std::byte* to, size_t to_bytes) noexcept {
    return of(self).packet_bytes_max(Bytes(to, to_bytes));
  }
  static int send(void* self, const std::byte* to, size_t to_bytes, const iovec* parts,
                  size_t count) noexcept {
    return of(self).send(Bytes(to, to_bytes), parts, count);
  }
  static int receive(void* self, PacketSink* sink) noexcept { return of(self).receive(*sink); }
  static size_t address_text(const std::byte* address, size_t address_bytes, char* place,
                             size_t room) noexcept {
    return made([&] { return P::address_text(Bytes(address, address_bytes)); }, place, room);
  }
  static size_t address_from_text(const char* text, size_t length, std::byte* place, size_t room) noexcept {
    return made([&] { return P::address_from_text(std::string_view(text, length)); }, place, room);
  }

  static int send_train(void* self, const std::byte* to, size_t to_bytes, const iovec* parts, size_t count,
                        size_t packet_bytes) noexcept {
    return of(self).send_train(Bytes(to, to_bytes), parts, count, packet_bytes);
  }
  static int wait_fd(void* self) noexcept { return of(self).wait_fd(); }
  static size_t take_refusal(void* self, std::byte* place, size_t room) noexcept {
    return of(self).take_refusal(std::span<std::byte>(place, room));
  }
  static size_t receive_bytes_max(void* self) noexcept { return of(self).receive_bytes_max(); }
  static size_t receive_slot_bytes(void* self) noexcept { return of(self).receive_slot_bytes(); }
  static size_t reason(void* self, char* place, size_t room) noexcept {
    return made([&] { return of(self).reason(); }, place, room);
  }
  static size_t resolve(const char* node, const char* service, bool source, std::byte* place,
                        size_t room) noexcept {
    return made([&] { return P::resolve(node, service, source); }, place, room);
  }
  static bool is_available() noexcept { return P::is_available(); }
#ifdef WEFT_PROVIDER_NEXT
  static size_t note(char* place, size_t room) noexcept {
    return made([] { return P::note(); }, place, room);
  }
#endif
};

// The table of a type. `name` is kept.
template <Packets P>
consteval PacketsTable table_of(const char* name) {
  using Functions = TableFunctions<P>;
  PacketsTable table{};
  table.bytes = sizeof table;
  table.version = WEFT_PROVIDER_VERSION;
  table.version_needed = WEFT_PROVIDER_VERSION_OF(WEFT_PROVIDER_VERSION_MAJOR, 0);
  if constexpr (HasVersionNeeded<P>) table.version_needed = P::version_needed;
  table.provider_version = 1 << 16;  // FI_VERSION(1, 0)
  if constexpr (HasVersion<P>) table.provider_version = P::version;
  table.name = name;
  table.flags = P::alters_packets ? table_alters_packets : 0;
  bool leaves_machine = true;
  if constexpr (HasLeavesMachine<P>) leaves_machine = P::leaves_machine;
  if (leaves_machine) table.flags |= table_leaves_machine;
  table.address_bytes_max = P::address_bytes_max;
  table.train_packets_max = 1;
  table.make = Functions::make;
  table.destroy = Functions::destroy;
  table.open = Functions::open;
  table.close = Functions::close;
  table.address = Functions::address;
  table.packet_bytes_max = Functions::packet_bytes_max;
  table.send = Functions::send;
  table.receive = Functions::receive;
  table.address_text = Functions::address_text;
  table.address_from_text = Functions::address_from_text;
  if constexpr (HasTrains<P>) {
    table.train_packets_max = P::train_packets_max;
    table.send_train = Functions::send_train;
  }
  if constexpr (HasWaitFd<P>) table.wait_fd = Functions::wait_fd;
  if constexpr (HasRefusals<P>) table.take_refusal = Functions::take_refusal;
  if constexpr (HasReceiveBytesMax<P>) table.receive_bytes_max = Functions::receive_bytes_max;
  if constexpr (HasReceiveSlotBytes<P>) table.receive_slot_bytes = Functions::receive_slot_bytes;
  if constexpr (HasReason<P>) table.reason = Functions::reason;
  if constexpr (HasResolve<P>) table.resolve = Functions::resolve;
  if constexpr (HasIsAvailable<P>) table.is_available = Functions::is_available;
#ifdef WEFT_PROVIDER_NEXT
  if constexpr (HasNote<P>) table.note = Functions::note;
#endif
  return table;
}

}  // namespace provider_v1
}  // namespace weft

// In libweft-core.a, the one thing that a plugin asks of it. Null, with the reason in the log, when the table is not one for this core. The table is
// kept. Once in a plugin.
extern "C" ::fi_provider* weft_core_v1(const ::weft::provider_v1::PacketsTable* table) noexcept;

// In one source of a plugin, outside of namespaces. The name is the one that programs see.
#define WEFT_PROVIDER_OVER_PACKETS(Type, provider_name)                                              \
  static_assert(::weft::explain_packets<Type>());                                                    \
  static_assert(                                                                                     \
      ::weft::is_provider_name(provider_name),                                                       \
      "a provider's name has 1 to 24 characters, none of \";:,^/ \", and does not begin with ofi_"); \
  extern "C" __attribute__((visibility("default"), used)) ::fi_provider* fi_prov_ini() {             \
    static constexpr ::weft::PacketsTable table = ::weft::table_of<Type>(provider_name);             \
    return ::weft_core_v1(&table);                                                                   \
  }                                                                                                  \
  static_assert(true, "takes the semicolon")
