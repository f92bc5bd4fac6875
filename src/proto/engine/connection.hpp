// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a link of connected endpoints is (FI_EP_MSG): a Link with exactly one peer, which a connection makes and ends, and a listener where
// connections come in. Faces are written against these concepts; another connected link is one type. Must not know any link.
//
// The course of things:
//
//     active side                               passive side
//     open()    a local address, or none yet    Listener: open(), listen()
//     start()   sets out, with data       --->  poll() takes the request in, next() hands it over with its data
//                                               accept() on a connection of its own, or Request::reject()
//     observer: connected(data)           <---  accept(): answers, with data; observer: connected()
//     observer: refused(...)              <---  reject(), or nobody there, or no answer in time
//     shut_down(): what was sent arrives  --->  frames, then Events::peer_lost(), then observer: disconnected()
//
// Rules of the contract, beyond those of link.hpp:
//   - A connection has its peer (Events::make_peer) just before observer.connected(), and loses it (Events::peer_lost) just before
//     observer.disconnected(). forget() says disconnected(), too.
//   - Frames that the peer sent before it left are shown before peer_lost().
//   - advance() moves what is on its way (never frames); poll() does the same and shows frames.
//   - control_fd() is readable while advance(), or poll() because the peer is leaving, has something to do; that includes the end of
//     waiting: every wait for the other side has a bound. It stays quiet while frames come in.
//   - A connection is called by one thread at a time. A listener is called by one thread at a time, another than its connections', perhaps.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "core/provider_error.hpp"
#include "proto/engine/link.hpp"

namespace weft::proto {

// Who is told what became of a connection. Called from start(), accept(), advance(), poll() and forget(). Spans are valid during the call.
struct ConnectionObserver {
  virtual void connected(std::span<const std::byte> data) noexcept = 0;
  // There will be no connection. `error` is a positive errno; `data` is what came with a rejection.
  virtual void refused(int error, core::ProviderError why, std::span<const std::byte> data) noexcept = 0;
  virtual void disconnected(core::ProviderError why) noexcept = 0;

 protected:
  ~ConnectionObserver() = default;
};

// A request for a connection that a listener has taken in. Dropping it refuses it without data.
template <class R>
concept ConnectionRequest = requires(R& request, const R& asked, std::span<const std::byte> data) {
  { asked.data() } -> std::same_as<std::span<const std::byte>>;           // of start()
  { asked.peer_address() } -> std::same_as<std::span<const std::byte>>;   // of the active side
  { asked.local_address() } -> std::same_as<std::span<const std::byte>>;  // where it came in
  { request.reject(data) }
  noexcept;
};

// Where connections come in.
template <class T>
concept ConnectionListener = ConnectionRequest<typename T::Request> && std::default_initializable<T> &&
    requires(T& listener, std::string_view name, int backlog) {
  // Takes a local address (as Link::open does: a text, or all bytes); an empty one, or an open part of it, is chosen. May be repeated.
  { listener.open(name) } -> std::same_as<Result<void>>;
  { listener.address() } -> std::same_as<std::span<const std::byte>>;
  { listener.listen(backlog) } -> std::same_as<Result<void>>;
  // Moves what is on its way. At most `backlog` requests wait in here.
  { listener.poll() }
  noexcept;
  { listener.next() } -> std::same_as<std::unique_ptr<typename T::Request>>;  // or null
  { listener.control_fd() }
  noexcept->std::same_as<int>;
  { listener.close() }
  noexcept;
};

// The other end of a connection: what a front end calls to make it and to end it.
template <class C>
concept Connects = ConnectionListener<typename C::Listener> &&
    requires(C& connection, std::unique_ptr<typename C::Listener::Request> request, std::string_view name,
             std::span<const std::byte> data) {
  { C::connection_data_bytes_max } -> std::convertible_to<size_t>;  // of start(), accept(), reject()
  { connection.start(name, data) } -> std::same_as<Result<void>>;   // to whom
  { connection.accept(std::move(request), data) } -> std::same_as<Result<void>>;
  { connection.advance() }
  noexcept;
  { connection.peer_address() } -> std::same_as<std::span<const std::byte>>;  // empty before there is one
  { connection.control_fd() }
  noexcept->std::same_as<int>;
};

// A Link whose only peer is the other end of a connection. The engine asks for the constant sole_peer; the rest is the front end's.
template <class L>
concept ConnectedLink = Link<L> && SolePeer<L> && Connects<L> &&
    requires(L& link, typename L::Events& events, ConnectionObserver& observer, std::string_view name) {
  { link.open(name, events, observer) } -> std::same_as<Result<void>>;
  { link.shut_down() }
  noexcept;  // nothing is sent any more; peer_lost() is not called, disconnected() when the other side has left
};

}  // namespace weft::proto
