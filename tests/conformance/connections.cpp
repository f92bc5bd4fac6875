// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connected endpoints: fi_cm(3), the connection events of fi_eq(3), and what fi_endpoint(3) and fi_msg(3) say of FI_EP_MSG. Both sides stand
// in one process, on event queues and domains of their own, and are driven by one thread unless a test says otherwise.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <weft/libfabric_retired.hpp>
#include <weft/libfabric_retired_calls.hpp>

#include <cstring>
#include <thread>

#include "fixture.hpp"
#include "local_modes.hpp"

namespace weft::conformance {
namespace {

using Clock = std::chrono::steady_clock;

Options msg_options(uint64_t caps = FI_MSG) {
  Options options;
  options.caps = caps;
  options.ep_type = FI_EP_MSG;
  return options;
}

// An event, good or bad.
struct Event {
  uint32_t number = UINT32_MAX;
  fid_t fid = nullptr;
  Info info;
  std::vector<uint8_t> data;  // of the other side
  int err = 0;
  int prov_errno = 0;
  void* context = nullptr;
  std::string text;
};

// An address that this machine reaches: the wildcard address of a listener stands for loopback.
std::vector<uint8_t> reachable(std::vector<uint8_t> name, uint32_t format) {
  if (format == FI_SOCKADDR_IN) {
    sockaddr_in in{};
    std::memcpy(&in, name.data(), std::min(name.size(), sizeof in));
    if (in.sin_addr.s_addr == INADDR_ANY) in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::memcpy(name.data(), &in, sizeof in);
  }
  return name;
}

std::vector<uint8_t> name_of(fid_t fid) {
  size_t len = 256;
  std::vector<uint8_t> name(len);
  WEFT_EXPECT_OK(fi_getname(fid, name.data(), &len));
  name.resize(len);
  return name;
}

// A connected endpoint with its queues. Members close in the right order.
struct End {
  Handle<fid_cq> cq;
  Handle<fid_ep> ep;
  std::deque<Completion> inbox;
};

// One side: a fabric, a domain, an event queue.
class Side {
 public:
  explicit Side(const Options& options, fi_wait_obj wait = FI_WAIT_NONE, uint64_t eq_flags = 0)
      : options_(options) {
    info = find_info(options);
    if (!info) {
      ADD_FAILURE() << missing(options);
      return;
    }
    fi_eq_attr attr{};
    attr.wait_obj = wait;
    attr.flags = eq_flags;
    WEFT_EXPECT_OK(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
    const int opened = fi_eq_open(fabric.get(), &attr, eq.out(), nullptr);
    if (opened != 0) {
      *eq.out() = nullptr;
      lacks =
          wait != FI_WAIT_NONE && wait != FI_WAIT_UNSPEC;  // which wait objects there are is the provider's
      if (!lacks) ADD_FAILURE() << "fi_eq_open: " << error_name(opened);
      return;
    }
    WEFT_EXPECT_OK(fi_domain(fabric.get(), info.get(), domain.out(), nullptr));
    meet_demands(domain.get(), info.get());
  }

  // The next event if there is one. False: none.
  bool read(Event& out) {
    uint8_t space[512];
    uint32_t number = 0;
    const ssize_t n = fi_eq_read(eq.get(), &number, space, sizeof space, 0);
    return n == -FI_EAGAIN ? false : take(n, number, space, out);
  }
  bool take(ssize_t n, uint32_t number, const uint8_t* space, Event& out) {
    out = Event{};
    if (n == -FI_EAVAIL) {
      uint8_t data[512] = {};
      fi_eq_err_entry entry{};
      entry.err_data = data;
      entry.err_data_size = sizeof data;
      EXPECT_EQ(fi_eq_readerr(eq.get(), &entry, 0), static_cast<ssize_t>(sizeof entry));
      out.fid = entry.fid;
      out.context = entry.context;
      out.err = entry.err;
      out.prov_errno = entry.prov_errno;
      const auto* bytes = static_cast<const uint8_t*>(entry.err_data);
      out.data.assign(bytes, bytes + entry.err_data_size);
      char text[128];
      const char* said = fi_eq_strerror(eq.get(), entry.prov_errno, entry.err_data, text, sizeof text);
      out.text = said == nullptr ? "" : said;
      return true;
    }
    if (n < static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) {
      ADD_FAILURE() << "fi_eq_read: " << error_name(n);
      return false;
    }
    fi_eq_cm_entry entry;
    std::memcpy(static_cast<void*>(&entry), space, sizeof entry);
    out.number = number;
    out.fid = entry.fid;
    if (number == FI_CONNREQ) out.info.reset(entry.info);
    out.data.assign(space + sizeof entry, space + n);
    return true;
  }
  // Listens; `name` is where.
  void listen() {
    WEFT_EXPECT_OK(fi_passive_ep(fabric.get(), info.get(), pep.out(), this));
    WEFT_EXPECT_OK(fi_pep_bind(pep.get(), eq.fid(), 0));
    WEFT_EXPECT_OK(fi_listen(pep.get()));
    name = reachable(name_of(pep.fid()), info->addr_format);
  }
  // An endpoint for `of` (null: ours), bound but neither enabled nor connected.
  std::unique_ptr<End> open(fi_info* of = nullptr, bool enable = true) {
    auto end = std::make_unique<End>();
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.wait_obj = cq_wait;
    WEFT_EXPECT_OK(fi_cq_open(domain.get(), &attr, end->cq.out(), nullptr));
    WEFT_EXPECT_OK(fi_endpoint(domain.get(), of != nullptr ? of : info.get(), end->ep.out(), end.get()));
    if (!end->ep) return end;
    WEFT_EXPECT_OK(fi_ep_bind(end->ep.get(), end->cq.fid(), FI_TRANSMIT | FI_RECV));
    WEFT_EXPECT_OK(fi_ep_bind(end->ep.get(), eq.fid(), 0));
    if (enable) {
      WEFT_EXPECT_OK(fi_enable(end->ep.get()));
    }
    return end;
  }

  Info info;
  Handle<fid_fabric> fabric;
  Handle<fid_eq> eq;
  Handle<fid_domain> domain;
  Handle<fid_pep> pep;
  std::vector<uint8_t> name;
  fi_wait_obj cq_wait = FI_WAIT_NONE;
  bool lacks = false;  // no event queue with the wait object that was asked for

 private:
  Options options_;
};

// A listening side and a connecting one, and how they are driven.
class Connections : public testing::Test {
 protected:
  void SetUp() override {
    const Options options = msg_options();
    WEFT_SKIP_IF(missing(options));
  }
  static milliseconds limit(milliseconds asked = timeout_default) { return asked * patience(); }

  // Reads events of both sides until `side` has one.
  Event next(Side& side, Side& other) {
    Event event;
    std::deque<Event>& box = boxes[&side];
    const auto end = Clock::now() + limit();
    while (box.empty() && Clock::now() < end) {
      if (side.read(event)) box.push_back(std::move(event));
      if (&other != &side && other.read(event)) boxes[&other].push_back(std::move(event));
      drive();
    }
    if (box.empty()) {
      ADD_FAILURE() << "no event within " << limit().count() << " ms";
      return {};
    }
    event = std::move(box.front());
    box.pop_front();
    return event;
  }
  bool quiet(Side& side) {
    const auto end = Clock::now() + quiet_time;
    Event event;
    while (Clock::now() < end) {
      if (side.read(event)) return false;
      drive();
    }
    return boxes[&side].empty();
  }
  void watch(End& end) { ends.push_back(&end); }
  void forget(End& end) { std::erase(ends, &end); }
  // fi_cm(3): an error event; no page says which error.
  static void expect_refused(const Event& refusal) {
    if (manual_only()) {
      EXPECT_GT(refusal.err, 0);
    } else {
      EXPECT_EQ(refusal.err, FI_ECONNREFUSED);
    }
  }
  // So many bytes, or what a connection can carry; fi_cm(3), NOTES: the rest is silently cut.
  static size_t fitting(End& end, size_t bytes) {
    size_t most = bytes;
    size_t len = sizeof most;
    WEFT_EXPECT_OK(fi_getopt(end.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &len));
    return std::min(bytes, most);
  }
  // Reads the completions of all ends.
  void drive() {
    for (End* end : ends) {
      fi_cq_tagged_entry entry;
      const ssize_t n = fi_cq_read(end->cq.get(), &entry, 1);
      if (n == 1) {
        end->inbox.push_back({entry.op_context,
                              entry.flags,
                              entry.len,
                              entry.buf,
                              entry.data,
                              entry.tag,
                              FI_ADDR_NOTAVAIL,
                              0,
                              0,
                              0,
                              {},
                              {}});
      } else if (n == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        EXPECT_EQ(fi_cq_readerr(end->cq.get(), &error, 0), 1);
        Completion bad;
        bad.context = error.op_context;
        bad.flags = error.flags;
        bad.err = error.err;
        bad.prov_errno = error.prov_errno;
        bad.text = fi_cq_strerror(end->cq.get(), error.prov_errno, error.err_data, nullptr, 0);
        end->inbox.push_back(bad);
      }
    }
  }
  Completion completion(End& end) {
    const auto until = Clock::now() + limit();
    while (end.inbox.empty() && Clock::now() < until) drive();
    if (end.inbox.empty()) {
      ADD_FAILURE() << "no completion within " << limit().count() << " ms";
      Completion none;
      none.err = -1;
      return none;
    }
    Completion out = end.inbox.front();
    end.inbox.pop_front();
    return out;
  }
  template <class F>
  ssize_t post(F&& call) {
    const auto until = Clock::now() + limit();
    ssize_t rc = call();
    while (rc == -FI_EAGAIN && Clock::now() < until) {
      drive();
      rc = call();
    }
    return rc;
  }

  // The usual beginning: `active` is connected to `accepted`.
  void connect(Side& server, Side& client) {
    if (!server.pep) server.listen();
    active = client.open();
    WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), nullptr, 0));
    Event request = next(server, client);
    ASSERT_EQ(request.number, static_cast<uint32_t>(FI_CONNREQ));
    accepted = server.open(request.info.get());
    WEFT_ASSERT_OK(fi_accept(accepted->ep.get(), nullptr, 0));
    Event here = next(server, client);
    EXPECT_EQ(here.number, static_cast<uint32_t>(FI_CONNECTED));
    EXPECT_EQ(here.fid, accepted->ep.fid());
    Event there = next(client, server);
    EXPECT_EQ(there.number, static_cast<uint32_t>(FI_CONNECTED));
    EXPECT_EQ(there.fid, active->ep.fid());
    watch(*active);
    watch(*accepted);
  }
  void TearDown() override { ends.clear(); }

  std::map<Side*, std::deque<Event>> boxes;
  std::vector<End*> ends;
  std::unique_ptr<End> active;
  std::unique_ptr<End> accepted;
};

// Two sides that go after the ends do.
#define WEFT_SIDES(...)                                                                  \
  Side server(__VA_ARGS__), client(__VA_ARGS__);                                         \
  if (server.lacks) {                                                                    \
    WEFT_SKIP_IF("no event queue with this wait object");                                \
  }                                                                                      \
  if (!server.domain || !client.domain) return;                                          \
  const std::unique_ptr<int, std::function<void(int*)>> closer(new int, [this](int* p) { \
    ends.clear();                                                                        \
    active.reset();                                                                      \
    accepted.reset();                                                                    \
    boxes.clear();                                                                       \
    delete p;                                                                            \
  })

// fi_cm(3), fi_connect and fi_accept; fi_eq(3), connection notification: events, addresses, handle, data both ways.
TEST_F(Connections, request_and_answer_carry_data__fi_cm_3) {
  WEFT_SIDES(msg_options());
  server.listen();
  active = client.open();
  const std::vector<uint8_t> question = pattern(fitting(*active, 100), 1);
  const std::vector<uint8_t> reply = pattern(fitting(*active, 77), 2);
  WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), question.data(), question.size()));
  Event request = next(server, client);
  ASSERT_EQ(request.number, static_cast<uint32_t>(FI_CONNREQ));
  EXPECT_EQ(request.fid, server.pep.fid());
  ASSERT_TRUE(request.info);
  EXPECT_EQ(request.info->ep_attr->type, FI_EP_MSG);
  ASSERT_NE(request.info->handle, nullptr);
  EXPECT_EQ(request.info->handle->fclass, static_cast<size_t>(FI_CLASS_CONNREQ));
  EXPECT_NE(request.info->src_addr, nullptr);
  EXPECT_NE(request.info->dest_addr, nullptr);
  ASSERT_GE(request.data.size(), question.size());  // there may be padding
  EXPECT_TRUE(std::equal(question.begin(), question.end(), request.data.begin()));
  EXPECT_TRUE(quiet(client));

  accepted = server.open(request.info.get());
  WEFT_ASSERT_OK(fi_accept(accepted->ep.get(), reply.data(), reply.size()));
  Event there = next(client, server);
  ASSERT_EQ(there.number, static_cast<uint32_t>(FI_CONNECTED));
  EXPECT_EQ(there.fid, active->ep.fid());
  ASSERT_GE(there.data.size(), reply.size());
  EXPECT_TRUE(std::equal(reply.begin(), reply.end(), there.data.begin()));
  Event here = next(server, client);
  ASSERT_EQ(here.number, static_cast<uint32_t>(FI_CONNECTED));
  EXPECT_EQ(here.fid, accepted->ep.fid());
  EXPECT_TRUE(here.data.empty());

  // fi_cm(3), fi_getname and fi_getpeer: what one has as its name the other has as its peer.
  std::vector<uint8_t> peer(256);
  size_t len = peer.size();
  WEFT_EXPECT_OK(fi_getpeer(accepted->ep.get(), peer.data(), &len));
  peer.resize(len);
  EXPECT_EQ(peer, name_of(active->ep.fid()));
  EXPECT_EQ(std::vector<uint8_t>(static_cast<uint8_t*>(request.info->dest_addr),
                                 static_cast<uint8_t*>(request.info->dest_addr) + request.info->dest_addrlen),
            peer);
  len = 1;
  EXPECT_EQ(fi_getpeer(active->ep.get(), peer.data(), &len), -FI_ETOOSMALL);
  EXPECT_EQ(len, peer.size());
}

// fi_cm(3), fi_reject: an error event with the data; fi_eq(3), fi_eq_strerror.
TEST_F(Connections, rejection_carries_data__fi_cm_3) {
  WEFT_SIDES(msg_options());
  server.listen();
  active = client.open();
  WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), nullptr, 0));
  Event request = next(server, client);
  ASSERT_EQ(request.number, static_cast<uint32_t>(FI_CONNREQ));
  EXPECT_TRUE(request.data.empty());
  const std::vector<uint8_t> why = pattern(fitting(*active, 33), 3);
  WEFT_ASSERT_OK(fi_reject(server.pep.get(), request.info->handle, why.data(), why.size()));
  if (!manual_only()) {
    EXPECT_EQ(fi_reject(server.pep.get(), request.info->handle, nullptr, 0), -FI_EINVAL);  // only once
  }
  Event refusal = next(client, server);
  expect_refused(refusal);
  EXPECT_EQ(refusal.fid, active->ep.fid());
  if (!manual_only()) {
    EXPECT_EQ(refusal.context, active.get());
  }
  EXPECT_FALSE(refusal.text.empty());
  ASSERT_GE(refusal.data.size(), why.size());
  EXPECT_TRUE(std::equal(why.begin(), why.end(), refusal.data.begin()));
  if (!manual_only()) {
    EXPECT_EQ(fi_send(active->ep.get(), why.data(), 1, nullptr, 0, nullptr), -FI_ENOTCONN);
  }
}

// fi_cm(3): "A rejected or failed connection request will generate an error event". Nobody listens where somebody did.
TEST_F(Connections, nobody_listens__fi_cm_3) {
  WEFT_SIDES(msg_options());
  server.listen();
  WEFT_ASSERT_OK(server.pep.close());
  active = client.open();
  const int asked = fi_connect(active->ep.get(), server.name.data(), nullptr, 0);
  if (manual_only() && asked < 0) return;  // refused at once
  WEFT_ASSERT_OK(asked);
  Event refusal = next(client, server);
  expect_refused(refusal);
  EXPECT_EQ(refusal.fid, active->ep.fid());
  EXPECT_FALSE(refusal.text.empty());
  EXPECT_TRUE(quiet(client));
  if (!manual_only()) {
    EXPECT_EQ(fi_connect(active->ep.get(), server.name.data(), nullptr, 0), -FI_EOPBADSTATE);
  }
}

// fi_cm(3), fi_listen: the passive endpoint is closed before it answered; whoever asked hears of it.
TEST_F(Connections, listener_goes_before_it_answers__fi_cm_3) {
  WEFT_SIDES(msg_options());
  server.listen();
  active = client.open();
  auto second = client.open();
  WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), nullptr, 0));
  Event request = next(server, client);
  ASSERT_EQ(request.number, static_cast<uint32_t>(FI_CONNREQ));
  WEFT_ASSERT_OK(fi_connect(second->ep.get(), server.name.data(), nullptr, 0));  // never read there
  WEFT_ASSERT_OK(server.pep.close());
  Event refusal = next(client, client);
  EXPECT_NE(refusal.err, 0);
  EXPECT_EQ(refusal.fid, second->ep.fid());
  // The request that the program has may still be answered.
  accepted = server.open(request.info.get());
  WEFT_ASSERT_OK(fi_accept(accepted->ep.get(), nullptr, 0));
  EXPECT_EQ(next(client, server).number, static_cast<uint32_t>(FI_CONNECTED));
}

// A request that the program has read and not answered, when the passive endpoint and then the event queue are closed.
TEST_F(Connections, event_queue_goes_before_it_answers__fi_cm_3) {
  WEFT_BEYOND_THE_MANUAL("a request that is neither accepted nor rejected");
  WEFT_SIDES(msg_options());
  server.listen();
  active = client.open();
  WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), nullptr, 0));
  Event request = next(server, client);
  ASSERT_EQ(request.number, static_cast<uint32_t>(FI_CONNREQ));
  WEFT_ASSERT_OK(server.pep.close());
  EXPECT_TRUE(quiet(client));
  WEFT_ASSERT_OK(server.eq.close());
  Event refusal = next(client, client);
  EXPECT_EQ(refusal.err, FI_ECONNREFUSED) << refusal.text;
  EXPECT_EQ(refusal.fid, active->ep.fid());
}

// fi_close of an endpoint that was opened for a request and never accepted it; and a request that is dropped by fi_close.
TEST_F(Connections, unaccepted_is_refused__fi_cm_3) {
  WEFT_BEYOND_THE_MANUAL("a request that is neither accepted nor rejected");
  WEFT_SIDES(msg_options());
  server.listen();
  for (const bool opened : {true, false}) {
    active = client.open();
    WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), nullptr, 0));
    Event request = next(server, client);
    ASSERT_EQ(request.number, static_cast<uint32_t>(FI_CONNREQ));
    if (opened) {
      accepted = server.open(request.info.get());
    } else {
      WEFT_ASSERT_OK(fi_close(request.info->handle));
    }
    accepted.reset();
    Event refusal = next(client, server);
    EXPECT_EQ(refusal.err, FI_ECONNREFUSED) << refusal.text;
    active.reset();
  }
}

// fi_msg(3): destination and source addresses are ignored for connected endpoints; messages of every size, both ways.
TEST_F(Connections, messages_go_both_ways__fi_msg_3) {
  const bool tagged = missing(msg_options(FI_MSG | FI_TAGGED)).empty();
  WEFT_SIDES(msg_options(tagged ? FI_MSG | FI_TAGGED : FI_MSG));
  connect(server, client);
  if (HasFatalFailure()) return;
  const fi_addr_t destinations[] = {0, FI_ADDR_UNSPEC, 12345};
  uint32_t seed = 10;
  for (const size_t size : sizes()) {
    for (const bool forth : {true, false}) {
      End& from = forth ? *active : *accepted;
      End& to = forth ? *accepted : *active;
      const auto sent = pattern(size, ++seed);
      std::vector<uint8_t> got(size + 1);
      Ctx ctx[4];
      WEFT_ASSERT_OK(fi_recv(to.ep.get(), got.data(), got.size(), nullptr, destinations[seed % 3], &ctx[0]));
      WEFT_ASSERT_OK(post([&] {
        return fi_send(from.ep.get(), sent.data(), size, nullptr, destinations[seed % 3], &ctx[1]);
      }));
      Completion in = completion(to);
      EXPECT_EQ(in.err, 0) << in.text;
      EXPECT_EQ(in.context, &ctx[0]);
      EXPECT_EQ(in.len, size);
      WEFT_EXPECT_PATTERN(got.data(), size, seed);
      EXPECT_EQ(completion(from).context, &ctx[1]);
      if (!tagged) continue;
      WEFT_ASSERT_OK(post([&] {
        return fi_tsend(from.ep.get(), sent.data(), size, nullptr, destinations[seed % 3], seed, &ctx[3]);
      }));
      WEFT_ASSERT_OK(
          fi_trecv(to.ep.get(), got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, seed, 0, &ctx[2]));
      EXPECT_EQ(completion(to).tag, seed);
      EXPECT_EQ(completion(from).context, &ctx[3]);
    }
  }
  if (client.info->domain_attr->cq_data_size == 0) return;
  // Injected, with data.
  uint8_t byte = 7;
  uint8_t place = 0;
  Ctx ctx;
  WEFT_ASSERT_OK(fi_recv(accepted->ep.get(), &place, 1, nullptr, FI_ADDR_UNSPEC, &ctx));
  WEFT_ASSERT_OK(post([&] { return fi_injectdata(active->ep.get(), &byte, 1, 4711, 0); }));
  Completion in = completion(*accepted);
  EXPECT_EQ(in.data, 4711u);
  EXPECT_EQ(place, 7);
}

// fi_cq(3), fi_cq_readfrom: connected endpoints report no source.
TEST_F(Connections, source_is_not_available__fi_cq_3) {
  WEFT_SIDES(msg_options());
  connect(server, client);
  if (HasFatalFailure()) return;
  ends.clear();
  uint8_t byte = 0;
  WEFT_ASSERT_OK(fi_recv(accepted->ep.get(), &byte, 1, nullptr, FI_ADDR_UNSPEC, nullptr));
  WEFT_ASSERT_OK(post([&] { return fi_inject(active->ep.get(), &byte, 1, 0); }));
  fi_cq_tagged_entry entry;
  fi_addr_t source = 5;
  ssize_t n = -FI_EAGAIN;
  const auto end = Clock::now() + limit();
  while (n == -FI_EAGAIN && Clock::now() < end) {
    n = fi_cq_readfrom(accepted->cq.get(), &entry, 1, &source);
    (void)fi_cq_read(active->cq.get(), nullptr, 0);
  }
  EXPECT_EQ(n, 1);
  EXPECT_EQ(source, FI_ADDR_NOTAVAIL);
}

// fi_cm(3): "Outbound data transfers cannot be initiated ... until an FI_CONNECTED event"; fi_msg(3): "receive buffers may be posted prior".
TEST_F(Connections, before_the_connection__fi_msg_3) {
  WEFT_SIDES(msg_options());
  server.listen();
  active = client.open(nullptr, false);
  uint8_t byte = 9;
  if (!manual_only()) {
    EXPECT_EQ(fi_send(active->ep.get(), &byte, 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
  }
  WEFT_ASSERT_OK(fi_enable(active->ep.get()));
  if (!manual_only()) {
    EXPECT_EQ(fi_send(active->ep.get(), &byte, 1, nullptr, 0, nullptr), -FI_ENOTCONN);
    EXPECT_EQ(fi_inject(active->ep.get(), &byte, 1, 0), -FI_ENOTCONN);
  }
  std::vector<uint8_t> peer(256);
  size_t len = peer.size();
  if (!manual_only()) {
    EXPECT_EQ(fi_getpeer(active->ep.get(), peer.data(), &len), -FI_ENOTCONN);
    EXPECT_EQ(fi_shutdown(active->ep.get(), 0), -FI_ENOTCONN);
  }
  uint8_t got = 0;
  Ctx ctx;
  WEFT_ASSERT_OK(fi_recv(active->ep.get(), &got, 1, nullptr, 0, &ctx));
  WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), nullptr, 0));
  if (!manual_only()) {
    EXPECT_EQ(fi_send(active->ep.get(), &byte, 1, nullptr, 0, nullptr), -FI_ENOTCONN);
  }
  Event request = next(server, client);
  accepted = server.open(request.info.get(), false);
  WEFT_ASSERT_OK(fi_accept(accepted->ep.get(), nullptr, 0));  // enables
  EXPECT_EQ(next(server, server).number, static_cast<uint32_t>(FI_CONNECTED));
  // Sent before the other side has looked at the answer.
  watch(*accepted);
  WEFT_ASSERT_OK(post([&] { return fi_inject(accepted->ep.get(), &byte, 1, 0); }));
  EXPECT_EQ(next(client, server).number, static_cast<uint32_t>(FI_CONNECTED));
  watch(*active);
  EXPECT_EQ(completion(*active).context, &ctx);
  EXPECT_EQ(got, 9);
}

// fi_cm(3), fi_shutdown: pending operations are cancelled before it returns; the other side gets everything, then FI_SHUTDOWN.
TEST_F(Connections, shutdown_after_the_last_data__fi_cm_3) {
  WEFT_SIDES(msg_options());
  connect(server, client);
  if (HasFatalFailure()) return;
  constexpr size_t count = 200;
  const size_t bytes = std::min<size_t>(3000, client.info->tx_attr->inject_size);
  std::vector<uint8_t> mine(bytes);
  Ctx pending;
  WEFT_ASSERT_OK(fi_recv(active->ep.get(), mine.data(), bytes, nullptr, 0, &pending));
  std::vector<std::vector<uint8_t>> got(count, std::vector<uint8_t>(bytes));
  for (auto& place : got)
    WEFT_ASSERT_OK(fi_recv(accepted->ep.get(), place.data(), bytes, nullptr, 0, &place));
  for (size_t i = 0; i < count; ++i) {
    const auto sent = pattern(bytes, static_cast<uint32_t>(i));
    WEFT_ASSERT_OK(post([&] { return fi_inject(active->ep.get(), sent.data(), bytes, 0); }));
  }
  const auto all_arrive = [&] {
    for (size_t i = 0; i < count; ++i) {
      Completion in = completion(*accepted);
      ASSERT_EQ(in.err, 0) << in.text << " at " << i;
      ASSERT_EQ(in.context, &got[i]);
      WEFT_EXPECT_PATTERN(got[i].data(), bytes, static_cast<uint32_t>(i));
    }
  };
  if (manual_only()) {  // what is outstanding is cancelled or discarded, as the provider likes
    watch(*active);
    all_arrive();
    if (HasFatalFailure()) return;
    WEFT_ASSERT_OK(fi_shutdown(active->ep.get(), 0));
    EXPECT_EQ(next(server, client).number, static_cast<uint32_t>(FI_SHUTDOWN));
    return;
  }
  forget(*accepted);
  EXPECT_EQ(fi_shutdown(active->ep.get(), 1), -FI_EBADFLAGS);
  WEFT_ASSERT_OK(fi_shutdown(active->ep.get(), 0));
  fi_cq_tagged_entry entry;
  EXPECT_EQ(fi_cq_read(active->cq.get(), &entry, 1), -FI_EAVAIL);
  Completion cancelled = completion(*active);
  EXPECT_EQ(cancelled.context, &pending);
  EXPECT_EQ(cancelled.err, FI_ECANCELED);
  EXPECT_EQ(fi_inject(active->ep.get(), mine.data(), 1, 0), -FI_ENOTCONN);
  WEFT_EXPECT_OK(fi_shutdown(active->ep.get(), 0));  // nothing is left to do

  watch(*accepted);
  Event end = next(server, client);
  EXPECT_EQ(end.number, static_cast<uint32_t>(FI_SHUTDOWN));
  EXPECT_EQ(end.fid, accepted->ep.fid());
  all_arrive();
  EXPECT_EQ(fi_send(accepted->ep.get(), mine.data(), 1, nullptr, 0, nullptr), -FI_ENOTCONN);
}

// fi_cm(3), fi_shutdown: what the other side receives was not cancelled here.
TEST_F(Connections, what_arrives_is_complete_after_shutdown__fi_cm_3) {
  WEFT_SIDES(msg_options());
  connect(server, client);
  if (HasFatalFailure()) return;
  constexpr size_t count = 55;
  constexpr size_t bytes = 2048;
  const auto sent = pattern(bytes, 1);
  std::vector<Ctx> contexts(count);
  std::vector<std::vector<uint8_t>> got(count, std::vector<uint8_t>(bytes));
  for (auto& place : got)
    WEFT_ASSERT_OK(fi_recv(accepted->ep.get(), place.data(), bytes, nullptr, 0, &place));
  forget(*accepted);
  for (Ctx& context : contexts)
    WEFT_ASSERT_OK(post([&] { return fi_send(active->ep.get(), sent.data(), bytes, nullptr, 0, &context); }));
  WEFT_ASSERT_OK(fi_shutdown(active->ep.get(), 0));
  size_t complete = 0;
  for (size_t i = 0; i < count; ++i) complete += completion(*active).err == 0 ? 1 : 0;
  watch(*accepted);
  EXPECT_EQ(next(server, client).number, static_cast<uint32_t>(FI_SHUTDOWN));
  size_t arrived = 0;
  for (size_t i = 0; i < count; ++i) arrived += completion(*accepted).err == 0 ? 1 : 0;
  EXPECT_EQ(complete, arrived);
}

// fi_endpoint(3), fi_close; fi_cm(3), fi_shutdown: an abrupt end. What waits at the other side ends in error, what had come is received.
TEST_F(Connections, close_ends_the_other_side__fi_cm_3) {
  WEFT_SKIP_IF(missing(msg_options(FI_MSG | FI_TAGGED)));
  WEFT_SIDES(msg_options(FI_MSG | FI_TAGGED));
  connect(server, client);
  if (HasFatalFailure()) return;
  uint8_t byte = 3;
  uint8_t place = 0;
  Ctx ctx[3];
  WEFT_ASSERT_OK(fi_trecv(accepted->ep.get(), &place, 1, nullptr, 0, 1, 0, &ctx[0]));
  std::vector<uint8_t> large(8 << 20);  // a rendezvous that nobody receives
  WEFT_ASSERT_OK(
      post([&] { return fi_send(accepted->ep.get(), large.data(), large.size(), nullptr, 0, &ctx[1]); }));
  WEFT_ASSERT_OK(post([&] { return fi_tinject(active->ep.get(), &byte, 1, 0, 2); }));
  forget(*active);
  WEFT_ASSERT_OK(active->ep.close());
  EXPECT_EQ(next(server, client).number, static_cast<uint32_t>(FI_SHUTDOWN));
  if (manual_only()) return;  // what becomes of what was outstanding here
  std::map<void*, int> errors;
  for (int i = 0; i < 2; ++i) {
    const Completion bad = completion(*accepted);
    errors[bad.context] = bad.err;
  }
  EXPECT_EQ(errors[&ctx[0]], FI_ECANCELED);
  EXPECT_GT(errors[&ctx[1]], 0);
  WEFT_EXPECT_OK(fi_trecv(accepted->ep.get(), &place, 1, nullptr, 0, 2, 0, &ctx[2]));
  EXPECT_EQ(completion(*accepted).context, &ctx[2]);
  EXPECT_EQ(place, 3);
  EXPECT_EQ(fi_trecv(accepted->ep.get(), &place, 1, nullptr, 0, 2, 0, &ctx[2]), -FI_ENOTCONN);
  EXPECT_EQ(fi_recv(accepted->ep.get(), &place, 1, nullptr, 0, &ctx[2]), -FI_ENOTCONN);
  EXPECT_EQ(fi_tinject(accepted->ep.get(), &byte, 1, 0, 2), -FI_ENOTCONN);
}

// fi_domain(3), manual progress: reading the completion queue alone notices the end; the event waits in the event queue.
TEST_F(Connections, completion_queue_notices_the_end__fi_eq_3) {
  WEFT_BEYOND_THE_MANUAL("what is outstanding when the other side goes");
  WEFT_SIDES(msg_options());
  connect(server, client);
  if (HasFatalFailure()) return;
  uint8_t place = 0;
  Ctx ctx;
  WEFT_ASSERT_OK(fi_recv(accepted->ep.get(), &place, 1, nullptr, 0, &ctx));
  forget(*active);
  WEFT_ASSERT_OK(active->ep.close());
  const Completion bad = completion(*accepted);
  EXPECT_EQ(bad.context, &ctx);
  EXPECT_EQ(bad.err, FI_ECANCELED);
  Event event;
  ASSERT_TRUE(server.read(event));
  EXPECT_EQ(event.number, static_cast<uint32_t>(FI_SHUTDOWN));
}

// fi_endpoint(3), fi_close: an endpoint may be closed in every state; its events go with it.
TEST_F(Connections, close_in_every_state__fi_endpoint_3) {
  WEFT_SIDES(msg_options());
  server.listen();
  client.open(nullptr, false).reset();
  client.open().reset();
  auto connecting = client.open();
  WEFT_ASSERT_OK(fi_connect(connecting->ep.get(), server.name.data(), nullptr, 0));
  connecting.reset();
  auto waiting = client.open();
  WEFT_ASSERT_OK(fi_connect(waiting->ep.get(), server.name.data(), nullptr, 0));
  // Whoever accepts what was given up hears of it sooner or later.
  bool connected = false;
  const auto end = Clock::now() + limit();
  while (!connected && Clock::now() < end) {
    Event here;
    if (server.read(here)) {
      if (here.number == FI_CONNREQ) {
        accepted = server.open(here.info.get());
        if (fi_accept(accepted->ep.get(), nullptr, 0) != 0) accepted.reset();
      } else {
        EXPECT_TRUE(here.number == FI_CONNECTED || here.number == FI_SHUTDOWN || here.err != 0);
      }
    }
    Event there;
    if (client.read(there)) {
      EXPECT_EQ(there.fid, waiting->ep.fid());
      EXPECT_EQ(there.number, static_cast<uint32_t>(FI_CONNECTED));
      connected = true;
    }
  }
  EXPECT_TRUE(connected);
  waiting.reset();
  accepted.reset();
  Event event;
  EXPECT_FALSE(client.read(event));
}

// fi_eq(3), fi_poll(3): the descriptor of an event queue is readable for each connection event, and fi_trywait says when to sleep.
TEST_F(Connections, event_queue_descriptor__fi_poll_3) {
  WEFT_SIDES(msg_options(), FI_WAIT_FD);
  const auto sleep = [&](Side& side) {
    int fd = -1;
    WEFT_EXPECT_OK(fi_control(side.eq.fid(), FI_GETWAIT, &fd));
    Event event;
    const auto end = Clock::now() + limit();
    while (Clock::now() < end) {
      fid_t fids[] = {side.eq.fid()};
      const int status = fi_trywait(side.fabric.get(), fids, 1);
      if (status == 0) {
        pollfd one{fd, POLLIN, 0};
        EXPECT_EQ(::poll(&one, 1, static_cast<int>(limit().count())), 1);
      } else {
        EXPECT_EQ(status, -FI_EAGAIN);
      }
      if (side.read(event)) return event;
    }
    ADD_FAILURE() << "no event";
    return event;
  };
  server.listen();
  fid_t fids[] = {server.eq.fid()};
  WEFT_EXPECT_OK(fi_trywait(server.fabric.get(), fids, 1));
  int fd = -1;
  WEFT_EXPECT_OK(fi_control(server.eq.fid(), FI_GETWAIT, &fd));
  pollfd one{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&one, 1, static_cast<int>(quiet_time.count())), 0);

  active = client.open();
  WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), nullptr, 0));
  Event request;
  std::thread asking([&] { EXPECT_EQ(sleep(client).number, static_cast<uint32_t>(FI_CONNECTED)); });
  request = sleep(server);
  ASSERT_EQ(request.number, static_cast<uint32_t>(FI_CONNREQ));
  accepted = server.open(request.info.get());
  WEFT_EXPECT_OK(fi_accept(accepted->ep.get(), nullptr, 0));
  asking.join();
  EXPECT_EQ(sleep(server).number, static_cast<uint32_t>(FI_CONNECTED));
  WEFT_EXPECT_OK(fi_trywait(server.fabric.get(), fids, 1));
  EXPECT_EQ(::poll(&one, 1, static_cast<int>(quiet_time.count())), 0);
  std::thread leaving([&] {
    std::this_thread::sleep_for(quiet_time);
    active->ep.close();
  });
  EXPECT_EQ(sleep(server).number, static_cast<uint32_t>(FI_SHUTDOWN));
  leaving.join();
}

// fi_eq(3), fi_eq_sread: two threads, each blocked on the queue of its side, and nobody else drives anything.
TEST_F(Connections, blocking_reads__fi_eq_3) {
  for (const fi_wait_obj object : {FI_WAIT_UNSPEC, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD}) {
    if (manual_only() && Side(msg_options(), object).lacks) continue;
    WEFT_SIDES(msg_options(), object);
    server.listen();
    const auto wait = [](Side& side, Event& out) {
      uint8_t space[512];
      uint32_t number = 0;
      const ssize_t n =
          fi_eq_sread(side.eq.get(), &number, space, sizeof space, static_cast<int>(limit().count()), 0);
      if (!side.take(n, number, space, out)) ADD_FAILURE() << error_name(n);
    };
    active = client.open();
    std::thread other([&] {
      WEFT_EXPECT_OK(fi_connect(active->ep.get(), server.name.data(), nullptr, 0));
      Event event;
      wait(client, event);
      EXPECT_EQ(event.number, static_cast<uint32_t>(FI_CONNECTED));
      wait(client, event);
      EXPECT_EQ(event.number, static_cast<uint32_t>(FI_SHUTDOWN));
    });
    Event event;
    wait(server, event);
    EXPECT_EQ(event.number, static_cast<uint32_t>(FI_CONNREQ));
    if (event.info) {
      accepted = server.open(event.info.get());
      WEFT_EXPECT_OK(fi_accept(accepted->ep.get(), nullptr, 0));
      Event mine;
      wait(server, mine);
      EXPECT_EQ(mine.number, static_cast<uint32_t>(FI_CONNECTED));
      std::this_thread::sleep_for(quiet_time);
      WEFT_EXPECT_OK(fi_shutdown(accepted->ep.get(), 0));
    }
    other.join();
  }
}

// fi_poll(3), wait sets: an event queue in a set.
TEST_F(Connections, event_queue_in_a_wait_set__fi_poll_3) {
  WEFT_SIDES(msg_options());
  fi_wait_attr wait_attr{};
  wait_attr.wait_obj = FI_WAIT_UNSPEC;
  fid_wait* set = nullptr;
  WEFT_ASSERT_OK(retired::wait_open(server.fabric.get(), &wait_attr, &set));
  const Handle<fid_wait> owner(set);
  fi_eq_attr attr{};
  attr.wait_obj = FI_WAIT_SET;
  attr.wait_set = set;
  server.eq = Handle<fid_eq>();
  WEFT_ASSERT_OK(fi_eq_open(server.fabric.get(), &attr, server.eq.out(), nullptr));
  server.listen();
  EXPECT_EQ(retired::wait(set, 1), -FI_ETIMEDOUT);
  active = client.open();
  WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), nullptr, 0));
  std::thread asking([&] {
    Event event;
    const auto end = Clock::now() + limit();
    while (Clock::now() < end && !client.read(event)) std::this_thread::yield();
    EXPECT_EQ(event.err, FI_ECONNREFUSED);
  });
  WEFT_EXPECT_OK(retired::wait(set, static_cast<int>(limit().count())));
  Event request;
  EXPECT_TRUE(server.read(request));
  EXPECT_EQ(request.number, static_cast<uint32_t>(FI_CONNREQ));
  if (request.info) {
    WEFT_EXPECT_OK(fi_reject(server.pep.get(), request.info->handle, nullptr, 0));
  }
  asking.join();
  server.pep = Handle<fid_pep>();
  server.eq = Handle<fid_eq>();
}

// fi_endpoint(3), fi_srx_context: connections share one receive context, and completions go to the endpoint's queue.
TEST_F(Connections, shared_receive_context__fi_endpoint_3) {
  WEFT_SIDES(msg_options());
  server.listen();
  fid_ep* srx_raw = nullptr;
  fi_rx_attr rx_attr = *server.info->rx_attr;
  WEFT_ASSERT_OK(fi_srx_context(server.domain.get(), &rx_attr, &srx_raw, nullptr));
  Handle<fid_ep> srx(srx_raw);
  constexpr size_t count = 3;
  std::unique_ptr<End> from[count];
  std::unique_ptr<End> to[count];
  for (size_t i = 0; i < count; ++i) {
    from[i] = client.open();
    WEFT_ASSERT_OK(fi_connect(from[i]->ep.get(), server.name.data(), nullptr, 0));
    Event request = next(server, client);
    ASSERT_EQ(request.number, static_cast<uint32_t>(FI_CONNREQ));
    to[i] = server.open(request.info.get(), false);
    WEFT_ASSERT_OK(fi_ep_bind(to[i]->ep.get(), srx.fid(), 0));
    WEFT_ASSERT_OK(fi_accept(to[i]->ep.get(), nullptr, 0));
    EXPECT_EQ(next(server, client).number, static_cast<uint32_t>(FI_CONNECTED));
    EXPECT_EQ(next(client, server).number, static_cast<uint32_t>(FI_CONNECTED));
    watch(*from[i]);
    watch(*to[i]);
  }
  std::vector<uint8_t> places(64);
  Ctx ctx[8];
  for (size_t i = 0; i < 8; ++i)
    WEFT_ASSERT_OK(fi_recv(srx.get(), places.data() + 8 * i, 8, nullptr, FI_ADDR_UNSPEC, &ctx[i]));
  for (size_t i = 0; i < count; ++i) {
    const uint64_t word = 100 + i;
    WEFT_ASSERT_OK(post([&] { return fi_inject(from[i]->ep.get(), &word, sizeof word, 0); }));
    Completion in = completion(*to[i]);
    EXPECT_EQ(in.context, &ctx[i]);
    EXPECT_EQ(std::memcmp(places.data() + 8 * i, &word, 8), 0);
  }
  // One connection ends; the shared receives are there for the others.
  forget(*from[0]);
  WEFT_ASSERT_OK(from[0]->ep.close());
  EXPECT_EQ(next(server, client).number, static_cast<uint32_t>(FI_SHUTDOWN));
  const uint64_t word = 200;
  WEFT_ASSERT_OK(post([&] { return fi_inject(from[1]->ep.get(), &word, sizeof word, 0); }));
  EXPECT_EQ(completion(*to[1]).context, &ctx[count]);
  EXPECT_TRUE(to[0]->inbox.empty());
  ends.clear();
  for (auto& end : to) end.reset();
  for (auto& end : from) end.reset();
}

// fi_rma(3), fi_atomic(3) over a connection.
TEST_F(Connections, remote_memory__fi_rma_3) {
  const Options options = msg_options(FI_MSG | FI_RMA | FI_ATOMIC);
  WEFT_SKIP_IF(missing(options));
  WEFT_SIDES(options);
  connect(server, client);
  if (HasFatalFailure()) return;
  for (const size_t size : {size_t{8}, size_t{5000}, size_t{300'000}}) {
    std::vector<uint8_t> target(size);
    fid_mr* raw = nullptr;
    WEFT_ASSERT_OK(fi_mr_reg(server.domain.get(), target.data(), size, FI_REMOTE_WRITE | FI_REMOTE_READ, 0,
                             99, 0, &raw, nullptr));
    Handle<fid_mr> mr(raw);
    const int mode = server.info->domain_attr->mr_mode;
    const uint64_t base = (mode & FI_MR_VIRT_ADDR) != 0 || mode == retired::mr_basic
                              ? reinterpret_cast<uint64_t>(target.data())
                              : 0;
    const auto source = pattern(size, 5);
    std::vector<uint8_t> back(size);
    Ctx ctx[3];
    WEFT_ASSERT_OK(post([&] {
      return fi_write(active->ep.get(), source.data(), size, nullptr, 0, base, fi_mr_key(raw), &ctx[0]);
    }));
    Completion written = completion(*active);
    EXPECT_EQ(written.err, 0) << written.text;
    WEFT_EXPECT_PATTERN(target.data(), size, 5);
    WEFT_ASSERT_OK(post([&] {
      return fi_read(active->ep.get(), back.data(), size, nullptr, FI_ADDR_UNSPEC, base, fi_mr_key(raw),
                     &ctx[1]);
    }));
    EXPECT_EQ(completion(*active).err, 0);
    EXPECT_EQ(back, target);
    const uint64_t one = 1;
    uint64_t before = 0;
    std::memcpy(&before, target.data(), 8);
    WEFT_ASSERT_OK(post([&] {
      return fi_atomic(active->ep.get(), &one, 1, nullptr, 0, base, fi_mr_key(raw), FI_UINT64, FI_SUM,
                       &ctx[2]);
    }));
    EXPECT_EQ(completion(*active).err, 0);
    uint64_t after = 0;
    std::memcpy(&after, target.data(), 8);
    EXPECT_EQ(after, before + 1);
  }
}

// Streams in both directions at once, through multi-receive buffers on one side; fi_msg(3), FI_MULTI_RECV.
TEST_F(Connections, streams_both_ways__fi_msg_3) {
  const Options options = msg_options(FI_MSG | FI_MULTI_RECV);
  WEFT_SKIP_IF(missing(options));
  WEFT_SIDES(options);
  connect(server, client);
  if (HasFatalFailure()) return;
  constexpr size_t count = 500;
  const size_t most = std::min<size_t>(2000, client.info->tx_attr->inject_size);
  if (most == 0) GTEST_SKIP() << "nothing is injected";
  const auto size_at = [most](size_t i) { return 1 + i * 7919 % most; };
  std::vector<uint8_t> pool(most * count);
  iovec part{pool.data(), pool.size()};
  fi_msg msg{};
  msg.msg_iov = &part;
  msg.iov_count = 1;
  WEFT_ASSERT_OK(fi_recvmsg(accepted->ep.get(), &msg, FI_MULTI_RECV | FI_COMPLETION));
  std::vector<std::vector<uint8_t>> places(count, std::vector<uint8_t>(most));
  for (size_t i = 0; i < count; ++i) {
    WEFT_ASSERT_OK(
        post([&] { return fi_recv(active->ep.get(), places[i].data(), most, nullptr, 0, &places[i]); }));
    for (const bool forth : {true, false}) {
      End& from = forth ? *active : *accepted;
      const auto sent = pattern(size_at(i), static_cast<uint32_t>(forth ? i : count + i));
      WEFT_ASSERT_OK(post([&] {
        for (End* end : {active.get(), accepted.get()})
          (void)fi_cq_read(end->cq.get(), nullptr, 0);  // nobody else takes what came
        return fi_inject(from.ep.get(), sent.data(), sent.size(), 0);
      }));
    }
  }
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    const Completion in = completion(*accepted);
    ASSERT_EQ(in.len, size_at(i));
    EXPECT_EQ(in.buf, pool.data() + at);
    WEFT_EXPECT_PATTERN(in.buf, in.len, static_cast<uint32_t>(i));
    at += in.len;
    const Completion back = completion(*active);
    ASSERT_EQ(back.context, &places[i]);
    WEFT_EXPECT_PATTERN(places[i].data(), back.len, static_cast<uint32_t>(count + i));
  }
}

// Whether the first bytes of a message are there; a progress thread may be what writes them.
[[gnu::no_sanitize("thread")]] bool has_begun(const volatile uint8_t* there, const uint8_t* wanted) {
  for (size_t i = 0; i < 8; ++i)
    if (there[i] != wanted[i]) return false;
  return true;
}

// fi_msg(3), FI_MULTI_RECV: a buffer that is posted when the connection ends comes back with the flag, once, whoever ends it and however much of
// it is filled.
TEST_F(Connections, multi_receive_comes_back__fi_msg_3) {
  WEFT_BEYOND_THE_MANUAL("the flags of receives that the end of a connection cancels");
  const Options options = msg_options(FI_MSG | FI_MULTI_RECV);
  WEFT_SKIP_IF(missing(options));
  for (const char* how : {"fi_shutdown here", "fi_shutdown by the peer", "fi_close by the peer"}) {
    for (const char* filled : {"empty", "partly filled", "a part under way"}) {
      SCOPED_TRACE(std::string(how) + ", " + filled);
      const bool in_flight = filled[0] == 'a';
      const auto large = pattern(in_flight ? 32 << 20 : 0, 9);
      std::vector<uint8_t> buffer(in_flight ? 64 << 20 : 4096);
      WEFT_SIDES(options);
      connect(server, client);
      if (HasFatalFailure()) return;
      const iovec part{buffer.data(), buffer.size()};
      Ctx received, sent;
      const fi_msg msg{&part, nullptr, 1, FI_ADDR_UNSPEC, &received, 0};
      WEFT_ASSERT_OK(fi_recvmsg(accepted->ep.get(), &msg, FI_MULTI_RECV));
      if (filled[0] != 'e') {
        const auto out = pattern(40, 1);
        WEFT_ASSERT_OK(
            post([&] { return fi_send(active->ep.get(), out.data(), out.size(), nullptr, 0, &sent); }));
        const Completion c = completion(*accepted);
        EXPECT_EQ(c.err, 0);
        EXPECT_EQ(c.flags, FI_RECV | FI_MSG);
        (void)completion(*active);
      }
      forget(*active);  // from now on the sender makes no progress by a call
      if (in_flight) {
        WEFT_ASSERT_OK(fi_send(active->ep.get(), large.data(), large.size(), nullptr, 0, &sent));
        const auto until = Clock::now() + quiet_time;
        while (Clock::now() < until && accepted->inbox.empty() &&
               !has_begun(buffer.data() + 40, large.data()))
          drive();
      }
      if (how[std::strlen("fi_shutdown ")] == 'h') WEFT_ASSERT_OK(fi_shutdown(accepted->ep.get(), 0));
      else if (how[3] == 's') WEFT_ASSERT_OK(fi_shutdown(active->ep.get(), 0));
      else WEFT_ASSERT_OK(active->ep.close());
      std::vector<Completion> got;
      const auto came_back = [&] { return !got.empty() && (got.back().flags & FI_MULTI_RECV) != 0; };
      const auto end = Clock::now() + limit();
      while (!came_back() && Clock::now() < end) {
        drive();
        for (; !accepted->inbox.empty(); accepted->inbox.pop_front()) {
          EXPECT_FALSE(came_back()) << "an entry behind the last one";
          got.push_back(accepted->inbox.front());
        }
      }
      ASSERT_TRUE(came_back());
      for (const Completion& each : got) {
        // What was under way may still have arrived.
        if (!in_flight || (each.flags & FI_MULTI_RECV) != 0) {
          EXPECT_NE(each.err, 0);
        }
        EXPECT_EQ(each.context, &received);
        EXPECT_EQ(each.flags & ~uint64_t{FI_MULTI_RECV}, FI_RECV | FI_MSG);
      }
      EXPECT_LE(got.size(), in_flight ? 2u : 1u);
      const auto until = Clock::now() + quiet_time;
      while (Clock::now() < until) drive();
      EXPECT_TRUE(accepted->inbox.empty()) << "the buffer comes back once";
      EXPECT_EQ(fi_cancel(accepted->ep.fid(), &received), -FI_ENOENT);
    }
  }
}

// Many connections to one passive endpoint, made at once.
TEST_F(Connections, many_at_once__fi_cm_3) {
  WEFT_SIDES(msg_options());
  server.listen();
  constexpr size_t count = 64;
  std::vector<std::unique_ptr<End>> from;
  std::vector<std::unique_ptr<End>> to;
  for (size_t i = 0; i < count; ++i) {
    from.push_back(client.open());
    WEFT_ASSERT_OK(post([&] { return fi_connect(from[i]->ep.get(), server.name.data(), &i, sizeof i); }));
  }
  size_t connected_here = 0;
  size_t connected_there = 0;
  const auto end = Clock::now() + limit();
  Event event;
  while ((connected_here < count || connected_there < count) && Clock::now() < end) {
    if (server.read(event)) {
      if (event.number == FI_CONNREQ) {
        to.push_back(server.open(event.info.get()));
        WEFT_ASSERT_OK(fi_accept(to.back()->ep.get(), event.data.data(), event.data.size()));
      } else {
        ASSERT_EQ(event.number, static_cast<uint32_t>(FI_CONNECTED)) << event.text;
        ++connected_here;
      }
    }
    if (client.read(event)) {
      ASSERT_EQ(event.number, static_cast<uint32_t>(FI_CONNECTED)) << event.text;
      ++connected_there;
      size_t index = 0;
      ASSERT_GE(event.data.size(), sizeof index);
      std::memcpy(&index, event.data.data(), sizeof index);
      ASSERT_LT(index, count);
      EXPECT_EQ(event.fid, from[index]->ep.fid());
    }
  }
  EXPECT_EQ(connected_here, count);
  EXPECT_EQ(connected_there, count);
  from.clear();
  size_t ended = 0;
  const auto last = Clock::now() + limit();
  while (ended < count && Clock::now() < last) {
    if (!server.read(event)) continue;
    EXPECT_EQ(event.number, static_cast<uint32_t>(FI_SHUTDOWN));
    ++ended;
  }
  EXPECT_EQ(ended, count);
  to.clear();
}

// fi_eq(3): events wait for room in the queue, and none is lost.
TEST_F(Connections, full_event_queue__fi_eq_3) {
  WEFT_SIDES(msg_options());
  fi_eq_attr attr{};
  attr.size = 2;
  server.eq = Handle<fid_eq>();
  WEFT_ASSERT_OK(fi_eq_open(server.fabric.get(), &attr, server.eq.out(), nullptr));
  server.listen();
  std::unique_ptr<End> from[5];
  for (auto& end : from) {
    end = client.open();
    WEFT_ASSERT_OK(fi_connect(end->ep.get(), server.name.data(), nullptr, 0));
  }
  for (size_t i = 0; i < std::size(from); ++i) {
    Event request = next(server, client);
    ASSERT_EQ(request.number, static_cast<uint32_t>(FI_CONNREQ));
    WEFT_EXPECT_OK(fi_reject(server.pep.get(), request.info->handle, nullptr, 0));
  }
  for (size_t i = 0; i < std::size(from); ++i) EXPECT_EQ(next(client, server).err, FI_ECONNREFUSED);
  for (auto& end : from) end.reset();
  server.pep = Handle<fid_pep>();
}

// fi_eq(3): the size is that of the queue, of events that nobody has read; it does not bound how many connections report to it.
TEST_F(Connections, small_event_queue_serves_many__fi_eq_3) {
  WEFT_SIDES(msg_options());
  fi_eq_attr attr{};
  attr.size = 2;
  server.eq = Handle<fid_eq>();
  client.eq = Handle<fid_eq>();
  WEFT_ASSERT_OK(fi_eq_open(server.fabric.get(), &attr, server.eq.out(), nullptr));
  WEFT_ASSERT_OK(fi_eq_open(client.fabric.get(), &attr, client.eq.out(), nullptr));
  server.listen();
  std::vector<std::unique_ptr<End>> ends_here;
  for (int i = 0; i < 10; ++i) {
    ends_here.push_back(client.open());
    WEFT_ASSERT_OK(fi_connect(ends_here.back()->ep.get(), server.name.data(), nullptr, 0));
    Event request = next(server, client);
    ASSERT_EQ(request.number, static_cast<uint32_t>(FI_CONNREQ));
    ends_here.push_back(server.open(request.info.get()));
    WEFT_ASSERT_OK(fi_accept(ends_here.back()->ep.get(), nullptr, 0));
    EXPECT_EQ(next(server, client).number, static_cast<uint32_t>(FI_CONNECTED));
    EXPECT_EQ(next(client, server).number, static_cast<uint32_t>(FI_CONNECTED));
  }
  ends_here.clear();
  server.pep = Handle<fid_pep>();
}

// fi_endpoint(3), FI_OPT_CM_DATA_SIZE; fi_cm(3), notes: data that does not fit is cut off; fi_eq(3): so is what the reader has no room for.
TEST_F(Connections, data_that_does_not_fit_is_cut__fi_cm_3) {
  WEFT_SIDES(msg_options());
  server.listen();
  active = client.open();
  size_t most = 0;
  size_t len = sizeof most;
  WEFT_ASSERT_OK(fi_getopt(active->ep.fid(), FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &len));
  size_t listening = 0;
  len = sizeof listening;
  WEFT_ASSERT_OK(fi_getopt(server.pep.fid(), FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &listening, &len));
  EXPECT_GE(listening, most);
  EXPECT_GT(most, 0u);
  const auto long_data = pattern(manual_only() ? most : most + 100, 8);
  WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), long_data.data(), long_data.size()));
  Event request;
  if (!manual_only()) {
    const auto end = Clock::now() + limit();
    ssize_t n = -FI_EAGAIN;
    uint8_t space[sizeof(fi_eq_cm_entry) + 10];
    uint32_t number = 0;
    while (n == -FI_EAGAIN && Clock::now() < end) {
      n = fi_eq_read(server.eq.get(), &number, space, sizeof space, FI_PEEK);
      ASSERT_FALSE(client.read(request));
    }
    EXPECT_EQ(n, static_cast<ssize_t>(sizeof space));
    EXPECT_EQ(fi_eq_read(server.eq.get(), &number, space, sizeof(fi_eq_cm_entry) - 1, FI_PEEK),
              -FI_ETOOSMALL);
  }
  request = next(server, client);
  ASSERT_GE(request.data.size(), most);
  EXPECT_EQ(std::memcmp(request.data.data(), long_data.data(), most), 0);
  WEFT_ASSERT_OK(fi_reject(server.pep.get(), request.info->handle, long_data.data(), long_data.size()));
  Event refusal = next(client, server);
  ASSERT_GE(refusal.data.size(), most);
  EXPECT_EQ(std::memcmp(refusal.data.data(), long_data.data(), most), 0);
}

// Calls in the wrong state or on the wrong object are refused: fi_cm(3), fi_endpoint(3).
TEST_F(Connections, wrong_calls_are_refused__fi_cm_3) {
  WEFT_BEYOND_THE_MANUAL("calls in the wrong state");
  WEFT_SIDES(msg_options());
  WEFT_ASSERT_OK(fi_passive_ep(server.fabric.get(), server.info.get(), server.pep.out(), nullptr));
  EXPECT_EQ(fi_listen(server.pep.get()), -FI_ENOEQ);
  EXPECT_EQ(fi_pep_bind(server.pep.get(), server.domain.fid(), 0), -FI_EINVAL);
  WEFT_ASSERT_OK(fi_pep_bind(server.pep.get(), server.eq.fid(), 0));
  EXPECT_EQ(server.eq.close(), -FI_EBUSY);
  int backlog = 7;
  WEFT_EXPECT_OK(fi_control(server.pep.fid(), FI_BACKLOG, &backlog));  // fi_endpoint(3), fi_control
  EXPECT_EQ(fi_control(server.pep.fid(), FI_ENABLE, nullptr), -FI_ENOSYS);
  WEFT_ASSERT_OK(fi_listen(server.pep.get()));
  server.name = reachable(name_of(server.pep.fid()), server.info->addr_format);

  Handle<fid_ep> bare;
  WEFT_ASSERT_OK(fi_endpoint(client.domain.get(), client.info.get(), bare.out(), nullptr));
  EXPECT_EQ(fi_enable(bare.get()), -FI_ENOEQ);
  EXPECT_EQ(fi_connect(bare.get(), server.name.data(), nullptr, 0), -FI_ENOEQ);
  WEFT_ASSERT_OK(fi_ep_bind(bare.get(), client.eq.fid(), 0));
  EXPECT_EQ(fi_enable(bare.get()), -FI_ENOCQ);

  active = client.open();
  EXPECT_EQ(fi_accept(active->ep.get(), nullptr, 0), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_connect(active->ep.get(), nullptr, nullptr, 0), -FI_EINVAL);
  WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), nullptr, 0));
  EXPECT_EQ(fi_connect(active->ep.get(), server.name.data(), nullptr, 0), -FI_EOPBADSTATE);
  Event request = next(server, client);
  accepted = server.open(request.info.get());
  fid_ep* second = nullptr;
  EXPECT_LT(fi_endpoint(server.domain.get(), request.info.get(), &second, nullptr), 0);  // answered already
  EXPECT_EQ(fi_reject(server.pep.get(), request.info->handle, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_connect(accepted->ep.get(), server.name.data(), nullptr, 0), -FI_EOPBADSTATE);
  WEFT_EXPECT_OK(fi_accept(accepted->ep.get(), nullptr, 0));
  EXPECT_EQ(fi_accept(accepted->ep.get(), nullptr, 0), -FI_EOPBADSTATE);
  EXPECT_EQ(next(client, server).number, static_cast<uint32_t>(FI_CONNECTED));
}

// fi_endpoint(3), fi_info::handle: an active endpoint takes the address that a passive endpoint reserved.
TEST_F(Connections, active_endpoint_takes_a_reserved_address__fi_endpoint_3) {
  WEFT_BEYOND_THE_MANUAL("the name of a passive endpoint that does not listen");
  WEFT_SIDES(msg_options());
  server.listen();
  WEFT_ASSERT_OK(fi_passive_ep(client.fabric.get(), client.info.get(), client.pep.out(), nullptr));
  const auto reserved = name_of(client.pep.fid());
  client.info->handle = client.pep.fid();
  active = client.open();
  client.info->handle = nullptr;
  ASSERT_TRUE(active->ep);
  WEFT_ASSERT_OK(client.pep.close());
  WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), nullptr, 0));
  Event request = next(server, client);
  ASSERT_EQ(request.number, static_cast<uint32_t>(FI_CONNREQ));
  ASSERT_EQ(request.info->dest_addrlen, reserved.size());
  const std::vector<uint8_t> from(static_cast<uint8_t*>(request.info->dest_addr),
                                  static_cast<uint8_t*>(request.info->dest_addr) + reserved.size());
  EXPECT_EQ(from, reachable(reserved, client.info->addr_format));
  WEFT_EXPECT_OK(fi_reject(server.pep.get(), request.info->handle, nullptr, 0));
  EXPECT_EQ(next(client, server).err, FI_ECONNREFUSED);
}

// A program that finds an event at each call takes requests all the same: fi_eq_read, FI_PEEK, fi_eq_sread and fi_eq_readerr drive the listener now
// and then.
TEST_F(Connections, an_event_queue_that_is_never_empty__fi_eq_3) {
  WEFT_BEYOND_THE_MANUAL("progress by a call that finds an event");
  WEFT_SIDES(msg_options(), FI_WAIT_UNSPEC, FI_WRITE);
  server.listen();
  const auto write = [&](uint64_t number) {
    fi_eq_entry mark{};
    mark.data = number;
    return fi_eq_write(server.eq.get(), FI_NOTIFY, &mark, sizeof mark, 0) ==
           static_cast<ssize_t>(sizeof mark);
  };
  for (const char* how : {"fi_eq_read", "fi_eq_sread", "FI_PEEK", "fi_eq_readerr"}) {
    SCOPED_TRACE(how);
    const bool takes = std::strncmp(how, "fi_eq_s", 7) == 0 || std::strcmp(how, "fi_eq_read") == 0;
    ASSERT_TRUE(write(1));
    active = client.open();
    WEFT_ASSERT_OK(fi_connect(active->ep.get(), server.name.data(), nullptr, 0));
    uint8_t space[512];
    uint32_t number = FI_NOTIFY;
    ssize_t n = 0;
    Event event;
    // Only who takes events sees the request; the others call until it has had the time to come.
    const auto end = Clock::now() + (takes ? limit() : milliseconds(100) * patience());
    for (int calls = 0; number == FI_NOTIFY && (Clock::now() < end || calls < 2000); ++calls) {
      if (takes) {
        ASSERT_TRUE(write(2));
      }
      if (std::strcmp(how, "fi_eq_read") == 0) {
        n = fi_eq_read(server.eq.get(), &number, space, sizeof space, 0);
      } else if (takes) {
        n = fi_eq_sread(server.eq.get(), &number, space, sizeof space, -1, 0);
      } else if (std::strcmp(how, "FI_PEEK") == 0) {
        n = fi_eq_read(server.eq.get(), &number, space, sizeof space, FI_PEEK);
      } else {
        fi_eq_err_entry error{};
        ASSERT_EQ(fi_eq_readerr(server.eq.get(), &error, 0), -FI_EAGAIN);
        n = 1;
      }
      ASSERT_GT(n, 0);
      ASSERT_FALSE(client.read(event));
      if (takes && Clock::now() >= end) break;
    }
    if (!takes) {  // the request is before what is written now
      ASSERT_TRUE(write(2));
      n = fi_eq_read(server.eq.get(), &number, space, sizeof space, 0);
      ASSERT_EQ(number, static_cast<uint32_t>(FI_NOTIFY));
      n = fi_eq_read(server.eq.get(), &number, space, sizeof space, 0);
    }
    ASSERT_EQ(number, static_cast<uint32_t>(FI_CONNREQ));
    ASSERT_TRUE(server.take(n, number, space, event));
    WEFT_ASSERT_OK(fi_reject(server.pep.get(), event.info->handle, nullptr, 0));
    expect_refused(next(client, client));
    while (fi_eq_read(server.eq.get(), &number, space, sizeof space, 0) > 0) {
    }
  }
}

// One thread reads the event queue, another moves data: fi_domain(3), FI_THREAD_DOMAIN does not serialise the two.
TEST_F(Connections, event_queue_in_another_thread__fi_domain_3) {
  Options options = msg_options();
  options.threading = FI_THREAD_DOMAIN;
  WEFT_SKIP_IF(missing(options));
  WEFT_SIDES(options, FI_WAIT_UNSPEC);
  connect(server, client);
  if (HasFatalFailure()) return;
  std::atomic<bool> ended{false};
  std::thread watcher([&] {
    const auto end = Clock::now() + limit();
    Event event;
    while (!ended && Clock::now() < end) {
      uint8_t space[512];
      uint32_t number = 0;
      const ssize_t n = fi_eq_sread(server.eq.get(), &number, space, sizeof space, 100, 0);
      if (n > 0) ended = number == FI_SHUTDOWN;
    }
  });
  std::vector<uint8_t> sent(100);
  std::vector<uint8_t> got(100);
  for (int i = 0; i < 2000; ++i) {
    WEFT_ASSERT_OK(fi_recv(accepted->ep.get(), got.data(), got.size(), nullptr, 0, nullptr));
    WEFT_ASSERT_OK(post([&] { return fi_inject(active->ep.get(), sent.data(), sent.size(), 0); }));
    ASSERT_EQ(completion(*accepted).len, sent.size());
  }
  forget(*active);
  WEFT_EXPECT_OK(active->ep.close());
  watcher.join();
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace weft::conformance
