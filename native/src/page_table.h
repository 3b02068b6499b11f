// Sequences of tokens in pages: who holds which page, where each token lies, what a step appends. No tensors here.
#ifndef WEFT_PAGE_TABLE_H_
#define WEFT_PAGE_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace weft {

// Tokens [0, sink) lie at the front of the pages, and the rest from slot `offset` on: what a window has slid over is the
// gap between them. Without a gap both are 0.
struct Sequence {
  std::vector<int32_t> pages;
  int64_t length = 0;                   // tokens that attention sees
  int64_t sink = 0, offset = 0;
  int64_t window = 0, window_sink = 0;  // as asked for; 0: no window
  std::vector<int32_t> parents;         // of the nodes of a token tree that is not committed yet, -1 for roots
  std::vector<int32_t> depths;

  int64_t slot(int64_t token) const { return token < sink ? token : token - sink + offset; }
  int64_t slots() const { return length == 0 ? 0 : slot(length - 1) + 1; }
};

class PageTable {
 public:
  // Called to copy the first `tokens` of a page to another one, on all layers.
  using CopyPage = std::function<void(int32_t from, int32_t to, int64_t tokens)>;

  PageTable(int64_t page_size, int64_t n_pages);

  // Each throws "ValueError", and then has changed nothing, when there is no such sequence or an argument does not fit.
  Sequence& at(int64_t id);
  void add(int64_t id);
  void remove(int64_t id);
  // The child sees the first `tokens` of the parent, all where it is -1. Pages are shared until one of them writes.
  void fork(int64_t parent, int64_t child, int64_t tokens);
  void pop(int64_t id, int64_t tokens);
  void enable_window(int64_t id, int64_t window, int64_t sink);
  void clear();

  // Makes room for new tokens: pages that others see, too, are copied. All sequences get theirs, or none does.
  void append(const std::vector<Sequence*>& sequences, const std::vector<int64_t>& tokens, const CopyPage& copy);
  void slide(Sequence* sequence);  // gives back what lies before the window

  int32_t place(const Sequence& sequence, int64_t token) const;  // page * page_size + position in the page
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t tokens() const;  // of all sequences
  bool empty() const { return sequences_.empty() && free_.size() == holders_.size(); }
  int64_t capacity() const { return static_cast<int64_t>(holders_.size()) * page_size_; }
  int64_t page_size() const { return page_size_; }

 private:
  int64_t pages_for(int64_t slots) const { return (slots + page_size_ - 1) / page_size_; }
  int32_t take();
  void release(int32_t page);
  void truncate(Sequence* sequence, int64_t n_pages);

  int64_t page_size_;
  std::vector<int32_t> holders_;  // how many sequences have each page
  std::vector<int32_t> free_;
  std::map<int64_t, Sequence> sequences_;
};

}  // namespace weft
#endif  // WEFT_PAGE_TABLE_H_
