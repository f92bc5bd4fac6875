// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counters: every binding of fi_endpoint(3), wait, add, set, errors of fi_cntr(3), regions of fi_mr(3).
#include <atomic>
#include <thread>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

bool reaches(World& w, fid_cntr* counter, uint64_t value) {
  return w.progress_until([&] { return fi_cntr_read(counter) >= value; });
}

// fi_cntr(3), fi_cntr_add, fi_cntr_set, fi_cntr_adderr, fi_cntr_seterr; the value may need a moment to show.
TEST(Counter, add_and_set__fi_cntr_3) {
  WEFT_WORLD(w, {.caps = FI_MSG, .endpoints = 0});
  fi_cntr_attr attr{};
  Handle<fid_cntr> counter;
  const int rc = fi_cntr_open(w.domain(), &attr, counter.out(), nullptr);
  if (rc == -FI_ENOSYS) *counter.out() = nullptr;
  WEFT_SKIP_IF(rc == -FI_ENOSYS ? "no counters" : "");
  WEFT_ASSERT_OK(rc);
  fid_cntr* c = counter.get();
  EXPECT_EQ(fi_cntr_read(c), 0u);
  EXPECT_EQ(fi_cntr_readerr(c), 0u);
  WEFT_ASSERT_OK(fi_cntr_add(c, 5));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_read(c) == 5; }));
  WEFT_ASSERT_OK(fi_cntr_add(c, 2));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_read(c) == 7; }));
  WEFT_ASSERT_OK(fi_cntr_set(c, 3));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_read(c) == 3; }));
  WEFT_ASSERT_OK(fi_cntr_adderr(c, 4));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_readerr(c) == 4; }));
  WEFT_ASSERT_OK(fi_cntr_seterr(c, 1));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_readerr(c) == 1; }));
  EXPECT_EQ(fi_cntr_read(c), 3u);
}

// fi_endpoint(3), fi_ep_bind, FI_SEND and FI_RECV: tagged and untagged messages, inject as well.
TEST(Counter, sends_and_receives__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_MSG | FI_TAGGED, .counters = {FI_SEND, FI_RECV}});
  uint64_t in[4];
  const uint64_t out = 1;
  std::vector<Ctx> ctx(8);
  WEFT_ASSERT_OK(fi_recv(w[1], &in[0], 8, nullptr, FI_ADDR_UNSPEC, &ctx[0]));
  WEFT_ASSERT_OK(fi_recv(w[1], &in[1], 8, nullptr, FI_ADDR_UNSPEC, &ctx[1]));
  WEFT_ASSERT_OK(fi_trecv(w[1], &in[2], 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &ctx[2]));
  WEFT_ASSERT_OK(fi_trecv(w[1], &in[3], 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &ctx[3]));
  WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], &out, 8, nullptr, w[0].peer[1], &ctx[4]); }));
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &out, 8, w[0].peer[1]); }));
  WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &out, 8, nullptr, w[0].peer[1], 1, &ctx[5]); }));
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &out, 8, w[0].peer[1], 1); }));
  EXPECT_TRUE(reaches(w, w[1].counter(FI_RECV), 4)) << fi_cntr_read(w[1].counter(FI_RECV));
  EXPECT_TRUE(reaches(w, w[0].counter(FI_SEND), 4)) << fi_cntr_read(w[0].counter(FI_SEND));
  w.progress_for(quiet_time);
  EXPECT_EQ(fi_cntr_read(w[1].counter(FI_RECV)), 4u);
  EXPECT_EQ(fi_cntr_read(w[0].counter(FI_SEND)), 4u);
  EXPECT_EQ(fi_cntr_read(w[0].counter(FI_RECV)), 0u);
  EXPECT_EQ(fi_cntr_read(w[1].counter(FI_SEND)), 0u);
  EXPECT_EQ(fi_cntr_readerr(w[1].counter(FI_RECV)), 0u);
}

// fi_cntr(3), FI_CNTR_EVENTS_COMP: counts though FI_SELECTIVE_COMPLETION keeps the queue silent.
TEST(Counter, counts_silent_operations__fi_cntr_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED,
                 .tx_bind = FI_TRANSMIT | FI_SELECTIVE_COMPLETION,
                 .rx_bind = FI_RECV | FI_SELECTIVE_COMPLETION,
                 .counters = {FI_SEND, FI_RECV}});
  for (const size_t len : {size_t{8}, size_t{100'000}}) {
    const uint64_t before = fi_cntr_read(w[1].counter(FI_RECV));
    const auto out = pattern(len, 1);
    std::vector<uint8_t> in(len);
    Ctx sent, received;
    WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
    WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], out.data(), len, nullptr, w[0].peer[1], 1, &sent); }));
    EXPECT_TRUE(reaches(w, w[1].counter(FI_RECV), before + 1));
    EXPECT_TRUE(reaches(w, w[0].counter(FI_SEND), before + 1));
    WEFT_EXPECT_PATTERN(in.data(), len, 1);
  }
  EXPECT_TRUE(w.quiet(w[0].tx));
  EXPECT_TRUE(w.quiet(w[1].rx));
}

// fi_endpoint(3), FI_READ and FI_WRITE at the initiator.
TEST(Counter, reads_and_writes__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_RMA, .counters = {FI_READ, FI_WRITE}});
  std::vector<uint8_t> target(100'000);
  Region region = w.reg(1, target.data(), target.size(), FI_REMOTE_READ | FI_REMOTE_WRITE);
  std::vector<uint8_t> local(100'000);
  std::vector<Ctx> ctx(5);
  WEFT_ASSERT_OK(w.post([&] {
    return fi_write(w[0], local.data(), 8, nullptr, w[0].peer[1], region.at(), region.key(), &ctx[0]);
  }));
  WEFT_ASSERT_OK(w.post([&] {
    return fi_write(w[0], local.data(), 100'000, nullptr, w[0].peer[1], region.at(), region.key(), &ctx[1]);
  }));
  WEFT_ASSERT_OK(w.post(
      [&] { return fi_inject_write(w[0], local.data(), 8, w[0].peer[1], region.at(), region.key()); }));
  EXPECT_TRUE(reaches(w, w[0].counter(FI_WRITE), 3)) << fi_cntr_read(w[0].counter(FI_WRITE));
  EXPECT_EQ(fi_cntr_read(w[0].counter(FI_READ)), 0u);
  WEFT_ASSERT_OK(w.post([&] {
    return fi_read(w[0], local.data(), 8, nullptr, w[0].peer[1], region.at(), region.key(), &ctx[2]);
  }));
  WEFT_ASSERT_OK(w.post([&] {
    return fi_read(w[0], local.data(), 100'000, nullptr, w[0].peer[1], region.at(), region.key(), &ctx[3]);
  }));
  EXPECT_TRUE(reaches(w, w[0].counter(FI_READ), 2));
  w.progress_for(quiet_time);
  EXPECT_EQ(fi_cntr_read(w[0].counter(FI_WRITE)), 3u);
  EXPECT_EQ(fi_cntr_read(w[0].counter(FI_READ)), 2u);
}

// fi_endpoint(3), FI_REMOTE_READ and FI_REMOTE_WRITE at the target, with FI_RMA_EVENT. The write is visible when it is counted.
TEST(Counter, remote_reads_and_writes__fi_endpoint_3) {
  WEFT_WORLD(w, {.caps = FI_RMA | FI_RMA_EVENT, .counters = {FI_REMOTE_READ, FI_REMOTE_WRITE}});
  std::vector<uint8_t> target(100'000);
  Region region = w.reg(1, target.data(), target.size(), FI_REMOTE_READ | FI_REMOTE_WRITE);
  uint64_t writes = 0, reads = 0;
  for (const size_t len : {size_t{8}, size_t{64}, size_t{5000}, size_t{100'000}}) {
    SCOPED_TRACE(len);
    const auto out = pattern(len, static_cast<uint32_t>(len));
    std::vector<uint8_t> back(len);
    Ctx wrote, did_read;
    WEFT_ASSERT_OK(w.post([&] {
      return fi_write(w[0], out.data(), len, nullptr, w[0].peer[1], region.at(), region.key(), &wrote);
    }));
    EXPECT_TRUE(reaches(w, w[1].counter(FI_REMOTE_WRITE), ++writes));
    WEFT_EXPECT_PATTERN(target.data(), len, static_cast<uint32_t>(len));
    w.done(w[0].tx, wrote);
    WEFT_ASSERT_OK(w.post([&] {
      return fi_read(w[0], back.data(), len, nullptr, w[0].peer[1], region.at(), region.key(), &did_read);
    }));
    w.done(w[0].tx, did_read);
    EXPECT_TRUE(reaches(w, w[1].counter(FI_REMOTE_READ), ++reads));
  }
  w.progress_for(quiet_time);
  EXPECT_EQ(fi_cntr_read(w[1].counter(FI_REMOTE_WRITE)), writes);
  EXPECT_EQ(fi_cntr_read(w[1].counter(FI_REMOTE_READ)), reads);
}

// fi_mr(3), fi_mr_bind: a counter for one region alone.
TEST(Counter, bound_to_a_region__fi_mr_3) {
  WEFT_WORLD(w, {.caps = FI_RMA | FI_RMA_EVENT});
  fi_cntr_attr attr{};
  Handle<fid_cntr> counter;
  WEFT_ASSERT_OK(fi_cntr_open(w[1].domain, &attr, counter.out(), nullptr));
  std::vector<uint8_t> counted(1000), other(1000);
  const bool late = (w.info()->domain_attr->mr_mode & FI_MR_RMA_EVENT) != 0;
  Region a =
      w.reg(1, counted.data(), counted.size(), FI_REMOTE_WRITE | FI_REMOTE_READ, late ? FI_RMA_EVENT : 0);
  Region b = w.reg(1, other.data(), other.size(), FI_REMOTE_WRITE | FI_REMOTE_READ);
  WEFT_ASSERT_OK(fi_mr_bind(a.handle().get(), counter.fid(), FI_REMOTE_WRITE));
  if (late) {
    WEFT_ASSERT_OK(fi_mr_enable(a.handle().get()));
  }
  const auto out = pattern(1000, 1);
  Ctx ctx[3];
  WEFT_ASSERT_OK(w.post(
      [&] { return fi_write(w[0], out.data(), 1000, nullptr, w[0].peer[1], a.at(), a.key(), &ctx[0]); }));
  WEFT_ASSERT_OK(w.post(
      [&] { return fi_write(w[0], out.data(), 1000, nullptr, w[0].peer[1], b.at(), b.key(), &ctx[1]); }));
  WEFT_ASSERT_OK(
      w.post([&] { return fi_write(w[0], out.data(), 8, nullptr, w[0].peer[1], a.at(), a.key(), &ctx[2]); }));
  for (auto& c : ctx) w.done(w[0].tx, c);
  EXPECT_TRUE(reaches(w, counter.get(), 2));
  w.progress_for(quiet_time);
  EXPECT_EQ(fi_cntr_read(counter.get()), 2u);
  EXPECT_EQ(counter.close(), -FI_EBUSY) << "fi_cntr(3), fi_close: a region still uses it";
  WEFT_ASSERT_OK(a.handle().close());
}

// Any endpoint may be the one that is written to, so a counter that is bound to a region alone drives them all.
TEST(Counter, a_region_alone_makes_progress__fi_cntr_3) {
  WEFT_BEYOND_THE_MANUAL("which calls drive an endpoint is the provider's");
  WEFT_WORLD(w, {.caps = FI_RMA | FI_RMA_EVENT, .threading = FI_THREAD_DOMAIN});
  fi_cntr_attr attr{};
  Handle<fid_cntr> counter;
  WEFT_ASSERT_OK(fi_cntr_open(w[1].domain, &attr, counter.out(), nullptr));
  std::vector<uint8_t> target(1000);
  Region region = w.reg(1, target.data(), target.size(), FI_REMOTE_WRITE);
  WEFT_ASSERT_OK(fi_mr_bind(region.handle().get(), counter.fid(), FI_REMOTE_WRITE));
  const auto out = pattern(1000, 1);
  Ctx ctx;
  WEFT_ASSERT_OK(w.post([&] {
    return fi_write(w[0], out.data(), 1000, nullptr, w[0].peer[1], region.at(), region.key(), &ctx);
  }));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (fi_cntr_read(counter.get()) == 0 && std::chrono::steady_clock::now() < end) w[0].tx->poll();
  EXPECT_EQ(fi_cntr_read(counter.get()), 1u);
  w.done(w[0].tx, ctx);
}

// fi_cntr(3) calls waiting for a counter without a wait object invalid; programs do it, so it polls.
TEST(Counter, wait_without_a_wait_object__fi_cntr_3) {
  WEFT_BEYOND_THE_MANUAL("fi_cntr(3): the application may not call it");
  WEFT_WORLD(w, {.caps = FI_TAGGED});
  fi_cntr_attr attr{};
  attr.wait_obj = FI_WAIT_NONE;
  Handle<fid_cntr> counter;
  WEFT_ASSERT_OK(fi_cntr_open(w.domain(), &attr, counter.out(), nullptr));
  EXPECT_EQ(fi_cntr_wait(counter.get(), 0, 0), 0);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(fi_cntr_wait(counter.get(), 1, 50), -FI_ETIMEDOUT);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(45));
  WEFT_ASSERT_OK(fi_cntr_add(counter.get(), 2));
  EXPECT_EQ(fi_cntr_wait(counter.get(), 2, -1), 0);
  WEFT_ASSERT_OK(fi_cntr_adderr(counter.get(), 1));
  EXPECT_EQ(fi_cntr_wait(counter.get(), 3, -1), -FI_EAVAIL);
}

// fi_cntr(3), readerr: what fails counts apart.
TEST(Counter, errors_count_apart__fi_cntr_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .counters = {FI_RECV}});
  uint64_t in = 0;
  Ctx small;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &small));
  const uint8_t out[40] = {};
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], out, sizeof out, w[0].peer[1], 1); }));
  const int err = w.wait(w[1].rx, small).err;
  if (manual_only() && err == 0) GTEST_SKIP() << "the provider truncates without an error";
  EXPECT_NE(err, 0);
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_readerr(w[1].counter(FI_RECV)) == 1; }));
  EXPECT_EQ(fi_cntr_read(w[1].counter(FI_RECV)), 0u);
}

struct CounterWait : testing::TestWithParam<fi_wait_obj> {
  static std::string why_not(fi_wait_obj object) {
    const Options options{.caps = FI_TAGGED, .endpoints = 0};
    if (auto why = missing(options); !why.empty()) return why;
    World w(options);
    fi_cntr_attr attr{};
    attr.wait_obj = object;
    Handle<fid_cntr> counter;
    const int rc = fi_cntr_open(w.domain(), &attr, counter.out(), nullptr);
    if (rc == 0) return {};
    *counter.out() = nullptr;
    return "no counter with this wait object: " + error_name(rc);
  }
};

// fi_cntr(3), fi_cntr_wait: -FI_ETIMEDOUT; there already; by another thread's fi_cntr_add.
TEST_P(CounterWait, times_out_and_wakes__fi_cntr_3) {
  WEFT_SKIP_IF(why_not(GetParam()));
  WEFT_WORLD(
      w, {.caps = FI_TAGGED, .threading = FI_THREAD_SAFE, .counters = {FI_RECV}, .counter_wait = GetParam()});
  fid_cntr* counter = w[1].counter(FI_RECV);
  EXPECT_EQ(fi_cntr_wait(counter, 1, 50), -FI_ETIMEDOUT);
  WEFT_ASSERT_OK(fi_cntr_wait(counter, 0, 1000));
  std::thread adder([&] {
    std::this_thread::sleep_for(milliseconds(30));
    fi_cntr_add(counter, 2);
  });
  WEFT_EXPECT_OK(fi_cntr_wait(counter, 2, 10'000));
  adder.join();
  EXPECT_GE(fi_cntr_read(counter), 2u);
}

// A message makes it wake; the call makes the progress.
TEST_P(CounterWait, wakes_for_a_message__fi_cntr_3) {
  WEFT_SKIP_IF(why_not(GetParam()));
  WEFT_WORLD(w, {.caps = FI_TAGGED,
                 .threading = FI_THREAD_SAFE,
                 .counters = {FI_RECV},
                 .counter_wait = GetParam(),
                 .own_domains = true});
  fid_cntr* counter = w[1].counter(FI_RECV);
  std::vector<uint64_t> in(11);
  std::vector<Ctx> ctx(11);
  for (size_t i = 0; i < 11; ++i)
    WEFT_ASSERT_OK(fi_trecv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, i, 0, &ctx[i]));
  const uint64_t out = 1;
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &out, 8, w[0].peer[1], 0); }));
  EXPECT_TRUE(reaches(w, counter, 1));
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    std::this_thread::sleep_for(milliseconds(30));
    for (uint64_t i = 1; i <= 10; ++i) {
      while (fi_tinject(w[0], &out, 8, w[0].peer[1], i) == -FI_EAGAIN && !stop) w[0].tx->poll();
    }
    while (!stop) w[0].tx->poll();
  });
  WEFT_EXPECT_OK(fi_cntr_wait(counter, 11, 10'000));
  stop = true;
  sender.join();
  for (auto& c : ctx) w.done(w[1].rx, c);
}

// fi_cntr(3): a change of the error value unblocks the waiting thread.
TEST_P(CounterWait, an_error_unblocks__fi_cntr_3) {
  WEFT_SKIP_IF(why_not(GetParam()));
  WEFT_WORLD(
      w, {.caps = FI_TAGGED, .threading = FI_THREAD_SAFE, .counters = {FI_RECV}, .counter_wait = GetParam()});
  fid_cntr* counter = w[1].counter(FI_RECV);
  std::thread adder([&] {
    std::this_thread::sleep_for(milliseconds(30));
    fi_cntr_adderr(counter, 1);
  });
  const auto start = std::chrono::steady_clock::now();
  const int rc = fi_cntr_wait(counter, 5, 20'000);
  EXPECT_LT(rc, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  adder.join();
}

INSTANTIATE_TEST_SUITE_P(Wait, CounterWait, testing::Values(FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD));

// fi_cntr(3), fi_close: -FI_EBUSY while an endpoint uses it.
TEST(Counter, close_while_bound_is_busy__fi_cntr_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .counters = {FI_RECV}, .endpoints = 1});
  auto& counter = w[0].counters.at(FI_RECV);
  ASSERT_EQ(counter.close(), -FI_EBUSY);
  WEFT_ASSERT_OK(w.close_endpoint(0));
  WEFT_ASSERT_OK(counter.close());
}

}  // namespace
}  // namespace weft::conformance
