// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Processes in different pid namespaces, two of them with the same pid (1), exchange small and large messages and read each other's
// memory. Needs the right to make namespaces; without it the test says so and ends with status 77.
//
//   pidns_test [--provider shm]
#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t parties = 3;
const size_t sizes[] = {0, 8, 64, 100, 5000, 20'000, 300'000, 4'000'000};
constexpr size_t room = 1 << 20;

struct Board {
  Name name[parties];
  std::atomic<uint64_t> region_addr[parties] = {}, region_key[parties] = {};
  std::atomic<int> pid[parties] = {};
  std::atomic<int> finished{0};
  std::atomic<int> checks{0};
};

bool read_region(Peer& me, fi_addr_t from, uint64_t addr, uint64_t key, uint64_t seed) {
  std::vector<uint8_t> in(room, 0);
  auto op = std::make_unique<Op>();
  const ssize_t rc = me.post(
      [&] { return fi_read(me.ep(), in.data(), room, nullptr, from, addr, key, &op->context); }, Op::take);
  const bool done = rc == 0 && eventually([&] {
                      me.poll(Op::take);
                      return op->state != 0;
                    });
  if (done && op->state == 1 && first_difference(in.data(), room, seed) == room) return true;
  std::fprintf(stderr, "read of a region: post %zd, state %d, error %d\n", rc, op->state, op->err);
  (void)op.release();
  new std::vector<uint8_t>(std::move(in));
  return false;
}

int party(Board& board, const std::string& provider, size_t mine) {
  Peer me(provider, FI_TAGGED | FI_RMA);
  if (!me.ok()) return 1;
  board.pid[mine] = getpid();
  std::vector<uint8_t> memory(room);
  fill(memory.data(), room, 7000 + mine);
  const ClosesFirst closes_first(me);
  const auto region = me.expose(memory.data(), room);
  board.region_addr[mine] = region.addr;
  board.region_key[mine] = region.key;
  me.publish(board.name[mine]);
  fi_addr_t to[parties];
  for (size_t i = 0; i < parties; ++i) {
    to[i] = me.reach(board.name[i]);
    if (to[i] == FI_ADDR_NOTAVAIL) return 1;
  }
  int rc = 0;
  for (const size_t len : sizes) {
    // Pairs in an order that all follow, so that nobody waits in a circle for long.
    for (size_t a = 0; a < parties && rc == 0; ++a) {
      for (size_t b = a + 1; b < parties && rc == 0; ++b) {
        if (mine != a && mine != b) continue;
        const size_t other = mine == a ? b : a;
        const uint64_t tag = static_cast<uint64_t>(a) << 40 | static_cast<uint64_t>(b) << 32 | len;
        if (!exchange(me, to[other], tag, len, tag + mine, tag + other)) {
          std::fprintf(stderr, "party %zu (pid %d) with %zu (pid %d)\n", mine, board.pid[mine].load(), other,
                       board.pid[other].load());
          rc = 1;
        }
        ++board.checks;
      }
    }
  }
  for (size_t i = 0; i < parties && rc == 0; ++i) {
    if (i != mine && !read_region(me, to[i], board.region_addr[i], board.region_key[i], 7000 + i)) rc = 1;
    ++board.checks;
  }
  // Everybody helps until all are done.
  ++board.finished;
  eventually([&] {
    me.poll(Op::take);
    return board.finished == parties;
  });
  return rc;
}

constexpr int not_permitted = 77;

int run(const std::string& provider) {
  auto* board = shared_block<Board>();
  // Asked apart, so that the parties do not wait for one that cannot be.
  const pid_t probe = spawn([] { return unshare(CLONE_NEWPID) == 0 ? 0 : not_permitted; });
  if (join(probe, milliseconds(5000)) != 0) {
    std::printf("pidns_test: not permitted to make a pid namespace, skipped\n");
    return not_permitted;
  }
  pid_t pids[parties];
  for (size_t i = 0; i < parties; ++i) {
    if (i == 0) {
      pids[i] = spawn([&, i] { return party(*board, provider, i); });
      continue;
    }
    // The children of a process that called unshare(2) live in the new namespace, the first as pid 1.
    pids[i] = spawn([&, i] {
      if (unshare(CLONE_NEWPID) != 0) return not_permitted;
      const pid_t inner = spawn([&] { return party(*board, provider, i); });
      return join(inner, milliseconds(60'000));
    });
  }
  int rc = 0;
  for (const pid_t pid : pids) {
    const int status = pid > 0 ? join(pid, milliseconds(60'000)) : 1;
    if (status != 0) rc = 1;
  }
  std::printf("pidns_test: pids %d %d %d, %d checks, %s\n", board->pid[0].load(), board->pid[1].load(),
              board->pid[2].load(), board->checks.load(), rc == 0 ? "passed" : "FAILED");
  return rc;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  alarm(150);
  const Leftovers leftovers;
  const int rc = run(arguments.provider());
  return leftovers.none() ? rc : 1;
}
