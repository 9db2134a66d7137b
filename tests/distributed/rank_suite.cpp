#include "tests/distributed/rank_suite.h"

#include <cstdlib>
#include <numeric>

#include "hybrid_trainer/distributed/mpi_communicator.h"
#include "hybrid_trainer/distributed/single_communicator.h"
#include "hybrid_trainer/distributed/thread_communicator.h"

#ifdef __SANITIZE_ADDRESS__
/// Libraries stay where they are, so that the sanitizer can say whose a leak is.
extern "C" int dlclose(void*) { return 0; }
#endif

namespace hybrid_trainer::testing {

namespace {

bool is_started_by_mpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

/// A process starts MPI once.
Communicator& mpi_rank() {
  static const std::unique_ptr<Communicator> rank = start_mpi_communicator();
  return *rank;
}

}  // namespace

std::vector<RankCase> rank_cases() {
  if (is_started_by_mpirun()) return {{"mpi", [](const auto& rank) { rank(mpi_rank()); }}};
  std::vector<RankCase> cases{{"single", [](const auto& rank) {
                                 SingleCommunicator alone;
                                 rank(alone);
                               }}};
  for (const int ranks : {1, 2, 3, 4, 5}) {
    cases.push_back(
        {concat("threads", ranks), [=](const auto& rank) { run_thread_ranks(ranks, rank); }});
  }
  return cases;
}

Stream rank_stream() { return Stream(MemoryPool::create("rank")); }

Tensor counted(std::int64_t elements, float first, const Stream& stream) {
  const Tensor tensor = Tensor::empty({elements}, DType::kF32, MemoryKind::kWorkspace, stream);
  if (elements > 0) std::iota(tensor.data<float>(), tensor.data<float>() + elements, first);
  return tensor;
}

std::vector<float> floats_of(const Tensor& tensor) {
  if (tensor.elements() == 0) return {};
  return {tensor.data<float>(), tensor.data<float>() + tensor.elements()};
}

}  // namespace hybrid_trainer::testing
