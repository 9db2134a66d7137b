#pragma once

#include <numeric>
#include <optional>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/weight.h"

namespace hybrid_trainer {

/// Row order of a matrix in a file: one group after the other, each with rows of every part. In
/// memory, one part follows the other.
struct RowGroups {
  std::int64_t groups = 1;
  std::vector<std::int64_t> rows{};  // rows of each part in one group; empty: both orders are equal

  bool are_alike() const { return groups == 1 || rows.size() < 2; }
  std::int64_t rows_of_group() const {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  }
  /// Calls visit(row in memory, row in the file, count) for each contiguous run of rows.
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

/// Name of a module or parameter in this model (`here`) and in a Hugging Face folder (`in_files`).
struct ModuleName {
  ModuleName(const char* both) : ModuleName(std::string(both)) {}
  ModuleName(const std::string& both) : here(both), in_files(both) {}
  ModuleName(std::string here_, std::string in_files_)
      : here(std::move(here_)), in_files(std::move(in_files_)) {}
  std::string here, in_files;
};

/// Joins names: "h.0" / "attn" is "h.0.attn". Either name may be empty in files.
inline ModuleName operator/(const ModuleName& whole, const ModuleName& part) {
  const bool both = !whole.in_files.empty() && !part.in_files.empty();
  return {whole.here + "." + part.here, whole.in_files + (both ? "." : "") + part.in_files};
}

/// Storage of a parameter, or of some consecutive rows of it, in a Hugging Face folder.
struct FileTensor {
  std::string name;
  Shape shape;              // elements have the same order as in memory
  bool transposed = false;  // (inputs, outputs) in the folder, (outputs, inputs) here
  bool prefixed = true;     // false for an untied head
  RowGroups order{};        // row order in the folder
  /// Index among `parts` equal parts of a stored tensor, along its additional first dimension.
  std::int64_t part = 0, parts = 1;
  /// Stored as (outputs, channels, taps...). In memory, rows have taps before channels.
  bool channels_first = false;
  bool has_outer = false;
  bool may_be_missing = false;  // if the folder does not contain it, the weight is 0
  std::int64_t rows() const { return shape[transposed || has_outer ? 1 : 0]; }  // here
  /// Returns the shape of the whole tensor in the folder.
  Shape whole_shape() const;
};

/// Role of a weight in its model. Optimizers and their groups depend on the role.
enum class Role {
  kMatrix,     // matrix of a linear map
  kEmbedding,  // a table of rows, even if shared with the head
  kHead,       // an untied output matrix
  kVector,     // gains and biases: neither decayed nor orthogonalized, always f32
  kExpert,     // a matrix of an expert
  kRouter,     // the small matrix that chooses experts
};
const char* name_of(Role role);  // "matrix", "embedding", ...
/// Returns whether the role is a matrix of a linear map, which Muon orthogonalizes.
constexpr bool is_matrix(Role role) { return role == Role::kMatrix || role == Role::kExpert; }
const std::vector<std::string>& role_names();

/// A weight: name, shape, role, storage of its values, and gradient in the current step.
class Parameter {
 public:
  /// Initializes with zeros in the stream's pool.
  Parameter(const ModuleName& name, const Shape& shape, Role role, const Stream& stream);
  Parameter(const ModuleName& name, const Shape& shape, Role role,
            std::unique_ptr<WeightStorage> storage);

  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  /// Returns the tensors of a Hugging Face folder that form the weight, in the order of its rows.
  /// Remaining rows are padding. Initially one tensor of the weight's shape.
  const std::vector<FileTensor>& in_files() const { return in_files_; }
  void set_in_files(std::vector<FileTensor> tensors) { in_files_ = std::move(tensors); }
  std::int64_t elements() const { return shape_.elements(); }
  Role role() const { return role_; }
  /// Returns the number of blocks: equal parts of consecutive elements whose gradients have similar
  /// magnitudes. A block is a head or, in a matrix without heads, a row. A vector is one block.
  std::int64_t blocks() const { return blocks_; }
  void set_blocks(std::int64_t blocks) {
    require(blocks > 0 && elements() % blocks == 0, "the blocks of a weight must be equal parts");
    blocks_ = blocks;
  }
  /// Marks this parameter as part of a weight of `whole` elements, from element `first` on.
  void set_part(std::int64_t first, std::int64_t whole) {
    require(first >= 0 && first + elements() <= whole,
            "a part of a weight must be within the weight");
    first_element_ = first;
    whole_elements_ = whole;
  }
  std::int64_t first_element() const { return first_element_; }
  std::int64_t elements_of_whole() const { return whole_elements_; }
  /// Returns whether the weight is trained. Frozen weights have no gradient and are not part of the
  /// optimizer, predictors, snapshots and checkpoints. Code that freezes a weight must therefore
  /// restore its values itself when a run resumes. Freeze weights before making the trainer.
  bool trainable() const { return trainable_; }
  void freeze() { trainable_ = false; }

  /// Acquires the values in a dtype for one computation (see WeightStorage::acquire).
  Weight acquire(DType dtype, const Stream& stream, Use use = Use::kRead) const {
    const MemoryLabel label(name_);
    return Weight(*storage_, dtype, use, stream);
  }
  Weight acquire_master(const Stream& stream, Use use = Use::kRead) const {
    return acquire(DType::kF32, stream, use);
  }
  /// Returns the FP32 master weights at their location, to copy them (see WeightStorage).
  Tensor master_in_place() const { return storage_->master_in_place(); }
  const WeightStorage& storage() const { return *storage_; }
  WeightStorage& storage() { return *storage_; }
  void set_storage(std::unique_ptr<WeightStorage> storage) { storage_ = std::move(storage); }
  /// Swaps the weight's storage with `storage`, for temporary replacements.
  void exchange_storage(std::unique_ptr<WeightStorage>& storage) { storage_.swap(storage); }
  /// Sets the dtype in which products read the weight; vectors stay f32.
  void compute_in(DType dtype, const Stream& stream) {
    const MemoryLabel label(name_);
    storage_->compute_in(role_ == Role::kVector ? DType::kF32 : own_dtype_.value_or(dtype), stream);
  }
  /// Sets a dtype that replaces the argument of later calls of compute_in; empty: none.
  void set_fixed_compute_dtype(std::optional<DType> dtype) { own_dtype_ = dtype; }
  DType compute_dtype() const { return storage_->compute_dtype(); }
  void refresh_compute_copy(const Stream& stream) { storage_->refresh_compute_copy(stream); }
  /// Call the functions of the same names in WeightStorage.
  void offload_master(const Stream& home, const Stream& stream) {
    const MemoryLabel label(name_);
    storage_->offload_master(home, stream);
  }
  void restore_master() { storage_->restore_master(); }

  /// Registers another module that contributes to the gradient. Initially, one module contributes.
  void add_contributor() { ++contributors_; }
  void begin_gradient(GradientSink& sink, std::int64_t micro_batches) {
    sink_ = &sink;
    expected_ = contributors_ * micro_batches;
    contributed_ = 0;
  }
  void end_gradient(const Stream& stream);
  /// Detaches a sink that is about to be destroyed. The gradient that it stores, if any, is lost.
  void leave(const GradientSink& sink) {
    if (sink_ != &sink) return;
    sink_ = nullptr;
    contributed_ = 0;
  }
  /// Marks the gradient as written by a replay, which includes the sink's work.
  void mark_gradient_replayed() { contributed_ = expected_; }
  /// Returns the gradient of this step, f32 unless the sink rounds it. Undefined if it was not
  /// written or has been freed.
  Tensor gradient() const { return contributed_ > 0 ? sink_->gradient(*this) : Tensor{}; }
  /// Returns whether the gradient's memory exists. It then stays at its address during the step.
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
  std::int64_t first_element_ = 0, whole_elements_;
  bool trainable_ = true;
  std::optional<DType> own_dtype_{};
  std::unique_ptr<WeightStorage> storage_;
  GradientSink* sink_ = nullptr;
  std::int64_t contributors_ = 1;
  std::int64_t expected_ = 0, contributed_ = 0;  // number of contributions in this step
};

using ParameterVisitor = std::function<void(Parameter&)>;

/// Standard deviations of a model's initial weights.
struct InitialDeviations {
  double embedding = 0.02;
  double matrix = 0.02;
  double projection = 0.02;  // deviation of the last product of each branch
};

/// Draws normally distributed values of the given standard deviation from (seed, parameter's name).
void initialize_normal(Parameter& parameter, double deviation, std::uint64_t seed,
                       const Stream& stream);
/// Draws uniformly distributed values in [-bound, bound).
void initialize_uniform(Parameter& parameter, double bound, std::uint64_t seed,
                        const Stream& stream);
/// Draws logarithms of decay rates. Rates are uniform in [1, 16), as for Mamba-2's "A_log".
void initialize_log_rates(Parameter& parameter, std::uint64_t seed, const Stream& stream);
/// Draws biases b such that softplus(b) is log-uniform in [0.001, 0.1), as for Mamba-2's "dt_bias".
void initialize_step_biases(Parameter& parameter, std::uint64_t seed, const Stream& stream);
/// Fills a table (places, width) with sines, then cosines, of wavelengths from 2π to 10,000·2π.
/// Throws ShapeMismatch if the width is odd.
void initialize_sinusoids(Parameter& parameter, const Stream& stream);
void initialize_constant(Parameter& parameter, float value, const Stream& stream);

/// Returns the FNV-1a hash of a name, constant across runs and builds.
std::uint64_t hash_of_name(const std::string& name);

}  // namespace hybrid_trainer
