// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two processes that talk, verified, for a given time. For scripts that kill it and look at what it leaves.
//
//   talker [--provider shm] [--ms 1000]
#include "peer.hpp"

namespace weft::system_test {
namespace {

struct Board {
  Name name[2];
  std::atomic<bool> stop{false};
  std::atomic<int> rounds[2] = {};
  std::atomic<int> last{-1};  // the round after which both end
};

int side(Board& board, const std::string& provider, int mine) {
  Peer me(provider, FI_TAGGED | FI_RMA);
  if (!me.ok()) return 1;
  std::vector<uint8_t> memory(100'000);
  const ClosesFirst closes_first(me);
  me.expose(memory.data(), memory.size());
  me.publish(board.name[mine]);
  const fi_addr_t to = me.reach(board.name[1 - mine]);
  if (to == FI_ADDR_NOTAVAIL) return 1;
  const size_t sizes[] = {8, 100, 9000, 300'000};
  for (int round = 0;; ++round) {
    if (mine == 0 && board.stop && board.last < 0) board.last = round + 1;
    if (board.last >= 0 && round > board.last) break;
    const auto r = static_cast<uint64_t>(round);
    if (!exchange(me, to, r, sizes[round % 4], r * 2 + static_cast<uint64_t>(mine),
                  r * 2 + 1 - static_cast<uint64_t>(mine)))
      return 1;
    board.rounds[mine] = round;
  }
  return 0;
}

int run(const Arguments& arguments) {
  auto* board = shared_block<Board>();
  pid_t pids[2];
  for (int i = 0; i < 2; ++i) pids[i] = spawn([&, i] { return side(*board, arguments.provider(), i); });
  const auto start = Clock::now();
  const auto ms = static_cast<long>(arguments.number("ms", 1000));
  while (ms_since(start) < ms) usleep(1000);
  board->stop = true;
  int rc = 0;
  for (const pid_t pid : pids) {
    if (join(pid, milliseconds(30'000)) != 0) rc = 1;
  }
  std::printf("talker: %d exchanges verified, %s\n", board->rounds[0].load(), rc == 0 ? "passed" : "FAILED");
  return rc;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  alarm(120);
  return run(Arguments(argc, argv));
}
