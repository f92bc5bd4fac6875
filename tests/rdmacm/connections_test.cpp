// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// librdmacm.so.1 by its public calls: what connects, what is refused and with which errno or status, what a killed peer causes, and that nothing is left.
// Prints a line for each case and ends with 1 where one fails.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

int failures = 0;
const char* current = "";

#define CHECK(condition)                                                                         \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      std::printf("FAILED: %s: %s (line %d, errno %d)\n", current, #condition, __LINE__, errno); \
      ++failures;                                                                                \
      return;                                                                                    \
    }                                                                                            \
  } while (false)

sockaddr_in address(const char* host, uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  inet_pton(AF_INET, host, &in.sin_addr);
  return in;
}
sockaddr* any(sockaddr_in& in) { return reinterpret_cast<sockaddr*>(&in); }

bool readable(int fd, int ms) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, ms) == 1;
}

// The next event of the channel, which has to be this one. Acknowledged by the caller.
rdma_cm_event* await(rdma_event_channel* channel, rdma_cm_event_type type, int ms = 20'000) {
  if (!readable(channel->fd, ms)) {
    std::printf("no event where %s was expected\n", rdma_event_str(type));
    return nullptr;
  }
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel, &event) != 0) return nullptr;
  if (event->event != type) {
    std::printf("%s (status %d) where %s was expected\n", rdma_event_str(event->event), event->status,
                rdma_event_str(type));
    rdma_ack_cm_event(event);
    return nullptr;
  }
  return event;
}
bool expect(rdma_event_channel* channel, rdma_cm_event_type type) {
  rdma_cm_event* event = await(channel, type);
  if (event == nullptr) return false;
  rdma_ack_cm_event(event);
  return true;
}

struct Listener {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  uint16_t port = 0;
  explicit Listener(int backlog = 64) {
    sockaddr_in in = address("127.0.0.1", 0);
    if (rdma_create_id(channel, &id, this, RDMA_PS_TCP) != 0 || rdma_bind_addr(id, any(in)) != 0 ||
        rdma_listen(id, backlog) != 0)
      std::perror("listener");
    port = ntohs(rdma_get_src_port(id));
  }
  ~Listener() {
    if (id != nullptr) rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
  }
};

struct Client {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  ibv_cq* queue = nullptr;
  bool is_ready = false;
  explicit Client(uint16_t port) {
    sockaddr_in in = address("127.0.0.1", port);
    is_ready = rdma_create_id(channel, &id, this, RDMA_PS_TCP) == 0 &&
               rdma_resolve_addr(id, nullptr, any(in), 1000) == 0 &&
               expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED) && rdma_resolve_route(id, 1000) == 0 &&
               expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  bool make_qp() {
    ibv_qp_init_attr attr{};
    queue = ibv_create_cq(id->verbs, 8, nullptr, nullptr, 0);
    attr.send_cq = attr.recv_cq = queue;
    attr.cap = {4, 4, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    return rdma_create_qp(id, nullptr, &attr) == 0;
  }
  ~Client() {
    if (id != nullptr && id->qp != nullptr) rdma_destroy_qp(id);
    if (queue != nullptr) ibv_destroy_cq(queue);
    if (id != nullptr) rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
  }
};

rdma_conn_param parameters(const void* data = nullptr, size_t bytes = 0) {
  rdma_conn_param p{};
  p.private_data = data;
  p.private_data_len = static_cast<uint8_t>(bytes);
  p.responder_resources = p.initiator_depth = 1;
  p.retry_count = p.rnr_retry_count = 7;
  p.qp_num = 4711;
  return p;
}

int open_descriptors() {
  int count = 0;
  if (DIR* folder = opendir("/proc/self/fd")) {
    while (readdir(folder) != nullptr) ++count;
    closedir(folder);
  }
  return count;
}

// Both ends in this process, without a queue pair where `own` is false. The accepted id, or null.
rdma_cm_id* connect(Client& client, Listener& listener) {
  rdma_conn_param p = parameters();
  if (!client.is_ready || rdma_connect(client.id, &p) != 0) return nullptr;
  rdma_cm_event* request = await(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  if (request == nullptr) return nullptr;
  rdma_cm_id* accepted = request->id;
  rdma_conn_param q = parameters();
  const bool good = rdma_accept(accepted, &q) == 0;
  rdma_ack_cm_event(request);
  if (!good || !expect(client.channel, RDMA_CM_EVENT_CONNECT_RESPONSE) || rdma_establish(client.id) != 0 ||
      !expect(listener.channel, RDMA_CM_EVENT_ESTABLISHED))
    return nullptr;
  return accepted;
}

void no_listener_is_there() {
  Client client(9);
  CHECK(client.is_ready);
  rdma_conn_param p = parameters();
  CHECK(rdma_connect(client.id, &p) == 0);
  rdma_cm_event* event = await(client.channel, RDMA_CM_EVENT_REJECTED);
  CHECK(event != nullptr);
  const int status = event->status;
  rdma_ack_cm_event(event);
  CHECK(status == 8);
}

void private_data_travels() {
  Listener listener;
  Client client(listener.port);
  CHECK(client.is_ready && client.make_qp());
  char out[56], back[196];
  std::memset(out, 'a', sizeof out);
  std::memset(back, 'b', sizeof back);
  rdma_conn_param p = parameters(out, 57);
  CHECK(rdma_connect(client.id, &p) == -1 && errno == EINVAL);
  p = parameters(out, sizeof out);
  CHECK(rdma_connect(client.id, &p) == 0);
  rdma_cm_event* request = await(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  CHECK(request != nullptr);
  CHECK(request->listen_id == listener.id && request->id != listener.id && request->id->context == &listener);
  CHECK(request->param.conn.private_data_len == 56 &&
        std::memcmp(request->param.conn.private_data, out, 56) == 0);
  CHECK(request->param.conn.qp_num == client.id->qp->qp_num && request->param.conn.retry_count == 7);
  CHECK(request->id->verbs == client.id->verbs);
  rdma_cm_id* accepted = request->id;
  CHECK(rdma_get_dst_port(accepted) == rdma_get_src_port(client.id) &&
        ntohs(rdma_get_src_port(accepted)) == listener.port);
  // The queue pair of this end is the program's own business here.
  ibv_qp_init_attr attr{};
  ibv_cq* queue = ibv_create_cq(accepted->verbs, 8, nullptr, nullptr, 0);
  attr.send_cq = attr.recv_cq = queue;
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  CHECK(rdma_create_qp(accepted, nullptr, &attr) == 0);
  rdma_conn_param q = parameters(back, sizeof back);
  CHECK(rdma_accept(accepted, &q) == 0);
  rdma_ack_cm_event(request);
  rdma_cm_event* event = await(client.channel, RDMA_CM_EVENT_ESTABLISHED);
  CHECK(event != nullptr);
  CHECK(event->param.conn.private_data_len == 196 &&
        std::memcmp(event->param.conn.private_data, back, 196) == 0);
  rdma_ack_cm_event(event);
  CHECK(expect(listener.channel, RDMA_CM_EVENT_ESTABLISHED));
  // The queue pairs carry a message.
  char word[8] = "fabric";
  char room[8] = {};
  ibv_mr* from = ibv_reg_mr(client.id->pd, word, sizeof word, 0);
  ibv_mr* into = ibv_reg_mr(accepted->pd, room, sizeof room, IBV_ACCESS_LOCAL_WRITE);
  ibv_sge receive_element{reinterpret_cast<uint64_t>(room), sizeof room, into->lkey},
      send_element{reinterpret_cast<uint64_t>(word), sizeof word, from->lkey};
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  receive.sg_list = &receive_element;
  receive.num_sge = 1;
  CHECK(ibv_post_recv(accepted->qp, &receive, &bad_receive) == 0);
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  send.sg_list = &send_element;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  CHECK(ibv_post_send(client.id->qp, &send, &bad_send) == 0);
  ibv_wc completion{};
  for (int i = 0; i < 20'000 && ibv_poll_cq(queue, 1, &completion) == 0; ++i) usleep(1000);
  CHECK(completion.status == IBV_WC_SUCCESS && std::strcmp(room, "fabric") == 0);
  completion = {};
  for (int i = 0; i < 20'000 && ibv_poll_cq(client.queue, 1, &completion) == 0; ++i) usleep(1000);
  ibv_dereg_mr(from);
  ibv_dereg_mr(into);
  CHECK(rdma_disconnect(client.id) == 0);
  CHECK(expect(listener.channel, RDMA_CM_EVENT_DISCONNECTED));
  CHECK(rdma_disconnect(accepted) == 0);
  CHECK(expect(client.channel, RDMA_CM_EVENT_DISCONNECTED));
  rdma_destroy_qp(accepted);
  ibv_destroy_cq(queue);
  CHECK(rdma_destroy_id(accepted) == 0);
}

void a_rejection_carries_data() {
  Listener listener;
  Client client(listener.port);
  rdma_conn_param p = parameters();
  CHECK(client.is_ready && rdma_connect(client.id, &p) == 0);
  rdma_cm_event* request = await(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  CHECK(request != nullptr);
  CHECK(rdma_reject(request->id, "no", 3) == 0);
  rdma_cm_id* refused = request->id;
  rdma_ack_cm_event(request);
  CHECK(rdma_destroy_id(refused) == 0);
  rdma_cm_event* event = await(client.channel, RDMA_CM_EVENT_REJECTED);
  CHECK(event != nullptr);
  const bool good = event->status == 28 && event->param.conn.private_data_len == 148 &&
                    std::strcmp(static_cast<const char*>(event->param.conn.private_data), "no") == 0;
  rdma_ack_cm_event(event);
  CHECK(good);
}

void a_listener_that_ends_refuses_who_waits() {
  Client* client;
  {
    Listener listener;
    client = new Client(listener.port);
    rdma_conn_param p = parameters();
    CHECK(client->is_ready && rdma_connect(client->id, &p) == 0);
    CHECK(readable(listener.channel->fd, 20'000));
  }
  const bool refused = expect(client->channel, RDMA_CM_EVENT_REJECTED);
  delete client;
  CHECK(refused);
}

void the_descriptor_is_a_real_one() {
  Listener listener;
  CHECK(fcntl(listener.channel->fd, F_SETFL, O_NONBLOCK) == 0);
  rdma_cm_event* event = nullptr;
  CHECK(rdma_get_cm_event(listener.channel, &event) == -1 && errno == EAGAIN);
  const int copy = dup(listener.channel->fd);
  Client client(listener.port);
  rdma_conn_param p = parameters();
  CHECK(client.is_ready && rdma_connect(client.id, &p) == 0);
  const bool seen = readable(copy, 20'000);
  close(copy);
  CHECK(seen);
  // Its event goes with the id to another channel.
  rdma_event_channel* other = rdma_create_event_channel();
  CHECK(rdma_migrate_id(listener.id, other) == 0);
  CHECK(!readable(listener.channel->fd, 0) && readable(other->fd, 0));
  CHECK(rdma_get_cm_event(other, &event) == 0 && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* pending = event->id;
  rdma_ack_cm_event(event);
  CHECK(rdma_destroy_id(pending) == 0);
  CHECK(rdma_destroy_id(listener.id) == 0);
  listener.id = nullptr;
  rdma_destroy_event_channel(other);
}

// Programs with queue pairs of their own move them to RTS before they accept.
void attributes_before_accepting_are_those_of_the_reply() {
  Listener listener;
  Client client(listener.port);
  rdma_conn_param p = parameters();
  CHECK(client.is_ready && rdma_connect(client.id, &p) == 0);
  rdma_cm_event* request = await(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  CHECK(request != nullptr);
  rdma_cm_id* accepted = request->id;
  CHECK(accepted->route.num_paths == 1 && accepted->route.path_rec != nullptr &&
        accepted->route.path_rec->mtu != 0);
  ibv_qp_attr mine{}, theirs{};
  int mask = 0;
  mine.qp_state = IBV_QPS_RTS;
  CHECK(rdma_init_qp_attr(accepted, &mine, &mask) == 0 && (mask & IBV_QP_SQ_PSN) != 0);
  rdma_conn_param q = parameters();
  CHECK(rdma_accept(accepted, &q) == 0);
  rdma_ack_cm_event(request);
  CHECK(expect(client.channel, RDMA_CM_EVENT_CONNECT_RESPONSE));
  theirs.qp_state = IBV_QPS_RTR;
  CHECK(rdma_init_qp_attr(client.id, &theirs, &mask) == 0);
  CHECK(theirs.rq_psn == mine.sq_psn && theirs.dest_qp_num == 4711);
  CHECK(rdma_destroy_id(accepted) == 0);
}

void a_channel_may_end_before_its_ids() {
  Listener listener;
  Client client(listener.port);
  rdma_cm_id* accepted = connect(client, listener);
  CHECK(accepted != nullptr);
  rdma_event_channel* channel = rdma_create_event_channel();
  CHECK(rdma_migrate_id(client.id, channel) == 0);
  int ends[2];
  CHECK(pipe(ends) == 0);
  const int fd = channel->fd;
  rdma_destroy_event_channel(channel);
  // Its number is another file's now, which no event is written to.
  CHECK(dup2(ends[1], fd) == fd);
  CHECK(rdma_disconnect(accepted) == 0);
  const bool written = readable(ends[0], 300);
  close(ends[0]);
  close(ends[1]);
  close(fd);
  CHECK(!written);
  CHECK(rdma_destroy_id(client.id) == 0);
  client.id = nullptr;
  CHECK(rdma_destroy_id(accepted) == 0);
}

void groups_are_joined_to_send_alone() {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  sockaddr_in in = address("127.0.0.1", 0), group = address("239.1.1.1", 0);
  CHECK(rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP) == 0 && rdma_bind_addr(id, any(in)) == 0);
  rdma_cm_join_mc_attr_ex join{};
  join.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  join.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  join.addr = any(group);
  CHECK(rdma_join_multicast_ex(id, &join, id) == 0);
  rdma_cm_event* event = await(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
  CHECK(event != nullptr);
  const bool good = event->status == 0 && event->param.ud.qp_num == 0xffffff &&
                    event->param.ud.qkey == RDMA_UDP_QKEY && event->param.ud.private_data == id;
  rdma_ack_cm_event(event);
  CHECK(good);
  CHECK(rdma_leave_multicast(id, any(group)) == 0);
  CHECK(rdma_destroy_id(id) == 0);
  rdma_destroy_event_channel(channel);
}

void addresses_are_checked() {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id *one = nullptr, *two = nullptr, *datagrams = nullptr;
  CHECK(rdma_create_id(channel, &one, nullptr, RDMA_PS_TCP) == 0 &&
        rdma_create_id(channel, &two, nullptr, RDMA_PS_TCP) == 0 &&
        rdma_create_id(channel, &datagrams, nullptr, RDMA_PS_UDP) == 0);
  sockaddr_in in = address("127.0.0.1", 0);
  CHECK(rdma_bind_addr(one, any(in)) == 0);
  in.sin_port = rdma_get_src_port(one);
  CHECK(in.sin_port != 0);
  CHECK(rdma_bind_addr(one, any(in)) == -1 && errno == EINVAL);
  CHECK(rdma_bind_addr(two, any(in)) == -1 && errno == EADDRINUSE);
  CHECK(rdma_get_src_port(two) == 0);
  CHECK(rdma_bind_addr(datagrams, any(in)) == 0);  // another port space
  sockaddr_in foreign = address("192.0.2.1", 7);
  CHECK(rdma_bind_addr(two, any(foreign)) == -1 && errno == EADDRNOTAVAIL);
  sockaddr unknown{};
  unknown.sa_family = AF_UNIX;
  CHECK(rdma_bind_addr(two, &unknown) == -1 && errno == EAFNOSUPPORT);
  CHECK(rdma_listen(one, 1) == 0 && rdma_listen(datagrams, 1) == 0);
  CHECK(rdma_listen(one, 1) == -1 && errno == EINVAL);
  CHECK(rdma_connect(two, nullptr) == -1 && errno == EINVAL);
  CHECK(rdma_accept(two, nullptr) == -1 && errno == EINVAL);
  CHECK(rdma_disconnect(two) == -1 && errno == EINVAL);
  CHECK(rdma_destroy_id(one) == 0 && rdma_destroy_id(two) == 0 && rdma_destroy_id(datagrams) == 0);
  rdma_destroy_event_channel(channel);
}

void many_connections_leave_nothing() {
  Listener listener(1024);
  {
    Client first(listener.port);
    rdma_cm_id* accepted = connect(first, listener);
    CHECK(accepted != nullptr);
    CHECK(rdma_destroy_id(accepted) == 0);
  }
  const int before = open_descriptors();
  for (int i = 0; i < 300; ++i) {
    Client client(listener.port);
    rdma_cm_id* accepted = connect(client, listener);
    CHECK(accepted != nullptr);
    CHECK(rdma_disconnect(client.id) == 0);
    CHECK(expect(listener.channel, RDMA_CM_EVENT_DISCONNECTED));
    CHECK(rdma_destroy_id(accepted) == 0);
  }
  CHECK(open_descriptors() == before);
}

void many_at_once() {
  Listener listener(1024);
  std::vector<Client*> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(new Client(listener.port));
    rdma_conn_param p = parameters();
    CHECK(clients.back()->is_ready && rdma_connect(clients.back()->id, &p) == 0);
  }
  std::vector<rdma_cm_id*> accepted;
  for (size_t established = 0; established < clients.size();) {
    CHECK(readable(listener.channel->fd, 20'000));
    rdma_cm_event* event = nullptr;
    CHECK(rdma_get_cm_event(listener.channel, &event) == 0);
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      accepted.push_back(event->id);
      rdma_conn_param q = parameters();
      CHECK(rdma_accept(event->id, &q) == 0);
    } else {
      CHECK(event->event == RDMA_CM_EVENT_ESTABLISHED);
      ++established;
    }
    rdma_ack_cm_event(event);
    for (Client* client : clients) {
      if (!readable(client->channel->fd, 0)) continue;
      CHECK(expect(client->channel, RDMA_CM_EVENT_CONNECT_RESPONSE));
      CHECK(rdma_establish(client->id) == 0);
    }
  }
  for (Client* client : clients) delete client;
  for (rdma_cm_id* id : accepted) CHECK(rdma_destroy_id(id) == 0);
}

// Another process, which is killed while it is connected. Both directions: the killed one connected, or accepted.
void a_killed_peer_is_heard_of(const char* program, bool client_dies) {
  Listener listener;
  const pid_t child = fork();
  if (child == 0) {
    execl(program, program, client_dies ? "client" : "end", std::to_string(listener.port).c_str(), nullptr);
    _exit(127);
  }
  rdma_cm_event* request = await(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  if (request == nullptr) kill(child, SIGKILL);
  CHECK(request != nullptr);
  rdma_cm_id* accepted = request->id;
  rdma_conn_param q = parameters();
  const bool good = rdma_accept(accepted, &q) == 0;
  rdma_ack_cm_event(request);
  CHECK(good && expect(listener.channel, RDMA_CM_EVENT_ESTABLISHED));
  if (client_dies) kill(child, SIGKILL);  // the other one ends by exit(3)
  const bool heard = expect(listener.channel, RDMA_CM_EVENT_DISCONNECTED);
  waitpid(child, nullptr, 0);
  rdma_destroy_id(accepted);
  CHECK(heard);
}

void ids_of_a_parent_mean_nothing_in_a_child() {
  Listener listener;
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = rdma_listen(listener.id, 1) == -1 && errno == EINVAL;
    Listener own;
    _exit(refused && own.port != 0 ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int child(const char* what, uint16_t port) {
  Client client(port);
  rdma_conn_param p = parameters();
  if (!client.is_ready || rdma_connect(client.id, &p) != 0 ||
      !expect(client.channel, RDMA_CM_EVENT_CONNECT_RESPONSE) || rdma_establish(client.id) != 0)
    return 1;
  if (std::strcmp(what, "end") == 0) {
    usleep(200'000);
    std::exit(0);
  }
  pause();
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3) return child(arguments[1], static_cast<uint16_t>(std::atoi(arguments[2])));
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto run = [](const char* name, auto work) {
    current = name;
    const int before = failures;
    work();
    if (failures == before) std::printf("passed: %s\n", name);
  };
  run("no listener is there", no_listener_is_there);
  run("private data travels", private_data_travels);
  run("a rejection carries data", a_rejection_carries_data);
  run("a listener that ends refuses who waits", a_listener_that_ends_refuses_who_waits);
  run("the descriptor is a real one", the_descriptor_is_a_real_one);
  run("attributes before accepting are those of the reply",
      attributes_before_accepting_are_those_of_the_reply);
  run("a channel may end before its ids", a_channel_may_end_before_its_ids);
  run("groups are joined to send alone", groups_are_joined_to_send_alone);
  run("addresses are checked", addresses_are_checked);
  run("many connections leave nothing", many_connections_leave_nothing);
  run("many at once", many_at_once);
  run("a killed client is heard of", [&] { a_killed_peer_is_heard_of(arguments[0], true); });
  run("a client that ends is heard of", [&] { a_killed_peer_is_heard_of(arguments[0], false); });
  run("ids of a parent mean nothing in a child", ids_of_a_parent_mean_nothing_in_a_child);
  return failures == 0 ? 0 : 1;
}
