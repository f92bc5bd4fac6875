// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every operation to an address that no packet reaches ends with an error, after at least LEAST and at most MOST milliseconds.
//
//   unreachable PROVIDER HERE NODE SERVICE LEAST MOST
#include <rdma/fi_atomic.h>

#include "peer.hpp"

namespace weft::system_test {
namespace {

struct Case {
  const char* name;
  ssize_t (*post)(Peer&, fi_addr_t, uint64_t* value, void* context);
  bool counts = false;  // the error is in a counter, not in the queue
};

constexpr Case cases[] = {
    {"send", [](Peer& p, fi_addr_t to, uint64_t* value,
                void* context) { return fi_send(p.ep(), value, 8, nullptr, to, context); }},
    {"tsend", [](Peer& p, fi_addr_t to, uint64_t* value,
                 void* context) { return fi_tsend(p.ep(), value, 8, nullptr, to, 1, context); }},
    {"tsend, FI_DELIVERY_COMPLETE",
     [](Peer& p, fi_addr_t to, uint64_t* value, void* context) {
       const iovec part{value, 8};
       fi_msg_tagged message{};
       message.msg_iov = &part;
       message.iov_count = 1;
       message.addr = to;
       message.context = context;
       return fi_tsendmsg(p.ep(), &message, FI_DELIVERY_COMPLETE | FI_COMPLETION);
     }},
    {"inject", [](Peer& p, fi_addr_t to, uint64_t* value, void*) { return fi_inject(p.ep(), value, 8, to); },
     true},
    {"read", [](Peer& p, fi_addr_t to, uint64_t* value,
                void* context) { return fi_read(p.ep(), value, 8, nullptr, to, 0, 1, context); }},
    {"write", [](Peer& p, fi_addr_t to, uint64_t* value,
                 void* context) { return fi_write(p.ep(), value, 8, nullptr, to, 0, 1, context); }},
    {"atomic",
     [](Peer& p, fi_addr_t to, uint64_t* value, void* context) {
       return fi_atomic(p.ep(), value, 1, nullptr, to, 0, 1, FI_UINT64, FI_SUM, context);
     }},
    {"fetch_atomic",
     [](Peer& p, fi_addr_t to, uint64_t* value, void* context) {
       return fi_fetch_atomic(p.ep(), value, 1, nullptr, value + 1, nullptr, to, 0, 1, FI_UINT64, FI_SUM,
                              context);
     }},
};

// An endpoint with its operation; all wait at once.
struct Attempt {
  Attempt(const std::string& provider, const char* here, const Case& which)
      : what(which),
        peer(provider, FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC, FI_THREAD_DOMAIN, here, nullptr, 0,
             FI_PROGRESS_UNSPEC, FI_WAIT_NONE, which.counts) {}
  const Case& what;
  uint64_t value[2] = {17, 0};
  Op op;
  Peer peer;
  ssize_t posted = 0;
  long took = -1;  // ms

  bool start(const char* node, const char* service) {
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    if (!peer.ok() || fi_av_insertsvc(peer.av(), node, service, &to, 0, nullptr) != 1) return false;
    posted = peer.post([&] { return what.post(peer, to, value, &op.context); }, Op::take);
    return posted == 0;
  }
  bool ended(Clock::time_point began) {
    if (took >= 0) return true;
    peer.poll(Op::take);
    if (what.counts && fi_cntr_readerr(peer.sends()) != 0) op.state = -1;
    if (op.state != 0) took = ms_since(began);
    return took >= 0;
  }
};

bool run(const std::string& provider, const char* here, const char* node, const char* service, long least,
         long most) {
  std::vector<std::unique_ptr<Attempt>> attempts;
  for (const Case& one : cases) attempts.push_back(std::make_unique<Attempt>(provider, here, one));
  const auto began = Clock::now();
  for (auto& one : attempts) {
    if (one->start(node, service)) continue;
    std::fprintf(stderr, "%s: not posted (%zd)\n", one->what.name, one->posted);
    return false;
  }
  (void)eventually(
      [&] {
        bool all = true;
        for (auto& one : attempts) all = one->ended(began) && all;
        return all;
      },
      milliseconds(2 * most));
  bool good = true;
  for (const auto& one : attempts) {
    const bool right = one->op.state < 0 && one->took >= least && one->took <= most;
    std::printf("%s: %s to %s: %s after %ld ms\n", right ? "ok" : "FAILED", one->what.name, node,
                one->op.state == 0  ? "nothing"
                : one->op.state > 0 ? "completed"
                                    : "an error",
                one->took);
    good = good && right;
  }
  return good;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: %s PROVIDER HERE NODE SERVICE LEAST_MS MOST_MS\n", argv[0]);
    return 2;
  }
  const long least = std::strtol(argv[5], nullptr, 10), most = std::strtol(argv[6], nullptr, 10);
  return weft::system_test::run(argv[1], argv[2], argv[3], argv[4], least, most) ? 0 : 1;
}
