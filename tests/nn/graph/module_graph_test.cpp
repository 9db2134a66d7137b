#include "hybrid_trainer/nn/module_graph.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "tests/nn/graph/mixed_network.h"

namespace hybrid_trainer::graph {
namespace {

using namespace hybrid_trainer::testing;

std::function<void(const ParameterVisitor&)> parameters_of(ModuleGraph& network) {
  return [&](const ParameterVisitor& visit) { network.visit_parameters(visit); };
}

/// Counts the elements that it keeps.
class KeepingTape final : public PlainTape {
 public:
  using PlainTape::PlainTape;
  std::int64_t numbers = 0;

 private:
  Tensor pack(const Activation& activation, const Stream&) override {
    numbers += activation.tensor.elements();
    return activation.tensor;
  }
};

class MixedNetwork : public ::testing::Test {
 protected:
  struct Step {
    double loss = 0;
    std::vector<std::vector<double>> gradients{};
    std::int64_t kept = 0;
    bool operator==(const Step& other) const {
      return loss == other.loss && gradients == other.gradients;
    }
  };

  ModuleGraph make(float dropout = 0) const { return {mixed_nodes(dropout), 3, stream_}; }
  /// Runs one step; returns the loss and the gradients of the trainable parameters.
  Step step(ModuleGraph& network, const Batch& batch, const Pass& pass = {},
            float gradient_scale = 1) const {
    for (Parameter* parameter : all_parameters(network)) parameter->compute_in(pass.dtype, stream_);
    const StepGradients gradients(parameters_of(network), stream_);
    KeepingTape tape(pass);
    Step made;
    made.loss =
        kernels::wait_for_value(network.forward(batch, gradient_scale, tape, stream_), stream_);
    made.kept = tape.numbers;
    network.backward(batch, tape, stream_);
    EXPECT_TRUE(tape.empty()) << "backward left something on the tape";
    EXPECT_EQ(tape.pass().recompute, pass.recompute) << "the pass must be unchanged";
    for (Parameter* parameter : trainable_parameters(network)) {
      EXPECT_TRUE(parameter->has_gradient()) << parameter->name();
      made.gradients.push_back(values_of(parameter->gradient()));
    }
    return made;
  }
  const Stream stream_ = test_stream();
  const Batch batch_ = mixed_batch(3, stream_);
};

TEST_F(MixedNetwork, GradientsMatchFiniteDifferences) {
  ModuleGraph network = make(0.2f);
  Differentiable f;
  f.pass.seed = 5;
  f.visit_parameters = [&](const ParameterVisitor& visit) {
    for (Parameter* parameter : trainable_parameters(network)) visit(*parameter);
  };
  f.forward = [&](ActivationTape& tape) {
    return kernels::wait_for_value(network.forward(batch_, 1, tape, stream_), stream_);
  };
  f.backward = [&](ActivationTape& tape) {
    network.backward(batch_, tape, stream_);
    return Tensor{};
  };
  randomize(f.visit_parameters, stream_);
  expect_gradients_match(f, stream_, {.step = 1e-2, .relative = 8e-3, .directions = 2});
}

TEST_F(MixedNetwork, InitializesBySeedAndNamesWeightsByPart) {
  ModuleGraph one = make(), same = make(), other(mixed_nodes(), 4, stream_);
  EXPECT_EQ(step(one, batch_), step(same, batch_));
  EXPECT_NE(step(one, batch_).loss, step(other, batch_).loss);
  std::set<std::string> names;
  for (Parameter* parameter : all_parameters(one)) names.insert(parameter->name());
  EXPECT_EQ(names.size(), all_parameters(one).size()) << "names must be unique";
  for (const char* name :
       {"video.cnn.0.weight", "video.tokens.2.weight", "series.blocks.h.2.attn.c_attn.weight",
        "text.blocks.h.0.cross.c_kv.bias", "text.blocks.ln_f.weight", "text.words.0.weight",
        "speed.mean.1.0.bias", "series.embed.1.weight", "grid.head.weight",
        "series.blocks.relative.weight", "text.blocks.relative.weight"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(all_parameters(one).size(), trainable_parameters(one).size() + 1)
      << "all but the sinusoids";
}

TEST_F(MixedNetwork, RecomputationIsBitIdentical) {
  ModuleGraph network = make(0.3f);
  const Step whole = step(network, batch_, {.seed = 7});
  std::int64_t before = whole.kept;
  for (const double share : {0.3, 0.6, 1.0}) {
    const Step again = step(network, batch_, {.seed = 7, .recompute = share});
    EXPECT_EQ(again, whole) << share;
    EXPECT_LT(again.kept, before) << share;
    before = again.kept;
  }
  EXPECT_EQ(network.recomputed_flops(batch_, 0), 0);
  EXPECT_GT(network.recomputed_flops(batch_, 1), network.recomputed_flops(batch_, 0.3));
}

TEST_F(MixedNetwork, RecomputesConfiguredSharesOfParts) {
  ModuleGraph network = make();
  const Step whole = step(network, batch_);
  network.set_parts({{.pattern = "video.*", .recompute = 1}});
  const Step video = step(network, batch_);
  EXPECT_EQ(video, whole);
  EXPECT_LT(video.kept, whole.kept);
  const Step rest = step(network, batch_, {.recompute = 1});
  network.set_parts({{.pattern = "video.*", .recompute = 0}});
  const Step but_video = step(network, batch_, {.recompute = 1});
  EXPECT_EQ(but_video, whole);
  EXPECT_GT(but_video.kept, rest.kept) << "the parts' settings override the run's";
  // A share of a stack recomputes some of its blocks.
  std::int64_t before = whole.kept;
  for (const double share : {0.4, 0.7, 1.0}) {
    network.set_parts({{.pattern = "series.blocks", .recompute = share}});
    const Step blocks = step(network, batch_);
    EXPECT_EQ(blocks, whole) << share;
    EXPECT_LT(blocks.kept, before) << share;
    before = blocks.kept;
  }
  network.set_parts({});
  EXPECT_EQ(step(network, batch_).kept, whole.kept);
}

TEST_F(MixedNetwork, ComputesPartsInConfiguredDtype) {
  ModuleGraph network = make();
  const Step exact = step(network, batch_),
             rounded = step(network, batch_, {.dtype = DType::kBF16});
  EXPECT_NE(exact.loss, rounded.loss);
  network.set_parts({{.pattern = "*", .dtype = DType::kF32}});
  EXPECT_EQ(step(network, batch_, {.dtype = DType::kBF16}), exact);
  network.set_parts({{.pattern = "*", .dtype = DType::kBF16}});
  EXPECT_EQ(step(network, batch_), rounded);
  network.set_parts({{.pattern = "video.*", .dtype = DType::kBF16},
                     {.pattern = "text.*", .recompute = 1, .dtype = DType::kBF16}});
  const Step mixed = step(network, batch_);
  EXPECT_NE(mixed.loss, exact.loss);
  EXPECT_NEAR(mixed.loss, exact.loss, 0.02 * exact.loss);
  for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
    EXPECT_LT(relative_error(mixed.gradients[i], exact.gradients[i]), 0.2)
        << trainable_parameters(network)[i]->name();
  }
  network.set_parts({});
  EXPECT_EQ(step(network, batch_), exact);
}

TEST_F(MixedNetwork, MicroBatchesMatchWholeBatchWithDropout) {
  ModuleGraph network = make(0.3f);
  const Batch whole_batch = mixed_batch(4, stream_);
  const Step whole = step(network, whole_batch, {.seed = 2});
  std::vector<Step> halves;
  for (std::int64_t i = 0; i < 2; ++i)
    halves.push_back(step(network, whole_batch.examples(2 * i, 2 * i + 2),
                          {.seed = 2, .first_token = 2 * i * kWords}, 0.5f));
  EXPECT_NEAR((halves[0].loss + halves[1].loss) / 2, whole.loss, 1e-6);
  for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
    std::vector<double> sum = halves[0].gradients[i];
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += halves[1].gradients[i][k];
    EXPECT_LT(relative_error(sum, whole.gradients[i]), 1e-5)
        << trainable_parameters(network)[i]->name();
  }
}

TEST_F(MixedNetwork, FrozenPartsKeepNoActivations) {
  ModuleGraph network = make();
  const Step all = step(network, batch_);
  std::vector<std::vector<double>> wanted;
  std::size_t i = 0;
  for (Parameter* parameter : trainable_parameters(network)) {
    const std::vector<double>& gradient = all.gradients[i++];
    if (parameter->name().starts_with("text.")) {
      wanted.push_back(gradient);
    } else {
      parameter->freeze();
    }
  }
  const double flops = network.step_flops(batch_);
  const Step text = step(network, batch_);
  EXPECT_EQ(text.gradients, wanted);
  EXPECT_EQ(text.loss, all.loss);
  EXPECT_LT(text.kept, all.kept / 2 + all.kept / 4);
  EXPECT_LT(flops, 0.7 * make().step_flops(batch_));
}

TEST_F(MixedNetwork, ExposesLinearMapsToAdapters) {
  ModuleGraph network = make();
  std::set<std::string> names;
  network.visit_linears([&](Linear& linear) {
    names.insert(linear.weight().name());
    linear.weight().freeze();
    linear.set_adapter({{"a", 0, linear.weight().shape()[0]}}, {.rank = 2}, stream_);
  });
  EXPECT_EQ(names.size(), 3 * 4 + 2 * 7 + 4u);
  EXPECT_TRUE(names.contains("speed.mean.1.0.weight"));
  const Step adapted = step(network, batch_);
  EXPECT_EQ(adapted.loss,
            step(*std::make_unique<ModuleGraph>(mixed_nodes(), 3, stream_), batch_).loss)
      << "new adapters have no effect";
}

TEST_F(MixedNetwork, ListsPartsInExecutionOrder) {
  const ModuleGraph network = make();
  const std::vector<std::string> parts = network.parts();
  const std::vector<std::string> first(parts.begin(), parts.begin() + 7);
  EXPECT_EQ(first, (std::vector<std::string>{"video.cnn.*", "video.tokens.*", "series.embed.*",
                                             "series.blocks.h.0.*", "series.blocks.h.1.*",
                                             "series.blocks.h.2.*", "series.blocks.*"}));
  EXPECT_EQ(std::ranges::count(parts, "seen.*"), 0) << "it has no weights";
}

TEST_F(MixedNetwork, MeasuresEachLossByName) {
  ModuleGraph network = make();
  const Pass pass{.training = false};
  ForwardOnlyTape tape(pass);
  const double loss = kernels::wait_for_value(network.forward(batch_, 1, tape, stream_), stream_);
  const std::vector<Measure> measures = network.wait_for_measures(batch_, pass, stream_);
  const auto mean = [&](const std::string& name) {
    const auto found = std::ranges::find(measures, name, &Measure::name);
    EXPECT_NE(found, measures.end()) << name;
    return found == measures.end() ? NAN : found->sum / found->count;
  };
  EXPECT_NEAR(0.7 * mean("text.loss") + 0.5 * mean("speed.loss") + mean("grid.loss"), loss, 1e-5);
  for (const char* name :
       {"text.accuracy", "grid.precision", "grid.recall", "grid.f1", "grid.class_accuracy"}) {
    EXPECT_GE(mean(name), 0) << name;
    EXPECT_LE(mean(name), 1) << name;
  }
  EXPECT_GT(mean("grid.box_error"), 0);
  EXPECT_LE(r_squared(measures, "speed"), 1);
  EXPECT_THROW(r_squared(measures, "text"), Error);
}

/// The planner's simulated device computes nothing but takes the memory of a real one.
TEST_F(MixedNetwork, UsesSameMemoryOnSimulatedDevice) {
  const auto peak = [&](const Stream& stream, double share) {
    ModuleGraph network(mixed_nodes(0.1f), 3, stream);
    const Batch batch = stream.device().simulated ? network.empty_batch(3, stream, kWords) : batch_;
    const StepGradients gradients(parameters_of(network), stream);
    stream.pool()->reset_peaks();
    PlainTape tape(Pass{.recompute = share});
    network.forward(batch, 1, tape, stream);
    network.backward(batch, tape, stream);
    return stream.pool()->use().peak[static_cast<std::size_t>(MemoryKind::kActivations)];
  };
  for (const double share : {0.0, 0.5, 1.0}) {
    const std::size_t simulated = peak(Stream(make_device_pool({.simulated = true})), share);
    EXPECT_EQ(peak(test_stream(), share), simulated) << share;
    EXPECT_GT(simulated, 0u);
  }
}

TEST_F(MixedNetwork, ReturnsResultOfPart) {
  ModuleGraph network = make();
  const Pass pass{.training = false};
  EXPECT_EQ(network.result_of("seen", batch_, pass, stream_).shape(), (Shape{3, 8 + 2 + 6, 8}));
  const Tensor head = network.result_of("speed.head", batch_, pass, stream_);
  EXPECT_EQ(head.shape(), (Shape{3, 2}));
  Batch less(std::vector<NamedTensor>{{"series", batch_.at("series")}});
  EXPECT_EQ(network.result_of("series.blocks", less, pass, stream_).shape(), (Shape{3, 6, 8}))
      << "requires only the tensors that it reads";
  EXPECT_THROW(network.result_of("seen.all", batch_, pass, stream_), ConfigError);
}

TEST_F(MixedNetwork, EmptyBatchMatchesRealBatch) {
  const ModuleGraph network = make();
  const Batch empty = network.empty_batch(3, stream_, kWords);
  ASSERT_EQ(empty.tensors().size(), batch_.tensors().size());
  for (const auto& [name, tensor] : batch_.tensors()) {
    EXPECT_EQ(empty.at(name).shape(), tensor.shape()) << name;
    EXPECT_EQ(empty.at(name).dtype(), tensor.dtype()) << name;
  }
}

/// The pass's smoothing applies unless the network sets its own. Measurements use no smoothing.
TEST(ModuleGraph, SmoothsTargetsByPassOrOwnSetting) {
  const Stream stream = test_stream();
  const auto nodes = [](float own) {
    return std::vector<Node>{input("x", {4}), part("head", "x", linear(3)),
                             cross_entropy("kind", "head", "y", {.smoothing = own}),
                             squared_error("size", "head", "z")};
  };
  ModuleGraph network(nodes(0), 1, stream), own(nodes(0.3f), 1, stream);
  Batch batch({{"x", normal_tensor({5, 4}, 1, stream)},
               {"y", random_tokens({5}, 3, 2, stream)},
               {"z", normal_tensor({5, 3}, 3, stream)}},
              1);
  const auto loss = [&](ModuleGraph& of, float smoothing) {
    ForwardOnlyTape tape(Pass{.label_smoothing = smoothing});
    return kernels::wait_for_value(of.forward(batch, 1, tape, stream), stream);
  };
  EXPECT_EQ(loss(network, 0.3f), loss(own, 0));
  EXPECT_EQ(loss(own, 0.1f), loss(own, 0)) << "the network's own smoothing applies";
  EXPECT_NE(loss(network, 0), loss(own, 0));
  const double plain = mean_of(network.wait_for_measures(batch, {.training = false}, stream),
                               "kind.loss"),
               squares = mean_of(network.wait_for_measures(batch, {.training = false}, stream),
                                 "size.loss");
  EXPECT_NEAR(plain + squares, loss(network, 0), 1e-6);
}

/// The first layer computes no input gradient: three products instead of four.
TEST(ModuleGraph, CountsFlopsOfProducts) {
  const Stream stream = test_stream();
  ModuleGraph network(
      {input("x", {4, 4, 3}), part("conv", "x", convolution({.outputs = 5, .window = around(3)})),
       part("head", "conv", sequence({flatten(), linear(2)})), squared_error("loss", "head", "y")},
      1, stream);
  const double conv = 2.0 * 16 * 5 * 27, head = 2.0 * 80 * 2;
  EXPECT_EQ(network.step_flops(network.empty_batch(6, stream)), 6 * (2 * conv + 3 * head));
  EXPECT_EQ(network.recomputed_flops(network.empty_batch(6, stream), 1), 0)
      << "both keep only their inputs";
}

/// Message of the E that `make` throws.
template <class E>
std::string refusal(const std::function<void()>& make) {
  try {
    make();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return concat("another error: ", error.what());
  }
  return "accepted";
}

TEST(ModuleGraph, ShapeMismatchNamesBothParts) {
  const Stream stream = test_stream();
  const auto shapes = [&](std::vector<Node> nodes) {
    return refusal<ShapeMismatch>([&] { ModuleGraph(std::move(nodes), 1, stream); });
  };
  EXPECT_EQ(shapes({input("x", {4, 8}), input("z", {4, 6}), part("a", "x", linear(8)),
                    part("b", "z", linear(6)), concatenate("both", {"a", "b"}),
                    squared_error("loss", "both", "y")}),
            "network: part both reads a (1, 4, 8) and b (1, 4, 6), whose shapes do not match: "
            "both: its inputs are (1, 4, 8) and (1, 4, 6), want the same shape except in dimension "
            "1, along which they are joined");
  EXPECT_NE(shapes({input("x", {4}), part("conv", "x", convolution({.outputs = 2})),
                    squared_error("loss", "conv", "y")})
                .find("network: part conv reads x (1, 4), whose shapes do not match: conv: its "
                      "input is (1, 4), want one to three spatial dimensions and channels"),
            std::string::npos);
  EXPECT_NE(
      shapes({input("x", {5, 6}), transformer("blocks", "x", {.heads = 4}),
              squared_error("loss", "blocks", "y")})
          .find("network: part blocks reads x (1, 5, 6), whose shapes do not match: its 4 heads "
                "do not divide 6 channels"),
      std::string::npos);
  EXPECT_NE(shapes({token_input("words", {4}), part("a", "words", linear(3)),
                    squared_error("loss", "a", "y")})
                .find("its input is tokens, so its first module must be an embedding table"),
            std::string::npos);
  EXPECT_NE(shapes({input("x", {4}), part("a", "x", linear(6)),
                    detection("grid", "a", "kinds", "boxes", {.classes = 3})})
                .find("network: loss grid reads a (1, 6): its predictions are (1, 6), want (batch, "
                      "…, 8)"),
            std::string::npos);
}

TEST(ModuleGraph, RejectsBatchesOfOtherShapes) {
  const Stream stream = test_stream();
  ModuleGraph network({input("x", {4}), part("a", "x", linear(2)), squared_error("loss", "a", "y")},
                      1, stream);
  const auto forward = [&](const Shape& x, const Shape& y, DType dtype = DType::kF32) {
    const Batch batch({{"x", Tensor::zeros(x, dtype, MemoryKind::kData, stream)},
                       {"y", Tensor::zeros(y, DType::kF32, MemoryKind::kData, stream)}});
    ForwardOnlyTape tape{Pass{}};
    network.forward(batch, 1, tape, stream);
  };
  forward({3, 4}, {3, 2});
  EXPECT_EQ(refusal<ShapeMismatch>([&] {
              forward({3, 5}, {3, 2});
            }),
            "network: x is (3, 5) f32 in the batch; a, which reads it, wants (3, 4) f32");
  EXPECT_EQ(refusal<ShapeMismatch>([&] {
              forward({3, 4}, {3, 1});
            }),
            "network: y is (3, 1) f32 in the batch; loss, which reads it, wants (3, 2) f32");
  EXPECT_NE(refusal<ShapeMismatch>([&] {
              forward({3, 4}, {3, 2}, DType::kBF16);
            }).find("x is (3, 4) bf16"),
            std::string::npos);
}

TEST(ModuleGraph, RejectsInconsistentNodes) {
  const Stream stream = test_stream();
  const auto list = [&](std::vector<Node> nodes) {
    return refusal<ConfigError>([&] { ModuleGraph(std::move(nodes), 1, stream); });
  };
  const Node x = input("x", {4}), a = part("a", "x", linear(2)),
             loss = squared_error("loss", "a", "y");
  EXPECT_EQ(list({x, part("a", "y", linear(2)), loss}),
            "network: a reads y, which is not an earlier tensor or part; valid: x");
  EXPECT_EQ(list({x, a, part("a", "x", linear(2)), loss}),
            "network: got two entries a, want different names");
  EXPECT_EQ(list({x, a}),
            "network: no part or loss reads a, so it has no effect; leave it out, or add a part or "
            "loss that reads it");
  EXPECT_EQ(list({}), "network: it has no loss, want at least one");
  EXPECT_EQ(list({x, a, squared_error("loss", "a", "y", 0)}),
            "network: the weight of loss is 0, want a number above 0");
  EXPECT_EQ(list({x, squared_error("loss", "x", "y")}),
            "network: loss loss reads x, a tensor of the batch; want a part's result");
  EXPECT_EQ(list({x, a, loss, Node{.name = "none"}}),
            "network: none sets 0 of tensor, part and loss; want exactly one");
  EXPECT_EQ(refusal<ConfigError>([] { cross_entropy("c", "a", "y", {.smoothing = 1}); }),
            "c.smoothing: got 1, want at least 0 and below 1");
}

TEST(ModuleGraph, RejectsInvalidPartSettings) {
  const Stream stream = test_stream();
  ModuleGraph network({input("x", {4}), part("video.cnn", "x", linear(3)),
                       part("head", "video.cnn", linear(2)), squared_error("loss", "head", "y")},
                      1, stream);
  const auto set = [&](std::vector<PartSettings> settings) {
    return refusal<ConfigError>([&] { network.set_parts(settings); });
  };
  EXPECT_EQ(set({{.pattern = "audio.*", .recompute = 1}}),
            "parts: audio.* matches no part; valid: video.cnn, head");
  EXPECT_EQ(set({{.pattern = "loss", .recompute = 1}}),
            "parts: loss matches no part; valid: video.cnn, head")
      << "a loss is not a part";
  EXPECT_EQ(
      set({{.pattern = "video.*", .recompute = 1}, {.pattern = "*cnn", .dtype = DType::kF32}}),
      "parts: video.cnn is matched by video.* and by *cnn; want one pattern per part");
  EXPECT_EQ(set({{.pattern = "head", .recompute = 1.5}}),
            "parts: head: recompute is 1.5, want 0 to 1");
  EXPECT_EQ(set({{.pattern = "head", .dtype = DType::kI32}}),
            "parts: head: got i32, want f32 or bf16");
  EXPECT_EQ(set({{.pattern = "video.cnn.*", .recompute = 1}, {.pattern = "head"}}), "accepted");
}

}  // namespace
}  // namespace hybrid_trainer::graph
