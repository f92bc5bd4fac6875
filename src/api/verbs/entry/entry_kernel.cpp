// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exported calls about files and structs of the kernel: sysfs, and the conversions that librdmacm.so.1 asks for. Structs of the kernel:
// <rdma/ib_user_verbs.h>, <rdma/ib_user_sa.h>.
#include <fcntl.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api/verbs/entry/exported.hpp"
#include "os/fd.hpp"

namespace {

void from_kernel(ibv_ah_attr& to, const ib_uverbs_ah_attr& from) noexcept {
  to = {};
  std::memcpy(to.grh.dgid.raw, from.grh.dgid, sizeof to.grh.dgid.raw);
  to.grh.flow_label = from.grh.flow_label;
  to.grh.sgid_index = from.grh.sgid_index;
  to.grh.hop_limit = from.grh.hop_limit;
  to.grh.traffic_class = from.grh.traffic_class;
  to.dlid = from.dlid;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.is_global = from.is_global;
  to.port_num = from.port_num;
}

// The fields that both path records have under one name.
template <class To, class From>
void copy_path(To& to, const From& from) noexcept {
  to.dlid = from.dlid;
  to.slid = from.slid;
  to.raw_traffic = from.raw_traffic;
  to.flow_label = from.flow_label;
  to.reversible = from.reversible;
  to.mtu = from.mtu;
  to.pkey = from.pkey;
  to.hop_limit = from.hop_limit;
  to.traffic_class = from.traffic_class;
  to.numb_path = from.numb_path;
  to.sl = from.sl;
  to.mtu_selector = from.mtu_selector;
  to.rate_selector = from.rate_selector;
  to.rate = from.rate;
  to.packet_life_time_selector = from.packet_life_time_selector;
  to.packet_life_time = from.packet_life_time;
  to.preference = from.preference;
}

}  // namespace

extern "C" {

WEFT_EXPORT const char* ibv_get_sysfs_path() {
  const char* set = std::getenv("SYSFS_PATH");
  return set != nullptr && *set != '\0' ? set : "/sys";
}

// The text of a file without the line feed at its end; its length, or -1 and errno.
WEFT_EXPORT int ibv_read_sysfs_file(const char* directory, const char* file, char* text, size_t bytes) {
  char path[4096];
  if (bytes == 0 || snprintf(path, sizeof path, "%s/%s", directory, file) >= static_cast<int>(sizeof path)) {
    errno = EINVAL;
    return -1;
  }
  const weft::os::Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  ssize_t length = fd ? read(fd.get(), text, bytes) : -1;
  if (length < 0) return -1;
  if (length > 0 && text[length - 1] == '\n') --length;
  if (static_cast<size_t>(length) < bytes) text[length] = '\0';
  return static_cast<int>(length);
}

WEFT_EXPORT void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from) {
  from_kernel(*to, *from);
}

WEFT_EXPORT void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from) {
  to->cur_qp_state = static_cast<ibv_qp_state>(from->cur_qp_state);
  to->path_mtu = static_cast<ibv_mtu>(from->path_mtu);
  to->path_mig_state = static_cast<ibv_mig_state>(from->path_mig_state);
  to->qkey = from->qkey;
  to->rq_psn = from->rq_psn;
  to->sq_psn = from->sq_psn;
  to->dest_qp_num = from->dest_qp_num;
  to->qp_access_flags = from->qp_access_flags;
  to->cap = {from->max_send_wr, from->max_recv_wr, from->max_send_sge, from->max_recv_sge,
             from->max_inline_data};
  from_kernel(to->ah_attr, from->ah_attr);
  from_kernel(to->alt_ah_attr, from->alt_ah_attr);
  to->pkey_index = from->pkey_index;
  to->alt_pkey_index = from->alt_pkey_index;
  to->en_sqd_async_notify = from->en_sqd_async_notify;
  to->sq_draining = from->sq_draining;
  to->max_rd_atomic = from->max_rd_atomic;
  to->max_dest_rd_atomic = from->max_dest_rd_atomic;
  to->min_rnr_timer = from->min_rnr_timer;
  to->port_num = from->port_num;
  to->timeout = from->timeout;
  to->retry_cnt = from->retry_cnt;
  to->rnr_retry = from->rnr_retry;
  to->alt_port_num = from->alt_port_num;
  to->alt_timeout = from->alt_timeout;
}

WEFT_EXPORT void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from) {
  std::memcpy(to->dgid.raw, from->dgid, sizeof to->dgid.raw);
  std::memcpy(to->sgid.raw, from->sgid, sizeof to->sgid.raw);
  copy_path(*to, *from);
}

WEFT_EXPORT void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from) {
  std::memcpy(to->dgid, from->dgid.raw, sizeof to->dgid);
  std::memcpy(to->sgid, from->sgid.raw, sizeof to->sgid);
  copy_path(*to, *from);
}

}  // extern "C"
