// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A device that the endpoints of a domain share: opening, demultiplexing, registration, progress, sleeping, closing.
#include "api/libfabric/endpoints/device.hpp"

#include <gtest/gtest.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "api/libfabric/discovery/getinfo.hpp"
#include "api/libfabric/endpoints/toy_device.hpp"
#include "api/libfabric/entry/provider_of.hpp"
#include "api/libfabric/objects/open_fabric.hpp"
#include "link/composite/address.hpp"
#include "link/composite/link.hpp"
#include "link/shm/link.hpp"
#include "link/udp/packets.hpp"
#include "providers/loopback.hpp"
#include "providers/weft.hpp"

namespace weft::fi::test {
namespace {

using namespace std::chrono_literals;

// Links without a device have nothing of it, and their providers open none.
static_assert(!proto::UsesDevice<providers::Loopback::Link> && !proto::UsesDevice<link::udp::Packets>);
static_assert(std::is_empty_v<proto::DeviceBelow<link::udp::Packets>>);
static_assert(!engine_type<proto::Engine<providers::Loopback::Link>>.uses_device &&
              engine_type<proto::Engine<Toy::Link>>.uses_device);
static_assert(device_opener<providers::Loopback>() == nullptr);
static_assert(proto::UsesDevice<link::composite::Link<link::shm::Link, Toy::Link, link::composite::Names>> &&
              !proto::UsesDevice<providers::Weft::Link>);
// A link whose device the provider does not have is refused.
struct OtherCard : Toy {
  struct Device {};
};
static_assert(has_device_for<Toy, Toy::Link>() && !has_device_for<OtherCard, Toy::Link>() &&
              !has_device_for<providers::Loopback, Toy::Link>());

struct Node {
  fid_ep* ep = nullptr;
  fid_av* av = nullptr;
  fid_cq* cq = nullptr;
  fi_addr_t peer = FI_ADDR_UNSPEC;
};

class Device : public testing::Test {
 protected:
  void SetUp() override {
    ToyBench& b = bench();
    b.open_error = b.add_error = b.remove_error = b.opened = b.closed = b.intrusions = 0;
    std::scoped_lock guard(b.mutex);
    b.calls.clear();
  }
  void TearDown() override {
    ToyBench& b = bench();
    for (fid_mr*& mr : regions) close(mr);
    for (Node& node : nodes) close(node);
    for (fid_domain*& domain : domains) close(domain);
    close(fabric);
    unsetenv("WEFT_PROGRESS");
    b.yields = false;
    EXPECT_EQ(bench().opened, bench().closed);
    EXPECT_EQ(bench().intrusions, 0) << "the card was entered by two threads at once";
  }

  const Provider* provider = &provider_of<Toy>;
  int open_domain(fi_threading threading = FI_THREAD_SAFE, fi_progress progress = FI_PROGRESS_MANUAL,
                  int mr_mode = 0, const char* source = nullptr) {
    const std::array<const Provider*, 1> only = {provider};
    const bool datagrams = provider != &provider_of<Toy>;
    InfoPtr hints(dup_info(nullptr));
    hints->caps = datagrams ? FI_MSG : FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = datagrams ? FI_EP_DGRAM : FI_EP_RDM;
    hints->domain_attr->threading = threading;
    hints->domain_attr->data_progress = progress;
    fi_info* found = nullptr;
    const int status = get_info({only}, FI_VERSION(1, 17), source, nullptr, source != nullptr ? FI_SOURCE : 0,
                                hints.get(), &found);
    if (status != 0) return status;
    info.reset(found);
    info->domain_attr->mr_mode = mr_mode;
    if (fabric == nullptr && open_fabric(*only[0], info->fabric_attr, &fabric, nullptr) != 0)
      return -FI_EOTHER;
    fid_domain* domain = nullptr;
    const int opened = fi_domain(fabric, info.get(), &domain, nullptr);
    if (opened == 0) domains.push_back(domain);
    return opened;
  }
  void open(fi_threading threading = FI_THREAD_SAFE, fi_progress progress = FI_PROGRESS_MANUAL,
            size_t domain_count = 1) {
    for (size_t i = 0; i < domain_count; ++i) ASSERT_EQ(open_domain(threading, progress), 0);
    for (size_t i = 0; i < 2; ++i) open_node(nodes[i], domains[i % domain_count]);
    meet();
  }
  void open_node(Node& node, fid_domain* domain) {
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    cq_attr.wait_obj = FI_WAIT_UNSPEC;
    fi_av_attr av_attr{};
    ASSERT_EQ(fi_endpoint(domain, info.get(), &node.ep, nullptr), 0);
    ASSERT_EQ(fi_av_open(domain, &av_attr, &node.av, nullptr), 0);
    ASSERT_EQ(fi_cq_open(domain, &cq_attr, &node.cq, nullptr), 0);
    ASSERT_EQ(fi_ep_bind(node.ep, &node.av->fid, 0), 0);
    ASSERT_EQ(fi_ep_bind(node.ep, &node.cq->fid, FI_TRANSMIT | FI_RECV), 0);
    ASSERT_EQ(fi_enable(node.ep), 0);
  }
  void meet() {
    for (size_t i = 0; i < 2; ++i) {
      char name[64] = {};
      size_t length = sizeof name;
      ASSERT_EQ(fi_getname(&nodes[1 - i].ep->fid, name, &length), 0);
      ASSERT_EQ(fi_av_insert(nodes[i].av, name, 1, &nodes[i].peer, 0, nullptr), 1);
    }
  }
  int reg(std::vector<uint8_t>& bytes, uint64_t access, fid_mr** mr, uint64_t key = 77) {
    const int status = fi_mr_reg(domains.back(), bytes.data(), bytes.size(), access, 0, key, 0, mr, nullptr);
    if (status == 0) regions.push_back(*mr);
    return status;
  }

  template <class Fid>
  void close(Fid*& object) {
    if (object == nullptr) return;
    EXPECT_EQ(fi_close(&object->fid), 0);
    object = nullptr;
  }
  void close(Node& node) {
    close(node.ep);
    close(node.cq);
    close(node.av);
  }

  // Until the queue has a completion of `context`; false after 10 s. Nothing else is polled.
  static bool reaches(fid_cq* cq, void* context, bool sleeps = false) {
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (std::chrono::steady_clock::now() < end) {
      fi_cq_tagged_entry entry{};
      const ssize_t n = sleeps ? fi_cq_sread(cq, &entry, 1, nullptr, 1000) : fi_cq_read(cq, &entry, 1);
      if (n == 1 && entry.op_context == context) return true;
      if (n == -FI_EAVAIL) return false;
    }
    return false;
  }
  // A message from node 0 to node 1; both are polled.
  void talk(size_t bytes = 64) {
    std::vector<uint8_t> out(bytes, 7), in(bytes);
    fi_context2 sent{}, received{};
    ASSERT_EQ(fi_trecv(nodes[1].ep, in.data(), bytes, nullptr, FI_ADDR_UNSPEC, 5, 0, &received), 0);
    ASSERT_EQ(fi_tsend(nodes[0].ep, out.data(), bytes, nullptr, nodes[0].peer, 5, &sent), 0);
    bool has_sent = false, has_received = false;
    const auto end = std::chrono::steady_clock::now() + 10s;
    while ((!has_sent || !has_received) && std::chrono::steady_clock::now() < end) {
      fi_cq_tagged_entry entry{};
      if (fi_cq_read(nodes[0].cq, &entry, 1) == 1) has_sent = has_sent || entry.op_context == &sent;
      if (fi_cq_read(nodes[1].cq, &entry, 1) == 1)
        has_received = has_received || entry.op_context == &received;
    }
    EXPECT_TRUE(has_sent && has_received);
    EXPECT_EQ(in, out);
  }
  static void forbid_thread() { setenv("WEFT_PROGRESS", "manual", 1); }
  Domain& domain_object() { return *reinterpret_cast<Domain*>(domains[0]); }
  ToyCard& card() { return static_cast<DeviceOf<ToyCard>&>(*domain_object().device).device(); }
  static std::vector<ToyBench::Call> calls() {
    std::scoped_lock guard(bench().mutex);
    return bench().calls;
  }

  InfoPtr info;
  fid_fabric* fabric = nullptr;
  std::vector<fid_domain*> domains;
  std::array<Node, 2> nodes;
  std::vector<fid_mr*> regions;
};

// --- opening ---

TEST_F(Device, IsOpenedOnceForADomainAndSharedByItsEndpoints) {
  open();
  EXPECT_EQ(bench().opened, 1);
  EXPECT_EQ(bench().domain, "toy");
  EXPECT_EQ(bench().source, "");
  for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{300'000}}) talk(bytes);
  ASSERT_EQ(open_domain(), 0);
  EXPECT_EQ(bench().opened, 2);
  EXPECT_EQ(bench().closed, 0);
}

TEST_F(Device, IsToldTheSourceAddressOfTheInfo) {
  ASSERT_EQ(open_domain(FI_THREAD_SAFE, FI_PROGRESS_MANUAL, 0, "fi_toy://1.1"), 0);
  EXPECT_EQ(bench().source, "fi_toy://1.1");
}

TEST_F(Device, ThatDoesNotOpenRefusesTheDomainWithASentence) {
  bench().open_error = ENODEV;
  testing::internal::CaptureStderr();
  EXPECT_EQ(open_domain(), -ENODEV);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("fi_domain: the card is not there"), std::string::npos) << text;
  EXPECT_NE(text.find("the card does not answer"), std::string::npos) << text;
  EXPECT_EQ(bench().opened, 0);
  bench().open_error = 0;
  EXPECT_EQ(open_domain(), 0) << "the fabric is as before";
}

TEST_F(Device, RefusesAnEndpointAndGoesOn) {
  open(FI_THREAD_SAFE, FI_PROGRESS_AUTO);
  char name[64] = {};
  size_t length = sizeof name;
  ASSERT_EQ(fi_getname(&nodes[0].ep->fid, name, &length), 0);
  fi_info twin = *info;
  twin.src_addr = name;
  twin.src_addrlen = sizeof name;
  fid_ep* refused = nullptr;
  EXPECT_EQ(fi_endpoint(domains[0], &twin, &refused, nullptr), -EADDRINUSE);
  talk();
}

// --- registration ---

TEST_F(Device, SeesEveryRegistrationWithItsRights) {
  ASSERT_EQ(open_domain(), 0);
  std::vector<uint8_t> bytes(100);
  fid_mr* mr = nullptr;
  ASSERT_EQ(reg(bytes, FI_SEND | FI_REMOTE_READ, &mr), 0);
  auto seen = calls();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].name, "add");
  EXPECT_EQ(seen[0].key, 77u);
  EXPECT_EQ(seen[0].rights, (core::AccessRights{.local_read = true, .remote_read = true}));
  ASSERT_EQ(seen[0].pieces.size(), 1u);
  EXPECT_EQ(seen[0].pieces[0].iov_base, bytes.data());
  EXPECT_EQ(seen[0].pieces[0].iov_len, 100u);
  regions.clear();
  ASSERT_EQ(fi_close(&mr->fid), 0);
  seen = calls();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].name, "remove");
  EXPECT_EQ(seen[1].handle, seen[0].handle);
}

TEST_F(Device, SeesTheScatteredPiecesOfARegion) {
  ASSERT_EQ(open_domain(), 0);
  std::vector<uint8_t> bytes(100);
  const std::array<iovec, 3> pieces = {{{&bytes[0], 10}, {&bytes[40], 20}, {&bytes[90], 5}}};
  fid_mr* mr = nullptr;
  ASSERT_EQ(fi_mr_regv(domains[0], pieces.data(), 3, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, nullptr),
            0);
  regions.push_back(mr);
  const auto seen = calls();
  ASSERT_EQ(seen.size(), 1u);
  ASSERT_EQ(seen[0].pieces.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(seen[0].pieces[i].iov_base, pieces[i].iov_base);
    EXPECT_EQ(seen[0].pieces[i].iov_len, pieces[i].iov_len);
  }
  EXPECT_TRUE(seen[0].rights.remote_atomic);
}

TEST_F(Device, RefusesARegion) {
  ASSERT_EQ(open_domain(), 0);
  std::vector<uint8_t> bytes(100);
  fid_mr* mr = nullptr;
  bench().add_error = -ENOSPC;
  EXPECT_EQ(reg(bytes, FI_REMOTE_WRITE, &mr), -ENOSPC);
  EXPECT_EQ(mr, nullptr);
  bench().add_error = 0;
  EXPECT_EQ(reg(bytes, FI_REMOTE_WRITE, &mr), 0) << "nothing was registered under that key";
}

TEST_F(Device, KeepsARegionThatItUses) {
  ASSERT_EQ(open_domain(), 0);
  std::vector<uint8_t> bytes(100);
  fid_mr* mr = nullptr;
  ASSERT_EQ(reg(bytes, FI_REMOTE_WRITE, &mr), 0);
  bench().remove_error = -FI_EBUSY;
  EXPECT_EQ(fi_close(&mr->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&domains[0]->fid), -FI_EBUSY);
  bench().remove_error = 0;
}

TEST_F(Device, HearsWhenARegionIsEnabled) {
  ASSERT_EQ(open_domain(FI_THREAD_SAFE, FI_PROGRESS_MANUAL, FI_MR_RMA_EVENT), 0);
  std::vector<uint8_t> bytes(100);
  const iovec piece{bytes.data(), bytes.size()};
  fi_mr_attr attr{};
  attr.mr_iov = &piece;
  attr.iov_count = 1;
  attr.access = FI_REMOTE_WRITE;
  fid_mr* mr = nullptr;
  ASSERT_EQ(fi_mr_regattr(domains[0], &attr, FI_RMA_EVENT, &mr), 0);
  regions.push_back(mr);
  ASSERT_EQ(fi_mr_enable(mr), 0);
  const auto seen = calls();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].name, "enable");
}

// --- progress ---

// The ring has packets for both endpoints; whoever polls puts them where they belong.
TEST_F(Device, IsMovedByEachOfItsEndpoints) {
  open();
  uint64_t in = 0;
  const uint64_t out = 42;
  fi_context2 received{}, sent{};
  ASSERT_EQ(fi_trecv(nodes[1].ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 5, 0, &received), 0);
  ASSERT_EQ(fi_tsend(nodes[0].ep, &out, sizeof out, nullptr, nodes[0].peer, 5, &sent), 0);
  for (int i = 0; i < 100; ++i) (void)fi_cq_read(nodes[0].cq, nullptr, 0);
  EXPECT_EQ(card().endpoints(), 2u);
  EXPECT_GE(card().counters()[0].value, 1u) << "endpoint 0 did not poll the card";
  EXPECT_TRUE(reaches(nodes[1].cq, &received));
  EXPECT_EQ(in, 42u);
}

TEST_F(Device, CarriesDatagramsToo) {
  provider = &provider_of<ToyDatagrams>;
  open();
  EXPECT_EQ(bench().opened, 1);
  uint64_t in = 0;
  const uint64_t out = 42;
  fi_context2 received{};
  ASSERT_EQ(fi_recv(nodes[1].ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, &received), 0);
  ASSERT_EQ(fi_inject(nodes[0].ep, &out, sizeof out, nodes[0].peer), 0);
  EXPECT_TRUE(reaches(nodes[1].cq, &received, true));
  EXPECT_EQ(in, 42u);
}

// The thread knows the device from the first endpoint that is enabled to the last that is closed, also where it only
// does background work.
TEST_F(Device, HasItsBackgroundWorkDoneByTheThread) {
  open();
  const auto check = [&](auto&& at) {
    std::scoped_lock guard(domain_object().lock);
    return at(card());
  };
  ASSERT_NE(domain_object().progress, nullptr);
  ASSERT_TRUE(check([](ToyCard& c) { return c.has_signal(); }));
  check([](ToyCard& c) { return c.begin_work(), 0; });
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (check([](ToyCard& c) { return c.has_background_work(); }) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(check([](ToyCard& c) { return c.has_background_work(); }))
      << "the thread did not call progress()";
  while (!check([](ToyCard& c) { return c.has_signal(); }) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(1ms);  // it rests again
  close(nodes[0]);
  EXPECT_TRUE(check([](ToyCard& c) { return c.has_signal(); }));
  close(nodes[1]);
  EXPECT_FALSE(check([](ToyCard& c) { return c.has_signal(); }));
}

class Automatic : public Device, public testing::WithParamInterface<fi_threading> {};

// The target makes no call; its card, too, is moved by the thread alone.
TEST_P(Automatic, ATargetThatMakesNoCallIsWritten) {
  open(GetParam(), FI_PROGRESS_AUTO, 2);
  for (const size_t bytes : {size_t{8}, size_t{5000}, size_t{500'000}}) {
    std::vector<uint8_t> out(bytes, 9), in(bytes);
    fid_mr* mr = nullptr;
    ASSERT_EQ(reg(in, FI_REMOTE_WRITE, &mr, bytes), 0);
    fi_context2 wrote{};
    const iovec part{out.data(), bytes};
    const fi_rma_iov target{0, bytes, fi_mr_key(mr)};
    const fi_msg_rma message{&part, nullptr, 1, nodes[0].peer, &target, 1, &wrote, 0};
    ASSERT_EQ(fi_writemsg(nodes[0].ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE), 0);
    EXPECT_TRUE(reaches(nodes[0].cq, &wrote));
    EXPECT_EQ(in, out);
  }
}

// Both endpoints are behind one card: the initiator polls, or sleeps, and the thread moves card and target.
TEST_P(Automatic, ATargetOfTheSameCardIsWritten) {
  open(GetParam(), FI_PROGRESS_AUTO);
  for (const size_t bytes : {size_t{8}, size_t{5000}, size_t{500'000}}) {
    std::vector<uint8_t> out(bytes, 9), in(bytes);
    fid_mr* mr = nullptr;
    ASSERT_EQ(reg(in, FI_REMOTE_WRITE, &mr, bytes), 0);
    fi_context2 wrote{};
    const iovec part{out.data(), bytes};
    const fi_rma_iov target{0, bytes, fi_mr_key(mr)};
    const fi_msg_rma message{&part, nullptr, 1, nodes[0].peer, &target, 1, &wrote, 0};
    ASSERT_EQ(fi_writemsg(nodes[0].ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE), 0);
    ASSERT_TRUE(reaches(nodes[0].cq, &wrote, bytes == 5000));
    EXPECT_EQ(in, out);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Automatic,
                         testing::Values(FI_THREAD_SAFE, FI_THREAD_DOMAIN, FI_THREAD_COMPLETION),
                         [](const auto& level) {
                           return level.param == FI_THREAD_SAFE     ? "Safe"
                                  : level.param == FI_THREAD_DOMAIN ? "Domain"
                                                                    : "Completion";
                         });

// --- sleeping ---

// Two threads sleep, each on the queue of one endpoint, and no progress is made but theirs: a packet for one endpoint
// that the other's thread takes from the card has to wake the one.
TEST_F(Device, WakesTheEndpointThatAPacketIsFor) {
  forbid_thread();
  open();
  constexpr int rounds = 200;
  const auto began = std::chrono::steady_clock::now();
  auto play = [&](Node& node, bool serves) {
    for (int i = 0; i < rounds; ++i) {
      uint64_t out = 1, in = 0;
      fi_context2 received{}, sent{};
      EXPECT_EQ(fi_trecv(node.ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 5, 0, &received), 0);
      const auto send = [&] { return fi_tsend(node.ep, &out, sizeof out, nullptr, node.peer, 5, &sent); };
      EXPECT_EQ(serves ? send() : 0, 0);
      ASSERT_TRUE(reaches(node.cq, &received, true));
      EXPECT_EQ(serves ? 0 : send(), 0);
    }
  };
  std::thread other([&] { play(nodes[1], false); });
  play(nodes[0], true);
  other.join();
  // A wake-up that is lost costs a slice of 100 ms.
  EXPECT_LT(std::chrono::steady_clock::now() - began, rounds * 50ms);
}

// Each endpoint has its thread, and they meet in the card.
TEST_F(Device, IsEnteredByOneThreadAtATimeUnderThreadCompletion) {
  forbid_thread();
  open(FI_THREAD_COMPLETION);
  EXPECT_EQ(domain_object().progress, nullptr);
  bench().yields = true;
  std::thread other([&] {
    for (int i = 0; i < 2'000; ++i) (void)fi_cq_read(nodes[1].cq, nullptr, 0);
  });
  for (int i = 0; i < 2'000; ++i) (void)fi_cq_read(nodes[0].cq, nullptr, 0);
  other.join();
}

TEST_F(Device, RegistersMemoryWhileAnotherThreadPolls) {
  open();
  bench().yields = true;
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) (void)fi_cq_read(nodes[1].cq, nullptr, 0);
  });
  std::vector<uint8_t> bytes(100);
  for (int i = 0; i < 500; ++i) {
    fid_mr* mr = nullptr;
    EXPECT_EQ(fi_mr_reg(domains[0], bytes.data(), 100, FI_REMOTE_READ, 0, 1, 0, &mr, nullptr), 0);
    close(mr);
  }
  stop = true;
  other.join();
}

// Endpoints and regions come and go while the thread moves the card.
TEST_F(Device, IsSharedWithTheThreadWhileEndpointsAndRegionsComeAndGo) {
  open(FI_THREAD_SAFE, FI_PROGRESS_AUTO);
  for (int i = 0; i < 20; ++i) {
    fi_inject(nodes[0].ep, &i, sizeof i, nodes[0].peer);
    Node third;
    open_node(third, domains[0]);
    std::vector<uint8_t> bytes(100);
    fid_mr* mr = nullptr;
    ASSERT_EQ(fi_mr_reg(domains[0], bytes.data(), 100, FI_REMOTE_READ, 0, 1, 0, &mr, nullptr), 0);
    close(mr);
    close(third);
  }
}

// --- closing ---

// All orders of two endpoints and a region, with and without a thread.
TEST_F(Device, ClosesInAllOrders) {
  for (const fi_progress progress : {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO}) {
    std::array<int, 3> order = {0, 1, 2};
    do {
      open(FI_THREAD_SAFE, progress);
      talk();
      std::vector<uint8_t> bytes(100);
      fid_mr* mr = nullptr;
      ASSERT_EQ(fi_mr_reg(domains[0], bytes.data(), 100, FI_REMOTE_READ, 0, 1, 0, &mr, nullptr), 0);
      const int closed = bench().closed;
      for (const int which : order) {
        EXPECT_EQ(fi_close(&domains[0]->fid), -FI_EBUSY);
        EXPECT_EQ(bench().closed, closed);
        if (which == 2) close(mr);
        else close(nodes[size_t(which)]);
      }
      close(domains[0]);
      EXPECT_EQ(bench().closed, closed + 1);
      domains.clear();
    } while (std::ranges::next_permutation(order).found);
  }
}

TEST_F(Device, GoesOnForOthersWhenAnEndpointCloses) {
  open(FI_THREAD_SAFE, FI_PROGRESS_AUTO);
  talk();
  for (int i = 0; i < 3; ++i) {
    close(nodes[0]);
    open_node(nodes[0], domains[0]);
    meet();
    talk();
  }
}

TEST_F(Device, CountersAreLoggedWhenTheDomainCloses) {
  setenv("FI_LOG_LEVEL", "info", 1);
  log_reset();
  open();
  talk();
  close(nodes[0]);
  close(nodes[1]);
  testing::internal::CaptureStderr();
  close(domains[0]);
  const std::string text = testing::internal::GetCapturedStderr();
  unsetenv("FI_LOG_LEVEL");
  log_reset();
  EXPECT_NE(text.find("device: received "), std::string::npos) << text;
  EXPECT_NE(text.find(", dropped "), std::string::npos) << text;
}

}  // namespace
}  // namespace weft::fi::test
