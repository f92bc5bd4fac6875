// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A driver over a model of its card that lies: the input chooses what the program does, what the device writes into memory instead of the
// truth, and what its registers say. The driver must not crash, hang or read outside of its buffers; frames and tokens that it shows must be
// possible; and when the device is honest again, open() must make it work again.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <cstdlib>
#include <deque>
#include <memory>

#include "nic/model/stand.hpp"

namespace weft::fuzz {

template <class Stand>
class HostileNic {
 public:
  // `make`: from a hub to a model. `scribble`: writes where the driver looks, as only somebody who knows the card can.
  template <class Make, class Scribble>
  HostileNic(const uint8_t* data, size_t size, Make make, Scribble scribble)
      : in_(data, size), stand_(make(hub_), 1) {
    open();
    for (int step = 0; step < steps_max && in_.remaining_bytes() > 0; ++step) {
      const int what = in_.ConsumeIntegralInRange<int>(0, 19);
      if (what < 8) use(what);
      else if (what < 12) control(what);
      else if (what == 19) scribble(in_, stand_);
      else lie(what);
      check(stand_.driver.mac() == stand_.driver.mac());
    }
    recover();
  }

 private:
  static constexpr int steps_max = 400;

  static void check(bool is_right) {
    if (!is_right) std::abort();
  }

  void open() {
    nic::DriverSettings settings;
    frame_bytes_max_ = in_.ConsumeBool() ? 1514 : in_.ConsumeIntegralInRange<size_t>(60, 9018);
    settings.frame_bytes_max = frame_bytes_max_;
    settings.receive_descriptors = 32;
    settings.transmit_descriptors = in_.ConsumeBool() ? 32 : 64;
    settings.promiscuous = in_.ConsumeBool();
    posted_.clear();
    is_open_ = static_cast<bool>(stand_.driver.open(settings));
  }

  // What a program does.
  void use(int what) {
    auto& driver = stand_.driver;
    switch (what) {
      case 0:
      case 1: {
        std::array<nic::Fragment, 18> fragments{};
        const size_t count = in_.ConsumeIntegralInRange<size_t>(0, what == 0 ? 2 : fragments.size());
        for (size_t i = 0; i < count; ++i)
          fragments[i] = {stand_.address(), in_.ConsumeIntegralInRange<uint32_t>(0, 2000)};
        const size_t room = driver.transmit_room();
        if (driver.post(std::span(fragments).first(count), token_)) {
          check(room > 0 && is_open_);
          posted_.push_back(token_++);
        }
        break;
      }
      case 2:
        driver.kick();
        break;
      case 3:
        driver.reclaim([this](uint64_t token) noexcept {
          check(!posted_.empty() && posted_.front() == token);
          posted_.pop_front();
        });
        break;
      case 4: {
        const size_t most = in_.ConsumeIntegralInRange<size_t>(0, 80);
        check(receive(most) <= most);
        break;
      }
      case 5:
        driver.arm();
        break;
      case 6:
        driver.disarm();
        break;
      default: {
        const std::vector<std::byte> frame(in_.ConsumeIntegralInRange<size_t>(0, 10000), std::byte{0xff});
        hub_.send(other_, frame);
        break;
      }
    }
  }

  void control(int what) {
    auto& driver = stand_.driver;
    const wire::Mac group{std::byte{1}, static_cast<std::byte>(in_.ConsumeIntegral<uint8_t>())};
    switch (what) {
      case 8:
        driver.has_link();
        driver.counters();
        break;
      case 9:
        if (in_.ConsumeBool()) driver.join(group);
        else driver.leave(group);
        break;
      case 10:
        driver.set_promiscuous(in_.ConsumeBool());
        break;
      default:
        if (in_.ConsumeBool()) {
          driver.close();
          posted_.clear();
          is_open_ = false;
          const auto& host = stand_.bus.host();
          check(stand_.bus.leaked() == 1 && (!host.is_master || host.is_unplugged));
        } else {
          open();
        }
        break;
    }
  }

  // What an honest device would not do.
  void lie(int what) {
    auto& host = stand_.bus.host();
    switch (what) {
      case 12:
      case 13: {  // writes anywhere it can reach, mostly near the beginning: that is where rings are
        const auto& mappings = host.iommu.mappings();
        const size_t which = in_.ConsumeIntegralInRange<size_t>(0, mappings.size() - 1);
        const auto& [address, mapping] = *std::next(mappings.begin(), static_cast<ptrdiff_t>(which));
        const size_t reach = what == 12 ? std::min<size_t>(mapping.bytes, 4096) : mapping.bytes;
        const size_t at = in_.ConsumeIntegralInRange<size_t>(0, reach - 1);
        const auto bytes = in_.ConsumeBytes<uint8_t>(in_.ConsumeIntegralInRange<size_t>(1, 16));
        host.write(address + at, std::as_bytes(std::span(bytes)));
        break;
      }
      case 14:
        host.tamper = [this](uint64_t, std::span<std::byte> bytes) -> size_t {
          if (in_.remaining_bytes() == 0 || in_.ConsumeBool()) return bytes.size();
          const size_t at = in_.ConsumeIntegralInRange<size_t>(0, bytes.empty() ? 0 : bytes.size() - 1);
          if (at < bytes.size()) bytes[at] = static_cast<std::byte>(in_.ConsumeIntegral<uint8_t>());
          return in_.ConsumeBool() ? bytes.size() : in_.ConsumeIntegralInRange<size_t>(0, bytes.size());
        };
        break;
      case 15:
        stand_.bus.tamper_read = [this](unsigned, size_t, uint32_t value) -> uint32_t {
          if (in_.remaining_bytes() == 0) return value;
          const auto how = in_.ConsumeIntegral<uint8_t>();
          return how < 128 ? value : how < 160 ? 0xffffffff : how < 192 ? 0 : in_.ConsumeIntegral<uint32_t>();
        };
        break;
      case 16:
        make_honest();
        break;
      case 17:
        if (in_.ConsumeBool()) hub_.set_carrier(*stand_.model, in_.ConsumeBool());
        else stand_.model->reset();
        break;
      default:
        if (in_.ConsumeBool()) stand_.bus.unplug();
        else stand_.bus.plug();
        break;
    }
  }

  void make_honest() {
    stand_.bus.host().tamper = nullptr;
    stand_.bus.tamper_read = nullptr;
    stand_.bus.plug();
  }

  size_t receive(size_t most) {
    struct {
      void on_frame(std::span<const std::byte> frame, bool) noexcept {
        check(frame.size() >= wire::Ethernet::bytes && frame.size() <= most);
        std::byte all{};
        for (const std::byte b : frame) all ^= b;  // every byte can be read
        sum = sum ^ static_cast<unsigned>(all);
      }
      size_t most;
      volatile unsigned sum = 0;
    } handler{frame_bytes_max_};
    return stand_.driver.receive(handler, most);
  }

  void recover() {
    make_honest();
    hub_.set_carrier(*stand_.model, true);
    nic::DriverSettings settings;
    settings.receive_descriptors = 32;
    check(static_cast<bool>(stand_.driver.open(settings)));
    frame_bytes_max_ = settings.frame_bytes_max;
    check(stand_.driver.has_link() && !stand_.driver.is_broken());
    check(stand_.post(nic::model::frame_of(nic::model::mac_of(1), nic::model::mac_of(2), 60), 1));
    stand_.driver.kick();
    check(stand_.reclaim() == 1);
    hub_.send(other_, nic::model::frame_of(stand_.driver.mac(), nic::model::mac_of(2), 60));
    check(receive(1) == 1);
    check(stand_.bus.bad_accesses() == 0);
  }

  struct Other final : nic::model::Station {
    explicit Other(nic::model::Hub& hub) : hub_(hub) { hub_.plug(*this); }
    ~Other() { hub_.unplug(*this); }
    Other(const Other&) = delete;
    Other& operator=(const Other&) = delete;
    void on_wire(std::span<const std::byte>) noexcept override {}
    void on_carrier(bool) noexcept override {}

   private:
    nic::model::Hub& hub_;
  };

  FuzzedDataProvider in_;
  nic::model::Hub hub_;
  Other other_{hub_};
  Stand stand_;
  bool is_open_ = false;
  size_t frame_bytes_max_ = 0;
  uint64_t token_ = 0;
  std::deque<uint64_t> posted_;
};

}  // namespace weft::fuzz
