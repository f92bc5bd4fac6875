// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Text of libfabric's structures, field by field. Must not know where it goes.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include <cstdint>

#include "api/libfabric/text/tostr_text.hpp"

namespace weft::fi {

// Each writes "<name>:" at `depth` and its fields one deeper; null reads "(nil)".
void add_info(Text& text, const fi_info* info, int depth) noexcept;
void add_tx_attr(Text& text, const fi_tx_attr* attr, int depth) noexcept;
void add_rx_attr(Text& text, const fi_rx_attr* attr, int depth) noexcept;
void add_ep_attr(Text& text, const fi_ep_attr* attr, int depth) noexcept;
void add_domain_attr(Text& text, const fi_domain_attr* attr, int depth) noexcept;
void add_fabric_attr(Text& text, const fi_fabric_attr* attr, int depth) noexcept;
void add_av_attr(Text& text, const fi_av_attr* attr, int depth) noexcept;
void add_cq_attr(Text& text, const fi_cq_attr* attr, int depth) noexcept;
void add_cntr_attr(Text& text, const fi_cntr_attr* attr, int depth) noexcept;
void add_mr_attr(Text& text, const fi_mr_attr* attr, int depth) noexcept;
void add_cq_err_entry(Text& text, const fi_cq_err_entry* entry, int depth) noexcept;

// The pieces, in tostr.cpp.
void add_flags(Text& text, uint64_t flags, fi_type type, const char* separator) noexcept;
void add_value(Text& text, uint32_t value, fi_type type) noexcept;
void add_address(Text& text, uint32_t addr_format, const void* bytes, size_t length) noexcept;

}  // namespace weft::fi
