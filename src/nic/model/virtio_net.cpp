// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "nic/model/virtio_net.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::nic::model {

namespace spec = virtio_net;
namespace common = virtio_net::common;
using spec::EventSuppression;
using spec::FrameHeader;

namespace {

constexpr unsigned receive = spec::receive_queue;
constexpr unsigned sending = spec::transmit_queue;
constexpr unsigned commands = spec::control_queue;
constexpr size_t gathered_bytes_max = 1u << 17;  // a frame or a command

// What follows id and next pointer of a capability (4.1.4).
std::vector<std::byte> capability(uint8_t type, size_t offset, size_t bytes, bool is_notify = false) {
  namespace field = spec::capability;
  constexpr size_t before = field::bytes;  // id and next pointer
  std::vector<std::byte> out((is_notify ? field::notify_bytes_min : field::bytes_min) - before);
  const auto put32 = [&](size_t at, size_t value) {
    const auto word = static_cast<uint32_t>(value);
    std::memcpy(&out[at - before], &word, sizeof word);
  };
  out[field::bytes - before] = static_cast<std::byte>(out.size() + before);
  out[field::type - before] = std::byte{type};
  out[field::bar - before] = std::byte{VirtioNet::bar_index};
  put32(field::offset, offset);
  put32(field::length, bytes);
  if (is_notify) put32(field::notify_multiplier, VirtioNet::notify_multiplier);
  return out;
}

wire::Mac mac_at(std::span<const std::byte> bytes) {
  wire::Mac mac;
  std::memcpy(mac.data(), bytes.data(), mac.size());
  return mac;
}

}  // namespace

VirtioNet::VirtioNet(Hub& hub, const Settings& settings)
    : settings_(settings), hub_(hub), config_(spec::vendor_id, spec::device_id, 1, 1) {
  const std::vector<std::byte> vectors{std::byte(settings_.vectors - 1), {}};
  if (settings_.vectors > 0) config_.add_capability(capability_msix, vectors);
  config_.add_capability(capability_vendor,
                         capability(spec::capability::common, common_offset, common::bytes));
  config_.add_capability(capability_vendor, capability(spec::capability::interrupt_status, isr_offset, 1));
  config_.add_capability(capability_vendor, capability(spec::capability::device, device_offset, 12));
  config_.add_capability(capability_vendor, capability(spec::capability::notify, notify_offset,
                                                       queues_max * notify_multiplier, true));
  reset_state();
  hub_.plug(*this);
}

VirtioNet::~VirtioNet() { hub_.unplug(*this); }

// --- registers ---

void VirtioNet::reset_state() noexcept {
  status_ = 0;
  driver_features_ = 0;
  device_feature_select_ = driver_feature_select_ = 0;
  queue_select_ = 0;
  config_vector_ = common::no_vector;
  for (DeviceQueue& queue : queues_) {
    queue = {};
    queue.size = settings_.queue_size_max;
  }
  is_promiscuous_ = true;
  passes_all_groups_ = false;
  unicast_.clear();
  groups_.clear();
}

bool VirtioNet::reset() noexcept {
  if (!settings_.has_function_reset) return false;
  reset_state();
  reset_left_ = 0;
  config_.write(ConfigSpace::command, 2, 0);
  if (host_) host_->is_master = false;
  return true;
}

void VirtioNet::write_status(uint8_t value) noexcept {
  if (value == 0) {
    if (status_ != 0) reset_left_ = settings_.reset_reads;
    reset_state();
    return;
  }
  forbid(reset_left_ != 0, "status written before the reset was over (2.4.1)");
  forbid((status_ & ~value & ~spec::status::needs_reset) != 0,
         "a status bit cleared without a reset (2.1.1)");
  const uint8_t fresh = value & ~status_;
  if (fresh & spec::status::features_ok) {
    forbid((driver_features_ & ~settings_.features) != 0, "features accepted that were not offered (2.2.1)");
    if (settings_.refuses_features || (driver_features_ & ~settings_.features) != 0)
      value &= ~spec::status::features_ok;
  }
  if (fresh & spec::status::driver_ok)
    forbid((value & spec::status::features_ok) == 0, "DRIVER_OK without FEATURES_OK (3.1.1)");
  status_ = value;
}

uint32_t VirtioNet::read(unsigned, size_t offset, size_t width) noexcept {
  if (offset >= common_offset && offset < common_offset + common::bytes)
    return static_cast<uint32_t>(read_common(offset - common_offset, width));
  uint8_t space[12] = {};
  if (offset < device_offset || offset + width > device_offset + sizeof space) return 0;
  const size_t at = offset - device_offset;
  forbid(at < spec::config::status ? width != 1 : width != 2,
         "a field of the configuration read by another width (4.1.3.1)");
  std::memcpy(space + spec::config::mac, settings_.mac.data(), settings_.mac.size());
  const uint16_t link = has_link_ ? spec::config::status_link_up : 0;
  std::memcpy(space + spec::config::status, &link, sizeof link);
  std::memcpy(space + spec::config::mtu, &settings_.mtu, sizeof settings_.mtu);
  uint32_t value = 0;
  std::memcpy(&value, space + at, width);
  return value;
}

void VirtioNet::write(unsigned, size_t offset, size_t width, uint64_t value) noexcept {
  if (offset >= common_offset && offset < common_offset + common::bytes) {
    write_common(offset - common_offset, width, static_cast<uint32_t>(value));
  } else if (offset >= notify_offset && offset < notify_offset + queues_max * notify_multiplier) {
    const auto queue = static_cast<unsigned>((offset - notify_offset) / notify_multiplier);
    forbid(width != 2 || value != queue || offset % notify_multiplier != 0,
           "a doorbell that is not the queue's (4.1.5.2)");
    forbid(!is_live(), "a doorbell before DRIVER_OK (3.1.1)");
    ++doorbells_[queue];
    notify(queue);
  } else {
    forbid(true, "a register written that is none");
  }
}

uint64_t VirtioNet::read_common(size_t field, size_t width) noexcept {
  const DeviceQueue none;
  const DeviceQueue& queue = queue_select_ < queues_max ? queues_[queue_select_] : none;
  const auto of_width = [&](size_t wanted, uint64_t value) {
    forbid(width != wanted, "a common field read by another width (4.1.3.1)");
    return value;
  };
  switch (field) {
    case common::device_feature_select:
      return of_width(4, device_feature_select_);
    case common::device_feature:
      return of_width(4, device_feature_select_ < 2
                             ? settings_.features >> (32 * device_feature_select_) & 0xffffffff
                             : 0);
    case common::config_vector:
      return of_width(2, config_vector_);
    case common::queue_count:
      return of_width(2, settings_.features & spec::feature::control_queue ? 3 : 2);
    case common::status:
      if (reset_left_ > 0) return --reset_left_, 1;
      return of_width(1, status_);
    case common::config_generation:
      return of_width(1, generation_);
    case common::queue_select:
      return of_width(2, queue_select_);
    case common::queue_size:
      return of_width(2, queue.size);
    case common::queue_vector:
      return of_width(2, queue.vector);
    case common::queue_enable:
      return of_width(2, queue.is_enabled);
    case common::queue_notify_offset:
      return of_width(2, queue_select_);
    default:
      return 0;
  }
}

void VirtioNet::write_common(size_t field, size_t width, uint32_t value) noexcept {
  DeviceQueue none;
  DeviceQueue& queue = queue_select_ < queues_max ? queues_[queue_select_] : none;
  const auto of_width = [&](size_t wanted) {
    forbid(width != wanted, "a common field written by another width (4.1.3.1)");
  };
  const auto before_start = [&] {
    forbid(queue.is_enabled, "a queue changed while it is enabled (4.1.4.3.2)");
  };
  const auto vector = static_cast<uint16_t>(value < settings_.vectors ? value : common::no_vector);
  switch (field) {
    case common::device_feature_select:
      of_width(4);
      device_feature_select_ = value;
      return;
    case common::driver_feature_select:
      of_width(4);
      driver_feature_select_ = value;
      return;
    case common::driver_feature:
      of_width(4);
      forbid((status_ & spec::status::features_ok) != 0, "features written after FEATURES_OK (3.1.1)");
      if (driver_feature_select_ < 2) {
        const unsigned shift = 32 * driver_feature_select_;
        driver_features_ = (driver_features_ & ~(uint64_t{0xffffffff} << shift)) | uint64_t{value} << shift;
      }
      return;
    case common::config_vector:
      of_width(2);
      config_vector_ = vector;
      return;
    case common::status:
      of_width(1);
      write_status(static_cast<uint8_t>(value));
      return;
    case common::queue_select:
      of_width(2);
      queue_select_ = static_cast<uint16_t>(value);
      return;
    case common::queue_size:
      of_width(2);
      before_start();
      forbid(value == 0 || value > settings_.queue_size_max || (!is_packed() && (value & (value - 1)) != 0),
             "a queue of a size that it cannot have (2.7, 4.1.4.3.2)");
      queue.size = static_cast<uint16_t>(value);
      return;
    case common::queue_vector:
      of_width(2);
      queue.vector = vector;
      return;
    case common::queue_enable:
      of_width(2);
      forbid(value != 1, "a queue disabled (4.1.4.3.2)");
      forbid((status_ & spec::status::features_ok) == 0, "a queue enabled before FEATURES_OK (3.1.1)");
      forbid(
          queue.areas[0] % 16 != 0 || queue.areas[1] % (is_packed() ? 4 : 2) != 0 || queue.areas[2] % 4 != 0,
          "an area of a queue that is not aligned (2.7, 2.8)");
      queue.is_enabled = true;
      return;
    default:
      break;
  }
  const size_t area = (field - common::queue_descriptors) / 8;
  forbid(field < common::queue_descriptors || field % 4 != 0, "a common field written that is none");
  if (field < common::queue_descriptors || area > 2) return;
  of_width(4);
  before_start();
  const unsigned shift = field % 8 == 0 ? 0 : 32;
  queue.areas[area] = (queue.areas[area] & ~(uint64_t{0xffffffff} << shift)) | uint64_t{value} << shift;
}

void VirtioNet::config_changed() noexcept {
  ++generation_;
  if (host_ && is_live() && config_vector_ != common::no_vector) host_->raise(config_vector_);
}

void VirtioNet::on_carrier(bool is_up) noexcept {
  if (std::exchange(has_link_, is_up) != is_up) config_changed();
}

void VirtioNet::need_reset() noexcept {
  status_ |= spec::status::needs_reset;
  config_changed();
}

// --- queues ---

size_t VirtioNet::Buffer::bytes(bool writable) const noexcept {
  size_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.is_writable == writable ? piece.bytes : 0;
  return sum;
}

void VirtioNet::advance(RingPosition& ring_position, unsigned count, unsigned size) const noexcept {
  ring_position.at = static_cast<uint16_t>(ring_position.at + count);
  if (!is_packed() || ring_position.at < size) return;
  ring_position.at = static_cast<uint16_t>(ring_position.at - size);
  ring_position.wrap = !ring_position.wrap;
}

bool VirtioNet::take(DeviceQueue& queue, Buffer& out) noexcept {
  out.pieces.clear();
  if (!host_ || !queue.is_enabled || !is_live() || (status_ & spec::status::needs_reset) != 0) return false;
  if (!(is_packed() ? take_packed(queue, out) : take_split(queue, out))) return false;
  const bool is_ordered =
      std::is_sorted(out.pieces.begin(), out.pieces.end(),
                     [](const Piece& a, const Piece& b) { return !a.is_writable && b.is_writable; });
  forbid(!is_ordered, "a writable piece before a readable one (2.6.4.2)");
  return true;
}

bool VirtioNet::take_split(DeviceQueue& queue, Buffer& out) noexcept {
  uint16_t index = 0;
  if (!host_->read_object(queue.areas[1] + spec::split::index, index) || index == queue.available.at)
    return false;
  const bool is_too_far = static_cast<uint16_t>(index - queue.available.at) > queue.size;
  forbid(is_too_far, "more buffers made available than the queue has (2.7.6)");
  if (is_too_far) return false;
  const uint64_t slot = queue.available.at % queue.size;
  uint16_t at = 0;
  if (!host_->read_object(queue.areas[1] + spec::split::entries + 2 * slot, at)) return false;
  out.id = at;
  for (;;) {
    spec::SplitDescriptor descriptor{};
    forbid(at >= queue.size, "a descriptor beyond the table (2.7.5)");
    if (at >= queue.size || !host_->read_object(queue.areas[0] + 16 * at, descriptor)) return false;
    out.pieces.push_back(
        {descriptor.address, descriptor.bytes, (descriptor.flags & spec::descriptor::write) != 0});
    forbid(out.pieces.size() > queue.size, "a chain that is a circle (2.7.5.2)");
    if ((descriptor.flags & spec::descriptor::next) == 0 || out.pieces.size() > queue.size) break;
    at = descriptor.next;
  }
  out.descriptors = 1;
  advance(queue.available, 1, queue.size);
  return true;
}

bool VirtioNet::take_packed(DeviceQueue& queue, Buffer& out) noexcept {
  RingPosition ring_position = queue.available;
  for (;;) {
    spec::PackedDescriptor descriptor{};
    if (!host_->read_object(queue.areas[0] + 16 * ring_position.at, descriptor)) return false;
    const bool avail = (descriptor.flags & spec::descriptor::avail) != 0;
    const bool used = (descriptor.flags & spec::descriptor::used) != 0;
    if (avail != ring_position.wrap || used == ring_position.wrap) {
      forbid(!out.pieces.empty(), "the first descriptor of a chain shown before the others (2.8.21.1)");
      return false;
    }
    out.pieces.push_back(
        {descriptor.address, descriptor.bytes, (descriptor.flags & spec::descriptor::write) != 0});
    out.id = descriptor.id;
    advance(ring_position, 1, queue.size);
    if ((descriptor.flags & spec::descriptor::next) == 0 || out.pieces.size() >= queue.size) break;
  }
  out.descriptors = static_cast<unsigned>(out.pieces.size());
  queue.available = ring_position;
  return true;
}

void VirtioNet::show(DeviceQueue& queue) noexcept {
  if (queue.to_use.empty() || !host_ || !queue.is_enabled) return;
  const bool wants_interrupt = is_packed() ? show_packed(queue) : show_split(queue);
  queue.to_use.clear();
  if (wants_interrupt && queue.vector != common::no_vector) host_->raise(queue.vector);
}

// True: the driver wants an interrupt for one of these.
bool VirtioNet::show_split(DeviceQueue& queue) noexcept {
  uint16_t flags = 0;
  uint16_t event = 0;
  const uint16_t before = queue.used.at;
  for (const UsedBuffer& used : queue.to_use) {
    const uint64_t slot = queue.used.at % queue.size;
    host_->write_object(queue.areas[2] + spec::split::entries + 8 * slot,
                        spec::UsedElement{used.id, used.bytes});
    advance(queue.used, 1, queue.size);
  }
  host_->write_object(queue.areas[2] + spec::split::index, queue.used.at);
  host_->read_object(queue.areas[1] + spec::split::flags, flags);
  if (!has(spec::feature::event_index)) return (flags & spec::split::no_interrupt) == 0;
  host_->read_object(queue.areas[1] + spec::split::used_event(queue.size), event);
  return static_cast<uint16_t>(event - before) < queue.to_use.size();
}

bool VirtioNet::show_packed(DeviceQueue& queue) noexcept {
  struct Written {
    uint64_t address;
    spec::PackedDescriptor descriptor;
  };
  std::vector<Written> written;
  std::vector<uint16_t> passed;
  for (const UsedBuffer& used : queue.to_use) {
    const auto flags =
        static_cast<uint16_t>(queue.used.wrap ? spec::descriptor::avail | spec::descriptor::used : 0);
    written.push_back({queue.areas[0] + 16 * queue.used.at,
                       {.address = 0, .bytes = used.bytes, .id = used.id, .flags = flags}});
    for (unsigned i = 0; i < used.descriptors; ++i) {
      passed.push_back(static_cast<uint16_t>(queue.used.at | queue.used.wrap << 15));
      advance(queue.used, 1, queue.size);
    }
  }
  // The driver looks at the first: its flags are written last (2.8.16).
  for (auto it = written.rbegin(); it != written.rend(); ++it)
    host_->write_object(it->address, it->descriptor);
  EventSuppression wanted{};
  host_->read_object(queue.areas[1], wanted);
  forbid(wanted.flags == EventSuppression::at && !has(spec::feature::event_index),
         "an event at a place without EVENT_IDX (2.8.10)");
  if (wanted.flags != EventSuppression::at) return wanted.flags == EventSuppression::enable;
  return std::find(passed.begin(), passed.end(), wanted.position) != passed.end();
}

void VirtioNet::want_doorbell(DeviceQueue& queue, bool on) noexcept {
  if (!host_) return;
  const bool has_index = has(spec::feature::event_index);
  if (is_packed()) {
    const EventSuppression wanted{
        .position = static_cast<uint16_t>(queue.available.at | queue.available.wrap << 15),
        .flags = !on         ? EventSuppression::disable
                 : has_index ? EventSuppression::at
                             : EventSuppression::enable};
    host_->write_object(queue.areas[2], wanted);
  } else if (has_index) {
    const auto event = static_cast<uint16_t>(queue.available.at - (on ? 0 : 1));
    host_->write_object(queue.areas[2] + spec::split::available_event(queue.size), event);
  } else {
    const uint16_t flags = on ? 0 : spec::split::no_notify;
    host_->write_object(queue.areas[2] + spec::split::flags, flags);
  }
}

void VirtioNet::scribble(unsigned queue, unsigned area, size_t offset,
                         std::span<const std::byte> bytes) noexcept {
  if (host_) host_->write(queues_[queue % queues_max].areas[area % 3] + offset, bytes);
}

void VirtioNet::use(unsigned queue, uint16_t id, uint32_t bytes, unsigned descriptors) noexcept {
  DeviceQueue& of = queues_[queue % queues_max];
  of.to_use.push_back({id, descriptors, bytes});
  show(of);
}

// --- what the queues are for ---

void VirtioNet::notify(unsigned queue) noexcept {
  if (queue == sending) transmit();
  else if (queue == commands) execute();
  else if (queue == receive) want_doorbell(queues_[receive], false);  // looks when a frame comes
}

bool VirtioNet::gather(const Buffer& buffer, std::vector<std::byte>& out) noexcept {
  out.clear();
  for (const Piece& piece : buffer.pieces) {
    if (piece.is_writable) continue;
    const size_t before = out.size();
    if (before + piece.bytes > gathered_bytes_max) return false;
    out.resize(before + piece.bytes);
    if (!host_->read(piece.address, std::span(out).subspan(before))) return false;
  }
  return true;
}

bool VirtioNet::scatter(const Buffer& buffer, std::span<const std::byte> bytes) noexcept {
  for (const Piece& piece : buffer.pieces) {
    if (!piece.is_writable) continue;
    const auto part = bytes.first(std::min<size_t>(bytes.size(), piece.bytes));
    if (!part.empty() && !host_->write(piece.address, part)) return false;
    bytes = bytes.subspan(part.size());
  }
  return bytes.empty();
}

void VirtioNet::hold_transmit(bool on) noexcept {
  holds_transmit_ = on;
  if (on) want_doorbell(queues_[sending], false);
  else transmit();
}

void VirtioNet::transmit() noexcept {
  DeviceQueue& queue = queues_[sending];
  if (holds_transmit_ || !host_ || !queue.is_enabled) return;
  Buffer buffer;
  std::vector<std::byte> bytes;
  std::vector<UsedBuffer> used;
  while (take(queue, buffer)) {
    forbid(buffer.bytes(true) != 0, "a buffer of the transmit queue that is writable (5.1.6.2)");
    const bool is_whole = gather(buffer, bytes) && bytes.size() >= sizeof(FrameHeader);
    forbid(!is_whole, "a frame to send that cannot be read");
    used.push_back({buffer.id, buffer.descriptors, 0});
    if (!is_whole) continue;
    const bool is_plain = std::all_of(bytes.begin(), bytes.begin() + sizeof(FrameHeader),
                                      [](std::byte b) { return b == std::byte{}; });
    forbid(!is_plain, "an offload that was not accepted (5.1.6.2.1)");
    const auto frame = std::span<const std::byte>(bytes).subspan(sizeof(FrameHeader));
    forbid(has(spec::feature::mtu) && frame.size() > size_t{14} + settings_.mtu,
           "a frame above the MTU (5.1.4.2)");
    hub_.send(*this, frame);
  }
  want_doorbell(queue, true);
  if (settings_.uses_backwards) std::reverse(used.begin(), used.end());
  queue.to_use.insert(queue.to_use.end(), used.begin(), used.end());
  show(queue);
}

bool VirtioNet::passes(std::span<const std::byte> frame) const noexcept {
  const wire::Mac to = mac_at(frame);
  wire::Mac broadcast;
  broadcast.fill(std::byte{0xff});
  if (is_promiscuous_ || to == settings_.mac || to == broadcast) return true;
  const bool is_group = (to[0] & std::byte{1}) != std::byte{};
  const auto& table = is_group ? groups_ : unicast_;
  return (is_group && passes_all_groups_) || std::find(table.begin(), table.end(), to) != table.end();
}

void VirtioNet::on_wire(std::span<const std::byte> frame) noexcept {
  if (!is_live() || !host_ || frame.size() < sizeof(wire::Mac) || !passes(frame)) return;
  DeviceQueue& queue = queues_[receive];
  const RingPosition before = queue.available;
  const bool is_merged = has(spec::feature::mergeable_buffers);
  std::vector<Buffer> buffers;
  size_t room = 0;
  while (room < sizeof(FrameHeader) + frame.size()) {
    Buffer buffer;
    if ((!buffers.empty() && !is_merged) || !take(queue, buffer)) break;
    forbid(buffer.bytes(false) != 0, "a buffer of the receive queue that is readable (5.1.6.3.1)");
    room += buffer.bytes(true);
    buffers.push_back(std::move(buffer));
  }
  if (room < sizeof(FrameHeader) + frame.size()) {
    queue.available = before;
    want_doorbell(queue, true);
    ++frames_missed_;
    return;
  }
  const FrameHeader header{.buffers = static_cast<uint16_t>(buffers.size())};
  const auto head = std::as_bytes(std::span(&header, 1));
  std::vector<std::byte> bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), frame.begin(), frame.end());
  std::span<const std::byte> rest = bytes;
  for (const Buffer& buffer : buffers) {
    const auto part = rest.first(std::min(rest.size(), buffer.bytes(true)));
    rest = rest.subspan(part.size());
    if (!scatter(buffer, part)) forbid(true, "a receive buffer that cannot be written");
    queue.to_use.push_back({buffer.id, buffer.descriptors, static_cast<uint32_t>(part.size())});
    if (between_buffers && buffers.size() > 1) {
      show(queue);
      between_buffers();
    }
  }
  show(queue);
}

void VirtioNet::execute() noexcept {
  DeviceQueue& queue = queues_[commands];
  Buffer buffer;
  std::vector<std::byte> bytes;
  if (settings_.ignores_commands) return;
  while (take(queue, buffer)) {
    forbid(buffer.bytes(true) != 1, "a command without room for its answer (5.1.6.5)");
    const uint8_t answer = gather(buffer, bytes) ? execute(bytes) : spec::control::error;
    const std::byte told{settings_.refuses_filter ? spec::control::error : answer};
    scatter(buffer, {&told, 1});
    queue.to_use.push_back({buffer.id, buffer.descriptors, 1});
    show(queue);
    want_doorbell(queue, true);
  }
}

uint8_t VirtioNet::execute(std::span<const std::byte> command) {
  forbid(!has(spec::feature::control_receive), "a command of a feature that was not accepted (5.1.6.5.1)");
  if (command.size() < 3) return spec::control::error;
  const auto of = std::to_integer<uint8_t>(command[0]);
  const auto what = std::to_integer<uint8_t>(command[1]);
  command = command.subspan(2);
  if (of == spec::control::receive_class && what <= spec::control::all_multicast && command.size() == 1) {
    (what == spec::control::promiscuous ? is_promiscuous_ : passes_all_groups_) = command[0] != std::byte{};
    return spec::control::ok;
  }
  if (of != spec::control::mac_class || what != spec::control::mac_table) return spec::control::error;
  for (auto* table : {&unicast_, &groups_}) {
    uint32_t count = 0;
    if (command.size() < sizeof count) return spec::control::error;
    std::memcpy(&count, command.data(), sizeof count);
    command = command.subspan(sizeof count);
    if (command.size() / sizeof(wire::Mac) < count) return spec::control::error;
    table->clear();
    for (; count > 0; --count) {
      table->push_back(mac_at(command));
      command = command.subspan(sizeof(wire::Mac));
    }
  }
  return command.empty() ? spec::control::ok : spec::control::error;
}

}  // namespace weft::nic::model
