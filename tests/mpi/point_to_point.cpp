// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every send mode in a ring, blocking, not blocking and persistent; order; truncation; cancelled receives; requests.
#include <algorithm>
#include <array>
#include <functional>

#include "check.hpp"

namespace weft::mpi {
namespace {

constexpr std::array<int, 10> lengths = {0, 1, 8, 100, 4096, 8193, 65536, 262145, 1 << 20, (5 << 20) + 3};

using Blocking = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm);
using Starting = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);

// Buffered sends need memory that the program lends.
class SendBuffer {
 public:
  explicit SendBuffer(size_t bytes) : space_(bytes + 16 * MPI_BSEND_OVERHEAD) {
    good(MPI_Buffer_attach(space_.data(), static_cast<int>(space_.size())));
  }
  ~SendBuffer() {
    void* space = nullptr;
    int bytes = 0;
    good(MPI_Buffer_detach(&space, &bytes));
  }
  SendBuffer(const SendBuffer&) = delete;
  SendBuffer& operator=(const SendBuffer&) = delete;

 private:
  Bytes space_;
};

uint64_t seed_of(int from, int number) {
  return static_cast<uint64_t>(from) * 1'000'003 + static_cast<uint64_t>(number);
}

// The receive is posted first and all ranks know it: also right for the ready mode.
void ring_of(const std::function<void(const Bytes&, int)>& send) {
  int number = 0;
  for (const int length : lengths) {
    const Bytes out = pattern(static_cast<size_t>(length), seed_of(rank(), number));
    Bytes in(static_cast<size_t>(length));
    MPI_Request request;
    good(MPI_Irecv(in.data(), length, MPI_BYTE, left(), tag_of(number), MPI_COMM_WORLD, &request));
    MPI_Barrier(MPI_COMM_WORLD);
    send(out, tag_of(number));
    MPI_Status status;
    good(MPI_Wait(&request, &status));
    came(status, left(), tag_of(number), length);
    received(in, seed_of(left(), number));
    ++number;
  }
}

void blocking_modes() {
  const SendBuffer buffer(static_cast<size_t>(lengths.back()) + 4096);
  for (const Blocking call : {MPI_Send, MPI_Bsend, MPI_Ssend, MPI_Rsend}) {
    ring_of([call](const Bytes& out, int tag) {
      good(call(out.data(), static_cast<int>(out.size()), MPI_BYTE, right(), tag, MPI_COMM_WORLD));
    });
    MPI_Barrier(MPI_COMM_WORLD);  // what is buffered has gone when the next mode begins
  }
}

void starting_modes() {
  for (const Starting call : {MPI_Isend, MPI_Ibsend, MPI_Issend, MPI_Irsend}) {
    const SendBuffer buffer(static_cast<size_t>(lengths.back()) + 4096);
    ring_of([call](const Bytes& out, int tag) {
      MPI_Request request;
      good(call(out.data(), static_cast<int>(out.size()), MPI_BYTE, right(), tag, MPI_COMM_WORLD, &request));
      good(MPI_Wait(&request, MPI_STATUS_IGNORE));
    });
  }
}

void persistent_modes() {
  constexpr int length = 20'000;
  for (const Starting make : {MPI_Send_init, MPI_Bsend_init, MPI_Ssend_init, MPI_Rsend_init}) {
    const SendBuffer buffer(4 * length);
    Bytes out(length), in(length);
    std::array<MPI_Request, 2> both;
    good(MPI_Recv_init(in.data(), length, MPI_BYTE, left(), 7, MPI_COMM_WORLD, &both[0]));
    good(make(out.data(), length, MPI_BYTE, right(), 7, MPI_COMM_WORLD, &both[1]));
    // Open MPI 4.1 sends stale bytes when a buffered request is started again, on its own transports too.
    const int laps = make == MPI_Bsend_init ? 1 : 5;
    for (int lap = 0; lap < laps; ++lap) {
      fill(out, seed_of(rank(), lap));
      if (lap % 2 == 0) {
        good(MPI_Start(&both[0]));
        MPI_Barrier(MPI_COMM_WORLD);
        good(MPI_Start(&both[1]));
      } else if (make != MPI_Rsend_init) {
        good(MPI_Startall(2, both.data()));
      } else {
        continue;
      }
      std::array<MPI_Status, 2> statuses;
      good(MPI_Waitall(2, both.data(), statuses.data()));
      came(statuses[0], left(), 7, length);
      received(in, seed_of(left(), lap));
    }
    good(MPI_Request_free(&both[0]));
    good(MPI_Request_free(&both[1]));
  }
}

// Messages that come before their receive, of every length.
void unexpected() {
  std::vector<Bytes> out;
  std::vector<MPI_Request> requests(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int number = static_cast<int>(i);
    out.push_back(pattern(static_cast<size_t>(lengths[i]), seed_of(rank(), number)));
    good(MPI_Isend(out[i].data(), lengths[i], MPI_BYTE, right(), tag_of(number), MPI_COMM_WORLD,
                   &requests[i]));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (size_t i = lengths.size(); i-- > 0;) {
    Bytes in(static_cast<size_t>(lengths[i]));
    MPI_Status status;
    good(MPI_Recv(in.data(), lengths[i], MPI_BYTE, left(), tag_of(static_cast<int>(i)), MPI_COMM_WORLD,
                  &status));
    came(status, left(), tag_of(static_cast<int>(i)), lengths[i]);
    received(in, seed_of(left(), static_cast<int>(i)));
  }
  good(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
}

// MPI 3.4: a synchronous send does not complete before its receive was started.
void synchronous_waits() {
  for (const int length : {0, 64, 300'000}) {
    const Bytes out = pattern(static_cast<size_t>(length), seed_of(rank(), length));
    Bytes in(static_cast<size_t>(length));
    MPI_Request request;
    good(MPI_Issend(out.data(), length, MPI_BYTE, right(), 9, MPI_COMM_WORLD, &request));
    int done = 0;
    for (int i = 0; i < 50 && done == 0; ++i) good(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    expect(done == 0, "a synchronous send ended before there was a receive");
    MPI_Barrier(MPI_COMM_WORLD);
    good(MPI_Recv(in.data(), length, MPI_BYTE, left(), 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (done == 0) good(MPI_Wait(&request, MPI_STATUS_IGNORE));
    received(in, seed_of(left(), length));
  }
}

// Messages between two ranks do not overtake, whatever their size.
void order_is_kept() {
  constexpr int count = 300;
  const std::array<int, 6> sizes = {4, 20'000, 8, 100'000, 9'000, 300'000};
  std::vector<Bytes> out(count);
  std::vector<MPI_Request> requests(count);
  for (int i = 0; i < count; ++i) {
    out[i] = pattern(static_cast<size_t>(sizes[i % sizes.size()]), seed_of(rank(), i));
    good(MPI_Isend(out[i].data(), static_cast<int>(out[i].size()), MPI_BYTE, right(), 5, MPI_COMM_WORLD,
                   &requests[i]));
  }
  Bytes in(300'000);
  for (int i = 0; i < count; ++i) {
    const int length = sizes[i % sizes.size()];
    MPI_Status status;
    good(MPI_Recv(in.data(), static_cast<int>(in.size()), MPI_BYTE, left(), i % 2 == 0 ? 5 : MPI_ANY_TAG,
                  MPI_COMM_WORLD, &status));
    came(status, left(), 5, length);
    received(std::span(in).first(static_cast<size_t>(length)), seed_of(left(), i));
  }
  good(MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE));
}

void cancelled_receives() {
  for (int lap = 0; lap < 20; ++lap) {
    Bytes in(100);
    MPI_Request request;
    const int source = lap % 2 == 0 ? left() : MPI_ANY_SOURCE;
    good(MPI_Irecv(in.data(), 100, MPI_BYTE, source, 11, MPI_COMM_WORLD, &request));
    good(MPI_Cancel(&request));
    MPI_Status status;
    good(MPI_Wait(&request, &status));
    int cancelled = 0;
    good(MPI_Test_cancelled(&status, &cancelled));
    expect(cancelled != 0, "the receive was not cancelled");
    // What comes now belongs to the next receive.
    MPI_Barrier(MPI_COMM_WORLD);
    const Bytes out = pattern(100, seed_of(rank(), lap));
    good(MPI_Sendrecv(out.data(), 100, MPI_BYTE, right(), 11, in.data(), 100, MPI_BYTE, left(), 11,
                      MPI_COMM_WORLD, &status));
    came(status, left(), 11, 100);
    received(in, seed_of(left(), lap));
  }
}

void exchanges() {
  for (const int length : lengths) {
    const Bytes out = pattern(static_cast<size_t>(length), seed_of(rank(), length));
    Bytes in(static_cast<size_t>(length));
    MPI_Status status;
    good(MPI_Sendrecv(out.data(), length, MPI_BYTE, right(), 1, in.data(), length, MPI_BYTE, left(), 1,
                      MPI_COMM_WORLD, &status));
    came(status, left(), 1, length);
    received(in, seed_of(left(), length));
    Bytes both = out;
    good(MPI_Sendrecv_replace(both.data(), length, MPI_BYTE, left(), 2, right(), 2, MPI_COMM_WORLD, &status));
    came(status, right(), 2, length);
    received(both, seed_of(right(), length));
  }
}

void to_myself() {
  for (const int length : {0, 8, 10'000, 1 << 20}) {
    const Bytes out = pattern(static_cast<size_t>(length), seed_of(rank(), 77));
    Bytes in(static_cast<size_t>(length));
    MPI_Request request;
    good(MPI_Isend(out.data(), length, MPI_BYTE, rank(), 3, MPI_COMM_WORLD, &request));
    MPI_Status status;
    good(MPI_Recv(in.data(), length, MPI_BYTE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &status));
    good(MPI_Wait(&request, MPI_STATUS_IGNORE));
    came(status, rank(), 3, length);
    received(in, seed_of(rank(), 77));
  }
}

void nobody() {
  int value = 5;
  MPI_Status status;
  good(MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD));
  good(MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status));
  expect(value == 5 && status.MPI_SOURCE == MPI_PROC_NULL, "a receive from nobody brought something");
}

// The ways to wait: any, some, all, tests, looking at a request.
void requests_of_all_kinds() {
  constexpr int count = 40;
  std::vector<Bytes> out(count), in(count);
  std::vector<MPI_Request> receives(count), sends(count);
  for (int i = 0; i < count; ++i) {
    in[i].resize(static_cast<size_t>(i) * 700);
    good(MPI_Irecv(in[i].data(), i * 700, MPI_BYTE, left(), tag_of(i), MPI_COMM_WORLD, &receives[i]));
  }
  for (int i = count - 1; i >= 0; --i) {
    out[i] = pattern(static_cast<size_t>(i) * 700, seed_of(rank(), i));
    good(MPI_Isend(out[i].data(), i * 700, MPI_BYTE, right(), tag_of(i), MPI_COMM_WORLD, &sends[i]));
  }
  int index = -1;
  MPI_Status status;
  for (int i = 0; i < 10; ++i) {
    good(MPI_Waitany(count, receives.data(), &index, &status));
    came(status, left(), tag_of(index), index * 700);
  }
  int done = 0;
  std::vector<int> indices(count);
  good(MPI_Waitsome(count, receives.data(), &done, indices.data(), MPI_STATUSES_IGNORE));
  expect(done >= 1, "waitsome found none");
  for (int all = 0; all == 0;) good(MPI_Testall(count, sends.data(), &all, MPI_STATUSES_IGNORE));
  for (int i = 0; i < count; ++i) {
    if (receives[i] == MPI_REQUEST_NULL) continue;
    int flag = 0;
    while (flag == 0) good(MPI_Request_get_status(receives[i], &flag, &status));
    came(status, left(), tag_of(i), i * 700);
  }
  good(MPI_Waitall(count, receives.data(), MPI_STATUSES_IGNORE));
  for (int i = 0; i < count; ++i) received(in[i], seed_of(left(), i));
}

}  // namespace

// A receive that is too short fails with MPI_ERR_TRUNCATE and writes nothing behind its end.
void truncation() {
  for (const int length : {64, 20'000, 400'000}) {
    for (const bool late : {false, true}) {
      const Bytes out = pattern(static_cast<size_t>(length), 3);
      Bytes in(static_cast<size_t>(length), 0xee);
      const int room = length / 2;
      MPI_Request receive, send;
      if (!late) good(MPI_Irecv(in.data(), room, MPI_BYTE, left(), 6, MPI_COMM_WORLD, &receive));
      MPI_Barrier(MPI_COMM_WORLD);
      good(MPI_Isend(out.data(), length, MPI_BYTE, right(), 6, MPI_COMM_WORLD, &send));
      MPI_Barrier(MPI_COMM_WORLD);
      if (late) good(MPI_Irecv(in.data(), room, MPI_BYTE, left(), 6, MPI_COMM_WORLD, &receive));
      MPI_Status status;
      refused(MPI_Wait(&receive, &status), MPI_ERR_TRUNCATE);
      good(MPI_Wait(&send, MPI_STATUS_IGNORE));
      expect(std::all_of(in.begin() + room, in.end(), [](uint8_t b) { return b == 0xee; }),
             "a truncated message was written behind the end of the receive");
    }
  }
}

void point_to_point() {
  blocking_modes();
  starting_modes();
  persistent_modes();
  unexpected();
  synchronous_waits();
  MPI_Barrier(MPI_COMM_WORLD);
  order_is_kept();
  cancelled_receives();
  exchanges();
  to_myself();
  nobody();
  requests_of_all_kinds();
}

}  // namespace weft::mpi
