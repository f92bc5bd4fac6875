// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is read and written in place when the other process dies in the middle: what was taken stays readable, room that was reserved stays
// writable, nothing is left behind, and the next peer finds clean rings.
//
//   in_place_test [--provider shm]
#include <weft/extensions.h>

#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t len = 3000;
constexpr uint64_t tag = 5;

struct Board {
  Name parent;
  Name children[2];
  std::atomic<int> go{0};  // the parent polls no more but to take
  std::atomic<int> ready{0};
};

template <class T>
T sized() {
  T made{};
  made.size = sizeof(T);
  return made;
}

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      return false;                                                                \
    }                                                                              \
  } while (0)

// A child that sends two messages, one more that it has only reserved, and waits to be killed.
int child(Board& board, int number, const std::string& provider) {
  Peer me(provider, FI_TAGGED);
  if (!me.ok()) return 1;
  me.publish(board.children[number]);
  const fi_addr_t parent = me.reach(board.parent);
  const weft_shm_ops* ops = nullptr;
  if (parent == FI_ADDR_NOTAVAIL || weft_shm_open(me.ep(), &ops) != 0) return 1;
  if (!eventually([&] { return board.go == number + 1; })) return 1;
  weft_shm_room room = sized<weft_shm_room>();
  weft_shm_send how = sized<weft_shm_send>();
  how.flags = FI_TAGGED;
  how.length = len;
  how.tag = tag;
  for (uint64_t i = 0; i < 3; ++i) {
    const auto ask = [&] { return weft_shm_reserve(ops, me.ep(), parent, len, &room); };
    if (me.post(ask, Op::take) != 0) return 1;
    fill(room.data, i == 2 ? len / 2 : len, i);
    if (i < 2 && weft_shm_commit(ops, me.ep(), room.handle, &how) != 0) return 1;
  }
  board.ready = number + 1;
  while (true) me.poll(Op::take);
}

bool take_one(Peer& me, const weft_shm_ops* ops, weft_shm_message& m) {
  weft_shm_wanted wanted = sized<weft_shm_wanted>();
  wanted.flags = FI_TAGGED;
  wanted.source = FI_ADDR_UNSPEC;
  wanted.tag = tag;
  m = sized<weft_shm_message>();
  // It drives the endpoint by itself; a poll in between would put the message aside.
  return eventually([&] { return weft_shm_take(ops, me.ep(), &wanted, &m) == 0; });
}

bool play(Board& board, const std::string& provider) {
  Peer me(provider, FI_TAGGED);
  CHECK(me.ok());
  me.publish(board.parent);
  const weft_shm_ops* ops = nullptr;
  CHECK(weft_shm_open(me.ep(), &ops) == 0);
  for (int number = 0; number < 2; ++number) {
    const pid_t pid = spawn([&] { return child(board, number, provider); });
    const fi_addr_t peer = me.reach(board.children[number]);
    CHECK(peer != FI_ADDR_NOTAVAIL);
    board.go = number + 1;
    weft_shm_message messages[2];
    CHECK(take_one(me, ops, messages[0]) && take_one(me, ops, messages[1]));
    weft_shm_room room = sized<weft_shm_room>();
    CHECK(me.post([&] { return weft_shm_reserve(ops, me.ep(), peer, len, &room); }, Op::take) == 0);
    CHECK(eventually([&] {
      me.poll(Op::take);
      return board.ready == number + 1;
    }));
    kill(pid, SIGKILL);
    CHECK(join(pid, milliseconds(5000)) == 256 + SIGKILL);
    // It is gone when room for it cannot be had any more; that which there is stays.
    std::memset(room.data, 1, len / 2);
    Op announced;
    std::vector<uint8_t> large(1'000'000);
    CHECK(me.post(
              [&] {
                return fi_tsend(me.ep(), large.data(), large.size(), nullptr, peer, tag, &announced.context);
              },
              Op::take) == 0);
    CHECK(eventually([&] {
      me.poll(Op::take);
      return announced.state != 0;
    }));
    CHECK(announced.state == -1 && announced.err == FI_EIO);
    std::memset(room.data, 2, len);
    weft_shm_send how = sized<weft_shm_send>();
    how.flags = FI_TAGGED;
    how.length = len;
    CHECK(weft_shm_commit(ops, me.ep(), room.handle, &how) == -FI_EIO);
    CHECK(weft_shm_commit(ops, me.ep(), room.handle, &how) == -FI_EINVAL);
    for (uint64_t i = 0; i < 2; ++i) {
      CHECK(messages[i].length == len && messages[i].place == WEFT_SHM_IN_RING);
      CHECK(first_difference(messages[i].data, len, i) == len);
      CHECK(weft_shm_release(ops, me.ep(), messages[i].handle) == 0);
    }
    // What it had only begun to write never comes.
    weft_shm_wanted wanted = sized<weft_shm_wanted>();
    wanted.flags = FI_TAGGED;
    wanted.source = FI_ADDR_UNSPEC;
    wanted.tag = tag;
    weft_shm_message none = sized<weft_shm_message>();
    for (int i = 0; i < 1000; ++i) CHECK(weft_shm_take(ops, me.ep(), &wanted, &none) == -FI_EAGAIN);
  }
  return true;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  const Leftovers leftovers;
  auto* board = shared_block<Board>();
  const bool good = play(*board, arguments.provider()) && leftovers.none();
  std::printf("in_place_test: %s\n", good ? "ok" : "FAILED");
  return good ? 0 : 1;
}
