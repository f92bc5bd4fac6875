// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two programs that know only each other's address: one echoes, one calls and checks. For tests in which the link between them is cut
// or one of them is killed, and which no fork can do: each may run in a network namespace of its own.
//
//   echo --serve FILE [--provider P] [--node ADDRESS] [--service PORT] [--seconds N]     writes its name to FILE
//   echo --call FILE  [--provider P] [--node ADDRESS] [--seconds N] [--size BYTES] [--window N] [--limit-ms N] [--alive-ms N]
//
// The caller ends with status 1 when data is wrong, when an operation neither completes nor fails within --limit-ms, or when the last
// echo is older than --alive-ms at the end (0: it does not matter). After a failure it goes on in a new epoch; echoes of old ones count
// for nothing. Its first line, "first echo", tells that both are there; its seconds begin anew then. Its last line is "echoes N errors N epochs N longest_pending_ms N last_echo_ms N".
#include <algorithm>
#include <thread>

#include "peer.hpp"

namespace weft::system_test {
namespace {

struct Head {
  uint64_t seq;
  uint32_t epoch;
  uint32_t bytes;  // of the whole message
  uint32_t name_bytes;
  uint8_t name[128];
};

constexpr uint64_t call_tag = 1, echo_tag = 2;
constexpr size_t receives = 64;

uint64_t seed_of(const Head& head) { return mix(uint64_t{head.epoch} << 32 | head.seq); }

bool is_right(const std::vector<uint8_t>& buffer, size_t len, size_t size_max) {
  if (len < sizeof(Head) || len > size_max) return false;
  Head head;
  std::memcpy(&head, buffer.data(), sizeof head);
  const size_t body = len - sizeof head;
  return head.bytes == len && head.name_bytes <= sizeof head.name &&
         first_difference(buffer.data() + sizeof head, body, seed_of(head)) == body;
}

struct Slot {
  Op op;
  std::vector<uint8_t> buffer;
  Clock::time_point since;
  bool busy = false;
  explicit Slot(size_t bytes) : buffer(bytes) {}
};

Slot& slot_of(const Done& done) {
  // The context is the first member of the first member.
  return *static_cast<Slot*>(done.context);
}

using Slots = std::vector<std::unique_ptr<Slot>>;

Slots make_slots(size_t count, size_t bytes) {
  Slots slots;
  for (size_t i = 0; i < count; ++i) slots.push_back(std::make_unique<Slot>(bytes));
  return slots;
}

// While nothing comes, which may take long, the processor is for others.
class Pace {
 public:
  void after(int completions) {
    idle_ = completions == 0 ? idle_ + 1 : 0;
    if (idle_ > 2'000) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    } else if (idle_ > 0) {
      sched_yield();
    }
  }

 private:
  size_t idle_ = 0;
};

class Server {
 public:
  Server(Peer& me, size_t size_max)
      : me_(me),
        size_max_(size_max),
        in_(make_slots(receives, size_max)),
        out_(make_slots(receives, size_max)) {
    for (auto& slot : in_) idle_receives_.push_back(slot.get());
    for (auto& slot : out_) idle_sends_.push_back(slot.get());
  }

  // False when a message was wrong.
  bool run(long seconds) {
    const auto start = Clock::now();
    while (ms_since(start) < seconds * 1000 && right_) {
      while (!idle_receives_.empty()) {
        Slot* slot = idle_receives_.back();
        if (fi_trecv(me_.ep(), slot->buffer.data(), size_max_, nullptr, FI_ADDR_UNSPEC, call_tag, 0,
                     &slot->op.context) != 0)
          break;
        idle_receives_.pop_back();
      }
      pace_.after(me_.poll([this](const Done& done) { take(done); }));
      echo();
    }
    return right_;
  }

 private:
  void take(const Done& done) {
    Slot& slot = slot_of(done);
    const bool is_send =
        std::any_of(out_.begin(), out_.end(), [&](const auto& s) { return s.get() == &slot; });
    if (is_send) {
      idle_sends_.push_back(&slot);  // whether it arrived or not: the caller asks again
      return;
    }
    if (done.err != 0) return idle_receives_.push_back(&slot);
    slot.op.len = done.len;
    waiting_.push_back(&slot);
  }
  void echo() {
    while (!waiting_.empty() && !idle_sends_.empty()) {
      Slot* from = waiting_.front();
      Slot* to = idle_sends_.back();
      if (!is_right(from->buffer, from->op.len, size_max_)) {
        std::fprintf(stderr, "a call is wrong\n");
        right_ = false;
        return;
      }
      Head head;
      std::memcpy(&head, from->buffer.data(), sizeof head);
      Name name;
      std::memcpy(name.bytes, head.name, head.name_bytes);
      to->buffer = from->buffer;
      const ssize_t rc = fi_tsend(me_.ep(), to->buffer.data(), from->op.len, nullptr, me_.insert(name),
                                  echo_tag, &to->op.context);
      if (rc == -FI_EAGAIN) return;
      if (rc == 0) idle_sends_.pop_back();
      waiting_.erase(waiting_.begin());
      idle_receives_.push_back(from);
    }
  }

  Peer& me_;
  Pace pace_;
  size_t size_max_;
  Slots in_, out_;
  std::vector<Slot*> idle_receives_, idle_sends_, waiting_;
  bool right_ = true;
};

class Caller {
 public:
  Caller(Peer& me, fi_addr_t server, const Arguments& arguments)
      : me_(me),
        server_(server),
        size_max_(arguments.number("size", 100'000)),
        limit_ms_(static_cast<long>(arguments.number("limit-ms", 30'000))),
        in_(make_slots(receives, size_max_)),
        out_(make_slots(arguments.number("window", 16), size_max_)) {
    for (auto& slot : in_) idle_receives_.push_back(slot.get());
  }

  bool run(long seconds, long alive_ms) {
    last_echo_ = pause_until_ = start_ = Clock::now();
    while (ms_since(start_) < (echoes_ > 0 ? seconds : std::max(seconds, 30L)) * 1000 && right_) {
      post_receives();
      if (Clock::now() >= pause_until_) call();
      pace_.after(me_.poll([this](const Done& done) { take(done); }));
      look_at_time();
    }
    const long silent = ms_since(last_echo_);
    std::printf("echoes %llu errors %llu epochs %u longest_pending_ms %ld last_echo_ms %ld\n",
                static_cast<unsigned long long>(echoes_), static_cast<unsigned long long>(errors_), epoch_,
                longest_, silent);
    if (right_ && alive_ms != 0 && silent > alive_ms) {
      std::fprintf(stderr, "the last echo is %ld ms old\n", silent);
      right_ = false;
    }
    return right_;
  }

 private:
  void post_receives() {
    while (!idle_receives_.empty()) {
      Slot* slot = idle_receives_.back();
      if (fi_trecv(me_.ep(), slot->buffer.data(), size_max_, nullptr, FI_ADDR_UNSPEC, echo_tag, 0,
                   &slot->op.context) != 0)
        return;
      idle_receives_.pop_back();
    }
  }
  // At most one window without an echo.
  void call() {
    for (auto& slot : out_) {
      if (slot->busy || outstanding_.size() >= out_.size()) continue;
      Head head{sent_, epoch_, 0, static_cast<uint32_t>(me_.name().size()), {}};
      const uint64_t dice = seed_of(head);
      const size_t body = dice % 8 == 0 ? dice / 8 % (size_max_ - sizeof head) : dice / 8 % 500;
      head.bytes = static_cast<uint32_t>(sizeof head + body);
      std::memcpy(head.name, me_.name().data(), std::min(sizeof head.name, me_.name().size()));
      std::memcpy(slot->buffer.data(), &head, sizeof head);
      fill(slot->buffer.data() + sizeof head, body, seed_of(head));
      const ssize_t rc =
          fi_tsend(me_.ep(), slot->buffer.data(), head.bytes, nullptr, server_, call_tag, &slot->op.context);
      if (rc == -FI_EAGAIN) return;
      if (rc != 0) return begin_anew();
      slot->busy = true;
      slot->since = Clock::now();
      if (outstanding_.empty()) last_progress_ = slot->since;
      outstanding_.insert(sent_++);
    }
  }
  void take(const Done& done) {
    Slot& slot = slot_of(done);
    if (slot.busy) {
      slot.busy = false;
      longest_ = std::max(longest_, ms_since(slot.since));
      if (done.err == 0) return;
      ++errors_;
      return begin_anew();
    }
    idle_receives_.push_back(&slot);
    if (done.err != 0) return;
    Head head{};
    std::memcpy(&head, slot.buffer.data(), sizeof head);
    if (!is_right(slot.buffer, done.len, size_max_)) return wrong("an echo is wrong");
    if (head.epoch > epoch_) return wrong("an echo of the future");
    if (head.epoch != epoch_) return;
    // Long messages may be complete after later ones, but each comes once.
    if (outstanding_.erase(head.seq) == 0) return wrong("an echo that was not asked for, or came before");
    if (++echoes_ == 1) {
      std::puts("first echo");
      std::fflush(stdout);
      start_ = Clock::now();
    }
    last_echo_ = last_progress_ = Clock::now();
  }
  void begin_anew() {
    ++epoch_;
    sent_ = 0;
    outstanding_.clear();
    pause_until_ = Clock::now() + milliseconds(100);
  }
  void look_at_time() {
    const bool pending = std::any_of(out_.begin(), out_.end(), [&](const auto& s) {
      if (s->busy) longest_ = std::max(longest_, ms_since(s->since));
      return s->busy;
    });
    if (longest_ > limit_ms_) return wrong("an operation neither completes nor fails");
    // All sends are over and echoes are missing: they were lost with a connection.
    if (!pending && !outstanding_.empty() && ms_since(last_progress_) > 2'000) begin_anew();
  }
  void wrong(const char* why) {
    std::fprintf(stderr, "%s\n", why);
    right_ = false;
  }

  Peer& me_;
  Pace pace_;
  fi_addr_t server_;
  size_t size_max_;
  long limit_ms_;
  Slots in_, out_;
  std::vector<Slot*> idle_receives_;
  std::set<uint64_t> outstanding_;  // sent in this epoch, no echo yet
  uint64_t sent_ = 0, echoes_ = 0, errors_ = 0;
  uint32_t epoch_ = 0;
  long longest_ = 0;
  Clock::time_point start_, last_echo_, last_progress_, pause_until_;
  bool right_ = true;
};

// Written whole under another name first, so that a reader never sees half.
bool write_name(const std::string& path, const std::vector<uint8_t>& name) {
  const std::string part = path + ".part";
  FILE* file = std::fopen(part.c_str(), "w");
  if (file == nullptr) return false;
  const bool ok = std::fwrite(name.data(), 1, name.size(), file) == name.size();
  return std::fclose(file) == 0 && ok && std::rename(part.c_str(), path.c_str()) == 0;
}

bool read_name(const std::string& path, Name& name) {
  FILE* file = nullptr;
  if (!eventually([&] { return (file = std::fopen(path.c_str(), "r")) != nullptr; })) return false;
  name.len.store(static_cast<uint32_t>(std::fread(name.bytes, 1, sizeof name.bytes, file)));
  return std::fclose(file) == 0;
}

int run(const Arguments& arguments) {
  const std::string node = arguments.text("node", ""), service = arguments.text("service", "");
  // Before the endpoint, so they go after it: what is pending when it closes still reads and writes their buffers.
  std::unique_ptr<Caller> caller;
  std::unique_ptr<Server> answers;
  Peer me(arguments.provider(), FI_TAGGED, FI_THREAD_DOMAIN, node.empty() ? nullptr : node.c_str(),
          service.empty() ? nullptr : service.c_str());
  if (!me.ok()) return 1;
  const long seconds = static_cast<long>(arguments.number("seconds", 10));
  if (const std::string file = arguments.text("serve", ""); !file.empty()) {
    answers = std::make_unique<Server>(me, arguments.number("size", 100'000));
    return write_name(file, me.name()) && answers->run(seconds) ? 0 : 1;
  }
  Name name;
  if (!read_name(arguments.text("call", ""), name)) return 1;
  const fi_addr_t server = me.insert(name);
  if (server == FI_ADDR_NOTAVAIL) return 1;
  caller = std::make_unique<Caller>(me, server, arguments);
  return caller->run(seconds, static_cast<long>(arguments.number("alive-ms", 0))) ? 0 : 1;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) { return weft::system_test::run(weft::system_test::Arguments(argc, argv)); }
