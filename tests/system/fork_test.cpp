// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A process with open endpoints forks. What the child does (ends at once, ends with its exit handlers run, executes another program,
// opens endpoints of its own) must not disturb the parent's, and the child's own must work with everybody.
//
//   fork_test [--provider shm]
#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr int rounds = 8;
const size_t sizes[rounds] = {8, 0, 64, 1000, 20'000, 8, 300'000, 2'000'000};

struct Board {
  Name parent, partner, grandchild;
  std::atomic<int> phase{0};  // what the partner should do next
};

// Tags and seeds of one exchange between two parties, a and b by name.
uint64_t key(int phase, int round, char a, char b) {
  return static_cast<uint64_t>(phase) << 40 | static_cast<uint64_t>(round) << 16 |
         static_cast<uint64_t>(std::min(a, b)) << 8 | static_cast<uint64_t>(std::max(a, b));
}

bool talk(Peer& me, fi_addr_t to, int phase, char mine, char theirs) {
  for (int round = 0; round < rounds; ++round) {
    const uint64_t tag = key(phase, round, mine, theirs);
    if (!exchange(me, to, tag, sizes[round], tag ^ static_cast<uint64_t>(mine) << 56,
                  tag ^ static_cast<uint64_t>(theirs) << 56)) {
      std::fprintf(stderr, "phase %d, %c with %c\n", phase, mine, theirs);
      return false;
    }
  }
  return true;
}

// The other process: it talks once in each phase, and with the grandchild in the last.
int partner(Board& board, const std::string& provider) {
  Peer me(provider, FI_TAGGED);
  if (!me.ok()) return 1;
  me.publish(board.partner);
  const fi_addr_t parent = me.reach(board.parent);
  if (parent == FI_ADDR_NOTAVAIL) return 1;
  for (int phase = 1; phase <= 5; ++phase) {
    if (!eventually([&] {
          me.poll(Op::take);
          return board.phase >= phase;
        })) {
      return 1;
    }
    if (!talk(me, parent, phase, 'q', 'p')) return 1;
    if (phase != 4) continue;
    const fi_addr_t grandchild = me.reach(board.grandchild);
    if (grandchild == FI_ADDR_NOTAVAIL || !talk(me, grandchild, phase, 'q', 'c')) return 1;
  }
  return 0;
}

// The forked child opens its own; what it inherited it leaves alone.
int child_with_endpoints(Board& board, const std::string& provider) {
  auto me = std::make_unique<Peer>(provider, FI_TAGGED);
  if (!me->ok()) return 1;
  me->publish(board.grandchild);
  const fi_addr_t parent = me->reach(board.parent), other = me->reach(board.partner);
  if (parent == FI_ADDR_NOTAVAIL || other == FI_ADDR_NOTAVAIL) return 1;
  const bool good = talk(*me, parent, 100, 'c', 'p') && talk(*me, other, 4, 'c', 'q');
  me.reset();
  return good ? 0 : 1;
}

int run(const std::string& provider) {
  auto* board = shared_block<Board>();
  const pid_t other = spawn([&] { return partner(*board, provider); });
  int checks = 0;
  const auto fail = [&](const char* what) {
    std::fprintf(stderr, "fork_test: %s\n", what);
    kill(other, SIGKILL);
    join(other, milliseconds(1000));
    return 1;
  };
  auto me = std::make_unique<Peer>(provider, FI_TAGGED);
  if (!me->ok()) return fail("no endpoint");
  me->publish(board->parent);
  const fi_addr_t to = me->reach(board->partner);
  if (to == FI_ADDR_NOTAVAIL) return fail("no partner");
  const auto phase = [&](int number) {
    board->phase = number;
    checks += rounds;
    return talk(*me, to, number, 'p', 'q');
  };
  if (!phase(1)) return fail("before any fork");

  // A child that ends without a word, and one that runs its exit handlers.
  const pid_t silent = spawn([] { return 0; });
  if (join(silent, milliseconds(5000)) != 0) return fail("the silent child");
  std::fflush(nullptr);
  const pid_t handlers = fork();
  if (handlers == 0) std::exit(0);
  if (join(handlers, milliseconds(5000)) != 0) return fail("the child with exit handlers");
  if (!phase(2)) return fail("after children ended");

  // A child that executes a program, while the parent talks.
  const pid_t program = spawn([] {
    execl("/proc/self/exe", "fork_test", "--no-op", static_cast<char*>(nullptr));
    return 1;
  });
  const bool beside = phase(3);
  if (join(program, milliseconds(5000)) != 0) return fail("the child that executes a program");
  if (!beside) return fail("beside an executed program");

  // A child with endpoints of its own.
  const pid_t active = spawn([&] { return child_with_endpoints(*board, provider); });
  const fi_addr_t grandchild = me->reach(board->grandchild);
  if (grandchild == FI_ADDR_NOTAVAIL) return fail("the child opened nothing");
  const bool with_child = talk(*me, grandchild, 100, 'p', 'c');
  checks += rounds;
  const bool with_other = with_child && phase(4);
  const auto start = Clock::now();
  int status = -2;
  while (ms_since(start) < 20'000) {
    int raw = 0;
    me->poll(Op::take);
    if (waitpid(active, &raw, WNOHANG) == active) {
      status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 256;
      break;
    }
  }
  if (status != 0) kill(active, SIGKILL);
  if (!with_child || !with_other || status != 0) return fail("a child with its own endpoints");

  if (!phase(5)) return fail("after the child closed its endpoints");
  // The partner may still need our help to finish its last sends.
  const auto last = Clock::now();
  int raw = 0;
  pid_t ended = 0;
  while ((ended = waitpid(other, &raw, WNOHANG)) == 0 && ms_since(last) < 10'000) me->poll(Op::take);
  if (ended != other || !WIFEXITED(raw) || WEXITSTATUS(raw) != 0) return fail("the partner");
  std::printf("fork_test: %d exchanges verified, passed\n", checks);
  return 0;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  if (arguments.number("no-op", 0) != 0) return 0;
  alarm(120);
  const Leftovers leftovers;
  const int rc = run(arguments.provider());
  return leftovers.none() ? rc : 1;
}
