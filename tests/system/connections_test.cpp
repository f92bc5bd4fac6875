// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Peers of connected endpoints that are killed at any moment: while they connect, while they are asked, while both sides send. The survivor
// hears of it in bounded time, every operation that it posted ends, and what had come is whole.
//
//   connections_test [--provider tcp] [--rounds 30] [--seed N]
#include <poll.h>

#include <random>

#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t window = 16;
constexpr size_t message_bytes = 20'000;
constexpr int64_t patience_ms = 20'000;

// One side with at most one connection.
struct Side {
  explicit Side(const std::string& provider) {
    fi_info* hints = fi_allocinfo();
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = FI_EP_MSG;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    good = fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", nullptr, FI_SOURCE, hints, &info) == 0;
    fi_freeinfo(hints);
    if (!good) return;
    fi_eq_attr eq_attr{};
    eq_attr.wait_obj = FI_WAIT_FD;
    good = fi_fabric(info->fabric_attr, &fabric, nullptr) == 0 &&
           fi_domain(fabric, info, &domain, nullptr) == 0 && fi_eq_open(fabric, &eq_attr, &eq, nullptr) == 0;
  }
  ~Side() {
    close();
    if (pep != nullptr) fi_close(&pep->fid);
    if (eq != nullptr) fi_close(&eq->fid);
    if (domain != nullptr) fi_close(&domain->fid);
    if (fabric != nullptr) fi_close(&fabric->fid);
    fi_freeinfo(info);
  }
  bool listen() {
    return fi_passive_ep(fabric, info, &pep, nullptr) == 0 && fi_pep_bind(pep, &eq->fid, 0) == 0 &&
           fi_listen(pep) == 0;
  }
  bool open(fi_info* of) {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_DATA;
    sent = received = received_bad = posted = sending = 0;
    ended = connected = false;
    if (fi_cq_open(domain, &attr, &cq, nullptr) != 0 || fi_endpoint(domain, of, &ep, nullptr) != 0 ||
        fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) != 0 || fi_ep_bind(ep, &eq->fid, 0) != 0 ||
        fi_enable(ep) != 0)
      return false;
    for (size_t i = 0; i < window; ++i) post(i);
    return true;
  }
  void close() {
    if (ep != nullptr) fi_close(&ep->fid);
    if (cq != nullptr) fi_close(&cq->fid);
    ep = nullptr;
    cq = nullptr;
  }
  void post(size_t i) {
    if (fi_recv(ep, in[i].data(), message_bytes, nullptr, 0, &in[i]) == 0) ++posted;
  }
  // Reads completions, receives anew and sends. A peer that never pauses does not keep it. False: something came that is
  // wrong.
  bool pump(bool sends) {
    fi_cq_data_entry entry;
    for (size_t i = 0; i < 4 * window; ++i) {
      const ssize_t n = fi_cq_read(cq, &entry, 1);
      if (n == -FI_EAGAIN) break;
      if (n == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        if (fi_cq_readerr(cq, &error, 0) != 1) return false;
        if ((error.flags & FI_RECV) != 0) {
          --posted;
          ++received_bad;
        } else {
          --sending;
        }
        continue;
      }
      if (n != 1) return false;
      if ((entry.flags & FI_SEND) != 0) {
        --sending;
        continue;
      }
      --posted;
      if (entry.len != message_bytes ||
          first_difference(entry.buf, message_bytes, ++received) != message_bytes) {
        std::fprintf(stderr, "message %lu is not what was sent\n", received);
        return false;
      }
      if (!ended) post(static_cast<size_t>(static_cast<Buffer*>(entry.op_context) - in.data()));
    }
    while (sends && connected && !ended && sending < window) {
      Buffer& buffer = out[sent % window];
      fill(buffer.data(), message_bytes, sent + 1);
      if (fi_send(ep, buffer.data(), message_bytes, nullptr, 0, nullptr) != 0) break;
      ++sent;
      ++sending;
    }
    return true;
  }
  // The next event: its number, or -1 none, or -2 an error event.
  int event(fi_info** request) {
    alignas(fi_eq_cm_entry) char space[512];
    uint32_t number = 0;
    const ssize_t n = fi_eq_read(eq, &number, space, sizeof space, 0);
    if (n == -FI_EAGAIN) return -1;
    if (n == -FI_EAVAIL) {
      fi_eq_err_entry error{};
      fi_eq_readerr(eq, &error, 0);
      ended = true;
      return -2;
    }
    if (number == FI_CONNREQ) *request = reinterpret_cast<fi_eq_cm_entry*>(space)->info;
    if (number == FI_CONNECTED) connected = true;
    if (number == FI_SHUTDOWN) ended = true;
    return static_cast<int>(number);
  }
  bool idle() const { return posted == 0 && sending == 0; }

  using Buffer = std::array<char, message_bytes>;
  bool good = false;
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_eq* eq = nullptr;
  fid_pep* pep = nullptr;
  fid_cq* cq = nullptr;
  fid_ep* ep = nullptr;
  std::vector<Buffer> in = std::vector<Buffer>(window);
  std::vector<Buffer> out = std::vector<Buffer>(window);
  uint64_t sent = 0;
  uint64_t received = 0;
  uint64_t received_bad = 0;
  size_t posted = 0;
  size_t sending = 0;
  bool ended = false;
  bool connected = false;
};

// Answers requests and exchanges messages for ever, or connects and does: until it is killed.
int child(const std::string& provider, bool server, int channel) {
  Side side(provider);
  char name[128] = {};
  size_t len = sizeof name;
  if (!side.good) return 1;
  if (server) {
    if (!side.listen() || fi_getname(&side.pep->fid, name, &len) != 0) return 1;
    if (write(channel, name, sizeof name) != sizeof name) return 1;
  } else {
    if (read(channel, name, sizeof name) != sizeof name || !side.open(side.info)) return 1;
    if (fi_connect(side.ep, name, nullptr, 0) != 0) return 1;
  }
  for (;;) {
    fi_info* request = nullptr;
    const int number = side.event(&request);
    if (number == FI_CONNREQ) {
      if (!side.open(request) || fi_accept(side.ep, nullptr, 0) != 0) return 1;
      fi_freeinfo(request);
    }
    if (side.ep != nullptr && !side.pump(true)) return 1;
    if (side.ended) return 0;
  }
}

// What must be true sooner or later, with both queues read.
template <class F>
bool drive(Side& side, bool sends, F&& done, int64_t limit_ms) {
  const auto start = Clock::now();
  while (!done()) {
    if (ms_since(start) > limit_ms) return false;
    fi_info* request = nullptr;
    if (side.event(&request) == FI_CONNREQ) {
      const bool accepted = side.ep == nullptr && side.open(request);
      if (accepted && fi_accept(side.ep, nullptr, 0) != 0) side.close();
      fi_freeinfo(request);
    }
    if (side.ep != nullptr && !side.pump(sends)) return false;
  }
  return true;
}

int parent(const std::string& provider, int rounds, uint64_t seed) {
  std::mt19937_64 random(seed);
  uint64_t messages = 0;
  int connected = 0;
  for (int round = 0; round < rounds; ++round) {
    const bool server = round % 2 == 0;
    int pipes[2][2];
    if (pipe(pipes[0]) != 0 || pipe(pipes[1]) != 0) return 1;
    // A new program, so that it has nothing of ours.
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(server ? pipes[0][0] : pipes[0][1], 3);
      execl("/proc/self/exe", "connections_test", "--provider", provider.c_str(), "--child",
            server ? "client" : "server", nullptr);
      _exit(1);
    }
    Side side(provider);
    if (!side.good) return 77;
    char name[128] = {};
    size_t len = sizeof name;
    if (server) {
      if (!side.listen() || fi_getname(&side.pep->fid, name, &len) != 0) return 1;
      if (write(pipes[0][1], name, sizeof name) != sizeof name) return 1;
    } else {
      if (read(pipes[0][0], name, sizeof name) != sizeof name) return 1;
      if (!side.open(side.info) || fi_connect(side.ep, name, nullptr, 0) != 0) return 1;
    }
    const auto life = static_cast<int64_t>(random() % 60);
    const auto start = Clock::now();
    (void)drive(
        side, true, [&] { return ms_since(start) >= life || side.ended; }, patience_ms);
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
      std::fprintf(stderr, "round %d: the other side failed\n", round);
      return 1;
    }
    // Whoever was never asked has nothing to hear.
    const auto killed = Clock::now();
    const bool heard = drive(
        side, false,
        [&] {
          const bool nobody = side.ep == nullptr && ms_since(killed) > 200;
          return nobody || (side.ep != nullptr && side.ended && (side.idle() || !side.connected));
        },
        patience_ms);
    if (!heard) {
      std::fprintf(
          stderr,
          "round %d, seed %lu: killed after %ld ms, not noticed within %ld ms: ended %d connected %d "
          "receives %zu sends %zu\n",
          round, seed, static_cast<long>(life), ms_since(killed), side.ended, side.connected, side.posted,
          side.sending);
      return 1;
    }
    if (side.ep != nullptr && side.ended) {
      char byte = 0;
      if (fi_send(side.ep, &byte, 1, nullptr, 0, nullptr) != -FI_ENOTCONN) {
        std::fprintf(stderr, "round %d: a send after the end was taken\n", round);
        return 1;
      }
    }
    connected += side.connected ? 1 : 0;
    messages += side.received;
    for (auto& pair : pipes) {
      ::close(pair[0]);
      ::close(pair[1]);
    }
  }
  std::printf("%d rounds, %d connected, %lu messages whole\n", rounds, connected, messages);
  return 0;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) {
  using namespace weft::system_test;
  const Arguments arguments(argc, argv);
  const std::string provider = arguments.text("provider", "tcp");
  const std::string role = arguments.text("child", "");
  std::signal(SIGPIPE, SIG_IGN);
  if (!role.empty()) return child(provider, role == "server", 3);
  // Ten times slower, and what it looks for it finds in the first rounds.
  const char* sanitizer = std::getenv("WEFT_SANITIZE");
  const bool slow = sanitizer != nullptr && std::strcmp(sanitizer, "thread") == 0;
  return parent(provider, static_cast<int>(arguments.number("rounds", slow ? 8 : 30)),
                arguments.number("seed", static_cast<uint64_t>(getpid())));
}
