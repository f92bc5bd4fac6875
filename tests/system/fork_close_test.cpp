// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two processes exchange verified messages; one of them forks in the middle. What the child does with what it inherited must not disturb its parent:
// it closes everything, it ends with its exit handlers run, or it goes on polling and sending first.
//
//   fork_close_test [--provider tcp] [--kind rdm|msg|dgram] [--child close|exit|use]
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fi_cm.h>

#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t window = 8;
constexpr uint64_t round_messages = 64;
constexpr int silence_ms_max = 5000;
constexpr size_t room = size_t{512} << 10;

struct Board {
  Name parent, partner;
  std::atomic<uint64_t> rounds{UINT64_MAX};  // that both do; said by the parent when its children have ended
  std::atomic<bool> failed{false};
};

size_t bytes_of(const std::string& kind, uint64_t number) {
  constexpr std::array<size_t, 7> sizes{8, 40, 1000, 8, 20'000, 300'000, 64};
  const size_t bytes = sizes[number % sizes.size()];
  return kind == "dgram" ? std::min<size_t>(bytes, 1000) : bytes;
}

// One side: everything that there is to open, and a queue that can be slept on.
struct Side {
  std::string kind;
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_eq* eq = nullptr;
  fid_pep* pep = nullptr;
  fid_av* av = nullptr;
  fid_cq* cq = nullptr;
  fid_ep* ep = nullptr;
  fi_addr_t to = FI_ADDR_UNSPEC;
  uint64_t sent = 0, sent_done = 0, posted = 0, received = 0;
  std::vector<std::vector<uint8_t>> in, out;
  std::vector<fi_context2> contexts;
  std::vector<bool> ended;  // by context, until those before it have ended
  uint64_t turns = 0;
  bool bad = false;

  bool good(const char* what, ssize_t rc) {
    if (rc != 0)
      std::fprintf(stderr, "%d: %s: %zd (%s)\n", getpid(), what, rc, fi_strerror(static_cast<int>(-rc)));
    bad = bad || rc != 0;
    return rc == 0;
  }
  bool find(const std::string& provider, const char* node, const char* service, uint64_t flags) {
    fi_info* hints = fi_allocinfo();
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = kind == "msg" ? FI_EP_MSG : kind == "dgram" ? FI_EP_DGRAM : FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    const int rc = fi_getinfo(FI_VERSION(1, 17), node, service, flags, hints, &info);
    fi_freeinfo(hints);
    return good("fi_getinfo", rc) && good("fi_fabric", fi_fabric(info->fabric_attr, &fabric, nullptr));
  }
  bool open_domain() {
    fi_eq_attr eq_attr{};
    eq_attr.wait_obj = FI_WAIT_UNSPEC;
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_MSG;
    cq_attr.wait_obj = FI_WAIT_FD;
    fi_av_attr av_attr{};
    return good("fi_domain", fi_domain(fabric, info, &domain, nullptr)) &&
           (eq != nullptr || good("fi_eq_open", fi_eq_open(fabric, &eq_attr, &eq, nullptr))) &&
           good("fi_av_open", fi_av_open(domain, &av_attr, &av, nullptr)) &&
           good("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, nullptr));
  }
  bool open_endpoint() {
    return good("fi_endpoint", fi_endpoint(domain, info, &ep, nullptr)) &&
           good("bind", kind == "msg" ? fi_ep_bind(ep, &eq->fid, 0) : fi_ep_bind(ep, &av->fid, 0)) &&
           good("bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV)) && good("fi_enable", fi_enable(ep));
  }
  void publish(Name& name) {
    size_t length = sizeof name.bytes;
    if (good("fi_getname", fi_getname(pep != nullptr ? &pep->fid : &ep->fid, name.bytes, &length)))
      name.len.store(static_cast<uint32_t>(length), std::memory_order_release);
  }
  bool await(const Name& name) {
    return eventually([&] { return name.len.load(std::memory_order_acquire) != 0; });
  }
  bool event(uint32_t wanted, fi_info** request) {
    fi_eq_cm_entry entry{};
    uint32_t event = 0;
    const ssize_t got = fi_eq_sread(eq, &event, &entry, sizeof entry, 10'000, 0);
    if (got < 0 || event != wanted) return good("fi_eq_sread", got < 0 ? got : -FI_EOTHER);
    if (request != nullptr) *request = entry.info;
    return true;
  }
  bool meet(const std::string& provider, Name& mine, Name& theirs, bool listens) {
    in.assign(window, std::vector<uint8_t>(room));
    out.assign(window, std::vector<uint8_t>(room));
    contexts.resize(2 * window);
    ended.assign(2 * window, false);
    const bool ip = provider != "shm" && provider != "weft";
    if (!find(provider, ip ? "127.0.0.1" : nullptr, ip && kind == "msg" ? "0" : nullptr, ip ? FI_SOURCE : 0))
      return false;
    if (kind != "msg") {
      if (!open_domain() || !open_endpoint()) return false;
      publish(mine);
      return await(theirs) && fi_av_insert(av, theirs.bytes, 1, &to, 0, nullptr) == 1;
    }
    if (listens) {
      fi_eq_attr eq_attr{};
      eq_attr.wait_obj = FI_WAIT_UNSPEC;
      if (!good("fi_eq_open", fi_eq_open(fabric, &eq_attr, &eq, nullptr)) ||
          !good("fi_passive_ep", fi_passive_ep(fabric, info, &pep, nullptr)) ||
          !good("fi_pep_bind", fi_pep_bind(pep, &eq->fid, 0)) || !good("fi_listen", fi_listen(pep)))
        return false;
      publish(mine);
      fi_info* request = nullptr;
      if (!event(FI_CONNREQ, &request)) return false;
      fi_freeinfo(info);
      info = request;
      return open_domain() && open_endpoint() && good("fi_accept", fi_accept(ep, nullptr, 0)) &&
             event(FI_CONNECTED, nullptr);
    }
    return await(theirs) && open_domain() && open_endpoint() &&
           good("fi_connect", fi_connect(ep, theirs.bytes, nullptr, 0)) && event(FI_CONNECTED, nullptr);
  }
  // In an order that libfabric allows; all of it must succeed.
  bool close() {
    bool closed = true;
    for (fid* object : {ep != nullptr ? &ep->fid : nullptr, pep != nullptr ? &pep->fid : nullptr,
                        cq != nullptr ? &cq->fid : nullptr, av != nullptr ? &av->fid : nullptr,
                        eq != nullptr ? &eq->fid : nullptr, domain != nullptr ? &domain->fid : nullptr,
                        fabric != nullptr ? &fabric->fid : nullptr})
      if (object != nullptr) closed = good("fi_close", fi_close(object)) && closed;
    fi_freeinfo(info);
    return closed;
  }

  void take(bool sleeps) {
    fi_cq_msg_entry entries[16];
    ::fid* waited = &cq->fid;
    if (sleeps && fi_trywait(fabric, &waited, 1) == 0) {
      int fd = -1;
      (void)fi_control(&cq->fid, FI_GETWAIT, &fd);
      pollfd ready{fd, POLLIN, 0};
      // Something always comes: an empty poll set would be silent for ever.
      if (poll(&ready, 1, silence_ms_max) == 0) good("the queue's descriptor is silent", -FI_ETIMEDOUT);
    }
    const ssize_t got = fi_cq_read(cq, entries, 16);
    if (got == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      if (fi_cq_readerr(cq, &error, 0) == 1)
        good(fi_cq_strerror(cq, error.prov_errno, nullptr, nullptr, 0), -error.err);
      return;
    }
    if (got < 0 && got != -FI_EAGAIN) good("fi_cq_read", got);
    for (ssize_t i = 0; i < got; ++i) {
      const auto slot =
          static_cast<size_t>(static_cast<fi_context2*>(entries[i].op_context) - contexts.data());
      ended.at(slot) = true;
      if (slot >= window) continue;
      const uint64_t number = received + (slot - received) % window;
      const size_t bytes = bytes_of(kind, number);
      if (entries[i].len != bytes || first_difference(in[slot].data(), bytes, number) != bytes) {
        std::fprintf(stderr, "%d: message %lu: %zu bytes, wrong\n", getpid(), number, entries[i].len);
        bad = true;
      }
    }
    // A large message may end after those that follow it.
    for (; received < posted && ended[received % window]; ++received) ended[received % window] = false;
    for (; sent_done < sent && ended[window + sent_done % window]; ++sent_done)
      ended[window + sent_done % window] = false;
  }
  // Both sides send and receive all messages before `end`.
  bool talk(uint64_t end, const std::function<bool(uint64_t)>& between = {}) {
    return eventually([&] {
             while (posted < end && posted < received + window) {
               const ssize_t rc = fi_recv(ep, in[posted % window].data(), room, nullptr, FI_ADDR_UNSPEC,
                                          &contexts[posted % window]);
               if (rc != 0) break;
               ++posted;
             }
             // A datagram needs a posted receive: half a window stays for those on their way.
             const uint64_t ahead = kind == "dgram" ? window / 2 : window;
             while (sent < end && sent < sent_done + window && sent < received + ahead) {
               std::vector<uint8_t>& message = out[sent % window];
               const size_t bytes = bytes_of(kind, sent);
               fill(message.data(), bytes, sent);
               const ssize_t rc =
                   fi_send(ep, message.data(), bytes, nullptr, to, &contexts[window + sent % window]);
               if (rc == -FI_EAGAIN) break;
               if (!good("fi_send", rc)) return true;
               ++sent;
             }
             // Asleep whenever nothing can be sent, so that each fork finds a queue that was slept on.
             take(++turns % 4 == 0 &&
                  (sent == end || sent - sent_done == window || sent == received + ahead));
             if (between && !between(sent)) bad = true;
             return bad || (sent_done == end && received == end);
           }) &&
           !bad;
  }
};

int child_of(Side& side, const std::string& what) {
  if (what == "use") {
    std::vector<uint8_t> nonsense(100, 0xee);
    fi_context2 context[9];
    for (int i = 0; i < 8; ++i)
      (void)fi_send(side.ep, nonsense.data(), nonsense.size(), nullptr, side.to, &context[i]);
    (void)fi_inject(side.ep, nonsense.data(), 8, side.to);
    fi_cq_msg_entry entry;
    for (int i = 0; i < 2000; ++i) (void)fi_cq_read(side.cq, &entry, 1);
    (void)fi_cq_sread(side.cq, &entry, 1, nullptr, 20);
  }
  return what == "exit" || side.close() ? 0 : 1;
}

bool parent_talks(Side& me, Board& board, const std::string& child) {
  pid_t pid = 0;
  uint64_t round = 0;
  const auto forks = [&](uint64_t sent) {
    if (pid != 0 || sent < round_messages / 2) return true;
    std::fflush(nullptr);
    pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      me.bad = false;
      std::exit(child_of(me, child));  // runs destructors and exit handlers
    }
    return pid > 0;
  };
  int status = -1;
  bool ended = false;
  // On while the child does what it does, and two rounds after it has ended.
  for (uint64_t last = UINT64_MAX; round != last;) {
    ++round;
    if (ended && last == UINT64_MAX) {
      last = round + 1;
      board.rounds = last;
    }
    if (!me.talk(round * round_messages, forks)) return false;
    if (!ended && waitpid(pid, &status, WNOHANG) == pid) ended = true;
    if (round > 100'000) return false;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::fprintf(stderr, "the child ended with %x\n", static_cast<unsigned>(status));
    return false;
  }
  return true;
}

bool partner_talks(Side& me, Board& board) {
  for (uint64_t round = 1; round <= board.rounds; ++round)
    if (!me.talk(round * round_messages)) return false;
  return true;
}

bool play(const std::string& provider, const std::string& kind, const std::string& child) {
  const auto start = Clock::now();
  auto* board = shared_block<Board>();
  const pid_t other = spawn([&] {
    Side me;
    me.kind = kind;
    const bool good = me.meet(provider, board->partner, board->parent, false) && partner_talks(me, *board);
    if (!good) board->failed = true;
    return me.close() && good ? 0 : 1;
  });
  Side me;
  me.kind = kind;
  bool good = me.meet(provider, board->parent, board->partner, true) && parent_talks(me, *board, child);
  // The partner's last sends may need our acknowledgements.
  const auto last = Clock::now();
  int status = 0;
  while (waitpid(other, &status, WNOHANG) == 0) {
    if (good && me.ep != nullptr && ms_since(last) < 10'000) {
      fi_cq_msg_entry entry;
      (void)fi_cq_read(me.cq, &entry, 1);
    } else {
      kill(other, SIGKILL);
    }
  }
  good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  good = me.close() && good;
  std::printf("fork_close_test: %s %s, the child %ss: %s, %lu messages, %ld ms\n", provider.c_str(),
              kind.c_str(), child.c_str(), good ? "ok" : "FAILED", me.received, ms_since(start));
  std::fflush(stdout);
  return good;
}

int run(const Arguments& arguments) {
  struct Case {
    const char* provider;
    const char* kind;
  };
  constexpr Case cases[] = {{"shm", "rdm"},  {"tcp", "rdm"}, {"udp;ofi_rxd", "rdm"}, {"tcp;ofi_rxm", "rdm"},
                            {"weft", "rdm"}, {"tcp", "msg"}, {"udp", "dgram"}};
  const std::string provider = arguments.text("provider", ""), kind = arguments.text("kind", ""),
                    child = arguments.text("child", "");
  bool good = true;
  for (const Case& at : cases) {
    if ((!provider.empty() && provider != at.provider) || (!kind.empty() && kind != at.kind)) continue;
    for (const char* what : {"close", "exit", "use"}) {
      if (!child.empty() && child != what) continue;
      // Shared memory has no guard against a child that goes on: docs/libfabric.md.
      if (std::string(what) == "use" &&
          (std::string(at.provider) == "shm" || std::string(at.provider) == "weft"))
        continue;
      good = play(at.provider, at.kind, what) && good;
    }
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  alarm(240);
  return run(arguments);
}
