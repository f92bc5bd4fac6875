// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What `weft mux` reads out of names and messages.
#include "mux_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::tool {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MuxWords, AHeaderNamesItsType) {
  EXPECT_EQ(type_of_header("unix_packets.hpp"), "UnixPackets");
  EXPECT_EQ(type_of_header("nic.h"), "Nic");
  EXPECT_EQ(type_of_header("my-NIC_v2.hh"), "MyNICV2");
}

TEST(MuxWords, AFileNamesItsProvider) {
  EXPECT_EQ(name_of_plugin("libfoo-fi.so"), "foo");
  EXPECT_EQ(name_of_plugin("foo-fi.so"), "foo");
  EXPECT_EQ(name_of_plugin("libfoo.so"), "");
}

TEST(MuxWords, NamesThatLibfabricReadsOtherwise) {
  EXPECT_EQ(fault_of_name("foo"), "");
  for (const char* wrong : {"", "a;b", "a b", "ofi_rxm", "more_than_twenty_four_characters"})
    EXPECT_NE(fault_of_name(wrong), "") << wrong;
}

TEST(MuxWords, ComplaintsOfCompilers) {
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

TEST(MuxWords, AComplaintIsAboutAName) {
  EXPECT_EQ(name_in("missing, or of another type: int receive(weft::PacketSink& sink) noexcept"), "receive");
  EXPECT_EQ(name_in("missing, or of another type: static constexpr size_t address_bytes_max (1 to 64)"),
            "address_bytes_max");
  EXPECT_EQ(name_in("missing, or of another type: static constexpr bool alters_packets"), "alters_packets");
  EXPECT_EQ(name_in("missing, or of another type: a default constructor"), "");
  EXPECT_EQ(
      name_in("optional, but when it is there it must be: int send_train(weft::Bytes to, size_t n) noexcept, "
              "with static constexpr size_t train_packets_max (2 to 64)"),
      "send_train");
}

TEST(MuxWords, WhatIsThereInstead) {
  const std::string gcc =
      "t.cpp:4:1: error: aggregate 'weft_type_of_receive<int (Nic::*)()> receive_asked' has incomplete type\n"
      "t.cpp:5:1: error: aggregate 'weft_type_of_open<bool (Nic::*)(std::span<const std::byte>) noexcept> x' "
      "has\n"
      "t.cpp:6:1: error: 'send' is not a member of 'WeftAsked' {aka 'Nic'}\n"
      "t.cpp:7:1: error: 'int Nic::close()' is private within this context\n"
      "t.cpp:7:1: error: aggregate 'weft_type_of_close<int (Nic::*)()> close_asked' has incomplete type\n"
      "t.cpp:8:1: error: aggregate 'weft_type_of_address_text<int (*)(weft::provider_v1::PacketSink&)> x' "
      "has\n"
      "t.cpp:9:1: error: aggregate 'weft_type_of_version<const long unsigned int*> x' has incomplete type\n";
  EXPECT_EQ(answer_of_types(gcc, "receive"), "it has the type: int ()");
  EXPECT_EQ(answer_of_types(gcc, "open"), "it has the type: bool (weft::Bytes) noexcept");
  EXPECT_EQ(answer_of_types(gcc, "send"), "there is none");
  EXPECT_EQ(answer_of_types(gcc, "close"), "it is not public");
  EXPECT_EQ(answer_of_types(gcc, "address_text"), "it has the type: int (weft::PacketSink&)");
  EXPECT_EQ(answer_of_types(gcc, "version"), "it has the type: const long unsigned int");
  EXPECT_EQ(answer_of_types(gcc, "reason"), "there are several, or a template");
  const std::string clang =
      "t.cpp:4:1: error: implicit instantiation of undefined template 'weft_type_of_open<bool (Nic::*)()>'\n"
      "t.cpp:5:1: error: no member named 'send' in 'Nic'\nt.cpp:6:1: error: 'close' is a private member of "
      "'Nic'\n";
  EXPECT_EQ(answer_of_types(clang, "open"), "it has the type: bool ()");
  EXPECT_EQ(answer_of_types(clang, "send"), "there is none");
  EXPECT_EQ(answer_of_types(clang, "close"), "it is not public");
}

TEST(MuxWords, NamesOfAList) {
  EXPECT_THAT(names_listed("shm  118.0\nudp;ofi_rxd 1.0\n\nshm 1.0"), ElementsAre("shm", "udp;ofi_rxd"));
}

TEST(MuxWords, ATypeInANamespaceIsMeant) {
  const std::string gcc =
      "t.cpp:2:20: error: 'Nic' was not declared in this scope; did you mean 'vendor::Nic'?\nt.hpp:1:26: "
      "note: "
      "'vendor::Nic' declared here\n";
  EXPECT_EQ(type_meant(gcc, "Nic"), "vendor::Nic");
  EXPECT_EQ(type_meant("error: 'Nic' was not declared in this scope; did you mean 'Nice'?", "Nic"), "");
  EXPECT_EQ(
      type_meant("error: 'Nic' was not declared\nnote: suggested alternatives:\nnote:  'a::Nic'", "Nic"), "");
}

TEST(MuxWords, TheLinkerNamesTypesAsAuthorsDo) {
  EXPECT_THAT(
      undefined_in(
          "a: undefined reference to `Nic::send(std::span<std::byte const, 18446744073709551615ul>)'\n"
          "a: undefined reference to `Nic::take(std::span<std::byte, 18446744073709551615ul>)'\n"
          "a: undefined reference to `Nic::receive(weft::provider_v1::PacketSink&)'"),
      ElementsAre("Nic::send(weft::Bytes)", "Nic::take(std::span<std::byte>)",
                  "Nic::receive(weft::PacketSink&)"));
}

TEST(MuxWords, WhatTheLinkerMisses) {
  EXPECT_THAT(
      undefined_in("/usr/bin/ld: a.o: in function `f':\na.cpp:1: undefined reference to `Nic::close()'\n"
                   "b.cpp:1: undefined reference to `Nic::close()'\nc: undefined reference to "
                   "`Nic::open(std::span<int>)'\n"),
      ElementsAre("Nic::close()", "Nic::open(std::span<int>)"));
}

}  // namespace
}  // namespace weft::tool
