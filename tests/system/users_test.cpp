// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Endpoints of two users of one machine, one of them root. Over shm, operations towards the other end in seconds with FI_EACCES and a sentence,
// in both directions; over weft they are joined by TCP. Needs the right to become another user; without it the test ends with status 77.
//
//   users_test
#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr uid_t users[] = {0, 65534};
constexpr size_t parties = 2;
constexpr int not_permitted = 77;

struct Board {
  Name name[parties];
  std::atomic<int> finished{0};
};

bool become(uid_t user) {
  return user == 0 || (setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
}

// One operation ends with FI_EACCES, when it is posted or by a completion.
template <class Call>
bool ends_refused(Peer& me, const char* what, Call&& call) {
  auto* op = new Op;  // stays when it does not end
  std::string text;
  const auto take = [&](const Done& done) {
    Op::take(done);
    if (done.context == op) text = done.text;
  };
  const auto start = Clock::now();
  const ssize_t rc = me.post([&] { return call(&op->context); }, take, milliseconds(8000));
  if (rc == -FI_EACCES) return true;
  const bool ended = rc == 0 && eventually(
                                    [&] {
                                      me.poll(take);
                                      return op->state != 0;
                                    },
                                    milliseconds(8000));
  if (ended && op->state == -1 && op->err == FI_EACCES && text.find("another user") != std::string::npos)
    return true;
  std::fprintf(stderr, "%s: post %zd, state %d, error %d \"%s\" after %ld ms\n", what, rc, op->state, op->err,
               text.c_str(), ms_since(start));
  return false;
}

int over_shm(Peer& me, fi_addr_t to) {
  static uint8_t bytes[1 << 20];
  bool good = ends_refused(
      me, "8 bytes", [&](void* context) { return fi_tsend(me.ep(), bytes, 8, nullptr, to, 1, context); });
  good &= ends_refused(me, "1 MiB", [&](void* context) {
    return fi_tsend(me.ep(), bytes, sizeof bytes, nullptr, to, 1, context);
  });
  good &= ends_refused(
      me, "a read", [&](void* context) { return fi_read(me.ep(), bytes, 4096, nullptr, to, 0, 1, context); });
  return good ? 0 : 1;
}

int party(Board& board, const char* provider, size_t mine) {
  if (!become(users[mine])) return not_permitted;
  Peer me(provider, FI_TAGGED | FI_RMA);
  if (!me.ok()) return 1;
  me.publish(board.name[mine]);
  const fi_addr_t to = me.reach(board.name[1 - mine]);
  if (to == FI_ADDR_NOTAVAIL) return 1;
  int rc = 0;
  if (std::strcmp(provider, "shm") == 0) rc = over_shm(me, to);
  else
    for (const size_t len : {size_t{8}, size_t{20'000}, size_t{2'000'000}})
      if (!exchange(me, to, len, len, 100 + mine, 101 - mine)) rc = 1;
  ++board.finished;
  eventually([&] {
    me.poll(Op::take);
    return board.finished == parties;
  });
  return rc;
}

int run() {
  if (geteuid() != 0) {
    std::printf("users_test: only root can become another user, skipped\n");
    return not_permitted;
  }
  int rc = 0;
  for (const char* provider : {"shm", "weft"}) {
    auto* board = shared_block<Board>();
    pid_t pids[parties];
    for (size_t i = 0; i < parties; ++i) pids[i] = spawn([&, i] { return party(*board, provider, i); });
    int worst = 0;
    for (const pid_t pid : pids) worst = std::max(worst, std::abs(join(pid, milliseconds(40'000))));
    std::printf("users_test: %s between users %u and %u: %s\n", provider, users[0], users[1],
                worst == 0               ? "passed"
                : worst == not_permitted ? "not permitted"
                                         : "FAILED");
    if (worst == not_permitted) return not_permitted;
    if (worst != 0) rc = 1;
  }
  return rc;
}

}  // namespace
}  // namespace weft::system_test

int main() {
  alarm(120);
  return weft::system_test::run();
}
