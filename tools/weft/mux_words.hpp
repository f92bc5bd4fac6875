// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
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

// The function or constant that a complaint is about; empty when it is about none by name.
std::string name_in(std::string_view complaint);

// A source that makes a compiler say what `type` has under each of these names: include what declares it first.
std::string question_of_types(std::string_view type, const std::vector<std::string>& names);

// What is there instead of what a complaint wants, as a part of a sentence, out of what the compiler says to that source.
std::string answer_of_types(std::string_view compiler_output, const std::string& name);

// What `weft info -l` lists: the names.
// The type that a compiler thinks is meant where it does not know `type`: one of that name in a namespace. Empty: none, or several.
std::string type_meant(std::string_view compiler_output, std::string_view type);

std::vector<std::string> names_listed(std::string_view table);

// What the linker misses, each once.
std::vector<std::string> undefined_in(std::string_view linker_output);

}  // namespace weft::tool
