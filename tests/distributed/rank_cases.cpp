#include <cstdlib>

#include "src/distributed/decorated_communicator.h"
#include "src/distributed/host_ranks.h"
#include "src/distributed/single_communicator.h"
#include "tests/distributed/rank_suite.h"
#include "tests/distributed/socket_ranks.h"

#ifdef __SANITIZE_ADDRESS__
/// Keeps libraries loaded, so that the leak sanitizer can name their functions.
extern "C" int dlclose(void*) { return 0; }
#endif

namespace hybrid_trainer::testing {
namespace {

bool is_started_by_mpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

/// A process can initialize MPI only once.
Communicator& mpi_rank() {
  static const std::unique_ptr<Communicator> rank = start_mpi_communicator();
  return *rank;
}

}  // namespace

std::vector<RankCase> rank_cases() {
  if (is_started_by_mpirun())
    return {{"mpi", [](const RankBody& rank) { rank(mpi_rank(), rank_stream()); }}};
  std::vector<RankCase> cases{{"single", [](const RankBody& rank) {
                                 SingleCommunicator alone;
                                 rank(alone, rank_stream());
                               }}};
  for (const int ranks : {1, 2, 3, 4, 5}) {
    cases.push_back({concat("threads", ranks), [=](const RankBody& rank) {
                       run_thread_ranks(ranks,
                                        [&](Communicator& one) { rank(one, rank_stream()); });
                     }});
  }
  for (const int ranks : {1, 2, 4}) {
    cases.push_back({concat("sockets", ranks), [=](const RankBody& rank) {
                       run_socket_ranks(ranks,
                                        [&](Communicator& one) { rank(one, rank_stream()); });
                     }});
  }
  cases.push_back({"threads3beside", [](const RankBody& rank) {
                     run_thread_ranks(3, [&](Communicator& others) {
                       BackgroundCommunicator background(others, true);
                       rank(background, rank_stream());
                     });
                   }});
  cases.push_back({"threads3linked", [](const RankBody& rank) {
                     run_thread_ranks(3, [&](Communicator& others) {
                       SimulatedLink link(others, {.bytes_per_second = 1e9});
                       rank(link, rank_stream());
                     });
                   }});
  return cases;
}

}  // namespace hybrid_trainer::testing
