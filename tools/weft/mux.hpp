// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft mux`: a plugin of libfabric out of a provider's header and its objects or sources. Knows weft/provider.hpp and a compiler.
#pragma once

namespace weft::tool {

// argv[0] is the name of the subcommand.
int mux(int argc, char** argv);

}  // namespace weft::tool
