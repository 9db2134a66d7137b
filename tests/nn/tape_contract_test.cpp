// Contract tests of tapes on a transformer block; each row of kTapes is a tape.
#include <gtest/gtest.h>

#include <set>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/module.h"
#include "tests/support/gradient_check.h"
#include "tests/support/layers.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kPositions = 8, kChannels = 16;

/// Stores lossy activations as bf16.
class CompressingTape final : public PlainTape {
 public:
  using PlainTape::PlainTape;

 private:
  Tensor pack(const Activation& activation, const Stream& stream) override {
    const Tensor& x = activation.tensor;
    if (!activation.may_be_lossy || x.dtype() != DType::kF32) return x;
    const Tensor half = Tensor::empty(x.shape(), DType::kBF16, x.kind(), stream);
    kernels::cast(half, x, stream);
    return half;
  }
  Tensor unpack(const Tensor& kept, const Activation& activation, const Stream& stream) override {
    if (!activation.may_be_lossy) return kept;
    const Tensor x = Tensor::empty(kept.shape(), DType::kF32, kept.kind(), stream);
    kernels::cast(x, kept, stream);
    return x;
  }
};

/// Stores all activations in another pool.
class OffloadingTape final : public PlainTape {
 public:
  using PlainTape::PlainTape;
  std::size_t bytes() const { return host_.pool()->use().live_total; }
  int moves = 0;

 private:
  Tensor pack(const Activation& activation, const Stream& stream) override {
    ++moves;
    const Tensor away = Tensor::empty_like(activation.tensor, MemoryKind::kActivations, host_);
    copy(away, activation.tensor, stream);
    return away;
  }
  Tensor unpack(const Tensor& kept, const Activation&, const Stream& stream) override {
    const Tensor back = Tensor::empty_like(kept, MemoryKind::kActivations, stream);
    copy(back, kept, stream);
    return back;
  }
  const Stream host_{MemoryPool::create("host")};
};

enum class Kind { kPlain, kRebuilding, kCompressing, kOffloading, kCheckpointed };

struct TapeCase {
  const char* name;
  Kind kind;
  double bound;         // of the gradients' relative error; 0: same bits
  double memory_share;  // limit relative to the plain tape's device memory after forward
  friend std::ostream& operator<<(std::ostream& out, const TapeCase& c) { return out << c.name; }
};

constexpr TapeCase kTapes[] = {
    {"Plain", Kind::kPlain, 0, 1},
    {"Rebuilding", Kind::kRebuilding, 0, 0.6},
    {"Compressing", Kind::kCompressing, 0.02, 0.7},
    {"Offloading", Kind::kOffloading, 0, 0.1},
    {"Checkpointed", Kind::kCheckpointed, 0, 0.1},
};

struct Result {
  std::vector<Tensor> gradients;  // of the input and of all weights
  std::size_t saved_bytes = 0;    // on the device, between forward and backward
};

class TapeContract : public ::testing::TestWithParam<TapeCase> {
 protected:
  std::unique_ptr<PlainTape> make_tape(Kind kind) {
    const Pass pass{.seed = 3, .step = 7};
    if (kind == Kind::kCompressing) return std::make_unique<CompressingTape>(pass);
    if (kind == Kind::kOffloading) return std::make_unique<OffloadingTape>(pass);
    const bool rebuilds = kind == Kind::kRebuilding;
    return std::make_unique<PlainTape>(pass, rebuilds ? Rebuild::kAttended : Rebuild::kNothing);
  }
  Result run(Kind kind) {
    ResidualBlock block("h.0", {.width = kChannels, .dropout = 0.2f}, plain_layer(kChannels, 2, 64),
                        1, stream_);
    CheckpointedModule checkpointed(block);
    Module* const module =
        kind == Kind::kCheckpointed ? static_cast<Module*>(&checkpointed) : &block;
    const auto visit_all = [&](const ParameterVisitor& visit) { module->visit_parameters(visit); };
    randomize(visit_all, stream_);
    const StepGradients step(visit_all, stream_);
    const auto tape = make_tape(kind);
    Tensor x = normal_tensor({2, kPositions, kChannels}, 5, stream_);
    const Tensor dy = normal_tensor(x.shape(), 6, stream_);
    const std::size_t before = stream_.pool()->use().live_total - x.bytes();
    module->forward(x, *tape, stream_);
    x = {};
    Result result;
    result.saved_bytes = stream_.pool()->use().live_total - before;
    result.gradients.push_back(module->backward(dy, *tape, stream_));
    EXPECT_TRUE(tape->empty());
    visit_all([&](Parameter& p) { result.gradients.push_back(clone(p.gradient(), stream_)); });
    return result;
  }
  const Stream stream_ = test_stream();
};

TEST_P(TapeContract, MatchesPlainTapeGradients) {
  const Result wanted = run(Kind::kPlain), got = run(GetParam().kind);
  for (std::size_t i = 0; i < wanted.gradients.size(); ++i) {
    if (GetParam().bound == 0) {
      EXPECT_TRUE(same_bits(got.gradients[i], wanted.gradients[i])) << i;
    } else {
      EXPECT_LT(relative_error(got.gradients[i], wanted.gradients[i]), GetParam().bound) << i;
    }
  }
  const double share =
      static_cast<double>(got.saved_bytes) / static_cast<double>(wanted.saved_bytes);
  EXPECT_LE(share, GetParam().memory_share);
}

INSTANTIATE_TEST_SUITE_P(All, TapeContract, ::testing::ValuesIn(kTapes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Tape, MovesSharedTensorOnce) {
  const Stream stream = test_stream();
  OffloadingTape tape{Pass{}};
  const Tensor x = normal_tensor({4, 6}, 1, stream);
  tape.save({ActivationRole::kAttentionOutput, x}, stream);
  tape.save({ActivationRole::kStatistics, normal_tensor({4}, 2, stream)}, stream);
  tape.save({ActivationRole::kProductInput, x.view({24}), true}, stream);
  EXPECT_EQ(tape.moves, 2);
  EXPECT_GE(tape.bytes(), x.bytes() + 4 * sizeof(float));
  const Tensor first = tape.take(stream);
  EXPECT_EQ(first.shape(), (Shape{24}));
  tape.take(stream);
  EXPECT_EQ(tape.take(stream).raw(), first.raw()) << "it was restored only once";
  EXPECT_EQ(tape.bytes(), 0u);
}

TEST(Tape, DistinguishesTensorsAtSameAddress) {
  const Stream stream = test_stream();
  OffloadingTape tape{Pass{}};
  const void* place = nullptr;
  for (int i = 0; i < 2; ++i) {
    const Tensor x = normal_tensor({4, 6}, static_cast<std::uint64_t>(i), stream);
    if (i == 1) {
      EXPECT_EQ(x.raw(), place) << "the pool returned different memory, so this tests nothing";
    }
    place = x.raw();
    tape.save({ActivationRole::kNormInput, x}, stream);
  }
  EXPECT_EQ(tape.moves, 2);
  EXPECT_TRUE(same_bits(tape.take(stream), normal_tensor({4, 6}, 1, stream)));
  EXPECT_TRUE(same_bits(tape.take(stream), normal_tensor({4, 6}, 0, stream)));
}

TEST(Tape, ExactSaveDoesNotReuseLossyCopy) {
  const Stream stream = test_stream();
  const Tensor x = normal_tensor({4, 6}, 1, stream);
  CompressingTape tape{Pass{}};
  tape.save({ActivationRole::kProductInput, x, true}, stream);
  tape.save({ActivationRole::kNormInput, x}, stream);
  EXPECT_TRUE(same_bits(tape.take(stream), x));
  EXPECT_FALSE(same_bits(tape.take(stream), x));
}

/// Records which activations may be lossy.
class WatchingTape final : public PlainTape {
 public:
  using PlainTape::PlainTape;
  std::set<ActivationRole> lossy, exact;

 private:
  Tensor pack(const Activation& activation, const Stream&) override {
    (activation.may_be_lossy ? lossy : exact).insert(activation.role);
    return activation.tensor;
  }
  Tensor unpack(const Tensor& kept, const Activation&, const Stream&) override { return kept; }
};

/// Most activation memory may be compressed, but not activations whose errors grow in backward.
TEST(Tape, CompressesOnlyErrorTolerantActivations) {
  const Stream stream = test_stream();
  const Attention::Spec attention{.width = kChannels, .heads = 2, .head_size = kChannels / 2};
  for (const LayerSpec& layer :
       {plain_layer(kChannels, 2, 64),
        layer_of<GatedFeedForward>(attention, {.width = kChannels, .intermediate_size = 64})}) {
    ResidualBlock block("h.0", {.width = kChannels}, layer, 1, stream);
    WatchingTape tape{Pass{}};
    block.forward(normal_tensor({2, kPositions, kChannels}, 5, stream), tape, stream);
    using Role = ActivationRole;
    EXPECT_EQ(tape.lossy, (std::set{Role::kProductInput, Role::kQueriesKeysValues,
                                    Role::kPreActivation, Role::kActivated}));
    EXPECT_EQ(tape.exact, (std::set{Role::kNormInput, Role::kStatistics, Role::kAttentionOutput}));
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
