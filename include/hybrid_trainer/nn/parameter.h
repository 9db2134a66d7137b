#pragma once

#include <numeric>
#include <optional>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/weight.h"

namespace hybrid_trainer {

/// Order of a matrix's rows in a file where that is another one: there group by group, each of which
/// has some rows of every part; here part by part.
struct RowGroups {
  std::int64_t groups = 1;
  std::vector<std::int64_t> rows{};  // of each part in one group; none: one order here and there

  bool are_alike() const { return groups == 1 || rows.size() < 2; }
  std::int64_t rows_of_group() const {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  }
  /// Calls visit(row here, row there, count) for rows that lie together in both orders.
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

/// The name of a part of a module: "h.0" / "attn" is "h.0.attn". Either may be nothing in files.
inline ModuleName operator/(const ModuleName& whole, const ModuleName& part) {
  const bool both = !whole.in_files.empty() && !part.in_files.empty();
  return {whole.here + "." + part.here, whole.in_files + (both ? "." : "") + part.in_files};
}

/// How a parameter, or consecutive rows of one, is stored in a Hugging Face folder.
struct FileTensor {
  std::string name;
  Shape shape;              // there; of any rank, with the elements in the same order
  bool transposed = false;  // (inputs, outputs) there, (outputs, inputs) here
  bool prefixed = true;     // bears the prefix of the folder's layout; an untied head does not
  RowGroups order{};        // of its rows here
  /// It is one of so many equal parts of a tensor there, along a first dimension of its own.
  std::int64_t part = 0, parts = 1;
  /// Of a convolution: (outputs, channels, taps...) there, and here a row's taps before its channels.
  bool channels_first = false;
  /// Its rows come behind a first dimension of 1 there.
  bool has_outer = false;
  bool may_be_missing = false;  // there, and is 0 then
  std::int64_t rows() const { return shape[transposed || has_outer ? 1 : 0]; }  // here
  /// Of the whole tensor there.
  Shape whole_shape() const;
};

/// Role of a weight in its model; optimizers and their groups go by it.
enum class Role {
  kMatrix,     // of a linear map
  kEmbedding,  // a table of rows, also where the head shares it
  kHead,       // of the logits, where it has a matrix of its own
  kVector,     // gains and biases: neither decayed nor orthogonalised, always f32
  kExpert,     // a matrix of one of several experts
  kRouter,     // the small matrix that chooses experts
};
const char* name_of(Role role);  // "matrix", "embedding", ...
/// Of a linear map, shared or not: what Muon orthogonalises.
constexpr bool is_matrix(Role role) { return role == Role::kMatrix || role == Role::kExpert; }
const std::vector<std::string>& role_names();

/// One weight: its name, shape and role, where its values live, and how far its gradient has come
/// in the step under way.
class Parameter {
 public:
  /// Zeros in the stream's pool.
  Parameter(const ModuleName& name, const Shape& shape, Role role, const Stream& stream);
  Parameter(const ModuleName& name, const Shape& shape, Role role,
            std::unique_ptr<WeightStorage> storage);

  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  /// The tensors of a Hugging Face folder that it consists of, in the order of its rows; rows after
  /// them are padding. At first one of the same shape.
  const std::vector<FileTensor>& in_files() const { return in_files_; }
  void set_in_files(std::vector<FileTensor> tensors) { in_files_ = std::move(tensors); }
  std::int64_t elements() const { return shape_.elements(); }
  Role role() const { return role_; }
  /// Equal parts of consecutive elements whose gradients are of one size: the heads of a matrix that
  /// has any, else its rows; a vector is one.
  std::int64_t blocks() const { return blocks_; }
  void set_blocks(std::int64_t blocks);
  /// Makes this the part of a weight of `whole` elements that has `first` of them before it.
  void be_part(std::int64_t first, std::int64_t whole);
  std::int64_t first_element() const { return first_element_; }
  std::int64_t elements_of_whole() const { return whole_elements_; }
  /// A frozen one gets no gradient; optimizer, predictors, snapshot and checkpoints leave it out,
  /// so that whoever freezes it, before a trainer is made of the model, gives it its values again
  /// where the model is made again.
  bool trainable() const { return trainable_; }
  void freeze() { trainable_ = false; }

  /// The values in a dtype for one computation (see WeightStorage::acquire).
  Weight acquire(DType dtype, const Stream& stream, Use use = Use::kRead) const {
    const MemoryLabel label(name_);
    return Weight(*storage_, dtype, use, stream);
  }
  /// The masters.
  Weight acquire_master(const Stream& stream, Use use = Use::kRead) const {
    return acquire(DType::kF32, stream, use);
  }
  /// The masters where they lie, for copies (see WeightStorage::home_master).
  Tensor home_master() const { return storage_->home_master(); }
  /// How the values are held.
  const WeightStorage& storage() const { return *storage_; }
  WeightStorage& storage() { return *storage_; }
  /// Gives the values another home.
  void set_storage(std::unique_ptr<WeightStorage> storage) { storage_ = std::move(storage); }
  /// The same, for the time being: `storage` gets the one before.
  void exchange_storage(std::unique_ptr<WeightStorage>& storage) { storage_.swap(storage); }
  /// In which dtype products read it from now on; vectors stay f32.
  void compute_in(DType dtype, const Stream& stream) {
    const MemoryLabel label(name_);
    storage_->compute_in(role_ == Role::kVector ? DType::kF32 : own_dtype_.value_or(dtype), stream);
  }
  /// From the next call of compute_in on, products read it in this dtype, if any, whatever that says.
  void compute_always_in(std::optional<DType> dtype) { own_dtype_ = dtype; }
  DType compute_dtype() const { return storage_->compute_dtype(); }
  void refresh_compute_copy(const Stream& stream) { storage_->refresh_compute_copy(stream); }
  /// See WeightStorage.
  void park_master(const Stream& home, const Stream& stream) {
    const MemoryLabel label(name_);
    storage_->park_master(home, stream);
  }
  void recall_master() { storage_->recall_master(); }

  /// One more module contributes to the gradient in each micro-batch; at first there is one.
  void add_contributor() { ++contributors_; }
  void begin_gradient(GradientSink& sink, std::int64_t micro_batches);
  void end_gradient(const Stream& stream);
  /// The sink goes: if it is this parameter's, there is no gradient any more.
  void leave(const GradientSink& sink);
  /// A recording wrote the gradient: as if every module had contributed. The sink is not told; what
  /// it enqueued while it was recorded is part of the replay.
  void gradient_was_replayed() { contributed_ = expected_; }
  /// The gradient of this step, f32 but where its sink rounds it; undefined where nothing was written, or it was freed.
  Tensor gradient() const { return contributed_ > 0 ? sink_->gradient(*this) : Tensor{}; }
  /// Whether there is memory for it already, which stays throughout the step.
  bool gradient_stays() const { return sink_ != nullptr && sink_->gradient(*this).defined(); }
  /// Whether anything was written to it in this step, wherever that is by now.
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
  std::int64_t first_element_ = 0, whole_elements_;  // of the weight that this is a part of, or is
  bool trainable_ = true;
  std::optional<DType> own_dtype_{};
  std::unique_ptr<WeightStorage> storage_;
  GradientSink* sink_ = nullptr;
  std::int64_t contributors_ = 1;
  std::int64_t expected_ = 0, contributed_ = 0;  // contributions of this step
};

using ParameterVisitor = std::function<void(Parameter&)>;

/// Standard deviations of a model's first weights.
struct FirstDeviations {
  double embedding = 0.02;
  double matrix = 0.02;
  double projection = 0.02;  // of the products that end the branches
};

/// Fills the parameter with normally distributed values of the given standard deviation, drawn from
/// (seed, parameter's name).
void initialize_normal(Parameter& parameter, double deviation, std::uint64_t seed,
                       const Stream& stream);
/// Uniform in [-bound, bound).
void initialize_uniform(Parameter& parameter, double bound, std::uint64_t seed,
                        const Stream& stream);
/// The logarithms of rates of decay that are uniform in [1, 16), as Mamba-2's "A_log".
void initialize_log_rates(Parameter& parameter, std::uint64_t seed, const Stream& stream);
/// Biases b with softplus(b) log-uniform in [0.001, 0.1), as Mamba-2's "dt_bias".
void initialize_step_biases(Parameter& parameter, std::uint64_t seed, const Stream& stream);
/// Positions of a table (places, width): sines in a row's first half, cosines in its second, with
/// wavelengths from 2π to 10,000·2π. Throws ShapeMismatch where the width is odd.
void initialize_sinusoids(Parameter& parameter, const Stream& stream);
void initialize_constant(Parameter& parameter, float value, const Stream& stream);

/// FNV-1a: a name's hash is the same in every run and build.
std::uint64_t hash_of_name(const std::string& name);

}  // namespace hybrid_trainer
