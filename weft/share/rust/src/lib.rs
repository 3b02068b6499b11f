//! Runs a model that Weft compiled, over the C interface of the runtime: one file, nothing besides the standard library.
//!
//! ```ignore
//! let model = weft::Model::open("model.so")?;
//! let x = vec![0f32; 24];
//! let y = model.run("main", &[weft::Tensor::new(&x, &[3, 8])])?;
//! println!("{:?} {:?}", y[0].shape(), y[0].data::<f32>()?);
//! ```
//!
//! `RUSTFLAGS="$(weft config --rustflags)"` says where the libraries are. A model may be called from several threads.

use std::ffi::{c_char, c_int, c_void, CString};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr;

type Handle = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    index: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: DLTensor,
    context: *mut c_void,
    deleter: Option<extern "C" fn(*mut Managed)>,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Any {
    type_index: i32,
    small_length: u32,
    value: u64,
}

#[repr(C)]
struct Bytes {
    data: *const u8,
    size: usize,
}

const HEADER: usize = 24; // bytes before what an object has of its own
const NONE: i32 = 0;
const INT: i32 = 1;
const BOOL: i32 = 2;
const RAW_STRING: i32 = 8;
const SMALL_STRING: i32 = 11;
const OBJECT: i32 = 64;
const STRING: i32 = 65;
const TENSOR: i32 = 70;
const ARRAY: i32 = 71;
const MODULE: i32 = 73;

#[link(name = "weft_runtime")]
extern "C" {
    fn weft_load_module(path: *const c_char, out: *mut Handle) -> i32;
    fn weft_vm_create(executable: Handle, device: Device, out: *mut Handle) -> i32;
}

#[link(name = "tvm_ffi")]
extern "C" {
    fn TVMFFIFunctionGetGlobal(name: *const Bytes, out: *mut Handle) -> c_int;
    fn TVMFFIFunctionCall(function: Handle, args: *mut Any, count: i32, result: *mut Any) -> c_int;
    fn TVMFFIObjectDecRef(object: Handle) -> c_int;
    fn TVMFFIErrorMoveFromRaised(out: *mut Handle);
    fn TVMFFITensorFromDLPack(from: *mut Managed, alignment: i32, contiguous: i32, out: *mut Handle) -> c_int;
}

/// What the runtime raised: a kind such as "ValueError", and what was wrong.
#[derive(Debug, Clone)]
pub struct Error {
    pub kind: String,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl std::error::Error for Error {}

fn error(kind: &str, message: String) -> Error {
    Error { kind: kind.into(), message }
}

/// An object of the runtime, given back when it is dropped.
struct Object(Handle);

// Reference counts are atomic, and the functions of a machine may run on several threads.
unsafe impl Send for Object {}
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        unsafe { TVMFFIObjectDecRef(self.0) };
    }
}

/// Types of elements.
pub trait Element: Copy {
    const CODE: u8;
    const BITS: u8 = 8 * std::mem::size_of::<Self>() as u8;
}

macro_rules! elements {
    ($($t:ty: $code:expr),*) => { $(impl Element for $t { const CODE: u8 = $code; })* };
}
elements!(i8: 0, i16: 0, i32: 0, i64: 0, u8: 1, u16: 1, u32: 1, u64: 1, f32: 2, f64: 2, bool: 6);

/// An argument over elements of the caller's, which are not copied.
pub struct Tensor<'a> {
    data: *const c_void,
    dtype: DType,
    shape: Vec<i64>,
    lives: PhantomData<&'a ()>,
}

impl<'a> Tensor<'a> {
    /// A tensor of row-major elements. Panics where the shape has another number of them.
    pub fn new<T: Element>(data: &'a [T], shape: &[i64]) -> Self {
        let count: i64 = shape.iter().product();
        assert!(shape.iter().all(|d| *d >= 0) && count as usize == data.len(), "a tensor of shape {shape:?} needs {count} elements, found {}", data.len());
        let dtype = DType { code: T::CODE, bits: T::BITS, lanes: 1 };
        Tensor { data: data.as_ptr().cast(), dtype, shape: shape.to_vec(), lives: PhantomData }
    }
}

/// A result.
pub struct Output(Object);

impl Output {
    fn tensor(&self) -> &DLTensor {
        unsafe { &*self.0 .0.cast::<u8>().add(HEADER).cast() }
    }

    pub fn shape(&self) -> &[i64] {
        let t = self.tensor();
        if t.ndim == 0 { &[] } else { unsafe { std::slice::from_raw_parts(t.shape, t.ndim as usize) } }
    }

    /// The elements; an error where they are of another type.
    pub fn data<T: Element>(&self) -> Result<&[T], Error> {
        let t = self.tensor();
        if (t.dtype.code, t.dtype.bits, t.dtype.lanes) != (T::CODE, T::BITS, 1) {
            let found = format!("expected code {} of {} bits, found code {} of {} bits", T::CODE, T::BITS, t.dtype.code, t.dtype.bits);
            return Err(error("TypeError", found));
        }
        let count = self.shape().iter().product::<i64>() as usize;
        if count == 0 {
            return Ok(&[]);
        }
        Ok(unsafe { std::slice::from_raw_parts(t.data.cast::<u8>().add(t.byte_offset as usize).cast(), count) })
    }
}

/// What a model says of an input or output; dimensions are numbers or names.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    pub name: String,
    pub dtype: Option<String>,
    pub shape: Option<Vec<String>>,
}

/// A model, on the CPU.
pub struct Model {
    machine: Object,
}

impl Model {
    /// Opens a library that `weft compile` or `export_library` wrote.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        let path = CString::new(path.as_ref().to_string_lossy().as_bytes()).map_err(|e| error("ValueError", e.to_string()))?;
        let mut out = ptr::null_mut();
        check(unsafe { weft_load_module(path.as_ptr(), &mut out) })?;
        let module = Object(out);
        check(unsafe { weft_vm_create(module.0, Device { kind: 1, index: 0 }, &mut out) })?;
        Ok(Model { machine: Object(out) })
    }

    /// Calls a function of the model; the fields of a tuple, all tensors, come one by one.
    pub fn run(&self, name: &str, inputs: &[Tensor]) -> Result<Vec<Output>, Error> {
        let function = self.function(name)?;
        let mut managed: Vec<Managed> = inputs.iter().map(|t| Managed {
            tensor: DLTensor {
                data: t.data as *mut c_void, device: Device { kind: 1, index: 0 }, ndim: t.shape.len() as i32, dtype: t.dtype,
                shape: t.shape.as_ptr() as *mut i64, strides: ptr::null_mut(), byte_offset: 0,
            },
            context: ptr::null_mut(),
            deleter: None,
        }).collect();
        let mut held = Vec::new();
        for m in &mut managed {
            let mut out = ptr::null_mut();
            check(unsafe { TVMFFITensorFromDLPack(m, 0, 0, &mut out) })?;
            held.push(Object(out));
        }
        let mut args: Vec<Any> = held.iter().map(|o| any(TENSOR, o.0)).collect();
        outputs(Value(call(&function, &mut args)?))
    }

    /// Inputs of `main`; empty where the model does not say, as those that no importer made.
    pub fn inputs(&self) -> Result<Vec<TensorInfo>, Error> {
        self.described("inputs")
    }

    /// Outputs of `main`.
    pub fn outputs(&self) -> Result<Vec<TensorInfo>, Error> {
        self.described("outputs")
    }

    fn function(&self, name: &str) -> Result<Object, Error> {
        let text = CString::new(name).map_err(|e| error("ValueError", e.to_string()))?;
        let args = [any(MODULE, self.machine.0), any(RAW_STRING, text.as_ptr() as Handle), Any { type_index: BOOL, small_length: 0, value: 0 }];
        let found = global("ffi.ModuleGetFunction", &args)?;
        if found.0.type_index == NONE {
            return Err(error("ValueError", format!("the model has no function \"{name}\"")));
        }
        Ok(found.into_object())
    }

    fn described(&self, which: &str) -> Result<Vec<TensorInfo>, Error> {
        let Ok(function) = self.function("weft.metadata") else { return Ok(Vec::new()) };
        let text = Value(call(&function, &mut [])?);
        let about = global("ffi.json.Parse", &[text.0])?;
        let entries = item(&about, which)?;
        let mut out = Vec::new();
        for i in 0..entries.size() {
            let entry = entries.element(i)?;
            let shape = item(&entry, "shape")?;
            let dims = (0..shape.size()).map(|d| Ok(shape.element(d)?.text().unwrap_or_default())).collect::<Result<_, Error>>()?;
            out.push(TensorInfo {
                name: item(&entry, "name")?.text().unwrap_or_default(),
                dtype: item(&entry, "dtype")?.text(),
                shape: (shape.0.type_index == ARRAY).then_some(dims),
            });
        }
        Ok(out)
    }
}

/// A value of the runtime, given back when it is dropped.
struct Value(Any);

impl Drop for Value {
    fn drop(&mut self) {
        if self.0.type_index >= OBJECT {
            unsafe { TVMFFIObjectDecRef(self.0.value as Handle) };
        }
    }
}

impl Value {
    fn into_object(self) -> Object {
        let object = Object(self.0.value as Handle);
        std::mem::forget(self);
        object
    }

    fn size(&self) -> i64 {
        if self.0.type_index != ARRAY { 0 } else { unsafe { *(self.0.value as *const u8).add(HEADER + 8).cast() } }
    }

    fn element(&self, index: i64) -> Result<Value, Error> {
        global("ffi.ArrayGetItem", &[self.0, Any { type_index: INT, small_length: 0, value: index as u64 }])
    }

    /// A string, or a number as one.
    fn text(&self) -> Option<String> {
        match self.0.type_index {
            INT => Some((self.0.value as i64).to_string()),
            SMALL_STRING => Some(String::from_utf8_lossy(&self.0.value.to_ne_bytes()[..self.0.small_length as usize]).into()),
            STRING => Some(unsafe { string_in(self.0.value as Handle, HEADER) }),
            _ => None,
        }
    }
}

fn any(type_index: i32, handle: Handle) -> Any {
    Any { type_index, small_length: 0, value: handle as u64 }
}

unsafe fn string_in(object: Handle, at: usize) -> String {
    let bytes = &*object.cast::<u8>().add(at).cast::<Bytes>();
    if bytes.size == 0 { String::new() } else { String::from_utf8_lossy(std::slice::from_raw_parts(bytes.data, bytes.size)).into() }
}

fn check(status: c_int) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    let mut raised = ptr::null_mut();
    unsafe { TVMFFIErrorMoveFromRaised(&mut raised) };
    let raised = Object(raised);
    Err(Error { kind: unsafe { string_in(raised.0, HEADER) }, message: unsafe { string_in(raised.0, HEADER + 16) } })
}

fn call(function: &Object, args: &mut [Any]) -> Result<Any, Error> {
    let mut result = Any { type_index: NONE, small_length: 0, value: 0 };
    check(unsafe { TVMFFIFunctionCall(function.0, args.as_mut_ptr(), args.len() as i32, &mut result) })?;
    Ok(result)
}

fn global(name: &str, args: &[Any]) -> Result<Value, Error> {
    let mut out = ptr::null_mut();
    check(unsafe { TVMFFIFunctionGetGlobal(&Bytes { data: name.as_ptr(), size: name.len() }, &mut out) })?;
    Ok(Value(call(&Object(out), &mut args.to_vec())?))
}

fn item(map: &Value, key: &str) -> Result<Value, Error> {
    let text = CString::new(key).map_err(|e| error("ValueError", e.to_string()))?;
    global("ffi.MapGetItem", &[map.0, any(RAW_STRING, text.as_ptr() as Handle)])
}

fn outputs(result: Value) -> Result<Vec<Output>, Error> {
    match result.0.type_index {
        TENSOR => Ok(vec![Output(result.into_object())]),
        ARRAY => (0..result.size()).map(|i| {
            let field = result.element(i)?;
            let kind = field.0.type_index;
            if kind == TENSOR { Ok(Output(field.into_object())) } else { Err(not_tensor(kind)) }
        }).collect(),
        kind => Err(not_tensor(kind)),
    }
}

fn not_tensor(kind: i32) -> Error {
    error("TypeError", format!("the function returned a value of type {kind}, expected tensors"))
}
