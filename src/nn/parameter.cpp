#include "hybrid_trainer/nn/parameter.h"

#include <cmath>

#include "hybrid_trainer/core/random.h"
#include "src/core/threads.h"

namespace hybrid_trainer {

namespace {

constexpr std::array kRoleNames{"matrix", "embedding", "head", "vector", "expert", "router"};

Tensor make_master(const std::string& name, const Shape& shape, const Stream& stream) {
  const MemoryLabel label(name);
  return Tensor::zeros(shape, DType::kF32, MemoryKind::kParameters, stream);
}

/// Fills the parameter by write(values, count), in place or in a host tensor that is then copied.
template <class Write>
void fill_from_host(const Parameter& parameter, const Stream& stream, const Write& write) {
  const Tensor value = parameter.master_in_place();
  if (value.device().simulated) return;
  if (value.device().type == DeviceType::kCpu) return write(value.data<float>(), value.elements());
  const Stream host(MemoryPool::create("host"));
  const Tensor made = Tensor::empty_like(value, MemoryKind::kWorkspace, host);
  write(made.data<float>(), made.elements());
  wait_for_copy(value, made, stream);
}

/// Sets each value to draw(key, its index).
template <class Draw>
void fill_random(const Parameter& parameter, std::uint64_t seed, const Stream& stream,
                 const Draw& draw) {
  const RandomKey key{seed, 0, hash_of_name(parameter.name())};
  fill_from_host(parameter, stream, [&](float* values, std::int64_t count) {
    run_each(count, 1 << 14,
             [&](std::int64_t i) { values[i] = draw(key, static_cast<std::uint64_t>(i)); });
  });
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

void Parameter::end_gradient(const Stream& stream) {
  if (contributed_ == 0 || contributed_ == expected_) return;
  contributed_ = expected_;
  sink_->ready(*this, stream);
}

Tensor Parameter::gradient_to_write(DType writes, const Stream& stream) const {
  const MemoryLabel label(name_);
  Tensor gradient =
      sink_ == nullptr ? Tensor{} : sink_->memory_for(*this, contributed_ > 0, writes, stream);
  if (gradient) return gradient;
  throw Error(ExitCode::kInternal, concat("the gradient of ", name_,
                                          " has no memory; allocate it and call "
                                          "begin_gradients before backward"));
}

void Parameter::contributed(const Stream& stream) {
  if (contributed_ == expected_)
    throw Error(
        ExitCode::kInternal,
        concat(name_, " got more gradient contributions than the ", expected_,
               " that it expects per step; each module that shares it must call add_contributor"));
  sink_->contributed(*this, stream);
  if (++contributed_ == expected_) sink_->ready(*this, stream);
}

std::uint64_t hash_of_name(const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001B3u;
  return hash;
}

void initialize_normal(Parameter& parameter, double deviation, std::uint64_t seed,
                       const Stream& stream) {
  fill_random(parameter, seed, stream, [&](const RandomKey& key, std::uint64_t i) {
    return static_cast<float>(deviation) * random_normal(key, i);
  });
}

void initialize_uniform(Parameter& parameter, double bound, std::uint64_t seed,
                        const Stream& stream) {
  fill_random(parameter, seed, stream, [&](const RandomKey& key, std::uint64_t i) {
    return static_cast<float>(bound) * (2 * to_unit_float(random_word(key, i)) - 1);
  });
}

void initialize_log_rates(Parameter& parameter, std::uint64_t seed, const Stream& stream) {
  fill_random(parameter, seed, stream, [](const RandomKey& key, std::uint64_t i) {
    return std::log(1 + 15 * to_unit_float(random_word(key, i)));
  });
}

void initialize_step_biases(Parameter& parameter, std::uint64_t seed, const Stream& stream) {
  fill_random(parameter, seed, stream, [](const RandomKey& key, std::uint64_t i) {
    const double step = 0.001 * std::pow(100.0, to_unit_float(random_word(key, i)));
    return static_cast<float>(step + std::log(-std::expm1(-step)));
  });
}

void initialize_sinusoids(Parameter& parameter, const Stream& stream) {
  const std::int64_t places = parameter.shape()[0], width = parameter.shape()[1], half = width / 2;
  if (width % 2 != 0)
    throw ShapeMismatch(concat(parameter.name(), " is ", parameter.shape().text(),
                               ", but sines and cosines need an even width"));
  const double step = std::log(1e4) / static_cast<double>(std::max<std::int64_t>(1, half - 1));
  fill_from_host(parameter, stream, [&](float* values, std::int64_t) {
    for (std::int64_t place = 0; place < places; ++place) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(place) * std::exp(-step * static_cast<double>(i));
        values[place * width + i] = static_cast<float>(std::sin(angle));
        values[place * width + half + i] = static_cast<float>(std::cos(angle));
      }
    }
  });
}

void initialize_constant(Parameter& parameter, float value, const Stream& stream) {
  fill_from_host(parameter, stream,
                 [&](float* values, std::int64_t count) { std::fill_n(values, count, value); });
}

}  // namespace hybrid_trainer
