// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For tests: a device with a queue pair, a completion queue and memory that peers may read and write.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "link/roce/device.hpp"
#include "os/clock.hpp"

namespace weft::link::roce::testing {

using namespace proto::roce;

struct Counting final : Events {
  void on_completion(CompletionQueue&) noexcept override { completions.fetch_add(1); }
  void on_async(const AsyncEvent&) noexcept override {}
  std::atomic<int> completions{0};
};

struct Side {
  explicit Side(const char* host, bool has_thread = true, bool has_shm = true)
      : Side(settings_of(host, has_thread, has_shm), 0) {}
  Side(const DeviceSettings& settings, uint8_t index) : memory(1 << 20), gid_index(index) {
    auto opened = Device::open(settings, events);
    if (!opened) {
      ADD_FAILURE() << opened.error().why;
      return;
    }
    device = std::move(*opened);
    const std::scoped_lock guard(device->lock());
    Adapter& adapter = device->adapter();
    cq = *adapter.create_cq(256);
    region = *adapter.memory().add(1, memory.data(), reinterpret_cast<uint64_t>(memory.data()), memory.size(),
                                   local_write | remote_write | remote_read);
    QueuePairRequest request;
    request.pd = 1;
    request.send_cq = request.receive_cq = cq;
    request.capacities = {64, 64, 2, 2, 64};
    qp = *adapter.create_qp(request);
  }
  static DeviceSettings settings_of(const char* host, bool has_thread, bool has_shm) {
    DeviceSettings settings;
    settings.has_shm = has_shm;
    settings.ipv4 = *os::SocketAddress::from_text(host);
    settings.has_standard = false;
    settings.has_thread = has_thread;
    return settings;
  }
  // What the other side has to know.
  struct Card {
    Gid gid{};
    uint32_t number = 0;
    uint32_t key = 0;
    uint64_t address = 0;
  };
  Card card() const {
    return {device->gid(gid_index), qp->number, region->key, reinterpret_cast<uint64_t>(memory.data())};
  }
  void connect(const Side& to) { connect(to.card()); }
  void connect(const Card& to) {
    const std::scoped_lock guard(device->lock());
    Attributes a;
    a.access = remote_write | remote_read;
    a.path.destination = to.gid;
    a.path.source_index = gid_index;
    a.destination = to.number;
    a.timeout = timeout;
    a.path_mtu = path_mtu;
    const auto step = [&](QpState state, uint32_t mask) {
      a.state = state;
      ASSERT_TRUE(device->adapter().modify(*qp, a, mask | attr_state, device->now()));
    };
    step(QpState::Init, attr_pkey_index | attr_port | attr_access);
    step(QpState::ReadyToReceive, attr_path | attr_path_mtu | attr_destination | attr_rq_psn |
                                      attr_max_dest_reads | attr_min_rnr_timer);
    step(QpState::ReadyToSend,
         attr_sq_psn | attr_timeout | attr_retry_count | attr_rnr_retry | attr_max_reads);
  }
  void write(const Side& to, uint32_t length, bool polls_later = false) {
    write(to.card(), length, polls_later);
  }
  void write(const Card& to, uint32_t length, bool polls_later = false) {
    const Element from{reinterpret_cast<uint64_t>(memory.data()), length, region->key};
    SendRequest q;
    q.opcode = SendOpcode::Write;
    q.flags = signaled;
    q.elements = {&from, 1};
    q.remote_address = to.address;
    q.remote_key = to.key;
    const std::scoped_lock guard(device->lock());
    ASSERT_EQ(device->adapter().post_send(*qp, q, device->now()), 0);
    device->posted(polls_later ? device->now() : 0);
  }
  // Waits for one completion; by polling the device, or only looking into the queue.
  bool wait(bool polls) {
    Completion c;
    for (const uint64_t end = os::monotonic_ns() + 10'000'000'000; os::monotonic_ns() < end;) {
      {
        const std::scoped_lock guard(device->lock());
        if (polls) (void)device->poll();
        if (cq->poll({&c, 1}) == 1) return c.status == Status::Success;
      }
      if (!polls) ::usleep(100);
    }
    return false;
  }

  DeviceCounters counters() {
    const std::scoped_lock guard(device->lock());
    return device->counters();
  }
  AdapterCounters packets() {
    const std::scoped_lock guard(device->lock());
    return device->adapter().counters();
  }

  // One byte, after what the device's thread wrote there.
  std::byte at(size_t place) {
    const std::scoped_lock guard(device->lock());
    return memory[place];
  }

  Counting events;
  std::vector<std::byte> memory;  // outlives the device, whose thread may write to it
  std::unique_ptr<Device> device;
  CompletionQueue* cq = nullptr;
  Region* region = nullptr;
  QueuePair* qp = nullptr;
  uint8_t gid_index = 0;
  // Of the queue pair that connect() brings up.
  uint8_t timeout = 14;
  uint8_t path_mtu = 3;
};

}  // namespace weft::link::roce::testing
