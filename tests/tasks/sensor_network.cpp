#include "tests/tasks/sensor_network.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "hybrid_trainer/nn/language_head.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/module.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kSignals = 8, kClasses = 4, kUnseen = std::int64_t{1} << 40;
constexpr double kTold = 0.8;  // share of the examples with the true label

/// y = x + perceptron(x).
class Perceptron final : public Module {
 public:
  Perceptron(const ModuleName& name, std::int64_t width, const Stream& stream)
      : inner_(name, {.width = width, .intermediate_size = 4 * width}, stream) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override {
    return inner_.forward(x, x, tape, stream);
  }
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override {
    const Tensor dx = inner_.backward(dy, tape, stream);
    kernels::add(dx, dx, dy, stream);
    return dx;
  }
  void visit_parameters(const ParameterVisitor& visit) override { inner_.visit_parameters(visit); }
  void visit_linears(const LinearVisitor& visit) { inner_.visit_linears(visit); }

 private:
  FeedForward inner_;
};

/// A module that is recomputed as its part's settings say.
class Part {
 public:
  Part(std::string name, Module& module) : name_(std::move(name)), module_(module) {}
  const std::string& name() const { return name_; }
  void set(const PartSettings& settings) { settings_ = settings; }
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
    const MemoryLabel label(name_);
    if (!again(tape)) return module_.forward(x, tape, stream);
    return CheckpointedModule(module_).forward(x, tape, stream);
  }
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
    const MemoryLabel label(name_);
    if (!again(tape)) return module_.backward(dy, tape, stream);
    return CheckpointedModule(module_).backward(dy, tape, stream);
  }

 private:
  bool again(const ActivationTape& tape) const {
    return settings_.recompute.value_or(tape.pass().recompute) > 0.5;
  }
  std::string name_;
  Module& module_;
  PartSettings settings_;
};

class SensorNetwork final : public Network {
 public:
  SensorNetwork(const ModelConfig& config, std::uint64_t seed, const Stream& stream)
      : left_("left", kSignals, config.width, stream),
        right_("right", kSignals, config.width, stream),
        fusion_("fusion", config.width, stream),
        table_("head.weight", {kClasses, config.width}, Role::kHead, stream),
        head_(table_, kClasses),
        parts_{{"left", left_}, {"right", right_}, {"fusion", fusion_}} {
    std::uint64_t next = seed;
    visit_parameters([&](Parameter& parameter) {
      if (parameter.role() != Role::kVector) initialize_normal(parameter, 0.2, ++next, stream);
    });
  }

  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override {
    const Tensor x = features(batch, tape, stream);
    return head_.loss(x, batch.at("class"), batch.loss_divisor(), gradient_scale, tape, stream);
  }
  void backward(const Batch&, ActivationTape& tape, const Stream& stream) override {
    const Tensor dsum = parts_[2].backward(head_.backward(tape, stream), tape, stream);
    parts_[1].backward(dsum, tape, stream);
    parts_[0].backward(dsum, tape, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    left_.visit_parameters(visit);
    right_.visit_parameters(visit);
    fusion_.visit_parameters(visit);
    visit(table_);
  }
  void visit_linears(const LinearVisitor& visit) override {
    visit(left_);
    visit(right_);
    fusion_.visit_linears(visit);
  }
  std::vector<std::string> parts() const override {
    return {"left.*", "right.*", "fusion.*", "head.*"};
  }
  void set_parts(const std::vector<PartSettings>& settings) override {
    for (const PartSettings& one : settings) {
      bool is_known = false;
      for (Part& part : parts_) {
        if (!matches_pattern(part.name() + ".", one.pattern)) continue;
        part.set(one);
        is_known = true;
      }
      if (!is_known) throw ConfigError({concat("parts: ", one.pattern, " matches no part")});
    }
  }
  Batch empty_batch(const BatchForm& form, const Stream& stream) const override {
    const auto signals = [&] {
      return Tensor::empty({form.examples, kSignals}, DType::kF32, MemoryKind::kData, stream);
    };
    return Batch(
        {{"left", signals()},
         {"right", signals()},
         {"class", Tensor::empty({form.examples}, DType::kI32, MemoryKind::kData, stream)}});
  }
  std::vector<Measure> wait_for_measures(const Batch& batch, const Pass& pass,
                                         const Stream& stream) override {
    ForwardOnlyTape tape(pass);
    const Tensor logits =
        wait_for_host(head_.logits(features(batch, tape, stream), stream), stream);
    Measure right{.name = "class.accuracy", .count = static_cast<double>(batch.size())};
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const float* const row = logits.data<float>() + i * kClasses;
      const auto guess = std::max_element(row, row + kClasses) - row;
      right.sum += guess == batch.at("class").data<std::int32_t>()[i] ? 1 : 0;
    }
    return {right};
  }

 private:
  Tensor features(const Batch& batch, ActivationTape& tape, const Stream& stream) {
    const Tensor left =
        parts_[0].forward(as_computed(batch.at("left"), tape, stream), tape, stream);
    const Tensor right =
        parts_[1].forward(as_computed(batch.at("right"), tape, stream), tape, stream);
    const Tensor sum = Tensor::empty_like(left, MemoryKind::kActivations, stream);
    kernels::add(sum, left, right, stream);
    return parts_[2].forward(sum, tape, stream);
  }
  static Tensor as_computed(const Tensor& x, const ActivationTape& tape, const Stream& stream) {
    const Tensor cast =
        Tensor::empty(x.shape(), tape.pass().dtype, MemoryKind::kActivations, stream);
    kernels::cast(cast, x, stream);
    return cast;
  }
  Linear left_, right_;
  Perceptron fusion_;
  Parameter table_;
  LanguageHead head_;
  std::vector<Part> parts_;
};

std::unique_ptr<Network> make(const ModelConfig& config, std::uint64_t seed, const Stream& stream) {
  return std::make_unique<SensorNetwork>(config, seed, stream);
}

/// Signals of two sensors. Seed and index determine an example.
class Signals final : public Dataset {
 public:
  explicit Signals(std::uint64_t seed) : seed_(seed) {}
  std::int64_t size() const override { return 0; }
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override {
    static const SensorNetwork shape({.width = 1}, 0, Stream(MemoryPool::create("shape")));
    return shape.empty_batch({.examples = examples}, stream);
  }
  void write(std::int64_t number, const ExampleMemory& memory) const override {
    const auto words = [&](std::size_t i) {
      return philox({seed_, static_cast<std::uint64_t>(number), 7}, i);
    };
    const std::span<float> left = memory.floats("left"), right = memory.floats("right");
    for (std::size_t i = 0; i < kSignals; ++i) {
      left[i] = 2 * to_unit_float(words(i)[0]) - 1;
      right[i] = 2 * to_unit_float(words(i)[1]) - 1;
    }
    const std::int64_t own = (left[0] > 0 ? 2 : 0) + (right[0] > 0 ? 1 : 0);
    const auto drawn = words(0);
    const std::int64_t other = (own + 1 + drawn[2] % (kClasses - 1)) % kClasses;
    memory.labels("class")[0] =
        static_cast<std::int32_t>(to_unit_float(drawn[3]) < kTold ? own : other);
  }

 private:
  std::uint64_t seed_;
};

class SensorData final : public NetworkData {
 public:
  std::string description() const override { return "drawn from the seed: signals of two sensors"; }
  DatasetPart training(const HybridTrainerConfig& config) const override {
    return std::make_shared<Signals>(config.training.seed);
  }
  DatasetPart validation(const HybridTrainerConfig& config) const override {
    return {training(config).dataset, kUnseen, 4096};
  }
  std::optional<double> best_loss(const HybridTrainerConfig&) const override {
    return -kTold * std::log(kTold) - (1 - kTold) * std::log((1 - kTold) / (kClasses - 1));
  }
};

}  // namespace

ModelFamily sensor_family() {
  return {.name = "sensors",
          .title = "Sensors",
          .keys = {},
          .collect_problems = [](const ModelConfig&, std::vector<std::string>&) {},
          .make = make,
          .presets = {{.name = "sensors-tiny",
                       .model = {.layers = 1, .width = 16, .context = 1},
                       .batch_size = 8,
                       .sequence_length = 1,
                       .optimizer = "adamw",
                       .learning_rate = 1e-2}},
          .is_language_model = false,
          .adapted_parts = {"fusion.*"}};
}

const ModelRegistry& sensor_registry() {
  static const ModelRegistry families{model_families().front(), sensor_family()};
  return families;
}

const NetworkDataKinds& sensor_data() {
  static const NetworkDataKinds kinds{
      {"sensors", [](const NetworkDataSource&) { return std::make_unique<SensorData>(); }}};
  return kinds;
}

}  // namespace hybrid_trainer::testing
