// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Listeners of this process by name, and connections as pairs of inboxes.
#include "link/loopback/connection.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <unordered_map>
#include <utility>

#include "base/lasting.hpp"

namespace weft::link::loopback {
namespace {

struct Directory {
  std::mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<Hall>> halls;
};

Directory& directory() {
  static Directory& the_directory = make_lasting<Directory>();
  return the_directory;
}

Address padded(std::string_view name) noexcept {
  Address address{};
  std::copy_n(name.begin(), std::min(name.size(), address.size() - 1), address.begin());
  return address;
}

// The given name, or one that nobody has.
Result<std::string> choose(std::string_view name) {
  static std::atomic<uint64_t> next{1};
  if (name.size() >= address_bytes)
    return Error{ENAMETOOLONG, "a loopback address has at most 47 characters"};
  if (!name.empty()) return std::string(name);
  return "fi_ns://loopback-msg-" + std::to_string(next.fetch_add(1));
}

}  // namespace

std::shared_ptr<Inbox> Inbox::create() {
  auto wakeup = os::Event::create();
  auto notice = os::Event::create();
  if (!wakeup || !notice) return nullptr;
  auto inbox = std::make_shared<Inbox>();
  inbox->wakeup = std::move(*wakeup);
  inbox->notice = std::move(*notice);
  return inbox;
}

bool Inbox::put(Parcel&& parcel) noexcept try {
  std::scoped_lock guard(mutex);
  const bool frame = parcel.kind == Parcel::Kind::Frame;
  if (!open || (frame && parcels.size() >= inbox_frames)) return false;
  parcels.push_back(std::move(parcel));
  if (sleeping) wakeup->notify();
  if (!frame) notice->notify();
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// --- requests ---

Request::Request(std::string_view from, std::string_view to, std::span<const std::byte> data,
                 std::shared_ptr<Inbox> asker)
    : from_(padded(from)), to_(padded(to)), data_(data.begin(), data.end()), asker_(std::move(asker)) {}

void Request::reject(std::span<const std::byte> data) noexcept {
  if (asker_ == nullptr) return;
  Parcel parcel;
  parcel.kind = Parcel::Kind::Rejected;
  try {
    parcel.payload.assign(data.begin(), data.end());
  } catch (const std::bad_alloc&) {  // refused without a word
  }
  (void)asker_->put(std::move(parcel));
  asker_.reset();
}

// --- listeners ---

Result<void> Listener::open(std::string_view name) {
  auto chosen = choose(name);
  if (!chosen) return chosen.error();
  auto notice = os::Event::create();
  if (!notice) return notice.error();
  auto hall = std::make_shared<Hall>();
  hall->notice = std::move(*notice);
  {
    std::scoped_lock guard(directory().mutex);
    auto& entry = directory().halls[*chosen];
    if (!entry.expired() && *chosen != name_)
      return Error{EADDRINUSE, "the loopback address " + *chosen + " is taken"};
    entry = hall;
  }
  if (hall_ != nullptr && name_ != *chosen) close();
  hall_ = std::move(hall);
  name_ = std::move(*chosen);
  address_ = padded(name_);
  return {};
}

Result<void> Listener::listen(int backlog) {
  std::scoped_lock guard(hall_->mutex);
  hall_->backlog = static_cast<size_t>(std::max(backlog, 1));
  return {};
}

std::unique_ptr<Request> Listener::next() noexcept {
  if (hall_ == nullptr) return nullptr;
  std::scoped_lock guard(hall_->mutex);
  if (hall_->requests.empty()) {
    hall_->notice->drain();
    return nullptr;
  }
  auto request = std::move(hall_->requests.front());
  hall_->requests.pop_front();
  return request;
}

void Listener::close() noexcept {
  if (hall_ == nullptr) return;
  {
    std::scoped_lock guard(directory().mutex);
    const auto found = directory().halls.find(name_);
    if (found != directory().halls.end() && found->second.lock() == hall_) directory().halls.erase(found);
  }
  const std::shared_ptr<Hall> hall = std::exchange(hall_, nullptr);
  std::deque<std::unique_ptr<Request>> unheard;  // refused when it goes
  std::scoped_lock guard(hall->mutex);
  hall->backlog = 0;
  unheard.swap(hall->requests);
}

// --- connections ---

Result<void> Connection::open(std::string_view name, Events& events, proto::ConnectionObserver& observer) {
  auto chosen = choose(name);
  if (!chosen) return chosen.error();
  auto inbox = Inbox::create();
  if (inbox == nullptr) return Error{EMFILE, "no descriptor is left for a connection"};
  name_ = std::move(*chosen);
  address_ = padded(name_);
  inbox_ = std::move(inbox);
  events_ = &events;
  observer_ = &observer;
  return {};
}

Result<void> Connection::start(std::string_view name, std::span<const std::byte> data) {
  std::shared_ptr<Hall> hall;
  {
    std::scoped_lock guard(directory().mutex);
    const auto found = directory().halls.find(std::string(name));
    if (found != directory().halls.end()) hall = found->second.lock();
  }
  peer_address_ = padded(name);
  auto request = std::make_unique<Request>(name_, name, data, inbox_);
  if (hall == nullptr) return {};  // the request goes, and with it goes a rejection to us
  std::scoped_lock guard(hall->mutex);
  if (hall->requests.size() >= hall->backlog) return {};
  hall->requests.push_back(std::move(request));
  hall->notice->notify();
  return {};
}

Result<void> Connection::accept(std::unique_ptr<Request> request, std::span<const std::byte> data) {
  Parcel parcel;
  parcel.kind = Parcel::Kind::Accepted;
  parcel.payload.assign(data.begin(), data.end());
  parcel.sender = inbox_;
  auto asker = std::exchange(request->asker_, nullptr);
  if (asker == nullptr || !asker->put(std::move(parcel)))
    return Error{ECONNABORTED, "who asked for the connection has gone"};
  peer_address_ = request->from_;
  other_ = std::move(asker);
  peer_ = events_->make_peer(peer_address());
  observer_->connected({});
  return {};
}

// All but a frame.
void Connection::handle_notice(Parcel& parcel) noexcept {
  if (parcel.kind == Parcel::Kind::Accepted) {
    other_ = std::move(parcel.sender);
    try {
      peer_ = events_->make_peer(peer_address());
    } catch (const std::bad_alloc&) {
      other_.reset();
      observer_->refused(ENOMEM, core::ProviderError::NoChannel, {});
      return;
    }
    observer_->connected(parcel.payload);
  } else if (parcel.kind == Parcel::Kind::Rejected) {
    observer_->refused(ECONNREFUSED,
                       parcel.payload.empty() ? core::ProviderError::ConnectionRefused
                                              : core::ProviderError::ConnectionRejected,
                       parcel.payload);
  } else {
    if (Other* peer = std::exchange(peer_, nullptr))
      events_->peer_lost(*peer, core::ProviderError::PeerClosed);
    shut_down();  // so that the other side hears that we have seen it
    observer_->disconnected(core::ProviderError::PeerClosed);
  }
}

void Connection::shut_down() noexcept {
  if (other_ == nullptr || std::exchange(shut_, true)) return;
  peer_ = nullptr;
  Parcel farewell;
  farewell.kind = Parcel::Kind::Farewell;
  (void)other_->put(std::move(farewell));
}

void Connection::close() noexcept {
  if (inbox_ == nullptr) return;
  shut_down();
  std::deque<Parcel> unread;
  {
    std::scoped_lock guard(inbox_->mutex);
    inbox_->open = false;
    unread.swap(inbox_->parcels);
  }
  for (Parcel& parcel : unread) {  // accepted, and we never looked
    if (parcel.sender == nullptr) continue;
    Parcel farewell;
    farewell.kind = Parcel::Kind::Farewell;
    (void)parcel.sender->put(std::move(farewell));
  }
  other_.reset();
  inbox_.reset();
}

Other* Connection::connect(std::span<const std::byte>, int& error) noexcept {
  error = peer_ == nullptr ? ENOTCONN : 0;
  return peer_;
}

void Connection::forget(Other&) noexcept {
  shut_down();
  peer_ = nullptr;
  observer_->disconnected(core::ProviderError::PeerMisbehaved);
}

bool Connection::send(Other&, const wire::FrameHead& head, std::span<const std::byte> prefix,
                      const iovec* parts, size_t part_count) noexcept try {
  Parcel parcel;
  parcel.head = head;
  parcel.payload.reserve(head.length);
  parcel.payload.assign(prefix.begin(), prefix.end());
  for (size_t i = 0; i < part_count; ++i) {
    const auto* bytes = static_cast<const std::byte*>(parts[i].iov_base);
    parcel.payload.insert(parcel.payload.end(), bytes, bytes + parts[i].iov_len);
  }
  return other_->put(std::move(parcel));
} catch (const std::bad_alloc&) {
  return false;
}

bool Connection::arm() noexcept {
  std::scoped_lock guard(inbox_->mutex);
  inbox_->sleeping = inbox_->parcels.empty();
  return inbox_->sleeping;
}

void Connection::disarm() noexcept {
  std::scoped_lock guard(inbox_->mutex);
  inbox_->sleeping = false;
  inbox_->wakeup->drain();
}

// Only this end takes parcels out, so the front stays put while the lock is not held.
Parcel* Connection::front() noexcept {
  if (inbox_ == nullptr) return nullptr;
  std::scoped_lock guard(inbox_->mutex);
  return inbox_->parcels.empty() ? nullptr : &inbox_->parcels.front();
}

void Connection::pop() noexcept {
  std::scoped_lock guard(inbox_->mutex);
  if (inbox_->parcels.front().kind != Parcel::Kind::Frame) inbox_->notice->consume_one();
  inbox_->parcels.pop_front();
}

static_assert(proto::ConnectedLink<Connection> && proto::HasSleep<Connection>);

}  // namespace weft::link::loopback
