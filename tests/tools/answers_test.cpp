#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>

#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {
namespace {

constexpr double kQuickSeconds = 0.05;

/// CPU time of the fastest of five runs, which is robust on a busy machine.
double quickest(const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  double best = 1e9;
  for (int i = 0; i < 5; ++i)
    best = std::min(best, run_hybrid(folder.path(), arguments).processor_seconds);
  return best;
}

TEST(HybridCommand, HelpVersionAndConfigErrorsAreQuick) {
  EXPECT_LT(quickest({"--help"}), kQuickSeconds);
  EXPECT_LT(quickest({"--version"}), kQuickSeconds);
  EXPECT_LT(quickest({"train", "--preset", "gpt2-124m", "--data", "x", "--run", "r", "--set",
                      "phases.warmup_step=1"}),
            kQuickSeconds);
}

TEST(HybridCommand, DoctorReportsRatesAndWaitPolicy) {
  const TemporaryFolder folder;
  const auto doctor = [&] {
    const ProcessResult result = run_hybrid(folder.path(), {"doctor", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return boost::json::parse(result.output);
  };
  for (const char* name : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_PROC_BIND"}) unsetenv(name);
  const boost::json::value unsaid = doctor();
  for (const char* key : {"fp32_product_flops_per_second", "bf16_product_flops_per_second",
                          "copy_bytes_per_second"}) {
    EXPECT_GT(unsaid.at(key).to_number<double>(), 1e8) << key;
  }
  const boost::json::value& libraries = unsaid.at("libraries");
  EXPECT_FALSE(libraries.at("oneDNN").as_string().empty());
  EXPECT_TRUE(libraries.at("zstd").as_string().starts_with("1."));
  EXPECT_TRUE(libraries.at("libpng").as_string().starts_with("1."));
  EXPECT_TRUE(libraries.at("libjpeg-turbo").as_string().starts_with("2."));
  EXPECT_EQ(unsaid.at("waiting"), "GOMP_SPINCOUNT=1000");
  setenv("GOMP_SPINCOUNT", "77", 1);
  EXPECT_EQ(doctor().at("waiting"), "GOMP_SPINCOUNT=77");
  unsetenv("GOMP_SPINCOUNT");
  setenv("OMP_WAIT_POLICY", "active", 1);
  setenv("OMP_PROC_BIND", "true", 1);  // leaves only one core to the main thread
  const boost::json::value bound = doctor();
  EXPECT_EQ(bound.at("waiting"), "OMP_WAIT_POLICY=active");
  EXPECT_EQ(bound.at("cores"), unsaid.at("cores"));
  for (const char* name : {"OMP_WAIT_POLICY", "OMP_PROC_BIND"}) unsetenv(name);
}

}  // namespace
}  // namespace hybrid_trainer
