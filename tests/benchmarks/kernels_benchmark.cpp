// Times every kernel at the sizes of one GPT-2 124M step with batch 4. Prints each kernel's share
// of this machine's multiply or copy rate.
// usage: kernels_benchmark [f32|bf16 [sequence length, else 256 [part of a name]]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/kernels/convolution.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/experts.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/kernels/loss.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/kernels/normalization.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/kernels/scans.h"
#include "kernels/backend/machine.h"
#include "kernels/quantized/quantization.h"
#include "kernels/updates/optimizer_update.h"
#include "src/core/machine.h"
#include "src/optim/muon.h"

namespace {

using namespace hybrid_trainer;
using namespace hybrid_trainer::kernels;

constexpr std::int64_t kBatch = 4, kChannels = 768, kHeads = 12, kLayers = 12, kVocabulary = 50304;
constexpr std::int64_t kParameters = 124'475'904;

class Benchmark {
 public:
  Benchmark(DType dtype, std::int64_t length, std::string filter)
      : dtype_(dtype),
        length_(length),
        filter_(std::move(filter)),
        stream_(MemoryPool::create("benchmark")) {
    product_rate_ = measure_product_rate(dtype, stream_);
    copy_rate_ = measure_copy_rate(stream_);
    read_rate_ = measure_read_rate(stream_);
    std::printf("%s, %s, %d threads; limits: product %.0f GF/s, copy %.1f GB/s, read %.1f GB/s\n",
                name_of(dtype), name_of(instruction_set()), threads(), product_rate_ / 1e9,
                copy_rate_ / 1e9, read_rate_ / 1e9);
  }

  Tensor real(const Shape& shape) { return random(shape, dtype_); }
  Tensor f32(const Shape& shape) { return random(shape, DType::kF32); }
  const Stream& stream() const { return stream_; }
  DType dtype() const { return dtype_; }
  std::int64_t length() const { return length_; }
  std::int64_t rows() const { return kBatch * length_; }
  std::int64_t head_rows() const { return std::min<std::int64_t>(rows(), 512); }

  void product(const char* name, std::int64_t calls, double operations,
               const std::function<void()>& work) {
    report(name, calls, operations, product_rate_, "GF/s", work);
  }
  void traffic(const char* name, std::int64_t calls, double bytes,
               const std::function<void()>& work) {
    report(name, calls, bytes, copy_rate_, "GB/s", work);
  }
  void reading(const char* name, std::int64_t calls, double bytes,
               const std::function<void()>& work) {
    report(name, calls, bytes, read_rate_, "GB/s", work);
  }
  void print_total() const {
    std::printf(
        "one step: %.0f ms, of which %.0f ms not products; products at the best rate: %.0f ms, "
        "%.1f %%\n",
        total_seconds_ * 1e3, (total_seconds_ - product_seconds_) * 1e3,
        operations_ / product_rate_ * 1e3, 100 * operations_ / product_rate_ / total_seconds_);
  }

 private:
  Tensor random(const Shape& shape, DType dtype) {
    const Tensor tensor = Tensor::empty(shape, dtype, MemoryKind::kActivations, stream_);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const float value = to_unit_float(static_cast<std::uint32_t>(i) * 2654435761u) - 0.5f;
      if (dtype == DType::kF32) tensor.data<float>()[i] = value;
      if (dtype == DType::kBF16) tensor.data<BFloat16>()[i] = to_bfloat16(value);
    }
    return tensor;
  }

  void report(const char* name, std::int64_t calls, double amount, double limit, const char* unit,
              const std::function<void()>& work) {
    if (std::string(name).find(filter_) == std::string::npos) return;
    work();
    double best = 1e30, spent = 0;
    for (int run = 0; run < 20 && (run < 3 || spent < 0.3); ++run) {
      const auto start = std::chrono::steady_clock::now();
      work();
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      best = std::min(best, seconds);
      spent += seconds;
    }
    std::printf("%-34s %9.3f ms x %3ld = %7.1f ms %8.1f %s %5.0f %%\n", name, best * 1e3,
                static_cast<long>(calls), best * 1e3 * static_cast<double>(calls),
                amount / best / 1e9, unit, 100 * amount / best / limit);
    std::fflush(stdout);
    total_seconds_ += best * static_cast<double>(calls);
    if (std::strcmp(unit, "GF/s") == 0) {
      product_seconds_ += best * static_cast<double>(calls);
      operations_ += amount * static_cast<double>(calls);
    }
  }

  DType dtype_;
  std::int64_t length_;
  std::string filter_;
  Stream stream_;
  double product_rate_, copy_rate_, read_rate_;
  double total_seconds_ = 0, product_seconds_ = 0, operations_ = 0;
};

double product_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}
double bytes_of(std::initializer_list<Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

void linear(Benchmark& b, const char* name, std::int64_t outputs, std::int64_t inputs, bool adds) {
  const Tensor x = b.real({b.rows(), inputs}), w = b.real({outputs, inputs}),
               y = b.real({b.rows(), outputs});
  const Tensor bias = b.f32({outputs}), residual = adds ? b.real({b.rows(), outputs}) : Tensor();
  const Tensor dw = b.f32({outputs, inputs}), dx = b.real({b.rows(), inputs});
  const double operations = product_of(b.rows(), outputs, inputs);
  const std::string prefix = name;
  b.product((prefix + " forward").c_str(), kLayers, operations,
            [&] { linear_forward(y, x, w, bias, residual, b.stream()); });
  b.product((prefix + " dx").c_str(), kLayers, operations,
            [&] { linear_backward_input(dx, y, w, b.stream()); });
  b.product((prefix + " dw").c_str(), kLayers, operations,
            [&] { linear_backward_weight(dw, y, x, GradientMode::kOverwrite, b.stream()); });
  b.product((prefix + " dw accumulating").c_str(), 0, operations,
            [&] { linear_backward_weight(dw, y, x, GradientMode::kAccumulate, b.stream()); });
  b.traffic((prefix + " dbias").c_str(), kLayers, bytes_of({y}),
            [&] { bias_backward(bias, y, GradientMode::kOverwrite, b.stream()); });
}

/// 32 experts of 128 rows each, and a dense product with the same number of operations.
void grouped(Benchmark& b, std::int64_t outputs, std::int64_t inputs) {
  constexpr std::int64_t kExperts = 32, kRows = 128;
  const Tensor x = b.real({kExperts * kRows, inputs}), y = b.real({kExperts * kRows, outputs}),
               dense_dw = b.f32({outputs, inputs});
  std::vector<Tensor> w, dw;
  for (std::int64_t e = 0; e < kExperts; ++e) {
    w.push_back(b.real({outputs, inputs}));
    dw.push_back(b.f32({outputs, inputs}));
  }
  const Tensor offsets =
      Tensor::empty({kExperts + 1}, DType::kI32, MemoryKind::kActivations, b.stream());
  for (std::int64_t e = 0; e <= kExperts; ++e)
    offsets.data<std::int32_t>()[e] = static_cast<std::int32_t>(e * kRows);
  const double operations = product_of(kExperts * kRows, outputs, inputs);
  const GradientMode overwrite = GradientMode::kOverwrite;
  b.product("grouped forward", 0, operations,
            [&] { grouped_forward(y, x, {offsets}, w, {}, overwrite, b.stream()); });
  b.product("grouped: as dense forward", 0, operations,
            [&] { linear_forward(y, x, w[0], Tensor(), Tensor(), b.stream()); });
  b.product("grouped dx", 0, operations,
            [&] { grouped_backward_input(x, y, {offsets}, w, overwrite, b.stream()); });
  b.product("grouped: as dense dx", 0, operations,
            [&] { linear_backward_input(x, y, w[0], b.stream()); });
  b.product("grouped dw", 0, operations,
            [&] { grouped_backward_weight(dw, y, x, {offsets}, overwrite, b.stream()); });
  b.product("grouped: as dense dw", 0, operations,
            [&] { linear_backward_weight(dense_dw, y, x, overwrite, b.stream()); });
}

void head(Benchmark& b) {
  const std::int64_t chunks = b.rows() / b.head_rows();
  const Tensor x = b.real({b.head_rows(), kChannels}), w = b.real({kVocabulary, kChannels});
  const Tensor logits = b.real({b.head_rows(), kVocabulary}), dw = b.f32({kVocabulary, kChannels});
  const Tensor losses = b.f32({b.head_rows()});
  const Tensor targets =
      Tensor::zeros({b.head_rows()}, DType::kI32, MemoryKind::kActivations, b.stream());
  const double operations = product_of(b.head_rows(), kVocabulary, kChannels);
  b.product("head forward", chunks, operations, [&] {
    matmul(logits, x, Transpose::kNo, w, Transpose::kYes, GradientMode::kOverwrite, b.stream());
  });
  b.traffic("softmax_cross_entropy", chunks, 2 * bytes_of({logits}),
            [&] { softmax_cross_entropy(losses, logits, targets, 50257, 0.001f, b.stream()); });
  b.product("head dx", chunks, operations,
            [&] { linear_backward_input(x, logits, w, b.stream()); });
  b.product("head dw", 1, operations,
            [&] { linear_backward_weight(dw, logits, x, GradientMode::kOverwrite, b.stream()); });
  b.product("head dw accumulating", chunks - 1, operations,
            [&] { linear_backward_weight(dw, logits, x, GradientMode::kAccumulate, b.stream()); });
}

void rows(Benchmark& b) {
  const Tensor x = b.real({b.rows(), kChannels}), y = b.real({b.rows(), kChannels}),
               dx = b.real({b.rows(), kChannels});
  const Tensor weight = b.f32({kChannels}), bias = b.f32({kChannels}), mean = b.f32({b.rows()}),
               rstd = b.f32({b.rows()});
  b.traffic("layer_norm_forward", 2 * kLayers + 1, bytes_of({x, y}),
            [&] { layer_norm_forward(y, mean, rstd, x, weight, bias, 1e-5f, b.stream()); });
  b.traffic("layer_norm_backward", 2 * kLayers + 1, bytes_of({x, y, dx, dx}), [&] {
    layer_norm_backward(dx, GradientMode::kAccumulate, weight, bias, GradientMode::kOverwrite, y, x,
                        mean, rstd, weight, b.stream());
  });
  const Tensor wide = b.real({b.rows(), 4 * kChannels}), wide_y = b.real({b.rows(), 4 * kChannels});
  b.traffic("gelu_forward", kLayers, bytes_of({wide, wide}),
            [&] { gelu_forward(wide_y, wide, b.stream()); });
  b.traffic("gelu_backward", kLayers, bytes_of({wide, wide, wide}),
            [&] { gelu_backward(wide_y, wide_y, wide, b.stream()); });
  b.traffic("add", 0, bytes_of({x, y, dx}), [&] { add(y, x, dx, b.stream()); });
  b.traffic("dropout", 0, bytes_of({x, y}), [&] {
    dropout(y, x, 0.1f, {.key = {1, 2, 3}}, b.stream());
  });
  const Tensor table = b.real({kVocabulary, kChannels}), positions = b.real({1024, kChannels});
  const Tensor dtable = b.f32({kVocabulary, kChannels}), dpositions = b.f32({1024, kChannels});
  const Tensor tokens =
      Tensor::zeros({kBatch, b.length()}, DType::kI32, MemoryKind::kActivations, b.stream());
  const Tensor rows3 = x.view({kBatch, b.length(), kChannels});
  for (std::int64_t i = 0; i < b.rows(); ++i)
    tokens.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 49);
  b.traffic("embedding_forward", 1, 2 * bytes_of({x}),
            [&] { embedding_forward(rows3, tokens, table, positions, 0, b.stream()); });
  b.traffic("embedding_backward", 1, 5 * bytes_of({x}), [&] {
    embedding_backward(dtable, GradientMode::kAccumulate, dpositions, GradientMode::kOverwrite,
                       rows3, tokens, b.stream());
  });
}

/// Counts the visible keys of each query: two products forward, five backward.
void attention(Benchmark& b, const std::string& what, std::int64_t calls,
               const AttentionSpec& spec) {
  const Tensor qkv = b.real({kBatch, b.length(), 3 * kChannels}),
               dqkv = b.real({kBatch, b.length(), 3 * kChannels});
  const Tensor y = b.real({kBatch, b.length(), kChannels}),
               dy = b.real({kBatch, b.length(), kChannels});
  const Tensor log_sum_exp = b.f32({kBatch, kHeads, b.length()});
  const double operations =
      4 * visible_keys(spec, b.length()) * static_cast<double>(b.rows() * kChannels);
  b.product(("attention_forward" + what).c_str(), calls, operations,
            [&] { attention_forward(y, log_sum_exp, qkv, Tensor(), spec, b.stream()); });
  b.product(("attention_backward" + what).c_str(), calls, 2.5 * operations,
            [&] { attention_backward(dqkv, dy, y, log_sum_exp, qkv, Tensor(), spec, b.stream()); });
}

/// Each query block sees itself, the first block and a random one: 9 % of the causal keys at 4,096
/// tokens.
AttentionSpec in_blocks() {
  AttentionSpec spec(kHeads);
  spec.pattern = {.block = 64, .local = 1, .global = 1, .random = 1};
  return spec;
}

void orthogonalizer(Benchmark& b) {
  for (const auto& [rows, columns] :
       {std::pair{768, 256}, {256, 256}, {1024, 256}, {256, 1024}, {2304, 768}, {3072, 768}}) {
    const Shape shape{rows, columns};
    const std::int64_t side = std::min(rows, columns);
    Orthogonalizer orthogonalizer(shape.elements(), side, b.stream());
    const Tensor u = orthogonalizer.input(rows, columns), given = b.f32(shape);
    for (const std::int64_t together : {std::int64_t{rows}, side / 2, side / 4}) {
      const std::string name = concat("orthogonalizer ", rows, " x ", columns, " by ", together);
      b.product(name.c_str(), 0, Orthogonalizer::flops(shape, together, b.dtype()), [&] {
        copy(u, given, b.stream());
        orthogonalizer.orthogonal_blocks(u, together, b.dtype(), b.stream());
      });
    }
  }
}

void optimizer(Benchmark& b) {
  const Tensor w = b.f32({kParameters}), m = b.f32({kParameters}), v = b.f32({kParameters}),
               g = b.f32({kParameters});
  const Tensor compute_copy = b.dtype() == DType::kBF16 ? b.real({kParameters}) : Tensor();
  fill_zero(v, b.stream());
  const double written = compute_copy ? bytes_of({compute_copy}) : 0;
  b.traffic("adamw_update", 1, bytes_of({w, w, m, m, v, v, g}) + written, [&] {
    adamw_update(w, m, v, g, compute_copy, {.learning_rate = 1e-4f, .weight_decay = 0.1f},
                 b.stream());
  });
  const auto state = [&](const Shape& shape, DType dtype) {
    return Tensor::zeros(shape, dtype, MemoryKind::kOptimizerState, b.stream());
  };
  const Shape blocks{quantization_blocks(w.elements())};
  const QuantizedMoments moments{state(w.shape(), DType::kU8), state(blocks, DType::kF32),
                                 state(w.shape(), DType::kU8), state(blocks, DType::kF32)};
  const Tensor &mc = moments.m_codes, &vc = moments.v_codes;
  b.traffic("adamw_update_8bit", 0, bytes_of({w, w, mc, mc, vc, vc, g}) + written, [&] {
    adamw_update_8bit(w, moments, g, compute_copy, {.learning_rate = 1e-4f, .weight_decay = 0.1f},
                      b.stream());
  });
  b.reading("sum_of_squares", 1, bytes_of({g}), [&] { wait_for_sum_of_squares(g, b.stream()); });
}

void generation(Benchmark& b) {
  const Tensor x = b.real({1, kChannels}), wide = b.real({1, 4 * kChannels}),
               qkv = b.real({1, 3 * kChannels});
  const Tensor w = b.real({4 * kChannels * kLayers, kChannels}),
               table = b.real({kVocabulary, kChannels});
  const Tensor logits = b.real({1, kVocabulary}), bias = b.f32({4 * kChannels});
  std::int64_t layer = 0;  // a different layer each time, as in generation
  b.reading("one token: linear 3072x768", 0, bytes_of({w}) / kLayers, [&] {
    layer = (layer + 1) % kLayers;
    linear_forward(wide, x, w.rows(layer * 4 * kChannels, (layer + 1) * 4 * kChannels), bias,
                   Tensor(), b.stream());
  });
  b.reading("one token: head 50304x768", 0, bytes_of({table}), [&] {
    matmul(logits, x, Transpose::kNo, table, Transpose::kYes, GradientMode::kOverwrite, b.stream());
  });
  const Tensor keys = b.real({1, 1024, kChannels}), values = b.real({1, 1024, kChannels});
  const Tensor text = Tensor::zeros({1}, DType::kI32, MemoryKind::kData, b.stream()),
               last = Tensor::zeros({1}, DType::kI32, MemoryKind::kData, b.stream());
  last.data<std::int32_t>()[0] = 1023;
  b.reading("one token: attention at 1023", 0, bytes_of({keys, values}),
            [&] { attention_decode(x, keys, values, qkv, text, last, kHeads, b.stream()); });
}

/// Qwen3.5-0.8B's heads. Counts the products as executed, with all pairs in a chunk of 64 tokens.
void delta_rule(Benchmark& b) {
  const DeltaRuleSpec spec{.key_heads = 16, .value_heads = 16, .key_size = 128, .value_size = 128};
  const Tensor y = b.real({kBatch, b.length(), spec.values()}), dy = b.real(y.shape());
  const DeltaRuleInput input{.qkv = b.real({kBatch, b.length(), spec.columns()}),
                             .gates = b.real({kBatch, b.length(), 2 * spec.value_heads}),
                             .log_rate = b.f32({spec.value_heads}),
                             .step_bias = b.f32({spec.value_heads})};
  const DeltaRuleGradients gradients{.qkv = b.real(input.qkv.shape()),
                                     .gates = b.real(input.gates.shape()),
                                     .log_rate = b.f32({spec.value_heads}),
                                     .step_bias = b.f32({spec.value_heads})};
  const double with_state = product_of(b.rows(), spec.values(), spec.key_size),
               within_chunk = product_of(b.rows(), spec.values(), 64);
  b.product("delta_rule_scan_forward", 0, 3 * with_state + 4 * within_chunk,
            [&] { delta_rule_scan_forward(y, Tensor(), input, spec, b.stream()); });
  b.product("delta_rule_scan_backward", 0, 8 * with_state + 11 * within_chunk,
            [&] { delta_rule_scan_backward(gradients, dy, Tensor(), input, spec, b.stream()); });
  const Tensor state = b.f32({1, spec.value_heads, spec.key_size, spec.value_size}),
               text = Tensor::zeros({1}, DType::kI32, MemoryKind::kData, b.stream()),
               qkv = b.real({1, spec.columns()}), gates = b.real({1, 2 * spec.value_heads}),
               out = b.real({1, spec.values()});
  b.traffic("one token: delta_rule_scan_step", 0, 2 * bytes_of({state}), [&] {
    delta_rule_scan_step(out, state, qkv, gates, input.log_rate, input.step_bias, text, spec,
                         b.stream());
  });
}

/// The mixers of granite-4.0-h-350m (heads of 32 channels) and mamba2-130m (heads of 64 channels).
void state_space(Benchmark& b, const std::string& heads_of, std::int64_t head_size) {
  const StateSpaceSpec spec{.heads = 1536 / head_size, .head_size = head_size, .state_size = 128};
  const Tensor y = b.real({kBatch, b.length(), spec.values()}), dy = b.real(y.shape());
  const StateSpaceInput input{.values = b.real({kBatch, b.length(), spec.columns()}),
                              .steps = b.real({kBatch, b.length(), spec.heads}),
                              .skip = b.f32({spec.heads})};
  const StateSpaceDecay decay{b.f32({spec.heads}), b.f32({spec.heads})};
  const StateSpaceGradients gradients{.values = b.real(input.values.shape()),
                                      .steps = b.real(input.steps.shape()),
                                      .skip = b.f32({spec.heads}),
                                      .log_rate = b.f32({spec.heads}),
                                      .step_bias = b.f32({spec.heads})};
  const double with_state = product_of(b.rows(), spec.values(), spec.state_size),
               half_of_chunk = product_of(b.rows(), spec.values(), 32);
  b.product(("state_space_scan_forward, " + heads_of).c_str(), 0, 2 * with_state + half_of_chunk,
            [&] { state_space_scan_forward(y, Tensor(), input, decay, spec, b.stream()); });
  b.product(
      ("state_space_scan_backward, " + heads_of).c_str(), 0, 5 * with_state + 2 * half_of_chunk,
      [&] { state_space_scan_backward(gradients, dy, Tensor(), input, decay, spec, b.stream()); });
  const Tensor state = b.f32({1, spec.heads, spec.head_size, spec.state_size}),
               text = Tensor::zeros({1}, DType::kI32, MemoryKind::kData, b.stream()),
               values = b.real({1, spec.columns()}), steps = b.real({1, spec.heads}),
               out = b.real({1, spec.values()});
  b.traffic(
      ("one token: state_space_scan_step, " + heads_of).c_str(), 0, 2 * bytes_of({state}), [&] {
        state_space_scan_step(out, state, values, steps, input.skip, decay, text, spec, b.stream());
      });
}

/// The kernels of a mixer of 1,536 channels other than the scan.
void state_space_rows(Benchmark& b) {
  constexpr std::int64_t kValues = 1536, kConvolved = kValues + 256;
  const GradientMode overwrite = GradientMode::kOverwrite;
  const Tensor product = b.real({kBatch, b.length(), kValues + kConvolved + 48}),
               dproduct = b.real(product.shape()), y = b.real({kBatch, b.length(), kConvolved}),
               weight = b.f32({kConvolved, 4}), bias = b.f32({kConvolved}),
               dweight = b.f32(weight.shape()), dbias = b.f32(bias.shape());
  b.traffic("causal_convolution_forward", 0, 2 * bytes_of({y}), [&] {
    causal_convolution_forward(y, product, kValues, weight, bias, Tensor(), Tensor(), {},
                               b.stream());
  });
  b.traffic("causal_convolution_backward", 0, 3 * bytes_of({y}), [&] {
    causal_convolution_backward(dproduct, dweight, dbias, overwrite, Tensor(), y, product, kValues,
                                weight, bias, Tensor(), Tensor(), {}, b.stream());
  });
  const Shape flat{b.rows(), product.size(2)};
  const Tensor gate = product.view(flat), dgate = dproduct.view(flat),
               x = b.real({b.rows(), kValues}), normed = b.real(x.shape()), gain = b.f32({kValues}),
               dgain = b.f32({kValues});
  b.traffic("gated_norm_forward", 0, 3 * bytes_of({x}),
            [&] { gated_norm_forward(normed, x, gate, 0, gain, {}, b.stream()); });
  b.traffic("gated_norm_backward", 0, 5 * bytes_of({x}), [&] {
    gated_norm_backward(normed, dgate, dgain, overwrite, normed, x, gate, 0, gain, {}, b.stream());
  });
}

}  // namespace

int main(int count, char** arguments) {
  const bool bf16 = count > 1 && std::strcmp(arguments[1], "bf16") == 0;
  const std::int64_t length = count > 2 ? std::atoll(arguments[2]) : 256;
  Benchmark benchmark(bf16 ? DType::kBF16 : DType::kF32, length, count > 3 ? arguments[3] : "");
  linear(benchmark, "qkv", 3 * kChannels, kChannels, false);
  linear(benchmark, "projection", kChannels, kChannels, true);
  linear(benchmark, "up", 4 * kChannels, kChannels, false);
  linear(benchmark, "down", kChannels, 4 * kChannels, true);
  head(benchmark);
  attention(benchmark, "", kLayers, kHeads);
  attention(benchmark, ", blocks", 0, in_blocks());
  rows(benchmark);
  optimizer(benchmark);
  orthogonalizer(benchmark);
  benchmark.print_total();
  generation(benchmark);
  grouped(benchmark, 1024, 1024);
  delta_rule(benchmark);
  state_space(benchmark, "48 heads", 32);
  state_space(benchmark, "24 heads", 64);
  state_space_rows(benchmark);
  return 0;
}
