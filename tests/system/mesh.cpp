// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Processes in several network namespaces talk all to all, verified: tagged messages of all sizes, writes, atomics, and who sent what.
// Then one process in each place is killed: what was sent to it fails within a bounded time, and the others go on.
//
//   mesh --places A,A,B,- [--provider weft] [--near N] [--limit-ms 20000]
//
// A place is a name below /run/netns, "-" the namespace of the caller. --near: so many peers of each process share memory with it.
#include <fcntl.h>
#include <rdma/fi_atomic.h>

#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t processes_max = 8;
constexpr size_t room = 200'000;  // of each writer in an exposed region
constexpr size_t sizes[] = {0, 8, 48, 1000, 8192, 8193, 100'000, 262'144, 262'145, 3'000'000};
constexpr uint64_t adds = 100;

struct Slot {
  Name name;
  std::atomic<uint64_t> region_addr{0};
  std::atomic<uint64_t> region_key{0};
  std::atomic<uint32_t> stage{0};  // reached by this process
};
struct Board {
  Slot slot[processes_max];
  std::atomic<uint32_t> killed[processes_max] = {};
};

struct Setup {
  std::string provider;
  std::vector<std::string> places;
  size_t near = SIZE_MAX;
  milliseconds limit{20'000};
};

int say(size_t self, const char* format, ...) {
  char text[300];
  va_list list;
  va_start(list, format);
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  std::fprintf(stderr, "mesh %zu: %s\n", self, text);
  return 1;
}

bool enter(const std::string& place) {
  if (place == "-") return true;
  const int fd = open(("/run/netns/" + place).c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
  if (fd >= 0) close(fd);
  return entered;
}

// The memory files of shared memory links that this process has mapped, its own left out: its near peers.
size_t near_peers() {
  std::set<std::string> files;
  FILE* maps = std::fopen("/proc/self/maps", "r");
  char line[512];
  while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
    char inode[64] = {};
    if (std::strstr(line, "memfd:weft-shm") != nullptr &&
        std::sscanf(line, "%*s %*s %*s %*s %63s", inode) == 1)
      files.insert(inode);
  }
  if (maps != nullptr) std::fclose(maps);
  return files.empty() ? 0 : files.size() - 1;
}

struct Process {
  const Setup& setup;
  Board& board;
  size_t self;
  Peer me;
  size_t count;
  std::vector<fi_addr_t> to;
  std::vector<uint8_t> exposed;
  std::atomic<uint64_t> counter{0};

  Process(const Setup& with, Board& shared, size_t number)
      : setup(with),
        board(shared),
        self(number),
        me(with.provider,
           FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SOURCE | FI_DIRECTED_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM),
        count(with.places.size()),
        exposed(count * room) {}

  bool all_reach(uint32_t stage) {
    board.slot[self].stage.store(stage);
    return eventually(
        [&] {
          me.poll(Op::take);
          for (size_t i = 0; i < count; ++i)
            if (board.killed[i] == 0 && board.slot[i].stage.load() < stage) return false;
          return true;
        },
        setup.limit);
  }

  int meet() {
    me.publish(board.slot[self].name);
    // Half of us know the others before they are spoken to.
    to.assign(count, FI_ADDR_NOTAVAIL);
    for (size_t i = 0; i < count; ++i)
      if (i != self && (to[i] = me.reach(board.slot[i].name)) == FI_ADDR_NOTAVAIL)
        return say(self, "no address of %zu", i);
    static_assert(sizeof(counter) == sizeof(uint64_t));
    const Peer::Region region = me.expose(exposed.data(), exposed.size());
    board.slot[self].region_addr = region.addr;
    board.slot[self].region_key = region.key;
    return all_reach(1) ? 0 : say(self, "not all have met");
  }

  // Every size to and from every peer, receives directed at their sources; the others' messages wait meanwhile.
  int talk(uint64_t round) {
    for (const size_t len : sizes) {
      struct Pair {
        Op send, receive;
        std::vector<uint8_t> out, in;
      };
      std::vector<std::unique_ptr<Pair>> pairs(count);
      const uint64_t tag = round << 32 | len;
      for (size_t i = 0; i < count; ++i) {
        if (i == self || board.killed[i] != 0) continue;
        auto& pair = *(pairs[i] = std::make_unique<Pair>());
        pair.out.resize(len + 1);
        pair.in.resize(len + 1);
        fill(pair.out.data(), len, tag ^ mix(self * 100 + i));
        ssize_t rc = me.post(
            [&] { return fi_tsend(me.ep(), pair.out.data(), len, nullptr, to[i], tag, &pair.send.context); },
            Op::take);
        if (rc == 0)
          rc = me.post(
              [&] {
                return fi_trecv(me.ep(), pair.in.data(), len, nullptr, to[i], tag, 0, &pair.receive.context);
              },
              Op::take);
        if (rc != 0) return say(self, "posting %zu bytes to %zu: %zd", len, i, rc);
      }
      const bool done = eventually(
          [&] {
            me.poll(Op::take);
            return std::all_of(pairs.begin(), pairs.end(), [](const auto& pair) {
              return pair == nullptr || (pair->send.state != 0 && pair->receive.state != 0);
            });
          },
          setup.limit);
      for (size_t i = 0; i < count; ++i) {
        if (pairs[i] == nullptr) continue;
        const Pair& pair = *pairs[i];
        if (!done || pair.send.state != 1 || pair.receive.state != 1)
          return say(self, "%zu bytes with %zu: send %d (%d), receive %d (%d)", len, i, pair.send.state,
                     pair.send.err, pair.receive.state, pair.receive.err);
        if (pair.receive.len != len ||
            first_difference(pair.in.data(), len, tag ^ mix(i * 100 + self)) != len)
          return say(self, "%zu bytes from %zu are wrong", len, i);
      }
    }
    return 0;
  }

  // Order: many small messages under one tag to each peer, in bursts.
  int keep_order() {
    constexpr uint64_t many = 300;
    std::vector<uint64_t> in(count * many, ~uint64_t{0});
    std::vector<std::unique_ptr<Op>> receives;
    for (size_t i = 0; i < count; ++i) {
      if (i == self) continue;
      for (uint64_t k = 0; k < many; ++k) {
        receives.push_back(std::make_unique<Op>());
        uint64_t& place = in[i * many + k];
        if (me.post(
                [&] {
                  return fi_trecv(me.ep(), &place, 8, nullptr, to[i], 77, 0, &receives.back()->context);
                },
                Op::take) != 0)
          return say(self, "no room for receives");
      }
    }
    if (!all_reach(2)) return say(self, "not all have posted");
    for (uint64_t k = 0; k < many; ++k)
      for (size_t i = 0; i < count; ++i)
        if (i != self && me.post([&] { return fi_tinject(me.ep(), &k, 8, to[i], 77); }, Op::take) != 0)
          return say(self, "inject to %zu", i);
    const bool done = eventually(
        [&] {
          me.poll(Op::take);
          return std::all_of(receives.begin(), receives.end(), [](const auto& op) { return op->state != 0; });
        },
        setup.limit);
    if (!done) return say(self, "small messages are missing");
    for (size_t i = 0; i < count; ++i)
      for (uint64_t k = 0; k < many && i != self; ++k)
        if (in[i * many + k] != k) return say(self, "order from %zu: %lu at %lu", i, in[i * many + k], k);
    return 0;
  }

  // Writes a part of everybody's region, reads it back, and counts in the first 8 bytes of the part that nobody writes: its owner's.
  int remote() {
    std::vector<uint8_t> out(room), back(room);
    const auto finish = [&](Op& op) {
      return eventually([&] { return me.poll(Op::take), op.state != 0; }, setup.limit) && op.state == 1;
    };
    for (size_t i = 0; i < count; ++i) {
      if (i == self) continue;
      const uint64_t at = board.slot[i].region_addr + self * room;
      const uint64_t key = board.slot[i].region_key;
      const size_t len = room - self * 1000;
      fill(out.data(), len, mix(self + 10 * i));
      Op write, read;
      ssize_t rc =
          me.post([&] { return fi_write(me.ep(), out.data(), len, nullptr, to[i], at, key, &write.context); },
                  Op::take);
      if (rc != 0 || !finish(write)) return say(self, "write to %zu: %zd, %d", i, rc, write.err);
      rc = me.post([&] { return fi_read(me.ep(), back.data(), len, nullptr, to[i], at, key, &read.context); },
                   Op::take);
      if (rc != 0 || !finish(read)) return say(self, "read from %zu: %zd, %d", i, rc, read.err);
      if (first_difference(back.data(), len, mix(self + 10 * i)) != len)
        return say(self, "what was written to %zu reads otherwise", i);
      const uint64_t one = 1;
      for (uint64_t k = 0; k < adds; ++k) {
        Op add;
        rc = me.post(
            [&] {
              return fi_atomic(me.ep(), &one, 1, nullptr, to[i], board.slot[i].region_addr + i * room, key,
                               FI_UINT64, FI_SUM, &add.context);
            },
            Op::take);
        if (rc != 0 || !finish(add)) return say(self, "atomic to %zu: %zd, %d", i, rc, add.err);
      }
    }
    if (!all_reach(3)) return say(self, "not all have written");
    uint64_t sum = 0;
    std::memcpy(&sum, exposed.data() + self * room, 8);
    if (sum != adds * (count - 1)) return say(self, "the counter is %lu", sum);
    for (size_t i = 0; i < count; ++i) {
      const size_t len = room - i * 1000;
      if (i != self && first_difference(exposed.data() + i * room, len, mix(i + 10 * self)) != len)
        return say(self, "what %zu wrote is wrong", i);
    }
    return 0;
  }

  // Sends to those who have been killed: each operation ends, with an error.
  int sends_to_the_dead_end() {
    for (size_t i = 0; i < count; ++i) {
      if (i == self || !eventually([&] { return board.killed[i] != 1; }, setup.limit)) continue;
      if (board.killed[i] == 0) continue;
      std::vector<uint8_t> large(3'000'000);
      Op op;
      const auto start = Clock::now();
      const ssize_t rc = me.post(
          [&] { return fi_tsend(me.ep(), large.data(), large.size(), nullptr, to[i], 99, &op.context); },
          Op::take);
      if (rc == -FI_EHOSTUNREACH) continue;
      if (rc != 0 || !eventually([&] { return me.poll(Op::take), op.state != 0; }, setup.limit))
        return say(self, "a send to %zu, who is dead, does not end (%zd)", i, rc);
      if (op.state != -1) return say(self, "a send to %zu, who is dead, succeeds", i);
      if (ms_since(start) > 5000) return say(self, "%zu is found dead after %ld ms", i, ms_since(start));
    }
    return 0;
  }

  int run() {
    if (!me.ok()) return 1;
    if (meet() != 0 || talk(1) != 0 || keep_order() != 0 || remote() != 0) return 1;
    if (const size_t near = near_peers(); setup.near != SIZE_MAX && near != setup.near)
      return say(self, "%zu peers share memory with it instead of %zu", near, setup.near);
    if (!all_reach(4)) return say(self, "not all have talked");
    // Now the parent kills some of us, and marks them.
    if (!eventually(
            [&] {
              me.poll(Op::take);
              return board.slot[processes_max - 1].stage.load() == 5;
            },
            setup.limit))
      return say(self, "nobody was killed");
    if (sends_to_the_dead_end() != 0 || talk(2) != 0) return 1;
    return all_reach(6) ? 0 : say(self, "not all have ended");
  }
};

int run(const Setup& setup) {
  const size_t count = setup.places.size();
  if (count < 2 || count >= processes_max) return 2;
  Board& board = *shared_block<Board>();
  std::vector<pid_t> children;
  for (size_t i = 0; i < count; ++i)
    children.push_back(spawn([&, i] {
      if (!enter(setup.places[i])) return 77;
      return Process(setup, board, i).run();
    }));
  // The last of each place is killed once all have talked, when there is somebody left in it.
  (void)eventually(
      [&] {
        usleep(1000);
        for (size_t i = 0; i < count; ++i) {
          siginfo_t info{};
          const bool ended =
              waitid(P_PID, static_cast<id_t>(children[i]), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
              info.si_pid != 0;
          if (ended) return true;  // too early: it says why
          if (board.slot[i].stage.load() < 4) return false;
        }
        return true;
      },
      4 * setup.limit);
  for (size_t i = 0; i < count; ++i) {
    const auto same = std::count(setup.places.begin(), setup.places.end(), setup.places[i]);
    const bool last = std::find(setup.places.begin() + static_cast<std::ptrdiff_t>(i) + 1, setup.places.end(),
                                setup.places[i]) == setup.places.end();
    if (same < 2 || !last) continue;
    kill(children[i], SIGKILL);
    board.killed[i] = 2;
  }
  board.slot[processes_max - 1].stage = 5;
  int failed = 0;
  for (size_t i = 0; i < count; ++i) {
    const int status = join(children[i], 4 * setup.limit);
    if (board.killed[i] != 0) continue;
    if (status != 0) std::fprintf(stderr, "mesh: process %zu ended with %d\n", i, status);
    if (status != 0 && failed == 0) failed = status == 77 ? 77 : 1;
  }
  if (failed == 0) std::printf("mesh: %zu processes talked, all is right\n", count);
  return failed;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  const weft::system_test::Arguments arguments(argc, argv);
  weft::system_test::Setup setup;
  setup.provider = arguments.text("provider", "weft");
  setup.near = arguments.number("near", SIZE_MAX);
  setup.limit = weft::system_test::milliseconds(arguments.number("limit-ms", 20'000));
  std::string places = arguments.text("places", "-,-");
  for (size_t at = 0; at <= places.size();) {
    const size_t comma = std::min(places.find(',', at), places.size());
    setup.places.push_back(places.substr(at, comma - at));
    at = comma + 1;
  }
  return weft::system_test::run(setup);
}
