// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queues and counters through the calls of fi_cq(3) and fi_cntr(3).
#include <poll.h>
#include <weft/libfabric_retired.hpp>

#include <chrono>
#include <thread>

#include "api/libfabric/objects/objects_fixture.hpp"
#include "core/provider_error.hpp"

namespace weft::fi::test {
namespace {

using Clock = std::chrono::steady_clock;

long elapsed_ms(Clock::time_point since) {
  return long(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since).count());
}

Cq& object(fid_cq* cq) { return *cq_of(&cq->fid); }
Cntr& object(fid_cntr* cntr) { return *cntr_of(&cntr->fid); }

// Under each threading level the same calls; without a lock and with one.
class CqTest : public Objects, public testing::WithParamInterface<fi_threading> {
 protected:
  void SetUp() override { open(GetParam()); }
};

TEST_P(CqTest, OnlyTheLevelsThatNeedALockHaveOne) {
  const Domain& opened = *reinterpret_cast<Domain*>(domain);
  EXPECT_EQ(opened.lock.enabled, GetParam() != FI_THREAD_DOMAIN && GetParam() != FI_THREAD_COMPLETION);
}

// fi_cq(3), fi_cq_read and fi_cq_readfrom in the format that was asked.
TEST_P(CqTest, ReadsEveryFormat) {
  for (const fi_cq_format format : {FI_CQ_FORMAT_UNSPEC, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG,
                                    FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED}) {
    fid_cq* cq = open_cq(format);
    {
      FakeEndpoint endpoint(&object(cq));
      fi_cq_tagged_entry entry{};
      EXPECT_EQ(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
      endpoint.deliver(2);
      ASSERT_EQ(fi_cq_read(cq, &entry, 1), 1);
      EXPECT_EQ(entry.op_context, &endpoint);
      EXPECT_EQ(entry.len, format >= FI_CQ_FORMAT_MSG ? 5u : 0u);
      EXPECT_EQ(entry.tag, format == FI_CQ_FORMAT_TAGGED ? 1u : 0u);
      fi_addr_t source = 0;
      ASSERT_EQ(fi_cq_readfrom(cq, &entry, 1, &source), 1);
      EXPECT_EQ(source, 3u);
    }
    EXPECT_EQ(close(cq), 0);
  }
}

// fi_cq(3), fi_close: -FI_EBUSY while an endpoint is associated.
TEST_P(CqTest, AQueueInUseIsNotClosed) {
  fid_cq* cq = open_cq(FI_CQ_FORMAT_CONTEXT);
  {
    FakeEndpoint endpoint(&object(cq));
    EXPECT_EQ(close(cq), -FI_EBUSY);
    EXPECT_EQ(close(domain), -FI_EBUSY);
    EXPECT_EQ(close(fabric), -FI_EBUSY);
  }
  EXPECT_EQ(close(cq), 0);
}

// fi_cq(3), fi_cq_readerr, err_data: copied into the caller's buffer, truncated to it; lent with a size of 0.
TEST_P(CqTest, ReadsErrorsWithTheirData) {
  fid_cq* cq = open_cq(FI_CQ_FORMAT_TAGGED);
  core::CompletionError error;
  error.base.tag = 77;
  error.base.context = cq;
  error.olen = 9;
  error.err = FI_EADDRNOTAVAIL;
  error.prov_errno = int(core::ProviderError::PeerDied);
  error.err_data_size = 6;
  std::memcpy(error.err_data.data(), "source", 6);
  fi_cq_err_entry entry{};
  EXPECT_EQ(fi_cq_readerr(cq, &entry, 0), -FI_EAGAIN);
  object(cq).queue.push_error(error);
  object(cq).queue.push_error(error);
  fi_cq_tagged_entry nothing;
  EXPECT_EQ(fi_cq_read(cq, &nothing, 1), -FI_EAVAIL);
  char buffer[4] = {};
  entry.err_data = buffer;
  entry.err_data_size = sizeof buffer;
  ASSERT_EQ(fi_cq_readerr(cq, &entry, 0), 1);
  EXPECT_EQ(entry.err, FI_EADDRNOTAVAIL);
  EXPECT_EQ(entry.tag, 77u);
  EXPECT_EQ(entry.olen, 9u);
  EXPECT_EQ(entry.err_data, buffer);
  EXPECT_EQ(entry.err_data_size, 4u);
  EXPECT_EQ(std::string(buffer, 4), "sour");
  entry.err_data_size = 0;
  ASSERT_EQ(fi_cq_readerr(cq, &entry, 0), 1);
  ASSERT_EQ(entry.err_data_size, 6u);
  EXPECT_EQ(std::string(static_cast<char*>(entry.err_data), 6), "source");
  char text[64] = {};
  EXPECT_STREQ(fi_cq_strerror(cq, entry.prov_errno, entry.err_data, text, sizeof text),
               to_text(core::ProviderError::PeerDied));
  EXPECT_STREQ(text, to_text(core::ProviderError::PeerDied));
  EXPECT_EQ(close(cq), 0);
}

// fi_cq(3), fi_cq_sread: "invalid if the CQ has been configured with FI_WAIT_NONE".
TEST_P(CqTest, ABlockingReadNeedsAWaitObject) {
  fid_cq* cq = open_cq(FI_CQ_FORMAT_CONTEXT);
  fi_cq_entry entry;
  EXPECT_EQ(fi_cq_sread(cq, &entry, 1, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_cq_signal(cq), -FI_EINVAL);
  int fd = -1;
  EXPECT_LT(fi_control(&cq->fid, FI_GETWAIT, &fd), 0);
  EXPECT_EQ(close(cq), 0);
}

TEST_P(CqTest, ABlockingReadSleepsUntilAFrameComes) {
  for (const fi_wait_obj wait : {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD}) {
    fid_cq* cq = open_cq(FI_CQ_FORMAT_CONTEXT, wait);
    {
      FakeEndpoint endpoint(&object(cq));
      fi_cq_entry entry;
      auto start = Clock::now();
      EXPECT_EQ(fi_cq_sread(cq, &entry, 1, nullptr, 30), -FI_EAGAIN);
      EXPECT_GE(elapsed_ms(start), 29);
      bool was_woken = false;
      for (int attempt = 0; attempt < 20 && !was_woken; ++attempt) {  // busy CPUs delay either thread
        std::thread peer([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          endpoint.deliver();
        });
        start = Clock::now();
        fi_addr_t source = 0;
        EXPECT_EQ(fi_cq_sreadfrom(cq, &entry, 1, &source, nullptr, -1), 1);
        EXPECT_EQ(source, 3u);
        was_woken = elapsed_ms(start) < 90;
        peer.join();
      }
      EXPECT_TRUE(was_woken);
    }
    EXPECT_EQ(close(cq), 0);
  }
}

// fi_cq(3), FI_CQ_COND_THRESHOLD.
TEST_P(CqTest, AThresholdCollectsCompletions) {
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_CONTEXT;
  attr.wait_obj = FI_WAIT_UNSPEC;
  attr.wait_cond = FI_CQ_COND_THRESHOLD;
  fid_cq* cq = nullptr;
  ASSERT_EQ(fi_cq_open(domain, &attr, &cq, nullptr), 0);
  {
    FakeEndpoint endpoint(&object(cq));
    endpoint.deliver(2);
    fi_cq_entry entries[8];
    const size_t threshold = 3;
    std::thread peer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      endpoint.deliver(1);
    });
    EXPECT_EQ(fi_cq_sread(cq, entries, 8, &threshold, -1), 3);
    peer.join();
    endpoint.deliver(1);
    EXPECT_EQ(fi_cq_sread(cq, entries, 8, &threshold, 20), 1) << "the time is over: what is there";
    core::CompletionError error;
    error.err = FI_EIO;
    object(cq).queue.push_error(error);
    EXPECT_EQ(fi_cq_sread(cq, entries, 8, &threshold, -1), -FI_EAVAIL);
  }
  EXPECT_EQ(close(cq), 0);
}

// fi_cq(3), fi_cq_signal.
TEST_P(CqTest, ASignalUnblocks) {
  fid_cq* cq = open_cq(FI_CQ_FORMAT_CONTEXT, FI_WAIT_FD);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(fi_cq_signal(cq), 0);
  });
  fi_cq_entry entry;
  EXPECT_EQ(fi_cq_sread(cq, &entry, 1, nullptr, -1), -FI_EAGAIN);
  other.join();
  EXPECT_EQ(close(cq), 0);
}

bool readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

// fi_poll(3), fi_trywait with the descriptor of fi_cq(3), FI_GETWAIT.
TEST_P(CqTest, TheDescriptorIsReadableWhenAFrameCame) {
  fid_cq* cq = open_cq(FI_CQ_FORMAT_CONTEXT, FI_WAIT_FD);
  int fd = -1;
  ASSERT_EQ(fi_control(&cq->fid, FI_GETWAIT, &fd), 0);
  fi_wait_obj kind = FI_WAIT_NONE;
  ASSERT_EQ(fi_control(&cq->fid, FI_GETWAITOBJ, &kind), 0);
  EXPECT_EQ(kind, FI_WAIT_FD);
  {
    FakeEndpoint endpoint(&object(cq));
    ::fid* fids[] = {&cq->fid};
    fi_cq_entry entry;
    for (int round = 0; round < 3; ++round) {
      ASSERT_EQ(fi_trywait(fabric, fids, 1), 0);
      EXPECT_FALSE(readable(fd, 0));
      std::thread peer([&] { endpoint.deliver(); });
      EXPECT_TRUE(readable(fd, 2000));
      peer.join();
      EXPECT_EQ(fi_trywait(fabric, fids, 1), -FI_EAGAIN);
      EXPECT_EQ(fi_cq_read(cq, &entry, 1), 1);
    }
    ASSERT_EQ(fi_trywait(fabric, fids, 1), 0);
    object(cq).queue.push({});  // as another thread's progress would
    EXPECT_TRUE(readable(fd, 2000));
    EXPECT_EQ(fi_cq_read(cq, &entry, 1), 1);
  }
  EXPECT_EQ(close(cq), 0);
}

// fi_poll(3), fi_trywait: "-FI_EAGAIN if blocking could hang the application".
TEST_P(CqTest, TrywaitRefusesWhereNobodyWouldSignal) {
  fid_cq* cq = open_cq(FI_CQ_FORMAT_CONTEXT, FI_WAIT_MUTEX_COND);
  fi_mutex_cond pair{};
  ASSERT_EQ(fi_control(&cq->fid, FI_GETWAIT, &pair), 0);
  EXPECT_NE(pair.mutex, nullptr);
  EXPECT_NE(pair.cond, nullptr);
  ::fid* fids[] = {&cq->fid};
  EXPECT_EQ(fi_trywait(fabric, fids, 1), 0);
  {
    FakeEndpoint endpoint(&object(cq));
    EXPECT_EQ(fi_trywait(fabric, fids, 1), -FI_EAGAIN);
  }
  EXPECT_EQ(close(cq), 0);
}

TEST_P(CqTest, RefusesAttributesThatItCannotServe) {
  fi_cq_attr attr{};
  fid_cq* cq = nullptr;
  const int unknown = 99;
  std::memcpy(&attr.format, &unknown, sizeof unknown);
  EXPECT_EQ(fi_cq_open(domain, &attr, &cq, nullptr), -FI_ENOSYS);
  attr = {};
  attr.size = size_t{1} << 40;
  EXPECT_EQ(fi_cq_open(domain, &attr, &cq, nullptr), -FI_EINVAL);
  attr = {};
  attr.flags = FI_PEEK;
  EXPECT_EQ(fi_cq_open(domain, &attr, &cq, nullptr), -FI_EBADFLAGS);
  attr = {};
  attr.wait_obj = FI_WAIT_POLLFD;
  EXPECT_EQ(fi_cq_open(domain, &attr, &cq, nullptr), -FI_ENOSYS);
  attr.wait_obj = FI_WAIT_SET;
  EXPECT_EQ(fi_cq_open(domain, &attr, &cq, nullptr), -FI_EINVAL);
}

TEST_P(CqTest, EveryEntryOfTheVectorsIsCallable) {
  fid_cq* cq = open_cq(FI_CQ_FORMAT_CONTEXT);
  fid_cntr* cntr = open_cntr();
  void* ops = nullptr;
  for (::fid* fid : {&cq->fid, &cntr->fid, &domain->fid, &fabric->fid}) {
    EXPECT_EQ(fi_open_ops(fid, "none", 0, &ops, nullptr), -FI_ENOSYS);
    EXPECT_EQ(fi_set_ops(fid, "none", 0, nullptr, nullptr), -FI_ENOSYS);
    EXPECT_EQ(fi_control(fid, FI_BACKLOG, nullptr), -FI_ENOSYS);
  }
  EXPECT_LT(cq->fid.ops->bind(&cq->fid, &cntr->fid, 0), 0);
  EXPECT_EQ(close(cq), 0);
  EXPECT_EQ(close(cntr), 0);
}

// fi_cntr(3).
TEST_P(CqTest, CountersCount) {
  fid_cntr* cntr = open_cntr(FI_WAIT_UNSPEC);
  {
    FakeEndpoint endpoint(nullptr, &object(cntr));
    EXPECT_EQ(close(cntr), -FI_EBUSY);
    endpoint.deliver(3);
    EXPECT_EQ(fi_cntr_read(cntr), 3u) << "reading drives the endpoint";
    EXPECT_EQ(fi_cntr_add(cntr, 4), 0);
    EXPECT_EQ(fi_cntr_read(cntr), 7u);
    EXPECT_EQ(fi_cntr_set(cntr, 1), 0);
    EXPECT_EQ(fi_cntr_read(cntr), 1u);
    EXPECT_EQ(fi_cntr_wait(cntr, 1, 0), 0);
    EXPECT_EQ(fi_cntr_wait(cntr, 2, 20), -FI_ETIMEDOUT);
    bool was_woken = false;
    for (uint64_t attempt = 1; attempt <= 20 && !was_woken; ++attempt) {  // busy CPUs delay either thread
      std::thread peer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        endpoint.deliver(1);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        endpoint.deliver(1);
      });
      const auto start = Clock::now();
      EXPECT_EQ(fi_cntr_wait(cntr, 1 + 2 * attempt, -1), 0);
      was_woken = elapsed_ms(start) < 90;
      peer.join();
    }
    EXPECT_TRUE(was_woken);
  }
  EXPECT_EQ(close(cntr), 0);
}

// fi_cntr(3), fi_cntr_wait: "Any change in a counter's error value will unblock any thread".
TEST_P(CqTest, AnErrorEndsTheWaitForACounter) {
  fid_cntr* cntr = open_cntr(FI_WAIT_FD);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(fi_cntr_adderr(cntr, 2), 0);
  });
  EXPECT_EQ(fi_cntr_wait(cntr, 1, -1), -FI_EAVAIL);
  other.join();
  EXPECT_EQ(fi_cntr_readerr(cntr), 2u);
  EXPECT_EQ(fi_cntr_wait(cntr, 1, 0), -FI_ETIMEDOUT) << "an error that was seen counts no more";
  EXPECT_EQ(fi_cntr_seterr(cntr, 0), 0);
  EXPECT_EQ(fi_cntr_readerr(cntr), 0u);
  fid_cntr* silent = open_cntr();
  EXPECT_EQ(fi_cntr_wait(silent, 1, 0), -FI_ETIMEDOUT) << "without a wait object it polls";
  EXPECT_EQ(close(silent), 0);
  EXPECT_EQ(close(cntr), 0);
}

INSTANTIATE_TEST_SUITE_P(Threading, CqTest,
                         testing::Values(FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_ENDPOINT,
                                         FI_THREAD_COMPLETION, FI_THREAD_DOMAIN));

// fi_cq(3), err_data: "if the fabric was opened with release < 1.5", the structure ends with err_data.
class OldCqTest : public Objects {};

TEST_F(OldCqTest, AnOldProgramsErrorEntryIsNotOverrun) {
  open(FI_THREAD_SAFE, retired::mr_scalable, FI_VERSION(1, 4));
  fid_cq* cq = open_cq(FI_CQ_FORMAT_CONTEXT);
  core::CompletionError error;
  error.err = FI_EIO;
  error.err_data_size = 3;
  object(cq).queue.push_error(error);
  fi_cq_err_entry entry{};
  char own[8];
  entry.err_data = own;
  entry.err_data_size = 0x5a5a5a5a;  // beyond the old structure
  ASSERT_EQ(fi_cq_readerr(cq, &entry, 0), 1);
  EXPECT_NE(entry.err_data, own);
  EXPECT_EQ(entry.err_data_size, 0x5a5a5a5au);
  EXPECT_EQ(close(cq), 0);
}

// FI_THREAD_SAFE: readers of one queue, blocking and not, beside a peer. Nothing is lost, nothing read twice.
class CqThreads : public Objects {};

TEST_F(CqThreads, ManyReadersOfOneQueue) {
  open(FI_THREAD_SAFE);
  fid_cq* cq = open_cq(FI_CQ_FORMAT_TAGGED, FI_WAIT_FD, nullptr, 16);
  {
    FakeEndpoint endpoint(&object(cq));
    constexpr int total = 3000;
    std::atomic<int> got{0};
    std::atomic<uint64_t> sum{0};
    std::vector<std::thread> readers;
    readers.reserve(4);
    for (int t = 0; t < 3; ++t) {
      readers.emplace_back([&, t] {
        fi_cq_tagged_entry entries[4];
        while (got.load() < total) {
          const ssize_t n = t == 0 ? fi_cq_read(cq, entries, 4) : fi_cq_sread(cq, entries, 4, nullptr, 10);
          for (ssize_t i = 0; i < n; ++i) sum += entries[i].tag;
          if (n > 0) got += int(n);
        }
      });
    }
    for (int i = 0; i < total; ++i) {
      endpoint.deliver();
      if (i % 16 == 0) std::this_thread::yield();
    }
    for (auto& reader : readers) reader.join();
    EXPECT_EQ(sum, uint64_t(total) * (total + 1) / 2);
  }
  EXPECT_EQ(close(cq), 0);
}

}  // namespace
}  // namespace weft::fi::test
