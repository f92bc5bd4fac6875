// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// struct fi_info as JSON: flags as lists of their names, sizes as numbers. Knows nothing of the command line.
#pragma once

#include <rdma/fabric.h>

#include <nlohmann/json.hpp>

namespace weft::tool {

nlohmann::json to_json(const fi_info& info);

}  // namespace weft::tool
