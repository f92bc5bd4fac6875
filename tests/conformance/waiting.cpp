// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Blocking: fi_cq_sread with every wait object, wake-up, fi_cq_signal, file descriptors with fi_trywait, wait sets, poll sets.
#include <poll.h>
#include <weft/libfabric_retired_calls.hpp>

#include <atomic>
#include <thread>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

using Clock = std::chrono::steady_clock;

long ms_since(Clock::time_point start) {
  return static_cast<long>(std::chrono::duration_cast<milliseconds>(Clock::now() - start).count());
}

std::string wait_missing(fi_wait_obj object) {
  const Options options{.caps = FI_TAGGED, .endpoints = 0};
  if (auto why = missing(options); !why.empty()) return why;
  World w(options);
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_TAGGED;
  attr.wait_obj = object;
  Handle<fid_cq> cq;
  const int rc = fi_cq_open(w.domain(), &attr, cq.out(), nullptr);
  if (rc == 0) return {};
  *cq.out() = nullptr;
  return "no queue with wait object " + std::to_string(object) + ": " + error_name(rc);
}

// A pair that knows each other, so that later messages need no help from the sender's side.
void say_hello(World& w) {
  uint64_t in = 0;
  Ctx received;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 999, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &in, 8, w[0].peer[1], 999); }));
  w.done(w[1].rx, received);
}

struct Blocking : testing::TestWithParam<fi_wait_obj> {};

// fi_cq(3), fi_cq_sread: nothing there, so -FI_EAGAIN after the timeout and not long before.
TEST_P(Blocking, sread_times_out__fi_cq_3) {
  WEFT_SKIP_IF(wait_missing(GetParam()));
  WEFT_WORLD(w, {.caps = FI_TAGGED, .wait_obj = GetParam()});
  say_hello(w);
  const auto start = Clock::now();
  EXPECT_EQ(w[1].rx->sread(1, 60), -FI_EAGAIN);
  EXPECT_GE(ms_since(start), 50);
  EXPECT_LT(ms_since(start), 2000);
  const auto again = Clock::now();
  EXPECT_EQ(w[1].rx->sread(1, 0), -FI_EAGAIN);
  EXPECT_LT(ms_since(again), 1000);
}

// A message that is sent while the other thread sleeps wakes it.
TEST_P(Blocking, sread_wakes_for_a_message__fi_cq_3) {
  WEFT_SKIP_IF(wait_missing(GetParam()));
  WEFT_WORLD(w,
             {.caps = FI_TAGGED, .threading = FI_THREAD_SAFE, .wait_obj = GetParam(), .own_domains = true});
  say_hello(w);
  for (const size_t len : {size_t{8}, size_t{300'000}}) {
    SCOPED_TRACE(len);
    const auto out = pattern(len, 3);
    std::vector<uint8_t> in(len);
    Ctx received, sent;
    WEFT_ASSERT_OK(fi_trecv(w[1], in.data(), len, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
    const auto start = Clock::now();  // before the sender begins to wait
    std::atomic<ssize_t> posted{1};
    std::atomic<bool> stop{false};
    std::thread sender([&] {
      std::this_thread::sleep_for(milliseconds(50));
      do {
        posted = fi_tsend(w[0], out.data(), len, nullptr, w[0].peer[1], 1, &sent);
      } while (posted == -FI_EAGAIN && !stop);
      // The sender's side progresses until its operation is over.
      const auto end = Clock::now() + timeout_default;
      while (!stop && w[0].tx->inbox.empty() && Clock::now() < end) {
        w[0].tx->poll();
        w[0].rx->poll();
      }
    });
    ssize_t n = -FI_EAGAIN;
    while (n == -FI_EAGAIN && ms_since(start) < 10'000) n = w[1].rx->sread(1, 10'000);
    EXPECT_EQ(n, 1);
    EXPECT_GE(ms_since(start), 40);
    EXPECT_LT(ms_since(start), 8'000) << "only the timeout woke it";
    sender.join();
    stop = true;
    EXPECT_EQ(posted, 0);
    w.done(w[0].tx, sent);
    w.done(w[1].rx, received);
    WEFT_EXPECT_PATTERN(in.data(), len, 3);
  }
}

// An entry that is there already is returned at once, and several by one call.
TEST_P(Blocking, sread_returns_what_is_there__fi_cq_3) {
  WEFT_SKIP_IF(wait_missing(GetParam()));
  WEFT_WORLD(w, {.caps = FI_TAGGED, .wait_obj = GetParam()});
  say_hello(w);
  uint64_t in[3];
  const uint64_t out = 1;
  std::vector<Ctx> received(3);
  for (size_t i = 0; i < 3; ++i)
    WEFT_ASSERT_OK(fi_trecv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, i, 0, &received[i]));
  for (size_t i = 0; i < 3; ++i)
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &out, 8, w[0].peer[1], i); }));
  const auto start = Clock::now();
  while (w[1].rx->inbox.size() < 3 && ms_since(start) < 5000) w[1].rx->sread(16, 1000);
  EXPECT_EQ(w[1].rx->inbox.size(), 3u);
  EXPECT_LT(ms_since(start), 3000);
}

// fi_cq(3): an error entry wakes too, with -FI_EAVAIL.
TEST_P(Blocking, sread_tells_errors__fi_cq_3) {
  WEFT_SKIP_IF(wait_missing(GetParam()));
  WEFT_WORLD(w, {.caps = FI_TAGGED, .wait_obj = GetParam()});
  uint64_t in = 0;
  Ctx ctx;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &ctx));
  WEFT_ASSERT_OK(fi_cancel(w[1].ep.fid(), &ctx));
  EXPECT_EQ(w[1].rx->sread(1, 5000), -FI_EAVAIL);
  EXPECT_EQ(w.wait(w[1].rx, ctx).err, FI_ECANCELED);
}

// fi_cq(3), fi_cq_signal: unblocks a thread that waits without end.
TEST_P(Blocking, signal__fi_cq_3) {
  WEFT_SKIP_IF(wait_missing(GetParam()));
  WEFT_WORLD(w, {.caps = FI_TAGGED, .threading = FI_THREAD_SAFE, .wait_obj = GetParam()});
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(50));
    WEFT_EXPECT_OK(fi_cq_signal(w[1].rx->get()));
  });
  const auto start = Clock::now();
  EXPECT_EQ(w[1].rx->sread(1, 20'000), -FI_EAGAIN);
  EXPECT_LT(ms_since(start), 10'000);
  other.join();
}

std::string object_name(const testing::TestParamInfo<fi_wait_obj>& parameter) {
  switch (parameter.param) {
    case FI_WAIT_UNSPEC:
      return "unspec";
    case FI_WAIT_FD:
      return "fd";
    case FI_WAIT_MUTEX_COND:
      return "mutex_cond";
    default:
      return "yield";
  }
}

INSTANTIATE_TEST_SUITE_P(Wait, Blocking,
                         testing::Values(FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD),
                         object_name);

// fi_poll(3), fi_trywait: after FI_SUCCESS it is safe to sleep in poll(2); a message makes the descriptor ready.
TEST(WaitFd, trywait_and_poll__fi_poll_3) {
  WEFT_SKIP_IF(wait_missing(FI_WAIT_FD));
  WEFT_WORLD(w,
             {.caps = FI_TAGGED, .threading = FI_THREAD_SAFE, .wait_obj = FI_WAIT_FD, .own_domains = true});
  say_hello(w);
  int fd = -1;
  WEFT_ASSERT_OK(fi_control(w[1].rx->fid(), FI_GETWAIT, &fd));
  ASSERT_GE(fd, 0);
  fi_wait_obj object = FI_WAIT_NONE;
  if (fi_control(w[1].rx->fid(), FI_GETWAITOBJ, &object) == 0) {
    EXPECT_EQ(object, FI_WAIT_FD);
  }
  struct fid* fids[1] = {w[1].rx->fid()};
  const auto quiesce = [&] {
    const auto end = Clock::now() + std::chrono::seconds(5);
    int rc = -FI_EAGAIN;
    while ((rc = fi_trywait(w.fabric(), fids, 1)) == -FI_EAGAIN && Clock::now() < end) w[1].rx->poll();
    return rc;
  };
  // Nothing there: it sleeps. Acknowledgements that the peer sends by itself may still wake it a few times.
  WEFT_ASSERT_OK(quiesce());
  pollfd waiting{fd, POLLIN, 0};
  if (!manual_only()) {  // that blocking is safe is no promise that it lasts
    int ready = 1;
    for (int attempt = 0; attempt < 5 && ready != 0; ++attempt) {
      WEFT_ASSERT_OK(quiesce());
      ready = poll(&waiting, 1, 50);
    }
    EXPECT_EQ(ready, 0) << "ready though nothing is there";
  }
  for (int round = 0; round < 10; ++round) {
    SCOPED_TRACE(round);
    uint64_t in = 0;
    Ctx received;
    WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
    std::thread sender([&] {
      std::this_thread::sleep_for(milliseconds(round));
      const uint64_t value = 5;
      while (fi_tinject(w[0], &value, 8, w[0].peer[1], 1) == -FI_EAGAIN) w[0].tx->poll();
      // A provider may need the sender to push what it took.
      for (int i = 0; i < 100; ++i) w[0].tx->poll();
    });
    const auto start = Clock::now();
    while (w[1].rx->inbox.empty() && ms_since(start) < 5000) {
      if (fi_trywait(w.fabric(), fids, 1) == FI_SUCCESS) {
        waiting.revents = 0;
        poll(&waiting, 1, 5000);
      }
      w[1].rx->poll();
    }
    EXPECT_LT(ms_since(start), 4000) << "the descriptor did not wake";
    sender.join();
    w.done(w[1].rx, received);
    EXPECT_EQ(in, 5u);
  }
  // With an entry unread, trywait says so.
  uint64_t in = 0;
  const uint64_t value = 1;
  Ctx received;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &value, 8, w[0].peer[1], 1); }));
  const auto end = Clock::now() + std::chrono::seconds(2);
  int rc = 0;
  while (w[1].rx->inbox.empty() && (rc = fi_trywait(w.fabric(), fids, 1)) == 0 && Clock::now() < end)
    w[0].tx->poll();
  EXPECT_TRUE(rc == -FI_EAGAIN || !w[1].rx->inbox.empty());
  w.done(w[1].rx, received);
}

// fi_poll(3), fi_trywait: who was told that it may sleep hears of a message, though another thread has slept on the same queue meanwhile and has polled
// for a while.
TEST(WaitFd, a_sleep_of_another_thread_takes_nothing_away__fi_poll_3) {
  WEFT_SKIP_IF(wait_missing(FI_WAIT_FD));
  if (manual_only()) GTEST_SKIP() << "the peer may have more to say while nobody polls";
  WEFT_WORLD(w,
             {.caps = FI_TAGGED, .threading = FI_THREAD_SAFE, .wait_obj = FI_WAIT_FD, .own_domains = true});
  say_hello(w);
  int fd = -1;
  WEFT_ASSERT_OK(fi_control(w[1].rx->fid(), FI_GETWAIT, &fd));
  struct fid* fids[1] = {w[1].rx->fid()};
  uint64_t in = 0;
  Ctx received;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
  const auto end = Clock::now() + std::chrono::seconds(5);
  int rc = -FI_EAGAIN;
  while ((rc = fi_trywait(w.fabric(), fids, 1)) == -FI_EAGAIN && Clock::now() < end) w[1].rx->poll();
  WEFT_ASSERT_OK(rc);
  fi_cq_tagged_entry entry{};
  EXPECT_EQ(fi_cq_sread(w[1].rx->get(), &entry, 1, nullptr, 20), -FI_EAGAIN);
  for (int i = 0; i < 3000; ++i) w[1].rx->poll();
  WEFT_ASSERT_OK(w.post([&] {
    const uint64_t value = 5;
    return fi_tinject(w[0], &value, 8, w[0].peer[1], 1);
  }));
  pollfd waiting{fd, POLLIN, 0};
  const auto start = Clock::now();
  while (poll(&waiting, 1, 20) == 0 && ms_since(start) < 4000) w[0].tx->poll();
  EXPECT_LT(ms_since(start), 4000) << "the descriptor did not wake";
  w.done(w[1].rx, received);
  EXPECT_EQ(in, 5u);
}

// fi_cq(3), FI_CQ_COND_THRESHOLD: an optimisation only; a blocking read that hopes for more entries still ends.
TEST(WaitCond, threshold__fi_cq_3_wait_cond) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .wait_obj = FI_WAIT_UNSPEC, .endpoints = 0});
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_TAGGED;
  attr.wait_obj = FI_WAIT_UNSPEC;
  attr.wait_cond = FI_CQ_COND_THRESHOLD;
  Handle<fid_cq> cq;
  const int rc = fi_cq_open(w.domain(), &attr, cq.out(), nullptr);
  if (rc != 0) *cq.out() = nullptr;
  WEFT_SKIP_IF(rc == -FI_ENOSYS || rc == -FI_EINVAL ? "no wait conditions" : "");
  WEFT_ASSERT_OK(rc);
  fi_av_attr av_attr{};
  Handle<fid_av> av;
  Handle<fid_ep> ep;
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
  WEFT_ASSERT_OK(fi_endpoint(w.domain(), w.info(), ep.out(), nullptr));
  WEFT_ASSERT_OK(fi_ep_bind(ep.get(), av.fid(), 0));
  WEFT_ASSERT_OK(fi_ep_bind(ep.get(), cq.fid(), FI_TRANSMIT | FI_RECV));
  WEFT_ASSERT_OK(fi_enable(ep.get()));
  uint64_t in = 0;
  Ctx ctx;
  WEFT_ASSERT_OK(fi_trecv(ep.get(), &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &ctx));
  fi_cq_tagged_entry entries[4];
  const size_t threshold = 3;
  const auto start = Clock::now();
  EXPECT_EQ(fi_cq_sread(cq.get(), entries, 4, &threshold, 50), -FI_EAGAIN);
  // "The cond field is interpreted as a size_t": programs also pass the number in the place of the pointer.
  EXPECT_EQ(fi_cq_sread(cq.get(), entries, 4, reinterpret_cast<const void*>(threshold), 50), -FI_EAGAIN);
  WEFT_ASSERT_OK(fi_cancel(ep.fid(), &ctx));
  EXPECT_EQ(fi_cq_sread(cq.get(), entries, 4, &threshold, 3000), -FI_EAVAIL) << "an error need not wait";
  EXPECT_LT(ms_since(start), 10'000);
}

// fi_eq(3) and fi_cq(3), FI_GETWAIT of FI_WAIT_MUTEX_COND: both pointers are there.
TEST(WaitCond, mutex_and_cond__fi_cq_3) {
  WEFT_SKIP_IF(wait_missing(FI_WAIT_MUTEX_COND));
  WEFT_WORLD(w, {.caps = FI_TAGGED, .wait_obj = FI_WAIT_MUTEX_COND});
  fi_mutex_cond pair{};
  WEFT_ASSERT_OK(fi_control(w[0].rx->fid(), FI_GETWAIT, &pair));
  EXPECT_NE(pair.mutex, nullptr);
  EXPECT_NE(pair.cond, nullptr);
}

// fi_cq(3): a queue without wait object must not be slept on; the call says no.
TEST(WaitNone, sread_is_refused__fi_cq_3) {
  WEFT_BEYOND_THE_MANUAL("fi_cq(3): the application may not call it");
  WEFT_WORLD(w, {.caps = FI_TAGGED, .wait_obj = FI_WAIT_NONE});
  fi_cq_tagged_entry entry;
  const auto start = Clock::now();
  EXPECT_LT(fi_cq_sread(w[1].rx->get(), &entry, 1, nullptr, 100), 0);
  EXPECT_LT(ms_since(start), 5000);
}

// fi_poll(3), fi_poll: queues with entries and counters that moved return their contexts.
TEST(PollSet, tells_who_has_events__fi_poll_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .counters = {FI_RECV}});
  Handle<fid_poll> set;
  fi_poll_attr attr{};
  const int rc = retired::poll_open(w.domain(), &attr, set.out());
  if (rc == -FI_ENOSYS) *set.out() = nullptr;
  WEFT_SKIP_IF(rc == -FI_ENOSYS ? "no poll sets" : "");
  WEFT_ASSERT_OK(rc);
  WEFT_ASSERT_OK(retired::poll_add(set.get(), w[1].rx->fid(), 0));
  WEFT_ASSERT_OK(retired::poll_add(set.get(), &w[1].counter(FI_RECV)->fid, 0));
  void* contexts[4] = {};
  EXPECT_EQ(retired::poll(set.get(), contexts, 4), 0);
  uint64_t in = 0;
  const uint64_t value = 1;
  Ctx received;
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
  ssize_t sent = -FI_EAGAIN;
  const auto end = Clock::now() + std::chrono::seconds(5);
  int n = 0;
  bool queue_reported = false;
  while (!queue_reported && Clock::now() < end) {
    if (sent != 0) {
      sent = fi_tinject(w[0], &value, 8, w[0].peer[1], 1);
      if (sent != 0) w.progress();
    }
    w[0].tx->poll();
    n = retired::poll(set.get(), contexts, 4);
    ASSERT_GE(n, 0);
    for (int i = 0; i < n; ++i) queue_reported |= contexts[i] == w[1].rx;  // the context given to fi_cq_open
    if (!w[1].rx->inbox.empty()) break;
  }
  EXPECT_TRUE(queue_reported || !w[1].rx->inbox.empty());
  w.done(w[1].rx, received);
  ASSERT_EQ(set.close(), -FI_EBUSY) << "fi_poll(3), fi_close: it still holds a queue and a counter";
  WEFT_ASSERT_OK(retired::poll_del(set.get(), w[1].rx->fid(), 0));
  WEFT_ASSERT_OK(retired::poll_del(set.get(), &w[1].counter(FI_RECV)->fid, 0));
  EXPECT_EQ(retired::poll(set.get(), contexts, 4), 0);
}

// fi_poll(3), fi_wait_open and fi_wait: one set for two queues.
TEST(WaitSet, wakes_for_any_of_its_queues__fi_poll_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .threading = FI_THREAD_SAFE, .endpoints = 0});
  Handle<fid_wait> set;
  fi_wait_attr wait_attr{};
  wait_attr.wait_obj = FI_WAIT_UNSPEC;
  const int rc = retired::wait_open(w.fabric(), &wait_attr, set.out());
  if (rc == -FI_ENOSYS) *set.out() = nullptr;
  WEFT_SKIP_IF(rc == -FI_ENOSYS ? "no wait sets" : "");
  WEFT_ASSERT_OK(rc);
  {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.wait_obj = FI_WAIT_SET;
    attr.wait_set = set.get();
    fi_av_attr av_attr{};
    Cq one(w.domain(), attr, false), two(w.domain(), attr, false);
    ASSERT_EQ(one.open_error(), 0);
    ASSERT_EQ(two.open_error(), 0);
    ASSERT_EQ(set.close(), -FI_EBUSY) << "fi_poll(3), fi_close";
    Handle<fid_av> av;
    WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
    Handle<fid_ep> ep;
    WEFT_ASSERT_OK(fi_endpoint(w.domain(), w.info(), ep.out(), nullptr));
    WEFT_ASSERT_OK(fi_ep_bind(ep.get(), av.fid(), 0));
    WEFT_ASSERT_OK(fi_ep_bind(ep.get(), one.fid(), FI_TRANSMIT));
    WEFT_ASSERT_OK(fi_ep_bind(ep.get(), two.fid(), FI_RECV));
    WEFT_ASSERT_OK(fi_enable(ep.get()));
    uint8_t name[256];
    size_t len = sizeof name;
    WEFT_ASSERT_OK(fi_getname(ep.fid(), name, &len));
    fi_addr_t self = 0;
    ASSERT_EQ(fi_av_insert(av.get(), name, 1, &self, 0, nullptr), 1);
    // Nothing there: the wait ends with the timeout.
    const auto start = Clock::now();
    const int waited = retired::wait(set.get(), 50);
    EXPECT_TRUE(waited == -FI_ETIMEDOUT || waited == -FI_EAGAIN) << error_name(waited);
    EXPECT_LT(ms_since(start), 3000);
    uint64_t in = 0;
    const uint64_t value = 3;
    Ctx sent, received;
    WEFT_ASSERT_OK(fi_trecv(ep.get(), &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
    std::thread sender([&] {
      std::this_thread::sleep_for(milliseconds(30));
      while (fi_tsend(ep.get(), &value, 8, nullptr, self, 1, &sent) == -FI_EAGAIN) std::this_thread::yield();
    });
    const auto again = Clock::now();
    while ((one.inbox.empty() || two.inbox.empty()) && ms_since(again) < 5000) {
      retired::wait(set.get(), 1000);
      one.poll();
      two.poll();
    }
    sender.join();
    ASSERT_EQ(one.inbox.size(), 1u);
    ASSERT_EQ(two.inbox.size(), 1u);
    EXPECT_EQ(one.inbox.front().context, &sent);
    EXPECT_EQ(two.inbox.front().context, &received);
    EXPECT_EQ(in, value);
  }
}

}  // namespace
}  // namespace weft::conformance
