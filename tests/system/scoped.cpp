// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two endpoints at link-local addresses of two interfaces, whose numbers differ. The name of each has the number of its own interface, so the
// other one reaches it by another scope (RFC 4007, 6). A message from a peer that was never sent to must match a receive that is directed at its
// entry in the address vector, and fi_cq_readfrom must report that entry: for a receive that waits, and for a message that was there first.
//
//   scoped PROVIDER NODE NODE
#include "peer.hpp"

namespace weft::system_test {
namespace {

struct Message {
  fi_context2 context{};
  uint64_t value = 0;
};

int run(const std::string& provider, const char* here, const char* there) {
  Message sent[2], received[2];
  Peer one(provider, FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE, FI_THREAD_DOMAIN, here);
  Peer two(provider, FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE, FI_THREAD_DOMAIN, there);
  if (!one.ok() || !two.ok()) return 1;
  Name names[2];
  one.publish(names[0]);
  two.publish(names[1]);
  const fi_addr_t to_one = two.insert(names[0]);
  if (to_one == FI_ADDR_NOTAVAIL) return 1;
  fi_addr_t from_two = FI_ADDR_NOTAVAIL;
  for (const bool early : {true, false}) {
    Message& out = sent[early];
    Message& in = received[early];
    out.value = early ? 17 : 18;
    bool failed = false, left = false;
    const auto take_sent = [&](const Done& done) { (done.err != 0 ? failed : left) = true; };
    const auto receive = [&] {
      if (from_two == FI_ADDR_NOTAVAIL) from_two = one.insert(names[1]);
      return fi_trecv(one.ep(), &in.value, sizeof in.value, nullptr, from_two, out.value, 0, &in.context);
    };
    if (!early && receive() != 0) return 1;
    const ssize_t rc = two.post(
        [&] {
          (void)fi_cq_read(one.cq(), nullptr, 0);
          return fi_tsend(two.ep(), &out.value, sizeof out.value, nullptr, to_one, out.value, &out.context);
        },
        take_sent);
    if (rc != 0) {
      std::fprintf(stderr, "fi_tsend: %s\n", fi_strerror(static_cast<int>(-rc)));
      return 1;
    }
    if (early) {  // it is here before anybody asks for it, and before its sender's name is known
      const auto start = Clock::now();
      while (ms_since(start) < 100) {
        two.poll(take_sent);
        (void)fi_cq_read(one.cq(), nullptr, 0);
      }
      if (receive() != 0) return 1;
    }
    ssize_t count = 0;
    fi_cq_tagged_entry entry{};
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    const bool came = eventually([&] {
      two.poll(take_sent);
      if (count == 0 || count == -FI_EAGAIN) count = fi_cq_readfrom(one.cq(), &entry, 1, &source);
      return count == 1 && left;
    });
    if (!came || failed || in.value != out.value || source != from_two) {
      std::fprintf(stderr, "%s, a message that %s: %s, value %llu of %llu, source %llu of %llu\n",
                   provider.c_str(), early ? "was first" : "is waited for",
                   count == 1 ? "received" : "not received", static_cast<unsigned long long>(in.value),
                   static_cast<unsigned long long>(out.value), static_cast<unsigned long long>(source),
                   static_cast<unsigned long long>(from_two));
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s PROVIDER NODE NODE\n", argv[0]);
    return 2;
  }
  return weft::system_test::run(argv[1], argv[2], argv[3]);
}
