// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Looking at messages before they are received: probe, iprobe, matched probe; and receives from any source.
#include <array>

#include "check.hpp"

namespace weft::mpi {
namespace {

constexpr std::array<int, 6> lengths = {0, 8, 5'000, 70'000, 300'000, 5 << 20};

uint64_t seed_of(int from, int number) {
  return static_cast<uint64_t>(from) * 7'919 + static_cast<uint64_t>(number);
}

struct Sent {
  std::vector<Bytes> bytes;
  std::vector<MPI_Request> requests;

  void start(int to, int tag, int length, uint64_t seed) {
    bytes.push_back(pattern(static_cast<size_t>(length), seed));
    requests.emplace_back();
    good(MPI_Isend(bytes.back().data(), length, MPI_BYTE, to, tag, MPI_COMM_WORLD, &requests.back()));
  }
  void wait() { good(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE)); }
};

Bytes receive_probed(const MPI_Status& probed) {
  int count = 0;
  MPI_Get_count(&probed, MPI_BYTE, &count);
  Bytes in(static_cast<size_t>(count));
  MPI_Status status;
  good(MPI_Recv(in.data(), count, MPI_BYTE, probed.MPI_SOURCE, probed.MPI_TAG, MPI_COMM_WORLD, &status));
  came(status, probed.MPI_SOURCE, probed.MPI_TAG, count);
  return in;
}

void probe_blocks() {
  Sent sent;
  for (size_t i = 0; i < lengths.size(); ++i)
    sent.start(right(), tag_of(static_cast<int>(i)), lengths[i], seed_of(rank(), static_cast<int>(i)));
  for (size_t i = lengths.size(); i-- > 0;) {
    const int number = static_cast<int>(i);
    MPI_Status status;
    good(MPI_Probe(i % 2 == 0 ? left() : MPI_ANY_SOURCE, tag_of(number), MPI_COMM_WORLD, &status));
    came(status, left(), tag_of(number), lengths[i]);
    received(receive_probed(status), seed_of(left(), number));
  }
  sent.wait();
}

void probe_sees_nothing() {
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < 20; ++i) {
    int flag = 1;
    good(MPI_Iprobe(MPI_ANY_SOURCE, 4711, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    expect(flag == 0, "iprobe saw a message that nobody sent");
    MPI_Message message;
    good(MPI_Improbe(left(), 4711, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE));
    expect(flag == 0, "improbe took a message that nobody sent");
  }
}

void probe_polls() {
  Sent sent;
  for (size_t i = 0; i < lengths.size(); ++i)
    sent.start(right(), 21, lengths[i], seed_of(rank(), static_cast<int>(i)));
  for (size_t i = 0; i < lengths.size(); ++i) {
    int flag = 0;
    MPI_Status status;
    while (flag == 0) good(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
    came(status, left(), 21, lengths[i]);
    received(receive_probed(status), seed_of(left(), static_cast<int>(i)));
  }
  sent.wait();
}

// A matched probe takes the message out: what is received after it is the next one.
void matched_probe() {
  for (const int length : lengths) {
    Sent sent;
    sent.start(right(), 22, length, seed_of(rank(), 1));
    sent.start(right(), 22, 64, seed_of(rank(), 2));
    sent.start(right(), 22, length, seed_of(rank(), 3));
    MPI_Message first;
    MPI_Status status;
    good(MPI_Mprobe(left(), 22, MPI_COMM_WORLD, &first, &status));
    came(status, left(), 22, length);
    Bytes in(static_cast<size_t>(length)), small(64);
    good(MPI_Recv(small.data(), 64, MPI_BYTE, left(), 22, MPI_COMM_WORLD, &status));
    came(status, left(), 22, 64);
    received(small, seed_of(left(), 2));
    MPI_Message third;
    int flag = 0;
    while (flag == 0) good(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &third, &status));
    came(status, left(), 22, length);
    MPI_Request request;
    Bytes last(static_cast<size_t>(length));
    good(MPI_Imrecv(last.data(), length, MPI_BYTE, &third, &request));
    good(MPI_Mrecv(in.data(), length, MPI_BYTE, &first, &status));
    came(status, left(), 22, length);
    received(in, seed_of(left(), 1));
    good(MPI_Wait(&request, &status));
    received(last, seed_of(left(), 3));
    sent.wait();
  }
}

void probe_of_nobody() {
  MPI_Message message;
  MPI_Status status;
  int flag = 0;
  good(MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message, &status));
  expect(message == MPI_MESSAGE_NO_PROC && status.MPI_SOURCE == MPI_PROC_NULL,
         "a probe of nobody found somebody");
  good(MPI_Mrecv(nullptr, 0, MPI_BYTE, &message, &status));
  good(MPI_Iprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &flag, &status));
  expect(flag != 0, "iprobe of nobody must say yes");
}

// All send to rank 0, which takes what comes; from each source in the order in which it sent.
void any_source() {
  constexpr int each = 200;
  constexpr int length_max = 30'000;
  const auto length_of = [](int from, int i) { return (from * 7 + i * 151) % length_max; };
  if (rank() != 0) {
    Sent sent;
    for (int i = 0; i < each; ++i) sent.start(0, 30 + i % 3, length_of(rank(), i), seed_of(rank(), i));
    sent.wait();
    return;
  }
  std::vector<int> next(static_cast<size_t>(size()), 0);
  Bytes in(length_max);
  for (int k = 0; k < each * (size() - 1); ++k) {
    MPI_Status status;
    good(MPI_Recv(in.data(), length_max, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
    const int from = status.MPI_SOURCE;
    if (!expect(from > 0 && from < size(), "a message of an unknown source")) continue;
    const int i = next[static_cast<size_t>(from)]++;
    const int length = length_of(from, i);
    came(status, from, 30 + i % 3, length);
    received(std::span(in).first(static_cast<size_t>(length)), seed_of(from, i));
  }
}

}  // namespace

void probes() {
  probe_blocks();
  probe_sees_nothing();
  MPI_Barrier(MPI_COMM_WORLD);
  probe_polls();
  MPI_Barrier(MPI_COMM_WORLD);
  matched_probe();
  probe_of_nobody();
  MPI_Barrier(MPI_COMM_WORLD);
  any_source();
}

}  // namespace weft::mpi
