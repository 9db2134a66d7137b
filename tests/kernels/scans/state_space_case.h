#pragma once

#include <algorithm>
#include <limits>

#include "hybrid_trainer/kernels/scans.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {

/// Gradients of a scan in double.
struct ScanGradients {
  Values values, steps, skip, log_rate, step_bias, first_state;
  /// Largest √(Σ parts²) of a head's sums over tokens, whose parts mostly cancel.
  double log_rate_size = 0, step_bias_size = 0;
};

/// A scan with all its options, and the recurrence in double, token by token.
struct ScanCase {
  struct Options {
    std::int64_t batch = 1, time = 1;
    bool decays = true, states = false, documents = false, skips = true;
  };
  ScanCase(const StateSpaceSpec& of, const Options& options, DType dtype, const Stream& stream,
           std::uint64_t seed = 1)
      : spec(of), batch(options.batch), time(options.time) {
    const Shape state{batch, spec.heads, spec.head_size, spec.state_size};
    input.values = random_tensor({batch, time, spec.columns()}, dtype, seed, stream, 0.7);
    if (options.decays) {
      input.steps = random_tensor({batch, time, spec.heads + 3}, dtype, seed + 1, stream);
      decay.log_rate = random_tensor({spec.heads}, DType::kF32, seed + 2, stream);
      decay.step_bias = random_tensor({spec.heads}, DType::kF32, seed + 3, stream);
      for (std::int64_t h = 0; h < spec.heads; ++h) decay.step_bias.data<float>()[h] -= 3;
    }
    if (options.skips) input.skip = random_tensor({spec.heads}, DType::kF32, seed + 4, stream);
    if (options.states) {
      input.first_state = random_tensor(state, DType::kF32, seed + 5, stream);
      dlast_state = random_tensor(state, DType::kF32, seed + 6, stream);
    }
    if (options.documents) {
      Values places;
      for (std::int64_t row = 0; row < batch * time; ++row)
        places.push_back(static_cast<double>((row % time + 2 * (row / time)) % 37));
      input.positions = tensor_of(places, {batch, time}, DType::kI32, stream);
    }
    dy = random_tensor({batch, time, spec.values()}, dtype, seed + 7, stream);
    y = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
    last_state = Tensor::empty(state, DType::kF32, MemoryKind::kActivations, stream);
  }

  void forward(const Stream& stream) const {
    state_space_scan_forward(y, last_state, input, decay, spec, stream);
  }
  /// Gradients with initial values, to which the kernel adds.
  StateSpaceGradients gradients(const Stream& stream, bool of_state = true) const {
    StateSpaceGradients result;
    result.values = clone(input.values, stream);
    if (input.skip) result.skip = clone(input.skip, stream);
    if (input.steps) {
      result.steps = clone(input.steps, stream);
      result.log_rate = clone(decay.log_rate, stream);
      result.step_bias = clone(decay.step_bias, stream);
    }
    if (of_state) result.first_state = clone(last_state, stream);
    return result;
  }
  StateSpaceGradients backward(const Stream& stream) const {
    const StateSpaceGradients result = gradients(stream);
    state_space_scan_backward(result, dy, dlast_state, input, decay, spec, stream);
    return result;
  }

  StateSpaceSpec spec;
  std::int64_t batch, time;
  StateSpaceInput input;
  StateSpaceDecay decay;
  Tensor dy, dlast_state, y, last_state;
};

/// The recurrence of a case, forward and backward.
class ScanOracle {
 public:
  explicit ScanOracle(const ScanCase& of)
      : c_(of),
        values_(values_of(of.input.values)),
        steps_(of.input.steps ? values_of(of.input.steps) : Values()),
        log_rate_(of.decay.log_rate ? values_of(of.decay.log_rate) : Values()),
        step_bias_(of.decay.step_bias ? values_of(of.decay.step_bias) : Values()),
        skip_(of.input.skip ? values_of(of.input.skip)
                            : Values(static_cast<std::size_t>(of.spec.heads), 0.0)),
        dy_(values_of(of.dy)),
        y(dy_.size()),
        last_state(values_of(of.last_state).size()) {
    gradients.values.assign(values_.size(), 0.0);
    gradients.steps = steps_;
    gradients.skip.assign(skip_.size(), 0.0);
    gradients.log_rate.assign(log_rate_.size(), 0.0);
    gradients.step_bias.assign(step_bias_.size(), 0.0);
    gradients.first_state.assign(last_state.size(), 0.0);
    for (std::int64_t b = 0; b < c_.batch; ++b)
      for (std::int64_t h = 0; h < c_.spec.heads; ++h) run(b, h);
  }

 private:
  struct Token {
    std::int64_t x, key, query, step;  // indices of its numbers
    std::int64_t y;
    double size = 1, slope = 0, rate = 0, decay = 1;
  };
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  Token token(std::int64_t b, std::int64_t h, std::int64_t t) const {
    const StateSpaceSpec& spec = c_.spec;
    const std::int64_t row = b * c_.time + t, x = row * spec.columns();
    Token result{};
    result.x = x + h * spec.head_size;
    result.y = row * spec.values() + h * spec.head_size;
    result.key = x + spec.values() + h / (spec.heads / spec.groups) * spec.state_size;
    result.query = result.key + spec.groups * spec.state_size;
    result.size = 1, result.decay = 1;
    if (!steps_.empty()) {
      result.step = row * (spec.heads + 3) + 3 + h;
      const double raw = steps_[at(result.step)] + step_bias_[at(h)];
      const double whole = raw > 30 ? raw : std::log1p(std::exp(raw));
      const auto least = static_cast<double>(spec.least_step),
                 most = static_cast<double>(spec.most_step);
      result.size = std::clamp(whole, least, most);
      result.slope = whole < least || whole > most ? 0 : 1 / (1 + std::exp(-raw));
      result.rate = -std::exp(log_rate_[at(h)]);
      result.decay = std::exp(result.rate * result.size);
    }
    const std::int32_t* const places =
        c_.input.positions ? c_.input.positions.data<std::int32_t>() + b * c_.time : nullptr;
    const std::int64_t first = spec.reversed ? t + 1 : t;
    if (places != nullptr && first < c_.time && places[first] == 0) result.decay = 0;
    return result;
  }

  void run(std::int64_t b, std::int64_t h) {
    const StateSpaceSpec& spec = c_.spec;
    const std::int64_t size = spec.head_size * spec.state_size, where = (b * spec.heads + h) * size;
    Values states(at((c_.time + 1) * size), 0.0);  // before each token
    for (std::int64_t i = 0; c_.input.first_state && i < size; ++i)
      states[at(i)] = static_cast<double>(c_.input.first_state.data<float>()[where + i]);
    for (std::int64_t s = 0; s < c_.time; ++s) {
      const Token t = token(b, h, spec.reversed ? c_.time - 1 - s : s);
      for (std::int64_t p = 0; p < spec.head_size; ++p) {
        double sum = skip_[at(h)] * values_[at(t.x + p)];
        for (std::int64_t n = 0; n < spec.state_size; ++n) {
          const std::int64_t i = p * spec.state_size + n;
          const double kept = t.decay * states[at(s * size + i)];
          const double all = kept + t.size * values_[at(t.x + p)] * values_[at(t.key + n)];
          states[at((s + 1) * size + i)] = all;
          sum += (spec.shifted ? kept : all) * values_[at(t.query + n)];
        }
        y[at(t.y + p)] = sum;
      }
    }
    std::copy_n(states.end() - size, size, last_state.begin() + where);
    differentiate(b, h, states);
  }

  void differentiate(std::int64_t b, std::int64_t h, const Values& states) {
    const StateSpaceSpec& spec = c_.spec;
    const std::int64_t size = spec.head_size * spec.state_size, where = (b * spec.heads + h) * size;
    Values dstate(at(size), 0.0);
    for (std::int64_t i = 0; c_.dlast_state && i < size; ++i)
      dstate[at(i)] = static_cast<double>(c_.dlast_state.data<float>()[where + i]);
    Values& dvalues = gradients.values;
    double rate_squares = 0, bias_squares = 0;
    for (std::int64_t s = c_.time - 1; s >= 0; --s) {
      const Token t = token(b, h, spec.reversed ? c_.time - 1 - s : s);
      double dsize = 0, dlog_decay = 0;
      for (std::int64_t p = 0; p < spec.head_size; ++p) {
        const double g = dy_[at(t.y + p)], x = values_[at(t.x + p)];
        double djoins = 0;
        for (std::int64_t n = 0; n < spec.state_size; ++n) {
          const std::int64_t i = p * spec.state_size + n;
          const double key = values_[at(t.key + n)], kept = t.decay * states[at(s * size + i)];
          const double through = g * values_[at(t.query + n)], later = dstate[at(i)];
          const double joined = later + (spec.shifted ? 0 : through);
          dvalues[at(t.query + n)] += g * (spec.shifted ? kept : states[at((s + 1) * size + i)]);
          dvalues[at(t.key + n)] += joined * t.size * x;
          djoins += joined * key;
          dlog_decay += (later + through) * kept;
          dstate[at(i)] = (later + through) * t.decay;
        }
        dvalues[at(t.x + p)] += t.size * djoins + skip_[at(h)] * g;
        dsize += djoins * x;
        gradients.skip[at(h)] += g * x;
      }
      if (steps_.empty()) continue;
      const double dlog_rate = dlog_decay * t.rate * t.size;
      gradients.log_rate[at(h)] += dlog_rate;
      rate_squares += dlog_rate * dlog_rate;
      const double dstep = (dsize + t.rate * dlog_decay) * t.slope;
      gradients.steps[at(t.step)] = dstep;
      gradients.step_bias[at(h)] += dstep;
      bias_squares += dstep * dstep;
    }
    gradients.log_rate_size = std::max(gradients.log_rate_size, std::sqrt(rate_squares));
    gradients.step_bias_size = std::max(gradients.step_bias_size, std::sqrt(bias_squares));
    std::copy(dstate.begin(), dstate.end(), gradients.first_state.begin() + where);
  }

  const ScanCase& c_;
  Values values_, steps_, log_rate_, step_bias_, skip_, dy_;

 public:
  Values y, last_state;
  ScanGradients gradients;
};

/// Expects |value − wanted| <= tolerance · max(largest |wanted|, `size`) for all elements.
inline void expect_near_largest(const Tensor& tensor, const Values& wanted, double tolerance,
                                const std::string& what, double size = 0) {
  const Values values = values_of(tensor);
  ASSERT_EQ(values.size(), wanted.size()) << what;
  double worst = 0;
  std::size_t place = 0;
  for (const double value : wanted) size = std::max(size, std::abs(value));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = std::abs(values[i] - wanted[i]);
    if (error <= worst) continue;
    worst = error;
    place = i;
    if (std::isnan(error)) break;
  }
  EXPECT_LE(worst, tolerance * size) << what << ": element " << place << " is " << values[place]
                                     << ", want " << wanted[place] << ", the size is " << size;
}

/// Splits dvalues into parts, because the gradients of keys and queries are larger than those of x.
inline Values scan_columns(const Values& rows, std::int64_t width, std::int64_t begin,
                           std::int64_t end) {
  Values result;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i) % width;
    if (column >= begin && column < end) result.push_back(rows[i]);
  }
  return result;
}

}  // namespace hybrid_trainer::kernels
