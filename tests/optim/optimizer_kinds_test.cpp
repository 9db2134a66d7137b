#include "src/optim/optimizer_kinds.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/optim/make_optimizer.h"
#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;
using testing::master_of;
using testing::numbers;
using testing::ParameterSet;

/// Moves along the gradient and has no state.
class Descent final : public Optimizer {
 public:
  Descent(const OptimizerConfig&, std::vector<Parameter*> parameters, const Stream&,
          const StateHome&)
      : parameters_(std::move(parameters)) {}
  std::size_t weights() const override { return parameters_.size(); }
  void begin_step(const Stream&) override { ++steps_; }
  void update_weight(std::size_t index, float learning_rate, float gradient_scale,
                     const Stream& stream) override {
    const Parameter& parameter = *parameters_[index];
    const Tensor gradient = parameter.gradient();
    if (!gradient) return;
    const UpdatedWeight weight(parameter, stream);
    float* const values = weight.master.tensor().data<float>();
    for (std::int64_t i = 0; i < parameter.elements(); ++i)
      values[i] -= learning_rate * gradient_scale * gradient.data<float>()[i];
  }
  void write_momentum_directions(const std::vector<Tensor>&, float, const Stream&) override {}
  void visit_state(const StateVisitor&) override {}

 private:
  std::vector<Parameter*> parameters_;
};

std::unique_ptr<Optimizer> make_descent(const OptimizerConfig& config,
                                        std::vector<Parameter*> parameters, const Stream& stream,
                                        const StateHome& home) {
  return std::make_unique<Descent>(config, std::move(parameters), stream, home);
}

TEST(OptimizerKinds, TableRowAddsOptimizer) {
  const Stream stream(MemoryPool::create("device"));
  const OptimizerKind row{.name = "descent", .about = "0", .make = make_descent};
  ParameterSet parameters(stream);
  parameters.set_gradients(3);
  OptimizerConfig config;
  config.name = "descent";
  const auto optimizer =
      make_optimizer_of({&row, 1}, config, parameters.pointers(), stream, StateHome(stream));
  const auto before = parameters.copies();
  optimizer->step(0.5f, 0.25f, stream);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = *parameters.pointers()[i];
    const auto was = numbers(before[i]), is = numbers(master_of(parameter));
    const auto gradient = numbers(parameter.gradient());
    for (std::size_t j = 0; j < is.size(); ++j)
      ASSERT_FLOAT_EQ(is[j], was[j] - 0.125f * gradient[j]) << parameter.name() << ' ' << j;
  }
  EXPECT_THROW(make_optimizer(config, parameters.pointers(), stream), ConfigError);
}

/// Adding an optimizer requires only a row in the table and its own files.
TEST(OptimizerKinds, NamesAppearOnlyInTable) {
  const fs::path root = HT_SOURCE_DIR;
  // These files describe an option or a preset of one optimizer, not the list of optimizers.
  const std::set<std::string> of_one{
      "include/hybrid_trainer/optim/optimizer_config.h", "src/config/hybrid_trainer_config.cpp",
      "src/run/fine_tuning_method.cpp", "src/trainer/planning/step_rates.cpp",
      // Files that reject combinations with a method.
      "phases/method.cpp", "phases/asynchronous_optimizer/asynchronous_optimizer.cpp"};
  std::string names;
  for (const OptimizerKind& kind : optimizer_kinds())
    names += (names.empty() ? "" : "|") + std::string(kind.name);
  const std::regex named("\"(" + names + ")\"");
  int files = 0;
  for (const char* folder : {"include", "src", "memory", "phases"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string path = fs::relative(entry.path(), root);
      const bool is_of_one = of_one.contains(path) || path.starts_with("src/models/");
      if (!entry.is_regular_file() || is_of_one) continue;
      std::ifstream in(entry.path());
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      const bool is_table = path == "src/optim/optimizer_kinds.cpp";
      EXPECT_EQ(std::regex_search(text, named), is_table) << path;
      ++files;
    }
  }
  EXPECT_GT(files, 500);
}

TEST(OptimizerKinds, ReportsOptimizersThatReadKey) {
  const KeyNeed momentum = optimizer_that_reads("momentum");
  EXPECT_EQ(momentum.why, "it applies only to sgd and muon");
  ASSERT_EQ(momentum.any_of.size(), 2u);
  for (const KeyTest& test : momentum.any_of)
    EXPECT_EQ(test.values, (std::vector<std::string>{"sgd", "muon"})) << test.key;
  const KeyNeed epsilon = optimizer_that_reads("epsilon");
  EXPECT_EQ(epsilon.why,
            "it applies only to adamw, adam_mini and the weights that muon passes to adamw");
  EXPECT_EQ(epsilon.any_of[0].values, (std::vector<std::string>{"adamw", "adam_mini", "muon"}));
}

}  // namespace
}  // namespace hybrid_trainer
