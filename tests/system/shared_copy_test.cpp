// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Large messages over shared memory by every way of copying: data and the bytes around it, cross-memory attach that is forbidden in the middle, and senders
// that are killed, stopped or that close while both sides copy: within a bound every receive ends, and nothing is written into a buffer that the
// program has back.
//
//   shared_copy_test [--provider shm] [--rounds 12] [--seed N]
#include "peer.hpp"

#include <weft/extensions.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/syscall.h>

#include <span>
#include <thread>

namespace weft::system_test {
namespace {

constexpr size_t guard = 4096;
constexpr size_t guard_behind = size_t{64} << 10;
constexpr size_t big = size_t{8} << 20;
constexpr uint8_t untouched = 0x5a;

struct Board {
  Name receiver, sender;
  std::atomic<uint64_t> got{0};
  std::atomic<bool> forbid{false}, finished{false};
};

// Until the receiver has all of it.
bool stays(Peer& me, Board& board) {
  return eventually([&] {
    me.poll(Op::take);
    return board.finished.load();
  });
}

// From now on the kernel answers EPERM to that call in this process.
bool forbid(long call) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// A buffer with guard bytes around it, at an odd address.
struct Guarded {
  explicit Guarded(size_t size) : all(size + guard + guard_behind, untouched), bytes(size) {}
  uint8_t* data() { return all.data() + guard - 1; }
  // For another message, of so many bytes at most as the first.
  void renew(size_t size) {
    bytes = size;
    std::memset(all.data(), untouched, guard - 1 + bytes + guard_behind);
  }
  bool intact() const {
    return is_untouched({all.data(), guard - 1}) &&
           is_untouched(std::span(all).subspan(guard - 1 + bytes, guard_behind));
  }
  // The first one is, and each is as the one before it.
  static bool is_untouched(std::span<const uint8_t> some) {
    return some[0] == untouched && std::memcmp(some.data(), some.data() + 1, some.size() - 1) == 0;
  }
  std::vector<uint8_t> all;
  size_t bytes;
};

size_t size_of(uint64_t turn) {
  constexpr size_t sizes[] = {8193,    16'384,  20'000,  40'001,  65'536,          65'537,
                              131'072, 262'144, 262'145, 500'003, size_t{1} << 20, big / 2 + 3};
  return sizes[mix(turn) % std::size(sizes)];
}

// -------------------------------------------------------------------------------------- data, and cross-memory attach that goes

struct Setup {
  const char* copy;
  bool cma;
  long forbidden_there, forbidden_here;  // half-way, at the sender and at the receiver; 0: nothing
};

int sends(Board& board, const std::string& provider, const Setup& way, uint64_t count, uint64_t window) {
  std::vector<std::vector<uint8_t>> out(window, std::vector<uint8_t>(big));
  std::vector<Op> ops(window);
  Peer me(provider, FI_TAGGED, FI_THREAD_DOMAIN, nullptr, nullptr, 0);
  if (!me.ok()) return 1;
  const fi_addr_t to = me.reach(board.receiver);
  for (uint64_t i = 0; i < count; ++i) {
    Op& op = ops[i % window];
    if (i >= window && !eventually([&] {
          me.poll(Op::take);
          return op.state == 1;
        }))
      return 2;
    if (i == count / 2 && way.forbidden_there != 0 && !forbid(way.forbidden_there)) return 3;
    fill(out[i % window].data(), size_of(i), i);
    op.state = 0;
    if (me.post(
            [&] {
              return fi_tsend(me.ep(), out[i % window].data(), size_of(i), nullptr, to, i, &op.context);
            },
            Op::take) != 0)
      return 4;
  }
  return stays(me, board) ? 0 : 5;
}

// No message is counted twice, and none by a way that it cannot go. Fragments that came before their receive are not counted.
bool are_counted(Peer& me, const Setup& way, uint64_t count) {
  const weft_shm_ops* ops = nullptr;
  if (weft_shm_open(me.ep(), &ops) != 0) return false;
  uint64_t all = 0, by_ring = 0, last = 0;
  for (size_t length = 8193; last != UINT64_MAX; length = static_cast<size_t>(last) + 1) {
    weft_shm_copies copies{};
    copies.size = sizeof copies;
    if (weft_shm_query_copies(ops, me.ep(), FI_ADDR_UNSPEC, length, &copies) != 0 ||
        copies.length_max < length)
      return false;
    for (const auto& one : copies.ways) all += one.messages;
    by_ring += copies.ways[WEFT_SHM_COPY_RING].messages;
    last = copies.length_max;
  }
  const bool only_ring = !way.cma || std::strcmp(way.copy, "ring") == 0;
  if (all != 0 && all <= count && (!only_ring || by_ring == all)) return true;
  std::fprintf(stderr, "shared_copy_test: %llu of %llu messages are counted, %llu by the ring\n",
               static_cast<unsigned long long>(all), static_cast<unsigned long long>(count),
               static_cast<unsigned long long>(by_ring));
  return false;
}

// What one peer's messages of one length went by, and why.
bool is_reported(const std::string& provider, const char* setting, bool cma, uint64_t path, uint64_t reason) {
  setenv("WEFT_SHM_COPY", setting, 1);
  setenv("WEFT_CMA", cma ? "1" : "0", 1);
  constexpr size_t length = 65'536;
  constexpr uint64_t count = 200;
  auto* board = shared_block<Board>();
  const pid_t sender = spawn([&] {
    std::vector<uint8_t> out(length);
    Peer me(provider, FI_TAGGED, FI_THREAD_DOMAIN, nullptr, nullptr, 0);
    me.publish(board->sender);
    const fi_addr_t to = me.reach(board->receiver);
    for (uint64_t i = 0; i < count; ++i) {
      Op op;
      if (me.post([&] { return fi_tsend(me.ep(), out.data(), length, nullptr, to, i, &op.context); },
                  Op::take) != 0 ||
          !eventually([&] {
            me.poll(Op::take);
            return op.state == 1;
          }))
        return 1;
    }
    return stays(me, *board) ? 0 : 2;
  });
  std::vector<uint8_t> in(length);
  std::vector<Op> receives(count);
  Peer me(provider, FI_TAGGED, FI_THREAD_DOMAIN, nullptr, nullptr, 0);
  const fi_addr_t from = me.reach(board->sender);
  const weft_shm_ops* ops = nullptr;
  weft_shm_copies copies{};
  copies.size = sizeof copies;
  bool good = from != FI_ADDR_NOTAVAIL && weft_shm_open(me.ep(), &ops) == 0 &&
              weft_shm_query_copies(ops, me.ep(), from, length, &copies) == 0 && copies.measured == 0;
  for (uint64_t i = 0; good && i < count; ++i)
    good = fi_trecv(me.ep(), in.data(), length, nullptr, FI_ADDR_UNSPEC, i, 0, &receives[i].context) == 0;
  me.publish(board->receiver);
  good = good && eventually([&] {
           me.poll(Op::take);
           return std::all_of(receives.begin(), receives.end(), [](const Op& op) { return op.state == 1; });
         });
  good = good && weft_shm_query_copies(ops, me.ep(), from, length, &copies) == 0;
  uint64_t messages = 0, bytes = 0;
  for (const auto& way : copies.ways) {
    messages += way.messages;
    bytes += way.bytes;
  }
  good = good && messages == count && bytes == count * length && copies.length_max == length &&
         (reason == WEFT_SHM_COPY_MEASURED || (copies.path == path && copies.reason == reason)) &&
         copies.trial_messages <= copies.measured && copies.lost_ns <= copies.measured_ns;
  weft_shm_copies none{};
  good = good && weft_shm_query_copies(ops, me.ep(), from, length, &none) == -FI_EINVAL &&
         weft_shm_query_copies(ops, me.ep(), from + 1000, length, &copies) == -FI_EINVAL &&
         weft_shm_query_copies(nullptr, me.ep(), from, length, &copies) == -FI_ENOSYS;
  board->finished = true;
  const int status = join(sender, milliseconds(30'000));
  unsetenv("WEFT_CMA");
  unsetenv("WEFT_SHM_COPY");
  std::printf(
      "shared_copy_test: %s, copy %s, CMA %s: path %llu, reason %llu, %llu measured, %llu trials, %llu "
      "changes: "
      "%s (%d)\n",
      provider.c_str(), setting, cma ? "on" : "off", static_cast<unsigned long long>(copies.path),
      static_cast<unsigned long long>(copies.reason), static_cast<unsigned long long>(copies.measured),
      static_cast<unsigned long long>(copies.trials), static_cast<unsigned long long>(copies.changes),
      good ? "told" : "FAILED", status);
  return good && status == 0;
}

// Window: so many receives are posted at a time, so that several messages are copied at once.
int receives(Board& board, const std::string& provider, const Setup& way, uint64_t count, uint64_t window) {
  std::vector<Guarded> buffers(window, Guarded(big));
  std::vector<Op> ops(window);
  const auto room_of = [](uint64_t i) { return mix(i) % 11 == 0 ? size_of(i) / 2 : size_of(i); };
  Peer me(provider, FI_TAGGED, FI_THREAD_DOMAIN, nullptr, nullptr, 0);
  if (!me.ok()) return 1;
  me.publish(board.receiver);
  uint64_t posted = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (i == count / 2 && way.forbidden_here != 0 && !forbid(way.forbidden_here)) return 3;
    for (; posted < std::min(i + window, count); ++posted) {
      Guarded& in = buffers[posted % window];
      Op& op = ops[posted % window];
      // Sometimes the message is there first, sometimes only a part of it fits.
      if (mix(posted) % 7 == 0) usleep(200);
      in.renew(room_of(posted));
      op.state = 0;
      if (me.post(
              [&] {
                return fi_trecv(me.ep(), in.data(), in.bytes, nullptr, FI_ADDR_UNSPEC, posted, 0,
                                &op.context);
              },
              Op::take) != 0)
        return 4;
    }
    Guarded& in = buffers[i % window];
    const Op& op = ops[i % window];
    const size_t size = size_of(i);
    const size_t room = room_of(i);
    if (!eventually([&] {
          me.poll(Op::take);
          return op.state != 0;
        }))
      return 5;
    if (op.state != (room == size ? 1 : -1) || (room != size && op.err != FI_ETRUNC)) return 6;
    if (first_difference(in.data(), room, i) != room) return 7;
    if (!in.intact()) return 8;
  }
  if (!are_counted(me, way, count)) return 9;
  board.finished = true;
  return 0;
}

bool carries(const std::string& provider, const Setup& way, uint64_t count, uint64_t window) {
  setenv("WEFT_CMA", way.cma ? "1" : "0", 1);
  setenv("WEFT_SHM_COPY", way.copy, 1);
  auto* board = shared_block<Board>();
  const auto start = Clock::now();
  const pid_t receiver = spawn([&] { return receives(*board, provider, way, count, window); });
  const pid_t sender = spawn([&] { return sends(*board, provider, way, count, window); });
  const int got = join(receiver, milliseconds(60'000));
  board->finished = true;
  const int sent = join(sender, milliseconds(30'000));
  unsetenv("WEFT_CMA");
  unsetenv("WEFT_SHM_COPY");
  const bool good = got == 0 && sent == 0;
  std::printf(
      "shared_copy_test: %s, copy %s, CMA %s%s%s, %llu messages, window %llu: %s after %ld ms (%d, %d)\n",
      provider.c_str(), way.copy, way.cma ? "on" : "off",
      way.forbidden_there != 0 ? ", forbidden to the sender half-way" : "",
      way.forbidden_here != 0 ? ", forbidden to the receiver half-way" : "",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(window),
      good ? "all right" : "FAILED", ms_since(start), got, sent);
  return good;
}

// ------------------------------------------------------------------------------------------------ a sender that ends in the middle

enum class Fate : uint8_t { Killed, Stopped, Closes };

struct Load {
  size_t length;
  size_t messages;  // at a time
};

// Messages as fast as they go; after a random time the endpoint closes, when that is its fate.
int floods(Board& board, const std::string& provider, const Load& load, Fate fate, uint64_t seed) {
  std::vector<uint8_t> out(load.length);
  fill(out.data(), load.length, 1);
  std::vector<Op> ops(load.messages + 3);
  Peer me(provider, FI_TAGGED, FI_THREAD_DOMAIN, nullptr, nullptr, 0);
  if (!me.ok()) return 1;
  const fi_addr_t to = me.reach(board.receiver);
  const auto begin = Clock::now();
  const auto life = std::chrono::microseconds(1000 + mix(seed) % 20'000);
  for (uint64_t i = 0; !board.finished; ++i) {
    Op& op = ops[i % ops.size()];
    if (fate == Fate::Closes && Clock::now() - begin > life) break;
    if (i >= ops.size())
      while (op.state == 0 && !board.finished && (fate != Fate::Closes || Clock::now() - begin <= life))
        me.poll(Op::take);
    if (i >= ops.size() && op.state == 0) continue;
    op.state = 0;
    if (me.post([&] { return fi_tsend(me.ep(), out.data(), load.length, nullptr, to, 1, &op.context); },
                Op::take) != 0)
      break;
  }
  me.close();
  while (!board.finished) usleep(500);
  return 0;
}

// A word of every page, so that the test is seldom busy with anything but the library.
void clear_words(Guarded& in) {
  for (size_t at = 0; at + 8 <= in.bytes; at += 4096) std::memset(in.data() + at, 0, 8);
}
bool words_are_right(Guarded& in) {
  for (size_t at = 0; at + 8 <= in.bytes; at += 4096) {
    const uint64_t word = mix(1 ^ (uint64_t{at} << 20));
    if (std::memcmp(in.data() + at, &word, sizeof word) != 0) return false;
  }
  return true;
}

// Nothing of it changes for some time.
bool stays_untouched(std::span<Guarded> all, milliseconds time) {
  for (Guarded& in : all) std::memset(in.all.data(), untouched, in.all.size());
  const auto until = Clock::now() + time;
  do {
    for (const Guarded& in : all)
      for (size_t at = 0; at < in.all.size(); at += 512)
        if (in.all[at] != untouched) return false;
  } while (Clock::now() < until);
  return true;
}

bool survives(const std::string& provider, const Load& load, Fate fate, int rounds, uint64_t seed) {
  setenv("WEFT_SHM_COPY", "both", 1);
  bool good = true;
  long slowest = 0;
  int refused = 0;
  uint64_t whole = 0;
  uint64_t cut = 0;
  for (int round = 1; good && round <= rounds; ++round) {
    auto* board = shared_block<Board>();
    const uint64_t turn = seed * 1000 + static_cast<uint64_t>(round);
    std::vector<Guarded> buffers(load.messages, Guarded(load.length));
    Peer me(provider, FI_TAGGED | FI_DIRECTED_RECV, FI_THREAD_DOMAIN, nullptr, nullptr, 0);
    if (!me.ok()) return false;
    me.publish(board->receiver);
    const pid_t child = spawn([&] { return floods(*board, provider, load, fate, turn); });
    const auto fails = [&](const char* what) {
      std::fprintf(stderr, "shared_copy_test: round %d, seed %llu: %s\n", round,
                   static_cast<unsigned long long>(seed), what);
      good = false;
    };
    std::atomic<bool> ended{false};
    std::thread killer;
    bool seen_end = false;
    Clock::time_point ended_at;
    std::vector<Op> ops(load.messages);
    std::vector<char> posted(load.messages);
    bool failed = false;
    while (good && !failed) {
      for (size_t i = 0; i < load.messages; ++i) {
        if (posted[i] != 0) continue;
        ops[i] = {};
        clear_words(buffers[i]);
        posted[i] = fi_trecv(me.ep(), buffers[i].data(), load.length, nullptr, FI_ADDR_UNSPEC, 1, 0,
                             &ops[i].context) == 0
                        ? 1
                        : 0;
      }
      me.poll(Op::take);
      for (size_t i = 0; i < load.messages; ++i) {
        Op& op = ops[i];
        Guarded& in = buffers[i];
        if (posted[i] == 0 || op.state == 0) continue;
        posted[i] = 0;
        if (op.state == 1 && (op.len != load.length || !words_are_right(in))) fails("wrong data");
        if (op.state == 1) ++whole;
        else ++cut;
        // By another thread: this one is in the middle of a copy when the signal comes.
        if (!killer.joinable())
          killer = std::thread([&ended, child, fate, turn] {
            usleep(static_cast<useconds_t>(mix(turn) % 6000));
            if (fate == Fate::Killed) kill(child, SIGKILL);
            if (fate == Fate::Stopped) kill(child, SIGSTOP);
            ended = true;
          });
        if (!in.intact()) fails("bytes around the buffer have changed");
        if (op.state == -1 && !stays_untouched({&in, 1}, milliseconds(2)))
          fails("somebody wrote after the error");
        failed = failed || op.state == -1;
      }
      if (ended && !seen_end) {
        seen_end = true;
        ended_at = Clock::now();
      }
      // A receive that nothing was announced for stays posted; one that is under way ends, unless its sender is stopped.
      // One that has not ended by then is under way when the endpoint closes, which is as good.
      if (seen_end && ms_since(ended_at) > (fate == Fate::Stopped ? 20 : 60)) break;
    }
    if (killer.joinable()) killer.join();
    const auto start = Clock::now();
    int rc = 0;
    if (good) {
      // The endpoint closes with the receive that is posted or under way; the program has the buffer back.
      rc = fi_close(&me.ep()->fid);
      slowest = std::max(slowest, ms_since(start));
      if (rc == -FI_EBUSY && fate == Fate::Stopped) {
        ++refused;
        kill(child, SIGCONT);
        if (!eventually([&] { return (rc = fi_close(&me.ep()->fid)) != -FI_EBUSY; }))
          fails("the endpoint stays busy");
      }
      if (rc != 0) fails("the endpoint cannot be closed");
      else if (!stays_untouched(buffers, milliseconds(1))) fails("somebody wrote after the close");
      me.forget_ep();
    }
    if (fate == Fate::Stopped) kill(child, SIGCONT);
    if (good && fate == Fate::Stopped && !stays_untouched(buffers, milliseconds(3)))
      fails("a stopped sender wrote after the close");
    board->finished = true;
    if (fate != Fate::Killed && join(child, milliseconds(10'000)) != 0) fails("the sender did not end well");
    if (fate == Fate::Killed) join(child, milliseconds(10'000));
  }
  unsetenv("WEFT_SHM_COPY");
  std::printf(
      "shared_copy_test: %s: %zu receives of %zu bytes, %d senders that %s: %s, %llu messages whole, %llu "
      "cut, slowest close %ld ms, %d said -FI_EBUSY\n",
      provider.c_str(), load.messages, load.length, rounds,
      fate == Fate::Killed    ? "were killed"
      : fate == Fate::Stopped ? "were stopped"
                              : "closed",
      good ? "nothing came later" : "FAILED", static_cast<unsigned long long>(whole),
      static_cast<unsigned long long>(cut), slowest, refused);
  return good && slowest < 2000;
}

// ------------------------------------------------------------------------------------------------ a sender that has gone on

enum class Leaving : uint8_t { Closes, Executes };

// It announces a message and leaves: the memory is the program's again, or another program's. Only then does the receiver look. It never gets
// other bytes than those that were sent, and the receive ends.
bool notices(const std::string& provider, const char* copy, Leaving leaving, size_t length) {
  setenv("WEFT_SHM_COPY", copy, 1);
  auto* board = shared_block<Board>();
  std::vector<uint8_t> in(length, untouched);
  Peer me(provider, FI_TAGGED | FI_DIRECTED_RECV, FI_THREAD_DOMAIN, nullptr, nullptr, 0);
  if (!me.ok()) return false;
  me.publish(board->receiver);
  auto* const left = shared_block<std::atomic<int>>();
  const pid_t child = spawn([&]() -> int {
    std::vector<uint8_t> out(length);
    fill(out.data(), length, 1);
    Peer sender(provider, FI_TAGGED, FI_THREAD_DOMAIN, nullptr, nullptr, 0);
    if (!sender.ok()) return 1;
    const fi_addr_t to = sender.reach(board->receiver);
    static Op first;
    static Op op;
    uint8_t byte = 1;
    if (sender.post([&] { return fi_tsend(sender.ep(), &byte, 1, nullptr, to, 7, &first.context); },
                    Op::take) != 0)
      return 2;
    if (!eventually([&] {
          sender.poll(Op::take);
          return *left == 1;
        }))
      return 3;
    if (sender.post([&] { return fi_tsend(sender.ep(), out.data(), length, nullptr, to, 1, &op.context); },
                    Op::take) != 0)
      return 4;
    for (int i = 0; i < 100; ++i) sender.poll(Op::take);
    if (leaving == Leaving::Closes) {
      sender.close();
      std::memset(out.data(), 0xff, length);
    }
    *left = 2;
    if (leaving == Leaving::Executes) {
      execl("/bin/sleep", "sleep", "20", nullptr);
      return 5;
    }
    while (!board->finished) usleep(500);
    return 0;
  });
  Op first;
  Op op;
  uint8_t byte = 0;
  bool good = fi_trecv(me.ep(), &byte, 1, nullptr, FI_ADDR_UNSPEC, 7, 0, &first.context) == 0 &&
              eventually([&] {
                me.poll(Op::take);
                return first.state != 0;
              }) &&
              fi_trecv(me.ep(), in.data(), length, nullptr, FI_ADDR_UNSPEC, 1, 0, &op.context) == 0;
  *left = 1;
  good = good && eventually([&] { return *left == 2; });
  usleep(100'000);  // execve(2)
  good = good && eventually([&] {
           me.poll(Op::take);
           return op.state != 0;
         });
  const bool right = first_difference(in.data(), length, 1) == length;
  if (op.state == 1 && !right) good = false;
  std::printf("shared_copy_test: %s, WEFT_SHM_COPY=%s: %zu bytes of a sender that %s: %s (state %d)\n",
              provider.c_str(), copy, length,
              leaving == Leaving::Closes ? "closed" : "became another program", good ? "all right" : "FAILED",
              op.state);
  board->finished = true;
  if (leaving == Leaving::Executes) kill(child, SIGKILL);
  const int status = join(child, milliseconds(10'000));
  if (leaving == Leaving::Closes && status != 0) good = false;
  unsetenv("WEFT_SHM_COPY");
  return good;
}

// ------------------------------------------------------------------------------------ a receiver that sleeps

// Messages wait when a thread goes to sleep on the queue's descriptor; another one posts their receives and drives nothing.
// Who sleeps is woken.
bool wakes(const std::string& provider, size_t length, size_t messages) {
  setenv("WEFT_SHM_COPY", "both", 1);
  auto* board = shared_block<Board>();
  const pid_t sender = spawn([&] {
    std::vector<uint8_t> out(length);
    fill(out.data(), length, 1);
    std::vector<Op> ops(messages + 1);
    Peer me(provider, FI_TAGGED, FI_THREAD_DOMAIN, nullptr, nullptr, 0);
    const fi_addr_t to = me.reach(board->receiver);
    for (size_t i = 0; i <= messages; ++i) {
      const size_t size = i < messages ? length : 1;
      if (me.post([&] { return fi_tsend(me.ep(), out.data(), size, nullptr, to, i, &ops[i].context); },
                  Op::take) != 0)
        return 1;
    }
    return stays(me, *board) ? 0 : 2;
  });
  std::vector<std::vector<uint8_t>> in(messages + 1, std::vector<uint8_t>(length));
  std::vector<Op> ops(messages + 1);
  Peer me(provider, FI_TAGGED, FI_THREAD_SAFE, nullptr, nullptr, 0, FI_PROGRESS_MANUAL, FI_WAIT_FD);
  int fd = -1;
  if (!me.ok() || fi_control(&me.cq()->fid, FI_GETWAIT, &fd) != 0) return false;
  me.publish(board->receiver);
  const auto post = [&](size_t i) {
    return fi_trecv(me.ep(), in[i].data(), length, nullptr, FI_ADDR_UNSPEC, i, 0, &ops[i].context) == 0;
  };
  // The last one is short and comes behind them: then they are here.
  bool good = post(messages) && eventually([&] {
                me.poll(Op::take);
                return ops[messages].state == 1;
              });
  fid* waited = &me.cq()->fid;
  const auto may_sleep = [&] { return fi_trywait(me.fabric(), &waited, 1) == 0; };
  good = good && eventually([&] {
           me.poll(Op::take);
           return may_sleep();
         });
  for (size_t i = 0; good && i < messages; ++i) good = post(i);
  const auto is_done = [](const Op& op) { return op.state == 1; };
  while (good && !std::all_of(ops.begin(), ops.end(), is_done)) {
    pollfd entry{fd, POLLIN, 0};
    good = ::poll(&entry, 1, 5000) == 1;
    do me.poll(Op::take);
    while (!may_sleep() && !std::all_of(ops.begin(), ops.end(), is_done));
  }
  for (size_t i = 0; good && i < messages; ++i) good = first_difference(in[i].data(), length, 1) == length;
  board->finished = true;
  me.close();
  const int status = join(sender, milliseconds(30'000));
  unsetenv("WEFT_SHM_COPY");
  std::printf("shared_copy_test: %s: %zu messages of %zu bytes for a receiver that sleeps: %s (%d)\n",
              provider.c_str(), messages, length, good ? "woken" : "FAILED", status);
  return good && status == 0;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  const std::string provider = arguments.provider();
  const int rounds = static_cast<int>(arguments.number("rounds", 12));
  const uint64_t seed = arguments.number("seed", static_cast<uint64_t>(getpid()));
  std::printf("shared_copy_test: provider %s, seed %llu\n", provider.c_str(),
              static_cast<unsigned long long>(seed));
  bool good = true;
  // Enough for the trials of each way by "auto".
  for (const uint64_t window : {1, 8}) good = carries(provider, {"auto", true, 0, 0}, 400, window) && good;
  for (const char* copy : {"ring", "receiver", "both"})
    for (const uint64_t window : {1, 8}) good = carries(provider, {copy, true, 0, 0}, 150, window) && good;
  good = carries(provider, {"both", false, 0, 0}, 100, 4) && good;
  for (const char* copy : {"auto", "receiver", "both"}) {
    good = carries(provider, {copy, true, SYS_process_vm_writev, 0}, 120, 4) && good;
    good = carries(provider, {copy, true, 0, SYS_process_vm_readv}, 120, 4) && good;
  }
  good = is_reported(provider, "auto", true, 0, WEFT_SHM_COPY_MEASURED) && good;
  good = is_reported(provider, "ring", true, WEFT_SHM_COPY_RING, WEFT_SHM_COPY_PINNED) && good;
  good = is_reported(provider, "both", true, WEFT_SHM_COPY_BOTH, WEFT_SHM_COPY_PINNED) && good;
  good = is_reported(provider, "auto", false, WEFT_SHM_COPY_RING, WEFT_SHM_COPY_ONLY) && good;
  good = wakes(provider, size_t{1} << 20, 1) && wakes(provider, size_t{1} << 17, 6) && good;
  for (const Load& load : {Load{big, 1}, Load{size_t{1} << 17, 6}})
    for (const Fate fate : {Fate::Killed, Fate::Stopped, Fate::Closes})
      good = survives(provider, load, fate, rounds, seed) && good;
  for (const char* copy : {"auto", "receiver", "both"})
    for (const Leaving leaving : {Leaving::Closes, Leaving::Executes})
      for (const size_t length : {size_t{200'000}, size_t{1} << 20, size_t{40'000'000}})
        good = notices(provider, copy, leaving, length) && good;
  return good ? 0 : 1;
}
