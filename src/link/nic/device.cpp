// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opening and closing, frames out and in.
#include "link/nic/device.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "arch/cpu.hpp"
#include "link/nic/addressee.hpp"
#include "link/nic/frames.hpp"
#include "os/clock.hpp"
#include "os/event.hpp"
#include "os/poll_set.hpp"
#include "wire/ip.hpp"

namespace weft::link::nic {
namespace {

constexpr uint16_t dynamic_ports = 49152;  // RFC 6335 section 6
constexpr uint16_t discard_port = 9;       // of the host's own stack, which takes no UDP

}  // namespace

// --- opening and closing ---

Result<void> Device::open(std::unique_ptr<Card> card, const Configuration& configuration) {
  card_ = std::move(card);
  configuration_ = configuration;
  origin_ = {};
  statistics_ = {};
  is_lost_ = has_link_ = false;
  regions_ = {};
  in_place_ = 0;
  still_since_ = 0;
  resets_ = 0;
  auto ok = start();
  if (!ok) close();
  return ok;
}

Result<void> Device::start() {
  const size_t head =
      wire::Ethernet::bytes + (configuration_.network.vlan != 0 ? wire::Ethernet::tag_bytes : 0);
  settings_ = {};
  settings_.frame_bytes_max = head + configuration_.mtu_bytes;
  settings_.transmit_descriptors = transmit_descriptors;
  if (auto ok = card_->open(settings_); !ok) return ok;
  mac_ = card_->mac();
  descriptors_reserved_ = std::min(descriptors_reserved, card_->transmit_room() / 2);
  mtu_bytes_ = std::min(configuration_.mtu_bytes, card_->frame_bytes_max() - head);
  if (auto ok = make_buffers(); !ok) return ok;
  os::SocketAddress own = configuration_.address;
  own.set_port(discard_port);
  if (auto ok = host_.open(own, configuration_.network, mac_, mtu_bytes_, os::random_bits()); !ok) return ok;
  own_ = ethernet::host_of(own);
  if (const auto group = host_.solicited_mac()) (void)join(*group);  // a full filter passes everything
  await_link();
  answer();  // announces the address
  return {};
}

// Autonegotiation takes up to seconds; what is sent before is lost.
void Device::await_link() noexcept {
  constexpr unsigned pause_us = 1'000;
  for (unsigned waited = 0; !(has_link_ = card_->has_link()) && !card_->is_broken() && waited < link_wait_us;
       waited += pause_us)
    card_->wait_us(pause_us);
  check_at_ = os::monotonic_ns() + check_ns;
  if (!has_link_) warn("no carrier");
}

Result<void> Device::make_buffers() {
  constexpr size_t line = 64;
  slot_bytes_ = (card_->frame_bytes_max() + line - 1) / line * line;
  // One that the driver adds, and one for each page that a buffer may touch.
  constexpr size_t page_bytes = 4096;
  descriptors_per_copy_ = 2 + (slot_bytes_ + page_bytes - 1) / page_bytes;
  const size_t count = std::clamp(bounce_bytes_max / slot_bytes_, bounce_buffers_min, bounce_buffers_max);
  auto memory = card_->allocate(count * slot_bytes_);
  if (!memory) return memory.error();
  buffers_ = *memory;
  slots_.assign(count, {});
  free_.clear();
  free_.reserve(count);
  for (size_t i = count; i-- > 0;) free_.push_back(static_cast<uint16_t>(i));
  return {};
}

void Device::close() noexcept {
  if (card_ == nullptr) return;
  if (origin_.is_here()) {
    card_->close();
    for (auto& region : mapped_) unmap(*region);
    if (buffers_.bytes != nullptr) card_->release(buffers_);
  } else {
    card_->abandon();
  }
  host_.close();
  mapped_.clear();
  groups_.clear();
  slots_.clear();
  free_.clear();
  buffers_ = {};
  card_.reset();
}

void Device::warn(const std::string& what) const noexcept try {
  if (warning_ == nullptr) return;
  const std::string text = "network card " + configuration_.card + ": " + what;
  warning_(warned_, text.c_str());
} catch (const std::bad_alloc&) {
}

DriverCounters Device::driver_counters() const noexcept {
  return is_usable() ? card_->counters() : DriverCounters();
}

std::vector<proto::DeviceCounter> Device::counters() const {
  const DriverCounters driver = driver_counters();
  const Statistics& own = statistics_;
  return {{"frames_sent", driver.frames_sent},
          {"bytes_sent", driver.bytes_sent},
          {"frames_received", driver.frames_received},
          {"bytes_received", driver.bytes_received},
          {"frames_bad", driver.frames_bad},
          {"frames_missed", driver.frames_missed},
          {"transmit_doorbells", driver.transmit_doorbells},
          {"receive_doorbells", driver.receive_doorbells},
          {"in_place_bytes", own.in_place_bytes},
          {"copied_bytes", own.copied_bytes},
          {"looped", own.looped},
          {"for_nobody", own.for_nobody},
          {"inbox_full", own.inbox_full},
          {"lost_without_link", own.lost_without_link},
          {"no_room", own.no_room},
          {"resets", own.resets},
          {"link_changes", own.link_changes},
          {"regions_not_mapped", own.regions_not_mapped}};
}

// --- endpoints ---

const Device::Endpoint* Device::find(uint16_t port) const noexcept {
  const auto at = std::ranges::lower_bound(endpoints_, port, {}, &Endpoint::port);
  return at != endpoints_.end() && at->port == port ? &*at : nullptr;
}

Result<void> Device::attach(Frames& endpoint, uint16_t port) {
  if (card_ == nullptr || !origin_.is_here()) return Error{ENODEV, "the network card is not open here"};
  if (find(port) != nullptr)
    return Error{EADDRINUSE, "port " + std::to_string(port) + " of the network card " + configuration_.card +
                                 " is another endpoint's"};
  if (endpoints_.size() == endpoints_max)
    return Error{ENOSPC, "a network card has at most " + std::to_string(endpoints_max) + " endpoints"};
  const auto at = std::ranges::lower_bound(endpoints_, port, {}, &Endpoint::port);
  endpoints_.insert(at, Endpoint{port, &endpoint});
  return {};
}

void Device::detach(Frames& endpoint) noexcept {
  std::erase_if(endpoints_, [&](const Endpoint& one) { return one.frames == &endpoint; });
}

uint16_t Device::draw_port() const noexcept {
  constexpr unsigned tries = 4096;  // of 16384 ports, at most endpoints_max taken
  for (unsigned i = 0; i < tries; ++i) {
    const auto port = static_cast<uint16_t>(dynamic_ports + os::random_bits() % (65536 - dynamic_ports));
    if (find(port) == nullptr) return port;
  }
  return 0;
}

int Device::join(const wire::Mac& group) noexcept try {
  if (!is_usable()) return -ENODEV;
  const auto known = std::ranges::find(groups_, group, &Group::mac);
  if (known != groups_.end()) {
    ++known->users;
    return 0;
  }
  groups_.reserve(groups_.size() + 1);
  (void)card_->join(group);  // -ENOSPC: everything passes now, which serves as well
  groups_.push_back({group, 1});
  return 0;
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

void Device::leave(const wire::Mac& group) noexcept {
  const auto known = std::ranges::find(groups_, group, &Group::mac);
  if (known == groups_.end() || --known->users != 0) return;
  groups_.erase(known);
  if (is_usable()) card_->leave(group);
}

// --- frames out ---

// The fragments of one frame: runs of copied bytes in a bounce buffer, and bytes that stay where the program has them.
class Device::Gatherer {
 public:
  Gatherer(Slot& slot, std::byte* buffer, uint64_t address, size_t room) noexcept
      : slot_(slot), buffer_(buffer), address_(address), room_(room) {}

  // False: more than the buffer takes.
  bool copy(const iovec& part) noexcept {
    if (part.iov_len > room_ - used_) return false;
    if (part.iov_len != 0) std::memcpy(buffer_ + used_, part.iov_base, part.iov_len);
    used_ += part.iov_len;
    return true;
  }
  bool takes_piece() const noexcept {
    return slot_.piece_count < pieces_max && count_ + 3 <= fragments_.size();
  }
  void refer(Piece& piece, const iovec& part) noexcept {
    end_run();
    fragments_[count_++] = {piece.address + (reinterpret_cast<uintptr_t>(part.iov_base) - piece.begin),
                            static_cast<uint32_t>(part.iov_len)};
    slot_.pieces[slot_.piece_count++] = &piece;
    ++piece.in_frames;
    in_place_ += part.iov_len;
  }
  std::span<const Fragment> fragments() noexcept {
    end_run();
    return {fragments_.data(), count_};
  }
  size_t copied() const noexcept { return used_; }
  size_t in_place() const noexcept { return in_place_; }

 private:
  void end_run() noexcept {
    if (used_ == shown_) return;
    fragments_[count_++] = {address_ + shown_, static_cast<uint32_t>(used_ - shown_)};
    shown_ = used_;
  }

  Slot& slot_;
  std::byte* buffer_;
  uint64_t address_;
  size_t room_;
  size_t used_ = 0;
  size_t shown_ = 0;  // of the buffer, in fragments
  size_t in_place_ = 0;
  size_t count_ = 0;
  std::array<Fragment, weft::nic::fragments_max> fragments_;
};

bool Device::send(const iovec* parts, size_t count, bool stays) noexcept {
  if (!is_usable()) [[unlikely]]
    return true;  // lost
  if (is_to_us(parts[0])) [[unlikely]] {
    loop(parts, count);
    return true;
  }
  if (!has_link_) [[unlikely]] {
    ++statistics_.lost_without_link;
    return true;
  }
  if (free_.empty() && !make_room()) [[unlikely]] {
    ++statistics_.no_room;
    return false;
  }
  const uint16_t index = free_.back();
  Slot& slot = slots_[index];
  Gatherer frame(slot, buffers_.bytes + index * slot_bytes_, buffers_.address + index * slot_bytes_,
                 slot_bytes_);
  // A payload in place takes more descriptors than a copy. Where they become few, room for others comes first.
  const bool may_refer = stays && !regions_.empty() && card_->transmit_room() >= descriptors_reserved_;
  for (size_t i = 0; i < count; ++i) {
    const iovec& part = parts[i];
    if (may_refer && part.iov_len >= in_place_bytes_min && frame.takes_piece()) {
      if (Piece* const piece = regions_.find(part.iov_base, part.iov_len); piece != nullptr) {
        frame.refer(*piece, part);
        continue;
      }
    }
    if (frame.copy(part)) continue;
    release(slot);
    return true;  // longer than a frame: lost
  }
  if (!card_->post(frame.fragments(), index)) [[unlikely]] {
    release(slot);
    if (free_.size() == slots_.size()) return true;  // an empty ring does not take it: lost
    ++statistics_.no_room;
    card_->kick();
    return false;
  }
  free_.pop_back();
  in_place_ += slot.piece_count != 0 ? 1 : 0;
  ++statistics_.sent;
  statistics_.copied_bytes += frame.copied();
  statistics_.in_place_bytes += frame.in_place();
  return true;
}

bool Device::has_room(size_t frames) noexcept {
  if (!is_usable() || !has_link_) return true;  // they are lost
  const auto has_it = [&] {
    return frames_in_flight() == 0 ||
           (free_.size() >= frames && card_->transmit_room() >= frames * descriptors_per_copy_);
  };
  // Beyond what is kept, so that payloads need not be copied.
  constexpr size_t descriptors_in_place = 4;
  if (card_->transmit_room() < descriptors_reserved_ + frames * descriptors_in_place) (void)make_room();
  if (has_it()) return true;
  ++statistics_.no_room;
  return false;
}

bool Device::make_room() noexcept {
  card_->kick();
  if (!is_receiving_) (void)card_->reclaim(*this);
  return !free_.empty();
}

// The device says which frame it has read; the driver has bounded it by what was posted.
void Device::on_token(uint64_t token) noexcept {
  in_place_ -= slots_[token].piece_count != 0 ? 1 : 0;
  release(slots_[token]);
  free_.push_back(static_cast<uint16_t>(token));
  ++reclaimed_;
}

void Device::release(Slot& slot) noexcept {
  for (size_t i = 0; i < slot.piece_count; ++i) --slot.pieces[i]->in_frames;
  slot.piece_count = 0;
}

void Device::forget_frames() noexcept {
  regions_.forget_frames();
  in_place_ = 0;
  free_.clear();
  for (size_t i = slots_.size(); i-- > 0;) {
    slots_[i].piece_count = 0;
    free_.push_back(static_cast<uint16_t>(i));
  }
}

bool Device::is_to_us(const iovec& head) const noexcept {
  return head.iov_len >= wire::Ethernet::bytes && std::memcmp(head.iov_base, mac_.data(), mac_.size()) == 0;
}

// From one endpoint here to another: no card sends to itself.
void Device::loop(const iovec* parts, size_t count) noexcept {
  const std::span head(static_cast<const std::byte*>(parts[0].iov_base), parts[0].iov_len);
  const Addressee to = addressee_of(head, own_);
  const Endpoint* const endpoint = to.kind == Addressee::Kind::Port ? find(to.port) : nullptr;
  if (endpoint == nullptr) ++statistics_.for_nobody;
  else ++(endpoint->frames->put(parts, count, true) ? statistics_.looped : statistics_.inbox_full);
}

// --- frames in ---

class Device::Receiver final : public FrameSink {
 public:
  Receiver(Device& device, const Frames* direct, FrameSink* sink) noexcept
      : device_(device), direct_(direct), sink_(sink) {}

  void on_frame(std::span<const std::byte> frame, bool is_checked) noexcept override {
    const Addressee to = addressee_of(frame, device_.own_);
    switch (to.kind) {
      case Addressee::Kind::Port:
        if (const Endpoint* endpoint = device_.find(to.port)) give(*endpoint, frame, is_checked);
        else ++device_.statistics_.for_nobody;
        return;
      case Addressee::Kind::Group: {
        bool is_for_somebody = false;
        for (const Endpoint& endpoint : device_.endpoints_) {
          if (!endpoint.frames->has_joined(to.group)) continue;
          is_for_somebody = true;
          give(endpoint, frame, is_checked);
        }
        if (!is_for_somebody) ++device_.statistics_.for_nobody;
        return;
      }
      case Addressee::Kind::Everyone:
        for (const Endpoint& endpoint : device_.endpoints_) give(endpoint, frame, is_checked);
        return;
      case Addressee::Kind::Host: {
        proto::ReceivedPacket none;
        ++device_.statistics_.received;
        (void)device_.host_.on_frame({frame, 0, is_checked}, os::monotonic_ns(), none);
        return;
      }
      case Addressee::Kind::Nobody:
        ++device_.statistics_.for_nobody;
        return;
    }
  }
  int shown() const noexcept { return shown_; }

 private:
  void give(const Endpoint& endpoint, std::span<const std::byte> frame, bool is_checked) noexcept {
    if (endpoint.frames != direct_) {
      device_.deliver(*endpoint.frames, frame, is_checked);
      return;
    }
    ++device_.statistics_.received;
    ++shown_;
    sink_->on_frame(frame, is_checked);
  }

  Device& device_;
  const Frames* direct_;
  FrameSink* sink_;
  int shown_ = 0;
};

void Device::deliver(Frames& to, std::span<const std::byte> frame, bool is_checked) noexcept {
  const iovec part{const_cast<std::byte*>(frame.data()), frame.size()};
  ++(to.put(&part, 1, is_checked) ? statistics_.received : statistics_.inbox_full);
}

int Device::poll(const Frames* direct, FrameSink* sink) noexcept {
  if (!is_usable() || is_receiving_) [[unlikely]]
    return 0;
  (void)card_->reclaim(*this);
  Receiver receiver(*this, direct, sink);
  is_receiving_ = true;
  const size_t frames = card_->receive(receiver, frames_per_poll);
  is_receiving_ = false;
  if (host_.is_busy()) [[unlikely]]
    answer();
  if (card_->is_broken()) [[unlikely]]
    recover("it contradicts itself");
  else if (frames == 0 || ++busy_polls_ % busy_polls_per_check == 0)
    if (const uint64_t now = os::monotonic_ns(); now >= check_at_) check(now);
  return receiver.shown();
}

// What the host's own stack says: answers, the announcement of the address.
void Device::answer() noexcept {
  host_.send_control([&](wire::Bytes frame) {
    const iovec part{const_cast<std::byte*>(frame.data()), frame.size()};
    return send(&part, 1, false);
  });
  host_.send_resolved([](wire::Bytes) { return true; });  // it has none, and forgets whom it heard of
  flush();
}

bool Device::arm() noexcept {
  if (!origin_.is_here() || card_ == nullptr) return false;
  if (is_lost_) return true;  // nothing comes any more
  if (host_.is_busy()) return false;
  if (card_->arm()) return true;
  check_at_ = 0;  // perhaps the link has changed
  return false;
}

// --- the state of the card ---

void Device::check(uint64_t now) noexcept {
  check_at_ = now + check_ns;
  const bool has_link = card_->has_link();
  if (card_->is_broken()) {
    recover("it does not answer");
    return;
  }
  update_link(has_link);
  if (reclaimed_ != reclaimed_seen_ || frames_in_flight() == 0 || !has_link_) {
    reclaimed_seen_ = reclaimed_;
    still_since_ = 0;
  } else if (still_since_ == 0) {
    still_since_ = now;  // nobody may have looked for long before: the frames can be a microsecond old
  } else if (now - still_since_ > hang_ns) {
    recover("it has sent nothing for two seconds");
  }
}

void Device::update_link(bool has_link) noexcept {
  if (has_link == has_link_) return;
  has_link_ = has_link;
  ++statistics_.link_changes;
  warn(has_link ? "carrier is back" : "no carrier");
}

// Frames under way are lost, as on the wire.
void Device::recover(const char* why) noexcept try {
  const uint64_t now = os::monotonic_ns();
  if (now - resets_since_ > reset_window_ns) {
    resets_since_ = now;
    resets_ = 0;
  }
  ++statistics_.resets;
  Result<void> opened = Error{EIO, "it was reset " + std::to_string(resets_max) + " times in short order"};
  card_->close();
  forget_frames();
  still_since_ = 0;
  if (++resets_ <= resets_max) opened = card_->open(settings_);
  if (opened) {
    warn(std::string(why) + ", and was reset");
    check_at_ = 0;
    return;
  }
  is_lost_ = true;
  card_->close();
  warn(std::string(why) + ", and is given up: " + opened.error().why);
} catch (const std::bad_alloc&) {
  is_lost_ = true;
  card_->close();
}

// --- regions ---

int Device::add(const core::Registration& registration, core::Registered& out) noexcept try {
  if (!registration.rights.device_reads() || !is_usable()) return 0;  // the card only reads
  auto region = std::make_unique<Region>();
  region->pieces.reserve(registration.pieces.size());
  mapped_.reserve(mapped_.size() + 1);
  for (const iovec& part : registration.pieces) {
    if (part.iov_len == 0) continue;
    auto address = card_->map(part.iov_base, part.iov_len);
    if (!address) {
      if (statistics_.regions_not_mapped++ == 0)
        warn("memory that the program registers is copied: " + address.error().why);
      break;
    }
    try {
      region->pieces.push_back(regions_.add(part.iov_base, part.iov_len, *address));
    } catch (const std::bad_alloc&) {
      card_->unmap(*address);
      unmap(*region);
      return -ENOMEM;
    }
  }
  if (region->pieces.empty()) return 0;
  out.handle = region.get();
  mapped_.push_back(std::move(region));
  return 0;
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

bool Device::is_read(const Region& region) const noexcept {
  return std::ranges::any_of(region.pieces, [](const Piece* piece) { return piece->in_frames != 0; });
}

template <class IsRead>
void Device::await_reads(IsRead&& is_read) noexcept {
  if (!is_read()) return;
  card_->kick();
  for (const uint64_t until = os::monotonic_ns() + remove_wait_ns; is_read() && os::monotonic_ns() < until;
       arch::pause())
    (void)card_->reclaim(*this);
  // A card that does not come to them would read other bytes, or fault, at a time of its own.
  if (is_read()) recover("it does not send what is to be the program's again");
}

void Device::await_no_reads() noexcept {
  if (is_usable() && !is_receiving_) await_reads([&] { return in_place_ != 0; });
}

int Device::remove(const core::Registration&, void* handle) noexcept {
  const auto at = std::ranges::find_if(mapped_, [&](const auto& region) { return region.get() == handle; });
  if (at == mapped_.end()) return 0;
  Region& region = **at;
  if (is_usable()) await_reads([&] { return is_read(region); });
  if (origin_.is_here()) unmap(region);
  mapped_.erase(at);
  return 0;
}

void Device::unmap(Region& region) noexcept {
  for (const Piece* piece : region.pieces) {
    card_->unmap(piece->address);
    regions_.remove(piece);
  }
  region.pieces.clear();
}

}  // namespace weft::link::nic
