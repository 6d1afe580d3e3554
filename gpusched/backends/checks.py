"""Python's arguments checked and converted by machine code: the functions that entries call.

They are LLVM's own language, since there is nothing to be gained from another: each is a few calls
of Python's C interface. An array's byte order is written ``=``, ``|`` or ``<``: these processors
are little-endian.
"""

from __future__ import annotations

from collections.abc import Container
from string import Template

from gpusched.backends.native import HEAD, NDARRAY

ARRAY, FLOAT, TRUTH, INTEGER, UNSIGNED, COUNT, RUN = (
    f"gpusched.check.{name}"
    for name in ("array", "float", "truth", "integer", "unsigned", "count", "run")
)
"""Names of the functions."""

READ = 0x1
"""NumPy's flags of arrays that are read: their elements follow each other."""
WRITTEN = 0x1 | 0x100 | 0x400
"""And of those that are written: they are aligned and writable, too."""

_TEXTS = {
    "array": "argument %zd must be a one-dimensional, contiguous array of %s",
    "range": "argument %zd is too large for its dtype: %R",
    "count": "a kernel takes %zd arguments; %zd were given",
    "raised": "a kernel has raised an error",
}
"""Messages, as Python formats them."""

_TEXT = Template("""
@PyExc_TypeError = external global ptr
@PyExc_OverflowError = external global ptr
@PyExc_RuntimeError = external global ptr
@"$ndarray" = global ptr null

declare ptr @PyErr_Format(ptr, ptr, ...)
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare i64 @PyLong_AsUnsignedLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyNumber_Index(ptr)
declare i32 @PyObject_IsTrue(ptr)
declare i32 @PyType_IsSubtype(ptr, ptr)
declare void @Py_DecRef(ptr)

$texts
define i1 @"$count"(i64 %given, i64 %wanted) {
  %same = icmp eq i64 %given, %wanted
  br i1 %same, label %right, label %wrong
right:
  ret i1 true
wrong:
  %type = load ptr, ptr @PyExc_TypeError
  call ptr (ptr, ptr, ...) @PyErr_Format(ptr %type, ptr @text.count, i64 %wanted, i64 %given)
  ret i1 false
}

define i1 @"$array"(ptr %object, ptr %place, i64 %number, i32 %one, i32 %other, i32 %flags,
                    ptr %name) {
  %class.place = getelementptr i8, ptr %object, i64 $class
  %class = load ptr, ptr %class.place
  %ndarray = load ptr, ptr @"$ndarray"
  %exact = icmp eq ptr %class, %ndarray
  br i1 %exact, label %is.array, label %look
look:
  %derived = call i32 @PyType_IsSubtype(ptr %class, ptr %ndarray)
  %is.derived = icmp ne i32 %derived, 0
  br i1 %is.derived, label %is.array, label %wrong
is.array:
  %axes.place = getelementptr i8, ptr %object, i64 $axes
  %axes = load i32, ptr %axes.place
  %one.axis = icmp eq i32 %axes, 1
  %dtype.place = getelementptr i8, ptr %object, i64 $dtype
  %dtype = load ptr, ptr %dtype.place
  %type.place = getelementptr i8, ptr %dtype, i64 $type
  %type = load i32, ptr %type.place
  %is.one = icmp eq i32 %type, %one
  %is.other = icmp eq i32 %type, %other
  %same = or i1 %is.one, %is.other
  %order.place = getelementptr i8, ptr %dtype, i64 $order
  %order = load i8, ptr %order.place
  %native = icmp eq i8 %order, 61
  %any = icmp eq i8 %order, 124
  %little = icmp eq i8 %order, 60
  %native.any = or i1 %native, %any
  %own = or i1 %native.any, %little
  %flags.place = getelementptr i8, ptr %object, i64 $flags
  %has = load i32, ptr %flags.place
  %common = and i32 %has, %flags
  %all = icmp eq i32 %common, %flags
  %typed = and i1 %same, %own
  %shaped = and i1 %one.axis, %all
  %right = and i1 %typed, %shaped
  br i1 %right, label %take, label %wrong
take:
  %data.place = getelementptr i8, ptr %object, i64 $data
  %data = load i64, ptr %data.place
  store i64 %data, ptr %place
  %shape.place = getelementptr i8, ptr %object, i64 $shape
  %shape = load ptr, ptr %shape.place
  %length = load i64, ptr %shape
  %length.place = getelementptr i64, ptr %place, i64 1
  store i64 %length, ptr %length.place
  ret i1 true
wrong:
  %error = load ptr, ptr @PyExc_TypeError
  call ptr (ptr, ptr, ...) @PyErr_Format(ptr %error, ptr @text.array, i64 %number, ptr %name)
  ret i1 false
}

define i1 @"$float"(ptr %object, ptr %place, i64 %number) {
  %found = call double @PyFloat_AsDouble(ptr %object)
  store double %found, ptr %place
  %odd = fcmp oeq double %found, -1.0
  br i1 %odd, label %look, label %right
look:
  %error = call ptr @PyErr_Occurred()
  %none = icmp eq ptr %error, null
  ret i1 %none
right:
  ret i1 true
}

define i1 @"$truth"(ptr %object, ptr %place, i64 %number) {
  %found = call i32 @PyObject_IsTrue(ptr %object)
  %wide = sext i32 %found to i64
  store i64 %wide, ptr %place
  %right = icmp sge i32 %found, 0
  ret i1 %right
}

define i1 @"$integer"(ptr %object, ptr %place, i64 %number, i64 %least, i64 %most) {
  %found = call i64 @PyLong_AsLongLong(ptr %object)
  store i64 %found, ptr %place
  %odd = icmp eq i64 %found, -1
  br i1 %odd, label %look, label %compare
look:
  %error = call ptr @PyErr_Occurred()
  %none = icmp eq ptr %error, null
  br i1 %none, label %compare, label %failed
compare:
  %above = icmp sge i64 %found, %least
  %below = icmp sle i64 %found, %most
  %right = and i1 %above, %below
  br i1 %right, label %done, label %wrong
done:
  ret i1 true
wrong:
  %type = load ptr, ptr @PyExc_OverflowError
  call ptr (ptr, ptr, ...) @PyErr_Format(ptr %type, ptr @text.range, i64 %number, ptr %object)
  br label %failed
failed:
  ret i1 false
}

define i1 @"$unsigned"(ptr %object, ptr %place, i64 %number, i64 %most) {
  %index = call ptr @PyNumber_Index(ptr %object)
  %missing = icmp eq ptr %index, null
  br i1 %missing, label %failed, label %convert
convert:
  %found = call i64 @PyLong_AsUnsignedLongLong(ptr %index)
  call void @Py_DecRef(ptr %index)
  store i64 %found, ptr %place
  %odd = icmp eq i64 %found, -1
  br i1 %odd, label %look, label %compare
look:
  %error = call ptr @PyErr_Occurred()
  %none = icmp eq ptr %error, null
  br i1 %none, label %compare, label %failed
compare:
  %right = icmp ule i64 %found, %most
  br i1 %right, label %done, label %wrong
done:
  ret i1 true
wrong:
  %type = load ptr, ptr @PyExc_OverflowError
  call ptr (ptr, ptr, ...) @PyErr_Format(ptr %type, ptr @text.range, i64 %number, ptr %object)
  br label %failed
failed:
  ret i1 false
}

define ptr @"$run"(ptr %kernel, ptr %block) {
  %state = call ptr @PyEval_SaveThread()
  %found = call i64 %kernel(ptr %block)
  call void @PyEval_RestoreThread(ptr %state)
  %raised = icmp slt i64 %found, 0
  br i1 %raised, label %failed, label %done
done:
  %number = call ptr @PyLong_FromLongLong(i64 %found)
  ret ptr %number
failed:
  %type = load ptr, ptr @PyExc_RuntimeError
  call ptr (ptr, ptr, ...) @PyErr_Format(ptr %type, ptr @text.raised)
  ret ptr null
}
""")


def text(called: Container[str]) -> str:
    """Return those of the functions that are called, by name: each takes LLVM two milliseconds.

    They have the places of things in Python's and NumPy's objects.
    """
    texts = "\n".join(
        f'@text.{name} = private constant [{len(text) + 1} x i8] c"{text}\\00"'
        for name, text in _TEXTS.items()
    )
    whole = _TEXT.substitute(
        texts=texts, ndarray=NDARRAY, array=ARRAY, float=FLOAT, truth=TRUTH, integer=INTEGER,
        unsigned=UNSIGNED, count=COUNT, run=RUN, **{
            "class": HEAD - 8, "data": HEAD, "axes": HEAD + 8, "shape": HEAD + 16,
            "dtype": HEAD + 40, "flags": HEAD + 48, "order": HEAD + 10, "type": HEAD + 12,
        },
    )  # fmt: skip
    head, *functions = whole.split("\ndefine ")
    return "\ndefine ".join([head, *(f for f in functions if f.split('"')[1] in called)])
