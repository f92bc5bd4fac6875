// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RMA over shared memory to processes that make no call: with cross-memory attach they are reached; without it operations wait for them. A region that is
// closed while peers write to it, peers that are killed or stopped in the middle of a copy: nothing is written after fi_close has returned 0.
//
//   one_sided_test [--provider shm] [--rounds 100] [--seed N]
#include "peer.hpp"

#include <weft/libfabric_retired.hpp>

namespace weft::system_test {
namespace {

constexpr size_t region_bytes = size_t{8} << 20;
constexpr size_t sizes[] = {1, 8, 64, 256, 257, 4096, 65'536, size_t{1} << 20, (size_t{5} << 20) + 3};

struct Board {
  Name target, initiator;
  std::atomic<uint64_t> addr{0}, key{0};
  std::atomic<uint32_t> round{0};  // of the region that is open; 0: none yet
  std::atomic<bool> asleep{false}, finished{false};
  std::atomic<uint64_t> done{0}, rejected{0};
};

// Memory that lives as long as the process, so that what comes too late shows and harms nothing.
uint8_t* big_memory() {
  void* at = mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<uint8_t*>(at);
}

fid_mr* open_region(Peer& me, uint8_t* memory, Board& board) {
  static uint64_t key = 1000;
  fid_mr* mr = nullptr;
  fid_domain* domain = me.domain();
  if (fi_mr_reg(domain, memory, region_bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key++, 0, &mr, nullptr) !=
      0)
    return nullptr;
  const bool virtual_addresses =
      (me.info()->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | retired::mr_basic)) != 0;
  board.addr = virtual_addresses ? reinterpret_cast<uint64_t>(memory) : 0;
  board.key = fi_mr_key(mr);
  return mr;
}

// ------------------------------------------------------------------------------------------------------- a target that sleeps

int idle_target(Board& board, const std::string& provider, bool wakes) {
  uint8_t* memory = big_memory();
  Peer me(provider, FI_TAGGED | FI_RMA);
  if (!me.ok() || memory == nullptr) return 1;
  fid_mr* mr = open_region(me, memory, board);
  if (mr == nullptr) return 2;
  board.asleep = true;
  me.publish(board.target);
  for (int ms = 0; ms < 500 && !board.finished; ++ms) usleep(1000);
  if (!wakes && !board.finished) return 3;
  board.asleep = false;
  while (!board.finished) me.poll(Op::take);
  const size_t len = sizes[std::size(sizes) - 1];
  const bool right = first_difference(memory, len, std::size(sizes) - 1) == len;
  return fi_close(&mr->fid) == 0 && right ? 0 : 4;
}

bool reaches_idle(const std::string& provider, bool cma) {
  setenv("WEFT_CMA", cma ? "1" : "0", 1);
  auto* board = shared_block<Board>();
  const pid_t target = spawn([&] { return idle_target(*board, provider, !cma); });
  std::vector<uint8_t> out(region_bytes), back(region_bytes);
  Peer me(provider, FI_TAGGED | FI_RMA);
  const fi_addr_t to = me.reach(board->target);
  bool good = to != FI_ADDR_NOTAVAIL;
  bool slept = true;
  const auto start = Clock::now();
  const auto completes = [&](auto&& call) {
    Op op;
    return me.post([&] { return call(op); }, Op::take) == 0 && eventually([&] {
             me.poll(Op::take);
             return op.state != 0;
           }) &&
           op.state == 1;
  };
  for (size_t i = 0; good && i < std::size(sizes); ++i) {
    fill(out.data(), sizes[i], i);
    good =
        completes([&](Op& op) {
          return fi_write(me.ep(), out.data(), sizes[i], nullptr, to, board->addr, board->key, &op.context);
        }) &&
        completes([&](Op& op) {
          return fi_read(me.ep(), back.data(), sizes[i], nullptr, to, board->addr, board->key, &op.context);
        }) &&
        first_difference(back.data(), sizes[i], i) == sizes[i];
    slept = slept && board->asleep;
  }
  const long took = ms_since(start);
  board->finished = true;
  const int status = join(target, milliseconds(30'000));
  good = good && slept == cma && status == 0;
  std::printf("one_sided_test: %s, CMA %s: %s after %ld ms, target %s, it says %d\n", provider.c_str(),
              cma ? "allowed" : "off", good ? "all done" : "FAILED", took, slept ? "asleep" : "awake",
              status);
  unsetenv("WEFT_CMA");
  return good;
}

// ---------------------------------------------------------------------------------- writes that are posted one after the other

// Memory that both processes see, so that the initiator knows what has arrived without a call of anybody.
int shared_target(Board& board, const std::string& provider, uint8_t* memory) {
  Peer me(provider, FI_TAGGED | FI_RMA);
  if (!me.ok()) return 1;
  fid_mr* mr = open_region(me, memory, board);
  if (mr == nullptr) return 2;
  board.asleep = true;
  me.publish(board.target);
  while (!board.finished)
    if (board.asleep) usleep(1000);
    else me.poll(Op::take);
  return fi_close(&mr->fid) == 0 ? 0 : 4;
}

struct Burst {
  static constexpr size_t piece = 65'536;
  static constexpr size_t count = 20;
  Peer& me;
  Board& board;
  fi_addr_t to;
  const uint8_t* there;  // the target's memory
  std::vector<uint8_t> out = std::vector<uint8_t>(count * piece);
  std::vector<uint8_t> back = std::vector<uint8_t>(piece);

  bool write(Op& op, size_t from, size_t bytes, size_t at, uint64_t key) {
    op.state = 0;
    return fi_write(me.ep(), out.data() + from, bytes, nullptr, to, board.addr + at, key, &op.context) == 0;
  }
  bool done(Op& op, int state = 1) {
    return eventually([&] {
             me.poll(Op::take);
             return op.state != 0;
           }) &&
           op.state == state;
  }
  bool here(size_t bytes, uint64_t seed) const { return first_difference(there, bytes, seed) == bytes; }

  // Data, then a flag: both are there when the post of the flag returns, though nobody has polled.
  bool flag_follows_data() {
    Op ops[count + 1];
    fill(out.data(), out.size(), 1);
    for (size_t i = 0; i < count; ++i)
      if (!write(ops[i], i * piece, piece, i * piece, board.key)) return false;
    if (!write(ops[count], 0, 8, count * piece, board.key)) return false;
    if (!here(out.size(), 1) || std::memcmp(there + count * piece, out.data(), 8) != 0) return false;
    return std::all_of(std::begin(ops), std::end(ops), [&](Op& op) { return done(op); });
  }
  // The last one of those to the same place stays, and a read sees it.
  bool order_stays() {
    Op ops[6];
    fill(out.data(), out.size(), 2);
    for (size_t i = 0; i < 5; ++i)
      if (!write(ops[i], i * piece, piece, 0, board.key)) return false;
    if (fi_read(me.ep(), back.data(), piece, nullptr, to, board.addr, board.key, &ops[5].context) != 0)
      return false;
    return std::all_of(std::begin(ops), std::end(ops), [&](Op& op) { return done(op); }) &&
           std::memcmp(back.data(), out.data() + 4 * piece, piece) == 0 &&
           std::memcmp(there, out.data() + 4 * piece, piece) == 0;
  }
  // Whoever only polls gets all of them.
  bool a_poll_ends_it(size_t posts) {
    std::vector<Op> ops(posts);
    fill(out.data(), out.size(), posts);
    for (size_t i = 0; i < posts; ++i)
      if (!write(ops[i], i * piece, piece, i * piece, board.key)) return false;
    return std::all_of(ops.begin(), ops.end(), [&](Op& op) { return done(op); }) &&
           here(posts * piece, posts);
  }
  // One of them is refused: the others are not.
  bool a_wrong_key_harms_nobody_else() {
    Op ops[4];
    fill(out.data(), out.size(), 3);
    for (size_t i = 0; i < 4; ++i)
      if (!write(ops[i], i * piece, piece, i * piece, i == 2 ? board.key + 77 : board.key.load()))
        return false;
    board.asleep = false;  // the target refuses it
    const bool good = done(ops[0]) && done(ops[1]) && done(ops[2], -1) && done(ops[3]) &&
                      here(2 * piece, 3) &&
                      std::memcmp(there + 3 * piece, out.data() + 3 * piece, piece) == 0;
    board.asleep = true;
    return good;
  }
};

bool bursts(const std::string& provider) {
  auto* board = shared_block<Board>();
  void* at = mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return false;
  auto* memory = static_cast<uint8_t*>(at);
  const pid_t target = spawn([&] { return shared_target(*board, provider, memory); });
  Peer me(provider, FI_TAGGED | FI_RMA);
  Burst burst{me, *board, me.reach(board->target), memory};
  const char* wrong = nullptr;
  const auto expect = [&](bool good, const char* what) {
    if (!good && wrong == nullptr) wrong = what;
  };
  Op first;
  expect(burst.to != FI_ADDR_NOTAVAIL && burst.write(first, 0, 4096, 0, board->key) && burst.done(first),
         "reach");
  // The first contact may have gone by a frame.
  for (int i = 0; wrong == nullptr && i < 3; ++i) {
    expect(burst.flag_follows_data(), "a flag behind data");
    expect(burst.order_stays(), "order");
    for (const size_t posts : {1, 2, 3, 9, 10, 17, 20}) expect(burst.a_poll_ends_it(posts), "polling");
    expect(burst.a_wrong_key_harms_nobody_else(), "a wrong key");
  }
  board->asleep = false;
  board->finished = true;
  const int status = join(target, milliseconds(30'000));
  std::printf("one_sided_test: %s: writes one after the other: %s, target says %d\n", provider.c_str(),
              wrong == nullptr ? "all right" : wrong, status);
  munmap(at, region_bytes);
  return wrong == nullptr && status == 0;
}

// ------------------------------------------------------------------------------------------------- closing under somebody's writes

// Writes to the region of the moment as fast as it can. A key that has gone is an error of the operation.
int writer(Board& board, const std::string& provider) {
  std::vector<uint8_t> out(region_bytes, 0xee);
  Peer me(provider, FI_TAGGED | FI_RMA);
  if (!me.ok()) return 1;
  const fi_addr_t to = me.reach(board.target);
  if (to == FI_ADDR_NOTAVAIL) return 2;
  uint64_t turn = 0;
  while (!board.finished) {
    if (board.round == 0) continue;
    const size_t len = mix(++turn) % 4 == 0 ? 8 : region_bytes / (1 + mix(turn + 1) % 8);
    Op op;
    const ssize_t rc = me.post(
        [&] { return fi_write(me.ep(), out.data(), len, nullptr, to, board.addr, board.key, &op.context); },
        Op::take);
    if (rc != 0) return 3;
    while (op.state == 0 && !board.finished) me.poll(Op::take);
    if (op.state == 1) ++board.done;
    if (op.state == -1 && op.err != FI_EKEYREJECTED && op.err != FI_EACCES && op.err != FI_EIO) {
      std::fprintf(stderr, "one_sided_test: a write ended with %s\n", fi_strerror(op.err));
      return 4;
    }
    if (op.state == -1) ++board.rejected;
  }
  return 0;
}

// After a close, for some time, all bytes are as we left them.
bool stays_untouched(Peer& me, uint8_t* memory, milliseconds time) {
  std::memset(memory, 0x5a, region_bytes);
  const auto until = Clock::now() + time;
  do {
    me.poll(Op::take);
    for (size_t at = 0; at < region_bytes; at += 512)
      if (memory[at] != 0x5a) return false;
  } while (Clock::now() < until);
  return true;
}

enum class Fate : uint8_t { Lives, Killed, Stopped };

bool closes_under_writes(const std::string& provider, Fate fate, int rounds, uint64_t seed) {
  auto* board = shared_block<Board>();
  uint8_t* memory = big_memory();
  Peer me(provider, FI_TAGGED | FI_RMA);
  if (!me.ok() || memory == nullptr) return false;
  me.publish(board->target);
  pid_t child = 0;
  bool good = true;
  long slowest = 0;
  int refused = 0;
  for (int round = 1; good && round <= rounds; ++round) {
    if (child == 0) child = spawn([&] { return writer(*board, provider); });
    fid_mr* mr = open_region(me, memory, *board);
    if (mr == nullptr) return false;
    const uint64_t before = board->done;
    board->round = static_cast<uint32_t>(round);
    const auto fails = [&](const char* what) {
      std::fprintf(stderr, "one_sided_test: round %d, seed %llu: %s\n", round,
                   static_cast<unsigned long long>(seed), what);
      good = false;
    };
    // The writer has got through at least once, and is somewhere in the middle now.
    if (!eventually([&] {
          me.poll(Op::take);
          return board->done > before;
        }))
      fails("the writer does not get through");
    const auto until =
        Clock::now() + std::chrono::microseconds(mix(seed + static_cast<uint64_t>(round)) % 3000);
    while (Clock::now() < until) me.poll(Op::take);
    if (fate == Fate::Killed) kill(child, SIGKILL);
    if (fate == Fate::Stopped) kill(child, SIGSTOP);
    const auto start = Clock::now();
    int rc = fi_close(&mr->fid);
    slowest = std::max(slowest, ms_since(start));
    if (rc == -FI_EBUSY) ++refused;
    if (fate == Fate::Stopped) {
      // Asked again, while it is still stopped.
      if (rc == -FI_EBUSY && round % 4 == 0) rc = fi_close(&mr->fid);
      if (rc == 0 && !stays_untouched(me, memory, milliseconds(1)))
        fails("a stopped writer wrote after the close");
      kill(child, SIGCONT);
    }
    // What came by frames before may hold the region for as long as it takes.
    if (!eventually([&] {
          me.poll(Op::take);
          if (rc == -FI_EBUSY) rc = fi_close(&mr->fid);
          return rc != -FI_EBUSY;
        }) ||
        rc != 0)
      fails("the region cannot be closed");
    if (rc == 0 && !stays_untouched(me, memory, milliseconds(2))) fails("somebody wrote after the close");
    if (fate == Fate::Killed) {
      waitpid(child, nullptr, 0);
      child = 0;
    }
  }
  board->finished = true;
  int status = 0;
  if (child != 0) {
    // It may wait for an answer of ours.
    eventually([&] {
      me.poll(Op::take);
      return waitpid(child, &status, WNOHANG) == child;
    });
  }
  good = good && status == 0;
  std::printf(
      "one_sided_test: %s: region closed %d times under a writer that %s: %s, %llu writes, %llu refused, "
      "slowest close %ld ms, %d said -FI_EBUSY first\n",
      provider.c_str(), rounds,
      fate == Fate::Lives    ? "goes on"
      : fate == Fate::Killed ? "is killed"
                             : "is stopped",
      good ? "nothing came later" : "FAILED", static_cast<unsigned long long>(board->done.load()),
      static_cast<unsigned long long>(board->rejected.load()), slowest, refused);
  return good && slowest < 2000;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  const std::string provider = arguments.provider();
  const int rounds = static_cast<int>(arguments.number("rounds", 60));
  const uint64_t seed = arguments.number("seed", static_cast<uint64_t>(getpid()));
  std::printf("one_sided_test: provider %s, seed %llu\n", provider.c_str(),
              static_cast<unsigned long long>(seed));
  bool good = true;
  for (const bool cma : {true, false}) good = reaches_idle(provider, cma) && good;
  good = bursts(provider) && good;
  good = closes_under_writes(provider, Fate::Lives, rounds, seed) && good;
  good = closes_under_writes(provider, Fate::Killed, rounds / 3, seed) && good;
  good = closes_under_writes(provider, Fate::Stopped, rounds / 3, seed) && good;
  return good ? 0 : 1;
}
