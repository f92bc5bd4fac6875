// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A driver over os::vfio::Device against the kernel's card on the same hub. Must not know which driver it is.
#pragma once

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cases.hpp"
#include "checks.hpp"
#include "nic/driver.hpp"
#include "os/vfio/device.hpp"

namespace weft::vm {

inline constexpr size_t frame_bytes_min = 17;  // the 82574 sends no less
inline constexpr size_t frame_bytes_max = 1514;
inline constexpr size_t buffer_bytes = 2048;
inline constexpr size_t buffers = 64;

// A device with its driver and buffers to send from.
template <class D>
class Station {
 public:
  explicit Station(const Plan& plan, const nic::DriverSettings& settings = {})
      : device_(taken(os::vfio::Device::open(plan.address))), driver_(*device_) {
    taken(driver_.open(settings));
    memory_ = taken(device_->allocate(buffers * buffer_bytes));
  }
  ~Station() {
    driver_.close();
    device_->release(memory_);
  }
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  D& driver() noexcept { return driver_; }
  os::vfio::Device& device() noexcept { return *device_; }

  void await_link() {
    require(within(milliseconds(8000), [&] { return driver_.has_link(); }), "no link");
  }
  // Posts a frame in so many fragments, without the doorbell. False: no room.
  bool post(const Frame& frame, size_t pieces) {
    const size_t at = (next_++ % buffers) * buffer_bytes;
    std::ranges::copy(frame, memory_.bytes + at);
    std::vector<nic::Fragment> fragments;
    for (size_t begin = 0, i = 0; i < pieces; ++i) {
      const size_t end =
          i + 1 == pieces ? frame.size() : std::max<size_t>(begin + 1, frame.size() * (i + 1) / pieces);
      fragments.push_back({memory_.address + at + begin, static_cast<uint32_t>(end - begin)});
      begin = end;
    }
    if (!driver_.post(fragments, next_)) {
      --next_;
      return false;
    }
    return true;
  }
  size_t reclaim() {
    size_t count = 0;
    driver_.reclaim([&](uint64_t token) {
      in_order_ = in_order_ && token == ++reclaimed_;
      ++count;
    });
    require(in_order_, "tokens come back out of order");
    return count;
  }
  // Until all that was posted has come back.
  void settle() {
    require(within(milliseconds(3000),
                   [&] {
                     reclaim();
                     return reclaimed_ == next_ || driver_.is_broken();
                   }),
            "%lu of %lu frames come back", reclaimed_, next_);
    require(!driver_.is_broken(), "the driver says that the device is broken");
  }
  // Frames of our EtherType that are there.
  std::vector<Frame> receive(size_t count = 64) {
    Collector collector;
    driver_.receive(collector, count);
    return std::move(collector.frames);
  }
  std::vector<Frame> receive_until(size_t count, milliseconds time) {
    std::vector<Frame> all;
    within(time, [&] {
      for (Frame& one : receive()) all.push_back(std::move(one));
      return all.size() >= count;
    });
    return all;
  }
  nic::DmaMemory& memory() noexcept { return memory_; }
  void forget_tokens() noexcept { next_ = reclaimed_ = 0; }

 private:
  struct Collector {
    std::vector<Frame> frames;
    void on_frame(std::span<const std::byte> frame, bool) noexcept {
      const bool is_ours = frame.size() >= head_bytes && frame[12] == std::byte{ethernet_type >> 8} &&
                           frame[13] == std::byte{ethernet_type & 0xff};
      if (is_ours) frames.emplace_back(frame.begin(), frame.end());
    }
  };

  std::unique_ptr<os::vfio::Device> device_;
  D driver_;
  nic::DmaMemory memory_;
  uint64_t next_ = 0;
  uint64_t reclaimed_ = 0;
  bool in_order_ = true;
};

// Equal, but for zeros that pad to 60 bytes.
inline bool is_same(const Frame& got, const Frame& sent) {
  if (got.size() < sent.size() || (got.size() > sent.size() && got.size() != 60)) return false;
  return std::equal(sent.begin(), sent.end(), got.begin()) &&
         std::all_of(got.begin() + long(sent.size()), got.end(),
                     [](std::byte one) { return one == std::byte{}; });
}

// One frame each way.
template <class D>
void exchange(Station<D>& station, Surroundings& around, uint32_t seed) {
  around.wire.drain();
  station.receive();
  const Frame out = make_frame(around.wire.mac(), station.driver().mac(), 700, seed);
  require(station.post(out, 2), "no room");
  station.driver().kick();
  auto got = around.wire.receive(2000);
  while (got && !is_same(*got, out)) got = around.wire.receive(2000);  // what waited on the hub
  require(got.has_value(), "a frame from the driver does not arrive");
  station.settle();
  const Frame in = make_frame(station.driver().mac(), around.wire.mac(), 900, seed + 1);
  around.wire.send(in);
  const auto frames = station.receive_until(1, milliseconds(2000));
  require(frames.size() == 1 && is_same(frames[0], in), "a frame for the driver does not arrive");
}

// Every size, in batches; fragments of 1 to 4.
template <class D>
std::string sends_all_sizes(const Plan& plan, Surroundings& around) {
  Station<D> station(plan);
  station.await_link();
  around.wire.drain();
  constexpr size_t batch = 32;
  const uint64_t doorbells = station.driver().counters().transmit_doorbells;
  size_t count = 0;
  for (size_t first = frame_bytes_min; first <= frame_bytes_max; first += batch) {
    std::vector<Frame> sent;
    for (size_t bytes = first; bytes < first + batch && bytes <= frame_bytes_max; ++bytes) {
      sent.push_back(
          make_frame(around.wire.mac(), station.driver().mac(), bytes, static_cast<uint32_t>(bytes)));
      require(station.post(sent.back(), std::min<size_t>(1 + bytes % 4, bytes)), "no room at %zu", bytes);
    }
    station.driver().kick();
    for (const Frame& one : sent) {
      const auto got = around.wire.receive(2000);
      require(got && is_same(*got, one), "of %zu bytes: %s", one.size(),
              got ? text("came as %zu", got->size()).c_str() : "lost");
    }
    station.settle();
    count += sent.size();
  }
  const nic::DriverCounters counters = station.driver().counters();
  require(counters.frames_sent == count, "counted %lu of %zu", counters.frames_sent, count);
  return text("%zu frames, %lu doorbells", count, counters.transmit_doorbells - doorbells);
}

template <class D>
std::string receives_all_sizes(const Plan& plan, Surroundings& around) {
  Station<D> station(plan);
  station.await_link();
  constexpr size_t batch = 32;
  size_t count = 0;
  for (size_t first = frame_bytes_min; first <= frame_bytes_max; first += batch) {
    std::vector<Frame> sent;
    for (size_t bytes = first; bytes < first + batch && bytes <= frame_bytes_max; ++bytes) {
      sent.push_back(
          make_frame(station.driver().mac(), around.wire.mac(), bytes, static_cast<uint32_t>(bytes) + 7));
      around.wire.send(sent.back());
    }
    const auto got = station.receive_until(sent.size(), milliseconds(3000));
    require(got.size() == sent.size(), "%zu of %zu from %zu bytes on", got.size(), sent.size(), first);
    for (size_t i = 0; i < sent.size(); ++i)
      require(is_same(got[i], sent[i]), "of %zu bytes came as %zu", sent[i].size(), got[i].size());
    count += sent.size();
  }
  const nic::DriverCounters counters = station.driver().counters();
  require(counters.frames_bad == 0 && counters.frames_received >= count, "counted %lu, bad %lu",
          counters.frames_received, counters.frames_bad);
  return text("%zu frames, %lu doorbells", count, counters.receive_doorbells);
}

// More than the rings hold, both ways at once.
template <class D>
std::string floods(const Plan& plan, Surroundings& around) {
  Station<D> station(plan, {.transmit_descriptors = 64, .receive_descriptors = 64});
  station.await_link();
  around.wire.drain();
  constexpr size_t count = 3000;
  size_t posted = 0, arrived = 0, received = 0, incoming = 0;
  auto end = Clock::now() + milliseconds(10000);  // since the last frame: the host may be busy
  while ((arrived < count || posted < count) && Clock::now() < end) {
    for (int i = 0; i < 16 && posted < count && posted - arrived < buffers / 2; ++i) {
      if (!station.post(make_frame(around.wire.mac(), station.driver().mac(), 60 + posted % 1400,
                                   static_cast<uint32_t>(posted)),
                        1 + posted % 3)) {
        break;
      }
      ++posted;
    }
    station.driver().kick();
    for (; incoming < posted / 8; ++incoming)
      around.wire.send(make_frame(station.driver().mac(), around.wire.mac(), 500, 1));
    while (auto got = around.wire.receive(0)) {
      require(is_same(*got, make_frame(around.wire.mac(), station.driver().mac(), 60 + arrived % 1400,
                                       static_cast<uint32_t>(arrived))),
              "frame %zu is not as it was", arrived);
      ++arrived;
      end = Clock::now() + milliseconds(10000);
    }
    station.reclaim();
    received += station.receive().size();
  }
  require(arrived == count, "%zu of %zu arrived", arrived, count);
  station.settle();
  received += station.receive_until(incoming - received, milliseconds(1000)).size();
  require(received == incoming, "%zu of %zu received", received, incoming);
  return text("%zu sent, %zu received", arrived, received);
}

template <class D>
std::string interrupts_wake(const Plan& plan, Surroundings& around) {
  Station<D> station(plan);
  station.await_link();
  require(station.driver().wait_fd() >= 0, "no descriptor to wait for");
  constexpr int rounds = 50;
  for (int i = 0; i < rounds; ++i) {
    // Until nothing is there, and link changes have been told.
    within(milliseconds(1000), [&] {
      station.receive();
      return station.driver().arm();
    });
    pollfd one{station.driver().wait_fd(), POLLIN, 0};
    if (i == 0) {
      ::poll(&one, 1, 200);  // what was under way
      station.driver().disarm();
      station.receive();
      require(station.driver().arm(), "frames from nowhere");
      require(::poll(&one, 1, 100) == 0, "raised without a frame");
    }
    const Frame frame = make_frame(station.driver().mac(), around.wire.mac(), 100, static_cast<uint32_t>(i));
    around.wire.send(frame);
    require(::poll(&one, 1, 3000) == 1, "frame %d does not wake", i);
    station.driver().disarm();
    const auto got = station.receive_until(1, milliseconds(1000));
    require(got.size() == 1 && is_same(got[0], frame), "woken, and frame %d is not there", i);
    // An interrupt that was under way may raise it once more.
    require(within(milliseconds(1000),
                   [&] {
                     station.driver().disarm();
                     return ::poll(&one, 1, 10) == 0;
                   }),
            "the descriptor stays raised");
  }
  // A frame that came before: no sleep.
  around.wire.send(make_frame(station.driver().mac(), around.wire.mac(), 100, 1));
  ::usleep(50'000);
  bool slept = station.driver().arm();
  if (slept) {
    pollfd one{station.driver().wait_fd(), POLLIN, 0};
    slept = ::poll(&one, 1, 1000) == 0;
  }
  require(!slept, "sleeps over a frame");
  return text("%d", rounds);
}

template <class D>
std::string filters(const Plan& plan, Surroundings& around) {
  Station<D> station(plan);
  station.await_link();
  const wire::Mac other = {std::byte{0x52}, std::byte{0x54}, std::byte{0},
                           std::byte{0x99}, std::byte{0},    std::byte{1}};
  const wire::Mac group = {std::byte{0x33}, std::byte{0x33}, std::byte{0},
                           std::byte{0},    std::byte{0x12}, std::byte{0x34}};
  wire::Mac everybody;
  everybody.fill(std::byte{0xff});
  const auto passes = [&](wire::Mac to) {
    station.receive();
    around.wire.send(make_frame(to, around.wire.mac(), 200, 5));
    around.wire.send(make_frame(station.driver().mac(), around.wire.mac(), 300, 6));  // behind it
    const auto first = station.receive_until(1, milliseconds(1000));
    require(!first.empty(), "what is for it does not pass");
    if (first.front().size() == 300) return false;
    require(first.size() > 1 || station.receive_until(1, milliseconds(1000)).size() == 1,
            "what is behind it does not pass");
    return true;
  };
  require(passes(everybody), "broadcasts do not pass");
  require(!passes(other), "passes though it is for another");
  require(!passes(group), "a group passes that was not joined");
  require(station.driver().join(group) == 0 && passes(group), "the group does not pass");
  station.driver().leave(group);
  require(!passes(group), "the group passes after leave()");
  station.driver().set_promiscuous(true);
  require(passes(other), "promiscuous, and does not pass");
  station.driver().set_promiscuous(false);
  require(!passes(other), "passes though promiscuous no more");
  return {};
}

template <class D>
std::string resets_under_load(const Plan& plan, Surroundings& around) {
  Station<D> station(plan);
  (void)around.log.faults();
  std::atomic<bool> stop{false};
  const wire::Mac own = station.driver().mac();
  std::thread load([&] {
    const Frame frame = make_frame(own, around.wire.mac(), 1000, 9);
    for (unsigned i = 1; !stop; ++i) {
      try {
        around.wire.send(frame);
      } catch (const Failure&) {
      }
      if (i % 32 == 0) ::usleep(200);  // the guest has two processors
    }
  });
  size_t received = 0;
  std::string why;
  constexpr int rounds = 10;
  for (int i = 0; i < rounds && why.empty(); ++i) {
    const auto end = Clock::now() + milliseconds(60);
    while (Clock::now() < end) {
      station.post(make_frame(around.wire.mac(), own, 600, 3), 1);
      station.driver().kick();
      received += station.receive().size();
      station.reclaim();
    }
    if (i % 2 == 0) station.driver().close();
    if (auto again = station.driver().open({}); !again) why = again.error().why;
    station.forget_tokens();
  }
  stop = true;
  load.join();
  require(why.empty(), "%s", why.c_str());
  station.await_link();
  station.receive_until(SIZE_MAX, milliseconds(100));
  exchange(station, around, 77);
  require(around.log.faults().empty(), "the device used memory that it no longer had");
  return text("%d times, %zu frames meanwhile", rounds, received);
}

template <class D>
std::string link_changes(const Plan& plan, Surroundings& around) {
  Station<D> station(plan);
  station.await_link();
  exchange(station, around, 1);
  station.receive();
  station.driver().arm();
  station.driver().disarm();
  station.receive();
  const bool armed = station.driver().arm();
  around.monitor.say("set_link " + plan.netdev + " off");
  pollfd one{station.driver().wait_fd(), POLLIN, 0};
  const bool woken = !armed || ::poll(&one, 1, 5000) == 1;
  station.driver().disarm();
  const bool went = within(milliseconds(5000), [&] { return !station.driver().has_link(); });
  around.monitor.say("set_link " + plan.netdev + " on");
  require(within(milliseconds(10000), [&] { return station.driver().has_link(); }),
          "the link does not come back");
  require(went, "has a link without one");
  require(woken, "the change of the link does not wake");
  station.settle();
  exchange(station, around, 3);
  return armed ? "" : "not armed";
}

// The driver sends from the program's memory; unmapped, the address faults, and the driver can begin anew.
template <class D>
std::string late_transfers_fault(const Plan& plan, Surroundings& around) {
  Station<D> station(plan);
  station.await_link();
  around.wire.drain();
  (void)around.log.faults();
  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  const auto memory = std::make_unique<Page>();
  const Frame frame = make_frame(around.wire.mac(), station.driver().mac(), 800, 8);
  std::ranges::copy(frame, memory->bytes);
  const uint64_t address = taken(station.device().map(memory->bytes, frame.size(), {true, false}));
  const nic::Fragment fragment[] = {{address, static_cast<uint32_t>(frame.size())}};
  require(station.driver().post(fragment, 1), "no room");
  station.driver().kick();
  require(around.wire.receive(2000) == frame, "does not send from the program's memory");
  station.device().unmap(address);
  require(station.driver().post(fragment, 2), "no room");
  station.driver().kick();
  require(around.log.wait_for_fault() != 0, "no fault");
  while (const auto got = around.wire.receive(100))
    require(*got != frame, "memory that was unmapped was sent");
  taken(station.driver().open({}));
  station.forget_tokens();
  station.await_link();
  exchange(station, around, 9);
  return {};
}

// Processes that end in the middle of traffic; the next one finds a device that works, and nothing was written into memory that was free.
template <class D>
std::string survives_kills(const Plan& plan, Surroundings& around) {
  (void)around.log.faults();
  std::mt19937 random(static_cast<unsigned>(::getpid()));
  for (unsigned i = 0; i < plan.kills; ++i) {
    std::array<int, 2> opened{};
    require(::pipe(opened.data()) == 0, "no pipe");
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        Station<D> station(plan);
        if (::write(opened[1], "", 1) != 1) ::_exit(1);
        for (;;) {
          station.post(make_frame(around.wire.mac(), station.driver().mac(), 1000, 1), 1);
          station.driver().kick();
          station.receive();
          station.reclaim();
        }
      } catch (const std::exception&) {
        ::_exit(1);
      }
    }
    // The first one may still be opening the card.
    ::close(opened[1]);
    char byte = 0;
    if (i > 0) require(::read(opened[0], &byte, 1) == 1, "the process does not open the card");
    ::close(opened[0]);
    const auto end = Clock::now() + milliseconds(30 + random() % 200);
    const Frame frame = make_frame({std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                                    std::byte{0xff}, std::byte{0xff}},
                                   around.wire.mac(), 1000, 2);
    while (Clock::now() < end) around.wire.send(frame);
    ::kill(child, SIGKILL);
    if (i % 2 == 0) ::waitpid(child, nullptr, 0);
    {
      Station<D> station(plan);
      station.await_link();
      station.receive_until(SIZE_MAX, milliseconds(50));
      exchange(station, around, i);
    }
    int status = 0;
    if (i % 2 != 0) ::waitpid(child, &status, 0);
  }
  const auto faults = around.log.faults();
  require(faults.empty(), "%zu faults: %s", faults.size(), faults.empty() ? "" : faults[0].c_str());
  return text("%u processes", plan.kills);
}

template <class D>
std::string opens(const Plan& plan, Surroundings& around) {
  Station<D> station(plan);
  station.await_link();
  exchange(station, around, 1);
  const wire::Mac mac = station.driver().mac();
  std::string digits;
  for (const std::byte one : mac) digits += text("%02x", std::to_integer<unsigned>(one));
  return digits;
}

template <class D>
void short_cases_of(const Plan& plan, Surroundings& around) {
  check(std::string(D::name) + ": open, one frame each way", [&] { return opens<D>(plan, around); });
}

template <class D>
void cases_of(const Plan& plan, Surroundings& around) {
  const std::string name = std::string(D::name) + ": ";
  short_cases_of<D>(plan, around);
  check(name + "frames of all sizes out", [&] { return sends_all_sizes<D>(plan, around); });
  check(name + "frames of all sizes in", [&] { return receives_all_sizes<D>(plan, around); });
  check(name + "more than the rings hold", [&] { return floods<D>(plan, around); });
  check(name + "interrupts wake", [&] { return interrupts_wake<D>(plan, around); });
  check(name + "filters", [&] { return filters<D>(plan, around); });
  check(name + "reset under load", [&] { return resets_under_load<D>(plan, around); });
  check(name + "link down and up", [&] { return link_changes<D>(plan, around); });
  check(name + "late transfers fault", [&] { return late_transfers_fault<D>(plan, around); });
  check(name + "killed in the middle", [&] { return survives_kills<D>(plan, around); });
}

}  // namespace weft::vm
