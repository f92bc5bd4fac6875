// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Card: one network card as Device (device.hpp) uses it: what a driver and its bus offer (nic/driver.hpp, nic/bus.hpp),
// behind virtual calls, one for each frame that goes and one for each batch that comes. So the engines above are
// compiled once, for all drivers. Must not know what frames carry.
//
// Contract: that of nic::Driver. Besides: DMA memory is of the card, not of the driver, and stays mapped from the call
// to release() or unmap(), over close() and open().
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/result.hpp"
#include "nic/bus.hpp"
#include "nic/driver.hpp"
#include "wire/neighbor.hpp"

namespace weft::link::nic {

using weft::nic::DmaMemory;
using weft::nic::DriverCounters;
using weft::nic::DriverSettings;
using weft::nic::Fragment;

class FrameSink {
 public:
  virtual void on_frame(std::span<const std::byte> frame, bool is_checked) noexcept = 0;

 protected:
  ~FrameSink() = default;
};
class TokenSink {
 public:
  virtual void on_token(uint64_t token) noexcept = 0;

 protected:
  ~TokenSink() = default;
};

class Card {
 public:
  Card() = default;
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;
  virtual ~Card() = default;

  // --- nic::Driver ---
  virtual const char* driver_name() const noexcept = 0;
  virtual Result<void> open(const DriverSettings& settings) = 0;
  virtual void close() noexcept = 0;
  virtual wire::Mac mac() const noexcept = 0;
  virtual size_t frame_bytes_max() const noexcept = 0;
  virtual bool has_link() noexcept = 0;
  virtual bool is_broken() const noexcept = 0;
  virtual int join(const wire::Mac& group) noexcept = 0;
  virtual void leave(const wire::Mac& group) noexcept = 0;
  virtual size_t transmit_room() const noexcept = 0;
  virtual bool post(std::span<const Fragment> frame, uint64_t token) noexcept = 0;
  virtual void kick() noexcept = 0;
  virtual size_t reclaim(TokenSink& sink) noexcept = 0;
  virtual size_t receive(FrameSink& sink, size_t count) noexcept = 0;
  virtual bool arm() noexcept = 0;
  virtual void disarm() noexcept = 0;
  virtual int wait_fd() const noexcept = 0;
  virtual DriverCounters counters() noexcept = 0;

  // --- nic::Bus ---
  virtual Result<DmaMemory> allocate(size_t bytes) = 0;
  virtual void release(DmaMemory& memory) noexcept = 0;
  virtual Result<uint64_t> map(const void* memory, size_t bytes) = 0;  // the card may read it
  virtual void unmap(uint64_t address) noexcept = 0;
  virtual void wait_us(unsigned microseconds) noexcept = 0;

  // In a forked child, which has neither registers nor DMA memory: the driver is forgotten where it is, and only the
  // destructor is called afterwards.
  virtual void abandon() noexcept = 0;
};

template <weft::nic::Driver D>
class CardOf : public Card {
 public:
  using Bus = typename D::Bus;

  explicit CardOf(std::unique_ptr<Bus> bus)
      : owned_(std::move(bus)), bus_(*owned_), driver_(std::make_unique<D>(bus_)) {}
  // The bus outlives the card.
  explicit CardOf(Bus& bus) : bus_(bus), driver_(std::make_unique<D>(bus_)) {}

  D& driver() noexcept { return *driver_; }
  Bus& bus() noexcept { return bus_; }

  const char* driver_name() const noexcept override { return D::name; }
  Result<void> open(const DriverSettings& settings) override { return driver_->open(settings); }
  void close() noexcept override { driver_->close(); }
  wire::Mac mac() const noexcept override { return driver_->mac(); }
  size_t frame_bytes_max() const noexcept override { return driver_->frame_bytes_max(); }
  bool has_link() noexcept override { return driver_->has_link(); }
  bool is_broken() const noexcept override { return driver_->is_broken(); }
  int join(const wire::Mac& group) noexcept override { return driver_->join(group); }
  void leave(const wire::Mac& group) noexcept override { driver_->leave(group); }
  size_t transmit_room() const noexcept override { return driver_->transmit_room(); }
  bool post(std::span<const Fragment> frame, uint64_t token) noexcept override {
    return driver_->post(frame, token);
  }
  void kick() noexcept override { driver_->kick(); }
  size_t reclaim(TokenSink& sink) noexcept override {
    return driver_->reclaim([&sink](uint64_t token) noexcept { sink.on_token(token); });
  }
  size_t receive(FrameSink& sink, size_t count) noexcept override { return driver_->receive(sink, count); }
  bool arm() noexcept override { return driver_->arm(); }
  void disarm() noexcept override { driver_->disarm(); }
  int wait_fd() const noexcept override { return driver_->wait_fd(); }
  DriverCounters counters() noexcept override { return driver_->counters(); }

  Result<DmaMemory> allocate(size_t bytes) override { return bus_.allocate(bytes); }
  void release(DmaMemory& memory) noexcept override { bus_.release(memory); }
  Result<uint64_t> map(const void* memory, size_t bytes) override {
    return bus_.map(memory, bytes, {.device_reads = true, .device_writes = false});
  }
  void unmap(uint64_t address) noexcept override { bus_.unmap(address); }
  void wait_us(unsigned microseconds) noexcept override { bus_.wait_us(microseconds); }

  void abandon() noexcept override { static_cast<void>(driver_.release()); }

 private:
  std::unique_ptr<Bus> owned_;
  Bus& bus_;
  std::unique_ptr<D> driver_;
};

}  // namespace weft::link::nic
