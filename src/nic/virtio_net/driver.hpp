// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Driver: virtio 1.x network cards over PCI (VIRTIO 1.2, sections 4.1 and 5.1). Read in this order: spec.hpp,
// capabilities.hpp, transport.hpp, queue.hpp with split_queue.hpp and packed_queue.hpp, this file from open() on.
//
//   - One queue pair: pair 0 carries all frames while VIRTIO_NET_F_MQ is not accepted (5.1.6.5.5), and then the control
//     queue is the third. Checksum and segmentation offload are not accepted, so every frame is complete, and none is
//     called checked.
//   - Transmit: each frame takes a descriptor for the header, which is the same 12 zeros for all, and one for each
//     fragment.
//   - Receive: a buffer is a descriptor. With VIRTIO_NET_F_MRG_RXBUF a frame may span several and is gathered in a
//     scratch of frame_bytes_max(); without it each buffer holds the longest frame.
//   - One interrupt vector, of frames received and of configuration changes. Transmission and control raise none.
//   - VIRTIO_F_ACCESS_PLATFORM is a must: without it the device's addresses would not go through the IOMMU.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "nic/driver.hpp"
#include "nic/virtio_net/packed_queue.hpp"
#include "nic/virtio_net/split_queue.hpp"
#include "nic/virtio_net/transport.hpp"

namespace weft::nic::virtio_net {

template <Queue Q>
struct Rings {
  Q receive;
  Q transmit;
  Q control;
};

template <nic::Bus B>
class Driver {
 public:
  using Bus = B;
  static constexpr const char* name = "virtio_net";
  static constexpr unsigned reads_max_default = 100'000;  // of a register, 10 us apart: a second
  static constexpr size_t groups_max = 64;

  static bool drives(uint16_t vendor, uint16_t device) noexcept {
    return vendor == vendor_id && (device == device_id || device == transitional_device_id);
  }

  explicit Driver(B& bus, unsigned reads_max = reads_max_default) : bus_(bus), reads_max_(reads_max) {}
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  ~Driver() { close(); }

  Result<void> open(const DriverSettings& settings) {
    close();
    auto result = start(settings);
    if (!result) close();
    return result;
  }

  // Resets the device (2.4.1). One that does not come to an end loses its right to DMA, which is enough.
  void close() noexcept {
    if (transport_.is_open()) {
      if (!transport_.reset()) static_cast<void>(bus_.reset());
      static_cast<void>(bus_.set_master(false));
      bus_.disable_interrupts();
      transport_.close();
    }
    for (DmaMemory& memory : held_) bus_.release(memory);
    held_.clear();
    is_running_ = is_broken_ = false;
    wait_fd_ = -1;
    room_ = 0;
    gather_ = {};
  }

  wire::Mac mac() const noexcept { return mac_; }
  size_t frame_bytes_max() const noexcept { return frame_bytes_max_; }
  bool is_broken() const noexcept { return is_broken_; }
  int wait_fd() const noexcept { return wait_fd_; }
  DriverCounters counters() const noexcept { return counters_; }
  uint64_t features() const noexcept { return features_; }  // spec.hpp, those in use

  bool has_link() noexcept {
    if (!is_running_ || !is_well()) return false;
    return !has(feature::link_status) ||
           (transport_.config16(config::status) & config::status_link_up) != 0;  // 5.1.4.2
  }

  // Joins are counted. A device without VIRTIO_NET_F_CTRL_RX has no filter; after a group that did not fit, all groups
  // pass.
  int join(wire::Mac group) noexcept {
    const size_t at = find_group(group);
    if (at < groups_) return ++group_joins_[at], 0;
    if (groups_ < groups_max) {
      group_table_[groups_] = group;
      group_joins_[groups_++] = 1;
      if (!has_filter() || write_groups()) return 0;
      --groups_;
    }
    passes_all_groups_ = true;
    if (has_filter()) set_receive_mode(control::all_multicast, true);
    return -ENOSPC;
  }
  void leave(wire::Mac group) noexcept {
    const size_t at = find_group(group);
    if (at == groups_ || --group_joins_[at] > 0) return;
    --groups_;
    group_table_[at] = group_table_[groups_];
    group_joins_[at] = group_joins_[groups_];
    if (has_filter()) write_groups();
  }
  void set_promiscuous(bool on) noexcept {
    if (has_filter()) set_receive_mode(control::promiscuous, on);
  }

  // --- transmit ---

  size_t transmit_room() const noexcept { return room_; }

  bool post(std::span<const Fragment> frame, uint64_t token) noexcept {
    const size_t pieces = 1 + frame.size();
    if (pieces > room_ || frame.size() > fragments_max || is_broken_) return false;
    size_t bytes = 0;
    bool has_empty = false;
    for (const Fragment& fragment : frame) {
      has_empty |= fragment.bytes == 0;
      bytes += fragment.bytes;
    }
    if (bytes < frame_bytes_min || bytes > frame_bytes_max_) return false;
    if (has_empty) return post_without_empty(frame, token);
    with_rings([&](auto& rings) {
      rings.transmit.add(post_at_, {.address = shared_.address, .bytes = sizeof(FrameHeader)}, frame, 0);
    });
    sent_[post_at_] = {
        .token = token, .bytes = static_cast<uint32_t>(bytes), .pieces = static_cast<uint16_t>(pieces)};
    post_at_ = after(post_at_, pieces);
    room_ -= pieces;
    return true;
  }

  void kick() noexcept {
    if (!is_running_ || is_broken_) return;
    with_rings([&](auto& rings) {
      if (!rings.transmit.publish()) return;
      transmit_doorbell_.ring();
      ++counters_.transmit_doorbells;
    });
  }

  // The device may use buffers in any order (2.7.9): they wait here until it is their turn.
  template <class Handler>
  size_t reclaim(Handler&& handler) noexcept {
    if (!is_running_ || is_broken_) return 0;
    with_rings([&](auto& rings) {
      Used used;
      while (rings.transmit.pop(used)) sent_[used.id].is_done = true;
      if (rings.transmit.is_broken()) stop();
    });
    size_t count = 0;
    while (room_ < sent_.size() && sent_[reclaim_at_].is_done) {
      const Sent sent = std::exchange(sent_[reclaim_at_], {});
      reclaim_at_ = after(reclaim_at_, sent.pieces);
      room_ += sent.pieces;
      ++counters_.frames_sent;
      counters_.bytes_sent += sent.bytes;
      ++count;
      handler(sent.token);
    }
    return count;
  }

  // --- receive ---

  template <class Handler>
  size_t receive(Handler&& handler, size_t count) noexcept {
    if (!is_running_) return 0;
    return with_rings([&](auto& rings) {
      return rings.receive.has_used() ? receive_frames(rings, handler, count) : size_t{0};
    });
  }

  bool arm() noexcept {
    if (!is_running_ || !is_well()) return false;  // its owner looks, and finds it broken
    return with_rings([](auto& rings) { return rings.receive.arm(); });
  }
  void disarm() noexcept {
    if (!is_running_) return;
    with_rings([](auto& rings) { rings.receive.disarm(); });
    bus_.clear_interrupt(vector);
  }

  // --- direct view: for programs that look at the card themselves --- nothing while it is not open.
  // Who writes to a queue takes the driver's place: that queue the driver does not use until open() has begun anew.
  struct QueueView {
    std::span<std::byte> memory;  // descriptors first (SplitDescriptor or PackedDescriptor)
    QueueLayout layout;
    unsigned size = 0;
  };
  struct View {
    bool is_packed = false;
    QueueView receive;
    QueueView transmit;
    QueueView control;                                  // empty: there is none
    typename Transport<B>::Doorbell transmit_doorbell;  // ring() once what was added is published
    Fragment header;  // the first piece of each frame: 12 bytes of zeros (5.1.6.2)
  };
  std::optional<View> view() noexcept {
    if (!is_running_) return {};
    return with_rings([&](auto& rings) {
      View view;
      view.is_packed = is_packed_;
      view.receive = view_of(rings.receive, receive_queue);
      view.transmit = view_of(rings.transmit, transmit_queue);
      if (has(feature::control_queue)) view.control = view_of(rings.control, control_queue);
      view.transmit_doorbell = transmit_doorbell_;
      view.header = {shared_.address, sizeof(FrameHeader)};
      return std::optional<View>(view);
    });
  }

 private:
  static constexpr uint16_t vector = 0;
  static constexpr size_t frame_bytes_min = 14;                     // an Ethernet header
  static constexpr size_t frame_bytes_limit = 14 + 4 + UINT16_MAX;  // with a tag and the largest MTU
  static constexpr size_t merged_buffer_bytes = 2048;
  // The page beside the rings: the transmit header, a command, the device's answer.
  static constexpr size_t command_at = 64;
  static constexpr size_t answer_at = 1024;
  static constexpr size_t shared_bytes = 2048;

  // By the id of the frame's first descriptor.
  struct Sent {
    uint64_t token = 0;
    uint32_t bytes = 0;
    uint16_t pieces = 0;
    bool is_done = false;  // the device has used it
  };
  // A frame of which buffers are still to come.
  struct Gather {
    size_t buffers = 0;
    size_t bytes = 0;  // of what came, though the scratch has less
  };

  template <class Action>
  [[gnu::always_inline]] decltype(auto) with_rings(Action&& action) noexcept {
    return is_packed_ ? action(packed_) : action(split_);
  }
  bool has(uint64_t feature) const noexcept { return (features_ & feature) != 0; }

  // --- opening (3.1.1, 4.1.5.1) ---

  Result<void> start(const DriverSettings& settings) {
    if (settings.frame_bytes_max < frame_bytes_min || settings.frame_bytes_max > frame_bytes_limit)
      return Error{EINVAL, "virtio_net: frames of " + std::to_string(settings.frame_bytes_max) + " bytes"};
    if (auto opened = transport_.open(bus_, reads_max_); !opened) return opened;
    if (!transport_.reset() && !(bus_.reset() && transport_.reset()))
      return Error{ETIMEDOUT, "virtio_net: the device does not come out of its reset"};
    transport_.add_status(status::acknowledge);
    transport_.add_status(status::driver);
    if (auto agreed = negotiate(); !agreed) return agreed;
    if (auto read = read_config(settings); !read) return read;
    auto vectors = bus_.enable_interrupts(1);
    if (!vectors) return vectors.error();
    if (*vectors < 1 || !transport_.set_config_vector(vector))
      return Error{ENOSPC, "virtio_net: the device has no interrupt vector"};
    wait_fd_ = bus_.interrupt_fd(vector);
    is_packed_ = has(feature::packed_ring);
    if (auto made = is_packed_ ? open_rings(packed_, settings) : open_rings(split_, settings); !made)
      return made;
    if (auto on = bus_.set_master(true); !on) return on;
    transport_.add_status(status::driver_ok);
    if (!transport_.is_well()) return Error{EIO, "virtio_net: the device did not start"};
    counters_ = {};
    is_running_ = true;
    fill_receive();
    if (has_filter()) {
      set_receive_mode(control::promiscuous, settings.promiscuous);
      set_receive_mode(control::all_multicast, passes_all_groups_);
      write_groups();
    }
    if (is_broken_) return Error{EIO, "virtio_net: the device does not execute commands"};
    return {};
  }

  Result<void> negotiate() {
    constexpr uint64_t needed = feature::version_1 | feature::access_platform | feature::mac;
    constexpr uint64_t useful = feature::mtu | feature::mergeable_buffers | feature::link_status |
                                feature::control_queue | feature::control_receive | feature::event_index |
                                feature::packed_ring | feature::order_platform;
    features_ = transport_.offered_features() & (needed | useful);
    if (!has(feature::version_1)) return Error{ENODEV, "virtio_net: the device is of before virtio 1.0"};
    if (!has(feature::access_platform))
      return Error{ENODEV,
                   "virtio_net: the device goes around the IOMMU (no VIRTIO_F_ACCESS_PLATFORM; QEMU: "
                   "iommu_platform=on)"};
    if (!has(feature::mac)) return Error{ENODEV, "virtio_net: the device has no address of its own"};
    if (!has(feature::control_queue)) features_ &= ~feature::control_receive;  // 5.1.3.1
    if (!transport_.accept_features(features_))
      return Error{ENODEV, "virtio_net: the device does not accept the features that it offered"};
    return {};
  }

  Result<void> read_config(const DriverSettings& settings) {
    uint16_t mtu = 0;
    for (unsigned i = 0;; ++i) {
      const uint8_t generation = transport_.config_generation();
      for (size_t byte = 0; byte < mac_.size(); ++byte)
        mac_[byte] = std::byte{transport_.config8(config::mac + byte)};
      if (has(feature::mtu)) mtu = transport_.config16(config::mtu);
      if (transport_.config_generation() == generation) break;
      if (i == reads_max_) return Error{EIO, "virtio_net: the device changes its configuration all the time"};
    }
    if ((mac_[0] & std::byte{1}) != std::byte{})
      return Error{EPROTO, "virtio_net: the device has a group address"};
    frame_bytes_max_ = settings.frame_bytes_max;
    if (has(feature::mtu)) {
      if (mtu < config::mtu_min)
        return Error{EPROTO, "virtio_net: the device has an MTU of " + std::to_string(mtu)};
      frame_bytes_max_ = std::min(frame_bytes_max_, frame_bytes_min + mtu);
    }
    return {};
  }

  template <Queue Q>
  Result<void> open_rings(Rings<Q>& rings, const DriverSettings& settings) {
    if (auto made =
            open_queue(rings.receive, receive_queue, settings.receive_descriptors, vector, receive_doorbell_);
        !made)
      return made;
    if (auto made = open_queue(rings.transmit, transmit_queue, settings.transmit_descriptors,
                               common::no_vector, transmit_doorbell_);
        !made)
      return made;
    if (has(feature::control_queue)) {
      if (auto made = open_queue(rings.control, control_queue, 2, common::no_vector, control_doorbell_);
          !made)
        return made;
    }
    return open_buffers(rings);
  }

  template <Queue Q>
  Result<void> open_queue(Q& queue, uint16_t index, unsigned wanted, uint16_t interrupts,
                          typename Transport<B>::Doorbell& doorbell) {
    const unsigned most = transport_.queue_size_max(index);
    if (most < 2) return Error{ENODEV, "virtio_net: the device has no queue " + std::to_string(index)};
    const unsigned size = Q::size_for(std::max(wanted, 2u), most);
    const QueueLayout layout = Q::layout(size);
    auto memory = allocate(layout.bytes);
    if (!memory) return memory.error();
    queue.open(memory->bytes, size, has(feature::event_index));
    auto made = transport_.enable_queue(index, size,
                                        {.descriptors = memory->address,
                                         .driver_area = memory->address + layout.driver_area,
                                         .device_area = memory->address + layout.device_area},
                                        interrupts);
    if (!made) return made.error();
    doorbell = *made;
    return {};
  }

  // open_rings() allocates for the queues first, in the order of their indices.
  template <Queue Q>
  QueueView view_of(const Q& queue, size_t index) noexcept {
    const QueueLayout layout = Q::layout(queue.size());
    return {.memory = {held_[index].bytes, layout.bytes}, .layout = layout, .size = queue.size()};
  }

  template <Queue Q>
  Result<void> open_buffers(Rings<Q>& rings) {
    const size_t needed = sizeof(FrameHeader) + frame_bytes_max_;
    const size_t count = rings.receive.size();
    const bool is_merged = has(feature::mergeable_buffers);
    buffer_bytes_ = is_merged ? merged_buffer_bytes
                              : (needed + arch::cache_line_bytes - 1) & ~(arch::cache_line_bytes - 1);
    buffers_max_ = is_merged ? count : 1;
    if (count * buffer_bytes_ < needed)
      return Error{EINVAL,
                   "virtio_net: " + std::to_string(count) + " receive buffers are too few for a frame"};
    auto buffers = allocate(count * buffer_bytes_);
    if (!buffers) return buffers.error();
    receive_memory_ = *buffers;
    auto shared = allocate(shared_bytes);
    if (!shared) return shared.error();
    shared_ = *shared;
    scratch_.assign(is_merged ? frame_bytes_max_ : 0, std::byte{});
    sent_.assign(rings.transmit.size(), {});
    room_ = sent_.size();
    post_at_ = reclaim_at_ = 0;
    return {};
  }

  void fill_receive() noexcept {
    with_rings([&](auto& rings) {
      for (unsigned id = 0; id < rings.receive.size(); ++id)
        rings.receive.add(static_cast<uint16_t>(id), receive_buffer(static_cast<uint16_t>(id)), {}, 1);
      if (rings.receive.publish()) ring_receive();
    });
  }

  Result<DmaMemory> allocate(size_t bytes) {
    auto memory = bus_.allocate(bytes);
    if (memory) held_.push_back(*memory);
    return memory;
  }

  // A descriptor of no bytes is not for every device.
  [[gnu::noinline]] bool post_without_empty(std::span<const Fragment> frame, uint64_t token) noexcept {
    std::array<Fragment, fragments_max> rest;
    const auto end = std::copy_if(frame.begin(), frame.end(), rest.begin(),
                                  [](const Fragment& fragment) { return fragment.bytes != 0; });
    return post({rest.begin(), end}, token);
  }

  // --- receiving (5.1.6.4) ---

  Fragment receive_buffer(uint16_t id) const noexcept {
    return {.address = receive_memory_.address + id * buffer_bytes_,
            .bytes = static_cast<uint32_t>(buffer_bytes_)};
  }
  void ring_receive() noexcept {
    receive_doorbell_.ring();
    ++counters_.receive_doorbells;
  }

  // Apart from receive(), so that an empty poll is a few instructions.
  template <Queue Q, class Handler>
  [[gnu::noinline]] size_t receive_frames(Rings<Q>& rings, Handler& handler, size_t count) noexcept {
    if (is_broken_) return 0;
    size_t frames = 0;
    Used used;
    while (frames < count && rings.receive.pop(used)) {
      frames += take_buffer(handler, used);
      if (is_broken_) return frames;
      rings.receive.add(used.id, receive_buffer(used.id), {}, 1);
    }
    if (rings.receive.is_broken()) stop();
    else if (rings.receive.publish()) ring_receive();
    return frames;
  }

  // 1: a frame was delivered.
  template <class Handler>
  [[gnu::always_inline]] size_t take_buffer(Handler& handler, const Used& used) noexcept {
    const std::byte* bytes = receive_memory_.bytes + used.id * buffer_bytes_;
    if (used.bytes > buffer_bytes_) return stop(), 0;
    if (gather_.buffers != 0) return take_more(handler, {bytes, used.bytes});
    if (used.bytes < sizeof(FrameHeader)) return stop(), 0;
    const std::span frame(bytes + sizeof(FrameHeader), used.bytes - sizeof(FrameHeader));
    if (buffers_max_ > 1) {
      const size_t buffers = load(reinterpret_cast<const FrameHeader*>(bytes)->buffers);
      if (buffers == 0 || buffers > buffers_max_) return stop(), 0;
      if (buffers > 1) {
        gather_ = {.buffers = buffers, .bytes = 0};
        return take_more(handler, frame);
      }
    }
    return deliver(handler, frame);
  }

  template <class Handler>
  size_t take_more(Handler& handler, std::span<const std::byte> piece) noexcept {
    if (gather_.bytes + piece.size() <= scratch_.size())
      std::memcpy(scratch_.data() + gather_.bytes, piece.data(), piece.size());
    gather_.bytes += piece.size();
    if (--gather_.buffers != 0) return 0;
    if (gather_.bytes > scratch_.size()) return ++counters_.frames_bad, 0;
    return deliver(handler, {scratch_.data(), gather_.bytes});
  }

  template <class Handler>
  [[gnu::always_inline]] size_t deliver(Handler& handler, std::span<const std::byte> frame) noexcept {
    if (frame.size() < frame_bytes_min || frame.size() > frame_bytes_max_) {
      ++counters_.frames_bad;
      return 0;
    }
    ++counters_.frames_received;
    counters_.bytes_received += frame.size();
    handler.on_frame(frame, false);
    return 1;
  }

  // --- filters (5.1.6.5) ---

  bool has_filter() const noexcept { return is_running_ && has(feature::control_receive); }
  size_t find_group(const wire::Mac& group) const noexcept {  // groups_: it is not there
    const auto* begin = group_table_.data();
    return static_cast<size_t>(std::find(begin, begin + groups_, group) - begin);
  }
  bool set_receive_mode(uint8_t which, bool on) noexcept {
    const std::byte data{on};
    return command(control::receive_class, which, {&data, 1});
  }
  bool write_groups() noexcept {
    std::array<std::byte, 2 * sizeof(uint32_t) + groups_max * sizeof(wire::Mac)>
        tables{};  // the first, unicast, is empty
    const auto count = static_cast<uint32_t>(groups_);
    std::memcpy(tables.data() + sizeof count, &count, sizeof count);
    std::memcpy(tables.data() + 2 * sizeof count, group_table_.data(), groups_ * sizeof(wire::Mac));
    return command(control::mac_class, control::mac_table,
                   std::span(tables).first(2 * sizeof count + groups_ * sizeof(wire::Mac)));
  }

  // Waits for the answer. False: the device refuses, or it is broken.
  bool command(uint8_t of, uint8_t what, std::span<const std::byte> data) noexcept {
    if (is_broken_) return false;
    std::byte* at = shared_.bytes + command_at;
    at[0] = std::byte{of};
    at[1] = std::byte{what};
    std::memcpy(at + 2, data.data(), data.size());
    shared_.bytes[answer_at] = std::byte{control::error};
    const Fragment answer{.address = shared_.address + answer_at, .bytes = 1};
    const bool is_done = with_rings([&](auto& rings) {
      rings.control.add(
          0, {.address = shared_.address + command_at, .bytes = static_cast<uint32_t>(2 + data.size())},
          {&answer, 1}, 1);
      if (rings.control.publish()) control_doorbell_.ring();
      Used used;
      for (unsigned i = 0; i < reads_max_; ++i) {
        if (rings.control.pop(used)) return true;
        if (rings.control.is_broken() || !transport_.is_well()) return false;
        transport_.pause();
      }
      return false;
    });
    if (!is_done) stop();
    return is_done && load(*reinterpret_cast<const uint8_t*>(shared_.bytes + answer_at)) == control::ok;
  }

  // --- a device that contradicts itself, that wants a reset (2.1.1), that is gone ---

  bool is_well() noexcept {
    if (!is_broken_ && !transport_.is_well()) stop();
    return !is_broken_;
  }
  [[gnu::cold, gnu::noinline]] void stop() noexcept {
    is_broken_ = true;
    transport_.begin_reset();
    static_cast<void>(bus_.set_master(false));
  }

  uint16_t after(uint16_t at, size_t pieces) const noexcept {
    const size_t next = at + pieces;
    return static_cast<uint16_t>(next < sent_.size() ? next : next - sent_.size());
  }

  // The data path.
  bool is_packed_ = false;
  bool is_running_ = false;
  bool is_broken_ = false;
  uint16_t post_at_ = 0;  // ids: where the next frame begins, where the oldest one did
  uint16_t reclaim_at_ = 0;
  size_t room_ = 0;  // descriptors of the transmit queue
  size_t frame_bytes_max_ = 0;
  size_t buffer_bytes_ = 0;
  size_t buffers_max_ = 1;  // of a received frame
  Gather gather_;
  DmaMemory receive_memory_;
  DmaMemory shared_;
  std::vector<Sent> sent_;
  Rings<SplitQueue> split_;
  Rings<PackedQueue> packed_;
  typename Transport<B>::Doorbell transmit_doorbell_;
  typename Transport<B>::Doorbell receive_doorbell_;
  DriverCounters counters_;

  // The rest.
  B& bus_;
  unsigned reads_max_;
  Transport<B> transport_;
  typename Transport<B>::Doorbell control_doorbell_;
  uint64_t features_ = 0;
  wire::Mac mac_{};
  int wait_fd_ = -1;
  std::vector<std::byte> scratch_;
  std::vector<DmaMemory> held_;
  std::array<wire::Mac, groups_max> group_table_{};
  std::array<unsigned, groups_max> group_joins_{};
  size_t groups_ = 0;
  bool passes_all_groups_ = false;
};

}  // namespace weft::nic::virtio_net
