// Executable files as bytes: bounds-checked reading, writing, constants, and the list of what a verifier found.
#ifndef WEFT_SERIAL_H_
#define WEFT_SERIAL_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/error.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace weft {

[[noreturn]] inline void raise_executable_error(const std::string& message) { throw tvm::ffi::Error("ExecutableError", message, ""); }

// Names and strings reach error messages and Python, which need them well-formed.
bool is_utf8(const std::string& text);

// A cursor over untrusted bytes: every read is checked against what is left, errors name section and offset.
class Reader {
 public:
  Reader(const char* data, size_t size, TVMFFIObject* keep, const char* what = "executable")
      : data_(data), size_(size), keep_(keep), what_(what) {}

  void section(const char* name) { section_ = name; }

  [[noreturn]] void error(const std::string& what) const {
    raise_executable_error(std::string(what_) + ": section " + section_ + ", offset " + std::to_string(at_) + ": " + what);
  }

  const char* take(uint64_t n, const char* what) {
    if (n > size_ - at_) {
      error(std::string("cut short: ") + what + " needs " + std::to_string(n) + " bytes, found " +
            std::to_string(size_ - at_));
    }
    const char* p = data_ + at_;
    at_ += static_cast<size_t>(n);
    return p;
  }

  template <typename T>
  T pod(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }

  // A count of elements that need at least `least` bytes each: refused when the rest of the file cannot hold them.
  uint64_t count(uint64_t least, const char* what) {
    auto n = pod<uint64_t>(what);
    if (n > (size_ - at_) / least) {
      error("cut short: " + std::to_string(n) + " " + what + " do not fit in the " + std::to_string(size_ - at_) +
            " bytes left");
    }
    return n;
  }

  std::string str(const char* what) {
    uint64_t n = count(1, what);
    std::string text(take(n, what), static_cast<size_t>(n));
    if (!is_utf8(text)) error(std::string(what) + " is not UTF-8");
    return text;
  }

  std::vector<int64_t> words(const char* what) {
    uint64_t n = count(8, what);
    std::vector<int64_t> out(static_cast<size_t>(n));
    const char* p = take(n * 8, what);
    if (n != 0) std::memcpy(out.data(), p, static_cast<size_t>(n) * 8);
    return out;
  }

  size_t left() const { return size_ - at_; }
  // What keeps the bytes in place, or null.
  TVMFFIObject* keep() const { return keep_; }

 private:
  const char* data_;
  size_t size_;
  TVMFFIObject* keep_;
  const char* what_;
  size_t at_ = 0;
  const char* section_ = "header";
};

// The counterpart of Reader: into a string, into a file, or only counting.
class Writer {
 public:
  explicit Writer(std::string* text) : text_(text) {}
  explicit Writer(std::FILE* file) : file_(file) {}

  void bytes(const void* data, size_t n) {
    size_ += n;
    if (text_ != nullptr) text_->append(static_cast<const char*>(data), n);
    if (file_ != nullptr && n != 0 && std::fwrite(data, 1, n, file_) != n) {
      throw tvm::ffi::Error("OSError", std::string("cannot write the executable: ") + std::strerror(errno), "");
    }
  }
  template <typename T>
  void pod(T value) {
    bytes(&value, sizeof(T));
  }
  void str(const char* data, size_t n) {
    pod<uint64_t>(n);
    bytes(data, n);
  }
  void str(const std::string& text) { str(text.data(), text.size()); }
  void words(const std::vector<int64_t>& words) {
    pod<uint64_t>(words.size());
    bytes(words.data(), words.size() * 8);
  }
  size_t size() const { return size_; }

 private:
  std::string* text_ = nullptr;
  std::FILE* file_ = nullptr;
  size_t size_ = 0;
};

// Errors of a verifier: all are counted, the first are kept, and they are raised together.
class ErrorList {
 public:
  void add(const std::string& text) {
    ++total_;
    if (!full()) errors_.push_back(text);
  }
  bool empty() const { return errors_.empty(); }
  bool full() const { return errors_.size() == 20; }
  void raise_if_any(const char* what = "executable") const;

 private:
  std::vector<std::string> errors_;
  size_t total_ = 0;
};

// A tensor's record, as Apache TVM writes it.
tvm::ffi::Any read_tensor(Reader* in);
void write_tensor(Writer* out, const DLTensor& tensor);
// One constant: i32 tag, payload.
tvm::ffi::Any read_constant(Reader* in);
void write_constant(Writer* out, const tvm::ffi::Any& value);
bool valid_dtype(DLDataType dtype);

}  // namespace weft
#endif  // WEFT_SERIAL_H_
