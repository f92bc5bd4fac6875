// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a MessageLink stands on: endpoints that are connected and carry whole messages in order, as FI_EP_MSG does. Must not know frames.
//
// Rules of the contract:
//   - One thread at a time calls in; callbacks come only from poll().
//   - Whoever connects is accepted; who it is comes out by what it says. connect() begins a connection: on_connected() or on_lost() follows.
//   - Each connection takes receive_count messages of message_bytes_max before any of them is shown. The user of the connection sees to
//     it that no more messages are on their way than that.
//   - reserve() gives a buffer of message_bytes_max bytes to fill, or null when all are on their way; commit() sends it. A buffer that the
//     device does not take at once is kept and tried again by poll(). Endpoints that have no such number of buffers may have busy(): true
//     when what is committed would wait. Then only messages follow that cannot be put off, of which there are few.
//   - Endpoints that keep something for the next poll() by themselves have has_deferred_sends(), and push() of a connection, as links do.
//   - Endpoints that may keep what was committed for long, because there is no room, have taken() and completed() of a connection: marks behind all
//     that was committed, and behind what needs them no more. Both only grow; a connection that has failed completes nothing more.
//   - Endpoints that can send from where bytes lie have commit_parts(): a message out of a front and parts, which are
//     written or copied before it returns. False: nothing was sent. commit_in_place(): the same, and the parts stay as
//     they are until completed() has passed what taken() then is, or the connection is closed. retain_parts(): what waits
//     is copied.
//   - Such endpoints may have large_message_bytes_max: a message of that length, with one frame, needs no more of the
//     receiver than others do.
//   - on_message() that returns false is shown the same message again at a later poll(). The bytes are valid during the call only, and
//     hostile.
//   - A handler may take a message while it is still arriving (TakesMessageParts), and endpoints may offer that: on_part() shows what is here, where()
//     says where the next bytes belong (nowhere: they are only counted), landed() that so many are there. The message is over with its last byte.
//   - After on_lost() the connection is gone. close() of a connection may be called from every callback, also for the connection that is
//     being shown; no callback for it follows.
//   - close() of it all gives what was committed a bounded time to leave.
#pragma once

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "proto/engine/link.hpp"

namespace weft::link::message {

// What poll() calls; a template parameter in links, this form is for the concept.
template <class Connection>
struct ConnectionHandler {
  void on_incoming(Connection& connection) noexcept;
  void on_connected(Connection& connection) noexcept;
  bool on_message(Connection& connection, std::span<const std::byte> message) noexcept;
  void on_lost(Connection& connection) noexcept;
};

template <class E>
concept Endpoints = requires(E& endpoints, typename E::Connection& connection, std::string_view source,
                             std::span<const std::byte> address, int& error,
                             ConnectionHandler<typename E::Connection>& handler) {
  { connection.owner } -> std::convertible_to<void*>;  // the user's, null at first
  { E::message_bytes_max } -> std::convertible_to<size_t>;
  { E::receive_count } -> std::convertible_to<size_t>;
  { E::address_length } -> std::convertible_to<size_t>;  // of the longest address
  { endpoints.open(source) } -> std::same_as<Result<void>>;
  { endpoints.address() } -> std::same_as<std::span<const std::byte>>;  // where it listens
  { endpoints.connect(address, error) } -> std::same_as<typename E::Connection*>;
  { endpoints.reserve(connection) }
  noexcept->std::same_as<std::byte*>;
  { endpoints.commit(connection, size_t{}) }
  noexcept;
  { endpoints.poll(handler) }
  noexcept->std::same_as<int>;
  { endpoints.close(connection) }
  noexcept;
  { endpoints.close() }
  noexcept;
  { endpoints.wait_fd() }
  noexcept->std::same_as<int>;
  { endpoints.arm() }
  noexcept->std::same_as<bool>;
  { endpoints.disarm() }
  noexcept;
};

template <class H, class Connection>
concept TakesMessageParts = requires(H& handler, Connection& connection, std::span<const std::byte> arrived,
                                     proto::Landing& out) {
  { handler.on_part(connection, arrived, size_t{}) }
  noexcept->std::same_as<proto::Land>;
  { handler.where(connection, out) }
  noexcept;
  { handler.landed(connection, size_t{}) }
  noexcept;
};

// Something waits for the next poll() by itself; push(): that of one connection goes now.
template <class E>
concept CoalescesMessages = requires(E& endpoints, typename E::Connection& connection) {
  { endpoints.has_deferred_sends() }
  noexcept->std::same_as<bool>;
  { endpoints.push(connection) }
  noexcept;
};

// There is no number of send buffers: busy() says whether what is committed would wait.
template <class E>
concept HasNoBufferCount = requires(E& endpoints, typename E::Connection& connection) {
  { endpoints.busy(connection) }
  noexcept->std::same_as<bool>;
};

// Marks behind all that was committed, and behind what needs the endpoints no more.
template <class E>
concept CompletesMessagesLater = requires(E& endpoints, const typename E::Connection& connection) {
  { endpoints.taken(connection) }
  noexcept->std::same_as<uint64_t>;
  { endpoints.completed(connection) }
  noexcept->std::same_as<uint64_t>;
};

// Whether the other side has all that was committed; asked when the connection is about to be dropped.
template <class E>
concept KnowsDelivery = requires(E& endpoints, const typename E::Connection& connection) {
  { endpoints.delivered(connection) }
  noexcept->std::same_as<bool>;
};

// Whether the other side has left; poll() tells it when its messages have been shown.
template <class E>
concept KnowsLeaving = requires(E& endpoints, const typename E::Connection& connection) {
  { endpoints.has_left(connection) }
  noexcept->std::same_as<bool>;
};

// Whether a caller may speak for an address whose owner is connected already.
template <class E>
concept KnowsCallers = requires(E& endpoints, typename E::Connection& caller,
                                std::span<const std::byte> address, typename E::Connection& known) {
  { endpoints.speaks_for(caller, address, known) }
  noexcept->std::same_as<bool>;
};

// Endpoints that send from where bytes lie. `front` is at most front_bytes_max long.
inline constexpr size_t front_bytes_max = 256;
template <class E>
concept SendsParts = requires(E& endpoints, typename E::Connection& connection,
                              std::span<const std::byte> front, const iovec* parts) {
  { endpoints.commit_parts(connection, front, parts, size_t{}) }
  noexcept->std::same_as<bool>;
  { endpoints.commit_in_place(connection, front, parts, size_t{}) }
  noexcept->std::same_as<bool>;
  { endpoints.retain_parts(connection) }
  noexcept;
};

template <class E>
concept HasLargeMessages = SendsParts<E> && requires {
  { E::large_message_bytes_max } -> std::convertible_to<size_t>;
};

}  // namespace weft::link::message
