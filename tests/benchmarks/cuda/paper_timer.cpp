#include "tests/benchmarks/cuda/paper_timer.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer::benchmarks {
namespace {

/// Peak rates of dense products without sparsity, and of the SXM modules' memory, reads and writes
/// together. Source: NVIDIA's data sheets of A100 (80 GB), H100 and H200.
Card card(const char* name, double bf16_tera, double f32_tera, double memory_giga) {
  const double memory = memory_giga * 1e9;
  return {name, {bf16_tera * 1e12, f32_tera * 1e12, memory, memory, memory}};
}

const std::vector<Card>& cards() {
  static const std::vector<Card> all{card("a100", 312, 19.5, 2039), card("h100", 989, 67, 3350),
                                     card("h200", 989, 67, 4800)};
  return all;
}

/// Applies to kernels whose name contains the text; the first match counts.
struct Expected {
  const char* text;
  double share;
};

}  // namespace

Card card_of(const std::string& name) {
  for (const Card& known : cards()) {
    if (known.name == name) return known;
  }
  throw UsageError(concat("--paper: no data sheet of ", name, "; known: a100, h100, h200"));
}

double expected_share(const Kernel& kernel) {
  // Large cuBLASLt products reach 570 to 640 of 989 TFLOP/s on an H100, the least with f32 outputs.
  // Attention by mma.sync: FlashAttention-2 reaches 229 TFLOP/s forward there (head size 64, 1,024
  // keys, causal). The backward estimate, 17 to 20 ms a step, is derived in
  // attention_joint_backward_cuda.cu. Memory-bound kernels reach the rate of copies (0.9), and less
  // if they reduce or pass over many arrays.
  static constexpr Expected kProducts[] = {
      {"attention_forward", 0.20}, {"attention_backward", 0.17}, {"dw", 0.58}, {"", 0.63}};
  static constexpr Expected kMoves[] = {
      {"layer_norm_backward", 0.78}, {"cross entropy", 0.86}, {"adamw", 0.75}, {"", 0.80}};
  if (kernel.limit == Limit::kProduct) {
    for (const Expected& expected : kProducts) {
      if (kernel.name.find(expected.text) != std::string::npos) return expected.share;
    }
  }
  for (const Expected& expected : kMoves) {
    if (kernel.name.find(expected.text) != std::string::npos) return expected.share;
  }
  return 1;
}

PaperTimer::PaperTimer(Card card, std::string only, const Stream& stream)
    : KernelTimer(sizes_of("full"), std::move(only), stream), card_(std::move(card)) {}

Timing PaperTimer::timed(const Kernel& kernel, const std::function<Work()>& make) const {
  const Work work = make();
  Timing timing{.kernel = kernel, .problem = ""};
  timing.amount = work.amount;
  timing.bytes = bytes_of(kernel, work);
  timing.limit_rate = card_.rates.of(kernel);
  timing.seconds = work.amount / (timing.limit_rate * expected_share(kernel));
  return timing;
}

}  // namespace hybrid_trainer::benchmarks
