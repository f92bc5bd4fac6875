// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Channels and asynchronous events without a provider: what is counted, what a descriptor shows, what destroying takes away.
#include "api/verbs/library/events.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

namespace weft::verbs {
namespace {

bool readable(int fd, int wait_ms = 0) {
  pollfd ready{fd, POLLIN, 0};
  return poll(&ready, 1, wait_ms) == 1;
}

void set_nonblocking(int fd) { ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0); }

class VerbsEvents : public testing::Test {
 protected:
  VerbsEvents() : events_(std::move(*Events::create())) {}

  Channel& channel() { return Channel::of(events_->create_channel(nullptr)); }
  void add(ibv_cq& cq, Channel& channel) {
    cq.channel = &channel.shown;
    ASSERT_EQ(events_->add(&cq, &channel), 0);
  }
  // The next one; null and EAGAIN.
  ibv_cq* next(Channel& channel) {
    ibv_cq* cq = nullptr;
    void* with = nullptr;
    if (events_->next_completion(channel, &cq, &with) != 0) return nullptr;
    EXPECT_EQ(with, cq->cq_context);
    return cq;
  }
  static ibv_async_event event_of(ibv_qp& qp, ibv_event_type type) {
    ibv_async_event event{};
    event.element.qp = &qp;
    event.event_type = type;
    return event;
  }

  std::unique_ptr<Events> events_;
};

TEST_F(VerbsEvents, OfQueuesComeInTurnsAndAreCounted) {
  Channel& at = channel();
  set_nonblocking(at.shown.fd);
  int with = 0;
  ibv_cq a{}, b{};
  a.cq_context = &with;
  add(a, at);
  add(b, at);
  EXPECT_FALSE(readable(at.shown.fd));
  EXPECT_EQ(next(at), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  events_->completion(&a);
  events_->completion(&a);
  events_->completion(&b);
  EXPECT_TRUE(readable(at.shown.fd));
  EXPECT_EQ(next(at), &a);
  EXPECT_EQ(next(at), &b);
  EXPECT_TRUE(readable(at.shown.fd));
  EXPECT_EQ(next(at), &a);
  EXPECT_FALSE(readable(at.shown.fd));
  EXPECT_EQ(next(at), nullptr);
}

TEST_F(VerbsEvents, WakeAnEdgeTriggeredEpollEachTime) {
  Channel& at = channel();
  set_nonblocking(at.shown.fd);
  ibv_cq cq{};
  add(cq, at);
  const os::Fd set(epoll_create1(0));
  epoll_event wanted{EPOLLIN | EPOLLET, {}}, got{};
  ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, at.shown.fd, &wanted), 0);
  for (int i = 0; i < 3; ++i) {
    events_->completion(&cq);
    EXPECT_EQ(epoll_wait(set.get(), &got, 1, 1000), 1);
    EXPECT_EQ(next(at), &cq);
    EXPECT_EQ(epoll_wait(set.get(), &got, 1, 0), 0);
  }
}

TEST_F(VerbsEvents, AreBoundedByACountAndNotByMemory) {
  Channel& at = channel();
  set_nonblocking(at.shown.fd);
  ibv_cq cq{};
  add(cq, at);
  constexpr int many = 100'000;
  for (int i = 0; i < many; ++i) events_->completion(&cq);
  int got = 0;
  while (next(at) != nullptr) ++got;
  EXPECT_EQ(got, many);
}

TEST_F(VerbsEvents, AChannelWithQueuesIsNotDestroyed) {
  Channel& at = channel();
  ibv_cq cq{};
  add(cq, at);
  EXPECT_EQ(at.shown.refcnt, 1);
  EXPECT_EQ(events_->destroy_channel(at), EBUSY);
  Events::Leaving leaving;
  ASSERT_EQ(events_->begin_destroy(&cq, &leaving), 0);
  events_->end_destroy(leaving, true);
  EXPECT_EQ(events_->destroy_channel(at), 0);
}

TEST_F(VerbsEvents, OfADestroyedQueueAreGoneAndThoseOfOthersAreNot) {
  Channel& at = channel();
  set_nonblocking(at.shown.fd);
  ibv_cq a{}, b{};
  add(a, at);
  add(b, at);
  for (int i = 0; i < 3; ++i) events_->completion(&a);
  events_->completion(&b);
  ASSERT_EQ(next(at), &a);
  Events::Leaving leaving;
  ASSERT_EQ(events_->begin_destroy(&a, &leaving), 0);
  EXPECT_EQ(leaving.completion, 1U);
  events_->completion(&a);
  events_->end_destroy(leaving, true);
  EXPECT_EQ(next(at), &b);
  EXPECT_FALSE(readable(at.shown.fd));
  EXPECT_EQ(next(at), nullptr);
  events_->completion(&a);  // the provider is late
  EXPECT_FALSE(readable(at.shown.fd));
}

TEST_F(VerbsEvents, OfAQueueThatCouldNotBeDestroyedAreThereAgain) {
  Channel& at = channel();
  set_nonblocking(at.shown.fd);
  ibv_cq cq{};
  add(cq, at);
  events_->completion(&cq);
  Events::Leaving leaving, second;
  ASSERT_EQ(events_->begin_destroy(&cq, &leaving), 0);
  EXPECT_EQ(events_->begin_destroy(&cq, &second), EBUSY);
  EXPECT_FALSE(readable(at.shown.fd));
  events_->completion(&cq);
  events_->end_destroy(leaving, false);
  EXPECT_EQ(next(at), &cq);
  EXPECT_EQ(next(at), &cq);
  EXPECT_EQ(next(at), nullptr);
}

TEST_F(VerbsEvents, AnAddressMayBeAnotherObjectBeforeTheFirstOneIsForgotten) {
  Channel& at = channel();
  set_nonblocking(at.shown.fd);
  ibv_cq cq{};
  add(cq, at);
  Events::Leaving leaving;
  ASSERT_EQ(events_->begin_destroy(&cq, &leaving), 0);
  add(cq, at);  // the provider's allocator was quick
  events_->completion(&cq);
  events_->end_destroy(leaving, true);
  EXPECT_EQ(at.shown.refcnt, 1);
  EXPECT_EQ(next(at), &cq);
  ASSERT_EQ(events_->begin_destroy(&cq, &leaving), 0);
  EXPECT_EQ(leaving.completion, 1U);
  events_->end_destroy(leaving, true);
}

TEST_F(VerbsEvents, AnObjectInUseIsNotDestroyed) {
  ibv_cq cq{};
  ibv_srq srq{};
  ibv_qp qp{};
  ASSERT_EQ(events_->add(&cq), 0);
  ASSERT_EQ(events_->add(&srq), 0);
  ASSERT_EQ(events_->add(&qp, nullptr, {&cq, &cq, &srq}), 0);
  Events::Leaving leaving;
  EXPECT_EQ(events_->begin_destroy(&cq, &leaving), EBUSY);
  EXPECT_EQ(events_->begin_destroy(&srq, &leaving), EBUSY);
  ASSERT_EQ(events_->begin_destroy(&qp, &leaving), 0);
  events_->end_destroy(leaving, true);
  EXPECT_EQ(events_->begin_destroy(&cq, &leaving), 0);
  EXPECT_EQ(events_->begin_destroy(&qp, &leaving), EINVAL);
}

TEST_F(VerbsEvents, AsynchronousOnesKeepTheirOrderAndTheSameOneIsKeptOnce) {
  set_nonblocking(events_->async_fd());
  ibv_qp qp{};
  ASSERT_EQ(events_->add(&qp), 0);
  ibv_async_event port{};
  port.element.port_num = 1;
  port.event_type = IBV_EVENT_PORT_ERR;
  for (int i = 0; i < 3; ++i) {
    events_->async(event_of(qp, IBV_EVENT_COMM_EST));
    events_->async(port);
    events_->async(event_of(qp, IBV_EVENT_QP_FATAL));
  }
  ibv_async_event got{};
  ASSERT_EQ(events_->next_async(&got), 0);
  EXPECT_EQ(got.event_type, IBV_EVENT_COMM_EST);
  EXPECT_EQ(got.element.qp, &qp);
  ASSERT_EQ(events_->next_async(&got), 0);
  EXPECT_EQ(got.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(got.element.port_num, 1);
  ASSERT_EQ(events_->next_async(&got), 0);
  EXPECT_EQ(got.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(events_->next_async(&got), -1);
  EXPECT_EQ(errno, EAGAIN);
  events_->async(event_of(qp, IBV_EVENT_COMM_EST));  // again after it was read
  EXPECT_EQ(events_->next_async(&got), 0);
}

TEST_F(VerbsEvents, AsynchronousOnesOfADestroyedObjectAreGone) {
  set_nonblocking(events_->async_fd());
  ibv_qp a{}, b{};
  ASSERT_EQ(events_->add(&a), 0);
  ASSERT_EQ(events_->add(&b), 0);
  events_->async(event_of(a, IBV_EVENT_COMM_EST));
  events_->async(event_of(b, IBV_EVENT_COMM_EST));
  events_->async(event_of(a, IBV_EVENT_QP_FATAL));
  Events::Leaving leaving;
  ASSERT_EQ(events_->begin_destroy(&a, &leaving), 0);
  EXPECT_EQ(leaving.async, 0U);
  events_->async(event_of(a, IBV_EVENT_QP_ACCESS_ERR));
  events_->end_destroy(leaving, false);  // refused: all three are there
  ASSERT_EQ(events_->begin_destroy(&a, &leaving), 0);
  events_->end_destroy(leaving, true);
  ibv_async_event got{};
  ASSERT_EQ(events_->next_async(&got), 0);
  EXPECT_EQ(got.element.qp, &b);
  EXPECT_FALSE(readable(events_->async_fd()));
}

TEST_F(VerbsEvents, NoneIsLostOrDoubledBetweenThreads) {
  constexpr int queues = 4, readers = 3, each = 5'000;
  Channel& at = channel();
  std::vector<ibv_cq> cqs(queues);
  for (ibv_cq& cq : cqs) add(cq, at);
  std::atomic<int> got{0};
  std::vector<std::thread> threads;
  threads.reserve(readers + queues);
  for (int i = 0; i < readers; ++i) {
    threads.emplace_back([&] {
      // One more for each reader ends it.
      while (next(at) != nullptr && got.fetch_add(1) + 1 <= queues * each) {
      }
    });
  }
  for (ibv_cq& cq : cqs) {
    threads.emplace_back([&] {
      for (int i = 0; i < each; ++i) events_->completion(&cq);
    });
  }
  for (size_t i = readers; i < threads.size(); ++i) threads[i].join();
  for (int i = 0; i < readers; ++i) events_->completion(&cqs[0]);
  for (size_t i = 0; i < readers; ++i) threads[i].join();
  set_nonblocking(at.shown.fd);
  EXPECT_EQ(got, queues * each + readers);
  EXPECT_FALSE(readable(at.shown.fd));
}

TEST_F(VerbsEvents, DestroyingWhileOthersReadAndReportLeavesNoNoticeBehind) {
  Channel& at = channel();
  ibv_cq lasting{};
  add(lasting, at);
  std::atomic<bool> over{false};
  std::atomic<int> of_lasting{0};
  std::thread reader([&] {
    // Not next(): what it got may be destroyed, for nobody waits for acknowledgements here.
    ibv_cq* got = nullptr;
    void* with = nullptr;
    while (!over) {
      if (events_->next_completion(at, &got, &with) == 0 && got == &lasting) ++of_lasting;
    }
  });
  int sent = 0;
  for (int round = 0; round < 500; ++round) {
    ibv_cq cq{};
    add(cq, at);
    std::thread reporter([&] {
      for (int i = 0; i < 4; ++i) events_->completion(&cq);
    });
    events_->completion(&lasting);
    ++sent;
    Events::Leaving leaving;
    ASSERT_EQ(events_->begin_destroy(&cq, &leaving), 0);
    events_->end_destroy(leaving, true);
    reporter.join();
  }
  while (of_lasting < sent) std::this_thread::yield();
  EXPECT_FALSE(readable(at.shown.fd, 20));
  over = true;
  events_->completion(&lasting);
  reader.join();
}

}  // namespace
}  // namespace weft::verbs
