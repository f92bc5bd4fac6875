// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two endpoints that sleep on one device.
#include "os/shared_sleep.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <deque>

namespace weft::os {
namespace {

// Packets are numbers of inboxes.
struct FakeDevice final : core::Progressor {
  struct Inbox {
    SharedSleep sleep;
    int packets = 0;
  };
  void progress() noexcept override {
    for (; !ring.empty(); ring.pop_front()) {
      ++inboxes[ring.front()].packets;
      inboxes[ring.front()].sleep.ring();
    }
  }
  int wait_fd() noexcept override { return has_interrupt ? interrupt.fd() : -1; }
  bool arm() noexcept override {
    armed = ring.empty();
    return armed;
  }
  void disarm() noexcept override {
    armed = false;
    interrupt.drain();
  }
  void arrive(size_t inbox) {
    ring.push_back(inbox);
    if (armed) interrupt.notify();
  }

  Event interrupt = std::move(*Event::create());
  bool has_interrupt = true;
  bool armed = false;
  std::deque<size_t> ring;
  std::array<Inbox, 2> inboxes;
};

bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

struct SharedSleeps : testing::Test {
  bool arm(FakeDevice::Inbox& inbox) { return inbox.sleep.arm(device, inbox.packets == 0); }
  FakeDevice device;
  FakeDevice::Inbox& a = device.inboxes[0];
  FakeDevice::Inbox& b = device.inboxes[1];
};

TEST_F(SharedSleeps, ArePossibleWithADescriptorOnly) {
  EXPECT_FALSE(arm(a)) << "nobody has asked for the descriptor";
  device.has_interrupt = false;
  EXPECT_EQ(a.sleep.fd(device), -1);
  EXPECT_FALSE(arm(a));
  device.has_interrupt = true;
  const int fd = a.sleep.fd(device);
  EXPECT_GE(fd, 0);
  EXPECT_EQ(a.sleep.fd(device), fd);
  EXPECT_TRUE(arm(a));
  EXPECT_FALSE(readable(fd));
  a.sleep.disarm(device);
}

TEST_F(SharedSleeps, BeginWhenDeviceAndInboxAreEmpty) {
  (void)a.sleep.fd(device);
  device.arrive(0);
  EXPECT_FALSE(arm(a));
  device.progress();
  EXPECT_FALSE(arm(a));
  a.packets = 0;
  EXPECT_TRUE(arm(a));
  EXPECT_TRUE(arm(a)) << "again, for another queue";
  EXPECT_EQ(device.sleepers(), 1u);
  a.sleep.disarm(device);
  a.sleep.disarm(device);
  EXPECT_EQ(device.sleepers(), 0u);
}

TEST_F(SharedSleeps, AllEndWhenSomethingArrives) {
  const std::array<int, 2> fds = {a.sleep.fd(device), b.sleep.fd(device)};
  ASSERT_TRUE(arm(a) && arm(b));
  device.arrive(1);
  EXPECT_TRUE(readable(fds[0]) && readable(fds[1]));
  a.sleep.disarm(device);  // takes the packet, and the device is armed for b again
  EXPECT_EQ(b.packets, 1);
  EXPECT_TRUE(device.armed);
  EXPECT_FALSE(readable(fds[0]));
  EXPECT_TRUE(readable(fds[1])) << "its wakeup";
  b.sleep.disarm(device);
  EXPECT_FALSE(readable(fds[1]));
  EXPECT_FALSE(device.armed);
}

TEST_F(SharedSleeps, EndWhenAnotherEndpointPolls) {
  const int fd = b.sleep.fd(device);
  ASSERT_TRUE(arm(b));
  device.ring.push_back(1);  // the interrupt is on its way
  device.progress();         // by a's poll
  EXPECT_TRUE(readable(fd));
  EXPECT_FALSE(arm(b));
  b.sleep.disarm(device);
}

TEST_F(SharedSleeps, LeaveTheDeviceAtClose) {
  (void)a.sleep.fd(device);
  ASSERT_TRUE(arm(a));
  a.sleep.close(device);
  EXPECT_EQ(device.sleepers(), 0u);
  EXPECT_FALSE(device.armed);
  a.sleep.ring();
  EXPECT_FALSE(arm(a));
}

}  // namespace
}  // namespace weft::os
