// What `weft mux` reads out of names and messages.
#include "mux_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::tool {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MuxWords, a_header_names_its_type) {
  EXPECT_EQ(type_of_header("unix_packets.hpp"), "UnixPackets");
  EXPECT_EQ(type_of_header("nic.h"), "Nic");
  EXPECT_EQ(type_of_header("my-NIC_v2.hh"), "MyNICV2");
}

TEST(MuxWords, a_file_names_its_provider) {
  EXPECT_EQ(name_of_plugin("libfoo-fi.so"), "foo");
  EXPECT_EQ(name_of_plugin("foo-fi.so"), "foo");
  EXPECT_EQ(name_of_plugin("libfoo.so"), "");
}

TEST(MuxWords, names_that_libfabric_reads_otherwise) {
  EXPECT_EQ(fault_of_name("foo"), "");
  for (const char* wrong : {"", "a;b", "a b", "ofi_rxm", "more_than_twenty_four_characters"})
    EXPECT_NE(fault_of_name(wrong), "") << wrong;
}

TEST(MuxWords, complaints_of_compilers) {
  EXPECT_THAT(complaints_of("x.hpp:3:1: error: static assertion failed: weft::Packets: missing, or of "
                            "another type: int send()\n"
                            "x.hpp:3:1: note: constraints not satisfied\n"
                            "x.hpp:3:1: error: static assertion failed: weft::Packets: missing, or of "
                            "another type: int send()\n"
                            "x.hpp:4:1: error: static assertion failed: something else\n"),
              ElementsAre("missing, or of another type: int send()"));
  EXPECT_THAT(complaints_of("x.hpp:3:1: error: static_assert failed due to requirement 'HasSend<P>' "
                            "\"weft::Packets: missing: f\""),
              ElementsAre("missing: f"));
  EXPECT_THAT(complaints_of("error: no such type"), IsEmpty());
}

TEST(MuxWords, what_the_linker_misses) {
  EXPECT_THAT(
      undefined_in("/usr/bin/ld: a.o: in function `f':\na.cpp:1: undefined reference to `Nic::close()'\n"
                   "b.cpp:1: undefined reference to `Nic::close()'\nc: undefined reference to "
                   "`Nic::open(std::span<int>)'\n"),
      ElementsAre("Nic::close()", "Nic::open(std::span<int>)"));
}

}  // namespace
}  // namespace weft::tool
