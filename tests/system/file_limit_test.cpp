// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Under a limit on file size (RLIMIT_FSIZE, ulimit -f) shared memory that would grow beyond it is refused with an error, and no SIGXFSZ ends the
// process: when an endpoint is opened, and when a peer is first sent to. The provider weft reaches such peers by the network.
#include <sys/resource.h>

#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t nothing = 1024;
constexpr size_t one_channel = size_t{1} << 21;  // a header, one channel of more than 1 MiB, and no second

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "file_limit_test: line %d: %s\n", __LINE__, #condition); \
      return 1;                                                                     \
    }                                                                               \
  } while (false)

void limit_files(size_t bytes) {
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) std::abort();
}

// A verified message from a to b. The first failure of the send is the result.
ssize_t send_one(Peer& a, Peer& b, uint64_t tag, size_t bytes) {
  std::vector<uint8_t> out(bytes), in(bytes);
  fill(out.data(), bytes, tag);
  Op sent, received;
  Name name;
  b.publish(name);
  const fi_addr_t to = a.insert(name);
  ssize_t rc = fi_trecv(b.ep(), in.data(), bytes, nullptr, FI_ADDR_UNSPEC, tag, 0, &received.context);
  if (rc != 0) return rc;
  eventually([&] {
    rc = fi_tsend(a.ep(), out.data(), bytes, nullptr, to, tag, &sent.context);
    b.poll(Op::take);
    if (rc == -FI_EAGAIN) a.poll(Op::take);
    return rc != -FI_EAGAIN;
  });
  if (rc == 0)
    eventually([&] {
      a.poll(Op::take);
      b.poll(Op::take);
      return sent.state != 0 && (received.state != 0 || sent.state < 0);
    });
  if (rc == 0 && sent.state != 1) rc = sent.state == 0 ? -FI_ETIMEDOUT : -sent.err;
  if (received.state == 0) fi_cancel(&b.ep()->fid, &received.context);
  while (received.state == 0) b.poll(Op::take);
  if (rc == 0 && first_difference(in.data(), bytes, tag) != bytes) rc = -FI_EIO;
  return rc;
}

int opened_under_a_limit() {
  limit_files(nothing);
  fi_info* hints = fi_allocinfo();
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_ep* ep = nullptr;
  hints->fabric_attr->prov_name = strdup("shm");
  CHECK(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info) == 0);
  CHECK(fi_fabric(info->fabric_attr, &fabric, nullptr) == 0);
  CHECK(fi_domain(fabric, info, &domain, nullptr) == 0);
  CHECK(fi_endpoint(domain, info, &ep, nullptr) == -FI_ENOMEM);
  CHECK(fi_close(&domain->fid) == 0 && fi_close(&fabric->fid) == 0);
  fi_freeinfo(info);
  fi_freeinfo(hints);
  Peer a("weft", FI_TAGGED), b("weft", FI_TAGGED);
  CHECK(a.ok() && b.ok());
  CHECK(send_one(a, b, 1, 8) == 0 && send_one(b, a, 2, 300'000) == 0);
  return 0;
}

int reached_under_a_limit(const std::string& provider) {
  Peer a(provider, FI_TAGGED), b(provider, FI_TAGGED), c(provider, FI_TAGGED), d(provider, FI_TAGGED);
  CHECK(a.ok() && b.ok() && c.ok() && d.ok());
  limit_files(one_channel);
  const ssize_t beyond = provider == "shm" ? -FI_ENOMEM : 0;
  CHECK(send_one(a, b, 1, 8) == 0 && send_one(b, a, 2, 20'000) == 0);
  CHECK(send_one(a, c, 3, 8) == beyond);
  // d speaks first, and waits for an answer of the engine, which has no channel either (peer.hpp asks for delivery complete).
  if (provider == "weft") CHECK(send_one(a, d, 4, 8) == 0 && send_one(d, a, 5, 300'000) == 0);
  CHECK(send_one(a, b, 6, 300'000) == 0);
  return 0;
}

}  // namespace
}  // namespace weft::system_test

int main() {
  using namespace weft::system_test;
  alarm(120);
  const int opened = join(spawn(opened_under_a_limit), milliseconds(30'000));
  const int shm = join(spawn([] { return reached_under_a_limit("shm"); }), milliseconds(30'000));
  const int weft = join(spawn([] { return reached_under_a_limit("weft"); }), milliseconds(30'000));
  std::printf("file_limit_test: opening %d, shm %d, weft %d\n", opened, shm, weft);
  return opened == 0 && shm == 0 && weft == 0 ? 0 : 1;
}
