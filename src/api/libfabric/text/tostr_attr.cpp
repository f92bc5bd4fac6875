// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Text of libfabric's structures, field by field, in the order and with the names that `fi_info -v` shows.
// Must not know where it goes.
#include "api/libfabric/text/tostr_attr.hpp"

#include <weft/libfabric_retired.hpp>

#include "api/libfabric/abi/generations.hpp"
#include "api/libfabric/abi/values.hpp"
#include "api/libfabric/text/raw.hpp"

namespace weft::fi {
namespace {

// Of enumerators that the installed headers may not name.
fi_type later_type(later::Type type) noexcept { return static_cast<fi_type>(type); }

// One level of a structure: a line for each field.
class Block {
 public:
  Block(Text& text, int depth) noexcept : text_(text), depth_(depth) {}

  void number(const char* name, uint64_t value) noexcept {
    start(name).add(" %llu\n", static_cast<unsigned long long>(value));
  }
  void hex(const char* name, uint64_t value) noexcept {
    start(name).add(" 0x%llx\n", static_cast<unsigned long long>(value));
  }
  void string(const char* name, const char* value) noexcept {
    start(name).add(" %s\n", value != nullptr ? value : "(null)");
  }
  void pointer(const char* name, const void* value) noexcept { start(name).add(" %p\n", value); }
  void handle(const char* name, const void* value) noexcept { hex(name, reinterpret_cast<uintptr_t>(value)); }
  void version(const char* name, uint32_t value) noexcept {
    start(name).add(" %u.%u\n", FI_MAJOR(value), FI_MINOR(value));
  }
  void flags(const char* name, uint64_t value, fi_type type) noexcept {
    start(name).add(" [ ");
    add_flags(text_, value, type, ", ");
    text_.add(" ]\n");
  }
  void value(const char* name, uint32_t what, fi_type type) noexcept {
    start(name).add(" ");
    add_value(text_, what, type);
    text_.add("\n");
  }
  void address(const char* name, uint32_t format, const void* bytes, size_t length) noexcept {
    start(name).add(" ");
    add_address(text_, format, bytes, length);
    text_.add("\n");
  }
  void order(const char* name, uint64_t value) noexcept {
    if ((value & retired::order_strict) == retired::order_strict) {
      start(name).add(" [ FI_ORDER_STRICT");
      if ((value & ~uint64_t{retired::order_strict}) != 0) {
        text_.add(", ");
        add_flags(text_, value & ~uint64_t{retired::order_strict}, FI_TYPE_MSG_ORDER, ", ");
      }
      text_.add(" ]\n");
    } else {
      flags(name, value, FI_TYPE_MSG_ORDER);
    }
  }

 private:
  Text& start(const char* name) noexcept {
    text_.indent(depth_);
    text_.add("%s:", name);
    return text_;
  }

  Text& text_;
  int depth_;
};

// "name:" and true, or "name: (nil)" and false when there is nothing below it.
bool open(Text& text, const char* name, const void* what, int depth) noexcept {
  text.indent(depth);
  text.add(what != nullptr ? "%s:\n" : "%s: (nil)\n", name);
  return what != nullptr;
}

void add_nic(Text& text, const fid_nic* nic, int depth) noexcept {
  if (!open(text, "nic", nic, depth)) return;
  if (open(text, "fi_device_attr", nic->device_attr, depth + 1)) {
    Block block(text, depth + 2);
    block.string("name", nic->device_attr->name);
    block.string("device_id", nic->device_attr->device_id);
    block.string("device_version", nic->device_attr->device_version);
    block.string("vendor_id", nic->device_attr->vendor_id);
    block.string("driver", nic->device_attr->driver);
    block.string("firmware", nic->device_attr->firmware);
  }
  if (open(text, "fi_bus_attr", nic->bus_attr, depth + 1)) {
    Block block(text, depth + 2);
    const bool pci = raw(nic->bus_attr->bus_type) == FI_BUS_PCI;
    block.string("bus_type", pci ? "FI_BUS_PCI" : "FI_BUS_UNKNOWN");
    if (pci && open(text, "fi_pci_attr", nic->bus_attr, depth + 2)) {
      Block inner(text, depth + 3);
      inner.number("domain_id", nic->bus_attr->attr.pci.domain_id);
      inner.number("bus_id", nic->bus_attr->attr.pci.bus_id);
      inner.number("device_id", nic->bus_attr->attr.pci.device_id);
      inner.number("function_id", nic->bus_attr->attr.pci.function_id);
    }
  }
  if (open(text, "fi_link_attr", nic->link_attr, depth + 1)) {
    static constexpr const char* kStates[] = {"FI_LINK_UNKNOWN", "FI_LINK_DOWN", "FI_LINK_UP"};
    const unsigned state = raw(nic->link_attr->state);
    Block block(text, depth + 2);
    block.string("address", nic->link_attr->address);
    block.number("mtu", nic->link_attr->mtu);
    block.number("speed", nic->link_attr->speed);
    block.string("state", state < 3 ? kStates[state] : "unknown");
    block.string("network_type", nic->link_attr->network_type);
  }
}

}  // namespace

void add_tx_attr(Text& text, const fi_tx_attr* attr, int depth) noexcept {
  if (!open(text, "fi_tx_attr", attr, depth)) return;
  Block block(text, depth + 1);
  block.flags("caps", attr->caps, FI_TYPE_CAPS);
  block.flags("mode", attr->mode, FI_TYPE_MODE);
  block.flags("op_flags", attr->op_flags, FI_TYPE_OP_FLAGS);
  block.flags("msg_order", attr->msg_order, FI_TYPE_MSG_ORDER);
  block.order("comp_order", attr->comp_order);
  block.number("inject_size", attr->inject_size);
  block.number("size", attr->size);
  block.number("iov_limit", attr->iov_limit);
  block.number("rma_iov_limit", attr->rma_iov_limit);
  block.hex("tclass", attr->tclass);
}

void add_rx_attr(Text& text, const fi_rx_attr* attr, int depth) noexcept {
  if (!open(text, "fi_rx_attr", attr, depth)) return;
  Block block(text, depth + 1);
  block.flags("caps", attr->caps, FI_TYPE_CAPS);
  block.flags("mode", attr->mode, FI_TYPE_MODE);
  block.flags("op_flags", attr->op_flags, FI_TYPE_OP_FLAGS);
  block.flags("msg_order", attr->msg_order, FI_TYPE_MSG_ORDER);
  block.order("comp_order", attr->comp_order);
  block.number("total_buffered_recv", attr->total_buffered_recv);
  block.number("size", attr->size);
  block.number("iov_limit", attr->iov_limit);
}

void add_ep_attr(Text& text, const fi_ep_attr* attr, int depth) noexcept {
  if (!open(text, "fi_ep_attr", attr, depth)) return;
  Block block(text, depth + 1);
  block.value("type", raw(attr->type), FI_TYPE_EP_TYPE);
  block.value("protocol", attr->protocol, FI_TYPE_PROTOCOL);
  block.number("protocol_version", attr->protocol_version);
  block.number("max_msg_size", attr->max_msg_size);
  block.number("msg_prefix_size", attr->msg_prefix_size);
  block.number("max_order_raw_size", attr->max_order_raw_size);
  block.number("max_order_war_size", attr->max_order_war_size);
  block.number("max_order_waw_size", attr->max_order_waw_size);
  block.hex("mem_tag_format", attr->mem_tag_format);
  block.number("tx_ctx_cnt", attr->tx_ctx_cnt);
  block.number("rx_ctx_cnt", attr->rx_ctx_cnt);
  block.number("auth_key_size", attr->auth_key_size);
}

void add_domain_attr(Text& text, const fi_domain_attr* attr, int depth) noexcept {
  if (!open(text, "fi_domain_attr", attr, depth)) return;
  Block block(text, depth + 1);
  block.handle("domain", attr->domain);
  block.string("name", attr->name);
  block.value("threading", raw(attr->threading), FI_TYPE_THREADING);
  block.value("control_progress", raw(attr->control_progress), FI_TYPE_PROGRESS);
  block.value("data_progress", raw(attr->data_progress), FI_TYPE_PROGRESS);
  static constexpr const char* kResourceMgmt[] = {"FI_RM_UNSPEC", "FI_RM_DISABLED", "FI_RM_ENABLED"};
  const unsigned resource_mgmt = raw(attr->resource_mgmt);
  block.string("resource_mgmt", resource_mgmt < 3 ? kResourceMgmt[resource_mgmt] : "unknown");
  block.value("av_type", raw(attr->av_type), FI_TYPE_AV_TYPE);
  block.flags("mr_mode", static_cast<uint32_t>(attr->mr_mode), FI_TYPE_MR_MODE);
  block.number("mr_key_size", attr->mr_key_size);
  block.number("cq_data_size", attr->cq_data_size);
  block.number("cq_cnt", attr->cq_cnt);
  block.number("ep_cnt", attr->ep_cnt);
  block.number("tx_ctx_cnt", attr->tx_ctx_cnt);
  block.number("rx_ctx_cnt", attr->rx_ctx_cnt);
  block.number("max_ep_tx_ctx", attr->max_ep_tx_ctx);
  block.number("max_ep_rx_ctx", attr->max_ep_rx_ctx);
  block.number("max_ep_stx_ctx", attr->max_ep_stx_ctx);
  block.number("max_ep_srx_ctx", attr->max_ep_srx_ctx);
  block.number("cntr_cnt", attr->cntr_cnt);
  block.number("mr_iov_limit", attr->mr_iov_limit);
  block.flags("caps", attr->caps, FI_TYPE_CAPS);
  block.flags("mode", attr->mode, FI_TYPE_MODE);
  block.number("auth_key_size", attr->auth_key_size);
  block.number("max_err_data", attr->max_err_data);
  block.number("mr_cnt", attr->mr_cnt);
  block.hex("tclass", attr->tclass);
}

void add_fabric_attr(Text& text, const fi_fabric_attr* attr, int depth) noexcept {
  if (!open(text, "fi_fabric_attr", attr, depth)) return;
  Block block(text, depth + 1);
  block.string("name", attr->name);
  block.string("prov_name", attr->prov_name);
  block.version("prov_version", attr->prov_version);
  block.version("api_version", attr->api_version);
}

void add_info(Text& text, const fi_info* info, int depth) noexcept {
  if (!open(text, "fi_info", info, depth)) return;
  Block block(text, depth + 1);
  block.flags("caps", info->caps, FI_TYPE_CAPS);
  block.flags("mode", info->mode, FI_TYPE_MODE);
  block.value("addr_format", info->addr_format, FI_TYPE_ADDR_FORMAT);
  block.number("src_addrlen", info->src_addrlen);
  block.number("dest_addrlen", info->dest_addrlen);
  block.address("src_addr", info->addr_format, info->src_addr, info->src_addrlen);
  block.address("dest_addr", info->addr_format, info->dest_addr, info->dest_addrlen);
  block.pointer("handle", info->handle);
  add_tx_attr(text, info->tx_attr, depth + 1);
  add_rx_attr(text, info->rx_attr, depth + 1);
  add_ep_attr(text, info->ep_attr, depth + 1);
  add_domain_attr(text, info->domain_attr, depth + 1);
  add_fabric_attr(text, info->fabric_attr, depth + 1);
  add_nic(text, info->nic, depth + 1);
}

void add_av_attr(Text& text, const fi_av_attr* attr, int depth) noexcept {
  if (!open(text, "fi_av_attr", attr, depth)) return;
  Block block(text, depth + 1);
  block.value("type", raw(attr->type), FI_TYPE_AV_TYPE);
  block.number("rx_ctx_bits", static_cast<uint64_t>(attr->rx_ctx_bits));
  block.number("count", attr->count);
  block.number("ep_per_node", attr->ep_per_node);
  block.string("name", attr->name);
  block.pointer("map_addr", attr->map_addr);
  block.flags("flags", attr->flags, FI_TYPE_OP_FLAGS);
}

void add_cq_attr(Text& text, const fi_cq_attr* attr, int depth) noexcept {
  if (!open(text, "fi_cq_attr", attr, depth)) return;
  Block block(text, depth + 1);
  block.number("size", attr->size);
  block.flags("flags", attr->flags, FI_TYPE_OP_FLAGS);
  block.value("format", raw(attr->format), FI_TYPE_CQ_FORMAT);
  block.value("wait_obj", raw(attr->wait_obj), later_type(later::type_wait_obj));
  block.number("signaling_vector", static_cast<uint64_t>(attr->signaling_vector));
  block.value("wait_cond", raw(attr->wait_cond), later_type(later::type_cq_wait_cond));
  block.pointer("wait_set", attr->wait_set);
}

void add_cntr_attr(Text& text, const fi_cntr_attr* attr, int depth) noexcept {
  if (!open(text, "fi_cntr_attr", attr, depth)) return;
  Block block(text, depth + 1);
  static constexpr const char* kEvents[] = {"FI_CNTR_EVENTS_COMP", "FI_CNTR_EVENTS_BYTES"};
  const unsigned events = raw(attr->events);
  block.string("events", events < 2 ? kEvents[events] : "unknown");
  block.value("wait_obj", raw(attr->wait_obj), later_type(later::type_wait_obj));
  block.pointer("wait_set", attr->wait_set);
  block.flags("flags", attr->flags, FI_TYPE_OP_FLAGS);
}

// What the structure of 1.17 has; longer ones have it, too.
void add_mr_attr(Text& text, const fi_mr_attr* attr, int depth) noexcept {
  if (!open(text, "fi_mr_attr", attr, depth)) return;
  Block block(text, depth + 1);
  block.pointer("mr_iov", attr->mr_iov);
  block.number("iov_count", attr->iov_count);
  block.flags("access", attr->access, FI_TYPE_OP_FLAGS);
  block.number("offset", attr->offset);
  block.number("requested_key", attr->requested_key);
  block.pointer("context", attr->context);
  block.number("auth_key_size", attr->auth_key_size);
  block.value("iface", raw(attr->iface), FI_TYPE_HMEM_IFACE);
}

// Programs that know the type have the structure of 1.20, with src_addr.
void add_cq_err_entry(Text& text, const fi_cq_err_entry* entry, int depth) noexcept {
  if (!open(text, "fi_cq_err_entry", entry, depth)) return;
  Block block(text, depth + 1);
  block.pointer("op_context", entry->op_context);
  block.flags("flags", entry->flags, FI_TYPE_CQ_EVENT_FLAGS);
  block.number("len", entry->len);
  block.pointer("buf", entry->buf);
  block.number("data", entry->data);
  block.number("tag", entry->tag);
  block.number("olen", entry->olen);
  block.number("err", static_cast<uint64_t>(entry->err));
  block.number("prov_errno", static_cast<uint64_t>(entry->prov_errno));
  block.pointer("err_data", entry->err_data);
  block.number("err_data_size", entry->err_data_size);
  block.hex("src_addr", layout::error_source(*entry));
}

}  // namespace weft::fi
