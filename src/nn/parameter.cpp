#include "hybrid_trainer/nn/parameter.h"

#include <algorithm>
#include <array>

namespace hybrid_trainer {
namespace {

constexpr std::array kRoleNames{"matrix", "embedding", "head", "vector", "expert", "router"};

Tensor make_master(const std::string& name, const Shape& shape, const Stream& stream) {
  const MemoryLabel label(name);
  return Tensor::zeros(shape, DType::kF32, MemoryKind::kParameters, stream);
}

}  // namespace

const char* name_of(Role role) { return kRoleNames[static_cast<std::size_t>(role)]; }

const std::vector<std::string>& role_names() {
  static const std::vector<std::string> names(kRoleNames.begin(), kRoleNames.end());
  return names;
}

Shape FileTensor::whole_shape() const {
  if (parts == 1) return shape;
  Shape whole{parts};
  for (int i = 0; i < shape.rank(); ++i) whole.append(shape[i]);
  return whole;
}

Parameter::Parameter(const ModuleName& name, const Shape& shape, Role role, const Stream& stream)
    : Parameter(name, shape, role,
                std::make_unique<ResidentWeight>(make_master(name.here, shape, stream))) {}

Parameter::Parameter(const ModuleName& name, const Shape& shape, Role role,
                     std::unique_ptr<WeightStorage> storage)
    : name_(name.here),
      in_files_{{name.in_files, shape}},
      shape_(shape),
      role_(role),
      blocks_(role == Role::kVector ? std::min<std::int64_t>(1, shape.elements()) : shape[0]),
      whole_elements_(shape.elements()),
      storage_(std::move(storage)) {}

void Parameter::set_blocks(std::int64_t blocks) {
  require(blocks > 0 && elements() % blocks == 0, "the blocks of a weight must be equal parts");
  blocks_ = blocks;
}

void Parameter::be_part(std::int64_t first, std::int64_t whole) {
  require(first >= 0 && first + elements() <= whole, "a part of a weight lies within it");
  first_element_ = first;
  whole_elements_ = whole;
}

void Parameter::compute_in(DType dtype, const Stream& stream) {
  const MemoryLabel label(name_);
  storage_->compute_in(role_ == Role::kVector ? DType::kF32 : own_dtype_.value_or(dtype), stream);
}

void Parameter::begin_gradient(GradientSink& sink, std::int64_t micro_batches) {
  sink_ = &sink;
  expected_ = contributors_ * micro_batches;
  contributed_ = 0;
}

void Parameter::end_gradient(const Stream& stream) {
  if (contributed_ == 0 || contributed_ == expected_) return;
  contributed_ = expected_;
  sink_->ready(*this, stream);
}

void Parameter::leave(const GradientSink& sink) {
  if (sink_ != &sink) return;
  sink_ = nullptr;
  contributed_ = 0;
}

Tensor Parameter::gradient() const { return contributed_ > 0 ? sink_->gradient(*this) : Tensor{}; }

Tensor Parameter::gradient_to_write(DType writes, const Stream& stream) const {
  const MemoryLabel label(name_);
  Tensor gradient =
      sink_ == nullptr ? Tensor{} : sink_->memory_for(*this, contributed_ > 0, writes, stream);
  if (gradient) return gradient;
  throw Error(ExitCode::kInternal, concat("the gradient of ", name_,
                                          " has nowhere to go; allocate memory for it and call "
                                          "begin_gradients before backward"));
}

void Parameter::contributed(const Stream& stream) {
  if (contributed_ == expected_) {
    throw Error(ExitCode::kInternal,
                concat(name_, " got more than the ", expected_,
                       " contributions to its gradient that it expects in a step; a module that "
                       "shares it calls add_contributor"));
  }
  sink_->contributed(*this, stream);
  if (++contributed_ == expected_) sink_->ready(*this, stream);
}

}  // namespace hybrid_trainer
