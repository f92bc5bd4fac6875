// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A process is killed before it has read what was injected to it. Its sender has no completion entry without a context, an error in its counter, and an
// entry of its next operation that tells of the earlier messages. With --entries (WEFT_INJECT_ERRORS=yes) it has entries, with the flags of the injects.
//
//   inject_errors --provider shm [--untagged] [--entries]
#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr int injects = 8;
constexpr milliseconds limit{20'000};

struct Board {
  Name name;
  std::atomic<bool> heard{false};  // the target has the first message, and calls the library no more
};

struct Entry {
  fi_cq_err_entry error{};
  std::vector<uint8_t> data;
  std::string text;
};

int fail(const char* what) {
  std::fprintf(stderr, "FAILED: %s\n", what);
  return 1;
}

class Sender {
 public:
  Sender(Board& board, const std::string& provider, bool tagged, bool entries)
      : board_(board),
        tagged_(tagged),
        entries_(entries),
        peer_(provider, FI_TAGGED | FI_MSG, FI_THREAD_DOMAIN, nullptr, nullptr, FI_TRANSMIT_COMPLETE,
              FI_PROGRESS_UNSPEC, FI_WAIT_NONE, true) {}

  int run(pid_t target) {
    if (!peer_.ok()) return fail("no endpoint");
    to_ = peer_.reach(board_.name);
    if (to_ == FI_ADDR_NOTAVAIL) return fail("no address");
    if (!send(sizeof word_) || !eventually([&] { return done_ != 0 || read(); }, limit) || done_ != 1)
      return fail("the first message");
    if (!eventually([&] { return read(), board_.heard.load(); }, limit))
      return fail("the first message did not arrive");
    for (int i = 0; i < injects; ++i)
      if (!inject()) return fail("an inject was refused");
    kill(target, SIGKILL);
    (void)join(target, limit);
    // What the sender hears before it does anything.
    if (!eventually([&] { return read(), fi_cntr_readerr(peer_.sends()) != 0; }, limit))
      return fail("the counter has no error");
    const auto start = Clock::now();
    while (ms_since(start) < 200) read();
    if (entries_) return check_entries();
    if (!errors_.empty()) return fail("an entry that belongs to no operation");
    // An eager message over shm would complete before it is known whether a process reads there.
    if (!send(large_.size())) return 0;  // refused by its call, which says it, too
    if (!eventually([&] { return read(), !errors_.empty(); }, limit)) return fail("no word of the next one");
    const Entry& entry = errors_.front();
    if (entry.error.op_context != &context_) return fail("an entry without its context");
    if (entry.error.flags != flags()) return fail("flags of an error entry");
    if (entry.text.find("earlier messages") == std::string::npos) {
      std::fprintf(stderr, "%s\n", entry.text.c_str());
      return fail("the next operation does not tell of the earlier ones");
    }
    return 0;
  }

 private:
  uint64_t flags() const { return FI_SEND | (tagged_ ? FI_TAGGED : FI_MSG); }
  bool send(size_t bytes) {
    return peer_.post(
               [&] {
                 return tagged_ ? fi_tsend(peer_.ep(), large_.data(), bytes, nullptr, to_, 1, &context_)
                                : fi_send(peer_.ep(), large_.data(), bytes, nullptr, to_, &context_);
               },
               [](const Done&) {}) == 0;
  }
  bool inject() {
    return peer_.post(
               [&] {
                 return tagged_ ? fi_tinject(peer_.ep(), &word_, sizeof word_, to_, 1)
                                : fi_inject(peer_.ep(), &word_, sizeof word_, to_);
               },
               [](const Done&) {}) == 0;
  }
  bool read() {
    fi_cq_tagged_entry entry;
    const ssize_t got = fi_cq_read(peer_.cq(), &entry, 1);
    if (got > 0) ++done_;
    if (got != -FI_EAVAIL) return false;
    Entry one;
    one.data.resize(256);
    one.error.err_data = one.data.data();
    one.error.err_data_size = one.data.size();
    if (fi_cq_readerr(peer_.cq(), &one.error, 0) != 1) return false;
    one.data.resize(one.error.err_data_size);
    one.text = fi_cq_strerror(peer_.cq(), one.error.prov_errno, one.data.data(), nullptr, 0);
    errors_.push_back(std::move(one));
    return true;
  }
  int check_entries() const {
    if (errors_.empty()) return fail("no entry, though WEFT_INJECT_ERRORS asks for them");
    for (const Entry& entry : errors_) {
      if (entry.error.op_context != nullptr) return fail("an entry of an inject with a context");
      if (entry.error.flags != flags()) {
        std::fprintf(stderr, "flags %#llx\n", static_cast<unsigned long long>(entry.error.flags));
        return fail("flags of an inject's entry");
      }
      if (entry.error.err == 0) return fail("an entry without an error");
      const size_t length = board_.name.len;
      if (entry.data.size() != length || std::memcmp(entry.data.data(), board_.name.bytes, length) != 0)
        return fail("an entry does not name its peer");
    }
    return 0;
  }

  Board& board_;
  const bool tagged_, entries_;
  uint64_t word_ = 7;
  std::vector<uint8_t> large_ = std::vector<uint8_t>(1 << 20, 1);
  fi_context2 context_{};
  std::vector<Entry> errors_;
  int done_ = 0;
  fi_addr_t to_ = FI_ADDR_NOTAVAIL;
  Peer peer_;
};

int target(Board& board, const std::string& provider, bool tagged) {
  Peer peer(provider, FI_TAGGED | FI_MSG);
  if (!peer.ok()) return 1;
  uint64_t word = 0;
  fi_context2 context{};
  const ssize_t posted =
      tagged ? fi_trecv(peer.ep(), &word, sizeof word, nullptr, FI_ADDR_UNSPEC, 1, 0, &context)
             : fi_recv(peer.ep(), &word, sizeof word, nullptr, FI_ADDR_UNSPEC, &context);
  if (posted != 0) return fail("no receive");
  peer.publish(board.name);
  int got = 0;
  if (!eventually([&] { return peer.poll([&](const Done&) { ++got; }), got != 0; }, limit)) return 1;
  const auto start = Clock::now();
  while (ms_since(start) < 50) peer.poll([](const Done&) {});  // its acknowledgement leaves
  board.heard = true;
  while (true) pause();
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  const std::string provider = arguments.provider();
  const bool tagged = arguments.number("untagged", 0) == 0;
  auto* board = shared_block<Board>();
  const pid_t pid = spawn([&] { return target(*board, provider, tagged); });
  Sender sender(*board, provider, tagged, arguments.number("entries", 0) != 0);
  return sender.run(pid);
}
