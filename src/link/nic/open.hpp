// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A card by its PCI address, with the driver that is for it. Must not know endpoints.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.hpp"
#include "link/nic/card.hpp"

namespace weft::link::nic {

// By VFIO (os/vfio/device.hpp, which says what is in the way). ENOTSUP: no driver here is for it. EBUSY: this process
// has it open already.
Result<std::unique_ptr<Card>> open_card(std::string_view address);

// For tests: where open_card() looks first; an answer of ENOENT means "go on". Null: nowhere.
using CardSource = Result<std::unique_ptr<Card>> (*)(std::string_view address);
void take_cards_from(CardSource source) noexcept;

}  // namespace weft::link::nic
