// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Threads: the same endpoint and queue under FI_THREAD_SAFE, one endpoint and queue a thread under FI_THREAD_COMPLETION,
// everything from one thread at a time under FI_THREAD_DOMAIN. Meant to run under a race detector too.
#include <atomic>
#include <mutex>
#include <thread>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

using Clock = std::chrono::steady_clock;

// Bounded spinning on something that other threads make true.
template <class F>
bool eventually(F&& done, milliseconds limit = timeout_default) {
  const auto end = Clock::now() + limit * patience();
  while (!done()) {
    if (Clock::now() >= end) return false;
    std::this_thread::yield();
  }
  return true;
}

struct Message {
  Ctx ctx;
  std::atomic<int> state{0};  // 1 done, 2 failed
  std::vector<uint8_t> data;
};

// Reads one batch and marks the messages of its contexts. Returns how many.
int drain(fid_cq* cq) {
  fi_cq_tagged_entry entries[8];
  const ssize_t n = fi_cq_read(cq, entries, 8);
  if (n == -FI_EAVAIL) {
    fi_cq_err_entry error{};
    if (fi_cq_readerr(cq, &error, 0) == 1 && error.op_context != nullptr) {
      reinterpret_cast<Message*>(error.op_context)->state = 2;
    }
    return 1;
  }
  for (ssize_t i = 0; i < n; ++i) reinterpret_cast<Message*>(entries[i].op_context)->state = 1;
  return n > 0 ? static_cast<int>(n) : 0;
}

size_t size_of(uint64_t i) {
  static const size_t sizes_of[] = {8, 40, 64, 300, 5000, 8, 70'000, 16};
  return sizes_of[i % 8];
}

// fi_domain(3), FI_THREAD_SAFE: senders, receivers and readers share one endpoint pair and its queues.
TEST(Threads, shared_endpoint_and_queue__fi_domain_3_THREAD_SAFE) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .threading = FI_THREAD_SAFE});
  constexpr int threads = 4;
  constexpr uint64_t each = 200;
  std::atomic<int> failures{0}, finished{0};
  std::vector<std::thread> all;
  const auto post = [&](auto&& call) {
    ssize_t rc = 0;
    const bool posted = eventually([&] {
      rc = call();
      if (rc == -FI_EAGAIN) {
        drain(w[0].tx->get());
        drain(w[1].rx->get());
      }
      return rc != -FI_EAGAIN;
    });
    if (!posted || rc != 0) ++failures;
    return posted && rc == 0;
  };
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      std::vector<Message> sends(each), receives(each);
      for (uint64_t i = 0; i < each; ++i) {
        const uint64_t tag = static_cast<uint64_t>(t) << 32 | i;
        const size_t len = size_of(i + static_cast<uint64_t>(t));
        sends[i].data = pattern(len, static_cast<uint32_t>(tag));
        receives[i].data.resize(len);
        if (!post([&] {
              return fi_trecv(w[1], receives[i].data.data(), len, nullptr, FI_ADDR_UNSPEC, tag, 0,
                              &receives[i].ctx);
            }))
          return;
        if (!post([&] {
              return fi_tsend(w[0], sends[i].data.data(), len, nullptr, w[0].peer[1], tag, &sends[i].ctx);
            }))
          return;
        if (i % 4 == 0) drain(w[1].rx->get());
        if (i % 4 == 2) drain(w[0].tx->get());
      }
      for (uint64_t i = 0; i < each; ++i) {
        const bool done = eventually([&] {
          drain(w[0].tx->get());
          drain(w[1].rx->get());
          return sends[i].state != 0 && receives[i].state != 0;
        });
        const uint32_t seed = static_cast<uint32_t>(static_cast<uint64_t>(t) << 32 | i);
        if (!done || sends[i].state != 1 || receives[i].state != 1 ||
            first_difference(receives[i].data.data(), receives[i].data.size(), seed) !=
                receives[i].data.size()) {
          ++failures;
          break;
        }
      }
      // Contexts live on this stack: nobody may leave while another still drains for it.
      ++finished;
      eventually([&] {
        drain(w[0].tx->get());
        drain(w[1].rx->get());
        return finished == threads;
      });
    });
  }
  for (auto& t : all) t.join();
  EXPECT_EQ(failures, 0);
}

// Both directions of every pair of endpoints from threads of their own, all in one domain.
TEST(Threads, one_thread_for_each_endpoint__fi_domain_3_THREAD_SAFE) {
  constexpr size_t n = 4;
  WEFT_WORLD(w, {.caps = FI_TAGGED, .threading = FI_THREAD_SAFE, .endpoints = n});
  std::atomic<int> failures{0};
  std::atomic<size_t> finished{0};
  std::vector<std::thread> all;
  for (size_t me = 0; me < n; ++me) {
    all.emplace_back([&, me] {
      for (uint64_t round = 0; round < 60 && failures == 0; ++round) {
        std::vector<Message> sends(n), receives(n);
        const size_t len = size_of(round);
        for (size_t other = 0; other < n; ++other) {
          sends[other].data = pattern(len, static_cast<uint32_t>(me * 1000 + round));
          receives[other].data.resize(len);
          const uint64_t tag_in = other << 32 | round, tag_out = me << 32 | round;
          ssize_t rc = 0;
          eventually([&] {
            rc = fi_trecv(w[me], receives[other].data.data(), len, nullptr, FI_ADDR_UNSPEC, tag_in, 0,
                          &receives[other].ctx);
            return rc != -FI_EAGAIN;
          });
          if (rc != 0) ++failures;
          eventually([&] {
            rc = fi_tsend(w[me], sends[other].data.data(), len, nullptr, w[me].peer[other], tag_out,
                          &sends[other].ctx);
            if (rc == -FI_EAGAIN) {
              drain(w[me].tx->get());
              drain(w[me].rx->get());
            }
            return rc != -FI_EAGAIN;
          });
          if (rc != 0) ++failures;
        }
        for (size_t other = 0; other < n; ++other) {
          const bool done = eventually([&] {
            drain(w[me].tx->get());
            drain(w[me].rx->get());
            return sends[other].state != 0 && receives[other].state != 0;
          });
          const uint32_t seed = static_cast<uint32_t>(other * 1000 + round);
          if (!done || first_difference(receives[other].data.data(), len, seed) != len) {
            ++failures;
            // The contexts must outlive what is pending; there is no clean way on.
            std::this_thread::sleep_for(milliseconds(100));
          }
        }
      }
      ++finished;
      eventually([&] {
        drain(w[me].tx->get());
        drain(w[me].rx->get());
        return finished == n;
      });
    });
  }
  for (auto& t : all) t.join();
  EXPECT_EQ(failures, 0);
}

// fi_domain(3), FI_THREAD_COMPLETION: an endpoint with its queue belongs to a thread, others run beside it.
TEST(Threads, endpoint_and_queue_for_each__fi_domain_3_THREAD_COMPLETION) {
  WEFT_WORLD(
      w,
      {.caps = FI_TAGGED | FI_RMA, .threading = FI_THREAD_COMPLETION, .own_domains = true, .one_cq = true});
  constexpr uint64_t rounds = 2000;
  std::atomic<int> failures{0};
  std::atomic<int> finished{0};
  std::vector<std::thread> all;
  for (size_t me = 0; me < 2; ++me) {
    all.emplace_back([&, me] {
      for (uint64_t i = 0; i < rounds && failures == 0; ++i) {
        Message send, receive;
        const size_t len = size_of(i);
        send.data = pattern(len, static_cast<uint32_t>(i * 2 + me));
        receive.data.resize(len);
        ssize_t rc = fi_trecv(w[me], receive.data.data(), len, nullptr, FI_ADDR_UNSPEC, i, 0, &receive.ctx);
        if (rc != 0) ++failures;
        eventually([&] {
          rc = fi_tsend(w[me], send.data.data(), len, nullptr, w[me].peer[1 - me], i, &send.ctx);
          if (rc == -FI_EAGAIN) drain(w[me].tx->get());
          return rc != -FI_EAGAIN;
        });
        if (rc != 0) ++failures;
        const bool done = eventually([&] {
          drain(w[me].tx->get());
          return send.state != 0 && receive.state != 0;
        });
        if (!done || first_difference(receive.data.data(), len, static_cast<uint32_t>(i * 2 + 1 - me)) != len)
          ++failures;
      }
      ++finished;
      eventually([&] {
        drain(w[me].tx->get());
        return finished == 2;
      });
    });
  }
  for (auto& t : all) t.join();
  EXPECT_EQ(failures, 0);
}

// fi_domain(3), FI_THREAD_DOMAIN: many threads, one at a time, everything of the domain.
TEST(Threads, serialised_by_the_program__fi_domain_3_THREAD_DOMAIN) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .threading = FI_THREAD_DOMAIN});
  std::mutex one_at_a_time;
  std::atomic<int> failures{0};
  std::vector<std::thread> all;
  for (uint64_t t = 0; t < 4; ++t) {
    all.emplace_back([&, t] {
      for (uint64_t i = 0; i < 200; ++i) {
        const std::lock_guard guard(one_at_a_time);
        Message send, receive;
        const size_t len = size_of(i);
        const uint64_t tag = t << 32 | i;
        send.data = pattern(len, static_cast<uint32_t>(tag));
        receive.data.resize(len);
        if (fi_trecv(w[1], receive.data.data(), len, nullptr, FI_ADDR_UNSPEC, tag, 0, &receive.ctx) != 0)
          ++failures;
        ssize_t rc = 0;
        eventually([&] {
          rc = fi_tsend(w[0], send.data.data(), len, nullptr, w[0].peer[1], tag, &send.ctx);
          if (rc == -FI_EAGAIN) {
            drain(w[0].tx->get());
            drain(w[1].rx->get());
          }
          return rc != -FI_EAGAIN;
        });
        const bool done = eventually([&] {
          drain(w[0].tx->get());
          drain(w[1].rx->get());
          return send.state != 0 && receive.state != 0;
        });
        if (rc != 0 || !done || first_difference(receive.data.data(), len, static_cast<uint32_t>(tag)) != len)
          ++failures;
      }
    });
  }
  for (auto& t : all) t.join();
  EXPECT_EQ(failures, 0);
}

// Control calls are always safe, fi_domain(3): endpoints, vectors, queues and regions come and go while others talk.
TEST(Threads, control_calls_beside_traffic__fi_domain_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_RMA, .threading = FI_THREAD_SAFE});
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0};
  std::thread control([&] {
    std::vector<uint8_t> memory(4096);
    for (uint64_t i = 0; !stop; ++i) {
      fi_cq_attr cq_attr{};
      cq_attr.format = FI_CQ_FORMAT_TAGGED;
      fi_av_attr av_attr{};
      Handle<fid_cq> cq;
      Handle<fid_av> av;
      Handle<fid_mr> mr;
      Handle<fid_ep> ep;
      if (fi_cq_open(w.domain(), &cq_attr, cq.out(), nullptr) != 0 ||
          fi_av_open(w.domain(), &av_attr, av.out(), nullptr) != 0 ||
          fi_mr_reg(w.domain(), memory.data(), memory.size(), FI_REMOTE_READ, 0, 5'000'000 + i, 0, mr.out(),
                    nullptr) != 0 ||
          fi_endpoint(w.domain(), w.info(), ep.out(), nullptr) != 0 ||
          fi_ep_bind(ep.get(), cq.fid(), FI_TRANSMIT | FI_RECV) != 0 ||
          fi_ep_bind(ep.get(), av.fid(), 0) != 0 || fi_enable(ep.get()) != 0) {
        ++failures;
        return;
      }
    }
  });
  for (uint64_t i = 0; i < 500; ++i) {
    uint64_t in = 0;
    Ctx sent, received;
    WEFT_EXPECT_OK(w.post([&] { return fi_trecv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, i, 0, &received); }));
    WEFT_EXPECT_OK(w.post([&] { return fi_tsend(w[0], &i, 8, nullptr, w[0].peer[1], i, &sent); }));
    w.done(w[1].rx, received);
    w.done(w[0].tx, sent);
    EXPECT_EQ(in, i);
    if (testing::Test::HasFailure()) break;
  }
  stop = true;
  control.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace weft::conformance
