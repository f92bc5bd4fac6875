// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Datagram endpoints: fi_endpoint(3), FI_EP_DGRAM. What arrives is checked; what the manual lets be lost is not waited for, except over this
// machine's own loopback, which loses nothing while there is room.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

Options datagrams(uint64_t more_caps = 0) {
  Options options;
  options.caps = FI_MSG | FI_SOURCE | more_caps;
  options.ep_type = FI_EP_DGRAM;
  return options;
}

void use_format(Options& options, uint32_t format) {
  options.edit_hints = [format](fi_info* hints) { hints->addr_format = format; };
}

// fi_msg(3): every size from nothing to max_msg_size, both address families.
TEST(Datagrams, every_size__fi_msg_3) {
  for (const uint32_t format : {FI_SOCKADDR_IN, FI_SOCKADDR_IN6}) {
    Options options = datagrams();
    use_format(options, format);
    WEFT_WORLD(w, options);
    // Who names no limit is not asked for one.
    const size_t told = w.info()->ep_attr->max_msg_size;
    const size_t most = told > 1 << 20 ? 60'000 : told;
    if (!manual_only()) {
      ASSERT_GT(most, 1000u);
    }
    for (size_t len :
         {size_t{0}, size_t{1}, size_t{8}, size_t{63}, size_t{512}, size_t{1000}, most - 1, most}) {
      if (len > most) continue;
      SCOPED_TRACE(len);
      const auto out = pattern(len, 3);
      std::vector<uint8_t> in(len + 1);
      Ctx sent, received;
      WEFT_ASSERT_OK(fi_recv(w[1], in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &received));
      WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], out.data(), len, nullptr, w[0].peer[1], &sent); }));
      const Completion c = w.done(w[1].rx, received);
      EXPECT_EQ(c.len, len);
      EXPECT_EQ(c.flags & sure_flags(FI_RECV | FI_MSG), sure_flags(FI_RECV | FI_MSG));
      EXPECT_EQ(c.src, w[1].peer[0]);
      WEFT_EXPECT_PATTERN(in.data(), len, 3);
      const Completion s = w.done(w[0].tx, sent);
      EXPECT_EQ(s.flags & sure_flags(FI_SEND | FI_MSG), sure_flags(FI_SEND | FI_MSG));
    }
  }
}

// fi_endpoint(3), max_msg_size; fi_msg(3), FI_EMSGSIZE.
TEST(Datagrams, larger_ones_are_refused__fi_msg_3) {
  WEFT_BEYOND_THE_MANUAL("a datagram of more than max_msg_size");
  WEFT_WORLD(w, datagrams());
  const std::vector<uint8_t> out(w.info()->ep_attr->max_msg_size + 1);
  Ctx ctx;
  EXPECT_EQ(fi_send(w[0], out.data(), out.size(), nullptr, w[0].peer[1], &ctx), -FI_EMSGSIZE);
  EXPECT_EQ(fi_inject(w[0], out.data(), w.info()->tx_attr->inject_size + 1, w[0].peer[1]), -FI_EMSGSIZE);
}

// fi_cq(3), FI_ETRUNC and olen.
TEST(Datagrams, a_short_buffer_truncates__fi_cq_3) {
  WEFT_WORLD(w, datagrams());
  const size_t bytes = std::min<size_t>(500, w.info()->tx_attr->inject_size);
  if (bytes <= 100) GTEST_SKIP() << "nothing so long is injected";
  const auto out = pattern(bytes, 4);
  for (const bool receive_first : {true, false}) {
    std::vector<uint8_t> in(120, 0xee);
    Ctx received;
    if (receive_first) {
      WEFT_ASSERT_OK(fi_recv(w[1], in.data(), 100, nullptr, FI_ADDR_UNSPEC, &received));
    }
    WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], out.data(), bytes, w[0].peer[1]); }));
    if (!receive_first) {
      w.progress_for(quiet_time);
      WEFT_ASSERT_OK(fi_recv(w[1], in.data(), 100, nullptr, FI_ADDR_UNSPEC, &received));
    }
    // fi_domain(3), Rx Buffer Overrun: truncated or dropped.
    if (manual_only() && !w.progress_until([&] { return !w[1].rx->inbox.empty(); }, quiet_time)) return;
    const Completion c = w.wait(w[1].rx, received);
    expect_truncated(c, bytes - 100);
    WEFT_EXPECT_PATTERN(in.data(), 100, 4);
    EXPECT_EQ(in[100], 0xee);
  }
}

// What comes before a receive is posted is kept, within a bound, in order.
TEST(Datagrams, early_ones_are_kept__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("datagrams that nobody waits for");
  WEFT_WORLD(w, datagrams());
  constexpr uint64_t count = 300;
  for (uint64_t i = 0; i < count; ++i) {
    WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &i, sizeof i, w[0].peer[1]); }));
    if (i % 50 == 7) w.progress();
  }
  w.progress_for(quiet_time);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t in = ~uint64_t{0};
    Ctx received;
    WEFT_ASSERT_OK(w.post([&] { return fi_recv(w[1], &in, sizeof in, nullptr, FI_ADDR_UNSPEC, &received); }));
    EXPECT_EQ(w.done(w[1].rx, received).src, w[1].peer[0]);
    EXPECT_EQ(in, i);
  }
}

// A receiver that posts nothing loses datagrams and nothing else: those that come later arrive.
TEST(Datagrams, a_flood_is_bounded__fi_endpoint_3) {
  WEFT_WORLD(w, datagrams());
  const std::vector<uint8_t> out(std::min<size_t>(1000, w.info()->tx_attr->inject_size), 1);
  const size_t last = std::min<size_t>(10, out.size());
  for (int i = 0; i < 20'000; ++i) {
    WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], out.data(), out.size(), w[0].peer[1]); }));
    if (i % 16 == 0) w.progress();
  }
  w.progress_for(quiet_time);
  std::vector<uint8_t> in(1000);
  size_t arrived = 0;
  for (; arrived < 20'000; ++arrived) {
    Ctx received;
    WEFT_ASSERT_OK(fi_recv(w[1], in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &received));
    if (!w.progress_until([&] { return !w[1].rx->inbox.empty(); }, milliseconds(50))) {
      if (manual_only()) return;  // the open receive takes the next one, where nothing can be cancelled
      EXPECT_EQ(fi_cancel(w[1].ep.fid(), &received), 0);
      EXPECT_EQ(w.wait(w[1].rx, received).err, FI_ECANCELED);
      break;
    }
    w[1].rx->inbox.clear();
  }
  if (!manual_only()) {
    EXPECT_GT(arrived, 1000u);
  }
  if (!manual_only()) {
    EXPECT_LT(arrived, 20'000u);
  }
  Ctx received;
  WEFT_ASSERT_OK(fi_recv(w[1], in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], out.data(), last, w[0].peer[1]); }));
  EXPECT_EQ(w.done(w[1].rx, received).len, last);
}

// Many sends between two looks at the queue, of changing sizes and destinations: all complete, all arrive, each destination in order.
TEST(Datagrams, bursts_arrive_and_complete__fi_msg_3) {
  Options options = datagrams();
  options.endpoints = 3;
  WEFT_WORLD(w, options);
  // A foreign provider may keep less than it takes: a burst that every socket has room for.
  const size_t count =
      manual_only() ? std::min<size_t>({90, w.info()->rx_attr->size, w.info()->tx_attr->size}) : 600;
  std::vector<Ctx> sent(count);
  std::vector<std::vector<uint8_t>> in[3];
  std::vector<Ctx> received[3];
  for (size_t to = 1; to < 3; ++to) {
    received[to].resize(count);
    in[to].assign(count, std::vector<uint8_t>(1001));
    for (size_t i = 0; i < count; ++i)
      WEFT_ASSERT_OK(fi_recv(w[to], in[to][i].data(), 1001, nullptr, FI_ADDR_UNSPEC, &received[to][i]));
  }
  const auto length = [](size_t i) {
    return i % 97 == 0 ? 1000 - i : i % 31 == 0 ? i % 7 : size_t{64} + (i / 100) * 8;
  };
  const auto target = [](size_t i) { return size_t{1} + (i / 45) % 2; };
  std::vector<size_t> expected[3];
  std::vector<std::vector<uint8_t>> kept;
  for (size_t i = 0; i < count; ++i) {
    auto out = pattern(length(i), uint32_t(i));
    WEFT_ASSERT_OK(w.post(
        [&] { return fi_send(w[0], out.data(), out.size(), nullptr, w[0].peer[target(i)], &sent[i]); }));
    if (manual_only()) {
      kept.push_back(std::move(out));  // it is the provider's until the completion
    } else {
      std::fill(out.begin(), out.end(), decltype(out)::value_type{});  // the buffer may be used again
    }
    expected[target(i)].push_back(i);
  }
  for (size_t i = 0; i < count; ++i) w.done(w[0].tx, sent[i]);
  for (size_t to = 1; to < 3; ++to) {
    for (size_t k = 0; k < expected[to].size(); ++k) {
      const size_t i = expected[to][k];
      EXPECT_EQ(w.done(w[to].rx, received[to][k]).len, length(i)) << i;
      WEFT_EXPECT_PATTERN(in[to][k].data(), length(i), uint32_t(i));
    }
  }
}

// fi_msg(3), iov_limit.
TEST(Datagrams, vectors__fi_msg_3) {
  WEFT_WORLD(w, datagrams());
  const auto out = pattern(300, 9);
  std::vector<uint8_t> in(400);
  auto* data = const_cast<uint8_t*>(out.data());
  const iovec from[] = {{data, 7}, {data + 7, 0}, {data + 7, 200}, {data + 207, 93}};
  const iovec to[] = {{in.data(), 100}, {in.data() + 100, 1}, {in.data() + 101, 199}};
  Ctx sent, received;
  WEFT_ASSERT_OK(fi_recvv(w[1], to, nullptr, 3, FI_ADDR_UNSPEC, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_sendv(w[0], from, nullptr, 4, w[0].peer[1], &sent); }));
  EXPECT_EQ(w.done(w[1].rx, received).len, 300u);
  w.done(w[0].tx, sent);
  WEFT_EXPECT_PATTERN(in.data(), 300, 9);
  const iovec five[5] = {};
  if (!manual_only()) {
    EXPECT_EQ(fi_sendv(w[0], five, nullptr, 5, w[0].peer[1], &sent), -FI_EINVAL);
  }
}

// fi_endpoint(3), FI_SELECTIVE_COMPLETION.
TEST(Datagrams, selective_completion__fi_endpoint_3) {
  Options options = datagrams();
  options.tx_bind |= FI_SELECTIVE_COMPLETION;
  options.rx_bind |= FI_SELECTIVE_COMPLETION;
  WEFT_WORLD(w, options);
  uint64_t in = 0;
  const uint64_t one = 1, two = 2;
  Ctx quiet, loud;
  WEFT_ASSERT_OK(fi_recv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, &quiet));
  WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], &one, 8, nullptr, w[0].peer[1], &quiet); }));
  EXPECT_TRUE(w.progress_until([&] { return in == 1; }));
  const iovec in_part{&in, 8};
  const iovec out_part{const_cast<uint64_t*>(&two), 8};
  const fi_msg receive{&in_part, nullptr, 1, FI_ADDR_UNSPEC, &loud, 0};
  const fi_msg send{&out_part, nullptr, 1, w[0].peer[1], &loud, 0};
  WEFT_ASSERT_OK(fi_recvmsg(w[1], &receive, FI_COMPLETION));
  WEFT_ASSERT_OK(w.post([&] { return fi_sendmsg(w[0], &send, FI_COMPLETION); }));
  w.done(w[1].rx, loud);
  w.done(w[0].tx, loud);
  EXPECT_TRUE(w.quiet(w[1].rx));
  EXPECT_TRUE(w.quiet(w[0].tx));
}

// fi_cntr(3).
TEST(Datagrams, counters__fi_cntr_3) {
  Options options = datagrams();
  WEFT_SKIP_IF(missing(options));
  WEFT_SKIP_IF(manual_only() && find_info(options)->domain_attr->cntr_cnt == 0 ? "no counters" : "");
  options.counters = {FI_SEND, FI_RECV};
  WEFT_WORLD(w, options);
  constexpr uint64_t count = 100;
  std::vector<uint64_t> in(count);
  std::vector<Ctx> received(count), sent(count);
  for (uint64_t i = 0; i < count; ++i)
    WEFT_ASSERT_OK(fi_recv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, &received[i]));
  for (uint64_t i = 0; i < count; ++i)
    WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], &i, 8, nullptr, w[0].peer[1], &sent[i]); }));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_read(w[1].counter(FI_RECV)) == count; }));
  EXPECT_TRUE(w.progress_until([&] { return fi_cntr_read(w[0].counter(FI_SEND)) == count; }));
  EXPECT_EQ(fi_cntr_readerr(w[0].counter(FI_SEND)), 0u);
}

// fi_endpoint(3), fi_cancel.
TEST(Datagrams, cancel__fi_endpoint_3) {
  WEFT_WORLD(w, datagrams());
  uint64_t in[3] = {};
  Ctx received[3], never;
  for (int i = 0; i < 3; ++i) WEFT_ASSERT_OK(fi_recv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, &received[i]));
  EXPECT_EQ(fi_cancel(w[1].ep.fid(), &received[1]), 0);
  EXPECT_EQ(w.wait(w[1].rx, received[1]).err, FI_ECANCELED);
  if (!manual_only()) {
    EXPECT_EQ(fi_cancel(w[1].ep.fid(), &never), -FI_ENOENT);
  }
  for (uint64_t i = 0; i < 2; ++i)
    WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &i, 8, w[0].peer[1]); }));
  w.done(w[1].rx, received[0]);
  w.done(w[1].rx, received[2]);
  EXPECT_EQ(in[2], 1u);
}

// fi_msg(3), FI_MULTI_RECV.
TEST(Datagrams, multi_receive__fi_msg_3) {
  WEFT_WORLD(w, datagrams(FI_MULTI_RECV));
  size_t least = 100;
  WEFT_ASSERT_OK(fi_setopt(w[1].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
  std::vector<uint8_t> in(1050);
  const iovec part{in.data(), in.size()};
  Ctx received;
  const fi_msg receive{&part, nullptr, 1, FI_ADDR_UNSPEC, &received, 0};
  WEFT_ASSERT_OK(fi_recvmsg(w[1], &receive, FI_MULTI_RECV));
  for (uint32_t i = 0; i < 10; ++i) {
    const auto out = pattern(100, i);
    WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], out.data(), out.size(), w[0].peer[1]); }));
  }
  for (uint32_t i = 0; i < 10; ++i) {
    const Completion c = w.next(w[1].rx);
    ASSERT_TRUE(c.ok());
    EXPECT_EQ(c.context, &received);
    EXPECT_EQ(c.buf, in.data() + size_t{i} * 100);
    EXPECT_EQ((c.flags & FI_MULTI_RECV) != 0, i == 9);
    WEFT_EXPECT_PATTERN(c.buf, 100, i);
  }
}

// fi_msg(3), FI_MULTI_RECV: whatever ends the buffer says that it is the program's again, once.
TEST(Datagrams, multi_receive_comes_back__fi_msg_3) {
  WEFT_BEYOND_THE_MANUAL("the flags of cancelled receives and of cut datagrams");
  WEFT_WORLD(w, datagrams(FI_MULTI_RECV));
  size_t least = 16;
  WEFT_ASSERT_OK(fi_setopt(w[1].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
  std::vector<uint8_t> in(140);
  const iovec part{in.data(), in.size()};
  Ctx received;
  const fi_msg receive{&part, nullptr, 1, FI_ADDR_UNSPEC, &received, 0};
  const auto out = pattern(100, 5);
  for (const size_t datagrams_before : {0, 1, 2}) {
    SCOPED_TRACE(datagrams_before);
    WEFT_ASSERT_OK(fi_recvmsg(w[1], &receive, FI_MULTI_RECV));
    for (size_t i = 0; i < datagrams_before; ++i) {
      WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], out.data(), out.size(), w[0].peer[1]); }));
      const Completion c = w.next(w[1].rx);
      EXPECT_EQ(c.err, i == 1 ? FI_ETRUNC : 0);
      EXPECT_EQ(c.context, &received);
      EXPECT_EQ(c.flags, FI_RECV | FI_MSG | (i == 1 ? FI_MULTI_RECV : 0));
      EXPECT_EQ(c.olen, i == 1 ? 60u : 0u);
    }
    EXPECT_EQ(fi_cancel(w[1].ep.fid(), &received), datagrams_before == 2 ? -FI_ENOENT : 0);
    if (datagrams_before < 2) {
      const Completion c = w.next(w[1].rx);
      EXPECT_EQ(c.err, FI_ECANCELED);
      EXPECT_EQ(c.context, &received);
      EXPECT_EQ(c.flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
    }
    EXPECT_TRUE(w.quiet(w[1].rx));
  }
}

// fi_cq(3): a full queue refuses work, and no completion is lost.
TEST(Datagrams, full_queue__fi_cq_3) {
  WEFT_BEYOND_THE_MANUAL("a size of a queue is the least that it keeps");
  Options options = datagrams();
  options.cq_size = 4;
  WEFT_WORLD(w, options);
  Ctx sent;
  const uint64_t value = 1;
  size_t accepted = 0;
  for (; accepted < 200; ++accepted) {
    const ssize_t rc = fi_send(w[0], &value, 8, nullptr, w[0].peer[1], &sent);
    if (rc == -FI_EAGAIN) break;
    WEFT_ASSERT_OK(rc);
  }
  EXPECT_LT(accepted, 200u);
  for (size_t i = 0; i < accepted; ++i) w.done(w[0].tx, sent);
  EXPECT_TRUE(w.quiet(w[0].tx));
}

// fi_endpoint(3): what the endpoint has not is refused, not crashed into.
TEST(Datagrams, only_messages__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("calls that are not offered");
  WEFT_WORLD(w, datagrams());
  uint64_t value = 0;
  Ctx ctx;
  const fi_addr_t to = w[0].peer[1];
  EXPECT_EQ(fi_tsend(w[0], &value, 8, nullptr, to, 1, &ctx), -FI_ENOSYS);
  EXPECT_EQ(fi_trecv(w[0], &value, 8, nullptr, to, 1, 0, &ctx), -FI_ENOSYS);
  EXPECT_EQ(fi_write(w[0], &value, 8, nullptr, to, 0, 0, &ctx), -FI_ENOSYS);
  EXPECT_EQ(fi_read(w[0], &value, 8, nullptr, to, 0, 0, &ctx), -FI_ENOSYS);
  EXPECT_EQ(fi_atomic(w[0], &value, 1, nullptr, to, 0, 0, FI_UINT64, FI_SUM, &ctx), -FI_ENOSYS);
  EXPECT_EQ(fi_senddata(w[0], &value, 8, nullptr, 1, to, &ctx), -FI_ENOSYS);
  const iovec part{&value, 8};
  const fi_msg message{&part, nullptr, 1, to, &ctx, 7};
  EXPECT_EQ(fi_sendmsg(w[0], &message, FI_REMOTE_CQ_DATA), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_sendmsg(w[0], &message, FI_DELIVERY_COMPLETE), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_send(w[0], &value, 8, nullptr, 12345, &ctx), -FI_EINVAL);
  fid_ep* other = nullptr;
  EXPECT_EQ(fi_scalable_ep(w.domain(), w.info(), &other, nullptr), -FI_ENOSYS);
}

// fi_cq(3), fi_cq_sread: a datagram wakes a sleeper.
TEST(Datagrams, sleeping__fi_cq_3) {
  Options options = datagrams();
  options.wait_obj = FI_WAIT_UNSPEC;
  options.own_domains = true;
  WEFT_WORLD(w, options);
  uint64_t in = 0;
  Ctx received;
  WEFT_ASSERT_OK(fi_recv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, &received));
  EXPECT_EQ(w[1].rx->sread(1, 20), -FI_EAGAIN);
  std::thread sender([&] {
    std::this_thread::sleep_for(milliseconds(30));
    const uint64_t value = 77;
    EXPECT_EQ(fi_inject(w[0], &value, 8, w[0].peer[1]), 0);
  });
  EXPECT_EQ(w[1].rx->sread(1, 5000), 1);
  sender.join();
  EXPECT_EQ(in, 77u);
}

// Where the protocol is UDP a datagram is a packet of UDP and nothing more: any program can be the other side.
TEST(Datagrams, plain_sockets__fi_endpoint_3) {
  Options options = datagrams();
  options.endpoints = 1;
  use_format(options, FI_SOCKADDR_IN);
  WEFT_WORLD(w, options);
  if (w.info()->ep_attr->protocol != FI_PROTO_UDP) GTEST_SKIP() << "the protocol is not UDP";
  const int plain = ::socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  std::memcpy(&own.sin_addr, &reinterpret_cast<const sockaddr_in*>(w[0].name.data())->sin_addr,
              sizeof own.sin_addr);
  socklen_t length = sizeof own;
  ASSERT_EQ(::bind(plain, reinterpret_cast<sockaddr*>(&own), length), 0);
  ASSERT_EQ(::getsockname(plain, reinterpret_cast<sockaddr*>(&own), &length), 0);
  const timeval limit{5, 0};
  ::setsockopt(plain, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);

  char in[64] = {};
  Ctx received;
  WEFT_ASSERT_OK(fi_recv(w[0], in, sizeof in, nullptr, FI_ADDR_UNSPEC, &received));
  ASSERT_EQ(::sendto(plain, "from a socket", 13, 0, reinterpret_cast<const sockaddr*>(w[0].name.data()),
                     socklen_t(w[0].name.size())),
            13);
  Completion c = w.done(w[0].rx, received);
  EXPECT_EQ(c.len, 13u);
  EXPECT_EQ(c.src, FI_ADDR_NOTAVAIL);
  EXPECT_STREQ(in, "from a socket");

  fi_addr_t to = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(w[0].av.get(), &own, 1, &to, 0, nullptr), 1);
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], "to a socket", 11, to); }));
  w.progress();
  char back[64] = {};
  EXPECT_EQ(::recv(plain, back, sizeof back, 0), 11);
  EXPECT_STREQ(back, "to a socket");
  // Now that its address is known, the source is told.
  WEFT_ASSERT_OK(fi_recv(w[0], in, sizeof in, nullptr, FI_ADDR_UNSPEC, &received));
  ASSERT_EQ(::sendto(plain, "again", 5, 0, reinterpret_cast<const sockaddr*>(w[0].name.data()),
                     socklen_t(w[0].name.size())),
            5);
  EXPECT_EQ(w.done(w[0].rx, received).src, to);
  ::close(plain);
}

// A peer that is gone, or never was: the datagram is lost, and the endpoint goes on.
TEST(Datagrams, nobody_there__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("a datagram to nobody");
  Options options = datagrams();
  options.endpoints = 3;
  WEFT_WORLD(w, options);
  WEFT_ASSERT_OK(w.close_endpoint(2));
  const uint64_t value = 3;
  for (int i = 0; i < 10; ++i) {
    Ctx sent;
    WEFT_ASSERT_OK(w.post([&] { return fi_send(w[0], &value, 8, nullptr, w[0].peer[2], &sent); }));
    w.done(w[0].tx, sent);
  }
  uint64_t in = 0;
  Ctx received;
  WEFT_ASSERT_OK(fi_recv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &value, 8, w[0].peer[1]); }));
  w.done(w[1].rx, received);
}

// fi_close: what was accepted leaves.
TEST(Datagrams, closing_sends_what_was_accepted__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("what is outstanding at the close is discarded");
  WEFT_WORLD(w, datagrams());
  uint64_t in[5] = {};
  Ctx received[5];
  for (int i = 0; i < 5; ++i) WEFT_ASSERT_OK(fi_recv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, &received[i]));
  for (uint64_t i = 1; i <= 5; ++i) WEFT_ASSERT_OK(fi_inject(w[0], &i, 8, w[0].peer[1]));
  WEFT_ASSERT_OK(w.close_endpoint(0));
  for (uint64_t i = 0; i < 5; ++i) {
    w.done(w[1].rx, received[i]);
    EXPECT_EQ(in[i], i + 1);
  }
}

// fi_endpoint(3), fi_ep_alias.
TEST(Datagrams, alias__fi_endpoint_3) {
  Options options = datagrams();
  options.tx_bind |= FI_SELECTIVE_COMPLETION;
  WEFT_WORLD(w, options);
  fid_ep* alias = nullptr;
  const int aliased = fi_ep_alias(w[0], &alias, FI_TRANSMIT | FI_COMPLETION);
  WEFT_SKIP_IF(aliased == -FI_ENOSYS ? "no aliases" : "");
  WEFT_ASSERT_OK(aliased);
  uint64_t in = 0;
  const uint64_t value = 9;
  Ctx received, sent;
  WEFT_ASSERT_OK(fi_recv(w[1], &in, 8, nullptr, FI_ADDR_UNSPEC, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_send(alias, &value, 8, nullptr, w[0].peer[1], &sent); }));
  w.done(w[0].tx, sent);
  w.done(w[1].rx, received);
  EXPECT_EQ(w.close_endpoint(0), -FI_EBUSY);
  WEFT_ASSERT_OK(fi_close(&alias->fid));
}

// An alias receives with flags of its own, and its endpoint's stay.
TEST(Datagrams, alias_that_receives__fi_endpoint_3) {
  Options options = datagrams();
  options.rx_bind |= FI_SELECTIVE_COMPLETION;
  WEFT_WORLD(w, options);
  fid_ep* alias = nullptr;
  const int aliased = fi_ep_alias(w[1], &alias, FI_RECV | FI_COMPLETION);
  WEFT_SKIP_IF(aliased != 0 ? "no aliases that receive" : "");
  uint64_t flags = FI_RECV;
  WEFT_ASSERT_OK(fi_control(&alias->fid, FI_GETOPSFLAG, &flags));
  EXPECT_EQ(flags, FI_COMPLETION);
  uint64_t in = 0;
  const uint64_t value = 9;
  Ctx received;
  WEFT_ASSERT_OK(fi_recv(alias, &in, 8, nullptr, FI_ADDR_UNSPEC, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[0], &value, 8, w[0].peer[1]); }));
  w.done(w[1].rx, received);
  flags = FI_RECV | FI_MULTI_RECV;
  WEFT_ASSERT_OK(fi_control(&alias->fid, FI_SETOPSFLAG, &flags));
  flags = FI_RECV;
  WEFT_ASSERT_OK(fi_control(w[1].ep.fid(), FI_GETOPSFLAG, &flags));
  EXPECT_EQ(flags, 0u);
  WEFT_ASSERT_OK(fi_close(&alias->fid));
}

// fi_cm(3), fi_setname and fi_getname.
TEST(Datagrams, names__fi_cm_3) {
  Options options = datagrams();
  options.enable = false;
  options.insert = false;
  use_format(options, FI_SOCKADDR_IN);
  WEFT_WORLD(w, options);
  sockaddr_in name{};
  size_t length = 4;
  // Before that there need not be a name, nor need one be taken.
  if (manual_only()) {
    WEFT_ASSERT_OK(fi_enable(w[0]));
  }
  EXPECT_EQ(fi_getname(w[0].ep.fid(), &name, &length), -FI_ETOOSMALL);
  ASSERT_EQ(length, sizeof name);
  WEFT_ASSERT_OK(fi_getname(w[0].ep.fid(), &name, &length));
  if (manual_only()) return;
  EXPECT_NE(name.sin_port, 0);
  EXPECT_NE(name.sin_addr.s_addr, htonl(INADDR_ANY));
  sockaddr_in wanted{};
  wanted.sin_family = AF_INET;
  wanted.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  WEFT_ASSERT_OK(fi_setname(w[0].ep.fid(), &wanted, sizeof wanted));
  WEFT_ASSERT_OK(fi_getname(w[0].ep.fid(), &name, &length));
  EXPECT_EQ(name.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  WEFT_ASSERT_OK(fi_setname(w[1].ep.fid(), &wanted, sizeof wanted));
  EXPECT_EQ(fi_setname(w[1].ep.fid(), &name, sizeof name), -FI_EADDRINUSE);
}

// fi_domain(3), FI_THREAD_SAFE.
TEST(Datagrams, threads__fi_domain_3) {
  Options options = datagrams();
  options.threading = FI_THREAD_SAFE;
  WEFT_WORLD(w, options);
  const uint64_t each = manual_only() ? std::min<uint64_t>(60, w.info()->rx_attr->size / 2) : 200;
  std::vector<uint64_t> in(2 * each);
  std::vector<Ctx> received(2 * each);
  for (size_t i = 0; i < in.size(); ++i)
    WEFT_ASSERT_OK(fi_recv(w[1], &in[i], 8, nullptr, FI_ADDR_UNSPEC, &received[i]));
  std::vector<std::thread> senders;
  for (uint64_t t = 0; t < 2; ++t)
    senders.emplace_back([&w, t, each] {
      for (uint64_t i = 0; i < each; ++i) {
        const uint64_t value = t << 32 | i;
        while (fi_inject(w[0], &value, 8, w[0].peer[1]) == -FI_EAGAIN) std::this_thread::yield();
      }
    });
  for (auto& sender : senders) sender.join();
  uint64_t next[2] = {};
  for (size_t i = 0; i < in.size(); ++i) {
    w.done(w[1].rx, received[i]);
    ASSERT_LT(in[i] >> 32, 2u);
    EXPECT_EQ(in[i] & 0xffffffff, next[in[i] >> 32]++);
  }
}

// fi_cm(3), fi_join: two members and one that only sends.
TEST(Datagrams, multicast__fi_cm_3) {
  for (const uint32_t format : {FI_SOCKADDR_IN, FI_SOCKADDR_IN6}) {
    Options options = datagrams(FI_MULTICAST);
    options.endpoints = 3;
    options.enable = false;
    options.insert = false;
    const size_t length = format == FI_SOCKADDR_IN ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const uint16_t port = htons(uint16_t(10000 + getpid() % 20000));
    sockaddr_storage group{};
    sockaddr_storage here{};
    group.ss_family = here.ss_family = sa_family_t(format == FI_SOCKADDR_IN ? AF_INET : AF_INET6);
    if (format == FI_SOCKADDR_IN) {
      auto& to = reinterpret_cast<sockaddr_in&>(group);
      to.sin_port = port;
      ASSERT_EQ(inet_pton(AF_INET, "239.255.77.12", &to.sin_addr), 1);
      reinterpret_cast<sockaddr_in&>(here).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      auto& to = reinterpret_cast<sockaddr_in6&>(group);
      to.sin6_port = port;
      ASSERT_EQ(inet_pton(AF_INET6, "ff15::77:12", &to.sin6_addr), 1);
      // The loopback interface has no route to groups of IPv6, and a machine may have none at all.
      const int probe = ::socket(AF_INET6, SOCK_DGRAM, 0);
      const bool reachable = ::connect(probe, reinterpret_cast<const sockaddr*>(&group), sizeof to) == 0;
      ::close(probe);
      if (!reachable) continue;
    }
    use_format(options, format);
    WEFT_WORLD(w, options);
    fi_eq_attr eq_attr{};
    Handle<fid_eq> eq;
    WEFT_ASSERT_OK(fi_eq_open(w.fabric(), &eq_attr, eq.out(), nullptr));
    fid_mc* groups[3] = {};
    Ctx joined[3];
    for (size_t i = 0; i < 3; ++i) {
      const int named = fi_setname(w[i].ep.fid(), &here, length);
      if (!manual_only()) {
        WEFT_ASSERT_OK(named);
      }
      WEFT_ASSERT_OK(fi_ep_bind(w[i], eq.fid(), 0));
      WEFT_ASSERT_OK(fi_enable(w[i]));
      WEFT_ASSERT_OK(fi_join(w[i], &group, i == 2 ? FI_SEND : 0, &groups[i], &joined[i]));
      uint32_t event = 0;
      fi_eq_entry entry{};
      ASSERT_EQ(fi_eq_read(eq.get(), &event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
      EXPECT_EQ(event, uint32_t{FI_JOIN_COMPLETE});
      EXPECT_EQ(entry.fid, &groups[i]->fid);
      EXPECT_EQ(entry.context, &joined[i]);
      EXPECT_EQ(groups[i]->fid.context, &joined[i]);
    }
    uint64_t in[2] = {};
    Ctx received[2];
    for (int i = 0; i < 2; ++i)
      WEFT_ASSERT_OK(fi_recv(w[i], &in[i], 8, nullptr, FI_ADDR_UNSPEC, &received[i]));
    uint64_t value = 4711;
    const iovec part{&value, 8};
    Ctx sent;
    const fi_msg message{&part, nullptr, 1, fi_mc_addr(groups[2]), &sent, 0};
    WEFT_ASSERT_OK(w.post([&] { return fi_sendmsg(w[2], &message, FI_MULTICAST); }));
    w.done(w[2].tx, sent);
    for (int i = 0; i < 2; ++i) {
      w.done(w[i].rx, received[i]);
      EXPECT_EQ(in[i], 4711u);
    }
    // Who has left hears nothing.
    WEFT_ASSERT_OK(fi_close(&groups[1]->fid));
    WEFT_ASSERT_OK(fi_recv(w[1], &in[1], 8, nullptr, FI_ADDR_UNSPEC, &received[1]));
    WEFT_ASSERT_OK(w.post([&] { return fi_inject(w[2], &value, 8, fi_mc_addr(groups[2])); }));
    EXPECT_TRUE(w.quiet(w[1].rx));
    EXPECT_EQ(w.close_endpoint(0), -FI_EBUSY);
    WEFT_ASSERT_OK(fi_close(&groups[0]->fid));
    WEFT_ASSERT_OK(fi_close(&groups[2]->fid));
    EXPECT_EQ(fi_join(w[0], &here, 0, &groups[0], nullptr), -FI_EINVAL);
    // Endpoints before the event queue.
    for (size_t i = 0; i < 3; ++i) WEFT_ASSERT_OK(w.close_endpoint(i));
  }
}

}  // namespace
}  // namespace weft::conformance
