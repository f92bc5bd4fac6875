// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft nic`: network cards that a user-space driver may take over, and handing them over. Knows sysfs; must not know any driver.
#pragma once

namespace weft::tool {

// argv[0] is the name of the subcommand.
int nic(int argc, char** argv);

}  // namespace weft::tool
