#include <algorithm>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/kernels/loss.h"
#include "hybrid_trainer/nn/module_graph.h"

namespace hybrid_trainer::graph {

namespace {

Shape places_shape(const Shape& shape) {
  Shape places;
  for (int i = 0; i + 1 < shape.rank(); ++i) places.append(shape[i]);
  return places;
}

std::int64_t last_of(const Shape& shape) { return shape[shape.rank() - 1]; }

/// Returns the index of the largest of `count` numbers; the first index if several are equal.
std::int64_t largest(const float* numbers, std::int64_t count) {
  return std::max_element(numbers, numbers + count) - numbers;
}

const Measure& measure_of(const std::vector<Measure>& measures, const std::string& name) {
  const auto found = std::ranges::find(measures, name, &Measure::name);
  if (found != measures.end()) return *found;
  std::vector<std::string> names;
  for (const Measure& measure : measures) names.push_back(measure.name);
  throw Error(ExitCode::kInternal,
              concat("unknown measure ", name, "; the measures are ", join(names)));
}

double ratio(bool holds) { return holds ? 1 : 0; }

class CrossEntropyLoss final : public Loss {
 public:
  CrossEntropyLoss(const Shape& logits, std::string targets, const CrossEntropy& spec)
      : logits_(logits), targets_(std::move(targets)), spec_(spec) {
    if (logits.rank() < 2 || last_of(logits) < 2)
      throw ShapeMismatch(concat("its logits are ", logits.text(),
                                 ", want (batch, …, classes) with at least two classes"));
  }
  std::vector<BatchTensor> targets() const override {
    return {{targets_, places_shape(logits_), DType::kI32}};
  }
  std::int64_t rows() const override { return logits_.elements() / last_of(logits_); }
  bool counts_targets() const override { return spec_.counts_targets; }
  void compute(const Tensor& losses, const Tensor& x, std::span<const Tensor> targets,
               const LossOptions& options, const Stream& stream) const override {
    const float smoothing = spec_.smoothing > 0 ? spec_.smoothing : options.label_smoothing;
    kernels::smoothed_cross_entropy(losses, x.as_rows(), targets[0].view(losses.shape()),
                                    {last_of(logits_), smoothing}, options.gradient_scale, stream);
  }
  std::vector<Measure> measures(const std::string& name, const Tensor& x,
                                std::span<const Tensor> targets,
                                const Tensor& losses) const override {
    Measure loss{name + ".loss"}, accuracy{name + ".accuracy"};
    const std::int64_t classes = last_of(logits_);
    for (std::int64_t row = 0; row < losses.elements(); ++row) {
      const std::int32_t wanted = targets[0].data<std::int32_t>()[row];
      if (wanted == kNoTarget) continue;
      loss.sum += static_cast<double>(losses.data<float>()[row]);
      loss.count += 1;
      accuracy.sum += ratio(largest(x.data<float>() + row * classes, classes) == wanted);
      accuracy.count += 1;
    }
    return {loss, accuracy};
  }

 private:
  Shape logits_;
  std::string targets_;
  CrossEntropy spec_;
};

class RegressionLoss final : public Loss {
 public:
  RegressionLoss(const Shape& predictions, std::string targets, kernels::Distance distance,
                 float delta)
      : shape_(predictions), targets_(std::move(targets)), distance_(distance), delta_(delta) {
    if (!(delta > 0)) throw ConfigError({concat("delta: got ", delta, ", want above 0")});
  }
  std::vector<BatchTensor> targets() const override { return {{targets_, shape_, DType::kF32}}; }
  std::int64_t rows() const override { return shape_.elements(); }
  void compute(const Tensor& losses, const Tensor& x, std::span<const Tensor> targets,
               const LossOptions& options, const Stream& stream) const override {
    kernels::regression_loss(losses, x, targets[0], distance_, delta_, options.gradient_scale,
                             stream);
  }
  std::vector<Measure> measures(const std::string& name, const Tensor& x,
                                std::span<const Tensor> targets,
                                const Tensor& losses) const override {
    const auto count = static_cast<double>(losses.elements());
    Measure loss{name + ".loss", 0, count}, absolute{name + ".absolute_error", 0, count},
        squared{name + ".squared_error", 0, count}, target{name + ".target", 0, count},
        square{name + ".target_square", 0, count};
    for (std::int64_t i = 0; i < losses.elements(); ++i) {
      const auto wanted = static_cast<double>(targets[0].data<float>()[i]);
      const double away = static_cast<double>(x.data<float>()[i]) - wanted;
      loss.sum += static_cast<double>(losses.data<float>()[i]);
      absolute.sum += std::abs(away);
      squared.sum += away * away;
      target.sum += wanted;
      square.sum += wanted * wanted;
    }
    return {loss, absolute, squared, target, square};
  }

 private:
  Shape shape_;
  std::string targets_;
  kernels::Distance distance_;
  float delta_;
};

constexpr std::int64_t kBoxNumbers = 4, kFirstClass = 1 + kBoxNumbers;

class DetectionLoss final : public Loss {
 public:
  DetectionLoss(const Shape& predictions, const std::vector<std::string>& targets,
                const Detection& spec)
      : shape_(predictions), classes_(targets[0]), boxes_(targets[1]), spec_(spec) {
    if (predictions.rank() < 2 || spec.classes < 1 ||
        last_of(predictions) != kFirstClass + spec.classes)
      throw ShapeMismatch(concat("its predictions are ", predictions.text(), ", want (batch, …, ",
                                 kFirstClass + spec.classes,
                                 "): a logit, four numbers of a box and ", spec.classes,
                                 " classes"));
    if (!(spec.beta > 0)) throw ConfigError({concat("beta: got ", spec.beta, ", want above 0")});
  }
  std::vector<BatchTensor> targets() const override {
    Shape boxes = places_shape(shape_);
    boxes.append(kBoxNumbers);
    return {{classes_, places_shape(shape_), DType::kI32}, {boxes_, boxes, DType::kF32}};
  }
  std::int64_t rows() const override { return shape_.elements() / last_of(shape_); }
  void compute(const Tensor& losses, const Tensor& x, std::span<const Tensor> targets,
               const LossOptions& options, const Stream& stream) const override {
    const kernels::GridLossSpec spec{.positive_weight = spec_.positive_weight,
                                     .box_weight = spec_.box_weight,
                                     .class_weight = spec_.class_weight,
                                     .beta = spec_.beta};
    kernels::grid_loss(losses, x.as_rows(), targets[0].view(losses.shape()), targets[1].as_rows(),
                       spec, options.gradient_scale, stream);
  }
  std::vector<Measure> measures(const std::string& name, const Tensor& x,
                                std::span<const Tensor> targets,
                                const Tensor& losses) const override;

 private:
  Shape shape_;
  std::string classes_, boxes_;
  Detection spec_;
};

/// Returns the measures. An object counts as found if its logit is above 0. The box error is the
/// mean error of a box's four numbers.
std::vector<Measure> DetectionLoss::measures(const std::string& name, const Tensor& x,
                                             std::span<const Tensor> targets,
                                             const Tensor& losses) const {
  Measure loss{name + ".loss"}, precision{name + ".precision"}, recall{name + ".recall"},
      f1{name + ".f1"}, box{name + ".box_error"}, right{name + ".class_accuracy"};
  const std::int64_t columns = last_of(shape_);
  for (std::int64_t n = 0; n < losses.elements(); ++n) {
    const float* const row = x.data<float>() + n * columns;
    const std::int32_t wanted = targets[0].data<std::int32_t>()[n];
    const bool is_present = wanted != kNoTarget, is_found = row[0] > 0;
    loss.sum += static_cast<double>(losses.data<float>()[n]);
    loss.count += 1;
    precision.count += ratio(is_found);
    recall.count += ratio(is_present);
    f1.count += ratio(is_found) + ratio(is_present);
    for (Measure* const hits : {&precision, &recall}) hits->sum += ratio(is_found && is_present);
    f1.sum += 2 * ratio(is_found && is_present);
    if (!is_present) continue;
    for (std::int64_t i = 0; i < kBoxNumbers; ++i)
      box.sum +=
          std::abs(static_cast<double>(row[1 + i] - targets[1].data<float>()[n * kBoxNumbers + i]));
    box.count += kBoxNumbers;
    right.sum += ratio(largest(row + kFirstClass, columns - kFirstClass) == wanted);
    right.count += 1;
  }
  return {loss, precision, recall, f1, box, right};
}

Node loss_node(const std::string& name, const std::string& reads, std::vector<std::string> targets,
               double weight, LossMaker make) {
  return {.name = name,
          .reads = {reads},
          .targets = std::move(targets),
          .weight = weight,
          .loss = std::move(make)};
}

Node regression(const std::string& name, const std::string& predictions, const std::string& targets,
                double weight, kernels::Distance distance, float delta) {
  return loss_node(
      name, predictions, {targets}, weight,
      [=](const Shape& shape, const std::vector<std::string>& of) -> std::unique_ptr<Loss> {
        return std::make_unique<RegressionLoss>(shape, of.front(), distance, delta);
      });
}

}  // namespace

Node cross_entropy(const std::string& name, const std::string& logits, const std::string& targets,
                   const CrossEntropy& spec) {
  if (!(spec.smoothing >= 0 && spec.smoothing < 1))
    throw ConfigError(
        {concat(name, ".smoothing: got ", spec.smoothing, ", want at least 0 and below 1")});
  return loss_node(
      name, logits, {targets}, spec.weight,
      [=](const Shape& shape, const std::vector<std::string>& of) -> std::unique_ptr<Loss> {
        return std::make_unique<CrossEntropyLoss>(shape, of.front(), spec);
      });
}

Node squared_error(const std::string& name, const std::string& predictions,
                   const std::string& targets, double weight) {
  return regression(name, predictions, targets, weight, kernels::Distance::kSquared, 1);
}

Node huber(const std::string& name, const std::string& predictions, const std::string& targets,
           double weight, float delta) {
  return regression(name, predictions, targets, weight, kernels::Distance::kHuber, delta);
}

Node detection(const std::string& name, const std::string& predictions, const std::string& classes,
               const std::string& boxes, const Detection& spec) {
  return loss_node(
      name, predictions, {classes, boxes}, spec.weight,
      [=](const Shape& shape, const std::vector<std::string>& of) -> std::unique_ptr<Loss> {
        return std::make_unique<DetectionLoss>(shape, of, spec);
      });
}

double mean_of(const std::vector<Measure>& measures, const std::string& name) {
  const Measure& measure = measure_of(measures, name);
  return measure.sum / measure.count;
}

double r_squared(const std::vector<Measure>& measures, const std::string& loss) {
  const Measure& target = measure_of(measures, loss + ".target");
  const double around_mean = measure_of(measures, loss + ".target_square").sum -
                             target.sum * target.sum / std::max(1.0, target.count);
  return around_mean > 0 ? 1 - measure_of(measures, loss + ".squared_error").sum / around_mean
                         : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace hybrid_trainer::graph
