// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Verbs: exported calls are ours by their names; posting and polling goes through the tables of a device's context,
// and of an extended queue pair or completion queue, which are exchanged (infiniband/verbs.h, struct ibv_context_ops,
// ibv_qp_ex, ibv_cq_ex). Knows the public interface alone.
#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <type_traits>

#include "trace/recorder.hpp"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace weft::trace {

namespace {

constexpr const char* library = "libibverbs.so.1";
constexpr size_t devices_most = 64;    // open contexts that are traced
constexpr size_t objects_most = 4096;  // extended queue pairs and completion queues

struct Device {
  std::atomic<ibv_context*> context{nullptr};
  uint32_t id = 0;
  ibv_context_ops ops{};
  decltype(verbs_context::create_qp_ex) create_qp_ex = nullptr;
  decltype(verbs_context::create_cq_ex) create_cq_ex = nullptr;
};

Device devices[devices_most];
std::atomic<size_t> devices_used{0};
// Guards what is opened and closed; calls of data only read.
std::mutex opening;

Device* device_of(const ibv_context* context) noexcept {
  const size_t used = devices_used.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; ++i) {
    if (devices[i].context.load(std::memory_order_acquire) == context) return &devices[i];
  }
  return nullptr;
}

uint32_t id_of(const ibv_context* context) noexcept {
  const Device* device = device_of(context);
  return device ? device->id : 0;
}

// --- posting and polling through the context ---

struct Kind {
  uint16_t call;
};

Kind kind_of(ibv_wr_opcode opcode) noexcept {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      return {number("RDMA WRITE")};
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return {number("RDMA WRITE with immediate")};
    case IBV_WR_SEND:
      return {number("SEND")};
    case IBV_WR_SEND_WITH_IMM:
      return {number("SEND with immediate")};
    case IBV_WR_SEND_WITH_INV:
      return {number("SEND with invalidate")};
    case IBV_WR_RDMA_READ:
      return {number("RDMA READ")};
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return {number("COMPARE AND SWAP")};
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return {number("FETCH AND ADD")};
    case IBV_WR_ATOMIC_WRITE:
      return {number("ATOMIC WRITE")};
    case IBV_WR_LOCAL_INV:
      return {number("LOCAL INVALIDATE")};
    case IBV_WR_BIND_MW:
      return {number("BIND MW")};
    default:
      return {number("another work request")};
  }
}

uint64_t bytes_of(const ibv_sge* pieces, int count) noexcept {
  uint64_t sum = 0;
  for (int i = 0; i < count; ++i) sum += pieces[i].length;
  return sum;
}

void put_operation(uint64_t time, uint16_t call, uint32_t device, uint32_t queue_pair, uint64_t id,
                   uint64_t bytes, uint64_t flags) noexcept {
  put({.begin = time,
       .end = time,
       .context = id,
       .bytes = bytes,
       .flags = flags,
       .result = 0,
       .object = device,
       .queue_pair = queue_pair,
       .type = Type::operation,
       .call = call,
       .fault = 0});
}

int post_send(ibv_qp* pair, ibv_send_wr* list, ibv_send_wr** bad) {
  const Device* device = device_of(pair->context);
  if (!device) return EINVAL;
  Record record = begin_call(number("ibv_post_send"), device->id);
  record.queue_pair = pair->qp_num;
  const int result = device->ops.post_send(pair, list, bad);
  end_call(record, result);
  const ibv_send_wr* end = result != 0 && bad ? *bad : nullptr;
  for (const ibv_send_wr* wr = list; wr && wr != end; wr = wr->next) {
    put_operation(record.begin, kind_of(wr->opcode).call, device->id, pair->qp_num, wr->wr_id,
                  bytes_of(wr->sg_list, wr->num_sge),
                  (wr->send_flags & IBV_SEND_SIGNALED) ? flag_completion : 0);
  }
  return result;
}

void put_receives(const Record& call, const ibv_recv_wr* list, const ibv_recv_wr* end) noexcept {
  for (const ibv_recv_wr* wr = list; wr && wr != end; wr = wr->next) {
    put_operation(call.begin, number("RECV"), call.object, call.queue_pair, wr->wr_id,
                  bytes_of(wr->sg_list, wr->num_sge), flag_completion);
  }
}

int post_recv(ibv_qp* pair, ibv_recv_wr* list, ibv_recv_wr** bad) {
  const Device* device = device_of(pair->context);
  if (!device) return EINVAL;
  Record record = begin_call(number("ibv_post_recv"), device->id);
  record.queue_pair = pair->qp_num;
  const int result = device->ops.post_recv(pair, list, bad);
  end_call(record, result);
  put_receives(record, list, result != 0 && bad ? *bad : nullptr);
  return result;
}

int post_srq_recv(ibv_srq* queue, ibv_recv_wr* list, ibv_recv_wr** bad) {
  const Device* device = device_of(queue->context);
  if (!device) return EINVAL;
  Record record = begin_call(number("ibv_post_srq_recv"), device->id);
  const int result = device->ops.post_srq_recv(queue, list, bad);
  end_call(record, result);
  put_receives(record, list, result != 0 && bad ? *bad : nullptr);
  return result;
}

void put_completion(uint64_t time, uint16_t call, uint32_t device, uint32_t queue_pair, uint64_t id,
                    uint64_t bytes, uint64_t flags, int64_t status, uint32_t fault) noexcept {
  put({.begin = time,
       .end = time,
       .context = id,
       .bytes = bytes,
       .flags = flags,
       .result = status,
       .object = device,
       .queue_pair = queue_pair,
       .type = Type::completion,
       .call = call,
       .fault = fault});
}

// ibv_poll_cq(3): of a completion with an error only wr_id, status, qp_num and vendor_err are valid.
uint64_t side_of(ibv_wc_status status, ibv_wc_opcode opcode) noexcept {
  if (status != IBV_WC_SUCCESS) return 0;
  return (opcode & IBV_WC_RECV) ? flag_receive : flag_transmit;
}

int poll_cq(ibv_cq* queue, int count, ibv_wc* list) {
  const Device* device = device_of(queue->context);
  if (!device) return -1;
  constexpr uint16_t call = number("ibv_poll_cq");
  Record record = begin_call(call, device->id);
  const int result = device->ops.poll_cq(queue, count, list);
  if (result == 0) {
    put_idle(call, device->id, record.begin, now());
    return result;
  }
  end_call(record, result);
  for (int i = 0; i < result; ++i) {
    put_completion(record.end, call, device->id, list[i].qp_num, list[i].wr_id, list[i].byte_len,
                   side_of(list[i].status, list[i].opcode), list[i].status,
                   list[i].status == IBV_WC_SUCCESS ? 0 : list[i].vendor_err);
  }
  return result;
}

int req_notify_cq(ibv_cq* queue, int solicited_only) {
  const Device* device = device_of(queue->context);
  if (!device) return EINVAL;
  Record record = begin_call(number("ibv_req_notify_cq"), device->id);
  const int result = device->ops.req_notify_cq(queue, solicited_only);
  end_call(record, result);
  return result;
}

// --- extended queue pairs and completion queues: the functions stand in the object, so the originals are kept by its
// address ---

// Behind ibv_qp_ex of rdma-core 44, since 45.
using WrFlush = void (*)(ibv_qp_ex* pair, uint32_t key, uint64_t address, size_t length, uint8_t type,
                         uint8_t level);
constexpr size_t wr_flush_at = offsetof(ibv_qp_ex, wr_atomic_write) + sizeof(void*);
constexpr uint64_t with_flush = 1 << 11;  // of send_ops_flags

struct Extended {
  const void* at = nullptr;
  uint32_t device = 0;
  uint64_t calls = 0;  // send_ops_flags: which of the newest calls the queue pair has
  ibv_qp_ex pair{};
  WrFlush wr_flush = nullptr;
  decltype(ibv_cq_ex::start_poll) start_poll = nullptr;
  decltype(ibv_cq_ex::next_poll) next_poll = nullptr;
};

Extended* extended[objects_most];
size_t extended_used = 0;
std::atomic<uint64_t> extended_changes{1};

struct Remembered {
  const void* at = nullptr;
  uint64_t changes = 0;
  Extended* found = nullptr;
};
thread_local Remembered remembered __attribute__((tls_model("initial-exec")));

Extended* find_extended(const void* at) noexcept {
  const uint64_t changes = extended_changes.load(std::memory_order_acquire);
  if (remembered.at == at && remembered.changes == changes) return remembered.found;
  const std::lock_guard lock(opening);
  Extended* found = nullptr;
  for (size_t i = 0; i < extended_used && !found; ++i) {
    if (extended[i]->at == at) found = extended[i];
  }
  remembered = {.at = at, .changes = changes, .found = found};
  return found;
}

// Null when there is no room: the object stays as it is.
Extended* new_extended(const void* at, uint32_t device) noexcept {
  if (extended_used == objects_most) return nullptr;
  auto* made = new (std::nothrow) Extended{};
  if (!made) return nullptr;
  made->at = at;
  made->device = device;
  extended[extended_used++] = made;
  ++extended_changes;
  return made;
}

void forget_extended(const void* at) noexcept {
  const std::lock_guard lock(opening);
  for (size_t i = 0; i < extended_used; ++i) {
    if (extended[i]->at != at) continue;
    delete extended[i];
    extended[i] = extended[--extended_used];
    ++extended_changes;
    return;
  }
}

// Work requests between ibv_wr_start and ibv_wr_complete: this thread's newest records, so that ibv_wr_abort can take
// them back and the setters of pieces can add their bytes.
struct Building {
  uint64_t begin = 0;
  uint64_t first = 0;  // ring.next at ibv_wr_start
};
thread_local Building building __attribute__((tls_model("initial-exec")));

template <auto Member, uint16_t Number, class... Arguments>
void build(ibv_qp_ex* pair, Arguments... arguments) {
  Extended* original = find_extended(pair);
  put_operation(building.begin, Number, original->device, pair->qp_base.qp_num, pair->wr_id, 0,
                (pair->wr_flags & IBV_SEND_SIGNALED) ? flag_completion : 0);
  (original->pair.*Member)(pair, arguments...);
}

void wr_atomic_write(ibv_qp_ex* pair, uint32_t key, uint64_t address, const void* value) {
  Extended* original = find_extended(pair);
  put_operation(building.begin, number("ATOMIC WRITE"), original->device, pair->qp_base.qp_num, pair->wr_id,
                sizeof(uint64_t), (pair->wr_flags & IBV_SEND_SIGNALED) ? flag_completion : 0);
  original->pair.wr_atomic_write(pair, key, address, value);
}

void wr_flush(ibv_qp_ex* pair, uint32_t key, uint64_t address, size_t length, uint8_t type, uint8_t level) {
  Extended* original = find_extended(pair);
  put_operation(building.begin, number("FLUSH"), original->device, pair->qp_base.qp_num, pair->wr_id, length,
                (pair->wr_flags & IBV_SEND_SIGNALED) ? flag_completion : 0);
  original->wr_flush(pair, key, address, length, type, level);
}

void add_bytes(uint64_t bytes) noexcept {
  if (ring.records && ring.next > building.first) ring.records[(ring.next - 1) & ring.mask].bytes += bytes;
}

void set_sge(ibv_qp_ex* pair, uint32_t key, uint64_t address, uint32_t length) {
  add_bytes(length);
  find_extended(pair)->pair.wr_set_sge(pair, key, address, length);
}

void set_sge_list(ibv_qp_ex* pair, size_t count, const ibv_sge* list) {
  add_bytes(bytes_of(list, static_cast<int>(count)));
  find_extended(pair)->pair.wr_set_sge_list(pair, count, list);
}

void set_inline_data(ibv_qp_ex* pair, void* address, size_t length) {
  add_bytes(length);
  find_extended(pair)->pair.wr_set_inline_data(pair, address, length);
}

void set_inline_data_list(ibv_qp_ex* pair, size_t count, const ibv_data_buf* list) {
  for (size_t i = 0; i < count; ++i) add_bytes(list[i].length);
  find_extended(pair)->pair.wr_set_inline_data_list(pair, count, list);
}

void start(ibv_qp_ex* pair) {
  building = {.begin = now(), .first = ring.next};
  find_extended(pair)->pair.wr_start(pair);
}

void take_back() noexcept {
  for (uint64_t i = building.first; ring.records && i < ring.next; ++i)
    ring.records[i & ring.mask].type = Type::none;
}

int complete(ibv_qp_ex* pair) {
  Extended* original = find_extended(pair);
  Record record = begin_call(number("ibv_wr_complete"), original->device);
  record.queue_pair = pair->qp_base.qp_num;
  const int result = original->pair.wr_complete(pair);
  if (result != 0) take_back();  // ibv_wr_post(3): none was posted
  end_call(record, result);
  return result;
}

void abort_building(ibv_qp_ex* pair) {
  take_back();
  find_extended(pair)->pair.wr_abort(pair);
}

template <auto Member, uint16_t Number, class... Arguments>
void hook(ibv_qp_ex& pair, void (*ibv_qp_ex::*)(ibv_qp_ex*, Arguments...)) noexcept {
  if (pair.*Member) pair.*Member = &build<Member, Number, Arguments...>;
}

template <class Function>
void exchange(Function& place, Function ours) noexcept {
  if (place) place = ours;
}

void adopt_pair(ibv_qp_ex* pair) noexcept {
  if (pair->wr_complete == &complete) return;
  Extended* kept = find_extended(pair);
  if (!kept) {
    const std::lock_guard lock(opening);
    kept = new_extended(pair, id_of(pair->qp_base.context));
  }
  if (!kept) return;
  // What is after wr_abort came later than this structure: it is there if it was asked for when the queue pair was made.
  std::memcpy(static_cast<void*>(&kept->pair), pair, offsetof(ibv_qp_ex, wr_atomic_write));
  if ((kept->calls & IBV_QP_EX_WITH_ATOMIC_WRITE) != 0) {
    kept->pair.wr_atomic_write = pair->wr_atomic_write;
    exchange(pair->wr_atomic_write, &wr_atomic_write);
  }
  if ((kept->calls & with_flush) != 0) {
    std::byte* const place = reinterpret_cast<std::byte*>(pair) + wr_flush_at;
    std::memcpy(&kept->wr_flush, place, sizeof kept->wr_flush);
    const WrFlush ours = &wr_flush;
    if (kept->wr_flush) std::memcpy(place, &ours, sizeof ours);
  }
  hook<&ibv_qp_ex::wr_atomic_cmp_swp, number("COMPARE AND SWAP")>(*pair, &ibv_qp_ex::wr_atomic_cmp_swp);
  hook<&ibv_qp_ex::wr_atomic_fetch_add, number("FETCH AND ADD")>(*pair, &ibv_qp_ex::wr_atomic_fetch_add);
  hook<&ibv_qp_ex::wr_bind_mw, number("BIND MW")>(*pair, &ibv_qp_ex::wr_bind_mw);
  hook<&ibv_qp_ex::wr_local_inv, number("LOCAL INVALIDATE")>(*pair, &ibv_qp_ex::wr_local_inv);
  hook<&ibv_qp_ex::wr_rdma_read, number("RDMA READ")>(*pair, &ibv_qp_ex::wr_rdma_read);
  hook<&ibv_qp_ex::wr_rdma_write, number("RDMA WRITE")>(*pair, &ibv_qp_ex::wr_rdma_write);
  hook<&ibv_qp_ex::wr_rdma_write_imm, number("RDMA WRITE with immediate")>(*pair,
                                                                           &ibv_qp_ex::wr_rdma_write_imm);
  hook<&ibv_qp_ex::wr_send, number("SEND")>(*pair, &ibv_qp_ex::wr_send);
  hook<&ibv_qp_ex::wr_send_imm, number("SEND with immediate")>(*pair, &ibv_qp_ex::wr_send_imm);
  hook<&ibv_qp_ex::wr_send_inv, number("SEND with invalidate")>(*pair, &ibv_qp_ex::wr_send_inv);
  exchange(pair->wr_set_sge, &set_sge);
  exchange(pair->wr_set_sge_list, &set_sge_list);
  exchange(pair->wr_set_inline_data, &set_inline_data);
  exchange(pair->wr_set_inline_data_list, &set_inline_data_list);
  exchange(pair->wr_start, &start);
  exchange(pair->wr_complete, &complete);
  exchange(pair->wr_abort, &abort_building);
}

void put_current(uint64_t time, uint16_t call, const Extended& kept, ibv_cq_ex* queue) noexcept {
  const ibv_wc_opcode opcode =
      queue->status == IBV_WC_SUCCESS && queue->read_opcode ? queue->read_opcode(queue) : IBV_WC_SEND;
  const uint32_t pair = queue->read_qp_num ? queue->read_qp_num(queue) : 0;
  const bool is_error = queue->status != IBV_WC_SUCCESS && queue->read_vendor_err;
  put_completion(time, call, kept.device, pair, queue->wr_id, 0, side_of(queue->status, opcode),
                 queue->status, is_error ? queue->read_vendor_err(queue) : 0);
}

int start_poll(ibv_cq_ex* queue, ibv_poll_cq_attr* attr) {
  const Extended* kept = find_extended(queue);
  constexpr uint16_t call = number("ibv_start_poll");
  Record record = begin_call(call, kept->device);
  const int result = kept->start_poll(queue, attr);
  if (result == ENOENT) {
    put_idle(call, kept->device, record.begin, now());
    return result;
  }
  end_call(record, result);
  if (result == 0) put_current(record.end, call, *kept, queue);
  return result;
}

int next_poll(ibv_cq_ex* queue) {
  const Extended* kept = find_extended(queue);
  constexpr uint16_t call = number("ibv_next_poll");
  const int result = kept->next_poll(queue);
  if (result == 0) put_current(now(), call, *kept, queue);
  return result;
}

// --- what is made and closed ---

void note_pair(const ibv_qp* pair, uint32_t device, bool all_signaled) noexcept {
  say("pair %u %u %d\n", device, pair->qp_num, all_signaled ? 1 : 0);
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  const Device* device = device_of(context);
  if (!device) return nullptr;
  Record record = begin_call(number("ibv_create_qp_ex"), device->id);
  ibv_qp* made = device->create_qp_ex(context, attr);
  if (made) {
    record.queue_pair = made->qp_num;
    note_pair(made, device->id, attr->sq_sig_all != 0);
    const uint64_t calls = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) ? attr->send_ops_flags : 0;
    if (calls & (IBV_QP_EX_WITH_ATOMIC_WRITE | with_flush)) {
      const std::lock_guard lock(opening);
      if (Extended* kept = new_extended(made, device->id)) kept->calls = calls;
    }
  }
  end_call(record, made ? 0 : -errno);
  return made;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  const Device* device = device_of(context);
  if (!device) return nullptr;
  Record record = begin_call(number("ibv_create_cq_ex"), device->id);
  ibv_cq_ex* made = device->create_cq_ex(context, attr);
  end_call(record, made ? 0 : -errno);
  if (!made || !made->start_poll || !made->next_poll) return made;
  const std::lock_guard lock(opening);
  if (Extended* kept = new_extended(made, device->id)) {
    kept->start_poll = made->start_poll;
    kept->next_poll = made->next_poll;
    made->start_poll = &start_poll;
    made->next_poll = &next_poll;
  }
  return made;
}

// As the header's verbs_get_ctx_op: whether the context is so long.
bool reaches(const verbs_context* context, size_t offset) noexcept {
  return context->sz >= sizeof *context - offset;
}

void adopt_device(ibv_context* context) noexcept {
  const std::lock_guard lock(opening);
  if (device_of(context)) return;
  size_t place = 0;
  const size_t used = devices_used.load();
  while (place < used && devices[place].context.load()) ++place;
  if (place == devices_most) return;
  Device& device = devices[place];
  device.id = new_object();
  device.ops = context->ops;
  verbs_context* wide = verbs_get_ctx(context);
  device.create_qp_ex = nullptr;
  device.create_cq_ex = nullptr;
  if (wide && reaches(wide, offsetof(verbs_context, create_qp_ex))) device.create_qp_ex = wide->create_qp_ex;
  if (wide && reaches(wide, offsetof(verbs_context, create_cq_ex))) device.create_cq_ex = wide->create_cq_ex;
  say("object %u device %s\n", device.id, context->device ? context->device->name : "");
  device.context.store(context, std::memory_order_release);
  if (place == used) devices_used.store(used + 1, std::memory_order_release);
  exchange(context->ops.post_send, &post_send);
  exchange(context->ops.post_recv, &post_recv);
  exchange(context->ops.post_srq_recv, &post_srq_recv);
  exchange(context->ops.poll_cq, &poll_cq);
  exchange(context->ops.req_notify_cq, &req_notify_cq);
  if (device.create_qp_ex) wide->create_qp_ex = &create_qp_ex;
  if (device.create_cq_ex) wide->create_cq_ex = &create_cq_ex;
}

// The context gets its tables back before it is closed: a library may look at them.
void release_device(ibv_context* context) noexcept {
  const std::lock_guard lock(opening);
  Device* device = device_of(context);
  if (!device) return;
  context->ops = device->ops;
  verbs_context* wide = verbs_get_ctx(context);
  if (device->create_qp_ex) wide->create_qp_ex = device->create_qp_ex;
  if (device->create_cq_ex) wide->create_cq_ex = device->create_cq_ex;
  device->context.store(nullptr, std::memory_order_release);
}

// --- exported calls ---

// The next library's function of this name; each call has its own `kept`.
template <class Function>
Function* next_of(std::atomic<void*>& kept, const char* name, const char* version) noexcept {
  void* found = kept.load(std::memory_order_relaxed);
  if (!found) {
    found = next_symbol(name, version, library);
    kept.store(found, std::memory_order_relaxed);
    if (!found) errno = ENOSYS;
  }
  return reinterpret_cast<Function*>(found);
}

int64_t result_of(const void* made) noexcept { return made ? 0 : -errno; }
int64_t result_of(int result) noexcept { return result; }

// Calls the next library's function and records it.
template <uint16_t Number, class Result, class... Arguments>
Result through(const char* version, uint32_t device, uint64_t bytes, uint32_t queue_pair,
               Arguments... arguments) {
  static std::atomic<void*> kept{nullptr};
  auto* next = next_of<Result(Arguments...)>(kept, calls[Number].name.data(), version);
  if (!next) {
    if constexpr (std::is_pointer_v<Result>) {
      return nullptr;
    } else {
      return -1;
    }
  }
  Record record = begin_call(Number, device);
  record.bytes = bytes;
  record.queue_pair = queue_pair;
  const Result result = next(arguments...);
  end_call(record, result_of(result));
  return result;
}

}  // namespace

}  // namespace weft::trace

#pragma GCC visibility push(default)
extern "C" {

using weft::trace::id_of;
using weft::trace::number;
using weft::trace::through;

ibv_context* ibv_open_device(ibv_device* device) {
  ibv_context* made = through<number("ibv_open_device"), ibv_context*>("IBVERBS_1.1", 0, 0, 0, device);
  if (made) weft::trace::adopt_device(made);
  return made;
}

int ibv_close_device(ibv_context* context) {
  const uint32_t id = id_of(context);
  weft::trace::release_device(context);
  return through<number("ibv_close_device"), int>("IBVERBS_1.1", id, 0, 0, context);
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return through<number("ibv_alloc_pd"), ibv_pd*>("IBVERBS_1.1", id_of(context), 0, 0, context);
}

int ibv_dealloc_pd(ibv_pd* pd) {
  return through<number("ibv_dealloc_pd"), int>("IBVERBS_1.1", id_of(pd->context), 0, 0, pd);
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  return through<number("ibv_reg_mr"), ibv_mr*>("IBVERBS_1.1", id_of(pd->context), length, 0, pd, address,
                                                length, access);
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova, int access) {
  return through<number("ibv_reg_mr_iova"), ibv_mr*>("IBVERBS_1.7", id_of(pd->context), length, 0, pd,
                                                     address, length, iova, access);
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
  return through<number("ibv_reg_mr_iova2"), ibv_mr*>("IBVERBS_1.8", id_of(pd->context), length, 0, pd,
                                                      address, length, iova, access);
}

int ibv_dereg_mr(ibv_mr* region) {
  return through<number("ibv_dereg_mr"), int>("IBVERBS_1.1", id_of(region->context), 0, 0, region);
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel,
                      int vector) {
  return through<number("ibv_create_cq"), ibv_cq*>("IBVERBS_1.1", id_of(context), 0, 0, context, entries,
                                                   cq_context, channel, vector);
}

int ibv_destroy_cq(ibv_cq* queue) {
  const int result =
      through<number("ibv_destroy_cq"), int>("IBVERBS_1.1", id_of(queue->context), 0, 0, queue);
  if (result == 0) weft::trace::forget_extended(queue);
  return result;
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  const uint32_t id = id_of(pd->context);
  ibv_qp* made = through<number("ibv_create_qp"), ibv_qp*>("IBVERBS_1.1", id, 0, 0, pd, attr);
  if (made) weft::trace::note_pair(made, id, attr->sq_sig_all != 0);
  return made;
}

int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* attr, int mask) {
  return through<number("ibv_modify_qp"), int>("IBVERBS_1.1", id_of(pair->context), 0, pair->qp_num, pair,
                                               attr, mask);
}

int ibv_destroy_qp(ibv_qp* pair) {
  const int result =
      through<number("ibv_destroy_qp"), int>("IBVERBS_1.1", id_of(pair->context), 0, pair->qp_num, pair);
  if (result == 0) weft::trace::forget_extended(pair);
  return result;
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* pair) {
  static std::atomic<void*> kept{nullptr};
  auto* next = weft::trace::next_of<ibv_qp_ex*(ibv_qp*)>(kept, "ibv_qp_to_qp_ex", "IBVERBS_1.6");
  ibv_qp_ex* wide = next ? next(pair) : nullptr;
  if (wide) weft::trace::adopt_pair(wide);
  return wide;
}

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return through<number("ibv_create_srq"), ibv_srq*>("IBVERBS_1.1", id_of(pd->context), 0, 0, pd, attr);
}

int ibv_destroy_srq(ibv_srq* queue) {
  return through<number("ibv_destroy_srq"), int>("IBVERBS_1.1", id_of(queue->context), 0, 0, queue);
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return through<number("ibv_create_ah"), ibv_ah*>("IBVERBS_1.1", id_of(pd->context), 0, 0, pd, attr);
}

int ibv_destroy_ah(ibv_ah* handle) {
  return through<number("ibv_destroy_ah"), int>("IBVERBS_1.1", id_of(handle->context), 0, 0, handle);
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** queue, void** context) {
  return through<number("ibv_get_cq_event"), int>("IBVERBS_1.1", id_of(channel->context), 0, 0, channel,
                                                  queue, context);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return through<number("ibv_get_async_event"), int>("IBVERBS_1.1", id_of(context), 0, 0, context, event);
}

}  // extern "C"
#pragma GCC visibility pop
