// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Calls that find something each time: queues, counters and wait objects of a program that never sees them empty. Its endpoint makes progress all the
// same, at least every few calls. It is seen by a message that comes into a posted buffer.
#include "fixture.hpp"

#include <weft/libfabric_retired_calls.hpp>

namespace weft::conformance {
namespace {

constexpr uint64_t calls_max = 300;
constexpr uint64_t value = 5;

// What the owner of the target calls again and again.
enum class Call {
  Read,
  ReadFrom,
  ShortRead,
  Sread,
  SignalledSread,
  ErrorBehindAnEntry,
  Errors,
  TryWait,
  CounterWait
};

const char* name_of(Call call) {
  switch (call) {
    case Call::Read:
      return "Read";
    case Call::ReadFrom:
      return "ReadFrom";
    case Call::ShortRead:
      return "ShortRead";
    case Call::Sread:
      return "Sread";
    case Call::SignalledSread:
      return "SignalledSread";
    case Call::ErrorBehindAnEntry:
      return "ErrorBehindAnEntry";
    case Call::Errors:
      return "Errors";
    case Call::TryWait:
      return "TryWait";
    case Call::CounterWait:
      return "CounterWait";
  }
  return "?";
}

class NeverEmpty : public testing::TestWithParam<Call> {
 protected:
  static bool reads() { return GetParam() <= Call::SignalledSread; }

  // A message that waits as an unexpected one becomes an entry of the queue by this, without progress.
  void take_message(World& w) {
    ASSERT_EQ(fi_trecv(w[1], &in_, sizeof in_, nullptr, FI_ADDR_UNSPEC, 1, 0, &received_), 0);
  }

  void call_once(World& w) {
    fid_cq* cq = w[1].rx->get();
    struct fid* fids[1] = {&cq->fid};
    fi_cq_tagged_entry entries[4];
    fi_cq_err_entry error{};
    fi_addr_t source = 0;
    if (reads()) take_message(w);
    switch (GetParam()) {
      case Call::Read:
        ASSERT_EQ(fi_cq_read(cq, entries, 1), 1);
        break;
      case Call::ReadFrom:
        ASSERT_EQ(fi_cq_readfrom(cq, entries, 1, &source), 1);
        break;
      case Call::ShortRead:  // and once more, because it was short
        ASSERT_GE(fi_cq_read(cq, entries, 4), 1);
        if (const ssize_t rc = fi_cq_read(cq, entries, 4); rc != -FI_EAGAIN) {
          ASSERT_EQ(rc, 1);  // the message that is to come: a progress thread was there
          ASSERT_EQ(target_, value);
        }
        break;
      case Call::SignalledSread:
        WEFT_ASSERT_OK(fi_cq_signal(cq));
        [[fallthrough]];
      case Call::Sread:
        ASSERT_EQ(fi_cq_sread(cq, entries, 1, nullptr, -1), 1);
        break;
      case Call::ErrorBehindAnEntry:
        ASSERT_EQ(fi_cq_readerr(cq, &error, 0), -FI_EAGAIN);
        break;
      case Call::Errors:
        ASSERT_EQ(fi_trecv(w[1], &in_, sizeof in_, nullptr, FI_ADDR_UNSPEC, 3, 0, &received_), 0);
        WEFT_ASSERT_OK(fi_cancel(w[1].ep.fid(), &received_));
        if (const ssize_t rc = fi_cq_readerr(cq, &error, 0); rc == 1) {
          ASSERT_EQ(error.err, FI_ECANCELED);
        } else {  // the completion of the message is the first one, as above
          ASSERT_EQ(rc, -FI_EAGAIN);
          ASSERT_EQ(target_, value);
        }
        break;
      case Call::TryWait:
        ASSERT_EQ(fi_trywait(w.fabric(), fids, 1), -FI_EAGAIN);
        break;
      case Call::CounterWait:
        WEFT_ASSERT_OK(fi_cntr_wait(w[1].counter(FI_RECV), 1, -1));
        break;
    }
  }

  volatile uint64_t target_ = 0;  // the message that is to come

 private:
  uint64_t in_ = 0;
  Ctx received_;
};

Options options_for(Call call) {
  Options options{
      .caps = FI_TAGGED, .threading = FI_THREAD_DOMAIN, .msg_order = FI_ORDER_SAS, .own_domains = true};
  if (call == Call::Sread || call == Call::SignalledSread) options.wait_obj = FI_WAIT_UNSPEC;
  if (call == Call::TryWait) options.wait_obj = FI_WAIT_FD;
  if (call == Call::CounterWait) options.counters = {FI_RECV};
  return options;
}

TEST_P(NeverEmpty, progress_is_made_all_the_same__fi_domain_3) {
  WEFT_BEYOND_THE_MANUAL("progress by a call that finds something");
  WEFT_WORLD(w, options_for(GetParam()));
  // The endpoints know each other, and there are messages enough for one entry at each call.
  uint64_t in = 0;
  Ctx seen, last, sent;
  WEFT_ASSERT_OK(
      fi_trecv(w[1], const_cast<uint64_t*>(&target_), sizeof target_, nullptr, FI_ADDR_UNSPEC, 4, 0, &seen));
  WEFT_ASSERT_OK(fi_trecv(w[1], &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 2, 0, &last));
  for (uint64_t i = 0; i <= calls_max; ++i)
    WEFT_ASSERT_OK(
        w.post([&] { return fi_tinject(w[0], &i, sizeof i, w[0].peer[1], i < calls_max ? 1 : 2); }));
  w.done(w[1].rx, last);
  if (!reads() && GetParam() != Call::Errors) take_message(w);

  WEFT_ASSERT_OK(
      w.post([&] { return fi_tsend(w[0], &value, sizeof value, nullptr, w[0].peer[1], 4, &sent); }));
  uint64_t calls = 0;
  for (; target_ != value && calls < calls_max && !HasFatalFailure(); ++calls) {
    w[0].tx->poll();
    call_once(w);
  }
  EXPECT_EQ(target_, value) << "no progress by " << calls << " calls";
  w.done(w[0].tx, sent);
}

INSTANTIATE_TEST_SUITE_P(Calls, NeverEmpty,
                         testing::Values(Call::Read, Call::ReadFrom, Call::ShortRead, Call::Sread,
                                         Call::SignalledSread, Call::ErrorBehindAnEntry, Call::Errors,
                                         Call::TryWait, Call::CounterWait),
                         [](const testing::TestParamInfo<Call>& call) { return name_of(call.param); });

// fi_poll(3), fi_wait: one queue of the set has an entry for good, and the peer sends to the endpoint of the other one.
TEST(NeverEmptySet, progress_is_made_all_the_same__fi_poll_3) {
  WEFT_BEYOND_THE_MANUAL("progress by a call that finds something");
  WEFT_WORLD(w, {.caps = FI_TAGGED, .threading = FI_THREAD_DOMAIN, .endpoints = 1});
  WEFT_SKIP_IF(w.info()->ep_attr->type == FI_EP_MSG ? "endpoints stand in pairs" : "");
  Handle<fid_wait> set;
  fi_wait_attr wait_attr{};
  wait_attr.wait_obj = FI_WAIT_UNSPEC;
  const int rc = retired::wait_open(w.fabric(), &wait_attr, set.out());
  if (rc == -FI_ENOSYS) *set.out() = nullptr;
  WEFT_SKIP_IF(rc == -FI_ENOSYS ? "no wait sets" : "");
  WEFT_ASSERT_OK(rc);
  for (const bool full_one_first : {true, false}) {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.wait_obj = FI_WAIT_SET;
    attr.wait_set = set.get();
    fi_av_attr av_attr{};
    Cq one(w.domain(), attr, false), two(w.domain(), attr, false);
    ASSERT_EQ(one.open_error(), 0);
    ASSERT_EQ(two.open_error(), 0);
    Handle<fid_av> av;
    WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
    Handle<fid_ep> ends[2];  // of the queue with an entry; of the target
    fi_addr_t to[2];
    for (size_t i : {0, 1}) {
      Cq& cq = (i == 0) == full_one_first ? one : two;
      WEFT_ASSERT_OK(fi_endpoint(w.domain(), w.info(), ends[i].out(), nullptr));
      WEFT_ASSERT_OK(fi_ep_bind(ends[i].get(), av.fid(), 0));
      WEFT_ASSERT_OK(fi_ep_bind(ends[i].get(), cq.fid(), FI_TRANSMIT | FI_RECV));
      WEFT_ASSERT_OK(fi_enable(ends[i].get()));
      uint8_t name[256];
      size_t len = sizeof name;
      WEFT_ASSERT_OK(fi_getname(ends[i].fid(), name, &len));
      ASSERT_EQ(fi_av_insert(w[0].av.get(), name, 1, &to[i], 0, nullptr), 1);
    }
    const auto end = std::chrono::steady_clock::now() + timeout_default * patience();
    const auto drive = [&] {
      (void)fi_cq_read(one.get(), nullptr, 0);
      (void)fi_cq_read(two.get(), nullptr, 0);
      w[0].tx->poll();
      return std::chrono::steady_clock::now() < end;
    };
    volatile uint64_t target = 0, first = 0;
    Ctx waits, warm, seen, sent;
    const auto receive = [&](size_t at, volatile uint64_t& buffer, Ctx& context) {
      return fi_trecv(ends[at].get(), const_cast<uint64_t*>(&buffer), sizeof buffer, nullptr, FI_ADDR_UNSPEC,
                      1, 0, &context);
    };
    WEFT_ASSERT_OK(receive(0, first, waits));
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &value, sizeof value, to[0], 1); }));
    WEFT_ASSERT_OK(receive(1, target, warm));
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &value, sizeof value, to[1], 1); }));
    while ((target != value || first != value) && drive()) {
    }
    ASSERT_EQ(first, value);
    ASSERT_EQ(target, value);
    fi_cq_tagged_entry entry{};
    ASSERT_EQ(fi_cq_read((full_one_first ? two : one).get(), &entry, 1), 1);
    target = 0;
    WEFT_ASSERT_OK(receive(1, target, seen));
    WEFT_ASSERT_OK(w.post([&] { return fi_tsend(w[0], &value, sizeof value, nullptr, to[1], 1, &sent); }));
    uint64_t calls = 0;
    for (; target != value && calls < calls_max; ++calls) {
      w[0].tx->poll();
      WEFT_ASSERT_OK(retired::wait(set.get(), -1));
    }
    EXPECT_EQ(target, value) << "no progress by " << calls << " calls";
    while (w[0].tx->inbox.empty() && drive()) {
    }
    w[0].tx->inbox.clear();
    WEFT_ASSERT_OK(ends[0].close());
    WEFT_ASSERT_OK(ends[1].close());
  }
}

}  // namespace
}  // namespace weft::conformance
