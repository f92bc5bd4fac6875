// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For tests: cards that are models (nic/model) on one hub, with interrupts that can be slept on.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "link/nic/card.hpp"
#include "link/nic/device.hpp"
#include "link/nic/frames.hpp"
#include "link/nic/open.hpp"
#include "nic/e1000e/driver.hpp"
#include "nic/model/bus.hpp"
#include "nic/model/e1000e.hpp"
#include "nic/model/hub.hpp"
#include "nic/model/stand.hpp"
#include "nic/model/virtio_net.hpp"
#include "nic/virtio_net/driver.hpp"
#include "os/event.hpp"

namespace weft::link::nic {

namespace model = weft::nic::model;

struct E1000eKind {
  using Model = model::E1000e;
  template <class Bus>
  using Driver = weft::nic::e1000e::Driver<Bus>;
  static std::unique_ptr<Model> make(model::Hub& hub, unsigned n) {
    return std::make_unique<Model>(hub, Model::Settings{.mac = model::mac_of(n)});
  }
};
struct VirtioKind {
  using Model = model::VirtioNet;
  template <class Bus>
  using Driver = weft::nic::virtio_net::Driver<Bus>;
  static std::unique_ptr<Model> make(model::Hub& hub, unsigned n) {
    Model::Settings settings;
    settings.mac = model::mac_of(n);
    settings.mtu = 9000;
    return std::make_unique<Model>(hub, settings);
  }
};

// The card of a model. Interrupts are notices of an event.
template <class Kind>
class ModelCard final : public CardOf<typename Kind::template Driver<model::Bus<typename Kind::Model>>> {
 public:
  using Bus = model::Bus<typename Kind::Model>;
  using Base = CardOf<typename Kind::template Driver<Bus>>;

  explicit ModelCard(typename Kind::Model& model) : Base(std::make_unique<Bus>(model)) {
    auto event = os::Event::create();
    event_.emplace(std::move(*event));
    this->bus().host().on_interrupt = [this](unsigned) { event_->notify(); };
  }
  int wait_fd() const noexcept override { return event_->fd(); }
  void disarm() noexcept override {
    Base::disarm();
    event_->drain();
  }

 private:
  std::optional<os::Event> event_;
};

// What tests do to a card, whichever it is.
class TestCard {
 public:
  virtual ~TestCard() = default;
  virtual std::unique_ptr<Card> plug() = 0;  // a new card on the model
  virtual model::Host& host() = 0;           // of the last one
  virtual model::Station& station() = 0;
  virtual void hold_transmit(bool on) = 0;
  virtual void break_it() = 0;  // the next look at it finds a contradiction, once
  virtual uint64_t bad_accesses() = 0;
};

template <class Kind>
class TestCardOf final : public TestCard {
 public:
  TestCardOf(model::Hub& hub, unsigned n) : model_(Kind::make(hub, n)) {}
  std::unique_ptr<Card> plug() override {
    auto card = std::make_unique<ModelCard<Kind>>(*model_);
    bus_ = &card->bus();
    return card;
  }
  model::Host& host() override { return bus_->host(); }
  model::Station& station() override { return *model_; }
  void hold_transmit(bool on) override { model_->hold_transmit(on); }
  void break_it() override {
    if constexpr (std::is_same_v<Kind, VirtioKind>) {
      model_->need_reset();
    } else {
      // Registers read all ones once, as those of a device that has left the bus.
      bus_->tamper_read = [left = 1](unsigned, size_t, uint32_t value) mutable {
        if (left == 0) return value;
        --left;
        return 0xffffffffU;
      };
    }
  }
  uint64_t bad_accesses() override { return bus_->bad_accesses(); }
  typename Kind::Model& model() { return *model_; }

 private:
  std::unique_ptr<typename Kind::Model> model_;
  model::Bus<typename Kind::Model>* bus_ = nullptr;
};

// A card whose calls are made one at a time, since the hub is for one thread, and domains have threads of their own.
class LockedCard final : public Card {
 public:
  LockedCard(std::unique_ptr<Card> card, std::recursive_mutex& mutex)
      : card_(std::move(card)), mutex_(mutex) {}
  ~LockedCard() override {
    const std::scoped_lock guard(mutex_);
    card_.reset();
  }
  const char* driver_name() const noexcept override { return card_->driver_name(); }
  Result<void> open(const DriverSettings& settings) override { return locked()->open(settings); }
  void close() noexcept override { locked()->close(); }
  wire::Mac mac() const noexcept override { return locked()->mac(); }
  size_t frame_bytes_max() const noexcept override { return locked()->frame_bytes_max(); }
  bool has_link() noexcept override { return locked()->has_link(); }
  bool is_broken() const noexcept override { return locked()->is_broken(); }
  int join(const wire::Mac& group) noexcept override { return locked()->join(group); }
  void leave(const wire::Mac& group) noexcept override { locked()->leave(group); }
  size_t transmit_room() const noexcept override { return locked()->transmit_room(); }
  bool post(std::span<const Fragment> frame, uint64_t token) noexcept override {
    return locked()->post(frame, token);
  }
  void kick() noexcept override { locked()->kick(); }
  size_t reclaim(TokenSink& sink) noexcept override { return locked()->reclaim(sink); }
  size_t receive(FrameSink& sink, size_t count) noexcept override { return locked()->receive(sink, count); }
  bool arm() noexcept override { return locked()->arm(); }
  void disarm() noexcept override { locked()->disarm(); }
  int wait_fd() const noexcept override { return card_->wait_fd(); }
  DriverCounters counters() noexcept override { return locked()->counters(); }
  Result<DmaMemory> allocate(size_t bytes) override { return locked()->allocate(bytes); }
  void release(DmaMemory& memory) noexcept override { locked()->release(memory); }
  Result<uint64_t> map(const void* memory, size_t bytes) override { return locked()->map(memory, bytes); }
  void unmap(uint64_t address) noexcept override { locked()->unmap(address); }
  void wait_us(unsigned microseconds) noexcept override { locked()->wait_us(microseconds); }
  void abandon() noexcept override { card_->abandon(); }

 private:
  // Holds the mutex to the end of the expression.
  class Locked {
   public:
    Locked(Card& card, std::recursive_mutex& mutex) : card_(card), guard_(mutex) {}
    Card* operator->() const noexcept { return &card_; }

   private:
    Card& card_;
    std::scoped_lock<std::recursive_mutex> guard_;
  };
  Locked locked() const noexcept { return {*card_, mutex_}; }

  std::unique_ptr<Card> card_;
  std::recursive_mutex& mutex_;
};

// Two cards on one cable that open_card() finds: 0000:00:01.0, an e1000e, and 0000:00:02.0, a virtio_net.
class TestBench {
 public:
  TestBench() {
    instance() = this;
    take_cards_from([](std::string_view address) -> Result<std::unique_ptr<Card>> {
      TestBench* const bench = instance();
      TestCard* const card = address == "0000:00:01.0"   ? bench->first.get()
                             : address == "0000:00:02.0" ? bench->second.get()
                                                         : nullptr;
      if (card == nullptr) return Error{ENOENT, "no test card"};
      const std::scoped_lock guard(bench->mutex);
      return std::unique_ptr<Card>(std::make_unique<LockedCard>(card->plug(), bench->mutex));
    });
  }
  ~TestBench() { take_cards_from(nullptr); }
  TestBench(const TestBench&) = delete;
  TestBench& operator=(const TestBench&) = delete;

  std::recursive_mutex mutex;
  model::Hub hub;
  std::unique_ptr<TestCard> first = std::make_unique<TestCardOf<E1000eKind>>(hub, 1);
  std::unique_ptr<TestCard> second = std::make_unique<TestCardOf<VirtioKind>>(hub, 2);

 private:
  static TestBench*& instance() {
    static TestBench* the_one = nullptr;
    return the_one;
  }
};

inline os::SocketAddress test_address(unsigned n, uint16_t port = 0, bool is_ip6 = false) {
  const std::string host = is_ip6 ? "[fd00::" + std::to_string(n) + "]" : "10.0.0." + std::to_string(n);
  return *os::SocketAddress::from_text(host + ':' + std::to_string(port));
}

}  // namespace weft::link::nic
