// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Derived types: what has holes on one side arrives dense on the other, and the other way round.
#include <array>
#include <cstring>
#include <functional>

#include "check.hpp"

namespace weft::mpi {
namespace {

constexpr int tag = 40;

// A type that frees itself.
class Type {
 public:
  explicit Type(const std::function<int(MPI_Datatype*)>& make) {
    good(make(&type_));
    good(MPI_Type_commit(&type_));
  }
  ~Type() { good(MPI_Type_free(&type_)); }
  Type(const Type&) = delete;
  Type& operator=(const Type&) = delete;
  operator MPI_Datatype() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

// The offsets of the ints that a type picks are given; sends with holes, receives dense; then sends dense, receives with holes.
void both_ways(MPI_Datatype type, int count, const std::vector<int>& offsets, int space,
               Where where = Where::current()) {
  std::vector<int> mine(static_cast<size_t>(space)), dense(offsets.size());
  for (int i = 0; i < space; ++i) mine[static_cast<size_t>(i)] = rank() * 1'000'000 + i;
  const int n = static_cast<int>(offsets.size());
  MPI_Status status;
  good(MPI_Sendrecv(mine.data(), count, type, right(), tag, dense.data(), n, MPI_INT, left(), tag,
                    MPI_COMM_WORLD, &status),
       where);
  came(status, left(), tag, n * static_cast<int>(sizeof(int)), where);
  bool ok = true;
  for (size_t i = 0; i < offsets.size(); ++i) ok = ok && dense[i] == left() * 1'000'000 + offsets[i];
  expect(ok, "from holes to dense", where);

  std::vector<int> holes(static_cast<size_t>(space), -1), wanted(static_cast<size_t>(space), -1);
  for (size_t i = 0; i < offsets.size(); ++i) {
    dense[i] = rank() * 1'000'000 + static_cast<int>(i);
    wanted[static_cast<size_t>(offsets[i])] = left() * 1'000'000 + static_cast<int>(i);
  }
  good(MPI_Sendrecv(dense.data(), n, MPI_INT, right(), tag, holes.data(), count, type, left(), tag,
                    MPI_COMM_WORLD, &status),
       where);
  int elements = 0;
  MPI_Get_elements(&status, type, &elements);
  expect(elements == n, "another number of elements", where);
  expect(holes == wanted, "from dense to holes", where);
}

void vectors(int rows, int columns) {
  const Type column([=](MPI_Datatype* t) { return MPI_Type_vector(rows, 2, columns, MPI_INT, t); });
  std::vector<int> offsets;
  for (int r = 0; r < rows; ++r) offsets.insert(offsets.end(), {r * columns, r * columns + 1});
  both_ways(column, 1, offsets, rows * columns);

  const Type by_bytes([=](MPI_Datatype* t) {
    return MPI_Type_create_hvector(rows, 1, columns * static_cast<MPI_Aint>(sizeof(int)), MPI_INT, t);
  });
  std::vector<int> ones;
  for (int r = 0; r < rows; ++r) ones.push_back(r * columns);
  both_ways(by_bytes, 1, ones, rows * columns);
}

// Columns one after the other: a resized vector sends a matrix transposed.
void transposed(int n) {
  const Type column([=](MPI_Datatype* t) { return MPI_Type_vector(n, 1, n, MPI_INT, t); });
  const Type next([&](MPI_Datatype* t) { return MPI_Type_create_resized(column, 0, sizeof(int), t); });
  std::vector<int> offsets;
  for (int c = 0; c < n; ++c)
    for (int r = 0; r < n; ++r) offsets.push_back(r * n + c);
  both_ways(next, n, offsets, n * n);
}

void indexed(int blocks) {
  std::vector<int> lengths, places, offsets;
  std::vector<MPI_Aint> byte_places;
  int at = 0;
  for (int b = 0; b < blocks; ++b) {
    lengths.push_back(b % 4);
    places.push_back(at);
    byte_places.push_back(at * static_cast<MPI_Aint>(sizeof(int)));
    for (int i = 0; i < b % 4; ++i) offsets.push_back(at + i);
    at += b % 4 + 1 + b % 3;
  }
  const Type type(
      [&](MPI_Datatype* t) { return MPI_Type_indexed(blocks, lengths.data(), places.data(), MPI_INT, t); });
  both_ways(type, 1, offsets, at + 1);
  const Type by_bytes([&](MPI_Datatype* t) {
    return MPI_Type_create_hindexed(blocks, lengths.data(), byte_places.data(), MPI_INT, t);
  });
  both_ways(by_bytes, 1, offsets, at + 1);
  const Type blocked(
      [&](MPI_Datatype* t) { return MPI_Type_create_indexed_block(blocks, 1, places.data(), MPI_INT, t); });
  // Block 0 and block 1 must not fall together for this one.
  std::vector<int> firsts(places.begin(), places.end());
  both_ways(blocked, 1, firsts, at + 1);
}

void subarray() {
  const std::array<int, 3> sizes = {20, 30, 40}, parts = {5, 7, 9}, starts = {3, 11, 20};
  const Type type([&](MPI_Datatype* t) {
    return MPI_Type_create_subarray(3, sizes.data(), parts.data(), starts.data(), MPI_ORDER_C, MPI_INT, t);
  });
  std::vector<int> offsets;
  for (int x = 0; x < parts[0]; ++x)
    for (int y = 0; y < parts[1]; ++y)
      for (int z = 0; z < parts[2]; ++z)
        offsets.push_back(((starts[0] + x) * sizes[1] + starts[1] + y) * sizes[2] + starts[2] + z);
  both_ways(type, 1, offsets, sizes[0] * sizes[1] * sizes[2]);
}

struct Record {
  char letter;
  double number;
  int values[3];
  uint8_t untouched;
  int16_t last;
};

void structures(int count) {
  const std::array<int, 4> lengths = {1, 1, 3, 1};
  const std::array<MPI_Aint, 4> places = {offsetof(Record, letter), offsetof(Record, number),
                                          offsetof(Record, values), offsetof(Record, last)};
  const std::array<MPI_Datatype, 4> types = {MPI_CHAR, MPI_DOUBLE, MPI_INT, MPI_INT16_T};
  const Type plain([&](MPI_Datatype* t) {
    return MPI_Type_create_struct(4, lengths.data(), places.data(), types.data(), t);
  });
  const Type record([&](MPI_Datatype* t) { return MPI_Type_create_resized(plain, 0, sizeof(Record), t); });
  const auto make = [](int from, int i) {
    return Record{static_cast<char>('a' + (from + i) % 26),
                  from + i * 0.5,
                  {i, i + 1, from},
                  9,
                  static_cast<int16_t>(i)};
  };
  std::vector<Record> out, in(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    out.push_back(make(rank(), i));
    in[static_cast<size_t>(i)].untouched = 77;
  }
  good(MPI_Sendrecv(out.data(), count, record, right(), tag, in.data(), count, record, left(), tag,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  bool ok = true;
  for (int i = 0; i < count; ++i) {
    const Record w = make(left(), i), &g = in[static_cast<size_t>(i)];
    ok = ok && g.letter == w.letter && g.number == w.number &&
         std::memcmp(g.values, w.values, sizeof w.values) == 0 && g.untouched == 77 && g.last == w.last;
  }
  expect(ok, "structures with holes");
}

void packed() {
  int number = rank();
  double real = rank() * 1.5;
  char text[20] = "between the ranks";
  std::array<char, 200> out, in;
  int at = 0;
  good(MPI_Pack(&number, 1, MPI_INT, out.data(), out.size(), &at, MPI_COMM_WORLD));
  good(MPI_Pack(&real, 1, MPI_DOUBLE, out.data(), out.size(), &at, MPI_COMM_WORLD));
  good(MPI_Pack(text, sizeof text, MPI_CHAR, out.data(), out.size(), &at, MPI_COMM_WORLD));
  good(MPI_Sendrecv(out.data(), at, MPI_PACKED, right(), tag, in.data(), in.size(), MPI_PACKED, left(), tag,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  int place = 0;
  char words[20] = "";
  good(MPI_Unpack(in.data(), at, &place, &number, 1, MPI_INT, MPI_COMM_WORLD));
  good(MPI_Unpack(in.data(), at, &place, &real, 1, MPI_DOUBLE, MPI_COMM_WORLD));
  good(MPI_Unpack(in.data(), at, &place, words, sizeof words, MPI_CHAR, MPI_COMM_WORLD));
  expect(number == left() && real == left() * 1.5 && std::strcmp(words, text) == 0, "packed values");
}

}  // namespace

void derived_types() {
  vectors(10, 7);
  vectors(500, 30);
  vectors(3'000, 200);
  transposed(8);
  transposed(300);
  indexed(9);
  indexed(20'000);
  subarray();
  structures(3);
  structures(50'000);
  packed();
}

}  // namespace weft::mpi
