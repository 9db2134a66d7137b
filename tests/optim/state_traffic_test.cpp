#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "src/optim/make_optimizer.h"
#include "tests/optim/parameter_set.h"
#include "tests/support/watched_memory.h"

namespace hybrid_trainer::testing {
namespace {

TEST(StateTraffic, BackgroundCopiesMatchResidentState) {
  std::atomic<int> writes = 0;
  const std::atomic<bool> fails = false;
  const Stream stream = test_stream();
  const Stream home(MemoryPool::create("home", {}, std::make_unique<WatchedMemory>(writes, fails)));
  for (const char* name : {"adamw", "sgd", "lion", "muon", "adafactor"}) {
    SCOPED_TRACE(name);
    OptimizerConfig config;
    config.name = name;
    ParameterSet near(stream), far(stream);
    const auto stays = make_optimizer(config, near.pointers(), stream);
    const auto moves =
        make_optimizer(config, far.pointers(), stream, home, {}, Copies::kInBackground);
    writes = 0;
    for (std::uint64_t step = 1; step <= 5; ++step) {
      const std::size_t without = step == 3 ? 2 : 100;
      near.set_gradients(step, without);
      far.set_gradients(step, without);
      stays->step(0.01f, 1, stream);
      moves->step(0.01f, 1, stream);
    }
    EXPECT_TRUE(far.has_values(near.copies()));
    EXPECT_GT(writes, 20);
    std::map<std::string, Tensor> wanted;
    stays->visit_state(
        [&](const StateLabel& label, Tensor& tensor) { wanted[label.name] = tensor; });
    moves->visit_state([&](const StateLabel& label, Tensor& tensor) {
      EXPECT_TRUE(same_bits(tensor, wanted.at(label.name))) << label.name;
    });
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
