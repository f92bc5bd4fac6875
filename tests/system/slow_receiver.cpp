// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A sender floods a receiver that does not receive for a while, and that then asks for the latest accepted message first. The memory
// of the receiver stays bounded, the late message arrives though everything before it waits, and all data is right.
//
//   slow_receiver [--provider shm] [--small 1000000] [--large 2000] [--large-size 65536] [--pause-ms 1000] [--limit-mb 64]
#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t windows = 256;

struct Board {
  Name name[2];
  std::atomic<uint64_t> accepted{0};  // messages that the sender's provider took
  std::atomic<uint64_t> refusals{0};
  std::atomic<int> finished{0};
};

struct Plan {
  uint64_t small, large;
  size_t large_size;
  uint64_t total() const { return small + large; }
  // The large ones lie evenly among the small.
  bool is_large(uint64_t i) const {
    if (large == 0) return false;
    const uint64_t stride = total() / large;
    return i % stride == stride - 1 && i / stride < large;
  }
};

// 64 different payloads of large messages are enough to tell them apart together with their tags.
std::vector<std::vector<uint8_t>> payloads(const Plan& plan) {
  std::vector<std::vector<uint8_t>> out(64, std::vector<uint8_t>(plan.large_size));
  for (uint64_t i = 0; i < 64; ++i) fill(out[i].data(), plan.large_size, i);
  return out;
}

long resident_kb() {
  long kb = 0;
  if (FILE* file = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      if (std::strncmp(line, "VmRSS:", 6) == 0) kb = std::strtol(line + 6, nullptr, 10);
    }
    std::fclose(file);
  }
  return kb;
}

int sender(Board& board, const std::string& provider, const Plan& plan) {
  Peer me(provider, FI_TAGGED);
  if (!me.ok()) return 1;
  const auto data = payloads(plan);
  me.publish(board.name[0]);
  const fi_addr_t to = me.reach(board.name[1]);
  if (to == FI_ADDR_NOTAVAIL) return 1;
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<Op*> idle;
  for (uint64_t i = 0; i < std::max<uint64_t>(plan.large, 1); ++i) {
    ops.push_back(std::make_unique<Op>());
    idle.push_back(ops.back().get());
  }
  uint64_t done = 0, posted = 0;
  bool failed = false;
  const auto take = [&](const Done& d) {
    if (d.err != 0) failed = true;
    ++done;
    idle.push_back(static_cast<Op*>(d.context));
  };
  auto moved = Clock::now();
  for (uint64_t i = 0; i < plan.total() && !failed;) {
    ssize_t rc = 0;
    if (plan.is_large(i)) {
      // As many contexts as large messages, so it is the provider alone that holds us up.
      Op* op = idle.back();
      rc = fi_tsend(me.ep(), data[i % 64].data(), plan.large_size, nullptr, to, i, &op->context);
      if (rc == 0) {
        idle.pop_back();
        ++posted;
      }
    } else {
      const uint64_t value = mix(i);
      rc = fi_tinject(me.ep(), &value, sizeof value, to, i);
    }
    if (rc == 0) {
      board.accepted.store(++i, std::memory_order_release);
      moved = Clock::now();
      if (i % 64 == 0) me.poll(take);
      continue;
    }
    if (rc != -FI_EAGAIN) {
      std::fprintf(stderr, "send %llu: %s\n", static_cast<unsigned long long>(i),
                   fi_strerror(static_cast<int>(-rc)));
      return 1;
    }
    board.refusals.fetch_add(1, std::memory_order_relaxed);
    me.poll(take);
    if (ms_since(moved) > 60'000) {
      std::fprintf(stderr, "the sender was held up at %llu and never again let on\n",
                   static_cast<unsigned long long>(i));
      return 1;
    }
  }
  const bool all = eventually(
      [&] {
        me.poll(take);
        return failed || done == posted;
      },
      milliseconds(60'000));
  ++board.finished;
  eventually([&] {
    me.poll(take);
    return board.finished == 2;
  });
  if (failed || !all) std::fprintf(stderr, "sends: %s\n", failed ? "an error" : "not all completed");
  return failed || !all ? 1 : 0;
}

class Receiver {
 public:
  Receiver(Board& board, const std::string& provider, const Plan& plan)
      : board_(board), plan_(plan), me_(provider, FI_TAGGED), data_(payloads(plan)) {}

  int run(long pause_ms, long limit_mb) {
    if (!me_.ok()) return 1;
    me_.publish(board_.name[1]);
    if (me_.reach(board_.name[0]) == FI_ADDR_NOTAVAIL) return 1;
    for (auto& slot : slots_) {
      slot = std::make_unique<Slot>();
      slot->data.assign(plan_.large_size, 0);
    }
    const long before_kb = resident_kb();
    // First no call at all, then only progress: in neither may memory grow without bound.
    usleep(static_cast<useconds_t>(pause_ms) * 500);
    const auto start = Clock::now();
    uint64_t accepted = board_.accepted;
    auto stalled = Clock::now();
    while (ms_since(start) < pause_ms * 20 && (ms_since(start) < pause_ms / 2 || ms_since(stalled) < 100)) {
      me_.poll(Op::take);
      watch_memory();
      if (board_.accepted == accepted) continue;
      accepted = board_.accepted;
      stalled = Clock::now();
    }
    const uint64_t late = board_.accepted.load(std::memory_order_acquire) - 1;
    const long flooded_kb = peak_kb_;
    std::printf(
        "slow_receiver: the sender has got %llu messages accepted; receiving the last of them first\n",
        number(late + 1));
    std::fflush(stdout);
    if (!one(late)) return 1;
    for (uint64_t next = 0; next < plan_.total() || pending_ > 0;) {
      while (pending_ < windows && next < plan_.total()) {
        if (next != late && !post(next)) break;
        ++next;
      }
      const uint64_t before = received_;
      me_.poll(Op::take);
      if (!collect()) return 1;
      if (received_ != before) moved_ = Clock::now();
      if (received_ % 4096 == 0) watch_memory();
      if (ms_since(moved_) > 60'000) {
        std::fprintf(stderr, "nothing moves any more, %llu received, %llu accepted\n", number(received_),
                     number(board_.accepted));
        return 1;
      }
    }
    ++board_.finished;
    eventually([&] {
      me_.poll(Op::take);
      return board_.finished == 2;
    });
    const long grown_mb = (peak_kb_ - before_kb) / 1024;
    std::printf(
        "slow_receiver: %llu messages verified, sender refused %llu times, memory %ld MB before, +%ld MB "
        "while flooded, +%ld MB "
        "at most (limit %ld MB)\n",
        number(received_), number(board_.refusals), before_kb / 1024, (flooded_kb - before_kb) / 1024,
        grown_mb, limit_mb);
    if (grown_mb > limit_mb) {
      std::fprintf(stderr, "the memory of the receiver grew by %ld MB\n", grown_mb);
      return 1;
    }
    return 0;
  }

 private:
  struct Slot {
    Op op;
    uint64_t seq = 0;
    bool used = false;
    std::vector<uint8_t> data;
  };

  static unsigned long long number(uint64_t value) { return value; }

  void watch_memory() { peak_kb_ = std::max(peak_kb_, resident_kb()); }

  bool post(uint64_t seq) {
    for (auto& slot : slots_) {
      if (slot->used) continue;
      slot->op.state = 0;
      if (fi_trecv(me_.ep(), slot->data.data(), plan_.large_size, nullptr, FI_ADDR_UNSPEC, seq, 0,
                   &slot->op.context) != 0)
        return false;
      slot->seq = seq;
      slot->used = true;
      ++pending_;
      return true;
    }
    return false;
  }

  bool collect() {
    for (auto& slot : slots_) {
      if (!slot->used || slot->op.state == 0) continue;
      slot->used = false;
      --pending_;
      ++received_;
      const uint64_t value = mix(slot->seq);
      const bool large = plan_.is_large(slot->seq);
      const size_t len = large ? plan_.large_size : sizeof value;
      const void* want = large ? static_cast<const void*>(data_[slot->seq % 64].data()) : &value;
      if (slot->op.state < 0 || slot->op.len != len || std::memcmp(slot->data.data(), want, len) != 0) {
        std::fprintf(stderr, "message %llu: state %d, %zu bytes, %s\n", number(slot->seq), slot->op.state,
                     slot->op.len, slot->op.state < 0 ? fi_strerror(slot->op.err) : "wrong data or length");
        return false;
      }
    }
    return true;
  }

  bool one(uint64_t seq) {
    if (!eventually([&] {
          me_.poll(Op::take);
          return post(seq);
        })) {
      return false;
    }
    const bool got = eventually([&] {
      me_.poll(Op::take);
      watch_memory();
      return !collect() || pending_ == 0;
    });
    if (!got)
      std::fprintf(stderr, "the late message %llu never came: the messages before it block it\n",
                   number(seq));
    return got && pending_ == 0;
  }

  Board& board_;
  const Plan& plan_;
  Peer me_;
  std::vector<std::vector<uint8_t>> data_;
  std::unique_ptr<Slot> slots_[windows];
  size_t pending_ = 0;
  uint64_t received_ = 0;
  long peak_kb_ = 0;
  Clock::time_point moved_ = Clock::now();
};

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  const std::string provider = arguments.provider();
  const Plan plan{arguments.number("small", 1'000'000), arguments.number("large", 2000),
                  arguments.number("large-size", 65536)};
  const Leftovers leftovers;
  auto* board = shared_block<Board>();
  const pid_t to = spawn([&] {
    return Receiver(*board, provider, plan)
        .run(static_cast<long>(arguments.number("pause-ms", 1000)),
             static_cast<long>(arguments.number("limit-mb", 64)));
  });
  const pid_t from = spawn([&] { return sender(*board, provider, plan); });
  int rc = join(to, milliseconds(150'000));
  if (rc != 0) kill(from, SIGKILL);
  const int sent = join(from, milliseconds(30'000));
  if (sent != 0) rc = 1;
  if (!leftovers.none()) rc = 1;
  std::printf("slow_receiver: %s\n", rc == 0 ? "passed" : "FAILED");
  return rc == 0 ? 0 : 1;
}
