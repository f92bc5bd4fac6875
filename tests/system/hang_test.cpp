// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One of two talking processes is stopped (SIGSTOP) for a while, again and again, and continued: nothing is lost, nothing fails, since
// a peer that does not run is not a dead one. Both directions, small and large messages.
//
//   hang_test [--provider shm] [--stops 3] [--stop-ms 1000]
#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t window = 8;
constexpr size_t sizes_count = 7;
const size_t sizes[sizes_count] = {8, 64, 500, 8, 10'000, 200'000, 16};
constexpr size_t room = 200'000;

struct Board {
  Name name[2];
  std::atomic<uint64_t> received[2] = {};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> last[2] = {~0ULL, ~0ULL};  // number of messages that each side sent in all
  std::atomic<int> finished{0};
};

uint64_t seed_of(size_t from, uint64_t seq) { return mix(seq * 2 + from); }

struct Stream {
  Op op;
  uint64_t seq = 0;
  bool used = false;
  std::vector<uint8_t> data = std::vector<uint8_t>(room);
};

int side(Board& board, const std::string& provider, size_t mine) {
  Peer me(provider, FI_TAGGED);
  if (!me.ok()) return 1;
  me.publish(board.name[mine]);
  const fi_addr_t to = me.reach(board.name[1 - mine]);
  if (to == FI_ADDR_NOTAVAIL) return 1;
  std::vector<std::unique_ptr<Stream>> sends, receives;
  for (size_t i = 0; i < window; ++i) {
    sends.push_back(std::make_unique<Stream>());
    receives.push_back(std::make_unique<Stream>());
  }
  uint64_t next_send = 0, next_receive = 0, got = 0;
  const auto fail = [&](const char* what, int err) {
    std::fprintf(stderr, "hang_test: side %zu: %s (%s)\n", mine, what, fi_strerror(err));
    return 1;
  };
  auto moved = Clock::now();
  while (true) {
    if (me.poll(Op::take) > 0) moved = Clock::now();
    for (auto& s : sends) {
      if (s->used && s->op.state != 0) {
        if (s->op.state < 0) return fail("a send failed", s->op.err);
        s->used = false;
      }
      if (s->used || (board.stop && board.last[mine] != ~0ULL)) continue;
      const size_t len = sizes[next_send % sizes_count];
      fill(s->data.data(), len, seed_of(mine, next_send));
      s->op.state = 0;
      const ssize_t rc = fi_tsend(me.ep(), s->data.data(), len, nullptr, to, next_send, &s->op.context);
      if (rc == -FI_EAGAIN) break;
      if (rc != 0) return fail("a send was refused", static_cast<int>(-rc));
      s->used = true;
      s->seq = next_send++;
    }
    if (board.stop && board.last[mine] == ~0ULL) board.last[mine] = next_send;
    for (auto& r : receives) {
      if (r->used && r->op.state != 0) {
        if (r->op.state < 0) return fail("a receive failed", r->op.err);
        const size_t len = sizes[r->seq % sizes_count];
        if (r->op.len != len || first_difference(r->data.data(), len, seed_of(1 - mine, r->seq)) != len)
          return fail("wrong data", 0);
        r->used = false;
        board.received[mine] = ++got;
      }
      if (r->used || next_receive >= board.last[1 - mine]) continue;
      r->op.state = 0;
      const ssize_t rc =
          fi_trecv(me.ep(), r->data.data(), room, nullptr, FI_ADDR_UNSPEC, next_receive, 0, &r->op.context);
      if (rc == -FI_EAGAIN) break;
      if (rc != 0) return fail("a receive was refused", static_cast<int>(-rc));
      r->used = true;
      r->seq = next_receive++;
    }
    const bool sending = std::any_of(sends.begin(), sends.end(), [](const auto& s) { return s->used; });
    if (board.last[1 - mine] != ~0ULL && got == board.last[1 - mine] && !sending) break;
    if (ms_since(moved) > 20'000) return fail("nothing moves any more", 0);
  }
  ++board.finished;
  eventually([&] {
    me.poll(Op::take);
    return board.finished == 2;
  });
  return 0;
}

int run(const Arguments& arguments) {
  const std::string provider = arguments.provider();
  auto* board = shared_block<Board>();
  pid_t pids[2];
  for (size_t i = 0; i < 2; ++i) pids[i] = spawn([&, i] { return side(*board, provider, i); });
  const auto stop_ms = static_cast<useconds_t>(arguments.number("stop-ms", 1000));
  int rc = eventually([&] { return board->received[0] > 100 && board->received[1] > 100; }) ? 0 : 1;
  for (uint64_t i = 0; i < arguments.number("stops", 3) && rc == 0; ++i) {
    const pid_t victim = pids[i % 2];
    const uint64_t before = board->received[i % 2];
    kill(victim, SIGSTOP);
    usleep(stop_ms * 1000);
    kill(victim, SIGCONT);
    if (!eventually([&] { return board->received[0] > before + 100 && board->received[1] > before + 100; }))
      rc = 1;
    for (const pid_t pid : pids) {
      int status = 0;
      if (waitpid(pid, &status, WNOHANG) == pid) rc = 1;
    }
  }
  board->stop = true;
  for (const pid_t pid : pids) {
    if (rc != 0) kill(pid, SIGKILL);
    if (join(pid, milliseconds(30'000)) != 0) rc = 1;
  }
  std::printf("hang_test: %llu and %llu messages verified, %s\n",
              static_cast<unsigned long long>(board->received[0]),
              static_cast<unsigned long long>(board->received[1]), rc == 0 ? "passed" : "FAILED");
  return rc;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  alarm(150);
  const Leftovers leftovers;
  const int rc = run(arguments);
  return leftovers.none() ? rc : 1;
}
