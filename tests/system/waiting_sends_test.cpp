// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages of 4 KiB to 1 MB that wait at the sender because the peer does not read: what may go wrong meanwhile. The sender's buffers are pages
// of their own. They are written over when their send has completed, and taken away when nobody may look at them any more.
//
//   waiting_sends_test [--provider NAME] [--case NAME] [--rounds 4] [--stop-ms 1500]
#include "peer.hpp"

namespace weft::system_test {
namespace {

const size_t sizes[] = {65'536, 4'100, 20'000, 131'072, 8'192, 262'144, 30'001, 1'000'003};
constexpr size_t room = size_t{1} << 20;
constexpr size_t waiting_wanted = 40;
constexpr size_t messages_max = 1'000;
constexpr size_t receives_max = 32;
constexpr uint64_t hello_tag = 1ULL << 40;

size_t size_of(size_t i) { return sizes[i % (sizeof(sizes) / sizeof(sizes[0]))]; }

struct Board {
  Name sender, receiver;
  std::atomic<bool> reads{false};  // the receiver goes on
  std::atomic<size_t> sent{0};  // so many messages, with those that were cancelled; stored when it is known
  std::atomic<bool> cancelled[messages_max] = {};
  std::atomic<bool> gone{false};  // the sender has closed; not all has to come
  std::atomic<size_t> received{0};
};

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      return false;                                                                \
    }                                                                              \
  } while (0)

// Pages that can be taken away, and that a forked child does not have.
class Pages {
 public:
  Pages() : at_(mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (at_ == MAP_FAILED || madvise(at_, room, MADV_DONTFORK) != 0) std::abort();
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(at_, room); }
  void* at() const { return at_; }
  void take_away() { (void)mprotect(at_, room, PROT_NONE); }

 private:
  void* at_;
};

struct Message {
  fi_context2 context{};  // first: completions name it
  Pages pages;
  size_t len = 0;
  bool posted = false;
  int ends = 0;  // completions
  int err = 0;
};

class Sender {
 public:
  Sender(const std::string& provider, Board& board)
      : board_(board), me_(std::make_unique<Peer>(provider, FI_TAGGED)) {
    if (me_->ok()) me_->publish(board.sender);
  }
  Peer& me() { return *me_; }
  bool met() {
    if (!me_->ok()) return false;
    to_ = me_->reach(board_.receiver);
    return to_ != FI_ADDR_NOTAVAIL && exchange(*me_, to_, hello_tag, 8, 1, 2);
  }
  // One message more, or -FI_EAGAIN. Its completion says that the buffer is free, no more.
  ssize_t post() {
    if (messages_.size() == next_) messages_.push_back(std::make_unique<Message>());
    Message& m = *messages_[next_];
    m.len = size_of(next_);
    fill(m.pages.at(), m.len, next_);
    const iovec part{m.pages.at(), m.len};
    fi_msg_tagged msg{};
    msg.msg_iov = &part;
    msg.iov_count = 1;
    msg.addr = to_;
    msg.tag = next_;
    msg.context = &m.context;
    const ssize_t rc = fi_tsendmsg(me_->ep(), &msg, FI_COMPLETION | FI_TRANSMIT_COMPLETE);
    if (rc != 0) return rc;
    m.posted = true;
    ++next_;
    ++waiting_;
    return 0;
  }
  // Sends until so many wait and none moves on.
  bool flood() {
    return eventually([&] {
      while (waiting_ < waiting_wanted && next_ < messages_max && post() == 0) poll();
      poll_for(milliseconds(15));
      return waiting_ >= waiting_wanted;
    });
  }
  void poll() {
    me_->poll([&](const Done& done) {
      auto* m = static_cast<Message*>(done.context);
      if (m == nullptr) return;
      ++m->ends;
      m->err = done.err;
      --waiting_;
      if (takes_away) m->pages.take_away();
      else std::memset(m->pages.at(), 0xee, room);
    });
  }
  bool drain(size_t left = 0) {
    return eventually([&] {
      poll();
      return waiting_ <= left;
    });
  }
  void poll_for(milliseconds time) {
    const auto start = Clock::now();
    while (ms_since(start) < time.count()) poll();
  }
  // Each that was posted has ended once; `good` of them well.
  bool all_ended_once(size_t& good) const {
    good = 0;
    for (size_t i = 0; i < next_; ++i) {
      if (messages_[i]->ends != 1) {
        std::fprintf(stderr, "message %zu has %d completions\n", i, messages_[i]->ends);
        return false;
      }
      good += messages_[i]->err == 0;
    }
    return true;
  }
  Message& message(size_t i) { return *messages_[i]; }
  size_t posted() const { return next_; }
  size_t waiting() const { return waiting_; }
  void close() { me_.reset(); }
  void free_all() { messages_.clear(); }

  bool takes_away = false;  // a buffer whose send has ended; else it is written over

 private:
  Board& board_;
  fi_addr_t to_ = FI_ADDR_NOTAVAIL;
  std::vector<std::unique_ptr<Message>> messages_;
  size_t next_ = 0;
  size_t waiting_ = 0;
  std::unique_ptr<Peer> me_;  // last: it goes before the buffers
};

// Meets the sender, does not call its library until it may, then takes all that comes in order and looks at every byte.
int receiver(Board& board, const std::string& provider) {
  Peer me(provider, FI_TAGGED);
  if (!me.ok()) return 1;
  me.publish(board.receiver);
  const fi_addr_t from = me.reach(board.sender);
  if (from == FI_ADDR_NOTAVAIL || !exchange(me, from, hello_tag, 8, 2, 1)) return 1;
  while (!board.reads) usleep(500);
  struct Receive {
    Op op;
    std::vector<uint8_t> in = std::vector<uint8_t>(room);
    size_t number = 0;
  };
  std::vector<std::unique_ptr<Receive>> receives;
  for (size_t i = 0; i < receives_max; ++i) receives.push_back(std::make_unique<Receive>());
  size_t next = 0, posted = 0, done = 0;
  const auto post = [&](Receive& r) {
    while (next < board.sent && board.cancelled[next]) ++next;
    if (next >= board.sent) return true;
    r.number = next++;
    r.op.state = 0;
    ++posted;
    return me.post(
               [&] {
                 return fi_trecv(me.ep(), r.in.data(), room, nullptr, from, r.number, 0, &r.op.context);
               },
               Op::take) == 0;
  };
  for (auto& r : receives)
    if (!post(*r)) return 2;
  auto moved = Clock::now();
  while (done < posted) {
    me.poll(Op::take);
    for (auto& r : receives) {
      if (r->op.state == 0) continue;
      if (r->op.state < 0) {  // from a peer that is gone
        if (!board.gone) std::fprintf(stderr, "receive %zu failed: %s\n", r->number, fi_strerror(r->op.err));
        return board.gone ? 0 : 3;
      }
      if (r->op.len != size_of(r->number) ||
          first_difference(r->in.data(), r->op.len, r->number) != r->op.len) {
        std::fprintf(stderr, "message %zu is not what was sent\n", r->number);
        return 4;
      }
      r->op.state = 0;
      moved = Clock::now();
      board.received = ++done;
      if (!post(*r)) return 2;
    }
    if (board.gone && ms_since(moved) > 300) return 0;
    if (ms_since(moved) > 20'000) return 5;
  }
  // What comes unasked would be a message that was cancelled, or half of one.
  const auto end = Clock::now();
  while (ms_since(end) < 20) me.poll(Op::take);
  return 0;
}

struct Case {
  explicit Case(const std::string& name) : provider(name), board(shared_block<Board>()) {
    pid = spawn([&] { return receiver(*board, provider); });
  }
  ~Case() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      join(pid, milliseconds(1000));
    }
    munmap(board, sizeof(Board));
  }
  // The receiver goes on; it has to get all that was sent and not cancelled.
  bool finish(Sender& sender) {
    board->sent = sender.posted();
    board->reads = true;
    CHECK(sender.drain());
    int status = -1;
    CHECK(eventually([&] {
      sender.poll();
      int raw = 0;
      if (waitpid(pid, &raw, WNOHANG) != pid) return false;
      status = raw;
      return true;
    }));
    pid = -1;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
  }

  std::string provider;
  Board* board;
  pid_t pid;
};

// The peer does not read for a while, then goes on; buffers change as soon as they may.
bool stopped(const std::string& provider, milliseconds time) {
  Case c(provider);
  Sender sender(provider, *c.board);
  CHECK(sender.met() && sender.flood());
  CHECK(kill(c.pid, SIGSTOP) == 0);
  sender.poll_for(time);
  CHECK(sender.waiting() != 0);  // sockets may have made some room
  CHECK(kill(c.pid, SIGCONT) == 0);
  CHECK(c.finish(sender));
  size_t good = 0;
  CHECK(sender.all_ended_once(good) && good == sender.posted());
  return true;
}

// The peer is killed while they wait, before it reads or while it does. The buffers go as they end.
bool killed(const std::string& provider, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    Case c(provider);
    Sender sender(provider, *c.board);
    sender.takes_away = true;
    CHECK(sender.met() && sender.flood());
    if (round % 2 == 1) {
      c.board->sent = sender.posted();
      c.board->reads = true;
      CHECK(eventually([&] {
        sender.poll();
        return c.board->received >= static_cast<size_t>(5 * round);
      }));
    }
    const bool waited = sender.waiting() != 0;
    kill(c.pid, SIGKILL);
    CHECK(join(c.pid, milliseconds(5000)) == 256 + SIGKILL);
    c.pid = -1;
    CHECK(sender.drain());
    sender.poll_for(milliseconds(30));
    size_t good = 0;
    CHECK(sender.all_ended_once(good));
    CHECK(!waited || round % 2 == 1 || good < sender.posted());
    for (size_t i = 0; i < sender.posted(); ++i)
      CHECK(sender.message(i).err == 0 || sender.message(i).err == FI_EIO ||
            sender.message(i).err == FI_EHOSTUNREACH);
    sender.free_all();
    // The endpoint serves another peer.
    auto* board = shared_block<Board>();
    sender.me().publish(board->sender);
    const pid_t next = spawn([&] { return receiver(*board, provider); });
    const fi_addr_t to = sender.me().reach(board->receiver);
    CHECK(to != FI_ADDR_NOTAVAIL && exchange(sender.me(), to, hello_tag, 8, 1, 2));
    board->reads = true;
    CHECK(join(next, milliseconds(5000)) == 0);
  }
  return true;
}

// The endpoint is closed while they wait: then the buffers are the program's. What comes is whole.
bool closed(const std::string& provider) {
  for (const bool reads : {false, true}) {
    Case c(provider);
    Sender sender(provider, *c.board);
    CHECK(sender.met() && sender.flood());
    c.board->sent = sender.posted();
    c.board->gone = true;
    c.board->reads = reads;  // also while it closes
    sender.close();
    sender.free_all();
    c.board->reads = true;
    CHECK(join(c.pid, milliseconds(10'000)) == 0);
    c.pid = -1;
    CHECK(c.board->received != 0);
  }
  return true;
}

// fi_cancel of all that wait: those that are refused go their way, the others end at once, and each ends once.
bool cancelled(const std::string& provider) {
  Case c(provider);
  Sender sender(provider, *c.board);
  CHECK(sender.met() && sender.flood());
  size_t taken_back = 0, in_flight_sends = 0;
  for (size_t i = 0; i < sender.posted(); ++i) {
    Message& m = sender.message(i);
    const bool ended = m.ends != 0;
    const ssize_t rc = fi_cancel(&sender.me().ep()->fid, &m.context);
    CHECK(rc == 0 || rc == -FI_ENOENT);
    CHECK(!ended || rc == -FI_ENOENT);
    if (ended) continue;
    if (rc == 0) c.board->cancelled[i] = true;
    ++(rc == 0 ? taken_back : in_flight_sends);
  }
  CHECK(taken_back + in_flight_sends == sender.waiting());
  CHECK(sender.drain(in_flight_sends));
  sender.poll_for(milliseconds(10));
  CHECK(sender.waiting() <= in_flight_sends);
  CHECK(c.finish(sender));
  size_t good = 0;
  CHECK(sender.all_ended_once(good) && good == sender.posted() - taken_back);
  for (size_t i = 0; i < sender.posted(); ++i)
    CHECK(sender.message(i).err == (c.board->cancelled[i] ? FI_ECANCELED : 0));
  return true;
}

// Children that are forked while they wait, and do not have the buffers: they send nothing, and the parent goes on. One calls exit() with
// everything open, one executes a program, one ends without a word in the middle of what the parent sends.
bool forked(const std::string& provider) {
  Case c(provider);
  Sender sender(provider, *c.board);
  CHECK(sender.met() && sender.flood());
  const pid_t handlers = spawn([] {
    std::exit(0);
    return 1;
  });
  CHECK(join(handlers, milliseconds(5000)) == 0);
  const pid_t program = spawn([] {
    execl("/proc/self/exe", "waiting_sends_test", "--no-op", static_cast<char*>(nullptr));
    return 1;
  });
  CHECK(join(program, milliseconds(5000)) == 0);
  const pid_t closes = spawn([&] {
    sender.close();
    return 0;
  });
  CHECK(join(closes, milliseconds(5000)) == 0);
  const pid_t silent = spawn([] {
    usleep(100'000);
    return 0;
  });
  CHECK(c.finish(sender));
  CHECK(join(silent, milliseconds(5000)) == 0);
  size_t good = 0;
  CHECK(sender.all_ended_once(good) && good == sender.posted());
  return true;
}

bool run(const Arguments& arguments, const std::string& provider) {
  const std::string only = arguments.text("case", "");
  const auto play = [&](const char* name, const std::function<bool()>& body) {
    if (!only.empty() && only != name) return true;
    const auto start = Clock::now();
    const bool good = body();
    std::printf("waiting_sends_test: %s, %s: %s, %ld ms\n", provider.c_str(), name, good ? "ok" : "FAILED",
                ms_since(start));
    return good;
  };
  const milliseconds stop(arguments.number("stop-ms", 1500));
  const auto rounds = static_cast<int>(arguments.number("rounds", 4));
  bool good = play("stopped", [&] { return stopped(provider, stop); });
  good = play("killed", [&] { return killed(provider, rounds); }) && good;
  good = play("closed", [&] { return closed(provider); }) && good;
  good = play("cancelled", [&] { return cancelled(provider); }) && good;
  good = play("forked", [&] { return forked(provider); }) && good;
  return good;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  if (arguments.number("no-op", 0) != 0) return 0;
  alarm(300);
  setenv("FI_WEFT_SHM", "0", 1);  // `weft` by its network side
  const Leftovers leftovers;
  bool good = true;
  if (!arguments.text("provider", "").empty()) {
    good = run(arguments, arguments.provider());
  } else {
    for (const char* provider : {"tcp", "tcp;ofi_rxm", "weft"}) good = run(arguments, provider) && good;
  }
  return good && leftovers.none() ? 0 : 1;
}
