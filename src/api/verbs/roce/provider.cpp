// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Listing, opening, and what is asked of a context.
#include "api/verbs/roce/provider.hpp"

#include <endian.h>

#include <cerrno>
#include <cstring>

#include "api/verbs/roce/objects.hpp"
#include "os/mapping.hpp"

namespace weft::verbs::soft {
namespace {

using roce::Gid;

constexpr uint32_t vendor_id = 0x5746;  // of no vendor: "WF"

int query_device(ibv_context* context, ibv_device_attr_ex* out) noexcept {
  const Opened& own = opened(context);
  ibv_device_attr& a = out->orig_attr;
  std::strncpy(a.fw_ver, "0.1.0", sizeof a.fw_ver - 1);
  a.node_guid = a.sys_image_guid = guid_of(own.instance->named());
  a.max_mr_size = UINT64_MAX;
  a.page_size_cap = 0xfffff000;
  a.vendor_id = vendor_id;
  a.vendor_part_id = 1;
  a.max_qp = static_cast<int>(roce::objects_max);
  a.max_qp_wr = static_cast<int>(roce::requests_max);
  a.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_MEM_WINDOW |
                       IBV_DEVICE_XRC | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
                       IBV_DEVICE_SYS_IMAGE_GUID;
  a.max_sge = a.max_sge_rd = a.max_srq_sge = static_cast<int>(roce::elements_max);
  a.max_cq = a.max_srq = static_cast<int>(roce::objects_max);
  a.max_cqe = static_cast<int>(roce::completions_max);
  a.max_mr = a.max_mw = static_cast<int>(roce::keys_max);
  a.max_pd = static_cast<int>(domains_max);
  a.max_ah = static_cast<int>(handles_max);
  a.max_qp_rd_atom = a.max_qp_init_rd_atom = static_cast<int>(roce::reads_max);
  a.max_res_rd_atom = a.max_qp_rd_atom * a.max_qp;
  a.atomic_cap = IBV_ATOMIC_GLOB;
  a.max_srq_wr = static_cast<int>(roce::requests_max);
  a.max_mcast_grp = static_cast<int>(roce::groups_max);
  a.max_mcast_qp_attach = static_cast<int>(roce::group_members_max);
  a.max_total_mcast_qp_attach = a.max_mcast_grp * a.max_mcast_qp_attach;
  a.max_pkeys = 1;
  a.local_ca_ack_delay = 15;
  a.phys_port_cnt = 1;
  if (os::can_populate()) {
    constexpr uint32_t rc = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
                            IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
    out->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    out->odp_caps.per_transport_caps = {rc,
                                        IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE,
                                        IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV};
    out->xrc_odp_caps = rc;
  }
  out->completion_timestamp_mask = UINT64_MAX;
  out->hca_core_clock = 1'000'000;  // kHz: time stamps are ns
  out->device_cap_flags_ex = a.device_cap_flags | layout::device_flush_global | layout::device_atomic_write;
  out->phys_port_cnt_ex = 1;
  return 0;
}

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* out) noexcept {
  if (port != 1) return EINVAL;
  const Opened& own = opened(context);
  out->state = IBV_PORT_ACTIVE;
  out->max_mtu = IBV_MTU_4096;
  out->active_mtu = static_cast<ibv_mtu>(own.instance->active_mtu());
  out->gid_tbl_len = static_cast<int>(link::roce::Device::gid_count);
  out->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  out->max_msg_sz = roce::message_bytes_max;
  out->pkey_tbl_len = 1;
  out->max_vl_num = 1;
  out->active_width = 2;   // 4 lanes
  out->active_speed = 32;  // of 25 Gbit/s
  out->phys_state = 5;     // link up
  out->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

int query_gid(ibv_context* context, uint8_t port, uint32_t index, ibv_gid_entry* entry) noexcept {
  if (port != 1 || index >= link::roce::Device::gid_count) return EINVAL;
  Opened& own = opened(context);
  const Gid gid = own.device().gid(index);
  if (gid == Gid{}) return ENODATA;
  std::memcpy(entry->gid.raw, gid.data(), gid.size());
  entry->gid_index = index;
  entry->port_num = port;
  entry->gid_type = IBV_GID_TYPE_ROCE_V2;
  entry->ndev_ifindex = own.instance->named().interface.index;
  return 0;
}

int query_pkey(ibv_context*, uint8_t port, int index, __be16* pkey) noexcept {
  if (port != 1 || index != 0) return EINVAL;
  *pkey = 0xffff;
  return 0;
}

int query_values(ibv_context* context, ibv_values_ex* values) noexcept {
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
    Opened& own = opened(context);
    const Guard guard(own.lock());
    const uint64_t now = own.device().now();
    values->raw_clock.tv_sec = static_cast<time_t>(now / 1'000'000'000);
    values->raw_clock.tv_nsec = static_cast<long>(now % 1'000'000'000);
  }
  values->comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
  return 0;
}

int start(const weft_verbs_services* from) noexcept {
  set_services(*from);
  return 0;
}

int list_devices(void (*add)(void*, const weft_verbs_device*), void* list) noexcept {
  return done([&]() -> Result<void> {
    for (const Named& named : named_devices()) {
      weft_verbs_device device{};
      device.size = sizeof device;
      std::strncpy(device.name, named.name.c_str(), sizeof device.name - 1);
      device.node_type = IBV_NODE_CA;
      device.transport_type = IBV_TRANSPORT_IB;
      device.guid = guid_of(named);
      add(list, &device);
    }
    return {};
  });
}

int open(const weft_verbs_device* device, ibv_context* context, weft_verbs_ops* ops, void** state) noexcept {
  return done([&]() -> Result<void> {
    for (const Named& named : named_devices()) {
      if (named.name != device->name) continue;
      auto instance = Instance::open(named);
      if (!instance) {
        log(1, named.name + ": " + instance.error().why);
        return instance.error();
      }
      auto own = std::make_unique<Opened>();
      own->instance = std::move(*instance);
      own->context = context;
      fill_context_ops(*ops);
      fill_memory_ops(*ops);
      fill_queue_ops(*ops);
      fill_queue_pair_ops(*ops);
      fill_data_ops(*ops);
      *state = own.release();
      return {};
    }
    return Error{ENODEV, std::string("no interface of this machine is device ") + device->name + " any more"};
  });
}

void close(ibv_context*, void* state) noexcept {
  const std::unique_ptr<Opened> own(static_cast<Opened*>(state));
  const Guard guard(own->lock());
  own->device().flush_deferred();
  own->instance->await_raised();
  free_left(*own);
}

}  // namespace

void fill_context_ops(weft_verbs_ops& ops) noexcept {
  ops.query_device = query_device;
  ops.query_port = query_port;
  ops.query_gid = query_gid;
  ops.query_pkey = query_pkey;
  ops.query_values = query_values;
  ops.cq_flags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  ops.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
                       IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                       IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV |
                       IBV_QP_EX_WITH_ATOMIC_WRITE | layout::qp_with_flush;
  ops.comp_vectors = 1;
}

static constexpr weft_verbs_provider provider{sizeof provider, "roce", start, list_devices, open, close};

}  // namespace weft::verbs::soft

namespace weft::verbs {

const weft_verbs_provider& roce_provider() noexcept { return soft::provider; }

}  // namespace weft::verbs
