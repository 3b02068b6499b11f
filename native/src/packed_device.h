// Devices that a library outside of the runtime brings, as global functions `weft.device.<name>.<what>`; <name> is that
// of DLPack's device type: ext_dev, metal, hexagon, ...
//
//   alloc(device_id, nbytes) -> address      free(device_id, address)
//   copy(from_address, from_type, from_id, to_address, to_type, to_id, nbytes)    one side may be the CPU (1)
//   count() -> devices that can be used      sync(device_id)     the last two are Python's Device
#ifndef WEFT_PACKED_DEVICE_H_
#define WEFT_PACKED_DEVICE_H_

#include <tvm/ffi/c_api.h>

#include <cstddef>

namespace weft {

bool packed_device_exists(int32_t type);
// Each returns null, or -1, with the error raised.
void* packed_device_alloc(DLDevice device, size_t nbytes);
void packed_device_free(DLDevice device, void* data);  // as a destructor: without errors
int packed_device_copy(const void* from, DLDevice from_device, void* to, DLDevice to_device, size_t nbytes);

}  // namespace weft
#endif  // WEFT_PACKED_DEVICE_H_
