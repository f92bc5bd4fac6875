// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The server of several clients: one endpoint, one completion queue, receives that any client may match.
#include "peers.hpp"

#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>

#include "failure.hpp"
#include "leader.hpp"
#include "runner.hpp"
#include "side.hpp"

namespace weft::tool {

namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds command_limit{86'400'000};  // if a client dies, its channel closes
constexpr unsigned batch = 32;
constexpr unsigned receives_most = 4096;
constexpr uint64_t polls_per_check = 1 << 16;
constexpr int64_t check_ns = 200'000'000;
constexpr int64_t stall_limit_ns = 30'000'000'000;

// The server's half of one step.
class Server {
 public:
  Server(const Agreement& agreement, const std::string& node, std::vector<Channel>& clients)
      : shape_(agreement.shape),
        channels_(clients),
        clients_(clients.size()),
        session_(request(agreement, node, clients.size())),
        is_small_(shape_.size <= session_.info().tx_attr->inject_size),
        tx_(tx_slots(clients.size())),
        rx_(rx_slots(agreement.shape, clients.size())) {
    for (unsigned i = 0; i < tx_.size(); ++i) {
      tx_[i].buffer = session_.base() + session_.tx_offset(i);
      tx_free_.push_back(&tx_[i]);
    }
    for (unsigned i = 0; i < rx_.size(); ++i) {
      rx_[i].buffer = session_.base() + session_.rx_offset(i);
      rx_free_.push_back(&rx_[i]);
    }
  }

  json introduction() const { return introduction_of(session_); }
  void connect(unsigned lane, const json& peer) { clients_[lane].peer = add_peer(session_, peer); }

  void prepare() { post_receives(); }

  // All messages of one run of all clients.
  void run(uint64_t warmup, uint64_t iters) {
    const Test& test = *shape_.test;
    uint64_t each = warmup + iters;
    if (test.is_round_trip()) each = 1;  // "the reads are over"
    else if (test.is_one_sided() && test.unit != Unit::latency) each = (warmup != 0 ? 1 : 0) + 1;
    else if (test.unit != Unit::latency)
      each = whole_windows(warmup, shape_.window) + whole_windows(iters, shape_.window);
    expected_ += each * clients_.size();
    begin_ns_ = now_ns();
    while (came_ < expected_ || !todo_.empty()) {
      if (todo_.empty()) {
        poll();
        continue;
      }
      const unsigned lane = todo_.back();
      todo_.pop_back();
      answer(clients_[lane]);
    }
    while (tx_free_.size() < tx_.size()) poll();
  }

  void poll() {
    fi_cq_tagged_entry entries[batch];
    const ssize_t n = fi_cq_read(session_.cq(), entries, batch);
    if (n > 0) {
      for (ssize_t i = 0; i < n; ++i) take(entries[i]);
      post_receives();
      begin_ns_ = 0;
      return;
    }
    if (n != -FI_EAGAIN && n != 0) completion_error();
    if (++empty_polls_ % polls_per_check == 0) idle();
  }

  std::optional<Packets> packets() const { return session_.packets(); }

 private:
  struct Slot {
    fi_context2 context;  // first: the completion brings back its address
    std::byte* buffer;
  };
  struct Client {
    Session::Peer peer;
    unsigned lane = 0;
    uint64_t came = 0;  // messages, of which each window is acknowledged
  };

  static unsigned tx_slots(size_t clients) { return static_cast<unsigned>(4 * clients); }
  static unsigned rx_slots(const Shape& shape, size_t clients) {
    return static_cast<unsigned>(std::min<size_t>(shape.rx_slots() * clients, receives_most));
  }

  static SessionRequest request(const Agreement& agreement, const std::string& node, size_t clients) {
    SessionRequest r = agreement.request(node);
    r.tx_slots = tx_slots(clients);
    r.rx_slots = rx_slots(agreement.shape, clients);
    r.peers = static_cast<unsigned>(clients);
    return r;
  }

  static Session::Peer add_peer(Session& session, const json& peer) {
    connect_session(session, peer);
    return session.last_peer();
  }

  void take(const fi_cq_tagged_entry& entry) {
    if (entry.flags & (FI_REMOTE_WRITE | FI_REMOTE_READ)) {
      heard(static_cast<unsigned>(entry.data) - 1);
      return;
    }
    auto* slot = static_cast<Slot*>(entry.op_context);
    if (slot >= rx_.data() && slot < rx_.data() + rx_.size()) {
      rx_free_.push_back(slot);
      if (shape_.test->is_one_sided()) ++came_;
      else heard(lane_of(entry.tag));
    } else {
      tx_free_.push_back(slot);
    }
  }

  void heard(unsigned lane) {
    if (lane >= clients_.size()) fail("a message came from a client that there is not");
    Client& client = clients_[lane];
    client.lane = lane;
    ++came_;
    ++client.came;
    if (shape_.test->unit == Unit::latency || client.came % shape_.window == 0) todo_.push_back(lane);
  }

  void answer(const Client& client) {
    if (shape_.test->api == Api::rma) write_back(client);
    else send(client, shape_.test->unit == Unit::latency ? shape_.size : ack_size);
  }

  void send(const Client& client, size_t size) {
    const uint64_t tag = data_tag_of(client.lane);
    if (is_small_ && shape_.test->unit == Unit::latency)
      return repeat(
          [&] { return fi_tinject(session_.ep(), session_.base(), size, client.peer.address, tag); });
    Slot* slot = free_tx();
    repeat([&] {
      return fi_tsend(session_.ep(), slot->buffer, size, session_.descriptor(), client.peer.address, tag,
                      slot);
    });
  }

  void write_back(const Client& client) {
    const RemoteMemory& remote = client.peer.memory;
    const uint64_t address = remote.address + session_.rx_offset(0);
    const uint64_t data = client.lane + 1;
    if (is_small_)
      return repeat([&] {
        return fi_inject_writedata(session_.ep(), session_.base(), shape_.size, data, client.peer.address,
                                   address, remote.key);
      });
    Slot* slot = free_tx();
    repeat([&] {
      return fi_writedata(session_.ep(), slot->buffer, shape_.size, session_.descriptor(), data,
                          client.peer.address, address, remote.key, slot);
    });
  }

  template <class Call>
  void repeat(Call&& call) {
    ssize_t status;
    while ((status = call()) == -FI_EAGAIN) poll();
    if (status != 0)
      fail("{} of {}: {}", shape_.test->name, size_text(shape_.size), fi_strerror(static_cast<int>(-status)));
  }

  Slot* free_tx() {
    while (tx_free_.empty()) poll();
    Slot* slot = tx_free_.back();
    tx_free_.pop_back();
    return slot;
  }

  void post_receives() {
    const bool tagged = shape_.test->api == Api::tagged;
    const size_t size = tagged ? shape_.size : ack_size;
    while (!rx_free_.empty()) {
      Slot* slot = rx_free_.back();
      const ssize_t status =
          tagged ? fi_trecv(session_.ep(), slot->buffer, size, session_.descriptor(), FI_ADDR_UNSPEC,
                            data_tag_of(0), lanes_of_tag, slot)
                 : fi_recv(session_.ep(), slot->buffer, size, session_.descriptor(), FI_ADDR_UNSPEC, slot);
      if (status == -FI_EAGAIN) return;
      if (status != 0) fail("posting a receive: {}", fi_strerror(static_cast<int>(-status)));
      rx_free_.pop_back();
    }
  }

  [[gnu::cold]] void idle() {
    const int64_t now = now_ns();
    if (begin_ns_ == 0) begin_ns_ = now;
    if (now - checked_ns_ < check_ns) return;
    checked_ns_ = now;
    for (size_t i = 0; i < channels_.size(); ++i) {
      if (channels_[i].peer_is_there()) continue;
      channels_[i].receive(milliseconds(100));  // throws what it had to say before it left
      fail("client {} is gone", i);
    }
    if (now - begin_ns_ > stall_limit_ns) fail("nothing has moved for {} s", stall_limit_ns / 1'000'000'000);
  }

  [[gnu::cold]] void completion_error() {
    fi_cq_err_entry error{};
    if (fi_cq_readerr(session_.cq(), &error, 0) != 1) fail("fi_cq_read failed");
    fail("completion with error: {}", fi_strerror(error.err));
  }

  const Shape shape_;
  std::vector<Channel>& channels_;
  std::vector<Client> clients_;
  Session session_;
  const bool is_small_;
  std::vector<Slot> tx_, rx_;
  std::vector<Slot*> tx_free_, rx_free_;
  std::vector<unsigned> todo_;  // clients to answer
  uint64_t came_ = 0, expected_ = 0;
  uint64_t empty_polls_ = 0;
  int64_t begin_ns_ = 0,
          checked_ns_ = 0;  // of the time in which nothing moves; the last look at the channels
};

// Reads the next command of every client: they go through a step together.
class ServerLoop {
 public:
  ServerLoop(std::vector<Channel>& clients, std::string node) : clients_(clients), node_(std::move(node)) {}

  bool obey() {
    std::vector<json> all;
    for (Channel& client : clients_) {
      all.push_back(client.receive(command_limit, [this] {
        if (server_ && is_ready_) server_->poll();
      }));
      if (all.back().at("command") != all.front().at("command")) fail("the clients do not go together");
    }
    const std::string command = all.front().at("command");
    if (command == "open") {
      open(all.front());
    } else if (command == "connect" && server_) {
      for (unsigned i = 0; i < all.size(); ++i) server_->connect(i, all[i]);
      server_->prepare();
      is_ready_ = true;
      send_line({{"ready", true}});
    } else if (command == "run" && is_ready_) {
      run(all.front());
    } else if (command == "close") {
      const auto packets = server_ ? server_->packets() : std::nullopt;
      is_ready_ = false;
      server_.reset();
      clients_.front().send({{"closed", true}, {"packets", to_json(packets)}});
      for (size_t i = 1; i < clients_.size(); ++i) clients_[i].send({{"closed", true}});
    } else if (command == "bye") {
      return false;
    } else {
      fail("unexpected command '{}'", command);
    }
    return true;
  }

 private:
  void send_line(const json& message) {
    for (Channel& client : clients_) client.send(message);
  }

  void open(const json& message) {
    const Agreement agreement = Agreement::from(message);
    if (!agreement.shape.test->takes_peers() || agreement.shape.verify)
      fail("{} is not for several clients", agreement.shape.test->name);
    try {
      server_ = std::make_unique<Server>(agreement, node_, clients_);
      send_line(server_->introduction());
    } catch (const Refused& reason) {
      send_line({{"refused", reason.what()}});
    }
  }

  void run(const json& message) {
    send_line({{"ready", true}});
    const Switches before = switches_now();
    server_->run(message.at("warmup"), message.at("iters"));
    const Switches after = switches_now();
    clients_.front().send({{"voluntary", after.voluntary - before.voluntary},
                           {"involuntary", after.involuntary - before.involuntary}});
    for (size_t i = 1; i < clients_.size(); ++i) clients_[i].send({{"voluntary", 0}, {"involuntary", 0}});
  }

  std::vector<Channel>& clients_;
  const std::string node_;
  std::unique_ptr<Server> server_;
  bool is_ready_ = false;
};

}  // namespace

void serve(std::vector<Channel>& clients, const std::string& node) {
  ServerLoop loop(clients, node);
  try {
    while (loop.obey()) {
    }
  } catch (const std::exception& error) {
    for (Channel& client : clients) {
      try {
        client.send({{"error", fmt::format("(on the other side) {}", error.what())}});
      } catch (const Failure&) {
        // It has left already; the first error is the one to tell.
      }
    }
    throw;
  }
}

}  // namespace weft::tool
