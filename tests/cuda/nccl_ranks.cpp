#include "tests/cuda/nccl_ranks.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include "hybrid_trainer/core/memory_pool.h"
#include "src/core/cuda_runtime.h"
#include "src/distributed/host_ranks.h"
#include "tests/distributed/rank_suite.h"

namespace hybrid_trainer {
namespace {

/// The running ranks and the error that ended one of them.
class RanksAtWork {
 public:
  void enter(Communicator& rank) {
    const std::lock_guard lock(mutex_);
    all_.push_back(&rank);
    if (failure_) rank.abort("another one has failed");
  }
  void leave(Communicator& rank) {
    const std::lock_guard lock(mutex_);
    std::erase(all_, &rank);
  }
  void fail(std::exception_ptr failure, const char* reason) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    for (Communicator* rank : all_) rank->abort(reason);
  }
  void throw_on() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::vector<Communicator*> all_;
  std::exception_ptr failure_;
};

class AtWork {
 public:
  AtWork(RanksAtWork& all, Communicator& rank) : all_(all), rank_(rank) { all_.enter(rank_); }
  ~AtWork() { all_.leave(rank_); }
  AtWork(const AtWork&) = delete;

 private:
  RanksAtWork& all_;
  Communicator& rank_;
};

}  // namespace

int most_nccl_ranks() {
  const bool has_both =
      find_cuda().runtime != nullptr && SharedLibrary::try_open(tested_nccl()).opened();
  return has_both ? std::min(4, cuda_runtime().device_count()) : 0;
}

void run_nccl_ranks(int ranks, const std::function<void(Communicator&, Device)>& rank,
                    const NcclLimits& limits) {
  RanksAtWork all;
  {
    std::vector<std::jthread> threads;
    int index = 0;
    for (auto& one : make_thread_communicators(ranks)) {
      const Device device{DeviceType::kCuda, index++};
      threads.emplace_back([&, device, hosts = std::move(one)]() mutable {
        try {
          const auto communicator =
              start_nccl_communicator(std::move(hosts), device, tested_nccl(), limits);
          const AtWork at_work(all, *communicator);
          rank(*communicator, device);
        } catch (const std::exception& error) {
          all.fail(std::current_exception(), error.what());
        }
      });
    }
  }
  all.throw_on();
}

namespace testing {

std::vector<RankCase> rank_cases() {
  std::vector<RankCase> cases;
  for (int ranks = 1; ranks <= most_nccl_ranks(); ++ranks) {
    const auto run = [=](const RankBody& body) {
      run_nccl_ranks(ranks, [&](Communicator& one, Device device) {
        body(one, Stream(make_device_pool(device)));
      });
    };
    cases.push_back({concat("nccl", ranks), run, false});
  }
  return cases;
}

}  // namespace testing
}  // namespace hybrid_trainer
