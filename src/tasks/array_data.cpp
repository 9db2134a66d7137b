#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "src/data/images/npy_file.h"
#include "src/files/checksum.h"
#include "src/tasks/network_data.h"

namespace hybrid_trainer {

namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += concat(text.empty() ? "(" : ", ", size);
  return text.empty() ? "()" : text + ")";
}

/// All examples of one tensor.
class ExampleArray {
 public:
  /// `one` is the tensor in a batch of one example.
  ExampleArray(const std::filesystem::path& file, const Tensor& one)
      : file_(file), elements_(one.elements()), is_whole_(one.dtype() == DType::kI32) {
    NpyArray array = read_npy(file);
    const std::vector<std::int64_t>& shape = array.form.shape;
    std::vector<std::int64_t> wanted{shape.empty() ? 0 : shape.front()};
    for (int i = 1; i < one.shape().rank(); ++i) wanted.push_back(one.size(i));
    if (shape != wanted || shape.front() == 0)
      throw DataError(concat(file.string(), ": got shape ", shape_text(shape),
                             ", want (examples, …) with ", one.shape().text(),
                             " per example; change the array or the model's sizes"));
    shape_ = shape;
    values_ = std::move(array.values);
    constexpr float kMaxWhole = 1 << 24;  // above it, f32 cannot represent all whole numbers
    const auto is_valid = [&](float value) {
      return std::isfinite(value) &&
             (!is_whole_ || (value == std::floor(value) && std::fabs(value) <= kMaxWhole));
    };
    check(is_valid, is_whole_ ? "whole numbers" : "finite numbers");
  }
  std::int64_t examples() const { return std::ssize(values_) / elements_; }
  void check(const IntegerRange& range) const {
    const auto is_in = [&](float value) {
      return value >= static_cast<float>(range.low) && value <= static_cast<float>(range.high);
    };
    check(is_in, concat("whole numbers from ", range.low, " to ", range.high));
  }
  const std::vector<float>& values() const { return values_; }
  /// Returns "(40, 16), -4.2 to 3.9, mean 0.01".
  std::string text() const {
    const auto [low, high] = std::ranges::minmax(values_);
    double sum = 0;
    for (const float value : values_) sum += static_cast<double>(value);
    return concat(shape_text(shape_), ", ", is_whole_ ? "whole numbers, " : "",
                  brief(static_cast<double>(low)), " to ", brief(static_cast<double>(high)),
                  ", mean ", brief(sum / static_cast<double>(values_.size())));
  }
  std::string text(std::int64_t example) const {
    constexpr std::int64_t kShown = 8;
    std::string text;
    for (std::int64_t i = 0; i < std::min(kShown, elements_); ++i)
      text += concat(
          i > 0 ? " " : "",
          brief(static_cast<double>(values_[static_cast<std::size_t>(example * elements_ + i)])));
    return elements_ > kShown ? concat(text, " … (", elements_, " numbers)") : text;
  }
  void write(std::int64_t example, std::string_view name, const ExampleMemory& memory) const {
    const float* const from = values_.data() + example * elements_;
    if (is_whole_)
      std::transform(from, from + elements_, memory.labels(name).data(),
                     [](float value) { return static_cast<std::int32_t>(value); });
    else
      std::copy(from, from + elements_, memory.floats(name).data());
  }

 private:
  /// Throws DataError for the first number that is not valid.
  void check(const auto& is_valid, const std::string& wanted) const {
    const auto bad = std::ranges::find_if_not(values_, is_valid);
    if (bad == values_.end()) return;
    throw DataError(concat(file_.string(), ": example ", (bad - values_.begin()) / elements_,
                           " has ", *bad, ", want ", wanted));
  }
  std::filesystem::path file_;
  std::int64_t elements_;
  bool is_whole_;
  std::vector<std::int64_t> shape_;
  std::vector<float> values_;
};

class Arrays final : public Dataset {
 public:
  Arrays(const std::filesystem::path& folder, const Batch& form,
         const std::vector<IntegerRange>& ranges)
      : form_(form) {
    for (const auto& [name, tensor] : form.tensors()) {
      arrays_.emplace_back(folder / (name + ".npy"), tensor);
      for (const IntegerRange& range : ranges)
        if (range.name == name) arrays_.back().check(range);
      if (arrays_.back().examples() != arrays_.front().examples())
        throw DataError(concat(folder.string(), ": ", name, ".npy has ", arrays_.back().examples(),
                               " examples, but ", form.tensors().front().name, ".npy has ",
                               arrays_.front().examples(), "; want the same number"));
    }
  }
  std::int64_t size() const override { return arrays_.front().examples(); }
  Batch empty_batch(std::int64_t size, const Stream& stream) const override {
    return form_.with([&](const Tensor& one) {
      Shape shape{size};
      for (int i = 1; i < one.shape().rank(); ++i) shape.append(one.size(i));
      return Tensor::empty(shape, one.dtype(), MemoryKind::kData, stream);
    });
  }
  void write(std::int64_t number, const ExampleMemory& memory) const override {
    for (std::size_t i = 0; i < arrays_.size(); ++i)
      arrays_[i].write(number, form_.tensors()[i].name, memory);
  }
  /// Describes the arrays, or one example of each.
  DataFacts texts(std::optional<std::int64_t> example = {}) const {
    DataFacts facts;
    for (std::size_t i = 0; i < arrays_.size(); ++i)
      facts.emplace_back(form_.tensors()[i].name,
                         example ? arrays_[i].text(*example) : arrays_[i].text());
    return facts;
  }
  std::string checksum() const {
    std::string all;
    for (const ExampleArray& array : arrays_)
      all += checksum_of({reinterpret_cast<const char*>(array.values().data()),
                          array.values().size() * sizeof(float)});
    return checksum_of(all);
  }

 private:
  Batch form_;
  std::vector<ExampleArray> arrays_;
};

class ArrayData final : public NetworkData {
 public:
  ArrayData(const NetworkDataSource& source, const Batch& form,
            const std::vector<IntegerRange>& ranges)
      : folder_(source.data),
        arrays_(std::make_shared<Arrays>(folder_, form, ranges)),
        is_measured_(source.is_measured) {}
  std::string description() const override {
    return concat(folder_.string(), ": ", arrays_->size(), " examples");
  }
  DatasetPart training(const HybridTrainerConfig& config) const override {
    return {arrays_, 0, trained(config)};
  }
  DatasetPart validation(const HybridTrainerConfig& config) const override {
    const std::int64_t first = is_measured_ ? arrays_->size() : trained(config);
    if (first == arrays_->size()) return arrays_;
    return {arrays_, first, arrays_->size() - first};
  }
  DataFacts contents(const HybridTrainerConfig& config) const override {
    DataFacts facts = arrays_->texts();
    facts.emplace_back("examples", concat(trained(config), " for training, ",
                                          arrays_->size() - trained(config), " for validation"));
    return facts;
  }
  DataFacts example(std::int64_t number, const HybridTrainerConfig& config) const override {
    if (number > arrays_->size())
      throw DataError(concat(folder_.string(), ": example ", number,
                             " does not exist; the last one is ", arrays_->size()));
    DataFacts facts = arrays_->texts(number - 1);
    facts.emplace_back("is for", number <= trained(config) ? "training" : "validation");
    return facts;
  }
  std::string checksum() const override { return arrays_->checksum(); }

 private:
  /// Returns the number of training examples; the validation examples are the last ones.
  std::int64_t trained(const HybridTrainerConfig& config) const {
    const std::int64_t all = arrays_->size();
    const double share = config.data.validation_fraction;
    if (share == 0 || all == 1) return all;
    const auto held_out = static_cast<std::int64_t>(share * static_cast<double>(all));
    return all - std::clamp<std::int64_t>(held_out, 1, all - 1);
  }
  std::filesystem::path folder_;
  std::shared_ptr<const Arrays> arrays_;
  bool is_measured_;  // uses all examples for evaluation
};

}  // namespace

std::unique_ptr<NetworkData> array_data(const NetworkDataSource& source, const Batch& form,
                                        const std::vector<IntegerRange>& ranges) {
  const std::filesystem::path& folder = source.data;
  const std::string wanted =
      concat("want a folder with ", join(names_of(form.tensors()), ".npy, "), ".npy");
  if (!std::filesystem::exists(folder))
    throw MissingInput(concat(folder.string(), ": does not exist; ", wanted));
  if (!std::filesystem::is_directory(folder))
    throw DataError(concat(folder.string(), " is not a folder; ", wanted));
  for (const auto& [name, tensor] : form.tensors()) {
    if (std::filesystem::exists(folder / (name + ".npy"))) continue;
    throw MissingInput(concat(folder.string(), ": has no ", name, ".npy; ", wanted));
  }
  return std::make_unique<ArrayData>(source, form, ranges);
}

}  // namespace hybrid_trainer
