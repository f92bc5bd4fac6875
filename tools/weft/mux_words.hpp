// What `weft mux` reads out of names and out of what compilers and linkers say. Must not know files or processes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::tool {

// "unix_packets.hpp" to "UnixPackets": the type that a header is taken to have.
std::string type_of_header(std::string_view file_name);

// "libfoo-fi.so" and "foo-fi.so" to "foo"; empty when it is none of these.
std::string name_of_plugin(std::string_view file_name);

// Why this is no provider's name; empty when it is one.
std::string fault_of_name(std::string_view name);

// What the concepts of weft/provider.hpp complain of, each once, in the order in which it stands there.
std::vector<std::string> complaints_of(std::string_view compiler_output);

// What the linker misses, each once.
std::vector<std::string> undefined_in(std::string_view linker_output);

}  // namespace weft::tool
