// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Many endpoints are closed one after the other, by the thread that drives all of them, so that none can answer another meanwhile: that takes no time
// for each. And what they had sent just before arrives at a peer that looks late.
//
//   closing_test [--provider tcp] [--endpoints 500]
#include <sys/resource.h>

#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr long close_ms_max = 2000;  // of a busy machine
constexpr size_t senders = 100;
constexpr uint64_t messages_each = 20;

struct Board {
  Name receiver;
};

bool all_closed_in_time(const std::string& provider, size_t count, bool talks) {
  std::vector<std::unique_ptr<Peer>> all;
  for (size_t i = 0; i < count; ++i) {
    all.push_back(std::make_unique<Peer>(provider, FI_TAGGED));
    if (!all.back()->ok()) return false;
  }
  std::vector<Op> sends(count), receives(count);
  std::vector<uint8_t> in(count), out(count);
  const auto poll_all = [&] {
    for (auto& peer : all) peer->poll(Op::take);
  };
  for (size_t i = 0; talks && i < count; ++i) {
    Name name;
    all[(i + 1) % count]->publish(name);
    const fi_addr_t to = all[i]->insert(name);
    if (fi_trecv(all[i]->ep(), &in[i], 1, nullptr, FI_ADDR_UNSPEC, 1, 0, &receives[i].context) != 0)
      return false;
    const bool sent = eventually([&] {
      const bool taken = fi_tsend(all[i]->ep(), &out[i], 1, nullptr, to, 1, &sends[i].context) == 0;
      if (!taken) poll_all();
      return taken;
    });
    if (!sent) return false;
  }
  const bool done = !talks || eventually([&] {
    poll_all();
    const auto ended = [](const Op& op) { return op.state == 1; };
    return std::all_of(sends.begin(), sends.end(), ended) &&
           std::all_of(receives.begin(), receives.end(), ended);
  });
  const auto start = Clock::now();
  all.clear();
  const long took = ms_since(start);
  std::printf("closing_test: %s, %zu endpoints that %s: %ld ms\n", provider.c_str(), count,
              talks ? "talked" : "did not talk", took);
  return done && took <= close_ms_max;
}

// A process injects from many endpoints, closes them all and ends.
int send_and_go(Board& board, const std::string& provider) {
  std::vector<std::unique_ptr<Peer>> all;
  std::vector<fi_addr_t> to;
  for (size_t i = 0; i < senders; ++i) {
    all.push_back(std::make_unique<Peer>(provider, FI_TAGGED));
    if (!all.back()->ok()) return 1;
    to.push_back(all.back()->reach(board.receiver));
  }
  for (uint64_t number = 0; number < messages_each; ++number)
    for (size_t i = 0; i < senders; ++i) {
      const uint64_t word = i << 32 | number;
      const ssize_t rc = all[i]->post([&] { return fi_tinject(all[i]->ep(), &word, 8, to[i], 1); }, Op::take);
      if (rc != 0) return 1;
    }
  all.clear();
  return 0;
}

bool everything_arrives(const std::string& provider) {
  auto* board = shared_block<Board>();
  Peer me(provider, FI_TAGGED);
  if (!me.ok()) return false;
  me.publish(board->receiver);
  const pid_t child = spawn([&] { return send_and_go(*board, provider); });
  std::vector<Op> receives(senders * messages_each);
  std::vector<uint64_t> words(receives.size());
  std::vector<uint64_t> next(senders);
  for (size_t i = 0; i < receives.size(); ++i)
    if (me.post(
            [&] {
              return fi_trecv(me.ep(), &words[i], 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &receives[i].context);
            },
            Op::take) != 0)
      return false;
  // Met, and then away while they send and leave.
  const auto met = Clock::now();
  while (ms_since(met) < 100) me.poll(Op::take);
  usleep(200'000);
  const bool all = eventually([&] {
    me.poll(Op::take);
    return std::all_of(receives.begin(), receives.end(), [](const Op& op) { return op.state == 1; });
  });
  for (const uint64_t word : words)
    if (word >> 32 < senders && (word & 0xffffffff) == next[word >> 32]) ++next[word >> 32];
  const bool in_order =
      std::all_of(next.begin(), next.end(), [](uint64_t count) { return count == messages_each; });
  const int left = join(child, milliseconds(10'000));
  std::printf("closing_test: %s, sent and left: %s, %s, exit %d\n", provider.c_str(),
              all ? "all came" : "LOST", in_order ? "in order" : "WRONG", left);
  return all && in_order && left == 0;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  alarm(240);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const std::string only = arguments.text("provider", "");
  const size_t count = arguments.number("endpoints", limit.rlim_cur > 8192 ? 500 : 100);
  bool good = true;
  for (const char* provider : {"udp;ofi_rxd", "tcp", "tcp;ofi_rxm", "shm", "weft"}) {
    if (!only.empty() && only != provider) continue;
    for (const bool talks : {false, true}) good = all_closed_in_time(provider, count, talks) && good;
    good = everything_arrives(provider) && good;
  }
  return good ? 0 : 1;
}
