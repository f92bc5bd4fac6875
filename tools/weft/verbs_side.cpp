// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RC queue pairs and the loops over them. Makes no system call of its own while messages flow.
#include "verbs_side.hpp"

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "failure.hpp"

// Macros of the header stand before these.
#undef ibv_query_port
#undef ibv_reg_mr

namespace weft::tool {

namespace {

using nlohmann::json;

constexpr uint8_t port_number = 1;
constexpr int batch = 16;                      // completions per ibv_poll_cq
constexpr uint64_t polls_per_check = 1 << 16;  // empty ones
constexpr int64_t peer_check_ns = 200'000'000;
constexpr int64_t stall_limit_ns = 30'000'000'000;
constexpr uint32_t inline_most = 220;
constexpr int reads_most = 16;                        // outstanding READs of a queue pair
constexpr uint64_t received_bit = uint64_t{1} << 32;  // of wr_id

// What is called by name; the data path goes through tables of the context (verbs.h).
struct Calls {
  ibv_device** (*get_device_list)(int*);
  void (*free_device_list)(ibv_device**);
  const char* (*get_device_name)(ibv_device*);
  ibv_context* (*open_device)(ibv_device*);
  int (*close_device)(ibv_context*);
  int (*query_device)(ibv_context*, ibv_device_attr*);
  int (*query_port)(ibv_context*, uint8_t, ibv_port_attr*);
  int (*query_gid)(ibv_context*, uint8_t, int, ibv_gid*);
  ibv_pd* (*alloc_pd)(ibv_context*);
  int (*dealloc_pd)(ibv_pd*);
  ibv_mr* (*reg_mr)(ibv_pd*, void*, size_t, int);
  int (*dereg_mr)(ibv_mr*);
  ibv_cq* (*create_cq)(ibv_context*, int, void*, ibv_comp_channel*, int);
  int (*destroy_cq)(ibv_cq*);
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*);
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int);
  int (*destroy_qp)(ibv_qp*);
  const char* (*wc_status_str)(ibv_wc_status);
};

template <class Call>
void find(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(dlsym(library, name));
  if (call == nullptr) fail("{} is not in libibverbs.so.1", name);
}

Calls load() {
  void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Refused(fmt::format("libibverbs.so.1 cannot be loaded: {}", dlerror()));
  Calls c{};
  find(library, "ibv_get_device_list", c.get_device_list);
  find(library, "ibv_free_device_list", c.free_device_list);
  find(library, "ibv_get_device_name", c.get_device_name);
  find(library, "ibv_open_device", c.open_device);
  find(library, "ibv_close_device", c.close_device);
  find(library, "ibv_query_device", c.query_device);
  find(library, "ibv_query_port", c.query_port);
  find(library, "ibv_query_gid", c.query_gid);
  find(library, "ibv_alloc_pd", c.alloc_pd);
  find(library, "ibv_dealloc_pd", c.dealloc_pd);
  find(library, "ibv_reg_mr", c.reg_mr);
  find(library, "ibv_dereg_mr", c.dereg_mr);
  find(library, "ibv_create_cq", c.create_cq);
  find(library, "ibv_destroy_cq", c.destroy_cq);
  find(library, "ibv_create_qp", c.create_qp);
  find(library, "ibv_modify_qp", c.modify_qp);
  find(library, "ibv_destroy_qp", c.destroy_qp);
  find(library, "ibv_wc_status_str", c.wc_status_str);
  return c;
}

const Calls& calls() {
  static const Calls loaded = load();
  return loaded;
}

// The list lives as long as the device is opened from it.
template <class Work>
void with_devices(Work&& work) {
  int count = 0;
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(calls().get_device_list(&count),
                                                                  calls().free_device_list);
  work(list.get(), list ? count : 0);
}

template <class T>
using Owned = std::unique_ptr<T, int (*)(T*)>;

Owned<ibv_context> open_device(const std::string& wanted) {
  ibv_context* opened = nullptr;
  std::string refusal = wanted.empty() ? "there is no verbs device" : "";
  with_devices([&](ibv_device** devices, int count) {
    for (int i = 0; i < count && opened == nullptr; ++i) {
      const std::string name = calls().get_device_name(devices[i]);
      if (!wanted.empty() && name != wanted) continue;
      opened = calls().open_device(devices[i]);
      ibv_port_attr port{};
      if (opened == nullptr) {
        refusal = fmt::format("{} does not open: {}", name, std::strerror(errno));
      } else if (calls().query_port(opened, port_number, &port) != 0 || port.state != IBV_PORT_ACTIVE) {
        refusal = fmt::format("port {} of {} is not active", port_number, name);
        calls().close_device(opened);
        opened = nullptr;
      }
    }
  });
  if (opened == nullptr)
    throw Refused(refusal.empty() ? fmt::format("there is no verbs device '{}'; there are: {}", wanted,
                                                fmt::join(verbs_device_names(), " "))
                                  : refusal);
  return {opened, calls().close_device};
}

// A GID of ours, or else the first of RoCEv2 over IPv4, or else the first.
int choose_gid(ibv_context* context, const std::string& device, int entries) {
  constexpr std::array<uint8_t, 6> ours = {0xfd, 0x57, 0x45, 0x46, 0x54, 0x01};
  constexpr std::array<uint8_t, 12> mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  for (int i = 0; i < entries; ++i) {
    ibv_gid gid{};
    if (calls().query_gid(context, port_number, i, &gid) != 0) continue;
    if (std::memcmp(gid.raw, ours.data(), ours.size()) == 0) return i;
    if (std::memcmp(gid.raw, mapped.data(), mapped.size()) != 0) continue;
    std::ifstream file(
        fmt::format("/sys/class/infiniband/{}/ports/{}/gid_attrs/types/{}", device, port_number, i));
    std::string type;
    if (!std::getline(file, type) || type == "RoCE v2") return i;
  }
  return 0;
}

std::string hex_of(const ibv_gid& gid) {
  std::string text;
  for (const uint8_t byte : gid.raw) text += fmt::format("{:02x}", byte);
  return text;
}

ibv_gid gid_from(const std::string& text) {
  ibv_gid gid{};
  if (text.size() != 2 * sizeof gid.raw) fail("the other side's GID is none");
  for (size_t i = 0; i < sizeof gid.raw; ++i)
    gid.raw[i] = static_cast<uint8_t>(std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
  return gid;
}

class VerbsSide final : public Side {
 public:
  VerbsSide(const Agreement& agreement, const Local& local, Channel& channel)
      : shape_(agreement.shape),
        channel_(channel),
        stride_((std::max<size_t>(shape_.size, ack_size) + 63) / 64 * 64),
        memory_(2 * shape_.buffers * stride_),
        context_(open_device(local.device)),
        device_(calls().get_device_name(context_->device)),
        pd_(calls().alloc_pd(context_.get()), calls().dealloc_pd),
        mr_(nullptr, calls().dereg_mr),
        cq_(nullptr, calls().destroy_cq),
        qp_(nullptr, calls().destroy_qp) {
    if (!pd_) fail("ibv_alloc_pd: {}", std::strerror(errno));
    if (calls().query_port(context_.get(), port_number, &port_) != 0) fail("ibv_query_port failed");
    if (shape_.size > port_.max_msg_sz)
      throw Refused(fmt::format("{} takes messages of at most {} bytes", device_, port_.max_msg_sz));
    ibv_device_attr limits{};
    if (calls().query_device(context_.get(), &limits) != 0) fail("ibv_query_device failed");
    reads_ = std::clamp(std::min(limits.max_qp_rd_atom, limits.max_qp_init_rd_atom), 1, reads_most);
    gid_index_ =
        local.gid_index >= 0 ? local.gid_index : choose_gid(context_.get(), device_, port_.gid_tbl_len);
    if (calls().query_gid(context_.get(), port_number, gid_index_, &gid_) != 0)
      throw Refused(fmt::format("{} has no GID {}", device_, gid_index_));
    open(limits);
    for (unsigned i = 0; i < shape_.tx_slots(); ++i) tx_free_.push_back(i);
  }

  Identity identity() const override { return {device_, "verbs", fmt::format("GID {}", gid_index_)}; }

  json introduction() const override {
    return {{"qp", qp_->qp_num}, {"gid", hex_of(gid_)},
            {"lid", port_.lid},  {"mtu", static_cast<int>(port_.active_mtu)},
            {"reads", reads_},   {"address", reinterpret_cast<uint64_t>(memory_.data())},
            {"key", mr_->rkey}};
  }

  void connect(const json& peer) override {
    remote_ = {peer.at("address").get<uint64_t>(), peer.at("key").get<uint64_t>()};
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu =
        static_cast<ibv_mtu>(std::min(static_cast<int>(port_.active_mtu), peer.at("mtu").get<int>()));
    to.dest_qp_num = peer.at("qp");
    to.max_dest_rd_atomic = static_cast<uint8_t>(reads_);
    to.min_rnr_timer = 12;
    to.ah_attr.port_num = port_number;
    if (port_.link_layer == IBV_LINK_LAYER_INFINIBAND) {
      to.ah_attr.dlid = peer.at("lid");
    } else {
      to.ah_attr.is_global = 1;
      to.ah_attr.grh.dgid = gid_from(peer.at("gid"));
      to.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
      to.ah_attr.grh.hop_limit = 64;
    }
    modify(to,
           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
           "RTR");
    for (unsigned i = 0; i < shape_.rx_slots(); ++i) post_receive(i);
    ibv_qp_attr on{};
    on.qp_state = IBV_QPS_RTS;
    on.timeout = 14;
    on.retry_cnt = on.rnr_retry = 7;
    on.max_rd_atomic = static_cast<uint8_t>(std::clamp(peer.at("reads").get<int>(), 1, reads_));
    modify(on,
           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC,
           "RTS");
    check_ns_ = stall_begin_ns_ = now_ns();  // poll() is called before the first run, too
    is_connected_ = true;
  }

  double run(uint64_t warmup, uint64_t iters) override {
    const Test& test = *shape_.test;
    stall_begin_ns_ = now_ns();
    times_ = {};
    if (test.is_round_trip()) return one_by_one(warmup, iters);
    if (test.unit == Unit::latency) return in_turns(warmup, iters);
    if (test.is_one_sided()) {
      if (warmup) one_sided(warmup);
      return one_sided(iters);
    }
    warmup = whole_windows(warmup, shape_.window);
    iters = whole_windows(iters, shape_.window);
    if (shape_.initiator) {
      if (warmup) stream_out(warmup);
      return stream_out(iters);
    }
    if (warmup) stream_in(warmup);
    stream_in(iters);
    return 0;
  }

  void poll() override {
    if (!is_connected_) return;
    std::array<ibv_wc, batch> done;
    const int n = ibv_poll_cq(cq_.get(), batch, done.data());
    if (n < 0) fail("ibv_poll_cq failed");
    for (int i = 0; i < n; ++i) take(done[static_cast<size_t>(i)]);
    if (n == 0 && ++empty_polls_ % polls_per_check == 0) idle();
  }

  std::string operation() const override {
    const char* name = shape_.test->verbs == Verbs::write  ? "RDMA_WRITE"
                       : shape_.test->verbs == Verbs::read ? "RDMA_READ"
                                                           : "SEND";
    return fmt::format("{}{}", name, is_inline(shape_.size) ? ", inline" : "");
  }
  const Histogram& times() const override { return times_; }

 private:
  void open(const ibv_device_attr& limits) {
    mr_.reset(calls().reg_mr(pd_.get(), memory_.data(), memory_.size(),
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
    if (!mr_) fail("ibv_reg_mr of {}: {}", size_text(memory_.size()), std::strerror(errno));
    const unsigned slots = shape_.tx_slots() + shape_.rx_slots();
    if (static_cast<int>(std::max(shape_.tx_slots(), shape_.rx_slots())) > limits.max_qp_wr)
      throw Refused(fmt::format("a queue pair of {} takes {} requests; give a smaller --window", device_,
                                limits.max_qp_wr));
    cq_.reset(calls().create_cq(context_.get(), static_cast<int>(slots + 1), nullptr, nullptr, 0));
    if (!cq_) fail("ibv_create_cq: {}", std::strerror(errno));
    // As much inline data as is of use; less where the device has less.
    for (const uint32_t wanted : {shape_.size <= inline_most ? static_cast<uint32_t>(shape_.size) : 0U, 0U}) {
      ibv_qp_init_attr attr{};
      attr.qp_type = IBV_QPT_RC;
      attr.send_cq = attr.recv_cq = cq_.get();
      attr.cap = {shape_.tx_slots(), shape_.rx_slots(), 1, 1, wanted};
      qp_.reset(calls().create_qp(pd_.get(), &attr));
      inline_ = attr.cap.max_inline_data;
      if (qp_) break;
    }
    if (!qp_) fail("ibv_create_qp: {}", std::strerror(errno));
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = port_number;
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    modify(to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
  }

  void modify(ibv_qp_attr& to, int mask, const char* state) {
    if (const int error = calls().modify_qp(qp_.get(), &to, mask); error != 0)
      fail("ibv_modify_qp to {}: {}", state, std::strerror(error));
  }

  bool is_inline(size_t size) const { return size <= inline_ && shape_.test->verbs != Verbs::read; }
  std::byte* tx_buffer(unsigned slot) const { return memory_.data() + slot % shape_.buffers * stride_; }
  size_t rx_offset(unsigned slot) const { return (shape_.buffers + slot % shape_.buffers) * stride_; }

  // ---- posting ----

  void post_receive(unsigned slot) {
    ibv_sge element{reinterpret_cast<uint64_t>(memory_.data() + rx_offset(slot)),
                    static_cast<uint32_t>(stride_), mr_->lkey};
    ibv_recv_wr request{};
    request.wr_id = received_bit | slot;
    request.sg_list = &element;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(qp_.get(), &request, &bad); error != 0)
      fail("ibv_post_recv: {}", std::strerror(error));
  }

  void post(ibv_wr_opcode opcode, size_t size) {
    while (tx_free_.empty()) poll();
    const unsigned slot = tx_free_.back();
    tx_free_.pop_back();
    ibv_sge element{reinterpret_cast<uint64_t>(tx_buffer(slot)), static_cast<uint32_t>(size), mr_->lkey};
    ibv_send_wr request{};
    request.wr_id = slot;
    request.sg_list = &element;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    if (size <= inline_ && opcode != IBV_WR_RDMA_READ) request.send_flags |= IBV_SEND_INLINE;
    if (opcode != IBV_WR_SEND) {
      // Who waits for WRITEs in turns looks at the first buffer.
      const bool in_turns = shape_.test->unit == Unit::latency;
      request.wr.rdma.remote_addr = remote_.address + rx_offset(in_turns ? 0 : slot);
      request.wr.rdma.rkey = static_cast<uint32_t>(remote_.key);
    }
    ibv_send_wr* bad = nullptr;
    if (const int error = ibv_post_send(qp_.get(), &request, &bad); error != 0)
      fail("ibv_post_send: {}", std::strerror(error));
  }

  ibv_wr_opcode opcode() const {
    return shape_.test->verbs == Verbs::send    ? IBV_WR_SEND
           : shape_.test->verbs == Verbs::write ? IBV_WR_RDMA_WRITE
                                                : IBV_WR_RDMA_READ;
  }

  // ---- loops ----

  // SENDs are received, WRITEs are seen in memory: their last byte says which one it is.
  double in_turns(uint64_t warmup, uint64_t iters) {
    int64_t begin = now_ns();
    int64_t since = begin;
    for (uint64_t i = 0; i < warmup + iters; ++i) {
      if (i == warmup) since = begin = now_ns();
      if (!shape_.initiator) await_one();
      if (shape_.test->verbs == Verbs::write) mark();
      post(opcode(), shape_.size);
      if (shape_.initiator) await_one();
      if (shape_.timed && i >= warmup) note_time(since);
    }
    drain();
    return static_cast<double>(now_ns() - begin) * 1e-9;
  }

  static std::byte mark_of(uint64_t turn) { return static_cast<std::byte>(turn % 255 + 1); }

  // The next WRITE comes from the slot that is next in tx_free_.
  void mark() {
    while (tx_free_.empty()) poll();
    tx_buffer(tx_free_.back())[shape_.size - 1] = mark_of(marked_++);
  }

  void await_one() {
    if (shape_.test->verbs == Verbs::write) {
      auto* last = reinterpret_cast<unsigned char*>(memory_.data() + rx_offset(0) + shape_.size - 1);
      const auto wanted = static_cast<unsigned char>(mark_of(seen_++));
      while (std::atomic_ref<unsigned char>(*last).load(std::memory_order_acquire) != wanted) poll();
      return;
    }
    ++taken_;
    while (received_ < taken_) poll();
  }

  double stream_out(uint64_t messages) {
    const uint64_t base = received_;
    const int64_t begin = now_ns();
    for (uint64_t i = 0; i < messages; ++i) {
      while (i >= (received_ - base + 2) * shape_.window) poll();
      post(opcode(), shape_.size);
    }
    while (tx_free_.size() < shape_.tx_slots() || (received_ - base) * shape_.window < messages) poll();
    return static_cast<double>(now_ns() - begin) * 1e-9;
  }

  // Two windows are posted; a receive that is taken is posted again at once, before its window is acknowledged.
  void stream_in(uint64_t messages) {
    for (uint64_t windows = messages / shape_.window; windows > 0; --windows) {
      taken_ += shape_.window;
      while (received_ < taken_) poll();
      post(IBV_WR_SEND, ack_size);
    }
    drain();
  }

  double one_sided(uint64_t operations) {
    if (!shape_.initiator) {
      await_end();
      return 0;
    }
    const int64_t begin = now_ns();
    for (uint64_t i = 0; i < operations; ++i) post(opcode(), shape_.size);
    drain();
    const int64_t end = now_ns();
    say_end();
    return static_cast<double>(end - begin) * 1e-9;
  }

  double one_by_one(uint64_t warmup, uint64_t iters) {
    if (!shape_.initiator) {
      await_end();
      return 0;
    }
    int64_t begin = now_ns();
    int64_t since = begin;
    for (uint64_t i = 0; i < warmup + iters; ++i) {
      if (i == warmup) since = begin = now_ns();
      post(opcode(), shape_.size);
      drain();
      if (shape_.timed && i >= warmup) note_time(since);
    }
    const int64_t end = now_ns();
    say_end();
    return static_cast<double>(end - begin) * 1e-9;
  }

  void drain() {
    while (tx_free_.size() < shape_.tx_slots()) poll();
  }
  void say_end() {
    post(IBV_WR_SEND, ack_size);
    drain();
  }
  void await_end() {
    ++taken_;
    while (received_ < taken_) poll();
  }

  void note_time(int64_t& since) {
    const int64_t now = now_ns();
    times_.add(static_cast<uint64_t>(now - since) / (shape_.test->is_round_trip() ? 1 : 2));
    since = now;
  }

  // ---- completions ----

  void take(const ibv_wc& done) {
    ++moved_;
    if (done.status != IBV_WC_SUCCESS) fail("completion with error: {}", calls().wc_status_str(done.status));
    const auto slot = static_cast<unsigned>(done.wr_id & 0xffffffff);
    if (done.wr_id & received_bit) {
      ++received_;
      post_receive(slot);
    } else {
      tx_free_.push_back(slot);
    }
  }

  [[gnu::cold]] void idle() {
    const int64_t now = now_ns();
    if (moved_ != moved_at_check_) {
      moved_at_check_ = moved_;
      stall_begin_ns_ = now;
    }
    if (now - check_ns_ < peer_check_ns) return;
    check_ns_ = now;
    if (!channel_.peer_is_there()) {
      channel_.receive(std::chrono::milliseconds(100));  // throws what it had to say before it left
      fail("the other process is gone");
    }
    if (now - stall_begin_ns_ > stall_limit_ns)
      fail("nothing has moved for {} s", stall_limit_ns / 1'000'000'000);
  }

  const Shape shape_;
  Channel& channel_;
  const size_t stride_;
  Memory memory_;
  // In this order, so that they close in the reverse one.
  Owned<ibv_context> context_;
  const std::string device_;
  Owned<ibv_pd> pd_;
  Owned<ibv_mr> mr_;
  Owned<ibv_cq> cq_;
  Owned<ibv_qp> qp_;
  ibv_port_attr port_{};
  ibv_gid gid_{};
  int gid_index_ = 0, reads_ = 1;
  uint32_t inline_ = 0;
  bool is_connected_ = false;
  RemoteMemory remote_;
  std::vector<unsigned> tx_free_;
  uint64_t received_ = 0, taken_ = 0;  // messages: that came, that the loops have used
  uint64_t marked_ = 0, seen_ = 0;     // WRITEs in turns
  uint64_t empty_polls_ = 0, moved_ = 0, moved_at_check_ = 0;
  int64_t check_ns_ = 0, stall_begin_ns_ = 0;
  Histogram times_;
};

}  // namespace

std::unique_ptr<Side> open_verbs_side(const Agreement& agreement, const Local& local, Channel& channel) {
  return std::make_unique<VerbsSide>(agreement, local, channel);
}

std::vector<std::string> verbs_device_names() {
  std::vector<std::string> names;
  with_devices([&](ibv_device** devices, int count) {
    for (int i = 0; i < count; ++i) names.emplace_back(calls().get_device_name(devices[i]));
  });
  return names;
}

std::string verbs_library() {
  Dl_info info{};
  const void* symbol = reinterpret_cast<void*>(calls().get_device_list);
  return dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : "(unknown)";
}

uint64_t verbs_message_most(const std::string& device) {
  try {
    const Owned<ibv_context> context = open_device(device);
    ibv_port_attr port{};
    return calls().query_port(context.get(), port_number, &port) == 0 ? port.max_msg_sz : UINT64_MAX;
  } catch (const Refused&) {
    return UINT64_MAX;
  }
}

}  // namespace weft::tool
