// NCCL's C interface on emulated devices, for ranks that are threads of one process. Like NCCL, it
// enqueues work on streams, reads and writes buffers only when the streams reach it, and first
// reports that a call is in progress.
#include "tests/emulation/nccl/fake_nccl.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "tests/emulation/nccl/clique.h"

namespace hybrid_trainer::emulation {
namespace {

FakeNccl& control() {
  static FakeNccl one;
  return one;
}

struct Cliques {
  std::mutex mutex;
  std::uint64_t ids = 0;
  std::map<std::uint64_t, std::shared_ptr<Clique>> by_id;
};

Cliques& cliques() {
  static Cliques all;
  return all;
}

std::shared_ptr<Clique> clique_of(const nccl::UniqueId& id, int ranks) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.bytes, sizeof number);
  const std::lock_guard lock(cliques().mutex);
  std::shared_ptr<Clique>& found = cliques().by_id[number];
  if (!found) found = std::make_shared<Clique>(ranks, control().copy);
  return found;
}

}  // namespace
}  // namespace hybrid_trainer::emulation

using hybrid_trainer::emulation::Clique;
using hybrid_trainer::emulation::control;
using hybrid_trainer::emulation::FakeOperation;
using hybrid_trainer::emulation::Transfer;
namespace nccl = hybrid_trainer::nccl;

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int questions = 0;  // queries until it is no longer in progress
  bool is_refused = false;
  std::uint64_t collectives = 0;
  std::vector<FakeOperation> group{};  // enqueued at the end of the group
  CUstream_st* stream = nullptr;
  std::shared_ptr<std::atomic<int>> on_streams = std::make_shared<std::atomic<int>>(0);
  bool finalizes = false;
};

namespace {

thread_local int group_depth = 0;
thread_local std::vector<ncclComm*> grouped;

nccl::Result take(ncclComm* rank) {
  rank->questions = control().questions;
  return nccl::kInProgress;
}

nccl::Result add(ncclComm* rank, CUstream_st* stream, FakeOperation operation) {
  if (rank->questions > 0) return nccl::kInvalidUsage;  // the previous call is still in progress
  const bool is_message =
      operation.transfer == Transfer::kSend || operation.transfer == Transfer::kReceive;
  if (!is_message) operation.number = ++rank->collectives;
  operation.rank = rank->rank;
  rank->group.push_back(operation);
  rank->stream = stream;
  if (group_depth == 0) return take(rank);
  if (std::find(grouped.begin(), grouped.end(), rank) == grouped.end()) grouped.push_back(rank);
  return nccl::kSuccess;
}

void put_on_stream(ncclComm& rank) {
  if (rank.group.empty()) return;
  ++*rank.on_streams;
  control().enqueue(rank.stream, [clique = rank.clique, number = rank.rank, left = rank.on_streams,
                                  group = std::exchange(rank.group, {})]() mutable {
    clique->run(number, group);
    --*left;
  });
}

}  // namespace

extern "C" {

hybrid_trainer::emulation::FakeNccl* hybrid_trainer_fake_nccl() { return &control(); }

nccl::Result ncclGetVersion(int* version) {
  *version = control().version;
  return nccl::kSuccess;
}

nccl::Result ncclGetUniqueId(nccl::UniqueId* id) {
  auto& cliques = hybrid_trainer::emulation::cliques();
  const std::lock_guard lock(cliques.mutex);
  const std::uint64_t number = ++cliques.ids;
  std::memcpy(id->bytes, &number, sizeof number);
  return nccl::kSuccess;
}

nccl::Result ncclCommInitRankConfig(ncclComm** made, int ranks, nccl::UniqueId id, int rank,
                                    nccl::Config* config) {
  if (config->magic != nccl::Config{}.magic || config->blocking != 0) return nccl::kInvalidArgument;
  auto clique = hybrid_trainer::emulation::clique_of(id, ranks);
  const bool is_free = clique->join(rank, control().current_device());
  *made = new ncclComm{.clique = std::move(clique), .rank = rank, .is_refused = !is_free};
  return take(*made);
}

nccl::Result ncclCommGetAsyncError(ncclComm* rank, nccl::Result* error) {
  *error = nccl::kInProgress;
  if (rank->is_refused) {
    *error = nccl::kInvalidUsage;
  } else if (rank->rank == control().failing_rank && control().error != nccl::kSuccess) {
    *error = static_cast<nccl::Result>(control().error.load());
  } else if (rank->clique->is_complete() && (rank->questions == 0 || --rank->questions == 0)) {
    put_on_stream(*rank);
    if (!rank->finalizes || *rank->on_streams == 0) *error = nccl::kSuccess;
  }
  return nccl::kSuccess;
}

nccl::Result ncclCommFinalize(ncclComm* rank) {
  rank->finalizes = true;
  return take(rank);
}

nccl::Result ncclCommDestroy(ncclComm* rank) {
  delete rank;
  return nccl::kSuccess;
}

nccl::Result ncclCommAbort(ncclComm* rank) {
  control().aborted_on = control().current_device();
  while (control().abort_hangs) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  rank->clique->abort(rank->rank);
  delete rank;
  return nccl::kSuccess;
}

const char* ncclGetErrorString(nccl::Result result) {
  switch (result) {
    case nccl::kInvalidUsage: return "invalid usage";
    case nccl::kRemoteError: return "remote process exited or there was a network error";
    default: return "unhandled error";
  }
}

const char* ncclGetLastError(ncclComm*) { return ""; }

nccl::Result ncclGroupStart() {
  ++group_depth;
  return nccl::kSuccess;
}

nccl::Result ncclGroupEnd() {
  if (--group_depth > 0) return nccl::kSuccess;
  nccl::Result answer = nccl::kSuccess;
  for (ncclComm* const rank : std::exchange(grouped, {})) answer = take(rank);
  return answer;
}

nccl::Result ncclAllGather(const void* from, void* to, std::size_t count, nccl::DataType type,
                           ncclComm* rank, CUstream_st* stream) {
  return add(rank, stream, {Transfer::kAllGather, from, to, count, type});
}

nccl::Result ncclBroadcast(const void* from, void* to, std::size_t count, nccl::DataType type,
                           int root, ncclComm* rank, CUstream_st* stream) {
  return add(rank, stream, {Transfer::kBroadcast, from, to, count, type, root});
}

nccl::Result ncclSend(const void* from, std::size_t count, nccl::DataType type, int peer,
                      ncclComm* rank, CUstream_st* stream) {
  return add(rank, stream, {Transfer::kSend, from, nullptr, count, type, peer});
}

nccl::Result ncclRecv(void* to, std::size_t count, nccl::DataType type, int peer, ncclComm* rank,
                      CUstream_st* stream) {
  return add(rank, stream, {Transfer::kReceive, nullptr, to, count, type, peer});
}
}
