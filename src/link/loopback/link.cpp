// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names of this process and the mailboxes behind them.
#include "link/loopback/link.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/lasting.hpp"

namespace weft::link::loopback {
namespace {

// The endpoints of this process by name.
struct Directory {
  std::mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<Mailbox>> mailboxes;
};

Directory& directory() {
  static Directory& the_directory = make_lasting<Directory>();
  return the_directory;
}

std::shared_ptr<Mailbox> look_up(const std::string& name) {
  Directory& names = directory();
  std::scoped_lock guard(names.mutex);
  const auto found = names.mailboxes.find(name);
  return found == names.mailboxes.end() ? nullptr : found->second.lock();
}

}  // namespace

Result<void> Link::open(std::string_view name, Events& events) {
  static std::atomic<uint64_t> next{1};
  if (name.size() >= address_bytes)
    return Error{ENAMETOOLONG, "a loopback address has at most 47 characters"};
  // The process is part of it: a name that another process made must lead nowhere here.
  name_ = name.empty()
              ? "fi_ns://loopback-" + std::to_string(getpid()) + "-" + std::to_string(next.fetch_add(1))
              : std::string(name);
  Directory& names = directory();
  std::scoped_lock guard(names.mutex);
  if (const auto found = names.mailboxes.find(name_);
      found != names.mailboxes.end() && !found->second.expired())
    return Error{EADDRINUSE, "the loopback address " + name_ + " is taken"};
  events_ = &events;
  auto wakeup = os::Event::create();
  if (!wakeup) return wakeup.error();
  mailbox_ = std::make_shared<Mailbox>();
  mailbox_->wakeup = std::move(*wakeup);
  names.mailboxes[name_] = mailbox_;
  address_ = {};
  std::copy(name_.begin(), name_.end(), address_.begin());
  return {};
}

void Link::say_farewell(Mailbox& to) noexcept {
  std::scoped_lock guard(to.mutex);
  if (!to.open) return;
  try {
    to.frames.push_back({name_, {}, {}, true});
    if (to.sleeping) to.wakeup->notify();
  } catch (const std::bad_alloc&) {  // the peer notices at its next send
  }
}

void Link::close() noexcept {
  if (mailbox_ == nullptr) return;
  {
    Directory& names = directory();
    std::scoped_lock guard(names.mutex);
    names.mailboxes.erase(name_);
  }
  std::deque<Frame> unread;
  {
    std::scoped_lock guard(mailbox_->mutex);
    mailbox_->open = false;
    unread.swap(mailbox_->frames);
  }
  for (auto& [name, peer] : peers_) say_farewell(*peer->mailbox);
  for (const Frame& frame : unread) {  // they sent something that we never looked at
    if (peers_.find(frame.from) != nullptr) continue;
    if (const auto mailbox = look_up(frame.from); mailbox != nullptr) say_farewell(*mailbox);
  }
  peers_.clear();
  mailbox_.reset();
}

Peer* Link::connect(std::span<const std::byte> address, int& error) {
  error = 0;
  std::string key(reinterpret_cast<const char*>(address.data()), std::min(address.size(), address_bytes));
  key.resize(::strnlen(key.data(), key.size()));
  if (Peer* known = peers_.find(key); known != nullptr) return known;
  std::shared_ptr<Mailbox> mailbox = look_up(key);
  if (mailbox == nullptr) {
    error = EHOSTUNREACH;
    return nullptr;
  }
  std::array<char, address_bytes> padded{};
  std::copy(key.begin(), key.end(), padded.begin());
  proto::PeersByName<Peer>::Reservation reservation(peers_, key);
  Peer* peer = events_->make_peer(std::as_bytes(std::span(padded)));
  peer->name = key;
  peer->mailbox = std::move(mailbox);
  reservation.assign(*peer);
  return peer;
}

void Link::forget(Peer& peer) noexcept { peers_.erase(peer.name); }

void Link::lose(Peer& peer) noexcept {
  peers_.erase(peer.name);
  events_->peer_lost(peer, core::ProviderError::PeerClosed);
}

bool Link::send(Peer& peer, const wire::FrameHead& head, std::span<const std::byte> prefix,
                const iovec* parts, size_t part_count) noexcept try {
  Mailbox& to = *peer.mailbox;
  std::unique_lock guard(to.mutex);
  if (!to.open) {  // it has left: we hear that from ourselves
    guard.unlock();
    std::scoped_lock own(mailbox_->mutex);
    mailbox_->frames.push_back({peer.name, {}, {}, true});
    return true;
  }
  if (to.frames.size() >= mailbox_frames) return false;
  Frame frame{name_, head, {}, false};
  frame.payload.reserve(head.length);
  frame.payload.assign(prefix.begin(), prefix.end());
  for (size_t i = 0; i < part_count; ++i) {
    const auto* bytes = static_cast<const std::byte*>(parts[i].iov_base);
    frame.payload.insert(frame.payload.end(), bytes, bytes + parts[i].iov_len);
  }
  to.frames.push_back(std::move(frame));
  if (to.sleeping) to.wakeup->notify();
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

bool Link::arm() noexcept {
  std::scoped_lock guard(mailbox_->mutex);
  mailbox_->sleeping = mailbox_->frames.empty();
  return mailbox_->sleeping;
}

void Link::disarm() noexcept {
  std::scoped_lock guard(mailbox_->mutex);
  mailbox_->sleeping = false;
  mailbox_->wakeup->drain();
}

// Only this endpoint takes frames out, so the front stays put while the lock is not held.
Frame* Link::front() noexcept {
  std::scoped_lock guard(mailbox_->mutex);
  return mailbox_->frames.empty() ? nullptr : &mailbox_->frames.front();
}

void Link::pop() noexcept {
  std::scoped_lock guard(mailbox_->mutex);
  mailbox_->frames.pop_front();
}

Peer* Link::peer_of(const Frame& frame) noexcept {
  if (Peer* known = peers_.find(frame.from); known != nullptr) return known;
  if (frame.farewell) return nullptr;
  std::array<char, address_bytes> padded{};
  std::copy(frame.from.begin(), frame.from.end(), padded.begin());
  int error = 0;
  try {
    Peer* peer = connect(std::as_bytes(std::span(padded)), error);
    if (peer != nullptr) return peer;
    // It said something and closed: its last frames still count, answers go nowhere.
    proto::PeersByName<Peer>::Reservation reservation(peers_, frame.from);
    peer = events_->make_peer(std::as_bytes(std::span(padded)));
    peer->name = frame.from;
    peer->mailbox = std::make_shared<Mailbox>();
    peer->mailbox->open = false;
    reservation.assign(*peer);
    return peer;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace weft::link::loopback
