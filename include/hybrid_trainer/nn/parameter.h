#pragma once

#include <numeric>
#include <optional>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/weight.h"

namespace hybrid_trainer {

/// Row order of a matrix in a file, if it differs. The file orders the rows by group, each with
/// some rows of every part; here they are ordered by part.
struct RowGroups {
  std::int64_t groups = 1;
  std::vector<std::int64_t> rows{};  // rows of each part in one group; empty: same order

  bool are_alike() const { return groups == 1 || rows.size() < 2; }
  std::int64_t rows_of_group() const {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  }
  /// Calls visit(row here, row in the file, count) for runs of rows contiguous in both orders.
  template <class Visit>
  void for_each_run(const Visit& visit) const {
    std::int64_t here = 0, of_group = 0;
    for (const std::int64_t count : rows) {
      for (std::int64_t group = 0; group < groups; ++group, here += count)
        visit(here, group * rows_of_group() + of_group, count);
      of_group += count;
    }
  }
};

/// The name of a module or parameter, here and in a Hugging Face folder.
struct ModuleName {
  ModuleName(const char* both) : ModuleName(std::string(both)) {}
  ModuleName(const std::string& both) : here(both), in_files(both) {}
  ModuleName(std::string here_, std::string in_files_)
      : here(std::move(here_)), in_files(std::move(in_files_)) {}
  std::string here, in_files;
};

/// Joins names: "h.0" / "attn" is "h.0.attn". Either may be empty in files.
inline ModuleName operator/(const ModuleName& whole, const ModuleName& part) {
  const bool both = !whole.in_files.empty() && !part.in_files.empty();
  return {whole.here + "." + part.here, whole.in_files + (both ? "." : "") + part.in_files};
}

/// Storage of a parameter, or of consecutive rows of one, in a Hugging Face folder.
struct FileTensor {
  std::string name;
  /// Shape in the folder: of any rank, with the elements in the same order.
  Shape shape;
  bool transposed = false;  // (inputs, outputs) in the folder, (outputs, inputs) here
  bool prefixed = true;     // has the prefix of the folder's layout; an untied head does not
  RowGroups order{};        // of the rows here
  /// Stored as one of `parts` equal parts of a tensor, along an additional first dimension.
  std::int64_t part = 0, parts = 1;
  /// Stored as (outputs, channels, taps...); rows here have taps before channels.
  bool channels_first = false;
  /// Stored with a leading dimension of 1.
  bool has_outer = false;
  bool may_be_missing = false;  // if it is missing in the folder, the weight is 0
  std::int64_t rows() const { return shape[transposed || has_outer ? 1 : 0]; }  // here
  /// Returns the shape of the whole tensor in the folder.
  Shape whole_shape() const;
};

/// Role of a weight in its model; optimizers and their groups depend on it.
enum class Role {
  kMatrix,     // of a linear map
  kEmbedding,  // a table of rows, even if the head shares it
  kHead,       // a separate matrix of the logits
  kVector,     // gains and biases: neither decayed nor orthogonalized, always f32
  kExpert,     // a matrix of an expert
  kRouter,     // the small matrix that chooses experts
};
const char* name_of(Role role);  // "matrix", "embedding", ...
/// Returns whether the role is a matrix of a linear map, which Muon orthogonalizes.
constexpr bool is_matrix(Role role) { return role == Role::kMatrix || role == Role::kExpert; }
const std::vector<std::string>& role_names();

/// One weight: name, shape and role, storage of its values, and its gradient in the current step.
class Parameter {
 public:
  /// Initializes with zeros in the stream's pool.
  Parameter(const ModuleName& name, const Shape& shape, Role role, const Stream& stream);
  Parameter(const ModuleName& name, const Shape& shape, Role role,
            std::unique_ptr<WeightStorage> storage);

  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  /// Returns the tensors of a Hugging Face folder that the weight consists of, in the order of its
  /// rows; further rows are padding. Initially one tensor of the weight's shape.
  const std::vector<FileTensor>& in_files() const { return in_files_; }
  void set_in_files(std::vector<FileTensor> tensors) { in_files_ = std::move(tensors); }
  std::int64_t elements() const { return shape_.elements(); }
  Role role() const { return role_; }
  /// Returns the number of equal parts of consecutive elements whose gradients have similar
  /// magnitudes: a matrix's heads if it has any, else its rows; 1 for a vector.
  std::int64_t blocks() const { return blocks_; }
  void set_blocks(std::int64_t blocks) {
    require(blocks > 0 && elements() % blocks == 0, "the blocks of a weight must be equal parts");
    blocks_ = blocks;
  }
  /// Marks this parameter as a part of a weight of `whole` elements, starting at element `first`.
  void set_part(std::int64_t first, std::int64_t whole) {
    require(first >= 0 && first + elements() <= whole,
            "a part of a weight must be within the weight");
    first_element_ = first;
    whole_elements_ = whole;
  }
  std::int64_t first_element() const { return first_element_; }
  std::int64_t elements_of_whole() const { return whole_elements_; }
  /// Returns whether the weight is trained. Frozen weights get no gradient and are not in
  /// optimizer, predictors, snapshot or checkpoints; code that freezes a weight before making the
  /// trainer must restore its values when the model is made again.
  bool trainable() const { return trainable_; }
  void freeze() { trainable_ = false; }

  /// Acquires the values in a dtype for one computation (see WeightStorage::acquire).
  Weight acquire(DType dtype, const Stream& stream, Use use = Use::kRead) const {
    const MemoryLabel label(name_);
    return Weight(*storage_, dtype, use, stream);
  }
  /// Acquires the FP32 master weights.
  Weight acquire_master(const Stream& stream, Use use = Use::kRead) const {
    return acquire(DType::kF32, stream, use);
  }
  /// Returns the FP32 master weights in place, for copies (see WeightStorage::master_in_place).
  Tensor master_in_place() const { return storage_->master_in_place(); }
  const WeightStorage& storage() const { return *storage_; }
  WeightStorage& storage() { return *storage_; }
  void set_storage(std::unique_ptr<WeightStorage> storage) { storage_ = std::move(storage); }
  /// Swaps the storage temporarily; `storage` receives the previous one.
  void exchange_storage(std::unique_ptr<WeightStorage>& storage) { storage_.swap(storage); }
  /// Sets the dtype in which products read the weight; vectors stay f32.
  void compute_in(DType dtype, const Stream& stream) {
    const MemoryLabel label(name_);
    storage_->compute_in(role_ == Role::kVector ? DType::kF32 : own_dtype_.value_or(dtype), stream);
  }
  /// Sets a dtype that replaces the argument of compute_in from its next call on; empty: none.
  void set_fixed_compute_dtype(std::optional<DType> dtype) { own_dtype_ = dtype; }
  DType compute_dtype() const { return storage_->compute_dtype(); }
  void refresh_compute_copy(const Stream& stream) { storage_->refresh_compute_copy(stream); }
  /// See WeightStorage.
  void offload_master(const Stream& home, const Stream& stream) {
    const MemoryLabel label(name_);
    storage_->offload_master(home, stream);
  }
  void restore_master() { storage_->restore_master(); }

  /// Registers another module that contributes to the gradient; initially there is one.
  void add_contributor() { ++contributors_; }
  void begin_gradient(GradientSink& sink, std::int64_t micro_batches) {
    sink_ = &sink;
    expected_ = contributors_ * micro_batches;
    contributed_ = 0;
  }
  void end_gradient(const Stream& stream);
  /// Detaches a sink that is about to be destroyed. Its gradient, if any, is lost.
  void leave(const GradientSink& sink) {
    if (sink_ != &sink) return;
    sink_ = nullptr;
    contributed_ = 0;
  }
  /// Marks the gradient as written by a replay, which includes the sink's work; does not notify it.
  void mark_gradient_replayed() { contributed_ = expected_; }
  /// Returns this step's gradient, f32 unless the sink rounds it; undefined if unwritten or freed.
  Tensor gradient() const { return contributed_ > 0 ? sink_->gradient(*this) : Tensor{}; }
  /// Returns whether the gradient's memory exists; it then stays in place throughout the step.
  bool has_gradient_memory() const { return sink_ != nullptr && sink_->gradient(*this).defined(); }
  /// Returns whether the gradient was written in this step, even if it has been moved since.
  bool has_gradient() const { return contributed_ > 0; }

 private:
  friend class GradientContribution;
  Tensor gradient_to_write(DType writes, const Stream& stream) const;
  void contributed(const Stream& stream);

  std::string name_;
  std::vector<FileTensor> in_files_;
  Shape shape_;
  Role role_;
  std::int64_t blocks_;
  std::int64_t first_element_ = 0, whole_elements_;  // offset in the whole weight, and its size
  bool trainable_ = true;
  std::optional<DType> own_dtype_{};
  std::unique_ptr<WeightStorage> storage_;
  GradientSink* sink_ = nullptr;
  std::int64_t contributors_ = 1;
  std::int64_t expected_ = 0, contributed_ = 0;  // contributions in this step
};

using ParameterVisitor = std::function<void(Parameter&)>;

/// Standard deviations of a model's initial weights.
struct InitialDeviations {
  double embedding = 0.02;
  double matrix = 0.02;
  double projection = 0.02;  // of the last products of branches
};

/// Draws normally distributed values of the given standard deviation from (seed, parameter's name).
void initialize_normal(Parameter& parameter, double deviation, std::uint64_t seed,
                       const Stream& stream);
/// Draws uniform values in [-bound, bound).
void initialize_uniform(Parameter& parameter, double bound, std::uint64_t seed,
                        const Stream& stream);
/// Draws logarithms of decay rates that are uniform in [1, 16), as Mamba-2's "A_log".
void initialize_log_rates(Parameter& parameter, std::uint64_t seed, const Stream& stream);
/// Draws biases b with softplus(b) log-uniform in [0.001, 0.1), as Mamba-2's "dt_bias".
void initialize_step_biases(Parameter& parameter, std::uint64_t seed, const Stream& stream);
/// Fills a table (places, width) with sinusoidal positions: sines in a row's first half, cosines in
/// its second, with wavelengths from 2π to 10,000·2π. Throws ShapeMismatch if the width is odd.
void initialize_sinusoids(Parameter& parameter, const Stream& stream);
void initialize_constant(Parameter& parameter, float value, const Stream& stream);

/// Returns the FNV-1a hash of a name, constant across runs and builds.
std::uint64_t hash_of_name(const std::string& name);

}  // namespace hybrid_trainer
