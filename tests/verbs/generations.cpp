// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A program of rdma-core 59, 62, 64 and 65: their calls on the built-in device, each bound at its node, and those that ibv_devinfo(1) of each release
// is bound to. Compiled with the headers of any generation. Prints "ok", or what is wrong and ends with 1.
#include "api/verbs/library/generations.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

extern "C" {
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr);
ibv_dmah* ibv_alloc_dmah(ibv_context* context, ibv_dmah_init_attr* attr);
int ibv_dealloc_dmah(ibv_dmah* dmah);
int ibv_dm_export_dmabuf_fd(ibv_dm* dm);
int ibv_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed);
void* ibv_alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buf);
void ibv_free_buf(ibv_buf* buf);
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* addr, size_t length, int access);
int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* caps, size_t bytes);
ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context, ibv_comp_cntr_init_attr* attr);
int ibv_export_buf_dmabuf_fd(ibv_buf* buf);
}

#define CHECK(good)                                                                                  \
  do {                                                                                               \
    if (!(good)) {                                                                                   \
      std::printf("FAILED: generations.cpp:%d: %s (errno: %s)\n", __LINE__, #good, strerror(errno)); \
      std::exit(1);                                                                                  \
    }                                                                                                \
  } while (0)

namespace {

namespace layout = weft::verbs::layout;

ibv_mr* reg(ibv_pd* pd, layout::MrInitAttr attr) {
  return ibv_reg_mr_ex(pd, reinterpret_cast<ibv_mr_init_attr*>(&attr));
}

void connect(ibv_qp* qp, ibv_gid gid, uint32_t qpn) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | layout::access_flush_global;
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = qpn;
  attr.max_dest_rd_atomic = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = gid;
  attr.ah_attr.grh.hop_limit = 64;
  CHECK(ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.max_rd_atomic = 1;
  attr.retry_cnt = 7;
  CHECK(ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

// 64 bytes, or the 8 of an ATOMIC WRITE, from `from` to `address` of the peer; the status of the completion.
ibv_wc_status write(ibv_qp* qp, const ibv_mr* from, uint64_t address, uint32_t rkey,
                    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE, unsigned flags = 0) {
  ibv_sge element{reinterpret_cast<uintptr_t>(from->addr), opcode == IBV_WR_RDMA_WRITE ? 64U : 8U,
                  from->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &element;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED | flags;
  wr.wr.rdma.remote_addr = address;
  wr.wr.rdma.rkey = rkey;
  ibv_send_wr* bad = nullptr;
  CHECK(ibv_post_send(qp, &wr, &bad) == 0);
  ibv_wc wc{};
  int count = 0;
  for (int tries = 0; count == 0 && tries < 100'000; ++tries) {
    count = ibv_poll_cq(qp->send_cq, 1, &wc);
    if (count == 0) usleep(20);
  }
  CHECK(count == 1);
  CHECK(wc.status != IBV_WC_SUCCESS ||
        wc.opcode == (opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE : IBV_WC_ATOMIC_WRITE));
  return wc.status;
}

// The same 8 bytes by ibv_wr_atomic_write(3).
ibv_wc_status write_by_calls(ibv_qp* qp, uint64_t address, uint32_t rkey, uint64_t value) {
  ibv_qp_ex* extended = ibv_qp_to_qp_ex(qp);
  CHECK(extended != nullptr);
  ibv_wr_start(extended);
  extended->wr_id = 5;
  extended->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_atomic_write(extended, rkey, address, &value);
  CHECK(ibv_wr_complete(extended) == 0);
  ibv_wc wc{};
  int count = 0;
  for (int tries = 0; count == 0 && tries < 100'000; ++tries) {
    count = ibv_poll_cq(qp->send_cq, 1, &wc);
    if (count == 0) usleep(20);
  }
  CHECK(count == 1 && wc.wr_id == 5);
  return wc.status;
}

// ibv_wr_flush(3) of headers since 45. 0, or what ibv_wr_complete refuses; the status of the completion.
int flush(ibv_qp* qp, uint64_t address, uint32_t rkey, size_t length, uint8_t type, uint8_t level,
          ibv_wc_status& status) {
  auto* extended = static_cast<layout::ExtendedQp*>(ibv_qp_to_qp_ex(qp));
  CHECK(extended != nullptr && extended->wr_flush != nullptr);
  ibv_wr_start(extended);
  extended->wr_id = 6;
  extended->wr_flags = IBV_SEND_SIGNALED;
  extended->wr_flush(extended, rkey, address, length, type, level);
  if (const int refused = ibv_wr_complete(extended)) return refused;
  ibv_wc wc{};
  int count = 0;
  for (int tries = 0; count == 0 && tries < 100'000; ++tries) {
    count = ibv_poll_cq(qp->send_cq, 1, &wc);
    if (count == 0) usleep(20);
  }
  CHECK(count == 1 && wc.wr_id == 6);
  CHECK(wc.status != IBV_WC_SUCCESS || int{wc.opcode} == layout::wc_flush_opcode);
  status = wc.status;
  return 0;
}

// Private nodes: what one release's programs of rdma-core find is the same at each.
void check_private_nodes(ibv_context* context) {
  for (const char* node : {"IBVERBS_PRIVATE_34", "IBVERBS_PRIVATE_57", "IBVERBS_PRIVATE_59",
                           "IBVERBS_PRIVATE_64", "IBVERBS_PRIVATE_65"}) {
    auto* gid_type = reinterpret_cast<int (*)(ibv_context*, uint8_t, unsigned, int*)>(
        dlvsym(RTLD_DEFAULT, "ibv_query_gid_type", node));
    CHECK(gid_type != nullptr);
    int type = -1;
    CHECK(gid_type(context, 1, 0, &type) == 0 && type == 1);
    auto* opcode = reinterpret_cast<const char* (*)(int)>(dlvsym(RTLD_DEFAULT, "ibv_wr_opcode_str", node));
    CHECK(opcode != nullptr && std::strcmp(opcode(IBV_WR_SEND), "send") == 0);
    auto* create_cq = reinterpret_cast<int (*)()>(dlvsym(RTLD_DEFAULT, "ibv_cmd_create_cq_ex2", node));
    CHECK(create_cq != nullptr && create_cq() == EOPNOTSUPP);
    const auto* disassociates =
        static_cast<const bool*>(dlvsym(RTLD_DEFAULT, "verbs_allow_disassociate_destroy", node));
    CHECK(disassociates != nullptr && !*disassociates);
    char name[64];
    std::snprintf(name, sizeof name, "verbs_register_driver_%s", std::strrchr(node, '_') + 1);
    CHECK(dlvsym(RTLD_DEFAULT, name, node) != nullptr);
  }
}

}  // namespace

int main() {
  ibv_device** list = ibv_get_device_list(nullptr);
  CHECK(list != nullptr && *list != nullptr);
  ibv_context* context = ibv_open_device(*list);
  ibv_free_device_list(list);
  CHECK(context != nullptr);
  ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
  CHECK(pd != nullptr && other != nullptr);

  check_private_nodes(context);
  CHECK(_ibv_query_comp_cntr_caps(context, nullptr, 0) == EOPNOTSUPP && errno == EOPNOTSUPP);
  CHECK(ibv_create_comp_cntr(context, nullptr) == nullptr && errno == EOPNOTSUPP);
  uint64_t speed = 0;
  CHECK(ibv_query_port_speed(context, 1, &speed) == 0 && speed == 1000);
  CHECK(ibv_query_port_speed(context, 2, &speed) == EINVAL && errno == EINVAL);
  CHECK(ibv_dm_export_dmabuf_fd(nullptr) == -1 && errno == EOPNOTSUPP);

  layout::DmahInitAttr hints{layout::dmah_cpu_id | layout::dmah_memory_type, 0, 0, 1};
  auto* dmah = ibv_alloc_dmah(context, reinterpret_cast<ibv_dmah_init_attr*>(&hints));
  CHECK(dmah != nullptr);
  hints.comp_mask = 0x80;
  CHECK(ibv_alloc_dmah(context, reinterpret_cast<ibv_dmah_init_attr*>(&hints)) == nullptr && errno == EINVAL);

  ibv_buf* buf = nullptr;
  auto* base = static_cast<char*>(ibv_alloc_buf(pd, 10000, &buf));
  CHECK(base != nullptr && buf != nullptr && reinterpret_cast<uintptr_t>(base) % 4096 == 0);
  CHECK(ibv_export_buf_dmabuf_fd(buf) == -1 && errno == ENODATA);
  CHECK(ibv_export_buf_dmabuf_fd(nullptr) == -1 && errno == EINVAL);
  constexpr int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  CHECK(ibv_reg_buf_mr(other, buf, base, 10000, rights) == nullptr && errno == EINVAL);
  CHECK(ibv_reg_buf_mr(pd, buf, base, 10001, rights) == nullptr && errno == EINVAL);
  ibv_mr* of_buffer = ibv_reg_buf_mr(pd, buf, base + 4096, 4096, rights);
  CHECK(of_buffer != nullptr && of_buffer->addr == base + 4096 && of_buffer->length == 4096);

  alignas(64) static char memory[4096];
  layout::MrInitAttr attr{};
  attr.length = sizeof memory;
  attr.access = rights;
  attr.addr = memory;
  attr.comp_mask = layout::mr_addr | layout::mr_dmah;
  attr.dmah = reinterpret_cast<layout::Dmah*>(dmah);
  ibv_mr* by_address = reg(pd, attr);
  CHECK(by_address != nullptr && by_address->addr == memory);
  attr.comp_mask = layout::mr_addr | layout::mr_iova;
  attr.iova = 0x10000;
  ibv_mr* by_iova = reg(pd, attr);
  CHECK(by_iova != nullptr);
  attr.comp_mask = layout::mr_fd | layout::mr_fd_offset;
  CHECK(reg(pd, attr) == nullptr && errno == EOPNOTSUPP);
  attr.comp_mask = layout::mr_fd | layout::mr_addr;
  CHECK(reg(pd, attr) == nullptr && errno == EINVAL);

  ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 1, 1, 1, 0};
  ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
  CHECK(cq != nullptr && one != nullptr && two != nullptr);
  ibv_gid gid;
  CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
  connect(one, gid, two->qp_num);
  connect(two, gid, one->qp_num);
  std::memset(memory, 'a', sizeof memory);
  CHECK(write(one, by_address, reinterpret_cast<uintptr_t>(base) + 5000, of_buffer->rkey) == IBV_WC_SUCCESS);
  CHECK(base[5000] == 'a' && base[5063] == 'a' && base[5064] == 0 && base[4999] == 0);
  std::memset(base + 4096, 'b', 64);
  CHECK(write(one, of_buffer, 0x10000 + 128, by_iova->rkey) == IBV_WC_SUCCESS);
  CHECK(memory[127] == 'a' && memory[128] == 'b' && memory[191] == 'b' && memory[192] == 'a');
  std::memset(base + 4096, 'c', 64);
  CHECK(write(one, of_buffer, 0x10000 + 256, by_iova->rkey, IBV_WR_ATOMIC_WRITE) == IBV_WC_SUCCESS);
  CHECK(memory[255] == 'a' && memory[256] == 'c' && memory[263] == 'c' && memory[264] == 'a');
  std::memset(base + 4096, 'd', 64);
  CHECK(write(one, of_buffer, 0x10000 + 256, by_iova->rkey, IBV_WR_ATOMIC_WRITE, IBV_SEND_INLINE) ==
        IBV_WC_SUCCESS);
  CHECK(memory[255] == 'a' && memory[256] == 'd' && memory[263] == 'd' && memory[264] == 'a');
  ibv_qp_init_attr_ex extended{};
  extended.send_cq = extended.recv_cq = cq;
  extended.qp_type = IBV_QPT_RC;
  extended.cap = init.cap;
  extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  extended.pd = pd;
  extended.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE;
  ibv_qp *three = ibv_create_qp_ex(context, &extended), *four = ibv_create_qp(pd, &init);
  CHECK(three != nullptr && four != nullptr);
  connect(three, gid, four->qp_num);
  connect(four, gid, three->qp_num);
  const auto value = [] {
    uint64_t read = 0;
    std::memcpy(&read, memory + 256, sizeof read);
    return read;
  };
  CHECK(write_by_calls(three, 0x10000 + 256, by_iova->rkey, 0x0102030405060708) == IBV_WC_SUCCESS);
  CHECK(value() == 0x0102030405060708 && memory[255] == 'a' && memory[264] == 'a');
  // A region without the right: nothing is stored.
  alignas(8) static uint64_t locked = 7;
  ibv_mr* read_only =
      ibv_reg_mr(pd, &locked, sizeof locked, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  CHECK(read_only != nullptr);
  CHECK(write_by_calls(three, reinterpret_cast<uintptr_t>(&locked), read_only->rkey, 1) ==
        IBV_WC_REM_ACCESS_ERR);
  CHECK(locked == 7);
  CHECK(ibv_destroy_qp(three) == 0 && ibv_destroy_qp(four) == 0 && ibv_dereg_mr(read_only) == 0);

  ibv_device_attr_ex device{};
  CHECK(ibv_query_device_ex(context, nullptr, &device) == 0);
  CHECK((device.device_cap_flags_ex & layout::device_flush_global) != 0 &&
        (device.device_cap_flags_ex & layout::device_flush_global << 1) == 0);
  CHECK(ibv_reg_mr(pd, memory, sizeof memory, rights | int{layout::access_flush_persistent}) == nullptr &&
        errno == EOPNOTSUPP);
  ibv_mr* flushed = ibv_reg_mr(pd, memory, sizeof memory, rights | int{layout::access_flush_global});
  CHECK(flushed != nullptr);
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  extended.send_ops_flags = layout::qp_with_flush;
  const auto pair_of = [&](ibv_qp*& from, ibv_qp*& to) {
    from = ibv_create_qp_ex(context, &extended);
    to = ibv_create_qp(pd, &init);
    CHECK(from != nullptr && to != nullptr);
    connect(from, gid, to->qp_num);
    connect(to, gid, from->qp_num);
  };
  ibv_qp *five, *six;
  ibv_wc_status status{};
  pair_of(five, six);
  for (const uint8_t level : {layout::flush_range, layout::flush_region})
    CHECK(flush(five, begin + 100, flushed->rkey, 64, layout::flush_global, level, status) == 0 &&
          status == IBV_WC_SUCCESS);
  CHECK(flush(five, begin, flushed->rkey, 64, 0, layout::flush_range, status) == EINVAL);
  CHECK(flush(five, begin, flushed->rkey, 64, 17, layout::flush_range, status) == EINVAL);
  CHECK(flush(five, begin, flushed->rkey, 64, layout::flush_global, 2, status) == EINVAL);
  CHECK(flush(five, begin, flushed->rkey, size_t{1} << 40, layout::flush_global, layout::flush_range,
              status) == EINVAL);
  CHECK(flush(five, begin, flushed->rkey, sizeof memory + 1, layout::flush_global, layout::flush_range,
              status) == 0 &&
        status == IBV_WC_REM_ACCESS_ERR);
  CHECK(ibv_destroy_qp(five) == 0 && ibv_destroy_qp(six) == 0);
  // A region without the right, and a placement that it has not.
  for (const bool has_right : {false, true}) {
    pair_of(five, six);
    const ibv_mr* mr = has_right ? flushed : by_iova;
    const uint8_t type = has_right ? layout::flush_persistent : layout::flush_global;
    CHECK(flush(five, has_right ? begin : 0x10000, mr->rkey, 64, type, layout::flush_range, status) == 0 &&
          status == IBV_WC_REM_ACCESS_ERR);
    CHECK(ibv_destroy_qp(five) == 0 && ibv_destroy_qp(six) == 0);
  }
  CHECK(ibv_dereg_mr(flushed) == 0);

  // ibv_query_qp_data_in_order(3): no flag, IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS, and for the device alone.
  for (const uint32_t flags : {0U, 1U, 2U, 3U})
    CHECK(ibv_query_qp_data_in_order(one, IBV_WR_RDMA_WRITE, flags) == 0);

  CHECK(ibv_dereg_mr(by_iova) == 0 && ibv_dereg_mr(by_address) == 0 && ibv_dereg_mr(of_buffer) == 0);
  ibv_free_buf(buf);
  CHECK(ibv_dealloc_dmah(dmah) == 0);
  CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0 && ibv_destroy_cq(cq) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0 && ibv_dealloc_pd(other) == 0 && ibv_close_device(context) == 0);
  std::puts("ok");
  return 0;
}
