// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Address vectors: fi_av(3), and the names of fi_cm(3).
#include <unistd.h>

#include <cstring>

#include "fixture.hpp"

namespace weft::conformance {
namespace {

// A message from `from` to the endpoint that `to` stands for, received by node `at`.
void works(World& w, size_t from, fi_addr_t to, size_t at) {
  uint64_t in = 0;
  const uint64_t out = 0x1234 + to;
  Ctx received;
  WEFT_ASSERT_OK(fi_trecv(w[at], &in, 8, nullptr, FI_ADDR_UNSPEC, 77, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[from], &out, 8, to, 77); }));
  w.done(w[at].rx, received);
  EXPECT_EQ(in, out);
}

// fi_av(3), FI_AV_TABLE: indices in the order of insertion, over several calls.
TEST(AddressVector, table_indices__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .av_type = FI_AV_TABLE, .endpoints = 4});
  for (size_t i = 0; i < 4; ++i) {
    for (size_t k = 0; k < 4; ++k) EXPECT_EQ(w[i].peer[k], k);
  }
  for (size_t k = 0; k < 4; ++k) works(w, 0, k, k);
}

// fi_av(3): with a table the fi_addr argument may be null.
TEST(AddressVector, table_without_output__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .av_type = FI_AV_TABLE, .endpoints = 2, .insert = false});
  EXPECT_EQ(fi_av_insert(w[0].av.get(), w[0].name.data(), 1, nullptr, 0, nullptr), 1);
  EXPECT_EQ(fi_av_insert(w[0].av.get(), w[1].name.data(), 1, nullptr, 0, nullptr), 1);
  works(w, 0, 1, 1);
}

TEST(AddressVector, map__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .av_type = FI_AV_MAP, .endpoints = 4});
  for (size_t k = 0; k < 4; ++k) works(w, 0, w[0].peer[k], k);
}

// FI_AV_UNSPEC: the provider tells which type it took.
TEST(AddressVector, unspecified_type_is_told__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 0});
  fi_av_attr attr{};
  Handle<fid_av> av;
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &attr, av.out(), nullptr));
  EXPECT_TRUE(attr.type == FI_AV_MAP || attr.type == FI_AV_TABLE) << attr.type;
}

// fi_av(3), fi_av_insert of several: names of one length stand one behind the other.
TEST(AddressVector, several_by_one_call__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .av_type = FI_AV_TABLE, .endpoints = 4, .insert = false});
  std::vector<uint8_t> all;
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(w[i].name.size(), w[0].name.size()) << "addresses have a fixed length";
    all.insert(all.end(), w[i].name.begin(), w[i].name.end());
  }
  fi_addr_t got[4] = {};
  EXPECT_EQ(fi_av_insert(w[0].av.get(), all.data(), 4, got, 0, nullptr), 4);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got[i], i);
    works(w, 0, got[i], i);
  }
  EXPECT_EQ(fi_av_insert(w[0].av.get(), all.data(), 0, got, 0, nullptr), 0) << "zero addresses";
}

// fi_av(3), FI_SYNC_ERR: the outcome of each address.
TEST(AddressVector, sync_err__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 1, .insert = false});
  fi_addr_t got = FI_ADDR_NOTAVAIL;
  int status = -1;
  const int n = fi_av_insert(w[0].av.get(), w[0].name.data(), 1, &got, FI_SYNC_ERR, &status);
  WEFT_SKIP_IF(n == -FI_EBADFLAGS || n == -FI_ENOSYS ? "no FI_SYNC_ERR" : "");
  EXPECT_EQ(n, 1);
  EXPECT_EQ(status, 0);
}

// An address that cannot be one: nothing is inserted, the output says FI_ADDR_NOTAVAIL; fi_av(3), RETURN VALUES.
TEST(AddressVector, nonsense_is_refused__fi_av_3) {
  WEFT_BEYOND_THE_MANUAL("an address that is none");
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 1});
  if (w.info()->addr_format != FI_ADDR_STR) GTEST_SKIP() << "only strings can be seen to be nonsense";
  fi_addr_t got = 0;
  char nonsense[256] = "no such fabric \x01\x02";
  EXPECT_LE(fi_av_insert(w[0].av.get(), nonsense, 1, &got, 0, nullptr), 0);
  EXPECT_EQ(got, FI_ADDR_NOTAVAIL);
  works(w, 0, w[0].peer[0], 0);
}

// fi_av(3), fi_av_lookup: the whole address; a short buffer gets its beginning and the length that is needed.
TEST(AddressVector, lookup__fi_av_3) {
  for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
    WEFT_WORLD(w, {.caps = FI_TAGGED, .av_type = type});
    const auto& name = w[1].name;
    std::vector<uint8_t> got(300, 0xee);
    size_t len = got.size();
    WEFT_ASSERT_OK(fi_av_lookup(w[0].av.get(), w[0].peer[1], got.data(), &len));
    EXPECT_EQ(len, name.size());
    EXPECT_EQ(std::memcmp(got.data(), name.data(), name.size()), 0);
    std::fill(got.begin(), got.end(), 0xee);
    len = 5;
    fi_av_lookup(w[0].av.get(), w[0].peer[1], got.data(), &len);
    EXPECT_EQ(len, name.size());
    EXPECT_EQ(std::memcmp(got.data(), name.data(), 5), 0);
    EXPECT_EQ(got[5], 0xee) << "wrote behind a short buffer";
    len = got.size();
    if (type == FI_AV_TABLE && !manual_only()) {
      EXPECT_LT(fi_av_lookup(w[0].av.get(), 1000, got.data(), &len), 0) << "an index without an address";
    }
  }
}

// fi_av(3), fi_av_straddr: printable, length told, truncation safe, for addresses not inserted as well.
TEST(AddressVector, straddr__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .insert = false});
  char text[300];
  std::memset(text, 0x7e, sizeof text);
  size_t len = sizeof text;
  const char* said = fi_av_straddr(w[0].av.get(), w[1].name.data(), text, &len);
  EXPECT_EQ(said, text);
  const size_t whole = std::strlen(text);
  EXPECT_GT(whole, 0u);
  EXPECT_GE(len, whole);
  EXPECT_LE(len, whole + 1);
  for (size_t i = 0; i < whole; ++i) EXPECT_TRUE(text[i] >= 32 && text[i] < 127) << i;
  char small[8];
  std::memset(small, 0x7e, sizeof small);
  size_t small_len = 5;
  fi_av_straddr(w[0].av.get(), w[1].name.data(), small, &small_len);
  EXPECT_EQ(small_len, len) << "the size that is needed";
  EXPECT_EQ(std::strncmp(small, text, 4), 0);
  EXPECT_EQ(small[5], 0x7e) << "wrote behind a short buffer";
}

// fi_av(3), fi_av_remove, and the right to insert again.
TEST(AddressVector, remove_and_insert_again__fi_av_3) {
  for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
    WEFT_WORLD(w, {.caps = FI_TAGGED | FI_SOURCE, .av_type = type, .endpoints = 3});
    works(w, 0, w[0].peer[1], 1);
    for (int round = 0; round < 5; ++round) {
      fi_addr_t gone = w[0].peer[1];
      WEFT_ASSERT_OK(fi_av_remove(w[0].av.get(), &gone, 1, 0));
      works(w, 0, w[0].peer[2], 2);  // the others stay
      fi_addr_t again = FI_ADDR_NOTAVAIL;
      ASSERT_EQ(fi_av_insert(w[0].av.get(), w[1].name.data(), 1, &again, 0, nullptr), 1);
      if (type == FI_AV_TABLE) {
        EXPECT_EQ(again, 1u) << "fi_av(3): the lowest unused index";
      }
      w[0].peer[1] = again;
      works(w, 0, again, 1);
    }
    // A message that comes back is known by the new number.
    uint64_t in = 0;
    const uint64_t out = 8;
    Ctx received;
    WEFT_ASSERT_OK(fi_trecv(w[0], &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, &received));
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[1], &out, 8, w[1].peer[0], 5); }));
    EXPECT_EQ(w.done(w[0].rx, received).src, w[0].peer[1]);
  }
}

// A removed peer sends: the source is unknown then; fi_cq(3), fi_cq_readfrom.
TEST(AddressVector, removed_source_is_unknown__fi_cq_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_SOURCE, .av_type = FI_AV_TABLE, .endpoints = 2});
  works(w, 1, w[1].peer[0], 0);
  fi_addr_t gone = w[0].peer[1];
  WEFT_ASSERT_OK(fi_av_remove(w[0].av.get(), &gone, 1, 0));
  uint64_t in = 0;
  const uint64_t out = 8;
  Ctx received;
  WEFT_ASSERT_OK(fi_trecv(w[0], &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[1], &out, 8, w[1].peer[0], 5); }));
  EXPECT_EQ(w.done(w[0].rx, received).src, FI_ADDR_NOTAVAIL);
  EXPECT_EQ(in, out);
}

// One address twice: the manual leaves the outcome open, but nothing breaks, and the number or both reach the peer. A receive
// that is directed at the second number gets the peer's messages: programs that insert a peer again rely on it.
TEST(AddressVector, duplicates_break_nothing__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_DIRECTED_RECV});
  fi_addr_t twice = FI_ADDR_NOTAVAIL;
  if (fi_av_insert(w[0].av.get(), w[1].name.data(), 1, &twice, 0, nullptr) == 1) {
    EXPECT_NE(twice, FI_ADDR_NOTAVAIL);
    works(w, 0, twice, 1);
  }
  // Open MPI inserts peers again for intercommunicators: a receive directed at either number takes the message.
  if ((w.info()->caps & FI_DIRECTED_RECV) != 0 && twice != FI_ADDR_NOTAVAIL) {
    uint64_t in = 0;
    const uint64_t out = 9;
    Ctx received;
    WEFT_ASSERT_OK(fi_trecv(w[0], &in, 8, nullptr, twice, 6, 0, &received));
    WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[1], &out, 8, w[1].peer[0], 6); }));
    (void)w.done(w[0].rx, received);
    EXPECT_EQ(in, out);
  }
  works(w, 0, w[0].peer[1], 1);
}

TEST(AddressVector, directed_at_a_duplicate__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_DIRECTED_RECV});
  works(w, 1, w[1].peer[0], 0);  // known by its first number before there is a second
  fi_addr_t twice = FI_ADDR_NOTAVAIL;
  if (fi_av_insert(w[0].av.get(), w[1].name.data(), 1, &twice, 0, nullptr) != 1) GTEST_SKIP() << "refused";
  uint64_t in = 0;
  const uint64_t out = 77;
  Ctx received;
  WEFT_ASSERT_OK(fi_trecv(w[0], &in, 8, nullptr, twice, 5, 0, &received));
  WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[1], &out, 8, w[1].peer[0], 5); }));
  w.done(w[0].rx, received);
  EXPECT_EQ(in, out);
}

// fi_av(3), fi_av_insertsvc: an FI_ADDR_STR name as node, service null.
TEST(AddressVector, insertsvc_of_a_name__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .insert = false});
  if (w.info()->addr_format != FI_ADDR_STR) GTEST_SKIP() << "addresses are no strings";
  fi_addr_t got = FI_ADDR_NOTAVAIL;
  const std::string name(reinterpret_cast<const char*>(w[1].name.data()));
  const int n = fi_av_insertsvc(w[0].av.get(), name.c_str(), nullptr, &got, 0, nullptr);
  WEFT_SKIP_IF(n == -FI_ENOSYS ? "no fi_av_insertsvc" : "");
  ASSERT_EQ(n, 1);
  works(w, 0, got, 1);
}

// Node and service: what fi_getinfo resolves with FI_SOURCE for one side, fi_av_insertsvc resolves for the other.
TEST(AddressVector, insertsvc_of_a_service__fi_av_3) {
  Options options{.caps = FI_TAGGED, .endpoints = 1};
  WEFT_SKIP_IF(missing(options));
  const std::string service = std::to_string(20'000 + getpid() % 10'000);
  Info hints = make_hints(options);
  fi_info* raw = nullptr;
  const int rc = fi_getinfo(options.api, nullptr, service.c_str(), FI_SOURCE, hints.get(), &raw);
  WEFT_SKIP_IF(rc != 0 ? "no service without a node: " + error_name(rc) : "");
  Info named(raw);
  World w(options);
  if (!w.usable()) return;
  // An endpoint at the address of the service, beside the World's own.
  fi_av_attr av_attr{};
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  Handle<fid_av> av;
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &av_attr, av.out(), nullptr));
  Cq* cq = w.add_cq(w.domain(), cq_attr);
  ASSERT_NE(cq, nullptr);
  {
    Handle<fid_ep> ep;
    WEFT_ASSERT_OK(fi_endpoint(w.domain(), named.get(), ep.out(), nullptr));
    WEFT_ASSERT_OK(fi_ep_bind(ep.get(), av.fid(), 0));
    WEFT_ASSERT_OK(fi_ep_bind(ep.get(), cq->fid(), FI_TRANSMIT | FI_RECV));
    WEFT_ASSERT_OK(fi_enable(ep.get()));
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    const int n =
        fi_av_insertsvc(w[0].av.get(), node_of(named.get()).c_str(), service.c_str(), &to, 0, nullptr);
    if (n == 1) {
      uint64_t in = 0;
      const uint64_t out = 99;
      Ctx received;
      WEFT_ASSERT_OK(fi_trecv(ep.get(), &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &received));
      WEFT_ASSERT_OK(w.post([&] { return fi_tinject(w[0], &out, 8, to, 1); }));
      w.done(cq, received);
      EXPECT_EQ(in, out);
    }
    WEFT_EXPECT_OK(ep.close());
    WEFT_SKIP_IF(n == -FI_ENOSYS ? "no fi_av_insertsvc" : "");
    EXPECT_EQ(n, 1);
  }
}

// fi_av(3), fi_av_insertsym: nodecnt x svccnt addresses, all services of a node before the next node.
TEST(AddressVector, insertsym__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .av_type = FI_AV_TABLE, .endpoints = 1, .insert = false});
  fi_addr_t got[3] = {FI_ADDR_NOTAVAIL, FI_ADDR_NOTAVAIL, FI_ADDR_NOTAVAIL};
  const int n = fi_av_insertsym(w[0].av.get(), "127.0.0.1", 1, "25000", 3, got, 0, nullptr);
  WEFT_SKIP_IF(n == -FI_ENOSYS ? "no fi_av_insertsym" : "");
  ASSERT_EQ(n, 3);
  std::vector<std::string> names;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got[i], i);
    char name[256] = {}, text[256] = {};
    size_t len = sizeof name, text_len = sizeof text;
    WEFT_ASSERT_OK(fi_av_lookup(w[0].av.get(), got[i], name, &len));
    fi_av_straddr(w[0].av.get(), name, text, &text_len);
    names.push_back(text);
  }
  EXPECT_NE(names[0], names[1]);
  EXPECT_NE(names[1], names[2]);
  if (!manual_only()) {  // what an address looks like as text is left to the provider (fi_av(3), fi_av_straddr)
    EXPECT_NE(names[2].find("25002"), std::string::npos) << names[2];
  }
}

// fi_av(3), name and FI_READ: a vector shared by name shows the same addresses; one that does not exist cannot be read.
TEST(AddressVector, shared_by_name__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED | FI_SHARED_AV, .av_type = FI_AV_TABLE, .endpoints = 2});
  const std::string name = "conformance-" + std::to_string(getpid());
  fi_av_attr attr{};
  attr.type = FI_AV_TABLE;
  attr.name = name.c_str();
  attr.count = 16;
  fi_av_attr reading = attr;
  reading.flags = FI_READ;
  Handle<fid_av> early;
  const int no = fi_av_open(w.domain(), &reading, early.out(), nullptr);
  EXPECT_LT(no, 0) << "fi_av(3), FI_READ: the AV must exist";
  if (no != 0) *early.out() = nullptr;
  Handle<fid_av> writer, reader;
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &attr, writer.out(), nullptr));
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(fi_av_insert(writer.get(), w[i].name.data(), 1, nullptr, 0, nullptr), 1);
  }
  WEFT_ASSERT_OK(fi_av_open(w.domain(), &reading, reader.out(), nullptr));
  for (size_t i = 0; i < 2; ++i) {
    uint8_t got[256];
    size_t len = sizeof got;
    WEFT_ASSERT_OK(fi_av_lookup(reader.get(), i, got, &len));
    EXPECT_EQ(std::vector<uint8_t>(got, got + len), w[i].name);
  }
  if (manual_only()) return;
  fi_addr_t addr = 0;
  EXPECT_LE(fi_av_insert(reader.get(), w[0].name.data(), 1, &addr, 0, nullptr), 0) << "opened for reading";
}

// fi_av(3), fi_close: -FI_EBUSY while an endpoint uses it.
TEST(AddressVector, close_while_bound_is_busy__fi_av_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 1});
  ASSERT_EQ(w[0].av.close(), -FI_EBUSY);
  works(w, 0, w[0].peer[0], 0);
  WEFT_ASSERT_OK(w.close_endpoint(0));
  WEFT_ASSERT_OK(w[0].av.close());
}

// fi_cm(3), fi_getname: a short buffer gets -FI_ETOOSMALL and the length that is needed.
TEST(Names, getname__fi_cm_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 1});
  size_t len = 2;
  uint8_t small[4] = {0, 0, 0xee, 0xee};
  EXPECT_EQ(fi_getname(w[0].ep.fid(), small, &len), -FI_ETOOSMALL);
  EXPECT_EQ(len, w[0].name.size());
  EXPECT_EQ(small[2], 0xee);
  EXPECT_LE(w[0].name.size(), 64u) << "MPI takes no more";
}

// fi_cm(3), fi_setname before enabling: the endpoint is reachable by that name.
// Names of which one is the beginning of another: the address that is removed is that one alone (libfabric 10655).
TEST(Names, with_a_common_prefix__fi_av_3) {
  WEFT_WORLD(w,
             {.caps = FI_TAGGED, .av_type = FI_AV_TABLE, .endpoints = 3, .enable = false, .insert = false});
  if (w.info()->addr_format != FI_ADDR_STR) GTEST_SKIP() << "only for string names";
  const std::string scheme = provider_name() == "shm" ? "fi_shm://" : "fi_" + provider_name() + "://";
  const std::string base = scheme + "pre-" + std::to_string(getpid());
  const std::string names[3] = {base, base + "x", base + "xy"};
  for (size_t i = 0; i < 3; ++i) {
    const int rc = fi_setname(w[i].ep.fid(), const_cast<char*>(names[i].data()), names[i].size() + 1);
    WEFT_SKIP_IF(rc == -FI_ENOSYS || rc == -FI_EOPNOTSUPP || rc == -FI_EINVAL ? "names cannot be chosen so"
                                                                              : "");
    WEFT_ASSERT_OK(rc);
    WEFT_ASSERT_OK(fi_enable(w[i].ep.get()));
  }
  fi_addr_t to[3];
  for (size_t i = 0; i < 3; ++i) {
    std::vector<char> padded(256, 0);
    std::copy(names[i].begin(), names[i].end(), padded.begin());
    ASSERT_EQ(fi_av_insert(w[0].av.get(), padded.data(), 1, &to[i], 0, nullptr), 1);
  }
  works(w, 0, to[1], 1);
  works(w, 0, to[2], 2);
  WEFT_ASSERT_OK(fi_av_remove(w[0].av.get(), &to[1], 1, 0));
  works(w, 0, to[0], 0);
  works(w, 0, to[2], 2);
}

TEST(Names, setname__fi_cm_3) {
  WEFT_WORLD(w, {.caps = FI_TAGGED, .endpoints = 2, .enable = false, .insert = false});
  if (w.info()->addr_format != FI_ADDR_STR) GTEST_SKIP() << "only for string names";
  std::string name = provider_name() == "shm" ? "fi_shm://conf-" : "fi_" + provider_name() + "://conf-";
  name += std::to_string(getpid());
  const int rc = fi_setname(w[0].ep.fid(), name.data(), name.size() + 1);
  WEFT_SKIP_IF(rc == -FI_ENOSYS || rc == -FI_EOPNOTSUPP || rc == -FI_EINVAL ? "names cannot be chosen so"
                                                                            : "");
  WEFT_ASSERT_OK(rc);
  WEFT_ASSERT_OK(fi_enable(w[0].ep.get()));
  WEFT_ASSERT_OK(fi_enable(w[1].ep.get()));
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  std::vector<char> padded(256, 0);
  std::copy(name.begin(), name.end(), padded.begin());
  ASSERT_EQ(fi_av_insert(w[1].av.get(), padded.data(), 1, &to, 0, nullptr), 1);
  works(w, 1, to, 0);
}

}  // namespace
}  // namespace weft::conformance
