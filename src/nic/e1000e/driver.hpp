// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Driver of the Intel 82574 (e1000e), one queue each way. Datasheet sections stand at the registers (registers.hpp). Must not know what
// frames carry, nor who is below the bus.
//
// To read in this order: registers.hpp, rings.hpp, filter.hpp, hardware.hpp, this file. The contract is that of nic::Driver. Besides:
//   - The data path reads no register: what the device has done it writes into memory. It writes one in kick(), and one in receive()
//     for each quarter of a small ring, or 32 descriptors, of the others.
//   - open() and close() reset the device; between them a contradiction stops it (fail()).
//   - Handlers of frames and tokens may post, kick and join. They must not open, close, receive or reclaim.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "arch/cpu.hpp"
#include "base/result.hpp"
#include "nic/bus.hpp"
#include "nic/driver.hpp"
#include "nic/e1000e/filter.hpp"
#include "nic/e1000e/hardware.hpp"
#include "nic/e1000e/registers.hpp"
#include "nic/e1000e/rings.hpp"
#include "wire/bytes.hpp"
#include "wire/ip.hpp"
#include "wire/neighbor.hpp"

namespace weft::nic::e1000e {

// What the settings come to. One piece of memory holds both rings and the receive buffers.
struct Shape {
  unsigned transmit_descriptors = 0;
  unsigned receive_descriptors = 0;
  size_t buffer_bytes = 0;
  uint32_t receive_control = 0;  // RCTL but for the filters

  size_t receive_ring_at() const noexcept { return transmit_descriptors * sizeof(Descriptor); }
  size_t buffers_at() const noexcept;
  size_t bytes() const noexcept { return buffers_at() + receive_descriptors * buffer_bytes; }
};
Result<Shape> shape_of(const DriverSettings& settings);

template <nic::Bus B>
class Driver {
 public:
  using Bus = B;
  static constexpr const char* name = "e1000e";
  static bool drives(uint16_t vendor, uint16_t device) noexcept {
    return vendor == vendor_intel && (device == device_82574 || device == device_82574a);
  }

  explicit Driver(Bus& bus) : bus_(bus) {}
  ~Driver() { close(); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // --- control path ---

  Result<void> open(const DriverSettings& settings) {
    close();
    Result<Shape> shape = shape_of(settings);
    if (!shape) return shape.error();
    auto registers = bus_.registers(0);
    if (!registers) return registers.error();
    if (registers->size() < register_bytes) return Error{ENODEV, "BAR 0 is too small for an 82574"};
    registers_ = *registers;
    shape_ = *shape;
    frame_bytes_max_ = settings.frame_bytes_max;
    is_promiscuous_ = settings.promiscuous;
    Result<void> done = bring_up();
    if (!done) close();
    return done;
  }

  void close() noexcept {
    if (!registers_) return;
    disarm();
    // The device cannot write into what is released below: it is reset, and it may not begin a transfer.
    if (is_reset_)
      registers_->write32(CtrlExt::at, registers_->read32(CtrlExt::at) & ~CtrlExt::driver_loaded);
    static_cast<void>(Hardware<B>(bus_, *registers_).reset());
    static_cast<void>(bus_.set_master(false));
    if (has_interrupts_) bus_.disable_interrupts();
    if (memory_.bytes) bus_.release(memory_);
    memory_ = {};
    registers_.reset();
    is_reset_ = has_interrupts_ = is_open_ = is_broken_ = false;
    transmit_ = {};
    receive_ = {};
  }

  wire::Mac mac() const noexcept { return mac_; }
  size_t frame_bytes_max() const noexcept { return frame_bytes_max_; }
  bool is_broken() const noexcept { return is_broken_; }

  bool has_link() noexcept {
    if (!is_usable()) return false;
    const uint32_t status = registers_->read32(Status::at);
    if (status == all_ones) fail();
    return !is_broken_ && (status & Status::link_up) != 0;
  }

  int join(wire::Mac mac) noexcept {
    const bool is_remembered = filter_.join(mac);
    show_filter(mac);
    return is_remembered ? 0 : -ENOSPC;
  }
  void leave(wire::Mac mac) noexcept {
    filter_.leave(mac);
    show_filter(mac);
  }
  void set_promiscuous(bool on) noexcept {
    is_promiscuous_ = on;
    if (is_usable()) registers_->write32(Rctl::at, receive_control());
  }

  DriverCounters counters() noexcept {
    if (is_usable()) {
      const uint32_t missed = registers_->read32(Mpc::at);
      if (missed == all_ones) fail();
      else counters_.frames_missed += missed;
    }
    return counters_;
  }

  // --- transmit ---

  size_t transmit_room() const noexcept { return is_usable() ? transmit_.room() : 0; }

  bool post(std::span<const Fragment> frame, uint64_t token) noexcept {
    if (!is_usable()) return false;
    const size_t bytes = transmit_.post(frame, token);
    if (bytes == 0) return false;
    ++counters_.frames_sent;
    counters_.bytes_sent += bytes;
    return true;
  }

  void kick() noexcept {
    if (!is_usable() || !transmit_.has_unshown()) return;
    transmit_.show();
    arch::dma_release();  // descriptors before the tail, which lets the device read them
    registers_->write32(Tdt::at, transmit_.tail());
    ++counters_.transmit_doorbells;
  }

  template <class Tokens>
  size_t reclaim(Tokens&& tokens) noexcept {
    return is_usable() ? transmit_.reclaim(tokens) : 0;
  }

  // --- receive ---

  template <class Frames>
  size_t receive(Frames&& frames, size_t count) noexcept {
    if (!is_usable() || !receive_.has_next()) return 0;  // who polls comes here most of the time
    return receive_some(frames, count);
  }

  // --- sleeping ---

  bool arm() noexcept {
    if (!is_usable()) return false;
    if (is_armed_) registers_->write32(Imc::at, all_ones);
    is_armed_ = false;
    // With all causes masked this read clears them (10.2.4.1). A frame whose cause it clears is in the ring when it returns: reads of
    // registers do not overtake writes of the device to memory (PCI Express 2.4.1). A later frame raises a cause anew, which
    // interrupts as soon as it is unmasked. So none is lost.
    const uint32_t causes = registers_->read32(Icr::at);
    if (causes == all_ones) fail();
    if (!is_usable() || (causes & Icr::link_change)) return false;
    arch::dma_acquire();
    if (receive_.has_next()) return false;
    registers_->write32(Ims::at, wake_causes);
    is_armed_ = true;
    return true;
  }

  void disarm() noexcept {
    if (!is_armed_) return;
    is_armed_ = false;
    registers_->write32(Imc::at, all_ones);
    bus_.clear_interrupt(0);
  }

  int wait_fd() const noexcept { return has_interrupts_ ? bus_.interrupt_fd(0) : -1; }

  // --- direct view: for programs that look at the card themselves --- nothing while it is not open.
  // Who writes to a ring or its tail takes the driver's place: of that direction the driver is not called until open() has begun anew.
  struct View {
    typename B::Registers registers;
    std::span<Descriptor> transmit;  // TDBA, from TDT on free
    std::span<Descriptor> receive;   // RDBA
  };
  std::optional<View> view() noexcept {
    if (!is_open_) return {};
    const auto ring = [&](size_t at, unsigned count) {
      return std::span(reinterpret_cast<Descriptor*>(memory_.bytes + at), count);
    };
    return View{*registers_, ring(0, shape_.transmit_descriptors),
                ring(shape_.receive_ring_at(), shape_.receive_descriptors)};
  }

 private:
  // MSI-X sends receive_queue_0 and other, MSI the causes themselves; which of them the bus chose does not matter here.
  static constexpr uint32_t wake_causes =
      Icr::receive_queue_0 | Icr::other | Icr::receive_timer | Icr::link_change;
  static constexpr uint32_t refill_max = 32;

  bool is_usable() const noexcept { return is_open_ && !is_broken_; }

  Result<void> bring_up() {
    Hardware<B> hardware(bus_, *registers_);
    if (Result<void> done = hardware.reset(); !done) return done;
    is_reset_ = true;
    Result<wire::Mac> mac = hardware.mac();
    if (!mac) return mac.error();
    mac_ = *mac;
    Result<DmaMemory> memory = bus_.allocate(shape_.bytes());
    if (!memory) return memory.error();
    memory_ = *memory;
    if (Result<void> done = set_up_interrupts(); !done) return done;
    if (Result<void> done = bus_.set_master(true); !done) return done;
    registers_->write32(CtrlExt::at, registers_->read32(CtrlExt::at) | CtrlExt::driver_loaded);
    hardware.bring_link_up();
    set_up_filters();
    set_up_transmit();
    set_up_receive();
    is_open_ = true;
    return {};
  }

  // One vector for everything, nothing unmasked, no delay (7.4).
  Result<void> set_up_interrupts() {
    Result<unsigned> vectors = bus_.enable_interrupts(1);
    if (!vectors) return vectors.error();
    has_interrupts_ = true;
    const uint32_t extended = registers_->read32(CtrlExt::at);
    registers_->write32(CtrlExt::at,
                        extended & ~(CtrlExt::extended_auto_mask | CtrlExt::interrupt_auto_mask));
    registers_->write32(Eiac::at, 0);
    registers_->write32(Iam::at, 0);
    registers_->write32(Ivar::at, Ivar::all_to_vector_0);
    registers_->write32(Itr::at, 0);
    for (unsigned i = 0; i < Eitr::count; ++i) registers_->write32(Eitr::at + 4 * i, 0);
    return {};
  }

  // 4.6.5: the own address, no others, the groups that are joined.
  void set_up_filters() noexcept {
    for (unsigned i = 1; i < Ral::count; ++i) {
      registers_->write32(Rah::at + i * Ral::stride, 0);  // high before low when it is cleared (10.2.5.19)
      registers_->write32(Ral::at + i * Ral::stride, 0);
    }
    registers_->write32(Ral::at, low_of(mac_));
    registers_->write32(Rah::at, high_of(mac_) | Rah::valid);
    for (unsigned i = 0; i < Mta::words; ++i) registers_->write32(Mta::at + 4 * i, filter_.word(i));
  }

  // 4.6.6
  void set_up_transmit() {
    transmit_.open(memory_.bytes, shape_.transmit_descriptors, frame_bytes_max_);
    set_up_ring(Tdbal::at, Tdbah::at, memory_.address);
    registers_->write32(Tdlen::at, static_cast<uint32_t>(shape_.transmit_descriptors * sizeof(Descriptor)));
    registers_->write32(Tdh::at, 0);
    registers_->write32(Tdt::at, 0);
    registers_->write32(Txdctl::at, Txdctl::must_be_set | Txdctl::in_descriptors);
    registers_->write32(Tipg::at, Tipg::recommended);
    registers_->write32(Tctl::at, Tctl::enable | Tctl::pad | Tctl::collision_threshold |
                                      Tctl::collision_distance | Tctl::multiple_requests);
  }

  // 4.6.5
  void set_up_receive() noexcept {
    receive_.open(memory_.bytes + shape_.receive_ring_at(), shape_.receive_descriptors,
                  memory_.bytes + shape_.buffers_at(), memory_.address + shape_.buffers_at(),
                  shape_.buffer_bytes);
    refill_ = std::min(refill_max, shape_.receive_descriptors / 4);
    is_dropping_ = false;
    registers_->write32(Rfctl::at, 0);
    registers_->write32(Mrqc::at, 0);
    registers_->write32(Rxcsum::at, Rxcsum::ip | Rxcsum::tcp_udp);
    registers_->write32(Rdtr::at, 0);
    registers_->write32(Radv::at, 0);
    registers_->write32(Rxdctl::at, Rxdctl::in_descriptors | Rxdctl::write_back_each);
    set_up_ring(Rdbal::at, Rdbah::at, memory_.address + shape_.receive_ring_at());
    registers_->write32(Rdlen::at, static_cast<uint32_t>(shape_.receive_descriptors * sizeof(Descriptor)));
    registers_->write32(Rdh::at, 0);
    registers_->write32(Rdt::at, 0);
    registers_->write32(Rctl::at, receive_control());
    arch::dma_release();  // descriptors before the tail
    registers_->write32(Rdt::at, receive_.tail());
  }

  void set_up_ring(size_t low, size_t high, uint64_t address) noexcept {
    registers_->write32(low, static_cast<uint32_t>(address));
    registers_->write32(high, static_cast<uint32_t>(address >> 32));
  }

  uint32_t receive_control() const noexcept {
    uint32_t control = shape_.receive_control;
    if (is_promiscuous_) control |= Rctl::unicast_promiscuous | Rctl::multicast_promiscuous;
    if (filter_.passes_all()) control |= Rctl::multicast_promiscuous;
    return control;
  }

  void show_filter(const wire::Mac& mac) noexcept {
    if (!is_usable()) return;
    const unsigned word = MulticastFilter::bit_of(mac) / 32;
    registers_->write32(Mta::at + 4 * word, filter_.word(word));
    registers_->write32(Rctl::at, receive_control());
  }

  template <class Frames>
  [[gnu::noinline]] size_t receive_some(Frames& frames, size_t count) noexcept {
    size_t taken = 0;
    // A device that is faster than this loop does not keep it here: one pass over the ring at most.
    for (uint32_t checked = 0; taken < count && checked < receive_.size() && receive_.has_next(); ++checked) {
      taken += take(frames, receive_.next());
      if (is_broken_) [[unlikely]]
        return taken;  // the device lied
      receive_.recycle();
    }
    if (receive_.unshown() >= refill_) refill();
    return taken;
  }

  // One descriptor: how many frames were in it, 0 or 1.
  template <class Frames>
  size_t take(Frames& frames, ReceiveWord word) noexcept {
    const size_t bytes = word.bytes();
    if (bytes > receive_.buffer_bytes()) [[unlikely]] {
      fail();
      return 0;
    }
    // A frame that is longer than a buffer lies in several; they are dropped together.
    const bool is_whole = word.is_end() && !is_dropping_;
    if (!is_whole || word.has_error() || bytes < wire::Ethernet::bytes || bytes > frame_bytes_max_)
        [[unlikely]] {
      is_dropping_ = !word.is_end();
      counters_.frames_bad += word.is_end();
      return 0;
    }
    const std::span frame(receive_.buffer(), bytes);
    const bool is_ip6 = wire::load_big<uint16_t>(&frame[ethernet_type_at]) == wire::Ethernet::type_ip6;
    ++counters_.frames_received;
    counters_.bytes_received += bytes;
    frames.on_frame(frame, word.is_checked(is_ip6));
    return 1;
  }

  void refill() noexcept {
    receive_.show();
    arch::dma_release();  // cleared status bytes before the tail, which lets the device write them
    registers_->write32(Rdt::at, receive_.tail());
    ++counters_.receive_doorbells;
  }

  // The device contradicts itself, or is gone: it is told to stop, and not asked again. close() resets it.
  [[gnu::cold, gnu::noinline]] void fail() noexcept {
    is_broken_ = true;
    registers_->write32(Imc::at, all_ones);
    registers_->write32(Rctl::at, 0);
    registers_->write32(Tctl::at, 0);
  }

  static constexpr size_t ethernet_type_at = 12;

  bool is_open_ = false;
  bool is_broken_ = false;
  bool is_dropping_ = false;  // the rest of a frame that did not fit
  bool is_armed_ = false;
  uint32_t refill_ = 0;  // buffers that come back before the device is told
  size_t frame_bytes_max_ = 0;
  std::optional<typename B::Registers> registers_;
  TransmitRing transmit_;
  ReceiveRing receive_;
  DriverCounters counters_;

  // Control path from here on.
  Bus& bus_;
  Shape shape_;
  DmaMemory memory_;
  wire::Mac mac_{};
  MulticastFilter filter_;
  bool is_promiscuous_ = false;
  bool is_reset_ = false;
  bool has_interrupts_ = false;
};

}  // namespace weft::nic::e1000e
