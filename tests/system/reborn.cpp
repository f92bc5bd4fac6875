// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A process B with an address of its own choice ends, and a new process takes the address. A process that knows B by one fi_addr_t goes on sending.
// Each message that it sends after B's end arrives at the new process, or ends with an error; the address heals without being inserted again.
//
//   reborn --provider shm [--by name|service] [--count 40] [--verbose]
//
// For each way to end (killed, closed) and each time of the rebirth: at once; at once, but the new process opens its endpoint and does not call the
// library for a while; after the sender has noticed; and at once in the middle of traffic.
#include <netinet/in.h>
#include <sys/socket.h>

#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t ids_max = 1 << 16;
constexpr size_t bytes_max = 1 << 20;
constexpr size_t window = 8;  // sends under way
constexpr milliseconds limit{15'000};

enum class Kind : uint8_t { Small, Inject, Middle, Large, Delivered, count };
constexpr size_t kinds = static_cast<size_t>(Kind::count);
bool small_only = false;
Kind kind_of(size_t id) {
  const Kind kind = static_cast<Kind>(id % kinds);
  return small_only && (kind == Kind::Middle || kind == Kind::Large) ? Kind::Small : kind;
}
const char* name_of(Kind kind) {
  constexpr const char* names[] = {"send of 8 B", "inject of 8 B", "send of 64 KiB", "send of 1 MiB",
                                   "send of 8 B, delivery complete"};
  return names[static_cast<size_t>(kind)];
}
size_t size_of(Kind kind) { return kind == Kind::Middle ? 65536 : kind == Kind::Large ? bytes_max : 8; }

enum Fate : uint8_t { unknown, accepted, complete, failed, refused };

struct Board {
  Name names[2];
  std::atomic<uint32_t> ready{0};  // receivers that have an endpoint
  std::atomic<bool> stop[2] = {};
  std::atomic<bool> call[2] = {};  // the receiver may call the library
  std::atomic<bool> died{false};   // the first receiver is known to have ended
  std::atomic<bool> noticed{false};
  std::atomic<bool> go{false};    // the second has an endpoint
  std::atomic<uint32_t> warm{0};  // the sender has sent everything of its first phase
  std::atomic<uint8_t> got[2][ids_max] = {};
  std::atomic<uint8_t> wrong{0};
  // The sender's.
  std::atomic<uint8_t> fate[ids_max] = {};
  std::atomic<uint32_t> first_after{0};  // id of the first message that was posted after the end was known
  std::atomic<uint32_t> healed{0};       // id of the first message of the last round, in which all went well
  std::atomic<uint32_t> ids{0};
  std::atomic<uint32_t> events{0};  // errors that the counter has, and no entry of the queue
  std::atomic<bool> strange{false};
};

struct Setup {
  std::string provider, node, service;
  bool by_service = false;
  size_t count = 40;
  bool verbose = false;
};

struct Scenario {
  bool killed, noticed, late, busy, small;
};

// ------------------------------------------------------------------------------------------------------------- receiver

int receive(Board& board, const Setup& setup, size_t life) {
  Peer peer(setup.provider, FI_TAGGED, FI_THREAD_DOMAIN, setup.node.empty() ? nullptr : setup.node.c_str(),
            setup.service.c_str(), 0);
  if (!peer.ok()) return 1;
  struct Slot {
    fi_context2 context{};
    std::vector<uint8_t> bytes;
    bool posted = false;
  };
  std::vector<Slot> slots(8);
  for (auto& slot : slots) slot.bytes.resize(bytes_max);
  const ClosesFirst closes_first(peer);
  peer.publish(board.names[life]);
  board.ready.fetch_add(1);
  while (!board.call[life] && !board.stop[life]) usleep(1000);
  uint64_t turn = 0;
  while (!board.stop[life]) {
    for (auto& slot : slots)
      if (!slot.posted)
        slot.posted = fi_trecv(peer.ep(), slot.bytes.data(), bytes_max, nullptr, FI_ADDR_UNSPEC, 0, ~0ULL,
                               &slot.context) == 0;
    peer.poll([&](const Done& done) {
      auto* slot = reinterpret_cast<Slot*>(done.context);
      if (slot == nullptr) return;
      slot->posted = false;
      if (done.err != 0) return;
      const size_t id = done.tag;
      const size_t size = id < ids_max ? size_of(kind_of(id)) : 0;
      if (id >= ids_max || done.len != size || first_difference(slot->bytes.data(), size, id) != size ||
          board.got[life][id].exchange(1) != 0)
        board.wrong = 1;
    });
    if (++turn % 256 == 0) sched_yield();
  }
  return 0;
}

// --------------------------------------------------------------------------------------------------------------- sender

class Sender {
 public:
  Sender(Board& board, const Setup& setup, const Scenario& scenario)
      : board_(board),
        setup_(setup),
        scenario_(scenario),
        peer_(setup.provider, FI_TAGGED, FI_THREAD_DOMAIN, setup.node.empty() ? nullptr : setup.node.c_str(),
              nullptr, 0, FI_PROGRESS_UNSPEC, FI_WAIT_NONE, true) {
    for (auto& slot : slots_) slot.bytes.resize(bytes_max);
  }

  int run() {
    if (!peer_.ok()) return 1;
    if (!eventually([&] { return board_.ready >= 1; })) return say("the first receiver did not start");
    if (setup_.by_service) {
      if (fi_av_insertsvc(peer_.av(), setup_.node.c_str(), setup_.service.c_str(), &to_, 0, nullptr) != 1)
        return say("fi_av_insertsvc");
    } else {
      to_ = peer_.insert(board_.names[0]);
    }
    if (to_ == FI_ADDR_NOTAVAIL) return say("fi_av_insert");
    if (!round(setup_.count, false)) return 1;
    if (!eventually(
            [&] {
              poll();
              return all_received(0, 0, next_);
            },
            limit))
      return say("the first messages did not arrive");
    board_.warm = 1;
    if (scenario_.busy) {
      while (!board_.died)
        if (!round(kinds, true)) return 1;
    } else {
      // Not a call into the library: nothing is noticed.
      while (!board_.died) usleep(500);
    }
    board_.first_after = static_cast<uint32_t>(next_);
    if (scenario_.noticed) {
      const size_t errors = noticed();
      if (!eventually([&] { return !round(kinds, true) || noticed() != errors; }, limit) ||
          noticed() == errors)
        return say("nothing was noticed");
      board_.noticed = true;
    }
    while (!board_.go) {
      if (scenario_.noticed) poll();
      usleep(500);
    }
    // Until a round goes well, and arrives.
    const auto start = Clock::now();
    while (true) {
      const size_t first = next_;
      const size_t errors = noticed();
      if (!round(setup_.count, true)) return 1;
      if (noticed() == errors &&
          eventually(
              [&] {
                poll();
                return noticed() != errors || all_received(1, first, next_);
              },
              milliseconds(4000)) &&
          noticed() == errors) {
        board_.healed = static_cast<uint32_t>(first);
        break;
      }
      if (ms_since(start) > 2 * limit.count()) return say("it does not heal");
      usleep(20'000);
    }
    // What is still to be said about the past.
    const auto until = Clock::now();
    while (ms_since(until) < 100) poll();
    board_.ids = static_cast<uint32_t>(next_);
    return 0;
  }

 private:
  struct Slot {
    fi_context2 context{};
    size_t id = 0;
    bool pending = false;
    std::vector<uint8_t> bytes;
  };

  int say(const char* what) {
    std::fprintf(stderr, "  sender: %s\n", what);
    board_.ids = static_cast<uint32_t>(next_);
    return 1;
  }
  bool all_received(size_t life, size_t from, size_t to) const {
    for (size_t id = from; id < to; ++id)
      if (board_.got[life][id] == 0 && board_.fate[id] != refused) return false;
    return true;
  }
  void poll() {
    peer_.poll([this](const Done& done) {
      if (done.err != 0) ++entries_;
      if (done.context == nullptr) {
        board_.strange = true;
        return;
      }
      auto* slot = reinterpret_cast<Slot*>(done.context);
      slot->pending = false;
      board_.fate[slot->id] = done.err != 0 ? failed : complete;
    });
    board_.events = static_cast<uint32_t>(fi_cntr_readerr(peer_.sends()) - entries_);
  }
  // `count` messages, one of each kind after the other, until all have ended.
  bool round(size_t count, bool may_fail) {
    for (size_t i = 0; i < count; ++i) {
      if (next_ >= ids_max) return say("too many messages") == 0;
      const size_t id = next_;
      const Kind kind = kind_of(id);
      Slot* slot = nullptr;
      if (!eventually(
              [&] {
                for (auto& each : slots_)
                  if (!each.pending) slot = &each;
                if (slot == nullptr) poll();
                return slot != nullptr;
              },
              limit))
        return say((std::string("sends do not end, the oldest a ") + name_of(kind_of(oldest()))).c_str()) ==
               0;
      slot->id = id;
      fill(slot->bytes.data(), size_of(kind), id);
      board_.fate[id] = accepted;
      ++next_;
      const ssize_t rc = peer_.post([&] { return post(kind, *slot); }, [](const Done&) {}, milliseconds(0));
      ssize_t status = rc;
      if (status == -FI_EAGAIN && !eventually(
                                      [&] {
                                        poll();
                                        status = post(kind, *slot);
                                        return status != -FI_EAGAIN;
                                      },
                                      limit))
        return say((std::string("refused for ever: a ") + name_of(kind)).c_str()) == 0;
      if (status == 0) {
        slot->pending = kind != Kind::Inject;
        continue;
      }
      board_.fate[id] = refused;
      ++refused_;
      if (!may_fail) return say("a message was refused") == 0;
    }
    const bool ended = eventually(
        [&] {
          poll();
          return std::none_of(std::begin(slots_), std::end(slots_),
                              [](const Slot& slot) { return slot.pending; });
        },
        limit);
    if (!ended)
      return say((std::string("sends do not end, the oldest a ") + name_of(kind_of(oldest()))).c_str()) == 0;
    return true;
  }
  size_t noticed() const { return refused_ + fi_cntr_readerr(peer_.sends()); }
  size_t oldest() const {
    size_t id = SIZE_MAX;
    for (const auto& slot : slots_)
      if (slot.pending) id = std::min(id, slot.id);
    return id;
  }
  ssize_t post(Kind kind, Slot& slot) {
    void* bytes = slot.bytes.data();
    const size_t size = size_of(kind);
    if (kind == Kind::Inject) return fi_tinject(peer_.ep(), bytes, size, to_, slot.id);
    if (kind != Kind::Delivered)
      return fi_tsend(peer_.ep(), bytes, size, nullptr, to_, slot.id, &slot.context);
    const iovec part{bytes, size};
    const fi_msg_tagged message{&part, nullptr, 1, to_, slot.id, 0, &slot.context, 0};
    return fi_tsendmsg(peer_.ep(), &message, FI_DELIVERY_COMPLETE | FI_COMPLETION);
  }

  Board& board_;
  const Setup& setup_;
  const Scenario& scenario_;
  fi_addr_t to_ = FI_ADDR_NOTAVAIL;
  size_t next_ = 0;
  size_t entries_ = 0;  // error entries of the queue
  size_t refused_ = 0;  // calls that failed at once
  Slot slots_[window];
  Peer peer_;  // closed before its buffers go
};

// -------------------------------------------------------------------------------------------------------------- verdict

bool run(const Setup& setup, const Scenario& scenario) {
  Board& board = *shared_block<Board>();
  small_only = scenario.small;
  board.call[0] = true;
  const auto start = Clock::now();
  pid_t first = spawn([&] { return receive(board, setup, 0); });
  const pid_t sender = spawn([&] { return Sender(board, setup, scenario).run(); });
  bool good = eventually(
      [&] {
        usleep(1000);
        return board.warm != 0;
      },
      limit);
  if (!good) std::fprintf(stderr, "  no first messages\n");
  if (good && scenario.busy) usleep(50'000);
  if (scenario.killed) kill(first, SIGKILL);
  board.stop[0] = true;
  const int ended = join(first, limit);
  if (ended != 0 && !scenario.killed) {
    std::fprintf(stderr, "  the first receiver ended with %d\n", ended);
    good = false;
  }
  board.died = true;
  if (good && scenario.noticed &&
      !eventually(
          [&] {
            usleep(1000);
            return board.noticed.load();
          },
          limit)) {
    std::fprintf(stderr, "  the sender notices nothing\n");
    good = false;
  }
  const pid_t second = spawn([&] { return receive(board, setup, 1); });
  if (good && !eventually(
                  [&] {
                    usleep(1000);
                    return board.ready >= 2;
                  },
                  limit)) {
    std::fprintf(stderr, "  the second receiver did not start\n");
    good = false;
  }
  board.go = true;
  if (scenario.late) usleep(400'000);
  board.call[1] = true;
  const int sent = join(sender, milliseconds(60'000));
  board.stop[1] = true;
  const int received = join(second, limit);
  if (sent != 0 || received != 0) {
    std::fprintf(stderr, "  the sender ended with %d, the second receiver with %d\n", sent, received);
    good = false;
  }
  size_t to_first = 0, to_second = 0, errors = 0, untold = 0, late_complete = 0, lost_before = 0;
  for (size_t id = 0; id < board.ids; ++id) {
    const uint8_t fate = board.fate[id];
    const bool arrived = board.got[0][id] != 0 || board.got[1][id] != 0;
    to_first += board.got[0][id];
    to_second += board.got[1][id];
    const bool error = fate == failed || fate == refused;
    errors += error ? 1 : 0;
    if (arrived || error) continue;
    if (id < board.first_after) {  // it may have died with the receiver
      ++lost_before;
      continue;
    }
    if (kind_of(id) == Kind::Delivered) {
      std::fprintf(stderr, "  message %zu: delivery complete, and nobody has it\n", id);
      good = false;
    }
    (kind_of(id) == Kind::Inject ? untold : late_complete) += 1;
    if (setup.verbose) std::fprintf(stderr, "  message %zu, a %s: nobody has it\n", id, name_of(kind_of(id)));
  }
  std::printf(
      "  %-6s %-30s sent %5u, received %5zu + %4zu, errors %3zu, and %u counted for: injects %3zu, "
      "complete %3zu, before the end %2zu; %ld ms\n",
      scenario.killed ? "killed" : "closed",
      scenario.busy      ? "reborn at once, under load"
      : scenario.noticed ? "reborn when it was noticed"
      : scenario.small   ? "the same, small messages only"
      : scenario.late    ? "reborn at once, late to call"
                         : "reborn at once",
      board.ids.load(), to_first, to_second, errors, board.events.load(), untold, late_complete, lost_before,
      ms_since(start));
  if (board.strange) {
    std::fprintf(stderr, "  a completion without a context\n");
    good = false;
  }
  if (board.wrong != 0) {
    std::fprintf(stderr, "  a message came twice, or with other bytes\n");
    good = false;
  }
  if (untold + late_complete != 0 && board.events == 0) {
    std::fprintf(stderr, "  messages were neither received nor reported\n");
    good = false;
  }
  return good;
}

// Below the range of ephemeral ports, from which the kernel takes ports for the sender's own sockets: one that the receiver is to have again must
// not be among them.
int free_port() {
  constexpr int first = 10'000, count = 20'000;
  static int next = static_cast<int>(getpid()) % count;
  for (int tries = 0; tries < count; ++tries) {
    const int port = first + next++ % count;
    bool free = true;
    for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(static_cast<uint16_t>(port));
      const int fd = socket(AF_INET, type, 0);
      free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && free;
      close(fd);
    }
    if (free) return port;
  }
  return 0;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  setenv("WEFT_RELIABLE_TIMEOUT_S", "3", 0);
  const Arguments arguments(argc, argv);
  Setup setup;
  setup.provider = arguments.provider();
  setup.by_service = arguments.text("by", "name") == "service";
  setup.count = arguments.number("count", 40);
  setup.verbose = arguments.number("verbose", 0) != 0;
  const bool network =
      setup.provider == "weft" || setup.provider.rfind("tcp", 0) == 0 || setup.provider.rfind("udp", 0) == 0;
  if (network) setup.node = "127.0.0.1";
  bool good = true;
  std::printf("%s%s\n", setup.provider.c_str(), setup.by_service ? ", by service" : "");
  unsigned number = 0;
  for (const bool killed : {true, false})
    for (const unsigned when : {0U, 1U, 2U, 3U, 4U}) {
      setup.service = network ? std::to_string(free_port())
                              : "reborn-" + std::to_string(getpid()) + "-" + std::to_string(number++);
      const Scenario scenario{killed, when == 2, when == 1 || when == 4, when == 3, when == 4};
      good = run(setup, scenario) && good;
      std::fflush(stdout);
    }
  std::printf("%s\n", good ? "ok" : "FAILED");
  return good ? 0 : 1;
}
