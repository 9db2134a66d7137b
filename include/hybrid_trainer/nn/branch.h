#pragma once

#include <memory>
#include <optional>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/linear.h"

namespace hybrid_trainer {

/// How a block's two branches follow each other.
enum class BlockOrder {
  kSequential,  // x += attention(ln_1(x)); x += mlp(ln_2(x))
  kParallel,    // x += attention(ln_1(x)) + mlp(ln_2(x)) (GPT-NeoX; Black et al. 2022)
};

class RotaryTable;

enum class NormKind {
  kLayer,                  // LayerNorm
  kRootMeanSquare,         // RmsNorm
  kRootMeanSquareOnePlus,  // RmsNorm with gain 1 + weight
};

struct BlockSpec {
  std::int64_t width = 0;  // C of the residual stream
  int heads = 1;
  std::int64_t head_size = 0;    // of each query, key and value
  std::int64_t inner_width = 0;  // of the feed-forward branch
  bool biases = true;            // of the products
  float dropout = 0;             // on the two branches, before they join the residual stream
  BlockOrder order = BlockOrder::kSequential;
  float norm_epsilon = 1e-5f;
  NormKind norm = NormKind::kLayer;
  int key_heads = 0;   // of keys and values; 0: as many as `heads`, which they divide
  bool gated = false;  // feed-forward: GatedFeedForward instead of FeedForward
  kernels::Gate gate = kernels::Gate::kSilu;
  std::optional<bool> output_bias{};          // of attention's projection; left out: as `biases`
  std::optional<bool> feed_forward_biases{};  // likewise
  bool query_key_norm = false;  // each head's query and key normed by the root of the mean square
  bool sandwich = false;  // each branch's result is normed before it joins the residual stream
  float attention_scale = 0, attention_cap = 0;  // see kernels::AttentionSpec
  std::int64_t window = 0;                       // likewise
  RotaryTable* rotary = nullptr;  // turns queries and keys by their positions; outlives the block

  int all_heads() const { return heads + 2 * (key_heads == 0 ? heads : key_heads); }
};

/// What a branch keeps between tokens while texts are generated.
struct BranchState {
  virtual ~BranchState() = default;
  /// Makes room for so many tokens of each text, and keeps what it holds.
  virtual void grow(std::int64_t tokens, const Stream& stream) = 0;
};

/// What a state has room for.
struct TextRoom {
  std::int64_t texts = 1;
  std::int64_t tokens = 0;  // of each text
};

/// Which texts of a state tokens follow, at the positions of Pass::positions.
struct DecodeTexts {
  std::int64_t begun = 0;  // where `each` is undefined: the one that begins with all of the tokens
  Tensor each{};           // (B·T) i32, each token's; where there are several, T = 1
};

/// A branch of a block: y = residual + projection(f(x)), x and y (B, T, C). The last product adds
/// the residual, so that the sum takes no pass over memory of its own.
class Branch {
 public:
  virtual ~Branch() = default;
  /// `residual`: shape of y, or undefined.
  virtual Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                         const Stream& stream) = 0;
  /// Returns the gradient of x; that of the residual is dy.
  virtual Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) = 0;
  /// Generation: forward of tokens that follow those that `state` has seen of their texts.
  virtual Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                        BranchState* state, const Pass& pass, const Stream& stream) = 0;
  /// Null for a branch that keeps nothing.
  virtual std::unique_ptr<BranchState> make_state(TextRoom, DType, const Stream&) const {
    return nullptr;
  }
  virtual void visit_parameters(const ParameterVisitor& visit) = 0;
  virtual void visit_linears(const LinearVisitor& visit) = 0;
  virtual Linear& projection() = 0;
};

}  // namespace hybrid_trainer
