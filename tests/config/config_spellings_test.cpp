#include <gtest/gtest.h>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/io/json_fields.h"
#include "support/test_files.h"

namespace hybrid_trainer {
namespace {

HybridTrainerConfig read(const std::string& phases) {
  HybridTrainerConfig config;
  read_config_text(config, concat("{\"phases\": {", phases, "}}"), "c");
  return config;
}

std::string phases_after(const std::vector<std::pair<std::string, std::string>>& settings) {
  HybridTrainerConfig config;
  for (const auto& [name, value] : settings) set_field(config, name, value);
  return config_json(config.phases);
}

/// Each name that a key of phases had, a value, and where it is now.
struct Renamed {
  const char *name, *value;
  std::vector<std::string> keys;
};

const std::vector<Renamed>& renamed() {
  static const std::vector<Renamed> rows{
      {"confidence_threshold", "0.25", {"skip_backward.confidence_threshold"}},
      {"confidence_window", "5", {"skip_backward.confidence_window"}},
      {"predictor", "\"linear\"", {"skip_backward.predictor"}},
      {"arms", R"([{"predictor": "merged", "steps": 8}])", {"skip_backward.arms"}},
      {"horizon", "\"dreamt\"", {"skip_backward.horizon"}},
      {"residual_store", "3", {"skip_backward.residual_store"}},
      {"decay", "0.5", {"skip_backward.decay"}},
      {"history_interval", "2", {"skip_backward.history_interval"}},
      {"slow_steps", "7", {"skip_backward.slow_steps"}},
      {"slow_share", "0.25", {"skip_backward.slow_share"}},
      {"correction_interval", "4", {"skip_backward.correction_interval"}},
      {"probe_batches", "3", {"skip_backward.probe_batches"}},
      {"max_shrinks", "1", {"skip_backward.max_shrinks"}},
      {"trial_share", "0.25", {"skip_backward.trial_share"}},
      {"trial_steps", "3", {"skip_backward.trial_steps"}},
      {"evidence_sigmas", "1.5", {"skip_backward.evidence_sigmas"}},
      {"aim_cost", "0.5", {"skip_backward.aim_cost"}},
      {"dream_cost", "16.5", {"skip_backward.dream_cost"}},
      {"lag",
       "3",
       {"asynchronous_optimizer.delay", "asynchronous_gradients.delay", "local_sgd.delay"}},
      {"device_side",
       "\"none\"",
       {"asynchronous_optimizer.device_side", "asynchronous_gradients.device_side"}},
      {"exact_state", "\"file\"", {"asynchronous_optimizer.exact_state"}},
      {"worker_threads", "2", {"asynchronous_optimizer.worker_threads"}},
      {"prediction_error_limit",
       "0.5",
       {"asynchronous_optimizer.prediction_error_limit",
        "asynchronous_gradients.prediction_error_limit"}},
      {"local_steps", "6", {"local_sgd.steps"}},
      {"local_fragments", "2", {"local_sgd.fragments"}},
      {"exchange_bits", "8", {"local_sgd.exchange_bits"}},
      {"outer_learning_rate", "0.5", {"local_sgd.outer_learning_rate"}},
      {"outer_momentum", "0.25", {"local_sgd.outer_momentum"}},
  };
  return rows;
}

TEST(ConfigSpellings, SetTheKeysThatTheyHaveBecome) {
  for (const Renamed& row : renamed()) {
    const std::string text =
        row.value[0] == '"' ? std::string(row.value).substr(1, std::string(row.value).size() - 2)
                            : row.value;
    std::vector<std::pair<std::string, std::string>> now;
    for (const std::string& key : row.keys) now.emplace_back("phases." + key, text);
    const std::string wanted = phases_after(now);
    EXPECT_NE(wanted, config_json(PhaseConfig{})) << row.name;
    EXPECT_EQ(phases_after({{concat("phases.", row.name), text}}), wanted) << row.name;
    EXPECT_EQ(config_json(read(concat('"', row.name, "\": ", row.value)).phases), wanted)
        << row.name;
    EXPECT_EQ(wanted.find(concat("\n  \"", row.name, '"')), std::string::npos)
        << row.name << " is still written";
  }
}

TEST(ConfigSpellings, OfWhatPredictGoesOnWithoutNameTheMethod) {
  EXPECT_EQ(read(R"("ingredient": "backward")").phases.method, "skip_backward");
  EXPECT_EQ(read(R"("ingredient": "optimizer_state")").phases.method, "asynchronous_optimizer");
  EXPECT_EQ(read(R"("ingredient": "other_ranks")").phases.method, "asynchronous_gradients");
  EXPECT_EQ(read(R"("ingredient": "other_ranks", "local_steps": 0)").phases.method,
            "asynchronous_gradients");
  EXPECT_EQ(read(R"("ingredient": "other_ranks", "local_steps": 4)").phases.method, "local_sgd");
  EXPECT_EQ(read(R"("local_steps": 4, "ingredient": "other_ranks")").phases.method, "local_sgd");
  EXPECT_EQ(read(R"("ingredient": "backward", "local_steps": 4)").phases.method, "skip_backward");
  const std::string local =
      phases_after({{"phases.method", "local_sgd"}, {"phases.local_sgd.steps", "4"}});
  EXPECT_EQ(phases_after({{"phases.ingredient", "other_ranks"}, {"phases.local_steps", "4"}}),
            local);
  EXPECT_EQ(phases_after({{"phases.local_steps", "4"}, {"phases.ingredient", "other_ranks"}}),
            local);
  EXPECT_TRUE(contains(message_of<ConfigError>([] { read(R"("ingredient": "others")"); }),
                       "c:1: phases.ingredient: got \"others\""));
}

TEST(ConfigSpellings, AndKeysWithDifferentValuesAreOneError) {
  const auto problems = [](const std::string& phases) -> std::vector<std::string> {
    try {
      read(phases);
    } catch (const ConfigError& error) {
      return error.problems();
    }
    return {};
  };
  EXPECT_TRUE(problems(R"("lag": 2, "asynchronous_optimizer": {"delay": 2})").empty());
  EXPECT_EQ(
      problems(R"("lag": 1, "asynchronous_optimizer": {"delay": 2})"),
      std::vector<std::string>{
          "c:1: phases.lag: got 1, but phases.asynchronous_optimizer.delay, which it is another "
          "name of, is 2; give one of the two"});
  EXPECT_EQ(problems(R"("ingredient": "backward", "method": "local_sgd")").size(), 1u);
  EXPECT_EQ(problems(R"("arms": [], "skip_backward": {"arms": [{"predictor": "merged"}]})").size(),
            1u);
  EXPECT_EQ(problems(R"("lag": 99)").size(), 1u);
  EXPECT_EQ(problems(R"("ingredient": "other_ranks", "method": "local_sgd")"),
            std::vector<std::string>{});
}

/// A file from before has the old name of the method, and held both budgets.
TEST(ConfigSpellings, OfBudgetsThatWereKeysOfTheirOwnGiveTheSmaller) {
  const auto budget = [](const std::string& budgets, const char* method) {
    HybridTrainerConfig config;
    read_config_text(config,
                     concat("{", budgets, R"(, "phases": {")", method, R"(": "backward"}})"), "c");
    return config.device_budget();
  };
  const std::string less =
      R"("training": {"memory_budget_mb": 500}, "memory": {"device_budget": "1GB"})";
  const std::string more =
      R"("training": {"memory_budget_mb": 500}, "memory": {"device_budget": "1MB"})";
  EXPECT_EQ(budget(less, "ingredient"), 500'000'000u);
  EXPECT_EQ(budget(more, "ingredient"), 1'000'000u);
  HybridTrainerConfig config;
  EXPECT_THROW(read_config_text(config, concat("{", less, "}"), "c"), ConfigError);
}

TEST(ConfigSpellings, AreWhatProblemsOfSettingsCallTheirKeys) {
  const auto problem = [](const std::string& name, const std::string& value) {
    HybridTrainerConfig config;
    return message_of<ConfigError>([&] { set_field(config, name, value); });
  };
  EXPECT_TRUE(problem("phases.lag", "99").starts_with("phases.lag: got 99"))
      << problem("phases.lag", "99");
  for (const char* value : {"2GB", "x", "", "1.5", "-1", "99999999999999999"}) {
    EXPECT_EQ(problem("training.memory_budget_mb", value),
              concat("training.memory_budget_mb: got ", value, ", want a whole number of MB"));
  }
  EXPECT_EQ(problem("phases.lagg", "1"),
            "phases.lagg: unknown key; did you mean phases.asynchronous_optimizer.delay?");
}

}  // namespace
}  // namespace hybrid_trainer
