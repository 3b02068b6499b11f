// Frames of the Relax machine's functions, and how one of them becomes the next by a tail call.
#ifndef WEFT_RELAX_FRAME_H_
#define WEFT_RELAX_FRAME_H_

#include <cstring>
#include <vector>

#include "register_stack.h"
#include "vm.h"

namespace weft {

// Owned values on their way from one frame's registers to the next one's; most calls have few.
class TailArguments {
 public:
  TailArguments() = default;
  ~TailArguments() {
    for (size_t i = 0; i < size(); ++i) release(data()[i]);
  }
  TailArguments(const TailArguments&) = delete;
  TailArguments& operator=(const TailArguments&) = delete;
  // Of a register's value.
  void add(const TVMFFIAny& value) {
    retain(value);
    push(value);
  }
  // The same of a value that may be a view, which is copied; false with the error raised.
  bool add_owned(const TVMFFIAny& value) {
    TVMFFIAny owned{};
    if (own_argument(value, &owned) != 0) return false;
    push(owned);
    return true;
  }
  const TVMFFIAny* data() const { return many_.empty() ? few_ : many_.data(); }
  size_t size() const { return many_.empty() ? n_few_ : many_.size(); }
  void given_away() {
    n_few_ = 0;
    many_.clear();
  }

 private:
  void push(const TVMFFIAny& owned) {
    if (n_few_ < kFew && many_.empty()) {
      few_[n_few_++] = owned;
      return;
    }
    if (many_.empty()) many_.assign(few_, few_ + n_few_);
    many_.push_back(owned);
  }

  static constexpr size_t kFew = 16;
  size_t n_few_ = 0;
  TVMFFIAny few_[kFew];
  std::vector<TVMFFIAny> many_;
};

// Where a compiled function leaves the call that it makes last, for the frame that runs it.
struct TailCall {
  int32_t func = -1;
  TailArguments args;
};

struct RelaxStack : RegisterStack {
  RelaxStack();
  // Whether calls are to be counted: the thread's own stack has no more room than kernels, callbacks and errors take, or
  // this is another stack, as those of coroutines are.
  bool counts() const {
    const char* here = static_cast<const char*>(__builtin_frame_address(0));
    return here < floor_ || here >= end_;
  }
  int no_room(const FuncInfo& f) const;

  int depth = 0;
  VM* vm = nullptr;
  TailCall* tail = nullptr;  // of the innermost frame, if that is a compiled function's
  SignalWatch signals;

 private:
  const char *begin_ = nullptr, *floor_ = nullptr, *end_ = nullptr;  // of the thread's stack, where the system tells
};

// One call's registers and argument area; releases what the registers hold. The caller fills those of the arguments.
class FrameGuard {
 public:
  FrameGuard(RelaxStack* stack, VM* vm, size_t num_args, size_t num_regs, size_t borrowed, size_t area,
             TailCall* tail = nullptr)
      : stack_(stack), chunk_(stack->chunk), top_(stack->top), vm_(stack->vm), borrowed_(borrowed), num_regs_(num_regs),
        tail_(stack->tail) {
    if (stack->depth++ == 0) function_begins();
    stack->tail = tail;
    if (static_cast<size_t>(stack->limit - stack->top) < num_regs + area && !stack->grow(num_regs + area)) return;
    regs_ = stack->top;
    stack->top += num_regs + area;
    stack->vm = vm;
    for (size_t i = num_args; i < num_regs; ++i) regs_[i] = TVMFFIAny{};
  }
  ~FrameGuard() {
    if (regs_ != nullptr) {
      for (size_t i = borrowed_; i < num_regs_; ++i) release(regs_[i]);
    }
    if (stack_->chunk != chunk_) {
      // The first chunk of a thread is kept as the bottom of its stack.
      stack_->chunk = chunk_ != nullptr ? chunk_ : stack_->chunk;
      stack_->limit = stack_->chunk->words + stack_->chunk->size;
    }
    stack_->top = top_ != nullptr ? top_ : stack_->chunk != nullptr ? stack_->chunk->words : nullptr;
    stack_->vm = vm_;
    stack_->tail = tail_;
    if (--stack_->depth == 0) function_ends();
  }
  // Lets go of all registers and becomes the frame of another function, whose first ones take the arguments; false when
  // out of memory. Only a frame larger than what is left of its chunk moves, to the next one, and stays there.
  bool become(size_t num_regs, size_t area, TailArguments* args) {
    for (size_t i = borrowed_; i < num_regs_; ++i) release(regs_[i]);
    borrowed_ = num_regs_ = 0;
    if (static_cast<size_t>(stack_->limit - regs_) < num_regs + area) {
      if (!stack_->grow(num_regs + area)) return false;
      regs_ = stack_->top;
    }
    num_regs_ = num_regs;
    stack_->top = regs_ + num_regs + area;
    const size_t n = args->size();
    std::memcpy(static_cast<void*>(regs_), args->data(), n * sizeof(TVMFFIAny));
    std::memset(static_cast<void*>(regs_ + n), 0, (num_regs - n) * sizeof(TVMFFIAny));
    args->given_away();
    return true;
  }
  FrameGuard(const FrameGuard&) = delete;
  FrameGuard& operator=(const FrameGuard&) = delete;
  TVMFFIAny* regs() const { return regs_; }
  size_t borrowed() const { return borrowed_; }

 private:
  RelaxStack* stack_;
  Chunk* chunk_;
  TVMFFIAny* top_;
  VM* vm_;
  size_t borrowed_;  // the first registers, which hold no reference
  size_t num_regs_;
  TailCall* tail_;
  TVMFFIAny* regs_ = nullptr;
};

}  // namespace weft
#endif  // WEFT_RELAX_FRAME_H_
