// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Event queues: fi_eq(3), and the asynchronous insertions of fi_av(3) that report to them.
#include <poll.h>
#include <weft/libfabric_retired_calls.hpp>

#include <cstring>
#include <thread>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

using Clock = std::chrono::steady_clock;

Handle<fid_eq> open_queue(World& w, fi_wait_obj object, size_t size = 0) {
  fi_eq_attr attr{};
  attr.flags = FI_WRITE;
  attr.wait_obj = object;
  attr.size = size;
  Handle<fid_eq> eq;
  const int rc = fi_eq_open(w.fabric(), &attr, eq.out(), nullptr);
  if (rc != 0) *eq.out() = nullptr;
  return eq;
}

fi_eq_entry entry_of(uint64_t data) {
  fi_eq_entry entry{};
  entry.context = reinterpret_cast<void*>(data + 1);
  entry.data = data;
  return entry;
}

// fi_eq(3), fi_eq_read and fi_eq_write: order kept, FI_PEEK leaves the event.
TEST(EventQueue, write_peek_read__fi_eq_3) {
  WEFT_WORLD(w, {.caps = FI_MSG, .endpoints = 0});
  auto eq = open_queue(w, FI_WAIT_NONE);
  ASSERT_TRUE(eq);
  uint32_t event = 0;
  fi_eq_entry out{};
  EXPECT_EQ(fi_eq_read(eq.get(), &event, &out, sizeof out, 0), -FI_EAGAIN);
  for (uint64_t i = 0; i < 3; ++i) {
    const fi_eq_entry in = entry_of(i);
    EXPECT_EQ(fi_eq_write(eq.get(), FI_NOTIFY, &in, sizeof in, 0), static_cast<ssize_t>(sizeof in));
  }
  for (int again = 0; again < 2; ++again) {
    event = 99;
    ASSERT_EQ(fi_eq_read(eq.get(), &event, &out, sizeof out, FI_PEEK), static_cast<ssize_t>(sizeof out));
    EXPECT_EQ(event, static_cast<uint32_t>(FI_NOTIFY));
    EXPECT_EQ(out.data, 0u);
  }
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(fi_eq_read(eq.get(), &event, &out, sizeof out, 0), static_cast<ssize_t>(sizeof out));
    EXPECT_EQ(out.data, i);
    EXPECT_EQ(out.context, reinterpret_cast<void*>(i + 1));
  }
  EXPECT_EQ(fi_eq_read(eq.get(), &event, &out, sizeof out, 0), -FI_EAGAIN);
  fi_eq_err_entry error{};
  EXPECT_EQ(fi_eq_readerr(eq.get(), &error, 0), -FI_EAGAIN);
}

// fi_eq(3), fi_eq_sread: timeout, wake by another thread's write.
TEST(EventQueue, sread__fi_eq_3) {
  WEFT_WORLD(w, {.caps = FI_MSG, .threading = FI_THREAD_SAFE, .endpoints = 0});
  for (const fi_wait_obj object : {FI_WAIT_UNSPEC, FI_WAIT_FD}) {
    auto eq = open_queue(w, object);
    ASSERT_TRUE(eq);
    uint32_t event = 0;
    fi_eq_entry out{};
    auto start = Clock::now();
    EXPECT_EQ(fi_eq_sread(eq.get(), &event, &out, sizeof out, 50, 0), -FI_EAGAIN);
    EXPECT_GE(Clock::now() - start, milliseconds(40));
    std::thread writer([&] {
      std::this_thread::sleep_for(milliseconds(30));
      const fi_eq_entry in = entry_of(7);
      fi_eq_write(eq.get(), FI_NOTIFY, &in, sizeof in, 0);
    });
    start = Clock::now();
    EXPECT_EQ(fi_eq_sread(eq.get(), &event, &out, sizeof out, 10'000, 0), static_cast<ssize_t>(sizeof out));
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
    EXPECT_EQ(out.data, 7u);
    writer.join();
  }
}

// fi_eq(3), FI_GETWAIT of FI_WAIT_FD: readable once there is an event.
TEST(EventQueue, file_descriptor__fi_eq_3) {
  WEFT_WORLD(w, {.caps = FI_MSG, .endpoints = 0});
  auto eq = open_queue(w, FI_WAIT_FD);
  ASSERT_TRUE(eq);
  int fd = -1;
  WEFT_ASSERT_OK(fi_control(eq.fid(), FI_GETWAIT, &fd));
  ASSERT_GE(fd, 0);
  struct fid* fids[1] = {eq.fid()};
  WEFT_ASSERT_OK(fi_trywait(w.fabric(), fids, 1));
  pollfd waiting{fd, POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 10), 0);
  const fi_eq_entry in = entry_of(1);
  ASSERT_GT(fi_eq_write(eq.get(), FI_NOTIFY, &in, sizeof in, 0), 0);
  EXPECT_EQ(poll(&waiting, 1, 1000), 1);
  EXPECT_EQ(fi_trywait(w.fabric(), fids, 1), -FI_EAGAIN) << "fi_poll(3): an event is queued";
  uint32_t event;
  fi_eq_entry out;
  EXPECT_GT(fi_eq_read(eq.get(), &event, &out, sizeof out, 0), 0);
}

// fi_eq(3): writing is for queues opened with FI_WRITE.
TEST(EventQueue, write_needs_the_flag__fi_eq_3) {
  WEFT_BEYOND_THE_MANUAL("fi_eq_write without FI_WRITE");
  WEFT_WORLD(w, {.caps = FI_MSG, .endpoints = 0});
  fi_eq_attr attr{};
  Handle<fid_eq> eq;
  WEFT_ASSERT_OK(fi_eq_open(w.fabric(), &attr, eq.out(), nullptr));
  const fi_eq_entry in = entry_of(1);
  EXPECT_LT(fi_eq_write(eq.get(), FI_NOTIFY, &in, sizeof in, 0), 0);
}

// A small queue either holds what was written or says no; nothing that it took is lost.
TEST(EventQueue, full__fi_eq_3) {
  WEFT_WORLD(w, {.caps = FI_MSG, .endpoints = 0});
  auto eq = open_queue(w, FI_WAIT_NONE, 4);
  ASSERT_TRUE(eq);
  uint64_t taken = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const fi_eq_entry in = entry_of(i);
    if (fi_eq_write(eq.get(), FI_NOTIFY, &in, sizeof in, 0) < 0) break;
    ++taken;
  }
  EXPECT_GE(taken, 4u) << "fi_eq(3), size: the minimum size";
  uint32_t event;
  fi_eq_entry out;
  for (uint64_t i = 0; i < taken; ++i) {
    ASSERT_EQ(fi_eq_read(eq.get(), &event, &out, sizeof out, 0), static_cast<ssize_t>(sizeof out)) << i;
    EXPECT_EQ(out.data, i);
  }
}

// fi_av(3), FI_EVENT: one event for each insertion, with the count of what went in.
TEST(AsyncInsert, one_event_for_each_call__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 3});
  auto eq = open_queue(w, FI_WAIT_UNSPEC);
  ASSERT_TRUE(eq);
  fi_av_attr attr{};
  attr.type = w.info()->domain_attr->av_type;
  attr.flags = FI_EVENT;
  Handle<fid_av> av;
  const int rc = fi_av_open(w.domain(), &attr, av.out(), nullptr);
  if (rc != 0) *av.out() = nullptr;
  WEFT_SKIP_IF(rc == -FI_ENOSYS || rc == -FI_EOPNOTSUPP ? "no asynchronous insertions" : "");
  WEFT_ASSERT_OK(rc);
  fi_addr_t got[3] = {FI_ADDR_NOTAVAIL, FI_ADDR_NOTAVAIL, FI_ADDR_NOTAVAIL};
  EXPECT_EQ(fi_av_insert(av.get(), w[0].name.data(), 1, got, 0, nullptr), -FI_ENOEQ)
      << "before an EQ is bound";
  WEFT_ASSERT_OK(retired::av_bind(av.get(), eq.fid(), 0));
  for (size_t i = 0; i < 3; ++i) {
    Ctx context;
    WEFT_ASSERT_OK(fi_av_insert(av.get(), w[i].name.data(), 1, &got[i], 0, &context));
    uint32_t event = 0;
    fi_eq_entry entry{};
    ASSERT_EQ(fi_eq_sread(eq.get(), &event, &entry, sizeof entry, 5000, 0),
              static_cast<ssize_t>(sizeof entry));
    EXPECT_EQ(event, static_cast<uint32_t>(FI_AV_COMPLETE));
    EXPECT_EQ(entry.fid, av.fid());
    EXPECT_EQ(entry.context, &context);
    EXPECT_EQ(entry.data, 1u);
    EXPECT_NE(got[i], FI_ADDR_NOTAVAIL);
  }
  // What went in can be looked up.
  uint8_t name[256];
  size_t len = sizeof name;
  WEFT_ASSERT_OK(fi_av_lookup(av.get(), got[2], name, &len));
  EXPECT_EQ(std::string(reinterpret_cast<char*>(name), len), std::string(w[2].name.begin(), w[2].name.end()));
  EXPECT_EQ(eq.close(), -FI_EBUSY) << "fi_eq(3), fi_close: an AV is bound to it";
}

}  // namespace
}  // namespace weft::conformance
