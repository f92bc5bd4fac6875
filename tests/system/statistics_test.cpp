// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What became of packets: the counters of weft/extensions.h over a network that loses, doubles and delays, and the line in the log when an endpoint
// that lost something is closed.
#include <weft/extensions.h>

#include <fcntl.h>

#include "peer.hpp"

namespace {

using namespace weft::system_test;

int failures = 0;
void expect(bool good, const char* what) {
  if (good) return;
  std::printf("FAILED: %s\n", what);
  ++failures;
}

weft_reliable_statistics statistics_of(const Peer& peer) {
  const weft_reliable_ops* ops = nullptr;
  weft_reliable_statistics all{};
  all.size = sizeof all;
  expect(weft_reliable_open(peer.ep(), &ops) == 0, "weft_reliable_open");
  expect(weft_reliable_query_statistics(ops, peer.ep(), &all) == 0, "weft_reliable_query_statistics");
  expect(all.size == sizeof all, "the size stays");
  return all;
}

// A structure of a newer header, and one that is none.
void sizes(const Peer& peer) {
  const weft_reliable_ops* ops = nullptr;
  expect(weft_reliable_open(peer.ep(), &ops) == 0, "weft_reliable_open");
  struct {
    weft_reliable_statistics known;
    uint64_t more;
  } larger{};
  larger.known.size = sizeof larger;
  larger.more = 77;
  expect(weft_reliable_query_statistics(ops, peer.ep(), &larger.known) == 0, "a larger structure");
  expect(larger.more == 0 && larger.known.sent != 0, "what the library does not know is zero");
  weft_reliable_statistics none{};
  expect(weft_reliable_query_statistics(ops, peer.ep(), &none) == -FI_EINVAL, "a structure without size");
  expect(weft_reliable_query_statistics(ops, nullptr, &none) == -FI_EINVAL, "no endpoint");
  expect(weft_reliable_query_statistics(nullptr, peer.ep(), &none) == -FI_ENOSYS, "no table");
}

bool say_to(Peer& from, Peer& to, fi_addr_t address, size_t length, uint64_t tag) {
  std::vector<uint8_t> out(length), in(length);
  fill(out.data(), length, tag);
  Op send, receive;
  const auto both = [&] {
    from.poll(Op::take);
    to.poll(Op::take);
  };
  if (fi_trecv(to.ep(), in.data(), length, nullptr, FI_ADDR_UNSPEC, tag, 0, &receive.context) != 0)
    return false;
  ssize_t rc = -FI_EAGAIN;
  return eventually([&] {
           rc = fi_tsend(from.ep(), out.data(), length, nullptr, address, tag, &send.context);
           both();
           return rc != -FI_EAGAIN;
         }) &&
         rc == 0 && eventually([&] {
           both();
           return send.state != 0 && receive.state != 0;
         }) &&
         send.state == 1 && receive.state == 1 && first_difference(in.data(), length, tag) == length;
}

}  // namespace

int main() {
  setenv("FI_LOG_LEVEL", "info", 1);
  setenv("WEFT_PACKET_FAULTS", "loss=5,twice=2,late=2,seed=7", 1);
  const int log = memfd_create("log", 0);
  {
    dup2(log, STDERR_FILENO);
    Peer a("udp;ofi_rxd", FI_TAGGED, FI_THREAD_DOMAIN, "127.0.0.1");
    Peer b("udp;ofi_rxd", FI_TAGGED, FI_THREAD_DOMAIN, "127.0.0.1");
    if (!a.ok() || !b.ok()) {
      std::printf("no udp;ofi_rxd here\n");
      return 77;
    }
    Name name;
    b.publish(name);
    const fi_addr_t to = a.insert(name);
    for (uint64_t i = 0; i < 300; ++i)
      if (!say_to(a, b, to, i % 2 == 0 ? 300'000 : 8, i)) {
        expect(false, "a message did not arrive");
        break;
      }
    const auto sender = statistics_of(a), receiver = statistics_of(b);
    expect(sender.sent > 200 && receiver.received > 200, "packets sent and received");
    expect(sender.sent_again > 0, "packets sent again");
    expect(sender.lost > 0, "packets found lost");
    expect(sender.sent >= sender.sent_again + sender.copies + sender.acks_sent, "sent has all of them");
    expect(receiver.received < sender.sent * 12 / 10, "no more received than sent and doubled");
    expect(receiver.duplicates > 0, "duplicates dropped");
    expect(receiver.acks_sent > 0 && sender.acks_received > 0, "acknowledgements");
    expect(sender.round_trip_ns != 0 && sender.round_trip_ns_min != 0, "the round trip");
    expect(sender.round_trip_ns_min <= sender.round_trip_ns * 2,
           "the shortest round trip is none of the longest");
    expect(sender.peers == 1 && receiver.peers == 1, "one peer each");
    expect(sender.damaged == 0 && receiver.damaged == 0, "nothing was damaged");
    sizes(a);
    Peer shm("shm", FI_TAGGED);
    const weft_reliable_ops* ops = nullptr;
    if (shm.ok())
      expect(weft_reliable_open(shm.ep(), &ops) == -FI_ENOSYS && ops == nullptr, "shm has no packets");
    std::printf(
        "sent %llu, again %llu, lost %llu, copies %llu; received %llu, duplicates %llu; round trip %llu us\n",
        static_cast<unsigned long long>(sender.sent), static_cast<unsigned long long>(sender.sent_again),
        static_cast<unsigned long long>(sender.lost), static_cast<unsigned long long>(sender.copies),
        static_cast<unsigned long long>(receiver.received),
        static_cast<unsigned long long>(receiver.duplicates),
        static_cast<unsigned long long>(sender.round_trip_ns / 1000));
    std::fflush(stdout);
  }
  std::string text(1 << 20, '\0');
  const ssize_t read = pread(log, text.data(), text.size(), 0);
  text.resize(read > 0 ? static_cast<size_t>(read) : 0);
  const size_t at = text.find("packets: ");
  expect(at != std::string::npos, "a line in the log at close");
  if (at != std::string::npos) std::printf("log: %s\n", text.substr(at, text.find('\n', at) - at).c_str());
  // Two endpoints, each with faults of its own.
  const size_t faults = text.find("faults: of ");
  expect(faults != std::string::npos && text.find("faults: of ", faults + 1) != std::string::npos,
         "a line of faults for each endpoint");
  expect(text.find(" 0 lost, ") == std::string::npos && text.find(" 0 twice, ") == std::string::npos,
         "every endpoint lost and doubled some");
  std::printf("%s\n", failures == 0 ? "statistics_test: ok" : "statistics_test: FAILED");
  return failures == 0 ? 0 : 1;
}
