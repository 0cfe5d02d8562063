// How far nlohmann's lexer has read: its events carry no places.
#pragma once
#include <cstddef>
#include <iterator>

namespace mirage::spec {

/// Characters of the text; tells `*consumed` how far the lexer has read, which is what gives tokens their places.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  CountingIterator() = default;
  CountingIterator(const char* begin, const char* at, size_t* consumed) : begin_(begin), at_(at), consumed_(consumed) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    *consumed_ = static_cast<size_t>(at_ - begin_);
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }
 private:
  const char* begin_ = nullptr;
  const char* at_ = nullptr;
  size_t* consumed_ = nullptr;
};

}  // namespace mirage::spec
