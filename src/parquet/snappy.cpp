#include "src/parquet/snappy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

[[noreturn]] void damaged() { throw DataError("a page is damaged: it is no snappy data"); }

class Snappy {
 public:
  Snappy(std::string_view in, std::size_t size, std::string& out)
      : in_(in), size_(size), out_(out) {}

  void run() {
    if (read_size() != size_) damaged();
    out_.clear();
    out_.resize(std::min(size_, 4 * in_.size() + 64));
    while (at_ < in_.size()) {
      const unsigned tag = byte();
      switch (tag & 3) {
        case 0:
          literal(tag >> 2);
          break;
        case 1:
          copy((tag >> 5) << 8 | byte(), (tag >> 2 & 7) + 4);
          break;
        case 2:
          copy(number(2), (tag >> 2) + 1);
          break;
        default:
          copy(number(4), (tag >> 2) + 1);
      }
    }
    if (filled_ != size_) damaged();
    out_.resize(size_);
  }

 private:
  unsigned byte() {
    if (at_ == in_.size()) damaged();
    return static_cast<unsigned char>(in_[at_++]);
  }
  std::size_t number(std::size_t bytes) {
    std::size_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value |= std::size_t{byte()} << (8 * i);
    return value;
  }
  std::size_t read_size() {
    std::size_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      const unsigned next = byte();
      value |= std::size_t{next & 127u} << shift;
      if (next < 128) return value;
    }
    damaged();
  }
  /// Makes room behind what is filled.
  char* room(std::size_t bytes) {
    if (bytes > size_ - filled_) damaged();
    if (filled_ + bytes > out_.size())
      out_.resize(std::min(size_, std::max(2 * out_.size(), filled_ + bytes)));
    return out_.data() + filled_;
  }
  void literal(std::size_t code) {
    const std::size_t bytes = 1 + (code < 60 ? code : number(code - 59));
    if (bytes > in_.size() - at_) damaged();
    std::memcpy(room(bytes), in_.data() + at_, bytes);
    at_ += bytes;
    filled_ += bytes;
  }
  void copy(std::size_t back, std::size_t bytes) {
    if (back == 0 || back > filled_) damaged();
    char* const to = room(bytes);
    if (back >= bytes) {
      std::memcpy(to, to - back, bytes);
    } else {  // repeats what it writes
      for (std::size_t i = 0; i < bytes; ++i) to[i] = to[i - back];
    }
    filled_ += bytes;
  }

  std::string_view in_;
  std::size_t size_, at_ = 0, filled_ = 0;
  std::string& out_;
};

}  // namespace

void decompress_snappy(std::string_view in, std::size_t size, std::string& out) {
  Snappy(in, size, out).run();
}

}  // namespace hybrid_trainer
