// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Extended completion queues: ibv_start_poll and the ibv_wc_read_* calls (ibv_create_cq_ex(3)).
#include <cerrno>

#include "api/verbs/library/errno_guard.hpp"
#include "api/verbs/roce/data.hpp"

namespace weft::verbs::soft {
namespace {

// An empty queue is no failure: errno stays as it was.
int advance(Cq& cq) noexcept {
  ErrnoGuard keeper;
  int taken = 0;
  {
    const Guard guard(cq.instance->lock());
    taken = next_completion(cq, cq.current);
  }
  if (taken <= 0) return taken == 0 ? ENOENT : keeper.fails(-taken);
  cq.wr_id = cq.current.id;
  cq.status = static_cast<ibv_wc_status>(cq.current.status);
  if (cq.has_wall_clock) [[unlikely]]
    cq.current_time_of_day = cq.wall_clock.at(cq.current.time_ns);
  return 0;
}

// One thread at a time between start_poll and end_poll, unless the program promised that.
void give(Cq& cq) noexcept {
  if (!cq.is_single_threaded) cq.polling.unlock();
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) noexcept {
  if (attr->comp_mask != 0) return errno = EINVAL;
  Cq& mine = of(cq);
  if (!mine.is_single_threaded) mine.polling.lock();
  const int status = advance(mine);
  if (status != 0) give(mine);  // end_poll is not called then
  return status;
}
int next_poll(ibv_cq_ex* cq) noexcept { return advance(of(cq)); }
void end_poll(ibv_cq_ex* cq) noexcept { give(of(cq)); }

const roce::Completion& at(ibv_cq_ex* cq) noexcept { return of(cq).current; }

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) noexcept { return static_cast<ibv_wc_opcode>(at(cq).opcode); }
uint32_t read_vendor_err(ibv_cq_ex* cq) noexcept { return at(cq).cause; }
uint32_t read_byte_len(ibv_cq_ex* cq) noexcept { return at(cq).bytes; }
__be32 read_imm_data(ibv_cq_ex* cq) noexcept { return immediate_of(at(cq)); }
uint32_t read_qp_num(ibv_cq_ex* cq) noexcept { return at(cq).qpn; }
uint32_t read_src_qp(ibv_cq_ex* cq) noexcept { return at(cq).source_qpn; }
unsigned read_wc_flags(ibv_cq_ex* cq) noexcept { return at(cq).flags; }
uint32_t read_slid(ibv_cq_ex*) noexcept { return 0; }
uint8_t read_sl(ibv_cq_ex*) noexcept { return 0; }
uint8_t read_dlid_path_bits(ibv_cq_ex*) noexcept { return 0; }
uint64_t read_completion_ts(ibv_cq_ex* cq) noexcept { return at(cq).time_ns; }
uint64_t read_completion_wallclock_ns(ibv_cq_ex* cq) noexcept { return of(cq).current_time_of_day; }

}  // namespace

void fill_extended_cq(Cq& cq) noexcept {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_err;
  cq.read_byte_len = read_byte_len;
  cq.read_imm_data = read_imm_data;
  cq.read_qp_num = read_qp_num;
  cq.read_src_qp = read_src_qp;
  cq.read_wc_flags = read_wc_flags;
  cq.read_slid = read_slid;
  cq.read_sl = read_sl;
  cq.read_dlid_path_bits = read_dlid_path_bits;
  cq.read_completion_ts = read_completion_ts;
  cq.read_completion_wallclock_ns = read_completion_wallclock_ns;
}

}  // namespace weft::verbs::soft
