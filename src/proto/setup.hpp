// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What anything that is opened may have beyond its contract: settings before open(), numbers and words for people, and whose process it is. For links, packet
// links, devices, listeners and engines. Who opens one asks for the concept with `if constexpr`. Must not know who implements what.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

namespace weft::proto {

// --- before open() ---

// What is known at run time only (Provider::context).
template <class T>
concept HasContext = requires(T& what, const void* context) {
  { what.set_context(context) }
  noexcept;
};

// Addresses have more than one format (FI_SOCKADDR_IN, ...).
template <class T>
concept HasAddressFormats = requires(T& what, uint32_t format) {
  { what.set_address_format(format) }
  noexcept;
};

// Packets carry this DSCP (RFC 2474).
template <class T>
concept HasTrafficClass = requires(T& what, uint8_t dscp) {
  { what.set_traffic_class(dscp) }
  noexcept;
};

// Bounds of waiting for the other side, in milliseconds.
template <class T>
concept HasConnectTimeout = requires(T& what) {
  { what.set_connect_timeout_ms(uint64_t{}) }
  noexcept;
};
template <class T>
concept HasAcceptTimeout = requires(T& what) {
  { what.set_accept_timeout_ms(uint64_t{}) }
  noexcept;
};

// It has another name besides, which peers may be given.
template <class T>
concept TakesAlias = requires(T& what, std::span<const std::byte> alias) {
  { what.set_alias(alias) }
  noexcept;
};

// --- statistics (docs/statistics.md) ---

// It has a housekeeping every few milliseconds, and its events are told that time passes. Who drives another counts polls.
template <class T>
concept HasHousekeeping = std::remove_cvref_t<T>::has_housekeeping;

// --- words for people ---

// Warnings: sentences for the log about what goes wrong where no caller hears of it.
using PacketWarning = void (*)(const void* who, const char* what);
template <class T>
concept HasWarnings = requires(T& what, PacketWarning warning, const void* who) {
  { what.set_warning(warning, who) }
  noexcept;
};

// A line at level info when it closes.
template <class T>
concept HasNotes = requires(T& what, PacketWarning note, const void* who) {
  { what.set_note(note, who) }
  noexcept;
};

// --- closing ---

// A forked child has a copy that is not its own (false): nothing may be sent for the parent.
template <class T>
concept KnowsItsProcess = requires(const T& what) {
  { what.belongs_here() }
  noexcept->std::same_as<bool>;
};

// It is about to close: what waits for company, or for a convenient moment, goes now.
template <class T>
concept Hurries = requires(T& what) {
  { what.hurry() }
  noexcept;
};

}  // namespace weft::proto
