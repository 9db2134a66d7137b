#include "src/config/config_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "phases/refusal.h"
#include "src/files/config_fields.h"

namespace hybrid_trainer {
namespace {

using Kind = KeyTest::Kind;

/// Returns a non-default value of a key that methods require to have certain values.
std::string other_value(const std::string& key) {
  static const std::map<std::string, std::string> values{
      {"model.experts.bias_rate", "0.5"},
      {"memory.optimizer_state", "host"},
      {"memory.weights", "host"},
      {"memory.device_map", "h.*=host"},
      {"memory.gradients", "consume"},
      {"memory.gradient_bits", "16"},
      {"optimizer.paged", "true"},
      {"optimizer.slow_momentum", "0.5"},
      {"optimizer.name", "sgd"},
      {"optimizer.groups[].name", "sgd"},
      {"optimizer.state_bits", "8"},
      {"optimizer.groups[].state_bits", "8"},
      {"training.average_weights", "4"},
      {"learning_rate_finder.mode", "warmup"},
      {"stages[].precision", "bf16"},
      {"stages[].orthogonalization_period", "2"},
      {"distributed.zero", "2"},
      {"data.carry_state", "true"},
      {"phases.asynchronous_optimizer.delay", "2"},
      {"phases.asynchronous_gradients.device_side", "sketch"},
      {"phases.local_sgd.exchange_bits", "16"},
  };
  return values.contains(key) ? values.at(key) : "";
}

/// A value that the rule rejects.
std::string refused_value(const Refusal& row, const std::string& key) {
  if (row.kind == Kind::kIsNoneOf) return row.values.front();
  if (row.kind == Kind::kIsMoreThan) return "1";
  if (row.kind != Kind::kIsOneOf) return "50";
  if (key == "phases.asynchronous_optimizer.device_side")
    return row.values.size() == 2 ? "sketch" : "shared";
  return other_value(key);
}

void set(HybridTrainerConfig& config, const std::string& key, const std::string& value) {
  const std::size_t index = key.find("[].");
  if (index == std::string::npos) {
    set_field(config, key, value);
    return;
  }
  const std::map<std::string, std::string> lists{{"optimizer.groups", R"("match": "embedding", )"},
                                                 {"stages", R"("until": 0.5, )"}};
  const std::string list = key.substr(0, index), name = key.substr(index + 3);
  const bool is_text = value.find_first_not_of("0123456789.") != std::string::npos;
  const std::string quote = is_text ? "\"" : "";
  set_field(config, list,
            concat("[{", lists.contains(list) ? lists.at(list) : "", '"', name, "\": ", quote,
                   value, quote, "}]"));
}

bool concerns_ranks(const Refusal& row) {
  return std::ranges::count(row.when, "ranks", &KeyTest::key) > 0;
}

/// A config that meets the rule's conditions.
HybridTrainerConfig config_for(const std::string& method, const Refusal& row) {
  HybridTrainerConfig config;
  config.predict_aware_memory.offload_strategy = "none";
  config.phases.method = method;
  config.phases.local_sgd.steps = 4;
  config.gradient_accumulation.micro_batches = 2;
  for (const KeyTest& test : row.when) {
    if (test.key == "ranks") continue;
    if (test.kind == Kind::kIsOneOf) set(config, test.key, test.values.front());
    if (test.kind == Kind::kIsNoneOf) set(config, test.key, other_value(test.key));
    if (test.kind == Kind::kIsMoreThan) set(config, test.key, "3");
  }
  return config;
}

std::vector<std::string> problems_of(const HybridTrainerConfig& config, const Refusal& row) {
  if (!concerns_ranks(row)) return config.problems();
  const bool is_of_one = row.when.back().kind == Kind::kIsOneOf;
  try {
    check_ranks(config, is_of_one ? 1 : 2);
  } catch (const ConfigError& error) {
    return error.problems();
  }
  return {};
}

class MethodRefusals : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Refusals, MethodRefusals, ::testing::ValuesIn(method_names()),
                         [](const auto& info) { return info.param; });

TEST_P(MethodRefusals, ReportsKeyValueReasonAndAlternative) {
  for (const Refusal& row : refusals_of(GetParam())) {
    for (const std::string& key : row.keys) {
      HybridTrainerConfig config = config_for(GetParam(), row);
      const bool is_method = key == "phases.method";
      const std::string value = is_method ? GetParam() : refused_value(row, key);
      ASSERT_NE(value, "") << key << " has no rejected value in this test";
      if (!is_method) set(config, key, value);
      const std::string path = key.find("[]") == std::string::npos
                                   ? key
                                   : std::string(key).replace(key.find("[]"), 2, "[0]");
      const std::string begin = concat(path, ": got ", value, ", but ", row.why,
                                       " (with phases.method ", GetParam(), "); want ");
      const std::vector<std::string> problems = problems_of(config, row);
      EXPECT_EQ(std::ranges::count_if(
                    problems, [&](const std::string& one) { return one.starts_with(begin); }),
                1)
          << begin << "\n"
          << join(problems, "\n");
    }
  }
}

TEST_P(MethodRefusals, DefaultConfigIsAccepted) {
  HybridTrainerConfig config;
  config.phases.method = GetParam();
  config.phases.local_sgd.steps = 4;
  config.gradient_accumulation.micro_batches = 2;
  EXPECT_EQ(config.problems(), std::vector<std::string>{});
  if (GetParam() != "asynchronous_optimizer") check_ranks(config, 2);
}

TEST(Refusals, AsynchronousAcceptsPredictableOptimizers) {
  for (const std::string& name : optimizer_names()) {
    HybridTrainerConfig config;
    config.phases.method = "asynchronous_optimizer";
    config.optimizer.name = name;
    EXPECT_EQ(config.problems().empty(),
              std::ranges::count(predictable_optimizer_names(), name) == 1)
        << name;
  }
}

}  // namespace
}  // namespace hybrid_trainer
