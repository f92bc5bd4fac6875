// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Processes talk all to all, verified; one after the other is killed at a random instant and replaced, at times two at once, at times
// one that has hardly started. Survivors must get their pending operations back within a bounded time and go on with each other and
// with the replacement; what they held for the dead is freed, and nothing may be left behind.
//
//   killer [--provider shm] [--rounds 100] [--processes 4] [--seed N] [--limit-ms 2000] [--max-size 262144] [--keep 1] [--verbose]
#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t slots_max = 16;
constexpr size_t window = 3;            // sends in flight to each peer
constexpr size_t rma_room = 64 * 1024;  // bytes of each exposed region that belong to one peer
constexpr uint64_t seq_bits = 32;

// One process as the others see it. `generation` counts the processes that lived in the slot, from 1.
struct Slot {
  Name name;                       // of the current generation
  std::atomic<uint32_t> ready{0};  // generation whose name and region are published
  std::atomic<uint32_t> dead{0};   // last generation known to be dead; written by the parent
  std::atomic<uint64_t> region_addr{0};
  std::atomic<uint64_t> region_key{0};
  // What this slot's process tells: verified units exchanged with each other slot, and the last dead generation that it has
  // got over, for each other slot.
  std::atomic<uint64_t> progress[slots_max] = {};
  std::atomic<uint32_t> seen_dead[slots_max] = {};
  std::atomic<uint64_t> messages{0}, bytes{0}, rma{0}, errors{0}, canceled{0};
  std::atomic<uint32_t> slowest_ms{0};  // from the news of a death to the last completion
  std::atomic<bool> failed{false};
  char why[200] = {};
  char state[200] = {};  // for the watchdog
};

struct Board {
  Slot slot[slots_max];
  std::atomic<bool> stop{false};
};

struct Setup {
  std::string provider;
  size_t processes = 4;
  uint64_t seed = 1;
  long limit_ms = 2000;
  size_t size_max = 256 * 1024;
  size_t keep = 1;  // so many slots are never killed; what they hold is looked at
  bool verbose = false;
};

uint64_t tag_of(size_t from, uint32_t generation, uint64_t seq) {
  return static_cast<uint64_t>(from) << 56 | static_cast<uint64_t>(generation & 0xffff) << seq_bits |
         (seq & 0xffffffff);
}

uint64_t seed_of(size_t from, uint32_t generation, size_t to, uint64_t seq) {
  return mix(tag_of(from, generation, seq) * 31 + to);
}

// Sizes from 8 bytes to the maximum, each power of two as likely as the next.
size_t size_of(uint64_t seed, size_t max) {
  size_t top = 8;
  for (uint64_t steps = mix(seed + 1) % 16; steps > 0 && top < max; --steps) top *= 2;
  return 8 + mix(seed + 2) % (std::min(top, max) - 7);
}

// ------------------------------------------------------------------------------------------------------------ one process

// An operation of a pair. The memory lives as long as the Link it belongs to, also when the process gives up.
struct Transfer {
  fi_context2 context{};  // first, so that a context leads back here
  enum class Kind { send, receive, write, read, probe } kind = Kind::send;
  struct Link* link = nullptr;
  bool pending = false;
  bool canceling = false;
  uint64_t seq = 0;
  size_t len = 0;
  std::vector<uint8_t> data;
};

// What one process holds about another, for one generation of it.
struct Link {
  size_t slot = 0;
  uint32_t generation = 0;
  fi_addr_t addr = FI_ADDR_NOTAVAIL;
  uint64_t next_send = 0, next_receive = 0, next_rma = 0;
  uint64_t verified = 0;
  Transfer sends[window], receives[2], rma, probe;
  bool suspect = false;  // an operation failed before the parent told of the death
  Clock::time_point suspect_since;
  bool dying = false;
  bool probed = false;
  Clock::time_point dying_since;

  bool pending() const {
    bool any = rma.pending || probe.pending;
    for (const auto& t : sends) any |= t.pending;
    for (const auto& t : receives) any |= t.pending;
    return any;
  }
};

class Process {
 public:
  Process(Board& board, const Setup& setup, size_t slot, uint32_t generation)
      : board_(board),
        setup_(setup),
        me_(slot),
        generation_(generation),
        mine_(board.slot[slot]),
        region_(slots_max * rma_room),
        peer_(setup.provider, FI_TAGGED | FI_RMA) {}

  int run() {
    if (!peer_.ok()) return fail("could not open an endpoint");
    const auto region = peer_.expose(region_.data(), region_.size());
    mine_.region_addr = region.addr;
    mine_.region_key = region.key;
    peer_.publish(mine_.name);
    mine_.ready.store(generation_, std::memory_order_release);
    for (uint64_t turn = 0; !board_.stop.load(std::memory_order_relaxed); ++turn) {
      peer_.poll([this](const Done& done) { take(done); });
      if (turn % 16 == 0) check_all();
      for (auto& link : links_) {
        if (link) step(*link);
        if (mine_.failed) return 1;
      }
      if (turn % 64 == 0) sched_yield();
    }
    return mine_.failed ? 1 : 0;
  }

 private:
  int fail(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    char text[sizeof mine_.why];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    std::memcpy(mine_.why, text, sizeof text);
    mine_.failed = true;
    return 1;
  }

  // New generations of others, and deaths.
  void check_all() {
    for (size_t s = 0; s < setup_.processes; ++s) {
      if (s == me_) continue;
      Slot& other = board_.slot[s];
      auto& link = links_[s];
      const uint32_t ready = other.ready.load(std::memory_order_acquire);
      const uint32_t dead = other.dead.load(std::memory_order_acquire);
      if (link && !link->dying && dead >= link->generation) start_dying(*link);
      if (!link && ready > dead) meet(s, ready);
      if (!link && ready <= dead && mine_.seen_dead[s] < dead)
        mine_.seen_dead[s] = dead;  // died before we met
    }
  }

  void meet(size_t s, uint32_t generation) {
    auto link = std::make_unique<Link>();
    link->slot = s;
    link->generation = generation;
    link->addr = peer_.insert(board_.slot[s].name);
    if (link->addr == FI_ADDR_NOTAVAIL) {
      // It may have died in between; the parent will tell.
      if (++failed_inserts_ > 100'000) fail("cannot insert the name of slot %zu", s);
      return;
    }
    failed_inserts_ = 0;
    for (auto& t : link->sends) prepare(*link, t, Transfer::Kind::send);
    for (auto& t : link->receives) prepare(*link, t, Transfer::Kind::receive);
    prepare(*link, link->rma, Transfer::Kind::write);
    prepare(*link, link->probe, Transfer::Kind::probe);
    links_[s] = std::move(link);
  }

  void prepare(Link& link, Transfer& t, Transfer::Kind kind) {
    t.kind = kind;
    t.link = &link;
    t.data.resize(kind == Transfer::Kind::probe   ? 8
                  : kind == Transfer::Kind::write ? rma_room
                                                  : setup_.size_max);
  }

  void step(Link& link) {
    if (link.dying) {
      finish_dead(link);
      return;
    }
    if (link.suspect) {
      // The parent must confirm the death soon; an error from a living peer is a failure.
      if (ms_since(link.suspect_since) > setup_.limit_ms) {
        fail("an operation with living slot %zu failed: %s", link.slot, suspicion_.c_str());
      }
      return;
    }
    for (auto& t : link.receives) {
      if (!t.pending) post_receive(link, t);
    }
    for (auto& t : link.sends) {
      if (!t.pending) post_send(link, t);
    }
    if (!link.rma.pending) post_rma(link);
  }

  // What a post returned: accepted, refused for now, or an error, which is right only when the peer is dead.
  void posted(Link& link, Transfer& t, ssize_t rc, const char* what) {
    if (rc == 0) {
      t.pending = true;
    } else if (rc != -FI_EAGAIN && !link.dying) {
      suspect(link, what, static_cast<int>(-rc));
    }
  }

  void suspect(Link& link, const char* what, int err) {
    mine_.errors.fetch_add(1, std::memory_order_relaxed);
    if (link.suspect || link.dying) return;
    link.suspect = true;
    link.suspect_since = Clock::now();
    suspicion_ = std::string(what) + ": " + fi_strerror(err);
  }

  void post_receive(Link& link, Transfer& t) {
    const uint64_t tag = tag_of(link.slot, link.generation, link.next_receive);
    const ssize_t rc =
        fi_trecv(peer_.ep(), t.data.data(), t.data.size(), nullptr, FI_ADDR_UNSPEC, tag, 0, &t.context);
    t.seq = link.next_receive;
    if (rc == 0) ++link.next_receive;
    posted(link, t, rc, "receive");
  }

  void post_send(Link& link, Transfer& t) {
    const uint64_t seed = seed_of(me_, generation_, link.slot, link.next_send);
    t.len = size_of(seed, setup_.size_max);
    if (t.seq != link.next_send || link.next_send == 0) fill(t.data.data(), t.len, seed);
    t.seq = link.next_send;
    const uint64_t tag = tag_of(me_, generation_, t.seq);
    const ssize_t rc = fi_tsend(peer_.ep(), t.data.data(), t.len, nullptr, link.addr, tag, &t.context);
    if (rc == 0) ++link.next_send;
    posted(link, t, rc, "send");
  }

  // A write of verified bytes into the part of the peer's region that is ours, then a read of the same.
  void post_rma(Link& link) {
    Transfer& t = link.rma;
    const Slot& other = board_.slot[link.slot];
    const uint64_t addr = other.region_addr + me_ * rma_room;
    ssize_t rc = 0;
    if (t.kind == Transfer::Kind::write) {
      const uint64_t seed = seed_of(me_, generation_, link.slot, 1'000'000'000 + link.next_rma);
      t.len = size_of(seed, rma_room);
      fill(t.data.data(), t.len, seed);
      rc = fi_write(peer_.ep(), t.data.data(), t.len, nullptr, link.addr, addr, other.region_key, &t.context);
    } else {
      std::memset(t.data.data(), 0, t.len);
      rc = fi_read(peer_.ep(), t.data.data(), t.len, nullptr, link.addr, addr, other.region_key, &t.context);
    }
    posted(link, t, rc, "rma");
  }

  void take(const Done& done) {
    auto* t = static_cast<Transfer*>(done.context);
    if (t == nullptr) return;
    if (t == &drain_) {
      drain_.pending = false;
      drain_hit_ = done.err == 0 || done.err == FI_ETRUNC;
      return;
    }
    if (!t->pending) {
      fail("a completion without operation, slot %zu", t->link->slot);
      return;
    }
    Link& link = *t->link;
    t->pending = false;
    if (done.err != 0) {
      if (t->canceling) {
        mine_.canceled.fetch_add(1, std::memory_order_relaxed);
      } else {
        suspect(link, "completion", done.err);
      }
      return;
    }
    if (t->kind == Transfer::Kind::receive) received(link, *t, done);
    if (t->kind == Transfer::Kind::write) {
      t->kind = Transfer::Kind::read;
    } else if (t->kind == Transfer::Kind::read) {
      did_read(link, *t);
    }
  }

  void received(Link& link, const Transfer& t, const Done& done) {
    const uint64_t seed = seed_of(link.slot, link.generation, me_, t.seq);
    const size_t len = size_of(seed, setup_.size_max);
    if (done.len != len) {
      fail("slot %zu message %llu: %zu bytes, not %zu", link.slot, static_cast<unsigned long long>(t.seq),
           done.len, len);
    } else if (const size_t at = first_difference(t.data.data(), len, seed); at != len) {
      fail("slot %zu message %llu of %zu bytes: wrong data at %zu", link.slot,
           static_cast<unsigned long long>(t.seq), len, at);
    }
    ++link.verified;
    mine_.messages.fetch_add(1, std::memory_order_relaxed);
    mine_.bytes.fetch_add(len, std::memory_order_relaxed);
    mine_.progress[link.slot].fetch_add(1, std::memory_order_relaxed);
  }

  void did_read(Link& link, Transfer& t) {
    const uint64_t seed = seed_of(me_, generation_, link.slot, 1'000'000'000 + link.next_rma);
    if (const size_t at = first_difference(t.data.data(), t.len, seed); at != t.len) {
      fail("read of %zu bytes from slot %zu: wrong data at %zu", t.len, link.slot, at);
    }
    ++link.next_rma;
    t.kind = Transfer::Kind::write;
    mine_.rma.fetch_add(1, std::memory_order_relaxed);
  }

  // ---- after a death

  void start_dying(Link& link) {
    link.dying = true;
    link.dying_since = Clock::now();
    for (auto& t : link.receives) {
      if (!t.pending) continue;
      t.canceling = true;
      fi_cancel(&peer_.ep()->fid, &t.context);
    }
  }

  // Until everything pending came back; also a send to the dead must be answered, not refused with -FI_EAGAIN for ever.
  void finish_dead(Link& link) {
    if (!link.probed) {
      const ssize_t rc =
          fi_tsend(peer_.ep(), link.probe.data.data(), 8, nullptr, link.addr, ~0ULL, &link.probe.context);
      if (rc != -FI_EAGAIN) {
        link.probed = true;
        link.probe.pending = rc == 0;
      }
    }
    if (!link.probed || link.pending()) {
      if (ms_since(link.dying_since) <= setup_.limit_ms) return;
      describe(link);
      fail("%ld ms after the death of slot %zu generation %u: %s", ms_since(link.dying_since), link.slot,
           link.generation, mine_.state);
      return;
    }
    if (!drained(link)) return;
    const auto took = static_cast<uint32_t>(ms_since(link.dying_since));
    if (took > mine_.slowest_ms) mine_.slowest_ms = took;
    peer_.remove(link.addr);
    mine_.seen_dead[link.slot] = link.generation;
    links_[link.slot].reset();
  }

  void describe(const Link& link) {
    int sends = 0, receives = 0;
    for (const auto& t : link.sends) sends += t.pending ? 1 : 0;
    for (const auto& t : link.receives) receives += t.pending ? 1 : 0;
    std::snprintf(mine_.state, sizeof mine_.state, "pending: %d sends, %d receives, %d rma, %d probe%s",
                  sends, receives, link.rma.pending ? 1 : 0, link.probe.pending ? 1 : 0,
                  link.probed ? "" : ", a send is refused for ever");
  }

  // Takes in what the dead sent and nobody received, so that memory does not grow with the rounds.
  bool drained(Link& link) {
    drain_.data.resize(setup_.size_max);
    const uint64_t tag = tag_of(link.slot, link.generation, 0);
    for (int i = 0; i < 100; ++i) {
      drain_hit_ = false;
      if (fi_trecv(peer_.ep(), drain_.data.data(), drain_.data.size(), nullptr, FI_ADDR_UNSPEC, tag,
                   (1ULL << seq_bits) - 1, &drain_.context) != 0) {
        return true;
      }
      drain_.pending = true;
      for (int k = 0; k < 20 && drain_.pending; ++k) peer_.poll([this](const Done& done) { take(done); });
      if (drain_.pending) fi_cancel(&peer_.ep()->fid, &drain_.context);
      if (!eventually(
              [&] {
                peer_.poll([this](const Done& done) { take(done); });
                return !drain_.pending;
              },
              milliseconds(setup_.limit_ms))) {
        fail("a receive for a message of the dead slot %zu never completed", link.slot);
        return false;
      }
      if (!drain_hit_) return true;
    }
    return true;
  }

  Board& board_;
  const Setup& setup_;
  size_t me_;
  uint32_t generation_;
  Slot& mine_;
  std::vector<uint8_t> region_;
  std::unique_ptr<Link> links_[slots_max];
  Transfer drain_;
  Peer peer_;  // closed before its buffers go
  bool drain_hit_ = false;
  std::string suspicion_;
  uint64_t failed_inserts_ = 0;
};

// -------------------------------------------------------------------------------------------------------------- the parent

// What a process holds, as the kernel tells.
struct Held {
  long resident_mb = 0, files = 0, mappings = 0;
  Held() = default;
  explicit Held(pid_t pid) {
    const std::string proc = "/proc/" + std::to_string(pid);
    if (FILE* file = std::fopen((proc + "/status").c_str(), "r")) {
      char line[256];
      while (std::fgets(line, sizeof line, file) != nullptr) {
        if (std::strncmp(line, "VmRSS:", 6) == 0) resident_mb = std::strtol(line + 6, nullptr, 10) / 1024;
      }
      std::fclose(file);
    }
    if (FILE* file = std::fopen((proc + "/maps").c_str(), "r")) {
      for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) mappings += c == '\n' ? 1 : 0;
      std::fclose(file);
    }
    if (DIR* dir = opendir((proc + "/fd").c_str())) {
      while (readdir(dir) != nullptr) ++files;
      closedir(dir);
    }
  }
};

class Killer {
 public:
  Killer(const Setup& setup, uint64_t rounds)
      : setup_(setup), rounds_(rounds), board_(shared_block<Board>()) {}

  int run() {
    for (size_t s = 0; s < setup_.processes; ++s) start(s);
    bool good = settled("start");
    const auto begun = Clock::now();
    for (round_ = 1; good && round_ <= rounds_; ++round_) {
      good = one_round();
      if (good && round_ == std::min<uint64_t>(rounds_, 20)) at_first_ = Held(pid_[0]);
      if (setup_.verbose || round_ % 100 == 0) report(begun);
    }
    if (good && setup_.keep > 0 && rounds_ > 0) good = nothing_piles_up();
    board_->stop = true;
    for (size_t s = 0; s < setup_.processes; ++s) {
      if (!good) kill(pid_[s], SIGKILL);
      const int status = join(pid_[s], milliseconds(10'000));
      if (good && status != 0) {
        std::fprintf(stderr, "slot %zu ended with %d: %s\n", s, status, board_->slot[s].why);
        good = false;
      }
    }
    --round_;
    report(begun);
    return good ? 0 : 1;
  }

 private:
  uint64_t random() { return setup_.seed * 0x2545f4914f6cdd1dULL ^ mix(setup_.seed + ++draws_); }

  void start(size_t s) {
    const uint32_t generation = ++generation_[s];
    Slot& slot = board_->slot[s];
    for (auto& p : slot.progress) p = 0;
    for (size_t k = 0; k < setup_.processes; ++k) {
      slot.seen_dead[k] = board_->slot[k].dead.load();
      board_->slot[k].progress[s] = 0;
    }
    pid_[s] = spawn([this, s, generation] { return Process(*board_, setup_, s, generation).run(); });
  }

  // Every pair of living processes has exchanged verified messages since the last start.
  bool settled(const char* when) {
    return wait_for(when, [this] {
      for (size_t a = 0; a < setup_.processes; ++a) {
        for (size_t b = 0; b < setup_.processes; ++b) {
          if (a != b && board_->slot[a].progress[b] < base_[a][b] + 3) return false;
        }
      }
      return true;
    });
  }

  // One death or several at once; some are of processes that have hardly started.
  bool one_round() {
    const bool early = random() % 4 == 0;
    std::vector<size_t> victims = {setup_.keep + random() % (setup_.processes - setup_.keep)};
    if (random() % 8 == 0 && setup_.processes - setup_.keep > 2) {
      victims.push_back(setup_.keep + (victims[0] - setup_.keep + 1) % (setup_.processes - setup_.keep));
    }
    usleep(static_cast<useconds_t>(random() % 5000));
    if (!end(victims)) return false;
    for (const size_t victim : victims) start(victim);
    if (early) {
      usleep(static_cast<useconds_t>(random() % 3000));
      if (!end(victims)) return false;
      for (const size_t victim : victims) start(victim);
    }
    // From here on everybody must move again, survivors among each other as well.
    for (size_t a = 0; a < setup_.processes; ++a) {
      for (size_t b = 0; b < setup_.processes; ++b) base_[a][b] = board_->slot[a].progress[b];
    }
    for (const size_t victim : victims) {
      for (size_t k = 0; k < setup_.processes; ++k) base_[victim][k] = base_[k][victim] = 0;
    }
    return settled("going on");
  }

  // Kills, tells the survivors, and waits until they have got over it.
  bool end(const std::vector<size_t>& victims) {
    for (const size_t victim : victims) kill(pid_[victim], SIGKILL);
    for (const size_t victim : victims) {
      waitpid(pid_[victim], nullptr, 0);
      ++kills_;
      board_->slot[victim].dead.store(generation_[victim], std::memory_order_release);
    }
    return wait_for("survivors", [&] {
      for (size_t s = 0; s < setup_.processes; ++s) {
        if (std::find(victims.begin(), victims.end(), s) != victims.end()) continue;
        for (const size_t victim : victims) {
          if (board_->slot[s].seen_dead[victim] < generation_[victim]) return false;
        }
      }
      return true;
    });
  }

  // Bounded; tells of failures and of children that ended by themselves.
  template <class F>
  bool wait_for(const char* what, F&& done) {
    const auto start_time = Clock::now();
    const long limit = 10'000 + setup_.limit_ms * 2;
    while (!done()) {
      for (size_t s = 0; s < setup_.processes; ++s) {
        const Slot& slot = board_->slot[s];
        int status = 0;
        const bool ended = slot.dead < generation_[s] && waitpid(pid_[s], &status, WNOHANG) == pid_[s];
        if (!slot.failed && !ended) continue;
        std::fprintf(stderr, "round %llu seed %llu (%s): slot %zu failed: %s", number(round_),
                     number(setup_.seed), what, s, slot.why);
        if (ended && WIFSIGNALED(status)) std::fprintf(stderr, " (signal %d)", WTERMSIG(status));
        std::fprintf(stderr, "\n");
        return false;
      }
      if (ms_since(start_time) > limit) {
        std::fprintf(stderr, "round %llu seed %llu: hang while waiting for %s\n", number(round_),
                     number(setup_.seed), what);
        print_progress();
        return false;
      }
      usleep(200);
    }
    return true;
  }

  // A process that lived through all the deaths holds no more than after the first few.
  bool nothing_piles_up() const {
    const Held now(pid_[0]);
    std::printf(
        "killer: slot 0 held %ld MB, %ld files, %ld mappings after the first rounds, and %ld MB, %ld files, "
        "%ld mappings at the "
        "end\n",
        at_first_.resident_mb, at_first_.files, at_first_.mappings, now.resident_mb, now.files, now.mappings);
    // A sanitizer keeps freed memory for itself.
    const char* sanitizer = std::getenv("WEFT_SANITIZE");
    const long growth_mb = sanitizer != nullptr && *sanitizer != '\0' ? 1024 : 64;
    const bool good = now.resident_mb <= at_first_.resident_mb + growth_mb &&
                      now.files <= at_first_.files + 16 && now.mappings <= at_first_.mappings + 64;
    if (!good) std::fprintf(stderr, "what belonged to the dead piles up\n");
    return good;
  }

  void print_progress() const {
    for (size_t a = 0; a < setup_.processes; ++a) {
      std::fprintf(stderr, "  slot %zu generation %u ready %u dead %u, got from others:", a, generation_[a],
                   board_->slot[a].ready.load(), board_->slot[a].dead.load());
      for (size_t b = 0; b < setup_.processes; ++b) {
        std::fprintf(stderr, " %llu(+%llu)", number(board_->slot[a].progress[b]),
                     number(board_->slot[a].progress[b] - base_[a][b]));
      }
      std::fprintf(stderr, " seen dead:");
      for (size_t b = 0; b < setup_.processes; ++b)
        std::fprintf(stderr, " %u", board_->slot[a].seen_dead[b].load());
      std::fprintf(stderr, "\n");
    }
  }

  void report(Clock::time_point begun) const {
    uint64_t messages = 0, bytes = 0, rma = 0, errors = 0, canceled = 0;
    uint32_t slowest = 0;
    for (const Slot& slot : board_->slot) {
      messages += slot.messages;
      bytes += slot.bytes;
      rma += slot.rma;
      errors += slot.errors;
      canceled += slot.canceled;
      slowest = std::max(slowest, slot.slowest_ms.load());
    }
    std::printf(
        "killer: %llu rounds, %llu kills in %ld ms, %llu messages (%llu MB) and %llu writes+reads verified, "
        "%llu errors, "
        "%llu canceled, "
        "slowest recovery %u ms\n",
        number(round_), number(kills_), ms_since(begun), number(messages), number(bytes >> 20), number(rma),
        number(errors), number(canceled), slowest);
    std::fflush(stdout);
  }

  static unsigned long long number(uint64_t value) { return value; }

  Setup setup_;
  uint64_t rounds_;
  Board* board_;
  uint64_t round_ = 0;
  uint64_t kills_ = 0;
  uint64_t draws_ = 0;
  Held at_first_;
  pid_t pid_[slots_max] = {};
  uint32_t generation_[slots_max] = {};
  uint64_t base_[slots_max][slots_max] = {};
};

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  Setup setup;
  setup.provider = arguments.provider();
  setup.processes = std::clamp<size_t>(arguments.number("processes", 4), 2, slots_max);
  setup.seed = arguments.number("seed", static_cast<uint64_t>(getpid()));
  setup.limit_ms = static_cast<long>(arguments.number("limit-ms", 2000));
  setup.size_max = arguments.number("max-size", 256 * 1024);
  setup.keep = std::min<size_t>(arguments.number("keep", 1), setup.processes - 1);
  setup.verbose = arguments.number("verbose", 0) != 0;
  std::printf("killer: provider %s, seed %llu\n", setup.provider.c_str(),
              static_cast<unsigned long long>(setup.seed));
  const Leftovers leftovers;
  int rc = Killer(setup, arguments.number("rounds", 100)).run();
  if (!leftovers.none()) rc = 1;
  std::printf("killer: %s\n", rc == 0 ? "passed" : "FAILED");
  return rc;
}
