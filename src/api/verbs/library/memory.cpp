// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Protection domains, memory regions and memory windows.
#include <cerrno>
#include <limits>

#include "api/verbs/library/calls.hpp"
#include "api/verbs/library/generations.hpp"

namespace weft::verbs {
namespace {

constexpr unsigned remote_writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned access_known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | layout::access_flush_global |
                                  layout::access_flush_persistent | IBV_ACCESS_OPTIONAL_RANGE;
// Local write means nothing for a window, and programs give it.
constexpr unsigned window_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;

// ibv_reg_mr(3): who may write from afar may write here.
bool good_access(unsigned access) noexcept {
  return !unknown(access, access_known) &&
         ((access & remote_writes) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0);
}

// Bits of the optional range that this header does not know are left out, which is what optional means.
unsigned without_unknown_options(unsigned access) noexcept {
  return access & ~(static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE) &
                    ~static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING));
}

// All of the address space, on demand: address 0 and length SIZE_MAX.
bool implicit(const void* address, size_t length, unsigned access) noexcept {
  return address == nullptr && length == SIZE_MAX && (access & IBV_ACCESS_ON_DEMAND) != 0;
}

bool wraps(uint64_t begin, size_t length) noexcept {
  return length > std::numeric_limits<uint64_t>::max() - begin;
}

ibv_pd* shown(ibv_pd* pd, ibv_context* context) noexcept {
  if (pd != nullptr) pd->context = context;
  return pd;
}

ibv_mr* shown(ibv_mr* mr, ibv_pd* pd, void* address, size_t length) noexcept {
  if (mr == nullptr) return nullptr;
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  return mr;
}

int refused_rereg(int code, int why) noexcept {
  errno = why;
  return code;
}

}  // namespace

ibv_pd* alloc_pd(ibv_context* context) noexcept {
  return shown(call(ops_of(context).alloc_pd, context), context);
}

int dealloc_pd(ibv_pd* pd) noexcept {
  return pd != nullptr ? call(ops_of(pd->context).dealloc_pd, pd) : EINVAL;
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) noexcept {
  if (attr == nullptr || attr->comp_mask != 0) return refuse(EINVAL);
  ibv_td* td = call(ops_of(context).alloc_td, context);
  if (td != nullptr) td->context = context;
  return td;
}

int dealloc_td(ibv_td* td) noexcept { return call(ops_of(td->context).dealloc_td, td); }

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) noexcept {
  // Memory that a confidential guest shares with the host is a permission: plain memory serves it, too.
  constexpr uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
                             layout::parent_domain_unprotected;
  if (attr == nullptr || unknown(attr->comp_mask, known)) return refuse(EINVAL);
  if (attr->pd == nullptr || attr->pd->context != context) return refuse(EINVAL);
  if (attr->td != nullptr && attr->td->context != context) return refuse(EINVAL);
  // Allocators are for buffers that a device shares with the program; no provider here has any, so none is called.
  return shown(call(ops_of(context).alloc_parent_domain, attr->pd, attr->td), context);
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) noexcept {
  if (pd == nullptr || unknown(access, access_known))
    return refuse(EINVAL, "ibv_reg_mr: no protection domain, or unknown access flags");
  if (!good_access(access))
    return refuse(
        EINVAL,
        "ibv_reg_mr: IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE");
  if (!implicit(address, length, access)) {
    if (wraps(reinterpret_cast<uintptr_t>(address), length))
      return refuse(EINVAL, "ibv_reg_mr: the region goes beyond the end of the address space");
    if ((access & IBV_ACCESS_ZERO_BASED) != 0) iova = 0;
    if (wraps(iova, length)) return refuse(EINVAL);
  }
  const auto given = without_unknown_options(access);
  return shown(call(ops_of(pd->context).reg_mr, pd, address, length, iova, given), pd, address, length);
}

int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length, int access) noexcept {
  const auto bits = static_cast<unsigned>(access);
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool changes_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  const bool changes_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  if (flags == 0 || unknown(static_cast<unsigned>(flags), IBV_REREG_MR_FLAGS_SUPPORTED))
    return refused_rereg(IBV_REREG_MR_ERR_INPUT, EINVAL);
  if (moves && (address == nullptr || length == 0 || wraps(reinterpret_cast<uintptr_t>(address), length)))
    return refused_rereg(IBV_REREG_MR_ERR_INPUT, EINVAL);
  if (changes_pd && (pd == nullptr || pd->context != mr->context))
    return refused_rereg(IBV_REREG_MR_ERR_INPUT, EINVAL);
  if (changes_access ? !good_access(bits) : access != 0) return refused_rereg(IBV_REREG_MR_ERR_INPUT, EINVAL);
  const weft_verbs_ops& ops = ops_of(mr->context);
  if (ops.rereg_mr == nullptr) return refused_rereg(IBV_REREG_MR_ERR_INPUT, EOPNOTSUPP);
  const int code = ops.rereg_mr(mr, flags, pd, address, length, without_unknown_options(bits));
  if (code != 0) return refused_rereg(IBV_REREG_MR_ERR_CMD, code);
  if (moves) {
    mr->addr = address;
    mr->length = length;
  }
  if (changes_pd) mr->pd = pd;
  return 0;
}

int dereg_mr(ibv_mr* mr) noexcept { return mr != nullptr ? call(ops_of(mr->context).dereg_mr, mr) : EINVAL; }

ibv_mr* alloc_null_mr(ibv_pd* pd) noexcept {
  return shown(call(ops_of(pd->context).alloc_null_mr, pd), pd, nullptr, SIZE_MAX);
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list,
              uint32_t count) noexcept {
  if (unknown(flags, IBV_ADVISE_MR_FLAG_FLUSH) || list == nullptr || count == 0) return EINVAL;
  if (static_cast<unsigned>(advice) > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
  return call(ops_of(pd->context).advise_mr, pd, advice, flags, list, count);
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
    return refuse(EINVAL, "ibv_alloc_mw: a memory window is of type 1 or 2");
  ibv_mw* mw = call(ops_of(pd->context).alloc_mw, pd, type);
  if (mw == nullptr) return nullptr;
  mw->context = pd->context;
  mw->pd = pd;
  mw->type = type;
  return mw;
}

int dealloc_mw(ibv_mw* mw) noexcept { return call(ops_of(mw->context).dealloc_mw, mw); }

// The header has compared the window's domain with the region's.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) noexcept {
  if (qp == nullptr || bind == nullptr || qp->context != mw->context) return EINVAL;
  const ibv_mw_bind_info& info = bind->bind_info;
  if (unknown(bind->send_flags, IBV_SEND_FENCE | IBV_SEND_SIGNALED) ||
      unknown(info.mw_access_flags, window_access))
    return EINVAL;
  if (info.mr != nullptr && info.mr->context != mw->context) return EINVAL;
  return call(ops_of(mw->context).bind_mw, qp, mw, bind);
}

}  // namespace weft::verbs
