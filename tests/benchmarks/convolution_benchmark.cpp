// Times the forward pass and the two gradients of one convolution. Prints one line of JSON: the
// shortest time of each in seconds, and GFLOP/s of all three.
// usage: convolution_benchmark f32|bf16 SIZES OUTPUTS KERNEL STRIDE PADDING [GROUPS [SECONDS]]
// SIZES is the shape of x with the channels last, such as 2,16,56,56,3. The next three have a
// number for each spatial dimension, such as 1,2,2.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/convolution.h"

namespace {

using namespace hybrid_trainer;
using namespace hybrid_trainer::kernels;
using Clock = std::chrono::steady_clock;

std::vector<std::int64_t> numbers(const std::string& text) {
  std::vector<std::int64_t> result;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) result.push_back(std::stoll(word));
  return result;
}

SpatialSizes sizes(const std::string& text) {
  SpatialSizes result{1, 1, 1};
  const std::vector<std::int64_t> all = numbers(text);
  for (std::size_t i = 0; i < all.size() && i < result.size(); ++i) result[i] = all[i];
  return result;
}

Tensor random(const Shape& shape, DType dtype, const Stream& stream) {
  const Tensor x = Tensor::empty(shape, dtype, MemoryKind::kActivations, stream);
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const float value = random_normal({1, 0, 0}, static_cast<std::uint64_t>(i));
    if (dtype == DType::kF32) x.data<float>()[i] = value;
    if (dtype == DType::kBF16) x.data<BFloat16>()[i] = to_bfloat16(value);
  }
  return x;
}

/// Shortest of the runs that fit in this time, at least three.
double seconds_of(const std::function<void()>& run, double most) {
  double least = 1e30, spent = 0;
  run();
  for (int i = 0; i < 3 || spent < most; ++i) {
    const auto begin = Clock::now();
    run();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    least = std::min(least, seconds);
    spent += seconds;
  }
  return least;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 7) {
    std::fprintf(stderr,
                 "usage: convolution_benchmark f32|bf16 SIZES OUTPUTS KERNEL STRIDE PADDING "
                 "[GROUPS [SECONDS]]\n");
    return 2;
  }
  const DType dtype = std::string(arguments[1]) == "bf16" ? DType::kBF16 : DType::kF32;
  Shape shape;
  for (const std::int64_t size : numbers(arguments[2])) shape.append(size);
  const std::int64_t outputs = std::atoll(arguments[3]);
  const Window window{.kernel = sizes(arguments[4]), .stride = sizes(arguments[5]), .padding = [&] {
                        SpatialSizes padding = sizes(arguments[6]);
                        for (auto i = static_cast<std::size_t>(spatial_rank(shape)); i < 3; ++i)
                          padding[i] = 0;
                        return padding;
                      }()};
  const std::int64_t groups = count > 7 ? std::atoll(arguments[7]) : 1;
  const double most = count > 8 ? std::atof(arguments[8]) : 0.5;
  const Stream stream(MemoryPool::create("benchmark"));
  const std::int64_t columns = window.taps(spatial_rank(shape)) * shape[shape.rank() - 1] / groups;
  const Tensor x = random(shape, dtype, stream), weight = random({outputs, columns}, dtype, stream),
               bias = random({outputs}, DType::kF32, stream),
               y = random(window_outputs(shape, window, outputs), dtype, stream),
               dx = random(shape, dtype, stream),
               dweight = random({outputs, columns}, DType::kF32, stream),
               dbias = random({outputs}, DType::kF32, stream);
  const double forward =
      seconds_of([&] { convolution_forward(y, x, weight, bias, window, groups, stream); }, most);
  const double input =
      seconds_of([&] { convolution_backward_input(dx, y, weight, window, groups, stream); }, most);
  const double parameters = seconds_of(
      [&] {
        convolution_backward_weight(dweight, y, x, window, groups, GradientMode::kOverwrite,
                                    stream);
        bias_backward(dbias, y.as_rows(), GradientMode::kOverwrite, stream);
      },
      most);
  const double operations = 2.0 * static_cast<double>(y.elements() * columns);
  std::printf(
      "{\"forward\": %.6g, \"backward_input\": %.6g, \"backward_parameters\": %.6g, \"gflops\": "
      "[%.1f, %.1f, %.1f]}\n",
      forward, input, parameters, operations / forward / 1e9, operations / input / 1e9,
      operations / parameters / 1e9);
}
