// Compares plain training with adversarial predictors over several seeds.
// usage: adversary_benchmark [FIRST_SEED LAST_SEED STEPS [HORIZON]]
// HORIZON is phases.skip_backward.horizon: measured (the default) or model_based. Prints one line
// per run when it ends, then the mean over the seeds for each predictor.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/support/adversaries.h"

namespace hybrid_trainer::testing {
namespace {

struct Sums {
  double loss = 0, overhead = 0, worst_overhead = -1, planning = 0;
  std::int64_t made = 0, reverted = 0, runs = 0, equal = 0, must_be_equal = 0;

  void add(const AdversaryResult& result, const AdversaryResult& plain) {
    ++runs;
    loss += result.loss;
    overhead += result.overhead;
    worst_overhead = std::max(worst_overhead, result.overhead);
    planning += result.planning;
    made += result.predictions.made;
    reverted += result.predictions.reverted;
    must_be_equal += result.kept_none();
    equal += result.kept_none() && result.weights == plain.weights;
  }
};

void print(const char* name, std::uint64_t seed, const AdversaryResult& result) {
  std::printf("run %s %llu loss %.5f overhead %.4f made %lld reverted %lld\n", name,
              static_cast<unsigned long long>(seed), result.loss, result.overhead,
              static_cast<long long>(result.predictions.made),
              static_cast<long long>(result.predictions.reverted));
  std::fflush(stdout);
}

void compare(std::uint64_t first, std::uint64_t last, std::int64_t steps,
             const std::string& horizon) {
  std::map<std::string, Sums> sums;
  Sums plain_sums;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    HybridTrainerConfig config = adversary_config(seed, steps);
    config.phases.skip_backward.horizon = horizon;
    const AdversaryResult plain = train_with(config, {});
    plain_sums.add(plain, plain);
    print("plain", seed, plain);
    for (const AdversaryRow& row : adversaries()) {
      const AdversaryResult result = train_with(config, row.make(seed));
      print(row.name, seed, result);
      sums[row.name].add(result, plain);
    }
  }
  std::printf("plain mean loss %.5f\n", plain_sums.loss / static_cast<double>(plain_sums.runs));
  for (const auto& [name, sum] : sums) {
    const auto runs = static_cast<double>(sum.runs);
    std::printf(
        "| %s | %.4f | %+.3f %% | %lld of %lld | %lld of %lld | %.2f %% | %.2f %% | "
        "%.2f %% |\n",
        name.c_str(), sum.loss / runs, 100 * (sum.loss / plain_sums.loss - 1),
        static_cast<long long>(sum.reverted), static_cast<long long>(sum.made),
        static_cast<long long>(sum.equal), static_cast<long long>(sum.must_be_equal),
        100 * sum.overhead / runs, 100 * sum.worst_overhead, 100 * sum.planning / runs);
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing

int main(int argc, char** argv) {
  const auto argument = [&](int i, long otherwise) {
    return argc > i ? std::strtol(argv[i], nullptr, 10) : otherwise;
  };
  const std::string horizon = argc > 4 ? argv[4] : "measured";
  if (horizon != "measured" && horizon != "model_based") {
    std::fprintf(stderr, "adversary_benchmark: got horizon %s, want measured or model_based\n",
                 horizon.c_str());
    return 64;
  }
  hybrid_trainer::testing::compare(static_cast<std::uint64_t>(argument(1, 0)),
                                   static_cast<std::uint64_t>(argument(2, 19)), argument(3, 600),
                                   horizon);
}
