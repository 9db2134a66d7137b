#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "hybrid_trainer/kernels/scans.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {

/// A delta-rule scan, its inputs, and the reference in double.
struct DeltaCase {
  std::int64_t batch = 2, length = 65;
  DeltaRuleSpec spec{.key_heads = 1, .value_heads = 2, .key_size = 16, .value_size = 24};
  DType dtype = DType::kF32;
  std::int64_t document = 0;  // sequence b has documents of document + b tokens; 0: one document
  std::int64_t place = 0;     // position of the first token in its document
  bool first_state = true;
  double log_rate = -1;                       // center of the heads' values
  double mean = 0;                            // of qkv; above 1 the keys are nearly parallel
  static constexpr std::int64_t kOthers = 3;  // columns of gates that the scan does not use

  std::int64_t heads() const { return spec.value_heads; }
  std::int64_t states() const { return batch * heads() * spec.key_size * spec.value_size; }
  Shape state_shape() const { return {batch, heads(), spec.key_size, spec.value_size}; }
  Shape output_shape() const { return {batch, length, spec.values()}; }
  std::int64_t position(std::int64_t b, std::int64_t t) const {
    return (t + place) % (document + b);
  }
  bool begins(std::int64_t b, std::int64_t t) const { return document > 0 && position(b, t) == 0; }
  DeltaRuleInput input(const Stream& stream) const {
    DeltaRuleInput result;
    Values qkv = values_of(random_tensor({batch, length, spec.columns()}, dtype, 1, stream));
    for (double& one : qkv) one += mean;
    result.qkv = tensor_of(qkv, {batch, length, spec.columns()}, dtype, stream);
    result.gates = random_tensor({batch, length, kOthers + 2 * heads()}, dtype, 2, stream);
    result.log_rate = random_tensor({heads()}, DType::kF32, 3, stream);
    for (std::int64_t h = 0; h < heads(); ++h)
      result.log_rate.data<float>()[h] += static_cast<float>(log_rate);
    result.step_bias = random_tensor({heads()}, DType::kF32, 4, stream);
    if (first_state) result.first_state = random_tensor(state_shape(), DType::kF32, 5, stream);
    if (document == 0) return result;
    Values positions;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t t = 0; t < length; ++t)
        positions.push_back(static_cast<double>(position(b, t)));
    }
    result.positions = tensor_of(positions, {batch, length}, DType::kI32, stream);
    return result;
  }
};

/// The recurrence in double, token by token, and its backward pass.
class DeltaOracle {
 public:
  DeltaOracle(const DeltaCase& scan, const DeltaRuleInput& input)
      : scan_(scan),
        qkv(values_of(input.qkv)),
        gates(values_of(input.gates)),
        log_rate(values_of(input.log_rate)),
        step_bias(values_of(input.step_bias)),
        first(input.first_state ? values_of(input.first_state)
                                : Values(static_cast<std::size_t>(scan.states()))) {}

  void run() {
    y.assign(count(scan_.output_shape()), 0.0);
    last = first;
    for_heads([&](Head& head) {
      for (std::int64_t t = 0; t < scan_.length; ++t) forward(head, t);
      std::copy(head.states.back().begin(), head.states.back().end(), last.begin() + head.state_at);
    });
  }

  void run_backward(const Values& dy, const Values& dlast) {
    run();
    dqkv.assign(qkv.size(), 0.0);
    dgates.assign(gates.size(), 0.0);
    dlog_rate.assign(log_rate.size(), 0.0);
    dstep_bias.assign(step_bias.size(), 0.0);
    dfirst.assign(first.size(), 0.0);
    for_heads([&](Head& head) {
      for (std::int64_t t = 0; t < scan_.length; ++t) forward(head, t);
      head.dstate.assign(dlast.begin() + head.state_at, dlast.begin() + head.state_at + size());
      for (std::int64_t t = scan_.length - 1; t >= 0; --t) backward(head, t, dy);
      std::copy(head.dstate.begin(), head.dstate.end(), dfirst.begin() + head.state_at);
    });
  }

 private:
  const DeltaCase& scan_;
  struct Head {
    std::int64_t b, h, state_at;
    std::vector<Values> states{};  // before each token and after the last
    Values dstate{};
  };
  struct Token {
    std::int64_t query_at, key_at, value_at, output_at, gate_at;
    double query_factor, key_factor, query_scale, beta, rate, step, x, decay;
    Values key, query, read, delta;
  };

 public:
  Values qkv, gates, log_rate, step_bias, first;
  Values y, last, dqkv, dgates, dlog_rate, dstep_bias, dfirst;

 private:
  static std::size_t count(const Shape& shape) {
    return static_cast<std::size_t>(shape.elements());
  }
  static double& at(Values& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
  static double at(const Values& values, std::int64_t i) {
    return values[static_cast<std::size_t>(i)];
  }
  std::int64_t keys() const { return scan_.spec.key_size; }
  std::int64_t values() const { return scan_.spec.value_size; }
  std::int64_t size() const { return keys() * values(); }

  template <class Function>
  void for_heads(const Function& function) {
    for (std::int64_t b = 0; b < scan_.batch; ++b) {
      for (std::int64_t h = 0; h < scan_.heads(); ++h) {
        Head head{b, h, (b * scan_.heads() + h) * size()};
        head.states.emplace_back(first.begin() + head.state_at,
                                 first.begin() + head.state_at + size());
        function(head);
      }
    }
  }

  /// Computes x/√(|x|² + 1e-6)·scale from qkv. Sets `factor` to x's multiplier, without the scale.
  Values normal(std::int64_t from, double scale, double& factor) const {
    double sum = 1e-6;
    for (std::int64_t i = 0; i < keys(); ++i) sum += at(qkv, from + i) * at(qkv, from + i);
    factor = 1 / std::sqrt(sum);
    Values result;
    for (std::int64_t i = 0; i < keys(); ++i) result.push_back(at(qkv, from + i) * factor * scale);
    return result;
  }

  Token token(const Head& head, std::int64_t t) const {
    const DeltaRuleSpec& spec = scan_.spec;
    const std::int64_t row = head.b * scan_.length + t, begin = row * spec.columns(),
                       key_head = head.h / (spec.value_heads / spec.key_heads);
    Token one{};
    one.query_at = begin + key_head * keys();
    one.key_at = one.query_at + spec.keys();
    one.value_at = begin + 2 * spec.keys() + head.h * values();
    one.output_at = row * spec.values() + head.h * values();
    one.gate_at = row * (DeltaCase::kOthers + 2 * scan_.heads()) + DeltaCase::kOthers + head.h;
    one.query_scale = 1 / std::sqrt(static_cast<double>(keys()));
    one.query = normal(one.query_at, one.query_scale, one.query_factor);
    one.key = normal(one.key_at, 1, one.key_factor);
    one.beta = 1 / (1 + std::exp(-at(gates, one.gate_at)));
    one.x = at(gates, one.gate_at + scan_.heads()) + at(step_bias, head.h);
    one.rate = std::exp(at(log_rate, head.h));
    one.step = one.x > 0 ? one.x + std::log1p(std::exp(-one.x)) : std::log1p(std::exp(one.x));
    one.decay = scan_.begins(head.b, t) ? 0 : std::exp(-one.rate * one.step);
    const Values& before = head.states[static_cast<std::size_t>(t)];
    for (std::int64_t v = 0; v < values(); ++v) {
      double read = 0;
      for (std::int64_t k = 0; k < keys(); ++k)
        read += one.decay * at(before, k * values() + v) * at(one.key, k);
      one.read.push_back(read);
      one.delta.push_back(one.beta * (at(qkv, one.value_at + v) - read));
    }
    return one;
  }

  void forward(Head& head, std::int64_t t) {
    const Token one = token(head, t);
    Values state = head.states.back();
    for (std::int64_t v = 0; v < values(); ++v) {
      double sum = 0;
      for (std::int64_t k = 0; k < keys(); ++k) {
        double& s = at(state, k * values() + v);
        s = one.decay * s + at(one.key, k) * at(one.delta, v);
        sum += s * at(one.query, k);
      }
      at(y, one.output_at + v) = sum;
    }
    head.states.push_back(state);
  }

  void backward(Head& head, std::int64_t t, const Values& dy) {
    const Token one = token(head, t);
    const Values& before = head.states[static_cast<std::size_t>(t)];
    const Values& after = head.states[static_cast<std::size_t>(t) + 1];
    Values dquery(one.query.size()), dkey(one.key.size()), ddelta(one.delta.size());
    for (std::int64_t k = 0; k < keys(); ++k) {
      for (std::int64_t v = 0; v < values(); ++v) {
        double& ds = at(head.dstate, k * values() + v);
        at(dquery, k) += at(after, k * values() + v) * at(dy, one.output_at + v);
        ds += at(one.query, k) * at(dy, one.output_at + v);
        at(dkey, k) += ds * at(one.delta, v);
        at(ddelta, v) += ds * at(one.key, k);
      }
    }
    double dbeta = 0, ddecay = 0;
    for (std::int64_t v = 0; v < values(); ++v) {
      dbeta += at(ddelta, v) * (at(qkv, one.value_at + v) - at(one.read, v));
      at(dqkv, one.value_at + v) += one.beta * at(ddelta, v);
    }
    for (std::int64_t k = 0; k < keys(); ++k) {
      for (std::int64_t v = 0; v < values(); ++v) {
        const double dread = -one.beta * at(ddelta, v), s = at(before, k * values() + v);
        double& ds = at(head.dstate, k * values() + v);
        at(dkey, k) += one.decay * s * dread;
        ds += at(one.key, k) * dread;
        ddecay += ds * s;
        ds *= one.decay;
      }
    }
    add_row(one.key_at, one.key, dkey, one.key_factor, 1);
    add_row(one.query_at, one.query, dquery, one.query_factor, one.query_scale);
    const double dlog = ddecay * one.decay, dstep = -one.rate * dlog / (1 + std::exp(-one.x));
    at(dgates, one.gate_at) = dbeta * one.beta * (1 - one.beta);
    at(dgates, one.gate_at + scan_.heads()) = dstep;
    at(dlog_rate, head.h) -= dlog * one.rate * one.step;
    at(dstep_bias, head.h) += dstep;
  }

  void add_row(std::int64_t to, const Values& normal, const Values& dnormal, double factor,
               double scale) {
    double along = 0;
    for (std::int64_t i = 0; i < keys(); ++i) along += at(normal, i) * at(dnormal, i);
    for (std::int64_t i = 0; i < keys(); ++i)
      at(dqkv, to + i) +=
          factor * scale * (at(dnormal, i) - at(normal, i) * along / (scale * scale));
  }
};

/// Expects |value − wanted| <= tolerance · the largest |wanted| for all elements.
inline void expect_near(const Values& values, const Values& wanted, double tolerance,
                        const std::string& what) {
  double largest = 0, worst = 0;
  ASSERT_EQ(values.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    const double error = std::abs(values[i] - wanted[i]);
    if (!(error <= worst)) worst = error;
  }
  EXPECT_LE(worst, tolerance * largest) << what << ": the largest is " << largest;
}

struct DeltaResult {
  Tensor y, last;
};
inline DeltaResult run_forward(const DeltaCase& scan, const DeltaRuleInput& input,
                               const Stream& stream) {
  DeltaResult result{
      Tensor::empty(scan.output_shape(), scan.dtype, MemoryKind::kActivations, stream),
      Tensor::empty(scan.state_shape(), DType::kF32, MemoryKind::kActivations, stream)};
  delta_rule_scan_forward(result.y, result.last, input, scan.spec, stream);
  return result;
}

struct DeltaUpstream {
  DeltaUpstream(const DeltaCase& scan, const Stream& stream)
      : dy(random_tensor(scan.output_shape(), scan.dtype, 6, stream)),
        dlast(random_tensor(scan.state_shape(), DType::kF32, 7, stream)) {}
  Tensor dy, dlast;
};
inline DeltaRuleGradients run_backward(const DeltaCase& scan, const DeltaRuleInput& input,
                                       const DeltaUpstream& up, const Stream& stream) {
  DeltaRuleGradients to;
  to.qkv = random_tensor(input.qkv.shape(), scan.dtype, 8, stream);
  to.gates = clone(input.gates, stream);
  to.log_rate = random_tensor({scan.heads()}, DType::kF32, 9, stream);
  to.step_bias = random_tensor({scan.heads()}, DType::kF32, 10, stream);
  to.first_state = random_tensor(scan.state_shape(), DType::kF32, 11, stream);
  delta_rule_scan_backward(to, up.dy, up.dlast, input, scan.spec, stream);
  return to;
}

inline std::string name_of_case(const DeltaCase& scan) {
  return concat("T ", scan.length, ", heads ", scan.spec.key_heads, " and ", scan.heads(),
                ", sizes ", scan.spec.key_size, " and ", scan.spec.value_size, ", rate e^",
                scan.log_rate);
}

/// Columns [begin, end) of rows with `columns` columns.
inline Values columns_of(const Values& values, std::int64_t columns, std::int64_t begin,
                         std::int64_t end) {
  Values result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t column = static_cast<std::int64_t>(i) % columns;
    if (column >= begin && column < end) result.push_back(values[i]);
  }
  return result;
}

inline void expect_oracle(const DeltaCase& scan, const DeltaRuleInput& input,
                          const DeltaResult& result, double tolerance) {
  DeltaOracle oracle(scan, input);
  oracle.run();
  expect_near(values_of(result.y), oracle.y, tolerance, name_of_case(scan) + ": y");
  expect_near(values_of(result.last), oracle.last, 2e-6, name_of_case(scan) + ": last state");
}

inline void expect_oracle(const DeltaCase& scan, const DeltaRuleInput& input,
                          const DeltaUpstream& up, const DeltaRuleGradients& gradients,
                          double tolerance) {
  DeltaOracle oracle(scan, input);
  oracle.run_backward(values_of(up.dy), values_of(up.dlast));
  const std::string name = name_of_case(scan);
  const auto expect_columns = [&](const Tensor& tensor, const Values& wanted, std::int64_t begin,
                                  std::int64_t end, const std::string& what) {
    const std::int64_t columns = tensor.size(2);
    expect_near(columns_of(values_of(tensor), columns, begin, end),
                columns_of(wanted, columns, begin, end), tolerance, name + what);
  };
  const std::int64_t keys = scan.spec.keys(), others = DeltaCase::kOthers, heads = scan.heads();
  expect_columns(gradients.qkv, oracle.dqkv, 0, keys, ": dq");
  expect_columns(gradients.qkv, oracle.dqkv, keys, 2 * keys, ": dk");
  expect_columns(gradients.qkv, oracle.dqkv, 2 * keys, scan.spec.columns(), ": dv");
  expect_columns(gradients.gates, oracle.gates, 0, others, ": other columns");
  expect_columns(gradients.gates, oracle.dgates, others, others + heads, ": db");
  expect_columns(gradients.gates, oracle.dgates, others + heads, others + 2 * heads, ": da");
  expect_near(values_of(gradients.log_rate), oracle.dlog_rate, 1e-6, name + ": dlog_rate");
  expect_near(values_of(gradients.step_bias), oracle.dstep_bias, 1e-6, name + ": dstep_bias");
  expect_near(values_of(gradients.first_state), oracle.dfirst, 1e-6, name + ": dfirst_state");
}

}  // namespace hybrid_trainer::kernels
