#include "hybrid_trainer/nn/convolution.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "hybrid_trainer/nn/norm.h"
#include "src/nn/graph/modules.h"

namespace hybrid_trainer::graph {

namespace {

std::int64_t channels_of(const Shape& input) { return input[input.rank() - 1]; }

/// Numbers of dimensions, including the batch's, of the inputs that a module supports.
struct Ranks {
  int least, most;
  const char* what;
};
constexpr Ranks kPlaces{3, 5, "one to three spatial dimensions and channels"},
    kTokens{3, 3, "tokens and channels"};

/// Returns make(name, input, stream) as a maker that throws ShapeMismatch for unsupported inputs.
template <class Make>
ModuleMaker reading(const Ranks& ranks, Make make) {
  return [ranks, make = std::move(make)](const ModuleName& name, const Shape& input,
                                         const Stream& stream) -> std::unique_ptr<Module> {
    if (input.rank() < ranks.least || input.rank() > ranks.most)
      throw ShapeMismatch(concat(name.here, ": its input is ", input.text(), ", want ", ranks.what,
                                 ", with the batch first"));
    return make(name, input, stream);
  };
}

template <class M, class... Arguments>
ModuleMaker over_places(const Arguments&... arguments) {
  return reading(kPlaces, [=](const ModuleName&, const Shape&, const Stream&) {
    return std::make_unique<M>(arguments...);
  });
}

ModuleMaker position_table(PositionTable::Rows rows) {
  return reading({3, 5, "spatial dimensions or tokens, and channels"},
                 [=](const ModuleName& name, const Shape& input, const Stream& stream) {
                   const std::int64_t width = channels_of(input);
                   return std::make_unique<PositionTable>(name, input.elements() / width, width,
                                                          rows, stream);
                 });
}

ModuleMaker modules_of(std::vector<ModuleMaker> modules, bool adds_input) {
  return [modules = std::move(modules), adds_input](const ModuleName& name, const Shape& input,
                                                    const Stream& stream) {
    return std::make_unique<ModuleSequence>(name, modules, input, adds_input, stream);
  };
}

}  // namespace

ModuleMaker sequence(std::vector<ModuleMaker> modules) {
  return modules_of(std::move(modules), false);
}
ModuleMaker residual(std::vector<ModuleMaker> modules) {
  return modules_of(std::move(modules), true);
}

ModuleMaker linear(std::int64_t outputs, bool bias) {
  return reading({2, 5, "channels last"},
                 [=](const ModuleName& name, const Shape& input, const Stream& stream) {
                   return std::make_unique<Linear>(name, channels_of(input), outputs, stream, bias);
                 });
}

ModuleMaker convolution(const ConvolutionSpec& spec) {
  return reading(kPlaces, [=](const ModuleName& name, const Shape& input, const Stream& stream) {
    const Convolution::Spec of{.rank = input.rank() - 2,
                               .inputs = channels_of(input),
                               .outputs = spec.outputs,
                               .window = spec.window,
                               .groups = spec.groups,
                               .bias = spec.bias};
    return std::make_unique<Convolution>(name, of, stream);
  });
}

kernels::Window around(std::int64_t size, const kernels::SpatialSizes& stride) {
  const std::int64_t half = size / 2;
  return {.kernel = {size, size, size}, .stride = stride, .padding = {half, half, half}};
}

ModuleMaker group_norm(std::int64_t groups, float epsilon) {
  return reading(kPlaces, [=](const ModuleName& name, const Shape& input, const Stream& stream) {
    return std::make_unique<GroupNorm>(name, GroupNorm::Spec{channels_of(input), groups, epsilon},
                                       stream);
  });
}

ModuleMaker norm(const NormSpec& spec) {
  return [=](const ModuleName& name, const Shape& input, const Stream& stream) {
    return make_norm(name, channels_of(input), spec, stream);
  };
}

ModuleMaker activation(kernels::ActivationKind kind) {
  return [=](const ModuleName&, const Shape&, const Stream&) {
    return std::make_unique<ActivationFunction>(kind);
  };
}
ModuleMaker max_pooling(const kernels::Window& window) { return over_places<MaxPooling>(window); }
ModuleMaker mean_pooling(const kernels::Window& window, kernels::Divisor divisor) {
  return over_places<MeanPooling>(window, divisor);
}
ModuleMaker upsampling(const kernels::SpatialSizes& factors, kernels::Interpolation interpolation) {
  return over_places<Upsampling>(factors, interpolation);
}
ModuleMaker mean() { return over_places<GlobalMeanPooling>(); }

ModuleMaker patches(std::int64_t width, const kernels::SpatialSizes& patch) {
  return reading(kPlaces, [=](const ModuleName& name, const Shape& input, const Stream& stream) {
    const PatchEmbedding::Spec of{
        .rank = input.rank() - 2, .channels = channels_of(input), .width = width, .patch = patch};
    return std::make_unique<PatchEmbedding>(name, of, stream);
  });
}

ModuleMaker fragments(std::int64_t frames, ModuleMaker module) {
  return reading(
      {5, 5, "frames, rows, columns and channels"},
      [frames, module = std::move(module)](const ModuleName& name, const Shape& input,
                                           const Stream& stream) {
        if (frames < 1 || input[1] % frames != 0)
          throw ShapeMismatch(concat(name.here, ": fragments of ", frames, " frames do not divide ",
                                     input[1], " frames"));
        const Shape cut{input[0] * input[1] / frames, frames, input[2], input[3], input[4]};
        return std::make_unique<Fragments>(frames, module(name, cut, stream),
                                           output_shape(module, name, cut));
      });
}

ModuleMaker embedding(std::int64_t vocabulary, std::int64_t width) {
  return reading({1, 2, "tokens"}, [=](const ModuleName& name, const Shape&, const Stream& stream) {
    return std::make_unique<TokenTable>(name, vocabulary, width, stream);
  });
}

ModuleMaker positions() { return position_table(PositionTable::Rows::kLearned); }
ModuleMaker sinusoids() { return position_table(PositionTable::Rows::kSinusoids); }

ModuleMaker class_tokens(std::int64_t count) {
  return reading(kTokens, [=](const ModuleName& name, const Shape& input, const Stream& stream) {
    return std::make_unique<ClassTokens>(name, count, channels_of(input), stream);
  });
}

ModuleMaker tokens() {
  return reading({3, 5, "spatial dimensions and channels"},
                 [](const ModuleName&, const Shape& input, const Stream&) {
                   const std::int64_t width = channels_of(input);
                   return std::make_unique<Reshape>(Shape{1, input.elements() / width, width});
                 });
}

ModuleMaker flatten() {
  return reading({2, 5, "at least one dimension"},
                 [](const ModuleName&, const Shape& input, const Stream&) {
                   return std::make_unique<Reshape>(Shape{1, input.elements()});
                 });
}

ModuleMaker reshape(const Shape& example) {
  Shape shape{1};
  for (int i = 0; i < example.rank(); ++i) shape.append(example[i]);
  return [=](const ModuleName& name, const Shape& input, const Stream&) {
    if (input.elements() != shape.elements())
      throw ShapeMismatch(concat(name.here, ": its input is ", input.text(),
                                 ", want the same number of elements as ", shape.text()));
    return std::make_unique<Reshape>(shape);
  };
}

ModuleMaker token(std::int64_t index) {
  return reading(kTokens, [=](const ModuleName& name, const Shape& input, const Stream&) {
    if (index < 0 || index >= input[1])
      throw ShapeMismatch(concat(name.here, ": got token ", index, ", want 0 to ", input[1] - 1));
    return std::make_unique<OneToken>(index);
  });
}

}  // namespace hybrid_trainer::graph
